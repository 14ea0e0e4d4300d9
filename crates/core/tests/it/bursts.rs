//! Bursts equal the same number of single calls, and callers that ask for it get the sojourn times of packets.

use crate::support::{length, weight};
use fairlane_core::sched::{Algorithm, Drr, Fifo, Plus, Qfq, Wf2qPlus};
use fairlane_core::tree::cbq::{Cbq, CbqClass};
use fairlane_core::tree::{
    BurstEnd, Ceiling, ClassConfig, ClassFlow, ClassId, ClassQueue, Discarded, FlowsConfig,
    LeafConfig, Tree,
};
use fairlane_core::{
    Dequeue, FlowConfig, FlowId, Limits, Nanos, Packet, PacketScheduler, Rate, Rejection,
    Scheduler, SchedulerLimits,
};

/// Packets of these flows in turn, of different lengths, and one of no flow.
fn offered(flows: &[FlowId]) -> Vec<Packet<u32>> {
    let packets = (0..60u32).map(|n| Packet {
        owner: flows[n as usize % flows.len()],
        len: length(100 + 37 * (n % 11)),
        payload: n,
    });
    let nobodys = Packet {
        owner: FlowId::new(99),
        len: length(100),
        payload: 60,
    };
    packets.chain([nobodys]).collect()
}

fn bursts_are_single_calls<A: Scheduler>(make: fn() -> A) {
    let limits = SchedulerLimits {
        per_flow: Limits {
            packets: 15,
            ..Limits::NONE
        },
        ..SchedulerLimits::default()
    };
    let mut both = [(); 2].map(|()| PacketScheduler::new(make(), limits));
    let mut flows = Vec::new();
    for of in [1, 2, 5] {
        let config = FlowConfig::new(weight(of), length(1500));
        let added = both.each_mut().map(|link| link.add_flow(config).unwrap());
        assert_eq!(added[0], added[1]);
        flows.push(added[0]);
    }
    let [one_by_one, in_bursts] = &mut both;
    let mut came_back = [Vec::new(), Vec::new()];
    let mut accepted = 0;
    for packet in offered(&flows) {
        match one_by_one.enqueue(packet.owner, packet.len, packet.payload) {
            Ok(()) => accepted += 1,
            Err(rejected) => {
                let payload = rejected.payload;
                came_back[0].push((Packet { payload, ..packet }, rejected.reason));
            }
        }
    }
    let packets = offered(&flows);
    let taken = in_bursts.enqueue_burst(packets, |packet, why| came_back[1].push((packet, why)));
    assert_eq!(taken, accepted);
    assert!(came_back[0] == came_back[1], "{came_back:?}");
    assert_eq!(came_back[0].len(), 16);
    assert_eq!(came_back[0].last().unwrap().1, Rejection::Unknown);

    let singly: Vec<_> = std::iter::from_fn(|| one_by_one.dequeue()).collect();
    let mut burst = Vec::new();
    while in_bursts.dequeue_burst(&mut burst, 7) == 7 {}
    assert_eq!((burst.len(), in_bursts.len()), (45, 0));
    assert!(singly == burst, "{}", A::NAME);
    assert_eq!(in_bursts.dequeue_burst(&mut burst, 7), 0);
    assert_eq!(one_by_one.total_stats(), in_bursts.total_stats());
}

#[test]
fn a_burst_of_a_flat_scheduler_is_as_many_single_calls() {
    bursts_are_single_calls(Fifo::new);
    bursts_are_single_calls(Drr::new);
    bursts_are_single_calls(Qfq::new);
    bursts_are_single_calls(Plus::<Qfq>::default);
    bursts_are_single_calls(Wf2qPlus::new);
}

/// Creates a link with a leaf and a class of flows, the leaf held to 8 Mbit/s in packets of 1000 bytes: one in a
/// millisecond.
fn with_ceiling() -> (Tree<u32>, ClassId, ClassId) {
    let mut tree = Tree::new(Algorithm::Drr, None, SchedulerLimits::default());
    let config = ClassConfig::new(weight(1), length(1000));
    let held = ClassConfig {
        ceiling: Some(Ceiling {
            rate: Rate::from_bps(8_000_000).unwrap(),
            burst: 1000,
        }),
        ..config
    };
    let leaf = LeafConfig::default();
    let held = tree.add_leaf(ClassId::ROOT, held, leaf).unwrap();
    let flows = FlowsConfig::new(Algorithm::Drr);
    let flows = tree.add_flows(ClassId::ROOT, config, flows).unwrap();
    (tree, held, flows)
}

