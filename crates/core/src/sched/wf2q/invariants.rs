//! Invariants of the order, checked one by one.

use super::super::{Standing, seff::FURTHEST};
use super::{ByFluid, Tag, Wf2qEntity};
use crate::ensure_invariant;
use crate::scheduler::{Entities, EntityId, Holds, Violation};

impl<const ELIGIBLE: bool> ByFluid<ELIGIBLE> {
    pub(super) fn check(&self, entities: &[impl Holds<Wf2qEntity>]) -> Result<(), Violation> {
        let now = self.virtual_time();
        self.fluid.check()?;
        let standing = |id| entities.entity(id).state;
        self.order.check(now, entities.len(), standing, |id| {
            let start = self.waiting[id.index()].start.timestamp();
            let ahead = start.distance_from(now);
            ensure_invariant!(
                (-32 * FURTHEST..4 * FURTHEST).contains(&ahead),
                "gps: {id:?} starts at {start:?}, too far from V = {now:?}"
            );
            // All are eligible under WFQ.
            Ok(if ELIGIBLE { start } else { start.earlier(now) })
        })?;
        if !self.fluid.is_behind() {
            self.order.check_eligible()?;
            ensure_invariant!(
                !self.order.is_empty() || !self.fluid.is_busy(),
                "gps: the fluid server is backlogged while no packet waits"
            );
        }
        for id in (0..entities.len()).filter_map(EntityId::new) {
            let entity = entities.entity(id);
            let active = entity.state != Standing::Inactive;
            self.pending.check(id, entity.changing, entity.state)?;
            let Some(waiting) = self.waiting.get(id.index()) else {
                continue;
            };
            let places = |&(number, _): &(u32, Tag)| number.wrapping_sub(waiting.head);
            let restarts = &waiting.restarts;
            ensure_invariant!(
                (active || waiting.packets == 0)
                    && restarts.iter().map(places).is_sorted()
                    && restarts
                        .iter()
                        .all(|r| (1..waiting.packets).contains(&places(r)))
                    && restarts
                        .iter()
                        .all(|(_, start)| !start.timestamp().is_after(now)),
                "gps: {id:?} has restarts {waiting:?}"
            );
        }
        Ok(())
    }
}
