//! QFQ: quick fair queueing.
//!
//! [1] F. Checconi, P. Valente, L. Rizzo, *QFQ: Efficient Packet Scheduling with
//! Tight Bandwidth Distribution Guarantees*, technical report, 2010. Equations,
//! theorems and lemmas below are numbered as there.
//!
//! WF2Q+ with rounded timestamps: an entity k of weight phi and longest packet L
//! belongs to the [group](super::groups) i = ceil(log2(L / phi)) (Eq. 4), its start time
//! S is used rounded down to a multiple of sigma_i = 2^i (Eq. 5), and within a group all
//! finish times are two slots after the start. A group sorts its entities in 64
//! buckets, found by one find-first-set; groups are sorted by four words of bits, of
//! which bit i is group i.
//!
//! # Differences from the listings, and reasons
//!
//! * Only S is kept. F = S + l / phi is computed when the packet is charged; an
//!   inactive entity's S is its last F.
//! * Buckets are stacks: all in one bucket have the same rounded timestamps, and the report breaks ties arbitrarily.
//!   Insertion then touches no other entity. With aggregates they are queues: no aggregate may be placed on top of the
//!   one in service, and in order of arrival the flows of all aggregates lie in one direction in memory.
//! * Back-shifting (Eq. 29) is applied to every newly backlogged entity, not only
//!   to the first of an idle group. An entity that joins a backlogged group at
//!   S = V, behind V - F of a group above, would else become its group's start
//!   later, above that F: Lemma 4, and with it Theorem 8, would not hold.
//! * The last F of an entity counts in full only in the group in which it was served, as
//!   Lemma 4 assumes. After a change of share that moves the entity to another group, backlogged
//!   or idle, it counts up to F_b of Eq. 29 and the end of the slot after V's. Once V went half
//!   round the circle since, it does not count, as it may be a finish time to come.
//! * Groups finer than a 32nd of L / (sum of weights) are not used.
//!   Where the lowest group falls, a backlogged entity stays in its higher one: each move costs it its lateness, and
//!   others decide how often the lowest group changes.
//! * A change of share takes effect when the entity is charged next. If it becomes heavier, F < V, and it stays in its
//!   group, S is then after F by so much that it is late by the same work as before, but no later than F_b. In another
//!   group it starts at V, or at F_b, and its lateness is lost: two slots and L at most, once for each move.

mod invariants;

use super::Standing;
use super::groups::{GroupedEntity, Members, SLOTS, Slots, statements_of_members};
use super::scale::{Costs, Packets, Scale};
use crate::scheduler::{
    Entities, EntityId, Holds, MAX_ALLOWANCE, MaybeEntity, Removal, Scheduler, Share, Violation,
};
use crate::units::{Charge, VirtualTime, Weight};

/// Buckets of all groups: group i's are those from `SLOTS` i on.
const BUCKETS: usize = 64 * SLOTS as usize;

const _: () = assert!(BUCKETS <= u16::MAX as usize + 1);

/// Quick fair queueing, of packets or of requests by cost.
///
/// In the order in which a packet needs it: the groups in ER, IR, EB and IB (Section 4.1.3) are those eligible and
/// ready, ineligible and ready, eligible and blocked, ineligible and blocked. Together with the fields above `groups`,
/// one order among thousands in a tree takes two cache lines, wherever its buckets are.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Qfq<S: Scale = Packets> {
    ir: u64,
    ib: u64,
    /// The selected entity, on top of the first bucket of the lowest group in ER; where that is
    /// among all, and its slot. No entity is ever in group 0, which stands for an empty ER.
    first_slot: u64,
    selected: MaybeEntity,
    first: u16,
    /// The selected entity may be on hold.
    holds: bool,
    er: u64,
    eb: u64,
    members: Members<S>,
    groups: [Slots; 64],
    buckets: [MaybeEntity; BUCKETS],
    /// The last of each bucket in use.
    lasts: [MaybeEntity; BUCKETS],
}

impl<S: Scale> Default for Qfq<S> {
    fn default() -> Self {
        Self::from_time(VirtualTime::new(0))
    }
}

