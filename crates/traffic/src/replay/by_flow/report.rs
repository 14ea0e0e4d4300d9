//! The report of a replay by flow: measurements next to the guarantees of the algorithm.

use fairlane_config::class_report::DelayReport;
use fairlane_core::bounds::Guarantees;
use fairlane_core::sched::Algorithm;
use fairlane_core::{FlowConfig, FlowId, Rate};
use fairlane_sim::{
    Backlogged, Completion, DelayMeter, Delays, Now, Observer, PacketInfo, Picos, WfiMeter,
};
use serde::Serialize;

use super::Setup;
use crate::ledger::delays_in;

/// All that is measured: the indexes, the delays of each flow where they are asked for, and its service.
pub(super) type Meters = (WfiMeter, Option<DelayMeter>, Service);

/// Returns the meters of a link of this rate; with `each`, of the delays of each flow.
pub(super) fn meters(rate: Rate, each: bool) -> Meters {
    // The definition for which the bounds are proved.
    let wfi = WfiMeter::reading(rate, Backlogged::UntilDequeued);
    (wfi, each.then(DelayMeter::new), Service::new(rate))
}

/// The service of each flow, overhead included, and its due service: its share, by weight, of the link's capacity among
/// the backlogged flows, while it is backlogged. O(1) per packet.
#[derive(Debug)]
pub(super) struct Service {
    flows: Vec<Served>,
    /// Bytes in a picosecond.
    speed: f64,
    /// The sum over backlogged flows.
    weights: u64,
    /// Service due per unit of weight to a flow that was backlogged all the time until `clock`.
    due: f64,
    clock: Picos,
    /// Of all packets.
    delays: Delays,
}

#[derive(Debug)]
struct Served {
    weight: u32,
    /// Packets that have arrived and not left.
    present: u64,
    /// That left.
    packets: u64,
    bytes: u64,
    due: f64,
}

impl Service {
    fn new(rate: Rate) -> Service {
        Service {
            flows: Vec::new(),
            speed: rate.bps() as f64 / 8e12,
            weights: 0,
            due: 0.0,
            clock: Picos::ZERO,
            delays: Delays::new(),
        }
    }

    fn advance(&mut self, to: Picos) {
        if self.weights > 0 {
            self.due += (to - self.clock).0 as f64 * self.speed / self.weights as f64;
        }
        self.clock = to;
    }

    /// Returns Jain's index of the flows' service relative to their due service, each ratio at most 1; 1 without flows.
    fn jain(&self) -> f64 {
        let (mut flows, mut sum, mut squares) = (0.0, 0.0, 0.0);
        for flow in self.flows.iter().filter(|flow| flow.due > 0.0) {
            let part = (flow.bytes as f64 / flow.due).min(1.0);
            flows += 1.0;
            sum += part;
            squares += part * part;
        }
        if flows > 0.0 {
            sum * sum / (flows * squares)
        } else {
            1.0
        }
    }
}

impl Observer for Service {
    fn flow_added(&mut self, _: Now, _: FlowId, config: &FlowConfig) {
        self.flows.push(Served {
            weight: config.weight.get(),
            present: 0,
            packets: 0,
            bytes: 0,
            due: 0.0,
        });
    }

    fn arrived(&mut self, at: Now, packet: &PacketInfo) {
        self.advance(at.time);
        let flow = &mut self.flows[packet.flow.number() as usize];
        if flow.present == 0 {
            self.weights += u64::from(flow.weight);
            flow.due -= self.due * f64::from(flow.weight);
        }
        flow.present += 1;
    }

    fn completed(&mut self, completion: &Completion) {
        let packet = &completion.packet;
        self.advance(completion.end.time);
        self.delays.record(completion.end.time - packet.arrival);
        let flow = &mut self.flows[packet.flow.number() as usize];
        flow.packets += 1;
        flow.bytes += u64::from(packet.len.get());
        flow.present -= 1;
        if flow.present == 0 {
            self.weights -= u64::from(flow.weight);
            flow.due += self.due * f64::from(flow.weight);
        }
    }
}

