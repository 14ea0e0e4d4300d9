//! `fairlane sim`: simulates a site, or a network, with traffic in virtual time.

mod network;

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use anyhow::Result;
use fairlane_config::Link;
use fairlane_terminal::classes;
use fairlane_traffic::scenario::{LinkOutcome, Outcome, Run, Scenario};
use indicatif::{ProgressBar, ProgressStyle};

use crate::arguments::seconds;
use crate::{interrupt, output};

const HELP: &str = "\
Simulates one link of a site, with its classes, limits, queue management and ceilings, as
`fairlane run` would shape it on an infinitely fast machine; or a network of nodes and wires.
Virtual time is exact to the picosecond. The same scenario and seed give the same output on
every machine. An error is one sentence with its line and column, and the exit status is 2.

SCENARIO.toml:

  site = \"home.toml\"     the site's file, next to the scenario; or a table with the same
                         content: [[site.link]], [[site.link.class]], ..
  link = \"up\"            one of its links; the only one if there is one
  seconds = 10           time that is measured [10]
  warm-up = \"1s\"         time before that [0s]
  seed = 1               of all that is random [1]

  [[source]]             senders:
  class = \"voice\"        to a class by name, each source a flow of its own; or with headers
                         for the site's filters: source, destination (addresses, or
                         prefixes over which equal sources are spread), protocol [udp],
                         source-port, destination-port (numbers, or ranges), dscp,
                         vlan, ingress [the other side], user, group, pid (numbers, of an
                         attached process)
  count = 3              number of equal sources [1]
  traffic = \"cbr\"        constant bit rate; equal sources take turns
            \"poisson\"    random, of a mean rate
            \"on-off\"     sends at its rate, then is silent, in turns; both times are Pareto
                         distributed with shape 1.5
            \"backlogged\" always backlogged, like TCP that is never slowed down
            \"tcp\"        always backlogged, in a closed loop: slow start, then one
                         packet more each round trip (Reno), half the window after a
                         loss or a mark, a timeout of 200 ms at least
  rate = \"64kbit\"        of each source, overhead included; none if backlogged or tcp
  rtt = \"20ms\"          of tcp: its round trip without queue and transmission
  on = \"1s\", off = \"2s\"  mean times, of on-off
  window = 32            packets that a backlogged source keeps in the queue [32], or that tcp
                         has on their way at most [4096]
  length = 200           a frame's bytes without overhead, or a range as in \"64-1514\", each
                         as likely [the longest]
  start = \"1s\", stop = \"9s\"   while it sends [always]
  ecn = true             its packets may be marked instead of dropped [false]
  name = \"calls\"         in the output

A network has, instead of `site` and `link`:

  [[node]]               a host or a router:
  name = \"r0\"
  algorithm = \"qfq\"      scheduler of its output ports, with a queue for each source [fifo:
                         one queue for all]
  quantum = \"500b\"       of drr: bytes per turn of the source of the lowest weight [the longest
                         packet]
  limit = { packets = 1000, bytes = \"64kb\" }   limit of each port [1000 packets]; the
                         longest queue is evicted from, a fifo drops arrivals

  [[wire]]               in both directions, an output port at each end:
  from = \"r0\", to = \"r1\"
  rate = \"10mbit\", delay = \"10ms\"
  algorithm, quantum, limit   of both ends [the nodes']
  one-way = true         from the first to the second alone [false]

  [[source]]             as above, except class, headers, rtt and ecn:
  from = \"s0\", to = \"k0\"  by the fewest wires
  weight = 4             of each source, at every port; under priority its level, higher first [1]
  length = 1000          a packet's bytes [1500]

Examples:
  fairlane sim examples/sim/home-evening.toml
  fairlane sim examples/sim/tcp.toml
  fairlane sim examples/sim/network.toml
  fairlane sim examples/sim/isp-busy-hour.toml --seconds 5 --json";

/// Options of `fairlane sim`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Options {
    /// The scenario
    #[arg(value_name = "SCENARIO.toml")]
    scenario: PathBuf,
    /// Seconds to simulate, instead of the scenario's
    #[arg(long, value_name = "S", value_parser = seconds)]
    seconds: Option<f64>,
    /// Random seed, instead of the scenario's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// The site's link, instead of the scenario's
    #[arg(long, value_name = "NAME")]
    link: Option<String>,
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

/// Simulates, and prints the results of each class, or source.
pub(crate) fn run(options: &Options) -> Result<()> {
    let scenario = Scenario::read(&options.scenario, options.link.as_deref())?;
    output::warn(&scenario.warnings);
    let seconds = options.seconds.unwrap_or(scenario.seconds);
    let seed = options.seed.unwrap_or(scenario.seed);
    let stop = interrupt::asked()?;
    let mut run = Run::new(&scenario, seed, seconds, false)?;
    let progress = progress(options);
    run.run(|part| {
        progress.set_position((part * 1000.0) as u64);
        !stop.load(Ordering::Acquire)
    });
    progress.finish_and_clear();
    let outcome = run.outcome(options.scenario.display().to_string());
    if options.json {
        return output::json(&outcome);
    }
    output::line(match (&outcome, scenario.link()) {
        (Outcome::Link(outcome), Some(link)) => text(outcome, link),
        (Outcome::Network(outcome), _) => network::text(outcome),
        (Outcome::Link(_), None) => unreachable!("a link run has a link"),
    })
}

/// Returns a progress bar on standard error, hidden if that is no terminal.
fn progress(options: &Options) -> ProgressBar {
    if options.json {
        return ProgressBar::hidden();
    }
    ProgressBar::new(1000).with_style(
        ProgressStyle::with_template("{bar:30} {percent}% {elapsed}, {eta} left")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    )
}

fn text(outcome: &LinkOutcome, link: &Link) -> String {
    let headline = classes::headline(link, &outcome.classes, outcome.seconds);
    format!(
        "{headline}{}\n{}",
        which(outcome.seconds, outcome.seed, outcome.interrupted),
        classes::text(&outcome.classes)
    )
}

/// Identifies a run: the end of the line above a table.
fn which(seconds: f64, seed: u64, interrupted: bool) -> String {
    let interrupted = if interrupted { ", interrupted" } else { "" };
    format!(" in {seconds} s, seed {seed}{interrupted}")
}
