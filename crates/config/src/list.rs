//! A list whose copies share their common parts.

use std::fmt;
use std::ops::{Deref, Index, Range};
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Number of elements that are shared or copied together.
pub(crate) const PIECE: usize = if cfg!(test) { 4 } else { 64 };

/// A list in pieces, which copies share until they are changed: a copy takes 16 bytes per piece, and a changed element
/// a copy of its piece.
#[derive(Clone)]
pub struct List<T> {
    /// All pieces but the last have [`PIECE`] elements.
    pieces: Vec<Arc<[T]>>,
    length: usize,
}

impl<T> List<T> {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the element at this index, if there is one.
    pub fn get(&self, at: usize) -> Option<&T> {
        self.pieces.get(at / PIECE)?.get(at % PIECE)
    }

    /// Returns an iterator over all elements, in order.
    pub fn iter(&self) -> Elements<'_, T> {
        self.within(0..self.length)
    }

    /// Returns a shared reference to the element at this index.
    ///
    /// # Panics
    ///
    /// Panics if there is no such element.
    pub fn share(&self, at: usize) -> Shared<T> {
        let (piece, at) = (&self.pieces[at / PIECE], at % PIECE);
        assert!(at < piece.len(), "no element {at} of {}", piece.len());
        let piece = Arc::clone(piece);
        Shared { piece, at }
    }

    /// Returns the elements in this range.
    pub(crate) fn within(&self, places: Range<usize>) -> Elements<'_, T> {
        Elements { list: self, places }
    }

    /// Returns a list of these elements that shares the pieces of `former` whose elements are all the same. Long-lived
    /// elements are then not allocated again, and stay in few places in memory. O(elements).
    pub fn after(
        former: &List<T>,
        all: impl IntoIterator<Item = T>,
        same: impl Fn(&T, &T) -> bool,
    ) -> List<T> {
        let mut all = all.into_iter();
        let mut list = List::default();
        loop {
            let piece: Vec<T> = all.by_ref().take(PIECE).collect();
            if piece.is_empty() {
                return list;
            }
            list.length += piece.len();
            let stays = former.pieces.get(list.pieces.len()).filter(|former| {
                let mut pairs = former.iter().zip(&piece);
                former.len() == piece.len() && pairs.all(|(was, is)| same(was, is))
            });
            list.pieces
                .push(stays.map_or_else(|| piece.into(), Arc::clone));
        }
    }

    /// Returns whether all pieces are shared with another list.
    pub(crate) fn is(&self, other: &List<T>) -> bool {
        (self.unlike(other)).is_some_and(|mut places| places.next().is_none())
    }

    /// Returns the indices at which another list of the same length may differ, in order: those of pieces that are not
    /// shared. Returns `None` for another length.
    pub fn unlike<'a>(&'a self, other: &'a List<T>) -> Option<impl Iterator<Item = usize>> {
        let pairs = self.pieces.iter().zip(&other.pieces).enumerate();
        let differ = pairs.filter(|(_, (piece, other))| !Arc::ptr_eq(piece, other));
        let places = differ.flat_map(|(at, (piece, _))| at * PIECE..at * PIECE + piece.len());
        (self.length == other.length).then_some(places)
    }
}

impl<T: Clone> List<T> {
    /// Returns the element at this index for modification. O(1), plus the copy of a piece if other lists share it.
    ///
    /// # Panics
    ///
    /// Panics if there is no such element.
    pub fn make_mut(&mut self, at: usize) -> &mut T {
        &mut Arc::make_mut(&mut self.pieces[at / PIECE])[at % PIECE]
    }

    /// Replaces an element, at the same cost.
    pub(crate) fn set(&mut self, at: usize, other: T) {
        *self.make_mut(at) = other;
    }

    /// Replaces some elements by others. O(elements behind them).
    pub(crate) fn splice(&mut self, places: Range<usize>, others: impl IntoIterator<Item = T>) {
        let first = places.start / PIECE;
        let from = first * PIECE;
        let mut behind: Vec<T> = self.within(from..self.length).cloned().collect();
        drop(behind.splice(places.start - from..places.end - from, others));
        self.pieces.truncate(first);
        self.length = from + behind.len();
        self.pieces.extend(behind.chunks(PIECE).map(Arc::from));
    }

    /// Returns all elements in one vector.
    pub fn to_vec(&self) -> Vec<T> {
        self.iter().cloned().collect()
    }
}

impl<T> Index<usize> for List<T> {
    type Output = T;

    fn index(&self, at: usize) -> &T {
        &self.pieces[at / PIECE][at % PIECE]
    }
}

impl<T> Default for List<T> {
    fn default() -> List<T> {
        List {
            pieces: Vec::new(),
            length: 0,
        }
    }
}

impl<T> From<Vec<T>> for List<T> {
    fn from(all: Vec<T>) -> List<T> {
        all.into_iter().collect()
    }
}

impl<T> FromIterator<T> for List<T> {
    fn from_iter<I: IntoIterator<Item = T>>(all: I) -> List<T> {
        let mut all = all.into_iter();
        let mut list = List::default();
        loop {
            let piece: Arc<[T]> = all.by_ref().take(PIECE).collect();
            if piece.is_empty() {
                return list;
            }
            list.length += piece.len();
            list.pieces.push(piece);
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<List<T>, D::Error> {
        Vec::deserialize(deserializer).map(List::from)
    }
}

impl<T: Serialize> Serialize for List<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self)
    }
}

impl<T: PartialEq> PartialEq for List<T> {
    fn eq(&self, other: &List<T>) -> bool {
        self.iter().eq(other)
    }
}

impl<T: fmt::Debug> fmt::Debug for List<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

