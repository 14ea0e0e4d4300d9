//! Throw-away networks in the kernel, for tests and measurements. Linux only, and needs root.
//!
//! A [`Namespace`] is a network of its own: it contains no interface of the machine, and nothing
//! done in it affects the machine. [`cable`] joins two new ones by a pair of virtual Ethernet
//! devices (`veth`): frames that one [`Link`] sends arrive at the other, and no others do, for IPv6
//! is off and there is no other sender.
//!
//! A namespace lives as long as something refers to it: a [`Namespace`] or [`Link`] in a variable,
//! a thread in it, a socket made in it. Then the kernel removes it and all its devices. Nothing has
//! a name in the file system, so nothing is left behind by a panic or a kill either.
//!
//! A [`Wire`] adds hosts on both sides of a middle namespace, in which the program under test
//! forwards their traffic. A [`Transfer`] is a TCP flow between two hosts, an [`Echo`] measures
//! round trips, a [`Probe`] the delay of each datagram of a thin stream.
//!
//! All changes go through netlink. No program is called but iperf3, for a [`Transfer`].
//!
//! # Example
//!
//! ```
//! # #[cfg(target_os = "linux")] {
//! use std::net::UdpSocket;
//!
//! let made = fairlane_netlab::cable(1_500);
//! let Some((near, far)) = fairlane_netlab::or_skip("the example", made) else { return };
//! near.add_address([10, 0, 0, 1].into(), 24).unwrap();
//! far.add_address([10, 0, 0, 2].into(), 24).unwrap();
//!
//! let receiver = far.namespace().run(|| UdpSocket::bind("10.0.0.2:9").unwrap());
//! let sender = near.namespace().run(|| UdpSocket::bind("10.0.0.1:0").unwrap());
//! sender.send_to(b"hello", "10.0.0.2:9").unwrap();
//! assert_eq!(receiver.recv(&mut [0; 16]).unwrap(), 5);
//! # }
//! ```

#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

mod bridge;
mod echo;
mod error;
mod ethtool;
mod iperf;
mod link;
mod namespace;
mod probe;
mod program;
mod shape;
mod skip;
mod wire;

pub use bridge::bridge;
pub use echo::Echo;
pub use error::LabError;
pub use iperf::{Flow, Transfer, Window, iperf_is_installed};
pub use link::{Link, cable, cable_with_queues, veth, veth_with_queues};
pub use namespace::Namespace;
pub use probe::{Probe, Probed};
pub use program::{Ended, Program};
pub use skip::{NO_SKIP, or_skip, skip, skip_unsupported};
pub use wire::{Host, Wire};
