//! The claims of the mailbox's documentation, on one thread.
#![cfg(not(loom))]

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use fairlane_mailbox::{
    CapacityError, Consumer, Full, Producer, mailbox, slots_per_block, slots_per_line,
};

/// Miri is slow: it skips offsets.
const STEP: usize = if cfg!(miri) { 13 } else { 1 };

/// Pushes `0..` until rejected; returns the number of accepted values.
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
fn a_mailbox_holds_as_many_values_as_were_asked_for_wherever_head_and_tail_stand() {
    let block = slots_per_block::<u64>();
    for slots in [2, 4, 16, 64, 256] {
        let (mut producer, mut consumer) = mailbox::<u64>(slots).unwrap();
        assert!(producer.capacity() >= slots);
        assert!(producer.capacity() < slots + block);
        for _offset in (0..3 * block).step_by(STEP) {
            for value in 0..producer.capacity() as u64 {
                producer.push(value).unwrap();
            }
            assert_eq!(drain(&mut consumer).len(), producer.capacity());
            producer.push(0).unwrap();
            consumer.pop().unwrap();
        }
    }
}

#[test]
fn from_a_block_boundary_all_blocks_but_one_can_be_filled() {
    for slots in [2, 16, 64] {
        let (mut producer, mut consumer) = mailbox::<u64>(slots).unwrap();
        let most = producer.capacity() - 1 + slots_per_block::<u64>();
        for _lap in 0..3 {
            assert_eq!(fill(&mut producer), most);
            drain(&mut consumer);
        }
    }
}

#[test]
fn a_block_consumed_in_part_frees_nothing_and_consumed_whole_frees_itself() {
    let block = slots_per_block::<u64>();
    let (mut producer, mut consumer) = mailbox::<u64>(4 * block.next_power_of_two()).unwrap();
    let accepted = fill(&mut producer);

    for _ in 0..block - 1 {
        consumer.pop().unwrap();
        assert_eq!(producer.push(0), Err(Full(0)));
    }
    let waiting = accepted - (block - 1);
    assert_eq!(waiting, producer.capacity(), "the documented worst case");

    consumer.pop().unwrap();
    assert_eq!(fill(&mut producer), block);
}

#[test]
fn both_ends_name_the_same_capacity() {
    let (producer, consumer) = mailbox::<u64>(64).unwrap();
    assert_eq!(producer.capacity(), consumer.capacity());
}

#[test]
fn values_of_a_block_or_more_leave_one_slot_unused() {
    let (mut producer, _consumer) = mailbox::<[u8; 300]>(8).unwrap();
    assert_eq!(slots_per_block::<[u8; 300]>(), 1);
    assert_eq!(producer.capacity(), 8);
    for i in 0..8 {
        producer.push([i; 300]).unwrap();
    }
    assert_eq!(producer.push([8; 300]), Err(Full([8; 300])));
}

#[test]
fn a_line_is_a_count_and_as_many_values_as_fit_in_64_bytes() {
    assert_eq!(slots_per_line::<()>(), 63);
    assert_eq!(slots_per_line::<u8>(), 63);
    assert_eq!(slots_per_line::<[u8; 3]>(), 21);
    assert_eq!(slots_per_line::<u32>(), 15);
    assert_eq!(slots_per_line::<u64>(), 7);
    assert_eq!(slots_per_line::<Box<u64>>(), 7);
    assert_eq!(slots_per_line::<[u64; 2]>(), 3);
    assert_eq!(slots_per_line::<u128>(), 3);
    assert_eq!(slots_per_line::<[u64; 3]>(), 2);
    assert_eq!(slots_per_line::<[u64; 4]>(), 1);
    assert_eq!(slots_per_line::<[u64; 100]>(), 1);
}

#[test]
fn a_block_is_four_lines_unless_one_is_longer_than_64_bytes() {
    assert_eq!(slots_per_block::<u64>(), 28);
    assert_eq!(slots_per_block::<[u64; 2]>(), 12);
    assert_eq!(slots_per_block::<[u64; 7]>(), 4);
    assert_eq!(slots_per_block::<[u64; 8]>(), 2, "128 bytes");
    assert_eq!(slots_per_block::<[u64; 16]>(), 1, "192 bytes");
    assert_eq!(slots_per_block::<[u64; 100]>(), 1);
}

#[test]
fn a_batch_takes_from_the_iterator_what_fits_and_nothing_more() {
    for offset in (0..2 * slots_per_block::<u64>() as u64).step_by(STEP) {
        let (mut producer, mut consumer) = mailbox::<u64>(64).unwrap();
        for value in 0..offset {
            producer.push(value).unwrap();
            consumer.pop().unwrap();
        }
        let mut values = 0..1000;
        let pushed = producer.push_batch(&mut values);
        assert!(pushed >= producer.capacity());
        assert_eq!(values, pushed as u64..1000);
        assert_eq!(producer.push_batch(&mut values), 0, "it is full");
        assert_eq!(values, pushed as u64..1000);
        assert!(drain(&mut consumer).into_iter().eq(0..pushed as u64));
    }
}

#[test]
fn an_empty_batch_changes_nothing() {
    let (mut producer, mut consumer) = mailbox::<u64>(16).unwrap();
    assert_eq!(producer.push_batch(&mut std::iter::empty()), 0);
    assert_eq!(consumer.pop_batch(9, |_| unreachable!()), 0);
    producer.push(1).unwrap();
    assert_eq!(consumer.pop_batch(0, |_| unreachable!()), 0);
    assert_eq!(consumer.pop(), Some(1));
}

