//! `fairlane bench`: the papers' test environment.

mod controller;
mod flowsets;
pub mod pspat;

use std::num::NonZeroU32;
use std::sync::LazyLock;
use std::time::Instant;

use anyhow::{Result, ensure};
use fairlane_core::queue::{PacketList, PacketSlab};
use fairlane_core::sched::AUTOMATIC_MEMBERS;
use fairlane_core::scheduler::Scheduler;
use fairlane_core::with_algorithm;
use fairlane_core::{Dequeue, FlowConfig, FlowId, Length, Nanos, PacketScheduler, SchedulerLimits};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::algorithm::{Algorithm, members, possible};
use crate::{output, table};
use controller::{Arrivals, Controller, Subject, Tally};
use flowsets::{Backlog, FlowSets};

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
#[command(after_help = HELP, args_conflicts_with_subcommands = true)]
pub struct Options {
    #[command(subcommand)]
    other: Option<Other>,
    /// Algorithm to measure, or none for the environment alone; all without it
    #[arg(long, value_name = "A")]
    alg: Option<Contender>,
    /// Flow sets WEIGHT:LENGTH:FLOWS; WEIGHT and LENGTH may be MIN-MAX-STEPS, numbers
    /// take k and m, an empty LENGTH means 1000 bytes
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
    /// Print one JSON object a run
    #[arg(long)]
    json: bool,
}

/// What else can be measured.
#[derive(Clone, Debug, clap::Subcommand)]
enum Other {
    /// Measure the arbiter's throughput and fairness, and the lock that it replaces
    Pspat(pspat::Options),
}

/// Reads flow sets; an error says in one sentence where and what is wrong.
fn flow_sets(text: &str) -> Result<FlowSets, String> {
    text.parse().map_err(|error| format!("{error:#}"))
}

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contender {
    /// The environment alone: packets pass through a plain FIFO queue.
    None,
    Algorithm(Algorithm),
}

impl Contender {
    fn name(self) -> &'static str {
        match self {
            Contender::None => "none",
            Contender::Algorithm(algorithm) => algorithm.name(),
        }
    }
}

impl clap::ValueEnum for Contender {
    fn value_variants<'a>() -> &'a [Self] {
        static ALL: LazyLock<Vec<Contender>> = LazyLock::new(|| {
            let algorithms = Algorithm::ALL.iter();
            std::iter::once(Contender::None)
                .chain(algorithms.map(|&algorithm| Contender::Algorithm(algorithm)))
                .collect()
        });
        &ALL
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        match self {
            Contender::None => Some(
                clap::builder::PossibleValue::new("none")
                    .help("The environment alone: packets pass through a plain FIFO queue"),
            ),
            Contender::Algorithm(algorithm) => Some(possible(*algorithm)),
        }
    }
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
    enqueues: u64,
    dequeues: u64,
    drops: u64,
    ns_per_pair: f64,
}

/// Runs the benchmark and prints the outcome.
pub fn run(options: &Options) -> Result<()> {
    match &options.other {
        Some(Other::Pspat(options)) => return pspat::run(options),
        None => {}
    }
    match options.alg {
        Some(contender) => single(options, contender),
        None => table(options),
    }
}

