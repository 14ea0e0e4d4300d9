//! Examples of textbooks and papers whose answers are published, or follow by hand from a definition
//! there: the order of packets, when they leave, when the fluid server finishes them, and rates.
//!
//! A link of 8 Mbit/s: a packet of 1000 bytes takes a millisecond, the unit of time of most examples.
//! Times here are microseconds, as many as a packet has bytes. Ties go to the flow with the lowest
//! number, as in the examples that have any.

use crate::support::{config, length, rate};
use fairlane_core::aqm::{
    Backlog, Codel, CodelConfig, CodelParameters, Red, RedConfig, RedParameters, Verdict,
};
use fairlane_core::sched::Algorithm;
use fairlane_core::tree::{Ceiling, ClassConfig, ClassId, LeafConfig, Tree};
use fairlane_core::{
    AnyScheduler, Dequeue, FlowConfig, FlowId, Length, Limits, Nanos, Rate, SchedulerLimits, Weight,
};
use fairlane_sim::{
    Completion, FlowPlan, Gps, Lengths, Observer, Picos, Server, Simulation, Traffic, TransmitQueue,
};

/// Arrivals: a time, a flow, the number of packets and their length.
type Arrivals = &'static [(u64, u32, u32, u32)];

/// Packets of flows of these weights, and what becomes of them.
struct Example {
    source: &'static str,
    weights: &'static [u32],
    arrivals: Arrivals,
    /// The algorithm, and a quantum if it is given, and the flows in the order in which their packets leave.
    orders: &'static [(&'static str, &'static str)],
    /// When the fluid server finishes the packets, in the order of arrivals.
    fluid: &'static [u64],
}

/// Figure 1 of Bennett and Zhang, INFOCOM 1996: eleven packets of a flow with half of the link, one of
/// each of ten others.
const BENNETT_ZHANG: Arrivals = &[
    (0, 0, 11, 1000),
    (0, 1, 1, 1000),
    (0, 2, 1, 1000),
    (0, 3, 1, 1000),
    (0, 4, 1, 1000),
    (0, 5, 1, 1000),
    (0, 6, 1, 1000),
    (0, 7, 1, 1000),
    (0, 8, 1, 1000),
    (0, 9, 1, 1000),
    (0, 10, 1, 1000),
];

/// Figure 2 of Parekh and Gallager, 1993.
const PAREKH_GALLAGER: Arrivals = &[
    (0, 1, 1, 3000),
    (1000, 0, 1, 1000),
    (2000, 0, 1, 1000),
    (3000, 0, 1, 2000),
    (5000, 1, 1, 2000),
    (9000, 1, 1, 2000),
    (11_000, 0, 1, 2000),
];

/// The queues of the example in Section 3 of Shreedhar and Varghese, SIGCOMM 1995.
const SHREEDHAR_VARGHESE: Arrivals = &[
    (0, 0, 1, 200),
    (0, 0, 1, 750),
    (0, 0, 1, 20),
    (0, 1, 2, 500),
    (0, 2, 1, 100),
    (0, 2, 1, 600),
    (0, 2, 1, 200),
    (0, 3, 1, 180),
    (0, 3, 1, 700),
    (0, 3, 1, 50),
];

/// A table of an exercise on fair queueing in Peterson and Davie, Chapter 6.
const PETERSON_DAVIE: Arrivals = &[
    (0, 0, 2, 200),
    (0, 1, 1, 160),
    (0, 1, 1, 120),
    (0, 1, 1, 160),
    (0, 2, 1, 210),
    (0, 2, 1, 150),
    (0, 2, 1, 90),
];

/// That of the next exercise there.
const PETERSON_DAVIE_NEXT: Arrivals = &[
    (0, 0, 4, 100),
    (0, 1, 1, 190),
    (0, 1, 1, 200),
    (0, 2, 1, 110),
    (0, 2, 1, 50),
];

