//! IPv6 (RFC 8200) with its extension headers.

use alloc::vec;

use crate::build::{Announced, Build, Next, Written, is_complete};
use crate::bytes::{put, take, u16_at, u32_at, u128_at};
use crate::{
    Dscp, Family, Fragment, Header, Headers, Malformed, Protocol, Reason, ecn, icmpv6, ipv4, pppoe,
    transport,
};

/// Its type in an Ethernet header.
pub const TYPE: u16 = 0x86dd;
/// Bytes of the header without extension headers.
pub const LENGTH: usize = 40;
/// The offset of the length of all that follows the header.
pub const PAYLOAD_LENGTH: usize = 4;
/// The offset of the protocol of the next header.
pub const NEXT_HEADER: usize = 6;
/// The offset of the hop limit.
pub const HOP_LIMIT: usize = 7;
/// The offset of the source address.
pub const SOURCE: usize = 8;
/// The offset of the destination address.
pub const DESTINATION: usize = 24;
/// The first 32 bits are the version, the traffic class and the flow label; shifted by this the second is the lowest.
pub const TRAFFIC_CLASS_SHIFT: u32 = 20;

/// The protocol of IPv6 in IP (RFC 4213).
pub const IN_IP: u8 = 41;
/// The protocol of no header at all.
pub const NOTHING: u8 = 59;

/// Extension headers that are followed.
pub const MOST_EXTENSIONS: u8 = 8;
/// Bytes that all extension headers have.
pub const EXTENSION: usize = 8;
/// Hop-by-hop options.
pub const HOP_BY_HOP: u8 = 0;
/// The routing header.
pub const ROUTING: u8 = 43;
/// The fragment header.
pub const FRAGMENT_HEADER: u8 = 44;
/// The authentication header (RFC 4302).
pub const AUTHENTICATION: u8 = 51;
/// Destination options.
pub const DESTINATION_OPTIONS: u8 = 60;
/// The offset of a fragment's place in the fragment header.
pub const FRAGMENT: usize = 2;
/// The offset of the identification in the fragment header.
pub const IDENTIFICATION: usize = 4;
/// Of [`FRAGMENT`]: the place in the datagram, in bytes.
pub const FRAGMENT_OFFSET: u16 = 0xfff8;
/// Of [`FRAGMENT`]: more fragments follow.
pub const MORE_FRAGMENTS: u16 = 1;

impl Header {
    /// IPv6, 40 bytes.
    pub const IPV6: Header = Header(&"an IPv6 header");
    /// An IPv6 extension header, fragment header and authentication header included.
    pub const IPV6_EXTENSION: Header = Header(&"an IPv6 extension header");
}

/// Returns the unit of an extension header's length in bytes, beyond its first eight; `None` for a protocol that is no
/// extension header. A fragment header has no length: its unit is 0.
#[inline]
pub const fn extension_unit(protocol: Protocol) -> Option<usize> {
    // Mobility, HIP and shim6 are the last three.
    match protocol.0 {
        HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS | 135 | 139 | 140 => Some(8),
        AUTHENTICATION => Some(4),
        FRAGMENT_HEADER => Some(0),
        _ => None,
    }
}

