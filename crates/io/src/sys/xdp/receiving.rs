//! The half of a socket that receives: the fill ring and the rx ring.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use libc::xdp_desc;

use super::super::bpf::Program;
use super::super::umem::XdpFrame;
use super::super::{Moment, option_of, wait_for_readers};
use super::ring::{Incoming, Outgoing};
use super::{Common, POSTED, Statistics, take_back};
use crate::xdp::program::STAMP;

/// It holds the frames that the kernel has to receive into, or has received into.
pub(crate) struct Receiving {
    fill: Outgoing<u64>,
    received: Incoming<xdp_desc>,
    queue: u32,
    /// Since when the program brings none any more.
    left: Cell<Option<Moment>>,
    /// Frames in the fill ring, or with the kernel, or in the rx ring: never more than either ring
    /// has places, so neither overflows.
    posted: u32,
    common: Arc<Common>,
}

impl Receiving {
    /// Nothing is brought to it yet.
    pub(super) fn new(
        common: Arc<Common>,
        fill: Outgoing<u64>,
        received: Incoming<xdp_desc>,
        queue: u32,
    ) -> Receiving {
        Receiving {
            fill,
            received,
            queue,
            left: Cell::new(None),
            posted: 0,
            common,
        }
    }

    /// Lets the program bring packets, or not any more.
    pub(crate) fn hear(&self, anything: bool) -> io::Result<()> {
        if anything {
            self.left.set(None);
            return self.program().serve(self.queue, self.as_fd());
        }
        match self.program().leave(self.queue) {
            // It was not there.
            Err(error) if error.raw_os_error() != Some(libc::ENOENT) => return Err(error),
            _ => {}
        }
        if self.left.get().is_none() {
            self.left.set(Some(Moment::now()));
        }
        Ok(())
    }

    /// Offers the kernel frames to receive into, once at least `least` are wanting.
    pub(crate) fn refill(&mut self, least: u32) {
        let wanting = self.fill.size() - self.posted;
        if wanting < least.max(1) {
            return;
        }
        let room = self.fill.room(wanting);
        let mark = self.common.mark(POSTED);
        let (umem, fill, posted) = (&self.common.umem, &mut self.fill, &mut self.posted);
        let layout = umem.layout();
        umem.take(room as usize, |frame| {
            umem.note(frame, mark);
            // There is space for as many as are taken.
            fill.write(layout.start(frame).into());
            *posted += 1;
        });
        fill.publish();
        if fill.needs_wakeup() {
            // A later check of the device's state reports the error again.
            let _ = self.look();
        }
    }

    /// Appends at most `max` received packets to `into`, and passes on when each may have arrived, since boot; returns
    /// how many.
    pub(crate) fn receive(
        &mut self,
        into: &mut Vec<XdpFrame>,
        max: usize,
        mut came: impl FnMut(Duration),
    ) -> usize {
        let max = u32::try_from(max).unwrap_or(u32::MAX);
        let waiting = self.received.waiting(max);
        let before = into.len();
        // Prefetch: fetching the start of each packet and the note before it from the other core's cache is faster all
        // at once than one after the other.
        for ahead in 0..waiting {
            let begin = begin(self.received.peek(ahead));
            self.common.umem.prefetch(begin.wrapping_sub(STAMP as u64));
            self.common.umem.prefetch(begin);
        }
        for ahead in 0..waiting {
            let descriptor = self.received.peek(ahead);
            if let Some(frame) = self.admit(descriptor) {
                let stamp = self.common.umem.before::<STAMP>(&frame).unwrap_or_default();
                came(Duration::from_nanos(u64::from_ne_bytes(stamp)));
                into.push(frame);
            }
        }
        if waiting > 0 {
            self.received.release(waiting);
            self.posted = self.posted.saturating_sub(waiting);
        }
        into.len() - before
    }

    /// Returns whether a quarter of the receive ring's slots are occupied.
    pub(crate) fn is_filling(&self) -> bool {
        4 * self.received.waiting_now() >= self.posted
    }

    /// Returns the program that brings packets.
    pub(crate) fn program(&self) -> &Arc<Program> {
        &self.common.program
    }

    /// Returns whether the receive ring is full.
    pub(crate) fn is_full(&self) -> bool {
        self.received.waiting_now() >= self.posted
    }

    /// Returns the frame of a received packet, if the descriptor is of one that was offered.
    fn admit(&self, descriptor: xdp_desc) -> Option<XdpFrame> {
        let umem = &self.common.umem;
        let layout = umem.layout();
        let (begin, length) = (begin(descriptor), u64::from(descriptor.len));
        let (frame, note) = umem.noted(layout.number(begin))?;
        if note != self.common.mark(POSTED)
            || begin - u64::from(layout.start(frame)) + length > layout.frame_size().into()
        {
            return None;
        }
        umem.note(frame, 0);
        // SAFETY: the note says that this half has handed this frame to the kernel to be received
        // into, and the kernel has now handed it back; no second descriptor of it passes, for the
        // note is gone. The packet lies within it. There is such a frame, so its address is below
        // 2^32.
        Some(unsafe { umem.adopt(begin as u32, length as u16) })
    }

    /// Makes the kernel poll the fill ring if it needs to, and report the state of the device.
    pub(crate) fn look(&self) -> io::Result<()> {
        self.common.look()
    }

    pub(crate) fn statistics(&self) -> io::Result<Statistics> {
        option_of(self.as_fd(), libc::SOL_XDP, libc::XDP_STATISTICS)
    }
}

/// Returns a packet's offset from the start of the memory: for unaligned frames, the kernel puts the offset from the
/// posted address in the upper sixteen bits; for aligned ones these are zero.
fn begin(descriptor: xdp_desc) -> u64 {
    const GIVEN: u64 = (1 << libc::XSK_UNALIGNED_BUF_OFFSET_SHIFT) - 1;
    (descriptor.addr & GIVEN) + (descriptor.addr >> libc::XSK_UNALIGNED_BUF_OFFSET_SHIFT)
}

/// Stops deliveries to all of these halves, which end after this: one wait for deliveries in progress serves them all.
/// One that could not be removed from its map ends as if this had not been called.
pub(crate) fn unroute(halves: &[Receiving]) {
    for half in halves {
        let _ = half.hear(false);
    }
}

/// Returns whether the kernel has released all frames posted for receiving, when the half that posted them ends.
/// `unrouted`: deliveries have stopped, and none is in progress.
///
/// A driver that writes to frames continues until the kernel has stopped it, some time after the socket is closed. In
/// copying modes only the delivery of a packet takes from the fill ring and writes to frames, whatever the other half
/// does meanwhile.
fn lets_go(zero_copy: bool, unrouted: bool) -> bool {
    unrouted && !zero_copy
}

impl Drop for Receiving {
    /// Takes back frames that the kernel has for receiving, as far as it is known to have released them.
    ///
    /// Closing the socket would guarantee as much only if the other half were gone, and no process had a duplicate of
    /// its descriptor.
    fn drop(&mut self) {
        let left = self.hear(false).ok().and_then(|()| self.left.get());
        let unrouted = left.is_some_and(wait_for_readers);
        let common = &self.common;
        let lets_go = lets_go(common.zero_copy, unrouted);
        // SAFETY: the socket's number is its own, and this half alone posts; `lets_go` argues for the rest.
        unsafe { take_back(&common.umem, common.mark(POSTED), lets_go) };
    }
}

impl AsFd for Receiving {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.common.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_driver_may_write_to_is_not_taken_back() {
        assert!(!lets_go(true, true) && !lets_go(true, false));
        assert!(lets_go(false, true) && !lets_go(false, false));
    }
}
