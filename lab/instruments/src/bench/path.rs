//! `fairlane-instruments bench path`: options in, figures and predictions out.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use fairlane_cli::arguments::seconds;
use fairlane_cli::plain::plain;
use fairlane_cli::{output, table};
use fairlane_config::{Link, Site};
use fairlane_lab_bench::path::{
    Amount, ByLength, CORES, Case, Figure, Frame, KEY, Limit, Outcome, Prediction, Stage, Stages,
    measure,
};
use fairlane_traffic::{choose_link, other_side};
use serde::Serialize;

use crate::machine;

const HELP: &str = "\
Each stage of the data path is measured by itself, in memory: receiving (RX), parsing
and classifying, both ends of the arbiter's mailbox and of a return ring, the arbiter
with the site's classes (a packet in and a packet out), and transmitting (TX). On a machine
with two cores, the ends of a mailbox are on different cores. The stages of a single core,
which share its caches, are also measured in turns. Instructions are the program's own, if
the machine counts them (most virtual machines do not).

The model: the time of one core is the sum of its stages, without mailboxes. Of several
cores one is the arbiter's (out of the mailbox, decide, into a ring); the others are RX
workers, one for each queue (out of the return ring, RX, parse+classify, into the
mailbox), and TX workers (out of a ring, TX, into the return ring), in the numbers with the
highest throughput. Each stage takes its own time. Without TX workers the arbiter transmits.
The slowest of the three is the bottleneck. The throughput of 1 and 2 cores is also measured.
docs/internals/path.md has the assumptions.

Examples:
  fairlane-instruments bench path                              10,000 classes in three levels
  fairlane-instruments bench path --config site.toml --link up
  fairlane-instruments bench path --seconds 60 --json";

/// Options of `fairlane-instruments bench path`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Options {
    /// A site file, whose classes and filters the packets meet [default: 10,000 classes in three
    /// levels, with a filter each]
    #[arg(long, value_name = "SITE.toml")]
    config: Option<PathBuf>,
    /// The site's link; its only one if there is one
    #[arg(long, value_name = "NAME", requires = "config")]
    link: Option<String>,
    /// Packets to measure each figure with, instead of --seconds
    #[arg(short = 'n', value_name = "PACKETS", conflicts_with = "seconds", value_parser = clap::value_parser!(u64).range(1..))]
    packets: Option<u64>,
    /// Seconds to measure, all figures together
    #[arg(long, value_name = "S", default_value = "6", value_parser = seconds)]
    seconds: f64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The link and the results.
#[derive(Debug, Serialize)]
struct Report {
    link: String,
    classes: usize,
    levels: usize,
    filters: usize,
    algorithm: String,
    #[serde(flatten)]
    outcome: Outcome,
}

/// Measures and prints the outcome.
pub(super) fn run(options: &Options) -> Result<()> {
    let report = report(options)?;
    match options.json {
        true => output::json(&report),
        false => output::line(text(&report)?),
    }
}

fn report(options: &Options) -> Result<Report> {
    let site = match &options.config {
        Some(config) => Site::read(config)?,
        None => Site::parse(&tree_of(10, 10, 100), "the site that is made")?,
    };
    if options.config.is_some() {
        output::warn(&site.warnings);
    }
    let config = options.config.as_deref().unwrap_or(Path::new(""));
    let link = choose_link(&site, options.link.as_deref())
        .map_err(|sentence| anyhow!("{}: {sentence}", config.display()))?;
    let (_, ids) = link.discipline::<Frame>();
    let outcome = measure(&Case {
        rules: &link.rules,
        ingress: other_side(&site, link.to).ingress(),
        classifier: link.classifier(&ids, KEY),
        queues: &|| link.discipline().0,
        rate: link.rate,
        overhead: link.overhead,
        longest: link.longest,
        amount: match options.packets {
            Some(packets) => Amount::Packets(packets),
            None => Amount::Seconds(options.seconds),
        },
        cores: machine::two_cores()?,
    })?;
    Ok(Report {
        link: link.name.clone(),
        classes: link.classes.len(),
        levels: levels(link),
        filters: link.rules.len(),
        algorithm: link.algorithm.to_string(),
        outcome,
    })
}

