//! `fairlane-instruments shards`: what arbiters on threads of their own do with one link that they divide.

mod figures;
mod part;

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use anyhow::{Result, ensure};
use fairlane_cli::arguments::seconds;
use fairlane_cli::{interrupt, output};
use fairlane_core::{Length, Rate};
use fairlane_runtime::{Clock, Link};
use fairlane_shards::{Config, share};

use crate::line::Line;
use crate::machine;
use crate::measurement::Measurement;
use figures::Outcome;
use part::{Load, Log, Part};

/// Most batches of the link, by any shard, that fit the records.
const RECORDS: u64 = 1 << 24;

/// Batches of each shard in the time for which the others have to carry the whole link, once one is idle, so that
/// the part of that one would be missed in it.
const BATCHES: u64 = 8;

/// Options of `fairlane-instruments shards`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Shards of equal weight, each an arbiter on a thread of its own, spread over all cores
    #[arg(long, value_name = "N", default_value_t = 2, conflicts_with = "weights", value_parser = clap::value_parser!(u32).range(1..=64))]
    shards: u32,
    /// One shard of each of these weights instead
    #[arg(long, value_name = "W,...", value_delimiter = ',')]
    weights: Vec<NonZeroU32>,
    /// The link's rate
    #[arg(long, default_value = "10gbit")]
    rate: Rate,
    /// Length of all packets
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u32).range(64..=9000))]
    length: u32,
    /// Flows of each shard, all of one weight, each with two packets in the queue at any time
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    flows: u32,
    /// Batch that a shard takes of the link at once
    #[arg(long, value_name = "BYTES", default_value_t = 15_000, value_parser = clap::value_parser!(u32).range(64..=1_000_000))]
    batch: u32,
    /// How far a shard may be ahead [default: two batches over an equal share]
    #[arg(long, value_name = "BYTES")]
    lead: Option<u64>,
    /// Microseconds of the link that may be promised and not yet carried (Q)
    #[arg(long, value_name = "US", default_value_t = 50, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    ahead_us: u32,
    /// Microseconds for which the link may run short before the one that is waited for is left out
    #[arg(long, value_name = "US", default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    patience_us: u32,
    /// Idle time of the first shard in milliseconds, alternating with busy times of the same length
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    goes_idle: Option<u32>,
    /// Seconds to measure
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    seconds: f64,
}

/// Measures and prints the outcome.
pub(crate) fn run(options: &Options) -> Result<()> {
    let stop = interrupt::asked()?;
    let measurement = Measurement::new(options.seconds, &stop);
    output::json(&measure(&measurement, options)?)
}

impl Options {
    fn weights(&self) -> Vec<u32> {
        match self.weights.is_empty() {
            true => vec![1; self.shards as usize],
            false => self.weights.iter().map(|weight| weight.get()).collect(),
        }
    }

    fn config(&self, shards: usize) -> Config {
        let in_a_second = self.rate.bps() / 8;
        let ahead = u128::from(in_a_second) * u128::from(self.ahead_us) / 1_000_000;
        Config {
            rate: self.rate.bps(),
            batch: self.batch,
            ahead: ahead as u64,
            catch_up: 0,
            lead: (self.lead).unwrap_or(2 * u64::from(self.batch) * shards as u64),
            patience: u64::from(self.patience_us) * 1_000,
        }
    }

    /// Returns the time in which the others are to carry the whole link once one is idle, in
    /// nanoseconds.
    fn window(&self, shards: usize) -> u64 {
        let bytes = u128::from(self.batch) * u128::from(BATCHES) * shards as u128;
        (bytes * 8_000_000_000).div_ceil(self.rate.bps().max(1).into()) as u64
    }

    /// For all that one shard can take and return, with space for truncated batches.
    fn records(&self) -> usize {
        let batches = self.rate.bps() as f64 / 8.0 / f64::from(self.batch) * self.seconds;
        (batches * 1.25) as usize + (1 << 16)
    }

    fn check(&self, shards: usize) -> Result<()> {
        ensure!(
            self.length <= self.batch,
            "--batch {}: it is at least a packet, of {} bytes",
            self.batch,
            self.length
        );
        let most = RECORDS as f64 * f64::from(self.batch) * 8.0 / self.rate.bps() as f64;
        ensure!(
            self.seconds <= most,
            "--seconds {}: {RECORDS} batches are recorded, which the link carries in {most:.1} s",
            self.seconds
        );
        let Some(idle) = self.goes_idle else {
            return Ok(());
        };
        ensure!(
            shards > 1,
            "--goes-idle {idle}: it takes another shard that goes on"
        );
        let least = (2 * self.window(shards)).div_ceil(1_000_000);
        ensure!(
            u64::from(idle) >= least,
            "--goes-idle {idle}: with this rate and batch it is at least {least} ms"
        );
        Ok(())
    }
}

