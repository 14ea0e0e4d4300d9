//! Ceilings of classes: to the bit at any rate, and released on time.

use crate::support::{length, weight};
use fairlane_core::Dequeue;
use fairlane_core::sched::Algorithm;
use fairlane_core::tree::{Ceiling, ClassConfig, ClassId, FlowsConfig, LeafConfig, Tree};
use fairlane_core::{Nanos, Rate, SchedulerLimits};

const SECOND: u64 = 1_000_000_000;

fn ceiling(bps: u64, burst: u32) -> Option<Ceiling> {
    let rate = Rate::from_bps(bps).unwrap();
    Some(Ceiling { rate, burst })
}

fn class(ceiling: Option<Ceiling>) -> ClassConfig {
    ClassConfig {
        ceiling,
        ..ClassConfig::new(weight(1), length(1500))
    }
}

/// The times at which packets leave that are always there, and their bytes in all, until `end`.
fn departures(tree: &mut Tree<u32>, leaf: ClassId, len: u32, end: u64) -> Vec<u64> {
    let mut times = Vec::new();
    let mut now = 0;
    for n in 0..3 {
        tree.enqueue(leaf, 0, length(len), n, Nanos(0)).unwrap();
    }
    while now < end {
        match tree.dequeue(Nanos(now), |_| {}) {
            Dequeue::Packet(_) => {
                times.push(now);
                tree.enqueue(leaf, 0, length(len), 0, Nanos(now)).unwrap();
            }
            Dequeue::NotBefore(time) => {
                assert!(time.0 > now);
                now = time.0;
            }
            Dequeue::Empty => panic!("packets wait"),
        }
    }
    times
}

#[test]
fn a_capped_class_sends_its_ceiling_and_no_more_at_any_rate() {
    for bps in [
        1_000,
        64_000,
        1_000_000,
        7_777_777,
        100_000_000,
        999_999_937,
        10_000_000_000,
        100_000_000_000,
        1_000_000_000_000,
    ] {
        for depth in 0..3 {
            // A burst of two packets, as no other class delays it.
            let (len, burst) = (1250, 3000);
            let mut tree: Tree<u32> = Tree::new(
                Algorithm::Qfq,
                ceiling(bps, burst).filter(|_| depth == 0),
                SchedulerLimits::default(),
            );
            let middle = class(ceiling(bps, burst).filter(|_| depth == 1));
            let inner = tree.add_inner(ClassId::ROOT, middle, Algorithm::Drr);
            let leaf = class(ceiling(bps, burst).filter(|_| depth == 2));
            let leaf = tree.add_leaf(inner.unwrap(), leaf, LeafConfig::default());
            // A second, but no less than 400 packets and no more than 60,000.
            let packet = u64::from(len) * 8 * SECOND / bps;
            let end = SECOND.clamp(400 * packet, 60_000 * packet);
            let times = departures(&mut tree, leaf.unwrap(), len, end);
            // No interval has more than the burst and the rate times its length, each to the
            // nanosecond; and none after the first burst has less than all but one packet.
            for (n, &time) in times.iter().enumerate() {
                let bits = n as u128 * u128::from(len) * 8;
                let allowed = u128::from(time + 1) * u128::from(bps) / u128::from(SECOND)
                    + u128::from(burst - len) * 8;
                assert!(
                    bits <= allowed,
                    "{bps} bit/s: packet {n} at {time} is early"
                );
                let due = u128::from(time.saturating_sub(2)) * u128::from(bps) / u128::from(SECOND);
                assert!(
                    bits + u128::from(len) * 8 >= due,
                    "{bps} bit/s: packet {n} at {time} is late"
                );
            }
            let (first, last) = (times[4], times[times.len() - 1]);
            let bits = (times.len() - 5) as f64 * f64::from(len) * 8.0;
            let rate = bits / ((last - first) as f64 / 1e9);
            let error = rate / bps as f64 - 1.0;
            assert!(
                error.abs() < 1e-3,
                "{bps} bit/s at depth {depth}: {rate} bit/s"
            );
        }
    }
}

