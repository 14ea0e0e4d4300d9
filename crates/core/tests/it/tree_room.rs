//! Buffer reservations: a class or flow within its own has no drops, however many others fill the link.

use std::cell::Cell;

use crate::support::{length, weight};
use fairlane_core::aqm::{AqmConfig, CodelConfig};
use fairlane_core::room::Room;
use fairlane_core::sched::Algorithm;
use fairlane_core::tree::{
    ClassConfig, ClassId, Discarded, FlowsConfig, LeafConfig, Reason, Tree, TreeError,
};
use fairlane_core::{Dequeue, Rejection};
use fairlane_core::{Limits, Nanos, SchedulerLimits};
use fairlane_testkit::check_is_due;

fn class(of: u32) -> ClassConfig {
    ClassConfig::new(weight(of), length(1500))
}

fn room(packets: u32, bytes: u32) -> Room {
    Room { packets, bytes }
}

fn leaf(packets: u32) -> LeafConfig {
    LeafConfig {
        room: room(packets, packets * 1500),
        ..LeafConfig::default()
    }
}

fn link(algorithm: Algorithm, packets: u32) -> Tree<u64> {
    let limits = SchedulerLimits {
        packets,
        bytes: u64::from(packets) * 1500,
        ..SchedulerLimits::default()
    };
    Tree::new(algorithm, None, limits)
}

/// Enqueues a packet; returns whether it was accepted, and the classes of evicted packets.
fn put(
    tree: &mut Tree<u64>,
    class: ClassId,
    flow: u64,
    bytes: u32,
    payload: u64,
) -> (Result<(), Rejection>, Vec<Discarded<u64>>) {
    let mut gone = Vec::new();
    let outcome = tree.offer(class, flow, length(bytes), payload, Nanos::ZERO, |one| {
        gone.push(one);
    });
    if payload % 50 < 2 {
        tree.invariants().unwrap();
    }
    (outcome.map_err(|rejected| rejected.reason), gone)
}

/// Algorithms for classes of any kind.
fn of_any_class() -> impl Iterator<Item = Algorithm> {
    let all = Algorithm::ALL.iter().copied();
    all.filter(|algorithm| !algorithm.follows_packets())
}

#[test]
fn a_class_within_its_own_room_loses_nothing_however_many_fill_the_link() {
    for &algorithm in Algorithm::ALL {
        let mut tree = link(algorithm, 100);
        let voice = tree.add_leaf(ClassId::ROOT, class(1), leaf(10)).unwrap();
        let floods: Vec<ClassId> = (0..12)
            .map(|_| tree.add_leaf(ClassId::ROOT, class(1), leaf(2)).unwrap())
            .collect();
        for n in 0..2_000u64 {
            let flood = floods[n as usize % 12];
            let (outcome, gone) = put(&mut tree, flood, 0, 1 + n as u32 % 1500, n);
            assert!(gone.iter().all(|one| one.class != voice), "{algorithm}");
            assert!(!matches!(outcome, Err(Rejection::QueueFull)));
        }
        for n in 0..10 {
            let (outcome, gone) = put(&mut tree, voice, 0, 1500, n);
            assert_eq!(outcome, Ok(()), "{algorithm}, packet {n}");
            assert!(
                gone.iter()
                    .all(|one| one.class != voice && one.reason == Reason::Displaced),
                "{algorithm}"
            );
        }
        let (outcome, gone) = put(&mut tree, voice, 0, 100, 10);
        // Beyond its own it is one of many, none of which holds so little.
        assert_eq!((outcome, gone.len()), (Ok(()), 1), "{algorithm}");
        let stats = tree.stats(voice).unwrap();
        assert_eq!((stats.dropped.packets, stats.discarded.packets), (0, 0));
        let mut left = tree.len();
        while let Dequeue::Packet(_) = tree.dequeue(Nanos::ZERO, |_| panic!("dropped late")) {
            if check_is_due(4) {
                tree.invariants().unwrap();
            }
            left -= 1;
        }
        assert_eq!((left, tree.len()), (0, 0), "{algorithm}");
    }
}

