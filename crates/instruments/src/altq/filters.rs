//! `altq-filters`: what a packet costs against the number of filters.

use std::fmt::{self, Write};
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use etherparse::{EtherType, Ethernet2Header, IpNumber, Ipv4Header, UdpHeader};
use fairlane_classify::{
    Classifier, Layer, Match, Origin, PortRange, Prefix, Protocol, Rule, parse,
};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::experiment::{Experiment, Files, Findings, Rows, Verdict, digits, files, median};
use super::super::lab::Lab;
use super::bed::{self, Bed, Middle, Way};
use crate::plot::{Axis, Chart, Curve};

/// Fig. 7.
pub(crate) struct Filters;

/// The most that a packet may cost with the most filters, in nanoseconds.
const MOST_NS: f64 = 60.0;

/// The most that it may cost in times of what it costs with the fewest.
const GROWTH: f64 = 4.0;

/// Packets that are classified in turn: more than a few, so that a search finds other memory
/// each time, and few enough to stay in the processor's cache themselves.
const PACKETS: usize = 1_024;

/// How often a round trip is measured within a measurement. The least counts: which core runs
/// whom makes more difference than filters.
const PASSES: u32 = 5;

/// A link that is never the bottleneck.
const UNLIMITED: &str = "100gbit";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    /// Filters in the classifier by itself.
    filters: Vec<usize>,
    /// Filters, and classes of a filter each, in the daemon.
    daemon: Vec<usize>,
    way: Way,
    /// Bytes of a request and of a reply.
    round_trip: [usize; 2],
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Paper {
    machine: String,
    most: usize,
    /// What the text says of the figure.
    wildcard_filters: String,
    fixed_filters: String,
    classes: String,
}

/// What filters ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    /// No destination address: prefixes of sources of several lengths, ports and ranges.
    Wildcard,
    /// One destination address and port, which the paper hashes.
    Fixed,
}

/// Who searches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Search {
    Ours,
    /// One filter after the other, as the paper's wildcard list.
    Linear,
}

/// What there are many of in the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Many {
    Filters,
    Classes,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Setting {
    Alone {
        kind: Kind,
        search: Search,
        filters: usize,
    },
    Daemon {
        many: Many,
        number: usize,
    },
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::Alone {
                kind,
                search,
                filters,
            } => write!(f, "{filters} filters, {kind:?}, {search:?}"),
            Setting::Daemon { many, number } => write!(f, "daemon, {number} {many:?}"),
        }
    }
}

/// Nanoseconds a packet, parsing included, over the number of filters.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Alone {
    kind: Kind,
    search: Search,
    filters: Vec<usize>,
    ns: Vec<f64>,
}

/// The least median round trip through the daemon.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Through {
    many: Many,
    number: Vec<usize>,
    round_trip_us: Vec<f64>,
}

impl Experiment for Filters {
    fn files(&self) -> Files {
        files!("altq-filters")
    }

    fn measurements(&self) -> Result<usize> {
        let scenario = self.files().scenario::<Parameters>()?;
        Ok(settings(&scenario.parameters).len() * scenario.rounds)
    }

    fn measure(&self, lab: &Lab) -> Result<Findings> {
        bed::check()?;
        let scenario = self.files().scenario::<Parameters>()?;
        let parameters = &scenario.parameters;
        let paper: Paper = self.files().paper()?;
        let settings = settings(parameters);
        let figures =
            lab.rounds(
                &settings,
                scenario.rounds,
                scenario.seed,
                |setting| match *setting {
                    Setting::Alone {
                        kind,
                        search,
                        filters,
                    } => alone(lab, kind, search, filters, scenario.seed),
                    Setting::Daemon { many, number } => {
                        through(lab, parameters, many, number, scenario.seed)
                    }
                },
            )?;
        let figure = |setting: Setting| {
            let place = settings.iter().position(|known| *known == setting);
            place.map_or(f64::NAN, |place| median(figures[place].iter().copied()))
        };
        let mut ours = Vec::new();
        for (kind, search) in KINDS {
            let filters = parameters.filters.iter();
            let ns = filters.map(|&filters| {
                figure(Setting::Alone {
                    kind,
                    search,
                    filters,
                })
            });
            ours.push(Alone {
                kind,
                search,
                filters: parameters.filters.clone(),
                ns: ns.collect(),
            });
        }
        let daemon = [Many::Filters, Many::Classes].map(|many| {
            let numbers = parameters.daemon.iter();
            let us = numbers.map(|&number| figure(Setting::Daemon { many, number }));
            Through {
                many,
                number: parameters.daemon.clone(),
                round_trip_us: us.collect(),
            }
        });
        Ok(findings(&paper, &ours, &daemon))
    }
}

