//! Reads the headers of a packet: each is checked against the bytes there are before a
//! field of it is used, and no loop is longer than a constant.

use crate::{
    Dscp, Family, Fragment, Header, Headers, Layer, Malformed, Ports, Protocol, Reason, VlanId,
};

/// VLAN tags that are followed; a frame with more is of no known network protocol.
const MOST_TAGS: usize = 4;
/// IPv6 extension headers that are followed.
const MOST_EXTENSIONS: u8 = 8;

pub(crate) const ETHERTYPE_IPV4: u16 = 0x0800;
pub(crate) const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_ARP: u16 = 0x0806;
const ETHERTYPE_PPPOE_DISCOVERY: u16 = 0x8863;
const ETHERTYPE_PPPOE_SESSION: u16 = 0x8864;

/// The addresses that IEEE 802.1D reserves for the protocols of a link, except for their low four bits.
const RESERVED: u128 = 0x0180_c200_0000;
/// Where the number of its protocol begins in a PPPoE session's frame, behind the Ethernet header. A
/// number from 0x8000 on is of a control protocol (RFC 1661, 2).
const PPP_PROTOCOL: usize = 6;
/// ICMPv6 types of router and neighbour solicitation, advertisement and redirection (RFC 4861), and
/// the hop limit without which a packet is none of them.
const NEIGHBOUR_DISCOVERY: core::ops::RangeInclusive<u8> = 133..=137;
const NEIGHBOURS_HOP_LIMIT: u8 = 255;

/// Bytes of the headers, or of the part of one that is looked at.
const ETHERNET: usize = 14;
const TAG: usize = 4;
const IPV4: usize = 20;
const IPV6: usize = 40;
/// The common length of all extension headers.
const EXTENSION: usize = 8;
const PORTS: usize = 4;

const fn malformed(header: Header, reason: Reason) -> Malformed {
    Malformed { header, reason }
}

/// Returns the first `N` bytes, and those behind them.
#[inline]
fn take<const N: usize>(bytes: &[u8], header: Header) -> Result<(&[u8; N], &[u8]), Malformed> {
    let short = malformed(header, Reason::Short(N as u16));
    bytes.split_first_chunk().ok_or(short)
}

/// Returns the two bytes of a field at `place`, which lies within the header.
#[inline]
fn u16_at<const N: usize>(header: &[u8; N], place: usize) -> u16 {
    u16::from_be_bytes([header[place], header[place + 1]])
}

/// Returns the four bytes of a field at `place`.
#[inline]
fn u32_at<const N: usize>(header: &[u8; N], place: usize) -> u32 {
    u32::from_be_bytes([
        header[place],
        header[place + 1],
        header[place + 2],
        header[place + 3],
    ])
}

/// Returns an IPv6 address at `place`.
#[inline]
fn u128_at(header: &[u8; IPV6], place: usize) -> u128 {
    let word = |number: usize| u128::from(u32_at(header, place + 4 * number));
    word(0) << 96 | word(1) << 64 | word(2) << 32 | word(3)
}

/// Reads the headers of a packet whose first byte is of `layer`, up to the ports. O(1): at most four
/// VLAN tags and eight IPv6 extension headers.
///
/// A packet other than IP is no error, but of [`Family::Other`]. Padding behind the datagram is ignored.
/// Not verified: the header's checksum, and anything behind the ports.
///
/// # Errors
///
/// A packet that ends within a header, or contradicts itself: which header, and how.
#[inline]
pub fn parse(bytes: &[u8], layer: Layer) -> Result<Headers, Malformed> {
    let mut headers = Headers::default();
    read(bytes, layer, &mut headers)?;
    Ok(headers)
}

/// The same into headers of which nothing is known, where they stay.
#[inline]
pub(crate) fn read(bytes: &[u8], layer: Layer, headers: &mut Headers) -> Result<(), Malformed> {
    match layer {
        Layer::Ip => match bytes.first().map(|first| first >> 4) {
            Some(6) => ipv6(bytes, headers),
            Some(4) => ipv4(bytes, headers),
            Some(version) => Err(malformed(Header::Ipv4, Reason::Version(version))),
            None => Err(malformed(Header::Ipv4, Reason::Short(20))),
        },
        Layer::Ethernet => {
            let (link, ip) = link(bytes)?;
            headers.ethertype = link.ethertype;
            headers.vlan = link.vlan;
            headers.ip_offset = (bytes.len() - ip.len()) as u16;
            match link.ethertype {
                ETHERTYPE_IPV4 => ipv4(ip, headers),
                ETHERTYPE_IPV6 => ipv6(ip, headers),
                _ => {
                    not_ip(bytes, ip, headers);
                    Ok(())
                }
            }
        }
    }
}

