//! Arbiters on separate threads that divide one link, with a clock that each look of any of them advances: the claims
//! hold for any timing of the threads.
//!
//! `cargo test -p fairlane-shards --test threads`
#![cfg(not(loom))]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use fairlane_core::sched::Qfq;
use fairlane_core::{FlowConfig, FlowId, Length, Nanos, Packet, PacketScheduler, Weight};
use fairlane_runtime::{Arbiter, ArbiterConfig, Link, Release};
use fairlane_shards::{Config, Shard, Turns, divide, share};

/// A byte per nanosecond.
const CONFIG: Config = Config {
    rate: 8_000_000_000,
    batch: 3_000,
    ahead: 20_000,
    catch_up: 0,
    lead: 12_000,
    patience: u64::MAX,
};
const LONGEST: u32 = 1_000;
const WEIGHTS: [u32; 3] = [1, 2, 5];

/// Checks that the number of each packet of a flow is one more than the last.
#[derive(Default)]
struct InOrder {
    sent: [u64; 2],
}

impl Release<u64> for InOrder {
    fn release(&mut self, packet: Packet<u64>) {
        let next = &mut self.sent[packet.owner.number() as usize];
        assert_eq!(packet.payload, *next, "lost or reordered");
        *next += 1;
    }

    fn flush(&mut self, _: bool) -> std::io::Result<usize> {
        Ok(0)
    }

    fn waiting(&self) -> usize {
        0
    }
}

type Part = Arbiter<PacketScheduler<Qfq, u64>, InOrder, Turns>;

fn part(turns: Turns, link: Link) -> (Part, [FlowId; 2]) {
    let queue = PacketScheduler::new(Qfq::new(), Default::default());
    let config = ArbiterConfig::new(link);
    let mut part = Arbiter::paced(queue, config, InOrder::default(), turns, Nanos::ZERO);
    let flows = [1, 3].map(|weight| {
        let longest = Length::new(LONGEST).unwrap();
        part.open_flow(FlowConfig::new(Weight::new(weight).unwrap(), longest))
            .unwrap()
    });
    (part, flows)
}

/// Returns the largest distance above the floor of a shard with this weight.
fn reach(weight: u32) -> u64 {
    CONFIG.apart(weight, WEIGHTS.iter().copied().map(u64::from).sum())
}

/// Checks the theorems for a shard after its look. No shard is left out, and the circle does not wrap.
fn assert_theorems(shard: &Shard, weight: u32, clock: &AtomicU64) {
    let (promised, lowest) = (shard.promised(), shard.lowest());
    let now = clock.load(Ordering::SeqCst);
    assert!(promised <= now + CONFIG.ahead + u64::from(CONFIG.batch));
    if let Some(at) = shard.position() {
        assert!(at <= lowest + reach(weight), "{at} above {lowest}");
        assert!(at >= lowest, "{at} below {lowest}");
    }
}

#[test]
fn arbiters_on_threads_are_within_the_lead_of_one_another_and_lose_no_packet() {
    let link = Link::new("8gbit".parse().unwrap());
    let clock = Arc::new(AtomicU64::new(0));
    let threads = share(link, CONFIG, &WEIGHTS).unwrap().into_iter();
    let threads = threads.zip(WEIGHTS).map(|(turns, weight)| {
        let clock = Arc::clone(&clock);
        thread::spawn(move || run(part(turns, link), weight, &clock))
    });
    let threads: Vec<_> = threads.collect();
    let sent: u64 = threads.into_iter().map(|one| one.join().unwrap()).sum();
    let most = clock.load(Ordering::SeqCst) + CONFIG.ahead + u64::from(CONFIG.batch);
    assert!(sent <= most + WEIGHTS.len() as u64 * u64::from(LONGEST));
}

/// Sends bursts of two flows, idle in between. Returns the bytes sent.
fn run((mut part, flows): (Part, [FlowId; 2]), weight: u32, clock: &AtomicU64) -> u64 {
    let mut given = [0_u64; 2];
    for burst in 0..300_u32 {
        for number in 0..40 {
            for (flow, given) in flows.into_iter().zip(&mut given) {
                let len = Length::new(64 + (burst * 37 + number * 101) % (LONGEST - 63)).unwrap();
                let now = Nanos(clock.load(Ordering::SeqCst));
                part.admit(flow, len, *given, now).unwrap();
                *given += 1;
            }
        }
        while part.total_stats().queued.packets > 0 {
            let now = clock.fetch_add(200, Ordering::SeqCst);
            part.step(Nanos(now)).unwrap();
            assert_theorems(part.pace().shard(), weight, clock);
        }
        // It is idle: no shard may wait for this one.
        part.step(Nanos(clock.load(Ordering::SeqCst))).unwrap();
        assert!(part.pace().shard().credit() <= 0);
    }
    assert_eq!(part.release().sent, given);
    assert_eq!(part.pace().looks().idle, 300);
    part.total_stats().sent.bytes
}

#[test]
fn a_thread_that_stops_in_the_middle_of_a_look_is_left_out_and_comes_back() {
    let config = Config {
        patience: 5_000,
        ..CONFIG
    };
    let mut shards = divide(config, &[1, 1]).unwrap().into_iter();
    let (mut runs, mut stops) = (shards.next().unwrap(), shards.next().unwrap());
    let taken = stops.try_take(0, u64::MAX).unwrap();
    stops.sent(taken.bytes);
    assert_eq!(stops.step(0, u64::MAX), None, "in the middle of a look");
    let stopped = thread::spawn(move || {
        thread::park();
        while stops.step(0, u64::MAX).is_none() {}
        let left_out = stops.left_out();
        stops.sent(stops.credit().max(0) as u64);
        let came_back = stops.try_take(u64::MAX >> 24, u64::MAX);
        assert!(came_back.is_ok() && stops.position() >= Some(stops.lowest()));
        (left_out, stops.left_out())
    });
    let mut bytes = 0;
    for now in (0..1_000_000).step_by(500) {
        let taken = runs.try_take(now, u64::MAX);
        runs.sent(taken.map_or(0, |batch| batch.bytes));
        bytes += taken.map_or(0, |batch| batch.bytes);
    }
    // Except for its waiting time, and the other one's batch.
    assert!(bytes >= 1_000_000 - 4 * config.patience, "{bytes}");
    stopped.thread().unpark();
    assert_eq!(stopped.join().unwrap(), (1, 1));
}
