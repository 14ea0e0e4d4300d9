//! Transmitted frames arrive: once, intact, in order, within the budget.

use std::collections::VecDeque;
use std::thread;
use std::time::{Duration, Instant};

use fairlane_io::{Backend, Budget, Waiter, XdpBackend, XdpFrame, XdpOptions};
use fairlane_netlab::{cable, or_skip};

use crate::rig::*;

#[test]
fn every_frame_comes_out_once_intact_and_in_order_in_both_directions() {
    const FRAMES: u32 = 30_000;
    for (mode, memory) in modes_and_memories() {
        let Some(mut lab) = lab_in(memory, "every frame, over a cable", &options(mode)) else {
            return;
        };
        assert_eq!(lab.near.mode(), mode);
        let mut batches = [VecDeque::new(), VecDeque::new()];
        let mut sent = [0, 0];
        let mut came = [0, 0];
        let mut arrived = Vec::new();
        let patience = Instant::now() + 3 * PATIENCE;
        while came != [FRAMES; 2] {
            for (side, backend) in [&mut lab.near, &mut lab.far].into_iter().enumerate() {
                top_up(&mut batches[side], &lab.umem, &mut sent[side], FRAMES);
                backend.transmit(&mut batches[side]).unwrap();
                backend.receive(&mut arrived, 64).unwrap();
                for frame in arrived.drain(..) {
                    assert_eq!(number(frame.bytes()), came[side], "{mode}, side {side}");
                    assert_eq!(frame.len(), length(came[side]));
                    came[side] += 1;
                }
            }
            assert!(Instant::now() < patience, "{mode}: {came:?} came");
        }
        for backend in [&lab.near, &lab.far] {
            assert_eq!(backend.refused(), 0);
            assert_eq!(backend.dropped().unwrap(), 0);
        }
    }
}

#[test]
fn a_forwarder_with_one_memory_passes_every_frame_on() {
    const FRAMES: u32 = 30_000;
    for (mode, memory) in modes_and_memories() {
        let name = "a forwarder over two cables";
        let Some((source, left)) = or_skip(name, cable(1_500)) else {
            return;
        };
        let Some((right, sink)) = or_skip(name, cable(1_500)) else {
            return;
        };
        let options = options(mode);
        let ends = memory(4_096, 2_048).unwrap();
        let mut source = bind(&ends, &source, &options).unwrap();
        let mut sink = bind(&ends, &sink, &options).unwrap();
        let umem = memory(4_096, 2_048).unwrap();
        let mut left = bind(&umem, &left, &options).unwrap();
        let mut right = bind(&umem, &right, &options).unwrap();

        let (mut next, mut passed, mut came) = (0, 0, 0);
        let (mut batch, mut passing) = (VecDeque::new(), VecDeque::new());
        let (mut arrived, mut delivered) = (Vec::new(), Vec::new());
        let patience = Instant::now() + 3 * PATIENCE;
        while came < FRAMES {
            top_up(&mut batch, &ends, &mut next, FRAMES);
            source.transmit(&mut batch).unwrap();
            left.receive(&mut arrived, 64).unwrap();
            passed += arrived.len();
            passing.extend(arrived.drain(..));
            right.transmit(&mut passing).unwrap();
            sink.receive(&mut delivered, 64).unwrap();
            for frame in delivered.drain(..) {
                assert_eq!(number(frame.bytes()), came, "{mode}");
                came += 1;
            }
            assert!(Instant::now() < patience, "{mode}: {came} came");
        }
        assert_eq!(passed, FRAMES as usize);
        // The last completions may be on their way.
        let rest = umem.frames() - at_rest(2, &options);
        while umem.free_frames() < rest {
            right.transmit(&mut passing).unwrap();
            left.receive(&mut arrived, 64).unwrap();
            assert!(Instant::now() < patience, "{mode}: {umem:?}");
        }
    }
}

#[test]
fn no_frame_of_the_memory_is_lost_over_a_million() {
    const FRAMES: u32 = 1_000_000;
    let options = XdpOptions {
        rx_ring: 256,
        tx_ring: 128,
        ..XdpOptions::default()
    };
    let Some(Lab {
        umem,
        mut near,
        mut far,
        ..
    }) = lab("a million frames", &options)
    else {
        return;
    };
    let bytes = packet(7, 60);
    let (mut batch, mut arrived) = (VecDeque::new(), Vec::new());
    let (mut sent, mut came) = (0, 0);
    let patience = Instant::now() + 6 * PATIENCE;
    while came < FRAMES {
        while batch.len() < 64 && sent + (batch.len() as u32) < FRAMES {
            batch.push_back(umem.frame_from(&bytes).expect("frames come back"));
        }
        sent += near.transmit(&mut batch).unwrap() as u32;
        came += far.receive(&mut arrived, 256).unwrap() as u32;
        arrived.clear();
        assert!(Instant::now() < patience, "{came} came");
    }
    let rest = umem.frames() - at_rest(2, &options);
    while umem.free_frames() < rest {
        near.transmit(&mut batch).unwrap();
        far.receive(&mut arrived, 64).unwrap();
        assert!(Instant::now() < patience, "{umem:?}");
    }
    drop(near);
    drop(far);
    assert_eq!(umem.free_frames(), umem.frames());
}

