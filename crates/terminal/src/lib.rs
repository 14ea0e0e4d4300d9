//! What an operator sees and types in a terminal: lines, tables and figures as all commands print
//! them, and the commands that speak with a running site. Not a library to build on: that is the
//! crate `fairlane`.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]
// They panic where nobody reads: `output` has what does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod connection;
pub mod ctl;
mod effects;
pub mod figures;
pub mod interrupt;
pub mod output;
pub mod table;
pub mod top;
