//! `fairlane sim`: what a site's file does to traffic, on a clock of its own.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use fairlane_config::class_report::ClassReport;
use fairlane_config::{Discipline, Link};
use fairlane_core::tree::ClassId;
use fairlane_sim::{
    ClassFlow, ClassMeter, ClassPacket, PICOS_PER_SECOND, Picos, Simulation, TransmitQueue,
};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::arguments::seconds;
use crate::classes::{self, Ledger, Places};
use crate::{interrupt, output};
use fairlane_traffic::scenario::{self, Asked, Scenario};

const HELP: &str = "\
The link sends at its rate in the order of the site's classes, with their limits, queue
management and ceilings, as the daemon would with no time lost; all on a clock of its
own, exact to the picosecond. The same scenario and seed give the same output. An error
is one sentence with its line and column, and the exit status is 2.

SCENARIO.toml:

  site = \"home.toml\"     the site's file, beside the scenario; or a table with what is in
                         one: [[site.link]], [[site.link.class]], ..
  link = \"up\"            one of its links; the only one if there is one
  seconds = 10           time that is measured [10]
  warm-up = \"1s\"         time before that [0s]
  seed = 1               of all that is random [1]

  [[source]]             who sends:
  class = \"voice\"        to a class by name, each source a flow of its own; or with headers
                         that the site's filters sort: source, destination (addresses, or
                         prefixes over which sources alike are spread), protocol [udp],
                         source-port, destination-port (numbers, or ranges likewise), dscp,
                         vlan, ingress [the other side], user, group, pid (numbers, of an
                         attached process)
  count = 3              so many sources alike [1]
  traffic = \"cbr\"        constant bit rate; those alike take turns
            \"poisson\"    random, of a mean rate
            \"on-off\"     at its rate for spans of a mean length, silent for others; both
                         Pareto distributed with shape 1.5
            \"backlogged\" always something to send: as TCP does that is never slowed down
            \"tcp\"        always something to send, in a closed loop: slow start, then one
                         packet more each round trip (Reno), half the window after a
                         loss or a mark, a timeout of 200 ms at least
  rate = \"64kbit\"        of each source, overhead included; none if backlogged or tcp
  rtt = \"20ms\"          of tcp: its round trip without queue and transmission
  on = \"1s\", off = \"2s\"  mean spans, of on-off
  window = 32            packets that a backlogged source keeps in the queue [32], or that tcp
                         has on their way at most [4096]
  length = 200           a frame's bytes without overhead, or a range as in \"64-1514\", each
                         as likely [the longest]
  start = \"1s\", stop = \"9s\"   while it sends [always]
  ecn = true             its packets may be marked instead of dropped [false]
  name = \"calls\"         in the output

Examples:
  fairlane sim examples/sim/home-evening.toml
  fairlane sim examples/sim/tcp.toml
  fairlane sim examples/sim/isp-busy-hour.toml --seconds 5 --json";

/// Options of `fairlane sim`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Options {
    /// The scenario
    #[arg(value_name = "SCENARIO.toml")]
    scenario: PathBuf,
    /// Time to simulate, in seconds, in place of the scenario's
    #[arg(long, value_name = "S", value_parser = seconds)]
    seconds: Option<f64>,
    /// Seed of all that is random, in place of the scenario's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// The site's link, in place of the scenario's
    #[arg(long, value_name = "NAME")]
    link: Option<String>,
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

/// What each class sent over time.
#[derive(Clone, Debug)]
pub struct Rates {
    /// Link, rate and algorithm.
    pub link: String,
    /// Of each class that sent, its name and (seconds, Mbit/s).
    pub classes: Vec<(String, Vec<(f64, f64)>)>,
}

const SECONDS: f64 = 10.0;
const SEED: u64 = 1;
/// Steps of [`Rates`].
const STEPS: u128 = 200;

/// Simulates, and prints what became of each class.
pub fn run(options: &Options) -> Result<()> {
    simulate(options, None)
}

