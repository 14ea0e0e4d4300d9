//! The state of a site as a table, and in the shape that others know.

use fairlane_core::Nanos;
use serde_json::{Value as Json, json};

use crate::{figures, table};

/// Link and name of the only class to be shown.
type Only = (String, String);

/// The classes, each with its link.
fn classes<'a>(
    state: &'a Json,
    only: Option<&'a Only>,
) -> impl Iterator<Item = (&'a Json, &'a Json)> {
    let links = state["links"].as_array().into_iter().flatten();
    let all = links.flat_map(|link| {
        let classes = link["classes"].as_array().into_iter().flatten();
        classes.map(move |class| (link, class))
    });
    all.filter(move |(link, class)| {
        only.is_none_or(|(of, name)| link["name"] == **of && class["name"] == **name)
    })
}

/// Link and name of each class.
pub(super) fn names(state: &Json) -> Vec<(String, String)> {
    let name = |of: &Json| of["name"].as_str().unwrap_or_default().to_owned();
    classes(state, None)
        .map(|(link, class)| (name(link), name(class)))
        .collect()
}

/// The whole state, or the only class.
pub(super) fn picked(state: &Json, only: Option<&Only>) -> Json {
    match only {
        Some(_) => classes(state, only)
            .next()
            .map_or(Json::Null, |(_, class)| class.clone()),
        None => state.clone(),
    }
}

/// A table, with what was lately where that is known.
pub(super) fn text(state: &Json, only: Option<&Only>) -> String {
    let mut lines = Vec::new();
    for link in state["links"].as_array().into_iter().flatten() {
        let rate = |key: &str| figures::rate(link[key].as_f64().unwrap_or(0.0) as u64);
        lines.push(format!(
            "{} to {}: {} of {}, {} packets wait",
            link["name"].as_str().unwrap_or_default(),
            link["to"].as_str().unwrap_or_default(),
            rate("recent_bps"),
            rate("rate_bps"),
            link["queued_packets"]
        ));
    }
    let mut table = table::new([
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
    ]);
    for (link, class) in classes(state, only) {
        let recent = &class["recent"];
        let rate = |value: &Json| {
            value
                .as_f64()
                .map_or("-".to_owned(), |bps| figures::rate(bps as u64))
        };
        let time = |value: &Json| {
            let us = value.as_f64();
            us.map_or("-".to_owned(), |us| figures::time(Nanos((us * 1e3) as u64)))
        };
        let count = |key: &str| class[key].as_u64().unwrap_or(0);
        let depth = depth(link, class);
        table.add_row([
            format!(
                "{}{}",
                "  ".repeat(depth),
                class["name"].as_str().unwrap_or_default()
            ),
            rate(&recent["sent_bps"]),
            format!("{:.1}%", 100.0 * recent["share"].as_f64().unwrap_or(0.0)),
            rate(&class["guaranteed_bps"]),
            rate(&class["ceil_bps"]),
            time(&recent["delay_us"]["p99"]),
            time(&class["delay_us"]["max"]),
            time(&class["bound_us"]),
            count("queued_packets").to_string(),
            (count("dropped") + count("discarded") + count("early")).to_string(),
            count("marked").to_string(),
        ]);
    }
    table::fit(&mut table, &[10, 4, 5, 2]);
    lines.push(table.to_string());
    lines.join("\n")
}

/// Classes above a class.
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

/// As `tc -s -j class show` tells classes: rates in bytes a second, handles by place. Links are
/// numbered from 1, and so are the classes of each; the name stands beside.
pub(super) fn as_tc(state: &Json, only: Option<&Only>) -> Json {
    let links = state["links"].as_array().map_or(&[][..], Vec::as_slice);
    let major = |link: &Json| {
        1 + links
            .iter()
            .position(|other| std::ptr::eq(other, link))
            .unwrap_or(0)
    };
    let minor = |class: &Json| class["number"].as_u64().unwrap_or(0) + 1;
    let bytes = |value: &Json| value.as_u64().map(|bps| bps / 8);
    let rows = classes(state, only).map(|(link, class)| {
        let major = major(link);
        let parent = class["parent"].as_str().and_then(|name| {
            let classes = link["classes"].as_array()?;
            classes.iter().find(|class| class["name"] == *name)
        });
        let drops: u64 = ["dropped", "discarded", "early"]
            .iter()
            .filter_map(|key| class[key].as_u64())
            .sum();
        json!({
            "class": "fairlane",
            "handle": format!("{major:x}:{:x}", minor(class)),
            "parent": parent.map_or(format!("{major:x}:"), |parent| format!("{major:x}:{:x}", minor(parent))),
            "dev": link["to"],
            "name": class["name"],
            "rate": bytes(&class["guaranteed_bps"]),
            "ceil": bytes(&class["ceil_bps"]),
            "stats": {
                "bytes": class["sent_bytes"],
                "packets": class["sent_packets"],
                "drops": drops,
                "overlimits": class["throttled"],
                "requeues": 0,
                "backlog": class["queued_bytes"],
                "qlen": class["queued_packets"],
            },
        })
    });
    rows.collect()
}
