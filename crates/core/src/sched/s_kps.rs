//! S-KPS: a scheduler with stratified, interleaved timer wheels.
//!
//! M. Karsten, *Approximation of generalized processor sharing with stratified interleaved
//! timer wheels*, IEEE/ACM Transactions on Networking 18(3), 2010, in the simplified form
//! with which F. Checconi, P. Valente and L. Rizzo compare QFQ (technical report, 2010; the
//! equations and theorems below are numbered as there).
//!
//! As in [QFQ](super::Qfq), an entity of weight phi and longest packet L belongs to the
//! [group](super::groups) i = ceil(log2(L / phi)), whose slots are sigma_i = 2^i units of
//! virtual time long. Each group has a timer wheel, and the wheels are *interleaved*: the
//! slots of group i begin at the odd multiples of 2^(i-1), so that a point of virtual time,
//! a *tick*, begins a slot of one group at most, which its trailing zeros name.
//!
//! An entity with the start time S is filed in the slot that S lies in. It is eligible from
//! the beginning S^ of that slot on, and finishes at F^ = S^ + 2 sigma_i. The slots lie in
//! two containers, that of the ineligible entities by S^ and that of the eligible ones by
//! F^. As V passes the S^ of a slot, all entities in it go over to the second container in
//! one step. The next to be served is, of all that are eligible, exactly the one with the
//! smallest F^: one slot's, since no two slots have the same tick.
//!
//! # The containers
//!
//! Of each group, at any time T, the first container has one slot at most, the next to begin: an entity that is served
//! in a slot that has begun continues in the same slot or in the next. In the second, the slot that T lies in finishes
//! at the second tick of its group after T (`far`), the one before at the next tick (`near`), and the older ones are
//! *due*, F^ <= T. So a group needs one bit in each of three words, and of the groups in one word, the earliest is
//! found by two find-first-sets ([`Wheels::soonest`]). The earliest due slot is found by one: no two slots share a
//! tick, no tick is finer than 2^(f-1), where f is the finest group in use, and V is at most L / (sum of weights) <=
//! 2^(f+5) after F^ (Theorem 4), so that 64 bits, one a tick, hold all due slots, of all groups, in the order of F^.
//!
//! # Cost
//!
//! Enqueue and dequeue are O(1), whatever the number of entities and of groups. While V advances by a packet, each
//! occupied slot that ends moves to the next word; since each slot stands for a service, this is O(1) amortised.
//!
//! # Guarantees
//!
//! S and F lie within S^ and F^, so that the demand of the entities between any two points of virtual time is no more
//! than the link's work meanwhile. Serving the smallest eligible F^ first then ends each packet before V is L / (sum of
//! weights) after its F^ (as Theorem 4), and from S^ <= S < S^ + sigma_i and F^ = S^ + 2 sigma_i, QFQ's own B-WFI and
//! T-WFI follow by its own steps.
//!
//! # Differences from the paper, and reasons
//!
//! * S is rounded down to S^, and an entity becomes eligible when its slot begins; the paper releases a slot as it
//!   ends. The report puts S-KPS at three slots more than QFQ for this; none of them is needed. `SKps<true>` releases a
//!   slot as it ends, for comparison with the report's measurements: an entity is filed in the slot after that of its
//!   S, and all else is the same, so that S < S^ <= S + sigma_i. It has the same bound, and serves an entity that was
//!   idle up to a slot later.
//! * The two containers share the lists of entities. Moving a slot moves its bit, and its
//!   list stays where it is, so that no list is ever appended to another.
//! * Slots are moved when it matters, not with V: before the next S^ in the first container,
//!   nothing in either can change its order. `T` above is when they were last moved.
//! * Lists are stacks: all entities in one slot have the same S^ and F^.
//! * If V were to be further after F^ than 64 ticks allow, after a change of the shares that raised f, T stops before
//!   V; the order stays exact, since an entity that starts after T finishes after all due ones. A newcomer's S is then
//!   bounded by the range of the wheel.

mod invariants;

use super::Standing;
use super::clock::span;
use super::groups::{GroupedEntity, Members, SLOTS, statements_of_members};
use crate::scheduler::{
    Entities, EntityId, Holds, MaybeEntity, Removal, Scheduler, Share, Violation,
};
use crate::units::{Charge, VirtualTime, Weight};

