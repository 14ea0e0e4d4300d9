//! How the arbiter's thread and the dispatchers fare, for all threads to see.

use std::sync::{Arc, Mutex, PoisonError};

use fairlane_config::class_report::SpanReport;
use fairlane_core::Nanos;
use fairlane_runtime::{ArbiterStats, Spans};
use serde::Serialize;

/// The present state. Locked some times a second.
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

    /// Returns the longest Delta_A, and where there are dispatchers the longest Delta_D.
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
            delta_a_us: told(known.arbiter.looks),
            delta_d_us: slowest.map(|&passes| told(passes)),
            late_us: told(known.arbiter.late),
            sleeps: known.arbiter.late.count() + known.arbiter.woken,
            woken: known.arbiter.woken,
        }
    }
}

/// The arbiter and the dispatchers so far.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ArbiterReport {
    /// How long packets waited in a mailbox at most, from one look to the next.
    pub delta_a_us: SpanReport,
    /// From one pass of a dispatcher to the next: of the slowest.
    pub delta_d_us: Option<SpanReport>,
    /// How much too late sleeps ended.
    pub late_us: SpanReport,
    /// Times that the arbiter slept.
    pub sleeps: u64,
    /// Sleeps that a client ended.
    pub woken: u64,
}

fn told(spans: Spans) -> SpanReport {
    SpanReport::in_micros(spans.mean(), spans.longest())
}
