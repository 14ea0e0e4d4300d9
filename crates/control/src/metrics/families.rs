//! The metrics, each defined once for all formats.

use fairlane_config::class_report::ClassReport;
use fairlane_daemon::{Delays, InterfaceReport, LinkReport, Report};

use super::PREFIX;
use super::process::Process;

use Number::{Bits, Count, Gauge, Micros, Seconds};

/// One metric, with a value for each of its entities.
pub(super) struct Family {
    /// Name without its [prefix](Family::prefix): with the unit, and for a counter without `_total`.
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) of: Of,
}

/// The metric's type, as OpenMetrics names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetricType {
    Counter,
    Gauge,
    Histogram,
}

/// The entities that a metric describes, and the source of its values.
pub(super) enum Of {
    /// The program: its version.
    Build,
    /// This process, by the names that Prometheus' own client libraries use.
    Process(Number<Process>),
    Site(Number<Report>),
    Interface(Number<InterfaceReport>),
    Link(Number<LinkReport>),
    Class(Number<ClassReport>),
    /// Drops of a class, by reason.
    Reasons,
    /// Delays of a leaf class.
    Delays,
}

/// A number in a report. All but counts may be absent.
pub(super) enum Number<T> {
    Count(fn(&T) -> u64),
    /// A counter of time.
    Seconds(fn(&T) -> Option<f64>),
    Gauge(fn(&T) -> Option<f64>),
    /// Microseconds, exported in seconds.
    Micros(fn(&T) -> Option<f64>),
    /// Bits, exported in bytes.
    Bits(fn(&T) -> Option<f64>),
}

impl<T> Number<T> {
    fn metric_type(&self) -> MetricType {
        match self {
            Count(_) | Seconds(_) => MetricType::Counter,
            Gauge(_) | Micros(_) | Bits(_) => MetricType::Gauge,
        }
    }

    /// Returns the value, if there is one.
    fn of(&self, it: &T) -> Option<Value<'static>> {
        let (value, divisor) = match self {
            Count(count) => return Some(Value::Count(count(it))),
            Seconds(seconds) => return seconds(it).map(Value::Seconds),
            Gauge(value) => (value(it), 1.0),
            Micros(value) => (value(it), 1e6),
            Bits(value) => (value(it), 8.0),
        };
        value.map(|value| Value::Gauge(value / divisor))
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'a> {
    Count(u64),
    Seconds(f64),
    Gauge(f64),
    Delays(&'a Delays),
}

/// The origin of all values.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) report: &'a Report,
    pub(super) process: &'a Process,
}

/// Names and values of labels, all of them from the configuration.
pub(super) type Labels<'a> = [(&'static str, &'a str)];

