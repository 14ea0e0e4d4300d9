//! The side that pops, and believes nothing.

use core::fmt;

use super::layout::{ACCEPTED, DOZING, DROPPED, Geometry, MALFORMED, Place, TooSmall};
use crate::sync::{AtomicU64, Ordering, fence};

/// The answer to [`Receiver::pop`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Popped {
    /// A packet was copied out.
    Packet,
    /// Nothing waits.
    Empty,
    /// A slot with an impossible length was passed over; the ring goes on behind it.
    Malformed,
    /// The sender does not keep to the protocol. The answer stays this one, and the memory is
    /// not read any more.
    OutOfStep,
}

/// The end of a shared ring that packets are popped from.
///
/// There must be one only for each ring.
pub struct Receiver<M> {
    memory: M,
    head: Place,
    out_of_step: bool,
    accepted: u64,
    malformed: u64,
}

impl<M: AsRef<[AtomicU64]>> Receiver<M> {
    /// The receiver of the ring at the start of `memory`. `memory` must always give the same
    /// words.
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

    /// Copies the oldest packet out; what was in `into` is replaced, and only if there is a packet.
    ///
    /// Never waits, never panics whatever the sender does. O(length), at most
    /// [`Geometry::longest`]; allocates only where `into` is too small.
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

    /// Says whether the sender has to wake the receiver. After `doze(true)`, a packet that
    /// [`is_empty`](Self::is_empty) does not see comes with a
    /// [`must_ring`](super::Sender::must_ring).
    ///
    /// Cost: a store, and a fence when it goes to doze.
    pub fn doze(&self, dozing: bool) {
        self.memory.as_ref()[DOZING].store(u64::from(dozing), Ordering::Relaxed);
        if dozing {
            fence(Ordering::SeqCst);
        }
    }

    /// Tells the sender how many of its packets were dropped after they were popped, from the
    /// beginning on.
    pub fn tell_dropped(&self, packets: u64) {
        self.memory.as_ref()[DROPPED].store(packets, Ordering::Relaxed);
    }

    /// Whether the sender broke the protocol so that the ring cannot be read any more.
    #[must_use]
    pub fn is_out_of_step(&self) -> bool {
        self.out_of_step
    }

    /// Packets popped so far.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Slots passed over so far because of an impossible length.
    #[must_use]
    pub fn malformed(&self) -> u64 {
        self.malformed
    }

    /// The ring's shape.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.head.geometry()
    }
}

/// Copies the first `length` bytes of `words`, which has as many.
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
