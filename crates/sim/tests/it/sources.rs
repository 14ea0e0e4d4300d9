//! Sources send as configured, and reproducibly.

use crate::support::{config, length, rate};
use fairlane_core::sched::{Drr, Qfq};
use fairlane_core::{FlowId, Length, Limits, Rate, Rejection, SchedulerLimits};
use fairlane_sim::{
    Completion, FlowPlan, Lengths, Now, Observer, PacketInfo, Picos, Server, Simulation, Source,
    SourceError, Traffic, TransmitQueue, scenario,
};

const SECONDS: u64 = 200;

/// Bits per second that a source sends, as measured over a long time.
fn measured(traffic: Traffic, lengths: Lengths, seed: u64) -> f64 {
    let mut source = Source::new(traffic, lengths, seed).unwrap();
    let mut bits = 0;
    loop {
        let (time, len) = source.next_packet().unwrap();
        if time >= Picos::from_secs(SECONDS) {
            return f64::from(bits) / SECONDS as f64;
        }
        bits += len.get() * 8;
    }
}

#[test]
fn sources_keep_their_mean_rate() {
    let mbit = rate(1_000_000);
    let mixed = Lengths::Weighted(vec![(length(40), 5), (length(576), 2), (length(1500), 3)]);
    let uniform = Lengths::Uniform(length(1500), length(64));
    for lengths in [Lengths::Fixed(length(1000)), uniform, mixed] {
        let mean = match &lengths {
            Lengths::Fixed(_) => 1000.0,
            Lengths::Uniform(..) => 782.0,
            Lengths::Weighted(_) => (40.0 * 5.0 + 576.0 * 2.0 + 1500.0 * 3.0) / 10.0,
        };
        let pareto = Traffic::ParetoOnOff {
            alpha: 1.9,
            mean_on: Picos::from_millis(20),
            mean_off: Picos::from_millis(60),
            peak: rate(4_000_000),
        };
        let bursty = Traffic::Bursty {
            packets: 5,
            period: Picos::from_millis(40),
        };
        for (traffic, expected, tolerance) in [
            (Traffic::Cbr(mbit), 1e6, 0.001),
            (Traffic::Poisson(mbit), 1e6, 0.02),
            (pareto, 1e6, 0.1),
            (bursty, 5.0 * mean * 8.0 * 25.0, 0.02),
        ] {
            let bps = measured(traffic.clone(), lengths.clone(), 7);
            let off = (bps / expected - 1.0).abs();
            assert!(
                off < tolerance,
                "{traffic:?} {lengths:?}: {bps} for {expected}"
            );
        }
    }
}

#[test]
fn gaps_of_a_poisson_process_vary_as_they_should() {
    let traffic = Traffic::Poisson(rate(8_000_000));
    let mut source = Source::new(traffic, Lengths::Fixed(length(1000)), 3).unwrap();
    let mut last = Picos::ZERO;
    let gaps: Vec<f64> = (0..50_000)
        .map(|_| {
            let (time, _) = source.next_packet().unwrap();
            let gap = time - last;
            last = time;
            gap.as_secs_f64() * 1e3
        })
        .collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
    let longer = gaps.iter().filter(|&&gap| gap > 1.0).count() as f64 / gaps.len() as f64;
    assert!(
        (mean - 1.0).abs() < 0.02 && (variance - 1.0).abs() < 0.05,
        "{mean} {variance}"
    );
    assert!((longer - (-1f64).exp()).abs() < 0.01, "{longer}");
}

#[test]
fn constant_bit_rate_is_exact_over_any_number_of_packets() {
    let traffic = Traffic::Cbr(rate(7_000));
    let mut source = Source::new(traffic, Lengths::Fixed(length(1)), 3).unwrap();
    for n in 0..10_000u128 {
        let (time, _) = source.next_packet().unwrap();
        assert_eq!(time, Picos(n * 8_000_000_000_000 / 7_000));
    }
}

