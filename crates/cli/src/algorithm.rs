//! The algorithms by name.

use std::num::NonZeroU32;

use clap::ValueEnum;
use fairlane_core::sched::AUTOMATIC_MEMBERS;
use fairlane_core::{Scheduler, tree};

use crate::with_algorithm;

/// A scheduling algorithm to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Algorithm {
    /// First in, first out: no guarantee, shares follow the offered load
    Fifo,
    /// Deficit round robin: fair over a round of all flows
    Drr,
    /// WF2Q: as fair as a packet scheduler can be, by the fluid server's virtual time
    Wf2q,
    /// WF2Q+: as fair by a simpler virtual time, at O(log N)
    #[value(name = "wf2q+")]
    Wf2qPlus,
    /// Quick fair queueing: fair within a few packets, at O(1)
    Qfq,
    /// QFQ over aggregates of flows, DRR inside them: nearly as fair, nearly at DRR's cost
    #[value(name = "qfq+")]
    QfqPlus,
    /// S-KPS: as fair as QFQ, its groups sorted by timer wheels, at O(1)
    #[value(name = "s-kps")]
    SKps,
    /// Group fair queueing: fairer than QFQ by a slot, at O(groups of flows)
    Gfq,
    /// Strict priority: the highest weight first, equal ones in turns
    Priority,
    /// Stochastic fairness queueing: flows hashed to 256 queues, DRR among those
    Sfq,
    /// WF2Q+ over aggregates of flows
    #[value(name = "wf2q++")]
    Wf2qPlusPlus,
    /// S-KPS over aggregates of flows
    #[value(name = "s-kps+")]
    SKpsPlus,
    /// GFQ over aggregates of flows
    #[value(name = "gfq+")]
    GfqPlus,
    /// DRR over aggregates of flows
    #[value(name = "drr+")]
    DrrPlus,
}

impl Algorithm {
    /// As the papers and the command line call it.
    pub fn name(self) -> &'static str {
        fn of<A: Scheduler>(_: impl Fn() -> A) -> &'static str {
            A::NAME
        }
        with_algorithm!(self, AUTOMATIC_MEMBERS, new => of(new))
    }

    /// The same as the class tree has it, with at most `members` flows in an aggregate.
    pub fn of_tree(self, members: NonZeroU32) -> tree::Algorithm {
        match self {
            Algorithm::Fifo => tree::Algorithm::Fifo,
            Algorithm::Drr => tree::Algorithm::Drr,
            Algorithm::Wf2q => tree::Algorithm::Wf2q,
            Algorithm::Wf2qPlus => tree::Algorithm::Wf2qPlus,
            Algorithm::Qfq => tree::Algorithm::Qfq,
            Algorithm::QfqPlus => tree::Algorithm::QfqPlus(members),
            Algorithm::SKps => tree::Algorithm::SKps,
            Algorithm::Gfq => tree::Algorithm::Gfq,
            Algorithm::Priority => tree::Algorithm::Priority,
            Algorithm::Sfq => tree::Algorithm::Sfq,
            Algorithm::Wf2qPlusPlus => tree::Algorithm::Wf2qPlusPlus(members),
            Algorithm::SKpsPlus => tree::Algorithm::SKpsPlus(members),
            Algorithm::GfqPlus => tree::Algorithm::GfqPlus(members),
            Algorithm::DrrPlus => tree::Algorithm::DrrPlus(members),
        }
    }
}

/// Evaluates an expression with `$new` as the constructor of the algorithm named by a
/// value: each algorithm gets code of its own, without indirect calls. SCHED+ gets
/// aggregates of at most `$members` flows.
#[macro_export]
macro_rules! with_algorithm {
    ($algorithm:expr, $members:expr, $new:ident => $body:expr) => {{
        use fairlane_core::sched;
        use $crate::algorithm::Algorithm;
        match $algorithm {
            Algorithm::Fifo => {
                let $new = sched::Fifo::new;
                $body
            }
            Algorithm::Drr => {
                let $new = sched::Drr::new;
                $body
            }
            Algorithm::Wf2q => {
                let $new = sched::Wf2q::new;
                $body
            }
            Algorithm::Wf2qPlus => {
                let $new = sched::Wf2qPlus::new;
                $body
            }
            Algorithm::Qfq => {
                let $new = sched::Qfq::new;
                $body
            }
            Algorithm::QfqPlus => {
                let $new = || sched::Plus::<sched::Qfq>::new($members);
                $body
            }
            Algorithm::SKps => {
                let $new = sched::SKps::new;
                $body
            }
            Algorithm::Gfq => {
                let $new = sched::Gfq::new;
                $body
            }
            Algorithm::Priority => {
                let $new = sched::Priority::new;
                $body
            }
            Algorithm::Sfq => {
                let $new = sched::Sfq::new;
                $body
            }
            Algorithm::Wf2qPlusPlus => {
                let $new = || sched::Plus::<sched::Wf2qPlus>::new($members);
                $body
            }
            Algorithm::SKpsPlus => {
                let $new = || sched::Plus::<sched::SKps>::new($members);
                $body
            }
            Algorithm::GfqPlus => {
                let $new = || sched::Plus::<sched::Gfq>::new($members);
                $body
            }
            Algorithm::DrrPlus => {
                let $new = || sched::Plus::<sched::Drr>::new($members);
                $body
            }
        }
    }};
}

/// Reads `--aggregate`.
pub fn members(text: &str) -> Result<NonZeroU32, String> {
    text.parse()
        .map_err(|_| "a number of flows from 1 to 4294967295".to_owned())
}
