//! The fields of a passing TCP segment (RFC 9293, RFC 7323).

use crate::Layer;
use crate::parse::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, network};

const TCP: u8 = 6;
const IPV4: usize = 20;
const IPV6: usize = 40;
/// Bytes of a TCP header without options.
const HEADER: usize = 20;

const FIN: u8 = 1;
const SYN: u8 = 2;
const ACK: u8 = 16;

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
        Layer::Ethernet if matches!(bytes.get(12..14)?, [0x08, 0x00]) => &bytes[14..],
        Layer::Ethernet => match network(bytes)? {
            (ETHERTYPE_IPV4 | ETHERTYPE_IPV6, offset) => bytes.get(offset..)?,
            _ => return None,
        },
    };
    match ip.first()? >> 4 {
        4 => ipv4(ip),
        6 => ipv6(ip),
        _ => None,
    }
}

#[inline]
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[inline]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline]
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) << 32 | u64::from(u32_at(bytes, at + 4))
}

#[inline]
fn ipv4(ip: &[u8]) -> Option<Segment> {
    let header = ip.first_chunk::<IPV4>()?;
    // A fragment has no header of TCP, or not the whole segment.
    if header[9] != TCP || u16_at(header, 6) & 0x3fff != 0 {
        return None;
    }
    let length = usize::from(header[0] & 0xf) * 4;
    let tcp = ip.get(length.max(IPV4)..usize::from(u16_at(header, 2)))?;
    let ends = [u32_at(header, 12).into(), u32_at(header, 16).into()];
    tcp_segment(tcp, ends, header[1])
}

fn ipv6(ip: &[u8]) -> Option<Segment> {
    let header = ip.first_chunk::<IPV6>()?;
    if header[6] != TCP {
        return None;
    }
    let tcp = ip.get(IPV6..IPV6 + usize::from(u16_at(header, 4)))?;
    let end = |at| mixed(u64_at(header, at)) ^ u64_at(header, at + 8);
    tcp_segment(tcp, [end(8), end(24)], header[1] >> 4)
}

/// `ends` are numbers of both addresses.
#[inline]
fn tcp_segment(tcp: &[u8], ends: [u64; 2], traffic_class: u8) -> Option<Segment> {
    let header = tcp.first_chunk::<HEADER>()?;
    let behind = usize::from(header[12] >> 4) * 4;
    let (value, echo) = timestamps(tcp.get(HEADER..behind)?)?;
    let of = |end: u64, port_at| mixed(end ^ u64::from(u16_at(header, port_at)) << 40);
    let (source, destination) = (of(ends[0], 0), of(ends[1], 2));
    let flags = header[13];
    let beyond = u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
    let length = (tcp.len() - behind) as u32 + beyond;
    Some(Segment {
        flow: source.rotate_left(21).wrapping_add(destination),
        reverse: destination.rotate_left(21).wrapping_add(source),
        next: u32_at(header, 4).wrapping_add(length),
        length,
        value,
        echo: (flags & ACK != 0).then_some(echo),
        marked: traffic_class & 3 == 3,
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
