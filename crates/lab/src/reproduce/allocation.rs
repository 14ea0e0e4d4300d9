//! `pspat-allocation`: shares of a link that is faster than a locked scheduler.

use std::fmt;

use anyhow::{Context, Result};
use fairlane_core::Rate;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::experiment::{Experiment, Files, Findings, Rows, Verdict, digits, files, median};
use super::lab::Lab;
use super::section6::{algorithm, decider, greedy, measure, weight};
use crate::plot::{Axis, Chart, Curve};
use fairlane_bench::pspat::{Case, Mode};
use fairlane_cli::algorithm::Algorithm;

/// Section 6.5.
pub(super) struct Allocation;

const MODES: [Mode; 2] = [Mode::Lock, Mode::Pspat];

/// Shares are kept where no client's is further from its weight's, relative to it.
const KEPT: f64 = 0.01;

/// They are lost where one's is further.
const LOST: f64 = 0.05;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    weights: [u32; 2],
    #[serde(deserialize_with = "algorithm")]
    alg: Algorithm,
    packet: u32,
    rates: Vec<f64>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Paper {
    machine: String,
    weights: [u32; 2],
    sustained_mpps: f64,
    rates: Vec<f64>,
    heavy_share: Vec<f64>,
}

/// The link's rate in times of what the locked scheduler can do; none: never a bottleneck.
#[derive(Clone, Copy, Debug)]
struct Setting {
    mode: Mode,
    rate: Option<f64>,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rate {
            Some(rate) => write!(f, "{}, {rate} times the lock's rate", decider(self.mode)),
            None => write!(f, "{}, no limit", decider(self.mode)),
        }
    }
}

/// What two clients of one link got.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Shares {
    mpps: f64,
    heavy_share: f64,
    /// The larger of both relative distances from the weight's share.
    error: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Point {
    /// The link's rate, in times of the lock's and in packets.
    rate: Option<f64>,
    link_mpps: Option<f64>,
    lock: Shares,
    pspat: Shares,
}

impl Experiment for Allocation {
    fn files(&self) -> Files {
        files!("pspat-allocation")
    }

    fn measurements(&self) -> Result<usize> {
        let scenario = self.files().scenario::<Parameters>()?;
        Ok((scenario.parameters.rates.len() + 1) * MODES.len() * scenario.rounds)
    }

    fn measure(&self, lab: &Lab) -> Result<Findings> {
        let scenario = self.files().scenario::<Parameters>()?;
        let parameters = &scenario.parameters;
        let paper: Paper = self.files().paper()?;
        let shares = |settings: &[Setting], lock_mpps: Option<f64>| -> Result<Vec<Shares>> {
            let runs = lab.rounds(settings, scenario.rounds, scenario.seed, |setting| {
                run(lab, parameters, setting, lock_mpps)
            })?;
            Ok(runs.iter().map(|runs| middle(runs)).collect())
        };
        let unlimited = shares(&MODES.map(|mode| Setting { mode, rate: None }), None)?;
        let lock_mpps = unlimited[0].mpps;
        let rates = parameters.rates.iter().copied();
        let settings: Vec<Setting> = rates
            .clone()
            .flat_map(|rate| {
                MODES.map(|mode| Setting {
                    mode,
                    rate: Some(rate),
                })
            })
            .collect();
        let limited = shares(&settings, Some(lock_mpps))?;
        let point = |rate: Option<f64>, shares: &[Shares]| Point {
            rate,
            link_mpps: rate.map(|rate| rate * lock_mpps),
            lock: shares[0],
            pspat: shares[1],
        };
        let pairs = rates.map(Some).zip(limited.chunks_exact(2));
        let mut points: Vec<Point> = pairs.map(|(rate, shares)| point(rate, shares)).collect();
        points.push(point(None, &unlimited));
        Ok(findings(&paper, parameters.weights, &points))
    }
}

fn run(
    lab: &Lab,
    parameters: &Parameters,
    setting: &Setting,
    lock_mpps: Option<f64>,
) -> Result<Shares> {
    let [heavy, light] = parameters.weights;
    let base = greedy(lab, parameters.alg, setting.mode, 2, parameters.packet)?;
    let rate = match (setting.rate, lock_mpps) {
        (Some(times), Some(mpps)) => {
            let bps = times * mpps * 1e6 * f64::from(parameters.packet) * 8.0;
            Rate::from_bps(bps as u64).with_context(|| format!("a link of {bps:.0} bit/s"))?
        }
        _ => base.rate,
    };
    let case = Case {
        weights: vec![weight(heavy)?, weight(light)?],
        rate,
        ..base
    };
    let outcome = measure(lab, &case)?;
    let heavy_share = outcome.shares.iter().find(|share| share.weight == heavy);
    Ok(Shares {
        mpps: outcome.decisions_per_sec / 1e6,
        heavy_share: heavy_share.map_or(f64::NAN, |share| share.share),
        error: outcome.max_share_error,
    })
}

fn middle(runs: &[Shares]) -> Shares {
    Shares {
        mpps: median(runs.iter().map(|run| run.mpps)),
        heavy_share: median(runs.iter().map(|run| run.heavy_share)),
        error: median(runs.iter().map(|run| run.error)),
    }
}

