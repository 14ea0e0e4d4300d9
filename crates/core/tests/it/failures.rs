//! Failures of widely used schedulers that do not occur here. Changes under load are in `changes`, wrong shares in
//! `failures_of_shares`, aggregates in `failures_of_aggregates`.

use std::cell::Cell;
use std::num::{NonZeroU32, NonZeroU64};
use std::rc::Rc;

use crate::support::{
    Backlogged, FRACTION, Offer, check, config, drain, length, next, scheduler, times, weight,
};
use fairlane_core::bounds::Work;
use fairlane_core::sched::{Fifo, Gfq, Plus, Qfq, SKps, Sfq, Wf2qPlus};
use fairlane_core::scheduler::{EntityId, Holds, MAX_ENTITIES, MaybeEntity, Removal, Share};
use fairlane_core::{
    FlowId, Length, Limits, Nanos, PacketScheduler, Rate, Rejected, Rejection, Scheduler,
    SchedulerLimits, VirtualTime,
};

/// An algorithm and its entities, without packets: statements can be made in any order.
struct Bare<A: Scheduler> {
    algorithm: A,
    entities: Vec<Counted<A::Entity>>,
    looks: Rc<Cell<u32>>,
}

/// Counts how often an algorithm looks at an entity.
struct Counted<S> {
    state: S,
    looks: Rc<Cell<u32>>,
}

impl<S> Holds<S> for Counted<S> {
    fn state(&self) -> &S {
        self.looks.set(self.looks.get() + 1);
        &self.state
    }
    fn state_mut(&mut self) -> &mut S {
        self.looks.set(self.looks.get() + 1);
        &mut self.state
    }
}

fn id(index: usize) -> EntityId {
    EntityId::new(index).unwrap()
}

fn share(of_weight: u32, max_length: u32) -> Share {
    Share::new(weight(of_weight), length(max_length))
}

impl<A: Scheduler> Bare<A> {
    fn new(algorithm: A, shares: impl IntoIterator<Item = Share>) -> Self {
        let mut bare = Bare {
            algorithm,
            entities: Vec::new(),
            looks: Rc::default(),
        };
        for (index, share) in shares.into_iter().enumerate() {
            bare.entities.push(Counted {
                state: A::Entity::default(),
                looks: bare.looks.clone(),
            });
            bare.algorithm.add(&mut bare.entities, id(index), share);
        }
        bare.looks.set(0);
        bare
    }

    /// Records a packet for an entity that had none, or had some.
    fn arrive(&mut self, index: usize, bytes: u32) {
        let bytes = length(bytes).into();
        self.algorithm
            .backlogged(&mut self.entities, id(index), bytes);
        self.algorithm.arrived(&mut self.entities, id(index), bytes);
    }

    /// The selected one sends this packet, and has another or not.
    fn serve(&mut self, bytes: u32, next: Option<u32>) -> Option<usize> {
        let selected = self.algorithm.select(&self.entities).get()?;
        self.algorithm.served(length(bytes).into());
        let next = next.map(|bytes| length(bytes).into());
        self.algorithm
            .reschedule(&mut self.entities, selected, length(bytes).into(), next);
        Some(selected.index())
    }

    fn check(&self) {
        if let Err(violation) = self.algorithm.invariants(&self.entities) {
            panic!("{}: {violation}", A::NAME);
        }
    }
}

