//! Fragments go where the first one of their datagram went.

use fairlane_classify::{DigestKey, Found, LinkClassifier, Match, Origin, Per, Rule};
use fairlane_core::Nanos;
use fairlane_core::tree::{ClassFlow, ClassId};
use fairlane_wire::Layer;

const VOICE: u32 = 1;
const REST: u32 = 2;

/// Returns a link whose filter sends port 5060 to voice.
fn link() -> LinkClassifier {
    let sip = Match {
        destination_port: Some("5060".parse().unwrap()),
        ..Match::default()
    };
    let rules = [Rule {
        priority: 0,
        matches: sip,
        target: 0,
    }];
    let classes = [
        (ClassId::new(VOICE), Some(Per::FiveTuple)),
        (ClassId::new(REST), Some(Per::SourceIp)),
    ];
    LinkClassifier::new(rules, classes, 1, DigestKey([3, 4]))
}

/// A fragment of a datagram of UDP to port 5060.
#[derive(Clone, Copy)]
struct Part {
    v6: bool,
    source: u32,
    id: u16,
    /// In eight bytes.
    offset: u16,
    more: bool,
}

impl Part {
    const BYTES: u16 = 800;

    fn packet(self) -> Vec<u8> {
        let mut packet;
        if self.v6 {
            packet = vec![0x60, 0, 0, 0];
            packet.extend((Part::BYTES + 8).to_be_bytes());
            packet.extend([44, 64]);
            packet.extend(self.source.to_be_bytes());
            packet.extend([9; 28]);
            packet.extend([17, 0]);
            packet.extend((self.offset << 3 | u16::from(self.more)).to_be_bytes());
            packet.extend([0, 0]);
            packet.extend(self.id.to_be_bytes());
        } else {
            packet = vec![0x45, 0];
            packet.extend((Part::BYTES + 20).to_be_bytes());
            packet.extend(self.id.to_be_bytes());
            packet.extend((self.offset | u16::from(self.more) << 13).to_be_bytes());
            packet.extend([64, 17, 0, 0]);
            packet.extend(self.source.to_be_bytes());
            packet.extend([9; 4]);
        }
        // The ports, or bytes of a later fragment.
        packet.extend([0x13, 0xc4, 0x13, 0xc4]);
        packet.resize(packet.len() + usize::from(Part::BYTES) - 4, 0);
        packet
    }

    /// Returns all three of a datagram.
    fn of_datagram(v6: bool, source: u32, id: u16) -> [Part; 3] {
        [(0, true), (100, true), (200, false)].map(|(offset, more)| Part {
            v6,
            source,
            id,
            offset,
            more,
        })
    }
}

fn classify(link: &mut LinkClassifier, part: Part, ingress: u16, now: Nanos) -> ClassFlow {
    let origin = Origin {
        ingress,
        owner: None,
    };
    link.classify(&part.packet(), Layer::Ip, &origin, now)
}

fn orphans(link: &mut LinkClassifier) -> Vec<u32> {
    link.take_orphans().map(|class| class.number()).collect()
}

/// 250 datagrams a second of one host, whose fragments arrive interleaved with those of another one: none is an orphan.
#[test]
fn later_fragments_follow_the_first_of_their_datagram() {
    for v6 in [false, true] {
        let mut link = link();
        for id in 0..250 {
            let now = Nanos::from_millis(4 * u64::from(id));
            let [first, second, third] = Part::of_datagram(v6, 7, id);
            let other = Part::of_datagram(v6, 7, id + 1_000);
            let to = classify(&mut link, first, 0, now);
            assert_eq!(to.class.number(), VOICE);
            for part in [other[0], third, second, other[1], other[2]] {
                assert_eq!(classify(&mut link, part, 0, now), to, "{id}");
            }
        }
        assert_eq!(orphans(&mut link), []);
    }
}

#[test]
fn packets_that_are_classified_together_follow_too() {
    let mut link = link();
    let packets = Part::of_datagram(false, 7, 1).map(Part::packet);
    let (mut scratch, mut to) = (Default::default(), Vec::new());
    let all = packets
        .iter()
        .map(|packet| (&packet[..], Origin::default()));
    link.classify_all(all, Layer::Ip, Nanos::ZERO, &mut scratch, &mut to);
    assert!(to.iter().all(|to| to.class.number() == VOICE), "{to:?}");
    // A thread that shares the filters knows no datagrams, and reports a fragment.
    let (_, found) = link.find(&packets[1], Layer::Ip, &Origin::default());
    assert!(found.has(Found::FRAGMENT));
}

#[test]
fn an_orphan_goes_by_the_filters_and_is_counted() {
    let mut link = link();
    let [first, second, third] = Part::of_datagram(false, 7, 1);
    let of = |link: &mut LinkClassifier, part, ingress, millis| {
        let to = classify(link, part, ingress, Nanos::from_millis(millis));
        to.class.number()
    };
    // Before the first, from another interface, and more than a second later.
    assert_eq!(of(&mut link, second, 0, 0), REST);
    assert_eq!(of(&mut link, first, 0, 0), VOICE);
    assert_eq!(of(&mut link, second, 1, 0), REST);
    assert_eq!(of(&mut link, second, 0, 999), VOICE);
    assert_eq!(of(&mut link, second, 0, 2_000), REST);
    assert_eq!(orphans(&mut link), [REST; 3]);
    // A datagram is forgotten when all of it was seen.
    let all = Part::of_datagram(true, 7, 1);
    for part in all {
        assert_eq!(of(&mut link, part, 0, 3_000), VOICE);
    }
    assert_eq!(of(&mut link, all[2], 0, 3_000), REST);
    // With other numbers of classes no datagram is known.
    assert_eq!(of(&mut link, first, 0, 3_000), VOICE);
    link.renumber(&[ClassId::new(5), ClassId::new(6)]);
    assert_eq!(of(&mut link, third, 0, 3_000), 6);
}

