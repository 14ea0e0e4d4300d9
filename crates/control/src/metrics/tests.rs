//! The metrics in each format.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairlane_config::class_report::{ClassReport, ClassTerms, DelayReport, SpanReport};
use fairlane_config::link_report::PipelineTerms;
use fairlane_config::{List, Site};
use fairlane_core::tree::ClassStats;
use fairlane_core::{Count, Nanos};
use fairlane_daemon::{ForwardingReport, InterfaceReport, LinkReport, PipelineReport};
use prost::Message;

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
    let terms = ClassTerms::of(link);
    let none = Count::default();
    let classes: List<_> = (0..terms.len())
        .map(|at| ClassReport::counted(terms.share(at), &stats, none, 2.0, 9_000))
        .collect();
    let link = LinkReport {
        name: Arc::from("up"),
        to: Arc::from("wan0"),
        algorithm: "qfq".to_owned(),
        rate_bps: 20_000_000,
        rate: link.rate,
        overhead: 24,
        longest_frame: 1_514,
        longest_mtu: None,
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
        opaque_frames: 0,
        opaque_protocol: None,
        transmitted: 6,
        queued_packets: 0,
        pipeline: PipelineReport {
            terms: PipelineTerms {
                device_bytes: 262_144,
                ..PipelineTerms::default()
            },
            waited_us: Some(250.0),
            arrival_us: Some(4_000.0),
            handed_us: Some(125.0),
            transmit_us: Some(750.0),
            device_most_bytes: 4_608,
            ..PipelineReport::default()
        },
        delays: vec![Arc::default(); classes.len()],
        classes,
    };
    Report {
        seconds: 2.0,
        links: vec![link],
        ..Report::default()
    }
}

fn pieces(report: &Report, format: Format) -> Vec<Bytes> {
    let mut exposition = Exposition::new(format);
    std::iter::from_fn(|| exposition.piece(report)).collect()
}

/// Returns the whole exposition.
fn made(report: &Report, format: Format) -> Vec<u8> {
    pieces(report, format).concat()
}

fn told(report: Report, format: Format) -> String {
    String::from_utf8(made(&report, format)).unwrap()
}

