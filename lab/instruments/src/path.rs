//! `fairlane-instruments path`: traffic between two interfaces during a flood, and its cost.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use fairlane_cli::arguments::seconds;
use fairlane_cli::{interrupt, output};
use fairlane_io::{Umem, XdpBackend, XdpFrame};
use fairlane_netlab::{Host, Probe, Probed, Program};
use rustix::param::clock_ticks_per_second;
use serde::Serialize;

use crate::bed::{BEGIN, Bed};
use crate::io::{Sender, Wire, bind, datagram, umem};
use crate::machine::{cores, pin};

const HELP: &str = "\
A sender floods a receiver with UDP datagrams in frames of one length, as fast as AF_XDP
sends, to so many ports in turns. In the middle is the daemon of a site, or the kernel's
bridge, with queue disciplines by tc(8) if a file of its commands is given. The frames
are addressed to another host, so the receiver drops them at once. In addition to the
flood, the same sender sends a few datagrams a second to an existing host: their loss is
reported, and their delay until the receiver's kernel has them.

The time of a frame is all that the machine worked by what arrived, the sender's and the
receiver's part included. The daemon's is that of all its threads, of which a part is in
the kernel; what the kernel does for it where the sender runs is not in it.

All happens in network namespaces of its own, which needs root. Ports count from 10000,
the probe's is 9000; the receiver is 10.0.0.254, and the middle has the interfaces inside
(to the sender) and outside.

Examples:
  fairlane-instruments path                          the kernel's bridge
  fairlane-instruments path --tc htb.tc --ports 4    with what the file's commands add to it
  fairlane-instruments path --site site.toml --frame 1514";

/// The flood's first port at the receiver, and the probe's.
const FIRST_PORT: u16 = 10_000;
const PROBE_PORT: u16 = 9_000;
/// Where that lies in an Ethernet frame with IPv4 and UDP.
const PORT_AT: usize = 14 + 20 + 2;
/// A station that is not there.
const NOBODY: [u8; 6] = [0x02, 0, 0, 0, 0, 0x99];

/// Options of `path`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Options {
    /// The daemon's site, with the interfaces `inside` and `outside`; without it, the kernel's bridge forwards
    #[arg(long, value_name = "FILE")]
    site: Option<PathBuf>,
    /// Commands for `tc -batch` with the kernel's bridge, for the interface `outside`
    #[arg(long, value_name = "FILE", conflicts_with = "site")]
    tc: Option<PathBuf>,
    /// Bytes of the flood's frames, 60 to 1514
    #[arg(long, value_name = "BYTES", default_value_t = 60, value_parser = clap::value_parser!(u32).range(60..=1514))]
    frame: u32,
    /// Ports that the flood goes to in turns, from 10000 on
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=50_000))]
    ports: u16,
    /// Datagrams a second of the probe
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    probe: u32,
    /// Seconds that count; a third of that passes before
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    seconds: f64,
    /// Keep sender, daemon and receiver on one core
    #[arg(long)]
    one_core: bool,
}

/// The results.
#[derive(Debug, Serialize)]
struct Measured {
    frame_bytes: u32,
    ports: u16,
    cores: usize,
    seconds: f64,
    sent_mpps: f64,
    arrived_mpps: f64,
    /// Of all cores, for a frame that arrived.
    machine_ns_per_frame: f64,
    /// CPU time of the daemon's threads, and the part of it in the kernel.
    daemon_ns_per_frame: Option<f64>,
    daemon_kernel_ns_per_frame: Option<f64>,
    probe: Delays,
}

/// Delays and losses of the probe.
#[derive(Debug, Serialize)]
struct Delays {
    sent: u64,
    lost: u64,
    p50_us: Option<f64>,
    p99_us: Option<f64>,
    max_us: Option<f64>,
}

impl From<Probed> for Delays {
    fn from(probed: Probed) -> Delays {
        let us = |part| probed.quantile(part).map(|delay| delay.as_secs_f64() * 1e6);
        Delays {
            sent: probed.sent,
            lost: probed.lost(),
            p50_us: us(0.5),
            p99_us: us(0.99),
            max_us: us(1.0),
        }
    }
}

/// Measures, and prints the results.
pub(crate) fn run(options: &Options) -> Result<()> {
    let first = *cores()?.first().context("there is no core")?;
    if options.one_core {
        // Whatever is started from now on stays there too.
        pin(first)?;
    }
    let stop = interrupt::asked()?;
    output::json(&measure(options, first, &stop)?)
}

