//! SCFQ against its definition: tags of packets as they arrive, the smallest first.

use std::collections::VecDeque;

use crate::support::{Random, check, config, length, scheduler, weight};
use fairlane_core::sched::{Algorithm, Scfq};
use fairlane_core::tree::{ClassConfig, ClassId, LeafConfig, Tree};
use fairlane_core::{Dequeue, FlowId, Nanos, SchedulerLimits, VirtualTime};

/// Weights that divide 2^40, so that tags are exact.
const WEIGHTS: [u32; 5] = [1, 2, 8, 64, 1024];

#[test]
fn every_packet_has_the_smallest_tag_that_the_definition_gives() {
    for start in [0, u64::MAX - (1 << 50), 1 << 63] {
        let mut random = Random(start);
        let mut link = scheduler(Scfq::starting_at(VirtualTime::new(start)));
        let flows = WEIGHTS.map(|weight| link.add_flow(config(weight, 1500)).unwrap());
        // Tags and v, counted from `start` on.
        let mut queued: [VecDeque<u64>; 5] = Default::default();
        let (mut last, mut now) = ([0u64; 5], 0u64);
        for step in 0..50_000 {
            // Busy and idle periods by turns.
            let sends = random.below(100) < if step / 500 % 2 == 0 { 60 } else { 40 };
            if sends {
                let (flow, bytes) = (random.below(5) as usize, 1 + random.below(1500));
                let span = (u64::from(bytes) << 40) / u64::from(WEIGHTS[flow]);
                let tag = last[flow].max(now) + span;
                last[flow] = tag;
                queued[flow].push_back(tag);
                link.enqueue(flows[flow], length(bytes), tag).unwrap();
            } else {
                let heads = queued.iter().filter_map(|queue| queue.front());
                let smallest = heads.copied().min();
                let packet = link.dequeue();
                assert_eq!(packet.map(|packet| packet.payload), smallest);
                if let Some(packet) = packet {
                    let flow = flows.iter().position(|&flow| flow == packet.owner);
                    now = queued[flow.unwrap()].pop_front().unwrap();
                    let moved = VirtualTime::new(start).advanced(now);
                    assert_eq!(link.algorithm().virtual_time(), moved);
                }
            }
        }
        check(&link);
    }
}

#[test]
fn a_flow_that_comes_back_starts_at_the_tag_in_service() {
    let mut link = scheduler(Scfq::new());
    let [one, other] = [1, 1].map(|weight| link.add_flow(config(weight, 1000)).unwrap());
    for _ in 0..100 {
        link.enqueue(one, length(1000), ()).unwrap();
        link.dequeue();
    }
    for _ in 0..2 {
        link.enqueue(one, length(1000), ()).unwrap();
        link.enqueue(other, length(1000), ()).unwrap();
    }
    let order = std::iter::from_fn(|| link.dequeue()).map(|packet| packet.owner);
    let turns: Vec<FlowId> = order.collect();
    assert_eq!(turns, [one, other, one, other], "no credit for its absence");
}

/// A class announces 9,000 bytes, sends one, and so continues from a tag 8,999 before v. Before, it had 100 times these
/// arrears with 100 times the weight, and sent 100 packets in a row.
#[test]
fn arrears_stay_the_same_work_at_a_larger_weight() {
    let config = |of| ClassConfig::new(weight(of), length(9000));
    let mut link = Tree::new(Algorithm::Scfq, None, SchedulerLimits::default());
    let inner = link
        .add_inner(ClassId::ROOT, config(1), Algorithm::Drr)
        .unwrap();
    let below = link
        .add_leaf(inner, config(1), LeafConfig::default())
        .unwrap();
    let other = link
        .add_leaf(ClassId::ROOT, config(1), LeafConfig::default())
        .unwrap();
    let mut enqueue = |class, bytes| {
        let outcome = link.enqueue(class, 0, length(bytes), class, Nanos::ZERO);
        outcome.unwrap();
    };
    enqueue(below, 1);
    (0..200).for_each(|_| enqueue(below, 9000));
    (0..40).for_each(|_| enqueue(other, 1000));
    link.change(inner, config(100), Nanos::ZERO).unwrap();
    let mut order = Vec::new();
    for _ in 0..60 {
        match link.dequeue(Nanos::ZERO, drop) {
            Dequeue::Packet(packet) => order.push(packet.payload == below),
            other => panic!("packets are left: {other:?}"),
        }
    }
    let in_a_row = order.chunk_by(|a, b| a == b).filter(|row| row[0]);
    let longest = in_a_row.map(<[bool]>::len).max().unwrap();
    // 1,000 bytes of the other are worth 100,000.
    assert!((10..=13).contains(&longest), "{longest}");
}
