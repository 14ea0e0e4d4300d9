//! `altq-overhead`: what scheduling costs in throughput and in latency.

use std::fmt;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::experiment::{Experiment, Files, Findings, Rows, Verdict, digits, files, median};
use super::super::lab::Lab;
use super::bed::{self, Bed, Middle, Way};
use crate::plot::{Axis, Chart, Curve};

/// Tables 1 to 3.
pub(crate) struct Overhead;

/// The least part of FIFO's throughput that a discipline may have where the link is the
/// bottleneck.
const KEPT: f64 = 0.98;

/// How often each size's round trips are measured within a measurement.
const PASSES: u32 = 5;

/// A link that is never the bottleneck.
const UNLIMITED_MBIT: f64 = 100_000.0;

/// The way back, the same for all: a site shapes one direction at least.
const BACK: &str = "[[link]]\nname = \"down\"\nto = \"inside\"\nrate = \"100gbit\"\n\n";

/// The receiver's port of TCP flows.
const PORT: u16 = 5_201;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    /// Links for Table 1; one without limit is added, where the processor is the bottleneck.
    links_mbit: Vec<f64>,
    /// Bytes of request and reply for Table 2; the last is Table 3's.
    round_trips: Vec<[usize; 2]>,
    ways: Vec<Way>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Paper {
    machine: String,
    throughput: Vec<PaperThroughput>,
    latency: Vec<PaperLatency>,
    /// Table 3: what each discipline adds to a round trip.
    added_us: PaperAdded,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct PaperThroughput {
    link: String,
    fifo_mbit: f64,
    cbq_mbit: f64,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct PaperLatency {
    link: String,
    request: usize,
    reply: usize,
    fifo_us: f64,
    cbq_us: f64,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct PaperAdded {
    fifo: f64,
    red: f64,
    fair_queueing: f64,
    cbq: f64,
    cbq_red: f64,
}

/// What is between the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Subject {
    /// The kernel's bridge.
    Kernel,
    /// The daemon, which forwards without a scheduler.
    Unshaped,
    Fifo,
    Red,
    FairQueueing,
    Cbq,
    CbqRed,
}

/// Those that schedule, FIFO first.
const DISCIPLINES: [Subject; 5] = [
    Subject::Fifo,
    Subject::Red,
    Subject::FairQueueing,
    Subject::Cbq,
    Subject::CbqRed,
];

/// Those with the daemon.
const DAEMONS: [Subject; 6] = [
    Subject::Unshaped,
    Subject::Fifo,
    Subject::Red,
    Subject::FairQueueing,
    Subject::Cbq,
    Subject::CbqRed,
];

impl Subject {
    fn name(self) -> &'static str {
        match self {
            Subject::Kernel => "kernel's bridge",
            Subject::Unshaped => "no scheduler",
            Subject::Fifo => "FIFO",
            Subject::Red => "RED",
            Subject::FairQueueing => "fair queueing (QFQ+)",
            Subject::Cbq => "CBQ",
            Subject::CbqRed => "CBQ+RED",
        }
    }

    /// The daemon's links: the way back, and one that shapes what goes to the receiver, or none.
    fn links(self, mbit: f64) -> String {
        let algorithm = match self {
            Subject::Kernel | Subject::Unshaped => return BACK.to_owned(),
            Subject::Fifo | Subject::Red => "fifo",
            Subject::FairQueueing => "qfq+",
            Subject::Cbq | Subject::CbqRed => "cbq",
        };
        let link = format!(
            "{BACK}[[link]]\nname = \"up\"\nto = \"outside\"\nrate = \"{}bit\"\n\
             overhead = \"ethernet\"\nalgorithm = \"{algorithm}\"\n",
            (mbit * 1e6) as u64
        );
        // RED's thresholds are 5 and 15 ms of the link, within reason, and at least its usual ones.
        let least = (mbit * 1e6 * 0.005 / 8.0 / bed::FRAME).clamp(5.0, 1000.0) as u32;
        let queue = match self {
            Subject::Red | Subject::CbqRed => &*format!(
                "queue = {{ kind = \"red\", min = {least}, max = {} }}\n\
                 limit = {{ packets = {} }}\n",
                3 * least,
                9 * least
            ),
            _ => "",
        };
        let class =
            |name: &str, keys: &str| format!("\n[[link.class]]\nname = \"{name}\"\n{queue}{keys}");
        match self {
            Subject::Kernel | Subject::Unshaped => link,
            Subject::Fifo | Subject::Red => link + &class("all", "default = true\n"),
            // As the paper's: a queue for each flow.
            Subject::FairQueueing => {
                let keys = "default = true\nper = \"5-tuple\"\nalgorithm = \"qfq+\"\n";
                link + &class("all", keys)
            }
            // Three classes, as the paper's; each may take what the others leave.
            Subject::Cbq | Subject::CbqRed => {
                let part = |percent: f64| {
                    format!(
                        "rate = \"{}bit\"\nborrow = true\n",
                        (mbit * percent * 1e4) as u64
                    )
                };
                link + &class("bulk", &part(50.0))
                    + &class("interactive", &part(30.0))
                    + &class("rest", &(part(15.0) + "default = true\n"))
                    + &format!(
                        "\n[[link.filter]]\nclass = \"bulk\"\nprotocol = \"tcp\"\n\
                         destination-port = {PORT}\n\n\
                         [[link.filter]]\nclass = \"interactive\"\nprotocol = \"udp\"\n"
                    )
            }
        }
    }
}

/// What is done with it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Load {
    /// TCP over a link of so many Mbit/s; without a limit where there is none.
    Throughput(Option<f64>),
    /// Requests and replies of all sizes.
    Latency,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Setting {
    subject: Subject,
    /// None for the kernel, which has its own.
    way: Option<Way>,
    load: Load,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.subject.name())?;
        if let Some(way) = self.way {
            write!(f, ", {way}")?;
        }
        match self.load {
            Load::Throughput(Some(mbit)) => write!(f, ", TCP at {mbit} Mbit/s"),
            Load::Throughput(None) => write!(f, ", TCP without limit"),
            Load::Latency => write!(f, ", round trips"),
        }
    }
}

