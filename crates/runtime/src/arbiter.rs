//! The arbiter: PSPAT's `do_scan` (Fig. 5) as a pure step.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fairlane_core::scheduler::{MAX_ENTITIES, Violation};
use fairlane_core::{
    ChangeError, Dequeue, FlowConfig, FlowStats, Length, Nanos, PacketScheduler, Scheduler,
    SchedulerLimits, TotalStats,
};
use fairlane_io::Backend;
use fairlane_mailbox::{CapacityError, mailbox};

use crate::client::{Client, ClientId, Counters, Request, count};
use crate::clients::{Clients, Registered, Visit};
use crate::link::{Link, Pacer};

/// How an arbiter is set up.
#[derive(Clone, Copy, Debug)]
pub struct ArbiterConfig {
    /// The link to pace.
    pub link: Link,
    /// How much may wait in all flows, and in each.
    pub limits: SchedulerLimits,
    /// Most clients at a time, 1 to 2^24.
    pub max_clients: usize,
    /// Slots of a client's mailbox: a power of two.
    pub mailbox_slots: usize,
    /// Most packets taken from one mailbox in one step, so that a step is short and
    /// no client holds up the others.
    pub drain_limit: usize,
    /// Most packets released in one step.
    pub release_limit: usize,
}

impl ArbiterConfig {
    /// A thousand clients of 256 slots, and 64 packets a mailbox and a step.
    pub fn new(link: Link) -> Self {
        ArbiterConfig {
            link,
            limits: SchedulerLimits::default(),
            max_clients: 1024,
            mailbox_slots: 256,
            drain_limit: 64,
            release_limit: 64,
        }
    }
}

/// Why a client was not registered; nothing was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// As many as configured are registered.
    #[error("there are {0} clients already, the most that were configured")]
    TooManyClients(usize),
    /// The mailbox cannot have that size.
    #[error(transparent)]
    Mailbox(#[from] CapacityError),
    /// With the link's overhead, packets of this length exceed 65,535 bytes.
    #[error("packets of {max} and {overhead} bytes of overhead are longer than 65535 bytes")]
    TooLong {
        /// The maximum length asked for.
        max: Length,
        /// The link's overhead.
        overhead: u32,
    },
    /// The arbiter was dropped.
    #[error("the arbiter is gone")]
    ArbiterGone,
}

/// A client that waits to be taken in.
struct Arrival<P> {
    client: Registered<P>,
    config: FlowConfig,
}

/// What registrars and the arbiter share. Only registering and leaving lock it.
struct Door<P> {
    /// Whether `arrivals` is worth locking for.
    knocked: AtomicBool,
    inner: Mutex<Inner<P>>,
}

struct Inner<P> {
    arrivals: Vec<Arrival<P>>,
    free: BTreeSet<u32>,
    open: bool,
}

impl<P> Door<P> {
    fn lock(&self) -> MutexGuard<'_, Inner<P>> {
        // A panic of another holder leaves a list that is whole.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Registers clients, from any thread, while the arbiter runs.
pub struct Registrar<P> {
    door: Arc<Door<P>>,
    link: Link,
    max_clients: usize,
    mailbox_slots: usize,
}

impl<P> Clone for Registrar<P> {
    fn clone(&self) -> Self {
        Registrar {
            door: Arc::clone(&self.door),
            ..*self
        }
    }
}

impl<P> std::fmt::Debug for Registrar<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registrar").finish_non_exhaustive()
    }
}

impl<P: Send> Registrar<P> {
    /// A new client with a flow of its own. It may push at once; the arbiter takes
    /// it in at its next step. `config.max_length` is the client's, without the
    /// link's overhead. Locks shortly, allocates the mailbox.
    pub fn register(&self, config: FlowConfig) -> Result<Client<P>, RegisterError> {
        let overhead = self.link.overhead;
        let max = config.max_length;
        let carried = self
            .link
            .carried(max)
            .ok_or(RegisterError::TooLong { max, overhead })?;
        let (producer, consumer) = mailbox::<Request<P>>(self.mailbox_slots)?;
        let counters = Arc::new(Counters::new(max));
        let mut inner = self.door.lock();
        if !inner.open {
            return Err(RegisterError::ArbiterGone);
        }
        let number = inner
            .free
            .pop_first()
            .ok_or(RegisterError::TooManyClients(self.max_clients))?;
        let id = ClientId(number);
        inner.arrivals.push(Arrival {
            client: Registered {
                id,
                flow: fairlane_core::FlowId::new(u32::MAX),
                mailbox: consumer,
                counters: Arc::clone(&counters),
                leaving: false,
                gone: false,
            },
            config: FlowConfig {
                max_length: carried,
                ..config
            },
        });
        self.door.knocked.store(true, Ordering::Release);
        Ok(Client {
            id,
            mailbox: producer,
            counters,
            overhead,
            drops_seen: 0,
        })
    }
}

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

