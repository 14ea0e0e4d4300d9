//! The smallest eligible finish time first (SEFF): the order of WF2Q and WF2Q+.
//!
//! Two heaps: of the entities that may be served, S <= V, by F, and of the others by S. As V advances, entities move
//! from the second to the first; each move is paid for by the service that put the entity into the second.

use super::Standing;
use super::clock::FRACTION;
use super::heap::{Heap, Key, Keyed, Numbered};
use crate::ensure_invariant;
use crate::scheduler::{EntityId, MaybeEntity, Violation};
use crate::units::{MAX_LENGTH, VirtualTime};
use core::marker::PhantomData;

/// The distance before V at which an entity on hold finishes, by its place: further than any other.
const HELD: u64 = 1 << 61;

/// More than one service adds to a timestamp.
pub(super) const FURTHEST: i64 = (MAX_LENGTH as i64 + 1) << FRACTION;

const _: () = assert!(HELD as i64 >= 16 * FURTHEST);

/// The place of an entity: the start and finish of its next service.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// S.
    pub start: VirtualTime,
    /// F.
    pub finish: VirtualTime,
    pub entity: MaybeEntity,
}

impl Keyed for Place {
    type Key = VirtualTime;

    #[inline]
    fn key(&self) -> VirtualTime {
        self.start
    }
}

/// The order of eligible entities whose finish times are equal.
pub(super) trait Ties: Copy + Default + core::fmt::Debug {
    /// The type that eligible entities are sorted by.
    type Key: Key;

    fn key(finish: VirtualTime, entity: MaybeEntity) -> Self::Key;
}

/// The entity with the lowest number goes first. A heap of equal finish times then has an order to
/// keep, at O(log N) for each entity that leaves it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LowestFirst;

impl Ties for LowestFirst {
    type Key = Numbered;

    #[inline]
    fn key(finish: VirtualTime, entity: MaybeEntity) -> Numbered {
        Numbered::new(finish, entity)
    }
}

/// The order in which the heap happens to hold them: the same for the same statements.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AsHeld;

impl Ties for AsHeld {
    type Key = VirtualTime;

    #[inline]
    fn key(finish: VirtualTime, _: MaybeEntity) -> VirtualTime {
        finish
    }
}

/// An eligible entity.
#[derive(Clone, Copy, Debug)]
struct Eligible<T> {
    /// F.
    finish: VirtualTime,
    entity: MaybeEntity,
    ties: PhantomData<T>,
}

impl<T: Ties> Keyed for Eligible<T> {
    type Key = T::Key;

    #[inline]
    fn key(&self) -> T::Key {
        T::key(self.finish, self.entity)
    }
}

impl<T> From<Place> for Eligible<T> {
    #[inline]
    fn from(place: Place) -> Eligible<T> {
        Eligible {
            finish: place.finish,
            entity: place.entity,
            ties: PhantomData,
        }
    }
}

/// Entities by eligibility. While there are any, one is eligible: the caller lets V jump
/// for that ([`next_start`](Self::next_start)).
#[derive(Clone, Debug, Default)]
pub(super) struct Seff<T: Ties> {
    eligible: Heap<Eligible<T>>,
    ineligible: Heap<Place>,
}

