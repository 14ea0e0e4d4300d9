//! The classifier finds the same rule as a walk through the rules in order.

use crate::lists;
use std::cmp::Reverse;

use fairlane_classify::{
    Asked, Classifier, Hit, Match, Origin, Owner, PortRange, Rule, WORDS, words,
};
use fairlane_wire::{Family, Fragment, Headers, Layer, Protocol, parse};
use proptest::prelude::*;

use crate::support::{rule_match, seen};

fn walk<T: Copy>(rules: &[Rule<T>], headers: &Headers, origin: &Origin) -> Option<Hit<T>> {
    let mut order: Vec<usize> = (0..rules.len()).collect();
    order.sort_by_key(|&rule| Reverse(rules[rule].priority));
    let mut matching = order
        .into_iter()
        .filter(|&rule| rules[rule].matches.matches(headers, origin));
    matching.next().map(|rule| Hit {
        rule,
        target: rules[rule].target,
    })
}

fn numbered(list: Vec<(i32, Match)>) -> Vec<Rule> {
    let rule = |(target, (priority, matches))| Rule {
        priority,
        matches,
        target,
    };
    (0..).zip(list).map(rule).collect()
}

proptest! {
    #[test]
    fn it_finds_what_a_walk_finds(
        list in prop::collection::vec((0..3i32, rule_match()), 0..80),
        packets in prop::collection::vec(seen(), 1..40),
    ) {
        let rules = numbered(list);
        let classifier = Classifier::new(rules.clone());
        for (headers, origin) in packets {
            let expected = walk(&rules, &headers, &origin);
            prop_assert_eq!(classifier.classify(&headers, &origin), expected);
        }
    }

    /// The same rules, as words, for packets of one origin.
    #[test]
    fn what_rules_ask_in_words_is_what_they_find(
        list in prop::collection::vec((0..3i32, rule_match()), 0..80),
        packets in prop::collection::vec(seen(), 1..40),
    ) {
        let classifier = Classifier::new(numbered(list));
        for (headers, origin) in packets {
            let seen = words(&headers);
            let matches = |asked: &Asked| {
                let within = |(first, last), port| (first..=last).contains(&port);
                (0..WORDS).all(|word| seen[word] & asked.mask[word] == asked.value[word])
                    && within(asked.source_port, (seen[0] >> 48) as u16)
                    && within(asked.destination_port, (seen[0] >> 32) as u16)
            };
            let asked = classifier.asked(headers.family, &origin);
            let found = asked.iter().find(|(asked, _)| matches(asked));
            let expected = classifier.classify(&headers, &origin).map(|hit| hit.target);
            prop_assert_eq!(found.map(|&(_, target)| target), expected);
        }
    }

    /// Without a rule that asks for the origin, fewer words are compared.
    #[test]
    fn it_finds_what_a_walk_finds_where_nobody_asks_for_the_origin(
        list in prop::collection::vec((0..3i32, rule_match()), 0..80),
        packets in prop::collection::vec(seen(), 1..40),
    ) {
        let mut rules = numbered(list);
        for Rule { matches, .. } in &mut rules {
            *matches = Match { ingress: None, uid: None, gid: None, pid: None, ..*matches };
        }
        let classifier = Classifier::new(rules.clone());
        for (headers, origin) in packets {
            let expected = walk(&rules, &headers, &origin);
            prop_assert_eq!(classifier.classify(&headers, &origin), expected);
        }
    }
}

#[test]
fn ten_thousand_rules_of_every_kind_give_what_a_walk_gives() {
    for kind in lists::KINDS {
        let rules = lists::list(kind, 10_000);
        let classifier = Classifier::new(rules.clone());
        for frame in lists::frames(&rules, 60) {
            let headers = parse(&frame, Layer::Ethernet).unwrap();
            let origin = Origin::default();
            let found = classifier.classify(&headers, &origin);
            assert_eq!(found, walk(&rules, &headers, &origin), "{kind}");
        }
    }
}

#[test]
fn a_few_tables_take_ten_thousand_rules_of_any_kind() {
    for (kind, most) in lists::KINDS.into_iter().zip([1, 12, 12, 4, 40, 40]) {
        let classifier = Classifier::new(lists::list(kind, 10_000));
        let tables = classifier.effort().tables;
        assert!(tables <= most, "{kind}: {tables} tables");
    }
}

#[test]
fn ten_thousand_destinations_cost_no_more_comparisons_than_ten() {
    let effort = |rules| Classifier::new(lists::list("destinations", rules)).effort();
    assert!(effort(10).comparisons <= 6);
    assert!(
        effort(10_000).comparisons <= 6,
        "keys that may meet in a slot"
    );
}

#[test]
fn priority_comes_before_place_and_place_among_equals() {
    let rules = [(0, 'a'), (5, 'b'), (5, 'c'), (-1, 'd')].map(|(priority, target)| Rule {
        priority,
        matches: Match::default(),
        target,
    });
    let hit = Classifier::new(rules).classify(&Headers::default(), &Origin::default());
    assert_eq!(
        hit,
        Some(Hit {
            rule: 1,
            target: 'b'
        })
    );
}

#[test]
fn no_rule_is_no_target() {
    let classifier = Classifier::<u32>::new([]);
    let hit = classifier.classify(&Headers::default(), &Origin::default());
    assert_eq!(hit, None);
}

/// A classifier that says "drop" although the scheduler uses its class is impossible: a rule's
/// decision is one value, so a decision to drop has no class.
#[test]
fn who_decides_to_drop_has_no_class_to_use() {
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Decision {
        Class(u32),
        Drop,
    }
    let asked = |protocol, target| Rule {
        priority: 0,
        matches: Match {
            protocol: Some(protocol),
            ..Match::default()
        },
        target,
    };
    let classifier = Classifier::new([
        asked(Protocol::TCP, Decision::Class(7)),
        asked(Protocol::UDP, Decision::Drop),
    ]);
    let target = |protocol| {
        let headers = Headers {
            family: Family::V4,
            protocol: Some(protocol),
            ..Headers::default()
        };
        let hit = classifier.classify(&headers, &Origin::default());
        hit.map(|hit| hit.target)
    };
    assert_eq!(target(Protocol::TCP), Some(Decision::Class(7)));
    assert_eq!(target(Protocol::UDP), Some(Decision::Drop));
    assert_eq!(target(Protocol::ICMP), None);
}

#[test]
fn a_rule_with_ports_never_matches_what_has_none() {
    let any_port = Rule {
        priority: 0,
        matches: Match {
            source_port: Some(PortRange::ALL),
            ..Match::default()
        },
        target: 0u32,
    };
    let classifier = Classifier::new([any_port]);
    let later = Headers {
        family: Family::V4,
        protocol: Some(Protocol::UDP),
        fragment: Fragment::Later,
        ..Headers::default()
    };
    assert_eq!(classifier.classify(&later, &Origin::default()), None);
}

#[test]
fn user_zero_is_not_everybody_without_a_user() {
    let root = Rule {
        priority: 0,
        matches: Match {
            uid: Some(0),
            ..Match::default()
        },
        target: 0u32,
    };
    let classifier = Classifier::new([root]);
    let classify = |owner| {
        let origin = Origin { ingress: 0, owner };
        classifier.classify(&Headers::default(), &origin).is_some()
    };
    let owner = |uid| {
        Some(Owner {
            uid,
            gid: 1,
            pid: 1,
        })
    };
    assert!(classify(owner(0)));
    assert!(!classify(owner(1)));
    assert!(!classify(None));
}
