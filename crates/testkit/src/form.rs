//! The short and the long form of tests that are long by nature.

use std::cell::{Cell, OnceCell};
use std::env;
use std::io::{self, Write};
use std::thread;

/// Returns whether tests that are long by nature take their long form: `FAIRLANE_LONG_TESTS` is set.
///
/// With `FAIRLANE_NAME_SHORT_TESTS` in the environment it prints `short` and the name of each test that
/// takes its short form on standard error, so that another run can be limited to the long forms.
#[must_use]
pub fn long_tests() -> bool {
    let long = env::var_os("FAIRLANE_LONG_TESTS").is_some();
    if !long && env::var_os("FAIRLANE_NAME_SHORT_TESTS").is_some() {
        let thread = thread::current();
        let line = format!("short {}\n", thread.name().unwrap_or("?"));
        // The harness captures the output of `eprintln` in a test that passes.
        let _ = io::stderr().write_all(line.as_bytes());
    }
    long
}

/// Returns whether a costly check is due, such as that of all invariants after an operation: at each call in the long
/// form of a test, and at one in `one_in` calls of its thread in the short form, the first of them included.
#[must_use]
pub fn check_is_due(one_in: u32) -> bool {
    thread_local! {
        static LONG: OnceCell<bool> = const { OnceCell::new() };
        static CALLS: Cell<u32> = const { Cell::new(0) };
    }
    let calls = CALLS.get();
    CALLS.set(calls.wrapping_add(1));
    calls.is_multiple_of(one_in) || LONG.with(|long| *long.get_or_init(long_tests))
}
