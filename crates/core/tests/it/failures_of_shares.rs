//! Flows that got less than their share in schedulers that people trusted, and do not here:
//! every algorithm that shares by weight, within its own bound.

use crate::support::{
    Backlogged, Offer, Random, Wfi, check, config, length, next, scheduler, weight,
};
use fairlane_core::bounds::{self, Aggregate, Round, Slot, Terms, Transmit};
use fairlane_core::sched::{AUTOMATIC_MEMBERS, Drr, Gfq, Plus, Qfq, SKps, Wf2q, Wf2qPlus};
use fairlane_core::{FlowId, Length, PacketScheduler, Scheduler, Weight};

/// B-WFI of one of these flows, by `bounds`, no two of them being of one weight and length.
type Bound = fn(&[Offer], usize) -> bounds::Wfi;

/// Runs a generic test on each algorithm that shares by weight, with its bound.
macro_rules! for_every_fair_algorithm {
    ($test:ident) => {
        $test(Drr::new(), |offers, flow| {
            let flows = offers.iter().map(weight_and_length);
            let (weight, own) = weight_and_length(&offers[flow]);
            bounds::drr(&Round::of(flows).unwrap(), weight, own, Transmit::Between).unwrap()
        });
        $test(Qfq::new(), |offers, flow| {
            bounds::qfq(&terms(offers, flow), Slot::Actual)
        });
        $test(Gfq::new(), |offers, flow| {
            bounds::gfq(&terms(offers, flow), Slot::Actual)
        });
        $test(SKps::new(), |offers, flow| {
            bounds::s_kps(&terms(offers, flow), Slot::Actual)
        });
        $test(Wf2q::new(), |offers, flow| {
            bounds::wf2q(&terms(offers, flow))
        });
        $test(Wf2qPlus::new(), |offers, flow| {
            bounds::wf2q_plus(&terms(offers, flow))
        });
        $test(Plus::<Qfq>::default(), |offers, flow| {
            let most = AUTOMATIC_MEMBERS.get();
            let alone = Aggregate::new(terms(offers, flow), 1, most).unwrap();
            bounds::qfq_plus(&alone, Slot::Actual)
        });
    };
}

fn weight_and_length(offer: &Offer) -> (Weight, Length) {
    (weight(offer.weight), length(offer.max_length))
}

fn terms(offers: &[Offer], flow: usize) -> Terms {
    let sum = offers.iter().map(|offer| u64::from(offer.weight)).sum();
    let longest = offers.iter().map(|offer| offer.max_length).max().unwrap();
    let (weight, own) = weight_and_length(&offers[flow]);
    Terms::new(weight, sum, own, length(longest), Transmit::Between).unwrap()
}

/// Of these flows, none was ever behind its share by more than its bound.
fn within_bounds<A: Scheduler>(wfi: &Wfi, offers: &[Offer], bound: Bound) {
    for (flow, offer) in offers.iter().enumerate() {
        let rounding = bounds::qfq_rounding(&terms(offers, flow), wfi.work());
        let bound = bound(offers, flow).service + rounding.service;
        let behind = wfi.service(flow);
        assert!(
            behind <= bound.bytes(),
            "{}: the flow of weight {} was {behind} bytes behind, {bound:?} are allowed",
            A::NAME,
            offer.weight
        );
    }
}

/// At one weight, rounding a stride to an integer led to forty times the latency.
#[test]
fn no_weight_is_served_worse_than_its_bound() {
    fn test<A: Scheduler + Clone>(algorithm: A, bound: Bound) {
        let to_a_thousand = (0..100).map(|tens| (1..=10).map(|n| 10 * tens + n).collect());
        let powers = (11..20).map(|n| vec![7, (1 << n) - 1, 1 << n, (1 << n) + 1]);
        let odd = [65_521, 349_525, 699_051, 999_983, 999_999, 1_000_000];
        let odd = odd.map(|weight| vec![1000, weight, 30]);
        for weights in to_a_thousand.chain(powers).chain(odd) {
            let of_weight = |&weight: &u32| Offer::of(weight, 1500);
            let offers: Vec<Offer> = weights.iter().map(of_weight).collect();
            let mut wfi = Wfi::new(&offers);
            let mut flows = Backlogged::new(algorithm.clone(), offers);
            for _ in 0..1000 {
                let (flow, bytes) = flows.serve();
                wfi.serve(flow, bytes);
            }
            (0..weights.len()).for_each(|flow| wfi.look(flow));
            within_bounds::<A>(&wfi, &flows.offers, bound);
        }
    }
    for_every_fair_algorithm!(test);
}

