//! `altq-allocation`: TCP in a class that has a part of the link.

use std::fmt::{self, Write};
use std::time::Duration;

use anyhow::{Context, Result};
use fairlane_core::Rate;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::experiment::{Experiment, Files, Findings, Rows, Verdict, digits, files, median};
use super::super::lab::Lab;
use super::bed::{self, Bed, Middle, Way, link_mbit, packets};
use super::timer;
use crate::plot::{Axis, Chart, Curve};

/// Figs. 8 to 10.
pub(crate) struct Allocation;

/// The furthest that a class may be from its part of the link, relative to it.
const LINEAR: f64 = 0.02;

/// The receiver's port, which the class's filter has.
const PORT: u16 = 5_201;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    /// Links by their rate.
    links_mbit: Vec<f64>,
    /// Parts of the link in percent. With 100 the class may take all of it.
    shares_percent: Vec<u32>,
    ways: Vec<Way>,
    algorithm: String,
    /// The longest time that a packet waits in the class.
    queue_ms: u64,
    /// Granularities of CBQ's timer, for the paper's flaw; 0 is exact.
    timers_ms: Vec<u64>,
    /// The link of these.
    timer_link_mbit: u64,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Paper {
    machine: String,
    curves: Vec<PaperCurve>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct PaperCurve {
    name: String,
    link_mbit: f64,
    shares_percent: Vec<u32>,
    tcp_mbit: Vec<f64>,
}

#[derive(Clone, Copy, Debug)]
struct Setting {
    way: Way,
    link_mbit: f64,
    percent: u32,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (way, link) = (self.way.name(), self.link_mbit);
        write!(f, "{way}, {}% of {link} Mbit/s", self.percent)
    }
}

/// What TCP had of one link in a class of each size.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Measured {
    way: Way,
    link_mbit: f64,
    shares_percent: Vec<u32>,
    /// Payload and what it takes of the link.
    tcp_mbit: Vec<f64>,
    on_link_mbit: Vec<f64>,
    /// Of the segments sent again.
    retransmits: Vec<f64>,
}

/// What CBQ with such a timer allocates, on a clock of its own.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Timer {
    timer_ms: u64,
    link_mbit: u64,
    shares_percent: Vec<u32>,
    on_link_mbit: Vec<f64>,
}

/// One measurement.
struct Point {
    tcp_mbit: f64,
    on_link_mbit: f64,
    retransmits: f64,
}

impl Experiment for Allocation {
    fn files(&self) -> Files {
        files!("altq-allocation")
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
        let points = lab.rounds(&settings, scenario.rounds, scenario.seed, |setting| {
            point(lab, parameters, setting)
        })?;
        let shares = parameters.shares_percent.len();
        let curves = settings.chunks(shares).zip(points.chunks(shares));
        let measured = curves.map(|(settings, points)| {
            let middle = |figure: fn(&Point) -> f64| -> Vec<f64> {
                let of = |points: &Vec<Point>| median(points.iter().map(figure));
                points.iter().map(of).collect()
            };
            Measured {
                way: settings[0].way,
                link_mbit: settings[0].link_mbit,
                shares_percent: parameters.shares_percent.clone(),
                tcp_mbit: middle(|point| point.tcp_mbit),
                on_link_mbit: middle(|point| point.on_link_mbit),
                retransmits: middle(|point| point.retransmits),
            }
        });
        let timers = parameters.timers_ms.iter();
        let timers = timers.map(|&timer_ms| timer(parameters, timer_ms));
        Ok(findings(
            &paper,
            &measured.collect::<Vec<_>>(),
            &timers.collect::<Result<Vec<_>>>()?,
        ))
    }
}

fn settings(parameters: &Parameters) -> Vec<Setting> {
    let mut settings = Vec::new();
    for &link_mbit in &parameters.links_mbit {
        for &way in &parameters.ways {
            let shares = parameters.shares_percent.iter();
            settings.extend(shares.map(|&percent| Setting {
                way,
                link_mbit,
                percent,
            }));
        }
    }
    settings
}

fn point(lab: &Lab, parameters: &Parameters, setting: &Setting) -> Result<Point> {
    let links = links(parameters, setting);
    let middle = Middle::Daemon {
        way: setting.way,
        links: &links,
    };
    let mut bed = Bed::new(lab, 1, &middle)?;
    let transfer = bed.one_flow(PORT)?;
    bed.finish()?;
    let time = lab.measurement;
    Ok(Point {
        tcp_mbit: transfer.steady_rate(bed::warm(time)) / 1e6,
        on_link_mbit: link_mbit(&transfer, time),
        retransmits: transfer.retransmits as f64,
    })
}

