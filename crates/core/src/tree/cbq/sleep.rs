//! Suspended classes, and the time at which the first of them may resume.

use crate::units::Nanos;
use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

/// Suspended classes by the time until which they are.
///
/// A class resumes at the first call at or after that time. [`Sleepers::next_look`] returns the time of a call that is
/// needed if nothing else happens: that very time; or, to reproduce ALTQ's behaviour, the tick of a coarse timer after
/// it.
#[derive(Clone, Debug, Default)]
pub(super) struct Sleepers {
    /// The end of the suspension, and the class.
    until: BinaryHeap<Reverse<(Nanos, u32)>>,
    /// The tick of the timer, its length, the end of the suspension, and the class; with a coarse timer only. Entries
    /// of resumed classes remain until they are first.
    ticks: BinaryHeap<Reverse<(Nanos, Nanos, u32)>>,
    /// The timer's granularity; zero for an exact one.
    granularity: Nanos,
}

impl Sleepers {
    pub(super) fn new(granularity: Nanos) -> Sleepers {
        Sleepers {
            granularity,
            ..Sleepers::default()
        }
    }

    /// `class` is suspended from `now` until a later time. O(log n).
    pub(super) fn push(&mut self, class: u32, now: Nanos, until: Nanos) {
        self.until.push(Reverse((until, class)));
        let granularity = self.granularity.0;
        if let Some(ticks) = now.0.checked_div(granularity) {
            // ALTQ sets its timer to two ticks at least.
            let ticks = until.0.div_ceil(granularity).max(ticks.saturating_add(2));
            let tick = Nanos(ticks.saturating_mul(granularity));
            self.ticks.push(Reverse((tick, until, class)));
        }
    }

    /// Removes and returns a class whose suspension is over at `now`. O(log n).
    pub(super) fn pop(&mut self, now: Nanos) -> Option<u32> {
        let &Reverse((until, class)) = self.until.peek()?;
        if until > now {
            return None;
        }
        self.until.pop();
        Some(class)
    }

    /// Returns the latest time for the next call, if any class is suspended. All classes whose time is up were removed.
    /// O(1), and with a coarse timer O(log n) amortised.
    pub(super) fn next_look(&mut self, now: Nanos) -> Option<Nanos> {
        let &Reverse((first, _)) = self.until.peek()?;
        if self.granularity == Nanos::ZERO {
            return Some(first);
        }
        while let Some(&Reverse((tick, until, _))) = self.ticks.peek() {
            if until > now {
                return Some(tick);
            }
            self.ticks.pop();
        }
        Some(first)
    }

    /// A class is no longer suspended, whatever the time. O(n).
    pub(super) fn forget(&mut self, class: u32) {
        self.until.retain(|&Reverse((_, sleeper))| sleeper != class);
        self.ticks
            .retain(|&Reverse((_, _, sleeper))| sleeper != class);
    }

    /// Returns the suspended classes.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        self.until.iter().map(|&Reverse((_, class))| class)
    }
}
