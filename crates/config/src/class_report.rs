//! The report of a class, with the same keys wherever it appears: the guarantees, and the counters of the packets,
//! whether a device or a simulation carried them. Rates are in bit/s, sizes in bytes with the link's overhead.
//!
//! ```
//! use fairlane_config::{List, Site};
//! use fairlane_config::class_report::{
//!     ClassReport, ClassTerms, DelayReport, Drops, FlowTerms, Promise, Recent, differing,
//! };
//! use fairlane_core::Count;
//! use fairlane_core::tree::ClassStats;
//!
//! let text = r#"
//! [[link]]
//! name = "up"
//! to = "outside"
//! rate = "10mbit"
//!
//! [[link.class]]
//! name = "everybody"
//! per = "source-ip"
//! flows = { most = 64 }
//! default = true
//! "#;
//! let site = Site::parse(text, "site.toml")?;
//! let terms: List<ClassTerms> = ClassTerms::of(&site.links[0]);
//! let each: &FlowTerms = terms[0].each.as_ref().ok_or("no flows")?;
//! assert_eq!((&*each.per, each.most), ("source-ip", 64));
//!
//! // The counters of a queue, and the recent rates of a running link.
//! let sent = Count { packets: 10, bytes: 12_500 };
//! let stats = ClassStats { accepted: sent, sent, ..ClassStats::default() };
//! let delay = DelayReport { mean: Some(800.0), p50: 700.0, p99: 2_000.0, max: 2_400.0 };
//! let recent = Recent { sent_bps: 100_000.0, delay_us: Some(delay), ..Recent::default() };
//! let report = ClassReport {
//!     recent: Some(recent),
//!     ..ClassReport::counted(terms.share(0), &stats, Count::default(), 1.0, 25_000)
//! };
//! assert_eq!((report.sent_bps, report.share), (100_000.0, 0.5));
//! assert_eq!(report.drops, Drops::default());
//!
//! // The effect of a change on guarantees.
//! let faster = Site::parse(&text.replace("10mbit", "20mbit"), "site.toml")?;
//! let after = ClassTerms::of(&faster.links[0]);
//! assert_eq!(differing(&terms, &after), [(Some(0), Some(0))]);
//! let promise: Promise = Promise::of(&after[0]);
//! assert_eq!((promise.guaranteed_bps, promise.weight), (Some(20_000_000), Some(1)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use fairlane_core::sched::{Algorithm, Sharing};
use fairlane_core::tree::ClassStats;
use fairlane_core::{Count, Nanos, Rate};
use serde::{Serialize, Serializer};

use crate::{Class, ClassKind, Flows, Guarantee, Link, LinkAlgorithm, List, NoGuarantee, Shared};

/// The identity of a class and its guarantees; null if there is none.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassTerms {
    /// Its name.
    pub name: Arc<str>,
    /// Its number in the order of the file, from 0.
    pub number: usize,
    /// Its parent.
    pub parent: Option<Arc<str>>,
    /// Number of its ancestors.
    #[serde(skip)]
    pub depth: usize,
    /// Whether packets are queued here and not in child classes.
    #[serde(skip)]
    pub queues: bool,
    /// `inner`, `leaf` or `flows`.
    pub kind: &'static str,
    /// Whether it is the default class.
    pub default: bool,
    /// Its configured weight; 1 if it has neither a weight nor a rate. `None` if it has only a rate, or if its parent's
    /// algorithm has no weights.
    pub weight: Option<u32>,
    /// Its weight in the scheduler, computed from the rates and weights of its siblings: for debugging.
    pub scheduler_weight: u32,
    /// The configured rate.
    pub rate_bps: Option<u64>,
    /// The ceiling.
    pub ceil_bps: Option<u64>,
    /// Bytes that it may send at once at its ceiling.
    pub burst: Option<u32>,
    /// The guaranteed rate while it is backlogged.
    pub guaranteed_bps: Option<u64>,
    /// Bytes that it may send at once in addition to its rate without loss.
    pub guaranteed_burst: Option<u64>,
    /// Bytes that may arrive at once in addition to the guaranteed rate, of the class or of a flow, for the delay bound
    /// to hold.
    pub arrival_burst: Option<u32>,
    /// Worst-case delay of a packet of a class, or flow, that keeps to its guaranteed rate and arrival burst.
    #[serde(rename = "bound_us", serialize_with = "in_micros")]
    pub bound: Option<Nanos>,
    /// Worst-case delay of a packet that arrives at an empty queue of a class, or flow, that may have been served ahead
    /// of its rate.
    #[serde(rename = "ahead_bound_us", serialize_with = "in_micros")]
    pub ahead_bound: Option<Nanos>,
    /// Packets reserved for it.
    pub room_packets: Option<u32>,
    /// Bytes reserved for it.
    pub room_bytes: Option<u32>,
    /// The algorithms whose bounds these are, from the root down.
    pub bounds: Arc<[&'static str]>,
    /// The reason why there is no guarantee, or no bound.
    pub no_bound: Option<Arc<str>>,
    /// The guarantees of each flow of a class of flows, apart since most classes have one queue.
    pub each: Option<Arc<FlowTerms>>,
}

