//! The producer's end of a mailbox.

use core::fmt;

use crate::{
    error::Full,
    slots::{Lap, Ring, Shared, View, is_free},
    sync::{Arc, Ordering},
};

/// The end of a mailbox that values are pushed into.
///
/// There is exactly one per mailbox; it can move to another thread. After it is dropped,
/// [`Consumer::is_abandoned`](crate::Consumer::is_abandoned) returns true, and the values already pushed can still be
/// popped.
///
/// ```compile_fail,E0599
/// let (producer, _consumer) = fairlane_mailbox::mailbox::<u64>(64).unwrap();
/// let second = producer.clone();
/// ```
pub struct Producer<T> {
    view: View<T>,
    /// The line of the next push.
    line: usize,
    /// The slot of the next push in that line, in `0..PER_LINE`; the slots before it are full, or consumed and not yet
    /// released.
    place: usize,
    lap: Lap,
    shared: Arc<Shared<T>>,
}

impl<T> Producer<T> {
    pub(crate) fn new(shared: Arc<Shared<T>>) -> Self {
        Self {
            view: shared.view(),
            line: 0,
            place: 0,
            lap: Lap::FIRST,
            shared,
        }
    }

    /// Appends `value`, which then belongs to the mailbox until it is popped.
    ///
    /// Never waits. On an abandoned mailbox a push works as on any other: it succeeds while there is room, and the
    /// value is dropped with this end. A check at each push would cost a load for an event that happens once; see
    /// [`is_abandoned`](Self::is_abandoned).
    ///
    /// Cost: O(1) worst case. Writes one cache line (more if a value is larger than one), and reads the count of
    /// another every [`slots_per_block`] pushes and on each rejected one. PSPAT, Section 4.1.
    ///
    /// # Errors
    ///
    /// [`Full`] returns the value. It cannot happen while fewer than [`capacity`](Self::capacity) values are queued.
    ///
    /// [`slots_per_block`]: crate::slots_per_block
    #[inline]
    pub fn push(&mut self, value: T) -> Result<(), Full<T>> {
        if !self.has_room() {
            return Err(Full(value));
        }
        // SAFETY: `has_room`, nothing at or after `place` is published, and
        // `shared` keeps the slots alive.
        unsafe { self.view.write(self.line, self.place, value) };
        self.publish(self.place + 1);
        Ok(())
    }

    /// Appends values from `values` until there is no room or they end, and returns their number. A value for which
    /// there is no room is not taken from `values`, and every value that was taken is in the mailbox, even if `values`
    /// panics at a later one.
    ///
    /// Cost: that of as many [pushes](Self::push), but each cache line is published once: the consumer sees the values
    /// of a line together.
    #[inline]
    pub fn push_batch(&mut self, values: &mut impl Iterator<Item = T>) -> usize {
        let mut pushed = 0;
        while self.has_room() {
            let before = self.place;
            let mut filling = Filling {
                producer: self,
                place: before,
            };
            // Duplicated so that whole lines use a loop of constant length.
            if before == 0 {
                filling.fill(0, values);
            } else {
                filling.fill(before, values);
            }
            let ended = filling.place < Ring::<T>::PER_LINE;
            pushed += filling.place - before;
            drop(filling);
            if ended {
                break;
            }
        }
        pushed
    }

    /// Whether there is a free slot at `place`. Inside a block there always is; at its start this checks the next
    /// block. Blocks are released in ring order, so the answer holds for the block about to be entered too.
    #[inline]
    fn has_room(&self) -> bool {
        if self.place > 0 || !self.view.starts_block(self.line) {
            return true;
        }
        let next = self.view.after(self.line, Ring::<T>::BLOCK_BYTES);
        // SAFETY: a line starts at `next`, and `shared` keeps the slots alive.
        let full = unsafe { self.view.full(next) };
        is_free(full.load(Ordering::Acquire))
    }

    /// Publishes the slots of the line before `place`, all of them written.
    #[inline]
    fn publish(&mut self, place: usize) {
        debug_assert!(self.place < place && place <= Ring::<T>::PER_LINE);
        // SAFETY: a line starts at `line`, and `shared` keeps the slots alive.
        let full = unsafe { self.view.full(self.line) };
        full.store(self.lap.count(place), Ordering::Release);
        if place < Ring::<T>::PER_LINE {
            self.place = place;
        } else {
            self.line = self.view.after(self.line, Ring::<T>::LINE_BYTES);
            self.place = 0;
            if self.line == 0 {
                self.lap = self.lap.next();
            }
        }
    }

    /// Returns the number of values that always fit: while fewer are queued, a push succeeds. At least the requested
    /// number of slots; some more may be accepted, see the [crate documentation](crate#capacity).
    ///
    /// Cost: O(1), no shared memory.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.view.capacity()
    }

    /// Whether the consumer was dropped.
    ///
    /// Once true it stays true: no value pushed from now on will be popped, and all operations of the consumer happened
    /// before.
    ///
    /// Cost: O(1), reads one cache line that is written only when an end is dropped.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.shared.consumer_gone.load(Ordering::Acquire)
    }
}

/// A line to which a batch is being written. Dropping it publishes the written values, also if an iterator panicked.
struct Filling<'a, T> {
    producer: &'a mut Producer<T>,
    /// The slots from the producer's place to this one are written.
    place: usize,
}

impl<T> Filling<'_, T> {
    /// Fills the slots from `first`, which is the producer's place.
    #[inline(always)]
    fn fill(&mut self, first: usize, values: &mut impl Iterator<Item = T>) {
        // Copies, which no store to a slot can change.
        let (view, line) = (self.producer.view, self.producer.line);
        for place in first..Ring::<T>::PER_LINE {
            let Some(value) = values.next() else { break };
            // SAFETY: `has_room`, nothing at or after the producer's place is
            // published, and the producer keeps the slots alive.
            unsafe { view.write(line, place, value) };
            self.place = place + 1;
        }
    }
}

impl<T> Drop for Filling<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.place > self.producer.place {
            self.producer.publish(self.place);
        }
    }
}

impl<T> Drop for Producer<T> {
    fn drop(&mut self) {
        self.shared.producer_gone.store(true, Ordering::Release);
    }
}

impl<T> fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer")
            .field("capacity", &self.capacity())
            .field("line", &(self.line / Ring::<T>::LINE_BYTES))
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}
