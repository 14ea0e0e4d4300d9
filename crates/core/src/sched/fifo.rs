//! FIFO: packets leave in the order of arrival, whatever their flow.
//!
//! The baseline of the QFQ report's measurements (Section 7.1). It gives no guarantee: each flow receives the link in
//! proportion to its offered load. A packet costs O(1) amortised; removing a flow, or discarding packets of it, costs
//! O(packets queued in all), unlike with the other algorithms.

use crate::cost::MAX_COST;
use crate::ensure_invariant;
use crate::scheduler::{
    Entities, EntityId, Holds, MaybeEntity, Removal, Scheduler, Share, Violation,
};
use crate::units::{Charge, Weight};
use alloc::vec::Vec;

/// State of one entity.
#[derive(Clone, Copy, Debug, Default)]
pub struct FifoEntity {
    weight: Option<Weight>,
}

/// First in, first out: one place for each packet, in one table.
///
/// Places are filled from one end to the other, and those that are left then move to the front if
/// they are no more than half of it: for each that moves, another was served before. Else the
/// table grows. A ring would ask at each packet where it ends.
#[derive(Clone, Debug, Default)]
pub struct Fifo {
    /// Unused from `filled` on.
    places: Vec<MaybeEntity>,
    /// Places that were served.
    served: usize,
    /// Places that were given to a packet.
    filled: usize,
}

impl Fifo {
    /// Creates an empty FIFO.
    pub fn new() -> Self {
        Self::default()
    }

    /// Those that wait, the first one first.
    fn waiting(&self) -> &[MaybeEntity] {
        self.places
            .get(self.served..self.filled)
            .unwrap_or_default()
    }

    /// Drops the places that were served.
    fn forget(&mut self) {
        let waiting = self.filled - self.served;
        self.places.copy_within(self.served..self.filled, 0);
        self.places[waiting..self.filled].fill(MaybeEntity::NONE);
        (self.served, self.filled) = (0, waiting);
    }

    /// The table is full when a packet comes.
    #[cold]
    #[inline(never)]
    fn arrived_at_the_end(&mut self, id: EntityId) {
        let places = self.places.len();
        if self.served < places.div_ceil(2).max(1) {
            self.places.resize((2 * places).max(8), MaybeEntity::NONE);
        } else {
            self.forget();
        }
        self.places[self.filled] = MaybeEntity::of(id);
        self.filled += 1;
    }
}

impl Scheduler for Fifo {
    type Entity = FifoEntity;
    const NAME: &'static str = "fifo";
    const LARGEST: u32 = MAX_COST;
    const FOLLOWS_PACKETS: bool = true;

    fn add(&mut self, entities: &mut [impl Holds<FifoEntity>], id: EntityId, share: Share) {
        *entities.entity_mut(id) = FifoEntity {
            weight: Some(share.weight()),
        };
    }

    fn remove(&mut self, entities: &mut [impl Holds<FifoEntity>], id: EntityId) -> Removal {
        self.discarded(entities, id, u32::MAX);
        *entities.entity_mut(id) = FifoEntity::default();
        Removal::Done
    }

    fn change(&mut self, entities: &mut [impl Holds<FifoEntity>], id: EntityId, share: Share) {
        entities.entity_mut(id).weight = Some(share.weight());
    }

    fn weight(&self, entities: &[impl Holds<FifoEntity>], id: EntityId) -> Weight {
        entities.entity(id).weight.unwrap_or(Weight::ONE)
    }

    /// O(packets queued), unlike others: FIFO knows no entities, only arrivals.
    fn is_active(&self, _: &[impl Holds<FifoEntity>], id: EntityId) -> bool {
        self.waiting().contains(&MaybeEntity::of(id))
    }

    #[inline]
    fn backlogged(&mut self, _: &mut [impl Holds<FifoEntity>], _: EntityId, _: Charge) {}

    #[inline]
    fn arrived(&mut self, _: &mut [impl Holds<FifoEntity>], id: EntityId, _: Charge) {
        match self.places.get_mut(self.filled) {
            Some(place) => {
                *place = MaybeEntity::of(id);
                self.filled += 1;
            }
            None => self.arrived_at_the_end(id),
        }
    }

    fn discarded(&mut self, _: &mut [impl Holds<FifoEntity>], id: EntityId, packets: u32) {
        let mut left = packets;
        let mut kept = 0;
        for place in self.served..self.filled {
            let waiting = core::mem::replace(&mut self.places[place], MaybeEntity::NONE);
            if waiting == MaybeEntity::of(id) && left > 0 {
                left -= 1;
            } else {
                self.places[self.served + kept] = waiting;
                kept += 1;
            }
        }
        self.filled = self.served + kept;
    }

    /// Its place is the first one, which need not be looked for.
    fn dropped_first(&mut self, entities: &mut [impl Holds<FifoEntity>], id: EntityId) {
        self.idle(entities, id);
    }

    #[inline]
    fn select(&self, _: &[impl Holds<FifoEntity>]) -> MaybeEntity {
        let first = self.places.get(self.served);
        first.copied().unwrap_or(MaybeEntity::NONE)
    }

    #[inline]
    fn hold(&mut self, _: &mut [impl Holds<FifoEntity>], _: EntityId) {}

    #[inline]
    fn served(&mut self, _: Charge) {}

    #[inline]
    fn reschedule(
        &mut self,
        _: &mut [impl Holds<FifoEntity>],
        id: EntityId,
        _charged: Charge,
        _next: Option<Charge>,
    ) {
        debug_assert_eq!(
            self.waiting().first(),
            Some(&MaybeEntity::of(id)),
            "it is the selected one"
        );
        self.served += 1;
    }

    fn idle(&mut self, _: &mut [impl Holds<FifoEntity>], id: EntityId) {
        if self.waiting().first() == Some(&MaybeEntity::of(id)) {
            self.served += 1;
        }
    }

    fn invariants(&self, entities: &[impl Holds<FifoEntity>]) -> Result<(), Violation> {
        ensure_invariant!(
            self.served <= self.filled && self.filled <= self.places.len(),
            "fifo: {} of {} places were served, of a table of {}",
            self.served,
            self.filled,
            self.places.len()
        );
        let free = &self.places[self.filled..];
        ensure_invariant!(
            free.iter().all(|&place| place == MaybeEntity::NONE),
            "fifo: a place behind the last packet is in use"
        );
        for id in self.waiting() {
            ensure_invariant!(
                id.get().is_some_and(
                    |id| id.index() < entities.len() && entities.entity(id).weight.is_some()
                ),
                "fifo: {id:?} has a place and was never added"
            );
        }
        Ok(())
    }
}
