//! WF2Q+: worst-case fair weighted fair queueing, with a virtual time of its own.
//!
//! J. C. R. Bennett, H. Zhang, *Hierarchical packet fair queueing algorithms*, IEEE/ACM
//! Transactions on Networking 5(5), 1997. The equations are numbered as in the report on
//! QFQ (see [`Qfq`](super::Qfq)), which approximates this algorithm.
//!
//! An entity's next service starts at S and finishes at F, in virtual time: S = max(V, F) when it becomes backlogged
//! and S = F after each service, F = S + l / phi (Eq. 2). V advances by W / (sum of the weights) while the link does
//! the work W, and is never before the first S of the backlogged entities (Eq. 3), nor before any F when a busy period
//! starts. The next to be served is, of those with S <= V, the one with the smallest F: the smallest eligible finish
//! time first. Timestamps are exact to the units of [virtual time](super::clock), so that this is the reference for its
//! approximations: B-WFI is L^k (1 - phi) + phi L, the least that a packet scheduler can have.
//!
//! # Cost
//!
//! O(log N), amortised: a service moves one entity to another place, and each entity
//! that V makes eligible by it was made ineligible by a service of its own. One statement
//! may move many, if many start at one time. An inactive entity costs nothing.
//!
//! # Differences from the equations, and reasons
//!
//! * *The head may change while an entity is backlogged* (a flush). Its place, S and F, remains; it is charged for the
//!   packet that it then sends, and its next S is S plus that charge. It gets no more than its share by this, and may
//!   be served late by the difference.
//! * *The last F of an inactive entity counts* until V has advanced half way round the circle of virtual time, after
//!   which it could no longer be distinguished from a future one. F is never so far ahead of V, so nothing is lost.
//! * *A change of weight* counts from the next S on. If the entity is late by then, F < V, and becomes heavier, S is
//!   after F by so much that it is behind by the same work as before. Otherwise its arrears would exceed those that V
//!   allows for, and others would be delayed.

mod invariants;

use super::Standing;
use super::clock::{Terms, VirtualClock, start_at_new_weight, weight_of};
use super::pending::Pending;
use super::scale::{Costs, Packets, Scale};
use super::seff::{AsHeld, Place, Seff};
use crate::scheduler::{
    Entities, EntityId, Holds, MaybeEntity, Removal, Scheduler, Share, Violation,
};
use crate::units::{Charge, VirtualTime, Weight};

const _: () = assert!(size_of::<Wf2qPlusEntity<Packets>>() <= 24);

/// State of one entity.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wf2qPlusEntity<S: Scale = Packets> {
    /// Virtual start time S while active, last virtual finish time F while not.
    start: VirtualTime,
    /// 2^[`FRACTION`](super::clock::FRACTION) / weight, rounded up; 0 if there is no such
    /// entity.
    inverse_weight: u64,
    /// The quarter of V's circle in which it became inactive, as far as quarters are distinguishable: modulo 2^32 (2^30
    /// turns), or 2^26 for costs.
    idle_since: u32,
    state: Standing,
    /// A change of its share is pending.
    changing: bool,
    /// The fraction to add to S beyond its units.
    carry: S::Carry,
}

impl<S: Scale> Wf2qPlusEntity<S> {
    /// Returns F of the next charge, and the fraction carried over.
    #[inline(always)]
    fn after(&self, charge: Charge) -> (VirtualTime, S::Carry) {
        S::after(self.start, self.carry, charge, self.inverse_weight)
    }
}

/// Worst-case fair weighted fair queueing, plus; of packets or of requests by cost.
#[derive(Clone, Debug, Default)]
pub struct Wf2qPlus<S: Scale = Packets> {
    clock: VirtualClock<S>,
    order: Seff<AsHeld>,
    pending: Pending,
    /// The latest F of all entities that became inactive.
    latest: VirtualTime,
}