const KINDS: [(Kind, Search); 4] = [
    (Kind::Wildcard, Search::Ours),
    (Kind::Fixed, Search::Ours),
    (Kind::Wildcard, Search::Linear),
    (Kind::Fixed, Search::Linear),
];

fn settings(parameters: &Parameters) -> Vec<Setting> {
    let mut settings = Vec::new();
    for (kind, search) in KINDS {
        let filters = parameters.filters.iter();
        settings.extend(filters.map(|&filters| Setting::Alone {
            kind,
            search,
            filters,
        }));
    }
    for many in [Many::Filters, Many::Classes] {
        let numbers = parameters.daemon.iter();
        settings.extend(numbers.map(|&number| Setting::Daemon { many, number }));
    }
    settings
}

/// So many filters, none of which matches what hosts in 10.0.0.0/8 say to each other.
fn rules(kind: Kind, filters: usize, seed: u64) -> Result<Vec<Rule>> {
    let mut random = SmallRng::seed_from_u64(seed);
    let rule = |target| {
        let mut matches = Match {
            protocol: Some(Protocol(if random.random() { 6 } else { 17 })),
            ..Match::default()
        };
        let address = Ipv4Addr::from_bits(0xac10_0000 | random.random_range(0..1 << 20));
        match kind {
            Kind::Fixed => {
                matches.destination = Some(Prefix::new(address.into(), 32)?);
                matches.destination_port = Some(ports(random.random_range(1..u16::MAX), 0)?);
            }
            Kind::Wildcard => {
                let len = [16, 20, 24, 32][random.random_range(0..4)];
                let network = address.to_bits() & (u32::MAX << (32 - u32::from(len)));
                matches.source = Some(Prefix::new(Ipv4Addr::from_bits(network).into(), len)?);
                let more = [0, 0, 100][random.random_range(0..3)];
                matches.destination_port = Some(ports(random.random_range(1..60_000), more)?);
            }
        }
        Ok(Rule {
            priority: 0,
            matches,
            target,
        })
    };
    (0..filters as u32).map(rule).collect()
}

fn ports(first: u16, more: u16) -> Result<PortRange> {
    let text = format!("{first}-{}", first + more);
    text.parse().with_context(|| format!("ports {text}"))
}

/// Frames between hosts in 10.0.0.0/8.
fn frames(seed: u64) -> Result<Vec<Vec<u8>>> {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut frame = || -> Result<Vec<u8>> {
        let mut address = || Ipv4Addr::from_bits(0x0a00_0000 | random.random_range(0..1 << 24));
        let (source, destination) = (address().octets(), address().octets());
        let payload = [0; 64];
        let (source_port, destination_port) = (random.random(), random.random());
        let udp = UdpHeader::without_ipv4_checksum(source_port, destination_port, payload.len())?;
        let behind = (UdpHeader::LEN + payload.len()) as u16;
        let ip = Ipv4Header::new(behind, 64, IpNumber::UDP, source, destination)?;
        let ethernet = Ethernet2Header {
            source: [2; 6],
            destination: [4; 6],
            ether_type: EtherType::IPV4,
        };
        let headers = [&ethernet.to_bytes()[..], &ip.to_bytes(), &udp.to_bytes()];
        Ok([&headers.concat()[..], &payload].concat())
    };
    (0..PACKETS).map(|_| frame()).collect()
}

/// Nanoseconds to parse and classify a packet.
fn alone(lab: &Lab, kind: Kind, search: Search, filters: usize, seed: u64) -> Result<f64> {
    let rules = rules(kind, filters, seed)?;
    let frames = frames(seed)?;
    match search {
        Search::Ours => {
            let classifier = Classifier::new(rules);
            time(lab, &frames, |headers, origin| {
                classifier.classify(headers, origin).map(|hit| hit.target)
            })
        }
        Search::Linear => time(lab, &frames, |headers, origin| {
            let mut rules = rules.iter();
            let hit = rules.find(|rule| rule.matches.matches(headers, origin));
            hit.map(|rule| rule.target)
        }),
    }
}

