//! The registered clients, and which of them to look at: PSPAT's client list.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fairlane_core::{FlowId, Nanos};
use fairlane_mailbox::bell::{Handle, Listener, Woken};

use crate::async_client::Waiting;
use crate::client::{ClientId, Counters};
use crate::inbox::Inbox;

/// A client as the arbiter sees it.
#[derive(Debug)]
pub(crate) struct Registered<P> {
    pub(crate) inbox: Inbox<P>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) id: ClientId,
    pub(crate) flow: FlowId,
    /// No look before this time.
    pub(crate) look_after: Nanos,
    /// The time of the last visit of its mailbox: packets found there later arrived after it.
    pub(crate) looked_at: Nanos,
    /// When something was last found.
    pub(crate) heard_at: Nanos,
    /// Packets taken from the mailbox.
    pub(crate) taken: u64,
    /// The client is gone and its mailbox empty: only its flow is left.
    pub(crate) leaving: bool,
    /// A task that may wait for room. Dropped after the mailbox: it is woken then.
    pub(crate) waiting: Option<Waiting>,
}

impl<P: Send> Registered<P> {
    /// Returns a client without a number and a flow yet.
    pub(crate) fn new(inbox: Inbox<P>, counters: Arc<Counters>, waiting: Option<Waiting>) -> Self {
        Registered {
            inbox,
            counters,
            id: ClientId(u32::MAX),
            flow: FlowId::new(u32::MAX),
            look_after: Nanos::ZERO,
            looked_at: Nanos::ZERO,
            heard_at: Nanos::ZERO,
            taken: 0,
            leaving: false,
            waiting,
        }
    }

    /// Returns whether the client is gone, so that the packets in its mailbox now are the last.
    #[inline]
    pub(crate) fn has_left(&self) -> bool {
        match &self.inbox {
            Inbox::Thread(mailbox) => mailbox.is_abandoned(),
            Inbox::Source(_) => self.counters.by_client.left.load(Ordering::Acquire),
        }
    }
}

impl<P: Send> Registered<P> {
    /// Publishes to the client how many of its packets were dropped.
    #[cold]
    pub(crate) fn tell_dropped(&mut self) {
        let packets = self.counters.by_arbiter.dropped.load(Ordering::Relaxed);
        self.inbox.dropped(packets);
    }
}

/// The result of a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visit {
    /// Nothing new.
    Silent,
    /// It found this many packets.
    Heard(usize),
    /// Neither a client nor packets of it exist: it can be removed.
    Gone,
}

/// No client has this number.
const NOBODY: u32 = u32::MAX;

/// The limits and results of a scan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scan {
    pub(crate) now: Nanos,
    /// Most clients to look at.
    pub(crate) limit: usize,
    /// Least time between two looks at the same client.
    pub(crate) interval: Nanos,
}

/// All clients of an arbiter.
///
/// A scan visits the *active* clients alone, O(active). The others doze, and ring the bell on a push. A
/// client is in one of three places: in `active`, dozing, or rung and not yet collected.
#[derive(Debug)]
pub(crate) struct Clients<P> {
    /// By number.
    registered: Vec<Option<Registered<P>>>,
    /// By the number of its flow: the client's, or [`NOBODY`].
    owners: Vec<u32>,
    count: usize,
    active: Vec<u32>,
    /// Where in `active` the next scan begins.
    first: usize,
    bell: Listener,
    /// Those being put to doze.
    drowsy: Vec<u32>,
    /// When next to look for those that fell silent.
    doze_at: Nanos,
    /// Empty visits since a packet was found or the arbiter slept: once all active clients were silent,
    /// there is no more work.
    silent: usize,
    /// When the last scan was, unless the arbiter slept since.
    scanned_at: Option<Nanos>,
}

impl<P: Send> Clients<P> {
    pub(crate) fn new(bell: Listener) -> Self {
        Clients {
            registered: Vec::new(),
            owners: Vec::new(),
            count: 0,
            active: Vec::new(),
            first: 0,
            bell,
            drowsy: Vec::new(),
            doze_at: Nanos::ZERO,
            silent: 0,
            scanned_at: None,
        }
    }

