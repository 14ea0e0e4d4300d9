//! The scheduling algorithms, one file each, all behind
//! [`Scheduler`](crate::scheduler::Scheduler).
//!
//! ```
//! use fairlane_core::sched::{
//!     AUTOMATIC_MEMBERS, Drr, Fifo, Gfq, Plus, Priority, Qfq, SKps, Scfq, Sfq, Wf2q, Wf2qPlus,
//!     Wfq, automatic_members,
//! };
//! use fairlane_core::{FlowConfig, Length, PacketScheduler, Scheduler, VirtualTime, Weight};
//!
//! /// How many of the first forty packets are of a flow of weight 3, beside one of weight 1.
//! fn share(algorithm: impl Scheduler) -> usize {
//!     let mut link = PacketScheduler::new(algorithm, Default::default());
//!     let len = Length::new(1000).unwrap();
//!     let mut add = |weight| {
//!         let config = FlowConfig::new(Weight::new(weight).unwrap(), len);
//!         let flow = link.add_flow(config).unwrap();
//!         (0..40).for_each(|n| link.enqueue(flow, len, n).unwrap());
//!         flow
//!     };
//!     let (heavy, _) = (add(3), add(1));
//!     let first = (0..40).map_while(|_| link.dequeue());
//!     first.filter(|packet| packet.owner == heavy).count()
//! }
//!
//! for share in [
//!     share(Drr::new()),
//!     share(Scfq::new()),
//!     share(Wfq::new()),
//!     share(Wf2q::new()),
//!     share(Wf2qPlus::new()),
//!     share(Qfq::new()),
//!     share(SKps::new()),
//!     share(Gfq::new()),
//!     // SCHED+ over QFQ: QFQ+.
//!     share(Plus::<Qfq>::new(automatic_members(3))),
//!     // The same with the paper's end of a turn, and S-KPS with the report's release of slots.
//!     share(Plus::seeing(Qfq::new(), automatic_members(3))),
//!     share(SKps::late(VirtualTime::new(0))),
//! ] {
//!     assert!((27..=33).contains(&share), "{share}");
//! }
//! // These know no shares by weight: order of arrival, the higher weight first, and all flows alike.
//! assert_eq!([share(Fifo::new()), share(Priority::new())], [40, 40]);
//! assert!(share(Sfq::new()) < 27);
//! assert_eq!(automatic_members(100), AUTOMATIC_MEMBERS);
//! ```
//!
//! # Equal finish times
//!
//! The papers leave open the order of packets with equal finish times.
//!
//! * WF2Q, WFQ and SCFQ: that of the flow (or class) with the lowest number.
//! * WF2Q+: the order in which its heap happens to hold them, the same for the same arrivals. An order by
//!   number would take 350 instructions a packet more where all finish times are equal, as those of equal
//!   flows are.
//! * QFQ, GFQ and S-KPS round finish times up to slots. Of equal ones, that of the group with the shorter
//!   slots goes first; within a slot, the order is that of its stack.
//!
//! ```
//! use fairlane_core::sched::ByFluid;
//! use fairlane_core::{FlowConfig, Length, PacketScheduler, Weight};
//!
//! /// The order of two packets with equal finish times, of which that of flow 1 arrives first.
//! fn order<const ELIGIBLE: bool>(by_fluid: ByFluid<ELIGIBLE>) -> [u32; 2] {
//!     let mut link = PacketScheduler::new(by_fluid, Default::default());
//!     let len = Length::new(1000).unwrap();
//!     let flows = [1, 2].map(|_| link.add_flow(FlowConfig::new(Weight::ONE, len)).unwrap());
//!     link.enqueue(flows[1], len, 1).unwrap();
//!     link.enqueue(flows[0], len, 0).unwrap();
//!     [link.dequeue().unwrap().payload, link.dequeue().unwrap().payload]
//! }
//! // WF2Q and WFQ.
//! assert_eq!([order(ByFluid::<true>::new()), order(ByFluid::<false>::new())], [[0, 1]; 2]);
//! ```

mod clock;
mod custom;
mod drr;
mod fifo;
mod gfq;
mod groups;
mod heap;
mod pending;
mod plus;
mod priority;
mod qfq;
mod ring;
mod row;
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
pub use drr::{Drr, DrrOfQuantum};
pub use fifo::Fifo;
pub use gfq::Gfq;
pub use plus::{AUTOMATIC_MEMBERS, NextPacket, Plus, Seen, Unseen, automatic_members};
pub use priority::Priority;
pub use qfq::Qfq;
pub(crate) use row::Promise;
pub use row::Sharing;
pub use s_kps::SKps;
pub use scale::{Costs, Packets, Scale};
pub use scfq::Scfq;
pub use sfq::Sfq;
pub(crate) use table::algorithms;
pub use table::{Algorithm, UnknownAlgorithm};
pub use wf2q::{ByFluid, Wf2q, Wfq};
pub use wf2q_plus::Wf2qPlus;
