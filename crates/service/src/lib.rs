//! A daemon as a service manager wants it: what the manager hears of it ([`Manager`]), and what it
//! gives up once it knows what it has to do ([`privileges`]), how it logs ([`log`]). Nothing here knows
//! what the daemon does.
#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod calls;
pub mod log;
mod manager;
pub mod privileges;

pub use manager::{Manager, Teller, Telling};