/// CVE-2023-31436: without a declared maximum, a long one led to a group out of bounds.
#[test]
fn every_weight_and_length_has_a_group() {
    assert_eq!(Length::new(1 << 20), None);
    assert_eq!(Length::new(65_536), None);
    assert_eq!(Length::MAX.get(), 65_535);
    fn test<A: Scheduler + Clone>(algorithm: A) {
        let weights = [1, 2, 3, 1023, 1024, 65_535, 524_288, 999_999, 1_000_000];
        let lengths = [1, 2, 3, 64, 1500, 32_768, 65_534, 65_535];
        let mut together = Vec::new();
        for weight in weights {
            for longest in lengths {
                let offer = Offer::mixed(weight, longest);
                let mut alone = Backlogged::new(algorithm.clone(), vec![offer.clone()]);
                for _ in 0..times(10, 50) {
                    alone.serve();
                    check(&alone.link);
                }
                together.push(offer);
            }
        }
        let mut together = Backlogged::new(algorithm, together);
        for _ in 0..times(1_000, 5_000) {
            together.serve();
        }
        check(&together.link);
    }
    for_every_algorithm!(test);
}

/// CVE-2023-3611: such a packet raised its class's maximum, past every check.
#[test]
fn a_packet_longer_than_declared_is_rejected_and_raises_nothing() {
    fn test<A: Scheduler + Clone>(algorithm: A) {
        let mut link = scheduler(algorithm);
        let [short, long] = [1000, 1500].map(|longest| link.add_flow(config(1, longest)).unwrap());
        for n in 0..20 {
            link.enqueue(short, length(900 + n), n).unwrap();
            link.enqueue(long, length(1500 - n), n).unwrap();
        }
        let mut untouched = link.clone();
        for bytes in [1001, 1500, 65_535, 1001] {
            let rejected = link.enqueue(short, length(bytes), 77).unwrap_err();
            let max = length(1000);
            let reason = Rejection::TooLong { max };
            let payload = 77;
            assert_eq!(rejected, Rejected { payload, reason });
        }
        assert_eq!(link.flow_stats(short).unwrap().dropped.packets, 4);
        assert_eq!(drain(&mut link), drain(&mut untouched), "{}", A::NAME);
        link.enqueue(short, length(1000), 0).unwrap();
    }
    for_every_algorithm!(test);
}

/// CVE-2023-4921, CVE-2025-40083: a child had packets when peeked and none when dequeued.
#[test]
fn what_was_peeked_may_be_gone_when_the_next_packet_is_taken() {
    fn test<A: Scheduler>(algorithm: A) {
        let mut link = scheduler(algorithm);
        let flows = [1, 5].map(|weight| link.add_flow(config(weight, 1500)).unwrap());
        for n in 0..50 {
            for flow in flows {
                link.enqueue(flow, length(1000), n).unwrap();
            }
            let Some(peeked) = link.peek() else {
                panic!("{}: two packets wait", A::NAME);
            };
            let gone = peeked.owner;
            let mut flushed = 0;
            link.flush_flow(gone, |_| flushed += 1).unwrap();
            assert_eq!(flushed, 1);
            check(&link);
            assert_ne!(next(&mut link).owner, gone, "{}", A::NAME);
            assert!(link.is_empty());
            assert_eq!(link.peek(), None);
            assert_eq!(link.dequeue(), None);
            check(&link);
        }
    }
    for_every_algorithm!(test);
}

/// CVE-2025-37913, CVE-2025-37914, CVE-2025-37915: a class was listed twice.
#[test]
fn becoming_backlogged_twice_is_becoming_backlogged_once() {
    fn test<A: Scheduler + Clone>(algorithm: A) {
        let mut bare = Bare::new(algorithm, [share(1, 1500); 3]);
        for round in 0..100 {
            for entity in 0..3 {
                let bytes = length(1500).into();
                for _ in 0..(round + entity) % 3 {
                    let (algorithm, entities) = (&mut bare.algorithm, &mut bare.entities);
                    algorithm.backlogged(entities, id(entity), bytes);
                }
                bare.arrive(entity, 1500);
                bare.check();
                let (algorithm, entities) = (&mut bare.algorithm, &mut bare.entities);
                algorithm.backlogged(entities, id(entity), bytes);
                bare.check();
            }
            let mut served = [0; 3];
            while let Some(entity) = bare.serve(1500, None) {
                served[entity] += 1;
                bare.check();
            }
            assert_eq!(served, [1; 3], "{}", A::NAME);
        }
    }
    for_every_algorithm!(test);
}

