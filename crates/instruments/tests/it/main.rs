//! The laboratory's program as a user starts it, in one binary.

mod bench_io;
#[path = "../../../cli/tests/it/program/mod.rs"]
mod program;
mod reproduce;
mod reproduce_altq;
mod sim;
