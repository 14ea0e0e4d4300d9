//! Admission and eviction while the link is full ([`room`](crate::room)).
//!
//! The holders of a link are its leaves and its classes of flows; those of a class of flows are
//! its flows. A packet that finds the link full displaces one of the class that holds most beyond
//! its own, and in a class of flows of the flow that does; if its own class is the one, a flow
//! within its own still displaces the longest of the others.
//!
//! A leaf has a *soft limit*: the amount that it may hold before it must check, and from which its excess over its own
//! reservation is derived in the heap of classes. So a packet within it is accepted without a call of this module. It
//! grows in steps, and is cut back to the content of the leaf when the leaf reaches the top of the heap.
//!
//! The evicted packet is the one behind the first: the algorithm was given the first one's length. Where it is the only
//! one, or where the algorithm follows every packet, the first is evicted, which is a drop like any other: a queue
//! without packets is skipped at its turn.

use crate::packet::Count;
use crate::packet_scheduler::Limits;
use crate::room::{Measure, Room};
use crate::units::{Length, Nanos};

use super::child::{Child, ChildKind, flag};
use super::dynamic::Flows;
use super::{Body, Class, ClassId, Discarded, Reason, Tree, TreeError};

/// Least packets that a soft limit grows by.
const STEP: u64 = 16;

/// A packet that needs space: the place of its queue, and the content of that queue without it.
#[derive(Clone, Copy)]
pub(super) struct Claim {
    pub class: ClassId,
    /// Of a class of flows: the node and the flow; a flow that there is not yet has no slot.
    pub flow: Option<(u32, Option<u32>)>,
    pub queued: Count,
    pub own: Room,
    pub len: Length,
}

impl Flows {
    /// A flow accepted a packet: whether the class holds no more than it is taken to hold.
    #[inline(always)]
    pub(super) fn accept(
        &mut self,
        slot: u32,
        flow: &Child,
        len: Length,
        measure: Measure,
    ) -> bool {
        self.accepted.add(len);
        self.queued.add(len);
        let held = flow.queued(self.config.leaf.limits);
        let own = self.own_at_least(flow);
        if held.packets > own.packets.into() || held.bytes > own.bytes.into() {
            self.beyond.raise(slot, measure.beyond(held, own));
        }
        self.queued.packets <= self.known.packets && self.queued.bytes <= self.known.bytes
    }
}

impl<P> Tree<P> {
    /// Returns whether the link has room for a packet.
    #[inline]
    pub(super) fn fits(&self, len: Length) -> bool {
        self.room_bytes >= i64::from(len.get()) && self.slab.room() > 0
    }

    /// Keeps other room than before for a class, unless the link holds less than all of it.
    pub(super) fn keep_room(&mut self, before: Room, after: Room) -> Result<(), TreeError> {
        let kept = self.kept.minus(before.count()).plus(after.count());
        if after != before {
            self.may_keep(kept)?;
        }
        self.kept = kept;
        Ok(())
    }

    /// Returns whether the link holds this amount.
    pub(super) fn may_keep(&self, kept: Count) -> Result<(), TreeError> {
        if kept.packets <= self.limits.packets.into() && kept.bytes <= self.limits.bytes {
            return Ok(());
        }
        Err(TreeError::Room {
            packets: kept.packets,
            bytes: kept.bytes,
            of: Count {
                packets: self.limits.packets.into(),
                bytes: self.limits.bytes,
            },
        })
    }

    /// Returns the reservations of all classes together.
    pub fn kept(&self) -> Count {
        self.kept
    }

    /// Lets a leaf hold a packet more than it does, if its limits do.
    #[inline(never)]
    pub(super) fn extend(&mut self, at: u32, slot: u32, class: ClassId, len: Length) {
        let Some(Class {
            body: Body::Leaf {
                config, soft_limit, ..
            },
            ..
        }) = &mut self.classes[class.index()]
        else {
            return;
        };
        let child = self.nodes[at as usize].order.child_mut(slot);
        let held = child.queued(*soft_limit);
        let step = STEP.max(held.packets / 8);
        let wanted = Count {
            packets: held.packets.max(config.room.packets.into()) + step,
            bytes: (held.bytes.max(config.room.bytes.into()) + u64::from(len.get()))
                .saturating_add(self.measure.bytes(step)),
        };
        let grown = Limits {
            packets: wanted.packets.min(config.limits.packets.into()) as u32,
            bytes: wanted.bytes.min(config.limits.bytes.into()) as u32,
        };
        child.relimit(*soft_limit, grown);
        *soft_limit = grown;
        let bound = self.measure.beyond(counted(grown), config.room);
        self.beyond.raise(class.number(), bound);
    }

