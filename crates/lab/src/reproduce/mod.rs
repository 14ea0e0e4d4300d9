//! `fairlane-lab reproduce`: the papers' experiments, ours beside theirs.
//!
//! An experiment is a folder in `experiments/` (how it is done, what the paper found) and
//! a file here that measures. What it finds becomes a table, a plot and a verdict.

mod allocation;
mod altq;
mod busy;
mod experiment;
mod folder;
mod lab;
mod latency;
mod line;
mod machine;
mod result;
mod section6;
mod spinlock;
mod stalls;
mod throughput;

use std::env;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use anyhow::{Error, Result, bail};
use comfy_table::CellAlignment;
use fairlane_netlab::LabError;
use serde_json::{Value, json};

use experiment::Experiment;
use fairlane_cli::{interrupt, output, table};
use folder::Folder;
use lab::Lab;
use machine::{Machine, Watch};
use result::Outcome;

pub(crate) use lab::Interrupted;

/// What there is, paper by paper.
const EXPERIMENTS: [&dyn Experiment; 10] = [
    &spinlock::Table1,
    &stalls::Table2,
    &throughput::Throughput,
    &allocation::Allocation,
    &latency::Latency,
    &altq::Overhead,
    &altq::Filters,
    &altq::Allocation,
    &altq::Guarantee,
    &altq::Sharing,
];

const HELP: &str = "\
Each experiment leaves four files: result.json (all figures, with machine, seed and
parameters), result.md (table and verdict), plot.svg and plot.png. They are written at
the end, all of them or none.

Examples:
  fairlane-lab reproduce                              the experiments there are
  fairlane-lab reproduce pspat-table1                 one, into its folder
  fairlane-lab reproduce all --seconds 0.02 --out quick";

/// Options of `fairlane-lab reproduce`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Options {
    /// Experiment to do, or all of them; lists them without it
    #[arg(value_name = "NAME|all", value_parser = selection)]
    name: Option<Selection>,
    /// Folder for the results, with a folder for each experiment if it is all [default:
    /// experiments/NAME in a checkout, else fairlane-experiments/NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Time of each measurement, in seconds [default: the experiment's]
    #[arg(long, value_name = "S", value_parser = seconds)]
    seconds: Option<f64>,
    /// Print one JSON object an experiment, and nothing else
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Selection {
    All,
    /// The place in [`EXPERIMENTS`].
    One(usize),
}

fn selection(text: &str) -> Result<Selection, String> {
    if text == "all" {
        return Ok(Selection::All);
    }
    let named = EXPERIMENTS
        .iter()
        .position(|experiment| experiment.files().name == text);
    named.map(Selection::One).ok_or_else(|| {
        // A part of a name, or else a slip of the finger.
        let far = |name: &str| {
            (
                !name.contains(text),
                strsim::damerau_levenshtein(text, name),
            )
        };
        let names = EXPERIMENTS.iter().map(|experiment| experiment.files().name);
        let nearest = names.chain(["all"]).min_by_key(|name| far(name));
        format!(
            "no such experiment; the nearest is '{}', and `fairlane-lab reproduce` lists all",
            nearest.unwrap_or_default()
        )
    })
}

fn seconds(text: &str) -> Result<f64> {
    match text.parse::<f64>() {
        Ok(seconds) if (1e-3..=1e4).contains(&seconds) => Ok(seconds),
        _ => bail!("the time of a measurement is a number of seconds from 0.001 to 10000"),
    }
}

/// Lists the experiments, or does what was asked for.
pub(crate) fn run(options: &Options) -> Result<()> {
    let selected = match options.name {
        None => return list(options),
        Some(Selection::All) => &EXPERIMENTS[..],
        Some(Selection::One(place)) => &EXPERIMENTS[place..=place],
    };
    let stop = interrupt::asked()?;
    let machine = Machine::this()?;
    for experiment in selected {
        let done = reproduce(options, *experiment, &machine, &stop);
        match done {
            // Of all, those that this machine or this user can do.
            Err(error) if selected.len() > 1 && is_not_to_be_had(&error) => {
                fairlane_cli::output::aside(format_args!(
                    "skipped {}: {error:#}",
                    experiment.files().name
                ));
            }
            done => done?,
        }
    }
    Ok(())
}

