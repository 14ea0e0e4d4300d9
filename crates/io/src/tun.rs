//! A virtual interface whose other end is this program (TUN and TAP). Linux only.
//!
//! Packets that the kernel routes to the interface are received here, and packets transmitted here reach the kernel as
//! if from a wire: the input of a VPN, a proxy, or any program that schedules other programs' traffic transparently. On
//! a TUN interface the packets are IP packets, on a TAP interface Ethernet frames; see [`Layer`].
//!
//! [`open`](TunBackend::open) makes the interface, or takes a persistent one, which needs the privilege
//! `CAP_NET_ADMIN`. It starts down, until it is [set up](TunBackend::set_up), and without an address: assigning one,
//! and routes, is left to the network configuration. Dropping the backend removes it.
//!
//! One system call moves one packet; the kernel has none that moves more. The kernel segments packets that it routes
//! here, and computes their checksums, before they are received.
//!
//! # Queues
//!
//! A packet has reached the kernel when the call that transmits it returns, on its way to a socket or another
//! interface. So nothing is ever [in flight](Backend::in_flight), and there is no budget: *Q* is 0. In the other
//! direction the kernel queues up to 500 packets (the interface's `txqueuelen`), drops further arrivals, and counts
//! these among the interface's statistics.
//!
//! | error | meaning |
//! | --- | --- |
//! | `EAGAIN`, `ENOBUFS`, `ENOMEM` | full: the rest stays in the batch |
//! | `EIO`: the interface is down | the same: it may be set up again |
//! | `EINVAL`, `EMSGSIZE`: no IP packet (TUN), or shorter than an Ethernet header (TAP) | the packet is refused |
//! | `EBADFD`: the interface was removed | fatal |
//!
//! # Example
//!
//! ```
//! use fairlane_io::TunBackend;
//! use fairlane_io::tun::Layer;
//!
//! // `%d`: the first number that is free.
//! match TunBackend::<Vec<u8>>::open("lane%d", Layer::Ip) {
//!     Ok(tun) => println!("made {}", tun.name()),
//!     Err(error) => println!("{error}"),
//! }
//! ```

use std::collections::VecDeque;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use crate::kept;
use crate::moved;
use crate::network::Network;
use crate::sys::interface::Interface;
use crate::sys::tun;
use crate::unsummed::PacketFrame;
use crate::verdict::{self, Taken};
use crate::{Backend, sys};

/// The type of packets that pass through the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// IPv4 and IPv6 packets (TUN).
    Ip,
    /// Ethernet frames, without their checksum (TAP).
    Ethernet,
}

/// Bytes of the longest packet: an IP packet of any length, in an Ethernet frame with two tags.
const LONGEST: usize = 65_535 + 22;

/// The program's end of a virtual interface: sends and receives packets `F`.
///
/// No call blocks. Each packet costs one system call in either direction; one received is
/// in memory that is [kept](crate::KeptBytes), or allocated. To wait, use [`Waiter`](crate::Waiter).
pub struct TunBackend<F = Vec<u8>> {
    device: File,
    name: String,
    /// Room for one received packet.
    buffer: Box<[u8]>,
    refused: u64,
    packets: PhantomData<fn(F)>,
}

impl<F: AsRef<[u8]>> TunBackend<F> {
    /// Makes an interface of this name in the calling thread's network namespace, or takes a
    /// persistent one over. The name has at most 15 bytes. A `%d` in it becomes the first number
    /// that is free; an empty name becomes `tun%d` or `tap%d`. See [`name`](Self::name).
    ///
    /// # Errors
    ///
    /// A sentence that says what to do: `PermissionDenied` without the privilege `CAP_NET_ADMIN`,
    /// `InvalidInput` for a name that cannot be given or belongs to an interface of another kind,
    /// `ResourceBusy` if another program has it open, `NotFound` if the kernel has no TUN.
    pub fn open(name: &str, layer: Layer) -> io::Result<Self> {
        let device = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(DEVICE)
            .map_err(|error| explain(name, error))?;
        let name =
            tun::attach(device.as_fd(), name, layer).map_err(|error| explain(name, error))?;
        Ok(Self {
            device,
            name,
            buffer: vec![0; LONGEST].into(),
            refused: 0,
            packets: PhantomData,
        })
    }
}

impl<F> TunBackend<F> {
    /// Returns the interface's name when it was made.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Gives the interface an Ethernet address that follows from its name and the address of the interface `other`, and an MTU
    /// of at most that one's: so neighbours know it again when it is made again. The address is a locally administered
    /// one, and never that of `other`. Where `other` has none, nothing is changed.
    ///
    /// # Errors
    ///
    /// The kernel cannot be asked, or the privilege `CAP_NET_ADMIN` is missing.
    pub fn follow(&self, other: &str) -> io::Result<()> {
        let network = Network::read()?;
        let (Some(address), Some(mtu)) = (network.hardware(other), network.mtu(other)) else {
            return Ok(());
        };
        moved::set_up(&self.name, derived(address, &self.name), mtu)
    }

