//! The side of the process that attaches.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fairlane_core::{Length, Weight};
use fairlane_io::SharedMemory;
use fairlane_mailbox::shared::{Geometry, PushError, Sender, Told};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{SocketAddrUnix, SocketFlags};

use super::message::{self, Grant, Reply};
use super::socket;

/// How long [`connect`] waits for a daemon that does not answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why a process is not attached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No daemon answers.
    #[error("cannot reach a daemon at {}: {error}", path.display())]
    Unreachable {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The daemon said no, and why.
    #[error("the daemon refused: {0}")]
    Refused(String),
    /// An answer that cannot be used.
    #[error("the daemon at {} cannot be used: {reason}", path.display())]
    Unusable {
        /// The socket.
        path: PathBuf,
        /// The fault in the answer.
        reason: String,
    },
}

/// Why a packet was not pushed. It is still the caller's, untouched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PushRefused {
    /// The arbiter has not visited it yet.
    #[error("the mailbox is full")]
    Full,
    /// Empty, or longer than the class allows.
    #[error("the packet has {given} bytes, and its class takes 1 to {max}", max = .max.get())]
    Length {
        /// The packet's length in bytes.
        given: usize,
        /// The class's longest packet.
        max: Length,
    },
    /// The daemon is gone, or has cut this client off.
    #[error("the daemon is gone")]
    Gone,
}

/// A client in another process than the arbiter's. One thread at a time may use it; dropping it
/// ends the client: pushed packets are still sent, then its flow is removed.
///
/// The connection is not inherited over `exec`; after a `fork`, only one process may push, and the
/// client exists until both are gone.
pub struct ProcessClient {
    sender: Sender<SharedMemory>,
    socket: OwnedFd,
    /// Written to when the arbiter dozes.
    bell: OwnedFd,
    grant: Grant,
}

/// Attaches to the daemon that [listens](super::Attach::listen) at `path`.
///
/// Waits for the answer, five seconds at most.
///
/// # Errors
///
/// [`ConnectError`]: there is no listener, the daemon refuses, or speaks another version.
pub fn connect(path: impl AsRef<Path>) -> Result<ProcessClient, ConnectError> {
    let path = path.as_ref();
    let unusable = |reason| ConnectError::Unusable {
        path: path.to_owned(),
        reason,
    };
    let (socket, answer, handles) = call(path).map_err(|error| ConnectError::Unreachable {
        path: path.to_owned(),
        error: match error.kind() {
            io::ErrorKind::WouldBlock => io::Error::new(
                io::ErrorKind::TimedOut,
                format!("no answer within {} seconds", PATIENCE.as_secs()),
            ),
            _ => error,
        },
    })?;
    if answer.is_empty() {
        return Err(unusable("it hung up without an answer".into()));
    }
    let grant = match Reply::read(&answer).map_err(unusable)? {
        Reply::Attached(grant) => grant,
        Reply::Refused(sentence) => return Err(ConnectError::Refused(sentence)),
    };
    let [memory, bell] = <[OwnedFd; 2]>::try_from(handles)
        .map_err(|_| unusable("it sent no memory, or no bell".into()))?;
    let longest = grant.max_length.get() as usize;
    let geometry = Geometry::new(grant.slots as usize, longest)
        .map_err(|error| unusable(error.to_string()))?;
    let memory = SharedMemory::open(memory, geometry.bytes())
        .map_err(|error| unusable(error.to_string()))?;
    let sender = Sender::new(memory, geometry).map_err(|error| unusable(error.to_string()))?;
    Ok(ProcessClient {
        sender,
        socket,
        bell,
        grant,
    })
}

fn call(path: &Path) -> io::Result<(OwnedFd, Vec<u8>, Vec<OwnedFd>)> {
    let address = SocketAddrUnix::new(path)?;
    let socket = socket::new(SocketFlags::empty())?;
    set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
    rustix::net::connect(&socket, &address)?;
    let said = socket::send(&socket, &message::hello(), &[]);
    // A client that is rejected before its hello finds first that the hello was not read, and then
    // the reason.
    let answered = match socket::receive(&socket) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => socket::receive(&socket),
        answered => answered,
    };
    let (answer, handles) = answered?;
    if answer.is_empty() {
        said?;
    }
    Ok((socket, answer, handles))
}

impl ProcessClient {
    /// Hands a packet to the arbiter, or says at once why not.
    ///
    /// Never waits. O(length): one copy into shared memory, and a fence. No system call, but one to
    /// wake an arbiter that looks away, and one to see whether the daemon lives if the mailbox is
    /// full.
    ///
    /// # Errors
    ///
    /// [`PushRefused`]. A daemon that is gone is noticed when the mailbox is full; a live one
    /// empties it.
    pub fn push(&mut self, packet: &[u8]) -> Result<(), PushRefused> {
        match self.sender.push(packet) {
            Ok(()) => {
                if self.sender.must_ring() {
                    self.ring();
                }
                Ok(())
            }
            Err(PushError::Length { given, .. }) => Err(PushRefused::Length {
                given,
                max: self.max_length(),
            }),
            Err(_) if self.is_abandoned() => Err(PushRefused::Gone),
            Err(_) => Err(PushRefused::Full),
        }
    }

    #[cold]
    fn ring(&self) {
        // It fails only after 2^64 rings.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// Returns whether the daemon is gone, or has cut this client off: later pushes are lost.
    ///
    /// Cost: a system call.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        socket::has_ended(&self.socket)
    }

    /// Returns the daemon's counts of the packets so far: taken, skipped, dropped. They lag by a
    /// few packets.
    #[must_use]
    pub fn told(&self) -> Told {
        self.sender.told()
    }

    /// Returns the class that the daemon put this process into.
    #[must_use]
    pub fn class(&self) -> &str {
        &self.grant.class
    }

    /// Returns the weight of its flow.
    #[must_use]
    pub fn weight(&self) -> Weight {
        self.grant.weight
    }

    /// The longest packet it may push.
    #[must_use]
    pub fn max_length(&self) -> Length {
        self.grant.max_length
    }

    /// Returns how many packets can wait in its mailbox.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.sender.geometry().slots()
    }
}

impl fmt::Debug for ProcessClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessClient")
            .field("class", &self.grant.class)
            .field("sender", &self.sender)
            .finish_non_exhaustive()
    }
}
