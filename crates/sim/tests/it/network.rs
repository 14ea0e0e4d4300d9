//! Packets that take several wires.

use crate::support::{length, rate};
use fairlane_core::bounds::{Head, Service, Siblings, Transmit, end_to_end};
use fairlane_core::sched::Algorithm;
use fairlane_core::{Limits, Nanos, SchedulerLimits, Weight};
use fairlane_sim::{
    Carried, FlowPath, Lengths, Network, NetworkError, Picos, SourcePlan, Tcp, Traffic, Wire,
};

fn wire(bps: u64, delay_us: u64, algorithm: Algorithm, packets: u32) -> Wire {
    Wire {
        rate: rate(bps),
        delay: Picos::from_micros(delay_us),
        algorithm,
        limits: SchedulerLimits {
            packets,
            ..SchedulerLimits::default()
        },
    }
}

fn way(from: u16, to: u16, weight: u32) -> FlowPath {
    let weight = Weight::new(weight).unwrap();
    FlowPath { from, to, weight }
}

fn source(way: FlowPath, traffic: Traffic, bytes: u32) -> SourcePlan<FlowPath> {
    SourcePlan::new(way, traffic, Lengths::Fixed(length(bytes)))
}

/// Nodes in a row, with wires in both directions.
fn row(wires: &[Wire], seed: u64) -> Network {
    let mut network = Network::new(wires.len() as u16 + 1, seed);
    for (from, wire) in (0..).zip(wires) {
        network.add_wire(from, from + 1, *wire).unwrap();
        network.add_wire(from + 1, from, *wire).unwrap();
    }
    network
}

/// Checks, after all sources have stopped, that only reported losses are missing.
#[track_caller]
fn nothing_is_missing(carried: &Carried) {
    assert_eq!(carried.on_their_way(), 0, "{carried:?}");
    assert_eq!(carried.delays.count(), carried.received.packets);
}

#[test]
fn a_lone_packet_is_stored_and_forwarded_to_the_picosecond() {
    for &algorithm in Algorithm::ALL {
        // 1500 bytes at 7 Mbit/s are 1714.285.. us, at 10 Mbit/s 1200 us.
        let wires = [
            wire(7_000_000, 3_000, algorithm, 9),
            wire(10_000_000, 250, algorithm, 9),
        ];
        let mut network = row(&wires, 1);
        let lone = Traffic::Trace(vec![(Picos::from_micros(17), length(1500))]);
        network
            .add_source(source(way(0, 2, 1), lone, 1), 0)
            .unwrap();
        network.run_until(Picos::from_millis(50));
        let carried = network.carried(0);
        nothing_is_missing(carried);
        assert_eq!(
            (carried.received.packets, carried.received.bytes),
            (1, 1500)
        );
        let first = Picos(12_000 * 1_000_000_000_000 / 7_000_000);
        let expected = first + Picos::from_micros(3_000 + 1_200 + 250);
        assert_eq!(carried.delays.max(), expected, "{algorithm:?}");
        assert_eq!(carried.delays.deviation(), Picos::ZERO);
    }
}

#[test]
fn a_packet_on_its_way_is_neither_here_nor_there() {
    let mut network = row(&[wire(8_000_000, 5_000, Algorithm::Qfq, 9)], 1);
    let lone = Traffic::Trace(vec![(Picos::ZERO, length(1000))]);
    network
        .add_source(source(way(0, 1, 1), lone, 1000), 0)
        .unwrap();
    // It has left the port after a millisecond, and is there after six.
    for (until, sent, received) in [(500, 0, 0), (1_500, 1, 0), (6_000, 1, 0), (6_001, 1, 1)] {
        network.run_until(Picos::from_micros(until));
        let port = network.port(0).sent.packets;
        assert_eq!(
            (port, network.carried(0).received.packets),
            (sent, received),
            "{until}"
        );
        assert_eq!(network.carried(0).on_their_way(), 1 - received);
    }
}

