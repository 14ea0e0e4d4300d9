//! WF2Q and WFQ: weighted fair queueing by the virtual time of the fluid server, with and without
//! eligibility.
//!
//! J. C. R. Bennett, H. Zhang, *WF2Q: worst-case fair weighted fair queueing*, INFOCOM
//! 1996. V is that of GPS, the fluid server (A. K. Parekh, R. G. Gallager, 1993), which
//! serves all its backlogged flows at once: dV/dt = R / (sum of the weights of the flows
//! backlogged there). A packet that arrives at t starts at S = max(F of the one before it,
//! V(t)) and finishes at F = S + l / phi, which is when it does in GPS. The next is the one that
//! finishes first: under WF2Q, of the heads that have started there, S <= V; under WFQ, of all heads.
//!
//! WFQ is that of A. Demers, S. Keshav, S. Shenker, *Analysis and simulation of a fair queueing
//! algorithm*, SIGCOMM 1989, for weights: Parekh and Gallager's PGPS. Under both, a packet leaves at
//! most L / R after GPS has finished it. WFQ may serve a flow far ahead of GPS, and then leaves it
//! without service for as long ([`bounds::wfq`](crate::bounds::wfq)); WF2Q is never ahead by more than
//! a part of a packet.
//!
//! Against [WF2Q+](super::Wf2qPlus): a flow is held to no more than its share of those
//! that are there. Service that no other flow wanted is not charged for, since V follows the fluid
//! backlog.
//!
//! These are references: the order is the papers', and arithmetic does not change it. Times of GPS have
//! 64 bits of fraction and remainders are carried over, so that S = V and equal finish times are found
//! equal. **Of equal finish times, the flow with the lowest number goes first.**
//!
//! # How GPS is followed
//!
//! * *Work stands for time*: the link's rate is not known here, and needs not be, since both servers are busy at the
//!   same times and do the same work. An owner that knows the progress of the link reports it before each arrival
//!   ([`unsent`](Scheduler::unsent)); then V is that of the arrival's time. Otherwise work is done when a packet is
//!   taken, so that a packet that arrives during a transmission sees V as of its end: V is up to one packet's work
//!   ahead of the clock, as in WF2Q+, which adds at most one L to the wait of a packet.
//! * *Every packet matters*, by its length ([`arrived`](Scheduler::arrived)): it puts
//!   off its flow's finish time in GPS.
//! * *Only the head's tags are kept.* The next S is the last F, unless the flow was idle in
//!   GPS when the packet arrived. While older packets still wait here, GPS is ahead by
//!   less than the longest packet; but that may be many short ones, and each may have
//!   been alone there. So each such restart is noted, with the number of its packet.
//!
//! # Cost
//!
//! O(log N) amortised for a packet: two moves as in WF2Q+, and one in the heap of finish
//! times in GPS, with two divisions of 128 bits. One statement may move many.
//!
//! # Points that the papers leave open
//!
//! * *Rounding*: a flow that becomes backlogged in GPS starts there at V rounded down to 2^-64. Where
//!   no head has started in it, V jumps to the first S, as in WF2Q+; by exact arithmetic that never
//!   happens. When the link has nothing left, GPS has nothing left either.
//! * *Discarded packets* leave GPS too, where they were not yet served; service that GPS already gave them is lost to
//!   the flow. If some of a flow's packets remain, which happens with no owner today, GPS continues with all of them.
//! * *A change of weight* takes effect in both systems at the entity's next place, and rescales the remaining service
//!   then: S and GPS's finish time keep their distances from V in bytes.
//! * *A removed entity* leaves GPS when its index is free. The service that GPS still owes for packets already sent, at
//!   most one packet, goes to the others.
//! * *A head that changes while it is queued* keeps its place. It is charged from the S that its arrival has in GPS. A
//!   place that is older than it should be lets a packet overtake GPS; where more than thirty flows of weight 1 do so
//!   with their longest packets, one after the other and all before one queued packet, V leaves that packet behind by
//!   more than timestamps can represent.
//!
//! Guarantees are those of a flow that is backlogged in GPS. A flow that sends each packet only after its previous one
//! has left may find GPS done with it while a long packet of another flow is sent; it has no claim to service that it
//! did not request then.

mod fluid;
mod invariants;

