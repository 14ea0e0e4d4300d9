//! A rule and a packet as words of bits: a rule matches where the packet's words, under
//! the rule's mask, are the rule's value, and its ports are within two ranges.

use alloc::vec;
use alloc::vec::Vec;

use crate::field::mask;
use crate::{Match, Origin, PortRange};
use fairlane_wire::{Family, Fragment, Headers, Protocol};

// The words of a packet: first
//
//  63      48 47      32 31    24 23  18 17  6       3        2        1       0
// | source  | dest.    |protocol| DSCP | VLAN |...| process|fragment|protocol|ports|
// | port    | port     |        |      |0:none|   |        |        | known  |known|
//
// then the addresses: one word of IPv4 (and of packets without), four of IPv6; then, where a rule
// tests the origin of packets, uid and gid, and pid with the ingress in the low 16 bits.

/// Words of IPv4 and of packets other than IP.
pub(crate) const V4: usize = 2;
/// Words of IPv6.
pub(crate) const V6: usize = 5;
/// Words of the origin, behind either.
pub(crate) const ORIGIN: usize = 2;
/// Words of IPv4 with the origin.
pub(crate) const V4_ORIGIN: usize = V4 + ORIGIN;
/// Words of IPv6 with the origin.
pub(crate) const V6_ORIGIN: usize = V6 + ORIGIN;

pub(crate) const SOURCE_PORT: u32 = 48;
pub(crate) const DESTINATION_PORT: u32 = 32;
pub(crate) const PROTOCOL: u32 = 24;
pub(crate) const DSCP: u32 = 18;
pub(crate) const VLAN: u32 = 6;
const PROCESS: u64 = 8;
const FRAGMENT: u64 = 4;
pub(crate) const HAS_PROTOCOL: u64 = 2;
pub(crate) const HAS_PORTS: u64 = 1;

const fn is_v6(words: usize) -> bool {
    words >= V6
}

const fn has_origin(words: usize) -> bool {
    words == V4_ORIGIN || words == V6_ORIGIN
}

/// Bits of an address.
const fn width(words: usize) -> u8 {
    if is_v6(words) { 128 } else { 32 }
}

/// The words of a packet that rules test.
pub(crate) type Key<const N: usize> = [u64; N];

/// Returns the key of a packet of the family that has `N` words.
#[inline]
pub(crate) fn key<const N: usize>(headers: &Headers, origin: &Origin) -> Key<N> {
    let mut key = [0; N];
    set_addresses(&mut key, headers.source, headers.destination);
    let mut word = u64::from(headers.dscp.get()) << DSCP;
    if let Some(ports) = headers.ports {
        word |= u64::from(ports.source) << SOURCE_PORT
            | u64::from(ports.destination) << DESTINATION_PORT
            | HAS_PORTS;
    }
    if let Some(protocol) = headers.protocol {
        word |= u64::from(protocol.0) << PROTOCOL | HAS_PROTOCOL;
    }
    if let Some(vlan) = headers.vlan {
        word |= u64::from(vlan.get()) << VLAN;
    }
    if headers.fragment != Fragment::No {
        word |= FRAGMENT;
    }
    if has_origin(N) {
        key[N - 1] = u64::from(origin.ingress);
        if let Some(owner) = origin.owner {
            word |= PROCESS;
            key[N - 2] = u64::from(owner.uid) << 32 | u64::from(owner.gid);
            key[N - 1] |= u64::from(owner.pid) << 32;
        }
    }
    key[0] = word;
    key
}

pub(crate) fn set_addresses<const N: usize>(words: &mut [u64; N], source: u128, destination: u128) {
    if is_v6(N) {
        words[1] = (source >> 64) as u64;
        words[2] = source as u64;
        words[3] = (destination >> 64) as u64;
        words[4] = destination as u64;
    } else {
        words[1] = (source as u64) << 32 | (destination as u64 & 0xffff_ffff);
    }
}

/// A rule within one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pattern<const N: usize> {
    /// The bits to test. Of a range of ports: those in which its ends agree.
    pub(crate) mask: [u64; N],
    /// Required values of the masked bits; zero elsewhere.
    pub(crate) value: [u64; N],
    pub(crate) source_port: (u16, u16),
    pub(crate) destination_port: (u16, u16),
}

const ANY_PORT: (u16, u16) = (0, u16::MAX);

