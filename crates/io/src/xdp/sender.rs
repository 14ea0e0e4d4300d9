//! The half of a backend that sends.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Attention, Bound, HEADER, MOST_TAGS, TAG, Umem, XdpFrame, XdpMode};
use crate::sys::interface::LinkState;
use crate::sys::xdp::Sending;
use crate::{Backend, Budget};

/// Interval of checks whether the link is up again, while it is down.
const PATIENCE: Duration = Duration::from_millis(1);
/// Most packets that are prefetched before they are handed over.
const AT_ONCE: u32 = 64;

/// A sender of [`XdpFrame`]s on one queue of an interface, of a backend that was [split](super::XdpBackend::split).
///
/// One thread at a time uses it; other threads may use the senders of other queues and the receivers meanwhile. Budget,
/// counts and bytes in flight are of this queue alone. It has no arrivals: [`receive`](Backend::receive) frees
/// transmitted frames, transmits those that a link that was down has left in the ring, and detects, every ten
/// milliseconds, that the interface is gone.
pub struct XdpSender {
    socket: Sending,
    bound: Arc<Bound>,
    budget: Budget,
    /// The part of it that is in use, which keeps the transmit queue short.
    limit: Budget,
    most_in_flight: u64,
    mtu: usize,
    state: State,
    attention: Attention,
    refused: u64,
}

/// The state of the link.
#[derive(Clone, Copy, Debug)]
enum State {
    Up,
    /// As of then.
    Down(Instant),
}

impl XdpSender {
    pub(super) fn new(socket: Sending, bound: Arc<Bound>, budget: Budget, mtu: usize) -> XdpSender {
        XdpSender {
            socket,
            bound,
            budget,
            limit: budget,
            most_in_flight: 0,
            mtu,
            state: State::Up,
            attention: Attention::new(),
            refused: 0,
        }
    }

    /// Returns which mode the interface offered.
    pub fn mode(&self) -> XdpMode {
        self.bound.mode
    }

    /// Returns the interface's name when this was bound.
    pub fn interface(&self) -> &str {
        &self.bound.name
    }

    /// Returns the memory that frames are sent from. A frame of another is copied.
    pub fn umem(&self) -> &Umem {
        self.socket.umem()
    }

    /// Frames that were transmitted and that the device has not taken up, as where its link was down since. Where they
    /// are copied they go nowhere if this is dropped, together with what receives. O(1).
    #[doc(hidden)]
    pub fn untaken(&self) -> u32 {
        self.socket.pending()
    }

    /// Makes frames free that were sent.
    pub(super) fn reap(&mut self) {
        self.socket.reap();
    }

    /// Moves as many packets to the ring as the budget and the ring allow; drops packets that cannot be transmitted.
    fn hand_over(&mut self, batch: &mut VecDeque<XdpFrame>) -> usize {
        // Prefetch all at once: packets that were queued among many have left the caches, and the kernel, which copies
        // packets one by one, would wait for each.
        let room = self.socket.room(AT_ONCE) as usize;
        batch.iter().take(room).for_each(XdpFrame::prefetch);
        let mut count = 0;
        while let Some(frame) = batch.front() {
            let length = frame.len();
            if !(HEADER..=self.longest(frame.bytes())).contains(&length) {
                self.refused += 1;
                batch.pop_front();
                continue;
            }
            let unsent = self.socket.unsent_bytes();
            if unsent > 0 && unsent + length as u64 > self.limit.as_bytes() {
                break;
            }
            let Some(frame) = self.native(batch) else {
                break;
            };
            if let Err(frame) = self.socket.send(frame) {
                batch.push_front(frame);
                break;
            }
            count += 1;
        }
        self.most_in_flight = self.most_in_flight.max(self.socket.unsent_bytes());
        self.socket.publish();
        count
    }

    /// Takes the frame at the front, or a copy in this backend's memory if it is of another.
    /// `None` if no frame is free for that.
    fn native(&self, batch: &mut VecDeque<XdpFrame>) -> Option<XdpFrame> {
        let umem = self.socket.umem();
        if umem.owns(batch.front()?) {
            return batch.pop_front();
        }
        let frame = batch.front_mut()?;
        frame.complete();
        let copy = umem.frame_from(frame.bytes())?;
        batch.pop_front();
        Some(copy)
    }

