//! The `fairlane` program: a thin shell over the library crates.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    fairlane_cli::Program::new().main()
}
