//! The end that pushes.

use core::{fmt, mem::MaybeUninit};

use crate::{
    error::Full,
    slots::{Shared, Slot, View},
    sync::{Arc, Ordering},
};

/// The end of a mailbox that values are pushed into.
///
/// There is exactly one per mailbox; it can move to another thread. Dropping it
/// tells the consumer ([`Consumer::is_abandoned`](crate::Consumer::is_abandoned))
/// and leaves the values already pushed to be popped.
///
/// ```compile_fail,E0599
/// let (producer, _consumer) = fairlane_mailbox::mailbox::<u64>(64).unwrap();
/// let second = producer.clone();
/// ```
pub struct Producer<T> {
    view: View<T>,
    /// The slot of the next push, in `0..view.len()`.
    tail: usize,
    shared: Arc<Shared<T>>,
}

impl<T> Producer<T> {
    pub(crate) fn new(shared: Arc<Shared<T>>) -> Self {
        Self {
            view: shared.view(),
            tail: 0,
            shared,
        }
    }

    /// Appends `value`, which then belongs to the mailbox until it is popped.
    ///
    /// Never waits. On an abandoned mailbox a push does what it does on any
    /// other: it succeeds while there is room, and the value is dropped with
    /// the mailbox, when this end goes too. To look at each push would cost a
    /// load for an event that happens once; see
    /// [`is_abandoned`](Self::is_abandoned).
    ///
    /// Cost: O(1) worst case. Writes one cache line (more if a slot is larger
    /// than one), and reads one flag of another every [`slots_per_line`]
    /// pushes and on each refused one. PSPAT, Section 4.1.
    ///
    /// # Errors
    ///
    /// [`Full`] gives the value back. It cannot happen while fewer than
    /// [`capacity`](Self::capacity) values wait.
    ///
    /// [`slots_per_line`]: crate::slots_per_line
    #[inline]
    pub fn push(&mut self, value: T) -> Result<(), Full<T>> {
        let tail = self.tail;
        if self.view.starts_line(tail) && !self.next_line_is_free() {
            return Err(Full(value));
        }
        // SAFETY: `tail` is in range, and `shared` keeps the slots alive.
        let slot = unsafe { self.view.slot(tail) };
        debug_assert!(!slot.full.load(Ordering::Relaxed));
        // SAFETY: the check made on entering this line proved all of it free,
        // and ordered the consumer's reads before this write; the consumer
        // does not look at the value before the flag is set.
        slot.value
            .with_mut(|place| unsafe { place.write(MaybeUninit::new(value)) });
        slot.full.store(true, Ordering::Release);
        self.tail = self.view.after(tail, 1);
        Ok(())
    }

    /// Appends values from `values` until there is no room or no value left, and
    /// returns how many. A value that does not fit is never taken from `values`.
    ///
    /// Cost: that of so many [pushes](Self::push).
    pub fn push_batch(&mut self, values: &mut impl Iterator<Item = T>) -> usize {
        let mut pushed = 0;
        while !self.view.starts_line(self.tail) || self.next_line_is_free() {
            let Some(value) = values.next() else { break };
            let accepted = self.push(value);
            debug_assert!(accepted.is_ok());
            pushed += 1;
        }
        pushed
    }

    /// Looks one line ahead of `tail`. Lines are released in ring order, so
    /// the answer holds for the line at `tail` too.
    #[inline]
    fn next_line_is_free(&self) -> bool {
        let first = self.view.after(self.tail, Slot::<T>::PER_LINE);
        // SAFETY: `first` is in range, and `shared` keeps the slots alive.
        let slot = unsafe { self.view.slot(first) };
        !slot.full.load(Ordering::Acquire)
    }

    /// How many values can wait before a push may be refused: `N - 2L + 1`,
    /// for `N` slots in lines of `L`. Up to `L - 1` more may be accepted; see
    /// the [crate documentation](crate#effective-capacity).
    ///
    /// Cost: O(1), no shared memory.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.view.capacity()
    }

    /// Whether the consumer was dropped.
    ///
    /// Once true it stays true: nothing pushed from now on will be popped, and
    /// all that the consumer did happened before.
    ///
    /// Cost: O(1), reads one cache line that is written only when an end is
    /// dropped.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.shared.consumer_gone.load(Ordering::Acquire)
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
            .field("slots", &self.view.len())
            .field("tail", &self.tail)
            .finish_non_exhaustive()
    }
}