use super::Standing;
use super::clock::{Terms, weight_of};
use super::pending::Pending;
use super::scale::Packets;
use super::seff::{LowestFirst, Place, Seff};
use crate::scheduler::{
    Entities, EntityId, Holds, MaybeEntity, Removal, Scheduler, Share, Violation,
};
use crate::units::{Charge, VirtualTime, Weight};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use fluid::{Fluid, Tag};

const _: () = assert!(size_of::<Wf2qEntity>() <= 24);

/// State of one entity.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wf2qEntity {
    /// 2^[`FRACTION`](super::clock::FRACTION) / weight, rounded up; 0 if there is no such
    /// entity.
    inverse_weight: u64,
    state: Standing,
    /// A change of its share is pending.
    changing: bool,
}

/// The packets that wait of an entity.
#[derive(Clone, Debug, Default)]
struct Waiting {
    /// Number of the head, modulo 2^32.
    head: u32,
    packets: u32,
    /// S of the head.
    start: Tag,
    /// S of the packets that found their entity idle in GPS, by number; not of the head.
    restarts: VecDeque<(u32, Tag)>,
}

impl Waiting {
    /// The head is gone: S of the next, unless that is the last F.
    #[inline]
    fn advance(&mut self) -> Option<Tag> {
        self.head = self.head.wrapping_add(1);
        self.packets = self.packets.saturating_sub(1);
        match self.restarts.front() {
            Some(&(number, _)) if number == self.head => {
                self.restarts.pop_front().map(|(_, start)| start)
            }
            _ => None,
        }
    }
}

/// Weighted fair queueing (WFQ, PGPS): the smallest finish time in GPS first.
pub type Wfq = ByFluid<false>;

/// Worst-case fair weighted fair queueing: of those that have started in GPS, the smallest finish time
/// first.
pub type Wf2q = ByFluid<true>;

/// The order of finish times in the fluid server, [`Wf2q`] or [`Wfq`]: `ELIGIBLE` where an entity waits
/// until the fluid server has started its packet.
#[derive(Clone, Debug, Default)]
pub struct ByFluid<const ELIGIBLE: bool> {
    fluid: Fluid,
    order: Seff<LowestFirst>,
    /// By entity.
    waiting: Vec<Waiting>,
    pending: Pending,
}

impl<const ELIGIBLE: bool> ByFluid<ELIGIBLE> {
    /// Creates a scheduler whose virtual time starts at 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a scheduler whose virtual time starts at `now`: at any point, also shortly before its timestamps wrap.
    #[doc(hidden)]
    pub fn starting_at(now: VirtualTime) -> Self {
        ByFluid {
            fluid: Fluid::starting_at(now),
            ..Self::default()
        }
    }

    /// V, the virtual time of GPS.
    #[inline]
    #[doc(hidden)]
    pub fn virtual_time(&self) -> VirtualTime {
        self.fluid.now()
    }

    /// V, after the jump where no entity is eligible but the first, and that one leaves its place
    /// or has another `start`. While V is behind the link's work, it is not yet known which are.
    #[inline]
    fn jump(&mut self, start: Option<VirtualTime>) -> VirtualTime {
        if ELIGIBLE
            && !self.fluid.is_behind()
            && let Some(next) = self.order.next_start(start)
        {
            self.fluid.jump_to(next);
        }
        self.fluid.now()
    }

    /// Until when an entity starts that is eligible at `now`, if this is its place.
    #[inline]
    fn until(now: VirtualTime, place: &Place) -> VirtualTime {
        match ELIGIBLE {
            true => now,
            false => place.start,
        }
    }

    /// Returns the place of an entity that starts at `start`.
    fn place(entity: &Wf2qEntity, id: EntityId, start: Tag, head: Charge) -> Place {
        Place {
            start: start.timestamp(),
            finish: start
                .after(head, weight_of(entity.inverse_weight))
                .timestamp(),
            entity: MaybeEntity::of(id),
        }
    }

    /// Moves the first entity to another place.
    #[inline]
    fn move_first(&mut self, place: Place) {
        let now = self.jump(Some(place.start));
        self.order.replace_first(Self::until(now, &place), place);
    }

    /// The link has done all its work, and V is as of now: an entity is eligible, if any has a place.
    #[inline(never)]
    fn settled(&mut self) {
        if self.order.is_empty() {
            return self.fluid.end_busy_period();
        }
        if let Some(next) = self.order.start_if_none() {
            self.fluid.jump_to(next);
        }
        self.order.make_eligible(self.fluid.now());
    }