#[test]
fn bursts_and_traces_come_when_they_were_ordered() {
    let traffic = Traffic::Bursty {
        packets: 2,
        period: Picos(10),
    };
    let mut source = Source::new(traffic, Lengths::Fixed(length(1)), 3).unwrap();
    let times: Vec<_> = (0..5).map(|_| source.next_packet().unwrap().0.0).collect();
    assert_eq!(times, [0, 0, 10, 10, 20]);

    let packets = vec![
        (Picos(5), length(2)),
        (Picos(3), length(9)),
        (Picos(5), length(1)),
    ];
    let fixed = Lengths::Fixed(length(77));
    let mut source = Source::new(Traffic::Trace(packets), fixed, 3).unwrap();
    let sent: Vec<_> = std::iter::from_fn(|| source.next_packet()).collect();
    let expected = [
        (Picos(3), length(9)),
        (Picos(5), length(2)),
        (Picos(5), length(1)),
    ];
    assert_eq!(sent, expected);
}

#[test]
fn a_source_that_cannot_be_is_refused() {
    let fixed = Lengths::Fixed(length(1));
    let pareto = |alpha, on| Traffic::ParetoOnOff {
        alpha,
        mean_on: Picos(on),
        mean_off: Picos(1),
        peak: Rate::MIN,
    };
    let no_time = Traffic::Bursty {
        packets: 1,
        period: Picos::ZERO,
    };
    for (traffic, lengths, error) in [
        (pareto(1.0, 1), fixed.clone(), SourceError::NoMean),
        (pareto(f64::NAN, 1), fixed.clone(), SourceError::NoMean),
        (pareto(1.1, 0), fixed.clone(), SourceError::NoTime),
        (no_time, fixed, SourceError::NoTime),
        (
            Traffic::Greedy(1),
            Lengths::Weighted(vec![]),
            SourceError::NoLength,
        ),
        (
            Traffic::Greedy(1),
            Lengths::Weighted(vec![(Length::MAX, 0)]),
            SourceError::NoLength,
        ),
    ] {
        assert_eq!(Source::new(traffic, lengths, 1).err(), Some(error));
    }
}

/// All that happened.
#[derive(Default, PartialEq, Debug)]
struct Record(Vec<(u64, FlowId, Length, Picos, Picos)>, u64);

impl Observer for Record {
    fn completed(&mut self, done: &Completion) {
        let packet = &done.packet;
        self.0.push((
            packet.number,
            packet.flow,
            packet.len,
            packet.arrival,
            done.end.time,
        ));
    }
    fn discarded(&mut self, _: Now, _: &PacketInfo) {
        self.1 += 1;
    }
}

fn record(seed: u64) -> Record {
    let limits = SchedulerLimits::default();
    let queue = TransmitQueue::Bytes(3000);
    let server = Server::new(
        Qfq::new(),
        limits,
        rate(10_000_000),
        queue,
        Record::default(),
    );
    let mut simulation = Simulation::new(server, seed);
    let lengths = Lengths::Uniform(length(40), length(1500));
    let pareto = Traffic::ParetoOnOff {
        alpha: 1.5,
        mean_on: Picos::from_millis(5),
        mean_off: Picos::from_millis(5),
        peak: rate(8_000_000),
    };
    for (weight, traffic) in [
        (3, Traffic::Greedy(3)),
        (1, Traffic::Poisson(rate(2_000_000))),
        (2, pareto),
        (1, Traffic::Cbr(rate(1_000_000))),
        (
            1,
            Traffic::Bursty {
                packets: 9,
                period: Picos::from_millis(10),
            },
        ),
    ] {
        let mut plan = FlowPlan::new(config(weight, 1500), traffic, lengths.clone());
        plan.changes = vec![(Picos::from_millis(200), config(weight * 2, 1500))];
        simulation.add(plan).unwrap();
    }
    let mut guest = FlowPlan::new(config(5, 1500), Traffic::Greedy(2), lengths);
    guest.start = Picos::from_millis(100);
    guest.removal = Some(Picos::from_millis(300));
    simulation.add(guest).unwrap();
    simulation
        .run(Picos::from_millis(500))
        .unwrap()
        .into_observer()
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let first = record(42);
    assert!(
        first.0.len() > 500 && first.1 == 2,
        "{} packets",
        first.0.len()
    );
    assert_eq!(first, record(42));
    assert_ne!(first, record(43));
}

