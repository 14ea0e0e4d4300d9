use super::*;
use crate::packet_scheduler::{FlowConfig, FlowId, PacketScheduler, SchedulerLimits};
use alloc::collections::VecDeque;

type Link = PacketScheduler<Sfq, u32>;

fn link(sfq: Sfq) -> Link {
    PacketScheduler::new(sfq, SchedulerLimits::default())
}

fn add(link: &mut Link, weight: u32, max_length: u32) -> FlowId {
    let config = FlowConfig::new(
        Weight::new(weight).unwrap(),
        Length::new(max_length).unwrap(),
    );
    link.add_flow(config).unwrap()
}

fn send(link: &mut Link, flow: FlowId, bytes: u32, payload: u32) {
    link.enqueue(flow, Length::new(bytes).unwrap(), payload)
        .unwrap();
}

fn next(link: &mut Link) -> (FlowId, u32, u32) {
    let packet = link.dequeue().unwrap();
    (packet.owner, packet.len.get(), packet.payload)
}

fn numbers(mut state: u64) -> impl FnMut(u32) -> u32 {
    move |below| {
        state = next_key(state);
        (state >> 33) as u32 % below
    }
}

fn id(index: usize) -> EntityId {
    EntityId::new(index).unwrap()
}

/// Chi square over 255 degrees of freedom has mean 255 and standard deviation 22.6.
#[test]
fn the_hash_spreads_flows_evenly_whatever_their_numbers_and_the_key() {
    let count = 1 << 14;
    for seed in [0, 1, 2, 3, 1 << 32, u64::MAX] {
        for stride in [1, 2, 3, 16, 255, 256, 257, 1024] {
            let sfq = Sfq::with(Sfq::BUCKETS, seed, None);
            let mut hits = [0u32; 256];
            for n in 0..count {
                hits[sfq.bucket_of(id(n * stride))] += 1;
            }
            let expected = (count / 256) as f64;
            let distance = |&hits: &u32| (f64::from(hits) - expected).powi(2) / expected;
            let chi: f64 = hits.iter().map(distance).sum();
            assert!((150.0..360.0).contains(&chi), "{chi}: {seed} {stride}");
        }
    }
}

/// Two flows that collide under one key do so under another by chance: one in 16.
#[test]
fn a_new_key_parts_flows_that_shared_a_bucket() {
    let mut sfq = Sfq::with(NonZeroU32::new(16).unwrap(), 5, None);
    let pairs: Vec<[EntityId; 2]> = (0..1000)
        .flat_map(|n| (n + 1..n + 30).map(move |m| [id(n), id(m)]))
        .filter(|pair| sfq.bucket_of(pair[0]) == sfq.bucket_of(pair[1]))
        .collect();
    assert!((1500..2200).contains(&pairs.len()), "{}", pairs.len());
    for seed in 6..26 {
        sfq.perturb(seed);
        let still = pairs.iter();
        let still = still.filter(|pair| sfq.bucket_of(pair[0]) == sfq.bucket_of(pair[1]));
        let still = still.count() as f64 / pairs.len() as f64;
        assert!((0.02..0.12).contains(&still), "{still} with seed {seed}");
    }
}

#[test]
fn the_same_seed_makes_the_same_keys() {
    let keys = |seed| {
        let mut sfq = Sfq::with(Sfq::BUCKETS, seed, NonZeroU64::new(3000));
        [(); 10].map(|()| {
            sfq.served(Charge::new(1500).unwrap());
            sfq.key
        })
    };
    let some = keys(7);
    assert_eq!(some, keys(7));
    assert_ne!(some, keys(8));
    // Every second packet ends a period.
    for (n, pair) in some.windows(2).enumerate() {
        assert_eq!(pair[0] != pair[1], n % 2 == 0, "{some:?}");
    }
}

/// At any packet, two buckets that are never empty are within two quanta of each other.
#[test]
fn flows_in_different_buckets_share_evenly_whatever_they_offer() {
    for (weights, bytes, burst) in [
        ([1, 1], [1500, 1500], 1),
        ([1000, 1], [1500, 64], 1),
        ([1, 1], [40, 1500], 50),
    ] {
        let mut link = link(Sfq::new());
        let flows = weights.map(|weight| add(&mut link, weight, 1500));
        let [a, b] = flows.map(|flow| link.algorithm().bucket_of(id(flow.number() as usize)));
        assert_ne!(a, b);
        let mut served = [0i64; 2];
        for _ in 0..10 {
            for flow in flows {
                send(&mut link, flow, bytes[flow.number() as usize], 0);
            }
        }
        for _ in 0..5000 {
            let (flow, len, _) = next(&mut link);
            let index = flow.number() as usize;
            served[index] += i64::from(len);
            send(&mut link, flow, bytes[index], 0);
            // The first offers far more than it gets.
            for _ in 1..burst {
                send(&mut link, flows[0], bytes[0], 0);
            }
            let apart = (served[0] - served[1]).abs();
            assert!(apart <= 2 * 1500, "{served:?}");
        }
        link.invariants().unwrap();
    }
}

#[test]
fn flows_in_one_bucket_are_served_in_the_order_of_arrival() {
    let mut link = link(Sfq::with(NonZeroU32::MIN, 1, Some(Sfq::PERIOD)));
    let flows = [1, 1_000_000, 30].map(|weight| add(&mut link, weight, 1500));
    let mut below = numbers(3);
    let mut arrivals = VecDeque::new();
    for n in 0..10_000 {
        let (flow, bytes) = (flows[below(3) as usize], 1 + below(1500));
        send(&mut link, flow, bytes, n);
        arrivals.push_back((flow, bytes, n));
        if below(3) > 0 {
            assert_eq!(Some(next(&mut link)), arrivals.pop_front());
        }
    }
}

