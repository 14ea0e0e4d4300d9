//! Counters of packets, class by class.

use crate::packet::Count;
use crate::packet_scheduler::Limits;
use crate::queue::PacketList;
use crate::units::Length;

use super::child::{Child, ChildKind};
use super::{Body, Class, ClassId, Tree};

/// The counters of a class and of all below it: `accepted = sent + discarded + queued`.
///
/// Of a class with others below it, each count is the sum of theirs, and of those that were
/// removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct ClassStats {
    /// Accepted at enqueue.
    pub accepted: Count,
    /// Returned by dequeue.
    pub sent: Count,
    /// Waiting now.
    pub queued: Count,
    /// Rejected at enqueue, for whatever reason.
    pub dropped: Count,
    /// Accepted and discarded later: by queue management, a flush or a removal.
    pub discarded: Count,
    /// Packets that queue management marked; they also count where they went. One marked at enqueue and, by another
    /// management that replaced it, at dequeue, counts twice.
    pub marked: u64,
    /// Dynamic flows that there are.
    pub flows: u64,
    /// Packets that were sent to the common flow of those for which there was no room, accepted
    /// there or not.
    pub flow_table_full: u64,
    /// How often a class had something to send and was held back by its ceiling.
    pub overlimits: u64,
}

impl ClassStats {
    /// Returns the sums of both.
    pub fn plus(self, other: &ClassStats) -> ClassStats {
        ClassStats {
            accepted: self.accepted.plus(other.accepted),
            sent: self.sent.plus(other.sent),
            queued: self.queued.plus(other.queued),
            dropped: self.dropped.plus(other.dropped),
            discarded: self.discarded.plus(other.discarded),
            marked: self.marked + other.marked,
            flows: self.flows + other.flows,
            flow_table_full: self.flow_table_full + other.flow_table_full,
            overlimits: self.overlimits + other.overlimits,
        }
    }

    /// Returns the counts less those of `other`, with 0 as the minimum.
    #[must_use]
    pub fn minus(self, other: &ClassStats) -> ClassStats {
        ClassStats {
            accepted: self.accepted.minus(other.accepted),
            sent: self.sent.minus(other.sent),
            queued: self.queued.minus(other.queued),
            dropped: self.dropped.minus(other.dropped),
            discarded: self.discarded.minus(other.discarded),
            marked: self.marked.saturating_sub(other.marked),
            flows: self.flows.saturating_sub(other.flows),
            flow_table_full: self.flow_table_full.saturating_sub(other.flow_table_full),
            overlimits: self.overlimits.saturating_sub(other.overlimits),
        }
    }
}

/// The counters of every queue in addition to its accepted packets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Losses {
    pub dropped: Count,
    pub discarded: Count,
    pub marked: u64,
    pub overlimits: u64,
}

impl<P> Tree<P> {
    /// Returns the counters of a class and of all below it, or `None` if there is no such class. The root also counts
    /// packets rejected because their class did not exist. O(classes below).
    pub fn stats(&self, class: ClassId) -> Option<ClassStats> {
        let mut sum = ClassStats::default();
        let mut rest = alloc::vec![class.number()];
        self.class(class).ok()?;
        while let Some(number) = rest.pop() {
            let Ok(class) = self.class(ClassId::new(number)) else {
                continue;
            };
            sum = sum.plus(&self.own(class));
            if let Body::Inner { node, .. } = class.body {
                rest.extend(self.classes_below(node));
            }
        }
        Some(sum)
    }

    /// The same without the classes below it that there are, of which those that were removed
    /// are none: summed up over a class and all below it, this is [`stats`](Self::stats). O(1).
    pub fn own_stats(&self, class: ClassId) -> Option<ClassStats> {
        self.class(class).ok().map(|class| self.own(class))
    }

    fn own(&self, class: &Class) -> ClassStats {
        self.present(class).plus(&class.former)
    }

    /// Counts of a class's own queues.
    fn present(&self, class: &Class) -> ClassStats {
        let losses = class.losses;
        let mut own = ClassStats {
            dropped: losses.dropped,
            discarded: losses.discarded,
            marked: losses.marked,
            overlimits: losses.overlimits,
            ..ClassStats::default()
        };
        match class.body {
            Body::Leaf { soft_limit, .. } => {
                let child = self.nodes[class.parent as usize].order.child(class.slot);
                own.accepted = child.accepted();
                own.queued = child.queued(soft_limit);
                own.sent = own.accepted.minus(own.discarded).minus(own.queued);
            }
            Body::Flows { node } => {
                if let Some(flows) = &self.nodes[node as usize].flows {
                    flows.add_to(&mut own);
                }
            }
            Body::Inner { .. } => {}
        }
        own
    }

    /// Numbers of the classes right below a node that is not one of flows.
    pub(super) fn classes_below(&self, node: u32) -> impl Iterator<Item = u32> {
        let order = &self.nodes[node as usize].order;
        (0..order.slots()).filter_map(move |slot| {
            let child = order.child(slot);
            match child.tag.kind {
                ChildKind::Leaf => Some(child.side),
                ChildKind::Inner => Some(self.nodes[child.side as usize].class),
                _ => None,
            }
        })
    }

    /// Accepted packets and bytes, of all classes that ever were.
    pub(super) fn accepted(&self) -> Count {
        Count {
            packets: self.slab.stored(),
            bytes: self.accepted_bytes,
        }
    }

    /// Waiting packets and bytes.
    pub(super) fn queued(&self) -> Count {
        let limit = self.limits.bytes.min(i64::MAX as u64) as i64;
        Count {
            packets: self.slab.len().into(),
            bytes: (limit - self.room_bytes) as u64,
        }
    }

    /// Counts for the class of a queue.
    pub(super) fn count(&mut self, at: u32, child: &Child, count: impl FnOnce(&mut Losses)) {
        let class = match child.tag.kind {
            ChildKind::Leaf => child.side,
            _ => self.nodes[at as usize].class,
        };
        if let Some(class) = &mut self.classes[class as usize] {
            count(&mut class.losses);
        }
    }

    /// Limits of a queue, by which its room counts: of a leaf, its soft limit.
    pub(super) fn limits_of(&self, at: u32, child: &Child) -> Limits {
        match (child.tag.kind, &self.nodes[at as usize].flows) {
            (ChildKind::Flow, Some(flows)) => flows.config.leaf.limits,
            _ => match &self.classes[child.side as usize] {
                Some(Class {
                    body: Body::Leaf { soft_limit, .. },
                    ..
                }) => *soft_limit,
                _ => Limits::NONE,
            },
        }
    }

    /// Returns the packets of a queue, the first one first.
    pub(super) fn lengths(&self, packets: &PacketList) -> impl Iterator<Item = Length> {
        packets.iter(&self.slab).map(|(len, _)| len)
    }
}
