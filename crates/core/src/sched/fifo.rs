//! FIFO: packets leave in the order in which they came, whoever sent them.
//!
//! The baseline of the QFQ report's measurements (Section 7.1). It gives no
//! guarantee: each flow receives the link in proportion to what it offers. A packet
//! costs O(1); removing a flow, or discarding packets of it, costs O(packets queued in
//! all), unlike in the other algorithms.

use crate::ensure_invariant;
use crate::scheduler::{Entities, EntityId, Link, Removal, Scheduler, Share, Violation};
use crate::units::{Charge, Nanos, Weight};
use alloc::collections::VecDeque;

/// State of one entity.
#[derive(Clone, Copy, Debug, Default)]
pub struct FifoEntity {
    weight: Option<Weight>,
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
}

impl Scheduler for Fifo {
    type Entity = FifoEntity;
    const NAME: &'static str = "fifo";

    fn add<E: Entities<FifoEntity> + ?Sized>(
        &mut self,
        entities: &mut E,
        id: EntityId,
        share: Share,
    ) {
        *entities.entity_mut(id) = FifoEntity {
            weight: Some(share.weight()),
        };
    }

    fn remove<E: Entities<FifoEntity> + ?Sized>(
        &mut self,
        entities: &mut E,
        id: EntityId,
    ) -> Removal {
        self.discarded(entities, id, u32::MAX);
        *entities.entity_mut(id) = FifoEntity::default();
        Removal::Done
    }

    fn change<E: Entities<FifoEntity> + ?Sized>(
        &mut self,
        entities: &mut E,
        id: EntityId,
        share: Share,
    ) {
        entities.entity_mut(id).weight = Some(share.weight());
    }

    fn weight<E: Entities<FifoEntity> + ?Sized>(&self, entities: &E, id: EntityId) -> Weight {
        entities.entity(id).weight.unwrap_or(Weight::ONE)
    }

    /// O(packets queued), unlike others: FIFO knows no entities, only arrivals.
    fn is_active<E: Entities<FifoEntity> + ?Sized>(&self, _: &E, id: EntityId) -> bool {
        self.arrivals.contains(&id)
    }

    #[inline]
    fn backlogged<E: Entities<FifoEntity> + ?Sized>(&mut self, _: &mut E, _: EntityId, _: Charge) {}

    #[inline]
    fn arrived<E: Entities<FifoEntity> + ?Sized>(&mut self, _: &mut E, id: EntityId, _: Charge) {
        self.arrivals.push_back(id);
    }

    fn discarded<E: Entities<FifoEntity> + ?Sized>(
        &mut self,
        _: &mut E,
        id: EntityId,
        packets: u32,
    ) {
        let mut left = packets;
        self.arrivals.retain(|&other| {
            let drop = other == id && left > 0;
            left -= u32::from(drop);
            !drop
        });
    }

    #[inline]
    fn select<E: Entities<FifoEntity> + ?Sized>(&self, _: &E, _: Nanos) -> Link {
        self.arrivals.front().map_or(Link::NONE, |&id| Link::to(id))
    }

    #[inline]
    fn hold<E: Entities<FifoEntity> + ?Sized>(&mut self, _: &mut E, _: EntityId) {}

    #[inline]
    fn served(&mut self, _: Charge) {}

    #[inline]
    fn reschedule<E: Entities<FifoEntity> + ?Sized>(
        &mut self,
        _: &mut E,
        id: EntityId,
        _charged: Charge,
        _next: Option<Charge>,
    ) {
        debug_assert_eq!(self.arrivals.front(), Some(&id), "it is the selected one");
        self.arrivals.pop_front();
    }

    fn idle<E: Entities<FifoEntity> + ?Sized>(&mut self, _: &mut E, id: EntityId) {
        if self.arrivals.front() == Some(&id) {
            self.arrivals.pop_front();
        }
    }

    fn invariants<E: Entities<FifoEntity> + ?Sized>(
        &self,
        entities: &E,
        count: usize,
    ) -> Result<(), Violation> {
        for &id in &self.arrivals {
            ensure_invariant!(
                id.index() < count && entities.entity(id).weight.is_some(),
                "fifo: {id:?} has a place and was never added"
            );
        }
        Ok(())
    }
}
