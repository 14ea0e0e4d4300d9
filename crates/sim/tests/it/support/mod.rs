//! Helpers that the tests share.
#![allow(dead_code)] // Each test uses a part.

use std::env;

use fairlane_core::{FlowConfig, Length, Rate, Weight};

pub(crate) fn length(bytes: u32) -> Length {
    Length::new(bytes).unwrap()
}

pub(crate) fn rate(bps: u64) -> Rate {
    Rate::from_bps(bps).unwrap()
}

/// Returns a flow of this weight with packets up to `max_length`.
pub(crate) fn config(weight: u32, max_length: u32) -> FlowConfig {
    FlowConfig::new(Weight::new(weight).unwrap(), length(max_length))
}

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text}: a number is expected")),
    )
}

/// Runs a test's cases: those of seeds 0, 1, 2, .. below `cases`, or FAIRLANE_CASES, or that of
/// FAIRLANE_SEED alone. If one panics, says how to run it again.
pub(crate) fn for_each_seed(file: &str, test: &str, cases: u64, mut run: impl FnMut(u64)) {
    let cases = number("FAIRLANE_CASES").unwrap_or(cases);
    let seeds = number("FAIRLANE_SEED").map_or(0..cases, |seed| seed..seed + 1);
    for seed in seeds {
        let again = format!(
            "FAIRLANE_SEED={seed} cargo test -p fairlane-sim --test it -- --exact {file}::{test}"
        );
        let guard = Announce(again);
        run(seed);
        std::mem::forget(guard);
    }
}

struct Announce(String);

impl Drop for Announce {
    fn drop(&mut self) {
        eprintln!("Again: {}", self.0);
    }
}
