//! `fairlane run`: real datagrams through the arbiter, out at their fair shares; or the frames of
//! a site, in its classes (`site`).

mod guard;
mod loopback;
mod site;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use fairlane_config::Size;
use fairlane_core::Rate;
use fairlane_io::MAX_DATAGRAM;
use fairlane_service::session;
use fairlane_terminal::log;
use fairlane_terminal::screen::Shows;

use crate::algorithm::{self, Algorithm};
use crate::arguments::{Allowed, Weights, drain, seconds};
use tracing::level_filters::LevelFilter;

const HELP: &str = "\
Without CONFIG, a demonstration: built-in senders, one for each weight, each offer
more UDP datagrams than the whole link carries. These pass through mailboxes, the
arbiter and its scheduling algorithm, leave through a real socket at the pace of the
link, and are counted where they arrive. The lighter a sender, the more it offers:
compare --alg qfq, where shares follow the weights, with --alg fifo, where they
follow the offered load.

Send datagrams of your own to the address that is printed: each source becomes one
more flow, of weight 1. Processes may attach with --attach and --allow: each gets a
mailbox in shared memory, and a flow of the weight that its rule says.

With CONFIG, the job: the traffic between two interfaces, or of this machine through
a tap device, is shaped by the classes of the file. SIGHUP reloads the file.

Examples:
  fairlane run site.toml                      until Ctrl-C
  fairlane run site.toml --take-over          the same, in the place of the one that runs
  fairlane run                                until Ctrl-C
  fairlane run --seconds 5 --json             five seconds, one JSON object at the end
  fairlane run --rate 250mbit --weights 1,1,10 --packet 500 --alg drr
  fairlane run --weights none --attach /run/fairlane-attach.sock --allow uid=1000:4 --allow any:1";

/// Options of `fairlane run`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Options {
    /// The site file: the interfaces, links and classes to shape
    #[arg(
        value_name = "CONFIG",
        conflicts_with_all = [
            "rate", "alg", "weights", "packet", "dispatchers", "dedicated", "attach", "allow",
            "attach_per_user", "attach_memory", "listen",
        ],
    )]
    config: Option<PathBuf>,
    /// Rate of the link: a number with bit, kbit, mbit, gbit or tbit
    #[arg(long, default_value = "100mbit")]
    rate: Rate,
    /// Scheduling algorithm
    #[arg(long, value_parser = algorithm::parser(), default_value = "qfq")]
    alg: Algorithm,
    /// Weights of the built-in senders, 1 to 1000000 each, 64 of them at most, or none
    #[arg(long, value_name = "W,W,...", default_value = "1,2,4,8")]
    weights: Weights,
    /// Payload of the senders' datagrams in bytes, 1 to 65507
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = 1200,
        value_parser = clap::value_parser!(u32).range(1..=MAX_DATAGRAM as i64)
    )]
    packet: u32,
    /// Number of dispatcher threads that transmit for the arbiter; with 0 the arbiter transmits
    #[arg(long, value_name = "T", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=16))]
    dispatchers: u32,
    /// Pin the arbiter to this core, counted from 0, where it never sleeps
    #[arg(long, value_name = "CORE")]
    dedicated: Option<usize>,
    /// Let other processes attach at this Unix socket, with mailboxes in shared memory
    #[arg(long, value_name = "PATH", requires = "allow")]
    attach: Option<PathBuf>,
    /// Processes that may attach (uid=N, gid=N or any) and the weight of the flow of each; may be
    /// given several times, and the first match counts
    #[arg(long, value_name = "WHO:WEIGHT", requires = "attach")]
    allow: Vec<Allowed>,
    #[command(flatten)]
    quotas: Quotas,
    /// Time to run, in seconds [default: until Ctrl-C]
    #[arg(long, value_name = "S", value_parser = seconds)]
    seconds: Option<f64>,
    /// Address to relay datagrams of other programs from [default: 127.0.0.1:7171, or a
    /// free port if that is in use]
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<SocketAddr>,
    /// With CONFIG: end with an error when an interface is deleted, instead of waiting for its return
    #[arg(long, requires = "config")]
    exit_on_loss: bool,
    /// With CONFIG: start a second process as watchdog. It kills this process after a second without a
    /// round, forwards frames unshaped meanwhile, and starts it again
    #[arg(long, requires = "config", conflicts_with = "exit_on_loss")]
    fail_open: bool,
    /// This is the process that is watched over, with the other behind its standard input
    #[arg(long, requires = "fail_open", hide = true)]
    guarded: bool,
    /// With CONFIG: take over from the process that runs between the same interfaces, which then ends;
    /// no frame is lost, and changes and grants stay in force
    #[arg(long, requires = "config", conflicts_with = "fail_open")]
    take_over: bool,
    /// With CONFIG: under overload, drop no frames in the kernel before they are received
    #[arg(long, requires = "config")]
    no_early_drop: bool,
    /// With CONFIG: keep all capabilities and system calls after the file is read
    #[arg(long, requires = "config")]
    keep_privileges: bool,
    /// With CONFIG: time to send the backlog after a signal to stop, 0 to 60 s; a second signal
    /// ends the process at once
    #[arg(long, value_name = "S", requires = "config", default_value = "0.5", value_parser = drain)]
    drain: Duration,
    /// With CONFIG: log events of this level and above
    #[arg(long, value_name = "LEVEL", env = "FAIRLANE_LOG", default_value = "info", value_parser = log::level())]
    log: LevelFilter,
    /// Print one JSON object at the end, and nothing else
    #[arg(long)]
    json: bool,
    /// Seconds between two reports [default: 1; on a terminal 0.5]
    #[arg(long, value_name = "S", value_parser = seconds)]
    every: Option<f64>,
    /// Report only at the end
    #[arg(long, conflicts_with = "every")]
    quiet: bool,
}

/// Limits on all processes together, and on those of a user.
#[derive(clap::Args, Clone, Debug)]
pub struct Quotas {
    /// Maximum number of attached processes of one user [default: a quarter of the limit of all (64 for
    /// each --allow); no limit if each --allow names one user]
    #[arg(long, value_name = "N", requires = "attach", value_parser = clap::value_parser!(u32).range(1..))]
    attach_per_user: Option<u32>,
    /// Maximum memory of the mailboxes of all attached processes, such as 64mb [default: 64 mailboxes
    /// of 2.2mb for each --allow]
    #[arg(long, value_name = "SIZE", requires = "attach")]
    attach_memory: Option<Size>,
}

impl Options {
    fn shows(&self) -> Shows {
        Shows {
            json: self.json,
            quiet: self.quiet,
            every: self.every,
        }
    }
}

/// Runs the link and prints its report.
pub fn run(options: &Options) -> Result<()> {
    if options.config.is_some() {
        // Priority as for the forwarding thread; without the privilege, it runs with the default one.
        let _ = session::before_all_others();
    }
    match &options.config {
        Some(config) if options.fail_open && !options.guarded => guard::guard(config, options.log),
        Some(config) => {
            // Reading takes several times the memory of the result.
            fairlane_io::keep_little_unused();
            site::run(config, options)
        }
        None => loopback::run(options),
    }
}

/// Describes when the run ends.
fn ends(options: &Options) -> String {
    match options.seconds {
        Some(seconds) => format!("Ends after {seconds} s, or with Ctrl-C."),
        None => "Ctrl-C ends.".to_owned(),
    }
}