/// A flood of 200,000 lone first fragments a second, from one source or with forged ones, and datagrams of 100 hosts
/// that begin during it and whose fragments arrive 2 ms apart: each datagram is known to its end.
#[test]
fn no_flood_of_first_fragments_takes_a_datagram_of_another_source() {
    const GAP: u64 = 2_000;
    for is_forged in [false, true] {
        let mut link = link();
        let mut lost = 0;
        let mut parts = Vec::new();
        for host in 0..100_u32 {
            let all = Part::of_datagram(host % 2 == 0, host, 1);
            for (number, part) in (0..).zip(all) {
                // The first ones when the table is full by far.
                parts.push((40_000 + u64::from(host) * 250 + number * GAP, part));
            }
        }
        parts.sort_by_key(|&(micros, _)| micros);
        let mut parts = parts.into_iter().peekable();
        for number in 0..14_000_u32 {
            let micros = u64::from(number) * 5;
            let now = Nanos::from_micros(micros);
            let forged = 1_000_000 + number.wrapping_mul(0x9e37_79b9) % 1_000_000;
            let source = if is_forged { forged } else { 5_000 };
            let [first, ..] = Part::of_datagram(false, source, number as u16);
            classify(&mut link, first, 0, now);
            while let Some((_, part)) = parts.next_if(|&(at, _)| at <= micros) {
                lost += u32::from(classify(&mut link, part, 0, now).class.number() != VOICE);
            }
        }
        assert!(parts.next().is_none());
        assert_eq!((lost, orphans(&mut link)), (0, vec![]), "{is_forged}");
    }
}

#[test]
fn without_a_filter_that_asks_for_ports_fragments_need_no_table() {
    let udp = Match {
        protocol: Some("udp".parse().unwrap()),
        ..Match::default()
    };
    let rules = [Rule {
        priority: 0,
        matches: udp,
        target: 0,
    }];
    let classes = [(ClassId::new(VOICE), None)];
    let mut link = LinkClassifier::new(rules, classes, 0, DigestKey([3, 4]));
    assert!(!link.follows_fragments());
    let [_, second, _] = Part::of_datagram(false, 7, 1);
    let (to, found) = link.find(&second.packet(), Layer::Ip, &Origin::default());
    assert_eq!((to.class.number(), found), (VOICE, Found::FILTER));
    classify(&mut link, second, 0, Nanos::ZERO);
    assert_eq!(orphans(&mut link), []);
}

#[test]
fn frames_of_protocols_that_no_filter_looks_into_are_counted() {
    let mut link = link();
    let frame = |ethertype: u16, behind: &[u8]| {
        let mut frame = vec![2; 12];
        frame.extend(ethertype.to_be_bytes());
        frame.extend(behind);
        frame
    };
    let session = |[high, low]: [u8; 2]| frame(0x8864, &[0x11, 0, 0, 1, 0, 2, high, low]);
    let frames = [
        frame(0x8847, &[0; 46]),
        // Compressed datagrams of PPP.
        session([0x00, 0xfd]),
        // Link-layer control, and a malformed frame.
        session([0xc0, 0x21]),
        frame(0x0806, &[0; 28]),
        frame(0x0800, &[0; 46]),
    ];
    for frame in &frames {
        link.classify(frame, Layer::Ethernet, &Origin::default(), Nanos::ZERO);
    }
    assert_eq!(link.opaque(), (2, 0x8847));
    let (mut scratch, mut to) = (Default::default(), Vec::new());
    let all = frames.iter().map(|frame| (&frame[..], Origin::default()));
    link.classify_all(all, Layer::Ethernet, Nanos::ZERO, &mut scratch, &mut to);
    assert_eq!(link.opaque(), (4, 0x8847));
    let (_, found) = link.find(&frames[0], Layer::Ethernet, &Origin::default());
    link.count(found, &frames[0]);
    assert_eq!(link.opaque(), (5, 0x8847));
    // One more of another type does not outvote these.
    let (_, found) = link.find(&frames[1], Layer::Ethernet, &Origin::default());
    link.count(found, &frames[1]);
    assert_eq!(link.opaque(), (6, 0x8847));
    // However many there were, some hundred of another type in a row do.
    let mut add = |frame: &[u8], times| {
        let (_, found) = link.find(frame, Layer::Ethernet, &Origin::default());
        (0..times).for_each(|_| link.count(found, frame));
        link.opaque()
    };
    assert_eq!(add(&frames[0], 10_000), (10_006, 0x8847));
    assert_eq!(add(&frames[1], 200), (10_206, 0x8864));
}