/// Keys change every ten packets or so, while dozens wait in each flow; now and then one is
/// emptied.
#[test]
fn new_keys_under_load_reorder_no_flow_and_lose_nothing() {
    for buckets in [1, 2, 7, 256].map(|buckets| NonZeroU32::new(buckets).unwrap()) {
        let mut link = link(Sfq::with(buckets, 9, NonZeroU64::new(8000)));
        let flows: Vec<FlowId> = (0..20).map(|_| add(&mut link, 1, 1500)).collect();
        let mut waiting = alloc::vec![VecDeque::new(); 20];
        let (mut below, mut keys) = (numbers(11), 0);
        for n in 0..20_000 {
            let flow = below(20) as usize;
            if below(100) == 0 {
                let queue: &mut VecDeque<(u32, u32)> = &mut waiting[flow];
                link.flush_flow(flows[flow], |packet| {
                    assert_eq!(queue.pop_front(), Some((packet.len.get(), packet.payload)));
                })
                .unwrap();
            } else if below(100) < 55 {
                let bytes = 1 + below(1500);
                send(&mut link, flows[flow], bytes, n);
                waiting[flow].push_back((bytes, n));
            } else if !link.is_empty() {
                let key = link.algorithm().key;
                let (flow, bytes, payload) = next(&mut link);
                let expected = waiting[flow.number() as usize].pop_front();
                assert_eq!(Some((bytes, payload)), expected);
                keys += u32::from(link.algorithm().key != key);
            }
            if n % 100 == 0 {
                link.invariants().unwrap();
            }
        }
        assert!(keys > 500, "{keys} keys");
        for _ in 0..waiting.iter().map(VecDeque::len).sum() {
            let (flow, bytes, payload) = next(&mut link);
            let expected = waiting[flow.number() as usize].pop_front();
            assert_eq!(Some((bytes, payload)), expected);
        }
        assert!(link.is_empty());
        let places = link.algorithm().places.room();
        let most = 10_000 + 15 * buckets.get() as usize;
        assert!(
            places < most,
            "{places} places, never more than packets and a chunk a bucket"
        );
    }
}

/// Its places in the old bucket come up where they were, those in the new one there.
#[test]
fn a_flow_with_a_backlog_is_served_in_both_buckets_after_a_new_key() {
    let mut sfq = Sfq::with(NonZeroU32::new(2).unwrap(), 0, None);
    let mut entities = alloc::vec![SfqEntity::default(); 2];
    let share = Share::new(Weight::ONE, Length::new(100).unwrap());
    let bytes = Charge::new(100).unwrap();
    for index in 0..2 {
        sfq.add(&mut entities, id(index), share);
    }
    let old = sfq.bucket_of(id(0));
    sfq.backlogged(&mut entities, id(0), bytes);
    sfq.arrived(&mut entities, id(0), bytes);
    let seed = (0..100).find(|&seed| {
        sfq.perturb(seed);
        sfq.bucket_of(id(0)) != old
    });
    assert!(seed.is_some());
    sfq.arrived(&mut entities, id(0), bytes);
    assert_eq!(
        sfq.buckets.iter().filter(|b| !b.queue.is_empty()).count(),
        2
    );
    for left in [Some(bytes), None] {
        assert_eq!(sfq.select(&entities).get(), Some(id(0)));
        sfq.reschedule(&mut entities, id(0), bytes, left);
        sfq.invariants(&entities).unwrap();
    }
    assert_eq!(sfq.select(&entities).get(), None);
    assert!(!sfq.is_active(&entities, id(0)));
}

/// Its bucket had 800 bytes left of its turn, and goes into debt for the rest.
#[test]
fn a_longer_packet_that_comes_first_after_a_flush_is_let_through_and_paid_for() {
    let mut link = link(Sfq::new());
    // Of a hundred flows some share a bucket.
    let flows: Vec<FlowId> = (0..100).map(|_| add(&mut link, 1, 1500)).collect();
    let bucket = |flow: FlowId| link.algorithm().bucket_of(id(flow.number() as usize));
    let pairs = flows
        .iter()
        .flat_map(|&a| flows.iter().map(move |&b| [a, b]));
    let shared = |[a, b]: &[FlowId; 2]| a != b && bucket(*a) == bucket(*b);
    let [gone, stays] = pairs.clone().find(shared).unwrap();
    let apart = |&&flow: &&FlowId| bucket(flow) != bucket(gone);
    let other = *flows.iter().find(apart).unwrap();
    for _ in 0..10 {
        send(&mut link, gone, 700, 0);
    }
    for _ in 0..200 {
        send(&mut link, stays, 1500, 1);
        send(&mut link, other, 1500, 1);
    }
    assert_eq!(next(&mut link).0, gone);
    link.flush_flow(gone, |_| {}).unwrap();
    assert_eq!(next(&mut link), (stays, 1500, 1));
    link.invariants().unwrap();
    let mut served = 2200i64;
    for _ in 0..200 {
        let (flow, bytes, _) = next(&mut link);
        served += i64::from(bytes) * if flow == other { -1 } else { 1 };
        assert!(served.abs() <= 3000, "{served}");
    }
}
