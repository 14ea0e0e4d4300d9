//! A client: one sender with a mailbox of its own.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use fairlane_core::Length;
use fairlane_mailbox::bell::Ringer;
use fairlane_mailbox::{Full, Producer};

/// A client of one arbiter; its number may be given again after it left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub(crate) u32);

impl ClientId {
    /// Returns its number: clients of one arbiter are numbered from 0.
    #[inline]
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// Its number.
impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The entry of a mailbox: a packet and its length on the link.
#[derive(Debug)]
pub(crate) struct Request<P> {
    pub(crate) carried: Length,
    pub(crate) packet: P,
}

/// Counters that a client and the arbiter share outside the mailbox, each line written by one thread
/// only.
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
    /// The client is gone; for mailboxes that do not report it.
    pub(crate) left: AtomicBool,
}

#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct ArbiterLine {
    pub(crate) dropped: AtomicU64,
    /// Of a packet, without overhead: the last that the client was given.
    max_length: AtomicU32,
}

impl ArbiterLine {
    /// In bytes. A client may see a change late: the flow rejects packets that are too long.
    #[inline]
    fn max_length(&self) -> u32 {
        self.max_length.load(Ordering::Relaxed)
    }

    pub(crate) fn set_max_length(&self, max: Length) {
        self.max_length.store(max.get(), Ordering::Relaxed);
    }

    /// No packet is short enough from now on.
    pub(crate) fn refuse_all(&self) {
        self.max_length.store(0, Ordering::Relaxed);
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
#[non_exhaustive]
pub enum Refusal {
    /// The mailbox is full: the arbiter has not visited it yet.
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
    /// The link ends, and accepts no more packets.
    #[error("the link takes no more packets")]
    Ending,
    /// The arbiter was dropped.
    #[error("the arbiter is gone")]
    ArbiterGone,
}

/// A packet that was not taken, and why: that is all which it says as an error.
#[derive(PartialEq, Eq)]
pub struct Refused<P> {
    /// The packet, untouched.
    pub packet: P,
    /// Why.
    pub reason: Refusal,
}

impl<P> fmt::Debug for Refused<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused")
            .field("reason", &self.reason)
            .finish_non_exhaustive()
    }
}

impl<P> fmt::Display for Refused<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl<P> std::error::Error for Refused<P> {}

/// A sender's handle. One thread at a time may use it; dropping it ends the client: pushed packets are
/// still sent, then its flow is removed.
pub struct Client<P> {
    pub(crate) id: ClientId,
    pub(crate) mailbox: Producer<Request<P>>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) overhead: u32,
    pub(crate) drops_seen: u64,
    /// Rings for the last time when it is dropped, the mailbox being left by then.
    pub(crate) bell: Ringer,
}

impl<P: Send> Client<P> {
    /// The number the arbiter knows it by.
    pub fn id(&self) -> ClientId {
        self.id
    }

    /// Hands a packet of `len` bytes to the arbiter, or gets it back at once. Never waits and takes no
    /// lock. A dropped arbiter is reported once the mailbox is full: a check on every push would cost
    /// a load for an event that occurs once. The end of a link of [`spawn`](crate::spawn) is reported
    /// at once ([`Refusal::Ending`]).
    ///
    /// O(1). Accesses no line that another client writes, and makes no system call except to wake a
    /// sleeping arbiter: at most one for each of its sleeps.
    #[inline]
    pub fn push(&mut self, len: Length, packet: P) -> Result<Pushed, Refused<P>> {
        let pushed = self.offer(len, packet);
        if pushed.is_err() {
            self.refused();
        }
        pushed
    }

    /// Pushes without counting rejected packets.
    #[inline]
    pub(crate) fn offer(&mut self, len: Length, packet: P) -> Result<Pushed, Refused<P>> {
        let carried = match self.carried(len) {
            Ok(carried) => carried,
            Err(reason) => return Err(Refused { packet, reason }),
        };
        match self.mailbox.push(Request { carried, packet }) {
            Ok(()) => {
                self.bell.ring();
                count(&self.counters.by_client.pushed, 1);
                Ok(self.told())
            }
            Err(Full(Request { packet, .. })) => {
                let reason = self.full();
                Err(Refused { packet, reason })
            }
        }
    }

    /// Pushes packets, each with its length in bytes, as many as there is space for: returns how many,
    /// and the drops of earlier ones. Packets that do not fit are not taken from `packets`.
    ///
    /// Cheaper than single pushes: it publishes the cache line once, and checks the bell once, for all
    /// of them.
    ///
    /// # Errors
    ///
    /// A packet that is too long ends the batch, and is returned; those taken from `packets` before it
    /// are pushed, and those behind it were not taken. The same applies to the first packet after the
    /// link's end.
    #[inline]
    pub fn push_batch(
        &mut self,
        packets: &mut impl Iterator<Item = (Length, P)>,
    ) -> Result<(usize, Pushed), Refused<P>> {
        let mut refused = None;
        let (max, overhead) = (self.counters.by_arbiter.max_length(), self.overhead);
        let mut requests = std::iter::from_fn(|| {
            let (len, packet) = packets.next()?;
            match carried(len, max, overhead) {
                Ok(carried) => Some(Request { carried, packet }),
                Err(reason) => {
                    refused = Some((packet, reason));
                    None
                }
            }
        });
        let taken = self.mailbox.push_batch(&mut requests);
        count(&self.counters.by_client.pushed, taken as u64);
        if taken > 0 {
            self.bell.ring();
        }
        match refused {
            Some((packet, reason)) => {
                self.refused();
                Err(Refused { packet, reason })
            }
            None => Ok((taken, self.told())),
        }
    }

    #[inline]
    fn carried(&self, len: Length) -> Result<Length, Refusal> {
        carried(len, self.counters.by_arbiter.max_length(), self.overhead)
    }

    /// Returns the drops since the last query.
    #[inline]
    fn told(&mut self) -> Pushed {
        let drops = self.dropped();
        let dropped_before = drops - self.drops_seen;
        self.drops_seen = drops;
        Pushed { dropped_before }
    }

    /// Packets of this client that were dropped inside the arbiter, since the start.
    pub fn dropped(&self) -> u64 {
        self.counters.by_arbiter.dropped.load(Ordering::Relaxed)
    }

    /// Returns why the mailbox took nothing.
    #[cold]
    fn full(&self) -> Refusal {
        match self.mailbox.is_abandoned() {
            true => Refusal::ArbiterGone,
            false => Refusal::MailboxFull,
        }
    }

    /// Returns whether the arbiter was dropped.
    pub fn is_abandoned(&self) -> bool {
        self.mailbox.is_abandoned()
    }

    #[cold]
    fn refused(&self) {
        count(&self.counters.by_client.refused, 1);
    }
}

/// Returns the length on the link of a packet of `len` bytes.
#[inline]
fn carried(len: Length, max: u32, overhead: u32) -> Result<Length, Refusal> {
    match Length::new(len.get() + overhead) {
        Some(carried) if len.get() <= max => Ok(carried),
        _ => Err(match Length::new(max) {
            Some(max) => Refusal::TooLong { len, max },
            None => Refusal::Ending,
        }),
    }
}

impl<P> fmt::Debug for Client<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
