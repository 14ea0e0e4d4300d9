//! `fairlane-instruments io`: the throughput of a core by each backend, and the cost of scheduling.

mod lab;
mod meter;
mod outcome;
mod subject;
mod wire;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::ValueEnum;
use fairlane_cli::arguments::seconds;
use fairlane_cli::{interrupt, output};
use indicatif::{ProgressBar, ProgressStyle};

use crate::measurement::Interrupted;
pub(crate) use lab::{bind, datagram, umem};
pub(crate) use wire::{Sender, Wire};

use lab::{BackendKind, Interface, MTU, Unavailable};
use meter::Until;
use outcome::{Measured, Report, Samples, Skipped};
use subject::{MEMBERS, Subject, What};
use wire::FLOWS;

const HELP: &str = "\
Of each backend, one after the other and again in each round:
  transmit   a thread sends in batches of 64; the kernel drops at the far end
  receive    a generator on another core sends (AF_XDP, or UDP into a tunnel or over
             loopback), and a thread receives
  forward    a thread receives and transmits
  scheduled  the same, with mailboxes, QFQ+ and 8 flows of weights 1 to 8 between, all in
             that thread

Figures are medians of the rounds. CPU time is that of the measured thread, with what the
kernel does in its place: sending over a virtual cable, that is the far end's work too;
what arrives was worked on by the generator's core. A thread that receives lets packets
pile up and then works them off, and only the latter counts as CPU time: so a forwarder is
saturated, however slow the generator. Mpps are those of that time; of receive, those
that arrive from end to end. The ratio compares forward and scheduled of the same round.
On a machine with other work, CPU time says more than Mpps.

Without --interface all happens in network namespaces of its own, which needs root; udp
needs nothing. With --interface only transmit is measured, by packet and xdp: it sends as
fast as it can, frames of an experimental protocol from a station to itself. From the
begin to the end of a run with xdp, nothing that arrives at the queue reaches the kernel.

Examples:
  fairlane-instruments io                                  all backends (root)
  fairlane-instruments io --backend udp                    without privilege
  fairlane-instruments io --backend xdp --packet 1500 --rounds 9
  fairlane-instruments io --interface eth1 --queue 0       what an interface takes (root)
  chrt -r 20 fairlane-instruments io                       on a machine with other work";

/// Options of `fairlane-instruments io`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Options {
    /// Backend to measure
    #[arg(long, value_name = "B", value_enum, default_value = "all")]
    backend: Selection,
    /// Measure transmitting on this interface, by packet and xdp
    #[arg(long, value_name = "IF")]
    interface: Option<String>,
    /// Queue of the interface, for xdp, counted from 0
    #[arg(long, value_name = "Q", default_value_t = 0, requires = "interface")]
    queue: u32,
    /// Seconds of each measurement in each round
    #[arg(long, value_name = "S", default_value = "0.5", value_parser = seconds)]
    seconds: f64,
    /// Length of all packets in bytes, 60 to 1500: Ethernet frames, or IP packets
    #[arg(long, value_name = "BYTES", default_value_t = 60, value_parser = clap::value_parser!(u32).range(60..=i64::from(MTU)))]
    packet: u32,
    /// Rounds
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
}

/// Which backends to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Selection {
    All,
    One(BackendKind),
}

impl ValueEnum for Selection {
    fn value_variants<'a>() -> &'a [Self] {
        &[
            Selection::One(BackendKind::Packet),
            Selection::One(BackendKind::Xdp),
            Selection::One(BackendKind::Tun),
            Selection::One(BackendKind::Udp),
            Selection::All,
        ]
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        match self {
            Selection::All => Some(
                clap::builder::PossibleValue::new("all")
                    .help("All of them; those that this user cannot have are skipped"),
            ),
            Selection::One(kind) => kind.to_possible_value(),
        }
    }
}

/// A backend with its results so far.
struct Contender {
    kind: BackendKind,
    subject: Box<dyn Subject>,
    samples: Samples,
}

impl Contender {
    fn measured(&self) -> Option<Measured> {
        self.samples.measured(self.kind, self.subject.mode())
    }
}

