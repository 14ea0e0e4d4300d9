//! The packet in a PPPoE session or behind MPLS labels is read, marked, summed and segmented as one without.

use fairlane_wire::checksum::{left_undone, pseudo_sum};
use fairlane_wire::segmentation::Cut;
use fairlane_wire::{
    Build, Family, Header, Headers, Layer, Malformed, Protocol, Reason, VlanId, mark_ce, network,
    parse,
};
use proptest::prelude::*;

/// Headers between the link and the packet.
#[derive(Clone, Debug)]
enum Around {
    Nothing,
    Session(u16),
    Labels(Vec<u32>),
}

fn around() -> impl Strategy<Value = Around> {
    prop_oneof![
        Just(Around::Nothing),
        any::<u16>().prop_map(Around::Session),
        prop::collection::vec(0..1_u32 << 20, 1..=8).prop_map(Around::Labels),
    ]
}

/// Returns a frame with these tags, and the packet in it.
fn frames(tags: &[(u16, u16)], around: &Around, is_v6: bool, payload: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let ip = |build: Build| {
        let ip = match is_v6 {
            true => build.ipv6([1; 16], [2; 16]),
            false => build.ipv4([10, 0, 0, 1], [10, 0, 0, 2]),
        };
        ip.traffic_class(46 << 2 | 2)
            .tcp(1_000, 53)
            .payload(payload)
    };
    let tagged = tags.iter().fold(Build::ethernet(), |build, &(kind, tag)| {
        build.tag(kind, tag)
    });
    let outer = match around {
        Around::Nothing => tagged,
        Around::Session(session) => tagged.pppoe(*session),
        Around::Labels(labels) => tagged.mpls(labels),
    };
    (ip(outer), ip(Build::packet()))
}

fn tags() -> impl Strategy<Value = Vec<(u16, u16)>> {
    let kind = prop::sample::select(vec![0x8100, 0x88a8, 0x9100_u16]);
    prop::collection::vec((kind, 0..4_096_u16), 0..=3)
}

proptest! {
    #[test]
    fn encapsulated_packets_are_treated_as_plain_ones(
        tags in tags(),
        around in around(),
        is_v6: bool,
        payload in prop::collection::vec(any::<u8>(), 0..3_000),
        padding in 0..20_usize,
    ) {
        let (mut frame, mut packet) = frames(&tags, &around, is_v6, &payload);
        let at = frame.len() - packet.len();
        let plain = parse(&packet, Layer::Ip).unwrap();
        let read = parse(&frame, Layer::Ethernet).unwrap();
        let expected = Headers {
            vlan: tags.iter().find_map(|&(_, tag)| VlanId::new(tag)),
            ethertype: read.ethertype,
            ip_offset: at as u16,
            ..plain
        };
        prop_assert_eq!(read, expected);
        prop_assert_eq!(network(&frame), Some((if is_v6 { 0x86dd } else { 0x0800 }, at)));

        // Each segment is the packet's in the same headers: with the lengths that a writer gives them.
        let cut = Cut::to_fit(&frame, at, 1_000).unwrap();
        for number in 0..cut.frames() {
            let segment = cut.frame(&frame, number);
            let read = parse(&segment, Layer::Ethernet).unwrap();
            let whole = Headers { ip_offset: at as u16, ..read };
            prop_assert_eq!(whole, read);
            if let Around::Session(_) = around {
                let stated = u16::from_be_bytes([segment[at - 4], segment[at - 3]]);
                prop_assert_eq!(usize::from(stated), segment.len() - at + 2);
            }
        }

        frame.resize(frame.len() + padding, 0);
        prop_assert_eq!(parse(&frame, Layer::Ethernet).unwrap(), read);
        prop_assert!(mark_ce(&mut frame, Layer::Ethernet) && mark_ce(&mut packet, Layer::Ip));
        prop_assert_eq!(&frame[at..at + packet.len()], &packet[..]);

        let (addresses, start) = if is_v6 { (8..40, 40) } else { (12..20, 20) };
        let sum = pseudo_sum(&packet[addresses], Protocol::TCP, packet.len() - start);
        let field = at + start + 16;
        frame[field..field + 2].copy_from_slice(&sum.to_be_bytes());
        prop_assert_eq!(left_undone(&frame), Some((at + start, field)));
    }

    #[test]
    fn damaged_frames_are_read_as_a_slow_parser_reads_them(
        tags in tags(),
        around in around(),
        is_v6: bool,
        damage in prop::collection::vec((0..60_usize, any::<u8>()), 0..4),
        length in 0..120_usize,
    ) {
        let (mut frame, _) = frames(&tags, &around, is_v6, &[7; 30]);
        for (at, byte) in damage {
            frame[at] = byte;
        }
        frame.truncate(length);
        let read = parse(&frame, Layer::Ethernet);
        prop_assert_eq!(read.map(|read| (read.family, read.ip_offset)).ok(), slow(&frame));
    }
}

