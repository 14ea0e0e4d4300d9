//! Waiting for packets. Linux only.

use std::io;
use std::iter::Enumerate;
use std::os::fd::{AsFd, AsRawFd};
use std::slice;
use std::time::Duration;

use crate::sys;

/// Lets one thread wait for any of many sockets.
///
/// It keeps the array that the system call needs, so that waiting allocates only when there are
/// more sockets than ever before. It keeps no other state: each call gets the sockets, which may
/// change between calls.
#[derive(Debug, Default)]
pub struct Waiter {
    set: Vec<libc::pollfd>,
}

impl Waiter {
    /// Returns a waiter. Allocates nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Blocks until one of `sockets` has something to receive, or for `timeout`; gives the indices
    /// of those that have, in increasing order, and none if the time is over.
    ///
    /// A socket that waits to report an error counts as readable, for receiving is how to learn of
    /// it. A signal to the thread ends the wait early with no index, so that a loop may look at
    /// its flag to stop. A zero `timeout` only looks; one beyond 68 years is cut to that. One
    /// system call, `ppoll`: O(n) in the number of sockets.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if there are more sockets than the process may have descriptors (only
    /// possible with repeats), `OutOfMemory` if the kernel has none.
    pub fn wait_readable<S: AsFd>(
        &mut self,
        sockets: &[S],
        timeout: Duration,
    ) -> io::Result<Readable<'_>> {
        self.set.clear();
        self.set.extend(sockets.iter().map(|socket| libc::pollfd {
            fd: socket.as_fd().as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        }));
        let ready = match sys::poll(&mut self.set, timeout) {
            Ok(ready) => ready,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(error),
        };
        Ok(Readable {
            left: ready,
            set: self.set.iter().enumerate(),
        })
    }
}

/// The indices of the sockets that are readable. From [`Waiter::wait_readable`].
///
/// It borrows the waiter and not the sockets, which may be received from while it is walked.
///
/// ```
/// use fairlane_io::{Waiter, wait::Readable};
/// use std::io::Write;
/// use std::os::unix::net::UnixStream;
/// use std::time::Duration;
///
/// let ((silent, _a), (said, mut b)) = (UnixStream::pair()?, UnixStream::pair()?);
/// b.write_all(b"something")?;
/// let mut waiter = Waiter::new();
/// let readable: Readable = waiter.wait_readable(&[&silent, &said], Duration::from_secs(1))?;
/// assert_eq!(readable.collect::<Vec<_>>(), [1]);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Readable<'a> {
    left: usize,
    set: Enumerate<slice::Iter<'a, libc::pollfd>>,
}

impl Iterator for Readable<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        self.set
            .find(|(_, entry)| entry.revents != 0)
            .map(|(index, _)| index)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Readable<'_> {}