/// Measures and prints the outcome.
pub(crate) fn run(options: &Options) -> Result<()> {
    let (mut contenders, skipped) = prepare(options)?;
    let stop = interrupt::asked()?;
    let rounds = measure(options, &mut contenders, &stop)?;
    if rounds == 0 {
        bail!(Interrupted);
    }
    output::json(&Report {
        packet: options.packet,
        alg: "qfq+",
        aggregate: MEMBERS.get(),
        flows: FLOWS,
        seconds: options.seconds,
        rounds,
        interface: options.interface.clone(),
        backends: contenders.iter().filter_map(Contender::measured).collect(),
        skipped,
    })
}

/// Sets all backends up, so that an error comes before the first is measured.
fn prepare(options: &Options) -> Result<(Vec<Contender>, Vec<Skipped>)> {
    let kinds = match options.backend {
        Selection::One(kind) => vec![kind],
        Selection::All => BackendKind::value_variants().to_vec(),
    };
    let contender = |kind, subject| Contender {
        kind,
        subject,
        samples: Samples::default(),
    };
    let (mut contenders, mut skipped) = (Vec::new(), Vec::new());
    if let Some(name) = &options.interface {
        if let Selection::One(kind) = options.backend {
            ensure!(
                kind.takes_interface(),
                "--interface {name} cannot be measured by --backend {}: only packet and xdp \
                 send on an interface that there is",
                kind.name()
            );
        }
        let interface = Interface {
            name,
            queue: options.queue,
        };
        for kind in kinds.into_iter().filter(|kind| kind.takes_interface()) {
            let subject =
                lab::on_interface(kind, interface, options.packet).with_context(|| kind.name())?;
            contenders.push(contender(kind, subject));
        }
        return Ok((contenders, skipped));
    }
    for kind in kinds {
        match lab::subject(kind, options.packet) {
            Ok(subject) => contenders.push(contender(kind, subject)),
            Err(error) => match error.downcast::<Unavailable>() {
                Ok(Unavailable(reason)) if options.backend == Selection::All => {
                    skipped.push(Skipped {
                        backend: kind.name(),
                        reason,
                    });
                }
                Ok(Unavailable(reason)) => {
                    return Err(anyhow!(
                        "--backend {}: {reason}; --backend udp works without",
                        kind.name()
                    ));
                }
                Err(error) => return Err(error.context(kind.name())),
            },
        }
    }
    Ok((contenders, skipped))
}

/// Measures all rounds, or those that are complete when `stop` is set; returns how many.
fn measure(options: &Options, contenders: &mut [Contender], stop: &AtomicBool) -> Result<usize> {
    let until = Until {
        span: Duration::from_secs_f64(options.seconds),
        stop,
    };
    let progress = ProgressBar::new(u64::from(options.rounds));
    progress.set_style(
        ProgressStyle::with_template("{bar:30} round {pos} of {len} done, {msg}, {eta} left")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    let mut rounds = 0;
    for round in 0..options.rounds {
        let whats: &[What] = match (&options.interface, round % 2) {
            (Some(_), _) => &[What::Transmit],
            // Alternately: the second finds the machine in the state that the first has left.
            (None, 0) => &[
                What::Transmit,
                What::Receive,
                What::Forward,
                What::Scheduled,
            ],
            (None, _) => &[
                What::Transmit,
                What::Receive,
                What::Scheduled,
                What::Forward,
            ],
        };
        let mut samples = Vec::new();
        for (place, contender) in contenders.iter_mut().enumerate() {
            let kind = contender.kind.name();
            for &what in whats {
                let name = format!("{kind} {}", name(what));
                progress.set_message(name.clone());
                let sample = contender
                    .subject
                    .measure(what, until)
                    .context(name.clone())?;
                if stop.load(Ordering::Relaxed) {
                    progress.finish_and_clear();
                    return Ok(rounds);
                }
                ensure!(sample.packets > 0, "{name}: {}", nothing(options));
                samples.push((place, what, sample));
            }
        }
        for (place, what, sample) in samples {
            contenders[place].samples.of(what).push(sample);
        }
        rounds += 1;
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(rounds)
}

/// Returns an explanation why no packet moved.
fn nothing(options: &Options) -> String {
    match &options.interface {
        Some(interface) => format!(
            "interface {interface} took no packet in {} s: if it is down, set it up (`ip link set \
             {interface} up`)",
            options.seconds
        ),
        None => format!(
            "no packet moved in {} s: give it more time with --seconds",
            options.seconds
        ),
    }
}

fn name(what: What) -> &'static str {
    match what {
        What::Transmit => "transmit",
        What::Receive => "receive",
        What::Forward => "forward",
        What::Scheduled => "scheduled",
    }
}
