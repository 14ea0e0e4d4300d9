//! Reads the headers of a packet: each is checked against the bytes there are before a
//! field of it is used, and no loop is longer than a constant.

use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::{
    Dscp, Family, Fragment, Header, Headers, Layer, Malformed, Ports, Protocol, Reason, VlanId,
};

/// VLAN tags that are followed; a frame with more is of no known network protocol.
const MOST_TAGS: usize = 4;
/// IPv6 extension headers that are followed.
const MOST_EXTENSIONS: u8 = 8;

pub(crate) const ETHERTYPE_IPV4: u16 = 0x0800;
pub(crate) const ETHERTYPE_IPV6: u16 = 0x86dd;

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Ethernet {
    destination: [u8; 6],
    source: [u8; 6],
    ethertype: U16,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Tag {
    control: U16,
    ethertype: U16,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Ipv4 {
    version_and_length: u8,
    traffic_class: u8,
    total_length: U16,
    identification: U16,
    flags_and_offset: U16,
    time_to_live: u8,
    protocol: u8,
    checksum: U16,
    source: U32,
    destination: U32,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Ipv6 {
    version_class_label: U32,
    payload_length: U16,
    next_header: u8,
    hop_limit: u8,
    source: [u8; 16],
    destination: [u8; 16],
}

/// The first eight bytes of any extension header.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Extension {
    next_header: u8,
    length: u8,
    /// Of a fragment header: 13 bits of offset, two of nothing, "more fragments".
    offset_and_more: U16,
    rest: [u8; 4],
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct PortsHeader {
    source: U16,
    destination: U16,
}

const fn malformed(header: Header, reason: Reason) -> Malformed {
    Malformed { header, reason }
}

fn take<H: FromBytes + KnownLayout + Immutable + Unaligned>(
    bytes: &[u8],
    header: Header,
) -> Result<(&H, &[u8]), Malformed> {
    H::ref_from_prefix(bytes).map_err(|_| malformed(header, Reason::Short(size_of::<H>() as u16)))
}

/// Reads the headers of a packet whose first byte is of `layer`, up to the ports. O(1): at
/// most four VLAN tags and eight IPv6 extension headers.
///
/// What is not IP is no error, but of [`Family::Other`]. Padding behind the datagram is
/// ignored. Not verified: the header's checksum, and whatever is behind the ports.
///
/// # Errors
///
/// A packet that ends within a header, or contradicts itself: which header, and how.
#[inline]
pub fn parse(bytes: &[u8], layer: Layer) -> Result<Headers, Malformed> {
    let mut headers = Headers::default();
    match layer {
        Layer::Ip => match bytes.first().map(|first| first >> 4) {
            Some(6) => ipv6(bytes, &mut headers)?,
            Some(4) => ipv4(bytes, &mut headers)?,
            Some(version) => return Err(malformed(Header::Ipv4, Reason::Version(version))),
            None => return Err(malformed(Header::Ipv4, Reason::Short(20))),
        },
        Layer::Ethernet => {
            let (link, ip) = link(bytes)?;
            headers.ethertype = link.ethertype;
            headers.vlan = link.vlan;
            headers.ip_offset = (bytes.len() - ip.len()) as u16;
            match link.ethertype {
                ETHERTYPE_IPV4 => ipv4(ip, &mut headers)?,
                ETHERTYPE_IPV6 => ipv6(ip, &mut headers)?,
                _ => {}
            }
        }
    }
    Ok(headers)
}

/// What is before the network protocol's header.
struct Link {
    ethertype: u16,
    vlan: Option<VlanId>,
}

#[inline]
fn link(bytes: &[u8]) -> Result<(Link, &[u8]), Malformed> {
    let (ethernet, mut rest) = take::<Ethernet>(bytes, Header::Ethernet)?;
    let mut link = Link {
        ethertype: ethernet.ethertype.get(),
        vlan: None,
    };
    for _ in 0..MOST_TAGS {
        // 802.1Q, 802.1ad, and the latter before it had a number of its own.
        if !matches!(link.ethertype, 0x8100 | 0x88a8 | 0x9100) {
            break;
        }
        let (tag, behind) = take::<Tag>(rest, Header::Vlan)?;
        link.ethertype = tag.ethertype.get();
        link.vlan = link.vlan.or(VlanId::new(tag.control.get() & 0x0fff));
        rest = behind;
    }
    Ok((link, rest))
}

/// Where the header behind Ethernet and tags begins in a frame, and of what type it is.
pub(crate) fn network(frame: &[u8]) -> Option<(u16, usize)> {
    let (link, rest) = link(frame).ok()?;
    Some((link.ethertype, frame.len() - rest.len()))
}

#[inline]
fn ipv4(bytes: &[u8], headers: &mut Headers) -> Result<(), Malformed> {
    let wrong = |reason| malformed(Header::Ipv4, reason);
    let (ip, _) = take::<Ipv4>(bytes, Header::Ipv4)?;
    if ip.version_and_length >> 4 != 4 {
        return Err(wrong(Reason::Version(ip.version_and_length >> 4)));
    }
    let header = usize::from(ip.version_and_length & 0xf) * 4;
    if header < size_of::<Ipv4>() {
        return Err(wrong(Reason::HeaderLength(header as u16)));
    }
    let total = usize::from(ip.total_length.get());
    let payload = bytes
        .get(..total)
        .and_then(|datagram| datagram.get(header..))
        .ok_or(wrong(Reason::TotalLength(total as u32)))?;
    headers.family = Family::V4;
    headers.source = ip.source.get().into();
    headers.destination = ip.destination.get().into();
    headers.dscp = Dscp::of_traffic_class(ip.traffic_class);
    headers.ecn = ip.traffic_class & 3;
    let place = ip.flags_and_offset.get();
    headers.fragment = match (place & 0x1fff, place & 0x2000) {
        (0, 0) => Fragment::No,
        (0, _) => Fragment::First,
        _ => Fragment::Later,
    };
    transport(Protocol(ip.protocol), payload, headers)
}

#[inline]
fn ipv6(bytes: &[u8], headers: &mut Headers) -> Result<(), Malformed> {
    let (ip, rest) = take::<Ipv6>(bytes, Header::Ipv6)?;
    let first = ip.version_class_label.get();
    if first >> 28 != 6 {
        let version = Reason::Version((first >> 28) as u8);
        return Err(malformed(Header::Ipv6, version));
    }
    let payload = usize::from(ip.payload_length.get());
    let rest = rest.get(..payload).ok_or_else(|| {
        let total = Reason::TotalLength((size_of::<Ipv6>() + payload) as u32);
        malformed(Header::Ipv6, total)
    })?;
    let traffic_class = (first >> 20) as u8;
    headers.family = Family::V6;
    headers.source = u128::from_be_bytes(ip.source);
    headers.destination = u128::from_be_bytes(ip.destination);
    headers.dscp = Dscp::of_traffic_class(traffic_class);
    headers.ecn = traffic_class & 3;
    let next = Protocol(ip.next_header);
    if next.has_ports() {
        return transport(next, rest, headers);
    }
    extensions(next, rest, headers)
}

/// Walks extension headers up to what the datagram carries.
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
        let (extension, _) = take::<Extension>(rest, Header::Ipv6Extension)?;
        let length = 8 + unit * usize::from(extension.length);
        let behind: &'a [u8] = rest.get(length..).ok_or(malformed(
            Header::Ipv6Extension,
            Reason::Short(length as u16),
        ))?;
        (next, rest) = (Protocol(extension.next_header), behind);
        if fragment {
            let place = extension.offset_and_more.get();
            headers.fragment = match (place >> 3, place & 1) {
                (0, 0) => headers.fragment,
                (0, _) => Fragment::First,
                _ => Fragment::Later,
            };
            if headers.fragment == Fragment::Later {
                headers.protocol = Some(next);
                return Ok(());
            }
        }
    }
    let reason = Reason::TooMany(MOST_EXTENSIONS);
    Err(malformed(Header::Ipv6Extension, reason))
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
    let (ports, rest) = PortsHeader::ref_from_prefix(bytes).map_err(|_| short)?;
    if rest.len() + size_of::<PortsHeader>() < least {
        return Err(short);
    }
    headers.ports = Some(Ports {
        source: ports.source.get(),
        destination: ports.destination.get(),
    });
    Ok(())
}
