//! The test bed: senders, the daemon in the middle, a receiver.
//!
//! The paper's hosts A, B and C were three machines; here they are network namespaces of one,
//! and B is a bump in the wire instead of a router.

use std::env;
use std::fmt;
use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fairlane_netlab::{Echo, Flow, Namespace, Program, Transfer, Wire, iperf_is_installed};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::super::experiment::median;
use super::super::lab::Lab;

/// Bytes of a full frame on the wire: 1500 of IP, an Ethernet header, and preamble, checksum and
/// gap, which a site's `overhead = "ethernet"` adds.
pub(super) const FRAME: f64 = 1500.0 + 14.0 + 24.0;

/// What the daemon, and the first frames through it, may need to begin.
const BEGIN: Duration = Duration::from_secs(15);

/// Longest time to a look at whether to stop.
const LOOK: Duration = Duration::from_millis(20);

/// How the daemon reads and writes frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Way {
    Packet,
    Xdp,
}

impl Way {
    /// Its name in a site, and for readers.
    pub(super) fn name(self) -> &'static str {
        match self {
            Way::Packet => "packet",
            Way::Xdp => "xdp",
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What stands between senders and receiver.
pub(super) enum Middle<'a> {
    /// The kernel's bridge: no daemon at all.
    Kernel,
    /// The daemon with these links; without any, it forwards unshaped.
    Daemon { way: Way, links: &'a str },
}

/// A TCP flow to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// The sender's number.
    pub sender: usize,
    /// The receiver's port, by which the flow is classified.
    pub port: u16,
    /// When it starts.
    pub start: Duration,
    /// How long it sends, in the whole seconds that iperf3 knows.
    pub seconds: u32,
}

/// TCP flows that are over.
pub(super) struct Run {
    /// When the first could start.
    pub began: Instant,
    /// In the order of their plans.
    pub transfers: Vec<Transfer>,
}

/// A wire with something in its middle, ready for traffic.
pub(super) struct Bed<'a> {
    lab: &'a Lab<'a>,
    wire: Wire,
    daemon: Option<Program>,
    /// Where the daemon's site is.
    _folder: TempDir,
}

/// Says, before anything is measured, what this machine or this user lacks for a bed.
pub(super) fn check() -> Result<()> {
    Namespace::new()?;
    Ok(())
}

/// The same, for a bed with TCP flows.
pub(super) fn check_tcp() -> Result<()> {
    check()?;
    Ok(iperf_is_installed()?)
}

