//! One sequence of random operations, driven through every algorithm beside a
//! model of plain queues: nothing is lost, duplicated or reordered within a flow,
//! the link never idles while something waits, every count adds up, and the
//! algorithm's invariants hold after each operation.
//!
//! Algorithms are listed in `support/model.rs`.

use std::num::NonZeroU32;

use crate::support::model::{self, Config, Operation, before_the_wrap, drive};
use crate::support::some_cases;
use fairlane_core::VirtualTime;
use fairlane_core::sched::{Plus, Qfq};
use proptest::prelude::*;

fn config() -> impl Strategy<Value = Config> {
    let weight = prop_oneof![
        Just(1u32),
        Just(2),
        Just(1000),
        Just(1_000_000),
        1..=1_000_000u32,
        1..=16u32
    ];
    let max_length = prop_oneof![
        Just(1u32),
        Just(64),
        Just(1500),
        Just(65_535),
        1..=65_535u32
    ];
    let limits = prop_oneof![
        6 => Just(None),
        1 => (0u32..4, 0u32..200_000).prop_map(Some),
    ];
    (weight, max_length, limits).prop_map(|(weight, max_length, limits)| Config {
        weight,
        max_length,
        limits,
    })
}

fn operation() -> impl Strategy<Value = Operation> {
    let flow = 0usize..64;
    let len = prop_oneof![Just(1u32), Just(65_535), 1..=1500u32, 1..=65_535u32];
    prop_oneof![
        2 => config().prop_map(Operation::Add),
        1 => flow.clone().prop_map(Operation::Remove),
        2 => (flow.clone(), config()).prop_map(|(flow, c)| Operation::Change(flow, c)),
        1 => flow.clone().prop_map(Operation::Flush),
        8 => (flow.clone(), len.clone(), 1u8..6)
            .prop_map(|(flow, len, packets)| Operation::Enqueue { flow, len, packets }),
        2 => len.prop_map(|len| Operation::EnqueueAll { len }),
        6 => (1u16..20).prop_map(Operation::Dequeue),
        1 => Just(Operation::Peek),
        1 => (0u32..200).prop_map(Operation::Stray),
        1 => prop_oneof![Just(1u32), Just(1000), Just(1_000_000)].prop_map(Operation::ChangeAll),
    ]
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    proptest::collection::vec(operation(), 1..120)
}

/// Anywhere, or shortly before virtual time wraps.
fn start() -> impl Strategy<Value = VirtualTime> {
    prop_oneof![
        any::<u64>().prop_map(VirtualTime::new),
        (40u32..63, any::<u16>()).prop_map(|(shift, more)| before_the_wrap(shift, more)),
    ]
}

fn members() -> impl Strategy<Value = NonZeroU32> {
    (1u32..10).prop_map(|members| NonZeroU32::new(members).unwrap())
}

fn cases() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        ..some_cases(24)
    }
}

macro_rules! tests {
    ($($algorithm:ident: $make:expr;)*) => {
        proptest! {
            // The smallest input is printed; what it shows becomes a test with a name.
            #![proptest_config(cases())]

            $(
                #[test]
                fn $algorithm(operations in operations(), start in start(), members in members()) {
                    let make: fn(VirtualTime, NonZeroU32) -> _ = $make;
                    drive(make(start, members), &operations);
                }
            )*
        }
    };
}

mod agrees_with_the_model {
    use super::*;
    use fairlane_core::sched::*;

    model::algorithms!(tests);
}

/// Each leaves with its weight as soon as it was served, ahead of V, which then runs faster:
/// in the end V is further beyond those who still wait than Theorem 4 of the QFQ report has
/// it for weights that stay.
#[test]
fn qfq_bears_that_all_weights_fall_one_after_the_other() {
    let heavy = Config {
        weight: 524_288,
        max_length: 65_535,
        limits: None,
    };
    let mut operations = vec![Operation::Add(heavy); 40];
    operations.push(Operation::EnqueueAll { len: 65_535 });
    operations.push(Operation::ChangeAll(1));
    drive(Qfq::new(), &operations);
    drive(Plus::<Qfq>::new(NonZeroU32::MIN), &operations);
}

/// A lighter sum of weights had put the flow into a coarser group, of which its finish time
/// still was when it came back to a finer one.
#[test]
fn the_finish_time_of_another_group_does_not_break_the_order() {
    let of = |weight, max_length| Config {
        weight,
        max_length,
        limits: None,
    };
    let enqueue = |flow, len| Operation::Enqueue {
        flow,
        len,
        packets: 1,
    };
    let operations = [
        Operation::Add(of(1, 1)),
        Operation::Change(0, of(1, 1500)),
        Operation::Add(of(1, 29_688)),
        Operation::Add(of(1000, 65_535)),
        Operation::EnqueueAll { len: 1 },
        Operation::Flush(0),
        enqueue(14, 65_535),
        enqueue(7, 370),
        Operation::Flush(0),
        Operation::Add(of(1, 1)),
        Operation::Dequeue(4),
        enqueue(4, 1),
        Operation::EnqueueAll { len: 15_055 },
        Operation::EnqueueAll { len: 1 },
        Operation::ChangeAll(1_000_000),
        Operation::Dequeue(5),
        Operation::EnqueueAll { len: 1 },
    ];
    let start = VirtualTime::new(2_395_996_764_549_492_398);
    drive(Qfq::starting_at(start), &operations);
}
