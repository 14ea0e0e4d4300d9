//! The receiving side, which trusts no value in the memory.

use core::fmt;

use super::layout::{ACCEPTED, DOZING, DROPPED, Geometry, MALFORMED, Place, TooSmall};
use crate::sync::{AtomicU64, Ordering, fence};

/// The result of [`Receiver::pop`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Popped {
    /// A packet was copied out.
    Packet,
    /// The ring is empty.
    Empty,
    /// A slot with an impossible length was skipped; the ring continues after it.
    Malformed,
    /// The sender violated the protocol. All later calls return this, and the memory is no longer read.
    OutOfStep,
}

/// The end of a shared ring that packets are popped from.
///
/// There must be only one per ring.
pub struct Receiver<M> {
    memory: M,
    head: Place,
    out_of_step: bool,
    accepted: u64,
    malformed: u64,
}

impl<M: AsRef<[AtomicU64]>> Receiver<M> {
    /// Creates the receiver of the ring at the start of `memory`. `memory` must always return the same words.
    ///
    /// # Errors
    ///
    /// [`TooSmall`] if the ring does not fit.
    pub fn new(memory: M, geometry: Geometry) -> Result<Self, TooSmall> {
        geometry.check(memory.as_ref())?;
        Ok(Receiver {
            memory,
            head: Place::first(geometry),
            out_of_step: false,
            accepted: 0,
            malformed: 0,
        })
    }

    /// Copies the oldest packet out, and replaces the content of `into` if there is a packet.
    ///
    /// Never waits, and never panics whatever the sender does. O(length), at most [`Geometry::longest`]; allocates only
    /// if `into` is too small.
    #[inline]
    pub fn pop(&mut self, into: &mut Vec<u8>) -> Popped {
        if self.out_of_step {
            return Popped::OutOfStep;
        }
        let memory = self.memory.as_ref();
        let (header, words) = self.head.slot(memory);
        let length = match header.load(Ordering::Acquire).checked_sub(self.head.free()) {
            Some(0) => return Popped::Empty,
            Some(length) if length <= u64::from(u32::MAX) => length as usize,
            _ => {
                self.out_of_step = true;
                return Popped::OutOfStep;
            }
        };
        let popped = if length <= self.head.geometry().longest() {
            copy_out(words, length, into);
            self.accepted += 1;
            memory[ACCEPTED].store(self.accepted, Ordering::Relaxed);
            Popped::Packet
        } else {
            self.malformed += 1;
            memory[MALFORMED].store(self.malformed, Ordering::Relaxed);
            Popped::Malformed
        };
        // After the copy: the sender may write to the slot as soon as it sees this.
        header.store(self.head.freed(), Ordering::Release);
        self.head.advance();
        popped
    }

    /// Whether [`pop`](Self::pop) would find nothing: no packet, or a sender out of step.
    ///
    /// Cost: one load.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let (header, _) = self.head.slot(self.memory.as_ref());
        self.out_of_step || header.load(Ordering::Acquire) == self.head.free()
    }

    /// Sets whether the sender must wake the receiver. After `doze(true)`, for a packet that
    /// [`is_empty`](Self::is_empty) does not see, [`must_ring`](super::Sender::must_ring) returns true.
    ///
    /// Cost: a store, and a fence for `true`.
    pub fn doze(&self, dozing: bool) {
        self.memory.as_ref()[DOZING].store(u64::from(dozing), Ordering::Relaxed);
        if dozing {
            fence(Ordering::SeqCst);
        }
    }

    /// Reports to the sender the number of its packets that were dropped after they were popped, since the start.
    pub fn tell_dropped(&self, packets: u64) {
        self.memory.as_ref()[DROPPED].store(packets, Ordering::Relaxed);
    }

    /// Whether the sender violated the protocol, so that the ring can no longer be read.
    #[must_use]
    pub fn is_out_of_step(&self) -> bool {
        self.out_of_step
    }

    /// Returns the number of packets popped so far.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Returns the number of slots skipped so far because of an impossible length.
    #[must_use]
    pub fn malformed(&self) -> u64 {
        self.malformed
    }

    /// Returns the geometry of the ring.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.head.geometry()
    }
}

/// Copies the first `length` bytes of `words`, which has at least as many.
#[inline]
fn copy_out(words: &[AtomicU64], length: usize, into: &mut Vec<u8>) {
    into.resize(length.next_multiple_of(size_of::<u64>()), 0);
    let (chunks, _) = into.as_chunks_mut();
    for (bytes, word) in chunks.iter_mut().zip(words) {
        *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
    }
    into.truncate(length);
}

impl<M> fmt::Debug for Receiver<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver")
            .field("head", &self.head)
            .field("out_of_step", &self.out_of_step)
            .field("malformed", &self.malformed)
            .finish_non_exhaustive()
    }
}
