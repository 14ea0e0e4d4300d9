//! Every interleaving and every outcome that the memory model allows, on
//! mailboxes of two or three blocks of two lines. Under loom a line has one slot
//! for a `u64` and two for a `u32`.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p fairlane-mailbox --release --test loom`
#![cfg(loom)]

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use fairlane_mailbox::{Consumer, Full, Producer, mailbox, slots_per_block, slots_per_line};
use loom::thread;

/// Asks for two blocks, the shortest ring.
const SMALLEST: usize = 1;

/// Slots of the shortest ring.
const fn lap<T>() -> usize {
    2 * slots_per_block::<T>()
}

/// Returns the largest number of values in `slots` slots: all blocks but one.
const fn most(slots: usize) -> u64 {
    let block = slots_per_block::<u64>();
    (((slots - 1).div_ceil(block) + 1) * block) as u64
}

/// Makes loom try every order of the steps that two threads take.
///
/// Without it, loom reorders an access only against the latest one to the same location, and the consumer's load of a
/// flag hides the producer's from the store that follows. A step conflicts with every other step. It is `Relaxed`, so
/// it provides none of the order that the mailbox must provide.
#[derive(Clone)]
struct Steps(loom::sync::Arc<loom::sync::atomic::AtomicUsize>);

impl Steps {
    fn new() -> Self {
        Self(loom::sync::Arc::new(loom::sync::atomic::AtomicUsize::new(
            0,
        )))
    }

