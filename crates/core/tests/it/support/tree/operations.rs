//! Operations on a class tree in plain numbers, and at random.

use fairlane_core::aqm::{
    AqmConfig, CodelConfig, CodelParameters, Probability, RedConfig, RedParameters,
};
use fairlane_core::room::Room;
use fairlane_core::sched::Algorithm;
use fairlane_core::tree::{Ceiling, ClassConfig, FlowsConfig, LeafConfig, Payload};
use fairlane_core::{Length, Limits, Nanos, Rate, Weight};
use proptest::prelude::*;

/// The payload of the packets of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    pub number: u64,
    pub capable: bool,
    pub marked: u64,
}

impl Payload for Tag {
    fn mark(&mut self) -> bool {
        // By RED at enqueue, and by CoDel at dequeue, if that replaced it.
        assert!(self.marked < 2, "marked a third time");
        self.marked += u64::from(self.capable);
        self.capable
    }
}

/// A class in plain numbers, each cut to its range where it is used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plain {
    pub weight: u32,
    pub level: u32,
    /// Rate and burst.
    pub ceiling: Option<(u64, u32)>,
    pub max_length: u32,
    /// Packets and bytes of a queue.
    pub limits: (u32, u32),
    /// Packets and bytes that are reserved for a class; for each of its flows, a part of them.
    pub room: (u32, u32),
    pub aqm: u8,
    pub algorithm: usize,
    /// The largest number of flows, and the time for which one is kept.
    pub flows: (u32, u64),
}

impl Plain {
    pub(super) fn ceiling(self) -> Option<Ceiling> {
        self.ceiling.map(|(rate, burst)| Ceiling {
            rate: Rate::from_bps(rate).unwrap(),
            burst,
        })
    }

    pub(super) fn class(self) -> ClassConfig {
        ClassConfig {
            weight: Weight::new(self.weight).unwrap(),
            level: self.level,
            ceiling: self.ceiling(),
            max_length: Length::new(self.max_length).unwrap(),
        }
    }

    pub(super) fn algorithm(self) -> Algorithm {
        Algorithm::ALL[self.algorithm % Algorithm::ALL.len()]
    }

    pub(super) fn leaf(self) -> LeafConfig {
        let codel = |ecn| {
            AqmConfig::Codel(
                CodelConfig::new(CodelParameters {
                    target: Nanos(5_000),
                    interval: Nanos(20_000),
                    max_packet: Length::new(1).unwrap(),
                    ecn,
                })
                .unwrap(),
            )
        };
        let red = |ecn| {
            AqmConfig::Red(
                RedConfig::new(RedParameters {
                    min: 2,
                    max: 5,
                    max_p: Probability::from_ppm(500_000).unwrap(),
                    weight_shift: 1,
                    ecn,
                    ..RedParameters::default()
                })
                .unwrap(),
            )
        };
        LeafConfig {
            limits: Limits {
                packets: self.limits.0,
                bytes: self.limits.1,
            },
            room: self.room(),
            aqm: match self.aqm {
                0 => codel(false),
                1 => codel(true),
                2 => red(false),
                3 => red(true),
                _ => AqmConfig::TailDrop,
            },
            rate: Rate::from_bps(1_000_000_000).unwrap(),
        }
    }

    /// Returns the reservation of a class.
    pub(super) fn room(self) -> Room {
        let (packets, bytes) = self.room;
        Room { packets, bytes }
    }

    pub(super) fn flows(self) -> FlowsConfig {
        let leaf = LeafConfig {
            room: Room {
                packets: self.room.0 / 3,
                bytes: self.room.1 / 2,
            },
            ..self.leaf()
        };
        FlowsConfig {
            room: self.room(),
            most: self.flows.0,
            forget_after: Nanos(self.flows.1),
            weight: Weight::new(self.weight).unwrap(),
            // Each flow has the ceiling of the class, turned round to be another.
            ceiling: self.ceiling().filter(|ceiling| ceiling.burst % 2 == 0),
            leaf,
            ..FlowsConfig::new(self.algorithm())
        }
    }
}

