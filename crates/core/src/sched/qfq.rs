//! QFQ: quick fair queueing.
//!
//! [1] F. Checconi, P. Valente, L. Rizzo, *QFQ: Efficient Packet Scheduling with
//! Tight Bandwidth Distribution Guarantees*, technical report, 2010. Equations,
//! theorems and lemmas below are numbered as there.
//!
//! WF2Q+ with rounded timestamps: an entity k of weight phi and longest packet L
//! belongs to the group i = ceil(log2(L / phi)) (Eq. 4), its start time S is used
//! rounded down to a multiple of sigma_i = 2^i (Eq. 5), and within a group all
//! finish times are two slots after the start. A group sorts its entities in 64
//! buckets, found by one find-first-set; groups are sorted by four words of bits.
//!
//! Bit i of every set of groups is the group whose slot is 2^i units of
//! [virtual time](super::clock), so neither a group's index nor its slot needs a table:
//! group 56 holds packets of 65,535 bytes at weight 1, group 20 those of 1 byte at
//! weight 10^6.
//!
//! # What differs from the listings, and why
//!
//! * Only S is kept. F = S + l / phi is computed when the packet is charged; an
//!   inactive entity's S is its last F.
//! * Buckets are stacks: all in one bucket have the same rounded timestamps, and
//!   the report breaks ties arbitrarily. Insertion then touches no other entity.
//! * Back-shifting (Eq. 29) is applied to every newly backlogged entity, not only
//!   to the first of an idle group. An entity that joins a backlogged group at
//!   S = V, behind V - F of a group above, would else become its group's start
//!   later, above that F: Lemma 4, and with it Theorem 8, would not hold.
//! * The last F of an entity counts only if it was served in the group that it
//!   joins, as Lemma 4 takes for granted: after a change of share that moves it to
//!   another group only as far as F_b of Eq. 29, and not at all once V went half round
//!   the circle since, after which F could not be told from a finish time to come.
//! * An entity is inserted only into groups whose slot is at least a 32nd of
//!   L / (sum of weights), so that Theorem 5's 2 + L / sigma slots are fewer than
//!   64. This matters only beside packets more than 32 times as long.

mod invariants;

use super::Standing;
use super::clock::{FRACTION, Terms, VirtualClock, ceil_log2, span, weight_of};
use crate::scheduler::{Entities, EntityId, Link, Removal, Scheduler, Share, Violation};
use crate::units::{Charge, MAX_LENGTH, Nanos, VirtualTime, Weight};
use alloc::collections::BTreeMap;

/// Buckets of a group.
const SLOTS: u32 = 64;
/// A group's slot is at least 2^-5 of the longest packet's virtual time.
const FINEST: u32 = 5;

const _: () = assert!(
    MAX_LENGTH.ilog2() + 1 + FRACTION + SLOTS.ilog2() < 63,
    "all slots of the coarsest group lie within half the circle of virtual time"
);
const _: () = assert!((1 << FINEST) + 4 <= SLOTS);
const _: () = assert!(size_of::<QfqEntity>() == 24);

/// State of one entity.
#[derive(Clone, Copy, Debug, Default)]
pub struct QfqEntity {
    /// Virtual start time S while active, last virtual finish time F while not.
    start: VirtualTime,
    /// 2^[`FRACTION`] / weight, rounded up; 0 if there is no such entity.
    inverse_weight: u64,
    /// Next in the bucket.
    next: Link,
    /// Group whose bucket it is in, while active; negative while a change of its
    /// share is pending.
    group: i8,
    /// Group that its share asks for.
    own_group: i8,
    /// Quarter of V's circle in which it became inactive, modulo 256 (64 turns).
    idle_since: u8,
    state: Standing,
}

/// Buckets of one group.
#[derive(Clone, Debug)]
struct Group {
    /// S_i of Eq. 6 in slots, S_i / sigma_i; of no meaning while no bucket is in use.
    slot: u64,
    /// Buckets in use: bit b is bucket b, which holds the entities whose rounded
    /// start is b slots after a multiple of 64 slots.
    occupied: u64,
    buckets: [Link; SLOTS as usize],
}

impl Group {
    const EMPTY: Group = Group {
        slot: 0,
        occupied: 0,
        buckets: [Link::NONE; SLOTS as usize],
    };

    /// S_i.
    #[inline]
    fn start(&self, i: u32) -> VirtualTime {
        VirtualTime::new(self.slot << i)
    }

    /// F_i = S_i + 2 sigma_i.
    #[inline]
    fn finish(&self, i: u32) -> VirtualTime {
        self.start(i).advanced(2 << i)
    }

