//! Transmitted frames arrive: once, intact, in order, within the budget.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::thread;
use std::time::{Duration, Instant};

use fairlane_io::packet::Options;
use fairlane_io::{Backend, Budget, PacketBackend, Waiter};

use crate::rig::*;
use crate::support::{GRACE, PATIENCE};

#[test]
fn every_frame_comes_out_once_intact_and_in_order_of_its_flow_whatever_the_receivers_pace() {
    for ring in rings() {
        let Some((near, far)) = new_cable("every frame comes out once") else {
            return;
        };
        const FRAMES: u32 = 100_000;
        const FLOWS: u32 = 7;
        let length = |number: u32| [60, 14, 64, 333, 1_514, 1_000, 15][number as usize % 7].max(18);
        // The receiver pauses, so the ring must hold all that is sent meanwhile: a window's worth.
        const WINDOW: u32 = 8_000;
        let mut sender = open(&near);
        let mut receiver = open_with(
            &far,
            &Options {
                ring: 32 << 20,
                ..ring
            },
        );
        let seen = std::sync::atomic::AtomicU32::new(0);
        let arrived = thread::scope(|scope| {
            let receiving = scope.spawn(|| {
                let mut arrived: Vec<Vec<u8>> = Vec::new();
                let mut waiter = Waiter::new();
                let deadline = Instant::now() + 3 * PATIENCE;
                let mut calls = 0_u32;
                while (arrived.len() as u32) < FRAMES && Instant::now() < deadline {
                    waiter.wait_readable(&[&receiver], GRACE).unwrap();
                    calls += 1;
                    if calls.is_multiple_of(50) {
                        thread::sleep(Duration::from_millis(5));
                    }
                    let most = [1, 3, 64, 1_000][calls as usize % 4];
                    receiver.receive(&mut arrived, most).unwrap();
                    seen.store(arrived.len() as u32, std::sync::atomic::Ordering::Release);
                }
                arrived
            });
            let mut number = 0;
            let mut batch = VecDeque::new();
            while number < FRAMES || !batch.is_empty() {
                let come = seen.load(std::sync::atomic::Ordering::Acquire);
                while number < FRAMES && number - come < WINDOW && batch.len() < 100 {
                    batch.push_back(frame((number % FLOWS) as u8, number, length(number)));
                    number += 1;
                }
                sender.transmit(&mut batch).unwrap();
                if receiving.is_finished() {
                    break;
                }
            }
            receiving.join().unwrap()
        });
        assert_eq!((sender.refused(), receiver.discarded()), (0, 0));
        assert_eq!(receiver.lost().unwrap(), 0);
        assert_eq!(receiver.receive(&mut Vec::new(), 64).unwrap(), 0);
        // One cable keeps the order of all, and so of each flow.
        assert_eq!(arrived.len(), FRAMES as usize);
        for (number, arrived) in (0..).zip(&arrived) {
            let sent = frame((number % FLOWS) as u8, number, length(number));
            assert!(*arrived == sent, "frame {number} is not what was sent");
        }
    }
}

#[test]
fn a_frame_longer_than_the_mtu_or_shorter_than_a_header_is_refused_and_holds_up_nobody() {
    let Some((near, far)) = new_cable("frames that no interface takes") else {
        return;
    };
    let (mut sender, mut receiver) = (open(&near), open(&far));
    let mut batch = VecDeque::from([
        frame(0, 1, 1_514),
        frame(0, 2, 1_515),
        vec![0xff; 13],
        vec![],
        frame(0, 3, 300_000),
        frame(0, 4, 60),
    ]);
    assert_eq!(sender.transmit(&mut batch).unwrap(), 2);
    assert_eq!((sender.refused(), batch.len()), (4, 0));
    assert_eq!(
        collect(&mut receiver, 2),
        [frame(0, 1, 1_514), frame(0, 4, 60)]
    );
}