/// One arbiter: an algorithm, the flows of its clients, a paced link, a backend.
///
/// Not to be shared: one thread makes its steps.
pub struct Arbiter<A: Scheduler, P, B> {
    scheduler: PacketScheduler<A, P>,
    clients: Clients<P>,
    pacer: Pacer,
    backend: B,
    /// Released, not yet taken by the backend.
    batch: VecDeque<P>,
    door: Arc<Door<P>>,
    config: ArbiterConfig,
}

impl<A: Scheduler, P: Send, B: Backend<Tx = P>> Arbiter<A, P, B> {
    /// An arbiter without clients, whose link is idle from `now`.
    pub fn new(algorithm: A, config: ArbiterConfig, backend: B, now: Nanos) -> Self {
        let max_clients = config.max_clients.clamp(1, MAX_ENTITIES);
        let config = ArbiterConfig {
            max_clients,
            drain_limit: config.drain_limit.max(1),
            release_limit: config.release_limit.max(1),
            ..config
        };
        Arbiter {
            scheduler: PacketScheduler::new(algorithm, config.limits),
            clients: Clients::new(),
            pacer: Pacer::new(config.link, now),
            backend,
            batch: VecDeque::with_capacity(config.release_limit),
            door: Arc::new(Door {
                knocked: AtomicBool::new(false),
                inner: Mutex::new(Inner {
                    arrivals: Vec::new(),
                    free: (0..max_clients as u32).collect(),
                    open: true,
                }),
            }),
            config,
        }
    }

    /// A handle to register clients with.
    pub fn registrar(&self) -> Registrar<P> {
        Registrar {
            door: Arc::clone(&self.door),
            link: self.config.link,
            max_clients: self.config.max_clients,
            mailbox_slots: self.config.mailbox_slots,
        }
    }

