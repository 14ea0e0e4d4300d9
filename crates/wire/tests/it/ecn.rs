//! A mark changes two bits, and the checksum that covers them as if computed again.

use fairlane_wire::{Layer, mark_ce, parse};
use proptest::prelude::*;

/// Returns the checksum of an IPv4 header from scratch (RFC 1071).
fn checksum(header: &[u8]) -> u16 {
    let mut sum = 0u32;
    for (at, word) in header.chunks(2).enumerate() {
        if at != 5 {
            sum += u32::from(word[0]) << 8 | u32::from(word[1]);
        }
    }
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}

fn ipv4(ecn: u8, rest: &[u8; 18], options: &[u8]) -> Vec<u8> {
    let words = 5 + options.len() as u8 / 4;
    let mut ip = vec![0x40 | words, rest[0] & !3 | ecn];
    ip.extend(&rest[..]);
    ip.extend(&options[..usize::from(words - 5) * 4]);
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    ip
}

fn on_ethernet(ethertype: u16, tags: usize, ip: &[u8]) -> Vec<u8> {
    let mut frame = vec![7; 12];
    (0..tags).for_each(|_| frame.extend([0x81, 0, 0, 5]));
    frame.extend(ethertype.to_be_bytes());
    frame.extend(ip);
    frame
}

proptest! {
    #[test]
    fn the_checksum_is_what_it_would_be_from_scratch(
        ecn in 1..4u8,
        rest in any::<[u8; 18]>(),
        options in prop::collection::vec(any::<u8>(), 0..40),
        tags in 0..4usize,
    ) {
        let before = ipv4(ecn, &rest, &options);
        let mut frame = on_ethernet(0x0800, tags, &before);
        prop_assert!(mark_ce(&mut frame, Layer::Ethernet));
        let mut expected = before.clone();
        expected[1] |= 3;
        let sum = checksum(&expected);
        expected[10..12].copy_from_slice(&sum.to_be_bytes());
        prop_assert_eq!(&frame[14 + 4 * tags..], &expected[..]);

        let mut ip = before;
        prop_assert!(mark_ce(&mut ip, Layer::Ip));
        prop_assert_eq!(&ip, &expected);
        // Once is as good as twice.
        prop_assert!(mark_ce(&mut ip, Layer::Ip));
        prop_assert_eq!(ip, expected);
    }

    #[test]
    fn a_wrong_checksum_stays_wrong(rest in any::<[u8; 18]>(), off in 1..0xffffu16) {
        let mut ip = ipv4(2, &rest, &[]);
        let right = u16::from_be_bytes([ip[10], ip[11]]);
        let wrong = right.wrapping_add(off);
        // In ones' complement 0 and 0xffff are one number.
        prop_assume!(wrong % 0xffff != right % 0xffff);
        ip[10..12].copy_from_slice(&wrong.to_be_bytes());
        prop_assert!(mark_ce(&mut ip, Layer::Ip));
        prop_assert_ne!(u16::from_be_bytes([ip[10], ip[11]]) % 0xffff, checksum(&ip) % 0xffff);
    }

    #[test]
    fn of_ipv6_two_bits_change_and_nothing_else(
        first in any::<[u8; 40]>(),
        ecn in 0..4u8,
    ) {
        let mut ip = first.to_vec();
        ip[0] = 0x60 | ip[0] & 0xf;
        ip[1] = ip[1] & 0xcf | ecn << 4;
        let mut expected = ip.clone();
        if ecn != 0 {
            expected[1] |= 0x30;
        }
        let mut frame = on_ethernet(0x86dd, 1, &ip);
        prop_assert_eq!(mark_ce(&mut frame, Layer::Ethernet), ecn != 0);
        prop_assert_eq!(&frame[18..], &expected[..]);
    }

    #[test]
    fn what_parse_calls_capable_is_marked_and_read_as_marked(
        rest in any::<[u8; 18]>(),
        ecn in 0..4u8,
    ) {
        let mut ip = ipv4(ecn, &rest, &[]);
        // ICMP, no fragment, 20 bytes: anything that parses.
        (ip[2], ip[3], ip[6], ip[7], ip[9]) = (0, 20, 0, 0, 1);
        prop_assert_eq!(parse(&ip, Layer::Ip).unwrap().ecn, ecn);
        let marked = mark_ce(&mut ip, Layer::Ip);
        prop_assert_eq!(marked, ecn != 0);
        prop_assert_eq!(parse(&ip, Layer::Ip).unwrap().ecn, if marked { 3 } else { 0 });
    }
}

/// Returns a header whose checksum is `sum`: the identification makes it so.
fn with_checksum(ecn: u8, sum: u16) -> Vec<u8> {
    let mut ip = ipv4(ecn, &[0; 18], &[]);
    (2..=3).for_each(|at| ip[at] = 0);
    for identification in 0..=u16::MAX {
        ip[4..6].copy_from_slice(&identification.to_be_bytes());
        if checksum(&ip) == sum {
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
            return ip;
        }
    }
    panic!("no header has checksum {sum:#x}");
}

#[test]
fn the_corners_of_ones_complement_hold() {
    for ecn in [1, 2] {
        for sum in [0, 1, 2, 3, 0xfffd, 0xfffe] {
            let mut ip = with_checksum(ecn, sum);
            assert!(mark_ce(&mut ip, Layer::Ip));
            let found = u16::from_be_bytes([ip[10], ip[11]]);
            assert_eq!(found, checksum(&ip), "ECN {ecn}, checksum {sum:#x} before");
        }
    }
}

#[test]
fn what_knows_no_ecn_or_is_not_ip_is_left_as_it_is() {
    let capable = ipv4(2, &[0; 18], &[]);
    for (mut bytes, layer) in [
        (ipv4(0, &[9; 18], &[]), Layer::Ip),
        (on_ethernet(0x0806, 0, &capable), Layer::Ethernet),
        (on_ethernet(0x86dd, 0, &capable), Layer::Ethernet),
        (capable[..19].to_vec(), Layer::Ip),
        (vec![0x60, 0x20], Layer::Ip),
        (on_ethernet(0x0800, 0, &[])[..13].to_vec(), Layer::Ethernet),
        (on_ethernet(0x0800, 0, &[]), Layer::Ethernet),
        (Vec::new(), Layer::Ip),
    ] {
        let before = bytes.clone();
        assert!(!mark_ce(&mut bytes, layer));
        assert_eq!(bytes, before);
    }
}
