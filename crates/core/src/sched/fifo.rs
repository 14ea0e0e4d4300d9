//! FIFO: packets leave in the order in which they came, whoever sent them.
//!
//! The baseline of the QFQ report's measurements (Section 7.1). It gives no
//! guarantee: each flow receives the link in proportion to what it offers.

use crate::ensure_invariant;
use crate::scheduler::{
    Entities, EntityId, Link, MAX_ENTITIES, Removal, Scheduler, Share, Violation,
};
use crate::units::{Length, Nanos, Weight};
use alloc::collections::VecDeque;

/// State of one entity.
#[derive(Clone, Copy, Debug, Default)]
pub struct FifoEntity {
    weight: Option<Weight>,
    queued: u32,
}

/// First in, first out: one ring of entities, one place for each packet.
#[derive(Clone, Debug, Default)]
pub struct Fifo {
    arrivals: VecDeque<EntityId>,
}

impl Fifo {
    /// An empty FIFO.
    pub fn new() -> Self {
        Self::default()
    }

    fn depart<E: Entities<FifoEntity>>(&mut self, entities: &mut E, id: EntityId) {
        debug_assert_eq!(
            self.arrivals.front(),
            Some(&id),
            "only the selected is served"
        );
        if self.arrivals.pop_front().is_some() {
            let entity = entities.entity_mut(id);
            entity.queued = entity.queued.saturating_sub(1);
        }
    }
}

impl Scheduler for Fifo {
    type Entity = FifoEntity;
    const NAME: &'static str = "fifo";

    fn add<E: Entities<FifoEntity>>(&mut self, entities: &mut E, id: EntityId, share: Share) {
        *entities.entity_mut(id) = FifoEntity {
            weight: Some(share.weight),
            queued: 0,
        };
    }

    fn remove<E: Entities<FifoEntity>>(&mut self, entities: &mut E, id: EntityId) -> Removal {
        let queued = entities.entity(id).queued;
        self.discarded(entities, id, queued);
        *entities.entity_mut(id) = FifoEntity::default();
        Removal::Done
    }

    fn change<E: Entities<FifoEntity>>(&mut self, entities: &mut E, id: EntityId, share: Share) {
        entities.entity_mut(id).weight = Some(share.weight);
    }

    fn weight<E: Entities<FifoEntity>>(&self, entities: &E, id: EntityId) -> Weight {
        entities.entity(id).weight.unwrap_or(Weight::ONE)
    }

    fn is_active<E: Entities<FifoEntity>>(&self, entities: &E, id: EntityId) -> bool {
        entities.entity(id).queued > 0
    }

    #[inline]
    fn backlogged<E: Entities<FifoEntity>>(&mut self, _: &mut E, _: EntityId, _: Length) {}

    #[inline]
    fn arrived<E: Entities<FifoEntity>>(&mut self, entities: &mut E, id: EntityId) {
        entities.entity_mut(id).queued += 1;
        self.arrivals.push_back(id);
    }

    fn discarded<E: Entities<FifoEntity>>(&mut self, entities: &mut E, id: EntityId, packets: u32) {
        let mut left = packets;
        self.arrivals.retain(|&other| {
            let drop = other == id && left > 0;
            left -= u32::from(drop);
            !drop
        });
        entities.entity_mut(id).queued -= packets - left;
    }

    #[inline]
    fn select<E: Entities<FifoEntity>>(&self, _: &E, _: Nanos) -> Link {
        self.arrivals.front().map_or(Link::NONE, |&id| Link::to(id))
    }

    #[inline]
    fn served(&mut self, _: Length) {}

    #[inline]
    fn reschedule<E: Entities<FifoEntity>>(
        &mut self,
        entities: &mut E,
        id: EntityId,
        _charged: Length,
        _next: Option<Length>,
    ) {
        self.depart(entities, id);
    }

    fn idle<E: Entities<FifoEntity>>(&mut self, entities: &mut E, id: EntityId) {
        if self.arrivals.front() == Some(&id) {
            self.depart(entities, id);
        }
    }

    fn invariants<E: Entities<FifoEntity>>(
        &self,
        entities: &E,
        count: usize,
    ) -> Result<(), Violation> {
        let mut places = alloc::vec![0u32; count.min(MAX_ENTITIES)];
        for id in &self.arrivals {
            ensure_invariant!(id.index() < count, "fifo: {id:?} was never added");
            places[id.index()] += 1;
        }
        for id in (0..count).filter_map(EntityId::new) {
            let (queued, places) = (entities.entity(id).queued, places[id.index()]);
            ensure_invariant!(
                queued == places,
                "fifo: {id:?} counts {queued} packets and has {places} places"
            );
        }
        Ok(())
    }
}
