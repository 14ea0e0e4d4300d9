//! The places of all buckets: a queue for each, in chunks of a cache line.

use crate::ensure_invariant;
use crate::scheduler::{EntityId, Violation};
use alloc::vec::Vec;

/// Numbers in a chunk: where the next chunk is, and the entities of the places.
const CHUNK: usize = 16;

#[derive(Clone, Debug)]
#[repr(align(64))]
struct Chunk([u32; CHUNK]);

const _: () = assert!(size_of::<Chunk>() == 64);

/// No chunk.
const NONE: u32 = u32::MAX;

/// Where the places of a bucket are, counted in numbers of the whole table.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Queue {
    first: usize,
    /// Behind the last one; at the end of a chunk if that is full.
    end: usize,
}

impl Queue {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first == self.end
    }
}

/// The chunks of all queues: no more than one for each queue that is not empty, and those that
/// places fill.
#[derive(Clone, Debug)]
pub(super) struct Places {
    chunks: Vec<Chunk>,
    /// First of those not in use, which are linked.
    free: u32,
}

impl Default for Places {
    fn default() -> Self {
        Places {
            chunks: Vec::new(),
            free: NONE,
        }
    }
}

impl Places {
    /// Returns the first place of a queue.
    #[inline]
    pub(super) fn first(&self, queue: &Queue) -> Option<EntityId> {
        match queue.is_empty() {
            true => None,
            false => Some(self.at(queue.first)),
        }
    }

    #[inline]
    fn at(&self, place: usize) -> EntityId {
        EntityId::in_use(self.chunks[place / CHUNK].0[place % CHUNK])
    }

    /// Adds a place at the end of a queue. O(1) amortised.
    #[inline]
    pub(super) fn push(&mut self, queue: &mut Queue, entity: EntityId) {
        if queue.end.is_multiple_of(CHUNK) {
            self.extend(queue);
        }
        let place = queue.end;
        self.chunks[place / CHUNK].0[place % CHUNK] = entity.index() as u32;
        queue.end = place + 1;
    }

    /// Adds a chunk to a queue that has no room left.
    #[cold]
    #[inline(never)]
    fn extend(&mut self, queue: &mut Queue) {
        let number = self.free;
        let fresh = match self.chunks.get_mut(number as usize) {
            Some(chunk) => {
                self.free = core::mem::replace(&mut chunk.0[0], NONE);
                number
            }
            None => {
                self.chunks.push(Chunk([NONE; CHUNK]));
                (self.chunks.len() - 1) as u32
            }
        };
        let place = fresh as usize * CHUNK + 1;
        if queue.is_empty() {
            queue.first = place;
        } else {
            self.chunks[queue.end / CHUNK - 1].0[0] = fresh;
        }
        queue.end = place;
    }

    /// Takes out the first place of a queue that is not empty. O(1).
    #[inline]
    pub(super) fn pop(&mut self, queue: &mut Queue) {
        let place = queue.first;
        queue.first = place + 1;
        if queue.first.is_multiple_of(CHUNK) || queue.first == queue.end {
            self.leave(queue, place);
        }
    }

    /// The first chunk of a queue, up to this place, or the last place of all was taken out.
    #[cold]
    #[inline(never)]
    fn leave(&mut self, queue: &mut Queue, place: usize) {
        let chunk = place / CHUNK;
        let next = core::mem::replace(&mut self.chunks[chunk].0[0], self.free);
        self.free = chunk as u32;
        if queue.is_empty() {
            *queue = Queue::default();
        } else {
            queue.first = next as usize * CHUNK + 1;
        }
    }

    /// Returns the first place behind a chunk that is followed by another.
    fn behind(&self, chunk: usize) -> usize {
        self.chunks[chunk].0[0] as usize * CHUNK + 1
    }

    /// Removes up to `count` places of an entity from a queue, the first ones, and returns their number. O(places of
    /// the queue).
    pub(super) fn take_out(&mut self, queue: &mut Queue, entity: EntityId, count: u32) -> u32 {
        let mut old = core::mem::take(queue);
        let mut taken = 0;
        while let Some(other) = self.first(&old) {
            self.pop(&mut old);
            if other == entity && taken < count {
                taken += 1;
            } else {
                self.push(queue, other);
            }
        }
        taken
    }

    /// Returns the places of a queue, from first to last.
    pub(super) fn iter(&self, queue: &Queue) -> impl Iterator<Item = EntityId> {
        let mut left = *queue;
        core::iter::from_fn(move || {
            let entity = self.first(&left)?;
            left.first += 1;
            if left.first.is_multiple_of(CHUNK) && !left.is_empty() {
                left.first = self.behind(left.first / CHUNK - 1);
            }
            Some(entity)
        })
    }

    /// Places that there is room for.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.chunks.len() * (CHUNK - 1)
    }

    /// Checks that each chunk is in one queue, or free.
    pub(super) fn check<'a>(
        &self,
        queues: impl Iterator<Item = &'a Queue>,
    ) -> Result<(), Violation> {
        let mut used = 0;
        let mut walk = |mut chunk: u32, last: u32| -> Result<(), Violation> {
            while let Some(Chunk([next, ..])) = self.chunks.get(chunk as usize) {
                used += 1;
                ensure_invariant!(used <= self.chunks.len(), "sfq: a chunk is used twice");
                if chunk == last {
                    return Ok(());
                }
                chunk = *next;
            }
            ensure_invariant!(chunk == last, "sfq: chunks lead to {chunk}, not {last}");
            Ok(())
        };
        for queue in queues.filter(|queue| !queue.is_empty()) {
            walk(
                (queue.first / CHUNK) as u32,
                ((queue.end - 1) / CHUNK) as u32,
            )?;
        }
        walk(self.free, NONE)?;
        ensure_invariant!(
            used == self.chunks.len(),
            "sfq: {used} of {} chunks are listed",
            self.chunks.len()
        );
        Ok(())
    }
}
