//! The stop request of a run.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time limit for the end of a run, after the stop request and the sending of the backlog, even if a part does not
/// respond.
const GRACE: Duration = Duration::from_secs(10);

/// Shared by all threads of a run.
#[derive(Debug)]
pub struct Stop {
    asked: OnceLock<Instant>,
    at_once: AtomicBool,
    drain: Duration,
}

impl Stop {
    /// Creates the state of a run that is not stopped; once it is, the backlog is sent for at most `drain`.
    pub fn new(drain: Duration) -> Stop {
        Stop {
            asked: OnceLock::new(),
            at_once: AtomicBool::new(false),
            drain,
        }
    }

    /// Returns the time limit for sending the backlog.
    pub fn drain(&self) -> Duration {
        self.drain
    }

    /// Requests an end without sending the backlog.
    pub fn ask_at_once(&self) {
        self.at_once.store(true, Ordering::Relaxed);
        self.ask();
    }

    /// Whether the backlog is to be abandoned. Does not block.
    #[inline]
    pub fn is_asked_at_once(&self) -> bool {
        self.at_once.load(Ordering::Relaxed)
    }

    /// Requests an end.
    pub fn ask(&self) {
        self.asked.get_or_init(Instant::now);
    }

    /// Whether an end was requested. Does not block.
    #[inline]
    pub fn is_asked(&self) -> bool {
        self.asked.get().is_some()
    }

    /// Whether the time limit has passed.
    pub fn is_overdue(&self) -> bool {
        let longest = self.drain.saturating_add(GRACE);
        self.asked.get().is_some_and(|at| at.elapsed() >= longest)
    }
}
