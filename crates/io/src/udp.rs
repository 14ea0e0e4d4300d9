//! UDP, many datagrams a system call. Linux only.
//!
//! A [`UdpBackend`] is one socket. It needs no privilege. The order of datagrams on one socket is kept as far as the
//! local kernel; the network beyond may lose, duplicate or reorder them, as with any UDP.
//!
//! # Mapping of kernel errors
//!
//! | error | meaning |
//! | --- | --- |
//! | `EAGAIN`, `ENOBUFS`, `ENOMEM` | full: the rest stays in the batch |
//! | `EINTR` | the call is made again |
//! | `ECONNREFUSED` | a report about an *earlier* datagram to a closed port: the call is made again |
//! | `EMSGSIZE` (too long), `EINVAL` (port 0), `EPERM`, `EACCES` (filtered, or broadcast not enabled), `EAFNOSUPPORT`, `EADDRNOTAVAIL`, `ENETUNREACH`, `EHOSTUNREACH`, `EHOSTDOWN`, `ENONET`, `ENOPROTOOPT`, `EPROTO` | this datagram cannot be sent: it is refused |
//! | any other (`EBADF`, `ENETDOWN`, `EPIPE`, ..) | fatal |
//!
//! A socket that is connected may report *any* of the third and fourth row about an earlier datagram. Such a report is
//! given once. So a call that meets one is repeated, and the datagram at the front is refused only after the kernel has
//! reported three errors in a row.
//!
//! # Many datagrams as one message
//!
//! Consecutive datagrams of a batch to the same peer and of one length, the last perhaps shorter, go to the kernel as
//! one message (UDP segmentation offload, `UDP_SEGMENT`): at most 64 of them and 65,507 bytes, without a copy, none
//! empty. The network stack then has the work of one datagram, until the device or the receiver's socket segments it.
//! Arrivals and counts are the same: if the kernel does not accept a message, each of its datagrams is transmitted
//! again at once by itself, and only those results count. Datagrams as long as those of a message that did not fit the
//! MTU (`EMSGSIZE`, in older kernels `EINVAL`) are sent by themselves from then on. [`UdpBackend::set_segmentation`]
//! turns it off.
//!
//! The kernel then accepts whole messages: a send buffer with any space left takes all of one, so that
//! [`in_flight`](Backend::in_flight) may exceed the buffer by a message of 64 KiB instead of by a datagram; and a full
//! queueing discipline drops a message.
//!
//! # Silent drops
//!
//! The network stack may still silently drop an accepted datagram: in a full queueing discipline of the interface, or
//! at the receiver's socket when its reader is slow. Against the first, keep the send buffer
//! ([`UdpBackend::set_send_buffer`]) below the limit of that discipline: the socket then fills up first, and reports
//! it. Against the second, give the receiver a larger buffer ([`UdpBackend::set_receive_buffer`]).
//!
//! # Example
//!
//! ```
//! use fairlane_io::{Backend, Datagram, UdpBackend, Waiter};
//! use std::collections::VecDeque;
//! use std::time::Duration;
//!
//! let localhost = "127.0.0.1:0".parse().unwrap();
//! let mut sender = UdpBackend::<Datagram>::bind(localhost)?;
//! let mut receivers = [UdpBackend::<Datagram>::bind(localhost)?];
//!
//! let peer = receivers[0].local_addr()?;
//! let mut batch = VecDeque::from([Datagram { peer, bytes: b"hello".to_vec() }]);
//! assert_eq!(sender.transmit(&mut batch)?, 1);
//!
//! let mut waiter = Waiter::new();
//! let mut arrived = Vec::new();
//! for index in waiter.wait_readable(&receivers, Duration::from_secs(5))? {
//!     receivers[index].receive(&mut arrived, 64)?;
//! }
//! assert_eq!(arrived[0].bytes, b"hello");
//! assert_eq!(arrived[0].peer, sender.local_addr()?);
//! # Ok::<(), std::io::Error>(())
//! ```

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::{fmt, io};

use self::segmentation::Segmentation;
use crate::verdict::{self, Taken};
use crate::{Backend, Datagram, Frame, sys};

pub(crate) mod segmentation;

/// Bytes of each receive buffer: the most that UDP's length field of 16 bits can say, so that no
/// datagram is ever cut.
const BUFFER: usize = 65_535;

