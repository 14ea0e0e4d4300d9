//! Packet sockets over a virtual cable keep the contract of every backend.
#![cfg(target_os = "linux")]

mod support;

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use fairlane_io::packet::Options;
use fairlane_io::{Backend, Budget, PacketBackend, Waiter};
use fairlane_netlab::{Link, Namespace, cable, or_skip, veth};
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use support::{GRACE, PATIENCE};

/// A protocol for experiments: the kernel's own network does not answer it.
const PROTOCOL: [u8; 2] = [0x88, 0xb5];

fn new_cable(test: &str) -> Option<(Link, Link)> {
    or_skip(test, cable(1_500))
}

fn open(link: &Link) -> PacketBackend {
    open_with(link, &Options::default())
}

fn open_with(link: &Link, options: &Options) -> PacketBackend {
    link.namespace()
        .run(|| PacketBackend::open(link.name(), options).unwrap())
}

/// Both ways in which frames are handed over.
fn rings() -> [Options; 2] {
    [false, true].map(|prompt| Options {
        prompt,
        ..Options::default()
    })
}

/// A frame of `length` bytes to everybody that carries `flow` and `number`.
fn frame(flow: u8, number: u32, length: usize) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, flow]);
    frame.extend(PROTOCOL);
    frame.extend(number.to_be_bytes());
    frame.extend((frame.len()..length).map(|at| (at as u32 ^ number) as u8));
    frame
}

fn numbered(numbers: std::ops::Range<u32>) -> VecDeque<Vec<u8>> {
    numbers.map(|number| frame(0, number, 60)).collect()
}

/// Receives until `count` have come, and then makes sure that no more do.
fn collect(backend: &mut PacketBackend, count: usize) -> VecDeque<Vec<u8>> {
    support::collect(backend, count).into()
}

/// Transmits all of `batch`, and calls `between` after each attempt. From one core: a virtual cable hands a frame
/// over where it was sent, so that frames of a thread that moves to another core may overtake those before.
fn transmit_all(
    backend: &mut PacketBackend,
    batch: &mut VecDeque<Vec<u8>>,
    mut between: impl FnMut(&mut PacketBackend),
) {
    let cores = sched_getaffinity(None).unwrap();
    let mut here = CpuSet::new();
    here.set(sched_getcpu());
    sched_setaffinity(None, &here).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while !batch.is_empty() {
        assert!(Instant::now() < deadline, "{} frames are left", batch.len());
        backend.transmit(batch).unwrap();
        between(backend);
    }
    sched_setaffinity(None, &cores).unwrap();
}

/// Receives until each of the frames that were sent has come or is counted as lost: how many are lost.
fn receive_rest(backend: &mut PacketBackend, arrived: &mut Vec<Vec<u8>>, sent: u64) -> u64 {
    let deadline = Instant::now() + PATIENCE;
    loop {
        backend.receive(arrived, usize::MAX).unwrap();
        let (came, lost) = (arrived.len() as u64, backend.lost().unwrap());
        if came + lost >= sent {
            return lost;
        }
        assert!(Instant::now() < deadline, "{came} and {lost} of {sent}");
        thread::sleep(Duration::from_millis(1));
    }
}

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

/// A UDP datagram to everybody of a flow, which is its source port, with a number.
fn datagram(flow: u16, number: u32) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 1, 0x08, 0x00]);
    // To an address that nobody has.
    frame.extend([
        0x45, 0, 0, 36, 0, 0, 0, 0, 64, 17, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2,
    ]);
    frame.extend(flow.to_be_bytes());
    frame.extend([0, 9, 0, 16, 0, 0]);
    frame.extend(number.to_be_bytes());
    frame.extend([0; 12]);
    frame
}

/// Receives from each of a group all that comes, until it is as much as this or nothing does for a while: the
/// frames of each.
fn gather(group: &mut [PacketBackend], count: usize) -> Vec<Vec<Vec<u8>>> {
    let mut came = vec![Vec::new(); group.len()];
    let mut last = Instant::now();
    let mut all = 0;
    while last.elapsed() < if all < count { PATIENCE } else { GRACE } {
        for (one, came) in group.iter_mut().zip(&mut came) {
            let before = came.len();
            let more = one.receive(came, 64).unwrap();
            // And not what the kernel says when a link comes up.
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
            // What this end sends, none of them hears.
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
            // A virtual cable has delivered what was sent: it is received though nothing more is heard.
            receiver.hear(false).unwrap();
            receiver.hear(false).unwrap();
            sent(100..110, &mut sender);
            assert_eq!(collect(&mut receiver, 5), numbered(numbers));
        }
    }
}

