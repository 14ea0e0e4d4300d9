//! Clients that are other processes: real ones, some of them killed, stopped or hostile. No
//! privilege is needed, but to be two users at once.
#![cfg(target_os = "linux")]

mod admission;
mod hostile;
mod processes;
mod quotas;
mod raw;
mod rig;
