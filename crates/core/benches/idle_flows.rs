//! The cost of idle flows: the largest number of flows, one in sixteen backlogged.
//!
//! Prints for each algorithm the memory that a flow takes which was never backlogged, as
//! the system accounts for it, and the time for a packet in and a packet out while the
//! backlogged ones take turns all over the table.

use std::hint::black_box;
use std::time::Instant;

use fairlane_core::scheduler::{MAX_ENTITIES, Scheduler};
use fairlane_core::{FlowConfig, FlowId, Length, PacketScheduler, SchedulerLimits, Weight, sched};

/// One backlogged flow among this number.
const SPARSITY: usize = 16;

/// Returns the resident memory of this process in bytes, where the system reports it.
fn resident() -> Option<usize> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: usize = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

fn measure<A: Scheduler>(algorithm: A, flows: usize) {
    let before = resident();
    let mut scheduler = PacketScheduler::new(algorithm, SchedulerLimits::default());
    scheduler.reserve(flows, 0);
    let length = Length::new(1000).unwrap();
    let config = FlowConfig::new(Weight::ONE, length);
    for _ in 0..flows {
        scheduler.add_flow(config).unwrap();
    }
    let idle = resident().zip(before).map(|(after, before)| {
        let bytes = after.saturating_sub(before) as f64 / flows as f64;
        format!("{bytes:.1} bytes an idle flow")
    });
    let backlogged = flows / SPARSITY;
    for number in 0..backlogged {
        let flow = FlowId::new((number * SPARSITY) as u32);
        scheduler.enqueue(flow, length, ()).unwrap();
    }
    let pairs = 4 * backlogged;
    let start = Instant::now();
    for _ in 0..pairs {
        let Some(packet) = black_box(scheduler.dequeue()) else {
            panic!("{backlogged} flows are backlogged, and none is served");
        };
        scheduler.enqueue(packet.owner, length, ()).unwrap();
    }
    println!(
        "{:6} {flows} flows, {backlogged} backlogged: {}, {:.0} ns a pair",
        A::NAME,
        idle.unwrap_or_else(|| "memory use is unknown on this system".to_owned()),
        start.elapsed().as_nanos() as f64 / pairs as f64
    );
}

fn main() {
    let small = std::env::args().any(|argument| argument == "--test");
    let flows = if small { 1 << 14 } else { MAX_ENTITIES };
    measure(sched::Drr::new(), flows);
    measure(sched::Qfq::new(), flows);
    measure(sched::Plus::<sched::Qfq>::default(), flows);
    measure(sched::SKps::new(), flows);
    measure(sched::Wf2qPlus::new(), flows);
}
