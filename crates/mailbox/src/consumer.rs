//! The consumer's end of a mailbox.

use core::fmt;

use crate::{
    slots::{Lap, Ring, Shared, View},
    sync::{Arc, Ordering},
};

/// The end of a mailbox that values are popped from.
///
/// There is exactly one per mailbox; it can move to another thread. After it is dropped,
/// [`Producer::is_abandoned`](crate::Producer::is_abandoned) returns true; the remaining values are dropped together
/// with the producer.
///
/// ```compile_fail,E0596
/// let (_producer, consumer) = fairlane_mailbox::mailbox::<u64>(64).unwrap();
/// let shared = &consumer;
/// shared.pop();
/// ```
pub struct Consumer<T> {
    view: View<T>,
    /// The line of the next pop. The lines before it in its block are consumed but not yet released.
    line: usize,
    /// The slot of the next pop in that line, in `0..PER_LINE`.
    place: usize,
    /// The number of full slots when the line's count was last read: `place <= seen`.
    seen: usize,
    lap: Lap,
    shared: Arc<Shared<T>>,
}

impl<T> Consumer<T> {
    pub(crate) fn new(shared: Arc<Shared<T>>) -> Self {
        Self {
            view: shared.view(),
            line: 0,
            place: 0,
            seen: 0,
            lap: Lap::FIRST,
            shared,
        }
    }

    /// Removes and returns the oldest value; `None` if the mailbox is empty.
    ///
    /// Never waits. Values are returned in the order of their pushes, each once, and belong to the caller.
    ///
    /// Cost: O(1) worst case. Reads one cache line (more if a value is larger than one), and its count only after all
    /// values that the last read showed; the pop that empties a block ([`slots_per_block`]) also writes one count.
    /// PSPAT, Section 4.1.
    ///
    /// [`slots_per_block`]: crate::slots_per_block
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if !self.look() {
            return None;
        }
        // SAFETY: `look` saw the slot at `place` full, `advance` moves past it, and `shared` keeps the slots alive.
        let value = unsafe { self.view.read(self.line, self.place) };
        self.advance(self.place + 1);
        Some(value)
    }

    /// Passes at most `max` values to `each`, oldest first, and returns their number. Exactly the values that were
    /// passed are removed from the mailbox, even if `each` panics.
    ///
    /// Cost: that of as many [pops](Self::pop).
    #[inline]
    pub fn pop_batch(&mut self, max: usize, mut each: impl FnMut(T)) -> usize {
        let mut popped = 0;
        while popped < max && self.look() {
            let before = self.place;
            let end = self.seen.min(before.saturating_add(max - popped));
            let mut emptying = Emptying {
                consumer: self,
                place: before,
            };
            // Duplicated so that whole lines use a loop of constant length.
            if before == 0 && end == Ring::<T>::PER_LINE {
                emptying.empty(0, Ring::<T>::PER_LINE, &mut each);
            } else {
                emptying.empty(before, end, &mut each);
            }
            popped += end - before;
        }
        popped
    }

    /// Whether the mailbox is empty, as far as this end can see.
    ///
    /// Cost: O(1), one load at most, of the cache line that the next [`pop`](Self::pop) reads.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.place == self.seen && self.place == self.full()
    }

    /// Prefetches the cache line of the next [`pop`](Self::pop), without a wait: for a thread that reads many mailboxes
    /// in turn. A hint, on x86-64 only.
    #[inline]
    pub fn prefetch(&self) {
        self.view.prefetch(self.line);
    }

    /// Whether the slot at `place` is full.
    #[inline]
    fn look(&mut self) -> bool {
        if self.place == self.seen {
            self.seen = self.full();
        }
        self.place != self.seen
    }

    #[inline]
    fn full(&self) -> usize {
        // SAFETY: a line starts at `line`, and `shared` keeps the slots alive.
        let full = unsafe { self.view.full(self.line) };
        self.lap.full(full.load(Ordering::Acquire))
    }

    /// Moves past the slots of the line before `place`, all of them read.
    #[inline]
    fn advance(&mut self, place: usize) {
        debug_assert!(self.place < place && place <= self.seen);
        if place < Ring::<T>::PER_LINE {
            self.place = place;
            return;
        }
        let last = self.line;
        self.line = self.view.after(last, Ring::<T>::LINE_BYTES);
        self.place = 0;
        self.seen = 0;
        if self.view.starts_block(self.line) {
            // The producer reads only the count of the block's first line.
            let first = last + Ring::<T>::LINE_BYTES - Ring::<T>::BLOCK_BYTES;
            // SAFETY: a block starts at `first`, and `shared` keeps the slots
            // alive.
            let full = unsafe { self.view.full(first) };
            full.store(self.lap.next().count(0), Ordering::Release);
            if self.line == 0 {
                self.lap = self.lap.next();
            }
        }
    }

    /// Returns the number of values that always fit; the same as [`Producer::capacity`](crate::Producer::capacity).
    ///
    /// Cost: O(1), no shared memory.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.view.capacity()
    }

    /// Whether the producer was dropped.
    ///
    /// Once true it stays true, and every value ever pushed is visible: a [`pop`](Self::pop) that returns `None`
    /// *after* this returned true means that the mailbox stays empty. The other order proves nothing, since the last
    /// value may arrive in between.
    ///
    /// Cost: O(1), reads one cache line that is written only when an end is dropped.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.shared.producer_gone.load(Ordering::Acquire)
    }
}

/// A line from which a batch is being read. Dropping it moves the consumer past the slots that were read, also if a
/// closure panicked.
struct Emptying<'a, T> {
    consumer: &'a mut Consumer<T>,
    /// The slots from the consumer's place to this one are read.
    place: usize,
}

impl<T> Emptying<'_, T> {
    /// Empties the slots from `first`, which is the consumer's place, to `end`.
    #[inline(always)]
    fn empty(&mut self, first: usize, end: usize, each: &mut impl FnMut(T)) {
        // Copies, which `each` cannot change.
        let (view, line) = (self.consumer.view, self.consumer.line);
        for place in first..end {
            // SAFETY: `look` saw all slots before `end` full, the consumer moves past those that were read, and keeps
            // the slots alive.
            let value = unsafe { view.read(line, place) };
            self.place = place + 1;
            each(value);
        }
    }
}

impl<T> Drop for Emptying<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.place > self.consumer.place {
            self.consumer.advance(self.place);
        }
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        let shared = &self.shared;
        shared.last_line.store(self.line, Ordering::Relaxed);
        shared.last_place.store(self.place, Ordering::Relaxed);
        let odd = self.lap.count(0) != Lap::FIRST.count(0);
        shared.last_lap_odd.store(odd, Ordering::Relaxed);
        shared.consumer_gone.store(true, Ordering::Release);
    }
}

impl<T> fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("capacity", &self.capacity())
            .field("line", &(self.line / Ring::<T>::LINE_BYTES))
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}