/// Bits from `i` upwards.
#[inline]
const fn from(i: u32) -> u64 {
    u64::MAX << i
}

impl Qfq {
    /// Creates a scheduler whose virtual time starts at 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a scheduler whose virtual time starts at `now`: at any point, also shortly before it wraps.
    #[doc(hidden)]
    pub fn starting_at(now: VirtualTime) -> Self {
        Self::from_time(now)
    }
}

impl Qfq<Costs> {
    /// Returns a scheduler for [costs](crate::CostScheduler).
    pub fn for_costs() -> Self {
        Self::default()
    }
}

impl<S: Scale> Qfq<S> {
    fn from_time(now: VirtualTime) -> Self {
        Qfq {
            members: Members::starting_at(now),
            er: 0,
            ir: 0,
            eb: 0,
            ib: 0,
            selected: MaybeEntity::NONE,
            first: 0,
            first_slot: 0,
            holds: false,
            groups: [Slots::EMPTY; 64],
            buckets: [MaybeEntity::NONE; BUCKETS],
            lasts: [MaybeEntity::NONE; BUCKETS],
        }
    }

    /// V, the system virtual time.
    #[inline]
    #[doc(hidden)]
    pub fn virtual_time(&self) -> VirtualTime {
        self.members.clock.now()
    }

    /// Returns whether no entity is active: if any is eligible, one is ready.
    #[inline]
    fn is_idle(&self) -> bool {
        self.er == 0
    }

    /// ER, or the first bucket of its lowest group, changed.
    #[inline]
    fn aim(&mut self) {
        let i = self.er.trailing_zeros() % 64;
        self.first = self.first_bucket(i) as u16;
        self.first_slot = self.groups[i as usize].first;
        self.look();
    }

    /// The top of the first bucket may have changed.
    #[inline]
    fn look(&mut self) {
        self.selected = self.buckets[self.first as usize % BUCKETS];
    }

    /// Returns the first bucket of group `i` among all.
    #[inline]
    fn first_bucket(&self, i: u32) -> u32 {
        i * SLOTS + self.groups[(i % 64) as usize].first_bucket() as u32
    }

