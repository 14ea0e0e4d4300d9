//! Lines of all commands on standard output, and messages on standard error.

use std::env;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use anyhow::{Context, Error, Result};
use fairlane_config::{Diagnostic, SiteError};
use fairlane_control::ClientError;
use serde::Serialize;
use serde_json::json;

use crate::plain;

/// Prints one or more lines at once, [made plain](plain) for a terminal.
pub fn line(text: impl Display) -> Result<()> {
    let text = text.to_string();
    writeln!(io::stdout(), "{}", plain::lines(&text)).context("printing")
}

/// Prints a line of JSON.
pub fn json(value: &impl Serialize) -> Result<()> {
    line(plain::json(value).context("as JSON")?)
}

/// Prints text of any length unchanged, and ends its last line. For a terminal it is [made plain](plain).
pub fn text(text: &[u8]) -> Result<()> {
    let mut out = io::stdout().lock();
    if !out.is_terminal() {
        return as_it_is(&mut out, text);
    }
    let text = String::from_utf8_lossy(text);
    as_it_is(&mut out, plain::lines(&text).as_bytes())
}

fn as_it_is(out: &mut impl Write, text: &[u8]) -> Result<()> {
    let printed = out.write_all(text.trim_ascii_end());
    printed
        .and_then(|()| out.write_all(b"\n"))
        .context("printing")
}

/// Prints one line on standard error. A line that cannot be written, as after a terminal was closed, is lost: it does
/// not end the run or change the exit status.
pub fn aside(text: impl Display) {
    let text = text.to_string();
    stderr(format_args!("fairlane: {}", plain::plain(&text)));
}

/// Reports on standard error why a command failed: one line, or a line for each error in a file, or with `--json` on
/// the command line the JSON object `{"error": ..}`.
pub fn failure(error: &Error) {
    let places: Option<&SiteError> = error.downcast_ref();
    match places {
        _ if wants_json(env::args_os()) => {
            let mut object = json!({ "error": format!("{error:#}") });
            if let Some(SiteError::Invalid(found)) = places {
                let one = |one: &Diagnostic| json!({ "file": one.file, "line": one.line, "column": one.column, "error": one.sentence });
                object["errors"] = found.iter().map(one).collect();
            }
            if let Some(ClientError::Refused { status, .. }) = error.downcast_ref() {
                object["status"] = (*status).into();
            }
            stderr(plain::json(&object).unwrap_or_default());
        }
        // Each sentence begins with its place in the file, in the format that editors parse.
        Some(SiteError::Invalid(_)) => stderr(error.root_cause()),
        // The context has the place, the cause the problem.
        _ => aside(format_args!("{error:#}")),
    }
}

/// Returns true if a command line asks for JSON.
fn wants_json(arguments: impl IntoIterator<Item = OsString>) -> bool {
    let mut options = arguments.into_iter().take_while(|word| word != "--");
    options.any(|word| word == "--json")
}

/// Prints one or more lines on standard error, [made plain](plain) for a terminal.
pub fn stderr(text: impl Display) {
    let text = text.to_string();
    let _ = writeln!(io::stderr(), "{}", plain::lines(&text));
}

/// Prints warnings on standard error.
pub fn warn(warnings: impl IntoIterator<Item: Display>) {
    for warning in warnings {
        aside(format_args!("warning: {warning}"));
    }
}

/// Returns whether `error` is only a closed pipe, as after `| head`.
pub fn reader_left(error: &Error) -> bool {
    let cause = error.downcast_ref::<io::Error>();
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}
