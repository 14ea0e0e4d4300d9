//! A lab is a network of its own, and leaves nothing behind.
#![cfg(target_os = "linux")]

use std::fs;
use std::net::{IpAddr, UdpSocket};
use std::panic::{self, AssertUnwindSafe};
use std::time::{Duration, Instant};

use fairlane_netlab::{LabError, Link, Namespace, cable, or_skip, veth};

/// Returns the interfaces that the calling thread sees.
fn interfaces() -> Vec<String> {
    fs::read_to_string("/proc/thread-self/net/dev")
        .unwrap()
        .lines()
        .skip(2)
        .filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()))
        .collect()
}

fn namespace(test: &str) -> Option<Namespace> {
    or_skip(test, Namespace::new())
}

fn addressed(test: &str, near: &str, far: &str) -> Option<(Link, Link)> {
    let (one, other) = or_skip(test, cable(1_500))?;
    one.add_address(near.parse().unwrap(), 24).unwrap();
    other.add_address(far.parse().unwrap(), 24).unwrap();
    Some((one, other))
}

fn socket(link: &Link, address: &str) -> UdpSocket {
    let socket = link
        .namespace()
        .run(|| UdpSocket::bind((address.parse::<IpAddr>().unwrap(), 9)).unwrap());
    socket
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    socket
}

#[test]
fn a_namespace_has_nothing_of_the_machine_and_the_machine_nothing_of_it() {
    let Some(one) = namespace("a namespace of its own") else {
        return;
    };
    let before = interfaces();
    let other = Namespace::new().unwrap();
    veth((&one, "lab-a"), (&other, "lab-b"), 1_500).unwrap();
    let sorted = |namespace: &Namespace| {
        let mut names = namespace.run(interfaces);
        names.retain(|name| name != "lo");
        names
    };
    assert_eq!(sorted(&one), ["lab-a"]);
    assert_eq!(sorted(&other), ["lab-b"]);
    assert_eq!(interfaces(), before);
}

#[test]
fn what_is_sent_at_one_end_of_a_cable_arrives_at_the_other_while_both_are_up() {
    let name = "both ends of a cable up";
    let Some((near, far)) = addressed(name, "10.9.0.1", "10.9.0.2") else {
        return;
    };
    let (sender, receiver) = (socket(&near, "10.9.0.1"), socket(&far, "10.9.0.2"));
    let arrives = || {
        sender
            .send_to(b"hello", "10.9.0.2:9")
            .is_ok_and(|_| receiver.recv(&mut [0; 9]).is_ok())
    };
    assert!(arrives());
    near.down().unwrap();
    assert!(!arrives());
    near.up().unwrap();
    far.wait_for_carrier().unwrap();
    assert!(arrives());
    far.down().unwrap();
    assert!(!arrives());
}

#[test]
fn deleting_one_end_deletes_the_other_and_deleting_it_again_is_an_error_that_names_it() {
    let Some((near, far)) = or_skip("deleting a link", cable(1_500)) else {
        return;
    };
    near.delete().unwrap();
    assert!(Link::find(far.namespace(), "far").is_err());
    let error = near.delete().unwrap_err();
    assert!(matches!(error, LabError::Failed { .. }));
    assert!(
        error
            .to_string()
            .starts_with("cannot delete the link near: ")
    );
}

#[test]
fn a_link_knows_its_address_and_number_and_has_the_mtu_asked_for() {
    let Some((near, far)) = or_skip("what a link knows", cable(9_000)) else {
        return;
    };
    assert_ne!(near.mac(), far.mac());
    assert_ne!(near.index(), 0);
    assert_eq!(
        Link::find(near.namespace(), "near").unwrap().mac(),
        near.mac()
    );
    // A datagram of 8,972 bytes fits with its headers, and is not cut up.
    near.add_address([10, 0, 0, 1].into(), 24).unwrap();
    far.add_address([10, 0, 0, 2].into(), 24).unwrap();
    let (sender, receiver) = (socket(&near, "10.0.0.1"), socket(&far, "10.0.0.2"));
    sender.send_to(&[1; 8_972], "10.0.0.2:9").unwrap();
    assert_eq!(receiver.recv(&mut [0; 9_000]).unwrap(), 8_972);
    let statistics = far
        .namespace()
        .run(|| fs::read_to_string("/proc/thread-self/net/snmp").unwrap());
    let counts = |protocol: &str| {
        let row = statistics.lines().filter(|line| line.starts_with(protocol));
        row.map(|line| line.split(' ').map(str::to_owned).collect::<Vec<_>>())
            .collect::<Vec<_>>()
    };
    let ip = counts("Ip:");
    let column = ip[0].iter().position(|name| name == "ReasmReqds").unwrap();
    assert_eq!(ip[1][column], "0");
}

#[test]
fn a_slow_link_takes_its_time() {
    let Some((near, far)) = addressed("a slow link", "10.8.0.1", "10.8.0.2") else {
        return;
    };
    let (sender, receiver) = (socket(&near, "10.8.0.1"), socket(&far, "10.8.0.2"));
    // ARP first, so that it takes none of the time.
    sender.send_to(&[0; 458], "10.8.0.2:9").unwrap();
    receiver.recv(&mut [0; 500]).unwrap();
    receiver
        .set_read_timeout(Some(Duration::from_secs(120)))
        .unwrap();
    near.limit_rate(10_000, 10_000).unwrap();
    let started = Instant::now();
    for _ in 0..8 {
        sender.send_to(&[0; 458], "10.8.0.2:9").unwrap();
    }
    for _ in 0..8 {
        receiver.recv(&mut [0; 500]).unwrap();
    }
    // Eight frames of 500 bytes, of which the first four are a burst.
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(190), "took {took:?}");
}

#[test]
fn everything_vanishes_with_the_last_handle_also_after_a_panic() {
    let Some(kept) = namespace("everything vanishes") else {
        return;
    };
    let panicked = panic::catch_unwind(AssertUnwindSafe(|| {
        let gone = Namespace::new().unwrap();
        veth((&kept, "kept"), (&gone, "gone"), 1_500).unwrap();
        gone.run(|| panic!("in the lab"));
    }));
    assert_eq!(
        panicked.unwrap_err().downcast_ref::<&str>(),
        Some(&"in the lab")
    );
    // The kernel takes its time.
    let deadline = Instant::now() + Duration::from_secs(120);
    while Link::find(&kept, "kept").is_ok() {
        assert!(Instant::now() < deadline, "the cable is still there");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn what_cannot_be_made_is_refused_in_a_sentence() {
    let Some(namespace) = namespace("refusals") else {
        return;
    };
    for (name, mtu) in [("", 1_500), ("longer-than-15-bytes", 1_500), ("small", 67)] {
        let error = veth((&namespace, name), (&namespace, "other"), mtu).unwrap_err();
        let start = format!("cannot join {name} and other by a veth pair of MTU {mtu}: ");
        assert!(error.to_string().starts_with(&start), "{error}");
        assert!(!error.is_not_to_be_had());
    }
}

#[test]
fn without_the_privilege_the_error_says_which_is_missing() {
    // A thread's capabilities are its own.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            caps::clear(None, caps::CapSet::Effective).unwrap();
            let error = Namespace::new().unwrap_err();
            assert!(error.to_string().contains("CAP_SYS_ADMIN"), "{error}");
            assert!(error.is_not_to_be_had());
        });
    });
}
