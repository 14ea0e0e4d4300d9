//! Dequeue: down the path of the selected ones, and up again with the charge.

use crate::aqm::{Backlog, Verdict};
use crate::queue::Stored;
use crate::units::{Length, Nanos};

use super::ceiling::NONE;
use super::child::{Child, ChildKind, flag};
use super::{Body, ClassId, Discarded, ROOT, Reason, Tree};
use crate::packet::{Count, Dequeue, Packet, Stamped, Waited};

impl<P> Tree<P> {
    /// Removes and returns the next packet at time `now`; packets that queue management drops on the way go to
    /// `discard`.
    #[inline]
    pub fn dequeue(
        &mut self,
        now: Nanos,
        discard: impl FnMut(Discarded<P>),
    ) -> Dequeue<P, ClassId> {
        self.next(now, discard, |(_, payload)| payload)
    }

    /// Like [`dequeue`](Self::dequeue), with the sojourn time of each packet: its arrival time is stored in any case.
    #[inline]
    pub fn dequeue_with_sojourn(
        &mut self,
        now: Nanos,
        discard: impl FnMut(Discarded<P>),
    ) -> Dequeue<Waited<P>, ClassId> {
        self.next(now, discard, |(came, payload)| {
            Stamped { came, payload }.until(now)
        })
    }

    /// Returns the next packet, with the part of its arrival time and payload that `give` selects.
    #[inline(always)]
    fn next<T>(
        &mut self,
        now: Nanos,
        mut discard: impl FnMut(Discarded<P>),
        give: impl Fn((Nanos, P)) -> T,
    ) -> Dequeue<T, ClassId> {
        if self.ceilings.first().is_some_and(|time| time <= now) {
            self.release(now);
        }
        loop {
            let (mut at, mut selected) = (ROOT, self.nodes[ROOT as usize].selected);
            // The markers for a leaf and for no child are not nodes.
            while let Some(node) = self.nodes.get(selected.below as usize) {
                (at, selected) = (selected.below, node.selected);
            }
            let slot = selected.slot;
            if !selected.is_somebody() || self.root_held {
                match self.nobody(at) {
                    Some(answer) => return answer,
                    None => continue,
                }
            }
            let node = &mut self.nodes[at as usize];
            if let Some(sent) = node.order.take(slot, &mut self.slab) {
                self.room_bytes += i64::from(sent.len.get());
                node.charge(slot, sent.len, sent.next);
                self.charge_above(at, sent.len, now);
                return Dequeue::Packet(Packet {
                    owner: ClassId::new(sent.class),
                    len: sent.len,
                    payload: give(sent.payload),
                });
            }
            match self.send_special(at, slot, now, &give) {
                Some(Ok(packet)) => return Dequeue::Packet(packet),
                Some(Err(dropped)) => discard(dropped),
                None => self.pass_over(at, slot, now),
            }
        }
    }

    /// Charges for a packet all the way up from a node whose order was notified of it: each class on the path moves to
    /// its next place, or out of the order if it has no more packets or its ceiling holds it.
    #[inline(always)]
    fn charge_above(&mut self, mut at: u32, len: Length, now: Nanos) {
        let nodes = self.nodes.as_mut_slice();
        while let Some(node) = nodes.get(at as usize) {
            if node.ceiling != NONE {
                return self.charge_above_ceilings(at, len, now);
            }
            let (parent, slot) = (node.parent, node.slot);
            let next = node.selected.is_somebody().then_some(node.longest);
            // The root's parent is no node.
            let Some(above) = nodes.get_mut(parent as usize) else {
                return;
            };
            above.charge(slot, len, next);
            at = parent;
        }
    }

    /// The same from a node with a ceiling on.
    #[cold]
    #[inline(never)]
    fn charge_above_ceilings(&mut self, mut at: u32, len: Length, now: Nanos) {
        while let Some(node) = self.nodes.get(at as usize) {
            let (parent, slot, ceiling) = (node.parent, node.slot, node.ceiling);
            let mut next = node.selected.is_somebody().then_some(node.longest);
            if ceiling != NONE {
                self.ceilings.charge(ceiling, len, now);
                if next.is_some() && self.ceilings.hold(ceiling, now) {
                    self.count_held_node(at);
                    next = None;
                }
            }
            if let Some(above) = self.nodes.get_mut(parent as usize) {
                above.charge(slot, len, next);
            }
            at = parent;
        }
    }

