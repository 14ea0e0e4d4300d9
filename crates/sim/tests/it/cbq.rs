//! CBQ holds a class that may not borrow to its rate, and how a coarse timer kept it from
//! that.

use crate::support::{length, rate};
use fairlane_core::tree::cbq::{Cbq, CbqClass};
use fairlane_core::tree::{ClassId, LeafConfig};
use fairlane_core::{Nanos, SchedulerLimits};
use fairlane_sim::{
    ClassMeter, ClassPacket, ClassSource, Lengths, Picos, Simulation, Traffic, TransmitQueue,
};

/// Returns a class that may not borrow.
fn bounded(bps: u64, longest: u32) -> CbqClass {
    CbqClass {
        borrow: false,
        ..CbqClass::new(rate(bps), length(longest))
    }
}

/// Mean rate of one backlogged class on a link, after a start.
fn measured(link: u64, class: CbqClass, packets: Lengths, granularity: Nanos, span: Picos) -> f64 {
    let limits = SchedulerLimits::default();
    let mut cbq: Cbq<ClassPacket> = Cbq::with_timer(rate(link), limits, granularity);
    let leaf = cbq
        .add_leaf(ClassId::ROOT, class, LeafConfig::default())
        .unwrap();
    let meter = ClassMeter::new(Picos(span.0 / 10));
    let mut run = Simulation::of_classes(cbq, rate(link), TransmitQueue::NONE, meter, 1);
    run.add_source(ClassSource::new(leaf.into(), Traffic::Greedy(64), packets))
        .unwrap();
    // The first interval has the burst after the silence.
    run.run_until(Picos(span.0 * 11 / 10));
    let meter = run.observer();
    meter.rate(leaf, Picos(span.0 / 10), Picos(span.0 * 11 / 10))
}

#[test]
fn a_class_that_may_not_borrow_holds_its_rate_within_a_percent() {
    // At least 2000 packets at each rate.
    for (link, share, millis) in [
        (1_000_000, 64_000, 500_000),
        (100_000_000, 1_000_000, 40_000),
        (100_000_000, 45_000_000, 1000),
        (100_000_000, 95_000_000, 1000),
        (1_000_000_000, 333_333_333, 100),
        (10_000_000_000, 10_000_000_000, 50),
        (100_000_000_000, 10_000_000_000, 50),
        (1_000_000_000_000, 10_000_000_000, 50),
    ] {
        for packets in [
            Lengths::Fixed(length(1500)),
            Lengths::Fixed(length(64)),
            Lengths::Uniform(length(64), length(1500)),
        ] {
            let span = if packets == Lengths::Fixed(length(64)) {
                Picos::from_millis(millis / 10)
            } else {
                Picos::from_millis(millis)
            };
            let class = bounded(share, 1500);
            let found = measured(link, class, packets.clone(), Nanos::ZERO, span);
            let off = found / share as f64 - 1.0;
            assert!(
                off.abs() < 0.01,
                "{share} bit/s on {link}, {packets:?}: {found}, off by {:.2}%",
                off * 100.0
            );
        }
    }
}

#[test]
fn with_a_timer_of_10_ms_a_class_sends_a_burst_every_20_ms_whatever_its_rate() {
    let packets = Lengths::Fixed(length(1500));
    let second = Picos::from_secs(1);
    let tick = Nanos::from_millis(10);
    // 16 packets of 1500 bytes in 20 ms are 9.6 Mbit/s (Cho 1998, Section 3.2).
    for share in [15_000_000, 30_000_000, 55_000_000] {
        let coarse = measured(
            100_000_000,
            bounded(share, 1500),
            packets.clone(),
            tick,
            second,
        );
        assert!(
            (9_000_000.0..11_500_000.0).contains(&coarse),
            "{share} bit/s: {coarse} with a coarse timer"
        );
        let exact = measured(
            100_000_000,
            bounded(share, 1500),
            packets.clone(),
            Nanos::ZERO,
            second,
        );
        assert!(
            (exact / share as f64 - 1.0).abs() < 0.01,
            "{share}: {exact}"
        );
    }
    // On 10 Mbit/s the same timer does no harm, and one of 1 ms none on 100 Mbit/s.
    let slow = measured(
        10_000_000,
        bounded(5_000_000, 1500),
        packets.clone(),
        tick,
        second,
    );
    assert!((slow / 5e6 - 1.0).abs() < 0.1, "{slow}");
    let tick = Nanos::from_millis(1);
    let fine = measured(
        100_000_000,
        bounded(55_000_000, 1500),
        packets,
        tick,
        second,
    );
    assert!((fine / 55e6 - 1.0).abs() < 0.1, "{fine}");
}