#[test]
fn every_class_has_its_counts_once_and_the_text_ends_as_it_must() {
    let text = told(report(), Format::OpenMetrics);
    assert!(text.ends_with("# EOF\n"), "{text}");
    for line in [
        "fairlane_class_bytes_total{link=\"up\",class=\"voice\",leaf=\"true\"} 4500",
        "fairlane_class_packets_total{link=\"up\",class=\"voice\",leaf=\"true\"} 3",
        "fairlane_class_drops_total{link=\"up\",class=\"voice\",leaf=\"true\",reason=\"full\"} 0",
        "fairlane_class_marks_total{link=\"up\",class=\"voice\",leaf=\"true\"} 0",
        "fairlane_class_overlimits_total{link=\"up\",class=\"voice\",leaf=\"true\"} 0",
        "fairlane_class_bound_violations_total{link=\"up\",class=\"voice\",leaf=\"true\"} 0",
        "fairlane_class_nonconforming_packets_total{link=\"up\",class=\"voice\",leaf=\"true\"} 0",
        "fairlane_class_guaranteed_bytes_per_second{link=\"up\",class=\"voice\",leaf=\"true\"} 250000.0",
        "fairlane_class_sojourn_seconds_count{link=\"up\",class=\"voice\",leaf=\"true\"} 0",
        "fairlane_link_unmatched_packets_total{link=\"up\"} 3",
        "fairlane_link_shaped{link=\"up\"} 1.0",
        "fairlane_link_passed_packets_total{link=\"up\"} 0",
        "fairlane_link_worker_wait_seconds{link=\"up\"} 0.00025",
        "fairlane_link_worker_wait_budget_seconds{link=\"up\"} 0.004",
        "fairlane_link_worker_wait_violations_total{link=\"up\"} 0",
        "fairlane_link_transmit_wait_seconds{link=\"up\"} 0.000125",
        "fairlane_link_transmit_wait_budget_seconds{link=\"up\"} 0.00075",
        "fairlane_link_transmit_queue_max_bytes{link=\"up\"} 4608.0",
        "fairlane_link_transmit_queue_budget_bytes{link=\"up\"} 262144.0",
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
    // No series occurs twice, and each belongs to a metric with a header.
    let mut series: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let before = series.len();
    series.sort_unstable();
    series.dedup_by_key(|line| line.rsplit_once(' ').unwrap().0);
    assert_eq!(series.len(), before);
}

#[test]
fn forwarding_metrics_omit_missing_measurements() {
    let mut report = report();
    report.forwarding = ForwardingReport {
        rounds: 7,
        scan_us: Some(SpanReport {
            mean: 2.5,
            max: 40.0,
        }),
        ..ForwardingReport::default()
    };
    let text = told(report, Format::Plain);
    let values = Series::of_text(&text).values;
    for (name, value) in [
        ("fairlane_rounds_total", 7.0),
        ("fairlane_scan_mean_seconds", 2.5e-6),
        ("fairlane_scan_max_seconds", 4e-5),
    ] {
        assert_eq!(values[name], value, "{text}");
    }
    assert!(!text.contains("\nfairlane_delta_a"), "{text}");
    assert!(!text.contains("\nfairlane_release_delay"), "{text}");
}

#[test]
fn the_process_has_the_metrics_of_client_libraries() {
    let series = Series::of_text(&told(report(), Format::Plain));
    let value = |name: &str| series.values[&format!("process_{name}")];
    let now = std::time::SystemTime::now();
    let now = now.duration_since(std::time::UNIX_EPOCH).unwrap();
    let age = now.as_secs_f64() - value("start_time_seconds");
    // The process start is known to 10 ms, the boot time to 1 s.
    assert!((-1.5..86_400.0).contains(&age), "{age}");
    assert!(value("cpu_seconds_total") < value("threads") * age.max(1.0) + 2.0);
    assert!(value("resident_memory_bytes") > 1e6);
    assert!(value("virtual_memory_bytes") > value("resident_memory_bytes"));
    // Standard input, output and error.
    assert!((3.0..=value("max_fds")).contains(&value("open_fds")));
    assert_eq!(series.families["process_cpu_seconds_total"].0, "counter");
}

#[test]
fn a_sum_over_leaves_counts_each_packet_once() {
    let site = "[[link]]\nname = \"up\"\nrate = \"20mbit\"\n[[link.class]]\nname = \"office\"\n\
        [[link.class]]\nname = \"mail\"\nparent = \"office\"\ndefault = true\n";
    let mut report = report();
    let site = Site::parse(site, "site").unwrap();
    let terms = ClassTerms::of(&site.links[0]);
    let link = &mut report.links[0];
    let stats = ClassStats {
        sent: Count {
            packets: 5,
            bytes: 500,
        },
        ..ClassStats::default()
    };
    let none = Count::default();
    let classes =
        (0..terms.len()).map(|at| ClassReport::counted(terms.share(at), &stats, none, 2.0, 9_000));
    link.classes = classes.collect();
    link.delays.resize(link.classes.len(), Arc::default());
    let text = told(report, Format::OpenMetrics);
    for (class, leaf) in [("office", "false"), ("mail", "true")] {
        let line = format!(
            "fairlane_class_packets_total{{link=\"up\",class=\"{class}\",leaf=\"{leaf}\"}} 5\n"
        );
        assert!(text.contains(&line), "{line} in {text}");
    }
    // Every metric of a class.
    for line in text.lines().filter(|line| line.contains("class=\"")) {
        assert!(line.contains("leaf=\""), "{line}");
    }
}

/// The rules of `promtool check metrics` for names (promlint of Prometheus 2.42).
#[test]
fn names_are_what_promtool_accepts() {
    let abbreviated = [
        "s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "tb", "pb", "m", "h", "d",
    ];
    let other_units = [
        "minutes",
        "hours",
        "days",
        "milliseconds",
        "microseconds",
        "nanoseconds",
        "bits",
        "kilobytes",
        "megabytes",
        "gigabytes",
        "percent",
    ];
    let types = ["counter", "gauge", "histogram", "summary", "untyped"];
    let mut report = delayed(&[Nanos::from_millis(1)]);
    report.interfaces = ["lan0"].map(interface).into();
    let families = Series::of_text(&told(report, Format::Plain)).families;
    assert_eq!(families.len(), FAMILIES.len());
    for (name, (kind, help)) in families {
        assert!(!help.is_empty(), "{name} has no help");
        assert_eq!(
            kind == "counter",
            name.ends_with("_total"),
            "{name} is a {kind}"
        );
        for suffix in ["_count", "_sum", "_bucket"] {
            assert!(!name.ends_with(suffix), "{name}");
        }
        assert!(
            name.chars().all(|c| c.is_ascii_lowercase() || c == '_'),
            "{name}"
        );
        for part in name.split('_') {
            for wrong in [&abbreviated[..], &other_units, &types] {
                assert!(!wrong.contains(&part), "{part} in {name}");
            }
        }
    }
}

#[test]
fn in_the_older_format_a_counter_is_introduced_by_the_name_of_its_series() {
    let text = told(report(), Format::Plain);
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

/// Returns each Fairlane name in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
    let words = text.split(|c| !is_part(c));
    words.filter(|word| word.starts_with("fairlane_")).collect()
}

#[test]
fn what_the_dashboard_asks_for_is_there() {
    let mut report = report();
    report.interfaces = ["lan0", "wan0"].map(interface).into();
    report.links[0].classes.make_mut(0).delay_us = Some(DelayReport::default());
    let text = told(report, Format::OpenMetrics);
    let there = names(&text);
    let dashboard = include_str!("../../../../examples/grafana/fairlane.json");
    let dashboard: serde_json::Value = serde_json::from_str(dashboard).unwrap();
    let alerts = include_str!("../../../../examples/prometheus/fairlane.rules.yml");
    let queries = dashboard.to_string() + alerts;
    let asked = names(&queries);
    assert!(asked.len() > 12, "{asked:?}");
    for name in asked {
        // Native histograms have the base name.
        let native = there.contains(format!("{name}_bucket").as_str());
        assert!(native || there.contains(name), "{name} of {there:?}");
    }
    let selected = selected(&queries);
    assert!(selected.len() > 12, "{selected:?}");
    for (name, labels) in selected {
        let of_name = |line: &&str| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with('{') || rest.starts_with("_bucket{"))
        };
        let series = text.lines().find(of_name);
        // Prometheus adds the instance.
        let has = |label: &&str| {
            *label == "instance" || series.is_some_and(|it| it.contains(&format!("{label}=\"")))
        };
        assert!(labels.iter().all(has), "{name} by {labels:?}: {series:?}");
    }
}

