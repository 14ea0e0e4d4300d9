//! Whole Ethernet frames on an interface, through packet sockets (`AF_PACKET`). Linux only.
//!
//! A [`PacketBackend`] receives every frame that arrives on its interface (as does the kernel's own network stack) and
//! transmits frames exactly as they are given. It serves any interface that carries Ethernet, with any driver. It needs
//! the privilege `CAP_NET_RAW`.
//!
//! # Receiving
//!
//! Frames arrive in a ring that the kernel fills, so that receiving them costs no system call, only
//! a copy. [`Options::prompt`] chooses how the kernel hands them over:
//!
//! - *In blocks* (`TPACKET_V3`), the default. A block is handed over when it is full, or after about a millisecond; the
//!   kernel takes no shorter time. A frame may wait that long on a quiet interface, and a waiting thread is woken once
//!   a block.
//! - *Promptly* (`TPACKET_V2`): each frame as soon as it arrives. A waiting thread is woken once a frame, unless more
//!   arrive before it runs. Use it to forward latency-sensitive traffic: a bridge in blocks adds up to a millisecond
//!   each way, and breaks every delay bound.
//!
//! Over a virtual cable a lone frame reaches a waiting thread after 0.6 ms in blocks, and after 29 us promptly. Prompt
//! forwarding takes 1 to 7% more CPU time, and more where a thread sleeps between frames, as each frame wakes it.
//! `docs/internals/devices.md` has the figures.
//!
//! A caller that does not receive for longer than the ring lasts loses frames, and [`lost`](PacketBackend::lost) counts
//! them. A ring has [`Options::ring`] bytes, in blocks of 128 KiB:
//!
//! - In blocks, each frame takes its length and some 100 bytes. On a quiet interface a block is used
//!   up each millisecond, so the 128 of the default ring last an eighth of a second.
//! - Promptly, each frame takes a slot of the size of the MTU, whatever its length: the default ring holds 10,368
//!   frames of an MTU of 1,500, which is 120 ms of full frames at 1 Gbit/s, but only 10 ms of a million short ones a
//!   second. Longer frames bypass the ring and take one system call each: up to the ring's size may be queued there
//!   with the privilege `CAP_NET_ADMIN`, otherwise `net.core.rmem_max`. [`discarded`](PacketBackend::discarded) counts
//!   those that found no space.
//!
//! A received frame has its form on the wire, or the form that it would have there. VLAN tags, which the kernel strips,
//! are restored. Checksums that a sender on the same machine left to hardware that does not exist are completed, unless
//! the frame is received as a [`PacketFrame`] that can say that it lacks one. Frames that such a sender left
//! unsegmented, up to 64 KiB each, and frames that the kernel coalesced on ingress (GRO), are segmented, byte by byte
//! as the kernel's own bridge would ([`fairlane_wire::segmentation`]): each segment is a frame of its own, and a call
//! returns no more of them than it asked for. Frames that cannot be segmented, most likely tunnels, are dropped and counted by
//! [`uncut`](PacketBackend::uncut). A frame that a *device* has coalesced (LRO) cannot be restored: turn LRO off where
//! you forward ([`Hold`](crate::Hold::single_frames_of_device)). Frames that this backend or the kernel transmits on
//! the interface are not received.
//!
//! # Transmitting
//!
//! By `sendmmsg`, 64 frames a system call, through the interface's queueing discipline. A frame that says that it
//! [lacks its checksum](PacketFrame) is transmitted so, and is completed by the device, or by the kernel where the
//! device cannot; or never, where it stays on this machine: as with the kernel's own bridge.
//!
//! [`in_flight`](Backend::in_flight) is kept within the [`Budget`]. It is counted in bytes of kernel memory, as the
//! kernel counts: a frame of 60 bytes takes 832 of them, one of 1,514 bytes 2,304. A frame is in flight while it is
//! queued in the queueing discipline or the driver; its completion raises no event, so offer the rest again after a
//! while.
//!
//! | error | meaning |
//! | --- | --- |
//! | `EAGAIN`, `ENOBUFS`, `ENOMEM`, the budget is used up | full: the rest stays in the batch |
//! | `ENETDOWN`: the interface is set down | the same: it may be set up again |
//! | `EMSGSIZE` (longer than the MTU allows), `EINVAL` (shorter than an Ethernet header), longer than the whole budget | the frame is refused |
//! | `ENXIO`: the interface was removed, or moved to another namespace | fatal |
//!
//! While the *other* end of a cable is down, an interface takes frames and loses them, as an
//! unplugged one does.
//!
//! # Example
//!
//! ```
//! use fairlane_io::packet::{Options, Position, Shape, Sockets};
//! use fairlane_io::{Backend, Budget, PacketBackend};
//! use std::collections::VecDeque;
//!
//! // The error is a message: here for a missing interface, elsewhere perhaps for a privilege.
//! let error = PacketBackend::<Vec<u8>>::open("nosuch0", &Options::default()).unwrap_err();
//! println!("{error}");
//!
//! fn forward(from: &mut PacketBackend, to: &mut PacketBackend) -> std::io::Result<usize> {
//!     let mut arrived = Vec::new();
//!     from.receive(&mut arrived, 64)?;
//!     to.transmit(&mut VecDeque::from(arrived))
//! }
//!
//! // The state by which another process continues from here, without a lost frame.
//! fn state(of: &PacketBackend) -> std::io::Result<Option<(Sockets, Position)>> {
//!     let Some(sockets) = of.sockets()? else {
//!         return Ok(None); // frames come in blocks
//!     };
//!     let Shape { blocks, block_size, .. } = sockets.ring;
//!     println!("a ring of {} bytes", blocks * block_size);
//!     Ok(Some((sockets, of.position())))
//! }
//!
//! fn go_on(name: &str, (sockets, position): (Sockets, Position)) -> std::io::Result<PacketBackend> {
//!     let mut device = PacketBackend::from_sockets(name, Budget::default(), sockets)?;
//!     device.go_on_from(position);
//!     Ok(device)
//! }
//!
//! let prompt = Options { prompt: true, ring: 1 << 20, ..Options::default() };
//! if let Ok(first) = PacketBackend::open("lo", &prompt)
//!     && let Some(state) = state(&first)?
//! {
//!     let second = go_on("lo", state)?;
//!     assert_eq!(second.position(), first.position());
//! }
//! # Ok::<(), std::io::Error>(())
//! ```

