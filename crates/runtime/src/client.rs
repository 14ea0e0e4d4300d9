//! A client: one sender with a mailbox of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use fairlane_core::Length;
use fairlane_mailbox::{Full, Producer};

/// A client of one arbiter; its number may be given again after it left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub(crate) u32);

/// What lies in a mailbox: a packet and what the link will carry for it.
#[derive(Debug)]
pub(crate) struct Request<P> {
    pub(crate) carried: Length,
    pub(crate) packet: P,
}

/// What a client and the arbiter tell each other beside packets, each line written
/// by one thread only.
#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) by_client: ClientLine,
    pub(crate) by_arbiter: ArbiterLine,
}

impl Counters {
    pub(crate) fn new(max_length: Length) -> Self {
        Counters {
            by_client: ClientLine::default(),
            by_arbiter: ArbiterLine {
                dropped: AtomicU64::new(0),
                max_length: AtomicU32::new(max_length.get()),
            },
        }
    }
}

#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct ClientLine {
    pub(crate) pushed: AtomicU64,
    pub(crate) refused: AtomicU64,
}

#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct ArbiterLine {
    pub(crate) dropped: AtomicU64,
    /// Of a packet, without overhead: the last that the client was given.
    max_length: AtomicU32,
}

impl ArbiterLine {
    /// In bytes. A client may see a change late: the flow refuses what is too long.
    #[inline]
    fn max_length(&self) -> u32 {
        self.max_length.load(Ordering::Relaxed)
    }

    pub(crate) fn set_max_length(&self, max: Length) {
        self.max_length.store(max.get(), Ordering::Relaxed);
    }
}

/// Adds to a counter that only this thread writes: a load and a store, no
/// read-modify-write.
pub(crate) fn count(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed) + by, Ordering::Relaxed);
}

/// A packet is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pushed {
    /// Packets of this client that were dropped inside the arbiter since the last
    /// push: PSPAT's backpressure flag, counted.
    pub dropped_before: u64,
}

/// Why a packet was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The mailbox is full: the arbiter has not come round yet.
    #[error("the mailbox is full")]
    MailboxFull,
    /// Longer than the flow's declared maximum.
    #[error("the packet of {len} is longer than the {max} its flow declared")]
    TooLong {
        /// The packet's length.
        len: Length,
        /// The flow's maximum.
        max: Length,
    },
    /// The arbiter was dropped.
    #[error("the arbiter is gone")]
    ArbiterGone,
}

/// A packet that was not taken, and why.
#[derive(Debug, PartialEq, Eq)]
pub struct Refused<P> {
    /// The packet, untouched.
    pub packet: P,
    /// Why.
    pub reason: Refusal,
}

/// A sender's handle. One thread at a time; dropping it leaves: what it pushed is
/// still sent, then its flow is removed.
#[derive(Debug)]
pub struct Client<P> {
    pub(crate) id: ClientId,
    pub(crate) mailbox: Producer<Request<P>>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) overhead: u32,
    pub(crate) drops_seen: u64,
}

impl<P: Send> Client<P> {
    /// The number the arbiter knows it by.
    pub fn id(&self) -> ClientId {
        self.id
    }

    /// Hands a packet of `len` bytes to the arbiter, or gets it back at once. That the
    /// arbiter is gone is told once the mailbox is full: to look at every push would
    /// cost a load for what happens once. Never waits, takes no lock, makes no system call. O(1); no line is touched that
    /// another client writes.
    #[inline]
    pub fn push(&mut self, len: Length, packet: P) -> Result<Pushed, Refused<P>> {
        let carried = Length::new(len.get() + self.overhead);
        let max = self.counters.by_arbiter.max_length();
        let (true, Some(carried)) = (len.get() <= max, carried) else {
            let max = Length::new(max).unwrap_or(Length::MAX);
            return Err(self.refuse(packet, Refusal::TooLong { len, max }));
        };
        match self.mailbox.push(Request { carried, packet }) {
            Ok(()) => {
                count(&self.counters.by_client.pushed, 1);
                let drops = self.counters.by_arbiter.dropped.load(Ordering::Relaxed);
                let dropped_before = drops - self.drops_seen;
                self.drops_seen = drops;
                Ok(Pushed { dropped_before })
            }
            Err(Full(request)) => {
                let reason = if self.mailbox.is_abandoned() {
                    Refusal::ArbiterGone
                } else {
                    Refusal::MailboxFull
                };
                Err(self.refuse(request.packet, reason))
            }
        }
    }

    #[cold]
    fn refuse(&self, packet: P, reason: Refusal) -> Refused<P> {
        count(&self.counters.by_client.refused, 1);
        Refused { packet, reason }
    }
}
