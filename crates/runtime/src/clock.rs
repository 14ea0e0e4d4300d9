//! The clock that gives `now` to those who may not read one.

use fairlane_core::Nanos;
use quanta::Instant;

/// A monotonic clock that starts at zero; copies tell the same time, on every core.
///
/// Reads the processor's time-stamp counter where it runs at a constant rate, through all
/// power states and alike on all cores; elsewhere, the system's monotonic clock. The first
/// clock of a process calibrates the counter against the system's clock, which takes up to a
/// fifth of a second. From there on it may run apart from that clock by some millionths,
/// as that one follows the time of the world.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Clock {
            origin: Instant::now(),
        }
    }

    /// Time since the start, in nanoseconds. Some 10 ns.
    #[inline]
    pub fn now(&self) -> Nanos {
        Nanos(self.origin.elapsed().as_nanos() as u64)
    }
}
