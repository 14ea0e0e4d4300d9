//! AF_XDP: Ethernet frames of an interface, of all its queues or of one, in memory shared with the
//! kernel. Linux only, and needs privilege.
//!
//! An [`XdpBackend`] takes *all* packets that arrive at its queues from the kernel's own stack, and
//! sends past the kernel's queueing disciplines. Other queues of the interface are left alone.
//!
//! # Queues
//!
//! A device divides what arrives among its receive queues, all packets of a flow to one. A backend that
//! was [bound to all](XdpBackend::bind_all) has a socket on each, takes from them in turns, an equal
//! part from each that has so many, and sends by the first alone. So packets of one flow keep their
//! order on both ways; packets of two flows that arrived at two queues may change places. The budget of
//! what is in flight is that of the one queue that sends. What the device counts by queue is told summed.
//!
//! # Frames
//!
//! Packets lie in the frames of a [`Umem`]. An [`XdpFrame`] is the handle of one, 16 bytes that may
//! be moved through queues and between threads; the bytes stay where they are. Backends bound with
//! the same [`Umem`] pass frames on as they are: what one receives, another transmits, and no
//! packet is copied by this process. A frame of another memory is copied on its way out.
//!
//! A frame belongs to whoever holds the handle, alone. The backend that transmits it gives it to
//! the kernel, and makes it free when the kernel is done with it; who drops it makes it free at
//! once. Frames run out when a scheduler queues more than [`Umem::new`] made: then what arrives is
//! dropped by the kernel and counted by [`XdpBackend::dropped`].
//!
//! A backend that is dropped makes its frames free, but for those that a device may still read or
//! write: in zero-copy mode all that it had, for the driver is stopped some time later. These are
//! lost to the [`Umem`]; its memory is freed with the rest.
//!
//! | held by | how many |
//! | --- | --- |
//! | each backend, to receive into | as many as its receive ring has places, for each of its queues |
//! | each backend, to send | up to as many as its transmit ring has places |
//! | the program, as [`XdpFrame`] | the rest, but for those that are free |
//!
//! A packet from another program on the same machine comes as it was left to the device: its
//! checksums may not be computed yet ([`complete_checksum`](crate::checksum::complete_checksum)). A frame
//! that was [found](XdpFrame::find_unsummed) to lack one is completed when it is sent: by the kernel where
//! that can be told (at a virtual cable, since Linux 6.11), and so never if it stays on this machine.
//! Segments that were left to be cut are cut by the kernel where it knows that such a backend
//! listens: at the other end of a virtual cable in native mode. In generic mode they come uncut, and
//! what is longer than a frame of the memory is lost and counted by
//! [`dropped`](XdpBackend::dropped), unless the sending interface's offloads are off
//! (`ethtool -K .. tso off gso off`).
//!
//! # Modes
//!
//! | mode | what the kernel does | offered by |
//! | --- | --- | --- |
//! | [`ZeroCopy`](XdpMode::ZeroCopy) | the device reads and writes the frames | some drivers |
//! | [`Native`](XdpMode::Native) | the driver hands packets over early; copied | many drivers, veth among them |
//! | [`Generic`](XdpMode::Generic) | the stack hands packets over; copied | every device |
//!
//! Asked for none, a backend gets the first that the interface offers, and
//! [`mode`](XdpBackend::mode) tells which: of several queues, the slowest of them.
//!
//! # What the kernel's errors become
//!
//! | error | taken as |
//! | --- | --- |
//! | `EAGAIN`, `ENOBUFS` | full: the rest stays in the batch |
//! | `EBUSY` | the device dropped one; if it has no carrier, as the next |
//! | `ENETDOWN` | the link is down: full until it is up again, and nothing is lost here |
//! | `ENXIO` | the interface is gone: fatal |
//! | any other | fatal |
//!
//! # Example
//!
//! ```
//! use fairlane_io::{Backend, Umem, XdpBackend, XdpFrame, XdpMode, XdpOptions};
//! use std::collections::VecDeque;
//! use std::io;
//!
//! // Frames are there before any backend, and free again when they are dropped.
//! let umem = Umem::new(64, 2_048)?;
//! let mut frame: XdpFrame = umem.frame_from(&[7; 60]).expect("64 are free");
//! frame.bytes_mut()[..6].fill(0xff);
//! assert_eq!((frame.len(), umem.free_frames()), (60, 63));
//! drop(frame);
//! assert_eq!(umem.free_frames(), 64);
//!
//! // One sentence says what is missing: here an interface, elsewhere perhaps a privilege.
//! let options = XdpOptions { mode: Some(XdpMode::Generic), ..XdpOptions::default() };
//! let error = XdpBackend::bind(&umem, "nosuch0", 0, &options).unwrap_err();
//! println!("{error}");
//!
//! /// What arrives on the left leaves on the right, where it lies.
//! fn forward(left: &mut XdpBackend, right: &mut XdpBackend) -> io::Result<usize> {
//!     let mut arrived = Vec::new();
//!     left.receive(&mut arrived, 64)?;
//!     right.transmit(&mut VecDeque::from(arrived))
//! }
//! # Ok::<(), io::Error>(())
//! ```

