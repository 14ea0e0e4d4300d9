//! The daemon's handle on those who attach.

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
    /// Who belongs to which class.
    pub mapping: Mapping,
    /// Most clients of all classes together, with those that have yet to say hello.
    pub most_clients: usize,
    /// Most of them that are of one user (a uid), so that no program of one user keeps the others out. Who has
    /// several uids has as many times that: who may open the socket decides on those.
    pub most_of_a_user: usize,
    /// How often a user may attach: as many times at once as it may have clients, or this, if that is
    /// more, and so many times a second from then on. Each time costs the daemon more than the user.
    pub attachments_per_second: u32,
    /// Most bytes of all mailboxes together. They are the daemon's until it has let go of a
    /// client, and no longer.
    pub most_memory: u64,
    /// Slots of a client's mailbox: a power of two. Each takes the class's longest packet and 8
    /// bytes, rounded up to 64.
    pub slots: usize,
    /// Permissions of the socket's file. Who may not write to it cannot even ask.
    pub mode: u32,
    /// How long a connection may stay silent before its hello.
    pub hello_timeout: Duration,
}

impl AttachConfig {
    /// A thousand clients of 256 slots, a quarter of them of one user, who may attach 64 times a second,
    /// a second for the hello, and everybody may ask: the mapping decides. All the memory that the
    /// places need.
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
        /// What the system says.
        error: io::Error,
    },
    /// No mailbox has that many slots, or slots of that size.
    #[error("the class \"{class}\": {error}")]
    Geometry {
        /// Whose mailbox.
        class: String,
        /// What is allowed.
        error: GeometryError,
    },
    /// Not one mailbox is within what all may take.
    #[error(
        "the class \"{class}\": a mailbox takes {bytes} bytes, and all of them may take {most}"
    )]
    Memory {
        /// Whose mailbox.
        class: String,
        /// What it takes.
        bytes: u64,
        /// [`AttachConfig::most_memory`].
        most: u64,
    },
    /// With the link's overhead, the class's longest packets exceed 65,535 bytes.
    #[error(
        "the class \"{class}\": packets of {max} and {overhead} bytes of overhead are longer than 65535 bytes"
    )]
    TooLong {
        /// Whose packets.
        class: String,
        /// Their longest.
        max: Length,
        /// The link's overhead in bytes.
        overhead: u32,
    },
}

/// What became of those that connected, from the beginning on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttachStats {
    /// Got a mailbox.
    pub attached: u64,
    /// Were told why not, or went before they could be told.
    pub refused: u64,
    /// Had a mailbox and are gone: closed, died, or cut off.
    pub left: u64,
    /// Times that a client's bell was heard.
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

/// Who were told why they may not attach, since this was last asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusals {
    /// How many.
    pub count: u64,
    /// The last one's user.
    pub uid: u32,
    /// What the last one was told.
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
            _ => write!(f, " ({count} refusals since the last that was told)"),
        }
    }
}

/// What the thread tells the handle.
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

    /// What is yet to be told is one sentence, however many are refused.
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
/// Dropping it closes all connections and removes the socket's file: what the clients pushed is
/// still sent, then their flows are removed.
#[derive(Debug)]
pub struct Attach {
    status: Arc<Status>,
    wake: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Attach {
    /// Listens at `path`, where there may be the socket of a daemon that is gone. A client's
    /// packets go through its own copy of `make`, on the arbiter's thread, which makes of the
    /// bytes, and of whose they are, what the arbiter's other clients push.
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

    /// What became of those that connected.
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

    /// Who were refused since the last call, to be told in a log: one line a call, so its rate is
    /// the caller's, whatever the clients do. Locks what a refusal locks.
    #[must_use]
    pub fn take_refusals(&self) -> Option<Refusals> {
        self.status.refusals().take()
    }

    /// The clients that are there, by number. Locks what attaching and leaving lock.
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
