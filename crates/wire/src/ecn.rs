//! Explicit congestion notification (RFC 3168): a mark instead of a drop.

use crate::{Layer, ipv4, ipv6, network};

/// "Congestion experienced", the two low bits of a traffic class.
pub(crate) const CE: u8 = 0b11;

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
            Some((ipv4::TYPE, offset)) => (Some(4), offset),
            Some((ipv6::TYPE, offset)) => (Some(6), offset),
            _ => return false,
        },
    };
    let ip = &mut bytes[offset..];
    match ip.first().map(|first| first >> 4) {
        found if version.is_some() && found != version => false,
        Some(4) => ip.first_chunk_mut().is_some_and(ipv4::mark_ce),
        Some(6) => ip.first_chunk_mut().is_some_and(ipv6::mark_ce),
        _ => false,
    }
}