/// Number of the slot of group `i` that `time` lies in: slot n begins at
/// n sigma_i + sigma_i / 2. Modulo 2^(64 - i).
#[inline]
const fn slot_at(time: VirtualTime, i: u32) -> u64 {
    time.units().wrapping_sub((1 << i) >> 1) >> i
}

/// S^ of slot `slot` of group `i`.
#[inline]
const fn beginning(slot: u64, i: u32) -> VirtualTime {
    VirtualTime::new((slot << i).wrapping_add((1 << i) >> 1))
}

/// F^ of slot `slot` of group `i`.
#[inline]
const fn finish(slot: u64, i: u32) -> VirtualTime {
    beginning(slot.wrapping_add(2), i)
}

/// Index of a slot's list. No entity is ever in group 0.
#[inline]
const fn list(slot: u64, i: u32) -> usize {
    (i as usize * SLOTS as usize) | (slot % SLOTS as u64) as usize
}

/// Index of a list that is always empty.
const NOBODY: usize = 0;
const LISTS: usize = 64 * SLOTS as usize;

/// Longer than any slot, and shorter than half the circle of virtual time.
const NEVER: u64 = 1 << 62;

/// Which slots are occupied, of all groups: the two containers.
#[derive(Clone, Debug)]
struct Wheels {
    /// T: the time up to which the wheels have turned. Not after V.
    turned: VirtualTime,
    /// Groups whose next slot to begin is occupied: the ineligible entities.
    starting: u64,
    /// Groups whose slot at T is occupied: F^ is their second tick after T.
    far: u64,
    /// Groups whose slot before that is occupied: F^ is their next tick after T.
    near: u64,
    /// Slots with F^ <= T: bit b is the last tick before or at T that is b ticks after a
    /// multiple of 64.
    due: u64,
    /// A tick of `due` is 2^tick units.
    tick: u32,
}

impl Wheels {
    fn starting_at(now: VirtualTime) -> Self {
        Wheels {
            turned: now,
            starting: 0,
            far: 0,
            near: 0,
            due: 0,
            tick: 0,
        }
    }

    #[inline]
    fn are_empty(&self) -> bool {
        self.starting | self.far | self.near | self.due == 0
    }

    /// The word that has slot `slot` of group `i`, of which only the last six bits matter,
    /// and the slot's bit in it.
    #[inline]
    fn bit(&mut self, slot: u64, i: u32) -> (&mut u64, u64) {
        // Slots since the one that is to begin.
        let age = slot_at(self.turned, i).wrapping_sub(slot).wrapping_add(1) % u64::from(SLOTS);
        match age {
            0 => (&mut self.starting, 1 << i),
            1 => (&mut self.far, 1 << i),
            2 => (&mut self.near, 1 << i),
            _ => {
                let bit = self.due_bit(finish(slot, i));
                (&mut self.due, bit)
            }
        }
    }

    #[inline]
    fn due_bit(&self, tick: VirtualTime) -> u64 {
        1 << ((tick.units() >> self.tick) % 64)
    }

    #[inline]
    fn occupy(&mut self, slot: u64, i: u32) {
        let (word, bit) = self.bit(slot, i);
        *word |= bit;
    }

    #[inline]
    fn vacate(&mut self, slot: u64, i: u32) {
        let (word, bit) = self.bit(slot, i);
        *word &= !bit;
    }

    /// Returns how long from T to the first tick of group `i` after T.
    #[inline]
    fn to_next_tick(&self, i: u32) -> u64 {
        let sigma = 1u64 << i;
        sigma - (self.turned.units().wrapping_sub(sigma >> 1) & (sigma - 1))
    }

    /// Returns the one of `groups` with the earliest tick `later` slots after its next one, and the time from T to that
    /// tick; `u64::MAX` if there is none.
    ///
    /// Let b be bit i-1 of T. Where b = 0, group i's next tick is that bit's turning to 1,
    /// floor(T / sigma_i) sigma_i + sigma_i / 2, and where b = 1 it is sigma_i after that.
    /// Among the groups of either kind, finer ones come first, and a finer one of the first
    /// kind comes before one of the second; `later` more slots change none of it.
    #[inline]
    fn soonest(&self, groups: u64, later: u64) -> (u64, u32) {
        let second_half = self.turned.units() << 1;
        let (first, second) = (groups & !second_half, groups & second_half);
        let (x, y) = (first.trailing_zeros(), second.trailing_zeros());
        let time = |i: u32| self.to_next_tick(i) + (later << i);
        // 64 where there is none.
        if x < y {
            return (time(x), x);
        }
        if second == 0 {
            return (u64::MAX, 0);
        }
        let time_y = time(y);
        if first != 0 && time(x) < time_y {
            return (time(x), x);
        }
        (time_y, y)
    }