fn findings(paper: &Paper, weights: [u32; 2], points: &[Point]) -> Findings {
    let [heavy, light] = weights.map(f64::from);
    let nominal = heavy / (heavy + light);
    let percent = |shares: &Shares| {
        let heavy = shares.heavy_share * 100.0;
        format!("{heavy:.1}/{:.1}", 100.0 - heavy)
    };
    let row = |point: &Point| {
        let theirs = paper
            .rates
            .iter()
            .position(|rate| Some(*rate) == point.rate);
        let theirs = theirs.map_or("-".into(), |place| {
            let heavy = paper.heavy_share[place] * 100.0;
            format!("{heavy:.0}/{:.0}", 100.0 - heavy)
        });
        vec![
            point
                .rate
                .map_or("no limit".into(), |rate| format!("{rate:.2}")),
            point.link_mpps.map_or("-".into(), digits),
            theirs,
            percent(&point.lock),
            digits(point.lock.mpps),
            percent(&point.pspat),
            digits(point.pspat.mpps),
        ]
    };
    let header = [
        "rate of the link, of the lock's",
        "link Mpps",
        "paper's TC, shares",
        "here, lock, shares",
        "Mpps",
        "here, PSPAT, shares",
        "Mpps",
    ];
    Findings {
        ours: json!(points),
        papers: json!(paper),
        table: Rows {
            header: header.map(str::to_owned).into(),
            rows: points.iter().map(row).collect(),
        },
        chart: chart(paper, nominal, points),
        verdict: judge(points),
        notes: vec![
            format!(
                "Two clients of weights {} and {}, which send as fast as they can; by weight the \
                 first has {:.1}%.",
                weights[0],
                weights[1],
                nominal * 100.0
            ),
            "A scheduler that cannot keep up with its link never has two packets to choose from: \
             shares are then those of the lock, not of the weights."
                .into(),
        ],
    }
}

/// The heavy client's share over the rate of the link.
fn chart(paper: &Paper, nominal: f64, points: &[Point]) -> Chart {
    let curve = |pick: fn(&Point) -> &Shares| {
        let limited = points
            .iter()
            .filter_map(|point| Some((point.rate?, pick(point))));
        limited
            .map(|(rate, shares)| (rate, shares.heavy_share * 100.0))
            .collect()
    };
    let theirs = paper.rates.iter().zip(&paper.heavy_share);
    let rates = || points.iter().filter_map(|point| point.rate);
    let ends = [
        rates().fold(f64::INFINITY, f64::min),
        rates().fold(0.0, f64::max),
    ];
    Chart {
        x: Axis::linear("rate of the link, in times of what the locked scheduler can do"),
        y: Axis::linear("share of the heavy client, %"),
        curves: vec![
            Curve::ours(1, "here, lock", curve(|point| &point.lock)),
            Curve::ours(2, "here, PSPAT", curve(|point| &point.pspat)),
            Curve::papers(
                1,
                "paper, TC",
                theirs.map(|(rate, share)| (*rate, share * 100.0)).collect(),
            ),
            Curve::papers(
                0,
                "by weight",
                ends.map(|end| (end, nominal * 100.0)).into(),
            ),
        ],
    }
}

fn judge(points: &[Point]) -> Verdict {
    let limited = || points.iter().filter(|point| point.rate.is_some());
    let above = points
        .iter()
        .filter(|point| point.rate.is_none_or(|rate| rate > 1.0));
    let worst = |errors: &mut dyn Iterator<Item = f64>| errors.fold(0.0, f64::max);
    let pspat = worst(&mut limited().map(|point| point.pspat.error));
    let lock = worst(&mut above.map(|point| point.lock.error));
    Verdict {
        holds: limited().count() > 0 && pspat <= KEPT && lock > LOST,
        criterion: format!(
            "on a link of any rate PSPAT's shares are within {}% of the weights', and above its \
             own rate the lock's are not within {}%",
            KEPT * 100.0,
            LOST * 100.0
        ),
        found: format!(
            "PSPAT's shares are within {}% of the weights', the lock's are up to {}% off",
            digits(pspat * 100.0),
            digits(lock * 100.0)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(rate: Option<f64>, lock: f64, pspat: f64) -> Point {
        let shares = |error| Shares {
            mpps: 1.0,
            heavy_share: 0.9,
            error,
        };
        Point {
            rate,
            link_mpps: rate,
            lock: shares(lock),
            pspat: shares(pspat),
        }
    }

    #[test]
    fn the_claim_needs_shares_kept_by_pspat_and_lost_by_the_lock() {
        let below = point(Some(0.5), 0.001, 0.001);
        assert!(judge(&[below, point(Some(1.1), 4.0, 0.002)]).holds);
        assert!(
            !judge(&[below, point(Some(1.1), 0.01, 0.002)]).holds,
            "none lost"
        );
        assert!(
            !judge(&[below, point(Some(1.1), 4.0, 0.02)]).holds,
            "none kept"
        );
        // Lost below the lock's own rate: not for the reason that the paper gives.
        assert!(!judge(&[point(Some(0.5), 4.0, 0.001), point(Some(1.1), 0.0, 0.0)]).holds);
        // Where nothing limits, PSPAT has nothing to share.
        assert!(judge(&[below, point(Some(1.1), 4.0, 0.002), point(None, 4.0, 9.0)]).holds);
        assert!(!judge(&[]).holds);
    }

    #[test]
    fn the_papers_shares_stand_beside_ours_at_the_same_rate() {
        let paper: Paper = Allocation.files().paper().unwrap();
        let points = [point(Some(0.5), 0.0, 0.0), point(Some(1.1), 4.0, 0.0)];
        let table = findings(&paper, [10, 1], &points).table;
        assert_eq!(table.rows[0][2], "-");
        assert_eq!(table.rows[1][2], "40/60");
        assert_eq!(table.rows[1][3], "90.0/10.0");
    }
}
