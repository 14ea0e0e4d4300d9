//! GFQ: group fair queueing.
//!
//! [1] D. Stephens, J. Bennett, H. Zhang, *Implementing scheduling algorithms in
//! high-speed networks*, IEEE JSAC 17(6), 1999; only outlined there. [2] F. Checconi,
//! P. Valente, L. Rizzo, *QFQ*, technical report, 2010, which sketches GFQ and bounds it;
//! equations and theorems below are numbered as in [2].
//!
//! WF2Q+ with rounded timestamps, as in [`Qfq`](super::Qfq): entities lie in
//! [groups](super::groups) by L / phi, and S counts rounded down to a slot, a multiple of
//! sigma_i = 2^i (Eq. 5). But F is rounded *up*, to the next multiple of sigma_i from
//! where the head really ends:
//!
//! ```text
//!   S^ = floor(S / sigma_i) sigma_i          S^ <= S < S^ + sigma_i
//!   F^ = ceil(F / sigma_i) sigma_i           F  <= F^ < F + sigma_i
//! ```
//!
//! l / phi is at most a slot, so F^ is one slot after S^ or two: each bucket is a pair of
//! stacks, the *early* and the *late* entities. The first one of a group's first bucket
//! then starts and finishes no later than anyone in the group, and the entity to serve is
//! that of the group with the least F^, among the groups with S_i <= V.
//!
//! That group is found by going through them, so a packet costs O(groups that are
//! eligible): at most 56, and at most one for each power of two between the smallest and
//! the largest L / phi. In exchange F^ is within sigma_i of F, where in QFQ, which wants
//! all finish times of a bucket equal to keep its groups sorted, it is two slots after S^
//! even for the shortest packet:
//!
//! ```text
//!   T-WFI R = 2 sigma_i + L_k / phi + L - L_k      (QFQ: 3 sigma_i + ..)
//! ```
//!
//! # Differences from the papers, and reasons
//!
//! * No sets of ready and blocked groups and no back-shifting (Eq. 29), which only keeps
//!   those sets sorted: every choice looks at all eligible groups.
//! * The choice is made once, when something changes, and kept: `select` returns it.
//! * Theorem 4, V <= F^ + L, rests on F <= F^: of an entity, no more than phi (t2 - t1) lies
//!   between rounded times t1 and t2. A head that is exchanged for a longer one while its
//!   entity waits (a flush, then other packets) keeps its place and may so end after its
//!   F^. Each such packet may delay the others by its length beyond the bounds.
//!   One that is exchanged for a shorter one is served as late as the longer one would be.
//! * For an aggregate that is charged for less than its announced head, F^ is later than
//!   it need be, as in QFQ.
//! * The last F of an entity counts up to the end of the slot after V's, in the group that it
//!   joins, and not at all once V went half round the circle of virtual time since. As in QFQ,
//!   groups finer than a 32nd of L / (sum of weights) are not used.

use super::Standing;
use super::clock::span;
use super::groups::{GroupedEntity, Members, SLOTS, Slots, check_bucket, statements_of_members};
use crate::ensure_invariant;
use crate::scheduler::{
    Entities, EntityId, Holds, MaybeEntity, Removal, Scheduler, Share, Violation,
};
use crate::units::{Charge, VirtualTime, Weight};

/// Stacks of a group: early and late of bucket b are 2 b and 2 b + 1.
const STACKS: usize = 2 * SLOTS as usize;

/// Returns the stack of an entity that starts at `start`, and whose head takes `span`, in group `i`.
#[inline]
fn stack_of(start: VirtualTime, span: u64, i: u32) -> u8 {
    // From S^ to F, which is never 0.
    let from_slot = (start.units() & ((1 << i) - 1)) + span;
    let late = (from_slot - 1) >> i != 0;
    ((start.units() >> i) % u64::from(SLOTS)) as u8 * 2 + u8::from(late)
}

/// Buckets of one group.
#[derive(Clone, Debug)]
struct Group {
    slots: Slots,
    stacks: [MaybeEntity; STACKS],
}

impl Group {
    const EMPTY: Group = Group {
        slots: Slots::EMPTY,
        stacks: [MaybeEntity::NONE; STACKS],
    };

