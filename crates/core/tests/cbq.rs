//! CBQ: rates, borrowing, bursts, limits, queue management, and counts that add up whatever
//! happens.

use fairlane_core::aqm::{AqmConfig, CodelConfig, CodelParameters, RedConfig, RedParameters};
use fairlane_core::tree::cbq::{Bursts, Cbq, CbqClass, CbqError};
use fairlane_core::tree::{ClassId, Dequeue, Discarded, LeafConfig, Payload, Reason, Rejection};
use fairlane_core::{Length, Limits, Nanos, Rate, SchedulerLimits};
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};

const ROOT: ClassId = ClassId::ROOT;
const MBIT: u64 = 1_000_000;

fn rate(bps: u64) -> Rate {
    Rate::from_bps(bps).unwrap()
}

fn length(bytes: u32) -> Length {
    Length::new(bytes).unwrap()
}

/// A class of so many Mbit/s with packets of at most 1500 bytes.
fn class(mbit: u64) -> CbqClass {
    CbqClass {
        max_length: length(1500),
        ..CbqClass::new(rate(mbit * MBIT))
    }
}

fn bounded(mbit: u64) -> CbqClass {
    CbqClass {
        borrow: false,
        ..class(mbit)
    }
}

fn cbq<P: Payload>(mbit: u64) -> Cbq<P> {
    Cbq::new(rate(mbit * MBIT), SchedulerLimits::default())
}

fn leaf<P: Payload>(cbq: &mut Cbq<P>, parent: ClassId, config: CbqClass) -> ClassId {
    cbq.add_leaf(parent, config, LeafConfig::default()).unwrap()
}

/// Time of a packet of 1000 bytes on 8 Mbit/s.
const MS: Nanos = Nanos::from_millis(1);

/// A link of 8 Mbit/s and packets of 1000 bytes: a millisecond each.
struct Run {
    cbq: Cbq<u32>,
    now: Nanos,
    /// When the link will have sent what it has.
    free: Nanos,
}

impl Run {
    fn new() -> Run {
        Run {
            cbq: cbq(8),
            now: Nanos::ZERO,
            free: Nanos::ZERO,
        }
    }

    fn fill(&mut self, class: ClassId, packets: u32) {
        for n in 0..packets {
            self.cbq.enqueue(class, length(1000), n, self.now).unwrap();
        }
    }

    /// Sends until `until` whatever may be sent; a class that is in `busy` gets another
    /// packet for each. Packets by class.
    fn send(&mut self, until: Nanos, busy: &[ClassId]) -> BTreeMap<ClassId, u32> {
        let mut sent = BTreeMap::new();
        loop {
            self.now = self.now.max(self.free);
            if self.now >= until {
                return sent;
            }
            match self.cbq.dequeue(self.now, |_| {}) {
                Dequeue::Packet(packet) => {
                    *sent.entry(packet.class).or_insert(0) += 1;
                    self.free = self.now + MS;
                    if busy.contains(&packet.class) {
                        self.fill(packet.class, 1);
                    }
                }
                Dequeue::NotBefore(time) => {
                    assert!(time > self.now);
                    self.now = time;
                }
                Dequeue::Empty => self.now = until,
            }
            self.cbq.invariants().unwrap();
        }
    }
}

#[test]
fn a_class_within_its_rate_goes_before_one_that_borrows_at_the_same_priority() {
    let mut run = Run::new();
    let (small, large) = (
        leaf(&mut run.cbq, ROOT, class(2)),
        leaf(&mut run.cbq, ROOT, class(6)),
    );
    run.fill(small, 50);
    run.fill(large, 50);
    let sent = run.send(Nanos::from_millis(4000), &[small, large]);
    assert!((990..1040).contains(&sent[&small]), "{sent:?}");
    assert!((2950..3010).contains(&sent[&large]), "{sent:?}");
}

