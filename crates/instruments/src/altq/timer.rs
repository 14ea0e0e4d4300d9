//! What a coarse timer does to CBQ: the paper's flaw, on a clock of its own.

use std::time::Duration;

use anyhow::Result;
use fairlane_core::Dequeue;
use fairlane_core::tree::cbq::{Bursts, Cbq, CbqClass};
use fairlane_core::tree::{ClassId, LeafConfig};
use fairlane_core::{Length, Nanos, Rate, SchedulerLimits};

/// Bytes of a full packet on the wire.
const PACKET: u32 = 1_538;

/// What a class that always has packets is given of the link, in Mbit/s, if it is entitled to
/// `share` and may not borrow, and nothing else happens that would wake CBQ up. `timer` is the
/// granularity of its timer; 0 is exact.
pub(super) fn allocated(link: Rate, share: Rate, timer: Duration) -> Result<f64> {
    let timer = Nanos(timer.as_nanos() as u64);
    let length = Length::new(PACKET).expect("a packet of this length");
    let mut cbq: Cbq<()> = Cbq::with_timer(link, SchedulerLimits::default(), timer);
    let class = CbqClass {
        borrow: false,
        bursts: Bursts {
            packet: length,
            ..Bursts::default()
        },
        ..CbqClass::new(share, length)
    };
    let class = cbq.add_leaf(ClassId::ROOT, class, LeafConfig::default())?;
    let (begin, end) = (Nanos::from_millis(500), Nanos::from_millis(4_500));
    let mut now = Nanos::ZERO;
    let mut sent = 0u64;
    while now < end {
        // Two packets wait at any time.
        while cbq.len() < 2 {
            let accepted = cbq.enqueue(class, length, (), now);
            assert!(accepted.is_ok(), "an empty queue takes a packet");
        }
        match cbq.dequeue(now, |_| ()) {
            Dequeue::Packet(packet) => {
                let bits = u64::from(packet.len.get()) * 8;
                if now >= begin {
                    sent += bits;
                }
                now += Nanos(bits * 1_000_000_000 / link.bps());
            }
            Dequeue::NotBefore(then) => now = then,
            Dequeue::Empty => unreachable!("packets wait"),
        }
    }
    Ok(sent as f64 / (end - begin).0 as f64 * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mbit(share: u64, timer_ms: u64) -> f64 {
        let rate = |mbit: u64| Rate::from_bps(mbit * 1_000_000).unwrap();
        allocated(rate(100), rate(share), Duration::from_millis(timer_ms)).unwrap()
    }

    #[test]
    fn a_timer_of_10_ms_holds_every_class_to_a_burst_in_20_ms_and_none_does_not() {
        // 16 packets of 1538 bytes in 20 ms.
        for share in [25, 45] {
            let coarse = mbit(share, 10);
            assert!((coarse / 9.84 - 1.0).abs() < 0.15, "{share}: {coarse}");
            let exact = mbit(share, 0);
            assert!(
                (exact / share as f64 - 1.0).abs() < 0.02,
                "{share}: {exact}"
            );
        }
        assert!((mbit(5, 0) / 5.0 - 1.0).abs() < 0.02);
    }
}
