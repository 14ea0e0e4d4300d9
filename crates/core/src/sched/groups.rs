//! Code shared by the algorithms that put entities into groups by packet length over weight, and the entities of a
//! group into buckets by start time.
//!
//! Equations, theorems and lemmas are numbered as in F. Checconi, P. Valente, L. Rizzo,
//! *QFQ: Efficient Packet Scheduling with Tight Bandwidth Distribution Guarantees*,
//! technical report, 2010.
//!
//! An entity k of weight phi and longest packet L belongs to the group
//! i = ceil(log2(L / phi)) (Eq. 4); the group's slot sigma_i is 2^i units of
//! [virtual time](super::clock), so neither a group's index nor its slot needs a table:
//! group 56 holds packets of 65,535 bytes at weight 1, group 20 those of 1 byte at
//! weight 10^6. Of costs, group 55 holds those of 2^31 at weight 1, group 5 those of 1 at weight
//! 10^6, and group 2 those of 1 at the largest weight of an aggregate.
//!
//! A group has 64 buckets. Theorem 5 asks for 2 + L / sigma of them, L in virtual time: an entity is therefore inserted
//! only into groups whose slot is at least a 32nd of L / (sum of weights). This matters only next to packets more than
//! 32 times as long, and when the sum of weights changes, at the entity's next place. Where V is further behind than
//! the present sum explains, because it was smaller before, a newcomer starts at the group's last bucket.

use super::Standing;
use super::clock::{
    FRACTION, Terms, VirtualClock, ceil_log2, entity_weight, start_at_new_weight, weight_of,
};
use super::scale::{Arithmetic, Costs, Packets, Scale};
use crate::cost::MAX_COST;
use crate::ensure_invariant;
use crate::scheduler::{Entities, EntityId, Holds, MaybeEntity, Removal, Share, Violation};
use crate::units::{Charge, MAX_LENGTH, VirtualTime, Weight};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Expands to the parts of a [`Scheduler`](crate::Scheduler) that all algorithms over groups share, in terms of their
/// `members`; `$changed` runs where an entity leaves or gets another share.
macro_rules! statements_of_members {
    ($(|$algorithm:ident| $changed:expr)?) => {
        fn add(&mut self, entities: &mut [impl Holds<Self::Entity>], id: EntityId, share: Share) {
            *entities.entity_mut(id) = self.members.add(share, self.is_idle());
        }

        fn remove(&mut self, entities: &mut [impl Holds<Self::Entity>], id: EntityId) -> Removal {
            $(
                let $algorithm = &mut *self;
                $changed;
            )?
            let idle = self.is_idle();
            self.members.remove(entities.entity_mut(id), id, idle)
        }

        fn change(
            &mut self,
            entities: &mut [impl Holds<Self::Entity>],
            id: EntityId,
            share: Share,
        ) {
            $(
                let $algorithm = &mut *self;
                $changed;
            )?
            let idle = self.is_idle();
            let entity = entities.entity_mut(id);
            self.members.change(entity, id, share, idle);
        }

        fn weight(&self, entities: &[impl Holds<Self::Entity>], id: EntityId) -> Weight {
            self.members.weight(entities.entity(id), id)
        }

        fn is_active(&self, entities: &[impl Holds<Self::Entity>], id: EntityId) -> bool {
            entities.entity(id).state != Standing::Inactive
        }
    };
}

pub(super) use statements_of_members;

/// Buckets of a group.
pub(super) const SLOTS: u32 = 64;
/// A group's slot is at least 2^-5 of the longest packet's virtual time.
const FINEST: u32 = 5;

const _: () = assert!(
    MAX_LENGTH.ilog2() + 1 + FRACTION + SLOTS.ilog2() < 63,
    "all slots of the coarsest group lie within half the circle of virtual time"
);
const _: () = assert!(
    MAX_COST.ilog2() + FRACTION - Costs::CARRIED + SLOTS.ilog2() < 63,
    "and so they do with costs"
);
const _: () = assert!((1 << FINEST) + 4 <= SLOTS);
/// A quarter of the circle of virtual time: a lag beyond it is indistinguishable from a lead.
const FARTHEST: u64 = 1 << 62;
const _: () = assert!(size_of::<GroupedEntity>() == 24);

