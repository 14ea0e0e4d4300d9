//! The scheduling algorithms, one file each, all behind
//! [`Scheduler`](crate::scheduler::Scheduler).

mod clock;
mod drr;
mod fifo;
mod qfq;

/// An entity's standing, in algorithms that let an entity go at its next turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Standing {
    #[default]
    Inactive,
    Active,
    /// Active, and removed once it is selected.
    Leaving,
}

pub use drr::Drr;
pub use fifo::Fifo;
pub use qfq::Qfq;
