//! The queues of a link, in the order of its algorithm: of a class tree or of CBQ.

use alloc::vec::Vec;
use core::fmt;

use crate::packet::{Dequeue, Rejected, Waited};
use crate::scheduler::Violation;
use crate::tree::cbq::{Cbq, CbqError};
use crate::tree::{
    ClassId, ClassQueue, ClassStats, Discarded, FlowCount, Removed, Tree, TreeError,
};
use crate::units::{Length, Nanos};

/// Queues of classes, ordered by either discipline. For programs that offer both; each method is that of the
/// discipline, at the cost of one more branch.
///
/// ```
/// use fairlane_core::sched::Algorithm;
/// use fairlane_core::tree::cbq::{Cbq, CbqClass};
/// use fairlane_core::tree::{ClassConfig, ClassId, ClassQueue, LeafConfig, Tree};
/// use fairlane_core::{Discipline, DisciplineError, Length, Nanos, Rate, SchedulerLimits, Weight};
///
/// let (rate, longest): (Rate, _) = ("8mbit".parse()?, Length::MAX);
/// let (limits, leaf) = (SchedulerLimits::default(), LeafConfig::default());
/// let (mut tree, mut cbq) = (Tree::new(Algorithm::Qfq, None, limits), Cbq::new(rate, limits));
/// let in_tree = tree.add_leaf(ClassId::ROOT, ClassConfig::new(Weight::ONE, longest), leaf)?;
/// let in_cbq = cbq.add_leaf(ClassId::ROOT, CbqClass::new(rate, longest), leaf)?;
///
/// for (mut queues, class) in [(Discipline::Tree(tree), in_tree), (Discipline::Cbq(cbq), in_cbq)] {
///     queues.enqueue(class, 0, Length::try_from(9usize)?, "a packet!", Nanos::ZERO, |_| {})?;
///     let removed = queues.go_on_removing(class, &mut 9, |_| {});
///     // Those of CBQ only change all together.
///     let is_fixed = matches!(removed, Err(DisciplineError::Fixed));
///     assert_eq!((is_fixed, queues.len()), match queues {
///         Discipline::Tree(_) => (false, 0),
///         Discipline::Cbq(_) => (true, 1),
///     });
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub enum Discipline<P> {
    /// The class tree.
    Tree(Tree<P>),
    /// Class-based queueing.
    Cbq(Cbq<P>),
}

/// Why a class cannot be added, changed or removed; nothing was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DisciplineError {
    /// In a class tree.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// In class-based queueing.
    #[error(transparent)]
    Cbq(#[from] CbqError),
    /// There, classes do not change one by one: the link is rebuilt.
    #[error("cbq: its classes only change all together")]
    Fixed,
}

/// Evaluates an expression with `$queue` as whichever discipline it is.
macro_rules! of_any {
    ($discipline:expr, $queue:ident => $body:expr) => {
        match $discipline {
            Discipline::Tree($queue) => $body,
            Discipline::Cbq($queue) => $body,
        }
    };
}

/// Steps by which a running link becomes another one. Each is rejected as a whole or done as a whole, and none exceeds
/// the amount of work given to it.
impl<P> Discipline<P> {
    /// Continues the change that [`Tree::begin_change_of_flows`] began, examining no more than `left` flows, which are
    /// subtracted from it. Returns whether the change is complete, as it is for a class without flows. O(`left`).
    #[doc(hidden)]
    pub fn go_on_changing(&mut self, id: ClassId, left: &mut usize, now: Nanos) -> bool {
        match self {
            Discipline::Tree(tree) => tree.go_on_changing(id, left, now),
            Discipline::Cbq(_) => true,
        }
    }

    /// Removes a class without others below it in steps, as [`Tree::go_on_removing`]; its queued packets are discarded.
    /// `None` while there is more to do. O(`left`) if none is queued.
    ///
    /// # Errors
    ///
    /// There are classes below it, or it is unknown; the link is one of CBQ.
    #[doc(hidden)]
    pub fn go_on_removing(
        &mut self,
        id: ClassId,
        left: &mut usize,
        discard: impl FnMut(Discarded<P>),
    ) -> Result<Option<Removed>, DisciplineError> {
        match self {
            Discipline::Tree(tree) => Ok(tree.go_on_removing(id, left, discard)?),
            Discipline::Cbq(_) => Err(DisciplineError::Fixed),
        }
    }

