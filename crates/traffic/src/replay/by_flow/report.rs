//! What a replay did to each flow, beside what its algorithm promises.

use fairlane_config::class_report::DelayReport;
use fairlane_core::bounds::Guarantees;
use fairlane_core::{FlowConfig, FlowId, Rate};
use fairlane_sim::{Backlogged, Completion, DelayMeter, Now, Observer, Picos, WfiMeter};
use serde::Serialize;

use super::Setup;
use super::declared::Flow;
use crate::ledger::delays_in;

/// All that is measured: the indexes, the delays, and the bytes that each flow sent, overhead
/// included.
pub(super) type Meters = (WfiMeter, DelayMeter, Bytes);

/// The meters of a link of this rate.
pub(super) fn meters(rate: Rate) -> Meters {
    // What the bounds are proved for.
    let wfi = WfiMeter::reading(rate, Backlogged::UntilDequeued);
    (wfi, DelayMeter::new(), Bytes::default())
}

/// Bytes by flow.
#[derive(Debug, Default)]
pub(super) struct Bytes(Vec<u64>);

impl Observer for Bytes {
    fn flow_added(&mut self, _: Now, _: FlowId, _: &FlowConfig) {
        self.0.push(0);
    }

    fn completed(&mut self, completion: &Completion) {
        let packet = &completion.packet;
        self.0[packet.flow.number() as usize] += u64::from(packet.len.get());
    }
}

/// What a replay did to each flow; its keys are those of `fairlane replay --json`.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The algorithm.
    pub alg: &'static str,
    /// Rate of the link in bit/s.
    pub rate_bps: u64,
    /// The same.
    #[serde(skip)]
    pub rate: Rate,
    /// Bytes that each packet takes beside its own.
    pub overhead: u32,
    /// Most flows in an aggregate.
    pub aggregate: u32,
    /// That left.
    pub packets: u64,
    /// Theirs, without overhead.
    pub bytes: u64,
    /// By number.
    pub flows: Vec<FlowReport>,
}

/// One flow; a bound is null where the algorithm has none.
#[derive(Debug, Serialize)]
pub struct FlowReport {
    /// Its number.
    pub flow: u32,
    /// What its packets have in common, in a capture.
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
    /// How long a packet that arrived when its flow was empty waited beyond its share, at most.
    pub t_wfi_ns: f64,
    /// What that cannot exceed.
    pub t_wfi_bound_ns: Option<u64>,
    /// How far it fell behind its share, at most.
    pub b_wfi_bytes: f64,
    /// What that cannot exceed.
    pub b_wfi_bound_bytes: Option<f64>,
    /// From arrival to the end of transmission.
    pub delay_ns: DelayReport,
}

impl FlowReport {
    /// How much of what was promised was used up; without a promise, how far the flow
    /// fell behind.
    pub fn badness(&self) -> f64 {
        match self.t_wfi_bound_ns {
            Some(bound) => self.t_wfi_ns / bound as f64,
            None => self.t_wfi_ns,
        }
    }
}

impl Report {
    pub(super) fn new(setup: &Setup<'_>, (wfi, delays, bytes): &Meters) -> Self {
        let configs: Vec<FlowConfig> = wfi.flows().map(|(_, wfi)| wfi.config).collect();
        let sent: u64 = bytes.0.iter().sum();
        let algorithm = setup.algorithm.with_members(setup.aggregate);
        let guarantees = Guarantees::new(algorithm, &configs, sent);
        let nanos = Picos::from_nanos(1);
        let flows: Vec<FlowReport> = wfi
            .flows()
            .zip(&bytes.0)
            .map(|((id, wfi), &bytes)| {
                let delays = delays.flow(id);
                let packets = delays.map_or(0, |delays| delays.count());
                let bound = guarantees.of(&wfi.config);
                let declared = setup.flows.get(id.number() as usize);
                FlowReport {
                    flow: id.number(),
                    key: None,
                    weight: wfi.config.weight.get(),
                    max_len: declared.unwrap_or(&Flow::UNDECLARED).max_len.get(),
                    packets,
                    bytes: bytes - packets * u64::from(setup.overhead),
                    t_wfi_ns: wfi.t_wfi.0 as f64 / 1e3,
                    t_wfi_bound_ns: bound.map(|bound| bound.delay.time(setup.rate).0),
                    b_wfi_bytes: wfi.b_wfi_backlogged.as_bytes_f64(),
                    b_wfi_bound_bytes: bound.map(|bound| bound.service.bytes()),
                    delay_ns: delays
                        .map_or_else(DelayReport::default, |delays| delays_in(nanos, delays)),
                }
            })
            .collect();
        Report {
            alg: setup.algorithm.name(),
            rate_bps: setup.rate.bps(),
            rate: setup.rate,
            overhead: setup.overhead,
            aggregate: setup.aggregate.get(),
            packets: flows.iter().map(|flow| flow.packets).sum(),
            bytes: flows.iter().map(|flow| flow.bytes).sum(),
            flows,
        }
    }
}