/// Figures of one subject over one way.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Measured {
    subject: Subject,
    way: Option<Way>,
    /// TCP payload for each link, none where it is not limited by a link.
    tcp_mbit: Vec<Option<f64>>,
    /// The same without limit.
    unlimited_mbit: f64,
    /// Round trip for each size: the least of all passes' medians.
    round_trip_us: Vec<f64>,
}

/// Of one measurement: TCP payload in Mbit/s, or the least median round trip of each size in
/// microseconds.
#[derive(Clone, Debug)]
enum Figure {
    Throughput(f64),
    Latency(Vec<f64>),
}

impl Experiment for Overhead {
    fn files(&self) -> Files {
        files!("altq-overhead")
    }

    fn measurements(&self) -> Result<usize> {
        let scenario = self.files().scenario::<Parameters>()?;
        Ok(settings(&scenario.parameters).len() * scenario.rounds)
    }

    fn measure(&self, lab: &Lab) -> Result<Findings> {
        bed::check_tcp()?;
        let scenario = self.files().scenario::<Parameters>()?;
        let parameters = &scenario.parameters;
        let paper: Paper = self.files().paper()?;
        let settings = settings(parameters);
        let figures = lab.rounds(&settings, scenario.rounds, scenario.seed, |setting| {
            figure(lab, parameters, setting)
        })?;
        Ok(findings(
            parameters,
            &paper,
            &gather(parameters, &settings, &figures),
        ))
    }
}

/// Every subject over every way, with every load.
fn subjects(parameters: &Parameters) -> Vec<(Subject, Option<Way>)> {
    let daemons = |&way: &Way| DAEMONS.map(|subject| (subject, Some(way)));
    let mut subjects = vec![(Subject::Kernel, None)];
    subjects.extend(parameters.ways.iter().flat_map(daemons));
    subjects
}