    /// Returns the longest frame that the device takes, if it starts with these bytes.
    fn longest(&self, bytes: &[u8]) -> usize {
        let tags = bytes[12.min(bytes.len())..]
            .chunks_exact(TAG)
            .take(MOST_TAGS)
            .take_while(|tag| matches!(tag, [0x81, 0x00, ..] | [0x88, 0xa8, ..]));
        (self.mtu + HEADER + TAG * tags.count()).min(self.socket.longest())
    }

    /// Returns whether packets can leave; asks the kernel if they could not a while ago.
    fn is_up(&mut self) -> io::Result<bool> {
        self.bound.is_there()?;
        match self.state {
            State::Up => Ok(true),
            State::Down(since) if since.elapsed() < PATIENCE => Ok(false),
            State::Down(_) => self.ask(),
        }
    }

    /// Asks the kernel whether packets can leave.
    fn ask(&mut self) -> io::Result<bool> {
        let mut state = self.bound.device.state()?;
        if state == LinkState::Up {
            match self.bound.device.mtu() {
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
            LinkState::Gone => Err(self.bound.lose()),
        }
    }

    /// Makes the kernel transmit the packets in the ring.
    fn kick(&mut self) -> io::Result<()> {
        let Err(error) = self.socket.kick() else {
            return Ok(());
        };
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR) => Ok(()),
            Some(libc::EBUSY | libc::ENETDOWN) => self.ask().map(drop),
            Some(libc::ENXIO) => Err(self.bound.lose()),
            _ => Err(io::Error::new(
                error.kind(),
                format!("sending on interface {} failed: {error}", self.bound.name),
            )),
        }
    }

    /// Checks periodically whether the interface still exists, and transmits packets that a link that was down has left
    /// in the ring.
    pub(super) fn attend(&mut self) -> io::Result<()> {
        self.bound.is_there()?;
        if !self.attention.is_due() {
            return Ok(());
        }
        self.bound.looked(self.socket.look())?;
        if self.socket.pending() > 0 && self.is_up()? {
            self.kick()?;
        }
        Ok(())
    }
}

impl Backend for XdpSender {
    type Tx = XdpFrame;
    type Rx = XdpFrame;

    /// A frame is refused if it is longer than the interface's MTU with an Ethernet header (and one or two tags, if it
    /// has them), or shorter than that header. The MTU is the one at binding, or when the link was last found to be up
    /// again.
    ///
    /// # Errors
    ///
    /// `NetworkDown` when the interface was removed. A link that is down is not an error: it accepts nothing, and
    /// resumes when it is up again.
    fn transmit(&mut self, batch: &mut VecDeque<XdpFrame>) -> io::Result<usize> {
        let mut accepted = 0;
        loop {
            self.socket.reap();
            match self.is_up() {
                Ok(true) => {}
                Err(error) if accepted == 0 => return Err(error),
                Ok(false) | Err(_) => return Ok(accepted),
            }
            accepted += self.hand_over(batch);
            let pending = self.socket.pending();
            if pending == 0 {
                return Ok(accepted);
            }
            match self.kick() {
                Ok(()) => {}
                Err(error) if accepted == 0 => return Err(error),
                Err(_) => return Ok(accepted),
            }
            // The kernel takes some frames a call, so it is called until it takes none.
            if self.socket.pending() == pending {
                self.socket.reap();
                return Ok(accepted);
            }
        }
    }

    /// Appends nothing; processes completions of transmitted frames.
    ///
    /// # Errors
    ///
    /// `NetworkDown` when the interface was removed.
    fn receive(&mut self, _: &mut Vec<XdpFrame>, max: usize) -> io::Result<usize> {
        self.reap();
        if max > 0 {
            self.attend()?;
        }
        Ok(0)
    }

    /// Returns the bytes of frames that the kernel has not yet returned: never more than the budget.
    fn in_flight(&self) -> io::Result<u64> {
        self.bound.is_there()?;
        Ok(self.socket.unsent_bytes_now())
    }

    fn most_in_flight(&self) -> u64 {
        self.most_in_flight
    }

    fn keep_short(&mut self, bytes: u64) -> u64 {
        let longest = self.mtu + HEADER + MOST_TAGS * TAG;
        self.limit = self.budget.shortened(bytes, longest as u64);
        self.limit.as_bytes()
    }

    fn refused(&self) -> u64 {
        self.refused
    }
}

/// Of the socket that sends, at which frames arrive for another half.
impl AsFd for XdpSender {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl fmt::Debug for XdpSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XdpSender")
            .field("interface", &self.bound.name)
            .field("mode", &self.bound.mode)
            .field("state", &self.state)
            .field("refused", &self.refused)
            .finish_non_exhaustive()
    }
}
