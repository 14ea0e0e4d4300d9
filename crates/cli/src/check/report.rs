//! The guarantees of a site, as tables and as JSON.

use std::sync::Arc;

use comfy_table::{Cell, Table};
use fairlane_config::class_report::{ClassTerms, FlowTerms};
use fairlane_config::{Link, LongestBy, Site};
use fairlane_core::Nanos;
use serde::Serialize;

use crate::figures::{rate, size, time};
use crate::plain::plain;
use crate::table;

/// What a site guarantees.
#[derive(Serialize)]
pub(crate) struct Report {
    /// By direction.
    pub links: Vec<LinkRow>,
    warnings: Vec<String>,
}

/// What a link guarantees.
#[derive(Serialize)]
pub(crate) struct LinkRow {
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

/// A class; `flows` is what the terms call `each`.
#[derive(Serialize)]
struct ClassRow {
    #[serde(flatten)]
    terms: Arc<ClassTerms>,
    flows: Option<FlowTerms>,
}

impl Report {
    pub(crate) fn new(site: &Site) -> Report {
        Report {
            links: site.links.iter().map(|link| LinkRow::new(link)).collect(),
            warnings: site.warnings.iter().map(ToString::to_string).collect(),
        }
    }
}

impl LinkRow {
    fn new(link: &Link) -> LinkRow {
        let kept = link.kept();
        let row = |terms: Arc<ClassTerms>| ClassRow {
            flows: terms.each.clone(),
            terms,
        };
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
            classes: ClassTerms::of(link).iter().cloned().map(row).collect(),
        }
    }

    /// What the link is.
    pub(crate) fn headline(&self) -> String {
        format!(
            "{} leaves by {} at {}: {}, packets up to {} bytes with {} of overhead{}, {} filter{}",
            plain(&self.name),
            plain(self.to),
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
    pub(crate) fn table(&self) -> Table {
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
        for ClassRow { terms: class, .. } in &self.classes {
            let indent = "  ".repeat(class.depth);
            let default = if class.default { " (default)" } else { "" };
            let bounds = match &class.no_bound {
                Some(reason) => reason.clone(),
                None => class.bounds.join(" > "),
            };
            let delay = match (class.queues, class.delay_ns) {
                (_, Some(delay)) => time(Nanos(delay)),
                (true, None) => "none".to_owned(),
                (false, None) => String::new(),
            };
            table.add_row([
                Cell::new(format!(
                    "{}{default}",
                    table::class(class.depth, &class.name)
                )),
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
            if let Some(flows) = &class.each {
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
