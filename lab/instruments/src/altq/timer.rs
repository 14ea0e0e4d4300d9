//! The effect of a coarse timer on CBQ: the paper's flaw, in simulated time.

use anyhow::{Context, Result, bail, ensure};
use fairlane_core::Dequeue;
use fairlane_core::tree::cbq::{Bursts, Cbq, CbqClass};
use fairlane_core::tree::{ClassId, LeafConfig};
use fairlane_core::{Length, Nanos, Rate, SchedulerLimits};
use serde::Serialize;

/// Bytes of a full packet on the wire.
const PACKET: Length = match Length::new(1_538) {
    Some(length) => length,
    None => unreachable!(),
};

/// Packets of the class that are sent before what counts, and those that count.
const FIRST: u32 = 500;
const COUNTED: u32 = 5_000;

/// Options of `timer`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Rate of the link, as in 100mbit
    #[arg(long, value_name = "RATE")]
    link: Rate,
    /// Share of the class, in percent of the link
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    share: f64,
    /// Granularity of the timer in milliseconds; 0 is exact
    #[arg(long, value_name = "MS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=1000))]
    timer_ms: u64,
}

fn percent(text: &str) -> Result<f64> {
    match text.parse() {
        Ok(percent) if (0.1..=100.0).contains(&percent) => Ok(percent),
        _ => bail!("a share is a number from 0.1 to 100, in percent"),
    }
}

/// The results.
#[derive(Debug, Serialize)]
pub(super) struct Measured {
    /// The throughput of the class.
    on_link_mbit: f64,
}

/// Computes the throughput of a permanently backlogged class, if it may not borrow and no other
/// event wakes CBQ up.
pub(super) fn measure(options: &Options) -> Result<Measured> {
    let link = options.link;
    let share = Rate::from_bps((link.bps() as f64 * options.share / 100.0) as u64);
    let share = share.context("so small a share is no rate")?;
    let timer = Nanos::from_millis(options.timer_ms);
    let mut cbq: Cbq<()> = Cbq::with_timer(link, SchedulerLimits::default(), timer);
    let class = CbqClass {
        borrow: false,
        bursts: Bursts {
            packet: PACKET,
            ..Bursts::default()
        },
        ..CbqClass::new(share, PACKET)
    };
    let class = cbq.add_leaf(ClassId::ROOT, class, LeafConfig::default())?;
    let bits = u64::from(PACKET.get()) * 8;
    let (mut now, mut begin, mut sent) = (Nanos::ZERO, Nanos::ZERO, 0);
    while sent < FIRST + COUNTED {
        // Two packets wait at any time.
        while cbq.len() < 2 {
            ensure!(
                cbq.enqueue(class, PACKET, (), now).is_ok(),
                "CBQ takes no packet"
            );
        }
        match cbq.dequeue(now, |_| ()) {
            Dequeue::Packet(_) => {
                if sent == FIRST {
                    begin = now;
                }
                sent += 1;
                now += Nanos(bits * 1_000_000_000 / link.bps());
            }
            Dequeue::NotBefore(then) => now = then,
            Dequeue::Empty => bail!("CBQ lost a packet"),
        }
    }
    let bits = bits * u64::from(COUNTED);
    Ok(Measured {
        on_link_mbit: bits as f64 / (now - begin).0 as f64 * 1e3,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(link: &str, share: f64, timer_ms: u64) -> f64 {
        let link: Rate = link.parse().unwrap();
        let options = Options {
            link,
            share,
            timer_ms,
        };
        measure(&options).unwrap().on_link_mbit / (link.bps() as f64 / 1e6) * 100.0
    }

    #[test]
    fn a_timer_of_10_ms_holds_every_class_to_a_burst_in_20_ms_and_none_does_not() {
        // 16 packets of 1538 bytes in 20 ms are 9.84 Mbit/s.
        for share in [25.0, 45.0] {
            let coarse = part("100mbit", share, 10);
            assert!((coarse / 9.84 - 1.0).abs() < 0.15, "{share}: {coarse}");
            let exact = part("100mbit", share, 0);
            assert!((exact / share - 1.0).abs() < 0.02, "{share}: {exact}");
        }
        assert!((part("100mbit", 5.0, 0) / 5.0 - 1.0).abs() < 0.02);
        // A tenth of the rate does not need a faster timer.
        let slow = part("10mbit", 45.0, 10);
        assert!((slow / 45.0 - 1.0).abs() < 0.1, "{slow}");
    }

    #[test]
    fn a_share_is_a_part_of_the_link() {
        for text in ["0", "101", "half"] {
            assert!(percent(text).unwrap_err().to_string().contains("100"));
        }
    }
}
