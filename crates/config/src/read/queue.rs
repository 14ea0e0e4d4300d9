//! Queues: limits, queue management, and the scheduling algorithm among several.

use fairlane_core::aqm::{
    AqmConfig, AqmError, CodelConfig, CodelParameters, Measure, Probability, RedConfig,
    RedParameters, red as red_limits,
};
use fairlane_core::room::Room;
use fairlane_core::{Length, Limits, Nanos};

use super::above::Above;
use super::words::{unknown, word};
use crate::algorithms;
use crate::diagnostic::Report;
use crate::file;
use crate::site::Queue;
use crate::units::{Size, Time};
use crate::written::{At, Scalar, Text};
use fairlane_core::sched::Algorithm;

pub(super) const DEFAULT_ALGORITHM: Algorithm = Algorithm::Qfq;

/// Default packet limit of a queue.
const DEFAULT_PACKETS: u32 = 1000;
pub(super) const MOST: u32 = Limits::NONE.packets;

/// Returns the algorithm with this name; `beside` are further names that are allowed.
fn algorithm(text: &Text, beside: &[&str], report: &mut Report) -> Option<Algorithm> {
    let found = algorithms::named(text.value());
    if found.is_none() {
        let names: Vec<&str> = algorithms::all().into_iter().map(Algorithm::name).collect();
        let known = [&names, beside].concat();
        report.error(&text.span(), unknown("algorithm", text.value(), &known));
    }
    found
}

/// Reads an algorithm and its quantum; [`DEFAULT_ALGORITHM`] without a name.
pub(super) fn algorithm_of(
    name: Option<&Text>,
    beside: &[&str],
    quantum: Option<&Text>,
    report: &mut Report,
) -> Option<Algorithm> {
    let found = match name {
        Some(name) => algorithm(name, beside, report)?,
        None => DEFAULT_ALGORITHM,
    };
    match quantum {
        Some(quantum) => algorithms::with_quantum(found, quantum, report),
        None => Some(found),
    }
}

/// Reads a size that holds at least the longest packet, and is at most `most`.
pub(super) fn at_least(
    text: &Text,
    key: &str,
    longest: Length,
    most: u64,
    report: &mut Report,
) -> Option<u64> {
    let size: Size = text.read(key, report)?;
    let least = u64::from(longest.get());
    if size.0 < least {
        report.error(
            &text.span(),
            format!(
                "{key} '{}': less than the longest packet, {longest}",
                text.value()
            ),
        );
        return None;
    }
    if size.0 > most {
        report.error(
            &text.span(),
            format!("{key} '{}': it is at most {}", text.value(), Size(most)),
        );
        return None;
    }
    Some(size.0)
}

/// Returns the queue of a class, or of a flow, without settings. Bytes are limited too: however many short packets a
/// reservation adds to the limit, long ones wait no longer than the default number of them.
pub(super) fn plain_queue(above: Above, longest: Length) -> Queue {
    Queue {
        limits: Limits {
            packets: DEFAULT_PACKETS,
            bytes: DEFAULT_PACKETS.saturating_mul(longest.get()).min(MOST),
        },
        room: Room::NONE,
        aqm: plain(default_management(above), longest),
    }
}

/// Returns CoDel, so that a queue that TCP fills stays short. Algorithms that follow every packet are references for
/// comparison, and WF2Q among them cannot lose the head of a queue; CBQ has what ALTQ had.
fn default_management(above: Above) -> Management {
    match above {
        Above::Node(algorithm) if !algorithm.follows_packets() => Management::Codel,
        _ => Management::TailDrop,
    }
}

/// Reads the queue of a class, or of each of its flows, under this algorithm.
pub(super) fn queue(
    class: &file::Class,
    above: Above,
    longest: Length,
    report: &mut Report,
) -> Option<Queue> {
    let plain = plain_queue(above, longest);
    let limit = class.limit.as_deref().map(At::value);
    let packets = match limit.and_then(|limit| limit.packets.as_ref()) {
        Some(packets) => packets.within("limit packets", 1..i64::from(MOST) + 1, report),
        None => Some(plain.limits.packets),
    };
    let bytes = match (limit, limit.and_then(|limit| limit.bytes.as_ref())) {
        (_, Some(bytes)) => at_least(bytes, "limit bytes", longest, MOST.into(), report),
        (Some(_), None) => Some(MOST.into()),
        (None, None) => Some(plain.limits.bytes.into()),
    };
    let aqm = match &class.queue {
        Some(queue) => management(queue, longest, report),
        None => Some(plain.aqm),
    };
    Some(Queue {
        limits: Limits {
            packets: packets?,
            bytes: bytes? as u32,
        },
        aqm: aqm?,
        ..plain
    })
}

