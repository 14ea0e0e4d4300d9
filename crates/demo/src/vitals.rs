//! How the arbiter's thread and the dispatchers fare, for all threads to see.

use std::sync::{Arc, Mutex, PoisonError};

use fairlane_core::Nanos;
use fairlane_runtime::{ArbiterStats, Spans};
use serde::Serialize;

/// What is known so far. Locked some times a second.
#[derive(Clone, Debug, Default)]
pub struct Vitals(Arc<Mutex<Known>>);

#[derive(Clone, Debug, Default)]
struct Known {
    arbiter: ArbiterStats,
    /// Of each dispatcher.
    passes: Vec<Spans>,
}

impl Vitals {
    pub fn arbiter(&self, stats: ArbiterStats) {
        self.change(|known| known.arbiter = stats);
    }

    pub fn dispatcher(&self, number: usize, passes: Spans) {
        self.change(|known| {
            if number >= known.passes.len() {
                known.passes.resize(number + 1, Spans::default());
            }
            known.passes[number] = passes;
        });
    }

    fn change(&self, change: impl FnOnce(&mut Known)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The longest Delta_A, and where there are dispatchers the longest Delta_D.
    pub fn longest(&self) -> (Nanos, Option<Nanos>) {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let passes = known.passes.iter().map(Spans::longest).max();
        (known.arbiter.looks.longest(), passes)
    }

    pub fn report(&self) -> ArbiterReport {
        let known = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let slowest = known.passes.iter().max_by_key(|passes| passes.longest());
        ArbiterReport {
            delta_a_us: Delta::of(known.arbiter.looks),
            delta_d_us: slowest.map(|&passes| Delta::of(passes)),
            late_us: Delta::of(known.arbiter.late),
            sleeps: known.arbiter.late.count() + known.arbiter.woken,
            woken: known.arbiter.woken,
        }
    }
}

/// The arbiter and the dispatchers so far.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ArbiterReport {
    /// How long packets waited in a mailbox at most, from one look to the next.
    pub delta_a_us: Delta,
    /// From one pass of a dispatcher to the next: of the slowest.
    pub delta_d_us: Option<Delta>,
    /// How much too late sleeps ended.
    pub late_us: Delta,
    /// Times that the arbiter slept.
    pub sleeps: u64,
    /// Sleeps that a client ended.
    pub woken: u64,
}

/// Microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Delta {
    /// The mean.
    pub mean: f64,
    /// The longest.
    pub max: f64,
}

impl Delta {
    fn of(spans: Spans) -> Delta {
        Delta {
            mean: spans.mean().0 as f64 / 1e3,
            max: spans.longest().0 as f64 / 1e3,
        }
    }
}