impl Wf2qPlus {
    /// Creates a scheduler whose virtual time starts at 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a scheduler whose virtual time starts at `now`: at any point, also shortly before it wraps.
    #[doc(hidden)]
    pub fn starting_at(now: VirtualTime) -> Self {
        Wf2qPlus {
            clock: VirtualClock::starting_at(now),
            latest: now,
            ..Self::default()
        }
    }
}

impl Wf2qPlus<Costs> {
    /// Returns a scheduler for [costs](crate::CostScheduler).
    pub fn for_costs() -> Self {
        Self::default()
    }
}

impl<S: Scale> Wf2qPlus<S> {
    /// V, the system virtual time.
    #[inline]
    #[doc(hidden)]
    pub fn virtual_time(&self) -> VirtualTime {
        self.clock.now()
    }

    /// Returns V, after the jump of Eq. 3 if no entity but the first is eligible, and the first leaves or has another
    /// `start`.
    #[inline]
    fn jump(&mut self, start: Option<VirtualTime>) -> VirtualTime {
        if let Some(next) = self.order.next_start(start) {
            self.clock.jump_to(next);
        }
        self.clock.now()
    }

    /// Returns whether the F of an inactive entity can be distinguished from a future one: V has advanced less than
    /// half way round the circle since.
    fn remembers(&self, entity: &Wf2qPlusEntity<S>) -> bool {
        self.clock.quarters_since(entity.idle_since) <= 1
    }

    /// Gives an inactive entity a place.
    #[inline(never)]
    fn insert(&mut self, entity: &mut Wf2qPlusEntity<S>, id: EntityId, head: Charge) {
        entity.state = Standing::Active;
        if self.order.first() == MaybeEntity::NONE {
            self.clock.start_busy_period(self.latest);
        }
        let now = self.clock.now();
        let start = match self.remembers(entity) {
            true => entity.start.later(now),
            false => now,
        };
        entity.start = start;
        let place = Place {
            start,
            finish: entity.after(head).0,
            entity: MaybeEntity::of(id),
        };
        self.order.insert(self.clock.now(), place);
    }

    /// Removes the selected entity, whose S is its F by now, from its place: for good, or for the place of its new
    /// share.
    #[inline(never)]
    fn leave(
        &mut self,
        entities: &mut [impl Holds<Wf2qPlusEntity<S>>],
        id: EntityId,
        next: Option<Charge>,
    ) {
        let entity = entities.entity_mut(id);
        if let Some(inverse_weight) = self.pending.take(id, &mut entity.changing) {
            let old = entity.inverse_weight;
            entity.start = start_at_new_weight(self.clock.now(), entity.start, old, inverse_weight);
            self.adopt(entity, inverse_weight);
        }
        if let Some(next) = next {
            return self.move_first(entity, id, next);
        }
        let now = self.jump(None);
        self.order.remove_first(now);
        entity.idle_since = self.clock.quarters();
        self.latest = self.latest.later(entity.start);
        if entity.state == Standing::Leaving {
            let weight = weight_of(entity.inverse_weight);
            *entity = Wf2qPlusEntity::default();
            self.clock.set_weight_sum(self.clock.weight_sum() - weight);
        } else {
            entity.state = Standing::Inactive;
        }
    }

    /// Moves the selected entity to the place that starts at its S.
    #[inline]
    fn move_first(&mut self, entity: &Wf2qPlusEntity<S>, id: EntityId, next: Charge) {
        let start = entity.start;
        let place = Place {
            start,
            finish: entity.after(next).0,
            entity: MaybeEntity::of(id),
        };
        let now = self.jump(Some(start));
        self.order.replace_first(now, place);
    }

    /// The entity has this inverse weight from now on.
    fn adopt(&mut self, entity: &mut Wf2qPlusEntity<S>, inverse_weight: u64) {
        let (old, new) = (weight_of(entity.inverse_weight), weight_of(inverse_weight));
        entity.inverse_weight = inverse_weight;
        self.clock
            .set_weight_sum(self.clock.weight_sum() - old + new);
    }
}

