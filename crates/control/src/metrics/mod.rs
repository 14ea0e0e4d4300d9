//! The state of a site for Prometheus and compatible scrapers: as text, or with native histograms.
//!
//! Labels name links, classes and interfaces, all of them from the configuration. Dynamic flows have no labels, so the
//! number of series is known in advance.

use bytes::Bytes;
use fairlane_daemon::Report;

use crate::reading::PIECE;

mod buckets;
mod families;
mod process;
mod protobuf;
mod text;

use families::{FAMILIES, Family, Source};
use process::Process;
use text::Dialect;

/// The prefix of all names except those of the process.
const PREFIX: &str = "fairlane_";

/// An exposition format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' text format, version 0.0.4, which every scraper reads.
    Plain,
    /// OpenMetrics, version 1.0.0.
    OpenMetrics,
    /// Length-delimited protocol buffer messages: native histograms in addition to the classic buckets.
    Protobuf,
}

impl Format {
    /// Returns the format preferred by a client that sends this `Accept` header; plain text if it names none of them.
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

    /// Returns the media type.
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

/// The position in the exposition of a state. It is produced in pieces of about 64 KiB as they are read, so memory does
/// not depend on the number of classes. O(classes) altogether.
#[derive(Debug)]
pub(crate) struct Exposition {
    format: Format,
    /// The process as measured at the start of the answer.
    process: Process,
    /// The next metric, and the next entity of it.
    family: usize,
    place: usize,
    /// Buffer for text that is written more than once.
    scratch: Vec<u8>,
}

impl Exposition {
    /// Returns an exposition at its beginning.
    pub(crate) fn new(format: Format) -> Exposition {
        Exposition {
            format,
            process: Process::now(),
            family: 0,
            place: 0,
            scratch: Vec::new(),
        }
    }

    /// Returns the next piece of a state's exposition; `None` at the end. `report` must be the same on each call.
    pub(crate) fn piece(&mut self, report: &Report) -> Option<Bytes> {
        let mut piece = Vec::with_capacity(PIECE + PIECE / 16);
        while piece.len() < PIECE
            && let Some(family) = FAMILIES.get(self.family)
        {
            self.step(&mut piece, family, report);
        }
        (!piece.is_empty()).then(|| piece.into())
    }

    /// Returns true if everything has been written.
    pub(crate) fn is_told(&self) -> bool {
        self.family == FAMILIES.len()
    }

    /// Writes the values of one entity, preceded by the metric's header if it is the first.
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
