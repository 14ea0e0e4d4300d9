//! A rule is called unreachable only if it is, and always if one rule covers it.

use crate::lists;
use fairlane_classify::{Classifier, Match, Origin, Owner, Rule, Unreachable};
use fairlane_wire::{Dscp, Family, Fragment, Headers, Protocol, VlanId};
use proptest::prelude::*;
use rustix::time::{ClockId, clock_gettime};

use crate::support::{addresses, packet, rule_match};

fn listed(matches: &[Match]) -> Vec<Unreachable> {
    let rules = matches.iter().enumerate().map(|(target, &matches)| Rule {
        priority: 0,
        matches,
        target: target as u32,
    });
    Classifier::new(rules).unreachable()
}

/// Returns every packet that the rules of a small world can distinguish, in the fields that rules
/// test.
fn everything(fields: &Fields) -> Vec<(Headers, Origin)> {
    let mut all = Vec::new();
    for family in [Family::V4, Family::V6, Family::Other] {
        let ip = family != Family::Other;
        let places = |asked: bool| match asked {
            true => addresses(family),
            false => addresses(family)[..1].to_vec(),
        };
        let ports = |asked: bool| if asked && ip { 0..5 } else { 0..1u16 };
        for source in places(fields.source) {
            for destination in places(fields.destination) {
                for protocol in [Protocol::TCP, Protocol::UDP, Protocol::ICMP, Protocol(99)] {
                    for fragment in [Fragment::No, Fragment::First, Fragment::Later] {
                        for from in ports(fields.source_port) {
                            for to in ports(fields.destination_port) {
                                let places = (source, destination);
                                let ports = (from, to);
                                let seen = packet(family, places, protocol, fragment, ports);
                                all.push(seen);
                            }
                        }
                    }
                }
            }
        }
    }
    all.dedup();
    fields.rest(all)
}

/// The fields that some rule asks about.
struct Fields {
    source: bool,
    destination: bool,
    source_port: bool,
    destination_port: bool,
    dscp: bool,
    vlan: bool,
    owner: bool,
    ingress: bool,
}

impl Fields {
    fn of(matches: &[Match]) -> Fields {
        let any = |asks: fn(&Match) -> bool| matches.iter().any(asks);
        Fields {
            source: any(|m| m.source.is_some()),
            destination: any(|m| m.destination.is_some()),
            source_port: any(|m| m.source_port.is_some()),
            destination_port: any(|m| m.destination_port.is_some()),
            dscp: any(|m| m.dscp.is_some()),
            vlan: any(|m| m.vlan.is_some()),
            owner: any(|m| m.uid.or(m.gid).or(m.pid).is_some()),
            ingress: any(|m| m.ingress.is_some()),
        }
    }

    fn rest(&self, headers: Vec<Headers>) -> Vec<(Headers, Origin)> {
        let numbers = |asked: bool| if asked { 0..3u16 } else { 0..1 };
        let mut all = Vec::new();
        for headers in headers {
            for dscp in numbers(self.dscp && headers.family != Family::Other) {
                for vlan in numbers(self.vlan) {
                    for ingress in numbers(self.ingress) {
                        for owner in self.owners() {
                            let headers = Headers {
                                dscp: Dscp::new(dscp as u8).unwrap(),
                                vlan: VlanId::new(vlan),
                                ..headers
                            };
                            all.push((headers, Origin { ingress, owner }));
                        }
                    }
                }
            }
        }
        all
    }

    fn owners(&self) -> Vec<Option<Owner>> {
        let number = |n: u32| n % 3;
        let all = (0..27).map(|n| Owner {
            uid: number(n),
            gid: number(n / 3),
            pid: number(n / 9),
        });
        match self.owner {
            true => [None].into_iter().chain(all.map(Some)).collect(),
            false => vec![None],
        }
    }
}

/// Leaves three of the fields that have many values: all packets of a world with more take
/// too long to try.
fn keep(asked: &mut Match, kept: &[usize]) {
    let drop = |field| !kept.contains(&field);
    let Match {
        source,
        destination,
        source_port,
        destination_port,
        ..
    } = asked;
    source.take_if(|_| drop(0));
    destination.take_if(|_| drop(1));
    source_port.take_if(|_| drop(2));
    destination_port.take_if(|_| drop(3));
    asked.dscp.take_if(|_| drop(4));
    asked.vlan.take_if(|_| drop(5));
    asked.ingress.take_if(|_| drop(6));
    for id in [&mut asked.uid, &mut asked.gid, &mut asked.pid] {
        id.take_if(|_| drop(7));
    }
}