impl<S: Scale> Scheduler for Wf2qPlus<S> {
    type Entity = Wf2qPlusEntity<S>;
    const NAME: &'static str = "wf2q+";
    const LARGEST: u32 = S::LARGEST;

    fn add(&mut self, entities: &mut [impl Holds<Self::Entity>], id: EntityId, share: Share) {
        let inverse_weight = Terms::of::<S>(share).inverse_weight;
        *entities.entity_mut(id) = Wf2qPlusEntity {
            inverse_weight,
            idle_since: self.clock.quarters_long_ago(),
            ..Wf2qPlusEntity::default()
        };
        self.clock
            .set_weight_sum(self.clock.weight_sum() + weight_of(inverse_weight));
    }

    fn remove(&mut self, entities: &mut [impl Holds<Self::Entity>], id: EntityId) -> Removal {
        let entity = entities.entity_mut(id);
        if entity.state != Standing::Inactive {
            entity.state = Standing::Leaving;
            self.pending.take(id, &mut entity.changing);
            return Removal::WhenSelected;
        }
        let weight = weight_of(entity.inverse_weight);
        *entity = Wf2qPlusEntity::default();
        self.clock.set_weight_sum(self.clock.weight_sum() - weight);
        Removal::Done
    }

    fn change(&mut self, entities: &mut [impl Holds<Self::Entity>], id: EntityId, share: Share) {
        let inverse_weight = Terms::of::<S>(share).inverse_weight;
        let entity = entities.entity_mut(id);
        if entity.state == Standing::Inactive {
            return self.adopt(entity, inverse_weight);
        }
        let present = entity.inverse_weight;
        (self.pending).put(id, &mut entity.changing, present, inverse_weight);
    }

    fn weight(&self, entities: &[impl Holds<Self::Entity>], id: EntityId) -> Weight {
        let entity = entities.entity(id);
        (self.pending).weight(id, entity.changing, entity.inverse_weight)
    }

    fn is_active(&self, entities: &[impl Holds<Self::Entity>], id: EntityId) -> bool {
        entities.entity(id).state != Standing::Inactive
    }

    #[inline]
    fn backlogged(
        &mut self,
        entities: &mut [impl Holds<Self::Entity>],
        id: EntityId,
        head: Charge,
    ) {
        let entity = entities.entity_mut(id);
        if entity.state == Standing::Inactive {
            self.insert(entity, id, head);
        }
    }

    #[inline]
    fn select(&self, _: &[impl Holds<Self::Entity>]) -> MaybeEntity {
        self.order.first()
    }

    #[inline]
    fn hold(&mut self, _: &mut [impl Holds<Self::Entity>], _: EntityId) {
        self.order.hold(self.clock.now());
    }

    /// Advances V. The entities that this makes eligible matter once the selected entity leaves its place, and are
    /// handled then.
    #[inline]
    fn served(&mut self, work: Charge) {
        self.clock.served(work);
    }

    #[inline]
    fn reschedule(
        &mut self,
        entities: &mut [impl Holds<Self::Entity>],
        id: EntityId,
        charged: Charge,
        next: Option<Charge>,
    ) {
        let entity = entities.entity_mut(id);
        (entity.start, entity.carry) = entity.after(charged);
        match next {
            Some(next) if !entity.changing => self.move_first(entity, id, next),
            _ => self.leave(entities, id, next),
        }
    }

    fn idle(&mut self, entities: &mut [impl Holds<Self::Entity>], id: EntityId) {
        if entities.entity(id).state != Standing::Inactive {
            self.leave(entities, id, None);
        }
    }

    fn invariants(&self, entities: &[impl Holds<Self::Entity>]) -> Result<(), Violation> {
        self.check(entities)
    }
}