/// The same; `draw` gets the classes' rates over time before anything is printed.
pub fn run_and_draw(options: &Options, draw: &dyn Fn(Rates) -> Result<()>) -> Result<()> {
    simulate(options, Some(draw))
}

fn simulate(options: &Options, draw: Option<&dyn Fn(Rates) -> Result<()>>) -> Result<()> {
    let asked = Asked {
        link: options.link.as_deref(),
    };
    let scenario = Scenario::read(&options.scenario, asked)?;
    output::warn(&scenario.warnings);
    let seconds = options.seconds.or(scenario.seconds).unwrap_or(SECONDS);
    let seed = options.seed.or(scenario.seed).unwrap_or(SEED);
    let stop = interrupt::asked()?;
    let time = Picos::from_secs_f64(seconds);
    let mut run = Run::new(&scenario, seed, time, draw.is_some())?;
    let progress = progress(options);
    run.run(&stop, &progress);
    progress.finish_and_clear();
    let report = run.report(options);
    if let (Some(draw), Some(rates)) = (draw, run.rates()) {
        draw(rates)?;
    }
    if options.json {
        return output::line(serde_json::to_string(&report)?);
    }
    output::line(report.text(&scenario.link))
}

/// A bar on standard error, unless that is no terminal.
fn progress(options: &Options) -> ProgressBar {
    if options.json {
        return ProgressBar::hidden();
    }
    ProgressBar::new(1000).with_style(
        ProgressStyle::with_template("{bar:30} {percent}% {elapsed}, {eta} left")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    )
}

/// A simulation of a scenario.
struct Run<'a> {
    scenario: &'a Scenario,
    simulation: Simulation<Discipline<ClassPacket>, Watch, ClassFlow>,
    ids: Vec<ClassId>,
    seed: u64,
    begin: Picos,
    end: Picos,
    malformed: u64,
    unmatched: u64,
    /// The classes of each source's packets, by place.
    classes: Vec<Vec<usize>>,
}

/// Who counts what happens: of each class, and what it sent over time where that is to be drawn.
type Watch = (Ledger, Option<ClassMeter>);

