//! The client list: which clients may have something to say, and how a sleeping
//! arbiter is woken.
//!
//! 1. L. Rizzo, P. Valente, G. Lettieri, V. Maffione, "PSPAT: Software packet
//!    scheduling at hardware speed", Section 4: the arbiter scans the clients of
//!    each CPU that were active lately.
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
//! // Silent for a while, it is put to doze. Its next push rings.
//! listener.doze(7);
//! listener.settle();
//! assert_eq!(consumer.pop(), None);
//! producer.push(2).unwrap();
//! ringer.ring();
//! assert_eq!(listener.collect(|client| assert_eq!(client, 7)), 1);
//! assert_eq!(consumer.pop(), Some(2));
//!
//! // Where nobody has anything to say the arbiter sleeps: until a client rings, or somebody else nudges.
//! handle.nudge();
//! assert_eq!(listener.sleep(None), Woken::Nudged);
//! # Ok::<(), fairlane_mailbox::CapacityError>(())
//! ```
//!
//! # The protocol
//!
//! The arbiter keeps a list of *active* clients and reads their mailboxes alone.
//! A client found silent for a while is put to *doze*, and its next push *rings*.
//! At any time a client is one of
//!
//! * awake, and in the arbiter's list (or new, on its way there);
//! * dozing;
//! * rung: awake, and in the rung set (or on its way there).
//!
//! The client, after a push: a light fence; a look at its own state; if that
//! says "dozing" and it is the one to clear that, it adds itself to the rung set.
//! The arbiter: marks clients as dozing; one heavy fence for all of them
//! ([`settle`](Listener::settle)); looks at each one's mailbox again, and clears
//! the mark where there is something.
//!
//! # Why nothing is lost
//!
//! **A push is seen or rings.** Each side writes, fences and looks at what the
//! other writes, so one of them sees it: the arbiter the value (or that the
//! mailbox was abandoned: dropping a ringer rings), or the client the mark.
//!
//! **A client is in one place.** The mark is cleared by a compare-and-swap, and
//! who succeeds says where the client is from then on.
//!
//! **What rang is given.** A client adds itself by one read-modify-write of its
//! own bit and one of the top word, and waits for nobody in between: a thread
//! that is preempted or migrated in the middle holds up its own client alone.
//! A [`collect`](Listener::collect) gives all that are there.
//!
//! **A sleep is not missed.** Whether the arbiter sleeps is a bit of that top
//! word, which has one order of changes: either the arbiter's going to sleep
//! fails as somebody has rung, or who rings finds it asleep. Of those, only the
//! first finds nothing else there, and wakes it.
//!
//! **A number comes again.** A state also counts the ringers that were made for
//! the number. The thread of a client that left may be suspended before the drop
//! of its ringer, and go on when the number is another's: it finds a state that
//! is not its own, and leaves it alone.
//!
//! # Cost
//!
//! A push and a ring take a nanosecond and a half while the client is awake, 15 to 26 ns where it
//! has to ring. The arbiter spends 0.3 ns on a look when nobody has rung, and 0.6 to 16 ns on each
//! client that has. [`settle`](Listener::settle) takes 9 us while another thread of the process
//! runs, as the kernel interrupts it, for any number of clients: so doze rarely, and many at a time.
//! `docs/internals/client-list.md` has the figures, and those of the other lists that were compared.
//!
//! Without `membarrier` (another system, an old kernel, a filter), decided once
//! in [`bell`], both fences are `SeqCst` fences. Elsewhere than on Linux the
//! arbiter sleeps on a condition variable.

mod barrier;
mod growing;
mod park;
mod rung;

use core::{fmt, time::Duration};
// The bell's memory carries no protocol when it goes: loom need not watch it.
use std::sync::Arc;

use crate::sync::{AtomicU32, Ordering};
use barrier::Barrier;
use growing::Growing;
use rung::Rung;

/// The bit of a state that says "dozing". The others count the ringers that the
/// client's number was given to, so that an earlier one rings no more.
const DOZING: u32 = 1;
const RINGER: u32 = 2;

/// Which ringer is the client's, and whether the client dozes; on a line of its
/// own, which the client reads at each push and nobody writes while the client
/// is active. The arbiter sets `DOZING`. Whoever clears it, client or arbiter,
/// says where the client is: in the rung set, or back in the arbiter's list.
#[derive(Debug)]
#[repr(align(64))]
struct State(AtomicU32);

struct Shared {
    clients: u32,
    /// As many as numbers were given.
    states: Growing<State, 64>,
    rung: Rung,
    barrier: Barrier,
}

impl Shared {
    /// Of a client that was given a ringer.
    #[inline]
    fn state(&self, client: u32) -> &AtomicU32 {
        match self.states.get(client) {
            Some(state) => &state.0,
            None => panic!("client {client} of this bell was never given a ringer"),
        }
    }

    /// Puts a client that was found dozing into the rung set, unless another
    /// has taken it out of its doze, and wakes the arbiter if it sleeps.
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

/// Makes a bell for clients numbered from 0 to `clients - 1`, and returns the
/// arbiter's end.
///
/// Cost: O(1). What a client takes, 65 bytes, is allocated when a ringer is first
/// [asked for](Handle::ringer) for its number, or for about as many others; so give
/// low numbers first. On Linux, registers the process for `membarrier`.
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
    /// Somebody was put to doze since the last `settle`.
    unsettled: bool,
}

