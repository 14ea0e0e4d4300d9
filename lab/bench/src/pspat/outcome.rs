//! The results of a measurement.

use std::fmt;

use fairlane_core::{Nanos, Weight};
use fairlane_runtime::Spans;
use hdrhistogram::Histogram;
use serde::Serialize;

use super::arbiter::TX_SLOTS;
use super::case::{Case, Mode, Way, name};
use fairlane_core::bounds::{Dispatched, with_arbiter};

/// Percentiles that the paper's Table 3 has.
const PERCENTILES: [f64; 6] = [0.0, 10.0, 50.0, 90.0, 98.0, 99.0];

/// One measurement's figures.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    pub clients: u32,
    pub active: u32,
    pub threads: u32,
    pub alg: String,
    pub mode: String,
    pub transmit: String,
    pub way: Option<String>,
    pub rate_bps: u64,
    pub packet: u32,
    pub mailbox: usize,
    /// Most mailboxes looked at in one step; of an arbiter.
    pub scan_limit: Option<u32>,
    pub seconds: f64,
    pub decisions: u64,
    pub decisions_per_sec: f64,
    /// Of the sending clients: how far the worst is from the share of its weight, relative
    /// to that share.
    pub max_share_error: f64,
    /// For each distinct weight, its clients' average share, and the ideal one.
    pub shares: Vec<Share>,
    /// How long packets waited in a mailbox at most: from one look to the next.
    pub delta_a_ns: Option<Span>,
    /// The same of dispatchers.
    pub delta_d_ns: Option<Span>,
    /// The victim's delay in nanoseconds, from its push to its release.
    pub victim_ns: Option<Percentiles>,
    /// Sleeps of the arbiter that a client ended.
    pub wakeups: u64,
    /// How many of the victim's packets were measured.
    pub victim_packets: u64,
}

/// The share of clients of one weight.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Share {
    pub weight: u32,
    pub clients: u32,
    /// Of all decisions, by one client on average.
    pub share: f64,
    pub expected: f64,
    /// T-WFI that the algorithm promises them, where it promises one.
    pub t_wfi_algorithm_ns: Option<u64>,
    /// T-WFI of the whole, by PSPAT's Eq. 1, with the longest Delta_A and Delta_D that were
    /// measured.
    pub t_wfi_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Span {
    pub mean: u64,
    pub max: u64,
}

impl Span {
    pub fn of(spans: Spans) -> Option<Span> {
        (spans.count() > 0).then(|| Span {
            mean: spans.mean().0,
            max: spans.longest().0,
        })
    }
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Percentiles {
    pub min: u64,
    pub p10: u64,
    pub p50: u64,
    pub p90: u64,
    pub p98: u64,
    pub p99: u64,
    pub max: u64,
}

impl Percentiles {
    pub fn of(delays: &Histogram<u64>) -> Option<Percentiles> {
        if delays.is_empty() {
            return None;
        }
        let [min, p10, p50, p90, p98, p99] =
            PERCENTILES.map(|percent| delays.value_at_percentile(percent));
        Some(Percentiles {
            min,
            p10,
            p50,
            p90,
            p98,
            p99,
            max: delays.max(),
        })
    }
}

/// Counts in every mode: packets of each sending client, in the order of the clients, over a time.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub packets: Vec<u64>,
    pub over: Nanos,
}

impl Counts {
    /// Returns the counts since `earlier`.
    pub fn since(&self, earlier: &Counts) -> Counts {
        let pairs = self.packets.iter().zip(&earlier.packets);
        Counts {
            packets: pairs.map(|(now, then)| now - then).collect(),
            over: self.over.since(earlier.over),
        }
    }
}

impl Outcome {
    /// Computes the outcome from the sending clients' counts; `all` decisions include those for the
    /// victim.
    pub fn new(case: &Case, counts: &Counts, all: u64) -> Outcome {
        let guarantees = case.guarantees(all);
        let seconds = counts.over.0 as f64 / 1e9;
        let weights = (0..case.active).map(|client| case.weight(client));
        let total: u64 = counts.packets.iter().sum();
        let shares = shares(&counts.packets, weights, |weight| {
            let bound = guarantees.of(&case.flow_of(weight))?;
            Some(bound.delay.time(case.rate).0)
        });
        Outcome {
            clients: case.clients,
            active: case.active,
            threads: case.threads,
            alg: case.alg.name().to_owned(),
            mode: name(case.mode),
            transmit: name(case.transmit),
            way: (case.mode == Mode::Pspat).then(|| name(case.way)),
            rate_bps: case.rate.bps(),
            packet: case.packet.get(),
            mailbox: case.mailbox,
            scan_limit: (case.mode == Mode::Pspat).then_some(case.scan_limit),
            seconds,
            decisions: all,
            decisions_per_sec: all as f64 / seconds.max(1e-9),
            max_share_error: worst(&counts.packets, case, total),
            shares,
            delta_a_ns: None,
            delta_d_ns: None,
            victim_ns: None,
            wakeups: 0,
            victim_packets: 0,
        }
    }
}

