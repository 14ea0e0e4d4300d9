//! `altq-guarantee`: classes that get what they were promised, whoever comes and goes.

use std::fmt::Write;
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::experiment::{Experiment, Files, Findings, Rows, Verdict, digits, files, median};
use super::super::lab::Lab;
use super::bed::{self, Bed, Middle, Plan, Way, packets, whole_seconds};
use super::trace::{Trace, furthest, mean};
use crate::plot::{Axis, Chart};

/// Fig. 11.
pub(crate) struct Guarantee;

/// The furthest that a class's mean may be from its rate, relative to it.
const MEAN: f64 = 0.02;

/// The furthest for a single step of the trace.
const STEP: f64 = 0.1;

/// The least part of the link that is to be used while all are there.
const FULL: f64 = 0.97;

/// What a flow needs to fill its class: steps of the trace that do not count at its start. The
/// last one does not either.
const BEGIN_STEPS: f64 = 3.0;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    link_mbit: f64,
    /// What the classes have; one more, for all else, has the rest.
    classes_mbit: Vec<f64>,
    /// The number of the sender, 0 or 1, for each class.
    senders: Vec<usize>,
    background_sender: usize,
    ways: Vec<Way>,
    algorithm: String,
    /// Parts of the whole time: how long each class's flow sends, and when the next starts.
    flow_part: f64,
    apart_part: f64,
    /// Length of a step of the trace in seconds.
    step: f64,
    queue_ms: u64,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Paper {
    machine: String,
    classes_mbit: Vec<f64>,
    /// What the text says of the figure.
    found: String,
}

/// What one round found.
#[derive(Clone, Debug, Serialize)]
struct Measured {
    way: Way,
    /// The classes, then the background.
    trace: Trace,
    /// When each flow sends, in seconds.
    times: Vec<[f64; 2]>,
    /// Mean of each class while its flow sends.
    mean_mbit: Vec<f64>,
    /// The step that is furthest from the class's rate, as a part of it.
    furthest_step: Vec<f64>,
    /// Part of the link that is used while all flows send.
    full: f64,
}

impl Experiment for Guarantee {
    fn files(&self) -> Files {
        files!("altq-guarantee")
    }

    fn measurements(&self) -> Result<usize> {
        let scenario = self.files().scenario::<Parameters>()?;
        Ok(scenario.parameters.ways.len() * scenario.rounds)
    }

    fn measure(&self, lab: &Lab) -> Result<Findings> {
        bed::check_tcp()?;
        let scenario = self.files().scenario::<Parameters>()?;
        let parameters = &scenario.parameters;
        let paper: Paper = self.files().paper()?;
        let ways = &parameters.ways;
        let runs = lab.rounds(ways, scenario.rounds, scenario.seed, |&way| {
            let plans = plans(parameters, lab.measurement);
            let links = links(parameters);
            let links = &links;
            let mut bed = Bed::new(lab, 2, &Middle::Daemon { way, links })?;
            let run = bed.tcp(&plans)?;
            bed.finish()?;
            let classes: Vec<usize> = (0..plans.len()).collect();
            let step = Duration::from_secs_f64(parameters.step);
            let last = plans.iter().map(end).max().unwrap_or_default();
            let steps = (last.as_secs_f64() / parameters.step) as u32;
            let trace = Trace::of(&run, &classes, step, steps);
            Ok(measured(parameters, way, &plans, trace))
        })?;
        Ok(findings(parameters, &paper, &runs.concat()))
    }
}

/// The receiver's port of a class.
fn port(class: usize) -> u16 {
    5_200 + class as u16
}

/// A flow for each class, one after the other, then that of the background, all the time.
fn plans(parameters: &Parameters, time: Duration) -> Vec<Plan> {
    let flow = whole_seconds(time.mul_f64(parameters.flow_part));
    let apart = time.mul_f64(parameters.apart_part);
    let count = parameters.classes_mbit.len();
    let start = |class: usize| apart * class as u32;
    let mut plans: Vec<Plan> = (0..count)
        .map(|class| Plan {
            sender: parameters.senders[class],
            port: port(class),
            start: start(class),
            seconds: flow,
        })
        .collect();
    let all = start(count - 1) + Duration::from_secs(flow.into());
    plans.push(Plan {
        sender: parameters.background_sender,
        port: port(count),
        start: Duration::ZERO,
        seconds: whole_seconds(all),
    });
    plans
}

fn end(plan: &Plan) -> Duration {
    plan.start + Duration::from_secs(plan.seconds.into())
}