    /// Returns the excess of a class over its own reservation. The class's content becomes its soft limit.
    fn trim(&mut self, number: u32) -> u64 {
        let Some(class) = &mut self.classes[number as usize] else {
            return 0;
        };
        match &mut class.body {
            Body::Leaf {
                config, soft_limit, ..
            } => {
                let child = self.nodes[class.parent as usize]
                    .order
                    .child_mut(class.slot);
                let held = child.queued(*soft_limit);
                let trimmed = soft_limit_for(held, config.room, config.limits);
                child.relimit(*soft_limit, trimmed);
                *soft_limit = trimmed;
                self.measure.beyond(held, config.room)
            }
            Body::Flows { node } => match &mut self.nodes[*node as usize].flows {
                Some(flows) => {
                    flows.known = flows.queued;
                    self.measure.beyond(flows.queued, flows.config.room)
                }
                None => 0,
            },
            Body::Inner { .. } => 0,
        }
    }

    /// A leaf or a class of flows was changed: its soft limit and its place in the heap follow.
    pub(super) fn settle_room(&mut self, number: u32) {
        self.beyond.remove(number);
        let beyond = self.trim(number);
        self.beyond.raise(number, beyond);
    }

    /// Returns the class with the largest excess over its own reservation, and that excess.
    fn most_of_classes(&mut self) -> Option<(u32, u64)> {
        let mut beyond = core::mem::take(&mut self.beyond);
        let most = beyond.most(|number| self.trim(number));
        self.beyond = beyond;
        most
    }

    /// The same among the flows of a class.
    fn most_of_flows(&mut self, at: u32) -> Option<(u32, u64)> {
        let node = &mut self.nodes[at as usize];
        let flows = node.flows.as_mut()?;
        let mut beyond = core::mem::take(&mut flows.beyond);
        let most = beyond.most(|slot| {
            let flow = node.order.child(slot);
            match flow.has(flag::IDLE) {
                true => 0,
                false => {
                    let held = flow.queued(flows.config.leaf.limits);
                    self.measure.beyond(held, flows.own(slot, flow))
                }
            }
        });
        flows.beyond = beyond;
        most
    }

    /// The class of flows has come to hold more than it was known to.
    #[inline(never)]
    pub(super) fn extend_flows(&mut self, at: u32) {
        let node = &mut self.nodes[at as usize];
        let Some(flows) = &mut node.flows else { return };
        let step = STEP.max(flows.queued.packets / 8);
        let own = flows.config.room.count();
        flows.known = Count {
            packets: flows.queued.packets.max(own.packets) + step,
            bytes: flows.queued.bytes.max(own.bytes) + self.measure.bytes(step),
        };
        let bound = self.measure.beyond(flows.known, flows.config.room);
        self.beyond.raise(node.class, bound);
    }

    /// Makes space in the link for a packet, unless its own class has the largest excess itself; returns whether it
    /// fits. Evicted packets go to `discard`.
    #[cold]
    #[inline(never)]
    pub(super) fn make_room(
        &mut self,
        claim: Claim,
        now: Nanos,
        discard: &mut dyn FnMut(Discarded<P>),
    ) -> bool {
        let one = Count {
            packets: 1,
            bytes: claim.len.get().into(),
        };
        while !self.fits(claim.len) {
            let (held, own) = self.held_by(&claim);
            let with_it = self.measure.beyond(held.plus(one), own);
            let most = self.most_of_classes();
            let victim = match most.filter(|&(_, most)| most > with_it) {
                Some((class, _)) => self.in_class(class),
                // Its own class must evict: within a class of flows, the longest flow.
                None => match claim.flow {
                    None => None,
                    Some((at, slot)) => {
                        let with_it = self.measure.beyond(claim.queued.plus(one), claim.own);
                        let most = self.most_of_flows(at);
                        let other =
                            most.filter(|&(other, most)| most > with_it && Some(other) != slot);
                        other.map(|(slot, _)| (at, slot, claim.class))
                    }
                },
            };
            let Some((at, slot, class)) = victim else {
                return false;
            };
            if !self.displace(at, slot, class, now, discard) {
                return false;
            }
        }
        true
    }

    /// Returns the content of the class of a claim, and its own reservation.
    fn held_by(&self, claim: &Claim) -> (Count, Room) {
        match claim.flow {
            None => (claim.queued, claim.own),
            Some((at, _)) => match &self.nodes[at as usize].flows {
                Some(flows) => (flows.queued, flows.config.room),
                None => (claim.queued, claim.own),
            },
        }
    }

