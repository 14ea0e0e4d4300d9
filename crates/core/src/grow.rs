//! Tables that are not moved each time that they have grown to twice their size.
//!
//! Where classes are added between two packets, the one that finds a table full would have to move all
//! that were added before. So a table beyond some size reserves far more memory than most need: memory
//! that was never written to takes addresses only.

use alloc::vec::Vec;

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
            // Addresses may be what there is little of.
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
    fn what_takes_no_memory_grows_too() {
        let mut table = Vec::new();
        (0..10).for_each(|_| push(&mut table, ()));
        assert_eq!(table.len(), 10);
    }
}