    /// Puts an entity on top of the bucket of a slot, or with [`holds`](Self::holds) at its end.
    /// `beside` is any bucket of the same group.
    // A call would make callers that choose the algorithm at run time save their registers.
    #[inline(always)]
    fn push(
        &mut self,
        entities: &mut [impl Holds<GroupedEntity<S>>],
        id: EntityId,
        beside: u32,
        slot: u64,
    ) {
        let slot = (slot % u64::from(SLOTS)) as u32;
        let bucket = (beside & !(SLOTS - 1) | slot) as usize % BUCKETS;
        let top = self.buckets[bucket];
        if top == MaybeEntity::NONE {
            self.lasts[bucket] = MaybeEntity::of(id);
            self.groups[bucket / SLOTS as usize].occupied |= 1 << slot;
        } else if self.holds {
            let last = core::mem::replace(&mut self.lasts[bucket], MaybeEntity::of(id));
            entities.entity_mut(id).next = MaybeEntity::NONE;
            // Where a bucket has a top it has a last.
            let last = EntityId::in_use(last.index() as u32);
            entities.entity_mut(last).next = MaybeEntity::of(id);
            return;
        }
        entities.entity_mut(id).next = top;
        self.buckets[bucket] = MaybeEntity::of(id);
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
            group.end(i).is_after(self.groups[(x % 64) as usize].end(x))
        };
        match (eligible, blocked) {
            (true, false) => self.er |= bit,
            (false, false) => self.ir |= bit,
            (true, true) => self.eb |= bit,
            (false, true) => self.ib |= bit,
        }
    }

    /// The link took `work` while groups wait to become eligible.
    #[cold]
    #[inline(never)]
    fn served_past_starts(&mut self, work: Charge) {
        let before = self.virtual_time();
        self.members.clock.served(work);
        self.make_eligible(before);
    }

    /// Makes the groups eligible that V reached since `before`: those with a slot boundary in between, which the
    /// highest changed bit identifies (Fig. 7).
    #[inline]
    fn make_eligible(&mut self, before: VirtualTime) {
        let changed = self.virtual_time().units() ^ before.units();
        let reached = u64::MAX >> (changed | 1).leading_zeros();
        if (self.ir | self.ib) & reached == 0 {
            return;
        }
        self.er |= self.ir & reached;
        self.ir &= !reached;
        self.eb |= self.ib & reached;
        self.ib &= !reached;
        self.aim();
    }

    /// Group `i`, which finished at `finish`, moved on: those below that it
    /// blocked become ready (Theorem 8).
    #[inline]
    fn unblock(&mut self, i: u32, finish: VirtualTime) {
        let above = self.er & (from(i) << 1);
        if above != 0 {
            let x = above.trailing_zeros();
            if !self.groups[(x % 64) as usize].end(x).is_after(finish) {
                return;
            }
        }
        // When a group on hold has moved, those that became ready below it block those below them.
        let ready = self.er & !from(i);
        let blocked = u64::MAX.checked_shr(ready.leading_zeros()).unwrap_or(0);
        let below = !from(i) & !blocked;
        self.er |= self.eb & below;
        self.eb &= !below;
        self.ir |= self.ib & below;
        self.ib &= !below;
    }

    /// Moves V to the first start (Eq. 3) if no entity is eligible, since the link must not idle with a backlog.
    #[inline]
    fn keep_work_conserving(&mut self) {
        let ineligible = self.ir | self.ib;
        if self.er == 0 && ineligible != 0 {
            let before = self.virtual_time();
            let i = ineligible.trailing_zeros();
            self.members
                .clock
                .jump_to(self.groups[(i % 64) as usize].start(i));
            self.make_eligible(before);
        }
    }

    /// Returns the latest exact start of an entity of group `i`: the last moment of the slot that begins at V rounded
    /// up.
    ///
    /// Theorem 3 limits the *rounded* start to V rounded up. The exact start may lie anywhere in that slot, and an
    /// entity that was served in this group never lies after it. An earlier limit for an idle entity would ignore
    /// service that it has had, and V could then outrun the places of others (Lemma 2, Theorem 4).
    #[inline]
    fn latest_start(&self, i: u32) -> VirtualTime {
        let rest = (1 << i) - 1;
        let rounded_up = self.virtual_time().advanced(rest).rounded_down(i);
        rounded_up.advanced(rest)
    }

    /// F_b of Eq. 29: of the lowest group in ER above `i`.
    #[inline]
    fn blocker(&self, i: u32) -> Option<VirtualTime> {
        let above = self.er & (from(i) << 1);
        let x = above.trailing_zeros();
        (above != 0).then(|| self.groups[(x % 64) as usize].end(x))
    }

    /// Returns the start time of an entity that becomes backlogged in group `i` (Eq. 2 and 29). Service received ahead
    /// of V is still worked off, as far as the order allows: by a slot in the group in which it was received, and to
    /// F_b in another.
    #[inline]
    fn start_time(&self, entity: &GroupedEntity<S>, i: u32) -> VirtualTime {
        let now = self.virtual_time();
        let blocker = self.blocker(i);
        let start = blocker.map_or(now, |finish| now.earlier(finish));
        if !self.members.clock.remembers(entity.mark) {
            return start;
        }
        let mut latest = self.latest_start(i);
        if let Some(finish) = blocker
            && u32::from(entity.group.unsigned_abs()) != i
        {
            latest = latest.earlier(finish);
        }
        start.later(entity.start.earlier(latest))
    }

    /// Gives an inactive entity a place (Fig. 4, from line 7).
    #[inline(never)]
    fn insert(&mut self, entities: &mut [impl Holds<GroupedEntity<S>>], id: EntityId) {
        let idle = self.is_idle();
        if idle {
            self.members.start_busy_period();
        }
        self.place(entities, id, idle);
        self.aim();
    }

    /// Puts an entity into its group; where that is the only one, the scheduler was `idle`.
    fn place(&mut self, entities: &mut [impl Holds<GroupedEntity<S>>], id: EntityId, idle: bool) {
        let entity = entities.entity_mut(id);
        let group = self.members.group_of(entity);
        let i = group as u32;
        entity.start = self.start_time(entity, i);
        entity.group = group;
        entity.mark = self.members.floor as u8;
        let rounded = entity.start.rounded_down(i);
        if idle {
            // With no other entity to serve, V jumps to the first start (Eq. 3).
            self.members.clock.jump_to(rounded);
        }
        let group = &mut self.groups[(i % 64) as usize];
        if group.occupied != 0 {
            let first = group.start(i);
            if !first.is_after(rounded) {
                // Beyond the last slot an entity is treated as if it had arrived earlier, when V was there: a bucket
                // behind the first changes the order of no other entity.
                let last = group.last(i);
                if rounded.is_after(last) {
                    entity.start = last;
                }
                let slot = entity.start.units() >> i;
                return self.push(entities, id, i * SLOTS, slot);
            }
            // The group's start moves back, so it lies after V: it is ineligible.
            debug_assert_eq!((self.er | self.eb) >> i & 1, 0);
            self.ir &= !(1 << i);
            self.ib &= !(1 << i);
        }
        let slot = rounded.units() >> i;
        group.first = slot;
        self.push(entities, id, i * SLOTS, slot);
        self.sets_with(i);
    }

    /// The first bucket of group `i` is empty: the group starts at its next one, or
    /// leaves (Fig. 5, from line 21).
    #[inline(never)]
    fn move_on(&mut self, i: u32) {
        let group = &mut self.groups[(i % 64) as usize];
        let finish = group.end(i);
        let backlogged = group.skip_first(i);
        let start = group.start(i);
        let bit = 1 << i;
        if backlogged && (self.er | self.ir | self.eb | self.ib) == bit {
            // Alone, it can neither block nor be blocked.
            self.members.clock.jump_to(start);
            self.aim();
            return;
        }
        self.regroup(i, finish, backlogged);
        self.keep_work_conserving();
        self.aim();
    }

    /// Group `i`, which finished at `finish`, has other first entities or none.
    fn regroup(&mut self, i: u32, finish: VirtualTime, backlogged: bool) {
        self.er &= !(1 << i);
        if backlogged {
            self.sets_with(i);
        }
        self.unblock(i, finish);
    }

    /// The same as [`reschedule`](Scheduler::reschedule) does, where V made a lower group than that
    /// of the selected entity eligible while it was served.
    #[cold]
    #[inline(never)]
    fn move_overtaken(
        &mut self,
        entities: &mut [impl Holds<GroupedEntity<S>>],
        id: EntityId,
        i: u32,
        slot: u64,
    ) {
        if slot == self.groups[(i % 64) as usize].first {
            return;
        }
        let rest = entities.entity(id).next;
        let first = self.first_bucket(i);
        if rest == MaybeEntity::NONE {
            return self.move_last(entities, id, first, slot);
        }
        self.buckets[first as usize % BUCKETS] = rest;
        self.push(entities, id, first, slot);
    }

    /// Moves the selected entity, the last of `first`, to the bucket of `slot` in the same group. `first` is the first
    /// bucket of that group.
    #[cold]
    #[inline(never)]
    fn move_last(
        &mut self,
        entities: &mut [impl Holds<GroupedEntity<S>>],
        id: EntityId,
        first: u32,
        slot: u64,
    ) {
        let i = first / SLOTS;
        let group = &mut self.groups[(i % 64) as usize];
        let beside = group.occupied & (group.occupied - 1);
        // The group is one of these.
        let active = self.er | self.ir | self.eb | self.ib;
        if beside | active & (active - 1) != 0 {
            return self.move_last_beside(entities, id, first, slot);
        }
        // With no other entity, it can neither block nor be blocked.
        let place = (slot % u64::from(SLOTS)) as u32;
        group.first = slot;
        group.occupied = 1 << place;
        let start = group.start(i);
        let bucket = first & !(SLOTS - 1) | place;
        self.buckets[first as usize % BUCKETS] = MaybeEntity::NONE;
        self.buckets[bucket as usize % BUCKETS] = MaybeEntity::of(id);
        self.lasts[bucket as usize % BUCKETS] = MaybeEntity::of(id);
        (self.first, self.first_slot) = (bucket as u16, slot);
        self.members.clock.jump_to(start);
    }

    /// The same with others active. Apart, so that a flow alone saves no registers.
    #[inline(never)]
    fn move_last_beside(
        &mut self,
        entities: &mut [impl Holds<GroupedEntity<S>>],
        id: EntityId,
        first: u32,
        slot: u64,
    ) {
        self.buckets[first as usize % BUCKETS] = MaybeEntity::NONE;
        self.push(entities, id, first, slot);
        self.move_on(first / SLOTS);
    }

    /// Takes the selected entity out of its group: for good, or `again` for the
    /// group that its share asks for by now.
    #[cold]
    #[inline(never)]
    fn leave(&mut self, entities: &mut [impl Holds<GroupedEntity<S>>], id: EntityId, again: bool) {
        let entity = entities.entity_mut(id);
        let i = u32::from(entity.group.unsigned_abs());
        let rest = core::mem::take(&mut entity.next);
        let bucket = self.first_bucket(i);
        let first = &mut self.buckets[bucket as usize % BUCKETS];
        debug_assert_eq!(first.get(), Some(id), "it is the selected one");
        *first = rest;
        if again {
            return self.move_to_own_group(entities, id, i);
        }
        if rest == MaybeEntity::NONE {
            self.move_on(i);
        } else {
            self.look();
        }
        let idle = self.is_idle();
        let entity = entities.entity_mut(id);
        self.members.adopt_pending(entity, id, idle);
        self.members.leave(entity, idle);
    }

    /// Moves the selected entity, which was taken out of group `i`, to the group of its share. It is backlogged
    /// meanwhile: V jumps to the first start only once its own is among them.
    fn move_to_own_group(
        &mut self,
        entities: &mut [impl Holds<GroupedEntity<S>>],
        id: EntityId,
        i: u32,
    ) {
        let bucket = self.first_bucket(i);
        if self.buckets[bucket as usize % BUCKETS] == MaybeEntity::NONE {
            let group = &mut self.groups[(i % 64) as usize];
            let finish = group.end(i);
            let backlogged = group.skip_first(i);
            self.regroup(i, finish, backlogged);
        }
        let entity = entities.entity_mut(id);
        self.members.adopt_pending(entity, id, false);
        entity.mark = self.members.clock.quarter();
        self.place(entities, id, false);
        self.keep_work_conserving();
        self.aim();
    }

    #[cold]
    #[inline(never)]
    fn may_stay(&mut self, entities: &mut [impl Holds<GroupedEntity<S>>], id: EntityId) -> bool {
        let entity = entities.entity_mut(id);
        let i = u32::from(entity.group.unsigned_abs());
        let end = self.groups[(i % 64) as usize].end(i);
        let latest = self.blocker(i).unwrap_or(end);
        let lowest = self.members.floor;
        self.members.may_stay(entity, id, end, latest, lowest)
    }
}

