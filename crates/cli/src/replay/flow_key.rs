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
    /// Source and destination address, protocol, source and destination port; all fragments
    /// between two addresses are one flow
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
        /// Source and destination; 0 where there are none.
        ports: [u16; 2],
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
        if payload.fragmented {
            return Key::Fragments {
                source,
                destination,
            };
        }
        let protocol = payload.ip_number.0;
        let ports = match payload.payload {
            &[a, b, c, d, ..] if has_ports(protocol) => {
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
            Key::Fragments {
                source,
                destination,
            } => write!(f, "{source} > {destination} fragments"),
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

#[cfg(test)]
mod tests {
    use fairlane_classify::{DigestKey, Origin, Per, parse};

    use super::*;

    /// From 10.0.0.`source`; `fragment` is the field of flags and offset.
    fn ipv4(source: u8, protocol: u8, port: u8, fragment: u16) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 40, 0, 1];
        packet.extend(fragment.to_be_bytes());
        packet.extend([64, protocol, 0, 0, 10, 0, 0, source, 10, 0, 1, 1]);
        packet.extend(payload(port));
        packet
    }

    /// As long as the longest header of the protocols here.
    fn payload(port: u8) -> [u8; 20] {
        let mut bytes = [0; 20];
        bytes[..4].copy_from_slice(&[0, port, 0, 80]);
        bytes[12] = 0x50;
        bytes
    }

    /// From 2001:db8::`source`, with a fragment header if there is one.
    fn ipv6(source: u8, protocol: u8, port: u8, fragment: Option<u16>) -> Vec<u8> {
        let length = if fragment.is_some() { 28 } else { 20 };
        let first = if fragment.is_some() { 44 } else { protocol };
        let mut packet = vec![0x60, 0, 0, 0, 0, length, first, 64];
        for last in [source, 0xff] {
            packet.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
        }
        if let Some(fragment) = fragment {
            packet.extend([protocol, 0]);
            packet.extend(fragment.to_be_bytes());
            packet.extend([0, 0, 0, 1]);
        }
        packet.extend(payload(port));
        packet
    }

    #[test]
    fn packets_are_one_flow_here_where_they_are_one_by_the_filters() {
        const MORE: u16 = 0x2000;
        let mut packets = Vec::new();
        for source in [1, 2] {
            for protocol in [6, 17, 1, 58] {
                for port in [5, 6] {
                    for fragment in [0, 0x4000, MORE, MORE | 2, 3] {
                        packets.push(ipv4(source, protocol, port, fragment));
                    }
                    for fragment in [None, Some(1), Some(17), Some(16)] {
                        packets.push(ipv6(source, protocol, port, fragment));
                    }
                }
            }
        }
        let flows: Vec<_> = packets
            .iter()
            .map(|packet| {
                let key = Key::of(Framing::Raw, packet, FlowBy::FiveTuple);
                let headers = parse(packet, Layer::Ip).unwrap();
                let origin = Origin::default();
                (
                    key,
                    Per::FiveTuple.digest(&headers, &origin, &DigestKey([1, 2])),
                )
            })
            .collect();
        for (at, (key, digest)) in flows.iter().enumerate() {
            for (other, (other_key, other_digest)) in flows.iter().enumerate() {
                assert_eq!(
                    key == other_key,
                    digest == other_digest,
                    "{:x?}\n{:x?}\n{key}, {other_key}",
                    packets[at],
                    packets[other]
                );
            }
        }
    }
}
