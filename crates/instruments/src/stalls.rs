//! `pspat-table2`: what it costs to read what another core writes, and to write what it
//! reads, after the paper's Appendix A.

use std::fmt;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::busy::{Busy, steps};
use super::experiment::{Experiment, Files, Findings, Rows, Verdict, digits, files, median};
use super::lab::Lab;
use super::line::Line;
use super::machine::{self, Distance};
use crate::plot::{Axis, Chart, Curve};

/// Table 2.
pub(super) struct Table2;

/// A slow access costs at least so many fast ones, where the claim holds.
const MANY: f64 = 5.0;

/// Accesses between two looks at whether to stop.
const BATCH: u64 = 64;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    slowest_ns: u32,
    fastest_ns: u32,
}

impl Parameters {
    /// The rates of the slower side.
    fn paces(&self) -> Vec<Pace> {
        let every = std::iter::successors(Some(self.slowest_ns), |ns| Some(ns / 2));
        let every = every
            .take_while(|&ns| ns >= self.fastest_ns.max(1))
            .map(Pace::Every);
        std::iter::once(Pace::Never)
            .chain(every)
            .chain([Pace::Always])
            .collect()
    }
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Paper {
    machine: String,
    pairs: Vec<PaperPair>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct PaperPair {
    pair: String,
    visible_updates_per_sec: f64,
    read_stall_ns: [f64; 2],
    write_stall_ns: Option<[f64; 2]>,
}

/// How fast the slower side goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    Never,
    /// A pause of so many nanoseconds after each access.
    Every(u32),
    Always,
}

/// Which side goes as fast as it can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fast {
    Reader,
    Writer,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    cores: [usize; 2],
    distance: Distance,
    fast: Fast,
    pace: Pace,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (fast, slow) = match self.fast {
            Fast::Reader => ("reads", "writes"),
            Fast::Writer => ("writes", "reads"),
        };
        write!(f, "{}, {fast} against ", self.distance.name())?;
        match self.pace {
            Pace::Never => write!(f, "no {slow}"),
            Pace::Every(ns) => write!(f, "{slow} every {ns} ns"),
            Pace::Always => write!(f, "{slow} at once"),
        }
    }
}

/// What was counted in a run.
#[derive(Clone, Copy, Debug)]
struct Counts {
    /// The fast side's accesses, and its time: N and D of the appendix.
    accesses: f64,
    ns: f64,
    /// Different values that the reader saw: N_RS.
    changes: f64,
    /// Writes a second.
    written: f64,
}

/// The mean cost of an access, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Cost {
    fast_ns: f64,
    slow_ns: f64,
}

/// Eq. A.1 and A.2 over all `runs`, by least squares: N_RS accesses are slow, the others
/// fast, and together they take D. Nothing where the runs do not tell the two apart.
fn fit(runs: &[Counts]) -> Option<Cost> {
    let (mut ss, mut sf, mut ff, mut sd, mut fd) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for run in runs {
        // Per nanosecond, so that runs count alike whatever their length.
        let slow = run.changes / run.ns;
        let fast = (run.accesses - run.changes) / run.ns;
        ss += slow * slow;
        sf += slow * fast;
        ff += fast * fast;
        sd += slow;
        fd += fast;
    }
    let determinant = ss * ff - sf * sf;
    (determinant > 1e-9 * ss * ff).then(|| Cost {
        slow_ns: (sd * ff - fd * sf) / determinant,
        fast_ns: (fd * ss - sd * sf) / determinant,
    })
}

/// Our figures for a pair of cores.
#[derive(Clone, Debug, Serialize)]
struct Pair {
    pair: Distance,
    cores: [usize; 2],
    /// The most that any rate of writes made visible.
    visible_updates_per_sec: f64,
    read: Cost,
    write: Cost,
    /// At each rate of writes.
    visible: Vec<Visible>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Visible {
    writes_per_sec: f64,
    seen_per_sec: f64,
}

impl Experiment for Table2 {
    fn files(&self) -> Files {
        files!("pspat-table2")
    }

    fn measurements(&self) -> Result<usize> {
        let scenario = self.files().scenario::<Parameters>()?;
        let paces = scenario.parameters.paces().len();
        Ok(machine::pairs()?.len() * paces * 2 * scenario.rounds)
    }

