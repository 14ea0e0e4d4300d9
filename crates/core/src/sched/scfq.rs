//! SCFQ: self-clocked fair queueing.
//!
//! S. J. Golestani, *A Self-Clocked Fair Queueing Scheme for Broadband Applications*,
//! INFOCOM 1994.
//!
//! A packet of length L that arrives at time a for an entity of weight phi gets the tag
//!
//! ```text
//! F = max(F of the entity's packet before, v(a)) + L / phi
//! ```
//!
//! and the packet with the smallest tag is next. Finding v needs no fluid server next to the link: it is the tag of the
//! packet in service. So a packet costs one step in a heap and nothing else, and shares are exact in the long run; but
//! an entity that becomes backlogged may wait for a packet of every other entity
//! ([`bounds::scfq`](crate::bounds::scfq)), where WF2Q+ makes it wait for one.
//!
//! Tags of queued packets are never behind v, as they leave in their order. So a backlogged entity continues from its
//! last tag, and one without packets starts at v, whatever its last tag was: an inactive entity stores nothing, and v
//! need not be reset for a new busy period.
//!
//! An entity that sends a shorter packet than the announced head continues from a tag behind v. If it becomes heavier
//! there, it stays behind by the same work.
//!
//! Of equal tags, that of the entity with the lowest number is next.

use super::Standing;
use super::clock::{FRACTION, start_at_new_weight};
use super::heap::{Heap, Key, Keyed, Numbered};
use super::scale::{Costs, Packets, Scale};
use crate::ensure_invariant;
use crate::scheduler::{
    Entities, EntityId, Holds, MaybeEntity, Removal, Scheduler, Share, Violation,
};
use crate::units::{Charge, VirtualTime, Weight};
use core::marker::PhantomData;

/// State of one entity.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScfqEntity<S: Scale = Packets> {
    /// While active, the tag that its head's length is added to.
    start: VirtualTime,
    /// 2^[`FRACTION`] / weight, rounded up, at the time of its present place.
    inverse_weight: u64,
    /// The weight from its next place on; none if there is no such entity.
    weight: Option<Weight>,
    state: Standing,
    /// `inverse_weight` is not that of `weight`.
    changed: bool,
    /// The fraction to add to `start` beyond its units.
    carry: S::Carry,
}

const _: () = assert!(size_of::<ScfqEntity<Packets>>() <= 24);

impl<S: Scale> ScfqEntity<S> {
    /// Returns the tag of the next charge, and the fraction carried over.
    #[inline(always)]
    fn after(&self, charge: Charge) -> (VirtualTime, S::Carry) {
        S::after(self.start, self.carry, charge, self.inverse_weight)
    }

    /// Its place with this head, at the weight that it has by now. `now` is v.
    #[inline]
    fn place(&mut self, now: VirtualTime, id: EntityId, head: Charge) -> Place {
        if core::mem::take(&mut self.changed) {
            let weight = self.weight.unwrap_or(Weight::ONE);
            let old = self.inverse_weight;
            self.inverse_weight = (1u64 << FRACTION).div_ceil(weight.get().into());
            self.start = start_at_new_weight(now, self.start, old, self.inverse_weight);
        }
        Place {
            finish: self.after(head).0,
            entity: MaybeEntity::of(id),
        }
    }
}

/// An active entity, by the tag of its head; none by default.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    finish: VirtualTime,
    entity: MaybeEntity,
}

impl Keyed for Place {
    type Key = Numbered;

    #[inline]
    fn key(&self) -> Numbered {
        Numbered::new(self.finish, self.entity)
    }
}

/// Self-clocked fair queueing, of packets or of requests by cost.
#[derive(Clone, Debug, Default)]
pub struct Scfq<S: Scale = Packets> {
    /// v: the tag of the packet sent last.
    now: VirtualTime,
    /// The selected one, with the smallest tag unless it is on hold.
    first: Place,
    /// All others.
    others: Heap<Place>,
    held: bool,
    scale: PhantomData<S>,
}

impl Scfq {
    /// Creates a scheduler whose virtual time starts at 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a scheduler whose virtual time starts at `now`: at any point, also shortly before it wraps.
    #[doc(hidden)]
    pub fn starting_at(now: VirtualTime) -> Self {
        Scfq {
            now,
            ..Self::default()
        }
    }
}

impl Scfq<Costs> {
    /// Returns a scheduler for [costs](crate::CostScheduler).
    pub fn for_costs() -> Self {
        Self::default()
    }
}

impl<S: Scale> Scfq<S> {
    /// Returns v, the tag of the packet sent last.
    #[inline]
    #[doc(hidden)]
    pub fn virtual_time(&self) -> VirtualTime {
        self.now
    }

