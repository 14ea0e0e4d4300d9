//! Packets of one flow share a digest, packets of two do not.

use std::collections::HashSet;

use fairlane_classify::{DigestKey, Origin, Owner, Per};
use fairlane_wire::{Dscp, Family, Fragment, Headers, Ports, Protocol, VlanId};
use proptest::prelude::*;

use crate::support::seen;

const ALL: [Per; 8] = [
    Per::SourceIp,
    Per::DestinationIp,
    Per::FiveTuple,
    Per::SourceSubnet(24),
    Per::DestinationSubnet(24),
    Per::Vlan,
    Per::Dscp,
    Per::Owner,
];
const KEY: DigestKey = DigestKey([1, 2]);

fn tcp(source: u128, destination: u128, from: u16, to: u16) -> Headers {
    Headers {
        family: Family::V4,
        source,
        destination,
        protocol: Some(Protocol::TCP),
        ports: Some(Ports {
            source: from,
            destination: to,
        }),
        ..Headers::default()
    }
}

fn of(per: Per, headers: Headers) -> u64 {
    per.digest(&headers, &Origin::default(), &KEY)
}

#[test]
fn each_part_of_the_five_tuple_makes_a_flow_and_so_does_the_direction() {
    let flows = [
        tcp(1, 2, 3, 4),
        tcp(9, 2, 3, 4),
        tcp(1, 9, 3, 4),
        tcp(1, 2, 9, 4),
        tcp(1, 2, 3, 9),
        tcp(2, 1, 4, 3),
        tcp(1, 2, 4, 3),
        Headers {
            protocol: Some(Protocol::UDP),
            ..tcp(1, 2, 3, 4)
        },
        Headers {
            family: Family::V6,
            ..tcp(1, 2, 3, 4)
        },
        Headers {
            protocol: Some(Protocol::ICMP),
            ports: None,
            ..tcp(1, 2, 3, 4)
        },
    ];
    let digests: HashSet<u64> = flows.iter().map(|&flow| of(Per::FiveTuple, flow)).collect();
    assert_eq!(digests.len(), flows.len());
    let other = Headers {
        dscp: Dscp::new(5).unwrap(),
        ecn: 3,
        vlan: VlanId::new(7),
        ..flows[0]
    };
    assert_eq!(of(Per::FiveTuple, other), of(Per::FiveTuple, flows[0]));
}

/// Else a later fragment, which has no ports, would overtake the first.
#[test]
fn all_fragments_between_two_addresses_are_one_flow() {
    let first = Headers {
        fragment: Fragment::First,
        ..tcp(1, 2, 3, 4)
    };
    let later = Headers {
        fragment: Fragment::Later,
        ports: None,
        ..tcp(1, 2, 3, 4)
    };
    let next = Headers {
        fragment: Fragment::First,
        ..tcp(1, 2, 5, 6)
    };
    let hidden = Headers {
        protocol: Some(Protocol(60)),
        ..later
    };
    let flow = of(Per::FiveTuple, first);
    for fragment in [later, next, hidden] {
        assert_eq!(of(Per::FiveTuple, fragment), flow);
    }
    let elsewhere = Headers {
        destination: 3,
        ..later
    };
    assert_ne!(of(Per::FiveTuple, elsewhere), flow);
    assert_ne!(of(Per::FiveTuple, tcp(1, 2, 3, 4)), flow);
}

#[test]
fn a_flow_per_address_asks_for_nothing_else() {
    let a = tcp(1, 2, 3, 4);
    assert_eq!(of(Per::SourceIp, a), of(Per::SourceIp, tcp(1, 9, 8, 7)));
    assert_ne!(of(Per::SourceIp, a), of(Per::SourceIp, tcp(2, 2, 3, 4)));
    assert_eq!(
        of(Per::DestinationIp, a),
        of(Per::DestinationIp, tcp(9, 2, 8, 7))
    );
    assert_ne!(
        of(Per::DestinationIp, a),
        of(Per::DestinationIp, tcp(1, 3, 3, 4))
    );
}

