//! MPLS labels (RFC 3032). Nothing announces what follows them: the first four bits tell IPv4 from IPv6 (RFC 4928).

use crate::build::{Announced, Build, is_complete};
use crate::encapsulated::Inner;

/// The type of unicast frames in an Ethernet header.
pub const UNICAST: u16 = 0x8847;
/// The type of multicast frames, or of labels that the other end assigned (RFC 5332).
pub const MULTICAST: u16 = 0x8848;
/// Bytes of a label.
pub const LENGTH: usize = 4;
/// Labels that are followed; a frame with more is of no known network protocol.
pub const MOST: usize = 8;
/// The offset of the byte with the bit that marks the last label.
pub const BOTTOM: usize = 2;
/// That bit.
pub const IS_BOTTOM: u8 = 1;

/// Returns the packet behind the labels.
pub(crate) fn read(bytes: &[u8]) -> Inner {
    let labels = bytes.chunks_exact(LENGTH).take(MOST);
    let mut bottoms = labels.map(|label| label[BOTTOM] & IS_BOTTOM != 0);
    let Some(at) = bottoms
        .position(|is_bottom| is_bottom)
        .map(|last| (last + 1) * LENGTH)
    else {
        return Inner::Other;
    };
    match bytes.get(at).map(|first| first >> 4) {
        Some(4) => Inner::Ipv4 {
            at,
            end: bytes.len(),
        },
        Some(6) => Inner::Ipv6 {
            at,
            end: bytes.len(),
        },
        _ => Inner::Other,
    }
}

impl Build {
    /// Writes a stack of labels, the outermost first.
    #[must_use]
    pub fn mpls(self, labels: &[u32]) -> Build {
        let mut bytes = alloc::vec::Vec::new();
        for (number, label) in labels.iter().enumerate() {
            let is_bottom = u32::from(number + 1 == labels.len());
            bytes.extend((label << 12 | is_bottom << 8 | 64).to_be_bytes());
        }
        let announced = Announced {
            ethertype: UNICAST,
            ..Announced::default()
        };
        self.header(announced, &bytes, None, is_complete)
    }
}
