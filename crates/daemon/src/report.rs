//! The report of a running site.

use fairlane_config::class_report::{
    ClassReport, ClassTerms, Drops, Recent, SpanReport, bps, part,
};
use fairlane_config::link_report::PipelineTerms;
use fairlane_config::{ClassKind, List, LongestBy, Shared};
use fairlane_core::tree::ClassStats;
use fairlane_core::{Count, Nanos, Rate};
use fairlane_dataplane::meter::Delays;
use fairlane_dataplane::plan::{Account, Passing, Plan};
use fairlane_dataplane::steps::StepReport;
use fairlane_dataplane::waits::Waits;
use fairlane_dataplane::work::{DeviceCount, LinkCount, ThreadCount};
use fairlane_runtime::Spans;
use fairlane_runtime::bridge::RoundStats;
use serde::Serialize;
#[cfg(test)]
mod tests;

use std::sync::Arc;

/// The state of a site at one time.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Since the start.
    pub seconds: f64,
    /// The length in seconds of the interval that `recent` covers: the last one.
    pub recent_seconds: f64,
    /// The near one, and the one outside.
    pub interfaces: Vec<InterfaceReport>,
    /// The directions that are shaped.
    pub links: Vec<LinkReport>,
    /// Directions without a link.
    pub open: Vec<OpenReport>,
    /// Kernel paths that bypass the site, a sentence each: see [`bypasses`](crate::bypasses).
    pub bypasses: Vec<Arc<str>>,
    /// Processes attached now.
    pub attached: usize,
    /// Times that another configuration was applied.
    pub reloads: u32,
    /// The running configuration compared with its file.
    pub configuration: ConfigurationReport,
    /// The longest time from round to round while classes were changed, or classes or flows counted, in
    /// between.
    pub forwarding_pause_max_us: f64,
    /// The same by kind of work, and the part that the thread itself used.
    pub forwarding_pauses: Vec<StepReport>,
    /// Timing of the forwarding thread.
    pub forwarding: ForwardingReport,
}

/// The running configuration compared with the site's file, and the last attempt to load that.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ConfigurationReport {
    /// Changes of the running configuration that are not in the file.
    pub unsaved_changes: u64,
    /// Whether the last attempt to load the file succeeded; the start counts as one.
    pub last_reload_successful: bool,
    /// When the file was last loaded, in seconds since 1970.
    pub last_reload_success_timestamp_seconds: f64,
    /// Why the last attempt was refused; null where it succeeded.
    pub last_reload_error: Option<Arc<str>>,
}

impl Report {
    /// Returns the most CPU time that the forwarding thread took for a step between two rounds.
    #[must_use]
    pub fn forwarding_pause_cpu_max_us(&self) -> f64 {
        let steps = self.forwarding_pauses.iter();
        steps.map(|step| step.cpu_us).fold(0.0, f64::max)
    }
}

/// Timing of the forwarding thread since the start: the delay it adds to that of the algorithms, in the terms of PSPAT.
/// A time that was not measured yet is null.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct ForwardingReport {
    /// Rounds. Each receives the frames that have arrived, and sends the eligible ones.
    pub rounds: u64,
    /// Duration of a round, including the part of a change or count done after it: the time of a scan.
    pub scan_us: Option<SpanReport>,
    /// Time from one poll of an attached process's mailbox to the next that found frames: Delta_A. A frame that arrives
    /// at an interface ends the wait, and the next round receives it.
    pub delta_a_us: Option<SpanReport>,
    /// Time from when a packet is eligible until the round begins that sends it: Delta_D. Either this thread transmits
    /// itself, without a hand-off to another, or transmit workers do; [`PipelineReport`] covers those.
    pub delta_d_us: Option<SpanReport>,
    /// Rounds longer than the interface-to-interface bounds allow for.
    pub round_violations: u64,
}

impl ForwardingReport {
    pub(crate) fn of(count: ThreadCount) -> ForwardingReport {
        let ThreadCount { rounds, looks } = count;
        let told = |spans: Spans| {
            let span = || SpanReport::in_micros(spans.mean(), spans.longest());
            (spans.count() > 0).then(span)
        };
        ForwardingReport {
            rounds: rounds.scan.count(),
            scan_us: told(rounds.scan),
            delta_a_us: told(looks),
            delta_d_us: told(rounds.late),
            round_violations: rounds.overlong,
        }
    }
}

