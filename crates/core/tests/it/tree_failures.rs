//! How class trees have failed in the field, and that this one does not.

use crate::support::{length, weight};
use fairlane_core::aqm::{
    AqmConfig, CodelConfig, CodelParameters, Probability, RedConfig, RedParameters,
};
use fairlane_core::sched::Algorithm;
use fairlane_core::tree::{
    Ceiling, ClassConfig, ClassId, ClassStats, FlowsConfig, LeafConfig, Payload, Reason, Tree,
    TreeError,
};
use fairlane_core::{Dequeue, Rejection};
use fairlane_core::{Limits, Nanos, Rate, SchedulerLimits};
use fairlane_testkit::check_is_due;

/// A packet that counts how often it was asked to be marked.
#[derive(Debug, PartialEq)]
struct Marked {
    capable: bool,
    times: u32,
}

impl Marked {
    fn new(capable: bool) -> Marked {
        Marked { capable, times: 0 }
    }
}

impl Payload for Marked {
    fn mark(&mut self) -> bool {
        self.times += u32::from(self.capable);
        self.capable
    }
}

fn class(of: u32) -> ClassConfig {
    ClassConfig::new(weight(of), length(1500))
}

fn tree<P: Payload>(algorithm: Algorithm) -> Tree<P> {
    Tree::new(algorithm, None, SchedulerLimits::default()).marking()
}

/// CoDel that drops every packet which waited for a millisecond, after the first interval.
fn codel(ecn: bool) -> LeafConfig {
    let parameters = CodelParameters {
        target: Nanos::from_micros(1),
        interval: Nanos::from_micros(10),
        max_packet: length(1),
        ecn,
    };
    LeafConfig {
        aqm: AqmConfig::Codel(CodelConfig::new(parameters).unwrap()),
        ..LeafConfig::default()
    }
}

fn red(ecn: bool) -> LeafConfig {
    let parameters = RedParameters {
        min: 1,
        max: 2,
        max_p: Probability::from_ppm(1_000_000).unwrap(),
        weight_shift: 1,
        gentle: true,
        ecn,
        ..RedParameters::default()
    };
    LeafConfig {
        aqm: AqmConfig::Red(RedConfig::new(parameters).unwrap()),
        ..LeafConfig::default()
    }
}

fn limits(packets: u32) -> LeafConfig {
    LeafConfig {
        limits: Limits {
            packets,
            ..Limits::NONE
        },
        ..LeafConfig::default()
    }
}

/// Algorithms for classes of any kind.
fn of_any_class() -> impl Iterator<Item = Algorithm> {
    let all = Algorithm::ALL.iter().copied();
    all.filter(|algorithm| !algorithm.follows_packets())
}

fn check<P: Payload>(tree: &Tree<P>) {
    if !check_is_due(5) {
        return;
    }
    if let Err(violation) = tree.invariants() {
        panic!("{violation}");
    }
}

fn stats<P: Payload>(tree: &Tree<P>, class: ClassId) -> ClassStats {
    check(tree);
    tree.stats(class).unwrap()
}

