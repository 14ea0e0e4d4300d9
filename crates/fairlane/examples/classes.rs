//! Nested classes, one of them limited to a rate, on the program's own clock: `cargo run -p fairlane --example classes`

use std::error::Error;

use fairlane::Dequeue;
use fairlane::prelude::*;
use fairlane::tree::{Ceiling, ClassConfig, ClassId, FlowsConfig, LeafConfig, Tree};

fn main() -> Result<(), Box<dyn Error>> {
    let len = Length::try_from(1000usize)?;
    let class = |weight| Ok::<_, Box<dyn Error>>(ClassConfig::new(Weight::try_from(weight)?, len));
    let mut link = Tree::new(Algorithm::Qfq, None, Default::default());
    let office = link.add_inner(ClassId::ROOT, class(3)?, Algorithm::Drr)?;
    let mail = link.add_leaf(office, class(1)?, LeafConfig::default())?;
    let slowly = Ceiling {
        rate: "1mbit".parse()?,
        burst: 10_000,
    };
    let backup = ClassConfig {
        ceiling: Some(slowly),
        ..class(1)?
    };
    let backup = link.add_leaf(office, backup, LeafConfig::default())?;
    // One queue per packet digest, that is, per guest.
    let guests = FlowsConfig::new(Algorithm::Drr);
    let guests = link.add_flows(ClassId::ROOT, class(1)?, guests)?;

    // All offer more than the link carries. The packet is its guest's digest here.
    for _ in 0..10 {
        for (class, guest) in [(mail, 0), (backup, 0), (guests, 7), (guests, 8)] {
            link.enqueue(class, guest, len, guest, Nanos::ZERO)?;
        }
    }
    // Ten seconds of a link of 8 Mbit/s, which carries a packet in a millisecond.
    for ms in 0..10_000 {
        let now = Nanos::from_millis(ms);
        match link.dequeue(now, drop) {
            Dequeue::Packet(packet) => {
                link.enqueue(packet.owner, packet.payload, len, packet.payload, now)?;
            }
            Dequeue::NotBefore(time) => println!("no class may send before {time:?}"),
            Dequeue::Empty => println!("no class is backlogged"),
        }
    }
    for (name, class) in [
        ("office", office),
        ("mail", mail),
        ("backup", backup),
        ("guests", guests),
    ] {
        let stats = link.stats(class).unwrap_or_default();
        let mbit = stats.sent.bytes as f64 * 8e-7;
        println!("{name}: {mbit:.2} Mbit/s, {} flows", stats.flows);
    }
    Ok(())
}
