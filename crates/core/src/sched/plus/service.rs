//! The service: one aggregate at a time until its budget is spent or its circle is empty, its flows in turn.

use super::super::Standing;
use super::super::ring::Ring;
use super::{Aggregate, NextPacket, Plus, PlusEntity, Service};
use crate::scheduler::{Entities, EntityId, Holds, MaybeEntity, Scheduler, Share};
use crate::units::Charge;

impl<A: Scheduler, H: NextPacket> Plus<A, H> {
    /// Returns the part of its budget that the aggregate in service has sent, given that the budget left it `slack`.
    #[inline]
    pub(super) fn spent(&self, slack: i32) -> i32 {
        slack - self.now.slack
    }

    /// Reports the link's work for the aggregate in service to the algorithm.
    #[inline]
    fn tell_work(&mut self, spent: i32) {
        let work = spent - core::mem::replace(&mut self.told, spent);
        if let Some(work) = Charge::in_range(work as u32) {
            self.algorithm.served(work);
        }
    }

    /// Reports the work of the aggregate in service so far, before the sum of weights or the order changes; from then
    /// on it is on hold.
    pub(super) fn catch_up(&mut self) {
        let Some(serving) = self.serving.get() else {
            return;
        };
        let spent = self.spent(self.aggregates[serving.index()].place.slack);
        if spent > self.told {
            self.tell_work(spent);
            self.algorithm.hold(self.aggregates.as_mut_slice(), serving);
        }
    }

    /// Puts an inactive flow at the end of the circle of its aggregate.
    #[inline(never)]
    pub(super) fn insert(
        &mut self,
        entities: &mut [impl Holds<PlusEntity<H>>],
        id: EntityId,
        head: Charge,
    ) {
        let entity = entities.entity_mut(id);
        let Some(home) = entity.aggregate.get() else {
            return;
        };
        let aggregate = &mut self.aggregates[home.index()];
        entity.deficit = aggregate.place.quantum().max(head.get() as i32);
        entity.alone = !H::SEEN && aggregate.members == 1;
        entity.head = H::of(head);
        let circle = match self.serving == MaybeEntity::of(home) {
            true => &mut self.now.circle,
            false => &mut aggregate.place.circle,
        };
        let was_empty = circle.head == MaybeEntity::NONE;
        circle.push_last(entities, id);
        if !was_empty {
            return;
        }
        let aggregate = &mut self.aggregates[home.index()];
        let budget = aggregate.next_budget;
        aggregate.place.slack = aggregate.next_slack;
        if let Some(serving) = self.serving.get() {
            if self.spent(self.aggregates[serving.index()].place.slack) == 0 {
                self.put_back();
            } else {
                self.catch_up();
            }
        }
        self.algorithm
            .backlogged(self.aggregates.as_mut_slice(), home, budget);
        self.algorithm
            .arrived(self.aggregates.as_mut_slice(), home, budget);
        if self.serving == MaybeEntity::NONE {
            self.begin_service();
        }
    }

    /// Returns the part of L^k that the rest of the budget need not cover: the difference between L^k and the next
    /// packet. Below 0 if that packet is longer, of a flow that moves.
    #[inline(always)]
    pub(super) fn shorter(&self, entities: &[impl Holds<PlusEntity<H>>]) -> i32 {
        match (H::SEEN, self.now.circle.head.get()) {
            (true, Some(first)) => self.now.quantum() - entities.entity(first).head.bytes(),
            _ => 0,
        }
    }

    /// Returns whether the present service is over: another flow's packet is next by now, or a longer one.
    pub(super) fn is_over(&self, entities: &[impl Holds<PlusEntity<H>>]) -> bool {
        let begun = |aggregate: &Aggregate<_>| self.now.slack < aggregate.place.slack;
        let serving = self.aggregates.get(self.serving.index());
        (!H::SEEN || serving.is_some_and(begun)) && self.now.slack + self.shorter(entities) < 0
    }

    /// Begins the service of the selected aggregate.
    #[inline]
    fn begin_service(&mut self) {
        // No algorithm that makes its entities wait for a time can be put below SCHED+.
        let selected = self.algorithm.select(self.aggregates.as_slice());
        self.serve(selected);
    }

    /// This aggregate is in service, or none.
    #[inline]
    pub(super) fn serve(&mut self, selected: MaybeEntity) {
        self.serving = selected;
        let Some(aggregate) = self.aggregates.get(selected.index()) else {
            return self.rest();
        };
        self.now = aggregate.place;
    }

    /// Ends the service: no aggregate is in service.
    #[cold]
    #[inline(never)]
    fn rest(&mut self) {
        self.now = Service::NONE;
    }

    /// Returns the aggregate in service, which has sent nothing, to the order.
    fn put_back(&mut self) {
        if let Some(aggregate) = self.aggregates.get_mut(self.serving.index()) {
            aggregate.place.circle = self.now.circle;
        }
        self.serving = MaybeEntity::NONE;
    }