/// The delay that the path through the daemon adds to every class of a link: the budget and, since the start, the
/// measured values. A class's measured delay covers the path to its queue and the time in it, and ends when the packet
/// is released.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PipelineReport {
    /// The terms known in advance, as `fairlane check` reports them.
    #[serde(flatten)]
    pub terms: PipelineTerms,
    /// The most rounds that a frame has waited with a worker, to compare with `arrival_rounds`; null without workers,
    /// and before the first frame.
    pub waited_rounds: Option<usize>,
    /// The longest time that one has.
    pub waited_us: Option<f64>,
    /// The longest round.
    pub longest_round_us: Option<f64>,
    /// The guaranteed number of the longest rounds: Delta_A, as budgeted.
    pub arrival_us: Option<f64>,
    /// The longest time from when something might leave until the round began that sent it, of both directions.
    pub late_us: Option<f64>,
    /// The guaranteed number of the longest rounds: Delta_D, as budgeted.
    pub departure_us: Option<f64>,
    /// The most rounds that a frame has waited with a transmit worker, to compare with `transmit_rounds`; null without
    /// such workers, and before the first frame has left.
    pub handed_rounds: Option<usize>,
    /// The longest time that one has.
    pub handed_us: Option<f64>,
    /// The guaranteed number of these workers' longest rounds: the rest of Delta_D, as budgeted.
    pub transmit_us: Option<f64>,
    /// Number of times that frames have waited with a worker for more rounds than `arrival_rounds`, or
    /// `transmit_rounds`.
    pub violations: u64,
    /// The most bytes that the device has held, including those of transmit workers, to compare with `device_bytes`; 0
    /// where they are not counted.
    pub device_most_bytes: u64,
}

impl PipelineReport {
    pub(crate) fn new(
        terms: PipelineTerms,
        thread: ThreadCount,
        [waits, handed]: [Option<Waits>; 2],
        device_most_bytes: u64,
    ) -> PipelineReport {
        let micros = |span: Nanos| span.0 as f64 / 1e3;
        let longest = |spans: Spans| (spans.count() > 0).then(|| spans.longest());
        let RoundStats { scan, late, .. } = thread.rounds;
        // The time between two polls may be slightly more than a round.
        let round = longest(scan).max(waits.map(|waits| waits.longest_round));
        let of = |rounds: usize| Some(micros(round?) * rounds as f64);
        let transmit_us = |waits: Waits| {
            let rounds = terms.transmit_rounds?;
            Some(micros(waits.longest_round) * rounds as f64)
        };
        let [waits, handed] = [waits, handed].map(|waits| waits.filter(|waits| waits.rounds > 0));
        let beyond = |waits: Option<Waits>| waits.map_or(0, |waits| waits.beyond);
        PipelineReport {
            waited_rounds: waits.map(|waits| waits.rounds),
            waited_us: waits.map(|waits| micros(waits.longest)),
            longest_round_us: round.map(micros),
            arrival_us: terms.arrival_rounds.and_then(of),
            late_us: longest(late).map(micros),
            departure_us: of(terms.departure_rounds),
            handed_rounds: handed.map(|waits| waits.rounds),
            handed_us: handed.map(|waits| micros(waits.longest)),
            transmit_us: handed.and_then(transmit_us),
            violations: beyond(waits) + beyond(handed),
            device_most_bytes,
            terms,
        }
    }
}

/// An interface in use.
#[derive(Clone, Debug)]
pub struct Interface {
    /// Its name; empty if only processes are on this side.
    pub name: Arc<str>,
    /// How frames are exchanged with it, fixed when it was opened: `packet`, or `xdp` with its mode and, if there are
    /// several, its queues, either followed by the workers, if any; `tap` or `none`.
    pub backend: String,
}