/// Returns each query of the dashboard.
fn queries(dashboard: &serde_json::Value) -> Vec<&str> {
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    targets
        .map(|target| target["expr"].as_str().unwrap())
        .collect()
}

#[test]
fn dashboard_selects_instances_and_both_kinds_of_histograms() {
    let dashboard = include_str!("../../../../examples/grafana/fairlane.json");
    let dashboard: serde_json::Value = serde_json::from_str(dashboard).unwrap();
    let queries = queries(&dashboard);
    assert!(queries.len() > 10, "{queries:?}");
    for query in queries {
        for selected in query.split("fairlane_").skip(1) {
            assert!(selected.contains("{instance=~\"$instance\""), "{query}");
        }
        // A query that groups or joins by labels includes the instance.
        for grouping in ["by (", "on (", "by(", "on("] {
            for labels in query.split(grouping).skip(1) {
                let labels = labels.split(')').next().unwrap();
                assert!(labels.contains("instance"), "{grouping}{labels} in {query}");
            }
        }
        let (native, classic) = ("sojourn_seconds{", "sojourn_seconds_bucket{");
        assert_eq!(query.contains(native), query.contains(classic), "{query}");
        assert_eq!(
            query.contains(native),
            query.contains(" or histogram_quantile(")
        );
    }
}

