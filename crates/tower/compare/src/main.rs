//! Admissions a second of `fairlane-tower`, compared with `firq-core` and `firq-tower`, in one run: `cargo run
//! --release --manifest-path crates/tower/compare/Cargo.toml`
//!
//! One admission is a request of a tenant that arrives, is ordered among the waiting ones, and is admitted. Rounds
//! alternate between the two, so that both see the same machine; the medians are printed.
//!
//! With the arguments `LOAD SIDE BATCHES`, only one side runs, to count its instructions: `valgrind --tool=callgrind
//! target/release/fairlane-tower-compare waits ours 200`. Loads are `free`, `waits` and `tasks`; sides are `ours`,
//! `theirs`, of `waits` also `handed` (handed to tasks) and `tokio` (its own semaphore), and of `tasks` also `tokio`
//! (no admission). A batch is a thousand admissions.

mod primitives;
mod services;

use std::hint::black_box;

use primitives::{Contender, backlog, free};
use rustix::time::{ClockId, clock_gettime};

/// Odd, so that there is a median.
const ROUNDS: usize = 5;

/// Returns the cost of a request, the same for both.
fn cost(number: u64) -> u32 {
    1 + (number % 10) as u32
}

/// Returns the processor time of this thread, in seconds, which excludes other programs.
fn thread_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + 1e-9 * time.tv_nsec as f64
}

/// Returns the admissions a second of a thread's time, in a round of at least `seconds`.
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

/// The same for two contenders with `tenants` tenants.
fn contend<A: Contender, B: Contender>(what: &str, tenants: u64) {
    let (mut ours, mut theirs) = (A::new(tenants), B::new(tenants));
    beside(
        what,
        || rate(0.3, || ours.batch()),
        || rate(0.3, || theirs.batch()),
    );
}

/// Runs `batches` batches of one side.
fn alone<C: Contender>(batches: u64) {
    let mut contender = C::new(1000);
    let admitted: u64 = (0..batches).map(|_| contender.batch()).sum();
    println!("{admitted} admissions");
}

fn count(load: &str, side: &str, batches: u64) {
    match (load, side) {
        ("free", "ours") => alone::<free::Ours>(batches),
        ("free", "theirs") => alone::<free::Theirs>(batches),
        ("waits", "ours") => alone::<backlog::Ours>(batches),
        ("waits", "theirs") => alone::<backlog::Theirs>(batches),
        ("waits", "handed") => alone::<backlog::HandedOver>(batches),
        ("waits", "tokio") => {
            let mut batch = backlog::first_come(1000);
            let admitted: u64 = (0..batches).map(|_| batch()).sum();
            println!("{admitted} admissions");
        }
        ("tasks", "ours" | "theirs" | "tokio") => services::alone(side, 250, 8, batches),
        _ => panic!("no such load or side: {load}, {side}"),
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [] => compare(),
        [load, side, batches] => count(load, side, batches.parse().unwrap()),
        _ => panic!("nothing, or a load, a side and a number of batches"),
    }
}

fn compare() {
    println!(
        "{:<58} {:>11} {:>11}",
        "an admission, by", "fairlane", "firq"
    );
    for tenants in [1, 1000, 100_000] {
        let what = format!("semaphore and firq-core, none waiting, {tenants} tenants");
        contend::<free::Ours, free::Theirs>(&what, tenants);
    }
    for tenants in [10, 1000, 100_000] {
        let what = format!("semaphore and firq-core, each of {tenants} tenants waits");
        contend::<backlog::Ours, backlog::Theirs>(&what, tenants);
    }
    let what = "the same, handed to tasks as firq-tower does, 1000 tenants";
    contend::<backlog::Ours, backlog::HandedOver>(what, 1000);
    let (mut ours, mut tokio) = (backlog::Ours::new(1000), backlog::first_come(1000));
    beside(
        "the same next to tokio's semaphore, which has no order",
        || rate(0.3, || ours.batch()),
        || rate(0.3, &mut tokio),
    );
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
            || services::our_rate(tasks, permits, 0.3),
            || services::their_rate(tasks, permits, 0.3),
        );
    }
    beside(
        "layer, and no gate at all, 256 tasks, 8 permits",
        || services::our_rate(256, 8, 0.3),
        || services::open_rate(256, 0.3),
    );
}