/// Counters of an interface that the link reports do not include.
#[derive(Clone, Debug, Default, Serialize)]
pub struct InterfaceReport {
    /// Its name; empty if only processes are on this side.
    pub name: Arc<str>,
    /// How frames are exchanged with it, by how many queues and threads; `away` while it is absent, and `detached`
    /// until an interface is attached again.
    pub backend: String,
    /// Whether it is in use, that is, not detached.
    pub attached: bool,
    /// Whether its egress is shaped: a link leads there, and shaping is on.
    pub shaped: bool,
    /// Frames that arrived and were not received: the ring was full, or the interface was detached or deleted first.
    pub lost: u64,
    /// Of these, since the last report.
    pub recent_lost: u64,
    /// Frames dropped on arrival, because their classes exceeded their share of an overload.
    pub early_drops: u64,
    /// Of these, since the last report.
    pub recent_early_drops: u64,
    /// Frames with offloaded segmentation (GSO) that could not be segmented.
    pub gso_drops: u64,
    /// Frames that the interface would not send.
    pub refused: u64,
    /// Frames for the interface while none of that name existed, or it was detached.
    pub absent_drops: u64,
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

/// A link and its counters.
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
    /// The MTU of its interface when the file was read, from which this follows. Null if the file gives the length, or
    /// the interface was unknown.
    pub longest_mtu: Option<u32>,
    /// The rate that it carried, overhead included.
    pub carried_bps: f64,
    /// The part of its rate that this is.
    pub utilisation: f64,
    /// The rate in the last interval, not over the whole run.
    pub recent_bps: f64,
    /// Whether it is shaped now; else frames bypass its classes in order of arrival.
    pub shaped: bool,
    /// Frames that passed by its classes, and are in no count of theirs.
    pub passed_frames: u64,
    /// Their bytes, without overhead.
    pub passed_bytes: u64,
    /// Frames that were received for it.
    pub received_frames: u64,
    /// Frames longer than the link can ever carry.
    pub oversized: u64,
    /// Frames with malformed headers; they are in the default class.
    pub malformed: u64,
    /// Frames that no filter matched; in the default class.
    pub unmatched: u64,
    /// Frames of protocols that no filter looks into: neither IP nor link-layer control.
    pub opaque_frames: u64,
    /// The protocol of most of them, if at least 100 frames and more than a hundredth of the last minute's are of such
    /// protocols; else null.
    pub opaque_protocol: Option<Arc<str>>,
    /// Frames that the interface took.
    pub transmitted: u64,
    /// Queued packets.
    pub queued_packets: u64,
    /// The delay that the path through the daemon adds to every class.
    pub pipeline: PipelineReport,
    /// Classes, children after their parents, in the order of the file. Pieces without a change are shared with the
    /// previous report.
    pub classes: List<ClassReport>,
    /// The delays of each class, since the start.
    #[serde(skip)]
    pub delays: Vec<Arc<Delays>>,
}

impl InterfaceReport {
    /// Builds the report of an interface. Its early drops, which the links count, stay as in `before`.
    pub(crate) fn new(
        interface: &Interface,
        count: &DeviceCount,
        before: Option<&InterfaceReport>,
    ) -> InterfaceReport {
        let (lost, early) = before.map_or((0, 0), |before| (before.lost, before.early_drops));
        InterfaceReport {
            name: Arc::clone(&interface.name),
            backend: (count.backend.as_deref())
                .map_or_else(|| interface.backend.clone(), str::to_owned),
            attached: true,
            shaped: count.shaped,
            lost: count.losses.lost,
            recent_lost: count.losses.lost.saturating_sub(lost),
            early_drops: early,
            recent_early_drops: 0,
            gso_drops: count.losses.uncut,
            // Frames dropped while the interface was absent are counted separately.
            refused: count.refused.saturating_sub(count.losses.away),
            absent_drops: count.losses.away,
        }
    }
}

/// An interval, and the bytes that a link sent in it.
#[derive(Clone, Copy, Debug)]
struct Span {
    seconds: f64,
    bytes: u64,
}

impl Span {
    fn bps(self) -> f64 {
        bps(self.bytes, self.seconds)
    }
}

/// Counts of a class and its descendants that its queues do not include.
struct Sums {
    early: Count,
    /// Its share of the frames lost before classification.
    lost: f64,
    passing: Passing,
}

