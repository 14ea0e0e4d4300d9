//! The simulation of a link.

use anyhow::{Context, Result};
use fairlane_config::Link;
use fairlane_config::class_report::ClassReport;
use fairlane_core::Discipline;
use fairlane_core::tree::ClassId;
use fairlane_sim::{
    ClassFlow, ClassMeter, ClassPacket, PICOS_PER_SECOND, Picos, Simulation, TransmitQueue,
};
use serde::Serialize;

use super::digest_key;
use super::source::Source;
use crate::ledger::{Ledger, Places};

/// The throughput of each class over time.
#[derive(Clone, Debug)]
pub struct Rates {
    /// Of each class that sent, its name and (seconds, Mbit/s).
    pub classes: Vec<(String, Vec<(f64, f64)>)>,
}

/// Steps of [`Rates`].
const STEPS: u128 = 200;

/// A simulation of a link.
pub(super) struct LinkRun<'a> {
    link: &'a Link,
    sources: &'a [Source],
    simulation: Simulation<Discipline<ClassPacket>, Watch, ClassFlow>,
    ids: Vec<ClassId>,
    begin: Picos,
    end: Picos,
    malformed: u64,
    unmatched: u64,
    /// The classes of each source's packets, by place.
    classes: Vec<Vec<usize>>,
}

/// Observers of the run: counts of each class and, for drawing, its throughput over time.
type Watch = (Ledger, Option<ClassMeter>);

impl<'a> LinkRun<'a> {
    /// Creates a run measured from `begin` to `end`; with `drawn`, it keeps the data for [`Rates`].
    pub(super) fn new(
        link: &'a Link,
        sources: &'a [Source],
        seed: u64,
        (begin, end): (Picos, Picos),
        drawn: bool,
    ) -> Result<LinkRun<'a>> {
        let (queue, ids) = link.discipline();
        let mut classifier = link.classifier(&ids, digest_key(seed));
        let over_time = drawn.then(|| ClassMeter::new(Picos(end.0 / STEPS)));
        let watch = (Ledger::new(link, &ids), over_time);
        let mut simulation =
            Simulation::of_classes(queue, link.rate, TransmitQueue::NONE, watch, seed);
        let places = Places::new(&ids);
        let mut classes = Vec::new();
        let mut named = 0;
        for source in sources {
            let mut of: Vec<usize> = Vec::new();
            for plan in source.plans(link, &ids, &mut classifier, &mut named) {
                of.push(places.of(plan.to.class));
                let added = simulation.add_source(plan);
                added.with_context(|| source.sends.name.clone())?;
            }
            of.sort_unstable();
            of.dedup();
            classes.push(of);
        }
        Ok(LinkRun {
            link,
            sources,
            simulation,
            ids,
            begin,
            end,
            malformed: classifier.malformed(),
            unmatched: classifier.unmatched(),
            classes,
        })
    }

    /// Runs as [`Run::run_while`](super::Run::run_while) does.
    pub(super) fn run_while(
        &mut self,
        mut go_on: impl FnMut(f64) -> bool,
        mut still: impl FnMut() -> bool,
    ) {
        let step = step(self.link);
        let mut measuring = false;
        let part = |done: Picos, end: Picos| done.as_secs_f64() / end.as_secs_f64();
        while self.simulation.clock() < self.end && go_on(part(self.simulation.clock(), self.end)) {
            let target = if measuring { self.end } else { self.begin };
            let until = (self.simulation.clock() + step).min(target);
            if !self.simulation.run_until_while(until, &mut still) {
                break;
            }
            if !measuring && until == self.begin {
                self.restart();
                measuring = true;
            }
            self.simulation.expire_idle();
        }
        if !measuring {
            self.restart();
        }
    }

    /// Starts the measurement.
    fn restart(&mut self) {
        let (ledger, _) = self.simulation.observer();
        let before = ledger.counts(self.simulation.queue());
        self.simulation.observer_mut().0.restart(before);
    }

    /// Returns the results of the classes; `scenario` is the scenario's name in the report.
    pub(super) fn outcome(&self, scenario: String, seed: u64) -> LinkOutcome {
        let link = self.link;
        let time = self.simulation.clock() - self.begin;
        let (ledger, _) = self.simulation.observer();
        let sources = self.sources.iter().zip(&self.classes);
        let names = |places: &Vec<usize>| {
            let names = places
                .iter()
                .map(|&place| link.classes[place].name.to_string());
            names.collect()
        };
        LinkOutcome {
            scenario,
            link: link.name.clone(),
            rate_bps: link.rate.bps(),
            overhead: link.overhead,
            algorithm: link.algorithm.to_string(),
            seconds: time.0 as f64 / PICOS_PER_SECOND as f64,
            interrupted: self.simulation.clock() < self.end,
            seed,
            malformed_sources: self.malformed,
            unmatched_sources: self.unmatched,
            sources: sources
                .map(|(source, places)| SourceOutcome {
                    name: source.sends.name.clone(),
                    count: source.sends.count,
                    classes: names(places),
                })
                .collect(),
            classes: ledger.report(self.simulation.queue(), time),
        }
    }

    /// Returns the data kept for drawing.
    pub(super) fn rates(&self) -> Option<Rates> {
        let meter = self.simulation.observer().1.as_ref()?;
        let link = self.link;
        let seconds = |picos: Picos| picos.0 as f64 / PICOS_PER_SECOND as f64;
        let step = seconds(meter.interval());
        let mut classes = Vec::new();
        for (class, &id) in link.classes.iter().zip(&self.ids) {
            let rate = |number: usize| meter.bytes(id, number) as f64 * 8.0 / step / 1e6;
            let points = (0..meter.intervals())
                .map(|number| ((number as f64 + 0.5) * step, rate(number)))
                .collect::<Vec<_>>();
            if points.iter().any(|&(_, rate)| rate > 0.0) {
                classes.push((class.name.to_string(), points));
            }
        }
        Some(Rates { classes })
    }
}

/// Returns the time between two checks for Ctrl-C: some thousands of packets, at any rate.
fn step(link: &Link) -> Picos {
    let bits = u128::from(link.longest.get()) * 8 * 4096;
    let picos = bits * u128::from(PICOS_PER_SECOND) / u128::from(link.rate.bps());
    Picos(picos).min(Picos::from_millis(100))
}

/// The result of a simulation of a link; its keys are those of `fairlane sim --json`.
#[derive(Debug, Serialize)]
pub struct LinkOutcome {
    /// The simulated scenario.
    pub scenario: String,
    /// The link's name.
    pub link: String,
    /// The algorithm among its topmost classes.
    pub algorithm: String,
    /// Its rate in bit/s.
    pub rate_bps: u64,
    /// Overhead in bytes per packet.
    pub overhead: u32,
    /// That were measured.
    pub seconds: f64,
    /// It ended before its time.
    pub interrupted: bool,
    /// Of all that is random.
    pub seed: u64,
    /// Sources with malformed headers; their packets are in the default class.
    pub malformed_sources: u64,
    /// Sources whose headers matched no filter; likewise in the default class.
    pub unmatched_sources: u64,
    /// Who sent.
    pub sources: Vec<SourceOutcome>,
    /// The link's classes, in the order of the file.
    pub classes: Vec<ClassReport>,
}

/// Sources alike.
#[derive(Debug, Serialize)]
pub struct SourceOutcome {
    /// Their name in the scenario.
    pub name: String,
    /// Number of sources.
    pub count: u32,
    /// Where their packets went.
    pub classes: Vec<String>,
}
