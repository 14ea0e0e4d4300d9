//! The command line.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

pub use fairlane_terminal::command_line::parse_as;

use crate::{bench, check, compare, completions, ctl, init, manual, replay, run, sim, top};

#[derive(Debug, Parser)]
#[command(
    name = "fairlane",
    version,
    about = "Schedules packets so that many senders share a network link fairly",
    subcommand_required = true,
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// A subcommand with its options.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Shape the traffic between two interfaces by a site file; without a file, run a demonstration
    Run(run::Options),
    /// Write a first site file for the interfaces of this machine
    Init(init::Options),
    /// Check a site file, and print its guarantees
    Check(check::Options),
    /// Measure the algorithms in the papers' test environment
    Bench(bench::Options),
    /// Replay a capture or CSV file over a simulated link
    Replay(replay::Options),
    /// Compare the algorithms on a capture or CSV file
    Compare(compare::Options),
    /// Simulate traffic on a link of a site
    Sim(sim::Options),
    /// Query or change a running site
    Ctl(ctl::Options),
    /// Watch and change a running site in a full-screen view
    Top(top::Options),
    /// Print the completions for a shell
    Completions(completions::Options),
    /// Print or write the pages of the manual
    Manual(manual::Options),
}

/// Returns the definition of the command line.
pub(crate) fn definition() -> clap::Command {
    Cli::command()
}

/// Parses the command line of the program.
pub(crate) fn parse() -> Result<Command, ExitCode> {
    parse_as::<Cli>().map(|cli| cli.command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlane_terminal::command_line::one_sentence;

    #[test]
    fn the_command_line_is_consistent() {
        definition().debug_assert();
    }

    #[test]
    fn an_error_is_one_line_that_names_the_option() {
        for (arguments, names) in [
            (vec!["fairlane", "bench", "--alg", "wfqq"], "--alg"),
            (vec!["fairlane", "bench", "--flowsets", "1:2"], "--flowsets"),
            (vec!["fairlane", "bench", "--qmin", "some"], "--qmin"),
            (vec!["fairlane", "run", "--rate", "100"], "--rate"),
            (vec!["fairlane", "run", "--weights", "1,0"], "--weights"),
            (vec!["fairlane", "run", "--packet", "65508"], "--packet"),
            (vec!["fairlane", "run", "--seconds", "0"], "--seconds"),
            (vec!["fairlane", "prune"], "prune"),
        ] {
            let error = Cli::try_parse_from(&arguments).unwrap_err();
            let sentence = one_sentence(&error);
            assert!(sentence.contains(names), "{sentence}");
            assert!(
                !sentence.contains('\n') && !sentence.contains("Usage"),
                "{sentence}"
            );
        }
    }
}
