//! Flows, weights and limits that change while packets wait.

use std::collections::{BTreeSet, VecDeque};

use crate::support::{
    Backlogged, OfBound as _, Offer, Random, Wfi, check, config, drain, length, next, scheduler,
    times, weight,
};
use fairlane_core::sched::{Drr, Gfq, Qfq, SKps};
use fairlane_core::scheduler::MAX_ENTITIES;
use fairlane_core::{
    ChangeError, FlowConfig, FlowId, Limits, PacketScheduler, Rejection, Scheduler,
    SchedulerLimits, Weight,
};

/// Three flows with eight packets each, of which some were sent.
fn under_way<A: Scheduler>(algorithm: A) -> (PacketScheduler<A, u32>, [FlowId; 3]) {
    let mut link = scheduler(algorithm);
    let flows = [1, 2, 3].map(|weight| link.add_flow(config(weight, 1500)).unwrap());
    for packet in 0..8 {
        for (flow, bytes) in flows.into_iter().zip([300, 1200, 700]) {
            link.enqueue(flow, length(bytes + packet), packet).unwrap();
        }
    }
    for _ in 0..5 {
        next(&mut link);
    }
    (link, flows)
}

/// Were the lower weights to count in the sum at once, V would run away from the places
/// that were chosen by the higher ones.
#[test]
fn virtual_time_keeps_to_its_bound_when_all_backlogged_flows_lose_weight() {
    let mut link: PacketScheduler<_, u32> = scheduler(Qfq::new());
    let flows = [100, 100, 100].map(|weight| link.add_flow(config(weight, 1500)).unwrap());
    for flow in flows.into_iter().chain(flows) {
        link.enqueue(flow, length(1500), 0).unwrap();
    }
    for flow in flows {
        link.change_flow(flow, config(1, 1500)).unwrap();
        check(&link);
    }
    for _ in 0..6 {
        next(&mut link);
        check(&link);
    }
}

/// Packets far shorter than declared, so that many fit into a slot: a loss of F by a change would recur at each change.
#[test]
fn a_weight_that_goes_up_and_down_all_the_time_keeps_the_flows_share() {
    fn test<A: Scheduler>(algorithm: A, others: u32, every: u32) {
        let mut link: PacketScheduler<_, ()> = scheduler(algorithm);
        let flow = link.add_flow(config(1000, 1500)).unwrap();
        let mut flows = vec![flow];
        flows.extend((0..20).map(|_| link.add_flow(config(others, 1500)).unwrap()));
        for &flow in flows.iter().chain(&flows) {
            link.enqueue(flow, length(64), ()).unwrap();
        }
        let (mut served, packets) = (0u32, 400_000);
        for _ in 0..packets {
            let packet = next(&mut link);
            link.enqueue(packet.owner, packet.len, ()).unwrap();
            if packet.owner == flow {
                served += 1;
                if served % every == 0 {
                    let weight = 1000 + served / every % 2;
                    link.change_flow(flow, config(weight, 1500)).unwrap();
                }
            }
        }
        let fair = f64::from(packets) * 1000.5 / (1000.5 + 20.0 * f64::from(others));
        // Within 1% and the few dozen packets of the bound.
        let off = (f64::from(served) - fair).abs();
        assert!(
            off < fair / 100.0 + 75.0,
            "{}: {served} packets, {fair} are fair",
            A::NAME
        );
    }
    for (others, every) in [(1000, 100), (10_000, 1), (10_000, 5), (1000, 1)] {
        test(Qfq::new(), others, every);
        test(SKps::new(), others, every);
    }
}

const CHANGES: [(u32, u32); 6] = [(1, 3), (3, 1), (4, 5), (1, 1000), (1000, 1), (7, 1_000_000)];

/// Returns a flow of this weight next to two others.
fn beside_others(weight: u32) -> Vec<Offer> {
    [weight, 2, 16]
        .map(|weight| Offer::mixed(weight, 1500))
        .into()
}