impl<const N: usize> Pattern<N> {
    /// Returns a rule's conditions on packets of a family, or `None` if none of them can match.
    pub(crate) fn new(asked: &Match, family: Family) -> Option<Self> {
        let ip = family != Family::Other;
        let has_ports = asked.source_port.is_some() || asked.destination_port.is_some();
        let other_family = asked.family.is_some_and(|asked| asked != family)
            || [asked.source, asked.destination]
                .iter()
                .flatten()
                .any(|prefix| prefix.family() != family);
        let only_ip = has_ports || asked.protocol.is_some() || asked.dscp.is_some();
        let no_ports = has_ports && asked.protocol.is_some_and(|p| !p.has_ports());
        if other_family || (only_ip && !ip) || (asked.fragment == Some(true) && !ip) || no_ports {
            return None;
        }
        let mut pattern = Pattern {
            mask: [0; N],
            value: [0; N],
            source_port: ANY_PORT,
            destination_port: ANY_PORT,
        };
        let bits = [asked.source, asked.destination].map(|prefix| {
            prefix.map_or((0, 0), |prefix| {
                (mask(width(N), prefix.len()), prefix.first())
            })
        });
        set_addresses(&mut pattern.mask, bits[0].0, bits[1].0);
        set_addresses(&mut pattern.value, bits[0].1, bits[1].1);
        pattern.set_ports(asked.source_port, SOURCE_PORT);
        pattern.set_ports(asked.destination_port, DESTINATION_PORT);
        if let Some(protocol) = asked.protocol {
            let value = u64::from(protocol.0) << PROTOCOL | HAS_PROTOCOL;
            pattern.ask(0, 0xff << PROTOCOL | HAS_PROTOCOL, value);
        }
        if let Some(dscp) = asked.dscp {
            pattern.ask(0, 0x3f << DSCP, u64::from(dscp.get()) << DSCP);
        }
        if let Some(vlan) = asked.vlan {
            pattern.ask(0, 0xfff << VLAN, u64::from(vlan.get()) << VLAN);
        }
        if let (Some(fragment), true) = (asked.fragment, ip) {
            let value = if fragment { FRAGMENT } else { 0 };
            pattern.ask(0, FRAGMENT, value);
        }
        if let Some(ingress) = asked.ingress {
            pattern.ask(N - 1, 0xffff, ingress.into());
        }
        if asked.uid.or(asked.gid).or(asked.pid).is_some() {
            pattern.ask(0, PROCESS, PROCESS);
        }
        for (asked, word, shift) in [
            (asked.uid, N - 2, 32),
            (asked.gid, N - 2, 0),
            (asked.pid, N - 1, 32),
        ] {
            if let Some(number) = asked {
                pattern.ask(word, 0xffff_ffff << shift, u64::from(number) << shift);
            }
        }
        Some(pattern)
    }

    fn ask(&mut self, word: usize, mask: u64, value: u64) {
        self.mask[word] |= mask;
        self.value[word] |= value;
    }

    fn set_ports(&mut self, range: Option<PortRange>, shift: u32) {
        if let Some(range) = range {
            self.ask(0, HAS_PORTS, HAS_PORTS);
            self.set_range((range.first(), range.last()), shift == SOURCE_PORT);
        }
    }

    /// Sets the range of one port, and the bits that all its ports share.
    pub(crate) fn set_range(&mut self, (first, last): (u16, u16), source: bool) {
        let shift = if source {
            SOURCE_PORT
        } else {
            DESTINATION_PORT
        };
        let word = 0;
        let apart = u16::BITS - (first ^ last).leading_zeros();
        let shared = u64::from(u16::MAX) & (u64::MAX << apart);
        self.mask[word] &= !(0xffff << shift);
        self.value[word] &= !(0xffff << shift);
        self.ask(word, shared << shift, (u64::from(first) & shared) << shift);
        *(if source {
            &mut self.source_port
        } else {
            &mut self.destination_port
        }) = (first, last);
    }

    /// The same for any number of one port, if there are ports.
    pub(crate) fn any_port(mut self, source: bool) -> Self {
        self.set_range(ANY_PORT, source);
        self
    }

    /// Returns whether one port may have any number.
    pub(crate) fn has_any_port(&self, source: bool) -> bool {
        self.range(source) == ANY_PORT
    }

    /// Returns the range of one port.
    pub(crate) fn range(&self, source: bool) -> (u16, u16) {
        if source {
            self.source_port
        } else {
            self.destination_port
        }
    }

    /// Returns whether a packet matches. Without a branch: a processor could not predict which part
    /// differs.
    #[inline]
    pub(crate) fn matches(&self, key: &Key<N>) -> bool {
        let within = |(first, last): (u16, u16), shift: u32| {
            let port = (key[0] >> shift) as u16;
            port.wrapping_sub(first) <= last.wrapping_sub(first)
        };
        self.agrees(key)
            & within(self.source_port, SOURCE_PORT)
            & within(self.destination_port, DESTINATION_PORT)
    }

