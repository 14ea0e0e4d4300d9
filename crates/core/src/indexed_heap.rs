//! A heap of numbers by their keys which knows where each number is, so that a key can change and an
//! entry go wherever it is: an indexed priority queue.

use crate::grow;
use alloc::vec::Vec;

/// No place in a heap.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// Children of an entry.
const ARITY: usize = 4;

/// Where each number is in the heap: kept by the heap's owner, beside what else is known of that number.
pub(crate) trait Places {
    /// The number is there from now on, or [`NOWHERE`].
    fn set(&mut self, number: u32, place: u32);
}

impl Places for [u32] {
    #[inline]
    fn set(&mut self, number: u32, place: u32) {
        self[number as usize] = place;
    }
}

/// Numbers by their keys, the smallest key first. Whatever changes it is given the places of its numbers.
#[derive(Clone, Debug)]
pub(crate) struct IndexedHeap<K> {
    /// The children of entry n are entries `ARITY` n + 1 and up.
    entries: Vec<(K, u32)>,
}

impl<K> Default for IndexedHeap<K> {
    fn default() -> Self {
        IndexedHeap {
            entries: Vec::new(),
        }
    }
}

impl<K: Copy + Ord> IndexedHeap<K> {
    /// All entries: the first is the smallest, the others are in no order.
    #[inline]
    pub(crate) fn entries(&self) -> &[(K, u32)] {
        &self.entries
    }

    /// Adds a number. O(log n).
    #[inline]
    pub(crate) fn push(&mut self, entry: (K, u32), places: &mut (impl Places + ?Sized)) {
        grow::push(&mut self.entries, entry);
        self.rise(self.entries.len() - 1, entry, places);
    }

    /// Another key for the number at `place`. O(log n).
    pub(crate) fn change(
        &mut self,
        place: u32,
        entry: (K, u32),
        places: &mut (impl Places + ?Sized),
    ) {
        let hole = self.sink(place as usize, entry, places);
        self.rise(hole, entry, places);
    }

    /// A smaller key for the number at `place`. O(log n).
    pub(crate) fn decrease(
        &mut self,
        place: u32,
        entry: (K, u32),
        places: &mut (impl Places + ?Sized),
    ) {
        self.rise(place as usize, entry, places);
    }

    /// A larger key for the first number. O(log n).
    pub(crate) fn increase_first(&mut self, entry: (K, u32), places: &mut (impl Places + ?Sized)) {
        let hole = self.sink(0, entry, places);
        self.put(hole, entry, places);
    }

    /// Removes the number at `place`. O(log n).
    pub(crate) fn take_out(&mut self, place: u32, places: &mut (impl Places + ?Sized)) {
        let Some(last) = self.entries.pop() else {
            return;
        };
        match self.entries.get(place as usize) {
            Some(&(_, gone)) => {
                places.set(gone, NOWHERE);
                self.change(place, last, places);
            }
            None => places.set(last.1, NOWHERE),
        }
    }

    fn put(&mut self, hole: usize, entry: (K, u32), places: &mut (impl Places + ?Sized)) {
        self.entries[hole] = entry;
        places.set(entry.1, hole as u32);
    }

    /// Puts an entry where it belongs, up from `hole`.
    fn rise(&mut self, mut hole: usize, entry: (K, u32), places: &mut (impl Places + ?Sized)) {
        while hole > 0 {
            let parent = (hole - 1) / ARITY;
            let above = self.entries[parent];
            if above.0 <= entry.0 {
                break;
            }
            self.put(hole, above, places);
            hole = parent;
        }
        self.put(hole, entry, places);
    }

    /// Moves what is smaller than the entry up: where that leaves a hole.
    fn sink(
        &mut self,
        mut hole: usize,
        entry: (K, u32),
        places: &mut (impl Places + ?Sized),
    ) -> usize {
        loop {
            let first = ARITY * hole + 1;
            let children = self.entries.iter().enumerate().skip(first).take(ARITY);
            match children.min_by_key(|(_, child)| child.0) {
                Some((n, &child)) if child.0 < entry.0 => {
                    self.put(hole, child, places);
                    hole = n;
                }
                _ => return hole,
            }
        }
    }

    /// Whether no key is smaller than the one above it, and the place of each number is known.
    pub(crate) fn is_sound(&self, place_of: impl Fn(u32) -> u32) -> bool {
        let mut entries = self.entries.iter().enumerate();
        entries.all(|(n, &(key, number))| {
            let above = self.entries[n.saturating_sub(1) / ARITY].0;
            key >= above && place_of(number) == n as u32
        })
    }
}
