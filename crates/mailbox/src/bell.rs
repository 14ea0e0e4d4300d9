//! The client list: the clients that may have pushed, and the wake-up of a sleeping arbiter.
//!
//! 1. L. Rizzo, P. Valente, G. Lettieri, V. Maffione, "PSPAT: Software packet scheduling at hardware speed", Section 4:
//!    the arbiter scans the recently active clients of each CPU.
//! 2. membarrier(2), futex(2).
//!
//! ```
//! use fairlane_mailbox::bell::{Handle, Listener, Ringer, Woken, bell};
//! use fairlane_mailbox::mailbox;
//!
//! let mut listener: Listener = bell(1_000);
//! let handle: Handle = listener.handle();
//! let (mut producer, mut consumer) = mailbox::<u64>(64)?;
//!
//! // A new client is awake: the arbiter lists it at once and reads its mailbox.
//! let ringer: Ringer = handle.ringer(7);
//! producer.push(1).unwrap();
//! ringer.ring();
//! assert_eq!(consumer.pop(), Some(1));
//!
//! // An idle client is put to doze. Its next push rings.
//! listener.doze(7);
//! listener.settle();
//! assert_eq!(consumer.pop(), None);
//! producer.push(2).unwrap();
//! ringer.ring();
//! assert_eq!(listener.collect(|client| assert_eq!(client, 7)), 1);
//! assert_eq!(consumer.pop(), Some(2));
//!
//! // Without active clients the arbiter sleeps until a client rings, or another thread nudges.
//! handle.nudge();
//! assert_eq!(listener.sleep(None), Woken::Nudged);
//! # Ok::<(), fairlane_mailbox::CapacityError>(())
//! ```
//!
//! # The protocol
//!
//! The arbiter keeps a list of *active* clients and reads only their mailboxes. It puts a client that is idle for a
//! while to *doze*, and the next push of that client *rings*. At any time a client is one of
//!
//! * awake, and in the arbiter's list (or new, on its way there);
//! * dozing;
//! * rung: awake, and in the rung set (or on its way there).
//!
//! The client, after a push: executes a light fence and reads its own state; if that is "dozing" and the client is the
//! one to clear it, it adds itself to the rung set. The arbiter: marks clients as dozing; executes one heavy fence for
//! all of them ([`settle`](Listener::settle)); reads each one's mailbox again, and clears the mark if it is not empty.
//!
//! # Why no push is lost
//!
//! **A push is seen or rings.** Each side writes, fences and reads the other's word, so one of them sees the write: the
//! arbiter the value (or that the mailbox was abandoned: dropping a ringer rings), or the client the mark.
//!
//! **A client is in one place.** The mark is cleared by a compare-and-swap; the side that succeeds determines the place
//! of the client from then on.
//!
//! **Every ring is collected.** A client adds itself by one read-modify-write of its own bit and one of the top word,
//! and waits for no thread in between: a thread that is preempted or migrated in the middle delays only its own client.
//! A [`collect`](Listener::collect) passes on all clients in the set.
//!
//! **A sleep is not missed.** A bit of the top word says that the arbiter sleeps, and that word has one order of
//! changes: either the arbiter fails to fall asleep, because a client has rung, or a ringing client finds it asleep.
//! Only the first of those finds no other bit there, and wakes it.
//!
//! **A number may be reused.** A state also counts the ringers that were made for the number. The thread of a detached
//! client may be suspended before the drop of its ringer, and continue when another client has the number: it finds a
//! state that is not its own, and does not change it.
//!
//! # Cost
//!
//! A push and a ring take 1.5 ns while the client is awake, and 15 to 26 ns if it has to ring. The arbiter spends 0.3
//! ns on a poll without rings, and 0.6 to 16 ns on each client that has rung. [`settle`](Listener::settle) takes 9 us
//! while another thread of the process runs, since the kernel interrupts it, for any number of clients: so put clients
//! to doze rarely, and many at a time. `docs/internals/client-list.md` has the figures, and those of other lists.
//!
//! Without `membarrier` (another system, an old kernel, a filter), decided once in [`bell`], both fences are `SeqCst`
//! fences. On systems other than Linux the arbiter sleeps on a condition variable.

mod barrier;
mod growing;
mod park;
mod rung;

use core::{fmt, time::Duration};
// No protocol depends on when the bell's memory is freed, so loom need not check it.
use std::sync::Arc;

use crate::sync::{AtomicU32, Ordering};
use barrier::Barrier;
use growing::Growing;
use rung::Rung;

/// The bit of a state that says "dozing". The others count the ringers of the client's number, so that an earlier
/// ringer has no effect.
const DOZING: u32 = 1;
const RINGER: u32 = 2;

