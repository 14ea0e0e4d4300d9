//! The interfaces that a site names.

use fairlane_config::{Interfaces, Near, Role};

/// Returns the interfaces that a site names, the near one first.
pub fn named(interfaces: &Interfaces) -> impl Iterator<Item = &String> {
    let near = match &interfaces.near {
        Near::Inside(name) => Some(name),
        Near::Tap(_) | Near::Nothing => None,
    };
    near.into_iter().chain([&interfaces.outside])
}

/// Returns the near device's role in the configuration.
pub fn near_role(interfaces: &Interfaces) -> Role {
    match interfaces.near {
        Near::Inside(_) | Near::Nothing => Role::Inside,
        Near::Tap(_) => Role::Tap,
    }
}
