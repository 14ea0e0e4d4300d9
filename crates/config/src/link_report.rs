//! The guarantees of a site, link by link: the output of `fairlane check --json`.

use fairlane_core::bounds::{Transmit, transmit_time};
use fairlane_core::{Nanos, Rate};
use serde::Serialize;

use crate::class_report::{ClassTerms, FlowTerms};
use crate::{Link, LongestBy, Shared, Site};

/// The guarantees of a site.
#[derive(Clone, Debug, Serialize)]
pub struct SiteReport {
    /// The links, one for each direction.
    pub links: Vec<LinkReport>,
    /// Settings that are probably unintended, one sentence each.
    pub warnings: Vec<String>,
}

/// The guarantees of a link. Rates are in bit/s, sizes in bytes.
#[derive(Clone, Debug, Serialize)]
pub struct LinkReport {
    /// Its name.
    pub name: String,
    /// The side that its packets leave by.
    pub to: &'static str,
    /// Its rate.
    pub rate_bps: u64,
    /// Bytes that each packet takes on the wire in addition to its own.
    pub overhead: u32,
    /// The longest packet, with overhead.
    pub longest: u32,
    /// The least size that a packet counts for where a buffer reservation is in packets.
    pub shortest: u32,
    /// The packet limit of the whole link's backlog.
    pub limit_packets: u32,
    /// Its byte limit.
    pub limit_bytes: u64,
    /// Packets of the link's limit that are not reserved for any class.
    pub shared_packets: u64,
    /// Bytes of the link's limit that are not reserved for any class.
    pub shared_bytes: u64,
    /// The source of the longest packet: `file`, `interface`, or `assumed`.
    pub longest_by: &'static str,
    /// The same in words, behind the length.
    #[serde(skip)]
    pub reason: String,
    /// The algorithm among the topmost classes.
    pub algorithm: String,
    /// Number of filters.
    pub filters: usize,
    /// The delay that the daemon's pipeline adds to that of every class. `None` if the file names no interfaces, since
    /// no daemon runs such a file.
    pub pipeline: Option<PipelineTerms>,
    /// Its classes, in the order of the file.
    pub classes: Vec<ClassRow>,
}

/// The delay that a daemon's pipeline adds to that of every class of a link, as far as it is known before the daemon
/// runs: the terms of PSPAT's Eq. 1 other than the algorithm's. The delay bound of a class includes none of them.
///
/// ```
/// use fairlane_config::link_report::PipelineTerms;
///
/// // Two receive workers, and a millisecond of the link in the hands of the device.
/// let terms = PipelineTerms {
///     receive_workers: 2,
///     arbiters: 1,
///     held_frames: 2_184,
///     arrival_rounds: Some(4),
///     departure_rounds: 2,
///     released_packets: 64,
///     released_bytes: 64 * 1_500,
///     device_bytes: 125_000,
///     ..PipelineTerms::default()
/// };
/// let terms = terms.over("1gbit".parse()?, 0);
/// assert_eq!(terms.transmit_bytes, 125_000 + 64 * 1_500);
/// // 8 ns a byte.
/// assert_eq!(terms.transmit_time_ns, terms.transmit_bytes * 8);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PipelineTerms {
    /// Number of threads that receive packets for the link; 0 if the forwarding thread receives them itself.
    pub receive_workers: usize,
    /// Number of arbiter threads: 1 for all links, or 2, one per link.
    pub arbiters: usize,
    /// The most frames that the receive workers hold together, in addition to the link's backlog.
    pub held_frames: usize,
    /// Delta_A: the number of rounds of the forwarding thread within which it picks up a frame from a receive worker,
    /// counting both the round in which the frame arrives and the one that picks it up. `None` without workers: the
    /// forwarding thread then enqueues a frame in the round in which it receives it.
    pub arrival_rounds: Option<usize>,
    /// Delta_D: the number of rounds, counted the same way, within which an eligible packet reaches the device, or a
    /// transmit worker, if that has space. It holds while the link sends no more than
    /// [`released_packets`](Self::released_packets) in a round.
    pub departure_rounds: usize,
    /// Number of threads that transmit the link's packets; 0 if the forwarding thread transmits them itself.
    pub transmit_workers: usize,
    /// The rest of Delta_D: the number of rounds of a transmit worker, counted the same way, within which a packet
    /// handed to it reaches the device, if that has space. `None` without transmit workers.
    pub transmit_rounds: Option<usize>,
    /// The most packets released in a round. If the device is full, no more than these are left unsent.
    pub released_packets: usize,
    /// Their most bytes: no more than the link carries in the [longest permitted round](Self::round_budget_ns), and a
    /// packet.
    pub released_bytes: u64,
    /// Bytes that may be queued in the device, as its backend counts them, and in transmit workers.
    pub device_bytes: u64,
    /// Q: the bytes of both, with the link's overhead if the backend counts none.
    pub transmit_bytes: u64,
    /// The time in nanoseconds that the link takes to send these bytes: the delay of a packet behind a full transmit
    /// queue.
    pub transmit_time_ns: u64,
    /// The speed of the interface, from the file or from its driver: the rate at which a full transmit queue drains.
    pub speed_bps: Option<u64>,
    /// The budget of a round, in nanoseconds, on which delays from interface to interface are based.
    pub round_budget_ns: u64,
}

