//! The set of rung clients, and in the same word whether the arbiter sleeps.
//!
//! A stack of client numbers, linked through the clients' lines. Whoever rings
//! puts itself on top; the arbiter takes the whole stack by one swap, so there
//! is nothing to be popped and no ABA. The top can also say that the stack is
//! empty and the arbiter asleep: who changes that, one client only, wakes it.

use core::time::Duration;

use super::{Line, MOST_CLIENTS, park::Park};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

const EMPTY: u32 = u32::MAX;
const ASLEEP: u32 = u32::MAX - 1;
// The line after the last client's, for nudges, is a number like the others.
const _: () = assert!(MOST_CLIENTS < ASLEEP);

#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Rung {
    /// Who rang last, `EMPTY` or `ASLEEP`.
    top: AtomicU32,
    wakes: AtomicU64,
    park: Park,
}

impl Rung {
    pub(super) fn new() -> Self {
        Self {
            top: AtomicU32::new(EMPTY),
            wakes: AtomicU64::new(0),
            park: Park::new(),
        }
    }

    /// Adds a client that is not in the set, and wakes the arbiter if it
    /// sleeps. Tries again only when another client has come in between.
    pub(super) fn insert(&self, lines: &[Line], client: u32) {
        let next = &lines[client as usize].next;
        let mut top = self.top.load(Ordering::Relaxed);
        loop {
            next.store(if top == ASLEEP { EMPTY } else { top }, Ordering::Relaxed);
            // Release: the arbiter sees the link, and what was pushed. Later
            // insertions continue the release sequence.
            match self
                .top
                .compare_exchange_weak(top, client, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => break,
                Err(now) => top = now,
            }
        }
        if top == ASLEEP {
            self.wakes.fetch_add(1, Ordering::Relaxed);
            self.park.wake(&self.top);
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.top.load(Ordering::Relaxed) == EMPTY
    }

    /// Empties the set, the latest first.
    pub(super) fn take_all(&self, lines: &[Line], mut each: impl FnMut(u32)) {
        let mut client = self.top.swap(EMPTY, Ordering::Acquire);
        while client < ASLEEP {
            // Read before `each`, which may let the client ring again.
            let next = lines[client as usize].next.load(Ordering::Relaxed);
            each(client);
            client = next;
        }
    }

    /// Sleeps until the set is not empty, or `longest` is over.
    pub(super) fn wait(&self, longest: Option<Duration>) {
        // Nothing is ordered by it: `take_all` comes next.
        let slept = self
            .top
            .compare_exchange(EMPTY, ASLEEP, Ordering::Relaxed, Ordering::Relaxed);
        if slept.is_ok() {
            self.park.wait(&self.top, ASLEEP, longest);
        }
    }

    pub(super) fn wakes(&self) -> u64 {
        self.wakes.load(Ordering::Relaxed)
    }
}
