//! `fairlane compare`: the same arrivals under one algorithm after another.

use std::iter;
use std::num::NonZeroU32;

use anyhow::{Context, Error, Result};
use comfy_table::Table;
use fairlane_bench::controller::Arrivals;
use fairlane_bench::flowsets::{Backlog, FlowSet, FlowSets};
use fairlane_bench::pairs::{Case, Contender};
use fairlane_config::algorithms;
use fairlane_config::class_report::DelayReport;
use fairlane_core::Length;
use fairlane_core::sched::AUTOMATIC_MEMBERS;
use fairlane_traffic::replay::by_flow::{Report, Setup};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::algorithm::{self, Algorithm, members, quantum};
use crate::cost::{Custom, measured};
use crate::source::{Reading, Recorded, Source};
use crate::{figures, output, plain, table};

const HELP: &str = "\
Replays the arrivals of a file like `fairlane replay`, with each algorithm, and prints a
row per algorithm, the one with the smallest T-WFI first:

  delay    of all packets, from arrival to the end of transmission; p50 and p99 to 1%
  T-WFI    the longest extra delay of a packet compared with its flow's share, and the
           bound of that flow; `none` if the algorithm has no bound
  Jain     Jain's fairness index over the throughput of the flows, each relative to its
           share among backlogged flows; at most 1, where every flow had its share
  packet   the time of one enqueue and dequeue on this machine with these flows
           backlogged (the first 65536 of them), without the packet's allocation: the
           minimum of several measurements, so it differs between runs

All columns but the last are the same in every run. Instructions are not counted, since many
machines (most virtual ones) have no counters for them. The README explains how to count
instructions of `fairlane bench` with valgrind.

Files and flows, and the limits of a replay, are those of `fairlane replay --help`, with one
difference: all arrivals are held in memory, 16 bytes each.

With --config, packets follow the filters of the site's link to its classes, which are flows
here, with their guaranteed rates; a class without a guarantee has its configured rate, or an
equal part of its parent's. The link's ceilings, limits and queue management do not apply;
max_len is the longest packet of the link. `fairlane replay --config` shows the behaviour of
the site itself.

Examples:
  fairlane compare --rate 100mbit --overhead 24 in.pcap
  fairlane compare --rate 1gbit --flow-by source --alg fifo,drr,qfq+ in.pcap --json
  fairlane compare --config examples/home-gateway.toml --link up in.pcap
  fairlane compare --rate 8mbit --flows examples/algorithms/flows.csv \\
      examples/algorithms/arrivals.csv";

/// Options of `fairlane compare`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Options {
    /// Algorithms to compare [default: all]
    #[arg(
        long,
        value_parser = algorithm::parser(),
        value_name = "A,A,...",
        value_delimiter = ','
    )]
    alg: Vec<Algorithm>,
    #[command(flatten)]
    source: Source,
    /// Maximum number of flows in an aggregate (M), for algorithms whose name ends in +
    #[arg(long, value_name = "M", default_value_t = AUTOMATIC_MEMBERS, value_parser = members)]
    aggregate: NonZeroU32,
    /// Quantum of drr for the lightest flow, in bytes with overhead; others in proportion [default: the
    /// smallest that sends each flow's longest packet in one turn]
    #[arg(long, value_name = "BYTES", value_parser = quantum)]
    quantum: Option<Length>,
    /// Number of requests for measuring the cost of a packet, more for thousands of flows; 0
    /// disables the measurement
    #[arg(short = 'n', value_name = "LOOPS", default_value_t = 1_600_000)]
    loops: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The most flows with which the cost of a packet is measured.
const MOST_MEASURED: usize = 1 << 16;

/// Number of measurements, of all algorithms in turn: other load on the machine only adds to them, and does not last.
const ROUNDS: u64 = 16;

/// The output of `--json`.
#[derive(Serialize)]
struct Comparison {
    input: String,
    rate_bps: u64,
    overhead: u32,
    aggregate: u32,
    /// Seconds from the first arrival to the last.
    seconds: f64,
    packets: u64,
    bytes: u64,
    flows: usize,
    algorithms: Vec<Row>,
}

/// The results of an algorithm for these arrivals.
#[derive(Serialize)]
struct Row {
    alg: &'static str,
    delay_ns: DelayReport,
    /// The flow with the largest lag behind its share, and its name.
    flow: u32,
    key: Option<String>,
    /// The largest T-WFI of its flows, and its bound.
    t_wfi_ns: f64,
    t_wfi_bound_ns: Option<u64>,
    jain: f64,
    ns_per_packet: Option<f64>,
}

