//! What a site's run shows: the live tables, the summary and the JSON object.

use std::sync::Arc;

use comfy_table::Table;
use fairlane_core::Rate;
use serde::Serialize;

use super::super::screen::Shown;
use crate::table;

/// Columns to do without on a narrow terminal, the first of them first.
const EXPENDABLE: [usize; 6] = [10, 8, 4, 6, 7, 2];

/// The state of a site at one time: what `--json` prints.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    pub seconds: f64,
    pub interfaces: Vec<InterfaceReport>,
    pub links: Vec<LinkReport>,
    /// Directions without a link.
    pub open: Vec<OpenReport>,
    /// Processes attached now.
    pub attached: usize,
    /// Times that the configuration was read again and taken over.
    pub reloads: u32,
}

#[derive(Clone, Debug, Serialize)]
pub struct InterfaceReport {
    pub name: Arc<str>,
    pub backend: String,
    /// Arrived and not received: no room, or no time.
    pub lost: u64,
    /// Received longer than any interface sends: segments left to be cut, which could not be.
    pub uncut: u64,
    /// Frames that the interface would not send.
    pub refused: u64,
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

/// A class; all bytes have the link's overhead in them.
#[derive(Clone, Debug, Serialize)]
pub struct ClassReport {
    pub name: Arc<str>,
    pub parent: Option<Arc<str>>,
    #[serde(skip)]
    pub depth: usize,
    pub cap_bps: Option<u64>,
    pub sent_packets: u64,
    pub sent_bytes: u64,
    pub sent_bps: f64,
    /// Of what the link sent.
    pub share: f64,
    pub accepted_packets: u64,
    pub queued_packets: u64,
    pub queued_bytes: u64,
    /// Refused when they came.
    pub dropped: u64,
    /// Accepted, and dropped later by queue management.
    pub discarded: u64,
    pub marked: u64,
    /// Received while the interface lost others: what was lost is likely to have been alike.
    pub beside_lost: u64,
    /// Times that its cap held it back.
    pub throttled: u64,
    pub flows: u64,
    /// Packets for whose flow there was no room of its own.
    pub overflowed: u64,
    /// From the interface to the interface; null before the first packet left, and where
    /// classes below hold the packets.
    pub delay_us: Option<DelayReport>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct DelayReport {
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}

impl Report {
    /// What is left of a run.
    pub fn conclusion(&self) -> String {
        let start = Report {
            seconds: 0.0,
            links: Vec::new(),
            ..self.clone()
        };
        self.table(&start, usize::MAX)
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
            if interface.lost > 0 {
                notes += &format!(
                    "\n{} frames were lost at {} for want of time or room",
                    interface.lost, interface.name
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

impl Shown for Report {
    /// A table for each link. They count the classes that they cannot show.
    fn table(&self, earlier: &Report, lines: usize) -> String {
        let share = lines / self.links.len().max(1);
        let tables: Vec<String> = self
            .links
            .iter()
            .map(|link| {
                let before = earlier.links.iter().find(|l| l.name == link.name);
                let seconds = (self.seconds - earlier.seconds).max(1e-9);
                let table = link.table(before, seconds, share);
                format!("{}\n{table}", link.line(before, seconds))
            })
            .collect();
        [tables.join("\n"), self.notes()].concat()
    }

    /// The state in lines of plain text, one a class; rates over the time since `earlier`, all
    /// else since the start.
    fn lines(&self, earlier: &Report) -> String {
        let seconds = (self.seconds - earlier.seconds).max(1e-9);
        let mut lines = format!("{:.1} s", self.seconds);
        for link in &self.links {
            let before = earlier.links.iter().find(|l| l.name == link.name);
            lines += &format!("\n{}", link.line(before, seconds));
            for class in &link.classes {
                let row = class.row(before, seconds, link.sent_since(before));
                lines += &format!(
                    "\n  {}: {} Mbit/s, {}, cap {}, queued {}, drops {}, marks {}, \
                     delay p50 {} p99 {} max {} ms",
                    class.name,
                    row.rate,
                    row.share,
                    row.cap,
                    class.queued_packets,
                    class.dropped + class.discarded,
                    class.marked,
                    row.delays[0],
                    row.delays[1],
                    row.delays[2],
                );
            }
        }
        lines + &self.notes()
    }
}

/// The cells of a class that take some reckoning.
struct Row {
    rate: String,
    share: String,
    cap: String,
    delays: [String; 3],
}

impl LinkReport {
    fn sent_bytes(&self) -> u64 {
        let top = self.classes.iter().filter(|class| class.parent.is_none());
        top.map(|class| class.sent_bytes).sum()
    }

    fn sent_since(&self, earlier: Option<&LinkReport>) -> u64 {
        let before = earlier.map_or(0, LinkReport::sent_bytes);
        self.sent_bytes().saturating_sub(before)
    }

    fn line(&self, earlier: Option<&LinkReport>, seconds: f64) -> String {
        let mbit = self.sent_since(earlier) as f64 * 8.0 / seconds / 1e6;
        let mut line = format!(
            "{} to {}: {mbit:.2} Mbit/s of {}, {} queued",
            self.name, self.to, self.rate, self.queued_packets
        );
        for (count, what) in [(self.malformed, "malformed"), (self.oversized, "too long")] {
            if count > 0 {
                line += &format!(", {count} {what}");
            }
        }
        line
    }

    fn table(&self, earlier: Option<&LinkReport>, seconds: f64, lines: usize) -> Table {
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
        ]);
        let sent = self.sent_since(earlier);
        let shown = match self.classes.len() {
            classes if classes <= lines => classes,
            _ => lines.saturating_sub(1),
        };
        for class in &self.classes[..shown] {
            let row = class.row(earlier, seconds, sent);
            let [p50, p99, max] = row.delays;
            table.add_row([
                format!("{}{}", "  ".repeat(class.depth), class.name),
                row.rate,
                row.share,
                row.cap,
                class.flows.to_string(),
                class.queued_packets.to_string(),
                (class.dropped + class.discarded).to_string(),
                class.marked.to_string(),
                p50,
                p99,
                max,
            ]);
        }
        if shown < self.classes.len() {
            table.add_row([format!("and {} more", self.classes.len() - shown)]);
        }
        table::fit(&mut table, &EXPENDABLE);
        table
    }
}

impl ClassReport {
    fn row(&self, earlier: Option<&LinkReport>, seconds: f64, link_sent: u64) -> Row {
        let before = earlier.and_then(|link| link.classes.iter().find(|c| c.name == self.name));
        // Less than before if it went and came again, with the file read twice in between.
        let sent_before = before.map_or(0, |class| class.sent_bytes);
        let sent = self.sent_bytes.saturating_sub(sent_before);
        let millis =
            |micros: Option<f64>| micros.map_or("-".into(), |us| format!("{:.2}", us / 1e3));
        let delay = self.delay_us;
        Row {
            rate: format!("{:.2}", sent as f64 * 8.0 / seconds / 1e6),
            share: match link_sent {
                0 => "-".to_owned(),
                _ => format!("{:.2}%", 100.0 * sent as f64 / link_sent as f64),
            },
            cap: self
                .cap_bps
                .and_then(Rate::from_bps)
                .map_or("-".to_owned(), |cap| cap.to_string()),
            delays: [
                millis(delay.map(|d| d.p50)),
                millis(delay.map(|d| d.p99)),
                millis(delay.map(|d| d.max)),
            ],
        }
    }
}
