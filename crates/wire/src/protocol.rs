//! The protocols that IP carries.

use core::fmt;
use core::str::FromStr;

use crate::names::{named, write_name};

/// The payload protocol of an IP datagram: the number of IPv4's protocol and IPv6's next header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Protocol(pub u8);

impl Protocol {
    /// ICMP of IPv4.
    pub const ICMP: Protocol = Protocol(1);
    /// The names that are read and written.
    pub const NAMES: [(&'static str, Protocol); 11] = [
        ("icmp", Protocol::ICMP),
        ("igmp", Protocol(2)),
        ("tcp", Protocol::TCP),
        ("udp", Protocol::UDP),
        ("dccp", Protocol::DCCP),
        ("gre", Protocol(47)),
        ("esp", Protocol(50)),
        ("ah", Protocol(51)),
        ("icmpv6", Protocol::ICMPV6),
        ("sctp", Protocol::SCTP),
        ("udp-lite", Protocol::UDP_LITE),
    ];
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_name(f, &Protocol::NAMES, *self, self.0)
    }
}

/// Why a text is no protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a protocol is a number from 0 to 255, or a name such as tcp, udp, icmp")]
pub struct ParseProtocolError;

impl FromStr for Protocol {
    type Err = ParseProtocolError;

    /// Reads a name of [`Protocol::NAMES`], any case, or a number.
    fn from_str(text: &str) -> Result<Protocol, ParseProtocolError> {
        named(&Protocol::NAMES, text)
            .or_else(|| text.parse().ok().map(Protocol))
            .ok_or(ParseProtocolError)
    }
}
