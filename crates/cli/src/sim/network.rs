//! The results of a network simulation, as text.

use comfy_table::Table;
use fairlane_traffic::scenario::{DelaysReport, FlowsReport, NetworkOutcome, WireReport};

use super::which;
use crate::figures::{micros, rate};
use crate::plain::plain;
use crate::table;

/// Formats the tables of sources and wires.
pub(super) fn text(outcome: &NetworkOutcome) -> String {
    format!(
        "{} wires{}\n{}\n{}",
        outcome.wires.len(),
        which(outcome.seconds, outcome.seed, outcome.interrupted),
        sources(&outcome.sources),
        wires(&outcome.wires)
    )
}

fn sources(all: &[FlowsReport]) -> Table {
    let mut table = table::new([
        "source",
        "way",
        "sent",
        "received",
        "drops",
        "delay\nmean",
        "deviation",
        "p50",
        "p99",
        "max",
    ]);
    for source in all {
        let delay = |of: fn(&DelaysReport) -> f64| {
            let delays = source.delay_us.as_ref();
            delays.map_or(String::new(), |delays| micros(of(delays)))
        };
        table.add_row([
            plain(&source.name).to_string(),
            way(&source.from, &source.to),
            rate(source.sent_bps.round() as u64),
            rate(source.received_bps.round() as u64),
            (source.rejected + source.displaced).to_string(),
            delay(|delays| delays.mean),
            delay(|delays| delays.deviation),
            delay(|delays| delays.p50),
            delay(|delays| delays.p99),
            delay(|delays| delays.max),
        ]);
    }
    table::fit(&mut table, &[7, 8, 3, 2]);
    table
}

fn wires(all: &[WireReport]) -> Table {
    let mut table = table::new(["wire", "algorithm", "rate", "delay", "sent", "drops"]);
    for wire in all {
        table.add_row([
            way(&wire.from, &wire.to),
            wire.algorithm.to_owned(),
            rate(wire.rate_bps),
            micros(wire.delay_us),
            rate(wire.sent_bps.round() as u64),
            (wire.rejected + wire.displaced).to_string(),
        ]);
    }
    table
}

fn way(from: &str, to: &str) -> String {
    format!("{} > {}", plain(from), plain(to))
}
