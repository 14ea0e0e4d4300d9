//! Attacks on the guarantees of class trees and of CBQ: closed-loop adversaries whose decisions are a tape, and the worst
//! tapes found.
//!
//! `FAIRLANE_TRIES=100000 cargo test --release -p fairlane-testkit --test attacks -- --nocapture` plays that number of
//! tapes for each target, and writes worse tapes into the files.

mod cbq;
mod tree;

use std::path::{Path, PathBuf};

use fairlane_core::sched::Algorithm;
use fairlane_testkit::tape::Attack;

use tree::Promise;

/// Number of tapes that a short test plays for each target.
const FEW: u64 = 3;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/attacks")
}

/// Attacks each order at the root.
fn attack_trees(name: &str, promise: Promise) {
    let all = Algorithm::ALL.iter();
    let mut failed = Vec::new();
    for &algorithm in all.filter(|all| all.is_bounded() && !all.follows_packets()) {
        let attack = Attack::new(folder(), format!("{name}-{algorithm}"));
        let worst = attack.run(FEW, |tape| tree::play(algorithm, promise, tape));
        if let Err(what) = worst {
            failed.push(what);
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn classes_with_queue_management_flows_and_ceilings_leave_others_their_service() {
    attack_trees("service", Promise::Service);
}

#[test]
fn a_class_within_its_rate_and_burst_loses_nothing_in_a_full_tree() {
    attack_trees("room", Promise::Room);
}

#[test]
fn classes_that_change_leave_others_their_service() {
    attack_trees("changes", Promise::Changes);
}

#[test]
fn leaves_of_cbq_take_neither_room_nor_rate_of_others() {
    let worst = Attack::new(folder(), "cbq").run(FEW, cbq::play);
    assert!(worst.is_ok(), "{worst:?}");
}