#[test]
fn a_ceiling_is_not_held_at_burst_over_interval_by_a_slow_clock() {
    // The program looks only every millisecond; bursts of two milliseconds make up for it.
    let bps = 100_000_000;
    let mut tree: Tree<u32> = Tree::new(Algorithm::Qfq, None, SchedulerLimits::default());
    let leaf = tree.add_leaf(
        ClassId::ROOT,
        class(ceiling(bps, 25_000)),
        LeafConfig::default(),
    );
    let leaf = leaf.unwrap();
    let mut bytes = 0;
    for now in (0..=SECOND).step_by(1_000_000) {
        for n in 0..20 {
            let _ = tree.enqueue(leaf, 0, length(1000), n, Nanos(now));
        }
        while let Dequeue::Packet(packet) = tree.dequeue(Nanos(now), |_| {}) {
            bytes += u64::from(packet.len.get());
        }
    }
    let rate = (bytes - 25_000) as f64 * 8.0;
    assert!((rate / bps as f64 - 1.0).abs() < 1e-3, "{rate} bit/s");
}

#[test]
fn a_scheduler_slower_than_its_link_keeps_the_weights_by_a_ceiling_below_it() {
    // The link takes all at once, so that no queue builds; the root's ceiling makes one.
    let mut tree: Tree<u32> = Tree::new(
        Algorithm::Qfq,
        ceiling(80_000_000, 3000),
        SchedulerLimits::default(),
    );
    let leaves = [1, 3].map(|of| {
        let config = ClassConfig {
            weight: weight(of),
            ..class(None)
        };
        let leaf = tree.add_leaf(ClassId::ROOT, config, LeafConfig::default());
        leaf.unwrap()
    });
    let mut sent = [0u32; 2];
    let mut now = 0;
    while now < SECOND / 10 {
        for leaf in leaves {
            while tree.stats(leaf).unwrap().queued.packets < 4 {
                tree.enqueue(leaf, 0, length(1000), 0, Nanos(now)).unwrap();
            }
        }
        match tree.dequeue(Nanos(now), |_| {}) {
            Dequeue::Packet(packet) => sent[usize::from(packet.owner == leaves[1])] += 1,
            Dequeue::NotBefore(time) => now = time.0,
            Dequeue::Empty => panic!("packets wait"),
        }
    }
    assert!((sent[0] + sent[1]).abs_diff(1000) <= 4, "{sent:?}");
    assert!(sent[1].abs_diff(3 * sent[0]) <= 12, "{sent:?}");
}

#[test]
fn siblings_have_what_a_capped_class_leaves() {
    for &algorithm in Algorithm::ALL {
        if algorithm.follows_packets() {
            continue;
        }
        // A link of 100 Mbit/s, by the root's ceiling; one class may have a tenth of it.
        let mut tree: Tree<u32> = Tree::new(
            algorithm,
            ceiling(100_000_000, 15_000),
            SchedulerLimits::default(),
        );
        let limited = tree.add_leaf(
            ClassId::ROOT,
            ClassConfig {
                level: 1,
                ..class(ceiling(10_000_000, 6_000))
            },
            LeafConfig::default(),
        );
        let free = tree.add_leaf(ClassId::ROOT, class(None), LeafConfig::default());
        let (limited, free) = (limited.unwrap(), free.unwrap());
        let mut bits = [0u64; 2];
        let mut now = 0;
        while now < SECOND {
            for leaf in [limited, free] {
                if tree.stats(leaf).unwrap().queued.packets < 3 {
                    tree.enqueue(leaf, 0, length(1250), 0, Nanos(now)).unwrap();
                    tree.enqueue(leaf, 0, length(1250), 0, Nanos(now)).unwrap();
                }
            }
            match tree.dequeue(Nanos(now), |_| {}) {
                Dequeue::Packet(packet) => bits[usize::from(packet.owner == free)] += 10_000,
                Dequeue::NotBefore(time) => now = time.0,
                Dequeue::Empty => panic!("packets wait"),
            }
        }
        let [limited, free] = bits.map(|bits| bits as f64 / 1e6);
        assert!(
            (limited - 10.0).abs() < 0.06,
            "{algorithm}: {limited} and {free} Mbit/s"
        );
        assert!(
            (free - 90.0).abs() < 0.2,
            "{algorithm}: {limited} and {free} Mbit/s"
        );
    }
}

