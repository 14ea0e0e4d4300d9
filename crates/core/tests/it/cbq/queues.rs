//! Backlogs: limits, queue management, flushes, and counts of all.

use fairlane_core::aqm::{AqmConfig, RedConfig, RedParameters};
use fairlane_core::room::Room;
use fairlane_core::tree::cbq::Cbq;
use fairlane_core::tree::{ClassId, Discarded, LeafConfig, Payload, Reason};
use fairlane_core::{Dequeue, Rejection};
use fairlane_core::{Limits, Nanos, SchedulerLimits};

use super::rig::*;

#[test]
fn what_may_not_be_accepted_is_handed_back_with_the_reason_and_counted() {
    let mut cbq: Cbq<u32> = Cbq::new(
        rate(MBIT),
        SchedulerLimits {
            packets: 5,
            bytes: 4000,
            ..SchedulerLimits::default()
        },
    );
    let inner = cbq.add_inner(ROOT, class(1)).unwrap();
    let limited = |packets, bytes| LeafConfig {
        limits: Limits { packets, bytes },
        // A reservation for all their packets.
        room: Room {
            packets: packets.min(2),
            bytes: if bytes == 2000 { bytes } else { 100 },
        },
        ..LeafConfig::default()
    };
    let none = cbq.add_leaf(inner, class(1), limited(0, 9999)).unwrap();
    let one = cbq.add_leaf(inner, class(1), limited(1, 9999)).unwrap();
    let bytes = cbq.add_leaf(inner, class(1), limited(99, 2000)).unwrap();
    let open = cbq
        .add_leaf(inner, class(1), LeafConfig::default())
        .unwrap();
    let mut give = |class, len, payload| {
        let given = cbq.enqueue(class, length(len), payload, Nanos::ZERO);
        cbq.invariants().unwrap();
        given.map_err(|rejected| {
            assert_eq!(rejected.payload, payload);
            rejected.reason
        })
    };
    let too_long = Rejection::TooLong { max: length(1500) };
    assert_eq!(give(ClassId::new(77), 100, 1), Err(Rejection::Unknown));
    assert_eq!(give(inner, 100, 2), Err(Rejection::NoQueue));
    assert_eq!(give(one, 1501, 3), Err(too_long));
    assert_eq!(give(none, 1, 4), Err(Rejection::QueueFull));
    assert_eq!(give(one, 100, 5), Ok(()));
    assert_eq!(give(one, 100, 6), Err(Rejection::QueueFull));
    assert_eq!(give(bytes, 1500, 7), Ok(()));
    assert_eq!(give(bytes, 501, 8), Err(Rejection::QueueFull));
    assert_eq!(give(bytes, 500, 9), Ok(()));
    // 2100 of 4000 bytes, 3 of 5 packets.
    assert_eq!(give(open, 1500, 10), Ok(()));
    assert_eq!(give(open, 401, 11), Err(Rejection::LinkFull));
    assert_eq!(give(open, 400, 12), Ok(()));
    let sixth = give(open, 1, 13);
    assert_eq!(sixth, Err(Rejection::LinkFull));
    assert_eq!(cbq.stats(ROOT).unwrap().dropped.packets, 8);
    assert_eq!(cbq.stats(inner).unwrap().dropped.packets, 7);
    assert_eq!(cbq.stats(open).unwrap().dropped.packets, 2);
    assert_eq!(cbq.stats(none).unwrap().dropped.packets, 1);
}

#[test]
fn a_limit_below_the_backlog_rejects_until_there_is_room_and_keeps_the_count() {
    let mut run = Run::new();
    let class = leaf(&mut run.cbq, ROOT, class(8));
    run.fill(class, 10);
    let limits = Limits {
        packets: 4,
        bytes: 9999,
    };
    let lower = LeafConfig {
        limits,
        ..LeafConfig::default()
    };
    run.cbq.change_leaf(class, lower).unwrap();
    let mut accepted = 0;
    for n in 0..10 {
        run.cbq.invariants().unwrap();
        let given = run.cbq.enqueue(class, length(1000), 0, run.now);
        accepted += u32::from(given.is_ok());
        assert_eq!(given.is_ok(), n > 6, "with {} packets", 10 - n);
        assert!(matches!(
            run.cbq.dequeue(run.now, |_| {}),
            Dequeue::Packet(_)
        ));
        run.now += MS;
    }
    let stats = run.cbq.stats(class).unwrap();
    assert_eq!((stats.sent.packets, stats.accepted.packets), (10, 13));
    assert_eq!(accepted, 3);
}

/// A packet that may be marked, or not.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Markable {
    capable: bool,
    marked: bool,
}

