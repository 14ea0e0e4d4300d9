//! The arbiter: PSPAT's `do_scan` (Fig. 5) as a pure step.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fairlane_core::scheduler::{MAX_ENTITIES, Violation};
use fairlane_core::{
    ChangeError, Dequeue, FlowConfig, FlowId, FlowStats, Length, Nanos, Packet, PacketScheduler,
    Rate, Rejected, Rejection, Scheduler, TotalStats,
};
use fairlane_io::Backend;
use fairlane_mailbox::bell::{Woken, bell};

use crate::client::{ClientId, count};
use crate::clients::{Clients, Scan, Visit};
use crate::config::ArbiterConfig;
use crate::delay::Spans;
use crate::link::Pacer;
use crate::queue::Queue;
use crate::registrar::{Arrival, Registrar, Registrations};
use crate::release::{Release, Straight};

/// What one step did, and when the next is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Packets taken from mailboxes, those dropped included.
    pub drained: usize,
    /// Packets taken from the flows' queues in the algorithm's order.
    pub released: usize,
    /// Packets that the backend accepted.
    pub transmitted: usize,
    /// When there is more to do, as far as can be known now.
    pub next: Next,
}

/// When the arbiter has more to do; a client may push earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// At once: a limit of this step was reached.
    Now,
    /// When the link will be idle, or when the algorithm lets a packet leave.
    At(Nanos),
    /// Soon: the backend is full and holds up the link.
    WhenBackendTakesMore,
    /// When a client pushes.
    WhenPushed,
}

/// What became of one client's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientStats {
    /// Pushed into the mailbox.
    pub pushed: u64,
    /// Handed back by `push`: the mailbox was full, or the packet too long.
    pub refused: u64,
    /// The flow's own counts, in carried bytes.
    pub flow: FlowStats,
}

/// How an arbiter's thread fares: what PSPAT adds to the algorithm's own delays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArbiterStats {
    /// How long packets may have waited in a mailbox: from the look before the one that
    /// found some, the longest of each step. Delta_A of Eq. 1. Time asleep is not in it:
    /// who pushes then, wakes the arbiter.
    pub looks: Spans,
    /// Sleeps, and how much too late those that ended by the clock did.
    pub late: Spans,
    /// Sleeps that a client or a registrar ended.
    pub woken: u64,
}

/// What a look at the mailboxes found.
struct Drained {
    packets: usize,
    /// Packets that went out on the way.
    told: usize,
    /// A limit of the step left something behind.
    more: bool,
    /// A flow had no room.
    held_back: bool,
}

/// One arbiter: a queue with the flows of its clients, a paced link, a way out.
///
/// Not to be shared: one thread makes its steps.
pub struct Arbiter<Q: Queue, R> {
    queue: Q,
    clients: Clients<Q::Payload>,
    pacer: Pacer,
    release: R,
    registrations: Arc<Registrations<Q::Payload>>,
    config: ArbiterConfig,
    stats: ArbiterStats,
    /// Clients that left and whose packets are still queued.
    leaving: usize,
    /// Flows that the arbiter's own thread feeds.
    own_flows: usize,
    /// Flows of which the queue has discarded a packet, once for each.
    discarded: Vec<FlowId>,
    now: Nanos,
}

impl<A: Scheduler, B: Backend<Tx: Send>> Arbiter<PacketScheduler<A, B::Tx>, Straight<B>> {
    /// An arbiter without clients that transmits through `backend` itself, and whose link
    /// is idle from `now`. Each client's flow has its share by `algorithm`.
    pub fn new(algorithm: A, config: ArbiterConfig, backend: B, now: Nanos) -> Self {
        Arbiter::releasing(algorithm, config, Straight::to(backend), now)
    }
}

impl<Q: Queue, B: Backend> Arbiter<Q, Straight<B>> {
    /// The backend.
    pub fn backend(&self) -> &B {
        self.release.backend()
    }

    /// The backend, to change.
    pub fn backend_mut(&mut self) -> &mut B {
        self.release.backend_mut()
    }
}

impl<A: Scheduler, P: Send, R: Release<P>> Arbiter<PacketScheduler<A, P>, R> {
    /// An arbiter without clients that releases packets to `release`, and whose link is
    /// idle from `now`. Each client's flow has its share by `algorithm`.
    pub fn releasing(algorithm: A, config: ArbiterConfig, release: R, now: Nanos) -> Self {
        let queue = PacketScheduler::new(algorithm, config.limits);
        Arbiter::over(queue, config, release, now)
    }
}