#[test]
fn own_room_is_lent_and_given_back_at_once() {
    let mut tree = link(Algorithm::Qfq, 20);
    let quiet = tree.add_leaf(ClassId::ROOT, class(1), leaf(15)).unwrap();
    let busy = tree.add_leaf(ClassId::ROOT, class(1), leaf(5)).unwrap();
    for n in 0..20 {
        assert_eq!(put(&mut tree, busy, 0, 1500, n).0, Ok(()), "packet {n}");
    }
    assert_eq!(
        put(&mut tree, busy, 0, 1500, 20).0,
        Err(Rejection::LinkFull)
    );
    for n in 0..15 {
        let (outcome, gone) = put(&mut tree, quiet, 0, 1500, n);
        assert_eq!((outcome, gone.len()), (Ok(()), 1));
        assert_eq!(gone[0].class, busy);
    }
    // Both are within their own, and the link is full.
    assert_eq!(put(&mut tree, quiet, 0, 1, 0).0, Err(Rejection::LinkFull));
    assert_eq!(put(&mut tree, busy, 0, 1, 0).0, Err(Rejection::LinkFull));
    assert_eq!(tree.stats(busy).unwrap().discarded.packets, 15);
}

#[test]
fn eviction_selects_the_largest_excess() {
    let mut tree = link(Algorithm::Drr, 60);
    let [one, two, three] =
        [2, 12, 4].map(|own| tree.add_leaf(ClassId::ROOT, class(1), leaf(own)).unwrap());
    for (class, packets) in [(one, 20), (two, 24), (three, 16)] {
        for n in 0..packets {
            assert_eq!(put(&mut tree, class, 0, 1500, n).0, Ok(()));
        }
    }
    // 18, 12 and 12 beyond: it is the first until the others are as far.
    let victims: Vec<ClassId> = (0..12)
        .flat_map(|n| put(&mut tree, [two, three][n % 2], 0, 1500, 0).1)
        .map(|gone| gone.class)
        .collect();
    assert_eq!(victims, vec![one; 4]);
    let held = [one, two, three].map(|class| tree.stats(class).unwrap().queued.packets);
    assert_eq!(held, [16, 26, 18]);
}

#[test]
fn a_packet_longer_than_those_that_give_way_takes_as_many_as_it_needs() {
    let mut tree = link(Algorithm::Drr, 100);
    let own = LeafConfig {
        room: room(10, 15_000),
        ..LeafConfig::default()
    };
    let short = tree.add_leaf(ClassId::ROOT, class(1), own).unwrap();
    let long = tree.add_leaf(ClassId::ROOT, class(1), own).unwrap();
    // No packet more, and few bytes: then no byte more, and few packets.
    for n in 0..100 {
        assert_eq!(put(&mut tree, short, 0, 60, n).0, Ok(()));
    }
    let (outcome, gone) = put(&mut tree, long, 0, 1500, 0);
    assert_eq!((outcome, gone.len()), (Ok(()), 1));
    let mut tree = Tree::<u64>::new(
        Algorithm::Drr,
        None,
        SchedulerLimits {
            packets: 1000,
            bytes: 30_000,
            ..SchedulerLimits::default()
        },
    );
    let short = tree.add_leaf(ClassId::ROOT, class(1), own).unwrap();
    let long = tree.add_leaf(ClassId::ROOT, class(1), own).unwrap();
    for n in 0..500 {
        assert_eq!(put(&mut tree, short, 0, 60, n).0, Ok(()));
    }
    let (outcome, gone) = put(&mut tree, long, 0, 1500, 0);
    assert_eq!((outcome, gone.len()), (Ok(()), 25));
    assert!(gone.iter().all(|gone| gone.class == short));
}

