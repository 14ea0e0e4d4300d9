//! AF_XDP over cables of the kernel's making. Needs root; skipped without.
#![cfg(target_os = "linux")]

mod binding;
mod halves;
mod kept;
mod left_undone;
mod lifetimes;
mod links;
mod passing;
mod places;
mod queues;
mod rig;
