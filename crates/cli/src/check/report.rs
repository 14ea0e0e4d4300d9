//! The guarantees of a site, as tables.

use comfy_table::{Cell, Table};
use fairlane_config::class_report::FlowTerms;
use fairlane_config::link_report::{LinkReport, PipelineTerms};
use fairlane_core::Nanos;

use crate::figures::{rate, size, time};
use crate::plain::plain;
use crate::table;

/// Returns the heading of a link.
pub(crate) fn headline(link: &LinkReport) -> String {
    format!(
        "{} leaves by {} at {}: {}, packets up to {} bytes with {} of overhead{}, {} filter{}",
        plain(&link.name),
        plain(link.to),
        rate(link.rate_bps),
        link.algorithm,
        link.longest,
        link.overhead,
        link.reason,
        link.filters,
        if link.filters == 1 { "" } else { "s" }
    )
}

/// Formats the delay that a daemon adds to that of each class.
pub(crate) fn pipeline(terms: &PipelineTerms) -> String {
    let received = match (terms.receive_workers, terms.arrival_rounds) {
        (workers @ 1.., Some(rounds)) => format!(
            "{workers} receive worker{} hold{} up to {} frames, each enqueued within {rounds} rounds;\n  ",
            if workers == 1 { "" } else { "s" },
            if workers == 1 { "s" } else { "" },
            terms.held_frames
        ),
        _ => String::new(),
    };
    let decided = match terms.arbiters {
        2.. => "each link has an arbiter on a thread of its own;\n  ",
        _ => "",
    };
    let handed = match (terms.transmit_workers, terms.transmit_rounds) {
        (workers @ 1.., Some(rounds)) => format!(
            "{workers} transmit worker{} {} each frame within {rounds} rounds of {} own;\n  ",
            if workers == 1 { "" } else { "s" },
            if workers == 1 { "sends" } else { "send" },
            if workers == 1 { "its" } else { "their" },
        ),
        _ => String::new(),
    };
    format!(
        "  pipeline, on top of each delay: {received}{decided}{handed}transmit queue up to {}, {} at {}; rounds of up to {}, \
         {} in all",
        size(terms.transmit_bytes),
        time(Nanos(terms.transmit_time_ns)),
        match terms.speed_bps {
            Some(speed) => rate(speed),
            None => "this rate, less where the interface is faster".to_owned(),
        },
        time(Nanos(terms.round_budget_ns)),
        time(terms.rounds()),
    )
}

/// Returns the parts of each delay bound, and the bound of a class that was served ahead of its rate.
pub(crate) fn parts_of(link: &LinkReport) -> Table {
    let rounds = link.pipeline.as_ref().map(PipelineTerms::rounds);
    let queue = link.pipeline.as_ref();
    let queue = queue.map(|terms| Nanos(terms.transmit_time_ns));
    let mut table = table::new([
        "class",
        "burst at its rate",
        "scheduler",
        "delay",
        "rounds",
        "transmit queue",
        "port to port",
        "if served ahead",
    ]);
    for row in &link.classes {
        let class = &row.terms;
        let (name, rate) = match &class.each {
            Some(flows) => (each(class.depth, flows), flows.guaranteed_bps),
            None => (table::class(class.depth, &class.name), class.guaranteed_bps),
        };
        if let (Some(rate), Some(burst), Some(delay)) = (rate, class.arrival_burst, class.bound) {
            let own = u64::from(burst) * 8_000_000_000 / rate.max(1);
            let ahead = class.ahead_bound.unwrap_or(delay);
            let own = Nanos(own).min(delay);
            let [own, rest, delay, ahead] = [own, delay - own, delay, ahead].map(Some);
            let total = row.port_to_port_ns.map(Nanos);
            let times = [own, rest, delay, rounds, queue, total, ahead];
            let times = times.map(|nanos| nanos.map_or(String::new(), time));
            if class.each.is_some() {
                table.add_row([table::class(class.depth, &class.name)]);
            }
            table.add_row([vec![name], times.to_vec()].concat());
        }
    }
    table
}

/// Formats a row of the flows of a class.
fn each(depth: usize, flows: &FlowTerms) -> String {
    let indent = "  ".repeat(depth);
    format!("{indent}  each of {} per {}", flows.most, flows.per)
}

/// Formats a delay bound, and the arrival burst to which it applies.
fn contract(burst: Option<u32>, delay: Option<Nanos>) -> [String; 2] {
    match (burst, delay) {
        (Some(burst), Some(delay)) => [format!("{burst}b"), time(delay)],
        _ => [String::new(), "none".to_owned()],
    }
}

/// Returns the table of its classes, children below their parents.
pub(crate) fn table_of(link: &LinkReport) -> Table {
    let mut table = table::new([
        "class",
        "guaranteed",
        "ceiling",
        "burst",
        "arrival burst",
        "delay",
        "port to port",
        "room",
        "bounds",
    ]);
    if let Some(column) = table.column_mut(8) {
        column.set_cell_alignment(comfy_table::CellAlignment::Left);
    }
    for row in &link.classes {
        let class = &row.terms;
        let total = (row.port_to_port_ns).map_or(String::new(), |total| time(Nanos(total)));
        let default = if class.default { " (default)" } else { "" };
        let bounds = match &class.no_bound {
            Some(reason) => reason.to_string(),
            None => class.bounds.join(" > "),
        };
        // The delay bound of a class with flows is that of a flow.
        let is_of_packets = class.queues && class.each.is_none();
        let [arrivals, delay] = match is_of_packets {
            true => contract(class.arrival_burst, class.bound),
            false => [const { String::new() }; 2],
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
            Cell::new(arrivals),
            Cell::new(delay),
            Cell::new(if is_of_packets { &total } else { "" }),
            Cell::new(
                class
                    .room_packets
                    .map_or(String::new(), |room| room.to_string()),
            ),
            Cell::new(bounds),
        ]);
        if let Some(flows) = &class.each {
            let [arrivals, delay] = contract(Some(flows.arrival_burst), flows.bound);
            table.add_row([
                Cell::new(each(class.depth, flows)),
                Cell::new(flows.guaranteed_bps.map_or("none".to_owned(), rate)),
                Cell::new(flows.ceil_bps.map_or(String::new(), rate)),
                Cell::new(flows.guaranteed_burst.map_or("none".to_owned(), size)),
                Cell::new(arrivals),
                Cell::new(delay),
                Cell::new(total),
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
