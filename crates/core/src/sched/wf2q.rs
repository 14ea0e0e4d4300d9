//! WF2Q: worst-case fair weighted fair queueing, by the virtual time of the fluid server.
//!
//! J. C. R. Bennett, H. Zhang, *WF2Q: worst-case fair weighted fair queueing*, INFOCOM
//! 1996. V is that of GPS, the fluid server (A. K. Parekh, R. G. Gallager, 1993), which
//! serves all its backlogged flows at once: dV/dt = R / (sum of the weights of the flows
//! backlogged there). A packet that arrives at t starts at S = max(F of the one before it,
//! V(t)) and finishes at F = S + l / phi, which is when it does in GPS. The next is, of the
//! heads that have started there, S <= V, the one that finishes first.
//!
//! Against [WF2Q+](super::Wf2qPlus): a flow is held to no more than its share of those
//! who are there. What nobody else wanted is not charged for, since V follows the fluid
//! backlog.
//!
//! # How GPS is followed
//!
//! * *Work stands for time*: the link's rate is not known here, and needs not be, since both
//!   servers are busy at the same times and do the same work. Work is said at the
//!   beginning of a packet's transmission, so that one that arrives meanwhile sees V as of the
//!   end: V is up to one packet's work ahead of the clock, as in WF2Q+, which adds at most
//!   one L to what a packet waits for.
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
//! times in GPS. One statement may move many.
//!
//! # What the paper leaves open
//!
//! * *Rounding*: GPS is slower than the link by less than 10^-6, never faster. Where
//!   nobody has started in it, V jumps to the first S, as in WF2Q+; by exact arithmetic
//!   that never happens. When the link has nothing left, GPS has nothing left either.
//! * *Discarded packets* leave GPS too, where they were not yet served; what GPS did serve
//!   of them is lost to the flow. If some of a flow's packets are left, which no
//!   owner does today, GPS goes on with all of them.
//! * *A change of weight* takes effect in both systems at the entity's next place, and
//!   stretches what is left then: S and GPS's finish time keep their distances from V in bytes.
//! * *A removed entity* leaves GPS when its index is free. What GPS had not yet served
//!   of packets already sent, at most one packet, goes to the others.
//! * *A head that changes while it waits* keeps its place. It is charged from the S
//!   that its arrival has in GPS. A place that is older than it should be lets a packet
//!   go ahead of GPS; where more than thirty flows of weight 1 do so with their longest
//!   packets, one after the other and all before one that waits, V leaves that one behind by
//!   more than timestamps can tell.
//!
//! Guarantees are those of a flow that is backlogged in GPS. One that sends a packet only
//! when another has left may find GPS done with it while a long packet of somebody else is
//! sent, and is not owed what it did not ask for then.

mod fluid;
mod invariants;

use super::Standing;
use super::clock::{Terms, span, weight_of};
use super::pending::Pending;
use super::scale::Packets;
use super::seff::{Place, Seff};
use crate::scheduler::{
    Entities, EntityId, Holds, MaybeEntity, Removal, Scheduler, Share, Violation,
};
use crate::units::{Charge, VirtualTime, Weight};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use fluid::{Fluid, scaled};

const _: () = assert!(size_of::<Wf2qEntity>() <= 24);

/// A change of weight moves S no further from V than this: four times the longest packet's
/// time at the lowest weight.
const MOST_STRETCHED: u128 = 1 << 58;

/// State of one entity.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wf2qEntity {
    /// S of the head, while active.
    start: VirtualTime,
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
    /// S of the packets that found their entity idle in GPS, by number; not of the head.
    restarts: VecDeque<(u32, VirtualTime)>,
}

