//! The class of a packet, as people read it.

use clap::Args;
use serde_json::Value as Json;

use crate::plain::told;

/// A packet on the command line.
#[derive(Clone, Debug, Args)]
pub struct Packet {
    /// A line of `tcpdump -n` (with -v for the DSCP, -e for the VLAN), or keys: source=192.0.2.1
    /// destination=198.51.100.2 source-port=5060 destination-port=5060 protocol=udp dscp=ef vlan=7
    #[arg(value_name = "PACKET", required = true)]
    words: Vec<String>,
}

impl Packet {
    /// Returns its description.
    pub fn text(&self) -> String {
        self.words.join(" ")
    }
}

/// Returns a line for each link: `up: class voice, by filter 0 (destination-port=5060)`.
pub fn text(classes: &Json) -> String {
    let lines = classes.as_array().into_iter().flatten().map(|one| {
        let why = match (one["filter"].as_u64(), one["by"].as_str()) {
            (Some(number), _) => format!("by filter {number} ({})", told(&one["match"])),
            (_, Some("grant")) => "by the filter of its grant".to_owned(),
            (_, Some("link-control")) => "as link-layer control".to_owned(),
            _ => "the default class: no filter matches".to_owned(),
        };
        format!(
            "{}: class {}, {why}",
            told(&one["link"]),
            told(&one["class"])
        )
    });
    lines.collect::<Vec<_>>().join("\n")
}
