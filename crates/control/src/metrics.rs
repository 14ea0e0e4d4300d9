//! The state of a site as OpenMetrics text, for Prometheus and whoever reads the same.
//!
//! Labels name links, classes and interfaces: what the configuration names. Flows that come and go
//! by themselves have no labels, so that the number of series is known beforehand.

use std::collections::HashSet;
use std::fmt;

use fairlane_config::class_report::ClassReport;
use fairlane_core::Nanos;
use fairlane_site::{Delays, InterfaceReport, LinkReport, Report};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

/// The media type of what [`metrics`] returns.
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The media type of what [`plain`] returns.
pub(crate) const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Upper ends of the histogram of delays: 50 us to 5 s.
const DELAYS_US: [u64; 16] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000,
];

/// The state as text. O(classes).
#[must_use]
pub fn metrics(report: &Report) -> String {
    let mut registry = Registry::with_prefix("fairlane");
    // What is encoded owns what it is about.
    registry.register_collector(Box::new(State(report.clone())));
    let mut text = String::new();
    let encoded = encode(&mut text, &registry);
    encoded.expect("a string takes whatever is written to it");
    text
}

/// The same metrics in the older text format, which every program of Prometheus' reads: there a counter is
/// introduced by the name that its series have.
#[must_use]
pub(crate) fn plain(metrics: &str) -> String {
    let counters: HashSet<&str> = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    let mut text = String::with_capacity(metrics.len());
    for line in metrics.lines() {
        let introduced = ["# HELP ", "# TYPE "].iter().find_map(|&what| {
            let (name, rest) = line.strip_prefix(what)?.split_once(' ')?;
            counters.contains(name).then_some((what, name, rest))
        });
        match introduced {
            Some((what, name, rest)) => text.extend([what, name, "_total ", rest, "\n"]),
            // Comments that say nothing there.
            None if line.starts_with("# UNIT ") || line == "# EOF" => {}
            None => text.extend([line, "\n"]),
        }
    }
    text
}

#[derive(Debug)]
struct State(Report);

/// One metric: a value for each of the things that it is about.
struct Metric<'e> {
    encoder: MetricEncoder<'e>,
}

type Labels<'a> = Vec<(&'a str, &'a str)>;

impl Metric<'_> {
    fn count(&mut self, labels: &Labels<'_>, value: u64) -> fmt::Result {
        let mut one = self.encoder.encode_family(labels)?;
        one.encode_counter::<NoLabelSet, _, u64>(&value, None)
    }

    fn gauge(&mut self, labels: &Labels<'_>, value: f64) -> fmt::Result {
        self.encoder.encode_family(labels)?.encode_gauge(&value)
    }

    fn delays(&mut self, labels: &Labels<'_>, delays: &Delays) -> fmt::Result {
        let mut before = 0;
        let mut buckets: Vec<(f64, u64)> = Vec::with_capacity(DELAYS_US.len() + 1);
        for us in DELAYS_US {
            let within = delays.within(Nanos::from_micros(us));
            buckets.push((us as f64 / 1e6, within - before));
            before = within;
        }
        buckets.push((f64::MAX, delays.count() - before));
        let mut one = self.encoder.encode_family(labels)?;
        one.encode_histogram::<NoLabelSet>(delays.sum(), delays.count(), &buckets, None)
    }
}

/// Starts a metric.
fn metric<'e>(
    encoder: &'e mut DescriptorEncoder<'_>,
    kind: MetricType,
    name: &'e str,
    unit: Option<&'e Unit>,
    help: &str,
) -> Result<Metric<'e>, fmt::Error> {
    let encoder = encoder.encode_descriptor(name, help, unit, kind)?;
    Ok(Metric { encoder })
}

/// A metric with one value for each of several things: its name, what it tells, and the value.
type Told<T, V> = (&'static str, &'static str, fn(&T) -> V);

/// One that some things do not have, with its unit.
type Gauge = (Told<ClassReport, Option<f64>>, Option<Unit>);

