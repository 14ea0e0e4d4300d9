//! AF_XDP: Ethernet frames of an interface, of all its queues or of one, in memory shared with the
//! kernel. Linux only, and needs privilege.
//!
//! An [`XdpBackend`] takes *all* packets that arrive at its queues from the kernel's own stack, and
//! sends past the kernel's queueing disciplines. Other queues of the interface are left alone.
//!
//! # Queues
//!
//! A device distributes arrivals among its receive queues, all packets of a flow to one. A backend that was [bound to
//! all](XdpBackend::bind_all) has a socket on each, receives from them in turn, an equal share from each that has
//! enough packets, and transmits on the first alone, unless it is split. Packets of one flow keep their order in both
//! directions; packets of two flows that arrived at two queues may be reordered. The budget for bytes in flight applies
//! to each transmit queue. The device's counts per queue are summed.
//!
//! # Threads
//!
//! A backend can be [split](XdpBackend::split) into one or more [`XdpSender`]s, each with a queue, and one or more
//! [`XdpReceiver`]s, among which the queues are divided: each may be used by a thread of its own, and dropped before or
//! after the others. A flow's packets thus reach one thread, in order. Frames return by themselves: dropped or
//! transmitted ones become free for all. A thread that has frames that another one received shares the list of free
//! frames with it, and each frame changes a word of the list; [`OwedFrames`] avoids that.
//!
//! # Frames
//!
//! Packets lie in the frames of a [`Umem`]. An [`XdpFrame`] is the handle of one, 16 bytes that may
//! be moved through queues and between threads; the bytes stay where they are. Backends bound with
//! the same [`Umem`] pass frames on as they are: what one receives, another transmits, and no
//! packet is copied by this process. A frame of another memory is copied on its way out.
//!
//! A frame belongs to the holder of its handle alone. The transmitting backend gives it to the kernel, and frees it
//! when the kernel has finished with it; dropping the handle frees it at once. Frames run out when a scheduler queues
//! more than [`Umem::new`] made: the kernel then drops arrivals, and [`XdpBackend::dropped`] counts them.
//!
//! Dropping a backend frees its frames, except those that a device may still read or write: in zero-copy mode all that
//! it had, for the driver is stopped some time later. These are lost to the [`Umem`], whose memory is freed with the
//! rest.
//!
//! | held by | how many |
//! | --- | --- |
//! | each backend, to receive into | as many as its receive ring has slots, for each of its queues |
//! | each backend, to transmit | up to as many as its transmit ring has slots, for each queue that transmits |
//! | the program, as [`XdpFrame`] | the others, except free ones |
//!
//! A packet from another program on the same machine arrives in the form handed to the device: its checksums may not be
//! computed yet ([`complete_checksum`](crate::checksum::complete_checksum)). A frame that was
//! [found](XdpFrame::find_unsummed) to lack one is completed on transmission: by the kernel where it accepts such a
//! request (on a virtual cable, since Linux 6.11), and so never if it stays on this machine. Unsegmented frames are
//! segmented by the kernel where it knows of such a receiver: at the other end of a virtual cable in native mode. In
//! generic mode they arrive unsegmented, and those longer than a frame of the memory are dropped and counted by
//! [`dropped`](XdpBackend::dropped), unless the sending interface's offloads are off (`ethtool -K .. tso off gso off`).
//!
//! # Modes
//!
//! | mode | data path | offered by |
//! | --- | --- | --- |
//! | [`ZeroCopy`](XdpMode::ZeroCopy) | the device reads and writes the frames | some drivers |
//! | [`Native`](XdpMode::Native) | the driver hands packets over early; copied | many drivers, veth among them |
//! | [`Generic`](XdpMode::Generic) | the stack hands packets over; copied | every device |
//!
//! Without a choice, a backend gets the first mode that the interface offers, and [`mode`](XdpBackend::mode) returns
//! it: of several queues, the slowest. With memory that is [unaligned](Umem::unaligned) there is no zero-copy.
//!
//! # Mapping of kernel errors
//!
//! | error | meaning |
//! | --- | --- |
//! | `EAGAIN`, `ENOBUFS` | full: the rest stays in the batch |
//! | `EBUSY` | the device dropped one; without carrier, as `ENETDOWN` |
//! | `ENETDOWN` | the link is down: full until it is up again, and nothing is lost here |
//! | `ENXIO` | the interface is gone: fatal |
//! | any other | fatal |
//!
//! # Example
//!
//! ```
//! use fairlane_io::{
//!     Backend, OwedFrames, Umem, XdpBackend, XdpFrame, XdpMode, XdpOptions, XdpReceiver, XdpSender,
//! };
//! use std::collections::VecDeque;
//! use std::sync::mpsc::{Receiver, Sender, channel};
//! use std::{io, thread};
//!
//! // Frames are there before any backend, and free again when they are dropped.
//! let umem = Umem::new(64, 2_048)?;
//! let mut frame: XdpFrame = umem.frame_from(&[7; 60]).expect("64 are free");
//! frame.bytes_mut()[..6].fill(0xff);
//! assert_eq!((frame.len(), umem.free_frames()), (60, 63));
//! drop(frame);
//! assert_eq!(umem.free_frames(), 64);
//!
//! // The error is a message: here for a missing interface, elsewhere perhaps for a privilege.
//! let options = XdpOptions { mode: Some(XdpMode::Generic), ..XdpOptions::default() };
//! let error = XdpBackend::bind(&umem, "nosuch0", 0, &options).unwrap_err();
//! println!("{error}");
//!
//! /// Frames that arrive on the left leave on the right, without a copy.
//! fn forward(left: &mut XdpBackend, right: &mut XdpBackend) -> io::Result<usize> {
//!     let mut arrived = Vec::new();
//!     left.receive(&mut arrived, 64)?;
//!     right.transmit(&mut VecDeque::from(arrived))
//! }
//!
//! /// The same with a thread for each queue of the left, which gets back what its frames lay in.
//! fn forward_on_threads(left: XdpBackend, right: XdpBackend) -> io::Result<()> {
//!     let queues = left.queues();
//!     let (_, receivers) = left.split(1, queues)?;
//!     let (mut senders, _): (Vec<XdpSender>, _) = right.split(1, 1)?;
//!     let receive = |mut receiver: XdpReceiver, to: Sender<XdpFrame>, back: Receiver<XdpFrame>| {
//!         let mut arrived = Vec::new();
//!         while receiver.receive(&mut arrived, 64).is_ok() {
//!             back.try_iter().for_each(XdpFrame::keep);
//!             arrived.drain(..).for_each(|frame| drop(to.send(frame)));
//!         }
//!     };
//!     let mut threads = Vec::new();
//!     for receiver in receivers {
//!         let ((to, frames), (pays, back)) = (channel(), channel());
//!         thread::spawn(move || receive(receiver, to, back));
//!         threads.push((frames, pays, OwedFrames::default()));
//!     }
//!     let mut batch = VecDeque::new();
//!     loop {
//!         for (frames, pays, owed) in &mut threads {
//!             batch.extend(frames.try_iter().take(64).inspect(|frame| owed.took(frame)));
//!             owed.pay().for_each(|frame| drop(pays.send(frame)));
//!         }
//!         senders[0].transmit(&mut batch)?;
//!         // No arrivals: processes completions.
//!         senders[0].receive(&mut Vec::new(), 1)?;
//!     }
//! }
//! # Ok::<(), io::Error>(())
//! ```