#[test]
fn what_is_dropped_as_it_leaves_is_counted_and_the_next_one_sent_at_once() {
    for &algorithm in Algorithm::ALL {
        if matches!(algorithm, Algorithm::Wf2q | Algorithm::Wfq) {
            continue;
        }
        let mut tree: Tree<Marked> = tree(Algorithm::Qfq);
        let outer = tree
            .add_inner(ClassId::ROOT, class(1), Algorithm::Gfq)
            .unwrap();
        let inner = tree.add_inner(outer, class(1), algorithm).unwrap();
        let managed = tree.add_leaf(inner, class(1), codel(false)).unwrap();
        let sibling = tree.add_leaf(inner, class(1), codel(false)).unwrap();
        let (mut sent, mut dropped, mut next) = (0, 0, 0);
        let mut now = Nanos::ZERO;
        let mut served = Vec::new();
        for _ in 0..10 {
            for n in 0..30 {
                let leaf = if n % 3 == 0 { sibling } else { managed };
                tree.enqueue(leaf, 0, length(1000), Marked::new(true), now)
                    .unwrap();
            }
            while !tree.is_empty() {
                // Slower than the target allows, so that the rate of drops grows.
                now += Nanos::from_micros(30);
                let mut gone = 0;
                let answer = tree.dequeue(now, |discarded| {
                    assert_eq!(discarded.reason, Reason::Congestion);
                    assert!(discarded.class == managed || discarded.class == sibling);
                    gone += 1;
                });
                check(&tree);
                dropped += gone;
                let Dequeue::Packet(packet) = answer else {
                    panic!("{algorithm}: the last packet of a queue is never dropped")
                };
                next += u64::from(gone > 0);
                served.push(packet.owner);
                sent += 1;
            }
        }
        assert!(dropped > 50 && next > 25, "{algorithm}: {dropped} dropped");
        assert!(served.contains(&sibling) && served.contains(&managed));
        let all = stats(&tree, outer);
        assert_eq!((all.sent.packets, all.discarded.packets), (sent, dropped));
        assert_eq!(all.accepted.packets, 300);
        let sum = [managed, sibling].map(|leaf| stats(&tree, leaf).discarded.packets);
        assert_eq!(sum[0] + sum[1], dropped);
    }
}

/// The algorithm has placed a queue by its head.
#[test]
fn no_head_is_dropped_before_a_longer_packet() {
    let mut tree: Tree<Marked> = tree(Algorithm::Wf2qPlus);
    let managed = tree
        .add_leaf(ClassId::ROOT, class(1), codel(false))
        .unwrap();
    let mut now = Nanos::ZERO;
    for n in 0..300 {
        let bytes = if n % 2 == 0 { 100 } else { 1000 };
        tree.enqueue(managed, 0, length(bytes), Marked::new(false), now)
            .unwrap();
    }
    let (mut dropped, mut sent) = (Vec::new(), [0, 0]);
    while !tree.is_empty() {
        now += Nanos::from_micros(300);
        if let Dequeue::Packet(packet) = tree.dequeue(now, |gone| dropped.push(gone.len)) {
            sent[usize::from(packet.len == length(1000))] += 1;
        }
        check(&tree);
    }
    assert!(dropped.len() > 20, "{} dropped", dropped.len());
    assert!(dropped.iter().all(|&len| len == length(1000)));
    assert_eq!(sent, [150, 150 - dropped.len()]);
}

/// Packets that were there when their classes were chosen are gone when one is
/// taken, up to the last of the tree.
#[test]
fn a_tree_that_is_emptied_under_its_places_is_empty_at_the_next_dequeue() {
    for algorithm in of_any_class() {
        let mut tree: Tree<u32> = tree(algorithm);
        let mut leaves = Vec::new();
        let mut flows = Vec::new();
        for _ in 0..3 {
            let inner = tree.add_inner(ClassId::ROOT, class(2), algorithm).unwrap();
            for _ in 0..3 {
                leaves.push(
                    tree.add_leaf(inner, class(1), LeafConfig::default())
                        .unwrap(),
                );
            }
            let config = FlowsConfig::new(algorithm);
            flows.push(tree.add_flows(inner, class(1), config).unwrap());
        }
        for round in 0..10 {
            for n in 0..4 {
                for &class in leaves.iter().chain(&flows) {
                    tree.enqueue(class, n % 3, length(100), 0, Nanos::ZERO)
                        .unwrap();
                }
            }
            for _ in 0..round {
                assert!(matches!(
                    tree.dequeue(Nanos::ZERO, |_| {}),
                    Dequeue::Packet(_)
                ));
            }
            let mut gone = 0;
            tree.flush(ClassId::ROOT, Nanos::ZERO, |_| gone += 1)
                .unwrap();
            check(&tree);
            assert_eq!(gone, 48 - round);
            assert!(matches!(tree.dequeue(Nanos::ZERO, |_| {}), Dequeue::Empty));
            check(&tree);
        }
    }
}