fn measure(measurement: &Measurement, options: &Options) -> Result<Outcome> {
    let weights = options.weights();
    options.check(weights.len())?;
    let (config, link) = (options.config(weights.len()), Link::new(options.rate));
    let turns = share(link, config, &weights)?;
    let cores = machine::cores()?;
    let load = Load {
        flows: options.flows,
        len: Length::try_from(options.length)?,
        is_crowded: weights.len() > cores.len(),
        records: options.records(),
    };
    let idle_ns = options.goes_idle.map(|ms| u64::from(ms) * 1_000_000);
    // The link begins with the clock.
    let clock = Clock::start();
    let (stop, begun) = (Line(AtomicBool::new(false)), AtomicU32::new(0));
    let logs = thread::scope(|scope| {
        let (stop, begun) = (&stop.0, &begun);
        let threads: Vec<_> = (turns.into_iter().zip(cores.iter().cycle()).enumerate())
            .map(|(place, (turns, &core))| {
                let idle_ns = idle_ns.filter(|_| place == 0);
                scope.spawn(move || -> Result<Log> {
                    machine::pin(core)?;
                    let part = Part::new(turns, clock, load, idle_ns)?;
                    begun.fetch_add(1, Ordering::Relaxed);
                    part.run(stop)
                })
            })
            .collect();
        let all = || {
            let has_ended = threads.iter().any(|thread| thread.is_finished());
            has_ended || begun.load(Ordering::Relaxed) == weights.len() as u32
        };
        let waited = measurement.wait(all);
        stop.store(true, Ordering::Relaxed);
        let ended = threads.into_iter();
        let logs: Result<Vec<Log>> = ended
            .map(|thread| thread.join().expect("an arbiter's thread panicked"))
            .collect();
        waited.and(logs)
    })?;
    for log in &logs {
        log.check()?;
    }
    let setting = figures::Setting {
        weights: &weights,
        config,
        cores: cores.len(),
        length: options.length,
        flows: options.flows,
        goes_idle_ms: options.goes_idle,
        window_ns: options.window(weights.len()),
        clock_ns: part::clock_ns(clock),
    };
    Ok(Outcome::of(&setting, &logs))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(weights: &[u32], goes_idle: Option<u32>) -> Options {
        Options {
            shards: 2,
            weights: weights.iter().copied().flat_map(NonZeroU32::new).collect(),
            rate: "500mbit".parse().unwrap(),
            length: 500,
            flows: 8,
            batch: 3_000,
            lead: None,
            ahead_us: 200,
            patience_us: 100,
            goes_idle,
            seconds: 0.05,
        }
    }

    fn measured(options: &Options) -> Outcome {
        let stop = AtomicBool::new(false);
        measure(&Measurement::new(options.seconds, &stop), options).unwrap()
    }

    #[test]
    fn shards_on_threads_lose_nothing_and_take_no_more_than_the_link_has() {
        // Fails if a packet was lost, or overtook another of its flow.
        let outcome = measured(&options(&[1, 2, 3], None));
        assert_eq!(outcome.parts.len(), 3);
        assert!(outcome.decisions > 0 && outcome.predicted.over_one > 0.0);
        let most = outcome.aggregate.above_rate_bytes;
        assert!(most <= outcome.aggregate.above_rate_bound_bytes, "{most}");
        assert!(outcome.lead.longest_bytes <= outcome.lead.bound_bytes);
        assert!(outcome.parts.iter().all(|part| part.went_idle == 0));
        assert!(outcome.left_to_others.is_none());
    }

    #[test]
    fn the_others_are_looked_at_each_time_that_one_has_gone_idle() {
        let outcome = measured(&options(&[], Some(5)));
        let [first, second] = &outcome.parts[..] else {
            panic!("{outcome:?}");
        };
        assert_eq!(second.went_idle, 0);
        let left = outcome.left_to_others.unwrap();
        assert!(left.times + left.not_reached <= first.went_idle, "{left:?}");
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        let refused = |options: Options| {
            let shards = options.weights().len();
            options.check(shards).unwrap_err().to_string()
        };
        let base = options(&[], None);
        let short = Options {
            batch: 400,
            ..base.clone()
        };
        assert!(refused(short).starts_with("--batch 400: it is at least a packet"));
        let long = Options {
            seconds: 1e6,
            ..base
        };
        assert!(refused(long).contains("16777216 batches are recorded"));
        assert!(refused(options(&[1], Some(9))).contains("takes another shard"));
        assert!(refused(options(&[1; 9], Some(1))).contains("at least 7 ms"));
    }
}