    /// Gives an inactive entity a place.
    #[inline(never)]
    fn insert(&mut self, entity: &mut Wf2qEntity, id: EntityId, head: Charge) {
        entity.state = Standing::Active;
        let start = self.fluid.finish(id);
        self.waiting[id.index()].start = start;
        let place = Self::place(entity, id, start, head);
        if self.order.is_empty() && !self.fluid.is_behind() {
            self.fluid.jump_to(place.start);
        }
        let now = self.fluid.now();
        self.order.insert(Self::until(now, &place), place);
    }

    /// Removes the selected entity, whose S is that of its next packet by now, from its place: for good, or for the
    /// place of its new share.
    #[inline(never)]
    fn leave(
        &mut self,
        entities: &mut [impl Holds<Wf2qEntity>],
        id: EntityId,
        next: Option<Charge>,
    ) {
        let entity = entities.entity_mut(id);
        if let Some(inverse_weight) = self.pending.take(id, &mut entity.changing) {
            self.adopt(entity, id, inverse_weight);
        }
        if let Some(next) = next {
            let start = self.waiting[id.index()].start;
            return self.move_first(Self::place(entity, id, start, next));
        }
        self.discard(id, u32::MAX);
        let now = self.jump(None);
        self.order.remove_first(now);
        if entity.state == Standing::Leaving {
            self.forget(entity, id);
        } else {
            entity.state = Standing::Inactive;
        }
        if self.order.is_empty() && !self.fluid.is_behind() {
            self.fluid.end_busy_period();
        }
    }

    /// The first `packets` packets are not sent.
    fn discard(&mut self, id: EntityId, packets: u32) {
        let waiting = &mut self.waiting[id.index()];
        let packets = packets.min(waiting.packets);
        if packets == 0 {
            return;
        }
        waiting.packets -= packets;
        waiting.head = waiting.head.wrapping_add(packets);
        let (head, left, start) = (waiting.head, waiting.packets, waiting.start);
        waiting
            .restarts
            .retain(|&(number, _)| number.wrapping_sub(head) < left);
        if left == 0 {
            // GPS has at most the earlier packets left to serve.
            self.fluid.set_finish(id, start);
        }
    }

    fn forget(&mut self, entity: &mut Wf2qEntity, id: EntityId) {
        *entity = Wf2qEntity::default();
        self.fluid.leave(id);
    }

    /// The entity has this inverse weight from now on.
    fn adopt(&mut self, entity: &mut Wf2qEntity, id: EntityId, inverse_weight: u64) {
        let old = core::mem::replace(&mut entity.inverse_weight, inverse_weight);
        let (old, new) = (weight_of(old), weight_of(inverse_weight));
        if !self.fluid.is_backlogged(id) {
            // GPS is done with the packets that remain here.
            return;
        }
        self.fluid.change(id, old, new);
        if entity.state == Standing::Inactive {
            return;
        }
        let waiting = &mut self.waiting[id.index()];
        let restarts = waiting.restarts.iter_mut().map(|(_, start)| start);
        for start in core::iter::once(&mut waiting.start).chain(restarts) {
            *start = self.fluid.stretched(*start, old, new);
        }
    }
}

impl<const ELIGIBLE: bool> Scheduler for ByFluid<ELIGIBLE> {
    type Entity = Wf2qEntity;
    const NAME: &'static str = if ELIGIBLE { "wf2q" } else { "wfq" };
    const FOLLOWS_LINK: bool = true;
    const FOLLOWS_PACKETS: bool = true;
    const MAY_LOSE_FIRST: bool = false;

    fn add(&mut self, entities: &mut [impl Holds<Wf2qEntity>], id: EntityId, share: Share) {
        *entities.entity_mut(id) = Wf2qEntity {
            inverse_weight: Terms::of::<Packets>(share).inverse_weight,
            ..Wf2qEntity::default()
        };
        self.fluid.add(id);
        if self.waiting.len() <= id.index() {
            self.waiting.resize(id.index() + 1, Waiting::default());
        }
    }

