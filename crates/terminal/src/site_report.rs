//! A site's state for people: live tables, lines of text, and the final report of a run.

use std::cmp::Reverse;

use comfy_table::Table;
use fairlane_config::class_report::ClassReport;
use fairlane_daemon::{InterfaceReport, LinkReport, PipelineReport, Report};

use crate::figures::{micros, rate, size};
use crate::plain::plain;
use crate::screen::Shown;
use crate::table::{self, NOT_APPLICABLE, WHY_NOT_APPLICABLE};

/// Columns to hide on a narrow terminal, in this order.
const EXPENDABLE: [usize; 6] = [10, 8, 4, 6, 7, 2];

/// Maximum number of classes of a link in lines, and in the final table.
const MOST_LINES: usize = 24;
const MOST_ROWS: usize = 200;

/// Maximum number of classes in a sentence.
const MOST_NAMED: usize = 8;

/// Backend name of AF_XDP's generic mode. It receives frames as their senders left them, so unsegmented ones do not
/// fit.
const GENERIC: &str = "xdp, generic";

/// Returns the final report of a run.
pub fn conclusion(report: &Report) -> String {
    let left = report.links.iter().filter(|link| link.queued_packets > 0);
    let left = left.map(|link| {
        format!(
            "\n{} packets were still queued in link {} when it ended: --drain gives them longer",
            link.queued_packets,
            plain(&link.name)
        )
    });
    format!(
        "{}{}\nrates and delays are those of the whole run, {:.1} s",
        tables(report, Span::Whole, MOST_ROWS),
        left.collect::<String>(),
        report.seconds
    )
}

/// Returns a table for each link, with at most `lines` lines each, and the notes. Hidden classes are counted.
fn tables(report: &Report, span: Span, lines: usize) -> String {
    let tables = report.links.iter().map(|link| {
        let table = table_of(link, span, lines);
        let pipeline = match span {
            Span::Recent => String::new(),
            Span::Whole => format!("\n  {}", pipeline(&link.pipeline)),
        };
        format!("{}{pipeline}\n{table}", line(link, span))
    });
    let tables: Vec<String> = tables.collect();
    [
        tables.join("\n"),
        not_applicable(report, span),
        notes(report),
    ]
    .concat()
}

/// Explains the sign for a bound that does not apply, if a class shows it.
fn not_applicable(report: &Report, span: Span) -> String {
    let mut classes = report.links.iter().flat_map(|link| &link.classes);
    match classes.any(|class| bound_applies(class, span) == Some(false)) {
        true => format!("\n{NOT_APPLICABLE}: {WHY_NOT_APPLICABLE}"),
        false => String::new(),
    }
}

/// Returns notes for the operator, one per line.
fn notes(report: &Report) -> String {
    let bypasses = report.bypasses.iter();
    let mut notes: String = bypasses
        .map(|it| format!("\nwarning: {}", plain(it)))
        .collect();
    for interface in &report.interfaces {
        if interface.gso_drops > 0 {
            notes += &format!(
                "\n{} frames with offloaded segmentation (GSO) were dropped at {}: frames in tunnels (VXLAN, GRE) \
                 cannot be segmented here; turn segmentation offload off at the sender (ethtool -K DEV tso \
                 off gso off)",
                interface.gso_drops, interface.name
            );
        }
        if interface.lost + interface.early_drops > 0 {
            notes += &overloaded(report, interface);
            if interface.lost > 0 && interface.backend.starts_with(GENERIC) {
                notes += &format!(
                    "\n{} supports AF_XDP only in generic mode, which also loses frames with offloaded \
                     segmentation (GSO): turn it off at the sender (ethtool -K DEV tso off gso off), or use \
                     backend = \"packet\"",
                    interface.name
                );
            }
        }
        if interface.absent_drops > 0 {
            notes += &format!(
                "\n{} frames were dropped while {} was missing or detached",
                interface.absent_drops, interface.name
            );
        }
        if interface.refused > 0 {
            notes += &format!(
                "\n{} frames were rejected by {}, most often because they exceed its MTU",
                interface.refused, interface.name
            );
        }
    }
    for link in &report.links {
        if let Some(protocol) = &link.opaque_protocol {
            notes += &format!(
                "\nmore than 1% of the recent frames for link {} are {protocol}, which filters cannot match ({} in all)",
                plain(&link.name),
                link.opaque_frames
            );
        }
        for class in link
            .classes
            .iter()
            .filter(|class| class.orphan_fragments > 0)
        {
            notes += &format!(
                "\n{} fragments of class {} were classified without ports, since the first fragment of their datagram \
                 was not seen",
                class.orphan_fragments,
                plain(&class.terms.name)
            );
        }
        if link.oversized > 0 {
            let advice = match link.longest_mtu {
                Some(mtu) => format!(
                    "{} had an MTU of {mtu} when the file was read: raise that and read the file again \
                     (SIGHUP), or set 'longest'",
                    plain(&link.to)
                ),
                None => "raise 'longest'".to_owned(),
            };
            notes += &format!(
                "\n{} frames were longer than the {} bytes that link {} carries, and were \
                 dropped: {advice}",
                link.oversized,
                link.longest_frame,
                plain(&link.name)
            );
        }
    }
    notes
}

