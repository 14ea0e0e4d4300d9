//! Memory shared with another process, and the identity of that process.
//!
//! ```
//! use fairlane_io::SharedMemory;
//! use std::sync::atomic::Ordering;
//!
//! let (ours, handle) = SharedMemory::create(4096)?;
//! // The handle goes to the other process, through a Unix socket, say.
//! let theirs = SharedMemory::open(handle, 4096)?;
//! theirs.as_ref()[7].store(1, Ordering::Relaxed);
//! assert_eq!(ours.as_ref()[7].load(Ordering::Relaxed), 1);
//! # Ok::<(), std::io::Error>(())
//! ```

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU64;

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};

use crate::sys::memory::Mapped;
use crate::sys::peer;

/// Forbids every process, including the creator, to change the memory's size or these seals.
const SEALED: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// Words of memory that another process can reach too.
///
/// Its size is sealed, so that no process can make an access of another fail. Other processes may
/// change the words at any time; they are atomics, so each access has a result.
///
/// Unmapped when dropped. When the creator drops it, its pages are freed even if other processes
/// still have the handle or a mapping: the kernel charges pages to the process that touched them
/// first, the creator. Later writes by another process allocate new pages, which are charged to
/// that process.
#[derive(Debug)]
pub struct SharedMemory {
    mapped: Mapped,
    created: bool,
}

impl SharedMemory {
    /// New memory of `bytes` bytes, all zeros, and the handle to give to the other process. It is
    /// an anonymous file (`memfd_create`), which appears in no directory and is closed on `exec`.
    ///
    /// Cost: system calls, and the clearing of all pages.
    ///
    /// # Errors
    ///
    /// `bytes` is 0 or not a multiple of 8; the system is out of memory, address space or files.
    pub fn create(bytes: usize) -> io::Result<(Self, OwnedFd)> {
        let words = words(bytes)?;
        let file = memfd_create("fairlane", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, bytes as u64)?;
        fcntl_add_seals(&file, SEALED | SealFlags::SEAL)?;
        let memory = SharedMemory {
            mapped: Mapped::new(file.as_fd(), words)?,
            created: true,
        };
        Ok((memory, file))
    }

    /// Maps the first `bytes` bytes of memory that another process created.
    ///
    /// # Errors
    ///
    /// `bytes` is 0 or not a multiple of 8; the handle is not one to memory of at least `bytes`
    /// bytes with a sealed size; the system is out of address space.
    pub fn open(handle: OwnedFd, bytes: usize) -> io::Result<Self> {
        let words = words(bytes)?;
        let seals = fcntl_get_seals(&handle).unwrap_or(SealFlags::empty());
        if !seals.contains(SEALED) {
            return Err(invalid(
                "the shared memory's size is not sealed: it could shrink under an access".into(),
            ));
        }
        let size = fstat(&handle)?.st_size;
        if usize::try_from(size).is_ok_and(|size| size < bytes) {
            return Err(invalid(format!(
                "the shared memory has {size} bytes, and {bytes} are needed"
            )));
        }
        Ok(SharedMemory {
            mapped: Mapped::new(handle.as_fd(), words)?,
            created: false,
        })
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        if self.created {
            // Nothing that was sealed above forbids it. Where it fails all the same, the pages last
            // until no process has them any more.
            let _ = self.mapped.empty();
        }
    }
}

impl AsRef<[AtomicU64]> for SharedMemory {
    #[inline]
    fn as_ref(&self) -> &[AtomicU64] {
        self.mapped.as_ref()
    }
}

fn words(bytes: usize) -> io::Result<usize> {
    let word = size_of::<AtomicU64>();
    match bytes > 0 && bytes.is_multiple_of(word) {
        true => Ok(bytes / word),
        false => Err(invalid(format!(
            "shared memory cannot have {bytes} bytes: the number must be a multiple of {word}, and not 0"
        ))),
    }
}

fn invalid(sentence: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, sentence)
}