#[test]
fn what_is_in_flight_stays_within_the_budget() {
    for mode in MODES {
        let options = XdpOptions {
            budget: Budget::from_bytes(4_000),
            ..options(mode)
        };
        let Some(mut lab) = lab("a budget", &options) else {
            return;
        };
        // While the link is down nothing leaves, so accepted frames stay in flight.
        lab.near_link.down().unwrap();
        let mut next = 0;
        let mut batch = VecDeque::new();
        top_up(&mut batch, &lab.umem, &mut next, 64);
        let bytes: Vec<_> = batch.iter().map(XdpFrame::len).collect();
        let taken = lab.near.transmit(&mut batch).unwrap();
        let in_flight = bytes[..taken].iter().sum::<usize>() as u64;
        assert_eq!(lab.near.in_flight().unwrap(), in_flight);
        assert_eq!(lab.near.most_in_flight(), in_flight);
        assert!(in_flight <= 4_000 && in_flight + bytes[taken] as u64 > 4_000);
        assert_eq!(lab.near.transmit(&mut batch).unwrap(), 0, "full");
        // Two frames of the MTU, with two tags, are always allowed.
        let limits = [0, 3_500, u64::MAX].map(|bytes| lab.near.keep_short(bytes));
        assert_eq!(limits, [3_044, 3_500, 4_000], "{mode}");
        lab.near_link.up().unwrap();

        let (mut came, mut arrived) = (0, Vec::new());
        let patience = Instant::now() + PATIENCE;
        while came < 10_000 {
            top_up(&mut batch, &lab.umem, &mut next, 10_000);
            lab.near.transmit(&mut batch).unwrap();
            assert!(lab.near.in_flight().unwrap() <= 4_000);
            lab.far.receive(&mut arrived, 64).unwrap();
            for frame in arrived.drain(..) {
                assert_eq!(number(frame.bytes()), came);
                came += 1;
            }
            assert!(Instant::now() < patience, "{mode}: {came} came");
        }
        while lab.near.in_flight().unwrap() > 0 {
            assert!(Instant::now() < patience, "{mode}: not all came back");
        }
        assert!((in_flight..=4_000).contains(&lab.near.most_in_flight()));
    }
}

#[test]
fn a_call_goes_on_while_the_device_takes_more_though_its_ring_is_short() {
    let options = XdpOptions {
        tx_ring: 64,
        ..XdpOptions::default()
    };
    let Some(mut lab) = lab("a short ring", &options) else {
        return;
    };
    let patience = Instant::now() + PATIENCE;
    let mut most = 0;
    // The other end may be slow to take them, if it gets no processor.
    while most <= 64 {
        let frame = || lab.umem.frame_from(&packet(0, 60));
        let mut batch: VecDeque<_> = (0..512).map_while(|_| frame()).collect();
        most = most.max(lab.near.transmit(&mut batch).unwrap());
        lab.far.receive(&mut Vec::new(), 1_024).unwrap();
        assert!(Instant::now() < patience, "{most} were taken at once");
    }
}

#[test]
fn a_waiter_sleeps_until_a_frame_arrives() {
    let Some(mut lab) = lab("waiting", &XdpOptions::default()) else {
        return;
    };
    let mut waiter = Waiter::new();
    let mut wait = |far: &XdpBackend, milliseconds| {
        let ready = waiter.wait_readable(&[far], Duration::from_millis(milliseconds));
        ready.unwrap().len()
    };
    assert_eq!(wait(&lab.far, 10), 0);
    let sender = thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        let mut batch = VecDeque::from([lab.umem.frame_from(&packet(1, 60)).unwrap()]);
        assert_eq!(lab.near.transmit(&mut batch).unwrap(), 1);
        lab.near
    });
    assert_eq!(wait(&lab.far, 60_000), 1);
    assert_eq!(collect(&mut lab.far, 1).len(), 1);
    drop(sender.join().unwrap());
}

#[test]
fn a_packet_that_lay_in_the_ring_is_known_to_have_waited_there() {
    for mode in MODES {
        let Some(mut lab) = lab("a packet that lay in the ring", &options(mode)) else {
            return;
        };
        let mut batch = VecDeque::new();
        top_up(&mut batch, &lab.umem, &mut 0, 3);
        let begun = Instant::now();
        send(&mut lab.near, &mut batch);
        let mut waiter = Waiter::new();
        waiter.wait_readable(&[&lab.far], PATIENCE).unwrap();
        let there = Instant::now();
        thread::sleep(Duration::from_millis(200));
        let mut arrived = Vec::new();
        lab.far.receive(&mut arrived, 1).unwrap();
        let least = there.elapsed();
        lab.far.receive(&mut arrived, 64).unwrap();
        assert_eq!(arrived.len(), 3, "{mode}");
        let waited: Vec<_> = lab.far.arrivals().iter().map(|a| a.waited).collect();
        assert_eq!(waited.len(), 2, "of the last call");
        for waited in waited {
            assert!(
                (least..begun.elapsed()).contains(&waited),
                "{mode}: {waited:?}"
            );
        }
        let marked = lab.far.arrivals().iter().any(|arrival| arrival.losing);
        assert!(!marked, "{mode}");
    }
}

#[test]
fn packets_from_a_ring_that_was_full_are_marked() {
    for mode in MODES {
        let small = XdpOptions {
            rx_ring: 64,
            ..options(mode)
        };
        let Some(mut lab) = lab("packets from a full ring", &small) else {
            return;
        };
        let mut batch = VecDeque::new();
        let mut next = 0;
        while next < 200 {
            top_up(&mut batch, &lab.umem, &mut next, 200);
            send(&mut lab.near, &mut batch);
        }
        let patience = Instant::now() + PATIENCE;
        while lab.far.dropped().unwrap() == 0 {
            assert!(Instant::now() < patience, "{mode}: nothing was lost");
        }
        let arrived = collect(&mut lab.far, 1);
        assert!(lab.far.arrivals()[0].losing, "{mode}: {}", arrived.len());
    }
}
