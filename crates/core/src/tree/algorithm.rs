//! The algorithms by name.

use super::config::MEMBERS;
use super::order::Order;
use core::fmt;
use core::num::NonZeroU32;
use core::str::FromStr;

/// Who is next among the children of a class: a scheduling algorithm by name.
///
/// Those over aggregates (SCHED+) have M, the most children in one of them.
///
/// FIFO, SFQ and WF2Q follow every packet. They order only leaves without caps of their own,
/// WF2Q none that drops at dequeue, and each packet that is dropped there under SFQ costs a
/// look at all packets queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// First in, first out.
    Fifo,
    /// Deficit round robin.
    Drr,
    /// WF2Q.
    Wf2q,
    /// WF2Q+.
    Wf2qPlus,
    /// Quick fair queueing.
    Qfq,
    /// QFQ+: QFQ over aggregates.
    QfqPlus(NonZeroU32),
    /// S-KPS.
    SKps,
    /// Group fair queueing.
    Gfq,
    /// Strict priority, by the level of each child.
    Priority,
    /// Stochastic fairness queueing.
    Sfq,
    /// WF2Q+ over aggregates.
    Wf2qPlusPlus(NonZeroU32),
    /// S-KPS over aggregates.
    SKpsPlus(NonZeroU32),
    /// GFQ over aggregates.
    GfqPlus(NonZeroU32),
    /// DRR over aggregates.
    DrrPlus(NonZeroU32),
}

impl Algorithm {
    /// Every algorithm, those over aggregates with M as the paper on QFQ+ has it.
    pub const ALL: [Algorithm; 14] = [
        Algorithm::Fifo,
        Algorithm::Drr,
        Algorithm::Wf2q,
        Algorithm::Wf2qPlus,
        Algorithm::Qfq,
        Algorithm::QfqPlus(MEMBERS),
        Algorithm::SKps,
        Algorithm::Gfq,
        Algorithm::Priority,
        Algorithm::Sfq,
        Algorithm::Wf2qPlusPlus(MEMBERS),
        Algorithm::SKpsPlus(MEMBERS),
        Algorithm::GfqPlus(MEMBERS),
        Algorithm::DrrPlus(MEMBERS),
    ];

    /// As command lines, files and tables call it.
    pub const fn name(self) -> &'static str {
        Order::name_of(self)
    }

    /// Whether it needs to know of every packet of its children, so that these are leaves
    /// without caps.
    pub const fn follows_packets(self) -> bool {
        matches!(self, Algorithm::Fifo | Algorithm::Wf2q | Algorithm::Sfq)
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No algorithm has this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no algorithm has this name")]
pub struct UnknownAlgorithm;

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Algorithm, UnknownAlgorithm> {
        let named = |algorithm: &Algorithm| algorithm.name() == name;
        Self::ALL.into_iter().find(named).ok_or(UnknownAlgorithm)
    }
}