impl Sums {
    /// Sums up all classes of a link; `lost` is the number of frames not received since the last report. Each entry of
    /// `counted` is replaced by the sum over the class and its descendants. Resets the round-trip times.
    fn of(plan: &mut Plan, counted: &mut [ClassStats], lost: u64) -> Vec<Sums> {
        for (account, stats) in plan.accounts.iter().zip(&mut *counted) {
            *stats = account.own(stats);
        }
        estimate(plan, counted, lost);
        let overhead = plan.link.overhead;
        let accounts = plan.accounts.iter_mut();
        let mut all: Vec<Sums> = accounts
            .map(|account| Sums {
                early: account.early.count(overhead),
                lost: account.lost,
                passing: Passing {
                    trips: std::mem::take(&mut account.passing.trips),
                    ..account.passing
                },
            })
            .collect();
        // Parents come before their children.
        for place in (0..all.len()).rev() {
            if let Some(parent) = plan.link.classes[place].parent {
                counted[parent] = counted[parent].plus(&counted[place]);
                let (above, below) = all.split_at_mut(place);
                let (above, below) = (&mut above[parent], &below[0]);
                above.early = above.early.plus(below.early);
                above.lost += below.lost;
                above.passing.extend(&below.passing);
            }
        }
        all
    }
}

impl LinkReport {
    /// Builds the report of a link from its counts, with the seconds since the start and since the last report. `lost`
    /// is the number of frames for it that were not received since then. O(classes).
    pub(crate) fn new(
        plan: &mut Plan,
        mut count: LinkCount,
        device: &DeviceCount,
        to: Arc<str>,
        [seconds, recent_seconds]: [f64; 2],
        lost: u64,
        pipeline: PipelineReport,
    ) -> LinkReport {
        let sums = Sums::of(plan, &mut count.classes, lost);
        let link = Arc::clone(&plan.link);
        let top = || (0..sums.len()).filter(|&place| link.classes[place].parent.is_none());
        let bytes = top().map(|place| count.classes[place].sent.bytes).sum();
        let told: u64 = top()
            .map(|place| plan.accounts[place].told.figure(|told| told.sent_bytes))
            .sum();
        let whole = Span { seconds, bytes };
        let recent = Span {
            seconds: recent_seconds,
            bytes: bytes.saturating_sub(told),
        };
        let accounts = plan.accounts.iter_mut().enumerate();
        let classes =
            (accounts.zip(&count.classes).zip(&sums)).map(|(((place, account), stats), sums)| {
                let terms = plan.terms.share(place);
                tell(account, terms, stats, sums, [whole, recent])
            });
        // Releases pieces of terms that are no longer in use.
        let same = |was: &ClassReport, is: &ClassReport| was.terms.is(&is.terms) && was == is;
        plan.told = List::after(&plan.told, classes, same);
        for (place, account) in plan.accounts.iter_mut().enumerate() {
            account.told.report = Some(plan.told.share(place));
        }
        let mut report = LinkReport {
            name: Arc::from(&*link.name),
            to,
            algorithm: link.algorithm.to_string(),
            rate_bps: link.rate.bps(),
            rate: link.rate,
            overhead: link.overhead,
            longest_frame: link.longest.get() - link.overhead,
            longest_mtu: match link.longest_by {
                LongestBy::Interface { mtu } => Some(mtu),
                LongestBy::File | LongestBy::Assumed => None,
            },
            carried_bps: whole.bps(),
            utilisation: whole.bps() / link.rate.bps() as f64,
            recent_bps: recent.bps(),
            shaped: device.shaped,
            passed_frames: device.lane.passed.frames,
            passed_bytes: device.lane.passed.bytes,
            received_frames: device.lane.received.frames,
            oversized: device.lane.oversized.frames,
            malformed: count.malformed,
            unmatched: count.unmatched,
            opaque_frames: count.opaque.0,
            opaque_protocol: None,
            transmitted: device.lane.transmitted,
            queued_packets: count.queued.into(),
            pipeline,
            classes: plan.told.clone(),
            delays: (plan
                .accounts
                .iter()
                .map(|account| Arc::clone(&account.told.delays.delays)))
            .collect(),
        };
        report.opaque_protocol = plan
            .opaque
            .protocol(seconds, count.opaque, report.offered());
        report
    }