/// Returns a leaf with a ceiling of 1 Mbit/s that is held after its first packet until 8 ms.
fn held() -> (Tree<u32>, ClassId) {
    let mut tree: Tree<u32> = Tree::new(Algorithm::Drr, None, SchedulerLimits::default());
    let config = class(ceiling(1_000_000, 1500));
    let leaf = tree.add_leaf(ClassId::ROOT, config, LeafConfig::default());
    let leaf = leaf.unwrap();
    for n in 0..3 {
        tree.enqueue(leaf, 0, length(1000), n, Nanos(0)).unwrap();
    }
    assert!(matches!(tree.dequeue(Nanos(0), |_| {}), Dequeue::Packet(_)));
    let at = Dequeue::NotBefore(Nanos(8_000_000));
    assert_eq!(tree.dequeue(Nanos(0), |_| {}), at);
    (tree, leaf)
}

fn answer(tree: &mut Tree<u32>, now: u64) -> Result<u32, Option<u64>> {
    tree.invariants().unwrap();
    match tree.dequeue(Nanos(now), |_| {}) {
        Dequeue::Packet(packet) => Ok(packet.payload),
        Dequeue::NotBefore(time) => Err(Some(time.0)),
        Dequeue::Empty => Err(None),
    }
}

#[test]
fn a_class_is_released_at_its_time_and_not_a_nanosecond_earlier() {
    let (mut tree, leaf) = held();
    assert_eq!(answer(&mut tree, 7_999_999), Err(Some(8_000_000)));
    assert_eq!(answer(&mut tree, 8_000_000), Ok(1));
    assert_eq!(answer(&mut tree, 8_000_000), Err(Some(16_000_000)));
    assert_eq!(tree.stats(leaf).unwrap().overlimits, 2);
}

#[test]
fn a_held_class_whose_ceiling_goes_is_free_at_once() {
    let (mut tree, leaf) = held();
    tree.change(leaf, class(None), Nanos(1)).unwrap();
    assert_eq!(answer(&mut tree, 1), Ok(1));
    assert_eq!(answer(&mut tree, 1), Ok(2));
    assert_eq!(answer(&mut tree, 1), Err(None));
}

#[test]
fn held_class_keeps_its_debt_in_bytes_across_a_rate_change() {
    let (mut tree, leaf) = held();
    // A quarter of the thousand bytes is paid by then; the rest takes a tenth of the time.
    let config = class(ceiling(10_000_000, 1500));
    tree.change(leaf, config, Nanos(2_000_000)).unwrap();
    assert_eq!(answer(&mut tree, 2_000_000), Err(Some(2_600_000)));
    assert_eq!(answer(&mut tree, 2_600_000), Ok(1));
    // And ten times the time, after a change to a tenth of the rate.
    tree.change(leaf, class(ceiling(1_000_000, 1500)), Nanos(3_000_000))
        .unwrap();
    assert_eq!(answer(&mut tree, 3_000_000), Err(Some(7_000_000)));
    // A longer burst is there at once.
    tree.change(leaf, class(ceiling(1_000_000, 2500)), Nanos(3_000_000))
        .unwrap();
    assert_eq!(answer(&mut tree, 3_000_000), Ok(2));
}

