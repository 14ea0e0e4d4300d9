//! The daemon's handle for attached processes.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fairlane_core::Length;
use fairlane_io::{BindError, Carries, Listener, PeerCredentials};
use fairlane_mailbox::shared::GeometryError;
use rustix::event::{EventfdFlags, eventfd};

use super::admission::Admission;
use super::mapping::Mapping;
use super::server::Server;
use crate::client::ClientId;
use crate::registrar::Registrar;

/// How processes are let in.
#[derive(Clone, Debug)]
pub struct AttachConfig {
    /// The classes of processes.
    pub mapping: Mapping,
    /// Most clients of all classes together, with those that have yet to say hello.
    pub most_clients: usize,
    /// Most clients of one user (a uid), so that no user's programs keep the others out. A user with several
    /// uids has that many times the limit: permissions of the socket bound those.
    pub most_of_a_user: usize,
    /// Attachments of a user: a burst of as many as it may have clients, or of this number if that is larger,
    /// and this many a second afterwards. Each time costs the daemon more than the user.
    pub attachments_per_second: u32,
    /// Most bytes of all mailboxes together. They are the daemon's until it has released a client, and no
    /// longer.
    pub most_memory: u64,
    /// Slots of a client's mailbox: a power of two. Each takes the class's longest packet and 8
    /// bytes, rounded up to 64.
    pub slots: usize,
    /// Permissions of the socket's file. A process that may not write to it cannot connect.
    pub mode: u32,
    /// How long a connection may stay silent before its hello.
    pub hello_timeout: Duration,
}

impl AttachConfig {
    /// Returns a thousand clients of 256 slots, a quarter of them of one user, 64 attachments of a user a
    /// second, a second for the hello, and a socket open to all users: the mapping decides. The memory
    /// limit suffices for all places.
    #[must_use]
    pub fn new(mapping: Mapping) -> Self {
        AttachConfig {
            mapping,
            most_clients: 1024,
            most_of_a_user: 256,
            attachments_per_second: 64,
            most_memory: u64::MAX,
            slots: 256,
            mode: 0o666,
            hello_timeout: Duration::from_secs(1),
        }
    }
}

/// Why there is no listening.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The path is taken.
    #[error("cannot listen at {}: another process listens there", .0.display())]
    InUse(PathBuf),
    /// The path is taken by something else.
    #[error("cannot listen at {}: there is a file that is not a socket", .0.display())]
    NotASocket(PathBuf),
    /// The system says no.
    #[error("cannot listen at {}: {error}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// No mailbox has that many slots, or slots of that size.
    #[error("the class \"{class}\": {error}")]
    Geometry {
        /// The class of the mailbox.
        class: String,
        /// The permitted sizes.
        error: GeometryError,
    },
    /// A single mailbox exceeds the limit of all.
    #[error(
        "the class \"{class}\": a mailbox takes {bytes} bytes, and all of them may take {most}"
    )]
    Memory {
        /// The class of the mailbox.
        class: String,
        /// The size of the mailbox.
        bytes: u64,
        /// [`AttachConfig::most_memory`].
        most: u64,
    },
    /// With the link's overhead, the class's longest packets exceed 65,535 bytes.
    #[error(
        "the class \"{class}\": packets of {max} and {overhead} bytes of overhead are longer than 65535 bytes"
    )]
    TooLong {
        /// The class of the packets.
        class: String,
        /// Their longest.
        max: Length,
        /// The link's overhead in bytes.
        overhead: u32,
    },
}

/// Counts of connections since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttachStats {
    /// Got a mailbox.
    pub attached: u64,
    /// Connections that were rejected with a reason, or closed before that.
    pub refused: u64,
    /// Had a mailbox and are gone: closed, died, or cut off.
    pub left: u64,
    /// Rings of clients' bells that were handled.
    pub rings: u64,
}

/// A client that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// The number the arbiter knows it by.
    pub id: ClientId,
    /// The process.
    pub peer: PeerCredentials,
    /// Its class.
    pub class: String,
}

/// Rejected connections since the last query.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub struct Refusals {
    /// How many.
    pub count: u64,
    /// The last one's user.
    pub uid: u32,
    /// The reason given to the last one.
    pub sentence: String,
}

impl fmt::Display for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusals {
            count,
            uid,
            sentence,
        } = self;
        write!(f, "a process of uid {uid} may not attach: {sentence}")?;
        match count {
            0 | 1 => Ok(()),
            _ => write!(f, " ({count} refusals since the last message)"),
        }
    }
}