/// A class becomes idle once, whatever removed its packets.
#[test]
fn flushed_class_is_skipped_once() {
    for algorithm in of_any_class() {
        let mut tree: Tree<u32> = tree(algorithm);
        let inner: Vec<ClassId> = (0..4)
            .map(|_| tree.add_inner(ClassId::ROOT, class(1), algorithm).unwrap())
            .collect();
        let leaves: Vec<ClassId> = (0..16)
            .map(|n| {
                let leaf = tree.add_leaf(inner[n % 4], class(1), LeafConfig::default());
                leaf.unwrap()
            })
            .collect();
        for round in 0..8 {
            for &leaf in &leaves {
                for n in 0..3 {
                    tree.enqueue(leaf, 0, length(500), n, Nanos::ZERO).unwrap();
                }
            }
            let mut left = 48;
            for _ in 0..round % 7 {
                assert!(matches!(
                    tree.dequeue(Nanos::ZERO, |_| {}),
                    Dequeue::Packet(_)
                ));
                left -= 1;
            }
            for &class in [&inner[round % 4], &leaves[round % 16], &inner[round % 4]] {
                tree.flush(class, Nanos::ZERO, |_| left -= 1).unwrap();
                check(&tree);
            }
            // One of the flushed leaves gets packets again.
            let back = leaves[round % 16];
            tree.enqueue(back, 0, length(1500), 9, Nanos::ZERO).unwrap();
            for _ in 0..left + 1 {
                let answer = tree.dequeue(Nanos::ZERO, |_| {});
                assert!(
                    matches!(answer, Dequeue::Packet(_)),
                    "{algorithm}: {answer:?}"
                );
                check(&tree);
            }
            assert!(matches!(tree.dequeue(Nanos::ZERO, |_| {}), Dequeue::Empty));
            check(&tree);
        }
    }
}

#[test]
fn flushed_queues_under_algorithms_that_follow_packets_leave_no_places() {
    for algorithm in Algorithm::ALL
        .iter()
        .copied()
        .filter(|a| a.follows_packets())
    {
        let mut tree: Tree<u32> = tree(Algorithm::Qfq);
        let inner = tree.add_inner(ClassId::ROOT, class(1), algorithm).unwrap();
        let leaves: Vec<ClassId> = (0..3)
            .map(|_| {
                tree.add_leaf(inner, class(1), LeafConfig::default())
                    .unwrap()
            })
            .collect();
        for n in 0..9 {
            let leaf = leaves[n % 3];
            tree.enqueue(leaf, 0, length(500), n as u32, Nanos::ZERO)
                .unwrap();
        }
        tree.flush(leaves[1], Nanos::ZERO, |_| {}).unwrap();
        check(&tree);
        let mut order = Vec::new();
        while let Dequeue::Packet(packet) = tree.dequeue(Nanos::ZERO, |_| {}) {
            order.push(packet.payload);
            check(&tree);
        }
        order.sort_unstable();
        assert_eq!(order, [0, 2, 3, 5, 6, 8]);
        // All at once: the class above has a place, and no child for it.
        for &leaf in &leaves {
            tree.enqueue(leaf, 0, length(500), 1, Nanos::ZERO).unwrap();
        }
        tree.flush(inner, Nanos::ZERO, |_| {}).unwrap();
        check(&tree);
        tree.enqueue(leaves[2], 0, length(500), 5, Nanos::ZERO)
            .unwrap();
        check(&tree);
        assert!(matches!(tree.dequeue(Nanos::ZERO, |_| {}), Dequeue::Packet(p) if p.payload == 5));
        tree.enqueue(leaves[0], 0, length(500), 5, Nanos::ZERO)
            .unwrap();
        tree.flush(inner, Nanos::ZERO, |_| {}).unwrap();
        assert!(matches!(tree.dequeue(Nanos::ZERO, |_| {}), Dequeue::Empty));
        check(&tree);
    }
}