#[test]
fn held_class_can_be_removed() {
    let (mut tree, leaf) = held();
    let mut gone = Vec::new();
    tree.remove(leaf, |discarded| gone.push(discarded.payload))
        .unwrap();
    assert_eq!(gone, [1, 2]);
    assert_eq!(answer(&mut tree, 0), Err(None));
    // The next one to have the number and the ceiling's place is not held.
    let next = tree.add_leaf(
        ClassId::ROOT,
        class(ceiling(1_000_000, 1500)),
        LeafConfig::default(),
    );
    assert_eq!(next, Ok(leaf));
    tree.enqueue(leaf, 0, length(1000), 7, Nanos(0)).unwrap();
    assert_eq!(answer(&mut tree, 0), Ok(7));
}

#[test]
fn a_class_that_was_flushed_while_it_was_held_still_owes() {
    let (mut tree, leaf) = held();
    tree.flush(leaf, Nanos(0), |_| {}).unwrap();
    assert_eq!(answer(&mut tree, 0), Err(None));
    tree.enqueue(leaf, 0, length(1000), 7, Nanos(1)).unwrap();
    assert_eq!(answer(&mut tree, 1), Err(Some(8_000_000)));
    assert_eq!(answer(&mut tree, 8_000_000), Ok(7));
}

#[test]
fn a_class_that_has_a_place_sends_from_it_when_its_ceiling_would_hold_it_by_now() {
    let mut tree: Tree<u32> = Tree::new(Algorithm::Drr, None, SchedulerLimits::default());
    let config = class(ceiling(1_000_000, 3_000));
    let leaf = tree.add_leaf(ClassId::ROOT, config, LeafConfig::default());
    let leaf = leaf.unwrap();
    for n in 0..2 {
        tree.enqueue(leaf, 0, length(1000), n, Nanos(0)).unwrap();
    }
    assert_eq!(answer(&mut tree, 0), Ok(0));
    // With packets as long as the burst, the bucket would have to be full.
    let config = ClassConfig {
        max_length: length(3_000),
        ..config
    };
    tree.change(leaf, config, Nanos(0)).unwrap();
    tree.flush(leaf, Nanos(0), |_| {}).unwrap();
    for n in 7..9 {
        tree.enqueue(leaf, 0, length(1000), n, Nanos(0)).unwrap();
    }
    assert_eq!(answer(&mut tree, 0), Ok(7));
    assert_eq!(answer(&mut tree, 0), Err(Some(16_000_000)));
}

#[test]
fn a_clock_that_steps_back_a_little_releases_nobody_and_loses_nothing() {
    let (mut tree, _) = held();
    assert_eq!(answer(&mut tree, 8_000_000), Ok(1));
    assert_eq!(answer(&mut tree, 7_999_000), Err(Some(16_000_000)));
    assert_eq!(answer(&mut tree, 16_000_000), Ok(2));
}

#[test]
fn all_whose_time_has_come_are_released_at_once_whoever_is_held_longer() {
    let mut tree: Tree<u32> = Tree::new(Algorithm::Drr, None, SchedulerLimits::default());
    let rates = (1..=200u64).map(|n| n * 37 % 211 * 10_000 + 10_000);
    let leaves: Vec<(ClassId, u64)> = rates
        .map(|rate| {
            let config = class(ceiling(rate, 1500));
            let leaf = tree.add_leaf(ClassId::ROOT, config, LeafConfig::default());
            (leaf.unwrap(), rate)
        })
        .collect();
    for &(leaf, _) in &leaves {
        for n in 0..2 {
            tree.enqueue(leaf, 0, length(1000), n, Nanos(0)).unwrap();
        }
    }
    for _ in &leaves {
        assert_eq!(answer(&mut tree, 0), Ok(0));
    }
    let mut due: Vec<u64> = leaves
        .iter()
        .map(|&(_, rate)| 8_000 * SECOND.div_ceil(rate))
        .collect();
    due.sort_unstable();
    let at = due[99] + 8_000;
    for _ in due.iter().filter(|&&time| time <= at) {
        assert_eq!(answer(&mut tree, at), Ok(1));
    }
    assert!(matches!(answer(&mut tree, at), Err(Some(time)) if time > at));
}

