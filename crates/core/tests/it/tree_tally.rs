//! The traffic of each flow of a class, reported in walks of many steps while flows come and go.

use std::collections::HashMap;

use crate::support::{length, weight};
use fairlane_core::sched::Algorithm;
use fairlane_core::tree::{ClassConfig, ClassId, FlowCount, FlowsConfig, LeafConfig, Tree};
use fairlane_core::{Count, Dequeue, Limits, Nanos, SchedulerLimits};
use fairlane_testkit::check_is_due;
use proptest::prelude::*;

/// Digests of flows that have packets all the time.
const STEADY: u64 = 5;

/// A class of flows, its events, and its reports.
struct Told {
    tree: Tree<u64>,
    class: ClassId,
    now: u64,
    from: u32,
    /// Since the tally began, by digest.
    sent: HashMap<u64, Count>,
    told: HashMap<u64, Count>,
    /// In this walk.
    seen: HashMap<u64, u32>,
    /// The traffic of each before this walk began.
    at_begin: HashMap<u64, Count>,
}

impl Told {
    fn new(algorithm: Algorithm, table: Vec<FlowCount>) -> Told {
        let mut tree = Tree::new(Algorithm::Drr, None, SchedulerLimits::default());
        let flows = FlowsConfig {
            most: 12,
            keeps_place: Nanos(10),
            forget_after: Nanos(50),
            ..FlowsConfig::new(algorithm)
        };
        let class = ClassConfig::new(weight(1), length(1500));
        let class = tree.add_flows(ClassId::ROOT, class, flows).unwrap();
        let mut told = Told {
            tree,
            class,
            now: 0,
            from: 0,
            sent: HashMap::new(),
            told: HashMap::new(),
            seen: HashMap::new(),
            at_begin: HashMap::new(),
        };
        for flow in 0..STEADY {
            told.put(flow);
        }
        assert_eq!(told.tree.tally_flows(class, Some(table)), []);
        assert!(told.tree.is_tallied(class));
        // It begins with the flows that there are.
        told.walk(usize::MAX);
        told
    }

    fn put(&mut self, flow: u64) {
        let len = length(100 + flow as u32 % 1_000);
        let put = (self.tree).enqueue(self.class, flow, len, flow, Nanos(self.now));
        put.unwrap();
    }

    fn send(&mut self) {
        if let Dequeue::Packet(packet) = self.tree.dequeue(Nanos(self.now), |_| {}) {
            self.sent.entry(packet.payload).or_default().add(packet.len);
            if packet.payload < STEADY {
                self.put(packet.payload);
            }
        }
    }

    /// Makes a step of a walk that examines `most` flows.
    fn walk(&mut self, most: usize) {
        let (mut left, mut looked) = (most, 0);
        let Told {
            tree,
            class,
            from,
            told,
            seen,
            ..
        } = self;
        let done = tree.take_tally(*class, from, &mut left, |flow, count| {
            looked += 1;
            let FlowCount { offered, sent } = count;
            assert!(offered != Count::default() || sent != Count::default());
            let Some(flow) = flow else { return };
            *seen.entry(flow).or_default() += 1;
            let told = told.entry(flow).or_default();
            *told = told.plus(sent);
        });
        assert!(looked <= most - left, "a step looks at no more than it may");
        if done {
            self.walked();
        }
        if check_is_due(8) {
            self.tree.invariants().unwrap();
        }
    }

    /// Checks at the end of a walk that each flow which was there all the time and had traffic was reported once.
    fn walked(&mut self) {
        let packets =
            |of: &HashMap<u64, Count>, flow| of.get(&flow).map_or(0, |count| count.packets);
        for flow in 0..STEADY {
            let times = self.seen.get(&flow).copied().unwrap_or(0);
            assert!(times <= 1, "flow {flow} was told {times} times");
            // Its traffic before this walk began has been reported by now, and nothing that it did not send.
            let told = packets(&self.told, flow);
            let had = packets(&self.at_begin, flow);
            assert!(told >= had, "{told} of {had} of flow {flow}");
            assert!(told <= packets(&self.sent, flow));
        }
        self.from = 0;
        self.seen.clear();
        self.at_begin = self.sent.clone();
    }
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Put(u64),
    Send(u8),
    Wait(u64),
    Walk(usize),
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => (0..40u64).prop_map(Operation::Put),
        4 => (1..20u8).prop_map(Operation::Send),
        1 => (1..100u64).prop_map(Operation::Wait),
        3 => (0..6usize).prop_map(Operation::Walk),
    ]
}

proptest! {
    #[test]
    fn a_walk_in_steps_misses_no_flow_that_stays_and_tells_none_twice(
        algorithm in 0..Algorithm::ALL.len(),
        room in 0..30usize,
        operations in prop::collection::vec(operation(), 0..300),
    ) {
        let algorithm = Algorithm::ALL[algorithm];
        let mut all = Told::new(algorithm, Vec::with_capacity(room));
        for operation in operations {
            match operation {
                Operation::Put(flow) => all.put(flow),
                Operation::Send(packets) => (0..packets).for_each(|_| all.send()),
                Operation::Wait(time) => {
                    all.now += time;
                    all.tree.expire_idle(Nanos(all.now));
                }
                Operation::Walk(most) => all.walk(most),
            }
        }
        // The rest of this walk, and a whole one.
        all.walk(usize::MAX);
        all.walk(usize::MAX);
        for flow in 0..STEADY {
            let of = |counts: &HashMap<u64, Count>| counts.get(&flow).copied().unwrap_or_default();
            prop_assert_eq!(of(&all.told), of(&all.sent), "flow {}", flow);
        }
        for (flow, told) in &all.told {
            let sent = all.sent.get(flow).copied().unwrap_or_default();
            prop_assert!(told.packets <= sent.packets && told.bytes <= sent.bytes, "{}", flow);
        }
    }
}

