//! RED follows Floyd and Jacobson's formulas, in fixed point.

use fairlane_core::aqm::{
    AqmError, Backlog, Measure, Probability, Red, RedConfig, RedParameters, Verdict, red,
};
use fairlane_core::{Length, Nanos, Rate};
use proptest::prelude::*;

const SCALE: f64 = (1u64 << 32) as f64;

fn rate(bps: u64) -> Rate {
    Rate::from_bps(bps).unwrap()
}

fn length(bytes: u32) -> Length {
    Length::new(bytes).unwrap()
}

fn probability(ppm: u32) -> Probability {
    Probability::from_ppm(ppm).unwrap()
}

fn red(parameters: RedParameters) -> Red {
    Red::new(RedConfig::new(parameters).unwrap(), rate(8_000_000), 1)
}

/// Returns a queue of `packets` packets of 1000 bytes.
fn packets(packets: u32) -> Backlog {
    Backlog {
        packets,
        bytes: u64::from(packets) * 1000,
    }
}

fn average(red: &Red) -> f64 {
    red.average() as f64 / SCALE
}

/// Lets the average reach a constant queue; one half weighs the last packet.
fn settled(parameters: RedParameters, queue: Backlog) -> Red {
    let mut red = red(RedParameters {
        weight_shift: 1,
        ..parameters
    });
    for _ in 0..70 {
        let _ = red.arriving(Nanos::ZERO, queue, length(1000));
    }
    red
}

/// Packets from one drop or mark to the next.
fn gaps(red: &mut Red, queue: Backlog, len: Length, drops: usize) -> Vec<u32> {
    let mut gaps = Vec::new();
    let mut gap = 0;
    while gaps.len() <= drops {
        gap += 1;
        if red.arriving(Nanos::ZERO, queue, len) != Verdict::Pass {
            gaps.push(gap);
            gap = 0;
        }
    }
    // The first one began before the average had settled.
    gaps.remove(0);
    gaps
}

fn mean(gaps: &[u32]) -> f64 {
    gaps.iter().map(|&gap| f64::from(gap)).sum::<f64>() / gaps.len() as f64
}

/// Returns the mean of the least n with n p >= R, for R uniform from 0 to 1: about 1 / 2p.
fn mean_gap(p: f64) -> f64 {
    (0..=(1.0 / p) as u32).map(|n| 1.0 - f64::from(n) * p).sum()
}

/// Section 4: p_b = max_p (avg - min) / (max - min), and the gentle line above.
fn formula(average: f64, min: f64, max: f64, max_p: f64) -> f64 {
    if average < max {
        max_p * (average - min) / (max - min)
    } else {
        max_p + (1.0 - max_p) * (average - max) / max
    }
}

#[test]
fn drops_are_as_frequent_as_the_formula_says_in_both_regions() {
    let parameters = RedParameters {
        min: 20,
        max: 60,
        max_p: probability(100_000),
        gentle: true,
        ..RedParameters::default()
    };
    for queue in [21, 25, 30, 40, 59, 60, 61, 70, 90, 119] {
        let mut red = settled(parameters, packets(queue));
        let gaps = gaps(&mut red, packets(queue), length(1000), 20_000);
        let p = formula(queue.into(), 20.0, 60.0, 0.1);
        // Of a uniform gap up to 1/p, over 20,000 drops: four standard errors.
        let error = 4.0 / p / 12f64.sqrt() / 20_000f64.sqrt();
        assert!(
            (mean(&gaps) - mean_gap(p)).abs() < error,
            "{queue}: p = {p}: a drop every {} packets, not {}",
            mean(&gaps),
            mean_gap(p)
        );
    }
}

