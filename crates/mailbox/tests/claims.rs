//! What the documentation of one mailbox claims, on one thread.
#![cfg(not(loom))]

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use fairlane_mailbox::{CapacityError, Consumer, Full, Producer, mailbox, slots_per_line};

/// Pushes `0..` until refused; returns how many were accepted.
fn fill(producer: &mut Producer<u64>) -> usize {
    (0..)
        .find(|&i| producer.push(i as u64).is_err())
        .expect("a mailbox is bounded")
}

fn drain<T>(consumer: &mut Consumer<T>) -> Vec<T> {
    std::iter::from_fn(|| consumer.pop()).collect()
}

#[test]
fn values_come_out_in_the_order_they_went_in() {
    let (mut producer, mut consumer) = mailbox::<u64>(16).unwrap();
    for value in 0..5 {
        producer.push(value).unwrap();
    }
    assert_eq!(drain(&mut consumer), [0, 1, 2, 3, 4]);
}

#[test]
fn a_new_mailbox_is_empty() {
    let (_producer, mut consumer) = mailbox::<u64>(16).unwrap();
    assert_eq!(consumer.pop(), None);
}

#[test]
fn a_full_mailbox_gives_the_value_back_every_time() {
    let (mut producer, mut consumer) = mailbox::<Box<u64>>(16).unwrap();
    let accepted = (0..).find(|&i| producer.push(Box::new(i)).is_err());
    for value in 100..110 {
        let Full(back) = producer.push(Box::new(value)).unwrap_err();
        assert_eq!(*back, value);
    }
    let waiting = drain(&mut consumer).into_iter().map(|value| *value);
    assert!(waiting.eq(0..accepted.unwrap()));
}

#[test]
fn from_a_line_boundary_all_lines_but_one_can_be_filled() {
    for slots in [8, 16, 64] {
        let (mut producer, mut consumer) = mailbox::<u64>(slots).unwrap();
        for _lap in 0..3 {
            assert_eq!(fill(&mut producer), slots - slots_per_line::<u64>());
            drain(&mut consumer);
        }
    }
}

#[test]
fn a_line_consumed_in_part_frees_nothing_and_consumed_whole_frees_itself() {
    let line = slots_per_line::<u64>();
    let (mut producer, mut consumer) = mailbox::<u64>(4 * line).unwrap();
    let accepted = fill(&mut producer);

    for _ in 0..line - 1 {
        consumer.pop().unwrap();
        assert_eq!(producer.push(0), Err(Full(0)));
    }
    let waiting = accepted - (line - 1);
    assert_eq!(waiting, producer.capacity(), "the documented worst case");

    consumer.pop().unwrap();
    assert_eq!(fill(&mut producer), line);
}

#[test]
fn the_smallest_mailbox_accepts_a_push_whenever_it_is_empty() {
    let (mut producer, mut consumer) = mailbox::<u64>(2 * slots_per_line::<u64>()).unwrap();
    assert_eq!(producer.capacity(), 1);
    for value in 0..100 {
        producer.push(value).unwrap();
        assert_eq!(consumer.pop(), Some(value));
    }
}

#[test]
fn both_ends_name_the_same_capacity() {
    let (producer, consumer) = mailbox::<u64>(64).unwrap();
    assert_eq!(producer.capacity(), 64 - 2 * slots_per_line::<u64>() + 1);
    assert_eq!(producer.capacity(), consumer.capacity());
}

#[test]
fn slots_larger_than_a_cache_line_leave_one_slot_unused() {
    let (mut producer, _consumer) = mailbox::<[u8; 100]>(8).unwrap();
    assert_eq!(slots_per_line::<[u8; 100]>(), 1);
    assert_eq!(producer.capacity(), 7);
    for i in 0..7 {
        producer.push([i; 100]).unwrap();
    }
    assert_eq!(producer.push([7; 100]), Err(Full([7; 100])));
}

#[test]
fn slots_per_line_is_the_power_of_two_that_fits_in_64_bytes() {
    assert_eq!(slots_per_line::<()>(), 64);
    assert_eq!(slots_per_line::<u8>(), 32);
    assert_eq!(slots_per_line::<u64>(), 4);
    assert_eq!(slots_per_line::<[u64; 2]>(), 2);
    assert_eq!(slots_per_line::<[u64; 3]>(), 2);
    assert_eq!(slots_per_line::<[u64; 4]>(), 1);
    assert_eq!(slots_per_line::<[u64; 100]>(), 1);
}

#[test]
fn slots_are_reused_on_every_lap() {
    let (mut producer, mut consumer) = mailbox::<String>(8).unwrap();
    for value in 0..1000 {
        producer.push(value.to_string()).unwrap();
        assert_eq!(consumer.pop(), Some(value.to_string()));
        assert_eq!(consumer.pop(), None);
    }
}

#[test]
fn values_without_size_are_counted() {
    let (mut producer, mut consumer) = mailbox::<()>(256).unwrap();
    let count = producer.capacity();
    for _lap in 0..5 {
        for _ in 0..count {
            producer.push(()).unwrap();
        }
        assert_eq!(drain(&mut consumer).len(), count);
    }
}

#[test]
fn large_values_arrive_whole() {
    let (mut producer, mut consumer) = mailbox::<[u8; 100]>(4).unwrap();
    for value in 0..50 {
        producer.push([value; 100]).unwrap();
        assert_eq!(consumer.pop(), Some([value; 100]));
    }
}