    /// Returns the number of ticks by which T can advance so that the earliest due slot keeps its bit; 64 if nothing is
    /// due.
    #[inline]
    fn room(&self) -> u32 {
        let at = (self.turned.units() >> self.tick) as u32 % 64;
        self.due.rotate_left(63 - at).trailing_zeros()
    }

    /// Returns the earliest F^ of the due slots.
    #[inline]
    fn first_due(&self) -> VirtualTime {
        let at = self.turned.units() >> self.tick;
        let tick = at.wrapping_sub(63).wrapping_add(self.room().into());
        VirtualTime::new(tick << self.tick)
    }

    /// Slot and group of the smallest F^ of all eligible entities, if there are any.
    #[inline]
    fn first(&self) -> Option<(u64, u32)> {
        if self.due != 0 {
            let tick = self.first_due();
            let i = tick.units().trailing_zeros() + 1;
            return Some((slot_at(tick, i).wrapping_sub(2), i));
        }
        if self.near | self.far == 0 {
            return None;
        }
        let (near, i) = self.soonest(self.near, 0);
        let (far, j) = self.soonest(self.far, 1);
        Some(match near < far {
            true => (slot_at(self.turned, i).wrapping_sub(1), i),
            false => (slot_at(self.turned, j), j),
        })
    }

    /// Ticks of `due` from `from` to `to`, which is not before.
    #[inline]
    fn ticks(&self, from: VirtualTime, to: VirtualTime) -> u64 {
        let [from, to] = [from, to].map(|time| time.units() >> self.tick);
        (to.wrapping_sub(from) << self.tick) >> self.tick
    }

    /// Returns the first start of the ineligible entities; if there are none, later than V goes before it is asked
    /// again.
    #[inline]
    fn next_start(&self) -> VirtualTime {
        let wait = match self.starting {
            0 => NEVER,
            _ => self.soonest(self.starting, 0).0,
        };
        self.turned.advanced(wait)
    }

    /// Turns the wheels to `now`, or as far as 64 ticks hold all due slots.
    #[inline]
    fn turn(&mut self, now: VirtualTime) {
        let mut to = now;
        if self.ticks(self.turned, now) > self.room().min(63).into() {
            to = self.limit(now);
        }
        let mut groups = ticking(self.turned, to) & (self.starting | self.far | self.near);
        while groups != 0 {
            let i = groups.trailing_zeros();
            let bit = 1 << i;
            groups ^= bit;
            let at = slot_at(self.turned, i);
            let ended = (slot_at(to, i).wrapping_sub(at) << i) >> i;
            // After three, the slot that was to begin is due.
            for later in 1..=ended.min(3) {
                if self.near & bit != 0 {
                    self.due |= self.due_bit(beginning(at.wrapping_add(later), i));
                }
                self.near = self.near & !bit | self.far & bit;
                self.far = self.far & !bit | self.starting & bit;
                self.starting &= !bit;
            }
        }
        self.turned = to;
    }

    /// Returns how far the wheels can turn towards `now` so that `due` has room for the first F^ of all, which is due
    /// by then or not.
    #[inline(never)]
    fn limit(&self, now: VirtualTime) -> VirtualTime {
        let first = if self.due != 0 {
            self.first_due()
        } else {
            let (near, _) = self.soonest(self.near, 0);
            let (far, _) = self.soonest(self.far, 1);
            let (starting, _) = self.soonest(self.starting, 2);
            self.turned.advanced(near.min(far).min(starting).min(NEVER))
        };
        let end = first.rounded_down(self.tick).advanced(63 << self.tick);
        now.earlier(end.later(self.turned))
    }

    /// Lets `due` count in ticks of 2^`tick` units, if no occupied slot needs finer ones and
    /// all that is due has room. At 64 steps at most, it is for when the finest group in
    /// use has changed.
    #[inline(never)]
    fn count_in(&mut self, tick: u32) {
        let finer = !(u64::MAX << (tick + 1));
        if (self.starting | self.far | self.near) & finer != 0 {
            return;
        }
        let mut rest = self.clone();
        let mut counted = Wheels {
            tick,
            due: 0,
            ..self.clone()
        };
        while rest.due != 0 {
            let first = rest.first_due();
            if first.rounded_down(tick) != first || counted.ticks(first, self.turned) > 63 {
                return;
            }
            rest.due &= !rest.due_bit(first);
            counted.due |= counted.due_bit(first);
        }
        *self = counted;
    }
}

