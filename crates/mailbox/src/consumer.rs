//! The end that pops.

use core::fmt;

use crate::{
    slots::{Lap, Ring, Shared, View},
    sync::{Arc, Ordering},
};

/// The end of a mailbox that values are popped from.
///
/// There is exactly one per mailbox; it can move to another thread. Dropping it
/// tells the producer ([`Producer::is_abandoned`](crate::Producer::is_abandoned));
/// the values still waiting are dropped when the producer goes too.
///
/// ```compile_fail,E0596
/// let (_producer, consumer) = fairlane_mailbox::mailbox::<u64>(64).unwrap();
/// let shared = &consumer;
/// shared.pop();
/// ```
pub struct Consumer<T> {
    view: View<T>,
    /// The line of the next pop. The lines before it in its block are consumed
    /// but not yet given back.
    line: usize,
    /// The slot of the next pop in that line, in `0..PER_LINE`.
    place: usize,
    /// How many slots of the line were full when it was last looked at:
    /// `place <= seen`.
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

    /// Takes the oldest value out; `None` if nothing waits.
    ///
    /// Never waits. Values come in the order in which they were pushed, each
    /// once, and belong to the caller.
    ///
    /// Cost: O(1) worst case. Reads one cache line (more if a value is larger
    /// than one), and the count in it only after all that the last look at it
    /// showed; the pop that empties a block ([`slots_per_block`]) also writes
    /// one count. PSPAT, Section 4.1.
    ///
    /// [`slots_per_block`]: crate::slots_per_block
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if !self.look() {
            return None;
        }
        // SAFETY: `look` saw the slot at `place` full, `advance` passes it, and
        // `shared` keeps the slots alive.
        let value = unsafe { self.view.read(self.line, self.place) };
        self.advance(self.place + 1);
        Some(value)
    }

    /// Hands at most `max` values to `each`, oldest first, and returns how many.
    /// A value that was handed over is out of the mailbox, and no other is,
    /// even if `each` panics.
    ///
    /// Cost: that of so many [pops](Self::pop).
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
            // The same twice: whole lines in a loop of a constant length.
            if before == 0 && end == Ring::<T>::PER_LINE {
                emptying.empty(0, Ring::<T>::PER_LINE, &mut each);
            } else {
                emptying.empty(before, end, &mut each);
            }
            popped += end - before;
        }
        popped
    }

    /// Whether nothing waits, as far as this end can see.
    ///
    /// Cost: O(1), one load at most, of the cache line that the next
    /// [`pop`](Self::pop) reads.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.place == self.seen && self.place == self.full()
    }

    /// Asks the processor to bring the cache line of the next [`pop`](Self::pop)
    /// close, and does not wait for it: for a thread that reads many mailboxes
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

    /// Passes the slots of the line before `place`, all of them read.
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
            // The producer looks at the count of the block's first line alone.
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

    /// How many values can always wait; the same as
    /// [`Producer::capacity`](crate::Producer::capacity).
    ///
    /// Cost: O(1), no shared memory.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.view.capacity()
    }

    /// Whether the producer was dropped.
    ///
    /// Once true it stays true, and every value ever pushed is in sight: a
    /// [`pop`](Self::pop) that returns `None` *after* this returned true means
    /// that the mailbox is empty for ever. The other order proves nothing, as
    /// the last value may arrive in between.
    ///
    /// Cost: O(1), reads one cache line that is written only when an end is
    /// dropped.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.shared.producer_gone.load(Ordering::Acquire)
    }
}

/// A line that a batch is being read from. The consumer passes what was read
/// when it goes, be it because a closure panicked.
struct Emptying<'a, T> {
    consumer: &'a mut Consumer<T>,
    /// The slots from the consumer's place to this one are read.
    place: usize,
}

impl<T> Emptying<'_, T> {
    /// Empties the slots from `first`, which is the consumer's place, to `end`.
    #[inline(always)]
    fn empty(&mut self, first: usize, end: usize, each: &mut impl FnMut(T)) {
        // Copies, which nothing that `each` does can change.
        let (view, line) = (self.consumer.view, self.consumer.line);
        for place in first..end {
            // SAFETY: `look` saw all slots before `end` full, the consumer
            // passes those that were read, and keeps the slots alive.
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
