//! The classes of a link, from a site file.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use fairlane_classify::{DigestKey, LinkClassifier, Origin};
use fairlane_config::Link;
use fairlane_core::tree::{ClassId, ClassQueue, Discarded};
use fairlane_core::{Dequeue, Discipline, Length, Nanos};
use fairlane_wire::Layer;

use super::{Offered, Queues, Taken, counts, fill, offer};
use crate::pointers::Discard;
use crate::status::fl_status::{self, FL_ERR_FLOW, FL_ERR_LENGTH, FL_OK};
use crate::types::{Room, fl_flow, fl_packet, fl_stats};

pub(crate) struct Classes {
    queue: Discipline<usize>,
    filters: LinkClassifier,
    link: Arc<Link>,
    /// The link's classes by index.
    ids: Vec<ClassId>,
    /// The latest time passed in: time never goes back.
    latest: Nanos,
}

impl Classes {
    pub(crate) fn new(link: &Arc<Link>) -> Self {
        let (queue, ids) = link.discipline();
        // Secret, so that no sender can choose colliding flows.
        let random = || RandomState::new().hash_one(0);
        Classes {
            queue,
            filters: link.classifier(&ids, DigestKey([random(), random()])),
            link: Arc::clone(link),
            ids,
            latest: Nanos::ZERO,
        }
    }

    fn at(&mut self, now: Nanos) -> Nanos {
        self.latest = self.latest.max(now);
        self.latest
    }
}

/// Classes live as long as their scheduler; as a flow number, 0 is no class.
const GENERATION: u64 = 1 << 32;

#[inline]
fn named(class: ClassId) -> fl_flow {
    GENERATION | u64::from(class.number())
}

#[inline]
fn known(flow: fl_flow) -> Option<ClassId> {
    (flow & !0xffff_ffff == GENERATION).then_some(ClassId::new(flow as u32))
}

fn tell(discard: &Discard, gone: Discarded<usize>) {
    let flow = named(gone.class);
    discard.tell(&fl_packet::new(
        gone.payload,
        flow,
        gone.len,
        gone.reason.into(),
    ));
}

impl Queues for Classes {
    fn class(&self, name: &str) -> Result<fl_flow, fl_status> {
        let mut classes = self.link.classes.iter();
        let place = classes.position(|class| &*class.name == name);
        let id = place.and_then(|place| self.ids.get(place));
        id.map(|&id| named(id)).ok_or(FL_ERR_FLOW)
    }

    fn classify(&mut self, frame: &[u8], layer: Layer) -> Result<(fl_flow, u64), fl_status> {
        let (origin, now) = (Origin::default(), self.latest);
        let place = self.filters.classify(frame, layer, &origin, now);
        Ok((named(place.class), place.flow))
    }

    fn enqueue(&mut self, packets: &[fl_packet], now: Nanos, discard: &Discard) -> Offered {
        let now = self.at(now);
        offer(packets, |packet| {
            let Some(class) = known(packet.flow.get()) else {
                return FL_ERR_FLOW;
            };
            let Some(length) = Length::new(packet.length.get()) else {
                return FL_ERR_LENGTH;
            };
            let (digest, kept) = (packet.digest.get(), packet.kept());
            let gone = |gone| tell(discard, gone);
            match (self.queue).enqueue(class, digest, length, kept, now, gone) {
                Ok(()) => FL_OK,
                Err(rejected) => rejected.reason.into(),
            }
        })
    }

    fn dequeue(&mut self, rooms: &[Room], now: Nanos, discard: &Discard) -> Taken {
        let now = self.at(now);
        self.queue.expire_idle(now);
        fill(rooms, || {
            match self.queue.dequeue(now, |gone| tell(discard, gone)) {
                Dequeue::Packet(packet) => {
                    let flow = named(packet.owner);
                    Ok(fl_packet::new(packet.payload, flow, packet.len, FL_OK))
                }
                Dequeue::NotBefore(time) => Err(time.0),
                Dequeue::Empty => Err(u64::MAX),
            }
        })
    }

    fn stats(&self, flow: fl_flow) -> Result<fl_stats, fl_status> {
        let class = match flow {
            0 => Some(ClassId::ROOT),
            flow => known(flow),
        };
        let stats = class.and_then(|class| self.queue.stats(class));
        let of = stats.ok_or(FL_ERR_FLOW)?;
        Ok(counts([
            of.accepted,
            of.sent,
            of.queued,
            of.dropped,
            of.discarded,
        ]))
    }

    fn flush(&mut self, discard: &Discard) {
        let now = self.latest;
        (self.queue).flush(ClassId::ROOT, now, |gone| tell(discard, gone));
    }
}