fn links(parameters: &Parameters) -> String {
    let bits = |mbit: f64| (mbit * 1e6) as u64;
    let queue = |mbit| packets(mbit, Duration::from_millis(parameters.queue_ms));
    let mut text = String::new();
    let _ = write!(
        text,
        "[[link]]\nname = \"up\"\nto = \"outside\"\nrate = \"{}bit\"\noverhead = \"ethernet\"\n\
         algorithm = \"{}\"\n",
        bits(parameters.link_mbit),
        parameters.algorithm
    );
    for (class, &mbit) in parameters.classes_mbit.iter().enumerate() {
        let _ = write!(
            text,
            "\n[[link.class]]\nname = \"class-{class}\"\nrate = \"{rate}bit\"\nceil = \"{rate}bit\"\n\
             limit = {{ packets = {} }}\n\n\
             [[link.filter]]\nclass = \"class-{class}\"\nprotocol = \"tcp\"\n\
             destination-port = {}\n",
            queue(mbit),
            port(class),
            rate = bits(mbit),
        );
    }
    let _ = write!(
        text,
        "\n[[link.class]]\nname = \"background\"\ndefault = true\nlimit = {{ packets = {} }}\n",
        queue(parameters.link_mbit)
    );
    text
}

fn measured(parameters: &Parameters, way: Way, plans: &[Plan], trace: Trace) -> Measured {
    let times = plans
        .iter()
        .map(|plan| [plan.start.as_secs_f64(), end(plan).as_secs_f64()]);
    let times: Vec<[f64; 2]> = times.collect();
    let (begin, step) = (BEGIN_STEPS * trace.step, trace.step);
    let steady = |class: usize| {
        let [from, to] = times[class];
        trace.sums(&[class], from + begin, to - step)
    };
    let count = parameters.classes_mbit.len();
    let furthest_step = parameters.classes_mbit.iter().enumerate();
    let furthest_step = furthest_step.map(|(class, &rate)| furthest(&steady(class), rate));
    // From when the last has come to when the first leaves.
    let all: Vec<usize> = (0..plans.len()).collect();
    let together = trace.sums(&all, times[count - 1][0] + begin, times[0][1] - step);
    Measured {
        way,
        mean_mbit: (0..=count).map(|class| mean(&steady(class))).collect(),
        furthest_step: furthest_step.collect(),
        full: mean(&together) / parameters.link_mbit,
        times,
        trace,
    }
}

fn findings(parameters: &Parameters, paper: &Paper, measured: &[Measured]) -> Findings {
    let classes = &parameters.classes_mbit;
    let names = |class: usize| match classes.get(class) {
        Some(rate) => format!("class-{class} ({rate} Mbit/s)"),
        None => "background".to_owned(),
    };
    let ways: Vec<(Way, Vec<&Measured>)> = (parameters.ways.iter())
        .map(|&way| (way, measured.iter().filter(|run| run.way == way).collect()))
        .collect();
    let row = |class: usize| {
        let mut row = vec![names(class)];
        for (_, runs) in &ways {
            row.push(digits(median(runs.iter().map(|run| run.mean_mbit[class]))));
            row.push(match class < classes.len() {
                true => {
                    let far = median(runs.iter().map(|run| run.furthest_step[class]));
                    format!("{:.1}%", far * 100.0)
                }
                false => "-".to_owned(),
            });
        }
        row
    };
    let mut rows: Vec<Vec<String>> = (0..=classes.len()).map(row).collect();
    let mut full = vec!["all, of the link".to_owned()];
    for (_, runs) in &ways {
        full.push(format!(
            "{:.1}%",
            median(runs.iter().map(|run| run.full)) * 100.0
        ));
        full.push("-".to_owned());
    }
    rows.push(full);
    let mut header = vec!["Mbit/s of the link".to_owned()];
    for (way, _) in &ways {
        header.extend([format!("{way}, mean"), format!("{way}, furthest step")]);
    }
    // The first run stands for all: a mean of several traces would show none.
    let shown = measured.first().map(|run| {
        let mut curves: Vec<_> = (0..=classes.len())
            .map(|class| run.trace.curve(class, &names(class), &[class]))
            .collect();
        let all: Vec<usize> = (0..=classes.len()).collect();
        curves.push(run.trace.curve(classes.len() + 1, "all", &all));
        curves
    });
    Findings {
        ours: json!(measured),
        papers: json!(paper),
        table: Rows { header, rows },
        chart: Chart {
            x: Axis::linear("seconds"),
            y: Axis::linear("Mbit/s of the link"),
            curves: shown.unwrap_or_default(),
        },
        verdict: judge(parameters, measured),
        notes: vec![
            "The plot is the first run's. Classes have a cap (ceil) at their rate, as the paper's, \
             which do not borrow. Where a flow starts or ends, its first three steps and its last \
             do not count."
                .into(),
            "The paper has its figure as a picture: what its text says of it is in paper.toml."
                .into(),
        ],
    }
}