/// CVE-2025-38177, CVE-2026-74284: a second notice removed another flow from the round.
#[test]
fn becoming_idle_twice_is_becoming_idle_once() {
    fn test<A: Scheduler>(algorithm: A) {
        let mut bare = Bare::new(algorithm, [share(1, 1500); 4]);
        for round in 0..100 {
            for entity in 0..4 {
                bare.arrive(entity, 1500);
            }
            let gone = bare.serve(1500, None).unwrap();
            let selected = bare.algorithm.select(&bare.entities);
            let idle = selected.get().unwrap();
            bare.algorithm.discarded(&mut bare.entities, idle, 1);
            for _ in 0..=round % 3 {
                for entity in [idle, id(gone)] {
                    bare.algorithm.idle(&mut bare.entities, entity);
                    bare.check();
                    assert!(!bare.algorithm.is_active(&bare.entities, entity));
                }
            }
            let mut left: Vec<usize> = std::iter::from_fn(|| bare.serve(1500, None)).collect();
            left.sort_unstable();
            let others = (0..4).filter(|&index| id(index) != idle && index != gone);
            assert!(left.into_iter().eq(others), "{}", A::NAME);
        }
    }
    for_every_algorithm!(test);
}

/// CVE-2026-22976: a reset removed from a list an entry that was never in it.
#[test]
fn a_flow_that_was_never_backlogged_can_be_emptied_and_removed() {
    fn test<A: Scheduler>(algorithm: A) {
        let mut link = scheduler(algorithm);
        let [idle, busy, other] = [1, 2, 3].map(|n| link.add_flow(config(n, 1500)).unwrap());
        for n in 0..9 {
            link.enqueue(busy, length(1500), n).unwrap();
            link.enqueue(other, length(1500), n).unwrap();
        }
        link.flush_flow(idle, |_| unreachable!()).unwrap();
        check(&link);
        link.remove_flow(idle, |_| unreachable!()).unwrap();
        check(&link);
        assert_eq!(drain(&mut link).len(), 18);
    }
    for_every_algorithm!(test);

    fn statement<A: Scheduler>(algorithm: A) {
        let mut bare = Bare::new(algorithm, [share(1, 1500); 3]);
        bare.arrive(1, 1500);
        bare.algorithm.idle(&mut bare.entities, id(0));
        bare.check();
        let removal = bare.algorithm.remove(&mut bare.entities, id(2));
        assert_eq!(removal, Removal::Done);
        bare.check();
        assert_eq!(bare.serve(1500, None), Some(1));
        assert_eq!(bare.serve(1500, None), None);
    }
    for_every_algorithm!(statement);
}

/// A mask as wide as the step was shifted too far. Here a packet of the long flow carries
/// V over 32 slots of the short one, which was ineligible before.
#[test]
fn one_packet_may_carry_virtual_time_over_many_slots() {
    fn test<A: Scheduler>(algorithm: A, now: fn(&A) -> VirtualTime) {
        let mut link = scheduler(algorithm);
        let [short, long] = [1, 65_535].map(|longest| link.add_flow(config(1, longest)).unwrap());
        for _ in 0..10_000 {
            link.enqueue(short, length(1), ()).unwrap();
        }
        for _ in 0..3 {
            link.enqueue(long, length(65_535), ()).unwrap();
        }
        let before = now(link.algorithm());
        let mut short_packets = 0;
        while next(&mut link).owner == short {
            short_packets += 1;
            check(&link);
        }
        assert!(short_packets < 10_000, "{}: it became ineligible", A::NAME);
        let steps = now(link.algorithm()).distance_from(before) >> FRACTION;
        assert!(steps > 32 * 1000, "{}: {steps} bytes", A::NAME);
        assert_eq!(next(&mut link).owner, short, "{}: again", A::NAME);
        check(&link);
    }
    test(Qfq::new(), Qfq::virtual_time);
    test(Gfq::new(), Gfq::virtual_time);
    test(SKps::new(), SKps::virtual_time);
    test(Wf2qPlus::new(), Wf2qPlus::virtual_time);
    test(Plus::<Qfq>::default(), |plus| {
        plus.algorithm().virtual_time()
    });
}