mod bind;
pub(crate) mod program;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::early::{Gate, Target};
use crate::sys::interface::{Interface, LinkState};
use crate::sys::xdp::{Socket, unroute};
use crate::waits::{Look, Waits};
use crate::{Arrival, Backend, Budget};

pub use crate::sys::umem::{Umem, XdpFrame};

/// How a backend and the device exchange packets, fastest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// The device reads and writes the frames themselves.
    ZeroCopy,
    /// The driver hands packets over before the kernel makes structures of its own for them, and
    /// the kernel copies them.
    Native,
    /// The kernel's stack hands packets over, and copies them. Every device has it.
    Generic,
}

impl fmt::Display for XdpMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ZeroCopy => "zero-copy",
            Self::Native => "native",
            Self::Generic => "generic",
        })
    }
}

/// What may be chosen about an [`XdpBackend`].
#[derive(Clone, Debug)]
pub struct XdpOptions {
    /// This mode or an error; `None` for the first that the interface offers.
    pub mode: Option<XdpMode>,
    /// Frames kept ready to receive into, at each queue: a power of two, 64 to 32,768. What arrives
    /// while all of its queue are full is lost. 1,024 if not chosen.
    pub rx_ring: u32,
    /// Frames that may be with the device to be sent: a power of two, 64 to 32,768. 256 if not
    /// chosen.
    pub tx_ring: u32,
    /// Bytes that may be with the device to be sent: the most that
    /// [`in_flight`](Backend::in_flight) ever says, *Q*. At least the interface's longest frame.
    /// 64 KiB if not chosen.
    pub budget: Budget,
    /// Whether packets go on to the kernel's own stack until it is [told to hear](XdpBackend::hear)
    /// them. Not if not chosen.
    pub deaf: bool,
}

impl Default for XdpOptions {
    fn default() -> Self {
        Self {
            mode: None,
            rx_ring: 1_024,
            tx_ring: 256,
            budget: Budget::from_bytes(64 << 10),
            deaf: false,
        }
    }
}

/// A frame that leaves its size to the device has an Ethernet header at least.
const HEADER: usize = 14;
/// The tag of a virtual LAN, which does not count against the MTU.
const TAG: usize = 4;
/// Tags that may stand one behind the other.
const MOST_TAGS: usize = 2;
/// Frames offered to the kernel at once: fewer would touch the shared lines more often.
const REFILL: u32 = 32;
/// While nothing arrives, how often the kernel is asked whether the interface is still there.
const ATTENTION: Duration = Duration::from_millis(10);
/// Calls in vain for one look at the clock, which costs more than the rest of such a call.
const CALLS: u32 = 8;
/// While the link is down, how often the kernel is asked whether it is up again.
const PATIENCE: Duration = Duration::from_millis(1);

