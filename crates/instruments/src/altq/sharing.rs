//! `altq-sharing`: two agencies share a link, and each one's classes what the other leaves.

use std::fmt::{self, Write};
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::experiment::{Experiment, Files, Findings, Rows, Verdict, digits, files, median};
use super::super::lab::Lab;
use super::bed::{self, Bed, Middle, Plan, Way, packets, whole_seconds};
use super::trace::{Trace, furthest, mean};
use crate::plot::{Axis, Chart};

/// Figs. 12 to 15.
pub(crate) struct Sharing;

/// The furthest that an agency's mean may be from its part of the link while nobody comes or
/// goes, relative to it.
const MEAN: f64 = 0.02;

/// The furthest for a single step of the trace.
const STEP: f64 = 0.1;

/// Steps of the trace that do not count after somebody came or went: TCP finds its rate anew. The
/// last one before does not either.
const BEGIN_STEPS: f64 = 3.0;

/// Ports of a class: one for each time that it sends.
const PORTS: u16 = 10;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    link_mbit: f64,
    cases: Vec<Case>,
    /// Of the class tree's root and agencies.
    algorithm: String,
    /// Length of a step of the trace in seconds.
    step: f64,
    queue_ms: u64,
    agencies: Vec<Agency>,
    classes: Vec<Class>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Agency {
    name: String,
    percent: f64,
    /// The number of the host that its flows come from.
    sender: usize,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Class {
    name: String,
    agency: usize,
    percent: f64,
    priority: u32,
    /// From when to when it sends, in seconds of the scenario's time.
    sends: Vec<[f64; 2]>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Paper {
    machine: String,
    /// What the text says of the figures.
    figure_14: String,
    figure_15: String,
}

/// Who shares the link out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Discipline {
    /// The class tree.
    Tree,
    /// CBQ with interactive classes before bulk, as in Fig. 14.
    Cbq,
    /// CBQ with all classes alike, as in Fig. 15.
    CbqSamePriority,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Case {
    discipline: Discipline,
    way: Way,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.discipline {
            Discipline::Tree => "class tree",
            Discipline::Cbq => "CBQ with priorities",
            Discipline::CbqSamePriority => "CBQ, same priority",
        })?;
        write!(f, ", {}", self.way)
    }
}

/// What one round found.
#[derive(Clone, Debug, Serialize)]
struct Measured {
    case: Case,
    trace: Trace,
    phases: Vec<Phase>,
}

/// A time in which nobody comes or goes.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Phase {
    from: f64,
    to: f64,
    /// Mean of each class in Mbit/s of the link.
    classes: Vec<f64>,
    /// Mean of each agency.
    agencies: Vec<f64>,
    /// The step that is furthest from the agency's part, relative to it.
    furthest_step: Vec<f64>,
}

impl Experiment for Sharing {
    fn files(&self) -> Files {
        files!("altq-sharing")
    }

    fn measurements(&self) -> Result<usize> {
        let scenario = self.files().scenario::<Parameters>()?;
        Ok(scenario.parameters.cases.len() * scenario.rounds)
    }

    fn measure(&self, lab: &Lab) -> Result<Findings> {
        bed::check_tcp()?;
        let scenario = self.files().scenario::<Parameters>()?;
        let parameters = &scenario.parameters;
        let paper: Paper = self.files().paper()?;
        let scale = lab.measurement.as_secs_f64() / scenario.seconds;
        let cases = &parameters.cases;
        let runs = lab.rounds(cases, scenario.rounds, scenario.seed, |&case| {
            let (plans, classes) = plans(parameters, scale);
            let links = links(parameters, case.discipline);
            let (way, links) = (case.way, &*links);
            let mut bed = Bed::new(lab, 2, &Middle::Daemon { way, links })?;
            let run = bed.tcp(&plans)?;
            bed.finish()?;
            let steps = (lab.measurement.as_secs_f64() / parameters.step) as u32;
            let step = Duration::from_secs_f64(parameters.step);
            let trace = Trace::of(&run, &classes, step, steps);
            Ok(measured(parameters, case, scale, trace))
        })?;
        Ok(findings(parameters, &paper, &runs.concat()))
    }
}

/// Every time that a class sends is a flow; and the class of each flow.
fn plans(parameters: &Parameters, scale: f64) -> (Vec<Plan>, Vec<usize>) {
    let mut plans = Vec::new();
    let mut classes = Vec::new();
    for (number, class) in parameters.classes.iter().enumerate() {
        for (port, [from, to]) in (first_port(number)..).zip(&class.sends) {
            plans.push(Plan {
                sender: parameters.agencies[class.agency].sender,
                port,
                start: Duration::from_secs_f64(from * scale),
                seconds: whole_seconds(Duration::from_secs_f64((to - from) * scale)),
            });
            classes.push(number);
        }
    }
    (plans, classes)
}

