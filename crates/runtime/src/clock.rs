//! The clock that gives `now` to those who may not read one.

use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant as SystemTime};

use fairlane_core::Nanos;
use quanta::Instant;

/// How long the first clock of a process compares the counter with the system's clock. Either
/// end of that is known to some 100 ns.
const CALIBRATION: Duration = Duration::from_millis(50);

/// Looks at both clocks at either end, of which the quickest counts.
const LOOKS: usize = 100;

/// A monotonic clock that starts at zero; copies tell the same time, on every core.
///
/// The counter is read out of order with loads before it, as far as a processor looks ahead
/// (up to some microseconds): a time that another thread has handed over may be ahead of the
/// one that is read next. It counts as now, as [`Nanos::since`] has it.
///
/// Reads the processor's time-stamp counter where it runs at a constant rate, through all
/// power states and alike on all cores; elsewhere, the system's monotonic clock. The first
/// clock of a process calibrates the counter against the system's clock, which takes up to a
/// quarter of a second. From there on it may run apart from that clock by some millionths,
/// as that one follows the time of the world.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
    /// Nanoseconds of the system's clock in one of the counter's, in 2^-32.
    pace: u64,
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        // The counter's nanoseconds are those of a calibration that a busy machine puts out by
        // hundreds of millionths.
        static PACE: OnceLock<u64> = OnceLock::new();
        let pace = *PACE.get_or_init(|| {
            let first = both();
            thread::sleep(CALIBRATION);
            let last = both();
            let counter = last.0.duration_since(first.0).as_nanos().max(1);
            let system = last.1.duration_since(first.1).as_nanos();
            ((system << 32) / counter) as u64
        });
        Clock {
            origin: Instant::now(),
            pace,
        }
    }

    /// The same clock, set to tell `time` now: that of another process, say.
    #[must_use]
    pub fn set(self, time: Nanos) -> Self {
        let counted = (u128::from(time.0) << 32) / u128::from(self.pace.max(1));
        let counted = Duration::from_nanos(u64::try_from(counted).unwrap_or(u64::MAX));
        let now = Instant::now();
        Clock {
            // A time before the counter's own cannot be told.
            origin: now.checked_sub(counted).unwrap_or(now),
            ..self
        }
    }

    /// Time since the start, in nanoseconds. Some 10 ns.
    #[inline]
    pub fn now(&self) -> Nanos {
        let counted = self.origin.elapsed().as_nanos();
        Nanos(((counted * u128::from(self.pace)) >> 32) as u64)
    }
}

/// The counter and the system's clock at one moment.
fn both() -> (Instant, SystemTime) {
    let look = || {
        let before = SystemTime::now();
        let counter = Instant::now();
        let took = before.elapsed();
        (took, counter, before + took / 2)
    };
    let quicker = |one: (Duration, _, _), other: (Duration, _, _)| match other.0 < one.0 {
        true => other,
        false => one,
    };
    let (_, counter, system) = (1..LOOKS).fold(look(), |best, _| quicker(best, look()));
    (counter, system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_tells_that_time_and_runs_on() {
        let clock = Clock::start();
        for time in [Nanos::ZERO, Nanos::from_millis(60_000)] {
            let set = clock.set(time);
            let told = set.now();
            // The pace may cut off a nanosecond.
            let early = time.since(told);
            assert!(
                early.0 <= 1 && told.since(time) < Nanos::from_millis(2_000),
                "{told:?}"
            );
            thread::sleep(Duration::from_millis(2));
            assert!(set.now().since(told) >= Nanos::from_millis(2));
        }
    }
}
