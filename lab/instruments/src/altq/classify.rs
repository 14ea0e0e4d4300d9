//! The cost of finding the first filter that a packet matches.

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use etherparse::{EtherType, Ethernet2Header, IpNumber, Ipv4Header, UdpHeader};
use fairlane_classify::{Classifier, Origin, Rule};
use fairlane_cli::arguments::seconds;
use fairlane_config::Site;
use fairlane_core::random::splitmix64;
use fairlane_wire::{Headers, Layer, parse};
use serde::Serialize;

use crate::bed::check;

/// Packets that are classified in turn: more than a few, so that a search finds other memory
/// each time, and few enough to stay in the processor's cache themselves.
const PACKETS: usize = 1_024;

/// Options of `classify`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The site with the filters; its interfaces need not exist
    #[arg(long, value_name = "FILE")]
    site: PathBuf,
    /// Search algorithm
    #[arg(long, value_name = "S", value_enum, default_value = "ours")]
    search: Search,
    /// Seconds to search
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds)]
    seconds: f64,
    /// Of the packets, which are UDP between hosts in 10.0.0.0/8
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// The search algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Search {
    /// The classifier
    Ours,
    /// One filter after the other, as the paper's wildcard list
    OneByOne,
}

/// The results.
#[derive(Debug, Serialize)]
pub(super) struct Measured {
    filters: usize,
    /// Of the packets, those that a filter matches.
    matched_packets: usize,
    distinct_packets: usize,
    /// To parse and classify one.
    ns_per_packet: f64,
}

/// Searches for so long.
pub(super) fn measure(options: &Options, stop: &AtomicBool) -> Result<Measured> {
    let site = Site::read(&options.site)?;
    let links = site.links.iter();
    let rules: Vec<Rule> = links.flat_map(|link| link.rules.iter().copied()).collect();
    ensure!(
        !rules.is_empty(),
        "{}: no link has filters",
        options.site.display()
    );
    let frames = frames(options.seed)?;
    let filters = rules.len();
    let found = match options.search {
        Search::Ours => {
            let classifier = Classifier::new(rules);
            let search = |headers: &Headers, origin: &Origin| {
                classifier.classify(headers, origin).map(|hit| hit.target)
            };
            timed(options, stop, &frames, search)
        }
        Search::OneByOne => timed(options, stop, &frames, |headers, origin| {
            one_by_one(&rules, headers, origin)
        }),
    };
    let (matched_packets, ns_per_packet) = found?;
    Ok(Measured {
        filters,
        matched_packets,
        distinct_packets: frames.len(),
        ns_per_packet,
    })
}

fn one_by_one(rules: &[Rule], headers: &Headers, origin: &Origin) -> Option<u32> {
    let mut rules = rules.iter();
    let hit = rules.find(|rule| rule.matches.matches(headers, origin));
    hit.map(|rule| rule.target)
}

/// Frames between hosts in 10.0.0.0/8.
fn frames(seed: u64) -> Result<Vec<Vec<u8>>> {
    let mut state = seed;
    let mut frame = || -> Result<Vec<u8>> {
        let (hosts, ports) = (splitmix64(&mut state), splitmix64(&mut state));
        let address = |bits: u64| Ipv4Addr::from_bits(0x0a00_0000 | (bits as u32 & 0x00ff_ffff));
        let (source, destination) = (address(hosts), address(hosts >> 32));
        let payload = [0; 64];
        let (from, to) = (ports as u16, (ports >> 16) as u16);
        let udp = UdpHeader::without_ipv4_checksum(from, to, payload.len())?;
        let behind = (UdpHeader::LEN + payload.len()) as u16;
        let (source, destination) = (source.octets(), destination.octets());
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

/// Returns how many of the frames match, and nanoseconds to parse and classify one.
fn timed(
    options: &Options,
    stop: &AtomicBool,
    frames: &[Vec<u8>],
    classify: impl Fn(&Headers, &Origin) -> Option<u32>,
) -> Result<(usize, f64)> {
    let origin = Origin::default();
    let one = |frame: &Vec<u8>| -> Result<Option<u32>> {
        let headers = parse(black_box(frame), Layer::Ethernet)?;
        Ok(black_box(classify(&headers, &origin)))
    };
    let mut matched = 0;
    for frame in frames {
        matched += usize::from(one(frame)?.is_some());
    }
    let begun = Instant::now();
    let mut packets = 0u64;
    // The clock is read once a dozen packets: seldom enough not to count, often enough to end
    // in time where each takes long.
    for frames in frames.chunks(16).cycle() {
        for frame in frames {
            one(frame)?;
        }
        packets += frames.len() as u64;
        if begun.elapsed().as_secs_f64() >= options.seconds {
            break;
        }
        check(stop)?;
    }
    Ok((matched, begun.elapsed().as_nanos() as f64 / packets as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SITE: &str = "\
[[link]]
name = \"up\"
to = \"outside\"
rate = \"1gbit\"

[[link.class]]
name = \"rest\"
default = true

[[link.class]]
name = \"half\"

[[link.filter]]
class = \"half\"
source = \"10.0.0.0/9\"
protocol = \"udp\"

[[link.filter]]
class = \"half\"
destination = \"172.16.0.1\"
destination-port = \"80\"
protocol = \"tcp\"
";

    #[test]
    fn both_searches_find_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let site = folder.path().join("site.toml");
        std::fs::write(&site, SITE).unwrap();
        let found = [Search::Ours, Search::OneByOne].map(|search| {
            let options = Options {
                site: site.clone(),
                search,
                seconds: 1e-3,
                seed: 1,
            };
            measure(&options, &AtomicBool::new(false)).unwrap()
        });
        for one in &found {
            assert_eq!((one.filters, one.distinct_packets), (2, PACKETS));
            assert_eq!(one.matched_packets, found[0].matched_packets);
            assert!(one.ns_per_packet > 0.0);
        }
        // About half of the addresses.
        assert!(
            (PACKETS * 2 / 5..PACKETS * 3 / 5).contains(&found[0].matched_packets),
            "{found:?}"
        );
    }

    #[test]
    fn a_stop_ends_it() {
        let folder = tempfile::tempdir().unwrap();
        let site = folder.path().join("site.toml");
        std::fs::write(&site, SITE).unwrap();
        let options = Options {
            site,
            search: Search::Ours,
            seconds: 600.0,
            seed: 1,
        };
        let error = measure(&options, &AtomicBool::new(true)).unwrap_err();
        assert!(error.to_string().contains("interrupted"), "{error}");
    }
}