    #[inline]
    fn agrees(&self, key: &Key<N>) -> bool {
        let mut differ = 0;
        for (word, bits) in key.iter().enumerate() {
            differ |= (bits & self.mask[word]) ^ self.value[word];
        }
        differ == 0
    }

    /// Returns the same without conditions on the origin; `None` if these exclude `origin`.
    pub(crate) fn of_origin(mut self, origin: &Origin) -> Option<Self> {
        let known: Key<N> = key(&Headers::default(), origin);
        let first = if has_origin(N) { N - ORIGIN } else { N };
        let mut told = [0; N];
        told[0] = PROCESS;
        told[first..].fill(u64::MAX);
        for word in 0..N {
            let asked = self.mask[word] & told[word];
            if known[word] & asked != self.value[word] & asked {
                return None;
            }
            self.mask[word] &= !told[word];
            self.value[word] &= !told[word];
        }
        Some(self)
    }

    /// Returns whether all packets of `other` are among its own.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let within =
            |outer: (u16, u16), inner: (u16, u16)| outer.0 <= inner.0 && inner.1 <= outer.1;
        let fewer = (0..N).all(|word| self.mask[word] & !other.mask[word] == 0);
        fewer
            && self.agrees(&other.value)
            && within(self.source_port, other.source_port)
            && within(self.destination_port, other.destination_port)
    }

    /// Returns a pattern of the same packets with all implied conditions: an unfragmented datagram
    /// of a protocol with ports has ports, or it would be malformed.
    pub(crate) fn implied(mut self) -> Self {
        let (mask, value) = (self.mask[0], self.value[0]);
        let whole = mask & FRAGMENT != 0 && value & FRAGMENT == 0;
        let known = mask & HAS_PROTOCOL != 0;
        if whole && known && Protocol((value >> PROTOCOL) as u8).has_ports() {
            self.ask(0, HAS_PORTS, HAS_PORTS);
        }
        self
    }

    /// Returns the bits of which two rules may be halves of a third: the last of a prefix, and
    /// "fragment".
    pub(crate) fn halves(&self) -> impl Iterator<Item = (usize, u64)> + use<N> {
        let mask = self.mask;
        let lowest = |bits: u64| bits & bits.wrapping_neg();
        let pair = |high: usize| {
            let word = if mask[high + 1] != 0 { high + 1 } else { high };
            (word, lowest(mask[word]))
        };
        let addresses = if is_v6(N) {
            [pair(1), pair(3)]
        } else {
            [
                (1, lowest(mask[1] >> 32) << 32),
                (1, lowest(mask[1] & 0xffff_ffff)),
            ]
        };
        let fragment = (0, mask[0] & FRAGMENT);
        let all = [addresses[0], addresses[1], fragment];
        all.into_iter().filter(|&(_, bit)| bit != 0)
    }
}

/// Returns the fields that a table may hash, each as masks with an increasing number of its bits. A
/// table compares the bits that it does not hash, so rules of several lengths share one.
pub(crate) fn refinements<const N: usize>() -> Vec<Vec<[u64; N]>> {
    let lengths: &[u8] = if is_v6(N) {
        &[16, 24, 32, 40, 48, 56, 64, 96, 128]
    } else {
        &[8, 12, 16, 20, 24, 28, 32]
    };
    let other = |word: usize, bits: u64| {
        let mut words = [0; N];
        words[word] = bits;
        words
    };
    let prefix = |source: u128, destination: u128| {
        let mut words = [0; N];
        set_addresses(&mut words, source, destination);
        words
    };
    let ports = |shift: u32| {
        [0xf800u64, 0xffc0, 0xffff]
            .map(|bits| other(0, bits << shift | HAS_PORTS))
            .to_vec()
    };
    let mut all = vec![
        lengths
            .iter()
            .map(|&len| prefix(mask(width(N), len), 0))
            .collect(),
        lengths
            .iter()
            .map(|&len| prefix(0, mask(width(N), len)))
            .collect(),
        ports(SOURCE_PORT),
        ports(DESTINATION_PORT),
    ];
    let mut single = vec![
        (0, 0xff << PROTOCOL | HAS_PROTOCOL),
        (0, 0x3f << DSCP),
        (0, 0xfff << VLAN),
        (0, FRAGMENT),
    ];
    if has_origin(N) {
        single.extend([
            (N - 1, 0xffff),
            (N - 2, 0xffff_ffff << 32),
            (N - 2, 0xffff_ffff),
            (N - 1, 0xffff_ffff << 32),
        ]);
    }
    let single = single.into_iter();
    all.extend(single.map(|(word, bits)| vec![other(word, bits)]));
    all
}
