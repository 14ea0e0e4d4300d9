//! Ceilings without timers: when exactly a class may send again.
//!
//! A ceiling is a token bucket, kept as the time at which the bucket will be full, which is when a leaky bucket of the
//! sent bytes is empty: each packet postpones that by its transmission time at the ceiling's rate. A class may send
//! from `full - slack` on, where the slack is the time in which the tokens of the burst beyond one longest packet flow
//! in.
//!
//! All classes that have something to send and may not lie in one heap by that
//! time, each once. So the next release of all is known at O(1), and holding and releasing
//! cost O(log n) in the number held.

use crate::grow::{self, Slab};
use crate::leaky_bucket::LeakyBucket;
use crate::units::{Length, Nanos};
use alloc::vec::Vec;

use super::config::Ceiling;

/// No ceiling, and no place in the heap.
pub(super) const NONE: u32 = u32::MAX;

/// Billionths of a bit in a byte: a rate of R bit/s moves R of them in a nanosecond.
const SCALE: u128 = 8 * 1_000_000_000;

/// Children of a heap entry.
const ARITY: usize = 4;

/// The ceiling of one class.
#[derive(Clone, Debug)]
struct Bucket {
    /// The bytes sent; the ceiling's tokens are full when it is empty.
    sent: LeakyBucket,
    /// The time before that from which the class may send.
    slack: Nanos,
    /// Where it is in the heap.
    heap_at: u32,
    /// The class: node and slot.
    owner: (u32, u32),
}

/// All ceilings of a tree, and the classes and flows that they hold.
#[derive(Clone, Debug, Default)]
pub(super) struct Ceilings {
    buckets: Slab<Bucket>,
    /// Release times and ceilings, the earliest first.
    heap: Vec<(Nanos, u32)>,
}

/// Returns the time in which the tokens of a burst beyond one longest packet flow in: rounded down, since a class must
/// not send before.
fn slack(ceiling: Ceiling, longest: Length) -> Nanos {
    let beyond = ceiling.burst.saturating_sub(longest.get());
    let span = u128::from(beyond) * SCALE / u128::from(ceiling.rate.bps());
    Nanos(u64::try_from(span).unwrap_or(u64::MAX))
}

impl Ceilings {
    /// A ceiling with a full bucket for the class at `owner`, node and slot.
    pub(super) fn add(&mut self, ceiling: Ceiling, longest: Length, owner: (u32, u32)) -> u32 {
        let bucket = Bucket {
            sent: LeakyBucket::new(ceiling.rate, Nanos::ZERO),
            slack: slack(ceiling, longest),
            heap_at: NONE,
            owner,
        };
        self.buckets.insert(bucket)
    }

    /// Replaces the ceiling of the same class, which keeps its debt in bytes.
    pub(super) fn change(&mut self, at: u32, ceiling: Ceiling, longest: Length, now: Nanos) {
        let bucket = &mut self.buckets[at as usize];
        bucket.sent.change_rate(ceiling.rate, now);
        bucket.slack = slack(ceiling, longest);
        if bucket.heap_at != NONE {
            let hole = bucket.heap_at as usize;
            let entry = (self.release_at(at), at);
            self.settle(hole, entry);
        }
    }

    /// Removes the ceiling; returns whether it held its class, which is then free.
    pub(super) fn remove(&mut self, at: u32) -> bool {
        let held = self.is_held(at);
        self.let_go(at);
        self.buckets.release(at);
        held
    }

    /// Records the new place, node and slot, of the class; it stays held if it was.
    pub(super) fn set_owner(&mut self, at: u32, owner: (u32, u32)) {
        self.buckets[at as usize].owner = owner;
    }

    /// The class is not held any more, if it was.
    pub(super) fn let_go(&mut self, at: u32) {
        if self.is_held(at) {
            self.take_out(self.buckets[at as usize].heap_at as usize);
        }
    }

    /// The class sent a packet. O(1).
    #[inline]
    pub(super) fn charge(&mut self, at: u32, len: Length, now: Nanos) {
        let sent = &mut self.buckets[at as usize].sent;
        // Whole nanoseconds: a class that waited for a full bucket is released a fraction of one late, which must not
        // cost it anything.
        if sent.empty_by() < now {
            sent.restart(now);
        }
        sent.charge(len);
    }

