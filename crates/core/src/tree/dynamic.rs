//! Dynamic flows: created by their first packet, expired after an idle timeout.
//!
//! A flow is a child of the class's node, found by its digest in a hash table. An idle flow keeps its record, and with
//! it the finish time that its algorithm remembers: an early return gives no credit. The idle flows are linked through
//! fields that only flows with packets need, the longest idle first. That one expires at its timeout, and before it if
//! there is no space for a new flow; but not while it owes its ceiling something, so that no flow evades its ceiling by
//! expiring, and not soon after it had packets, so that a flow that sends now and then keeps its place and reservation
//! among endless newcomers.
//!
//! A flow costs one cache line and some ten bytes of table; its queue management and its ceiling lie in another table,
//! where the class has any, and so do its traffic counts, while they are enabled ([`tally`](super::tally)). Two flows
//! with equal digests share a record, which harms no other flow.

use hashbrown::HashTable;

use crate::packet::Count;
use crate::room::{Beyond, Room};
use crate::scheduler::Share;
use crate::units::{Length, Nanos};

use super::ceiling::NONE;
use super::change_flows::Changing;
use super::child::{Child, ChildKind, flag};
use super::config::FlowsConfig;
use super::displace::Claim;
use super::order::Order;
use super::stats::ClassStats;
use super::table::flags;
use super::tally::Tally;
use super::{ClassId, Tree};

/// Flows that expire at most by one packet of a new flow, or one call of `expire_idle`.
const FORGOTTEN_AT_ONCE: u32 = 2;
const EXPIRED_AT_ONCE: u32 = 64;

/// Factor by which tables of flows grow.
const GROWTH: usize = 4;

/// The flows of one class.
#[derive(Clone, Debug)]
pub(super) struct Flows {
    pub config: FlowsConfig,
    /// Slots by digest.
    table: HashTable<u32>,
    /// The idle flow that was so for longest, and the one for shortest.
    oldest: u32,
    newest: u32,
    /// The common flow of those for which there is no room, once there was one.
    common: u32,
    pub accepted: Count,
    pub sent: Count,
    pub queued: Count,
    /// The most that the class can hold, as recorded in the heap of classes.
    pub known: Count,
    /// Flows by their excess over their own reservation.
    pub beyond: Beyond,
    /// Flows with room of their own, and the most of them.
    pub with_room: u32,
    pub roomy: u32,
    /// The reservation that each of them has at least, also after a pending change ([`change_flows`]).
    ///
    /// [`change_flows`]: super::change_flows
    pub lower: Room,
    /// A change that is not done.
    pub changing: Option<Changing>,
    /// The class is about to go: the slots before this one have nothing in other tables any more.
    pub cleared: u32,
    flow_table_full: u64,
    /// The traffic counts of each of them, while they are enabled.
    pub tally: Tally,
}

/// Hashes a digest for the table's bucket and tag. A digest may be any number, also a small one.
#[inline]
fn hash(digest: u64) -> u64 {
    let wide = u128::from(digest ^ 0x8ebc_6af0_9c88_c6e3) * 0x9e37_79b9_7f4a_7c15;
    (wide >> 64) as u64 ^ wide as u64
}

impl Flows {
    pub(super) fn new(config: FlowsConfig) -> Self {
        Flows {
            config,
            table: HashTable::new(),
            oldest: NONE,
            newest: NONE,
            common: NONE,
            accepted: Count::default(),
            sent: Count::default(),
            queued: Count::default(),
            known: config.room.count(),
            beyond: Beyond::default(),
            with_room: 0,
            roomy: config.roomy(),
            lower: config.leaf.room,
            changing: None,
            cleared: 0,
            flow_table_full: 0,
            tally: Tally::default(),
        }
    }

    /// Flows that there are, the common one included.
    pub(super) fn count(&self) -> u64 {
        self.table.len() as u64 + u64::from(self.common != NONE)
    }

    /// Slot of the common flow, if there is one.
    pub(super) fn common(&self) -> Option<u32> {
        (self.common != NONE).then_some(self.common)
    }

    /// Returns the longest idle flow, or [`NONE`].
    pub(super) fn oldest(&self) -> u32 {
        self.oldest
    }

    /// Adds the counts that are kept here.
    pub(super) fn add_to(&self, stats: &mut ClassStats) {
        stats.accepted = self.accepted;
        stats.sent = self.sent;
        stats.queued = self.queued;
        stats.flows = self.count();
        stats.flow_table_full = self.flow_table_full;
    }

    /// Reserves space for `flows` flows. The flows are put into a larger table in the order in which they lie in
    /// memory, which is faster than in that of the smaller table.
    fn reserve(&mut self, order: &Order, flows: usize) {
        if flows <= self.table.capacity() {
            return;
        }
        let digest = |slot: &u32| hash(order.child(*slot).digest());
        let mut table = HashTable::with_capacity(flows);
        for slot in 0..order.slots() {
            let child = order.child(slot);
            if child.tag.kind == ChildKind::Flow && !child.has(flag::COMMON) {
                table.insert_unique(hash(child.digest()), slot, digest);
            }
        }
        self.table = table;
    }

