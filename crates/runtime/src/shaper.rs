//! A shaped link: its backlog, its rate, and its output.

use std::{fmt, io};

use fairlane_core::scheduler::Violation;
use fairlane_core::tree::{ClassFlow, ClassQueue};
use fairlane_core::{
    ChangeError, Count, Dequeue, FlowConfig, FlowId, FlowStats, Length, Nanos, Packet, Rate,
    Rejected, Rejection, TotalStats,
};
use fairlane_io::Backend;

use crate::classified::{Classified, Classify, FromPort};
use crate::driver::Next;
use crate::link::{Link, Pacer};
use crate::pace::{Opening, Pace};
use crate::queue::Queue;
use crate::release::{Release, Straight};

/// Steps with packets to release after which idle flows expire all the same.
const PATIENCE: u32 = 16;

/// A queue, the pace of a link, and an output.
///
/// [Admitted](Self::admit) packets wait in the queue, and leave in its order as fast as the link
/// carries them. An [`Arbiter`](crate::Arbiter) adds mailboxes in front.
///
/// While it is [open](Self::is_open) it is not paced: the backlog leaves first, as fast as the output
/// accepts it, and all other packets bypass the queue in order of arrival.
///
/// ```
/// use fairlane_core::{FlowConfig, Length, Nanos, PacketScheduler, Weight, sched::Qfq};
/// use fairlane_io::{MemoryBackend, memory};
/// use fairlane_runtime::{Arbiter, ArbiterConfig, Link, Next, Shaper, Step, Straight};
///
/// type Device = MemoryBackend<Vec<u8>>;
/// type Flows = PacketScheduler<Qfq, Vec<u8>>;
///
/// /// Bytes that wait for the link, and packets that wait for its device.
/// fn waiting(at: &Shaper<Flows, Straight<Device>>) -> (u64, usize) {
///     (at.total_stats().queued.bytes, at.waiting_for_backend())
/// }
///
/// let (near, _far): (Device, Device) = memory::pair(16);
/// let config = ArbiterConfig::new(Link::new("8mbit".parse()?));
/// let mut arbiter = Arbiter::new(Qfq::new(), config, near, Nanos::ZERO);
/// let len = Length::try_from(1_000u32)?;
/// let flow = arbiter.open_flow(FlowConfig::new(Weight::ONE, len))?;
/// for number in 1..=3 {
///     arbiter.admit(flow, len, vec![number; 1_000], Nanos::ZERO)?;
/// }
///
/// // A packet takes a millisecond: the others wait.
/// let Step { released, next, .. } = arbiter.step(Nanos::ZERO)?;
/// assert_eq!((released, next), (1, Next::At(Nanos::from_millis(1))));
/// assert_eq!(waiting(&arbiter), (2_000, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Shaper<Q: Queue, R, P = Pacer> {
    queue: Q,
    pace: P,
    release: R,
    /// Most packets released in one step.
    limit: usize,
    /// There is no pace, and packets pass by the queue.
    open: bool,
    /// Packets of clients that passed by the queue, and the bytes that the link carries for them.
    passed: Count,
    /// Steps since idle flows last expired.
    since_expiry: u32,
    /// The flow of each packet that the queue has discarded and that is not yet reported.
    discarded: Vec<FlowId>,
}

/// The packets that left in a step.
pub(crate) struct Left {
    /// Packets taken from the queue.
    pub(crate) released: usize,
    /// Packets that the output accepted.
    pub(crate) transmitted: usize,
    /// When there is more to release.
    pub(crate) next: Next,
}

impl<Q: Queue, R: Release<Q::Payload>, P: Pace> Shaper<Q, R, P> {
    /// Nothing waits. At most `limit` packets are released in one step.
    pub(crate) fn new(queue: Q, pace: P, limit: usize, release: R) -> Self {
        Shaper {
            queue,
            pace,
            release,
            limit: limit.max(1),
            open: false,
            passed: Count::default(),
            since_expiry: 0,
            discarded: Vec::new(),
        }
    }

    /// Adds a flow; the queue gets its maximum length with the link's overhead.
    pub(crate) fn add_flow(&mut self, config: FlowConfig) -> Result<FlowId, ChangeError> {
        let flow = self.queue.add_flow(self.link().carrying(config))?;
        self.release.joined(flow, None);
        Ok(flow)
    }

    /// Queues a packet of `len` bytes, without the link's overhead, of the calling thread: a received
    /// one, for example. It takes part in the next step. O(1), or the cost of the queue's `enqueue`.
    ///
    /// # Errors
    ///
    /// The packet is returned with the reason, and the queue has counted it; except for a packet that
    /// with the overhead is longer than 65,535 bytes, which does not reach the queue.
    #[inline]
    pub fn admit(
        &mut self,
        flow: FlowId,
        len: Length,
        payload: Q::Payload,
        now: Nanos,
    ) -> Result<(), Rejected<Q::Payload>> {
        match self.link().carried(len) {
            Some(carried) => self.enqueue(flow, carried, payload, now),
            None => Err(Rejected {
                payload,
                reason: Rejection::TooLong {
                    max: self.link().longest().unwrap_or(Length::MAX),
                },
            }),
        }
    }

