//! The kernel's program and the classifier agree on the class and flow of a frame.

use std::collections::HashMap;
use std::io;

use fairlane_classify::{Match, Rule};
use fairlane_config::Site;
use fairlane_core::tree::ClassId;
use fairlane_wire::{Family, Fragment, Headers, VlanId, parse};
use proptest::prelude::*;

use super::super::classifier::{Conduct, random_key};
use super::super::rig;
use super::*;

#[path = "../../../classify/tests/it/support/mod.rs"]
mod support;

use support::{rule_match, seen};

const CLASSES: usize = 4;

/// Returns a link with these rules, for frames from inside.
fn link(rules: &[(i32, Match)]) -> Link {
    let class = |number| format!("[[link.class]]\nname = \"class{number}\"\n");
    let text = "[[link]]\nname = \"up\"\nto = \"outside\"\nrate = \"1mbit\"\n".to_owned()
        + &(1..CLASSES).map(class).collect::<String>()
        + "[[link.class]]\nname = \"rest\"\ndefault = true\n";
    let site = Site::parse(&text, "site.toml").unwrap();
    let mut link = (*site.links[0]).clone();
    let numbered = rules.iter().zip((0..CLASSES as u32).cycle());
    link.rules = numbered
        .map(|(&(priority, matches), target)| Rule {
            priority,
            matches,
            target,
        })
        .collect();
    link
}

/// Returns the link's filters; a class has its place as its number.
fn filters(link: &Link) -> LinkClassifier {
    let ids = (0..link.classes.len() as u32).map(ClassId::new);
    link.classifier(&ids.collect::<Vec<_>>(), random_key())
}

/// Returns exhausted limits for all classes.
fn exhausted(link: &Link) -> io::Result<EarlyDrop> {
    let mut rules = rules(link, &filters(link), Role::Inside);
    for class in &mut rules.classes {
        class.first = 0;
    }
    let early = EarlyDrop::new(&rules)?;
    early.start();
    for class in 0..link.classes.len() as u32 {
        early.no_room(class, || Some((super::Family::V4, [0; WORDS])));
    }
    // Frames that say no class.
    early.no_room(link.default, || None);
    Ok(early)
}

/// Returns a frame with these headers.
fn frame(headers: &Headers) -> Vec<u8> {
    let mut frame = vec![2; 12];
    if headers.family == Family::Other {
        let macs = [headers.destination, headers.source].map(|mac| mac as u64);
        frame = macs
            .iter()
            .flat_map(|mac| mac.to_be_bytes()[2..].to_vec())
            .collect();
    }
    if let Some(vlan) = headers.vlan {
        frame.extend([0x81, 0]);
        frame.extend(vlan.get().to_be_bytes());
    }
    let protocol = headers.protocol.map_or(0, |protocol| protocol.0);
    let mut carried = vec![0; 24];
    if let Some(ports) = headers.ports {
        carried[..2].copy_from_slice(&ports.source.to_be_bytes());
        carried[2..4].copy_from_slice(&ports.destination.to_be_bytes());
    }
    let dscp = headers.dscp.get();
    let place: u16 = match headers.fragment {
        Fragment::No => 0,
        Fragment::First => 0x2000,
        Fragment::Later => 0x0007,
    };
    match headers.family {
        Family::V4 => {
            frame.extend([8, 0, 0x45, dscp << 2, 0, 44, 0, 0]);
            frame.extend(place.to_be_bytes());
            frame.extend([64, protocol, 0, 0]);
            frame.extend((headers.source as u32).to_be_bytes());
            frame.extend((headers.destination as u32).to_be_bytes());
        }
        Family::V6 => {
            frame.extend([0x86, 0xdd, 0x60 | dscp >> 2, (dscp & 3) << 6, 0, 0, 0]);
            let fragmented = headers.fragment != Fragment::No;
            let (next, bytes) = if fragmented { (44, 32) } else { (protocol, 24) };
            frame.extend([bytes, next, 64]);
            frame.extend(headers.source.to_be_bytes());
            frame.extend(headers.destination.to_be_bytes());
            if fragmented {
                let place: u16 = match headers.fragment {
                    Fragment::First => 1,
                    _ => 8 << 3,
                };
                frame.extend([protocol, 0]);
                frame.extend(place.to_be_bytes());
                frame.extend([0; 4]);
            }
        }
        Family::Other => frame.extend([0x88, 0xb5]),
    }
    frame.extend(carried);
    frame
}