impl<S: Scale> Scheduler for Qfq<S> {
    type Entity = GroupedEntity<S>;
    const NAME: &'static str = "qfq";
    const LARGEST: u32 = S::LARGEST;

    statements_of_members!();

    #[inline]
    fn backlogged(&mut self, entities: &mut [impl Holds<Self::Entity>], id: EntityId, _: Charge) {
        let entity = entities.entity_mut(id);
        if entity.state == Standing::Inactive {
            entity.state = Standing::Active;
            self.insert(entities, id);
        }
    }

    #[inline]
    fn select(&self, _: &[impl Holds<Self::Entity>]) -> MaybeEntity {
        self.selected
    }

    #[inline]
    fn expect_holds(&mut self) {
        self.holds = true;
    }

    /// Does nothing: the entity is on top of the first bucket of its group, and the bucket stays the first, since the
    /// group is eligible. It remains to be ensured that no entity is put on top, which holds from the first hold on at
    /// the latest.
    #[inline]
    fn hold(&mut self, _: &mut [impl Holds<Self::Entity>], _: EntityId) {
        self.holds = true;
    }

    #[inline(always)]
    fn served(&mut self, work: Charge) {
        if self.ir | self.ib == 0 {
            return self.members.clock.served(work);
        }
        self.served_past_starts(work);
    }

