//! Strict priority: the highest level that has something to send has the link.
//!
//! The oldest discipline of class-based devices, and the one that ALTQ's hosts compare
//! theirs with (K. Cho, *A Framework for Alternate Queueing*, 1998). An entity's weight is its
//! level, the higher the sooner; how much higher does not matter. Entities of one level
//! take turns, a packet each. There is no guarantee for a level that has others above: it
//! may starve.
//!
//! A packet costs O(levels / 64): the levels in use lie sorted in one table, and one bit for each level with an active
//! entity gives the highest, 64 levels to a word. Becoming active costs a binary search, O(log levels). Adding,
//! removing and changing entities costs O(levels) where a level gets its first entity or loses its last. So nothing is
//! allocated or moved while packets come and go, and up to 64 levels one find-first-set is the whole choice.
//!
//! The selected entity stays selected while it is on hold, even if an entity of a higher level becomes backlogged.

use super::Standing;
use super::ring::{Linked, Ring};
use crate::cost::MAX_COST;
use crate::ensure_invariant;
use crate::scheduler::{
    Entities, EntityId, Holds, MaybeEntity, Removal, Scheduler, Share, Violation,
};
use crate::units::{Charge, Weight};
use alloc::vec::Vec;

/// State of one entity.
#[derive(Clone, Copy, Debug, Default)]
pub struct PriorityEntity {
    /// Level in whose circle it is, while active; 0 if there is no such entity.
    level: u32,
    /// Level from its next place on.
    next_level: u32,
    next: MaybeEntity,
    state: Standing,
}

const _: () = assert!(size_of::<PriorityEntity>() <= 24);

impl Linked for PriorityEntity {
    #[inline]
    fn next(&mut self) -> &mut MaybeEntity {
        &mut self.next
    }
}

/// The entities of one level.
#[derive(Clone, Copy, Debug)]
struct Level {
    level: u32,
    /// Entities that are in this level, or will be at their next place.
    members: u32,
    active: Ring,
}

/// Strict priority.
#[derive(Clone, Debug)]
pub struct Priority {
    /// Levels that have members, the highest first.
    levels: Vec<Level>,
    /// Bit i % 64 of word i / 64: `levels[i]` has an active entity.
    backlogged: Vec<u64>,
    /// Index of the level in service: the first that is backlogged, unless one below is on hold. [`Priority::NONE`] if
    /// no entity is active.
    first: usize,
    held: bool,
}

impl Default for Priority {
    fn default() -> Self {
        Self::new()
    }
}

impl Priority {
    const NONE: usize = usize::MAX;

    /// Creates a scheduler without levels.
    pub fn new() -> Self {
        Priority {
            levels: Vec::new(),
            backlogged: Vec::new(),
            first: Self::NONE,
            held: false,
        }
    }

    /// Where the level is in the table, or belongs.
    fn find(&self, level: u32) -> Result<usize, usize> {
        self.levels.binary_search_by(|at| level.cmp(&at.level))
    }

    /// One more member.
    fn enter(&mut self, level: u32) {
        match self.find(level) {
            Ok(at) => self.levels[at].members += 1,
            Err(at) => {
                self.levels.insert(
                    at,
                    Level {
                        level,
                        members: 1,
                        active: Ring::default(),
                    },
                );
                if self.first != Self::NONE && at <= self.first {
                    self.first += 1;
                }
                self.levels_moved();
            }
        }
    }

    /// One member less.
    fn exit(&mut self, level: u32) {
        let Ok(at) = self.find(level) else { return };
        self.levels[at].members -= 1;
        if self.levels[at].members == 0 {
            self.levels.remove(at);
            if self.first != Self::NONE && at < self.first {
                self.first -= 1;
            }
            self.levels_moved();
        }
    }

    fn levels_moved(&mut self) {
        self.backlogged.clear();
        self.backlogged.resize(self.levels.len().div_ceil(64), 0);
        for (at, level) in self.levels.iter().enumerate() {
            let active = level.active.head != MaybeEntity::NONE;
            self.backlogged[at / 64] |= u64::from(active) << (at % 64);
        }
    }

