//! Selection of a link of a site, and of the interface its packets arrive at.

use fairlane_config::{Link, Near, Role, Site, suggestion};

/// Returns the link of this name, or the only one.
pub fn choose_link<'a>(site: &'a Site, name: Option<&str>) -> Result<&'a Link, String> {
    let names: Vec<&str> = site.links.iter().map(|link| link.name.as_str()).collect();
    match (name, &site.links[..]) {
        (None, [only]) => Ok(only),
        (None, _) => Err(format!(
            "the site has several links: select one of {}",
            names.join(", ")
        )),
        (Some(name), _) => site.link(name).ok_or_else(|| no_such("link", name, &names)),
    }
}

/// Returns the error for an unknown `name`: with similar names, or else all.
pub(crate) fn no_such(what: &str, name: &str, names: &[&str]) -> String {
    let near = suggestion(name, names.iter().copied());
    match near.is_empty() {
        true => format!(
            "{what} '{name}' does not exist: it is one of {}",
            names.join(", ")
        ),
        false => format!("{what} '{name}' does not exist{near}"),
    }
}

/// Returns the default side at which packets that leave by `to` arrive.
pub fn other_side(site: &Site, to: Role) -> Role {
    let near = site.interfaces.as_ref().map(|interfaces| &interfaces.near);
    match (to, near) {
        (Role::Inside | Role::Tap, _) => Role::Outside,
        (_, Some(Near::Tap(_))) => Role::Tap,
        (_, Some(Near::Nothing)) => Role::Attached,
        _ => Role::Inside,
    }
}