    #[inline]
    fn first_bucket(&self) -> &Link {
        &self.buckets[(self.slot % u64::from(SLOTS)) as usize]
    }

    #[inline]
    fn push(&mut self, entity: &mut QfqEntity, id: EntityId, slot: u64) {
        let bucket = slot % u64::from(SLOTS);
        let top = &mut self.buckets[bucket as usize];
        entity.next = *top;
        *top = Link::to(id);
        self.occupied |= 1 << bucket;
    }

    /// Takes the entity off the first bucket that has `next` below it.
    #[inline]
    fn pop(&mut self, next: Link) {
        self.buckets[(self.slot % u64::from(SLOTS)) as usize] = next;
    }

    /// Moves S_i on to the next bucket in use; `false` if there is none.
    #[inline]
    fn skip_first_bucket(&mut self, i: u32) -> bool {
        let first = (self.slot % u64::from(SLOTS)) as u32;
        self.occupied &= !(1 << first);
        let skipped = self.occupied.rotate_right(first).trailing_zeros();
        self.slot = (self.slot.wrapping_add(skipped.into()) << i) >> i;
        self.occupied != 0
    }
}

/// Quick fair queueing.
#[derive(Clone, Debug)]
pub struct Qfq {
    clock: VirtualClock,
    /// Eligible and ready, ineligible and ready, eligible and blocked, ineligible
    /// and blocked: the groups in ER, IR, EB, IB (Section 4.1.3).
    er: u64,
    ir: u64,
    eb: u64,
    ib: u64,
    /// The selected entity may be on hold.
    holds: bool,
    /// Lowest group to stay in or insert into during this busy period; never 0.
    floor: i8,
    /// The same, from the present longest packet and sum of weights.
    next_floor: i8,
    groups: [Group; 64],
    /// Shares that active entities will have from their next place on: until then
    /// their weights count as they are, in the sum as in what they are charged.
    pending: BTreeMap<EntityId, Terms>,
    /// Longest packet declared so far, L.
    longest: u32,
    /// Largest L / (sum of weights) of this busy period, in units: how far V may
    /// lie after F of a backlogged group (Theorem 4).
    lag: u64,
}

impl Default for Qfq {
    fn default() -> Self {
        Self::new()
    }
}

/// Bits from `i` upwards.
#[inline]
const fn from(i: u32) -> u64 {
    u64::MAX << i
}

impl Qfq {
    /// A scheduler whose virtual time starts at 0.
    pub fn new() -> Self {
        Self::starting_at(VirtualTime::new(0))
    }

    /// A scheduler whose virtual time starts at `now`: at any point, also shortly
    /// before it wraps.
    pub fn starting_at(now: VirtualTime) -> Self {
        Qfq {
            clock: VirtualClock::starting_at(now),
            er: 0,
            ir: 0,
            eb: 0,
            ib: 0,
            holds: false,
            floor: 1,
            next_floor: 1,
            groups: [Group::EMPTY; 64],
            pending: BTreeMap::new(),
            longest: 0,
            lag: 0,
        }
    }

    /// V, the system virtual time.
    #[inline]
    pub fn virtual_time(&self) -> VirtualTime {
        self.clock.now()
    }

    fn set_weight_sum(&mut self, sum: u64) {
        self.clock.set_weight_sum(sum);
        let lag = self.clock.span_of_work(self.longest);
        self.next_floor = ceil_log2(lag).saturating_sub(FINEST).max(1) as i8;
        if self.er == 0 {
            self.start_busy_period();
        } else {
            self.lag = self.lag.max(lag);
            self.floor = self.floor.max(self.next_floor);
        }
    }

    fn start_busy_period(&mut self) {
        self.floor = self.next_floor;
        self.lag = self.clock.span_of_work(self.longest);
    }

    #[inline]
    fn sets_with(&mut self, i: u32) {
        let group = &self.groups[(i % 64) as usize];
        let bit = 1 << i;
        let eligible = !group.start(i).is_after(self.virtual_time());
        // Blocked by the next eligible, ready group above, if that finishes first:
        // ER is sorted by F (Theorem 6).
        let above = self.er & (from(i) << 1);
        let blocked = above != 0 && {
            let x = above.trailing_zeros();
            group
                .finish(i)
                .is_after(self.groups[(x % 64) as usize].finish(x))
        };
        match (eligible, blocked) {
            (true, false) => self.er |= bit,
            (false, false) => self.ir |= bit,
            (true, true) => self.eb |= bit,
            (false, true) => self.ib |= bit,
        }
    }

