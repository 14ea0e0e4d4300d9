//! The threads of the sending clients.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, Scope, ScopedJoinHandle};

use anyhow::{Context, Result};
use fairlane_core::Length;
use fairlane_runtime::{Client, DispatchingClient, Refused, pin_to_core};

use super::output::{Device, Of};

/// A client that sends as fast as it can.
pub(super) trait Sender: Send {
    /// Pushes and transmits as much as possible now; returns whether that was anything.
    fn round(&mut self) -> Result<bool>;
}

/// The cores that clients share, and the one that an arbiter has to itself.
pub(super) struct Cores {
    all: usize,
}

impl Cores {
    pub(super) fn new() -> Cores {
        Cores {
            all: thread::available_parallelism().map_or(1, usize::from),
        }
    }

    /// Returns how many there are.
    pub(super) fn count(&self) -> usize {
        self.all
    }

    /// Returns the arbiter's core: the last. `None` on a machine with one core.
    pub(super) fn arbiter(&self) -> Option<usize> {
        (self.all > 1).then(|| self.all - 1)
    }

    /// Returns the core of a client's thread, next to an arbiter.
    pub(super) fn beside_arbiter(&self, thread: usize) -> Option<usize> {
        (self.all > 1).then(|| thread % (self.all - 1))
    }

    /// Returns the core of a client's thread without an arbiter: clients have all cores.
    pub(super) fn any(&self, thread: usize) -> Option<usize> {
        (self.all > 1).then(|| thread % self.all)
    }
}

/// Keeps a thread on its core. One that may not is merely a less quiet measurement.
pub(super) fn pin(core: Option<usize>) {
    if let Some(core) = core {
        let _ = pin_to_core(core);
    }
}

/// Starts `threads` threads for these clients, and counts those that run in `started`. If the
/// system cannot start them all, sets `done` for those that run.
pub(super) fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    senders: Vec<Box<dyn Sender>>,
    threads: u32,
    core: impl Fn(usize) -> Option<usize>,
    started: &'scope AtomicU32,
    done: &'scope AtomicBool,
) -> Result<Vec<ScopedJoinHandle<'scope, Result<()>>>> {
    let mut groups: Vec<Vec<_>> = (0..threads).map(|_| Vec::new()).collect();
    for (number, sender) in senders.into_iter().enumerate() {
        groups[number % threads as usize].push(sender);
    }
    let run = |(number, mut group): (usize, Vec<Box<dyn Sender>>)| {
        let core = core(number);
        let spawned = thread::Builder::new().spawn_scoped(scope, move || {
            pin(core);
            started.fetch_add(1, Ordering::Release);
            while !done.load(Ordering::Relaxed) {
                let mut moved = false;
                for sender in &mut group {
                    moved |= sender.round()?;
                }
                if !moved {
                    // Lets other threads on this core run.
                    thread::yield_now();
                }
            }
            Ok(())
        });
        if spawned.is_err() {
            done.store(true, Ordering::Release);
        }
        spawned.with_context(|| format!("no more than {number} of --threads {threads} could start"))
    };
    groups.into_iter().enumerate().map(run).collect()
}

/// A client that keeps its packets, which are nothing, and does nothing with them once they
/// are cleared.
pub(super) struct Clearing {
    pub client: DispatchingClient<()>,
    pub len: Length,
}

impl Sender for Clearing {
    fn round(&mut self) -> Result<bool> {
        let mut packets = std::iter::repeat((self.len, ()));
        let pushed = self.client.push_batch(&mut packets).map_err(reason)?;
        let mut dispatched = 0;
        while self.client.next_cleared().is_some() {
            dispatched += 1;
        }
        Ok(pushed + dispatched > 0)
    }
}

/// A client that transmits cleared packets through a device of its own.
pub(super) struct Dispatching {
    pub client: DispatchingClient<Of>,
    pub number: u32,
    pub len: Length,
    pub device: Device,
}

impl Sender for Dispatching {
    fn round(&mut self) -> Result<bool> {
        let mut packets = std::iter::repeat((self.len, Of(self.number)));
        let pushed = self.client.push_batch(&mut packets).map_err(reason)?;
        let dispatched = self.client.dispatch(&mut self.device)?;
        Ok(pushed + dispatched > 0)
    }
}

/// A client that hands its packets over.
pub(super) struct Pushing {
    pub client: Client<Of>,
    pub number: u32,
    pub len: Length,
}

impl Sender for Pushing {
    fn round(&mut self) -> Result<bool> {
        let mut packets = std::iter::repeat((self.len, Of(self.number)));
        let (pushed, _) = self.client.push_batch(&mut packets).map_err(reason)?;
        Ok(pushed > 0)
    }
}

pub(super) fn reason<T>(refused: Refused<T>) -> anyhow::Error {
    refused.reason.into()
}
