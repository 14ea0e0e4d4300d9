//! The network of Fig. 8 of the QFQ report, two links of 10 Mbit/s one after the other: the delays of flows under S-KPS
//! whose slots are released as they end, as in the report, and as they begin.
//!
//! The report leaves much open. The assumptions are those of the laboratory's experiment `qfq-ns2`, so that both have
//! the same figures: packets of 200 bytes, weights by rates (units of 8 kbit/s), two flows of best effort that cross
//! both links and share nine tenths of the remaining rate, and equal flows that begin one after the other.

use crate::support::{Random, config, length};
use fairlane_core::sched::{Drr, Qfq, SKps, Wf2qPlus};
use fairlane_core::{FlowId, Limits, PacketScheduler, Scheduler, SchedulerLimits, VirtualTime};

const PACKET: u32 = 200;
const MS: u64 = 1_000_000;
/// A packet on one of the two links, and on a link of 100 Mbit/s to or from a host, where it is 1 ms on
/// its way besides: in nanoseconds, as all times.
const SENDING: u64 = PACKET as u64 * 800;
const HOST: u64 = MS + SENDING / 10;

/// Rates in 8 kbit/s, which are the weights: f0, f1, one like it, fifty of S2, and two best-effort flows.
fn weights() -> Vec<u32> {
    let mut weights = vec![20; 55];
    weights[..3].copy_from_slice(&[4, 64, 64]);
    weights[53..].copy_from_slice(&[53, 53]);
    weights
}

#[derive(Clone, Copy)]
struct Packet {
    flow: u32,
    sent: u64,
    arrives: u64,
}

/// Returns a source that sends at its rate, and begins in its turn among the fifty if it is one of them.
fn constant(flow: u32, weight: u32, end: u64) -> Vec<Packet> {
    let every = u64::from(PACKET) * MS / u64::from(weight);
    let start = u64::from(flow.saturating_sub(3)) * every / 50;
    let times = (start..end).step_by(every as usize);
    times.map(|sent| Packet::from_host(flow, sent)).collect()
}

/// 4 Mbit/s on, then nothing, each for 100 ms in the mean: Pareto, alpha 1.5.
fn on_off(flow: u32, end: u64, random: &mut Random) -> Vec<Packet> {
    let mut span = || {
        let from_0_to_1 = (random.number() >> 11) as f64 / (1u64 << 53) as f64;
        (100.0 * MS as f64 / 3.0 / (1.0 - from_0_to_1).powf(1.0 / 1.5)) as u64
    };
    let (mut packets, mut now) = (Vec::new(), 0);
    while now < end {
        let silent = now + span();
        let times = (now..silent.min(end)).step_by(PACKET as usize * 2000);
        packets.extend(times.map(|sent| Packet::from_host(flow, sent)));
        now = silent + span();
    }
    packets
}

impl Packet {
    fn from_host(flow: u32, sent: u64) -> Packet {
        let arrives = sent + HOST;
        Packet {
            flow,
            sent,
            arrives,
        }
    }
}

/// Returns the output of one of the two links, in order of arrival behind it.
fn link<A: Scheduler>(algorithm: A, mut packets: Vec<Packet>) -> Vec<Packet> {
    packets.sort_by_key(|packet| packet.arrives);
    let per_flow = Limits {
        packets: 1000,
        ..Limits::NONE
    };
    let limits = SchedulerLimits {
        per_flow,
        ..SchedulerLimits::default()
    };
    let mut link = PacketScheduler::new(algorithm, limits);
    for weight in weights() {
        link.add_flow(config(weight, PACKET)).unwrap();
    }
    let (mut arrivals, mut now, mut out) = (packets.iter().peekable(), 0, Vec::new());
    loop {
        while let Some(packet) = arrivals.next_if(|packet| packet.arrives <= now) {
            // Best-effort packets that find no room are lost.
            let _ = link.enqueue(FlowId::new(packet.flow), length(PACKET), packet.sent);
        }
        match (link.dequeue(), arrivals.peek()) {
            (Some(packet), _) => {
                now += SENDING;
                out.push(Packet {
                    flow: packet.owner.number(),
                    sent: packet.payload,
                    arrives: now + 10 * MS,
                });
            }
            (None, Some(packet)) => now = packet.arrives,
            (None, None) => return out,
        }
    }
}

/// Mean and longest delay of f0 and of f1 from host to host, in milliseconds, after 5 of 20 seconds.
fn delays<A: Scheduler>(new: impl Fn() -> A) -> [(f64, f64); 2] {
    let (end, mut random) = (20_000 * MS, Random(8));
    let weights = weights();
    let mut packets = Vec::new();
    for (flow, &rate) in (0..).zip(&weights[..53]) {
        packets.extend(constant(flow, rate, end));
    }
    for flow in [53, 54] {
        packets.extend(on_off(flow, end, &mut random));
    }
    let between = link(new(), packets);
    let arrived = link(new(), between);
    [0, 1].map(|flow| {
        let counted = |packet: &&Packet| packet.flow == flow && packet.sent > 5_000 * MS;
        let own = arrived.iter().filter(counted);
        let delays: Vec<f64> = own
            .map(|packet| (packet.arrives + HOST - packet.sent) as f64 / MS as f64)
            .collect();
        let sum: f64 = delays.iter().sum();
        let mean = sum / delays.len() as f64;
        (mean, delays.into_iter().fold(0.0, f64::max))
    })
}

#[test]
fn late_release_delays_flows_that_are_seldom_backlogged() {
    let drr = delays(Drr::new);
    let qfq = delays(Qfq::new);
    let early = delays(SKps::new);
    let late = delays(|| SKps::late(VirtualTime::new(0)));
    let exact = delays(Wf2qPlus::new);
    // The longest delays of f0 in `experiments/qfq-ns2`, there over five seeds.
    for (name, here, there) in [("qfq", qfq, 53.3), ("late", late, 81.2)] {
        let longest = here[0].1;
        assert!(f64::abs(longest - there) < 0.5, "{name}: {longest}");
    }
    println!("drr {drr:.2?}, qfq {qfq:.2?}, s-kps {early:.2?}, late {late:.2?}, wf2q+ {exact:.2?}");
    let [f0, f1] = [0, 1].map(|flow| [qfq, early, late, exact].map(|of| of[flow]));
    // f0, in their order by mean and by maximum.
    let columns: [fn((f64, f64)) -> f64; 2] = [|(mean, _)| mean, |(_, longest)| longest];
    for of in columns {
        let [qfq, early, late, exact] = f0.map(of);
        assert!(exact < qfq && exact < early, "{f0:?}");
        assert!(early < late && qfq < late, "{f0:?}");
    }
    // So are they of f1, but under late release: as on each link it waits for the end of a slot.
    let [qfq, early, late, exact] = f1.map(|(mean, _)| mean);
    assert!(
        (qfq - exact).abs() < 1.0 && (early - exact).abs() < 1.0,
        "{f1:?}"
    );
    assert!(late > early + 1.0 && late < drr[1].0, "{f1:?}");
}
