//! Requests by cost, and what they turn out to have cost.

use super::{ChangeError, FlowId, PacketScheduler, SchedulerLimits};
use crate::cost::{Cost, Unit, Units};
use crate::packet::Packet;
use crate::scheduler::Scheduler;

/// A scheduler of requests by cost: see [`PacketScheduler::for_costs`].
pub type CostScheduler<A, P, U = Units> = PacketScheduler<A, P, Cost<U>>;

/// A request on its way to be served.
pub type Request<P, U = Units> = Packet<P, FlowId, Cost<U>>;

/// The right of a request that was [served](PacketScheduler::serve) to one correction.
///
/// There is no other way to one, and none to a second one: who was not served has nothing to be
/// refunded. A ticket that is dropped leaves the estimate as it is. It is to be brought back to the
/// scheduler that it came from.
#[derive(Debug)]
pub struct Ticket<U: Unit = Units> {
    flow: FlowId,
    generation: u32,
    estimated: Cost<U>,
}

impl<U: Unit> Ticket<U> {
    /// The flow that was served.
    pub fn flow(&self) -> FlowId {
        self.flow
    }

    /// The cost that the request was taken to have.
    pub fn estimated(&self) -> Cost<U> {
        self.estimated
    }
}

/// What became of a correction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Correction {
    /// What the flow is charged in addition; negative, what it is refunded.
    pub by: i64,
    /// Of the true cost, what is beyond the largest that the flow declared: nobody is charged for it.
    pub beyond: u32,
}

impl<A: Scheduler, P, U: Unit> PacketScheduler<A, P, Cost<U>> {
    /// A scheduler of requests that are counted by their cost, without flows.
    ///
    /// `max_length` of a flow is the largest cost that a request of it may be estimated, or turn out,
    /// to have: a larger one is rejected at enqueue, and charged no further when it is
    /// [corrected](Self::correct).
    ///
    /// ```
    /// use fairlane_core::sched::{Costs, Qfq};
    /// use fairlane_core::{
    ///     Correction, Cost, CostScheduler, FlowConfig, Request, SchedulerLimits, Ticket, Weight,
    /// };
    ///
    /// let limits = SchedulerLimits::for_costs();
    /// let mut queue: CostScheduler<Qfq<Costs>, &str> =
    ///     CostScheduler::for_costs(Qfq::for_costs(), limits);
    /// let tenant = queue.add_flow(FlowConfig::new(Weight::ONE, Cost::MAX))?;
    /// queue.enqueue(tenant, Cost::clamped(900), "a long story").unwrap();
    ///
    /// let (request, ticket): (Request<&str>, Ticket) = queue.serve().expect("one waits");
    /// assert_eq!((request.payload, request.len.get()), ("a long story", 900));
    /// // It was longer than that.
    /// let correction: Correction = queue.correct(ticket, Cost::clamped(1400))?;
    /// assert_eq!((correction.by, queue.balance(tenant)), (500, Some(500)));
    /// # Ok::<(), fairlane_core::ChangeError>(())
    /// ```
    ///
    /// An algorithm whose numbers have no room for costs does not compile here:
    ///
    /// ```compile_fail
    /// use fairlane_core::sched::Qfq;
    /// use fairlane_core::{CostScheduler, SchedulerLimits};
    ///
    /// let queue: CostScheduler<_, ()> = CostScheduler::for_costs(Qfq::new(), SchedulerLimits::for_costs());
    /// # drop(queue);
    /// ```
    pub fn for_costs(algorithm: A, limits: SchedulerLimits) -> Self {
        const {
            assert!(
                A::LARGEST >= crate::cost::MAX_COST,
                "the algorithm is built for packets, not for costs up to 2^31: those made by \
                 `for_costs()` are, as in Qfq::for_costs(), and Fifo and Priority"
            );
        }
        Self::without_flows(algorithm, limits)
    }

    /// Hands out the next request as [`dequeue`](Self::dequeue) does, with a ticket for the cost that
    /// it turns out to have.
    pub fn serve(&mut self) -> Option<(Request<P, U>, Ticket<U>)> {
        let request = self.dequeue()?;
        let ticket = Ticket {
            flow: request.owner,
            generation: self.flows[request.owner.index()].ledger.generation,
            estimated: request.len,
        };
        Some((request, ticket))
    }

    /// The request of this ticket has cost `actual`. What it was charged too little, later requests
    /// of its flow are charged in addition; what it was charged too much is taken off theirs.
    ///
    /// Whether requests wait by then or not. What the first one that waits is charged for stands: it
    /// has its place by that. A request is charged for one unit at least, and at most for
    /// the largest cost of its flow; what is left of a correction is for the one after it.
    /// How far the shares by true cost are off, [`bounds::corrected`](crate::bounds::corrected) says.
    /// O(1).
    ///
    /// # Errors
    ///
    /// The flow was removed meanwhile, be it that another has its number.
    pub fn correct(
        &mut self,
        ticket: Ticket<U>,
        actual: Cost<U>,
    ) -> Result<Correction, ChangeError> {
        let flow = self
            .flows
            .get_mut(ticket.flow.index())
            .filter(|flow| flow.max_length() != 0 && flow.ledger.generation == ticket.generation)
            .ok_or(ChangeError::UnknownFlow)?;
        let estimated = ticket.estimated.get();
        // A lower maximum than it was enqueued by takes nothing back.
        let counted = actual.get().min(flow.max_length().max(estimated));
        let by = i64::from(counted) - i64::from(estimated);
        flow.ledger.owed = flow.ledger.owed.saturating_add(by);
        Ok(Correction {
            by,
            beyond: actual.get() - counted,
        })
    }

    /// What corrections have left for the next requests of a flow to be charged in addition, or if it is
    /// negative, to be refunded; `None` if there is no such flow. O(1).
    pub fn balance(&self, id: FlowId) -> Option<i64> {
        self.flow(id).map(|flow| flow.ledger.owed)
    }
}
