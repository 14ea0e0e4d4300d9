//! The text formats of Prometheus: OpenMetrics 1.0.0, and the older one, version 0.0.4.

use super::Family;
use super::buckets::Buckets;
use super::families::{Labels, MetricType, Value};

/// One of the two formats. In the older one the header of a counter has the same name as its series, and there is no
/// unit and no end marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    OpenMetrics,
    Plain,
}

const TOTAL: &str = "_total";

/// Writes the header of a metric.
pub(super) fn write_head(out: &mut Vec<u8>, family: &Family, dialect: Dialect) {
    let kind = family.metric_type();
    let suffix = match (dialect, kind) {
        (Dialect::Plain, MetricType::Counter) => TOTAL,
        _ => "",
    };
    let kind = match kind {
        MetricType::Counter => "counter",
        MetricType::Gauge => "gauge",
        MetricType::Histogram => "histogram",
    };
    let unit = family.unit().filter(|_| dialect == Dialect::OpenMetrics);
    for (what, told) in [
        ("HELP", Some(family.help)),
        ("TYPE", Some(kind)),
        ("UNIT", unit),
    ] {
        if let Some(told) = told {
            for part in [
                "# ",
                what,
                " ",
                family.prefix(),
                family.name,
                suffix,
                " ",
                told,
                "\n",
            ] {
                push(out, part);
            }
        }
    }
}

/// Writes the end marker, if the format has one.
pub(super) fn end(out: &mut Vec<u8>, dialect: Dialect) {
    if dialect == Dialect::OpenMetrics {
        push(out, "# EOF\n");
    }
}

/// Writes the lines of one value. The labels are formatted once, into `scratch`.
pub(super) fn value(
    out: &mut Vec<u8>,
    scratch: &mut Vec<u8>,
    family: &Family,
    labels: &Labels<'_>,
    value: Value<'_>,
) {
    scratch.clear();
    for (at, (name, value)) in labels.iter().enumerate() {
        if at > 0 {
            scratch.push(b',');
        }
        push(scratch, name);
        push(scratch, "=\"");
        escaped(scratch, value);
        scratch.push(b'"');
    }
    let mut series = Series {
        out,
        prefix: family.prefix(),
        name: family.name,
        labels: scratch,
    };
    match value {
        Value::Count(count) => {
            series.name_and_labels(TOTAL);
            series.count(count);
        }
        Value::Seconds(seconds) => {
            series.name_and_labels(TOTAL);
            series.float(seconds);
        }
        Value::Gauge(gauge) => {
            series.name_and_labels("");
            series.float(gauge);
        }
        Value::Delays(delays) => {
            let buckets = Buckets::of(delays);
            for (end, count) in buckets.classic() {
                series.bucket(end);
                series.count(count);
            }
            series.name_and_labels("_sum");
            series.float(buckets.sum);
            series.name_and_labels("_count");
            series.count(buckets.count);
        }
    }
}

/// Lines with the same labels.
struct Series<'a> {
    out: &'a mut Vec<u8>,
    prefix: &'a str,
    name: &'a str,
    labels: &'a [u8],
}

impl Series<'_> {
    fn name(&mut self, suffix: &str) {
        push(self.out, self.prefix);
        push(self.out, self.name);
        push(self.out, suffix);
    }

    fn name_and_labels(&mut self, suffix: &str) {
        self.name(suffix);
        if !self.labels.is_empty() {
            self.out.push(b'{');
            self.out.extend_from_slice(self.labels);
            self.out.push(b'}');
        }
        self.out.push(b' ');
    }

    fn bucket(&mut self, end: f64) {
        self.name("_bucket");
        self.out.push(b'{');
        self.out.extend_from_slice(self.labels);
        push(self.out, ",le=\"");
        if end.is_finite() {
            push(self.out, zmij::Buffer::new().format_finite(end));
        } else {
            push(self.out, "+Inf");
        }
        push(self.out, "\"} ");
    }

    fn count(&mut self, count: u64) {
        push(self.out, itoa::Buffer::new().format(count));
        self.out.push(b'\n');
    }

    fn float(&mut self, value: f64) {
        push(self.out, zmij::Buffer::new().format(value));
        self.out.push(b'\n');
    }
}

fn push(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
}

fn escaped(out: &mut Vec<u8>, text: &str) {
    for &byte in text.as_bytes() {
        match byte {
            b'\\' => push(out, "\\\\"),
            b'"' => push(out, "\\\""),
            b'\n' => push(out, "\\n"),
            _ => out.push(byte),
        }
    }
}