/// Groups with a tick after `from`, up to `to`.
///
/// Say h is the highest bit in which the two differ; it turns from 0 to 1, which is a tick
/// of group h + 1. Before, each bit below h that is 0 in `from` turned to 1, and so did all
/// below it; after, the same is true of each bit below h that is 1 in `to`.
#[inline]
fn ticking(from: VirtualTime, to: VirtualTime) -> u64 {
    let (from, to) = (from.units(), to.units());
    let changed = from ^ to;
    if changed == 0 {
        return 0;
    }
    let highest = 1 << (63 - changed.leading_zeros());
    let below = (!from | to) & (highest - 1);
    // One bit further left: bit i is group i, whose tick is 2^(i-1).
    let finer = u64::MAX >> (below << 1 | 1).leading_zeros();
    highest << 1 | finer & !1
}

/// Simplified KPS; with `LATE`, as the QFQ report has it: a slot is released as it ends.
#[derive(Clone, Debug)]
pub struct SKps<const LATE: bool = false> {
    members: Members,
    /// No entity becomes eligible before V reaches this time. While an entity is on hold, a time that V has reached.
    next_start: VirtualTime,
    /// List whose top is selected.
    first: usize,
    /// The selected entity is on hold.
    held: bool,
    wheels: Wheels,
    lists: [MaybeEntity; LISTS],
}

impl<const LATE: bool> Default for SKps<LATE> {
    fn default() -> Self {
        Self::from_time(VirtualTime::new(0))
    }
}

impl SKps {
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

impl SKps<true> {
    /// Returns a scheduler whose slots are released as they end, and whose virtual time starts at `now`.
    pub fn late(now: VirtualTime) -> Self {
        Self::from_time(now)
    }
}

impl<const LATE: bool> SKps<LATE> {
    fn from_time(now: VirtualTime) -> Self {
        SKps {
            members: Members::starting_at(now),
            next_start: now,
            first: NOBODY,
            held: false,
            wheels: Wheels::starting_at(now),
            lists: [MaybeEntity::NONE; LISTS],
        }
    }

    /// V, the system virtual time.
    #[inline]
    #[doc(hidden)]
    pub fn virtual_time(&self) -> VirtualTime {
        self.members.clock.now()
    }

    /// Returns the slot of an entity that starts at `start`.
    #[inline]
    const fn slot_of(start: VirtualTime, i: u32) -> u64 {
        slot_at(start, i).wrapping_add(LATE as u64)
    }

    /// Returns whether no entity is active.
    #[inline]
    fn is_idle(&self) -> bool {
        self.wheels.are_empty()
    }

    /// Selects the next entity, with the wheels turned to V.
    #[inline(never)]
    fn settle(&mut self) {
        self.held = false;
        let wheels = &mut self.wheels;
        if wheels.far | wheels.near | wheels.due == 0 && wheels.starting != 0 {
            let (wait, i) = wheels.soonest(wheels.starting, 0);
            let start = wheels.turned.advanced(wait);
            if !self.members.clock.now().is_after(start) {
                // The link must not idle with a backlog: V jumps to the first start (Eq. 3), before that of any other
                // group.
                self.members.clock.jump_to(start);
                wheels.turned = start;
                wheels.starting ^= 1 << i;
                wheels.far = 1 << i;
                self.first = list(slot_at(start, i), i);
                self.next_start = wheels.next_start();
                return;
            }
        }
        let finest = self.members.floor as u32 - 1;
        if wheels.tick != finest {
            wheels.count_in(finest);
        }
        wheels.turn(self.members.clock.now());
        self.first = wheels.first().map_or(NOBODY, |(slot, i)| list(slot, i));
        self.next_start = wheels.next_start();
    }

    /// The selected entity, with `rest` below it, went to slot `slot` of group `i`, and one
    /// of the two lists was or became empty.
    #[inline(never)]
    fn move_on(&mut self, rest: MaybeEntity, slot: u64, i: u32) {
        self.wheels.occupy(slot, i);
        if rest == MaybeEntity::NONE {
            self.vacate_first();
        }
        self.settle();
    }

