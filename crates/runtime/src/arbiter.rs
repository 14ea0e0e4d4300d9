//! The arbiter: PSPAT's `do_scan` (Fig. 5) as a pure step.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::{fmt, io};

use fairlane_core::scheduler::MAX_ENTITIES;
use fairlane_core::{
    ChangeError, FlowConfig, FlowId, FlowStats, Length, Nanos, Packet, PacketScheduler, Scheduler,
};
use fairlane_io::Backend;
use fairlane_mailbox::bell::{Woken, bell};

use crate::client::{ClientId, count};
use crate::clients::{Clients, Registered, Scan, Visit};
use crate::config::ArbiterConfig;
use crate::delay::Spans;
use crate::driver::{Next, Step, Steps};
use crate::link::Pacer;
use crate::pace::Pace;
use crate::queue::Queue;
use crate::registrar::{Arrival, Registrar, Registrations};
use crate::release::{Release, Straight};
use crate::shaper::Shaper;

/// Counts of one client's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientStats {
    /// Pushed into the mailbox.
    pub pushed: u64,
    /// Handed back by `push`: the mailbox was full, the packet too long, or the link about to end.
    pub refused: u64,
    /// The flow's own counts, in carried bytes.
    pub flow: FlowStats,
}

/// How an arbiter's thread fares: what PSPAT adds to the algorithm's own delays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArbiterStats {
    /// Bounds how long packets may have waited in a mailbox: the time from the visit before the one that found
    /// some, the longest of each step. Delta_A of Eq. 1. Sleep is not included: a push during sleep wakes the
    /// arbiter.
    pub looks: Spans,
    /// Sleeps, and how much too late those that ended by the clock did.
    pub late: Spans,
    /// Sleeps that a client or a registrar ended.
    pub woken: u64,
}

/// One arbiter: a [`Shaper`] with the mailboxes of its clients before it, each a flow. It offers all methods of a
/// shaper.
///
/// Not to be shared: one thread makes its steps.
pub struct Arbiter<Q: Queue, R, P = Pacer> {
    shaper: Shaper<Q, R, P>,
    clients: Clients<Q::Payload>,
    registrations: Arc<Registrations<Q::Payload>>,
    config: ArbiterConfig,
    stats: ArbiterStats,
    /// Clients that left and whose packets are still queued.
    leaving: usize,
    /// Flows that the arbiter's own thread feeds.
    own_flows: usize,
    /// Nothing more is taken from clients.
    is_closed: bool,
    now: Nanos,
}

impl<Q: Queue, R, P> Deref for Arbiter<Q, R, P> {
    type Target = Shaper<Q, R, P>;

    #[inline]
    fn deref(&self) -> &Shaper<Q, R, P> {
        &self.shaper
    }
}

impl<Q: Queue, R, P> DerefMut for Arbiter<Q, R, P> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Shaper<Q, R, P> {
        &mut self.shaper
    }
}

impl<A: Scheduler, B: Backend<Tx: Send>> Arbiter<PacketScheduler<A, B::Tx>, Straight<B>> {
    /// Returns an arbiter without clients that transmits through `backend` itself, and whose link
    /// is idle from `now`. Each client's flow has its share by `algorithm`.
    pub fn new(algorithm: A, config: ArbiterConfig, backend: B, now: Nanos) -> Self {
        Arbiter::releasing(algorithm, config, Straight::to(backend), now)
    }
}

impl<A: Scheduler, P: Send, R: Release<P>> Arbiter<PacketScheduler<A, P>, R> {
    /// Returns an arbiter without clients that releases packets to `release`, and whose link is
    /// idle from `now`. Each client's flow has its share by `algorithm`.
    pub fn releasing(algorithm: A, config: ArbiterConfig, release: R, now: Nanos) -> Self {
        let queue = PacketScheduler::new(algorithm, config.limits);
        Arbiter::over(queue, config, release, now)
    }
}