    /// Returns the first non-empty stack of the first bucket.
    #[inline]
    fn first_stack(&self) -> u8 {
        let early = 2 * self.slots.first_bucket();
        (early + usize::from(self.stacks[early] == MaybeEntity::NONE)) as u8
    }

    #[inline]
    fn push(&mut self, entity: &mut GroupedEntity, id: EntityId, stack: u8) {
        let top = &mut self.stacks[usize::from(stack) % STACKS];
        entity.next = *top;
        *top = MaybeEntity::of(id);
        self.slots.occupied |= 1 << (stack / 2);
    }
}

/// Group fair queueing.
#[derive(Clone, Debug)]
pub struct Gfq {
    members: Members,
    /// Backlogged groups with S_i <= V, and those with S_i > V.
    eligible: u64,
    ineligible: u64,
    /// The selected entity, on top of stack `stack` in the first bucket of group `group`.
    selected: MaybeEntity,
    group: u8,
    stack: u8,
    /// The selected entity is on hold: no other entity is selected before it.
    held: bool,
    /// Changes of a share, removals and exchanged heads during this busy period. After each, V may lie further after
    /// F^, by less than three of the longest packets: an entity's service ahead of V no longer counts, or its head ends
    /// after its F^.
    changes: u64,
    /// F^ of the first entity of each backlogged group.
    finish: [VirtualTime; 64],
    groups: [Group; 64],
}

impl Default for Gfq {
    fn default() -> Self {
        Self::new()
    }
}

impl Gfq {
    /// Creates a scheduler whose virtual time starts at 0.
    pub fn new() -> Self {
        Self::starting_at(VirtualTime::new(0))
    }

    /// Creates a scheduler whose virtual time starts at `now`: at any point, also shortly before it wraps.
    #[doc(hidden)]
    pub fn starting_at(now: VirtualTime) -> Self {
        Gfq {
            members: Members::starting_at(now),
            eligible: 0,
            ineligible: 0,
            selected: MaybeEntity::NONE,
            group: 0,
            stack: 0,
            held: false,
            changes: 0,
            finish: [now; 64],
            groups: [Group::EMPTY; 64],
        }
    }

    /// V, the system virtual time.
    #[inline]
    #[doc(hidden)]
    pub fn virtual_time(&self) -> VirtualTime {
        self.members.clock.now()
    }

    #[inline]
    fn is_idle(&self) -> bool {
        self.eligible | self.ineligible == 0
    }

    /// Makes the groups eligible that V reached since `before`. Each starts at the end of the slot that V was in, so
    /// that the highest changed bit identifies them (Fig. 7).
    #[inline]
    fn make_eligible(&mut self, before: VirtualTime) {
        let changed = self.virtual_time().units() ^ before.units();
        let reached = u64::MAX >> (changed | 1).leading_zeros();
        self.eligible |= self.ineligible & reached;
        self.ineligible &= !reached;
    }

    /// The first bucket of backlogged group `i` is another, or holds others.
    #[inline]
    fn new_first(&mut self, i: u32) {
        let group = &self.groups[(i % 64) as usize];
        let start = group.slots.start(i);
        let slots = 1 + u64::from(group.first_stack() % 2);
        self.finish[(i % 64) as usize] = start.advanced(slots << i);
        let bit = 1 << i;
        if start.is_after(self.virtual_time()) {
            self.eligible &= !bit;
            self.ineligible |= bit;
        } else {
            self.eligible |= bit;
            self.ineligible &= !bit;
        }
    }

    /// Selects the next entity.
    #[inline]
    fn choose(&mut self) {
        if self.eligible == 0 {
            return self.jump();
        }
        self.choose_eligible();
    }

    /// Of the eligible groups, the one that finishes first has the next entity.
    #[inline]
    fn choose_eligible(&mut self) {
        let mut first = self.eligible.trailing_zeros() % 64;
        let mut others = self.eligible & (self.eligible - 1);
        while others != 0 {
            let i = others.trailing_zeros() % 64;
            if self.finish[first as usize].is_after(self.finish[i as usize]) {
                first = i;
            }
            others &= others - 1;
        }
        let group = &self.groups[first as usize];
        self.group = first as u8;
        self.stack = group.first_stack();
        self.selected = group.stacks[usize::from(self.stack) % STACKS];
    }