/// Returns the family and the place of the packet in a frame, header by header; `None` for a malformed frame.
fn slow(frame: &[u8]) -> Option<(Family, u16)> {
    let word = |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
    let mut at = 14;
    let mut kind = word(12)?;
    let mut tags = 0;
    while [0x8100, 0x88a8, 0x9100].contains(&kind) && tags < 4 {
        (kind, at, tags) = (word(at + 2)?, at + 4, tags + 1);
    }
    let other = Some((Family::Other, at as u16));
    let mut end = frame.len();
    let (version, ip) = match kind {
        0x0800 => (4, at),
        0x86dd => (6, at),
        0x8864 => {
            let version = match (word(at), word(at + 6)) {
                (Some(0x1100), Some(0x0021)) => 4,
                (Some(0x1100), Some(0x0057)) => 6,
                _ => return other,
            };
            end = at + 6 + usize::from(word(at + 4)?);
            (version, at + 8)
        }
        0x8847 | 0x8848 => {
            let is_last = |number: &usize| {
                frame
                    .get(at + 4 * number + 3)
                    .map(|_| frame[at + 4 * number + 2] & 1)
            };
            let last = (0..8)
                .map_while(|number| is_last(&number))
                .position(|bit| bit == 1);
            let Some(ip) = last.map(|last| at + 4 * last + 4) else {
                return other;
            };
            match frame.get(ip).map(|first| first >> 4) {
                Some(version @ (4 | 6)) => (version, ip),
                _ => return other,
            }
        }
        _ => return other,
    };
    let packet = frame.get(ip..end)?;
    let read = parse(packet, Layer::Ip).ok()?;
    let families = [(4, Family::V4), (6, Family::V6)];
    families
        .contains(&(version, read.family))
        .then_some((read.family, ip as u16))
}

#[test]
fn a_session_states_its_length_and_its_protocol() {
    let packet = Build::packet()
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
        .udp(1, 2)
        .payload(&[]);
    let session = |header: [u8; 8]| {
        let frame = [&[2; 12][..], &[0x88, 0x64], &header, &packet].concat();
        parse(&frame, Layer::Ethernet)
    };
    let length = packet.len() as u8 + 2;
    let read = session([0x11, 0, 0, 7, 0, length, 0, 0x21]).unwrap();
    assert_eq!((read.family, read.ip_offset), (Family::V4, 22));
    assert_eq!(read.ethertype, 0x8864);
    for (stated, total) in [(length + 1, usize::from(length) + 7), (1, 7)] {
        let reason = Reason::TotalLength(total as u32);
        let malformed = Malformed {
            header: Header::PPPOE,
            reason,
        };
        assert_eq!(session([0x11, 0, 0, 7, 0, stated, 0, 0x21]), Err(malformed));
    }
    // IPv6 is announced; another version, code or protocol says nothing about what follows.
    assert!(session([0x11, 0, 0, 7, 0, length, 0, 0x57]).is_err());
    for header in [
        [0x12, 0, 0, 7, 0, length, 0, 0x21],
        [0x11, 9, 0, 7, 0, length, 0, 0x21],
        [0x11, 0, 0, 7, 0, length, 0, 0xfd],
    ] {
        let read = session(header).unwrap();
        assert_eq!((read.family, read.link_control), (Family::Other, false));
    }
    assert!(
        session([0x11, 0, 0, 7, 0, length, 0xc0, 0x21])
            .unwrap()
            .link_control
    );
}

#[test]
fn labels_are_followed_eight_deep_and_a_control_word_is_no_packet() {
    let behind = |labels: &[u32], first: u8| {
        let mut frame = Build::ethernet()
            .mpls(labels)
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
            .payload(&[]);
        frame[14 + 4 * labels.len()] = first;
        parse(&frame, Layer::Ethernet).unwrap().family
    };
    assert_eq!(behind(&[16; 8], 0x45), Family::V4);
    assert_eq!(behind(&[16; 9], 0x45), Family::Other);
    assert_eq!(behind(&[16], 0), Family::Other);
}