#[test]
fn a_subnet_is_its_leading_bits_and_no_more() {
    let from = |source| tcp(source, 2, 3, 4);
    let per = Per::SourceSubnet(24);
    assert_eq!(of(per, from(0x0a00_0001)), of(per, from(0x0a00_00ff)));
    assert_ne!(of(per, from(0x0a00_0001)), of(per, from(0x0a00_0101)));
    // Of IPv4, 32 bits are all there are.
    let per = Per::DestinationSubnet(64);
    assert_ne!(of(per, tcp(0, 1, 0, 0)), of(per, tcp(0, 2, 0, 0)));
    let v6 = |destination| Headers {
        family: Family::V6,
        ..tcp(0, destination, 0, 0)
    };
    assert_eq!(of(per, v6(1 << 64 | 1)), of(per, v6(1 << 64 | 2)));
    assert_ne!(of(per, v6(1 << 64 | 1)), of(per, v6(2 << 64 | 1)));
}

#[test]
fn what_lacks_the_field_is_one_flow_of_its_own() {
    let arp = Headers {
        ethertype: 0x0806,
        ..Headers::default()
    };
    let lldp = Headers {
        ethertype: 0x88cc,
        ..Headers::default()
    };
    let best_effort = tcp(0, 0, 0, 0);
    for per in ALL {
        assert_eq!(of(per, arp), of(per, lldp), "{per}");
        if !matches!(per, Per::Vlan | Per::Owner) {
            assert_ne!(of(per, arp), of(per, best_effort), "{per}: zero is a value");
        }
    }
    let tagged = Headers {
        vlan: VlanId::new(1),
        ..arp
    };
    assert_ne!(of(Per::Vlan, arp), of(Per::Vlan, tagged));
    let root = Origin {
        ingress: 0,
        owner: Some(Owner {
            uid: 0,
            gid: 0,
            pid: 0,
        }),
    };
    assert_ne!(of(Per::Owner, arp), Per::Owner.digest(&arp, &root, &KEY));
}

#[test]
fn frames_that_are_not_ip_are_told_apart_by_their_mac_addresses() {
    let arp = |source, destination| Headers {
        source,
        destination,
        ..Headers::default()
    };
    let (one, two) = (arp(1, 9), arp(2, 9));
    assert_ne!(of(Per::SourceIp, one), of(Per::SourceIp, two));
    assert_eq!(of(Per::DestinationIp, one), of(Per::DestinationIp, two));
    for per in [Per::FiveTuple, Per::SourceSubnet(24), Per::Vlan, Per::Dscp] {
        assert_eq!(of(per, one), of(per, two), "{per}");
    }
    let v4 = Headers {
        family: Family::V4,
        ..one
    };
    assert_ne!(of(Per::SourceIp, one), of(Per::SourceIp, v4));
}

#[test]
fn every_process_is_a_flow() {
    let of = |uid, gid, pid| {
        let owner = Some(Owner { uid, gid, pid });
        Per::Owner.digest(&Headers::default(), &Origin { ingress: 0, owner }, &KEY)
    };
    let digests: HashSet<u64> = [(1, 2, 3), (9, 2, 3), (1, 9, 3), (1, 2, 9), (2, 1, 3)]
        .map(|(uid, gid, pid)| of(uid, gid, pid))
        .into();
    assert_eq!(digests.len(), 5);
}

#[test]
fn another_key_gives_other_digests() {
    for per in ALL {
        let with = |key| per.digest(&tcp(1, 2, 3, 4), &Origin::default(), &DigestKey(key));
        assert_ne!(with([1, 2]), with([1, 3]), "{per}");
        assert_ne!(with([1, 2]), with([2, 2]), "{per}");
    }
}

#[test]
fn a_key_is_not_printed() {
    assert!(!format!("{KEY:?}").contains('1'));
}

