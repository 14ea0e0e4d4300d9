//! Checks segmentation against an independent parser: the segments make up the original, and no
//! header that an attacker may write does harm.

use etherparse::{NetHeaders, PacketHeaders, TransportHeader};
use proptest::prelude::*;

use fairlane_wire::segmentation::{Cut, HEADER, MOST_FRAMES, Offload, Uncut};

use super::Cutter;
use super::whole::{CWR, Ip, Transport, Whole, wholes};

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;

fn cut(header: &[u8; HEADER], whole: &[u8]) -> Result<Vec<Vec<u8>>, Uncut> {
    let cut = Cut::new(whole, &Offload::decode(header))?;
    Ok((0..cut.frames()).map(|n| cut.frame(whole, n)).collect())
}

/// A frame as etherparse reads it.
struct Read {
    number: Option<u16>,
    /// All of the network's header that is the same in every frame.
    network: Vec<u8>,
    sequence: u32,
    flags: u8,
    options: Vec<u8>,
    payload: Vec<u8>,
}

/// Reads a frame, and makes sure that its lengths and checksums are right.
#[track_caller]
fn read(frame: &[u8]) -> Read {
    let headers = PacketHeaders::from_ethernet_slice(frame).unwrap();
    let payload = headers.payload.slice().to_vec();
    let net = headers.net.unwrap();
    let transport = headers.transport.unwrap();
    let mut network = frame[..14].to_vec();
    let (number, checksum) = match &net {
        NetHeaders::Ipv4(ip, _) => {
            assert_eq!(ip.header_checksum, ip.calc_header_checksum());
            let mut same = ip.clone();
            (same.total_len, same.identification, same.header_checksum) = (0, 0, 0);
            network.extend_from_slice(&same.to_bytes());
            let expected = match &transport {
                TransportHeader::Tcp(tcp) => tcp.calc_checksum_ipv4(ip, &payload),
                TransportHeader::Udp(udp) => udp.calc_checksum_ipv4(ip, &payload),
                other => panic!("{other:?}"),
            };
            (Some(ip.identification), expected.unwrap())
        }
        NetHeaders::Ipv6(ip, extensions) => {
            let mut same = ip.clone();
            same.payload_length = 0;
            network.extend_from_slice(&same.to_bytes());
            extensions.write(&mut network, same.next_header).unwrap();
            let expected = match &transport {
                TransportHeader::Tcp(tcp) => tcp.calc_checksum_ipv6(ip, &payload),
                TransportHeader::Udp(udp) => udp.calc_checksum_ipv6(ip, &payload),
                other => panic!("{other:?}"),
            };
            (None, expected.unwrap())
        }
        other => panic!("{other:?}"),
    };
    match transport {
        TransportHeader::Tcp(tcp) => {
            assert_eq!(tcp.checksum, checksum);
            let bytes = tcp.to_bytes();
            Read {
                number,
                network,
                sequence: tcp.sequence_number,
                flags: bytes[13],
                options: bytes[20..].to_vec(),
                payload,
            }
        }
        TransportHeader::Udp(udp) => {
            assert_eq!(udp.checksum, checksum);
            assert_eq!(usize::from(udp.length), 8 + payload.len());
            Read {
                number,
                network,
                sequence: 0,
                flags: 0,
                options: Vec::new(),
                payload,
            }
        }
        other => panic!("{other:?}"),
    }
}

/// Returns a frame of TCP over IPv4 to change one thing of.
fn plain() -> Whole {
    Whole {
        tags: Vec::new(),
        ip: Ip::Four {
            tos: 0,
            number: 0xfffe,
            dont_fragment: true,
            options: Vec::new(),
        },
        transport: Transport::Tcp {
            sequence: u32::MAX - 50,
            flags: 0x10 | FIN | PSH | CWR,
            options: vec![0x0101_080a, 1, 2],
        },
        payload: (0..450).map(|at| at as u8).collect(),
        size: Some(100),
    }
}

