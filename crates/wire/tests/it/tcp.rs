//! The fields of a TCP segment are those that another library wrote into it.

use etherparse::{PacketBuilder, TcpOptionElement};
use fairlane_wire::{Layer, Segment, segment};
use proptest::option::of;
use proptest::prelude::*;

/// A segment as it is written.
#[derive(Clone, Debug)]
struct Written {
    v6: bool,
    tag: Option<u16>,
    ends: [([u8; 16], u16); 2],
    sequence: u32,
    /// SYN, FIN.
    flags: [bool; 2],
    acknowledges: bool,
    stamps: Option<(u32, u32)>,
    /// Options before the timestamps, and behind.
    before: Vec<TcpOptionElement>,
    behind: Vec<TcpOptionElement>,
    payload: usize,
    padding: usize,
    traffic_class: u8,
}

fn options() -> impl Strategy<Value = Vec<TcpOptionElement>> {
    let one = prop_oneof![
        Just(TcpOptionElement::Noop),
        Just(TcpOptionElement::SelectiveAcknowledgementPermitted),
        any::<u16>().prop_map(TcpOptionElement::MaximumSegmentSize),
        any::<u8>().prop_map(TcpOptionElement::WindowScale),
    ];
    prop::collection::vec(one, 0..3)
}

fn written() -> impl Strategy<Value = Written> {
    let end = || any::<([u8; 16], u16)>();
    (
        (any::<bool>(), of(1..4095u16), [end(), end()], any::<u32>()),
        (any::<[bool; 2]>(), any::<bool>(), of(any::<(u32, u32)>())),
        (options(), options(), 0..100usize, 0..9usize, any::<u8>()),
    )
        .prop_map(|(first, (flags, acknowledges, stamps), last)| {
            let (v6, tag, ends, sequence) = first;
            let (before, behind, payload, padding, traffic_class) = last;
            Written {
                v6,
                tag,
                ends,
                sequence,
                flags,
                acknowledges,
                stamps,
                before,
                behind,
                payload,
                padding,
                traffic_class,
            }
        })
}

impl Written {
    fn frame(&self) -> Vec<u8> {
        let stamps = self
            .stamps
            .map(|(value, echo)| TcpOptionElement::Timestamp(value, echo));
        let options: Vec<_> = (self.before.iter().cloned())
            .chain(stamps)
            .chain(self.behind.iter().cloned())
            .collect();
        let [(source, from), (destination, to)] = self.ends;
        let short = |address: [u8; 16]| -> [u8; 4] { address[..4].try_into().unwrap() };
        let ip = match self.v6 {
            true => {
                let mut header = etherparse::Ipv6Header {
                    source,
                    destination,
                    hop_limit: 9,
                    ..Default::default()
                };
                header.traffic_class = self.traffic_class;
                etherparse::IpHeaders::Ipv6(header, Default::default())
            }
            false => {
                let mut header = etherparse::Ipv4Header {
                    source: short(source),
                    destination: short(destination),
                    time_to_live: 9,
                    ..Default::default()
                };
                header.dscp = (self.traffic_class >> 2).try_into().unwrap();
                header.ecn = (self.traffic_class & 3).try_into().unwrap();
                etherparse::IpHeaders::Ipv4(header, Default::default())
            }
        };
        let ethernet = PacketBuilder::ethernet2([2; 6], [4; 6]);
        let builder = match self.tag {
            Some(tag) => ethernet.single_vlan(tag.try_into().unwrap()).ip(ip),
            None => ethernet.ip(ip),
        };
        let mut tcp = builder.tcp(from, to, self.sequence, 1_000);
        let [syn, fin] = self.flags;
        if syn {
            tcp = tcp.syn();
        }
        if fin {
            tcp = tcp.fin();
        }
        if self.acknowledges {
            tcp = tcp.ack(77);
        }
        let mut frame = Vec::new();
        let tcp = tcp.options(&options).unwrap();
        tcp.write(&mut frame, &vec![7; self.payload]).unwrap();
        frame.extend(vec![0; self.padding]);
        frame
    }

    fn back(&self) -> Written {
        let [source, destination] = self.ends;
        Written {
            ends: [destination, source],
            ..self.clone()
        }
    }
}

proptest! {
    #[test]
    fn what_is_read_is_what_was_written(written in written()) {
        let found = segment(&written.frame(), Layer::Ethernet);
        let Some((value, echo)) = written.stamps else {
            prop_assert_eq!(found, None);
            return Ok(());
        };
        let flags = written.flags.iter().filter(|&&is| is).count();
        let length = (written.payload + flags) as u32;
        let found = found.unwrap();
        prop_assert_eq!(found, Segment {
            next: written.sequence.wrapping_add(length),
            length,
            value,
            echo: written.acknowledges.then_some(echo),
            marked: written.traffic_class & 3 == 3,
            ..found
        });
        let back = segment(&written.back().frame(), Layer::Ethernet).unwrap();
        prop_assert_eq!((back.flow, back.reverse), (found.reverse, found.flow));
    }

    #[test]
    fn no_bytes_at_all_lead_it_astray(written in written(), cut in 0..200usize, at in 0..200usize, byte: u8) {
        let mut frame = written.frame();
        if let Some(there) = frame.get_mut(at) {
            *there = byte;
        }
        frame.truncate(cut);
        let _ = segment(&frame, Layer::Ethernet);
        let _ = segment(&frame, Layer::Ip);
    }
}

#[test]
fn a_fragment_tells_nothing() {
    let mut ip = vec![
        0x45, 0, 0, 52, 0, 0, 0, 0, 9, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ];
    let mut tcp = vec![0; 20];
    tcp[12] = 8 << 4;
    tcp.extend([1, 1, 8, 10, 0, 0, 0, 5, 0, 0, 0, 6]);
    ip.extend(tcp);
    assert_eq!(segment(&ip, Layer::Ip).unwrap().value, 5);
    ip[6] = 0x20;
    assert_eq!(segment(&ip, Layer::Ip), None);
    (ip[6], ip[7]) = (0, 1);
    assert_eq!(segment(&ip, Layer::Ip), None);
}