fn settings(parameters: &Parameters) -> Vec<Setting> {
    let mut settings = Vec::new();
    for (subject, way) in subjects(parameters) {
        let mut loads = vec![Load::Latency, Load::Throughput(None)];
        if DISCIPLINES.contains(&subject) {
            let limited = parameters.links_mbit.iter();
            loads.extend(limited.map(|mbit| Load::Throughput(Some(*mbit))));
        }
        settings.extend(loads.into_iter().map(|load| Setting { subject, way, load }));
    }
    settings
}

fn figure(lab: &Lab, parameters: &Parameters, setting: &Setting) -> Result<Figure> {
    let mbit = match setting.load {
        Load::Throughput(Some(mbit)) => mbit,
        _ => UNLIMITED_MBIT,
    };
    let links = setting.subject.links(mbit);
    let middle = match setting.way {
        Some(way) => Middle::Daemon { way, links: &links },
        None => Middle::Kernel,
    };
    let mut bed = Bed::new(lab, 1, &middle)?;
    let figure = match setting.load {
        Load::Throughput(_) => {
            let transfer = bed.one_flow(PORT)?;
            Figure::Throughput(transfer.steady_rate(bed::warm(lab.measurement)) / 1e6)
        }
        Load::Latency => {
            // In turns, each with threads of its own: all sizes meet the same cores.
            let turns = PASSES * parameters.round_trips.len() as u32;
            let mut sizes = vec![f64::INFINITY; parameters.round_trips.len()];
            for _ in 0..PASSES {
                for (&[request, reply], least) in parameters.round_trips.iter().zip(&mut sizes) {
                    let us = bed.round_trip_us(request, reply, lab.measurement / turns)?;
                    *least = least.min(us);
                }
            }
            Figure::Latency(sizes)
        }
    };
    bed.finish()?;
    Ok(figure)
}

fn gather(parameters: &Parameters, settings: &[Setting], figures: &[Vec<Figure>]) -> Vec<Measured> {
    let of = |subject, way, load| {
        let setting = Setting { subject, way, load };
        let place = settings.iter().position(|known| *known == setting)?;
        Some(&figures[place])
    };
    let throughput = |figures: &Vec<Figure>| {
        median(figures.iter().filter_map(|figure| match figure {
            Figure::Throughput(mbit) => Some(*mbit),
            Figure::Latency(_) => None,
        }))
    };
    let latency = |figures: &Vec<Figure>, place: usize| {
        let rounds = figures.iter().filter_map(|figure| match figure {
            Figure::Latency(sizes) => Some(sizes[place]),
            Figure::Throughput(_) => None,
        });
        rounds.fold(f64::NAN, f64::min)
    };
    let measured = |(subject, way)| {
        let links = parameters.links_mbit.iter();
        let tcp = |&mbit: &f64| of(subject, way, Load::Throughput(Some(mbit))).map(throughput);
        let trips = of(subject, way, Load::Latency);
        let sizes = 0..parameters.round_trips.len();
        let trip = |place| trips.map_or(f64::NAN, |trips| latency(trips, place));
        Measured {
            subject,
            way,
            tcp_mbit: links.map(tcp).collect(),
            unlimited_mbit: of(subject, way, Load::Throughput(None)).map_or(f64::NAN, throughput),
            round_trip_us: sizes.map(trip).collect(),
        }
    };
    subjects(parameters).into_iter().map(measured).collect()
}

/// What a subject adds to the last size's round trip beyond forwarding without scheduler over
/// the same way, in microseconds.
fn added(measured: &[Measured], subject: &Measured) -> Option<f64> {
    let base = measured
        .iter()
        .find(|other| other.subject == Subject::Unshaped && other.way == subject.way)?;
    Some(subject.round_trip_us.last()? - base.round_trip_us.last()?)
}

