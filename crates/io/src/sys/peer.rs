//! The identity of the peer of a Unix socket.

use std::io;
use std::os::fd::BorrowedFd;

use super::{Plain, option_of};

// SAFETY: three integers of one size.
unsafe impl Plain for libc::ucred {}

/// Returns the credentials that the peer had when it connected.
///
/// Its process is 0 where it is in a process namespace that cannot be seen from here.
pub(crate) fn credentials(socket: BorrowedFd<'_>) -> io::Result<libc::ucred> {
    option_of(socket, libc::SOL_SOCKET, libc::SO_PEERCRED)
}
