//! IPv4 (RFC 791).

use alloc::vec;

use crate::build::{Announced, Build, Next, Written};
use crate::bytes::{put, take, u16_at, u32_at};
use crate::checksum::{fold, internet_sum};
use crate::{Dscp, Family, Header, Headers, Malformed, Protocol, Reason, ecn, pppoe, transport};

/// Its type in an Ethernet header.
pub const TYPE: u16 = 0x0800;
/// Bytes of the header without options.
pub const LENGTH: usize = 20;
/// The offset of the type of service.
pub const TRAFFIC_CLASS: usize = 1;
/// The offset of the length of header and payload.
pub const TOTAL_LENGTH: usize = 2;
/// The offset of the identification.
pub const IDENTIFICATION: usize = 4;
/// The offset of the flags and of the place of a fragment.
pub const FRAGMENT: usize = 6;
/// The offset of the time to live.
pub const TTL: usize = 8;
/// The offset of the payload's protocol.
pub const PROTOCOL: usize = 9;
/// The offset of the checksum of the header.
pub const CHECKSUM: usize = 10;
/// The offset of the source address.
pub const SOURCE: usize = 12;
/// The offset of the destination address.
pub const DESTINATION: usize = 16;
/// The protocol of IPv4 in IP (RFC 2003).
pub const IN_IP: u8 = 4;
/// The protocol of no header at all, as IPv6 has it.
const NOTHING: u8 = 59;
/// Of [`FRAGMENT`]: the datagram may not be fragmented.
pub const DONT_FRAGMENT: u16 = 0x4000;
/// Of [`FRAGMENT`]: more fragments follow.
pub const MORE_FRAGMENTS: u16 = 0x2000;
/// Of [`FRAGMENT`]: the place of a fragment in its datagram, in units of eight bytes.
pub const FRAGMENT_OFFSET: u16 = 0x1fff;

impl Header {
    /// IPv4, with its options.
    pub const IPV4: Header = Header(&"an IPv4 header");
}

/// Returns the bytes of a header with options, from its first byte.
#[inline]
pub(crate) fn length(first: u8) -> usize {
    usize::from(first & 0xf) * 4
}

/// Returns whether the field [`FRAGMENT`] is that of a fragment.
#[inline]
pub(crate) fn is_fragment(field: u16) -> bool {
    field & (MORE_FRAGMENTS | FRAGMENT_OFFSET) != 0
}

/// Reads a packet up to its ports.
#[inline]
pub(crate) fn read(bytes: &[u8], headers: &mut Headers) -> Result<(), Malformed> {
    let wrong = |reason| Malformed::new(Header::IPV4, reason);
    let (ip, _) = take::<LENGTH>(bytes, Header::IPV4)?;
    if ip[0] >> 4 != 4 {
        return Err(wrong(Reason::Version(ip[0] >> 4)));
    }
    let header = length(ip[0]);
    if header < LENGTH {
        return Err(wrong(Reason::HeaderLength(header as u16)));
    }
    let total = usize::from(u16_at(ip, TOTAL_LENGTH));
    let payload = bytes
        .get(..total)
        .and_then(|datagram| datagram.get(header..))
        .ok_or(wrong(Reason::TotalLength(total as u32)))?;
    headers.family = Family::V4;
    headers.source = u32_at(ip, SOURCE).into();
    headers.destination = u32_at(ip, DESTINATION).into();
    headers.dscp = Dscp::of_traffic_class(ip[TRAFFIC_CLASS]);
    headers.ecn = ip[TRAFFIC_CLASS] & ecn::CE;
    let place = u16_at(ip, FRAGMENT);
    if is_fragment(place) {
        let offset = u32::from(place & FRAGMENT_OFFSET) * 8;
        let id = u16_at(ip, IDENTIFICATION).into();
        headers.note_fragment(id, offset, place & MORE_FRAGMENTS != 0, payload);
    }
    transport::read(Protocol(ip[PROTOCOL]), payload, headers)
}

/// Computes the checksum of the header that a packet begins with.
pub(crate) fn write_checksum(packet: &mut [u8]) {
    put(packet, CHECKSUM, 0);
    let checksum = !internet_sum(&packet[..length(packet[0])]);
    put(packet, CHECKSUM, checksum);
}

/// Sets "congestion experienced" in a packet of an ECN-capable transport, and updates the checksum for the bits that
/// changed. Returns whether it is set now.
pub(crate) fn mark_ce(header: &mut [u8; LENGTH]) -> bool {
    match header[TRAFFIC_CLASS] & ecn::CE {
        0 => return false,
        ecn::CE => return true,
        _ => {}
    }
    let before = u16_at(header, 0);
    header[TRAFFIC_CLASS] |= ecn::CE;
    // RFC 1624, Eq. 3: HC' = ~(~HC + ~m + m'), in ones' complement. The sum is never
    // zero, as m has a version in it, so HC' is never 0xffff, as of a fresh header.
    let sum = [!u16_at(header, CHECKSUM), !before, u16_at(header, 0)];
    let sum = fold(sum.map(u64::from).iter().sum());
    put(header, CHECKSUM, !sum);
    true
}

impl Build {
    /// Writes an IPv4 header of a datagram that is not fragmented.
    #[must_use]
    pub fn ipv4(self, source: [u8; 4], destination: [u8; 4]) -> Build {
        self.ipv4_with(source, destination, &[])
    }

    /// The same with options, in words of four bytes.
    #[must_use]
    pub fn ipv4_with(mut self, source: [u8; 4], destination: [u8; 4], options: &[u32]) -> Build {
        let mut header = vec![0; LENGTH];
        header[0] = 0x45 + options.len() as u8;
        (header[TTL], header[PROTOCOL]) = (64, NOTHING);
        header[SOURCE..DESTINATION].copy_from_slice(&source);
        header[DESTINATION..LENGTH].copy_from_slice(&destination);
        header.extend(options.iter().flat_map(|word| word.to_be_bytes()));
        let announced = Announced {
            ethertype: TYPE,
            ppp: pppoe::PPP_IPV4,
            protocol: IN_IP,
        };
        let at = self.bytes.len();
        self.addresses = at + SOURCE..at + LENGTH;
        self.header(announced, &header, Some(Next::Protocol(PROTOCOL)), finish)
    }
}

fn finish(packet: &mut [u8], written: &Written) {
    let ip = &mut packet[written.at..];
    put(ip, TOTAL_LENGTH, ip.len() as u16);
    write_checksum(ip);
}
