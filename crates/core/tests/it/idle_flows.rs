//! Flows that become idle and return: their earlier service and the length of the pause neither help nor harm them; nor
//! does the position of virtual time matter.

use crate::support::{
    OfBound as _, Offer, Random, Wfi, check, config, drain, length, next, scheduler,
};
use fairlane_core::sched::{Drr, Qfq, SKps};
use fairlane_core::{FlowId, Length, PacketScheduler, Scheduler, VirtualTime};

const MTU: u32 = 1500;

/// Two flows, of these weights, with packets of up to one MTU.
fn pair<A: Scheduler>(algorithm: A, weights: [u32; 2]) -> (PacketScheduler<A, ()>, [FlowId; 2]) {
    let mut link = scheduler(algorithm);
    let flows = weights.map(|weight| link.add_flow(config(weight, MTU)).unwrap());
    (link, flows)
}

fn send<A: Scheduler>(link: &mut PacketScheduler<A, ()>, flow: FlowId, bytes: u32, packets: u32) {
    for _ in 0..packets {
        link.enqueue(flow, length(bytes), ()).unwrap();
    }
}

/// Serves a pair that is backlogged from now on, and sees that it shares the link as two
/// flows do that never did anything before.
fn share_alike<A: Scheduler>(link: &mut PacketScheduler<A, ()>, weights: [u32; 2]) {
    let offers = weights.map(|weight| Offer::of(weight, MTU));
    let mut wfi = Wfi::new(&offers);
    let mut served = [0u64; 2];
    for _ in 0..500 {
        let packet = next(link);
        let flow = packet.owner.number() as usize;
        wfi.serve(flow, packet.len.get());
        served[flow] += u64::from(packet.len.get());
        if A::NAME == <Drr>::NAME {
            // One quantum, the rest of one turn, and the excess of another.
            let quanta = [0, 1].map(|flow| served[flow] * u64::from(weights[1 - flow]));
            let quantum =
                u64::from(MTU.div_ceil(weights[0].min(weights[1])) * weights[0] * weights[1]);
            let packets = u64::from(MTU * (weights[0] + weights[1]));
            assert!(
                quanta[0].abs_diff(quanta[1]) < quantum + packets,
                "{served:?} at weights {weights:?}"
            );
        }
    }
    if A::NAME != <Drr>::NAME {
        let of_bound = wfi.worst(4, 1);
        assert!(
            of_bound < 1.0,
            "{of_bound} of the bound at weights {weights:?}"
        );
    }
}

#[test]
fn a_rejoining_flow_gets_no_credit_for_its_absence() {
    fn test<A: Scheduler + Clone>(algorithm: A) {
        for weights in [[1, 1], [3, 1], [1, 3], [100, 1]] {
            let (mut link, [busy, absent]) = pair(algorithm.clone(), weights);
            send(&mut link, absent, MTU, 1);
            send(&mut link, busy, MTU, 3000);
            for _ in 0..2001 {
                next(&mut link);
            }
            send(&mut link, absent, MTU, 1000);
            share_alike(&mut link, weights);
        }
    }
    test(Drr::new());
    test(Qfq::new());
    test(SKps::new());
}

#[test]
fn a_flow_does_not_pay_for_what_nobody_else_wanted() {
    fn test<A: Scheduler + Clone>(algorithm: A) {
        for weights in [[1, 1], [3, 1], [1, 3], [1, 100]] {
            let (mut link, [busy, late]) = pair(algorithm.clone(), weights);
            send(&mut link, busy, MTU, 3000);
            for _ in 0..2000 {
                next(&mut link);
            }
            // A flow that was never there before.
            send(&mut link, late, MTU, 1000);
            share_alike(&mut link, weights);
        }
    }
    test(Drr::new());
    test(Qfq::new());
    test(SKps::new());
}

/// Both flows have weight 1 and slots of exactly one packet. The first is served at
/// once; its F is then half a packet after V, in virtual time, so the other's packet,
/// which starts at V, comes before its next.
#[test]
fn a_flow_that_leaves_early_and_comes_back_waits_for_its_finish_time() {
    let (mut link, [first, second]) = (scheduler(Qfq::new()), [0, 1].map(FlowId::new));
    for _ in 0..2 {
        link.add_flow(config(1, 1024)).unwrap();
    }
    for round in 0..100 {
        send(&mut link, first, 1024, 1);
        assert_eq!(next(&mut link).owner, first, "alone in round {round}");
        assert!(link.is_empty(), "it left");
        send(&mut link, first, 1024, 1);
        send(&mut link, second, 1024, 2);
        // The first flow was put in a slot before; only its F keeps it back.
        let order = drain(&mut link).into_iter().map(|(flow, _)| flow);
        assert_eq!(order.collect::<Vec<_>>(), [second, first, second]);
        check(&link);
    }
}