#[test]
fn frames_that_find_no_room_in_the_ring_are_lost_by_count_and_the_rest_arrive() {
    for ring in rings() {
        let Some((near, far)) = new_cable("a ring that overflows") else {
            return;
        };
        let mut sender = open(&near);
        let mut receiver = open_with(&far, &Options { ring: 1, ..ring });
        let mut batch: VecDeque<_> = (0..1_000).map(|number| frame(0, number, 1_514)).collect();
        transmit_all(&mut sender, &mut batch, |_| ());
        let mut arrived = Vec::new();
        let lost = receive_rest(&mut receiver, &mut arrived, 1_000);
        assert!(lost > 0 && !arrived.is_empty());
        assert_eq!(arrived.len() as u64 + lost, 1_000);
        assert_eq!(receiver.lost().unwrap(), lost, "the count stays");
        // The first came, and after the gap the ring works again.
        assert!(
            arrived
                .iter()
                .zip(0..)
                .all(|(it, n)| *it == frame(0, n, 1_514))
        );
        transmit_all(&mut sender, &mut numbered(0..3), |_| ());
        assert_eq!(collect(&mut receiver, 3), numbered(0..3));
    }
}

#[test]
fn frames_keep_their_order_while_the_ring_goes_round_and_round() {
    // A block is used up whenever it is handed over, which on a busy machine may be after every
    // frame of a burst: a burst has fewer frames than the ring has blocks, eight of 128 KiB.
    const RING: usize = 8 * (128 << 10);
    const BURST: u32 = 6;
    const BURSTS: u32 = 500;
    let length = |number: u32| 60 + (number * 701) as usize % 1_455;
    for ring in rings() {
        let Some((near, far)) = new_cable("a ring that goes round") else {
            return;
        };
        let mut sender = open(&near);
        let mut receiver = open_with(&far, &Options { ring: RING, ..ring });
        let mut waiter = Waiter::new();
        let (mut sent, mut arrived) = (0, Vec::new());
        for burst in 0..BURSTS {
            // A different place in the ring each time.
            let end = sent + 1 + burst * 7 % BURST;
            let mut batch = (sent..end)
                .map(|number| frame(0, number, length(number)))
                .collect();
            transmit_all(&mut sender, &mut batch, |_| ());
            sent = end;
            let deadline = Instant::now() + PATIENCE;
            while (arrived.len() as u32) < sent {
                let lost = receiver.lost().unwrap();
                assert_eq!(lost, 0, "lost at the ring");
                assert!(Instant::now() < deadline, "{} of {sent}", arrived.len());
                waiter.wait_readable(&[&receiver], PATIENCE).unwrap();
                receiver.receive(&mut arrived, 7).unwrap();
            }
        }
        assert_eq!(receiver.lost().unwrap(), 0);
        assert_eq!(arrived.len() as u32, sent);
        for (number, arrived) in (0..).zip(&arrived) {
            assert!(*arrived == frame(0, number, length(number)), "{number}");
        }
    }
}

#[test]
fn each_time_the_ring_overflows_what_arrives_is_in_order_and_the_rest_is_counted() {
    const BURST: u32 = 100;
    const BURSTS: u32 = 100;
    for ring in rings() {
        let Some((near, far)) = new_cable("a ring that overflows again and again") else {
            return;
        };
        let mut sender = open(&near);
        let mut receiver = open_with(&far, &Options { ring: 1, ..ring });
        let mut arrived = Vec::new();
        for burst in 0..BURSTS {
            let numbers = burst * BURST..(burst + 1) * BURST;
            let mut batch = numbers.map(|number| frame(0, number, 1_514)).collect();
            transmit_all(&mut sender, &mut batch, |_| ());
            // Less than a full ring is taken out, and each time so many.
            receiver
                .receive(&mut arrived, 1 + burst as usize % 30)
                .unwrap();
        }
        let all = u64::from(BURST * BURSTS);
        let lost = receive_rest(&mut receiver, &mut arrived, all);
        assert_eq!(arrived.len() as u64 + lost, all);
        assert!(lost > 0 && arrived.len() > 1_000, "{}", arrived.len());
        let numbers: Vec<u32> = arrived
            .iter()
            .map(|frame| u32::from_be_bytes(frame[14..18].try_into().unwrap()))
            .collect();
        assert!(numbers.is_sorted_by(|one, next| one < next));
        for (number, arrived) in numbers.iter().zip(&arrived) {
            assert!(*arrived == frame(0, *number, 1_514), "{number}");
        }
    }
}

