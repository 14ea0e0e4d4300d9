//! A search for the senders under which an algorithm, or a tree of classes, comes closest to its bounds.
//!
//! Random arrivals are fixed beforehand, but senders on a link react: most send when a packet of their own has left.
//! The senders here react to service. A flow has one packet outstanding and returns at a chosen instant after it became
//! idle, a burst arrives while a packet of its flow is on the wire, a flow follows the service of others, or it sends a
//! chosen part of its share; 2 to 4,096 flows, light next to heavy ones. The search climbs from the best of some random
//! scenarios, by small changes, to larger ratios of measured index to bound: B-WFI, T-WFI and latency of each flow over
//! its bound in [`fairlane_core::bounds`], also of packets still queued at the end.

mod link;
mod play;
mod scenario;
mod text;

use std::fmt::{self, Debug};

use fairlane_core::Scheduler;
use fairlane_core::sched::Algorithm;

use crate::broken::Broken;
use crate::flows::Random;
use link::Build;
use scenario::{Scenario, Space};

/// Random scenarios of which the best is the start of a climb.
const STARTS: u32 = 10;
/// Consecutive changes without improvement after which the search starts again.
const PATIENCE: u32 = 25;
/// The ratio above which a bound is broken; it allows for rounding of the measurement.
const BROKEN: f64 = 1.0 + 1e-9;
/// Budget of packets and flows for simplifying a scenario.
const SIMPLIFYING: u64 = 500_000;

/// The adversary of an algorithm or of a tree, and how long it searches.
///
/// Lengths and times are in bytes of the link, which are nanoseconds at 8 Gbit/s. A search is the same for the same
/// seed. It costs 3 to 10 us for each packet and flow in a debug build, and about as much again to simplify a scenario
/// that breaks a bound.
///
/// ```
/// use fairlane_core::sched::{Algorithm, Qfq};
/// use fairlane_testkit::Adversary;
///
/// let adversary = Adversary::of(Qfq::new, Algorithm::Qfq).packets(5_000);
/// assert!(adversary.check()?.ratio > 0.2);
/// // A tree of up to three levels, with ceilings.
/// let tree = Adversary::of_tree(Algorithm::Drr, Algorithm::Scfq).with_ceilings();
/// tree.seed(7).packets(5_000).assert();
/// # Ok::<(), fairlane_testkit::Broken>(())
/// ```
pub struct Adversary {
    name: &'static str,
    build: Box<Build>,
    space: Space,
    seed: u64,
    packets: u64,
    /// The only index to search for, if set.
    index: Option<Index>,
}

/// An index of a flow that has a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Index {
    /// B-WFI.
    Service,
    /// T-WFI.
    Delay,
    /// Latency as a guaranteed-rate server.
    Latency,
}

impl Index {
    /// All indexes.
    pub const ALL: [Index; 3] = [Index::Service, Index::Delay, Index::Latency];

    /// Returns its name in sentences.
    pub const fn name(self) -> &'static str {
        match self {
            Index::Service => "B-WFI",
            Index::Delay => "T-WFI",
            Index::Latency => "latency",
        }
    }
}

impl Debug for Adversary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adversary")
            .field("name", &self.name)
            .field("seed", &self.seed)
            .field("packets", &self.packets)
            .finish_non_exhaustive()
    }
}

/// The closest approach of a search to a bound.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Nearest {
    /// The measured B-WFI, T-WFI or latency of a flow over its bound.
    pub ratio: f64,
    /// The index and its flow, in a sentence.
    pub what: String,
    /// The senders, in a form that [`Adversary::replay`] reads.
    pub scenario: String,
    /// Scenarios in all.
    pub tried: u64,
}