/// The guarantees of each flow of a class.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowTerms {
    /// The packet fields that identify a flow.
    pub per: String,
    /// Limit on the number of flows.
    pub most: u32,
    /// The ceiling of each flow.
    pub ceil_bps: Option<u64>,
    /// The guaranteed rate of each flow.
    pub guaranteed_bps: Option<u64>,
    /// Bytes that each may send at once in addition to its rate without loss.
    pub guaranteed_burst: Option<u64>,
    /// Bytes that may arrive at once in addition to a flow's rate, for its delay bound to hold.
    pub arrival_burst: u32,
    /// Worst-case delay of a packet of a flow that keeps to its rate and arrival burst.
    #[serde(rename = "bound_us", serialize_with = "in_micros")]
    pub bound: Option<Nanos>,
    /// Number of flows that have a buffer reservation at a time.
    pub with_room: u32,
    /// Packets reserved for each such flow.
    pub room_packets: u32,
    /// Bytes reserved for each such flow.
    pub room_bytes: u32,
}

impl ClassTerms {
    /// Returns the delay bound in microseconds.
    #[must_use]
    pub fn bound_us(&self) -> Option<f64> {
        self.bound.map(micros)
    }

    /// Returns the terms of all classes of a link, in the order of the file. O(classes), computed once for a link.
    pub fn of(link: &Link) -> List<ClassTerms> {
        ClassTerms::after(link, &List::default())
    }

    /// Returns the same; pieces without a change are shared with the former list.
    pub fn after(link: &Link, former: &List<ClassTerms>) -> List<ClassTerms> {
        let report = &link.found.report;
        report.get_or_init(|| Box::new(terms_of(link, former)));
        ClassTerms::known(link).cloned().unwrap_or_default()
    }

    /// Returns the terms of a link whose terms were computed before.
    fn known(link: &Link) -> Option<&List<ClassTerms>> {
        link.found.report.get()?.downcast_ref()
    }

    /// Returns the terms of a class without regard to its siblings.
    fn alone(class: &Class, guarantee: &Guarantee, words: &mut Words) -> ClassTerms {
        let (kind, room) = match &class.kind {
            ClassKind::Inner(_) => ("inner", None),
            ClassKind::Leaf(queue) => ("leaf", Some(queue.room)),
            ClassKind::Flows(flows) => ("flows", Some(flows.room)),
        };
        let reason = guarantee
            .rate
            .err()
            .or(guarantee.delay.and_then(Result::err));
        ClassTerms {
            name: Arc::clone(&class.name),
            number: class.number,
            parent: None,
            depth: 0,
            queues: room.is_some(),
            kind,
            default: false,
            weight: None,
            scheduler_weight: class.weight.get(),
            rate_bps: class.rate.map(Rate::bps),
            ceil_bps: class.ceiling.map(|ceiling| ceiling.rate.bps()),
            burst: class.ceiling.map(|ceiling| ceiling.burst),
            guaranteed_bps: guarantee.rate.ok(),
            guaranteed_burst: guarantee.burst,
            arrival_burst: room.map(|_| class.arrival_burst),
            bound: guarantee.delay.and_then(Result::ok),
            ahead_bound: guarantee.ahead.and_then(Result::ok),
            room_packets: room.map(|room| room.packets),
            room_bytes: room.map(|room| room.bytes),
            bounds: words.bounds(&guarantee.path),
            no_bound: reason.map(|reason| words.why(reason)),
            each: match &class.kind {
                ClassKind::Flows(flows) => Some(Arc::new(FlowTerms::of(flows, class, guarantee))),
                _ => None,
            },
        }
    }
}