impl<Q: Queue, R: Release<Q::Payload>> Arbiter<Q, R> {
    /// Returns an arbiter without clients that releases from `queue`, which has limits of its own: those of
    /// `config` do not apply.
    ///
    /// # Panics
    ///
    /// If the queue may discard accepted packets and the release reports drops to clients by position
    /// ([`Release::tells_positions`]): it would report the wrong packets.
    pub fn over(queue: Q, config: ArbiterConfig, release: R, now: Nanos) -> Self {
        Arbiter::paced(queue, config, release, Pacer::new(config.link, now), now)
    }
}

impl<Q: Queue, R: Release<Q::Payload>, P: Pace> Arbiter<Q, R, P> {
    /// As [`over`](Arbiter::over), where `pace` says when the link may send: the link of `config` does not count.
    ///
    /// # Panics
    ///
    /// As `over`.
    pub fn paced(queue: Q, config: ArbiterConfig, release: R, pace: P, now: Nanos) -> Self {
        assert!(
            !(Q::DISCARDS && release.tells_positions()),
            "clients that keep their packets need a queue that discards none"
        );
        let max_clients = config.max_clients.clamp(1, MAX_ENTITIES);
        let config = ArbiterConfig {
            max_clients,
            drain_limit: config.drain_limit.max(1),
            scan_limit: config.scan_limit.max(1),
            ..config
        };
        Arbiter {
            shaper: Shaper::new(queue, pace, config.release_limit, release),
            clients: Clients::new(bell(max_clients as u32)),
            registrations: Arc::new(Registrations::new(max_clients)),
            config,
            stats: ArbiterStats::default(),
            leaving: 0,
            own_flows: 0,
            is_closed: false,
            now,
        }
    }

    /// Returns a handle to register clients with.
    pub fn registrar(&self) -> Registrar<Q::Payload> {
        Registrar::new(
            Arc::clone(&self.registrations),
            self.clients.handle(),
            &ArbiterConfig {
                link: *self.link(),
                ..self.config
            },
        )
    }

    /// Runs one round of decisions at time `now`, which must not go backwards: register new clients, drain the
    /// mailboxes, release as much as the link can carry up to `now`, transmit.
    ///
    /// All packets pushed before the call, up to the limits of a step and to the interval between two visits of a
    /// mailbox, take part in its decisions. O(active clients + packets moved), however many clients are
    /// registered.
    ///
    /// # Errors
    ///
    /// The backend's error when it is unusable. It loses no packet: those not transmitted wait for the next step.
    pub fn step(&mut self, now: Nanos) -> io::Result<Step> {
        self.now = now;
        self.take_in_registered();
        let drained = match self.clients.len() {
            0 => Drained::default(),
            _ if self.is_closed => Drained::default(),
            // In their mailboxes packets wait in order.
            _ if self.shaper.is_held_up() => Drained::default(),
            _ => self.drain(),
        };
        let left = self.shaper.step(now)?;
        if self.shaper.has_discarded() {
            self.tell_discarded();
        }
        // Once the queue is empty, there is space for the packets held back.
        let waits = (self.leaving > 0 || drained.held_back) && self.queue().is_empty();
        Ok(Step {
            drained: drained.packets,
            released: left.released,
            transmitted: drained.told + left.transmitted,
            next: match left.next {
                Next::WhenBackendTakesMore => Next::WhenBackendTakesMore,
                _ if drained.more || waits => Next::Now,
                next => next,
            },
        })
    }

    /// To count clients that have just registered too.
    #[inline]
    pub(crate) fn take_in_registered(&mut self) {
        if self.registrations.are_pending() {
            self.take_in_arrivals();
        }
    }

    #[cold]
    fn take_in_arrivals(&mut self) {
        for Arrival {
            mut client,
            config,
            outlet,
        } in self.registrations.arrivals()
        {
            // There are no more clients than flows, and none has two.
            let added = self.shaper.queue_mut().add_flow(config);
            debug_assert!(added.is_ok(), "there is a flow for each client");
            if let Ok(flow) = added {
                client.flow = flow;
                self.shaper.release_mut().joined(flow, outlet);
                self.clients.insert(client, self.now);
            }
        }
    }

