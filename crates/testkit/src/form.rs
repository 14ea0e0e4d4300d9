//! The short and the long form of tests that are long by nature.

use std::env;
use std::io::{self, Write};
use std::thread;

/// Whether tests that are long by nature take their long form: `FAIRLANE_LONG_TESTS` is set.
///
/// With `FAIRLANE_NAME_SHORT_TESTS` in the environment it prints `short` and the name of each test that
/// takes its short form on standard error, so that another run may be of the long forms alone.
#[must_use]
pub fn long_tests() -> bool {
    let long = env::var_os("FAIRLANE_LONG_TESTS").is_some();
    if !long && env::var_os("FAIRLANE_NAME_SHORT_TESTS").is_some() {
        let thread = thread::current();
        let line = format!("short {}\n", thread.name().unwrap_or("?"));
        // The harness keeps what `eprintln` prints in a test that passes.
        let _ = io::stderr().write_all(line.as_bytes());
    }
    long
}
