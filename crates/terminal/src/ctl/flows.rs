//! Top talkers, as a table.

use serde_json::Value as Json;

use super::show::time;
use crate::plain::told;
use crate::{figures, table};

/// Returns the table, or a sentence if there are no flows.
pub(super) fn text(answer: &Json) -> String {
    let flows = answer["flows"].as_array().map_or(&[][..], Vec::as_slice);
    let seconds = answer["seconds"].as_f64().unwrap_or(0.0);
    if flows.is_empty() {
        return format!("no flow sent anything in the last {seconds:.1} s");
    }
    let mut table = table::new([
        "flow",
        "class",
        "offered",
        "sent",
        "share",
        "packets",
        "rtt",
        "retransmits",
        "CE",
    ]);
    for flow in flows {
        let name = |key: &str| told(&flow[key]);
        let number = |key: &str| flow[key].as_f64().unwrap_or(0.0);
        table.add_row([
            name("flow").into_owned(),
            format!("{}/{}", name("link"), name("class")),
            figures::rate(number("offered_bps") as u64),
            figures::rate(number("bps") as u64),
            format!("{:.1}%", 100.0 * number("share")),
            flow["packets"].to_string(),
            time(&flow["rtt_us"]["p50"]),
            flow["retransmits"].to_string(),
            flow["ecn_ce"].to_string(),
        ]);
    }
    table::fit(&mut table, &[8, 7, 5, 4, 6]);
    format!(
        "top talkers of the last {seconds:.1} s by offered rate; share: of the class's throughput\n{table}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flow_has_a_line_and_none_has_a_sentence() {
        let flow = serde_json::json!({
            "link": "up", "class": "everybody", "flow": "2001:db8::7",
            "offered_packets": 900, "offered_bytes": 1_350_000, "offered_bps": 10_800_000.0,
            "packets": 12, "bytes": 18_000, "bps": 144_000.0, "share": 0.25,
            "rtt_us": { "mean": 21e3, "p50": 20_100.0, "p99": 3e4, "max": 4e4 },
            "retransmits": 3, "ecn_ce": 0,
        });
        let told = text(&serde_json::json!({ "seconds": 1.0, "flows": [flow] }));
        let line = told.lines().find(|line| line.contains("2001:db8::7"));
        let line = line.expect("it has a line");
        for word in [
            "up/everybody",
            "10.8mbit",
            "144kbit",
            "25.0%",
            "12",
            "20.1",
            " 3 ",
        ] {
            assert!(line.contains(word), "{word} in {told}");
        }
        let none = text(&serde_json::json!({ "seconds": 1.02, "flows": [] }));
        assert_eq!(none, "no flow sent anything in the last 1.0 s");
    }
}