mod bind;
pub(crate) mod program;
mod receiver;
mod sender;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::iter;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::early::Gate;
use crate::sys::interface::Interface;
use crate::{Arrival, Backend, Budget};

#[doc(hidden)]
pub use receiver::XdpReceiver;
#[doc(hidden)]
pub use sender::XdpSender;

#[doc(hidden)]
pub use crate::sys::umem::OwedFrames;
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

/// Options of an [`XdpBackend`].
#[derive(Clone, Debug)]
pub struct XdpOptions {
    /// This mode or an error; `None` for the first that the interface offers and the memory allows.
    pub mode: Option<XdpMode>,
    /// Frames kept ready to receive into, at each queue: a power of two, 64 to 32,768. Arrivals are lost while all of
    /// their queue's frames are full. Default: 1,024.
    pub rx_ring: u32,
    /// Frames that may be with the device to be sent, by each queue that sends: a power of two, 64 to 32,768. 256 if
    /// not chosen.
    pub tx_ring: u32,
    /// Bytes that may be with the device to be sent, by each queue that sends: the most that
    /// [`in_flight`](Backend::in_flight) ever says, *Q*. At least the interface's longest frame.
    /// 64 KiB if not chosen.
    pub budget: Budget,
    /// Whether packets go to the kernel's own stack until [`hear`](XdpBackend::hear) is called. Default: false.
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
/// Interval of checks for the interface's existence while nothing arrives.
const ATTENTION: Duration = Duration::from_millis(10);
/// Empty calls for one reading of the clock, which costs more than the rest of such a call.
const CALLS: u32 = 8;

/// The sockets on all queues of an interface or on one, that send and receive [`XdpFrame`]s.
///
/// No call blocks. [`receive`](Backend::receive) makes no system call while packets arrive, and two every ten
/// milliseconds while none does; [`transmit`](Backend::transmit) makes one for as many frames as the kernel takes at
/// once. Neither allocates, except for the space in the caller's vector. [`arrivals`](Backend::arrivals) says how long
/// packets lay in the receive ring, where the driver leaves room for a note before a packet, as in generic mode and
/// with veth.
///
/// It may be moved to another thread, as its frames may; it cannot be cloned, and one thread uses it at a time, unless
/// it is [split](Self::split). A thread with nothing else to do may wait for it with a [`Waiter`](crate::Waiter). If
/// the interface is removed, only the timeout ends the wait. With one socket the descriptor is the socket's, with
/// several it is that of an epoll instance over them, which must only be waited for; its cost falls on the kernel, for
/// each batch of packets that a driver delivers.
pub struct XdpBackend {
    /// First, so that arrivals stop before the wait for transmitted packets.
    receiver: XdpReceiver,
    sender: XdpSender,
    /// The senders of the other queues, once it is split; empty before.
    beside: Vec<XdpSender>,
}

/// State of an interface that all its users share.
struct Bound {
    name: String,
    device: Interface,
    mode: XdpMode,
    /// One of them has found that it is gone. Written once.
    gone: AtomicBool,
}

impl Bound {
    /// Marks the interface as removed: all users return this error from now on.
    fn lose(&self) -> io::Error {
        self.gone.store(true, Ordering::Relaxed);
        io::Error::new(
            io::ErrorKind::NetworkDown,
            format!(
                "interface {} was removed, or moved to another network namespace: bind to it \
                 again when it is back",
                self.name
            ),
        )
    }