    /// From when on the class may send.
    #[inline]
    pub(super) fn release_at(&self, at: u32) -> Nanos {
        let bucket = &self.buckets[at as usize];
        bucket.sent.empty_by() - bucket.slack
    }

    /// Returns whether the class owes nothing, as if it had never sent.
    pub(super) fn is_full(&self, at: u32, now: Nanos) -> bool {
        let bucket = &self.buckets[at as usize];
        bucket.sent.empty_at() < now && bucket.heap_at == NONE
    }

    /// Returns whether the class is in the heap.
    #[inline]
    pub(super) fn is_held(&self, at: u32) -> bool {
        self.buckets[at as usize].heap_at != NONE
    }

    /// Holds a class that has something to send, if it may not send yet: whether it does.
    #[inline]
    pub(super) fn hold(&mut self, at: u32, now: Nanos) -> bool {
        let release = self.release_at(at);
        if release <= now {
            return false;
        }
        debug_assert!(!self.is_held(at), "it had a place in the order");
        grow::push(&mut self.heap, (release, at));
        self.rise(self.heap.len() - 1, (release, at));
        true
    }

    /// When the first of those held may send. O(1).
    #[inline]
    pub(super) fn first(&self) -> Option<Nanos> {
        self.heap.first().map(|&(time, _)| time)
    }

    /// Takes a class out that may send at `now`: its node and slot. O(log n).
    #[inline]
    pub(super) fn release(&mut self, now: Nanos) -> Option<(u32, u32)> {
        let &(time, at) = self.heap.first()?;
        if time > now {
            return None;
        }
        self.take_out(0);
        Some(self.buckets[at as usize].owner)
    }

    /// Removes the entry that may send first, whatever the time, and cancels its debt; returns its node and slot. O(log
    /// n).
    pub(super) fn free_first(&mut self, now: Nanos) -> Option<(u32, u32)> {
        let &(_, at) = self.heap.first()?;
        self.take_out(0);
        let bucket = &mut self.buckets[at as usize];
        bucket.sent.restart(now);
        Some(bucket.owner)
    }

    /// Removes the entry at `hole`.
    fn take_out(&mut self, hole: usize) {
        let Some(last) = self.heap.pop() else { return };
        match self.heap.get(hole) {
            Some(&(_, gone)) => {
                self.buckets[gone as usize].heap_at = NONE;
                self.settle(hole, last);
            }
            None => self.buckets[last.1 as usize].heap_at = NONE,
        }
    }

    fn place(&mut self, hole: usize, entry: (Nanos, u32)) {
        self.heap[hole] = entry;
        self.buckets[entry.1 as usize].heap_at = hole as u32;
    }

    /// Puts an entry where it belongs, up or down from `hole`.
    fn settle(&mut self, hole: usize, entry: (Nanos, u32)) {
        let hole = self.sink(hole, entry);
        self.rise(hole, entry);
    }

    fn rise(&mut self, mut hole: usize, entry: (Nanos, u32)) {
        while hole > 0 {
            let parent = (hole - 1) / ARITY;
            let above = self.heap[parent];
            if above.0 <= entry.0 {
                break;
            }
            self.place(hole, above);
            hole = parent;
        }
        self.place(hole, entry);
    }

    /// Moves earlier entries up and returns the hole for this entry.
    fn sink(&mut self, mut hole: usize, entry: (Nanos, u32)) -> usize {
        loop {
            let first = ARITY * hole + 1;
            let children = self.heap.iter().enumerate().skip(first).take(ARITY);
            match children.min_by_key(|(_, child)| child.0) {
                Some((n, &child)) if child.0 < entry.0 => {
                    self.place(hole, child);
                    hole = n;
                }
                _ => return hole,
            }
        }
    }

    /// Classes that are held.
    pub(super) fn held(&self) -> usize {
        self.heap.len()
    }

    /// Returns whether the heap order holds and every place in it is recorded in its ceiling.
    pub(super) fn is_sound(&self) -> bool {
        let entries = self.heap.iter().enumerate();
        let mut entries = entries.map(|(n, &(time, at))| {
            time >= self.heap[n.saturating_sub(1) / ARITY].0
                && self.buckets[at as usize].heap_at == n as u32
        });
        entries.all(|sound| sound)
    }
}