    /// One round of decisions at time `now`, which must not go backwards: take in
    /// new clients, drain the mailboxes, release what the link can carry up to
    /// `now`, transmit.
    ///
    /// All packets pushed before the call, up to the limits of a step, take part in
    /// its decisions. O(clients + packets moved).
    ///
    /// # Errors
    ///
    /// What the backend says when it is unusable. No packet is lost by it: those
    /// not transmitted wait for the next step.
    pub fn step(&mut self, now: Nanos) -> io::Result<Step> {
        self.open_door();
        let (drained, more) = self.drain();
        let mut transmitted = self.transmit()?;
        self.pacer.forget_before(now);
        // While the backend holds packets back, no further ones are committed to
        // an order.
        let (released, left) = match self.batch.is_empty() {
            true => self.release(now),
            false => (0, Next::Now),
        };
        transmitted += self.transmit()?;
        let next = if !self.batch.is_empty() {
            Next::WhenBackendTakesMore
        } else if more {
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

    fn open_door(&mut self) {
        if !self.door.knocked.swap(false, Ordering::Acquire) {
            return;
        }
        let arrivals = std::mem::take(&mut self.door.lock().arrivals);
        for Arrival { mut client, config } in arrivals {
            // There are no more clients than flows, and none has two.
            if let Ok(flow) = self.scheduler.add_flow(config) {
                client.flow = flow;
                self.clients.insert(client);
            }
        }
    }

    /// The first block of `do_scan`: what was drained, and whether a limit left
    /// something behind.
    fn drain(&mut self) -> (usize, bool) {
        let (mut drained, mut more) = (0, false);
        let Arbiter {
            scheduler,
            clients,
            door,
            config,
            ..
        } = self;
        clients.scan(|client| {
            let mut taken = 0;
            if !client.leaving {
                let gone = client.mailbox.is_abandoned();
                while taken < config.drain_limit {
                    let Some(Request { carried, packet }) = client.mailbox.pop() else {
                        client.leaving = gone;
                        break;
                    };
                    taken += 1;
                    if scheduler.enqueue(client.flow, carried, packet).is_err() {
                        count(&client.counters.by_arbiter.dropped, 1);
                    }
                }
                drained += taken;
                more |= taken == config.drain_limit;
            }
            if client.leaving {
                let stats = scheduler.flow_stats(client.flow);
                if stats.is_none_or(|stats| stats.queued.packets == 0) {
                    let removed = scheduler.remove_flow(client.flow, |_| {});
                    debug_assert!(removed.is_ok(), "a client's flow is its own");
                    door.lock().free.insert(client.id.0);
                    return Visit::Gone;
                }
            }
            match taken {
                0 => Visit::Silent,
                _ => Visit::Heard,
            }
        });
        (drained, more)
    }

    /// The second block: what was released, and when there is more to release.
    fn release(&mut self, now: Nanos) -> (usize, Next) {
        let mut released = 0;
        while released < self.config.release_limit && self.pacer.may_release(now) {
            match self.scheduler.dequeue(now) {
                Dequeue::Packet(packet) => {
                    self.pacer.charge(packet.len);
                    self.batch.push_back(packet.payload);
                    released += 1;
                }
                Dequeue::NotBefore(time) => {
                    self.pacer.idled(now);
                    return (released, Next::At(time));
                }
                Dequeue::Empty => {
                    self.pacer.idled(now);
                    return (released, Next::WhenPushed);
                }
            }
        }
        let next = if self.pacer.may_release(now) {
            Next::Now
        } else if self.scheduler.is_empty() {
            Next::WhenPushed
        } else {
            Next::At(self.pacer.idle_at())
        };
        (released, next)
    }

    fn transmit(&mut self) -> io::Result<usize> {
        if self.batch.is_empty() {
            return Ok(0);
        }
        self.backend.transmit(&mut self.batch)
    }

    /// Gives a client's flow another weight, maximum length or limits.
    ///
    /// The client's next push goes by the new maximum, at most [`Link::longest`];
    /// what is in its mailbox by then and longer is dropped, and told as any drop.
    pub fn change_client(&mut self, id: ClientId, config: FlowConfig) -> Result<(), ChangeError> {
        self.open_door();
        let client = self
            .clients
            .iter()
            .find(|client| client.id == id)
            .ok_or(ChangeError::UnknownFlow)?;
        let link = self.config.link;
        let max = link.longest().unwrap_or(Length::MAX).min(config.max_length);
        self.scheduler.change_flow(
            client.flow,
            FlowConfig {
                max_length: link.carried(max).unwrap_or(Length::MAX),
                ..config
            },
        )?;
        client.counters.by_arbiter.set_max_length(max);
        Ok(())
    }

    /// What became of each client's packets, in the order of registration.
    pub fn client_stats(&self) -> impl Iterator<Item = (ClientId, ClientStats)> {
        self.clients.iter().filter_map(|client| {
            let line = &client.counters.by_client;
            Some((
                client.id,
                ClientStats {
                    pushed: line.pushed.load(Ordering::Relaxed),
                    refused: line.refused.load(Ordering::Relaxed),
                    flow: self.scheduler.flow_stats(client.flow)?,
                },
            ))
        })
    }

    /// What became of all packets, those of clients that left included.
    pub fn total_stats(&self) -> TotalStats {
        self.scheduler.total_stats()
    }

    /// Clients taken in and not gone.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// The backend.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// The backend, to change.
    pub fn backend_mut(&mut self) -> &mut B {
        &mut self.backend
    }

    /// When the link will have carried all that was released. Later than now while a
    /// packet is on its way.
    pub fn idle_at(&self) -> Nanos {
        self.pacer.idle_at()
    }

    /// Packets released that the backend has not taken yet.
    pub fn waiting_for_backend(&self) -> usize {
        self.batch.len()
    }

    /// Checks the scheduler's invariants, for tests.
    pub fn invariants(&self) -> Result<(), Violation> {
        self.scheduler.invariants()
    }
}

impl<A: Scheduler, P, B> Drop for Arbiter<A, P, B> {
    fn drop(&mut self) {
        let mut inner = self.door.lock();
        inner.open = false;
        inner.arrivals.clear();
    }
}

#[cfg(test)]
mod tests {
    use fairlane_core::sched::Qfq;
    use fairlane_core::{Rate, Weight};
    use fairlane_io::MemoryBackend;

    use super::*;

    #[test]
    fn a_client_that_left_leaves_its_flow_to_the_next() {
        let (near, _far): (MemoryBackend<Vec<u8>>, _) = fairlane_io::memory::pair(1);
        let config = ArbiterConfig::new(Link::new(Rate::MAX));
        let mut arbiter = Arbiter::new(Qfq::new(), config, near, Nanos::ZERO);
        let registrar = arbiter.registrar();
        for round in 0..3 {
            let client = registrar.register(FlowConfig::new(Weight::ONE)).unwrap();
            arbiter.step(Nanos::ZERO).unwrap();
            let flows: Vec<_> = arbiter.clients.iter().map(|c| c.flow.number()).collect();
            assert_eq!(flows, [0], "round {round}");
            drop(client);
            arbiter.step(Nanos::ZERO).unwrap();
        }
    }
}
