//! The allocator that the program was built with.

/// What is longer has pages of its own, which are given back as soon as it is freed. No frame is.
#[cfg(target_env = "gnu")]
const OF_ITS_OWN: libc::c_int = 256 << 10;
/// What may be free at the end of a thread's part before it is given back: a burst of frames comes and goes
/// without a system call.
#[cfg(target_env = "gnu")]
const KEPT: libc::c_int = 4 << 20;

/// Has this process keep little memory that it does not use. By itself glibc keeps ever longer pieces, up to
/// 32 MiB, once one of that length was freed. Other C libraries keep little anyway, and nothing happens there.
///
/// ```
/// use fairlane_io::{give_back_unused, keep_little_unused};
///
/// // Once, as the process starts.
/// keep_little_unused();
/// let queued: Vec<Vec<u8>> = (0..1_000).map(|_| vec![0; 1_500]).collect();
/// drop(queued);
/// // Where a queue was emptied, on a thread that nobody waits for.
/// give_back_unused();
/// ```
pub fn keep_little_unused() {
    // SAFETY: it takes numbers, and changes nothing about what somebody holds.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, OF_ITS_OWN);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT);
    }
}

/// Gives the system back the memory that was allocated once and holds nothing now, in whole pages: glibc
/// keeps what lies below something that is still in use. Other C libraries do without being told, and
/// nothing happens there.
///
/// It takes the time of a walk over what is free, milliseconds after some hundred megabytes were; whoever
/// allocates meanwhile waits while his part of it is walked over.
pub fn give_back_unused() {
    // SAFETY: it takes no pointer, and neither moves nor frees what somebody holds.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}