proptest! {
    #[test]
    fn the_frames_have_all_of_the_payload_and_of_the_headers(whole in wholes()) {
        let size = whole.size.unwrap_or(100);
        let whole = Whole { size: Some(size), ..whole };
        let size = usize::from(size);
        let (header, bytes) = whole.made();
        let frames = cut(&header, &bytes).unwrap();
        prop_assert_eq!(frames.len(), whole.frames());
        let read: Vec<Read> = frames.iter().map(|frame| read(frame)).collect();
        let payload: Vec<u8> = read.iter().flat_map(|frame| frame.payload.clone()).collect();
        prop_assert_eq!(&payload, &whole.payload);
        let mut from = 0_u32;
        for (at, frame) in read.iter().enumerate() {
            let (first, last) = (at == 0, at + 1 == read.len());
            prop_assert!(last || frame.payload.len() == size);
            prop_assert!(frame.payload.len() <= size);
            prop_assert_eq!(&frame.network, &read[0].network);
            if let (Some(number), Ip::Four { number: one, .. }) = (frame.number, &whole.ip) {
                prop_assert_eq!(number, one.wrapping_add(at as u16));
            }
            if let Transport::Tcp { sequence, flags, options } = &whole.transport {
                prop_assert_eq!(frame.sequence, sequence.wrapping_add(from));
                let mut expected = *flags;
                expected &= if last { 0xff } else { !(FIN | PSH) };
                expected &= if first { 0xff } else { !CWR };
                prop_assert_eq!(frame.flags, expected);
                let words: Vec<u8> = options.iter().flat_map(|w| w.to_be_bytes()).collect();
                prop_assert_eq!(&frame.options, &words);
            }
            from += frame.payload.len() as u32;
        }
    }

    /// A remote sender controls such a header, and any frame after it.
    #[test]
    fn no_header_does_harm(
        whole in wholes(),
        header in any::<[u8; HEADER]>(),
        kind in 0..8_u8,
        changes in prop::collection::vec((0..120_usize, any::<u8>()), 0..4),
        length in 0..200_usize,
        trusted in any::<bool>(),
    ) {
        let (true_header, mut bytes) = whole.made();
        for (at, byte) in changes {
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
        }
        if !trusted {
            bytes.truncate(length);
        }
        let header = if trusted { true_header } else { header };
        let kind = [header[1], kind, kind | 0x80][usize::from(kind) % 3];
        let header = [&[header[0], kind], &header[2..]].concat().try_into().unwrap();
        if let Ok(frames) = cut(&header, &bytes) {
            prop_assert!((1..=MOST_FRAMES).contains(&frames.len()));
            let sum: usize = frames.iter().map(Vec::len).sum();
            prop_assert!(sum <= frames.len() * bytes.len());
            prop_assert!(frames.iter().all(|frame| frame.len() <= bytes.len()));
        }
    }
}

#[test]
fn numbers_wrap() {
    let (header, bytes) = plain().made();
    let frames: Vec<Read> = cut(&header, &bytes)
        .unwrap()
        .iter()
        .map(|f| read(f))
        .collect();
    let numbers: Vec<u16> = frames.iter().filter_map(|frame| frame.number).collect();
    assert_eq!(numbers, [0xfffe, 0xffff, 0, 1, 2]);
    let sequences: Vec<u32> = frames.iter().map(|frame| frame.sequence).collect();
    assert_eq!(sequences, [u32::MAX - 50, 49, 149, 249, 349]);
}

#[test]
fn who_does_not_number_is_not_numbered() {
    let cut_with = |whole: &mut Whole, set: bool| {
        if let Ip::Four {
            number,
            dont_fragment,
            ..
        } = &mut whole.ip
        {
            (*number, *dont_fragment) = (0, set);
        }
        let (header, bytes) = whole.made();
        let frames = cut(&header, &bytes).unwrap();
        frames
            .iter()
            .filter_map(|frame| read(frame).number)
            .collect::<Vec<_>>()
    };
    assert_eq!(cut_with(&mut plain(), true), [0; 5]);
    // Without the flag, numbers are needed; and datagrams are not joined unless they are numbered.
    assert_eq!(cut_with(&mut plain(), false), [0, 1, 2, 3, 4]);
    let mut datagrams = plain();
    datagrams.transport = Transport::Udp;
    assert_eq!(cut_with(&mut datagrams, true), [0, 1, 2, 3, 4]);
}

#[test]
fn a_flag_of_another_meaning_stays_in_all() {
    let (mut header, bytes) = plain().made();
    assert_eq!(header[1], 0x81);
    // The kernel does not say that the window was reduced.
    header[1] = 1;
    let frames = cut(&header, &bytes).unwrap();
    assert!(frames.iter().all(|frame| read(frame).flags & CWR != 0));
}

#[test]
fn datagrams_without_a_checksum_stay_so() {
    let (mut header, mut bytes) = Whole {
        transport: Transport::Udp,
        ..plain()
    }
    .made();
    header[0] = 0;
    bytes[14 + 20 + 6..][..2].fill(0);
    for frame in cut(&header, &bytes).unwrap() {
        assert_eq!(frame[14 + 20 + 6..][..2], [0, 0]);
    }
}

#[test]
fn a_piece_as_long_as_the_payload_is_one_frame() {
    for size in [449, 450, 451, 65_000] {
        let (header, bytes) = Whole {
            size: Some(size),
            ..plain()
        }
        .made();
        let frames = cut(&header, &bytes).unwrap();
        assert_eq!(frames.len(), if size == 449 { 2 } else { 1 });
        assert_eq!(read(frames.last().unwrap()).flags & FIN, FIN);
    }
}