/// Values that sibling classes share: the names of the algorithms on their paths, and the reasons for missing
/// guarantees.
#[derive(Default)]
struct Words {
    bounds: (Arc<[Algorithm]>, Arc<[&'static str]>),
    why: Option<(NoGuarantee, Arc<str>)>,
}

impl Words {
    fn bounds(&mut self, path: &Arc<[Algorithm]>) -> Arc<[&'static str]> {
        if !Arc::ptr_eq(&self.bounds.0, path) {
            let names = path.iter().map(|algorithm| algorithm.name());
            self.bounds = (Arc::clone(path), names.collect());
        }
        Arc::clone(&self.bounds.1)
    }

    fn why(&mut self, reason: NoGuarantee) -> Arc<str> {
        let known = self.why.take().filter(|(known, _)| *known == reason);
        let (_, words) =
            (self.why).insert(known.unwrap_or_else(|| (reason, reason.to_string().into())));
        Arc::clone(words)
    }
}

/// Returns the indices of the classes that may differ from those of the link with these terms, in order; `None` if that
/// is unknown.
fn differs_from_those<'a>(link: &'a Link, terms: &List<ClassTerms>) -> Option<&'a [Range<usize>]> {
    let other = link.former()?;
    let known = ClassTerms::known(&other)?;
    known.is(terms).then(|| link.differs_from(&other))?
}

fn terms_of(link: &Link, former: &List<ClassTerms>) -> List<ClassTerms> {
    let guarantees = link.kept_guarantees();
    let mut words = Words::default();
    let mut of = |at: usize, depth| {
        let class = &link.classes[at];
        let parent = class.parent.map(|parent| &link.classes[parent]);
        ClassTerms {
            parent: parent.map(|parent| Arc::clone(&parent.name)),
            weight: (class.share > 0 && has_weights(link, parent)).then_some(class.share),
            depth,
            default: at == link.default as usize,
            ..ClassTerms::alone(class, &guarantees[at], &mut words)
        }
    };
    if let Some(but) = differs_from_those(link, former) {
        let mut all = former.clone();
        for at in but.iter().cloned().flatten() {
            let parent = link.classes[at].parent;
            let terms = of(at, parent.map_or(0, |parent| all[parent].depth + 1));
            if all[at] != terms {
                all.set(at, terms);
            }
        }
        return all;
    }
    // Parents come before their children.
    let mut depths: Vec<usize> = Vec::with_capacity(link.classes.len());
    for class in &link.classes {
        depths.push(class.parent.map_or(0, |parent| depths[parent] + 1));
    }
    let all = depths.iter().enumerate();
    let all = all.map(|(at, &depth)| of(at, depth));
    List::after(former, all, ClassTerms::eq)
}

/// Returns whether the children of a class, or of the link, share it by weight.
fn has_weights(link: &Link, parent: Option<&Class>) -> bool {
    let above = match (parent.map(|parent| &parent.kind), link.algorithm) {
        (Some(ClassKind::Inner(algorithm)), LinkAlgorithm::Tree(_)) => *algorithm,
        (None, LinkAlgorithm::Tree(algorithm)) => algorithm,
        _ => return false,
    };
    above.sharing() == Sharing::Weights
}

/// The guarantees of a class to its packets; null if there is none.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Promise<'a> {
    /// Its parent.
    pub parent: Option<&'a str>,
    /// Its configured weight.
    pub weight: Option<u32>,
    /// The ceiling.
    pub ceil_bps: Option<u64>,
    /// The guaranteed rate.
    pub guaranteed_bps: Option<u64>,
    /// Worst-case delay of a packet of a class, or flow, that keeps to its guaranteed rate and arrival burst.
    #[serde(rename = "bound_us", serialize_with = "in_micros")]
    pub bound: Option<Nanos>,
    /// Packets reserved for it.
    pub room_packets: Option<u32>,
}

impl Promise<'_> {
    /// Returns the guarantees among the terms of a class.
    pub fn of(terms: &ClassTerms) -> Promise<'_> {
        Promise {
            parent: terms.parent.as_deref(),
            weight: terms.weight,
            ceil_bps: terms.ceil_bps,
            guaranteed_bps: terms.guaranteed_bps,
            bound: terms.bound,
            room_packets: terms.room_packets,
        }
    }
}