const OF_INTERFACES: [Told<InterfaceReport, u64>; 5] = [
    (
        "interface_lost",
        "Frames that arrived and were not received: no room, or no time",
        |it| it.lost,
    ),
    (
        "interface_early_drops",
        "Frames dropped as they arrived, beyond their classes' share of an overload",
        |it| it.early,
    ),
    (
        "interface_uncut",
        "Frames left to be cut into segments, which could not be",
        |it| it.uncut,
    ),
    (
        "interface_refused",
        "Frames that the interface would not send",
        |it| it.refused,
    ),
    (
        "interface_away",
        "Frames dropped while there was no interface of this name",
        |it| it.away,
    ),
];

const OF_LINKS: [Told<LinkReport, u64>; 7] = [
    (
        "link_received_packets",
        "Frames that were received for the link",
        |it| it.received_frames,
    ),
    (
        "link_transmitted_packets",
        "Frames that the interface took",
        |it| it.transmitted,
    ),
    (
        "link_passed_packets",
        "Frames that passed by the classes while the link did not shape",
        |it| it.passed_frames,
    ),
    (
        "link_passed_bytes",
        "Bytes of the frames that passed by the classes, without overhead",
        |it| it.passed_bytes,
    ),
    (
        "link_oversized_packets",
        "Frames longer than the link can ever carry",
        |it| it.oversized,
    ),
    (
        "link_malformed_packets",
        "Frames that are not what their headers say",
        |it| it.malformed,
    ),
    (
        "link_unmatched_packets",
        "Frames that no filter matched",
        |it| it.unmatched,
    ),
];

const OF_CLASSES: [Told<ClassReport, u64>; 12] = [
    (
        "class_bytes",
        "Bytes that left, the link's overhead included",
        |it| it.sent_bytes,
    ),
    ("class_packets", "Packets that left", |it| it.sent_packets),
    (
        "class_offered_bytes",
        "Bytes that arrived, whatever became of them",
        |it| it.offered_bytes,
    ),
    (
        "class_offered_packets",
        "Packets that arrived, whatever became of them",
        |it| it.offered_packets,
    ),
    (
        "class_drops",
        "Packets that were dropped, for whatever reason",
        drops,
    ),
    (
        "class_marks",
        "Packets that queue management marked (ECN)",
        |it| it.marked,
    ),
    (
        "class_overlimits",
        "Times that its ceiling, or one of a flow of it, held packets back",
        |it| it.throttled,
    ),
    (
        "class_lost_estimate",
        "Its part of the frames that were lost before they were classified",
        |it| it.lost_estimate,
    ),
    (
        "class_overflowed",
        "Packets for whose flow there was no queue of its own",
        |it| it.overflowed,
    ),
    (
        "class_bound_violations",
        "Reports in which a packet took longer than the bound although the class offered no more than its guaranteed rate",
        |it| it.recent.map_or(0, |recent| recent.violations),
    ),
    (
        "class_tcp_came_again",
        "Segments of TCP that came again, or later than those behind them",
        |it| it.recent.map_or(0, |recent| recent.came_again),
    ),
    (
        "class_tcp_came_marked",
        "Segments of TCP that came marked: congestion experienced",
        |it| it.recent.map_or(0, |recent| recent.came_marked),
    ),
];