proptest! {
    // Each case tries every packet that the rules can distinguish, for half a second.
    #![proptest_config(ProptestConfig::with_cases(
        if fairlane_testkit::long_tests() { 48 } else { 6 }
    ))]

    #[test]
    fn no_rule_that_can_match_is_listed_and_none_that_one_rule_covers_is_missing(
        mut matches in prop::collection::vec(rule_match(), 1..10),
        kept in prop::sample::subsequence((0..8).collect::<Vec<_>>(), 3),
    ) {
        matches.iter_mut().for_each(|asked| keep(asked, &kept));
        let packets = everything(&Fields::of(&matches));
        let listed = listed(&matches);
        let mut reached = vec![false; matches.len()];
        // Whether all that a rule matches is matched by another.
        let mut covers = vec![vec![true; matches.len()]; matches.len()];
        let mut by = vec![true; listed.len()];
        for (headers, origin) in &packets {
            let matching: Vec<bool> = matches.iter().map(|m| m.matches(headers, origin)).collect();
            if let Some(first) = matching.iter().position(|&is| is) {
                reached[first] = true;
            }
            for (rule, _) in matching.iter().enumerate().filter(|(_, is)| **is) {
                for (other, is) in matching.iter().enumerate() {
                    covers[rule][other] &= is;
                }
            }
            for (by, listed) in by.iter_mut().zip(&listed) {
                *by &= !matching[listed.rule] || listed.by.iter().any(|&rule| matching[rule]);
            }
        }
        for (listed, by) in listed.iter().zip(by) {
            prop_assert!(!reached[listed.rule], "{listed:?} can match");
            prop_assert!(listed.by.iter().all(|&by| by < listed.rule), "{listed:?}");
            prop_assert!(by, "{listed:?} are not all that take its packets");
        }
        for (rule, covers) in covers.iter().enumerate() {
            if covers[..rule].contains(&true) {
                prop_assert!(listed.iter().any(|l| l.rule == rule), "{rule} is covered by one");
            }
        }
    }
}

fn asks(text: &str) -> Match {
    let mut asked = Match::default();
    for word in text.split_whitespace() {
        let (field, value) = word.split_once('=').unwrap();
        match field {
            "src" => asked.source = Some(value.parse().unwrap()),
            "dst" => asked.destination = Some(value.parse().unwrap()),
            "sport" => asked.source_port = Some(value.parse().unwrap()),
            "dport" => asked.destination_port = Some(value.parse().unwrap()),
            "proto" => asked.protocol = Some(value.parse().unwrap()),
            "fragment" => asked.fragment = Some(value.parse().unwrap()),
            "family" => {
                asked.family = Some(match value {
                    "v4" => Family::V4,
                    "v6" => Family::V6,
                    _ => Family::Other,
                });
            }
            _ => panic!("{field}"),
        }
    }
    asked
}

/// Checks which rules of a list are unreachable, and because of which others.
#[track_caller]
fn claim(list: &[&str], expected: &[(usize, &[usize])]) {
    let matches: Vec<Match> = list.iter().map(|text| asks(text)).collect();
    let found = listed(&matches);
    let found: Vec<_> = found.iter().map(|u| (u.rule, &u.by[..])).collect();
    assert_eq!(found, expected, "{list:?}");
}

#[test]
fn a_wider_rule_before_a_narrower_one_takes_all_its_packets() {
    claim(
        &["dst=10.0.0.0/8", "dst=10.1.0.0/16 dport=80"],
        &[(1, &[0])],
    );
    claim(&["dst=10.1.0.0/16 dport=80", "dst=10.0.0.0/8"], &[]);
    claim(&["dport=80", "dst=10.0.0.0/8"], &[]);
    claim(&["dport=1000-2000", "dport=1000-2001"], &[]);
    claim(&["dport=1000-2000", "dport=1001-1999"], &[(1, &[0])]);
}

#[test]
fn a_rule_that_asks_for_what_cannot_be_is_listed_alone() {
    claim(&["src=10.0.0.0/8 dst=2001:db8::/32"], &[(0, &[])]);
    claim(&["proto=icmp dport=7"], &[(0, &[])]);
    claim(&["family=v6 dst=10.0.0.0/8"], &[(0, &[])]);
    claim(&["family=other proto=tcp"], &[(0, &[])]);
}

#[test]
fn prefixes_add_up() {
    claim(
        &[
            "dst=0.0.0.0/1",
            "dst=128.0.0.0/2",
            "dst=192.0.0.0/2",
            "family=v4 dport=80",
        ],
        &[(3, &[0, 1, 2])],
    );
    claim(&["dst=0.0.0.0/1", "dst=192.0.0.0/2", "family=v4"], &[]);
    claim(
        &[
            "src=2001:db8::/33",
            "src=2001:db8:8000::/33",
            "src=2001:db8::/32",
        ],
        &[(2, &[0, 1])],
    );
    // The second half arrives too late.
    claim(
        &["dst=10.0.0.0/9", "dst=10.0.0.0/8", "dst=10.128.0.0/9"],
        &[(2, &[1])],
    );
}

#[test]
fn ranges_of_ports_add_up() {
    claim(
        &["dport=1-10", "dport=11-20", "dport=15-30", "dport=5-25"],
        &[(3, &[0, 1, 2])],
    );
    claim(&["dport=1-10", "dport=12-20", "dport=5-15"], &[]);
    claim(
        &[
            "proto=udp sport=0-100",
            "proto=udp sport=101-65535",
            "proto=udp fragment=false",
        ],
        &[(2, &[0, 1])],
    );
    claim(&["proto=udp sport=0-65535", "proto=udp"], &[]);
}