/// A packet is marked before it is returned, and once.
#[test]
fn a_packet_is_marked_once_and_leaves_marked() {
    let mut tree: Tree<Marked> = tree(Algorithm::Qfq);
    let leaf = tree.add_leaf(ClassId::ROOT, class(1), codel(true)).unwrap();
    let (mut marked, mut dropped) = (0, 0);
    for n in 0..400u64 {
        let now = Nanos::from_millis(n);
        for m in 0..2 {
            let payload = Marked::new((n + m) % 4 != 0);
            tree.enqueue(leaf, 0, length(1000), payload, now).unwrap();
        }
        let mut gone = Vec::new();
        let answer = tree.dequeue(now, |discarded| gone.push(discarded.payload));
        assert!(
            gone.iter()
                .all(|payload| !payload.capable && payload.times == 0)
        );
        dropped += gone.len() as u64;
        if let Dequeue::Packet(packet) = answer {
            assert!(packet.payload.times <= 1);
            marked += u64::from(packet.payload.times);
        }
    }
    let stats = stats(&tree, leaf);
    assert!(
        marked > 10 && dropped > 0,
        "{marked} marked, {dropped} dropped"
    );
    assert_eq!((stats.marked, stats.discarded.packets), (marked, dropped));
}

#[test]
fn a_queue_whose_head_may_be_dropped_is_placed_by_its_head() {
    let mut tree: Tree<u32> = tree(Algorithm::Wf2qPlus);
    let managed = tree
        .add_leaf(ClassId::ROOT, class(1), codel(false))
        .unwrap();
    let plain = LeafConfig::default();
    let plain = tree.add_leaf(ClassId::ROOT, class(1), plain).unwrap();
    tree.enqueue(managed, 0, length(100), 0, Nanos::ZERO)
        .unwrap();
    tree.enqueue(plain, 0, length(200), 1, Nanos::ZERO).unwrap();
    assert!(matches!(tree.dequeue(Nanos::ZERO, |_| {}), Dequeue::Packet(p) if p.payload == 0));
    assert!(matches!(tree.dequeue(Nanos::ZERO, |_| {}), Dequeue::Packet(p) if p.payload == 1));
}

#[test]
fn a_packet_rejected_on_arrival_comes_back_unmarked_with_the_reason() {
    let mut tree: Tree<Marked> = tree(Algorithm::Qfq);
    let config = LeafConfig {
        limits: limits(6).limits,
        ..red(true)
    };
    let leaf = tree.add_leaf(ClassId::ROOT, class(1), config).unwrap();
    let (mut full, mut congestion, mut accepted) = (0, 0, 0);
    for n in 0..300u64 {
        let capable = n % 3 != 0;
        let now = Nanos::from_micros(n);
        match tree.enqueue(leaf, 0, length(1000), Marked::new(capable), now) {
            Ok(()) => accepted += 1,
            Err(rejected) => {
                assert_eq!(rejected.payload, Marked::new(capable));
                match rejected.reason {
                    Rejection::QueueFull => full += 1,
                    Rejection::Congestion => congestion += 1,
                    other => panic!("{other}"),
                }
            }
        }
        if n % 2 == 0 {
            let _ = tree.dequeue(now, |_| panic!("RED drops nothing at departure"));
        }
    }
    let stats = stats(&tree, leaf);
    assert!(
        congestion > 20 && stats.marked > 0,
        "{congestion} rejected, {stats:?}"
    );
    assert_eq!(stats.dropped.packets, full + congestion);
    assert_eq!(stats.accepted.packets, accepted);
}

/// A limit below the backlog.
#[test]
fn no_two_queues_drop_in_step_whether_made_so_or_changed() {
    let parameters = RedParameters {
        weight_shift: 1,
        ..RedParameters::default()
    };
    let managed = LeafConfig {
        aqm: AqmConfig::Red(RedConfig::new(parameters).unwrap()),
        ..LeafConfig::default()
    };
    let mut tree: Tree<u32> = tree(Algorithm::Drr);
    let mut add = |config| tree.add_leaf(ClassId::ROOT, class(1500), config).unwrap();
    let leaves = [managed, managed, limits(100), limits(100)].map(&mut add);
    for leaf in &leaves[2..] {
        tree.change_leaf(*leaf, managed, Nanos::ZERO).unwrap();
    }
    // Packets from one drop to the next, of a queue that stands at twelve.
    let gaps = leaves.map(|leaf| {
        let (mut gaps, mut gap) = (Vec::new(), 0);
        while gaps.len() < 40 {
            gap += 1;
            match tree.enqueue(leaf, 0, length(100), 0, Nanos::ZERO) {
                Ok(()) if stats(&tree, leaf).queued.packets > 12 => {
                    let answer = tree.dequeue(Nanos::ZERO, |_| {});
                    assert!(matches!(answer, Dequeue::Packet(_)));
                }
                Ok(()) => {}
                Err(_) => gaps.push(core::mem::take(&mut gap)),
            }
        }
        tree.flush(leaf, Nanos::ZERO, |_| {}).unwrap();
        gaps
    });
    for (at, one) in gaps.iter().enumerate() {
        for (other, two) in gaps.iter().enumerate().filter(|&(other, _)| other != at) {
            // Not a drop later either; the first ones depend on the rising average.
            let same = (0..3).any(|later| one[10..30] == two[10 + later..30 + later]);
            assert!(!same, "queues {at} and {other} drop in step");
        }
    }
}