impl Waiting {
    /// The head is gone: S of the next, unless that is the last F.
    #[inline]
    fn advance(&mut self) -> Option<VirtualTime> {
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

/// Worst-case fair weighted fair queueing.
#[derive(Clone, Debug, Default)]
pub struct Wf2q {
    fluid: Fluid,
    order: Seff,
    /// By entity.
    waiting: Vec<Waiting>,
    pending: Pending,
}

impl Wf2q {
    /// A scheduler whose virtual time starts at 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// A scheduler whose virtual time starts at `now`: at any point, also shortly
    /// before its timestamps wrap.
    pub fn starting_at(now: VirtualTime) -> Self {
        Wf2q {
            fluid: Fluid::starting_at(now),
            ..Self::default()
        }
    }

    /// V, the virtual time of GPS.
    #[inline]
    pub fn virtual_time(&self) -> VirtualTime {
        self.fluid.now()
    }

    /// V, after the jump where nobody is eligible but the first entity, and that one goes
    /// or has another `start`.
    #[inline]
    fn jump(&mut self, start: Option<VirtualTime>) -> VirtualTime {
        if let Some(next) = self.order.next_start(start)
            && next.is_after(self.fluid.now())
        {
            self.fluid.jump_to(next);
        }
        self.fluid.now()
    }

    fn place(entity: &Wf2qEntity, id: EntityId, head: Charge) -> Place {
        Place {
            start: entity.start,
            finish: entity.start.advanced(span(head, entity.inverse_weight)),
            entity: MaybeEntity::of(id),
        }
    }

    /// Gives an inactive entity a place.
    #[inline(never)]
    fn insert(&mut self, entity: &mut Wf2qEntity, id: EntityId, head: Charge) {
        entity.state = Standing::Active;
        entity.start = self.fluid.finish(id);
        if self.order.first() == MaybeEntity::NONE {
            self.fluid.jump_to(entity.start);
        }
        self.order
            .insert(self.fluid.now(), Self::place(entity, id, head));
    }

    /// The selected entity, whose S is that of its next packet by now, leaves its place: for
    /// good, or for one that its new share gives it.
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
            let now = self.jump(Some(entity.start));
            return self.order.replace_first(now, Self::place(entity, id, next));
        }
        self.discard(id, u32::MAX, entity.start);
        let now = self.jump(None);
        self.order.remove_first(now);
        if entity.state == Standing::Leaving {
            self.forget(entity, id);
        } else {
            entity.state = Standing::Inactive;
        }
        if self.order.first() == MaybeEntity::NONE {
            self.fluid.end_busy_period();
        }
    }

    /// The first `packets` packets, of which the first starts at `start`, are not sent.
    fn discard(&mut self, id: EntityId, packets: u32, start: VirtualTime) {
        let waiting = &mut self.waiting[id.index()];
        let packets = packets.min(waiting.packets);
        if packets == 0 {
            return;
        }
        waiting.packets -= packets;
        waiting.head = waiting.head.wrapping_add(packets);
        let (head, left) = (waiting.head, waiting.packets);
        waiting
            .restarts
            .retain(|&(number, _)| number.wrapping_sub(head) < left);
        if left == 0 {
            // What came before is all that GPS may still have to serve.
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
        let now = self.fluid.now();
        if !self.fluid.is_backlogged(id) {
            // What is left of it here is done with there.
            return;
        }
        self.fluid
            .change(id, old, inverse_weight, weight_of(inverse_weight));
        if entity.state == Standing::Inactive {
            return;
        }
        let stretch = |time: &mut VirtualTime| {
            let distance = time.distance_from(now);
            let span = scaled(distance.unsigned_abs().into(), old, inverse_weight);
            let span = span.min(MOST_STRETCHED) as u64;
            *time = match distance > 0 {
                true => now.advanced(span),
                false => now.advanced(span.wrapping_neg()),
            };
        };
        stretch(&mut entity.start);
        for (_, start) in &mut self.waiting[id.index()].restarts {
            stretch(start);
        }
    }
}

impl Scheduler for Wf2q {
    type Entity = Wf2qEntity;
    const NAME: &'static str = "wf2q";
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
        let entity = entities.entity_mut(id);
        let waiting = &mut self.waiting[id.index()];
        if waiting.packets == 0 {
            entity.start = self.fluid.finish(id);
        } else if !self.fluid.is_backlogged(id) {
            let number = waiting.head.wrapping_add(waiting.packets);
            waiting.restarts.push_back((number, self.fluid.finish(id)));
        }
        waiting.packets += 1;
        let span = span(length, entity.inverse_weight);
        self.fluid
            .arrived(id, span, weight_of(entity.inverse_weight));
    }

    fn discarded(&mut self, entities: &mut [impl Holds<Wf2qEntity>], id: EntityId, packets: u32) {
        self.discard(id, packets, entities.entity(id).start);
    }

    #[inline]
    fn select(&self, _: &[impl Holds<Wf2qEntity>]) -> MaybeEntity {
        self.order.first()
    }

    #[inline]
    fn hold(&mut self, _: &mut [impl Holds<Wf2qEntity>], _: EntityId) {
        self.order.hold(self.fluid.now());
    }

    /// Whom this makes eligible matters once the selected entity leaves its place, and is
    /// seen to then.
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
        let entity = entities.entity_mut(id);
        let finish = entity.start.advanced(span(charged, entity.inverse_weight));
        let waiting = &mut self.waiting[id.index()];
        entity.start = waiting.advance().unwrap_or(finish);
        if waiting.packets == 0 {
            // As it is already, if what it was charged for is what had arrived.
            self.fluid.set_finish(id, finish);
        }
        match next {
            Some(next) if !entity.changing => {
                let place = Self::place(entity, id, next);
                let now = self.jump(Some(place.start));
                self.order.replace_first(now, place);
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
