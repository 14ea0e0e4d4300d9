//! Fair packet scheduling to embed: the crate to add.
//!
//! Fairlane shares a link among many senders by weight. This crate gathers its
//! parts under one name; which one you need depends on how much you want it to do.
//!
//! # You have a loop and want to know which packet is next
//!
//! [`PacketScheduler`] holds flows and their packets and hands them out in the
//! order of an algorithm from [`sched`]. No thread, no clock, no I/O; the payload is
//! whatever you have, an index or a buffer.
//!
//! ```
//! use fairlane::{FlowConfig, Length, PacketScheduler, Weight, sched::Qfq};
//!
//! let mut link = PacketScheduler::new(Qfq::new(), Default::default());
//! // The longest packet of a flow, as it is: shares are exact to within a few of these.
//! let longest = Length::new(1200).unwrap();
//! let voice = link.add_flow(FlowConfig::new(Weight::new(4).unwrap(), longest))?;
//! let bulk = link.add_flow(FlowConfig::new(Weight::ONE, longest))?;
//!
//! let frame = vec![0u8; 1200];
//! link.enqueue(bulk, longest, frame).unwrap();
//! link.enqueue(voice, Length::new(160).unwrap(), vec![0u8; 160]).unwrap();
//!
//! while let Some(packet) = link.dequeue() {
//!     println!("{} bytes of flow {}", packet.len, packet.owner.number());
//! }
//! # Ok::<(), fairlane::ChangeError>(())
//! ```
//!
//! # You have requests that cost something else than bytes
//!
//! A [`CostScheduler`] orders requests by costs of 1 to 2^31 in a unit that you name: tokens, rows, milliseconds. A
//! cost is an estimate, and [corrected](CostScheduler::correct) once it is known; [`bounds::corrected`] returns how far
//! shares by true cost may deviate meanwhile. A [`CostPace`] limits a server to a number of units per time.
//!
//! ```
//! use fairlane::sched::Drr;
//! use fairlane::{Cost, CostScheduler, FlowConfig, SchedulerLimits, Weight};
//!
//! let mut queue: CostScheduler<_, &str> =
//!     CostScheduler::for_costs(Drr::for_costs(), SchedulerLimits::for_costs());
//! // The largest cost that a request of a tenant may turn out to have.
//! let tenant = queue.add_flow(FlowConfig::new(Weight::ONE, Cost::try_from(131_072u32)?))?;
//! queue.enqueue(tenant, Cost::try_from(700u32)?, "a question")?;
//!
//! let (request, ticket) = queue.serve().unwrap();
//! println!("{} of tenant {}", request.len, request.owner);
//! // The answer was longer than that: the tenant's next requests are charged the rest.
//! queue.correct(ticket, Cost::clamped(2_100))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # You have threads or tasks that send, and a link to pace
//!
//! With the feature `runtime`, [`spawn`] gives a link a thread of its own. Clients push packets without blocking; the
//! packets leave through a [`Backend`](io::Backend) at the rate of the link, in fair order. The handle reads its
//! counts, changes its flows and its rate, and ends it.
//!
//! ```
//! use std::time::Duration;
//!
//! use fairlane::io::{Backend, MemoryBackend, memory};
//! use fairlane::{Flow, Length, Rate, spawn};
//!
//! let (near, mut far): (MemoryBackend<Vec<u8>>, MemoryBackend<Vec<u8>>) = memory::pair(16);
//! let (link, handle) = spawn("10mbit".parse::<Rate>()?, near)?;
//!
//! let mut client = link.client(Flow::weight(4).max_len(1250))?;
//! client.push(Length::new(1250).unwrap(), vec![7; 1250]).unwrap();
//! println!("{:?}", handle.stats()?.total);
//!
//! // What was pushed is sent, within five seconds at most.
//! let end = handle.drain(Duration::from_secs(5)).wait()?;
//! assert_eq!((end.total.sent.packets, end.total.queued.packets), (1, 0));
//! assert_eq!(far.receive(&mut Vec::new(), 16)?, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # You have a thread of your own for it, or a clock of your own
//!
//! An [`Arbiter`](runtime::Arbiter) is the loop body of that thread. Call [`step`](runtime::Arbiter::step) from a loop
//! of your own, with the current time, or let [`drive`](runtime::drive) do it.
//!
//! ```
//! use fairlane::io::{Backend, MemoryBackend, memory};
//! use fairlane::runtime::{Arbiter, ArbiterConfig, Link};
//! use fairlane::{Flow, Length, Nanos, sched::Qfq};
//!
//! let (near, mut far): (MemoryBackend<Vec<u8>>, MemoryBackend<Vec<u8>>) = memory::pair(16);
//! let link = Link::new("10mbit".parse()?);
//! let mut arbiter = Arbiter::new(Qfq::new(), ArbiterConfig::new(link), near, Nanos::ZERO);
//!
//! let len = Length::new(1250).unwrap();
//! let mut client = arbiter.registrar().client(Flow::weight(1).max_len(1250))?;
//! client.push(len, vec![7; 1250]).unwrap();
//! client.push(len, vec![8; 1250]).unwrap();
//!
//! // 1250 bytes take a millisecond: the second packet waits for the first.
//! let mut arrived = Vec::new();
//! arbiter.step(Nanos::ZERO)?;
//! assert_eq!(far.receive(&mut arrived, 16)?, 1);
//! arbiter.step(Nanos::from_millis(1))?;
//! assert_eq!(far.receive(&mut arrived, 16)?, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # You have an algorithm of your own
//!
//! Implement [`Scheduler`]: the contract is written down in [`scheduler`], and the crate
//! `fairlane-testkit` tests whether an algorithm keeps it.
//!
//! # Features
//!
//! No feature is on by default: the crate then contains [`core`](fairlane_core), with algorithms, queues, class trees
//! and bounds.
//!
//! | feature | adds |
//! | --- | --- |
//! | `classify` | [`classify`] and [`wire`]: from a packet's bytes to its class and flow |
//! | `config` | [`config`]: a link and its classes from a file, and their guarantees |
//! | `io` | [`io`]: sockets, devices and memory as ways in and out |
//! | `runtime` | [`spawn`] and [`runtime`]: a link that threads, tasks and processes share; [`mailbox`] and `io` |
//! | `sim` | [`sim`]: a simulated link, sources of packets and meters |
//! | `serde` | `Serialize` and `Deserialize` for numbers, configurations of flows, and counts |
//! | `full` | all of them |
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