fn measure(options: &Options, core: usize, stop: &AtomicBool) -> Result<Measured> {
    let mut bed = Bed::new(stop, 1, options.site.as_deref())?;
    if let Some(commands) = &options.tc {
        configure(&bed, commands)?;
    }
    let flood = Flooding::start(&bed, options, core)?;
    let time = Duration::from_secs_f64(options.seconds);
    bed.pause(Instant::now() + time / 3)?;
    let probe = Probe::start(bed.sender(0), bed.receiver(), PROBE_PORT, options.probe)?;
    let before = Counts::now(&bed, &flood)?;
    bed.pause(before.at + time)?;
    let after = Counts::now(&bed, &flood)?;
    // It ends while the flood continues.
    let probed = probe.finish()?;
    flood.finish()?;
    bed.finish()?;
    let span = (after.at - before.at).as_secs_f64();
    let arrived = after.arrived.saturating_sub(before.arrived);
    let ns = |time: Duration| time.as_nanos() as f64 / (arrived.max(1) as f64);
    let (daemon, in_kernel) = (after.daemon.zip(before.daemon))
        .map(|(after, before)| {
            let since = |of: fn(&OfProcess) -> Duration| ns(of(&after).saturating_sub(of(&before)));
            (since(|it| it.on_a_core), since(|it| it.in_kernel))
        })
        .unzip();
    Ok(Measured {
        frame_bytes: options.frame,
        ports: options.ports,
        cores: cores()?.len(),
        seconds: span,
        sent_mpps: after.sent.saturating_sub(before.sent) as f64 / span / 1e6,
        arrived_mpps: arrived as f64 / span / 1e6,
        machine_ns_per_frame: ns(after.machine.saturating_sub(before.machine)),
        daemon_ns_per_frame: daemon,
        daemon_kernel_ns_per_frame: in_kernel,
        probe: probed.into(),
    })
}

/// Runs the commands of a file in the middle.
fn configure(bed: &Bed, commands: &Path) -> Result<()> {
    let mut command = Command::new("tc");
    command.arg("-batch").arg(commands);
    let ended = Program::start(bed.middle(), &mut command)?.finish(BEGIN)?;
    if !ended.status.success() {
        let file = commands.display();
        bail!("tc refused {file}: {}", ended.errors.trim());
    }
    Ok(())
}

/// The counts until now.
struct Counts {
    at: Instant,
    sent: u64,
    arrived: u64,
    machine: Duration,
    daemon: Option<OfProcess>,
}

impl Counts {
    fn now(bed: &Bed, flood: &Flooding) -> Result<Counts> {
        let (arrived, _) = bed.receiver().link().received()?;
        let stat = fs::read_to_string("/proc/stat").context("reading /proc/stat")?;
        let daemon = bed.daemon().map(OfProcess::now).transpose()?;
        Ok(Counts {
            at: Instant::now(),
            sent: flood.sent.load(Ordering::Relaxed),
            arrived,
            machine: busy(&stat, clock_ticks_per_second())
                .with_context(|| format!("/proc/stat begins otherwise: {stat:.80}"))?,
            daemon,
        })
    }
}

/// Returns the time that all cores worked, by the first line of `/proc/stat`: user, nice, system, idle,
/// waiting for devices, interrupts, soft interrupts, in ticks.
fn busy(stat: &str, ticks_per_second: u64) -> Option<Duration> {
    let first = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks = first.split_whitespace().map(str::parse::<u64>);
    let ticks = ticks.collect::<Result<Vec<_>, _>>().ok()?;
    let [user, nice, system, _idle, _waiting, hard, soft, ..] = ticks[..] else {
        return None;
    };
    let worked = user + nice + system + hard + soft;
    Some(Duration::from_secs_f64(
        worked as f64 / ticks_per_second.max(1) as f64,
    ))
}

/// How long all threads of a process have worked.
#[derive(Clone, Copy)]
struct OfProcess {
    on_a_core: Duration,
    /// In ticks, some 10 ms: as the kernel divides the time by where its ticks found them.
    in_kernel: Duration,
}

impl OfProcess {
    fn now(process: u32) -> Result<OfProcess> {
        let tasks = format!("/proc/{process}/task");
        let reading = || format!("reading {tasks}");
        let mut ns = 0;
        for task in fs::read_dir(&tasks).with_context(reading)? {
            // A thread may end meanwhile, and its time with it.
            let path = task.with_context(reading)?.path().join("schedstat");
            let text = fs::read_to_string(path).unwrap_or_default();
            let first = text.split_whitespace().next();
            ns += first.and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
        }
        let stat = format!("/proc/{process}/stat");
        let text = fs::read_to_string(&stat).with_context(|| format!("reading {stat}"))?;
        Ok(OfProcess {
            on_a_core: Duration::from_nanos(ns),
            in_kernel: in_kernel(&text, clock_ticks_per_second())
                .with_context(|| format!("{stat} is otherwise: {text:.80}"))?,
        })
    }
}

/// Returns the time in the kernel by `/proc/PID/stat`: its 15th field, in ticks. The second one is a name in
/// parentheses, which may have spaces and parentheses in it.
fn in_kernel(stat: &str, ticks_per_second: u64) -> Option<Duration> {
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks: u64 = fields.split_whitespace().nth(15 - 3)?.parse().ok()?;
    let seconds = ticks as f64 / ticks_per_second.max(1) as f64;
    Some(Duration::from_secs_f64(seconds))
}

/// Frames of the flood, to one port after the other.
struct Flood {
    umem: Umem,
    frame: Vec<u8>,
    ports: u16,
    next: u16,
}