fn first_port(class: usize) -> u16 {
    5_200 + class as u16 * PORTS
}

fn links(parameters: &Parameters, discipline: Discipline) -> String {
    let bits = |percent: f64| (parameters.link_mbit * 1e4 * percent) as u64;
    let cbq = discipline != Discipline::Tree;
    let algorithm = if cbq { "cbq" } else { &parameters.algorithm };
    let mut text = String::new();
    let _ = write!(
        text,
        "[[link]]\nname = \"up\"\nto = \"outside\"\nrate = \"{}bit\"\noverhead = \"ethernet\"\n\
         algorithm = \"{algorithm}\"\n",
        bits(100.0)
    );
    for agency in &parameters.agencies {
        let _ = write!(
            text,
            "\n[[link.class]]\nname = \"{}\"\nrate = \"{}bit\"\n",
            agency.name,
            bits(agency.percent)
        );
        text += &match cbq {
            true => "borrow = true\n".to_owned(),
            false => format!("algorithm = \"{algorithm}\"\n"),
        };
    }
    for (number, class) in parameters.classes.iter().enumerate() {
        let queue = Duration::from_millis(parameters.queue_ms);
        let (name, first) = (&class.name, first_port(number));
        let _ = write!(
            text,
            "\n[[link.class]]\nname = \"{name}\"\nparent = \"{}\"\nrate = \"{}bit\"\n\
             limit = {{ packets = {} }}\n",
            parameters.agencies[class.agency].name,
            bits(class.percent),
            packets(parameters.link_mbit * class.percent / 100.0, queue),
        );
        // What is not TCP, such as ARP, is little and has to be somewhere.
        if number == 0 {
            text += "default = true\n";
        }
        let priority = match discipline {
            Discipline::Tree => None,
            Discipline::Cbq => Some(class.priority),
            Discipline::CbqSamePriority => Some(0),
        };
        if let Some(priority) = priority {
            let _ = writeln!(text, "borrow = true\npriority = {priority}");
        }
        let _ = write!(
            text,
            "\n[[link.filter]]\nclass = \"{name}\"\nprotocol = \"tcp\"\n\
             destination-port = \"{first}-{}\"\n",
            first + PORTS - 1,
        );
    }
    text
}

fn measured(parameters: &Parameters, case: Case, scale: f64, trace: Trace) -> Measured {
    let sends = parameters.classes.iter().flat_map(|class| &class.sends);
    let mut changes: Vec<f64> = sends.flatten().map(|time| time * scale).collect();
    changes.sort_by(f64::total_cmp);
    changes.dedup();
    let link = parameters.link_mbit;
    let phase = |times: &[f64]| {
        let (from, to) = (times[0], times[1]);
        let steady = |classes: &[usize]| {
            trace.sums(classes, from + BEGIN_STEPS * trace.step, to - trace.step)
        };
        let agency = |number: usize| {
            let own = |&class: &usize| parameters.classes[class].agency == number;
            steady(
                &(0..parameters.classes.len())
                    .filter(own)
                    .collect::<Vec<_>>(),
            )
        };
        let agencies: Vec<Vec<f64>> = (0..parameters.agencies.len()).map(agency).collect();
        let parts = parameters
            .agencies
            .iter()
            .map(|agency| agency.percent / 100.0 * link);
        let far = agencies
            .iter()
            .zip(parts)
            .map(|(sums, part)| furthest(sums, part));
        let classes = (0..parameters.classes.len()).map(|class| mean(&steady(&[class])));
        Phase {
            from,
            to,
            classes: classes.collect(),
            furthest_step: far.collect(),
            agencies: agencies.iter().map(|sums| mean(sums)).collect(),
        }
    };
    Measured {
        case,
        phases: changes.windows(2).map(phase).collect(),
        trace,
    }
}

/// The furthest that an agency's mean was from its part, relative to it, and the furthest step.
fn furthest_of(parameters: &Parameters, runs: &[&Measured]) -> (f64, f64) {
    let (mut means, mut steps) = (0.0f64, 0.0f64);
    for phase in runs.iter().flat_map(|run| &run.phases) {
        for (agency, mean) in parameters.agencies.iter().zip(&phase.agencies) {
            let part = agency.percent / 100.0 * parameters.link_mbit;
            let far = (mean / part - 1.0).abs();
            // A mean of no steps is no number, and must not pass for a small one.
            means = if far.is_nan() {
                f64::INFINITY
            } else {
                means.max(far)
            };
        }
        steps = phase.furthest_step.iter().copied().fold(steps, f64::max);
    }
    (means, steps)
}

