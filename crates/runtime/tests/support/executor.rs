//! An executor of one task, on the calling thread.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Longer than any task here waits.
const PATIENCE: Duration = Duration::from_secs(120);

/// Wakes a parked thread.
pub(crate) struct Unpark {
    thread: Thread,
    woken: AtomicBool,
}

impl Unpark {
    /// For the calling thread.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Unpark {
            thread: thread::current(),
            woken: AtomicBool::new(false),
        })
    }

    /// Waits until the task was woken since the last call. Nothing else ends the wait, so that
    /// a wake-up that is lost shows.
    pub(crate) fn wait(&self) {
        let start = Instant::now();
        while !self.woken.swap(false, Ordering::Acquire) {
            let left = PATIENCE.saturating_sub(start.elapsed());
            assert!(left > Duration::ZERO, "nobody wakes the task");
            thread::park_timeout(left);
        }
    }
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Polls a future whenever it is woken, until it is done.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let unpark = Unpark::new();
    let waker = Waker::from(Arc::clone(&unpark));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        unpark.wait();
    }
}