    /// Moves V to the first start (Eq. 3) if no entity is eligible, so that the link does not idle with a backlog.
    #[inline(never)]
    fn jump(&mut self) {
        if self.ineligible == 0 {
            self.selected = MaybeEntity::NONE;
            return;
        }
        let before = self.virtual_time();
        // Of groups that all start at the end of V's slot, the finest starts first.
        let i = self.ineligible.trailing_zeros() % 64;
        let start = self.groups[i as usize].slots.start(i);
        self.members.clock.jump_to(start);
        self.make_eligible(before);
        self.choose_eligible();
    }

    /// Returns the latest possible start of an entity of group `i`: the end of the slot after V's. An entity in a
    /// bucket was served, if at all, while it was eligible, and moved by at most a slot.
    #[inline]
    fn latest_start(&self, i: u32) -> VirtualTime {
        self.virtual_time().rounded_down(i).advanced((2 << i) - 1)
    }

    /// Gives an inactive entity a place (Eq. 2).
    #[inline(never)]
    fn insert(&mut self, entities: &mut [impl Holds<GroupedEntity>], id: EntityId, head: Charge) {
        if self.is_idle() {
            self.members.start_busy_period();
            self.changes = 0;
        }
        let entity = entities.entity_mut(id);
        entity.group = self.members.group_of(entity);
        let i = entity.group as u32;
        let now = self.virtual_time();
        entity.start = match self.members.clock.remembers(entity.mark) {
            true => now.later(entity.start.earlier(self.latest_start(i))),
            false => now,
        };
        entity.mark = self.members.floor as u8;
        let group = &mut self.groups[(i % 64) as usize];
        let mut comes_first = true;
        if group.slots.occupied == 0 {
            group.slots.first = entity.start.units() >> i;
        } else {
            // Beyond the last slot an entity is taken to have come earlier, when V was
            // there. Only exchanged heads keep a bucket waiting for so long.
            let last = group.slots.last(i);
            if entity.start.rounded_down(i).is_after(last) {
                entity.start = last;
            }
            let slot = entity.start.units() >> i;
            let start = VirtualTime::new(slot << i);
            if group.slots.start(i).is_after(start) {
                // V is in the slot before: the group was ineligible, and had one bucket.
                group.slots.first = slot;
            } else {
                comes_first = group.slots.first == slot;
            }
        }
        let stack = stack_of(entity.start, span(head, entity.inverse_weight), i);
        match self.selected.get() {
            Some(top) if (i as u8, stack) == (self.group, self.stack) => {
                let below = &mut entities.entity_mut(top).next;
                entities.entity_mut(id).next = core::mem::replace(below, MaybeEntity::of(id));
            }
            _ => {
                group.push(entity, id, stack);
                if comes_first {
                    self.new_first(i);
                    if !self.held {
                        self.choose();
                    }
                }
            }
        }
    }

    /// The selected one was the last in its stack, or went to the other of the pair.
    #[inline]
    fn move_on(&mut self) {
        let i = u32::from(self.group);
        let group = &mut self.groups[(i % 64) as usize];
        let early = 2 * group.slots.first_bucket();
        let empty = group.stacks[early] == MaybeEntity::NONE
            && group.stacks[early + 1] == MaybeEntity::NONE;
        if empty && !group.slots.skip_first(i) {
            self.eligible &= !(1 << i);
        } else {
            self.new_first(i);
        }
    }

    #[inline(never)]
    fn move_on_and_choose(&mut self) {
        self.move_on();
        self.choose();
    }

