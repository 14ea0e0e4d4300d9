//! The state of a demonstration, in words and tables.

use comfy_table::Table;
use fairlane_demo::{FlowReport, MOST_SOURCES, Report};
use fairlane_terminal::screen::Shown;

use crate::figures::{self, micros};
use crate::table;

/// Columns that are omitted on a narrow terminal, in this order.
const EXPENDABLE: [usize; 8] = [8, 10, 6, 2, 9, 3, 7, 1];

/// Formats the summary of a run, with `ignored` datagrams that were not relayed.
pub(super) fn conclusion(report: &Report, ignored: u64) -> String {
    let start = Report {
        seconds: 0.0,
        flows: Vec::new(),
        ..report.clone()
    };
    let mut text = self::table(report, &start, usize::MAX);
    if ignored > 0 {
        text += &format!(
            "\n{ignored} datagrams were not relayed: too long, or from more than \
             {MOST_SOURCES} addresses"
        );
    }
    text
}

/// Returns the table, with rates and shares over the time since `earlier`. It has `lines` lines plus its borders and
/// header; these include a line with the number of flows not shown.
fn flow_table(report: &Report, earlier: &Report, lines: usize) -> Table {
    let mut table = table::new([
        "flow",
        "weight",
        "offered",
        "received",
        "expected\nshare",
        "measured\nshare",
        "delay\np50",
        "delay\np99",
        "delay\nmax",
        "drops",
        "mailbox\nfull",
    ]);
    let seconds = (report.seconds - earlier.seconds).max(1e-9);
    let before = |number: usize| earlier.flows.get(number);
    let since = |bytes: fn(&FlowReport) -> f64, number: usize| {
        bytes(&report.flows[number]) - before(number).map_or(0.0, bytes)
    };
    let total = |bytes| -> f64 { (0..report.flows.len()).map(|n| since(bytes, n)).sum() };
    let expected = total(|flow| flow.expected_bytes);
    let received = total(|flow| flow.received_bytes as f64);
    let shown = match report.flows.len() {
        flows if flows <= lines => flows,
        _ => lines.saturating_sub(1),
    };
    for (number, flow) in report.flows[..shown].iter().enumerate() {
        let rate = |bytes| {
            let bits = since(bytes, number) * 8.0;
            figures::rate((bits / seconds).round() as u64)
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
            micros(flow.delay_us.p50),
            micros(flow.delay_us.p99),
            micros(flow.delay_us.max),
            flow.dropped_packets.to_string(),
            flow.backpressure.to_string(),
        ]);
    }
    if shown < report.flows.len() {
        table.add_row([format!("and {} more", report.flows.len() - shown)]);
    }
    table::fit(&mut table, &EXPENDABLE);
    table
}

/// Formats the link's utilization in a sentence.
fn link_line(report: &Report) -> String {
    format!(
        "{}: {} of {} used over {:.1} s; shares are of the throughput",
        report.alg,
        percent(report.link.utilisation),
        figures::rate(report.link.rate_bps),
        report.seconds
    )
}

/// The formats of the state.
pub(super) const SHOWN: Shown<Report> = Shown { table, lines };

fn table(report: &Report, earlier: &Report, lines: usize) -> String {
    format!(
        "{}\n{}",
        flow_table(report, earlier, lines),
        link_line(report)
    )
}

/// Returns the state in lines of plain text, one per flow; rates since `earlier`, everything else since the start.
fn lines(report: &Report, earlier: &Report) -> String {
    let seconds = (report.seconds - earlier.seconds).max(1e-9);
    let mut lines = format!(
        "{:.1} s, link {} used",
        report.seconds,
        percent(report.link.utilisation)
    );
    for (number, flow) in report.flows.iter().enumerate() {
        let rate = |bytes: fn(&FlowReport) -> u64| {
            let before = earlier.flows.get(number).map_or(0, bytes);
            let bits = (bytes(flow) - before) as f64 * 8.0;
            figures::rate((bits / seconds).round() as u64)
        };
        let delay = &flow.delay_us;
        lines += &format!(
            "\n  {}: weight {}, offered {}, received {}, expected {}, measured {}, \
             delay p50 {} p99 {} max {}, drops {}, mailbox full {}",
            flow.name,
            flow.weight,
            rate(|flow| flow.offered_bytes),
            rate(|flow| flow.received_bytes),
            percent(flow.expected_share),
            percent(flow.measured_share),
            micros(delay.p50),
            micros(delay.p99),
            micros(delay.max),
            flow.dropped_packets,
            flow.backpressure,
        );
    }
    lines
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

fn percent(share: f64) -> String {
    format!("{:.2}%", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlane_config::class_report::DelayReport;
    use fairlane_demo::{ArbiterReport, LinkReport};

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
        let report = Report {
            alg: "qfq",
            seconds: 0.0,
            link: LinkReport {
                rate_bps: 1_000_000,
                rate: "1mbit".parse().unwrap(),
                sent_bps: 0.0,
                utilisation: 0.0,
            },
            arbiter: ArbiterReport::default(),
            flows: (1..=5).map(flow).collect(),
        };
        let all = flow_table(&report, &report, 5).to_string();
        assert!(all.contains("sender-5") && !all.contains("more"), "{all}");
        let some = flow_table(&report, &report, 4).to_string();
        assert!(
            some.contains("sender-3") && !some.contains("sender-4"),
            "{some}"
        );
        assert!(some.contains("and 2 more"), "{some}");
        assert_eq!(some.lines().count() + 1, all.lines().count());
    }
}