    /// Drains the mailboxes: the first block of `do_scan`.
    #[inline]
    fn drain(&mut self) -> Drained {
        let (now, config) = (self.now, &self.config);
        let scan = Scan {
            now,
            limit: config.scan_limit,
            interval: config.read_interval,
        };
        let mut look = Look {
            shaper: &mut self.shaper,
            registrations: &self.registrations,
            leaving: &mut self.leaving,
            config,
            now,
            longest: None,
            drained: Drained::default(),
        };
        let (packets, stopped) = self.clients.scan(scan, |client| look.visit(client));
        let Look {
            longest, drained, ..
        } = look;
        self.clients.doze_silent(now, config.linger);
        if let Some(longest) = longest {
            self.stats.looks.record(longest);
        }
        Drained {
            packets,
            more: drained.more | stopped,
            ..drained
        }
    }

    /// Reports packets that the queue has discarded to their clients, as any drop.
    #[cold]
    #[inline(never)]
    fn tell_discarded(&mut self) {
        for flow in self.shaper.discarded() {
            if let Some(client) = self.clients.of_flow(flow) {
                count(&client.counters.by_arbiter.dropped, 1);
                client.tell_dropped();
            }
        }
    }

    /// Adds a flow that the arbiter's own thread feeds ([`admit`](Shaper::admit)), in addition to those of the
    /// clients. `config.max_length` excludes the link's overhead. The flow stays as long as the arbiter.
    ///
    /// # Errors
    ///
    /// This flow and those of all allowed clients would exceed the largest number of flows.
    #[doc(hidden)]
    pub fn open_flow(&mut self, config: FlowConfig) -> Result<FlowId, ChangeError> {
        if self.own_flows + self.config.max_clients >= MAX_ENTITIES {
            return Err(ChangeError::TooManyFlows);
        }
        let flow = self.shaper.add_flow(config)?;
        self.own_flows += 1;
        Ok(flow)
    }

    /// Puts the calling thread to sleep until a client pushes, a client registers, or `longest` is over. `None`,
    /// at once, if a client has pushed already.
    ///
    /// All clients together pay for at most one wake-up a sleep.
    pub fn sleep(&mut self, longest: Duration) -> Option<Woken> {
        self.clients.sleep(longest)
    }

    /// Returns a handle to wake its thread with.
    pub(crate) fn bell(&self) -> fairlane_mailbox::bell::Handle {
        self.clients.handle()
    }

    /// Accepts no new clients, and rejects further pushes of the present ones; packets that they have pushed are
    /// sent. A push that has begun may still be accepted. Cannot be undone. O(clients).
    pub(crate) fn refuse_pushes(&mut self) {
        self.registrations.shut();
        self.take_in_registered();
        for client in self.clients.iter() {
            client.counters.by_arbiter.refuse_all();
        }
    }

    /// Returns whether all that clients pushed has been sent, and the backend has taken it.
    /// O(clients) where nothing is queued.
    pub(crate) fn has_sent_all(&mut self) -> bool {
        if !self.is_empty() {
            return false;
        }
        // After this, only a push in progress may be invisible.
        self.clients.settle();
        self.is_empty()
    }

    fn is_empty(&self) -> bool {
        let mut clients = self.clients.iter();
        self.queue().is_empty()
            && self.waiting_for_backend() == 0
            && clients.all(|client| client.inbox.is_empty())
    }

    /// Ends the arbiter: rejects all pushes, drops the packets in mailboxes, and returns their number.
    pub(crate) fn drop_pushed(&mut self) -> u64 {
        self.refuse_pushes();
        self.clients.settle();
        let clients = self.clients.iter_mut();
        clients.map(|client| client.inbox.clear() as u64).sum()
    }

    /// Stops taking packets from clients: those in their mailboxes stay there, and queued ones are sent as
    /// before. Cannot be undone; for shutdown.
    pub fn close(&mut self) {
        self.is_closed = true;
    }