    /// Takes the selected entity out of its group: for good, or for the group that its
    /// share asks for by now.
    #[inline(never)]
    fn leave(
        &mut self,
        entities: &mut [impl Holds<GroupedEntity>],
        id: EntityId,
        next: Option<Charge>,
    ) {
        debug_assert_eq!(self.selected.get(), Some(id), "it is the selected one");
        let rest = core::mem::take(&mut entities.entity_mut(id).next);
        let group = &mut self.groups[usize::from(self.group) % 64];
        group.stacks[usize::from(self.stack) % STACKS] = rest;
        if rest == MaybeEntity::NONE {
            self.move_on();
        }
        self.selected = MaybeEntity::NONE;
        let idle = self.is_idle();
        let entity = entities.entity_mut(id);
        self.members.adopt_pending(entity, id, idle);
        match next {
            None => self.members.leave(entity, idle),
            Some(head) => {
                // Service received ahead of V is still worked off, as far as the new group's latest start.
                entity.mark = self.members.clock.quarter();
                self.changes += 1;
                self.held = true;
                self.insert(entities, id, head);
            }
        }
        self.held = false;
        self.choose();
    }

    /// See [`Members::may_stay`].
    #[inline(never)]
    fn may_stay(&mut self, entities: &mut [impl Holds<GroupedEntity>], id: EntityId) -> bool {
        let entity = entities.entity_mut(id);
        let i = u32::from(self.group);
        let end = self.groups[(i % 64) as usize].slots.end(i);
        let lowest = self.members.floor;
        self.members.may_stay(entity, id, end, end, lowest)
    }
}

impl Scheduler for Gfq {
    type Entity = GroupedEntity;
    const NAME: &'static str = "gfq";

    statements_of_members!(|gfq| gfq.changes += 1);

    #[inline]
    fn backlogged(
        &mut self,
        entities: &mut [impl Holds<GroupedEntity>],
        id: EntityId,
        head: Charge,
    ) {
        let entity = entities.entity_mut(id);
        if entity.state == Standing::Inactive {
            entity.state = Standing::Active;
            self.insert(entities, id, head);
        } else {
            self.changes += 1;
        }
    }

    #[inline]
    fn select(&self, _: &[impl Holds<GroupedEntity>]) -> MaybeEntity {
        self.selected
    }

    #[inline]
    fn hold(&mut self, _: &mut [impl Holds<GroupedEntity>], _: EntityId) {
        self.held = true;
    }

    #[inline]
    fn served(&mut self, work: Charge) {
        if self.ineligible == 0 {
            return self.members.clock.served(work);
        }
        let before = self.virtual_time();
        self.members.clock.served(work);
        self.make_eligible(before);
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
        let Some(head) = next else {
            return self.leave(entities, id, None);
        };
        if self.members.is_misplaced(entity) && !self.may_stay(entities, id) {
            return self.leave(entities, id, next);
        }
        self.held = false;
        let entity = entities.entity_mut(id);
        let i = u32::from(self.group);
        let stack = stack_of(entity.start, span(head, entity.inverse_weight), i);
        if stack != self.stack {
            let rest = entity.next;
            let group = &mut self.groups[(i % 64) as usize];
            group.stacks[usize::from(self.stack) % STACKS] = rest;
            group.push(entity, id, stack);
            if rest == MaybeEntity::NONE || stack ^ self.stack == 1 {
                return self.move_on_and_choose();
            }
        }
        self.choose();
    }

    fn idle(&mut self, entities: &mut [impl Holds<GroupedEntity>], id: EntityId) {
        if entities.entity(id).state != Standing::Inactive {
            self.leave(entities, id, None);
        }
    }

    fn invariants(&self, entities: &[impl Holds<GroupedEntity>]) -> Result<(), Violation> {
        self.check_groups()?;
        self.check_choice()?;
        let mut listed = alloc::vec![false; entities.len()];
        let named = |Violation(what)| Violation(alloc::format!("gfq: {what}"));
        for (group, i) in self.groups.iter().zip(0u32..) {
            for (&top, stack) in group.stacks.iter().zip(0u32..) {
                let bucket = stack / 2;
                ensure_invariant!(
                    top == MaybeEntity::NONE || group.slots.occupied >> bucket & 1 == 1,
                    "gfq: group {i} has {top:?} in bucket {bucket}, which is not in use"
                );
                let slots = bucket.wrapping_sub(group.slots.first_bucket() as u32) % SLOTS;
                let start = group.slots.start(i).advanced(u64::from(slots) << i);
                check_bucket(entities, top, i, start, &mut listed).map_err(named)?;
            }
        }
        self.members.check(entities, &listed).map_err(named)
    }
}