/// State of one entity.
#[derive(Clone, Copy, Debug, Default)]
pub struct GroupedEntity<S: Scale = Packets> {
    /// Virtual start time S while active, last virtual finish time F while not.
    pub(super) start: VirtualTime,
    /// 2^[`FRACTION`] / weight, rounded up; 0 if there is no such entity.
    pub(super) inverse_weight: u64,
    /// Next in the bucket.
    pub(super) next: MaybeEntity,
    /// Group whose bucket it is in, while active; negative while a change of its
    /// share is pending.
    pub(super) group: i8,
    /// Group that its share asks for.
    pub(super) own_group: i8,
    /// While inactive, the quarter of V's circle in which it became so, modulo 256 (64
    /// turns); while active, the lowest group there was when it was put into its own, or
    /// 0 if its share has changed since.
    pub(super) mark: u8,
    pub(super) state: Standing,
    /// The fraction to add to S beyond its units.
    pub(super) carry: S::Carry,
}

impl<S: Scale> GroupedEntity<S> {
    /// Returns S after a charge, and the fraction carried over.
    #[inline(always)]
    pub(super) fn after(&self, charge: Charge) -> (VirtualTime, S::Carry) {
        S::after(self.start, self.carry, charge, self.inverse_weight)
    }
}

/// Which buckets of a group are in use.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    /// S_i of Eq. 6 in slots, S_i / sigma_i; of no meaning while no bucket is in use.
    pub first: u64,
    /// Bit b is bucket b, which holds the entities whose rounded start is b slots after
    /// a multiple of 64 slots.
    pub occupied: u64,
}

impl Slots {
    pub(super) const EMPTY: Slots = Slots {
        first: 0,
        occupied: 0,
    };

    /// S_i.
    #[inline]
    pub(super) fn start(&self, i: u32) -> VirtualTime {
        VirtualTime::new(self.first << i)
    }

    /// S_i + 2 sigma_i: every entity in the first bucket finishes before.
    #[inline]
    pub(super) fn end(&self, i: u32) -> VirtualTime {
        self.start(i).advanced(2 << i)
    }

    #[inline]
    pub(super) fn first_bucket(&self) -> usize {
        (self.first % u64::from(SLOTS)) as usize
    }

    /// Moves S_i on to the next bucket in use; `false` if there is none.
    #[inline]
    pub(super) fn skip_first(&mut self, i: u32) -> bool {
        let first = (self.first % u64::from(SLOTS)) as u32;
        self.occupied &= !(1 << first);
        let skipped = self.occupied.rotate_right(first).trailing_zeros();
        self.first = (self.first.wrapping_add(skipped.into()) << i) >> i;
        self.occupied != 0
    }

    /// Returns the last slot of group `i` that has a bucket in addition to the first one's.
    #[inline]
    pub(super) fn last(&self, i: u32) -> VirtualTime {
        self.start(i).advanced(u64::from(SLOTS - 1) << i)
    }
}

/// Virtual time, and the shares of all entities.
///
/// The caller of a statement passes whether the scheduler is `idle`: no entity is active.
#[derive(Clone, Debug)]
#[repr(C)]
pub(super) struct Members<S = Packets> {
    pub clock: VirtualClock<S>,
    /// The distance that V may lie after F of a backlogged group, in units: the largest L / (sum of weights) of this
    /// busy period (Theorem 4), and once more for each time that the sum fell.
    pub lag: u64,
    /// The latest F of all entities that became inactive.
    latest: VirtualTime,
    /// Longest packet declared so far, L.
    longest: u32,
    /// Lowest group to stay in or insert into, from the present longest packet and sum of
    /// weights; never 0.
    pub floor: i8,
    /// The shares of active entities that take effect at their next place: until then their present weights count, both
    /// in the sum and in their charges.
    pending: BTreeMap<EntityId, Terms>,
}

impl<S: Scale> Members<S> {
    pub(super) fn starting_at(now: VirtualTime) -> Self {
        Members {
            clock: VirtualClock::starting_at(now),
            floor: 1,
            longest: 0,
            lag: 0,
            latest: now,
            pending: BTreeMap::new(),
        }
    }

