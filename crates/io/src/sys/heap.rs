//! The allocator that the program was built with.

/// Larger allocations get pages of their own, which are returned as soon as they are freed. No frame is that
/// large.
#[cfg(target_env = "gnu")]
const OF_ITS_OWN: libc::c_int = 256 << 10;
/// Free memory kept at the end of a thread's arena before it is returned: bursts of frames need no system
/// call.
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
/// // After emptying a queue, on a thread that is not urgent.
/// give_back_unused();
/// ```
pub fn keep_little_unused() {
    // SAFETY: it takes numbers, and changes no existing allocation.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, OF_ITS_OWN);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT);
    }
}

/// Returns unused heap memory to the system, in whole pages: glibc otherwise keeps free memory below an
/// allocation that is still in use. A no-op with other C libraries, which do so by themselves.
///
/// It walks the free lists, which takes milliseconds after some hundred megabytes were freed; a thread that
/// allocates meanwhile waits while its arena is walked.
pub fn give_back_unused() {
    // SAFETY: it takes no pointer, and neither moves nor frees existing allocations.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}
