//! A process's mailbox as the arbiter sees it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;

use fairlane_core::Length;
use fairlane_io::SharedMemory;
use fairlane_mailbox::shared::{Popped, Receiver};
use rustix::net::{Shutdown, shutdown};

use super::daemon::Attached;
use crate::client::ClientId;
use crate::inbox::Source;
use crate::link::Link;

/// Slots with an impossible length that a client may leave before it is cut off. A client that
/// keeps to the protocol leaves none.
#[doc(hidden)]
pub const MOST_MALFORMED: u64 = 16;

/// The receiving end of a client's mailbox, and the conversion of its packets.
pub(super) struct ProcessSource<F> {
    pub(super) receiver: Receiver<Shared>,
    pub(super) line: Arc<Line>,
    /// Set when the socket says that the client is gone.
    pub(super) left: Arc<AtomicBool>,
    pub(super) link: Link,
    /// The client's identity; the arbiter assigns the number.
    pub(super) process: Attached,
    pub(super) make: F,
    /// Packets that may still be taken. After the client left, its memory may remain with a process
    /// that writes forever.
    pub(super) allowance: Allowance,
    /// Dropped after the receiver.
    pub(super) _part: Part,
}

/// A mailbox's memory. The thread that lets clients in has a part in it too, so that unmapping it
/// and giving back its pages, which takes time, is that thread's work and not the arbiter's.
#[derive(Clone)]
pub(super) struct Shared(Arc<SharedMemory>);

impl Shared {
    pub(super) fn new(memory: SharedMemory) -> Self {
        Shared(Arc::new(memory))
    }
}

impl AsRef<[AtomicU64]> for Shared {
    #[inline]
    fn as_ref(&self) -> &[AtomicU64] {
        (*self.0).as_ref()
    }
}

/// The arbiter's share of a connection; dropping it notifies the listening thread.
pub(super) struct Part {
    pub(super) connection: u64,
    pub(super) returned: mpsc::Sender<u64>,
    /// Wakes the thread.
    pub(super) wake: Arc<OwnedFd>,
}

impl Drop for Part {
    fn drop(&mut self) {
        // If the thread is gone, its share is too. A write fails only if the thread was woken 2^64
        // times before.
        if self.returned.send(self.connection).is_ok() {
            let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
        }
    }
}

/// How many slots the arbiter will look into.
pub(super) enum Allowance {
    /// For any input.
    Any,
    /// So many: the client has left.
    Last(usize),
    /// None: it was cut off.
    CutOff,
}

impl<F> ProcessSource<F> {
    /// Returns whether another slot may be looked into; counted once the client has left.
    fn may_look(&mut self) -> bool {
        if matches!(self.allowance, Allowance::Any) && self.left.load(Ordering::Acquire) {
            self.allowance = Allowance::Last(self.receiver.geometry().slots());
        }
        match &mut self.allowance {
            Allowance::Any => true,
            Allowance::Last(slots) if *slots > 0 => {
                *slots -= 1;
                true
            }
            Allowance::Last(_) | Allowance::CutOff => false,
        }
    }

    /// The socket notifies both the client and the listening thread.
    #[cold]
    fn cut_off(&mut self) {
        self.allowance = Allowance::CutOff;
        self.line.hang_up();
    }
}

impl<P, F> Source<P> for ProcessSource<F>
where
    F: FnMut(Vec<u8>, &Attached) -> P + Send,
{
    fn pop(&mut self) -> Option<(Length, P)> {
        // Passes over at most `MOST_MALFORMED` slots in the life of a client.
        while self.may_look() {
            let mut packet = Vec::new();
            match self.receiver.pop(&mut packet) {
                Popped::Packet => {
                    let length = Length::new(packet.len() as u32);
                    if let Some(carried) = length.and_then(|length| self.link.carried(length)) {
                        return Some((carried, (self.make)(packet, &self.process)));
                    }
                }
                Popped::Empty => return None,
                Popped::Malformed if self.receiver.malformed() < MOST_MALFORMED => {}
                Popped::Malformed | Popped::OutOfStep => self.cut_off(),
            }
        }
        None
    }

    fn is_empty(&self) -> bool {
        match self.allowance {
            Allowance::Any | Allowance::Last(1..) => self.receiver.is_empty(),
            Allowance::Last(0) | Allowance::CutOff => true,
        }
    }

    fn joined(&mut self, id: ClientId) {
        self.process.id = id;
    }

    fn doze(&mut self, dozing: bool) {
        self.receiver.doze(dozing);
    }

    fn dropped(&mut self, packets: u64) {
        self.receiver.tell_dropped(packets);
    }
}

/// The connection of a source: it ends with its last owner, so that a client learns that the
/// arbiter has removed it or is itself gone.
pub(super) struct Line(Option<Arc<OwnedFd>>);

impl Line {
    pub(super) fn new(socket: Arc<OwnedFd>) -> Self {
        Line(Some(socket))
    }

    /// Ends the connection, even if others hold its handle.
    fn hang_up(&self) {
        if let Some(socket) = &self.0 {
            // It may have ended before.
            let _ = shutdown(socket, Shutdown::Both);
        }
    }

    /// Keeps the connection without this share.
    pub(super) fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.hang_up();
    }
}
