//! A heap in one flat array, sorted by time.

use crate::scheduler::MaybeEntity;
use crate::units::VirtualTime;
use alloc::vec::Vec;

/// Children of a node. Four lie in one or two cache lines, and halve the levels of a
/// binary heap; the smallest of them is found without a branch.
const ARITY: usize = 4;

/// A key of a heap.
pub(super) trait Key: Copy {
    /// Returns whether it comes before `other`.
    fn is_before(self, other: Self) -> bool;
}

/// By distance: a subtraction and a condition. All keys of a heap lie within half the circle of
/// virtual time.
impl Key for VirtualTime {
    #[inline]
    fn is_before(self, other: VirtualTime) -> bool {
        self.distance_from(other) < 0
    }
}

impl Key for u128 {
    #[inline]
    fn is_before(self, other: u128) -> bool {
        self < other
    }
}

/// A virtual time, and among equal times the number of an entity: the lowest number comes first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbered {
    time: VirtualTime,
    number: usize,
}

impl Numbered {
    #[inline]
    pub(super) fn new(time: VirtualTime, entity: MaybeEntity) -> Numbered {
        Numbered {
            time,
            number: entity.index(),
        }
    }
}

impl Key for Numbered {
    #[inline]
    fn is_before(self, other: Numbered) -> bool {
        let distance = self.time.distance_from(other.time);
        distance < 0 || (distance == 0 && self.number < other.number)
    }
}

/// An entry of a heap.
pub(super) trait Keyed: Copy {
    /// The type that entries are sorted by.
    type Key: Key;

    fn key(&self) -> Self::Key;
}

/// Entries by key, the earliest first.
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

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the earliest entry.
    #[inline]
    pub(super) fn first(&self) -> Option<&T> {
        self.entries.first()
    }

    /// The earliest entry, to change so that it stays the earliest.
    #[inline]
    pub(super) fn first_mut(&mut self) -> Option<&mut T> {
        self.entries.first_mut()
    }

    /// Returns all entries, the earliest first and the others in no order.
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
            if !entry.key().is_before(above.key()) {
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

    /// Replaces the earliest entry, which must exist. O(log n), and O(1) for an entry that is no later, as among
    /// equals.
    #[inline]
    pub(super) fn replace_first(&mut self, entry: T) {
        match self.entries.first_mut() {
            Some(first) if !first.key().is_before(entry.key()) => *first = entry,
            _ => self.sift_down(entry),
        }
    }

    /// Replaces the earliest entry and moves earlier entries before the new one.
    #[inline(never)]
    fn sift_down(&mut self, entry: T) {
        let entries = self.entries.as_mut_slice();
        let key = entry.key();
        let (mut hole, mut first) = (0, 1);
        while first + ARITY <= entries.len() {
            let children = &entries[first..first + ARITY];
            let [a, b, c, d] = [0, 1, 2, 3].map(|n| children[n].key());
            let (i, ab) = if b.is_before(a) { (1, b) } else { (0, a) };
            let (j, cd) = if d.is_before(c) { (3, d) } else { (2, c) };
            let (child, earliest) = if cd.is_before(ab) { (j, cd) } else { (i, ab) };
            if !earliest.is_before(key) {
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
            && earliest.key().is_before(key)
        {
            entries[hole] = earliest;
            hole = first + n;
        }
        entries[hole] = entry;
    }

    /// Returns whether no entry is earlier than the one above it, for tests.
    pub(super) fn is_sorted(&self) -> bool {
        (1..self.entries.len()).all(|n| {
            let above = self.entries[(n - 1) / ARITY].key();
            !self.entries[n].key().is_before(above)
        })
    }
}

/// Returns the earliest of the fewer than [`ARITY`] last entries, with its number.
#[inline]
fn earliest<T: Keyed>(entries: &[T]) -> Option<(usize, &T)> {
    let numbered = entries.iter().enumerate();
    numbered.reduce(|a, b| match b.1.key().is_before(a.1.key()) {
        true => b,
        false => a,
    })
}