#[derive(Clone, Copy, PartialEq)]
enum Management {
    TailDrop,
    Red,
    Codel,
}

const MANAGEMENTS: [(&str, Management); 3] = [
    ("tail-drop", Management::TailDrop),
    ("red", Management::Red),
    ("codel", Management::Codel),
];

fn management(at: &At<file::Queue>, longest: Length, report: &mut Report) -> Option<AqmConfig> {
    let table = match at.value() {
        file::Queue::Table(table) => table,
        file::Queue::Kind(name) => {
            return match MANAGEMENTS.iter().find(|(kind, _)| kind == name) {
                Some(&(_, kind)) => Some(plain(kind, longest)),
                None => {
                    let known = MANAGEMENTS.map(|(name, _)| name);
                    report.error(&at.span(), unknown("queue", name, &known));
                    None
                }
            };
        }
    };
    let kind = word(&table.kind, "queue", &MANAGEMENTS, report)?;
    let mut sound = true;
    let of_codel = [
        ("target", table.target.as_ref().map(At::span)),
        ("interval", table.interval.as_ref().map(At::span)),
    ];
    let of_red = [
        ("min", table.min.as_ref().map(At::span)),
        ("max", table.max.as_ref().map(At::span)),
        ("max-p", table.max_p.as_ref().map(At::span)),
        ("weight", table.weight.as_ref().map(At::span)),
        ("gentle", table.gentle.as_ref().map(At::span)),
    ];
    let of_both = [("ecn", table.ecn.as_ref().map(At::span))];
    for (keys, fits) in [
        (&of_codel[..], kind == Management::Codel),
        (&of_red, kind == Management::Red),
        (&of_both, kind != Management::TailDrop),
    ] {
        for (key, place) in keys {
            if let (Some(place), false) = (place, fits) {
                report.error(
                    place,
                    format!("{key}: a queue of kind '{}' has none", table.kind.value()),
                );
                sound = false;
            }
        }
    }
    if !sound {
        return None;
    }
    match kind {
        Management::TailDrop => Some(AqmConfig::TailDrop),
        Management::Codel => codel(at, table, longest, report),
        Management::Red => red(at, table, report),
    }
}

/// Returns the configuration with default parameters, which are valid, and ECN if possible.
fn plain(kind: Management, longest: Length) -> AqmConfig {
    match kind {
        Management::TailDrop => AqmConfig::TailDrop,
        Management::Red => {
            RedConfig::new(red_defaults()).map_or(AqmConfig::TailDrop, AqmConfig::Red)
        }
        Management::Codel => {
            CodelConfig::new(codel_defaults(longest)).map_or(AqmConfig::TailDrop, AqmConfig::Codel)
        }
    }
}

fn red_defaults() -> RedParameters {
    RedParameters {
        ecn: true,
        ..RedParameters::default()
    }
}

fn codel_defaults(longest: Length) -> CodelParameters {
    CodelParameters {
        max_packet: longest,
        ecn: true,
        ..CodelParameters::default()
    }
}

