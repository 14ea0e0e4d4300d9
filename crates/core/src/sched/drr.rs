//! DRR: deficit round robin.
//!
//! M. Shreedhar, G. Varghese, *Efficient fair queueing using deficit round
//! robin*, SIGCOMM 1995. Active entities take turns in a circle; each turn adds a
//! quantum in proportion to the weight to the entity's deficit, and the entity
//! sends while its deficit covers its head.
//!
//! O(1) needs a quantum of at least the entity's own longest packet, else an
//! entity is visited for nothing, round after round. The quantum is therefore
//! `weight x unit` with one `unit` for all: the largest `max_length / weight`
//! among the entities ever added, rounded up. Fairness is coarse in exchange: an entity
//! may wait for a quantum of every other one, O(N) (Eq. 15 of the QFQ+ paper).

use super::Standing;
use super::ring::{Linked, Ring};
use crate::ensure_invariant;
use crate::scheduler::{Entities, EntityId, Link, Removal, Scheduler, Share, Violation};
use crate::units::{Charge, Nanos, Weight};

/// State of one entity.
#[derive(Clone, Copy, Debug, Default)]
pub struct DrrEntity {
    /// Bytes it may still send in its present turn, or in its next one.
    deficit: i64,
    weight: i64,
    next: Link,
    state: Standing,
}

impl Linked for DrrEntity {
    #[inline]
    fn next(&mut self) -> &mut Link {
        &mut self.next
    }
}

/// Deficit round robin.
#[derive(Clone, Debug)]
pub struct Drr {
    /// The active entities.
    active: Ring,
    /// Quantum of weight 1, in bytes: 1 to 65,535.
    unit: i64,
}

const _: () = assert!(size_of::<DrrEntity>() <= 24);

impl Default for Drr {
    fn default() -> Self {
        Drr {
            active: Ring::default(),
            unit: 1,
        }
    }
}

impl Drr {
    /// An empty round.
    pub fn new() -> Self {
        Self::default()
    }

    fn admit(&mut self, share: Share) {
        let unit = share.max_charge().get().div_ceil(share.weight().get());
        self.unit = self.unit.max(unit.into());
    }

    /// A quantum of weight 1 covers `charge` from now on.
    pub(super) fn cover(&mut self, charge: Charge) {
        self.unit = self.unit.max(charge.get().into());
    }

    #[inline]
    fn quantum(&self, entity: &DrrEntity) -> i64 {
        entity.weight * self.unit
    }

    #[inline(never)]
    fn insert<E: Entities<DrrEntity> + ?Sized>(&mut self, entities: &mut E, id: EntityId) {
        self.active.push_last(entities, id);
    }
}

impl Scheduler for Drr {
    type Entity = DrrEntity;
    const NAME: &'static str = "drr";

    fn add<E: Entities<DrrEntity> + ?Sized>(
        &mut self,
        entities: &mut E,
        id: EntityId,
        share: Share,
    ) {
        self.admit(share);
        *entities.entity_mut(id) = DrrEntity {
            weight: share.weight().get().into(),
            ..DrrEntity::default()
        };
    }

    fn remove<E: Entities<DrrEntity> + ?Sized>(
        &mut self,
        entities: &mut E,
        id: EntityId,
    ) -> Removal {
        let entity = entities.entity_mut(id);
        if entity.state == Standing::Inactive {
            *entity = DrrEntity::default();
            Removal::Done
        } else {
            entity.state = Standing::Leaving;
            Removal::WhenSelected
        }
    }

    fn change<E: Entities<DrrEntity> + ?Sized>(
        &mut self,
        entities: &mut E,
        id: EntityId,
        share: Share,
    ) {
        self.admit(share);
        entities.entity_mut(id).weight = share.weight().get().into();
    }

    fn weight<E: Entities<DrrEntity> + ?Sized>(&self, entities: &E, id: EntityId) -> Weight {
        Weight::of_entity(entities.entity(id).weight as u32).unwrap_or(Weight::ONE)
    }

    fn is_active<E: Entities<DrrEntity> + ?Sized>(&self, entities: &E, id: EntityId) -> bool {
        entities.entity(id).state != Standing::Inactive
    }

    #[inline]
    fn backlogged<E: Entities<DrrEntity> + ?Sized>(
        &mut self,
        entities: &mut E,
        id: EntityId,
        head: Charge,
    ) {
        let entity = entities.entity_mut(id);
        if entity.state == Standing::Inactive {
            entity.state = Standing::Active;
            entity.deficit = self.quantum(entity);
            self.insert(entities, id);
        } else {
            // A head that grew while its flow waited is let through once, so that
            // the deficit of a waiting entity always covers its head.
            entity.deficit = entity.deficit.max(head.get().into());
        }
    }