/// The place that the flow waits in stands, so that its next packet comes within the
/// old weight's bound on B-WFI; from there on the new weight's holds. For the others it
/// holds all along.
#[test]
fn shares_follow_a_new_weight_from_the_flows_next_packet_on() {
    fn test<A: Scheduler + Clone>(algorithm: &A, old: u32, new: u32) {
        for packets_before in 1000..1050 {
            let mut flows = Backlogged::new(algorithm.clone(), beside_others(old));
            let mut before = Wfi::new(&flows.offers);
            for _ in 0..packets_before {
                let (flow, bytes) = flows.serve();
                before.serve(flow, bytes);
            }
            let changed = FlowId::new(0);
            flows.link.change_flow(changed, config(new, 1500)).unwrap();
            assert_eq!(flows.link.weight(changed), Some(weight(new)));
            check(&flows.link);

            let mut after = Wfi::new(&beside_others(new));
            loop {
                let (flow, bytes) = flows.serve();
                before.serve(flow, bytes);
                after.serve(flow, bytes);
                if flow == 0 {
                    break;
                }
            }
            let of_bound = before.of_bound(0, 4, 1);
            assert!(
                of_bound < 1.0,
                "{old} to {new}: {of_bound} of the old bound"
            );
            after.forget(0);
            for _ in 0..500 {
                let (flow, bytes) = flows.serve();
                after.serve(flow, bytes);
            }
            let of_bound = after.worst(4, 1);
            assert!(of_bound < 1.0, "{old} to {new}: {of_bound} of the bound");
            check(&flows.link);
        }
    }
    for (old, new) in CHANGES {
        test(&Qfq::new(), old, new);
        test(&SKps::new(), old, new);
    }
}

/// A turn that was granted at the old weight is taken; each one after that is worth the
/// new quantum.
#[test]
fn drr_shares_follow_a_new_weight_from_the_next_round_on() {
    for (old, new) in CHANGES {
        let offers = beside_others(new);
        let mut flows = Backlogged::new(Drr::new(), beside_others(old));
        for _ in 0..1000 {
            flows.serve();
        }
        flows
            .link
            .change_flow(FlowId::new(0), config(new, 1500))
            .unwrap();
        check(&flows.link);
        // To the end of the round, and one round more.
        for flow in [1, 2, 0, 1, 2, 0] {
            while flows.next_flow() != flow {
                flows.serve();
            }
        }
        let unit = 1500u64.div_ceil(old.min(new).min(2).into());
        let mut served = [0u64; 3];
        for _ in 0..5000 {
            let (flow, bytes) = flows.serve();
            served[flow] += u64::from(bytes);
            for (a, b) in [(0, 1), (1, 2), (2, 0)] {
                let [phi_a, phi_b] = [a, b].map(|flow| u64::from(offers[flow].weight));
                let apart = (served[a] * phi_b).abs_diff(served[b] * phi_a);
                // One quantum, the rest of one turn, and the excess of another.
                let bound = unit * phi_a * phi_b + 1500 * (phi_a + phi_b);
                assert!(apart < bound, "{old} to {new}: {served:?}");
            }
        }
        check(&flows.link);
    }
}

/// Returns the visible part of a schedule in progress, to its end.
fn seen<A: Scheduler + Clone>(link: &PacketScheduler<A, u32>, flows: [FlowId; 3]) -> String {
    let departures = drain(&mut link.clone());
    let records = flows.map(|flow| (link.weight(flow), link.flow_stats(flow)));
    format!("{departures:?} {records:?} {:?}", link.total_stats())
}

#[test]
fn a_refused_change_leaves_the_running_schedule_as_it_was() {
    fn test<A: Scheduler + Clone>(algorithm: A) {
        let (mut link, flows) = under_way(algorithm);
        let before = seen(&link, flows);
        // All of it would be another schedule, were it accepted.
        let other = FlowConfig {
            limits: Some(Limits {
                packets: 1,
                bytes: 1,
            }),
            ..config(1_000_000, 1)
        };
        for flow in flows {
            let queued = link.flow_stats(flow).unwrap().queued.packets;
            assert!(queued > 0);
            let refusal = link.change_flow(flow, other).unwrap_err();
            let ChangeError::LongerPacketQueued { queued, max } = refusal else {
                panic!("{refusal:?}");
            };
            assert_eq!(max, length(1));
            // The longest possible, so that a caller knows which packets would be accepted.
            let longest = FlowConfig {
                max_length: queued,
                ..config(1, 1)
            };
            assert!(link.clone().change_flow(flow, longest).is_ok());
            assert_eq!(seen(&link, flows), before, "{}", A::NAME);
        }
        for unknown in [3, u32::MAX].map(FlowId::new) {
            let refused = Err(ChangeError::UnknownFlow);
            assert_eq!(link.change_flow(unknown, other), refused);
            assert_eq!(link.flush_flow(unknown, |_| unreachable!()), refused);
            assert!(link.remove_flow(unknown, |_| unreachable!()).is_err());
            assert_eq!(seen(&link, flows), before, "{}", A::NAME);
        }
        check(&link);
    }
    for_every_algorithm!(test);
}

