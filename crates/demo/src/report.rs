//! The state of a demonstration.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fairlane_config::class_report::DelayReport;
use fairlane_core::bounds::{Dispatched, Guarantees, with_arbiter};
use fairlane_core::sched::Algorithm;
use fairlane_core::{FlowConfig, Length, Nanos, Rate};
use serde::Serialize;

use crate::flow::{Flow, Flows};
use crate::vitals::{ArbiterReport, Vitals};

/// The state at one time; its keys are those of `fairlane run --json` without a file.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The algorithm.
    pub alg: &'static str,
    /// Since the beginning.
    pub seconds: f64,
    /// The link.
    pub link: LinkReport,
    /// The arbiter's thread, and the dispatchers.
    pub arbiter: ArbiterReport,
    /// In the order of their coming.
    pub flows: Vec<FlowReport>,
}

/// The link of a demonstration.
#[derive(Clone, Debug, Serialize)]
pub struct LinkReport {
    /// Its rate in bit/s.
    pub rate_bps: u64,
    /// The same.
    #[serde(skip)]
    pub rate: Rate,
    /// Its throughput, in bit/s.
    pub sent_bps: f64,
    /// Its throughput as a fraction of its rate.
    pub utilisation: f64,
}

/// A flow of a demonstration.
#[derive(Clone, Debug, Serialize)]
pub struct FlowReport {
    /// Its name.
    pub name: String,
    /// Its weight.
    pub weight: u32,
    /// An ideal fluid server's share of the link's throughput.
    pub expected_share: f64,
    /// Its share of the received bytes.
    pub measured_share: f64,
    /// Taken by the socket.
    pub sent_packets: u64,
    /// Their bytes on the link.
    pub sent_bytes: u64,
    /// That arrived.
    pub received_packets: u64,
    /// For want of room in its queue.
    pub dropped_packets: u64,
    /// Handed back because the mailbox was full.
    pub backpressure: u64,
    /// From push to socket.
    pub delay_us: DelayReport,
    /// T-WFI at most, the arbiter's and the dispatchers' part included, at the longest Delta_A
    /// and Delta_D so far; null where the algorithm promises none.
    pub t_wfi_us: Option<f64>,
    /// All that its sender wanted to send.
    #[serde(skip)]
    pub offered_bytes: u64,
    /// Of those that arrived.
    #[serde(skip)]
    pub received_bytes: u64,
    /// The bytes that an ideal fluid server would have sent.
    #[serde(skip)]
    pub expected_bytes: f64,
}

/// The inputs of a run's bounds.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    pub alg: Algorithm,
    /// The same.
    pub rate: Rate,
    /// Packets that dispatchers hold at most; 0 without any.
    pub dispatched: u64,
}

impl Promise {
    /// T-WFI of each flow, while the present flows all stay.
    fn bounds(&self, flows: &[Arc<Flow>], vitals: &Vitals) -> Vec<Option<Nanos>> {
        let sent = flows.iter().map(|flow| flow.sent.bytes()).sum();
        let configs: Vec<FlowConfig> = flows.iter().map(|flow| flow.config()).collect();
        let guarantees = Guarantees::new(self.alg, &configs, sent);
        let (scan, passes) = vitals.longest();
        let dispatched = passes.map(|passes| Dispatched {
            passes,
            held: self.dispatched,
        });
        let longest = configs.iter().map(|config| config.max_length).max();
        let longest = longest.unwrap_or(Length::MAX);
        let whole = |config: &FlowConfig| {
            let algorithm = guarantees.of(config)?.delay.time(self.rate);
            Some(with_arbiter(
                algorithm, scan, dispatched, self.rate, longest,
            ))
        };
        configs.iter().map(whole).collect()
    }
}

impl Report {
    /// Returns the state after `elapsed` of running.
    pub fn take(promise: &Promise, elapsed: Nanos, flows: &Flows, vitals: &Vitals) -> Report {
        let (alg, rate) = (promise.alg.name(), promise.rate);
        let flows = flows.all();
        let bounds = promise.bounds(&flows, vitals);
        let seconds = elapsed.0 as f64 / 1e9;
        let micros = |nanos: u64| nanos as f64 / 1e3;
        let mut reports: Vec<FlowReport> = flows
            .iter()
            .zip(bounds)
            .map(|(flow, bound)| FlowReport {
                name: flow.name.clone(),
                weight: flow.weight.get(),
                expected_share: 0.0,
                measured_share: 0.0,
                sent_packets: flow.sent.packets(),
                sent_bytes: flow.sent.bytes(),
                received_packets: flow.received.packets(),
                dropped_packets: flow.dropped.load(Ordering::Relaxed),
                backpressure: flow.backpressure.load(Ordering::Relaxed),
                delay_us: DelayReport {
                    mean: None,
                    p50: micros(flow.delay.p50.load(Ordering::Relaxed)),
                    p99: micros(flow.delay.p99.load(Ordering::Relaxed)),
                    max: micros(flow.delay.max.load(Ordering::Relaxed)),
                },
                t_wfi_us: bound.map(|bound| micros(bound.0)),
                offered_bytes: flow.offered.bytes(),
                received_bytes: flow.received.bytes(),
                expected_bytes: flow.expected.get(),
            })
            .collect();
        let sent: u64 = reports.iter().map(|flow| flow.sent_bytes).sum();
        let received: u64 = reports.iter().map(|flow| flow.received_bytes).sum();
        let expected: f64 = reports.iter().map(|flow| flow.expected_bytes).sum();
        for flow in &mut reports {
            flow.expected_share = share(flow.expected_bytes, expected);
            flow.measured_share = share(flow.received_bytes as f64, received as f64);
        }
        let sent_bps = sent as f64 * 8.0 / seconds.max(1e-9);
        Report {
            alg,
            seconds,
            link: LinkReport {
                rate_bps: rate.bps(),
                rate,
                sent_bps,
                utilisation: sent_bps / rate.bps() as f64,
            },
            arbiter: vitals.report(),
            flows: reports,
        }
    }
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}
