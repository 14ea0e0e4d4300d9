//! Whether a run is to end.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long after it was told to, and after what is queued was sent, a run ends at the latest, whatever
/// does not go on.
const GRACE: Duration = Duration::from_secs(10);

/// Shared by all threads of a run.
#[derive(Debug)]
pub(crate) struct Stop {
    asked: OnceLock<Instant>,
    at_once: AtomicBool,
    drain: Duration,
}

impl Stop {
    /// Not yet; then what is queued is sent for so long at most.
    pub(crate) fn new(drain: Duration) -> Stop {
        Stop {
            asked: OnceLock::new(),
            at_once: AtomicBool::new(false),
            drain,
        }
    }

    /// How long what is queued is sent at most.
    pub(crate) fn drain(&self) -> Duration {
        self.drain
    }

    /// Somebody wants it to end, whatever is queued.
    pub(crate) fn ask_at_once(&self) {
        self.at_once.store(true, Ordering::Relaxed);
        self.ask();
    }

    /// Whether what is queued is of no interest any more. Waits for nobody.
    #[inline]
    pub(crate) fn is_asked_at_once(&self) -> bool {
        self.at_once.load(Ordering::Relaxed)
    }

    /// Somebody wants it to end.
    pub(crate) fn ask(&self) {
        self.asked.get_or_init(Instant::now);
    }

    /// Whether it is to end. Waits for nobody.
    #[inline]
    pub(crate) fn is_asked(&self) -> bool {
        self.asked.get().is_some()
    }

    /// Whether nobody is waited for any more.
    pub(crate) fn is_overdue(&self) -> bool {
        let longest = self.drain.saturating_add(GRACE);
        self.asked.get().is_some_and(|at| at.elapsed() >= longest)
    }
}
