//! The guarantees of a site, as tables and as JSON.

use comfy_table::{Cell, Table};
use fairlane_config::{Class, Guarantee, Kind, Link, LongestBy, NoGuarantee, Site, Size};
use fairlane_core::{Nanos, Rate};
use serde::Serialize;

use crate::table;

/// What a site guarantees.
#[derive(Serialize)]
pub struct Report {
    /// By direction.
    pub links: Vec<LinkRow>,
    warnings: Vec<String>,
}

/// What a link guarantees.
#[derive(Serialize)]
pub struct LinkRow {
    name: String,
    to: &'static str,
    rate_bps: u64,
    overhead: u32,
    longest: u32,
    /// What a packet counts for at least where room is reckoned in packets.
    shortest: u32,
    /// The most that waits in the link, and what of it is kept for no class.
    limit_packets: u32,
    limit_bytes: u64,
    shared_packets: u64,
    shared_bytes: u64,
    /// What that follows from: the file, the interface, or an assumption.
    longest_by: &'static str,
    #[serde(skip)]
    reason: String,
    algorithm: String,
    filters: usize,
    classes: Vec<ClassRow>,
}

#[derive(Serialize)]
struct ClassRow {
    name: String,
    parent: Option<String>,
    #[serde(skip)]
    depth: usize,
    kind: &'static str,
    default: bool,
    weight: u32,
    rate_bps: Option<u64>,
    ceil_bps: Option<u64>,
    burst: Option<u32>,
    guaranteed_bps: Option<u64>,
    /// Bytes that it may send at once, beside its rate, and lose nothing.
    guaranteed_burst: Option<u64>,
    delay_ns: Option<u64>,
    /// What is kept for it.
    room_packets: Option<u32>,
    room_bytes: Option<u32>,
    /// Whether packets wait here.
    #[serde(skip)]
    queues: bool,
    bounds: Vec<&'static str>,
    none: Option<String>,
    flows: Option<FlowsRow>,
}

#[derive(Serialize)]
struct FlowsRow {
    per: String,
    most: u32,
    ceil_bps: Option<u64>,
    guaranteed_bps: Option<u64>,
    guaranteed_burst: Option<u64>,
    /// How many of them have room of their own at a time, and how much.
    with_room: u32,
    room_packets: u32,
    room_bytes: u32,
}

impl Report {
    pub fn new(site: &Site) -> Report {
        Report {
            links: site.links.iter().map(LinkRow::new).collect(),
            warnings: site.warnings.iter().map(ToString::to_string).collect(),
        }
    }
}

impl LinkRow {
    fn new(link: &Link) -> LinkRow {
        let mut depths: Vec<usize> = Vec::new();
        for class in &link.classes {
            depths.push(class.parent.map_or(0, |parent| depths[parent] + 1));
        }
        let guarantees = link.guarantees();
        let kept = link.kept();
        let classes = link.classes.iter().zip(&guarantees).enumerate();
        LinkRow {
            name: link.name.clone(),
            to: link.to.name(),
            rate_bps: link.rate.bps(),
            overhead: link.overhead,
            longest: link.longest.get(),
            shortest: link.shortest().get(),
            limit_packets: link.limits.packets,
            limit_bytes: link.limits.bytes,
            shared_packets: u64::from(link.limits.packets) - kept.0,
            shared_bytes: link.limits.bytes - kept.1,
            longest_by: match link.longest_by {
                LongestBy::File => "file",
                LongestBy::Interface { .. } => "interface",
                LongestBy::Assumed => "assumed",
            },
            reason: match link.longest_by {
                LongestBy::File => String::new(),
                LongestBy::Interface { mtu } => format!(" (its MTU is {mtu})"),
                LongestBy::Assumed => " (an MTU of 1500 is assumed)".to_owned(),
            },
            algorithm: link.algorithm.to_string(),
            filters: link.rules.len(),
            classes: classes
                .map(|(at, (class, guarantee))| ClassRow {
                    parent: class.parent.map(|parent| link.classes[parent].name.clone()),
                    depth: depths[at],
                    default: at == link.default as usize,
                    ..ClassRow::new(class, guarantee)
                })
                .collect(),
        }
    }

    /// What the link is.
    pub fn headline(&self) -> String {
        format!(
            "{} leaves by {} at {}: {}, packets up to {} bytes with {} of overhead{}, {} filter{}",
            self.name,
            self.to,
            rate(self.rate_bps),
            self.algorithm,
            self.longest,
            self.overhead,
            self.reason,
            self.filters,
            if self.filters == 1 { "" } else { "s" }
        )
    }

