//! A circle of entities that take turns, linked through their own states.

use crate::ensure_invariant;
use crate::scheduler::{Entities, EntityId, Holds, MaybeEntity, Violation};

/// A state that can be linked into a [`Ring`].
pub(super) trait Linked {
    fn next(&mut self) -> &mut MaybeEntity;
}

/// A circle of entities. The entity whose turn it is leaves it; others join it before that one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ring {
    /// The entity whose turn it is.
    pub head: MaybeEntity,
    /// The one before `head`. A turn ends by moving on, which writes no link.
    pub last: MaybeEntity,
}

impl Ring {
    /// Adds an entity, whose turn comes after all others'.
    #[inline]
    pub(super) fn push_last<S: Linked>(&mut self, entities: &mut [impl Holds<S>], id: EntityId) {
        let entity = MaybeEntity::of(id);
        match self.last.get() {
            Some(last) => {
                *entities.entity_mut(id).next() = self.head;
                *entities.entity_mut(last).next() = entity;
            }
            None => {
                *entities.entity_mut(id).next() = entity;
                self.head = entity;
            }
        }
        self.last = entity;
    }

    /// Removes `id`, whose turn it is.
    #[inline]
    pub(super) fn pop_head<S: Linked>(&mut self, entities: &mut [impl Holds<S>], id: EntityId) {
        debug_assert_eq!(self.head.get(), Some(id), "only the selected is taken out");
        let next = core::mem::take(entities.entity_mut(id).next());
        if next == MaybeEntity::of(id) {
            *self = Ring::default();
        } else if let Some(last) = self.last.get() {
            *entities.entity_mut(last).next() = next;
            self.head = next;
        }
    }

    /// Ends the turn of `id`, which stays; `next` is its link.
    #[inline]
    pub(super) fn turn(&mut self, id: EntityId, next: MaybeEntity) {
        self.last = MaybeEntity::of(id);
        self.head = next;
    }

    /// Checks that the links lead round the circle, and marks its members.
    pub(super) fn check<S: Linked + Copy>(
        &self,
        entities: &[impl Holds<S>],
        listed: &mut [bool],
    ) -> Result<(), Violation> {
        let (mut at, mut last) = (self.head, self.last);
        while let Some(id) = at.get() {
            ensure_invariant!(id.index() < listed.len(), "{id:?} was never added");
            if listed[id.index()] {
                break;
            }
            listed[id.index()] = true;
            let mut state = *entities.entity(id);
            (at, last) = (*state.next(), at);
        }
        ensure_invariant!(
            at == self.head && last == self.last,
            "the circle from {:?} to {:?} ends at {last:?} and leads to {at:?}",
            self.head,
            self.last
        );
        Ok(())
    }
}
