//! Threads that transmit, each with a TX mailbox of its own.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{fmt, io};

use fairlane_core::{Nanos, Packet};
use fairlane_io::Backend;
use fairlane_mailbox::bell::{Listener, Ringer, Woken, bell};
use fairlane_mailbox::{CapacityError, Consumer, Producer, mailbox};

use super::Release;
use crate::delay::Spans;
use crate::driver::{Next, Step, Steps};

/// Most packets that a dispatcher takes from its mailbox before it transmits.
const BATCH: usize = 64;

/// Release to dispatcher threads, for expensive transmission (PSPAT, Section 3.3). A flow always
/// goes to the same dispatcher, so its packets keep their order; those of different flows may
/// overtake one another by the dispatchers' backlog (k Delta_D of Eq. 1).
///
/// ```
/// use fairlane_core::{Length, Nanos, sched::Qfq};
/// use fairlane_io::{Backend, MemoryBackend, memory};
/// use fairlane_runtime::{Arbiter, ArbiterConfig, Dispatcher, Dispatchers, Flow, Link};
///
/// type Device = MemoryBackend<Vec<u8>>;
///
/// let (near, mut far): (Device, Device) = memory::pair(16);
/// let (ways, mut threads): (Dispatchers<Vec<u8>>, Vec<Dispatcher<Device>>) =
///     Dispatchers::new(vec![near], 64)?;
/// let config = ArbiterConfig::new(Link::new("8mbit".parse()?));
/// let mut arbiter = Arbiter::releasing(Qfq::new(), config, ways, Nanos::ZERO);
/// let mut client = arbiter.registrar().client(Flow::weight(1).max_len(1_000))?;
/// client.push(Length::try_from(1_000u32)?, vec![7; 1_000])?;
/// arbiter.step(Nanos::ZERO)?;
///
/// // Each is driven by a thread of its own; a pass is what that does again and again.
/// threads[0].pass(Nanos::ZERO)?;
/// assert_eq!((threads[0].transmitted(), far.receive(&mut Vec::new(), 16)?), (1, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Dispatchers<P> {
    ways: Vec<Way<P>>,
    waiting: usize,
}

struct Way<P> {
    mailbox: Producer<P>,
    held: VecDeque<P>,
    /// Packets that `held` no longer has.
    released: u64,
    settled: Arc<Settled>,
    bell: Ringer,
}

/// How many packets the device has taken or refused; alone on its line, which the dispatcher
/// writes.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Settled(AtomicU64);

impl<P: Send> Dispatchers<P> {
    /// One dispatcher for each backend, with a TX mailbox of `slots` slots: a power of two. Each
    /// must be driven by a thread of its own ([`drive`](crate::drive)).
    ///
    /// # Panics
    ///
    /// Without a backend: then there is nowhere to go.
    pub fn new<B: Backend<Tx = P>>(
        backends: Vec<B>,
        slots: usize,
    ) -> Result<(Self, Vec<Dispatcher<B>>), CapacityError> {
        assert!(!backends.is_empty(), "there is a backend to dispatch to");
        let mut ways = Vec::new();
        let mut dispatchers = Vec::new();
        for backend in backends {
            let (producer, consumer) = mailbox(slots)?;
            let listener = bell(1);
            let settled = Arc::new(Settled::default());
            ways.push(Way {
                mailbox: producer,
                held: VecDeque::new(),
                released: 0,
                settled: Arc::clone(&settled),
                bell: listener.handle().ringer(0),
            });
            dispatchers.push(Dispatcher {
                mailbox: consumer,
                bell: listener,
                batch: VecDeque::with_capacity(BATCH),
                backend,
                settled,
                taken: 0,
                transmitted: 0,
                passes: Spans::default(),
                last_pass: None,
            });
        }
        let dispatchers_of = Dispatchers { ways, waiting: 0 };
        Ok((dispatchers_of, dispatchers))
    }

    /// Counts packets of dispatchers that are gone which no device has accepted or refused. Packets
    /// released to such a dispatcher are dropped and counted here, so that a broken device does not
    /// delay the others.
    pub fn lost(&self) -> u64 {
        let gone = self.ways.iter().filter(|way| way.mailbox.is_abandoned());
        gone.map(|way| way.released - way.settled.0.load(Ordering::Relaxed))
            .sum()
    }
}

impl<P: Send> Release<P> for Dispatchers<P> {
    #[inline]
    fn release(&mut self, packet: Packet<P>) {
        let way = packet.owner.number() as usize % self.ways.len();
        self.ways[way].held.push_back(packet.payload);
        self.waiting += 1;
    }