#[cfg(test)]
mod beside_ring;
#[cfg(test)]
mod early_drop;
#[cfg(test)]
mod left_undone;
#[cfg(test)]
mod like_kernel;
mod repair;

use std::collections::VecDeque;
use std::iter::repeat_n;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fmt, io};

use crate::early::{Gate, Target};
use crate::interface::no_ethernet;
use crate::segment::Cutter;
use crate::sys::bpf::Heard;
use crate::sys::interface::{Interface, LinkState};
pub use crate::sys::packet::Shape;
use crate::sys::packet::{self, HandOver, Hears, Ring};
#[doc(hidden)]
pub use crate::unsummed::{PacketFrame, Unsummed};
use crate::waits::{Look, Waits};
use crate::{Arrival, Backend, Budget, sys, verdict};
use fairlane_wire::segmentation;

/// Options of a [`PacketBackend`].
#[derive(Clone, Debug)]
pub struct Options {
    /// The most bytes of kernel memory that frames may occupy that have not left. At least what
    /// one frame of the interface's MTU takes.
    pub budget: Budget,
    /// Bytes of the ring in which frames wait to be received, rounded up to whole blocks, at least
    /// two. A block has 128 KiB.
    pub ring: usize,
    /// Whether each frame is handed over on arrival instead of in blocks, in which it may wait for a millisecond: for
    /// forwarding latency-sensitive traffic. The [module's page](self#receiving) has the cost. Each frame then takes a
    /// slot of the ring, sized for the MTU that the interface has when it is opened; longer frames take a system call.
    pub prompt: bool,
    /// Whether to receive frames to other stations' addresses too (promiscuous mode), as a bridge needs. A virtual
    /// cable delivers them in any case.
    pub promiscuous: bool,
    /// Whether it receives nothing until [`hear`](PacketBackend::hear) is called.
    pub deaf: bool,
}

