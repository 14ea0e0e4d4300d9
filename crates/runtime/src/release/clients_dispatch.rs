//! The clients themselves transmit packets that the arbiter has cleared.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fmt, io};

use fairlane_core::{FlowId, Length, Packet};
use fairlane_io::Backend;
use fairlane_mailbox::{CapacityError, Consumer, Producer, mailbox};

use super::Release;
use crate::client::{Client, ClientId, Pushed, Refusal, Refused};

/// The arbiter's entry for a packet that its client keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cleared(());

/// How many of a client's packets were cleared; alone on its line, which the arbiter
/// writes and the client reads.
#[derive(Debug, Default)]
#[repr(align(64))]
struct ClearedLine(AtomicU64);

/// The arbiter's end of the feedback to a client that dispatches its own packets.
#[derive(Debug)]
pub struct Outlet {
    cleared: Arc<ClearedLine>,
    /// The positions of packets that were dropped.
    dropped: Producer<u64>,
}

/// The client's end.
#[derive(Debug)]
pub(crate) struct Near {
    cleared: Arc<ClearedLine>,
    dropped: Consumer<u64>,
}

impl Outlet {
    /// Both ends, for a client with at most `window` packets under way.
    pub(crate) fn new(window: u32) -> Result<(Near, Outlet), CapacityError> {
        let cleared = Arc::new(ClearedLine::default());
        // Room for a verdict on each of them.
        let slots = (window as usize).max(2).next_power_of_two();
        let (producer, consumer) = mailbox(slots)?;
        let near = Near {
            cleared: Arc::clone(&cleared),
            dropped: consumer,
        };
        let dropped = producer;
        Ok((near, Outlet { cleared, dropped }))
    }
}

/// The arbiter decides, the clients transmit: the fastest way where each client has an
/// output of its own (PSPAT, Section 6.1).
///
/// Only lengths pass through the mailboxes, and a count comes back: the packets of a flow leave in
/// order, so the count identifies them. A packet dropped inside is reported by its position.
///
/// Each report takes the line with the count from the client's core. While the arbiter is the
/// bottleneck, a client therefore gets its report when its mailbox is visited, once a round for
/// both, and after 512 steps at the latest; otherwise at once.
///
/// ```
/// use fairlane_core::{FlowConfig, Length, Nanos, PacketScheduler, Weight, sched::Qfq};
/// use fairlane_runtime::{
///     Arbiter, ArbiterConfig, Cleared, ClientsDispatch, DispatchingClient, Link,
/// };
///
/// type Decides = Arbiter<PacketScheduler<Qfq, Cleared>, ClientsDispatch>;
///
/// let config = ArbiterConfig::new(Link::new("8mbit".parse()?));
/// let mut arbiter: Decides =
///     Arbiter::releasing(Qfq::new(), config, ClientsDispatch::new(), Nanos::ZERO);
/// let len = Length::try_from(1_000u32)?;
/// let flow = FlowConfig::new(Weight::ONE, len);
/// let mut client: DispatchingClient<&str> = arbiter.registrar().register_dispatching(flow, 16)?;
/// client.push(len, "the first")?;
/// client.push(len, "the second")?;
///
/// // One of them may leave by now, by whatever way the client has.
/// arbiter.step(Nanos::ZERO)?;
/// assert_eq!(client.next_cleared(), Some("the first"));
/// assert_eq!((client.next_cleared(), client.pending()), (None, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct ClientsDispatch {
    /// By the flow's number: packets cleared and not reported, and [`LISTED`].
    fresh: Vec<u32>,
    exits: Vec<Exit>,
    /// Flows that may have a pending report.
    listed: Vec<u32>,
    /// Flushes since the last report to all.
    kept_back: u32,
}

/// The flow is in the list.
const LISTED: u32 = 1 << 31;

/// Flushes after which all get their reports, busy or not.
const PATIENCE: u32 = 1024;

#[derive(Debug, Default)]
struct Exit {
    cleared: u64,
    outlet: Option<Outlet>,
}

impl ClientsDispatch {
    /// For any number of clients.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reports cleared packets to a client; returns how many.
    #[inline]
    fn tell(&mut self, number: u32) -> usize {
        let fresh = &mut self.fresh[number as usize];
        let packets = *fresh & !LISTED;
        *fresh &= LISTED;
        if packets == 0 {
            return 0;
        }
        let exit = &mut self.exits[number as usize];
        exit.cleared += u64::from(packets);
        if let Some(outlet) = &exit.outlet {
            // Release: a reader that sees the count sees the earlier verdicts.
            outlet.cleared.0.store(exit.cleared, Ordering::Release);
        }
        packets as usize
    }
}

impl Release<Cleared> for ClientsDispatch {
    fn joined(&mut self, flow: FlowId, outlet: Option<Outlet>) {
        let number = flow.number() as usize;
        if number >= self.exits.len() {
            self.exits.resize_with(number + 1, Exit::default);
            self.fresh.resize(number + 1, 0);
        }
        self.exits[number] = Exit { cleared: 0, outlet };
    }

    fn left(&mut self, flow: FlowId) {
        self.tell(flow.number());
        self.exits[flow.number() as usize] = Exit::default();
    }

    fn dropped(&mut self, flow: FlowId, position: u64) {
        if let Some(outlet) = &mut self.exits[flow.number() as usize].outlet {
            let told = outlet.dropped.push(position);
            debug_assert!(told.is_ok(), "a verdict for each packet of the window fits");
        }
    }

    #[inline]
    fn release(&mut self, packet: Packet<Cleared>) {
        let number = packet.owner.number();
        let fresh = &mut self.fresh[number as usize];
        if *fresh & LISTED == 0 {
            *fresh |= LISTED;
            self.listed.push(number);
        }
        *fresh += 1;
    }