    fn measure(&self, lab: &Lab) -> Result<Findings> {
        let scenario = self.files().scenario::<Parameters>()?;
        let paper: Paper = self.files().paper()?;
        let pairs = machine::pairs()?;
        ensure!(
            !pairs.is_empty(),
            "{} needs two cores, and this program may run on one only",
            self.files().name
        );
        let busy = Busy::calibrate();
        let paces = scenario.parameters.paces();
        let mut cases = Vec::new();
        for &(distance, cores) in &pairs {
            for fast in [Fast::Reader, Fast::Writer] {
                cases.extend(paces.iter().map(|&pace| Case {
                    cores,
                    distance,
                    fast,
                    pace,
                }));
            }
        }
        let counts = lab.rounds(&cases, scenario.rounds, scenario.seed, |&case| {
            run(lab, case, busy)
        })?;
        let measured = pairs.iter().zip(counts.chunks_exact(paces.len() * 2)).map(
            |(&(pair, cores), counts)| {
                let (reads, writes) = counts.split_at(paces.len());
                summary(pair, cores, reads, writes)
            },
        );
        Ok(findings(&paper, &measured.collect::<Vec<_>>()))
    }
}

/// `reads` and `writes`: for each pace the runs of all rounds, with a fast reader or writer.
fn summary(
    pair: Distance,
    cores: [usize; 2],
    reads: &[Vec<Counts>],
    writes: &[Vec<Counts>],
) -> Pair {
    // Each round by itself, then the middle one: a disturbed run spoils one round only.
    let cost = |runs: &[Vec<Counts>]| {
        let rounds = runs.iter().map(Vec::len).min().unwrap_or(0);
        let round = |round: usize| runs.iter().map(|runs| runs[round]).collect::<Vec<_>>();
        let fits: Vec<Cost> = (0..rounds)
            .filter_map(|number| fit(&round(number)))
            .collect();
        Cost {
            fast_ns: median(fits.iter().map(|fit| fit.fast_ns)),
            slow_ns: median(fits.iter().map(|fit| fit.slow_ns)),
        }
    };
    let visible = |runs: &Vec<Counts>| Visible {
        writes_per_sec: median(runs.iter().map(|run| run.written)),
        seen_per_sec: median(runs.iter().map(|run| run.changes / run.ns * 1e9)),
    };
    let mut visible: Vec<Visible> = reads.iter().map(visible).collect();
    visible.sort_by(|one, other| one.writes_per_sec.total_cmp(&other.writes_per_sec));
    Pair {
        pair,
        cores,
        visible_updates_per_sec: visible.iter().map(|v| v.seen_per_sec).fold(0.0, f64::max),
        read: cost(reads),
        write: cost(writes),
        visible: visible
            .into_iter()
            .filter(|v| v.writes_per_sec > 0.0)
            .collect(),
    }
}

/// The two variables, which writer and reader take in turn: enough to keep the buffer for
/// writes full.
type Shared = [Line<AtomicU64>; 2];

/// Writes until told to stop; the number of writes.
fn write(shared: &Shared, stop: &AtomicBool, pause: impl Fn()) -> u64 {
    let mut written = 0;
    while !stop.load(Ordering::Relaxed) {
        for turn in 0..BATCH {
            shared[turn as usize % 2]
                .0
                .store(written + turn + 1, Ordering::Relaxed);
            pause();
        }
        written += BATCH;
    }
    written
}

/// Reads until told to stop; the number of reads, and of those that found a new value.
fn read(shared: &Shared, stop: &AtomicBool, pause: impl Fn()) -> (u64, u64) {
    let (mut reads, mut changes) = (0, 0);
    let mut last = [0, 0];
    while !stop.load(Ordering::Relaxed) {
        for turn in 0..BATCH as usize {
            let value = shared[turn % 2].0.load(Ordering::Relaxed);
            // Without a branch: a wrong guess would count as a part of the stall.
            changes += u64::from(value != last[turn % 2]);
            last[turn % 2] = value;
            pause();
        }
        reads += BATCH;
    }
    (reads, changes)
}

fn run(lab: &Lab, case: Case, busy: Busy) -> Result<Counts> {
    let shared = Shared::default();
    let stop = Line(AtomicBool::new(false));
    let (ready, begun) = (Barrier::new(2), AtomicU32::new(0));
    let [reader_core, writer_core] = case.cores;
    let (reader_pace, writer_pace) = match case.fast {
        Fast::Reader => (Pace::Always, case.pace),
        Fast::Writer => (case.pace, Pace::Always),
    };
    // What a side did, and in how many nanoseconds.
    let begin = |core: usize| -> Result<f64> {
        let pinned = machine::pin(core);
        ready.wait();
        begun.fetch_add(1, Ordering::Relaxed);
        pinned.map(|()| machine::thread_ns())
    };
    let ns = |start: f64| machine::thread_ns() - start;
    let writer = || -> Result<(u64, f64)> {
        let start = begin(writer_core)?;
        let written = match writer_pace {
            Pace::Never => 0,
            Pace::Always => write(&shared, &stop.0, || ()),
            Pace::Every(ns) => {
                let pause = busy.for_ns(f64::from(ns));
                write(&shared, &stop.0, || _ = steps(pause, 1))
            }
        };
        Ok((written, ns(start)))
    };
    let reader = || -> Result<((u64, u64), f64)> {
        let start = begin(reader_core)?;
        let counts = match reader_pace {
            Pace::Never => (0, 0),
            Pace::Always => read(&shared, &stop.0, || ()),
            Pace::Every(ns) => {
                let pause = busy.for_ns(f64::from(ns));
                read(&shared, &stop.0, || _ = steps(pause, 1))
            }
        };
        Ok((counts, ns(start)))
    };
    thread::scope(|scope| {
        let (writer, reader) = (scope.spawn(writer), scope.spawn(reader));
        let waited = lab.wait(|| begun.load(Ordering::Relaxed) == 2);
        stop.0.store(true, Ordering::Relaxed);
        let (written, writing) = writer.join().expect("the writer panicked")?;
        let ((reads, changes), reading) = reader.join().expect("the reader panicked")?;
        waited?;
        let (accesses, ns) = match case.fast {
            Fast::Reader => (reads, reading),
            Fast::Writer => (written, writing),
        };
        Ok(Counts {
            accesses: accesses as f64,
            ns,
            changes: changes as f64,
            written: written as f64 / writing * 1e9,
        })
    })
}

/// One figure in all pairs: from the least to the most in the paper's.
struct Row {
    name: &'static str,
    theirs: fn(&PaperPair) -> Option<[f64; 2]>,
    ours: fn(&Pair) -> f64,
}

fn findings(paper: &Paper, measured: &[Pair]) -> Findings {
    let range = |[least, most]: [f64; 2]| {
        if least == most {
            digits(least)
        } else {
            format!("{least}..{most}")
        }
    };
    // As the paper has it: a column for each distance.
    let rows = [
        Row {
            name: "updates seen, M/s",
            theirs: |pair| Some([pair.visible_updates_per_sec / 1e6; 2]),
            ours: |pair| pair.visible_updates_per_sec / 1e6,
        },
        Row {
            name: "read stall, ns",
            theirs: |pair| Some(pair.read_stall_ns),
            ours: |pair| pair.read.slow_ns,
        },
        Row {
            name: "write stall, ns",
            theirs: |pair| pair.write_stall_ns,
            ours: |pair| pair.write.slow_ns,
        },
        Row {
            name: "other reads, ns",
            theirs: |_| None,
            ours: |pair| pair.read.fast_ns,
        },
        Row {
            name: "other writes, ns",
            theirs: |_| None,
            ours: |pair| pair.write.fast_ns,
        },
    ];
    let row = |row: &Row| {
        let theirs = paper.pairs.iter().map(row.theirs);
        let theirs = theirs.map(|figure| figure.map_or("-".into(), range));
        let ours = measured.iter().map(|pair| digits((row.ours)(pair)));
        std::iter::once(row.name.to_owned())
            .chain(theirs)
            .chain(ours)
            .collect()
    };
    let theirs = paper
        .pairs
        .iter()
        .map(|pair| format!("paper {}", pair.pair));
    let ours = measured
        .iter()
        .map(|pair| format!("here {}", pair.pair.name()));
    let header = std::iter::once(String::new())
        .chain(theirs)
        .chain(ours)
        .collect();
    Findings {
        ours: json!(measured),
        papers: json!(paper),
        table: Rows {
            header,
            rows: rows.iter().map(row).collect(),
        },
        chart: chart(paper, measured),
        verdict: judge(measured),
        notes: vec![
            "Which cores are near each other is what the system says; a virtual machine may be \
             told wrong."
                .into(),
            "A mailbox that moves one item with each change of a cache line could not move more \
             items a second than there are visible updates."
                .into(),
        ],
    }
}

/// Updates seen over updates made.
fn chart(paper: &Paper, measured: &[Pair]) -> Chart {
    let rates = || {
        measured
            .iter()
            .flat_map(|pair| pair.visible.iter().map(|v| v.writes_per_sec))
    };
    let ends = [
        rates().fold(f64::INFINITY, f64::min),
        rates().fold(0.0, f64::max),
    ];
    let theirs = paper.pairs.iter().enumerate().map(|(number, pair)| {
        let level = ends.map(|end| (end, pair.visible_updates_per_sec)).into();
        Curve::papers(number, &format!("paper's most, {}", pair.pair), level)
    });
    let ours = measured.iter().map(|pair| {
        let number = paper
            .pairs
            .iter()
            .position(|known| known.pair == pair.pair.name());
        let name = format!("here, {}", pair.pair.name());
        let visible = pair
            .visible
            .iter()
            .map(|v| (v.writes_per_sec, v.seen_per_sec));
        Curve::ours(number.unwrap_or(0), &name, visible.collect())
    });
    Chart {
        x: Axis::log("writes a second"),
        y: Axis::log("different values a second seen by the reader"),
        curves: ours.chain(theirs).collect(),
    }
}

fn judge(pairs: &[Pair]) -> Verdict {
    let ratio = |cost: &Cost| cost.slow_ns / cost.fast_ns;
    // The paper has no figure for writes between hyperthreads: they share the cache.
    let costs = pairs.iter().flat_map(|pair| {
        let write = (pair.pair != Distance::Hyperthreads).then_some(("written", &pair.write));
        let all = [Some(("read", &pair.read)), write];
        all.into_iter()
            .flatten()
            .map(|(what, cost)| (pair.pair, what, ratio(cost)))
    });
    let costs: Vec<_> = costs.collect();
    let found = costs.iter().map(|(pair, what, ratio)| {
        let ratio = digits(*ratio);
        format!(
            "a line is {what} at {ratio} times the cost ({})",
            pair.name()
        )
    });
    Verdict {
        holds: !costs.is_empty() && costs.iter().all(|(_, _, ratio)| *ratio >= MANY),
        criterion: format!("a slow access costs at least {MANY} fast ones, for every pair"),
        found: found.collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(accesses: f64, changes: f64, cost: Cost) -> Counts {
        Counts {
            accesses,
            changes,
            ns: changes * cost.slow_ns + (accesses - changes) * cost.fast_ns,
            written: changes,
        }
    }

    #[test]
    fn the_costs_of_fast_and_slow_accesses_are_found_from_runs_made_of_them() {
        let cost = Cost {
            fast_ns: 0.7,
            slow_ns: 52.0,
        };
        let runs = [(1e6, 0.0), (9e5, 100.0), (8e5, 3e4), (2e5, 9e4)];
        let found = fit(&runs.map(|(all, slow)| counts(all, slow, cost))).unwrap();
        assert!((found.fast_ns - 0.7).abs() < 1e-9 && (found.slow_ns - 52.0).abs() < 1e-6);
    }

    #[test]
    fn runs_that_are_all_alike_tell_nothing() {
        let cost = Cost {
            fast_ns: 1.0,
            slow_ns: 50.0,
        };
        assert_eq!(fit(&[counts(1e6, 1e5, cost); 3]), None);
        assert_eq!(fit(&[counts(1e6, 0.0, cost); 3]), None);
        assert_eq!(fit(&[]), None);
    }

    fn pair(distance: Distance, read: f64, write: f64) -> Pair {
        let cost = |slow_ns| Cost {
            fast_ns: 1.0,
            slow_ns,
        };
        Pair {
            pair: distance,
            cores: [0, 1],
            visible_updates_per_sec: 2e7,
            read: cost(read),
            write: cost(write),
            visible: vec![],
        }
    }

    #[test]
    fn the_claim_needs_slow_reads_and_slow_writes_at_every_distance() {
        use Distance::*;
        assert!(judge(&[pair(Cores, 50.0, 15.0)]).holds);
        assert!(judge(&[pair(Cores, 50.0, 15.0), pair(Sockets, 130.0, 100.0)]).holds);
        assert!(!judge(&[pair(Cores, 4.9, 15.0)]).holds);
        assert!(!judge(&[pair(Cores, 50.0, 4.9)]).holds);
        assert!(!judge(&[pair(Cores, 50.0, 15.0), pair(Sockets, 2.0, 100.0)]).holds);
        assert!(judge(&[pair(Hyperthreads, 12.0, 1.0)]).holds);
        assert!(!judge(&[pair(Cores, f64::NAN, 15.0)]).holds);
        assert!(!judge(&[]).holds);
    }

    #[test]
    fn rates_begin_with_nothing_double_and_end_with_all_there_is() {
        let parameters = Parameters {
            slowest_ns: 64,
            fastest_ns: 16,
        };
        let paces = [
            Pace::Never,
            Pace::Every(64),
            Pace::Every(32),
            Pace::Every(16),
            Pace::Always,
        ];
        assert_eq!(parameters.paces(), paces);
    }

    #[test]
    fn a_reader_sees_what_a_writer_writes_and_nothing_where_nobody_writes() {
        let stop = AtomicBool::new(false);
        let lab = Lab::new("test", 0.02, 1, &stop);
        let Some(&(distance, cores)) = machine::pairs().unwrap().first() else {
            return;
        };
        let counts = |pace| {
            let case = Case {
                cores,
                distance,
                fast: Fast::Reader,
                pace,
            };
            run(&lab, case, Busy::calibrate()).unwrap()
        };
        let alone = counts(Pace::Never);
        assert!(alone.changes == 0.0 && alone.accesses > 0.0, "{alone:?}");
        let both = counts(Pace::Every(1000));
        assert!(
            both.changes > 0.0 && both.changes <= both.accesses,
            "{both:?}"
        );
    }
}
