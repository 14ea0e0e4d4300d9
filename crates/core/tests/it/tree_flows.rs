//! Dynamic flows: created by a packet, expired when idle, bounded in number.

use crate::support::{Random, length, weight};
use fairlane_core::Dequeue;
use fairlane_core::room::Room;
use fairlane_core::sched::Algorithm;
use fairlane_core::tree::{Ceiling, ClassConfig, ClassId, FlowsConfig, LeafConfig, Tree};
use fairlane_core::{Limits, Nanos, Rate, SchedulerLimits};
use std::time::Instant;

fn class() -> ClassConfig {
    ClassConfig::new(weight(1), length(1500))
}

/// Returns a class of these flows, of which none that is idle keeps its place.
fn flows(config: FlowsConfig) -> (Tree<u64>, ClassId) {
    let config = FlowsConfig {
        keeps_place: Nanos::ZERO,
        ..config
    };
    let mut tree = Tree::new(Algorithm::Qfq, None, SchedulerLimits::default());
    let flows = tree.add_flows(ClassId::ROOT, class(), config).unwrap();
    (tree, flows)
}

fn put(tree: &mut Tree<u64>, class: ClassId, flow: u64, now: u64) {
    tree.enqueue(class, flow, length(1000), flow, Nanos(now))
        .unwrap();
    tree.invariants().unwrap();
}

fn take(tree: &mut Tree<u64>, now: u64) -> Option<u64> {
    let answer = tree.dequeue(Nanos(now), |_| {});
    tree.invariants().unwrap();
    match answer {
        Dequeue::Packet(packet) => Some(packet.payload),
        Dequeue::Empty => None,
        Dequeue::NotBefore(time) => panic!("nobody has a ceiling: {time:?}"),
    }
}

fn count(tree: &Tree<u64>, class: ClassId) -> u64 {
    tree.stats(class).unwrap().flows
}

#[test]
fn each_digest_has_a_flow_and_each_flow_its_share() {
    for &algorithm in Algorithm::ALL {
        let (mut tree, class) = flows(FlowsConfig::new(algorithm));
        // Flow 0 sends ten times as much as the others.
        for n in 0..20 {
            for flow in [0, 7, u64::MAX, 1 << 40] {
                let packets = if flow == 0 { 10 } else { 1 };
                for _ in 0..packets {
                    put(&mut tree, class, flow, n);
                }
            }
        }
        assert_eq!(count(&tree, class), 4, "{algorithm}");
        let mut sent = 0;
        for _ in 0..80 {
            sent += u64::from(take(&mut tree, 100) == Some(0));
        }
        match algorithm {
            Algorithm::Fifo => assert!(sent > 55),
            _ => assert!(sent.abs_diff(20) <= 6, "{algorithm}: {sent}"),
        }
    }
}

#[test]
fn an_idle_flow_is_forgotten_after_its_time_and_not_before() {
    let config = FlowsConfig {
        forget_after: Nanos(1_000),
        ..FlowsConfig::new(Algorithm::Qfq)
    };
    let (mut tree, class) = flows(config);
    for flow in 0..5 {
        put(&mut tree, class, flow, 0);
    }
    for n in 0..5 {
        assert!(take(&mut tree, 100 * n).is_some());
    }
    tree.expire_idle(Nanos(999));
    assert_eq!(count(&tree, class), 5);
    tree.expire_idle(Nanos(1_100));
    assert_eq!(count(&tree, class), 3);
    // One that comes back begins again.
    put(&mut tree, class, 2, 1_150);
    tree.expire_idle(Nanos(10_000));
    assert_eq!(count(&tree, class), 1);
    assert_eq!(take(&mut tree, 10_000), Some(2));
    tree.expire_idle(Nanos(10_999));
    assert_eq!(count(&tree, class), 1);
    // A new flow makes room for itself, without a call that expires others.
    put(&mut tree, class, 9, 11_000);
    assert_eq!(count(&tree, class), 1);
    let stats = tree.stats(class).unwrap();
    assert_eq!((stats.accepted.packets, stats.sent.packets), (7, 6));
}

#[test]
fn a_flow_in_place_of_another_costs_as_much_for_any_number_of_them() {
    // 14,336 is the most that a table of 16,384 places holds: an examination of all flows for each new one took 280
    // times as long.
    let churn = |most: u32| {
        let config = FlowsConfig {
            most,
            ..FlowsConfig::new(Algorithm::Drr)
        };
        let (mut tree, class) = flows(config);
        let mut random = Random(1);
        let mut next = |count| {
            let begin = Instant::now();
            for _ in 0..count {
                let flow = random.number();
                tree.enqueue(class, flow, length(1000), flow, Nanos::ZERO)
                    .unwrap();
                assert!(tree.dequeue(Nanos::ZERO, |_| {}) != Dequeue::Empty);
            }
            begin.elapsed()
        };
        next(most);
        (0..20).map(|_| next(100)).min().unwrap()
    };
    let (roomy, tight) = (churn(13_000), churn(14_335));
    assert!(tight < 20 * roomy, "{tight:?}, and {roomy:?} of fewer");
}