    #[inline]
    fn vacate_first(&mut self) {
        let (i, slot) = (
            self.first as u32 / SLOTS,
            self.first as u64 % u64::from(SLOTS),
        );
        self.wheels.vacate(slot, i);
    }

    /// Returns the lowest group to put an entity into: none is finer than the ticks of the due slots.
    #[inline]
    fn lowest(&self) -> i8 {
        self.members.floor.max(self.wheels.tick as i8 + 1)
    }

    /// Returns the last S within the range of the wheel of group `i`: an entity with it is put into the slot that
    /// begins next.
    #[inline]
    fn latest_start(&self, i: u32) -> VirtualTime {
        Self::last_of(slot_at(self.wheels.turned, i).wrapping_add(1), i)
    }

    /// Returns the last S that is filed in slot `slot` of group `i`.
    #[inline]
    const fn last_of(slot: u64, i: u32) -> VirtualTime {
        let after = slot.wrapping_add(1).wrapping_sub(LATE as u64);
        beginning(after, i).advanced(u64::MAX)
    }

    /// Gives an inactive entity a place.
    #[inline(never)]
    fn insert(&mut self, entities: &mut [impl Holds<GroupedEntity>], id: EntityId) {
        if self.is_idle() {
            self.members.start_busy_period();
            self.wheels.tick = self.members.floor as u32 - 1;
            self.wheels.turned = self.virtual_time();
        } else {
            self.wheels.turn(self.virtual_time());
        }
        let now = self.virtual_time();
        let lowest = self.lowest();
        let entity = entities.entity_mut(id);
        entity.group = entity.own_group.max(lowest);
        let start = match self.members.clock.remembers(entity.mark) {
            true => entity.start.later(now),
            false => now,
        };
        entity.mark = lowest as u8;
        entity.start = start.earlier(self.latest_start(entity.group as u32));
        self.file(entities, id);
    }

    /// Files an entity by its S.
    fn file(&mut self, entities: &mut [impl Holds<GroupedEntity>], id: EntityId) {
        let entity = entities.entity_mut(id);
        let i = entity.group as u32;
        let slot = Self::slot_of(entity.start, i);
        let list = list(slot, i);
        let top = &mut self.lists[list % LISTS];
        if let Some(held) = top.get()
            && self.held
            && list == self.first
        {
            let below = &mut entities.entity_mut(held).next;
            let rest = core::mem::replace(below, MaybeEntity::of(id));
            entities.entity_mut(id).next = rest;
            return;
        }
        entity.next = *top;
        *top = MaybeEntity::of(id);
        self.wheels.occupy(slot, i);
        if !self.held {
            self.settle();
        }
    }

    /// Takes the selected entity out of its list: for good, or `again` for the group that
    /// its share asks for by now.
    #[inline(never)]
    fn leave(&mut self, entities: &mut [impl Holds<GroupedEntity>], id: EntityId, again: bool) {
        self.held = false;
        let entity = entities.entity_mut(id);
        let top = &mut self.lists[self.first % LISTS];
        debug_assert_eq!(top.get(), Some(id), "it is the selected one");
        let rest = core::mem::take(&mut entity.next);
        *top = rest;
        if rest == MaybeEntity::NONE {
            self.vacate_first();
        }
        let idle = self.is_idle();
        self.members.adopt_pending(entity, id, idle);
        if again {
            // Service received ahead of V is still worked off, as far as the range of its new wheel.
            entity.mark = self.members.clock.quarter();
            self.insert(entities, id);
        } else {
            self.members.leave(entity, idle);
            self.settle();
        }
    }

    /// See [`Members::may_stay`].
    #[inline(never)]
    fn may_stay(&mut self, entities: &mut [impl Holds<GroupedEntity>], id: EntityId) -> bool {
        let entity = entities.entity_mut(id);
        let i = u32::from(entity.group.unsigned_abs());
        let now = slot_at(self.wheels.turned, i);
        let age = now.wrapping_sub(self.first as u64) % u64::from(SLOTS);
        // It stays in its slot or goes to the next.
        let end = Self::last_of(now.wrapping_sub(age).wrapping_add(1), i).advanced(1);
        let lowest = self.lowest();
        self.members.may_stay(entity, id, end, end, lowest)
    }
}

impl<const LATE: bool> Scheduler for SKps<LATE> {
    type Entity = GroupedEntity;
    const NAME: &'static str = match LATE {
        false => "s-kps",
        true => "s-kps-late",
    };

