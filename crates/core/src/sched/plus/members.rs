//! Which flows are one: aggregates of a kind are filled one after the other, and empty ones are used again.

use super::{Aggregate, MAX_BUDGET, NextPacket, Plus, PlusEntity, family_key};
use crate::grow;
use crate::scheduler::{Entities, EntityId, Holds, MaybeEntity, Removal, Scheduler, Share};
use crate::units::MAX_AGGREGATE_WEIGHT;

impl<A: Scheduler, H: NextPacket> Plus<A, H> {
    /// Most flows of this share in one aggregate.
    pub(super) fn room(&self, share: Share) -> u32 {
        self.most_members
            .get()
            .min(MAX_AGGREGATE_WEIGHT / share.weight().get())
            .min(MAX_BUDGET / share.max_charge().get())
    }

    /// An aggregate with one more flow, this one, of this share.
    pub(super) fn join(
        &mut self,
        entities: &mut [impl Holds<PlusEntity<H>>],
        share: Share,
    ) -> EntityId {
        self.catch_up();
        let room = self.room(share);
        let family = self.families.entry(family_key(share)).or_default();
        if let Some(id) = family.open.get() {
            let aggregate = &mut self.aggregates[id.index()];
            if aggregate.members == 1
                && let Some(first) = aggregate.place.circle.head.get()
            {
                // It takes turns from now on.
                entities.entity_mut(first).alone = false;
            }
            aggregate.members += 1;
            if aggregate.members == room {
                self.close(id);
            }
            self.weigh(id);
            return id;
        }
        family.aggregates += 1;
        // There are no more aggregates than flows.
        let id = (self.free.pop()).unwrap_or(EntityId::in_use(self.aggregates.len() as u32));
        let aggregate = Aggregate {
            members: 1,
            ..Aggregate::vacant(share)
        };
        while self.aggregates.len() <= id.index() {
            grow::push(&mut self.aggregates, Aggregate::vacant(share));
        }
        self.aggregates[id.index()] = aggregate;
        self.algorithm
            .add(self.aggregates.as_mut_slice(), id, share);
        if room > 1 {
            self.open(id);
        }
        id
    }

    /// Removes a flow from the aggregate.
    pub(super) fn quit(&mut self, id: EntityId) {
        self.catch_up();
        let share = self.aggregates[id.index()].share();
        let room = self.room(share);
        let aggregate = &mut self.aggregates[id.index()];
        let was_full = aggregate.members == room;
        aggregate.members -= 1;
        if aggregate.members > 0 {
            if was_full {
                self.open(id);
            }
            return self.weigh(id);
        }
        if !was_full {
            self.close(id);
        }
        let removal = self.algorithm.remove(self.aggregates.as_mut_slice(), id);
        debug_assert_eq!(removal, Removal::Done, "it has no flow to be active for");
        self.free.push(id);
        if let Some(family) = self.families.get_mut(&family_key(share)) {
            family.aggregates -= 1;
            if family.aggregates == 0 {
                self.families.remove(&family_key(share));
            }
        }
    }

    /// The aggregate has another number of flows.
    fn weigh(&mut self, id: EntityId) {
        let aggregate = &mut self.aggregates[id.index()];
        let share = aggregate.total_share();
        aggregate.next_budget = share.max_charge();
        aggregate.next_slack = aggregate.next_budget.get() as i32 - aggregate.place.quantum();
        self.algorithm
            .change(self.aggregates.as_mut_slice(), id, share);
    }

    /// The aggregate can take another flow.
    fn open(&mut self, id: EntityId) {
        let share = self.aggregates[id.index()].share();
        let family = self.families.entry(family_key(share)).or_default();
        let first = core::mem::replace(&mut family.open, MaybeEntity::of(id));
        if let Some(first) = first.get() {
            self.aggregates[first.index()].open_before = MaybeEntity::of(id);
        }
        self.aggregates[id.index()].open_after = first;
    }

    /// The aggregate cannot take another flow.
    fn close(&mut self, id: EntityId) {
        let aggregate = &mut self.aggregates[id.index()];
        let before = core::mem::take(&mut aggregate.open_before);
        let after = core::mem::take(&mut aggregate.open_after);
        let share = aggregate.share();
        if let Some(after) = after.get() {
            self.aggregates[after.index()].open_before = before;
        }
        match before.get() {
            Some(before) => self.aggregates[before.index()].open_after = after,
            None => {
                if let Some(family) = self.families.get_mut(&family_key(share)) {
                    family.open = after;
                }
            }
        }
    }
}
