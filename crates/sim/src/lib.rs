//! A link in simulated time, to measure what a scheduler does to its flows.
//!
//! * [`Server`]: a [`Queue`] that drains through a transmit queue onto a [`Link`], exact to the
//!   picosecond at any rate: a [`PacketScheduler`](fairlane_core::PacketScheduler) of flows, or
//!   queues of classes (a tree, CBQ). There is no other: what replays arrivals makes them arrive
//!   at a server.
//! * [`Observer`]: what watches a run. [`WfiMeter`] measures the worst-case fair indexes
//!   against a flow's share, [`LagMeter`] completions against the ideal fluid server
//!   [`Gps`], [`DelayMeter`] delays; [`ClassMeter`] counts what each class sent.
//! * [`Simulation`]: a run of a server with seeded [`Source`]s: of flows that come, change and go,
//!   or of classes. [`sharing`] is an experiment with classes.
//!
//! All is a function of its inputs and its seed: no clock is read.
//!
//! ```
//! use fairlane_core::{Length, Rate, SchedulerLimits, sched::Qfq};
//! use fairlane_sim::{
//!     FlowPlan, Lengths, Picos, Server, Simulation, Traffic, TransmitQueue, WfiMeter, scenario,
//! };
//!
//! let rate: Rate = "1gbit".parse().unwrap();
//! let length = Length::new(1500).unwrap();
//! let server = Server::new(
//!     Qfq::new(),
//!     SchedulerLimits::default(),
//!     rate,
//!     TransmitQueue::NONE,
//!     WfiMeter::new(rate),
//! );
//! let mut simulation = Simulation::new(server, 1);
//! for config in scenario::highw(10, length) {
//!     let plan = FlowPlan::new(config, Traffic::Greedy(2), Lengths::Fixed(length));
//!     simulation.add(plan).unwrap();
//! }
//! let server = simulation.run(Picos::from_millis(10)).unwrap();
//! let (_, heavy) = server.observer().flows().next().unwrap();
//! // Packets of one length are late by (3 sigma + L) / R at most (`bounds::qfq_equal_packets`), with
//! // sigma = 512 bytes for each of 12 units of weight.
//! assert!(heavy.t_wfi < Picos::from_nanos((3 * 512 * 12 + 1500) * 8));
//! ```
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]
#![warn(unreachable_pub)]

mod class_meter;
mod delay;
mod gps;
mod link;
mod observer;
mod queue;
pub mod scenario;
mod server;
mod share;
pub mod sharing;
mod simulation;
mod source;
mod tcp;
mod time;
pub mod wfi;

pub use class_meter::ClassMeter;
pub use delay::{DelayMeter, Delays};
pub use fairlane_core::tree::ClassFlow;
pub use gps::{FluidFinish, Gps, LagMeter};
pub use link::{Link, Sent, TransmitQueue};
pub use observer::{Completion, Moment, Now, Observer};
pub use queue::{Flows, Label, Next, PacketInfo, Queue, Waiting};
pub use server::{Server, Step};
pub use simulation::{
    ClassPacket, ClassSource, FlowPacket, FlowPlan, FlowServer, Simulation, SourcePlan, Tag,
};
pub use source::{Lengths, Source, SourceError, Traffic};
pub use tcp::Tcp;
pub use time::{PICOS_PER_SECOND, Picos, Work};
pub use wfi::{Backlogged, Wfi, WfiMeter};