/// State that the thread shares with the handle.
#[derive(Debug, Default)]
pub(super) struct Status {
    attached: AtomicU64,
    refused: AtomicU64,
    left: AtomicU64,
    rings: AtomicU64,
    refusals: Mutex<Option<Refusals>>,
    /// By connection.
    present: Mutex<HashMap<u64, Attached>>,
}

impl Status {
    fn present(&self) -> MutexGuard<'_, HashMap<u64, Attached>> {
        // Insertion and removal leave a map that is whole.
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn attached(&self, connection: u64, client: Attached) {
        self.present().insert(connection, client);
        self.attached.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn left(&self, connection: u64) {
        self.present().remove(&connection);
        self.left.fetch_add(1, Ordering::Relaxed);
    }

    /// However many are rejected, one message is pending at most.
    pub(super) fn refused(&self, uid: u32, sentence: &str) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        let mut refusals = self.refusals();
        let before = refusals.take().map_or(0, |refusals| refusals.count);
        *refusals = Some(Refusals {
            count: before + 1,
            uid,
            sentence: sentence.to_owned(),
        });
    }

    fn refusals(&self) -> MutexGuard<'_, Option<Refusals>> {
        // It is written whole.
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn rung(&self) {
        self.rings.fetch_add(1, Ordering::Relaxed);
    }
}

/// Lets other processes attach to an arbiter, on a thread of its own.
///
/// Dropping it closes all connections and removes the socket's file: the clients' pushed packets are still
/// sent, then their flows are removed.
#[derive(Debug)]
pub struct Attach {
    status: Arc<Status>,
    wake: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Attach {
    /// Listens at `path`, and replaces the socket of a daemon that is gone. A client's packets pass through
    /// its own copy of `make`, on the arbiter's thread, which converts the bytes and their client's identity
    /// into the type that the arbiter's other clients push.
    ///
    /// # Errors
    ///
    /// [`ListenError`]: the path cannot be used, or a class cannot have the mailboxes asked for.
    pub fn listen<P, F>(
        path: impl AsRef<Path>,
        config: AttachConfig,
        registrar: Registrar<P>,
        make: F,
    ) -> Result<Self, ListenError>
    where
        P: Send + 'static,
        F: FnMut(Vec<u8>, &Attached) -> P + Clone + Send + 'static,
    {
        let path = path.as_ref();
        let admission = Admission::new(&config, registrar.link())?;
        let failed = |error| match error {
            BindError::InUse => ListenError::InUse(path.to_owned()),
            BindError::NotASocket => ListenError::NotASocket(path.to_owned()),
            BindError::Io(error) => ListenError::Io {
                path: path.to_owned(),
                error,
            },
            other => ListenError::Io {
                path: path.to_owned(),
                error: io::Error::other(other),
            },
        };
        let listener = Listener::bind(path, config.mode, Carries::Messages).map_err(failed)?;
        let status = Arc::new(Status::default());
        let start = || {
            let wake = eventfd(0, EventfdFlags::CLOEXEC)?;
            let server = Server::new(
                listener,
                &wake,
                admission,
                config.hello_timeout,
                registrar,
                make,
                Arc::clone(&status),
            )?;
            let thread = thread::Builder::new()
                .name("fairlane-attach".into())
                .spawn(move || server.run())?;
            Ok((wake, thread))
        };
        let (wake, thread) = start().map_err(BindError::Io).map_err(failed)?;
        Ok(Attach {
            status,
            wake,
            thread: Some(thread),
        })
    }

    /// Returns the counts of connections.
    #[must_use]
    pub fn stats(&self) -> AttachStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        AttachStats {
            attached: read(&self.status.attached),
            refused: read(&self.status.refused),
            left: read(&self.status.left),
            rings: read(&self.status.rings),
        }
    }

    /// Returns the rejections since the last call, for a log: one line a call, so the caller bounds its rate,
    /// whatever clients do. Takes the lock that a rejection takes.
    #[must_use]
    #[doc(hidden)]
    pub fn take_refusals(&self) -> Option<Refusals> {
        self.status.refusals().take()
    }

    /// Returns the clients that are there, by number. Locks what attaching and leaving lock.
    #[must_use]
    pub fn attached(&self) -> Vec<Attached> {
        let mut present: Vec<_> = self.status.present().values().cloned().collect();
        present.sort_by_key(|client| client.id);
        present
    }
}

impl Drop for Attach {
    fn drop(&mut self) {
        // It fails only if the thread was woken 2^64 times before.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported there.
            let _ = thread.join();
        }
    }
}