/// The algorithm was given the first packet's length.
#[test]
fn eviction_keeps_the_flows_place_and_head() {
    for algorithm in of_any_class() {
        let mut tree = link(algorithm, 10);
        let [flood, other] =
            [1, 9].map(|own| tree.add_leaf(ClassId::ROOT, class(1), leaf(own)).unwrap());
        for n in 0..10 {
            put(&mut tree, flood, 0, 1000 + n as u32, n).0.unwrap();
        }
        for n in 1..=9 {
            let (_, gone) = put(&mut tree, other, 0, 700, 100 + n);
            assert_eq!(gone[0].payload, n, "{algorithm}");
        }
        let mut order = Vec::new();
        while let Dequeue::Packet(packet) = tree.dequeue(Nanos::ZERO, |_| {}) {
            tree.invariants().unwrap();
            order.push(packet.payload);
        }
        order.sort_unstable();
        let kept: Vec<u64> = [0].into_iter().chain(101..110).collect();
        assert_eq!(order, kept, "{algorithm}");
    }
}

#[test]
fn more_than_the_link_holds_cannot_be_kept_and_what_is_given_back_can() {
    let mut tree = link(Algorithm::Drr, 10);
    let one = tree.add_leaf(ClassId::ROOT, class(1), leaf(6)).unwrap();
    let refused = tree.add_leaf(ClassId::ROOT, class(1), leaf(5)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "room for 11 packets and 16500 bytes cannot be kept: the link holds 10 packets and \
         15000 bytes"
    );
    assert_eq!(tree.classes().count(), 2);
    let flows = FlowsConfig {
        room: room(5, 7_500),
        ..FlowsConfig::new(Algorithm::Drr)
    };
    assert!(matches!(
        tree.add_flows(ClassId::ROOT, class(1), flows),
        Err(TreeError::Room { packets: 11, .. })
    ));
    tree.change_leaf(one, leaf(5), Nanos::ZERO).unwrap();
    let two = tree.add_flows(ClassId::ROOT, class(1), flows).unwrap();
    assert!(tree.change_leaf(one, leaf(6), Nanos::ZERO).is_err());
    tree.remove(two, |_| {}).unwrap();
    tree.change_leaf(one, leaf(10), Nanos::ZERO).unwrap();
    // No more than its limits is reserved for a queue.
    let short = LeafConfig {
        limits: Limits {
            packets: 4,
            ..Limits::NONE
        },
        ..leaf(10)
    };
    tree.change_leaf(one, short, Nanos::ZERO).unwrap();
    tree.add_leaf(
        ClassId::ROOT,
        class(1),
        LeafConfig {
            room: room(6, 0),
            ..leaf(0)
        },
    )
    .unwrap();
    tree.invariants().unwrap();
}

fn hosts(most: u32, own: Room, each: Room) -> FlowsConfig {
    FlowsConfig {
        most,
        room: own,
        leaf: LeafConfig {
            room: each,
            ..LeafConfig::default()
        },
        ..FlowsConfig::new(Algorithm::Qfq)
    }
}

/// Sends a burst of 20 packets, and then one each millisecond as one leaves, so that each waits 20 ms; returns the
/// number that CoDel drops of 2,000.
fn codel_drops(add: impl Fn(&mut Tree<u64>) -> ClassId) -> usize {
    let mut tree = link(Algorithm::Qfq, 300);
    let class = add(&mut tree);
    let mut drops = 0;
    for ms in 0..2_000 {
        let now = Nanos::from_millis(ms);
        for _ in 0..if ms == 0 { 20 } else { 1 } {
            tree.offer(class, 7, length(1500), ms, now, |_| {
                panic!("the link has room")
            })
            .unwrap();
        }
        let packet = tree.dequeue(now, |gone| {
            assert_eq!(gone.reason, Reason::Congestion);
            drops += 1;
        });
        assert!(matches!(packet, Dequeue::Packet(_)));
    }
    drops
}

#[test]
fn codel_drops_nothing_within_a_reservation() {
    let managed = |packets| LeafConfig {
        aqm: AqmConfig::Codel(CodelConfig::default()),
        ..leaf(packets)
    };
    let of_leaf = |packets| {
        codel_drops(|tree| {
            tree.add_leaf(ClassId::ROOT, class(1), managed(packets))
                .unwrap()
        })
    };
    assert_eq!(of_leaf(20), 0);
    assert!(of_leaf(19) > 0, "CoDel has nothing to drop");
    // Of a flow, its own room or the floor of its class.
    let of_flow = |each, floor| {
        let config = FlowsConfig {
            aqm_floor: room(floor, floor * 1500),
            leaf: managed(each),
            ..hosts(4, room(100, 150_000), Room::NONE)
        };
        codel_drops(|tree| tree.add_flows(ClassId::ROOT, class(1), config).unwrap())
    };
    assert_eq!(of_flow(20, 0), 0);
    assert_eq!(of_flow(2, 20), 0);
    assert!(of_flow(2, 19) > 0, "CoDel has nothing to drop");
}