    #[inline]
    pub(super) fn find(&self, order: &Order, digest: u64) -> Option<u32> {
        let same = |&slot: &u32| order.child(slot).digest() == digest;
        self.table.find(hash(digest), same).copied()
    }

    /// Returns the number of flows to reserve space for when the present space is used up: in large steps, since
    /// untouched memory costs nothing, whereas each step leaves memory behind; but not beyond the limit.
    fn room_for_more(&self) -> usize {
        let count = self.table.len() + 1;
        (GROWTH * count).min((self.config.most as usize + 1).max(count))
    }

    /// A flow in a slot that is not in the table yet.
    fn insert(&mut self, order: &Order, digest: u64, slot: u32) {
        if self.table.len() == self.table.capacity() {
            // With the new flow in it. Removed flows may leave marks that take room: some to
            // spare, so that many come and go before the next time.
            let room = self.room_for_more();
            return self.reserve(order, room + room / 8);
        }
        let digests = |slot: &u32| hash(order.child(*slot).digest());
        self.table.insert_unique(hash(digest), slot, digests);
    }

    fn remove(&mut self, digest: u64, slot: u32) {
        let found = self.table.find_entry(hash(digest), |&other| other == slot);
        if let Ok(entry) = found {
            entry.remove();
        }
    }

    /// Gives a flow room of its own, if it has none and there is some.
    #[inline]
    pub(super) fn grant_room(&mut self, flow: &mut Child) {
        if !flow.has(flag::ROOMY) && self.with_room < self.roomy {
            flow.tag.flags |= flag::ROOMY;
            self.with_room += 1;
        }
    }

    /// The flow is left without packets.
    #[inline]
    pub(super) fn rest(&mut self, order: &mut Order, slot: u32, now: Nanos) {
        let newest = core::mem::replace(&mut self.newest, slot);
        order.child_mut(slot).become_idle(now.0, newest, NONE);
        if newest == NONE {
            self.oldest = slot;
        } else {
            let child = order.child_mut(newest);
            let (older, _) = child.neighbours();
            child.set_neighbours(older, slot);
        }
    }

    /// The idle flow leaves the list, for packets or for good.
    #[inline]
    pub(super) fn wake(&mut self, order: &mut Order, slot: u32) {
        let (older, newer) = order.child_mut(slot).wake(self.config.leaf.limits);
        match older {
            NONE => self.oldest = newer,
            _ => {
                let child = order.child_mut(older);
                let (before, _) = child.neighbours();
                child.set_neighbours(before, newer);
            }
        }
        match newer {
            NONE => self.newest = older,
            _ => {
                let child = order.child_mut(newer);
                let (_, behind) = child.neighbours();
                child.set_neighbours(older, behind);
            }
        }
    }
}

impl<P> Tree<P> {
    /// Reserves space for `flows` flows of a class of flows.
    #[doc(hidden)]
    pub fn reserve_flows(&mut self, class: ClassId, flows: usize) {
        if let Some(super::Place { node, slot: NONE }) = self.places.get(class.index()).copied()
            && let Some(node) = self.nodes.get_mut(node as usize)
            && let Some(table) = &mut node.flows
        {
            table.reserve(&node.order, flows);
            node.order.reserve(flows);
        }
    }

    /// The flow of a packet: found, or made.
    #[inline]
    pub(super) fn flow_of(&mut self, at: u32, digest: u64, now: Nanos) -> Option<u32> {
        let node = &mut self.nodes[at as usize];
        let flows = node.flows.as_mut()?;
        match flows.find(&node.order, digest) {
            Some(slot) => {
                if node.order.child(slot).has(flag::IDLE) {
                    flows.wake(&mut node.order, slot);
                    flows.grant_room(node.order.child_mut(slot));
                }
                Some(slot)
            }
            None => self.new_flow(at, digest, now),
        }
    }

    /// Returns the claim of a packet of a flow that does not exist yet: an empty queue, or the common flow.
    pub(super) fn claim_of_new(&self, class: ClassId, at: u32, len: Length, now: Nanos) -> Claim {
        let mut claim = Claim {
            class,
            flow: Some((at, None)),
            queued: Count::default(),
            own: Room::NONE,
            len,
        };
        let node = &self.nodes[at as usize];
        let Some(flows) = &node.flows else {
            return claim;
        };
        let mut has_room = flows.with_room < flows.roomy;
        if flows.table.len() >= flows.config.most as usize {
            match (self.replaceable(at, now), flows.common()) {
                (None, Some(common)) => return self.claim(class, at, common, len),
                (None, None) => {}
                (Some(oldest), _) => has_room |= node.order.child(oldest).has(flag::ROOMY),
            }
        }
        if has_room {
            claim.own = flows.config.leaf.room;
        }
        claim
    }

