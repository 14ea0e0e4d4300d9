//! Flows and classes are walked, and packets of any type are queued.

use crate::support::{config, length, weight};
use fairlane_core::aqm::{AqmConfig, CodelConfig, CodelParameters};
use fairlane_core::sched::{Algorithm, Qfq};
use fairlane_core::tree::cbq::{Cbq, CbqClass};
use fairlane_core::tree::{
    ClassConfig, ClassId, DynamicFlow, FlowsConfig, LeafConfig, Payload, Tree,
};
use fairlane_core::{AnyScheduler, Dequeue, Nanos, PacketScheduler, Rate, SchedulerLimits};

fn tree<P>() -> Tree<P> {
    Tree::new(Algorithm::Qfq, None, SchedulerLimits::default())
}

fn class() -> ClassConfig {
    ClassConfig::new(weight(1), length(1000))
}

#[test]
fn flows_are_walked_without_those_that_were_removed() {
    let mut link = PacketScheduler::new(Qfq::new(), SchedulerLimits::default());
    let mut any = AnyScheduler::new(Algorithm::Qfq, SchedulerLimits::default());
    assert_eq!(link.flows().count(), 0);
    let flows = [1, 2, 3].map(|of| link.add_flow(config(of, 1000)).unwrap());
    for of in [1, 2, 3] {
        any.add_flow(config(of, 1000)).unwrap();
    }
    // It keeps its place in the order, and is no flow any more.
    link.enqueue(flows[1], length(1000), "one").unwrap();
    any.enqueue(flows[1], length(1000), "one").unwrap();
    link.remove_flow(flows[1], drop).unwrap();
    any.remove_flow(flows[1], drop).unwrap();
    assert!(link.flows().eq([flows[0], flows[2]]));
    assert!(any.flows().eq(link.flows()));
    let weights: Vec<_> = link.flows().filter_map(|flow| link.weight(flow)).collect();
    assert_eq!(weights, [weight(1), weight(3)]);
    assert!(link.dequeue().is_none());
    let again = link.add_flow(config(4, 1000)).unwrap();
    assert!(link.flows().any(|flow| flow == again));
    assert_eq!(link.flows().count(), 3);
}

#[test]
fn classes_are_walked_up_and_down() {
    let mut tree: Tree<u32> = tree();
    let root = ClassId::ROOT;
    assert!(tree.classes().eq([root]));
    let inner = tree.add_inner(root, class(), Algorithm::Drr).unwrap();
    let [one, two] = [(); 2].map(|()| {
        tree.add_leaf(inner, class(), LeafConfig::default())
            .unwrap()
    });
    let flows = FlowsConfig::new(Algorithm::Drr);
    let flows = tree.add_flows(root, class(), flows).unwrap();
    assert!(tree.classes().eq([root, inner, one, two, flows]));
    assert!(tree.children(root).eq([inner, flows]));
    assert!(tree.children(inner).eq([one, two]));
    assert_eq!(tree.children(one).count() + tree.children(flows).count(), 0);
    assert_eq!(tree.parent(root), None);
    assert_eq!(
        (tree.parent(inner), tree.parent(flows)),
        (Some(root), Some(root))
    );
    assert_eq!(tree.parent(two), Some(inner));

    tree.enqueue(one, 0, length(1000), 1, Nanos::ZERO).unwrap();
    tree.remove(one, drop).unwrap();
    assert!(tree.classes().eq([root, inner, two, flows]));
    assert!(tree.children(inner).eq([two]));
    assert_eq!(tree.parent(one), None);
    assert_eq!(tree.children(one).count(), 0);
}

#[test]
fn classes_of_cbq_are_walked_up_and_down() {
    let rate = Rate::from_bps(8_000_000).unwrap();
    let class = CbqClass::new(rate, length(1000));
    let mut cbq: Cbq<u32> = Cbq::new(rate, SchedulerLimits::default());
    let root = ClassId::ROOT;
    let inner = cbq.add_inner(root, class).unwrap();
    let [one, two] = [(); 2].map(|()| cbq.add_leaf(inner, class, LeafConfig::default()).unwrap());
    assert!(cbq.classes().eq([root, inner, one, two]));
    assert!(cbq.children(inner).eq([one, two]) && cbq.children(root).eq([inner]));
    cbq.remove(one, drop).unwrap();
    assert!(cbq.classes().eq([root, inner, two]) && cbq.children(inner).eq([two]));
    assert_eq!((cbq.parent(two), cbq.parent(root)), (Some(inner), None));
    assert_eq!((cbq.parent(one), cbq.children(one).count()), (None, 0));
}