/// Reads the MAC addresses of a frame that has an Ethernet header, and whether it is link-layer control.
/// By itself: few frames are not IP.
#[inline(never)]
fn not_ip(frame: &[u8], behind: &[u8], headers: &mut Headers) {
    let address = |at: usize| {
        let bytes = frame[at..at + 6].iter();
        bytes.fold(0, |all, &byte| all << 8 | u128::from(byte))
    };
    (headers.destination, headers.source) = (address(0), address(6));
    let is_ppp_control = || behind.get(PPP_PROTOCOL).is_some_and(|&high| high >= 0x80);
    headers.link_control = match headers.ethertype {
        ETHERTYPE_ARP | ETHERTYPE_PPPOE_DISCOVERY => true,
        ETHERTYPE_PPPOE_SESSION if is_ppp_control() => true,
        _ => headers.destination & !0xf == RESERVED,
    };
}

/// Like [`parse`], but for a malformed packet returns the fields from the IP header on that precede the
/// fault: the addresses of a datagram with a truncated TCP header, for example.
pub fn parse_partly(bytes: &[u8], layer: Layer) -> (Headers, Option<Malformed>) {
    let wrong = match parse(bytes, layer) {
        Ok(headers) => return (headers, None),
        Err(wrong) => wrong,
    };
    let mut headers = Headers::default();
    let ip = match (layer, link(bytes)) {
        (Layer::Ip, _) => Some(bytes),
        (Layer::Ethernet, Ok((_, ip))) => Some(ip),
        (Layer::Ethernet, Err(_)) => None,
    };
    // One of the two does not apply to the packet, and changes nothing.
    let _ = ip.map(|ip| ipv4(ip, &mut headers).or_else(|_| ipv6(ip, &mut headers)));
    (headers, Some(wrong))
}

/// The headers before the network protocol's.
struct Link {
    ethertype: u16,
    vlan: Option<VlanId>,
}

#[inline]
fn link(bytes: &[u8]) -> Result<(Link, &[u8]), Malformed> {
    let (ethernet, mut rest) = take::<ETHERNET>(bytes, Header::Ethernet)?;
    let mut link = Link {
        ethertype: u16_at(ethernet, 12),
        vlan: None,
    };
    for _ in 0..MOST_TAGS {
        // 802.1Q, 802.1ad, and the latter before it had a number of its own.
        if !matches!(link.ethertype, 0x8100 | 0x88a8 | 0x9100) {
            break;
        }
        let (tag, behind) = take::<TAG>(rest, Header::Vlan)?;
        link.ethertype = u16_at(tag, 2);
        link.vlan = link.vlan.or(VlanId::new(u16_at(tag, 0) & 0x0fff));
        rest = behind;
    }
    Ok((link, rest))
}

/// Returns the ether type of the header behind Ethernet and VLAN tags, and where it begins in the
/// frame. O(1).
///
/// ```
/// use fairlane_classify::network;
///
/// let tagged = [&[2; 12][..], &[0x81, 0x00, 0, 7, 0x08, 0x00, 0x45]].concat();
/// assert_eq!(network(&tagged), Some((0x0800, 18)));
/// assert_eq!(network(&tagged[..17]), None);
/// ```
pub fn network(frame: &[u8]) -> Option<(u16, usize)> {
    let (link, rest) = link(frame).ok()?;
    Some((link.ethertype, frame.len() - rest.len()))
}

#[inline]
fn ipv4(bytes: &[u8], headers: &mut Headers) -> Result<(), Malformed> {
    let wrong = |reason| malformed(Header::Ipv4, reason);
    let (ip, _) = take::<IPV4>(bytes, Header::Ipv4)?;
    if ip[0] >> 4 != 4 {
        return Err(wrong(Reason::Version(ip[0] >> 4)));
    }
    let header = usize::from(ip[0] & 0xf) * 4;
    if header < IPV4 {
        return Err(wrong(Reason::HeaderLength(header as u16)));
    }
    let total = usize::from(u16_at(ip, 2));
    let payload = bytes
        .get(..total)
        .and_then(|datagram| datagram.get(header..))
        .ok_or(wrong(Reason::TotalLength(total as u32)))?;
    headers.family = Family::V4;
    headers.source = u32_at(ip, 12).into();
    headers.destination = u32_at(ip, 16).into();
    headers.dscp = Dscp::of_traffic_class(ip[1]);
    headers.ecn = ip[1] & 3;
    let place = u16_at(ip, 6);
    if place & 0x3fff != 0 {
        let offset = u32::from(place & 0x1fff) * 8;
        let id = u16_at(ip, 4).into();
        note_fragment(headers, id, offset, place & 0x2000 != 0, payload);
    }
    transport(Protocol(ip[9]), payload, headers)
}

