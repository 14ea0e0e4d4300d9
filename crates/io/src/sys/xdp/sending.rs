//! The half of a socket that sends: the tx ring and the completion ring.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use libc::{c_int, xdp_desc};

use super::super::count_or_error;
use super::super::umem::{TOLD, Umem, XdpFrame};
use super::ring::{Incoming, Outgoing};
use super::{Common, LENGTH, SENDING, take_back};

/// The longest wait for the kernel to finish the packets that it has taken.
const PATIENCE: Duration = Duration::from_millis(100);

/// It holds the frames that the kernel has to send.
pub(crate) struct Sending {
    rings: ManuallyDrop<Rings>,
    /// Whether the kernel reads a packet's pending offloads from the bytes before it, if its descriptor says so.
    is_told: bool,
    common: Arc<Common>,
}

/// The transmit rings, and the state of their frames.
pub(super) struct Rings {
    sending: Outgoing<xdp_desc>,
    completed: Incoming<u64>,
    umem: Umem,
    /// The note on the frames, stored with their lengths.
    mark: u32,
    /// Frames handed over to be sent and not yet back.
    unsent: u32,
    /// Their bytes.
    unsent_bytes: u64,
    /// Numbers of frames on their way from the ring.
    passing: Vec<u32>,
}

impl Rings {
    /// Returns the frame and the length of a packet that the kernel is done with, if it had it.
    fn done(&self, address: u64) -> Option<(u32, u64)> {
        let (frame, note) = self.umem.noted(self.umem.layout().number(address))?;
        (note & !LENGTH == self.mark).then_some((frame, u64::from(note & LENGTH)))
    }

    /// Makes the frames of packets that are done with free.
    fn reap(&mut self) {
        let done = self.completed.waiting(self.unsent);
        if done == 0 {
            return;
        }
        for ahead in 0..done {
            if let Some((frame, length)) = self.done(self.completed.peek(ahead)) {
                self.umem.note(frame, 0);
                self.passing.push(frame);
                self.unsent_bytes = self.unsent_bytes.saturating_sub(length);
            }
        }
        self.completed.release(done);
        self.unsent -= done;
        // SAFETY: the notes said that the kernel had these frames to send, and it has handed them
        // back; each is here once, for its note is gone.
        unsafe { self.umem.free(&mut self.passing) };
    }

    /// Waits up to a limit until the kernel has finished the packets that it has taken, and frees them.
    fn settle(&mut self, zero_copy: bool) {
        let patience = Instant::now() + PATIENCE;
        self.reap();
        // A driver continues with the whole ring; in copying modes the rest stays in the ring.
        while self.unsent > if zero_copy { 0 } else { self.sending.pending() }
            && Instant::now() < patience
        {
            thread::sleep(Duration::from_millis(1));
            self.reap();
        }
    }

    /// Takes back frames that the kernel has for transmission, as far as it is known to have released them. No system
    /// call on this socket follows.
    pub(super) fn end(mut self, zero_copy: bool) {
        self.settle(zero_copy);
        let taken_done = self.unsent == self.sending.pending();
        // Packets that the kernel has not taken must not be transmitted.
        self.sending.take_back();
        // SAFETY: the socket's number is its own, and this half alone sends; `lets_go` argues for the rest.
        unsafe { take_back(&self.umem, self.mark, lets_go(zero_copy, taken_done)) };
    }
}

/// Returns whether the kernel has released all frames that were to be transmitted and have not completed, once neither
/// half calls the kernel. `taken_done`: none of the packets that it has taken from the transmit ring is in flight.
///
/// In copying modes, only a system call on the socket takes from the ring, and no further call follows: the kernel has
/// not read the remaining entries. A wait for arrivals is such a call too, so the entries in the ring when this half
/// ends stay until both halves have ended. A driver takes from it at any time, up to the end of the ring that it last
/// read, and updates its consumer index only after a batch. It may therefore transmit entries that were taken back from
/// the ring, or that seem to be still in it: only the completion ring says which frames are finished.
fn lets_go(zero_copy: bool, taken_done: bool) -> bool {
    taken_done && !zero_copy
}