    /// Takes the packet at the head of a flow, or of a leaf with queue management or a ceiling: it leaves, or is
    /// dropped. All counts are complete then. `None` if there is no packet, or the place of the first one is not its own.
    /// The packet is moved last, and once.
    #[cold]
    #[inline(never)]
    fn send_special<T>(
        &mut self,
        at: u32,
        slot: u32,
        now: Nanos,
        give: impl Fn((Nanos, P)) -> T,
    ) -> Option<Result<Packet<T, ClassId>, Discarded<P>>> {
        let node = &mut self.nodes[at as usize];
        let child = node.order.child_mut(slot);
        if child.has(flag::STALE) {
            return None;
        }
        let (stored, len, &(came, _)) = child.packets.detach(&self.slab)?;
        child.give_room(len);
        self.room_bytes += i64::from(len.get());
        let child = *child;
        if let Some(flows) = &mut node.flows {
            flows.queued.subtract(len);
        }
        let class = match child.tag.kind {
            ChildKind::Leaf => child.side,
            _ => node.class,
        };
        let class = ClassId::new(class);
        let head = child.packets.front_length(&self.slab);
        let mut next = head.map(Into::into);
        if child.has(flag::AQM | flag::LEAVING)
            && !self.may_leave(at, slot, &child, (len, came), &stored, now)
        {
            let (_, payload) = self.slab.remove(stored)?;
            return Some(Err(Discarded {
                class,
                len,
                payload,
                reason: Reason::Congestion,
            }));
        }
        if child.has(flag::CEILING) && self.charge_queue(at, &child, len, next.is_some(), now) {
            next = None;
        }
        let node = &mut self.nodes[at as usize];
        (node.order).charge(slot, len.into(), next, &mut node.selected);
        if let Some(flows) = &mut node.flows {
            flows.sent.add(len);
            flows.tally.add(slot, len);
            if child.may_rest() {
                flows.rest(&mut node.order, slot, now);
            }
        }
        self.charge_above(at, len, now);
        let payload = give(self.slab.remove(stored)?);
        Some(Ok(Packet {
            owner: class,
            len,
            payload,
        }))
    }

    /// Returns whether queue management lets the packet leave that was at the head of its queue.
    #[inline(never)]
    fn may_leave(
        &mut self,
        at: u32,
        slot: u32,
        child: &Child,
        (len, came): (Length, Nanos),
        stored: &Stored,
        now: Nanos,
    ) -> bool {
        let queued = child.queued(self.limits_of(at, child));
        let left = match self.is_within_reservation(at, slot, child, queued, len) {
            true => Backlog::default(),
            false => Backlog {
                packets: queued.packets as u32,
                bytes: queued.bytes,
            },
        };
        let extra = self.extra_of(child);
        let Some(extra) = self.extras.get_mut(extra as usize) else {
            return true;
        };
        let verdict = extra.aqm.leaving(now, now.since(came), left);
        if child.packets.is_empty() {
            extra.aqm.emptied(now);
        }
        let marked = verdict == Verdict::Mark
            && (self.slab.payload_mut(stored)).is_some_and(|(_, payload)| (self.mark)(payload));
        if verdict == Verdict::Pass {
            return true;
        }
        if marked {
            self.count(at, child, |losses| losses.marked += 1);
            return true;
        }
        // The algorithm has placed the queue by this packet: a longer one does not take its place.
        if child.packets.front_length(&self.slab) > Some(len) {
            return true;
        }
        self.count(at, child, |losses| losses.discarded.add(len));
        // One that is empty is skipped.
        if !child.packets.is_empty() {
            self.nodes[at as usize].order.dropped_first(slot);
            self.refresh(at);
        }
        false
    }

    /// Returns whether a queue held no more than its buffer reservation, or its class of flows no more than its floor,
    /// with the packet of this length that has just left it. Such a backlog is never too long: a sender that keeps to
    /// its guarantee never exceeds it.
    fn is_within_reservation(
        &self,
        at: u32,
        slot: u32,
        child: &Child,
        left: Count,
        len: Length,
    ) -> bool {
        let mut leaving = Count::default();
        leaving.add(len);
        if let Some(flows) = &self.nodes[at as usize].flows {
            let all = flows.queued.plus(leaving);
            return flows.config.aqm_floor.fits(all)
                || flows.own(slot, child).fits(left.plus(leaving));
        }
        let class = self.classes[child.side as usize].as_ref();
        class.is_some_and(|class| match &class.body {
            Body::Leaf { config, .. } => config.room.fits(left.plus(leaving)),
            _ => false,
        })
    }

    /// Charges a queue with a ceiling for a sent packet; returns whether the ceiling holds its remaining packets.
    fn charge_queue(
        &mut self,
        at: u32,
        child: &Child,
        len: Length,
        has_more: bool,
        now: Nanos,
    ) -> bool {
        let Some(ceiling) = self.ceiling_of_queue(child) else {
            return false;
        };
        self.ceilings.charge(ceiling, len, now);
        let held = has_more && self.ceilings.hold(ceiling, now);
        if held {
            self.count(at, child, |losses| losses.overlimits += 1);
        }
        held
    }

    /// Handles a node on the selected path that has no eligible child: no packet may be sent, if it is the root.
    #[cold]
    #[inline(never)]
    fn nobody<T>(&mut self, at: u32) -> Option<Dequeue<T, ClassId>> {
        let node = &self.nodes[at as usize];
        if at != ROOT && !self.root_held {
            // Its packets were discarded while it was in the order. It is no flow, so the time is not needed.
            let (parent, slot) = (node.parent, node.slot);
            self.pass_over(parent, slot, Nanos::ZERO);
            return None;
        }
        if self.is_empty() {
            return Some(Dequeue::Empty);
        }
        let first = match self.root_held {
            true => Some(self.ceilings.release_at(self.nodes[ROOT as usize].ceiling)),
            false => self.ceilings.first(),
        };
        debug_assert!(first.is_some(), "packets are queued, and no class is held");
        Some(first.map_or(Dequeue::Empty, Dequeue::NotBefore))
    }
}