fn codel(
    at: &At<file::Queue>,
    table: &file::QueueTable,
    longest: Length,
    report: &mut Report,
) -> Option<AqmConfig> {
    let defaults = codel_defaults(longest);
    let mut time = |text: &Option<Text>, key: &str, default: Nanos| match text {
        Some(text) => text.read::<Time>(key, report).map(|time| time.0),
        None => Some(default),
    };
    let target = time(&table.target, "target", defaults.target);
    let interval = time(&table.interval, "interval", defaults.interval);
    let (target, interval) = (target?, interval?);
    let ecn = table.ecn.as_ref().is_none_or(|ecn| *ecn.value());
    let parameters = CodelParameters {
        target,
        interval,
        ecn,
        ..defaults
    };
    match CodelConfig::new(parameters) {
        Ok(config) => Some(AqmConfig::Codel(config)),
        Err(AqmError::Target { .. }) => {
            let place = table.target.as_ref().or(table.interval.as_ref());
            report.error(
                &place.map_or(at.span(), At::span),
                format!(
                    "target '{}': it lies above 0 and below the interval, {}",
                    Time(target),
                    Time(interval)
                ),
            );
            None
        }
        // Only an interval out of range is left.
        Err(_) => {
            let place = table.interval.as_ref();
            report.error(
                &place.map_or(at.span(), At::span),
                format!("interval '{}': it lies between 10us and 4s", Time(interval)),
            );
            None
        }
    }
}

fn red(at: &At<file::Queue>, table: &file::QueueTable, report: &mut Report) -> Option<AqmConfig> {
    let defaults = red_defaults();
    let thresholds = match (&table.min, &table.max) {
        (None, None) => Some((defaults.measure, defaults.min, defaults.max)),
        (Some(min), Some(max)) => thresholds(min, max, report),
        (Some(one), None) | (None, Some(one)) => {
            report.error(
                &one.span(),
                "queue: 'min' and 'max' are given together, in one unit",
            );
            None
        }
    };
    let probability = match &table.max_p {
        Some(at) => probability(at, report),
        None => Some(defaults.max_p),
    };
    let weight = match &table.weight {
        Some(weight) => weight.within(
            "weight",
            1..i64::from(red_limits::MAX_WEIGHT_SHIFT) + 1,
            report,
        ),
        None => Some(defaults.weight_shift),
    };
    let (measure, min, max) = thresholds?;
    let parameters = RedParameters {
        measure,
        min,
        max,
        max_p: probability?,
        weight_shift: weight?,
        gentle: table.gentle.as_ref().is_none_or(|gentle| *gentle.value()),
        ecn: table.ecn.as_ref().is_none_or(|ecn| *ecn.value()),
        ..defaults
    };
    match RedConfig::new(parameters) {
        Ok(config) => Some(AqmConfig::Red(config)),
        Err(reason) => {
            let place = match reason {
                AqmError::NoMinimum => table.min.as_ref().map(At::span),
                AqmError::NoProbability => table.max_p.as_ref().map(At::span),
                _ => table.max.as_ref().map(At::span),
            };
            report.error(&place.unwrap_or(at.span()), format!("queue: {reason}"));
            None
        }
    }
}

fn probability(at: &At<f64>, report: &mut Report) -> Option<Probability> {
    let value = *at.value();
    let ppm = (value * 1e6).round();
    if (0.0..=1e6).contains(&ppm)
        && let Ok(probability) = Probability::from_ppm(ppm as u32)
    {
        return Some(probability);
    }
    report.error(
        &at.span(),
        format!("max-p {value}: it lies between 0 and 1"),
    );
    None
}

/// Thresholds that are both in packets, or both in bytes.
fn thresholds(
    min: &At<Scalar>,
    max: &At<Scalar>,
    report: &mut Report,
) -> Option<(Measure, u32, u32)> {
    let mut read = |at: &At<Scalar>, key: &str| {
        let (measure, value) = match at.value() {
            Scalar::Number(packets) => (Measure::Packets, u32::try_from(*packets).ok()),
            Scalar::Text(text) => match text.parse::<Size>() {
                Ok(size) => (Measure::Bytes, u32::try_from(size.0).ok()),
                Err(reason) => {
                    report.error(&at.span(), format!("{key} '{text}': {reason}"));
                    return None;
                }
            },
        };
        if value.is_none() {
            report.error(
                &at.span(),
                format!(
                    "{key} '{}': it lies between 1 and {}",
                    at.value(),
                    red_limits::MAX_THRESHOLD
                ),
            );
        }
        Some((measure, value?))
    };
    let (low, high) = (read(min, "min"), read(max, "max"));
    let ((measure, low), (other, high)) = (low?, high?);
    if measure != other {
        report.error(
            &max.span(),
            "queue: 'min' and 'max' are both packets, as in 30, or both bytes, as in \"30kb\"",
        );
        return None;
    }
    Some((measure, low, high))
}
