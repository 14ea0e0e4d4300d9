//! UDP (RFC 768).

use crate::build::{Announced, Build, Written, sum};
use crate::bytes::put;
use crate::{Header, Protocol};

/// Bytes of the header.
pub const LENGTH: usize = 8;
/// The offset of the length of header and payload.
pub const DATAGRAM_LENGTH: usize = 4;
/// The offset of the checksum; 0 in it is none.
pub const CHECKSUM: usize = 6;

impl Header {
    /// UDP, 8 bytes.
    pub const UDP: Header = Header(&"a UDP header");
}

impl Protocol {
    /// UDP.
    pub const UDP: Protocol = Protocol(17);
}

impl Build {
    /// Writes a UDP header.
    #[must_use]
    pub fn udp(self, source: u16, destination: u16) -> Build {
        let [ports, lengths] = [[source, destination], [0; 2]].map(|two| two.map(u16::to_be_bytes));
        let header = [ports.concat(), lengths.concat()].concat();
        self.header(Announced::of(Protocol::UDP), &header, None, finish)
    }
}

fn finish(packet: &mut [u8], written: &Written) {
    let length = packet.len() - written.at;
    put(packet, written.at + DATAGRAM_LENGTH, length as u16);
    sum(packet, written, Protocol::UDP, CHECKSUM);
}