    fn set_weight_sum(&mut self, sum: u64, idle: bool) {
        let falls = sum < self.clock.weight_sum();
        self.clock.set_weight_sum(sum);
        let lag = self.clock.span_of_work(self.longest);
        self.floor = ceil_log2(lag).saturating_sub(FINEST).max(1) as i8;
        self.lag = match (idle, falls) {
            (true, _) => lag,
            // A weight that leaves after it was served ahead of V leaves that work to the
            // others: V passes them by as much again.
            (false, true) => self.lag.saturating_add(lag).min(FARTHEST),
            (false, false) => self.lag.max(lag),
        };
    }

    /// V passes the last F of each entity ([`VirtualClock::start_busy_period`]).
    pub(super) fn start_busy_period(&mut self) {
        self.clock.start_busy_period(self.latest);
        self.lag = self.clock.span_of_work(self.longest);
    }

    /// Returns the group to put an entity into.
    #[inline]
    pub(super) fn group_of(&self, entity: &GroupedEntity<S>) -> i8 {
        entity.own_group.max(self.floor)
    }

    pub(super) fn add(&mut self, share: Share, idle: bool) -> GroupedEntity<S> {
        let terms = Terms::of::<S>(share);
        self.longest = self.longest.max(share.max_charge().get());
        let sum = self.clock.weight_sum() + weight_of(terms.inverse_weight);
        self.set_weight_sum(sum, idle);
        GroupedEntity {
            mark: self.clock.long_ago(),
            inverse_weight: terms.inverse_weight,
            own_group: terms.slot,
            ..GroupedEntity::default()
        }
    }

    pub(super) fn remove(
        &mut self,
        entity: &mut GroupedEntity<S>,
        id: EntityId,
        idle: bool,
    ) -> Removal {
        if entity.state == Standing::Inactive {
            self.forget(entity, idle);
            return Removal::Done;
        }
        entity.state = Standing::Leaving;
        entity.group = entity.group.abs();
        self.pending.remove(&id);
        Removal::WhenSelected
    }

    fn forget(&mut self, entity: &mut GroupedEntity<S>, idle: bool) {
        let weight = weight_of(entity.inverse_weight);
        *entity = GroupedEntity::default();
        self.set_weight_sum(self.clock.weight_sum() - weight, idle);
    }

    pub(super) fn change(
        &mut self,
        entity: &mut GroupedEntity<S>,
        id: EntityId,
        share: Share,
        idle: bool,
    ) {
        // A longer packet may come at once; virtual time must allow for it.
        self.longest = self.longest.max(share.max_charge().get());
        self.set_weight_sum(self.clock.weight_sum(), idle);
        let terms = Terms::of::<S>(share);
        let present = Terms {
            inverse_weight: entity.inverse_weight,
            slot: entity.own_group,
        };
        if entity.state != Standing::Inactive {
            entity.group = entity.group.abs();
            entity.mark = 0;
            self.pending.remove(&id);
            if terms != present {
                entity.group = -entity.group;
                self.pending.insert(id, terms);
            }
            return;
        }
        self.adopt(entity, terms, idle);
    }

    pub(super) fn weight(&self, entity: &GroupedEntity<S>, id: EntityId) -> Weight {
        let pending = self.pending.get(&id).filter(|_| entity.group < 0);
        entity_weight(pending.map_or(entity.inverse_weight, |terms| terms.inverse_weight))
    }

    /// The entity, which has just been charged, has this share from now on.
    fn adopt(&mut self, entity: &mut GroupedEntity<S>, terms: Terms, idle: bool) {
        let (old, new) = (
            weight_of(entity.inverse_weight),
            weight_of(terms.inverse_weight),
        );
        entity.inverse_weight = terms.inverse_weight;
        entity.own_group = terms.slot;
        self.set_weight_sum(self.clock.weight_sum() - old + new, idle);
    }

    /// A pending change of the entity, which is in no group any more, takes effect.
    pub(super) fn adopt_pending(
        &mut self,
        entity: &mut GroupedEntity<S>,
        id: EntityId,
        idle: bool,
    ) {
        if entity.group < 0
            && let Some(terms) = self.pending.remove(&id)
        {
            self.adopt(entity, terms, idle);
        }
    }

    /// Returns whether the entity was put into its group under other terms than hold now.
    #[inline]
    pub(super) fn is_misplaced(&self, entity: &GroupedEntity<S>) -> bool {
        entity.mark != self.floor as u8
    }

