//! The fields of a passing TCP segment (RFC 9293, RFC 7323).

use crate::build::{Announced, Build, Written, sum};
use crate::bytes::{u16_at, u32_at, u64_at};
use crate::{Header, Layer, Protocol, ecn, ethernet, ipv4, ipv6, network};

/// Bytes of the header without options.
pub const LENGTH: usize = 20;
/// The offset of the sequence number.
pub const SEQUENCE: usize = 4;
/// The offset of the length of the header: the high half of a byte, in words of four bytes.
pub const DATA_OFFSET: usize = 12;
/// The offset of the flags.
pub const FLAGS: usize = 13;
/// The offset of the checksum.
pub const CHECKSUM: usize = 16;
/// Flag: no more data comes.
pub const FIN: u8 = 0x01;
/// Flag: a connection begins.
pub const SYN: u8 = 0x02;
/// Flag: the receiver may not wait for more.
pub const PSH: u8 = 0x08;
/// Flag: the acknowledgment number is valid.
pub const ACK: u8 = 0x10;
/// Flag: the sender has reduced its window (RFC 3168).
pub const CWR: u8 = 0x80;

impl Header {
    /// TCP, 20 bytes or more.
    pub const TCP: Header = Header(&"a TCP header");
}

impl Protocol {
    /// TCP.
    pub const TCP: Protocol = Protocol(6);
}

/// A TCP segment with timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// A number of its addresses and ports: the same for all segments of a connection in this
    /// direction, and for others but by chance.
    pub flow: u64,
    /// That of the segments in the other direction.
    pub reverse: u64,
    /// The sequence number behind it: the next segment's.
    pub next: u32,
    /// Its length in sequence numbers: bytes, and one each for SYN and FIN. It is acknowledged if
    /// there are any.
    pub length: u32,
    /// When it was sent, by its sender's clock (TSval).
    pub value: u32,
    /// The last such time that its sender has seen of the other end's (TSecr).
    pub echo: Option<u32>,
    /// A router has marked it: congestion experienced.
    pub marked: bool,
}

/// Returns the fields of a complete TCP segment, if it has timestamps; behind IPv6, if no extension
/// header precedes it. O(options): 40 bytes of them at most.
#[inline]
pub fn segment(bytes: &[u8], layer: Layer) -> Option<Segment> {
    let ip = match layer {
        Layer::Ip => bytes,
        // Most frames, without a look for tags.
        Layer::Ethernet if is_plain_ipv4(bytes)? => &bytes[ethernet::LENGTH..],
        Layer::Ethernet => match network(bytes)? {
            (ipv4::TYPE | ipv6::TYPE, offset) => bytes.get(offset..)?,
            _ => return None,
        },
    };
    match ip.first()? >> 4 {
        4 => over_ipv4(ip),
        6 => over_ipv6(ip),
        _ => None,
    }
}

#[inline]
fn is_plain_ipv4(frame: &[u8]) -> Option<bool> {
    let ethertype = frame.get(ethernet::TYPE..ethernet::LENGTH)?;
    Some(ethertype == ipv4::TYPE.to_be_bytes())
}

/// Returns the bytes of a header with its options.
#[inline]
pub(crate) fn length(header: &[u8]) -> usize {
    usize::from(header[DATA_OFFSET] >> 4) * 4
}

#[inline]
fn over_ipv4(ip: &[u8]) -> Option<Segment> {
    let header = ip.first_chunk::<{ ipv4::LENGTH }>()?;
    // A fragment has no header of TCP, or not the whole segment.
    let is_fragment = ipv4::is_fragment(u16_at(header, ipv4::FRAGMENT));
    if Protocol(header[ipv4::PROTOCOL]) != Protocol::TCP || is_fragment {
        return None;
    }
    let start = ipv4::length(header[0]).max(ipv4::LENGTH);
    let tcp = ip.get(start..usize::from(u16_at(header, ipv4::TOTAL_LENGTH)))?;
    let ends = [ipv4::SOURCE, ipv4::DESTINATION].map(|at| u32_at(header, at).into());
    read(tcp, ends, header[ipv4::TRAFFIC_CLASS])
}