fn timer(parameters: &Parameters, timer_ms: u64) -> Result<Timer> {
    let link_mbit = parameters.timer_link_mbit;
    let rate = |mbit: f64| {
        let rate = Rate::from_bps((mbit * 1e6) as u64);
        rate.with_context(|| format!("a rate of {mbit} Mbit/s"))
    };
    let link = rate(link_mbit as f64)?;
    let shares = parameters.shares_percent.iter();
    let allocated = shares.map(|&percent| {
        let share = rate(link_mbit as f64 * f64::from(percent) / 100.0)?;
        timer::allocated(link, share, Duration::from_millis(timer_ms))
    });
    Ok(Timer {
        timer_ms,
        link_mbit,
        shares_percent: parameters.shares_percent.clone(),
        on_link_mbit: allocated.collect::<Result<_>>()?,
    })
}

/// The link, with a class that is held to its part.
fn links(parameters: &Parameters, setting: &Setting) -> String {
    let link = setting.link_mbit;
    let part = link * f64::from(setting.percent) / 100.0;
    let packets = packets(part, Duration::from_millis(parameters.queue_ms));
    let bits = |mbit: f64| (mbit * 1e6) as u64;
    // The class that may borrow has no cap, and leaves the other a little to be guaranteed.
    let (rate, cap) = match setting.percent {
        100 => (part * 0.95, String::new()),
        _ => (part, format!("ceil = \"{}bit\"\n", bits(part))),
    };
    let mut text = String::new();
    let _ = write!(
        text,
        "[[link]]\nname = \"up\"\nto = \"outside\"\nrate = \"{}bit\"\noverhead = \"ethernet\"\n\
         algorithm = \"{}\"\n\n\
         [[link.class]]\nname = \"measured\"\nrate = \"{}bit\"\n{cap}\
         limit = {{ packets = {packets} }}\n\n\
         [[link.class]]\nname = \"rest\"\ndefault = true\n\n\
         [[link.filter]]\nclass = \"measured\"\nprotocol = \"tcp\"\ndestination-port = {PORT}\n",
        bits(link),
        parameters.algorithm,
        bits(rate),
    );
    text
}

fn called(timer: &Timer) -> String {
    match timer.timer_ms {
        0 => format!("{} Mbit/s, exact times", timer.link_mbit),
        ms => format!("{} Mbit/s, timer of {ms} ms", timer.link_mbit),
    }
}

/// How far the class was from its part of the link, relative to it.
fn deviation(link_mbit: f64, percent: u32, had: f64) -> f64 {
    had / (link_mbit * f64::from(percent) / 100.0) - 1.0
}

fn findings(paper: &Paper, measured: &[Measured], timers: &[Timer]) -> Findings {
    let shares = measured
        .first()
        .map_or(&[][..], |curve| &curve.shares_percent);
    let mut rows = Vec::new();
    for curve in measured {
        let link = curve.link_mbit;
        let named = |what: &str| vec![format!("{}, {link} Mbit/s: {what}", curve.way.name())];
        let mut tcp = named("TCP Mbit/s");
        tcp.extend(curve.tcp_mbit.iter().map(|mbit| digits(*mbit)));
        let mut far = named("from linear, %");
        let had = curve.shares_percent.iter().zip(&curve.on_link_mbit);
        far.extend(
            had.map(|(&percent, &had)| format!("{:.2}", deviation(link, percent, had) * 100.0)),
        );
        rows.extend([tcp, far]);
    }
    for curve in timers {
        let name = format!("CBQ, {}: Mbit/s of the link", called(curve));
        let cells = curve.on_link_mbit.iter().map(|mbit| digits(*mbit));
        rows.push(std::iter::once(name).chain(cells).collect());
    }
    for curve in &paper.curves {
        let cell = |percent: &u32| {
            let known = curve
                .shares_percent
                .iter()
                .position(|known| known == percent);
            known.map_or("-".to_owned(), |place| digits(curve.tcp_mbit[place]))
        };
        rows.push(
            std::iter::once(curve.name.clone())
                .chain(shares.iter().map(cell))
                .collect(),
        );
    }
    Findings {
        ours: json!({ "daemon": measured, "cbq_timer": timers }),
        papers: json!(paper),
        table: Rows {
            header: std::iter::once("class of, in % of the link:".to_owned())
                .chain(shares.iter().map(u32::to_string))
                .collect(),
            rows,
        },
        chart: chart(paper, measured, timers),
        verdict: judge(measured),
        notes: vec![
            "TCP's payload is measured at the receiver. A full segment carries 1448 bytes of it \
             in a frame of 1514, which takes 1538 of the link (overhead = \"ethernet\"): payload \
             times 1538/1448 is what the class had of the link, and is compared with its part. \
             Retransmitted and other frames are not in it, so that a perfect class is a little \
             below linear."
                .into(),
            "With 100% the class has no cap and takes what nobody else wants, as the paper's \
             borrows from the root."
                .into(),
            "CBQ with a timer is computed on a clock of its own: a class that may not borrow, whose \
             packets always wait, and no other event that would wake it up. Of a timer of 10 ms, \
             ALTQ waits for two ticks, in which a class sends one burst of 16 packets."
                .into(),
        ],
    }
}

