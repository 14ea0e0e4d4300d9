//! Clients that are other processes: real ones, some of them killed, stopped or hostile. No
//! privilege is needed.
#![cfg(target_os = "linux")]

mod admission;
mod hostile;
mod processes;
mod raw;
mod rig;