#[test]
fn a_flow_that_owes_its_ceiling_something_is_not_forgotten_for_a_new_one() {
    let config = FlowsConfig {
        most: 1,
        ceiling: Some(Ceiling {
            rate: Rate::from_bps(8_000).unwrap(),
            burst: 1500,
        }),
        ..FlowsConfig::new(Algorithm::Qfq)
    };
    let (mut tree, class) = flows(config);
    // Two that take turns would be new each time, and their ceilings with them.
    put(&mut tree, class, 1, 0);
    assert_eq!(take(&mut tree, 0), Some(1));
    put(&mut tree, class, 2, 0);
    assert_eq!(take(&mut tree, 0), Some(2));
    put(&mut tree, class, 1, 0);
    let second = Nanos::from_millis(1_000);
    assert_eq!(
        tree.dequeue(Nanos::ZERO, |_| {}),
        Dequeue::NotBefore(second)
    );
    assert_eq!(take(&mut tree, second.0), Some(1));
    // Once it owes nothing, it makes room.
    let flow_table_full = |tree: &Tree<u64>| tree.stats(class).unwrap().flow_table_full;
    assert_eq!(flow_table_full(&tree), 1);
    put(&mut tree, class, 3, 2 * second.0 + 1);
    assert_eq!(flow_table_full(&tree), 1);
}

#[test]
fn a_look_for_idle_flows_is_bounded() {
    let config = FlowsConfig {
        forget_after: Nanos(0),
        most: 1 << 16,
        ..FlowsConfig::new(Algorithm::Drr)
    };
    let (mut tree, class) = flows(config);
    for flow in 0..300 {
        tree.enqueue(class, flow, length(100), flow, Nanos(0))
            .unwrap();
    }
    for _ in 0..300 {
        assert!(matches!(tree.dequeue(Nanos(0), |_| {}), Dequeue::Packet(_)));
    }
    let mut left = count(&tree, class);
    assert_eq!(left, 300);
    while left > 0 {
        tree.expire_idle(Nanos(1));
        let now = count(&tree, class);
        assert!(now < left && left - now <= 64, "{left} to {now}");
        left = now;
    }
}

#[test]
fn beyond_the_most_flows_the_longest_idle_one_goes() {
    let config = FlowsConfig {
        most: 3,
        ..FlowsConfig::new(Algorithm::Qfq)
    };
    let (mut tree, class) = flows(config);
    for flow in [1, 2, 3] {
        put(&mut tree, class, flow, 0);
        assert_eq!(take(&mut tree, flow), Some(flow));
    }
    // 1 was idle for longest, but is used again: 2 goes.
    put(&mut tree, class, 1, 10);
    put(&mut tree, class, 4, 11);
    assert_eq!(count(&tree, class), 3);
    put(&mut tree, class, 3, 12);
    assert_eq!(tree.stats(class).unwrap().flow_table_full, 0);
    // All have packets: further arrivals share one more flow.
    for flow in [5, 6, 5] {
        put(&mut tree, class, flow, 13);
    }
    let stats = tree.stats(class).unwrap();
    assert_eq!((stats.flows, stats.flow_table_full), (4, 3));
    // The common flow has one flow's share, and keeps the order of its packets.
    let mut order = Vec::new();
    while let Some(flow) = take(&mut tree, 20) {
        order.push(flow);
    }
    let common: Vec<u64> = order
        .iter()
        .copied()
        .filter(|flow| [5, 6].contains(flow))
        .collect();
    assert_eq!((common, order.len()), (vec![5, 6, 5], 6));
    // With room again, 5 has a flow of its own.
    put(&mut tree, class, 5, 30);
    let stats = tree.stats(class).unwrap();
    assert_eq!((stats.flows, stats.flow_table_full), (4, 3));
    // The common flow never expires, and exists when it is needed again.
    assert_eq!(take(&mut tree, 30), Some(5));
    tree.expire_idle(Nanos(1 << 60));
    assert_eq!(count(&tree, class), 1);
    for flow in 10..15 {
        put(&mut tree, class, flow, 1 << 60);
    }
    let stats = tree.stats(class).unwrap();
    assert_eq!(
        (stats.flows, stats.flow_table_full, stats.queued.packets),
        (4, 5, 5)
    );
}

