//! What a run shows: the live table, the summary and the JSON object.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use comfy_table::Table;
use fairlane_config::class_report::DelayReport;
use fairlane_core::{FlowConfig, Length, Nanos, Rate};
use serde::Serialize;

use super::super::screen::Shown;
use super::flow::{Flow, Flows};
use super::relay::MOST_SOURCES;
use super::vitals::{ArbiterReport, Vitals};
use crate::algorithm::Algorithm;
use crate::table;
use fairlane_core::bounds::{Dispatched, Guarantees, with_arbiter};

/// Columns to do without on a narrow terminal, the first of them first.
const EXPENDABLE: [usize; 8] = [8, 10, 6, 2, 9, 3, 7, 1];

/// The state of a run at one time: what `--json` prints.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub alg: &'static str,
    pub seconds: f64,
    pub link: LinkReport,
    pub arbiter: ArbiterReport,
    pub flows: Vec<FlowReport>,
}

#[derive(Clone, Debug, Serialize)]
pub struct LinkReport {
    pub rate_bps: u64,
    #[serde(skip)]
    pub rate: Rate,
    pub sent_bps: f64,
    pub utilisation: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct FlowReport {
    pub name: String,
    pub weight: u32,
    pub expected_share: f64,
    pub measured_share: f64,
    pub sent_packets: u64,
    pub sent_bytes: u64,
    pub received_packets: u64,
    pub dropped_packets: u64,
    pub backpressure: u64,
    pub delay_us: DelayReport,
    /// T-WFI at most, the arbiter's and the dispatchers' part included, at the longest Delta_A
    /// and Delta_D so far; null where the algorithm promises none.
    pub t_wfi_us: Option<f64>,
    #[serde(skip)]
    pub offered_bytes: u64,
    #[serde(skip)]
    pub received_bytes: u64,
    #[serde(skip)]
    pub expected_bytes: f64,
}

/// What the bounds of a run follow from.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    pub alg: Algorithm,
    pub rate: Rate,
    /// Packets that dispatchers hold at most; 0 without any.
    pub dispatched: u64,
}

impl Promise {
    /// T-WFI of each flow, while those that have come so far all stay.
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
    /// The state after `elapsed` of running.
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

    /// What is left of a run, with `ignored` datagrams that were not relayed.
    pub fn conclusion(&self, ignored: u64) -> String {
        let start = Report {
            seconds: 0.0,
            flows: Vec::new(),
            ..self.clone()
        };
        let mut text = Shown::table(self, &start, usize::MAX);
        if ignored > 0 {
            text += &format!(
                "\n{ignored} datagrams were not relayed: too long, or from more than \
                 {MOST_SOURCES} addresses"
            );
        }
        text
    }

    /// The table, with rates and shares over the time since `earlier`, in `lines` lines beside its
    /// borders and header: they count the flows that they cannot show.
    fn flow_table(&self, earlier: &Report, lines: usize) -> Table {
        let mut table = table::new([
            "flow",
            "weight",
            "offered\nMbit/s",
            "received\nMbit/s",
            "expected\nshare",
            "measured\nshare",
            "delay\np50 ms",
            "delay\np99 ms",
            "delay\nmax ms",
            "drops",
            "mailbox\nfull",
        ]);
        let seconds = (self.seconds - earlier.seconds).max(1e-9);
        let before = |number: usize| earlier.flows.get(number);
        let since = |bytes: fn(&FlowReport) -> f64, number: usize| {
            bytes(&self.flows[number]) - before(number).map_or(0.0, bytes)
        };
        let total = |bytes| -> f64 { (0..self.flows.len()).map(|n| since(bytes, n)).sum() };
        let expected = total(|flow| flow.expected_bytes);
        let received = total(|flow| flow.received_bytes as f64);
        let shown = match self.flows.len() {
            flows if flows <= lines => flows,
            _ => lines.saturating_sub(1),
        };
        for (number, flow) in self.flows[..shown].iter().enumerate() {
            let rate = |bytes| {
                let bits = since(bytes, number) * 8.0;
                format!("{:.2}", bits / seconds / 1e6)
            };
            table.add_row([
                flow.name.clone(),
                flow.weight.to_string(),
                rate(|flow| flow.offered_bytes as f64),
                rate(|flow| flow.received_bytes as f64),
                percent(share(since(|flow| flow.expected_bytes, number), expected)),
                percent(share(
                    since(|flow| flow.received_bytes as f64, number),
                    received,
                )),
                millis(flow.delay_us.p50),
                millis(flow.delay_us.p99),
                millis(flow.delay_us.max),
                flow.dropped_packets.to_string(),
                flow.backpressure.to_string(),
            ]);
        }
        if shown < self.flows.len() {
            table.add_row([format!("and {} more", self.flows.len() - shown)]);
        }
        table::fit(&mut table, &EXPENDABLE);
        table
    }