/// V advanced by the largest sum of weights there could be: jitter.
#[test]
fn virtual_time_advances_by_the_sum_of_weights_there_is() {
    advances_by_the_sum_of_weights(Qfq::new(), Qfq::virtual_time);
    advances_by_the_sum_of_weights(Gfq::new(), Gfq::virtual_time);
    advances_by_the_sum_of_weights(SKps::new(), SKps::virtual_time);
    advances_by_the_sum_of_weights(Wf2qPlus::new(), Wf2qPlus::virtual_time);
}

fn advances_by_the_sum_of_weights<A: Scheduler + Clone>(algorithm: A, now: fn(&A) -> VirtualTime) {
    let full = |count: usize| vec![share(1_000_000, 1500); count];
    let beside = |rest: u32, count| [vec![share(rest, 1500)], full(count)].concat();
    for (sum, shares) in [
        (1, beside(1, 0)),
        (7, vec![share(7, 1500)]),
        (1_000_003, beside(3, 1)),
        // A difference of sums of exactly 2^32 was taken for zero (CVE-2026-31423).
        ((1 << 32) - 1, beside(967_295, 4294)),
        (1 << 32, beside(967_296, 4294)),
        ((1 << 32) + 1, beside(967_297, 4294)),
        // A byte is 67 units and a fraction.
        (16_384_000_000, full(16_384)),
    ] {
        let mut bare = Bare::new(algorithm.clone(), shares);
        let start = now(&bare.algorithm);
        let (mut work, mut bytes) = (0u128, 0);
        for _ in 0..10_000 {
            bytes = bytes % 97 + 1;
            work += u128::from(bytes);
            bare.algorithm.served(length(bytes).into());
        }
        let expected = (work << FRACTION) / sum;
        let advanced = now(&bare.algorithm).distance_from(start) as u128;
        // A byte's 2^40 times the part of the sum's inverse below its 64 bits.
        let lost = expected - advanced;
        assert!(
            lost <= (work >> (64 - FRACTION)) + 1,
            "{lost} at a sum of {sum}"
        );
        bare.check();

        // Entities that leave no longer count, and V is faster.
        for index in 1..bare.entities.len() {
            let _ = bare.algorithm.remove(&mut bare.entities, id(index));
        }
        let rest = u64::from(bare.algorithm.weight(&bare.entities, id(0)).get());
        let start = now(&bare.algorithm);
        bare.algorithm.served(length(1500).into());
        let advanced = now(&bare.algorithm).distance_from(start) as u64;
        assert!(((1500 << FRACTION) / rest).abs_diff(advanced) <= 1);
    }
}

/// CVE-2025-21971: a class of that number was taken for the end of the tree.
#[test]
fn no_number_of_a_flow_is_taken_for_none() {
    let last = EntityId::new(MAX_ENTITIES - 1).unwrap();
    assert_eq!(MaybeEntity::of(last).get(), Some(last));
    assert_ne!(MaybeEntity::of(last), MaybeEntity::NONE);
    assert_eq!(MaybeEntity::NONE.get(), None);
    assert_eq!(EntityId::new(MaybeEntity::NONE.index()), None);
    assert_eq!(EntityId::new(MAX_ENTITIES), None);
    assert_eq!(EntityId::new(u32::MAX as usize), None);

    fn test<A: Scheduler>(algorithm: A) {
        let mut link = scheduler(algorithm);
        link.add_flow(config(1, 1500)).unwrap();
        for number in [1, MAX_ENTITIES as u32, u32::MAX - 1, u32::MAX] {
            let flow = FlowId::new(number);
            let rejected = link.enqueue(flow, length(1), 5).unwrap_err();
            let reason = Rejection::Unknown;
            assert_eq!(rejected, Rejected { payload: 5, reason });
            assert_eq!((link.weight(flow), link.flow_stats(flow)), (None, None));
            assert!(link.remove_flow(flow, |_| ()).is_err());
        }
        assert_eq!(link.total_stats().dropped.packets, 4);
        check(&link);
    }
    for_every_algorithm!(test);
}

