//! Fields are read as they are written, and what cannot be is refused in one sentence.

use fairlane_classify::{PortRange, Prefix};
use fairlane_wire::{Dscp, Family, Protocol, VlanId};
use proptest::prelude::*;

fn error<T: std::str::FromStr<Err: std::fmt::Display> + std::fmt::Debug>(text: &str) -> String {
    text.parse::<T>().unwrap_err().to_string()
}

#[test]
fn a_prefix_is_an_address_with_or_without_a_length() {
    let prefix = |text: &str| text.parse::<Prefix>().unwrap();
    assert_eq!(prefix("10.0.0.1"), prefix("10.0.0.1/32"));
    assert_eq!(prefix("::1"), prefix("::1/128"));
    let eight = prefix("10.0.0.0/8");
    assert_eq!((eight.first(), eight.last()), (0x0a00_0000, 0x0aff_ffff));
    assert!(eight.contains(Family::V4, 0x0aff_ffff));
    assert!(!eight.contains(Family::V4, 0x0b00_0000) && !eight.contains(Family::V4, 0x09ff_ffff));
    assert!(!eight.contains(Family::V6, 0x0aff_ffff));
    let all = prefix("0.0.0.0/0");
    assert_eq!((all.first(), all.last()), (0, 0xffff_ffff));
    assert_eq!(prefix("::/0").last(), u128::MAX);
}

#[test]
fn a_prefix_that_cannot_be_is_refused() {
    assert_eq!(
        error::<Prefix>("10.0.0.5/8"),
        "10.0.0.5/8 has bits beyond its length; write 10.0.0.0/8"
    );
    assert_eq!(
        error::<Prefix>("10.0.0.0/33"),
        "a prefix of 33 bits is longer than an address, which has 32"
    );
    assert!("::/128".parse::<Prefix>().is_ok() && "::/129".parse::<Prefix>().is_err());
    for text in [
        "",
        "10.0.0/8",
        "10.0.0.0/",
        "10.0.0.0/-1",
        "10.0.0.0/8/8",
        "example.org",
    ] {
        assert!(
            error::<Prefix>(text).starts_with("a prefix is an address"),
            "{text}"
        );
    }
}

#[test]
fn ports_are_one_or_a_range_that_goes_forwards() {
    assert_eq!("80".parse(), Ok(PortRange::from(80)));
    assert_eq!("0-65535".parse(), Ok(PortRange::ALL));
    assert_eq!(
        error::<PortRange>("2000-1000"),
        "ports 2000-1000 go backwards; write 1000-2000"
    );
    for text in ["", "http", "65536", "1-", "-1", "1-2-3"] {
        assert!(
            error::<PortRange>(text).starts_with("ports are one number"),
            "{text}"
        );
    }
}

#[test]
fn names_and_numbers_of_protocols_and_code_points_are_read() {
    assert_eq!("UDP".parse(), Ok(Protocol::UDP));
    assert_eq!("255".parse(), Ok(Protocol(255)));
    assert!("256".parse::<Protocol>().is_err() && "upd".parse::<Protocol>().is_err());
    assert_eq!("ef".parse(), Ok(Dscp::new(46).unwrap()));
    assert_eq!("63".parse::<Dscp>().unwrap().get(), 63);
    assert!("64".parse::<Dscp>().is_err() && Dscp::new(64).is_none());
    assert!(VlanId::new(0).is_none() && VlanId::new(4096).is_none());
    assert_eq!(VlanId::new(4095).unwrap().get(), 4095);
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(first: u16, more: u16, protocol: u8, dscp in 0..64u8) {
        let ports = PortRange::new(first, first.saturating_add(more)).unwrap();
        prop_assert_eq!(ports.to_string().parse(), Ok(ports));
        prop_assert_eq!(Protocol(protocol).to_string().parse(), Ok(Protocol(protocol)));
        let dscp = Dscp::new(dscp).unwrap();
        prop_assert_eq!(dscp.to_string().parse(), Ok(dscp));
    }

    #[test]
    fn a_prefix_is_written_so_that_it_is_read_again(address: std::net::IpAddr, len in 0..129u8) {
        let refused = Prefix::new(address, len);
        let prefix = match refused {
            Ok(prefix) => prefix,
            Err(fairlane_classify::ParsePrefixError::HostBits { nearest, .. }) => nearest,
            Err(_) => return Ok(()),
        };
        prop_assert_eq!(prefix.to_string().parse(), Ok(prefix));
    }
}
