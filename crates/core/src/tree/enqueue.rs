//! A packet comes in: into the queue of its class or flow, or back to its owner.

use crate::aqm::{Backlog, Verdict};
use crate::units::{Length, Nanos};

use super::cap::NONE;
use super::child::flag;
use super::{ClassId, Node, Payload, Place, Rejected, Rejection, Tree};

impl<P: Payload> Tree<P> {
    /// Accepts a packet into the queue of its class or flow, or hands it back with the reason.
    /// The length is frozen here: nothing reads it from the payload later. `flow` is the
    /// digest of its flow, which only classes of flows look at.
    #[inline]
    pub fn enqueue(
        &mut self,
        class: ClassId,
        flow: u64,
        len: Length,
        payload: P,
        now: Nanos,
    ) -> Result<(), Rejected<P>> {
        let place = self.places.get(class.index());
        let Place { node: at, slot } = *place.unwrap_or(&Place::NOWHERE);
        let bytes = i64::from(len.get());
        let mut packet = (now, payload);
        // No table is as long as the index for none.
        if let Some(node) = self.nodes.get_mut(at as usize)
            && self.room_bytes >= bytes
        {
            match node.order.accept(slot, len, packet, &mut self.slab) {
                Ok(selected) => {
                    self.room_bytes -= bytes;
                    self.accepted_bytes += bytes as u64;
                    if let Some(selected) = selected {
                        self.begin(at, selected, now);
                    }
                    return Ok(());
                }
                Err(refused) => packet = refused,
            }
        }
        self.enqueue_special(class, flow, len, packet.1, now)
    }

    /// Accepts a packet for a flow, or for a leaf with queue management or a cap; or says what
    /// is against it.
    #[inline(never)]
    fn enqueue_special(
        &mut self,
        class: ClassId,
        flow: u64,
        len: Length,
        mut payload: P,
        now: Nanos,
    ) -> Result<(), Rejected<P>> {
        let place = self.places.get(class.index());
        let Place { node: at, mut slot } = *place.unwrap_or(&Place::NOWHERE);
        if slot == NONE {
            match self.slot_of(class, at, flow, len, now) {
                Ok(found) => slot = found,
                Err(reason) => return Err(Rejected { payload, reason }),
            }
        }
        if self.nodes[at as usize].order.child(slot).has(flag::AQM)
            && let Err(reason) = self.admit_managed(class, at, slot, len, &mut payload, now)
        {
            return Err(Rejected { payload, reason });
        }
        let bytes = i64::from(len.get());
        let node = &mut self.nodes[at as usize];
        let child = node.order.child_mut(slot);
        if !child.has_room(len) || self.room_bytes < bytes {
            let reason = self.reject(class, at, slot, len, now);
            return Err(Rejected { payload, reason });
        }
        let stored = match self.slab.insert(len, (now, payload)) {
            Ok(stored) => stored,
            Err((_, payload)) => {
                let reason = self.reject(class, at, slot, len, now);
                return Err(Rejected { payload, reason });
            }
        };
        child.take_room(len);
        self.room_bytes -= bytes;
        self.accepted_bytes += bytes as u64;
        let was_empty = child.packets.append(&mut self.slab, stored);
        let (head, is_capped) = (child.announced(len), child.has(flag::CAP));
        match &mut node.flows {
            Some(flows) => flows.accepted.add(len),
            None => child.count_accepted(len),
        }
        if !was_empty {
            if node.follows_packets {
                node.order.arrived(slot, len.into());
            }
        } else if !is_capped || !self.holds_queue(at, slot, now) {
            self.activate(at, slot, head, len.into(), now);
        }
        Ok(())
    }

    /// The slot of a packet whose class does not have one for all of them.
    #[inline]
    fn slot_of(
        &mut self,
        class: ClassId,
        at: u32,
        flow: u64,
        len: Length,
        now: Nanos,
    ) -> Result<u32, Rejection> {
        let too_long = |node: &Node| len.get() > node.longest.get();
        let may_enter = match self.nodes.get(at as usize) {
            None => false,
            Some(node) => {
                !too_long(node) && self.room_bytes >= len.get().into() && self.slab.room() > 0
            }
        };
        // No flow is made for a packet that is refused in any case.
        if may_enter && let Some(slot) = self.flow_of(at, flow, now) {
            return Ok(slot);
        }
        Err(self.reject(class, at, NONE, len, now))
    }

    /// Asks queue management whether a packet may come in, if there is room for it. Management
    /// hears of those for which there is none, too; only one that comes in is marked.
    #[inline(never)]
    fn admit_managed(
        &mut self,
        class: ClassId,
        at: u32,
        slot: u32,
        len: Length,
        payload: &mut P,
        now: Nanos,
    ) -> Result<(), Rejection> {
        let child = *self.nodes[at as usize].order.child(slot);
        let queued = child.queued(self.limits_of(at, &child));
        let backlog = Backlog {
            packets: queued.packets as u32,
            bytes: queued.bytes,
        };
        let extra = self.extra_of(&child);
        let verdict = match self.extras.get_mut(extra as usize) {
            Some(extra) => extra.aqm.arriving(now, backlog, len),
            None => Verdict::Pass,
        };
        let has_room =
            child.has_room(len) && self.room_bytes >= len.get().into() && self.slab.room() > 0;
        match verdict {
            _ if !has_room => Err(self.reject(class, at, slot, len, now)),
            Verdict::Pass => Ok(()),
            Verdict::Mark if payload.mark() => {
                self.count(at, &child, |losses| losses.marked += 1);
                Ok(())
            }
            Verdict::Mark | Verdict::Drop => {
                self.reject(class, at, slot, len, now);
                Err(Rejection::Congestion)
            }
        }
    }

    /// Counts a packet that is not accepted, and says why.
    #[cold]
    #[inline(never)]
    fn reject(&mut self, class: ClassId, at: u32, slot: u32, len: Length, now: Nanos) -> Rejection {
        let known = match self.class(class) {
            Ok(_) => class,
            Err(_) => ClassId::ROOT,
        };
        if let Some(class) = &mut self.classes[known.index()] {
            class.losses.dropped.add(len);
        }
        let Some(node) = self.nodes.get_mut(at as usize) else {
            return match known == class {
                true => Rejection::NoQueue,
                false => Rejection::UnknownClass,
            };
        };
        if slot == NONE {
            return match Length::new(node.longest.get()) {
                Some(max) if len > max => Rejection::TooLong { max },
                _ => Rejection::TreeFull,
            };
        }
        let child = *node.order.child(slot);
        // A flow that was made for it, or woken by it, has nothing.
        if child.may_rest()
            && !node.order.is_active(slot)
            && let Some(flows) = &mut node.flows
        {
            flows.rest(&mut node.order, slot, now);
        }
        let max = Length::new(child.longest()).unwrap_or(Length::MAX);
        if len > max {
            Rejection::TooLong { max }
        } else if !child.has_room(len) {
            Rejection::QueueFull
        } else {
            Rejection::TreeFull
        }
    }
}