impl PipelineTerms {
    /// Returns the duration of all rounds that a packet may wait for, each within its budget, from its arrival at an
    /// interface to the other one. The delays in the queues and behind the transmit queue are extra.
    #[must_use]
    pub fn rounds(&self) -> Nanos {
        let rounds = [
            self.arrival_rounds,
            Some(self.departure_rounds),
            self.transmit_rounds,
        ];
        let rounds: usize = rounds.into_iter().flatten().sum();
        Nanos(self.round_budget_ns.saturating_mul(rounds as u64))
    }

    /// Returns the terms for a link that drains a full transmit queue at this rate: the bytes of the device, those that
    /// are [released](Self::released_bytes) but not yet accepted by it, and `beside` bytes of overhead that it does not
    /// count.
    #[must_use]
    pub fn over(self, rate: Rate, beside: u64) -> PipelineTerms {
        let transmit_bytes = self.device_bytes + beside + self.released_bytes;
        PipelineTerms {
            transmit_bytes,
            transmit_time_ns: transmit_time(Transmit::Queue(transmit_bytes), rate).0,
            ..self
        }
    }
}

/// A class; `flows` corresponds to `each` in the terms.
#[derive(Clone, Debug, Serialize)]
pub struct ClassRow {
    /// Its identity and its guarantees.
    #[serde(flatten)]
    pub terms: Shared<ClassTerms>,
    /// Each flow of a class of flows.
    pub flows: Option<FlowTerms>,
    /// Worst-case delay from interface to interface, in nanoseconds: the delay bound, and the delays of the daemon's
    /// rounds and its transmit queue. Null if one of them is unknown.
    pub port_to_port_ns: Option<u64>,
}

impl SiteReport {
    /// Returns the report of all links, with the pipeline of each in a daemon. O(classes).
    pub fn new(site: &Site, pipeline: impl Fn(&Link) -> Option<PipelineTerms>) -> SiteReport {
        SiteReport {
            links: site
                .links
                .iter()
                .map(|link| LinkReport::new(link, pipeline(link)))
                .collect(),
            warnings: site.warnings.iter().map(ToString::to_string).collect(),
        }
    }
}

impl LinkReport {
    fn new(link: &Link, pipeline: Option<PipelineTerms>) -> LinkReport {
        let kept = link.kept();
        let terms = ClassTerms::of(link);
        let added = pipeline.as_ref();
        let added = added.map(|terms| terms.rounds().0 + terms.transmit_time_ns);
        let row = |at| ClassRow {
            port_to_port_ns: (terms[at].bound.zip(added)).map(|(delay, added)| delay.0 + added),
            flows: terms[at].each.as_deref().cloned(),
            terms: terms.share(at),
        };
        LinkReport {
            name: link.name.clone(),
            to: link.to.name(),
            rate_bps: link.rate.bps(),
            overhead: link.overhead,
            longest: link.longest.get(),
            shortest: link.shortest().get(),
            limit_packets: link.limits.packets,
            limit_bytes: link.limits.bytes,
            shared_packets: u64::from(link.limits.packets) - kept.0,
            shared_bytes: link.limits.bytes - kept.1,
            longest_by: match link.longest_by {
                LongestBy::File => "file",
                LongestBy::Interface { .. } => "interface",
                LongestBy::Assumed => "assumed",
            },
            reason: match link.longest_by {
                LongestBy::File => String::new(),
                LongestBy::Interface { mtu } => format!(" (its MTU is {mtu})"),
                LongestBy::Assumed => " (an MTU of 1500 is assumed)".to_owned(),
            },
            algorithm: link.algorithm.to_string(),
            filters: link.rules.len(),
            pipeline,
            classes: (0..terms.len()).map(row).collect(),
        }
    }
}
