//! What a replay did to each flow, beside what its algorithm promises.

use std::io::{self, Write};
use std::num::NonZeroU32;

use anyhow::{Context, Result};
use comfy_table::Table;
use fairlane_config::Link;
use fairlane_config::class_report::{ClassReport, DelayReport};
use fairlane_core::{FlowConfig, Rate};
use fairlane_sim::{Delays, Picos};
use serde::Serialize;

use super::Options;
use super::classed::Replayed;
use crate::classes;
use crate::{output, table};
use fairlane_core::bounds::Guarantees;
use fairlane_traffic::flow_key::Key;
use fairlane_traffic::flows;
use fairlane_traffic::unclassed::{Meters, Setup};

/// Rows of the table; the others are counted.
const MOST_ROWS: usize = 20;

/// Columns to do without on a narrow terminal, the first of them first.
const EXPENDABLE: [usize; 5] = [4, 3, 9, 2, 10];

/// A report in both forms.
pub struct Shown {
    json: String,
    text: String,
}

impl Shown {
    /// Prints the one that is wanted where departures do not go.
    pub fn print(&self, options: &Options) -> Result<()> {
        if options.json {
            return output::line(&self.json);
        }
        if options.output.is_some() {
            return output::line(&self.text);
        }
        writeln!(io::stderr(), "{}", self.text).context("printing the report")
    }
}

/// What `--json` prints of a replay through a site's link.
#[derive(Debug, Serialize)]
pub struct ClassedReport {
    link: String,
    alg: String,
    rate_bps: u64,
    overhead: u32,
    /// From the first arrival to the last departure.
    seconds: f64,
    /// That left, without overhead.
    packets: u64,
    bytes: u64,
    /// Longer than the link carries.
    oversized: u64,
    /// In the default class, as they could not be read, or as no filter matched.
    malformed: u64,
    unmatched: u64,
    classes: Vec<ClassReport>,
}

impl ClassedReport {
    /// `unclassified` are packets that could not be read, and that no filter matched.
    pub fn new(link: &Link, replayed: Replayed, unclassified: (u64, u64)) -> ClassedReport {
        let time = replayed.time;
        let leaves = || replayed.classes.iter().filter(|class| class.terms.queues);
        let packets: u64 = leaves().map(|class| class.sent_packets).sum();
        let bytes: u64 = leaves().map(|class| class.sent_bytes).sum();
        ClassedReport {
            link: link.name.clone(),
            alg: link.algorithm.to_string(),
            rate_bps: link.rate.bps(),
            overhead: link.overhead,
            seconds: time.as_secs_f64(),
            packets,
            bytes: bytes - packets * u64::from(link.overhead),
            oversized: replayed.oversized,
            malformed: unclassified.0,
            unmatched: unclassified.1,
            classes: replayed.classes,
        }
    }

