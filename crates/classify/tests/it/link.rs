//! The filters of a link.

use fairlane_classify::{DigestKey, Layer, LinkClassifier, Match, Origin, Per, Rule};
use fairlane_core::random::splitmix64;
use fairlane_core::tree::ClassId;

use crate::lists::{frames, list};

/// Of one family there are many rules, of the others few, or none.
#[test]
fn what_is_fetched_before_changes_nothing_whatever_the_packets() {
    for kind in ["destinations", "firewall v6"] {
        let mut rules = list(kind, 2_000);
        let to_both = Rule {
            priority: -1,
            matches: Match::default(),
            target: 0,
        };
        let all = frames(&rules, 500);
        rules.push(to_both);
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
        let classes = (0..2_000).map(|_| (ClassId::ROOT, Some(Per::FiveTuple)));
        let mut with = LinkClassifier::new(rules, classes, 0, DigestKey([3, 4]));
        let mut without = with.clone();
        let origin = Origin::default();
        // More than are looked at together, and fewer.
        for frames in all.chunks(150).chain(all.chunks(7)) {
            with.prefetch(
                frames.iter().map(|frame| (&frame[..], &origin)),
                Layer::Ethernet,
            );
            for frame in frames {
                let [with, without] = [&mut with, &mut without]
                    .map(|link| link.classify(frame, Layer::Ethernet, &origin));
                assert_eq!(with, without);
            }
        }
        assert_eq!(with.malformed(), without.malformed());
        assert!(with.malformed() > 100, "{}", with.malformed());
        assert_eq!(with.unmatched(), without.unmatched());
    }
}
