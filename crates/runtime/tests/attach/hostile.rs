//! Clients that break the protocol on purpose, each step of it known.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlane_runtime::Idling;
use fairlane_runtime::attach::{AttachConfig, Mapping, connect};
use fairlane_runtime::attach::{
    MOST_MALFORMED, MOST_PENDING_REFUSALS_OF_A_USER, PERIOD, RINGS_PER_PERIOD,
};
use rustix::net::SendFlags;

use crate::raw::{HELLO, Raw, dial, receive, send, sentence};
use crate::rig::{
    LONGEST, Running, Still, class, config, number_of, packet, push_waiting, wait_until,
};

#[test]
fn an_impossible_length_costs_its_slot_until_there_were_too_many() {
    let mut daemon = Still::new(config());
    let raw = Raw::attach(&daemon.path.get());
    let forgiven = MOST_MALFORMED as usize - 1;
    for place in 0..forgiven {
        raw.write_header(place, LONGEST + 1 + place as u32);
    }
    raw.write(forgiven, &packet(1));
    let arrived = daemon.steps();
    assert_eq!(arrived.len(), 1);
    assert_eq!(number_of(&arrived[0].bytes), Some(1));
    assert_eq!(daemon.attach().stats().left, 0);

    raw.write(forgiven + 1, &packet(2));
    raw.write_header(forgiven + 2, u32::MAX);
    raw.write(forgiven + 3, &packet(3));
    let arrived = daemon.steps();
    assert_eq!(
        arrived.len(),
        1,
        "what was whole before is sent, and nothing behind"
    );
    assert_eq!(number_of(&arrived[0].bytes), Some(2));
    daemon.wait_until_left(1);
    assert_eq!(receive(&raw.socket).0, b"");
    assert!(daemon.drain_the_dead().is_empty());
}

#[test]
fn a_client_out_of_step_is_cut_off() {
    let mut daemon = Still::new(config());
    let raw = Raw::attach(&daemon.path.get());
    raw.write(0, &packet(0));
    raw.slot(1)[0].store(7 << 32 | 5, Ordering::Relaxed);
    let arrived = daemon.steps();
    assert_eq!(arrived.len(), 1);
    daemon.wait_until_left(1);
    assert_eq!(receive(&raw.socket).0, b"");
    assert!(daemon.drain_the_dead().is_empty());
}

#[test]
fn a_client_that_goes_on_writing_after_it_has_left_is_forgotten() {
    let mut daemon = Still::new(config());
    let raw = Raw::attach(&daemon.path.get());
    let geometry = raw.geometry;
    for place in 0..geometry.slots() {
        raw.write(place, &packet(place as u64));
    }
    rustix::net::shutdown(&raw.socket, rustix::net::Shutdown::Both).unwrap();
    daemon.wait_until_left(1);
    // All packets that the arbiter takes are replaced before its next visit.
    let mut place = geometry.slots();
    let mut arrived = 0;
    for _ in 0..1_000 {
        arrived += daemon.step().len();
        while raw.is_free(place) {
            raw.write(place, &packet(place as u64));
            place += 1;
        }
    }
    assert_eq!(daemon.arbiter().clients(), 0);
    assert_eq!(arrived, geometry.slots());
}

#[test]
fn a_flood_of_rings_is_heard_by_a_quota() {
    let daemon = Running::new(config(), Idling::default());
    let flooding = Raw::attach(&daemon.path.get());
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let flood = thread::spawn(move || {
        let start = Instant::now();
        while !stopped.load(Ordering::Relaxed) {
            flooding.ring();
        }
        (start.elapsed(), flooding)
    });
    // Meanwhile the others' packets, and new clients, get through.
    let mut number = 0;
    wait_until("there was a flood", || {
        let mut client = connect(daemon.path.get()).unwrap();
        assert!(push_waiting(&mut client, &packet(number)));
        number += 1;
        // No oftener than a user may attach, however late the flood is.
        thread::sleep(Duration::from_millis(16));
        // Each of the others rings once at most.
        daemon.attach().stats().rings > number + 4 * u64::from(RINGS_PER_PERIOD)
    });
    wait_until("the packets arrive", || daemon.arrived() == number);
    stop.store(true, Ordering::Relaxed);
    let (elapsed, flooding) = flood.join().unwrap();
    let rings = u128::from(daemon.attach().stats().rings);
    let periods = elapsed.as_nanos() / PERIOD.as_nanos() + 2;
    let most = u128::from(RINGS_PER_PERIOD) * periods + u128::from(number);
    assert!(rings <= most, "{rings} rings in {elapsed:?}");
    // Its rings are handled again.
    thread::sleep(Duration::from_millis(5));
    flooding.write(0, &packet(0));
    flooding.ring();
    wait_until("its packet arrives", || daemon.arrived() == number + 1);
    drop(flooding);
    daemon.wait_until_left(number + 1);
    daemon.finish();
}

#[test]
fn who_says_anything_after_its_hello_is_cut_off() {
    let mut daemon = Still::new(config());
    for (round, message) in [HELLO, &b"r"[..], &[0; 10_000]].into_iter().enumerate() {
        let raw = Raw::attach(&daemon.path.get());
        send(&raw.socket, message, SendFlags::empty()).unwrap();
        daemon.wait_until_left(round as u64 + 1);
        daemon.drain_the_dead();
        assert_eq!(receive(&raw.socket).0, b"");
    }
}

#[test]
fn unknown_senders_that_wait_take_no_place_from_those_who_may() {
    let mapping = Mapping::new().class(class("tests", 0)).unwrap();
    let mapping = mapping
        .rule(fairlane_runtime::attach::Who::Any, "tests")
        .unwrap();
    let daemon = Still::new(AttachConfig {
        hello_timeout: Duration::from_secs(60),
        ..AttachConfig::new(mapping)
    });
    // None of them may attach, and none says hello.
    let waiting: Vec<_> = (0..MOST_PENDING_REFUSALS_OF_A_USER)
        .map(|_| dial(&daemon.path.get()))
        .collect();
    let further = dial(&daemon.path.get());
    assert!(sentence(&receive(&further).0).contains("has 0 clients, its limit"));
    assert_eq!(receive(&further).0, b"");
    assert_eq!(daemon.attach().stats().refused, 1);
    // A polite client that is refused before its hello knows why.
    assert!(daemon.refusal().contains("has 0 clients, its limit"));
    // One of the others is answered as soon as it says hello.
    send(&waiting[0], HELLO, SendFlags::empty()).unwrap();
    assert!(sentence(&receive(&waiting[0]).0).contains("has 0 clients, its limit"));
}