impl Adversary {
    /// Returns the adversary of an algorithm with the guarantees of `guarantees`.
    ///
    /// A B-WFI that is not [strict](fairlane_core::bounds::Wfi::strict) is not measured, only the T-WFI. Without
    /// a known bound nothing is.
    pub fn of<A: Scheduler + 'static>(
        make: impl Fn() -> A + 'static,
        guarantees: Algorithm,
    ) -> Adversary {
        let build = move |scenario: &Scenario| link::flat(make(), scenario, guarantees);
        Adversary::new(A::NAME, Box::new(build), 0)
    }

    /// Returns the adversary of trees in which `root` orders the children of the root and `below` those of the classes
    /// below it: one to three classes, in one, two or three levels, above flows of their own.
    ///
    /// # Panics
    ///
    /// If `root` or `below` follows every packet, which leaves no place for classes.
    pub fn of_tree(root: Algorithm, below: Algorithm) -> Adversary {
        let orders = |algorithm: Algorithm| !algorithm.follows_packets();
        assert!(
            orders(root) && orders(below),
            "{root} over {below} orders no classes"
        );
        let build = move |scenario: &Scenario| link::tree(root, below, scenario);
        Adversary::new(root.name(), Box::new(build), 3)
    }

    fn new(name: &'static str, build: Box<Build>, classes: usize) -> Adversary {
        Adversary {
            name,
            build,
            space: Space {
                classes,
                ceilings: false,
            },
            seed: 1,
            packets: 20_000,
            index: None,
        }
    }

    /// Restricts the search to this index.
    #[must_use]
    pub fn index(self, index: Index) -> Adversary {
        Adversary {
            index: Some(index),
            ..self
        }
    }

    /// Gives some classes of a tree ceilings, with bursts that leave them their guarantees.
    #[must_use]
    pub fn with_ceilings(mut self) -> Adversary {
        self.space.ceilings = true;
        self
    }

    /// Sets the seed: the same seed makes the same search.
    #[must_use]
    pub fn seed(self, seed: u64) -> Adversary {
        Adversary { seed, ..self }
    }

    /// Ends the search after this many packets and flows of all its scenarios. The default is 20,000, which takes some
    /// tenths of a second in a debug build and covers ten scenarios. A search for a known defect needs 100,000 or more.
    #[must_use]
    pub fn packets(self, packets: u64) -> Adversary {
        Adversary { packets, ..self }
    }

    /// Searches, and returns the closest approach to a bound.
    ///
    /// # Errors
    ///
    /// A scenario that breaks a bound, simplified as far as possible; or one in which a packet is rejected or altered,
    /// or in which the algorithm's own invariants do not hold at the end.
    pub fn check(&self) -> Result<Nearest, Broken> {
        let mut random = Random(self.seed);
        let mut search = Search {
            adversary: self,
            spent: 0,
            tried: 0,
        };
        let mut best = search.climb(&mut random)?;
        while search.spent < self.packets {
            let next = search.climb(&mut random)?;
            if next.0.ratio > best.0.ratio {
                best = next;
            }
        }
        let (found, scenario) = best;
        Ok(found.nearest(scenario.to_string(), search.tried))
    }

    /// Runs one scenario in the format of [`Nearest::scenario`].
    ///
    /// # Errors
    ///
    /// Those of [`check`](Self::check), or `scenario` is malformed.
    pub fn replay(&self, scenario: &str) -> Result<Nearest, Broken> {
        let parsed = scenario.parse::<Scenario>();
        let found = parsed.and_then(|scenario| self.run(&scenario));
        let broken = |what| Broken {
            algorithm: self.name,
            check: "replay",
            what,
            seed: self.seed,
            smallest: scenario.into(),
        };
        match found {
            Ok(found) if found.ratio <= BROKEN => Ok(found.nearest(scenario.into(), 1)),
            Ok(found) => Err(broken(found.what())),
            Err(what) => Err(broken(what)),
        }
    }

    /// Searches, and panics on failure.
    ///
    /// # Panics
    ///
    /// With the scenario that [`check`](Self::check) returns as an error.
    pub fn assert(&self) {
        if let Err(broken) = self.check() {
            panic!("{broken}");
        }
    }

    fn broken(&self, what: String, scenario: &Scenario) -> Broken {
        Broken {
            algorithm: self.name,
            check: "adversary",
            what,
            seed: self.seed,
            smallest: scenario.to_string(),
        }
    }

    /// Runs a scenario and returns the largest ratio.
    fn run(&self, scenario: &Scenario) -> Result<Found, String> {
        let (mut link, bounds) = (self.build)(scenario)?;
        let rates: Vec<f64> = bounds.iter().map(|bound| bound.rate).collect();
        let meter = play::play(scenario, link.as_mut(), &rates)?;
        let mut found = Found::default();
        for (flow, &bound) in bounds.iter().enumerate() {
            let looked_at = |index: &Index| self.index.is_none_or(|only| only == *index);
            for index in Index::ALL.into_iter().filter(looked_at) {
                let (measured, bound) = match index {
                    Index::Service => (meter.service(flow), bound.service),
                    Index::Delay => (meter.delay(flow), bound.delay),
                    Index::Latency => (meter.latency(flow), bound.latency),
                };
                found.see(index.name(), flow, measured, bound);
            }
        }
        Ok(found)
    }
}