/// The default budget, a ring of 16 MiB, in blocks, not promiscuous, hearing at once.
impl Default for Options {
    fn default() -> Self {
        Self {
            budget: Budget::default(),
            ring: 16 << 20,
            prompt: false,
            promiscuous: false,
            deaf: false,
        }
    }
}

/// State by which another process continues with the sockets of a backend, from its current position.
#[derive(Debug)]
#[doc(hidden)]
pub struct Sockets {
    /// The transmit socket.
    pub sender: OwnedFd,
    /// The receive socket.
    pub receiver: OwnedFd,
    /// The ring that they arrive in.
    pub ring: Shape,
}

/// A backend's position in the ring: frames from there on have not been received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(hidden)]
pub struct Position {
    /// A block of the ring.
    pub block: usize,
    /// The byte in it where the next frame's place begins.
    pub at: usize,
}

/// An interface that sends and receives frames `F`, each a whole Ethernet frame without
/// its checksum.
///
/// No call blocks. [`transmit`](Backend::transmit) makes two system calls for 64 frames and allocates nothing.
/// [`receive`](Backend::receive) makes none while frames are available; it copies each frame's bytes into memory that
/// is [kept](crate::KeptBytes), or allocated, and records how long each frame was in the ring
/// ([`arrivals`](Backend::arrivals)). To wait, use [`Waiter`](crate::Waiter), once `receive` has returned fewer frames
/// than requested: pending segments of a frame are held here, and make no descriptor readable.
pub struct PacketBackend<F = Vec<u8>> {
    name: String,
    interface: Interface,
    /// Frames leave by a socket of their own, so that its memory counts only transmitted frames.
    sender: OwnedFd,
    /// Socket for frames that lack their checksums, with all others of the same call: its `virtio_net_hdr` costs the
    /// kernel time for every frame.
    unsummed: OwnedFd,
    /// Whether the socket `unsummed` had frames in flight at the last query.
    is_summing: AtomicBool,
    ring: Ring,
    /// Whether other backends share the arrivals.
    is_sharing: bool,
    budget: Budget,
    /// The part of it that is in use, which keeps the transmit queue short.
    limit: Budget,
    /// Kernel memory of a frame of the MTU.
    longest: u64,
    most_in_flight: u64,
    /// Calls of `receive` running that found nothing, modulo [`LOOKS_PER_QUESTION`].
    vain: u32,
    /// The interface was down at the last check.
    down: bool,
    refused: u64,
    discarded: u64,
    /// Some were, since the losses were last queried.
    discarding: bool,
    cutter: Cutter,
    /// When the frame that is being segmented arrived, and whether frames were lost then.
    begun: (Duration, bool),
    lost: u64,
    waits: Waits,
    /// Of the frames of the last call of `receive`.
    arrivals: Vec<Arrival>,
    frames: PhantomData<fn(F)>,
}