    /// Changes the weight, maximum length or limits of a client's flow.
    ///
    /// The client's next push uses the new maximum, at most [`Link::longest`](crate::Link::longest); longer
    /// packets that are in its mailbox by then are dropped, and reported as any drop.
    pub fn change_client(&mut self, id: ClientId, config: FlowConfig) -> Result<(), ChangeError> {
        self.take_in_registered();
        let client = self.clients.get(id).ok_or(ChangeError::UnknownFlow)?;
        let link = *self.shaper.link();
        let max = link.longest().unwrap_or(Length::MAX).min(config.max_length);
        let queue = self.shaper.queue_mut();
        queue.change_flow(
            client.flow,
            link.carrying(FlowConfig {
                max_length: max,
                ..config
            }),
        )?;
        client.counters.by_arbiter.set_max_length(max);
        Ok(())
    }

    /// Returns counts of each client's packets, in order of client number.
    pub fn client_stats(&self) -> impl Iterator<Item = (ClientId, ClientStats)> {
        self.clients.iter().filter_map(|client| {
            let line = &client.counters.by_client;
            Some((
                client.id,
                ClientStats {
                    pushed: line.pushed.load(Ordering::Relaxed),
                    refused: line.refused.load(Ordering::Relaxed),
                    flow: self.flow_stats(client.flow)?,
                },
            ))
        })
    }

    /// How the arbiter's thread fares.
    pub fn stats(&self) -> ArbiterStats {
        self.stats
    }

    /// Resets [`stats`](Self::stats).
    pub fn reset_stats(&mut self) {
        self.stats = ArbiterStats::default();
    }

    /// Registered clients that are not gone.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Clients whose mailboxes a step looks at; the others ring when they push.
    pub fn active_clients(&self) -> usize {
        self.clients.active()
    }

    /// Returns whether a push is possible: there are clients, or some may be registered.
    pub(crate) fn may_be_pushed(&self) -> bool {
        self.clients.len() > 0 || Arc::strong_count(&self.registrations) > 1
    }
}

impl<Q: Queue, R: Release<Q::Payload>, P: Pace> Steps for Arbiter<Q, R, P> {
    fn step(&mut self, now: Nanos) -> io::Result<Step> {
        Arbiter::step(self, now)
    }

    fn sleep(&mut self, longest: Duration) -> io::Result<Option<Woken>> {
        Ok(Arbiter::sleep(self, longest))
    }

    fn slept(&mut self, late: Nanos, woken: Option<Woken>) {
        self.clients.slept();
        match woken {
            None | Some(Woken::TimedOut) => self.stats.late.record(late),
            Some(Woken::Rung | Woken::Nudged) => self.stats.woken += 1,
        }
    }
}

/// The result of a visit of the mailboxes.
#[derive(Default)]
struct Drained {
    packets: usize,
    /// Packets that went out on the way.
    told: usize,
    /// A limit of the step left something behind.
    more: bool,
    /// A flow had no room.
    held_back: bool,
}

/// A look at the mailboxes, one by one.
struct Look<'a, Q: Queue, R, P> {
    shaper: &'a mut Shaper<Q, R, P>,
    registrations: &'a Registrations<Q::Payload>,
    leaving: &'a mut usize,
    config: &'a ArbiterConfig,
    now: Nanos,
    /// The longest time that one which held packets had not been looked at.
    longest: Option<Nanos>,
    drained: Drained,
}

