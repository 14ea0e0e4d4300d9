//! A run: flows with their sources and changes, in front of a server.

use crate::observer::Observer;
use crate::server::{Server, Step};
use crate::source::{Lengths, Source, SourceError, Traffic};
use crate::time::Picos;
use fairlane_core::scheduler::Scheduler;
use fairlane_core::{ChangeError, FlowConfig, FlowId, Length};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A flow of a run: what it is entitled to, what it sends, and when it comes and goes.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowPlan {
    /// Its weight, longest packet and limits. What its source sends beyond is dropped.
    pub config: FlowConfig,
    /// When it sends.
    pub traffic: Traffic,
    /// What it sends.
    pub lengths: Lengths,
    /// When it is added, and its source starts.
    pub start: Picos,
    /// From when on its source sends nothing more.
    pub stop: Picos,
    /// Its changes, in any order.
    pub changes: Vec<(Picos, FlowConfig)>,
    /// When it is removed with what it has queued, if ever.
    pub removal: Option<Picos>,
}

impl FlowPlan {
    /// A flow that is there from the start and sends as long as the run lasts.
    pub fn new(config: FlowConfig, traffic: Traffic, lengths: Lengths) -> FlowPlan {
        FlowPlan {
            config,
            traffic,
            lengths,
            start: Picos::ZERO,
            stop: Picos::MAX,
            changes: Vec::new(),
            removal: None,
        }
    }
}

/// What happens at a time; in this order at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Remove,
    Change(usize),
    Add,
    Packet(Length),
}

/// A flow of the run, by its plan.
#[derive(Debug)]
struct Running {
    plan: FlowPlan,
    source: Source,
    id: Option<FlowId>,
}

/// A run of a [`Server`] with [`FlowPlan`]s.
///
/// Events are taken in the order of time. At the same time removals come first, then
/// changes, new flows, arrivals, completions and the scheduler's turn; what is left, in the
/// order of the plans. So a run is a function of its plans and its seed. O(log flows) an
/// event, and what the algorithm costs.
#[derive(Debug)]
pub struct Simulation<A: Scheduler, O> {
    server: Server<A, O>,
    seed: u64,
    flows: Vec<Running>,
    events: BinaryHeap<Reverse<(Picos, u8, usize, Kind)>>,
    /// The plan of each flow number in use.
    plans: Vec<Option<usize>>,
}

impl<A: Scheduler, O: Observer> Simulation<A, O> {
    /// A run without flows. Each source draws from a seed of its own, made from `seed`.
    pub fn new(server: Server<A, O>, seed: u64) -> Self {
        Simulation {
            server,
            seed,
            flows: Vec::new(),
            events: BinaryHeap::new(),
            plans: Vec::new(),
        }
    }

    /// Adds a flow to the run; flows are counted from 0.
    pub fn add(&mut self, plan: FlowPlan) -> Result<usize, SourceError> {
        let index = self.flows.len();
        // The golden ratio in 64 bits keeps the seeds of neighbours far apart.
        let seed = (self.seed).wrapping_add((index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let source = Source::new(plan.traffic.clone(), plan.lengths.clone(), seed)?;
        self.push(plan.start, index, Kind::Add);
        for (change, &(at, _)) in plan.changes.iter().enumerate() {
            self.push(at, index, Kind::Change(change));
        }
        if let Some(at) = plan.removal {
            self.push(at, index, Kind::Remove);
        }
        self.flows.push(Running {
            plan,
            source,
            id: None,
        });
        Ok(index)
    }

    /// Runs: sources send, flows come, change and go before `until`; then what is queued
    /// is sent. Gives back the server, idle. Fails at a change that the scheduler refuses.
    /// A change of a flow that is not there is passed over.
    pub fn run(mut self, until: Picos) -> Result<Server<A, O>, ChangeError> {
        while let Some(Reverse((at, _, index, kind))) = self.events.pop() {
            if at >= until {
                break;
            }
            self.advance(at, until);
            self.happen(at, index, kind, until)?;
        }
        self.advance(Picos::MAX, until);
        self.server.finish();
        Ok(self.server)
    }

    fn push(&mut self, at: Picos, index: usize, kind: Kind) {
        let rank = match kind {
            Kind::Remove => 0,
            Kind::Change(_) => 1,
            Kind::Add => 2,
            Kind::Packet(_) => 3,
        };
        self.events.push(Reverse((at, rank, index, kind)));
    }

    /// Lets the server work until `to`, and greedy sources follow it.
    fn advance(&mut self, to: Picos, until: Picos) {
        while self.server.next_event().is_some_and(|next| next < to) {
            if let Some(Step::Dequeued(packet)) = self.server.step()
                && let Some(&Some(index)) = self.plans.get(packet.flow.number() as usize)
            {
                self.refill(index, until);
            }
        }
    }

    fn happen(
        &mut self,
        at: Picos,
        index: usize,
        kind: Kind,
        until: Picos,
    ) -> Result<(), ChangeError> {
        let flow = &mut self.flows[index];
        match (kind, flow.id) {
            (Kind::Add, _) => {
                let id = self.server.add_flow(at, flow.plan.config)?;
                flow.id = Some(id);
                let number = id.number() as usize;
                if self.plans.len() <= number {
                    self.plans.resize(number + 1, None);
                }
                self.plans[number] = Some(index);
                if flow.source.keeps().is_some() {
                    self.refill(index, until);
                } else {
                    self.next_packet(index);
                }
            }
            (Kind::Change(change), Some(id)) => {
                let (_, config) = flow.plan.changes[change];
                self.server.change_flow(at, id, config)?;
            }
            (Kind::Remove, Some(id)) => {
                flow.id = None;
                self.plans[id.number() as usize] = None;
                self.server.remove_flow(at, id)?;
            }
            (Kind::Packet(len), Some(id)) => {
                // Whether it was dropped is the observer's to know.
                let _ = self.server.arrive(at, id, len);
                self.next_packet(index);
            }
            (_, None) => {}
        }
        Ok(())
    }

    fn next_packet(&mut self, index: usize) {
        let flow = &mut self.flows[index];
        if let Some((time, len)) = flow.source.next_packet() {
            let at = flow.plan.start + time;
            if at < flow.plan.stop {
                self.push(at, index, Kind::Packet(len));
            }
        }
    }

    /// A greedy source sends as many packets as are missing, or until one is dropped.
    fn refill(&mut self, index: usize, until: Picos) {
        let now = self.server.clock();
        let flow = &mut self.flows[index];
        let (Some(id), Some(kept)) = (flow.id, flow.source.keeps()) else {
            return;
        };
        if now >= flow.plan.stop.min(until) {
            return;
        }
        while self.server.queued(id).is_some_and(|n| n < kept.into()) {
            let Some((_, len)) = flow.source.next_packet() else {
                return;
            };
            if self.server.arrive(now, id, len).is_err() {
                return;
            }
        }
    }
}