/// A UDP socket that sends `F` and receives [`Datagram`]s.
///
/// No call blocks. [`transmit`](Backend::transmit) makes one system call for 64 frames, of which those
/// that [can](self#many-datagrams-as-one-message) go as one message, and allocates nothing.
/// [`receive`](Backend::receive) makes one for up to 64 datagrams and allocates each one's payload at its
/// exact size; the first call also reserves 4 MiB of buffers, of which the system provides only the pages
/// that datagrams reach. A socket that only transmits costs
/// nothing beyond its descriptor.
pub struct UdpBackend<F> {
    socket: UdpSocket,
    /// Room for a batch of received datagrams; empty before the first `receive`.
    memory: Vec<u8>,
    /// Bytes of one buffer in `memory`.
    buffer: usize,
    segmentation: Segmentation,
    refused: u64,
    discarded: u64,
    frames: PhantomData<fn(F)>,
}

impl<F: Frame> UdpBackend<F> {
    /// Opens a socket on `addr`, non-blocking and closed on `exec`. Port 0 lets the system choose one;
    /// [`local_addr`](Self::local_addr) returns it.
    ///
    /// # Errors
    ///
    /// `AddrInUse` if another socket has the port, `AddrNotAvailable` if no interface has the
    /// address, `PermissionDenied` for a port below 1024 without the privilege.
    pub fn bind(addr: SocketAddr) -> io::Result<Self> {
        Self::from_socket(UdpSocket::bind(addr)?)
    }

    /// Takes over an existing socket, for options that this type does not offer, and makes it
    /// non-blocking (so are its clones then).
    ///
    /// A connected socket serves too. It receives from its peer alone, but each frame still goes
    /// to that frame's [`peer`](Frame::peer).
    ///
    /// # Errors
    ///
    /// An error of the system if the socket cannot be made non-blocking.
    pub fn from_socket(socket: UdpSocket) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let segmentation = Segmentation::new(sys::udp::cuts_on_request(socket.as_fd()));
        Ok(Self {
            socket,
            segmentation,
            memory: Vec::new(),
            buffer: BUFFER,
            refused: 0,
            discarded: 0,
            frames: PhantomData,
        })
    }

    /// Another backend on the same socket, so that one thread may receive while another transmits.
    ///
    /// Both share the port, the kernel's buffers and [`in_flight`](Backend::in_flight); each counts its own refused and
    /// discarded datagrams. The other starts with this one's knowledge and setting of
    /// [segmentation](Self::set_segmentation).
    ///
    /// # Errors
    ///
    /// The process has no descriptor left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            segmentation: self.segmentation,
            ..Self::from_socket(self.socket.try_clone()?)?
        })
    }

    /// Returns the address that this socket is bound to.
    ///
    /// # Errors
    ///
    /// An error of the system; never for a socket made by [`bind`](Self::bind).
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Requests `bytes` of kernel memory for datagrams that wait to be received, and returns the granted size. Too
    /// little loses datagrams in a burst.
    ///
    /// Linux doubles the request to cover its own bookkeeping (some 700 bytes for a short datagram), includes that in
    /// the returned size, and caps the request at the sysctl `net.core.rmem_max`.
    ///
    /// # Errors
    ///
    /// An error of the system; a request that is too large is capped, not an error.
    pub fn set_receive_buffer(&self, bytes: usize) -> io::Result<usize> {
        sys::set_buffer(self.as_fd(), sys::Buffer::Receive, bytes)
    }

    /// Requests `bytes` of kernel memory for datagrams in flight, and returns the granted size. It caps
    /// [`in_flight`](Backend::in_flight), so short is good: it bounds *Q*.
    ///
    /// Linux doubles the request as for
    /// [`set_receive_buffer`](Self::set_receive_buffer), caps it at `net.core.wmem_max`, and
    /// grants no less than a few thousand bytes.
    ///
    /// # Errors
    ///
    /// An error of the system; a request that is too large is capped, not an error.
    pub fn set_send_buffer(&self, bytes: usize) -> io::Result<usize> {
        sys::set_buffer(self.as_fd(), sys::Buffer::Send, bytes)
    }

    /// Lets the kernel segment messages into datagrams (see the [module's page](self)), which is the default, or
    /// transmits each datagram by itself; returns whether the kernel will segment. It will not if it lacks the feature
    /// (before Linux 4.18), or if a socket option already makes it segment all messages.
    pub fn set_segmentation(&mut self, wanted: bool) -> bool {
        let possible = wanted && sys::udp::cuts_on_request(self.as_fd());
        self.segmentation = Segmentation::new(possible);
        possible
    }

    /// Returns whether the kernel segments messages into datagrams: not after
    /// [`set_segmentation`](Self::set_segmentation) disabled it, nor once a route did not support it at all (`EIO`, as
    /// under IPsec).
    pub fn is_segmenting(&self) -> bool {
        self.segmentation.is_on()
    }

    /// Returns the number of received datagrams that were dropped since this backend was made: truncated by the kernel,
    /// or from no Internet address. Neither is known to happen.
    pub fn discarded(&self) -> u64 {
        self.discarded
    }
}

