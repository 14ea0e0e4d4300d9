//! `pspat-throughput`: decisions a second against the number of clients.

use std::fmt;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::experiment::{Experiment, Files, Findings, Rows, Verdict, digits, files, median};
use super::lab::Lab;
use super::section6::{Named, algorithm, decider, greedy, measure, name};
use crate::plot::{Axis, Chart, Curve};
use fairlane_bench::pspat::{Mode, Transmit};
use fairlane_cli::algorithm::Algorithm;

/// Figs. 7 to 10.
pub(super) struct Throughput;

const MODES: [Mode; 3] = [Mode::None, Mode::Lock, Mode::Pspat];

/// The lock degrades if the most clients have at most this part of its best throughput.
/// In the paper it is 0.79 on one machine, and below 0.2 on the other.
const DEGRADED: f64 = 0.9;

/// PSPAT keeps its throughput if the most clients have at least this part of its best, as
/// in the paper's Fig. 9.
const KEPT: f64 = 0.85;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    clients: Vec<u32>,
    #[serde(deserialize_with = "algorithm")]
    alg: Algorithm,
    packet: u32,
    transmit: Vec<Named<Transmit>>,
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
    mode: String,
    transmit: String,
    clients: Vec<u32>,
    mpps: Vec<f64>,
}

#[derive(Clone, Copy, Debug)]
struct Setting {
    transmit: Transmit,
    mode: Mode,
    clients: u32,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mode, transmit) = (decider(self.mode), name(self.transmit));
        write!(f, "{mode}, {transmit}, {} clients", self.clients)
    }
}

/// Millions of packets or decisions a second over the number of clients.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Measured {
    mode: String,
    transmit: String,
    clients: Vec<u32>,
    mpps: Vec<f64>,
}

impl Experiment for Throughput {
    fn files(&self) -> Files {
        files!("pspat-throughput")
    }

    fn measurements(&self) -> Result<usize> {
        let scenario = self.files().scenario::<Parameters>()?;
        let Parameters {
            clients, transmit, ..
        } = &scenario.parameters;
        Ok(clients.len() * transmit.len() * MODES.len() * scenario.rounds)
    }

    fn measure(&self, lab: &Lab) -> Result<Findings> {
        let scenario = self.files().scenario::<Parameters>()?;
        let parameters = &scenario.parameters;
        let paper: Paper = self.files().paper()?;
        let mut settings = Vec::new();
        for &Named(transmit) in &parameters.transmit {
            for mode in MODES {
                let clients = parameters.clients.iter();
                settings.extend(clients.map(|&clients| Setting {
                    transmit,
                    mode,
                    clients,
                }));
            }
        }
        let rates = lab.rounds(&settings, scenario.rounds, scenario.seed, |setting| {
            let mut case = greedy(
                lab,
                parameters.alg,
                setting.mode,
                setting.clients,
                parameters.packet,
            )?;
            case.transmit = setting.transmit;
            Ok(measure(lab, &case)?.decisions_per_sec / 1e6)
        })?;
        let curves = settings.chunks(parameters.clients.len());
        let rates = rates.chunks(parameters.clients.len());
        let measured = curves.zip(rates).map(|(settings, rates)| Measured {
            mode: name(settings[0].mode),
            transmit: name(settings[0].transmit),
            clients: parameters.clients.clone(),
            mpps: rates
                .iter()
                .map(|rates| median(rates.iter().copied()))
                .collect(),
        });
        Ok(findings(&paper, &measured.collect::<Vec<_>>()))
    }
}

fn findings(paper: &Paper, measured: &[Measured]) -> Findings {
    let clients = measured.first().map_or(&[][..], |curve| &curve.clients);
    let place = |mode: &str| {
        MODES
            .iter()
            .position(|known| name(*known) == mode)
            .unwrap_or(0)
    };
    let called = |mode: &str, transmit: &str| {
        let transmit = match transmit {
            "noop" => "no-op".to_owned(),
            other => other.to_uppercase(),
        };
        format!("here, {}, {transmit}", decider(MODES[place(mode)]))
    };
    let ours = measured.iter().map(|curve| {
        let cells = curve.mpps.iter().map(|rate| digits(*rate));
        std::iter::once(called(&curve.mode, &curve.transmit))
            .chain(cells)
            .collect()
    });
    let theirs = paper.curves.iter().map(|curve| {
        let cell = |clients: &u32| {
            let known = curve.clients.iter().position(|known| known == clients);
            known.map_or("-".to_owned(), |place| digits(curve.mpps[place]))
        };
        let cells = clients.iter().map(cell);
        std::iter::once(curve.name.clone()).chain(cells).collect()
    });
    let header = clients.iter().map(|clients| format!("{clients}"));
    let points = |clients: &[u32], mpps: &[f64]| {
        let clients = clients.iter().map(|clients| f64::from(*clients));
        clients.zip(mpps.iter().map(|rate| rate * 1e6)).collect()
    };
    // Modes have colours, and UDP its own three.
    let colour = |mode: &str, transmit: &str| place(mode) + 3 * usize::from(transmit != "noop");
    let curves = measured.iter().map(|curve| {
        let name = called(&curve.mode, &curve.transmit);
        let subject = colour(&curve.mode, &curve.transmit);
        Curve::ours(subject, &name, points(&curve.clients, &curve.mpps))
    });
    let papers = paper.curves.iter().map(|curve| {
        let subject = colour(&curve.mode, &curve.transmit);
        Curve::papers(subject, &curve.name, points(&curve.clients, &curve.mpps))
    });
    Findings {
        ours: json!(measured),
        papers: json!(paper),
        table: Rows {
            header: std::iter::once("Mpps for clients:".to_owned())
                .chain(header)
                .collect(),
            rows: ours.chain(theirs).collect(),
        },
        chart: Chart {
            x: Axis::log("clients"),
            y: Axis::log("packets or decisions a second"),
            curves: curves.chain(papers).collect(),
        },
        verdict: judge(measured),
        notes: vec![
            "With PSPAT one core is the arbiter's, and clients have the others; without it they \
             have all. UDP goes to ports of loopback that nobody reads."
                .into(),
            "The lock is fair, as those of kernels are, and of the clients of one core one contends \
             at a time, as a kernel's thread that holds a lock or waits for it keeps its core."
                .into(),
        ],
    }
}