/// A flow with one packet at a time, which returns as soon as it left, next to one with a standing backlog, on a link
/// most of which is reserved for an absent flow.
#[test]
fn coming_and_going_at_every_packet_gains_nothing() {
    fn test<A: Scheduler>(algorithm: A, max_length: u32, weight: u32) {
        let mut link = scheduler(algorithm);
        let [hopper, standing, _absent] = [(weight, max_length), (weight, max_length), (1000, MTU)]
            .map(|(weight, longest)| link.add_flow(config(weight, longest)).unwrap());
        send(&mut link, standing, max_length, 2);
        send(&mut link, hopper, max_length, 1);
        let mut served = [0i32; 2];
        for _ in 0..10_000 {
            let packet = next(&mut link);
            served[usize::from(packet.owner == standing)] += 1;
            send(&mut link, packet.owner, max_length, 1);
        }
        let [hopped, stood] = served;
        assert!(
            hopped <= stood + 1,
            "{}: {hopped} packets beside {stood}",
            A::NAME
        );
    }
    for weight in [1, 4] {
        test(Qfq::new(), 1024, weight);
        test(SKps::new(), 1024, weight);
    }
}

/// Returns the departures of a workload with flows that come, go, change and are flushed, and the virtual time after
/// it.
fn departures(start: VirtualTime) -> (Vec<(FlowId, u32)>, VirtualTime) {
    let mut link = scheduler(Qfq::starting_at(start));
    let mut random = Random(5);
    let mut flows: Vec<FlowId> = [1, 1, 2, 3]
        .map(|weight| link.add_flow(config(weight, 9000)).unwrap())
        .into();
    let mut departures = Vec::new();
    for _ in 0..2000 {
        let flow = random.pick(&flows);
        match random.below(40) {
            0 => link.flush_flow(flow, |_| {}).unwrap(),
            1 => {
                let of_weight = 1 + random.below(4);
                link.change_flow(flow, config(of_weight, 9000)).unwrap();
            }
            2 => {
                link.remove_flow(flow, |_| {}).unwrap();
                flows.retain(|&other| other != flow);
                let longest = 1000 * (1 + random.below(9));
                flows.push(link.add_flow(config(1 + random.below(4), longest)).unwrap());
            }
            3 => departures.extend(drain(&mut link)),
            4..20 => {
                // Some are too long by now, and are rejected wherever V stands.
                let bytes = length(1 + random.below(9000));
                let _ = link.enqueue(flow, bytes, ());
                let _ = link.enqueue(flow, bytes, ());
            }
            _ if link.is_empty() => {}
            _ => {
                let packet = next(&mut link);
                departures.push((packet.owner, packet.len.get()));
            }
        }
    }
    check(&link);
    let end = link.algorithm().virtual_time();
    (departures, end)
}

/// A slot of the coarsest group is 2^56 units, so that virtual times which differ by a
/// multiple of 2^58 see the same slots.
#[test]
fn an_order_does_not_depend_on_where_virtual_time_starts_or_wraps() {
    for offset in [0, 1, 98_765_432_101, (1 << 57) + 12_345, (1 << 58) - 1] {
        let (expected, end) = departures(VirtualTime::new(offset));
        assert!(expected.len() > 1000);
        assert!(end.units() > 1 << 58, "the last start below lets V wrap");
        for turn in 1..64 {
            let start = VirtualTime::new(offset + (turn << 58));
            let (order, end) = departures(start);
            assert_eq!(order, expected, "from {start:?}");
            assert!(turn != 63 || end.units() < start.units(), "V wraps");
        }
    }
}

/// Two flows of the same share, of which one sent a packet once: when either returns next, the departures are the same.
/// V goes round its circle more than twice, so that the old F lies now behind V and now, by the look of it, before V.
#[test]
fn a_finish_time_of_long_ago_does_not_count() {
    // Early and late in a quarter of the circle.
    for packets_before in [1, 100, 250] {
        let mut link = scheduler(Qfq::new());
        let [known, new] = [0, 1].map(|_| link.add_flow(config(3, 64)).unwrap());
        let other = link.add_flow(config(1, Length::MAX.get())).unwrap();
        let serve_other = |link: &mut PacketScheduler<Qfq, ()>| {
            send(link, other, Length::MAX.get(), 1);
            next(link).owner
        };
        for _ in 0..packets_before {
            serve_other(&mut link);
        }
        send(&mut link, other, Length::MAX.get(), 1);
        send(&mut link, known, 64, 1);
        while serve_other(&mut link) != known {}

        let order = |flow: FlowId| {
            move |mut link: PacketScheduler<Qfq, ()>| {
                send(&mut link, flow, 64, 3);
                [(); 5].map(|()| next(&mut link).owner == flow)
            }
        };
        let mut turns = 0;
        while turns < 3 {
            let before = link.algorithm().virtual_time();
            serve_other(&mut link);
            let now = link.algorithm().virtual_time();
            turns += u32::from(now.units() < before.units());
            assert_eq!(
                order(known)(link.clone()),
                order(new)(link.clone()),
                "at V = {now:?} after {turns} turns"
            );
        }
    }
}