#[test]
fn classes_that_borrow_share_what_is_left_in_proportion_to_their_rates() {
    let mut run = Run::new();
    // Far beyond their rates: what the round robin gives them is all that matters.
    let weights = [1, 2, 4];
    let leaves = weights.map(|weight| {
        let config = CbqClass {
            rate: rate(weight * 10_000),
            ..class(1)
        };
        leaf(&mut run.cbq, ROOT, config)
    });
    for leaf in leaves {
        run.fill(leaf, 50);
    }
    let sent = run.send(Nanos::from_millis(7000), &leaves);
    for (leaf, weight) in leaves.iter().zip([1000, 2000, 4000]) {
        let found = sent[leaf];
        assert!(found.abs_diff(weight) < 60, "{found} of {weight}");
    }
}

#[test]
fn a_turn_shorter_than_a_packet_is_saved_up_for() {
    let mut run = Run::new();
    // 29 bytes a turn, and 2970.
    let leaves = [1_000, 100_000].map(|bps| {
        let config = CbqClass {
            rate: rate(bps),
            ..class(1)
        };
        leaf(&mut run.cbq, ROOT, config)
    });
    for leaf in leaves {
        run.fill(leaf, 20);
    }
    let sent = run.send(Nanos::from_millis(8080), &leaves);
    let small = sent[&leaves[0]];
    assert!((70..=100).contains(&small), "{small} packets of about 80");
}

#[test]
fn a_class_borrows_what_its_sibling_leaves_and_not_if_it_may_not() {
    for borrow in [true, false] {
        let mut run = Run::new();
        let agency = run.cbq.add_inner(ROOT, bounded(4)).unwrap();
        let config = CbqClass { borrow, ..class(1) };
        let busy = leaf(&mut run.cbq, agency, config);
        leaf(&mut run.cbq, agency, class(3));
        run.fill(busy, 50);
        let sent = run.send(Nanos::from_millis(4000), &[busy])[&busy];
        // Four of eight a millisecond as a loan, one of its own.
        let expected = if borrow { 2000 } else { 500 };
        assert!(sent.abs_diff(expected) < 60, "{sent} of {expected}");
        assert_eq!(run.cbq.borrowed(busy).unwrap() > 0, borrow);
        assert!(run.cbq.stats(busy).unwrap().throttled > 0);
    }
}

#[test]
fn a_class_that_may_not_lend_on_ends_the_chain() {
    let mut run = Run::new();
    let agency = run.cbq.add_inner(ROOT, bounded(2)).unwrap();
    let team = run.cbq.add_inner(agency, class(1)).unwrap();
    let busy = leaf(&mut run.cbq, team, class(1));
    run.fill(busy, 50);
    let sent = run.send(Nanos::from_millis(4000), &[busy])[&busy];
    assert!(sent.abs_diff(1000) < 60, "{sent}: its agency's 2 Mbit/s");
}

#[test]
fn the_higher_priority_goes_first_within_what_it_is_entitled_to() {
    let mut run = Run::new();
    let urgent = CbqClass {
        priority: 7,
        ..bounded(4)
    };
    let urgent = leaf(&mut run.cbq, ROOT, urgent);
    let bulk = leaf(&mut run.cbq, ROOT, class(4));
    run.fill(bulk, 20);
    // A packet every 5 ms is within its rate: it never waits for a second one.
    for n in 0..200 {
        run.send(Nanos::from_millis(5 * n + 3), &[bulk]);
        run.fill(urgent, 1);
        assert!(matches!(
            run.cbq.dequeue(run.free, |_| {}),
            Dequeue::Packet(packet) if packet.class == urgent
        ));
        run.free = run.free + MS;
    }
}

#[test]
fn an_arrival_of_a_class_within_its_rate_ends_the_borrowing_of_a_higher_priority() {
    let mut run = Run::new();
    let urgent = CbqClass {
        priority: 1,
        ..class(1)
    };
    let urgent = leaf(&mut run.cbq, ROOT, urgent);
    let other = leaf(&mut run.cbq, ROOT, class(4));
    run.fill(urgent, 100);
    // It is alone, and borrows.
    let sent = run.send(Nanos::from_millis(50), &[urgent])[&urgent];
    assert_eq!(sent, 50);
    // The next packet but the one in service is the other's.
    run.fill(other, 1);
    assert!(matches!(
        run.cbq.dequeue(run.free, |_| {}),
        Dequeue::Packet(packet) if packet.class == other
    ));
}