#[test]
fn what_flows_are_per_is_read_as_it_is_written() {
    for per in ALL {
        assert_eq!(per.to_string().parse(), Ok(per));
    }
    assert_eq!("subnet/24".parse(), Ok(Per::SourceSubnet(24)));
    for wrong in [
        "",
        "source",
        "subnet",
        "subnet/0",
        "subnet/129",
        "subnet/x",
        "vlan/3",
    ] {
        assert!(wrong.parse::<Per>().is_err(), "{wrong}");
    }
}

proptest! {
    #[test]
    fn two_addresses_never_meet_by_chance(a: u32, b: u32) {
        prop_assume!(a != b);
        let from = |source: u32| of(Per::SourceIp, tcp(source.into(), 0, 0, 0));
        prop_assert_ne!(from(a), from(b));
    }

    #[test]
    fn packets_share_a_digest_where_they_share_what_is_told_of_their_flow(
        one in seen(),
        other in seen(),
    ) {
        for per in ALL.into_iter().chain([Per::SourceSubnet(127), Per::DestinationSubnet(63)]) {
            let digest = |(headers, origin)| per.digest(&headers, &origin, &KEY);
            let key = |(headers, origin)| per.key(&headers, &origin);
            let same = digest(one) == digest(other);
            prop_assert_eq!(key(one) == key(other), same, "{}", per);
            prop_assert_eq!(key(one).to_string() == key(other).to_string(), same, "{}", per);
        }
    }
}

#[test]
fn a_flow_is_called_what_its_packets_have_in_common() {
    let v4 = tcp(0x0a00_0203, 0xcb00_7105, 5000, 443);
    let v6 = Headers {
        family: Family::V6,
        source: 0x2001_0db8_0001_0002_0000_0000_0000_0001,
        destination: 1,
        ..v4
    };
    let ping = Headers {
        protocol: Some(Protocol::ICMP),
        ports: None,
        ..v4
    };
    let part = Headers {
        fragment: Fragment::First,
        ..v4
    };
    let marked = Headers {
        dscp: Dscp::new(46).unwrap(),
        vlan: VlanId::new(7),
        ..v4
    };
    let arp = Headers {
        source: 0x0200_0000_0aff,
        ..Headers::default()
    };
    for (per, headers, text) in [
        (Per::SourceIp, v4, "10.0.2.3"),
        (Per::DestinationIp, v4, "203.0.113.5"),
        (Per::SourceIp, v6, "2001:db8:1:2::1"),
        (Per::DestinationIp, v6, "::1"),
        (Per::SourceIp, arp, "02:00:00:00:0a:ff"),
        (Per::DestinationIp, arp, "00:00:00:00:00:00"),
        (Per::SourceSubnet(20), arp, "not IP"),
        (Per::SourceSubnet(20), v4, "10.0.0.0/20"),
        (Per::DestinationSubnet(48), v4, "203.0.113.5/32"),
        (Per::SourceSubnet(48), v6, "2001:db8:1::/48"),
        (Per::FiveTuple, v4, "tcp 10.0.2.3:5000 > 203.0.113.5:443"),
        (Per::FiveTuple, v6, "tcp [2001:db8:1:2::1]:5000 > [::1]:443"),
        (Per::FiveTuple, ping, "icmp 10.0.2.3 > 203.0.113.5"),
        (Per::FiveTuple, part, "fragments 10.0.2.3 > 203.0.113.5"),
        (Per::Vlan, marked, "vlan 7"),
        (Per::Vlan, v4, "no vlan"),
        (Per::Dscp, marked, "dscp ef"),
        (Per::Dscp, arp, "not IP"),
        (Per::Owner, v4, "no process"),
    ] {
        let key = per.key(&headers, &Origin::default());
        assert_eq!(key.to_string(), text, "{per}");
    }
    let (uid, gid, pid) = (1, 2, 3);
    let owner = Some(Owner { uid, gid, pid });
    let key = Per::Owner.key(&v4, &Origin { ingress: 0, owner });
    assert_eq!(key.to_string(), "pid 3 uid 1 gid 2");
}
