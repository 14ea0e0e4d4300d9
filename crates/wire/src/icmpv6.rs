//! ICMPv6 (RFC 4443), as far as neighbours use it.

use core::ops::RangeInclusive;

use crate::Protocol;

/// The types of router and neighbour solicitation, advertisement and redirection (RFC 4861).
pub const NEIGHBOUR_DISCOVERY: RangeInclusive<u8> = 133..=137;
/// The hop limit without which a message is not of neighbour discovery.
pub const HOP_LIMIT: u8 = 255;

impl Protocol {
    /// ICMP of IPv6.
    pub const ICMPV6: Protocol = Protocol(58);
}

/// Returns whether a message is one of neighbour discovery.
#[inline]
pub(crate) fn is_neighbour_discovery(hop_limit: u8, message: &[u8]) -> bool {
    hop_limit == HOP_LIMIT
        && (message.first()).is_some_and(|kind| NEIGHBOUR_DISCOVERY.contains(kind))
}