fn one(len: u32) -> Count {
    Count {
        packets: 1,
        bytes: len.into(),
    }
}

/// Returns a tree with a class of at most `most` flows.
fn small(most: u32) -> (Tree<u64>, ClassId) {
    let mut tree = Tree::new(Algorithm::Qfq, None, SchedulerLimits::default());
    let flows = FlowsConfig {
        most,
        keeps_place: Nanos::ZERO,
        ..FlowsConfig::new(Algorithm::Drr)
    };
    let class = ClassConfig::new(weight(1), length(1500));
    let class = tree.add_flows(ClassId::ROOT, class, flows).unwrap();
    (tree, class)
}

fn pass(tree: &mut Tree<u64>, class: ClassId, flow: u64) {
    (tree.enqueue(class, flow, length(100), flow, Nanos::ZERO)).unwrap();
    assert!(matches!(
        tree.dequeue(Nanos::ZERO, |_| {}),
        Dequeue::Packet(_)
    ));
}

fn told(tree: &mut Tree<u64>, class: ClassId) -> Vec<(Option<u64>, Count)> {
    let mut told = Vec::new();
    let tell = |flow, count: FlowCount| told.push((flow, count.sent));
    let (mut from, mut left) = (0, usize::MAX);
    assert!(tree.take_tally(class, &mut from, &mut left, tell));
    told
}

#[test]
fn a_flow_in_the_place_of_another_is_not_told_what_that_one_sent() {
    let (mut tree, class) = small(1);
    tree.tally_flows(class, Some(Vec::new()));
    pass(&mut tree, class, 1);
    pass(&mut tree, class, 1);
    pass(&mut tree, class, 2);
    assert_eq!(told(&mut tree, class), [(Some(2), one(100))]);
    assert_eq!(told(&mut tree, class), []);
}

#[test]
fn flows_without_room_are_told_as_one_without_a_digest() {
    let (mut tree, class) = small(1);
    tree.tally_flows(class, Some(Vec::new()));
    for flow in [1, 2, 3] {
        (tree.enqueue(class, flow, length(100), flow, Nanos::ZERO)).unwrap();
    }
    while let Dequeue::Packet(_) = tree.dequeue(Nanos::ZERO, |_| {}) {}
    let two = one(100).plus(one(100));
    assert_eq!(told(&mut tree, class), [(Some(1), one(100)), (None, two)]);
}

#[test]
fn nothing_is_counted_before_it_is_asked_for_and_the_table_comes_back() {
    let (mut tree, class) = small(10);
    pass(&mut tree, class, 1);
    assert_eq!(told(&mut tree, class), []);
    assert!(!tree.is_tallied(class));
    let table = tree.tally_flows(class, Some(Vec::with_capacity(100)));
    assert_eq!(table.capacity(), 0);
    assert_eq!(told(&mut tree, class), [], "what was before is not counted");
    pass(&mut tree, class, 1);
    pass(&mut tree, class, 2);
    let table = tree.tally_flows(class, None);
    let passed = FlowCount {
        offered: one(100),
        sent: one(100),
    };
    assert_eq!(table, [passed, passed]);
    pass(&mut tree, class, 2);
    assert_eq!(told(&mut tree, class), []);
    // If there are no flows, the table that was passed is returned.
    let table = tree.tally_flows(ClassId::ROOT, Some(Vec::with_capacity(7)));
    assert!(table.is_empty() && table.capacity() >= 7);
    assert!(!tree.is_tallied(ClassId::ROOT) && !tree.is_tallied(ClassId::new(9)));
}

#[test]
fn dropped_arrivals_count_as_offered() {
    let mut tree = Tree::new(Algorithm::Qfq, None, SchedulerLimits::default());
    let limits = Limits {
        packets: 3,
        ..Limits::NONE
    };
    let flows = FlowsConfig {
        leaf: LeafConfig {
            limits,
            ..LeafConfig::default()
        },
        ..FlowsConfig::new(Algorithm::Drr)
    };
    let class = ClassConfig::new(weight(1), length(1500));
    let class = tree.add_flows(ClassId::ROOT, class, flows).unwrap();
    tree.tally_flows(class, Some(Vec::new()));
    for packet in 0..10 {
        let queued = tree.enqueue(class, 7, length(100), packet, Nanos::ZERO);
        assert_eq!(queued.is_ok(), packet < 3);
    }
    assert!(matches!(
        tree.dequeue(Nanos::ZERO, |_| {}),
        Dequeue::Packet(_)
    ));
    let mut counts = Vec::new();
    let (mut from, mut left) = (0, usize::MAX);
    tree.take_tally(class, &mut from, &mut left, |_, count| counts.push(count));
    let offered = Count {
        packets: 10,
        bytes: 1_000,
    };
    let sent = one(100);
    assert_eq!(counts, [FlowCount { offered, sent }]);
}