impl Family {
    /// Returns the prefix of its name.
    pub(super) fn prefix(&self) -> &'static str {
        match self.of {
            Of::Process(_) => "process_",
            _ => PREFIX,
        }
    }

    pub(super) fn metric_type(&self) -> MetricType {
        match &self.of {
            Of::Process(number) => number.metric_type(),
            Of::Site(number) => number.metric_type(),
            Of::Interface(number) => number.metric_type(),
            Of::Link(number) => number.metric_type(),
            Of::Class(number) => number.metric_type(),
            Of::Reasons => MetricType::Counter,
            Of::Build => MetricType::Gauge,
            Of::Delays => MetricType::Histogram,
        }
    }

    /// Returns the unit, if the name ends in one that the formats define.
    pub(super) fn unit(&self) -> Option<&'static str> {
        let known = ["seconds", "bytes"];
        let last = self.name.rsplit_once('_').map_or("", |(_, last)| last);
        // A rate is per second, which is none of these units.
        let is_rate = self.name.ends_with("_per_second");
        let unit = known.into_iter().find(|&unit| unit == last && !is_rate);
        // A counter has no unit, even if it counts bytes.
        unit.filter(|_| self.metric_type() != MetricType::Counter)
    }

    /// Returns the number of entities.
    pub(super) fn things(&self, report: &Report) -> usize {
        match self.of {
            Of::Build | Of::Process(_) | Of::Site(_) => 1,
            Of::Interface(_) => report.interfaces.len(),
            Of::Link(_) => report.links.len(),
            Of::Class(_) | Of::Reasons | Of::Delays => {
                report.links.iter().map(|link| link.classes.len()).sum()
            }
        }
    }

    /// Writes the values for the entity at a position; most entities have one value.
    pub(super) fn values(
        &self,
        Source { report, process }: Source<'_>,
        place: usize,
        tell: &mut dyn FnMut(&Labels<'_>, Value<'_>),
    ) {
        match &self.of {
            Of::Process(number) => {
                if let Some(value) = number.of(process) {
                    tell(&[], value);
                }
            }
            Of::Build => tell(&[("version", env!("CARGO_PKG_VERSION"))], Value::Gauge(1.0)),
            Of::Site(number) => {
                if let Some(value) = number.of(report) {
                    tell(&[], value);
                }
            }
            Of::Interface(number) => {
                let it = &report.interfaces[place];
                if let Some(value) = number.of(it) {
                    tell(&[("interface", &it.name)], value);
                }
            }
            Of::Link(number) => {
                let it = &report.links[place];
                if let Some(value) = number.of(it) {
                    tell(&[("link", &it.name)], value);
                }
            }
            Of::Class(_) | Of::Reasons | Of::Delays => {
                if let Some((link, place)) = at(report, place) {
                    self.values_of_class(link, place, tell);
                }
            }
        }
    }

    fn values_of_class(
        &self,
        link: &LinkReport,
        place: usize,
        tell: &mut dyn FnMut(&Labels<'_>, Value<'_>),
    ) {
        let class = &link.classes[place];
        let is_leaf = class.terms.kind != "inner";
        let labels = [
            ("link", &*link.name),
            ("class", &*class.terms.name),
            // Inner classes include the packets of the classes below them, so sums must select leaves.
            ("leaf", if is_leaf { "true" } else { "false" }),
        ];
        match &self.of {
            Of::Class(number) => {
                if let Some(value) = number.of(class) {
                    tell(&labels, value);
                }
            }
            Of::Reasons => {
                let [link, class_name, leaf] = labels;
                for (reason, count) in [
                    ("full", class.dropped),
                    ("managed", class.discarded),
                    ("early", class.early),
                ] {
                    let labels = [link, class_name, leaf, ("reason", reason)];
                    tell(&labels, Value::Count(count));
                }
            }
            // Only leaf classes hold packets.
            Of::Delays if is_leaf => {
                tell(&labels, Value::Delays(&link.delays[place]));
            }
            _ => {}
        }
    }
}

/// Returns a class by its index among the classes of all links, with its index in its own link.
fn at(report: &Report, mut place: usize) -> Option<(&LinkReport, usize)> {
    for link in &report.links {
        if place < link.classes.len() {
            return Some((link, place));
        }
        place -= link.classes.len();
    }
    None
}

fn yes(is_so: bool) -> Option<f64> {
    Some(f64::from(u8::from(is_so)))
}

const fn family(name: &'static str, of: Of, help: &'static str) -> Family {
    Family { name, help, of }
}