fn time(
    lab: &Lab,
    frames: &[Vec<u8>],
    classify: impl Fn(&fairlane_classify::Headers, &Origin) -> Option<u32>,
) -> Result<f64> {
    let origin = Origin::default();
    let begun = Instant::now();
    let mut packets = 0u64;
    // The clock is read once a dozen packets: seldom enough not to count, often enough to end
    // in time where each takes long.
    for frames in frames.chunks(16).cycle() {
        for frame in frames {
            let headers = parse(black_box(frame), Layer::Ethernet)?;
            black_box(classify(&headers, &origin));
        }
        packets += frames.len() as u64;
        if begun.elapsed() >= lab.measurement {
            break;
        }
        lab.check()?;
    }
    Ok(begun.elapsed().as_nanos() as f64 / packets as f64)
}

/// The least median round trip through the daemon, in microseconds.
fn through(
    lab: &Lab,
    parameters: &Parameters,
    many: Many,
    number: usize,
    seed: u64,
) -> Result<f64> {
    let links = links(many, number, seed)?;
    let (way, links) = (parameters.way, &*links);
    let mut bed = Bed::new(lab, 1, &Middle::Daemon { way, links })?;
    let [request, reply] = parameters.round_trip;
    let pass = lab.measurement.max(Duration::from_millis(20)) / PASSES;
    let mut least = f64::INFINITY;
    for _ in 0..PASSES {
        least = least.min(bed.round_trip_us(request, reply, pass)?);
    }
    bed.finish()?;
    Ok(least)
}

/// A link with so many filters for one class, or so many classes of a filter each, beside the
/// class of all that none of them matches.
fn links(many: Many, number: usize, seed: u64) -> Result<String> {
    let mut text = format!(
        "[[link]]\nname = \"up\"\nto = \"outside\"\nrate = \"{UNLIMITED}\"\n\
         overhead = \"ethernet\"\nalgorithm = \"qfq+\"\n\n\
         [[link.class]]\nname = \"rest\"\ndefault = true\n"
    );
    let classes = match many {
        Many::Filters => 1,
        Many::Classes => number,
    };
    for class in 0..classes {
        let _ = write!(text, "\n[[link.class]]\nname = \"class-{class}\"\n");
    }
    for (place, rule) in rules(Kind::Wildcard, number, seed)?.iter().enumerate() {
        let Match {
            source,
            destination_port,
            protocol,
            ..
        } = rule.matches;
        let (source, ports) = source
            .zip(destination_port)
            .context("a rule of this kind")?;
        let protocol = protocol.context("a rule of this kind")?;
        let class = if classes > 1 { place } else { 0 };
        let _ = write!(
            text,
            "\n[[link.filter]]\nclass = \"class-{class}\"\nsource = \"{source}\"\n\
             destination-port = \"{ports}\"\nprotocol = \"{protocol}\"\n"
        );
    }
    Ok(text)
}

fn called(curve: &Alone) -> String {
    let search = match curve.search {
        Search::Ours => "ours",
        Search::Linear => "one after the other",
    };
    let kind = match curve.kind {
        Kind::Wildcard => "wildcard",
        Kind::Fixed => "fixed",
    };
    format!("{search}, {kind} filters")
}

fn findings(paper: &Paper, alone: &[Alone], through: &[Through]) -> Findings {
    let filters = alone.first().map_or(&[][..], |curve| &curve.filters);
    let mut rows: Vec<Vec<String>> = Vec::new();
    for curve in alone {
        let cells = curve.ns.iter().map(|ns| digits(*ns));
        rows.push(
            std::iter::once(format!("{}, ns", called(curve)))
                .chain(cells)
                .collect(),
        );
    }
    for curve in through {
        let what = match curve.many {
            Many::Filters => "filters",
            Many::Classes => "classes",
        };
        let cell = |filters: &usize| {
            let known = curve.number.iter().position(|known| known == filters);
            known.map_or("-".to_owned(), |place| digits(curve.round_trip_us[place]))
        };
        let name = format!("round trip with so many {what}, us");
        rows.push(
            std::iter::once(name)
                .chain(filters.iter().map(cell))
                .collect(),
        );
    }
    let points = |numbers: &[usize], ns: &mut dyn Iterator<Item = f64>| {
        let numbers = numbers.iter().map(|number| *number as f64);
        numbers.zip(ns).collect()
    };
    let mut curves: Vec<Curve> = (alone.iter().enumerate())
        .map(|(subject, curve)| {
            let points = points(&curve.filters, &mut curve.ns.iter().copied());
            Curve::ours(subject, &called(curve), points)
        })
        .collect();
    for (subject, curve) in (alone.len()..).zip(through) {
        let us = &mut curve.round_trip_us.iter().map(|us| us * 1e3);
        let name = format!("round trip, {:?}", curve.many).to_lowercase();
        curves.push(Curve::ours(subject, &name, points(&curve.number, us)));
    }
    Findings {
        ours: json!({ "alone": alone, "through_daemon": through }),
        papers: json!(paper),
        table: Rows {
            header: std::iter::once("filters:".to_owned())
                .chain(filters.iter().map(usize::to_string))
                .collect(),
            rows,
        },
        chart: Chart {
            x: Axis::log("filters (or classes)"),
            y: Axis::log("nanoseconds"),
            curves,
        },
        verdict: judge(alone),
        notes: vec![
            "Nanoseconds to parse and classify one of 1024 frames that match no filter. Fixed \
             filters have a destination address and port, wildcard filters a source prefix of \
             four lengths and ports or ranges. One after the other is how the paper's wildcard \
             list is walked; its fixed filters are hashed."
                .into(),
            "Round trips are UDP through the daemon and a link that is never the bottleneck, with \
             wildcard filters; classes have a filter each."
                .into(),
        ],
    }
}