    /// Removes packets from a class's own queues, in order, examining no more than `left` packets and flows, which are
    /// subtracted from it; `from` is 0 at first and holds the position to continue from. Returns whether none is left,
    /// also if there is no such class. O(`left`).
    #[doc(hidden)]
    pub fn take_out(
        &mut self,
        id: ClassId,
        from: &mut u32,
        left: &mut usize,
        now: Nanos,
        discard: impl FnMut(Discarded<P>),
    ) -> bool {
        match self {
            Discipline::Tree(tree) => tree.take_out(id, from, left, now, discard).unwrap_or(true),
            Discipline::Cbq(cbq) => cbq.take_out(id, left, now, discard).unwrap_or(true),
        }
    }

    /// Removes all packets from a class and those below it, in order; each goes to `discard`. Does nothing if there is
    /// no such class. O(packets and classes there).
    pub fn flush(&mut self, class: ClassId, now: Nanos, discard: impl FnMut(Discarded<P>)) {
        // An unknown class is the only error there is.
        let _ = match self {
            Discipline::Tree(tree) => tree
                .flush(class, now, discard)
                .map_err(DisciplineError::from),
            Discipline::Cbq(cbq) => cbq
                .flush(class, now, discard)
                .map_err(DisciplineError::from),
        };
    }

    /// Counts arrivals and departures of each flow of a class in this table, or stops counting: as
    /// [`Tree::tally_flows`]. O(1).
    #[doc(hidden)]
    pub fn tally_flows(&mut self, id: ClassId, table: Option<Vec<FlowCount>>) -> Vec<FlowCount> {
        match self {
            Discipline::Tree(tree) => tree.tally_flows(id, table),
            Discipline::Cbq(_) => table.unwrap_or_default(),
        }
    }

    /// Returns whether the traffic of each flow of a class is counted. O(1).
    #[doc(hidden)]
    pub fn is_tallied(&self, id: ClassId) -> bool {
        match self {
            Discipline::Tree(tree) => tree.is_tallied(id),
            Discipline::Cbq(_) => false,
        }
    }

    /// Reports arrivals and departures of each flow of a class since its last report: as [`Tree::take_tally`].
    /// O(`left`).
    #[doc(hidden)]
    pub fn take_tally(
        &mut self,
        id: ClassId,
        from: &mut u32,
        left: &mut usize,
        tell: impl FnMut(Option<u64>, FlowCount),
    ) -> bool {
        match self {
            Discipline::Tree(tree) => tree.take_tally(id, from, left, tell),
            Discipline::Cbq(_) => true,
        }
    }

    /// Returns the counters of a class, without those of the classes below it. O(1).
    pub fn own_stats(&self, id: ClassId) -> Option<ClassStats> {
        of_any!(self, queue => queue.own_stats(id))
    }
}

impl<P> ClassQueue<P> for Discipline<P> {
    #[inline]
    fn enqueue(
        &mut self,
        class: ClassId,
        flow: u64,
        len: Length,
        payload: P,
        now: Nanos,
        discard: impl FnMut(Discarded<P>),
    ) -> Result<(), Rejected<P>> {
        of_any!(self, queue => ClassQueue::enqueue(queue, class, flow, len, payload, now, discard))
    }

    #[inline]
    fn dequeue(&mut self, now: Nanos, discard: impl FnMut(Discarded<P>)) -> Dequeue<P, ClassId> {
        of_any!(self, queue => ClassQueue::dequeue(queue, now, discard))
    }

    #[inline]
    fn dequeue_with_sojourn(
        &mut self,
        now: Nanos,
        discard: impl FnMut(Discarded<P>),
    ) -> Dequeue<Waited<P>, ClassId> {
        of_any!(self, queue => ClassQueue::dequeue_with_sojourn(queue, now, discard))
    }

    fn free_held(&mut self, most: u32, now: Nanos) -> u32 {
        of_any!(self, queue => ClassQueue::free_held(queue, most, now))
    }

    fn stats(&self, class: ClassId) -> Option<ClassStats> {
        of_any!(self, queue => ClassQueue::stats(queue, class))
    }

    fn len(&self) -> u32 {
        of_any!(self, queue => ClassQueue::len(queue))
    }

    fn expire_idle(&mut self, now: Nanos) {
        of_any!(self, queue => ClassQueue::expire_idle(queue, now));
    }

    fn invariants(&self) -> Result<(), Violation> {
        of_any!(self, queue => ClassQueue::invariants(queue))
    }
}

impl<P> fmt::Debug for Discipline<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        of_any!(self, queue => fmt::Debug::fmt(queue, f))
    }
}
