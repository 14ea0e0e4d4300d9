//! Ethernet (IEEE 802.3): two addresses and the type of the next header.

use crate::build::{Announced, Build, Next, is_complete};
use crate::bytes::{take, u16_at};
use crate::{Header, Malformed};

/// Bytes of the header.
pub const LENGTH: usize = 14;
/// The offset of the destination address.
pub const DESTINATION: usize = 0;
/// The offset of the source address.
pub const SOURCE: usize = 6;
/// The offset of the type of the next header.
pub const TYPE: usize = 12;
/// The addresses that IEEE 802.1D reserves for the protocols of a link, except for their low four bits.
pub const RESERVED: u64 = 0x0180_c200_0000;
/// The low bits in which reserved addresses differ.
pub const RESERVED_BITS: u32 = 4;

impl Header {
    /// Ethernet, 14 bytes.
    pub const ETHERNET: Header = Header(&"an Ethernet header");
}

/// Returns the type of the next header, and the bytes from that header on.
#[inline]
pub(crate) fn read(frame: &[u8]) -> Result<(u16, &[u8]), Malformed> {
    let (header, rest) = take::<LENGTH>(frame, Header::ETHERNET)?;
    Ok((u16_at(header, TYPE), rest))
}

/// Returns the address at `at` in a frame that has an Ethernet header, in the low 48 bits.
pub(crate) fn address(frame: &[u8], at: usize) -> u64 {
    let bytes = frame[at..at + 6].iter();
    bytes.fold(0, |all, &byte| all << 8 | u64::from(byte))
}

/// Returns whether IEEE 802.1D reserves an address for the protocols of a link.
pub(crate) fn is_reserved(address: u64) -> bool {
    address >> RESERVED_BITS == RESERVED >> RESERVED_BITS
}

impl Build {
    /// An Ethernet frame between two stations.
    #[must_use]
    pub fn ethernet() -> Build {
        Build::between([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1])
    }

    /// An Ethernet frame with these addresses, the destination first.
    #[must_use]
    pub fn between(destination: [u8; 6], source: [u8; 6]) -> Build {
        let mut header = [0; LENGTH];
        header[..SOURCE].copy_from_slice(&destination);
        header[SOURCE..TYPE].copy_from_slice(&source);
        let next = Some(Next::Ethertype(TYPE));
        Build::packet().header(Announced::default(), &header, next, is_complete)
    }
}
