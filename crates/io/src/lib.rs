//! Packet I/O behind one small trait.
//!
//! A [`Backend`] stands between a scheduler and a wire. It takes a batch of packets to transmit
//! ([`transmit`](Backend::transmit)), returns arrivals ([`receive`](Backend::receive)), and reports how many bytes it
//! has yet to send ([`in_flight`](Backend::in_flight)). It decides no order and keeps no queue beyond the device's: the
//! scheduler decides the order, and no packet can overtake a byte that is queued in a device. That last figure is the
//! *Q* of the delay bounds, so a backend is best kept short; a large device buffer undoes any scheduler.
//!
//! | backend | packets sent | packets received | needs | lives in |
//! | --- | --- | --- | --- | --- |
//! | [`MemoryBackend`] | any type with a [`ByteLen`] | any type with a [`ByteLen`] | nothing | [`memory`] |
#![cfg_attr(
    target_os = "linux",
    doc = "| [`UdpBackend`] | any [`Frame`] | [`Datagram`] | Linux, no privilege | [`udp`] |",
    doc = "| [`PacketBackend`] | Ethernet frames, any bytes | `Vec<u8>` | Linux, `CAP_NET_RAW` | [`packet`] |",
    doc = "| [`XdpBackend`] | [`XdpFrame`] | [`XdpFrame`] | Linux, `CAP_NET_ADMIN`, `CAP_NET_RAW`, `CAP_BPF` | [`xdp`] |",
    doc = "| [`TunBackend`] | IP packets or Ethernet frames, any bytes | `Vec<u8>` | Linux, `CAP_NET_ADMIN` | [`tun`] |"
)]
#![cfg_attr(
    not(target_os = "linux"),
    doc = "| `UdpBackend` | any [`Frame`] | [`Datagram`] | Linux, no privilege | not on this system |",
    doc = "| `PacketBackend` | Ethernet frames, any bytes | `Vec<u8>` | Linux, `CAP_NET_RAW` | not on this system |",
    doc = "| `XdpBackend` | `XdpFrame` | `XdpFrame` | Linux, `CAP_NET_ADMIN`, `CAP_NET_RAW`, `CAP_BPF` | not on this system |",
    doc = "| `TunBackend` | IP packets or Ethernet frames, any bytes | `Vec<u8>` | Linux, `CAP_NET_ADMIN` | not on this system |"
)]
//!
//! All backends except the memory backend, and `wait`, need Linux and exist only there. The
//! rest builds everywhere.
//!
//! # Packet ownership
//!
//! The caller owns the packets in `batch`, the backend those that have left it. `transmit` takes packets from the front
//! and never puts one back: a packet that left was either *accepted* (counted in the result; its bytes are with the
//! device) or *refused* (counted by [`Backend::refused`]; dropped, since no later attempt could succeed). Packets
//! *left* in `batch` were not touched and keep their order. So always
//!
//! ```text
//! accepted + refused + left = offered
//! ```
//!
//! A received packet belongs to the caller; the backend keeps no reference to it.
//!
//! # Error handling
//!
//! | event | result | packets |
//! | --- | --- | --- |
//! | the device is full | `Ok` with fewer, perhaps 0 | the rest stays in `batch`: offer it again |
//! | nothing has arrived | `Ok(0)` | |
//! | one packet cannot be sent (too long, no such address, forbidden) | continues with the next | that one is dropped and counted by [`refused`](Backend::refused) |
//! | the device is gone or broken | `Err`; it will not recover by itself | none of them left, except those refused before |
//!
//! An `Err` means that *no* packet was accepted by that call. When a device breaks in the middle of a batch, the call
//! reports the accepted packets and the next call reports the error. One bad packet never delays those behind it, and
//! every drop is counted.
//!
//! # For the daemon only
//!
//! Items without a page of their own serve Fairlane's other crates, and change with them: on Linux, early drop in the
//! kernel (`early`), segmentation and checksums that senders left to hardware (`segment`, `checksum`), the kernel's own
//! paths between two interfaces (`network`), memory shared with another process, and the hold on an interface (`Hold`).
//!
//! # Example
//!
//! ```
//! use fairlane_io::{Backend, memory};
//! use std::collections::VecDeque;
//!
//! // A link whose transmit queue holds two packets; no `Vec` over 1,500 bytes passes.
//! let (near, mut far) = memory::pair::<Vec<u8>, Vec<u8>>(2);
//! let mut near = near.with_mtu(1_500);
//!
//! let mut batch = VecDeque::from([vec![1; 100], vec![2; 9_000], vec![3; 200], vec![4; 300]]);
//! assert_eq!(near.transmit(&mut batch)?, 2);
//! assert_eq!(near.refused(), 1);
//! assert_eq!(batch, [vec![4; 300]]); // the queue was full: offer it again later
//! assert_eq!(near.in_flight()?, 300);
//!
//! let mut arrived = Vec::new();
//! assert_eq!(far.receive(&mut arrived, 64)?, 2);
//! assert_eq!(arrived, [vec![1; 100], vec![3; 200]]);
//! # Ok::<(), std::io::Error>(())
//! ```

