//! What flow a captured packet belongs to.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fairlane_classify::{Family, Fragment, Headers, Protocol};

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
pub(super) enum Key {
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
    pub(super) fn of(headers: &Headers, by: FlowBy) -> Key {
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
