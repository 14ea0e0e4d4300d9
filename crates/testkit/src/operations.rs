//! Random operations for the [`model`](crate::model).

use proptest::prelude::*;

use crate::model::{Config, Operation};

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

/// Returns up to 120 operations, with edge cases among their numbers.
pub fn operations() -> impl Strategy<Value = Vec<Operation>> {
    prop::collection::vec(operation(), 1..120)
}
