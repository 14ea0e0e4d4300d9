//! Tables that are not moved each time that they have grown to twice their size.
//!
//! Where classes are added between two packets, the one that finds a table full would have to move all
//! that were added before. So a table beyond some size reserves far more memory than most need: memory
//! that was never written to takes addresses only.

use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

/// Bytes of a table that are moved at once: twice as many are at most, until it is [`AMPLE`].
const MOVED: usize = 64 << 10;
/// Bytes that a table has room for then.
const AMPLE: usize = 16 << 20;

/// Makes room for one more. O(1) amortised; it moves no more than 128 KiB, but where there are 16 MiB.
#[inline]
pub(crate) fn make_room<T>(table: &mut Vec<T>) {
    if table.len() == table.capacity() {
        grow(table);
    }
}

#[cold]
#[inline(never)]
fn grow<T>(table: &mut Vec<T>) {
    let (used, each) = (table.len(), size_of::<T>().max(1));
    match used * each < MOVED {
        true => table.reserve(1),
        false => {
            // Address space may be scarce.
            let ample = table.try_reserve_exact((AMPLE / each).max(2 * used) - used);
            ample.unwrap_or_else(|_| table.reserve(1));
        }
    }
}

/// Appends to a table, which grows so.
#[inline]
pub(crate) fn push<T>(table: &mut Vec<T>, item: T) {
    make_room(table);
    table.push(item);
}

/// Puts an item into a free place of a table, or behind the last: which place.
pub(crate) fn put<T>(table: &mut Vec<T>, free: &mut Vec<u32>, item: T) -> u32 {
    match free.pop() {
        Some(at) => {
            table[at as usize] = item;
            at
        }
        None => {
            push(table, item);
            (table.len() - 1) as u32
        }
    }
}

/// A table whose items are identified by their indices. The index of a released item is used again: last released,
/// first reused.
#[derive(Clone, Debug)]
pub(crate) struct Slab<T> {
    items: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab {
            items: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    /// Returns the number that the next item will have.
    pub(crate) fn next_number(&self) -> usize {
        self.free.last().map_or(self.items.len(), |&at| at as usize)
    }

    /// Puts an item into a free place, or behind the last, and returns its index. O(1) amortised. Rarely called: the
    /// caller makes a call instead of inlining a copy.
    #[inline(never)]
    pub(crate) fn insert(&mut self, item: T) -> u32 {
        put(&mut self.items, &mut self.free, item)
    }

    /// Releases an item: its place is free. Its content stays until the place is used again.
    pub(crate) fn release(&mut self, at: u32) {
        self.free.push(at);
    }

    /// Returns whether a place is free. O(free places).
    pub(crate) fn is_free(&self, at: u32) -> bool {
        self.free.contains(&at)
    }
}

/// All places, free ones among them.
impl<T> Deref for Slab<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        &self.items
    }
}

impl<T> DerefMut for Slab<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.items
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_is_moved_however_far_a_table_grows() {
        let (mut table, mut moved) = (Vec::new(), Vec::new());
        for number in 0..200_000_u64 {
            if table.len() == table.capacity() {
                moved.push(size_of_val(table.as_slice()));
            }
            push(&mut table, number);
        }
        assert!(moved.iter().all(|&bytes| bytes <= 2 * MOVED), "{moved:?}");
        assert!(table.into_iter().eq(0..200_000));
    }

    #[test]
    fn a_number_is_used_again_the_last_released_first() {
        let mut slab = Slab::default();
        assert_eq!(['a', 'b', 'c'].map(|item| slab.insert(item)), [0, 1, 2]);
        slab.release(0);
        slab.release(2);
        assert!(slab.is_free(0) && !slab.is_free(1) && slab.is_free(2));
        for (number, item) in [(2, 'd'), (0, 'e'), (3, 'f')] {
            assert_eq!(slab.next_number(), number);
            assert_eq!(slab.insert(item), number as u32);
        }
        assert_eq!(*slab, ['e', 'b', 'd', 'f']);
    }

    #[test]
    fn what_takes_no_memory_grows_too() {
        let mut table = Vec::new();
        (0..10).for_each(|_| push(&mut table, ()));
        assert_eq!(table.len(), 10);
    }
}