/// Whether what is wrong is only that there is no network, or no iperf3, to measure with.
fn is_not_to_be_had(error: &Error) -> bool {
    let cause = error.downcast_ref::<LabError>();
    cause.is_some_and(LabError::is_not_to_be_had)
}

fn reproduce(
    options: &Options,
    experiment: &dyn Experiment,
    machine: &Machine,
    stop: &AtomicBool,
) -> Result<()> {
    let name = experiment.files().name;
    let path = match &options.out {
        Some(out) if options.name == Some(Selection::All) => out.join(name),
        Some(out) => out.clone(),
        None => folder::default_for(name, &env::current_dir().unwrap_or_default()),
    };
    let folder = Folder::open(&path)?;
    let scenario = experiment.files().scenario::<Value>()?;
    let seconds = options.seconds.unwrap_or(scenario.seconds);
    let lab = Lab::new(name, seconds, experiment.measurements()?, stop);
    let watch = Watch::start();
    let findings = experiment.measure(&lab)?;
    let others = watch.others();
    lab.check()?;
    drop(lab);

    let outcome = Outcome {
        name,
        scenario: &scenario,
        seconds,
        machine,
        others,
        findings: &findings,
    };
    let json = outcome.json()?;
    let title = format!("{name}: {}", scenario.title);
    let plots = findings.chart.draw(&title, &machine.line())?;
    folder.finish(&[
        ("result.json", format!("{json:#}\n").as_bytes()),
        ("result.md", outcome.page().as_bytes()),
        ("plot.svg", plots.svg.as_bytes()),
        ("plot.png", &plots.png),
    ])?;
    if options.json {
        return output::line(json);
    }
    output::line(format_args!("{title}\n{}", scenario.paper))?;
    let mut table = table::new(&findings.table.header);
    table.add_rows(&findings.table.rows);
    output::line(table)?;
    output::line(outcome.method())?;
    for note in &findings.notes {
        output::line(note)?;
    }
    output::line(outcome.verdict())?;
    output::line(format_args!("Written to {}\n", path.display()))
}

/// What there is, and how long it takes.
fn list(options: &Options) -> Result<()> {
    let mut table = table::new(["name", "the paper's claim", "paper", "takes"]);
    for column in table.column_iter_mut().take(3) {
        column.set_cell_alignment(CellAlignment::Left);
    }
    let mut all = Vec::new();
    for experiment in EXPERIMENTS {
        let scenario = experiment.files().scenario::<Value>()?;
        let measurement = options.seconds.unwrap_or(scenario.seconds);
        let takes = measurement * experiment.measurements()? as f64;
        all.push(json!({
            "name": experiment.files().name,
            "title": scenario.title,
            "paper": scenario.paper,
            "claim": scenario.claim,
            "takes_seconds": takes,
        }));
        table.add_row([
            experiment.files().name,
            &scenario.claim,
            &scenario.paper,
            &format!("{takes:.0} s"),
        ]);
    }
    if options.json {
        return output::line(json!({ "experiments": all }));
    }
    output::line(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_experiment_has_a_name_of_its_own_and_a_scenario_that_reads() {
        let mut names = HashSet::from(["all"]);
        for experiment in EXPERIMENTS {
            assert!(
                names.insert(experiment.files().name),
                "{}",
                experiment.files().name
            );
            let scenario = experiment.files().scenario::<Value>().unwrap();
            assert!(scenario.seconds > 0.0 && scenario.rounds > 0);
            assert!(experiment.measurements().unwrap() > 0);
        }
    }

    #[test]
    fn a_name_that_is_not_known_gets_the_nearest_that_is() {
        assert_eq!(selection("all"), Ok(Selection::All));
        assert_eq!(selection("pspat-table2"), Ok(Selection::One(1)));
        for (text, nearest) in [
            ("pspat-tabel1", "'pspat-table1'"),
            ("table2", "'pspat-table2'"),
            ("al", "'all'"),
            ("", ""),
        ] {
            let sentence = selection(text).unwrap_err();
            assert!(sentence.contains(nearest), "{text}: {sentence}");
        }
    }
}
