//! `fairlane-instruments spinlock`: the throughput of the users of one lock.

use std::hint::spin_loop;
use std::num::NonZeroU32;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Result, ensure};
use fairlane_cli::arguments::seconds;
use fairlane_cli::{interrupt, output};
use serde::Serialize;

use crate::busy::{Busy, steps};
use crate::line::Line;
use crate::machine;
use crate::measurement::Measurement;

/// Options of `fairlane-instruments spinlock`.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Options {
    /// Threads that want the lock, spread over all cores
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    users: u32,
    /// Nanoseconds of work with the lock held
    #[arg(long, value_name = "NS", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    section_ns: u32,
    /// Looks at a taken lock, after which a user gives up its core [default: it never does]
    #[arg(long, value_name = "LOOKS")]
    patience: Option<NonZeroU32>,
    /// Seconds to measure
    #[arg(long, value_name = "S", default_value = "0.2", value_parser = seconds)]
    seconds: f64,
}

/// The printed results.
#[derive(Debug, Serialize)]
struct Outcome {
    users: u32,
    section_ns: u32,
    patience_looks: Option<NonZeroU32>,
    /// Cores that the users were spread over.
    cores: usize,
    seconds: f64,
    sections: u64,
    sections_per_sec: f64,
}

/// Measures and prints the outcome.
pub(crate) fn run(options: &Options) -> Result<()> {
    let stop = interrupt::asked()?;
    let measurement = Measurement::new(options.seconds, &stop);
    output::json(&contend(&measurement, options)?)
}

/// Test and test-and-set, as in the C library: waiters only read.
struct SpinLock(AtomicBool);

impl SpinLock {
    #[inline]
    fn lock(&self, patience: Option<NonZeroU32>) {
        while self.0.swap(true, Ordering::Acquire) {
            let mut looks = 0;
            while self.0.load(Ordering::Relaxed) {
                spin_loop();
                looks += 1;
                if patience.is_some_and(|patience| looks == patience.get()) {
                    thread::yield_now();
                    looks = 0;
                }
            }
        }
    }

    #[inline]
    fn unlock(&self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Measures the total throughput of all users of one lock.
fn contend(measurement: &Measurement, options: &Options) -> Result<Outcome> {
    let cores = machine::cores()?;
    let section = Busy::calibrate().for_ns(f64::from(options.section_ns));
    let lock = Line(SpinLock(AtomicBool::new(false)));
    // Counted without an atomic addition: only a lock that excludes makes it right.
    let counted = Line(AtomicU64::new(0));
    // Handed on from section to section, so that none begins before the last has ended.
    let work = Line(AtomicU64::new(1));
    let stop = Line(AtomicBool::new(false));
    let barrier = Barrier::new(options.users as usize);
    let user = |core: usize| -> Result<(Instant, u64)> {
        let pinned = machine::pin(core);
        barrier.wait();
        pinned?;
        let start = Instant::now();
        let mut sections = 0;
        while !stop.0.load(Ordering::Relaxed) {
            lock.0.lock(options.patience);
            let before = work.0.load(Ordering::Relaxed);
            work.0.store(steps(section, before), Ordering::Relaxed);
            let so_far = counted.0.load(Ordering::Relaxed);
            counted.0.store(so_far + 1, Ordering::Relaxed);
            lock.0.unlock();
            sections += 1;
        }
        Ok((start, sections))
    };
    thread::scope(|scope| {
        let (user, all) = (&user, cores.iter().cycle().take(options.users as usize));
        let users: Vec<_> = all.map(|&core| scope.spawn(move || user(core))).collect();
        // The last of many threads may have to wait for a core.
        let begun =
            || counted.0.load(Ordering::Relaxed) > 0 || users.iter().any(|user| user.is_finished());
        let waited = measurement.wait(begun);
        stop.0.store(true, Ordering::Relaxed);
        let end = Instant::now();
        let mut first = end;
        let mut total = 0;
        for user in users {
            let (start, sections) = user.join().expect("a user of the lock panicked")?;
            first = first.min(start);
            total += sections;
        }
        waited?;
        ensure!(
            total == counted.0.load(Ordering::Relaxed),
            "the spinlock let two users in at once"
        );
        let took = (end - first).as_secs_f64();
        Ok(Outcome {
            users: options.users,
            section_ns: options.section_ns,
            patience_looks: options.patience,
            cores: cores.len(),
            seconds: took,
            sections: total,
            sections_per_sec: total as f64 / took,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_lets_one_in_at_a_time_and_everyone_in() {
        let stop = AtomicBool::new(false);
        for patience in [None, NonZeroU32::new(10)] {
            let options = Options {
                users: 4,
                section_ns: 20,
                patience,
                seconds: 0.05,
            };
            // Fails by itself if the sections were not one after another.
            let outcome = contend(&Measurement::new(options.seconds, &stop), &options).unwrap();
            assert!(outcome.sections > 0 && outcome.sections_per_sec > 0.0);
        }
    }
}
