//! The classes of a link: their terms, the counts of their packets, and the table for a simulated link.

use comfy_table::Table;
use fairlane_config::Link;
use fairlane_config::class_report::{ClassReport, DelayReport, bps};

use crate::figures::{micros, rate};
use crate::plain::plain;
use crate::table;

/// Columns to hide on a narrow terminal, in this order.
const EXPENDABLE: [usize; 6] = [8, 7, 6, 10, 2, 9];

/// The condition under which the bound applies.
const CONDITION: &str = "bound: worst-case delay of a packet whose class (or flow, in a class of flows) keeps to its \
                         guaranteed rate and arrival burst, regardless of other traffic";

/// Introduces packets to which the bound does not apply.
const LONGER: &str = "longer than the bound, beyond rate or burst of their class: ";

/// Returns a line about a violated bound of conforming packets, which must never occur.
fn broken(class: &ClassReport) -> Option<String> {
    let (bound, max) = (class.terms.bound_us()?, class.conforming_max_us?);
    (max > bound).then(|| {
        format!(
            "{}: BEYOND ITS BOUND: a packet within rate and burst took {}, not {}",
            plain(&class.terms.name),
            micros(max),
            micros(bound)
        )
    })
}

/// Formats the number of late packets to which the bound does not apply.
fn beyond(class: &ClassReport) -> Option<String> {
    let beyond = class.late_packets.filter(|&beyond| beyond > 0)?;
    let guaranteed = class.terms.guaranteed_bps?;
    let more = match class.offered_bps > guaranteed as f64 {
        true => ", offered more than is guaranteed",
        false => "",
    };
    Some(format!(
        "{} ({beyond} of {}{more})",
        plain(&class.terms.name),
        class.sent_packets
    ))
}

/// Formats the classes as a table, children below their parents, with notes.
pub fn text(classes: &[ClassReport]) -> String {
    let table = table_of(classes);
    let bounded = classes.iter().any(|class| class.terms.bound.is_some());
    let mut lines: Vec<String> = Vec::new();
    if bounded {
        lines.push(CONDITION.to_owned());
    }
    lines.extend(classes.iter().filter_map(broken));
    let beyond: Vec<String> = classes.iter().filter_map(beyond).collect();
    if !beyond.is_empty() {
        lines.push(format!("{LONGER}{}", beyond.join(", ")));
    }
    format!("{table}\n{}", lines.join("\n"))
        .trim_end()
        .to_owned()
}

fn table_of(classes: &[ClassReport]) -> Table {
    let mut table = table::new([
        "class",
        "guaranteed",
        "offered",
        "sent",
        "share",
        "drops",
        "marks",
        "delay\nmean",
        "delay\np50",
        "delay\np99",
        "delay\nmax",
        "bound",
    ]);
    for class in classes {
        let delay = |of: fn(&DelayReport) -> f64| match &class.delay_us {
            Some(delays) => micros(of(delays)),
            None => String::new(),
        };
        let terms = &class.terms;
        let none = if terms.queues { "none" } else { "" };
        table.add_row([
            table::class(terms.depth, &terms.name),
            terms.guaranteed_bps.map_or("none".to_owned(), rate),
            rate(class.offered_bps.round() as u64),
            rate(class.sent_bps.round() as u64),
            format!("{:.2}%", class.share * 100.0),
            class.drops.total().to_string(),
            class.marked.to_string(),
            delay(|delays| delays.mean.unwrap_or(0.0)),
            delay(|delays| delays.p50),
            delay(|delays| delays.p99),
            delay(|delays| delays.max),
            terms.bound_us().map_or(none.to_owned(), micros),
        ]);
    }
    table::fit(&mut table, &EXPENDABLE);
    table
}

/// Returns the line above the table: the link's totals.
pub fn headline(link: &Link, sent: &[ClassReport], seconds: f64) -> String {
    let top = sent.iter().filter(|class| class.terms.parent.is_none());
    let bytes: u64 = top.map(|class| class.sent_bytes).sum();
    let carried = bps(bytes, seconds);
    let part = carried / link.rate.bps() as f64 * 100.0;
    format!(
        "{} at {}: {}, {} carried ({part:.2}%)",
        plain(&link.name),
        rate(link.rate.bps()),
        link.algorithm,
        rate(carried.round() as u64)
    )
}