#![deny(unsafe_code)]
#![warn(missing_debug_implementations)]

mod arrival;
mod backend;
#[cfg(target_os = "linux")]
mod bpf;
#[cfg(target_os = "linux")]
mod budget;
#[doc(hidden)]
#[cfg(target_os = "linux")]
pub mod checksum;
mod datagram;
#[doc(hidden)]
#[cfg(target_os = "linux")]
pub mod early;
#[doc(hidden)]
#[cfg(target_os = "linux")]
pub mod files;
#[cfg(target_os = "linux")]
mod hold;
#[doc(hidden)]
#[cfg(target_os = "linux")]
pub mod interface;
mod kept;
#[cfg(target_os = "linux")]
mod listener;
pub mod memory;
#[cfg(target_os = "linux")]
mod moved;
#[doc(hidden)]
#[cfg(target_os = "linux")]
pub mod network;
#[cfg(target_os = "linux")]
pub mod packet;
#[doc(hidden)]
#[cfg(target_os = "linux")]
mod segment;
#[cfg(target_os = "linux")]
mod shared_memory;
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
mod sys;
#[cfg(target_os = "linux")]
pub mod tun;
#[cfg(target_os = "linux")]
pub mod udp;
#[cfg(target_os = "linux")]
mod unsummed;
#[cfg(target_os = "linux")]
mod verdict;
#[cfg(target_os = "linux")]
pub mod wait;
#[cfg(target_os = "linux")]
mod waits;
#[cfg(target_os = "linux")]
pub mod xdp;

pub use arrival::Arrival;
pub use backend::{Backend, ByteLen};
#[cfg(target_os = "linux")]
pub use budget::Budget;
pub use datagram::{Datagram, Frame, MAX_DATAGRAM};
#[doc(hidden)]
#[cfg(target_os = "linux")]
pub use early::EarlyDrop;
#[doc(hidden)]
#[cfg(target_os = "linux")]
pub use hold::{Hold, socket_of_holder};
#[doc(hidden)]
pub use kept::{KeptBytes, Lent, Owed};
#[doc(hidden)]
#[cfg(target_os = "linux")]
pub use listener::{BindError, Carries, Listener};
pub use memory::MemoryBackend;
#[cfg(target_os = "linux")]
pub use packet::PacketBackend;
#[cfg(target_os = "linux")]
pub use shared_memory::PeerCredentials;
#[doc(hidden)]
#[cfg(target_os = "linux")]
pub use shared_memory::SharedMemory;
#[doc(hidden)]
#[cfg(target_os = "linux")]
pub use sys::heap::{give_back_unused, keep_little_unused};
#[doc(hidden)]
#[cfg(target_os = "linux")]
pub use sys::umask::with_umask;
#[cfg(target_os = "linux")]
pub use tun::TunBackend;
#[cfg(target_os = "linux")]
pub use udp::UdpBackend;
#[cfg(target_os = "linux")]
pub use wait::Waiter;
#[doc(hidden)]
#[cfg(target_os = "linux")]
pub use xdp::{OwedFrames, XdpReceiver, XdpSender};
#[cfg(target_os = "linux")]
pub use xdp::{Umem, XdpBackend, XdpFrame, XdpMode, XdpOptions};
