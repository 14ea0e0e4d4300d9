//! The instruments of the laboratory (`lab/`): each measures one thing once and prints what it found as one
//! JSON object. What a figure means, and what a paper has beside it, is the laboratory's.
#![forbid(unsafe_code)]

mod altq;
mod bed;
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
    /// What the users of one lock do together
    Spinlock(spinlock::Options),
    /// What it takes to read memory that another core writes, or to write what it reads
    Stalls(stalls::Options),
    /// What an enqueue and a dequeue cost where packets have memory
    Pairs(pairs::Options),
    /// What a core carries by each backend, and what scheduling adds
    Io(io::Options),
    /// What passes between two interfaces beside a flood, and what it costs
    Path(path::Options),
    /// What arbiters on threads of their own do with one link that they divide
    Shards(shards::Options),
    /// What the ALTQ paper measured, through the daemon
    #[command(subcommand)]
    Altq(altq::Command),
    /// What `fairlane run` does: the daemon of the experiments
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
