//! The simulation of a scenario.

use anyhow::Result;
use fairlane_sim::Picos;
use serde::Serialize;

use super::link_run::{LinkOutcome, LinkRun, Rates};
use super::network_run::{NetworkOutcome, NetworkRun};
use super::{Plan, Scenario};

/// A simulation of a scenario.
pub struct Run<'a> {
    course: AnyRun<'a>,
    seed: u64,
}

enum AnyRun<'a> {
    Link(Box<LinkRun<'a>>),
    Network(Box<NetworkRun<'a>>),
}

impl<'a> Run<'a> {
    /// Creates a run of this many seconds after the warm-up; with `drawn`, it keeps the data for [`Rates`].
    ///
    /// # Errors
    ///
    /// A source cannot send as it says; the error names it.
    pub fn new(scenario: &'a Scenario, seed: u64, seconds: f64, drawn: bool) -> Result<Run<'a>> {
        let begin = Picos::from(scenario.warm_up);
        let end = begin + Picos::from_secs_f64(seconds);
        let course = match &scenario.plan {
            Plan::Link(link, sources) => {
                let run = LinkRun::new(link, sources, seed, (begin, end), drawn)?;
                AnyRun::Link(Box::new(run))
            }
            Plan::Network(plan) => {
                AnyRun::Network(Box::new(NetworkRun::new(plan, seed, begin, end)?))
            }
        };
        Ok(Run { course, seed })
    }

    /// Runs to the end, or while `go_on` returns true; that is called from time to time with the part completed.
    pub fn run(&mut self, go_on: impl FnMut(f64) -> bool) {
        self.run_while(go_on, || true);
    }

    /// The same, while both return true: `still`, which must be cheap, is called at every event.
    pub fn run_while(&mut self, go_on: impl FnMut(f64) -> bool, still: impl FnMut() -> bool) {
        match &mut self.course {
            AnyRun::Link(run) => run.run_while(go_on, still),
            AnyRun::Network(run) => run.run_while(go_on, still),
        }
    }

    /// Returns the result; `scenario` is the scenario's name in the report.
    pub fn outcome(&self, scenario: String) -> Outcome {
        match &self.course {
            AnyRun::Link(run) => Outcome::Link(run.outcome(scenario, self.seed)),
            AnyRun::Network(run) => Outcome::Network(run.outcome(scenario, self.seed)),
        }
    }

    /// Returns the data kept for drawing, for a link.
    pub fn rates(&self) -> Option<Rates> {
        match &self.course {
            AnyRun::Link(run) => run.rates(),
            AnyRun::Network(_) => None,
        }
    }
}

/// The result of a simulation; its keys are those of `fairlane sim --json`.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Outcome {
    /// Of a link.
    Link(LinkOutcome),
    /// Of a network.
    Network(NetworkOutcome),
}
