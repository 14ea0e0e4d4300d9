//! The algorithms by name: a row each, and whatever is the same for all follows from it. Algorithms of other crates are
//! added next to them.

use core::fmt;
use core::num::NonZeroU32;
use core::str::FromStr;

use super::custom::{Custom, CustomAlgorithm};
use super::plus::AUTOMATIC_MEMBERS;
use super::row::{Promise, Row, Sharing};
use crate::bounds::child;
use crate::scheduler::Scheduler;
use crate::units::Length;

/// Passes the rows to the macro `$then`, after the tokens in the brackets.
macro_rules! algorithms {
    ($then:ident!($($before:tt)*)) => {
        $then! {
            $($before)*

            Fifo: $crate::sched::Fifo = $crate::sched::Fifo::new(),
                Promise::Nothing("whatever came before goes first"),
                "First in, first out: no guarantee, shares follow the offered load";
            Drr: $crate::sched::Drr = $crate::sched::Drr::new(),
                Promise::Exact(child::drr),
                "Deficit round robin: fair over a round of all flows";
            Wfq: $crate::sched::Wfq = $crate::sched::Wfq::new(),
                Promise::Rounded(child::wfq),
                "WFQ (PGPS): the fluid server's order, each packet at most a packet later than there";
            Wf2q: $crate::sched::Wf2q = $crate::sched::Wf2q::new(),
                Promise::Rounded(child::wf2q),
                "WF2Q: as fair as a packet scheduler can be, by the fluid server's virtual time";
            Wf2qPlus: $crate::sched::Wf2qPlus = $crate::sched::Wf2qPlus::new(),
                Promise::Rounded(child::wf2q_plus),
                "WF2Q+: as fair by a simpler virtual time, at O(log N)";
            Scfq: $crate::sched::Scfq = $crate::sched::Scfq::new(),
                Promise::Rounded(child::scfq),
                "Self-clocked fair queueing: fair within a packet of each other flow, at O(log N)";
            Qfq: $crate::sched::Qfq = $crate::sched::Qfq::new(),
                Promise::Rounded(child::qfq),
                "Quick fair queueing: fair within a few packets, at O(1)";
            QfqPlus(most: NonZeroU32): $crate::sched::Plus<$crate::sched::Qfq>
                = $crate::sched::Plus::new(most),
                Promise::Rounded(child::qfq_plus),
                "QFQ over aggregates of flows, DRR inside them: nearly as fair, nearly at DRR's cost";
            SKps: $crate::sched::SKps = $crate::sched::SKps::new(),
                Promise::Rounded(child::s_kps),
                "S-KPS: as fair as QFQ, its groups sorted by timer wheels, at O(1)";
            Gfq: $crate::sched::Gfq = $crate::sched::Gfq::new(),
                Promise::Rounded(child::gfq),
                "Group fair queueing: fairer than QFQ by a slot, at O(groups of flows)";
            Priority: $crate::sched::Priority = $crate::sched::Priority::new(),
                Promise::Level(child::priority),
                "Strict priority: the highest weight first, equal ones in turns";
            Sfq: $crate::sched::Sfq = $crate::sched::Sfq::new(),
                Promise::Nothing("others may be hashed to the same queue"),
                "Stochastic fairness queueing: flows hashed to 256 queues, DRR among those";
            Wf2qPlusPlus(most: NonZeroU32): $crate::sched::Plus<$crate::sched::Wf2qPlus>
                = $crate::sched::Plus::new(most),
                Promise::Rounded(child::wf2q_plus_plus),
                "WF2Q+ over aggregates of flows";
            SKpsPlus(most: NonZeroU32): $crate::sched::Plus<$crate::sched::SKps>
                = $crate::sched::Plus::new(most),
                Promise::Rounded(child::s_kps_plus),
                "S-KPS over aggregates of flows";
            GfqPlus(most: NonZeroU32): $crate::sched::Plus<$crate::sched::Gfq>
                = $crate::sched::Plus::new(most),
                Promise::Rounded(child::gfq_plus),
                "GFQ over aggregates of flows";
            DrrPlus(most: NonZeroU32): $crate::sched::Plus<$crate::sched::Drr>
                = $crate::sched::Plus::new(most),
                Promise::Unbounded,
                "DRR over aggregates of flows";
        }
    };
}