    /// Returns the number of frames that arrived at its classes, from the interface and from attached processes.
    #[must_use]
    pub fn offered(&self) -> u64 {
        self.top()
            .map(|class| class.accepted_packets + class.drops.full)
            .sum()
    }

    /// Returns the number of early drops of all its classes.
    #[must_use]
    pub fn early_drops(&self) -> u64 {
        self.top().map(|class| class.drops.early).sum()
    }

    fn top(&self) -> impl Iterator<Item = &ClassReport> {
        let classes = self.classes.iter();
        classes.filter(|class| class.terms.parent.is_none())
    }
}

/// Builds the report of a class, and marks its delays as reported.
fn tell(
    account: &mut Account,
    terms: Shared<ClassTerms>,
    stats: &ClassStats,
    sums: &Sums,
    [whole, recent]: [Span; 2],
) -> ClassReport {
    let Sums { early, passing, .. } = sums;
    let came = account.meter.read(&mut account.told.delays);
    let told = &account.told;
    let delays = &told.delays.delays;
    let counted = ClassReport::counted(terms, stats, *early, whole.seconds, whole.bytes);
    let since = |of: fn(&ClassReport) -> u64| of(&counted).saturating_sub(told.figure(of));
    let sent = since(|it| it.sent_bytes);
    let delay_us = came.in_micros(None);
    let terms = &counted.terms;
    let nonconforming = account.meter.nonconforming();
    let recently = nonconforming.saturating_sub(told.figure(|told| told.nonconforming_packets));
    let bound_applies = terms.bound.map(|_| recently == 0);
    let had = told.report.as_ref().and_then(|told| told.recent);
    let had = had.map_or(0, |recent| recent.violations);
    // Packets that left before a change may have had another bound.
    if (told.report.as_ref()).is_some_and(|told| told.terms != *terms) {
        account.excused = account.meter.violations().saturating_sub(had);
    }
    let violations = account.meter.violations().saturating_sub(account.excused);
    ClassReport {
        ring_loss_samples: account.meter.ring_loss_samples(),
        orphan_fragments: account.meter.orphans(),
        lost_estimate: sums.lost.round() as u64,
        nonconforming_packets: nonconforming,
        delay_us: delays.in_micros(Some(delays.longest())),
        recent: Some(Recent {
            offered_bps: bps(since(|it| it.offered_bytes), recent.seconds),
            sent_bps: bps(sent, recent.seconds),
            share: part(sent, recent.bytes),
            drops: counted.drops.since(
                told.report
                    .as_ref()
                    .map_or(Drops::default(), |told| told.drops),
            ),
            delay_us,
            bound_applies,
            overlimits: since(|it| it.overlimits),
            late_packets: violations.saturating_sub(had),
            violations,
            rtt_us: passing.round_trips(),
            retransmits: passing.again,
            ecn_ce: passing.marked,
        }),
        ..counted
    }
}

/// Attributes the frames lost before classification to classes, in proportion to the frames that arrived during losses.
/// If the device does not identify those, in proportion to all arrivals since the last report.
fn estimate(plan: &mut Plan, all: &[ClassStats], lost: u64) {
    if lost == 0 {
        return;
    }
    let accounts = plan.accounts.iter();
    let mut sample: Vec<u64> = accounts
        .map(|account| {
            account.meter.ring_loss_samples() - account.told.figure(|told| told.ring_loss_samples)
        })
        .collect();
    if sample.iter().all(|&beside| beside == 0) {
        let classes = plan.link.classes.iter();
        sample = (all.iter().zip(&plan.accounts).zip(classes))
            .map(|((now, account), class)| match class.kind {
                // An inner class's reported counts are those of its descendants.
                ClassKind::Inner(_) => 0,
                _ => {
                    let came = now.accepted.packets + now.dropped.packets;
                    let told = |told: &ClassReport| told.accepted_packets + told.drops.full;
                    came.saturating_sub(account.told.figure(told))
                }
            })
            .collect();
    }
    let total: u64 = sample.iter().sum();
    for (account, part) in plan.accounts.iter_mut().zip(sample) {
        account.lost += lost as f64 * part as f64 / total.max(1) as f64;
    }
}