pub use fairlane_core::*;

/// Rules, flow keys and the classifier of a link.
#[cfg(feature = "classify")]
pub use fairlane_classify as classify;
/// Site files in TOML: links, class trees and filters, with their computed guarantees.
#[cfg(feature = "config")]
pub use fairlane_config as config;
/// Packet I/O backends.
#[cfg(feature = "io")]
pub use fairlane_io as io;
/// The lock-free queue between a client and the arbiter.
#[cfg(feature = "runtime")]
pub use fairlane_mailbox as mailbox;
/// Clients, the arbiter and the paced link.
#[cfg(feature = "runtime")]
pub use fairlane_runtime as runtime;
#[cfg(feature = "runtime")]
pub use fairlane_runtime::{Flow, LinkHandle, LinkStats, SpawnConfig, spawn, spawn_over};
/// A simulated link with seeded traffic, an ideal fluid server and meters of fairness.
#[cfg(feature = "sim")]
pub use fairlane_sim as sim;
/// Packet headers: parsing, writing, checksums, segmentation, ECN marks.
#[cfg(feature = "classify")]
pub use fairlane_wire as wire;

/// The items that most programs use, to import at once.
///
/// ```
/// use fairlane::prelude::*;
///
/// let mut link = PacketScheduler::new(Qfq::new(), Default::default());
/// let flow = link.add_flow(FlowConfig::new(Weight::ONE, Length::MAX))?;
/// link.enqueue(flow, Length::try_from(9usize)?, "a packet!")?;
/// assert_eq!(link.dequeue().unwrap().payload, "a packet!");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub mod prelude {
    pub use fairlane_core::sched::{Algorithm, Qfq};
    pub use fairlane_core::{
        FlowConfig, FlowId, Length, Nanos, Packet, PacketScheduler, Rate, Weight,
    };
    #[cfg(feature = "runtime")]
    pub use fairlane_runtime::{Flow, spawn};
}

/// The examples in README, as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
