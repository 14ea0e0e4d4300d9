//! Classes that come, go, change, or cannot be.

use fairlane_core::Dequeue;
use fairlane_core::tree::cbq::{Bursts, Cbq, CbqClass, CbqError};
use fairlane_core::tree::{ClassId, LeafConfig, Reason};
use fairlane_core::{Length, Nanos};

use super::rig::*;

#[test]
fn a_class_may_be_removed_while_it_waits_and_its_number_given_to_another() {
    for asleep in [false, true] {
        let mut run = Run::new();
        let first = leaf(&mut run.cbq, ROOT, bounded(1));
        run.fill(first, 50);
        if asleep {
            while matches!(run.cbq.dequeue(run.now, |_| {}), Dequeue::Packet(_)) {}
        }
        let held = run.cbq.stats(first).unwrap().queued.packets;
        let mut lost = Vec::new();
        let stats = run.cbq.remove(first, |gone| lost.push(gone));
        let stats = stats.unwrap();
        assert_eq!(stats.discarded.packets, held);
        assert!(lost.iter().all(|gone| gone.reason == Reason::Flushed));
        assert!(lost.is_sorted_by_key(|gone| gone.payload));
        assert_eq!(lost.len() as u64, held);
        run.cbq.invariants().unwrap();
        assert!(run.cbq.stats(first).is_none());
        assert_eq!(run.cbq.dequeue(run.now, |_| {}), Dequeue::Empty);
        let second = leaf(&mut run.cbq, ROOT, bounded(1));
        assert_eq!(second, first);
        run.fill(second, 3);
        run.cbq.invariants().unwrap();
        let sent = run.send(Nanos::from_millis(1000), &[]);
        assert_eq!(sent[&second], 3);
        assert_eq!(run.cbq.stats(ROOT).unwrap().accepted.packets, 53);
    }
}

/// Returns a class like others, except for a change.
fn with(change: fn(&mut CbqClass)) -> CbqClass {
    let mut config = class(5);
    change(&mut config);
    config
}

#[test]
fn a_class_that_cannot_be_is_refused_with_one_sentence_and_nothing_changes() {
    let mut cbq: Cbq<u32> = cbq(10);
    let inner = cbq.add_inner(ROOT, class(5)).unwrap();
    let leaf = leaf(&mut cbq, inner, class(5));
    let refused: [(CbqClass, &str); 6] = [
        (
            with(|c| c.rate = rate(10 * MBIT + 1)),
            "a class of 10000001bit is faster than its link of 10mbit",
        ),
        (
            with(|c| c.priority = 8),
            "a priority is between 0 and 7, not 8",
        ),
        (
            with(|c| c.bursts.max = 0),
            "a burst after a silence is between 1 and 256 packets, not 0",
        ),
        (
            with(|c| c.bursts.max = 257),
            "a burst after a silence is between 1 and 256 packets, not 257",
        ),
        (
            with(|c| c.bursts.min = 0),
            "a burst after a suspension is between 1 and 16 packets, the burst after a \
             silence, not 0",
        ),
        (
            with(|c| c.bursts.min = 17),
            "a burst after a suspension is between 1 and 16 packets, the burst after a \
             silence, not 17",
        ),
    ];
    for (config, sentence) in refused {
        let error = cbq.add_inner(inner, config).unwrap_err();
        assert_eq!(error.to_string(), sentence);
        assert_eq!(cbq.change(leaf, config), Err(error));
    }
    let unknown = ClassId::new(9);
    assert_eq!(
        cbq.add_inner(unknown, class(1)),
        Err(CbqError::UnknownClass(unknown))
    );
    assert_eq!(cbq.add_inner(leaf, class(1)), Err(CbqError::NotInner(leaf)));
    assert_eq!(cbq.change(ROOT, class(1)), Err(CbqError::Root));
    assert_eq!(cbq.remove(ROOT, |_| {}), Err(CbqError::Root));
    assert_eq!(cbq.remove(inner, |_| {}), Err(CbqError::HasChildren(inner)));
    assert_eq!(
        cbq.change_leaf(inner, LeafConfig::default()),
        Err(CbqError::NotLeaf(inner))
    );
    cbq.enqueue(leaf, length(1500), 1, Nanos::ZERO).unwrap();
    let shorter = with(|c| c.max_length = length(1499));
    assert_eq!(
        cbq.change(leaf, shorter),
        Err(CbqError::LongerPacketQueued {
            queued: length(1500),
            max: length(1499)
        })
    );
    cbq.invariants().unwrap();
    assert!(matches!(
        cbq.dequeue(Nanos::ZERO, |_| {}),
        Dequeue::Packet(_)
    ));
}

#[test]
fn the_ends_of_the_ranges_of_a_class_are_allowed() {
    let mut cbq: Cbq<u32> = cbq(10);
    let leaf = leaf(&mut cbq, ROOT, class(5));
    for config in [
        with(|c| c.rate = rate(10 * MBIT)),
        with(|c| c.priority = 7),
        with(|c| {
            c.bursts = Bursts {
                max: 256,
                min: 256,
                packet: Length::MAX,
            }
        }),
        with(|c| {
            c.bursts = Bursts {
                max: 1,
                min: 1,
                packet: Length::MAX,
            }
        }),
    ] {
        cbq.change(leaf, config).unwrap();
        cbq.invariants().unwrap();
    }
}