/// The sockets on all queues of an interface or on one, that send and receive [`XdpFrame`]s.
///
/// No call blocks. [`receive`](Backend::receive) makes no system call while packets arrive, and
/// one every ten milliseconds while none does; [`transmit`](Backend::transmit) makes one for as
/// many frames as the kernel takes at once. Neither allocates, but for the room in the caller's
/// vector. [`arrivals`](Backend::arrivals) says how long packets lay in the receive ring, where the
/// driver leaves room for a note before a packet, as in generic mode and with veth.
///
/// It may be moved to another thread, as its frames may; there is one of it, and it is used by one
/// thread at a time. A thread with nothing else to do may wait for it with a
/// [`Waiter`](crate::Waiter). That ends at the removal of the interface only with its timeout. The
/// descriptor of one socket is the socket's, that of several an epoll instance over them, which is only
/// to be waited for; what it costs falls to the kernel, for each batch of packets that a driver brings.
pub struct XdpBackend {
    /// At least one. The first sends.
    sockets: Vec<Socket>,
    /// Readable when one of several sockets is.
    any: Option<OwnedFd>,
    /// Which socket is received from first.
    first: usize,
    interface: Interface,
    name: String,
    mode: XdpMode,
    budget: Budget,
    most_in_flight: u64,
    mtu: usize,
    state: State,
    /// When the kernel was last asked how the interface is.
    attended: Instant,
    /// Calls in vain since the clock was looked at.
    in_vain: u32,
    refused: u64,
    waits: Waits,
    /// Of the frames of the last call of `receive`.
    arrivals: Vec<Arrival>,
}

/// What is known of the link.
#[derive(Clone, Copy, Debug)]
enum State {
    Up,
    /// As of then.
    Down(Instant),
    Gone,
}

impl XdpBackend {
    /// Which mode the interface offered.
    pub fn mode(&self) -> XdpMode {
        self.mode
    }

    /// The interface's name when this was bound.
    pub fn interface(&self) -> &str {
        &self.name
    }

    /// Packets that arrived and were lost, since this was bound: no frame was free to receive
    /// into, or the packet was longer than one.
    ///
    /// # Errors
    ///
    /// None are known.
    pub fn dropped(&self) -> io::Result<u64> {
        self.sockets.iter().try_fold(0, |sum, socket| {
            let counted = socket.statistics()?;
            Ok(sum + counted.rx_dropped + counted.rx_ring_full)
        })
    }

    /// How many queues of the interface it receives from.
    pub fn queues(&self) -> usize {
        self.sockets.len()
    }

    /// From now on packets come here, or go on to the kernel's own stack as if this were not there. At
    /// once for all that arrive at a queue, and one queue after the other.
    ///
    /// # Errors
    ///
    /// None are known.
    pub fn hear(&self, anything: bool) -> io::Result<()> {
        self.sockets
            .iter()
            .try_for_each(|socket| socket.hear(anything))
    }

    /// Whether at one of the queues a quarter of the frames that may be received into is full: more
    /// arrives than is taken in, or nothing was for a while. O(queues).
    pub fn is_filling(&self) -> bool {
        self.sockets.iter().any(Socket::is_filling)
    }

    /// Where packets arrive, on all queues of the interface that this process serves. The kernel's
    /// own stack is behind it too, for queues without a backend.
    pub fn gate(&self) -> Gate {
        let program = self.sender().program().map(Arc::downgrade);
        Gate(Target::Interface(program.unwrap_or_default()))
    }

    /// The socket that sends.
    fn sender(&self) -> &Socket {
        &self.sockets[0]
    }

    fn sender_mut(&mut self) -> &mut Socket {
        &mut self.sockets[0]
    }

    /// Moves to the ring what the budget and the ring have room for; drops what is not to be sent.
    fn hand_over(&mut self, batch: &mut VecDeque<XdpFrame>) -> usize {
        let mut count = 0;
        while let Some(frame) = batch.front() {
            let length = frame.len();
            if !(HEADER..=self.longest(frame.bytes())).contains(&length) {
                self.refused += 1;
                batch.pop_front();
                continue;
            }
            if self.sender().unsent_bytes() + length as u64 > self.budget.as_bytes() {
                break;
            }
            let Some(frame) = self.native(batch) else {
                break;
            };
            if let Err(frame) = self.sender_mut().send(frame) {
                batch.push_front(frame);
                break;
            }
            count += 1;
        }
        self.most_in_flight = self.most_in_flight.max(self.sender().unsent_bytes());
        self.sender_mut().publish();
        count
    }

