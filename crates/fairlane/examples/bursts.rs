//! Packets arrive and leave in bursts, as with devices, and each carries its arrival time, to show how long it was
//! queued: `cargo run -p fairlane --example bursts`

use std::error::Error;

use fairlane::prelude::*;
use fairlane::{Stamped, sched::Drr};

/// Arrivals per millisecond, and the link's capacity.
const COMES: u32 = 40;
const LEAVES: usize = 32;

fn main() -> Result<(), Box<dyn Error>> {
    let mut link = PacketScheduler::new(Drr::new(), Default::default());
    let len = Length::try_from(500usize)?;
    let mut flows = Vec::new();
    for weight in 1..=4 {
        flows.push(link.add_flow(FlowConfig::new(Weight::try_from(weight)?, len))?);
    }
    let mut burst = Vec::with_capacity(LEAVES);
    for ms in 0..5 {
        let now = Nanos::from_millis(ms);
        let received = (0..COMES).map(|number| Packet {
            owner: flows[number as usize % flows.len()],
            len,
            // The arrival time is stored only because this example needs it.
            payload: Stamped {
                came: now,
                payload: number,
            },
        });
        let refused = |packet, why| println!("{packet:?}: {why}");
        let came = link.enqueue_burst(received, refused);

        let left = link.dequeue_burst(&mut burst, LEAVES);
        let sojourns = burst
            .drain(..)
            .map(|packet| packet.payload.until(now).sojourn);
        let longest = sojourns.max().unwrap_or_default();
        println!(
            "{ms} ms: {came} came, {left} left, one of them after {} ms; {} wait",
            longest.0 / 1_000_000,
            link.len()
        );
    }
    Ok(())
}