/// All metrics, in the order in which they are written.
pub(super) static FAMILIES: &[Family] = &[
    family("build_info", Of::Build, "Which Fairlane this is"),
    family(
        "cpu_seconds",
        Of::Process(Seconds(|it| it.cpu_seconds)),
        "Processor time of this process, user and system",
    ),
    family(
        "start_time_seconds",
        Of::Process(Gauge(|it| it.start_seconds)),
        "Start of this process, in seconds since 1970",
    ),
    family(
        "virtual_memory_bytes",
        Of::Process(Gauge(|it| it.virtual_bytes)),
        "Virtual memory of this process",
    ),
    family(
        "resident_memory_bytes",
        Of::Process(Gauge(|it| it.resident_bytes)),
        "Resident memory of this process",
    ),
    family(
        "threads",
        Of::Process(Gauge(|it| it.threads)),
        "Threads of this process",
    ),
    family(
        "open_fds",
        Of::Process(Gauge(|it| it.open_files)),
        "File descriptors that this process has open",
    ),
    family(
        "max_fds",
        Of::Process(Gauge(|it| it.most_files)),
        "File descriptors that this process may have open",
    ),
    family(
        "uptime_seconds",
        Of::Site(Gauge(|it| Some(it.seconds))),
        "Time since the start",
    ),
    family(
        "longest_step_seconds",
        Of::Site(Micros(|it| Some(it.longest_step_us))),
        "Longest time between two rounds while classes were changed or counted",
    ),
    family(
        "longest_step_cpu_seconds",
        Of::Site(Micros(|it| Some(it.longest_step_cpu_us()))),
        "Most processor time that the forwarding thread itself took between two rounds for that",
    ),
    family(
        "round_violations",
        Of::Site(Count(|it| it.forwarding.round_violations)),
        "Rounds of the forwarding thread that took longer than they may",
    ),
    family(
        "rounds",
        Of::Site(Count(|it| it.forwarding.rounds)),
        "Rounds of the thread that forwards",
    ),
    family(
        "scan_mean_seconds",
        Of::Site(Micros(|it| Some(it.forwarding.scan_us?.mean))),
        "Mean time of a round since the start",
    ),
    family(
        "scan_longest_seconds",
        Of::Site(Micros(|it| Some(it.forwarding.scan_us?.max))),
        "Longest time of a round since the start",
    ),
    family(
        "delta_a_mean_seconds",
        Of::Site(Micros(|it| Some(it.forwarding.delta_a_us?.mean))),
        "Mean time from one look at the mailbox of an attached process to the next that found frames",
    ),
    family(
        "delta_a_longest_seconds",
        Of::Site(Micros(|it| Some(it.forwarding.delta_a_us?.max))),
        "Longest time from one look at the mailbox of an attached process to the next that found frames",
    ),
    family(
        "release_delay_mean_seconds",
        Of::Site(Micros(|it| Some(it.forwarding.delta_d_us?.mean))),
        "Mean time from when something may leave to the round that sends it",
    ),
    family(
        "release_delay_longest_seconds",
        Of::Site(Micros(|it| Some(it.forwarding.delta_d_us?.max))),
        "Longest time from when something may leave to the round that sends it",
    ),
    family(
        "reloads",
        Of::Site(Count(|it| it.reloads.into())),
        "Times that another configuration took over",
    ),
    family(
        "bypasses",
        Of::Site(Gauge(|it| Some(it.bypasses.len() as f64))),
        "Ways of the machine's kernel past the site",
    ),
    family(
        "config_last_reload_successful",
        Of::Site(Gauge(|it| yes(it.configuration.last_reload_successful))),
        "Whether the last attempt to load the site file succeeded",
    ),
    family(
        "config_last_reload_success_timestamp_seconds",
        Of::Site(Gauge(|it| {
            Some(it.configuration.last_reload_success_timestamp_seconds)
        })),
        "Unix time of the last successful load of the site file",
    ),
    family(
        "config_unsaved_changes",
        Of::Site(Gauge(|it| Some(it.configuration.unsaved_changes as f64))),
        "Changes of the running configuration that are not in the site file",
    ),
    family(
        "attached_processes",
        Of::Site(Gauge(|it| Some(it.attached as f64))),
        "Processes that are attached",
    ),
    family(
        "interface_lost",
        Of::Interface(Count(|it| it.lost)),
        "Frames that arrived and were not received: no room, no time, or it was detached or deleted first",
    ),
    family(
        "interface_early_drops",
        Of::Interface(Count(|it| it.early)),
        "Frames dropped as they arrived, beyond their classes' share of an overload",
    ),
    family(
        "interface_uncut",
        Of::Interface(Count(|it| it.uncut)),
        "Frames left to be cut into segments, which could not be",
    ),
    family(
        "interface_refused",
        Of::Interface(Count(|it| it.refused)),
        "Frames that the interface would not send",
    ),
    family(
        "interface_away",
        Of::Interface(Count(|it| it.away)),
        "Frames dropped while there was no interface of this name",
    ),
    family(
        "interface_attached",
        Of::Interface(Gauge(|it| yes(it.attached))),
        "Whether the interface is used: it was not detached",
    ),
    family(
        "link_received_packets",
        Of::Link(Count(|it| it.received_frames)),
        "Frames that were received for the link",
    ),
    family(
        "link_transmitted_packets",
        Of::Link(Count(|it| it.transmitted)),
        "Frames that the interface took",
    ),
    family(
        "link_passed_packets",
        Of::Link(Count(|it| it.passed_frames)),
        "Frames that passed by the classes while the link did not shape",
    ),
    family(
        "link_passed_bytes",
        Of::Link(Count(|it| it.passed_bytes)),
        "Bytes of the frames that passed by the classes, without overhead",
    ),
    family(
        "link_oversized_packets",
        Of::Link(Count(|it| it.oversized)),
        "Frames longer than the link can ever carry",
    ),
    family(
        "link_malformed_packets",
        Of::Link(Count(|it| it.malformed)),
        "Frames that are not what their headers say",
    ),
    family(
        "link_worker_wait_seconds",
        Of::Link(Micros(|it| it.pipeline.waited_us)),
        "Longest time that a frame has waited with a thread that receives",
    ),
    family(
        "link_worker_wait_budget_seconds",
        Of::Link(Micros(|it| it.pipeline.arrival_us)),
        "As many of the longest rounds as a frame may wait there",
    ),
    family(
        "link_worker_wait_violations",
        Of::Link(Count(|it| it.pipeline.violations)),
        "Times that frames have waited there, or with a thread that transmits, for more rounds than they may",
    ),
    family(
        "link_transmit_wait_seconds",
        Of::Link(Micros(|it| it.pipeline.handed_us)),
        "Longest time that a frame has waited with a thread that transmits",
    ),
    family(
        "link_transmit_wait_budget_seconds",
        Of::Link(Micros(|it| it.pipeline.transmit_us)),
        "As many of the longest rounds of such a thread as a frame may wait there",
    ),
    family(
        "link_transmit_queue_longest_bytes",
        Of::Link(Gauge(|it| Some(it.pipeline.device_most_bytes as f64))),
        "Most bytes that the interface, and threads that transmit, have had and not sent",
    ),
    family(
        "link_transmit_queue_budget_bytes",
        Of::Link(Gauge(|it| Some(it.pipeline.terms.device_bytes as f64))),
        "Most bytes that these may have and not have sent",
    ),
    family(
        "link_unmatched_packets",
        Of::Link(Count(|it| it.unmatched)),
        "Frames that no filter matched",
    ),
    family(
        "link_opaque_packets",
        Of::Link(Count(|it| it.opaque_frames)),
        "Frames of protocols that no filter looks into: neither IP nor link-layer control",
    ),
    family(
        "link_shaped",
        Of::Link(Gauge(|it| yes(it.shaped))),
        "Whether the link shapes; else frames pass by its classes",
    ),
    family(
        "link_rate_bytes_per_second",
        Of::Link(Bits(|it| Some(it.rate_bps as f64))),
        "Rate of the link",
    ),
    family(
        "link_carried_bytes_per_second",
        Of::Link(Bits(|it| Some(it.recent_bps))),
        "Rate that the link carried lately, overhead included",
    ),
    family(
        "class_bytes",
        Of::Class(Count(|it| it.sent_bytes)),
        "Bytes that left, the link's overhead included",
    ),
    family(
        "class_packets",
        Of::Class(Count(|it| it.sent_packets)),
        "Packets that left",
    ),
    family(
        "class_offered_bytes",
        Of::Class(Count(|it| it.offered_bytes)),
        "Bytes that arrived, whatever became of them",
    ),
    family(
        "class_offered_packets",
        Of::Class(Count(|it| it.offered_packets)),
        "Packets that arrived, whatever became of them",
    ),
    family(
        "class_drops",
        Of::Class(Count(ClassReport::drops)),
        "Packets that were dropped, for whatever reason",
    ),
    family(
        "class_marks",
        Of::Class(Count(|it| it.marked)),
        "Packets that queue management marked (ECN)",
    ),
    family(
        "class_overlimits",
        Of::Class(Count(|it| it.throttled)),
        "Times that its ceiling, or one of a flow of it, held packets back",
    ),
    family(
        "class_lost_estimate",
        Of::Class(Count(|it| it.lost_estimate)),
        "Its part of the frames that were lost before they were classified",
    ),
    family(
        "class_orphan_fragments",
        Of::Class(Count(|it| it.orphan_fragments)),
        "Fragments whose first fragment was not seen, classified without ports",
    ),
    family(
        "class_overflowed",
        Of::Class(Count(|it| it.overflowed)),
        "Packets for whose flow there was no queue of its own",
    ),
    family(
        "class_bound_violations",
        Of::Class(Count(|it| it.recent.map_or(0, |recent| recent.violations))),
        "Packets within the guaranteed rate and arrival burst of their class, or flow, that took longer than the bound",
    ),
    family(
        "class_nonconforming_packets",
        Of::Class(Count(|it| it.nonconforming_packets)),
        "Packets that left, and had arrived beyond the guaranteed rate and arrival burst of their class, or flow",
    ),
    family(
        "class_tcp_came_again",
        Of::Class(Count(|it| it.recent.map_or(0, |recent| recent.came_again))),
        "Segments of TCP that came again, or later than those behind them",
    ),
    family(
        "class_tcp_came_marked",
        Of::Class(Count(|it| it.recent.map_or(0, |recent| recent.came_marked))),
        "Segments of TCP that came marked: congestion experienced",
    ),
    family(
        "class_round_trip_seconds",
        Of::Class(Micros(|it| Some(it.recent?.rtt_us?.p50))),
        "Median round trip of TCP lately, seen in passing: from the class's segment to its acknowledgment",
    ),
    family(
        "class_backlog_packets",
        Of::Class(Gauge(|it| Some(it.queued_packets as f64))),
        "Packets that wait",
    ),
    family(
        "class_backlog_bytes",
        Of::Class(Gauge(|it| Some(it.queued_bytes as f64))),
        "Bytes that wait",
    ),
    family(
        "class_flows",
        Of::Class(Gauge(|it| Some(it.flows as f64))),
        "Flows that the class has queues for",
    ),
    family(
        "class_rate_bytes_per_second",
        Of::Class(Bits(|it| Some(it.recent?.sent_bps))),
        "Rate of what left lately",
    ),
    family(
        "class_share_ratio",
        Of::Class(Gauge(|it| Some(it.recent?.share))),
        "Part of what the link sent lately",
    ),
    family(
        "class_guaranteed_bytes_per_second",
        Of::Class(Bits(|it| Some(it.terms.guaranteed_bps? as f64))),
        "Rate that the class has at least while it has something to send",
    ),
    family(
        "class_ceiling_bytes_per_second",
        Of::Class(Bits(|it| Some(it.terms.ceil_bps? as f64))),
        "Rate that the class never exceeds",
    ),
    family(
        "class_worst_delay_seconds",
        Of::Class(Micros(|it| Some(it.delay_us?.max))),
        "Longest delay of a packet since the start",
    ),
    family(
        "class_delay_bound_seconds",
        Of::Class(Micros(|it| it.terms.bound_us)),
        "Computed worst-case delay of a packet whose class, or flow, keeps to its guaranteed rate and arrival burst",
    ),
    family(
        "class_drops_by_reason",
        Of::Reasons,
        "Packets that were dropped: where the queue was full, by queue management or to make room, or as they arrived under overload",
    ),
    family(
        "class_sojourn_seconds",
        Of::Delays,
        "Time from interface to interface of the packets that left",
    ),
];