#[test]
fn a_loan_from_near_comes_before_one_from_above_whatever_the_priority() {
    let mut run = Run::new();
    let (x, y) = (
        run.cbq.add_inner(ROOT, class(1)).unwrap(),
        run.cbq.add_inner(ROOT, class(6)).unwrap(),
    );
    let urgent = CbqClass {
        priority: 1,
        ..class(1)
    };
    let slow = CbqClass {
        rate: rate(100_000),
        bursts: Bursts {
            max: 1,
            min: 1,
            ..Bursts::default()
        },
        ..class(1)
    };
    let urgent = leaf(&mut run.cbq, x, urgent);
    let slow = leaf(&mut run.cbq, y, slow);
    let other = leaf(&mut run.cbq, y, class(5));
    // One has used up its own share and not its agency's, the other both.
    run.fill(slow, 4);
    run.send(Nanos::from_millis(4), &[]);
    run.fill(urgent, 50);
    run.send(Nanos::from_millis(30), &[urgent]);
    run.fill(slow, 4);
    // A third within its rate bars both from borrowing; after it, its sibling borrows.
    run.fill(other, 1);
    for expected in [other, slow] {
        assert!(matches!(
            run.cbq.dequeue(run.free, |_| {}),
            Dequeue::Packet(packet) if packet.class == expected
        ));
        run.free = run.free + MS;
    }
}

#[test]
fn packets_given_out_at_once_leave_one_after_another() {
    let mut run = Run::new();
    // As fast as the link: never beyond its rate, unless they all left at once.
    let class = leaf(&mut run.cbq, ROOT, bounded(8));
    run.fill(class, 400);
    for burst in 0..20 {
        for _ in 0..20 {
            assert!(matches!(
                run.cbq.dequeue(Nanos::from_millis(20 * burst), |_| {}),
                Dequeue::Packet(_)
            ));
        }
    }
    assert_eq!(run.cbq.stats(class).unwrap().throttled, 0);
}

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

#[test]
fn after_a_silence_a_class_sends_its_largest_burst_and_then_its_rate() {
    for max in [1, 4, 16, 64] {
        let mut run = Run::new();
        let bursts = Bursts {
            max,
            min: 1,
            packet: length(1000),
        };
        let config = CbqClass {
            bursts,
            ..bounded(1)
        };
        let class = leaf(&mut run.cbq, ROOT, config);
        run.fill(class, 500);
        let sent = run.send(Nanos::from_millis(u64::from(max) + 2), &[]);
        // The one that ends the silence costs nothing, and the last may go into debt.
        let burst = sent[&class];
        assert!(
            (max..=max + 2).contains(&burst),
            "{burst} packets, not {max}"
        );
        // From then on, one every 8 ms, but for what a burst costs.
        let before = run.now;
        let sent = run.send(before + Nanos::from_millis(800), &[])[&class];
        assert!((92..=101).contains(&sent), "{sent} packets in 800 ms");
    }
}

#[test]
fn a_suspended_class_goes_on_at_the_time_that_was_told() {
    let mut run = Run::new();
    let class = leaf(&mut run.cbq, ROOT, bounded(1));
    run.fill(class, 100);
    let mut told = 0;
    while !run.cbq.is_empty() {
        match run.cbq.dequeue(run.now, |_| {}) {
            Dequeue::Packet(_) => run.now = run.now + MS,
            Dequeue::NotBefore(time) => {
                told += 1;
                let before = Nanos(time.0 - 1);
                assert_eq!(run.cbq.dequeue(before, |_| {}), Dequeue::NotBefore(time));
                run.now = time;
                assert!(matches!(
                    run.cbq.dequeue(run.now, |_| {}),
                    Dequeue::Packet(_)
                ));
                run.now = run.now + MS;
            }
            Dequeue::Empty => unreachable!("packets wait"),
        }
    }
    assert!(told > 30, "{told} suspensions");
}

