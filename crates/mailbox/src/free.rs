//! The list of free frames of a memory that threads share.
//!
//! A [`FreeList`] is a stack of frame numbers that any thread may take from and give to, without a lock: a thread that
//! frees a frame is not delayed by another that was preempted while it freed one. The stack's links are an array next
//! to the frames, one word each, which is never freed while the list lives; so a thread that reads the link of a frame
//! that another thread has just taken only reads a stale number.
//!
//! Every change of the head increments a tag in it. A thread that read the head, followed the links and finds the head
//! unchanged therefore knows that the links were unchanged too (no *ABA*). The tag has 40 bits: for it to wrap to the
//! same value under a preempted thread, at ten million changes a second, the thread would have to sleep for more than a
//! day and wake at the right change.
//!
//! The word of a frame that is *not* in the list belongs to its holder, for a note: see [`note`](FreeList::note).
//!
//! ```
//! use fairlane_mailbox::free::FreeList;
//!
//! let free = FreeList::full(4);
//! let mut held = Vec::new();
//! assert_eq!(free.take(3, |frame| held.push(frame)), 3);
//! assert_eq!(held, [0, 1, 2]);
//!
//! // The holder of a frame may store a note for it, for example the length of its packet.
//! free.note(held[0], 1_500);
//! assert_eq!(free.noted(0), Some(1_500));
//!
//! // The frame given last is taken first: it is still in a cache.
//! assert_eq!(free.give([held.remove(0)]), 1);
//! assert_eq!(free.take(1, |frame| held.push(frame)), 1);
//! assert_eq!(held, [1, 2, 0]);
//! ```

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Bits of the head that contain a frame's number.
const NUMBER_BITS: u32 = 24;
/// No frame: the bottom of the stack. One more than any number.
const NONE: u32 = (1 << NUMBER_BITS) - 1;

/// The largest number of frames of a list.
pub const MAX_FRAMES: u32 = NONE;

/// A list of free frames, by their numbers from 0.
#[derive(Debug)]
pub struct FreeList {
    /// The tag, and in the low [`NUMBER_BITS`] bits the top of the stack or [`NONE`].
    head: AtomicU64,
    /// For a frame in the list: the one below it, or [`NONE`].
    words: Box<[AtomicU32]>,
}

impl FreeList {
    /// Creates a list in which all of `frames`, at most [`MAX_FRAMES`], are free. The first is on top.
    ///
    /// # Panics
    ///
    /// If there are more.
    #[must_use]
    pub fn full(frames: u32) -> Self {
        assert!(frames <= MAX_FRAMES);
        let below = |number| if number < frames { number } else { NONE };
        Self {
            head: AtomicU64::new(u64::from(below(0))),
            words: (0..frames)
                .map(|number| AtomicU32::new(below(number + 1)))
                .collect(),
        }
    }

    /// Takes at most `max` frames, the last given first, and returns their number. O(`max`).
    ///
    /// The thread that takes a frame sees all writes to it before it was given.
    pub fn take(&self, max: usize, mut each: impl FnMut(u32)) -> usize {
        // Acquire: see the links and the contents as they were given. A chain may have been given by many threads;
        // every change of the head is a read-modify-write, so this load synchronises with all their releases.
        let mut head = self.head.load(Ordering::Acquire);
        // Links that change during the walk could form a cycle.
        let max = max.min(self.words.len());
        loop {
            let (mut rest, mut count) = (number(head), 0);
            while count < max && rest != NONE {
                rest = self.word(rest);
                count += 1;
            }
            if count == 0 {
                return 0;
            }
            match self.head.compare_exchange_weak(
                head,
                successor(head, rest),
                Ordering::Relaxed,
                Ordering::Acquire,
            ) {
                Ok(_) => {
                    let mut frame = number(head);
                    for _ in 0..count {
                        // Read first: from now on the word belongs to the holder.
                        let below = self.word(frame);
                        each(frame);
                        frame = below;
                    }
                    return count;
                }
                Err(changed) => head = changed,
            }
        }
    }

