//! Properties of an algorithm in addition to its statements: a row of the table, or the declaration of one of another
//! crate.

use crate::bounds::child::Bound;
use crate::scheduler::Scheduler;

/// How an algorithm shares among those that it orders.
///
/// ```
/// use fairlane_core::sched::{Algorithm, Sharing};
///
/// assert_eq!(Algorithm::Qfq.sharing(), Sharing::Weights);
/// assert_eq!(Algorithm::Priority.sharing(), Sharing::Levels);
/// let why = "whatever came before goes first";
/// assert_eq!(Algorithm::Fifo.sharing(), Sharing::Offers(why));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// By their weights.
    Weights,
    /// By level: no entity is served while one of a higher level is backlogged.
    Levels,
    /// By offered load, whatever the weights are; the text says why there is no guarantee.
    Offers(&'static str),
}

/// The guarantee that an algorithm gives each of the entities that it orders.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Promise {
    /// A share by weight, within this bound.
    Exact(Bound),
    /// The same, except for the error of its arithmetic ([`qfq_rounding`](crate::bounds::qfq_rounding)).
    Rounded(Bound),
    /// A share by weight, of which no bound is known.
    Unbounded,
    /// To go before all lower levels: a bound for an entity alone on the highest.
    Level(Bound),
    /// Nothing, and why.
    Nothing(&'static str),
}

impl Promise {
    pub(crate) const fn bound(self) -> Option<Bound> {
        match self {
            Promise::Exact(bound) | Promise::Rounded(bound) | Promise::Level(bound) => Some(bound),
            Promise::Unbounded | Promise::Nothing(_) => None,
        }
    }

    pub(super) const fn sharing(self) -> Sharing {
        match self {
            Promise::Exact(_) | Promise::Rounded(_) | Promise::Unbounded => Sharing::Weights,
            Promise::Level(_) => Sharing::Levels,
            Promise::Nothing(why) => Sharing::Offers(why),
        }
    }
}

/// The properties of an algorithm.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    /// A one-line description.
    pub(super) about: &'static str,
    pub(super) promise: Promise,
    /// It may order nothing but leaves without ceilings.
    pub(super) follows_packets: bool,
    /// Of those, also such as drop packets at dequeue.
    pub(super) may_lose_first: bool,
}

impl Row {
    /// Of the algorithm `A`.
    pub(super) const fn of<A: Scheduler>(about: &'static str, promise: Promise) -> Row {
        Row {
            about,
            promise,
            follows_packets: A::FOLLOWS_PACKETS,
            may_lose_first: A::MAY_LOSE_FIRST,
        }
    }
}