#[test]
fn a_coarse_timer_answers_with_its_ticks() {
    let limits = SchedulerLimits::default();
    let tick = Nanos::from_millis(10);
    let mut cbq: Cbq<u32> = Cbq::with_timer(rate(8 * MBIT), limits, tick);
    let class = leaf(&mut cbq, ROOT, bounded(1));
    for n in 0..100 {
        cbq.enqueue(class, length(1000), n, Nanos::ZERO).unwrap();
    }
    let (mut now, mut ticks) = (Nanos::from_millis(3), 0);
    while !cbq.is_empty() {
        match cbq.dequeue(now, |_| {}) {
            Dequeue::Packet(_) => now = now + MS,
            Dequeue::NotBefore(time) => {
                assert_eq!(time.0 % tick.0, 0);
                assert!(time.0 / tick.0 >= now.0 / tick.0 + 2);
                // Who looks before finds the class awake as soon as it may be.
                now = time;
                ticks += 1;
            }
            Dequeue::Empty => unreachable!("packets wait"),
        }
    }
    assert!(ticks > 10, "{ticks} ticks");
}

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
    assert_eq!(give(ClassId::new(77), 100, 1), Err(Rejection::UnknownClass));
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
    assert_eq!(give(open, 401, 11), Err(Rejection::TreeFull));
    assert_eq!(give(open, 400, 12), Ok(()));
    let sixth = give(open, 1, 13);
    assert_eq!(sixth, Err(Rejection::TreeFull));
    assert_eq!(cbq.stats(ROOT).unwrap().dropped.packets, 8);
    assert_eq!(cbq.stats(inner).unwrap().dropped.packets, 7);
    assert_eq!(cbq.stats(open).unwrap().dropped.packets, 2);
    assert_eq!(cbq.stats(none).unwrap().dropped.packets, 1);
}

#[test]
fn a_limit_below_the_backlog_refuses_until_there_is_room_and_keeps_the_count() {
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
        run.now = run.now + MS;
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

fn red(ecn: bool) -> AqmConfig {
    let parameters = RedParameters {
        min: 2,
        max: 4,
        weight_shift: 1,
        ecn,
        ..RedParameters::default()
    };
    AqmConfig::Red(RedConfig::new(parameters).unwrap())
}

fn codel(ecn: bool) -> AqmConfig {
    let parameters = CodelParameters {
        ecn,
        ..CodelParameters::default()
    };
    AqmConfig::Codel(CodelConfig::new(parameters).unwrap())
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
            let (mut refused, mut discarded, mut marked, mut sent) = (0, 0, 0, 0);
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
                    refused += 1;
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
            assert_eq!(stats.dropped.packets, refused);
            assert_eq!(stats.discarded.packets, discarded);
            assert_eq!(stats.sent.packets, sent);
            assert_eq!(stats.accepted.packets + refused, 1000);
            // Marked ones may still be queued.
            let waiting = stats.marked - marked;
            assert!(waiting <= stats.queued.packets);
            let marks = capable && [red(true), codel(true)].contains(&aqm);
            assert_eq!(stats.marked > 0, marks, "{aqm:?}, {capable}");
            let on_arrival = [red(false), red(true)].contains(&aqm);
            assert!(refused == 0 || on_arrival);
            assert!(discarded == 0 || !on_arrival);
            assert!(marks || refused + discarded > 50, "{aqm:?}");
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
                now = now + MS;
            }
        }
        // Ten thousand packets later nothing of it is left.
        now = now + Nanos::from_millis(10_000);
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

#[test]
fn the_slowest_class_the_longest_packet_and_the_end_of_time_do_no_harm() {
    let limits = SchedulerLimits::default();
    for (link, share) in [(1_000, 1_000), (1_000_000_000_000, 1_000)] {
        let mut cbq: Cbq<u32> = Cbq::new(rate(link), limits);
        let config = CbqClass {
            borrow: false,
            ..CbqClass::new(rate(share))
        };
        let class = leaf(&mut cbq, ROOT, config);
        let mut now = Nanos::ZERO;
        for n in 0..200 {
            cbq.enqueue(class, Length::MAX, n, now).unwrap();
        }
        // A packet takes nine minutes; of 1000 bit/s, after the burst at the link's rate.
        let mut sent = 0;
        while !cbq.is_empty() {
            match cbq.dequeue(now, |_| {}) {
                Dequeue::Packet(_) => {
                    sent += 1;
                    let time = 65_535 * 8_000_000_000u128 / u128::from(link);
                    now = now + Nanos(time as u64);
                }
                Dequeue::NotBefore(time) => {
                    assert!(time > now);
                    now = time;
                }
                Dequeue::Empty => unreachable!("packets wait"),
            }
            cbq.invariants().unwrap();
        }
        assert_eq!(sent, 200);
        let ideal = 200 * 524_280_000_000_000u128 / 1000 * u128::from(1_000 / share);
        let off = now.0 as f64 / ideal as f64;
        assert!((0.85..1.01).contains(&off), "{off} of the time at its rate");
        // And at the end of time nothing overflows: a class may then wait for ever.
        for at in [u64::MAX - 1, u64::MAX, 0, u64::MAX] {
            for n in 0..40 {
                cbq.enqueue(class, Length::MAX, n, Nanos(at)).unwrap();
                let _ = cbq.dequeue(Nanos(at), |_| {});
                cbq.invariants().unwrap();
            }
        }
    }
}

