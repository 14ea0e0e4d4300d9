//! Checks for Ctrl-C during long calls.

use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// The interval of signal checks: attaching to the interpreter costs up to 5 ms while its other threads run.
const EVERY: Duration = Duration::from_millis(10);

/// Number of calls between two clock readings.
const SELDOM: u32 = 256;

/// A rate-limited check for a signal whose handler raised.
pub(crate) struct Watch {
    asked: u32,
    looked: Instant,
}

impl Watch {
    pub(crate) fn new() -> Watch {
        Watch {
            asked: 0,
            looked: Instant::now(),
        }
    }

    /// Returns the exception of a signal handler, if any. O(1): a count, and sometimes a clock reading.
    #[inline]
    pub(crate) fn often(&mut self) -> PyResult<()> {
        self.asked += 1;
        if self.asked < SELDOM {
            return Ok(());
        }
        self.asked = 0;
        self.now()
    }

    /// The same for rare calls: a clock reading each time.
    pub(crate) fn now(&mut self) -> PyResult<()> {
        let now = Instant::now();
        if now.duration_since(self.looked) < EVERY {
            return Ok(());
        }
        self.looked = now;
        Python::attach(|py| py.check_signals())
    }
}
