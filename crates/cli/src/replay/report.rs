//! The results of a replay, in words and tables.

use std::io::{self, Write};

use anyhow::{Context, Result};
use comfy_table::Table;
use fairlane_config::{Link, algorithms};
use fairlane_core::sched::{Algorithm, Sharing};
use fairlane_terminal::classes;
use fairlane_traffic::replay::by_flow::FlowReport;
use fairlane_traffic::replay::{by_class, by_flow};
use serde::Serialize;

use super::Options;
use crate::figures::{micros, rate};
use crate::{output, plain, table};

/// Limit on the rows of the table; further flows are only counted.
const MOST_ROWS: usize = 20;

/// Columns that are omitted on a narrow terminal, in this order.
const EXPENDABLE: [usize; 5] = [4, 3, 9, 2, 10];

/// The condition of a B-WFI bound that is marked.
const CONDITION: &str = "\n* holds while the fluid server has packets of the flow, too; \
    a flow that sends only after its last packet has left may exceed it";

/// A report in both forms.
pub(super) struct Shown {
    json: String,
    text: String,
}

impl Shown {
    pub(super) fn new(report: &impl Serialize, text: String) -> Result<Shown> {
        let json = plain::json(report)?;
        Ok(Shown { json, text })
    }

    /// Prints the selected form to the output that the departures do not use.
    pub(super) fn print(&self, options: &Options) -> Result<()> {
        if options.json {
            return output::line(&self.json);
        }
        if options.output.is_some() {
            return output::line(&self.text);
        }
        writeln!(io::stderr(), "{}", self.text).context("printing the report")
    }
}

/// Formats a replay through a site's link.
pub(super) fn of_classes(report: &by_class::Report, link: &Link) -> String {
    let mut text = format!(
        "{}\n{}: {} packets, {} bytes in {} s",
        classes::text(&report.classes),
        classes::headline(link, &report.classes, report.seconds),
        report.packets,
        report.bytes,
        report.seconds
    );
    for (packets, what) in [
        (report.oversized, "longer than the link carries, dropped"),
        (
            report.malformed,
            "that could not be read, in the default class",
        ),
        (
            report.unmatched,
            "that no filter matched, in the default class",
        ),
    ] {
        if packets > 0 {
            text += &format!("; {packets} {what}");
        }
    }
    text
}

/// Formats a replay through a packet scheduler.
pub(super) fn of_flows(report: &by_flow::Report) -> String {
    let mut shown: Vec<&FlowReport> = report.flows.iter().collect();
    let mut text = format!(
        "{}: {} packets, {} bytes, {} flows at {}",
        report.alg,
        report.packets,
        report.bytes,
        report.flows.len(),
        rate(report.rate_bps),
    );
    if report.oversized > 0 {
        let oversized = report.oversized;
        text += &format!("; {oversized} longer than any link carries, dropped");
    }
    if shown.len() > MOST_ROWS {
        shown.sort_by(|a, b| b.badness().total_cmp(&a.badness()));
        let left_out = shown.split_off(MOST_ROWS).len();
        text += &format!(
            "; these are the {MOST_ROWS} that were furthest behind, {left_out} are left out"
        );
    }
    let conditional = |flow: &&FlowReport| flow.b_wfi_conditional_bound_bytes.is_some();
    if shown.iter().any(conditional) {
        text += CONDITION;
    }
    if shown.iter().any(|flow| flow.t_wfi_bound_ns.is_none()) {
        text += &format!("\nno bound: {}", without_bound(report.alg));
    }
    format!("{}\n{text}", table_of(&shown))
}

/// Returns the reason why flows have no bound under this algorithm.
fn without_bound(algorithm: &str) -> &'static str {
    match algorithms::named(algorithm).map(Algorithm::sharing) {
        Some(Sharing::Offers(reason)) => reason,
        Some(Sharing::Levels) => {
            "arrivals are unlimited, so flows of a higher level, and others of the same level, may take the whole \
             link; with --config, ceilings limit classes, and lower levels have bounds"
        }
        _ => "none is known for this algorithm",
    }
}

fn table_of(flows: &[&FlowReport]) -> Table {
    let mut table = table::new([
        "flow",
        "weight",
        "packets",
        "bytes",
        "max_len",
        "T-WFI",
        "bound",
        "B-WFI",
        "bound",
        "delay\np50",
        "delay\np99",
        "delay\nmax",
    ]);
    let time = |nanos: f64| micros(nanos / 1e3);
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
            time(flow.t_wfi_ns),
            flow.t_wfi_bound_ns
                .map_or_else(none, |bound| time(bound as f64)),
            format!("{:.1}b", flow.b_wfi_bytes),
            match (flow.b_wfi_bound_bytes, flow.b_wfi_conditional_bound_bytes) {
                (Some(bound), _) => format!("{bound:.1}b"),
                (None, Some(bound)) => format!("{bound:.1}b *"),
                (None, None) => none(),
            },
            time(flow.delay_ns.p50),
            time(flow.delay_ns.p99),
            time(flow.delay_ns.max),
        ]);
    }
    table::fit(&mut table, &EXPENDABLE);
    table
}