#[test]
fn flows_of_a_class_are_walked_idle_or_not() {
    let mut tree = tree();
    let flows = FlowsConfig {
        most: 2,
        ..FlowsConfig::new(Algorithm::Drr)
    };
    let flows = tree.add_flows(ClassId::ROOT, class(), flows).unwrap();
    assert_eq!(tree.flows(flows).count(), 0);
    for digest in [5, 6, 6] {
        tree.enqueue(flows, digest, length(1000), digest, Nanos::ZERO)
            .unwrap();
    }
    let queued = |tree: &Tree<u64>| {
        let flows = tree.flows(flows);
        let mut queued: Vec<_> = flows
            .map(|flow: DynamicFlow| (flow.digest, flow.queued.packets))
            .collect();
        queued.sort_unstable();
        queued
    };
    assert_eq!(queued(&tree), [(Some(5), 1), (Some(6), 2)]);
    // There is no place for a third: it shares the common one.
    tree.enqueue(flows, 7, length(1000), 7, Nanos::ZERO)
        .unwrap();
    assert_eq!(queued(&tree), [(None, 1), (Some(5), 1), (Some(6), 2)]);
    while let Dequeue::Packet(_) = tree.dequeue(Nanos::ZERO, drop) {}
    assert_eq!(queued(&tree), [(None, 0), (Some(5), 0), (Some(6), 0)]);
    assert_eq!(tree.flows(ClassId::ROOT).count(), 0);
    assert_eq!(tree.flows(ClassId::new(9)).count(), 0);
}

/// It counts how often it was marked, and does not print.
struct Marks(u32);

impl Payload for Marks {
    fn mark(&mut self) -> bool {
        self.0 += 1;
        true
    }
}

/// Sends packets that waited too long from a leaf with CoDel; returns the number sent with a mark, and the number
/// dropped.
fn marked_and_dropped(mut tree: Tree<Marks>) -> (u32, u32) {
    let parameters = CodelParameters {
        target: Nanos::from_micros(1),
        interval: Nanos::from_micros(10),
        max_packet: length(1),
        ecn: true,
    };
    let leaf = LeafConfig {
        aqm: AqmConfig::Codel(CodelConfig::new(parameters).unwrap()),
        ..LeafConfig::default()
    };
    let leaf = tree.add_leaf(ClassId::ROOT, class(), leaf).unwrap();
    for _ in 0..40 {
        tree.enqueue(leaf, 0, length(1000), Marks(0), Nanos::ZERO)
            .unwrap();
    }
    let (mut marked, mut dropped) = (0, 0);
    let mut now = Nanos::ZERO;
    loop {
        now += Nanos::from_micros(30);
        match tree.dequeue(now, |_| dropped += 1) {
            Dequeue::Packet(packet) => marked += packet.payload.0,
            _ => return (marked, dropped),
        }
    }
}

#[test]
fn packets_are_marked_where_the_tree_was_told_to_and_dropped_elsewhere() {
    let (marked, dropped) = marked_and_dropped(tree().marking());
    assert!(
        marked > 2 && dropped == 0,
        "{marked} marked, {dropped} dropped"
    );
    let (marked, dropped) = marked_and_dropped(tree());
    assert!(
        marked == 0 && dropped > 2,
        "{marked} marked, {dropped} dropped"
    );
}

#[test]
fn packets_of_any_type_are_queued() {
    let mut link: Tree<String> = tree();
    let leaf = link
        .add_leaf(ClassId::ROOT, class(), LeafConfig::default())
        .unwrap();
    link.enqueue(leaf, 0, length(5), "hello".to_owned(), Nanos::ZERO)
        .unwrap();
    match link.dequeue(Nanos::ZERO, drop) {
        Dequeue::Packet(packet) => assert_eq!(packet.payload, "hello"),
        other => panic!("one waits: {other:?}"),
    }
}
