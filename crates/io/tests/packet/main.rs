//! Packet sockets over a virtual cable keep the contract of every backend.
#![cfg(target_os = "linux")]

mod groups;
mod left_undone;
mod links;
mod passing;
mod rig;
mod ring;
#[path = "../support/mod.rs"]
mod support;
