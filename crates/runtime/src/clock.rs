//! The clock that gives `now` to those who may not read one.

use std::time::Instant;

use fairlane_core::Nanos;

/// A monotonic clock that starts at zero; copies tell the same time.
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

    /// Time since the start. One system clock reading, some 20 ns.
    #[inline]
    pub fn now(&self) -> Nanos {
        Nanos(self.origin.elapsed().as_nanos() as u64)
    }
}