/// Returns each Fairlane name in a text that selects series, with its labels.
fn selected(text: &str) -> Vec<(&str, Vec<&str>)> {
    let pieces: Vec<&str> = text.split('{').collect();
    let pairs = pieces.windows(2).filter_map(|pair| {
        let is_other = |c: char| !c.is_ascii_lowercase() && c != '_';
        let name = pair[0].rsplit(is_other).next()?;
        let labels = pair[1].split('}').next()?.split(',');
        let labels = labels.filter_map(|label| Some(label.split_once('=')?.0));
        name.starts_with("fairlane_")
            .then(|| (name, labels.collect()))
    });
    pairs.collect()
}

fn interface(name: &str) -> InterfaceReport {
    InterfaceReport {
        name: Arc::from(name),
        ..InterfaceReport::default()
    }
}

/// Returns the state with these delays of its first class.
fn delayed(all: &[Nanos]) -> Report {
    let mut report = report();
    let delays = Arc::make_mut(&mut report.links[0].delays[0]);
    for &delay in all {
        delays.record(delay);
    }
    report
}

#[test]
fn what_is_made_is_never_in_memory_at_once_however_many_classes_there_are() {
    let mut report = report();
    let link = &mut report.links[0];
    let (class, delays) = (link.classes[0].clone(), link.delays[0].clone());
    link.classes = vec![class; 3_000].into();
    link.delays.resize(3_000, delays);
    for format in [Format::Plain, Format::OpenMetrics, Format::Protobuf] {
        let pieces = pieces(&report, format);
        assert!(pieces.len() > 20, "{format:?}: {}", pieces.len());
        let longest = pieces.iter().map(Bytes::len).max().unwrap();
        assert!(longest < PIECE + PIECE / 16, "{format:?}: {longest}");
    }
}

#[test]
fn accept_header_selects_the_preferred_format() {
    let protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
    for (accept, format) in [
        ("", Format::Plain),
        ("*/*", Format::Plain),
        ("application/json", Format::Plain),
        ("application/openmetrics-text", Format::OpenMetrics),
        (
            "text/plain;version=0.0.4, application/openmetrics-text;q=0.9",
            Format::Plain,
        ),
        (
            "text/plain; q=0.5, Application/OpenMetrics-Text; version=1.0.0; q=0.8",
            Format::OpenMetrics,
        ),
        (
            "application/openmetrics-text;q=0, text/plain;q=0.1",
            Format::Plain,
        ),
        ("application/openmetrics-text;q=no", Format::Plain),
        ("application/vnd.google.protobuf", Format::Plain),
        (protobuf, Format::Protobuf),
        (
            &format!("{protobuf};q=0.3,application/openmetrics-text;version=1.0.0;q=0.6"),
            Format::OpenMetrics,
        ),
        // The `Accept` header of Prometheus 2.42 with native histograms enabled.
        (
            &format!(
                "{protobuf},application/openmetrics-text;version=1.0.0;q=0.8,text/plain;q=0.5,*/*;q=0.1"
            ),
            Format::Protobuf,
        ),
    ] {
        assert_eq!(Format::accepted(accept), format, "{accept}");
    }
}

/// The messages of Prometheus' `metrics.proto`, as far as they are used.
mod proto {
    #[derive(prost::Message)]
    pub(super) struct MetricFamily {
        #[prost(string, tag = "1")]
        pub(super) name: String,
        #[prost(string, tag = "2")]
        pub(super) help: String,
        /// 0 a counter, 1 a gauge, 4 a histogram.
        #[prost(int32, tag = "3")]
        pub(super) kind: i32,
        #[prost(message, repeated, tag = "4")]
        pub(super) metric: Vec<Metric>,
    }

    #[derive(prost::Message)]
    pub(super) struct Metric {
        #[prost(message, repeated, tag = "1")]
        pub(super) label: Vec<Label>,
        #[prost(message, optional, tag = "2")]
        pub(super) gauge: Option<Number>,
        #[prost(message, optional, tag = "3")]
        pub(super) counter: Option<Number>,
        #[prost(message, optional, tag = "7")]
        pub(super) histogram: Option<Histogram>,
    }

    #[derive(prost::Message)]
    pub(super) struct Label {
        #[prost(string, tag = "1")]
        pub(super) name: String,
        #[prost(string, tag = "2")]
        pub(super) value: String,
    }

