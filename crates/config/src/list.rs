//! A list of which copies share what they have in common.

use std::collections::BTreeMap;
use std::ops::Index;
use std::sync::Arc;

use serde::{Deserialize, Deserializer};

/// Elements that may be others than in the list that is shared, before all of it is copied.
const MOST: usize = 64;

/// A list. A copy of it, and one of which few elements are exchanged, take O(1).
#[derive(Clone, Debug)]
pub(crate) struct List<T> {
    shared: Arc<Vec<T>>,
    /// By place: those that are others.
    others: BTreeMap<usize, T>,
}

impl<T> List<T> {
    pub(crate) fn len(&self) -> usize {
        self.shared.len()
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &T> {
        (0..self.len()).map(|at| &self[at])
    }

    /// The places at which another list may differ, where most of the two is shared; `None` where it is not.
    pub(crate) fn unlike<'a>(&'a self, other: &'a List<T>) -> Option<impl Iterator<Item = usize>> {
        let shares = Arc::ptr_eq(&self.shared, &other.shared);
        let others = self.others.keys().chain(other.others.keys());
        shares.then_some(others.copied())
    }
}

impl<T: Clone> List<T> {
    /// Puts another element in the place of one. O(1) amortised, with a large constant where lists share.
    ///
    /// # Panics
    ///
    /// There is none.
    pub(crate) fn set(&mut self, at: usize, other: T) {
        assert!(at < self.len(), "{at} of {}", self.len());
        self.others.insert(at, other);
        if self.others.len() > MOST {
            self.all_mut();
        }
    }

    /// All of it, to be changed: a copy where lists share.
    pub(crate) fn all_mut(&mut self) -> &mut Vec<T> {
        let all = Arc::make_mut(&mut self.shared);
        for (at, other) in std::mem::take(&mut self.others) {
            all[at] = other;
        }
        all
    }
}

impl<T> Index<usize> for List<T> {
    type Output = T;

    fn index(&self, at: usize) -> &T {
        match self.others.is_empty() {
            true => &self.shared[at],
            false => self.others.get(&at).unwrap_or_else(|| &self.shared[at]),
        }
    }
}

impl<T> Default for List<T> {
    fn default() -> List<T> {
        List::from(Vec::new())
    }
}

impl<T> From<Vec<T>> for List<T> {
    fn from(all: Vec<T>) -> List<T> {
        List {
            shared: Arc::new(all),
            others: BTreeMap::new(),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<List<T>, D::Error> {
        Vec::deserialize(deserializer).map(List::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_another_list_from_the_first_exchange_on() {
        let one = List::from((0..200).collect::<Vec<_>>());
        let mut other = one.clone();
        let mut expected: Vec<_> = (0..200).collect();
        for round in 0..2 * MOST {
            let at = round * 7 % 200;
            other.set(at, 1_000 + round);
            expected[at] = 1_000 + round;
            assert!(other.iter().eq(&expected), "{round}");
            if let Some(places) = one.unlike(&other) {
                let places: Vec<_> = places.collect();
                let differ = |&at: &usize| one[at] != other[at];
                assert!((0..200).filter(differ).all(|at| places.contains(&at)));
            }
        }
        assert!(one.iter().copied().eq(0..200));
        other.all_mut().remove(7);
        expected.remove(7);
        assert!(other.iter().eq(&expected) && other.len() == 199);
        assert!(one.unlike(&other).is_none());
    }
}
