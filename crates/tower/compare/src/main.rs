//! Admissions a second of `fairlane-tower` beside `firq-core` and `firq-tower`, in one run:
//! `cargo run --release --manifest-path crates/tower/compare/Cargo.toml`
//!
//! What is compared is one admission in each: a request of a tenant comes, is ordered among those that
//! wait, and is let through. Rounds alternate between the two, so that both see the same machine; the
//! medians are printed.

mod primitives;
mod services;

use std::hint::black_box;

use primitives::{Contender, backlog, free};
use rustix::time::{ClockId, clock_gettime};

/// Odd, so that there is a median.
const ROUNDS: usize = 5;

/// Costs that requests have, the same for both.
fn cost(number: u64) -> u32 {
    1 + (number % 10) as u32
}

/// Processor time of this thread, in seconds: others on the machine do not count.
fn thread_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + 1e-9 * time.tv_nsec as f64
}

/// Admissions a second of a thread's time, of a round that takes this long at least.
fn rate(seconds: f64, mut batch: impl FnMut() -> u64) -> f64 {
    let start = thread_time();
    let mut admitted = 0;
    loop {
        admitted += black_box(batch());
        let taken = thread_time() - start;
        if taken >= seconds {
            return admitted as f64 / taken;
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Measures both in turn and prints a line.
fn beside(what: &str, mut ours: impl FnMut() -> f64, mut theirs: impl FnMut() -> f64) {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        a.push(ours());
        b.push(theirs());
    }
    let (ours, theirs) = (median(a), median(b));
    println!(
        "{what:<58} {:>8.0} ns {:>8.0} ns   {:>6.1} times",
        1e9 / ours,
        1e9 / theirs,
        ours / theirs
    );
}

/// The same, of two that are made for so many tenants.
fn contend<A: Contender, B: Contender>(what: &str, tenants: u64) {
    let (mut ours, mut theirs) = (A::new(tenants), B::new(tenants));
    beside(
        what,
        || rate(0.3, || ours.batch()),
        || rate(0.3, || theirs.batch()),
    );
}

fn main() {
    println!(
        "{:<58} {:>11} {:>11}",
        "an admission, by", "fairlane", "firq"
    );
    for tenants in [1, 1000, 100_000] {
        let what = format!("semaphore and firq-core, nobody waits, {tenants} tenants");
        contend::<free::Ours, free::Theirs>(&what, tenants);
    }
    for tenants in [10, 1000, 100_000] {
        let what = format!("semaphore and firq-core, each of {tenants} tenants waits");
        contend::<backlog::Ours, backlog::Theirs>(&what, tenants);
    }
    let what = "the same, handed to tasks as firq-tower does, 1000 tenants";
    contend::<backlog::Ours, backlog::HandedOver>(what, 1000);
    let what = "semaphore and firq-core, two threads, 1000 tenants";
    beside(
        what,
        || primitives::threads::ours(0.3),
        || primitives::threads::theirs(0.3),
    );
    for (tasks, permits) in [(1, 64), (64, 64), (256, 8)] {
        let what = format!("layer and firq-tower, {tasks} tasks, {permits} permits");
        beside(
            &what,
            || services::ours(tasks, permits, 0.3),
            || services::theirs(tasks, permits, 0.3),
        );
    }
}
