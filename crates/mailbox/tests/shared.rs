//! The ring in shared memory: against a model, on two threads, and with a sender that writes arbitrary words.
#![cfg(not(loom))]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use fairlane_mailbox::shared::{
    Geometry, GeometryError, Popped, PushError, Receiver, Sender, Told, TooSmall,
};
use proptest::{collection::vec, prelude::*};

/// Words that both ends access.
#[derive(Clone)]
struct Memory(Arc<[AtomicU64]>);

impl AsRef<[AtomicU64]> for Memory {
    fn as_ref(&self) -> &[AtomicU64] {
        &self.0
    }
}

fn memory(geometry: Geometry) -> Memory {
    Memory((0..geometry.words()).map(|_| AtomicU64::new(0)).collect())
}

fn ring(slots: usize, longest: usize) -> (Sender<Memory>, Receiver<Memory>, Memory) {
    let geometry = Geometry::new(slots, longest).unwrap();
    let memory = memory(geometry);
    (
        Sender::new(memory.clone(), geometry).unwrap(),
        Receiver::new(memory.clone(), geometry).unwrap(),
        memory,
    )
}

/// A packet with its number in every byte.
fn packet(number: u64, length: usize) -> Vec<u8> {
    let bytes = number.to_ne_bytes();
    (0..length).map(|at| bytes[at % 8] ^ at as u8).collect()
}

/// The word of the first slot's header: two lines precede the slots.
const FIRST_HEADER: usize = 16;

fn header(generation: u32, length: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(length)
}

#[derive(Clone, Debug)]
enum Op {
    Push(usize),
    Pop,
}

proptest! {
    #[test]
    fn a_ring_is_a_bounded_queue_of_packets(
        log_slots in 1..5_u32,
        longest in 1..200_usize,
        ops in vec(prop_oneof![(0..220_usize).prop_map(Op::Push), Just(Op::Pop)], 0..300),
    ) {
        let slots = 1 << log_slots;
        let (mut sender, mut receiver, _) = ring(slots, longest);
        let mut model = VecDeque::new();
        let mut popped = Vec::new();
        let mut told = Told::default();
        for (number, op) in ops.into_iter().enumerate() {
            prop_assert_eq!(receiver.is_empty(), model.is_empty());
            match op {
                Op::Push(length) => {
                    let packet = packet(number as u64, length);
                    let expected = if length == 0 || length > longest {
                        Err(PushError::Length { given: length, longest })
                    } else if model.len() == slots {
                        Err(PushError::Full)
                    } else {
                        Ok(())
                    };
                    prop_assert_eq!(sender.push(&packet), expected);
                    if expected.is_ok() {
                        model.push_back(packet);
                    }
                }
                Op::Pop => match model.pop_front() {
                    Some(packet) => {
                        prop_assert_eq!(receiver.pop(&mut popped), Popped::Packet);
                        prop_assert_eq!(&popped, &packet);
                        told.accepted += 1;
                    }
                    None => {
                        let before = popped.clone();
                        prop_assert_eq!(receiver.pop(&mut popped), Popped::Empty);
                        prop_assert_eq!(&popped, &before);
                    }
                },
            }
            prop_assert_eq!(sender.told(), told);
        }
    }

    /// Between any two operations of the receiver, the other process writes any words anywhere. Half of them are valid
    /// headers, so that the receiver accepts more than the first.
    #[test]
    fn whatever_a_sender_writes_the_receiver_stays_within_bounds(
        log_slots in 1..4_u32,
        longest in 1..100_usize,
        writes in vec(
            (
                any::<prop::sample::Index>(),
                prop_oneof![
                    any::<u64>(),
                    (0..4_u32, 0..120_u32).prop_map(|(lap, length)| header(lap, length)),
                ],
                any::<bool>(),
                0..4_usize,
            ),
            0..200,
        ),
    ) {
        let (_, mut receiver, memory) = ring(1 << log_slots, longest);
        let words_of_slot = (memory.0.len() - FIRST_HEADER) >> log_slots;
        let mut popped = Vec::new();
        let (mut accepted, mut malformed) = (0, 0);
        for (at, word, at_a_header, pops) in writes {
            let at = match at_a_header {
                true => FIRST_HEADER + at.index(1 << log_slots) * words_of_slot,
                false => at.index(memory.0.len()),
            };
            memory.0[at].store(word, Ordering::Relaxed);
            for _ in 0..pops {
                let was_empty = receiver.is_empty();
                let was_out_of_step = receiver.is_out_of_step();
                let answer = receiver.pop(&mut popped);
                match answer {
                    Popped::Packet => {
                        prop_assert!((1..=longest).contains(&popped.len()));
                        accepted += 1;
                    }
                    Popped::Malformed => malformed += 1,
                    Popped::Empty => {}
                    Popped::OutOfStep => prop_assert!(receiver.is_empty()),
                }
                prop_assert_eq!(was_empty, answer == Popped::Empty || was_out_of_step);
                prop_assert_eq!(was_out_of_step && answer != Popped::OutOfStep, false);
            }
        }
        prop_assert_eq!((receiver.accepted(), receiver.malformed()), (accepted, malformed));
    }
}