#[test]
fn a_lone_frame_that_is_handed_over_promptly_does_not_wait_for_a_block() {
    let Some((near, far)) = new_cable("a lone frame") else {
        return;
    };
    let prompt = Options {
        prompt: true,
        ..Options::default()
    };
    // Each frame comes to both, first to who was opened last. In blocks half of them wait half a millisecond.
    let mut sender = open(&near);
    let (mut blocks, mut receiver) = (open(&far), open_with(&far, &prompt));
    let (mut waiter, mut came) = (Waiter::new(), Vec::new());
    let mut sooner = [0, 0];
    // Who looks late, as other programs had the processor, finds both.
    for number in 0..2_000 {
        transmit_all(&mut sender, &mut numbered(number..number + 1), |_| ());
        let waits = number % 2 == 1;
        let deadline = Instant::now() + PATIENCE;
        let mut is_in_block = false;
        loop {
            if waits {
                waiter.wait_readable(&[&receiver], PATIENCE).unwrap();
            }
            is_in_block |= blocks.receive(&mut came, 1).unwrap() > 0;
            if receiver.receive(&mut came, 1).unwrap() > 0 {
                break;
            }
            assert!(!is_in_block, "frame {number} waited for a block");
            assert!(Instant::now() < deadline, "frame {number} does not come");
        }
        sooner[usize::from(waits)] += u32::from(!is_in_block);
        while !is_in_block {
            waiter.wait_readable(&[&blocks], PATIENCE).unwrap();
            is_in_block = blocks.receive(&mut came, 1).unwrap() > 0;
            assert!(Instant::now() < deadline, "frame {number} stays in a block");
        }
        if number >= 40 && sooner.iter().all(|&frames| frames > 0) {
            return;
        }
    }
    panic!("of 2000 frames so few came before their block: {sooner:?}");
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
            // On a busy machine the last of them may come later than the first.
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
fn a_ring_that_no_kernel_has_room_for_is_refused_in_a_sentence() {
    let Some((near, _far)) = new_cable("too large a ring") else {
        return;
    };
    for ring in [1 << 44, usize::MAX] {
        let options = Options {
            ring,
            ..Options::default()
        };
        let error = near
            .namespace()
            .run(|| PacketBackend::<Vec<u8>>::open("near", &options).map(drop))
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert!(error.to_string().contains("for near"), "{error}");
    }
}

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

    // Who waits for frames is woken, gets what had arrived, and is told.
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

/// Two hosts whose networks are one through a forwarder of two backends, which runs while `work`
/// does and then says how many frames each of them counted as uncut, and how many it discarded.
fn forwarded(
    test: &str,
    offloads: bool,
    work: impl FnOnce(&Link, &Link),
) -> Option<[(u64, u64); 2]> {
    let middle = or_skip(test, Namespace::new())?;
    let hosts = [Namespace::new().unwrap(), Namespace::new().unwrap()];
    let cables = [("left", "host"), ("right", "host")];
    let links: Vec<_> = cables
        .iter()
        .zip(&hosts)
        .map(|((port, host), namespace)| veth((&middle, port), (namespace, host), 1_500).unwrap())
        .collect();
    for (number, (port, host)) in (1..).zip(&links) {
        port.up().unwrap();
        host.up().unwrap();
        host.add_address([10, 0, 0, number].into(), 24).unwrap();
        if !offloads {
            host.turn_offloads_off().unwrap();
        }
    }
    // One of each kind.
    let [blocks, prompt] = rings();
    let mut ports = [
        open_with(&links[0].0, &blocks),
        open_with(&links[1].0, &prompt),
    ];
    let stop = std::sync::atomic::AtomicBool::new(false);
    let counts = thread::scope(|scope| {
        let forwarder = scope.spawn(|| {
            let mut waiter = Waiter::new();
            let mut batches = [VecDeque::new(), VecDeque::new()];
            let mut arrived = Vec::new();
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                waiter
                    .wait_readable(&[&ports[0], &ports[1]], Duration::from_millis(5))
                    .unwrap();
                for (from, to) in [(0, 1), (1, 0)] {
                    ports[from].receive(&mut arrived, 64).unwrap();
                    batches[to].extend(arrived.drain(..));
                    ports[to].transmit(&mut batches[to]).unwrap();
                }
            }
            ports.map(|port| (port.uncut(), port.discarded()))
        });
        let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            work(&links[0].1, &links[1].1);
        }));
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let counts = forwarder.join().unwrap();
        worked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        counts
    });
    Some(counts)
}