#[test]
fn families_and_fragments_add_up() {
    claim(&["family=v4", "family=v6", "proto=tcp"], &[(2, &[0, 1])]);
    claim(&["family=v4", "family=v6", "fragment=false"], &[]);
    claim(
        &[
            "family=v4 fragment=true",
            "family=v4 fragment=false",
            "dst=10.0.0.0/8",
        ],
        &[(2, &[0, 1])],
    );
}

#[test]
fn priority_decides_who_is_before() {
    let rule = |priority, text| Rule {
        priority,
        matches: asks(text),
        target: 0u32,
    };
    let classifier = Classifier::new([rule(0, "dport=80"), rule(1, "dport=1-100")]);
    let expected = Unreachable {
        rule: 0,
        by: vec![1],
    };
    assert_eq!(classifier.unreachable(), [expected]);
}

#[test]
fn thousands_of_rules_are_looked_through_and_an_exact_double_is_found() {
    // A program that is not optimised takes half a minute for ten thousand.
    let many = if cfg!(debug_assertions) {
        2_500
    } else {
        10_000
    };
    for kind in lists::KINDS {
        let mut rules = lists::list(kind, many);
        let double = rules[many / 2];
        rules.push(double);
        let listed = Classifier::new(rules).unreachable();
        assert!(listed.iter().any(|u| u.rule == many), "{kind}");
    }
}

/// Processor time that looking through this many contiguous ranges of ports takes, and one that all of
/// them take together: the least of some runs.
fn time_for_contiguous(many: u32) -> i64 {
    let of = |first: u32, last: u32| format!("proto=udp dport={first}-{last}");
    let mut texts: Vec<_> = (0..many).map(|at| of(1 + 6 * at, 6 + 6 * at)).collect();
    texts.push(of(1, 6 * many));
    let matches: Vec<Match> = texts.iter().map(|text| asks(text)).collect();
    let rules = matches.into_iter().zip(0..).map(|(matches, target)| Rule {
        priority: 0,
        matches,
        target,
    });
    let classifier = Classifier::new(rules);
    let runs = (0..3).map(|_| {
        let before = clock_gettime(ClockId::ThreadCPUTime);
        let listed = classifier.unreachable();
        let took = clock_gettime(ClockId::ThreadCPUTime) - before;
        assert_eq!(listed.len(), 1);
        // Some of those that add up to it: thousands of lists of thousands would exhaust memory.
        let by = &listed[0].by;
        assert!(by.len() == 64 && by.iter().all(|&by| by < many as usize));
        1_000_000_000 * took.tv_sec + took.tv_nsec
    });
    runs.min().unwrap()
}

#[test]
fn contiguous_ranges_of_ports_cost_about_the_same_each_however_many_there_are() {
    let [few, many] = [1_500, 9_000].map(time_for_contiguous);
    // Six times as many, a level or two of trees, and less of it in the cache; each with each other
    // one would be 36 times.
    assert!(many < 20 * few, "1,500: {few} ns, 9,000: {many} ns");
}

/// They would be compared each with each other one, for minutes.
#[test]
fn thousands_of_pairs_of_ranges_are_not_looked_through() {
    let found = |many: u32| {
        let pair = |at: u32| asks(&format!("sport=1-{} dport=1-{}", 1_000 + at, 60_000 - at));
        let mut matches: Vec<Match> = (0..many).map(pair).collect();
        let of_one = ["dport=7-9", "dport=8", "sport=2-3 dport=8-9"].map(asks);
        matches.extend(of_one);
        let found = listed(&matches);
        found
            .iter()
            .map(|u| u.rule as u32 - many)
            .collect::<Vec<_>>()
    };
    assert_eq!(found(40), [1, 2]);
    assert_eq!(found(20_000), [1]);
}

#[test]
fn what_two_ranges_add_up_to_is_found_across_both_ports_and_prefixes() {
    // Sources first, then their union with a third.
    claim(
        &[
            "proto=udp sport=1-6 dport=1-6",
            "proto=udp sport=7-12 dport=1-6",
            "proto=udp sport=1-12 dport=7-12",
            "proto=udp sport=2-8 dport=2-8",
            "proto=udp sport=2-13 dport=2-8",
        ],
        &[(3, &[0, 1, 2])],
    );
    claim(
        &[
            "proto=udp dst=10.0.0.0/9 dport=1-6",
            "proto=udp dst=10.0.0.0/9 dport=7-12",
            "proto=udp dst=10.128.0.0/9 dport=1-12",
            "proto=udp dst=10.0.0.0/8 dport=13-20",
            "proto=udp dst=10.0.0.0/8 dport=2-15",
        ],
        &[(4, &[0, 1, 2, 3])],
    );
    // Only those that the ports need.
    claim(
        &["dport=1-10", "dport=11-20", "dport=21-30", "dport=12-25"],
        &[(3, &[1, 2])],
    );
    // A gap.
    claim(&["dport=1-10", "dport=12-20", "dport=9-13"], &[]);
}
