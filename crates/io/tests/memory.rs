//! The link in memory keeps the contract of every backend.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::thread;

use fairlane_io::{Backend, ByteLen, memory};
use proptest::prelude::*;

/// A packet of a given length, identified by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Packet {
    number: u32,
    length: usize,
}

impl ByteLen for Packet {
    fn byte_len(&self) -> usize {
        self.length
    }
}

fn packets(lengths: impl IntoIterator<Item = usize>) -> VecDeque<Packet> {
    (0..)
        .zip(lengths)
        .map(|(number, length)| Packet { number, length })
        .collect()
}

#[test]
fn packets_arrive_in_the_order_they_were_sent() {
    let (mut near, mut far) = memory::pair::<Packet, Packet>(100);
    let offered = packets(1..=100);
    let mut batch = offered.clone();
    assert_eq!(near.transmit(&mut batch).unwrap(), 100);
    assert!(batch.is_empty());
    let mut arrived = Vec::new();
    assert_eq!(far.receive(&mut arrived, usize::MAX).unwrap(), 100);
    assert_eq!(offered, arrived);
}

#[test]
fn a_full_queue_leaves_the_rest_of_the_batch_in_order() {
    let (mut near, mut far) = memory::pair::<Packet, Packet>(3);
    let offered = packets([10; 8]);
    let mut batch = offered.clone();
    assert_eq!(near.transmit(&mut batch).unwrap(), 3);
    assert!(batch.iter().eq(offered.range(3..)));
    assert_eq!(near.transmit(&mut batch).unwrap(), 0);
    assert_eq!(batch.len(), 5);

    let mut arrived = Vec::new();
    assert_eq!(far.receive(&mut arrived, 2).unwrap(), 2);
    assert_eq!(near.transmit(&mut batch).unwrap(), 2);
    assert!(batch.iter().eq(offered.range(5..)));
}

#[test]
fn bytes_are_in_flight_until_the_other_end_receives_them() {
    let (mut near, mut far) = memory::pair::<Packet, Packet>(8);
    assert_eq!(near.in_flight().unwrap(), 0);
    near.transmit(&mut packets([40, 1_500, 0])).unwrap();
    assert_eq!((near.in_flight().unwrap(), near.queued()), (1_540, 3));
    assert_eq!(
        near.go_on().unwrap(),
        0,
        "it arrives though this end is dropped"
    );
    assert_eq!(far.in_flight().unwrap(), 0);

    let mut arrived = Vec::new();
    far.receive(&mut arrived, 1).unwrap();
    assert_eq!((near.in_flight().unwrap(), near.queued()), (1_500, 2));
    far.receive(&mut arrived, 10).unwrap();
    assert_eq!((near.in_flight().unwrap(), near.queued()), (0, 0));
}

#[test]
fn receiving_less_than_waits_leaves_the_rest_and_keeps_what_was_there() {
    let (mut near, mut far) = memory::pair::<Packet, Packet>(8);
    near.transmit(&mut packets([1, 2, 3])).unwrap();
    let before = Packet {
        number: 99,
        length: 9,
    };
    let mut arrived = vec![before];
    assert_eq!(far.receive(&mut arrived, 0).unwrap(), 0);
    assert_eq!(far.receive(&mut arrived, 2).unwrap(), 2);
    assert_eq!(far.receive(&mut arrived, 2).unwrap(), 1);
    assert_eq!(far.receive(&mut arrived, 2).unwrap(), 0);
    let numbers: Vec<_> = arrived.iter().map(|packet| packet.number).collect();
    assert_eq!(numbers, [99, 0, 1, 2]);
}

#[test]
fn both_directions_are_independent() {
    let (mut near, mut far) = memory::pair::<Packet, Vec<u8>>(1);
    near.transmit(&mut packets([5])).unwrap();
    let mut batch = VecDeque::from([vec![1, 2, 3]]);
    assert_eq!(far.transmit(&mut batch).unwrap(), 1);
    assert_eq!(near.in_flight().unwrap(), 5);
    assert_eq!(far.in_flight().unwrap(), 3);
    let mut arrived = Vec::new();
    assert_eq!(near.receive(&mut arrived, 9).unwrap(), 1);
    assert_eq!(arrived, [vec![1, 2, 3]]);
}

#[test]
fn a_packet_as_long_as_the_mtu_passes_and_one_byte_more_is_refused() {
    let (near, mut far) = memory::pair::<Packet, Packet>(8);
    let mut near = near.with_mtu(1_500);
    let mut batch = packets([1_500, 1_501, 60]);
    assert_eq!(near.transmit(&mut batch).unwrap(), 2);
    assert_eq!((near.refused(), batch.len()), (1, 0));
    let mut arrived = Vec::new();
    far.receive(&mut arrived, 8).unwrap();
    let lengths: Vec<_> = arrived.iter().map(|packet| packet.length).collect();
    assert_eq!(lengths, [1_500, 60]);
}