#[test]
fn the_way_with_the_fewest_wires_is_taken_and_of_two_the_first() {
    // 0 to 3 over 1, over 2, or over 4 and 5.
    let mut network = Network::new(6, 1);
    let any = wire(1_000_000, 1, Algorithm::Fifo, 9);
    for (from, to) in [(0, 4), (4, 5), (5, 3), (0, 2), (0, 1), (1, 3), (2, 3)] {
        network.add_wire(from, to, any).unwrap();
    }
    assert_eq!(network.route(0, 3), Ok(vec![3, 6]));
    assert_eq!(network.route(4, 3), Ok(vec![1, 2]));
    // Wires in a circle lead nowhere else.
    network.add_wire(3, 4, any).unwrap();
    assert_eq!(network.route(3, 3), Err(NetworkError::OneNode(3)));
    let nowhere = NetworkError::NoRoute { from: 3, to: 0 };
    assert_eq!(network.route(3, 0), Err(nowhere.clone()));
    assert_eq!(network.route(0, 6), Err(NetworkError::Unknown(6)));
    assert_eq!(nowhere.to_string(), "no wires lead from node 3 to node 0");
    assert_eq!(network.add_wire(1, 1, any), Err(NetworkError::OneNode(1)));
    // A source in a closed loop needs a way back.
    let mut looped = source(way(0, 3, 1), Traffic::Greedy(9), 100);
    looped.tcp = Some(Tcp {
        rtt: Picos::ZERO,
        window: 9,
    });
    assert_eq!(network.add_source(looped, 0), Err(nowhere));
}

#[test]
fn later_wire_serves_later_flows() {
    // A millisecond for the packet, and one for the wire.
    let any = wire(8_000_000, 1_000, Algorithm::Fifo, 9);
    let mut network = row(&[any, any], 1);
    let lone = || Traffic::Trace(vec![(Picos::ZERO, length(1000))]);
    let add = |network: &mut Network, group| {
        let added = network.add_source(source(way(0, 2, 1), lone(), 1), group);
        added.unwrap();
    };
    add(&mut network, 0);
    add(&mut network, 0);
    let direct = network.add_wire(0, 2, any).unwrap();
    add(&mut network, 1);
    network.run_until(Picos::from_millis(9));
    let took = [0, 1].map(|group| network.carried(group).delays.max());
    assert_eq!(took, [5, 2].map(Picos::from_millis));
    assert_eq!(network.port(direct).sent.packets, 1);
}

#[test]
fn nothing_is_lost_but_what_is_said_to_be() {
    for &algorithm in Algorithm::ALL {
        let wires = [
            wire(20_000_000, 500, Algorithm::Fifo, 30),
            wire(8_000_000, 2_000, algorithm, 20),
            wire(6_000_000, 1_000, algorithm, 10),
        ];
        let mut network = row(&wires, 7);
        let poisson = |bps| Traffic::Poisson(rate(bps));
        let mut looped = source(way(0, 3, 5), Traffic::Greedy(50), 1000);
        looped.tcp = Some(Tcp {
            rtt: Picos::ZERO,
            window: 50,
        });
        let many = [
            source(way(0, 3, 1), poisson(9_000_000), 700),
            source(way(1, 3, 3), poisson(5_000_000), 1200),
            source(way(0, 2, 2), Traffic::Greedy(4), 300),
            looped,
            source(way(3, 0, 1), poisson(1_000_000), 100),
        ];
        for (group, mut plan) in many.into_iter().enumerate() {
            plan.active.push(Picos::ZERO..Picos::from_millis(2_500));
            network.add_source(plan, group).unwrap();
        }
        network.run_until(Picos::from_secs(2));
        let (mut lost, mut received) = (0, 0);
        for group in 0..5 {
            let carried = network.carried(group);
            lost += carried.rejected + carried.displaced;
            received += carried.received.packets;
            // The limits of all queues, one packet in service at each port, and those on the wires.
            assert!(
                carried.on_their_way() <= 30 + 20 + 10 + 3 + 120,
                "{algorithm:?}: {group}"
            );
        }
        assert!(
            lost > 100 && received > 1_000,
            "{algorithm:?}: {lost}, {received}"
        );
        let dropped: u64 = (0..6)
            .map(|number| {
                let port = network.port(number);
                port.rejected + port.displaced
            })
            .sum();
        assert_eq!(dropped, lost, "{algorithm:?}");
        // The last wire is the narrowest, and seldom idle.
        let last = network.port(4).sent.bytes as f64 * 8.0 / 2.0;
        assert!(last > 0.8 * 6e6, "{algorithm:?}: {last}");
        // From here on the counts restart, until all sent packets have arrived.
        let on_their_way = [0, 1, 2, 3, 4].map(|group| network.carried(group).on_their_way());
        network.restart();
        assert_eq!(network.carried(0).sent.packets, 0);
        network.run_until(Picos::from_secs(4));
        for (group, before) in on_their_way.into_iter().enumerate() {
            let carried = network.carried(group);
            // The closed loop sends as often as it gets acknowledgements, which under FIFO is seldom.
            let least = if group == 3 { 1 } else { 20 };
            let sent = carried.sent.packets;
            assert!(sent >= least, "{algorithm:?}: {group}: {sent}");
            nothing_is_missing(carried);
            assert_eq!(carried.before, before);
        }
    }
}

