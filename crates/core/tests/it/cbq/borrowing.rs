//! The order of service, and borrowing between classes.

use fairlane_core::Dequeue;
use fairlane_core::Nanos;
use fairlane_core::tree::cbq::{Bursts, CbqClass};

use super::rig::*;

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
    // Far beyond their rates: only the round robin decides their shares.
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
        assert!(run.cbq.stats(busy).unwrap().overlimits > 0);
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
            Dequeue::Packet(packet) if packet.owner == urgent
        ));
        run.free += MS;
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
        Dequeue::Packet(packet) if packet.owner == other
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
            Dequeue::Packet(packet) if packet.owner == expected
        ));
        run.free += MS;
    }
}
