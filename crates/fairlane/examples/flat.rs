//! Three flows share a link by weight; no thread, no clock, no I/O: `cargo run -p fairlane --example flat`

use std::error::Error;

use fairlane::prelude::*;

fn main() -> Result<(), Box<dyn Error>> {
    let mut link = PacketScheduler::new(Qfq::new(), Default::default());
    let len = Length::try_from(1000usize)?;
    for weight in [5, 3, 2] {
        let flow = link.add_flow(FlowConfig::new(Weight::try_from(weight)?, len))?;
        for number in 0..1_000 {
            link.enqueue(flow, len, number)?;
        }
    }

    // A link that carries a thousand packets of the three thousand.
    for packet in (0..1_000).map_while(|_| link.dequeue()) {
        assert!(packet.payload < 1_000, "each is the caller's again");
    }
    for flow in link.flows() {
        if let (Some(weight), Some(stats)) = (link.weight(flow), link.flow_stats(flow)) {
            let (sent, queued) = (stats.sent.packets, stats.queued.packets);
            println!("flow {flow} of weight {weight}: {sent} packets sent, {queued} wait");
        }
    }
    Ok(())
}
