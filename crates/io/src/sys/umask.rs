//! Making files with exactly the permissions that were asked for.

use std::io;
use std::thread;

use super::count_or_error;

/// Runs `make` with the file mode creation mask `mask`: the permissions that what it makes is
/// not to have. So a file, or a socket at a path, has its permissions from the moment it is there,
/// and there is no later change of them that a link in its place could lead astray.
///
/// The mask belongs to the process, and a thread that takes a copy for itself disturbs nobody; so
/// `make` runs on such a thread. Where that is forbidden (a filter of system calls), the process's
/// mask is `mask` for the moment, and what its other threads make then has it too.
///
/// # Errors
///
/// No thread is to be had, or `make` panicked.
///
/// ```
/// use std::fs::{File, metadata, remove_file};
/// use std::os::unix::fs::PermissionsExt;
///
/// let path = std::env::temp_dir().join(format!("with-umask-{}", std::process::id()));
/// // Nobody else may even open it, not for a moment.
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
