//! The simulation of a network.

use anyhow::{Context, Result};
use fairlane_core::Count;
use fairlane_sim::{Delays, Network, PICOS_PER_SECOND, Picos};
use serde::Serialize;

use super::network::Plan;

/// Events between two looks at Ctrl-C.
const EVENTS: u32 = 4096;

/// A simulation of a network.
pub(super) struct NetworkRun<'a> {
    plan: &'a Plan,
    network: Network,
    begin: Picos,
    end: Picos,
}

impl<'a> NetworkRun<'a> {
    pub(super) fn new(plan: &'a Plan, seed: u64, begin: Picos, end: Picos) -> Result<Self> {
        let mut network = plan.network(seed);
        for (group, flows) in plan.flows.iter().enumerate() {
            for number in 0..flows.sends.count {
                let added = network.add_source(flows.sends.plan(number, flows.way), group);
                added.with_context(|| flows.sends.name.clone())?;
            }
        }
        Ok(NetworkRun {
            plan,
            network,
            begin,
            end,
        })
    }

    pub(super) fn run_while(
        &mut self,
        mut go_on: impl FnMut(f64) -> bool,
        mut still: impl FnMut() -> bool,
    ) {
        let mut measuring = false;
        loop {
            let target = if measuring { self.end } else { self.begin };
            let (mut left, mut ended) = (EVENTS, false);
            let came = self.network.run_until_while(target, || {
                left -= 1;
                ended = !still();
                left > 0 && !ended
            });
            let done = self.network.clock().as_secs_f64() / self.end.as_secs_f64();
            match came {
                true if measuring => return,
                true => {
                    self.network.restart();
                    measuring = true;
                }
                false if ended || !go_on(done) => break,
                false => {}
            }
        }
        if !measuring {
            self.network.restart();
        }
    }

    pub(super) fn outcome(&self, scenario: String, seed: u64) -> NetworkOutcome {
        let clock = self.network.clock();
        let time = clock - self.begin;
        let name = |node: u16| self.plan.nodes[usize::from(node)].name.clone();
        let bps = |count: Count| match time {
            Picos::ZERO => 0.0,
            _ => count.bytes as f64 * 8.0 / time.as_secs_f64(),
        };
        let flows = self.plan.flows.iter().enumerate();
        let sources = flows.map(|(group, flows)| {
            let carried = self.network.carried(group);
            FlowsReport {
                name: flows.sends.name.clone(),
                count: flows.sends.count,
                from: name(flows.way.from),
                to: name(flows.way.to),
                weight: flows.way.weight.get(),
                on_their_way_before: carried.before,
                sent_packets: carried.sent.packets,
                sent_bps: bps(carried.sent),
                received_packets: carried.received.packets,
                received_bps: bps(carried.received),
                rejected: carried.rejected,
                displaced: carried.displaced,
                on_their_way: carried.on_their_way(),
                delay_us: DelaysReport::of(&carried.delays),
            }
        });
        let wires = self.plan.wires.iter().enumerate();
        let wires = wires.map(|(number, &(from, to, wire))| {
            let count = self.network.port(number);
            WireReport {
                from: name(from),
                to: name(to),
                algorithm: wire.algorithm.name(),
                rate_bps: wire.rate.bps(),
                delay_us: micros(wire.delay),
                sent_packets: count.sent.packets,
                sent_bps: bps(count.sent),
                rejected: count.rejected,
                displaced: count.displaced,
            }
        });
        NetworkOutcome {
            scenario,
            seconds: time.0 as f64 / PICOS_PER_SECOND as f64,
            interrupted: clock < self.end,
            seed,
            sources: sources.collect(),
            wires: wires.collect(),
        }
    }
}

fn micros(time: Picos) -> f64 {
    time.0 as f64 / Picos::from_micros(1).0 as f64
}

/// The result of a simulation of a network; its keys are those of `fairlane sim --json`.
#[derive(Debug, Serialize)]
pub struct NetworkOutcome {
    /// The simulated scenario.
    pub scenario: String,
    /// That were measured.
    pub seconds: f64,
    /// It ended before its time.
    pub interrupted: bool,
    /// Of all that is random.
    pub seed: u64,
    /// Who sent.
    pub sources: Vec<FlowsReport>,
    /// The wires, one entry per direction.
    pub wires: Vec<WireReport>,
}

/// The packets of sources that are alike. Packets in transit at the start and packets sent were received, rejected,
/// evicted, or are in transit.
#[derive(Debug, Serialize)]
pub struct FlowsReport {
    /// Their name in the scenario.
    pub name: String,
    /// Number of sources.
    pub count: u32,
    /// The node that sends.
    pub from: String,
    /// The node that receives.
    pub to: String,
    /// Of each, at every port.
    pub weight: u32,
    /// Packets in transit at the start.
    pub on_their_way_before: u64,
    /// Packets that were sent.
    pub sent_packets: u64,
    /// The same, in bit/s.
    pub sent_bps: f64,
    /// Packets that arrived.
    pub received_packets: u64,
    /// The same, in bit/s.
    pub received_bps: f64,
    /// Packets that a full queue did not accept.
    pub rejected: u64,
    /// Packets that gave way to others in full queues.
    pub displaced: u64,
    /// Packets that were on their way when the simulation ended.
    pub on_their_way: u64,
    /// From end to end; of no packet, none.
    pub delay_us: Option<DelaysReport>,
}

/// Delays, in microseconds; percentiles to two digits.
#[derive(Debug, Serialize)]
pub struct DelaysReport {
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation.
    pub deviation: f64,
    /// The median.
    pub p50: f64,
    /// One in ten is longer.
    pub p90: f64,
    /// One in a hundred is longer.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

impl DelaysReport {
    fn of(delays: &Delays) -> Option<DelaysReport> {
        let percentile = |percent| micros(delays.percentile(percent));
        (delays.count() > 0).then(|| DelaysReport {
            mean: micros(delays.mean()),
            deviation: micros(delays.deviation()),
            p50: percentile(50.0),
            p90: percentile(90.0),
            p99: percentile(99.0),
            max: micros(delays.max()),
        })
    }
}

/// The packets on a wire in one direction.
#[derive(Debug, Serialize)]
pub struct WireReport {
    /// The node with that output port.
    pub from: String,
    /// The node at its other end.
    pub to: String,
    /// The scheduling algorithm of the port.
    pub algorithm: &'static str,
    /// The rate of the port in bit/s.
    pub rate_bps: u64,
    /// Propagation delay in microseconds.
    pub delay_us: f64,
    /// Packets that were sent.
    pub sent_packets: u64,
    /// The same, in bit/s.
    pub sent_bps: f64,
    /// Packets that were not accepted.
    pub rejected: u64,
    /// Packets that gave way to others.
    pub displaced: u64,
}
