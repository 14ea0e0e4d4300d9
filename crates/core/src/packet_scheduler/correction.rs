//! Requests by cost, and corrections to their true costs.

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
/// There is no other way to one, and none to a second one: a request that was not served has nothing to refund. A
/// dropped ticket leaves the estimate in force. A ticket must be returned to the scheduler that issued it.
#[derive(Debug)]
pub struct Ticket<U: Unit = Units> {
    flow: FlowId,
    generation: u32,
    estimated: Cost<U>,
}

impl<U: Unit> Ticket<U> {
    /// Returns the flow that was served.
    pub fn flow(&self) -> FlowId {
        self.flow
    }

    /// Returns the cost that the request was taken to have.
    pub fn estimated(&self) -> Cost<U> {
        self.estimated
    }
}

/// The result of a correction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Correction {
    /// The additional charge of the flow; negative, its refund.
    pub by: i64,
    /// The part of the true cost beyond the largest that the flow declared: it is charged to no flow.
    pub beyond: u32,
}

impl<A: Scheduler, P, U: Unit> PacketScheduler<A, P, Cost<U>> {
    /// Returns a scheduler of requests that are counted by their cost, without flows.
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
    /// An algorithm whose numbers cannot hold costs does not compile here:
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

    /// Removes and returns the next request as [`dequeue`](Self::dequeue) does, with a ticket for its true cost.
    pub fn serve(&mut self) -> Option<(Request<P, U>, Ticket<U>)> {
        let request = self.dequeue()?;
        let ticket = Ticket {
            flow: request.owner,
            generation: self.flows[request.owner.index()].ledger.generation,
            estimated: request.len,
        };
        Some((request, ticket))
    }

    /// Reports that the request of this ticket has cost `actual`. A shortfall of its charge is added to later requests
    /// of its flow; an excess is subtracted from theirs.
    ///
    /// Requests may be queued by then or not. The charge of the first queued one remains: its place depends on it. A
    /// request is charged for one unit at least, and at most for the largest cost of its flow; the rest of a correction
    /// is for the one after it. [`bounds::corrected`](crate::bounds::corrected) has the error of the shares by true
    /// cost. O(1).
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

    /// Returns the amount that corrections have left to charge to the next requests of a flow, or if negative, to
    /// refund; `None` if there is no such flow. O(1).
    pub fn balance(&self, id: FlowId) -> Option<i64> {
        self.flow(id).map(|flow| flow.ledger.owed)
    }
}
