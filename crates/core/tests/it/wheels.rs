//! S-KPS against its own definition.

use crate::support::rounded::{self, Arrivals, Definition, Flow};
use crate::support::{Offer, Random, check, config, drain, length, next, scheduler, weight};
use fairlane_core::sched::SKps;
use fairlane_core::scheduler::{EntityId, Scheduler, Share};
use fairlane_core::units::Charge;
use fairlane_core::{FlowId, VirtualTime};

struct Interleaved;

impl Definition for Interleaved {
    /// Slots begin at odd multiples of sigma_i / 2.
    fn start(flow: &Flow) -> i128 {
        let half = flow.slot / 2;
        (flow.start - half).div_euclid(flow.slot) * flow.slot + half
    }

    fn finish(flow: &Flow) -> i128 {
        Self::start(flow) + 2 * flow.slot
    }
}

/// With slots that are released as they end.
struct Late;

impl Definition for Late {
    fn start(flow: &Flow) -> i128 {
        Interleaved::start(flow) + flow.slot
    }

    fn finish(flow: &Flow) -> i128 {
        Self::start(flow) + 2 * flow.slot
    }
}

fn drive(offers: &[Offer], start: VirtualTime, arrivals: Arrivals, packets: u32) {
    let (s_kps, time) = (SKps::starting_at(start), SKps::virtual_time);
    let seed = packets.into();
    rounded::drive::<Interleaved, _>(s_kps, time, offers, arrivals, packets, seed);
}

fn sets_of_flows() -> Vec<Vec<Offer>> {
    let mut sets = rounded::sets_of_flows();
    // The finest and the coarsest group that there are.
    sets.push(vec![Offer::of(1_000_000, 1), Offer::mixed(1, 65_535)]);
    sets
}

/// Slots of all groups lie about these, one of which is where virtual time wraps.
const STARTS: [u64; 4] = [
    0,
    1 << 55,
    (1 << 63) - 1,
    (1u64 << 57).wrapping_neg() + 12_345,
];

#[test]
fn the_smallest_eligible_finish_time_leaves_first_where_all_flows_are_backlogged() {
    for offers in sets_of_flows() {
        for start in STARTS.map(VirtualTime::new) {
            drive(&offers, start, Arrivals::Standing, 10_000);
        }
    }
}

#[test]
fn the_smallest_eligible_finish_time_leaves_first_where_flows_come_and_go() {
    for offers in sets_of_flows() {
        for (one_in, start) in (1..=4).zip(STARTS.map(VirtualTime::new)) {
            drive(&offers, start, Arrivals::OneIn(one_in), 10_000);
        }
    }
}

/// The same of the report's slots.
#[test]
fn the_smallest_eligible_finish_time_leaves_first_where_slots_are_released_late() {
    for offers in sets_of_flows() {
        for (one_in, start) in (0..).zip(STARTS.map(VirtualTime::new)) {
            let arrivals = match one_in {
                0 => Arrivals::Standing,
                _ => Arrivals::OneIn(one_in),
            };
            let (late, time) = (SKps::late(start), SKps::virtual_time);
            rounded::drive::<Late, _>(late, time, &offers, arrivals, 10_000, 3);
        }
    }
}

/// Longer than V's way round its circle, at a byte a unit of time and weight.
#[test]
fn virtual_time_goes_round_more_than_once() {
    let offers = [Offer::mixed(1, 65_535), Offer::of(1, 65_535)];
    drive(&offers, VirtualTime::new(0), Arrivals::Standing, 2_000);
    let mut link = scheduler(SKps::new());
    let mut wraps = 0;
    for offer in &offers {
        link.add_flow(config(offer.weight, offer.max_length))
            .unwrap();
    }
    for _ in 0..2_000 {
        let before = link.algorithm().virtual_time().units();
        for flow in [0, 1].map(FlowId::new) {
            link.enqueue(flow, length(65_535), ()).unwrap();
        }
        let sent = [next(&mut link), next(&mut link)].map(|packet| packet.owner);
        assert_ne!(sent[0], sent[1], "each in its turn");
        wraps += u32::from(link.algorithm().virtual_time().units() < before);
        check(&link);
    }
    assert!(wraps > 3);
}