#[test]
fn pieces_are_not_too_many_nor_empty_nor_too_long() {
    let made = |payload: usize, size: u16| {
        let (header, bytes) = Whole {
            payload: vec![7; payload],
            size: Some(size),
            ..plain()
        }
        .made();
        cut(&header, &bytes).map(|frames| frames.len())
    };
    assert_eq!(made(MOST_FRAMES * 3, 3), Ok(MOST_FRAMES));
    assert_eq!(made(MOST_FRAMES * 3 + 1, 3), Err(Uncut::Pieces));
    assert_eq!(made(10, 0), Err(Uncut::Pieces));
    assert_eq!(made(0, 100), Ok(1));
    // 20 bytes of IPv4, 20 and 12 of TCP.
    assert_eq!(made(65_535 - 52, 65_535), Ok(1));
    assert_eq!(made(65_535 - 51, 65_535), Err(Uncut::Pieces));
}

#[test]
fn what_is_not_plainly_what_it_is_called_is_left() {
    let (header, bytes) = plain().made();
    let changed = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        cut(&header, &bytes)
    };
    assert!(cut(&header, &bytes).is_ok());
    for (at, byte, what) in [
        (12, 0x09, "no IP"),
        (14, 0x65, "another version"),
        (14, 0x44, "a header shorter than any"),
        (14, 0x4f, "a header that ends elsewhere"),
        (20, 0x60, "a first fragment"),
        (21, 0x01, "a later fragment"),
        (23, 17, "UDP"),
        (23, 47, "a tunnel (GRE)"),
        (23, 4, "a tunnel (IP in IP)"),
        (46, 0x40, "a TCP header shorter than any"),
    ] {
        assert_eq!(changed(at, byte), Err(Uncut::Headers), "{what}");
    }
    // A tunnel over UDP: the checksum covers the inner packet.
    let (mut header, bytes) = Whole {
        transport: Transport::Udp,
        ..plain()
    }
    .made();
    header[6] += 50;
    assert_eq!(cut(&header, &bytes), Err(Uncut::Headers));
    // Cut short behind every byte of its headers.
    let (header, bytes) = plain().made();
    for length in 0..14 + 20 + 32 {
        assert_eq!(
            cut(&header, &bytes[..length]),
            Err(Uncut::Headers),
            "{length}"
        );
    }
}

#[test]
fn extension_headers_without_end_are_left() {
    let six = |extensions| {
        let ip = Ip::Six {
            class: 0,
            extensions: vec![0; extensions],
        };
        Whole { ip, ..plain() }.made()
    };
    let (header, bytes) = six(1);
    assert!(cut(&header, &bytes).is_ok());
    // Each names its successor: zeros, the number of the one that may come first.
    let (mut header, mut bytes) = six(0);
    bytes[20] = 0;
    bytes.truncate(54);
    bytes.resize(9_000, 0);
    header[0] = 0;
    assert_eq!(cut(&header, &bytes), Err(Uncut::Headers));
    // As many as are walked over, and one more.
    for (count, walked) in [(8, true), (9, false)] {
        let (mut header, mut bytes) = six(0);
        header[0] = 0;
        let mut more = [60, 0, 1, 4, 0, 0, 0, 0].repeat(count);
        more[8 * (count - 1)] = 6;
        bytes[20] = 60;
        bytes.splice(54..54, more);
        assert_eq!(cut(&header, &bytes).is_ok(), walked);
    }
}

#[test]
fn a_cutter_gives_out_as_many_as_there_is_room_for() {
    let (header, bytes) = plain().made();
    let offload = Offload::decode(&header);
    let mut cutter = Cutter::default();
    let mut frames = Vec::<Vec<u8>>::new();
    let write = |whole: &mut Vec<u8>| whole.extend_from_slice(&bytes);
    assert_eq!(cutter.cut_next(&offload, write, &mut frames, 2), 2);
    assert_eq!(cutter.go_on(&mut frames, 0), 0);
    assert_eq!(cutter.go_on(&mut frames, 2), 2);
    assert_eq!(cutter.go_on(&mut frames, 9), 1);
    assert_eq!(cutter.go_on(&mut frames, 9), 0);
    assert_eq!(frames, cut(&header, &bytes).unwrap());
    assert_eq!(cutter.uncut(), 0);
    let write = |whole: &mut Vec<u8>| whole.extend_from_slice(&bytes[..30]);
    assert_eq!(cutter.cut_next(&offload, write, &mut frames, 9), 0);
    assert_eq!(cutter.uncut(), 1);
}
