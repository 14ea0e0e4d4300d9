//! The set of rung clients, with a flag in the same word that says whether the arbiter sleeps.
//!
//! A bitmap in two levels: a bit for each client in a *leaf*, and in the *top* word a bit for each group of leaves, to
//! which leaves belong in rotation. A client sets the first bit, then the second; the arbiter takes the top word first
//! and then the leaves of its groups. A client that is preempted between the two delays no other: each client sets its
//! group's bit itself, whether or not it is set already.
//!
//! The top word also has the sleep flag, so no fence is needed between ringing and testing the flag, or between setting
//! the flag and testing for rings. The client that adds a bit to a word with only the sleep flag wakes the arbiter: one
//! client per sleep, since the next one finds that bit.

use core::time::Duration;

use super::growing::Growing;
use super::park::Park;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

// A futex has 32 bits: the top word.
const ASLEEP: u32 = 1 << 31;
const NUDGED: u32 = 1 << 30;
/// The other bits, one for each group of leaves. Under loom three clients suffice for leaves that share a group, and
/// clients that share a leaf.
const GROUPS: u32 = if cfg!(loom) { 1 } else { NUDGED - 1 };
const LEAF: u32 = if cfg!(loom) { 2 } else { u64::BITS };

/// A bit for each of `LEAF` clients, on a cache line that clients of other leaves do not write.
#[derive(Debug)]
#[repr(align(64))]
struct Leaf(AtomicU64);

const WAYS: u32 = GROUPS.count_ones();

#[repr(align(64))]
pub(super) struct Rung {
    top: AtomicU32,
    /// The leaves of all clients with a ringer.
    leaves: Growing<Leaf, WAYS>,
    wakes: AtomicU64,
    park: Park,
}

/// The result of a sleep.
pub(super) struct Found {
    pub(super) rung: bool,
    pub(super) nudged: bool,
}

impl Rung {
    pub(super) fn new() -> Self {
        Self {
            top: AtomicU32::new(0),
            leaves: Growing::new(),
            wakes: AtomicU64::new(0),
            park: Park::new(),
        }
    }

    /// Creates the leaf of a client if it does not exist.
    pub(super) fn make(&self, client: u32) {
        self.leaves.make(client / LEAF, || Leaf(AtomicU64::new(0)));
    }

    /// Adds a client whose leaf exists, and wakes the arbiter if it sleeps.
    pub(super) fn insert(&self, client: u32) {
        let (number, bit) = (client / LEAF, 1 << (client % LEAF));
        // Release, as in `add`: the arbiter sees the pushed values through either of the two bits.
        if let Some(leaf) = self.leaves.get(number) {
            leaf.0.fetch_or(bit, Ordering::Release);
        }
        self.add(1 << (number % WAYS));
    }

    /// Wakes the arbiter if it sleeps; otherwise ends its next sleep.
    pub(super) fn nudge(&self) {
        self.add(NUDGED);
    }

    fn add(&self, bit: u32) {
        if self.top.fetch_or(bit, Ordering::Release) == ASLEEP {
            self.wakes.fetch_add(1, Ordering::Relaxed);
            self.park.wake(&self.top);
        }
    }

    /// Whether the client is in the set. Unspecified for a client that is being added.
    pub(super) fn contains(&self, client: u32) -> bool {
        let (number, bit) = (client / LEAF, 1 << (client % LEAF));
        let leaf = self.leaves.get(number);
        leaf.is_some_and(|leaf| leaf.0.load(Ordering::Relaxed) & bit != 0)
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.top.load(Ordering::Relaxed) & GROUPS == 0
    }

    /// Empties the set into `each`; a nudge stays.
    #[inline(never)]
    pub(super) fn take_all(&self, mut each: impl FnMut(u32)) {
        let mut groups = self.top.fetch_and(NUDGED, Ordering::Acquire) & GROUPS;
        while groups != 0 {
            let first = groups.trailing_zeros();
            groups &= groups - 1;
            for number in (first..).step_by(WAYS as usize) {
                let Some(leaf) = self.leaves.get(number) else {
                    break;
                };
                // With few clients the first leaf is alone in its group, and the reason why the group's bit was set.
                if number >= WAYS && leaf.0.load(Ordering::Relaxed) == 0 {
                    continue;
                }
                let mut clients = leaf.0.swap(0, Ordering::Acquire);
                while clients != 0 {
                    each(number * LEAF + clients.trailing_zeros());
                    clients &= clients - 1;
                }
            }
        }
    }

    /// Sleeps until a bit is set, or for `longest`. Clears the nudge.
    pub(super) fn sleep(&self, longest: Option<Duration>) -> Found {
        // Fails if a bit is set. The next line provides the order.
        let asleep = self
            .top
            .compare_exchange(0, ASLEEP, Ordering::Relaxed, Ordering::Relaxed);
        if asleep.is_ok() {
            self.park.wait(&self.top, ASLEEP, longest);
        }
        // Acquire: sees all writes before a nudge.
        let found = self.top.fetch_and(GROUPS, Ordering::Acquire);
        Found {
            rung: found & GROUPS != 0,
            nudged: found & NUDGED != 0,
        }
    }

    pub(super) fn wakes(&self) -> u64 {
        self.wakes.load(Ordering::Relaxed)
    }
}