    /// Creates a flow, which may or may not get a packet.
    #[inline(never)]
    fn new_flow(&mut self, at: u32, digest: u64, now: Nanos) -> Option<u32> {
        self.forget_idle(at, now, FORGOTTEN_AT_ONCE);
        let node = &self.nodes[at as usize];
        let flows = node.flows.as_ref()?;
        if flows.table.len() >= flows.config.most as usize {
            match self.replaceable(at, now) {
                Some(oldest) => self.forget(at, oldest),
                None => return self.common_flow(at),
            }
        }
        let slot = self.add_flow(at, digest, 0)?;
        let node = &mut self.nodes[at as usize];
        node.flows.as_mut()?.insert(&node.order, digest, slot);
        Some(slot)
    }

    /// Returns the flow that a new one may replace.
    fn replaceable(&self, at: u32, now: Nanos) -> Option<u32> {
        let node = &self.nodes[at as usize];
        let flows = node.flows.as_ref().filter(|flows| flows.oldest != NONE)?;
        let oldest = node.order.child(flows.oldest);
        let idle = now.since(Nanos(oldest.idle_since()));
        (idle >= flows.config.keeps_place && !self.owes(oldest, now)).then_some(flows.oldest)
    }

    /// The flow of all those for which there is no room.
    #[cold]
    fn common_flow(&mut self, at: u32) -> Option<u32> {
        let flows = self.nodes[at as usize].flows.as_mut()?;
        flows.flow_table_full += 1;
        if flows.common != NONE {
            return Some(flows.common);
        }
        let slot = self.add_flow(at, 0, flag::COMMON)?;
        self.nodes[at as usize].flows.as_mut()?.common = slot;
        Some(slot)
    }

    fn add_flow(&mut self, at: u32, digest: u64, flag: u8) -> Option<u32> {
        let node = &mut self.nodes[at as usize];
        let config = node.flows.as_ref()?.config;
        let longest = Length::new(node.longest.get()).unwrap_or(Length::MAX);
        let flags = flags(config.ceiling, &config.leaf.aqm) | flag;
        let child = Child::flow(digest, config.leaf.limits, longest, NONE, flags);
        let share = Share::new(config.weight, longest);
        if node.order.is_full() {
            let more = node.flows.as_ref()?.room_for_more();
            node.order.reserve(more);
        }
        let slot = node.order.add(child, share)?;
        node.selected = node.order.selected();
        let extra = self.add_extra(config.ceiling, longest, &config.leaf, (at, slot));
        let node = &mut self.nodes[at as usize];
        let child = node.order.child_mut(slot);
        child.side = extra;
        let flows = node.flows.as_mut()?;
        flows.grant_room(child);
        // The counts of a former flow in this slot are not its own.
        flows.tally.take(slot);
        Some(slot)
    }

    /// Expires up to `most` flows of a class past their idle timeout; returns the number examined.
    fn forget_idle(&mut self, at: u32, now: Nanos, most: u32) -> u32 {
        for looked_at in 0..most {
            let node = &self.nodes[at as usize];
            let Some(flows) = &node.flows else {
                return looked_at;
            };
            let oldest = flows.oldest;
            if oldest == NONE {
                return looked_at;
            }
            let child = node.order.child(oldest);
            if now.since(Nanos(child.idle_since())) < flows.config.forget_after {
                return looked_at;
            }
            if self.owes(child, now) {
                self.keep(at, oldest, now);
            } else {
                self.forget(at, oldest);
            }
        }
        most
    }

    /// Returns whether a flow owes its ceiling something, as a new one would not.
    fn owes(&self, flow: &Child, now: Nanos) -> bool {
        let ceiling = self.ceiling_of_queue(flow);
        ceiling.is_some_and(|ceiling| !self.ceilings.is_full(ceiling, now))
    }

    /// Keeps an idle flow that owes its ceiling something for another while.
    fn keep(&mut self, at: u32, slot: u32, now: Nanos) {
        let node = &mut self.nodes[at as usize];
        if let Some(flows) = &mut node.flows {
            flows.wake(&mut node.order, slot);
            flows.rest(&mut node.order, slot, now);
        }
    }

    /// Removes an idle flow.
    fn forget(&mut self, at: u32, slot: u32) {
        let node = &mut self.nodes[at as usize];
        let Some(flows) = &mut node.flows else { return };
        flows.wake(&mut node.order, slot);
        let child = *node.order.child(slot);
        flows.remove(child.digest(), slot);
        flows.beyond.remove(slot);
        flows.with_room -= u32::from(child.has(flag::ROOMY));
        let _ = node.order.remove(slot);
        node.selected = node.order.selected();
        self.drop_extra(child.side);
    }

    /// Expires flows past their idle timeout: up to 64, of up to 64 classes, continuing where the last call ended.
    /// Flows whose space a new one needs expire without this call. Also examines as many leaves that keep a reservation
    /// until they have been empty ([`change_leaf_when_empty`](Self::change_leaf_when_empty)).
    pub fn expire_idle(&mut self, now: Nanos) {
        self.wane();
        let mut left = EXPIRED_AT_ONCE;
        for _ in 0..self.nodes.len().min(EXPIRED_AT_ONCE as usize) {
            self.expired = (self.expired + 1) % self.nodes.len() as u32;
            left -= self.forget_idle(self.expired, now, left);
        }
    }
}
