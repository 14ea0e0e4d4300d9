//! The receive ring wraps, overflows, and reports how long frames were in it.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::thread;
use std::time::{Duration, Instant};

use fairlane_io::packet::Options;
use fairlane_io::{Backend, PacketBackend, Waiter};

use crate::rig::*;
use crate::support::PATIENCE;

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
        // The first arrived, and after the gap the ring works again.
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
    const BURSTS: u32 = 1_500;
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
            // Takes less than a full ring, in batches of different sizes.
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
    // Each frame reaches both, first the one opened last. In blocks half of them wait half a millisecond.
    let mut sender = open(&near);
    let (mut blocks, mut receiver) = (open(&far), open_with(&far, &prompt));
    let (mut waiter, mut came) = (Waiter::new(), Vec::new());
    let mut sooner = [0, 0];
    // A poll that is late, since other programs had the processor, finds both.
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