    // As part of `dequeue`, whatever else the program holds: a call costs a third.
    #[inline(always)]
    fn reschedule(
        &mut self,
        entities: &mut [impl Holds<Self::Entity>],
        id: EntityId,
        charged: Charge,
        next: Option<Charge>,
    ) {
        let entity = entities.entity_mut(id);
        (entity.start, entity.carry) = entity.after(charged);
        if next.is_none() || (self.members.is_misplaced(entity) && !self.may_stay(entities, id)) {
            return self.leave(entities, id, next.is_some());
        }
        let entity = entities.entity_mut(id);
        let i = u32::from(entity.group as u8);
        let slot = entity.start.units().wrapping_shr(i);
        let rest = entity.next;
        if self.selected != MaybeEntity::of(id) {
            return self.move_overtaken(entities, id, i, slot);
        }
        if slot == self.first_slot {
            return;
        }
        let first = u32::from(self.first);
        if rest == MaybeEntity::NONE {
            return self.move_last(entities, id, first, slot);
        }
        self.selected = rest;
        self.buckets[first as usize % BUCKETS] = rest;
        self.push(entities, id, first, slot);
    }

    #[inline(always)]
    fn advance(
        &mut self,
        entities: &mut [impl Holds<Self::Entity>],
        id: EntityId,
        charged: Charge,
        next: Option<Charge>,
    ) -> bool {
        let entity = entities.entity_mut(id);
        if next.is_none()
            || self.ir | self.ib != 0
            || self.members.is_misplaced(entity)
            || self.selected != MaybeEntity::of(id)
        {
            return false;
        }
        let (finish, carry) = entity.after(charged);
        let slot = finish.units().wrapping_shr(u32::from(entity.group as u8));
        let rest = entity.next;
        let stays = slot == self.first_slot;
        if rest == MaybeEntity::NONE && !stays {
            return false;
        }
        (entity.start, entity.carry) = (finish, carry);
        self.members.clock.served(charged);
        if !stays {
            let first = u32::from(self.first);
            self.selected = rest;
            self.buckets[first as usize % BUCKETS] = rest;
            self.push(entities, id, first, slot);
        }
        true
    }