impl<F: AsRef<[u8]>> PacketBackend<F> {
    /// Opens the interface of this name in the calling thread's network namespace. It may be down.
    ///
    /// # Errors
    ///
    /// A sentence that says what to do: `PermissionDenied` without the privilege `CAP_NET_RAW`,
    /// `NotFound` if there is no such interface, `InvalidInput` if it carries no Ethernet frames or
    /// the budget is below one, `OutOfMemory` if the kernel has no room for the ring.
    pub fn open(name: &str, options: &Options) -> io::Result<Self> {
        let explained = |error| explain(name, error);
        let sender = packet::open().map_err(explained)?;
        let interface = Interface::find(name).map_err(explained)?;
        if !interface.carries_ethernet().map_err(explained)? {
            return Err(no_ethernet(name));
        }
        let mtu = interface.mtu().map_err(explained)?;
        let least = kernel_memory(mtu + HEADER);
        if options.budget.as_bytes() < least {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "a budget of {} bytes in flight is too small for {name}: one frame of its MTU \
                     of {mtu} takes {least} bytes of kernel memory",
                    options.budget.as_bytes()
                ),
            ));
        }
        let index = interface.index();
        prepare(&sender, index, options.budget).map_err(explained)?;
        let unsummed = unsummed(index, options.budget).map_err(explained)?;

        let block = block_size(mtu);
        let blocks = options.ring.div_ceil(block).max(2);
        let receiver = packet::open().map_err(explained)?;
        let hand_over = match options.prompt {
            true => HandOver::Frames {
                place: place_size(mtu),
                queue: blocks.saturating_mul(block),
            },
            false => HandOver::Blocks,
        };
        let ring =
            Ring::new(receiver, hand_over, blocks, block).map_err(|error| match error.kind() {
                io::ErrorKind::OutOfMemory | io::ErrorKind::InvalidInput => io::Error::new(
                    io::ErrorKind::OutOfMemory,
                    format!(
                        "the kernel has no room for a receive ring of {} bytes for {name}",
                        blocks.saturating_mul(block)
                    ),
                ),
                _ => explained(error),
            })?;
        let hears = match options.deaf {
            true => Hears::Nothing,
            false => Hears::Everything,
        };
        packet::bind(ring.as_fd(), index, hears).map_err(explained)?;
        if options.promiscuous {
            packet::hear_all_addresses(ring.as_fd(), index).map_err(explained)?;
        }
        let senders = [sender, unsummed];
        Ok(Self::over(
            name,
            interface,
            senders,
            ring,
            options.budget,
            least,
        ))
    }

    /// Opens the interface with `count` backends, for as many receiving threads: each frame arrives at exactly one of
    /// these backends. Each has a ring and sockets of its own. With a `count` of 1 it is [`open`](Self::open).
    ///
    /// The kernel selects the backend of a frame by a hash of its addresses, its protocol and its ports
    /// (`PACKET_FANOUT_HASH`), the same in both directions, so the frames of a connection reach one of them, in order.
    /// Fragments are hashed without ports: those of one datagram reach the same backend, but not always that of the
    /// unfragmented packets of their flow. Other protocols than IP are hashed by protocol number alone. If a ring is
    /// full its frames are lost, even if another has space, to keep their order. While the interface is restored the
    /// kernel reattaches the sockets one after the other: for that instant a flow may reach another backend.
    ///
    /// They receive at once. Each can be [stopped](Self::hear), for good.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open); and `InvalidInput` if `count` is 0, if several are to be deaf, or where the kernel
    /// cannot share arrivals: before Linux 5.8, and before 6.13 while the interface is down.
    pub fn open_group(name: &str, options: &Options, count: usize) -> io::Result<Vec<Self>> {
        if count == 1 {
            return Ok(vec![Self::open(name, options)?]);
        }
        if count == 0 || options.deaf {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "{count} sockets cannot share what arrives at {name}, unless they hear it at once"
                ),
            ));
        }
        let deaf = Options {
            deaf: true,
            ..options.clone()
        };
        let group: io::Result<Vec<Self>> = (0..count).map(|_| Self::open(name, &deaf)).collect();
        let mut group = group?;
        let sockets: Vec<_> = group.iter().map(|one| one.ring.as_fd()).collect();
        let share = || -> io::Result<()> {
            // Each would receive every frame until it has joined the others.
            for (one, socket) in group.iter().zip(&sockets) {
                packet::let_none_pass(*socket)?;
                packet::bind(*socket, one.interface.index(), Hears::Everything)?;
            }
            packet::share(&sockets)?;
            sockets
                .iter()
                .try_for_each(|&socket| packet::let_pass(socket))
        };
        share().map_err(|error| explain_sharing(name, error))?;
        group.iter_mut().for_each(|one| one.is_sharing = true);
        Ok(group)
    }
}

