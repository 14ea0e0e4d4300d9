//! The instruments as the laboratory starts them, in one binary.

mod altq;
mod cores;
mod io;
mod pairs;
#[path = "../../../../crates/cli/tests/it/program/mod.rs"]
mod program;
