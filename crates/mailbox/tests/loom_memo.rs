//! Every interleaving, and every outcome that the memory model allows, of a note that another thread answers.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p fairlane-mailbox --release --test loom_memo`
#![cfg(loom)]

use std::sync::atomic::{AtomicUsize, Ordering};

use fairlane_mailbox::memo::Memo;
use loom::sync::Arc;
use loom::thread;

fn key(number: u64) -> u64 {
    number << 32
}

/// The writer begins: loom turns back to where an access depends on the last one of another thread, and the writer's own
/// look at the key would hide the reader's.
fn model(notes: &'static [(u64, [u64; 2])], reader: impl Fn(&Memo) + Send + Sync + Copy + 'static) {
    loom::model(move || {
        let memo = Arc::new(Memo::default());
        let read = Arc::clone(&memo);
        let reading = thread::spawn(move || reader(&read));
        for &(number, words) in notes {
            memo.note(key(number), words);
        }
        reading.join().unwrap();
    });
}

#[test]
fn what_is_answered_is_whole_and_the_keys_own_and_is_answered_once() {
    /// Not answered, the first, the second, both.
    static OUTCOMES: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];
    model(&[(1, [10, 100]), (2, [20, 200])], |memo| {
        let first = memo.answer(key(1));
        let second = memo.answer(key(2));
        assert!(first.is_none_or(|words| words == [10, 100]), "{first:?}");
        assert!(second.is_none_or(|words| words == [20, 200]), "{second:?}");
        assert!(second.is_none() || memo.answer(key(2)).is_none());
        let outcome = usize::from(first.is_some()) + 2 * usize::from(second.is_some());
        OUTCOMES[outcome].fetch_add(1, Ordering::Relaxed);
    });
    assert!(
        OUTCOMES.iter().all(|it| it.load(Ordering::Relaxed) > 0),
        "{OUTCOMES:?}"
    );
}

#[test]
fn a_key_that_is_noted_again_behind_another_is_told_as_one_or_the_other_note() {
    model(&[(1, [10, 100]), (2, [20, 200]), (1, [11, 101])], |memo| {
        let noted = memo.answer(key(1));
        assert!(noted.is_none_or(|words| [[10, 100], [11, 101]].contains(&words)));
    });
}