#[test]
fn receiving_less_than_waits_leaves_the_rest_and_keeps_what_was_there() {
    for ring in rings() {
        let Some((near, far)) = new_cable("receiving less than waits") else {
            return;
        };
        let (mut sender, mut receiver) = (open(&near), open_with(&far, &ring));
        transmit_all(&mut sender, &mut numbered(0..10), |_| ());
        let mut arrived = vec![frame(9, 9, 60)];
        let mut waiter = Waiter::new();
        assert_eq!(receiver.receive(&mut arrived, 0).unwrap(), 0);
        for max in [1, 2, 7] {
            // On a busy machine the last of them may arrive later than the first.
            let mut left = max;
            while left > 0 {
                assert!(
                    waiter
                        .wait_readable(&[&receiver], PATIENCE)
                        .unwrap()
                        .eq([0])
                );
                let taken = receiver.receive(&mut arrived, left).unwrap();
                assert!(taken <= left, "{taken} of {left}");
                left -= taken;
            }
        }
        assert_eq!(arrived[0], frame(9, 9, 60));
        assert_eq!(numbered(0..10), &arrived[1..]);
        assert_eq!(receiver.receive(&mut arrived, 64).unwrap(), 0);
        assert_eq!(
            waiter.wait_readable(&[&receiver], GRACE).unwrap().count(),
            0
        );
    }
}

#[test]
fn what_a_backend_sends_it_does_not_receive() {
    let Some((near, far)) = new_cable("nothing of one's own") else {
        return;
    };
    let (mut one, mut other) = (open(&near), open(&far));
    transmit_all(&mut one, &mut numbered(0..5), |_| ());
    transmit_all(&mut other, &mut numbered(5..8), |_| ());
    assert_eq!(collect(&mut one, 3), numbered(5..8));
    assert_eq!(collect(&mut other, 5), numbered(0..5));
}

#[test]
fn a_vlan_tag_arrives_where_it_stood() {
    for ring in rings() {
        let Some((near, far)) = new_cable("VLAN tags") else {
            return;
        };
        let (mut sender, mut receiver) = (open(&near), open_with(&far, &ring));
        // Class 5, network 291; in the tag of a customer, in that of a provider, in both; and network
        // 0, which is a tag too.
        let tags: [&[u8]; 4] = [
            &[0x81, 0x00, 0xa1, 0x23],
            &[0x88, 0xa8, 0xa1, 0x23],
            &[0x88, 0xa8, 0x00, 0x07, 0x81, 0x00, 0xa1, 0x23],
            &[0x81, 0x00, 0x00, 0x00],
        ];
        let sent: Vec<Vec<u8>> = tags
            .iter()
            .map(|tag| {
                let plain = frame(0, 1, 1_514);
                // The MTU does not count a customer's tag.
                let free = if tag[..2] == [0x81, 0x00] { 4 } else { 0 };
                [&plain[..12], tag, &plain[12..1_514 + free - tag.len()]].concat()
            })
            .collect();
        let mut batch = VecDeque::from(sent.clone());
        transmit_all(&mut sender, &mut batch, |_| ());
        assert_eq!(sender.refused(), 0);
        assert_eq!(collect(&mut receiver, 4), sent);
    }
}

#[test]
fn in_flight_never_exceeds_the_budget_and_the_rest_waits_in_its_order() {
    // Lengths on both sides of where the kernel allots more.
    for (budget, length) in [
        (2_304, 1_514),
        // Eleven frames of 832 bytes of kernel memory are 32 too many.
        (9_120, 60),
        (10_000, 241),
        (10_000, 242),
        (30_000, 689),
        (30_000, 690),
        (30_000, 1_000),
    ] {
        let Some((near, far)) = new_cable("the budget") else {
            return;
        };
        // A frame each millisecond, and room for everything: only the budget holds frames back.
        near.limit_rate(1_000 * length as u32, 10_000_000).unwrap();
        let mut receiver = open(&far);
        let mut sender = open_with(
            &near,
            &Options {
                budget: Budget::from_bytes(budget),
                ..Options::default()
            },
        );
        let sent: VecDeque<_> = (0..100).map(|number| frame(0, number, length)).collect();
        let (mut highest, mut short) = (0, 0);
        let mut batch = sent.clone();
        transmit_all(&mut sender, &mut batch, |sender| {
            highest = highest.max(sender.in_flight().unwrap());
            short += 1;
            thread::sleep(Duration::from_micros(100));
        });
        assert!(highest <= budget, "{highest} of {budget} bytes in flight");
        // It is used: another frame, of at most 2,304 bytes, would not have fitted.
        assert!(highest + 2_304 > budget, "{highest} of {budget} bytes used");
        let most = sender.most_in_flight();
        assert!((highest..=budget).contains(&most), "{most}, seen {highest}");
        assert!(short > 1, "the budget was never used up");
        assert_eq!(collect(&mut receiver, 100), sent);
        assert_eq!(sender.refused(), 0);
    }
}