#[test]
fn port_shares_fairly_and_evicts_the_longest_queue() {
    let mut network = row(
        &[
            wire(1_000_000_000, 10, Algorithm::Qfq, 100),
            wire(10_000_000, 10, Algorithm::Qfq, 100),
        ],
        3,
    );
    let send =
        |weight, mbit: u64| source(way(0, 2, weight), Traffic::Cbr(rate(mbit * 1_000_000)), 500);
    for (group, plan) in [send(1, 1), send(3, 20), send(1, 20)]
        .into_iter()
        .enumerate()
    {
        network.add_source(plan, group).unwrap();
    }
    network.run_until(Picos::from_secs(1));
    network.restart();
    network.run_until(Picos::from_secs(3));
    let mbit = |group| network.carried(group).received.bytes as f64 * 8.0 / 2e6;
    // Of 10 Mbit/s, the first gets all that it sends, without loss; the others share the rest.
    let small = network.carried(0);
    assert_eq!(small.rejected + small.displaced, 0);
    assert!((mbit(0) - 1.0).abs() < 0.02, "{}", mbit(0));
    assert!(
        (mbit(1) - 6.75).abs() < 0.1 && (mbit(2) - 2.25).abs() < 0.1,
        "{} {}",
        mbit(1),
        mbit(2)
    );
    // Which of the two holds most at an arrival depends on the phases of the sources.
    let displaced = network.carried(1).displaced + network.carried(2).displaced;
    assert!(displaced > 0, "no packet was pushed out");
}

#[test]
fn strict_priority_goes_by_weight() {
    let wires = [
        wire(1_000_000_000, 10, Algorithm::Fifo, 1000),
        wire(8_000_000, 10, Algorithm::Priority, 50),
    ];
    let mut network = row(&wires, 3);
    for (group, weight) in [1, 2].into_iter().enumerate() {
        let plan = source(way(0, 2, weight), Traffic::Cbr(rate(6_000_000)), 500);
        network.add_source(plan, group).unwrap();
    }
    network.run_until(Picos::from_secs(1));
    let received = |group| network.carried(group).received.bytes * 8;
    assert!(received(1) > 5_900_000 && received(0) < 2_200_000);
}

#[test]
fn fifo_port_drops_arrivals_at_its_limit() {
    let wires = [wire(8_000_000, 10, Algorithm::Fifo, 5)];
    let mut network = row(&wires, 3);
    // Ten at once: all of them arrive before the first is sent, and five may wait.
    let burst = Traffic::Trace(vec![(Picos::ZERO, length(1000)); 10]);
    network
        .add_source(source(way(0, 1, 1), burst, 1000), 0)
        .unwrap();
    let one = Traffic::Trace(vec![(Picos::ZERO, length(100))]);
    network
        .add_source(source(way(0, 1, 1), one, 100), 1)
        .unwrap();
    network.run_until(Picos::from_secs(1));
    let (many, late) = (network.carried(0), network.carried(1));
    assert_eq!((many.received.packets, many.displaced), (5, 0));
    assert_eq!((many.rejected, late.rejected), (5, 1));
}

