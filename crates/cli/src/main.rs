//! The `fairlane` program: a thin shell over the library crates.
#![forbid(unsafe_code)]

mod algorithm;
mod bench;
mod check;
mod classes;
mod cli;
mod guarantee;
mod output;
mod replay;
mod reproduce;
mod run;
mod sim;
mod table;

use std::process::ExitCode;

use fairlane_config::SiteError;

fn main() -> ExitCode {
    let command = match cli::parse() {
        Ok(command) => command,
        Err(code) => return code,
    };
    let outcome = match command {
        cli::Command::Run(options) => run::run(&options),
        cli::Command::Check(options) => check::run(&options),
        cli::Command::Bench(options) => bench::run(&options),
        cli::Command::Replay(options) => replay::run(&options),
        cli::Command::Sim(options) => sim::run(&options),
        cli::Command::Reproduce(options) => reproduce::run(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if output::reader_left(&error) => ExitCode::SUCCESS,
        // Each sentence has its place in the file in front, as editors read it.
        Err(error) if matches!(error.downcast_ref(), Some(SiteError::Invalid(_))) => {
            eprintln!("{}", error.root_cause());
            ExitCode::from(2)
        }
        Err(error) => {
            // One sentence: the context says where, the cause says what.
            eprintln!("fairlane: {error:#}");
            // As a shell has it for Ctrl-C.
            let interrupted = error.is::<reproduce::Interrupted>();
            ExitCode::from(if interrupted { 130 } else { 2 })
        }
    }
}