fn findings(parameters: &Parameters, paper: &Paper, measured: &[Measured]) -> Findings {
    let mut rows = Vec::new();
    let mut header = vec!["Mbit/s of the link, in seconds:".to_owned()];
    for phase in measured.first().map_or(&[][..], |run| &run.phases) {
        header.push(format!("{:.0}-{:.0}", phase.from, phase.to));
    }
    for &case in &parameters.cases {
        let runs: Vec<_> = measured.iter().filter(|run| run.case == case).collect();
        let Some(first) = runs.first() else { continue };
        let mut row = |name: &str, figure: &dyn Fn(&Phase) -> f64| {
            let cell =
                |place: usize| digits(median(runs.iter().map(|run| figure(&run.phases[place]))));
            let cells = (0..first.phases.len()).map(cell);
            rows.push(
                std::iter::once(format!("{case}: {name}"))
                    .chain(cells)
                    .collect(),
            );
        };
        for (number, agency) in parameters.agencies.iter().enumerate() {
            let name = format!("agency {} ({}%)", agency.name, agency.percent);
            row(&name, &|phase| phase.agencies[number]);
        }
        for (number, class) in parameters.classes.iter().enumerate() {
            let name = format!("{} ({}%)", class.name, class.percent);
            row(&name, &|phase| phase.classes[number]);
        }
    }
    // One run of the class tree and one of CBQ beside it, as the paper's two figures.
    let mut curves = Vec::new();
    let shown = |discipline| {
        measured
            .iter()
            .find(move |run| run.case.discipline == discipline)
    };
    for (subject, agency) in parameters.agencies.iter().enumerate() {
        let own = |class: &usize| parameters.classes[*class].agency == subject;
        let classes: Vec<usize> = (0..parameters.classes.len()).filter(own).collect();
        for (place, discipline) in [Discipline::Tree, Discipline::Cbq].into_iter().enumerate() {
            if let Some(run) = shown(discipline) {
                let called = ["class tree", "CBQ with priorities"][place];
                let name = format!("agency {}, {called}", agency.name);
                curves.push(run.trace.curve(subject + 2 * place, &name, &classes));
            }
        }
    }
    if let Some(last) = parameters.classes.len().checked_sub(1) {
        for (subject, discipline, called) in [
            (4, Discipline::Tree, "class tree"),
            (5, Discipline::Cbq, "CBQ with priorities"),
        ] {
            if let Some(run) = shown(discipline) {
                let name = format!("{}, {called}", parameters.classes[last].name);
                curves.push(run.trace.curve(subject, &name, &[last]));
            }
        }
    }
    Findings {
        ours: json!(measured),
        papers: json!(paper),
        table: Rows { header, rows },
        chart: Chart {
            x: Axis::linear("seconds"),
            y: Axis::linear("Mbit/s of the link"),
            curves,
        },
        verdict: judge(parameters, measured),
        notes: vec![
            "The plot is one run of the class tree and one of CBQ; result.json has all. After \
             somebody came or went, three steps of the trace do not count, and the last one \
             before does not either."
                .into(),
            "The parts of Fig. 12 and the times of Fig. 13 are not in the paper's text: the parts \
             are those of Floyd and Jacobson's two agencies, the times ours, in which every class \
             is idle once."
                .into(),
        ],
    }
}

