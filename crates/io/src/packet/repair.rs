//! Restores received frames to their form on the wire.
//!
//! The kernel strips a VLAN tag from the frame and reports it separately; and a sender on the same
//! machine, behind a virtual device, leaves checksums to hardware that does not exist.

use fairlane_wire::{checksum, ethernet, vlan};

use crate::kept;
use crate::sys::packet::Arrival;
use crate::unsummed::{PacketFrame, Unsummed};
use fairlane_wire::segmentation::Offload;

/// Bytes of the two Ethernet addresses, after which a tag stands.
const ADDRESSES: usize = ethernet::TYPE;

/// Returns a copy of the frame as the wire would have it, if it is a whole one that need not be cut;
/// without the checksum that its sender has left undone, if it can say so.
pub(super) fn repair<F: PacketFrame>(arrival: &Arrival<'_>) -> F {
    let mut frame = kept::room(arrival.bytes.len() + tag_length(arrival));
    write(arrival, &mut frame);
    let Some((start, field)) = offload(arrival).checksum else {
        return frame.into();
    };
    match Unsummed::new((start, field), frame.len()) {
        Some(lacks) => F::lacking(frame, lacks),
        None => {
            checksum::write(&mut frame, start, field);
            frame.into()
        }
    }
}

/// Appends the frame with its tag to `frame`.
pub(super) fn write(arrival: &Arrival<'_>, frame: &mut Vec<u8>) {
    match arrival.vlan.zip(arrival.bytes.split_at_checked(ADDRESSES)) {
        Some(((protocol, tag), (addresses, rest))) => {
            frame.extend_from_slice(addresses);
            frame.extend_from_slice(&protocol.to_be_bytes());
            frame.extend_from_slice(&tag.to_be_bytes());
            frame.extend_from_slice(rest);
        }
        None => frame.extend_from_slice(arrival.bytes),
    }
}

/// Returns the pending offloads of the frame with its tag.
pub(super) fn offload(arrival: &Arrival<'_>) -> Offload {
    // The kernel's positions do not count the tag, which stands before all that is summed.
    arrival.offload.moved(tag_length(arrival))
}

fn tag_length(arrival: &Arrival<'_>) -> usize {
    match arrival.vlan {
        Some(_) if arrival.bytes.len() >= ADDRESSES => vlan::LENGTH,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        assert_eq!(repair::<Vec<u8>>(&arrival(&bytes)), bytes);
    }

    #[test]
    fn a_tag_goes_between_the_addresses_and_the_type() {
        let bytes: Vec<u8> = (0..20).collect();
        let tagged = Arrival {
            vlan: Some((0x88a8, 0x2003)),
            ..arrival(&bytes)
        };
        let frame: Vec<u8> = repair(&tagged);
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
        for (tag, field) in [(None, 16), (Some((0x8100, 5)), 20)] {
            let partial = Arrival {
                vlan: tag,
                offload: Offload {
                    checksum: Some((14, 16)),
                    segments: None,
                },
                ..arrival(&bytes)
            };
            let frame: Vec<u8> = repair(&partial);
            assert_eq!(frame[field..field + 2], expected.to_be_bytes());
            assert_eq!(frame.last(), Some(&0x56));
        }
    }
}
