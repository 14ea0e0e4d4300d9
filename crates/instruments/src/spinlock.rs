//! `pspat-table1`: what a lock costs when many want it.

use std::fmt;
use std::hint::spin_loop;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::busy::{Busy, steps};
use super::experiment::{Experiment, Files, Findings, Rows, Verdict, digits, files, median};
use super::lab::Lab;
use super::line::Line;
use super::machine;
use crate::plot::{Axis, Chart, Curve};

/// Table 1.
pub(super) struct Table1;

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    section_ns: f64,
    users: Vec<u32>,
    patience: u32,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Paper {
    machine: String,
    users: Vec<u32>,
    us_per_section: Vec<f64>,
    total_mops: Vec<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Looks until the lock is free, as in a kernel, where a holder keeps its core.
    Spin,
    /// Gives up its core after so many looks.
    Yield(u32),
}

#[derive(Clone, Copy, Debug)]
struct Case {
    users: u32,
    kind: Kind,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Spin => "spin",
            Kind::Yield(_) => "spin, then yield",
        };
        write!(f, "{} users, {kind}", self.users)
    }
}

/// Our figures for a number of users.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Point {
    users: u32,
    /// The median of all rounds, and the extremes.
    total_mops: f64,
    least_mops: f64,
    most_mops: f64,
    /// From one section of a user to its next.
    us_per_section: f64,
    /// The same with the lock that yields.
    yielding_mops: f64,
}

impl Experiment for Table1 {
    fn files(&self) -> Files {
        files!("pspat-table1")
    }

    fn measurements(&self) -> Result<usize> {
        let scenario = self.files().scenario::<Parameters>()?;
        Ok(scenario.parameters.users.len() * 2 * scenario.rounds)
    }

    fn measure(&self, lab: &Lab) -> Result<Findings> {
        let scenario = self.files().scenario::<Parameters>()?;
        let parameters = scenario.parameters;
        let paper: Paper = self.files().paper()?;
        let cores = machine::cores()?;
        ensure!(
            cores.len() > 1,
            "{} needs two cores, and this program may run on one only",
            self.files().name
        );
        let users = || parameters.users.iter();
        let kinds = [Kind::Spin, Kind::Yield(parameters.patience)];
        let cases: Vec<Case> = users()
            .flat_map(|&users| kinds.map(|kind| Case { users, kind }))
            .collect();
        let rates = lab.rounds(&cases, scenario.rounds, scenario.seed, |&case| {
            contend(lab, case, parameters.section_ns, &cores)
        })?;
        let points: Vec<Point> = users()
            .zip(rates.chunks_exact(kinds.len()))
            .map(|(&users, rates)| point(users, &rates[0], &rates[1]))
            .collect();
        Ok(findings(&parameters, &paper, &points, cores.len()))
    }
}

fn point(users: u32, spinning: &[f64], yielding: &[f64]) -> Point {
    let total_mops = median(spinning.iter().copied());
    Point {
        users,
        total_mops,
        least_mops: spinning.iter().copied().fold(f64::INFINITY, f64::min),
        most_mops: spinning.iter().copied().fold(0.0, f64::max),
        us_per_section: f64::from(users) / total_mops,
        yielding_mops: median(yielding.iter().copied()),
    }
}

/// Test and test-and-set, as in the C library: whoever waits reads only.
struct SpinLock(AtomicBool);

impl SpinLock {
    #[inline]
    fn lock(&self, kind: Kind) {
        while self.0.swap(true, Ordering::Acquire) {
            let mut looks = 0;
            while self.0.load(Ordering::Relaxed) {
                spin_loop();
                looks += 1;
                if kind == Kind::Yield(looks) {
                    thread::yield_now();
                    looks = 0;
                }
            }
        }
    }

