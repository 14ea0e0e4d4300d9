//! Long frames, which bypass a ring whose slots are sized for the MTU.

use std::collections::VecDeque;
use std::time::Duration;

use fairlane_netlab::{Link, cable, or_skip};

use super::like_kernel::sender;
use super::*;
use crate::Waiter;
use crate::segment::whole::{Ip, Transport, Whole};
use fairlane_wire::segmentation::MOST_FRAMES;

/// Returns a frame yet to be cut into pieces of this size.
fn whole(number: u16, payload: usize, size: u16) -> Whole {
    Whole {
        tags: vec![7],
        ip: Ip::Four {
            tos: 0,
            number,
            dont_fragment: false,
            options: Vec::new(),
        },
        transport: Transport::Tcp {
            sequence: 0,
            flags: 0x10,
            options: Vec::new(),
        },
        payload: vec![number as u8; payload],
        size: Some(size),
    }
}

fn send(link: &Link, wholes: impl IntoIterator<Item = Whole>) {
    let socket = sender(link);
    for whole in wholes {
        let (header, frame) = whole.made();
        let batch = VecDeque::from([frame]);
        let sent = packet::send_with(socket.as_fd(), &batch, 1, |_| header);
        assert_eq!(sent.unwrap(), 1);
    }
}

fn listen(link: &Link, ring: usize) -> PacketBackend {
    let options = Options {
        ring,
        prompt: true,
        promiscuous: true,
        ..Options::default()
    };
    let open = || PacketBackend::open(link.name(), &options).unwrap();
    link.namespace().run(open)
}

/// Receives until there are no arrivals for a while.
fn collect(backend: &mut PacketBackend, room: usize) -> Vec<Vec<u8>> {
    let mut arrived = Vec::new();
    let mut waiter = Waiter::new();
    loop {
        let grace = Duration::from_millis(100);
        if backend.receive(&mut arrived, room).unwrap() == 0
            && waiter
                .wait_readable(&[&*backend], grace)
                .unwrap()
                .next()
                .is_none()
        {
            return arrived;
        }
    }
}

#[test]
fn what_finds_no_room_is_counted_and_what_follows_is_whole() {
    let Some((near, far)) = or_skip("long frames without room", cable(1_500)) else {
        return;
    };
    const SENT: u16 = 40;
    // The smallest ring there is.
    let mut backend = listen(&far, 0);
    send(&near, (1..=SENT).map(|number| whole(number, 60_000, 1_000)));
    let arrived = collect(&mut backend, 64);
    let lost = backend.discarded();
    assert!((1..u64::from(SENT)).contains(&lost), "{lost}");
    assert_eq!(arrived.len() as u64, 60 * (u64::from(SENT) - lost));
    for frames in arrived.chunks(60) {
        let alike = |frame: &Vec<u8>| frame.len() == 1_058 && frame[58..] == frames[0][58..];
        assert!(frames.iter().all(alike));
    }
    // Those that had no room have left nothing behind that is taken for another.
    send(&near, (100..103).map(|number| whole(number, 60_000, 1_000)));
    let arrived = collect(&mut backend, 64);
    let marks: Vec<u8> = arrived.iter().map(|frame| frame[58]).collect();
    assert_eq!(marks, [[100; 60], [101; 60], [102; 60]].concat());
    assert_eq!((backend.discarded(), backend.uncut()), (lost, 0));
}

#[test]
fn frames_beside_those_that_found_no_room_are_marked_until_the_losses_are_asked_for() {
    let Some((near, far)) = or_skip("frames beside long ones", cable(1_500)) else {
        return;
    };
    let mut backend = listen(&far, 0);
    let next_is_marked = |backend: &mut PacketBackend| {
        send(&near, [whole(1, 1_000, 1_000)]);
        while backend.receive(&mut Vec::new(), 1).unwrap() == 0 {}
        backend.arrivals()[0].losing
    };
    assert!(!next_is_marked(&mut backend));
    send(&near, (1..=40).map(|number| whole(number, 60_000, 1_000)));
    collect(&mut backend, 64);
    assert!(backend.discarded() > 0);
    assert!(next_is_marked(&mut backend));
    backend.lost().unwrap();
    assert!(!next_is_marked(&mut backend));
}

