//! Lists of rules as operators have them, some bad ones, and frames that match them.
#![allow(dead_code, reason = "the bench and the tests take what they need")]

use std::net::IpAddr;

use fairlane_classify::{Match, PortRange, Prefix, Rule};
use fairlane_wire::Protocol;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

/// The kinds of lists.
pub(crate) const KINDS: [&str; 6] = [
    "destinations",
    "firewall",
    "firewall v6",
    "any lengths",
    "nested",
    "ranges",
];

pub(crate) fn list(kind: &str, rules: usize) -> Vec<Rule> {
    let mut rng = SmallRng::seed_from_u64(7);
    let rule = |(number, matches)| Rule {
        priority: 0,
        matches,
        target: number as u32,
    };
    let matches: Vec<Match> = match kind {
        "destinations" => (0..rules).map(subscriber).collect(),
        "firewall" => firewall(&mut rng, rules, &[8, 16, 20, 22, 24, 28, 32], 32),
        "firewall v6" => firewall(&mut rng, rules, &[32, 40, 48, 56, 64, 128], 128),
        "any lengths" => (0..rules).map(|_| any_lengths(&mut rng)).collect(),
        "nested" => (0..rules).map(nested).collect(),
        "ranges" => (0..rules).map(overlapping).collect(),
        _ => panic!("no list is called {kind}"),
    };
    matches.into_iter().enumerate().map(rule).collect()
}

/// One subscriber of an ISP, by its address.
fn subscriber(number: usize) -> Match {
    let address = 0x6440_0000 + number as u128;
    Match {
        destination: Some(prefix(address, 32, 32)),
        ..Match::default()
    }
}

fn prefix(address: u128, len: u8, width: u8) -> Prefix {
    let address = match (width, len) {
        (_, 0) => 0,
        (32, len) => address >> (32 - len) << (32 - len) & 0xffff_ffff,
        (_, len) => address >> (128 - len) << (128 - len),
    };
    let address = match width {
        32 => IpAddr::V4((address as u32).into()),
        _ => IpAddr::V6(address.into()),
    };
    Prefix::new(address, len).expect("no bits beyond the length")
}

/// Sites with networks in them, hosts in those, services on these; the order is by how
/// much is said, as operators write it.
fn firewall(rng: &mut SmallRng, rules: usize, lengths: &[u8], width: u8) -> Vec<Match> {
    let network = |rng: &mut SmallRng| -> u128 { rng.random() };
    let sites: Vec<u128> = (0..100)
        .map(|_| network(rng) >> (128 - 16) << (width - 16))
        .collect();
    let networks: Vec<u128> = (0..1000)
        .map(|_| sites.choose(rng).unwrap() | (rng.random::<u128>() % (1 << (width - 16))))
        .collect();
    let side = |rng: &mut SmallRng, any: f64| {
        if rng.random_bool(any) {
            return None;
        }
        let len = *lengths.choose(rng).unwrap();
        let host = rng.random::<u128>() % (1 << (width / 4));
        Some(prefix(networks.choose(rng).unwrap() ^ host, len, width))
    };
    let mut matches: Vec<Match> = (0..rules)
        .map(|_| {
            let protocol = *[Protocol::TCP, Protocol::UDP].choose(rng).unwrap();
            let ports = ports(rng);
            let asked = ports.is_some() || rng.random_bool(0.3);
            Match {
                source: side(rng, 0.4),
                destination: side(rng, 0.05),
                destination_port: ports,
                protocol: asked.then_some(protocol),
                ..Match::default()
            }
        })
        .collect();
    let said = |prefix: Option<Prefix>| prefix.map_or(0, |prefix| usize::from(prefix.len()));
    matches.sort_by_key(|m| usize::MAX - said(m.source) - said(m.destination));
    matches
}

fn ports(rng: &mut SmallRng) -> Option<PortRange> {
    let range = |first, last| PortRange::new(first, last).expect("forwards");
    match rng.random_range(0..10) {
        0..3 => None,
        3..8 => Some(
            [22, 25, 53, 80, 123, 443, 993, 5060, 8080]
                .choose(rng)
                .copied()?
                .into(),
        ),
        8 => Some(*[range(1024, 65535), range(0, 1023), range(16384, 32767)].choose(rng)?),
        _ => {
            let first = rng.random_range(0..60000);
            Some(range(first, first + rng.random_range(1..2000)))
        }
    }
}

/// Returns all combinations of lengths of random prefixes, in no order.
fn any_lengths(rng: &mut SmallRng) -> Match {
    let mut side = || Some(prefix(rng.random(), rng.random_range(8..=32), 32));
    let (source, destination) = (side(), side());
    Match {
        source,
        destination,
        destination_port: ports(rng),
        protocol: Some(*[Protocol::TCP, Protocol::UDP].choose(rng).unwrap()),
        ..Match::default()
    }
}

/// Every pair of lengths around one pair of addresses, and ten ports for each: a sender that knows
/// the addresses can match them all.
fn nested(number: usize) -> Match {
    let (source, destination) = (number % 32 + 1, number / 32 % 32 + 1);
    Match {
        source: Some(prefix(0xc633_6401, source as u8, 32)),
        destination: Some(prefix(0xcb00_7101, destination as u8, 32)),
        destination_port: Some((number as u16 / 1024).into()),
        protocol: Some(Protocol::TCP),
        ..Match::default()
    }
}

/// One host, and ranges of ports that differ in their first bit.
fn overlapping(number: usize) -> Match {
    let number = number as u16;
    Match {
        destination: Some(prefix(0xcb00_7101, 32, 32)),
        source_port: PortRange::new(30_000 - number, 40_000 + number),
        destination_port: PortRange::new(20_000 + number, 45_000 + number),
        ..Match::default()
    }
}

/// Frames of 64 bytes: of ten, nine are what some rule asks for, in the addresses and
/// ports; one is anything.
pub(crate) fn frames(rules: &[Rule], count: usize) -> Vec<Vec<u8>> {
    let mut rng = SmallRng::seed_from_u64(11);
    let v6 = rules.iter().any(|rule| {
        let prefix = rule.matches.destination;
        prefix.is_some_and(|prefix| prefix.last() > u128::from(u32::MAX))
    });
    (0..count).map(|_| frame(&mut rng, rules, v6)).collect()
}

fn frame(rng: &mut SmallRng, rules: &[Rule], v6: bool) -> Vec<u8> {
    let asked = match rng.random_bool(0.9) {
        true => rules.choose(rng).expect("a rule").matches,
        false => Match::default(),
    };
    let mut address = |prefix: Option<Prefix>| match prefix {
        Some(prefix) => rng.random_range(prefix.first()..=prefix.last()),
        None => rng.random(),
    };
    let (source, destination) = (address(asked.source), address(asked.destination));
    let mut port = |range: Option<PortRange>| {
        let range = range.unwrap_or(PortRange::ALL);
        rng.random_range(range.first()..=range.last())
    };
    let (from, to) = (port(asked.source_port), port(asked.destination_port));
    let mut frame = vec![0; 12];
    let protocol = asked.protocol.unwrap_or(Protocol::UDP).0;
    if v6 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, protocol, 64]);
        frame.extend(source.to_be_bytes());
        frame.extend(destination.to_be_bytes());
    } else {
        frame.extend([8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, protocol, 0, 0]);
        frame.extend((source as u32).to_be_bytes());
        frame.extend((destination as u32).to_be_bytes());
    }
    frame.extend(from.to_be_bytes());
    frame.extend(to.to_be_bytes());
    frame.resize(frame.len() + 22, 0);
    frame
}