impl Gfq {
    fn check_groups(&self) -> Result<(), Violation> {
        let now = self.virtual_time();
        let lag = u128::from(self.members.lag) * (1 + 3 * u128::from(self.changes));
        for (group, i) in self.groups.iter().zip(0u32..) {
            let sets = (self.eligible >> i & 1, self.ineligible >> i & 1);
            if group.slots.occupied == 0 {
                ensure_invariant!(sets == (0, 0), "gfq: group {i} is empty, and in {sets:?}");
                continue;
            }
            for bucket in 0..SLOTS as usize {
                let pair = &group.stacks[2 * bucket..][..2];
                ensure_invariant!(
                    group.slots.occupied >> bucket & 1 == 0 || pair != [MaybeEntity::NONE; 2],
                    "gfq: bucket {bucket} of group {i} is in use and empty"
                );
            }
            let (start, finish) = (group.slots.start(i), self.finish[i as usize]);
            ensure_invariant!(
                group.slots.occupied >> group.slots.first_bucket() & 1 == 1,
                "gfq: group {i} starts at an empty bucket"
            );
            let expected = match start.is_after(now) {
                true => (0, 1),
                false => (1, 0),
            };
            ensure_invariant!(
                sets == expected,
                "gfq: group {i} starts at {start:?}, V is {now:?}, and it is in {sets:?}"
            );
            let slots = 1 + u64::from(group.first_stack() % 2);
            ensure_invariant!(
                finish == start.advanced(slots << i),
                "gfq: group {i} starts at {start:?}, {slots} slots before {finish:?}"
            );
            let used = group
                .slots
                .occupied
                .rotate_right(group.slots.first_bucket() as u32);
            let last = start.advanced(u64::from(used.ilog2()) << i);
            ensure_invariant!(
                !last.is_after(self.latest_start(i)),
                "gfq: group {i} has a flow at {last:?}, more than a slot after {now:?}"
            );
            // An entity that sent a shorter packet than the announced head, and is late, may finish a slot earlier.
            let late = now.distance_from(finish.advanced(1 << i));
            ensure_invariant!(
                late <= 0 || late as u128 <= lag,
                "gfq: V {now:?} is more than L = {lag} after F^ = {finish:?} of group {i}"
            );
        }
        Ok(())
    }

