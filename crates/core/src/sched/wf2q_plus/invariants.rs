//! Invariants of the order, checked one by one.

use super::super::{Standing, clock::weight_of, seff::FURTHEST};
use super::{Scale, Wf2qPlus, Wf2qPlusEntity};
use crate::ensure_invariant;
use crate::scheduler::{Entities, EntityId, Holds, Violation};

impl<S: Scale> Wf2qPlus<S> {
    pub(super) fn check(
        &self,
        entities: &[impl Holds<Wf2qPlusEntity<S>>],
    ) -> Result<(), Violation> {
        let now = self.virtual_time();
        self.order.check_eligible()?;
        let standing = |id| entities.entity(id).state;
        self.order.check(now, entities.len(), standing, |id| {
            let entity = entities.entity(id);
            // It was served while S <= V, and has advanced by one service since. V may be after it by the time of a few
            // of the longest packets of the lightest weight.
            let ahead = entity.start.distance_from(now);
            ensure_invariant!(
                ahead < FURTHEST && ahead > -8 * FURTHEST,
                "wf2q+: {id:?} starts at {:?}, too far from V = {now:?}",
                entity.start
            );
            Ok(entity.start)
        })?;
        let mut sum = 0;
        for id in (0..entities.len()).filter_map(EntityId::new) {
            let entity = entities.entity(id);
            if entity.inverse_weight != 0 {
                sum += weight_of(entity.inverse_weight);
            }
            let active = entity.state != Standing::Inactive;
            self.pending.check(id, entity.changing, entity.state)?;
            ensure_invariant!(
                active || !self.remembers(entity) || entity.start.distance_from(now) < FURTHEST,
                "wf2q+: inactive {id:?} finished at {:?}, too far from V = {now:?}",
                entity.start
            );
        }
        ensure_invariant!(
            sum == self.clock.weight_sum(),
            "wf2q+: the weights add up to {sum}, not {}",
            self.clock.weight_sum()
        );
        Ok(())
    }
}
