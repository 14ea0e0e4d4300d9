//! Internet checksums (RFC 1071).

use core::ops::Range;

use crate::bytes::u16_at;
use crate::{Protocol, ipv4, ipv6, network, tcp, udp};

/// Returns the sum, in ones' complement, of the 16-bit words in network order; an odd byte counts
/// as the high half of a word.
///
/// It is taken of longer words in the machine's order, in several parallel sums, and only then brought
/// into the network's (RFC 1071, sections 2 (B) and (C)).
pub fn internet_sum(bytes: &[u8]) -> u16 {
    const LANES: usize = 4;
    let mut sums = [0_u64; LANES];
    let mut blocks = bytes.chunks_exact(LANES * 4);
    for block in &mut blocks {
        for (sum, word) in sums.iter_mut().zip(block.chunks_exact(4)) {
            *sum += u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
        }
    }
    let mut words = blocks.remainder().chunks_exact(2);
    let mut sum: u64 = sums.iter().sum();
    for word in &mut words {
        sum += u64::from(u16::from_ne_bytes([word[0], word[1]]));
    }
    if let [last] = words.remainder() {
        sum += u64::from(u16::from_ne_bytes([*last, 0]));
    }
    u16::from_be(fold(sum))
}

/// Returns a sum of 16-bit words as one such word, in ones' complement.
pub fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Returns where a TCP or UDP frame lacks its checksum, if its sender left that to hardware: the first byte that is
/// summed, and the place of the checksum, which holds the sum of the pseudo-header alone. O(1).
///
/// Fragments, IPv6 extension headers and anything unknown lack none. Nor does a frame whose padding is not zero, which
/// would be summed too.
pub fn left_undone(frame: &[u8]) -> Option<(usize, usize)> {
    let (ethertype, ip) = network(frame)?;
    // Of the datagram, not of the frame, which may be padded: that is not summed.
    let (start, end, protocol, addresses) = match ethertype {
        ipv4::TYPE => over_ipv4(frame.get(ip..)?)?,
        ipv6::TYPE => over_ipv6(frame.get(ip..)?)?,
        _ => return None,
    };
    let (start, end) = (ip + start, ip + end);
    let field = match protocol {
        Protocol::TCP => start + tcp::CHECKSUM,
        Protocol::UDP => start + udp::CHECKSUM,
        _ => return None,
    };
    let length = end.checked_sub(start)?;
    // A checksum that covers padding would be another: such a frame is left alone.
    if end != frame.len() && frame.get(end..)?.iter().any(|&byte| byte != 0) {
        return None;
    }
    let addresses = frame.get(ip + addresses.start..ip + addresses.end)?;
    let sum = pseudo_sum(addresses, protocol, length);
    (frame.get(field..field + 2)? == sum.to_be_bytes()).then_some((start, field))
}

/// Start and end of the payload of a packet, its protocol, and the place of its addresses.
type Payload = (usize, usize, Protocol, Range<usize>);

fn over_ipv4(ip: &[u8]) -> Option<Payload> {
    let header = ip.first_chunk::<{ ipv4::LENGTH }>()?;
    if ipv4::is_fragment(u16_at(header, ipv4::FRAGMENT)) {
        return None;
    }
    let end = usize::from(u16_at(header, ipv4::TOTAL_LENGTH));
    let protocol = Protocol(header[ipv4::PROTOCOL]);
    Some((
        ipv4::length(header[0]),
        end,
        protocol,
        ipv4::SOURCE..ipv4::LENGTH,
    ))
}

fn over_ipv6(ip: &[u8]) -> Option<Payload> {
    let header = ip.first_chunk::<{ ipv6::LENGTH }>()?;
    let end = ipv6::LENGTH + usize::from(u16_at(header, ipv6::PAYLOAD_LENGTH));
    let protocol = Protocol(header[ipv6::NEXT_HEADER]);
    Some((ipv6::LENGTH, end, protocol, ipv6::SOURCE..ipv6::LENGTH))
}

/// Returns the sum of a pseudo-header: both addresses, the protocol, and the length of the payload.
pub fn pseudo_sum(addresses: &[u8], protocol: Protocol, length: usize) -> u16 {
    fold(u64::from(internet_sum(addresses)) + u64::from(protocol.0) + length as u64)
}

/// Writes at `field` the Internet checksum of the frame from `start` on. The field holds the sum of
/// the pseudo-header so far, as the kernel leaves it. Positions outside the frame, which no kernel
/// gives, change nothing. O(length).
pub fn write(frame: &mut [u8], start: usize, field: usize) {
    let Some(covered) = frame.get(start..) else {
        return;
    };
    let checksum = match !internet_sum(covered) {
        // Zero means "no checksum" to UDP; all ones is the same number to the others.
        0 => 0xffff,
        checksum => checksum,
    };
    if let Some(field) = frame.get_mut(field..field + 2) {
        field.copy_from_slice(&checksum.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_sum_is_that_of_rfc_1071() {
        // The example of its section 3.
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(internet_sum(&bytes), 0xddf2);
        assert_eq!(internet_sum(&[0xab]), 0xab00);
        assert_eq!(internet_sum(&[]), 0);
    }

    /// Returns the sum as section 1 of RFC 1071 defines it, word by word.
    fn defined(bytes: &[u8]) -> u16 {
        let word = |word: &[u8]| match word {
            [high, low] => u16::from_be_bytes([*high, *low]),
            word => u16::from_be_bytes([word[0], 0]),
        };
        bytes.chunks(2).map(word).fold(0, |sum: u16, word| {
            let (sum, carry) = sum.overflowing_add(word);
            sum + u16::from(carry)
        })
    }

    #[test]
    fn long_words_sum_to_what_short_ones_do() {
        let ones = vec![0xff; 100_000];
        for length in (0..70).chain([65_535, 100_000]) {
            assert_eq!(internet_sum(&ones[..length]), defined(&ones[..length]));
        }
        proptest!(|(bytes in prop::collection::vec(any::<u8>(), 0..200))| {
            prop_assert_eq!(internet_sum(&bytes), defined(&bytes));
        });
    }

    #[test]
    fn a_checksum_of_zero_is_written_as_all_ones() {
        let mut frame = [0xff, 0xff, 0, 0];
        write(&mut frame, 0, 2);
        assert_eq!(frame, [0xff, 0xff, 0xff, 0xff]);
    }

    #[test]
    fn positions_outside_the_frame_change_nothing() {
        let mut frame = [1, 2, 3, 4];
        for (start, field) in [(5, 0), (0, 3), (0, 4)] {
            write(&mut frame, start, field);
            assert_eq!(frame, [1, 2, 3, 4]);
        }
    }
}
