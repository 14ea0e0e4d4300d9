//! What an experiment is done with: its time, its chance, and the wish to stop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// Longest time to a look at whether to stop.
const LOOK: Duration = Duration::from_millis(20);

/// Asked to stop before the experiment was over.
#[derive(Debug)]
pub(crate) struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted, nothing was written")
    }
}

impl std::error::Error for Interrupted {}

/// The surroundings of an experiment.
pub(super) struct Lab<'a> {
    /// Time of one measurement.
    pub measurement: Duration,
    stop: &'a AtomicBool,
    progress: ProgressBar,
}

impl<'a> Lab<'a> {
    /// A laboratory for `measurements` of `seconds` each, to be left when `stop` is set.
    pub(super) fn new(
        name: &str,
        seconds: f64,
        measurements: usize,
        stop: &'a AtomicBool,
    ) -> Lab<'a> {
        let progress = ProgressBar::new(measurements as u64);
        let style = ProgressStyle::with_template("{prefix} {bar:30} {pos}/{len} {msg}, {eta} left");
        progress.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        progress.set_prefix(name.to_owned());
        Lab {
            measurement: Duration::from_secs_f64(seconds),
            stop,
            progress,
        }
    }

    /// Does every one of `cases` in each of `rounds`, in an order that `seed` decides anew
    /// for each: what disturbs the machine meanwhile disturbs no case in particular.
    /// The results of a case stand together, in the cases' order.
    pub(super) fn rounds<C: std::fmt::Display, T>(
        &self,
        cases: &[C],
        rounds: usize,
        seed: u64,
        mut measure: impl FnMut(&C) -> Result<T>,
    ) -> Result<Vec<Vec<T>>> {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut results: Vec<Vec<T>> = cases.iter().map(|_| Vec::new()).collect();
        for _ in 0..rounds {
            let mut left: Vec<usize> = (0..cases.len()).collect();
            while !left.is_empty() {
                let case = left.swap_remove(random.random_range(0..left.len()));
                self.progress.set_message(cases[case].to_string());
                self.check()?;
                let measured = measure(&cases[case]);
                results[case].push(measured.with_context(|| cases[case].to_string())?);
                self.progress.inc(1);
            }
        }
        Ok(results)
    }

    /// Lets a measurement run for its time, from when `begun` says that it runs.
    pub(super) fn wait(&self, begun: impl Fn() -> bool) -> Result<()> {
        while !begun() {
            self.check()?;
            thread::sleep(Duration::from_micros(100));
        }
        let end = Instant::now() + self.measurement;
        loop {
            self.check()?;
            match end.saturating_duration_since(Instant::now()) {
                Duration::ZERO => return Ok(()),
                left => thread::sleep(left.min(LOOK)),
            }
        }
    }

    /// Set once the experiment is to stop.
    pub(super) fn stop(&self) -> &AtomicBool {
        self.stop
    }

    /// Fails once the experiment was asked to stop.
    pub(super) fn check(&self) -> Result<()> {
        if self.stop.load(Ordering::Acquire) {
            bail!(Interrupted);
        }
        Ok(())
    }
}

impl Drop for Lab<'_> {
    fn drop(&mut self) {
        self.progress.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_measured_in_every_round_and_its_results_stay_together() {
        let stop = AtomicBool::new(false);
        let lab = Lab::new("test", 0.0, 12, &stop);
        let mut order = Vec::new();
        let results = lab.rounds(&[10, 20, 30, 40], 3, 7, |&case| {
            order.push(case);
            Ok(case + 1)
        });
        let expected = [[11; 3], [21; 3], [31; 3], [41; 3]];
        assert_eq!(results.unwrap(), expected.map(Vec::from));
        for round in order.chunks_mut(4) {
            round.sort();
            assert_eq!(round, [10, 20, 30, 40]);
        }
    }

    #[test]
    fn a_stop_ends_the_waiting() {
        let stop = AtomicBool::new(false);
        let lab = Lab::new("test", 60.0, 1, &stop);
        let start = Instant::now();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| lab.wait(|| true));
            stop.store(true, Ordering::Release);
            assert!(waiting.join().unwrap().unwrap_err().is::<Interrupted>());
        });
        assert!(start.elapsed() < Duration::from_secs(10));
    }
}
