//! The same seed gives the same packets, on every machine and in every release: they are written down here.
//! A change of these figures is a change of every result that was ever drawn from a seed; CHANGELOG.md says
//! so where one is meant.

use crate::support::{length, rate};
use fairlane_core::sched::Algorithm;
use fairlane_core::{SchedulerLimits, Weight};
use fairlane_sim::{FlowPath, Lengths, Network, Picos, Source, SourcePlan, Traffic, Wire};

/// Returns the time in picoseconds and the length of some packets of a source, and a digest of
/// 10,000.
fn drawn(traffic: Traffic, lengths: Lengths, seed: u64) -> (Vec<(u128, u32)>, u64) {
    let mut source = Source::new(traffic, lengths, seed).unwrap();
    let mut first = Vec::new();
    let mut digest = 0xcbf2_9ce4_8422_2325u64;
    for number in 0..10_000 {
        let (time, len) = source.next_packet().unwrap();
        if number < 3 {
            first.push((time.0, len.get()));
        }
        // FNV-1a.
        for byte in time
            .0
            .to_le_bytes()
            .into_iter()
            .chain(len.get().to_le_bytes())
        {
            digest = (digest ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
    (first, digest)
}

fn on_off() -> Traffic {
    Traffic::ParetoOnOff {
        alpha: 1.5,
        mean_on: Picos::from_millis(100),
        mean_off: Picos::from_millis(100),
        peak: rate(4_000_000),
    }
}

#[test]
fn sources_draw_what_they_always_drew() {
    let fixed = Lengths::Fixed(length(200));
    let uniform = Lengths::Uniform(length(64), length(1500));
    let mixed = Lengths::Weighted(vec![(length(40), 5), (length(576), 2), (length(1500), 3)]);
    let found = [
        drawn(Traffic::Poisson(rate(1_000_000)), fixed.clone(), 1),
        drawn(Traffic::Poisson(rate(1_000_000)), uniform, 2),
        drawn(on_off(), fixed, 3),
        drawn(Traffic::Cbr(rate(1_000_000)), mixed, 4),
    ];
    assert_eq!(
        found,
        SOURCES.map(|(first, digest)| (first.to_vec(), digest))
    );
}

#[test]
fn a_network_does_what_it_always_did() {
    let mut network = Network::new(3, 5);
    for (from, algorithm) in [(0, Algorithm::Fifo), (1, Algorithm::Qfq)] {
        let wire = Wire {
            rate: rate(10_000_000),
            delay: Picos::from_millis(10),
            algorithm,
            limits: SchedulerLimits {
                packets: 50,
                ..SchedulerLimits::default()
            },
        };
        network.add_wire(from, from + 1, wire).unwrap();
    }
    for group in 0..2 {
        for traffic in [on_off(), Traffic::Poisson(rate(3_000_000))] {
            let way = FlowPath {
                from: group,
                to: 2,
                weight: Weight::ONE,
            };
            let lengths = Lengths::Uniform(length(64), length(1500));
            network
                .add_source(SourcePlan::new(way, traffic, lengths), group.into())
                .unwrap();
        }
    }
    network.run_until(Picos::from_secs(5));
    let found = [0, 1].map(|group| {
        let carried = network.carried(group);
        let delays = &carried.delays;
        let lost = carried.rejected + carried.displaced;
        let delays = [
            delays.mean(),
            delays.deviation(),
            delays.percentile(99.0),
            delays.max(),
        ];
        (carried.received.bytes, lost, delays.map(|delay| delay.0))
    });
    assert_eq!(found, NETWORK);
}

const SOURCES: [([(u128, u32); 3], u64); 4] = [
    (
        [(1598651976, 200), (1691597319, 200), (6644234078, 200)],
        1135022594493110679,
    ),
    (
        [(5855249345, 185), (6929562735, 864), (7232872013, 1236)],
        7081653827780596399,
    ),
    (
        [(0, 200), (400000000, 200), (800000000, 200)],
        18384452734194439680,
    ),
    (
        [(0, 576), (4608000000, 576), (9216000000, 1500)],
        755530426691596999,
    ),
];
const NETWORK: [(u64, u64, [u128; 4]); 2] = [
    (
        2948653,
        23,
        [28024157790, 8882744713, 56908316671, 69263000876],
    ),
    (
        2525276,
        13,
        [17974336848, 9552912399, 50465865727, 57206921529],
    ),
];
