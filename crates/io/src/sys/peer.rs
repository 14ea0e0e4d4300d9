//! Who is at the other end of a Unix socket.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::count_or_error;

/// The credentials that the peer had when it connected.
///
/// Its process is 0 where it is in a process namespace that cannot be seen from here.
pub(crate) fn credentials(socket: BorrowedFd<'_>) -> io::Result<libc::ucred> {
    let mut credentials = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, one `ucred`, at the first pointer and the
    // number of bytes written at the second; both are ours.
    let got = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut length,
        )
    };
    count_or_error(got)?;
    Ok(credentials)
}