    #[inline]
    fn select<E: Entities<DrrEntity> + ?Sized>(&self, _: &E, _: Nanos) -> Link {
        self.active.head
    }

    #[inline]
    fn hold<E: Entities<DrrEntity> + ?Sized>(&mut self, _: &mut E, _: EntityId) {}

    #[inline]
    fn served(&mut self, _: Charge) {}

    #[inline]
    fn reschedule<E: Entities<DrrEntity> + ?Sized>(
        &mut self,
        entities: &mut E,
        id: EntityId,
        charged: Charge,
        next: Option<Charge>,
    ) {
        let Some(next) = next else {
            return self.idle(entities, id);
        };
        let entity = entities.entity_mut(id);
        let mut deficit = entity.deficit - i64::from(charged.get());
        if deficit < i64::from(next.get()) {
            deficit += self.quantum(entity);
            self.active.turn(id, entity.next);
        }
        entity.deficit = deficit;
    }

    #[inline(never)]
    fn idle<E: Entities<DrrEntity> + ?Sized>(&mut self, entities: &mut E, id: EntityId) {
        let entity = entities.entity_mut(id);
        if entity.state == Standing::Inactive {
            return;
        }
        // An idle entity keeps no credit.
        entity.deficit = 0;
        if entity.state == Standing::Leaving {
            entity.weight = 0;
        }
        entity.state = Standing::Inactive;
        self.active.pop_head(entities, id);
    }

    fn invariants<E: Entities<DrrEntity> + ?Sized>(
        &self,
        entities: &E,
        count: usize,
    ) -> Result<(), Violation> {
        let mut listed = alloc::vec![false; count];
        let named = |Violation(what)| Violation(alloc::format!("drr: {what}"));
        self.active.check(entities, &mut listed).map_err(named)?;
        for id in (0..count).filter_map(EntityId::new) {
            let entity = entities.entity(id);
            let active = entity.state != Standing::Inactive;
            ensure_invariant!(
                active == listed[id.index()],
                "drr: {id:?} is {:?} and {}in the round",
                entity.state,
                if listed[id.index()] { "" } else { "not " }
            );
            ensure_invariant!(
                active || (entity.deficit == 0 && entity.next == Link::NONE),
                "drr: inactive {id:?} keeps a deficit or a link"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Length;

    fn share(weight: u32, max_length: u32) -> Share {
        Share::new(
            Weight::new(weight).unwrap(),
            Length::new(max_length).unwrap(),
        )
    }

    #[test]
    fn every_quantum_covers_the_longest_packet_of_its_entity() {
        let mut drr = Drr::new();
        let mut entities: alloc::vec::Vec<DrrEntity> = alloc::vec![];
        let mut shares = alloc::vec![];
        for (weight, max_length, unit) in [
            (1_000_000, 65_535, 1),
            (1500, 1500, 1),
            (1499, 1500, 2),
            (750, 1500, 2),
            (749, 1500, 3),
            (1_000_000, 1, 3),
            (1, 65_535, 65_535),
        ] {
            let share = share(weight, max_length);
            let id = EntityId::new(entities.len()).unwrap();
            entities.push(DrrEntity::default());
            shares.push(share);
            drr.add(&mut entities, id, share);
            assert_eq!(drr.unit, unit, "{share:?}");
            for (entity, share) in entities.iter().zip(&shares) {
                assert!(drr.quantum(entity) >= i64::from(share.max_charge().get()));
            }
        }
    }

    #[test]
    fn a_change_of_share_can_raise_the_unit_and_never_lowers_it() {
        let mut drr = Drr::new();
        let mut entities = alloc::vec![DrrEntity::default()];
        let id = EntityId::new(0).unwrap();
        drr.add(&mut entities, id, share(100, 1500));
        assert_eq!(drr.unit, 15);
        drr.change(&mut entities, id, share(100, 1501));
        assert_eq!(drr.unit, 16);
        drr.change(&mut entities, id, share(1000, 100));
        assert_eq!((drr.unit, drr.quantum(&entities[0])), (16, 16_000));
        assert_eq!(drr.weight(&entities, id).get(), 1000);
    }

    #[test]
    fn a_turn_that_was_cut_short_leaves_no_deficit() {
        let mut drr = Drr::new();
        let mut entities = alloc::vec![DrrEntity::default()];
        let (id, len) = (EntityId::new(0).unwrap(), Charge::new(100).unwrap());
        drr.add(&mut entities, id, share(1, 1500));
        for _ in 0..3 {
            drr.backlogged(&mut entities, id, len);
            assert_eq!(entities[0].deficit, 1500);
            drr.reschedule(&mut entities, id, len, Some(len));
            assert_eq!(entities[0].deficit, 1400);
            drr.reschedule(&mut entities, id, len, None);
            assert_eq!(entities[0].deficit, 0);
        }
    }
}
