//! A packet comes in: into the queue of its class or flow, or back to its owner.

use crate::aqm::{Backlog, Verdict};
use crate::units::{Length, Nanos};

use super::ceiling::NONE;
use super::child::{Child, ChildKind, flag};
use super::{ClassId, Discarded, Node, Place, Tree};
use crate::packet::{Rejected, Rejection};

impl<P> Tree<P> {
    /// Accepts a packet into the queue of its class or flow, or returns it with the reason. Like
    /// [`offer`](Self::offer), except that evicted packets are counted and dropped.
    #[inline]
    pub fn enqueue(
        &mut self,
        class: ClassId,
        flow: u64,
        len: Length,
        payload: P,
        now: Nanos,
    ) -> Result<(), Rejected<P>> {
        self.offer(class, flow, len, payload, now, drop)
    }

    /// Accepts a packet into the queue of its class or flow, or returns it with the reason. The length is fixed here:
    /// nothing reads it from the payload later. `flow` is the digest of its flow, which only classes of flows use.
    ///
    /// When the tree is full, packets of the class with the largest excess over its [`room`](crate::room) are evicted,
    /// and go to `discard`; if that is the packet's own class, the packet is rejected, or in a class of flows a packet
    /// of the longest flow is evicted. More than one is evicted only where bytes are short.
    #[inline]
    pub fn offer(
        &mut self,
        class: ClassId,
        flow: u64,
        len: Length,
        payload: P,
        now: Nanos,
        mut discard: impl FnMut(Discarded<P>),
    ) -> Result<(), Rejected<P>> {
        let place = self.places.get(class.index());
        let Place { node: at, slot } = *place.unwrap_or(&Place::NOWHERE);
        let bytes = i64::from(len.get());
        // No table is as long as the index for none.
        if let Some(node) = self.nodes.get_mut(at as usize)
            && self.room_bytes >= bytes
            && let Some(child) = node.order.plain_leaf(slot, len)
            && let Some(vacant) = self.slab.vacant()
        {
            let stored = vacant.fill(len, (now, payload));
            child.take_room(len);
            child.count_accepted(len);
            let first = child.packets.append(&mut self.slab, stored);
            self.room_bytes -= bytes;
            self.accepted_bytes += bytes as u64;
            if first {
                return self.activate_leaf(at, slot, len, now);
            }
            if node.follows_packets {
                node.order.arrived(slot, len.into());
            }
            return Ok(());
        }
        self.offer_special(class, flow, len, payload, now, &mut discard)
    }

    /// A plain leaf got its first packet. Apart, and the last that is done for it, so that a packet
    /// behind others needs no registers for it.
    #[cold]
    #[inline(never)]
    fn activate_leaf(
        &mut self,
        at: u32,
        slot: u32,
        len: Length,
        now: Nanos,
    ) -> Result<(), Rejected<P>> {
        self.activate(at, slot, len.into(), len.into(), now);
        Ok(())
    }

    /// Accepts a packet for a flow, for a leaf with queue management or a ceiling, beyond a leaf's soft limit, into a
    /// full tree or into a slab that must grow; or returns the reason against it.
    #[inline(never)]
    fn offer_special(
        &mut self,
        class: ClassId,
        flow: u64,
        len: Length,
        mut payload: P,
        now: Nanos,
        discard: &mut dyn FnMut(Discarded<P>),
    ) -> Result<(), Rejected<P>> {
        let (at, slot) = match self.queue_of(class, flow, len, &mut payload, now, discard) {
            Ok(place) => place,
            Err(reason) => return Err(Rejected { payload, reason }),
        };
        let Some(vacant) = self.slab.make_vacant() else {
            let reason = self.reject(class, at, slot, len, now);
            return Err(Rejected { payload, reason });
        };
        let stored = vacant.fill(len, (now, payload));
        let bytes = i64::from(len.get());
        self.room_bytes -= bytes;
        self.accepted_bytes += bytes as u64;
        let node = &mut self.nodes[at as usize];
        let child = node.order.child_mut(slot);
        child.take_room(len);
        let was_empty = child.packets.append(&mut self.slab, stored);
        let (head, has_ceiling) = (len.into(), child.has(flag::CEILING));
        let follows_packets = node.follows_packets;
        match &mut node.flows {
            Some(flows) => {
                flows.tally.offer(slot, len);
                if !flows.accept(slot, child, len, self.measure) {
                    self.extend_flows(at);
                }
            }
            None => child.count_accepted(len),
        }
        if !was_empty {
            if follows_packets {
                self.nodes[at as usize].order.arrived(slot, len.into());
            }
        } else if !has_ceiling || !self.hold_queue(at, slot, now) {
            self.activate(at, slot, head, len.into(), now);
        }
        Ok(())
    }