#[test]
fn an_idle_flow_keeps_its_place_for_its_time_and_no_longer() {
    let config = FlowsConfig {
        most: 1,
        keeps_place: Nanos(50),
        ..FlowsConfig::new(Algorithm::Drr)
    };
    let mut tree = Tree::new(Algorithm::Qfq, None, SchedulerLimits::default());
    let class = tree.add_flows(ClassId::ROOT, class(), config).unwrap();
    put(&mut tree, class, 1, 0);
    assert_eq!(take(&mut tree, 10), Some(1));
    let flows = |tree: &Tree<u64>| {
        let stats = tree.stats(class).unwrap();
        (stats.flows, stats.flow_table_full)
    };
    // Its place is its own for 50 ns after its last packet left: 2 has to share.
    put(&mut tree, class, 2, 59);
    assert_eq!(flows(&tree), (2, 1));
    put(&mut tree, class, 3, 60);
    assert_eq!(flows(&tree), (2, 1), "3 took the place of 1");
    put(&mut tree, class, 1, 61);
    assert_eq!(flows(&tree), (2, 2));
}

#[test]
fn the_flow_that_makes_room_is_the_one_that_was_idle_for_longest() {
    let config = FlowsConfig {
        most: 2,
        forget_after: Nanos(100),
        ..FlowsConfig::new(Algorithm::Drr)
    };
    let (mut tree, class) = flows(config);
    for flow in [1, 2] {
        put(&mut tree, class, flow, 10 * flow);
        assert_eq!(take(&mut tree, 10 * flow), Some(flow));
    }
    put(&mut tree, class, 3, 30);
    // The one that is left was idle since 20.
    tree.expire_idle(Nanos(119));
    assert_eq!(count(&tree, class), 2);
    tree.expire_idle(Nanos(120));
    assert_eq!(count(&tree, class), 1);
}

#[test]
fn a_flow_that_comes_back_soon_has_no_credit_and_owes_no_more() {
    for algorithm in [
        Algorithm::Qfq,
        Algorithm::Wf2qPlus,
        Algorithm::SKps,
        Algorithm::Gfq,
    ] {
        let (mut tree, class) = flows(FlowsConfig::new(algorithm));
        let mut now = 0;
        let mut sent = [0u32; 2];
        // Flow 1 goes idle after each packet, and is back before the next.
        for flow in [0, 0, 0, 1] {
            put(&mut tree, class, flow, now);
        }
        for _ in 0..600 {
            now += 1;
            let flow = take(&mut tree, now).unwrap();
            sent[flow as usize] += 1;
            put(&mut tree, class, flow, now);
        }
        assert!(sent[0].abs_diff(sent[1]) <= 30, "{algorithm}: {sent:?}");
    }
}

#[test]
fn no_flow_is_made_for_a_packet_that_is_rejected() {
    let limits = Limits {
        packets: 1,
        ..Limits::NONE
    };
    let config = FlowsConfig {
        leaf: LeafConfig {
            limits,
            ..LeafConfig::default()
        },
        ..FlowsConfig::new(Algorithm::Drr)
    };
    let (mut tree, class) = flows(config);
    assert!(tree.enqueue(class, 1, length(1501), 0, Nanos(0)).is_err());
    assert_eq!(count(&tree, class), 0);
    put(&mut tree, class, 1, 0);
    assert!(tree.enqueue(class, 1, length(100), 0, Nanos(0)).is_err());
    assert!(tree.enqueue(class, 2, length(100), 0, Nanos(0)).is_ok());
    let config = FlowsConfig {
        leaf: LeafConfig {
            limits: Limits {
                packets: 0,
                ..Limits::NONE
            },
            ..LeafConfig::default()
        },
        ..FlowsConfig::new(Algorithm::Drr)
    };
    tree.change_flows(class, config, Nanos(0)).unwrap();
    // A flow that has no packet is idle, whatever it was made for.
    assert!(tree.enqueue(class, 3, length(100), 0, Nanos(5)).is_err());
    tree.invariants().unwrap();
    let stats = tree.stats(class).unwrap();
    assert_eq!(
        (stats.flows, stats.queued.packets, stats.dropped.packets),
        (3, 2, 3)
    );
}

#[test]
fn flows_are_bounded_in_number_and_the_bound_is_not_zero() {
    let mut tree: Tree<u64> = Tree::new(Algorithm::Qfq, None, SchedulerLimits::default());
    for most in [0, 1 << 24, u32::MAX] {
        let config = FlowsConfig {
            most,
            ..FlowsConfig::new(Algorithm::Drr)
        };
        let refused = tree.add_flows(ClassId::ROOT, class(), config).unwrap_err();
        let sentence = format!("a class of flows has between 1 and 16777215 of them, not {most}");
        assert_eq!(refused.to_string(), sentence);
    }
    for most in [1, (1 << 24) - 1] {
        let config = FlowsConfig {
            most,
            ..FlowsConfig::new(Algorithm::Drr)
        };
        assert!(tree.add_flows(ClassId::ROOT, class(), config).is_ok());
    }
}

