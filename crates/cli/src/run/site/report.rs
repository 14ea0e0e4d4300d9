//! What a site's run shows: the live tables, the summary and the JSON object.

use std::cmp::Reverse;
use std::sync::Arc;

use comfy_table::Table;
use fairlane_config::Kind;
use fairlane_core::tree::ClassStats;
use fairlane_core::{Count, Nanos, Rate};
use serde::Serialize;

use super::super::screen::Shown;
use super::early::sum;
use super::meter::Delays;
use super::order::{DeviceCount, LinkCount};
use super::plan::{Plan, minus};
use crate::classes::schema::{ClassReport, DelayReport, Recent, bps, part};
use crate::table;

/// Columns to do without on a narrow terminal, the first of them first.
const EXPENDABLE: [usize; 6] = [10, 8, 4, 6, 7, 2];

/// Most classes of a link that are told of in lines, and at the end.
const MOST_LINES: usize = 24;
const MOST_ROWS: usize = 200;

/// Most classes that a sentence names.
const MOST_NAMED: usize = 8;

/// What a device calls its backend where frames come as their senders left them, and uncut ones do
/// not fit.
const GENERIC: &str = "xdp, generic";

/// The state of a site at one time: what `--json` prints.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    pub seconds: f64,
    /// The time that `recent` is about: the last so many seconds.
    pub recent_seconds: f64,
    pub interfaces: Vec<InterfaceReport>,
    pub links: Vec<LinkReport>,
    /// Directions without a link.
    pub open: Vec<OpenReport>,
    /// Processes attached now.
    pub attached: usize,
    /// Times that the configuration was read again and taken over.
    pub reloads: u32,
    /// The longest time from round to round while classes were changed or counted in between.
    pub longest_step_us: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct InterfaceReport {
    pub name: Arc<str>,
    pub backend: String,
    /// Arrived and not received: no room, or no time.
    pub lost: u64,
    /// Of these, since the state was last told.
    pub recently_lost: u64,
    /// Dropped as they arrived, for their classes had more than their share of an overload.
    pub early: u64,
    /// Of these, since the state was last told.
    pub recently_early: u64,
    /// Received longer than any interface sends: segments left to be cut, which could not be.
    pub uncut: u64,
    /// Frames that the interface would not send.
    pub refused: u64,
    /// Frames that were to leave by the interface while there was none of that name.
    pub away: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct OpenReport {
    pub to: Arc<str>,
    pub frames: u64,
    pub bytes: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct LinkReport {
    pub name: Arc<str>,
    /// The interface that its packets leave by.
    pub to: Arc<str>,
    pub algorithm: String,
    pub rate_bps: u64,
    #[serde(skip)]
    pub rate: Rate,
    /// Bytes of overhead that each packet is charged for.
    pub overhead: u32,
    /// Bytes of the longest frame that it carries.
    pub longest_frame: u32,
    /// Overhead included.
    pub carried_bps: f64,
    pub utilisation: f64,
    /// The rate of late, and not over the whole run.
    pub recent_bps: f64,
    pub received_frames: u64,
    /// Frames longer than the link can ever carry.
    pub oversized: u64,
    /// Frames that are not what their headers say; in the default class.
    pub malformed: u64,
    /// Frames that no filter matched; in the default class.
    pub unmatched: u64,
    /// Frames that the interface took.
    pub transmitted: u64,
    pub queued_packets: u64,
    pub classes: Vec<ClassReport>,
}

/// Delays that were counted, in microseconds; none of no packet. `longest` is known better than by
/// the delays' digits.
fn in_micros(delays: &Delays, longest: Option<Nanos>) -> Option<DelayReport> {
    let micros = |nanos: Nanos| nanos.0 as f64 / 1e3;
    Some(DelayReport {
        mean: None,
        p50: micros(delays.quantile(0.5)?),
        p99: micros(delays.quantile(0.99)?),
        max: micros(longest.or_else(|| delays.quantile(1.0))?),
    })
}

impl InterfaceReport {
    pub fn new(name: Arc<str>, backend: String, count: &DeviceCount, lost_before: u64) -> Self {
        InterfaceReport {
            name,
            backend,
            lost: count.losses.lost,
            recently_lost: count.losses.lost.saturating_sub(lost_before),
            // The links tell.
            early: 0,
            recently_early: 0,
            uncut: count.losses.uncut,
            // The others are told apart.
            refused: count.refused.saturating_sub(count.losses.away),
            away: count.losses.away,
        }
    }
}

/// The times that a report is about.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Since the start.
    pub seconds: f64,
    /// Since the last report.
    pub recent: f64,
}

impl LinkReport {
    /// The state of a link by what was counted. `lost` frames for it were not received since the
    /// last time. O(classes).
    pub fn new(
        plan: &mut Plan,
        count: &LinkCount,
        device: &DeviceCount,
        to: Arc<str>,
        times: Times,
        lost: u64,
    ) -> LinkReport {
        let link = Arc::clone(&plan.link);
        let mut all: Vec<ClassStats> = (plan.accounts.iter())
            .zip(&count.classes)
            .map(|(account, counted)| account.own(counted))
            .collect();
        estimate(plan, &all, lost);
        let overhead = link.overhead;
        let accounts = plan.accounts.iter_mut();
        let mut early: Vec<Count> = accounts
            .map(|account| account.early.count(overhead))
            .collect();
        let mut losses: Vec<f64> = plan.accounts.iter().map(|account| account.lost).collect();
        // Parents come before their children.
        for place in (0..all.len()).rev() {
            if let Some(parent) = link.classes[place].parent {
                all[parent] = all[parent].plus(&all[place]);
                losses[parent] += losses[place];
                early[parent] = sum(early[parent], early[place]);
            }
        }
        let recent: Vec<ClassStats> = (all.iter().zip(&plan.accounts))
            .map(|(now, account)| minus(now, &account.told))
            .collect();
        let sent_by_top = |stats: &[ClassStats]| -> u64 {
            let top = link.classes.iter().zip(stats);
            let top = top.filter(|(class, _)| class.parent.is_none());
            top.map(|(_, stats)| stats.sent.bytes).sum()
        };
        let (sent, recently) = (sent_by_top(&all), sent_by_top(&recent));
        let mut classes = Vec::with_capacity(all.len());
        for (place, stats) in all.iter().enumerate() {
            let late = &recent[place];
            let (account, terms) = (&mut plan.accounts[place], &plan.terms[place]);
            let (delays, beside_lost) = (account.meter.read(), account.meter.beside_lost());
            let of_late = in_micros(&delays.since(&account.delays), None);
            // In bits, with one packet that may have come at once.
            let late_early = early[place].bytes.saturating_sub(account.told_early.bytes);
            let offered = (late.accepted.bytes + late.dropped.bytes + late_early) as f64 * 8.0;
            let burst = f64::from(link.longest.get()) * 8.0;
            let modest = terms
                .guaranteed_bps
                .is_some_and(|rate| offered <= rate as f64 * times.recent + burst);
            let late_max = of_late.map(|delay| delay.max);
            classes.push(ClassReport {
                beside_lost,
                lost_estimate: losses[place].round() as u64,
                delay_us: in_micros(&delays, Some(delays.longest())),
                recent: Some(Recent {
                    sent_bps: bps(late.sent.bytes, times.recent),
                    share: part(late.sent.bytes, recently),
                    delay_us: of_late,
                    beyond_bound: modest
                        && late_max
                            .zip(terms.bound_us)
                            .is_some_and(|(max, bound)| max > bound),
                }),
                ..ClassReport::counted(terms, stats, early[place], times.seconds, sent)
            });
            account.told = *stats;
            account.told_early = early[place];
            account.beside_lost = beside_lost;
            account.delays = delays;
        }
        LinkReport {
            name: Arc::from(&*link.name),
            to,
            algorithm: link.algorithm.to_string(),
            rate_bps: link.rate.bps(),
            rate: link.rate,
            overhead: link.overhead,
            longest_frame: link.longest.get() - link.overhead,
            carried_bps: bps(sent, times.seconds),
            utilisation: bps(sent, times.seconds) / link.rate.bps() as f64,
            recent_bps: bps(recently, times.recent),
            received_frames: device.lane.received.frames,
            oversized: device.lane.oversized.frames,
            malformed: count.malformed,
            unmatched: count.unmatched,
            transmitted: device.lane.transmitted,
            queued_packets: count.queued.into(),
            classes,
        }
    }
}

/// Divides what was lost before it was sorted as those frames are divided that came while others
/// were lost; where the device does not tell those, as all that came since the last time.
fn estimate(plan: &mut Plan, all: &[ClassStats], lost: u64) {
    if lost == 0 {
        return;
    }
    let came = |stats: &ClassStats| stats.accepted.packets + stats.dropped.packets;
    let accounts = plan.accounts.iter();
    let mut sample: Vec<u64> = accounts
        .map(|account| account.meter.beside_lost() - account.beside_lost)
        .collect();
    if sample.iter().all(|&beside| beside == 0) {
        let classes = plan.link.classes.iter();
        sample = (all.iter().zip(&plan.accounts).zip(classes))
            .map(|((now, account), class)| match class.kind {
                // What it had told is that of those below it.
                Kind::Inner(_) => 0,
                _ => came(now).saturating_sub(came(&account.told)),
            })
            .collect();
    }
    let total: u64 = sample.iter().sum();
    for (account, part) in plan.accounts.iter_mut().zip(sample) {
        account.lost += lost as f64 * part as f64 / total.max(1) as f64;
    }
}

impl Report {
    /// What is left of a run.
    pub fn conclusion(&self) -> String {
        let tables = self.links.iter().map(|link| {
            let table = link.table(Span::Whole, MOST_ROWS);
            format!("{}\n{table}", link.line(Span::Whole))
        });
        let tables: Vec<String> = tables.collect();
        let seconds = self.seconds;
        format!(
            "{}{}\nrates and delays are those of the whole run, {seconds:.1} s",
            tables.join("\n"),
            self.notes()
        )
    }

    /// What the operator should know of, a line each.
    fn notes(&self) -> String {
        let mut notes = String::new();
        for interface in &self.interfaces {
            if interface.uncut > 0 {
                notes += &format!(
                    "\n{} frames arrived at {} uncut, and were dropped: TCP and UDP are cut, but \
                     not in tunnels (VXLAN, GRE and the like); turn segmentation off where they \
                     come from (ethtool -K DEV tso off gso off)",
                    interface.uncut, interface.name
                );
            }
            if interface.lost + interface.early > 0 {
                notes += &self.overloaded(interface);
                if interface.lost > 0 && interface.backend == GENERIC {
                    notes += &format!(
                        "\n{} takes AF_XDP in generic mode alone, where segments that come uncut \
                         are lost too: turn segmentation off where they come from (ethtool -K DEV \
                         tso off gso off), or use backend = \"packet\"",
                        interface.name
                    );
                }
            }
            if interface.away > 0 {
                notes += &format!(
                    "\n{} frames were dropped while {} was away",
                    interface.away, interface.name
                );
            }
            if interface.refused > 0 {
                notes += &format!(
                    "\n{} frames were dropped at {}, which does not send them: most often they \
                     are longer than its MTU allows",
                    interface.refused, interface.name
                );
            }
        }
        for link in &self.links {
            if link.oversized > 0 {
                notes += &format!(
                    "\n{} frames were longer than the {} bytes that link {} carries, and were \
                     dropped: raise 'longest'",
                    link.oversized, link.longest_frame, link.name
                );
            }
        }
        notes
    }
}

impl Report {
    /// That more arrives than is taken in, whose that was, and what to do.
    fn overloaded(&self, interface: &InterfaceReport) -> String {
        let mut text = format!(
            "\noverloaded: more arrives at {} than this machine takes in: {} frames were lost before \
             they could be sorted and {} were dropped early, being of classes beyond their share, {} \
             and {} of them in the last {:.1} s; use backend = \"xdp\", leave Fairlane a core of its \
             own, or have who floods stopped before it gets here",
            interface.name,
            interface.lost,
            interface.early,
            interface.recently_lost,
            interface.recently_early,
            self.recent_seconds
        );
        let by_class = |count: fn(&ClassReport) -> u64| {
            let links = self.links.iter().filter(|link| link.to != interface.name);
            let classes = links.flat_map(|link| &link.classes);
            let mut counts: Vec<(&str, u64)> = classes
                .filter(|class| class.terms.queues && count(class) > 0)
                .map(|class| (&*class.terms.name, count(class)))
                .collect();
            counts.sort_by_key(|&(_, count)| Reverse(count));
            let named = counts.iter().take(MOST_NAMED);
            let named: Vec<String> = named.map(|(name, n)| format!("{name} {n}")).collect();
            named.join(", ")
        };
        let early = by_class(|class| class.early);
        if !early.is_empty() {
            text += &format!("; dropped early by class: {early}");
        }
        let lost = by_class(|class| class.lost_estimate);
        if !lost.is_empty() {
            text +=
                &format!("; lost by class, estimated from what was received beside them: {lost}");
        }
        text
    }
}

impl Shown for Report {
    /// A table for each link, of what happened since the last one. They count the classes that
    /// they cannot show.
    fn table(&self, _earlier: &Report, lines: usize) -> String {
        let share = lines / self.links.len().max(1);
        let tables = self.links.iter().map(|link| {
            let table = link.table(Span::Recent, share);
            format!("{}\n{table}", link.line(Span::Recent))
        });
        let tables: Vec<String> = tables.collect();
        [tables.join("\n"), self.notes()].concat()
    }

    /// The state in lines of plain text, one a class: rates and delays of late, all else since
    /// the start.
    fn lines(&self, _earlier: &Report) -> String {
        let mut lines = format!(
            "{:.1} s; rates and delays of the last {:.1} s",
            self.seconds, self.recent_seconds
        );
        for link in &self.links {
            lines += &format!("\n{}", link.line(Span::Recent));
            let (shown, others) = link.chosen(MOST_LINES);
            for class in shown {
                let row = row(class, Span::Recent);
                lines += &format!(
                    "\n  {}: {} Mbit/s, {}, cap {}, queued {}, drops {}, marks {}, \
                     delay p50 {} p99 {} max {} ms, bound {}",
                    class.terms.name,
                    row.rate,
                    row.share,
                    row.cap,
                    class.queued_packets,
                    drops(class),
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
        lines + &self.notes()
    }
}

/// What rates and delays are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Span {
    /// The time since the last report.
    Recent,
    /// The run.
    Whole,
}

/// The cells of a class that take some reckoning.
struct Row {
    rate: String,
    share: String,
    cap: String,
    delays: [String; 3],
    bound: String,
}

impl LinkReport {
    /// Frames that were dropped early of all its classes.
    pub fn early(&self) -> u64 {
        let top = self
            .classes
            .iter()
            .filter(|class| class.terms.parent.is_none());
        top.map(|class| class.early).sum()
    }

    fn line(&self, span: Span) -> String {
        let bps = match span {
            Span::Recent => self.recent_bps,
            Span::Whole => self.carried_bps,
        };
        let mut line = format!(
            "{} to {}: {:.2} Mbit/s of {}, {} queued",
            self.name,
            self.to,
            bps / 1e6,
            self.rate,
            self.queued_packets
        );
        for (count, what) in [(self.malformed, "malformed"), (self.oversized, "too long")] {
            if count > 0 {
                line += &format!(", {count} {what}");
            }
        }
        line
    }

    /// The classes to tell of in so many lines, and a line on the others: all of them in the order
    /// of the file if they fit; else those beyond their bound, and the busiest.
    fn chosen(&self, lines: usize) -> (Vec<&ClassReport>, Option<String>) {
        if self.classes.len() <= lines {
            return (self.classes.iter().collect(), None);
        }
        let mut order: Vec<&ClassReport> = self.classes.iter().collect();
        let weight = |class: &ClassReport| {
            let recent = class.recent.unwrap_or_default();
            (
                recent.beyond_bound,
                recent.sent_bps as u64,
                class.sent_bytes,
            )
        };
        order.sort_by_key(|class| Reverse(weight(class)));
        let left = order.split_off(lines.saturating_sub(1));
        let beyond = left
            .iter()
            .filter(|class| class.recent.is_some_and(|recent| recent.beyond_bound))
            .count();
        let others = match beyond {
            0 => format!("and {} more", left.len()),
            _ => format!("and {} more, {beyond} beyond their bound", left.len()),
        };
        (order, Some(others))
    }

    fn table(&self, span: Span, lines: usize) -> Table {
        let mut table = table::new([
            "class",
            "Mbit/s",
            "share",
            "cap",
            "flows",
            "queued",
            "drops",
            "marks",
            "delay\np50 ms",
            "delay\np99 ms",
            "delay\nmax ms",
            "bound\nms",
        ]);
        let (shown, others) = self.chosen(lines);
        for class in shown {
            let row = row(class, span);
            let [p50, p99, max] = row.delays;
            table.add_row([
                format!("{}{}", "  ".repeat(class.terms.depth), class.terms.name),
                row.rate,
                row.share,
                row.cap,
                class.flows.to_string(),
                class.queued_packets.to_string(),
                drops(class).to_string(),
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
}

/// All that was dropped of a class and is known to be its.
fn drops(class: &ClassReport) -> u64 {
    class.dropped + class.discarded + class.early
}

fn row(class: &ClassReport, span: Span) -> Row {
    let recent = class.recent.unwrap_or_default();
    let (bps, share, delay) = match span {
        Span::Recent => (recent.sent_bps, recent.share, recent.delay_us),
        Span::Whole => (class.sent_bps, class.share, class.delay_us),
    };
    let millis = |micros: Option<f64>| micros.map_or("-".into(), |us| format!("{:.2}", us / 1e3));
    let beyond = match recent.beyond_bound && span == Span::Recent {
        true => "!",
        false => "",
    };
    let cap = class.terms.cap_bps.and_then(Rate::from_bps);
    Row {
        rate: format!("{:.2}", bps / 1e6),
        share: format!("{:.2}%", 100.0 * share),
        cap: cap.map_or("-".to_owned(), |cap| cap.to_string()),
        delays: [
            millis(delay.map(|d| d.p50)),
            millis(delay.map(|d| d.p99)),
            millis(delay.map(|d| d.max)),
        ],
        bound: format!("{}{beyond}", millis(class.terms.bound_us)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlane_io::XdpMode;

    #[test]
    fn what_is_lost_for_coming_uncut_is_said_where_that_may_be() {
        assert_eq!(format!("xdp, {}", XdpMode::Generic), GENERIC);
        for (backend, said) in [("packet", false), ("xdp, native", false), (GENERIC, true)] {
            let report = Report {
                interfaces: vec![InterfaceReport {
                    name: "lan0".into(),
                    backend: backend.to_owned(),
                    lost: 3,
                    recently_lost: 0,
                    early: 0,
                    recently_early: 0,
                    uncut: 0,
                    refused: 0,
                    away: 0,
                }],
                ..Report::default()
            };
            let notes = report.notes();
            assert!(
                notes.contains("at lan0 than") && notes.contains("3 frames were lost"),
                "{notes}"
            );
            assert_eq!(notes.contains("uncut"), said, "{notes}");
        }
    }
}
