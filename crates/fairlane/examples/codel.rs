//! Queueing delay under overload, without and with CoDel and a sender that reacts to its marks: `cargo run -p fairlane
//! --example codel`

use std::error::Error;

use fairlane::Dequeue;
use fairlane::aqm::{AqmConfig, CodelConfig, CodelParameters};
use fairlane::prelude::*;
use fairlane::tree::{ClassConfig, ClassId, LeafConfig, Payload, Tree};

/// A packet that can be marked, as an IP packet with ECN, and whether it was.
struct Markable(bool);

impl Payload for Markable {
    fn mark(&mut self) -> bool {
        self.0 = true;
        true
    }
}

/// Two seconds of a link that carries a packet per millisecond. Its sender offers ten percent more, and nothing for
/// some time after each mark. Returns how long the last packet was queued, and the number of marks.
fn seconds(aqm: AqmConfig) -> Result<(Nanos, u64), Box<dyn Error>> {
    let len = Length::try_from(1000usize)?;
    let mut link = Tree::new(Algorithm::Qfq, None, Default::default()).marking();
    let leaf = LeafConfig {
        aqm,
        ..LeafConfig::default()
    };
    let leaf = link.add_leaf(ClassId::ROOT, ClassConfig::new(Weight::ONE, len), leaf)?;
    let (mut sojourn, mut silent) = (Nanos::ZERO, 0);
    for ms in 0..2_000 {
        let now = Nanos::from_millis(ms);
        let packets = if ms % 10 == 0 { 2 } else { 1 };
        for _ in 0..if silent == 0 { packets } else { 0 } {
            link.enqueue(leaf, 0, len, Markable(false), now)?;
        }
        silent = u32::saturating_sub(silent, 1);
        // The tree knows the arrival time of each packet.
        if let Dequeue::Packet(packet) = link.dequeue_with_sojourn(now, drop) {
            sojourn = packet.payload.sojourn;
            if packet.payload.payload.0 {
                silent = 8;
            }
        }
    }
    Ok((sojourn, link.stats(leaf).unwrap_or_default().marked))
}

fn main() -> Result<(), Box<dyn Error>> {
    let codel = CodelParameters {
        target: Nanos::from_millis(5),
        interval: Nanos::from_millis(100),
        max_packet: Length::try_from(1000usize)?,
        ecn: true,
    };
    let codel = AqmConfig::Codel(CodelConfig::new(codel)?);
    for (name, aqm) in [("tail drop", AqmConfig::TailDrop), ("CoDel", codel)] {
        let (sojourn, marked) = seconds(aqm)?;
        println!("{name}: {} ms, {marked} marked", sojourn.0 / 1_000_000);
    }
    Ok(())
}