impl<F: Frame> Backend for UdpBackend<F> {
    type Tx = F;
    type Rx = Datagram;

    fn transmit(&mut self, batch: &mut VecDeque<F>) -> io::Result<usize> {
        let socket = self.socket.as_fd();
        let mut sending = self.segmentation.sending();
        verdict::transmit(batch, &mut self.refused, |batch| {
            sending.attempt(batch.len(), |most, longest| {
                sys::udp::send(socket, batch, most, longest)
            })
        })
    }

    fn receive(&mut self, into: &mut Vec<Datagram>, max: usize) -> io::Result<usize> {
        if self.memory.is_empty() {
            self.memory = vec![0; sys::BATCH * self.buffer];
        }
        let socket = self.socket.as_fd();
        verdict::receive(max, |room| {
            let asked = room.min(sys::BATCH);
            let before = into.len();
            let came =
                sys::udp::receive(socket, &mut self.memory, self.buffer, asked, |arrival| {
                    match arrival.peer {
                        Some(peer) if !arrival.truncated => into.push(Datagram {
                            peer,
                            bytes: arrival.bytes.to_vec(),
                        }),
                        _ => self.discarded += 1,
                    }
                })?;
            Ok(Taken {
                asked,
                came,
                delivered: into.len() - before,
            })
        })
    }

    /// Returns the kernel memory charged to the socket for datagrams in flight (`SIOCOUTQ`): the payloads with headers
    /// and bookkeeping, hence more than the bytes on the wire. A packet is no longer counted once its driver releases
    /// it, on some devices (loopback among them) before it has left.
    fn in_flight(&self) -> io::Result<u64> {
        sys::unsent(self.socket.as_fd())
    }

    /// Always 0: the kernel transmits accepted datagrams without further calls.
    fn go_on(&mut self) -> io::Result<u64> {
        Ok(0)
    }

    fn refused(&self) -> u64 {
        self.refused
    }
}

impl<F> AsFd for UdpBackend<F> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl<F> AsRawFd for UdpBackend<F> {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl<F> fmt::Debug for UdpBackend<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdpBackend")
            .field("socket", &self.socket)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Waiter;
    use std::time::Duration;

    #[test]
    fn a_datagram_that_does_not_fit_its_buffer_is_discarded_and_the_rest_arrive() {
        let localhost = "127.0.0.1:0".parse().unwrap();
        let mut receiver = UdpBackend::<Datagram>::bind(localhost).unwrap();
        receiver.buffer = 100;
        let peer = receiver.local_addr().unwrap();
        let mut sender = UdpBackend::bind(localhost).unwrap();
        let mut batch: VecDeque<_> = [100, 101, 7]
            .map(|length| Datagram {
                peer,
                bytes: vec![5; length],
            })
            .into();
        assert_eq!(sender.transmit(&mut batch).unwrap(), 3);

        let mut arrived = Vec::new();
        let mut waiter = Waiter::new();
        while arrived.len() < 2 {
            let ready = waiter.wait_readable(&[&receiver], Duration::from_secs(5));
            assert_eq!(ready.unwrap().len(), 1, "only {arrived:?} came");
            receiver.receive(&mut arrived, 64).unwrap();
        }
        let lengths: Vec<_> = arrived
            .iter()
            .map(|datagram| datagram.bytes.len())
            .collect();
        assert_eq!(lengths, [100, 7]);
        assert_eq!(receiver.discarded(), 1);
    }

    #[test]
    fn a_socket_that_only_transmits_holds_no_buffers() {
        let localhost = "127.0.0.1:0".parse().unwrap();
        let mut sender = UdpBackend::bind(localhost).unwrap();
        let peer = sender.local_addr().unwrap();
        let mut batch = VecDeque::from([Datagram {
            peer,
            bytes: vec![1],
        }]);
        assert_eq!(sender.transmit(&mut batch).unwrap(), 1);
        assert_eq!(sender.memory.capacity(), 0);
    }
}