#[test]
fn what_cannot_be_cut_is_counted_and_what_follows_is_whole() {
    let Some((near, far)) = or_skip("frames that cannot be cut", cable(1_500)) else {
        return;
    };
    let mut backend = listen(&far, 8 << 20);
    // One byte in each: 40,000 frames of one.
    send(
        &near,
        [
            whole(1, 40_000, 1),
            whole(2, 3_000, 1_000),
            whole(3, MOST_FRAMES, 1),
        ],
    );
    let arrived = collect(&mut backend, 64);
    assert_eq!(backend.uncut(), 1);
    let marks: Vec<u8> = arrived.iter().map(|frame| frame[58]).collect();
    assert_eq!(marks, [vec![2; 3], vec![3; MOST_FRAMES]].concat());
}

#[test]
fn a_call_gives_out_no_more_frames_than_it_asked_for() {
    let Some((near, far)) = or_skip("no more than asked for", cable(1_500)) else {
        return;
    };
    let mut backend = listen(&far, 8 << 20);
    send(&near, [whole(1, 20_000, 100)]);
    Waiter::new()
        .wait_readable(&[&backend], Duration::from_secs(20))
        .unwrap();
    let mut arrived = Vec::new();
    for expected in [64, 64, 64, 8, 0] {
        let before = arrived.len();
        assert_eq!(backend.receive(&mut arrived, 64).unwrap(), expected);
        assert_eq!(arrived.len() - before, expected);
    }
}

#[test]
fn a_link_that_went_down_gives_what_came_before_and_is_known_to_be_down() {
    let Some((near, far)) = or_skip("long frames and a link that goes down", cable(1_500)) else {
        return;
    };
    let mut backend = listen(&far, 8 << 20);
    send(&near, (1..=2).map(|number| whole(number, 10_000, 1_000)));
    // The kernel reports that before the frames that wait.
    far.down().unwrap();
    assert_eq!(collect(&mut backend, 64).len(), 20);
    assert_eq!(backend.discarded(), 0);
    far.delete().unwrap();
    let mut calls = 0..2 * LOOKS_PER_QUESTION;
    let error = calls.find_map(|_| backend.receive(&mut Vec::new(), 64).err());
    assert_eq!(error.unwrap().kind(), io::ErrorKind::NotFound);
}

#[test]
fn two_backends_with_the_same_sockets_receive_by_turns_and_miss_nothing() {
    let Some((near, far)) = or_skip("sockets that are handed over", cable(1_500)) else {
        return;
    };
    let mut one = listen(&far, 0);
    let go_on = |other: &PacketBackend| {
        let sockets = other.sockets().unwrap().unwrap();
        let go_on = || PacketBackend::from_sockets(far.name(), Budget::default(), sockets);
        far.namespace().run(go_on).unwrap()
    };
    // Some frames are in the ring, some bypass it; each is segmented into two. Together they are more
    // than the ring has slots for.
    let mut number = 0;
    let mut expected = Vec::new();
    for turn in 0..60_u16 {
        let some: Vec<u16> = (0..5 + turn % 3).map(|more| number + more).collect();
        number += some.len() as u16;
        expected.extend(some.iter().flat_map(|&number| [number as u8; 2]));
        let length = if turn % 2 == 0 { 1_200 } else { 20_000 };
        send(
            &near,
            some.iter()
                .map(|&number| whole(number, length, length as u16 / 2)),
        );
        let mut arrived = Vec::new();
        // In the middle of a frame that is being segmented, except for the last.
        while arrived.len() < 3 {
            one.receive(&mut arrived, 3).unwrap();
        }
        one.rest(&mut arrived);
        let nothing = one.rest(&mut arrived);
        assert_eq!(nothing, Duration::ZERO, "what is not there has not waited");
        let mut other = go_on(&one);
        other.go_on_from(one.position());
        arrived.extend(collect(&mut other, 64));
        let marks: Vec<u8> = arrived.iter().map(|frame| frame[58]).collect();
        assert_eq!(marks, expected.split_off(0), "{turn}");
        assert_eq!((one.discarded(), other.discarded()), (0, 0));
        one = other;
    }
}
