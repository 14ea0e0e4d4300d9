//! `fairlane compare`: the same arrivals under every algorithm.

use std::num::NonZeroU32;
use std::path::PathBuf;

use anyhow::{Context, Result};
use fairlane_bench::controller::Arrivals;
use fairlane_bench::flowsets::{Backlog, FlowSets};
use fairlane_bench::pairs::{self, Contender};
use fairlane_config::algorithms;
use fairlane_core::Rate;
use fairlane_core::sched::AUTOMATIC_MEMBERS;
use fairlane_traffic::replay::by_flow::{FlowReport, Per, Report};
use fairlane_traffic::replay::{Departure, Departures};
use serde::Serialize;

use crate::algorithm::{self, Algorithm, members};
use crate::{output, replay, table};

const HELP: &str = "\
Replays the arrivals of a file, as `fairlane replay` does, once for each algorithm, and
prints a row for each: the delays of the flow that has the longest, how far the flow
that comes nearest to its bound is behind its share (T-WFI) and that bound, Jain's index
(1 where all flows, while they had something to send, got as much for their weights),
and what a packet costs: ns for an enqueue and a dequeue with as many flows of these
weights, all backlogged, as in `fairlane bench`.

Examples:
  fairlane compare --rate 8mbit --flows examples/algorithms/flows.csv \\
      examples/algorithms/arrivals.csv
  fairlane compare --rate 100mbit --overhead 24 in.pcap --json";

/// Options of `fairlane compare`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Options {
    /// Algorithms to compare [default: all]
    #[arg(long, value_parser = algorithm::parser(), value_name = "A,A,...", value_delimiter = ',')]
    alg: Vec<Algorithm>,
    /// Rate of the link: a number with bit, kbit, mbit, gbit or tbit
    #[arg(long, value_name = "R")]
    rate: Rate,
    /// The flows; a capture can do without
    #[arg(long, value_name = "FLOWS.csv")]
    flows: Option<PathBuf>,
    /// The arrivals: CSV or a capture, as the file's beginning tells
    #[arg(value_name = "ARRIVALS.csv|IN.pcap")]
    input: PathBuf,
    /// What makes packets of a capture one flow [default: 5-tuple]
    #[arg(long, value_parser = replay::flow_by(), value_name = "KEY")]
    flow_by: Option<Per>,
    /// Bytes that each packet takes on the link beside its own
    #[arg(long, value_name = "BYTES", default_value_t = 0, value_parser = replay::overhead())]
    overhead: u32,
    /// Most flows in an aggregate (M), for algorithms whose name ends in +
    #[arg(long, value_name = "M", default_value_t = AUTOMATIC_MEMBERS, value_parser = members)]
    aggregate: NonZeroU32,
    /// Print one JSON array
    #[arg(long)]
    json: bool,
}

/// Requests by which a packet's cost is measured.
const LOOPS: u64 = 200_000;

/// An algorithm, as these arrivals see it.
#[derive(Serialize)]
struct Row {
    alg: &'static str,
    /// The longest of any flow.
    delay_p50_ns: f64,
    delay_p99_ns: f64,
    delay_max_ns: f64,
    /// Of the flow that comes nearest to its bound.
    t_wfi_ns: f64,
    t_wfi_bound_ns: Option<u64>,
    jain: f64,
    ns_per_packet: f64,
}

/// Replays by each, and prints the rows.
pub(crate) fn run(options: &Options) -> Result<()> {
    let chosen = match &options.alg[..] {
        [] => algorithms::all(),
        chosen => chosen.to_vec(),
    };
    let rows = chosen.into_iter().map(|algorithm| options.row(algorithm));
    let rows: Vec<Row> = rows.collect::<Result<_>>()?;
    if options.json {
        return output::json(&rows);
    }
    let mut table = table::new([
        "algorithm",
        "delay\np50 us",
        "delay\np99 us",
        "delay\nmax us",
        "T-WFI\nus",
        "bound\nus",
        "Jain",
        "ns a\npacket",
    ]);
    let micros = |nanos: f64| format!("{:.3}", nanos / 1e3);
    for row in rows {
        table.add_row([
            row.alg.to_owned(),
            micros(row.delay_p50_ns),
            micros(row.delay_p99_ns),
            micros(row.delay_max_ns),
            micros(row.t_wfi_ns),
            (row.t_wfi_bound_ns).map_or_else(|| "none".to_owned(), |bound| micros(bound as f64)),
            format!("{:.4}", row.jain),
            format!("{:.1}", row.ns_per_packet),
        ]);
    }
    output::line(table)
}

