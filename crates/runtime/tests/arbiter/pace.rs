//! The link's pace: PSPAT's leaky bucket (Fig. 5, lines 11 to 17), seen from the
//! far end of the device.

use fairlane_core::sched::{Fifo, Qfq};
use fairlane_core::{FlowConfig, Nanos};
use fairlane_runtime::{ArbiterConfig, Link, Next};
use proptest::prelude::*;

use crate::rig::{BYTE_A_MICROSECOND, Rig, config, length, link, ms, on, us, weight};

const NANOS: u128 = 1_000_000_000;

/// No limit of a step gets in the way of the link.
fn paced_only_by(link: Link) -> ArbiterConfig {
    ArbiterConfig {
        drain_limit: usize::MAX,
        release_limit: 1_000_000,
        mailbox_slots: 4096,
        ..on(link)
    }
}

/// The bytes that one step carried, and when.
#[derive(Clone, Copy, Debug)]
struct Carried {
    at: Nanos,
    bits: u128,
}

/// Over any run of steps: the bits carried take no longer than from the step before
/// the first to the last, and one packet. Before the first step, idle time counts
/// as far back as the link makes up for.
fn assert_within_the_rate(steps: &[Carried], link: Link, longest: u32) {
    let rate = u128::from(link.rate.bps());
    for (first, step) in steps.iter().enumerate() {
        let before = first.checked_sub(1).map_or(Nanos::ZERO, |n| steps[n].at);
        let from = before.max(step.at - link.catch_up);
        let mut bits = 0;
        for last in &steps[first..] {
            bits += last.bits;
            // A packet may start within the nanosecond `last.at`.
            let time = u128::from(last.at.0 + 1 - from.0);
            assert!(
                bits * NANOS < rate * time + u128::from(longest) * 8 * NANOS,
                "{bits} bits from {:?} to {:?} exceed {link:?}",
                step.at,
                last.at,
            );
        }
    }
}

/// Nanoseconds to the next step, and what two clients push before it.
type Round = (u64, [(u32, usize); 2]);

