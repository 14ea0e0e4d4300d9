//! PPP over Ethernet (RFC 2516), with the number of the PPP protocol (RFC 1661).

use crate::build::{Announced, Build, Next, Written};
use crate::bytes::put;

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

/// Returns whether a session's header precedes a control protocol.
pub(crate) fn is_control(session: &[u8]) -> bool {
    session.get(PROTOCOL).is_some_and(|&high| high >= CONTROL)
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
