//! The set of rung clients, and in the same place whether the arbiter sleeps.
//!
//! A bitmap in two levels: a bit for each client in a *leaf*, and in the *top*
//! word a bit for each group of leaves, to which leaves belong in turns. A client sets the one, then the other;
//! the arbiter takes the top word first and then the leaves it names. A client
//! that is preempted between the two keeps nobody waiting: each sets its group's
//! bit itself, whoever was there before.
//!
//! The top word also says that the arbiter sleeps, so that no fence is needed
//! between "I ring" and "does it sleep?", or between "I sleep" and "did anybody
//! ring?". Whoever adds a bit to a word that says nothing but "asleep" wakes the
//! arbiter: one for each sleep, as the next already finds that bit.

use core::time::Duration;

use super::growing::Growing;
use super::park::Park;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

// A futex watches 32 bits: the top word's.
const ASLEEP: u32 = 1 << 31;
const NUDGED: u32 = 1 << 30;
/// The other bits, one for each group of leaves. A model has leaves that share a
/// group, and clients that share a leaf, with three clients.
const GROUPS: u32 = if cfg!(loom) { 1 } else { NUDGED - 1 };
const LEAF: u32 = if cfg!(loom) { 2 } else { u64::BITS };

/// A bit for each of `LEAF` clients, on a line that those of other leaves do not write.
#[derive(Debug)]
#[repr(align(64))]
struct Leaf(AtomicU64);

const WAYS: u32 = GROUPS.count_ones();

#[repr(align(64))]
pub(super) struct Rung {
    top: AtomicU32,
    /// As many as clients need that were given a ringer.
    leaves: Growing<Leaf, WAYS>,
    wakes: AtomicU64,
    park: Park,
}

/// What a sleeper found when it woke.
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

    /// Sees to it that there is a place for a client.
    pub(super) fn make(&self, client: u32) {
        self.leaves.make(client / LEAF, || Leaf(AtomicU64::new(0)));
    }

    /// Adds a client that a place was made for, and wakes the arbiter if it sleeps.
    pub(super) fn insert(&self, client: u32) {
        let (number, bit) = (client / LEAF, 1 << (client % LEAF));
        // Release, as in `add`: the arbiter sees what was pushed, whichever of
        // the two bits it learns it from.
        if let Some(leaf) = self.leaves.get(number) {
            leaf.0.fetch_or(bit, Ordering::Release);
        }
        self.add(1 << (number % WAYS));
    }

    /// Wakes the arbiter if it sleeps, or else ends its next sleep.
    pub(super) fn nudge(&self) {
        self.add(NUDGED);
    }

    fn add(&self, bit: u32) {
        if self.top.fetch_or(bit, Ordering::Release) == ASLEEP {
            self.wakes.fetch_add(1, Ordering::Relaxed);
            self.park.wake(&self.top);
        }
    }

    /// Whether the client waits to be given. Says nothing of one that is being
    /// added.
    pub(super) fn contains(&self, client: u32) -> bool {
        let (number, bit) = (client / LEAF, 1 << (client % LEAF));
        let leaf = self.leaves.get(number);
        leaf.is_some_and(|leaf| leaf.0.load(Ordering::Relaxed) & bit != 0)
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.top.load(Ordering::Relaxed) & GROUPS == 0
    }

    /// Empties the set; a nudge stays.
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
                // The first is alone in its group as long as there are few, and then why the
                // group's bit was set.
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

    /// Sleeps until a bit is set, or `longest` is over. Takes the nudge out.
    pub(super) fn sleep(&self, longest: Option<Duration>) -> Found {
        // Fails if there is a bit already. Orders nothing: the next line does.
        let asleep = self
            .top
            .compare_exchange(0, ASLEEP, Ordering::Relaxed, Ordering::Relaxed);
        if asleep.is_ok() {
            self.park.wait(&self.top, ASLEEP, longest);
        }
        // Acquire: what was done before a nudge is seen.
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