#[test]
fn a_flow_sends_from_its_start_to_its_stop() {
    let server = Server::new(
        Drr::new(),
        SchedulerLimits::default(),
        rate(1_000_000_000),
        TransmitQueue::NONE,
        Record::default(),
    );
    let mut simulation = Simulation::new(server, 1);
    let lengths = Lengths::Fixed(length(125));
    let ms = Picos::from_millis;
    for traffic in [Traffic::Cbr(rate(1_000_000)), Traffic::Greedy(4)] {
        let mut plan = FlowPlan::new(config(1, 125), traffic, lengths.clone());
        (plan.start, plan.stop) = (ms(10), ms(20));
        simulation.add(plan).unwrap();
    }
    let record = simulation.run(ms(1000)).unwrap().into_observer();
    let arrivals = |flow| {
        record
            .0
            .iter()
            .filter(move |p| p.1 == FlowId::new(flow))
            .map(|p| p.3)
    };
    let expected: Vec<_> = (10..20).map(ms).collect();
    assert!(arrivals(0).eq(expected));
    assert_eq!(arrivals(1).min(), Some(ms(10)));
    // The link is never idle in between, and the backlog at the stop still leaves.
    assert_eq!(record.0.len(), 10_000 + 4);
    assert!(arrivals(1).max().unwrap() < ms(20));
}

#[test]
fn flow_sets_have_the_shares_they_are_named_for() {
    let weights = |flows: Vec<fairlane_core::FlowConfig>| -> (u32, u32, usize) {
        let all: Vec<_> = flows.iter().map(|flow| flow.weight.get()).collect();
        (all[0], all[1..].iter().sum(), all.len())
    };
    assert_eq!(weights(scenario::highw(1000, length(1))), (333, 999, 1000));
    assert_eq!(weights(scenario::half(2001, length(1))), (2000, 2000, 2001));
    assert_eq!(weights(scenario::equal(4, length(1))), (1, 3, 4));
    assert!(scenario::highw(0, length(1)).is_empty());
}

#[test]
fn a_greedy_source_of_a_flow_that_holds_nothing_tries_again_once_a_packet_time() {
    /// Packets rejected, and sent.
    #[derive(Default)]
    struct Fate(u32, u32);
    impl Observer for Fate {
        fn dropped(&mut self, _: Now, _: FlowId, _: Length, _: Rejection) {
            self.0 += 1;
        }
        fn completed(&mut self, _: &Completion) {
            self.1 += 1;
        }
    }
    let limits = SchedulerLimits::default();
    let link = rate(8_000_000);
    let server = Server::new(
        Drr::new(),
        limits,
        link,
        TransmitQueue::NONE,
        Fate::default(),
    );
    let mut simulation = Simulation::new(server, 1);
    let mut shut = config(1, 1000);
    shut.limits = Some(Limits {
        packets: 0,
        bytes: 0,
    });
    for config in [shut, config(1, 1000)] {
        let lengths = Lengths::Fixed(length(1000));
        let plan = FlowPlan::new(config, Traffic::Greedy(2), lengths);
        simulation.add(plan).unwrap();
    }
    // A packet takes a millisecond; two are still sent at the end.
    let fate = simulation.run(Picos::from_millis(100)).unwrap();
    let Fate(rejected, sent) = fate.into_observer();
    assert_eq!((rejected, sent), (100, 102));
}