#[test]
fn a_limit_lowered_below_the_backlog_keeps_what_is_queued_and_counts_it() {
    let mut tree: Tree<u32> = tree(Algorithm::Drr);
    let leaf = tree.add_leaf(ClassId::ROOT, class(1), limits(10)).unwrap();
    for n in 0..10 {
        tree.enqueue(leaf, 0, length(100), n, Nanos::ZERO).unwrap();
    }
    tree.change_leaf(leaf, limits(3), Nanos::ZERO).unwrap();
    for left in (0..10u32).rev() {
        assert_eq!(stats(&tree, leaf).queued.packets, u64::from(left) + 1);
        let rejected = tree.enqueue(leaf, 0, length(100), 99, Nanos::ZERO);
        match left + 1 {
            3.. => assert_eq!(rejected.unwrap_err().reason, Rejection::QueueFull),
            _ => break,
        }
        assert!(matches!(
            tree.dequeue(Nanos::ZERO, |_| {}),
            Dequeue::Packet(_)
        ));
    }
    tree.change_leaf(leaf, limits(0), Nanos::ZERO).unwrap();
    let rejected = tree
        .enqueue(leaf, 0, length(1), 99, Nanos::ZERO)
        .unwrap_err();
    assert_eq!(
        (rejected.payload, rejected.reason),
        (99, Rejection::QueueFull)
    );
    let stats = stats(&tree, leaf);
    assert_eq!((stats.queued.packets, stats.accepted.packets), (3, 11));
}

/// A packet without a class is not enqueued into one.
#[test]
fn a_packet_goes_into_the_class_that_was_named_or_comes_back() {
    let mut tree: Tree<u32> = tree(Algorithm::Drr);
    let inner = tree
        .add_inner(ClassId::ROOT, class(1), Algorithm::Qfq)
        .unwrap();
    let leaf = tree
        .add_leaf(inner, class(1), LeafConfig::default())
        .unwrap();
    let gone = tree
        .add_leaf(inner, class(1), LeafConfig::default())
        .unwrap();
    tree.remove(gone, |_| {}).unwrap();
    let mut rejected = |class| {
        let rejected = tree
            .enqueue(class, 0, length(100), 7, Nanos::ZERO)
            .unwrap_err();
        assert_eq!(rejected.payload, 7);
        rejected.reason
    };
    assert_eq!(rejected(inner), Rejection::NoQueue);
    assert_eq!(rejected(ClassId::ROOT), Rejection::NoQueue);
    assert_eq!(rejected(gone), Rejection::Unknown);
    assert_eq!(rejected(ClassId::new(u32::MAX)), Rejection::Unknown);
    assert_eq!(rejected(ClassId::new(u32::MAX - 1)), Rejection::Unknown);
    assert_eq!(stats(&tree, leaf), ClassStats::default());
    assert_eq!(stats(&tree, inner).dropped.packets, 1);
    assert_eq!(stats(&tree, ClassId::ROOT).dropped.packets, 5);
}

