//! Classes emptied in steps, and counts without a walk.

use crate::support::{length, weight};
use fairlane_core::aqm::{AqmConfig, CodelConfig};
use fairlane_core::sched::Algorithm;
use fairlane_core::tree::{
    Ceiling, ClassConfig, ClassId, ClassStats, FlowsConfig, LeafConfig, Tree,
};
use fairlane_core::{Dequeue, Nanos, Rate, SchedulerLimits};
use fairlane_testkit::check_is_due;

fn class() -> ClassConfig {
    ClassConfig::new(weight(1), length(1500))
}

#[test]
fn a_class_taken_out_in_steps_gives_what_a_flush_gives_and_no_step_looks_at_more() {
    for most in [1_usize, 2, 3, 7, 100] {
        let mut tree = Tree::<u32>::new(Algorithm::Qfq, None, SchedulerLimits::default());
        let leaf = (tree.add_leaf(ClassId::ROOT, class(), LeafConfig::default())).unwrap();
        let flows = FlowsConfig::new(Algorithm::Drr);
        let flows = tree.add_flows(ClassId::ROOT, class(), flows).unwrap();
        for number in 0..40 {
            for (id, flow) in [(leaf, 0), (flows, u64::from(number % 5))] {
                tree.enqueue(id, flow, length(100), number, Nanos::ZERO)
                    .unwrap();
            }
        }
        let mut flushed = tree.clone();
        for id in [leaf, flows] {
            let mut expected = Vec::new();
            flushed
                .flush(id, Nanos::ZERO, |gone| expected.push(gone.payload))
                .unwrap();
            let (mut taken, mut from, mut done) = (Vec::new(), 0, false);
            while !done {
                let (before, mut left) = (taken.len(), most);
                let step = |gone: fairlane_core::tree::Discarded<u32>| taken.push(gone.payload);
                done = (tree.take_out(id, &mut from, &mut left, Nanos::ZERO, step)).unwrap();
                assert_eq!(
                    taken.len() - before,
                    most - left,
                    "as many as were looked at"
                );
                if check_is_due(4) {
                    tree.invariants().unwrap();
                }
            }
            assert_eq!(taken, expected);
            assert_eq!(tree.stats(id), flushed.stats(id));
        }
        assert!(tree.is_empty());
    }
}

#[test]
fn flows_without_packets_are_looked_at_too() {
    let mut tree = Tree::<u32>::new(Algorithm::Qfq, None, SchedulerLimits::default());
    let flows = FlowsConfig::new(Algorithm::Drr);
    let flows = tree.add_flows(ClassId::ROOT, class(), flows).unwrap();
    let put = |tree: &mut Tree<u32>, flow| {
        tree.enqueue(flows, flow, length(100), 0, Nanos::ZERO)
            .unwrap();
    };
    (0..20).for_each(|flow| put(&mut tree, flow));
    while let Dequeue::Packet(_) = tree.dequeue(Nanos::ZERO, |_| {}) {}
    put(&mut tree, 11);
    for most in [1_usize, 3, 100] {
        let mut tree = tree.clone();
        let (mut taken, mut from, mut looked_at, mut done) = (0, 0, 0, false);
        while !done {
            let mut left = most;
            done =
                (tree.take_out(flows, &mut from, &mut left, Nanos::ZERO, |_| taken += 1)).unwrap();
            looked_at += most - left;
            if check_is_due(4) {
                tree.invariants().unwrap();
            }
        }
        assert_eq!((taken, looked_at), (1, 20), "each once");
    }
}

#[test]
fn the_counts_of_classes_alone_add_up_to_those_with_all_below() {
    let mut tree = Tree::<u32>::new(Algorithm::Drr, None, SchedulerLimits::default());
    let inner = (tree.add_inner(ClassId::ROOT, class(), Algorithm::Qfq)).unwrap();
    let leaf = |tree: &mut Tree<u32>| tree.add_leaf(inner, class(), LeafConfig::default());
    let (one, two) = (leaf(&mut tree).unwrap(), leaf(&mut tree).unwrap());
    for number in 0..30 {
        for id in [one, two] {
            tree.enqueue(id, 0, length(100), number, Nanos::ZERO)
                .unwrap();
        }
    }
    for _ in 0..20 {
        tree.dequeue(Nanos::ZERO, |_| {});
    }
    tree.remove(two, |_| {}).unwrap();
    let alone = [inner, one].map(|id| tree.own_stats(id).unwrap());
    let all = tree.stats(inner).unwrap();
    let sum = |count: fn(&fairlane_core::tree::ClassStats) -> u64| -> u64 {
        alone.iter().map(count).sum()
    };
    assert_eq!(sum(|stats| stats.accepted.packets), 60);
    assert_eq!(sum(|stats| stats.sent.packets), all.sent.packets);
    assert_eq!(sum(|stats| stats.discarded.bytes), all.discarded.bytes);
    assert_eq!(sum(|stats| stats.queued.packets), all.queued.packets);
    assert_eq!(tree.own_stats(two), None);
}

#[test]
fn a_class_removed_in_steps_leaves_what_a_removal_leaves_and_no_step_looks_at_more() {
    let mut tree = Tree::<u32>::new(Algorithm::Qfq, None, SchedulerLimits::default());
    tree.add_leaf(ClassId::ROOT, class(), LeafConfig::default())
        .unwrap();
    let usual = FlowsConfig::new(Algorithm::Drr);
    let flows = FlowsConfig {
        ceiling: Some(Ceiling {
            rate: Rate::from_bps(8_000).unwrap(),
            burst: 3_000,
        }),
        leaf: LeafConfig {
            aqm: AqmConfig::Codel(CodelConfig::default()),
            ..usual.leaf
        },
        ..usual
    };
    let flows = tree.add_flows(ClassId::ROOT, class(), flows).unwrap();
    for digest in 0..20 {
        let put = tree.enqueue(flows, digest, length(100), 0, Nanos::ZERO);
        put.unwrap();
    }
    while let Dequeue::Packet(_) = tree.dequeue(Nanos::ZERO, |_| {}) {}
    for most in [1, 3, 7, 100] {
        let (mut at_once, mut in_steps) = (tree.clone(), tree.clone());
        let expected = at_once.remove(flows, |_| {}).unwrap();
        assert_eq!(expected.flows, 20);
        let (mut looked_at, mut now) = (0, Nanos::ZERO);
        let removed = loop {
            let mut left = most;
            let removed = in_steps.go_on_removing(flows, &mut left, |_| panic!("it is empty"));
            looked_at += most - left;
            if check_is_due(4) {
                in_steps.invariants().unwrap();
            }
            match removed.unwrap() {
                Some(removed) => break removed,
                None => assert_eq!(left, 0),
            }
            // Some of them expire meanwhile.
            now += usual.forget_after;
            in_steps.expire_idle(now);
            if check_is_due(4) {
                in_steps.invariants().unwrap();
            }
        };
        assert!(removed.remains.is_some());
        assert_eq!(looked_at, 20, "each once");
        let without_flows = |stats| ClassStats { flows: 0, ..stats };
        assert_eq!(without_flows(removed.stats), without_flows(expected));
        assert_eq!(in_steps.classes().count(), at_once.classes().count());
        assert_eq!(in_steps.kept(), at_once.kept());
        in_steps.invariants().unwrap();
    }
}
