//! The client list: which clients may have something to say, and how a sleeping
//! arbiter is woken.
//!
//! ```
//! use fairlane_mailbox::{bell::bell, mailbox};
//!
//! let mut listener = bell(1_000);
//! let handle = listener.handle();
//! let (mut producer, mut consumer) = mailbox::<u64>(64)?;
//!
//! // A new client is awake: the arbiter lists it at once and reads its mailbox.
//! let ringer = handle.ringer(7);
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
//! # Ok::<(), fairlane_mailbox::CapacityError>(())
//! ```

mod barrier;
mod park;
mod rung;

use core::{fmt, mem, time::Duration};

use crate::sync::{AtomicU32, Ordering};
use barrier::Barrier;
use rung::Rung;

// The bell's memory carries no protocol when it goes, so that loom need not
// watch its count.
use std::sync::Arc;

/// The most clients that a bell can have: the values above are the set's own.
pub const MOST_CLIENTS: u32 = u32::MAX - 4;

/// The bit of a state that says "dozing". The others count the client's
/// ringers, so that one whose client has left rings no more for the next.
const DOZING: u32 = 1;

/// What the arbiter and one client share, on a cache line of its own: the
/// client reads it on each push and nobody writes it while the client is
/// active.
#[derive(Debug)]
#[repr(align(64))]
struct Line {
    /// Which ringer is the client's, and whether the client dozes. The arbiter
    /// sets `DOZING`; whoever clears it, client or arbiter, decides whether
    /// the client is in the rung set or still in the arbiter's list.
    state: AtomicU32,
    /// The client that rang before this one. Belongs to the client from when it
    /// cleared `DOZING` until it is in the set, and then to the arbiter.
    next: AtomicU32,
}

struct Shared {
    /// One for each client, and the last for nudges.
    lines: Box<[Line]>,
    rung: Rung,
    barrier: Barrier,
}

impl Shared {
    fn clients(&self) -> u32 {
        self.lines.len() as u32 - 1
    }

    /// Clears `DOZING` of who is in state `dozing`, puts it into the rung set
    /// and wakes the arbiter if it sleeps. At most one caller is let through
    /// for each time that the arbiter set `DOZING`.
    #[cold]
    fn announce(&self, client: u32, dozing: u32) {
        // Acquire: what the arbiter did with this client's link, before it put
        // the client to doze, is over.
        let won = self.lines[client as usize].state.compare_exchange(
            dozing,
            dozing & !DOZING,
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        if won.is_ok() {
            self.rung.insert(&self.lines, client);
        }
    }
}

/// Makes a bell for clients numbered from 0 to `clients - 1`, and returns the
/// arbiter's end.
///
/// Cost: O(`clients`), 64 bytes each; nothing is allocated later. On Linux,
/// registers the process for `membarrier` (twice is as good as once).
///
/// # Panics
///
/// If `clients` exceeds [`MOST_CLIENTS`].
#[must_use]
pub fn bell(clients: u32) -> Listener {
    assert!(
        clients <= MOST_CLIENTS,
        "a bell for {clients} clients: at most {MOST_CLIENTS} are allowed"
    );
    let line = |state| Line {
        state: AtomicU32::new(state),
        next: AtomicU32::new(0),
    };
    Listener {
        shared: Arc::new(Shared {
            lines: (0..clients)
                .map(|_| line(0))
                .chain([line(DOZING)])
                .collect(),
            rung: Rung::new(),
            barrier: Barrier::new(),
        }),
        waiting: Vec::with_capacity(clients as usize + 1),
        nudged: false,
        unsettled: false,
    }
}

/// The arbiter's end of a bell.
pub struct Listener {
    shared: Arc<Shared>,
    /// Taken out of the rung set and not given yet, the latest first.
    waiting: Vec<u32>,
    /// A nudge was taken out of the set and not reported yet.
    nudged: bool,
    /// Somebody was put to doze after the last `settle`.
    unsettled: bool,
}

/// Why [`Listener::sleep`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// Clients have rung: [`collect`](Listener::collect) gives them.
    Rung,
    /// [`nudge`](Handle::nudge) was called since the last time that this was
    /// returned; clients may have rung too.
    Nudged,
    /// The time is over and nobody has rung.
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

