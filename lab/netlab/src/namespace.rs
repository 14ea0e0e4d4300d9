//! Network namespaces.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::panic;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use fairlane_netlink::{Protocol, Socket};
use nix::sched::{CloneFlags, setns, unshare};

use crate::LabError;

/// A network namespace: at first with a loopback device that is down, and nothing else.
///
/// Cloning gives another handle to the same one.
#[derive(Clone, Debug)]
pub struct Namespace {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Keeps the namespace alive.
    file: File,
    /// A netlink socket in it.
    route: Mutex<Socket>,
}

impl Namespace {
    /// Makes a namespace. IPv6 is off in it, so that no interface says anything by itself.
    ///
    /// # Errors
    ///
    /// Without the privilege (root has it), or if the kernel has no namespaces.
    pub fn new() -> Result<Self, LabError> {
        // A thread may leave its namespace for another, but not the rest of the process with it.
        let made = thread::scope(|scope| join(scope.spawn(Self::unshare)));
        let (file, route) =
            made.map_err(|error| LabError::new("make a network namespace", error))?;
        Ok(Self {
            inner: Arc::new(Inner {
                file,
                route: Mutex::new(route),
            }),
        })
    }

    /// Takes the calling thread into a new namespace.
    fn unshare() -> io::Result<(File, Socket)> {
        unshare(CloneFlags::CLONE_NEWNET)?;
        let file = File::open("/proc/thread-self/ns/net")?;
        for which in ["all", "default"] {
            match fs::write(format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6"), "1") {
                // A kernel without IPv6 is quiet already.
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok((file, Socket::open(Protocol::ROUTE)?))
    }

    /// Runs `work` in this namespace and returns its result. The sockets that it makes belong to
    /// this namespace from then on, in whatever thread they are used.
    ///
    /// `work` runs on a thread of its own, which ends with it; the caller's thread waits.
    ///
    /// # Panics
    ///
    /// If `work` does, with its panic; or if no thread can be had, or the process has given up the
    /// privileges with which the namespace was made.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            join(scope.spawn(|| {
                setns(&self.inner.file, CloneFlags::CLONE_NEWNET)
                    .expect("who may make a namespace may enter it");
                work()
            }))
        })
    }

    /// Sets one of this namespace's own parameters: `key` is its path below `/proc/sys/net`, as in
    /// `ipv4/tcp_ecn`.
    ///
    /// # Errors
    ///
    /// If there is no such parameter here, or `value` is none that it can have.
    pub fn set_parameter(&self, key: &str, value: &str) -> Result<(), LabError> {
        self.run(|| fs::write(format!("/proc/sys/net/{key}"), value))
            .map_err(|source| LabError::Failed {
                attempt: format!("set {key} to {value}"),
                source,
            })
    }

    pub(crate) fn route(&self) -> MutexGuard<'_, Socket> {
        // A request that panicked has at worst left an answer unread, which none takes for its own.
        self.inner
            .route
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.inner.file.as_raw_fd()
    }
}

/// Returns the thread's result, or its panic.
fn join<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread
        .join()
        .unwrap_or_else(|panic| panic::resume_unwind(panic))
}
