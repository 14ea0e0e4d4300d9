//! Waiting of an asynchronous producer for room in its mailbox.

use core::{
    fmt,
    task::{Context, Poll},
};

use crate::sync::{AtomicBool, AtomicWaker, Ordering, fence, register};

/// The waker of a mailbox's producer: the producer stores it when the mailbox is full, and the consumer wakes it after
/// it has made room.
///
/// Each side writes, fences (`SeqCst`) and reads: the producer sets `waiting` and checks the mailbox, the consumer
/// frees slots and reads `waiting`. So either the producer sees the room or the consumer sees that it waits. If the
/// consumer wakes before the waker is stored, the order of the waker's own state makes the producer's later check see
/// the room.
///
/// ```
/// use std::task::{Context, Poll, Waker};
///
/// use fairlane_mailbox::{Full, Room, mailbox};
///
/// let (mut producer, mut consumer) = mailbox::<u64>(2)?;
/// let room = Room::new();
/// let mut task = Context::from_waker(Waker::noop());
///
/// // A task pushes until a value comes back, and waits for room for that one.
/// let mut left = (0..).find_map(|number| producer.push(number).err());
/// let mut still_full = || {
///     left = left.take().and_then(|Full(number)| producer.push(number).err());
///     left.is_some()
/// };
/// assert_eq!(room.poll_room(&mut task, &mut still_full), Poll::Pending);
///
/// // The consumer reports that it has made room: the task is woken, and tries again.
/// consumer.pop_batch(usize::MAX, |number| println!("{number}"));
/// room.freed();
/// assert_eq!(room.poll_room(&mut task, &mut still_full), Poll::Ready(()));
/// # Ok::<(), fairlane_mailbox::CapacityError>(())
/// ```
pub struct Room {
    waiting: AtomicBool,
    waker: AtomicWaker,
}

impl Room {
    /// Creates it with no producer waiting.
    #[must_use]
    pub fn new() -> Self {
        Self {
            waiting: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        }
    }

    /// Polls for room, on the producer's side: ready when `still_full` returns false; otherwise pending, and the task
    /// is woken after the consumer has made room. For one task at a time: the latest waker counts.
    ///
    /// Cost: one call of `still_full` if there is room; otherwise two, with a fence and the clone of a waker between
    /// them.
    pub fn poll_room(
        &self,
        cx: &mut Context<'_>,
        mut still_full: impl FnMut() -> bool,
    ) -> Poll<()> {
        if !still_full() {
            return Poll::Ready(());
        }
        register(&self.waker, cx.waker());
        self.waiting.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if still_full() {
            return Poll::Pending;
        }
        self.waiting.store(false, Ordering::Relaxed);
        Poll::Ready(())
    }

    /// Wakes the producer if it waits. The consumer calls it after it popped values.
    ///
    /// Cost: a fence, and one load of a line that is written only when the producer begins to wait.
    #[inline]
    pub fn freed(&self) {
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        self.waiting.store(false, Ordering::Relaxed);
        self.waker.wake();
    }
}

impl Default for Room {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room")
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}
