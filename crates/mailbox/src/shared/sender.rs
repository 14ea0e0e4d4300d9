//! The sending side.

use core::fmt;

use super::layout::{ACCEPTED, DOZING, DROPPED, Geometry, MALFORMED, Place, TooSmall};
use crate::sync::{AtomicU64, Ordering, fence};

/// The reason why a packet was not pushed. The packet is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PushError {
    /// No slot is free.
    #[error("the mailbox is full")]
    Full,
    /// The packet does not fit into a slot.
    #[error("the packet has {given} bytes, and the mailbox takes 1 to {longest}")]
    Length {
        /// The packet's length.
        given: usize,
        /// The maximum length.
        longest: usize,
    },
}

/// The receiver's counters for the packets pushed so far.
///
/// They lag by a few packets, and a hostile receiver may report anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Complete packets popped.
    pub accepted: u64,
    /// Slots skipped because of their content.
    pub malformed: u64,
    /// Packets popped and dropped later.
    pub dropped: u64,
}

/// The end of a shared ring that packets are pushed into.
///
/// There must be only one per ring, in the process for which the memory was created.
pub struct Sender<M> {
    memory: M,
    tail: Place,
}

impl<M: AsRef<[AtomicU64]>> Sender<M> {
    /// Creates the sender of an empty ring at the start of `memory`, which must be zeroed; otherwise no push succeeds.
    /// `memory` must always return the same words.
    ///
    /// # Errors
    ///
    /// [`TooSmall`] if the ring does not fit.
    pub fn new(memory: M, geometry: Geometry) -> Result<Self, TooSmall> {
        geometry.check(memory.as_ref())?;
        Ok(Sender {
            memory,
            tail: Place::first(geometry),
        })
    }

    /// Copies a packet into the ring, or rejects it at once. Call [`must_ring`](Self::must_ring) afterwards, once for
    /// several pushes.
    ///
    /// Never waits. O(length): touches the lines of one slot.
    ///
    /// # Errors
    ///
    /// [`PushError`]; nothing was written.
    #[inline]
    pub fn push(&mut self, packet: &[u8]) -> Result<(), PushError> {
        let (given, longest) = (packet.len(), self.tail.geometry().longest());
        if given == 0 || given > longest {
            return Err(PushError::Length { given, longest });
        }
        let (header, words) = self.tail.slot(self.memory.as_ref());
        if header.load(Ordering::Acquire) != self.tail.free() {
            return Err(PushError::Full);
        }
        let (whole, rest) = packet.as_chunks();
        for (word, &bytes) in words.iter().zip(whole) {
            word.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
        }
        if !rest.is_empty() {
            let mut bytes = [0; size_of::<u64>()];
            bytes[..rest.len()].copy_from_slice(rest);
            words[whole.len()].store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
        }
        header.store(self.tail.full(given), Ordering::Release);
        self.tail.advance();
        Ok(())
    }

    /// Whether the receiver dozes and must be woken for packets that were pushed before this call. True once per doze.
    ///
    /// Cost: a fence, and a load of a line that changes only when the receiver dozes.
    #[inline]
    #[must_use = "the receiver sleeps until it is woken"]
    pub fn must_ring(&self) -> bool {
        // Pairs with the fence in `Receiver::doze`: either this sees the flag, or the receiver
        // sees the packet.
        fence(Ordering::SeqCst);
        let dozing = &self.memory.as_ref()[DOZING];
        dozing.load(Ordering::Relaxed) != 0 && dozing.swap(0, Ordering::Relaxed) != 0
    }

    /// Returns the receiver's counters. Reads one line that the receiver writes.
    #[must_use]
    pub fn told(&self) -> Told {
        let told = |at: usize| self.memory.as_ref()[at].load(Ordering::Relaxed);
        Told {
            accepted: told(ACCEPTED),
            malformed: told(MALFORMED),
            dropped: told(DROPPED),
        }
    }

    /// Returns the geometry of the ring.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.tail.geometry()
    }
}

impl<M> fmt::Debug for Sender<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("tail", &self.tail)
            .finish_non_exhaustive()
    }
}