/// Returns the class of a frame that one of two programs dropped.
fn dropped_of(early: &EarlyDrop, trial: &fairlane_io::early::Trial, frame: &[u8]) -> Option<u32> {
    let counts = || [0, 1, 2, 3].map(|class| early.dropped(class).frames);
    let before = counts();
    let dropped = trial.drops(frame).unwrap();
    let after = counts();
    let of = (0..CLASSES).filter(|&class| after[class] != before[class]);
    let of: Vec<u32> = of.map(|class| class as u32).collect();
    assert_eq!(of.len(), usize::from(dropped), "counted once, if at all");
    of.first().copied()
}

/// Whether tables may be created here.
fn may() -> bool {
    match exhausted(&link(&[])) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            fairlane_netlab::skip("the kernel's programs and the classifier", error);
            false
        }
        made => made.map(drop).is_ok(),
    }
}

/// Classes that the classifier selects for frames from inside: the default class for a malformed frame; if filters
/// match ports, a later fragment goes where the first one of its datagram went, if that has arrived.
struct Classes<'a> {
    link: &'a Link,
    filters: &'a LinkClassifier,
    datagrams: HashMap<(u32, [u64; WORDS]), u32>,
}

impl<'a> Classes<'a> {
    fn new(link: &'a Link, filters: &'a LinkClassifier) -> Classes<'a> {
        Classes {
            link,
            filters,
            datagrams: HashMap::new(),
        }
    }

    fn of(&mut self, frame: &[u8]) -> u32 {
        let Ok(headers) = parse(frame, Layer::Ethernet) else {
            return self.link.default;
        };
        let origin = Origin {
            ingress: Role::Inside.ingress(),
            owner: None,
        };
        let (to, _) = self.filters.find(frame, Layer::Ethernet, &origin);
        let class = to.class.number();
        let mut key = classify::words(&headers);
        let protocol = headers.protocol.filter(|_| headers.family == Family::V4);
        let vlan = headers.vlan.map_or(0, VlanId::get);
        key[0] = u64::from(vlan) << 8 | u64::from(protocol.map_or(0, |protocol| protocol.0));
        let key = (headers.identification, key);
        match headers.fragment {
            _ if !self.filters.follows_fragments() => class,
            Fragment::No => class,
            Fragment::First => {
                self.datagrams.insert(key, class);
                class
            }
            Fragment::Later => *self.datagrams.get(&key).unwrap_or(&class),
        }
    }
}