    fn flush(&mut self, _: bool) -> io::Result<usize> {
        if self.waiting == 0 {
            return Ok(0);
        }
        let mut sent = 0;
        for way in &mut self.ways {
            if way.held.is_empty() {
                continue;
            }
            let held = &mut way.held;
            let gone = if way.mailbox.is_abandoned() {
                held.drain(..).count()
            } else {
                let pushed = way
                    .mailbox
                    .push_batch(&mut std::iter::from_fn(|| held.pop_front()));
                way.bell.ring();
                sent += pushed;
                pushed
            };
            way.released += gone as u64;
            self.waiting -= gone;
        }
        Ok(sent)
    }

    fn waiting(&self) -> usize {
        self.waiting
    }
}

/// The other end of a TX mailbox, and the backend it feeds.
pub struct Dispatcher<B: Backend> {
    mailbox: Consumer<B::Tx>,
    bell: Listener,
    /// Taken from the mailbox, not yet taken by the backend.
    batch: VecDeque<B::Tx>,
    backend: B,
    settled: Arc<Settled>,
    /// Packets taken from the mailbox.
    taken: u64,
    transmitted: u64,
    passes: Spans,
    last_pass: Option<Nanos>,
}

impl<B: Backend<Tx: Send>> Dispatcher<B> {
    /// Moves packets from the mailbox to the backend, as far as it accepts them; returns how many.
    /// Reads no clock: `now` is for Delta_D.
    ///
    /// # Errors
    ///
    /// The backend is unusable.
    pub fn pass(&mut self, now: Nanos) -> io::Result<usize> {
        if self.batch.len() < BATCH {
            let room = BATCH - self.batch.len();
            let batch = &mut self.batch;
            let taken = self
                .mailbox
                .pop_batch(room, |packet| batch.push_back(packet));
            self.taken += taken as u64;
        }
        let last = self.last_pass.replace(now);
        if self.batch.is_empty() {
            return Ok(0);
        }
        if let Some(last) = last {
            self.passes.record(now.since(last));
        }
        let sent = self.backend.transmit(&mut self.batch);
        let settled = self.taken - self.batch.len() as u64;
        self.settled.0.store(settled, Ordering::Relaxed);
        let sent = sent?;
        self.transmitted += sent as u64;
        Ok(sent)
    }

    /// Packets that the backend accepted.
    pub fn transmitted(&self) -> u64 {
        self.transmitted
    }

    /// Returns the time from one pass to the next that found packets: Delta_D of Eq. 1.
    pub fn passes(&self) -> Spans {
        self.passes
    }

    /// Returns the backend.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// Marks it awake, whatever woke it. A ring that is still on its way is collected next time.
    fn rouse(&mut self) {
        self.bell.rouse(0);
        self.bell.collect(|_| {});
    }
}

/// Passes packets on until the arbiter is gone and all were transmitted: packets in the mailbox of a
/// dispatcher that is no longer driven are dropped with it. The first error of a pass ends it; the
/// arbiter's other dispatchers continue.
impl<B: Backend<Tx: Send>> Steps for Dispatcher<B> {
    fn step(&mut self, now: Nanos) -> io::Result<Step> {
        Ok(Step {
            drained: 0,
            released: 0,
            transmitted: self.pass(now)?,
            next: match self.batch.is_empty() {
                true => Next::WhenPushed,
                false => Next::WhenBackendTakesMore,
            },
        })
    }

    fn sleep(&mut self, longest: Duration) -> io::Result<Option<Woken>> {
        self.bell.doze(0);
        self.bell.settle();
        if !self.mailbox.is_empty() || self.mailbox.is_abandoned() {
            self.rouse();
            return Ok(None);
        }
        let woken = self.bell.sleep(Some(longest));
        self.rouse();
        // Time asleep counts as no packet's delay.
        self.last_pass = None;
        Ok(Some(woken))
    }

    fn is_done(&self) -> bool {
        // In this order: an empty mailbox is final only after its producer has gone.
        self.mailbox.is_abandoned() && self.mailbox.is_empty() && self.batch.is_empty()
    }
}

impl<P> fmt::Debug for Dispatchers<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatchers")
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}

impl<B: Backend> fmt::Debug for Dispatcher<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatcher")
            .field("taken", &self.taken)
            .field("transmitted", &self.transmitted)
            .finish_non_exhaustive()
    }
}
