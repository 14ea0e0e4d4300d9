//! The frames that pass: as many as a device has memory for, each made for one of the site's filters.

use fairlane_classify::{Match, Origin, Owner, PortRange, Prefix, Rule};
use fairlane_core::Length;
use fairlane_core::random::splitmix64;
use fairlane_core::tree::{ClassFlow, Payload};
use fairlane_io::ByteLen;
use fairlane_wire::{Family, Protocol};

/// Frames that there are.
pub(super) const FRAMES: usize = 8_192;

/// Longest headers that are written here, and the size of a cache line.
const HEADERS: usize = 96;
const LINE: usize = 64;

/// A frame as one stage hands it to the next: which it is, and how long. Its bytes stay where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    number: u32,
    bytes: u32,
}

impl Frame {
    /// Returns its length on a link.
    #[inline]
    pub(super) fn on_link(self, overhead: u32) -> Length {
        Length::new(self.bytes + overhead).unwrap_or(Length::MAX)
    }
}

impl ByteLen for Frame {
    #[inline]
    fn byte_len(&self) -> usize {
        self.bytes as usize
    }
}

impl Payload for Frame {}

/// A frame, with its class and flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Classified {
    pub(super) to: ClassFlow,
    pub(super) frame: Frame,
}

/// The bytes of all frames, one after the other, each at the beginning of a cache line; and their origins.
#[derive(Debug)]
pub(super) struct Memory {
    bytes: Vec<u8>,
    stride: usize,
    origins: Vec<Origin>,
    frames: Vec<Frame>,
}

impl Memory {
    /// Frames of this length, each for another of the rules as long as there are enough, in an order that says
    /// nothing of theirs. The same in every run. A rule may ask for headers that are longer: such a frame is as
    /// long as those.
    pub(super) fn new(rules: &[Rule], ingress: u16, length: u32) -> Memory {
        let length = length as usize;
        let stride = length.max(HEADERS).next_multiple_of(LINE);
        let mut seed = 1;
        let order = shuffled(rules.len(), &mut seed);
        let mut memory = Memory {
            bytes: vec![0; FRAMES * stride],
            stride,
            origins: Vec::with_capacity(FRAMES),
            frames: Vec::with_capacity(FRAMES),
        };
        for number in 0..FRAMES {
            let rule = order.get(number % order.len().max(1));
            let asked = rule.map_or(Match::default(), |&rule| rules[rule].matches);
            let frame = frame_for(&asked, length, &mut seed);
            memory.bytes[number * stride..][..frame.len()].copy_from_slice(&frame);
            memory.origins.push(origin_for(&asked, ingress));
            memory.frames.push(Frame {
                number: number as u32,
                bytes: frame.len() as u32,
            });
        }
        memory
    }

    /// Returns all frames, in order of arrival.
    pub(super) fn frames(&self) -> &[Frame] {
        &self.frames
    }

    #[inline]
    pub(super) fn bytes(&self, frame: Frame) -> &[u8] {
        let at = frame.number as usize * self.stride;
        &self.bytes[at..at + frame.bytes as usize]
    }

    #[inline]
    pub(super) fn origin(&self, frame: Frame) -> &Origin {
        &self.origins[frame.number as usize]
    }
}

/// Returns the numbers below `count` in an order that looks random (Fisher and Yates).
fn shuffled(count: usize, seed: &mut u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        let other = splitmix64(seed) % (last as u64 + 1);
        order.swap(last, other as usize);
    }
    order
}

/// Returns an origin that matches these conditions.
fn origin_for(asked: &Match, ingress: u16) -> Origin {
    let ingress = asked.ingress.unwrap_or(ingress);
    let from_process = ingress == Origin::ATTACHED;
    Origin {
        ingress,
        owner: from_process.then(|| Owner {
            uid: asked.uid.unwrap_or(u32::MAX),
            gid: asked.gid.unwrap_or(u32::MAX),
            pid: asked.pid.unwrap_or(0),
        }),
    }
}

