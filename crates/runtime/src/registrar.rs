//! Registration and removal of clients, between registrars and the arbiter.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fairlane_core::{FlowConfig, Length};
use fairlane_mailbox::bell::{Handle, Ringer};
use fairlane_mailbox::{CapacityError, Room, mailbox};

use crate::async_client::{AsyncClient, Waiting};
use crate::client::{Client, ClientId, Counters, Request};
use crate::clients::Registered;
use crate::config::ArbiterConfig;
use crate::inbox::{Inbox, Source};
use crate::link::Link;
use crate::release::{Cleared, DispatchingClient, Outlet};
use crate::spawned::FlowError;

/// Why a client was not registered; nothing was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
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
        /// The requested maximum length.
        max: Length,
        /// The link's overhead.
        overhead: u32,
    },
    /// No flow is like this.
    #[error(transparent)]
    Flow(#[from] FlowError),
    /// The link ends, and accepts no more clients.
    #[error("the link takes no more clients")]
    Ending,
    /// The arbiter was dropped.
    #[error("the arbiter is gone")]
    ArbiterGone,
}

/// A client whose registration is pending.
pub(crate) struct Arrival<P> {
    pub(crate) client: Registered<P>,
    pub(crate) config: FlowConfig,
    /// Of a client that dispatches its own packets.
    pub(crate) outlet: Option<Outlet>,
}

/// State that registrars and the arbiter share. Only registering and leaving lock it.
pub(crate) struct Registrations<P> {
    /// Whether `arrivals` is worth locking for.
    pending: AtomicBool,
    inner: Mutex<Inner<P>>,
}

struct Inner<P> {
    arrivals: Vec<Arrival<P>>,
    /// Numbers that were assigned and released.
    free: BTreeSet<u32>,
    /// The lowest number that was never given, and the first that never is.
    next: u32,
    end: u32,
    /// The reason why registration has ended.
    shut: Option<RegisterError>,
}

impl<P> Inner<P> {
    /// Returns the lowest number that is free, so that tables are as long as clients are many.
    fn number(&mut self) -> Option<u32> {
        if let Some(number) = self.free.pop_first() {
            return Some(number);
        }
        let number = self.next;
        (number < self.end).then(|| {
            self.next += 1;
            number
        })
    }
}