    /// Groups that V reached on its way from `before` become eligible: those with a
    /// slot boundary in between, which the highest bit that changed tells (Fig. 7).
    #[inline]
    fn make_eligible(&mut self, before: VirtualTime) {
        let changed = self.virtual_time().units() ^ before.units();
        let reached = u64::MAX >> (changed | 1).leading_zeros();
        self.er |= self.ir & reached;
        self.ir &= !reached;
        self.eb |= self.ib & reached;
        self.ib &= !reached;
    }

    /// Group `i`, which finished at `finish`, moved on: those below that it
    /// blocked become ready (Theorem 8).
    #[inline]
    fn unblock(&mut self, i: u32, finish: VirtualTime) {
        let above = self.er & (from(i) << 1);
        if above != 0 {
            let x = above.trailing_zeros();
            if !self.groups[(x % 64) as usize].finish(x).is_after(finish) {
                return;
            }
        }
        let below = !from(i);
        self.er |= self.eb & below;
        self.eb &= !below;
        self.ir |= self.ib & below;
        self.ib &= !below;
    }

    /// The link must not idle while somebody is backlogged: with nobody eligible, V
    /// jumps to the first start (Eq. 3).
    #[inline]
    fn keep_work_conserving(&mut self) {
        let ineligible = self.ir | self.ib;
        if self.er == 0 && ineligible != 0 {
            let before = self.virtual_time();
            let i = ineligible.trailing_zeros();
            self.clock.jump_to(self.groups[(i % 64) as usize].start(i));
            self.make_eligible(before);
        }
    }

    /// The latest time an entity of group `i` may start at (Theorem 3).
    #[inline]
    fn latest_start(&self, i: u32) -> VirtualTime {
        self.virtual_time().advanced((1 << i) - 1)
    }

    /// F_b of Eq. 29: of the lowest group in ER above `i`.
    #[inline]
    fn blocker(&self, i: u32) -> Option<VirtualTime> {
        let above = self.er & (from(i) << 1);
        let x = above.trailing_zeros();
        (above != 0).then(|| self.groups[(x % 64) as usize].finish(x))
    }

    /// Start time of an entity that becomes backlogged in group `i` (Eq. 2 and 29).
    #[inline]
    fn start_time(&self, entity: &QfqEntity, i: u32) -> VirtualTime {
        let now = self.virtual_time();
        let start = self.blocker(i).map_or(now, |finish| now.earlier(finish));
        if self.clock.remembers(entity.idle_since) {
            start.later(entity.start.earlier(self.latest_start(i)))
        } else {
            start
        }
    }

    /// Gives an inactive entity a place (Fig. 4, from line 7).
    #[inline(never)]
    fn insert<E: Entities<QfqEntity> + ?Sized>(&mut self, entities: &mut E, id: EntityId) {
        let idle = self.er == 0;
        if idle {
            self.start_busy_period();
        }
        let entity = entities.entity_mut(id);
        entity.group = entity.own_group.max(self.floor);
        let i = entity.group as u32;
        entity.start = self.start_time(entity, i);
        let rounded = entity.start.rounded_down(i);
        if idle {
            // With nobody else to serve, V jumps to the first start (Eq. 3).
            self.clock.jump_to(rounded);
        }
        let group = &mut self.groups[(i % 64) as usize];
        if group.occupied != 0 {
            let first = group.start(i);
            if !first.is_after(rounded) {
                // Beyond the last slot an entity is taken to have come earlier, when
                // V was there: a bucket behind the first changes nobody's order.
                let last = first.advanced(u64::from(SLOTS - 1) << i);
                if rounded.is_after(last) {
                    entity.start = last;
                }
                let slot = entity.start.units() >> i;
                match group.first_bucket().get() {
                    Some(top) if self.holds && slot == group.slot => {
                        let below = &mut entities.entity_mut(top).next;
                        let rest = core::mem::replace(below, Link::to(id));
                        entities.entity_mut(id).next = rest;
                    }
                    _ => group.push(entity, id, slot),
                }
                return;
            }
            // The group's start moves back, so it lies after V: it is ineligible.
            debug_assert_eq!((self.er | self.eb) >> i & 1, 0);
            self.ir &= !(1 << i);
            self.ib &= !(1 << i);
        }
        group.slot = rounded.units() >> i;
        group.push(entity, id, group.slot);
        self.sets_with(i);
    }

