//! Packets in and out: the path of each, and who is told of it.

use crate::aqm::{Backlog, Verdict};
use crate::queue::PacketList;
use crate::units::{Charge, Length, Nanos};

use super::cap::NONE;
use super::child::{Child, Kind, flag};
use super::order::Selected;
use super::stats::Losses;
use super::{Body, Class, ClassId, Payload, Place, ROOT, Tree};

/// A packet on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<P> {
    /// Whose it is.
    pub class: ClassId,
    /// Its length, as it was at enqueue.
    pub len: Length,
    /// What the caller gave, marked if queue management said so.
    pub payload: P,
}

/// The answer to [`Tree::dequeue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dequeue<P> {
    /// The next packet, which is the caller's from now on.
    Packet(Packet<P>),
    /// Packets wait, and caps let none leave before this time.
    NotBefore(Nanos),
    /// Nothing waits.
    Empty,
}

/// Why an accepted packet will not be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Queue management dropped it when it was about to leave.
    Congestion,
    /// Its class was flushed or removed.
    Flushed,
}

/// A packet that was accepted and will not be sent: the caller's again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discarded<P> {
    /// Whose it was.
    pub class: ClassId,
    /// Its length, as it was at enqueue.
    pub len: Length,
    /// What the caller gave.
    pub payload: P,
    /// Why.
    pub reason: Reason,
}

/// Why a packet was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// No class has this number.
    #[error("there is no such class")]
    UnknownClass,
    /// The class has no queue.
    #[error("the class has classes below it, and no queue of its own")]
    NoQueue,
    /// Longer than its class, or one above, declared.
    #[error("the packet is longer than the {max} its class declared")]
    TooLong {
        /// The declared maximum.
        max: Length,
    },
    /// The queue holds its limit of packets or bytes (tail drop).
    #[error("the queue of the class is full")]
    QueueFull,
    /// All queues together hold their limit of packets or bytes (tail drop).
    #[error("the link's queues are full")]
    TreeFull,
    /// Queue management dropped it on arrival.
    #[error("queue management dropped the packet to signal congestion")]
    Congestion,
}

/// A packet that was not accepted goes back to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejected<P> {
    /// The packet, untouched.
    pub payload: P,
    /// Why.
    pub reason: Rejection,
}

