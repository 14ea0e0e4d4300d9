//! The algorithms and queues of Fairlane: selection of the next packet, the queues of flows, and the times at which the
//! link may send.
//!
//! This crate does no I/O, reads no clock, starts no thread and prints nothing. On the packet path it
//! allocates nothing once its tables have grown to size, except in WFQ and WF2Q, and in SCHED+ where a flow
//! with a pending change of share moves. It is `no_std` with `alloc` and forbids `unsafe`.
//!
//! Three parts answer three questions:
//!
//! * *Selection*: [`scheduler::Scheduler`] is the contract of a scheduling algorithm; [`sched`] holds one file for each
//!   of them. An algorithm orders entities and never sees a packet.
//! * *Queues*: [`queue`] is the slab that holds all packets and the lists that flows thread through it.
//! * *When may the link send?* [`leaky_bucket`] is an exact rate; the time is the caller's.
//!
//! A program uses their combinations: [`PacketScheduler`], to which flows are added and whose packets leave in the
//! algorithm's order, or [`tree`], classes within classes with ceilings, reserved queue space ([`room`]) and queue
//! management ([`aqm`]), or requests by [`cost`]. [`bounds`] has the guarantees of each algorithm.
//!
//! ```
//! use fairlane_core::{FlowConfig, Length, PacketScheduler, Weight, sched::Qfq};
//!
//! let mut link = PacketScheduler::new(Qfq::new(), Default::default());
//! let length = Length::new(1000).unwrap();
//! let mut flow = |weight| {
//!     let weight = Weight::new(weight).unwrap();
//!     link.add_flow(FlowConfig::new(weight, length)).unwrap()
//! };
//! let (heavy, light) = (flow(3), flow(1));
//! for n in 0..40 {
//!     link.enqueue(heavy, length, n).unwrap();
//!     link.enqueue(light, length, n).unwrap();
//! }
//! let mut served = [0i32; 2];
//! for _ in 0..40 {
//!     let packet = link.dequeue().expect("forty of eighty packets are left");
//!     served[usize::from(packet.owner == light)] += 1;
//! }
//! assert!((served[0] - 30).abs() <= 1 && served[0] + served[1] == 40);
//! ```
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

extern crate alloc;

mod any_scheduler;
pub mod aqm;
pub mod bounds;
pub mod cost;
mod cost_pace;
mod discipline;
mod grow;
#[doc(hidden)]
pub mod leaky_bucket;
mod packet;
mod packet_scheduler;
#[doc(hidden)]
pub mod queue;
#[doc(hidden)]
pub mod random;
pub mod room;
pub mod sched;
pub mod scheduler;
#[cfg(feature = "serde")]
mod serial;
mod size;
pub mod tree;
pub mod units;

pub use any_scheduler::AnyScheduler;
pub use cost::{Cost, CostError, Unit, Units};
pub use cost_pace::CostPace;
pub use discipline::{Discipline, DisciplineError};
pub use packet::{Count, Dequeue, Packet, Rejected, Rejection, Stamped, Waited};
pub use packet_scheduler::{
    ChangeError, Correction, CostScheduler, FlowConfig, FlowId, FlowStats, Limits, PacketScheduler,
    Request, SchedulerLimits, Ticket, TotalStats,
};
pub use scheduler::{Scheduler, Share};
pub use size::Size;
pub use units::{Charge, Length, Nanos, Rate, VirtualTime, Weight};

/// The examples of the README, compiled as doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
