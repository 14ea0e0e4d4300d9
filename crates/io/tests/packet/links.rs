//! Links that go down, interfaces that go, and those that cannot be had.

use std::io::ErrorKind;
use std::time::Instant;

use fairlane_io::packet::Options;
use fairlane_io::{Backend, PacketBackend, Waiter};
use fairlane_netlab::{Namespace, cable, or_skip, veth};

use crate::rig::*;
use crate::support::{GRACE, PATIENCE};

#[test]
fn frames_wait_while_the_link_is_down_and_leave_when_it_is_up_again() {
    let Some((near, far)) = new_cable("a link down and up") else {
        return;
    };
    let (mut sender, mut receiver) = (open(&near), open(&far));
    transmit_all(&mut sender, &mut numbered(0..10), |_| ());
    assert_eq!(collect(&mut receiver, 10), numbered(0..10));

    near.down().unwrap();
    let mut batch = numbered(10..20);
    for _ in 0..100 {
        assert_eq!(sender.transmit(&mut batch).unwrap(), 0);
        assert_eq!(sender.receive(&mut Vec::new(), 64).unwrap(), 0);
    }
    assert_eq!((batch.len(), sender.refused()), (10, 0));
    // The error has been taken: a waiter sleeps.
    let mut waiter = Waiter::new();
    assert_eq!(waiter.wait_readable(&[&sender], GRACE).unwrap().count(), 0);

    near.up().unwrap();
    transmit_all(&mut sender, &mut batch, |_| ());
    assert_eq!(collect(&mut receiver, 10), numbered(10..20));
    // And the other direction, whose receiver was down.
    far.wait_for_carrier().unwrap();
    transmit_all(&mut receiver, &mut numbered(20..30), |_| ());
    assert_eq!(collect(&mut sender, 10), numbered(20..30));
}

#[test]
fn a_link_that_was_down_when_opened_serves_once_it_is_up() {
    let Some(namespace) = or_skip("opened while down", Namespace::new()) else {
        return;
    };
    let (near, far) = veth((&namespace, "one"), (&namespace, "other"), 1_500).unwrap();
    let (mut sender, mut receiver) = (open(&near), open(&far));
    let mut batch = numbered(0..5);
    assert_eq!(sender.transmit(&mut batch).unwrap(), 0);
    near.up().unwrap();
    far.up().unwrap();
    near.wait_for_carrier().unwrap();
    transmit_all(&mut sender, &mut batch, |_| ());
    assert_eq!(collect(&mut receiver, 5), numbered(0..5));
}

#[test]
fn an_interface_removed_while_running_is_a_clear_error_and_others_go_on() {
    let Some((near, far)) = new_cable("an interface removed") else {
        return;
    };
    let (mut sender, mut receiver) = (open(&near), open(&far));
    let (stays, peer) = cable(1_500).unwrap();
    let (mut other, mut others_peer) = (open(&stays), open(&peer));
    transmit_all(&mut sender, &mut numbered(0..5), |_| ());
    near.delete().unwrap();

    let mut batch = numbered(5..9);
    let sentence = |name| {
        format!(
            "the interface {name} has been removed or moved to another network namespace: open it \
             again when it is back"
        )
    };
    for _ in 0..3 {
        let error = sender.transmit(&mut batch).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert_eq!(error.to_string(), sentence("near"));
    }
    assert_eq!((batch.len(), sender.refused()), (4, 0));

    // A waiting receiver is woken, gets earlier arrivals, and then the error.
    let mut waiter = Waiter::new();
    let mut arrived = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    let error = loop {
        assert!(Instant::now() < deadline);
        waiter.wait_readable(&[&receiver], PATIENCE).unwrap();
        match receiver.receive(&mut arrived, 64) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(numbered(0..5), arrived);
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(error.to_string(), sentence("far"));
    assert!(receiver.receive(&mut arrived, 64).is_err(), "it stays gone");

    transmit_all(&mut other, &mut numbered(0..100), |_| ());
    assert_eq!(collect(&mut others_peer, 100), numbered(0..100));
}

#[test]
fn an_interface_removed_while_it_is_down_is_found_out() {
    let Some((near, _far)) = new_cable("removed while down") else {
        return;
    };
    let mut backend = open(&near);
    near.down().unwrap();
    let mut look = || (0..1_000).find_map(|_| backend.receive(&mut Vec::new(), 64).err());
    assert!(look().is_none());
    near.delete().unwrap();
    assert_eq!(look().unwrap().kind(), ErrorKind::NotFound);
}

#[test]
fn an_interface_that_was_never_up_is_missed_when_it_is_removed() {
    let Some(namespace) = or_skip("removed before it was up", Namespace::new()) else {
        return;
    };
    let (one, _other) = veth((&namespace, "one"), (&namespace, "other"), 1_500).unwrap();
    let mut backend = open(&one);
    one.delete().unwrap();
    let mut look = || (0..1_000).find_map(|_| backend.receive(&mut Vec::new(), 64).err());
    assert_eq!(look().unwrap().kind(), ErrorKind::NotFound);
}

#[test]
fn without_an_interface_or_a_privilege_the_error_says_what_to_do() {
    let Some((near, _far)) = new_cable("what cannot be opened") else {
        return;
    };
    let open = |name: &str| PacketBackend::<Vec<u8>>::open(name, &Options::default()).unwrap_err();
    for name in ["far", "", "a-name-that-is-too-long", "nul\0"] {
        let error = near.namespace().run(|| open(name));
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert_eq!(
            error.to_string(),
            format!("there is no interface {name} in this network namespace")
        );
    }
    let error = near.namespace().run(|| {
        // A thread's capabilities are its own.
        caps::clear(None, caps::CapSet::Effective).unwrap();
        open("near")
    });
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert_eq!(
        error.to_string(),
        "to send and receive frames on near the privilege CAP_NET_RAW is needed: run as root, or \
         grant it to the program (setcap cap_net_raw+ep)"
    );
}