/// CVE-2024-45016, CVE-2025-68325: an enqueue failed and said it had not, or the reverse.
#[test]
fn a_rejected_packet_leaves_a_count_and_nothing_else() {
    fn test<A: Scheduler>(algorithm: A) {
        let limits = SchedulerLimits {
            packets: 3,
            bytes: 2500,
            per_flow: Limits {
                packets: 2,
                bytes: 2000,
            },
        };
        let mut link = PacketScheduler::new(algorithm, limits);
        let [flow, other] = [(); 2].map(|()| link.add_flow(config(1, 1500)).unwrap());
        let too_long = Rejection::TooLong { max: length(1500) };
        // Flow, bytes, and the reason to reject it: with nothing rejected left behind,
        // the next is judged by those accepted alone.
        for (to, bytes, rejection) in [
            (flow, 1501, Some(too_long)),
            (flow, 1000, None),
            (flow, 1001, Some(Rejection::QueueFull)),
            (flow, 1000, None),
            (flow, 1, Some(Rejection::QueueFull)),
            (other, 501, Some(Rejection::LinkFull)),
            (other, 500, None),
            (other, 1, Some(Rejection::LinkFull)),
        ] {
            let before = (link.total_stats(), link.flow_stats(to).unwrap(), link.len());
            let outcome = link.enqueue(to, length(bytes), bytes);
            let after = (link.total_stats(), link.flow_stats(to).unwrap(), link.len());
            check(&link);
            match rejection {
                None => {
                    assert_eq!(outcome, Ok(()));
                    assert_eq!(after.2, before.2 + 1);
                    assert_eq!(
                        after.1.queued.bytes,
                        before.1.queued.bytes + u64::from(bytes)
                    );
                    assert_eq!(after.0.dropped, before.0.dropped);
                }
                Some(reason) => {
                    let payload = bytes;
                    assert_eq!(outcome, Err(Rejected { payload, reason }));
                    assert_eq!(after.2, before.2);
                    for (after, before) in [(after.0, before.0), (after.1, before.1)] {
                        assert_eq!(after.accepted, before.accepted);
                        assert_eq!(after.queued, before.queued);
                        assert_eq!(after.dropped.packets, before.dropped.packets + 1);
                        let dropped = before.dropped.bytes + u64::from(bytes);
                        assert_eq!(after.dropped.bytes, dropped);
                    }
                }
            }
        }
        assert_eq!(drain(&mut link).len(), 3);
        // A flow whose only packets were rejected has no place in the order.
        assert!(link.enqueue(flow, length(1501), 0).is_err());
        assert_eq!(link.dequeue(), None);
        check(&link);
    }
    for_every_algorithm!(test);
}

