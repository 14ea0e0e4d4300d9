//! Replay: the arrivals of a capture or of a list are sent over a simulated link, in the order of an algorithm
//! ([`by_flow`]) or of a site's classes ([`by_class`]), and become departures.
//!
//! A pure function: the same input gives the same output. It holds the backlog in memory, not the whole input.

mod arrivals;
pub mod by_class;
pub mod by_flow;
mod capture;
mod csv;
mod departures;
mod engine;
mod fit;
mod framing;
mod in_order;
mod input;
mod recording;
mod records;

pub use arrivals::{Arrival, Arrivals, Body, Frame};
pub use capture::Packets;
pub use departures::{Captured, Departure, Departures, Rows, Unwritten, WRITING};
pub use fit::Segmented;
pub use in_order::Disorder;
pub use input::{Format, Input, is_capture};
pub use pcap_file::pcap::PcapHeader;
pub use recording::Recording;
