//! What one thread notes under a key, for another that may answer it once.
//!
//! A [`Memo`] is a place of a table in which one thread, the writer, notes what it has seen under a key: two words. Another
//! one, the reader, looks a key up, and takes what is noted if it is that key's and was not taken before. Neither waits for the
//! other, and neither makes a read-modify-write. The price is that a note may be missed: one that is written over, and one that
//! is written while the reader takes the former.
//!
//! ```
//! use fairlane_mailbox::memo::Memo;
//!
//! let place = Memo::default();
//! // Keys are hashes: of one the upper 47 bits count.
//! let [one, other] = [7 << 40, 8 << 40];
//! place.note(one, [100, 1]);
//! // The first note of a key stays.
//! place.note(one, [200, 2]);
//! assert_eq!(place.answer(other), None);
//! assert_eq!(place.answer(one), Some([100, 1]));
//! assert_eq!(place.answer(one), None);
//! ```
//!
//! # Why what is answered is whole
//!
//! The writer sets the key to 0 before it changes the words, and to the new one behind them (`Release`); between the first two
//! stands a fence. Each note has another count beside its key, modulo 2^16. The reader reads both (`Acquire`), then the words,
//! then, behind a fence, both again. If it read a word of a later note, the writer's fence comes before its own, so that the
//! second look finds that note's 0, or what came later, and not what it found first: the count is another one, also where the
//! same key was noted again. For the count to come round, 65,536 notes would have to be made while the reader stands between
//! its looks.
//!
//! To answer is a store to the first word. It may hit a later note, which is then taken for answered: it is missed, and
//! nothing of it is told.

use crate::sync::{AtomicU64, Ordering, fence};

/// What is in the place of the first word once it was answered.
const ANSWERED: u64 = u64::MAX;
/// The bits of the count of notes.
const COUNT: u64 = 0xffff;
/// A bit that each key has, so that none is 0.
const SOME: u64 = 1 << 16;

/// A place for one note. On one cache line.
#[derive(Debug, Default)]
#[cfg_attr(not(loom), repr(align(32)))]
pub struct Memo {
    /// The key, and the count of notes; 0 of none, as while the words change.
    key: AtomicU64,
    words: [AtomicU64; 2],
}

/// The part of a key that is known.
#[inline]
fn known(key: u64) -> u64 {
    (key | SOME) & !COUNT
}

impl Memo {
    /// Notes two words under a key, the first of them not [`u64::MAX`], unless the last note here has the same key. Of the key
    /// the upper 47 bits count. For the writer alone. O(1): a load, or four stores beside it.
    #[inline]
    pub fn note(&self, key: u64, words: [u64; 2]) {
        let (former, key) = (self.key.load(Ordering::Relaxed), known(key));
        if former & !COUNT == key {
            return;
        }
        // Whoever reads the words between these two finds another key or count before or after.
        self.key.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        for (word, value) in self.words.iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
        let count = former.wrapping_add(1) & COUNT;
        self.key.store(key | count, Ordering::Release);
    }

    /// What is noted under this key, the first time that it is asked for. For the reader alone. O(1): a load where it is another
    /// key, else three more and a store.
    #[inline]
    pub fn answer(&self, key: u64) -> Option<[u64; 2]> {
        let found = self.key.load(Ordering::Acquire);
        if found & !COUNT != known(key) {
            return None;
        }
        let [first, second] = &self.words;
        let noted = [
            first.load(Ordering::Relaxed),
            second.load(Ordering::Relaxed),
        ];
        fence(Ordering::Acquire);
        if noted[0] == ANSWERED || self.key.load(Ordering::Relaxed) != found {
            return None;
        }
        first.store(ANSWERED, Ordering::Relaxed);
        Some(noted)
    }
}
