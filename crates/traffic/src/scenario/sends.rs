//! Packet sources of a scenario and their timing, the same for a link's classes and for a network.

use fairlane_config::{At, Report, Text, Time};
use fairlane_core::{Length, Nanos, Rate};
use fairlane_sim::{Lengths, Picos, SourcePlan, Tcp, Traffic};

use super::written;
use crate::links::no_such;

/// Most sources of one scenario.
const MOST_SOURCES: usize = 1_000_000;
/// Packets that a backlogged source keeps in the queue, unless the scenario says otherwise.
const WINDOW: u32 = 32;
const MOST_RTT: Nanos = Nanos::from_millis(100_000);
/// The most packets that a closed-loop source has in flight, unless the scenario says otherwise: a common receive
/// window.
const TCP_WINDOW: u32 = 4096;
/// A backlogged source sends another packet if none of its packets leaves for this long.
const PATIENCE: Picos = Picos::from_millis(200);
/// The most sending spans per packet: each is drawn, and Ctrl-C is not checked meanwhile.
const MOST_SPANS: u128 = 10_000;
/// Shape of the spans of an on-off source: their variance is infinite, as measured of real ones.
const SHAPE: f64 = 1.5;

/// The packets of a source, or of several alike, and their timing.
pub(crate) struct Sends {
    pub name: String,
    pub count: u32,
    traffic: Traffic,
    tcp: Option<Tcp>,
    lengths: Lengths,
    /// From the first to the last.
    active: (Picos, Picos),
    /// Time over which the beginnings of sources alike are spread.
    apart: Picos,
}

impl Sends {
    /// Counts these in the sources of a scenario, and reports the first that are too many.
    pub(super) fn count_in(
        &self,
        total: &mut usize,
        at: &At<written::Source>,
        report: &mut Report,
    ) {
        let before = *total;
        *total += self.count as usize;
        if *total > MOST_SOURCES && before <= MOST_SOURCES {
            let sentence = format!("these make more than {MOST_SOURCES} sources");
            report.error(&at.span(), sentence);
        }
    }

    /// Its longest packet.
    pub(super) fn longest(&self) -> Length {
        self.lengths.longest()
    }

    /// Returns the plan of the source with this number among those alike, with packets for `to`.
    pub(super) fn plan<L>(&self, number: u32, to: L) -> SourcePlan<L> {
        let later = Picos(self.apart.0 * u128::from(number) / u128::from(self.count));
        SourcePlan {
            active: vec![self.active.0 + later..self.active.1],
            patience: Some(PATIENCE),
            tcp: self.tcp,
            ..SourcePlan::new(to, self.traffic.clone(), self.lengths.clone())
        }
    }
}

/// Returns a time, if present; an invalid one is reported.
pub(super) fn time(key: &str, text: &Option<Text>, report: &mut Report) -> Option<Nanos> {
    let time: Time = text.as_ref()?.read(key, report)?;
    Some(time.0)
}

/// A source as read from the file, with its context.
pub(super) struct Form<'a> {
    pub source: &'a written::Source,
    /// Overhead in bytes per packet.
    pub overhead: u32,
    /// A packet with that, unless the scenario says otherwise, and the longest.
    pub usual: Length,
    pub longest: Length,
    /// Round-trip time without transmission, if given by wires and not by the source.
    pub round: Option<Picos>,
}