/// A quantum below the packet's length: here the flows were added for packets of one byte.
#[test]
fn flows_whose_packets_became_longer_are_within_the_bounds_for_those() {
    fn test<A: Scheduler>(algorithm: A, bound: Bound) {
        let offers = [1, 100, 1000].map(|weight| Offer::of(weight, 1500));
        let mut link = scheduler(algorithm);
        let flows = [(); 3].map(|()| link.add_flow(config(1_000_000, 1)).unwrap());
        for (flow, offer) in flows.into_iter().zip(&offers) {
            link.change_flow(flow, config(offer.weight, 1500)).unwrap();
            for _ in 0..2 {
                link.enqueue(flow, length(1500), ()).unwrap();
            }
        }
        let mut wfi = Wfi::new(&offers);
        for _ in 0..5000 {
            let packet = next(&mut link);
            link.enqueue(packet.owner, packet.len, ()).unwrap();
            wfi.serve(packet.owner.number() as usize, 1500);
        }
        (0..3).for_each(|flow| wfi.look(flow));
        within_bounds::<A>(&wfi, &offers, bound);
        check(&link);
    }
    for_every_fair_algorithm!(test);
}

/// A flow that returned started at virtual time 0, before all others, and had the link to itself until it had made up
/// for its absence.
#[test]
fn a_flow_that_comes_back_does_not_keep_the_others_waiting() {
    fn test<A: Scheduler + Clone>(algorithm: A, bound: Bound) {
        for weights in [[1, 2], [3, 1], [1, 3], [100, 1], [1, 100]] {
            let offers = weights.map(|weight| Offer::of(weight, 1500));
            let mut link = scheduler(algorithm.clone());
            let [stays, comes] = weights.map(|of| link.add_flow(config(of, 1500)).unwrap());
            let packets = |link: &mut PacketScheduler<A, ()>, flow, packets| {
                for _ in 0..packets {
                    link.enqueue(flow, length(1500), ()).unwrap();
                }
            };
            packets(&mut link, stays, 3000);
            for absence in [2000, 0, 1, 500] {
                for _ in 0..absence {
                    next(&mut link);
                }
                packets(&mut link, comes, 100);
                let mut wfi = Wfi::new(&offers);
                // To its last packet but one: after that it may be idle.
                while link.flow_stats(comes).unwrap().queued.packets > 1
                    && link.flow_stats(stays).unwrap().queued.packets > 1
                {
                    let packet = next(&mut link);
                    wfi.serve(packet.owner.number() as usize, packet.len.get());
                    packets(&mut link, stays, 1);
                }
                (0..2).for_each(|flow| wfi.look(flow));
                within_bounds::<A>(&wfi, &offers, bound);
                while link.flow_stats(comes).unwrap().queued.packets > 0 {
                    next(&mut link);
                }
            }
        }
    }
    for_every_fair_algorithm!(test);
}

/// Flows that joined one by one, while a light one waited, stayed in slots as long as the
/// first sum of weights had asked for: the two heaviest took the whole link.
#[test]
fn flows_that_joined_one_by_one_are_not_starved_by_the_last() {
    fn test<A: Scheduler + Clone>(algorithm: A, bound: Bound) {
        let offers = [
            1, 7023, 169_852, 288, 2037, 313_461, 3, 1004, 712_776, 950_973,
        ]
        .map(|weight| Offer::of(weight, 64));
        for seed in 0..10 {
            let mut random = Random(seed);
            let mut link = scheduler(algorithm.clone());
            let mut enqueue = |link: &mut PacketScheduler<A, ()>, flow| {
                let bytes = random.pick(&[1, 64, 64, 64]);
                link.enqueue(flow, length(bytes), ()).unwrap();
            };
            for offer in &offers {
                let flow = link.add_flow(config(offer.weight, 64)).unwrap();
                // More than the fluid server of WF2Q is ever ahead by.
                for _ in 0..12 {
                    enqueue(&mut link, flow);
                }
                check(&link);
            }
            let mut wfi = Wfi::new(&offers);
            let last = FlowId::new(9);
            for step in 0..1000 {
                let packet = next(&mut link);
                wfi.serve(packet.owner.number() as usize, packet.len.get());
                if packet.owner != last {
                    enqueue(&mut link, packet.owner);
                }
                if step % 5 == 0 {
                    enqueue(&mut link, last);
                    check(&link);
                }
            }
            (0..9).for_each(|flow| wfi.look(flow));
            wfi.forget(9); // It was idle at times.
            within_bounds::<A>(&wfi, &offers, bound);
            if A::NAME == <Drr>::NAME {
                continue; // A round is longer than the run.
            }
            // A seventh and a twelfth of the link, and more while the last is idle.
            for (flow, least) in [(5, 5000), (2, 2500)] {
                let sent = link.flow_stats(FlowId::new(flow)).unwrap().sent.bytes;
                assert!(sent > least, "{}: flow {flow} sent {sent} bytes", A::NAME);
            }
        }
    }
    for_every_fair_algorithm!(test);
}