/// Reads a packet up to its ports.
#[inline]
pub(crate) fn read(bytes: &[u8], headers: &mut Headers) -> Result<(), Malformed> {
    let (ip, rest) = take::<LENGTH>(bytes, Header::IPV6)?;
    let first = u32_at(ip, 0);
    if first >> 28 != 6 {
        let version = Reason::Version((first >> 28) as u8);
        return Err(Malformed::new(Header::IPV6, version));
    }
    let payload = usize::from(u16_at(ip, PAYLOAD_LENGTH));
    let rest = rest.get(..payload).ok_or_else(|| {
        let total = Reason::TotalLength((LENGTH + payload) as u32);
        Malformed::new(Header::IPV6, total)
    })?;
    let traffic_class = (first >> TRAFFIC_CLASS_SHIFT) as u8;
    headers.family = Family::V6;
    headers.source = u128_at(ip, SOURCE);
    headers.destination = u128_at(ip, DESTINATION);
    headers.dscp = Dscp::of_traffic_class(traffic_class);
    headers.ecn = traffic_class & ecn::CE;
    let next = Protocol(ip[NEXT_HEADER]);
    if next.has_ports() {
        return transport::read(next, rest, headers);
    }
    headers.link_control =
        next == Protocol::ICMPV6 && icmpv6::is_neighbour_discovery(ip[HOP_LIMIT], rest);
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
        let is_fragment = next.0 == FRAGMENT_HEADER;
        let Some(unit) = extension_unit(next) else {
            return transport::read(next, rest, headers);
        };
        let (extension, _) = take::<EXTENSION>(rest, Header::IPV6_EXTENSION)?;
        let length = EXTENSION + unit * usize::from(extension[1]);
        let short = Malformed::new(Header::IPV6_EXTENSION, Reason::Short(length as u16));
        let behind: &'a [u8] = rest.get(length..).ok_or(short)?;
        (next, rest) = (Protocol(extension[0]), behind);
        if is_fragment {
            let place = u16_at(extension, FRAGMENT);
            let offset = place & FRAGMENT_OFFSET;
            let has_more = place & MORE_FRAGMENTS != 0;
            if offset != 0 || has_more {
                let id = u32_at(extension, IDENTIFICATION);
                headers.note_fragment(id, offset.into(), has_more, rest);
            }
            if headers.fragment == Fragment::Later {
                headers.protocol = Some(next);
                return Ok(());
            }
        }
    }
    let reason = Reason::TooMany(MOST_EXTENSIONS);
    Err(Malformed::new(Header::IPV6_EXTENSION, reason))
}

/// Sets "congestion experienced" in a packet of an ECN-capable transport. Returns whether it is set now.
pub(crate) fn mark_ce(header: &mut [u8; LENGTH]) -> bool {
    // The traffic class lies across the first two bytes; its low bits are here.
    let ecn = header[1] >> 4 & ecn::CE;
    header[1] |= if ecn == 0 { 0 } else { ecn::CE << 4 };
    ecn != 0
}

impl Build {
    /// Writes an IPv6 header without extension headers.
    #[must_use]
    pub fn ipv6(mut self, source: [u8; 16], destination: [u8; 16]) -> Build {
        let mut header = [0; LENGTH];
        (header[0], header[NEXT_HEADER], header[HOP_LIMIT]) = (0x60, NOTHING, 64);
        header[SOURCE..DESTINATION].copy_from_slice(&source);
        header[DESTINATION..].copy_from_slice(&destination);
        let announced = Announced {
            ethertype: TYPE,
            ppp: pppoe::PPP_IPV6,
            protocol: IN_IP,
        };
        let at = self.bytes.len();
        self.addresses = at + SOURCE..at + LENGTH;
        self.header(
            announced,
            &header,
            Some(Next::Protocol(NEXT_HEADER)),
            finish,
        )
    }

    /// Writes an extension header, with `units` more of its length than the shortest has. All its options are padding,
    /// and a routing header is at its end.
    #[must_use]
    pub fn extension(self, protocol: u8, units: u8) -> Build {
        let unit = extension_unit(Protocol(protocol)).unwrap_or_default();
        let more = unit * usize::from(units);
        let mut header = vec![0; EXTENSION];
        (header[0], header[1]) = (NOTHING, units);
        if matches!(protocol, HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS) {
            // An option of padding over the rest of eight bytes.
            header[2..4].copy_from_slice(&[1, 4]);
            let padding = [1, 6, 0, 0, 0, 0, 0, 0];
            header.extend(padding.iter().cycle().take(more));
        } else {
            header.resize(EXTENSION + more, 0);
        }
        let announced = Announced::of(Protocol(protocol));
        self.header(announced, &header, Some(Next::Protocol(0)), is_complete)
    }

    /// Changes the traffic class of the last IP header.
    #[must_use]
    pub fn traffic_class(mut self, class: u8) -> Build {
        let at = match self.addresses.len() {
            8 => self.addresses.start - ipv4::SOURCE,
            _ => self.addresses.start - SOURCE,
        };
        match &mut self.bytes[at..] {
            [first, second, ..] if *first >> 4 == 6 => {
                *first = 0x60 | class >> 4;
                *second = class << 4 | *second & 0xf;
            }
            ip => ip[ipv4::TRAFFIC_CLASS] = class,
        }
        self
    }
}

fn finish(packet: &mut [u8], written: &Written) {
    let ip = &mut packet[written.at..];
    put(ip, PAYLOAD_LENGTH, (ip.len() - LENGTH) as u16);
}