    /// Takes the frame at the front, or a copy in this backend's memory if it is of another.
    /// `None` if no frame is free for that.
    fn native(&self, batch: &mut VecDeque<XdpFrame>) -> Option<XdpFrame> {
        let umem = self.sender().umem();
        if umem.owns(batch.front()?) {
            return batch.pop_front();
        }
        let frame = batch.front_mut()?;
        frame.complete();
        let copy = umem.frame_from(frame.bytes())?;
        batch.pop_front();
        Some(copy)
    }

    /// The longest frame that the device takes, if it starts with these bytes.
    fn longest(&self, bytes: &[u8]) -> usize {
        let tags = bytes[12.min(bytes.len())..]
            .chunks_exact(TAG)
            .take(MOST_TAGS)
            .take_while(|tag| matches!(tag, [0x81, 0x00, ..] | [0x88, 0xa8, ..]));
        (self.mtu + HEADER + TAG * tags.count()).min(self.sender().longest())
    }

    /// Whether packets can leave; asks the kernel if they could not a while ago.
    fn is_up(&mut self) -> io::Result<bool> {
        match self.state {
            State::Up => Ok(true),
            State::Gone => Err(self.gone()),
            State::Down(since) if since.elapsed() < PATIENCE => Ok(false),
            State::Down(_) => self.ask(),
        }
    }

    /// Asks the kernel whether packets can leave.
    fn ask(&mut self) -> io::Result<bool> {
        let mut state = self.interface.state()?;
        if state == LinkState::Up {
            match self.interface.mtu() {
                // It may have been changed meanwhile.
                Ok(mtu) => self.mtu = mtu,
                // It has been renamed, or set down and removed, in between.
                Err(_) => state = LinkState::Down,
            }
        }
        match state {
            LinkState::Up => {
                self.state = State::Up;
                Ok(true)
            }
            LinkState::Down => {
                self.state = State::Down(Instant::now());
                Ok(false)
            }
            LinkState::Gone => {
                self.state = State::Gone;
                Err(self.gone())
            }
        }
    }

    /// Makes the kernel send what is in the ring.
    fn kick(&mut self) -> io::Result<()> {
        let Err(error) = self.sender().kick() else {
            return Ok(());
        };
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR) => Ok(()),
            Some(libc::EBUSY | libc::ENETDOWN) => self.ask().map(drop),
            Some(libc::ENXIO) => {
                self.state = State::Gone;
                Err(self.gone())
            }
            _ => Err(io::Error::new(
                error.kind(),
                format!("sending on interface {} failed: {error}", self.name),
            )),
        }
    }

    /// Nothing has arrived: looks whether the interface is still there, and sends what a link that
    /// was down has left in the ring.
    fn attend(&mut self) -> io::Result<()> {
        if let State::Gone = self.state {
            return Err(self.gone());
        }
        self.in_vain += 1;
        if self.in_vain < CALLS {
            return Ok(());
        }
        self.in_vain = 0;
        if self.attended.elapsed() < ATTENTION {
            return Ok(());
        }
        self.attended = Instant::now();
        if let Err(error) = self.sender().look()
            && error.raw_os_error() == Some(libc::ENXIO)
        {
            self.state = State::Gone;
            return Err(self.gone());
        }
        if self.sender().pending() > 0 && self.is_up()? {
            self.kick()?;
        }
        Ok(())
    }

    /// Receives from every queue in its turn, beginning at `first`: an equal part of what is left of
    /// `max` for each that is still to come. Whether one had more for it than its part.
    fn receive_in_turns(
        &mut self,
        into: &mut Vec<XdpFrame>,
        max: usize,
        look: Look,
    ) -> (usize, bool) {
        let queues = self.sockets.len();
        let (mut count, mut has_more) = (0, false);
        for turn in 0..queues {
            let part = (max - count).div_ceil(queues - turn);
            let socket = &mut self.sockets[(self.first + turn) % queues];
            let losing = socket.is_full();
            let arrivals = &mut self.arrivals;
            let came = socket.receive(into, part, |came| {
                arrivals.push(Arrival {
                    waited: look.waited_if_noted(came),
                    losing,
                });
            });
            has_more |= came == part;
            count += came;
        }
        (count, has_more)
    }

    fn gone(&self) -> io::Error {
        io::Error::new(
            io::ErrorKind::NetworkDown,
            format!(
                "interface {} was removed, or moved to another network namespace: bind to it \
                 again when it is back",
                self.name
            ),
        )
    }
}

