//! The shards' words in every interleaving, and with every outcome that the memory model allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p fairlane-shards --release --test loom`
#![cfg(loom)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fairlane_shards::{Batch, Config, Shard, divide};
use loom::thread;

const BATCH: u64 = 10;
const LEAD: u64 = 10;
/// Between two shards of equal weight, one of two: the lead and a batch over a half.
const APART: i64 = (LEAD + 2 * BATCH) as i64;

/// A byte per nanosecond, with room for all batches of a test unless it states otherwise.
const CONFIG: Config = Config {
    rate: 8_000_000_000,
    batch: BATCH as u32,
    ahead: 1000,
    catch_up: 0,
    lead: LEAD,
    patience: 0,
};

fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

fn two(config: Config) -> (Shard, Shard) {
    let mut shards = divide(config, &[1, 1]).unwrap().into_iter();
    (shards.next().unwrap(), shards.next().unwrap())
}

/// Takes the available batch at once; returns the bytes.
fn take(shard: &mut Shard, now: u64) -> u64 {
    let taken = shard.try_take(now, 1_000_000);
    let bytes = taken.map_or(0, |Batch { bytes }| bytes);
    shard.sent(bytes);
    bytes
}

/// Comes in, and takes a batch at the end of that look.
fn come_in(shard: &mut Shard) {
    assert_eq!(take(shard, 0), BATCH);
}

/// Returns the distance of two shards. Virtual times are small here: no seam.
fn apart(one: &Shard, other: &Shard) -> Option<i64> {
    Some(one.position()? as i64 - other.position()? as i64)
}

/// Whether an outcome was seen in one of the explorations.
#[derive(Clone, Default)]
struct Seen(Arc<AtomicUsize>);

impl Seen {
    fn note(&self, when: bool) {
        self.0.fetch_add(usize::from(when), Ordering::Relaxed);
    }

    fn assert(&self) {
        assert!(self.0.load(Ordering::Relaxed) > 0, "never seen");
    }
}

#[test]
fn who_comes_in_is_neither_below_the_floor_nor_further_behind_than_the_lead_and_a_batch() {
    let raised = Seen::default();
    let seen = raised.clone();
    check(4, move || {
        let (mut first, mut second) = two(CONFIG);
        take(&mut first, 0);
        let runs = thread::spawn(move || {
            for _ in 0..3 {
                take(&mut first, 0);
            }
            first
        });
        come_in(&mut second);
        let first = runs.join().unwrap();
        let gap = apart(&first, &second).expect("both count");
        assert!(gap.abs() <= APART, "{gap} apart");
        for shard in [&first, &second] {
            assert!(shard.position().unwrap() >= shard.lowest());
        }
        seen.note(second.position().unwrap() > 2 * BATCH);
    });
    raised.assert();
}

#[test]
fn two_who_come_in_at_once_beside_one_that_runs_are_both_above_the_floor() {
    check(2, move || {
        let mut shards = divide(CONFIG, &[1, 1, 1]).unwrap().into_iter();
        let mut next = || shards.next().unwrap();
        let (mut first, mut second, mut third) = (next(), next(), next());
        take(&mut first, 0);
        let runs = thread::spawn(move || {
            take(&mut first, 0);
            first
        });
        let comes = thread::spawn(move || {
            come_in(&mut second);
            second
        });
        come_in(&mut third);
        let shards = [runs.join().unwrap(), comes.join().unwrap(), third];
        for shard in &shards {
            assert!(shard.position().unwrap() >= shard.lowest());
        }
    });
}

#[test]
fn the_link_is_promised_no_more_than_the_queue_and_a_batch_and_each_byte_once() {
    let refused = Seen::default();
    let seen = refused.clone();
    check(4, move || {
        let config = Config {
            ahead: BATCH,
            lead: 1000,
            ..CONFIG
        };
        let (mut first, mut second) = two(config);
        let other = thread::spawn(move || {
            let taken = take(&mut second, 0) + take(&mut second, 1);
            (second, taken)
        });
        let mut taken = take(&mut first, 0);
        taken += take(&mut first, 1);
        let (_second, others) = other.join().unwrap();
        assert_eq!(taken + others, first.promised());
        assert!(first.promised() <= 1 + BATCH + BATCH);
        seen.note(taken + others < 4 * BATCH);
    });
    refused.assert();
}

#[test]
fn one_who_is_left_out_while_it_takes_notices_and_comes_in_above_the_floor() {
    let left_out = Seen::default();
    let seen = left_out.clone();
    check(3, move || {
        // Only the batches in transit are assigned, so the link idles at time 100 and later.
        let (mut first, mut second) = two(CONFIG);
        take(&mut second, 0);
        for now in [200, 300] {
            take(&mut first, now);
        }
        let stops = thread::spawn(move || {
            take(&mut second, 100);
            take(&mut second, 101);
            second
        });
        // Ahead of the other, it waits for it, and then no longer.
        for now in [400, 500] {
            take(&mut first, now);
        }
        let second = stops.join().unwrap();
        for shard in [&first, &second] {
            let position = shard.position();
            assert!(position.is_none_or(|at| at >= shard.lowest()));
        }
        if let Some(gap) = apart(&first, &second) {
            assert!(gap.abs() <= APART, "{gap} apart");
        }
        seen.note(second.left_out() > 0 || second.position().is_none());
    });
    left_out.assert();
}

#[test]
fn what_is_given_back_is_promised_to_nobody_and_its_shard_comes_in_above_the_floor() {
    check(3, || {
        let (mut first, mut second) = two(CONFIG);
        let gives = thread::spawn(move || {
            assert_eq!(first.try_take(0, 9 * BATCH), Ok(Batch { bytes: BATCH }));
            first.sent(3);
            first.idle();
            come_in(&mut first);
            first
        });
        let taken = take(&mut second, 0) + take(&mut second, 0);
        let first = gives.join().unwrap();
        assert_eq!(first.promised(), 3 + BATCH + taken);
        for shard in [&first, &second] {
            let position = shard.position();
            assert!(position.is_none_or(|at| at >= shard.lowest()));
        }
    });
}
