//! The algorithms by name.

use clap::ValueEnum;

/// A scheduling algorithm to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Algorithm {
    /// First in, first out: no guarantee, shares follow the offered load
    Fifo,
    /// Deficit round robin: fair over a round of all flows
    Drr,
    /// Quick fair queueing: fair within a few packets, at O(1)
    Qfq,
}

impl Algorithm {
    /// All of them, the simplest first.
    pub const ALL: [Algorithm; 3] = [Algorithm::Fifo, Algorithm::Drr, Algorithm::Qfq];
}

/// Evaluates an expression with `$new` as the constructor of the algorithm named
/// by a value: each algorithm gets code of its own, without indirect calls.
#[macro_export]
macro_rules! with_algorithm {
    ($algorithm:expr, $new:ident => $body:expr) => {
        match $algorithm {
            $crate::algorithm::Algorithm::Fifo => {
                let $new = fairlane_core::sched::Fifo::new;
                $body
            }
            $crate::algorithm::Algorithm::Drr => {
                let $new = fairlane_core::sched::Drr::new;
                $body
            }
            $crate::algorithm::Algorithm::Qfq => {
                let $new = fairlane_core::sched::Qfq::new;
                $body
            }
        }
    };
}