    /// Gives each client that has rung, in the order in which they rang, and
    /// returns how many. A client given is awake: it belongs in the caller's
    /// list, and its mailbox may hold something.
    ///
    /// Every client that has rung when this is called is given, so nobody waits
    /// for more than one call.
    ///
    /// Cost: when nobody has rung, one load of a line that is written only when
    /// somebody rings; else O(clients given), a cache line each.
    #[inline]
    pub fn collect(&mut self, mut each: impl FnMut(u32)) -> usize {
        if !self.shared.rung.is_empty() {
            self.gather();
        }
        let count = self.waiting.len();
        while let Some(client) = self.waiting.pop() {
            each(client);
        }
        count
    }

    /// Takes everything out of the rung set.
    #[inline(never)]
    fn gather(&mut self) {
        let shared = &*self.shared;
        let nudge = shared.clients();
        let earlier = self.waiting.len();
        let mut nudged = false;
        shared.rung.take_all(&shared.lines, |client| {
            if client == nudge {
                nudged = true;
            } else {
                self.waiting.push(client);
            }
        });
        // What was gathered earlier and not given yet rang first, and `collect`
        // takes from the end.
        self.waiting.rotate_left(earlier);
        if nudged {
            self.nudged = true;
            // Release: the link was read. Acquire: who nudged in between, and
            // found it done, is seen.
            shared.lines[nudge as usize]
                .state
                .swap(DOZING, Ordering::AcqRel);
        }
    }

    /// Puts a client of the caller's list to doze: its next
    /// [`ring`](Ringer::ring) puts it into the rung set.
    ///
    /// Then call [`settle`](Self::settle), once for any number of clients, and
    /// look at each one's mailbox again. If it holds something *or is
    /// abandoned*, [`rouse`](Self::rouse) the client; else drop it from the list
    /// until [`collect`](Self::collect) gives it.
    ///
    /// Cost: O(1), writes one cache line that the client reads at each push.
    ///
    /// # Panics
    ///
    /// If there is no such client.
    #[inline]
    pub fn doze(&mut self, client: u32) {
        debug_assert!(client < self.shared.clients());
        let state = &self.shared.lines[client as usize].state;
        // Nobody else writes it while the client is awake.
        let awake = state.load(Ordering::Relaxed);
        debug_assert_eq!(awake & DOZING, 0, "client {client} dozes already");
        // Release: what was done with the client's link is over.
        state.store(awake | DOZING, Ordering::Release);
        self.unsettled = true;
    }

    /// After this, a client put to doze before either has pushed what a look at
    /// its mailbox now shows, or will find itself dozing and ring.
    ///
    /// Cost: one system call on Linux, a few microseconds whatever the number
    /// of clients; see the [module documentation](self).
    pub fn settle(&mut self) {
        self.shared.barrier.heavy();
        self.unsettled = false;
    }

