//! Every interleaving, and every outcome that the memory model allows, of the list of free frames.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p fairlane-mailbox --release --test loom_free`
#![cfg(loom)]

use fairlane_mailbox::free::FreeList;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

/// A list with a count in each frame, which only its holder accesses.
struct Memory {
    list: FreeList,
    counts: Vec<AtomicU32>,
}

impl Memory {
    fn new(frames: u32) -> Arc<Self> {
        Arc::new(Self {
            list: FreeList::full(frames),
            counts: (0..frames).map(|_| AtomicU32::new(0)).collect(),
        })
    }

    fn take(&self, max: usize) -> Vec<u32> {
        let mut taken = Vec::new();
        self.list.take(max, |frame| taken.push(frame));
        for &frame in &taken {
            // In two steps, and ordered only by the list: a second holder, or one that does not see the last one's
            // write, would lose a count.
            let count = &self.counts[frame as usize];
            count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            self.list.note(frame, frame ^ 1);
        }
        taken
    }

    fn counted(&self) -> u32 {
        let counts = self.counts.iter();
        counts.map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

#[test]
fn a_frame_has_one_holder_who_sees_what_the_last_one_wrote() {
    loom::model(|| {
        let memory = Memory::new(2);
        let other = {
            let memory = Arc::clone(&memory);
            thread::spawn(move || {
                let taken = memory.take(2);
                let count = taken.len() as u32;
                memory.list.give(taken);
                count
            })
        };
        let first = memory.take(1);
        let mut takes = first.len() as u32;
        memory.list.give(first);
        let second = memory.take(2);
        takes += second.len() as u32;
        memory.list.give(second);
        takes += other.join().unwrap();
        assert_eq!(memory.counted(), takes);
        assert_eq!(memory.take(9).len(), 2);
    });
}

#[test]
fn a_frame_that_was_away_and_came_back_leads_nobody_to_the_one_that_was_below_it() {
    loom::model(|| {
        let memory = Memory::new(3);
        let other = {
            let memory = Arc::clone(&memory);
            thread::spawn(move || memory.take(1))
        };
        let (top, mut held) = (memory.take(1), memory.take(1));
        memory.list.give(top);
        held.extend(other.join().unwrap());
        held.extend(memory.take(9));
        held.sort_unstable();
        assert_eq!(held, [0, 1, 2]);
    });
}