    fn highest(&self) -> usize {
        let word = self.backlogged.iter().position(|&word| word != 0);
        word.map_or(Self::NONE, |word| {
            word * 64 + self.backlogged[word].trailing_zeros() as usize
        })
    }

    /// Ends the hold, if there is one.
    #[inline]
    fn release(&mut self) {
        self.held = false;
        self.first = self.highest();
    }

    /// Gives the entity a place, the last of its level.
    #[inline(never)]
    fn insert(&mut self, entities: &mut [impl Holds<PriorityEntity>], id: EntityId) {
        let Ok(at) = self.find(entities.entity(id).level) else {
            return;
        };
        self.levels[at].active.push_last(entities, id);
        self.backlogged[at / 64] |= 1 << (at % 64);
        if !self.held {
            self.first = self.first.min(at);
        }
    }

    /// Takes the selected entity out, which has from now on the level that it was last
    /// given, and this standing.
    #[inline(never)]
    fn take_out(
        &mut self,
        entities: &mut [impl Holds<PriorityEntity>],
        id: EntityId,
        state: Standing,
    ) {
        let at = self.first;
        let circle = &mut self.levels[at].active;
        circle.pop_head(entities, id);
        if circle.head == MaybeEntity::NONE {
            self.backlogged[at / 64] &= !(1 << (at % 64));
        }
        let entity = entities.entity_mut(id);
        let left = core::mem::replace(&mut entity.level, entity.next_level);
        let gone = core::mem::replace(&mut entity.state, state) == Standing::Leaving;
        if gone {
            *entity = PriorityEntity::default();
        }
        if gone || left != entity.level {
            self.exit(left);
        }
        self.release();
    }
}

impl Scheduler for Priority {
    type Entity = PriorityEntity;
    const NAME: &'static str = "priority";
    const LARGEST: u32 = MAX_COST;

    fn add(&mut self, entities: &mut [impl Holds<PriorityEntity>], id: EntityId, share: Share) {
        let level = share.weight().get();
        self.enter(level);
        *entities.entity_mut(id) = PriorityEntity {
            level,
            next_level: level,
            ..PriorityEntity::default()
        };
    }

    fn remove(&mut self, entities: &mut [impl Holds<PriorityEntity>], id: EntityId) -> Removal {
        let entity = entities.entity_mut(id);
        if entity.state == Standing::Inactive {
            self.exit(entity.level);
            *entity = PriorityEntity::default();
            return Removal::Done;
        }
        entity.state = Standing::Leaving;
        let pending = core::mem::replace(&mut entity.next_level, entity.level);
        if pending != entity.level {
            self.exit(pending);
        }
        Removal::WhenSelected
    }

    fn change(&mut self, entities: &mut [impl Holds<PriorityEntity>], id: EntityId, share: Share) {
        let entity = entities.entity_mut(id);
        let level = share.weight().get();
        let last_given = core::mem::replace(&mut entity.next_level, level);
        // An entity active in one level stays a member of it; any other level counts it once.
        let waits_in = match entity.state {
            Standing::Inactive => core::mem::replace(&mut entity.level, level),
            _ => entity.level,
        };
        let active = entity.state != Standing::Inactive;
        if level != last_given {
            if !(active && level == waits_in) {
                self.enter(level);
            }
            if !(active && last_given == waits_in) {
                self.exit(last_given);
            }
        }
    }

    fn weight(&self, entities: &[impl Holds<PriorityEntity>], id: EntityId) -> Weight {
        Weight::of_entity(entities.entity(id).next_level).unwrap_or(Weight::ONE)
    }

    fn is_active(&self, entities: &[impl Holds<PriorityEntity>], id: EntityId) -> bool {
        entities.entity(id).state != Standing::Inactive
    }

