//! A heap in one flat array, sorted by virtual time.

use crate::units::VirtualTime;
use alloc::vec::Vec;

/// Children of a node. Four lie in one or two cache lines, and halve the levels of a
/// binary heap; the smallest of them is found without a branch.
const ARITY: usize = 4;

/// What a heap is sorted by.
pub(super) trait Keyed: Copy {
    fn key(&self) -> VirtualTime;
}

/// Entries by key, the earliest first. Keys are compared by their distance, so all in
/// a heap must lie within half the circle of virtual time.
#[derive(Clone, Debug)]
pub(super) struct Heap<T> {
    /// The children of entry n are entries `ARITY` n + 1 and up.
    entries: Vec<T>,
}

impl<T> Default for Heap<T> {
    fn default() -> Self {
        Heap {
            entries: Vec::new(),
        }
    }
}

impl<T: Keyed> Heap<T> {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The earliest entry.
    #[inline]
    pub(super) fn first(&self) -> Option<&T> {
        self.entries.first()
    }

    /// The earliest entry, to change so that it stays the earliest.
    #[inline]
    pub(super) fn first_mut(&mut self) -> Option<&mut T> {
        self.entries.first_mut()
    }

    /// All entries, the earliest first and the others in no order.
    pub(super) fn entries(&self) -> &[T] {
        &self.entries
    }

    /// Adds an entry. O(log n).
    #[inline]
    pub(super) fn push(&mut self, entry: T) {
        let mut hole = self.entries.len();
        self.entries.push(entry);
        while hole > 0 {
            let parent = (hole - 1) / ARITY;
            let above = self.entries[parent];
            if !is_before(entry.key(), above.key()) {
                break;
            }
            self.entries[hole] = above;
            hole = parent;
        }
        self.entries[hole] = entry;
    }

    /// Takes out the earliest entry. O(log n).
    #[inline]
    pub(super) fn pop(&mut self) -> Option<T> {
        let last = self.entries.pop()?;
        let Some(&first) = self.entries.first() else {
            return Some(last);
        };
        self.replace_first(last);
        Some(first)
    }

    /// Puts an entry in place of the earliest, which must be there. O(log n), and O(1) for one that
    /// is no later, as among equals.
    #[inline]
    pub(super) fn replace_first(&mut self, entry: T) {
        match self.entries.first_mut() {
            Some(first) if !is_before(first.key(), entry.key()) => *first = entry,
            _ => self.sift_down(entry),
        }
    }

    /// Puts an entry in place of the earliest, and those that are earlier before it.
    #[inline(never)]
    fn sift_down(&mut self, entry: T) {
        let entries = self.entries.as_mut_slice();
        let key = entry.key();
        let (mut hole, mut first) = (0, 1);
        while first + ARITY <= entries.len() {
            let children = &entries[first..first + ARITY];
            let [a, b, c, d] = [0, 1, 2, 3].map(|n| children[n].key());
            let (i, ab) = if is_before(b, a) { (1, b) } else { (0, a) };
            let (j, cd) = if is_before(d, c) { (3, d) } else { (2, c) };
            let (child, earliest) = if is_before(cd, ab) { (j, cd) } else { (i, ab) };
            if !is_before(earliest, key) {
                entries[hole] = entry;
                return;
            }
            let moved = children[child];
            entries[hole] = moved;
            hole = first + child;
            first = ARITY * hole + 1;
        }
        if let Some(last) = entries.get(first..)
            && let Some((n, &earliest)) = earliest(last)
            && is_before(earliest.key(), key)
        {
            entries[hole] = earliest;
            hole = first + n;
        }
        entries[hole] = entry;
    }

    /// Whether no entry is earlier than the one above it, for tests.
    pub(super) fn is_sorted(&self) -> bool {
        (1..self.entries.len()).all(|n| {
            let above = self.entries[(n - 1) / ARITY].key();
            !above.is_after(self.entries[n].key())
        })
    }
}

/// Whether `a` lies before `b`, by the sign of the distance: a subtraction and a
/// condition.
#[inline]
fn is_before(a: VirtualTime, b: VirtualTime) -> bool {
    a.distance_from(b) < 0
}

/// The earliest of the fewer than [`ARITY`] last entries, with its number.
#[inline]
fn earliest<T: Keyed>(entries: &[T]) -> Option<(usize, &T)> {
    let numbered = entries.iter().enumerate();
    numbered.reduce(|a, b| match is_before(b.1.key(), a.1.key()) {
        true => b,
        false => a,
    })
}
