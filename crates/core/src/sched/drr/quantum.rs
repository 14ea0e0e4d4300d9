//! DRR with a quantum that is given, and may be smaller than packets.

use super::{Drr, DrrEntity, bytes};
use crate::scheduler::{
    Entities, EntityId, Holds, MaybeEntity, Removal, Scheduler, Share, Violation,
};
use crate::units::{Charge, Length, Weight};
use alloc::vec::Vec;

/// Deficit round robin with a given quantum for the lightest entity, and quanta of the others in
/// proportion to their weights: the paper's algorithm to the letter.
///
/// An entity whose deficit does not cover its head is skipped, and its next turn adds another quantum: a packet costs
/// up to `L^k / Q^k` visits of its entity. [`Drr`] itself has quanta that are large enough for O(1).
///
/// ```
/// use fairlane_core::sched::DrrOfQuantum;
/// use fairlane_core::{FlowConfig, Length, PacketScheduler, Weight};
///
/// // A packet of 750 bytes waits for its second quantum of 500.
/// let [quantum, len] = [500, 750].map(|bytes| Length::new(bytes).unwrap());
/// let mut link = PacketScheduler::new(DrrOfQuantum::new(quantum), Default::default());
/// let flows = [1, 2].map(|_| link.add_flow(FlowConfig::new(Weight::ONE, len)).unwrap());
/// link.enqueue(flows[0], len, "750 bytes")?;
/// link.enqueue(flows[1], quantum, "500 bytes")?;
/// assert_eq!(link.dequeue().unwrap().payload, "500 bytes");
/// # Ok::<(), fairlane_core::Rejected<&str>>(())
/// ```
#[derive(Clone, Debug)]
pub struct DrrOfQuantum {
    /// Of entities whose longest packet is the quantum, so that it is the quantum of the lightest.
    drr: Drr,
    quantum: Charge,
    /// The next charge of each entity that was ever active.
    heads: Vec<Charge>,
}

impl DrrOfQuantum {
    /// Creates an empty round.
    pub fn new(quantum: Length) -> Self {
        DrrOfQuantum {
            drr: Drr::new(),
            quantum: quantum.into(),
            heads: Vec::new(),
        }
    }

    fn share(&self, share: Share) -> Share {
        Share::new(share.weight(), self.quantum)
    }

    fn note(&mut self, id: EntityId, head: Charge) {
        if self.heads.len() <= id.index() {
            self.heads.resize(id.index() + 1, head);
        }
        self.heads[id.index()] = head;
    }
}

/// O(1), except for [`settle`](Scheduler::settle): O(`L^k / Q^k`) for each packet of an entity k.
impl Scheduler for DrrOfQuantum {
    type Entity = DrrEntity;
    const NAME: &'static str = Drr::<super::Packets>::NAME;

    fn add(&mut self, entities: &mut [impl Holds<DrrEntity>], id: EntityId, share: Share) {
        self.drr.add(entities, id, self.share(share));
    }

    fn remove(&mut self, entities: &mut [impl Holds<DrrEntity>], id: EntityId) -> Removal {
        self.drr.remove(entities, id)
    }

    fn change(&mut self, entities: &mut [impl Holds<DrrEntity>], id: EntityId, share: Share) {
        self.drr.change(entities, id, self.share(share));
    }

    fn weight(&self, entities: &[impl Holds<DrrEntity>], id: EntityId) -> Weight {
        self.drr.weight(entities, id)
    }

    fn is_active(&self, entities: &[impl Holds<DrrEntity>], id: EntityId) -> bool {
        self.drr.is_active(entities, id)
    }

    /// A head is never let through because of its length: it waits for its quanta.
    #[inline]
    fn backlogged(&mut self, entities: &mut [impl Holds<DrrEntity>], id: EntityId, head: Charge) {
        self.note(id, head);
        self.drr.backlogged(entities, id, head.min(self.quantum));
    }

    /// Skips entities whose deficits do not cover their heads.
    fn settle(&mut self, entities: &mut [impl Holds<DrrEntity>]) {
        while let Some(id) = self.drr.select(entities).get()
            && let Some(&head) = self.heads.get(id.index())
            && entities.entity(id).deficit < bytes(head)
        {
            self.drr.end_turn(entities, id, head.min(self.quantum));
        }
    }

    #[inline]
    fn select(&self, entities: &[impl Holds<DrrEntity>]) -> MaybeEntity {
        self.drr.select(entities)
    }

    #[inline]
    fn hold(&mut self, _: &mut [impl Holds<DrrEntity>], _: EntityId) {}

    #[inline]
    fn served(&mut self, _: Charge) {}

    fn reschedule(
        &mut self,
        entities: &mut [impl Holds<DrrEntity>],
        id: EntityId,
        charged: Charge,
        next: Option<Charge>,
    ) {
        if let Some(next) = next {
            self.note(id, next);
        }
        self.drr.reschedule(entities, id, charged, next);
    }

    #[inline]
    fn allowance(&self, entities: &[impl Holds<DrrEntity>], id: EntityId, next: Charge) -> u32 {
        self.drr.allowance(entities, id, next)
    }

    #[inline]
    fn used(&mut self, entities: &mut [impl Holds<DrrEntity>], id: EntityId, work: Charge) {
        self.drr.used(entities, id, work);
    }

    fn idle(&mut self, entities: &mut [impl Holds<DrrEntity>], id: EntityId) {
        self.drr.idle(entities, id);
    }

    fn invariants(&self, entities: &[impl Holds<DrrEntity>]) -> Result<(), Violation> {
        self.drr.invariants(entities)
    }
}
