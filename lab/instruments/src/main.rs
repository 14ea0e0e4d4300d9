//! The instruments of the laboratory (`lab/`): each measures one thing once and prints the results as one
//! JSON object. The laboratory interprets the figures, and compares them with those of a paper.
#![forbid(unsafe_code)]

mod altq;
mod bed;
mod bench;
mod busy;
mod io;
mod line;
mod machine;
mod measurement;
mod pairs;
mod path;
mod shards;
mod spinlock;
mod stalls;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use fairlane_cli::{cli, exit, output, run};

#[derive(Debug, Parser)]
#[command(
    name = "fairlane-instruments",
    version,
    about = "Measures one thing once, and prints one JSON object",
    subcommand_required = true,
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure the throughput of the users of one lock
    Spinlock(spinlock::Options),
    /// Measure reads of memory that another core writes, and writes of memory that it reads
    Stalls(stalls::Options),
    /// Measure the arbiter, or each stage of the data path, as the papers' tables and figures need them
    #[command(subcommand)]
    Bench(bench::Command),
    /// Measure an enqueue/dequeue pair with packets in memory
    Pairs(pairs::Options),
    /// Measure the throughput of a core by each backend, and the cost of scheduling
    Io(io::Options),
    /// Measure traffic between two interfaces during a flood, and its cost
    Path(path::Options),
    /// Measure arbiters on threads of their own that divide one link
    Shards(shards::Options),
    /// Repeat the measurements of the ALTQ paper, through the daemon
    #[command(subcommand)]
    Altq(altq::Command),
    /// Run the daemon of the experiments, as `fairlane run`
    #[command(hide = true)]
    Run(Box<run::Options>),
}

fn main() -> ExitCode {
    let command = match cli::parse_as::<Cli>() {
        Ok(cli) => cli.command,
        Err(code) => return code,
    };
    let outcome = match command {
        Command::Spinlock(options) => spinlock::run(&options),
        Command::Stalls(options) => stalls::run(&options),
        Command::Bench(command) => bench::run(&command),
        Command::Pairs(options) => pairs::run(&options),
        Command::Io(options) => io::run(&options),
        Command::Path(options) => path::run(&options),
        Command::Shards(options) => shards::run(&options),
        Command::Altq(command) => altq::run(&command),
        Command::Run(options) => run::run(&options),
    };
    match outcome {
        Err(error) if error.is::<measurement::Interrupted>() => {
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