#[test]
fn a_batch_is_popped_up_to_its_limit_and_the_rest_stays() {
    let (mut producer, mut consumer) = mailbox::<u64>(64).unwrap();
    assert_eq!(producer.push_batch(&mut (0..40)), 40);
    let mut popped = Vec::new();
    for (max, count) in [(1, 1), (7, 7), (20, 20), (usize::MAX, 12), (1, 0)] {
        assert_eq!(consumer.pop_batch(max, |value| popped.push(value)), count);
    }
    assert!(popped.into_iter().eq(0..40));
}

#[test]
#[cfg_attr(miri, ignore = "unwinding takes minutes")]
fn an_iterator_that_panics_leaves_what_it_gave_in_the_mailbox() {
    for good in (0..20).step_by(STEP) {
        let (mut producer, mut consumer) = mailbox::<Box<u64>>(64).unwrap();
        let mut values = (0..).map(|value| {
            assert!(value < good, "enough");
            Box::new(value)
        });
        catch_unwind(AssertUnwindSafe(|| producer.push_batch(&mut values))).unwrap_err();
        producer.push(Box::new(100)).unwrap();
        let popped = drain(&mut consumer).into_iter().map(|value| *value);
        assert!(popped.eq((0..good).chain([100])));
    }
}

#[test]
#[cfg_attr(miri, ignore = "unwinding takes minutes")]
fn a_closure_that_panics_has_taken_its_value_and_no_other() {
    for good in (0..60).step_by(STEP) {
        let (mut producer, mut consumer) = mailbox::<Box<u64>>(64).unwrap();
        assert_eq!(producer.push_batch(&mut (0..64).map(Box::new)), 64);
        let mut popped = Vec::new();
        catch_unwind(AssertUnwindSafe(|| {
            consumer.pop_batch(64, |value| {
                popped.push(*value);
                assert!(*value < good, "enough");
            })
        }))
        .unwrap_err();
        popped.extend(drain(&mut consumer).into_iter().map(|value| *value));
        assert!(popped.into_iter().eq(0..64));
    }
}

#[test]
fn a_mailbox_is_empty_until_a_push_and_again_after_the_last_pop() {
    let (mut producer, mut consumer) = mailbox::<u64>(64).unwrap();
    for count in (0..3 * slots_per_block::<u64>() as u64).step_by(STEP) {
        assert!(consumer.is_empty());
        assert_eq!(producer.push_batch(&mut (0..count)), count as usize);
        for value in 0..count {
            assert!(!consumer.is_empty());
            consumer.prefetch();
            assert_eq!(consumer.pop(), Some(value));
        }
    }
    assert!(consumer.is_empty());
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

/// Marks its number when dropped; panics the second time.
struct Once {
    number: usize,
    dropped: Arc<[AtomicBool]>,
}

impl Drop for Once {
    fn drop(&mut self) {
        let before = self.dropped[self.number].swap(true, Ordering::Relaxed);
        assert!(!before, "{} dropped twice", self.number);
    }
}

#[test]
fn every_value_is_dropped_once_wherever_head_and_tail_stand() {
    const SLOTS: usize = 8;
    const BLOCK: usize = slots_per_block::<Once>();
    const { assert!(BLOCK > slots_per_line::<Once>() && slots_per_line::<Once>() > 1) };

    // The ring has three blocks: into the second lap.
    for popped in (0..5 * BLOCK).step_by(STEP) {
        for waiting in (0..=SLOTS + BLOCK / 2).step_by(STEP) {
            for consumer_goes_first in [false, true] {
                let total = popped + waiting + 1;
                let dropped: Arc<[AtomicBool]> = (0..total).map(|_| false.into()).collect();
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
                let waiting = producer.push_batch(&mut (popped..popped + waiting).map(new));
                assert!(waiting <= producer.capacity() + BLOCK);
                assert!(is_dropped().eq((0..total).map(|number| number < popped)));

                if consumer_goes_first {
                    drop(consumer);
                    drop(producer);
                } else {
                    drop(producer);
                    drop(consumer);
                }
                assert!(is_dropped().eq((0..total).map(|number| number < popped + waiting)));
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
    let least = 2;
    for given in [0, 1, 3, 5, 100, 255, (1 << 24) + 1, 1 << 25, usize::MAX] {
        let refused = mailbox::<u64>(given).unwrap_err();
        let expected = CapacityError {
            given,
            least,
            most: 1 << 24,
        };
        assert_eq!(refused, expected);
    }
    assert!(mailbox::<u64>(2).is_ok());
    assert!(mailbox::<u64>(4).is_ok());
}

#[test]
#[cfg_attr(miri, ignore = "initialises 2^24 slots")]
fn the_largest_mailbox_is_accepted_and_the_next_refused() {
    let (producer, _consumer) = mailbox::<()>(1 << 24).unwrap();
    assert!(producer.capacity() >= 1 << 24);
    assert!(mailbox::<()>(1 << 25).is_err());
}

#[test]
fn a_refusal_says_what_was_given_and_what_is_allowed() {
    assert_eq!(
        mailbox::<u64>(12).unwrap_err().to_string(),
        "a mailbox cannot have 12 slots: the number must be a power of two from 2 to 16777216"
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