    /// Returns frames to the list, which the caller must hold, each once; returns their number. One change of the head
    /// for all of them.
    pub fn give(&self, frames: impl IntoIterator<Item = u32>) -> usize {
        let mut frames = frames.into_iter();
        let Some(top) = frames.next() else { return 0 };
        let (mut bottom, mut count) = (top, 1);
        for frame in frames {
            self.words[bottom as usize].store(frame, Ordering::Relaxed);
            (bottom, count) = (frame, count + 1);
        }
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            self.words[bottom as usize].store(number(head), Ordering::Relaxed);
            // Release: the links, the end of notes and the contents are visible before the frames are.
            match self.head.compare_exchange_weak(
                head,
                successor(head, top),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return count,
                Err(changed) => head = changed,
            }
        }
    }

    /// Stores a note for a frame that the caller holds, until the frame is given back.
    ///
    /// # Panics
    ///
    /// If there is no such frame; so does [`give`](FreeList::give).
    #[inline]
    pub fn note(&self, frame: u32, note: u32) {
        self.words[frame as usize].store(note, Ordering::Relaxed);
    }

    /// Returns the note of a frame; for a frame in the list, any number up to 2^24. `None` if there is no such frame.
    #[inline]
    pub fn noted(&self, frame: u32) -> Option<u32> {
        self.words
            .get(frame as usize)
            .map(|word| word.load(Ordering::Relaxed))
    }

    /// Returns the number below `frame`; not a link if another thread has just taken the frame and stored a note.
    fn word(&self, frame: u32) -> u32 {
        self.noted(frame)
            .filter(|&below| (below as usize) < self.words.len())
            .unwrap_or(NONE)
    }
}

fn number(head: u64) -> u32 {
    head as u32 & NONE
}

/// Returns the head after `head`, with `top` on top.
fn successor(head: u64, top: u32) -> u64 {
    ((head >> NUMBER_BITS).wrapping_add(1) << NUMBER_BITS) | u64::from(top)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    fn take(list: &FreeList, max: usize) -> Vec<u32> {
        let mut taken = Vec::new();
        assert_eq!(list.take(max, |frame| taken.push(frame)), taken.len());
        taken
    }

    #[test]
    fn every_frame_is_there_once_and_the_last_given_is_taken_first() {
        let list = FreeList::full(5);
        assert_eq!(take(&list, 2), [0, 1]);
        assert_eq!(take(&list, 9), [2, 3, 4]);
        assert_eq!(take(&list, 1), [0; 0]);
        assert_eq!(list.give([3, 1]), 2);
        assert_eq!(list.give([0]), 1);
        assert_eq!(list.give([]), 0);
        assert_eq!(take(&list, 9), [0, 3, 1]);
    }

    #[test]
    fn a_list_of_no_frames_is_empty_and_the_longest_is_full() {
        assert_eq!(take(&FreeList::full(0), 1), [0; 0]);
        let list = FreeList::full(MAX_FRAMES);
        assert_eq!(list.take(usize::MAX, |_| {}), MAX_FRAMES as usize);
        assert_eq!(list.give([MAX_FRAMES - 1]), 1);
        assert_eq!(take(&list, 2), [MAX_FRAMES - 1]);
    }

    #[test]
    fn a_note_stays_until_the_frame_is_given() {
        let list = FreeList::full(2);
        take(&list, 1);
        list.note(0, u32::MAX);
        assert_eq!(list.noted(0), Some(u32::MAX));
        assert_eq!(list.noted(2), None);
        list.give([0]);
        // A note that remains while more frames are taken must not mislead either.
        let mut taken = Vec::new();
        list.take(2, |frame| {
            list.note(frame, u32::MAX);
            taken.push(frame);
        });
        assert_eq!(taken, [0, 1]);
    }

    #[test]
    fn the_tag_counts_on_when_it_comes_round() {
        let last = u64::MAX << NUMBER_BITS | 7;
        assert_eq!(successor(last, 3), 3);
        assert_eq!(number(last), 7);
    }

    #[test]
    fn threads_that_take_and_give_at_once_never_hold_the_same_frame() {
        const FRAMES: u32 = 16;
        let rounds = if cfg!(miri) { 200 } else { 100_000 };
        let list = FreeList::full(FRAMES);
        let held: Vec<_> = (0..FRAMES).map(|_| AtomicBool::new(false)).collect();
        std::thread::scope(|scope| {
            for thread in 0..4_usize {
                let (list, held) = (&list, &held);
                scope.spawn(move || {
                    for round in 0..rounds {
                        let taken = take(list, 1 + (round + thread) % 5);
                        for &frame in &taken {
                            assert!(!held[frame as usize].swap(true, Ordering::Relaxed));
                            // As a holder may: it must not mislead another thread.
                            list.note(frame, (round as u32) % FRAMES);
                        }
                        for &frame in &taken {
                            assert!(held[frame as usize].swap(false, Ordering::Relaxed));
                        }
                        list.give(taken);
                    }
                });
            }
        });
        let mut all = take(&list, usize::MAX);
        all.sort_unstable();
        assert!(all.into_iter().eq(0..FRAMES), "none is lost, none is twice");
    }
}
