//! Creating files with exactly the requested permissions.

use std::io;
use std::thread;

use super::count_or_error;

/// Runs `make` with the file mode creation mask `mask`: permissions that created files do not get.
/// A file, or a socket at a path, thus has its final permissions from the start, and no later
/// change of them can follow a link at its path.
///
/// The mask belongs to the process, but a thread can take a copy of its own without affecting
/// others, so `make` runs on such a thread. Where that is forbidden (a filter of system calls), the
/// process's mask is `mask` meanwhile, and files that its other threads create get it too.
///
/// # Errors
///
/// No thread can be started, or `make` panicked.
///
/// ```
/// use std::fs::{File, metadata, remove_file};
/// use std::os::unix::fs::PermissionsExt;
///
/// let path = std::env::temp_dir().join(format!("with-umask-{}", std::process::id()));
/// // No other user may open it, from the start.
/// fairlane_io::with_umask(0o077, || File::create(&path))??;
/// assert_eq!(metadata(&path)?.permissions().mode() & 0o777, 0o600);
/// remove_file(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn with_umask<R: Send>(mask: u32, make: impl FnOnce() -> R + Send) -> io::Result<R> {
    thread::scope(|scope| {
        let maker = thread::Builder::new().spawn_scoped(scope, move || {
            // SAFETY: the call takes no pointer. It gives this thread, which ends with this
            // function, a copy of its own of root, working directory and mask.
            let own = count_or_error(unsafe { libc::unshare(libc::CLONE_FS) }).is_ok();
            // SAFETY: the call takes no pointer and always succeeds.
            let former = unsafe { libc::umask(mask) };
            let made = make();
            if !own {
                // SAFETY: as above.
                unsafe { libc::umask(former) };
            }
            made
        })?;
        maker
            .join()
            .map_err(|_| io::Error::other("the thread that makes a file ended by a panic"))
    })
}