/// Returns the classes with other [guarantees](Promise) in `after` than in `before`, by their indices in both: in the
/// order of the file, removed classes last. O(classes).
pub fn differing(
    before: &List<ClassTerms>,
    after: &List<ClassTerms>,
) -> Vec<(Option<usize>, Option<usize>)> {
    // Where no class is added, removed or renamed, names need not be looked up.
    let others: Option<Vec<usize>> = before.unlike(after).map(Iterator::collect);
    let others = others.filter(|places| {
        let mut places = places.iter();
        places.all(|&at| before[at].name == after[at].name)
    });
    let in_place = others.is_some();
    let mut former: HashMap<&str, usize> = HashMap::new();
    if !in_place {
        former.extend(before.iter().map(|terms| &*terms.name).zip(0..));
    }
    let mut pairs = Vec::new();
    for at in others.unwrap_or_else(|| (0..after.len()).collect()) {
        let was = match in_place {
            true => Some(at),
            false => former.remove(&*after[at].name),
        };
        if was.map(|was| Promise::of(&before[was])) != Some(Promise::of(&after[at])) {
            pairs.push((was, Some(at)));
        }
    }
    let gone = (0..before.len()).filter(|&at| former.contains_key(&*before[at].name));
    pairs.extend(gone.map(|at| (Some(at), None)));
    pairs
}

impl FlowTerms {
    fn of(flows: &Flows, class: &Class, guarantee: &Guarantee) -> FlowTerms {
        FlowTerms {
            per: flows.per.to_string(),
            most: flows.most,
            ceil_bps: flows.ceiling.map(|ceiling| ceiling.rate.bps()),
            guaranteed_bps: guarantee.each.as_ref().and_then(|each| each.rate.ok()),
            guaranteed_burst: guarantee.each.as_ref().and_then(|each| each.burst),
            arrival_burst: class.arrival_burst,
            bound: guarantee.delay.and_then(Result::ok),
            with_room: flows.roomy(),
            room_packets: flows.queue.room.packets,
            room_bytes: flows.queue.room.bytes,
        }
    }
}

/// A class and the counters of its packets; bytes include the link's overhead.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassReport {
    /// Its guarantees.
    #[serde(flatten)]
    pub terms: Shared<ClassTerms>,
    /// Packets that arrived, whether sent or dropped.
    pub offered_packets: u64,
    /// Their bytes.
    pub offered_bytes: u64,
    /// Their mean rate.
    pub offered_bps: f64,
    /// Packets that were enqueued.
    pub accepted_packets: u64,
    /// Packets that left.
    pub sent_packets: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Their mean rate.
    pub sent_bps: f64,
    /// Its part of the bytes that the link sent.
    pub share: f64,
    /// Packets in the queue, now or at the end.
    pub queued_packets: u64,
    /// Their bytes.
    pub queued_bytes: u64,
    /// Dropped packets, by reason.
    pub drops: Drops,
    /// Packets that queue management marked with ECN CE.
    pub marked: u64,
    /// Packets received while the interface lost frames: a sample of the lost traffic.
    pub ring_loss_samples: u64,
    /// Fragments of datagrams whose first fragment was not seen: they were classified without ports.
    pub orphan_fragments: u64,
    /// An estimate of its part of the frames lost before classification, from its part of the arrivals during the loss.
    pub lost_estimate: u64,
    /// Number of times that its ceiling delayed it.
    pub overlimits: u64,
    /// Flows that have queues.
    pub flows: u64,
    /// Packets whose flow could not get its own queue.
    pub flow_table_full: u64,
    /// Null before the first packet has left, and for a class with children. For interfaces, the delay from one
    /// interface to the other.
    pub delay_us: Option<DelayReport>,
    /// Packets that took longer than the bound. This and the next two fields are of a simulated link.
    pub late_packets: Option<u64>,
    /// Packets within the guaranteed rate and arrival burst of their class, or flow, to which the bound applies.
    pub conforming_packets: Option<u64>,
    /// The longest delay of a conforming packet.
    pub conforming_max_us: Option<f64>,
    /// Packets that left, and exceeded the guaranteed rate and arrival burst of their class, or flow, on arrival. This
    /// and the next field are of a running link.
    pub nonconforming_packets: u64,
    /// Recent values.
    pub recent: Option<Recent>,
}

/// Dropped packets of a class, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Drops {
    /// Packets rejected on arrival, since the queue was full.
    pub full: u64,
    /// Packets that were enqueued, and dropped later by queue management or evicted.
    pub managed: u64,
    /// Packets dropped on arrival, before they were received: those above the class's share in an overload.
    pub early: u64,
}