#[test]
fn values_of_a_wider_alignment_than_a_cache_line_are_aligned() {
    #[repr(align(256))]
    struct Wide(u8);
    let (mut producer, mut consumer) = mailbox::<Wide>(4).unwrap();
    for value in 0..10 {
        producer.push(Wide(value)).unwrap();
        assert_eq!(consumer.pop().unwrap().0, value);
    }
}

/// Ticks its number off when dropped; a second time is a panic.
struct Once {
    number: usize,
    dropped: Arc<[AtomicBool; 32]>,
}

impl Drop for Once {
    fn drop(&mut self) {
        let before = self.dropped[self.number].swap(true, Ordering::Relaxed);
        assert!(!before, "{} dropped twice", self.number);
    }
}

#[test]
fn every_value_is_dropped_once_wherever_head_and_tail_stand() {
    const LINE: usize = slots_per_line::<Once>();
    const SLOTS: usize = 4 * LINE;
    const { assert!(LINE > 1, "or no line is ever consumed in part") };

    for popped in 0..2 * SLOTS {
        for waiting in 0..=SLOTS - 2 * LINE + 1 {
            for consumer_goes_first in [false, true] {
                let dropped = Arc::<[AtomicBool; 32]>::default();
                let new = |number| Once {
                    number,
                    dropped: Arc::clone(&dropped),
                };
                let is_dropped = || dropped.iter().map(|flag| flag.load(Ordering::Relaxed));

                let (mut producer, mut consumer) = mailbox(SLOTS).unwrap();
                for number in 0..popped {
                    producer.push(new(number)).unwrap();
                    drop(consumer.pop().unwrap());
                }
                for number in popped..popped + waiting {
                    producer.push(new(number)).unwrap();
                }
                assert!(is_dropped().eq((0..32).map(|number| number < popped)));

                if consumer_goes_first {
                    drop(consumer);
                    drop(producer);
                } else {
                    drop(producer);
                    drop(consumer);
                }
                assert!(is_dropped().eq((0..32).map(|number| number < popped + waiting)));
            }
        }
    }
}

#[test]
fn a_destructor_that_panics_leaks_the_values_after_it_and_drops_none_twice() {
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            assert_ne!(DROPS.fetch_add(1, Ordering::Relaxed), 1, "the second");
        }
    }
    let (mut producer, consumer) = mailbox(256).unwrap();
    for _ in 0..4 {
        producer.push(Bomb).unwrap();
    }
    drop(consumer);
    catch_unwind(AssertUnwindSafe(|| drop(producer))).unwrap_err();
    assert_eq!(DROPS.load(Ordering::Relaxed), 2);
}

#[test]
fn values_outlive_the_producer() {
    let (mut producer, mut consumer) = mailbox::<u64>(16).unwrap();
    producer.push(1).unwrap();
    producer.push(2).unwrap();
    assert!(!consumer.is_abandoned());
    drop(producer);
    assert!(consumer.is_abandoned());
    assert_eq!(drain(&mut consumer), [1, 2]);
}

#[test]
fn an_abandoned_mailbox_accepts_until_full_and_drops_what_it_accepted() {
    let value = Arc::new(());
    let (mut producer, consumer) = mailbox::<Arc<()>>(16).unwrap();
    assert!(!producer.is_abandoned());
    drop(consumer);
    assert!(producer.is_abandoned());
    for _ in 0..producer.capacity() {
        producer.push(Arc::clone(&value)).unwrap();
    }
    while producer.push(Arc::clone(&value)).is_ok() {}
    assert!(Arc::strong_count(&value) > 1);
    drop(producer);
    assert_eq!(Arc::strong_count(&value), 1);
}

#[test]
fn only_powers_of_two_within_the_bounds_are_accepted() {
    let least = 2 * slots_per_line::<u64>();
    for given in [0, 1, 2, least / 2, least + 1, 3 * least, usize::MAX] {
        let refused = mailbox::<u64>(given).unwrap_err();
        let expected = CapacityError {
            given,
            least,
            most: 1 << 24,
        };
        assert_eq!(refused, expected);
    }
    assert!(mailbox::<u64>(least).is_ok());
    assert!(mailbox::<u64>(2 * least).is_ok());
}

#[test]
#[cfg_attr(miri, ignore = "initialises 2^24 slots")]
fn the_largest_mailbox_is_accepted_and_the_next_refused() {
    assert!(mailbox::<()>(1 << 24).is_ok());
    assert!(mailbox::<()>((1 << 24) + 1).is_err());
    assert!(mailbox::<()>(1 << 25).is_err());
}

#[test]
fn a_refusal_says_what_was_given_and_what_is_allowed() {
    assert_eq!(
        mailbox::<u64>(12).unwrap_err().to_string(),
        "a mailbox cannot have 12 slots: the number must be a power of two from 8 to 16777216"
    );
    assert_eq!(Full(1).to_string(), "the mailbox is full");
}

#[test]
fn refusals_are_errors_whatever_the_value() {
    struct Opaque;
    fn is_error<E: std::error::Error>() {}
    is_error::<CapacityError>();
    is_error::<Full<Opaque>>();
    assert_eq!(format!("{:?}", Full(Opaque)), "Full(..)");
}

#[test]
fn both_ends_can_move_to_another_thread_even_if_values_cannot_be_shared() {
    fn is_send<T: Send>() {}
    is_send::<Producer<std::cell::Cell<u64>>>();
    is_send::<Consumer<std::cell::Cell<u64>>>();
}