/// Why [`Listener::sleep`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// Clients have rung: [`collect`](Listener::collect) gives them. Seldom it
    /// finds none: one was given by the last call, and has come to its wake-up
    /// only now.
    Rung,
    /// [`nudge`](Handle::nudge) was called since this was last returned. Clients
    /// may have rung too.
    Nudged,
    /// The time is over, and nobody has rung.
    TimedOut,
}

impl Listener {
    /// A handle for other threads.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle {
            shared: Arc::clone(&self.shared),
        }
    }

    /// Gives each client that has rung and was not given since, and returns how
    /// many. A client given is awake: it belongs in the caller's list, and its
    /// mailbox may hold something.
    ///
    /// All those whose [`ring`](Ringer::ring) has returned are given, so nobody
    /// waits for more than one call; up to 1,920 clients come by number.
    ///
    /// Cost: when nobody has rung, one load of a line that is written only when
    /// somebody rings. Else O(clients given), a cache line for each 64 numbers,
    /// and with numbers from 1,920 on a look at some more such lines (17 to 32
    /// with 32,000).
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

    /// Puts a client of the caller's list to doze: its next
    /// [`ring`](Ringer::ring) puts it into the rung set.
    ///
    /// Then call [`settle`](Self::settle), once for any number of clients, and
    /// look at each one's mailbox again. If it holds something *or is
    /// abandoned*, [`rouse`](Self::rouse) the client; else drop it from the list
    /// until [`collect`](Self::collect) gives it.
    ///
    /// Cost: O(1), writes one cache line, which the client then has to fetch.
    ///
    /// # Panics
    ///
    /// If no such client was given a ringer.
    #[inline]
    pub fn doze(&mut self, client: u32) {
        let state = self.shared.state(client);
        // Nobody else writes it while the client is awake and listed.
        let awake = state.load(Ordering::Relaxed);
        debug_assert_eq!(awake & DOZING, 0, "client {client} dozes already");
        // Release: it was taken out of the rung set before.
        state.store(awake | DOZING, Ordering::Release);
        self.unsettled = true;
    }

    /// After this, of each client put to doze before: what it has pushed is seen
    /// by a look at its mailbox, or else it finds itself dozing and rings.
    ///
    /// Cost: one system call on Linux, whatever the number of clients; see the
    /// [module documentation](self).
    pub fn settle(&mut self) {
        self.shared.barrier.heavy();
        self.unsettled = false;
    }

    /// Takes a dozing client back. True: it is awake and stays in the caller's
    /// list. False: it has rung; drop it from the list, as
    /// [`collect`](Self::collect) will give it.
    ///
    /// Cost: one atomic read-modify-write of the line that `doze` wrote.
    ///
    /// # Panics
    ///
    /// If no such client was given a ringer.
    #[inline]
    pub fn rouse(&mut self, client: u32) -> bool {
        let state = self.shared.state(client);
        let dozing = state.load(Ordering::Relaxed) | DOZING;
        let awake = dozing & !DOZING;
        // It orders nothing: what is in the mailbox was seen there.
        state
            .compare_exchange(dozing, awake, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    /// Sleeps until a client rings, somebody nudges, or `longest` is over
    /// (`None`: for ever). Returns at once if that has happened already.
    ///
    /// Only a client that dozes wakes the arbiter: put all of them to doze,
    /// [`settle`](Self::settle), and look at their mailboxes first.
    ///
    /// Cost: one system call here, and at most one of whoever ends the sleep.
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

    /// How many wake-up system calls were made for this arbiter so far: no more
    /// than it slept.
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

/// What other threads need of a bell: ringers for new clients, and nudges.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
}

impl Handle {
    /// The ringer of a new client, which starts awake: the arbiter must list it
    /// at once, as it will not ring before it was put to doze.
    ///
    /// A number can be given again as soon as the arbiter has dropped the former
    /// client from its list *while that was awake*, and whoever calls this knows
    /// it from the arbiter. Nothing is asked of the former ringer, whose thread
    /// may have come no further than to abandon the mailbox: its rings are void
    /// from now on.
    ///
    /// # Panics
    ///
    /// If there is no such client, or if its number is not free: it dozes, or
    /// has rung and was not given yet.
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
        // The client is awake, so that nobody else writes it.
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

    /// Wakes the arbiter without naming a client. If it is awake, its next
    /// [`sleep`](Listener::sleep) returns at once. It then sees what the caller
    /// did before.
    ///
    /// Cost: one atomic read-modify-write, and a system call if the arbiter
    /// sleeps.
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

/// A client's end of a bell. Dropping it rings, so that the arbiter learns of a
/// mailbox that was abandoned: declare it after the `Producer` in a struct.
pub struct Ringer {
    shared: Arc<Shared>,
    /// The part of the states that its own is in, and where.
    states: Arc<[State]>,
    at: usize,
    client: u32,
    /// The state in which this client has to ring.
    dozing: u32,
}

impl Ringer {
    /// To be called after each push, or after a batch: lets the arbiter know, if
    /// the client dozes.
    ///
    /// Cost: one load of a line that is written only when the client goes to
    /// doze or comes back. If it dozes: three atomic read-modify-writes, and a
    /// system call if the arbiter sleeps.
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