    /// Returns whether the selected entity may stay in its group, whose first bucket ends at `end`, although its share
    /// or the lowest group, now `lowest`, has changed. If so, its share takes effect without a move, so that its S
    /// continues from its F; if it became heavier, from the point where it is late by the same work, if not `latest`.
    /// Otherwise aggregates late by up to two slots that grow eightfold within their group would delay all other
    /// entities by all of their own arrears.
    #[inline]
    pub(super) fn may_stay(
        &mut self,
        entity: &mut GroupedEntity<S>,
        id: EntityId,
        end: VirtualTime,
        latest: VirtualTime,
        lowest: i8,
    ) -> bool {
        let group = entity.group.abs();
        let changed = entity.group < 0;
        let pending = self.pending.get(&id).filter(|_| changed).copied();
        let own = pending.map_or(entity.own_group, |terms| terms.slot);
        let lowest_of_own = own.max(lowest);
        // In a higher group than it needs it stays until its share changes or it is idle: each move costs an entity
        // its lateness, and others decide how often the lowest group changes.
        if lowest_of_own > group || changed && lowest_of_own < group {
            return false;
        }
        if let Some(terms) = pending {
            entity.group = group;
            let inverse = (entity.inverse_weight, terms.inverse_weight);
            let now = self.clock.now();
            let start = start_at_new_weight(now, entity.start, inverse.0, inverse.1);
            let start = entity.start.later(start.earlier(latest));
            // A packet allowed by the new share may be longer than the old one's
            // slot: charged at the old weight, it would reach past Theorem 5. So might V.
            entity.start = start.earlier(end.advanced(u64::MAX));
            self.pending.remove(&id);
            self.adopt(entity, terms, false);
        }
        entity.mark = lowest as u8;
        // The sum of weights may have changed so far that it must move after all.
        lowest_of_own.max(self.floor) <= group
    }

    /// The entity, which is in no group any more, is inactive from now on.
    pub(super) fn leave(&mut self, entity: &mut GroupedEntity<S>, idle: bool) {
        if entity.state == Standing::Leaving {
            self.forget(entity, idle);
        } else {
            entity.state = Standing::Inactive;
            self.latest = self.latest.later(entity.start);
            entity.mark = self.clock.quarter();
        }
    }

    /// Checks the records of entities `0..count`, of which those that were `listed` are in
    /// some bucket.
    pub(super) fn check(
        &self,
        entities: &[impl Holds<GroupedEntity<S>>],
        listed: &[bool],
    ) -> Result<(), Violation> {
        let ids = || (0..listed.len()).filter_map(EntityId::new);
        let mut sum = 0;
        for id in ids() {
            let entity = entities.entity(id);
            if entity.inverse_weight != 0 {
                sum += weight_of(entity.inverse_weight);
            }
            ensure_invariant!(
                listed[id.index()] == (entity.state != Standing::Inactive),
                "{id:?} is {:?} and listed: {}",
                entity.state,
                listed[id.index()]
            );
        }
        let pending: Vec<EntityId> = ids()
            .filter(|&id| {
                let entity = entities.entity(id);
                entity.state == Standing::Active && entity.group < 0
            })
            .collect();
        ensure_invariant!(
            pending.iter().eq(self.pending.keys()),
            "changes are pending of {:?}, and {pending:?} say so",
            self.pending
        );
        ensure_invariant!(
            sum == self.clock.weight_sum(),
            "the weights add up to {sum}, not {}",
            self.clock.weight_sum()
        );
        Ok(())
    }
}

/// Checks one bucket: every entity in it is in group `i` and starts in the slot from
/// `start` on, and is in no other bucket.
pub(super) fn check_bucket<S: Scale>(
    entities: &[impl Holds<GroupedEntity<S>>],
    top: MaybeEntity,
    i: u32,
    start: VirtualTime,
    listed: &mut [bool],
) -> Result<(), Violation> {
    let mut at = top;
    while let Some(id) = at.get() {
        ensure_invariant!(id.index() < listed.len(), "{id:?} was never added");
        ensure_invariant!(!listed[id.index()], "{id:?} is in two buckets");
        listed[id.index()] = true;
        let entity = entities.entity(id);
        ensure_invariant!(
            u32::from(entity.group.unsigned_abs()) == i && entity.start.rounded_down(i) == start,
            "{id:?} lies in group {i} at {start:?}: {entity:?}"
        );
        at = entity.next;
    }
    Ok(())
}