/// The current ringer of a client, and whether the client dozes, on its own cache line. The client reads it at each
/// push; no thread writes it while the client is active. The arbiter sets `DOZING`. The side that clears it, client or
/// arbiter, determines where the client is: in the rung set, or back in the arbiter's list.
#[derive(Debug)]
#[repr(align(64))]
struct State(AtomicU32);

struct Shared {
    clients: u32,
    /// One per assigned number.
    states: Growing<State, 64>,
    rung: Rung,
    barrier: Barrier,
}

impl Shared {
    /// Returns the state of a client that has a ringer.
    #[inline]
    fn state(&self, client: u32) -> &AtomicU32 {
        match self.states.get(client) {
            Some(state) => &state.0,
            None => panic!("client {client} of this bell was never given a ringer"),
        }
    }

    /// Adds a dozing client to the rung set, unless the arbiter has roused it, and wakes the arbiter if it sleeps.
    #[cold]
    fn announce(&self, client: u32, state: &State, dozing: u32) {
        // Acquire: the arbiter had taken this client out of the set before it
        // put it to doze.
        let roused = state.0.compare_exchange(
            dozing,
            dozing & !DOZING,
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        if roused.is_ok() {
            self.rung.insert(client);
        }
    }
}

/// Makes a bell for clients numbered from 0 to `clients - 1`, and returns the arbiter's end.
///
/// Cost: O(1). The 65 bytes of a client are allocated with the first [ringer](Handle::ringer) for its number or a
/// number in the same part, so assign low numbers first. On Linux, registers the process for `membarrier`.
#[must_use]
pub fn bell(clients: u32) -> Listener {
    Listener {
        shared: Arc::new(Shared {
            clients,
            states: Growing::new(),
            rung: Rung::new(),
            barrier: Barrier::new(),
        }),
        unsettled: false,
    }
}

/// The arbiter's end of a bell.
pub struct Listener {
    shared: Arc<Shared>,
    /// Whether a client was put to doze since the last `settle`.
    unsettled: bool,
}

/// The reason why [`Listener::sleep`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// Clients have rung; [`collect`](Listener::collect) returns them. It may find none: if the last call returned a
    /// client that executes its wake-up only now.
    Rung,
    /// [`nudge`](Handle::nudge) was called since this value was last returned. Clients may have rung too.
    Nudged,
    /// The time has elapsed, and no client has rung.
    TimedOut,
}

impl Listener {
    /// Returns a handle for other threads.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle {
            shared: Arc::clone(&self.shared),
        }
    }

    /// Passes to `each` every client that has rung and was not passed since, and returns their number. Such a client is
    /// awake: it belongs in the caller's list, and its mailbox may contain values.
    ///
    /// All clients whose [`ring`](Ringer::ring) has returned are passed, so no client waits for more than one call; up
    /// to 1,920 clients are in numerical order.
    ///
    /// Cost: without rings, one load of a line that is written only by rings. Otherwise O(clients passed), a cache line
    /// for each 64 numbers, and with numbers from 1,920 on loads of some more such lines (17 to 32 with 32,000).
    #[inline]
    pub fn collect(&mut self, mut each: impl FnMut(u32)) -> usize {
        let mut given = 0;
        if !self.shared.rung.is_empty() {
            self.shared.rung.take_all(|client| {
                given += 1;
                each(client);
            });
        }
        given
    }

    /// Puts a client of the caller's list to doze: its next [`ring`](Ringer::ring) puts it into the rung set.
    ///
    /// Then call [`settle`](Self::settle), once for any number of clients, and read each one's mailbox again. If it is
    /// not empty *or is abandoned*, [`rouse`](Self::rouse) the client; otherwise drop it from the list until
    /// [`collect`](Self::collect) returns it.
    ///
    /// Cost: O(1), writes one cache line, which the client then has to fetch.
    ///
    /// # Panics
    ///
    /// If the client has no ringer.
    #[inline]
    pub fn doze(&mut self, client: u32) {
        let state = self.shared.state(client);
        // No other thread writes it while the client is awake and listed.
        let awake = state.load(Ordering::Relaxed);
        debug_assert_eq!(awake & DOZING, 0, "client {client} dozes already");
        // Release: it was removed from the rung set before.
        state.store(awake | DOZING, Ordering::Release);
        self.unsettled = true;
    }

    /// Ensures that, for each client put to doze before, either a later read of the mailbox sees its pushes, or the
    /// client finds itself dozing and rings.
    ///
    /// Cost: one system call on Linux, for any number of clients; see the [module documentation](self).
    pub fn settle(&mut self) {
        self.shared.barrier.heavy();
        self.unsettled = false;
    }

    /// Wakes a dozing client. Returns true if it is awake and stays in the caller's list, and false if it has rung;
    /// then drop it from the list: [`collect`](Self::collect) will return it.
    ///
    /// Cost: one atomic read-modify-write of the line that `doze` wrote.
    ///
    /// # Panics
    ///
    /// If the client has no ringer.
    #[inline]
    pub fn rouse(&mut self, client: u32) -> bool {
        let state = self.shared.state(client);
        let dozing = state.load(Ordering::Relaxed) | DOZING;
        let awake = dozing & !DOZING;
        // No order is needed: the caller has read the mailbox itself.
        state
            .compare_exchange(dozing, awake, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    /// Sleeps until a client rings, a thread nudges, or `longest` has elapsed (`None`: no limit). Returns at once if
    /// that has already happened.
    ///
    /// Only a dozing client wakes the arbiter: first put all of them to doze, [`settle`](Self::settle), and read their
    /// mailboxes.
    ///
    /// Cost: one system call here, and at most one by the thread that ends the sleep.
    pub fn sleep(&mut self, longest: Option<Duration>) -> Woken {
        debug_assert!(!self.unsettled, "settle() comes between doze() and sleep()");
        let found = self.shared.rung.sleep(longest);
        if found.nudged {
            Woken::Nudged
        } else if found.rung {
            Woken::Rung
        } else {
            Woken::TimedOut
        }
    }

    /// Returns the number of wake-up system calls made for this arbiter so far: at most one per sleep.
    #[must_use]
    pub fn wakes(&self) -> u64 {
        self.shared.rung.wakes()
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener")
            .field("clients", &self.shared.clients)
            .field("barrier", &self.shared.barrier)
            .finish_non_exhaustive()
    }
}

/// A handle of a bell for other threads: it creates ringers for new clients, and nudges the arbiter.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
}

