//! Unix sockets at a path, where a daemon listens.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    socket_with,
};

use crate::with_umask;

/// Connections that the kernel holds until they are accepted.
const BACKLOG: i32 = 128;

/// The type of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carries {
    /// Bytes.
    Stream,
    /// Messages with boundaries, in order, and an end that is seen: `SOCK_SEQPACKET`.
    Messages,
}

impl Carries {
    fn socket(self) -> io::Result<OwnedFd> {
        let kind = match self {
            Carries::Stream => SocketType::STREAM,
            Carries::Messages => SocketType::SEQPACKET,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        Ok(socket_with(AddressFamily::UNIX, kind, flags, None)?)
    }
}

/// Why there is no listening at a path.
#[derive(Debug)]
#[non_exhaustive]
pub enum BindError {
    /// Another process listens there.
    InUse,
    /// There is something else.
    NotASocket,
    /// The system refuses it.
    Io(io::Error),
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BindError::InUse => f.write_str("another program listens there"),
            BindError::NotASocket => f.write_str("there is something else, which is no socket"),
            BindError::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BindError {}

impl From<io::Error> for BindError {
    fn from(error: io::Error) -> Self {
        BindError::Io(error)
    }
}

impl From<Errno> for BindError {
    fn from(error: Errno) -> Self {
        BindError::Io(error.into())
    }
}

/// A socket that listens at a path, and takes its file away when it goes.
///
/// ```
/// use fairlane_io::{BindError, Carries, Listener, PeerCredentials};
/// use std::os::unix::net::UnixStream;
///
/// let path = std::env::temp_dir().join(format!("listener-{}.sock", std::process::id()));
/// let listener = Listener::bind(&path, 0o600, Carries::Stream)?;
///
/// let _client = UnixStream::connect(&path)?;
/// let accepted = listener.accept()?;
/// assert_eq!(PeerCredentials::of(&accepted)?.pid, std::process::id());
///
/// // A second daemon gets an error, and the first one keeps its socket.
/// let refused = Listener::bind(&path, 0o600, Carries::Stream);
/// assert!(matches!(refused, Err(BindError::InUse)));
/// drop(listener);
/// assert!(!path.exists());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    path: PathBuf,
    /// Device and number of the socket's file.
    file: (u64, u64),
    /// Another process takes the file away.
    is_others: bool,
}

impl Listener {
    /// Replaces a socket on which no process listens any more. Two daemons that start at the same
    /// moment may both find such a socket: the later takes the path from the earlier.
    ///
    /// # Errors
    ///
    /// Another process listens there, the path is no socket, or the system reports an error.
    pub fn bind(path: &Path, mode: u32, carries: Carries) -> Result<Self, BindError> {
        let address = SocketAddrUnix::new(path)?;
        let socket = carries.socket()?;
        // Files are created with the requested mode. A later `chmod` could follow a link that was put
        // there meanwhile.
        with_umask(!mode & 0o777, || {
            bind_at(&socket, path, &address, carries)?;
            // Immediately, as a process that sees the file may connect.
            listen(&socket, BACKLOG).map_err(BindError::from)
        })??;
        Ok(Listener {
            socket,
            path: path.to_owned(),
            file: file_at(path)?,
            is_others: false,
        })
    }

    /// Takes part in the listening of another process at this path, which gave its socket. Until it is
    /// [owned](Self::own) its file stays.
    ///
    /// # Errors
    ///
    /// There is nothing at the path.
    pub fn share(path: &Path, socket: OwnedFd) -> io::Result<Self> {
        Ok(Listener {
            socket,
            path: path.to_owned(),
            file: file_at(path)?,
            is_others: true,
        })
    }

    /// It is this process's alone from now on.
    pub fn own(&mut self) {
        self.is_others = false;
    }

    /// Another process owns it from now on: the file stays.
    pub fn leave(&mut self) {
        self.is_others = true;
    }

    /// Returns a connection that waits, if there is one.
    ///
    /// # Errors
    ///
    /// There is none (`WouldBlock`), or the system has no room for it.
    pub fn accept(&self) -> io::Result<OwnedFd> {
        Ok(accept_with(
            &self.socket,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        )?)
    }

    /// To wait for connections, or to accept them otherwise.
    pub fn socket(&self) -> &OwnedFd {
        &self.socket
    }
}

fn bind_at(
    socket: &OwnedFd,
    path: &Path,
    address: &SocketAddrUnix,
    carries: Carries,
) -> Result<(), BindError> {
    match bind(socket, address) {
        Err(Errno::ADDRINUSE) => {
            remove_if_stale(path, address, carries)?;
            Ok(bind(socket, address)?)
        }
        bound => Ok(bound?),
    }
}

/// A removal unlinks a name and follows no link. An attacker that could put another file there between
/// check and removal may write to the folder, and so could have removed that name itself.
fn remove_if_stale(
    path: &Path,
    address: &SocketAddrUnix,
    carries: Carries,
) -> Result<(), BindError> {
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(BindError::NotASocket);
    }
    let probe = carries.socket()?;
    match connect(&probe, address) {
        Err(Errno::CONNREFUSED) => Ok(fs::remove_file(path)?),
        _ => Err(BindError::InUse),
    }
}

/// Device and number of the file at a path.
fn file_at(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.is_others {
            return;
        }
        // Another daemon may have put its own socket there meanwhile.
        if file_at(&self.path).is_ok_and(|found| found == self.file) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_socket_that_is_handed_over_keeps_its_file_and_who_waits_there() {
        let folder = std::env::temp_dir().join(format!("fairlane-listener-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("socket");
        let mut first = Listener::bind(&path, 0o600, Carries::Stream).unwrap();
        let share = |first: &Listener| {
            let socket = first.socket().try_clone().unwrap();
            Listener::share(&path, socket).unwrap()
        };
        // One that fails before it owns it takes nothing away.
        drop(share(&first));
        let _waits = UnixStream::connect(&path).unwrap();
        let mut second = share(&first);
        first.leave();
        second.own();
        drop(first);
        second.accept().unwrap();
        drop(UnixStream::connect(&path).unwrap());
        drop(second);
        assert!(!path.exists());
        fs::remove_dir(&folder).unwrap();
    }
}