    #[derive(prost::Message)]
    pub(super) struct Number {
        #[prost(double, optional, tag = "1")]
        pub(super) value: Option<f64>,
    }

    #[derive(prost::Message)]
    pub(super) struct Histogram {
        #[prost(uint64, tag = "1")]
        pub(super) count: u64,
        #[prost(double, tag = "2")]
        pub(super) sum: f64,
        #[prost(message, repeated, tag = "3")]
        pub(super) bucket: Vec<Bucket>,
        #[prost(sint32, tag = "5")]
        pub(super) schema: i32,
        #[prost(double, tag = "6")]
        pub(super) zero_threshold: f64,
        #[prost(uint64, tag = "7")]
        pub(super) zero_count: u64,
        #[prost(message, repeated, tag = "12")]
        pub(super) span: Vec<Span>,
        #[prost(sint64, repeated, tag = "13")]
        pub(super) delta: Vec<i64>,
    }

    #[derive(prost::Message)]
    pub(super) struct Bucket {
        #[prost(uint64, tag = "1")]
        pub(super) count: u64,
        #[prost(double, tag = "2")]
        pub(super) end: f64,
    }

    #[derive(prost::Message)]
    pub(super) struct Span {
        #[prost(sint32, tag = "1")]
        pub(super) offset: i32,
        #[prost(uint32, tag = "2")]
        pub(super) length: u32,
    }
}

fn decoded(report: Report) -> Vec<proto::MetricFamily> {
    let made = made(&report, Format::Protobuf);
    let mut rest = &made[..];
    let mut all = Vec::new();
    while !rest.is_empty() {
        all.push(proto::MetricFamily::decode_length_delimited(&mut rest).unwrap());
    }
    all
}

/// Each series as in the text format with its value, and each metric's type and help.
#[derive(Debug, Default, PartialEq)]
struct Series {
    values: BTreeMap<String, f64>,
    families: BTreeMap<String, (String, String)>,
}

impl Series {
    fn of_text(text: &str) -> Series {
        let mut series = Series::default();
        for line in text.lines() {
            if let Some((what, (name, said))) = (line.strip_prefix("# "))
                .and_then(|line| line.split_once(' '))
                .and_then(|(what, line)| Some((what, line.split_once(' ')?)))
            {
                let family = series.families.entry(name.to_owned()).or_default();
                let place = if what == "TYPE" {
                    &mut family.0
                } else {
                    &mut family.1
                };
                said.clone_into(place);
            } else {
                let (name, value) = line.rsplit_once(' ').unwrap();
                let twice = series
                    .values
                    .insert(name.to_owned(), value.parse().unwrap());
                assert_eq!(twice, None, "{name}");
            }
        }
        series
    }

    fn add(&mut self, name: &str, suffix: &str, labels: &[String], value: f64) {
        let labels = match labels.join(",") {
            none if none.is_empty() => none,
            labels => format!("{{{labels}}}"),
        };
        let twice = self.values.insert(format!("{name}{suffix}{labels}"), value);
        assert_eq!(twice, None, "{name}{suffix}{labels}");
    }

