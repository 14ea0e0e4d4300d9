//! Invariants of the order of the two containers, checked slot by slot.

use super::super::groups::{GroupedEntity, SLOTS};
use super::{LISTS, NOBODY, SKps, beginning, finish, list, slot_at};
use crate::ensure_invariant;
use crate::scheduler::{Entities, Holds, MaybeEntity, Violation};
use crate::units::VirtualTime;

/// An occupied slot.
struct Slot {
    list: usize,
    start: VirtualTime,
    finish: VirtualTime,
}

impl<const LATE: bool> SKps<LATE> {
    pub(super) fn check(&self, entities: &[impl Holds<GroupedEntity>]) -> Result<(), Violation> {
        let now = self.virtual_time();
        let wheels = &self.wheels;
        let turned = wheels.turned;
        ensure_invariant!(
            !turned.is_after(now),
            "s-kps: the wheels are at {turned:?}, V at {now:?}"
        );
        let mut listed = alloc::vec![false; entities.len()];
        let mut occupied = alloc::vec::Vec::new();
        let mut expected = super::Wheels {
            starting: 0,
            far: 0,
            near: 0,
            due: 0,
            ..wheels.clone()
        };
        for i in 0..64 {
            // The slot next to begin, and all that have begun and may be in use.
            for age in 0..u64::from(SLOTS) {
                let slot = slot_at(turned.advanced(1 << i), i).wrapping_sub(age);
                let slot = (slot << i) >> i;
                let top = self.lists[list(slot, i)];
                if top == MaybeEntity::NONE {
                    continue;
                }
                let (start, finish) = (beginning(slot, i), finish(slot, i));
                let late = now.distance_from(finish);
                ensure_invariant!(
                    late <= self.members.lag as i64,
                    "s-kps: V is {late} after F^ = {finish:?} of group {i}, more than L = {} \
                     (Theorem 4)",
                    self.members.lag
                );
                let ticks = wheels.ticks(finish, turned);
                ensure_invariant!(
                    finish.is_after(turned) || ticks < 64,
                    "s-kps: group {i} is due since {finish:?}, {ticks} ticks ago"
                );
                ensure_invariant!(
                    finish.rounded_down(wheels.tick) == finish,
                    "s-kps: {finish:?} of group {i} is between two ticks of 2^{}",
                    wheels.tick
                );
                expected.occupy(slot, i);
                occupied.push(Slot {
                    list: list(slot, i),
                    start,
                    finish,
                });
                let mut at = top;
                while let Some(id) = at.get() {
                    ensure_invariant!(id.index() < entities.len(), "s-kps: {id:?} was never added");
                    ensure_invariant!(!listed[id.index()], "s-kps: {id:?} is in two slots");
                    listed[id.index()] = true;
                    let entity = entities.entity(id);
                    ensure_invariant!(
                        u32::from(entity.group.unsigned_abs()) == i
                            && Self::slot_of(entity.start, i) << i == slot << i,
                        "s-kps: {id:?} is in the slot of group {i} that begins at {start:?}: \
                         {entity:?}"
                    );
                    at = entity.next;
                }
            }
        }
        let words = |of: &super::Wheels| [of.starting, of.far, of.near, of.due];
        ensure_invariant!(
            words(wheels) == words(&expected),
            "s-kps: occupied are {:x?}, not {:x?}",
            words(&expected),
            words(wheels)
        );
        self.check_first(&occupied)?;
        self.members.check(entities, &listed)
    }

    /// The smallest F^ of those that are eligible, at V itself, is selected.
    fn check_first(&self, occupied: &[Slot]) -> Result<(), Violation> {
        let now = self.virtual_time();
        ensure_invariant!(
            self.first < LISTS
                && (occupied.is_empty()) == (self.lists[self.first] == MaybeEntity::NONE),
            "s-kps: {} slots are occupied, and list {} is selected",
            occupied.len(),
            self.first
        );
        if occupied.is_empty() {
            ensure_invariant!(self.first == NOBODY, "s-kps: no flow is selected");
            return Ok(());
        }
        if self.held {
            return Ok(());
        }
        let eligible = occupied.iter().filter(|slot| !slot.start.is_after(now));
        let first = eligible.min_by(|a, b| a.finish.distance_from(b.finish).cmp(&0));
        ensure_invariant!(
            first.is_some_and(|first| first.list == self.first),
            "s-kps: list {} is selected at {now:?}, not {:?}",
            self.first,
            first.map(|first| (first.list, first.start, first.finish))
        );
        let ahead = occupied
            .iter()
            .find(|slot| slot.start.is_after(now) && self.next_start.is_after(slot.start));
        ensure_invariant!(
            ahead.is_none(),
            "s-kps: list {:?} starts before {:?}",
            ahead.map(|slot| slot.list),
            self.next_start
        );
        Ok(())
    }
}