const EXAMPLES: &[Example] = &[
    Example {
        source: "Bennett, Zhang, WF2Q, 1996, Figure 1",
        weights: &[10, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
        arrivals: BENNETT_ZHANG,
        orders: &[
            ("wf2q", "0 1 0 2 0 3 0 4 0 5 0 6 0 7 0 8 0 9 0 10 0"),
            ("wfq", "0 0 0 0 0 0 0 0 0 0 1 2 3 4 5 6 7 8 9 10 0"),
        ],
        fluid: &[
            2000, 4000, 6000, 8000, 10_000, 12_000, 14_000, 16_000, 18_000, 20_000, 21_000, 20_000,
            20_000, 20_000, 20_000, 20_000, 20_000, 20_000, 20_000, 20_000, 20_000,
        ],
    },
    Example {
        source: "Parekh, Gallager, GPS, 1993, Figure 2, equal weights (WF2Q by hand)",
        weights: &[1, 1],
        arrivals: PAREKH_GALLAGER,
        // Session 1 leaves at 4, 5, 7 and 13, session 2 at 3, 9 and 11.
        orders: &[("wfq", "1 0 0 0 1 1 0"), ("wf2q", "1 0 0 0 1 1 0")],
        fluid: &[5000, 3000, 5000, 9000, 9000, 11_000, 13_000],
    },
    Example {
        source: "Parekh, Gallager, GPS, 1993, Figure 2, weights of 1 and 2 (WF2Q by hand)",
        weights: &[1, 2],
        arrivals: PAREKH_GALLAGER,
        // Session 1 leaves at 4, 5, 9 and 13, session 2 at 3, 7 and 11.
        orders: &[("wfq", "1 0 0 1 0 1 0"), ("wf2q", "1 0 0 1 0 1 0")],
        fluid: &[4000, 4000, 5000, 9000, 8000, 11_000, 13_000],
    },
    Example {
        source: "Shreedhar, Varghese, DRR, 1995, Section 3, with a quantum of 750 bytes (by hand)",
        weights: &[1, 1, 1, 1],
        arrivals: SHREEDHAR_VARGHESE,
        orders: &[("drr", "0 1 2 2 3 0 0 1 2 3 3")],
        fluid: &[],
    },
    Example {
        // Published: the first queue sends 200 bytes in the first round, and keeps 300 of its quantum.
        source: "Shreedhar, Varghese, DRR, 1995, Section 3, with its quantum of 500 (by hand after one round)",
        weights: &[1, 1, 1, 1],
        arrivals: SHREEDHAR_VARGHESE,
        orders: &[("drr/500", "0 1 2 3 0 0 1 2 2 3 3")],
        fluid: &[],
    },
    Example {
        source: "Shreedhar, Varghese, DRR, 1995: quanta in proportion to weights (by hand)",
        weights: &[2, 1],
        arrivals: &[(0, 0, 4, 1000), (0, 1, 2, 1000)],
        orders: &[("drr", "0 0 1 0 0 1")],
        fluid: &[],
    },
    Example {
        source: "Keshav, An Engineering Approach to Computer Networking, Chapter 9: finish numbers",
        weights: &[1, 1, 1],
        // Finish numbers 1, 2, 2, and 1.5 + 2 for the last; the round number is 2 after 5.5.
        arrivals: &[
            (0, 0, 1, 1000),
            (0, 1, 1, 2000),
            (0, 2, 1, 2000),
            (4000, 0, 1, 2000),
        ],
        orders: &[("wfq", "0 1 2 0")],
        fluid: &[3000, 5500, 5500, 7000],
    },
    Example {
        source: "Kurose, Ross, Chapter 9: priority without preemption, packets 1, 3, 2, 4, 5",
        weights: &[2, 1],
        arrivals: &[
            (0, 0, 1, 1000),
            (300, 1, 1, 1000),
            (500, 0, 1, 1000),
            (2500, 0, 1, 1000),
            (2700, 1, 1, 1000),
        ],
        orders: &[("priority", "0 0 1 0 1")],
        fluid: &[],
    },
    Example {
        source: "Kurose, Ross, Chapter 9: under WFQ a burst b leaves within b / (R w / sum of w)",
        weights: &[1, 3],
        arrivals: &[(0, 0, 2, 1000), (0, 1, 6, 1000)],
        orders: &[("wfq", "1 1 0 1 1 1 0 1")],
        fluid: &[4000, 8000, 1333, 2667, 4000, 5333, 6667, 8000],
    },
    Example {
        source: "Peterson, Davie, Chapter 6: fair queueing of eight packets",
        weights: &[1, 1, 1],
        arrivals: PETERSON_DAVIE,
        orders: &[("wfq", "1 0 2 1 2 0 1 2"), ("scfq", "1 0 2 1 2 0 1 2")],
        fluid: &[],
    },
    Example {
        source: "Peterson, Davie, Chapter 6: the same with shares of 1, 2 and 1.5",
        weights: &[2, 4, 3],
        arrivals: PETERSON_DAVIE,
        orders: &[("wfq", "1 1 2 0 1 2 2 0")],
        fluid: &[],
    },
    Example {
        source: "Peterson, Davie, Chapter 6: the next exercise, fair queueing (by hand)",
        weights: &[1, 1, 1],
        arrivals: PETERSON_DAVIE_NEXT,
        orders: &[("wfq", "0 2 2 1 0 0 1 0"), ("scfq", "0 2 2 1 0 0 1 0")],
        fluid: &[],
    },
    Example {
        source: "Peterson, Davie, Chapter 6: the same with a weight of 4 for flow 2 (by hand)",
        weights: &[1, 4, 1],
        arrivals: PETERSON_DAVIE_NEXT,
        orders: &[("wfq", "1 1 0 2 2 0 0 0"), ("scfq", "1 1 0 2 2 0 0 0")],
        fluid: &[],
    },
    Example {
        source: "Peterson, Davie, Chapter 6, figure: a packet that is being sent is finished (by hand)",
        weights: &[1, 1],
        arrivals: &[(0, 1, 1, 10_000), (1000, 0, 1, 2000)],
        orders: &[("wfq", "1 0"), ("wf2q", "1 0"), ("scfq", "1 0")],
        fluid: &[12_000, 5000],
    },
    Example {
        source: "Golestani, SCFQ, 1994: a newcomer starts at the tag in service (by hand)",
        weights: &[1, 1, 1],
        arrivals: &[(0, 0, 3, 1000), (0, 1, 1, 3000), (500, 2, 1, 500)],
        orders: &[("scfq", "0 2 0 0 1")],
        fluid: &[],
    },
];

fn micros(micros: u64) -> Picos {
    Picos::from_nanos(1000 * micros)
}

/// Returns the packets one by one: when, of which flow, and how long.
fn packets(arrivals: Arrivals) -> impl Iterator<Item = (Picos, FlowId, u32)> {
    arrivals.iter().flat_map(|&(at, flow, count, bytes)| {
        (0..count).map(move |_| (micros(at), FlowId::new(flow), bytes))
    })
}

#[derive(Default)]
struct Sent(Vec<Completion>);

impl Observer for Sent {
    fn completed(&mut self, completion: &Completion) {
        self.0.push(*completion);
    }
}

fn named(text: &str) -> Algorithm {
    let (name, quantum) = text.split_once('/').unwrap_or((text, ""));
    let algorithm: Algorithm = name.parse().unwrap();
    match quantum.parse() {
        Ok(quantum) => algorithm.with_quantum(length(quantum)).unwrap(),
        Err(_) => algorithm,
    }
}

/// Packets as they leave the link.
fn sent(algorithm: Algorithm, weights: &[u32], arrivals: Arrivals) -> Vec<Completion> {
    let queue = AnyScheduler::new(algorithm, SchedulerLimits::default());
    let mut link = Server::over(queue, rate(8_000_000), TransmitQueue::NONE, Sent::default());
    let longest = packets(arrivals).map(|(_, _, bytes)| bytes).max().unwrap();
    for &weight in weights {
        link.add_flow(Picos::ZERO, config(weight, longest)).unwrap();
    }
    for (at, flow, bytes) in packets(arrivals) {
        link.arrive(at, flow, length(bytes), ()).unwrap();
    }
    link.finish();
    link.into_observer().0
}

fn flows(sent: &[Completion]) -> String {
    let numbers = sent.iter().map(|sent| sent.packet.flow.to_string());
    numbers.collect::<Vec<_>>().join(" ")
}

#[test]
fn packets_leave_in_the_published_order() {
    let mut answers = 0;
    for example in EXAMPLES {
        for (name, order) in example.orders {
            let sent = sent(named(name), example.weights, example.arrivals);
            assert_eq!(flows(&sent), *order, "{name}: {}", example.source);
            answers += 1;
        }
    }
    assert!(answers >= 20);
}

#[test]
fn the_fluid_server_finishes_packets_when_published() {
    for example in EXAMPLES.iter().filter(|example| !example.fluid.is_empty()) {
        let mut gps = Gps::new(rate(8_000_000));
        for (flow, &weight) in (0..).zip(example.weights) {
            let weight = Weight::new(weight).unwrap();
            gps.add_flow(Picos::ZERO, FlowId::new(flow), weight);
        }
        for (number, (at, flow, bytes)) in (0..).zip(packets(example.arrivals)) {
            gps.arrive(at, flow, length(bytes), number);
        }
        gps.finish();
        let mut finished: Vec<_> = gps.take_finished().collect();
        finished.sort_by_key(|finished| finished.number);
        assert_eq!(finished.len(), example.fluid.len());
        for (finished, &expected) in finished.iter().zip(example.fluid) {
            // To the microsecond.
            let nearest = (finished.time + Picos(500_000)).0 / 1_000_000;
            assert_eq!(nearest, expected.into(), "{finished:?}: {}", example.source);
        }
    }
}

/// Keshav, Chapter 9: the max-min fair shares of sources with these weights and demands, in Mbit/s.
#[test]
fn rates_are_max_min_fair() {
    // Weights, demands and shares of a capacity.
    let examples = [
        ([1, 1, 1, 1], [2.0, 2.6, 4.0, 5.0], [2.0, 2.6, 2.7, 2.7], 10),
        // Published as weights of 2.5, 4, 0.5 and 1.
        (
            [5, 8, 1, 2],
            [4.0, 2.0, 10.0, 4.0],
            [4.0, 2.0, 6.0, 4.0],
            16,
        ),
    ];
    for (weights, demands, shares, capacity) in examples {
        for name in ["wfq", "wf2q", "wf2q+", "qfq", "scfq", "drr"] {
            let queue = AnyScheduler::new(name.parse().unwrap(), SchedulerLimits::default());
            let capacity = rate(capacity * 1_000_000);
            let link = Server::over(queue, capacity, TransmitQueue::NONE, Sent::default());
            let mut simulation = Simulation::new(link, 1);
            for (&weight, demand) in weights.iter().zip(demands) {
                let own = Rate::from_bps((demand * 1e6) as u64).unwrap();
                let packets = Limits {
                    packets: 20,
                    ..Limits::NONE
                };
                let config = FlowConfig {
                    limits: Some(packets),
                    ..config(weight, 250)
                };
                let lengths = Lengths::Fixed(length(250));
                let plan = FlowPlan::new(config, Traffic::Cbr(own), lengths);
                simulation.add(plan).unwrap();
            }
            let until = Picos::from_millis(200);
            let sent = simulation.run(until).unwrap().into_observer().0;
            for (flow, share) in (0..).zip(shares) {
                let own = |sent: &&Completion| {
                    sent.packet.flow == FlowId::new(flow) && sent.end.time <= until
                };
                let bits = 2000.0 * sent.iter().filter(own).count() as f64;
                let carried = bits / 200e3;
                assert!(
                    (carried - share).abs() < 0.05 * share,
                    "{name}: flow {flow} has {carried} Mbit/s, not {share}"
                );
            }
        }
    }
}

/// Tanenbaum, Computer Networks: a full token bucket of capacity C, filled at a rate r, feeds a line of
/// rate M for C / (M - r).
#[test]
fn a_full_token_bucket_sends_at_full_speed_for_its_capacity_over_the_difference_of_rates() {
    // Capacity in bytes, both rates in bit/s, and the published time in milliseconds: 1.6 s of the
    // exercise, and about 11 ms of the text.
    let examples = [
        (1_000_000, 1_000_000, 6_000_000, 1600.0),
        (250_000, 16_000_000, 200_000_000, 10.87),
    ];
    for (capacity, filled, line, expected) in examples {
        let limits = SchedulerLimits::default();
        let ceiling = Ceiling {
            rate: rate(filled),
            burst: capacity,
        };
        let class = ClassConfig {
            ceiling: Some(ceiling),
            ..ClassConfig::new(Weight::ONE, length(1000))
        };
        let mut tree = Tree::new(Algorithm::Drr, None, limits);
        let leaf = tree
            .add_leaf(ClassId::ROOT, class, LeafConfig::default())
            .unwrap();
        let mut now = Nanos::ZERO;
        loop {
            let len: Length = length(1000);
            let _ = tree.enqueue(leaf, 0, len, (), now);
            match tree.dequeue(now, |_| {}) {
                Dequeue::Packet(_) => now += Nanos(8_000 * 1_000_000_000 / line),
                Dequeue::NotBefore(_) => break,
                Dequeue::Empty => panic!("a packet waits"),
            }
        }
        let millis = now.0 as f64 / 1e6;
        assert!(
            (millis - expected).abs() < 0.01 * expected,
            "{millis} ms, not {expected}"
        );
    }
}

/// Floyd and Jacobson, RED, 1993, Section 4: a burst of 50 packets keeps the average below 5 for weights
/// up to 0.0042.
#[test]
fn the_average_of_red_bears_the_published_burst() {
    let average = |weight_shift| {
        let parameters = RedParameters {
            weight_shift,
            min: 100,
            max: 200,
            ..RedParameters::default()
        };
        let config = RedConfig::new(parameters).unwrap();
        let mut red = Red::new(config, rate(8_000_000), 1);
        for packets in 1..=50 {
            let bytes = 1000 * u64::from(packets);
            let _ = red.arriving(Nanos::ZERO, Backlog { packets, bytes }, length(1000));
        }
        red.average() as f64 / f64::from(1u32 << 16) / f64::from(1u32 << 16)
    };
    for shift in [7, 8, 9] {
        // L + 1 + ((1 - w)^(L + 1) - 1) / w.
        let w = 0.5f64.powi(shift);
        let published = 51.0 + ((1.0 - w).powi(51) - 1.0) / w;
        let average = average(shift as u32);
        assert!((average - published).abs() < 1e-3, "{average} {published}");
        assert_eq!(average < 5.0, w <= 0.0042);
    }
}

/// RFC 8289, Section 5.5: the first drop an interval after the delay exceeded the target, then each by
/// the interval over the square root of the count (times by hand).
#[test]
fn codel_drops_by_the_published_control_law() {
    let mut codel = Codel::new(CodelConfig::new(CodelParameters::default()).unwrap());
    let left = Backlog {
        packets: 100,
        bytes: 150_000,
    };
    let mut drops = Vec::new();
    for tenth in 0..5000 {
        let now = Nanos(100_000 * tenth);
        while codel.leaving(now, Nanos::from_millis(10), left) == Verdict::Drop {
            drops.push(now.0 as f64 / 1e6);
        }
    }
    // 100 ms, and 100 / sqrt(n) more for n = 1, 2, 3, ..
    let published = [100.0, 200.0, 270.7, 328.4, 378.4, 423.2, 464.0];
    assert_eq!(drops.len(), published.len(), "{drops:?}");
    for (drop, published) in drops.iter().zip(published) {
        assert!((drop - published).abs() < 0.5, "{drops:?}");
    }
}