/// The identity of the process that connected a Unix socket, from the kernel: it cannot be forged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerCredentials {
    /// Process; 0 where it is in a process namespace that cannot be seen from here.
    pub pid: u32,
    /// Effective user at the time.
    pub uid: u32,
    /// Effective group at the time.
    pub gid: u32,
}

impl PeerCredentials {
    /// Of the process that connected `socket`.
    ///
    /// # Errors
    ///
    /// `socket` is not a connected Unix socket.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        let credentials = peer::credentials(socket.as_fd())?;
        Ok(PeerCredentials {
            pid: u32::try_from(credentials.pid).unwrap_or(0),
            uid: credentials.uid,
            gid: credentials.gid,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    fn sentence(result: io::Result<SharedMemory>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn memory_that_could_shrink_is_refused() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("unsealed", flags).unwrap();
        ftruncate(&file, 4096).unwrap();
        let refused = sentence(SharedMemory::open(file.try_clone().unwrap(), 4096));
        assert!(refused.contains("not sealed"), "{refused}");
        fcntl_add_seals(&file, SEALED).unwrap();
        assert!(SharedMemory::open(file, 4096).is_ok());
    }

    #[test]
    fn a_file_that_is_no_memory_is_refused() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let refused = sentence(SharedMemory::open(file.into(), 4096));
        assert!(refused.contains("not sealed"), "{refused}");
    }

    #[test]
    fn memory_shorter_than_agreed_is_refused() {
        let (_, handle) = SharedMemory::create(4096).unwrap();
        assert_eq!(
            sentence(SharedMemory::open(handle, 8192)),
            "the shared memory has 4096 bytes, and 8192 are needed"
        );
    }

    #[test]
    fn nobody_can_change_the_size_or_the_seals() {
        let (memory, handle) = SharedMemory::create(8192).unwrap();
        assert!(ftruncate(&handle, 4096).is_err());
        assert!(ftruncate(&handle, 16384).is_err());
        assert!(fcntl_add_seals(&handle, SealFlags::FUTURE_WRITE).is_err());
        memory.as_ref()[1023].store(7, Ordering::Relaxed);
        assert_eq!(memory.as_ref()[1023].load(Ordering::Relaxed), 7);
    }

    #[test]
    fn who_keeps_the_handle_or_a_mapping_keeps_no_page_of_the_creator() {
        let bytes = 1 << 20;
        let pages = |handle: &OwnedFd| fstat(handle).unwrap().st_blocks as usize * 512;
        let (ours, handle) = SharedMemory::create(bytes).unwrap();
        let theirs = SharedMemory::open(handle.try_clone().unwrap(), bytes).unwrap();
        theirs.as_ref()[7].store(1, Ordering::Relaxed);
        assert_eq!(pages(&handle), bytes);
        drop(ours);
        assert_eq!(pages(&handle), 0);
        assert_eq!(theirs.as_ref()[7].load(Ordering::Relaxed), 0);
        // A page of its own.
        theirs.as_ref()[7].store(2, Ordering::Relaxed);
        assert_eq!(theirs.as_ref()[7].load(Ordering::Relaxed), 2);
        assert!(pages(&handle) <= 2 * 4096);
        assert_eq!(fstat(&handle).unwrap().st_size as usize, bytes);
        // A process that only opened the memory does not free it.
        let kept = pages(&handle);
        drop(theirs);
        assert_eq!(pages(&handle), kept);
    }

    #[test]
    fn memory_is_words_or_it_is_refused() {
        for bytes in [0, 7, 4097] {
            assert_eq!(
                SharedMemory::create(bytes).unwrap_err().to_string(),
                format!(
                    "shared memory cannot have {bytes} bytes: the number must be a multiple of 8, and not 0"
                )
            );
        }
    }

    #[test]
    fn the_kernel_says_who_connected() {
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let peer = PeerCredentials::of(&ours).unwrap();
        assert_eq!(peer.pid, std::process::id());
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
        assert_eq!(peer.gid, rustix::process::getegid().as_raw());
    }
}