impl<Q: Queue, R: Release<Q::Payload>, P: Pace> Look<'_, Q, R, P> {
    #[inline]
    fn visit(&mut self, client: &mut Registered<Q::Payload>) -> Visit {
        let mut taken = 0;
        if !client.leaving {
            taken = self.empty(client);
            if taken > 0 {
                self.longest = (self.longest).max(Some(self.now.since(client.looked_at)));
                if let Some(waiting) = &client.waiting {
                    waiting.0.freed();
                }
            } else if client.has_left() && client.inbox.is_empty() {
                // In this order: pushes before it left are visible.
                client.leaving = true;
                *self.leaving += 1;
            }
            client.looked_at = self.now;
        }
        if client.leaving && self.let_go(client) {
            return Visit::Gone;
        }
        match taken {
            0 => Visit::Silent,
            _ => Visit::Heard(taken),
        }
    }

    /// Moves the packets in the mailbox into the queue, as far as limits allow.
    #[inline]
    fn empty(&mut self, client: &mut Registered<Q::Payload>) -> usize {
        let (shaper, flow) = (&mut *self.shaper, client.flow);
        self.drained.told += shaper.release_mut().visit(flow);
        let mut limit = self.config.drain_limit;
        if self.config.hold_back {
            limit = limit.min(shaper.queue().room(flow) as usize);
            // With nothing queued there will never be more room: it is dropped.
            if limit == 0 && shaper.queue().is_empty() {
                limit = 1;
            }
            self.drained.held_back |= limit == 0;
        }
        let (counters, now) = (&client.counters, self.now);
        let mut position = client.taken;
        let mut dropped = false;
        let open = shaper.is_open();
        let taken = client.inbox.drain(limit, |carried, packet| {
            if open {
                shaper.pass(Packet {
                    owner: flow,
                    len: carried,
                    payload: packet,
                });
            } else if shaper.enqueue(flow, carried, packet, now).is_err() {
                dropped = true;
                count(&counters.by_arbiter.dropped, 1);
                shaper.release_mut().dropped(flow, position);
            }
            position += 1;
        });
        client.taken = position;
        if dropped {
            client.tell_dropped();
        }
        self.drained.more |= taken == limit && limit > 0;
        taken
    }

    /// Removes the flow of a client that left, once it holds no packets; whether it does not.
    fn let_go(&mut self, client: &Registered<Q::Payload>) -> bool {
        let stats = self.shaper.flow_stats(client.flow);
        if stats.is_some_and(|stats| stats.queued.packets > 0) {
            return false;
        }
        let removed = self.shaper.queue_mut().remove_flow(client.flow);
        debug_assert!(removed.is_ok(), "a client's flow is its own");
        self.shaper.release_mut().left(client.flow);
        self.registrations.give_back(client.id);
        *self.leaving -= 1;
        true
    }
}

impl<Q: Queue, R, P> Drop for Arbiter<Q, R, P> {
    fn drop(&mut self) {
        self.registrations.close();
    }
}

impl<Q: Queue, R, P: fmt::Debug> fmt::Debug for Arbiter<Q, R, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arbiter")
            .field("shaper", &self.shaper)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use fairlane_core::sched::Qfq;
    use fairlane_core::{Rate, Weight};
    use fairlane_io::MemoryBackend;

    use super::*;
    use crate::{Link, Refusal, RegisterError};

    #[test]
    fn who_comes_late_is_told_whether_the_link_ends_or_is_gone() {
        let (near, _far): (MemoryBackend<Vec<u8>>, _) = fairlane_io::memory::pair(1);
        let config = ArbiterConfig::new(Link::new(Rate::MAX));
        let mut arbiter = Arbiter::new(Qfq::new(), config, near, Nanos::ZERO);
        let registrar = arbiter.registrar();
        let flow = FlowConfig::new(Weight::ONE, Length::MAX);
        let mut client = registrar.register(flow).unwrap();
        arbiter.refuse_pushes();
        let refused = client.push(Length::MAX, Vec::new()).unwrap_err();
        assert_eq!(refused.reason, Refusal::Ending);
        let late = registrar.register(flow).unwrap_err();
        assert_eq!(late, RegisterError::Ending);
        drop(arbiter);
        let late = registrar.register(flow).unwrap_err();
        assert_eq!(late, RegisterError::ArbiterGone);
    }

    #[test]
    fn a_client_that_left_leaves_its_flow_to_the_next() {
        let (near, _far): (MemoryBackend<Vec<u8>>, _) = fairlane_io::memory::pair(1);
        let config = ArbiterConfig::new(Link::new(Rate::MAX));
        let mut arbiter = Arbiter::new(Qfq::new(), config, near, Nanos::ZERO);
        let registrar = arbiter.registrar();
        for round in 0..3 {
            let client = registrar
                .register(FlowConfig::new(Weight::ONE, Length::MAX))
                .unwrap();
            arbiter.step(Nanos::from_millis(2 * round)).unwrap();
            let flows: Vec<_> = arbiter.clients.iter().map(|c| c.flow.number()).collect();
            assert_eq!(flows, [0], "round {round}");
            drop(client);
            arbiter.step(Nanos::from_millis(2 * round + 1)).unwrap();
        }
    }
}