/// The largest ratio of a run.
#[derive(Clone, Debug, Default)]
struct Found {
    ratio: f64,
    index: &'static str,
    flow: usize,
    measured: f64,
    bound: f64,
}

impl Found {
    fn see(&mut self, index: &'static str, flow: usize, measured: f64, bound: f64) {
        let ratio = measured / bound;
        if ratio > self.ratio {
            *self = Found {
                ratio,
                index,
                flow,
                measured,
                bound,
            };
        }
    }

    fn nearest(&self, scenario: String, tried: u64) -> Nearest {
        Nearest {
            ratio: self.ratio,
            what: self.what(),
            scenario,
            tried,
        }
    }

    fn what(&self) -> String {
        format!(
            "the {} of flow {} is {:.1} bytes of the link, {:.3} of the bound of {:.1}",
            self.index, self.flow, self.measured, self.ratio, self.bound
        )
    }
}

/// A search in progress.
struct Search<'a> {
    adversary: &'a Adversary,
    /// Packets and flows of all runs.
    spent: u64,
    tried: u64,
}

impl Search<'_> {
    /// Starts from the best of some random scenarios and climbs until nothing leads higher.
    fn climb(&mut self, random: &mut Random) -> Result<(Found, Scenario), Broken> {
        let space = self.adversary.space;
        let mut scenario = Scenario::random(random, space);
        let mut top = self.try_out(&scenario)?;
        for _ in 1..STARTS {
            let other = Scenario::random(random, space);
            let found = self.try_out(&other)?;
            if found.ratio > top.ratio {
                (top, scenario) = (found, other);
            }
        }
        let mut in_vain = 0;
        while in_vain < PATIENCE && self.spent < self.adversary.packets {
            let next = scenario.mutated(random, space);
            let found = self.try_out(&next)?;
            in_vain += 1;
            if found.ratio > top.ratio {
                in_vain = 0;
            }
            let same = found.ratio == top.ratio && next.packets <= scenario.packets;
            if found.ratio > top.ratio || same {
                (top, scenario) = (found, next);
            }
        }
        Ok((top, scenario))
    }

    fn try_out(&mut self, scenario: &Scenario) -> Result<Found, Broken> {
        self.spent += scenario.cost();
        self.tried += 1;
        match self.adversary.run(scenario) {
            Ok(found) if found.ratio <= BROKEN => Ok(found),
            _ => Err(self.simplest(scenario.clone())),
        }
    }

    /// Returns the defect in the simplest scenario found that still shows one.
    fn simplest(&mut self, mut scenario: Scenario) -> Broken {
        let is_broken = |scenario: &Scenario| {
            let outcome = self.adversary.run(scenario);
            outcome.map_or(true, |found| found.ratio > BROKEN)
        };
        let mut spent = 0;
        while spent < SIMPLIFYING {
            let mut simpler = scenario.simpler(self.adversary.space).into_iter();
            let Some(next) = simpler.find(|next| {
                spent += next.cost();
                spent < SIMPLIFYING && is_broken(next)
            }) else {
                break;
            };
            scenario = next;
        }
        let what = match self.adversary.run(&scenario) {
            Ok(found) => format!("a bound does not hold: {}", found.what()),
            Err(what) => what,
        };
        self.adversary.broken(what, &scenario)
    }
}