#[test]
fn gaps_between_drops_are_uniform_and_not_geometric() {
    let parameters = RedParameters {
        min: 10,
        max: 30,
        max_p: probability(100_000),
        ..RedParameters::default()
    };
    // p = 0.05: from 1 to 20 packets.
    let mut red = settled(parameters, packets(20));
    let gaps = gaps(&mut red, packets(20), length(1000), 40_000);
    let mut seen = [0u32; 22];
    for &gap in &gaps {
        seen[gap.min(21) as usize] += 1;
    }
    // A gap of 21 is the rounding of the last bits, once in 10^6.
    assert!(seen[21] <= 2, "{} gaps beyond 1/p", seen[21]);
    let expected = gaps.len() as f64 / 20.0;
    let chi_squared: f64 = seen[1..21]
        .iter()
        .map(|&n| (f64::from(n) - expected).powi(2) / expected)
        .sum();
    // 19 degrees of freedom: above 51 once in 10,000 runs.
    assert!(chi_squared < 51.0, "{chi_squared}: {seen:?}");
}

#[test]
fn a_gap_says_nothing_about_the_next() {
    let mut red = settled(RedParameters::default(), packets(10));
    let gaps = gaps(&mut red, packets(10), length(1000), 40_000);
    let mean = mean(&gaps);
    let deviation = |gap: u32| f64::from(gap) - mean;
    let variance: f64 = gaps.iter().map(|&gap| deviation(gap).powi(2)).sum();
    let covariance: f64 = gaps
        .windows(2)
        .map(|pair| deviation(pair[0]) * deviation(pair[1]))
        .sum();
    let correlation = covariance / variance;
    assert!(correlation.abs() < 4.0 / 40_000f64.sqrt(), "{correlation}");
}

#[test]
fn what_arrived_before_the_average_fell_below_counts_no_more() {
    let config = RedConfig::new(RedParameters {
        min: 10,
        max: 30,
        weight_shift: 1,
        ..RedParameters::default()
    });
    let (mut visits, mut dropped) = (0, 0);
    for seed in 0..4000 {
        let mut red = Red::new(config.unwrap(), rate(1_000_000), seed);
        let mut arrive = |queue| red.arriving(Nanos::ZERO, packets(queue), length(1000));
        // p = 0.05 once the average is 20. After a drop, 18 packets without the next one.
        while arrive(20) == Verdict::Pass {}
        if (0..18).any(|_| arrive(20) != Verdict::Pass) {
            continue;
        }
        // The average falls to 5, and is 20 again with the next packet.
        let _ = (arrive(0), arrive(0));
        visits += 1;
        dropped += u32::from([35, 20].map(&mut arrive).contains(&Verdict::Drop));
    }
    // One in twenty each; else it would be nearly all.
    assert!(
        visits > 200 && dropped * 4 < visits,
        "{dropped} of {visits}"
    );
}

#[test]
fn queues_with_different_seeds_drop_different_packets() {
    let config = RedConfig::new(RedParameters {
        weight_shift: 1,
        ..RedParameters::default()
    });
    let verdicts = |seed| {
        let mut red = Red::new(config.unwrap(), rate(1_000_000), seed);
        let verdicts: Vec<_> = (0..1000)
            .map(|_| red.arriving(Nanos::ZERO, packets(12), length(100)))
            .collect();
        verdicts
    };
    assert_eq!(verdicts(1), verdicts(1));
    assert_ne!(verdicts(1), verdicts(2));
}

#[test]
fn below_the_lower_threshold_nothing_is_dropped_and_above_the_hard_one_all() {
    for (gentle, hard) in [(false, 15), (true, 30)] {
        for ecn in [false, true] {
            let parameters = RedParameters {
                gentle,
                ecn,
                ..RedParameters::default()
            };
            let verdicts = |queue| {
                let mut red = settled(parameters, packets(queue));
                let verdicts: Vec<_> = (0..1000)
                    .map(|_| red.arriving(Nanos::ZERO, packets(queue), length(1000)))
                    .collect();
                verdicts
            };
            assert!(verdicts(4).iter().all(|&v| v == Verdict::Pass));
            // An average comes from below to within the last bits of a queue of 15.
            assert!(verdicts(hard + 1).iter().all(|&v| v == Verdict::Drop));
            let between = verdicts(hard - 1);
            let signal = if ecn { Verdict::Mark } else { Verdict::Drop };
            assert!(between.contains(&signal));
            assert!(between.iter().all(|&v| v == signal || v == Verdict::Pass));
        }
    }
}