fn findings(parameters: &Parameters, paper: &Paper, measured: &[Measured]) -> Findings {
    let mut header = vec!["here".to_owned()];
    header.extend(
        parameters
            .links_mbit
            .iter()
            .map(|mbit| format!("TCP, {mbit} Mbit/s link")),
    );
    header.push("TCP, no limit".into());
    for [request, reply] in &parameters.round_trips {
        header.push(format!("us, {request}/{reply} B"));
    }
    header.push("us added".into());
    let row = |measured_one: &Measured| {
        let mut row = vec![match measured_one.way {
            Some(way) => format!("{}, {way}", measured_one.subject.name()),
            None => measured_one.subject.name().to_owned(),
        }];
        let cell = |mbit: &Option<f64>| mbit.map_or("-".to_owned(), digits);
        row.extend(measured_one.tcp_mbit.iter().map(cell));
        row.push(digits(measured_one.unlimited_mbit));
        row.extend(measured_one.round_trip_us.iter().map(|us| digits(*us)));
        let added = added(measured, measured_one);
        row.push(added.map_or("-".to_owned(), |us| format!("{us:.2}")));
        row
    };
    let mut rows: Vec<Vec<String>> = measured.iter().map(row).collect();
    // The paper's own, where it has the same columns.
    let adds = &paper.added_us;
    for (name, added) in [
        ("FIFOQ", adds.fifo),
        ("RED", adds.red),
        ("WFQ", adds.fair_queueing),
        ("CBQ", adds.cbq),
        ("CBQ+RED", adds.cbq_red),
    ] {
        let mut row = vec!["-".to_owned(); header.len()];
        row[0] = format!("paper's {name} (ATM)");
        row[header.len() - 1] = digits(added);
        for (place, mbit) in (1..).zip(&parameters.links_mbit) {
            let same = |known: &&PaperThroughput| known.link == format!("{mbit:.0}baseT");
            if let (Some(known), "CBQ") = (paper.throughput.iter().find(same), name) {
                row[place] = digits(known.cbq_mbit);
            }
        }
        rows.push(row);
    }
    Findings {
        ours: json!(measured),
        papers: json!(paper),
        table: Rows { header, rows },
        chart: chart(parameters, paper, measured),
        verdict: judge(parameters, paper, measured),
        notes: vec![
            "TCP columns are payload in Mbit/s: of a link with overhead = \"ethernet\" it can be \
             94.1% at most. Round trips are UDP requests and replies one after the other: the least \
             of the medians of all passes, as a round trip takes longer or not by which core runs \
             whom. Requests pass the scheduler; replies pass the same link without limit in every \
             case. The last column is the last size's difference to forwarding without scheduler \
             over the same way, as in Table 3."
                .into(),
            "Without limit, sender, daemon and receiver share the processor's cores; the paper's \
             loopback did so too."
                .into(),
        ],
    }
}

/// The time added by each discipline.
fn chart(parameters: &Parameters, paper: &Paper, measured: &[Measured]) -> Chart {
    let adds = &paper.added_us;
    let place = |subject: Subject| DISCIPLINES.iter().position(|known| *known == subject);
    let points = |way: Way| -> Vec<(f64, f64)> {
        let own = measured.iter().filter(|one| one.way == Some(way));
        let point = |one: &Measured| Some((place(one.subject)? as f64, added(measured, one)?));
        own.filter_map(point).collect()
    };
    let ways = parameters.ways.iter().enumerate();
    let mut curves: Vec<Curve> = ways
        .map(|(subject, &way)| Curve::ours(subject, &format!("here, {way}"), points(way)))
        .collect();
    let theirs = [
        adds.fifo,
        adds.red,
        adds.fair_queueing,
        adds.cbq,
        adds.cbq_red,
    ];
    let theirs = (0..).zip(theirs).map(|(place, us)| (f64::from(place), us));
    curves.push(Curve::papers(
        parameters.ways.len(),
        "paper (Table 3)",
        theirs.collect(),
    ));
    Chart {
        x: Axis::linear("0 FIFO, 1 RED, 2 fair queueing, 3 CBQ, 4 CBQ+RED"),
        y: Axis::linear("microseconds added to a round trip"),
        curves,
    }
}