impl<'a, T> IntoIterator for &'a List<T> {
    type Item = &'a T;
    type IntoIter = Elements<'a, T>;

    fn into_iter(self) -> Elements<'a, T> {
        self.iter()
    }
}

/// An element of a [`List`], which keeps its piece alive.
pub struct Shared<T> {
    piece: Arc<[T]>,
    at: usize,
}

impl<T> Shared<T> {
    /// Returns whether both are the same element in memory, and not only equal.
    pub fn is(&self, other: &Shared<T>) -> bool {
        Arc::ptr_eq(&self.piece, &other.piece) && self.at == other.at
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.piece[self.at]
    }
}

impl<T> From<T> for Shared<T> {
    /// Makes a list of this element alone.
    fn from(element: T) -> Shared<T> {
        let piece = Arc::from([element]);
        Shared { piece, at: 0 }
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Shared<T> {
        let piece = Arc::clone(&self.piece);
        Shared { piece, ..*self }
    }
}

impl<T: PartialEq> PartialEq for Shared<T> {
    fn eq(&self, other: &Shared<T>) -> bool {
        self.is(other) || **self == **other
    }
}

impl<T: fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Serialize> Serialize for Shared<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(serializer)
    }
}

/// An iterator over elements of a [`List`], in order.
#[derive(Debug)]
pub struct Elements<'a, T> {
    list: &'a List<T>,
    places: Range<usize>,
}

impl<T> Clone for Elements<'_, T> {
    fn clone(&self) -> Self {
        self.list.within(self.places.clone())
    }
}

impl<'a, T> Iterator for Elements<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        self.places.next().map(|at| &self.list[at])
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.places.size_hint()
    }
}

impl<'a, T> DoubleEndedIterator for Elements<'a, T> {
    fn next_back(&mut self) -> Option<&'a T> {
        self.places.next_back().map(|at| &self.list[at])
    }
}

impl<T> ExactSizeIterator for Elements<'_, T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_another_list_from_the_first_exchange_on() {
        let one: List<_> = (0..200).collect();
        let mut other = one.clone();
        let mut expected: Vec<_> = (0..200).collect();
        for round in 0..3 * PIECE {
            let at = round * 7 % 200;
            other.set(at, 1_000 + round);
            expected[at] = 1_000 + round;
            assert!(other.iter().eq(&expected), "{round}");
            let places: Vec<_> = one.unlike(&other).unwrap().collect();
            assert!((0..200).all(|at| one[at] == other[at] || places.contains(&at)));
            // Pieces without an exchanged element are still shared.
            assert_eq!(places.contains(&199), round >= 28, "{round}");
        }
        assert!(one.iter().copied().eq(0..200));
    }

    #[test]
    fn pieces_that_say_the_same_again_are_those_that_there_were() {
        let was: List<_> = (0..2 * PIECE + 1).collect();
        let kept = was.share(PIECE);
        let mut all = was.to_vec();
        assert!(List::after(&was, all.clone(), usize::eq).is(&was));
        (all[1], all[2 * PIECE]) = (1_000, 1_001);
        let is = List::after(&was, all.clone(), usize::eq);
        assert!(is.iter().eq(&all));
        assert_eq!(was.pieces.len(), is.pieces.len());
        let places: Vec<_> = was.unlike(&is).unwrap().collect();
        assert!(places.iter().copied().eq((0..PIECE).chain([2 * PIECE])));
        // Two that are alike are the same where they are shared alone.
        assert!(kept.is(&is.share(PIECE)) && !was.share(0).is(&is.share(0)));
        assert_eq!(was.share(0), is.share(0));
        // Longer, and shorter by all of the last piece.
        all.push(7);
        assert!(List::after(&is, all.clone(), usize::eq).iter().eq(&all));
        let shorter = List::after(&is, all[..PIECE].iter().copied(), usize::eq);
        assert_eq!((shorter.len(), shorter.pieces.len()), (PIECE, 1));
        assert!(shorter.share(0).is(&is.share(0)));
        // It outlives its list.
        drop((was, is));
        assert_eq!((*kept, format!("{kept:?}")), (PIECE, PIECE.to_string()));
        assert_eq!(Shared::from(PIECE), kept);
    }

    #[test]
    #[should_panic(expected = "no element 1 of 1")]
    fn an_element_that_there_is_none_of_is_not_shared() {
        let one: List<_> = (0..PIECE + 1).collect();
        drop(one.share(PIECE + 1));
    }

    #[test]
    fn what_is_spliced_is_as_in_a_vector() {
        for length in [0, 1, PIECE - 1, PIECE, PIECE + 1, 200] {
            for (from, to) in [
                (0, 0),
                (0, 1),
                (3, 70),
                (PIECE, PIECE),
                (0, 200),
                (200, 200),
            ] {
                let places = from.min(length)..to.min(length);
                let one: List<_> = (0..length).collect();
                for more in [0, 1, PIECE] {
                    let (mut list, mut all) = (one.clone(), one.to_vec());
                    let others = (0..more).map(|at| 1_000 + at);
                    list.splice(places.clone(), others.clone());
                    drop(all.splice(places.clone(), others));
                    assert!(list.iter().eq(&all), "{length} {places:?} {more}");
                    assert!(list.iter().rev().eq(all.iter().rev()));
                    assert_eq!((list.len(), list.is_empty()), (all.len(), all.is_empty()));
                    assert_eq!(list.get(all.len()), None);
                    let again: List<_> = all.iter().copied().collect();
                    assert_eq!(format!("{list:?}"), format!("{again:?}"));
                    assert_eq!(list.pieces.len(), again.pieces.len());
                    let shorter = list.len() != length;
                    assert_eq!(one.unlike(&list).is_none(), shorter);
                }
            }
        }
    }
}
