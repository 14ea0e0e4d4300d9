//! Packet headers, one file each, for all code that reads or writes a packet.
//!
//! * [`parse`] reads what classifiers need from a frame: [`Headers`].
//! * [`network`] returns where the IP packet begins.
//! * [`mark_ce`] sets "congestion experienced" in a frame.
//! * [`segment`] reads the timestamps of a passing TCP segment.
//! * [`segmentation`] cuts a long frame of one connection as segmentation offload does.
//! * [`checksum`] computes Internet checksums, and finds those that a sender left to hardware.
//! * [`build`](Build) writes frames.
//!
//! The module of a header has its type or protocol number, its length and the offsets of its fields. A new header
//! takes its file and one row in `encapsulated.rs` or `parse.rs`.
//!
//! ```
//! use fairlane_wire::{
//!     Dscp, Family, Header, Layer, Malformed, ParseDscpError, ParseProtocolError, Protocol, Reason,
//!     Segment, VlanId, mark_ce, parse, parse_partly, segment,
//! };
//!
//! // IPv4 and UDP, ECN-capable, with a UDP header that is cut off.
//! let mut packet = [0; 20];
//! (packet[0], packet[1], packet[3], packet[9]) = (0x45, 46 << 2 | 0b10, 20, 17);
//! packet[12..].copy_from_slice(&[192, 168, 0, 1, 10, 0, 0, 1]);
//! let truncated = parse(&packet, Layer::Ip).unwrap_err();
//! assert_eq!(truncated.to_string(), "a UDP header ends before its 8 bytes");
//! let (headers, malformed) = parse_partly(&packet, Layer::Ip);
//! let Malformed { header, reason } = malformed.ok_or("it is whole")?;
//! assert_eq!((header, reason), (Header::UDP, Reason::Short(8)));
//! assert_eq!((headers.family, headers.source), (Family::V4, 0xc0a8_0001));
//! assert_eq!((headers.dscp, headers.protocol), ("ef".parse()?, Some(Protocol::UDP)));
//!
//! assert!(mark_ce(&mut packet, Layer::Ip) && packet[1] & 3 == 3);
//! let of_tcp: Option<Segment> = segment(&packet, Layer::Ip);
//! assert!(of_tcp.is_none());
//!
//! assert_eq!("ef".parse::<Dscp>()?.get(), 46);
//! assert_eq!("loud".parse::<Dscp>(), Err(ParseDscpError));
//! assert_eq!("tcp".parse::<Protocol>()?, Protocol::TCP);
//! assert_eq!("pigeon".parse::<Protocol>(), Err(ParseProtocolError));
//! assert!(VlanId::new(4096).is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A sender leaves checksums to hardware; other code writes them:
//!
//! ```
//! use fairlane_wire::{Build, Fragment, Layer, Ports, Protocol, checksum, ipv6, parse, vlan};
//!
//! let complete = Build::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).payload(&[7; 9]);
//! let headers = parse(&complete, Layer::Ethernet)?;
//! assert_eq!(headers.ports, Some(Ports { source: 1, destination: 2 }));
//! assert_eq!(headers.fragment, Fragment::No);
//!
//! let mut frame = complete.clone();
//! let sum = checksum::pseudo_sum(&frame[26..34], Protocol::UDP, 8 + 9);
//! frame[40..42].copy_from_slice(&sum.to_be_bytes());
//! let (start, field) = checksum::left_undone(&frame).ok_or("it is complete")?;
//! checksum::write(&mut frame, start, field);
//! assert_eq!(frame, complete);
//!
//! // Tags and extension headers stand before others.
//! assert!(vlan::is_tag(0x8100) && ipv6::extension_unit(Protocol(60)) == Some(8));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Nothing here waits or fails while it reads a packet, and only segmentation and [`Build`] allocate. The crate is
//! `no_std` with `alloc` and forbids `unsafe`.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

extern crate alloc;

pub mod arp;
mod build;
mod bytes;
pub mod checksum;
mod dscp;
mod ecn;
mod encapsulated;
pub mod ethernet;
mod headers;
pub mod icmpv6;
pub mod ipv4;
pub mod ipv6;
pub mod mpls;
mod names;
mod parse;
pub mod pppoe;
mod protocol;
pub mod segmentation;
pub mod tcp;
pub mod transport;
pub mod udp;
pub mod vlan;

pub use build::Build;
pub use dscp::{Dscp, ParseDscpError};
pub use ecn::mark_ce;
pub use headers::{Family, Fragment, Header, Headers, Layer, Malformed, Ports, Reason};
pub use parse::{network, parse, parse_partly};
pub use protocol::{ParseProtocolError, Protocol};
pub use tcp::{Segment, segment};
pub use vlan::VlanId;