#[inline]
fn ipv6(bytes: &[u8], headers: &mut Headers) -> Result<(), Malformed> {
    let (ip, rest) = take::<IPV6>(bytes, Header::Ipv6)?;
    let first = u32_at(ip, 0);
    if first >> 28 != 6 {
        let version = Reason::Version((first >> 28) as u8);
        return Err(malformed(Header::Ipv6, version));
    }
    let payload = usize::from(u16_at(ip, 4));
    let rest = rest.get(..payload).ok_or_else(|| {
        let total = Reason::TotalLength((IPV6 + payload) as u32);
        malformed(Header::Ipv6, total)
    })?;
    let traffic_class = (first >> 20) as u8;
    headers.family = Family::V6;
    headers.source = u128_at(ip, 8);
    headers.destination = u128_at(ip, 24);
    headers.dscp = Dscp::of_traffic_class(traffic_class);
    headers.ecn = traffic_class & 3;
    let next = Protocol(ip[6]);
    if next.has_ports() {
        return transport(next, rest, headers);
    }
    headers.link_control = next == Protocol::ICMPV6
        && ip[7] == NEIGHBOURS_HOP_LIMIT
        && (rest.first()).is_some_and(|kind| NEIGHBOUR_DISCOVERY.contains(kind));
    extensions(next, rest, headers)
}

/// Walks extension headers up to the datagram's payload.
#[inline(never)]
fn extensions<'a>(
    mut next: Protocol,
    mut rest: &'a [u8],
    headers: &mut Headers,
) -> Result<(), Malformed> {
    for _ in 0..=MOST_EXTENSIONS {
        let fragment = next.0 == 44;
        // Hop-by-hop options, routing, destination options, mobility, HIP, shim6 count
        // eight bytes beyond the first; the authentication header counts four.
        let unit = match next.0 {
            0 | 43 | 60 | 135 | 139 | 140 => 8,
            51 => 4,
            44 => 0,
            _ => return transport(next, rest, headers),
        };
        let (extension, _) = take::<EXTENSION>(rest, Header::Ipv6Extension)?;
        let length = 8 + unit * usize::from(extension[1]);
        let behind: &'a [u8] = rest.get(length..).ok_or(malformed(
            Header::Ipv6Extension,
            Reason::Short(length as u16),
        ))?;
        (next, rest) = (Protocol(extension[0]), behind);
        if fragment {
            let place = u16_at(extension, 2);
            if place & 0xfff9 != 0 {
                let id =
                    u32::from_be_bytes([extension[4], extension[5], extension[6], extension[7]]);
                note_fragment(headers, id, (place & 0xfff8).into(), place & 1 != 0, rest);
            }
            if headers.fragment == Fragment::Later {
                headers.protocol = Some(next);
                return Ok(());
            }
        }
    }
    let reason = Reason::TooMany(MOST_EXTENSIONS);
    Err(malformed(Header::Ipv6Extension, reason))
}

/// Notes the place of a fragment in its datagram. Out of line, since few packets are fragments.
#[cold]
#[inline(never)]
fn note_fragment(headers: &mut Headers, id: u32, offset: u32, has_more: bool, payload: &[u8]) {
    headers.fragment = match offset {
        0 => Fragment::First,
        _ => Fragment::Later,
    };
    headers.identification = id;
    headers.fragment_bytes = payload.len() as u16;
    headers.fragmented_bytes = match has_more {
        true => 0,
        false => offset + payload.len() as u32,
    };
}

#[inline]
fn transport(protocol: Protocol, bytes: &[u8], headers: &mut Headers) -> Result<(), Malformed> {
    headers.protocol = Some(protocol);
    let (header, least) = match protocol {
        _ if headers.fragment == Fragment::Later => return Ok(()),
        Protocol::TCP => (Header::Tcp, 20),
        Protocol::UDP => (Header::Udp, 8),
        Protocol::SCTP => (Header::Sctp, 12),
        Protocol::DCCP => (Header::Dccp, 12),
        Protocol::UDP_LITE => (Header::UdpLite, 8),
        _ => return Ok(()),
    };
    // A first fragment may be as short as eight bytes (RFC 791).
    let least = match headers.fragment {
        Fragment::No => least,
        _ => 8,
    };
    let short = malformed(header, Reason::Short(least as u16));
    let ports = bytes.first_chunk::<PORTS>().ok_or(short)?;
    if bytes.len() < least {
        return Err(short);
    }
    headers.ports = Some(Ports {
        source: u16_at(ports, 0),
        destination: u16_at(ports, 2),
    });
    Ok(())
}
