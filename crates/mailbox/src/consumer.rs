//! The end that pops.

use core::fmt;

use crate::{
    slots::{Shared, Slot, View},
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
    /// The slot of the next pop, in `0..view.len()`. The slots before it in
    /// its line are consumed but still flagged full.
    head: usize,
    shared: Arc<Shared<T>>,
}

impl<T> Consumer<T> {
    pub(crate) fn new(shared: Arc<Shared<T>>) -> Self {
        Self {
            view: shared.view(),
            head: 0,
            shared,
        }
    }

    /// Takes the oldest value out; `None` if nothing waits.
    ///
    /// Never waits. Values come in the order in which they were pushed, each
    /// once, and belong to the caller.
    ///
    /// Cost: O(1), amortised: reads one cache line (more if a slot is larger
    /// than one); the pop that empties a line also writes that line, clearing
    /// its [`slots_per_line`] flags, 64 at most. PSPAT, Section 4.1.
    ///
    /// [`slots_per_line`]: crate::slots_per_line
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        let head = self.head;
        // SAFETY: `head` is in range, and `shared` keeps the slots alive.
        let slot = unsafe { self.view.slot(head) };
        if !slot.full.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: the flag is set, so the value was written, and the load
        // ordered that write before this read. Moving `head` on makes this the
        // only read, and the producer does not write before the line is
        // released.
        let value = slot
            .value
            .with(|place| unsafe { place.read().assume_init() });
        self.head = self.view.after(head, 1);
        if self.view.starts_line(self.head) {
            self.release(head & !(Slot::<T>::PER_LINE - 1));
        }
        Some(value)
    }

    /// Hands at most `max` values to `each`, oldest first, and returns how many.
    ///
    /// Cost: that of so many [pops](Self::pop).
    pub fn pop_batch(&mut self, max: usize, mut each: impl FnMut(T)) -> usize {
        let mut popped = 0;
        while popped < max {
            let Some(value) = self.pop() else { break };
            popped += 1;
            each(value);
        }
        popped
    }

    /// Whether nothing waits, as far as this end can see.
    ///
    /// Cost: O(1), one load of the cache line that the next [`pop`](Self::pop) reads.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        // SAFETY: `head` is in range, and `shared` keeps the slots alive.
        let slot = unsafe { self.view.slot(self.head) };
        !slot.full.load(Ordering::Acquire)
    }

    /// Asks the processor to bring the cache line of the next [`pop`](Self::pop)
    /// close, without waiting for it. A hint, on x86-64 only.
    #[inline]
    pub fn prefetch(&self) {
        #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
        {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: `head` is in range, and `shared` keeps the slots alive.
            let slot = unsafe { self.view.slot(self.head) };
            // SAFETY: a prefetch reads nothing, and the address is of a slot.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(slot).cast()) };
        }
    }

    /// Gives the line that starts at `line` back to the producer, which looks
    /// at its first flag alone: that one is cleared last.
    #[inline]
    fn release(&self, line: usize) {
        debug_assert!(self.view.starts_line(line));
        for place in 1..Slot::<T>::PER_LINE {
            // SAFETY: in the line of a position that was in range, and
            // `shared` keeps the slots alive.
            let slot = unsafe { self.view.slot(line + place) };
            slot.full.store(false, Ordering::Relaxed);
        }
        // SAFETY: as above.
        let first = unsafe { self.view.slot(line) };
        first.full.store(false, Ordering::Release);
    }

    /// How many values can wait before a push may be refused; the same as
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

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        self.shared.last_head.store(self.head, Ordering::Relaxed);
        self.shared.consumer_gone.store(true, Ordering::Release);
    }
}

impl<T> fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("slots", &self.view.len())
            .field("head", &self.head)
            .finish_non_exhaustive()
    }
}
