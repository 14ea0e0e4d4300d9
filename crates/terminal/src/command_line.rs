//! The parsing of command lines, and the errors of wrong ones.

use std::env;
use std::process::ExitCode;

use anyhow::Error;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Parser};
use fairlane_config::suggestion;

use crate::output;

/// Parses a command line. Prints help, version, or an error in one
/// sentence, and returns the exit code in these cases.
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
        let words = env::args_os().skip(1);
        let words: Vec<String> = words.map(|it| it.to_string_lossy().into_owned()).collect();
        let sentence = before_subcommand(&error, &C::command(), &words);
        let sentence = sentence.unwrap_or_else(|| one_sentence(&error));
        output::failure(&Error::msg(sentence));
        ExitCode::from(2)
    })
}

fn try_parse<C: Parser>() -> Result<C, clap::Error> {
    let mut matches = without_empty(C::command()).try_get_matches()?;
    C::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut C::command()))
}

/// Treats an empty environment variable as if it were not set.
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

/// Returns the sentence for an option that stands before the subcommand and belongs behind it.
fn before_subcommand(error: &clap::Error, command: &Command, words: &[String]) -> Option<String> {
    let (ErrorKind::UnknownArgument, [first, rest @ ..]) = (error.kind(), words) else {
        return None;
    };
    let name = rest.iter().find(|word| !word.starts_with('-'))?;
    if !first.starts_with('-') {
        return None;
    }
    Some(match command.find_subcommand(name) {
        Some(_) => format!(
            "unexpected argument '{first}' before the subcommand (write {} {name} {first})",
            command.get_name()
        ),
        None => {
            let known = command.get_subcommands().map(Command::get_name);
            let near = suggestion(name, known);
            format!("unrecognized subcommand '{name}'{near}")
        }
    })
}

/// Returns the first paragraph of an error on one line, with the nearest name that is known.
pub fn one_sentence(error: &clap::Error) -> String {
    let rendered = error.render().to_string();
    let text = rendered.strip_prefix("error: ").unwrap_or(&rendered);
    let paragraph = text.split("\n\n").next().unwrap_or(text);
    let sentence = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
    let kinds = [
        ContextKind::SuggestedSubcommand,
        ContextKind::SuggestedArg,
        ContextKind::SuggestedValue,
    ];
    let near = kinds.into_iter().find_map(|kind| match error.get(kind)? {
        ContextValue::String(name) => Some(name),
        // The best one is last.
        ContextValue::Strings(names) => names.last(),
        _ => None,
    });
    match near {
        Some(near) => format!("{sentence}, did you mean '{near}'?"),
        None => sentence,
    }
}