impl<F: PacketFrame> PacketBackend<F> {
    /// Sends at most `count` frames, in one call, by the one or the other socket.
    fn send(&self, batch: &VecDeque<F>, count: usize) -> io::Result<usize> {
        let lacks = |frame: &F| frame.lacks().is_some();
        if !F::MAY_LACK || !batch.iter().take(count).any(lacks) {
            return packet::send(self.sender.as_fd(), batch, count);
        }
        self.is_summing.store(true, Ordering::Relaxed);
        packet::send_with(self.unsummed.as_fd(), batch, count, |frame| {
            let lacks = frame.lacks();
            lacks.map_or([0; segmentation::HEADER], Unsummed::header)
        })
    }

    /// Appends the remaining segments of a frame that is being segmented: they arrived before all frames in the ring.
    /// Returns how long the frame has waited; zero if nothing remained.
    pub fn rest(&mut self, into: &mut Vec<F>) -> Duration {
        match self.cutter.go_on(into, usize::MAX) {
            0 => Duration::ZERO,
            _ => self.waits.look_by_wall().waited(self.begun.0),
        }
    }
}

impl<F> PacketBackend<F> {
    /// Continues with the sockets of another backend, most likely of another process, that had this interface and this
    /// budget. Only one of both may receive at a time: this one starts at the [position](Self::go_on_from) that the
    /// other one reached.
    ///
    /// # Errors
    ///
    /// An error message: there is no such interface, or the sockets have another type.
    #[doc(hidden)]
    pub fn from_sockets(name: &str, budget: Budget, sockets: Sockets) -> io::Result<Self> {
        let explained = |error| explain(name, error);
        let interface = Interface::find(name).map_err(explained)?;
        let ring = Ring::shared(sockets.receiver, sockets.ring).map_err(explained)?;
        let unsummed = unsummed(interface.index(), budget).map_err(explained)?;
        let senders = [sockets.sender, unsummed];
        let longest = kernel_memory(interface.mtu().map_err(explained)? + HEADER);
        Ok(Self::over(name, interface, senders, ring, budget, longest))
    }

    /// Returns its sockets, for another process; `None` where frames come in blocks. Two system
    /// calls.
    ///
    /// # Errors
    ///
    /// There are no descriptors left.
    pub fn sockets(&self) -> io::Result<Option<Sockets>> {
        let Some(ring) = self.ring.shape() else {
            return Ok(None);
        };
        Ok(Some(Sockets {
            sender: self.sender.try_clone()?,
            receiver: self.ring.as_fd().try_clone_to_owned()?,
            ring,
        }))
    }

    /// Returns its position, once [the rest](Self::rest) has been received.
    pub fn position(&self) -> Position {
        let (block, at) = self.ring.next();
        Position { block, at }
    }

    /// The next frame that it receives is the one there. A position that is none is not taken.
    #[doc(hidden)]
    pub fn go_on_from(&mut self, position: Position) {
        self.ring.go_on_from((position.block, position.at));
    }

    fn over(
        name: &str,
        interface: Interface,
        [sender, unsummed]: [OwnedFd; 2],
        ring: Ring,
        budget: Budget,
        longest: u64,
    ) -> Self {
        Self {
            name: name.to_owned(),
            interface,
            sender,
            unsummed,
            is_summing: AtomicBool::new(false),
            ring,
            is_sharing: false,
            budget,
            limit: budget,
            longest,
            most_in_flight: 0,
            vain: 0,
            down: false,
            refused: 0,
            discarded: 0,
            discarding: false,
            cutter: Cutter::default(),
            begun: Default::default(),
            lost: 0,
            waits: Waits::new(),
            arrivals: Vec::new(),
            frames: PhantomData,
        }
    }

    /// Starts or stops receiving. Frames that arrived before a stop remain in the ring, to be received. A start takes
    /// some microseconds; a stop waits for processors that may be delivering a frame, tens of milliseconds. Repeated
    /// calls are allowed. One of [several](Self::open_group) that was stopped cannot start again, and where the kernel
    /// cannot wait for its processors (`MEMBARRIER_CMD_GLOBAL`), a frame that was on its way may still arrive.
    ///
    /// # Errors
    ///
    /// `NotFound` if the interface has been removed; `InvalidInput` on starting one of several again.
    pub fn hear(&self, anything: bool) -> io::Result<()> {
        if self.is_sharing && !anything {
            let former = self.ring.socket().exchange(Heard::Nothing);
            former.map_err(|error| explain(&self.name, error))?;
            // As a rebind would, which a socket of a group does not allow.
            sys::wait_for_readers(sys::Moment::now());
            return Ok(());
        }
        let hears = match anything {
            true => Hears::Everything,
            false => Hears::NothingMore,
        };
        let bound = packet::bind(self.ring.as_fd(), self.interface.index(), hears);
        bound.map_err(|error| match error.raw_os_error() {
            Some(libc::ENODEV | libc::ENXIO) => removed(&self.name),
            _ => explain(&self.name, error),
        })
    }

