//! The arbiter transmits itself.

use std::collections::VecDeque;
use std::{fmt, io};

use fairlane_core::Packet;
use fairlane_io::Backend;

use super::Release;

/// Straight to a backend, in batches: the shortest way where transmitting is cheap (PSPAT,
/// Section 3.3).
pub struct Straight<B: Backend> {
    backend: B,
    batch: VecDeque<B::Tx>,
}

impl<B: Backend> Straight<B> {
    /// To `backend`.
    pub fn to(backend: B) -> Self {
        Straight {
            backend,
            batch: VecDeque::new(),
        }
    }

    /// The next packet; not on its way before [`send`](Self::send).
    #[inline]
    pub(crate) fn push(&mut self, packet: B::Tx) {
        self.batch.push_back(packet);
    }

    /// Transmits pushed packets as far as there is space, and returns how many.
    #[inline]
    pub(crate) fn send(&mut self) -> io::Result<usize> {
        if self.batch.is_empty() {
            return Ok(0);
        }
        self.backend.transmit(&mut self.batch)
    }

    /// Returns whether there was not room for all.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        !self.batch.is_empty()
    }

    /// Takes back, in order, the packets that the backend has not accepted.
    #[doc(hidden)]
    pub fn take_back(&mut self) -> VecDeque<B::Tx> {
        std::mem::take(&mut self.batch)
    }

    /// Returns the backend.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// Returns the backend, mutably.
    #[doc(hidden)]
    pub fn backend_mut(&mut self) -> &mut B {
        &mut self.backend
    }
}

impl<P: Into<B::Tx>, B: Backend> Release<P> for Straight<B> {
    #[inline]
    fn release(&mut self, packet: Packet<P>) {
        self.push(packet.payload.into());
    }

    #[inline]
    fn flush(&mut self, _: bool) -> io::Result<usize> {
        self.send()
    }

    #[inline]
    fn waiting(&self) -> usize {
        self.batch.len()
    }
}

impl<B: Backend> fmt::Debug for Straight<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Straight")
            .field("waiting", &self.batch.len())
            .finish_non_exhaustive()
    }
}
