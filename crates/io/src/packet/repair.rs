//! Making a received frame what it was, or was to be, on the wire.
//!
//! The kernel takes a VLAN tag out of the frame and keeps it beside; and a sender on the same
//! machine, behind a virtual device, leaves checksums to hardware that is not there.

use crate::checksum;
use crate::sys::packet::Arrival;

/// Bytes of the two Ethernet addresses, after which a tag stands.
const ADDRESSES: usize = 12;

/// A copy of the frame as the wire would have it; `None` if the kernel has cut it.
pub(super) fn repair(arrival: &Arrival<'_>) -> Option<Vec<u8>> {
    let bytes = arrival.bytes;
    if bytes.len() < arrival.length {
        return None;
    }
    let mut frame = Vec::with_capacity(bytes.len() + if arrival.vlan.is_some() { 4 } else { 0 });
    match arrival.vlan.zip(bytes.split_at_checked(ADDRESSES)) {
        Some(((protocol, tag), (addresses, rest))) => {
            frame.extend_from_slice(addresses);
            frame.extend_from_slice(&protocol.to_be_bytes());
            frame.extend_from_slice(&tag.to_be_bytes());
            frame.extend_from_slice(rest);
        }
        None => frame.extend_from_slice(bytes),
    }
    if let Some((start, field)) = arrival.offload.checksum {
        // The positions do not count the tag, which stands before both.
        let moved = frame.len() - bytes.len();
        checksum::write(&mut frame, start + moved, field + moved);
    }
    Some(frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::packet::Offload;
    use std::time::Duration;

    fn arrival(bytes: &[u8]) -> Arrival<'_> {
        Arrival {
            bytes,
            length: bytes.len(),
            vlan: None,
            offload: Offload::default(),
            came: Duration::ZERO,
            losing: false,
        }
    }

    #[test]
    fn an_untouched_frame_is_copied() {
        let bytes: Vec<u8> = (0..60).collect();
        assert_eq!(repair(&arrival(&bytes)), Some(bytes.clone()));
    }

    #[test]
    fn a_frame_cut_by_the_kernel_is_none() {
        let cut = Arrival {
            length: 61,
            ..arrival(&[0; 60])
        };
        assert_eq!(repair(&cut), None);
    }

    #[test]
    fn a_tag_goes_between_the_addresses_and_the_type() {
        let bytes: Vec<u8> = (0..20).collect();
        let tagged = Arrival {
            vlan: Some((0x88a8, 0x2003)),
            ..arrival(&bytes)
        };
        let frame = repair(&tagged).unwrap();
        assert_eq!(frame[..12], bytes[..12]);
        assert_eq!(frame[12..16], [0x88, 0xa8, 0x20, 0x03]);
        assert_eq!(frame[16..], bytes[12..]);
    }

    #[test]
    fn a_checksum_is_completed_wherever_the_tag_moves_it() {
        let mut bytes = vec![0xee; 14];
        // From byte 14 on: a word, the field with the sum of a pseudo-header, an odd byte.
        bytes.extend([0x12, 0x34, 0x00, 0x11, 0x56]);
        let expected = !(0x1234 + 0x0011 + 0x5600_u16);
        for (vlan, field) in [(None, 16), (Some((0x8100, 5)), 20)] {
            let partial = Arrival {
                vlan,
                offload: Offload {
                    checksum: Some((14, 16)),
                    segments: false,
                },
                ..arrival(&bytes)
            };
            let frame = repair(&partial).unwrap();
            assert_eq!(frame[field..field + 2], expected.to_be_bytes());
            assert_eq!(frame.last(), Some(&0x56));
        }
    }
}