    /// Takes a dozing client back. True: it is awake, and stays in the caller's
    /// list. False: it has rung; drop it from the list, as
    /// [`collect`](Self::collect) will give it.
    ///
    /// # Panics
    ///
    /// If there is no such client.
    #[inline]
    pub fn rouse(&mut self, client: u32) -> bool {
        debug_assert!(client < self.shared.clients());
        let state = &self.shared.lines[client as usize].state;
        let dozing = state.load(Ordering::Relaxed) | DOZING;
        // Nothing is ordered by it: the caller has seen what is in the mailbox.
        state
            .compare_exchange(
                dozing,
                dozing & !DOZING,
                Ordering::Relaxed,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// Sleeps until a client rings, somebody nudges, or `longest` is over
    /// (`None`: for ever). Returns at once if that has happened already.
    ///
    /// Only a client that dozes wakes the arbiter: put all of them to doze,
    /// [`settle`](Self::settle) and look at their mailboxes first.
    ///
    /// Cost: one system call here, and one of at most one client or nudge for
    /// each sleep.
    pub fn sleep(&mut self, longest: Option<Duration>) -> Woken {
        debug_assert!(!self.unsettled, "settle() comes between doze() and sleep()");
        if !self.nudged && self.waiting.is_empty() {
            self.shared.rung.wait(longest);
            self.gather();
        }
        if mem::take(&mut self.nudged) {
            Woken::Nudged
        } else if self.waiting.is_empty() {
            Woken::TimedOut
        } else {
            Woken::Rung
        }
    }

    /// How many wake system calls clients and nudges have made for this
    /// arbiter: never more than it has slept.
    #[must_use]
    pub fn wakes(&self) -> u64 {
        self.shared.rung.wakes()
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener")
            .field("clients", &self.shared.clients())
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
    /// The ringer of a client that is new: awake, to be listed by the arbiter
    /// at once, before its first push can be missed.
    ///
    /// An index can be given again when the arbiter has dropped the former
    /// client from its list while that was awake, and has said so to whoever
    /// calls this. Nothing is asked of the former ringer: should its thread
    /// still be about to drop it, its ring is void.
    ///
    /// # Panics
    ///
    /// If there is no such client, or if it dozes: then its index is not free.
    #[must_use]
    pub fn ringer(&self, client: u32) -> Ringer {
        let clients = self.shared.clients();
        assert!(
            client < clients,
            "client {client} of a bell for {clients}: the last is {}",
            i64::from(clients) - 1
        );
        let former = self.shared.lines[client as usize]
            .state
            .fetch_add(DOZING << 1, Ordering::Relaxed);
        assert_eq!(
            former & DOZING,
            0,
            "client {client} dozes: its index is free only once the arbiter has dropped it awake"
        );
        Ringer {
            shared: Arc::clone(&self.shared),
            client,
            dozing: former.wrapping_add(DOZING << 1) | DOZING,
        }
    }

    /// Wakes the arbiter without naming a client. If it is awake, its next
    /// [`sleep`](Listener::sleep) returns at once. What the caller did before
    /// is seen by the arbiter then.
    ///
    /// Cost: one atomic read-modify-write, or two and a system call if the
    /// arbiter sleeps.
    pub fn nudge(&self) {
        let nudge = self.shared.clients();
        // Release: should a nudge be under way already, the arbiter sees by it
        // what this caller did. Acquire: see `announce`.
        let before = self.shared.lines[nudge as usize]
            .state
            .swap(0, Ordering::AcqRel);
        if before == DOZING {
            self.shared.rung.insert(&self.shared.lines, nudge);
        }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("clients", &self.shared.clients())
            .finish_non_exhaustive()
    }
}

/// A client's end of a bell. Dropping it rings, so that the arbiter learns of a
/// mailbox that was abandoned: declare it after the `Producer` in a struct.
pub struct Ringer {
    shared: Arc<Shared>,
    client: u32,
    /// The state in which this client has to ring.
    dozing: u32,
}

impl Ringer {
    /// To be called after each push, or after a batch: lets the arbiter know,
    /// if the client dozes.
    ///
    /// Cost: one load of a line that is written only when the client goes to
    /// doze or comes back. If it dozes: two atomic read-modify-writes, and a
    /// system call if the arbiter sleeps.
    #[inline]
    pub fn ring(&self) {
        self.shared.barrier.light();
        let state = &self.shared.lines[self.client as usize].state;
        if state.load(Ordering::Relaxed) == self.dozing {
            self.shared.announce(self.client, self.dozing);
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