#[test]
fn a_packet_longer_than_a_class_above_allows_is_rejected() {
    let mut tree: Tree<u32> = tree(Algorithm::Qfq);
    let short = ClassConfig {
        max_length: length(500),
        ..class(1)
    };
    let inner = tree
        .add_inner(ClassId::ROOT, short, Algorithm::Drr)
        .unwrap();
    let leaf = tree
        .add_leaf(inner, class(1), LeafConfig::default())
        .unwrap();
    let flows = FlowsConfig::new(Algorithm::Drr);
    let flows = tree.add_flows(inner, class(1), flows).unwrap();
    let max = length(500);
    for class in [leaf, flows] {
        assert!(tree.enqueue(class, 1, length(500), 0, Nanos::ZERO).is_ok());
        let rejected = tree
            .enqueue(class, 1, length(501), 0, Nanos::ZERO)
            .unwrap_err();
        assert_eq!(rejected.reason, Rejection::TooLong { max });
    }
    // As long as its packets are queued, the class cannot be made shorter.
    let shorter = ClassConfig {
        max_length: length(499),
        ..class(1)
    };
    let queued = length(500);
    let refused = TreeError::LongerPacketQueued {
        queued,
        max: length(499),
    };
    assert_eq!(tree.change(inner, shorter, Nanos::ZERO), Err(refused));
    while let Dequeue::Packet(_) = tree.dequeue(Nanos::ZERO, |_| {}) {}
    assert_eq!(tree.change(inner, shorter, Nanos::ZERO), Ok(()));
    assert!(tree.enqueue(leaf, 1, length(500), 0, Nanos::ZERO).is_err());
    assert_eq!(tree.change(inner, class(1), Nanos::ZERO), Ok(()));
    for class in [leaf, flows] {
        assert!(tree.enqueue(class, 1, length(1500), 0, Nanos::ZERO).is_ok());
        assert!(tree.enqueue(class, 2, length(1500), 0, Nanos::ZERO).is_ok());
    }
    check(&tree);
}

#[test]
fn a_class_with_classes_below_it_stays() {
    let mut tree: Tree<u32> = tree(Algorithm::Qfq);
    let inner = tree
        .add_inner(ClassId::ROOT, class(1), Algorithm::Drr)
        .unwrap();
    let leaf = tree
        .add_leaf(inner, class(1), LeafConfig::default())
        .unwrap();
    tree.enqueue(leaf, 0, length(100), 0, Nanos::ZERO).unwrap();
    let has_children = Err(TreeError::HasChildren(inner));
    assert_eq!(tree.remove(inner, |_| {}).map(|_| ()), has_children);
    assert_eq!(
        tree.remove(ClassId::ROOT, |_| {}).map(|_| ()),
        Err(TreeError::Root)
    );
    assert_eq!(
        tree.add_leaf(leaf, class(1), limits(1)),
        Err(TreeError::NotInner(leaf))
    );
    assert_eq!(stats(&tree, leaf).queued.packets, 1);
    // Both go while they have places, and neither is met again.
    let mut gone = 0;
    tree.remove(leaf, |_| gone += 1).unwrap();
    tree.remove(inner, |_| panic!("it had no packets of its own"))
        .unwrap();
    assert_eq!(gone, 1);
    check(&tree);
    assert!(matches!(tree.dequeue(Nanos::ZERO, |_| {}), Dequeue::Empty));
    check(&tree);
    assert_eq!(stats(&tree, ClassId::ROOT).discarded.packets, 1);
    assert_eq!(tree.classes().count(), 1);
}

#[test]
fn numbers_and_places_of_removed_classes_are_used_again() {
    for algorithm in of_any_class() {
        let mut tree: Tree<u32> = tree(algorithm);
        for round in 0..50 {
            let inner = tree.add_inner(ClassId::ROOT, class(1), algorithm).unwrap();
            let leaf = tree
                .add_leaf(inner, class(1), LeafConfig::default())
                .unwrap();
            assert!(inner.number() <= 2 && leaf.number() <= 2);
            tree.enqueue(leaf, 0, length(100), round, Nanos::ZERO)
                .unwrap();
            if round % 3 == 0 {
                assert!(matches!(
                    tree.dequeue(Nanos::ZERO, |_| {}),
                    Dequeue::Packet(_)
                ));
            }
            tree.remove(leaf, |_| {}).unwrap();
            tree.remove(inner, |_| {}).unwrap();
            if round % 2 == 0 {
                assert!(matches!(tree.dequeue(Nanos::ZERO, |_| {}), Dequeue::Empty));
            }
            check(&tree);
        }
    }
}

