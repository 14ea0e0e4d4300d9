//! Queues of whichever discipline: the same calls, and what only a tree can do.

use crate::support::{length, weight};
use fairlane_core::sched::Algorithm;
use fairlane_core::tree::cbq::{Cbq, CbqClass};
use fairlane_core::tree::{ClassConfig, ClassId, ClassQueue, LeafConfig, Tree};
use fairlane_core::{Dequeue, Discipline, DisciplineError, Nanos, Rate, SchedulerLimits};

const NOW: Nanos = Nanos::ZERO;

/// A leaf in a tree, and one in CBQ.
fn both() -> [(Discipline<u32>, ClassId); 2] {
    let (rate, long, leaf) = (
        Rate::from_bps(8_000_000).unwrap(),
        length(1000),
        LeafConfig::default(),
    );
    let limits = SchedulerLimits::default();
    let mut tree = Tree::new(Algorithm::Qfq, None, limits);
    let in_tree = tree.add_leaf(ClassId::ROOT, ClassConfig::new(weight(1), long), leaf);
    let mut cbq = Cbq::new(rate, limits);
    let in_cbq = cbq.add_leaf(ClassId::ROOT, CbqClass::new(rate, long), leaf);
    [
        (Discipline::Tree(tree), in_tree.unwrap()),
        (Discipline::Cbq(cbq), in_cbq.unwrap()),
    ]
}

#[test]
fn packets_go_in_and_come_out_of_both() {
    for (mut queues, leaf) in both() {
        for n in 0..3 {
            queues
                .enqueue(leaf, 0, length(1000), n, NOW, |_| {})
                .unwrap();
        }
        assert_eq!(queues.len(), 3);
        let Dequeue::Packet(first) = queues.dequeue(NOW, |_| {}) else {
            panic!("three wait in {queues:?}");
        };
        assert_eq!((first.owner, first.payload), (leaf, 0));
        let mut gone = Vec::new();
        let all = queues.take_out(leaf, &mut 0, &mut 1, NOW, |packet| {
            gone.push(packet.payload)
        });
        assert_eq!(
            (all, &gone[..]),
            (false, &[1][..]),
            "one packet and no more"
        );
        queues.flush(leaf, NOW, |packet| gone.push(packet.payload));
        assert_eq!((gone, queues.len()), (vec![1, 2], 0));
        let stats = queues.own_stats(leaf).unwrap();
        assert_eq!((stats.accepted.packets, stats.sent.packets), (3, 1));
        queues.invariants().unwrap();
    }
}

#[test]
fn who_is_unknown_loses_nothing() {
    for (mut queues, leaf) in both() {
        queues
            .enqueue(leaf, 0, length(1000), 7, NOW, |_| {})
            .unwrap();
        let nobody = ClassId::new(99);
        queues.flush(nobody, NOW, |packet| {
            panic!("{packet:?} is of another class")
        });
        assert!(queues.take_out(nobody, &mut 0, &mut 9, NOW, |packet| panic!("{packet:?}")));
        assert_eq!((queues.own_stats(nobody), queues.len()), (None, 1));
    }
}

#[test]
fn classes_of_cbq_only_change_all_together() {
    let [(mut tree, in_tree), (mut cbq, in_cbq)] = both();
    let removed = tree.go_on_removing(in_tree, &mut 9, |_| {});
    assert!(removed.unwrap().is_some());
    cbq.enqueue(in_cbq, 0, length(1000), 7, NOW, |_| {})
        .unwrap();
    let refused = cbq.go_on_removing(in_cbq, &mut 9, |packet| panic!("{packet:?} is to stay"));
    assert!(matches!(refused, Err(DisciplineError::Fixed)));
    assert_eq!(cbq.len(), 1);
    assert!(
        cbq.go_on_changing(in_cbq, &mut 0, NOW),
        "there is nothing to go on with"
    );
}