    /// Queues packets with their lengths on the link, in order ([`Queue::enqueue_all`]).
    #[inline]
    pub(crate) fn enqueue_all(
        &mut self,
        flow: FlowId,
        packets: &mut Vec<(Length, Q::Payload)>,
        now: Nanos,
        rejected: impl FnMut(Rejected<Q::Payload>),
    ) {
        let discarded = &mut self.discarded;
        let gone = |packet: Packet<Q::Payload>| discarded.push(packet.owner);
        self.queue.enqueue_all(flow, packets, now, gone, rejected);
    }

    /// Queues a packet of which the link carries `len` bytes.
    #[inline]
    pub(crate) fn enqueue(
        &mut self,
        flow: FlowId,
        len: Length,
        payload: Q::Payload,
        now: Nanos,
    ) -> Result<(), Rejected<Q::Payload>> {
        let discarded = &mut self.discarded;
        let gone = |packet: Packet<Q::Payload>| discarded.push(packet.owner);
        self.queue.enqueue(flow, len, payload, now, gone)
    }

    /// A packet passes by the queue.
    #[inline]
    pub(crate) fn pass(&mut self, packet: Packet<Q::Payload>) {
        self.passed.add(packet.len);
        self.release.release(packet);
    }

    /// Returns whether packets may not bypass the open queue: earlier ones have not left yet, or the
    /// output is full.
    #[inline]
    pub(crate) fn is_held_up(&self) -> bool {
        self.open && (self.release.waiting() > 0 || !self.queue.is_empty())
    }

    /// Releases as much as the link can carry up to `now`, and transmits.
    #[inline]
    pub(crate) fn step(&mut self, now: Nanos) -> io::Result<Left> {
        let mut transmitted = self.release.flush(true)?;
        // While the backend holds packets back, no further ones are committed to an order.
        let (released, next) = match self.release.waiting() {
            0 if self.open => self.release_any(now),
            0 => self.release_due(now),
            _ => {
                self.pace.held_up();
                (0, Next::Now)
            }
        };
        transmitted += self.release.flush(next == Next::Now)?;
        Ok(Left {
            released,
            transmitted,
            next: match self.release.waiting() {
                0 => next,
                _ => Next::WhenBackendTakesMore,
            },
        })
    }

    /// Runs the second block of `do_scan` (PSPAT, Fig. 5); returns how many packets were released, and
    /// when there are more to release.
    #[inline]
    fn release_due(&mut self, now: Nanos) -> (usize, Next) {
        let mut released = 0;
        let mut window = self
            .pace
            .open(now, || self.queue.total_stats().queued.bytes);
        let stop = loop {
            if released >= self.limit || !window.may_release() {
                break None;
            }
            // Cheaper than selecting the next packet.
            if self.queue.is_empty() {
                break Some(Next::WhenPushed);
            }
            let discarded = &mut self.discarded;
            let gone = |packet: Packet<Q::Payload>| discarded.push(packet.owner);
            match self.queue.dequeue(now, gone) {
                Dequeue::Packet(packet) => {
                    window.charge(packet.len);
                    self.release.release(packet);
                    released += 1;
                }
                Dequeue::NotBefore(time) => break Some(Next::At(time)),
                Dequeue::Empty => break Some(Next::WhenPushed),
            }
        };
        self.pace.close(window, now);
        self.since_expiry += 1;
        if released == 0 || self.since_expiry == PATIENCE {
            self.since_expiry = 0;
            self.queue.expire_idle(now);
        }
        let next = match stop {
            Some(next) => {
                self.pace.idled(now);
                next
            }
            None => match self.pace.next(now) {
                // With an empty queue a pace may repeat that forever: it is asked at most once more.
                Next::Now if released > 0 => Next::Now,
                _ if self.queue.is_empty() => {
                    self.pace.idled(now);
                    Next::WhenPushed
                }
                next => next,
            },
        };
        (released, next)
    }

    /// The same without pacing: releases any packet of the queue, regardless of rate limits. Unused
    /// link time until then is lost.
    #[cold]
    fn release_any(&mut self, now: Nanos) -> (usize, Next) {
        self.pace.idled(now);
        let (mut released, mut freed) = (0, 0);
        let next = loop {
            if released >= self.limit || freed >= self.limit {
                break Next::Now;
            }
            let discarded = &mut self.discarded;
            let gone = |packet: Packet<Q::Payload>| discarded.push(packet.owner);
            match self.queue.dequeue(now, gone) {
                Dequeue::Packet(packet) => {
                    self.release.release(packet);
                    released += 1;
                }
                Dequeue::NotBefore(time) => match self.queue.free_held(self.limit as u32, now) {
                    0 => break Next::At(time),
                    more => freed += more as usize,
                },
                Dequeue::Empty => break Next::WhenPushed,
            }
        };
        if released == 0 {
            self.queue.expire_idle(now);
        }
        (released, next)
    }

