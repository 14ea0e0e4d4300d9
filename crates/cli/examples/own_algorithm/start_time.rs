//! Start-time fair queueing (Goyal, Vin, Cheng 1996) in a minimal form: the entity whose packet has the smallest
//! virtual start time is served next, and virtual time is the start of the packet served last. An operation costs O(n)
//! in the backlogged entities.

use std::collections::VecDeque;

use fairlane_core::bounds::{Head, Siblings, Transmit, Wfi, Work};
use fairlane_core::sched::CustomAlgorithm;
use fairlane_core::scheduler::{
    Entities, EntityId, Holds, MaybeEntity, Removal, Scheduler, Violation,
};
use fairlane_core::{Charge, Length, Share, VirtualTime, Weight};

/// State of an entity.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tagged {
    /// The start of its next packet, or the end of its last one.
    start: VirtualTime,
    weight: Weight,
    longest: u32,
    active: bool,
}

impl Default for Tagged {
    fn default() -> Self {
        Tagged {
            start: VirtualTime::new(0),
            weight: Weight::ONE,
            longest: 0,
            active: false,
        }
    }
}

impl Tagged {
    /// Returns the virtual time of `bytes` bytes, with 40 bits of fraction.
    fn span(&self, bytes: u32) -> u64 {
        (u64::from(bytes) << 40) / u64::from(self.weight.get())
    }
}

/// The algorithm.
#[derive(Clone, Debug)]
pub(crate) struct StartTime {
    /// Backlogged entities by start, except that one on hold is first.
    order: VecDeque<(VirtualTime, EntityId)>,
    held: bool,
    now: VirtualTime,
}

impl Default for StartTime {
    fn default() -> Self {
        StartTime {
            order: VecDeque::new(),
            held: false,
            now: VirtualTime::new(0),
        }
    }
}

impl StartTime {
    fn insert(&mut self, start: VirtualTime, id: EntityId) {
        let before = |&(other, _): &(VirtualTime, EntityId)| !other.is_after(start);
        let at = self.order.partition_point(before);
        self.order.insert(at.max(self.held.into()), (start, id));
    }

    /// Removes the first entity, whose turn ends.
    fn take(&mut self) {
        self.held = false;
        if let Some((start, _)) = self.order.pop_front() {
            self.now = start;
        }
    }
}

impl Scheduler for StartTime {
    type Entity = Tagged;
    const NAME: &'static str = "start-time";

    fn add(&mut self, entities: &mut [impl Holds<Tagged>], id: EntityId, share: Share) {
        *entities.entity_mut(id) = Tagged::default();
        self.change(entities, id, share);
    }

    fn remove(&mut self, entities: &mut [impl Holds<Tagged>], id: EntityId) -> Removal {
        match self.is_active(entities, id) {
            true => Removal::WhenSelected,
            false => Removal::Done,
        }
    }

    fn change(&mut self, entities: &mut [impl Holds<Tagged>], id: EntityId, share: Share) {
        let entity = entities.entity_mut(id);
        (entity.weight, entity.longest) = (share.weight(), share.max_charge().get());
    }

    fn weight(&self, entities: &[impl Holds<Tagged>], id: EntityId) -> Weight {
        entities.entity(id).weight
    }

    fn is_active(&self, entities: &[impl Holds<Tagged>], id: EntityId) -> bool {
        entities.entity(id).active
    }

    fn backlogged(&mut self, entities: &mut [impl Holds<Tagged>], id: EntityId, _: Charge) {
        let entity = entities.entity_mut(id);
        if entity.active {
            return;
        }
        entity.active = true;
        // An entity idle for long has neither credit nor debt, even after virtual time has wrapped.
        let debt = entity.start.distance_from(self.now);
        if !(0..=entity.span(entity.longest) as i64).contains(&debt) {
            entity.start = self.now;
        }
        let start = entity.start;
        self.insert(start, id);
    }

    fn select(&self, _: &[impl Holds<Tagged>]) -> MaybeEntity {
        let first = self.order.front();
        first.map_or(MaybeEntity::NONE, |&(_, id)| MaybeEntity::of(id))
    }

    fn hold(&mut self, _: &mut [impl Holds<Tagged>], _: EntityId) {
        self.held = true;
    }

    fn served(&mut self, _: Charge) {}

    fn reschedule(
        &mut self,
        entities: &mut [impl Holds<Tagged>],
        id: EntityId,
        charged: Charge,
        next: Option<Charge>,
    ) {
        let entity = entities.entity_mut(id);
        entity.start = entity.start.advanced(entity.span(charged.get()));
        entity.active = next.is_some();
        self.take();
        if next.is_some() {
            let start = entities.entity(id).start;
            self.insert(start, id);
        }
    }

    fn idle(&mut self, entities: &mut [impl Holds<Tagged>], id: EntityId) {
        if std::mem::take(&mut entities.entity_mut(id).active) {
            self.take();
        }
    }

    fn invariants(&self, entities: &[impl Holds<Tagged>]) -> Result<(), Violation> {
        let listed = |&(start, id): &(VirtualTime, EntityId)| {
            let entity = entities.entity(id);
            entity.active && entity.start == start
        };
        match self.order.iter().all(listed) {
            true => Ok(()),
            false => Err(Violation("an entity has another's place".to_owned())),
        }
    }
}

impl CustomAlgorithm for StartTime {
    const ABOUT: &'static str = "Start-time fair queueing: the earliest virtual start is next";

    /// Let v go from v1 to v2 while a flow k is backlogged. Each other flow j sends packets that start in between: at
    /// most `phi_j (v2 - v1)` and the rest of one packet, L_j. Flow k sends at least `phi_k (v2 - v1)` less one packet,
    /// L_k. So all of them together send `W <= (W_k + (1 - phi_k) L_k) / phi_k + (sum of the others' L_j)`. A packet
    /// also waits for those queued before it, and for as many bytes that its flow sent before it became empty. The
    /// length of a head packet is not needed before it is sent.
    fn bound(
        siblings: &Siblings,
        weight: Weight,
        length: Length,
        _: Head,
        transmit: Transmit,
    ) -> Option<Wfi> {
        let bytes = |length: Length| f64::from(length.get());
        let all = siblings.children();
        let all: f64 = all
            .map(|(_, length, count)| bytes(length) * f64::from(count))
            .sum();
        let share = siblings.share(weight);
        let queued = transmit.work(siblings.longest()).bytes();
        let delay = all - bytes(length) + (1.0 / share - 1.0) * bytes(length) + queued;
        Some(Wfi {
            strict: true,
            service: Work::new(share * delay)?,
            delay: Work::new(delay)?,
            latency: Work::new(delay)?,
            turn: Work::ZERO,
        })
    }
}