    /// Frames that arrived and found no room in the ring, since this backend was made: too small a
    /// ring for how late [`receive`](Backend::receive) was called. One system call.
    ///
    /// # Errors
    ///
    /// None is known.
    pub fn lost(&mut self) -> io::Result<u64> {
        self.discarding = false;
        self.lost += self.ring.lost()?;
        Ok(self.lost)
    }

    /// Returns the number of received frames that were dropped since this backend was made: truncated by the kernel,
    /// for being longer than any IP packet, or because too many long ones were queued.
    pub fn discarded(&self) -> u64 {
        self.discarded
    }

    /// Returns the number of received frames that were dropped since this backend was made because they need
    /// segmentation and cannot be segmented: tunnels, most likely. See
    /// [`fairlane_wire::segmentation`].
    #[doc(hidden)]
    pub fn uncut(&self) -> u64 {
        self.cutter.uncut()
    }

    /// Returns whether a quarter of the ring is full: more arrives than is received, or reception was paused. O(1).
    #[doc(hidden)]
    pub fn is_filling(&self) -> bool {
        self.ring.is_filling()
    }

    /// Where frames arrive, before they take a place in the ring.
    pub fn gate(&self) -> Gate {
        Gate(Target::Socket(Arc::downgrade(self.ring.socket())))
    }

    /// Returns the kernel memory, in bytes, charged for frames in flight.
    fn unsent(&self) -> io::Result<u64> {
        let mut bytes = sys::unsent(self.sender.as_fd())?;
        if self.is_summing.load(Ordering::Relaxed) {
            let more = sys::unsent(self.unsummed.as_fd())?;
            self.is_summing.store(more > 0, Ordering::Relaxed);
            bytes += more;
        }
        Ok(bytes)
    }

    /// Learns what became of the interface, if something has.
    fn look_for_errors(&mut self) -> io::Result<()> {
        match self.ring.take_error() {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::ENETDOWN) => self.down = true,
            Err(error) => return Err(explain(&self.name, error)),
        }
        // The kernel says when an interface is down from the start, and when one that is up is set
        // down, also to remove it. It does not say when one that is down is removed.
        if self.down {
            match self.interface.state() {
                Ok(LinkState::Gone) => return Err(removed(&self.name)),
                Ok(state) => self.down = state == LinkState::Down,
                Err(error) => return Err(explain(&self.name, error)),
            }
        }
        Ok(())
    }
}

/// Of this many consecutive empty receive calls, the first queries the socket for an error. Polling the ring costs no
/// system call, and a busy poller should not pay for one.
const LOOKS_PER_QUESTION: u32 = 32;

impl<F: PacketFrame> Backend for PacketBackend<F> {
    type Tx = F;
    type Rx = F;