#[test]
fn flow_within_its_reservation_drops_nothing_under_floods() {
    let mut tree = link(Algorithm::Qfq, 200);
    let config = hosts(1 << 16, room(100, 150_000), room(5, 7_500));
    let class = tree.add_flows(ClassId::ROOT, class(1), config).unwrap();
    assert_eq!(config.roomy(), 20);
    for n in 0..3_000 {
        let (_, gone) = put(&mut tree, class, 1 + n % 12, 1500, n);
        assert!(
            gone.is_empty(),
            "they are equals: who comes last is rejected"
        );
    }
    for n in 0..5 {
        let (outcome, gone) = put(&mut tree, class, 99, 1500, 99);
        assert_eq!((outcome, gone.len()), (Ok(()), 1), "packet {n}");
        assert_ne!(gone[0].payload % 12, 99);
    }
    // The longest of the others, until all are as long.
    let queued = tree.stats(class).unwrap().queued.packets;
    assert_eq!(queued, 200);
}

#[test]
fn spoofed_sources_touch_neither_other_classes_nor_flows_that_were_there() {
    let mut tree = link(Algorithm::Qfq, 300);
    let voice = tree.add_leaf(ClassId::ROOT, class(1), leaf(20)).unwrap();
    let config = hosts(1 << 16, room(100, 150_000), room(10, 15_000));
    let all = tree.add_flows(ClassId::ROOT, class(1), config).unwrap();
    // The one that is there has sent, and is idle.
    put(&mut tree, all, u64::MAX, 1500, 0).0.unwrap();
    assert!(matches!(
        tree.dequeue(Nanos::ZERO, |_| {}),
        Dequeue::Packet(_)
    ));
    for n in 0..20_000u64 {
        put(&mut tree, all, n, 60, n).0.ok();
        match n % 1000 {
            10..20 => assert_eq!(put(&mut tree, all, u64::MAX, 1500, n).0, Ok(()), "{n}"),
            20..40 => assert_eq!(put(&mut tree, voice, 0, 1500, n).0, Ok(()), "{n}"),
            990 => tree.flush(ClassId::ROOT, Nanos::ZERO, |_| {}).unwrap(),
            _ => {}
        }
    }
    let stats = tree.stats(voice).unwrap();
    assert_eq!((stats.dropped.packets, stats.accepted.packets), (0, 400));
}

#[test]
fn a_flow_has_room_once_another_is_forgotten() {
    let mut tree = link(Algorithm::Drr, 40);
    let mut config = hosts(100, room(10, 15_000), room(5, 7_500));
    config.forget_after = Nanos(1_000);
    let class = tree.add_flows(ClassId::ROOT, class(1), config).unwrap();
    for flow in 0..3 {
        put(&mut tree, class, flow, 100, flow).0.unwrap();
    }
    // All are idle, and the first two expire; so there is room for the third.
    while let Dequeue::Packet(_) = tree.dequeue(Nanos::ZERO, |_| {}) {}
    let put_at = |tree: &mut Tree<u64>, flow, now| {
        let outcome = tree.enqueue(class, flow, length(1500), flow, Nanos(now));
        tree.invariants().unwrap();
        outcome.is_ok()
    };
    assert!(put_at(&mut tree, 2, 900));
    tree.expire_idle(Nanos(1_000));
    assert_eq!(tree.stats(class).unwrap().flows, 1);
    while let Dequeue::Packet(_) = tree.dequeue(Nanos(1_000), |_| {}) {}
    for _ in 0..40 {
        put_at(&mut tree, 7, 1_100);
    }
    for n in 0..5 {
        assert!(put_at(&mut tree, 2, 1_200), "packet {n}");
    }
    // With less room there is none for the second.
    config.room = room(5, 7_500);
    tree.change_flows(class, config, Nanos(1_200)).unwrap();
    tree.invariants().unwrap();
}