    pub fn shown(&self, link: &Link) -> Result<Shown> {
        let mut text = format!(
            "{}\n{}: {} packets, {} bytes in {} s",
            classes::text(&self.classes),
            classes::headline(link, &self.classes, self.seconds),
            self.packets,
            self.bytes,
            self.seconds
        );
        for (packets, what) in [
            (self.oversized, "longer than the link carries, dropped"),
            (
                self.malformed,
                "that could not be read, in the default class",
            ),
            (
                self.unmatched,
                "that no filter matched, in the default class",
            ),
        ] {
            if packets > 0 {
                text += &format!("; {packets} {what}");
            }
        }
        Ok(Shown {
            json: serde_json::to_string(self)?,
            text,
        })
    }
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
pub struct Report {
    alg: &'static str,
    rate_bps: u64,
    #[serde(skip)]
    rate: Rate,
    overhead: u32,
    aggregate: u32,
    packets: u64,
    bytes: u64,
    flows: Vec<FlowReport>,
}

/// One flow; a bound is null where the algorithm has none.
#[derive(Debug, Serialize)]
struct FlowReport {
    flow: u32,
    /// What its packets have in common, in a capture.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    weight: u32,
    max_len: u32,
    packets: u64,
    /// Without overhead, as all but the indexes, which are those of the link.
    bytes: u64,
    t_wfi_ns: f64,
    t_wfi_bound_ns: Option<u64>,
    b_wfi_bytes: f64,
    b_wfi_bound_bytes: Option<f64>,
    delay_ns: DelayReport,
}

impl FlowReport {
    /// How much of what was promised was used up; without a promise, how far the flow
    /// fell behind.
    fn badness(&self) -> f64 {
        match self.t_wfi_bound_ns {
            Some(bound) => self.t_wfi_ns / bound as f64,
            None => self.t_wfi_ns,
        }
    }
}

impl Report {
    pub fn new(
        setup: Setup<'_>,
        aggregate: NonZeroU32,
        (wfi, delays, bytes): &Meters,
        keys: Option<Vec<Key>>,
    ) -> Self {
        let alg = setup.algorithm.name();
        let configs: Vec<FlowConfig> = wfi.flows().map(|(_, wfi)| wfi.config).collect();
        let sent: u64 = bytes.0.iter().sum();
        let guarantees = Guarantees::new(setup.algorithm, &configs, sent);
        let nanos = |time: Picos| time.0 as f64 / 1e3;
        let in_nanos = |delays: &Delays| classes::delays_in(Picos::from_nanos(1), delays);
        let flows: Vec<FlowReport> = wfi
            .flows()
            .zip(&bytes.0)
            .map(|((id, wfi), &bytes)| {
                let delays = delays.flow(id);
                let packets = delays.map_or(0, |delays| delays.count());
                let bound = guarantees.of(&wfi.config);
                let number = id.number() as usize;
                let declared = setup.flows.get(number);
                FlowReport {
                    flow: id.number(),
                    key: keys
                        .as_ref()
                        .and_then(|keys| keys.get(number))
                        .map(Key::to_string),
                    weight: wfi.config.weight.get(),
                    max_len: declared.unwrap_or(&flows::Flow::UNDECLARED).max_len.get(),
                    packets,
                    bytes: bytes - packets * u64::from(setup.overhead),
                    t_wfi_ns: nanos(wfi.t_wfi),
                    t_wfi_bound_ns: bound.map(|bound| bound.delay.time(setup.rate).0),
                    b_wfi_bytes: wfi.b_wfi_backlogged.as_bytes_f64(),
                    b_wfi_bound_bytes: bound.map(|bound| bound.service.bytes()),
                    delay_ns: delays.map_or_else(DelayReport::default, in_nanos),
                }
            })
            .collect();
        Report {
            alg,
            rate_bps: setup.rate.bps(),
            rate: setup.rate,
            overhead: setup.overhead,
            aggregate: aggregate.get(),
            packets: flows.iter().map(|flow| flow.packets).sum(),
            bytes: flows.iter().map(|flow| flow.bytes).sum(),
            flows,
        }
    }

    pub fn shown(&self) -> Result<Shown> {
        Ok(Shown {
            json: serde_json::to_string(self)?,
            text: self.text(),
        })
    }

    fn text(&self) -> String {
        let mut shown: Vec<&FlowReport> = self.flows.iter().collect();
        let mut text = format!(
            "{}: {} packets, {} bytes, {} flows at {}",
            self.alg,
            self.packets,
            self.bytes,
            self.flows.len(),
            self.rate,
        );
        if shown.len() > MOST_ROWS {
            shown.sort_by(|a, b| b.badness().total_cmp(&a.badness()));
            let left_out = shown.split_off(MOST_ROWS).len();
            text += &format!(
                "; these are the {MOST_ROWS} that were furthest behind, {left_out} are left out"
            );
        }
        format!("{}\n{text}", table_of(&shown))
    }
}

fn table_of(flows: &[&FlowReport]) -> Table {
    let mut table = table::new([
        "flow",
        "weight",
        "packets",
        "bytes",
        "max_len",
        "T-WFI\nus",
        "bound\nus",
        "B-WFI\nbytes",
        "bound\nbytes",
        "delay\np50 us",
        "delay\np99 us",
        "delay\nmax us",
    ]);
    let micros = |nanos: f64| format!("{:.3}", nanos / 1e3);
    let none = || "none".to_owned();
    for flow in flows {
        table.add_row([
            match &flow.key {
                Some(key) => format!("{} {key}", flow.flow),
                None => flow.flow.to_string(),
            },
            flow.weight.to_string(),
            flow.packets.to_string(),
            flow.bytes.to_string(),
            flow.max_len.to_string(),
            micros(flow.t_wfi_ns),
            flow.t_wfi_bound_ns
                .map_or_else(none, |bound| micros(bound as f64)),
            format!("{:.1}", flow.b_wfi_bytes),
            flow.b_wfi_bound_bytes
                .map_or_else(none, |bound| format!("{bound:.1}")),
            micros(flow.delay_ns.p50),
            micros(flow.delay_ns.p99),
            micros(flow.delay_ns.max),
        ]);
    }
    table::fit(&mut table, &EXPENDABLE);
    table
}
