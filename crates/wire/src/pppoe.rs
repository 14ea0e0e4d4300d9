//! PPP over Ethernet (RFC 2516), with the number of the PPP protocol (RFC 1661).

use crate::build::{Announced, Build, Next, Written};
use crate::bytes::{put, u16_at};
use crate::encapsulated::Inner;
use crate::{Header, Malformed, Reason};

/// The type of discovery in an Ethernet header.
pub const DISCOVERY: u16 = 0x8863;
/// The type of a session in an Ethernet header.
pub const SESSION: u16 = 0x8864;
/// Bytes of the header, the number of the protocol of PPP included.
pub const LENGTH: usize = 8;
/// The offset of the length of all that follows the PPPoE header.
pub const PAYLOAD_LENGTH: usize = 4;
/// The offset of the number of the protocol of PPP.
pub const PROTOCOL: usize = 6;
/// The number of IPv4 in PPP.
pub const PPP_IPV4: u16 = 0x0021;
/// The number of IPv6 in PPP.
pub const PPP_IPV6: u16 = 0x0057;
/// The first byte of the lowest number of a control protocol (RFC 1661, 2).
pub const CONTROL: u8 = 0x80;

/// Version, type and code of a session's frames.
pub const IS_SESSION: u16 = 0x1100;

impl Header {
    /// PPPoE with PPP's protocol, 8 bytes.
    pub const PPPOE: Header = Header(&"a PPPoE header");
}

/// Returns the content of a session's frame.
pub(crate) fn read(bytes: &[u8]) -> Result<Inner, Malformed> {
    if bytes.get(PROTOCOL).is_some_and(|&high| high >= CONTROL) {
        return Ok(Inner::Control);
    }
    let Some((header, rest)) = bytes.split_first_chunk::<LENGTH>() else {
        return Ok(Inner::Other);
    };
    let protocol = u16_at(header, PROTOCOL);
    let is_ip = matches!(protocol, PPP_IPV4 | PPP_IPV6);
    if u16_at(header, 0) != IS_SESSION || !is_ip {
        return Ok(Inner::Other);
    }
    // Behind it there may be padding.
    let length = usize::from(u16_at(header, PAYLOAD_LENGTH));
    let within = PROTOCOL + length;
    if within < LENGTH || within > LENGTH + rest.len() {
        let total = Reason::TotalLength(within as u32);
        return Err(Malformed::new(Header::PPPOE, total));
    }
    let (at, end) = (LENGTH, within);
    Ok(match protocol {
        PPP_IPV4 => Inner::Ipv4 { at, end },
        _ => Inner::Ipv6 { at, end },
    })
}

/// Returns the place of the length in the PPPoE header right before an IP packet, if there is one.
pub(crate) fn length_before(frame: &[u8], ip: usize) -> Option<usize> {
    let start = ip.checked_sub(LENGTH)?;
    let ethertype = frame.get(start.checked_sub(2)?..start)?;
    (ethertype == SESSION.to_be_bytes()).then_some(start + PAYLOAD_LENGTH)
}

impl Build {
    /// Writes the headers of PPPoE and PPP of a session.
    #[must_use]
    pub fn pppoe(self, session: u16) -> Build {
        let [high, low] = session.to_be_bytes();
        let announced = Announced {
            ethertype: SESSION,
            ..Announced::default()
        };
        let header = [0x11, 0, high, low, 0, 0, 0, 0];
        self.header(announced, &header, Some(Next::Ppp(PROTOCOL)), finish)
    }
}

fn finish(packet: &mut [u8], written: &Written) {
    let length = packet.len() - written.at - PROTOCOL;
    put(packet, written.at + PAYLOAD_LENGTH, length as u16);
}