impl Form<'_> {
    /// Reads the source with this number in the file; reports errors in it.
    pub(super) fn read(&self, number: usize, report: &mut Report) -> Option<Sends> {
        let source = self.source;
        let before = report.errors();
        let count = match &source.count {
            Some(count) => count.within("count", 1..MOST_SOURCES as i64 + 1, report),
            None => Some(1),
        };
        let lengths = self.lengths(report);
        let traffic = self.traffic(report);
        if let Some((Traffic::ParetoOnOff { mean_on, peak, .. }, _)) = &traffic
            && let Some(Lengths::Fixed(longest) | Lengths::Uniform(_, longest)) = lengths
            && let Some(text) = &source.on
            && takes(longest, *peak).0 > mean_on.0 * MOST_SPANS
        {
            let sentence = format!(
                "on '{}': a packet of {longest} at {peak} takes more than {MOST_SPANS} times as long",
                text.value()
            );
            report.error(&text.span(), sentence);
        }
        let start = time("start", &source.start, report).unwrap_or(Nanos::ZERO);
        let stop = time("stop", &source.stop, report);
        if let (Some(stop), Some(text)) = (stop, &source.stop)
            && stop <= start
        {
            let sentence = format!("stop '{}': it is not after the start", text.value());
            report.error(&text.span(), sentence);
        }
        if report.errors() > before {
            return None;
        }
        let ((traffic, tcp), lengths) = (traffic?, lengths?);
        let name = match (&source.name, &source.class) {
            (Some(name), _) | (None, Some(name)) => name.value().clone(),
            (None, None) => format!("source {number}"),
        };
        Some(Sends {
            name,
            count: count?,
            apart: match tcp {
                Some(tcp) => self.round.unwrap_or(tcp.rtt),
                None => apart(&traffic, &lengths),
            },
            traffic,
            tcp,
            lengths,
            active: (start.into(), stop.map_or(Picos::MAX, Picos::from)),
        })
    }

    fn lengths(&self, report: &mut Report) -> Option<Lengths> {
        let overhead = self.overhead;
        let Some(at) = &self.source.length else {
            return Some(Lengths::Fixed(self.usual));
        };
        let text = at.value().to_string();
        let (first, last) = text.split_once('-').unwrap_or((&text, &text));
        let most = self.longest.get() - overhead;
        let read = |text: &str| {
            let bytes = text.trim().parse::<u32>().ok()?;
            (1..=most)
                .contains(&bytes)
                .then(|| Length::new(bytes + overhead))?
        };
        match (read(first), read(last)) {
            (Some(first), Some(last)) if first == last => Some(Lengths::Fixed(first)),
            (Some(first), Some(last)) if first < last => Some(Lengths::Uniform(first, last)),
            _ => {
                report.error(
                    &at.span(),
                    format!(
                        "length '{text}': it is a frame's bytes from 1 to {most}, or a range as in \"64-{most}\""
                    ),
                );
                None
            }
        }
    }

    /// Returns its timing, and whether it is a closed loop.
    fn traffic(&self, report: &mut Report) -> Option<(Traffic, Option<Tcp>)> {
        const WORDS: [&str; 5] = ["cbr", "poisson", "on-off", "backlogged", "tcp"];
        let source = self.source;
        let word = source.traffic.value().as_str();
        let (rated, spans, windowed) = match word {
            "cbr" | "poisson" => (true, false, false),
            "on-off" => (true, true, false),
            "backlogged" | "tcp" => (false, false, true),
            _ => {
                let sentence = no_such("traffic", word, &WORDS);
                report.error(&source.traffic.span(), sentence);
                return None;
            }
        };
        let before = report.errors();
        for (key, text, wanted) in [
            ("rate", &source.rate, rated),
            ("on", &source.on, spans),
            ("off", &source.off, spans),
            ("rtt", &source.rtt, word == "tcp" && self.round.is_none()),
        ] {
            match text {
                None if wanted => report.error(
                    &source.traffic.span(),
                    format!("traffic '{word}': the key '{key}' is missing"),
                ),
                Some(text) if !wanted => {
                    report.error(&text.span(), format!("{key}: traffic '{word}' has none"));
                }
                _ => (),
            }
        }
        let window = match &source.window {
            Some(at) if !windowed => {
                report.error(&at.span(), format!("window: traffic '{word}' has none"));
                None
            }
            Some(at) => at.within("window", 1..1_000_001, report),
            None if word == "tcp" => Some(TCP_WINDOW),
            None => Some(WINDOW),
        };
        // The wires' part is added by the network.
        let by_wires = (word == "tcp" && self.round.is_some()).then_some(Nanos::ZERO);
        let rtt = time("rtt", &source.rtt, report).or(by_wires);
        if let (Some(rtt), Some(text)) = (rtt, &source.rtt)
            && !(Nanos(1)..=MOST_RTT).contains(&rtt)
        {
            let sentence = format!("rtt '{}': it is above 0 and at most 100s", text.value());
            report.error(&text.span(), sentence);
        }
        let rate: Option<Rate> = source
            .rate
            .as_ref()
            .and_then(|rate| rate.read("rate", report));
        let on = time("on", &source.on, report);
        let off = time("off", &source.off, report);
        if let (Some(Nanos(0)), Some(text)) = (on, &source.on) {
            report.error(&text.span(), "on: it is above 0");
        }
        if report.errors() > before {
            return None;
        }
        let tcp = rtt.zip(window).map(|(rtt, window)| Tcp {
            rtt: rtt.into(),
            window,
        });
        let traffic = match word {
            "cbr" => Traffic::Cbr(rate?),
            "poisson" => Traffic::Poisson(rate?),
            "on-off" => Traffic::ParetoOnOff {
                alpha: SHAPE,
                mean_on: on?.into(),
                mean_off: off?.into(),
                peak: rate?,
            },
            _ => Traffic::Greedy(window?),
        };
        Some((traffic, tcp))
    }
}

/// Returns the transmission time of a packet at a rate.
fn takes(len: Length, rate: Rate) -> Picos {
    let picos = u128::from(len.get()) * 8 * u128::from(fairlane_sim::PICOS_PER_SECOND);
    Picos(picos / u128::from(rate.bps()))
}

/// The time over which the beginnings of sources alike are spread, so that they do not send as
/// one: that between two packets, or two spans of sending.
fn apart(traffic: &Traffic, lengths: &Lengths) -> Picos {
    match (traffic, lengths) {
        (Traffic::Cbr(rate), Lengths::Fixed(len) | Lengths::Uniform(len, _)) => takes(*len, *rate),
        (
            Traffic::ParetoOnOff {
                mean_on, mean_off, ..
            },
            _,
        ) => *mean_on + *mean_off,
        _ => Picos::ZERO,
    }
}