impl Options {
    fn row(&self, algorithm: Algorithm) -> Result<Row> {
        let mut rates = Rates::default();
        let replay = replay::Options::measuring(algorithm, self.rate, self.input.clone());
        let report = replay::Options {
            flows: self.flows.clone(),
            flow_by: self.flow_by,
            overhead: self.overhead,
            aggregate: self.aggregate,
            ..replay
        }
        .report_to(&mut rates)?;
        let flows = &report.flows;
        let longest = |delay: fn(&FlowReport) -> f64| flows.iter().map(delay).fold(0.0, f64::max);
        let nearest = flows
            .iter()
            .max_by(|a, b| a.badness().total_cmp(&b.badness()));
        let nearest = nearest.context("no packet arrives")?;
        Ok(Row {
            alg: report.alg,
            delay_p50_ns: longest(|flow| flow.delay_ns.p50),
            delay_p99_ns: longest(|flow| flow.delay_ns.p99),
            delay_max_ns: longest(|flow| flow.delay_ns.max),
            t_wfi_ns: nearest.t_wfi_ns,
            t_wfi_bound_ns: nearest.t_wfi_bound_ns,
            jain: rates.jain(flows),
            ns_per_packet: self.cost(algorithm, &report)?,
        })
    }

    /// Of an enqueue and a dequeue with these flows.
    fn cost(&self, algorithm: Algorithm, report: &Report) -> Result<f64> {
        let flows = report.flows.iter();
        let sets: Vec<String> = flows
            .map(|flow| format!("{}:{}:1", flow.weight, flow.max_len))
            .collect();
        let case = pairs::Case {
            sets: sets.join(",").parse::<FlowSets>()?,
            qmin: "3n".parse::<Backlog>()?,
            qmax: "30n".parse::<Backlog>()?,
            loops: LOOPS,
            arrivals: Arrivals::Smooth,
            seed: 1,
            aggregate: self.aggregate,
        };
        let none = case.measure(Contender::None)?.ns_per_pair;
        let own = case.measure(Contender::Algorithm(algorithm))?.ns_per_pair;
        Ok((own - none).max(0.0))
    }
}

/// Of each flow: bytes that it sent, for how long it had something to send, and until when.
#[derive(Default)]
struct Rates(Vec<(u64, u64, u64)>);

impl Departures for Rates {
    fn write(&mut self, departure: &Departure<'_>) -> Result<()> {
        let flow = departure.flow as usize;
        if self.0.len() <= flow {
            self.0.resize(flow + 1, (0, 0, 0));
        }
        let (bytes, time, until) = &mut self.0[flow];
        *bytes += u64::from(departure.len);
        *time += departure.end.saturating_sub(departure.arrival.max(*until));
        *until = departure.end;
        Ok(())
    }
}

impl Rates {
    /// Jain's index of the rates that flows had while they had something to send, for their weights.
    fn jain(&self, flows: &[FlowReport]) -> f64 {
        let shares = self
            .0
            .iter()
            .zip(flows)
            .filter(|((_, time, _), _)| *time > 0);
        let shares = shares
            .map(|(&(bytes, time, _), flow)| bytes as f64 / time as f64 / f64::from(flow.weight));
        let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
        for share in shares {
            (count, sum, squares) = (count + 1.0, sum + share, squares + share * share);
        }
        if squares > 0.0 {
            sum * sum / (count * squares)
        } else {
            1.0
        }
    }
}
