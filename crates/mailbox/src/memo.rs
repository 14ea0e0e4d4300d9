//! Notes that one thread stores under a key, and that another thread may answer once.
//!
//! A [`Memo`] is an entry of a table in which one thread, the writer, stores two words under a key. Another thread, the
//! reader, looks a key up, and takes the note if it has that key and was not taken before. Neither waits for the other,
//! and neither makes a read-modify-write. The price is that a note may be missed: one that is overwritten, and one that
//! is written while the reader takes the former.
//!
//! ```
//! use fairlane_mailbox::memo::Memo;
//!
//! let place = Memo::default();
//! // Keys are hashes: the upper 47 bits count.
//! let [one, other] = [7 << 40, 8 << 40];
//! place.note(one, [100, 1]);
//! // The first note of a key stays.
//! place.note(one, [200, 2]);
//! assert_eq!(place.answer(other), None);
//! assert_eq!(place.answer(one), Some([100, 1]));
//! assert_eq!(place.answer(one), None);
//! ```
//!
//! # Why an answer is consistent
//!
//! The writer sets the key to 0 before it changes the words, and to the new key after them (`Release`), with a fence
//! between the first two. Each note has a count next to its key, modulo 2^16. The reader reads both (`Acquire`), then
//! the words, then, after a fence, both again. If it read a word of a later note, the writer's fence precedes its own,
//! so the second read finds that note's 0, or a later value, and not the first value: the count differs, even if the
//! same key was noted again. For the count to wrap to the same value, 65,536 notes would have to be made between the
//! reader's two reads.
//!
//! An answer is a store to the first word. It may hit a later note, which then counts as answered: that note is missed,
//! but none of its words is returned.

use crate::sync::{AtomicU64, Ordering, fence};

/// The value of the first word of an answered note.
const ANSWERED: u64 = u64::MAX;
/// The bits of the count of notes.
const COUNT: u64 = 0xffff;
/// A bit that each key has, so that none is 0.
const SOME: u64 = 1 << 16;

/// An entry for one note, on one cache line.
#[derive(Debug, Default)]
#[cfg_attr(not(loom), repr(align(32)))]
pub struct Memo {
    /// The key, and the count of notes; 0 without a note and while the words change.
    key: AtomicU64,
    words: [AtomicU64; 2],
}

/// Returns the stored part of a key.
#[inline]
fn known(key: u64) -> u64 {
    (key | SOME) & !COUNT
}

impl Memo {
    /// Stores two words under a key, unless the last note here has the same key. The first word must not be
    /// [`u64::MAX`]. The upper 47 bits of the key count. For the writer only. O(1): a load, and four stores if it
    /// writes.
    #[inline]
    pub fn note(&self, key: u64, words: [u64; 2]) {
        let (former, key) = (self.key.load(Ordering::Relaxed), known(key));
        if former & !COUNT == key {
            return;
        }
        // A reader that reads the words between these two finds another key or count before or after.
        self.key.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        for (word, value) in self.words.iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
        let count = former.wrapping_add(1) & COUNT;
        self.key.store(key | count, Ordering::Release);
    }

    /// Returns the note with this key, once. For the reader only. O(1): a load if the key differs, otherwise three more
    /// and a store.
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
