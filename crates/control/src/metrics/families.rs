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
                    ("full", class.drops.full),
                    ("managed", class.drops.managed),
                    ("early", class.drops.early),
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
    family("build_info", Of::Build, "Version of Fairlane"),
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
        "forwarding_pause_max_seconds",
        Of::Site(Micros(|it| Some(it.forwarding_pause_max_us))),
        "Longest forwarding pause for a configuration change or statistics",
    ),
    family(
        "forwarding_pause_cpu_max_seconds",
        Of::Site(Micros(|it| Some(it.forwarding_pause_cpu_max_us()))),
        "Most processor time of the forwarding thread in such a pause",
    ),
    family(
        "round_violations",
        Of::Site(Count(|it| it.forwarding.round_violations)),
        "Rounds of the forwarding thread above the limit (longest-round)",
    ),
    family(
        "rounds",
        Of::Site(Count(|it| it.forwarding.rounds)),
        "Rounds of the forwarding thread",
    ),
    family(
        "scan_mean_seconds",
        Of::Site(Micros(|it| Some(it.forwarding.scan_us?.mean))),
        "Mean duration of a round since the start",
    ),
    family(
        "scan_max_seconds",
        Of::Site(Micros(|it| Some(it.forwarding.scan_us?.max))),
        "Longest round since the start",
    ),
    family(
        "delta_a_mean_seconds",
        Of::Site(Micros(|it| Some(it.forwarding.delta_a_us?.mean))),
        "Mean time between two polls of an attached process's mailbox, if the second found frames",
    ),
    family(
        "delta_a_max_seconds",
        Of::Site(Micros(|it| Some(it.forwarding.delta_a_us?.max))),
        "Longest time between two polls of an attached process's mailbox, if the second found frames",
    ),
    family(
        "release_delay_mean_seconds",
        Of::Site(Micros(|it| Some(it.forwarding.delta_d_us?.mean))),
        "Mean time from when a packet is eligible until the round that sends it",
    ),
    family(
        "release_delay_max_seconds",
        Of::Site(Micros(|it| Some(it.forwarding.delta_d_us?.max))),
        "Longest time from when a packet is eligible until the round that sends it",
    ),
    family(
        "reloads",
        Of::Site(Count(|it| it.reloads.into())),
        "Configurations applied since the start",
    ),
    family(
        "bypasses",
        Of::Site(Gauge(|it| Some(it.bypasses.len() as f64))),
        "Kernel paths that bypass the site (bridges, routes)",
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
        "Attached processes",
    ),
    family(
        "interface_lost",
        Of::Interface(Count(|it| it.lost)),
        "Frames lost before classification: the receive ring was full, or the interface was detached or deleted",
    ),
    family(
        "interface_early_drops",
        Of::Interface(Count(|it| it.early_drops)),
        "Frames dropped on arrival: their classes exceeded their share of an overload",
    ),
    family(
        "interface_gso_drops",
        Of::Interface(Count(|it| it.gso_drops)),
        "Frames with offloaded segmentation (GSO) that could not be segmented",
    ),
    family(
        "interface_refused",
        Of::Interface(Count(|it| it.refused)),
        "Frames that the interface rejected, such as frames above its MTU",
    ),
    family(
        "interface_absent_drops",
        Of::Interface(Count(|it| it.absent_drops)),
        "Frames dropped while the interface was missing or detached",
    ),
    family(
        "interface_attached",
        Of::Interface(Gauge(|it| yes(it.attached))),
        "Whether the interface is attached",
    ),
    family(
        "link_received_packets",
        Of::Link(Count(|it| it.received_frames)),
        "Frames received for the link",
    ),
    family(
        "link_transmitted_packets",
        Of::Link(Count(|it| it.transmitted)),
        "Frames transmitted",
    ),
    family(
        "link_passed_packets",
        Of::Link(Count(|it| it.passed_frames)),
        "Frames forwarded unshaped, while shaping was off",
    ),
    family(
        "link_passed_bytes",
        Of::Link(Count(|it| it.passed_bytes)),
        "Bytes forwarded unshaped, without overhead",
    ),
    family(
        "link_oversized_packets",
        Of::Link(Count(|it| it.oversized)),
        "Frames above the link's longest frame",
    ),
    family(
        "link_malformed_packets",
        Of::Link(Count(|it| it.malformed)),
        "Frames with malformed headers",
    ),
    family(
        "link_worker_wait_seconds",
        Of::Link(Micros(|it| it.pipeline.waited_us)),
        "Longest time of a frame in a receive worker",
    ),
    family(
        "link_worker_wait_budget_seconds",
        Of::Link(Micros(|it| it.pipeline.arrival_us)),
        "Maximum time a frame may wait in a receive worker (round limit x longest round)",
    ),
    family(
        "link_worker_wait_violations",
        Of::Link(Count(|it| it.pipeline.violations)),
        "Times that a receive or transmit worker exceeded its limit of rounds",
    ),
    family(
        "link_transmit_wait_seconds",
        Of::Link(Micros(|it| it.pipeline.handed_us)),
        "Longest time of a frame in a transmit worker",
    ),
    family(
        "link_transmit_wait_budget_seconds",
        Of::Link(Micros(|it| it.pipeline.transmit_us)),
        "Maximum time a frame may wait in a transmit worker (round limit x longest round)",
    ),
    family(
        "link_transmit_queue_max_bytes",
        Of::Link(Gauge(|it| Some(it.pipeline.device_most_bytes as f64))),
        "Most bytes queued in the interface and its transmit workers",
    ),
    family(
        "link_transmit_queue_budget_bytes",
        Of::Link(Gauge(|it| Some(it.pipeline.terms.device_bytes as f64))),
        "Limit of bytes queued in the interface and its transmit workers",
    ),
    family(
        "link_unmatched_packets",
        Of::Link(Count(|it| it.unmatched)),
        "Frames that no filter matched",
    ),
    family(
        "link_opaque_packets",
        Of::Link(Count(|it| it.opaque_frames)),
        "Frames of protocols that filters cannot match: neither IP nor link-layer control",
    ),
    family(
        "link_shaped",
        Of::Link(Gauge(|it| yes(it.shaped))),
        "Whether the link is shaped",
    ),
    family(
        "link_rate_bytes_per_second",
        Of::Link(Bits(|it| Some(it.rate_bps as f64))),
        "Rate of the link",
    ),
    family(
        "link_carried_bytes_per_second",
        Of::Link(Bits(|it| Some(it.recent_bps))),
        "Recent throughput of the link, overhead included",
    ),
    family(
        "class_bytes",
        Of::Class(Count(|it| it.sent_bytes)),
        "Bytes sent, with the link's overhead",
    ),
    family(
        "class_packets",
        Of::Class(Count(|it| it.sent_packets)),
        "Packets sent",
    ),
    family(
        "class_offered_bytes",
        Of::Class(Count(|it| it.offered_bytes)),
        "Bytes that arrived, sent or not",
    ),
    family(
        "class_offered_packets",
        Of::Class(Count(|it| it.offered_packets)),
        "Packets that arrived, sent or not",
    ),
    family(
        "class_marks",
        Of::Class(Count(|it| it.marked)),
        "Packets that queue management marked with ECN CE",
    ),
    family(
        "class_overlimits",
        Of::Class(Count(|it| it.overlimits)),
        "Times that the ceiling of the class, or of one of its flows, delayed packets",
    ),
    family(
        "class_lost_estimate",
        Of::Class(Count(|it| it.lost_estimate)),
        "Estimated part of the frames lost before classification",
    ),
    family(
        "class_orphan_fragments",
        Of::Class(Count(|it| it.orphan_fragments)),
        "Fragments whose first fragment was not seen, classified without ports",
    ),
    family(
        "class_flow_table_full",
        Of::Class(Count(|it| it.flow_table_full)),
        "Packets of flows without their own queue: the flow table was full",
    ),
    family(
        "class_bound_violations",
        Of::Class(Count(|it| it.recent.map_or(0, |recent| recent.violations))),
        "Packets within the guaranteed rate and arrival burst of their class, or flow, that took longer than the bound",
    ),
    family(
        "class_nonconforming_packets",
        Of::Class(Count(|it| it.nonconforming_packets)),
        "Packets sent that had arrived above the guaranteed rate and arrival burst of their class, or flow",
    ),
    family(
        "class_tcp_retransmits",
        Of::Class(Count(|it| it.recent.map_or(0, |recent| recent.retransmits))),
        "TCP segments retransmitted or received out of order",
    ),
    family(
        "class_tcp_ecn_ce",
        Of::Class(Count(|it| it.recent.map_or(0, |recent| recent.ecn_ce))),
        "TCP segments received with ECN CE",
    ),
    family(
        "class_round_trip_seconds",
        Of::Class(Micros(|it| Some(it.recent?.rtt_us?.p50))),
        "Recent median TCP round-trip time, measured passively from a segment of the class to its acknowledgment",
    ),
    family(
        "class_backlog_packets",
        Of::Class(Gauge(|it| Some(it.queued_packets as f64))),
        "Queue length in packets",
    ),
    family(
        "class_backlog_bytes",
        Of::Class(Gauge(|it| Some(it.queued_bytes as f64))),
        "Queue length in bytes",
    ),
    family(
        "class_flows",
        Of::Class(Gauge(|it| Some(it.flows as f64))),
        "Flows with a queue",
    ),
    family(
        "class_rate_bytes_per_second",
        Of::Class(Bits(|it| Some(it.recent?.sent_bps))),
        "Recent throughput of the class",
    ),
    family(
        "class_share_ratio",
        Of::Class(Gauge(|it| Some(it.recent?.share))),
        "Recent part of the link's throughput",
    ),
    family(
        "class_guaranteed_bytes_per_second",
        Of::Class(Bits(|it| Some(it.terms.guaranteed_bps? as f64))),
        "Guaranteed rate while the class is backlogged",
    ),
    family(
        "class_ceiling_bytes_per_second",
        Of::Class(Bits(|it| Some(it.terms.ceil_bps? as f64))),
        "Ceiling of the class",
    ),
    family(
        "class_delay_max_seconds",
        Of::Class(Micros(|it| Some(it.delay_us?.max))),
        "Maximum delay of a packet since the start",
    ),
    family(
        "class_delay_bound_seconds",
        Of::Class(Micros(|it| it.terms.bound_us())),
        "Computed worst-case delay of a packet whose class, or flow, keeps to its guaranteed rate and arrival burst",
    ),
    family(
        "class_drops",
        Of::Reasons,
        "Packets dropped, by reason: queue full, queue management or eviction, or early drop under overload",
    ),
    family(
        "class_sojourn_seconds",
        Of::Delays,
        "Delay from interface to interface of packets sent",
    ),
];