#[test]
fn other_traffic_wakes_a_class_before_a_coarse_timer_does() {
    let link = rate(100_000_000);
    let limits = SchedulerLimits::default();
    let mut cbq: Cbq<ClassPacket> = Cbq::with_timer(link, limits, Nanos::from_millis(10));
    let mut leaf = |class| {
        cbq.add_leaf(ClassId::ROOT, class, LeafConfig::default())
            .unwrap()
    };
    let shaped = leaf(bounded(55_000_000, 1500));
    let other = leaf(bounded(20_000_000, 1500));
    let meter = ClassMeter::new(Picos::from_millis(100));
    let mut run = Simulation::of_classes(cbq, link, TransmitQueue::NONE, meter, 1);
    let packets = Lengths::Fixed(length(1500));
    let sources = [
        (shaped, Traffic::Greedy(64)),
        (other, Traffic::Cbr(rate(15_000_000))),
    ];
    for (class, traffic) in sources {
        let source = ClassSource::new(class.into(), traffic, packets.clone());
        run.add_source(source).unwrap();
    }
    run.run_until(Picos::from_secs(1));
    let meter = run.observer();
    let found = meter.rate(shaped, Picos::from_millis(100), Picos::from_secs(1));
    assert!(found > 40e6, "{found}");
}
/// Mean rates of backlogged classes on a link of 100 Mbit/s.
fn together(classes: &[CbqClass], packets: &Lengths) -> Vec<f64> {
    let link = rate(100_000_000);
    let mut cbq: Cbq<ClassPacket> = Cbq::new(link, SchedulerLimits::default());
    let mut leaf = |&class| {
        cbq.add_leaf(ClassId::ROOT, class, LeafConfig::default())
            .unwrap()
    };
    let leaves: Vec<ClassId> = classes.iter().map(&mut leaf).collect();
    let meter = ClassMeter::new(Picos::from_millis(100));
    let mut run = Simulation::of_classes(cbq, link, TransmitQueue::NONE, meter, 1);
    for &leaf in &leaves {
        let source = ClassSource::new(leaf.into(), Traffic::Greedy(64), packets.clone());
        run.add_source(source).unwrap();
    }
    run.run_until(Picos::from_secs(4));
    let meter = run.observer();
    let measured = |&leaf| meter.rate(leaf, Picos::from_millis(200), Picos::from_secs(4));
    leaves.iter().map(measured).collect()
}

#[test]
fn the_others_have_what_those_that_may_not_borrow_leave() {
    for packets in [
        Lengths::Fixed(length(1500)),
        Lengths::Fixed(length(200)),
        Lengths::Uniform(length(64), length(1500)),
    ] {
        for priorities in [[0, 0, 0, 0], [3, 2, 1, 0], [1, 0, 0, 0]] {
            let mut classes = [10, 20, 30, 15].map(|share| bounded(share * 1_000_000, 1500));
            classes[3].borrow = true;
            for (class, priority) in classes.iter_mut().zip(priorities) {
                class.priority = priority;
            }
            let found = together(&classes, &packets);
            for (found, expected) in found.iter().zip([10e6, 20e6, 30e6, 40e6]) {
                assert!(
                    (found / expected - 1.0).abs() < 0.01,
                    "{packets:?}, {priorities:?}: {found} of {expected}"
                );
            }
        }
    }
}
