//! Lines on standard output, as all commands print them, and words beside it.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use anyhow::{Context, Error, Result};
use serde::Serialize;

use crate::plain;

/// Prints a line at once, or several, as a terminal [may show](plain) them.
pub fn line(text: impl Display) -> Result<()> {
    let text = text.to_string();
    writeln!(io::stdout(), "{}", plain::lines(&text)).context("printing")
}

/// Prints a line of JSON.
pub fn json(value: &impl Serialize) -> Result<()> {
    line(plain::json(value).context("as JSON")?)
}

/// Prints text as it came, however long, and ends its last line. A terminal is shown what it
/// [may](plain).
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

/// Says something on standard error, in one line. Where nobody hears it any more, as after a
/// terminal was closed, it is lost: no reason to end the run, or to end it otherwise.
pub fn aside(text: impl Display) {
    let text = text.to_string();
    stderr(format_args!("fairlane: {}", plain::plain(&text)));
}

/// A line on standard error, or several, likewise.
pub fn stderr(text: impl Display) {
    let text = text.to_string();
    let _ = writeln!(io::stderr(), "{}", plain::lines(&text));
}

/// Says what is allowed and hardly meant.
pub fn warn(warnings: impl IntoIterator<Item: Display>) {
    for warning in warnings {
        aside(format_args!("warning: {warning}"));
    }
}

/// Whether `error` only says that nobody reads any more, as after `| head`.
pub fn reader_left(error: &Error) -> bool {
    let cause = error.downcast_ref::<io::Error>();
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}
