//! The state of a site for Prometheus, and whoever reads the same: as text, or with native histograms.
//!
//! Labels name links, classes and interfaces: what the configuration names. Flows that come and go
//! by themselves have no labels, so that the number of series is known beforehand.

use bytes::Bytes;
use fairlane_site::Report;

use crate::reading::PIECE;

mod buckets;
mod families;
mod process;
mod protobuf;
mod text;

use families::{FAMILIES, Family, Source};
use process::Process;
use text::Dialect;

/// The start of all names, but of those of the process.
const PREFIX: &str = "fairlane_";

/// What a state may be told as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' text format, version 0.0.4: what every program of its reads.
    Plain,
    /// OpenMetrics, version 1.0.0.
    OpenMetrics,
    /// Messages of protocol buffers, each with its length: with native histograms beside the classic
    /// buckets.
    Protobuf,
}

impl Format {
    /// What whoever sends such a header `Accept` likes best of these; plain text where he names none.
    #[must_use]
    pub fn accepted(accept: &str) -> Format {
        let mut best = (0.0, Format::Plain);
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or("");
            let parameter = |name: &str| {
                let all = parts.clone().filter_map(|part| part.split_once('='));
                let mut found = all.filter(|(other, _)| other.eq_ignore_ascii_case(name));
                found.next().map(|(_, value)| value.trim_matches('"'))
            };
            let of_metrics = || {
                parameter("proto") == Some("io.prometheus.client.MetricFamily")
                    && parameter("encoding") == Some("delimited")
            };
            let format = match kind.to_ascii_lowercase().as_str() {
                "text/plain" => Format::Plain,
                "application/openmetrics-text" => Format::OpenMetrics,
                "application/vnd.google.protobuf" if of_metrics() => Format::Protobuf,
                _ => continue,
            };
            let liked = parameter("q").map_or(1.0, |q| q.parse().unwrap_or(0.0));
            if liked > best.0 {
                best = (liked, format);
            }
        }
        best.1
    }

    /// The media type.
    #[must_use]
    pub const fn media_type(self) -> &'static str {
        match self {
            Format::Plain => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; \
                 encoding=delimited"
            }
        }
    }

    fn dialect(self) -> Option<Dialect> {
        match self {
            Format::Plain => Some(Dialect::Plain),
            Format::OpenMetrics => Some(Dialect::OpenMetrics),
            Format::Protobuf => None,
        }
    }
}

/// How far the metrics of a state are told: made in pieces of some 64 KiB as they are taken, so that however
/// many classes there are, no more of it is in memory. O(classes) altogether.
#[derive(Debug)]
pub(crate) struct Exposition {
    format: Format,
    /// The process at the start of the answer.
    process: Process,
    /// The metric that is told next, and of which of its things.
    family: usize,
    place: usize,
    /// For what is written twice, or several times.
    scratch: Vec<u8>,
}

impl Exposition {
    /// From the beginning.
    pub(crate) fn new(format: Format) -> Exposition {
        Exposition {
            format,
            process: Process::now(),
            family: 0,
            place: 0,
            scratch: Vec::new(),
        }
    }

    /// The next piece of what is told of a state, always the same one; `None` at the end.
    pub(crate) fn piece(&mut self, report: &Report) -> Option<Bytes> {
        let mut piece = Vec::with_capacity(PIECE + PIECE / 16);
        while piece.len() < PIECE
            && let Some(family) = FAMILIES.get(self.family)
        {
            self.step(&mut piece, family, report);
        }
        (!piece.is_empty()).then(|| piece.into())
    }

    /// Whether all is told.
    pub(crate) fn is_told(&self) -> bool {
        self.family == FAMILIES.len()
    }

    /// Tells of one thing, after what introduces its metric if it is the first one.
    fn step(&mut self, out: &mut Vec<u8>, family: &Family, report: &Report) {
        let Exposition {
            format,
            process,
            place,
            scratch,
            ..
        } = self;
        let source = Source { report, process };
        let dialect = format.dialect();
        if *place == 0 {
            match dialect {
                Some(dialect) => text::write_head(out, family, dialect),
                None => protobuf::write_head(out, scratch, family, source),
            }
        }
        if *place < family.things(report) {
            family.values(source, *place, &mut |labels, value| match dialect {
                Some(_) => text::value(out, scratch, family, labels, value),
                None => protobuf::value(out, labels, value),
            });
            *place += 1;
        }
        if *place >= family.things(report) {
            (self.family, self.place) = (self.family + 1, 0);
            if let (true, Some(dialect)) = (self.is_told(), dialect) {
                text::end(out, dialect);
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