impl<T: Ties> Seff<T> {
    /// Returns whether no entity has a place.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.eligible.is_empty() && self.ineligible.is_empty()
    }

    /// Returns the first start to come, if no entity is eligible.
    pub(super) fn start_if_none(&self) -> Option<VirtualTime> {
        let next = self.ineligible.first().filter(|_| self.eligible.is_empty());
        next.map(|place| place.start)
    }

    /// Returns the eligible entity with the smallest F.
    #[inline]
    pub(super) fn first(&self) -> MaybeEntity {
        self.eligible
            .first()
            .map_or(MaybeEntity::NONE, |first| first.entity)
    }

    /// Holds the first entity: it stays the first until it is replaced or removed, whatever entities arrive.
    #[inline]
    pub(super) fn hold(&mut self, now: VirtualTime) {
        if let Some(first) = self.eligible.first_mut() {
            first.finish = now.advanced(HELD.wrapping_neg());
        }
    }

    /// Gives an entity a place.
    #[inline]
    pub(super) fn insert(&mut self, now: VirtualTime, place: Place) {
        if place.start.is_after(now) {
            self.ineligible.push(place);
        } else {
            self.eligible.push(place.into());
        }
    }

    /// Returns the first start ahead, if no entity but the first is eligible, and the first leaves or has another
    /// `start`.
    #[inline]
    pub(super) fn next_start(&self, start: Option<VirtualTime>) -> Option<VirtualTime> {
        if self.eligible.len() > 1 {
            return None;
        }
        match (self.ineligible.first(), start) {
            (Some(place), Some(start)) => Some(start.earlier(place.start)),
            (Some(place), None) => Some(place.start),
            (None, start) => start,
        }
    }

    /// Moves the first entity to another place, and makes those eligible that start by
    /// `now`.
    #[inline]
    pub(super) fn replace_first(&mut self, now: VirtualTime, place: Place) {
        let next = self.ineligible.first().copied();
        let next = next.filter(|next| !next.start.is_after(now));
        if !place.start.is_after(now) {
            self.eligible.replace_first(place.into());
        } else if let Some(next) = next {
            self.ineligible.replace_first(place);
            self.eligible.replace_first(next.into());
        } else {
            self.eligible.pop();
            self.ineligible.push(place);
            return;
        }
        self.make_eligible(now);
    }

    /// Takes the first entity out, and makes those eligible that start by `now`.
    #[inline]
    pub(super) fn remove_first(&mut self, now: VirtualTime) {
        self.eligible.pop();
        self.make_eligible(now);
    }

    /// Makes those eligible that start by `now`.
    #[inline]
    pub(super) fn make_eligible(&mut self, now: VirtualTime) {
        while let Some(next) = self.ineligible.first()
            && !next.start.is_after(now)
            && let Some(next) = self.ineligible.pop()
        {
            self.eligible.push(next.into());
        }
    }

    /// Checks that an entity is eligible if any has a place.
    pub(super) fn check_eligible(&self) -> Result<(), Violation> {
        let ineligible = self.ineligible.entries();
        ensure_invariant!(
            !self.eligible.is_empty() || ineligible.is_empty(),
            "seff: no entity is eligible while {ineligible:?} have places"
        );
        Ok(())
    }

    /// Returns whether the first entity is on hold.
    fn is_held(&self, now: VirtualTime) -> bool {
        let first = self.eligible.first();
        first.is_some_and(|first| now.distance_from(first.finish).unsigned_abs() > HELD / 2)
    }

    /// Checks the order of `count` entities: each active entity, by `standing`, has exactly one place and no other
    /// entity has one. `start` returns each one's S, which may be later than that of the place, if the head has
    /// changed.
    pub(super) fn check(
        &self,
        now: VirtualTime,
        entities: usize,
        standing: impl Fn(EntityId) -> Standing,
        start: impl Fn(EntityId) -> Result<VirtualTime, Violation>,
    ) -> Result<(), Violation> {
        let mut listed = alloc::vec![false; entities];
        let mut start = |id: EntityId| {
            ensure_invariant!(id.index() < entities, "seff: {id:?} was never added");
            let again = core::mem::replace(&mut listed[id.index()], true);
            ensure_invariant!(!again, "seff: {id:?} has two places");
            start(id)
        };
        let (eligible, ineligible) = (self.eligible.entries(), self.ineligible.entries());
        ensure_invariant!(
            self.eligible.is_sorted() && self.ineligible.is_sorted(),
            "seff: the heaps {eligible:?} and {ineligible:?} are not sorted"
        );
        let held = self.is_held(now);
        for (n, place) in eligible.iter().enumerate() {
            let start = place.entity.get().map_or(Ok(now), &mut start)?;
            let span = place.finish.distance_from(start);
            ensure_invariant!(
                !start.is_after(now) && ((held && n == 0) || span.abs() < 32 * FURTHEST),
                "seff: {place:?} is eligible from {start:?} on, V is {now:?}"
            );
        }
        for place in ineligible {
            let start = place.entity.get().map_or(Ok(now), &mut start)?;
            let span = place.finish.distance_from(start);
            ensure_invariant!(
                held || (place.start == start
                    && start.is_after(now)
                    && (1..FURTHEST).contains(&span)),
                "seff: {place:?} is not eligible from {start:?} on, V is {now:?}"
            );
        }
        for (id, listed) in (0..entities).filter_map(EntityId::new).zip(listed) {
            let state = standing(id);
            ensure_invariant!(
                listed == (state != Standing::Inactive),
                "seff: {id:?} is {state:?} and has a place: {listed}"
            );
        }
        Ok(())
    }
}