#[test]
fn in_bytes_a_longer_packet_is_more_likely_to_be_dropped() {
    let parameters = RedParameters {
        measure: Measure::Bytes,
        min: 20_000,
        max: 60_000,
        max_p: probability(20_000),
        mean_packet: length(500),
        ..RedParameters::default()
    };
    let queue = Backlog {
        packets: 3,
        bytes: 40_000,
    };
    for len in [40, 500, 1500] {
        let mut red = settled(parameters, queue);
        let gaps = gaps(&mut red, queue, length(len), 10_000);
        let p = 0.01 * f64::from(len) / 500.0;
        let error = 4.0 / p / 12f64.sqrt() / 10_000f64.sqrt();
        let found = mean(&gaps);
        assert!(
            (found - mean_gap(p)).abs() < error,
            "{len} bytes: a drop every {found} packets, not {}",
            mean_gap(p)
        );
    }
}

#[test]
fn an_idle_time_counts_as_the_packets_it_could_have_sent() {
    let parameters = RedParameters {
        mean_packet: length(1000),
        weight_shift: 9,
        ..RedParameters::default()
    };
    // A packet a millisecond.
    for packets_missed in [0, 1, 10, 355, 3000, 1_000_000] {
        let mut red = red(parameters);
        for _ in 0..5000 {
            let _ = red.arriving(Nanos::ZERO, packets(12), length(1000));
        }
        let before = average(&red);
        red.emptied(Nanos::from_millis(700));
        let now = Nanos::from_millis(700 + packets_missed);
        let _ = red.arriving(now, Backlog::default(), length(1000));
        let expected = before * (1.0 - 1.0 / 512.0f64).powf(packets_missed as f64);
        assert!(
            (average(&red) - expected).abs() <= 1e-6 * expected + 1.0 / SCALE,
            "{packets_missed} packets: {}, not {expected}",
            average(&red)
        );
    }
}

#[test]
fn a_packet_that_an_empty_queue_rejects_does_not_end_its_idle_time() {
    let parameters = RedParameters {
        gentle: false,
        ..RedParameters::default()
    };
    // The queue empties faster than its average falls.
    let mut red = settled(parameters, packets(64));
    red.emptied(Nanos::ZERO);
    let mut arriving = |ms| red.arriving(Nanos::from_millis(ms), Backlog::default(), length(1000));
    assert_eq!(arriving(1), Verdict::Drop);
    // Later traffic finds no trace of the queue, at a packet a millisecond.
    assert_eq!(arriving(1000), Verdict::Pass);
    assert!(average(&red) < 1e-6, "{}", average(&red));
}

#[test]
fn a_queue_that_is_not_empty_was_not_idle() {
    let mut red = settled(RedParameters::default(), packets(12));
    red.emptied(Nanos::ZERO);
    // It was refilled from elsewhere: a change of class, a transferred queue.
    let _ = red.arriving(Nanos::from_millis(1000), packets(12), length(1000));
    assert!(average(&red) > 11.9);
    // And the idle time is over: it is not counted later.
    let _ = red.arriving(Nanos::from_millis(2000), Backlog::default(), length(1000));
    assert!(average(&red) > 5.9);
}

#[test]
fn times_that_go_back_and_queues_without_end_do_no_harm() {
    let mut red = settled(RedParameters::default(), packets(12));
    let before = average(&red);
    red.emptied(Nanos::from_millis(1000));
    let _ = red.arriving(Nanos::ZERO, Backlog::default(), length(1000));
    assert_eq!(average(&red), before);
    red.emptied(Nanos::ZERO);
    let _ = red.arriving(Nanos::MAX, Backlog::default(), length(1000));
    assert_eq!(average(&red), 0.0);
    for measure in [Measure::Packets, Measure::Bytes] {
        let endless = Backlog {
            packets: u32::MAX,
            bytes: u64::MAX,
        };
        let parameters = RedParameters {
            measure,
            ..RedParameters::default()
        };
        let red = settled(parameters, endless);
        let most = ((1u64 << 31) - 1) as f64;
        assert!((average(&red) - most).abs() < 1.0, "{}", average(&red));
        let one_less = Backlog {
            packets: i32::MAX as u32 - 1,
            bytes: i32::MAX as u64 - 1,
        };
        assert!(average(&settled(parameters, one_less)) < most);
    }
}

