//! Rules and packets of a world so small that they often meet, and that all of it can be
//! tried.
#![allow(dead_code, reason = "each test file takes what it needs")]

use std::net::IpAddr;

use fairlane_classify::{Match, Origin, Owner, PortRange, Prefix};
use fairlane_wire::{Dscp, Family, Fragment, Headers, Ports, Protocol, VlanId};
use proptest::option::{of, weighted};
use proptest::prelude::*;

/// Addresses of the world: the low bits of these, and one outside.
const V4: u128 = 0x0a00_0000;
const V6: u128 = 0x2001_0db8_0000_0000_0000_0000_0000_0000;
const OUTSIDE: u128 = 0x0900_0000;
/// Where the bits that differ are: below and above the middle of a word.
const SHIFTS: [u32; 2] = [0, 63];

fn prefix() -> impl Strategy<Value = Prefix> {
    let v4 = (0..4u32, 29..=32u8).prop_map(|(host, len)| {
        let len = if len == 29 { 0 } else { len };
        prefix_of(IpAddr::V4((V4 as u32 | host).into()), len)
    });
    let v6 = (
        0..4u128,
        prop::sample::select(vec![0, 63, 64, 65, 126, 127, 128]),
        0..2usize,
    )
        .prop_map(|(host, len, place)| {
            prefix_of(IpAddr::V6((V6 | host << SHIFTS[place]).into()), len)
        });
    prop_oneof![3 => v4, 1 => v6]
}

fn prefix_of(address: IpAddr, len: u8) -> Prefix {
    match Prefix::new(address, len) {
        Ok(prefix) => prefix,
        Err(fairlane_classify::ParsePrefixError::HostBits { nearest, .. }) => nearest,
        Err(other) => panic!("{other}"),
    }
}

fn range() -> impl Strategy<Value = PortRange> {
    let small = (0..4u16, 0..4u16).prop_map(|(a, b)| PortRange::new(a.min(b), a.max(b)).unwrap());
    prop_oneof![8 => small, 1 => Just(PortRange::ALL)]
}

fn protocol() -> impl Strategy<Value = Protocol> {
    prop::sample::select(vec![Protocol::TCP, Protocol::UDP, Protocol::ICMP])
}

fn family() -> impl Strategy<Value = Family> {
    prop::sample::select(vec![Family::V4, Family::V6, Family::Other])
}

pub(crate) fn rule_match() -> impl Strategy<Value = Match> {
    let places = (weighted(0.4, prefix()), weighted(0.4, prefix()));
    let ports = (weighted(0.3, range()), weighted(0.3, range()));
    let kinds = (
        weighted(0.4, protocol()),
        weighted(0.1, 0..2u8),
        weighted(0.1, 1..3u16),
    );
    let rest = (weighted(0.2, any::<bool>()), weighted(0.1, 0..2u16));
    let owner = (
        weighted(0.1, 0..2u32),
        weighted(0.1, 0..2u32),
        weighted(0.1, 0..2u32),
    );
    (places, ports, kinds, rest, owner, weighted(0.2, family())).prop_map(
        |(places, ports, kinds, rest, owner, family)| Match {
            source: places.0,
            destination: places.1,
            source_port: ports.0,
            destination_port: ports.1,
            protocol: kinds.0,
            dscp: kinds.1.and_then(Dscp::new),
            vlan: kinds.2.and_then(VlanId::new),
            fragment: rest.0,
            ingress: rest.1,
            uid: owner.0,
            gid: owner.1,
            pid: owner.2,
            family,
        },
    )
}

/// Returns a packet as [`parse`](fairlane_wire::parse) may have read it.
pub(crate) fn packet(
    family: Family,
    (source, destination): (u128, u128),
    protocol: Protocol,
    fragment: Fragment,
    (from, to): (u16, u16),
) -> Headers {
    if family == Family::Other {
        return Headers::default();
    }
    let has_ports = protocol.has_ports() && fragment != Fragment::Later;
    Headers {
        family,
        source,
        destination,
        protocol: Some(protocol),
        ports: has_ports.then_some(Ports {
            source: from,
            destination: to,
        }),
        fragment,
        ..Headers::default()
    }
}

/// Returns all addresses of a family that rules can distinguish.
pub(crate) fn addresses(family: Family) -> Vec<u128> {
    match family {
        Family::V4 => (0..4).map(|host| V4 | host).chain([OUTSIDE]).collect(),
        Family::V6 => {
            let hosts = SHIFTS
                .iter()
                .flat_map(|shift| (0..4).map(move |host| V6 | host << shift));
            hosts.chain([V6 | 1 << 40, OUTSIDE]).collect()
        }
        Family::Other => vec![0],
    }
}

/// Any packet of the small world, and its origin.
pub(crate) fn seen() -> impl Strategy<Value = (Headers, Origin)> {
    let fragment = prop::sample::select(vec![Fragment::No, Fragment::First, Fragment::Later]);
    let owner = of((0..2u32, 0..2u32, 0..2u32));
    let places = (any::<prop::sample::Index>(), any::<prop::sample::Index>());
    (
        family(),
        places,
        protocol(),
        fragment,
        (0..5u16, 0..5u16),
        0..2u8,
        of(1..3u16),
        owner,
        0..2u16,
    )
        .prop_map(
            |(family, places, protocol, fragment, ports, dscp, vlan, owner, ingress)| {
                let all = addresses(family);
                let places = (*places.0.get(&all), *places.1.get(&all));
                let mut headers = packet(family, places, protocol, fragment, ports);
                if family != Family::Other {
                    headers.dscp = Dscp::new(dscp).unwrap();
                }
                headers.vlan = vlan.and_then(VlanId::new);
                let owner = owner.map(|(uid, gid, pid)| Owner { uid, gid, pid });
                (headers, Origin { ingress, owner })
            },
        )
}