    fn check_choice(&self) -> Result<(), Violation> {
        let Some(id) = self.selected.get() else {
            ensure_invariant!(self.is_idle(), "gfq: no flow is next, and a flow is active");
            return Ok(());
        };
        let (at, stack) = (usize::from(self.group), usize::from(self.stack));
        let group = &self.groups[at];
        ensure_invariant!(
            group.stacks[stack] == self.selected
                && stack / 2 == group.slots.first_bucket()
                && self.eligible >> at & 1 == 1,
            "gfq: {id:?} is next, and not first in group {at}"
        );
        if self.held {
            return Ok(());
        }
        ensure_invariant!(
            stack == usize::from(group.first_stack()),
            "gfq: {id:?} is next, and group {at} has an earlier flow"
        );
        for i in (0..64).filter(|&i| self.eligible >> i & 1 == 1) {
            ensure_invariant!(
                !self.finish[at].is_after(self.finish[i]),
                "gfq: group {at} is next, and group {i} finishes first"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Length;
    use alloc::vec::Vec;

    #[test]
    fn a_finish_time_is_rounded_up_to_one_slot_or_two() {
        // Starts and spans in a group of slots of 16 units.
        for (start, span, stack) in [
            (0, 1, 0),
            (0, 16, 0),
            (1, 15, 0),
            (1, 16, 1),
            (15, 1, 0),
            (15, 2, 1),
            (16, 16, 2),
            (31, 16, 3),
            (16 * 63, 16, 126),
            (16 * 63 + 1, 16, 127),
            (16 * 64, 16, 0),
            (u64::MAX, 1, 126),
            (u64::MAX, 2, 127),
        ] {
            let start = VirtualTime::new(start);
            assert_eq!(stack_of(start, span, 4), stack, "{start:?} {span}");
        }
    }

    fn charge(bytes: u32) -> Charge {
        Charge::new(bytes).unwrap()
    }

    /// Aggregates: the selected one is held while others become backlogged, and charged for
    /// no more than its head announced.
    #[test]
    fn one_on_hold_stays_whoever_comes_and_whatever_it_is_charged_for() {
        for start in [0, 1u64.wrapping_neg(), (1u64 << 59).wrapping_neg()] {
            let mut gfq = Gfq::starting_at(VirtualTime::new(start));
            let mut entities: Vec<GroupedEntity> = alloc::vec![];
            let mut announced: Vec<Option<u32>> = alloc::vec![];
            for weight in [1, 1, 1, 2, 3, 8, 8, 100, 1000, 8000] {
                let id = EntityId::new(entities.len()).unwrap();
                entities.push(GroupedEntity::default());
                announced.push(None);
                let length = Length::new(1500).unwrap();
                gfq.add(
                    &mut entities,
                    id,
                    Share::new(Weight::new(weight).unwrap(), length),
                );
            }
            let count = entities.len();
            let mut seed = start | 1;
            let mut below = |bound: u32| {
                seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                (seed >> 33) as u32 % bound
            };
            for _ in 0..1_500 {
                let come = |gfq: &mut Gfq,
                            entities: &mut Vec<GroupedEntity>,
                            announced: &mut Vec<Option<u32>>,
                            which: usize,
                            bytes: u32| {
                    if announced[which].is_none() {
                        announced[which] = Some(bytes);
                        gfq.backlogged(entities, EntityId::new(which).unwrap(), charge(bytes));
                    }
                };
                for _ in 0..below(4) {
                    let (which, bytes) = (below(count as u32) as usize, 1 + below(1500));
                    come(&mut gfq, &mut entities, &mut announced, which, bytes);
                }
                let Some(id) = gfq.select(&entities).get() else {
                    continue;
                };
                gfq.hold(&mut entities, id);
                let budget = announced[id.index()].unwrap();
                let mut spent = 0;
                for _ in 0..1 + below(3) {
                    let work = 1 + below(budget);
                    if spent + work > budget {
                        break;
                    }
                    spent += work;
                    gfq.served(charge(work));
                    let (which, bytes) = (below(count as u32) as usize, 1 + below(1500));
                    come(&mut gfq, &mut entities, &mut announced, which, bytes);
                    assert_eq!(gfq.select(&entities), MaybeEntity::of(id));
                    gfq.invariants(&entities).unwrap();
                }
                let next = (below(3) > 0).then(|| 1 + below(1500));
                announced[id.index()] = next;
                match (Charge::new(spent), next) {
                    (Some(spent), next) => {
                        gfq.reschedule(&mut entities, id, spent, next.map(charge));
                    }
                    (None, _) => {
                        announced[id.index()] = None;
                        gfq.idle(&mut entities, id);
                    }
                }
                assert!(!gfq.held);
                gfq.invariants(&entities).unwrap();
            }
        }
    }

    #[test]
    fn one_that_must_leave_its_group_while_on_hold_comes_back_in_another() {
        let mut gfq = Gfq::new();
        let mut entities = alloc::vec![GroupedEntity::default(); 3];
        let [a, b, c] = [0, 1, 2].map(|index| EntityId::new(index).unwrap());
        let share = |weight| Share::new(Weight::new(weight).unwrap(), Length::MAX);
        for id in [a, b, c] {
            gfq.add(&mut entities, id, share(1));
            gfq.backlogged(&mut entities, id, charge(1000));
        }
        for weight in [1000, 1, 1_000_000, 3] {
            let id = gfq.select(&entities).get().unwrap();
            gfq.hold(&mut entities, id);
            gfq.change(&mut entities, id, share(weight));
            assert_eq!(gfq.select(&entities), MaybeEntity::of(id));
            gfq.served(charge(1000));
            gfq.reschedule(&mut entities, id, charge(1000), Some(charge(1000)));
            gfq.invariants(&entities).unwrap();
            assert_eq!(gfq.weight(&entities, id).get(), weight);
            let entity = &entities[id.index()];
            assert_eq!(entity.group, gfq.members.group_of(entity));
        }
    }
}