/// What to do with a packet at the head of a special queue.
enum Departure {
    /// It leaves; this is what the order is told of next.
    Sent(Option<Charge>),
    Dropped,
}

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
        let too_long = |node: &super::Node| len.get() > node.longest.get();
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

    /// Hands out the next packet at time `now`; what queue management drops on the way goes to
    /// `discard`.
    #[inline]
    pub fn dequeue(&mut self, now: Nanos, mut discard: impl FnMut(Discarded<P>)) -> Dequeue<P> {
        if self.caps.first().is_some_and(|time| time <= now) {
            self.release(now);
        }
        loop {
            let (mut at, mut selected) = (ROOT, self.nodes[ROOT as usize].selected);
            // The markers for a leaf and for nobody are no nodes.
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
            if let Some(sent) = node.order.send(slot, &mut self.slab) {
                self.room_bytes += i64::from(sent.len.get());
                self.charge_above(at, sent.next, sent.len, now);
                return Dequeue::Packet(Packet {
                    class: ClassId::new(sent.class),
                    len: sent.len,
                    payload: sent.payload.1,
                });
            }
            match self.send_special(at, slot, now) {
                Some(Ok(packet)) => return Dequeue::Packet(packet),
                Some(Err(dropped)) => discard(dropped),
                None => self.pass_over(at, slot, now),
            }
        }
    }

    /// Charges for a packet all the way up from a node whose order was charged by `selected`:
    /// each class on the path goes to its next place, or out of the order where it has nothing
    /// more or its cap holds it.
    #[inline(always)]
    fn charge_above(&mut self, mut at: u32, mut selected: Selected, len: Length, now: Nanos) {
        while let Some(node) = self.nodes.get_mut(at as usize) {
            node.selected = selected;
            let mut next = selected.is_somebody().then_some(node.longest);
            let (here, slot, cap) = (at, node.slot, node.cap);
            at = node.parent;
            if cap != NONE {
                next = self.charge_cap(here, cap, len, next, now);
            }
            // The root's parent is no node.
            let Some(parent) = self.nodes.get_mut(at as usize) else {
                return;
            };
            selected = parent.order.charge(slot, len.into(), next);
        }
    }

    /// Charges the cap of a class with others below it; what its parent is told of next.
    #[inline(never)]
    fn charge_cap(
        &mut self,
        at: u32,
        cap: u32,
        len: Length,
        next: Option<Charge>,
        now: Nanos,
    ) -> Option<Charge> {
        self.caps.charge(cap, len, now);
        if next.is_some() && self.caps.hold(cap, now) {
            self.count_held_node(at);
            return None;
        }
        next
    }

    /// Takes the packet at the head of a flow, or of a leaf with queue management or a cap: it
    /// leaves, or is dropped. All is accounted for then. `None` where there is none.
    #[inline(never)]
    fn send_special(
        &mut self,
        at: u32,
        slot: u32,
        now: Nanos,
    ) -> Option<Result<Packet<P>, Discarded<P>>> {
        let node = &mut self.nodes[at as usize];
        let child = node.order.child_mut(slot);
        let (len, (came, mut payload)) = child.packets.pop_front(&mut self.slab)?;
        child.give_room(len);
        self.room_bytes += i64::from(len.get());
        let child = *child;
        let class = match child.kind {
            Kind::Leaf => child.side,
            _ => node.class,
        };
        let class = ClassId::new(class);
        let mut next = child.packets.front_length(&self.slab).map(Charge::from);
        if child.has(flag::AQM | flag::CAP) {
            match self.departure(at, slot, len, came, &mut payload, now) {
                Departure::Sent(head) => next = head,
                Departure::Dropped => {
                    return Some(Err(Discarded {
                        class,
                        len,
                        payload,
                        reason: Reason::Congestion,
                    }));
                }
            }
        }
        let node = &mut self.nodes[at as usize];
        let selected = node.order.charge(slot, len.into(), next);
        if let Some(flows) = &mut node.flows {
            flows.sent.add(len);
            if child.may_rest() {
                flows.rest(&mut node.order, slot, now);
            }
        }
        self.charge_above(at, selected, len, now);
        Some(Ok(Packet {
            class,
            len,
            payload,
        }))
    }

    /// What becomes of the packet at the head of a queue with queue management or a cap, and
    /// what the order is told of next if it leaves.
    #[inline(never)]
    fn departure(
        &mut self,
        at: u32,
        slot: u32,
        len: Length,
        came: Nanos,
        payload: &mut P,
        now: Nanos,
    ) -> Departure {
        let child = *self.nodes[at as usize].order.child(slot);
        let extra = self.extra_of(&child);
        let mut verdict = Verdict::Pass;
        let mut cap = NONE;
        let queued = child.queued(self.limits_of(at, &child));
        if let Some(extra) = self.extras.get_mut(extra as usize) {
            cap = extra.cap;
            let left = Backlog {
                packets: queued.packets as u32,
                bytes: queued.bytes,
            };
            verdict = extra.aqm.leaving(now, now.since(came), left);
            if child.packets.is_empty() {
                extra.aqm.emptied(now);
            }
        }
        match verdict {
            Verdict::Pass => {}
            Verdict::Mark if payload.mark() => {
                self.count(at, &child, |losses| losses.marked += 1);
            }
            Verdict::Mark | Verdict::Drop => {
                self.count(at, &child, |losses| losses.discarded.add(len));
                if child.packets.is_empty() {
                    self.pass_over(at, slot, now);
                } else {
                    self.nodes[at as usize].order.dropped_first(slot);
                    self.refresh(at);
                }
                return Departure::Dropped;
            }
        }
        let head = child.packets.front_length(&self.slab);
        let mut next = head.map(|head| child.announced(head));
        if cap != NONE {
            self.caps.charge(cap, len, now);
            if next.is_some() && self.caps.hold(cap, now) {
                next = None;
                self.count(at, &child, |losses| losses.throttled += 1);
            }
        }
        Departure::Sent(next)
    }

    /// The selected child has no packets: it goes out of its order, and so does each class
    /// above that has nobody else.
    #[cold]
    #[inline(never)]
    pub(super) fn pass_over(&mut self, mut at: u32, mut slot: u32, now: Nanos) {
        let node = &mut self.nodes[at as usize];
        let child = *node.order.child(slot);
        if child.may_rest()
            && let Some(flows) = &mut node.flows
        {
            flows.rest(&mut node.order, slot, now);
        }
        loop {
            let node = &mut self.nodes[at as usize];
            node.order.idle(slot);
            node.selected = node.order.selected();
            if node.selected.is_somebody() || node.parent == NONE {
                return;
            }
            slot = node.slot;
            at = node.parent;
        }
    }

    /// Nobody is next in a node on the selected path: nobody may be served, if it is the
    /// root.
    #[cold]
    #[inline(never)]
    fn nobody(&mut self, at: u32) -> Option<Dequeue<P>> {
        let node = &self.nodes[at as usize];
        if at != ROOT && !self.root_held {
            // What it had was discarded while it waited.
            let (parent, slot) = (node.parent, node.slot);
            self.pass_over(parent, slot, Nanos::ZERO);
            return None;
        }
        if self.is_empty() {
            return Some(Dequeue::Empty);
        }
        let first = match self.root_held {
            true => Some(self.caps.release_at(self.nodes[ROOT as usize].cap)),
            false => self.caps.first(),
        };
        debug_assert!(first.is_some(), "packets wait, and nobody is held");
        Some(first.map_or(Dequeue::Empty, Dequeue::NotBefore))
    }

    /// A child that had nothing to send has by now, and no cap of its own holds it. It gets its
    /// place, and so does each class above for which it is the first.
    #[inline]
    pub(super) fn activate(
        &mut self,
        at: u32,
        slot: u32,
        head: Charge,
        arrived: Charge,
        now: Nanos,
    ) {
        let node = &mut self.nodes[at as usize];
        let selected = node.order.backlogged(slot, head, arrived);
        self.begin(at, selected, now);
    }

    /// A node has a child that got its place, and this one is selected by now. If it is the
    /// only one, the node gets its own.
    #[inline]
    fn begin(&mut self, mut at: u32, mut selected: Selected, now: Nanos) {
        loop {
            let node = &mut self.nodes[at as usize];
            let before = core::mem::replace(&mut node.selected, selected);
            if before.is_somebody() {
                return;
            }
            let (slot, longest, parent) = (node.slot, node.longest, node.parent);
            if node.cap != NONE && self.holds_node(at, now) {
                return;
            }
            at = parent;
            let Some(parent) = self.nodes.get_mut(at as usize) else {
                return;
            };
            selected = parent.order.backlogged(slot, longest, longest);
        }
    }

    /// A child with a cap of its own got its first packet: whether the cap holds it.
    #[inline(never)]
    fn holds_queue(&mut self, at: u32, slot: u32, now: Nanos) -> bool {
        let child = *self.nodes[at as usize].order.child(slot);
        let extra = self.extra_of(&child);
        match self.extras.get(extra as usize).map(|extra| extra.cap) {
            None | Some(NONE) => false,
            Some(cap) if self.caps.is_held(cap) => true,
            // It was flushed, and its cap changed: it sends once from the place it has.
            Some(_) if self.nodes[at as usize].order.is_active(slot) => false,
            Some(cap) => {
                let held = self.caps.hold(cap, now);
                self.count(at, &child, |losses| losses.throttled += u64::from(held));
                held
            }
        }
    }

    /// A class with others below it and a cap has something to send: whether the cap holds it.
    #[inline(never)]
    fn holds_node(&mut self, at: u32, now: Nanos) -> bool {
        let node = &self.nodes[at as usize];
        if self.caps.is_held(node.cap) {
            return true;
        }
        if let Some(parent) = self.nodes.get(node.parent as usize)
            && parent.order.is_active(node.slot)
        {
            return false;
        }
        let held = self.caps.hold(node.cap, now);
        if held {
            self.count_held_node(at);
        }
        held
    }

    /// A cap holds a class with others below it from now on.
    #[inline(never)]
    fn count_held_node(&mut self, at: u32) {
        self.root_held |= at == ROOT;
        let class = self.nodes[at as usize].class;
        if let Some(class) = &mut self.classes[class as usize] {
            class.losses.throttled += 1;
        }
    }

    /// Lets everybody go on whose cap no longer holds them. O(log n) for each.
    #[cold]
    #[inline(never)]
    fn release(&mut self, now: Nanos) {
        while let Some(owner) = self.caps.release(now) {
            self.resume(owner, now);
        }
    }

    /// A child that no cap of its own holds any more has its place again, if it has something
    /// to send.
    pub(super) fn resume(&mut self, (at, slot): (u32, u32), now: Nanos) {
        if at == NONE {
            self.root_held = false;
            return;
        }
        let child = *self.nodes[at as usize].order.child(slot);
        let head = match child.kind {
            Kind::Inner => {
                let node = &self.nodes[child.side as usize];
                node.selected.is_somebody().then_some(node.longest)
            }
            _ => {
                let head = child.packets.front_length(&self.slab);
                head.map(|head| child.announced(head))
            }
        };
        if let Some(head) = head {
            self.activate(at, slot, head, head, now);
        }
    }

    /// Counts for the class of a queue.
    pub(super) fn count(&mut self, at: u32, child: &Child, count: impl FnOnce(&mut Losses)) {
        let class = match child.kind {
            Kind::Leaf => child.side,
            _ => self.nodes[at as usize].class,
        };
        if let Some(class) = &mut self.classes[class as usize] {
            count(&mut class.losses);
        }
    }

    /// Limits of a queue.
    pub(super) fn limits_of(&self, at: u32, child: &Child) -> crate::Limits {
        match (child.kind, &self.nodes[at as usize].flows) {
            (Kind::Flow, Some(flows)) => flows.config.leaf.limits,
            _ => match &self.classes[child.side as usize] {
                Some(Class {
                    body: Body::Leaf { config, .. },
                    ..
                }) => config.limits,
                _ => crate::Limits::NONE,
            },
        }
    }

    /// The packets of a queue, the first one first.
    pub(super) fn lengths(&self, packets: &PacketList) -> impl Iterator<Item = Length> {
        packets.iter(&self.slab).map(|(len, _)| len)
    }
}
