//! The guarantees of a site, as tables.

use comfy_table::{Cell, Table};
use fairlane_config::link_report::{ClassRow, LinkReport, PipelineTerms};
use fairlane_core::Nanos;

use crate::figures::{rate, size, time};
use crate::plain::plain;
use crate::table;

/// What a link is.
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

/// What a daemon adds to the delays of its classes.
pub(crate) fn pipeline(terms: &PipelineTerms) -> String {
    let received = match (terms.receive_workers, terms.arrival_rounds) {
        (workers @ 1.., Some(rounds)) => format!(
            "{workers} receive worker{} hold{} up to {} frames, each taken in within {rounds} rounds;\n  ",
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
        "  pipeline, on top of each delay: {received}{decided}{handed}transmit queue up to {}, {} at this rate, less where \
         the interface is faster",
        size(terms.transmit_bytes),
        time(Nanos(terms.transmit_time_ns))
    )
}

/// Its classes, children below their parents.
pub(crate) fn table_of(link: &LinkReport) -> Table {
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
    for ClassRow { terms: class, .. } in &link.classes {
        let indent = "  ".repeat(class.depth);
        let default = if class.default { " (default)" } else { "" };
        let bounds = match &class.no_bound {
            Some(reason) => reason.to_string(),
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
