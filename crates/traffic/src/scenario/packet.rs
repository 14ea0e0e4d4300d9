//! The packets that a source's headers stand for: real frames, for the site's own filters.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fairlane_classify::{PortRange, Prefix};
use fairlane_wire::{Build, Dscp, Family, Protocol, VlanId, ipv6};

/// The header fields of a source's packets. Sources that are alike spread over the prefixes and the ranges of ports.
#[derive(Clone, Copy, Debug)]
pub(super) struct Headers {
    pub source: Prefix,
    pub destination: Prefix,
    pub protocol: Protocol,
    pub source_port: PortRange,
    pub destination_port: PortRange,
    pub dscp: Option<Dscp>,
    pub vlan: Option<VlanId>,
    pub ecn: bool,
}

/// Returns whether IPv6 has an extension header with this number, which other headers follow: no protocol of a packet.
pub(super) fn extends_ipv6(protocol: Protocol) -> bool {
    ipv6::extension_unit(protocol).is_some()
}

/// A header of any transport protocol and its payload: as long as any needs to be.
const PAYLOAD: usize = 40;

impl Headers {
    /// Returns a frame of source `index` of `count` sources that are alike.
    ///
    /// # Panics
    ///
    /// If the protocol is none over IPv6 ([`extends_ipv6`]).
    pub(super) fn frame(&self, index: u32, count: u32) -> Vec<u8> {
        let spread = |prefix: Prefix| {
            let room = prefix.last() - prefix.first();
            prefix.first() + spread(index, count, room)
        };
        let (source, destination) = (spread(self.source), spread(self.destination));
        let port = |range: PortRange| {
            let room = u128::from(range.last() - range.first());
            range.first() + spread_port(index, count, room)
        };
        let mut payload = [0; PAYLOAD];
        if self.protocol.has_ports() {
            payload[..2].copy_from_slice(&port(self.source_port).to_be_bytes());
            payload[2..4].copy_from_slice(&port(self.destination_port).to_be_bytes());
        }
        let class = self.dscp.map_or(0, Dscp::get) << 2 | if self.ecn { 2 } else { 0 };
        let ethernet = Build::ethernet();
        let ethernet = match self.vlan {
            Some(vlan) => ethernet.vlan(vlan.get()),
            None => ethernet,
        };
        let ip = match self.source.family() {
            Family::V6 => ethernet.ipv6(source.to_be_bytes(), destination.to_be_bytes()),
            _ => {
                let [source, destination] =
                    [source, destination].map(|address| (address as u32).to_be_bytes());
                ethernet.ipv4(source, destination)
            }
        };
        let protocol = self.protocol.0.into();
        ip.traffic_class(class).carrying(protocol).payload(&payload)
    }
}

/// Spreads `count` indexes evenly over `room` + 1 numbers, without duplicates if there are enough.
fn spread(index: u32, count: u32, room: u128) -> u128 {
    let (index, count) = (u128::from(index), u128::from(count));
    match room.checked_add(1).and_then(|all| all.checked_mul(index)) {
        Some(product) => product / count,
        None => room / count * index,
    }
}

fn spread_port(index: u32, count: u32, room: u128) -> u16 {
    spread(index, count, room) as u16
}

/// Returns the address as a prefix of full length.
pub(super) fn host(address: IpAddr) -> Prefix {
    let bits = if address.is_ipv4() { 32 } else { 128 };
    Prefix::new(address, bits).expect("a whole address has no bits to spare")
}

/// Returns the placeholder for an unspecified address, from the documentation blocks.
pub(super) fn unnamed(family: Family, source: bool) -> Prefix {
    let last = if source { 1 } else { 2 };
    host(match family {
        Family::V6 => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last).into(),
        _ => Ipv4Addr::new(192, 0, 2, last as u8).into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlane_wire::{Fragment, Layer, parse};

    fn headers(source: &str, destination: &str, protocol: &str) -> Headers {
        Headers {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            protocol: protocol.parse().unwrap(),
            source_port: "1000-1003".parse().unwrap(),
            destination_port: "53".parse().unwrap(),
            dscp: Some("ef".parse().unwrap()),
            vlan: None,
            ecn: true,
        }
    }

    #[test]
    fn a_frame_says_what_its_source_does() {
        for protocol in [
            "udp", "tcp", "sctp", "dccp", "udp-lite", "icmp", "gre", "200",
        ] {
            for (source, destination) in [
                ("10.0.0.0/24", "192.0.2.7"),
                ("2001:db8::/32", "2001:db8::7"),
            ] {
                for vlan in [None, VlanId::new(7)] {
                    let asked = Headers {
                        vlan,
                        ..headers(source, destination, protocol)
                    };
                    let frame = asked.frame(3, 4);
                    let read = parse(&frame, Layer::Ethernet).unwrap();
                    assert_eq!(read.protocol, Some(asked.protocol), "{protocol}");
                    assert_eq!(read.destination, asked.destination.first());
                    assert!(asked.source.contains(read.family, read.source));
                    assert_eq!((Some(read.dscp), read.ecn), (asked.dscp, 2));
                    assert_eq!((read.vlan, read.fragment), (vlan, Fragment::No));
                    let ports = read.ports.map(|ports| (ports.source, ports.destination));
                    let expected = asked.protocol.has_ports().then_some((1003, 53));
                    assert_eq!(ports, expected, "{protocol}");
                }
            }
        }
    }

    #[test]
    fn there_is_a_frame_of_every_protocol() {
        for number in 0..=255 {
            for (source, destination) in [("10.0.0.1", "10.0.0.2"), ("::1", "::2")] {
                let asked = headers(source, destination, &number.to_string());
                if asked.source.family() == Family::V6 && extends_ipv6(asked.protocol) {
                    continue;
                }
                let read = parse(&asked.frame(0, 1), Layer::Ethernet).unwrap();
                assert_eq!(read.protocol, Some(asked.protocol), "{source}");
            }
        }
    }

    #[test]
    fn sources_alike_spread_over_a_prefix_and_none_is_there_twice() {
        for (prefix, count) in [("10.0.0.0/24", 200), ("10.0.0.0/8", 5), ("::/0", 1000)] {
            let asked = headers(prefix, prefix, "udp");
            let sources: Vec<u128> = (0..count)
                .map(|index| {
                    let frame = asked.frame(index, count);
                    parse(&frame, Layer::Ethernet).unwrap().source
                })
                .collect();
            assert!(sources.is_sorted_by(|a, b| a < b), "{prefix}");
            let room = asked.source.last() - asked.source.first();
            let middle = sources[count as usize / 2] - asked.source.first();
            assert!(
                middle.abs_diff(room / 2) <= room / u128::from(count),
                "{prefix}"
            );
        }
        let one = headers("10.0.0.9", "10.0.0.9", "udp");
        assert_eq!(one.frame(0, 2), {
            let other = Headers {
                source_port: "1000".parse().unwrap(),
                ..one
            };
            other.frame(1, 2)
        });
    }
}