    /// The classes, children below their parents.
    pub fn table(&self) -> Table {
        let mut table = table::new([
            "class",
            "guaranteed",
            "ceiling",
            "burst",
            "delay",
            "room",
            "bounds",
        ]);
        if let Some(column) = table.column_mut(6) {
            column.set_cell_alignment(comfy_table::CellAlignment::Left);
        }
        for class in &self.classes {
            let indent = "  ".repeat(class.depth);
            let default = if class.default { " (default)" } else { "" };
            let bounds = match &class.none {
                Some(reason) => reason.clone(),
                None => class.bounds.join(" > "),
            };
            let delay = match (class.queues, class.delay_ns) {
                (_, Some(delay)) => time(Nanos(delay)),
                (true, None) => "none".to_owned(),
                (false, None) => String::new(),
            };
            table.add_row([
                Cell::new(format!("{indent}{}{default}", class.name)),
                Cell::new(class.guaranteed_bps.map_or("none".to_owned(), rate)),
                Cell::new(class.ceil_bps.map_or(String::new(), rate)),
                Cell::new(match (class.room_packets, class.guaranteed_burst) {
                    (None, _) => String::new(),
                    (_, burst) => burst.map_or("none".to_owned(), size),
                }),
                Cell::new(delay),
                Cell::new(
                    class
                        .room_packets
                        .map_or(String::new(), |room| room.to_string()),
                ),
                Cell::new(bounds),
            ]);
            if let Some(flows) = &class.flows {
                table.add_row([
                    Cell::new(format!(
                        "{indent}  each of {} per {}",
                        flows.most, flows.per
                    )),
                    Cell::new(flows.guaranteed_bps.map_or("none".to_owned(), rate)),
                    Cell::new(flows.ceil_bps.map_or(String::new(), rate)),
                    Cell::new(flows.guaranteed_burst.map_or("none".to_owned(), size)),
                    Cell::new(""),
                    Cell::new(match flows.with_room <= flows.most {
                        true => format!("{} for {}", flows.room_packets, flows.with_room),
                        false => flows.room_packets.to_string(),
                    }),
                    Cell::new(""),
                ]);
            }
        }
        table
    }
}

impl ClassRow {
    fn new(class: &Class, guarantee: &Guarantee) -> ClassRow {
        let flows = match (&class.kind, guarantee.each) {
            (Kind::Flows(flows), each) => Some(FlowsRow {
                per: flows.per.to_string(),
                most: flows.most,
                ceil_bps: flows.cap.map(|cap| cap.rate.bps()),
                guaranteed_bps: each.and_then(|each| each.rate.ok()),
                guaranteed_burst: each.and_then(|each| each.burst),
                with_room: flows.roomy(),
                room_packets: flows.queue.room.packets,
                room_bytes: flows.queue.room.bytes,
            }),
            _ => None,
        };
        let room = match &class.kind {
            Kind::Inner(_) => None,
            Kind::Leaf(queue) => Some(queue.room),
            Kind::Flows(flows) => Some(flows.room),
        };
        let reason = guarantee.rate.err().or(match guarantee.delay {
            Some(Err(reason)) => Some(reason),
            _ => None,
        });
        ClassRow {
            name: class.name.clone(),
            parent: None,
            depth: 0,
            kind: match class.kind {
                Kind::Inner(_) => "inner",
                Kind::Leaf(_) => "leaf",
                Kind::Flows(_) => "flows",
            },
            default: false,
            weight: class.weight.get(),
            rate_bps: class.rate.map(Rate::bps),
            ceil_bps: class.cap.map(|cap| cap.rate.bps()),
            burst: class.cap.map(|cap| cap.burst),
            guaranteed_bps: guarantee.rate.ok(),
            guaranteed_burst: guarantee.burst,
            room_packets: room.map(|room| room.packets),
            room_bytes: room.map(|room| room.bytes),
            delay_ns: match guarantee.delay {
                Some(Ok(delay)) => Some(delay.0),
                _ => None,
            },
            queues: guarantee.delay.is_some(),
            bounds: guarantee
                .path
                .iter()
                .map(|algorithm| algorithm.name())
                .collect(),
            none: reason.as_ref().map(NoGuarantee::to_string),
            flows,
        }
    }
}

/// With four digits, in the largest unit below it.
pub fn rate(bps: u64) -> String {
    let scales = [(1e12, "tbit"), (1e9, "gbit"), (1e6, "mbit"), (1e3, "kbit")];
    scaled(bps as f64, &scales, "bit")
}

/// As sizes are written, rounded down.
fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => Size(bytes),
        _ => Size(bytes >> 10 << 10),
    }
    .to_string()
}

/// Likewise.
pub fn time(nanos: Nanos) -> String {
    let scales = [(1e9, "s"), (1e6, "ms"), (1e3, "us")];
    scaled(nanos.0 as f64, &scales, "ns")
}

fn scaled(value: f64, scales: &[(f64, &str)], least: &str) -> String {
    let &(scale, unit) = scales
        .iter()
        .find(|(scale, _)| value >= *scale)
        .unwrap_or(&(1.0, least));
    let value = value / scale;
    let digits = 3usize.saturating_sub(value.max(1.0).log10() as usize);
    let text = format!("{value:.digits$}");
    let short = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    format!("{short}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_digits_and_no_more_than_they_need() {
        for (bps, text) in [
            (0, "0bit"),
            (999, "999bit"),
            (64_000, "64kbit"),
            (24_800_000, "24.8mbit"),
            (1_234_567, "1.235mbit"),
            (123_456_789_000, "123.5gbit"),
            (1_000_000_000_000, "1tbit"),
        ] {
            assert_eq!(rate(bps), text);
        }
        assert_eq!(time(Nanos(8_587_976)), "8.588ms");
        assert_eq!(time(Nanos(16_891_811_000)), "16.89s");
    }
}
