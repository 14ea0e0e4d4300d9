//! The parts of the `fairlane` program, which `main.rs` and the laboratory start. Not a library
//! to build on: that is the crate `fairlane`.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]
// They panic where nobody reads: `output` has what does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod algorithm;
pub mod arguments;
mod bench;
mod check;
mod classes;
pub mod cli;
mod machine;
mod replay;
pub mod run;
pub mod sim;

use std::process::ExitCode;

use anyhow::Result;
use fairlane_config::SiteError;
use fairlane_terminal::{completions, ctl, figures, init, manual, top};
pub use fairlane_terminal::{interrupt, output, plain, table};

/// Does what the command line asks for.
pub fn main() -> ExitCode {
    let command = match cli::parse() {
        Ok(command) => command,
        Err(code) => return code,
    };
    exit(match command {
        cli::Command::Run(options) => run::run(&options),
        cli::Command::Check(options) => check::run(&options),
        cli::Command::Bench(options) => bench::run(&options),
        cli::Command::Replay(options) => replay::run(&options),
        cli::Command::Sim(options) => sim::run(&options),
        cli::Command::Ctl(options) => ctl::run(&options),
        cli::Command::Top(options) => top::run(&options),
        cli::Command::Init(options) => init::run(&options),
        cli::Command::Completions(options) => completions::run(&options, cli::definition()),
        cli::Command::Manual(options) => manual::run(&options, cli::definition()),
    })
}

/// The code to exit with, after what went wrong has been said in one sentence.
pub fn exit(outcome: Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if output::reader_left(&error) => ExitCode::SUCCESS,
        // Each sentence has its place in the file in front, as editors read it.
        Err(error) if matches!(error.downcast_ref(), Some(SiteError::Invalid(_))) => {
            output::stderr(error.root_cause());
            ExitCode::from(2)
        }
        Err(error) => {
            // The context says where, the cause says what.
            output::aside(format_args!("{error:#}"));
            ExitCode::from(2)
        }
    }
}
