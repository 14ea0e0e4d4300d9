//! Whether a run is to end.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long after it was told to a run ends at the latest, whatever does not go on.
const GRACE: Duration = Duration::from_secs(10);

/// Shared by all threads of a run.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    asked: OnceLock<Instant>,
}

impl Stop {
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
        self.asked.get().is_some_and(|at| at.elapsed() >= GRACE)
    }
}
