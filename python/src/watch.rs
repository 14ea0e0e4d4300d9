//! Ctrl-C in the middle of something long.

use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// How often signals are looked for: to attach to the interpreter costs up to 5 ms where other threads
/// of it run.
const EVERY: Duration = Duration::from_millis(10);

/// Looks between which no clock is read.
const SELDOM: u32 = 256;

/// Asked often, looks seldom: whether a signal came whose handler raised.
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

    /// What a handler of a signal raised. O(1): a count, and a clock at times.
    #[inline]
    pub(crate) fn often(&mut self) -> PyResult<()> {
        self.asked += 1;
        if self.asked < SELDOM {
            return Ok(());
        }
        self.asked = 0;
        self.now()
    }

    /// The same for whoever asks seldom: a clock each time.
    pub(crate) fn now(&mut self) -> PyResult<()> {
        let now = Instant::now();
        if now.duration_since(self.looked) < EVERY {
            return Ok(());
        }
        self.looked = now;
        Python::attach(|py| py.check_signals())
    }
}