    /// Returns whether a packet may come in: the node and the slot of its queue, which has room for it.
    #[inline(always)]
    fn queue_of(
        &mut self,
        class: ClassId,
        flow: u64,
        len: Length,
        payload: &mut P,
        now: Nanos,
        discard: &mut dyn FnMut(Discarded<P>),
    ) -> Result<(u32, u32), Rejection> {
        let place = self.places.get(class.index());
        let Place { node: at, mut slot } = *place.unwrap_or(&Place::NOWHERE);
        if slot == NONE {
            slot = self.slot_of(class, at, flow, len, now, discard)?;
        }
        let child = self.nodes[at as usize].order.child(slot);
        if !child.has_room(len) || child.has(flag::AQM) || !self.fits(len) {
            self.ask(class, (at, slot), len, payload, now, discard)?;
        }
        Ok((at, slot))
    }

    /// Returns whether a packet may come into a queue that has no room for it, asks queue management, or is one of a
    /// full tree. Queue management may have marked it.
    #[inline(never)]
    fn ask(
        &mut self,
        class: ClassId,
        (at, slot): (u32, u32),
        len: Length,
        payload: &mut P,
        now: Nanos,
        discard: &mut dyn FnMut(Discarded<P>),
    ) -> Result<(), Rejection> {
        let mut child = *self.nodes[at as usize].order.child(slot);
        if child.tag.kind == ChildKind::Leaf && !child.has_room(len) {
            self.extend(at, slot, class, len);
            child = *self.nodes[at as usize].order.child(slot);
        }
        let verdict = match child.has(flag::AQM) {
            true => self.ask_management(at, &child, len, now),
            false => Verdict::Pass,
        };
        if !child.has_room(len) {
            return Err(self.reject(class, at, slot, len, now));
        }
        if verdict == Verdict::Drop {
            self.reject(class, at, slot, len, now);
            return Err(Rejection::Congestion);
        }
        if !self.fits(len) && !self.make_room(self.claim(class, at, slot, len), now, discard) {
            return Err(self.reject(class, at, slot, len, now));
        }
        // Its soft limit may have been cut back meanwhile.
        if child.tag.kind == ChildKind::Leaf
            && !self.nodes[at as usize].order.child(slot).has_room(len)
        {
            self.extend(at, slot, class, len);
        }
        if verdict == Verdict::Mark {
            if !(self.mark)(payload) {
                self.reject(class, at, slot, len, now);
                return Err(Rejection::Congestion);
            }
            self.count(at, &child, |losses| losses.marked += 1);
        }
        Ok(())
    }

    /// Returns the slot of a packet whose class has no common queue.
    #[inline]
    fn slot_of(
        &mut self,
        class: ClassId,
        at: u32,
        flow: u64,
        len: Length,
        now: Nanos,
        discard: &mut dyn FnMut(Discarded<P>),
    ) -> Result<u32, Rejection> {
        let too_long = |node: &Node| len.get() > node.longest.get();
        // No flow is made for a packet that is rejected in any case.
        let may_enter = match self.nodes.get(at as usize) {
            None => false,
            Some(node) if too_long(node) => false,
            Some(_) if self.fits(len) => true,
            Some(node) => {
                let known = node.flows.as_ref();
                known.is_some_and(|flows| flows.find(&node.order, flow).is_some())
                    || self.make_room(self.claim_of_new(class, at, len, now), now, discard)
            }
        };
        if may_enter && let Some(slot) = self.flow_of(at, flow, now) {
            return Ok(slot);
        }
        Err(self.reject(class, at, NONE, len, now))
    }

    /// Asks queue management whether a packet may be enqueued. It also sees packets for which there is no space; only
    /// an accepted packet is marked.
    fn ask_management(&mut self, at: u32, child: &Child, len: Length, now: Nanos) -> Verdict {
        let queued = child.queued(self.limits_of(at, child));
        let backlog = Backlog {
            packets: queued.packets as u32,
            bytes: queued.bytes,
        };
        let extra = self.extra_of(child);
        match self.extras.get_mut(extra as usize) {
            Some(extra) => extra.aqm.arriving(now, backlog, len),
            None => Verdict::Pass,
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
                false => Rejection::Unknown,
            };
        };
        if slot == NONE {
            return match Length::new(node.longest.get()) {
                Some(max) if len > max => Rejection::TooLong { max },
                _ => Rejection::LinkFull,
            };
        }
        let child = *node.order.child(slot);
        if let Some(flows) = &mut node.flows {
            flows.tally.offer(slot, len);
        }
        // A flow that was made for it, or woken by it, has nothing.
        if child.may_rest()
            && !node.order.is_active(slot)
            && let Some(flows) = &mut node.flows
        {
            flows.rest(&mut node.order, slot, now);
        }
        let full = !self.limits_allow(&child, len);
        let max = Length::new(child.longest()).unwrap_or(Length::MAX);
        if len > max {
            Rejection::TooLong { max }
        } else if full {
            Rejection::QueueFull
        } else {
            Rejection::LinkFull
        }
    }
}
