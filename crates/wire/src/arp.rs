//! ARP (RFC 826), of which the classifier reads the type alone.

/// Its type in an Ethernet header.
pub const TYPE: u16 = 0x0806;