    /// The first bucket of group `i` is empty: the group starts at its next one, or
    /// leaves (Fig. 5, from line 21).
    #[inline(never)]
    fn move_on(&mut self, i: u32) {
        let group = &mut self.groups[(i % 64) as usize];
        let finish = group.finish(i);
        let backlogged = group.skip_first_bucket(i);
        let start = group.start(i);
        let bit = 1 << i;
        if backlogged && (self.er | self.ir | self.eb | self.ib) == bit {
            // Alone, it can neither block nor be blocked.
            self.clock.jump_to(start);
            return;
        }
        self.er &= !bit;
        if backlogged {
            self.sets_with(i);
        }
        self.unblock(i, finish);
        self.keep_work_conserving();
    }

    /// Takes the selected entity out of its group: for good, or `again` for the
    /// group that its share asks for by now.
    #[inline(never)]
    fn leave<E: Entities<QfqEntity> + ?Sized>(
        &mut self,
        entities: &mut E,
        id: EntityId,
        again: bool,
    ) {
        let entity = entities.entity_mut(id);
        let i = u32::from(entity.group.unsigned_abs());
        let changed = entity.group < 0;
        let rest = core::mem::take(&mut entity.next);
        let group = &mut self.groups[(i % 64) as usize];
        debug_assert_eq!(
            group.first_bucket().get(),
            Some(id),
            "it is the selected one"
        );
        group.pop(rest);
        if rest == Link::NONE {
            self.move_on(i);
        }
        if changed && let Some(terms) = self.pending.remove(&id) {
            self.adopt(entities, id, terms);
        }
        let entity = entities.entity_mut(id);
        if again {
            // What it was served ahead of V stays to be worked off, as far as the
            // order of its new group allows.
            let own = entity.own_group.max(self.floor) as u32;
            let latest = self.latest_start(own);
            let latest = self.blocker(own).map_or(latest, |f| latest.earlier(f));
            entity.start = entity.start.earlier(latest);
            entity.idle_since = self.clock.quarter();
            self.insert(entities, id);
        } else if entity.state == Standing::Leaving {
            let weight = weight_of(entity.inverse_weight);
            *entity = QfqEntity::default();
            self.set_weight_sum(self.clock.weight_sum() - weight);
        } else {
            entity.state = Standing::Inactive;
            // After a change of share this F is of another group.
            entity.idle_since = match changed {
                true => self.clock.long_ago(),
                false => self.clock.quarter(),
            };
        }
    }

    /// A pending change of the selected entity that leaves it in its group takes
    /// effect without moving it, so that its S goes on from its F. `false` if it must
    /// move.
    #[inline(never)]
    fn adopt_in_place<E: Entities<QfqEntity> + ?Sized>(
        &mut self,
        entities: &mut E,
        id: EntityId,
    ) -> bool {
        let entity = entities.entity_mut(id);
        let group = entity.group.abs();
        match self.pending.get(&id).copied() {
            Some(terms) if entity.group < 0 && terms.slot.max(self.floor) == group => {
                entity.group = group;
                // A packet allowed by the new share may be longer than the old one's
                // slot: charged at the old weight, it would reach past Theorem 5.
                let i = group as u32;
                let end = self.groups[(i % 64) as usize].finish(i);
                entity.start = entity.start.earlier(end.advanced(u64::MAX));
                self.pending.remove(&id);
                self.adopt(entities, id, terms);
                // The sum of weights may have become so low that it must move after all.
                group >= self.floor
            }
            _ => false,
        }
    }

    /// `id`, which has just been charged, has this share from now on.
    fn adopt<E: Entities<QfqEntity> + ?Sized>(
        &mut self,
        entities: &mut E,
        id: EntityId,
        terms: Terms,
    ) {
        let entity = entities.entity_mut(id);
        let (old, new) = (
            weight_of(entity.inverse_weight),
            weight_of(terms.inverse_weight),
        );
        entity.inverse_weight = terms.inverse_weight;
        entity.own_group = terms.slot;
        self.set_weight_sum(self.clock.weight_sum() - old + new);
    }
}

impl Scheduler for Qfq {
    type Entity = QfqEntity;
    const NAME: &'static str = "qfq";

    fn add<E: Entities<QfqEntity> + ?Sized>(
        &mut self,
        entities: &mut E,
        id: EntityId,
        share: Share,
    ) {
        let terms = Terms::of(share);
        *entities.entity_mut(id) = QfqEntity {
            idle_since: self.clock.long_ago(),
            inverse_weight: terms.inverse_weight,
            own_group: terms.slot,
            ..QfqEntity::default()
        };
        self.longest = self.longest.max(share.max_charge().get());
        self.set_weight_sum(self.clock.weight_sum() + weight_of(terms.inverse_weight));
    }