/// The report of a replay by flow; its keys are those of `fairlane replay --json`.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The algorithm.
    pub alg: &'static str,
    /// The quantum of DRR in bytes, where it was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantum: Option<u32>,
    /// Rate of the link in bit/s.
    pub rate_bps: u64,
    /// The same.
    #[serde(skip)]
    pub rate: Rate,
    /// Overhead in bytes per packet.
    pub overhead: u32,
    /// Most flows in an aggregate.
    pub aggregate: u32,
    /// That left.
    pub packets: u64,
    /// Theirs, without overhead.
    pub bytes: u64,
    /// Packets of a capture that were dropped: longer than any link carries, and not cut.
    pub oversized: u64,
    /// Of all packets, from arrival to the end of transmission.
    pub delay_ns: DelayReport,
    /// Jain's index of the flows' service relative to their share of the link among the backlogged flows, while they
    /// were backlogged, each ratio at most 1: 1 if no flow had less than its share.
    pub jain: f64,
    /// By number.
    pub flows: Vec<FlowReport>,
}

/// One flow; a bound is null where the algorithm has none.
#[derive(Debug, Serialize)]
pub struct FlowReport {
    /// Its number.
    pub flow: u32,
    /// The fields that its packets share, in a capture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Its weight.
    pub weight: u32,
    /// Its longest packet in bytes, without overhead.
    pub max_len: u32,
    /// That left.
    pub packets: u64,
    /// Without overhead, as all but the indexes, which are those of the link.
    pub bytes: u64,
    /// The most that a packet was delayed beyond its flow's share.
    pub t_wfi_ns: f64,
    /// The bound of that.
    pub t_wfi_bound_ns: Option<u64>,
    /// The most that the flow fell behind its share.
    pub b_wfi_bytes: f64,
    /// The bound of that over every interval.
    pub b_wfi_bound_bytes: Option<f64>,
    /// Under WFQ and WF2Q, the bound of that over intervals in which the fluid server has packets of the
    /// flow too. A flow that sends its next packet when the last one has left may exceed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub b_wfi_conditional_bound_bytes: Option<f64>,
    /// From arrival to the end of transmission; zero without packets, and if only the delays of all packets are
    /// measured.
    pub delay_ns: DelayReport,
}

impl FlowReport {
    /// Returns the used part of the bound; without a bound, how far the flow fell behind.
    pub fn badness(&self) -> f64 {
        match self.t_wfi_bound_ns {
            Some(bound) => self.t_wfi_ns / bound as f64,
            None => self.t_wfi_ns,
        }
    }
}

impl Report {
    pub(super) fn new(setup: &Setup<'_>, (wfi, delays, service): &Meters) -> Self {
        let configs: Vec<FlowConfig> = wfi.flows().map(|(_, wfi)| wfi.config).collect();
        let sent: u64 = service.flows.iter().map(|flow| flow.bytes).sum();
        let algorithm = setup.algorithm.with_members(setup.aggregate);
        let guarantees = Guarantees::new(algorithm, &configs, sent);
        let nanos = Picos::from_nanos(1);
        let flows: Vec<FlowReport> = wfi
            .flows()
            .zip(&service.flows)
            .map(|((id, wfi), served)| {
                let delays = delays.as_ref().and_then(|delays| delays.flow(id));
                let packets = served.packets;
                let bound = guarantees.of(&wfi.config);
                let service = |strict: bool| {
                    let bound = bound.filter(|bound| bound.strict == strict);
                    bound.map(|bound| bound.service.bytes())
                };
                FlowReport {
                    flow: id.number(),
                    key: None,
                    weight: wfi.config.weight.get(),
                    max_len: setup.flows[id.number() as usize].max_len.get(),
                    packets,
                    bytes: served.bytes - packets * u64::from(setup.overhead),
                    t_wfi_ns: wfi.t_wfi.0 as f64 / 1e3,
                    t_wfi_bound_ns: bound.map(|bound| bound.delay.time(setup.rate).0),
                    b_wfi_bytes: wfi.b_wfi_backlogged.as_bytes_f64(),
                    b_wfi_bound_bytes: service(true),
                    b_wfi_conditional_bound_bytes: service(false),
                    delay_ns: delays
                        .map_or_else(DelayReport::default, |delays| delays_in(nanos, delays)),
                }
            })
            .collect();
        Report {
            alg: setup.algorithm.name(),
            quantum: match setup.algorithm {
                Algorithm::DrrOfQuantum(quantum) => Some(quantum.get()),
                _ => None,
            },
            rate_bps: setup.rate.bps(),
            rate: setup.rate,
            overhead: setup.overhead,
            aggregate: setup.aggregate.get(),
            packets: flows.iter().map(|flow| flow.packets).sum(),
            bytes: flows.iter().map(|flow| flow.bytes).sum(),
            oversized: 0,
            delay_ns: delays_in(nanos, &service.delays),
            jain: service.jain(),
            flows,
        }
    }
}
