//! Visible reports of tests that cannot run here.

use std::env;
use std::fmt::Display;
use std::io::{self, Write};
use std::thread;

use crate::LabError;

/// With this variable in the environment, a test that lacks a privilege or a program fails: for
/// machines that are meant to have them.
pub const NO_SKIP: &str = "FAIRLANE_NO_SKIP";

/// Returns the made value; or `None`, after saying on standard error that `test` is skipped and
/// why, if this machine or this user cannot have it.
///
/// # Panics
///
/// On any other error; and on lack of a privilege or a program, if [`NO_SKIP`] is set.
pub fn or_skip<T>(test: &str, made: Result<T, LabError>) -> Option<T> {
    match made {
        Ok(made) => return Some(made),
        Err(error @ LabError::NotSupported { .. }) => skip_unsupported(test, error),
        Err(error) if error.is_not_to_be_had() => skip(test, error),
        Err(error) => panic!("{test}: {error}"),
    }
    None
}

/// Says on standard error that `test` is skipped for want of a privilege or a program.
///
/// # Panics
///
/// If [`NO_SKIP`] is set.
pub fn skip(test: &str, reason: impl Display) {
    if env::var_os(NO_SKIP).is_some() {
        panic!("{test} must not be skipped, as {NO_SKIP} is set: {reason}");
    }
    skip_unsupported(test, reason);
}

/// Says on standard error that `test` is skipped for want of something that no user of this
/// machine can have.
pub fn skip_unsupported(test: &str, reason: impl Display) {
    // The harness keeps what `eprintln` says in a test that passes. A thread of a test has its
    // name.
    let name = thread::current().name().unwrap_or("?").to_owned();
    // In one piece: other tests print too.
    let line = format!("skipped {name}: {test}: {reason}\n");
    let _ = io::stderr().write_all(line.as_bytes());
}