    /// # Errors
    ///
    /// One of them has found that it is gone.
    fn is_there(&self) -> io::Result<()> {
        match self.gone.load(Ordering::Relaxed) {
            true => Err(self.lose()),
            false => Ok(()),
        }
    }

    /// Evaluates the result of querying the interface's state through a socket.
    fn looked(&self, look: io::Result<()>) -> io::Result<()> {
        match look {
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Err(self.lose()),
            // The link is down, say.
            _ => Ok(()),
        }
    }
}

/// Timer of periodic checks for conditions that raise no event.
struct Attention {
    /// Last.
    at: Instant,
    /// Empty calls since the clock was last read.
    in_vain: u32,
}

impl Attention {
    fn new() -> Attention {
        Attention {
            at: Instant::now(),
            in_vain: 0,
        }
    }

    /// Returns whether a check is due; called on an empty call.
    fn is_due(&mut self) -> bool {
        self.in_vain += 1;
        if self.in_vain < CALLS {
            return false;
        }
        self.in_vain = 0;
        let is_due = self.at.elapsed() >= ATTENTION;
        if is_due {
            self.at = Instant::now();
        }
        is_due
    }
}

impl XdpBackend {
    /// Returns which mode the interface offered.
    pub fn mode(&self) -> XdpMode {
        self.sender.mode()
    }

    /// Returns the interface's name when this was bound.
    pub fn interface(&self) -> &str {
        self.sender.interface()
    }

    /// Packets that arrived and were lost, since this was bound: no frame was free to receive
    /// into, or the packet was longer than one.
    ///
    /// # Errors
    ///
    /// None are known.
    pub fn dropped(&self) -> io::Result<u64> {
        self.receiver.dropped()
    }

    /// Returns how many queues of the interface it receives from.
    pub fn queues(&self) -> usize {
        self.receiver.queues()
    }

    /// Delivers packets here from now on, or to the kernel's own stack as if this backend did not exist. Takes effect
    /// at once for all arrivals of a queue, and on one queue after the other.
    ///
    /// # Errors
    ///
    /// None are known.
    pub fn hear(&self, anything: bool) -> io::Result<()> {
        self.receiver.hear(anything)
    }

