//! When a class may send, and is said to.

use fairlane_core::Dequeue;
use fairlane_core::tree::cbq::{Bursts, Cbq, CbqClass};
use fairlane_core::{Length, Nanos, SchedulerLimits};

use super::rig::*;

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
    assert_eq!(run.cbq.stats(class).unwrap().overlimits, 0);
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
        // From then on, one every 8 ms, apart from the cost of a burst.
        let before = run.now;
        let sent = run.send(before + Nanos::from_millis(800), &[])[&class];
        assert!((92..=101).contains(&sent), "{sent} packets in 800 ms");
    }
}

#[test]
fn suspended_class_resumes_at_the_reported_time() {
    let mut run = Run::new();
    let class = leaf(&mut run.cbq, ROOT, bounded(1));
    run.fill(class, 100);
    let mut told = 0;
    while !run.cbq.is_empty() {
        match run.cbq.dequeue(run.now, |_| {}) {
            Dequeue::Packet(_) => run.now += MS,
            Dequeue::NotBefore(time) => {
                told += 1;
                let before = Nanos(time.0 - 1);
                assert_eq!(run.cbq.dequeue(before, |_| {}), Dequeue::NotBefore(time));
                run.now = time;
                assert!(matches!(
                    run.cbq.dequeue(run.now, |_| {}),
                    Dequeue::Packet(_)
                ));
                run.now += MS;
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
            Dequeue::Packet(_) => now += MS,
            Dequeue::NotBefore(time) => {
                assert_eq!(time.0 % tick.0, 0);
                assert!(time.0 / tick.0 >= now.0 / tick.0 + 2);
                // An earlier call finds the class awake as soon as it may be.
                now = time;
                ticks += 1;
            }
            Dequeue::Empty => unreachable!("packets wait"),
        }
    }
    assert!(ticks > 10, "{ticks} ticks");
}

#[test]
fn the_slowest_class_the_longest_packet_and_the_end_of_time_do_no_harm() {
    let limits = SchedulerLimits::default();
    for (link, share) in [(1_000, 1_000), (1_000_000_000_000, 1_000)] {
        let mut cbq: Cbq<u32> = Cbq::new(rate(link), limits);
        let config = CbqClass {
            borrow: false,
            ..CbqClass::new(rate(share), Length::MAX)
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
                    now += Nanos(time as u64);
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
        // And at the end of time nothing overflows: the suspension of a class may then never end.
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
fn suspended_classes_that_are_freed_send_at_once_and_keep_to_their_rates_later() {
    let mut run = Run::new();
    let classes = [1, 2].map(|mbit| leaf(&mut run.cbq, ROOT, bounded(mbit)));
    for class in classes {
        run.fill(class, 100);
    }
    let mut freed = 0;
    while !run.cbq.is_empty() {
        match run.cbq.dequeue(run.now, |_| {}) {
            Dequeue::Packet(_) => {}
            Dequeue::NotBefore(time) => {
                assert!(time > run.now);
                freed += run.cbq.free_held(1, run.now);
            }
            Dequeue::Empty => panic!("packets wait"),
        }
        run.cbq.invariants().unwrap();
    }
    assert!(freed > 4, "{freed}");
    assert_eq!(run.cbq.free_held(1, run.now), 0, "nobody is suspended");
    // Much later the initial state is restored.
    run.now = Nanos::from_millis(10_000);
    for class in classes {
        run.fill(class, 2_000);
    }
    let sent = run.send(Nanos::from_millis(14_000), &[]);
    assert!((480..=540).contains(&sent[&classes[0]]), "{sent:?}");
    assert!((970..=1_060).contains(&sent[&classes[1]]), "{sent:?}");
}