impl Drops {
    /// Returns the number of drops for any reason.
    #[must_use]
    pub const fn total(self) -> u64 {
        self.full + self.managed + self.early
    }

    /// Returns the drops since these were counted.
    #[must_use]
    pub fn since(self, before: Drops) -> Drops {
        Drops {
            full: self.full.saturating_sub(before.full),
            managed: self.managed.saturating_sub(before.managed),
            early: self.early.saturating_sub(before.early),
        }
    }
}

/// Recent rates and delays of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Recent {
    /// The mean rate of arrivals.
    pub offered_bps: f64,
    /// The mean throughput.
    pub sent_bps: f64,
    /// Its part of the bytes that the link sent.
    pub share: f64,
    /// Dropped packets, by reason.
    pub drops: Drops,
    /// Null if no packet left.
    pub delay_us: Option<DelayReport>,
    /// Number of times that its ceiling delayed it.
    pub overlimits: u64,
    /// Whether all packets that left had arrived within the class's guaranteed rate and arrival burst, so that its
    /// bound applies; null where it has no bound.
    pub bound_applies: Option<bool>,
    /// Conforming packets that took longer than the bound.
    pub late_packets: u64,
    /// Number of such packets since the start.
    pub violations: u64,
    /// Passively measured TCP round-trip times: from a segment of this class to its acknowledgment. Null without
    /// samples.
    pub rtt_us: Option<DelayReport>,
    /// TCP segments retransmitted or received out of order, since the start.
    pub retransmits: u64,
    /// TCP segments received with ECN CE, since the start.
    pub ecn_ce: u64,
}

impl ClassReport {
    /// Returns a report from the counters of a queue over `seconds`, in which the link sent `all` bytes. `early`
    /// packets were dropped before they reached the queue. Values that a queue does not count are zero or `None`.
    pub fn counted(
        terms: Shared<ClassTerms>,
        stats: &ClassStats,
        early: Count,
        seconds: f64,
        all: u64,
    ) -> ClassReport {
        let offered_bytes = stats.accepted.bytes + stats.dropped.bytes + early.bytes;
        ClassReport {
            terms,
            offered_packets: stats.accepted.packets + stats.dropped.packets + early.packets,
            offered_bytes,
            offered_bps: bps(offered_bytes, seconds),
            accepted_packets: stats.accepted.packets,
            sent_packets: stats.sent.packets,
            sent_bytes: stats.sent.bytes,
            sent_bps: bps(stats.sent.bytes, seconds),
            share: part(stats.sent.bytes, all),
            queued_packets: stats.queued.packets,
            queued_bytes: stats.queued.bytes,
            drops: Drops {
                full: stats.dropped.packets,
                managed: stats.discarded.packets,
                early: early.packets,
            },
            marked: stats.marked,
            ring_loss_samples: 0,
            orphan_fragments: 0,
            lost_estimate: 0,
            overlimits: stats.overlimits,
            flows: stats.flows,
            flow_table_full: stats.flow_table_full,
            delay_us: None,
            late_packets: None,
            conforming_packets: None,
            conforming_max_us: None,
            nonconforming_packets: 0,
            recent: None,
        }
    }
}

fn in_micros<S: Serializer>(time: &Option<Nanos>, to: S) -> Result<S::Ok, S::Error> {
    time.map(micros).serialize(to)
}

fn micros(time: Nanos) -> f64 {
    time.0 as f64 / 1e3
}

/// Returns the mean rate over a time, in bit/s; 0 for an empty time.
pub fn bps(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        bytes as f64 * 8.0 / seconds
    } else {
        0.0
    }
}

/// Returns `bytes` as a fraction of `of`.
pub fn part(bytes: u64, of: u64) -> f64 {
    bytes as f64 / of.max(1) as f64
}

/// A repeatedly measured time, in the unit of its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SpanReport {
    /// The mean.
    pub mean: f64,
    /// The longest.
    pub max: f64,
}

impl SpanReport {
    /// Returns a report in microseconds.
    pub fn in_micros(mean: Nanos, longest: Nanos) -> SpanReport {
        SpanReport {
            mean: micros(mean),
            max: micros(longest),
        }
    }
}

/// Delays, in the unit of their key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct DelayReport {
    /// Null if only histogram buckets are counted.
    pub mean: Option<f64>,
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}
