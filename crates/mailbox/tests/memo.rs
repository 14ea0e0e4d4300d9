//! A note that another thread answers, between real threads.
#![cfg(not(loom))]

use std::iter;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use fairlane_mailbox::memo::Memo;

fn key(number: u64) -> u64 {
    number << 20
}

#[test]
fn what_is_noted_on_one_thread_is_whole_or_nothing_to_the_other() {
    const ANSWERS: usize = if cfg!(miri) { 100 } else { 10_000 };
    let memo = Memo::default();
    let done = AtomicBool::new(false);
    let latest = AtomicU64::new(1);
    let torn = thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1.. {
                latest.store(number, Ordering::Relaxed);
                memo.note(key(number), [number << 8, number]);
                if done.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let answers = || {
            let number = latest.load(Ordering::Relaxed);
            [number - 1, number].map(|number| (number, memo.answer(key(number))))
        };
        let answers = iter::repeat_with(answers).flatten();
        let noted = answers.filter_map(|(number, noted)| Some((number, noted?)));
        let is_torn = |(number, noted)| number > 0 && noted != [number << 8, number];
        let torn = noted.take(ANSWERS).find(|&noted| is_torn(noted));
        done.store(true, Ordering::Relaxed);
        torn
    });
    assert_eq!(torn, None);
}

#[test]
fn a_note_is_answered_once_and_the_first_of_a_key_stays() {
    let memo = Memo::default();
    assert_eq!(memo.answer(key(0)), None);
    memo.note(key(3), [5, 7]);
    memo.note(key(3), [6, 8]);
    assert_eq!(memo.answer(key(4)), None);
    assert_eq!(memo.answer(key(3)), Some([5, 7]));
    assert_eq!(memo.answer(key(3)), None);
    // Behind another it is noted again, however often the count has come round.
    for number in 0..200_000 {
        memo.note(key(number % 2), [number, 1]);
        assert_eq!(memo.answer(key(number % 2)), Some([number, 1]));
    }
}