#[test]
fn a_class_that_cannot_be_is_refused_with_one_sentence_and_nothing_changes() {
    let mut cbq: Cbq<u32> = cbq(10);
    let inner = cbq.add_inner(ROOT, class(5)).unwrap();
    let leaf = leaf(&mut cbq, inner, class(5));
    let with = |change: fn(&mut CbqClass)| {
        let mut config = class(5);
        change(&mut config);
        config
    };
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
    // The ends of the ranges are allowed.
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
    }
    cbq.invariants().unwrap();
    assert!(matches!(
        cbq.dequeue(Nanos::ZERO, |_| {}),
        Dequeue::Packet(_)
    ));
}

/// What may happen to a link.
#[derive(Clone, Debug)]
enum Op {
    Enqueue {
        class: usize,
        len: u32,
    },
    Dequeue,
    /// Time passes, in microseconds.
    Wait(u64),
    /// Time passes until somebody may send.
    WaitAsTold,
    AddInner {
        parent: usize,
        config: CbqClass,
    },
    AddLeaf {
        parent: usize,
        config: CbqClass,
        leaf: LeafConfig,
    },
    Change {
        class: usize,
        config: CbqClass,
    },
    ChangeLeaf {
        class: usize,
        leaf: LeafConfig,
    },
    Flush(usize),
    Remove(usize),
}

fn any_class() -> impl Strategy<Value = CbqClass> {
    let rates = prop_oneof![Just(1_000), Just(64_000), 1_000_000..10_000_000u64];
    (rates, 0..8u32, any::<bool>(), 1..20u32, 40..1500u32).prop_map(
        |(bps, priority, borrow, max, longest)| CbqClass {
            rate: rate(bps),
            priority,
            borrow,
            bursts: Bursts {
                max,
                min: 1 + max / 3,
                packet: length(longest),
            },
            max_length: length(1500),
        },
    )
}

fn any_leaf() -> impl Strategy<Value = LeafConfig> {
    let aqm = prop_oneof![
        3 => Just(AqmConfig::TailDrop),
        1 => Just(red(false)),
        1 => Just(codel(false)),
    ];
    (aqm, 0..20u32).prop_map(|(aqm, packets)| LeafConfig {
        limits: Limits {
            packets,
            bytes: 20_000,
        },
        aqm,
        rate: rate(MBIT),
    })
}

fn op() -> impl Strategy<Value = Op> {
    let at = 0..12usize;
    prop_oneof![
        8 => (at.clone(), 1..1600u32).prop_map(|(class, len)| Op::Enqueue { class, len }),
        6 => Just(Op::Dequeue),
        2 => (0..50_000u64).prop_map(Op::Wait),
        2 => Just(Op::WaitAsTold),
        1 => (at.clone(), any_class()).prop_map(|(parent, config)| Op::AddInner { parent, config }),
        2 => (at.clone(), any_class(), any_leaf())
            .prop_map(|(parent, config, leaf)| Op::AddLeaf { parent, config, leaf }),
        1 => (at.clone(), any_class()).prop_map(|(class, config)| Op::Change { class, config }),
        1 => (at.clone(), any_leaf()).prop_map(|(class, leaf)| Op::ChangeLeaf { class, leaf }),
        1 => at.clone().prop_map(Op::Flush),
        1 => at.prop_map(Op::Remove),
    ]
}