    /// Sets the interface up, in the network namespace in which it was made: the calling thread's.
    ///
    /// # Errors
    ///
    /// The interface was removed or renamed, or the privilege is gone.
    pub fn set_up(&self) -> io::Result<()> {
        Interface::find(&self.name)?.set_up()
    }
}

impl<F: PacketFrame> Backend for TunBackend<F> {
    type Tx = F;
    type Rx = F;

    /// # Errors
    ///
    /// `NotFound` when the interface has been removed.
    fn transmit(&mut self, batch: &mut VecDeque<F>) -> io::Result<usize> {
        // The kernel treats packets from here like packets from a wire.
        batch.iter_mut().for_each(PacketFrame::complete);
        let (mut device, name) = (&self.device, &self.name);
        verdict::transmit(batch, &mut self.refused, |batch| {
            let mut taken = 0;
            for packet in batch.iter().take(sys::BATCH) {
                match device.write(packet.as_ref()) {
                    Ok(_) => taken += 1,
                    // Met again, and then judged, by the next attempt.
                    Err(_) if taken > 0 => break,
                    Err(error) => match error.raw_os_error() {
                        Some(libc::EIO) => return Ok(0),
                        _ => return Err(while_running(name, error)),
                    },
                }
            }
            Ok(taken)
        })
    }

    /// # Errors
    ///
    /// `NotFound` when the interface has been removed.
    fn receive(&mut self, into: &mut Vec<F>, max: usize) -> io::Result<usize> {
        let (mut device, name, buffer) = (&self.device, &self.name, &mut self.buffer);
        verdict::receive(max, |_| {
            let length = device
                .read(buffer)
                .map_err(|error| while_running(name, error))?;
            let mut packet = kept::room(length);
            packet.extend_from_slice(&buffer[..length]);
            into.push(packet.into());
            Ok(Taken {
                asked: 1,
                came: 1,
                delivered: 1,
            })
        })
    }

    /// Always 0: see the [module's page](self).
    fn in_flight(&self) -> io::Result<u64> {
        Ok(0)
    }

    fn refused(&self) -> u64 {
        self.refused
    }
}

impl<F> AsFd for TunBackend<F> {
    /// Readable when packets wait.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

/// Returns an Ethernet address that no other interface has, and that is the same for the same two: FNV-1a,
/// marked as locally administered and of one station.
fn derived(address: [u8; 6], name: &str) -> [u8; 6] {
    let bytes = address.iter().chain(name.as_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let [_, _, first, rest @ ..] = hash.to_be_bytes();
    let mut derived = [first & 0xfc | 0x02, 0, 0, 0, 0, 0];
    derived[1..].copy_from_slice(&rest);
    // Among 2^46 it may be the other's all the same.
    derived[5] ^= u8::from(derived == address);
    derived
}

/// The kernel's device for virtual interfaces.
const DEVICE: &str = "/dev/net/tun";

/// Returns the sentence for an error met while opening.
fn explain(name: &str, error: io::Error) -> io::Error {
    let (kind, sentence) = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => (
            error.kind(),
            format!(
                "to make the interface {name} the privilege CAP_NET_ADMIN is needed: run as root, \
                 or grant it to the program (setcap cap_net_admin+ep)"
            ),
        ),
        Some(libc::ENOENT | libc::ENXIO) => (
            io::ErrorKind::NotFound,
            format!("this kernel has no {DEVICE}: load the module tun (modprobe tun)"),
        ),
        Some(libc::EBUSY) => (
            error.kind(),
            format!("the interface {name} is busy: another program has it open"),
        ),
        Some(libc::EINVAL | libc::ENODEV | libc::EEXIST) => (
            io::ErrorKind::InvalidInput,
            format!(
                "no interface can be made with the name {name:?}: it must have at most 15 bytes, \
                 no slash, colon or space, and not be that of an interface of another kind"
            ),
        ),
        _ => (
            error.kind(),
            format!("the interface {name} cannot be made: {error}"),
        ),
    };
    io::Error::new(kind, sentence)
}

/// Returns a later error, as a message if the interface is gone.
fn while_running(name: &str, error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::EBADFD | libc::ENODEV) => io::Error::new(
            io::ErrorKind::NotFound,
            format!("the interface {name} has been removed: open it again"),
        ),
        _ => error,
    }
}

impl<F> fmt::Debug for TunBackend<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TunBackend")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_derived_address_is_local_of_one_station_and_always_the_same() {
        let port = [0x00, 0x1b, 0x21, 0x3c, 0x4d, 0x5e];
        let address = derived(port, "fair0");
        assert_eq!(address[0] & 3, 2, "{address:x?}");
        assert_eq!(derived(port, "fair0"), address);
        assert_ne!(derived(port, "fair1"), address);
        assert_ne!(
            derived([0x00, 0x1b, 0x21, 0x3c, 0x4d, 0x5f], "fair0"),
            address
        );
        assert_ne!(derived(address, "fair0"), address);
    }
}