#[test]
fn thousands_of_flows_come_and_go() {
    let config = FlowsConfig {
        most: 5_000,
        forget_after: Nanos(2_000),
        ..FlowsConfig::new(Algorithm::QfqPlus(fairlane_core::sched::AUTOMATIC_MEMBERS))
    };
    let (mut tree, class) = flows(config);
    tree.reserve_flows(class, 100);
    let mut random = Random(7);
    let mut waiting = 0;
    for now in 0..30_000 {
        let flow = u64::from(random.below(30_000));
        tree.enqueue(
            class,
            flow,
            length(100 + random.below(1_400)),
            flow,
            Nanos(now),
        )
        .unwrap();
        waiting += 1;
        if random.below(100) < 98 && matches!(tree.dequeue(Nanos(now), |_| {}), Dequeue::Packet(_))
        {
            waiting -= 1;
        }
        assert!(count(&tree, class) <= 5_001);
        if now % 10_000 == 0 {
            tree.invariants().unwrap();
        }
    }
    tree.invariants().unwrap();
    assert_eq!(tree.len(), waiting);
    while let Dequeue::Packet(_) = tree.dequeue(Nanos(30_000), |_| {}) {}
    for _ in 0..5_000 / 64 + 1 {
        tree.expire_idle(Nanos(100_000));
    }
    assert_eq!(
        count(&tree, class),
        u64::from(tree.stats(class).unwrap().flow_table_full > 0)
    );
    tree.remove(class, |_| panic!("nothing waits")).unwrap();
    tree.invariants().unwrap();
}

#[test]
fn a_change_of_a_class_comes_to_a_few_flows_at_a_time() {
    const FLOWS: u32 = 1_000;
    let ceiling = |bps| {
        Some(Ceiling {
            rate: Rate::from_bps(bps).unwrap(),
            burst: 30_000,
        })
    };
    let room = |packets| Room {
        packets,
        bytes: packets * 1_500,
    };
    // As many packets as are reserved: a flow within its own has no evictions.
    let limits = SchedulerLimits {
        packets: 6 * FLOWS,
        bytes: 9_000 * u64::from(FLOWS),
        ..SchedulerLimits::default()
    };
    let config = |flows: u32, each, rate| FlowsConfig {
        most: FLOWS,
        ceiling: ceiling(rate),
        room: room(flows * each),
        leaf: LeafConfig {
            room: room(each),
            ..LeafConfig::default()
        },
        ..FlowsConfig::new(Algorithm::Drr)
    };
    let mut tree = Tree::new(Algorithm::Qfq, None, limits);
    let first = config(FLOWS, 4, 8_000_000);
    let class = tree.add_flows(ClassId::ROOT, class(), first).unwrap();
    for flow in 0..u64::from(FLOWS) {
        put(&mut tree, class, flow, 0);
    }
    // Other room for each, for fewer of them and for all, in turn; and other ceilings, or the same.
    for (flows, each, rate) in [
        (FLOWS, 2, 8_000_000),
        (300, 6, 9_000_000),
        (FLOWS, 6, 9_000_000),
        (FLOWS, 5, 7_000_000),
    ] {
        let other = config(flows, each, rate);
        tree.begin_change_of_flows(class, other, Nanos(0)).unwrap();
        let mut steps = 0;
        loop {
            let mut left = 100;
            let done = tree.go_on_changing(class, &mut left, Nanos(0));
            tree.invariants().unwrap();
            assert!(done || left == 0);
            steps += 1;
            // Floods of some flows meanwhile; a flow with two packets at most is within its own.
            for n in 0..200 {
                let flow = n % 7;
                let _ = tree.enqueue(class, flow, length(1_500), flow, Nanos(0));
            }
            if done {
                break;
            }
        }
        assert!((10..=21).contains(&steps), "{steps}");
        assert_eq!(tree.kept().packets, u64::from(flows * each));
        assert!(tree.go_on_changing(class, &mut 0, Nanos(0)), "it is done");
    }
    // The last flows, which were not flooded, have theirs.
    for flow in u64::from(FLOWS) - 10..u64::from(FLOWS) {
        for n in 0..4 {
            let put = tree.enqueue(class, flow, length(1_500), flow, Nanos(0));
            assert!(put.is_ok(), "packet {n} of flow {flow}");
        }
    }
}