/// What a link should hold, class by class.
#[derive(Default)]
struct Model {
    queues: BTreeMap<ClassId, VecDeque<(u32, u64)>>,
    accepted: u64,
    gone: u64,
}

impl Model {
    /// A packet of a class leaves or is lost: it is the first one.
    fn take(&mut self, class: ClassId, len: Length, payload: u64) {
        let queue = self.queues.get_mut(&class).unwrap();
        assert_eq!(queue.pop_front(), Some((len.get(), payload)));
        self.gone += 1;
    }
}

proptest! {
    /// Packets leave in the order of their class, each once, whatever happens to the
    /// classes; nobody waits for ever; and every count is the sum of its parts.
    #[test]
    fn no_packet_is_lost_or_forgotten(
        granularity in prop_oneof![2 => Just(0u64), 1 => Just(10_000_000)],
        ops in proptest::collection::vec(op(), 1..300),
    ) {
        let limits = SchedulerLimits { packets: 60, ..SchedulerLimits::default() };
        let mut cbq: Cbq<u64> = Cbq::with_timer(rate(10 * MBIT), limits, Nanos(granularity));
        let mut model = Model::default();
        let (mut now, mut told, mut number) = (Nanos::ZERO, Nanos::ZERO, 0);
        for op in ops {
            match op {
                Op::Enqueue { class, len } => {
                    let class = ClassId::new(class as u32);
                    number += 1;
                    if cbq.enqueue(class, length(len), number, now).is_ok() {
                        model.queues.entry(class).or_default().push_back((len, number));
                        model.accepted += 1;
                    }
                }
                Op::Dequeue => {
                    let mut lost = Vec::new();
                    let answer = cbq.dequeue(now, |gone| lost.push(gone));
                    for gone in lost {
                        model.take(gone.class, gone.len, gone.payload);
                    }
                    match answer {
                        Dequeue::Packet(p) => model.take(p.class, p.len, p.payload),
                        Dequeue::NotBefore(time) => {
                            prop_assert!(time > now && !cbq.is_empty());
                            told = time;
                        }
                        Dequeue::Empty => prop_assert!(cbq.is_empty()),
                    }
                }
                Op::Wait(micros) => now = now + Nanos::from_micros(micros),
                Op::WaitAsTold => now = now.max(told),
                Op::AddInner { parent, config } => {
                    let _ = cbq.add_inner(ClassId::new(parent as u32), config);
                }
                Op::AddLeaf { parent, config, leaf } => {
                    let _ = cbq.add_leaf(ClassId::new(parent as u32), config, leaf);
                }
                Op::Change { class, config } => {
                    let _ = cbq.change(ClassId::new(class as u32), config);
                }
                Op::ChangeLeaf { class, leaf } => {
                    let _ = cbq.change_leaf(ClassId::new(class as u32), leaf);
                }
                Op::Flush(class) => {
                    let _ = cbq.flush(ClassId::new(class as u32), now, |gone| {
                        model.take(gone.class, gone.len, gone.payload);
                    });
                }
                Op::Remove(class) => {
                    let _ = cbq.remove(ClassId::new(class as u32), |gone| {
                        model.take(gone.class, gone.len, gone.payload);
                    });
                }
            }
            if let Err(violation) = cbq.invariants() {
                return Err(TestCaseError::fail(violation.to_string()));
            }
            let stats = cbq.stats(ROOT).unwrap();
            prop_assert_eq!(stats.accepted.packets, model.accepted);
            prop_assert_eq!(stats.sent.packets + stats.discarded.packets, model.gone);
            let queued: usize = model.queues.values().map(VecDeque::len).sum();
            prop_assert_eq!(cbq.len() as usize, queued);
        }
        // What is left is sent, in as many looks as there are packets and suspensions.
        for _ in 0..10_000 {
            match cbq.dequeue(now, |_| {}) {
                Dequeue::Packet(_) => {}
                Dequeue::NotBefore(time) => {
                    prop_assert!(time > now);
                    now = time;
                }
                Dequeue::Empty => break,
            }
        }
        prop_assert!(cbq.is_empty());
    }
}