#[test]
fn a_burst_of_a_tree_ends_where_nobody_may_send() {
    let (mut tree, held, flows) = with_ceiling();
    let packets = (0..6u32).map(|payload| Packet {
        owner: match payload {
            0..3 => held.into(),
            _ => ClassFlow {
                class: flows,
                flow: u64::from(payload) % 2,
            },
        },
        len: length(1000),
        payload,
    });
    let stray = Packet {
        owner: ClassId::new(9).into(),
        len: length(1000),
        payload: 6,
    };
    let mut rejected = Vec::new();
    let accepted = tree.enqueue_burst(
        packets.chain([stray]),
        Nanos::ZERO,
        |packet, why| rejected.push((packet.payload, why)),
        |gone| panic!("there is room: {gone:?}"),
    );
    assert_eq!((accepted, rejected), (6, vec![(6, Rejection::Unknown)]));

    let mut burst = Vec::new();
    let none = |gone: Discarded<u32>| panic!("nothing is dropped: {gone:?}");
    assert_eq!(
        tree.dequeue_burst(&mut burst, 3, Nanos::ZERO, none),
        BurstEnd::Full
    );
    assert_eq!(burst.len(), 3);
    let end = tree.dequeue_burst(&mut burst, 9, Nanos::ZERO, none);
    assert_eq!(
        (end, burst.len()),
        (BurstEnd::NotBefore(Nanos::from_millis(1)), 4)
    );
    let later = Nanos::from_secs(1);
    assert_eq!(
        tree.dequeue_burst(&mut burst, 1, later, none),
        BurstEnd::Full
    );
    let at_last = Nanos::from_secs(2);
    assert_eq!(
        tree.dequeue_burst(&mut burst, 9, at_last, none),
        BurstEnd::Empty
    );
    assert_eq!((burst.len(), tree.is_empty()), (6, true));
}

#[test]
fn dequeue_reports_the_sojourn_time() {
    let (mut tree, held, flows) = with_ceiling();
    let came = Nanos::from_millis(3);
    tree.enqueue(held, 0, length(1000), 1, came).unwrap();
    tree.enqueue(flows, 7, length(1000), 2, came).unwrap();
    let mut cbq = Cbq::new(
        Rate::from_bps(8_000_000).unwrap(),
        SchedulerLimits::default(),
    );
    let class = CbqClass::new(Rate::from_bps(8_000_000).unwrap(), length(1000));
    let class = cbq
        .add_leaf(ClassId::ROOT, class, LeafConfig::default())
        .unwrap();
    cbq.enqueue(class, length(1000), 3, came).unwrap();

    let now = Nanos::from_millis(8);
    let mut sojourns = Vec::new();
    for _ in 0..2 {
        if let Dequeue::Packet(packet) = ClassQueue::dequeue_with_sojourn(&mut tree, now, drop) {
            sojourns.push((packet.payload.payload, packet.payload.sojourn));
        }
    }
    if let Dequeue::Packet(packet) = ClassQueue::dequeue_with_sojourn(&mut cbq, now, drop) {
        sojourns.push((packet.payload.payload, packet.payload.sojourn));
    }
    sojourns.sort_unstable();
    let waited = Nanos::from_millis(5);
    assert_eq!(sojourns, [(1, waited), (2, waited), (3, waited)]);
}

#[test]
fn a_rejected_packet_comes_back_without_its_time() {
    let mut link = PacketScheduler::new(Drr::new(), SchedulerLimits::default());
    let flow = link
        .add_flow(FlowConfig::new(weight(1), length(100)))
        .unwrap();
    let rejected = link
        .enqueue_at(flow, length(101), "long", Nanos::ZERO)
        .unwrap_err();
    assert_eq!(rejected.payload, "long");
    for n in 0..3 {
        link.enqueue_at(flow, length(100), "short", Nanos(n))
            .unwrap();
    }
    // With a clock that goes backwards, every sojourn time is 0.
    for (now, sojourn) in [(5, 5), (0, 0), (7, 5)] {
        let packet = link.dequeue_at(Nanos(now)).unwrap();
        assert_eq!(packet.payload.sojourn, Nanos(sojourn));
    }
    assert!(link.dequeue_at(Nanos::MAX).is_none());
}