    #[inline]
    fn backlogged(&mut self, entities: &mut [impl Holds<PriorityEntity>], id: EntityId, _: Charge) {
        let entity = entities.entity_mut(id);
        if entity.state == Standing::Inactive {
            entity.state = Standing::Active;
            self.insert(entities, id);
        }
    }

    #[inline]
    fn select(&self, _: &[impl Holds<PriorityEntity>]) -> MaybeEntity {
        self.levels
            .get(self.first)
            .map_or(MaybeEntity::NONE, |level| level.active.head)
    }

    #[inline]
    fn hold(&mut self, _: &mut [impl Holds<PriorityEntity>], _: EntityId) {
        self.held = true;
    }

    #[inline]
    fn served(&mut self, _: Charge) {}

    #[inline]
    fn reschedule(
        &mut self,
        entities: &mut [impl Holds<PriorityEntity>],
        id: EntityId,
        _: Charge,
        next: Option<Charge>,
    ) {
        if next.is_none() {
            return self.idle(entities, id);
        }
        let entity = entities.entity(id);
        if entity.level != entity.next_level {
            self.take_out(entities, id, Standing::Active);
            return self.insert(entities, id);
        }
        self.levels[self.first].active.turn(id, entity.next);
        if self.held {
            self.release();
        }
    }

    #[inline(never)]
    fn idle(&mut self, entities: &mut [impl Holds<PriorityEntity>], id: EntityId) {
        if entities.entity(id).state != Standing::Inactive {
            self.take_out(entities, id, Standing::Inactive);
        }
    }

    fn invariants(&self, entities: &[impl Holds<PriorityEntity>]) -> Result<(), Violation> {
        let named = |Violation(what)| Violation(alloc::format!("priority: {what}"));
        ensure_invariant!(
            self.levels
                .is_sorted_by(|above, below| above.level > below.level),
            "priority: levels out of order"
        );
        let mut listed = alloc::vec![false; entities.len()];
        let mut members = alloc::vec![0; self.levels.len()];
        let mut bits = 0;
        for (at, level) in self.levels.iter().enumerate() {
            level.active.check(entities, &mut listed).map_err(named)?;
            let active = level.active.head != MaybeEntity::NONE;
            ensure_invariant!(
                self.backlogged[at / 64] >> (at % 64) & 1 == u64::from(active),
                "priority: level {} has the wrong bit",
                level.level
            );
            bits += u32::from(active);
            let mut next = level.active.head;
            while let Some(id) = next.get() {
                let entity = entities.entity(id);
                ensure_invariant!(
                    entity.level == level.level,
                    "priority: {entity:?} is in the circle of level {}",
                    level.level
                );
                next = entity.next;
                if next == level.active.head {
                    break;
                }
            }
        }
        ensure_invariant!(
            bits == self.backlogged.iter().map(|word| word.count_ones()).sum(),
            "priority: bits without levels"
        );
        for id in (0..entities.len()).filter_map(EntityId::new) {
            let entity = entities.entity(id);
            ensure_invariant!(
                listed[id.index()] == (entity.state != Standing::Inactive),
                "priority: {entity:?} is in a circle: {}",
                listed[id.index()]
            );
            ensure_invariant!(
                entity.state == Standing::Active || entity.level == entity.next_level,
                "priority: {entity:?} is about to move"
            );
            let mut member_of = alloc::vec![entity.level, entity.next_level];
            member_of.dedup();
            for level in member_of.into_iter().filter(|&level| level > 0) {
                match self.find(level) {
                    Ok(at) => members[at] += 1,
                    Err(_) => ensure_invariant!(false, "priority: {entity:?} is in no level"),
                }
            }
        }
        for (level, members) in self.levels.iter().zip(members) {
            ensure_invariant!(
                members == level.members && members > 0,
                "priority: level {} counts {} members, and has {members}",
                level.level,
                level.members
            );
        }
        ensure_invariant!(
            self.first == self.highest() || self.held,
            "priority: level {} is in service, and {} is backlogged",
            self.first,
            self.highest()
        );
        Ok(())
    }
}
