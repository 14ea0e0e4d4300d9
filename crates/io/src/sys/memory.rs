//! Memory that other processes map too.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::AtomicU64;

use super::count_or_error;

/// A shared mapping of words, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Mapped {
    words: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and its words are reached as atomics
// only.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps the first `count` words of a file, all pages at once, so that no later access has to
    /// wait for one.
    ///
    /// Safe for any file. Accesses beyond its end raise `SIGBUS`: the caller sees to it that it has
    /// `count` words and keeps them.
    pub(crate) fn new(file: BorrowedFd<'_>, count: usize) -> io::Result<Self> {
        let bytes = count
            .checked_mul(size_of::<AtomicU64>())
            .filter(|&bytes| isize::try_from(bytes).is_ok())
            .ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that is in
        // use; the file is open for the duration of the call, and the mapping keeps it afterwards.
        let address = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                file.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let words = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapped { words, count })
    }
}

impl Mapped {
    /// Frees the file's pages for all processes that share it: reads return zeros from now on, and
    /// a process that writes again is charged for its pages.
    ///
    /// Safe for any mapping: its words are atomics, and may change at any time.
    pub(crate) fn empty(&self) -> io::Result<()> {
        // SAFETY: the range is this mapping, from `mmap`, and `self` keeps it. The call changes the
        // words' values, which any process may, and not the mapping.
        let emptied = unsafe {
            libc::madvise(
                self.words.as_ptr().cast(),
                self.count * size_of::<AtomicU64>(),
                libc::MADV_REMOVE,
            )
        };
        count_or_error(emptied).map(drop)
    }
}

impl AsRef<[AtomicU64]> for Mapped {
    #[inline]
    fn as_ref(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has `count` words, starts on a page, and lives as long as `self`.
        // Every bit pattern is a value of an atomic integer, which other threads and processes may
        // change at any time.
        unsafe { slice::from_raw_parts(self.words.as_ptr(), self.count) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this length, no other code unmaps it, and all
        // borrows of it ended with `self`. If it fails the memory stays mapped, which is harmless.
        unsafe {
            libc::munmap(
                self.words.as_ptr().cast(),
                self.count * size_of::<AtomicU64>(),
            );
        }
    }
}