#[test]
fn packets_cross_intact_and_in_order_between_two_threads() {
    // With two slots every packet or two need a context switch, which may take long under load.
    let packets = if cfg!(miri) {
        [200; 2]
    } else {
        [4_000, 200_000]
    };
    for (slots, packets) in [2, 64].into_iter().zip(packets) {
        let (mut sender, mut receiver, _) = ring(slots, 120);
        let length = |number: u64| 1 + (number * 7 % 120) as usize;
        let pushing = thread::spawn(move || {
            for number in 0..packets {
                let packet = packet(number, length(number));
                while sender.push(&packet) == Err(PushError::Full) {
                    thread::yield_now();
                }
            }
        });
        let mut popped = Vec::new();
        for number in 0..packets {
            while receiver.pop(&mut popped) != Popped::Packet {
                thread::yield_now();
            }
            assert_eq!(popped, packet(number, length(number)));
        }
        pushing.join().unwrap();
        assert_eq!(receiver.pop(&mut popped), Popped::Empty);
    }
}

#[test]
fn a_receiver_survives_a_sender_that_scribbles_at_full_speed() {
    const EACH: u32 = if cfg!(miri) { 10 } else { 1_000 };
    let geometry = Geometry::new(4, 100).unwrap();
    let memory = memory(geometry);
    let stop = Arc::new(AtomicBool::new(false));
    let (words, stopped) = (memory.clone(), Arc::clone(&stop));
    let scribbling = thread::spawn(move || {
        // xorshift: the values only have to differ.
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        while !stopped.load(Ordering::Relaxed) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let word = match random & 1 {
                0 => random,
                _ => header((random >> 8) as u32 % 2, (random >> 16) as u32 % 130),
            };
            words.0[(random >> 32) as usize % words.0.len()].store(word, Ordering::Relaxed);
        }
    });
    let mut popped = Vec::new();
    let (mut packets, mut malformed, mut out_of_step) = (0, 0, 0);
    while packets.min(malformed).min(out_of_step) < EACH {
        let mut receiver = Receiver::new(memory.clone(), geometry).unwrap();
        for _ in 0..8 {
            match receiver.pop(&mut popped) {
                Popped::Packet => {
                    assert!((1..=100).contains(&popped.len()));
                    packets += 1;
                }
                Popped::Malformed => malformed += 1,
                Popped::OutOfStep => out_of_step += 1,
                Popped::Empty => thread::yield_now(),
            }
        }
    }
    stop.store(true, Ordering::Relaxed);
    scribbling.join().unwrap();
}

#[test]
fn half_a_packet_is_never_seen() {
    let (mut sender, mut receiver, memory) = ring(4, 100);
    sender.push(b"whole").unwrap();
    // The state of a push that is killed before its last store: words, and no header.
    for word in &memory.0[FIRST_HEADER + 16 + 1..][..4] {
        word.store(u64::MAX, Ordering::Relaxed);
    }
    let mut popped = Vec::new();
    assert_eq!(receiver.pop(&mut popped), Popped::Packet);
    assert_eq!(popped, b"whole");
    assert!(receiver.is_empty());
    assert_eq!(receiver.pop(&mut popped), Popped::Empty);
}

#[test]
fn a_receiver_that_stalls_makes_the_ring_full_at_once() {
    let (mut sender, mut receiver, _) = ring(4, 100);
    for _ in 0..4 {
        assert_eq!(sender.push(&[1]), Ok(()));
    }
    assert_eq!(sender.push(&[1]), Err(PushError::Full));
    assert_eq!(receiver.pop(&mut Vec::new()), Popped::Packet);
    assert_eq!(sender.push(&[1]), Ok(()));
    assert_eq!(sender.push(&[1]), Err(PushError::Full));
}