fn single(options: &Options, contender: Contender) -> Result<()> {
    let sets = match &options.flowsets {
        Some(sets) => sets.clone(),
        None => "1::512".parse()?,
    };
    let case = Case {
        sets,
        qmin: options.qmin,
        qmax: options.qmax,
        loops: options.loops.unwrap_or(10_000_000),
        arrivals: options.arrivals,
        seed: options.seed,
        aggregate: options.aggregate,
    };
    let report = case.measure(contender)?;
    if options.json {
        output::line(serde_json::to_string(&report)?)
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

/// All algorithms over the flow sets of the QFQ report's Table 4, or over what the options
/// say instead.
fn table(options: &Options) -> Result<()> {
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
    let contenders = <Contender as clap::ValueEnum>::value_variants();
    let cases: Vec<Case> = sets
        .into_iter()
        .map(|sets| Case {
            sets,
            qmin: options.qmin,
            qmax: options.qmax,
            loops: options.loops.unwrap_or(4_000_000),
            arrivals: options.arrivals,
            seed: options.seed,
            aggregate: options.aggregate,
        })
        .collect();
    // Before the first is measured: an error comes at once and alone.
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
    let mut table = table::new(std::iter::once("flows (weight::flows)".to_owned()).chain(sets));
    for &contender in contenders {
        let mut row = vec![contender.name().to_owned()];
        for case in &cases {
            progress.set_message(format!("{} on {}", contender.name(), case.sets));
            let report = case.measure(contender)?;
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

struct Case {
    sets: FlowSets,
    qmin: Backlog,
    qmax: Backlog,
    loops: u64,
    arrivals: Arrivals,
    seed: u64,
    aggregate: NonZeroU32,
}

impl Case {
    /// The backlogs to drain to and to fill to, in packets.
    fn backlogs(&self) -> Result<(u64, u64)> {
        let flows = self.sets.flows();
        let (qmin, qmax) = (self.qmin.packets(flows), self.qmax.packets(flows));
        ensure!(
            qmin < qmax,
            "--qmin {qmin} must be below --qmax {qmax} ({flows} flows)"
        );
        ensure!(
            qmax < u64::from(u32::MAX),
            "--qmax {qmax} is more packets than the {} a queue can hold ({flows} flows)",
            u32::MAX - 1
        );
        Ok((qmin, qmax))
    }

    fn measure(&self, contender: Contender) -> Result<Report<'_>> {
        let flows = self.sets.flows();
        let (qmin, qmax) = self.backlogs()?;
        // Room for all that the controller ever lets wait, however high it aims.
        let room = qmax.min(flows as u64 * u64::from(controller::MOST));
        let mut controller = Controller::new(&self.sets, qmin, qmax, self.arrivals, self.seed);
        let (tally, seconds) = match contender {
            Contender::None => timed(&mut controller, &mut Plain::new(room), self.loops),
            Contender::Algorithm(algorithm) => {
                with_algorithm!(algorithm.with_members(self.aggregate), new => {
                    timed(&mut controller, &mut Scheduled::new(new(), &self.sets, room)?, self.loops)
                })
            }
        };
        Ok(Report {
            alg: contender.name(),
            flows,
            flowsets: self.sets.text(),
            arrivals: match self.arrivals {
                Arrivals::Smooth => "smooth",
                Arrivals::Bursty => "bursty",
            },
            qmin,
            qmax,
            loops: self.loops,
            aggregate: self.aggregate.get(),
            enqueues: tally.enqueues,
            dequeues: tally.dequeues,
            drops: tally.drops,
            ns_per_pair: seconds * 1e9 / tally.enqueues.max(1) as f64,
        })
    }
}

/// One copy of the loop a subject, so that instructions can be told apart.
#[inline(never)]
fn timed(controller: &mut Controller, subject: &mut impl Subject, loops: u64) -> (Tally, f64) {
    let start = Instant::now();
    let tally = controller.drive(subject, loops);
    (tally, start.elapsed().as_secs_f64())
}

/// What all algorithms are compared with: one FIFO list of packets.
struct Plain {
    slab: PacketSlab<u32>,
    packets: PacketList,
}

impl Plain {
    fn new(packets: u64) -> Self {
        let mut slab = PacketSlab::new(packets as u32);
        slab.reserve(packets as u32);
        Plain {
            slab,
            packets: PacketList::default(),
        }
    }
}

impl Subject for Plain {
    #[inline]
    fn enqueue(&mut self, flow: u32, len: Length) -> bool {
        self.packets.push_back(&mut self.slab, len, flow).is_ok()
    }

    #[inline]
    fn dequeue(&mut self) -> Option<u32> {
        let (_, flow) = self.packets.pop_front(&mut self.slab)?;
        Some(flow)
    }
}

struct Scheduled<A: Scheduler>(PacketScheduler<A, u32>);

impl<A: Scheduler> Scheduled<A> {
    fn new(algorithm: A, sets: &FlowSets, packets: u64) -> Result<Self> {
        let limits = SchedulerLimits {
            packets: packets as u32,
            bytes: u64::MAX,
            ..SchedulerLimits::default()
        };
        let mut scheduler = PacketScheduler::new(algorithm, limits);
        scheduler.reserve(sets.flows(), packets as u32);
        for set in sets.sets() {
            for _ in 0..set.flows {
                scheduler.add_flow(FlowConfig::new(set.weight, set.length))?;
            }
        }
        Ok(Scheduled(scheduler))
    }
}

impl<A: Scheduler> Subject for Scheduled<A> {
    #[inline]
    fn enqueue(&mut self, flow: u32, len: Length) -> bool {
        self.0.enqueue(FlowId::new(flow), len, flow).is_ok()
    }

    #[inline]
    fn dequeue(&mut self) -> Option<u32> {
        match self.0.dequeue(Nanos::ZERO) {
            Dequeue::Packet(packet) => Some(packet.flow.number()),
            Dequeue::NotBefore(_) | Dequeue::Empty => None,
        }
    }
}
