//! One thread waits until a word changes, and another wakes it: a futex on
//! Linux, a condition variable elsewhere and under loom and Miri.

use core::time::Duration;

use crate::sync::{AtomicU32, Ordering};

#[cfg(all(target_os = "linux", not(any(loom, miri))))]
mod imp {
    use std::time::Instant;

    use rustix::thread::futex::{self, Flags, Timespec};

    use super::{AtomicU32, Duration, Ordering};

    #[derive(Debug)]
    pub(crate) struct Park;

    impl Park {
        pub(crate) fn new() -> Self {
            Self
        }

        /// Waits until `word` is no longer `value`, or for `longest`. A thread that changes the word must then call
        /// `wake`.
        pub(crate) fn wait(&self, word: &AtomicU32, value: u32, longest: Option<Duration>) {
            // A time beyond the clock's range means no limit.
            let end = longest.and_then(|longest| Instant::now().checked_add(longest));
            while word.load(Ordering::Relaxed) == value {
                let left = end.map(|end| end.saturating_duration_since(Instant::now()));
                if left == Some(Duration::ZERO) {
                    break;
                }
                let left = left.and_then(|left| Timespec::try_from(left).ok());
                // After any error the caller reads the word again: a timeout, a signal, or a changed word.
                let _ = futex::wait(word, Flags::PRIVATE, value, left.as_ref());
            }
        }

        pub(crate) fn wake(&self, word: &AtomicU32) {
            // It cannot fail: the address is valid.
            let _ = futex::wake(word, Flags::PRIVATE, 1);
        }
    }
}

#[cfg(not(all(target_os = "linux", not(any(loom, miri)))))]
mod imp {
    use super::{AtomicU32, Duration, Ordering};
    use crate::sync::{Condvar, Mutex};

    #[derive(Debug)]
    pub(crate) struct Park {
        lock: Mutex<()>,
        changed: Condvar,
    }

    impl Park {
        pub(crate) fn new() -> Self {
            Self {
                lock: Mutex::new(()),
                changed: Condvar::new(),
            }
        }

        /// Waits until `word` is no longer `value`, or for `longest`. A thread that changes the word must then call
        /// `wake`.
        pub(crate) fn wait(&self, word: &AtomicU32, value: u32, longest: Option<Duration>) {
            let mut guard = self.lock.lock().expect("nothing panics under this lock");
            while word.load(Ordering::Relaxed) == value {
                guard = match longest {
                    None => self.changed.wait(guard).expect("as above"),
                    // A spurious wake-up may end the wait early.
                    Some(longest) => {
                        let _ = self.changed.wait_timeout(guard, longest).expect("as above");
                        return;
                    }
                };
            }
        }

        pub(crate) fn wake(&self, _word: &AtomicU32) {
            // A thread that is about to wait holds the lock since it read the word.
            drop(self.lock.lock().expect("nothing panics under this lock"));
            self.changed.notify_one();
        }
    }
}

pub(super) use imp::Park;