/// CVE-2024-57996, CVE-2025-37752: a limit of one, given or derived, led to index 65535.
#[test]
fn the_smallest_and_the_largest_limits_mean_what_they_say() {
    fn test<A: Scheduler + Clone>(algorithm: A) {
        let accepts = |limits: SchedulerLimits, bytes: u32| {
            let mut link = PacketScheduler::new(algorithm.clone(), limits);
            let flow = link.add_flow(config(1, 1500)).unwrap();
            for _ in 0..3 {
                // As many again once they are gone.
                let mut accepted = 0;
                while accepted < 10 && link.enqueue(flow, length(bytes), ()).is_ok() {
                    accepted += 1;
                }
                check(&link);
                assert_eq!(drain(&mut link).len(), accepted);
            }
            let mut accepted = 0;
            while accepted < 10 && link.enqueue(flow, length(bytes), ()).is_ok() {
                accepted += 1;
            }
            accepted
        };
        let flow = |packets, bytes| SchedulerLimits {
            per_flow: Limits { packets, bytes },
            ..SchedulerLimits::default()
        };
        let all = |packets, bytes| SchedulerLimits {
            packets,
            bytes,
            ..SchedulerLimits::default()
        };
        for (limits, expected) in [
            (flow(0, 10_000), 0),
            (flow(1, 10_000), 1),
            (flow(10_000, 0), 0),
            (flow(10_000, 99), 0),
            (flow(10_000, 100), 1),
            (flow(10_000, 199), 1),
            (flow(u32::MAX, u32::MAX), 10),
            (flow(1 << 31, 1 << 31), 10),
            // The least that a scheduler holds is one packet.
            (all(0, 10_000), 1),
            (all(1, 10_000), 1),
            (all(10_000, 0), 0),
            (all(10_000, 99), 0),
            (all(10_000, 100), 1),
            (all(u32::MAX, u64::MAX), 10),
        ] {
            assert_eq!(accepts(limits, 100), expected, "{}: {limits:?}", A::NAME);
        }
    }
    for_every_algorithm!(test);
}

/// CVE-2024-50039: a packet was longer when it left than when it had come.
#[test]
fn a_length_is_what_it_was_at_enqueue() {
    fn test<A: Scheduler>(algorithm: A) {
        let mut link = scheduler(algorithm);
        let flow = link.add_flow(config(1, 1500)).unwrap();
        let payloads: Vec<Rc<Cell<u32>>> = (0..5).map(|_| Rc::new(Cell::new(1000))).collect();
        for payload in &payloads {
            let bytes = length(payload.get());
            link.enqueue(flow, bytes, Rc::clone(payload)).unwrap();
        }
        for payload in &payloads {
            payload.set(1_000_000);
        }
        check(&link);
        for left in (0..5).rev() {
            assert_eq!(next(&mut link).len, length(1000));
            assert_eq!(link.flow_stats(flow).unwrap().queued.bytes, left * 1000);
        }
        assert!(
            payloads
                .iter()
                .all(|payload| Rc::strong_count(payload) == 1)
        );
        check(&link);
    }
    for_every_algorithm!(test);
}

/// 69 Gbit/s was kept in 32 bits, and gave 280 Mbit/s.
#[test]
fn rates_beyond_32_bits_are_kept() {
    for (text, bps) in [
        ("69gbit", 69_000_000_000),
        ("4294967295bit", u64::from(u32::MAX)),
        ("4294967296bit", 1 << 32),
        ("34.359738368gbit", 1 << 35),
        ("999.999999999gbit", 999_999_999_999),
        ("1tbit", 1_000_000_000_000),
    ] {
        let rate: Rate = text.parse().unwrap();
        assert_eq!(rate.bps(), bps, "{text}");
        assert_eq!(rate.to_string().parse(), Ok(rate), "{text}");
    }
    assert_eq!(Rate::from_bps(1_000_000_000_001), None);
    // 2^32 bytes at 2^35 bit/s, and a hundred thousand packets at 69 Gbit/s.
    for (bytes, bps, nanos) in [
        (1u64 << 32, 1u64 << 35, 1_000_000_000),
        (862_500_000_000, 69_000_000_000, 100_000_000_000),
    ] {
        let work = Work::new(bytes as f64).unwrap();
        assert_eq!(work.time(Rate::from_bps(bps).unwrap()), Nanos(nanos));
    }
    // Nor does a time, however long (CVE-2025-38193).
    assert_eq!(Nanos::from_millis(u64::MAX), Nanos::MAX);
    assert_eq!(Nanos::from_micros(1 << 32).0, 4_294_967_296_000);
    assert_eq!(Nanos::MAX + Nanos(1), Nanos::MAX);
    assert_eq!(Nanos::ZERO - Nanos(1), Nanos::ZERO);
}