pub(crate) use algorithms;

macro_rules! define {
    ($(
        $variant:ident$(($most:ident: $kind:ty))?:
            $type:ty = $make:expr, $promise:expr, $about:literal;
    )*) => {
        /// A scheduling algorithm by name.
        ///
        /// Those over aggregates (SCHED+) have M, the most entities in one of them.
        ///
        /// In a class tree, FIFO, SFQ, WFQ and WF2Q follow every packet. They order only leaves without
        /// ceilings of their own, WFQ and WF2Q none that drops at dequeue, and each packet that is dropped
        /// there under SFQ costs a look at all packets queued.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Algorithm {
            $(
                #[doc = $about]
                $variant$(($kind))?,
            )*
            /// Deficit round robin, with this quantum for the lightest entity.
            DrrOfQuantum(Length),
            /// One of another crate.
            Custom(Custom),
        }

        impl Algorithm {
            /// Every algorithm of this crate, those over aggregates with M as the paper on QFQ+ has it.
            pub const ALL: &[Algorithm] = &[
                $(Algorithm::$variant$(({
                    let $most: $kind = AUTOMATIC_MEMBERS;
                    $most
                }))?,)*
            ];

            /// As command lines, files and tables call it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Algorithm::$variant { .. } => <$type as Scheduler>::NAME,)*
                    Algorithm::DrrOfQuantum(_) => Algorithm::Drr.name(),
                    Algorithm::Custom(custom) => custom.name(),
                }
            }

            const fn row(self) -> &'static Row {
                match self {
                    $(Algorithm::$variant { .. } => const { &Row::of::<$type>($about, $promise) },)*
                    Algorithm::DrrOfQuantum(_) => Algorithm::Drr.row(),
                    Algorithm::Custom(custom) => custom.row(),
                }
            }

            /// Returns the most entities in an aggregate (M), if it has any.
            pub(crate) const fn members(self) -> Option<NonZeroU32> {
                match self {
                    $(Algorithm::$variant$(($most))? => [$(Some($most),)? None][0],)*
                    Algorithm::DrrOfQuantum(_) | Algorithm::Custom(_) => None,
                }
            }

            /// Returns the same algorithm with at most `members` entities in an aggregate, if it has aggregates.
            pub const fn with_members(self, members: NonZeroU32) -> Algorithm {
                match self {
                    $(Algorithm::$variant$(($most))? => Algorithm::$variant$(({
                        let _ = $most;
                        members
                    }))?,)*
                    other @ (Algorithm::DrrOfQuantum(_) | Algorithm::Custom(_)) => other,
                }
            }
        }
    };
}

algorithms!(define!());

impl Algorithm {
    /// One of another crate, by this name: it stands wherever one of these does.
    pub const fn custom<A: CustomAlgorithm>(name: &'static str) -> Algorithm {
        Algorithm::Custom(Custom::of::<A>(name))
    }

    /// Returns the algorithm that is run for this one: over aggregates of one flow each, QFQ and S-KPS decide as
    /// without them, since no flows take turns inside and neither uses the length of a packet before it is sent.
    ///
    /// ```
    /// use fairlane_core::sched::{AUTOMATIC_MEMBERS, Algorithm};
    /// use std::num::NonZeroU32;
    ///
    /// assert_eq!(Algorithm::QfqPlus(NonZeroU32::MIN).without_aggregates_of_one(), Algorithm::Qfq);
    /// let of_eight = Algorithm::QfqPlus(AUTOMATIC_MEMBERS);
    /// assert_eq!(of_eight.without_aggregates_of_one(), of_eight);
    /// ```
    #[must_use]
    #[doc(hidden)]
    pub const fn without_aggregates_of_one(self) -> Algorithm {
        match self {
            Algorithm::QfqPlus(NonZeroU32::MIN) => Algorithm::Qfq,
            Algorithm::SKpsPlus(NonZeroU32::MIN) => Algorithm::SKps,
            other => other,
        }
    }

