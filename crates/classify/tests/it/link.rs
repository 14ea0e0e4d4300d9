//! The filters of a link.

use fairlane_classify::{DigestKey, LinkClassifier, Match, Origin, Owner, Per, Rule, Scratch};
use fairlane_core::Nanos;
use fairlane_core::random::splitmix64;
use fairlane_core::tree::ClassId;
use fairlane_wire::Layer;

use crate::lists::{frames, list};

/// Of one family there are many rules, of the others few, or none.
#[test]
fn packets_that_come_together_go_where_each_goes_by_itself() {
    for kind in ["destinations", "firewall v6"] {
        let mut rules = list(kind, 2_000);
        let all = frames(&rules, 500);
        // All packets of a user, so that the origin of packets matters too.
        rules.push(Rule {
            priority: -1,
            matches: Match {
                uid: Some(7),
                ..Match::default()
            },
            target: 1_999,
        });
        let mut state = 1;
        let mut random = move || splitmix64(&mut state);
        let garbage = (0..500).map(|_| {
            let mut frame = all[random() as usize % all.len()].clone();
            for _ in 0..4 {
                let at = random() as usize % frame.len();
                frame[at] = random() as u8;
            }
            frame.truncate(random() as usize % (frame.len() + 20));
            frame
        });
        let garbage: Vec<_> = garbage.collect();
        let all: Vec<_> = all.iter().chain(&garbage).collect();
        let classes = (0..2_000).map(|number| (ClassId::new(number + 1), Some(Per::FiveTuple)));
        let mut together = LinkClassifier::new(rules, classes, 0, DigestKey([3, 4]));
        let mut alone = together.clone();
        let of = |uid| Origin {
            ingress: 1,
            owner: Some(Owner {
                uid,
                gid: 0,
                pid: 1,
            }),
        };
        let origins = [Origin::default(), of(7), of(8)];
        let (mut scratch, mut to) = (Scratch::default(), Vec::new());
        // Many, and fewer than are looked up together; of none nothing is said.
        for frames in all.chunks(150).chain(all.chunks(7)).chain([&[][..]]) {
            let frames = || frames.iter().zip(origins.iter().cycle());
            let packets: Vec<_> = frames()
                .map(|(&frame, &origin)| (&frame[..], origin))
                .collect();
            to.clear();
            together.classify_all(
                packets.iter().copied(),
                Layer::Ethernet,
                Nanos::ZERO,
                &mut scratch,
                &mut to,
            );
            let each = frames()
                .map(|(frame, origin)| alone.classify(frame, Layer::Ethernet, origin, Nanos::ZERO));
            assert_eq!(to, each.collect::<Vec<_>>());
        }
        assert_eq!(together.malformed(), alone.malformed());
        assert!(
            together.malformed() > 100,
            "{kind}: {}",
            together.malformed()
        );
        assert_eq!(together.unmatched(), alone.unmatched());
        // The firewall's last rule takes everything.
        assert_eq!(together.unmatched() > 100, kind == "destinations");
    }
}

/// The length of a class is a part of what its filters ask for.
#[test]
fn a_packet_longer_than_its_class_allows_goes_to_the_default_class() {
    let rules = list("destinations", 2_000);
    let classes = (0..2_000).map(|number| (ClassId::new(number), None));
    let all = frames(&rules, 200);
    let any = LinkClassifier::new(rules, classes, 5, DigestKey([3, 4]));
    let length = all[0].len() as u32;
    let longest = (0..2_000).map(|place| length - u32::from(place % 2 == 0));
    let mut short = any.clone().with_longest(longest);
    let (mut to, mut scratch) = (Vec::new(), Scratch::default());
    let packets = all.iter().map(|frame| (&frame[..], Origin::default()));
    short.classify_all(packets, Layer::Ethernet, Nanos::ZERO, &mut scratch, &mut to);
    let mut moved = 0;
    for (frame, to) in all.iter().zip(&to) {
        assert_eq!(frame.len() as u32, length);
        let (free, _) = any.find(frame, Layer::Ethernet, &Origin::default());
        let fits = free.class.number() % 2 == 1;
        let expected = if fits { free.class } else { ClassId::new(5) };
        assert_eq!(to.class, expected);
        moved += u64::from(!fits);
    }
    // They count as packets that no filter matches.
    assert!(moved > 20 && short.unmatched() >= moved);
    let mut any = any;
    for frame in &all {
        any.classify(frame, Layer::Ethernet, &Origin::default(), Nanos::ZERO);
    }
    assert_eq!(short.unmatched(), any.unmatched() + moved);
}