    fn remove(&mut self, entities: &mut [impl Holds<Wf2qEntity>], id: EntityId) -> Removal {
        self.discarded(entities, id, u32::MAX);
        let entity = entities.entity_mut(id);
        if entity.state != Standing::Inactive {
            entity.state = Standing::Leaving;
            self.pending.take(id, &mut entity.changing);
            return Removal::WhenSelected;
        }
        self.forget(entity, id);
        Removal::Done
    }

    fn change(&mut self, entities: &mut [impl Holds<Wf2qEntity>], id: EntityId, share: Share) {
        let inverse_weight = Terms::of::<Packets>(share).inverse_weight;
        let entity = entities.entity_mut(id);
        if entity.state == Standing::Inactive {
            return self.adopt(entity, id, inverse_weight);
        }
        let present = entity.inverse_weight;
        (self.pending).put(id, &mut entity.changing, present, inverse_weight);
    }

    fn weight(&self, entities: &[impl Holds<Wf2qEntity>], id: EntityId) -> Weight {
        let entity = entities.entity(id);
        (self.pending).weight(id, entity.changing, entity.inverse_weight)
    }

    fn is_active(&self, entities: &[impl Holds<Wf2qEntity>], id: EntityId) -> bool {
        entities.entity(id).state != Standing::Inactive
    }

    #[inline]
    fn backlogged(&mut self, entities: &mut [impl Holds<Wf2qEntity>], id: EntityId, head: Charge) {
        let entity = entities.entity_mut(id);
        if entity.state == Standing::Inactive {
            self.insert(entity, id, head);
        }
    }

    #[inline]
    fn arrived(&mut self, entities: &mut [impl Holds<Wf2qEntity>], id: EntityId, length: Charge) {
        let entity = entities.entity(id);
        let waiting = &mut self.waiting[id.index()];
        if waiting.packets == 0 {
            waiting.start = self.fluid.finish(id);
        } else if !self.fluid.is_backlogged(id) {
            let number = waiting.head.wrapping_add(waiting.packets);
            waiting.restarts.push_back((number, self.fluid.finish(id)));
        }
        waiting.packets += 1;
        self.fluid
            .arrived(id, length, weight_of(entity.inverse_weight));
    }

    fn discarded(&mut self, _: &mut [impl Holds<Wf2qEntity>], id: EntityId, packets: u32) {
        self.discard(id, packets);
    }

    #[inline]
    fn unsent(&mut self, work: u128) {
        self.fluid.sent_all_but(work);
        if !self.fluid.is_behind() {
            self.settled();
        }
    }

    #[inline]
    fn settle(&mut self, _: &mut [impl Holds<Wf2qEntity>]) {
        if self.fluid.is_behind() {
            self.fluid.sent_all_but(0);
            self.settled();
        }
    }

    #[inline]
    fn select(&self, _: &[impl Holds<Wf2qEntity>]) -> MaybeEntity {
        self.order.first()
    }

    #[inline]
    fn hold(&mut self, _: &mut [impl Holds<Wf2qEntity>], _: EntityId) {
        self.order.hold(self.fluid.now());
    }

    /// The entities that this makes eligible are found once the selected entity leaves its place.
    #[inline]
    fn served(&mut self, work: Charge) {
        self.fluid.served(work);
    }

    #[inline]
    fn reschedule(
        &mut self,
        entities: &mut [impl Holds<Wf2qEntity>],
        id: EntityId,
        charged: Charge,
        next: Option<Charge>,
    ) {
        let entity = entities.entity(id);
        let waiting = &mut self.waiting[id.index()];
        let finish = (waiting.start).after(charged, weight_of(entity.inverse_weight));
        waiting.start = waiting.advance().unwrap_or(finish);
        if waiting.packets == 0 {
            // No change if the charge was the one that arrived.
            self.fluid.set_finish(id, finish);
        }
        match next {
            Some(next) if !entity.changing => {
                let place = Self::place(entity, id, waiting.start, next);
                self.move_first(place);
            }
            _ => self.leave(entities, id, next),
        }
    }

    fn idle(&mut self, entities: &mut [impl Holds<Wf2qEntity>], id: EntityId) {
        if entities.entity(id).state != Standing::Inactive {
            self.leave(entities, id, None);
        }
    }

    fn invariants(&self, entities: &[impl Holds<Wf2qEntity>]) -> Result<(), Violation> {
        self.check(entities)
    }
}