/// An operation on the tree. A class is an index into the existing ones, modulo their number.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    AddInner(usize, Plain),
    AddLeaf(usize, Plain),
    AddFlows(usize, Plain),
    Change(usize, Plain),
    ChangeQueue(usize, Plain),
    Remove(usize),
    /// A class, its next parent, and its configuration there.
    Move(usize, usize, Plain),
    Flush(usize),
    Enqueue {
        class: usize,
        flow: u64,
        len: u32,
        packets: u8,
        capable: bool,
    },
    /// A packet to each class.
    EnqueueAll {
        flow: u64,
        len: u32,
    },
    Dequeue(u16),
    /// Time passes: nanoseconds.
    Wait(u64),
    /// Time passes until a class may send.
    WaitForNext,
    ExpireIdle,
    /// Speaks of a class that may not exist.
    Stray(u32),
}

pub(super) fn plain() -> impl Strategy<Value = Plain> {
    let rate = prop_oneof![
        Just(1_000u64),
        Just(64_000),
        1_000_000u64..20_000_000_000,
        Just(1_000_000_000_000)
    ];
    let burst = prop_oneof![0u32..3_000, 1_500u32..100_000];
    let ceiling = prop::option::weighted(0.3, (rate, burst));
    let limits = prop_oneof![
        6 => Just((u32::MAX, u32::MAX)),
        2 => (0u32..6, 0u32..9_000),
        1 => (1u32..20, Just(u32::MAX)),
    ];
    let room = prop_oneof![
        2 => Just((0u32, 0u32)),
        3 => (0u32..9, 0u32..9_000),
    ];
    (
        prop_oneof![1u32..20, 1u32..=1_000_000],
        0u32..4,
        ceiling,
        prop_oneof![4 => Just(1_500u32), 1 => Just(65_535), 1 => 1u32..3_000],
        limits,
        (0u8..9, room),
        0..Algorithm::ALL.len(),
        (
            prop_oneof![1u32..4, 4u32..40],
            prop_oneof![Just(0u64), 0u64..200_000],
        ),
    )
        .prop_map(
            |(weight, level, ceiling, max_length, limits, (aqm, room), algorithm, flows)| Plain {
                weight,
                level,
                ceiling,
                max_length,
                limits,
                room,
                aqm,
                algorithm,
                flows,
            },
        )
}

pub(crate) fn operation() -> impl Strategy<Value = Operation> {
    let len = || prop_oneof![4 => 1u32..=1_500, 1 => Just(64u32), 1 => 1u32..=65_535];
    let flow = || prop_oneof![0u64..6, any::<u64>()];
    prop_oneof![
        3 => (0usize..40, plain()).prop_map(|(at, plain)| Operation::AddInner(at, plain)),
        3 => (0usize..40, plain()).prop_map(|(at, plain)| Operation::AddLeaf(at, plain)),
        2 => (0usize..40, plain()).prop_map(|(at, plain)| Operation::AddFlows(at, plain)),
        2 => (0usize..40, plain()).prop_map(|(at, plain)| Operation::Change(at, plain)),
        2 => (0usize..40, plain()).prop_map(|(at, plain)| Operation::ChangeQueue(at, plain)),
        1 => (0usize..40).prop_map(Operation::Remove),
        2 => (0usize..40, 0usize..40, plain())
            .prop_map(|(at, parent, plain)| Operation::Move(at, parent, plain)),
        1 => (0usize..40).prop_map(Operation::Flush),
        8 => (0usize..40, flow(), len(), 1u8..12, any::<bool>()).prop_map(
            |(class, flow, len, packets, capable)| Operation::Enqueue {
                class, flow, len, packets, capable
            }
        ),
        3 => (flow(), len()).prop_map(|(flow, len)| Operation::EnqueueAll { flow, len }),
        6 => (1u16..30).prop_map(Operation::Dequeue),
        4 => prop_oneof![0u64..3_000, 0u64..3_000_000, 0u64..20_000_000_000]
            .prop_map(Operation::Wait),
        3 => Just(Operation::WaitForNext),
        1 => Just(Operation::ExpireIdle),
        1 => prop_oneof![Just(u32::MAX), 0u32..60].prop_map(Operation::Stray),
    ]
}
