//! The command line.

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

use crate::{bench, check, completions, ctl, init, manual, output, replay, run, sim, top};

#[derive(Debug, Parser)]
#[command(
    name = "fairlane",
    version,
    about = "Shares a link fairly among many senders, at memory speed",
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
    /// Shape the traffic between two interfaces by a site file; without one, a demonstration
    Run(run::Options),
    /// Write a first site file for the interfaces of this machine
    Init(init::Options),
    /// Check a site file, and print what it guarantees
    Check(check::Options),
    /// Measure the algorithms in the papers' test environment
    Bench(bench::Options),
    /// Replay a capture or CSV file over a simulated link
    Replay(replay::Options),
    /// Simulate traffic on a link of a site
    Sim(sim::Options),
    /// Ask a running site for its state, and change it
    Ctl(ctl::Options),
    /// Watch a running site, and change it, on the whole terminal
    Top(top::Options),
    /// Print what a shell completes command lines with
    Completions(completions::Options),
    /// Print or write the pages of the manual
    Manual(manual::Options),
}

/// What the command line may be.
pub(crate) fn definition() -> clap::Command {
    Cli::command()
}

/// Reads the command line of the program.
pub(crate) fn parse() -> Result<Command, ExitCode> {
    parse_as::<Cli>().map(|cli| cli.command)
}

/// Reads a command line. Help and version are printed, an error is said in one
/// sentence; the code to exit with is returned then.
pub fn parse_as<C: Parser>() -> Result<C, ExitCode> {
    C::try_parse().map_err(|error| {
        if matches!(
            error.kind(),
            ErrorKind::DisplayHelp
                | ErrorKind::DisplayVersion
                | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        ) {
            let code = if error.use_stderr() { 2 } else { 0 };
            let _ = error.print();
            return ExitCode::from(code);
        }
        output::aside(one_sentence(&error.render().to_string()));
        ExitCode::from(2)
    })
}

/// The first paragraph of a rendered error, on one line: usage and tips follow it.
fn one_sentence(rendered: &str) -> String {
    let text = rendered.strip_prefix("error: ").unwrap_or(rendered);
    let paragraph = text.split("\n\n").next().unwrap_or(text);
    paragraph.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        definition().debug_assert();
    }

    #[test]
    fn an_error_is_one_line_that_names_the_option() {
        for (arguments, names) in [
            (vec!["fairlane", "bench", "--alg", "wfq"], "--alg"),
            (vec!["fairlane", "bench", "--flowsets", "1:2"], "--flowsets"),
            (vec!["fairlane", "bench", "--qmin", "some"], "--qmin"),
            (vec!["fairlane", "run", "--rate", "100"], "--rate"),
            (vec!["fairlane", "run", "--weights", "1,0"], "--weights"),
            (vec!["fairlane", "run", "--packet", "65508"], "--packet"),
            (vec!["fairlane", "run", "--seconds", "0"], "--seconds"),
            (vec!["fairlane", "prune"], "prune"),
        ] {
            let error = Cli::try_parse_from(&arguments).unwrap_err();
            let sentence = one_sentence(&error.render().to_string());
            assert!(sentence.contains(names), "{sentence}");
            assert!(
                !sentence.contains('\n') && !sentence.contains("Usage"),
                "{sentence}"
            );
        }
    }
}