#[test]
fn parameters_out_of_range_are_refused_with_one_sentence() {
    let with = |change: fn(&mut RedParameters)| {
        let mut parameters = RedParameters::default();
        change(&mut parameters);
        RedConfig::new(parameters).map(|config| *config.parameters())
    };
    assert_eq!(with(|_| {}), Ok(RedParameters::default()));
    let refused = [
        (with(|p| p.min = 0), AqmError::NoMinimum),
        (with(|p| p.max = 5), AqmError::Thresholds { min: 5, max: 5 }),
        (
            with(|p| p.max = red::MAX_THRESHOLD + 1),
            AqmError::LargeThreshold {
                max: red::MAX_THRESHOLD + 1,
            },
        ),
        (
            with(|p| p.max_p = Probability::from_ppm(0).unwrap()),
            AqmError::NoProbability,
        ),
        (with(|p| p.weight_shift = 0), AqmError::Weight { weight: 0 }),
        (
            with(|p| p.weight_shift = 17),
            AqmError::Weight { weight: 17 },
        ),
    ];
    for (found, error) in refused {
        assert_eq!(found, Err(error));
        let sentence = error.to_string();
        assert!(sentence.starts_with("RED's "), "{sentence}");
    }
    assert_eq!(
        AqmError::Thresholds { min: 5, max: 5 }.to_string(),
        "RED's upper threshold of 5 must lie above the lower one of 5"
    );
    assert_eq!(
        Probability::from_ppm(1_000_001).unwrap_err().to_string(),
        "a probability lies between 0 and 1, not at 1000001 millionths"
    );
    assert_eq!(probability(1_000_000).ppm(), 1_000_000);
    // The ends of the ranges work.
    for parameters in [
        RedParameters {
            min: 1,
            max: 2,
            max_p: probability(1),
            weight_shift: 1,
            ..RedParameters::default()
        },
        RedParameters {
            min: red::MAX_THRESHOLD - 1,
            max: red::MAX_THRESHOLD,
            max_p: probability(1_000_000),
            weight_shift: 16,
            mean_packet: Length::MAX,
            ..RedParameters::default()
        },
    ] {
        let mut red = red(parameters);
        for queue in [0, 1, 2, 3, u32::MAX / 2] {
            let _ = red.arriving(Nanos::ZERO, packets(queue), Length::MAX);
        }
    }
}

/// One thing that happens to a queue.
#[derive(Clone, Debug)]
enum Event {
    /// Arrivals that find `queue` packets.
    Arrivals { queue: u32, count: u32 },
    /// An idle time.
    Idle { micros: u64 },
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (1..200u32, 1..60u32).prop_map(|(queue, count)| Event::Arrivals { queue, count }),
        1 => (0..20_000u64).prop_map(|micros| Event::Idle { micros }),
    ]
}

proptest! {
    /// Against the definition in f64: avg <- (1 - w) avg + w q, or (1 - w)^m avg.
    #[test]
    fn the_average_is_that_of_real_numbers(
        shift in 1..=16u32,
        events in proptest::collection::vec(event(), 1..80),
    ) {
        let parameters = RedParameters { weight_shift: shift, ..RedParameters::default() };
        let mut red = red(parameters);
        let weight = 0.5f64.powi(shift as i32);
        let (mut expected, mut now) = (0.0, Nanos::ZERO);
        for event in events {
            match event {
                Event::Arrivals { queue, count } => for _ in 0..count {
                    let _ = red.arriving(now, packets(queue), length(1000));
                    expected += weight * (f64::from(queue) - expected);
                },
                Event::Idle { micros } => {
                    red.emptied(now);
                    now += Nanos::from_micros(micros);
                    let _ = red.arriving(now, Backlog::default(), length(1000));
                    expected *= (1.0 - weight).powf(micros as f64 / 1000.0);
                }
            }
            // Each of up to 80 decays is right to 10^-6; the loss by rounding down adds up to at most 2^-32 / w.
            let tolerance = 8e-5 * expected + 1.0 / 65_536.0;
            prop_assert!(
                (average(&red) - expected).abs() <= tolerance,
                "{} is not {expected}", average(&red)
            );
        }
    }
}
