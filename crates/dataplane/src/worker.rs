//! A worker: a thread at an interface, which receives or transmits. Both directions start, stop and end alike.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use fairlane_runtime::pin_to_core;

use crate::threads::{Bell, lock, raise_priority};

/// The direction of a worker's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Receive,
    Transmit,
}

impl Direction {
    /// Returns the name of worker `at` of `count` at an interface.
    fn thread_name(self, interface: &str, at: usize, count: usize) -> String {
        let prefix = match self {
            Direction::Receive => "rx",
            Direction::Transmit => "tx",
        };
        match count {
            1 => format!("{prefix} {interface}"),
            _ => format!("{prefix}{} {interface}", at + 1),
        }
    }

    /// Returns the error of a worker that ended without reporting one.
    pub(crate) fn panicked(self) -> io::Error {
        io::Error::other(match self {
            Direction::Receive => "a receive worker has ended",
            Direction::Transmit => "a transmit worker has ended",
        })
    }
}

/// The end of a worker: requested, or with the error that it ended with by itself.
pub(crate) struct End {
    stop: AtomicBool,
    /// Ends the worker's wait.
    pub(crate) bell: Arc<Bell>,
    pub(crate) failed: Mutex<Option<io::Error>>,
}

impl End {
    pub(crate) fn new() -> io::Result<Arc<End>> {
        Ok(Arc::new(End {
            stop: AtomicBool::new(false),
            bell: Arc::new(Bell::new()?),
            failed: Mutex::new(None),
        }))
    }

    /// Requests the end. Frames handed over before are seen by a worker that sees the request.
    pub(crate) fn request(&self) {
        self.stop.store(true, Ordering::Release);
        self.bell.ring();
    }

    pub(crate) fn is_requested(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub(crate) fn record(&self, outcome: io::Result<()>) {
        *lock(&self.failed) = outcome.err();
    }
}

/// A worker's thread, which leaves `L` when it ends. Dropping it requests the end and waits for it.
pub(crate) struct WorkerThread<L> {
    pub(crate) end: Arc<End>,
    pub(crate) thread: Option<JoinHandle<Option<L>>>,
}

impl<L> WorkerThread<L> {
    /// Creates the handle of a worker whose thread has not [started](start).
    pub(crate) fn new(end: Arc<End>) -> WorkerThread<L> {
        WorkerThread { end, thread: None }
    }

    /// Waits for a worker whose end was requested. Returns its remains, or `None` after a panic.
    pub(crate) fn join(&mut self) -> Option<L> {
        self.thread.take()?.join().ok()?
    }
}

impl<L> Drop for WorkerThread<L> {
    fn drop(&mut self) {
        self.end.request();
        // The remains are dropped; a panic of the worker was reported earlier.
        let _ = self.join();
    }
}

/// Starts the threads of the workers at an interface, each on its core, if there is a list of cores. Each waits for its
/// worker, which the returned sender passes, and ends if it gets none. If one thread fails to start, none stays.
pub(crate) fn start<W: Send + 'static, L: Send + 'static>(
    direction: Direction,
    interface: &str,
    threads: Vec<&mut WorkerThread<L>>,
    (cores, stack): (&[usize], usize),
    run: impl Fn(W) -> L + Clone + Send + 'static,
) -> io::Result<Vec<SyncSender<W>>> {
    let count = threads.len();
    let senders = threads.into_iter().enumerate().map(|(at, worker)| {
        let (give, given) = sync_channel::<W>(1);
        let (core, run) = (cores.get(at).copied(), run.clone());
        let thread = thread::Builder::new()
            .name(direction.thread_name(interface, at, count))
            .stack_size(stack);
        let thread = thread.spawn(move || {
            let worker = given.recv().ok()?;
            raise_priority();
            if let Some(core) = core {
                // The core existed when the site was opened; if it does not any more, any other will do.
                let _ = pin_to_core(core);
            }
            Some(run(worker))
        });
        worker.thread = Some(thread?);
        Ok(give)
    });
    senders.collect()
}