/// Returns a note about overload: the losses, their classes, and the remedy.
fn overloaded(report: &Report, interface: &InterfaceReport) -> String {
    let mut text = format!(
        "\noverloaded: {}: the offered load exceeds this machine or the link: {} frames lost before \
         classification, {} dropped early (classes above their share), {} and {} of them in the last \
         {:.1} s; use backend = \"xdp\", give Fairlane its own core, or stop the flood upstream",
        interface.name,
        interface.lost,
        interface.early_drops,
        interface.recent_lost,
        interface.recent_early_drops,
        report.recent_seconds
    );
    let by_class = |count: fn(&ClassReport) -> u64| {
        let links = report.links.iter().filter(|link| link.to != interface.name);
        let classes = links.flat_map(|link| &link.classes);
        let mut counts: Vec<(&str, u64)> = classes
            .filter(|class| class.terms.queues && count(class) > 0)
            .map(|class| (&*class.terms.name, count(class)))
            .collect();
        counts.sort_by_key(|&(_, count)| Reverse(count));
        let named = counts.iter().take(MOST_NAMED);
        let named: Vec<String> = named
            .map(|(name, n)| format!("{} {n}", plain(name)))
            .collect();
        named.join(", ")
    };
    let early = by_class(|class| class.drops.early);
    if !early.is_empty() {
        text += &format!("; dropped early by class: {early}");
    }
    let lost = by_class(|class| class.lost_estimate);
    if !lost.is_empty() {
        text +=
            &format!("; lost by class, estimated from frames received during the losses: {lost}");
    }
    text
}

/// The formats of a site's state.
pub const SHOWN: Shown<Report> = Shown { table, lines };

/// Formats figures since the previous state.
fn table(report: &Report, _earlier: &Report, lines: usize) -> String {
    tables(report, Span::Recent, lines / report.links.len().max(1))
}

/// Formats the state as plain text, one line per class: recent rates and delays, all other figures since the start.
fn lines(report: &Report, _earlier: &Report) -> String {
    let mut lines = format!(
        "{:.1} s; rates and delays of the last {:.1} s",
        report.seconds, report.recent_seconds
    );
    for link in &report.links {
        lines += &format!("\n{}", line(link, Span::Recent));
        let (shown, others) = chosen(link, MOST_LINES);
        for class in shown {
            let row = row(class, Span::Recent);
            lines += &format!(
                "\n  {}: {}, {}, ceiling {}, queued {}, drops {}, marks {}, \
                 delay p50 {} p99 {} max {}, bound {}",
                plain(&class.terms.name),
                row.rate,
                row.share,
                row.ceiling,
                class.queued_packets,
                class.drops.total(),
                class.marked,
                row.delays[0],
                row.delays[1],
                row.delays[2],
                row.bound,
            );
        }
        if let Some(others) = others {
            lines += &format!("\n  {others}");
        }
    }
    lines + &not_applicable(report, Span::Recent) + &notes(report)
}

/// The interval of rates and delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Span {
    /// The time since the last report.
    Recent,
    /// The run.
    Whole,
}

/// The computed cells of a class.
struct Row {
    rate: String,
    share: String,
    ceiling: String,
    delays: [String; 3],
    bound: String,
}

fn line(link: &LinkReport, span: Span) -> String {
    let bps = match span {
        Span::Recent => link.recent_bps,
        Span::Whole => link.carried_bps,
    };
    let mut line = format!(
        "{} to {}: {} of {}, {} queued",
        plain(&link.name),
        link.to,
        rate(bps.round() as u64),
        rate(link.rate_bps),
        link.queued_packets
    );
    if !link.shaped {
        line += &format!(", not shaped: {} frames passed by", link.passed_frames);
    }
    for (count, what) in [(link.malformed, "malformed"), (link.oversized, "too long")] {
        if count > 0 {
            line += &format!(", {count} {what}");
        }
    }
    line
}