/// Values that some classes do not have, in units of their own.
const GAUGES_OF_CLASSES: [Gauge; 10] = [
    (
        (
            "class_round_trip",
            "Median round trip of TCP lately, seen in passing: from the class's segment to its acknowledgment",
            |it| Some(it.recent?.rtt_us?.p50 / 1e6),
        ),
        Some(Unit::Seconds),
    ),
    (
        ("class_backlog_packets", "Packets that wait", |it| {
            Some(it.queued_packets as f64)
        }),
        None,
    ),
    (
        ("class_backlog", "Bytes that wait", |it| {
            Some(it.queued_bytes as f64)
        }),
        Some(Unit::Bytes),
    ),
    (
        ("class_flows", "Flows that the class has queues for", |it| {
            Some(it.flows as f64)
        }),
        None,
    ),
    (
        (
            "class_rate_bytes_per_second",
            "Rate of what left lately",
            |it| Some(it.recent?.sent_bps / 8.0),
        ),
        None,
    ),
    (
        (
            "class_share_ratio",
            "Part of what the link sent lately",
            |it| Some(it.recent?.share),
        ),
        None,
    ),
    (
        (
            "class_guaranteed_bytes_per_second",
            "Rate that the class has at least while it has something to send",
            |it| Some(it.terms.guaranteed_bps? as f64 / 8.0),
        ),
        None,
    ),
    (
        (
            "class_ceiling_bytes_per_second",
            "Rate that the class never exceeds",
            |it| Some(it.terms.ceil_bps? as f64 / 8.0),
        ),
        None,
    ),
    (
        (
            "class_worst_delay",
            "Longest delay of a packet since the start",
            |it| Some(it.delay_us?.max / 1e6),
        ),
        Some(Unit::Seconds),
    ),
    (
        (
            "class_delay_bound",
            "Computed worst-case delay of a packet that finds its class empty",
            |it| Some(it.terms.bound_us? / 1e6),
        ),
        Some(Unit::Seconds),
    ),
];

fn drops(class: &ClassReport) -> u64 {
    class.dropped + class.discarded + class.early
}

fn of<'a>(link: &'a LinkReport, class: &'a ClassReport) -> Labels<'a> {
    vec![("link", &link.name), ("class", &class.terms.name)]
}

impl Collector for State {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let State(report) = self;
        let none = Labels::new();
        let version = vec![("version", env!("CARGO_PKG_VERSION"))];
        metric(
            &mut encoder,
            MetricType::Gauge,
            "build_info",
            None,
            "Which Fairlane this is",
        )?
        .gauge(&version, 1.0)?;
        let seconds = Some(&Unit::Seconds);
        metric(
            &mut encoder,
            MetricType::Gauge,
            "uptime",
            seconds,
            "Time since the start",
        )?
        .gauge(&none, report.seconds)?;
        let help = "Longest time between two rounds while classes were changed or counted";
        metric(
            &mut encoder,
            MetricType::Gauge,
            "longest_step",
            seconds,
            help,
        )?
        .gauge(&none, report.longest_step_us / 1e6)?;
        let help = "Times that another configuration took over";
        metric(&mut encoder, MetricType::Counter, "reloads", None, help)?
            .count(&none, report.reloads.into())?;
        let help = "Processes that are attached";
        metric(
            &mut encoder,
            MetricType::Gauge,
            "attached_processes",
            None,
            help,
        )?
        .gauge(&none, report.attached as f64)?;
        for (name, help, value) in OF_INTERFACES {
            let mut metric = metric(&mut encoder, MetricType::Counter, name, None, help)?;
            for it in &report.interfaces {
                metric.count(&vec![("interface", &it.name)], value(it))?;
            }
        }
        let help = "Whether the interface is used: it was not detached";
        let name = "interface_attached";
        let mut attached = metric(&mut encoder, MetricType::Gauge, name, None, help)?;
        for it in &report.interfaces {
            let value = f64::from(u8::from(it.attached));
            attached.gauge(&vec![("interface", &it.name)], value)?;
        }
        self.encode_links(&mut encoder)?;
        self.encode_classes(&mut encoder)
    }
}

impl State {
    fn encode_links(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let links = || {
            self.0
                .links
                .iter()
                .map(|link| (vec![("link", &*link.name)], link))
        };
        for (name, help, value) in OF_LINKS {
            let mut metric = metric(encoder, MetricType::Counter, name, None, help)?;
            for (labels, link) in links() {
                metric.count(&labels, value(link))?;
            }
        }
        let help = "Whether the link shapes; else frames pass by its classes";
        let mut shaped = metric(encoder, MetricType::Gauge, "link_shaped", None, help)?;
        for (labels, link) in links() {
            shaped.gauge(&labels, f64::from(u8::from(link.shaped)))?;
        }
        let help = "Rate of the link";
        let mut rates = metric(
            encoder,
            MetricType::Gauge,
            "link_rate_bytes_per_second",
            None,
            help,
        )?;
        for (labels, link) in links() {
            rates.gauge(&labels, link.rate_bps as f64 / 8.0)?;
        }
        let help = "Rate that the link carried lately, overhead included";
        let mut rates = metric(
            encoder,
            MetricType::Gauge,
            "link_carried_bytes_per_second",
            None,
            help,
        )?;
        for (labels, link) in links() {
            rates.gauge(&labels, link.recent_bps / 8.0)?;
        }
        Ok(())
    }

