//! What a running site tells of itself.

use std::sync::Arc;

use fairlane_config::Kind;
use fairlane_config::class_report::{ClassReport, DelayReport, Recent, bps, part};
use fairlane_core::tree::ClassStats;
use fairlane_core::{Count, Nanos, Rate};
use serde::Serialize;

use crate::daemon::Interface;
use crate::meter::Delays;
use crate::order::{DeviceCount, LinkCount};
use crate::plan::Plan;

/// The state of a site at one time.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Since the start.
    pub seconds: f64,
    /// The time that `recent` is about: the last so many seconds.
    pub recent_seconds: f64,
    /// The near one, and the one outside.
    pub interfaces: Vec<InterfaceReport>,
    /// The directions that are shaped.
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

/// What became of the frames of an interface, beside what the links tell.
#[derive(Clone, Debug, Serialize)]
pub struct InterfaceReport {
    /// Its name; empty where processes alone are on this side.
    pub name: Arc<str>,
    /// How frames are exchanged with it.
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

/// A direction that is not shaped.
#[derive(Clone, Debug, Serialize)]
pub struct OpenReport {
    /// The interface that its frames leave by.
    pub to: Arc<str>,
    /// Frames that were received for it.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A link, and what became of its packets.
#[derive(Clone, Debug, Serialize)]
pub struct LinkReport {
    /// Its name.
    pub name: Arc<str>,
    /// The interface that its packets leave by.
    pub to: Arc<str>,
    /// The algorithm at the root.
    pub algorithm: String,
    /// In bit/s.
    pub rate_bps: u64,
    /// The same.
    #[serde(skip)]
    pub rate: Rate,
    /// Bytes of overhead that each packet is charged for.
    pub overhead: u32,
    /// Bytes of the longest frame that it carries.
    pub longest_frame: u32,
    /// The rate that it carried, overhead included.
    pub carried_bps: f64,
    /// The part of its rate that this is.
    pub utilisation: f64,
    /// The rate of late, and not over the whole run.
    pub recent_bps: f64,
    /// Frames that were received for it.
    pub received_frames: u64,
    /// Frames longer than the link can ever carry.
    pub oversized: u64,
    /// Frames that are not what their headers say; in the default class.
    pub malformed: u64,
    /// Frames that no filter matched; in the default class.
    pub unmatched: u64,
    /// Frames that the interface took.
    pub transmitted: u64,
    /// Packets that wait.
    pub queued_packets: u64,
    /// Children after their parents, in the order of the file.
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
    /// What the links tell is as it was `before`.
    pub(crate) fn new(
        interface: &Interface,
        count: &DeviceCount,
        before: Option<&InterfaceReport>,
    ) -> InterfaceReport {
        let (lost, early) = before.map_or((0, 0), |before| (before.lost, before.early));
        InterfaceReport {
            name: Arc::clone(&interface.name),
            backend: interface.backend.clone(),
            lost: count.losses.lost,
            recently_lost: count.losses.lost.saturating_sub(lost),
            early,
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
pub(crate) struct Times {
    /// Since the start.
    pub(crate) seconds: f64,
    /// Since the last report.
    pub(crate) recent: f64,
}

impl LinkReport {
    /// The state of a link by what was counted. `lost` frames for it were not received since the
    /// last time. O(classes).
    pub(crate) fn new(
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
                early[parent] = early[parent].plus(early[place]);
            }
        }
        let recent: Vec<ClassStats> = (all.iter().zip(&plan.accounts))
            .map(|(now, account)| now.minus(&account.told))
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

impl LinkReport {
    /// Frames that were dropped early of all its classes.
    pub fn early(&self) -> u64 {
        let top = self
            .classes
            .iter()
            .filter(|class| class.terms.parent.is_none());
        top.map(|class| class.early).sum()
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
