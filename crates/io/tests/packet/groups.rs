//! Sockets that share arrivals, and stopped ones.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::time::Instant;

use fairlane_io::packet::Options;
use fairlane_io::{Backend, PacketBackend};

use crate::rig::*;
use crate::support::{GRACE, PATIENCE};

/// Returns a numbered broadcast UDP datagram of a flow; the flow is its source port.
fn datagram(flow: u16, number: u32) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 1, 0x08, 0x00]);
    // To an unused address.
    frame.extend([
        0x45, 0, 0, 36, 0, 0, 0, 0, 64, 17, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2,
    ]);
    frame.extend(flow.to_be_bytes());
    frame.extend([0, 9, 0, 16, 0, 0]);
    frame.extend(number.to_be_bytes());
    frame.extend([0; 12]);
    frame
}

/// Receives all arrivals of each socket of a group, until there are this many or a pause; returns the frames
/// of each.
fn gather(group: &mut [PacketBackend], count: usize) -> Vec<Vec<Vec<u8>>> {
    let mut came = vec![Vec::new(); group.len()];
    let mut last = Instant::now();
    let mut all = 0;
    while last.elapsed() < if all < count { PATIENCE } else { GRACE } {
        for (one, came) in group.iter_mut().zip(&mut came) {
            let before = came.len();
            let more = one.receive(came, 64).unwrap();
            // Skips frames that the kernel sends when a link comes up.
            came.retain(|frame| {
                frame[6..14] == [2, 0, 0, 0, 0, 1, 8, 0] || frame[12..14] == PROTOCOL
            });
            all += came.len() - before;
            if more > 0 {
                last = Instant::now();
            }
        }
    }
    came
}

#[test]
fn a_group_hears_each_frame_once_each_flow_in_order_at_one_of_it_through_a_link_that_flaps() {
    const FLOWS: u16 = 64;
    const ROUND: u32 = 8;
    let Some((a, b)) = new_cable("a group of sockets") else {
        return;
    };
    let options = Options {
        prompt: true,
        ring: 1 << 20,
        ..Options::default()
    };
    let mut from = open(&a);
    for count in [2, 3] {
        let group = b
            .namespace()
            .run(|| PacketBackend::<Vec<u8>>::open_group(b.name(), &options, count));
        let mut group = group.unwrap();
        let all = usize::from(FLOWS) * ROUND as usize;
        let mut homes = vec![None; usize::from(FLOWS)];
        for round in 0..3 {
            let numbers = round * ROUND..(round + 1) * ROUND;
            let frames =
                numbers.flat_map(|number| (0..FLOWS).map(move |flow| datagram(flow, number)));
            let mut frames: VecDeque<_> = frames.collect();
            transmit_all(&mut from, &mut frames, |_| ());
            // No backend receives frames that its own end transmits.
            transmit_all(&mut group[0], &mut numbered(0..3), |_| ());
            let came = gather(&mut group, all);
            assert_eq!(came.iter().map(Vec::len).sum::<usize>(), all);
            assert!(
                came.iter().all(|came| !came.is_empty()),
                "each has some of {FLOWS} flows"
            );
            let mut next = vec![round * ROUND; usize::from(FLOWS)];
            for (home, came) in came.iter().enumerate() {
                for frame in came {
                    let flow = usize::from(u16::from_be_bytes([frame[34], frame[35]]));
                    let number = u32::from_be_bytes(frame[42..46].try_into().unwrap());
                    assert_eq!(number, next[flow], "of {flow}");
                    next[flow] += 1;
                    assert_eq!(*homes[flow].get_or_insert(home), home, "of {flow}");
                }
            }
            b.down().unwrap();
            b.up().unwrap();
            // Their order in the group is their own; flows may have moved with it.
            homes.fill(None);
        }
    }
}

#[test]
fn those_of_a_group_have_what_came_until_they_hear_nothing_more() {
    const FLOWS: u16 = 64;
    let Some((a, b)) = new_cable("a group that hears nothing more") else {
        return;
    };
    let options = Options {
        prompt: true,
        ..Options::default()
    };
    let open_group = || PacketBackend::open_group(b.name(), &options, 2).unwrap();
    let mut group = b.namespace().run(open_group);
    let mut from = open(&a);
    let frames = |number| (0..FLOWS).map(move |flow| datagram(flow, number)).collect();
    transmit_all(&mut from, &mut frames(0), |_| ());
    for one in group.iter().chain(&group) {
        one.hear(false).unwrap();
    }
    transmit_all(&mut from, &mut frames(1), |_| ());
    let came = gather(&mut group, FLOWS.into());
    let came: Vec<_> = came.iter().flatten().collect();
    assert_eq!(came.len(), usize::from(FLOWS));
    assert!(came.iter().all(|frame| frame[42..46] == [0; 4]));
    let losses: u64 = group.iter_mut().map(|one| one.lost().unwrap()).sum();
    assert_eq!(losses, 0, "what is not heard is not lost");
    for one in &group {
        let refused = one.hear(true).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    }
}

#[test]
fn a_group_that_cannot_be_is_refused_in_a_sentence() {
    let Some((_, b)) = new_cable("a group that cannot be") else {
        return;
    };
    for (count, deaf) in [(0, false), (2, true)] {
        let options = Options {
            deaf,
            ..Options::default()
        };
        let open = || PacketBackend::<Vec<u8>>::open_group(b.name(), &options, count);
        let error = b.namespace().run(open).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
}

#[test]
fn what_is_deaf_hears_when_it_is_told_to_and_as_long() {
    for ring in rings() {
        let Some((near, far)) = new_cable("what is deaf") else {
            return;
        };
        let mut sender = open(&near);
        let deaf = Options { deaf: true, ..ring };
        let mut receiver = open_with(&far, &deaf);
        let sent = |numbers: std::ops::Range<u32>, sender: &mut PacketBackend| {
            transmit_all(sender, &mut numbered(numbers), |_| {});
        };
        sent(0..10, &mut sender);
        assert!(collect(&mut receiver, 0).is_empty());
        for round in 1..4 {
            receiver.hear(true).unwrap();
            let numbers = 10 * round..10 * round + 5;
            sent(numbers.clone(), &mut sender);
            // A virtual cable has delivered the transmitted frame: it is received although receiving has
            // stopped.
            receiver.hear(false).unwrap();
            receiver.hear(false).unwrap();
            sent(100..110, &mut sender);
            assert_eq!(collect(&mut receiver, 5), numbered(numbers));
        }
    }
}