impl Sending {
    pub(super) fn new(
        common: Arc<Common>,
        sending: Outgoing<xdp_desc>,
        completed: Incoming<u64>,
        is_told: bool,
    ) -> Sending {
        let rings = Rings {
            passing: Vec::with_capacity(sending.size() as usize),
            sending,
            completed,
            umem: common.umem.clone(),
            mark: common.mark(SENDING),
            unsent: 0,
            unsent_bytes: 0,
        };
        Sending {
            rings: ManuallyDrop::new(rings),
            is_told,
            common,
        }
    }

    /// Returns the length of the longest packet that it transmits: there must be headroom.
    pub(crate) fn longest(&self) -> usize {
        self.umem().frame_size() as usize - TOLD
    }

    pub(crate) fn umem(&self) -> &Umem {
        &self.rings.umem
    }

    /// Hands a packet over to be sent, once [`publish`](Self::publish) is called; gives it back if
    /// the ring is full.
    ///
    /// The frame must be of this socket's memory.
    pub(crate) fn send(&mut self, mut frame: XdpFrame) -> Result<(), XdpFrame> {
        let rings = &mut *self.rings;
        assert!(rings.umem.owns(&frame), "a frame of another memory");
        if rings.sending.room(1) == 0 {
            return Err(frame);
        }
        let told = self.is_told && frame.tell();
        if !told {
            frame.complete();
        }
        let (start, length) = frame.into_place();
        let number = rings.umem.layout().number(start.into()) as u32;
        rings.umem.note(number, rings.mark | u32::from(length));
        rings.sending.write(xdp_desc {
            addr: u64::from(start),
            len: u32::from(length),
            options: if told { libc::XDP_TX_METADATA } else { 0 },
        });
        rings.unsent += 1;
        rings.unsent_bytes += u64::from(length);
        Ok(())
    }

    /// Returns how many packets more it takes, `most` at most.
    pub(crate) fn room(&mut self, most: u32) -> u32 {
        self.rings.sending.room(most)
    }

    pub(crate) fn publish(&mut self) {
        self.rings.sending.publish();
    }

    /// Packets handed over that the kernel has not taken up yet.
    pub(crate) fn pending(&self) -> u32 {
        self.rings.sending.pending()
    }

    /// Bytes handed over to be sent and not known to be done, as of the last [`reap`](Self::reap).
    pub(crate) fn unsent_bytes(&self) -> u64 {
        self.rings.unsent_bytes
    }

    /// The same, as of now. O(packets done since).
    pub(crate) fn unsent_bytes_now(&self) -> u64 {
        let rings = &*self.rings;
        let done = (0..rings.completed.waiting_now())
            .filter_map(|ahead| rings.done(rings.completed.peek(ahead)))
            .map(|(_, length)| length)
            .sum();
        rings.unsent_bytes.saturating_sub(done)
    }

    /// Makes the frames of packets that are done with free.
    pub(crate) fn reap(&mut self) {
        self.rings.reap();
    }

    /// Makes the kernel send. Only where the kernel asks for it, a system call.
    pub(crate) fn kick(&self) -> io::Result<()> {
        if !self.rings.sending.needs_wakeup() {
            return Ok(());
        }
        // SAFETY: no bytes are sent and no address is given; a null pointer goes with both.
        let result = unsafe {
            libc::sendto(
                self.common.socket.as_raw_fd(),
                ptr::null(),
                0,
                libc::MSG_DONTWAIT,
                ptr::null(),
                0,
            )
        };
        count_or_error(result as c_int).map(drop)
    }

    /// Makes the kernel report the state of the device.
    pub(crate) fn look(&self) -> io::Result<()> {
        self.common.look()
    }
}

impl AsFd for Sending {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.common.socket.as_fd()
    }
}

impl Drop for Sending {
    /// Waits for packets that the kernel has taken, and leaves the others to the half that closes the socket: this one,
    /// if the other half is gone.
    fn drop(&mut self) {
        // SAFETY: it is taken here alone, and nothing uses it afterwards.
        let mut rings = unsafe { ManuallyDrop::take(&mut self.rings) };
        let common = &self.common;
        // The last one waits when it closes the socket.
        if Arc::strong_count(common) > 1 {
            rings.settle(common.zero_copy);
        }
        if rings.unsent > 0 {
            let left = &mut *common.left.lock().unwrap_or_else(PoisonError::into_inner);
            *left = Some(rings);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_a_driver_has_nothing_is_taken_for_free_that_it_has_not_given_back() {
        assert!(!lets_go(true, true) && !lets_go(true, false));
        assert!(lets_go(false, true) && !lets_go(false, false));
    }
}
