//! The state of a site as a table.

use fairlane_control::view::{Place, classes, drops};
use serde_json::Value as Json;

use crate::plain::told;
use crate::table::{self, NOT_APPLICABLE, WHY_NOT_APPLICABLE};
use crate::{configuration, figures};

/// Returns the table, with recent figures if they are known.
pub(super) fn text(state: &Json, only: Option<&Place>) -> String {
    let bypasses = state["bypasses"].as_array().into_iter().flatten();
    let bypasses = bypasses.map(|it| format!("warning: {}", told(it)));
    let mut lines: Vec<String> = bypasses.chain(configuration::notes(state)).collect();
    for link in state["links"].as_array().into_iter().flatten() {
        let rate = |key: &str| figures::rate(link[key].as_f64().unwrap_or(0.0) as u64);
        // A state without the key is of a link that is shaped.
        let open = match link["shaped"].as_bool() {
            Some(false) => format!(", not shaped: {} frames passed by", link["passed_frames"]),
            _ => String::new(),
        };
        lines.push(format!(
            "{} to {}: {} of {}, {} packets queued{open}",
            told(&link["name"]),
            told(&link["to"]),
            rate("recent_bps"),
            rate("rate_bps"),
            link["queued_packets"]
        ));
    }
    let mut table = table::new([
        "link",
        "class",
        "rate",
        "share",
        "guaranteed",
        "ceiling",
        "p99",
        "max",
        "bound",
        "queued",
        "drops",
        "marks",
        "rtt",
    ]);
    if let Some(column) = table.column_mut(1) {
        column.set_cell_alignment(comfy_table::CellAlignment::Left);
    }
    let mut some_exceed = false;
    for (link, class) in classes(state, only) {
        let recent = &class["recent"];
        let rate = |value: &Json| {
            value
                .as_f64()
                .map_or("-".to_owned(), |bps| figures::rate(bps as u64))
        };
        let count = |key: &str| class[key].as_u64().unwrap_or(0);
        let depth = depth(link, class);
        let bound = match recent["bound_applies"] == false {
            true => NOT_APPLICABLE.to_owned(),
            false => time(&class["bound_us"]),
        };
        some_exceed |= bound == NOT_APPLICABLE;
        table.add_row([
            told(&link["name"]).into_owned(),
            table::class(depth, class["name"].as_str().unwrap_or_default()),
            rate(&recent["sent_bps"]),
            format!("{:.1}%", 100.0 * recent["share"].as_f64().unwrap_or(0.0)),
            rate(&class["guaranteed_bps"]),
            rate(&class["ceil_bps"]),
            time(&recent["delay_us"]["p99"]),
            time(&class["delay_us"]["max"]),
            bound,
            count("queued_packets").to_string(),
            drops(class).to_string(),
            count("marked").to_string(),
            time(&recent["rtt_us"]["p50"]),
        ]);
    }
    table::fit(&mut table, &[11, 12, 5, 6, 3]);
    lines.push(table.to_string());
    if some_exceed {
        lines.push(format!("{NOT_APPLICABLE}: {WHY_NOT_APPLICABLE}"));
    }
    lines.join("\n")
}

/// Formats a time in microseconds; a dash if there is none.
pub(super) fn time(value: &Json) -> String {
    let us = value.as_f64();
    us.map_or("-".to_owned(), figures::micros)
}

/// Returns the number of classes above a class.
fn depth(link: &Json, class: &Json) -> usize {
    let named = |name: &str| {
        let classes = link["classes"].as_array();
        classes
            .into_iter()
            .flatten()
            .find(|class| class["name"] == *name)
    };
    let above = std::iter::successors(Some(class), |class| {
        class["parent"].as_str().and_then(named)
    });
    above.count() - 1
}
