//! The Prometheus format with native histograms: length-delimited messages `io.prometheus.client.MetricFamily`. Of
//! protocol buffers it uses variable-length integers, doubles and nested messages.

use fairlane_daemon::Delays;

use super::Family;
use super::buckets::{Buckets, Native, SCHEMA, ZERO};
use super::families::{Labels, MetricType, Source, Value};

/// Field numbers of Prometheus' `metrics.proto`.
mod field {
    pub(super) mod family {
        pub(in super::super) const NAME: u32 = 1;
        pub(in super::super) const HELP: u32 = 2;
        pub(in super::super) const KIND: u32 = 3;
        pub(in super::super) const METRIC: u32 = 4;
    }
    pub(super) mod metric {
        pub(in super::super) const LABEL: u32 = 1;
        pub(in super::super) const GAUGE: u32 = 2;
        pub(in super::super) const COUNTER: u32 = 3;
        pub(in super::super) const HISTOGRAM: u32 = 7;
    }
    pub(super) mod label {
        pub(in super::super) const NAME: u32 = 1;
        pub(in super::super) const VALUE: u32 = 2;
    }
    /// In a counter and in a gauge.
    pub(super) const VALUE: u32 = 1;
    pub(super) mod histogram {
        pub(in super::super) const COUNT: u32 = 1;
        pub(in super::super) const SUM: u32 = 2;
        pub(in super::super) const BUCKET: u32 = 3;
        pub(in super::super) const SCHEMA: u32 = 5;
        pub(in super::super) const ZERO_THRESHOLD: u32 = 6;
        pub(in super::super) const ZERO_COUNT: u32 = 7;
        pub(in super::super) const SPAN: u32 = 12;
        pub(in super::super) const DELTA: u32 = 13;
    }
    pub(super) mod bucket {
        pub(in super::super) const COUNT: u32 = 1;
        pub(in super::super) const END: u32 = 2;
    }
    pub(super) mod span {
        pub(in super::super) const OFFSET: u32 = 1;
        pub(in super::super) const LENGTH: u32 = 2;
    }
}

/// Begins the message of a metric; its values follow as the last part. The length comes first, so each value is written
/// twice, the first time to `scratch`.
pub(super) fn write_head(
    out: &mut Vec<u8>,
    scratch: &mut Vec<u8>,
    family: &Family,
    source: Source<'_>,
) {
    let mut length = 0;
    for place in 0..family.things(source.report) {
        family.values(source, place, &mut |labels, told| {
            scratch.clear();
            value(scratch, labels, told);
            length += scratch.len();
        });
    }
    scratch.clear();
    let (suffix, kind) = match family.metric_type() {
        MetricType::Counter => ("_total", 0),
        MetricType::Gauge => ("", 1),
        MetricType::Histogram => ("", 4),
    };
    nested(scratch, field::family::NAME, |name| {
        for part in [family.prefix(), family.name, suffix] {
            name.extend_from_slice(part.as_bytes());
        }
    });
    text(scratch, field::family::HELP, family.help);
    unsigned(scratch, field::family::KIND, kind);
    varint(out, (scratch.len() + length) as u64);
    out.extend_from_slice(scratch);
}

/// Writes one value with its labels.
pub(super) fn value(out: &mut Vec<u8>, labels: &Labels<'_>, value: Value<'_>) {
    nested(out, field::family::METRIC, |out| {
        for (name, value) in labels {
            nested(out, field::metric::LABEL, |out| {
                text(out, field::label::NAME, name);
                text(out, field::label::VALUE, value);
            });
        }
        match value {
            Value::Count(count) => nested(out, field::metric::COUNTER, |out| {
                double(out, field::VALUE, count as f64);
            }),
            Value::Seconds(seconds) => nested(out, field::metric::COUNTER, |out| {
                double(out, field::VALUE, seconds);
            }),
            Value::Gauge(gauge) => nested(out, field::metric::GAUGE, |out| {
                double(out, field::VALUE, gauge);
            }),
            Value::Delays(delays) => {
                nested(out, field::metric::HISTOGRAM, |out| histogram(out, delays));
            }
        }
    });
}

fn histogram(out: &mut Vec<u8>, delays: &Delays) {
    let buckets = Buckets::of(delays);
    unsigned(out, field::histogram::COUNT, buckets.count);
    double(out, field::histogram::SUM, buckets.sum);
    for (end, count) in buckets.classic() {
        nested(out, field::histogram::BUCKET, |out| {
            unsigned(out, field::bucket::COUNT, count);
            double(out, field::bucket::END, end);
        });
    }
    let native = Native::of(delays);
    signed(out, field::histogram::SCHEMA, SCHEMA.into());
    double(out, field::histogram::ZERO_THRESHOLD, ZERO);
    unsigned(out, field::histogram::ZERO_COUNT, native.zeros);
    // Each run of consecutive buckets is a span. The offset of the first is relative to bucket 0, those of the others
    // to the end of the previous span.
    let mut end = 0;
    for run in native
        .others
        .chunk_by(|(one, _), (next, _)| one + 1 == *next)
    {
        nested(out, field::histogram::SPAN, |out| {
            signed(out, field::span::OFFSET, (run[0].0 - end).into());
            unsigned(out, field::span::LENGTH, run.len() as u64);
        });
        end = run[0].0 + run.len() as i32;
    }
    // Counts are encoded as differences from the previous bucket.
    if !native.others.is_empty() {
        nested(out, field::histogram::DELTA, |out| {
            let mut last = 0;
            for &(_, count) in &native.others {
                varint(out, zigzag(count as i64 - last));
                last = count as i64;
            }
        });
    }
}

/// Writes a number in groups of seven bits, least significant first.
fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Maps signed numbers so that those near zero are short.
fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

fn unsigned(out: &mut Vec<u8>, field: u32, number: u64) {
    varint(out, u64::from(field << 3));
    varint(out, number);
}

fn signed(out: &mut Vec<u8>, field: u32, number: i64) {
    unsigned(out, field, zigzag(number));
}

fn double(out: &mut Vec<u8>, field: u32, number: f64) {
    varint(out, u64::from(field << 3 | 1));
    out.extend_from_slice(&number.to_le_bytes());
}

fn text(out: &mut Vec<u8>, field: u32, text: &str) {
    nested(out, field, |out| out.extend_from_slice(text.as_bytes()));
}

/// Writes a nested message or a text: its length, then its content.
fn nested(out: &mut Vec<u8>, field: u32, make: impl FnOnce(&mut Vec<u8>)) {
    varint(out, u64::from(field << 3 | 2));
    // Most are shorter than 128 bytes, so their length takes one byte.
    let begin = out.len() + 1;
    out.push(0);
    make(out);
    let mut length = (out.len() - begin) as u64;
    if length < 0x80 {
        out[begin - 1] = length as u8;
        return;
    }
    out[begin - 1] = length as u8 | 0x80;
    length >>= 7;
    let mut at = begin;
    while length >= 0x80 {
        out.insert(at, length as u8 | 0x80);
        length >>= 7;
        at += 1;
    }
    out.insert(at, length as u8);
}