impl Outcome {
    /// Adds what an arbiter and its dispatchers added to the algorithm's delays.
    pub fn with_delays(
        mut self,
        case: &Case,
        delta_a: Option<Span>,
        delta_d: Option<Span>,
    ) -> Outcome {
        let longest = |span: Option<Span>| Nanos(span.map_or(0, |span| span.max));
        let dispatched = (case.way == Way::Dispatchers).then(|| Dispatched {
            passes: longest(delta_d),
            held: u64::from(case.dispatchers) * TX_SLOTS as u64,
        });
        for share in &mut self.shares {
            share.t_wfi_ns = share.t_wfi_algorithm_ns.map(|own| {
                let scan = longest(delta_a);
                with_arbiter(Nanos(own), scan, dispatched, case.rate, case.packet).0
            });
        }
        self.delta_a_ns = delta_a;
        self.delta_d_ns = delta_d;
        self
    }
}

/// Returns the largest relative distance of a client's share from that of its weight.
fn worst(packets: &[u64], case: &Case, total: u64) -> f64 {
    let weights: u64 = (0..case.active)
        .map(|c| u64::from(case.weight(c).get()))
        .sum();
    let errors = (0..).zip(packets).map(|(client, &packets)| {
        let expected = f64::from(case.weight(client).get()) / weights as f64;
        let share = packets as f64 / total.max(1) as f64;
        (share / expected - 1.0).abs()
    });
    errors.fold(0.0, f64::max)
}

fn shares(
    packets: &[u64],
    weights: impl Iterator<Item = Weight>,
    promised: impl Fn(Weight) -> Option<u64>,
) -> Vec<Share> {
    let mut classes = std::collections::BTreeMap::<Weight, (u32, u64)>::new();
    for (weight, packets) in weights.zip(packets) {
        let class = classes.entry(weight).or_default();
        class.0 += 1;
        class.1 += packets;
    }
    let total: u64 = packets.iter().sum();
    let all: u64 = classes
        .iter()
        .map(|(w, c)| u64::from(w.get()) * u64::from(c.0))
        .sum();
    let share = |(&weight, &(clients, packets)): (&Weight, &(u32, u64))| Share {
        weight: weight.get(),
        clients,
        share: packets as f64 / total.max(1) as f64 / f64::from(clients),
        expected: f64::from(weight.get()) / all as f64,
        t_wfi_algorithm_ns: promised(weight),
        t_wfi_ns: None,
    };
    classes.iter().map(share).collect()
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = match &self.way {
            Some(way) => format!(", way {way}"),
            None => String::new(),
        };
        write!(
            f,
            "{} with {}, transmit {}{way}: {:.2} million decisions/s over {:.1} s, {} of {} \
             clients sending, shares within {:.2}%",
            self.mode,
            self.alg,
            self.transmit,
            self.decisions_per_sec / 1e6,
            self.seconds,
            self.active,
            self.clients,
            self.max_share_error * 100.0,
        )?;
        for share in &self.shares {
            write!(
                f,
                "\n  weight {}: {:.3}% each of {} clients, expected {:.3}%",
                share.weight,
                share.share * 100.0,
                share.clients,
                share.expected * 100.0
            )?;
            if let Some(whole) = share.t_wfi_ns {
                write!(f, ", T-WFI at most {:.1} us", whole as f64 / 1e3)?;
            }
        }
        for (name, span) in [("Delta_A", self.delta_a_ns), ("Delta_D", self.delta_d_ns)] {
            if let Some(Span { mean, max }) = span {
                let (mean, max) = (mean as f64 / 1e3, max as f64 / 1e3);
                write!(f, "\n  {name}: mean {mean:.2} us, max {max:.1} us")?;
            }
        }
        if let Some(p) = self.victim_ns {
            let us = |ns: u64| ns as f64 / 1e3;
            write!(
                f,
                "\n  victim: {} packets, delay us: min {:.1}, 10% {:.1}, 50% {:.1}, 90% {:.1}, \
                 98% {:.1}, 99% {:.1}, max {:.1}",
                self.victim_packets,
                us(p.min),
                us(p.p10),
                us(p.p50),
                us(p.p90),
                us(p.p98),
                us(p.p99),
                us(p.max)
            )?;
        }
        Ok(())
    }
}
