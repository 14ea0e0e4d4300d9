//! Threads of the data plane: their priority, their locks, and the bell that ends a wait.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Wake;

use rustix::event::{EventfdFlags, eventfd};
use rustix::process::setpriority_process;

/// The highest priority, as `nice` counts: a guarantee of 20 ms is worth nothing if the thread waits as long behind a
/// dozen processes that never sleep.
const FIRST: i32 = -20;

/// Raises the calling thread's priority above that of other programs, if that is permitted. Not a real-time policy: a
/// flood must not lock out everything else.
pub fn raise_priority() {
    let _ = setpriority_process(None, FIRST);
}

/// No code under these locks panics half-way.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An eventfd that ends a wait.
pub struct Bell(OwnedFd);

impl Bell {
    pub fn new() -> io::Result<Bell> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Bell(eventfd(0, flags)?))
    }

    pub fn ring(&self) {
        // It fails where it has rung as often as can be counted.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    pub fn rang(&self) {
        // The read fails if the bell was not rung.
        let _ = rustix::io::read(&self.0, &mut [0_u8; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }
}