    fn remove<E: Entities<QfqEntity> + ?Sized>(
        &mut self,
        entities: &mut E,
        id: EntityId,
    ) -> Removal {
        let entity = entities.entity_mut(id);
        if entity.state != Standing::Inactive {
            entity.state = Standing::Leaving;
            entity.group = entity.group.abs();
            self.pending.remove(&id);
            return Removal::WhenSelected;
        }
        let weight = weight_of(entity.inverse_weight);
        *entity = QfqEntity::default();
        self.set_weight_sum(self.clock.weight_sum() - weight);
        Removal::Done
    }

    fn change<E: Entities<QfqEntity> + ?Sized>(
        &mut self,
        entities: &mut E,
        id: EntityId,
        share: Share,
    ) {
        // A longer packet may come at once; virtual time must allow for it.
        self.longest = self.longest.max(share.max_charge().get());
        self.set_weight_sum(self.clock.weight_sum());
        let terms = Terms::of(share);
        let long_ago = self.clock.long_ago();
        let entity = entities.entity_mut(id);
        let present = Terms {
            inverse_weight: entity.inverse_weight,
            slot: entity.own_group,
        };
        if entity.state != Standing::Inactive {
            entity.group = entity.group.abs();
            self.pending.remove(&id);
            if terms != present {
                entity.group = -entity.group;
                self.pending.insert(id, terms);
            }
            return;
        }
        if entity.own_group != terms.slot {
            entity.idle_since = long_ago;
        }
        self.adopt(entities, id, terms);
    }

    fn weight<E: Entities<QfqEntity> + ?Sized>(&self, entities: &E, id: EntityId) -> Weight {
        let entity = entities.entity(id);
        let pending = self.pending.get(&id).filter(|_| entity.group < 0);
        let inverse = pending.map_or(entity.inverse_weight, |terms| terms.inverse_weight);
        Weight::of_entity(weight_of(inverse) as u32).unwrap_or(Weight::ONE)
    }

    fn is_active<E: Entities<QfqEntity> + ?Sized>(&self, entities: &E, id: EntityId) -> bool {
        entities.entity(id).state != Standing::Inactive
    }

    #[inline]
    fn backlogged<E: Entities<QfqEntity> + ?Sized>(
        &mut self,
        entities: &mut E,
        id: EntityId,
        _: Charge,
    ) {
        let entity = entities.entity_mut(id);
        if entity.state == Standing::Inactive {
            entity.state = Standing::Active;
            self.insert(entities, id);
        }
    }

    #[inline]
    fn select<E: Entities<QfqEntity> + ?Sized>(&self, _: &E, _: Nanos) -> Link {
        // No entity is ever in group 0, which stands for an empty ER.
        let i = self.er.trailing_zeros() % 64;
        *self.groups[i as usize].first_bucket()
    }

    /// The entity is on top of the first bucket of its group, and the bucket stays
    /// the first, since the group is eligible. What is left is that nobody is put on
    /// top, which is so from the first hold on.
    #[inline]
    fn hold<E: Entities<QfqEntity> + ?Sized>(&mut self, _: &mut E, _: EntityId) {
        self.holds = true;
    }

    #[inline]
    fn served(&mut self, work: Charge) {
        let before = self.virtual_time();
        self.clock.served(work);
        if self.ir | self.ib != 0 {
            self.make_eligible(before);
        }
    }

    #[inline]
    fn reschedule<E: Entities<QfqEntity> + ?Sized>(
        &mut self,
        entities: &mut E,
        id: EntityId,
        charged: Charge,
        next: Option<Charge>,
    ) {
        let entity = entities.entity_mut(id);
        let finish = entity.start.advanced(span(charged, entity.inverse_weight));
        entity.start = finish;
        if next.is_none() || (entity.group < self.floor && !self.adopt_in_place(entities, id)) {
            return self.leave(entities, id, next.is_some());
        }
        let entity = entities.entity_mut(id);
        let i = u32::from(entity.group as u8);
        let slot = entity.start.units() >> i;
        let group = &mut self.groups[(i % 64) as usize];
        if slot == group.slot {
            return;
        }
        let rest = entity.next;
        group.pop(rest);
        group.push(entity, id, slot);
        if rest == Link::NONE {
            self.move_on(i);
        }
    }

    fn idle<E: Entities<QfqEntity> + ?Sized>(&mut self, entities: &mut E, id: EntityId) {
        if entities.entity(id).state != Standing::Inactive {
            self.leave(entities, id, false);
        }
    }

    fn invariants<E: Entities<QfqEntity> + ?Sized>(
        &self,
        entities: &E,
        count: usize,
    ) -> Result<(), Violation> {
        self.check_sets()?;
        self.check_buckets(entities, count)
    }
}