    /// The selected entity has no place any more.
    fn leave(&mut self, entity: &mut ScfqEntity<S>) {
        self.held = false;
        self.first = self.others.pop().unwrap_or_default();
        match entity.state {
            Standing::Leaving => *entity = ScfqEntity::default(),
            _ => entity.state = Standing::Inactive,
        }
    }
}

/// O(1) except for the heap: `backlogged`, `reschedule` and `idle` are O(log N) in the number N of active entities.
impl<S: Scale> Scheduler for Scfq<S> {
    type Entity = ScfqEntity<S>;
    const NAME: &'static str = "scfq";
    const LARGEST: u32 = S::LARGEST;

    fn add(&mut self, entities: &mut [impl Holds<Self::Entity>], id: EntityId, share: Share) {
        *entities.entity_mut(id) = ScfqEntity {
            weight: Some(share.weight()),
            changed: true,
            ..ScfqEntity::default()
        };
    }

    fn remove(&mut self, entities: &mut [impl Holds<Self::Entity>], id: EntityId) -> Removal {
        let entity = entities.entity_mut(id);
        if entity.state != Standing::Inactive {
            entity.state = Standing::Leaving;
            return Removal::WhenSelected;
        }
        *entity = ScfqEntity::default();
        Removal::Done
    }

    fn change(&mut self, entities: &mut [impl Holds<Self::Entity>], id: EntityId, share: Share) {
        let entity = entities.entity_mut(id);
        entity.weight = Some(share.weight());
        entity.changed = true;
    }

    fn weight(&self, entities: &[impl Holds<Self::Entity>], id: EntityId) -> Weight {
        entities.entity(id).weight.unwrap_or(Weight::ONE)
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
        if entity.state != Standing::Inactive {
            return;
        }
        entity.state = Standing::Active;
        entity.start = self.now;
        let mut place = entity.place(self.now, id, head);
        if self.first.entity == MaybeEntity::NONE {
            self.first = place;
            return;
        }
        if !self.held && place.key().is_before(self.first.key()) {
            core::mem::swap(&mut self.first, &mut place);
        }
        self.others.push(place);
    }

    #[inline]
    fn select(&self, _: &[impl Holds<Self::Entity>]) -> MaybeEntity {
        self.first.entity
    }

    #[inline]
    fn hold(&mut self, _: &mut [impl Holds<Self::Entity>], _: EntityId) {
        self.held = true;
    }

    /// Does nothing: v moves by the tag of a sent packet, not by work.
    #[inline]
    fn served(&mut self, _: Charge) {}

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
        self.now = self.now.later(entity.start);
        let Some(head) = next else {
            return self.leave(entity);
        };
        self.held = false;
        let place = entity.place(self.now, id, head);
        self.first = match self.others.first() {
            Some(&other) if other.key().is_before(place.key()) => {
                self.others.replace_first(place);
                other
            }
            _ => place,
        };
    }

    fn idle(&mut self, entities: &mut [impl Holds<Self::Entity>], id: EntityId) {
        let entity = entities.entity_mut(id);
        if entity.state != Standing::Inactive {
            self.leave(entity);
        }
    }

    fn invariants(&self, entities: &[impl Holds<Self::Entity>]) -> Result<(), Violation> {
        let mut listed = alloc::vec![false; entities.len()];
        let first = (self.first.entity != MaybeEntity::NONE).then_some(&self.first);
        ensure_invariant!(
            self.others.is_sorted() && (first.is_some() || self.others.is_empty()),
            "scfq: the heap is out of order, or no flow is selected"
        );
        for place in first.into_iter().chain(self.others.entries()) {
            let id = place.entity.get().filter(|id| id.index() < entities.len());
            let Some(id) = id else {
                return Err(Violation("scfq: a place belongs to no flow".into()));
            };
            ensure_invariant!(
                !core::mem::replace(&mut listed[id.index()], true),
                "scfq: {id:?} has two places"
            );
            ensure_invariant!(
                self.held || !place.key().is_before(self.first.key()),
                "scfq: {id:?} has a smaller tag than the selected one"
            );
            let start = entities.entity(id).start;
            ensure_invariant!(
                !start.is_after(self.now) && !start.is_after(place.finish),
                "scfq: {id:?} continues from {start:?}, v is {:?}, its tag {:?}",
                self.now,
                place.finish
            );
        }
        for id in (0..entities.len()).filter_map(EntityId::new) {
            let state = entities.entity(id).state;
            ensure_invariant!(
                listed[id.index()] == (state != Standing::Inactive),
                "scfq: {id:?} is {state:?} and has a place: {}",
                listed[id.index()]
            );
        }
        Ok(())
    }
}