impl Backend for XdpBackend {
    type Tx = XdpFrame;
    type Rx = XdpFrame;

    /// A frame is refused if it is longer than the interface's MTU with an Ethernet header (and
    /// one or two tags, if it has them), or shorter than that header. The MTU is that of when this was bound, or
    /// when the link was last found to be up again.
    ///
    /// # Errors
    ///
    /// `NetworkDown` when the interface was removed. A link that is down is not an error: it takes
    /// nothing, and goes on when it is up again.
    fn transmit(&mut self, batch: &mut VecDeque<XdpFrame>) -> io::Result<usize> {
        let mut accepted = 0;
        loop {
            self.sender_mut().reap();
            match self.is_up() {
                Ok(true) => {}
                Err(error) if accepted == 0 => return Err(error),
                Ok(false) | Err(_) => return Ok(accepted),
            }
            accepted += self.hand_over(batch);
            let pending = self.sender().pending();
            if pending == 0 {
                return Ok(accepted);
            }
            match self.kick() {
                Ok(()) => {}
                Err(error) if accepted == 0 => return Err(error),
                Err(_) => return Ok(accepted),
            }
            // The kernel takes some frames a call, so it is called until it takes no more.
            if self.sender().pending() == pending {
                self.sender_mut().reap();
                return Ok(accepted);
            }
        }
    }

    /// Oldest first of each queue. While more waits than is asked for, every queue is received from in
    /// its turn, and none twice before the others have had as much, if they have it.
    ///
    /// # Errors
    ///
    /// `NetworkDown` when the interface was removed and all that had arrived is received.
    fn receive(&mut self, into: &mut Vec<XdpFrame>, max: usize) -> io::Result<usize> {
        self.arrivals.clear();
        let look = self.waits.look_by_uptime();
        let mut count = 0;
        loop {
            let (came, has_more) = self.receive_in_turns(into, max - count, look);
            count += came;
            if count == max || !has_more {
                break;
            }
        }
        if count < max {
            self.waits.emptied(look);
        }
        self.sender_mut().reap();
        let (later, first) = self.sockets.split_at_mut(self.first);
        for socket in first.iter_mut().chain(later) {
            socket.refill(REFILL);
        }
        self.first = (self.first + 1) % self.sockets.len();
        if count == 0 && max > 0 {
            self.attend()?;
        }
        Ok(count)
    }

    fn arrivals(&self) -> &[Arrival] {
        &self.arrivals
    }

    /// The bytes of frames that the kernel has not yet given back: never more than the budget.
    ///
    /// A device that copies gives a frame back when it is done with the copy: veth, when the other
    /// side has received it.
    fn in_flight(&self) -> io::Result<u64> {
        match self.state {
            State::Gone => Err(self.gone()),
            State::Up | State::Down(_) => Ok(self.sender().unsent_bytes_now()),
        }
    }

    fn most_in_flight(&self) -> u64 {
        self.most_in_flight
    }

    fn refused(&self) -> u64 {
        self.refused
    }
}

impl AsFd for XdpBackend {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.any {
            Some(any) => any.as_fd(),
            None => self.sender().as_fd(),
        }
    }
}

impl Drop for XdpBackend {
    fn drop(&mut self) {
        unroute(&mut self.sockets);
    }
}

impl AsRawFd for XdpBackend {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl fmt::Debug for XdpBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XdpBackend")
            .field("interface", &self.name)
            .field("mode", &self.mode)
            .field("queues", &self.queues())
            .field("state", &self.state)
            .field("refused", &self.refused)
            .finish_non_exhaustive()
    }
}
