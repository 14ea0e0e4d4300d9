//! The instruments as the laboratory starts them, in one binary.

mod altq;
mod bench_path;
mod bench_pspat;
mod cores;
mod io;
mod pairs;
#[path = "../../../../crates/cli/tests/it/program/mod.rs"]
mod program;