    /// DRR with this quantum for the lightest entity, if it is DRR.
    ///
    /// ```
    /// use fairlane_core::{Length, sched::Algorithm};
    ///
    /// let quantum = Length::new(500).unwrap();
    /// assert_eq!(Algorithm::Drr.with_quantum(quantum), Some(Algorithm::DrrOfQuantum(quantum)));
    /// assert_eq!(Algorithm::Qfq.with_quantum(quantum), None);
    /// ```
    pub const fn with_quantum(self, quantum: Length) -> Option<Algorithm> {
        match self {
            Algorithm::Drr | Algorithm::DrrOfQuantum(_) => Some(Algorithm::DrrOfQuantum(quantum)),
            _ => None,
        }
    }

    /// Returns a one-line description.
    pub const fn about(self) -> &'static str {
        self.row().about
    }

    /// Returns how it shares among those that it orders.
    pub const fn sharing(self) -> Sharing {
        self.row().promise.sharing()
    }

    /// Returns whether a bound is known for every entity that it orders. Strict priority has one for the highest level
    /// alone. For an algorithm of another crate, only that crate knows, and `true` says nothing.
    pub const fn is_bounded(self) -> bool {
        matches!(self.row().promise, Promise::Exact(_) | Promise::Rounded(_))
    }

    /// Returns the guarantee of each entity that it orders.
    pub(crate) const fn promise(self) -> Promise {
        self.without_aggregates_of_one().row().promise
    }

    /// Returns whether it needs to know of every packet of its entities, so that in a tree these are leaves without
    /// ceilings.
    pub const fn follows_packets(self) -> bool {
        self.row().follows_packets
    }

    /// Returns whether a leaf that it orders may drop its first packet, as queue management at dequeue does.
    pub(crate) const fn may_lose_first(self) -> bool {
        self.row().may_lose_first
    }
}

macro_rules! define_with {
    (
        ($d:tt)
        $(
            $variant:ident$(($most:ident: $kind:ty))?:
                $type:ty = $make:expr, $promise:expr, $about:literal;
        )*
    ) => {
        /// Evaluates an expression with `$new` as the constructor of the algorithm named by a value of
        /// [`Algorithm`](crate::sched::Algorithm): each of this crate gets code of its own, without indirect calls.
        ///
        /// ```
        /// use fairlane_core::sched::Algorithm;
        /// use fairlane_core::{PacketScheduler, Scheduler, with_algorithm};
        ///
        /// /// Compiled once for each algorithm.
        /// fn holds<A: Scheduler>(algorithm: A) -> u32 {
        ///     PacketScheduler::<A, u32>::new(algorithm, Default::default()).len()
        /// }
        ///
        /// let algorithm: Algorithm = "qfq+".parse()?;
        /// assert_eq!(with_algorithm!(algorithm, new => holds(new())), 0);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        #[macro_export]
        macro_rules! with_algorithm {
            ($d algorithm:expr, $d new:ident => $d body:expr) => {
                match $crate::sched::Algorithm::without_aggregates_of_one($d algorithm) {
                    $($crate::sched::Algorithm::$variant$(($most))? => {
                        let $d new = move || -> $type { $make };
                        $d body
                    })*
                    $crate::sched::Algorithm::DrrOfQuantum(quantum) => {
                        let $d new = move || $crate::sched::DrrOfQuantum::new(quantum);
                        $d body
                    }
                    $crate::sched::Algorithm::Custom(custom) => {
                        let $d new = move || -> $crate::sched::CustomScheduler {
                            custom.scheduler()
                        };
                        $d body
                    }
                    // In another crate it looks as if there might be more.
                    _ => unreachable!("each algorithm has a row"),
                }
            };
        }
    };
}

algorithms!(define_with!(($)));

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No algorithm of this crate has this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no algorithm has this name")]
pub struct UnknownAlgorithm;

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Algorithm, UnknownAlgorithm> {
        let named = |algorithm: &Algorithm| algorithm.name() == name;
        Self::ALL
            .iter()
            .copied()
            .find(named)
            .ok_or(UnknownAlgorithm)
    }
}
