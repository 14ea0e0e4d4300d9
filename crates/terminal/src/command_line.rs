//! How a command line is read, and what is said of one that is wrong.

use std::env;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Command, Parser};

use crate::output;

/// Reads a command line. Help and version are printed, an error is said in one
/// sentence; the code to exit with is returned then.
pub fn parse_as<C: Parser>() -> Result<C, ExitCode> {
    try_parse::<C>().map_err(|error| {
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

fn try_parse<C: Parser>() -> Result<C, clap::Error> {
    let mut matches = without_empty(C::command()).try_get_matches()?;
    C::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut C::command()))
}

/// A variable of the environment that is empty says as little as one that is not set.
fn without_empty(command: Command) -> Command {
    let command = command.mut_args(|argument| {
        let value = argument.get_env().and_then(env::var_os);
        match value.is_some_and(|value| value.is_empty()) {
            true => argument.env(None::<&'static str>),
            false => argument,
        }
    });
    command.mut_subcommands(without_empty)
}

/// The first paragraph of a rendered error, on one line: usage and tips follow it.
pub fn one_sentence(rendered: &str) -> String {
    let text = rendered.strip_prefix("error: ").unwrap_or(rendered);
    let paragraph = text.split("\n\n").next().unwrap_or(text);
    paragraph.split_whitespace().collect::<Vec<_>>().join(" ")
}
