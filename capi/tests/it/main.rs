//! The library from C: programs that are compiled here and run.
#![cfg(target_os = "linux")]

#[path = "../support/c.rs"]
mod c;

mod attach;
mod header;
mod installed;
mod ns3;
mod programs;