    /// Returns whether the queue has discarded packets since it was last asked which.
    #[inline]
    pub(crate) fn has_discarded(&self) -> bool {
        Q::DISCARDS && !self.discarded.is_empty()
    }

    /// Returns the flow of each packet that the queue discarded since this was last asked.
    pub(crate) fn discarded(&mut self) -> impl Iterator<Item = FlowId> {
        self.discarded.drain(..)
    }

    /// Packets released that the backend has not taken yet.
    pub fn waiting_for_backend(&self) -> usize {
        self.release.waiting()
    }
}

impl<Q: Queue, R> Shaper<Q, R> {
    /// Limits the packets of one step, from now on: no more than the link carries in this time, and a packet.
    pub fn limit_release(&mut self, longest: Nanos) {
        self.pace.limit_window(longest);
    }

    /// Gives the link another rate from `now` on. Its overhead stays what clients know.
    pub fn change_rate(&mut self, rate: Rate, now: Nanos) {
        self.pace.change_rate(rate, now);
    }

    /// Marks the link as busy until `time` with packets that others have released to it, if that is
    /// later than its own.
    #[doc(hidden)]
    pub fn set_busy_until(&mut self, time: Nanos) {
        self.pace.idled(time);
    }

    /// Returns when the link will have carried all that was released. Later than now while a packet
    /// is on its way.
    #[doc(hidden)]
    pub fn idle_at(&self) -> Nanos {
        self.pace.idle_at()
    }
}

impl<Q: Queue, R, P: Pace> Shaper<Q, R, P> {
    /// Returns the link.
    pub fn link(&self) -> &Link {
        self.pace.link()
    }

    /// Returns when the link may send.
    pub fn pace(&self) -> &P {
        &self.pace
    }

    /// Returns whether packets pass by the queue, without a pace.
    #[inline]
    #[doc(hidden)]
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Opens it, or closes it again. The queue does not count packets that bypass it.
    pub(crate) fn set_open(&mut self, open: bool) {
        self.open = open;
    }

    /// Packets of clients that passed by the queue, and the bytes that the link would carry for them.
    pub fn passed(&self) -> Count {
        self.passed
    }

    /// Reports that a packet that the queue had accepted was removed, and will not be sent: its client
    /// learns it in the next step.
    #[doc(hidden)]
    pub fn tell_discarded(&mut self, flow: FlowId) {
        self.discarded.push(flow);
    }

    /// Returns the queue.
    pub fn queue(&self) -> &Q {
        &self.queue
    }

    /// Returns the queue, mutably. The caller must leave its flows alone.
    #[doc(hidden)]
    pub fn queue_mut(&mut self) -> &mut Q {
        &mut self.queue
    }

    /// Returns the counts of the packets of one flow.
    pub fn flow_stats(&self, flow: FlowId) -> Option<FlowStats> {
        self.queue.flow_stats(flow)
    }

    /// Returns the counts of all packets, including those of removed flows.
    pub fn total_stats(&self) -> TotalStats {
        self.queue.total_stats()
    }

    /// Returns the output.
    pub fn release(&self) -> &R {
        &self.release
    }

    /// Returns the output, mutably.
    #[doc(hidden)]
    pub fn release_mut(&mut self) -> &mut R {
        &mut self.release
    }

    /// Checks the queue's invariants, for tests.
    pub fn invariants(&self) -> Result<(), Violation> {
        self.queue.invariants()
    }
}

impl<P, C, K, R, T> Shaper<Classified<P, C, K>, R, T>
where
    P: Send,
    C: ClassQueue<FromPort<P>>,
    K: Classify<P>,
{
    /// Queues a packet of which the link carries `len` bytes where `to` says
    /// ([`Classified::enqueue_by`]); else as [`admit`](Self::admit).
    ///
    /// # Errors
    ///
    /// The packet is returned with the reason, and the queue has counted it.
    #[inline]
    #[doc(hidden)]
    pub fn enqueue_by(
        &mut self,
        flow: FlowId,
        len: Length,
        payload: P,
        now: Nanos,
        to: impl FnOnce(&mut K, &P) -> ClassFlow,
    ) -> Result<(), Rejected<P>> {
        let discarded = &mut self.discarded;
        let gone = |packet: Packet<P>| discarded.push(packet.owner);
        (self.queue).enqueue_by(flow, len, payload, now, to, gone)
    }
}

impl<Q: Queue, B: Backend, P> Shaper<Q, Straight<B>, P> {
    /// Returns the backend.
    pub fn backend(&self) -> &B {
        self.release.backend()
    }

    /// Returns the backend, mutably.
    #[doc(hidden)]
    pub fn backend_mut(&mut self) -> &mut B {
        self.release.backend_mut()
    }
}

impl<Q: Queue, R, P: fmt::Debug> fmt::Debug for Shaper<Q, R, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shaper")
            .field("pace", &self.pace)
            .field("packets", &self.queue.total_stats())
            .finish_non_exhaustive()
    }
}
