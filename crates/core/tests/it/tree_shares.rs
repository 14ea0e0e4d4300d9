//! Shares through the levels of a tree, for every algorithm at every level.

use crate::support::{Random, length, weight};
use fairlane_core::Dequeue;
use fairlane_core::sched::Algorithm;
use fairlane_core::tree::{ClassConfig, ClassId, LeafConfig, Tree};
use fairlane_core::{Nanos, SchedulerLimits};

fn class(of: u32) -> ClassConfig {
    ClassConfig {
        level: of,
        ..ClassConfig::new(weight(of.max(1)), length(1500))
    }
}

/// Algorithms that share by weight, also among classes.
fn by_weight() -> impl Iterator<Item = Algorithm> {
    let all = Algorithm::ALL.iter().copied();
    all.filter(|a| !a.follows_packets() && *a != Algorithm::Priority)
}

/// Leaves that always have packets, of random lengths.
struct Busy {
    tree: Tree<u32>,
    random: Random,
}

impl Busy {
    fn put(&mut self, leaf: ClassId) {
        let len = length(64 + self.random.below(1_437));
        self.tree.enqueue(leaf, 0, len, 0, Nanos::ZERO).unwrap();
    }

    /// Returns the bytes that each class sent, of `packets` packets.
    fn serve(&mut self, packets: u32, leaves: &[ClassId]) -> Vec<f64> {
        let mut sent = vec![0.0; leaves.len()];
        for n in 0..packets {
            let Dequeue::Packet(packet) = self.tree.dequeue(Nanos::ZERO, |_| {}) else {
                panic!("all have packets");
            };
            let at = leaves
                .iter()
                .position(|&leaf| leaf == packet.owner)
                .unwrap();
            sent[at] += f64::from(packet.len.get());
            self.put(packet.owner);
            if n % 64 == 0 {
                self.tree.invariants().unwrap();
            }
        }
        sent
    }
}

#[test]
fn a_leaf_has_its_part_of_its_parents_part() {
    let all: Vec<Algorithm> = by_weight().collect();
    for (n, &outer) in all.iter().enumerate() {
        // Each below itself, and in pairs all round.
        for inner in [outer, all[(n + 1) % all.len()], all[(n + 4) % all.len()]] {
            let mut busy = Busy {
                tree: Tree::new(outer, None, SchedulerLimits::default()),
                random: Random(3),
            };
            // 3/5 and 2/5 of the root; below the first 1/4 and 3/4, below the second a level
            // more, and a leaf with half.
            let tree = &mut busy.tree;
            let first = tree.add_inner(ClassId::ROOT, class(3), inner).unwrap();
            let second = tree.add_inner(ClassId::ROOT, class(2), inner).unwrap();
            let third = tree.add_inner(second, class(5), outer).unwrap();
            let mut leaf = |parent, of| tree.add_leaf(parent, class(of), LeafConfig::default());
            let leaves = [(first, 1), (first, 3), (second, 5), (third, 1), (third, 9)]
                .map(|(parent, of)| leaf(parent, of).unwrap());
            let shares = [3.0 / 20.0, 9.0 / 20.0, 1.0 / 5.0, 1.0 / 50.0, 9.0 / 50.0];
            for &leaf in &leaves {
                busy.put(leaf);
                busy.put(leaf);
            }
            let sent = busy.serve(4_000, &leaves);
            let all: f64 = sent.iter().sum();
            for (share, sent) in shares.iter().zip(&sent) {
                let error = sent / all - share;
                assert!(
                    error.abs() < 0.012,
                    "{outer} over {inner}: {sent} of {all}, not {share}"
                );
            }
            // Another weight in the middle changes the classes below it.
            busy.tree.change(second, class(12), Nanos::ZERO).unwrap();
            busy.serve(200, &leaves);
            let sent = busy.serve(4_000, &leaves);
            let all: f64 = sent.iter().sum();
            let shares = [1.0 / 20.0, 3.0 / 20.0, 2.0 / 5.0, 1.0 / 25.0, 9.0 / 25.0];
            for (share, sent) in shares.iter().zip(&sent) {
                let error = sent / all - share;
                assert!(
                    error.abs() < 0.012,
                    "{outer} over {inner}: {sent} of {all}, not {share}"
                );
            }
        }
    }
}