fn agree(
    list: &[(i32, Match)],
    packets: &[(Headers, Origin)],
    noise: &[(usize, u8, usize)],
) -> Result<(), TestCaseError> {
    let link = link(list);
    let early = exhausted(&link).unwrap();
    let classifier = filters(&link);
    let mut classes = Classes::new(&link, &classifier);
    let trials = [false, true].map(|by_xdp| early.trial(by_xdp).unwrap());
    for (number, (headers, _)) in packets.iter().enumerate() {
        let whole = frame(headers);
        let read = parse(&whole, Layer::Ethernet).unwrap();
        let (told, meant) = (classify::words(&read), classify::words(headers));
        prop_assert_eq!(told, meant, "the frame is what was meant");
        let expected = classes.of(&whole);
        for trial in &trials {
            let of = dropped_of(&early, trial, &whole);
            prop_assert_eq!(of, Some(expected), "{:?}", headers);
        }
        // Any arriving frame counts against its own class only.
        let mut broken = whole;
        for &(at, byte, length) in noise.iter().skip(number % 3) {
            let end = broken.len();
            broken[at % end] = byte;
            broken.truncate(14 + length);
            let expected = classes.of(&broken);
            for trial in &trials {
                let of = dropped_of(&early, trial, &broken);
                prop_assert_eq!(of, Some(expected), "{:x?}", broken);
            }
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_frame_is_dropped_of_the_class_that_it_would_have_had(
        list in prop::collection::vec((0..3i32, rule_match()), 0..64),
        packets in prop::collection::vec(seen(), 1..40),
        noise in prop::collection::vec((0..80usize, any::<u8>(), 0..90usize), 0..6),
    ) {
        if may() {
            agree(&list, &packets, &noise)?;
        }
    }
}

/// Returns an Ethernet header with these tags and this type, and the payload.
fn tagged(tags: &[(u16, u16)], kind: u16, behind: &[u8]) -> Vec<u8> {
    let mut frame = vec![2; 12];
    for (kind, tag) in tags {
        frame.extend(kind.to_be_bytes());
        frame.extend(tag.to_be_bytes());
    }
    frame.extend(kind.to_be_bytes());
    frame.extend(behind);
    frame
}

/// Returns an IPv6 datagram to UDP port 5060, behind these extension headers.
fn extended(extensions: &[(u8, &[u8])], hop_limit: u8, protocol: u8, carried: &[u8]) -> Vec<u8> {
    let next = extensions.iter().skip(1).map(|(kind, _)| *kind);
    let mut behind = Vec::new();
    for ((_, bytes), next) in extensions.iter().zip(next.chain([protocol])) {
        behind.push(next);
        behind.extend(*bytes);
    }
    behind.extend(carried);
    let first = extensions.first().map_or(protocol, |(kind, _)| *kind);
    let mut datagram = vec![0x60, 0, 0, 0, 0, behind.len() as u8, first, hop_limit];
    datagram.extend([0x20; 32]);
    datagram.extend(behind);
    datagram
}

/// Frames with IP in a session with every length, version and code, and behind MPLS labels; both also behind tags.
fn encapsulated(v4: &[u8], v6: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let mut frames = Vec::new();
    for (protocol, packet) in [(0x21, v4), (0x57, v6), (0x57, v4), (0xfd, v4)] {
        for (first, code, more) in [
            (0x11, 0, 0),
            (0x12, 0, 0),
            (0x11, 9, 0),
            (0x11, 0, 1),
            (0x11, 0, -99),
        ] {
            let length = packet.len() as i16 + 2 + more;
            let header = [first, code, 0, 1, 0, length as u8, 0, protocol];
            let session = [&header[..], packet, &[0; 9]].concat();
            for tags in [&[][..], &[(0x88a8, 7), (0x8100, 9)]] {
                for end in [session.len(), 30, 7] {
                    let cut = &session[..end.min(session.len())];
                    frames.push(tagged(tags, 0x8864, cut));
                }
            }
        }
    }
    for labels in [1, 8, 9] {
        for packet in [v4, v6, &[0; 30], &[]] {
            let mut stack = [0, 1, 0x30, 64].repeat(labels);
            stack[4 * labels - 2] |= 1;
            let behind = [&stack[..], packet].concat();
            for end in [
                behind.len(),
                behind.len().saturating_sub(20),
                4 * labels - 1,
            ] {
                frames.push(tagged(&[(0x8100, 7)], 0x8847, &behind[..end]));
                frames.push(tagged(&[], 0x8848, &behind[..end]));
            }
        }
    }
    frames.into_iter()
}

/// Frames of every shape that the classifier knows, and whether each is link-layer control.
fn shapes() -> Vec<(Vec<u8>, bool)> {
    let udp = [0x13, 0xc4, 0x13, 0xc4, 0, 8, 0, 0];
    let v4 = [
        &[0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0][..],
        &[10; 8],
        &udp,
    ]
    .concat();
    let plain = |extensions: &[(u8, &[u8])]| extended(extensions, 64, 17, &udp);
    let (options, ah) = ([0; 7], [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let (first, later) = ([0, 0, 1, 0, 0, 0, 7], [0, 0, 8, 0, 0, 0, 7]);
    let mut frames = Vec::new();
    for tags in [0, 1, 2, 3, 4, 5] {
        for outermost in [0, 7] {
            let mut all = vec![(0x8100, 9); tags];
            all.first_mut()
                .into_iter()
                .for_each(|tag| *tag = (0x88a8, outermost));
            frames.push((tagged(&all, 0x0800, &v4), false));
            frames.push((tagged(&all, 0x86dd, &plain(&[])), false));
            frames.push((tagged(&all, 0x0806, &[0; 28]), tags < 5));
        }
    }
    for extensions in [
        &[(0, &options[..])][..],
        &[(0, &options[..]), (60, &[1; 15][..])],
        &[(43, &options[..]), (51, &ah[..])],
        &[(44, &first[..])],
        &[(44, &later[..])],
        &[(0, &options[..]), (44, &later[..])],
        &[(60, &[255; 7][..])],
        &[(60, &options[..]); 8],
        &[(60, &options[..]); 9],
        &[[(60, &options[..]); 8], [(44, &later[..]); 8]].concat()[..9],
    ] {
        frames.push((tagged(&[], 0x86dd, &plain(extensions)), false));
    }
    // Headers that contradict themselves, and frames that end in them.
    for (at, byte) in [(0, 0x55), (0, 0x42), (0, 0x4f), (3, 200), (3, 8)] {
        let mut broken = v4.clone();
        broken[at] = byte;
        frames.push((tagged(&[], 0x0800, &broken), false));
    }
    for bytes in [0, 3, 19] {
        frames.push((tagged(&[], 0x0800, &v4[..bytes]), false));
        frames.push((tagged(&[(0x8100, 7)], 0x86dd, &v4[..bytes]), false));
    }
    frames.push((tagged(&[], 0x8100, &[0, 7]), false));
    // Neighbour discovery, and packets that look alike.
    for (hop_limit, kind, is_one) in [(255, 135, true), (255, 128, false), (64, 135, false)] {
        let datagram = extended(&[], hop_limit, 58, &[kind, 0, 0, 0, 0, 0, 0, 0]);
        frames.push((tagged(&[(0x8100, 7)], 0x86dd, &datagram), is_one));
    }
    frames.push((tagged(&[], 0x86dd, &extended(&[], 255, 58, &[])), false));
    // PPPoE: discovery, LCP and IPv4 in a session, and one that is cut off.
    frames.push((tagged(&[], 0x8863, &[0x11, 9, 0, 0, 0, 0]), true));
    for (protocol, is_one) in [(0xc0, true), (0x80, true), (0x00, false)] {
        let session = [0x11, 0, 0, 1, 0, 2, protocol, 0x21];
        frames.push((tagged(&[(0x8100, 7)], 0x8864, &session), is_one));
    }
    frames.push((tagged(&[], 0x8864, &[0x11, 0, 0, 1]), false));
    frames.extend(encapsulated(&v4, &plain(&[])).map(|frame| (frame, false)));
    // STP and LLDP, by their address.
    for (address, is_one) in [(0x00, true), (0x0e, true), (0x10, false)] {
        let mut frame = tagged(&[], 0x0026, &[0x42; 46]);
        frame[..6].copy_from_slice(&[0x01, 0x80, 0xc2, 0, 0, address]);
        frames.push((frame, is_one));
    }
    frames
}

/// With flows a malformed frame has a limit that no flow shares.
#[test]
fn frames_of_every_shape_are_dropped_of_the_class_that_the_classifier_has_for_them() {
    let vlan = Match {
        vlan: VlanId::new(7),
        ..Match::default()
    };
    let sip = Match {
        destination_port: Some("5060".parse().unwrap()),
        ..Match::default()
    };
    let mut link = link(&[(0, vlan), (0, sip)]);
    for (frame, is_control) in shapes() {
        let is = parse(&frame, Layer::Ethernet).is_ok_and(|headers| headers.link_control);
        assert_eq!(is, is_control, "{frame:x?}");
    }
    if !may() {
        return;
    }
    // In the last one, frames are longer than most classes allow.
    for (control, longest) in [(None, 1_522), (Some(2), 1_522), (Some(2), 80)] {
        link.link_control = control;
        let mut classes: Vec<_> = link.classes.iter().cloned().collect();
        for class in &mut classes[1..] {
            class.longest = fairlane_core::Length::new(longest).unwrap();
        }
        link.classes = classes.into();
        let classifier = filters(&link);
        let early = exhausted(&link).unwrap();
        for by_xdp in [false, true] {
            let mut classes = Classes::new(&link, &classifier);
            let trial = early.trial(by_xdp).unwrap();
            for (frame, _) in shapes() {
                let expected = classes.of(&frame);
                let of = dropped_of(&early, &trial, &frame);
                assert_eq!(of, Some(expected), "{frame:x?} {by_xdp}");
            }
        }
    }
}

/// A flood of malformed frames uses nothing of a class whose flows are within their limits.
#[test]
fn malformed_frames_have_a_limit_of_their_own_in_a_class_of_flows() {
    if !may() {
        return;
    }
    let text = "[[link]]\nname = \"up\"\nrate = \"1mbit\"\n[[link.class]]\nname = \"all\"\nper = \"source-ip\"\n\
                default = true\n";
    let site = Site::parse(text, "site.toml").unwrap();
    let link = &site.links[0];
    let early = EarlyDrop::new(&rules(link, &filters(link), Role::Inside)).unwrap();
    early.start();
    let broken = tagged(&[], 0x0800, &[0; 46]);
    let whole = |host: u8| {
        let mut datagram = [0; 46];
        (datagram[0], datagram[3], datagram[15]) = (0x45, 20, host);
        tagged(&[], 0x0800, &datagram)
    };
    early.no_room(0, || words(&broken));
    let trial = early.trial(false).unwrap();
    let lost = (0..100).filter(|_| trial.drops(&broken).unwrap()).count();
    assert_eq!(lost, 100 - OF_FLOW.0 as usize);
    for host in 0..200 {
        assert!(!trial.drops(&whole(host)).unwrap(), "{host}");
    }
    // Each frame that leaves opens the window.
    for _ in 0..OF_FLOW.1 {
        early.sent(0, || words(&broken));
    }
    assert!(!trial.drops(&broken).unwrap());
}

/// Returns the first or the last fragment of a UDP datagram to this port.
fn fragment(v6: bool, port: u16, id: u8, is_first: bool) -> Vec<u8> {
    let mut carried = [0; 8];
    if is_first {
        carried[2..4].copy_from_slice(&port.to_be_bytes());
    }
    let place: u16 = if is_first { 1 } else { 8 };
    if v6 {
        let place = place.to_be_bytes();
        let header = [0, place[0], place[1], 0, 0, 0, id];
        return tagged(
            &[],
            0x86dd,
            &extended(&[(44, &header[..])], 64, 17, &carried),
        );
    }
    let [high, low] = (place >> 3 | (place & 1) << 13).to_be_bytes();
    let header = [0x45, 0, 0, 28, 0, id, high, low, 64, 17, 0, 0];
    tagged(&[], 0x0800, &[&header[..], &[10; 8], &carried].concat())
}

/// A flood of fragmented datagrams of one class, all of a host that sends voice, too: each is dropped whole or not at all,
/// and neither voice, nor the default class, loses a fragment by it.
#[test]
fn a_flood_of_fragments_takes_no_fragment_of_another_class() {
    let to_port = |port: &str| Match {
        destination_port: Some(port.parse().unwrap()),
        ..Match::default()
    };
    let link = link(&[(0, to_port("5004")), (0, to_port("1000"))]);
    let (voice, flood) = (0, 1);
    if !may() {
        return;
    }
    let early = EarlyDrop::new(&rules(&link, &filters(&link), Role::Inside)).unwrap();
    let drops = |trial: &fairlane_io::early::Trial, frame: &[u8]| trial.drops(frame).unwrap();
    for (by_xdp, v6) in [(false, false), (false, true), (true, false), (true, true)] {
        let trial = early.trial(by_xdp).unwrap();
        early.start();
        // The daemon's queue is full for one of them.
        early.no_room(flood, || words(&fragment(v6, 1_000, 0, false)));
        let mut passed = 0;
        for id in 1..100 {
            let [first, last] = [true, false].map(|is_first| fragment(v6, 1_000, id, is_first));
            let first = drops(&trial, &first);
            passed += usize::from(!first);
            // A later part is useless, even if there is space by then.
            early.sent(flood, || words(&last));
            assert_eq!(drops(&trial, &last), first, "{id}");
            for _ in 0..2 {
                let voice = [true, false].map(|is_first| fragment(v6, 5_004, 100 + id, is_first));
                assert!(voice.iter().all(|frame| !drops(&trial, frame)), "{id}");
            }
        }
        assert!((30..99).contains(&passed), "{passed}");
        // The last fragments of unknown datagrams are of the default class, which has no limit.
        assert!((0..50).all(|id| !drops(&trial, &fragment(v6, 0, 200 + id, false))));
        early.stop();
    }
    assert_eq!(early.dropped(voice).frames, 0);
    assert_eq!(early.dropped(link.default).frames, 0);
}

/// The thread stands still for a second. The frames of voice, which sends 1.6 of its 2 Mbit/s meanwhile, then arrive at
/// once and exceed its queue: it gets no window. The other class has exceeded its guarantee, and gets one.
#[test]
fn a_class_that_keeps_to_its_guarantee_has_no_window_however_late_it_is_received() {
    if !may() {
        return;
    }
    let text = "[[link]]\nname = \"up\"\nrate = \"10mbit\"\n[[link.class]]\nname = \"voice\"\nrate = \"2mbit\"\n\
                [[link.class]]\nname = \"rest\"\ndefault = true\n\
                [[link.filter]]\nclass = \"voice\"\nsource = \"10.0.0.1\"\n";
    let site = Site::parse(text, "site.toml").unwrap();
    let port = Port::new("lan0", Role::Inside, Arc::new(|_| ()));
    let (device, _) = fairlane_io::memory::pair::<crate::frame::Frame, crate::frame::Frame>(1);
    let (_plan, mut arbiter) = crate::plan::Plan::start(
        &site.links[0],
        fairlane_runtime::bridge::Side::Right,
        device,
        0,
        Some(Arc::new(port)),
        Nanos::ZERO,
    );
    let of_port =
        fairlane_core::FlowConfig::new(fairlane_core::Weight::ONE, fairlane_core::Length::MAX);
    let queue = arbiter.queue_mut();
    let by = fairlane_runtime::Queue::add_flow(queue, of_port).unwrap();
    queue.classifier().early().unwrap().start();
    let now = Nanos::from_secs(2);
    let mut rejected = [0, 0];
    for (source, bytes, count) in [(1, 200, 1_200), (2, 1_000, 3_000)] {
        for number in 0..count {
            let came = Nanos(1_200_000_000 / count * number);
            let received = rig::received(rig::frame(source, bytes), came);
            let len = fairlane_core::Length::new(bytes as u32).unwrap();
            let put = fairlane_runtime::Queue::enqueue(queue, by, len, received, now, drop);
            rejected[source as usize - 1] += u64::from(put.is_err());
        }
    }
    assert!(
        rejected.iter().all(|&rejected| rejected > 100),
        "{rejected:?}"
    );
    let early = queue.classifier().early().unwrap();
    let trial = early.trial(false).unwrap();
    let lost = [1, 2].map(|source| {
        let frame = rig::frame(source, 200);
        (0..100).filter(|_| trial.drops(&frame).unwrap()).count()
    });
    assert_eq!(lost, [0, 100 - OF_CLASS.0 as usize]);
}

/// A class of 8 Mbit/s with a burst of 10 ms. One of two receivers lags a second behind the other, and each has half of its frames.
#[test]
fn a_receiver_that_lags_behind_another_makes_no_class_exceed_its_guarantee() {
    let burst = Nanos::from_millis(10);
    let received = |bytes: u64| {
        let mut conduct = Conduct::default();
        let span = Nanos::from_micros(bytes);
        let all_of = |first: u64, last: u64, half: u64| {
            (first..last).map(move |milli| Nanos::from_micros(milli * 1_000 + half * 500))
        };
        for round in (0..2_000).step_by(100) {
            let ahead = all_of(1_000 + round, 1_100 + round, 0);
            let behind = all_of(round, round + 100, 1);
            for came in ahead.chain(behind) {
                conduct.arrive(span, burst, came);
            }
        }
        conduct.is_within(burst)
    };
    // The guaranteed rate is 500 bytes each half of a millisecond.
    assert!(received(500));
    assert!(!received(5_000));
}

#[test]
fn a_thousand_destinations_are_one_table_and_what_is_not_certain_passes() {
    if !may() {
        return;
    }
    let host = |number: u32| Match {
        destination: Some(
            format!("10.1.{}.{}", number / 256, number % 256)
                .parse()
                .unwrap(),
        ),
        ..Match::default()
    };
    let range = |number: u16| Match {
        source_port: Some(
            format!("{}-{}", 10 * number + 1, 10 * number + 6)
                .parse()
                .unwrap(),
        ),
        ..Match::default()
    };
    let packet = |destination: u32, from: u16| Headers {
        family: Family::V4,
        destination: u128::from(0x0a01_0000 + destination),
        protocol: Some(wire::Protocol::UDP),
        ports: Some(wire::Ports {
            source: from,
            destination: 9,
        }),
        ..Headers::default()
    };
    let hosts: Vec<_> = (0..1_000).map(|number| (1, host(number))).collect();
    let packets: Vec<_> = [0, 1, 998, 999, 1_000, 70_000].map(|n| packet(n, 7)).into();
    let some = |packets: &[Headers]| {
        packets
            .iter()
            .map(|&one| (one, Origin::default()))
            .collect()
    };
    let packets: Vec<(Headers, Origin)> = some(&packets);
    agree(&hosts, &packets, &[]).unwrap();
    // More ranges than are compared.
    let ranges = (0..70).map(|number| (0, range(number)));
    let list: Vec<_> = hosts.into_iter().chain(ranges).collect();
    let link = link(&list);
    let early = exhausted(&link).unwrap();
    let trial = early.trial(false).unwrap();
    let of = |packet| dropped_of(&early, &trial, &frame(&packet));
    let target = |rule: u32| Some(rule % CLASSES as u32);
    assert_eq!(of(packet(999, 650)), target(999));
    assert_eq!(of(packet(5_000, 635)), target(1_063));
    assert_eq!(
        of(packet(5_000, 645)),
        None,
        "of the first that is left out"
    );
    assert_eq!(
        of(packet(5_000, 9_000)),
        None,
        "it might have been one of them"
    );
}

#[test]
fn what_was_dropped_early_of_a_class_stays_counted_when_that_goes() {
    let of_classes = |classes: &str| {
        let text = format!(
            "[[link]]\nname = \"up\"\nto = \"outside\"\nrate = \"1mbit\"\n{classes}\
             [[link.class]]\nname = \"rest\"\ndefault = true\n"
        );
        let site = Site::parse(&text, "site.toml").unwrap();
        Arc::clone(&site.links[0])
    };
    let classes = [
        "[[link.class]]\nname = \"gone\"\n[[link.class]]\nname = \"other\"\n",
        "[[link.class]]\nname = \"other\"\n",
        "",
    ];
    let [first, then, last] = classes.map(of_classes);
    let (mut plan, ..) = rig::start(&first);
    for link in [then, last] {
        plan.accounts[0].early.before.packets += 5;
        let next = plan.running().becomes(link);
        let (taking, mut after) = plan.taking(next, None);
        after.inherit(&plan, &taking);
        plan = after;
    }
    assert_eq!(plan.early_of_gone, 10);
}

/// Returns how many seconds the limits hold after a momentary overload at this time in seconds.
fn holds(guard: &mut Guard, early: &EarlyDrop, from: u64) -> u64 {
    guard.look(early, true, 0, Nanos::from_secs(from));
    assert!(early.is_on());
    let mut now = from;
    while early.is_on() {
        now += 1;
        guard.look(early, false, 0, Nanos::from_secs(now));
    }
    now - from
}

#[test]
fn limits_hold_for_longer_where_overloads_come_again_and_again() {
    if !may() {
        return;
    }
    let early = exhausted(&link(&[])).unwrap();
    early.stop();
    let mut guard = Guard::default();
    let mut now = 100;
    for held in [1, 2, 4, 8, 16, 32, 64, 64] {
        assert_eq!(holds(&mut guard, &early, now), held);
        now += held + 100;
    }
    // Others take the place of the tables in the middle of one.
    let from = now + 10;
    guard.look(&early, true, 0, Nanos::from_secs(from));
    early.stop();
    assert_eq!(holds(&mut guard, &early, from + 5), 64);
    now = from + 5 + 64 + 100;
    // After two quiet minutes it counts as the first again.
    assert_eq!(holds(&mut guard, &early, now + 20), 1);
    // The same after a time without shaping.
    assert_eq!(holds(&mut guard, &early, now + 30), 2);
    guard.look(&early, true, 0, Nanos::from_secs(now + 40));
    guard.rest(&early);
    assert_eq!(holds(&mut guard, &early, now + 41), 1);
}

/// Queues reject a flood while the thread keeps up with it. Limits are set before it stands still, so that arrivals of
/// the flood meanwhile do not fill the ring.
#[test]
fn a_flood_has_limits_before_the_thread_stands_still() {
    if !may() {
        return;
    }
    let early = exhausted(&link(&[])).unwrap();
    early.stop();
    // 7,000 frames a second may as well be received, 100,000 may not.
    for (each, limited) in [(7, false), (100, true)] {
        let mut guard = Guard::default();
        let mut rejected = 0;
        for millis in 0..3_000 {
            guard.look(&early, false, rejected, Nanos::from_millis(millis));
            rejected += each;
            early.no_room(0, || None);
        }
        assert_eq!(early.has_limits(), limited, "{each}");
    }
    // Other filters count from zero.
    let mut guard = Guard::default();
    early.stop();
    for rejected in [0, 7_000, 0, 7_999] {
        guard.look(&early, false, rejected, Nanos::from_millis(1));
    }
    assert!(!early.is_on());
}