    statements_of_members!();

    #[inline]
    fn backlogged(&mut self, entities: &mut [impl Holds<GroupedEntity>], id: EntityId, _: Charge) {
        let entity = entities.entity_mut(id);
        if entity.state == Standing::Inactive {
            entity.state = Standing::Active;
            self.insert(entities, id);
        }
    }

    #[inline]
    fn select(&self, _: &[impl Holds<GroupedEntity>]) -> MaybeEntity {
        self.lists[self.first % LISTS]
    }

    /// Keeps the selection: until the entity leaves its list, no entity is put on top of it, and no other is selected.
    #[inline]
    fn hold(&mut self, _: &mut [impl Holds<GroupedEntity>], _: EntityId) {
        self.held = true;
        self.next_start = self.virtual_time();
    }

    /// Advances V. The entities that this makes eligible matter once the selected entity has left its list.
    #[inline]
    fn served(&mut self, work: Charge) {
        self.members.clock.served(work);
    }

    #[inline]
    fn reschedule(
        &mut self,
        entities: &mut [impl Holds<GroupedEntity>],
        id: EntityId,
        charged: Charge,
        next: Option<Charge>,
    ) {
        let entity = entities.entity_mut(id);
        entity.start = entity.start.advanced(span(charged, entity.inverse_weight));
        if next.is_none() || (self.members.is_misplaced(entity) && !self.may_stay(entities, id)) {
            return self.leave(entities, id, next.is_some());
        }
        let entity = entities.entity_mut(id);
        let i = u32::from(entity.group as u8);
        let slot = Self::slot_of(entity.start, i);
        let to = list(slot, i);
        if to != self.first {
            let rest = entity.next;
            self.lists[self.first % LISTS] = rest;
            let below = core::mem::replace(&mut self.lists[to % LISTS], MaybeEntity::of(id));
            entity.next = below;
            if below == MaybeEntity::NONE || rest == MaybeEntity::NONE {
                return self.move_on(rest, slot, i);
            }
        }
        if !self.next_start.is_after(self.virtual_time()) {
            self.settle();
        }
    }

    fn idle(&mut self, entities: &mut [impl Holds<GroupedEntity>], id: EntityId) {
        if entities.entity(id).state != Standing::Inactive {
            self.leave(entities, id, false);
        }
    }