    fn take(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The results of a racing query over a whole exploration. If one is missing, the race under test was never run.
#[derive(Clone, Default)]
struct Outcomes(Arc<[AtomicUsize; 2]>);

impl Outcomes {
    fn note(&self, answer: bool) {
        self.0[usize::from(answer)].fetch_add(1, Ordering::Relaxed);
    }

    fn assert_both(&self) {
        assert!(self.0.iter().all(|count| count.load(Ordering::Relaxed) > 0));
    }
}

fn push_waiting(producer: &mut Producer<u64>, mut value: u64) {
    while let Err(Full(back)) = producer.push(value) {
        value = back;
        thread::yield_now();
    }
}

fn pop_waiting(consumer: &mut Consumer<u64>) -> u64 {
    loop {
        match consumer.pop() {
            Some(value) => break value,
            None => thread::yield_now(),
        }
    }
}

fn cross(count: u64) {
    let (mut producer, mut consumer) = mailbox(SMALLEST).unwrap();
    let pushing = thread::spawn(move || {
        for value in 0..count {
            push_waiting(&mut producer, value);
        }
    });
    for expected in 0..count {
        assert_eq!(pop_waiting(&mut consumer), expected);
    }
    assert_eq!(consumer.pop(), None);
    pushing.join().unwrap();
}

#[test]
fn every_value_arrives_once_and_in_order_around_the_ring() {
    loom::model(|| cross(lap::<u64>() as u64 + 1));
}

#[test]
fn every_value_arrives_once_and_in_order_over_two_laps() {
    // Both ends wait, which leaves too many schedules for all of them.
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(5);
    builder.check(|| cross(2 * lap::<u64>() as u64 + 1));
}

/// Each side in batches or one by one; lines of two values, so that batches
/// begin and end inside lines.
fn cross_in_batches(count: u32, push: Option<u32>, pop: Option<usize>) {
    let (mut producer, mut consumer) = mailbox::<u32>(SMALLEST).unwrap();
    let pushing = thread::spawn(move || {
        let mut next = 0;
        while next < count {
            let size = push.unwrap_or(1);
            let mut values = next..count.min(next + size);
            if push.is_none() {
                values.start += u32::from(producer.push(next).is_ok());
            } else {
                let pushed = producer.push_batch(&mut values);
                assert_eq!(values.start, next + pushed as u32);
            }
            if values.start == next {
                thread::yield_now();
            }
            next = values.start;
        }
    });
    let mut expected = 0;
    while expected < count {
        let before = expected;
        let mut take = |value| {
            assert_eq!(value, expected);
            expected += 1;
        };
        match pop {
            Some(max) => {
                consumer.pop_batch(max, take);
            }
            None => {
                consumer.pop().map(&mut take);
            }
        }
        if expected == before {
            thread::yield_now();
        }
    }
    assert!(consumer.is_empty());
    pushing.join().unwrap();
}

#[test]
fn batches_cross_in_order_whether_the_other_side_batches_or_not() {
    for (push, pop) in [(Some(3), Some(3)), (Some(5), None), (None, Some(5))] {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(move || cross_in_batches(lap::<u32>() as u32 + 1, push, pop));
    }
}

#[test]
fn the_values_of_a_line_come_into_sight_together_and_a_count_covers_only_what_is_written() {
    let line = slots_per_line::<u32>();
    let outcomes = Outcomes::default();
    let seen = outcomes.clone();
    loom::model(move || {
        let (mut producer, mut consumer) = mailbox::<u32>(SMALLEST).unwrap();
        let pushing = thread::spawn(move || {
            assert_eq!(producer.push_batch(&mut (0..3)), 3);
            producer
        });
        let mut popped = Vec::new();
        let in_sight = consumer.pop_batch(9, |value| popped.push(value));
        seen.note(in_sight > 0);
        assert!([0, line, 3].contains(&in_sight));
        let _producer = pushing.join().unwrap();
        consumer.pop_batch(9, |value| popped.push(value));
        assert_eq!(popped, [0, 1, 2]);
    });
    outcomes.assert_both();
}

#[test]
fn a_batch_that_meets_a_full_mailbox_leaves_the_rest_in_the_iterator() {
    let outcomes = Outcomes::default();
    let seen = outcomes.clone();
    loom::model(move || {
        let (mut producer, mut consumer) = mailbox::<u32>(SMALLEST).unwrap();
        let block = slots_per_block::<u32>();
        let mut values = 0..7;
        assert_eq!(producer.push_batch(&mut values), block);
        let steps = Steps::new();
        let pushes = steps.clone();
        let pushing = thread::spawn(move || {
            pushes.take();
            let pushed = producer.push_batch(&mut values);
            assert_eq!(values.len() + pushed, 7 - block);
            (pushed, producer)
        });
        steps.take();
        let mut popped = Vec::new();
        consumer.pop_batch(block, |value| popped.push(value));
        steps.take();
        let (pushed, _producer) = pushing.join().unwrap();
        seen.note(pushed > 0);
        consumer.pop_batch(9, |value| popped.push(value));
        assert!(popped.into_iter().eq(0..(block + pushed) as u32));
    });
    outcomes.assert_both();
}

#[test]
fn a_mailbox_that_is_not_empty_gives_a_value() {
    let outcomes = Outcomes::default();
    let seen = outcomes.clone();
    loom::model(move || {
        let (mut producer, mut consumer) = mailbox::<u32>(SMALLEST).unwrap();
        // In the second place of a line, and of the second lap too.
        for value in 0..lap::<u32>() as u32 + 1 {
            producer.push(value).unwrap();
            consumer.pop().unwrap();
        }
        let pushing = thread::spawn(move || producer.push(100).unwrap());
        let empty = consumer.is_empty();
        seen.note(empty);
        if !empty {
            assert_eq!(consumer.pop(), Some(100));
        }
        pushing.join().unwrap();
    });
    outcomes.assert_both();
}

#[test]
fn a_full_mailbox_never_overwrites() {
    for slots in [SMALLEST, 2] {
        loom::model(move || {
            let (mut producer, mut consumer) = mailbox(slots).unwrap();
            let most = most(slots);
            for value in 0..most {
                producer.push(value).unwrap();
            }
            let steps = Steps::new();
            let pushes = steps.clone();
            let pushing = thread::spawn(move || {
                let mut accepted = Vec::new();
                for value in most..most + 4 {
                    pushes.take();
                    if producer.push(value).is_ok() {
                        accepted.push(value);
                    }
                }
                accepted
            });
            let mut popped = Vec::new();
            for _ in 0..3 {
                steps.take();
                popped.extend(consumer.pop());
            }
            let accepted = pushing.join().unwrap();
            popped.extend(std::iter::from_fn(|| consumer.pop()));
            assert!((0..most).chain(accepted).eq(popped));
        });
    }
}

#[test]
fn a_full_mailbox_accepts_once_a_block_was_released_and_not_before() {
    let outcomes = Outcomes::default();
    let seen = outcomes.clone();
    loom::model(move || {
        let (mut producer, mut consumer) = mailbox(SMALLEST).unwrap();
        for value in 0..most(SMALLEST) {
            producer.push(value).unwrap();
        }
        let steps = Steps::new();
        let pops = steps.clone();
        let pops_begun = Arc::new(AtomicUsize::new(0));
        let begun = Arc::clone(&pops_begun);
        let popping = thread::spawn(move || {
            for expected in 0..most(SMALLEST) {
                pops.take();
                begun.fetch_add(1, Ordering::Relaxed);
                assert_eq!(consumer.pop(), Some(expected));
            }
            consumer
        });
        steps.take();
        let early = producer.push(9).is_ok();
        seen.note(early);
        if early {
            let begun = pops_begun.load(Ordering::Relaxed);
            assert_eq!(begun, slots_per_block::<u64>(), "the block is still read");
        }
        let mut consumer = popping.join().unwrap();
        if !early {
            producer.push(9).unwrap();
        }
        assert_eq!(consumer.pop(), Some(9));
    });
    outcomes.assert_both();
}

#[test]
fn none_after_abandonment_means_empty_for_ever() {
    loom::model(|| {
        let (mut producer, mut consumer) = mailbox(2).unwrap();
        let pushing = thread::spawn(move || {
            for value in 0..3 {
                producer.push(value).unwrap();
            }
        });
        let mut popped = 0;
        loop {
            let abandoned = consumer.is_abandoned();
            match consumer.pop() {
                Some(value) => {
                    assert_eq!(value, popped);
                    popped += 1;
                }
                None if abandoned => break,
                None => thread::yield_now(),
            }
        }
        assert_eq!(popped, 3);
        pushing.join().unwrap();
    });
}

#[test]
fn what_the_consumer_did_happens_before_the_producer_sees_it_gone() {
    let outcomes = Outcomes::default();
    let seen = outcomes.clone();
    loom::model(move || {
        let (mut producer, mut consumer) = mailbox(SMALLEST).unwrap();
        for value in 0..most(SMALLEST) {
            producer.push(value).unwrap();
        }
        let steps = Steps::new();
        let pops = steps.clone();
        let popping = thread::spawn(move || {
            for _ in 0..most(SMALLEST) {
                consumer.pop().unwrap();
            }
            drop(consumer);
            pops.take();
        });
        steps.take();
        let abandoned = producer.is_abandoned();
        seen.note(abandoned);
        if abandoned {
            producer.push(9).unwrap();
        }
        popping.join().unwrap();
        assert!(producer.is_abandoned());
    });
    outcomes.assert_both();
}

/// Counts its drops, in memory that loom does not track.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn every_value_is_dropped_once_when_both_ends_go_at_once() {
    // The consumer leaves inside the first block, at its end, and beyond.
    for pops in 0..4 {
        loom::model(move || {
            let drops = Arc::new(AtomicUsize::new(0));
            let (mut producer, mut consumer) = mailbox(2).unwrap();
            producer.push(Counted(Arc::clone(&drops))).unwrap();
            let counted = Arc::clone(&drops);
            let steps = Steps::new();
            let pushes = steps.clone();
            let pushing = thread::spawn(move || {
                for _ in 0..3 {
                    pushes.take();
                    producer.push(Counted(Arc::clone(&counted))).unwrap();
                }
                pushes.take();
            });
            for _ in 0..pops {
                steps.take();
                drop(consumer.pop());
            }
            steps.take();
            drop(consumer);
            pushing.join().unwrap();
            assert_eq!(drops.load(Ordering::Relaxed), 4);
        });
    }
}

#[test]
fn batches_are_dropped_once_when_both_ends_go_at_once() {
    for pops in [0, 1, 3] {
        loom::model(move || {
            let drops = Arc::new(AtomicUsize::new(0));
            let (mut producer, mut consumer) = mailbox(2).unwrap();
            producer.push(Counted(Arc::clone(&drops))).unwrap();
            let counted = Arc::clone(&drops);
            let pushing = thread::spawn(move || {
                let mut values = (0..3).map(|_| Counted(Arc::clone(&counted)));
                assert_eq!(producer.push_batch(&mut values), 3);
            });
            consumer.pop_batch(pops, drop);
            drop(consumer);
            pushing.join().unwrap();
            assert_eq!(drops.load(Ordering::Relaxed), 4);
        });
    }
}