    /// # Errors
    ///
    /// `NotFound` when the interface has been removed.
    fn transmit(&mut self, batch: &mut VecDeque<F>) -> io::Result<usize> {
        let (budget, mut refused) = (self.budget, 0);
        let sent = verdict::transmit(batch, &mut refused, |batch| {
            let costs = batch
                .iter()
                .map(|frame| kernel_memory(frame.as_ref().len()));
            if costs
                .clone()
                .next()
                .is_some_and(|cost| cost > budget.as_bytes())
            {
                return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
            }
            let unsent = self.unsent()?;
            let (room, in_flight) = self.limit.room_for(unsent, costs.take(sys::BATCH));
            if room == 0 {
                return Ok(0);
            }
            let sent = self
                .send(batch, room)
                .or_else(|error| match error.raw_os_error() {
                    Some(libc::ENETDOWN) => Ok(0),
                    Some(libc::ENXIO | libc::ENODEV) => Err(removed(&self.name)),
                    _ => Err(error),
                })?;
            if in_flight > self.most_in_flight {
                let in_flight = match sent {
                    0 => 0,
                    _ if sent == room => in_flight,
                    // Report the accepted frames even if the queue cannot be queried.
                    _ => self.unsent().unwrap_or(in_flight),
                };
                self.most_in_flight = self.most_in_flight.max(in_flight);
            }
            Ok(sent)
        });
        self.refused += refused;
        sent
    }

    /// # Errors
    ///
    /// `NotFound` when the interface has been removed. It is found out by one of several calls
    /// that find nothing.
    fn receive(&mut self, into: &mut Vec<F>, max: usize) -> io::Result<usize> {
        self.arrivals.clear();
        let look = self.waits.look_by_wall();
        let end = into.len().saturating_add(max);
        let mut came = self.cutter.go_on(into, max);
        let begun = arrival_at(look, self.begun);
        self.arrivals.extend(repeat_n(begun, came));
        let (room, mut shown) = (max - came, 0);
        came += self.ring.receive(room, |arrival| {
            shown += 1;
            let note = (arrival.came, arrival.losing || self.discarding);
            let offload = repair::offload(&arrival);
            let frames = if arrival.bytes.len() < arrival.length {
                self.discarded += 1;
                self.discarding = true;
                0
            } else if offload.segments.is_some() {
                self.begun = note;
                let write = |whole: &mut Vec<u8>| repair::write(&arrival, whole);
                self.cutter
                    .cut_next(&offload, write, into, end - into.len())
            } else {
                into.push(repair::repair(&arrival));
                1
            };
            let arrived = arrival_at(look, note);
            self.arrivals.extend(repeat_n(arrived, frames));
            frames
        });
        if came < max && shown < room {
            self.waits.emptied(look);
        }
        if came > 0 || max == 0 {
            self.vain = 0;
            return Ok(came);
        }
        if self.vain == 0 {
            self.look_for_errors()?;
        }
        self.vain = (self.vain + 1) % LOOKS_PER_QUESTION;
        Ok(0)
    }

    fn arrivals(&self) -> &[Arrival] {
        &self.arrivals
    }

    /// Returns the kernel memory charged to the socket for frames in flight (`SIOCOUTQ`): the frames and the kernel's
    /// overhead. Some devices (a virtual cable among them) release a frame before it has left.
    fn in_flight(&self) -> io::Result<u64> {
        self.unsent()
    }

    /// As if nothing of what one call sent had left before its end.
    fn most_in_flight(&self) -> u64 {
        self.most_in_flight
    }

    fn keep_short(&mut self, bytes: u64) -> u64 {
        self.limit = self.budget.shortened(bytes, self.longest);
        self.limit.as_bytes()
    }

    /// Always 0: the kernel transmits accepted frames without further calls.
    fn go_on(&mut self) -> io::Result<u64> {
        Ok(0)
    }

    fn refused(&self) -> u64 {
        self.refused
    }
}

