//! How long something is measured, and the wish to stop before.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Longest time to a look at whether to stop.
const LOOK: Duration = Duration::from_millis(20);

/// Asked to stop before anything was measured.
#[derive(Debug)]
pub(crate) struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted, nothing was measured")
    }
}

impl std::error::Error for Interrupted {}

/// One measurement.
pub(crate) struct Measurement<'a> {
    time: Duration,
    stop: &'a AtomicBool,
}

impl<'a> Measurement<'a> {
    /// Returns a measurement of `seconds` seconds, which ends early when `stop` is set.
    pub(crate) fn new(seconds: f64, stop: &'a AtomicBool) -> Measurement<'a> {
        Measurement {
            time: Duration::from_secs_f64(seconds),
            stop,
        }
    }

    /// Waits for its time, from the moment at which `begun` reports that the subject runs.
    pub(crate) fn wait(&self, begun: impl Fn() -> bool) -> Result<()> {
        while !begun() {
            self.check()?;
            thread::sleep(Duration::from_micros(100));
        }
        let end = Instant::now() + self.time;
        loop {
            self.check()?;
            match end.saturating_duration_since(Instant::now()) {
                Duration::ZERO => return Ok(()),
                left => thread::sleep(left.min(LOOK)),
            }
        }
    }

    fn check(&self) -> Result<()> {
        if self.stop.load(Ordering::Acquire) {
            bail!(Interrupted);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_ends_the_waiting() {
        let stop = AtomicBool::new(false);
        let measurement = Measurement::new(1e6, &stop);
        // The test hangs if it waits for its time.
        thread::scope(|scope| {
            let waiting = scope.spawn(|| measurement.wait(|| true));
            stop.store(true, Ordering::Release);
            assert!(waiting.join().unwrap().unwrap_err().is::<Interrupted>());
        });
    }
}
