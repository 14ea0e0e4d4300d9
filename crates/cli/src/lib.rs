//! The parts of the `fairlane` program, which `main.rs` and the laboratory's instruments start, and [`Program`]: the
//! same with algorithms of other crates. Not a library to build on: that is the crate `fairlane`.
#![forbid(unsafe_code)]
// These macros panic if standard output is closed; `output` has replacements that do not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod arguments;
pub mod bench;
mod check;
pub mod cli;
mod compare;
mod cost;
mod machine;
mod replay;
pub mod run;
mod sim;
mod source;

use std::process::ExitCode;

use anyhow::Result;
use fairlane_config::algorithms::{self, RegisterError};
use fairlane_core::sched::CustomAlgorithm;
pub use fairlane_terminal::{algorithm, interrupt, output, plain, table};
use fairlane_terminal::{completions, ctl, figures, init, manual, top};

/// The program, with algorithms of other crates in addition to the built-in ones: `bench`, `replay`, `compare`, `run`,
/// `check` and `sim` accept them by name in command lines and files. `examples/own_algorithm` is such a program.
#[derive(Default)]
pub struct Program {
    custom: Vec<cost::Custom>,
    refused: Option<RegisterError>,
}

impl Program {
    /// Returns the program with the built-in algorithms.
    pub fn new() -> Program {
        Program::default()
    }

    /// Adds an algorithm under this name. If the name is taken, [`main`](Self::main) prints an error and exits.
    #[must_use]
    pub fn algorithm<A: CustomAlgorithm>(mut self, name: &'static str) -> Program {
        match algorithms::register::<A>(name) {
            Ok(algorithm) => {
                (self.custom).push((algorithm, |case| case.measure_algorithm(A::default())))
            }
            Err(refused) => _ = self.refused.get_or_insert(refused),
        }
        self
    }

    /// Runs the command line.
    pub fn main(self) -> ExitCode {
        if let Some(refused) = self.refused {
            return exit(Err(refused.into()));
        }
        let command = match cli::parse() {
            Ok(command) => command,
            Err(code) => return code,
        };
        exit(match command {
            cli::Command::Run(options) => run::run(&options),
            cli::Command::Check(options) => check::run(&options),
            cli::Command::Bench(options) => bench::run(&options, &self.custom),
            cli::Command::Replay(options) => replay::run(&options),
            cli::Command::Compare(options) => compare::run(&options, &self.custom),
            cli::Command::Sim(options) => sim::run(&options),
            cli::Command::Ctl(options) => ctl::run(&options),
            cli::Command::Top(options) => top::run(&options),
            cli::Command::Init(options) => init::run(&options),
            cli::Command::Completions(options) => completions::run(&options, cli::definition()),
            cli::Command::Manual(options) => manual::run(&options, cli::definition()),
        })
    }
}

/// Returns the exit code, after printing an error in one sentence.
pub fn exit(outcome: Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if output::reader_left(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::failure(&error);
            ExitCode::from(2)
        }
    }
}