    /// Returns the queue of a class to evict from.
    fn in_class(&mut self, number: u32) -> Option<(u32, u32, ClassId)> {
        let class = self.classes[number as usize].as_ref()?;
        let id = ClassId::new(number);
        match class.body {
            Body::Leaf { .. } => Some((class.parent, class.slot, id)),
            Body::Flows { node } => {
                let (slot, _) = self.most_of_flows(node)?;
                Some((node, slot, id))
            }
            Body::Inner { .. } => None,
        }
    }

    /// Discards a packet of a queue; whether there was one.
    fn displace(
        &mut self,
        at: u32,
        slot: u32,
        class: ClassId,
        now: Nanos,
        discard: &mut dyn FnMut(Discarded<P>),
    ) -> bool {
        let node = &mut self.nodes[at as usize];
        let follows = node.follows_packets;
        let child = node.order.child_mut(slot);
        let second = match follows {
            true => None,
            false => child.packets.pop_second(&mut self.slab),
        };
        let first = second.is_none();
        let gone = second.or_else(|| child.packets.pop_front(&mut self.slab));
        let Some((len, (_, payload))) = gone else {
            return false;
        };
        self.forgo(at, slot, class, len);
        if first {
            self.lost_first(at, slot, 1, now);
        }
        discard(Discarded {
            class,
            len,
            payload,
            reason: Reason::Displaced,
        });
        true
    }

    /// Counts a packet that is out of its queue and will not be sent.
    pub(super) fn forgo(&mut self, at: u32, slot: u32, class: ClassId, len: Length) {
        self.room_bytes += i64::from(len.get());
        let node = &mut self.nodes[at as usize];
        node.order.child_mut(slot).give_room(len);
        if let Some(flows) = &mut node.flows {
            flows.queued.subtract(len);
        }
        if let Some(class) = &mut self.classes[class.index()] {
            class.losses.discarded.add(len);
        }
    }

    /// Records that a queue lost its first packets while it has a place in the order.
    pub(super) fn lost_first(&mut self, at: u32, slot: u32, packets: u32, now: Nanos) {
        let node = &mut self.nodes[at as usize];
        node.order.discarded(slot, packets);
        node.selected = node.order.selected();
        if !node.follows_packets && node.order.is_active(slot) {
            node.order.child_mut(slot).tag.flags |= flag::STALE;
        }
        let child = *node.order.child(slot);
        if !child.packets.is_empty() {
            return;
        }
        if child.may_rest()
            && !node.order.is_active(slot)
            && let Some(flows) = &mut node.flows
        {
            flows.rest(&mut node.order, slot, now);
        }
        let extra = self.extra_of(&child);
        if let Some(extra) = self.extras.get_mut(extra as usize) {
            extra.aqm.emptied(now);
        }
    }

    /// Returns whether a queue's own limits allow for a packet.
    pub(super) fn limits_allow(&self, child: &Child, len: Length) -> bool {
        let class = match child.tag.kind {
            ChildKind::Leaf => self.classes[child.side as usize].as_ref(),
            _ => None,
        };
        let Some(Class {
            body: Body::Leaf {
                config, soft_limit, ..
            },
            ..
        }) = class
        else {
            return child.has_room(len);
        };
        let held = child.queued(*soft_limit);
        held.packets < config.limits.packets.into()
            && held.bytes + u64::from(len.get()) <= config.limits.bytes.into()
    }

    /// Returns the claim of a packet that arrived for a queue.
    pub(super) fn claim(&self, class: ClassId, at: u32, slot: u32, len: Length) -> Claim {
        let node = &self.nodes[at as usize];
        let child = node.order.child(slot);
        let queued = child.queued(self.limits_of(at, child));
        let (flow, own) = match (&node.flows, &self.classes[class.index()]) {
            (Some(flows), _) => (Some((at, Some(slot))), flows.own(slot, child)),
            (
                None,
                Some(Class {
                    body: Body::Leaf { config, .. },
                    ..
                }),
            ) => (None, config.room),
            _ => (None, Room::NONE),
        };
        Claim {
            class,
            flow,
            queued,
            own,
            len,
        }
    }
}

/// Returns the soft limit of a leaf that holds this amount.
pub(super) fn soft_limit_for(held: Count, room: Room, limits: Limits) -> Limits {
    let packets = held.packets.max(room.packets.into());
    let bytes = held.bytes.max(room.bytes.into());
    Limits {
        packets: packets.min(limits.packets.into()) as u32,
        bytes: bytes.min(limits.bytes.into()) as u32,
    }
}

pub(super) fn counted(limits: Limits) -> Count {
    Count {
        packets: limits.packets.into(),
        bytes: limits.bytes.into(),
    }
}