/// A packet a millisecond leaves, and three arrive from new sources; the old flow sends one from time to time, which is
/// less than its share. Returns that flow's drops, and the longest sojourn time in milliseconds.
fn light_flow_among_newcomers(algorithm: Algorithm, most: u32, every: u64) -> (u64, u64) {
    const LIGHT: u64 = u64::MAX;
    let mut tree = link(algorithm, 400);
    let each = room(4, 6_000);
    let own = room(4 * (most + 1), 6_000 * (most + 1));
    let config = FlowsConfig {
        algorithm,
        ..hosts(most, own, each)
    };
    let flows = tree.add_flows(ClassId::ROOT, class(1), config).unwrap();
    let (lost, mut longest) = (Cell::new(0), 0);
    for n in 0..6_000 {
        let now = Nanos::from_millis(n);
        let mut offer = |flow: u64| {
            let payload = if flow == LIGHT { LIGHT - n } else { n };
            let lose = |payload| lost.set(lost.get() + u64::from(payload >= LIGHT / 2));
            let gone = |gone: Discarded<u64>| lose(gone.payload);
            let offered = tree.offer(flows, flow, length(1500), payload, now, gone);
            offered.unwrap_or_else(|rejected| lose(rejected.payload));
        };
        if n % every == 0 {
            offer(LIGHT);
        }
        for newcomer in 0..3 {
            offer(3 * n + newcomer);
        }
        if let Dequeue::Packet(packet) = tree.dequeue(now, |_| {})
            && packet.payload >= LIGHT / 2
        {
            longest = longest.max(n - (LIGHT - packet.payload));
        }
        if n % 1_000 == 0 {
            tree.invariants().unwrap();
        }
    }
    (lost.get(), longest)
}

#[test]
fn a_light_flow_keeps_its_place_and_its_room_among_newcomers_without_end() {
    for algorithm in of_any_class().filter(|&algorithm| algorithm != Algorithm::Priority) {
        for most in [1, 16] {
            for every in [40, 900] {
                let (lost, longest) = light_flow_among_newcomers(algorithm, most, every);
                assert_eq!(
                    lost, 0,
                    "{algorithm}, {most} flows, one packet in {every} ms"
                );
                // A round of all flows, and the rounding of the algorithms.
                let round = 4 * (u64::from(most) + 1);
                assert!(longest <= round, "{algorithm}, {most} flows: {longest} ms");
            }
        }
    }
}

#[test]
fn a_leaf_keeps_the_room_that_it_had_until_it_was_empty_once() {
    let mut tree = link(Algorithm::Drr, 40);
    let voice = tree.add_leaf(ClassId::ROOT, class(1), leaf(10)).unwrap();
    let flood = tree.add_leaf(ClassId::ROOT, class(1), leaf(4)).unwrap();
    for n in 0..8 {
        put(&mut tree, voice, 0, 1500, n).0.unwrap();
    }
    // Its new reservation is two; it holds eight, all with a guaranteed place, and two more.
    tree.change_leaf_when_empty(voice, leaf(2), Nanos::ZERO)
        .unwrap();
    tree.invariants().unwrap();
    for n in 0..40 {
        let (_, gone) = put(&mut tree, flood, 0, 1500, n);
        tree.expire_idle(Nanos::ZERO);
        assert!(gone.is_empty(), "packet {n}");
    }
    for n in 0..2 {
        let (outcome, gone) = put(&mut tree, voice, 0, 1500, n);
        assert_eq!((outcome, gone[0].class), (Ok(()), flood));
    }
    assert_eq!(tree.kept().packets, 14);
    // A class that was empty has its new reservation at that time.
    tree.flush(voice, Nanos::ZERO, |_| {}).unwrap();
    tree.expire_idle(Nanos::ZERO);
    tree.invariants().unwrap();
    assert_eq!(tree.kept().packets, 6);
    // A flooder holds more than it had, so that less is its own at once.
    tree.change_leaf_when_empty(flood, leaf(1), Nanos::ZERO)
        .unwrap();
    assert_eq!(tree.kept().packets, 3);
}