fn judge(parameters: &Parameters, measured: &[Measured]) -> Verdict {
    let classes = &parameters.classes_mbit;
    let means = measured.iter().map(|run| {
        let pairs = run.mean_mbit.iter().zip(classes);
        pairs
            .map(|(mean, rate)| (mean / rate - 1.0).abs())
            .fold(0.0, f64::max)
    });
    let means = means.fold(0.0, f64::max);
    let steps = measured
        .iter()
        .flat_map(|run| run.furthest_step.iter().copied());
    let steps = steps.fold(0.0, f64::max);
    let full = measured.iter().map(|run| run.full);
    let full = full.fold(f64::INFINITY, f64::min);
    // A mean of no steps is no number, and must not pass for a good one.
    let told = |run: &Measured| run.full.is_finite() && run.mean_mbit.iter().all(|x| x.is_finite());
    let told = !measured.is_empty() && measured.iter().all(told);
    let found = match told {
        true => format!(
            "means are at most {:.2}% off, steps {:.1}%, and at least {:.1}% of the link are used",
            means * 100.0,
            steps * 100.0,
            full * 100.0
        ),
        false => "the measurement was too short to tell".to_owned(),
    };
    let holds = told && means <= MEAN && steps <= STEP && full >= FULL;
    Verdict {
        holds,
        criterion: format!(
            "in every run each class's mean within {}% of its rate and each step within {}%, and \
             at least {}% of the link used",
            MEAN * 100.0,
            STEP * 100.0,
            FULL * 100.0
        ),
        found,
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::experiment::Scenario;
    use super::super::bed::Run;
    use super::super::trace::tests::flow;
    use super::*;
    use std::time::Instant;

    fn scenario() -> Scenario<Parameters> {
        Guarantee.files().scenario().unwrap()
    }

    /// What is measured if classes have exactly this on the link.
    fn run(parameters: &Parameters, mbit: &[f64]) -> Measured {
        let plans = plans(parameters, Duration::from_secs(35));
        let began = Instant::now();
        let flows = plans.iter().zip(mbit).map(|(plan, mbit)| {
            let (from, to) = (plan.start.as_secs_f64(), end(plan).as_secs_f64());
            flow(began, from, to, mbit * 1448.0 / 1538.0)
        });
        let run = Run {
            began,
            transfers: flows.collect(),
        };
        let trace = Trace::of(&run, &[0, 1, 2, 3, 4], Duration::from_millis(400), 87);
        measured(parameters, Way::Packet, &plans, trace)
    }

    #[test]
    fn flows_start_one_after_the_other_and_the_background_is_always_there() {
        let plans = plans(&scenario().parameters, Duration::from_secs(35));
        let starts = plans.iter().map(|plan| plan.start.as_secs());
        assert_eq!(starts.collect::<Vec<_>>(), [0, 5, 10, 15, 0]);
        let lengths = plans.iter().map(|plan| plan.seconds);
        assert_eq!(lengths.collect::<Vec<_>>(), [20, 20, 20, 20, 35]);
    }

    #[test]
    fn the_claim_needs_every_class_at_its_rate_and_a_full_link() {
        let parameters = &scenario().parameters;
        let holds = |mbit: &[f64]| judge(parameters, &[run(parameters, mbit)]).holds;
        let rest = parameters.link_mbit - 100.0;
        assert!(holds(&[10.0, 20.0, 30.0, 40.0, rest]));
        assert!(!holds(&[10.0, 19.0, 30.0, 40.0, rest + 1.0]), "too little");
        assert!(!holds(&[10.0, 20.0, 31.0, 40.0, rest - 1.0]), "too much");
        assert!(!holds(&[10.0, 20.0, 30.0, 40.0, rest * 0.9]), "not full");
        assert!(!judge(parameters, &[]).holds);
    }

    #[test]
    fn the_table_has_all_classes_and_reads_beside_the_paper() {
        let paper: Paper = Guarantee.files().paper().unwrap();
        let parameters = &scenario().parameters;
        assert_eq!(paper.classes_mbit, parameters.classes_mbit);
        let runs = [run(parameters, &[10.0, 20.0, 30.0, 40.0, 55.0])];
        let findings = findings(parameters, &paper, &runs);
        let width = findings.table.header.len();
        assert!(findings.table.rows.iter().all(|row| row.len() == width));
        assert_eq!(findings.table.rows[3][1], "40.0");
        assert_eq!(findings.table.rows.len(), 6);
    }
}