/// While a flow of long packets is there, slots are coarse, and a flow of short ones may be served until its F is many
/// of its own slots after V. Next to flows of large weight slots are fine again: then it is delayed by one of them, not
/// by all.
#[test]
fn a_finish_time_from_coarse_slots_keeps_a_flow_back_by_one_fine_slot() {
    let mut link = scheduler(Qfq::new());
    let [ahead, fresh] = [0, 1].map(|_| link.add_flow(config(1, 64)).unwrap());
    let long = link.add_flow(config(1, Length::MAX.get())).unwrap();
    send(&mut link, long, Length::MAX.get(), 1);
    send(&mut link, ahead, 64, 16);
    for _ in 0..16 {
        assert_eq!(next(&mut link).owner, ahead);
    }
    link.flush_flow(long, |_| {}).unwrap();
    assert!(drain(&mut link).is_empty());
    link.add_flow(config(1_000_000, MTU)).unwrap();
    send(&mut link, fresh, 64, 10);
    send(&mut link, ahead, 64, 10);
    check(&link);
    let order = drain(&mut link).into_iter().map(|(flow, _)| flow);
    assert!(order.take(3).any(|flow| flow == ahead));
}

/// Three flows with some packets each, and some of them sent.
fn under_way<A: Scheduler>(algorithm: A) -> (PacketScheduler<A, ()>, [FlowId; 3]) {
    let mut link = scheduler(algorithm);
    let flows = [1, 2, 5].map(|weight| link.add_flow(config(weight, MTU)).unwrap());
    for flow in flows {
        send(&mut link, flow, 1000, 40);
    }
    for _ in 0..25 {
        next(&mut link);
    }
    (link, flows)
}

#[test]
fn a_flow_that_is_emptied_and_filled_again_keeps_its_place() {
    fn test<A: Scheduler + Clone>(algorithm: A) {
        let (mut untouched, flows) = under_way(algorithm);
        for flow in flows {
            let mut link = untouched.clone();
            let mut packets = 0;
            link.flush_flow(flow, |_| packets += 1).unwrap();
            assert!(packets > 0);
            check(&link);
            send(&mut link, flow, 1000, packets);
            check(&link);
            assert_eq!(drain(&mut link), drain(&mut untouched.clone()));
        }
        drain(&mut untouched);
    }
    test(Drr::new());
    test(Qfq::new());
    test(SKps::new());
}

#[test]
fn an_emptied_flow_is_passed_over_and_the_others_keep_their_order() {
    fn test<A: Scheduler + Clone>(algorithm: A) {
        let (untouched, flows) = under_way(algorithm);
        for gone in flows {
            let mut link = untouched.clone();
            link.flush_flow(gone, |_| {}).unwrap();
            let left = drain(&mut link);
            assert!(left.iter().all(|&(flow, _)| flow != gone));
            for flow in flows.into_iter().filter(|&flow| flow != gone) {
                let packets = left.iter().filter(|&&(of, _)| of == flow).count() as u64;
                let stats = untouched.flow_stats(flow).unwrap();
                assert_eq!(packets, stats.queued.packets, "{}", A::NAME);
            }
            check(&link);
            // All three are idle now, and can come back.
            for flow in flows {
                send(&mut link, flow, 1000, 1);
            }
            assert_eq!(drain(&mut link).len(), 3);
        }
    }
    test(Drr::new());
    test(Qfq::new());
    test(SKps::new());
}

/// Adding and removing flows leaves no trace in the shares of the remaining ones.
#[test]
fn a_flow_removed_and_added_again_is_a_new_flow() {
    fn test<A: Scheduler + Clone>(algorithm: A) {
        for backlogged in [false, true] {
            let (mut link, [stays, leaves]) = pair(algorithm.clone(), [1, 3]);
            send(&mut link, stays, MTU, 2000);
            for round in 0..200 {
                send(&mut link, leaves, MTU, 1 + u32::from(backlogged) * 3);
                if !backlogged {
                    while next(&mut link).owner != leaves {}
                }
                link.remove_flow(leaves, |_| {}).unwrap();
                check(&link);
                while link.weight(leaves).is_none() {
                    let again = link.add_flow(config(3, MTU)).unwrap();
                    if again != leaves {
                        // Its number is free once its place has come up.
                        link.remove_flow(again, |_| {}).unwrap();
                        next(&mut link);
                    }
                }
                let stats = link.flow_stats(leaves).unwrap();
                assert_eq!(stats, Default::default(), "{}: round {round}", A::NAME);
                check(&link);
            }
            send(&mut link, stays, MTU, 1000);
            send(&mut link, leaves, MTU, 1000);
            share_alike(&mut link, [1, 3]);
        }
    }
    test(Drr::new());
    test(Qfq::new());
    test(SKps::new());
}