#[test]
fn what_an_algorithm_cannot_order_is_refused_in_one_sentence() {
    let with_ceiling = ClassConfig {
        ceiling: Some(Ceiling {
            rate: Rate::MIN,
            burst: 1500,
        }),
        ..class(1)
    };
    for &algorithm in Algorithm::ALL {
        let mut tree: Tree<u32> = tree(algorithm);
        let follows = algorithm.follows_packets();
        let leaf = tree
            .add_leaf(ClassId::ROOT, class(1), LeafConfig::default())
            .unwrap();
        let inner = tree.add_inner(ClassId::ROOT, class(1), Algorithm::Drr);
        assert_eq!(inner.is_err(), follows, "{algorithm}");
        let refused = tree.add_leaf(ClassId::ROOT, with_ceiling, LeafConfig::default());
        assert_eq!(refused.is_err(), follows, "{algorithm}");
        assert_eq!(
            tree.change(leaf, with_ceiling, Nanos::ZERO).is_err(),
            follows,
            "{algorithm}"
        );
        let flows = FlowsConfig {
            ceiling: with_ceiling.ceiling,
            ..FlowsConfig::new(algorithm)
        };
        if !follows {
            let refused = tree.add_flows(ClassId::ROOT, class(1), flows);
            assert_eq!(refused.is_err(), follows, "{algorithm}");
        }
        let managed = tree.change_leaf(leaf, codel(false), Nanos::ZERO);
        assert_eq!(
            managed.is_err(),
            matches!(algorithm, Algorithm::Wf2q | Algorithm::Wfq),
            "{algorithm}"
        );
        check(&tree);
    }
    let mut tree: Tree<u32> = tree(Algorithm::Fifo);
    let refused = tree.add_leaf(ClassId::ROOT, with_ceiling, LeafConfig::default());
    let sentence =
        "fifo follows every packet, so it cannot order a class with a ceiling of its own";
    assert_eq!(refused.unwrap_err().to_string(), sentence);
    let level = ClassConfig {
        level: 1_000_000,
        ..class(1)
    };
    let refused = tree.add_leaf(ClassId::ROOT, level, LeafConfig::default());
    assert_eq!(
        refused.unwrap_err().to_string(),
        "a level is at most 999999, not 1000000"
    );
}

#[test]
fn algorithms_are_known_by_their_names() {
    for &algorithm in Algorithm::ALL {
        assert_eq!(algorithm.name().parse(), Ok(algorithm));
        assert_eq!(algorithm.to_string(), algorithm.name());
    }
    assert!("qfq++".parse::<Algorithm>().is_err());
}

/// Before, the place of the flushed packet of 64 bytes sent 9,000.
#[test]
fn a_flushed_class_sends_no_longer_packet_from_the_place_of_a_shorter_one() {
    for algorithm in ["wf2q+", "scfq", "gfq", "drr"] {
        let mut link = Tree::new(algorithm.parse().unwrap(), None, SchedulerLimits::default());
        let config = ClassConfig::new(weight(1), length(9000));
        let [flooder, other] = [(); 2].map(|()| {
            link.add_leaf(ClassId::ROOT, config, LeafConfig::default())
                .unwrap()
        });
        let enqueue = |link: &mut Tree<ClassId>, class, bytes| {
            let outcome = link.enqueue(class, 0, length(bytes), class, Nanos::ZERO);
            outcome.unwrap();
        };
        enqueue(&mut link, flooder, 64);
        enqueue(&mut link, other, 1000);
        link.flush(flooder, Nanos::ZERO, drop).unwrap();
        enqueue(&mut link, flooder, 9000);
        let mut order = Vec::new();
        while let Dequeue::Packet(packet) = link.dequeue(Nanos::ZERO, drop) {
            order.push(packet.payload);
            link.invariants().unwrap();
        }
        assert_eq!(order, [other, flooder], "{algorithm}");
    }
}