#[test]
fn a_checksum_left_to_hardware_that_is_not_there_is_completed() {
    let datagrams = |one: &Link, other: &Link| {
        let bind = |link: &Link, host| {
            let address = Ipv4Addr::new(10, 0, 0, host);
            let socket = link
                .namespace()
                .run(|| UdpSocket::bind((address, 9)).unwrap());
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket
        };
        let (one, other) = (bind(one, 1), bind(other, 2));
        for length in [0, 1, 2, 999, 1_472] {
            let payload: Vec<u8> = (0..length).map(|at| at as u8).collect();
            one.send_to(&payload, "10.0.0.2:9").unwrap();
            let mut buffer = [0; 2_000];
            // The kernel checks what came through a packet socket, and drops what is wrong.
            let came = other.recv(&mut buffer).unwrap();
            assert_eq!(buffer[..came], payload);
        }
    };
    forwarded("checksums left to hardware", true, datagrams);
}

/// Sends megabytes from one to the other, and waits until they are there.
fn megabytes(one: &Link, other: &Link) {
    const BYTES: usize = 3_000_000;
    let listener = other
        .namespace()
        .run(|| TcpListener::bind("10.0.0.2:9").unwrap());
    let mut stream = one
        .namespace()
        .run(|| TcpStream::connect("10.0.0.2:9").unwrap());
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let sent: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8).collect();
    let received = thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let mut received = Vec::new();
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let deadline = Instant::now() + PATIENCE;
            let mut buffer = vec![0; 1 << 16];
            loop {
                assert!(Instant::now() < deadline, "{} bytes came", received.len());
                match stream.read(&mut buffer).unwrap() {
                    0 => break received,
                    length => received.extend_from_slice(&buffer[..length]),
                }
            }
        });
        stream.write_all(&sent).unwrap();
        drop(stream);
        receiving.join().unwrap()
    });
    assert!(received == sent);
}

#[test]
fn a_connection_through_a_forwarder_carries_megabytes_whatever_its_hosts_leave_to_hardware() {
    for offloads in [false, true] {
        let name = "a connection through a forwarder";
        if let Some(counts) = forwarded(name, offloads, megabytes) {
            assert_eq!(counts, [(0, 0); 2]);
        }
    }
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
fn a_frame_that_lay_in_the_ring_is_known_to_have_waited_there() {
    for ring in rings() {
        let Some((near, far)) = new_cable("a frame that lay in the ring") else {
            return;
        };
        let mut sender = open(&near);
        let mut receiver = open_with(&far, &ring);
        let begun = Instant::now();
        sender.transmit(&mut numbered(0..3)).unwrap();
        let mut waiter = Waiter::new();
        waiter.wait_readable(&[&receiver], PATIENCE).unwrap();
        let there = Instant::now();
        thread::sleep(Duration::from_millis(200));
        let mut arrived = Vec::new();
        receiver.receive(&mut arrived, 1).unwrap();
        let least = there.elapsed();
        receiver.receive(&mut arrived, 64).unwrap();
        assert_eq!(arrived.len(), 3);
        let waited: Vec<_> = receiver.arrivals().iter().map(|a| a.waited).collect();
        assert_eq!(waited.len(), 2, "of the last call");
        for waited in waited {
            assert!((least..begun.elapsed()).contains(&waited), "{waited:?}");
        }
        // The next is another's wait.
        let begun = Instant::now();
        sender.transmit(&mut numbered(3..4)).unwrap();
        while receiver.receive(&mut arrived, 1).unwrap() == 0 {}
        assert!(receiver.arrivals()[0].waited < begun.elapsed());
        assert!(!receiver.arrivals()[0].losing);
    }
}

#[test]
fn frames_beside_those_that_were_lost_are_marked_until_the_losses_are_asked_for() {
    let Some((near, far)) = new_cable("frames beside those that were lost") else {
        return;
    };
    let mut sender = open(&near);
    let options = Options {
        ring: 64 << 10,
        prompt: true,
        ..Options::default()
    };
    let mut receiver = open_with(&far, &options);
    let mut arrived = Vec::new();
    transmit_all(&mut sender, &mut numbered(0..400), |_| ());
    receiver.receive(&mut arrived, 16).unwrap();
    let all_marked = |receiver: &PacketBackend| receiver.arrivals().iter().all(|a| a.losing);
    assert!(!all_marked(&receiver), "these came before");
    arrived.clear();
    receiver.receive(&mut arrived, usize::MAX).unwrap();
    // The kernel knows by now that it has lost some.
    transmit_all(&mut sender, &mut numbered(0..1), |_| ());
    while receiver.receive(&mut arrived, usize::MAX).unwrap() == 0 {}
    assert!(all_marked(&receiver));
    assert!(receiver.lost().unwrap() > 0);
    transmit_all(&mut sender, &mut numbered(0..1), |_| ());
    while receiver.receive(&mut arrived, 1).unwrap() == 0 {}
    assert!(!receiver.arrivals()[0].losing);
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
