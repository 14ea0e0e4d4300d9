//! What flow a captured packet belongs to.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fairlane_classify::{Family, Fragment, Headers, Layer, Protocol};
use pcap_file::DataLink;

/// What makes packets one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowBy {
    /// Source and destination address, protocol, source and destination port; all fragments
    /// between two addresses are one flow
    FiveTuple,
    /// Source address
    Source,
}

/// What the packets of one flow have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// All that is not IP.
    NotIp,
    Source(IpAddr),
    FiveTuple {
        source: IpAddr,
        destination: IpAddr,
        /// None where that could not be read.
        protocol: Option<Protocol>,
        /// Source and destination, where there are any.
        ports: Option<[u16; 2]>,
    },
    /// The first ones of a datagram included, whatever the protocol: later ones say no ports, nor
    /// in IPv6 always a protocol, and must not overtake the first. As
    /// [`Per::FiveTuple`](fairlane_classify::Per::FiveTuple) has it.
    Fragments {
        source: IpAddr,
        destination: IpAddr,
    },
}

impl Key {
    /// The key of a packet by what could be read of its headers.
    pub fn of(headers: &Headers, by: FlowBy) -> Key {
        let address = |bits: u128| match headers.family {
            Family::V4 => IpAddr::V4(Ipv4Addr::from_bits(bits as u32)),
            _ => IpAddr::V6(Ipv6Addr::from_bits(bits)),
        };
        let (source, destination) = (address(headers.source), address(headers.destination));
        match (headers.family, by, headers.fragment) {
            (Family::Other, ..) => Key::NotIp,
            (_, FlowBy::Source, _) => Key::Source(source),
            (.., Fragment::First | Fragment::Later) => Key::Fragments {
                source,
                destination,
            },
            (.., Fragment::No) => Key::FiveTuple {
                source,
                destination,
                protocol: headers.protocol,
                ports: headers.ports.map(|ports| [ports.source, ports.destination]),
            },
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::NotIp => f.write_str("not IP"),
            Key::Source(source) => source.fmt(f),
            Key::Fragments {
                source,
                destination,
            } => write!(f, "{source} > {destination} fragments"),
            Key::FiveTuple {
                source,
                destination,
                protocol,
                ports,
            } => {
                match (source, ports) {
                    (IpAddr::V4(_), Some([from, to])) => {
                        write!(f, "{source}:{from} > {destination}:{to}")?;
                    }
                    (IpAddr::V6(_), Some([from, to])) => {
                        write!(f, "[{source}]:{from} > [{destination}]:{to}")?;
                    }
                    (_, None) => write!(f, "{source} > {destination}")?,
                }
                match protocol {
                    Some(named) if Protocol::NAMES.iter().any(|(_, known)| known == named) => {
                        write!(f, " {named}")
                    }
                    Some(Protocol(number)) => write!(f, " protocol {number}"),
                    None => Ok(()),
                }
            }
        }
    }
}

/// What precedes the IP header.
#[derive(Clone, Copy, Debug)]
pub enum Framing {
    Ethernet,
    /// IP at once.
    Raw,
    /// Four bytes of address family.
    Loopback,
    /// Linux's "any" interface: the ether type, and where the payload begins.
    Cooked {
        ether_type: usize,
        payload: usize,
    },
}

impl Framing {
    /// The framings that can be read, in words.
    pub const ALL: &str = "Ethernet, raw IP, loopback and Linux cooked (v1, v2)";

    /// The framing of a link type, or `None` for one that cannot be read.
    pub fn of(link: DataLink) -> Option<Framing> {
        // The upper bits of the field may tell the length of a checksum.
        match u32::from(link) & 0xffff {
            1 => Some(Framing::Ethernet),
            12 | 14 | 101 | 228 | 229 => Some(Framing::Raw),
            0 | 108 => Some(Framing::Loopback),
            113 => Some(Framing::Cooked {
                ether_type: 14,
                payload: 16,
            }),
            276 => Some(Framing::Cooked {
                ether_type: 0,
                payload: 20,
            }),
            _ => None,
        }
    }

    /// The layer at which a packet's headers begin, and behind how many bytes of it; or its ether
    /// type, where it begins as no layer does.
    pub fn layer(self, packet: &[u8]) -> Result<(Layer, usize), u16> {
        match self {
            Framing::Ethernet => Ok((Layer::Ethernet, 0)),
            Framing::Raw => Ok((Layer::Ip, 0)),
            Framing::Loopback => Ok((Layer::Ip, 4)),
            Framing::Cooked {
                ether_type,
                payload,
            } => {
                let found = packet.get(ether_type..ether_type + 2);
                match found.map_or(0, |found| u16::from_be_bytes([found[0], found[1]])) {
                    0x0800 | 0x86dd => Ok((Layer::Ip, payload)),
                    other => Err(other),
                }
            }
        }
    }
}
