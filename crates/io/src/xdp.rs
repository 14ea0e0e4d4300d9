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
//! part from each that has so many, and sends by the first alone, unless it is split. So packets of one flow keep their
//! order on both ways; packets of two flows that arrived at two queues may change places. The budget of
//! what is in flight is that of a queue that sends. What the device counts by queue is told summed.
//!
//! # Threads
//!
//! A backend can be [split](XdpBackend::split) into one or more [`XdpSender`]s, each with a queue, and one or more
//! [`XdpReceiver`]s, among which the queues are divided: each may be used by a thread of its own, and dropped before or
//! after the others. So a flow's packets come to one thread, in order. Frames go back by themselves: what is dropped or
//! was sent becomes free for all. Where a thread has frames that another one received, they share the list of free frames,
//! and change a word of it with each; [`OwedFrames`] has what avoids that.
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
//! | each backend, to send | up to as many as its transmit ring has places, for each queue that sends |
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
//! [`mode`](XdpBackend::mode) tells which: of several queues, the slowest of them. With memory that is
//! [unaligned](Umem::unaligned) there is no zero-copy.
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
//!         // Nothing comes: it looks after what was sent.
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

pub use receiver::XdpReceiver;
pub use sender::XdpSender;

pub use crate::sys::umem::{OwedFrames, Umem, XdpFrame};

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
    /// This mode or an error; `None` for the first that the interface offers and the memory allows.
    pub mode: Option<XdpMode>,
    /// Frames kept ready to receive into, at each queue: a power of two, 64 to 32,768. What arrives
    /// while all of its queue are full is lost. 1,024 if not chosen.
    pub rx_ring: u32,
    /// Frames that may be with the device to be sent, by each queue that sends: a power of two, 64 to 32,768. 256 if
    /// not chosen.
    pub tx_ring: u32,
    /// Bytes that may be with the device to be sent, by each queue that sends: the most that
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
/// While nothing arrives, how often the kernel is asked whether the interface is still there.
const ATTENTION: Duration = Duration::from_millis(10);
/// Calls in vain for one look at the clock, which costs more than the rest of such a call.
const CALLS: u32 = 8;

/// The sockets on all queues of an interface or on one, that send and receive [`XdpFrame`]s.
///
/// No call blocks. [`receive`](Backend::receive) makes no system call while packets arrive, and
/// two every ten milliseconds while none does; [`transmit`](Backend::transmit) makes one for as
/// many frames as the kernel takes at once. Neither allocates, but for the room in the caller's
/// vector. [`arrivals`](Backend::arrivals) says how long packets lay in the receive ring, where the
/// driver leaves room for a note before a packet, as in generic mode and with veth.
///
/// It may be moved to another thread, as its frames may; there is one of it, and it is used by one
/// thread at a time, unless it is [split](Self::split). A thread with nothing else to do may wait for it with a
/// [`Waiter`](crate::Waiter). That ends at the removal of the interface only with its timeout. The
/// descriptor of one socket is the socket's, that of several an epoll instance over them, which is only
/// to be waited for; what it costs falls to the kernel, for each batch of packets that a driver brings.
pub struct XdpBackend {
    /// First, so that nothing arrives any more while what was sent is waited for.
    receiver: XdpReceiver,
    sender: XdpSender,
    /// What sends by the other queues, once it is split; nothing before.
    beside: Vec<XdpSender>,
}

/// What all that serve an interface know of it.
struct Bound {
    name: String,
    device: Interface,
    mode: XdpMode,
    /// One of them has found that it is gone. Written once.
    gone: AtomicBool,
}

impl Bound {
    /// The interface is gone: what all say from now on.
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

    /// What comes of asking the kernel on a socket how the interface is.
    fn looked(&self, look: io::Result<()>) -> io::Result<()> {
        match look {
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Err(self.lose()),
            // The link is down, say.
            _ => Ok(()),
        }
    }
}

/// When somebody looks after what says nothing by itself.
struct Attention {
    /// Last.
    at: Instant,
    /// Calls in vain since the clock was looked at.
    in_vain: u32,
}

impl Attention {
    fn new() -> Attention {
        Attention {
            at: Instant::now(),
            in_vain: 0,
        }
    }

    /// Whether it is time again; a call in vain.
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
    /// Which mode the interface offered.
    pub fn mode(&self) -> XdpMode {
        self.sender.mode()
    }

    /// The interface's name when this was bound.
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

    /// How many queues of the interface it receives from.
    pub fn queues(&self) -> usize {
        self.receiver.queues()
    }

    /// From now on packets come here, or go on to the kernel's own stack as if this were not there. At
    /// once for all that arrive at a queue, and one queue after the other.
    ///
    /// # Errors
    ///
    /// None are known.
    pub fn hear(&self, anything: bool) -> io::Result<()> {
        self.receiver.hear(anything)
    }

    /// Whether at one of the queues a quarter of the frames that may be received into is full: more
    /// arrives than is taken in, or nothing was for a while. O(queues).
    pub fn is_filling(&self) -> bool {
        self.receiver.is_filling()
    }

    /// Where packets arrive, on all queues of the interface that this process serves. The kernel's
    /// own stack is behind it too, for queues without a backend.
    pub fn gate(&self) -> Gate {
        self.receiver.gate()
    }

    /// By how many queues of the interface it can send, once it is [split](Self::split): as many of those that it
    /// receives from as there are transmit queues, and at least 1. A backend of a single queue sends nothing if there is
    /// no such transmit queue. O(1).
    pub fn tx_queues(&self) -> usize {
        1 + self.beside.len()
    }

    /// The half that receives from all queues.
    pub fn receiver(&self) -> &XdpReceiver {
        &self.receiver
    }

    /// The half that sends, by the first queue.
    pub fn sender(&self) -> &XdpSender {
        &self.sender
    }

    /// Halves that send and halves that receive, as many as asked for, each of which is a thread's. Of those that send each
    /// has a queue, in their order, with a ring and a budget of its own: frames of one flow keep their order where one of
    /// them sends all. Of those that receive each has one queue in so many, by turns. Nothing is lost, and what was in
    /// flight stays so, with the first of those that send. When the interface is gone all of them say so, with the same
    /// words.
    ///
    /// Those that send and are dropped while others receive wait for what the kernel has taken up, each for 100 ms at most.
    /// O(queues).
    ///
    /// Waiting for one that receives makes the kernel send what is in the transmit rings of its queues, on the thread that
    /// waits.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if there are to be none, or more than there are queues; what the system says where there can be no
    /// descriptor to wait for.
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

    /// As of [`XdpSender`].
    ///
    /// # Errors
    ///
    /// `NetworkDown` when the interface was removed. A link that is down is not an error: it takes
    /// nothing, and goes on when it is up again.
    fn transmit(&mut self, batch: &mut VecDeque<XdpFrame>) -> io::Result<usize> {
        self.sender.transmit(batch)
    }

    /// As of [`XdpReceiver`].
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

    /// The bytes of frames that the kernel has not yet given back: never more than the budget.
    ///
    /// A device that copies gives a frame back when it is done with the copy: veth, when the other
    /// side has received it.
    fn in_flight(&self) -> io::Result<u64> {
        self.sender.in_flight()
    }

    fn most_in_flight(&self) -> u64 {
        self.sender.most_in_flight()
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