    /// For registrars.
    pub(crate) fn handle(&self) -> Handle {
        self.bell.handle()
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Those that a scan visits.
    pub(crate) fn active(&self) -> usize {
        self.active.len()
    }

    /// A new client is active: it may have pushed before its registration was processed.
    pub(crate) fn insert(&mut self, mut client: Registered<P>, now: Nanos) {
        let number = client.id.0 as usize;
        client.heard_at = now;
        client.looked_at = now;
        client.inbox.joined(client.id);
        if number >= self.registered.len() {
            self.registered.resize_with(number + 1, || None);
        }
        debug_assert!(self.registered[number].is_none(), "a number is given once");
        let flow = client.flow.number() as usize;
        if flow >= self.owners.len() {
            self.owners.resize(flow + 1, NOBODY);
        }
        self.owners[flow] = number as u32;
        self.registered[number] = Some(client);
        self.count += 1;
        self.active.push(number as u32);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Registered<P>> {
        self.registered.iter().flatten()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Registered<P>> {
        self.registered.iter_mut().flatten()
    }

    /// Synchronizes with all clients: the next visit of their mailboxes sees their earlier operations,
    /// and their later operations see earlier state of the arbiter. One system call.
    pub(crate) fn settle(&mut self) {
        self.bell.settle();
    }

    /// Returns the client of a flow, unless it is the arbiter's own.
    pub(crate) fn of_flow(&mut self, flow: FlowId) -> Option<&mut Registered<P>> {
        let owner = *self.owners.get(flow.number() as usize)?;
        let client = self.registered.get_mut(owner as usize)?.as_mut()?;
        (client.flow == flow).then_some(client)
    }

    pub(crate) fn get(&self, id: ClientId) -> Option<&Registered<P>> {
        self.registered.get(id.0 as usize)?.as_ref()
    }

    /// Visits the active clients that are due, at most `scan.limit` of them; returns how many packets
    /// were found, and whether that limit left a client out.
    ///
    /// If there is space for a few packets only, the first clients get it. A scan therefore starts where
    /// the limit ended the last one, or else after the first client that had packets then: clients share
    /// scarce space in turn.
    #[inline]
    pub(crate) fn scan(
        &mut self,
        scan: Scan,
        mut visit: impl FnMut(&mut Registered<P>) -> Visit,
    ) -> (usize, bool) {
        self.collect(scan.now);
        let (mut heard, mut gone) = (0, false);
        let mut first_heard = None;
        let mut at = self.first;
        let active = self.active.len();
        for _ in 0..active.min(scan.limit) {
            if at >= active {
                at = 0;
            }
            let number = self.active[at];
            at += 1;
            self.hint(at + 1);
            if let Some(client) = &mut self.registered[number as usize]
                && client.look_after <= scan.now
            {
                client.look_after = scan.now + scan.interval;
                match visit(client) {
                    Visit::Silent => {}
                    Visit::Heard(packets) => {
                        heard += packets;
                        client.heard_at = scan.now;
                        first_heard.get_or_insert(at);
                    }
                    Visit::Gone => {
                        gone = true;
                        self.count -= 1;
                        self.registered[number as usize] = None;
                    }
                }
            }
        }
        let whole_round = active <= scan.limit;
        self.first = match whole_round {
            true => first_heard.unwrap_or(self.first),
            false => at,
        };
        self.silent = match heard {
            0 => self.silent.saturating_add(scan.limit),
            _ => 0,
        };
        let stopped = !whole_round && self.silent < active;
        if gone {
            let registered = &self.registered;
            let mut first = self.first;
            forget(&mut self.active, &mut first, |number| {
                registered[number as usize].is_none()
            });
            self.first = first;
        }
        self.scanned_at = Some(scan.now);
        (heard, stopped)
    }

    /// Activates clients that rang. They pushed after the last scan, unless the arbiter slept since.
    #[inline]
    fn collect(&mut self, now: Nanos) {
        let Clients {
            registered, active, ..
        } = self;
        let since = self.scanned_at.unwrap_or(now);
        self.bell.collect(|number| {
            if let Some(Some(client)) = registered.get_mut(number as usize) {
                client.inbox.doze(false);
                client.looked_at = since;
                client.heard_at = now;
                active.push(number);
            }
        });
    }

    #[inline]
    fn hint(&self, at: usize) {
        if let Some(&number) = self.active.get(at)
            && let Some(client) = &self.registered[number as usize]
        {
            client.inbox.prefetch();
        }
    }

    /// The arbiter slept: all active clients must be visited before it may sleep again.
    pub(crate) fn slept(&mut self) {
        self.silent = 0;
    }

    /// Puts clients to doze that were silent for `linger`; checks once in that period.
    #[inline]
    pub(crate) fn doze_silent(&mut self, now: Nanos, linger: Nanos) {
        if now < self.doze_at {
            return;
        }
        self.doze_at = now + linger;
        self.doze(|client| now.since(client.heard_at) >= linger);
    }

    /// Puts all clients to doze and sleeps until a client rings or knocks, or `longest` is over. Returns
    /// `None` at once if a client has work already.
    pub(crate) fn sleep(&mut self, longest: Duration) -> Option<Woken> {
        if !self.doze(|_| true) {
            return None;
        }
        self.scanned_at = None;
        Some(self.bell.sleep(Some(longest)))
    }

    /// Returns whether all of those that `drowsy` named doze now.
    #[cold]
    fn doze(&mut self, drowsy: impl Fn(&Registered<P>) -> bool) -> bool {
        debug_assert!(self.drowsy.is_empty());
        for &number in &self.active {
            if let Some(client) = &mut self.registered[number as usize]
                && !client.leaving
                && drowsy(client)
            {
                client.inbox.doze(true);
                self.bell.doze(number);
                self.drowsy.push(number);
            }
        }
        if self.drowsy.is_empty() {
            return true;
        }
        // From here on, a push is either seen below or rings.
        self.bell.settle();
        let mut all = true;
        let mut kept = 0;
        for at in 0..self.drowsy.len() {
            let number = self.drowsy[at];
            let client = self.registered[number as usize].as_mut();
            if let Some(client) = client
                && (client.has_left() || !client.inbox.is_empty())
            {
                all = false;
                if self.bell.rouse(number) {
                    client.inbox.doze(false);
                    continue;
                }
            }
            self.drowsy[kept] = number;
            kept += 1;
        }
        self.drowsy.truncate(kept);
        self.drowsy.sort_unstable();
        let asleep = &self.drowsy;
        let mut first = self.first;
        forget(&mut self.active, &mut first, |number| {
            asleep.binary_search(&number).is_ok()
        });
        self.first = first;
        self.drowsy.clear();
        all
    }
}

/// Takes out of a list those that `which` names, and keeps `first` where it was among the
/// others.
fn forget(active: &mut Vec<u32>, first: &mut usize, which: impl Fn(u32) -> bool) {
    let before = active.iter().take(*first);
    *first -= before.filter(|&&number| which(number)).count();
    active.retain(|&number| !which(number));
}