/// Replays the arrivals under each algorithm, and prints the rows.
pub(crate) fn run(options: &Options, custom: &[Custom]) -> Result<()> {
    let progress = match options.json {
        true => ProgressBar::hidden(),
        false => ProgressBar::no_length(),
    };
    progress.set_style(
        ProgressStyle::with_template("{bar:30} {percent}% {msg} {elapsed}, {eta} left")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    let comparison = options.compare(custom, &progress);
    progress.finish_and_clear();
    let comparison = comparison?;
    if options.json {
        return output::json(&comparison);
    }
    output::line(comparison.text(options.loops > 0))
}

impl Options {
    fn compare(&self, custom: &[Custom], progress: &ProgressBar) -> Result<Comparison> {
        let chosen = match &self.alg[..] {
            [] => algorithms::all(),
            chosen => chosen.to_vec(),
        };
        let chosen = algorithm::with_quantum(chosen, self.quantum).map_err(Error::msg)?;
        let source = &self.source;
        let recorded = Reading { source, progress }.recorded()?;
        let arrivals = &recorded.arrivals;
        progress.set_position(0);
        progress.set_length((chosen.len() * arrivals.packets()) as u64);
        let mut comparison = Comparison {
            input: source.input.display().to_string(),
            rate_bps: recorded.rate.bps(),
            overhead: recorded.overhead,
            aggregate: self.aggregate.get(),
            seconds: arrivals.seconds(),
            packets: 0,
            bytes: 0,
            flows: recorded.flows.len(),
            algorithms: Vec::new(),
        };
        let costs = costs(self, &recorded, &chosen, custom, progress)?;
        for ((done, algorithm), cost) in (1..).zip(chosen).zip(costs) {
            progress.set_message(algorithm.name());
            let setup = Setup {
                algorithm,
                aggregate: self.aggregate,
                rate: recorded.rate,
                overhead: recorded.overhead,
                flows: &recorded.flows,
            };
            let report = arrivals
                .replay(&setup, &mut |left| {
                    progress.set_position((done * arrivals.packets() - left) as u64);
                })
                .context(algorithm.name())?;
            (comparison.packets, comparison.bytes) = (report.packets, report.bytes);
            let row = Row::new(&report, &recorded.names, cost)?;
            let rows = &mut comparison.algorithms;
            let place = rows.partition_point(|other| other.t_wfi_ns <= row.t_wfi_ns);
            rows.insert(place, row);
        }
        Ok(comparison)
    }
}

impl Row {
    fn new(report: &Report, names: &[String], ns_per_packet: Option<f64>) -> Result<Row> {
        // Of several flows with the same lag, the first.
        let sent = report.flows.iter().rev().filter(|flow| flow.packets > 0);
        let behind = sent.max_by(|a, b| a.t_wfi_ns.total_cmp(&b.t_wfi_ns));
        let behind = behind.context("there is no flow")?;
        Ok(Row {
            alg: report.alg,
            delay_ns: report.delay_ns,
            flow: behind.flow,
            key: names.get(behind.flow as usize).cloned(),
            t_wfi_ns: behind.t_wfi_ns,
            t_wfi_bound_ns: behind.t_wfi_bound_ns,
            jain: report.jain,
            ns_per_packet,
        })
    }
}

/// Returns the cost of a packet under each of these algorithms, in nanoseconds, without the cost of the test loop
/// itself: the least of several measurements. `None` if it is not to be measured.
fn costs(
    options: &Options,
    recorded: &Recorded,
    chosen: &[Algorithm],
    custom: &[Custom],
    progress: &ProgressBar,
) -> Result<Vec<Option<f64>>> {
    if options.loops == 0 {
        return Ok(vec![None; chosen.len()]);
    }
    let flows = recorded.flows.iter().take(MOST_MEASURED);
    let sets = flows.map(|flow| FlowSet {
        weight: flow.weight,
        length: flow.max_len,
        flows: 1,
    });
    let sets = FlowSets::of(sets.collect());
    let flows = sets.flows() as u64;
    let case = Case {
        qmin: Backlog::PerFlow(3),
        qmax: Backlog::PerFlow(6),
        // Fill the queues, and empty them once.
        warm_up: 9 * flows,
        // Enough to fill and empty them twice more.
        loops: options.loops.div_ceil(ROUNDS).max(12 * flows),
        arrivals: Arrivals::Smooth,
        seed: 1,
        aggregate: options.aggregate,
        sets,
    };
    let contenders = chosen.iter().copied().map(Contender::Algorithm);
    let contenders: Vec<Contender> = iter::once(Contender::None).chain(contenders).collect();
    let mut least = vec![f64::INFINITY; contenders.len()];
    for round in 1..=ROUNDS {
        progress.set_message(format!("cost of a packet, round {round} of {ROUNDS}"));
        for (least, &contender) in least.iter_mut().zip(&contenders) {
            *least = least.min(measured(&case, contender, custom)?.ns_per_pair);
        }
    }
    let none = least.remove(0);
    Ok(least
        .iter()
        .map(|cost| Some((cost - none).max(0.0)))
        .collect())
}

/// Columns that are omitted on a narrow terminal, in this order.
const EXPENDABLE: [usize; 4] = [7, 1, 3, 8];

impl Comparison {
    fn text(&self, with_cost: bool) -> String {
        let (packets, bytes, flows, seconds) = (self.packets, self.bytes, self.flows, self.seconds);
        format!(
            "{}: {packets} packets, {bytes} bytes, {flows} flows in {seconds} s, over {}\n{}",
            self.input,
            figures::rate(self.rate_bps),
            self.table(with_cost)
        )
    }

    fn table(&self, with_cost: bool) -> Table {
        let mut head = vec![
            "algorithm",
            "delay\np50",
            "delay\np99",
            "delay\nmax",
            "T-WFI",
            "bound",
            "Jain",
            "furthest\nbehind",
        ];
        if with_cost {
            head.push("packet");
        }
        let mut table = table::new(head);
        let time = |nanos: f64| figures::micros(nanos / 1e3);
        for row in &self.algorithms {
            let bound = row.t_wfi_bound_ns.map(|bound| time(bound as f64));
            let mut cells = vec![
                row.alg.to_owned(),
                time(row.delay_ns.p50),
                time(row.delay_ns.p99),
                time(row.delay_ns.max),
                time(row.t_wfi_ns),
                bound.unwrap_or_else(|| "none".to_owned()),
                format!("{:.4}", row.jain),
                match &row.key {
                    Some(key) => plain::plain(key).into_owned(),
                    None => row.flow.to_string(),
                },
            ];
            cells.extend(row.ns_per_packet.map(time));
            table.add_row(cells);
        }
        table::fit(&mut table, &EXPENDABLE);
        table
    }
}
