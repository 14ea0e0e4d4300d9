//! Invariants between statements, checked flow by flow and aggregate by aggregate.

use super::super::Standing;
use super::{Aggregate, NextPacket, Plus, PlusEntity, family_key};
use crate::ensure_invariant;
use crate::scheduler::{Entities, EntityId, Holds, MaybeEntity, Scheduler, Violation};

impl<A: Scheduler, H: NextPacket> Plus<A, H> {
    pub(super) fn check_circles(
        &self,
        entities: &[impl Holds<PlusEntity<H>>],
    ) -> Result<(), Violation> {
        let mut listed = alloc::vec![false; entities.len()];
        for (index, aggregate) in self.aggregates.iter().enumerate() {
            let home = MaybeEntity::of(EntityId::in_use(index as u32));
            let circle = match home == self.serving {
                true => self.now.circle,
                false => aggregate.place.circle,
            };
            let (head, last) = (circle.head, circle.last);
            let (mut at, mut before) = (head, last);
            while let Some(id) = at.get().filter(|id| !listed[id.index()]) {
                ensure_invariant!(id.index() < entities.len(), "plus: {id:?} was never added");
                listed[id.index()] = true;
                let entity = entities.entity(id);
                ensure_invariant!(
                    entity.aggregate == home && entity.state != Standing::Inactive,
                    "plus: {id:?} lies in the circle of {home:?}: {entity:?}"
                );
                ensure_invariant!(
                    (entity.deficit > 0) != entity.moving,
                    "plus: {id:?} waits with a deficit of {}, moving: {}",
                    entity.deficit,
                    entity.moving
                );
                ensure_invariant!(
                    !entity.alone || (aggregate.members == 1 && !entity.moving),
                    "plus: {id:?} is alone: {}, moving: {}, one of {}",
                    entity.alone,
                    entity.moving,
                    aggregate.members
                );
                (at, before) = (entity.next, at);
            }
            ensure_invariant!(
                at == head && before == last,
                "plus: the circle of {home:?} from {head:?} to {last:?} ends at {before:?}"
            );
            let active = home.get().is_some_and(|id| {
                aggregate.members > 0 && self.algorithm.is_active(self.aggregates.as_slice(), id)
            });
            ensure_invariant!(
                active == (head != MaybeEntity::NONE),
                "plus: {home:?} is active: {active}, its circle starts at {head:?}"
            );
            ensure_invariant!(
                !active || aggregate.place.slack >= 0,
                "plus: {home:?} waits with a slack of {}",
                aggregate.place.slack
            );
            let next = aggregate.next_budget.get() as i32 - aggregate.place.quantum();
            ensure_invariant!(
                aggregate.next_slack == next,
                "plus: {home:?} is going to have a slack of {}, not {next}",
                aggregate.next_slack
            );
        }
        self.check_flows(entities, &listed)?;
        self.check_service(entities)
    }

    /// Each flow, of which it is known whether a circle has it.
    fn check_flows(
        &self,
        entities: &[impl Holds<PlusEntity<H>>],
        listed: &[bool],
    ) -> Result<(), Violation> {
        let mut members = alloc::vec![0u32; self.aggregates.len()];
        for id in (0..entities.len()).filter_map(EntityId::new) {
            let entity = entities.entity(id);
            ensure_invariant!(
                listed[id.index()] == (entity.state != Standing::Inactive),
                "plus: {id:?} is {:?} and listed: {}",
                entity.state,
                listed[id.index()]
            );
            ensure_invariant!(
                entity.state != Standing::Inactive
                    || (entity.deficit == 0
                        && entity.next == MaybeEntity::NONE
                        && !entity.moving
                        && !entity.alone),
                "plus: inactive {id:?} keeps something: {entity:?}"
            );
            ensure_invariant!(
                entity.moving == self.moving.contains_key(&id),
                "plus: {id:?} moves: {}, its share is kept: {}",
                entity.moving,
                !entity.moving
            );
            if let Some(home) = entity.aggregate.get() {
                members[home.index()] += 1;
            }
        }
        for (counted, aggregate) in members.iter().zip(&self.aggregates) {
            ensure_invariant!(
                *counted == aggregate.members,
                "plus: an aggregate of {counted} flows counts {}",
                aggregate.members
            );
        }
        Ok(())
    }

    fn check_service(&self, entities: &[impl Holds<PlusEntity<H>>]) -> Result<(), Violation> {
        let serving = self.aggregates.get(self.serving.index());
        ensure_invariant!(
            serving.is_some() == (self.now.circle.head != MaybeEntity::NONE),
            "plus: {:?} is in service, and {:?} its first flow",
            self.serving,
            self.now.circle.head
        );
        let Some(aggregate) = serving else {
            let waits = |aggregate: &Aggregate<_>| aggregate.place.circle.head != MaybeEntity::NONE;
            ensure_invariant!(
                self.now.slack < 0 && !self.aggregates.iter().any(waits),
                "plus: no aggregate is in service while one is backlogged"
            );
            return Ok(());
        };
        let spent = self.spent(aggregate.place.slack);
        ensure_invariant!(
            self.now.quantum == aggregate.place.quantum && !self.is_over(entities),
            "plus: {:?} is in service with {} bytes beyond {}, {} of which are not needed",
            self.serving,
            self.now.slack,
            self.now.quantum(),
            self.shorter(entities)
        );
        ensure_invariant!(
            (0..=spent).contains(&self.told),
            "plus: of {spent} bytes {} were reported",
            self.told
        );
        let selected = self.algorithm.select(self.aggregates.as_slice());
        ensure_invariant!(
            spent > 0 || selected == self.serving,
            "plus: {selected:?} comes before {:?}, which has sent nothing",
            self.serving
        );
        Ok(())
    }

    pub(super) fn check_families(&self) -> Result<(), Violation> {
        for (key, family) in &self.families {
            let mut open = 0;
            let (mut at, mut before) = (family.open, MaybeEntity::NONE);
            while let Some(id) = at.get() {
                let aggregate = &self.aggregates[id.index()];
                ensure_invariant!(
                    aggregate.open_before == before
                        && family_key(aggregate.share()) == *key
                        && (1..self.room(aggregate.share())).contains(&aggregate.members),
                    "plus: {id:?} does not belong among the open of {key:?}: {} flows",
                    aggregate.members
                );
                open += 1;
                ensure_invariant!(
                    open <= family.aggregates,
                    "plus: more of {key:?} are open than there are"
                );
                (at, before) = (aggregate.open_after, at);
            }
            let all = self
                .aggregates
                .iter()
                .filter(|aggregate| aggregate.members > 0 && family_key(aggregate.share()) == *key);
            let (mut count, mut full) = (0, 0);
            for aggregate in all {
                count += 1;
                full += u32::from(aggregate.members == self.room(aggregate.share()));
            }
            ensure_invariant!(
                count == family.aggregates && open + full == count,
                "plus: {key:?} counts {} aggregates; {count} are, {open} open, {full} full",
                family.aggregates
            );
        }
        let used = self.aggregates.iter().filter(|used| used.members > 0);
        let used = used.count();
        ensure_invariant!(
            used == self.aggregates(),
            "plus: {} aggregates belong to a family, {used} are",
            self.aggregates()
        );
        Ok(())
    }
}
