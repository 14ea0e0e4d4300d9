//! One shaped direction: the classes of a link behind an arbiter, and what is told of them.

use std::sync::Arc;

use fairlane_classify::DigestKey;
use fairlane_config::{Discipline, Link};
use fairlane_core::Nanos;
use fairlane_core::tree::{ClassId, ClassQueue, ClassStats};
use fairlane_runtime::bridge::{LaneStats, Side};
use fairlane_runtime::{Arbiter, ArbiterConfig, Classified, Ported, Straight};

use super::device::AnyDevice;
use super::frame::Parcel;
use super::report::{ClassReport, DelayReport, LinkReport};
use super::sorting::{Sorting, random_key};

/// The frames of a link in its classes.
pub type Shaped = Classified<Parcel, Discipline<Ported<Parcel>>, Sorting>;

/// What the program knows of a link beside its frames.
pub struct Shaper {
    /// The device that its packets leave by.
    pub side: Side,
    pub link: Link,
    /// The numbers of its classes, by place.
    pub ids: Vec<ClassId>,
    /// What flows are told apart by.
    pub key: DigestKey,
    names: Vec<Arc<str>>,
    /// What was counted before the configuration was read again, by place.
    pub former: Vec<ClassStats>,
}

impl Shaper {
    /// The arbiter of a link that is idle from `now`, where at most so many processes attach.
    pub fn new(
        link: &Link,
        side: Side,
        device: AnyDevice,
        processes: usize,
        now: Nanos,
    ) -> (Shaper, Arbiter<Shaped, Straight<AnyDevice>>) {
        let (discipline, ids) = link.discipline();
        let key = random_key();
        let sorting = Sorting::new(link, &ids, key);
        let config = ArbiterConfig {
            max_clients: processes.max(1),
            ..ArbiterConfig::new(fairlane_runtime::Link {
                overhead: link.overhead,
                ..fairlane_runtime::Link::new(link.rate)
            })
        };
        let queue = Classified::new(discipline, sorting);
        let arbiter = Arbiter::over(queue, config, Straight::to(device), now);
        (Shaper::of(link.clone(), side, ids, key), arbiter)
    }

    /// Of a link whose classes have these numbers.
    pub fn of(link: Link, side: Side, ids: Vec<ClassId>, key: DigestKey) -> Shaper {
        Shaper {
            side,
            names: link.classes.iter().map(|c| Arc::from(&*c.name)).collect(),
            former: vec![ClassStats::default(); link.classes.len()],
            link,
            ids,
            key,
        }
    }

    /// The state of the link after so many seconds.
    pub fn report(
        &self,
        queue: &Shaped,
        stats: LaneStats,
        to: Arc<str>,
        seconds: f64,
    ) -> LinkReport {
        let sorter = &queue.classifier().sorter;
        let places = 0..self.link.classes.len();
        let all: Vec<ClassStats> = places
            .clone()
            .map(|place| self.stats(queue, place))
            .collect();
        let top = places.clone().filter(|&place| self.parent(place).is_none());
        let sent: u64 = top.map(|place| all[place].sent.bytes).sum();
        let bps = |bytes: u64| bytes as f64 * 8.0 / seconds.max(1e-9);
        let classes = places.map(|place| {
            let class = &self.link.classes[place];
            let stats = &all[place];
            ClassReport {
                name: Arc::clone(&self.names[place]),
                parent: self
                    .parent(place)
                    .map(|parent| Arc::clone(&self.names[parent])),
                depth: self.path(place).count() - 1,
                cap_bps: class.cap.map(|cap| cap.rate.bps()),
                sent_packets: stats.sent.packets,
                sent_bytes: stats.sent.bytes,
                sent_bps: bps(stats.sent.bytes),
                share: match sent {
                    0 => 0.0,
                    _ => stats.sent.bytes as f64 / sent as f64,
                },
                accepted_packets: stats.accepted.packets,
                queued_packets: stats.queued.packets,
                queued_bytes: stats.queued.bytes,
                dropped: stats.dropped.packets,
                discarded: stats.discarded.packets,
                marked: stats.marked,
                beside_lost: queue.classifier().beside_lost[place],
                throttled: stats.throttled,
                flows: stats.flows,
                overflowed: stats.overflowed,
                delay_us: delay(queue.classifier(), place),
            }
        });
        LinkReport {
            name: Arc::from(&*self.link.name),
            to,
            algorithm: self.link.algorithm.to_string(),
            rate_bps: self.link.rate.bps(),
            rate: self.link.rate,
            overhead: self.link.overhead,
            longest_frame: self.link.longest.get() - self.link.overhead,
            carried_bps: bps(sent),
            utilisation: bps(sent) / self.link.rate.bps() as f64,
            received_frames: stats.received.frames,
            oversized: stats.oversized.frames,
            malformed: sorter.malformed(),
            unmatched: sorter.unmatched(),
            transmitted: stats.transmitted,
            queued_packets: u64::from(queue.classes().len()),
            classes: classes.collect(),
        }
    }

    /// What became of a class's packets, from the beginning of the run.
    fn stats(&self, queue: &Shaped, place: usize) -> ClassStats {
        let now = queue.classes().stats(self.ids[place]);
        sum(&self.former[place], &now.unwrap_or_default())
    }

    /// A class and those above it, by place.
    pub fn path(&self, place: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(place), |&above| self.parent(above))
    }

    fn parent(&self, place: usize) -> Option<usize> {
        self.link.classes[place].parent
    }
}

fn delay(sorting: &Sorting, place: usize) -> Option<DelayReport> {
    let delays = &sorting.delays[place];
    let micros = |nanos: u64| nanos as f64 / 1e3;
    Some(DelayReport {
        p50: micros(delays.quantile(0.5)?),
        p99: micros(delays.quantile(0.99)?),
        max: micros(delays.longest()?),
    })
}

/// Counts of one class before and after a change; what is queued, and the flows, are of now.
pub fn sum(former: &ClassStats, now: &ClassStats) -> ClassStats {
    let both = |count: fn(&ClassStats) -> fairlane_core::Count| {
        let (former, now) = (count(former), count(now));
        fairlane_core::Count {
            packets: former.packets + now.packets,
            bytes: former.bytes + now.bytes,
        }
    };
    ClassStats {
        accepted: both(|stats| stats.accepted),
        sent: both(|stats| stats.sent),
        queued: now.queued,
        dropped: both(|stats| stats.dropped),
        discarded: both(|stats| stats.discarded),
        marked: former.marked + now.marked,
        flows: now.flows,
        overflowed: former.overflowed + now.overflowed,
        throttled: former.throttled + now.throttled,
    }
}