#[test]
fn a_queue_of_no_packets_is_always_full() {
    let (mut near, _far) = memory::pair::<Packet, Packet>(0);
    let mut batch = packets([1, 2]);
    assert_eq!(near.transmit(&mut batch).unwrap(), 0);
    assert_eq!(batch.len(), 2);
}

#[test]
fn a_link_without_its_other_end_fails_to_transmit_and_leaves_the_batch_alone() {
    let (mut near, far) = memory::pair::<Packet, Packet>(8);
    drop(far);
    let offered = packets([1, 2]);
    let mut batch = offered.clone();
    let error = near.transmit(&mut batch).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    assert_eq!(batch, offered);
    assert_eq!(near.in_flight().unwrap(), 0);
}

#[test]
fn what_a_dropped_end_had_sent_still_arrives() {
    let (mut near, mut far) = memory::pair::<Packet, Packet>(8);
    near.transmit(&mut packets([1, 2])).unwrap();
    drop(near);
    let mut arrived = Vec::new();
    assert_eq!(far.receive(&mut arrived, 8).unwrap(), 2);
    assert_eq!(far.receive(&mut arrived, 8).unwrap(), 0);
}

#[test]
fn the_ends_may_live_on_two_threads() {
    const COUNT: usize = 10_000;
    let (mut near, mut far) = memory::pair::<Packet, Packet>(16);
    let sender = thread::spawn(move || {
        let mut batch = packets((0..COUNT).map(|n| n % 100));
        while !batch.is_empty() {
            if near.transmit(&mut batch).unwrap() == 0 {
                thread::yield_now();
            }
        }
        near
    });
    let mut arrived = Vec::new();
    while arrived.len() < COUNT {
        if far.receive(&mut arrived, 7).unwrap() == 0 {
            thread::yield_now();
        }
    }
    let near = sender.join().unwrap();
    assert!(
        arrived
            .iter()
            .map(|packet| packet.number)
            .eq(0..COUNT as u32)
    );
    assert_eq!(near.in_flight().unwrap(), 0);
}

#[derive(Clone, Debug)]
enum Step {
    Offer(Vec<usize>),
    Transmit,
    Receive(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        prop::collection::vec(0..200_usize, 0..12).prop_map(Step::Offer),
        Just(Step::Transmit),
        (0..10_usize).prop_map(Step::Receive),
    ]
}

proptest! {
    #[test]
    fn after_any_calls_every_packet_is_left_queued_refused_or_arrived_once_and_in_order(
        capacity in 0..10_usize,
        mtu in 0..200_usize,
        steps in prop::collection::vec(step(), 0..60),
    ) {
        let (near, mut far) = memory::pair::<Packet, Packet>(capacity);
        let mut near = near.with_mtu(mtu);
        let mut offered = Vec::new();
        let mut batch = VecDeque::new();
        let mut accepted = 0;
        let mut arrived = Vec::new();
        for step in steps {
            match step {
                Step::Offer(lengths) => {
                    for length in lengths {
                        let packet = Packet { number: offered.len() as u32, length };
                        offered.push(packet);
                        batch.push_back(packet);
                    }
                }
                Step::Transmit => {
                    accepted += near.transmit(&mut batch).unwrap();
                    prop_assert!(batch.is_empty() || near.queued() == capacity);
                    prop_assert!(batch.front().is_none_or(|packet| packet.length <= mtu));
                }
                Step::Receive(max) => {
                    let waited = near.queued();
                    let count = far.receive(&mut arrived, max).unwrap();
                    prop_assert_eq!(count, waited.min(max));
                }
            }
            prop_assert!(near.queued() <= capacity);
            prop_assert_eq!(accepted + near.refused() as usize + batch.len(), offered.len());
            prop_assert_eq!(arrived.len() + near.queued(), accepted);

            let gone = &offered[..offered.len() - batch.len()];
            prop_assert!(batch.iter().eq(&offered[gone.len()..]));
            let fit: Vec<_> = gone.iter().filter(|packet| packet.length <= mtu).collect();
            prop_assert!(arrived.iter().eq(fit[..arrived.len()].iter().copied()));
            let queued: usize = fit[arrived.len()..].iter().map(|packet| packet.length).sum();
            prop_assert_eq!(near.in_flight().unwrap(), queued as u64);
        }
    }
}
