//! How a command line is read, and what is said of one that is wrong.

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use crate::output;

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
pub fn one_sentence(rendered: &str) -> String {
    let text = rendered.strip_prefix("error: ").unwrap_or(rendered);
    let paragraph = text.split("\n\n").next().unwrap_or(text);
    paragraph.split_whitespace().collect::<Vec<_>>().join(" ")
}
