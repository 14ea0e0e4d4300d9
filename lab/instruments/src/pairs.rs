//! `fairlane-instruments pairs`: what an enqueue and a dequeue cost where packets have memory.

use std::num::NonZeroU32;

use anyhow::Result;
use fairlane_bench::controller::Arrivals;
use fairlane_bench::flowsets::FlowSets;
use fairlane_bench::pairs::{Case, Contender};
use fairlane_cli::{algorithm, bench, output};
use fairlane_core::sched::AUTOMATIC_MEMBERS;
use serde::Serialize;

/// Options of `fairlane-instruments pairs`.
///
/// As `fairlane bench`, with flows between no backlog and 30 packets, and memory for each packet.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Algorithm to measure, or none for one queue of all packets
    #[arg(long, value_name = "A", value_parser = bench::contenders())]
    alg: Contender,
    /// Flow sets WEIGHT:LENGTH:FLOWS, as in `fairlane bench`; packets take the greatest LENGTH of memory each
    #[arg(long, value_name = "W:LEN:N,...")]
    flowsets: FlowSets,
    /// How packets arrive
    #[arg(long, value_enum, default_value = "smooth")]
    arrivals: Arrivals,
    /// Most flows in an aggregate (M), for algorithms whose name ends in +
    #[arg(long, value_name = "M", default_value_t = AUTOMATIC_MEMBERS, value_parser = algorithm::members)]
    aggregate: NonZeroU32,
    /// Requests before those that are measured
    #[arg(long, value_name = "LOOPS", default_value_t = 0)]
    warm_up: u64,
    /// Requests to make, enqueues and dequeues together
    #[arg(short = 'n', value_name = "LOOPS", value_parser = clap::value_parser!(u64).range(1..))]
    loops: u64,
}

/// The printed results.
#[derive(Debug, Serialize)]
struct Outcome<'a> {
    alg: &'static str,
    flows: usize,
    flowsets: &'a str,
    qmax: u64,
    aggregate: u32,
    warm_up: u64,
    loops: u64,
    enqueues: u64,
    dequeues: u64,
    ns_per_pair: f64,
}

/// Measures and prints the outcome.
pub(crate) fn run(options: &Options) -> Result<()> {
    let case = Case {
        sets: options.flowsets.clone(),
        qmin: "0".parse()?,
        qmax: "30n".parse()?,
        warm_up: options.warm_up,
        loops: options.loops,
        arrivals: options.arrivals,
        seed: 1,
        aggregate: options.aggregate,
    };
    // Code of its own, so that the program's measures nothing but numbers.
    let measured = case.measure_with(options.alg, |controller| controller.in_memory(&case.sets))?;
    output::json(&Outcome {
        alg: options.alg.name(),
        flows: case.sets.flows(),
        flowsets: case.sets.text(),
        qmax: measured.qmax,
        aggregate: case.aggregate.get(),
        warm_up: case.warm_up,
        loops: case.loops,
        enqueues: measured.tally.enqueues,
        dequeues: measured.tally.dequeues,
        ns_per_pair: measured.ns_per_pair,
    })
}