impl<Q: Queue, R: Release<Q::Payload>> Arbiter<Q, R> {
    /// An arbiter without clients that releases from `queue`, which has limits of its own:
    /// those of `config` do not count.
    ///
    /// # Panics
    ///
    /// If the queue may discard what it accepted, and the way out tells clients which of their
    /// packets were dropped ([`Release::tells_positions`]): it would tell the wrong ones.
    pub fn over(queue: Q, config: ArbiterConfig, release: R, now: Nanos) -> Self {
        assert!(
            !(Q::DISCARDS && release.tells_positions()),
            "clients that keep their packets need a queue that discards none"
        );
        let max_clients = config.max_clients.clamp(1, MAX_ENTITIES);
        let config = ArbiterConfig {
            max_clients,
            drain_limit: config.drain_limit.max(1),
            scan_limit: config.scan_limit.max(1),
            release_limit: config.release_limit.max(1),
            ..config
        };
        Arbiter {
            queue,
            clients: Clients::new(bell(max_clients as u32)),
            pacer: Pacer::new(config.link, now),
            release,
            registrations: Arc::new(Registrations::new(max_clients)),
            config,
            stats: ArbiterStats::default(),
            leaving: 0,
            own_flows: 0,
            discarded: Vec::new(),
            now,
        }
    }

    /// A handle to register clients with.
    pub fn registrar(&self) -> Registrar<Q::Payload> {
        Registrar::new(
            Arc::clone(&self.registrations),
            self.clients.handle(),
            &self.config,
        )
    }

    /// One round of decisions at time `now`, which must not go backwards: take in
    /// new clients, drain the mailboxes, release what the link can carry up to
    /// `now`, transmit.
    ///
    /// All packets pushed before the call, up to the limits of a step and to the interval
    /// between two looks at a mailbox, take part in its decisions. O(active clients +
    /// packets moved), however many clients are registered.
    ///
    /// # Errors
    ///
    /// What the backend says when it is unusable. No packet is lost by it: those
    /// not transmitted wait for the next step.
    pub fn step(&mut self, now: Nanos) -> io::Result<Step> {
        self.now = now;
        self.take_in_registered();
        let Drained {
            packets: drained,
            told,
            more,
            held_back,
        } = self.drain(now);
        let mut transmitted = told + self.release.flush(true)?;
        self.pacer.forget_before(now);
        // While the backend holds packets back, no further ones are committed to
        // an order.
        let (released, left) = match self.release.waiting() {
            0 => self.release_due(now),
            _ => (0, Next::Now),
        };
        transmitted += self.release.flush(left == Next::Now)?;
        let next = if self.release.waiting() > 0 {
            Next::WhenBackendTakesMore
        } else if more || ((self.leaving > 0 || held_back) && self.queue.is_empty()) {
            // Where all has been released since, there is room for what was held back.
            Next::Now
        } else {
            left
        };
        Ok(Step {
            drained,
            released,
            transmitted,
            next,
        })
    }

    #[inline]
    fn take_in_registered(&mut self) {
        for Arrival {
            mut client,
            config,
            outlet,
        } in self.registrations.arrivals()
        {
            // There are no more clients than flows, and none has two.
            let added = self.queue.add_flow(config);
            debug_assert!(added.is_ok(), "there is a flow for each client");
            if let Ok(flow) = added {
                client.flow = flow;
                self.release.joined(flow, outlet);
                self.clients.insert(client, self.now);
            }
        }
    }

    /// The first block of `do_scan`.
    #[inline]
    fn drain(&mut self, now: Nanos) -> Drained {
        let Arbiter {
            queue,
            clients,
            release,
            registrations,
            config,
            leaving,
            discarded,
            ..
        } = self;
        let scan = Scan {
            now,
            limit: config.scan_limit,
            interval: config.read_interval,
        };
        let (mut more, mut held_back) = (false, false);
        let mut told = 0;
        let mut longest = None;
        let (drained, stopped) = clients.scan(scan, |client| {
            let mut taken = 0;
            if !client.leaving {
                told += release.visit(client.flow);
                let (flow, counters, before) = (client.flow, &client.counters, client.taken);
                let mut limit = config.drain_limit;
                if config.hold_back {
                    limit = limit.min(queue.room(flow) as usize);
                    // With nothing queued there will never be more room: it is dropped.
                    if limit == 0 && queue.is_empty() {
                        limit = 1;
                    }
                    held_back |= limit == 0;
                }
                let mut position = before;
                let mut dropped = false;
                taken = client.inbox.drain(limit, |carried, packet| {
                    let gone = |packet: Packet<Q::Payload>| discarded.push(packet.flow);
                    if queue.enqueue(flow, carried, packet, now, gone).is_err() {
                        dropped = true;
                        count(&counters.by_arbiter.dropped, 1);
                        release.dropped(flow, position);
                    }
                    position += 1;
                });
                client.taken = position;
                if dropped {
                    client.tell_dropped();
                }
                more |= taken == limit && limit > 0;
                if taken > 0 {
                    longest = longest.max(Some(now.since(client.looked_at)));
                    if let Some(waiting) = &client.waiting {
                        waiting.0.freed();
                    }
                } else if client.has_left() && client.inbox.is_empty() {
                    // In this order: what was pushed before it left is in sight.
                    client.leaving = true;
                    *leaving += 1;
                }
                client.looked_at = now;
            }
            if client.leaving {
                let stats = queue.flow_stats(client.flow);
                if stats.is_none_or(|stats| stats.queued.packets == 0) {
                    let removed = queue.remove_flow(client.flow);
                    debug_assert!(removed.is_ok(), "a client's flow is its own");
                    release.left(client.flow);
                    registrations.give_back(client.id);
                    *leaving -= 1;
                    return Visit::Gone;
                }
            }
            match taken {
                0 => Visit::Silent,
                _ => Visit::Heard(taken),
            }
        });
        clients.tidy(now, config.linger);
        if let Some(longest) = longest {
            self.stats.looks.record(longest);
        }
        if Q::DISCARDS {
            self.tell_discarded();
        }
        Drained {
            packets: drained,
            told,
            more: more | stopped,
            held_back,
        }
    }

