//! Queues of either discipline: the same calls, and the ones that only a tree supports.

use crate::support::{Random, length, weight};
use fairlane_core::aqm::{AqmConfig, CodelConfig};
use fairlane_core::sched::Algorithm;
use fairlane_core::tree::cbq::{Cbq, CbqClass};
use fairlane_core::tree::{ClassConfig, ClassId, ClassQueue, LeafConfig, Peekable, Tree};
use fairlane_core::{Dequeue, Discipline, DisciplineError, Nanos, Rate, SchedulerLimits};

const NOW: Nanos = Nanos::ZERO;

/// Returns a leaf in a tree, and one in CBQ.
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
fn unknown_class_loses_nothing() {
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

/// Two leaves of a tree, one with CoDel, and two of CBQ, one of which may not borrow.
fn pairs() -> [(Discipline<u32>, [ClassId; 2]); 2] {
    let [(tree, in_tree), (cbq, in_cbq)] = both();
    let (Discipline::Tree(mut tree), Discipline::Cbq(mut cbq)) = (tree, cbq) else {
        panic!("a tree and CBQ");
    };
    let (rate, long) = (Rate::from_bps(1_000_000).unwrap(), length(1000));
    let codel = LeafConfig {
        aqm: AqmConfig::Codel(CodelConfig::default()),
        ..LeafConfig::default()
    };
    let config = ClassConfig::new(weight(3), long);
    let managed = tree.add_leaf(ClassId::ROOT, config, codel).unwrap();
    let held = CbqClass {
        borrow: false,
        ..CbqClass::new(rate, long)
    };
    let held = cbq.add_leaf(ClassId::ROOT, held, codel).unwrap();
    [
        (Discipline::Tree(tree), [in_tree, managed]),
        (Discipline::Cbq(cbq), [in_cbq, held]),
    ]
}

/// Compared with the same queues without peeking: a peek shows the packet that would be taken at that time, the next
/// dequeue returns it, whatever arrives and however long it takes, and the backlog is the same.
#[test]
fn what_a_look_shows_is_taken_next() {
    for (queues, leaves) in pairs() {
        let mut random = Random(5);
        let (mut plain, mut looked_at) = (queues.clone(), Peekable::new(queues));
        let (mut now, mut shown, mut held) = (NOW, 0, 0);
        for n in 0..3_000 {
            now += Nanos::from_micros(random.below(4_000).into());
            let (leaf, len) = (random.pick(&leaves), length(1 + random.below(1000)));
            let accepted = plain.enqueue(leaf, 0, len, n, now, |_| {}).is_ok();
            let too = looked_at.enqueue(leaf, 0, len, n, now, |_| {}).is_ok();
            assert_eq!(accepted, too, "{n}");
            let (mut gone, mut gone_too) = (Vec::new(), Vec::new());
            let expected = plain.dequeue(now, |packet| gone.push(packet.payload));
            let mut later = now;
            if random.below(2) == 0 {
                let seen = looked_at.peek(now, |packet| gone_too.push(packet.payload));
                match (&expected, seen) {
                    (Dequeue::Packet(packet), Dequeue::Packet(seen)) => {
                        assert_eq!((packet.owner, packet.payload), (seen.owner, *seen.payload));
                        later += Nanos::from_millis(500);
                        shown += 1;
                    }
                    (Dequeue::NotBefore(time), Dequeue::NotBefore(same)) => {
                        assert_eq!(*time, same);
                        held += 1;
                    }
                    (expected, seen) => assert!(
                        matches!((expected, &seen), (Dequeue::Empty, Dequeue::Empty)),
                        "{n}: {seen:?}, not {expected:?}"
                    ),
                }
                assert_eq!(looked_at.len(), plain.len() + u32::from(later > now));
            }
            let taken = looked_at.dequeue(later, |packet| gone_too.push(packet.payload));
            assert!(taken == expected, "{n}: {taken:?}, not {expected:?}");
            assert_eq!((gone, looked_at.len()), (gone_too, plain.len()), "{n}");
        }
        looked_at.invariants().unwrap();
        assert!(shown > 300, "{shown} packets were shown, {held} times none");
    }
}
