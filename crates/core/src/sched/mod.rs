//! The scheduling algorithms, one file each, all behind
//! [`Scheduler`](crate::scheduler::Scheduler).

mod clock;
mod custom;
mod drr;
mod fifo;
mod gfq;
mod groups;
mod heap;
mod plus;
mod priority;
mod qfq;
mod ring;
mod s_kps;
mod scale;
mod scfq;
mod seff;
mod sfq;
mod table;
mod wf2q;
mod wf2q_plus;

/// An entity's standing, in algorithms that let an entity go at its next turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Standing {
    #[default]
    Inactive,
    Active,
    /// Active, and removed once it is selected.
    Leaving,
}

pub use custom::{Custom, CustomAlgorithm, CustomScheduler};
pub use drr::Drr;
pub use fifo::Fifo;
pub use gfq::Gfq;
pub use plus::{AUTOMATIC_MEMBERS, Plus, automatic_members};
pub use priority::Priority;
pub use qfq::Qfq;
pub use s_kps::SKps;
pub use scale::{Costs, Packets, Scale};
pub use scfq::Scfq;
pub use sfq::Sfq;
pub(crate) use table::algorithms;
pub use table::{Algorithm, UnknownAlgorithm};
pub use wf2q::Wf2q;
pub use wf2q_plus::Wf2qPlus;
