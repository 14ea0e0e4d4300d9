//! The allocator that the program was built with.

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