impl Handle {
    /// Returns the ringer of a new client, which starts awake: the arbiter must list it at once, since it will not ring
    /// before it was put to doze.
    ///
    /// A number can be reused as soon as the arbiter has dropped the former client from its list *while that was
    /// awake*, and the caller has learned this from the arbiter. The former ringer may still exist, since its thread
    /// may just have abandoned the mailbox: its rings have no effect from now on.
    ///
    /// # Panics
    ///
    /// If there is no such client, or if its number is in use: it dozes, or has rung and was not collected yet.
    #[must_use]
    pub fn ringer(&self, client: u32) -> Ringer {
        let clients = self.shared.clients;
        assert!(
            client < clients,
            "client {client} of a bell for {clients} clients: the number must be less"
        );
        assert!(
            !self.shared.rung.contains(client),
            "client {client} has rung and was not given yet: its number is not free"
        );
        self.shared.rung.make(client);
        let (states, at) = self.shared.states.make(client, || State(AtomicU32::new(0)));
        let state = &states[at].0;
        // The client is awake, so no other thread writes it.
        let former = state.load(Ordering::Relaxed);
        assert_eq!(
            former & DOZING,
            0,
            "client {client} dozes: its number is not free"
        );
        let awake = former.wrapping_add(RINGER);
        state.store(awake, Ordering::Relaxed);
        Ringer {
            shared: Arc::clone(&self.shared),
            states: Arc::clone(states),
            at,
            client,
            dozing: awake | DOZING,
        }
    }

    /// Wakes the arbiter without a client. If it is awake, its next [`sleep`](Listener::sleep) returns at once. It then
    /// sees all earlier writes of the caller.
    ///
    /// Cost: one atomic read-modify-write, and a system call if the arbiter sleeps.
    pub fn nudge(&self) {
        self.shared.rung.nudge();
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("clients", &self.shared.clients)
            .finish_non_exhaustive()
    }
}

/// A client's end of a bell. Dropping it rings, so that the arbiter notices an abandoned mailbox: declare it after the
/// `Producer` in a struct.
pub struct Ringer {
    shared: Arc<Shared>,
    /// The part of the states that contains its own, and the index there.
    states: Arc<[State]>,
    at: usize,
    client: u32,
    /// The state in which this client has to ring.
    dozing: u32,
}

impl Ringer {
    /// Notifies the arbiter if the client dozes. Call it after each push, or after a batch.
    ///
    /// Cost: one load of a line that is written only when the client starts or stops dozing. If it dozes: three atomic
    /// read-modify-writes, and a system call if the arbiter sleeps.
    #[inline]
    pub fn ring(&self) {
        self.shared.barrier.light();
        let state = &self.states[self.at];
        if state.0.load(Ordering::Relaxed) == self.dozing {
            self.shared.announce(self.client, state, self.dozing);
        }
    }
}

impl Drop for Ringer {
    fn drop(&mut self) {
        self.ring();
    }
}

impl fmt::Debug for Ringer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ringer")
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}
