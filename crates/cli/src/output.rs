//! Lines on standard output, as all commands print them.

use std::fmt::Display;
use std::io::{self, Write};

use anyhow::{Context, Error, Result};

/// Prints a line at once.
pub fn line(text: impl Display) -> Result<()> {
    writeln!(io::stdout(), "{text}").context("printing")
}

/// Whether `error` only says that nobody reads any more, as after `| head`.
pub fn reader_left(error: &Error) -> bool {
    let cause = error.downcast_ref::<io::Error>();
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}