    fn encode_classes(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let links = &self.0.links;
        let classes = || {
            let all = links
                .iter()
                .flat_map(|link| link.classes.iter().map(move |it| (link, it)));
            all.map(|(link, class)| (of(link, class), class))
        };
        for (name, help, value) in OF_CLASSES {
            let mut metric = metric(encoder, MetricType::Counter, name, None, help)?;
            for (labels, class) in classes() {
                metric.count(&labels, value(class))?;
            }
        }
        for ((name, help, value), unit) in GAUGES_OF_CLASSES {
            let mut metric = metric(encoder, MetricType::Gauge, name, unit.as_ref(), help)?;
            for (labels, class) in classes() {
                if let Some(value) = value(class) {
                    metric.gauge(&labels, value)?;
                }
            }
        }
        let help = "Packets that were dropped: where the queue was full, by queue management or to \
                    make room, or as they arrived under overload";
        let mut dropped = metric(
            encoder,
            MetricType::Counter,
            "class_drops_by_reason",
            None,
            help,
        )?;
        for (labels, class) in classes() {
            let reasons = [
                ("full", class.dropped),
                ("managed", class.discarded),
                ("early", class.early),
            ];
            for (reason, count) in reasons {
                let mut labels = labels.clone();
                labels.push(("reason", reason));
                dropped.count(&labels, count)?;
            }
        }
        let help = "Time from interface to interface of the packets that left";
        let unit = Some(&Unit::Seconds);
        let mut sojourn = metric(encoder, MetricType::Histogram, "class_sojourn", unit, help)?;
        for link in links {
            for (class, delays) in link.classes.iter().zip(&link.delays) {
                // Classes below hold the packets.
                if class.terms.kind != "inner" {
                    sojourn.delays(&of(link, class), delays)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use fairlane_config::Site;
    use fairlane_config::class_report::ClassTerms;
    use fairlane_core::Count;
    use fairlane_core::tree::ClassStats;

    use super::*;

    const SITE: &str = "[[link]]\nname = \"up\"\nrate = \"20mbit\"\n\
        [[link.class]]\nname = \"voice\"\nrate = \"2mbit\"\n\
        [[link.class]]\nname = \"odd \\\"one\\\"\"\n\
        [[link.filter]]\nclass = \"voice\"\ndscp = 46\n";

    pub(crate) fn report() -> Report {
        let site = Site::parse(SITE, "site").unwrap();
        let link = &site.links[0];
        let stats = ClassStats {
            sent: Count {
                packets: 3,
                bytes: 4_500,
            },
            ..ClassStats::default()
        };
        let classes: Vec<_> = ClassTerms::of(link)
            .iter()
            .map(|terms| ClassReport::counted(terms, &stats, Count::default(), 2.0, 9_000))
            .collect();
        let link = LinkReport {
            name: Arc::from("up"),
            to: Arc::from("wan0"),
            algorithm: "qfq".to_owned(),
            rate_bps: 20_000_000,
            rate: link.rate,
            overhead: 24,
            longest_frame: 1_514,
            carried_bps: 36_000.0,
            utilisation: 0.0018,
            recent_bps: 36_000.0,
            shaped: true,
            passed_frames: 0,
            passed_bytes: 0,
            received_frames: 6,
            oversized: 0,
            malformed: 0,
            unmatched: 3,
            transmitted: 6,
            queued_packets: 0,
            delays: vec![Delays::default(); classes.len()],
            classes,
        };
        Report {
            seconds: 2.0,
            links: vec![link],
            ..Report::default()
        }
    }

    #[test]
    fn every_class_has_its_counts_once_and_the_text_ends_as_it_must() {
        let text = metrics(&report());
        assert!(text.ends_with("# EOF\n"), "{text}");
        for line in [
            "fairlane_class_bytes_total{link=\"up\",class=\"voice\"} 4500",
            "fairlane_class_packets_total{link=\"up\",class=\"voice\"} 3",
            "fairlane_class_drops_total{link=\"up\",class=\"voice\"} 0",
            "fairlane_class_marks_total{link=\"up\",class=\"voice\"} 0",
            "fairlane_class_overlimits_total{link=\"up\",class=\"voice\"} 0",
            "fairlane_class_bound_violations_total{link=\"up\",class=\"voice\"} 0",
            "fairlane_class_guaranteed_bytes_per_second{link=\"up\",class=\"voice\"} 250000.0",
            "fairlane_class_sojourn_seconds_count{link=\"up\",class=\"voice\"} 0",
            "fairlane_link_unmatched_packets_total{link=\"up\"} 3",
            "fairlane_link_shaped{link=\"up\"} 1.0",
            "fairlane_link_passed_packets_total{link=\"up\"} 0",
        ] {
            let found = text.lines().filter(|&other| other == line).count();
            assert_eq!(found, 1, "{line} in {text}");
        }
        // A bound for each class that has one.
        let bounds = text
            .lines()
            .filter(|line| line.starts_with("fairlane_class_delay_bound_seconds{"));
        assert_eq!(bounds.count(), 3, "{text}");
        assert!(text.contains("class=\"odd \\\"one\\\"\""), "{text}");
        // No series twice, and each of a metric that was introduced.
        let mut series: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let before = series.len();
        series.sort_unstable();
        series.dedup_by_key(|line| line.rsplit_once(' ').unwrap().0);
        assert_eq!(series.len(), before);
    }

    #[test]
    fn in_the_older_format_a_counter_is_introduced_by_the_name_of_its_series() {
        let text = plain(&metrics(&report()));
        let introduced: BTreeSet<&str> = (text.lines())
            .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
            .map(|(name, _)| name)
            .collect();
        for line in text.lines().filter(|line| !line.starts_with("# ")) {
            let name = line.split_once(['{', ' ']).unwrap().0;
            let of_histogram = ["_bucket", "_sum", "_count"];
            let family = of_histogram.iter().find_map(|part| name.strip_suffix(part));
            assert!(
                introduced.contains(name) || introduced.contains(family.unwrap_or("")),
                "{name} in {introduced:?}"
            );
        }
        assert!(
            text.contains("# TYPE fairlane_class_bytes_total counter\n"),
            "{text}"
        );
        assert!(
            text.contains("# TYPE fairlane_class_sojourn_seconds histogram\n"),
            "{text}"
        );
        assert!(
            !text.contains("# UNIT") && !text.contains("# EOF"),
            "{text}"
        );
    }

    /// Each name of ours in a text.
    fn names(text: &str) -> BTreeSet<&str> {
        let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
        let words = text.split(|c| !is_part(c));
        words.filter(|word| word.starts_with("fairlane_")).collect()
    }

    #[test]
    fn what_the_dashboard_asks_for_is_there() {
        let mut report = report();
        report.interfaces = ["lan0", "wan0"].map(interface).into();
        let text = metrics(&report);
        let there = names(&text);
        let dashboard = include_str!("../../../examples/grafana/fairlane.json");
        let dashboard: serde_json::Value = serde_json::from_str(dashboard).unwrap();
        let queries = dashboard.to_string();
        let asked = names(&queries);
        assert!(asked.len() > 12, "{asked:?}");
        for name in asked {
            assert!(there.contains(name), "{name} of {there:?}");
        }
    }

    fn interface(name: &str) -> InterfaceReport {
        InterfaceReport {
            name: Arc::from(name),
            ..InterfaceReport::default()
        }
    }
}