impl<'a> Run<'a> {
    /// Of so long a time; `drawn`: what is needed for [`Rates`] is kept.
    fn new(scenario: &'a Scenario, seed: u64, time: Picos, drawn: bool) -> Result<Run<'a>> {
        let link = &scenario.link;
        let (queue, ids) = link.discipline();
        let mut classifier = link.classifier(&ids, scenario::digest_key(seed));
        let begin = Picos::from(scenario.warm_up);
        let end = begin + time;
        let over_time = drawn.then(|| ClassMeter::new(Picos(end.0 / STEPS)));
        let watch = (Ledger::new(link, &ids), over_time);
        let mut simulation =
            Simulation::of_classes(queue, link.rate, TransmitQueue::NONE, watch, seed);
        let places = Places::new(&ids);
        let mut classes = Vec::new();
        let mut named = 0;
        for source in &scenario.sources {
            let mut of: Vec<usize> = Vec::new();
            for plan in source.plans(link, &ids, &mut classifier, &mut named) {
                of.push(places.of(plan.to.class));
                let added = simulation.add_source(plan);
                added.with_context(|| source.name.clone())?;
            }
            of.sort_unstable();
            of.dedup();
            classes.push(of);
        }
        Ok(Run {
            scenario,
            simulation,
            ids,
            seed,
            begin,
            end,
            malformed: classifier.malformed(),
            unmatched: classifier.unmatched(),
            classes,
        })
    }

    /// Until the end, or until `stop`.
    fn run(&mut self, stop: &AtomicBool, progress: &ProgressBar) {
        let step = step(&self.scenario.link);
        let mut measuring = false;
        while self.simulation.clock() < self.end && !stop.load(Ordering::Acquire) {
            let target = if measuring { self.end } else { self.begin };
            let until = (self.simulation.clock() + step).min(target);
            self.simulation.run_until(until);
            if !measuring && until == self.begin {
                self.restart();
                measuring = true;
            }
            self.simulation.tidy();
            progress.set_position((until.0 * 1000 / self.end.0) as u64);
        }
        if !measuring {
            self.restart();
        }
    }

    /// From here on it is measured.
    fn restart(&mut self) {
        let (ledger, _) = self.simulation.observer();
        let before = ledger.counts(self.simulation.queue());
        self.simulation.observer_mut().0.restart(before);
    }

    fn report(&self, options: &Options) -> Report {
        let link = &self.scenario.link;
        let time = self.simulation.clock() - self.begin;
        let (ledger, _) = self.simulation.observer();
        let sources = self.scenario.sources.iter().zip(&self.classes);
        let names = |places: &Vec<usize>| {
            let names = places.iter().map(|&place| link.classes[place].name.clone());
            names.collect()
        };
        Report {
            scenario: options.scenario.display().to_string(),
            link: link.name.clone(),
            rate_bps: link.rate.bps(),
            overhead: link.overhead,
            algorithm: link.algorithm.to_string(),
            seconds: time.0 as f64 / PICOS_PER_SECOND as f64,
            interrupted: self.simulation.clock() < self.end,
            seed: self.seed,
            malformed_sources: self.malformed,
            unmatched_sources: self.unmatched,
            sources: sources
                .map(|(source, places)| SourceReport {
                    name: source.name.clone(),
                    count: source.count,
                    classes: names(places),
                })
                .collect(),
            classes: ledger.report(self.simulation.queue(), time),
        }
    }

    /// What was kept for it.
    fn rates(&self) -> Option<Rates> {
        let meter = self.simulation.observer().1.as_ref()?;
        let link = &self.scenario.link;
        let seconds = |picos: Picos| picos.0 as f64 / PICOS_PER_SECOND as f64;
        let step = seconds(meter.interval());
        let mut classes = Vec::new();
        for (class, &id) in link.classes.iter().zip(&self.ids) {
            let rate = |number: usize| meter.bytes(id, number) as f64 * 8.0 / step / 1e6;
            let points = (0..meter.intervals())
                .map(|number| ((number as f64 + 0.5) * step, rate(number)))
                .collect::<Vec<_>>();
            if points.iter().any(|&(_, rate)| rate > 0.0) {
                classes.push((class.name.clone(), points));
            }
        }
        Some(Rates {
            link: format!("{} at {}, {}", link.name, link.rate, link.algorithm),
            classes,
        })
    }
}

/// How far to go between two looks at Ctrl-C: some thousands of packets, whatever the rate.
fn step(link: &Link) -> Picos {
    let bits = u128::from(link.longest.get()) * 8 * 4096;
    let picos = bits * u128::from(PICOS_PER_SECOND) / u128::from(link.rate.bps());
    Picos(picos).min(Picos::from_millis(100))
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    scenario: String,
    link: String,
    algorithm: String,
    rate_bps: u64,
    overhead: u32,
    /// That were measured.
    seconds: f64,
    interrupted: bool,
    seed: u64,
    /// Sources whose headers could not be read, or matched no filter: in the default class.
    malformed_sources: u64,
    unmatched_sources: u64,
    sources: Vec<SourceReport>,
    classes: Vec<ClassReport>,
}

/// Sources alike.
#[derive(Debug, Serialize)]
struct SourceReport {
    name: String,
    count: u32,
    /// Where their packets went.
    classes: Vec<String>,
}

impl Report {
    fn text(&self, link: &Link) -> String {
        let headline = classes::headline(link, &self.classes, self.seconds);
        let interrupted = if self.interrupted {
            ", interrupted"
        } else {
            ""
        };
        format!(
            "{headline} in {} s, seed {}{interrupted}\n{}",
            self.seconds,
            self.seed,
            classes::text(&self.classes)
        )
    }
}