fn judge(alone: &[Alone]) -> Verdict {
    let mut holds = !alone.is_empty();
    let mut found = Vec::new();
    for curve in alone {
        let (fewest, most) = match (curve.ns.first(), curve.ns.last()) {
            (Some(fewest), Some(most)) => (*fewest, *most),
            _ => (f64::NAN, f64::NAN),
        };
        let growth = most / fewest;
        if curve.search == Search::Ours {
            holds &= most <= MOST_NS && growth <= GROWTH;
        }
        let filters = curve.filters.last().unwrap_or(&0);
        found.push(format!(
            "{}: {} ns with {filters}, {} times as with the fewest",
            called(curve),
            digits(most),
            digits(growth)
        ));
    }
    Verdict {
        holds,
        criterion: format!(
            "ours takes at most {MOST_NS} ns with the most filters, and at most {GROWTH} times as \
             with the fewest"
        ),
        found: found.join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(search: Search, ns: &[f64]) -> Alone {
        Alone {
            kind: Kind::Wildcard,
            search,
            filters: vec![10, 100, 10_000],
            ns: ns.into(),
        }
    }

    #[test]
    fn the_claim_needs_a_search_that_hardly_grows() {
        let linear = curve(Search::Linear, &[20.0, 200.0, 20_000.0]);
        let holds = |ns: &[f64]| judge(&[curve(Search::Ours, ns), linear.clone()]).holds;
        assert!(holds(&[15.0, 30.0, 55.0]));
        assert!(!holds(&[15.0, 30.0, 65.0]), "too slow");
        assert!(!holds(&[10.0, 30.0, 50.0]), "grows");
        assert!(!judge(&[]).holds);
    }

    #[test]
    fn no_filter_matches_a_frame_and_both_searches_say_so() {
        for kind in [Kind::Wildcard, Kind::Fixed] {
            let rules = rules(kind, 300, 1).unwrap();
            assert_eq!(rules.len(), 300);
            let classifier = Classifier::new(rules.clone());
            for frame in frames(1).unwrap() {
                let headers = parse(&frame, Layer::Ethernet).unwrap();
                let origin = Origin::default();
                assert!(classifier.classify(&headers, &origin).is_none());
                assert!(
                    !rules
                        .iter()
                        .any(|rule| rule.matches.matches(&headers, &origin))
                );
            }
        }
    }

    #[test]
    fn the_table_has_all_curves_beside_what_the_paper_says() {
        let paper: Paper = Filters.files().paper().unwrap();
        let through = Through {
            many: Many::Classes,
            number: vec![100],
            round_trip_us: vec![50.0],
        };
        let alone = [curve(Search::Ours, &[1.0, 2.0, 3.0])];
        let findings = findings(&paper, &alone, &[through]);
        let Rows { header, rows } = &findings.table;
        assert!(rows.iter().all(|row| row.len() == header.len()));
        assert_eq!(rows[1][1..], ["-", "50.0", "-"]);
    }

    #[test]
    fn a_site_has_a_filter_for_each_and_classes_for_filters() {
        for (many, classes) in [(Many::Filters, 2), (Many::Classes, 51)] {
            let text = bed::site(Way::Packet, &links(many, 50, 1).unwrap());
            let site: toml::Table = text.parse().unwrap();
            let link = &site["link"].as_array().unwrap()[0];
            assert_eq!(link["filter"].as_array().unwrap().len(), 50);
            assert_eq!(link["class"].as_array().unwrap().len(), classes);
        }
    }
}