#[test]
fn a_change_to_what_is_already_there_changes_no_order() {
    fn test<A: Scheduler + Clone>(algorithm: A) {
        let (mut link, flows) = under_way(algorithm);
        let before = seen(&link, flows);
        for (flow, weight) in flows.into_iter().zip(1..) {
            link.change_flow(flow, config(weight, 1500)).unwrap();
        }
        assert_eq!(seen(&link, flows), before, "{}", A::NAME);
    }
    for_every_algorithm!(test);
}

#[test]
fn limits_below_the_backlog_reject_until_there_is_room() {
    fn test<A: Scheduler>(algorithm: A) {
        let mut link = scheduler(algorithm);
        let flow = link.add_flow(config(1, 1500)).unwrap();
        for packet in 0..10 {
            link.enqueue(flow, length(100), packet).unwrap();
        }
        for limits in [(3, 10_000), (10_000, 350), (3, 350), (0, 0), (3, 350)] {
            let (packets, bytes) = limits;
            let limits = Some(Limits { packets, bytes });
            let changed = FlowConfig {
                limits,
                ..config(1, 1500)
            };
            link.change_flow(flow, changed).unwrap();
            check(&link);
            let stats = link.flow_stats(flow).unwrap();
            assert_eq!((stats.queued.packets, stats.queued.bytes), (10, 1000));
        }
        for waiting in (1..=10).rev() {
            let accepted = link.enqueue(flow, length(100), 10);
            if waiting < 3 {
                assert_eq!(accepted, Ok(()), "there is room beside {waiting}");
                return;
            }
            assert_eq!(accepted.unwrap_err().reason, Rejection::QueueFull);
            assert_eq!(next(&mut link).payload, 10 - waiting);
            check(&link);
        }
        unreachable!("there is room for three");
    }
    for_every_algorithm!(test);
}

#[test]
fn as_many_of_the_longest_packets_are_accepted_as_there_is_said_to_be_room_for() {
    fn test<A: Scheduler>(algorithm: A) {
        let limits = SchedulerLimits {
            packets: 40,
            bytes: 50_000,
            ..SchedulerLimits::default()
        };
        let mut link = PacketScheduler::new(algorithm, limits);
        // By packets, by bytes, by the scheduler's bytes, by its packets; at last by bytes that
        // are fewer than a longest packet's.
        for (packets, bytes, longest, room) in [
            (7, 100_000, 1500, 7),
            (100, 9000, 1500, 6),
            (100, 100_000, 1500, 20),
            (100, 100_000, 1, 7),
            (100, 0, 1500, 0),
        ] {
            let flow = link
                .add_flow(FlowConfig {
                    limits: Some(Limits { packets, bytes }),
                    ..config(1, longest)
                })
                .unwrap();
            assert_eq!(link.room(flow), room);
            for left in (0..room).rev() {
                link.enqueue(flow, length(longest), ()).unwrap();
                assert_eq!(link.room(flow), left);
            }
            assert!(link.enqueue(flow, length(longest), ()).is_err());
        }
        assert_eq!(link.room(FlowId::new(5)), 0, "there is no such flow");
        check(&link);
    }
    for_every_algorithm!(test);
}

#[test]
fn the_limits_of_a_removed_flow_do_not_outlive_it() {
    fn test<A: Scheduler>(algorithm: A) {
        let mut link = scheduler(algorithm);
        let tight = FlowConfig {
            limits: Some(Limits {
                packets: 1,
                bytes: 100,
            }),
            ..config(1, 1500)
        };
        let flow = link.add_flow(tight).unwrap();
        link.enqueue(flow, length(100), ()).unwrap();
        assert!(link.enqueue(flow, length(100), ()).is_err());
        next(&mut link);
        link.remove_flow(flow, |_| ()).unwrap();
        let again = link.add_flow(config(1, 1500)).unwrap();
        assert_eq!(again, flow);
        assert_eq!(link.flow_stats(again), Some(Default::default()));
        for _ in 0..100 {
            link.enqueue(again, length(1500), ()).unwrap();
        }
        check(&link);
    }
    for_every_algorithm!(test);
}