fn judge(measured: &[Measured]) -> Verdict {
    // What the most clients have, as it is and as a part of the best.
    let last = |mode: Mode, transmit: &str| {
        let of = |curve: &&Measured| curve.mode == name(mode) && curve.transmit == transmit;
        let curve = measured.iter().find(of)?;
        let best = curve.mpps.iter().copied().fold(0.0, f64::max);
        let last = *curve.mpps.last()?;
        Some((last, last / best))
    };
    let mut holds = !measured.is_empty();
    let mut found = Vec::new();
    let pspat = measured
        .iter()
        .filter(|curve| curve.mode == name(Mode::Pspat));
    for transmit in pspat.map(|curve| &*curve.transmit) {
        let lock = last(Mode::Lock, transmit).unwrap_or((f64::NAN, f64::NAN));
        let pspat = last(Mode::Pspat, transmit).unwrap_or((f64::NAN, f64::NAN));
        holds &= lock.1 <= DEGRADED && pspat.1 >= KEPT && pspat.0 > lock.0;
        found.push(format!(
            "{transmit}: the lock keeps {} of its best, PSPAT {} and has {} times the lock's",
            digits(lock.1),
            digits(pspat.1),
            digits(pspat.0 / lock.0)
        ));
    }
    Verdict {
        holds,
        criterion: format!(
            "with the most clients the lock has at most {DEGRADED} of its best throughput, and \
             PSPAT at least {KEPT} of its own and more than the lock"
        ),
        found: found.join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(mode: Mode, transmit: &str, mpps: &[f64]) -> Measured {
        Measured {
            mode: name(mode),
            transmit: transmit.into(),
            clients: (1..).take(mpps.len()).collect(),
            mpps: mpps.into(),
        }
    }

    #[test]
    fn the_papers_curves_read() {
        let paper: Paper = Throughput.files().paper().unwrap();
        assert!(
            paper
                .curves
                .iter()
                .all(|curve| curve.clients.len() == curve.mpps.len())
        );
        let table = findings(&paper, &[curve(Mode::Pspat, "noop", &[30.0, 40.0])]).table;
        assert!(table.rows.iter().all(|row| row.len() == table.header.len()));
    }

    #[test]
    fn the_claim_needs_a_lock_that_degrades_and_an_arbiter_that_does_not() {
        let holds = |lock: &[f64], pspat: &[f64]| {
            judge(&[
                curve(Mode::Lock, "udp", lock),
                curve(Mode::Pspat, "udp", pspat),
            ])
            .holds
        };
        // The paper's UDP on I7.
        assert!(holds(&[1.0, 1.5, 1.18], &[2.0, 4.0, 4.0]));
        assert!(holds(&[1.5, 1.18], &[40.0, 34.0]));
        assert!(
            !holds(&[1.5, 1.4], &[4.0, 4.0]),
            "the lock kept what it had"
        );
        assert!(!holds(&[1.5, 1.18], &[4.0, 3.2]), "PSPAT degraded too");
        assert!(!holds(&[1.5, 1.18], &[1.0, 1.0]), "PSPAT is no faster");
    }

    #[test]
    fn the_claim_must_hold_for_every_way_of_transmitting() {
        let good = [
            curve(Mode::Lock, "noop", &[5.0, 1.0]),
            curve(Mode::Pspat, "noop", &[30.0, 30.0]),
        ];
        assert!(judge(&good).holds);
        let bad = [
            curve(Mode::Lock, "udp", &[1.0, 1.0]),
            curve(Mode::Pspat, "udp", &[1.0, 1.0]),
        ];
        assert!(!judge(&[good, bad].concat()).holds);
        assert!(!judge(&[]).holds);
        assert!(!judge(&[curve(Mode::Pspat, "noop", &[30.0])]).holds);
    }
}