/// Returns a frame that matches these conditions, except that it is no fragment. Other fields are random:
/// addresses in 10.0.0.0/8 or 2001:db8::/32, any ports, and UDP.
fn frame_for(asked: &Match, length: usize, seed: &mut u64) -> Vec<u8> {
    let mut frame = vec![4; 6];
    frame.extend([2; 6]);
    if let Some(vlan) = asked.vlan {
        frame.extend(0x8100_u16.to_be_bytes());
        frame.extend(vlan.get().to_be_bytes());
    }
    let is_v6 = |prefix: Prefix| prefix.family() == Family::V6;
    let v6 = asked.family == Some(Family::V6)
        || asked.source.is_some_and(is_v6)
        || asked.destination.is_some_and(is_v6);
    let traffic_class = asked.dscp.map_or(0, |dscp| dscp.get() << 2);
    let protocol = asked.protocol.unwrap_or(Protocol::UDP);
    let least = if protocol == Protocol::TCP { 20 } else { 12 };
    let addresses = [asked.source, asked.destination].map(|prefix| address(prefix, v6, seed));
    if v6 {
        let payload = length.saturating_sub(frame.len() + 42).max(least) as u16;
        frame.extend([0x86, 0xdd, 0x60 | traffic_class >> 4, traffic_class << 4]);
        frame.extend([0, 0]);
        frame.extend(payload.to_be_bytes());
        frame.extend([protocol.0, 64]);
        frame.extend(addresses.iter().flat_map(|address| address.to_be_bytes()));
    } else {
        let total = length.saturating_sub(frame.len() + 2).max(20 + least) as u16;
        frame.extend([8, 0, 0x45, traffic_class]);
        frame.extend(total.to_be_bytes());
        frame.extend([0, 0, 0, 0, 64, protocol.0, 0, 0]);
        let addresses = addresses.map(|address| (address as u32).to_be_bytes());
        frame.extend(addresses.as_flattened());
    }
    let end = length.max(frame.len() + least);
    for ports in [asked.source_port, asked.destination_port] {
        frame.extend(port(ports, seed).to_be_bytes());
    }
    frame.resize(end, 0);
    frame
}

/// One of the addresses that begin so.
fn address(prefix: Option<Prefix>, v6: bool, seed: &mut u64) -> u128 {
    let (first, last) = match (prefix, v6) {
        (Some(prefix), _) => (prefix.first(), prefix.last()),
        (None, true) => (0x2001_0db8 << 96, (0x2001_0db9 << 96) - 1),
        (None, false) => (0x0a00_0000, 0x0aff_ffff),
    };
    let random = u128::from(splitmix64(seed)) << 64 | u128::from(splitmix64(seed));
    first | (random & (first ^ last))
}

/// One of these ports.
fn port(range: Option<PortRange>, seed: &mut u64) -> u16 {
    let range = range.unwrap_or(PortRange::ALL);
    let ports = u64::from(range.last() - range.first()) + 1;
    range.first() + (splitmix64(seed) % ports) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlane_wire::{Layer, parse};

    fn asking(matches: Match) -> Rule {
        Rule {
            priority: 0,
            matches,
            target: 0,
        }
    }

    #[test]
    fn every_frame_is_what_its_rule_asks_for() {
        let any = Match::default();
        let rules = [
            any,
            Match {
                source: Some("192.0.2.0/24".parse().unwrap()),
                destination_port: Some("1000-1003".parse().unwrap()),
                dscp: Some("ef".parse().unwrap()),
                ..any
            },
            Match {
                destination: Some("2001:db8:7::/48".parse().unwrap()),
                protocol: Some(Protocol::TCP),
                dscp: Some("af41".parse().unwrap()),
                vlan: fairlane_wire::VlanId::new(7),
                ..any
            },
            Match {
                ingress: Some(Origin::ATTACHED),
                uid: Some(1000),
                ..any
            },
        ]
        .map(asking);
        for length in [64, 374, 1500] {
            let memory = Memory::new(&rules, 3, length);
            let mut matched = [0; 4];
            for &frame in memory.frames() {
                let bytes = memory.bytes(frame);
                assert_eq!(bytes.len(), frame.byte_len());
                assert!(bytes.len() == length as usize || length == 64, "{bytes:?}");
                let headers = parse(bytes, Layer::Ethernet).unwrap();
                for (count, rule) in matched.iter_mut().zip(&rules) {
                    let origin = memory.origin(frame);
                    *count += usize::from(rule.matches.matches(&headers, origin));
                }
            }
            assert_eq!(matched, [FRAMES, 2_048, 2_048, 2_048]);
        }
    }

    #[test]
    fn frames_are_the_same_in_every_run_and_need_no_rules() {
        let [one, other] = [(); 2].map(|()| Memory::new(&[], 0, 64));
        assert_eq!(one.bytes, other.bytes);
        assert_eq!(one.frames().len(), FRAMES);
    }

    #[test]
    fn an_order_that_looks_random_has_each_number_once() {
        let mut order = shuffled(1_000, &mut 7);
        assert!(order.iter().enumerate().filter(|(at, n)| at == *n).count() < 20);
        order.sort_unstable();
        assert!(order.into_iter().eq(0..1_000));
    }
}