#[test]
fn a_removed_flow_hands_back_its_packets_in_order() {
    fn test<A: Scheduler + Clone>(algorithm: A) {
        let (link, flows) = under_way(algorithm);
        for flow in flows {
            let mut link = link.clone();
            let before = link.flow_stats(flow).unwrap();
            let mut tags = Vec::new();
            let stats = link
                .remove_flow(flow, |packet| {
                    assert_eq!(packet.owner, flow);
                    tags.push(packet.payload);
                })
                .unwrap();
            let queued = before.queued.packets as usize;
            let expected: Vec<u32> = (0..8).collect();
            assert_eq!(tags, expected[8 - queued..]);
            assert_eq!(stats.discarded, before.queued);
            assert_eq!((stats.sent, stats.accepted), (before.sent, before.accepted));
            assert_eq!(stats.queued.packets, 0);
            assert_eq!(link.flow_stats(flow), None);
            check(&link);
            assert!(drain(&mut link).iter().all(|&(of, _)| of != flow));
        }
    }
    for_every_algorithm!(test);
}

#[test]
fn the_number_of_a_removed_flow_is_free_once_its_place_has_come_up() {
    fn test<A: Scheduler + Clone>(algorithm: A) {
        let (link, flows) = under_way(algorithm);
        for flow in flows {
            let mut link = link.clone();
            link.remove_flow(flow, |_| ()).unwrap();
            let other = link.add_flow(config(1, 1500)).unwrap();
            assert_ne!(other, flow, "{}: it still has a place", A::NAME);
            drain(&mut link);
            // Its place came up on the way.
            assert_eq!(link.add_flow(config(1, 1500)), Ok(flow), "{}", A::NAME);
            check(&link);
        }
    }
    test(Drr::new());
    test(Qfq::new());
    test(SKps::new());
}

/// Of 300 flows some become backlogged and idle at each step, and some of fifty change
/// their weight; now and then one is emptied or replaced.
#[test]
fn hundreds_of_flows_come_and_go_while_tens_change_weight() {
    fn test<A: Scheduler>(algorithm: A) {
        let mut link = scheduler(algorithm);
        let mut random = Random(15);
        let any = |random: &mut Random| {
            let below = 1 << random.below(20);
            let longest = random.pick(&[64, 1500, 9000, 65_535]);
            config((1 + random.below(2 * below)).min(1_000_000), longest)
        };
        let mut flows: Vec<(FlowId, u32)> = (0..300)
            .map(|_| {
                let config = any(&mut random);
                (link.add_flow(config).unwrap(), config.max_length.get())
            })
            .collect();
        let mut waiting = vec![VecDeque::new(); 1000];
        for step in 0..times(2_500, 20_000) {
            let (flow, longest) = random.pick(&flows);
            let queue = &mut waiting[flow.number() as usize];
            match random.below(100) {
                0..50 => {
                    for _ in 0..1 + random.below(2) {
                        let bytes = 1 + random.below(longest);
                        link.enqueue(flow, length(bytes), step).unwrap();
                        queue.push_back((bytes, step));
                    }
                }
                50..60 => {
                    let at = random.below(50) as usize;
                    let config = any(&mut random);
                    match link.change_flow(flows[at].0, config) {
                        Ok(()) => flows[at].1 = config.max_length.get(),
                        Err(refusal) => {
                            assert!(matches!(refusal, ChangeError::LongerPacketQueued { .. }));
                        }
                    }
                }
                60 => {
                    let handed = |packet: fairlane_core::Packet<u32>| {
                        let expected = queue.pop_front();
                        assert_eq!(expected, Some((packet.len.get(), packet.payload)));
                    };
                    if random.below(2) == 0 {
                        link.flush_flow(flow, handed).unwrap();
                    } else {
                        link.remove_flow(flow, handed).unwrap();
                        let config = any(&mut random);
                        let new = (link.add_flow(config).unwrap(), config.max_length.get());
                        *flows.iter_mut().find(|old| old.0 == flow).unwrap() = new;
                    }
                    assert!(queue.is_empty());
                }
                _ if link.is_empty() => {}
                _ => {
                    let packet = next(&mut link);
                    let queue = &mut waiting[packet.owner.number() as usize];
                    let expected = queue.pop_front();
                    assert_eq!(expected, Some((packet.len.get(), packet.payload)));
                }
            }
            if step % 10 == 0 {
                check(&link);
            }
        }
        let left: usize = waiting.iter().map(VecDeque::len).sum();
        assert_eq!(drain(&mut link).len(), left, "{}", A::NAME);
    }
    for_every_algorithm!(test);
}

