//! `fairlane-instruments bench pspat`: options in, figures out.

use std::num::NonZeroU32;

use anyhow::{Context, Result, ensure};
use fairlane_cli::algorithm::{self, Algorithm, members};
use fairlane_cli::arguments::{Weights, seconds, weight};
use fairlane_cli::{interrupt, output as print};
use fairlane_core::sched::AUTOMATIC_MEMBERS;
use fairlane_core::{Length, Nanos, Rate, Weight};
use fairlane_lab_bench::pspat::{
    Case, Mode, SCAN_LIMIT, Transmit, Victim, Way, measure, queue_for,
};

const HELP: &str = "\
Clients push packets as fast as they can. With --mode pspat each has a mailbox and
one arbiter, on a core of its own, decides for all; with --mode lock they run the
same algorithm themselves behind one spinlock, as kernels do; with --mode none they
transmit without asking. A decision is a packet that was released.

Ways out in mode pspat:
  clients      the arbiter clears packets, their clients transmit them
  straight     the arbiter transmits
  dispatchers  threads between arbiter and device transmit (--dispatchers T)

Examples:
  fairlane-instruments bench pspat                                  5 clients, QFQ+, no-op transmit
  fairlane-instruments bench pspat --clients 1000 --active 5        most of them silent
  fairlane-instruments bench pspat --mode lock --clients 2          the lock that it replaces
  fairlane-instruments bench pspat --active 0 --victim 100 --sleep  how long a wake-up takes
  fairlane-instruments bench pspat --transmit udp --way dispatchers --dispatchers 1
  fairlane-instruments bench pspat --clients 2 --weights 10,1 --rate 5gbit --mode lock";

/// Options of `fairlane-instruments bench pspat`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Options {
    /// Registered clients
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=65536))]
    clients: u32,
    /// Clients that send; the others are silent [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=65536))]
    active: Option<u32>,
    /// Most clients that the arbiter admits
    #[arg(long, value_name = "N", default_value_t = 65536, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    max_clients: u32,
    /// Threads that the sending clients are spread over [default: one each]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    threads: Option<u32>,
    /// Scheduling algorithm
    #[arg(long, value_parser = algorithm::parser(), default_value = "qfq+")]
    alg: Algorithm,
    /// Most flows in an aggregate (M), for algorithms whose name ends in +
    #[arg(long, value_name = "M", default_value_t = AUTOMATIC_MEMBERS, value_parser = members)]
    aggregate: NonZeroU32,
    /// Who decides
    #[arg(long, value_enum, default_value = "pspat")]
    mode: Mode,
    /// Use of a released packet
    #[arg(long, value_enum, default_value = "noop")]
    transmit: Transmit,
    /// Transmitting thread, in mode pspat [default: clients, or straight with --transmit xdp]
    #[arg(long, value_enum)]
    way: Option<Way>,
    /// Dispatcher threads, with --way dispatchers; 0 is --way straight
    #[arg(long, value_name = "T", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=64))]
    dispatchers: u32,
    /// Rate of the link: a number with bit, kbit, mbit, gbit or tbit
    #[arg(long, default_value = "1tbit")]
    rate: Rate,
    /// Weights of the clients, in turns
    #[arg(long, value_name = "W,W,...", default_value = "1")]
    weights: Weights,
    /// Length of all packets in bytes, 60 to 9000
    #[arg(long, value_name = "BYTES", default_value_t = 60, value_parser = clap::value_parser!(u32).range(60..=9000))]
    packet: u32,
    /// Slots of a client's mailbox: a power of two. Enough to last until the client has
    /// its core again, or it is not saturated and cannot have its share
    #[arg(long, value_name = "SLOTS", default_value_t = 1024)]
    mailbox: usize,
    /// Packets that a flow may queue behind the mailbox [default: 512; with more than 16 active
    /// clients fewer, but at least 64]
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u32).range(1..))]
    queue: Option<u32>,
    /// Least nanoseconds between two reads of the same mailbox
    #[arg(long, value_name = "NS", default_value_t = 1000)]
    read_interval: u64,
    /// Most mailboxes that the arbiter looks at in one step. With more clients that send, a round of
    /// all of them takes several steps: that is Delta_A, with which the T-WFI printed is a bound
    /// whatever the limit is
    #[arg(long, value_name = "N", default_value_t = SCAN_LIMIT, value_parser = clap::value_parser!(u32).range(1..))]
    scan_limit: u32,
    /// Add a client that sends N packets a second, and measure their delay
    #[arg(long, value_name = "PPS", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    victim: Option<u32>,
    /// Weight of that client
    #[arg(long, value_name = "W", default_value = "50", value_parser = weight)]
    victim_weight: Weight,
    /// Let the arbiter sleep when it is idle, instead of keeping a core to itself
    #[arg(long)]
    sleep: bool,
    /// Seconds to measure
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    seconds: f64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Measures and prints the outcome.
pub(super) fn run(options: &Options) -> Result<()> {
    let active = options.active.unwrap_or(options.clients);
    ensure!(
        active <= options.clients,
        "--active {active} is more than --clients {}: at most all clients can send",
        options.clients
    );
    let all = options.clients + u32::from(options.victim.is_some());
    ensure!(
        all <= options.max_clients || options.mode != Mode::Pspat,
        "{all} clients are more than --max-clients {}: raise that or register fewer",
        options.max_clients
    );
    ensure!(
        !options.weights.0.is_empty(),
        "--weights none: clients have weights, 1 to 1000000 each"
    );
    let stop = interrupt::asked()?;
    let way = match (options.way, options.dispatchers) {
        (Some(Way::Dispatchers), 0) => Way::Straight,
        (Some(way), _) => way,
        (None, _) if options.transmit == Transmit::Xdp => Way::Straight,
        (None, _) => Way::Clients,
    };
    let outcome = measure(
        &Case {
            clients: options.clients,
            active,
            max_clients: options.max_clients,
            threads: options.threads.unwrap_or(active).min(active),
            alg: options.alg.with_members(options.aggregate),
            mode: options.mode,
            transmit: options.transmit,
            way,
            dispatchers: options.dispatchers,
            rate: options.rate,
            weights: options.weights.0.clone(),
            packet: Length::new(options.packet).context("a packet has a length")?,
            mailbox: options.mailbox,
            queue: options.queue.unwrap_or_else(|| queue_for(active)),
            read_interval: Nanos(options.read_interval),
            scan_limit: options.scan_limit,
            victim: options.victim.map(|rate| Victim {
                packets_per_second: rate,
                weight: options.victim_weight,
            }),
            sleep: options.sleep,
            seconds: options.seconds,
        },
        &stop,
    )?;
    if options.json {
        print::json(&outcome)
    } else {
        print::line(outcome)
    }
}