    /// The budget is spent, and flows are left: the next aggregate, please.
    #[inline(never)]
    pub(super) fn end_service(&mut self) {
        let aggregates = self.aggregates.as_mut_slice();
        let Some(aggregate) = aggregates.get_mut(self.serving.index()) else {
            return;
        };
        let id = EntityId::in_use(self.serving.index() as u32);
        aggregate.place.circle = self.now.circle;
        let next = aggregate.next_budget;
        let slack = core::mem::replace(&mut aggregate.place.slack, aggregate.next_slack);
        let spent = slack - self.now.slack;
        let Some(charged) = Charge::in_range(spent as u32) else {
            return;
        };
        if self.told == 0 {
            self.algorithm.served(charged);
        } else {
            let told = core::mem::take(&mut self.told);
            if let Some(work) = Charge::in_range((spent - told) as u32) {
                self.algorithm.served(work);
            }
        }
        self.algorithm
            .reschedule(aggregates, id, charged, Some(next));
        self.algorithm.arrived(aggregates, id, next);
        self.begin_service();
    }

    /// The flow of an aggregate that has no other sent a packet, which is a budget, and has
    /// another: which aggregate is next.
    #[inline(always)]
    pub(super) fn reschedule_alone(&mut self, home: EntityId, charged: Charge) -> MaybeEntity {
        let aggregates = self.aggregates.as_mut_slice();
        let Some(aggregate) = aggregates.get(home.index()) else {
            return MaybeEntity::NONE;
        };
        let next = aggregate.next_budget;
        self.algorithm.served(charged);
        self.algorithm
            .reschedule(aggregates, home, charged, Some(next));
        self.algorithm.arrived(aggregates, home, next);
        self.algorithm.select(aggregates)
    }

    /// The same where the algorithm has little to do; else `None`, and nothing was done.
    #[inline(always)]
    pub(super) fn advance_alone(&mut self, home: EntityId, charged: Charge) -> Option<MaybeEntity> {
        let aggregates = self.aggregates.as_mut_slice();
        let next = aggregates.get(home.index())?.next_budget;
        if !self
            .algorithm
            .advance(aggregates, home, charged, Some(next))
        {
            return None;
        }
        self.algorithm.arrived(aggregates, home, next);
        Some(self.algorithm.select(aggregates))
    }

    /// The circle is empty: the next aggregate, please.
    #[inline(never)]
    fn end_backlog(&mut self) {
        let Some(id) = self.serving.get() else {
            return;
        };
        let aggregate = &mut self.aggregates[id.index()];
        aggregate.place.circle = Ring::default();
        let slack = core::mem::take(&mut aggregate.place.slack);
        let spent = self.spent(slack);
        self.tell_work(spent);
        match Charge::in_range(spent as u32) {
            Some(spent) => {
                self.algorithm
                    .reschedule(self.aggregates.as_mut_slice(), id, spent, None);
            }
            // All flows that were selected had lost their packets.
            None => self.algorithm.idle(self.aggregates.as_mut_slice(), id),
        }
        self.told = 0;
        self.begin_service();
    }

    /// Removes the selected flow, which sent this amount, from its circle: for good, or to the aggregate of its present
    /// share, if it has a packet left.
    #[cold]
    #[inline(never)]
    pub(super) fn leave(
        &mut self,
        entities: &mut [impl Holds<PlusEntity<H>>],
        id: EntityId,
        charged: i32,
        next: Option<Charge>,
    ) {
        self.now.slack -= charged;
        let entity = entities.entity_mut(id);
        let (state, moving, home) = (entity.state, entity.moving, entity.aggregate);
        // An idle flow keeps no credit.
        entity.deficit = 0;
        entity.state = Standing::Inactive;
        entity.moving = false;
        entity.alone = false;
        self.now.circle.pop_head(entities, id);
        if moving {
            // Its packet may be longer than L^k and exceed the budget. The excess is charged to no entity: V must not
            // pass queued entities by more than the longest entity explains.
            self.now.slack = self.now.slack.max(-self.now.quantum());
        }
        if self.now.circle.head == MaybeEntity::NONE {
            self.end_backlog();
        } else if self.is_over(entities) {
            self.end_service();
        }
        let (Some(home), Some(share)) = (home.get(), self.moving_share(id, state, moving)) else {
            return;
        };
        self.quit(home);
        let entity = entities.entity_mut(id);
        let Some(share) = share else {
            *entity = PlusEntity::default();
            return;
        };
        let home = self.join(entities, share);
        let entity = entities.entity_mut(id);
        entity.aggregate = MaybeEntity::of(home);
        if let Some(next) = next {
            entity.state = Standing::Active;
            self.insert(entities, id, next);
        }
    }

    /// Where a flow that left its circle goes: `None` to stay, `Some(None)` out.
    fn moving_share(
        &mut self,
        id: EntityId,
        state: Standing,
        moving: bool,
    ) -> Option<Option<Share>> {
        match state {
            Standing::Leaving => Some(None),
            _ if moving => self.moving.remove(&id).map(Some),
            _ => None,
        }
    }
}