impl Payload for Markable {
    fn mark(&mut self) -> bool {
        self.marked |= self.capable;
        self.capable
    }
}

#[test]
fn queue_management_marks_or_drops_at_both_ends_and_every_count_is_right() {
    for aqm in [red(false), red(true), codel(false), codel(true)] {
        for capable in [false, true] {
            let mut cbq: Cbq<Markable> = cbq(8);
            let config = LeafConfig {
                aqm,
                rate: rate(MBIT),
                ..LeafConfig::default()
            };
            let leaf = cbq.add_leaf(ROOT, bounded(1), config).unwrap();
            let (mut rejected, mut discarded, mut marked, mut sent) = (0, 0, 0, 0);
            let mut now = Nanos::ZERO;
            // Twice its rate for four seconds.
            for n in 0..1000 {
                let packet = Markable {
                    capable,
                    marked: false,
                };
                if let Err(back) = cbq.enqueue(leaf, length(1000), packet, now) {
                    assert_eq!(back.reason, Rejection::Congestion);
                    assert_eq!(back.payload, packet, "what comes back is untouched");
                    rejected += 1;
                }
                let answer = cbq.dequeue(now, |gone: Discarded<Markable>| {
                    assert_eq!((gone.class, gone.reason), (leaf, Reason::Congestion));
                    assert!(!gone.payload.marked);
                    discarded += 1;
                });
                if let Dequeue::Packet(packet) = answer {
                    marked += u64::from(packet.payload.marked);
                    sent += 1;
                }
                cbq.invariants().unwrap();
                now = Nanos::from_millis(4 * n);
            }
            let stats = cbq.stats(leaf).unwrap();
            assert_eq!(stats.dropped.packets, rejected);
            assert_eq!(stats.discarded.packets, discarded);
            assert_eq!(stats.sent.packets, sent);
            assert_eq!(stats.accepted.packets + rejected, 1000);
            // Marked ones may still be queued.
            let waiting = stats.marked - marked;
            assert!(waiting <= stats.queued.packets);
            let marks = capable && [red(true), codel(true)].contains(&aqm);
            assert_eq!(stats.marked > 0, marks, "{aqm:?}, {capable}");
            let on_arrival = [red(false), red(true)].contains(&aqm);
            assert!(rejected == 0 || on_arrival);
            assert!(discarded == 0 || !on_arrival);
            assert!(marks || rejected + discarded > 50, "{aqm:?}");
        }
    }
}

#[test]
fn queue_management_learns_how_long_a_queue_was_empty_sent_or_flushed() {
    for flushes in [false, true] {
        let mut cbq: Cbq<u32> = cbq(8);
        let parameters = RedParameters {
            min: 2,
            max: 4,
            ..RedParameters::default()
        };
        let config = LeafConfig {
            aqm: AqmConfig::Red(RedConfig::new(parameters).unwrap()),
            rate: rate(8 * MBIT),
            ..LeafConfig::default()
        };
        let leaf = cbq.add_leaf(ROOT, class(8), config).unwrap();
        let give = |cbq: &mut Cbq<u32>, now| cbq.enqueue(leaf, length(1000), 0, now).is_ok();
        // A standing queue, until its average lets nothing in any more.
        let mut now = Nanos::ZERO;
        while (0..3).any(|_| give(&mut cbq, now)) {}
        if flushes {
            cbq.flush(leaf, now, |_| {}).unwrap();
        } else {
            while matches!(cbq.dequeue(now, |_| {}), Dequeue::Packet(_)) {
                now += MS;
            }
        }
        // Ten thousand packets later nothing of it is left.
        now += Nanos::from_millis(10_000);
        let accepted = (0..10).filter(|_| give(&mut cbq, now)).count();
        assert_eq!(accepted, 10);
    }
}

#[test]
fn a_flush_empties_all_classes_below_and_nobody_is_waited_for() {
    let mut run = Run::new();
    let inner = run.cbq.add_inner(ROOT, bounded(2)).unwrap();
    let asleep = leaf(&mut run.cbq, inner, bounded(1));
    let other = leaf(&mut run.cbq, inner, bounded(1));
    run.fill(asleep, 40);
    run.fill(other, 2);
    while let Dequeue::Packet(_) = run.cbq.dequeue(run.now, |_| {}) {}
    let left = run.cbq.len();
    assert!((1..40).contains(&left), "{left} packets wait");
    let mut gone = 0;
    run.cbq.flush(inner, run.now, |_| gone += 1).unwrap();
    assert_eq!(gone, left);
    assert_eq!(run.cbq.dequeue(run.now, |_| {}), Dequeue::Empty);
    run.cbq.invariants().unwrap();
}