#[test]
fn a_malformed_length_costs_one_slot_and_the_ring_goes_on() {
    for length in [101, 128, 65_536, u32::MAX] {
        let (mut sender, mut receiver, memory) = ring(2, 100);
        let mut popped = Vec::new();
        for _ in 0..3 {
            sender.push(b"first").unwrap();
            sender.push(b"second").unwrap();
            let generation = memory.0[FIRST_HEADER].load(Ordering::Relaxed) >> 32;
            memory.0[FIRST_HEADER].store(header(generation as u32, length), Ordering::Relaxed);
            assert_eq!(receiver.pop(&mut popped), Popped::Malformed);
            assert_eq!(receiver.pop(&mut popped), Popped::Packet);
            assert_eq!(popped, b"second");
        }
        assert_eq!(sender.told().malformed, 3);
        assert_eq!(receiver.malformed(), 3);
    }
}

#[test]
fn a_wrong_generation_ends_the_ring_for_good() {
    for word in [header(1, 0), header(1, 5), header(u32::MAX, 5), u64::MAX] {
        let (mut sender, mut receiver, memory) = ring(2, 100);
        memory.0[FIRST_HEADER].store(word, Ordering::Relaxed);
        assert!(!receiver.is_empty());
        let mut popped = b"as before".to_vec();
        assert_eq!(receiver.pop(&mut popped), Popped::OutOfStep);
        memory.0[FIRST_HEADER].store(0, Ordering::Relaxed);
        sender.push(b"too late").unwrap();
        assert_eq!(receiver.pop(&mut popped), Popped::OutOfStep);
        assert_eq!(popped, b"as before");
        assert!(receiver.is_empty() && receiver.is_out_of_step());
    }
}

#[test]
fn a_packet_of_the_lap_before_is_not_seen_again() {
    let (mut sender, mut receiver, memory) = ring(2, 100);
    let mut popped = Vec::new();
    sender.push(b"once").unwrap();
    let of_this_lap = memory.0[FIRST_HEADER].load(Ordering::Relaxed);
    sender.push(b"other").unwrap();
    receiver.pop(&mut popped);
    receiver.pop(&mut popped);
    memory.0[FIRST_HEADER].store(of_this_lap, Ordering::Relaxed);
    assert_eq!(receiver.pop(&mut popped), Popped::OutOfStep);
}

#[test]
fn a_receiver_that_dozes_is_rung_once() {
    let (mut sender, receiver, _) = ring(4, 100);
    sender.push(&[1]).unwrap();
    assert!(!sender.must_ring());
    receiver.doze(true);
    assert!(sender.must_ring());
    assert!(!sender.must_ring());
    receiver.doze(true);
    receiver.doze(false);
    assert!(!sender.must_ring());
}

#[test]
fn the_sender_is_told_of_drops() {
    let (sender, receiver, _) = ring(2, 100);
    receiver.tell_dropped(3);
    assert_eq!(sender.told().dropped, 3);
}

#[test]
fn a_shape_that_a_ring_cannot_have_is_refused() {
    for slots in [0, 1, 3, 100, 1 << 17] {
        assert_eq!(Geometry::new(slots, 100), Err(GeometryError::Slots(slots)));
    }
    for longest in [0, 65_536] {
        let refused = Err(GeometryError::Longest(longest));
        assert_eq!(Geometry::new(2, longest), refused);
    }
    assert_eq!(
        Geometry::new(3, 100).unwrap_err().to_string(),
        "a shared mailbox cannot have 3 slots: the number must be a power of two from 2 to 65536"
    );
    assert!(Geometry::new(2, 1).is_ok() && Geometry::new(1 << 16, 65_535).is_ok());
}

#[test]
fn memory_that_is_too_small_is_refused() {
    let geometry = Geometry::new(4, 100).unwrap();
    let words: Vec<_> = (1..geometry.words()).map(|_| AtomicU64::new(0)).collect();
    let needed = geometry.bytes();
    let refused = TooSmall {
        given: needed - 8,
        needed,
    };
    assert_eq!(Sender::new(&words, geometry).err(), Some(refused));
    assert_eq!(Receiver::new(&words, geometry).err(), Some(refused));
}
