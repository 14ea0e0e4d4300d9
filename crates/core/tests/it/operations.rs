//! One sequence of random operations, driven through every algorithm and a model of plain queues: nothing is lost,
//! duplicated or reordered within a flow, the link never idles with a backlog, every count adds up, and the algorithm's
//! invariants hold after each operation.
//!
//! Algorithms are listed in `support/algorithms.rs`; the model is the testkit's.

use std::num::NonZeroU32;

use crate::support::{algorithms, some_cases};
use fairlane_core::sched::{Plus, Qfq};
use fairlane_core::{Scheduler, VirtualTime};
use fairlane_testkit::model::{self, Config, Operation, before_the_wrap};
use fairlane_testkit::operations::operations;
use proptest::prelude::*;

fn drive<A: Scheduler>(algorithm: A, operations: &[Operation]) {
    model::drive(algorithm, operations).unwrap_or_else(|what| panic!("{}: {what}", A::NAME));
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
            // The smallest input is printed, and becomes a named test.
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

    algorithms::algorithms!(tests);
}

/// Each leaves with its weight as soon as it has been served, ahead of V, which then runs faster: in the end V is further
/// beyond the remaining flows than Theorem 4 of the QFQ report allows for constant weights.
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

/// A lighter sum of weights had put the flow into a coarser group, which its finish time still belonged to when it
/// returned to a finer one.
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
