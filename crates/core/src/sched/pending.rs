//! Changes of weight that take effect at an entity's next place, for WF2Q and WF2Q+.

use super::Standing;
use super::clock::entity_weight;
use crate::ensure_invariant;
use crate::scheduler::{EntityId, Violation};
use crate::units::Weight;
use alloc::collections::BTreeMap;

/// Inverse weights that active entities will have from their next place on. An entity notes whether
/// there is one of it (`changing`), so that for others nothing is looked up.
#[derive(Clone, Debug, Default)]
pub(super) struct Pending(BTreeMap<EntityId, u64>);

impl Pending {
    /// Records that an active entity will change its inverse weight from `present` to `next`. O(log n).
    pub(super) fn put(&mut self, id: EntityId, changing: &mut bool, present: u64, next: u64) {
        *changing = next != present;
        match *changing {
            true => self.0.insert(id, next),
            false => self.0.remove(&id),
        };
    }

    /// Takes the change that takes effect now, or never, if there is one. O(log n), and O(1) where nothing is pending.
    #[inline]
    pub(super) fn take(&mut self, id: EntityId, changing: &mut bool) -> Option<u64> {
        match core::mem::take(changing) {
            true => self.0.remove(&id),
            false => None,
        }
    }

    /// Returns the weight requested last.
    pub(super) fn weight(&self, id: EntityId, changing: bool, present: u64) -> Weight {
        let next = self.0.get(&id).filter(|_| changing);
        entity_weight(next.copied().unwrap_or(present))
    }

    /// Checks that this agrees with the flag of an entity.
    pub(super) fn check(
        &self,
        id: EntityId,
        changing: bool,
        state: Standing,
    ) -> Result<(), Violation> {
        ensure_invariant!(
            changing == self.0.contains_key(&id) && (!changing || state == Standing::Active),
            "changes are pending of {:?}, and {id:?}, {state:?}, notes {changing}",
            self.0
        );
        Ok(())
    }
}
