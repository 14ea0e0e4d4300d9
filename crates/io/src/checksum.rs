//! Internet checksums (RFC 1071), and completion of checksums that a sender left to hardware.
//!
//! A sender behind a virtual device leaves TCP and UDP checksums to hardware that does not exist: the
//! field holds the sum of the pseudo-header alone. Where the kernel does not say so (AF_XDP), the field
//! reveals it: a packet whose field holds exactly that sum is completed. One in 65,536 packets damaged on
//! a wire would be completed by mistake.

use fairlane_wire::checksum::left_undone;

use crate::unsummed::Unsummed;

/// Completes the checksum of an Ethernet frame that carries TCP or UDP over IP, if its sender has left
/// that undone; whether it had. VLAN tags are skipped; fragments, IPv6 extension headers and anything
/// unknown leave a frame unchanged. O(length) for a frame that is changed, else O(1).
///
/// # Example
///
/// ```
/// use fairlane_io::checksum::complete_checksum;
///
/// let mut frame = vec![0; 12]; // two Ethernet addresses
/// frame.extend([0x08, 0x00, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]); // UDP over IPv4
/// frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
/// // Ports, length, and in the checksum field the sender's sum of the pseudo-header.
/// frame.extend([0x30, 0x39, 0x00, 0x35, 0, 8, 0x14, 0x1c]);
/// assert!(complete_checksum(&mut frame));
/// assert_eq!(frame[40..], [0xbb, 0x6d]);
/// assert!(!complete_checksum(&mut frame), "it is complete");
/// ```
pub fn complete_checksum(frame: &mut [u8]) -> bool {
    let lacks = unsummed(frame);
    if let Some(checksum) = lacks {
        checksum.complete(frame);
    }
    lacks.is_some()
}

/// Returns where such a frame lacks its checksum. O(1).
///
/// # Example
///
/// ```
/// use fairlane_io::checksum::unsummed;
/// use fairlane_io::packet::Unsummed;
///
/// /// For reading the frame's final bytes; not needed to transmit it again.
/// fn complete(frame: &mut [u8]) {
///     let lacks: Option<Unsummed> = unsummed(frame);
///     if let Some(checksum) = lacks {
///         checksum.complete(frame);
///     }
/// }
/// # complete(&mut [0; 60]);
/// ```
pub fn unsummed(frame: &[u8]) -> Option<Unsummed> {
    Unsummed::new(left_undone(frame)?, frame.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlane_wire::checksum::{fold, internet_sum};
    use proptest::prelude::*;

    /// Returns a frame over TCP or UDP whose checksum was left undone, and where its transport
    /// header is.
    fn undone(six: bool, tcp: bool, tags: usize, payload: &[u8]) -> (Vec<u8>, usize) {
        let header = if tcp { 20 } else { 8 };
        let length = (header + payload.len()) as u16;
        let mut frame = vec![2; 12];
        frame.extend([0x81, 0x00, 0, 7].repeat(tags));
        let protocol = if tcp { 6 } else { 17 };
        let addresses = if six {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(length.to_be_bytes());
            frame.extend([protocol, 64]);
            32
        } else {
            frame.extend([0x08, 0x00, 0x45, 0]);
            frame.extend((20 + length).to_be_bytes());
            frame.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
            8
        };
        let first = frame.len();
        frame.extend((0..addresses).map(|n| n as u8 ^ 0xc5));
        let pseudo =
            u64::from(internet_sum(&frame[first..])) + u64::from(protocol) + u64::from(length);
        let start = frame.len();
        frame.resize(start + header, 0x11);
        let field = start + if tcp { 16 } else { 6 };
        frame[field..field + 2].copy_from_slice(&fold(pseudo).to_be_bytes());
        frame.extend(payload);
        (frame, start)
    }

    /// Returns whether a receiver finds the checksum right: all words with the pseudo-header's are
    /// ones.
    fn is_right(frame: &[u8], undone: &[u8], start: usize, field: usize) -> bool {
        let pseudo = u64::from(u16::from_be_bytes([undone[field], undone[field + 1]]));
        fold(pseudo + u64::from(internet_sum(&frame[start..]))) == 0xffff
    }

    proptest! {
        #[test]
        fn what_was_left_undone_is_completed_once(
            six in any::<bool>(),
            tcp in any::<bool>(),
            tags in 0..3_usize,
            payload in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let (before, start) = undone(six, tcp, tags, &payload);
            let field = start + if tcp { 16 } else { 6 };
            let mut frame = before.clone();
            prop_assert!(complete_checksum(&mut frame));
            prop_assert!(is_right(&frame, &before, start, field));
            let whole = frame.clone();
            // But for the sum of whose complement it is itself.
            if whole[field..field + 2] != before[field..field + 2] {
                prop_assert!(!complete_checksum(&mut frame));
                prop_assert_eq!(&frame, &whole);
            }
        }

        #[test]
        fn no_bytes_do_harm(mut frame in prop::collection::vec(any::<u8>(), 0..80), ip in any::<bool>()) {
            if ip && frame.len() > 14 {
                frame[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
            }
            complete_checksum(&mut frame);
        }
    }

    #[test]
    fn fragments_padding_and_other_protocols_stay_as_they_are() {
        let (frame, start) = undone(false, false, 0, b"payload");
        let same = |mut frame: Vec<u8>| {
            let before = frame.clone();
            !complete_checksum(&mut frame) && frame == before
        };
        let change = |at: usize, byte: u8| {
            let mut frame = frame.clone();
            frame[at] = byte;
            frame
        };
        assert!(!same(frame.clone()));
        assert!(same(change(20, 0x20)), "more fragments follow");
        assert!(same(change(21, 1)), "a later fragment");
        assert!(same(change(23, 1)), "ICMP");
        assert!(same(change(12, 0x09)), "not IP");
        assert!(same(frame[..start + 5].to_vec()), "cut");
        let padded = |byte| [&frame[..], &[byte; 4]].concat();
        assert!(!same(padded(0)), "zeros add nothing");
        assert!(same(padded(1)), "what is not padding");
    }
}