    /// Returns whether at one of the queues a quarter of the receive frames are full: more arrives than is received, or
    /// reception was paused. O(queues).
    #[doc(hidden)]
    pub fn is_filling(&self) -> bool {
        self.receiver.is_filling()
    }

    /// Where packets arrive, on all queues of the interface that this process serves. The kernel's
    /// own stack is behind it too, for queues without a backend.
    pub fn gate(&self) -> Gate {
        self.receiver.gate()
    }

    /// Returns by how many queues of the interface it can transmit, once it is [split](Self::split): as many of those
    /// that it receives from as there are transmit queues, and at least 1. A backend of a single queue sends nothing if
    /// there is no such transmit queue. O(1).
    #[doc(hidden)]
    pub fn tx_queues(&self) -> usize {
        1 + self.beside.len()
    }

    /// Returns the half that receives from all queues.
    pub fn receiver(&self) -> &XdpReceiver {
        &self.receiver
    }

    /// Returns the half that sends, by the first queue.
    pub fn sender(&self) -> &XdpSender {
        &self.sender
    }

    /// Splits the backend into the requested numbers of senders and receivers, for one thread each. Each sender has a
    /// queue, in their order, with a ring and a budget of its own: frames of one flow keep their order if one sender
    /// transmits them all. Each of `n` receivers has every `n`th queue. Nothing is lost, and packets in flight stay so,
    /// with the first sender. When the interface is removed all of them return the same error.
    ///
    /// A sender that is dropped while others receive waits for packets that the kernel has taken, for at most 100 ms
    /// each. O(queues).
    ///
    /// Waiting for a receiver makes the kernel transmit the packets in the transmit rings of its queues, on the waiting
    /// thread.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if a number is 0 or exceeds the number of queues; an error of the system if no descriptor to wait
    /// for can be created.
    pub fn split(
        self,
        senders: usize,
        receivers: usize,
    ) -> io::Result<(Vec<XdpSender>, Vec<XdpReceiver>)> {
        let queues = self.tx_queues();
        if !(1..=queues).contains(&senders) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "{senders} threads cannot send by interface {}: it has queues for 1 to {queues}",
                    self.interface()
                ),
            ));
        }
        let XdpBackend {
            receiver,
            sender,
            beside,
        } = self;
        let receivers = receiver.divide(receivers)?;
        let senders = iter::once(sender).chain(beside).take(senders);
        Ok((senders.collect(), receivers))
    }
}

impl Backend for XdpBackend {
    type Tx = XdpFrame;
    type Rx = XdpFrame;

    /// As for [`XdpSender`].
    ///
    /// # Errors
    ///
    /// `NetworkDown` when the interface was removed. A link that is down is not an error: it accepts nothing, and
    /// resumes when it is up again.
    fn transmit(&mut self, batch: &mut VecDeque<XdpFrame>) -> io::Result<usize> {
        self.sender.transmit(batch)
    }

    /// As for [`XdpReceiver`].
    ///
    /// # Errors
    ///
    /// `NetworkDown` when the interface was removed and all that had arrived is received.
    fn receive(&mut self, into: &mut Vec<XdpFrame>, max: usize) -> io::Result<usize> {
        self.sender.reap();
        let came = self.receiver.receive(into, max)?;
        if came == 0 && max > 0 {
            self.sender.attend()?;
        }
        Ok(came)
    }

    fn arrivals(&self) -> &[Arrival] {
        self.receiver.arrivals()
    }

    /// Returns the bytes of frames that the kernel has not yet returned: never more than the budget.
    ///
    /// A device that copies gives a frame back when it is done with the copy: veth, when the other
    /// side has received it.
    fn in_flight(&self) -> io::Result<u64> {
        self.sender.in_flight()
    }

    fn most_in_flight(&self) -> u64 {
        self.sender.most_in_flight()
    }

    fn keep_short(&mut self, bytes: u64) -> u64 {
        for sender in &mut self.beside {
            sender.keep_short(bytes);
        }
        self.sender.keep_short(bytes)
    }

    fn refused(&self) -> u64 {
        self.sender.refused()
    }
}

impl AsFd for XdpBackend {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
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
            .field("receiver", &self.receiver)
            .field("sender", &self.sender)
            .finish()
    }
}
