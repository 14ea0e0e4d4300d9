//! The laboratory: measures the papers' experiments again and draws what it finds.
#![forbid(unsafe_code)]

mod bench_io;
mod plot;
mod reproduce;
mod sim;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use fairlane_cli::{cli, exit, output, run};

#[derive(Debug, Parser)]
#[command(
    name = "fairlane-lab",
    version,
    about = "Measures what the papers claim, and what each backend carries",
    subcommand_required = true,
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure a paper's experiment again, ours beside theirs
    Reproduce(reproduce::Options),
    /// Measure what a core carries by each backend, and what scheduling adds
    BenchIo(bench_io::Options),
    /// Simulate as `fairlane sim` does, and draw what each class sent
    Sim(sim::Options),
    /// What `fairlane run` does: the daemon of the experiments
    #[command(hide = true)]
    Run(run::Options),
}

fn main() -> ExitCode {
    let command = match cli::parse_as::<Cli>() {
        Ok(cli) => cli.command,
        Err(code) => return code,
    };
    let outcome = match command {
        Command::Reproduce(options) => reproduce::run(&options),
        Command::BenchIo(options) => bench_io::run(&options),
        Command::Sim(options) => sim::run(&options),
        Command::Run(options) => run::run(&options),
    };
    match outcome {
        Err(error) if error.is::<reproduce::Interrupted>() => {
            output::aside(format_args!("{error:#}"));
            // As a shell has it for Ctrl-C.
            ExitCode::from(130)
        }
        outcome => exit(outcome),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
