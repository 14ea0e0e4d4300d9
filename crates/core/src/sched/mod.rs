//! The scheduling algorithms, one file each, all behind
//! [`Scheduler`](crate::scheduler::Scheduler).

mod drr;
mod fifo;
mod qfq;

pub use drr::Drr;
pub use fifo::Fifo;
pub use qfq::Qfq;
