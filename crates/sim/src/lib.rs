//! Links in simulated time, alone or as a network, to measure what schedulers do to flows.
//!
//! * [`Server`]: a [`Queue`] that drains through a transmit queue onto a [`Link`], exact to the picosecond at any
//!   rate: a [`PacketScheduler`](fairlane_core::PacketScheduler) of flows, or queues of classes (a tree, CBQ).
//!   There is no other: arrivals are replayed at a server.
//! * [`Observer`]: the interface of meters of a run. [`WfiMeter`] measures the worst-case fair indexes against a
//!   flow's share, [`LagMeter`] completions against the ideal fluid server [`Gps`], [`DelayMeter`] delays;
//!   [`ClassMeter`] counts each class's transmitted bytes.
//! * [`Simulation`]: a run of a server with seeded [`Source`]s: of flows that are added, changed and removed, or
//!   of classes. [`sharing`] is an experiment with classes.
//! * [`Network`]: nodes with such a server at each output port, wires with a delay between them, and the same
//!   sources, whose packets take the shortest path; end-to-end delays.
//!
//! Every result is a function of inputs and seed, the same to the byte on every machine: no clock is read, random
//! numbers come from SplitMix64, and all arithmetic is exactly defined by IEEE 754.
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
//!
//! A server driven by hand, and its observer:
//!
//! ```
//! use fairlane_core::{FlowConfig, FlowId, Length, Rate, Weight, sched::Qfq};
//! use fairlane_sim::{
//!     Completion, DelayMeter, Delays, LagMeter, Moment, Now, Observer, PacketInfo, Picos, Server, Step,
//!     TransmitQueue, Work,
//! };
//!
//! #[derive(Default)]
//! struct Ends(Vec<Moment>);
//!
//! impl Observer for Ends {
//!     fn arrived(&mut self, at: Now, packet: &PacketInfo) {
//!         assert_eq!(at.time, packet.arrival);
//!     }
//!
//!     fn completed(&mut self, completion: &Completion) {
//!         self.0.push(completion.end);
//!     }
//! }
//!
//! let rate: Rate = "8mbit".parse()?;
//! let watching = (Ends::default(), DelayMeter::new(), LagMeter::new(rate));
//! let mut server: Server<_, _, FlowId, &str> =
//!     Server::new(Qfq::new(), Default::default(), rate, TransmitQueue::NONE, watching);
//! let len = Length::try_from(1000u32)?;
//! let flow = server.add_flow(Picos::ZERO, FlowConfig::new(Weight::ONE, len))?;
//! server.arrive(Picos::ZERO, flow, len, "a")?;
//! server.arrive(Picos::from_micros(250), flow, len, "b")?;
//! let mut sent = Vec::new();
//! while let Some(step) = server.step() {
//!     if let Step::Completed(_, body) = step {
//!         sent.push(body);
//!     }
//! }
//! assert_eq!(sent, ["a", "b"]);
//! server.finish();
//!
//! let (Ends(ends), delays, lag) = server.into_observer();
//! assert_eq!(ends[1], Moment { time: Picos::from_millis(2), work: Work::from_bytes(2000) });
//! let delays: &Delays = delays.flow(flow).ok_or("no flow")?;
//! assert_eq!(delays.count(), 2);
//! // A packet ends at most its length over the rate after the fluid server has finished it.
//! assert!(lag.worst(flow).ok_or("no flow")? <= Picos::from_millis(1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The parts alone: the fluid server, a link, a source:
//!
//! ```
//! use fairlane_core::{FlowId, Length, Rate, Weight};
//! use fairlane_sim::{
//!     FluidFinish, Gps, Lengths, Link, Picos, Sent, Source, SourceError, Traffic, TransmitQueue,
//! };
//!
//! let (rate, len): (Rate, _) = ("8mbit".parse()?, Length::try_from(1000u32)?);
//! let mut gps = Gps::new(rate);
//! for flow in [0, 1].map(FlowId::new) {
//!     gps.add_flow(Picos::ZERO, flow, Weight::ONE);
//!     gps.arrive(Picos::ZERO, flow, len, 0);
//! }
//! gps.finish();
//! // Both at once, in the time that the link takes for both.
//! let both: Vec<FluidFinish> = gps.take_finished().collect();
//! let late = Picos::from_micros(1_999)..=Picos::from_millis(2);
//! assert!(both.len() == 2 && both.iter().all(|packet| late.contains(&packet.time)));
//!
//! let mut link = Link::new(rate, TransmitQueue::Packets(1));
//! assert_eq!(link.push(Picos::ZERO, len, 'a'), Ok(true));
//! assert_eq!(link.push(Picos::ZERO, len, 'b'), Ok(false));
//! assert_eq!(link.push(Picos::ZERO, len, 'c'), Err('c'));
//! let Sent { payload, end, .. } = link.complete().ok_or("nothing was sent")?;
//! assert_eq!((payload, end), ('a', Picos::from_millis(1)));
//!
//! let mut source = Source::new(Traffic::Cbr(rate), Lengths::Fixed(len), 1)?;
//! let (first, second) = (source.next_packet(), source.next_packet());
//! let gap = second.ok_or("it ends")?.0.since(first.ok_or("it ends")?.0);
//! assert_eq!(gap, Picos::from_millis(1));
//! let bursty = Traffic::Bursty { packets: 3, period: Picos::ZERO };
//! let refused = Source::new(bursty, Lengths::Fixed(len), 1);
//! assert_eq!(refused.unwrap_err(), SourceError::NoTime);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Classes as in the CBQ paper, a TCP source, and sets of flows from published experiments:
//!
//! ```
//! use fairlane_core::sched::Algorithm;
//! use fairlane_core::{FlowId, Length, Rate};
//! use fairlane_sim::sharing::{self, LEAVES, Leaf};
//! use fairlane_sim::{
//!     Backlogged, ClassSource, Lengths, Picos, SourcePlan, Tcp, Traffic, Wfi, WfiMeter, scenario,
//! };
//!
//! let rate: Rate = "1mbit".parse()?;
//! let (tree, leaves) = sharing::tree(Algorithm::Qfq)?;
//! let meter = sharing::run(tree, leaves, rate, Picos::from_secs(1));
//! let Leaf { agency, percent, .. } = LEAVES[0];
//! assert_eq!((percent, sharing::percent_of(agency)), (40, 60));
//! // Between the third second and the fourth, all have something to send.
//! let share = meter.bytes(leaves[0], 2) as f64 * 8.0 / rate.bps() as f64 * 100.0;
//! assert!((share - sharing::entitled(0, 2.5)).abs() < 5.0, "{share}");
//! // The same for the queues of the paper.
//! let (queues, leaves) = sharing::cbq(rate, true)?;
//! assert!(sharing::sources(leaves).iter().all(|source| source.tcp.is_none()));
//! drop(queues);
//!
//! let len = Length::try_from(1500u32)?;
//! let download: SourcePlan<_> = ClassSource {
//!     tcp: Some(Tcp { rtt: Picos::from_millis(20), window: 64 }),
//!     ..ClassSource::new(leaves[0].into(), Traffic::Greedy(1), Lengths::Fixed(len))
//! };
//! assert!(!download.ecn);
//!
//! assert_eq!(scenario::equal(3, len), scenario::skewed(3, 1, len));
//! assert_eq!(scenario::half(3, len)[0].weight.get(), 2);
//! // Packets count until they have left the link, and not only the scheduler.
//! let meter = WfiMeter::reading(rate, Backlogged::UntilSent);
//! let nobody: Option<Wfi> = meter.flow(FlowId::new(0));
//! assert!(nobody.is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

mod class_meter;
mod delay;
mod gps;
mod link;
mod network;
mod observer;
mod queue;
mod random;
#[doc(hidden)]
pub mod scenario;
mod senders;
mod server;
mod share;
#[doc(hidden)]
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
pub use network::{Carried, FlowPath, Network, NetworkError, PortCount, Wire};
pub use observer::{Completion, Moment, Now, Observer};
pub use queue::{Flows, Label, Next, PacketInfo, Queue, Waiting};
pub use senders::{SourcePlan, Tag};
pub use server::{Server, Step};
pub use simulation::{ClassPacket, ClassSource, FlowPacket, FlowPlan, FlowServer, Simulation};
pub use source::{Lengths, Source, SourceError, Traffic};
pub use tcp::Tcp;
pub use time::{PICOS_PER_SECOND, Picos, Work};
pub use wfi::{Backlogged, Wfi, WfiMeter};