/// Returns a link of 10 Gbit/s with `top` classes, which have `middle` children each, which have `leaves` each, with a
/// filter for each leaf. Queues have no queue management, as those of HTB, with which the figures are compared.
fn tree_of(top: u32, middle: u32, leaves: u32) -> String {
    let mut classes = String::new();
    let mut filters = String::new();
    // A twentieth less is guaranteed than the parent has.
    let within = |kbit: u32, parts: u32| (kbit - kbit / 20) / parts;
    let upper = within(10_000_000, top);
    let inner = within(upper, middle);
    let leaf = within(inner, leaves) / 5;
    let mut add = |name: &str, parent: &str, kbit: u32| {
        _ = writeln!(
            classes,
            "  {{ name = \"{name}\", rate = \"{kbit}kbit\"{parent} }},"
        );
    };
    let mut number = 0_u32;
    for region in 0..top {
        let region = format!("region-{region}");
        add(&region, "", upper);
        for site in 0..middle {
            let site = format!("{region}-{site}");
            add(&site, &format!(", parent = \"{region}\""), inner);
            for _ in 0..leaves {
                // Four rates, on average five times the least.
                let kbit = leaf * [2, 3, 5, 10][number as usize % 4];
                let host = format!("host-{number}");
                add(
                    &host,
                    &format!(", parent = \"{site}\", queue = \"tail-drop\""),
                    kbit,
                );
                let [_, high, middle, low] = number.to_be_bytes();
                _ = writeln!(
                    filters,
                    "  {{ class = \"{host}\", destination = \"10.{high}.{middle}.{low}\" }},"
                );
                number += 1;
            }
        }
    }
    format!(
        "[[link]]\nname = \"made\"\nto = \"inside\"\nrate = \"10gbit\"\nclass = [\n{classes}]\nfilter = [\n{filters}]\n"
    )
}

/// Returns the number of levels of classes.
fn levels(link: &Link) -> usize {
    let mut levels: Vec<usize> = Vec::with_capacity(link.classes.len());
    for class in &link.classes {
        levels.push(1 + class.parent.map_or(0, |parent| levels[parent]));
    }
    levels.into_iter().max().unwrap_or(0)
}

fn stage(stage: Stage) -> &'static str {
    match stage {
        Stage::Rx => "RX",
        Stage::Classify => "parse+classify",
        Stage::Mailbox => "mailbox",
        Stage::Arbiter => "arbiter",
        Stage::ReturnRing => "return ring",
        Stage::Tx => "TX",
    }
}

fn millions(packets_per_sec: f64) -> String {
    format!("{:.2}", packets_per_sec / 1e6)
}

/// Formats a predicted packet rate, with the numbers of workers and the stage that limits it.
fn predicted(one: &Prediction) -> String {
    let rate = millions(one.packets_per_sec);
    let limit = match one.limited_by {
        Limit::OneThread => return rate,
        Limit::RxWorkers => "RX",
        Limit::Arbiter => "arbiter",
        Limit::TxWorkers => "TX",
    };
    format!("{limit}, {}+1+{}: {rate}", one.rx_workers, one.tx_workers)
}