/// A quantum below the packet's length let a round robin visit a flow thousands of times
/// for one packet.
#[test]
fn a_packet_costs_the_same_few_looks_at_entities_whatever_the_weights() {
    fn test<A: Scheduler + Clone>(algorithm: A) {
        for (count, weights) in [
            (1, [1, 1]),
            (2, [1, 1_000_000]),
            (1000, [1, 1]),
            (1000, [1, 1_000_000]),
        ] {
            // They were added for packets of one byte.
            let mut bare = Bare::new(algorithm.clone(), vec![share(1_000_000, 1); count]);
            for (entity, weight) in weights.into_iter().cycle().take(count).enumerate() {
                let (algorithm, entities) = (&mut bare.algorithm, &mut bare.entities);
                algorithm.change(entities, id(entity), share(weight, 65_535));
            }
            bare.looks.set(0);
            let mut worst = 0;
            let mut look = |bare: &Bare<A>| {
                worst = worst.max(bare.looks.take());
            };
            for entity in 0..count {
                bare.arrive(entity, 65_535);
                look(&bare);
            }
            for _ in 0..10_000 {
                // Only FIFO and SFQ have as many places as packets.
                let selected = bare.serve(65_535, Some(65_535)).unwrap();
                if [Fifo::NAME, Sfq::NAME].contains(&A::NAME) {
                    bare.arrive(selected, 65_535);
                }
                look(&bare);
            }
            while bare.serve(65_535, None).is_some() {
                look(&bare);
            }
            assert!(worst <= 4, "{}: {worst} looks, {count} entities", A::NAME);
        }
    }
    for_every_algorithm!(test);
}

/// CVE-2025-38468: a tree was emptied while a packet was being taken from it.
#[test]
fn flows_emptied_behind_their_places_are_passed_over_at_once() {
    fn test<A: Scheduler>(algorithm: A) {
        let mut link = scheduler(algorithm);
        let flows: Vec<FlowId> = (1..=100)
            .map(|weight| link.add_flow(config(weight, 1500)).unwrap())
            .collect();
        for spared in [None, Some(0), Some(50), Some(99)] {
            for &flow in flows.iter().chain(&flows) {
                link.enqueue(flow, length(1500), ()).unwrap();
            }
            for _ in 0..37 {
                next(&mut link);
            }
            for flow in (0..100).filter(|&flow| Some(flow) != spared) {
                link.flush_flow(flows[flow], |_| ()).unwrap();
            }
            check(&link);
            let left = drain(&mut link);
            let spared = spared.map(|flow| flows[flow]);
            assert!(left.iter().all(|&(flow, _)| Some(flow) == spared));
            assert_eq!(link.peek(), None, "{}", A::NAME);
            check(&link);
        }
        link.enqueue(flows[7], length(1), ()).unwrap();
        assert_eq!(next(&mut link).owner, flows[7], "{}", A::NAME);
    }
    for_every_algorithm!(test);
}

/// CVE-2025-38193: a huge period of the hash went negative.
#[test]
fn any_period_of_a_hash_is_a_period() {
    for period in [1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 63, u64::MAX] {
        let period = NonZeroU64::new(period);
        let mut link = scheduler(Sfq::with(NonZeroU32::new(4).unwrap(), 1, period));
        let flows = [(); 9].map(|()| link.add_flow(config(1, 65_535)).unwrap());
        for _ in 0..20 {
            for flow in flows {
                link.enqueue(flow, length(65_535), ()).unwrap();
                link.enqueue(flow, length(1), ()).unwrap();
            }
            for _ in flows {
                next(&mut link);
                check(&link);
            }
        }
        assert_eq!(drain(&mut link).len(), 20 * 9);
    }
}