fn judge(parameters: &Parameters, paper: &Paper, measured: &[Measured]) -> Verdict {
    let mut least: f64 = f64::INFINITY;
    let mut most: f64 = f64::NEG_INFINITY;
    let mut who = (String::new(), String::new());
    for one in measured
        .iter()
        .filter(|one| DISCIPLINES.contains(&one.subject))
    {
        let fifo = measured
            .iter()
            .find(|other| other.subject == Subject::Fifo && other.way == one.way);
        let name = || match one.way {
            Some(way) => format!("{} over {way}", one.subject.name()),
            None => one.subject.name().to_owned(),
        };
        for (place, mbit) in parameters.links_mbit.iter().enumerate() {
            let fifo = fifo.and_then(|fifo| fifo.tcp_mbit[place]);
            let kept = one.tcp_mbit[place]
                .zip(fifo)
                .map_or(0.0, |(own, fifo)| own / fifo);
            if kept.total_cmp(&least).is_lt() {
                (least, who.0) = (kept, format!("{} at {mbit} Mbit/s", name()));
            }
        }
        let us = added(measured, one).unwrap_or(f64::INFINITY);
        if us.total_cmp(&most).is_gt() {
            (most, who.1) = (us, name());
        }
    }
    let allowed = paper.added_us.cbq_red;
    Verdict {
        holds: least >= KEPT && most <= allowed && !measured.is_empty(),
        criterion: format!(
            "on every limited link each discipline has at least {}% of FIFO's throughput, and none \
             adds more to a round trip than {allowed} us, the paper's most",
            KEPT * 100.0
        ),
        found: format!(
            "the least is {:.2}% ({}), the most {most:.2} us ({})",
            least * 100.0,
            who.0,
            who.1
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts() -> (Parameters, Paper) {
        let scenario = Overhead.files().scenario::<Parameters>().unwrap();
        (scenario.parameters, Overhead.files().paper().unwrap())
    }

    /// Figures where every discipline has `kept` of FIFO's throughput and adds `us`.
    fn figures(parameters: &Parameters, kept: f64, us: f64) -> Vec<Measured> {
        let settings = settings(parameters);
        let figure = |setting: &Setting| {
            let plain = matches!(setting.subject, Subject::Kernel | Subject::Unshaped);
            let part = match setting.subject {
                Subject::Fifo => 1.0,
                _ => kept,
            };
            vec![match setting.load {
                Load::Throughput(Some(mbit)) => Figure::Throughput(mbit * 0.94 * part),
                Load::Throughput(None) => Figure::Throughput(5000.0 * part),
                Load::Latency => {
                    let us = if plain { 40.0 } else { 40.0 + us };
                    Figure::Latency(vec![us; parameters.round_trips.len()])
                }
            }]
        };
        let figures: Vec<_> = settings.iter().map(figure).collect();
        gather(parameters, &settings, &figures)
    }

    #[test]
    fn the_claim_needs_throughput_kept_and_little_latency_added() {
        let (parameters, paper) = parts();
        let holds = |kept, us| judge(&parameters, &paper, &figures(&parameters, kept, us)).holds;
        // The paper's CBQ on 10baseT.
        assert!(holds(0.989, 10.0));
        assert!(!holds(0.95, 10.0));
        assert!(!holds(1.0, 13.0));
        assert!(!holds(1.0, f64::NAN));
        assert!(!judge(&parameters, &paper, &[]).holds);
    }

    #[test]
    fn the_table_has_every_subject_and_the_papers_beside_it() {
        let (parameters, paper) = parts();
        let findings = findings(&parameters, &paper, &figures(&parameters, 1.0, 2.0));
        let Rows { header, rows } = &findings.table;
        assert_eq!(rows.len(), 1 + DAEMONS.len() * parameters.ways.len() + 5);
        assert!(rows.iter().all(|row| row.len() == header.len()));
        let cbq = rows
            .iter()
            .find(|row| row[0].starts_with("paper's CBQ "))
            .unwrap();
        assert!(
            cbq.contains(&"92.7".to_owned()) && cbq.contains(&"10.7".to_owned()),
            "{cbq:?}"
        );
        assert_eq!(rows[2].last().unwrap(), "2.00");
    }

    #[test]
    fn every_subject_is_a_site_of_its_own() {
        let mut texts = std::collections::HashSet::new();
        for subject in DAEMONS {
            let text = bed::site(Way::Packet, &subject.links(100.0));
            assert!(text.parse::<toml::Table>().is_ok(), "{text}");
            assert!(texts.insert(text));
        }
    }
}