fn judge(parameters: &Parameters, measured: &[Measured]) -> Verdict {
    let mut holds = false;
    let mut found = Vec::new();
    for &case in &parameters.cases {
        let runs: Vec<_> = measured.iter().filter(|run| run.case == case).collect();
        let (means, steps) = furthest_of(parameters, &runs);
        if case.discipline == Discipline::Tree {
            let good = !runs.is_empty() && means <= MEAN && steps <= STEP;
            holds = good && (holds || found.is_empty());
        }
        found.push(format!(
            "{case}: means at most {:.2}% off, steps {:.1}%",
            means * 100.0,
            steps * 100.0
        ));
    }
    Verdict {
        holds,
        criterion: format!(
            "with the class tree each agency's mean within {}% of its part of the link, whoever is \
             idle, and each step within {}%",
            MEAN * 100.0,
            STEP * 100.0
        ),
        found: found.join("; "),
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
        Sharing.files().scenario().unwrap()
    }

    /// What is measured where agencies always have these parts of the link in percent, each
    /// divided among those of its classes that send.
    fn run(parameters: &Parameters, case: Case, parts: &[f64]) -> Measured {
        let (plans, classes) = plans(parameters, 1.0);
        let began = Instant::now();
        let mut run = Run {
            began,
            transfers: Vec::new(),
        };
        for (plan, &class) in plans.iter().zip(&classes) {
            let start = plan.start.as_secs_f64();
            let mut all = flow(began, start, start + f64::from(plan.seconds), 1.0);
            for window in &mut all.windows {
                let now = (window.start - began).as_secs_f64() + 0.05;
                let agency = parameters.classes[class].agency;
                let sending = (parameters.classes.iter()).filter(|class| {
                    class.agency == agency
                        && class
                            .sends
                            .iter()
                            .any(|[from, to]| *from <= now && now < *to)
                });
                let part = parts[agency] / 100.0 * parameters.link_mbit / sending.count() as f64;
                window.bytes = (part * 1448.0 / 1538.0 * 1e5 / 8.0) as u64;
            }
            run.transfers.push(all);
        }
        let trace = Trace::of(&run, &classes, Duration::from_millis(400), 62);
        measured(parameters, case, 1.0, trace)
    }

    #[test]
    fn every_class_is_idle_once_and_every_agency_always_sends() {
        let Scenario {
            parameters,
            seconds,
            ..
        } = scenario();
        let (plans, classes) = plans(&parameters, 1.0);
        assert_eq!(plans.len(), classes.len());
        for (number, class) in parameters.classes.iter().enumerate() {
            let sent: f64 = class.sends.iter().map(|[from, to]| to - from).sum();
            assert!(sent < seconds, "{} is never idle", class.name);
            assert!(class.sends.len() <= usize::from(PORTS));
            assert_eq!(
                classes.iter().filter(|&&of| of == number).count(),
                class.sends.len()
            );
        }
        for agency in 0..parameters.agencies.len() {
            for second in 0..seconds as u32 {
                let now = f64::from(second) + 0.5;
                let sends = (parameters.classes.iter())
                    .filter(|class| class.agency == agency)
                    .flat_map(|class| &class.sends)
                    .any(|[from, to]| *from <= now && now < *to);
                assert!(sends, "agency {agency} at {now}");
            }
        }
    }

    #[test]
    fn priorities_and_borrowing_are_for_cbq() {
        let parameters = &scenario().parameters;
        for discipline in [
            Discipline::Tree,
            Discipline::Cbq,
            Discipline::CbqSamePriority,
        ] {
            let text = bed::site(Way::Packet, &links(parameters, discipline));
            let site: toml::Table = text.parse().unwrap();
            let link = &site["link"].as_array().unwrap()[0];
            let classes = link["class"].as_array().unwrap();
            assert_eq!(classes.len(), 6);
            for class in classes {
                assert_eq!(
                    class.get("borrow").is_some(),
                    discipline != Discipline::Tree
                );
            }
            let first = classes[5].get("priority").and_then(toml::Value::as_integer);
            let expected = match discipline {
                Discipline::Tree => None,
                Discipline::Cbq => Some(1),
                Discipline::CbqSamePriority => Some(0),
            };
            assert_eq!(first, expected);
        }
    }

    #[test]
    fn the_claim_is_the_class_trees_and_needs_constant_sums() {
        let parameters = &scenario().parameters;
        let cases = &parameters.cases;
        let judged = |parts: &dyn Fn(Case) -> [f64; 2]| {
            let runs = cases
                .iter()
                .map(|&case| run(parameters, case, &parts(case)));
            judge(parameters, &runs.collect::<Vec<_>>()).holds
        };
        assert!(judged(&|_| [70.0, 30.0]));
        // CBQ with its flaw does not decide.
        assert!(judged(&|case| match case.discipline {
            Discipline::Tree => [70.0, 30.0],
            _ => [55.0, 45.0],
        }));
        for way in [Way::Packet, Way::Xdp] {
            let bad = |case: Case| match case {
                Case {
                    discipline: Discipline::Tree,
                    way: of,
                } if of == way => [66.0, 34.0],
                _ => [70.0, 30.0],
            };
            assert!(!judged(&bad), "{way}");
        }
        assert!(!judge(parameters, &[]).holds);
    }

    #[test]
    fn the_table_has_a_row_for_each_agency_and_class_in_every_case() {
        let paper: Paper = Sharing.files().paper().unwrap();
        let parameters = &scenario().parameters;
        let runs: Vec<_> = (parameters.cases.iter())
            .map(|&case| run(parameters, case, &[70.0, 30.0]))
            .collect();
        let Rows { header, rows } = findings(parameters, &paper, &runs).table;
        assert_eq!(rows.len(), 6 * parameters.cases.len());
        assert!(rows.iter().all(|row| row.len() == header.len()));
        assert!(
            rows[0][1..].iter().all(|cell| cell == "70.0"),
            "{:?}",
            rows[0]
        );
    }
}
