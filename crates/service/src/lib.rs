//! A daemon as a service manager wants it: what the manager hears of it ([`Manager`]), what it gives up
//! once it knows what it has to do ([`privileges`]), whom it comes before ([`session`]), how it logs ([`log`]),
//! and how long it may take to end ([`Ending`]). Nothing here knows what the daemon does.
#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

mod calls;
mod ending;
pub mod log;
mod manager;
pub mod privileges;
pub mod session;

pub use ending::Ending;
pub use manager::{Manager, Teller, Telling};