    /// The second block: what was released, and when there is more to release.
    #[inline]
    fn release_due(&mut self, now: Nanos) -> (usize, Next) {
        let mut released = 0;
        let mut window = self.pacer.open(now);
        let stop = loop {
            if released >= self.config.release_limit || !window.may_release() {
                break None;
            }
            let discarded = &mut self.discarded;
            match self
                .queue
                .dequeue(now, |packet| discarded.push(packet.flow))
            {
                Dequeue::Packet(packet) => {
                    window.charge(packet.len);
                    self.release.release(packet);
                    released += 1;
                }
                Dequeue::NotBefore(time) => break Some(Next::At(time)),
                Dequeue::Empty => break Some(Next::WhenPushed),
            }
        };
        self.pacer.close(window);
        if Q::DISCARDS {
            self.tell_discarded();
            self.queue.tidy(now);
        }
        let next = match stop {
            Some(next) => {
                self.pacer.idled(now);
                next
            }
            None if self.pacer.may_release(now) => Next::Now,
            None if self.queue.is_empty() => Next::WhenPushed,
            None => Next::At(self.pacer.idle_at()),
        };
        (released, next)
    }

    /// Clients are told of what the queue has discarded, as of any drop.
    fn tell_discarded(&mut self) {
        for flow in self.discarded.drain(..) {
            if let Some(client) = self.clients.of_flow(flow) {
                count(&client.counters.by_arbiter.dropped, 1);
                client.tell_dropped();
            }
        }
    }

    /// Adds a flow that the arbiter's own thread feeds ([`admit`](Self::admit)), beside those of
    /// the clients. `config.max_length` is without the link's overhead. The flow stays as long
    /// as the arbiter.
    ///
    /// # Errors
    ///
    /// With the flows of as many clients as may come there would be more than there can be.
    pub fn open_flow(&mut self, config: FlowConfig) -> Result<FlowId, ChangeError> {
        if self.own_flows + self.config.max_clients >= MAX_ENTITIES {
            return Err(ChangeError::TooManyFlows);
        }
        let link = self.config.link;
        let flow = self.queue.add_flow(FlowConfig {
            max_length: link.carried(config.max_length).unwrap_or(Length::MAX),
            ..config
        })?;
        self.release.joined(flow, None);
        self.own_flows += 1;
        Ok(flow)
    }

    /// Queues a packet of `len` bytes, without the link's overhead, that the arbiter's own thread
    /// has: one it received, say. It takes part in the next step. O(1), or what the queue's
    /// `enqueue` costs.
    ///
    /// # Errors
    ///
    /// The packet comes back with the reason, and the queue has counted it; but for a packet that
    /// with the overhead is longer than 65,535 bytes, which the queue does not get to see.
    #[inline]
    pub fn admit(
        &mut self,
        flow: FlowId,
        len: Length,
        payload: Q::Payload,
        now: Nanos,
    ) -> Result<(), Rejected<Q::Payload>> {
        let link = &self.config.link;
        match link.carried(len) {
            Some(carried) => {
                let discarded = &mut self.discarded;
                let gone = |packet: Packet<Q::Payload>| discarded.push(packet.flow);
                self.queue.enqueue(flow, carried, payload, now, gone)
            }
            None => Err(Rejected {
                payload,
                reason: Rejection::TooLong {
                    max: link.longest().unwrap_or(Length::MAX),
                },
            }),
        }
    }

