//! A daemon as a service manager wants it. What the manager hears of it: [`Manager`]. Nothing here
//! knows what the daemon does.
#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod manager;

pub use manager::{Manager, Teller, Telling};