    fn invariants(&self, entities: &[impl Holds<GroupedEntity>]) -> Result<(), Violation> {
        self.check(entities)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::splitmix64;
    use alloc::vec::Vec;

    /// Numbers at random, the same in every run.
    struct Random(u64);

    impl Random {
        fn number(&mut self) -> u64 {
            splitmix64(&mut self.0) >> 32
        }

        fn below(&mut self, count: u64) -> u64 {
            self.number() % count
        }
    }

    const STARTS: [u64; 5] = [0, 1, 12_345, u64::MAX - 100, (1 << 63) - 77];

    #[test]
    fn a_tick_belongs_to_the_group_that_its_trailing_zeros_name() {
        for units in (1..5000).chain(u64::MAX - 5000..=u64::MAX) {
            let tick = VirtualTime::new(units);
            let i = units.trailing_zeros() + 1;
            assert_eq!(beginning(slot_at(tick, i), i), tick);
            for j in (1..=57).filter(|&j| j != i) {
                let start = beginning(slot_at(tick, j), j);
                assert!(
                    tick.is_after(start),
                    "{tick:?} is inside a slot of group {j}"
                );
                assert!(tick.distance_from(start) < 1 << j);
                assert!(finish(slot_at(tick, j), j).distance_from(start) == 2 << j);
            }
        }
    }

    #[test]
    fn the_groups_that_tick_between_two_points_are_those_that_count() {
        for from in STARTS
            .into_iter()
            .flat_map(|start| start..start.saturating_add(70))
        {
            let mut expected = 0;
            for by in 0..200 {
                let to = from.wrapping_add(by);
                if by > 0 && to != 0 {
                    expected |= 2u64.wrapping_shl(to.trailing_zeros());
                }
                let [start, end] = [from, to].map(VirtualTime::new);
                assert_eq!(ticking(start, end), expected, "{start:?} to {end:?}");
            }
        }
    }

    #[test]
    fn the_soonest_of_some_groups_is_found_by_two_words() {
        let mut random = Random(1);
        for round in 0..20_000 {
            let mut wheels = Wheels::starting_at(VirtualTime::new(
                STARTS[round % STARTS.len()].wrapping_add(random.below(1 << 20)),
            ));
            wheels.turned = wheels.turned.rounded_down(random.below(20) as u32);
            let groups = random.number() & random.number() & 0xf_fffe;
            for later in 0..3 {
                let naive = (1..57)
                    .filter(|i| groups >> i & 1 == 1)
                    .map(|i| {
                        let slot = slot_at(wheels.turned, i) + 1 + later;
                        let tick = beginning(slot, i);
                        (tick.distance_from(wheels.turned) as u64, i)
                    })
                    .min();
                assert_eq!(
                    wheels.soonest(groups, later),
                    naive.unwrap_or((u64::MAX, 0))
                );
            }
        }
    }

    /// Slots (number, group) come as services and arrivals would have them come, V goes
    /// far and not so far, and ticks become coarser.
    #[test]
    fn the_first_slot_and_the_next_start_are_those_of_all_that_are_occupied() {
        let mut waits = 0;
        for (seed, start) in (0..200).zip(STARTS.into_iter().cycle()) {
            let mut random = Random(seed);
            let mut now = VirtualTime::new(start);
            let mut wheels = Wheels::starting_at(now);
            let mut finest = 1;
            let mut occupied: Vec<(u64, u32)> = Vec::new();
            for _ in 0..500 {
                let i = finest + random.below(12) as u32;
                let at = slot_at(wheels.turned, i);
                let slot = (at.wrapping_add(random.below(2)) << i) >> i;
                if random.below(3) > 0 && !occupied.contains(&(slot, i)) {
                    occupied.push((slot, i));
                    wheels.occupy(slot, i);
                }
                match random.below(100) {
                    0 if finest < 10 => finest += 1,
                    1..5 => now = now.advanced(random.below(1 << (finest + 7))),
                    _ => now = now.advanced(random.below(1 << (finest + 2))),
                }
                if wheels.tick + 1 < finest {
                    wheels.count_in(finest - 1);
                }
                wheels.turn(now);
                let eligible = |slot: &&(u64, u32)| !beginning(slot.0, slot.1).is_after(now);
                let first = occupied.iter().filter(eligible).copied();
                let first = first.min_by_key(|slot| finish(slot.0, slot.1).distance_from(now));
                let selected = wheels.first();
                assert_eq!(
                    selected.map(|(slot, i)| ((slot << i) >> i, i)),
                    first,
                    "at {now:?}: {wheels:?}"
                );
                if wheels.turned == now {
                    let starts = occupied.iter().filter(|slot| !eligible(slot));
                    let starts = starts.map(|slot| beginning(slot.0, slot.1).distance_from(now));
                    let next = wheels.next_start().distance_from(now);
                    assert_eq!(next, starts.min().unwrap_or(NEVER as i64));
                } else {
                    waits += 1;
                    let late = now.distance_from(finish(first.unwrap().0, first.unwrap().1));
                    assert!(late >= 63 << wheels.tick, "there was room for it");
                }
                if let Some((slot, i)) = first
                    && random.below(2) == 0
                {
                    wheels.vacate(slot, i);
                    occupied.retain(|&other| other != (slot, i));
                    // It may continue in the next slot.
                    let next = ((slot + 1) << i >> i, i);
                    if i >= finest && random.below(2) == 0 && !occupied.contains(&next) {
                        occupied.push(next);
                        wheels.occupy(next.0, i);
                    }
                }
            }
            assert_eq!(wheels.are_empty(), occupied.is_empty());
        }
        assert!(waits > 100, "V went beyond 64 ticks {waits} times");
    }

    #[test]
    fn ticks_become_coarser_once_no_finer_one_is_in_use() {
        let mut wheels = Wheels::starting_at(VirtualTime::new(1 << 20));
        for i in [2, 6, 9] {
            wheels.occupy(slot_at(wheels.turned, i), i);
        }
        for (passed, tick) in [(0, 0), (5, 0), (1000, 0)] {
            wheels.turn(wheels.turned.advanced(passed));
            wheels.count_in(5);
            assert_eq!(wheels.tick, tick, "group 2 is in use");
        }
        let (slot, i) = wheels.first().unwrap();
        assert_eq!(i, 2);
        wheels.vacate(slot, i);
        wheels.count_in(5);
        assert_eq!(wheels.tick, 5);
        assert_eq!(wheels.first().unwrap().1, 6);
    }
}