impl<P> Registrations<P> {
    pub(crate) fn new(max_clients: usize) -> Self {
        Registrations {
            pending: AtomicBool::new(false),
            inner: Mutex::new(Inner {
                arrivals: Vec::new(),
                free: BTreeSet::new(),
                next: 0,
                end: max_clients as u32,
                shut: None,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<P>> {
        // A panic of another holder leaves a list that is whole.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether [`arrivals`](Self::arrivals) are worth a lock.
    #[inline]
    pub(crate) fn are_pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed)
    }

    /// Returns the clients registered since the last call.
    pub(crate) fn arrivals(&self) -> Vec<Arrival<P>> {
        self.pending.store(false, Ordering::Relaxed);
        std::mem::take(&mut self.lock().arrivals)
    }

    /// The number may be given again.
    pub(crate) fn give_back(&self, id: ClientId) {
        self.lock().free.insert(id.0);
    }

    /// Ends registration; clients that are registered stay.
    pub(crate) fn shut(&self) {
        self.lock().shut = Some(RegisterError::Ending);
    }

    /// Ends registration, and ignores clients that are not yet taken in.
    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        inner.shut = Some(RegisterError::ArbiterGone);
        inner.arrivals.clear();
    }
}

/// Registers clients, from any thread, while the arbiter runs.
pub struct Registrar<P> {
    registrations: Arc<Registrations<P>>,
    bell: Handle,
    link: Link,
    max_clients: usize,
    mailbox_slots: usize,
}

impl<P> Clone for Registrar<P> {
    fn clone(&self) -> Self {
        Registrar {
            registrations: Arc::clone(&self.registrations),
            bell: self.bell.clone(),
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
    pub(crate) fn new(
        registrations: Arc<Registrations<P>>,
        bell: Handle,
        config: &ArbiterConfig,
    ) -> Self {
        Registrar {
            registrations,
            bell,
            link: config.link,
            max_clients: config.max_clients,
            mailbox_slots: config.mailbox_slots,
        }
    }

    /// Returns the link that the arbiter paces.
    #[must_use]
    pub fn link(&self) -> Link {
        self.link
    }

    /// Returns a new client with a flow of its own. It may push at once; the arbiter takes it in at
    /// its next step. `config.max_length` is the client's, without the link's overhead. Locks
    /// shortly, allocates the mailbox.
    pub fn register(&self, config: FlowConfig) -> Result<Client<P>, RegisterError> {
        self.thread_client(config, None, None)
    }

    /// Returns a new client for a task, which waits for room where a thread is refused.
    pub fn register_async(&self, config: FlowConfig) -> Result<AsyncClient<P>, RegisterError> {
        let room = Arc::new(Room::new());
        let waiting = Waiting(Arc::clone(&room));
        let client = self.thread_client(config, None, Some(waiting))?;
        Ok(AsyncClient::new(client, room))
    }

    /// Registers a client whose mailbox is of another kind. Packets from [`Source::pop`] go to a flow of its
    /// own; its lengths already include the link's overhead ([`Link::carried`]).
    #[doc(hidden)]
    pub fn register_source(
        &self,
        config: FlowConfig,
        source: Box<dyn Source<P>>,
    ) -> Result<Remote, RegisterError> {
        let config = self.carried(config)?;
        let counters = Arc::new(Counters::new(Length::MAX));
        let client = Registered::new(Inbox::Source(source), Arc::clone(&counters), None);
        let (id, bell) = self.enter(client, config, None)?;
        Ok(Remote { id, counters, bell })
    }

    fn thread_client(
        &self,
        config: FlowConfig,
        outlet: Option<Outlet>,
        waiting: Option<Waiting>,
    ) -> Result<Client<P>, RegisterError> {
        let carried = self.carried(config)?;
        let (producer, consumer) = mailbox::<Request<P>>(self.mailbox_slots)?;
        let counters = Arc::new(Counters::new(config.max_length));
        let client = Registered::new(Inbox::Thread(consumer), Arc::clone(&counters), waiting);
        let (id, bell) = self.enter(client, carried, outlet)?;
        Ok(Client {
            id,
            mailbox: producer,
            counters,
            overhead: self.link.overhead,
            drops_seen: 0,
            bell,
        })
    }

    /// Returns the flow's configuration, with the link's overhead.
    fn carried(&self, config: FlowConfig) -> Result<FlowConfig, RegisterError> {
        let (max, overhead) = (config.max_length, self.link.overhead);
        let max_length = self
            .link
            .carried(max)
            .ok_or(RegisterError::TooLong { max, overhead })?;
        Ok(FlowConfig {
            max_length,
            ..config
        })
    }

    fn enter(
        &self,
        client: Registered<P>,
        config: FlowConfig,
        outlet: Option<Outlet>,
    ) -> Result<(ClientId, Ringer), RegisterError> {
        let mut inner = self.registrations.lock();
        if let Some(why) = inner.shut {
            return Err(why);
        }
        let number = inner
            .number()
            .ok_or(RegisterError::TooManyClients(self.max_clients))?;
        let id = ClientId(number);
        // Awake from the start: the arbiter looks at a new client without being rung for.
        let ringer = self.bell.ringer(number);
        inner.arrivals.push(Arrival {
            client: Registered { id, ..client },
            config,
            outlet,
        });
        self.registrations.pending.store(true, Ordering::Release);
        drop(inner);
        self.bell.nudge();
        Ok((id, ringer))
    }
}

impl Registrar<Cleared> {
    /// Registers a client that keeps its packets, passes their lengths to the arbiter, and transmits the
    /// packets that the arbiter has cleared ([`ClientsDispatch`](crate::ClientsDispatch)). At most `window` of
    /// its packets are pushed and neither cleared nor dropped at a time; one, if `window` is 0.
    pub fn register_dispatching<T>(
        &self,
        config: FlowConfig,
        window: u32,
    ) -> Result<DispatchingClient<T>, RegisterError> {
        let window = window.max(1);
        let (near, outlet) = Outlet::new(window)?;
        let client = self.thread_client(config, Some(outlet), None)?;
        Ok(DispatchingClient::new(client, near, window))
    }
}

/// The handle of a client whose mailbox is a [`Source`]. Dropping it ends the client: packets in the mailbox
/// are still sent, then its flow is removed.
#[derive(Debug)]
pub struct Remote {
    id: ClientId,
    counters: Arc<Counters>,
    bell: Ringer,
}

impl Remote {
    /// The number the arbiter knows it by.
    pub fn id(&self) -> ClientId {
        self.id
    }

    /// Packets that were dropped inside the arbiter, since the start.
    pub fn dropped(&self) -> u64 {
        self.counters.by_arbiter.dropped.load(Ordering::Relaxed)
    }

    /// The other side has pushed while the arbiter did not look: it looks again, and is
    /// woken if it sleeps. Said once too often, it does nothing.
    pub fn ring(&self) {
        self.bell.ring();
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // Before the bell rings for the last time.
        self.counters.by_client.left.store(true, Ordering::Release);
    }
}
