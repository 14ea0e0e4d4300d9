//! The operator's side of the terminal: lines, tables and figures of all commands, the commands for a running site, the
//! first site file, completions and the manual. This crate is internal; the library is the crate `fairlane`.
#![forbid(unsafe_code)]
// These macros panic on a closed pipe; `output` does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod algorithm;
pub mod classes;
pub mod classified;
pub mod command_line;
pub mod completions;
mod configuration;
mod connection;
pub mod ctl;
mod effects;
pub use fairlane_config::figures;
pub mod init;
pub mod interrupt;
pub mod log;
pub mod manual;
pub mod output;
pub mod plain;
pub mod screen;
pub mod site_report;
pub mod table;
pub mod top;
