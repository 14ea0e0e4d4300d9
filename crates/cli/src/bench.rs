//! `fairlane bench`: the papers' test environment.

use std::iter;
use std::num::NonZeroU32;

use anyhow::{Error, Result, bail};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use fairlane_bench::controller::Arrivals;
use fairlane_bench::flowsets::{Backlog, FlowSets};
use fairlane_bench::pairs::{Case, Contender, Measured};
use fairlane_config::algorithms;
use fairlane_core::Length;
use fairlane_core::sched::AUTOMATIC_MEMBERS;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::algorithm::{self, Algorithm, members, quantum};
use crate::cost::{Custom, measured};
use crate::plain::plain;
use crate::{output, table};

const HELP: &str = "\
A controller enqueues packets until QMAX are queued, then dequeues until QMIN are
left, and so on; the time for all requests, divided by the number of enqueues, is
the cost of a pair, packet generation and disposal included. Run the same with
--alg none to subtract those.

Patterns of the QFQ report:
  small  --qmin 0  --qmax 5n     bursts that drain at once
  large  --qmin 0  --qmax 30n    larger bursts
  full   --qmin 3n --qmax 30n    a link that is always busy

Examples:
  fairlane bench                                      all algorithms, as Table 4 has them
  fairlane bench --alg qfq --flowsets 1::512,8::64    64 flows of weight 8 among 512 of 1
  fairlane bench --alg drr --flowsets 1-16-4:64-1500-3:1k --arrivals bursty";

/// Options of `fairlane bench`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Options {
    /// Algorithm to measure, or none for the environment alone [default: all]
    #[arg(long, value_name = "A", value_parser = contenders())]
    alg: Option<Contender>,
    /// Flow sets WEIGHT:LENGTH:FLOWS; WEIGHT and LENGTH may be MIN-MAX-STEPS, numbers
    /// may end in k or m, an empty LENGTH means 1000 bytes
    #[arg(long, value_name = "W:LEN:N,...", value_parser = flow_sets)]
    flowsets: Option<FlowSets>,
    /// Backlog to drain to, in packets; suffix n: times the number of flows
    #[arg(long, value_name = "X", default_value = "3n")]
    qmin: Backlog,
    /// Backlog to fill to
    #[arg(long, value_name = "X", default_value = "30n")]
    qmax: Backlog,
    /// Requests to make, enqueues and dequeues together [default: 10 million, or for
    /// the table 4 million a cell]
    #[arg(short = 'n', value_name = "LOOPS", value_parser = clap::value_parser!(u64).range(1..))]
    loops: Option<u64>,
    /// How packets arrive
    #[arg(long, value_enum, default_value = "smooth")]
    arrivals: Arrivals,
    /// Seed of bursty arrivals
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Most flows in an aggregate (M), for algorithms whose name ends in +
    #[arg(long, value_name = "M", default_value_t = AUTOMATIC_MEMBERS, value_parser = members)]
    aggregate: NonZeroU32,
    /// Quantum of drr in bytes: that of the lightest flow, and the others' in proportion [default:
    /// the least with which each flow's longest packet is sent in one turn]
    #[arg(long, value_name = "BYTES", value_parser = quantum)]
    quantum: Option<Length>,
    /// Print one JSON object a run
    #[arg(long)]
    json: bool,
    /// A benchmark of the laboratory: the error names its program
    #[arg(hide = true, trailing_var_arg = true)]
    laboratory: Vec<String>,
}

/// Reads flow sets; an error is one sentence with the place and the problem.
fn flow_sets(text: &str) -> Result<FlowSets, String> {
    text.parse().map_err(|error| format!("{error:#}"))
}

/// Returns the environment alone, and every algorithm.
fn all() -> impl Iterator<Item = Contender> {
    let algorithms = algorithms::all().into_iter().map(Contender::Algorithm);
    iter::once(Contender::None).chain(algorithms)
}

/// Sets the quantum of DRR, if one is given.
fn with_quantum(contenders: Vec<Contender>, quantum: Option<Length>) -> Result<Vec<Contender>> {
    let algorithms = contenders.iter().filter_map(|contender| match contender {
        Contender::Algorithm(algorithm) => Some(*algorithm),
        Contender::None => None,
    });
    let given = algorithm::with_quantum(algorithms.collect(), quantum).map_err(Error::msg)?;
    let mut given = given.into_iter().map(Contender::Algorithm);
    let one = |contender| match contender {
        Contender::None => Some(Contender::None),
        Contender::Algorithm(_) => given.next(),
    };
    Ok(contenders.into_iter().filter_map(one).collect())
}

/// Parses `--alg`: an algorithm's name, or `none`.
pub fn contenders() -> impl TypedValueParser<Value = Contender> {
    let possible = |one: Contender| PossibleValue::new(one.name()).help(one.about());
    let named = |name: String| all().find(|one| one.name() == name);
    PossibleValuesParser::new(all().map(possible))
        .map(move |name| named(name).expect("one of the names above"))
}

