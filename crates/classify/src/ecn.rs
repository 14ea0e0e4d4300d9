//! Explicit congestion notification (RFC 3168): a mark instead of a drop.

use crate::Layer;
use crate::parse::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, network};

/// "Congestion experienced", the two low bits of a traffic class.
const CE: u8 = 0b11;

/// Sets "congestion experienced" in a packet of an ECN-capable transport, whose first byte
/// is of `layer`; says whether it is set now. `false`: the transport does not know ECN, or
/// it is not IP, and nothing was written. O(1).
///
/// The checksum of an IPv4 header is updated for the bits that changed (RFC 1624): one
/// that was wrong stays wrong, so damage is not covered up.
#[inline]
pub fn mark_ce(bytes: &mut [u8], layer: Layer) -> bool {
    let (version, offset) = match layer {
        Layer::Ip => (None, 0),
        Layer::Ethernet => match network(bytes) {
            Some((ETHERTYPE_IPV4, offset)) => (Some(4), offset),
            Some((ETHERTYPE_IPV6, offset)) => (Some(6), offset),
            _ => return false,
        },
    };
    let ip = &mut bytes[offset..];
    match ip.first().map(|first| first >> 4) {
        found if version.is_some() && found != version => false,
        Some(4) => ip.first_chunk_mut().is_some_and(mark_ipv4),
        Some(6) => ip.first_chunk_mut().is_some_and(mark_ipv6),
        _ => false,
    }
}

fn mark_ipv4(header: &mut [u8; 20]) -> bool {
    match header[1] & CE {
        0 => return false,
        CE => return true,
        _ => {}
    }
    let word = |header: &[u8; 20], at| u16::from_be_bytes([header[at], header[at + 1]]);
    let before = word(header, 0);
    header[1] |= CE;
    // RFC 1624, Eq. 3: HC' = ~(~HC + ~m + m'), in ones' complement. The sum is never
    // zero, as m has a version in it, so HC' is never 0xffff, as of a fresh header.
    let sum = [!word(header, 10), !before, word(header, 0)];
    let sum: u32 = sum.map(u32::from).iter().sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    header[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    true
}

fn mark_ipv6(header: &mut [u8; 40]) -> bool {
    // The traffic class lies across the first two bytes; its low bits are here.
    let ecn = header[1] >> 4 & CE;
    header[1] |= if ecn == 0 { 0 } else { CE << 4 };
    ecn != 0
}