impl<'a> Bed<'a> {
    /// A bed with so many senders. It is ready when frames have passed.
    pub(super) fn new(lab: &'a Lab<'a>, senders: u8, middle: &Middle) -> Result<Bed<'a>> {
        let wire = Wire::new(senders)?;
        let folder = tempfile::tempdir().context("making a folder for the site")?;
        let daemon = match middle {
            Middle::Kernel => {
                wire.forward()?;
                None
            }
            Middle::Daemon { way, links } => {
                let path = folder.path().join("site.toml");
                fs::write(&path, site(*way, links)).context("writing the site")?;
                let mut command = Command::new(env::current_exe().context("finding fairlane")?);
                // What is queued at the end has no part in what was shared.
                command.arg("run").arg(&path);
                command.args(["--json", "--drain", "0"]);
                Some(Program::start(wire.middle(), &mut command)?)
            }
        };
        let mut bed = Bed {
            lab,
            wire,
            daemon,
            _folder: folder,
        };
        let deadline = Instant::now() + BEGIN;
        while !bed.wire.is_through(LOOK)? {
            lab.check()?;
            bed.lives()?;
            if Instant::now() > deadline {
                bail!("no frame passes the daemon");
            }
        }
        Ok(bed)
    }

    /// Runs TCP flows to their end.
    pub(super) fn tcp(&mut self, plans: &[Plan]) -> Result<Run> {
        let began = Instant::now();
        let mut order: Vec<usize> = (0..plans.len()).collect();
        order.sort_by_key(|&place| plans[place].start);
        let mut flows: Vec<Option<Flow>> = plans.iter().map(|_| None).collect();
        for place in order {
            let plan = &plans[place];
            self.pause(began + plan.start)?;
            let (from, to) = (self.wire.sender(plan.sender), self.wire.receiver());
            flows[place] = Some(Flow::start(from, to, plan.port, plan.seconds)?);
        }
        let mut flows: Vec<Flow> = flows.into_iter().flatten().collect();
        while !flows.iter_mut().all(Flow::has_ended) {
            self.pause(Instant::now() + LOOK)?;
        }
        let transfers = flows.into_iter().map(Flow::finish);
        Ok(Run {
            began,
            transfers: transfers.collect::<Result<_, _>>()?,
        })
    }

    /// One TCP flow from the first sender for the time of a measurement, to `port`.
    pub(super) fn one_flow(&mut self, port: u16) -> Result<Transfer> {
        let plan = Plan {
            sender: 0,
            port,
            start: Duration::ZERO,
            seconds: whole_seconds(self.lab.measurement),
        };
        let run = self.tcp(&[plan])?;
        let transfer = run.transfers.into_iter().next();
        transfer.context("iperf3 reported no flow")
    }

    /// The median of the round trips of `request` and `reply` bytes between the first sender and
    /// the receiver, one after the other for so long, in microseconds. A request that is lost is
    /// not counted. Each call has threads of its own, which the system may put on other cores.
    pub(super) fn round_trip_us(
        &mut self,
        request: usize,
        reply: usize,
        time: Duration,
    ) -> Result<f64> {
        let mut echo = Echo::between(self.wire.sender(0), self.wire.receiver(), 9_000)?;
        let end = Instant::now() + time;
        let mut trips = Vec::new();
        while Instant::now() < end {
            self.lab.check()?;
            trips.extend(echo.round_trip(request, reply, Duration::from_secs(1)));
        }
        if trips.is_empty() {
            self.lives()?;
            bail!("no reply came back through the middle");
        }
        Ok(median(trips.iter().map(|trip| trip.as_secs_f64() * 1e6)))
    }

    /// Ends it. Fails if the daemon did.
    pub(super) fn finish(mut self) -> Result<()> {
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

    /// Waits until then, unless there is reason not to.
    fn pause(&mut self, until: Instant) -> Result<()> {
        loop {
            self.lab.check()?;
            self.lives()?;
            match until.saturating_duration_since(Instant::now()) {
                Duration::ZERO => return Ok(()),
                left => thread::sleep(left.min(LOOK)),
            }
        }
    }

    /// Fails, in the daemon's words, if it has ended.
    fn lives(&mut self) -> Result<()> {
        if !self.daemon.as_mut().is_some_and(Program::has_ended) {
            return Ok(());
        }
        let ended = self.daemon.take().map(|daemon| daemon.finish(BEGIN));
        let errors = ended.transpose()?.map(|ended| ended.errors);
        bail!("the daemon ended: {}", errors.unwrap_or_default().trim())
    }
}

/// The daemon's file: a bump in the wire with these links.
pub(super) fn site(way: Way, links: &str) -> String {
    let way = way.name();
    format!(
        "[interfaces]\ninside = \"inside\"\noutside = \"outside\"\nbackend = \"{way}\"\n\n{links}"
    )
}

/// The whole seconds that iperf3 can be asked for: at least one.
pub(super) fn whole_seconds(time: Duration) -> u32 {
    (time.as_secs_f64().round() as u32).max(1)
}

/// Time in which a flow of `time` has filled its link: after that it is measured.
pub(super) fn warm(time: Duration) -> Duration {
    (time / 4).min(Duration::from_secs(1))
}

/// What so many bits of payload take of the link, in the same unit, where all segments are full.
pub(super) fn on_the_link(payload: f64, transfer: &Transfer) -> f64 {
    payload * FRAME / f64::from(transfer.segment)
}

/// What a flow had of the link in steady state, in Mbit/s.
pub(super) fn link_mbit(transfer: &Transfer, time: Duration) -> f64 {
    let time = time.max(Duration::from_secs(1));
    on_the_link(transfer.steady_rate(warm(time)), transfer) / 1e6
}

/// Packets that a queue needs so that TCP keeps it busy: what `mbit` carries in `queue`, and no
/// fewer than TCP's loss recovery can work with.
pub(super) fn packets(mbit: f64, queue: Duration) -> u32 {
    ((mbit * 1e6 * queue.as_secs_f64() / 8.0 / FRAME).ceil() as u32).max(32)
}