/// What a class had over its part. In percent of the link, so that all links are in one plot.
fn chart(paper: &Paper, measured: &[Measured], timers: &[Timer]) -> Chart {
    let points = |link: f64, shares: &[u32], mbit: &[f64]| {
        let shares = shares.iter().map(|percent| f64::from(*percent));
        shares
            .zip(mbit.iter().map(|mbit| mbit / link * 100.0))
            .collect()
    };
    let ours = measured.iter().enumerate().map(|(subject, curve)| {
        let name = format!("here, {}, {} Mbit/s", curve.way.name(), curve.link_mbit);
        let points = points(curve.link_mbit, &curve.shares_percent, &curve.on_link_mbit);
        Curve::ours(subject, &name, points)
    });
    let simulated = timers.iter().enumerate().map(|(subject, curve)| {
        let link = curve.link_mbit as f64;
        let points = points(link, &curve.shares_percent, &curve.on_link_mbit);
        Curve::ours(
            measured.len() + subject,
            &format!("CBQ, {}", called(curve)),
            points,
        )
    });
    let theirs = paper.curves.iter().enumerate().map(|(subject, curve)| {
        let points = points(curve.link_mbit, &curve.shares_percent, &curve.tcp_mbit);
        Curve::papers(measured.len() + timers.len() + subject, &curve.name, points)
    });
    Chart {
        x: Axis::linear("class's part of the link, %"),
        y: Axis::linear("what it had of the link, %"),
        curves: ours.chain(simulated).chain(theirs).collect(),
    }
}

fn judge(measured: &[Measured]) -> Verdict {
    let mut holds = !measured.is_empty();
    let mut found = Vec::new();
    for curve in measured {
        let had = curve.shares_percent.iter().zip(&curve.on_link_mbit);
        let far = had.map(|(&percent, &had)| (deviation(curve.link_mbit, percent, had), percent));
        let worst = far.max_by(|(one, _), (other, _)| one.abs().total_cmp(&other.abs()));
        let (worst, percent) = worst.unwrap_or((f64::NAN, 0));
        holds &= worst.abs() <= LINEAR;
        let (way, link) = (curve.way.name(), curve.link_mbit);
        found.push(format!(
            "{way} at {link} Mbit/s is at most {:.2}% off, in the class of {percent}%",
            worst.abs() * 100.0
        ));
    }
    Verdict {
        holds,
        criterion: format!(
            "each class within {}% of its part of the link",
            LINEAR * 100.0
        ),
        found: found.join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(on_link_mbit: &[f64]) -> Measured {
        Measured {
            way: Way::Packet,
            link_mbit: 100.0,
            shares_percent: vec![5, 50, 100],
            tcp_mbit: on_link_mbit.iter().map(|mbit| mbit * 0.94).collect(),
            on_link_mbit: on_link_mbit.into(),
            retransmits: vec![0.0; 3],
        }
    }

    #[test]
    fn the_claim_needs_every_class_within_its_part() {
        assert!(judge(&[curve(&[4.95, 50.5, 99.0])]).holds);
        // The paper's 100baseT: stuck at 9.6 Mbit/s.
        assert!(!judge(&[curve(&[5.0, 9.6, 99.0])]).holds);
        assert!(
            !judge(&[curve(&[5.2, 50.0, 99.0])]).holds,
            "more than its part"
        );
        assert!(!judge(&[curve(&[5.0, 50.0, 99.0]), curve(&[5.0, 50.0, 90.0])]).holds);
        assert!(!judge(&[]).holds);
    }

    #[test]
    fn the_papers_curves_read_and_stand_beside_ours() {
        let paper: Paper = Allocation.files().paper().unwrap();
        let findings = findings(
            &paper,
            &[curve(&[5.0, 50.0, 100.0])],
            &[Timer {
                timer_ms: 10,
                link_mbit: 100,
                shares_percent: vec![5, 50, 100],
                on_link_mbit: vec![5.0, 9.6, 9.6],
            }],
        );
        let width = findings.table.header.len();
        assert!(findings.table.rows.iter().all(|row| row.len() == width));
        let same = |curve: &PaperCurve| curve.shares_percent.len() == curve.tcp_mbit.len();
        assert!(paper.curves.iter().all(same));
    }
}
