//! The test bed: senders, the daemon or the kernel's bridge in the middle, a receiver.
//!
//! The ALTQ paper's hosts A, B and C were three machines; here they are network namespaces of one,
//! and B is a bump in the wire instead of a router.

use std::env;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fairlane_netlab::{Host, Namespace, Program, Wire};

use crate::measurement::Interrupted;

/// Limit for the daemon and its first frames to start, and for the daemon to end: opening or closing an
/// interface may take a busy kernel 20 seconds.
pub(crate) const BEGIN: Duration = Duration::from_secs(120);

/// Longest time to a look at whether to stop.
const LOOK: Duration = Duration::from_millis(20);

/// A wire with something in its middle, ready for traffic.
pub(crate) struct Bed<'a> {
    stop: &'a AtomicBool,
    wire: Wire,
    daemon: Option<Program>,
}

impl<'a> Bed<'a> {
    /// Starts a bed with `senders` senders and the daemon of this site, or the kernel's bridge without one.
    /// It is ready when frames have passed.
    pub(crate) fn new(stop: &'a AtomicBool, senders: u8, site: Option<&Path>) -> Result<Bed<'a>> {
        let wire = Wire::new(senders)?;
        let daemon = match site {
            None => {
                wire.forward()?;
                None
            }
            Some(site) => {
                let this = env::current_exe().context("finding this program")?;
                let mut command = Command::new(this);
                // Packets queued at the end do not count in the shares.
                command.arg("run").arg(site);
                command.args(["--json", "--drain", "0"]);
                Some(Program::start(wire.middle(), &mut command)?)
            }
        };
        let mut bed = Bed { stop, wire, daemon };
        let deadline = Instant::now() + BEGIN;
        while !bed.wire.is_through(LOOK)? {
            bed.goes_on()?;
            if Instant::now() > deadline {
                bail!("no frame passes the middle");
            }
        }
        Ok(bed)
    }

    /// Returns the sender of this number, from 0.
    pub(crate) fn sender(&self, number: usize) -> &Host {
        self.wire.sender(number)
    }

    pub(crate) fn receiver(&self) -> &Host {
        self.wire.receiver()
    }

    /// Returns the namespace between them, with the interfaces `inside` and `outside`.
    pub(crate) fn middle(&self) -> &Namespace {
        self.wire.middle()
    }

    /// Returns the daemon's number as a process; the kernel's bridge has none.
    pub(crate) fn daemon(&self) -> Option<u32> {
        self.daemon.as_ref().map(Program::id)
    }

    /// Waits until then, unless there is reason not to.
    pub(crate) fn pause(&mut self, until: Instant) -> Result<()> {
        loop {
            self.goes_on()?;
            match until.saturating_duration_since(Instant::now()) {
                Duration::ZERO => return Ok(()),
                left => thread::sleep(left.min(LOOK)),
            }
        }
    }

    /// Waits until `ended` says so, likewise.
    pub(crate) fn until(&mut self, mut ended: impl FnMut() -> bool) -> Result<()> {
        while !ended() {
            self.pause(Instant::now() + LOOK)?;
        }
        Ok(())
    }

    /// Fails once it was asked to stop; and, in the daemon's words, if that has ended.
    pub(crate) fn goes_on(&mut self) -> Result<()> {
        check(self.stop)?;
        if !self.daemon.as_mut().is_some_and(Program::has_ended) {
            return Ok(());
        }
        let ended = self.daemon.take().map(|daemon| daemon.finish(BEGIN));
        let errors = ended.transpose()?.map(|ended| ended.errors);
        bail!("the daemon ended: {}", errors.unwrap_or_default().trim())
    }

    /// Ends it. Fails if the daemon did.
    pub(crate) fn finish(mut self) -> Result<()> {
        let Some(daemon) = self.daemon.take() else {
            return Ok(());
        };
        daemon.interrupt();
        let ended = daemon.finish(BEGIN)?;
        if !ended.status.success() {
            bail!("the daemon failed: {}", ended.errors.trim());
        }
        Ok(())
    }
}

/// Fails once the instrument was asked to stop.
pub(crate) fn check(stop: &AtomicBool) -> Result<()> {
    if stop.load(Ordering::Acquire) {
        bail!(Interrupted);
    }
    Ok(())
}