fn rounds() -> impl Strategy<Value = Vec<Round>> {
    let span = prop_oneof![
        4 => 0u64..2_000_000,
        2 => Just(1_000u64),
        1 => 2_000_000u64..100_000_000,
    ];
    let packets = || (1u32..=1500, prop_oneof![2 => Just(0usize), 3 => 0usize..30]);
    proptest::collection::vec(
        (span, [packets().boxed(), packets().boxed()].prop_map_into()),
        1..80,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn over_any_interval_the_link_carries_no_more_than_its_rate_and_one_packet(
        bps in prop_oneof![Just(1_000_000u64), Just(7_777_777), Just(100_000_000), 1_000u64..1_000_000_000],
        overhead in prop_oneof![Just(0u32), Just(38), 0u32..500],
        catch_up in prop_oneof![Just(0u64), Just(1_000_000), Just(20_000_000)],
        rounds in rounds(),
    ) {
        let link = Link { overhead, catch_up: Nanos(catch_up), ..link(bps) };
        let mut rig = Rig::new(Qfq::new(), paced_only_by(link));
        let mut senders = [rig.join(weight(1)), rig.join(weight(5))];
        let mut steps = Vec::new();
        for (span, pushes) in rounds {
            for (sender, (len, packets)) in senders.iter_mut().zip(pushes) {
                sender.push_all(packets, len);
            }
            rig.step_after(Nanos(span));
            let bits = rig.arrived().iter().map(|p| u128::from(p.len + overhead) * 8).sum();
            steps.push(Carried { at: rig.now, bits });
        }
        assert_within_the_rate(&steps, link, 1500 + overhead);
    }
}

#[test]
fn a_backlogged_link_is_full_to_the_last_bit() {
    for (bps, overhead) in [(7_777_777, 38), (100_000_000, 0), (999_999_937, 24)] {
        let link = Link {
            overhead,
            ..link(bps)
        };
        let mut rig = Rig::new(Qfq::new(), paced_only_by(link));
        let mut senders = [rig.join(weight(1)), rig.join(weight(3))];
        let mut bits = 0;
        // At most the time of the 8000 bytes that a round adds at least.
        let longest_span = 8_000 * 8 * 1_000_000_000 / bps;
        for round in 0..300u64 {
            if rig.arbiter.total_stats().queued.packets < 200 {
                for sender in &mut senders {
                    sender.push_all(40, 100 + (round * 401 % 1400) as u32);
                }
            }
            let step = rig.step_after(Nanos(1 + round * round * 7_919 % longest_span));
            let carried = rig.arrived();
            bits += carried
                .iter()
                .map(|p| u128::from(p.len + overhead) * 8)
                .sum::<u128>();
            let Next::At(idle) = step.next else {
                panic!("backlogged, and {step:?}");
            };
            // All bits so far keep the link busy exactly until `idle`, the first
            // nanosecond after the present in which a packet could start.
            let busy = (bits * NANOS / u128::from(bps)) as u64;
            assert_eq!(idle, Nanos(busy), "{bps} bit/s");
            assert!(idle > rig.now);
            if let Some(last) = carried.last() {
                let started = bits - u128::from(last.len + overhead) * 8;
                assert!(started * NANOS / u128::from(bps) <= u128::from(rig.now.0));
            }
        }
        assert!(bits > 300 * 1500 * 8 / 2, "the test carried something");
    }
}

/// Returns a backlog of packets that last a millisecond each; the first is released.
fn backlogged_for_long() -> (Rig<Fifo>, crate::rig::Sender) {
    let mut rig = Rig::new(Fifo::new(), paced_only_by(config().link));
    let mut sender = rig.join(weight(1));
    sender.push_all(1000, 1000);
    assert_eq!(rig.step().next, Next::At(ms(1)));
    (rig, sender)
}

#[test]
fn a_late_step_makes_up_for_all_of_the_catch_up_and_no_more() {
    // The link is idle from 1 ms on and makes up for 20 ms.
    for (late, released) in [(1, 1), (20, 20), (21, 21), (22, 21), (23, 21), (900, 21)] {
        let (mut rig, _sender) = backlogged_for_long();
        assert_eq!(rig.step_at(ms(late)).released, released, "at {late} ms");
        assert_eq!(rig.step_after(Nanos::ZERO).released, 0);
        assert_eq!(rig.step_after(ms(1)).released, 1);
    }
}

#[test]
fn what_a_late_step_lost_is_lost_for_good() {
    let (mut rig, _sender) = backlogged_for_long();
    assert_eq!(rig.step_at(ms(100)).next, Next::At(ms(101)));
    for time in 101..150 {
        assert_eq!(rig.step_at(ms(time)).released, 1, "at {time} ms");
    }
}

#[test]
fn without_catch_up_a_late_step_releases_one_packet() {
    let link = Link {
        catch_up: Nanos::ZERO,
        ..config().link
    };
    let mut rig = Rig::new(Fifo::new(), paced_only_by(link));
    let mut sender = rig.join(weight(1));
    sender.push_all(100, 1000);
    for late in [0, 10, 11, 500] {
        let step = rig.step_at(ms(late));
        assert_eq!((step.released, step.next), (1, Next::At(ms(late + 1))));
    }
}

#[test]
fn a_link_that_idled_for_want_of_packets_has_nothing_to_make_up_for() {
    let mut rig = Rig::new(Fifo::new(), paced_only_by(config().link));
    let mut sender = rig.join(weight(1));
    for time in 0..20 {
        assert_eq!(rig.step_at(ms(time)).next, Next::WhenPushed);
    }
    sender.push_all(100, 1000);
    assert_eq!(rig.step().released, 1);
    assert_eq!(rig.step_after(us(999)).released, 0);
    assert_eq!(rig.step_after(us(1)).released, 1);
}

#[test]
fn a_backlog_that_ends_early_leaves_no_credit() {
    let mut rig = Rig::new(Fifo::new(), paced_only_by(config().link));
    let mut sender = rig.join(weight(1));
    sender.push_all(3, 1000);
    for time in 0..10 {
        rig.step_at(ms(time));
    }
    sender.push_all(100, 1000);
    assert_eq!(rig.step().released, 1);
    assert_eq!(rig.step().next, Next::At(ms(10)));
}

#[test]
fn overhead_keeps_the_link_busy_and_leaves_the_payload_alone() {
    let link = Link {
        overhead: 250,
        ..link(BYTE_A_MICROSECOND)
    };
    let mut rig = Rig::new(Fifo::new(), on(link));
    let mut sender = rig.join(FlowConfig {
        max_length: length(750),
        ..weight(1)
    });
    sender.push_all(2, 750);
    assert_eq!(rig.step().next, Next::At(ms(1)));
    assert_eq!(rig.arrived()[0].len, 750);
    assert_eq!(rig.stats(&sender).flow.sent.bytes, 1000);
    assert_eq!(rig.stats(&sender).flow.queued.bytes, 1000);
}
