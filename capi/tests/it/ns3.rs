//! The queue discipline for ns-3, if that is installed.

use std::path::Path;
use std::process::Command;

use fairlane_netlab::{skip, skip_unsupported};
use fairlane_testkit::long_tests;

use crate::c;
use crate::programs::run;

/// The path on Debian.
const HEADER: &str = "/usr/include/ns3/traffic-control-module.h";

/// Returns the first class's share of received packets under this queue discipline.
fn share(said: &str, kind: &str) -> f64 {
    let line = said.lines().find(|line| line.starts_with(kind)).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn two_classes_of_3_to_1_get_that_over_a_link_of_ns3() {
    let test = "ns-3";
    if !long_tests() {
        return skip_unsupported(test, "FAIRLANE_LONG_TESTS is not set");
    }
    if !Path::new(HEADER).exists() || !c::is_there("g++") {
        return skip(test, "there is no libns3-dev here");
    }
    let mut command = Command::new(c::home().join("examples/ns3/run"));
    let said = run(command.arg(c::libraries()).arg(env!("CARGO_TARGET_TMPDIR")));
    let (ours, theirs) = (share(&said, "fairlane"), share(&said, "pfifo_fast"));
    assert!((ours - 0.75).abs() < 0.01, "{said}");
    assert!((theirs - 0.5).abs() < 0.05, "{said}");
}

#[test]
fn the_queue_discipline_for_ns3_fits_300_lines() {
    let mut lines = 0;
    for file in ["fairlane-queue-disc.h", "fairlane-queue-disc.cc"] {
        let file = c::home().join("examples/ns3").join(file);
        lines += std::fs::read_to_string(file).unwrap().lines().count();
    }
    assert!(lines <= 300, "{lines}");
}