#[test]
fn what_a_leaf_leaves_goes_to_its_siblings_first() {
    for algorithm in by_weight() {
        let mut busy = Busy {
            tree: Tree::new(algorithm, None, SchedulerLimits::default()),
            random: Random(5),
        };
        let tree = &mut busy.tree;
        let inner = tree.add_inner(ClassId::ROOT, class(1), algorithm).unwrap();
        let leaf = |tree: &mut Tree<u32>, parent| {
            tree.add_leaf(parent, class(1), LeafConfig::default())
                .unwrap()
        };
        let (busy_one, _idle, other) = (
            leaf(tree, inner),
            leaf(tree, inner),
            leaf(tree, ClassId::ROOT),
        );
        let leaves = [busy_one, other];
        for leaf in [busy_one, busy_one, other, other] {
            busy.put(leaf);
        }
        let sent = busy.serve(4_000, &leaves);
        assert!(
            (sent[0] / (sent[0] + sent[1]) - 0.5).abs() < 0.01,
            "{algorithm}: {sent:?}"
        );
    }
}

#[test]
fn a_class_of_a_higher_level_goes_first_and_its_children_share_what_it_has() {
    let mut tree: Tree<u32> = Tree::new(Algorithm::Priority, None, SchedulerLimits::default());
    let leaf = LeafConfig::default();
    let low = tree.add_leaf(ClassId::ROOT, class(1), leaf).unwrap();
    let high = tree
        .add_inner(ClassId::ROOT, class(2), Algorithm::Priority)
        .unwrap();
    let slow = tree.add_leaf(high, class(0), leaf).unwrap();
    let fast = tree.add_leaf(high, class(7), leaf).unwrap();
    for class in [low, slow, fast, low, slow, fast] {
        tree.enqueue(class, 0, length(100), 0, Nanos::ZERO).unwrap();
    }
    let mut order = Vec::new();
    while let Dequeue::Packet(packet) = tree.dequeue(Nanos::ZERO, |_| {}) {
        order.push(packet.owner);
    }
    assert_eq!(order, [fast, fast, slow, slow, low, low]);
    // Its level changes while it waits, at its next place.
    for class in [low, slow, low, slow] {
        tree.enqueue(class, 0, length(100), 0, Nanos::ZERO).unwrap();
    }
    tree.change(high, class(0), Nanos::ZERO).unwrap();
    let mut order = Vec::new();
    while let Dequeue::Packet(packet) = tree.dequeue(Nanos::ZERO, |_| {}) {
        order.push(packet.owner);
    }
    assert_eq!(order, [slow, low, low, slow]);
}

#[test]
fn a_class_that_comes_back_starts_with_the_others() {
    // It was idle while the others were served a lot: it neither takes that, nor waits for it.
    for algorithm in by_weight() {
        let mut busy = Busy {
            tree: Tree::new(algorithm, None, SchedulerLimits::default()),
            random: Random(9),
        };
        let inner: Vec<ClassId> = (0..4)
            .map(|_| {
                busy.tree
                    .add_inner(ClassId::ROOT, class(1), algorithm)
                    .unwrap()
            })
            .collect();
        let leaves: Vec<ClassId> = inner
            .iter()
            .map(|&inner| {
                busy.tree
                    .add_leaf(inner, class(1), LeafConfig::default())
                    .unwrap()
            })
            .collect();
        for &leaf in &leaves[..3] {
            busy.put(leaf);
            busy.put(leaf);
        }
        busy.serve(500, &leaves);
        busy.put(leaves[3]);
        busy.put(leaves[3]);
        let sent = busy.serve(40, &leaves);
        let all: f64 = sent.iter().sum();
        assert!((sent[3] / all - 0.25).abs() < 0.15, "{algorithm}: {sent:?}");
    }
}

#[test]
fn a_tree_may_be_deep() {
    let mut tree: Tree<u32> = Tree::new(Algorithm::Drr, None, SchedulerLimits::default());
    let mut parent = ClassId::ROOT;
    for _ in 0..2_000 {
        parent = tree.add_inner(parent, class(1), Algorithm::Drr).unwrap();
    }
    let leaf = tree
        .add_leaf(parent, class(1), LeafConfig::default())
        .unwrap();
    for n in 0..3 {
        tree.enqueue(leaf, 0, length(100), n, Nanos::ZERO).unwrap();
        tree.enqueue(leaf, 0, length(100), n, Nanos::ZERO).unwrap();
        assert!(matches!(
            tree.dequeue(Nanos::ZERO, |_| {}),
            Dequeue::Packet(_)
        ));
        assert!(matches!(
            tree.dequeue(Nanos::ZERO, |_| {}),
            Dequeue::Packet(_)
        ));
        assert!(matches!(tree.dequeue(Nanos::ZERO, |_| {}), Dequeue::Empty));
    }
    assert_eq!(tree.stats(ClassId::ROOT).unwrap().sent.packets, 6);
}