/// Formats the delay that the daemon itself has added, with its budget.
fn pipeline(measured: &PipelineReport) -> String {
    let PipelineReport {
        terms,
        waited_rounds,
        waited_us,
        arrival_us,
        late_us,
        departure_us,
        handed_rounds,
        handed_us,
        transmit_us,
        violations,
        device_most_bytes,
        ..
    } = measured;
    let mut text = "pipeline:".to_owned();
    if let (Some(rounds), Some(most)) = (waited_rounds, terms.arrival_rounds) {
        text += &format!(
            " frames waited with {} receive worker{} for at most {rounds} rounds (budget {most}), {} (budget {});",
            terms.receive_workers,
            if terms.receive_workers == 1 { "" } else { "s" },
            micros(waited_us.unwrap_or_default()),
            micros(arrival_us.unwrap_or_default()),
        );
    }
    if *violations > 0 {
        text += &format!(" violations: {violations};");
    }
    if let (Some(late), Some(most)) = (late_us, departure_us) {
        text += &format!(
            " packets left at most {} after they became eligible (budget {});",
            micros(*late),
            micros(*most)
        );
    }
    if let (Some(rounds), Some(most)) = (handed_rounds, terms.transmit_rounds) {
        text += &format!(
            " they waited with {} transmit worker{} for at most {rounds} rounds (budget {most}), {} (budget {});",
            terms.transmit_workers,
            if terms.transmit_workers == 1 { "" } else { "s" },
            micros(handed_us.unwrap_or_default()),
            micros(transmit_us.unwrap_or_default()),
        );
    }
    text + &format!(
        " transmit queue at most {} (budget {})",
        size(*device_most_bytes),
        size(terms.device_bytes)
    )
}

/// Returns the classes to show in at most `lines` lines, and a line about the others: all classes in the order of the
/// file if they fit; otherwise those beyond their bound, and the busiest.
fn chosen(link: &LinkReport, lines: usize) -> (Vec<&ClassReport>, Option<String>) {
    let classes = link.classes.iter();
    if link.classes.len() <= lines {
        return (classes.collect(), None);
    }
    let mut order: Vec<&ClassReport> = classes.collect();
    let weight = |class: &ClassReport| {
        let recent = class.recent.unwrap_or_default();
        (
            recent.late_packets > 0,
            recent.sent_bps as u64,
            class.sent_bytes,
        )
    };
    order.sort_by_key(|class| Reverse(weight(class)));
    let left = order.split_off(lines.saturating_sub(1));
    let beyond = left
        .iter()
        .filter(|class| class.recent.is_some_and(|recent| recent.late_packets > 0))
        .count();
    let others = match beyond {
        0 => format!("and {} more", left.len()),
        _ => format!("and {} more, {beyond} beyond their bound", left.len()),
    };
    (order, Some(others))
}

fn table_of(link: &LinkReport, span: Span, lines: usize) -> Table {
    let mut table = table::new([
        "class",
        "rate",
        "share",
        "ceiling",
        "flows",
        "queued",
        "drops",
        "marks",
        "delay\np50",
        "delay\np99",
        "delay\nmax",
        "bound",
    ]);
    let (shown, others) = chosen(link, lines);
    for class in shown {
        let row = row(class, span);
        let [p50, p99, max] = row.delays;
        table.add_row([
            table::class(class.terms.depth, &class.terms.name),
            row.rate,
            row.share,
            row.ceiling,
            class.flows.to_string(),
            class.queued_packets.to_string(),
            class.drops.total().to_string(),
            class.marked.to_string(),
            p50,
            p99,
            max,
            row.bound,
        ]);
    }
    if let Some(others) = others {
        table.add_row([others]);
    }
    table::fit(&mut table, &EXPENDABLE);
    table
}

/// Returns whether the delay bound of a class applies; `None` if it has no bound.
fn bound_applies(class: &ClassReport, span: Span) -> Option<bool> {
    match span {
        Span::Recent => class.recent?.bound_applies,
        Span::Whole => {
            let guaranteed = (class.terms.bound).and(class.terms.guaranteed_bps)?;
            Some(class.offered_bps <= guaranteed as f64)
        }
    }
}