    fn of_messages(families: &[proto::MetricFamily]) -> Series {
        let mut series = Series::default();
        for family in families {
            let kind = ["counter", "gauge", "", "", "histogram"][family.kind as usize];
            let said = (kind.to_owned(), family.help.clone());
            series.families.insert(family.name.clone(), said);
            for metric in &family.metric {
                let labels = metric.label.iter();
                let mut labels: Vec<String> = labels
                    .map(|label| format!("{}={:?}", label.name, label.value))
                    .collect();
                let number = metric.gauge.as_ref().or(metric.counter.as_ref());
                match (number, &metric.histogram) {
                    (Some(number), None) => {
                        series.add(&family.name, "", &labels, number.value.unwrap());
                    }
                    (None, Some(histogram)) => {
                        series.add(&family.name, "_sum", &labels, histogram.sum);
                        series.add(&family.name, "_count", &labels, histogram.count as f64);
                        for bucket in &histogram.bucket {
                            let end = format!("{:?}", bucket.end).replace("inf", "+Inf");
                            labels.push(format!("le=\"{end}\""));
                            series.add(&family.name, "_bucket", &labels, bucket.count as f64);
                            labels.pop();
                        }
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        series
    }
}

#[test]
fn the_messages_say_what_the_text_says() {
    let report = || {
        let mut report =
            delayed(&[70, 250, 999, 4_000, 900_000, 7_000_000].map(Nanos::from_micros));
        report.interfaces = ["lan0", "wan0"].map(interface).into();
        report.interfaces[1].lost = 300;
        report.links[0].classes.make_mut(1).drops.managed = 1 << 40;
        report
    };
    let text = Series::of_text(&told(report(), Format::Plain));
    let messages = Series::of_messages(&decoded(report()));
    assert_eq!(messages.families, text.families);
    // Process statistics change between two answers.
    let lasting = |series: &Series| {
        let mut values = series.values.clone();
        values.retain(|name, _| !name.starts_with("process_"));
        values
    };
    assert_eq!(lasting(&messages), lasting(&text));
    assert!(messages.values.keys().eq(text.values.keys()));
    let bucket = |end| {
        let labels = format!("{{link=\"up\",class=\"voice\",leaf=\"true\",le=\"{end}\"}}");
        text.values[&format!("fairlane_class_sojourn_seconds_bucket{labels}")]
    };
    let within = [
        "0.0001", "0.0003", "0.001", "0.003", "0.01", "1.0", "3.0", "+Inf",
    ]
    .map(bucket);
    assert_eq!(within, [1.0, 2.0, 3.0, 3.0, 4.0, 5.0, 5.0, 6.0]);
}

/// Returns the nonempty native buckets of a histogram: lower bound, upper bound, count.
fn native(histogram: &proto::Histogram) -> Vec<(f64, f64, u64)> {
    let growth = 2_f64.powf(2_f64.powi(-histogram.schema));
    let mut buckets = vec![(0.0, histogram.zero_threshold, histogram.zero_count)];
    let (mut at, mut count, mut deltas) = (0, 0, histogram.delta.iter());
    for span in &histogram.span {
        at += span.offset;
        for _ in 0..span.length {
            count += deltas.next().unwrap();
            buckets.push((growth.powi(at - 1), growth.powi(at), count as u64));
            at += 1;
        }
    }
    assert_eq!(deltas.next(), None);
    buckets.retain(|&(.., count)| count > 0);
    buckets
}

#[test]
fn each_delay_is_in_the_native_bucket_around_it() {
    let mut delays = vec![Nanos(0), Nanos(900), Nanos(1_023)];
    delays.extend((0..400).map(|step| Nanos((1_024.0 * 1.045_f64.powi(step)) as u64)));
    delays.extend([Nanos::from_millis(20); 7]);
    let families = decoded(delayed(&delays));
    let of_delays = families.last().unwrap();
    assert_eq!(of_delays.name, "fairlane_class_sojourn_seconds");
    let histogram = of_delays.metric[0].histogram.as_ref().unwrap();
    let buckets = native(histogram);
    assert_eq!(histogram.zero_count, 3);
    let all: u64 = buckets.iter().map(|&(.., count)| count).sum();
    assert_eq!((all, all), (histogram.count, delays.len() as u64));
    delays.sort_unstable();
    let mut delays = delays.into_iter();
    for (lower, upper, count) in buckets {
        for delay in delays.by_ref().take(count as usize) {
            let delay = delay.0 as f64 / 1e9;
            // Allows for the rounding of recorded delays.
            let most = (delay * (1.0 + 1.0 / 63.0)).max(delay + 1.1e-6);
            assert!(lower < most && delay <= upper, "{lower} {delay} {upper}");
        }
    }
    // A class without packets also has a native histogram, which its threshold marks as such.
    let empty = of_delays.metric[1].histogram.as_ref().unwrap();
    assert_eq!(
        (empty.count, empty.schema, empty.span.len()),
        (0, histogram.schema, 0)
    );
    assert!(empty.zero_threshold > 0.0);
}