fn over_ipv6(ip: &[u8]) -> Option<Segment> {
    let header = ip.first_chunk::<{ ipv6::LENGTH }>()?;
    if Protocol(header[ipv6::NEXT_HEADER]) != Protocol::TCP {
        return None;
    }
    let payload = usize::from(u16_at(header, ipv6::PAYLOAD_LENGTH));
    let tcp = ip.get(ipv6::LENGTH..ipv6::LENGTH + payload)?;
    let end = |at| mixed(u64_at(header, at)) ^ u64_at(header, at + 8);
    read(
        tcp,
        [end(ipv6::SOURCE), end(ipv6::DESTINATION)],
        header[1] >> 4,
    )
}

/// `ends` are numbers of both addresses.
#[inline]
fn read(tcp: &[u8], ends: [u64; 2], traffic_class: u8) -> Option<Segment> {
    let header = tcp.first_chunk::<LENGTH>()?;
    let behind = length(header);
    let (value, echo) = timestamps(tcp.get(LENGTH..behind)?)?;
    let of = |end: u64, port_at| mixed(end ^ u64::from(u16_at(header, port_at)) << 40);
    let (source, destination) = (of(ends[0], 0), of(ends[1], 2));
    let flags = header[FLAGS];
    let beyond = u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
    let length = (tcp.len() - behind) as u32 + beyond;
    Some(Segment {
        flow: source.rotate_left(21).wrapping_add(destination),
        reverse: destination.rotate_left(21).wrapping_add(source),
        next: u32_at(header, SEQUENCE).wrapping_add(length),
        length,
        value,
        echo: (flags & ACK != 0).then_some(echo),
        marked: traffic_class & ecn::CE == ecn::CE,
    })
}

/// TSval and TSecr.
#[inline]
fn timestamps(mut options: &[u8]) -> Option<(u32, u32)> {
    loop {
        match *options {
            // The layout of nearly all senders.
            [1, 1, 8, 10, ..] if options.len() >= 12 => {
                return Some((u32_at(options, 4), u32_at(options, 8)));
            }
            // No operation.
            [1, ..] => options = &options[1..],
            [8, 10, ..] if options.len() >= 10 => {
                return Some((u32_at(options, 2), u32_at(options, 6)));
            }
            [kind, length, ..] if kind != 0 && length >= 2 => {
                options = options.get(usize::from(length)..)?;
            }
            // The end of the options, or an invalid one.
            _ => return None,
        }
    }
}

/// One number for each other, spread over all bits.
#[inline]
fn mixed(number: u64) -> u64 {
    let product = (number ^ 0x2545_f491_4f6c_dd1d).wrapping_mul(0xd6e8_feb8_6659_fd93);
    product ^ product >> 32
}

impl Build {
    /// Writes the TCP header of a segment that carries data, with sequence number 0.
    #[must_use]
    pub fn tcp(self, source: u16, destination: u16) -> Build {
        self.tcp_with(source, destination, 0, ACK, &[])
    }

    /// The same with a sequence number, flags, and options in words of four bytes.
    #[must_use]
    pub fn tcp_with(
        self,
        source: u16,
        destination: u16,
        sequence: u32,
        flags: u8,
        options: &[u32],
    ) -> Build {
        let mut header = [source, destination].map(u16::to_be_bytes).concat();
        let words = (LENGTH / 4 + options.len()) as u8;
        header.extend(sequence.to_be_bytes());
        header.extend([0, 0, 0, 0, words << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
        header.extend(options.iter().flat_map(|word| word.to_be_bytes()));
        self.header(Announced::of(Protocol::TCP), &header, None, finish)
    }
}

fn finish(packet: &mut [u8], written: &Written) {
    sum(packet, written, Protocol::TCP, CHECKSUM);
}
