//! `fairlane sim`: the effect of a site's file on traffic, measured in virtual time.

mod examples;
mod network;
mod refusals;
mod scenarios;

use std::fs;
use std::path::PathBuf;

use crate::program::{Finished, fairlane, start};
use serde_json::Value;

/// A temporary directory of a test.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, content: &str) -> String {
        let path = self.0.path().join(name);
        fs::write(&path, content).unwrap();
        path.display().to_string()
    }

    /// Simulates the scenario.
    fn sim(&self, scenario: &str, options: &[&str]) -> Finished {
        let path = self.write("scenario.toml", scenario);
        fairlane(&[&["sim", &path], options].concat())
    }

    /// Returns the report of a scenario.
    #[track_caller]
    fn report(&self, scenario: &str, options: &[&str]) -> Value {
        let finished = self.sim(scenario, &[&["--json"], options].concat());
        serde_json::from_str(&finished.success()).unwrap()
    }
}

/// Returns the report of a scenario of the repository.
#[track_caller]
fn example(name: &str, options: &[&str]) -> Value {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/sim");
    let path = path.join(name).display().to_string();
    let output = fairlane(&[&["sim", &path, "--json"], options].concat());
    serde_json::from_str(&output.success()).unwrap()
}

/// Returns a class of a report.
#[track_caller]
fn class<'a>(report: &'a Value, name: &str) -> &'a Value {
    let classes = report["classes"].as_array().unwrap();
    let found = classes.iter().find(|class| class["name"] == name);
    found.unwrap_or_else(|| panic!("no class {name} in {report}"))
}

#[track_caller]
fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("no number: {value}"))
}

/// Checks that `value` is within this fraction of `expected`.
#[track_caller]
fn near(value: f64, expected: f64, part: f64) {
    let off = (value / expected - 1.0).abs();
    assert!(off <= part, "{value} is {off} off {expected}");
}

/// Checks that no conforming packet exceeded its bound, and returns the number of conforming packets.
#[track_caller]
fn within_bounds(report: &Value) -> u64 {
    let mut packets = 0;
    for class in report["classes"].as_array().unwrap() {
        if let (Some(bound), Some(longest)) = (
            class["bound_us"].as_f64(),
            class["conforming_max_us"].as_f64(),
        ) {
            assert!(longest <= bound, "{class}");
            packets += class["conforming_packets"].as_u64().unwrap();
        }
    }
    packets
}