/// A flow of one-byte packets has the finest slots there are. A long packet, of a flow that
/// came later, carries V over more of them than the due ones have room for. The order
/// stays that of F, and the wheels catch up.
#[test]
fn the_order_stays_exact_where_virtual_time_leaves_the_finest_slots_behind() {
    let mut link = scheduler(SKps::new());
    let fine = [1_000_000, 999_999].map(|weight| link.add_flow(config(weight, 1)).unwrap());
    for flow in fine {
        for _ in 0..200 {
            link.enqueue(flow, length(1), ()).unwrap();
        }
    }
    for _ in 0..5 {
        next(&mut link);
        check(&link);
    }
    let coarse = [1, 1000].map(|weight| link.add_flow(config(weight, 65_535)).unwrap());
    for flow in coarse {
        link.enqueue(flow, length(65_535), ()).unwrap();
        check(&link);
    }
    // Now and then one of the fine flows is the only one, changes or comes back.
    let mut random = Random(3);
    let mut sent = 0;
    while !link.is_empty() {
        let flow = next(&mut link).owner;
        check(&link);
        sent += 1;
        if sent < 1000 && random.below(3) == 0 {
            let bytes = if fine.contains(&flow) { 1 } else { 65_535 };
            link.enqueue(flow, length(bytes), ()).unwrap();
        }
        if sent % 50 == 0 {
            let other = link.add_flow(config(1_000_000, 65_535)).unwrap();
            link.enqueue(other, length(65_535), ()).unwrap();
            link.remove_flow(other, |_| {}).unwrap();
            check(&link);
        }
    }
    assert!(sent > 400);
}

/// An algorithm and its entities, without packets.
struct Bare {
    algorithm: SKps,
    entities: Vec<<SKps as Scheduler>::Entity>,
}

impl Bare {
    fn add(&mut self, of_weight: u32, longest: u32) -> EntityId {
        let id = EntityId::new(self.entities.len()).unwrap();
        self.entities.push(Default::default());
        let share = Share::new(weight(of_weight), length(longest));
        self.algorithm.add(&mut self.entities, id, share);
        id
    }

    fn arrive(&mut self, id: EntityId) {
        let head = Charge::new(1).unwrap();
        self.algorithm.backlogged(&mut self.entities, id, head);
        self.check();
    }

    fn selected(&self) -> EntityId {
        let selected = self.algorithm.select(&self.entities);
        selected.get().unwrap()
    }

    fn check(&self) {
        let violated = self.algorithm.invariants(&self.entities);
        assert_eq!(violated, Ok(()));
    }
}

/// The others would finish earlier, one of them in the same slot; V advances over many slots meanwhile.
#[test]
fn an_entity_on_hold_stays_selected_whoever_comes() {
    for again in [true, false] {
        let mut bare = Bare {
            algorithm: SKps::new(),
            entities: Vec::new(),
        };
        let held = bare.add(1, 60_000);
        let twin = bare.add(1, 60_000);
        let others: Vec<EntityId> = (0..15).map(|n| bare.add(1 << n, 1500)).collect();
        for _ in 0..50 {
            bare.arrive(held);
            // Others of the turn before may come first.
            while bare.selected() != held {
                let other = bare.selected();
                bare.algorithm.idle(&mut bare.entities, other);
                bare.check();
            }
            bare.algorithm.hold(&mut bare.entities, held);
            for (n, &other) in others.iter().enumerate() {
                bare.algorithm.served(Charge::new(4000).unwrap());
                bare.check();
                bare.arrive(if n == 7 { twin } else { other });
                assert_eq!(bare.selected(), held);
            }
            let next = again.then(|| Charge::new(1).unwrap());
            let charged = Charge::new(60_000).unwrap();
            bare.algorithm
                .reschedule(&mut bare.entities, held, charged, next);
            bare.check();
            assert_ne!(bare.selected(), held, "others finish earlier");
            bare.arrive(others[7]);
        }
    }
}

/// The last entity to enter a slot is served first in it; only its F keeps this flow back.
#[test]
fn a_flow_that_was_served_ahead_of_its_share_waits_for_its_finish_time() {
    let mut link = scheduler(SKps::new());
    let [ahead, other] = [0, 1].map(|_| link.add_flow(config(1, 1024)).unwrap());
    let heavy = link.add_flow(config(1000, 1500)).unwrap();
    for _ in 0..100 {
        for _ in 0..10 {
            link.enqueue(heavy, length(1500), ()).unwrap();
        }
        link.enqueue(ahead, length(1024), ()).unwrap();
        while next(&mut link).owner != ahead {}
        assert!(!link.is_empty(), "V goes on");
        for flow in [other, ahead] {
            link.enqueue(flow, length(1024), ()).unwrap();
        }
        let left = drain(&mut link).into_iter().map(|(owner, _)| owner);
        let light: Vec<_> = left.filter(|&owner| owner != heavy).collect();
        assert_eq!(light, [other, ahead]);
        check(&link);
    }
}
