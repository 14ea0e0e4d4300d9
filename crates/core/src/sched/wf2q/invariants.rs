//! What the order relies on, checked one by one.

use super::super::{Standing, seff::FURTHEST};
use super::{Wf2q, Wf2qEntity};
use crate::ensure_invariant;
use crate::scheduler::{Entities, EntityId, Holds, Violation};

impl Wf2q {
    pub(super) fn check(&self, entities: &[impl Holds<Wf2qEntity>]) -> Result<(), Violation> {
        let now = self.virtual_time();
        self.fluid.check()?;
        let mut listed = alloc::vec![false; entities.len()];
        self.order.check(now, |id| {
            ensure_invariant!(id.index() < entities.len(), "wf2q: {id:?} was never added");
            let entity = entities.entity(id);
            ensure_invariant!(
                !core::mem::replace(&mut listed[id.index()], true),
                "wf2q: {id:?} has two places"
            );
            let ahead = entity.start.distance_from(now);
            ensure_invariant!(
                (-32 * FURTHEST..4 * FURTHEST).contains(&ahead),
                "wf2q: {id:?} starts at {:?}, too far from V = {now:?}",
                entity.start
            );
            Ok(entity.start)
        })?;
        ensure_invariant!(
            listed.contains(&true) || !self.fluid.is_busy(),
            "wf2q: GPS is backlogged while nobody waits"
        );
        for id in (0..entities.len()).filter_map(EntityId::new) {
            let entity = entities.entity(id);
            let active = entity.state != Standing::Inactive;
            ensure_invariant!(
                active == listed[id.index()],
                "wf2q: {id:?} is {:?} and has a place: {}",
                entity.state,
                !active
            );
            ensure_invariant!(
                entity.changing == self.pending.contains_key(&id)
                    && (!entity.changing || entity.state == Standing::Active),
                "wf2q: changes are pending of {:?}, and {id:?} says {entity:?}",
                self.pending
            );
            let Some(waiting) = self.waiting.get(id.index()) else {
                continue;
            };
            let places = |&(number, _): &(u32, _)| number.wrapping_sub(waiting.head);
            let restarts = &waiting.restarts;
            ensure_invariant!(
                (active || waiting.packets == 0)
                    && restarts.iter().map(places).is_sorted()
                    && restarts
                        .iter()
                        .all(|r| (1..waiting.packets).contains(&places(r)))
                    && restarts.iter().all(|&(_, start)| !start.is_after(now)),
                "wf2q: {id:?} has restarts {waiting:?}"
            );
        }
        Ok(())
    }
}