#[derive(Serialize)]
struct Report<'a> {
    alg: &'static str,
    flows: usize,
    flowsets: &'a str,
    arrivals: &'static str,
    qmin: u64,
    qmax: u64,
    loops: u64,
    aggregate: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    quantum: Option<u32>,
    enqueues: u64,
    dequeues: u64,
    drops: u64,
    ns_per_pair: f64,
}

/// Runs the benchmark and prints the outcome.
pub(crate) fn run(options: &Options, custom: &[Custom]) -> Result<()> {
    match (options.laboratory.first().map(String::as_str), options.alg) {
        (Some(name @ ("pspat" | "path")), _) => bail!(
            "bench {name}: the program fairlane does not have this benchmark (in the source tree, run \
             cargo run --release -p fairlane-instruments -- bench {name})"
        ),
        (Some(other), _) => bail!("bench: unexpected argument '{}'", plain(other)),
        (None, Some(contender)) => single(options, contender, custom),
        (None, None) => table(options, custom),
    }
}

fn single(options: &Options, contender: Contender, custom: &[Custom]) -> Result<()> {
    let sets = match &options.flowsets {
        Some(sets) => sets.clone(),
        None => "1::512".parse()?,
    };
    let case = Case {
        sets,
        qmin: options.qmin,
        qmax: options.qmax,
        warm_up: 0,
        loops: options.loops.unwrap_or(10_000_000),
        arrivals: options.arrivals,
        seed: options.seed,
        aggregate: options.aggregate,
    };
    let contenders = with_quantum(vec![contender], options.quantum)?;
    let report = measure(&case, contenders[0], custom)?;
    if options.json {
        output::json(&report)
    } else {
        output::line(format_args!(
            "{}: {:.1} ns a pair, {} flows ({}), {} enqueues, {} dequeues, {} drops, backlog {} to {}",
            report.alg,
            report.ns_per_pair,
            report.flows,
            report.flowsets,
            report.enqueues,
            report.dequeues,
            report.drops,
            report.qmin,
            report.qmax,
        ))
    }
}

/// Measures all algorithms with the flow sets of the QFQ report's Table 4, or those in the options.
fn table(options: &Options, custom: &[Custom]) -> Result<()> {
    let sets: Vec<FlowSets> = match &options.flowsets {
        Some(sets) => vec![sets.clone()],
        None => [
            "1::1",
            "1::8",
            "1::64",
            "1::512",
            "1::4k",
            "1::32k",
            "1::32k,2::4k,4::2k,8::1k,128::16,1k::1",
        ]
        .iter()
        .map(|text| text.parse())
        .collect::<Result<_>>()?,
    };
    let contenders = with_quantum(all().collect(), options.quantum)?;
    let cases: Vec<Case> = sets
        .into_iter()
        .map(|sets| Case {
            sets,
            qmin: options.qmin,
            qmax: options.qmax,
            warm_up: 0,
            loops: options.loops.unwrap_or(4_000_000),
            arrivals: options.arrivals,
            seed: options.seed,
            aggregate: options.aggregate,
        })
        .collect();
    // All cases are checked before the first is measured, so that an error shows at once.
    for case in &cases {
        case.backlogs()?;
    }
    let progress = ProgressBar::new((cases.len() * contenders.len()) as u64);
    progress.set_style(
        ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} {elapsed}, {eta} left")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    let sets = cases
        .iter()
        .map(|case| format!("{} ({})", case.sets.flows(), case.sets));
    let mut table = table::new(iter::once("flows (weight::flows)".to_owned()).chain(sets));
    for contender in contenders {
        let mut row = vec![contender.name().to_owned()];
        for case in &cases {
            progress.set_message(format!("{} on {}", contender.name(), case.sets));
            let report = measure(case, contender, custom)?;
            if options.json {
                let object = serde_json::to_string(&report)?;
                progress.suspend(|| output::line(object))?;
            }
            row.push(format!("{:.1}", report.ns_per_pair));
            progress.inc(1);
        }
        table.add_row(row);
    }
    progress.finish_and_clear();
    if !options.json {
        output::line("Nanoseconds for an enqueue/dequeue pair, packet generation included:")?;
        output::line(table)?;
    }
    Ok(())
}

fn measure<'a>(case: &'a Case, contender: Contender, custom: &[Custom]) -> Result<Report<'a>> {
    let Measured {
        qmin,
        qmax,
        tally,
        ns_per_pair,
    } = measured(case, contender, custom)?;
    Ok(Report {
        alg: contender.name(),
        flows: case.sets.flows(),
        flowsets: case.sets.text(),
        arrivals: match case.arrivals {
            Arrivals::Smooth => "smooth",
            Arrivals::Bursty => "bursty",
        },
        qmin,
        qmax,
        loops: case.loops,
        aggregate: case.aggregate.get(),
        quantum: match contender {
            Contender::Algorithm(Algorithm::DrrOfQuantum(quantum)) => Some(quantum.get()),
            _ => None,
        },
        enqueues: tally.enqueues,
        dequeues: tally.dequeues,
        drops: tally.drops,
        ns_per_pair,
    })
}