#[test]
fn there_is_room_for_all_flow_numbers_and_not_for_one_more() {
    let mut link: PacketScheduler<Drr, ()> = scheduler(Drr::new());
    link.reserve(MAX_ENTITIES, 0);
    let flow = FlowConfig::new(Weight::ONE, length(1));
    for number in 0..MAX_ENTITIES as u32 {
        assert_eq!(link.add_flow(flow), Ok(FlowId::new(number)));
    }
    assert_eq!(link.add_flow(flow), Err(ChangeError::TooManyFlows));
    // Neither the last nor the first of them is taken for another or for none.
    let mut ends = BTreeSet::from([0, MAX_ENTITIES as u32 - 1].map(FlowId::new));
    for &flow in &ends {
        link.enqueue(flow, length(1), ()).unwrap();
    }
    let none = FlowId::new(MAX_ENTITIES as u32);
    let rejected = link.enqueue(none, length(1), ()).unwrap_err();
    assert_eq!(rejected.reason, Rejection::Unknown);
    while !link.is_empty() {
        assert!(ends.remove(&next(&mut link).owner));
    }
    assert!(ends.is_empty());
    // A released number is assigned again.
    let given_back = FlowId::new(1 << 23);
    link.remove_flow(given_back, |_| ()).unwrap();
    assert_eq!(link.add_flow(flow), Ok(given_back));
    assert_eq!(link.add_flow(flow), Err(ChangeError::TooManyFlows));
}

/// Some of forty equal flows go idle ahead of V, gain weight and so another group, and send again. A flow that lost its
/// lead would be served before a backlogged flow, and V would exceed Theorem 4 by a packet of each.
#[test]
fn idle_flows_that_gain_weight_keep_their_lead() {
    fn test<A: Scheduler>(algorithm: A, changing_first: bool) -> bool {
        let mut link: PacketScheduler<_, ()> = scheduler(algorithm);
        let flows: Vec<_> = (0..40)
            .map(|_| link.add_flow(config(1, 1024)).unwrap())
            .collect();
        let (changing, others) = flows.split_at(20);
        let (first, second) = match changing_first {
            true => (changing, others),
            false => (others, changing),
        };
        let enqueue = |link: &mut PacketScheduler<A, ()>, flows: &[FlowId], bytes| {
            for &flow in flows {
                link.enqueue(flow, length(bytes), ()).unwrap();
            }
        };
        // All are at the end of their slot.
        enqueue(&mut link, &flows, 1023);
        for _ in 1..flows.len() {
            next(&mut link);
        }
        enqueue(&mut link, first, 1024);
        enqueue(&mut link, second, 1024);
        next(&mut link);
        let mut ahead = BTreeSet::new();
        for _ in 0..15 {
            let flow = next(&mut link).owner;
            if !changing.contains(&flow) {
                return false;
            }
            ahead.insert(flow);
        }
        for &flow in &ahead {
            link.change_flow(flow, config(2, 1024)).unwrap();
            link.enqueue(flow, length(1024), ()).unwrap();
        }
        for _ in 0..flows.len() - ahead.len() {
            let flow = next(&mut link).owner;
            assert!(!ahead.contains(&flow), "{}: {flow:?}", A::NAME);
            check(&link);
        }
        true
    }
    // Ties break in either order of arrival.
    assert!(test(Qfq::new(), true) | test(Qfq::new(), false));
    assert!(test(Gfq::new(), true) | test(Gfq::new(), false));
    assert!(test(SKps::new(), true) | test(SKps::new(), false));
}