#[test]
fn unused_reservation_is_released_on_demand() {
    let mut tree = link(Algorithm::Drr, 20);
    let [one, two] = [10, 8].map(|own| tree.add_leaf(ClassId::ROOT, class(1), leaf(own)).unwrap());
    for own in [one, two] {
        put(&mut tree, own, 0, 1500, 0).0.unwrap();
        tree.change_leaf_when_empty(own, leaf(1), Nanos::ZERO)
            .unwrap();
    }
    assert_eq!(tree.kept().packets, 18);
    // If all of it does not suffice, no leaf loses any.
    assert!(tree.add_leaf(ClassId::ROOT, class(1), leaf(19)).is_err());
    assert!(
        tree.change_leaf_when_empty(two, leaf(20), Nanos::ZERO)
            .is_err()
    );
    tree.expire_idle(Nanos::ZERO);
    assert_eq!(tree.kept().packets, 18);
    // 18 are reserved, of which 16 are due to no leaf.
    let third = tree.add_leaf(ClassId::ROOT, class(1), leaf(18)).unwrap();
    assert_eq!(tree.kept().packets, 20);
    tree.expire_idle(Nanos::ZERO);
    tree.invariants().unwrap();
    assert!(
        tree.change_leaf_when_empty(two, leaf(2), Nanos::ZERO)
            .is_err()
    );
    tree.remove(third, |_| {}).unwrap();
    tree.change_leaf_when_empty(two, leaf(2), Nanos::ZERO)
        .unwrap();
    // Also its own: 3 are due to both, and 10 kept.
    tree.change_leaf_when_empty(one, leaf(10), Nanos::ZERO)
        .unwrap();
    tree.change_leaf_when_empty(one, leaf(1), Nanos::ZERO)
        .unwrap();
    tree.change_leaf_when_empty(one, leaf(18), Nanos::ZERO)
        .unwrap();
    assert_eq!(tree.kept().packets, 20);
    tree.change_leaf(one, leaf(1), Nanos::ZERO).unwrap();
    // A class that goes while it keeps more than its due gives all of it back.
    tree.change_leaf_when_empty(two, leaf(1), Nanos::ZERO)
        .unwrap();
    tree.remove(two, |_| {}).unwrap();
    tree.expire_idle(Nanos::ZERO);
    assert_eq!(tree.kept().packets, 1);
    tree.invariants().unwrap();
}

#[test]
fn a_flow_that_has_room_keeps_it_when_its_class_is_changed() {
    let mut tree = link(Algorithm::Drr, 40);
    let config = hosts(100, room(2, 3_000), room(2, 3_000));
    let class = tree.add_flows(ClassId::ROOT, class(1), config).unwrap();
    let put_at = |tree: &mut Tree<u64>, flow, seconds: u64| {
        let now = Nanos::from_millis(1_000 * seconds);
        let put = tree.enqueue(class, flow, length(1500), flow, now);
        tree.invariants().unwrap();
        put
    };
    let serve_at = |tree: &mut Tree<u64>, seconds: u64| {
        let now = Nanos::from_millis(1_000 * seconds);
        while let Dequeue::Packet(_) = tree.dequeue(now, |_| {}) {}
        tree.expire_idle(now);
    };
    // There is room for one. Flow 1 has it, and expires; then flow 2 has it, which still exists.
    for flow in [1, 2] {
        put_at(&mut tree, flow, 0).unwrap();
    }
    serve_at(&mut tree, 0);
    put_at(&mut tree, 2, 5).unwrap();
    serve_at(&mut tree, 5);
    serve_at(&mut tree, 11);
    put_at(&mut tree, 2, 11).unwrap();
    // 3 takes the place in the table that 1 had, and many others come.
    for n in 0..200 {
        let _ = put_at(&mut tree, 3 + n % 9, 11);
    }
    let other = FlowsConfig {
        forget_after: Nanos::from_millis(1),
        ..config
    };
    tree.change_flows(class, other, Nanos::from_millis(11_000))
        .unwrap();
    put_at(&mut tree, 2, 11).expect("2 had room before");
}