    /// How the link was used, in a sentence.
    fn link_line(&self) -> String {
        format!(
            "{}: {} of {} used over {:.1} s; shares are of what was carried",
            self.alg,
            percent(self.link.utilisation),
            self.link.rate,
            self.seconds
        )
    }
}

impl Shown for Report {
    fn table(&self, earlier: &Report, lines: usize) -> String {
        format!("{}\n{}", self.flow_table(earlier, lines), self.link_line())
    }

    /// The state in lines of plain text, one a flow; rates over the time since
    /// `earlier`, all else since the start.
    fn lines(&self, earlier: &Report) -> String {
        let seconds = (self.seconds - earlier.seconds).max(1e-9);
        let mut lines = format!(
            "{:.1} s, link {} used",
            self.seconds,
            percent(self.link.utilisation)
        );
        for (number, flow) in self.flows.iter().enumerate() {
            let rate = |bytes: fn(&FlowReport) -> u64| {
                let before = earlier.flows.get(number).map_or(0, bytes);
                (bytes(flow) - before) as f64 * 8.0 / seconds / 1e6
            };
            let delay = &flow.delay_us;
            lines += &format!(
                "\n  {}: weight {}, offered {:.2}, received {:.2} Mbit/s, expected {}, measured {}, \
                 delay p50 {} p99 {} max {} ms, drops {}, mailbox full {}",
                flow.name,
                flow.weight,
                rate(|flow| flow.offered_bytes),
                rate(|flow| flow.received_bytes),
                percent(flow.expected_share),
                percent(flow.measured_share),
                millis(delay.p50),
                millis(delay.p99),
                millis(delay.max),
                flow.dropped_packets,
                flow.backpressure,
            );
        }
        lines
    }
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

fn percent(share: f64) -> String {
    format!("{:.2}%", share * 100.0)
}

fn millis(micros: f64) -> String {
    format!("{:.2}", micros / 1e3)
}

/// What an ideal fluid server would give: `capacity` split by weight among those
/// that want it, none getting more than it asked for.
pub fn fluid_allocation(capacity: f64, demands: &[(u32, f64)]) -> Vec<f64> {
    let mut given = vec![0.0; demands.len()];
    let mut open: Vec<usize> = (0..demands.len()).collect();
    let mut left = capacity;
    loop {
        let weights: f64 = open.iter().map(|&flow| f64::from(demands[flow].0)).sum();
        let level = left / weights.max(1.0);
        let (satisfied, rest): (Vec<usize>, Vec<usize>) = open
            .iter()
            .partition(|&&flow| demands[flow].1 <= f64::from(demands[flow].0) * level);
        for &flow in &satisfied {
            given[flow] = demands[flow].1;
            left -= demands[flow].1;
        }
        if satisfied.is_empty() {
            for &flow in &rest {
                given[flow] = f64::from(demands[flow].0) * level;
            }
            return given;
        }
        open = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backlogged_flows_share_by_weight() {
        let given = fluid_allocation(150.0, &[(1, 1e9), (2, 1e9), (4, 1e9), (8, 1e9)]);
        assert_eq!(given, [10.0, 20.0, 40.0, 80.0]);
    }

    #[test]
    fn what_a_small_flow_leaves_goes_to_the_others_by_weight() {
        let given = fluid_allocation(100.0, &[(1, 1e9), (3, 1e9), (4, 20.0)]);
        assert_eq!(given, [20.0, 60.0, 20.0]);
    }

    #[test]
    fn flows_that_find_no_line_are_counted() {
        let flow = |number| FlowReport {
            name: format!("sender-{number}"),
            weight: 1,
            expected_share: 0.0,
            measured_share: 0.0,
            sent_packets: 0,
            sent_bytes: 0,
            received_packets: 0,
            dropped_packets: 0,
            backpressure: 0,
            delay_us: DelayReport::default(),
            t_wfi_us: None,
            offered_bytes: 0,
            received_bytes: 0,
            expected_bytes: 0.0,
        };
        let promise = Promise {
            alg: Algorithm::Qfq,
            rate: "1mbit".parse().unwrap(),
            dispatched: 0,
        };
        let report = Report {
            flows: (1..=5).map(flow).collect(),
            ..Report::take(&promise, Nanos::ZERO, &Flows::default(), &Vitals::default())
        };
        let all = report.flow_table(&report, 5).to_string();
        assert!(all.contains("sender-5") && !all.contains("more"), "{all}");
        let some = report.flow_table(&report, 4).to_string();
        assert!(
            some.contains("sender-3") && !some.contains("sender-4"),
            "{some}"
        );
        assert!(some.contains("and 2 more"), "{some}");
        assert_eq!(some.lines().count() + 1, all.lines().count());
    }

    #[test]
    fn an_idle_link_gives_everybody_what_it_asks_for() {
        let given = fluid_allocation(100.0, &[(1, 5.0), (1, 7.0)]);
        assert_eq!(given, [5.0, 7.0]);
    }
}