impl<F> AsFd for PacketBackend<F> {
    /// Readable when frames wait.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}

/// Makes a socket one that frames leave by, through the interface of this index.
fn prepare(socket: &OwnedFd, index: u32, budget: Budget) -> io::Result<()> {
    packet::bind(socket.as_fd(), index, Hears::Nothing)?;
    // The largest buffer that the kernel grants caps the budget.
    let wanted = usize::try_from(budget.as_bytes()).unwrap_or(usize::MAX);
    sys::set_buffer(socket.as_fd(), sys::Buffer::Send, wanted).map(drop)
}

/// Opens a transmit socket whose frames begin with a `virtio_net_hdr`.
fn unsummed(index: u32, budget: Budget) -> io::Result<OwnedFd> {
    let socket = packet::open()?;
    prepare(&socket, index, budget)?;
    packet::leave_to_hardware(socket.as_fd())?;
    Ok(socket)
}

/// Returns the metadata of a frame from the kernel's record of its arrival and losses.
fn arrival_at(look: Look, (came, losing): (Duration, bool)) -> Arrival {
    Arrival {
        waited: look.waited(came),
        losing,
    }
}

/// Bytes of an Ethernet header with a VLAN tag, which the MTU does not count.
const HEADER: usize = 18;

/// Returns the size in bytes of a block in the receive ring: it fits a frame of this MTU, and any unsegmented one, with
/// the kernel's header.
fn block_size(mtu: usize) -> usize {
    const BESIDE: usize = 512;
    const LEAST: usize = 128 << 10;
    (mtu + BESIDE).next_power_of_two().max(LEAST)
}

/// Returns the size in bytes of the slot of one frame of this MTU with the kernel's header, in whole cache lines. The
/// next power of two cost as much time and held a fifth fewer frames.
fn place_size(mtu: usize) -> usize {
    const BESIDE: usize = 80;
    const LINE: usize = 64;
    (mtu + HEADER + BESIDE).next_multiple_of(LINE)
}

/// Returns an upper bound on the kernel memory charged for a frame of `length` bytes in the transmit queue: its share
/// of a [`Budget`].
///
/// The kernel allocates the frame, the headroom that devices reserve and 320 bytes of its own together, in a power of
/// two or in one piece of at most 640 bytes; a frame of at least a page lies in pages of its own, with such a piece for
/// its header. A descriptor of 256 bytes is added to either.
///
/// ```
/// use fairlane_io::packet::kernel_memory;
///
/// assert_eq!([60, 1_514].map(kernel_memory), [896, 2_304]);
/// ```
#[doc(hidden)]
pub fn kernel_memory(length: usize) -> u64 {
    const RESERVED: usize = 128;
    const SHARED: usize = 320;
    const SMALL: usize = 640;
    const DESCRIPTOR: usize = 256;
    const PAGE: usize = 4_096;
    let allotted = match length {
        PAGE.. => length.next_multiple_of(PAGE) + SMALL,
        _ => match length + RESERVED + SHARED {
            ..=SMALL => SMALL,
            together => together.next_power_of_two(),
        },
    };
    (allotted + DESCRIPTOR) as u64
}

fn removed(name: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::NotFound,
        format!(
            "the interface {name} has been removed or moved to another network namespace: open it \
             again when it is back"
        ),
    )
}

/// Returns the sentence for an error met with an interface.
fn explain(name: &str, error: io::Error) -> io::Error {
    let sentence = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => format!(
            "to send and receive frames on {name} the privilege CAP_NET_RAW is needed: run as \
             root, or grant it to the program (setcap cap_net_raw+ep)"
        ),
        Some(libc::ENODEV | libc::ENXIO) => {
            format!("there is no interface {name} in this network namespace")
        }
        _ => format!("the interface {name} cannot be used: {error}"),
    };
    let kind = match error.raw_os_error() {
        Some(libc::ENODEV | libc::ENXIO) => io::ErrorKind::NotFound,
        _ => error.kind(),
    };
    io::Error::new(kind, sentence)
}

/// The same of several sockets.
fn explain_sharing(name: &str, error: io::Error) -> io::Error {
    if error.raw_os_error() != Some(libc::EINVAL) {
        return explain(name, error);
    }
    let sentence = format!(
        "several sockets cannot share what arrives at {name}: it takes Linux 5.8, and before Linux 6.13 an \
         interface that is up (ip link set {name} up)"
    );
    io::Error::new(error.kind(), sentence)
}

impl<F> fmt::Debug for PacketBackend<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketBackend")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_that_cannot_share_an_interface_say_what_it_takes() {
        let error = io::Error::from_raw_os_error(libc::EINVAL);
        let error = explain_sharing("lan0", error);
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert_eq!(
            error.to_string(),
            "several sockets cannot share what arrives at lan0: it takes Linux 5.8, and before Linux 6.13 an \
             interface that is up (ip link set lan0 up)"
        );
    }
}