/// A stage's name, and the function that returns its figure.
type Row = (&'static str, fn(&Stages) -> Figure);

/// Number of rows whose stage has its own thread.
const BY_ITSELF: usize = 8;

const ROWS: [Row; 12] = [
    ("RX", |stages| stages.rx),
    ("parse+classify", |stages| stages.classify),
    ("mailbox: push", |stages| stages.mailbox_push),
    ("mailbox: pop", |stages| stages.mailbox_pop),
    ("arbiter", |stages| stages.arbiter),
    ("return ring: push", |stages| stages.return_push),
    ("return ring: pop", |stages| stages.return_pop),
    ("TX", |stages| stages.tx),
    ("one core: RX", |stages| stages.together.rx),
    (".. parse+classify", |stages| stages.together.classify),
    (".. arbiter", |stages| stages.together.arbiter),
    (".. TX", |stages| stages.together.tx),
];

/// Returns a table with a column for each length, and these rows.
fn by_length(
    report: &Report,
    first: &str,
    rows: impl Iterator<Item = (String, Vec<String>)>,
) -> String {
    let lengths = &report.outcome.lengths;
    let header = lengths
        .iter()
        .map(|length| format!("{} bytes", length.bytes));
    let mut table = table::new(std::iter::once(first.to_owned()).chain(header));
    for (name, cells) in rows {
        table.add_row(std::iter::once(name).chain(cells));
    }
    table.to_string()
}

/// Returns the table of instruction counts, or the reason why there is none.
fn instructions(report: &Report) -> String {
    if let Some(why) = &report.outcome.no_instructions {
        return format!("\nInstructions were not counted: {why}.\n");
    }
    let lengths = &report.outcome.lengths;
    let rows = ROWS[..BY_ITSELF].iter().map(|&(name, of)| {
        let cell = |length: &ByLength| match of(&length.stages).instructions {
            Some(instructions) => format!("{instructions:.1}"),
            None => "-".to_owned(),
        };
        (name.to_owned(), lengths.iter().map(cell).collect())
    });
    let table = by_length(report, "stage", rows);
    format!("\nInstructions a packet, the median of the rounds:\n{table}\n")
}

fn text(report: &Report) -> Result<String> {
    let lengths = &report.outcome.lengths;
    let of_each = |cell: &dyn Fn(&ByLength) -> String| lengths.iter().map(cell).collect::<Vec<_>>();
    let mut text = format!(
        "Link {}: {} classes in {} levels, {} filters, {}\n\nNanoseconds a packet, with median, 10th and 90th \
         percentile:\n",
        plain(&report.link),
        report.classes,
        report.levels,
        report.filters,
        report.algorithm
    );
    let figures = ROWS.iter().map(|&(name, of)| {
        let cell = |length: &ByLength| {
            let figure = of(&length.stages);
            format!(
                "{:.1} ({:.1} to {:.1})",
                figure.ns, figure.p10_ns, figure.p90_ns
            )
        };
        (name.to_owned(), of_each(&cell))
    });
    let longest = of_each(&|length| stage(length.bottleneck).to_owned());
    let rows = figures.chain([("bottleneck".to_owned(), longest)]);
    writeln!(text, "{}", by_length(report, "stage", rows))?;
    text += &instructions(report);
    if !report.outcome.two_cores {
        text += "This machine has one core: the ends of mailboxes took turns on it, so fetching a cache line from \
                 another core is not included.\n";
    }

    text += "\nMillions of packets a second as predicted, with the bottleneck, and RX workers + arbiter + TX workers:\n";
    let rows = CORES.iter().enumerate().map(|(at, cores)| {
        let cell = |length: &ByLength| predicted(&length.predictions[at]);
        (cores.to_string(), of_each(&cell))
    });
    writeln!(text, "{}", by_length(report, "cores", rows))?;

    text += "\nMillions of packets a second as measured, and the ratio to the prediction:\n";
    let checks = lengths.first().map_or(0, |length| length.checks.len());
    let rows = (0..checks).map(|at| {
        let cell = |length: &ByLength| {
            let check = length.checks[at];
            let measured = millions(check.measured_packets_per_sec);
            format!("{measured} ({:.2})", check.ratio)
        };
        ((at + 1).to_string(), of_each(&cell))
    });
    write!(text, "{}", by_length(report, "cores", rows))?;
    for length in lengths {
        let bytes = length.bytes;
        let lost = length.lost * 100.0;
        write!(
            text,
            "\n{bytes} bytes: frames for {} classes, {} packets waiting, {lost:.2}% rejected or discarded",
            length.classes_reached, length.waiting
        )?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_have_a_table_where_they_were_counted() {
        let example = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../examples/home-gateway.toml"
        );
        let mut report = report(&Options {
            config: Some(example.into()),
            link: Some("up".to_owned()),
            packets: Some(1),
            seconds: 0.0,
            json: false,
        })
        .unwrap();
        report.outcome.no_instructions = Some("a reason".to_owned());
        let said = text(&report).unwrap();
        assert!(
            said.contains("Instructions were not counted: a reason.\n"),
            "{said}"
        );

        report.outcome.no_instructions = None;
        for length in &mut report.outcome.lengths {
            length.stages.arbiter.instructions = Some(f64::from(length.bytes) + 0.25);
            length.stages.tx.instructions = None;
        }
        let said = text(&report).unwrap();
        let (_, table) = said.split_once("Instructions a packet").unwrap();
        let cells = |name: &str| -> Vec<&str> {
            let row = table.lines().find(|row| row.contains(name)).unwrap();
            row.trim_matches('│').split_whitespace().skip(1).collect()
        };
        assert_eq!(cells("arbiter"), ["64.2", "374.2", "1500.2"], "{table}");
        assert_eq!(cells("TX"), ["-"; 3], "{table}");
    }

    #[test]
    fn the_site_that_is_made_has_three_levels_and_a_filter_for_each_leaf() {
        let site = Site::parse(&tree_of(10, 10, 8), "made").unwrap();
        let [link] = &site.links[..] else {
            panic!("one link: {site:?}");
        };
        // Including the default class.
        assert_eq!(link.classes.len(), 10 + 100 + 800 + 1);
        assert_eq!((levels(link), link.rules.len()), (3, 800));
        // Some 5% at each level is not guaranteed.
        let leaves = link
            .classes
            .iter()
            .filter(|class| class.name.starts_with("host"));
        let guaranteed: u64 = leaves.filter_map(|class| Some(class.rate?.bps())).sum();
        assert!(
            (8_000_000_000..9_500_000_000).contains(&guaranteed),
            "{guaranteed}"
        );
    }
}
