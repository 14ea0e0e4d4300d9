//! What flow a captured packet belongs to.

use std::fmt;
use std::net::IpAddr;

use clap::ValueEnum;
use etherparse::{EtherType, LaxNetSlice, LaxSlicedPacket};
use fairlane_classify::Layer;
use pcap_file::DataLink;

/// What makes packets one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FlowBy {
    /// Source and destination address, protocol, source and destination port
    #[value(name = "5-tuple")]
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
        protocol: u8,
        /// Source and destination; 0 where there are none, or in a fragment.
        ports: [u16; 2],
    },
}

impl Key {
    /// The key of a packet that was captured, perhaps not to its end.
    pub fn of(framing: Framing, packet: &[u8], by: FlowBy) -> Key {
        let Some(sliced) = framing.slice(packet) else {
            return Key::NotIp;
        };
        let (source, destination) = match &sliced.net {
            Some(LaxNetSlice::Ipv4(ip)) => (
                IpAddr::V4(ip.header().source_addr()),
                IpAddr::V4(ip.header().destination_addr()),
            ),
            Some(LaxNetSlice::Ipv6(ip)) => (
                IpAddr::V6(ip.header().source_addr()),
                IpAddr::V6(ip.header().destination_addr()),
            ),
            _ => return Key::NotIp,
        };
        if by == FlowBy::Source {
            return Key::Source(source);
        }
        let Some(payload) = sliced.ip_payload() else {
            return Key::NotIp;
        };
        let protocol = payload.ip_number.0;
        let ports = match payload.payload {
            // The later fragments of a datagram have no ports: so that all of them
            // are one flow, the first one's do not count either.
            &[a, b, c, d, ..] if has_ports(protocol) && !payload.fragmented => {
                [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])]
            }
            _ => [0; 2],
        };
        Key::FiveTuple {
            source,
            destination,
            protocol,
            ports,
        }
    }
}

/// Whether a protocol begins with two ports: TCP, UDP, DCCP, SCTP, UDP-Lite.
fn has_ports(protocol: u8) -> bool {
    matches!(protocol, 6 | 17 | 33 | 132 | 136)
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::NotIp => f.write_str("not IP"),
            Key::Source(source) => source.fmt(f),
            Key::FiveTuple {
                source,
                destination,
                protocol,
                ports: [from, to],
            } => {
                let name = match protocol {
                    1 => "icmp",
                    6 => "tcp",
                    17 => "udp",
                    58 => "icmp6",
                    132 => "sctp",
                    _ => return write!(f, "{source} > {destination} protocol {protocol}"),
                };
                match source {
                    _ if !has_ports(*protocol) => write!(f, "{source} > {destination} {name}"),
                    IpAddr::V4(_) => write!(f, "{source}:{from} > {destination}:{to} {name}"),
                    IpAddr::V6(_) => write!(f, "[{source}]:{from} > [{destination}]:{to} {name}"),
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

    /// For a site's filters: the layer at which a packet begins for them, and behind how many
    /// bytes of it. `None` where it begins as no layer does, but says its ether type.
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

    fn slice(self, packet: &[u8]) -> Option<LaxSlicedPacket<'_>> {
        match self {
            Framing::Ethernet => LaxSlicedPacket::from_ethernet(packet).ok(),
            Framing::Raw => LaxSlicedPacket::from_ip(packet).ok(),
            Framing::Loopback => LaxSlicedPacket::from_ip(packet.get(4..)?).ok(),
            Framing::Cooked {
                ether_type,
                payload,
            } => {
                let found = packet.get(ether_type..ether_type + 2)?;
                let found = EtherType(u16::from_be_bytes([found[0], found[1]]));
                Some(LaxSlicedPacket::from_ether_type(
                    found,
                    packet.get(payload..)?,
                ))
            }
        }
    }
}
