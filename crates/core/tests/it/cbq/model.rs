//! Random operations, compared with a model of a link's content.

use fairlane_core::Dequeue;
use fairlane_core::aqm::AqmConfig;
use fairlane_core::room::Room;
use fairlane_core::tree::cbq::{Bursts, Cbq, CbqClass};
use fairlane_core::tree::{ClassId, LeafConfig, Reason};
use fairlane_core::{Length, Limits, Nanos, SchedulerLimits};
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};

use super::rig::*;

/// An operation on a link.
#[derive(Clone, Debug)]
enum Op {
    Enqueue {
        class: usize,
        len: u32,
    },
    Dequeue,
    /// Time passes, in microseconds.
    Wait(u64),
    /// Time passes until a class may send.
    WaitAsTold,
    AddInner {
        parent: usize,
        config: CbqClass,
    },
    AddLeaf {
        parent: usize,
        config: CbqClass,
        leaf: LeafConfig,
    },
    Change {
        class: usize,
        config: CbqClass,
    },
    ChangeLeaf {
        class: usize,
        leaf: LeafConfig,
    },
    Flush(usize),
    Remove(usize),
}

fn any_class() -> impl Strategy<Value = CbqClass> {
    let rates = prop_oneof![Just(1_000), Just(64_000), 1_000_000..10_000_000u64];
    (rates, 0..8u32, any::<bool>(), 1..20u32, 40..1500u32).prop_map(
        |(bps, priority, borrow, max, longest)| CbqClass {
            rate: rate(bps),
            priority,
            borrow,
            bursts: Bursts {
                max,
                min: 1 + max / 3,
                packet: length(longest),
            },
            max_length: length(1500),
        },
    )
}

fn any_leaf() -> impl Strategy<Value = LeafConfig> {
    let aqm = prop_oneof![
        3 => Just(AqmConfig::TailDrop),
        1 => Just(red(false)),
        1 => Just(codel(false)),
    ];
    let room = (0..10u32, 0..9_000u32);
    (aqm, 0..20u32, room).prop_map(|(aqm, packets, room)| LeafConfig {
        room: Room {
            packets: room.0,
            bytes: room.1,
        },
        limits: Limits {
            packets,
            bytes: 20_000,
        },
        aqm,
        rate: rate(MBIT),
    })
}

fn op() -> impl Strategy<Value = Op> {
    let at = 0..12usize;
    prop_oneof![
        8 => (at.clone(), 1..1600u32).prop_map(|(class, len)| Op::Enqueue { class, len }),
        6 => Just(Op::Dequeue),
        2 => (0..50_000u64).prop_map(Op::Wait),
        2 => Just(Op::WaitAsTold),
        1 => (at.clone(), any_class()).prop_map(|(parent, config)| Op::AddInner { parent, config }),
        2 => (at.clone(), any_class(), any_leaf())
            .prop_map(|(parent, config, leaf)| Op::AddLeaf { parent, config, leaf }),
        1 => (at.clone(), any_class()).prop_map(|(class, config)| Op::Change { class, config }),
        1 => (at.clone(), any_leaf()).prop_map(|(class, leaf)| Op::ChangeLeaf { class, leaf }),
        1 => at.clone().prop_map(Op::Flush),
        1 => at.prop_map(Op::Remove),
    ]
}

/// The expected content of a link, class by class.
#[derive(Default)]
struct Model {
    queues: BTreeMap<ClassId, VecDeque<(u32, u64)>>,
    accepted: u64,
    gone: u64,
}

impl Model {
    /// A packet of a class leaves or is lost: it is the first one.
    fn take(&mut self, class: ClassId, len: Length, payload: u64) {
        let queue = self.queues.get_mut(&class).unwrap();
        assert_eq!(queue.pop_front(), Some((len.get(), payload)));
        self.gone += 1;
    }
}

proptest! {
    /// Packets leave in the order of their class, each once, whatever happens to the classes; none is queued for ever;
    /// and every count is the sum of its parts.
    #[test]
    fn no_packet_is_lost_or_forgotten(
        granularity in prop_oneof![2 => Just(0u64), 1 => Just(10_000_000)],
        ops in proptest::collection::vec(op(), 1..300),
    ) {
        let limits = SchedulerLimits { packets: 60, ..SchedulerLimits::default() };
        let mut cbq: Cbq<u64> = Cbq::with_timer(rate(10 * MBIT), limits, Nanos(granularity));
        let mut model = Model::default();
        let (mut now, mut told, mut number) = (Nanos::ZERO, Nanos::ZERO, 0);
        for op in ops {
            match op {
                Op::Enqueue { class, len } => {
                    let class = ClassId::new(class as u32);
                    number += 1;
                    let mut gone = Vec::new();
                    let outcome = cbq.offer(class, length(len), number, now, |one| gone.push(one));
                    for one in gone {
                        prop_assert!(one.reason == Reason::Displaced && one.class != class);
                        model.take(one.class, one.len, one.payload);
                    }
                    if outcome.is_ok() {
                        model.queues.entry(class).or_default().push_back((len, number));
                        model.accepted += 1;
                    }
                }
                Op::Dequeue => {
                    let mut lost = Vec::new();
                    let answer = cbq.dequeue(now, |gone| lost.push(gone));
                    for gone in lost {
                        model.take(gone.class, gone.len, gone.payload);
                    }
                    match answer {
                        Dequeue::Packet(p) => model.take(p.owner, p.len, p.payload),
                        Dequeue::NotBefore(time) => {
                            prop_assert!(time > now && !cbq.is_empty());
                            told = time;
                        }
                        Dequeue::Empty => prop_assert!(cbq.is_empty()),
                    }
                }
                Op::Wait(micros) => now += Nanos::from_micros(micros),
                Op::WaitAsTold => now = now.max(told),
                Op::AddInner { parent, config } => {
                    let _ = cbq.add_inner(ClassId::new(parent as u32), config);
                }
                Op::AddLeaf { parent, config, leaf } => {
                    let _ = cbq.add_leaf(ClassId::new(parent as u32), config, leaf);
                }
                Op::Change { class, config } => {
                    let _ = cbq.change(ClassId::new(class as u32), config);
                }
                Op::ChangeLeaf { class, leaf } => {
                    let _ = cbq.change_leaf(ClassId::new(class as u32), leaf);
                }
                Op::Flush(class) => {
                    let _ = cbq.flush(ClassId::new(class as u32), now, |gone| {
                        model.take(gone.class, gone.len, gone.payload);
                    });
                }
                Op::Remove(class) => {
                    let _ = cbq.remove(ClassId::new(class as u32), |gone| {
                        model.take(gone.class, gone.len, gone.payload);
                    });
                }
            }
            if let Err(violation) = cbq.invariants() {
                return Err(TestCaseError::fail(violation.to_string()));
            }
            let stats = cbq.stats(ROOT).unwrap();
            prop_assert_eq!(stats.accepted.packets, model.accepted);
            prop_assert_eq!(stats.sent.packets + stats.discarded.packets, model.gone);
            let queued: usize = model.queues.values().map(VecDeque::len).sum();
            prop_assert_eq!(cbq.len() as usize, queued);
        }
        // The rest is sent, in as many calls as there are packets and suspensions.
        for _ in 0..10_000 {
            match cbq.dequeue(now, |_| {}) {
                Dequeue::Packet(_) => {}
                Dequeue::NotBefore(time) => {
                    prop_assert!(time > now);
                    now = time;
                }
                Dequeue::Empty => break,
            }
        }
        prop_assert!(cbq.is_empty());
    }
}