#[test]
fn closed_loop_fills_a_path_with_a_full_round_trip() {
    // 2 ms there, 2 ms back, and 0.1 + 1 ms of transmission.
    let wires = [
        wire(80_000_000, 1_000, Algorithm::Fifo, 100),
        wire(8_000_000, 1_000, Algorithm::Qfq, 100),
    ];
    for (window, expected) in [(1, 1_000.0 / 5.1), (3, 3_000.0 / 5.1), (60, 1_000.0)] {
        let mut network = row(&wires, 1);
        let mut looped = source(way(0, 2, 1), Traffic::Greedy(1), 1000);
        looped.tcp = Some(Tcp {
            rtt: Picos::ZERO,
            window,
        });
        looped.active.push(Picos::ZERO..Picos::from_secs(5));
        network.add_source(looped, 0).unwrap();
        network.run_until(Picos::from_secs(5));
        let carried = network.carried(0);
        let rate = carried.received.packets as f64 / 5.0;
        assert!(
            (rate / expected - 1.0).abs() < 0.02,
            "{window}: {rate} for {expected}"
        );
        assert_eq!(carried.rejected + carried.displaced, 0);
        network.run_until(Picos::from_secs(6));
        nothing_is_missing(network.carried(0));
    }
}

#[test]
fn limits_per_flow_hold_beside_those_of_a_port() {
    let mut narrow = wire(8_000_000, 10, Algorithm::Drr, 100);
    narrow.limits.per_flow = Limits {
        packets: 4,
        ..Limits::NONE
    };
    let mut network = row(&[narrow], 1);
    let burst = Traffic::Trace(vec![(Picos::ZERO, length(1000)); 10]);
    network
        .add_source(source(way(0, 1, 1), burst, 1000), 0)
        .unwrap();
    network.run_until(Picos::from_secs(1));
    assert_eq!(network.carried(0).rejected, 6);
}

/// Three schedulers at 4 Mbit/s and a plain wire in a row, and others that send more than each can carry. Bursts
/// of 5 packets at 1 Mbit/s, a quarter of each: the bound is that of the formula by Goyal, Lam and Vin with
/// our latencies, less than the sum of the bounds of each wire, and the slowest packet comes near it.
#[test]
fn a_burst_counts_once_on_its_way_over_several_wires() {
    const L: u32 = 1000;
    let (long, burst, rates) = (length(L), 5 * L, [rate(4_000_000); 3]);
    let g = rate(1_000_000);
    for (algorithm, near) in [
        (Algorithm::Wf2qPlus, 0.65),
        (Algorithm::Drr, 0.4),
        (Algorithm::Qfq, 0.3),
    ] {
        let mut wires = rates
            .map(|rate| wire(rate.bps(), 100, algorithm, 60))
            .to_vec();
        wires.push(wire(8_000_000, 100, Algorithm::Fifo, 60));
        let mut network = row(&wires, 1);
        let period = Picos::from_millis(40);
        let bursts = Traffic::Bursty { packets: 5, period };
        network
            .add_source(source(way(0, 4, 1), bursts, L), 0)
            .unwrap();
        for (from, rate) in (0..).zip(rates) {
            for _ in 0..3 {
                let more = Traffic::Cbr(self::rate(rate.bps() / 2));
                network
                    .add_source(source(way(from, from + 1, 1), more, L), 1)
                    .unwrap();
            }
        }
        network.run_until(Picos::from_millis(2_000));
        let siblings = Siblings::new(algorithm, [(Weight::ONE, long, 4)]);
        let wfi = siblings
            .bound(Weight::ONE, long, Head::Known, Transmit::Between)
            .unwrap();
        let of = |burst: u32| {
            rates.map(|rate| Service::of_link(rate, long).conforming_delay(0.25, wfi, burst.into()))
        };
        let hops = of(0).map(|latency| latency + Nanos::from_micros(100));
        let plain = [Nanos::from_micros(100)];
        let bound = end_to_end(burst.into(), g, long, hops.into_iter().chain(plain));
        if algorithm == Algorithm::Wf2qPlus {
            // b / g, three times L / g, four wires; on three of them two packets of all.
            assert_eq!(
                bound,
                Nanos::from_micros(40_000 + 3 * 8_000 + 4 * 100 + 3 * 4_000)
            );
        }
        let sum = of(burst).into_iter().reduce(|a, b| a + b).unwrap();
        assert!(bound < sum + Nanos::from_millis(40), "{algorithm}");
        let carried = network.carried(0);
        assert!(carried.received.packets > 200, "{carried:?}");
        let worst = carried.delays.max().0 as f64 / 1000.0 / bound.0 as f64;
        assert!(
            worst <= 1.0 && worst >= near,
            "{algorithm}: {worst} of {bound:?}"
        );
    }
}
