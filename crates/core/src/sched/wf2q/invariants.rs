//! What the order relies on, checked one by one.

use super::super::{Standing, seff::FURTHEST};
use super::{Wf2q, Wf2qEntity};
use crate::ensure_invariant;
use crate::scheduler::{Entities, EntityId, Holds, MaybeEntity, Violation};

impl Wf2q {
    pub(super) fn check(&self, entities: &[impl Holds<Wf2qEntity>]) -> Result<(), Violation> {
        let now = self.virtual_time();
        self.fluid.check()?;
        let standing = |id| entities.entity(id).state;
        self.order.check(now, entities.len(), standing, |id| {
            let entity = entities.entity(id);
            let ahead = entity.start.distance_from(now);
            ensure_invariant!(
                (-32 * FURTHEST..4 * FURTHEST).contains(&ahead),
                "wf2q: {id:?} starts at {:?}, too far from V = {now:?}",
                entity.start
            );
            Ok(entity.start)
        })?;
        ensure_invariant!(
            self.order.first() != MaybeEntity::NONE || !self.fluid.is_busy(),
            "wf2q: GPS is backlogged while nobody waits"
        );
        for id in (0..entities.len()).filter_map(EntityId::new) {
            let entity = entities.entity(id);
            let active = entity.state != Standing::Inactive;
            self.pending.check(id, entity.changing, entity.state)?;
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
