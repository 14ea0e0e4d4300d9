//! The queues to compare, behind one pair of traits.

use std::sync::Arc;

use crossbeam_queue::ArrayQueue;
use fairlane_mailbox::{Consumer, Full, Producer};
use rtrb::{PushError, chunks::ChunkError};

/// The producer's end of a queue.
pub(crate) trait Push<T>: Send + 'static {
    fn push(&mut self, value: T) -> Result<(), T>;

    /// Pushes at most `count` values from `values`, which has as many, as far as they fit.
    fn push_many(&mut self, values: &mut impl Iterator<Item = T>, count: usize) -> usize;
}

/// The consumer's end of a queue.
pub(crate) trait Pop<T>: Send + 'static {
    fn pop(&mut self) -> Option<T>;

    fn pop_many(&mut self, max: usize, each: impl FnMut(T)) -> usize;
}

impl<T: Send + 'static> Push<T> for Producer<T> {
    #[inline]
    fn push(&mut self, value: T) -> Result<(), T> {
        Producer::push(self, value).map_err(|Full(value)| value)
    }

    #[inline]
    fn push_many(&mut self, values: &mut impl Iterator<Item = T>, _count: usize) -> usize {
        self.push_batch(values)
    }
}

impl<T: Send + 'static> Pop<T> for Consumer<T> {
    #[inline]
    fn pop(&mut self) -> Option<T> {
        Consumer::pop(self)
    }

    #[inline]
    fn pop_many(&mut self, max: usize, each: impl FnMut(T)) -> usize {
        self.pop_batch(max, each)
    }
}

impl<T: Send + 'static> Push<T> for rtrb::Producer<T> {
    #[inline]
    fn push(&mut self, value: T) -> Result<(), T> {
        rtrb::Producer::push(self, value).map_err(|PushError::Full(value)| value)
    }

    #[inline]
    fn push_many(&mut self, values: &mut impl Iterator<Item = T>, count: usize) -> usize {
        let fitting = match self.write_chunk_uninit(count) {
            Ok(chunk) => return chunk.fill_from_iter(values),
            Err(ChunkError::TooFewSlots(fitting)) => fitting,
        };
        self.write_chunk_uninit(fitting)
            .map_or(0, |chunk| chunk.fill_from_iter(values))
    }
}

impl<T: Send + 'static> Pop<T> for rtrb::Consumer<T> {
    #[inline]
    fn pop(&mut self) -> Option<T> {
        rtrb::Consumer::pop(self).ok()
    }

    #[inline]
    fn pop_many(&mut self, max: usize, mut each: impl FnMut(T)) -> usize {
        let waiting = match self.read_chunk(max) {
            Ok(chunk) => {
                chunk.into_iter().for_each(each);
                return max;
            }
            Err(ChunkError::TooFewSlots(waiting)) => waiting,
        };
        self.read_chunk(waiting).map_or(0, |chunk| {
            chunk.into_iter().for_each(&mut each);
            waiting
        })
    }
}

/// It has no batches: values are pushed one by one.
impl<T: Send + 'static> Push<T> for Arc<ArrayQueue<T>> {
    #[inline]
    fn push(&mut self, value: T) -> Result<(), T> {
        ArrayQueue::push(self, value)
    }

    fn push_many(&mut self, values: &mut impl Iterator<Item = T>, count: usize) -> usize {
        // Only this end pushes, so the room that it sees stays.
        let room = (self.capacity() - self.len()).min(count);
        values
            .take(room)
            .filter_map(|value| ArrayQueue::push(self, value).ok())
            .count()
    }
}

impl<T: Send + 'static> Pop<T> for Arc<ArrayQueue<T>> {
    #[inline]
    fn pop(&mut self) -> Option<T> {
        ArrayQueue::pop(self)
    }

    fn pop_many(&mut self, max: usize, each: impl FnMut(T)) -> usize {
        std::iter::from_fn(|| ArrayQueue::pop(self))
            .take(max)
            .map(each)
            .count()
    }
}