    #[inline]
    fn unlock(&self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Millions of sections a second that all users of one lock do together.
fn contend(lab: &Lab, case: Case, section_ns: f64, cores: &[usize]) -> Result<f64> {
    // Each time anew: a processor's speed changes with what else it and its host do.
    let section = Busy::calibrate().for_ns(section_ns);
    let lock = Line(SpinLock(AtomicBool::new(false)));
    // Counted without an atomic addition: only a lock that excludes makes it right.
    let counted = Line(AtomicU64::new(0));
    // Handed on from section to section, so that none begins before the last has ended.
    let work = Line(AtomicU64::new(1));
    let stop = Line(AtomicBool::new(false));
    let barrier = Barrier::new(case.users as usize);
    let user = |core: usize| -> Result<(Instant, u64)> {
        let pinned = machine::pin(core);
        barrier.wait();
        pinned?;
        let start = Instant::now();
        let mut sections = 0;
        while !stop.0.load(Ordering::Relaxed) {
            lock.0.lock(case.kind);
            work.0.store(
                steps(section, work.0.load(Ordering::Relaxed)),
                Ordering::Relaxed,
            );
            counted
                .0
                .store(counted.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            lock.0.unlock();
            sections += 1;
        }
        Ok((start, sections))
    };
    thread::scope(|scope| {
        let (user, all) = (&user, cores.iter().cycle().take(case.users as usize));
        let users: Vec<_> = all.map(|&core| scope.spawn(move || user(core))).collect();
        // The last of many threads may have to wait for a core.
        let begun =
            || counted.0.load(Ordering::Relaxed) > 0 || users.iter().any(|user| user.is_finished());
        let waited = lab.wait(begun);
        stop.0.store(true, Ordering::Relaxed);
        let end = Instant::now();
        let mut first = end;
        let mut total = 0;
        for user in users {
            let (start, sections) = user.join().expect("a user of the lock panicked")?;
            first = first.min(start);
            total += sections;
        }
        waited?;
        ensure!(
            total == counted.0.load(Ordering::Relaxed),
            "the spinlock let two users in at once"
        );
        Ok(total as f64 / (end - first).as_secs_f64() / 1e6)
    })
}

fn findings(parameters: &Parameters, paper: &Paper, points: &[Point], cores: usize) -> Findings {
    let papers = |users: u32, column: &[f64]| {
        let place = paper.users.iter().position(|&known| known == users);
        place.map_or("-".to_owned(), |place| digits(column[place]))
    };
    let row = |point: &Point| {
        vec![
            point.users.to_string(),
            papers(point.users, &paper.total_mops),
            digits(point.total_mops),
            format!("{}..{}", digits(point.least_mops), digits(point.most_mops)),
            papers(point.users, &paper.us_per_section),
            digits(point.us_per_section),
            digits(point.yielding_mops),
        ]
    };
    let header = [
        "users",
        "paper Mops/s",
        "here Mops/s",
        "least..most",
        "paper us/op",
        "here us/op",
        "here, yielding Mops/s",
    ];
    let x = |users: &u32| f64::from(*users);
    let curve = |pick: fn(&Point) -> f64| points.iter().map(|p| (x(&p.users), pick(p))).collect();
    let theirs = paper
        .users
        .iter()
        .map(x)
        .zip(paper.total_mops.iter().copied());
    let rates: Vec<(u32, f64)> = points.iter().map(|p| (p.users, p.total_mops)).collect();
    Findings {
        ours: json!(points),
        papers: json!(paper),
        table: Rows {
            header: header.map(str::to_owned).into(),
            rows: points.iter().map(row).collect(),
        },
        chart: Chart {
            x: Axis::log("users of the lock"),
            y: Axis::log("all together, million sections a second"),
            curves: vec![
                Curve::papers(0, "paper", theirs.collect()),
                Curve::ours(0, "here", curve(|point| point.total_mops)),
                Curve::ours(
                    1,
                    "here, a lock that yields",
                    curve(|point| point.yielding_mops),
                ),
            ],
        },
        verdict: judge(&rates, cores as u32),
        notes: vec![
            "The paper does not say which spinlock; here it is test and test-and-set.".into(),
            format!(
                "The paper's users had a hardware thread each. Here users beyond {cores} share \
                 cores: a holder that loses its core inside the section keeps all others \
                 spinning until it has it again, which costs more than the fight for the cache \
                 line. The lock that gives up its core after {} looks shows what is left \
                 without that.",
                parameters.patience
            ),
        ],
    }
}

/// `rates` are users and what they do together, in millions a second.
fn judge(rates: &[(u32, f64)], cores: u32) -> Verdict {
    let alone = rates.iter().find(|(users, _)| *users == 1);
    let alone = alone.map_or(f64::NAN, |(_, rate)| *rate);
    let with_cores = rates
        .iter()
        .filter(|(users, _)| (2..=cores).contains(users));
    let with_cores = with_cores.max_by_key(|(users, _)| *users);
    let &(most, least) = rates
        .iter()
        .max_by_key(|(users, _)| *users)
        .unwrap_or(&(0, f64::NAN));
    let (fewer, rate) = with_cores.copied().unwrap_or((0, f64::NAN));
    Verdict {
        holds: rate < alone && least < alone / 2.0,
        criterion: format!(
            "users with a core each ({fewer}) do less together than one alone, and the most \
             users ({most}) less than half of it"
        ),
        found: format!(
            "{fewer} users do {} times what one does alone, {most} users {} times",
            digits(rate / alone),
            digits(least / alone)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_claim_holds_for_the_papers_own_figures() {
        let paper: Paper = Table1.files().paper().unwrap();
        assert_eq!(paper.users.len(), paper.us_per_section.len());
        let rates: Vec<_> = paper.users.iter().copied().zip(paper.total_mops).collect();
        let verdict = judge(&rates, 40);
        assert!(
            verdict.holds && verdict.found.contains("0.0550"),
            "{verdict:?}"
        );
    }

    #[test]
    fn the_claim_fails_where_a_lock_scales_or_only_sharing_a_core_costs() {
        assert!(!judge(&[(1, 10.0), (2, 11.0), (40, 12.0)], 2).holds);
        // Slower only with more users than cores: not contention.
        assert!(!judge(&[(1, 10.0), (2, 10.0), (40, 1.0)], 2).holds);
        // Slower with two, and then no further.
        assert!(!judge(&[(1, 10.0), (2, 8.0), (40, 8.0)], 2).holds);
        assert!(judge(&[(1, 10.0), (2, 8.0), (40, 4.9)], 2).holds);
        // Nothing to compare with.
        assert!(!judge(&[(1, 10.0), (40, 1.0)], 2).holds);
        assert!(!judge(&[], 2).holds);
    }

    #[test]
    fn a_lock_lets_one_in_at_a_time_and_everyone_in() {
        let stop = AtomicBool::new(false);
        let lab = Lab::new("test", 0.05, 1, &stop);
        let cores = machine::cores().unwrap();
        for kind in [Kind::Spin, Kind::Yield(10)] {
            // Fails by itself if the sections were not one after another.
            let case = Case { users: 4, kind };
            assert!(contend(&lab, case, 20.0, &cores).unwrap() > 0.0);
        }
    }
}
