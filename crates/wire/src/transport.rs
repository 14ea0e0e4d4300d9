//! The protocols whose headers begin with two ports.

use crate::bytes::u16_at;
use crate::{Fragment, Header, Headers, Malformed, Ports, Protocol, Reason, tcp, udp};

/// Bytes of the ports.
pub const PORTS: usize = 4;
/// Bytes of the header that a first fragment has at least, of any protocol (RFC 791).
pub const SHORTEST_FIRST: usize = 8;

impl Header {
    /// SCTP's common header, 12 bytes.
    pub const SCTP: Header = Header(&"an SCTP header");
    /// DCCP, 12 bytes or more.
    pub const DCCP: Header = Header(&"a DCCP header");
    /// UDP-Lite, 8 bytes.
    pub const UDP_LITE: Header = Header(&"a UDP-Lite header");
}

impl Protocol {
    /// DCCP.
    pub const DCCP: Protocol = Protocol(33);
    /// SCTP.
    pub const SCTP: Protocol = Protocol(132);
    /// UDP-Lite.
    pub const UDP_LITE: Protocol = Protocol(136);

    /// Returns the header of a protocol with ports, and the bytes that it has at least.
    #[inline]
    pub const fn header_with_ports(self) -> Option<(Header, usize)> {
        Some(match self {
            Protocol::TCP => (Header::TCP, tcp::LENGTH),
            Protocol::UDP => (Header::UDP, udp::LENGTH),
            Protocol::SCTP => (Header::SCTP, 12),
            Protocol::DCCP => (Header::DCCP, 12),
            Protocol::UDP_LITE => (Header::UDP_LITE, 8),
            _ => return None,
        })
    }

    /// Returns whether its packets have ports.
    #[inline]
    pub const fn has_ports(self) -> bool {
        self.header_with_ports().is_some()
    }
}

/// Reads the ports of a datagram's payload.
#[inline]
pub(crate) fn read(
    protocol: Protocol,
    bytes: &[u8],
    headers: &mut Headers,
) -> Result<(), Malformed> {
    headers.protocol = Some(protocol);
    if headers.fragment == Fragment::Later {
        return Ok(());
    }
    let Some((header, shortest)) = protocol.header_with_ports() else {
        return Ok(());
    };
    let shortest = match headers.fragment {
        Fragment::No => shortest,
        _ => SHORTEST_FIRST,
    };
    let short = Malformed::new(header, Reason::Short(shortest as u16));
    let ports = bytes.first_chunk::<PORTS>().ok_or(short)?;
    if bytes.len() < shortest {
        return Err(short);
    }
    headers.ports = Some(Ports {
        source: u16_at(ports, 0),
        destination: u16_at(ports, 2),
    });
    Ok(())
}