#[test]
fn a_flow_with_a_ceiling_of_its_own_is_held_alone() {
    let mut tree: Tree<u32> = Tree::new(Algorithm::Qfq, None, SchedulerLimits::default());
    let flows = FlowsConfig {
        ceiling: ceiling(8_000_000, 1500),
        forget_after: Nanos(0),
        ..FlowsConfig::new(Algorithm::Drr)
    };
    let flows = tree.add_flows(ClassId::ROOT, class(None), flows).unwrap();
    for n in 0..2 {
        tree.enqueue(flows, 1, length(1000), n, Nanos(0)).unwrap();
        tree.enqueue(flows, 2, length(1000), 10 + n, Nanos(500_000))
            .unwrap();
    }
    assert_eq!(answer(&mut tree, 500_000), Ok(0));
    assert_eq!(answer(&mut tree, 500_000), Ok(10));
    assert_eq!(answer(&mut tree, 500_000), Err(Some(1_500_000)));
    assert_eq!(answer(&mut tree, 1_500_000), Ok(1));
    assert_eq!(answer(&mut tree, 1_500_000), Ok(11));
    // Idle and in debt: neither expired, nor in the way of others.
    assert_eq!(answer(&mut tree, 1_500_000), Err(None));
    tree.expire_idle(Nanos(1_500_001));
    tree.enqueue(flows, 1, length(1000), 2, Nanos(1_500_001))
        .unwrap();
    assert_eq!(answer(&mut tree, 1_500_001), Err(Some(2_500_000)));
    assert_eq!(answer(&mut tree, 2_500_000), Ok(2));
    tree.expire_idle(Nanos(SECOND));
    assert_eq!(tree.stats(flows).unwrap().flows, 0);
}

#[test]
fn classes_that_are_freed_send_at_once_and_owe_nothing_and_are_held_again_later() {
    let mut tree = Tree::new(Algorithm::Qfq, None, SchedulerLimits::default());
    let root = ClassId::ROOT;
    // Below a class with a ceiling another with one, and next to it flows with one each.
    let above = class(ceiling(8_000, 1_500));
    let above = tree.add_inner(root, above, Algorithm::Drr).unwrap();
    let leaf = class(ceiling(1_000, 1_500));
    let leaf = tree.add_leaf(above, leaf, LeafConfig::default()).unwrap();
    let flows = FlowsConfig {
        ceiling: ceiling(1_000, 1_500),
        ..FlowsConfig::new(Algorithm::Qfq)
    };
    let flows = tree.add_flows(root, class(None), flows).unwrap();
    let fill = |tree: &mut Tree<u32>, now| {
        for n in 0..30 {
            tree.enqueue(leaf, 0, length(1_000), n, now).unwrap();
            tree.enqueue(flows, u64::from(n % 3), length(1_000), n, now)
                .unwrap();
        }
    };
    for most in [1, 2, 100] {
        let now = Nanos(u64::from(most) * SECOND);
        fill(&mut tree, now);
        let mut numbers = Vec::new();
        while !tree.is_empty() {
            match tree.dequeue(now, |_| {}) {
                Dequeue::Packet(packet) if packet.owner == leaf => numbers.push(packet.payload),
                Dequeue::Packet(_) => {}
                Dequeue::NotBefore(time) => {
                    assert!(time > now);
                    assert!((1..=most).contains(&tree.free_held(most, now)));
                }
                Dequeue::Empty => panic!("packets wait"),
            }
            tree.invariants().unwrap();
        }
        assert!(numbers.into_iter().eq(0..30), "in order");
        assert_eq!(tree.free_held(most, now), 0, "nobody is held");
    }
    // Their packets sent in no time at all are forgiven except for the last ones.
    let now = Nanos(300 * SECOND);
    fill(&mut tree, now);
    let mut left = 0;
    while let Dequeue::Packet(_) = tree.dequeue(now, |_| {}) {
        left += 1;
    }
    assert!((4..=8).contains(&left), "{left} at once: the bursts");
}