/// Behind a device that sends a frame each millisecond, the queue has two frames, or as many as fit into the limit.
#[test]
fn a_queue_behind_a_slow_device_is_kept_short() {
    let Some((near, far)) = new_cable("a short queue") else {
        return;
    };
    near.limit_rate(1_514_000, 10_000_000).unwrap();
    let mut receiver = open(&far);
    let mut sender = open(&near);
    let mut batch = VecDeque::new();
    for (bytes, limit, count) in [(0, 4_608, 20), (8_000, 8_000, 20), (u64::MAX, 262_144, 50)] {
        assert_eq!(sender.keep_short(bytes), limit);
        let mut highest = 0;
        batch.extend((0..count).map(|number| frame(0, number, 1_514)));
        let sent = batch.clone();
        transmit_all(&mut sender, &mut batch, |sender| {
            highest = highest.max(sender.in_flight().unwrap());
            thread::sleep(Duration::from_micros(100));
        });
        let most = sender.most_in_flight();
        assert!(highest <= limit && most <= limit, "{most} of {limit} bytes");
        assert!(
            most + 2_304 > limit.min(u64::from(count) * 1_514),
            "{most} of {limit} bytes"
        );
        assert_eq!(collect(&mut receiver, count as usize), sent);
        while sender.in_flight().unwrap() > 0 {
            thread::sleep(Duration::from_micros(100));
        }
    }
}

#[test]
fn a_budget_below_one_frame_is_refused_in_a_sentence() {
    let Some((near, _far)) = new_cable("too small a budget") else {
        return;
    };
    let open = |budget| {
        let options = Options {
            budget: Budget::from_bytes(budget),
            ..Options::default()
        };
        near.namespace()
            .run(|| PacketBackend::<Vec<u8>>::open("near", &options).map(drop))
    };
    let error = open(2_303).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(
        error.to_string(),
        "a budget of 2303 bytes in flight is too small for near: one frame of its MTU of 1500 \
         takes 2304 bytes of kernel memory"
    );
    open(2_304).unwrap();
}

#[test]
fn a_waiter_serves_packet_sockets_beside_others() {
    let Some((near, far)) = new_cable("waiting for several") else {
        return;
    };
    let (mut one, other) = (open(&near), open(&far));
    let mut waiter = Waiter::new();
    assert_eq!(
        waiter
            .wait_readable(&[&one, &other], GRACE)
            .unwrap()
            .count(),
        0
    );
    transmit_all(&mut one, &mut numbered(0..1), |_| ());
    assert!(
        waiter
            .wait_readable(&[&one, &other], PATIENCE)
            .unwrap()
            .eq([1])
    );
}

#[test]
fn a_frame_of_full_size_is_sent_with_one_tag_and_refused_with_two() {
    let Some((near, far)) = new_cable("full size with two tags") else {
        return;
    };
    let (mut sender, mut receiver) = (open(&near), open(&far));
    let tagged = |tags: &[[u8; 2]], length| {
        let mut frame = frame(0, 1, 12);
        frame.truncate(12);
        for tag in tags {
            frame.extend([tag[0], tag[1], 0, 7]);
        }
        frame.extend(PROTOCOL);
        frame.resize(length, 9);
        frame
    };
    let (one, two) = ([[0x81, 0x00]], [[0x88, 0xa8], [0x81, 0x00]]);
    let fits = [tagged(&one, 1_518), tagged(&two, 1_514)];
    let mut batch = VecDeque::from([fits[0].clone(), tagged(&two, 1_522), fits[1].clone()]);
    transmit_all(&mut sender, &mut batch, |_| ());
    assert_eq!(sender.refused(), 1);
    assert_eq!(collect(&mut receiver, 2), fits);
}