fn row(class: &ClassReport, span: Span) -> Row {
    let recent = class.recent.unwrap_or_default();
    let (bps, share, delay) = match span {
        Span::Recent => (recent.sent_bps, recent.share, recent.delay_us),
        Span::Whole => (class.sent_bps, class.share, class.delay_us),
    };
    let time = |us: Option<f64>| us.map_or("-".to_owned(), micros);
    let beyond = match recent.late_packets > 0 && span == Span::Recent {
        true => "!",
        false => "",
    };
    Row {
        rate: rate(bps.round() as u64),
        share: format!("{:.2}%", 100.0 * share),
        ceiling: class.terms.ceil_bps.map_or("-".to_owned(), rate),
        delays: [
            time(delay.map(|d| d.p50)),
            time(delay.map(|d| d.p99)),
            time(delay.map(|d| d.max)),
        ],
        bound: match bound_applies(class, span) {
            Some(false) => NOT_APPLICABLE.to_owned(),
            _ => format!("{}{beyond}", time(class.terms.bound_us())),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlane_config::Site;
    use fairlane_config::class_report::{ClassTerms, DelayReport};
    use fairlane_config::link_report::PipelineTerms;
    use fairlane_core::Count;
    use fairlane_core::tree::ClassStats;
    use fairlane_io::XdpMode;

    #[test]
    fn pipeline_has_measurements_and_budgets() {
        let terms = PipelineTerms {
            receive_workers: 2,
            arrival_rounds: Some(4),
            device_bytes: 256 << 10,
            ..PipelineTerms::default()
        };
        let mut measured = PipelineReport {
            terms,
            device_most_bytes: 20 << 10,
            ..PipelineReport::default()
        };
        let queue = " transmit queue at most 20kb (budget 256kb)";
        assert_eq!(pipeline(&measured), format!("pipeline:{queue}"));
        measured = PipelineReport {
            waited_rounds: Some(3),
            waited_us: Some(1_122.0),
            arrival_us: Some(4_490.0),
            late_us: Some(50.0),
            departure_us: Some(2_245.0),
            ..measured
        };
        let waited = "pipeline: frames waited with 2 receive workers for at most 3 rounds (budget 4), 1.122ms (budget 4.49ms);";
        let late = " packets left at most 50us after they became eligible (budget 2.245ms);";
        assert_eq!(pipeline(&measured), format!("{waited}{late}{queue}"));
        measured.terms.transmit_workers = 1;
        measured.terms.transmit_rounds = Some(6);
        assert_eq!(
            pipeline(&measured),
            format!("{waited}{late}{queue}"),
            "nothing has left"
        );
        let sent = " they waited with 1 transmit worker for at most 2 rounds (budget 6), 120us (budget 750us);";
        measured = PipelineReport {
            handed_rounds: Some(2),
            handed_us: Some(120.0),
            transmit_us: Some(750.0),
            ..measured
        };
        assert_eq!(pipeline(&measured), format!("{waited}{late}{sent}{queue}"));
        measured.handed_rounds = None;
        measured.violations = 1;
        let beyond = " violations: 1;";
        assert_eq!(
            pipeline(&measured),
            format!("{waited}{beyond}{late}{queue}")
        );
    }

    #[test]
    fn times_of_a_class_have_their_units() {
        let text = "[[link]]\nname = 'up'\nrate = '10mbit'\nclass = [{ name = 'all', rate = '8mbit', default = true }]\n";
        let site = Site::parse(text, "site.toml").unwrap();
        let terms = ClassTerms::of(&site.links[0]).share(0);
        let none = (ClassStats::default(), Count::default());
        let delays = DelayReport {
            p50: 50.0,
            p99: 1_122.4,
            max: 2e6,
            ..DelayReport::default()
        };
        let class = ClassReport {
            delay_us: Some(delays),
            ..ClassReport::counted(terms, &none.0, none.1, 1.0, 1)
        };
        let row = row(&class, Span::Whole);
        assert_eq!(row.delays, ["50us", "1.122ms", "2s"]);
        assert!(row.bound.ends_with("ms"), "{}", row.bound);
    }

    #[test]
    fn generic_xdp_notes_gso_losses() {
        assert_eq!(format!("xdp, {}", XdpMode::Generic), GENERIC);
        for (backend, said) in [
            ("packet", false),
            ("xdp, native", false),
            (GENERIC, true),
            ("xdp, generic, 2 queues", true),
        ] {
            let report = Report {
                interfaces: vec![InterfaceReport {
                    name: "lan0".into(),
                    backend: backend.to_owned(),
                    lost: 3,
                    ..InterfaceReport::default()
                }],
                ..Report::default()
            };
            let notes = notes(&report);
            assert!(
                notes.contains("overloaded: lan0:") && notes.contains("3 frames lost"),
                "{notes}"
            );
            assert_eq!(notes.contains("(GSO)"), said, "{notes}");
        }
    }
}
