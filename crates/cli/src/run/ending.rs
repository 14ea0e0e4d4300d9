//! Whether a run is to end, and how long its last words may take.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use std::{process, thread};

/// How long after it was told to a run ends at the latest, whatever does not go on.
const GRACE: Duration = Duration::from_millis(900);

/// How often somebody who waits looks whether he is to stop waiting.
const LOOK: Duration = Duration::from_millis(10);

/// Shared by all threads of a run.
#[derive(Debug, Default)]
pub struct Ending {
    asked: AtomicBool,
    deadline: OnceLock<Instant>,
}

impl Ending {
    /// Somebody wants it to end: a signal.
    pub fn ask(&self) {
        self.deadline.get_or_init(|| Instant::now() + GRACE);
        self.asked.store(true, Ordering::Release);
    }

    /// It ends, since something failed, or its time is over: nobody is in a hurry.
    pub fn begin(&self) {
        self.asked.store(true, Ordering::Release);
    }

    #[inline]
    pub fn has_begun(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    /// What comes, or nothing where it does not come before it has to be over.
    pub fn wait<T>(&self, from: &Receiver<T>) -> Option<T> {
        loop {
            match from.recv_timeout(LOOK) {
                Ok(came) => return Some(came),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if self.is_over() {
                return None;
            }
        }
    }

    /// Nothing is left but to say what failed. Where nobody reads that, the process ends with `code`
    /// when it has to be over.
    pub fn leave(self: Arc<Self>, code: i32) {
        thread::spawn(move || {
            while !self.is_over() {
                thread::sleep(LOOK);
            }
            // Whoever does read has read it by then.
            thread::sleep(LOOK);
            process::exit(code)
        });
    }

    fn is_over(&self) -> bool {
        self.deadline.get().is_some_and(|&at| Instant::now() >= at)
    }
}