impl Flood {
    /// The frames' address belongs to no station; the datagrams in them are for the receiver.
    fn new(umem: Umem, from: &Host, to: &Host, options: &Options) -> Result<Flood> {
        let octets = |host: &Host| match host.address() {
            IpAddr::V4(address) => Ok(address.octets()),
            IpAddr::V6(address) => Err(anyhow!("{address} is no IPv4 address")),
        };
        let datagram = datagram(octets(from)?, octets(to)?, options.frame - 14)?;
        let ethernet = [&NOBODY[..], &from.link().mac(), &[0x08, 0x00]].concat();
        Ok(Flood {
            umem,
            frame: [ethernet, datagram].concat(),
            ports: options.ports,
            next: 0,
        })
    }
}

impl Wire for Flood {
    type Packet = XdpFrame;
    type Backend = XdpBackend;

    fn make(&mut self, _flow: u8) -> Option<XdpFrame> {
        let port = FIRST_PORT + self.next;
        // The datagrams have no checksum.
        self.frame[PORT_AT..PORT_AT + 2].copy_from_slice(&port.to_be_bytes());
        let frame = self.umem.frame_from(&self.frame)?;
        self.next = (self.next + 1) % self.ports;
        Some(frame)
    }

    fn bytes(packet: &XdpFrame) -> &[u8] {
        packet.bytes()
    }
}

/// The flood while it lasts: until it is dropped.
struct Flooding {
    sent: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

impl Flooding {
    fn start(bed: &Bed, options: &Options, core: usize) -> Result<Flooding> {
        let memory = umem()?;
        let mut backend = bind(&memory, bed.sender(0).link(), 64)?;
        let flood = Flood::new(memory, bed.sender(0), bed.receiver(), options)?;
        let (sent, over) = (Arc::default(), Arc::default());
        let (counts, ends): (Arc<AtomicU64>, Arc<AtomicBool>) =
            (Arc::clone(&sent), Arc::clone(&over));
        let thread = thread::spawn(move || -> std::io::Result<()> {
            // Elsewhere it is merely a less quiet measurement.
            let _ = pin(core);
            let mut sender = Sender::new(flood);
            while !ends.load(Ordering::Relaxed) {
                let taken = sender.send(&mut backend)?;
                counts.fetch_add(taken as u64, Ordering::Relaxed);
            }
            Ok(())
        });
        Ok(Flooding {
            sent,
            over,
            thread: Some(thread),
        })
    }

    /// Ends it. Fails if it had ended by itself.
    fn finish(mut self) -> Result<()> {
        self.over.store(true, Ordering::Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(sent)) => sent.context("sending the flood"),
            _ => bail!("the flood panicked"),
        }
    }
}

impl Drop for Flooding {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use fairlane_netlab::{Namespace, or_skip};

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn options(words: &str) -> Options {
        Line::parse_from(["path"].into_iter().chain(words.split_whitespace())).options
    }

    #[test]
    fn a_core_works_when_it_neither_idles_nor_waits_for_devices() {
        let stat = "cpu  100 20 30 4000 500 6 7 800 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(busy(stat, 100), Some(Duration::from_millis(1_630)));
        assert_eq!(busy("cpu  1 2 3\n", 100), None);
        assert_eq!(busy("processor", 100), None);
    }

    #[test]
    fn a_process_has_the_time_of_its_threads() {
        let busy = thread::spawn(|| {
            let begun = Instant::now();
            // Mostly in the kernel, until a tick has found it there: on a busy machine that takes a while.
            loop {
                fs::read_to_string("/proc/self/maps").unwrap();
                let now = OfProcess::now(std::process::id()).unwrap();
                if now.in_kernel > Duration::ZERO || begun.elapsed() > BEGIN {
                    return now;
                }
            }
        });
        let OfProcess {
            on_a_core,
            in_kernel,
        } = busy.join().unwrap();
        assert!(on_a_core > Duration::ZERO && in_kernel > Duration::ZERO);
        assert!(OfProcess::now(u32::MAX).is_err());
    }

    #[test]
    fn the_time_in_the_kernel_is_found_behind_any_name() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 250 125 11 12\n";
        assert_eq!(in_kernel(stat, 100), Some(Duration::from_millis(1_250)));
        assert_eq!(in_kernel("7 (a) S 1 2", 100), None);
    }

    #[test]
    fn the_kernels_bridge_passes_a_flood_and_the_probe_beside_it() {
        if or_skip("the instrument `path`", Namespace::new()).is_none() {
            return;
        }
        let options = options("--seconds 0.2 --ports 3 --frame 128 --probe 100");
        let found = measure(&options, cores().unwrap()[0], &AtomicBool::new(false)).unwrap();
        assert!(
            found.sent_mpps > 0.0 && found.arrived_mpps > 0.0,
            "{found:?}"
        );
        assert_eq!((found.frame_bytes, found.ports), (128, 3));
        assert!(found.daemon_ns_per_frame.is_none() && found.probe.sent > 0);
    }
}