    /// Lasts while S is in its slot, and V reaches no slot at which a group becomes eligible. With costs, 0: each
    /// request is reported.
    #[inline]
    fn allowance(&self, entities: &[impl Holds<Self::Entity>], id: EntityId, _: Charge) -> u32 {
        let entity = entities.entity(id);
        if S::CARRIED > 0 || self.members.is_misplaced(entity) {
            return 0;
        }
        let i = u32::from(entity.group as u8);
        let left = !entity.start.units() & 1u64.wrapping_shl(i).wrapping_sub(1);
        let in_slot = left.checked_div(entity.inverse_weight).unwrap_or(0);
        let ineligible = self.ir | self.ib;
        let in_place = match ineligible {
            0 => in_slot,
            _ => in_slot.min(self.members.clock.work_within(ineligible.trailing_zeros())),
        };
        in_place.min(MAX_ALLOWANCE.into()) as u32
    }

    #[inline]
    fn used(&mut self, entities: &mut [impl Holds<Self::Entity>], id: EntityId, work: Charge) {
        self.members.clock.served(work);
        let entity = entities.entity_mut(id);
        (entity.start, entity.carry) = entity.after(work);
    }

    fn idle(&mut self, entities: &mut [impl Holds<Self::Entity>], id: EntityId) {
        if entities.entity(id).state != Standing::Inactive {
            self.leave(entities, id, false);
        }
    }

    fn invariants(&self, entities: &[impl Holds<Self::Entity>]) -> Result<(), Violation> {
        self.check_sets()?;
        self.check_buckets(entities)
    }
}
