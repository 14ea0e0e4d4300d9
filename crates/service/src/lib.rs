//! A daemon's relations to its service manager: notifications ([`Manager`]), privileges given up after start
//! ([`privileges`]), scheduling precedence ([`session`]), logs ([`log`]), and limits of the time to end
//! ([`Ending`]). This crate is independent of the daemon's task.
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