    #[inline]
    fn visit(&mut self, flow: FlowId) -> usize {
        self.tell(flow.number())
    }

    #[inline]
    fn flush(&mut self, more: bool) -> io::Result<usize> {
        self.kept_back += 1;
        if more && self.kept_back < PATIENCE {
            return Ok(0);
        }
        self.kept_back = 0;
        let mut packets = 0;
        while let Some(number) = self.listed.pop() {
            packets += self.tell(number);
            self.fresh[number as usize] = 0;
        }
        Ok(packets)
    }

    fn tells_positions(&self) -> bool {
        true
    }

    fn waiting(&self) -> usize {
        0
    }
}

/// A client that keeps its packets of type `T` until the arbiter has cleared them, and
/// then transmits them itself.
///
/// One thread at a time may use it. Dropping it ends the client; packets that were not dispatched
/// by then are dropped with it, although the link was charged for cleared ones.
pub struct DispatchingClient<T> {
    client: Client<Cleared>,
    near: Near,
    window: u32,
    /// Pushed and neither dispatched nor dropped, oldest first.
    pending: VecDeque<T>,
    /// Which packet of this client the oldest is, from 0.
    first: u64,
    /// The first reported drop that is still in `pending`.
    next_drop: Option<u64>,
    cleared: u64,
    dispatched: u64,
    dropped: u64,
    /// Taken from `pending`, refused by a full backend.
    batch: VecDeque<T>,
}

impl<T> DispatchingClient<T> {
    pub(crate) fn new(client: Client<Cleared>, near: Near, window: u32) -> Self {
        DispatchingClient {
            client,
            near,
            window,
            pending: VecDeque::with_capacity(window as usize),
            first: 0,
            next_drop: None,
            cleared: 0,
            dispatched: 0,
            dropped: 0,
            batch: VecDeque::new(),
        }
    }

    /// The number the arbiter knows it by.
    pub fn id(&self) -> ClientId {
        self.client.id()
    }

    /// Asks the arbiter to clear a packet of `len` bytes, and keeps it meanwhile; or hands
    /// it back at once, with [`Refusal::MailboxFull`] when the window is full too. O(1).
    #[inline]
    pub fn push(&mut self, len: Length, packet: T) -> Result<Pushed, Refused<T>> {
        if self.pending.len() >= self.window as usize {
            let reason = match self.client.is_abandoned() {
                true => Refusal::ArbiterGone,
                false => Refusal::MailboxFull,
            };
            return Err(Refused { packet, reason });
        }
        match self.client.push(len, Cleared(())) {
            Ok(pushed) => {
                self.pending.push_back(packet);
                Ok(pushed)
            }
            Err(Refused { reason, .. }) => Err(Refused { packet, reason }),
        }
    }

    /// Requests clearance for packets until the window or the mailbox is full or `packets` ends;
    /// returns how many. Packets that do not fit are not taken from `packets`.
    ///
    /// # Errors
    ///
    /// A packet that is too long ends the batch and is returned; those before it are accepted.
    #[inline]
    pub fn push_batch(
        &mut self,
        packets: &mut impl Iterator<Item = (Length, T)>,
    ) -> Result<usize, Refused<T>> {
        let room = (self.window as usize).saturating_sub(self.pending.len());
        let pending = &mut self.pending;
        let mut lengths = packets.take(room).map(|(len, packet)| {
            pending.push_back(packet);
            (len, Cleared(()))
        });
        match self.client.push_batch(&mut lengths) {
            Ok((count, _)) => Ok(count),
            // The one refused was the last to be taken.
            Err(Refused { reason, .. }) => match self.pending.pop_back() {
                Some(packet) => Err(Refused { packet, reason }),
                None => Ok(0),
            },
        }
    }

    /// Returns the oldest packet if the arbiter has cleared it: to be transmitted now. O(1); reads
    /// the line that the arbiter writes only when all that it was known to hold is used up.
    #[inline]
    pub fn next_cleared(&mut self) -> Option<T> {
        if self.dispatched == self.cleared {
            self.cleared = self.near.cleared.0.load(Ordering::Acquire);
            if self.next_drop.is_none() {
                self.next_drop = self.near.dropped.pop();
            }
        }
        while self.next_drop == Some(self.first) {
            self.pending.pop_front();
            self.first += 1;
            self.dropped += 1;
            self.next_drop = self.near.dropped.pop();
        }
        if self.dispatched == self.cleared {
            return None;
        }
        self.dispatched += 1;
        self.first += 1;
        self.pending.pop_front()
    }

    /// Transmits cleared packets, in order, as far as `backend` accepts them; returns how many.
    /// While the device is full no more packets are taken out of the window, so that it fills up,
    /// and then blocks this client.
    ///
    /// # Errors
    ///
    /// The device is unusable. Cleared packets that were not accepted are kept.
    pub fn dispatch(&mut self, backend: &mut impl Backend<Tx = T>) -> io::Result<usize> {
        if self.batch.is_empty() {
            while let Some(packet) = self.next_cleared() {
                self.batch.push_back(packet);
            }
        }
        match self.batch.is_empty() {
            true => Ok(0),
            false => backend.transmit(&mut self.batch),
        }
    }

    /// Packets pushed and neither dispatched nor known to be dropped.
    pub fn pending(&self) -> usize {
        self.pending.len() + self.batch.len()
    }

    /// Packets that the arbiter dropped, up to the position of
    /// [`next_cleared`](Self::next_cleared).
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

impl<T> fmt::Debug for DispatchingClient<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DispatchingClient")
            .field("client", &self.client)
            .field("pending", &self.pending.len())
            .finish_non_exhaustive()
    }
}