    /// Whether the link can carry a packet of `len` bytes and its overhead.
    pub(crate) fn carries(&self, len: Length) -> bool {
        self.config.link.carried(len).is_some()
    }

    /// What became of the packets of one flow, a client's or the arbiter's own.
    pub fn flow_stats(&self, flow: FlowId) -> Option<FlowStats> {
        self.queue.flow_stats(flow)
    }

    /// Gives the link another rate. Its overhead stays what clients know.
    pub fn change_rate(&mut self, rate: Rate) {
        self.pacer.change_rate(rate);
        self.config.link.rate = rate;
    }

    /// What the arbiter releases from.
    pub fn queue(&self) -> &Q {
        &self.queue
    }

    /// What the arbiter releases from, to change. Its flows are the arbiter's own business.
    pub fn queue_mut(&mut self) -> &mut Q {
        &mut self.queue
    }

    /// Lets the calling thread sleep until a client pushes, somebody registers, or
    /// `longest` is over. `None`, at once, if somebody has pushed already.
    ///
    /// No client pays for more than one wake-up a sleep, all together.
    pub fn sleep(&mut self, longest: Duration) -> Option<Woken> {
        self.clients.sleep(longest)
    }

    /// What the thread tells after a sleep: how much too late it ended, and what ended it,
    /// if anything but the clock could.
    pub(crate) fn slept(&mut self, late: Nanos, woken: Option<Woken>) {
        self.clients.slept();
        match woken {
            None | Some(Woken::TimedOut) => self.stats.late.record(late),
            Some(Woken::Rung | Woken::Nudged) => self.stats.woken += 1,
        }
    }

    /// Gives a client's flow another weight, maximum length or limits.
    ///
    /// The client's next push goes by the new maximum, at most
    /// [`Link::longest`](crate::Link::longest); what is in its mailbox by then and longer is
    /// dropped, and told as any drop.
    pub fn change_client(&mut self, id: ClientId, config: FlowConfig) -> Result<(), ChangeError> {
        self.take_in_registered();
        let client = self.clients.get(id).ok_or(ChangeError::UnknownFlow)?;
        let link = self.config.link;
        let max = link.longest().unwrap_or(Length::MAX).min(config.max_length);
        self.queue.change_flow(
            client.flow,
            FlowConfig {
                max_length: link.carried(max).unwrap_or(Length::MAX),
                ..config
            },
        )?;
        client.counters.by_arbiter.set_max_length(max);
        Ok(())
    }

    /// What became of each client's packets, in the order of their numbers.
    pub fn client_stats(&self) -> impl Iterator<Item = (ClientId, ClientStats)> {
        self.clients.iter().filter_map(|client| {
            let line = &client.counters.by_client;
            Some((
                client.id,
                ClientStats {
                    pushed: line.pushed.load(Ordering::Relaxed),
                    refused: line.refused.load(Ordering::Relaxed),
                    flow: self.queue.flow_stats(client.flow)?,
                },
            ))
        })
    }

    /// What became of all packets, those of clients that left included.
    pub fn total_stats(&self) -> TotalStats {
        self.queue.total_stats()
    }

    /// How the arbiter's thread fares.
    pub fn stats(&self) -> ArbiterStats {
        self.stats
    }

    /// Starts [`stats`](Self::stats) anew.
    pub fn reset_stats(&mut self) {
        self.stats = ArbiterStats::default();
    }

    /// Clients taken in and not gone.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Clients whose mailboxes a step looks at; the others ring when they push.
    pub fn active_clients(&self) -> usize {
        self.clients.active()
    }

    /// The way out.
    pub fn release(&self) -> &R {
        &self.release
    }

    /// The way out, to change.
    pub fn release_mut(&mut self) -> &mut R {
        &mut self.release
    }

    /// Whether somebody may push: clients are there, or may be registered.
    pub(crate) fn may_be_pushed(&self) -> bool {
        self.clients.len() > 0 || Arc::strong_count(&self.registrations) > 1
    }

    /// When the link will have carried all that was released. Later than now while a
    /// packet is on its way.
    pub fn idle_at(&self) -> Nanos {
        self.pacer.idle_at()
    }

    /// Packets released that the backend has not taken yet.
    pub fn waiting_for_backend(&self) -> usize {
        self.release.waiting()
    }

    /// Checks the queue's invariants, for tests.
    pub fn invariants(&self) -> Result<(), Violation> {
        self.queue.invariants()
    }
}

impl<Q: Queue, R> Drop for Arbiter<Q, R> {
    fn drop(&mut self) {
        self.registrations.close();
    }
}

#[cfg(test)]
mod tests {
    use fairlane_core::sched::Qfq;
    use fairlane_core::{Rate, Weight};
    use fairlane_io::MemoryBackend;

    use super::*;
    use crate::Link;

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
