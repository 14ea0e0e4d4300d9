//! Lines on standard output, as all commands print them, and words beside it.

use std::fmt::Display;
use std::io::{self, Write};

use anyhow::{Context, Error, Result};

/// Prints a line at once.
pub fn line(text: impl Display) -> Result<()> {
    writeln!(io::stdout(), "{text}").context("printing")
}

/// Prints text as it came, however long, and ends its last line.
pub fn text(text: &[u8]) -> Result<()> {
    let mut out = io::stdout().lock();
    let printed = out.write_all(text.trim_ascii_end());
    printed
        .and_then(|()| out.write_all(b"\n"))
        .context("printing")
}

/// Says something on standard error. Where nobody hears it any more, as after a
/// terminal was closed, it is lost: no reason to end the run, or to end it otherwise.
pub fn aside(text: impl Display) {
    stderr(format_args!("fairlane: {text}"));
}

/// A line on standard error, likewise.
pub fn stderr(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
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
