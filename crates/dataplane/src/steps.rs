//! Work between two rounds, and the time that it takes from the forwarding thread.

use std::sync::atomic::{AtomicU64, Ordering};

use fairlane_core::Nanos;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::bridge::SiteBridge;

/// Classes, flows or packets that one step looks at: some tens of microseconds.
pub const STEP: usize = 256;

/// Work of the forwarding thread between two rounds, done in short steps.
pub trait Work: Send {
    /// Returns the kind of work that its next step begins with.
    fn kind(&self) -> StepKind;

    /// Whether it is one that is done once per second in any case.
    fn is_routine(&self) -> bool;

    /// Does a part of it. Returns whether it is done.
    fn step(&mut self, bridge: &mut SiteBridge, now: Nanos) -> bool;
}

/// The kind of work that a step between two rounds begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    Count,
    Add,
    Change,
    Exchange,
    Move,
    Remove,
    Flows,
    Shape,
    Flush,
    Attach,
    HandOver,
}

/// The reported name of each, in order.
const NAMES: [&str; 11] = [
    "counting",
    "adding classes",
    "changing classes",
    "exchanging filters",
    "moving packets",
    "removing classes",
    "counting flows",
    "shaping on or off",
    "flushing",
    "exchanging an interface",
    "handing over",
];

/// The longest that a kind of step took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StepReport {
    /// The kind of work that the steps began with.
    pub doing: &'static str,
    /// The longest time from round to round with such a step in between, including time taken by other threads or by
    /// other guests of the host.
    pub us: f64,
    /// The most time of its processor that the forwarding thread spent on such a step itself.
    pub cpu_us: f64,
}

/// In nanoseconds.
#[derive(Debug, Default)]
struct Most {
    whole: AtomicU64,
    cpu: AtomicU64,
}

/// The longest steps so far; only the forwarding thread writes them.
#[derive(Debug, Default)]
pub struct Longest([Most; NAMES.len()]);

fn raise(most: &AtomicU64, to: u64) {
    if to > most.load(Ordering::Relaxed) {
        most.store(to, Ordering::Relaxed);
    }
}

fn microseconds(nanoseconds: &AtomicU64) -> f64 {
    nanoseconds.load(Ordering::Relaxed) as f64 / 1e3
}

impl Longest {
    /// Records that `whole` nanoseconds passed from one round to the next.
    pub fn took(&self, doing: StepKind, whole: u64) {
        raise(&self.0[doing as usize].whole, whole);
    }

    /// Runs `step` and returns its result; records how long the calling thread ran meanwhile. Two system calls.
    pub fn during<T>(&self, doing: StepKind, step: impl FnOnce() -> T) -> T {
        let before = run_so_far();
        let done = step();
        raise(&self.0[doing as usize].cpu, run_so_far() - before);
        done
    }

    /// Returns reports of the kinds of step that occurred.
    pub fn tell(&self) -> Vec<StepReport> {
        let all = self.0.iter().zip(NAMES);
        let all = all.map(|(most, doing)| StepReport {
            doing,
            us: microseconds(&most.whole),
            cpu_us: microseconds(&most.cpu),
        });
        all.filter(|step| step.cpu_us > 0.0).collect()
    }
}

/// Returns the CPU time of the calling thread in nanoseconds.
pub fn run_so_far() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
