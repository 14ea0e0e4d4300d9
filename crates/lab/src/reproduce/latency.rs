//! `pspat-latency`: the delay of a client that sends little, among greedy ones.

use std::fmt;

use anyhow::{Context, Result};
use fairlane_core::bounds::{self, Terms, Transmit};
use fairlane_core::{Nanos, Rate};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;

use super::experiment::{Experiment, Files, Findings, Rows, Verdict, digits, files, median};
use super::lab::Lab;
use super::section6::{algorithm, decider, greedy, measure, weight};
use crate::plot::{Axis, Chart, Curve};
use fairlane_bench::pspat::{Case, Mode, Outcome, Victim};
use fairlane_cli::algorithm::Algorithm;

/// Table 3 and Fig. 11.
pub(super) struct Latency;

const MODES: [Mode; 2] = [Mode::Lock, Mode::Pspat];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    #[serde(deserialize_with = "algorithm")]
    alg: Algorithm,
    victim_pps: u32,
    victim_weight: u32,
    greedy: u32,
    packet: u32,
    #[serde(deserialize_with = "rate")]
    rate: Rate,
    small_packet: u32,
    packet_rates: Vec<f64>,
}

fn rate<'de, D: Deserializer<'de>>(from: D) -> Result<Rate, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map_err(serde::de::Error::custom)
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Paper {
    machine: String,
    rows: Vec<PaperRow>,
    saturation_mpps: Saturation,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct PaperRow {
    clients: u32,
    configuration: String,
    /// Least, then the percentiles 10, 50, 90, 98, 99.
    us: [f64; 6],
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Saturation {
    i7_tc: f64,
    i7_pspat: f64,
    xeon40_tc: f64,
    xeon40_pspat: f64,
}

#[derive(Clone, Copy, Debug)]
struct Setting {
    mode: Mode,
    greedy: u32,
    packet: u32,
    rate: Rate,
}

impl Setting {
    /// The link's rate in packets a second.
    fn packet_rate(&self) -> f64 {
        self.rate.bps() as f64 / (f64::from(self.packet) * 8.0)
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setting {
            mode,
            greedy,
            packet,
            ..
        } = *self;
        let (mode, rate) = (decider(mode), digits(self.packet_rate() / 1e6));
        write!(f, "{mode}, {} clients, {packet} B, {rate} Mpps", greedy + 1)
    }
}

/// What one setting did to the victim, in microseconds.
#[derive(Clone, Debug, Serialize)]
struct Delays {
    mode: &'static str,
    clients: u32,
    packet: u32,
    link_mpps: f64,
    /// Least, then the percentiles 10, 50, 90, 98, 99.
    us: [f64; 6],
    max_us: f64,
    /// Eq. 1 and the time that the packet takes by itself, with the mean and the longest
    /// time between two looks at a mailbox. Nothing for a lock: nothing bounds how long
    /// one waits for it.
    bound_us: Option<f64>,
    longest_bound_us: Option<f64>,
}

impl Experiment for Latency {
    fn files(&self) -> Files {
        files!("pspat-latency")
    }

    fn measurements(&self) -> Result<usize> {
        let scenario = self.files().scenario::<Parameters>()?;
        Ok(settings(&scenario.parameters)?.len() * scenario.rounds)
    }

    fn measure(&self, lab: &Lab) -> Result<Findings> {
        let scenario = self.files().scenario::<Parameters>()?;
        let parameters = &scenario.parameters;
        let paper: Paper = self.files().paper()?;
        let settings = settings(parameters)?;
        let runs = lab.rounds(&settings, scenario.rounds, scenario.seed, |setting| {
            let case = case(lab, parameters, setting)?;
            delays(setting, &case, &measure(lab, &case)?)
        })?;
        let middle: Vec<Delays> = runs.iter().map(|runs| middle(runs)).collect();
        Ok(findings(parameters, &paper, &middle))
    }
}

/// Table 3's, and then Fig. 11's.
fn settings(parameters: &Parameters) -> Result<Vec<Setting>> {
    let mut settings = Vec::new();
    for greedy in [0, parameters.greedy] {
        let (packet, rate) = (parameters.packet, parameters.rate);
        settings.extend(MODES.map(|mode| Setting {
            mode,
            greedy,
            packet,
            rate,
        }));
    }
    for &packets in &parameters.packet_rates {
        let (greedy, packet) = (parameters.greedy, parameters.small_packet);
        let bps = packets * f64::from(packet) * 8.0;
        let rate = Rate::from_bps(bps as u64).with_context(|| format!("a link of {bps} bit/s"))?;
        settings.extend(MODES.map(|mode| Setting {
            mode,
            greedy,
            packet,
            rate,
        }));
    }
    Ok(settings)
}

fn case(lab: &Lab, parameters: &Parameters, setting: &Setting) -> Result<Case> {
    Ok(Case {
        rate: setting.rate,
        victim: Some(Victim {
            packets_per_second: parameters.victim_pps,
            weight: weight(parameters.victim_weight)?,
        }),
        ..greedy(
            lab,
            parameters.alg,
            setting.mode,
            setting.greedy,
            setting.packet,
        )?
    })
}

fn delays(setting: &Setting, case: &Case, outcome: &Outcome) -> Result<Delays> {
    let victim = case.victim.context("a victim")?;
    let delays = outcome.victim_ns.with_context(|| {
        let seconds = case.seconds;
        format!("no packet of the victim's was released in {seconds} s: give it more time")
    })?;
    let [min, p10, p50] = [delays.min, delays.p10, delays.p50];
    let us = [min, p10, p50, delays.p90, delays.p98, delays.p99].map(us);
    let bound = |scan| bound(case, &victim, outcome.decisions, Nanos(scan));
    let bounds = match outcome.delta_a_ns {
        Some(looks) => Some((bound(looks.mean)?, bound(looks.max)?)),
        None => None,
    };
    Ok(Delays {
        mode: decider(setting.mode),
        clients: setting.greedy + 1,
        packet: setting.packet,
        link_mpps: setting.packet_rate() / 1e6,
        us,
        max_us: delays.max as f64 / 1e3,
        bound_us: bounds.map(|(mean, _)| mean),
        longest_bound_us: bounds.map(|(_, longest)| longest),
    })
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

/// How long a packet of the victim's may take, in microseconds, if the arbiter makes a
/// round every `scan` (D_A) and all sent `packets`.
///
/// Eq. 1 where nobody stands between arbiter and link: what may be released by then is
/// released in the next round, so that D_D is D_A; it is released in order, so that the
/// (1 + k) D_D for what dispatchers send side by side fall away. The packet itself takes
/// its time at the victim's own rate. The victim sends so little that it never has two
/// packets waiting.
fn bound(case: &Case, victim: &Victim, packets: u64, scan: Nanos) -> Result<f64> {
    let own = case.flow_of(victim.weight);
    let wfi = case.guarantees(packets).of(&own);
    let wfi = wfi.context("the algorithm promises nothing")?;
    let others = (0..case.clients).map(|client| u64::from(case.weight(client).get()));
    let sum = u64::from(own.weight.get()) + others.sum::<u64>();
    let terms = Terms::new(own.weight, sum, case.packet, case.packet, Transmit::Direct)?;
    let algorithm = terms.worst_delay(wfi, u64::from(case.packet.get()), case.rate);
    Ok(us(bounds::pspat_direct(algorithm, scan).0))
}

fn middle(runs: &[Delays]) -> Delays {
    let figure = |pick: &dyn Fn(&Delays) -> f64| median(runs.iter().map(pick));
    let bound = |pick: fn(&Delays) -> Option<f64>| {
        let bounds: Option<Vec<f64>> = runs.iter().map(pick).collect();
        bounds.map(median)
    };
    Delays {
        us: std::array::from_fn(|place| figure(&|run| run.us[place])),
        // What must never be exceeded is compared with the worst of all rounds.
        max_us: runs.iter().map(|run| run.max_us).fold(0.0, f64::max),
        bound_us: bound(|run| run.bound_us),
        longest_bound_us: runs
            .iter()
            .filter_map(|run| run.longest_bound_us)
            .reduce(f64::max),
        ..runs[0].clone()
    }
}

fn findings(parameters: &Parameters, paper: &Paper, measured: &[Delays]) -> Findings {
    let rate = |mpps: f64, packet: u32| format!("{} Mpps of {packet} B", digits(mpps));
    let ours = measured.iter().map(|run| {
        let link = rate(run.link_mpps, run.packet);
        let name = format!("here, {}, {}", run.mode, link);
        let us = run.us.iter().chain([&run.max_us]).map(|us| digits(*us));
        let bounds = [run.bound_us, run.longest_bound_us];
        let bounds = bounds.map(|bound| bound.map_or("-".into(), digits));
        let cells = us.chain(bounds);
        [name, run.clients.to_string()]
            .into_iter()
            .chain(cells)
            .collect()
    });
    let theirs = paper.rows.iter().map(|row| {
        let us = row
            .us
            .iter()
            .map(|us| digits(*us))
            .chain(["-", "-", "-"].map(str::to_owned));
        let name = format!("paper, {}", row.configuration);
        [name, row.clients.to_string()]
            .into_iter()
            .chain(us)
            .collect()
    });
    let header = [
        "victim's delay, us",
        "clients",
        "min",
        "10%",
        "50%",
        "90%",
        "98%",
        "99%",
        "max",
        "bound",
        "with longest D_A",
    ];
    let Saturation {
        i7_tc,
        i7_pspat,
        xeon40_tc,
        xeon40_pspat,
    } = paper.saturation_mpps;
    Findings {
        ours: json!(measured),
        papers: json!(paper),
        table: Rows {
            header: header.map(str::to_owned).into(),
            rows: ours.chain(theirs).collect(),
        },
        chart: chart(parameters, measured),
        verdict: judge(measured),
        notes: vec![
            format!(
                "The victim sends {} packets a second with weight {}, the others as fast as they \
                 can with weight 1. Its delay is from its push to its release to the link, the \
                 paper's to the receiver: over a NIC in Table 3, over loopback in Fig. 11.",
                parameters.victim_pps, parameters.victim_weight
            ),
            "The bound is Eq. 1 with nobody between arbiter and link, T-WFI_SA + 2 D_A, and the \
             packet itself at the victim's rate. D_A is the time between two looks at a mailbox, \
             measured in the same run."
                .into(),
            "With the lock, clients of one core take turns, as in a kernel, and the victim has the \
             next; but who holds it in user space may lose its core to other programs."
                .into(),
            format!(
                "In the paper's Fig. 11 delays turn upwards at {i7_tc} Mpps (TC) and {i7_pspat} \
                 Mpps (PSPAT) on I7, and at {xeon40_tc} and {xeon40_pspat} Mpps on XEON40."
            ),
        ],
    }
}

/// Fig. 11.
fn chart(parameters: &Parameters, measured: &[Delays]) -> Chart {
    let fig11 = || {
        measured
            .iter()
            .filter(|run| run.packet == parameters.small_packet)
    };
    let curve = |mode: Mode, pick: &dyn Fn(&Delays) -> Option<f64>| {
        let runs = fig11().filter(|run| run.mode == decider(mode));
        runs.filter_map(|run| Some((run.link_mpps * 1e6, pick(run)?)))
            .collect()
    };
    let p98 = |run: &Delays| Some(run.us[4]);
    Chart {
        x: Axis::log("rate of the link, packets of 60 bytes a second"),
        y: Axis::log("98th percentile of the victim's delay, us"),
        curves: vec![
            Curve::ours(1, "here, lock", curve(Mode::Lock, &p98)),
            Curve::ours(2, "here, PSPAT", curve(Mode::Pspat, &p98)),
            Curve::papers(2, "bound of Eq. 1", curve(Mode::Pspat, &|run| run.bound_us)),
        ],
    }
}

fn judge(measured: &[Delays]) -> Verdict {
    let bounded = || {
        measured.iter().filter_map(|run| {
            let (usual, longest) = (run.bound_us?, run.longest_bound_us?);
            Some((run.us[5] / usual, run.max_us / longest))
        })
    };
    let usual = bounded().map(|(usual, _)| usual).fold(0.0, f64::max);
    let worst = bounded().map(|(_, worst)| worst).fold(0.0, f64::max);
    Verdict {
        holds: bounded().count() > 0 && usual <= 1.0 && worst <= 1.0,
        criterion: "in every PSPAT run 99% of the victim's packets are within the bound with the \
                    mean D_A, and all within the bound with the longest"
            .into(),
        found: format!(
            "the 99th percentile is at most {} of the bound, and the longest delay {}",
            digits(usual),
            digits(worst)
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn run(p99: f64, max: f64, bound: Option<f64>) -> Delays {
        Delays {
            mode: "PSPAT",
            clients: 5,
            packet: 60,
            link_mpps: 1.0,
            us: [1.0, 2.0, 3.0, 4.0, 5.0, p99],
            max_us: max,
            bound_us: bound,
            longest_bound_us: bound.map(|bound| bound * 2.0),
        }
    }

    #[test]
    fn the_claim_needs_every_run_within_both_bounds() {
        let good = run(9.0, 19.0, Some(10.0));
        assert!(judge(std::slice::from_ref(&good)).holds);
        assert!(!judge(&[good.clone(), run(11.0, 19.0, Some(10.0))]).holds);
        assert!(!judge(&[good.clone(), run(9.0, 21.0, Some(10.0))]).holds);
        // A lock has no bound to keep.
        assert!(judge(&[good, run(1e6, 1e6, None)]).holds);
        assert!(!judge(&[run(1.0, 1.0, None)]).holds);
        assert!(!judge(&[]).holds);
    }

    fn parameters() -> Parameters {
        Latency.files().scenario::<Parameters>().unwrap().parameters
    }

    #[test]
    fn a_bound_is_the_packet_a_round_and_the_looks() {
        // Packets of 1500 bytes at 10 Gbit/s take 1.2 us. The victim has 50 of 54 shares,
        // and a round beside it is four quanta of one packet and four packets, and one is
        // under way: 54/50 + 9 packets, and two rounds. The quantum is a packet for weight 1.
        let setting = Setting {
            mode: Mode::Pspat,
            greedy: 4,
            packet: 1500,
            rate: "10gbit".parse().unwrap(),
        };
        let stop = AtomicBool::new(false);
        let lab = Lab::new("test", 1.0, 1, &stop);
        let case = case(&lab, &parameters(), &setting).unwrap();
        let victim = case.victim.unwrap();
        let bound = bound(&case, &victim, 1_000_000, Nanos(1000)).unwrap();
        let packets = 54.0 / 50.0 + 9.0;
        assert!((bound - (packets * 1.2 + 2.0)).abs() < 0.002, "{bound}");
    }

    #[test]
    fn the_papers_rows_and_ours_fill_one_table() {
        let paper: Paper = Latency.files().paper().unwrap();
        let runs = [run(1.0, 2.0, Some(3.0)), run(1.0, 2.0, None)];
        let table = findings(&parameters(), &paper, &runs).table;
        assert_eq!(table.rows.len(), 8);
        assert!(table.rows.iter().all(|row| row.len() == table.header.len()));
    }
}
