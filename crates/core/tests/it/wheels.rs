//! S-KPS beside its own definition, computed for every flow in numbers that never wrap:
//! each packet that leaves must be one with the smallest rounded finish time among those
//! that are eligible.

use std::collections::VecDeque;

use crate::support::{
    FRACTION, Offer, Random, check, config, length, next, scheduler, slot, weight,
};
use fairlane_core::sched::SKps;
use fairlane_core::scheduler::{EntityId, Scheduler, Share};
use fairlane_core::units::Charge;
use fairlane_core::{FlowId, VirtualTime};

struct Flow {
    inverse_weight: i128,
    /// sigma_i.
    slot: i128,
    /// S while it holds packets, the last F while it does not.
    start: i128,
    /// Lengths of what it holds.
    queue: VecDeque<u32>,
}

impl Flow {
    /// S^: slots begin at odd multiples of sigma_i / 2.
    fn rounded_start(&self) -> i128 {
        let half = self.slot / 2;
        (self.start - half).div_euclid(self.slot) * self.slot + half
    }

    /// F^.
    fn rounded_finish(&self) -> i128 {
        self.rounded_start() + 2 * self.slot
    }
}

struct Equations {
    flows: Vec<Flow>,
    /// V, and its fraction in 2^-64.
    now: i128,
    fraction: u128,
    /// In 2^-64.
    inverse_sum: u128,
}

impl Equations {
    fn new(offers: &[Offer], start: VirtualTime) -> Self {
        let sum: u64 = offers.iter().map(|offer| u64::from(offer.weight)).sum();
        let longest = offers.iter().map(|offer| offer.max_length).max().unwrap();
        let start = i128::from(start.units());
        let flow = |offer: &Offer| Flow {
            inverse_weight: (1i128 << FRACTION).div_euclid(i128::from(offer.weight))
                + i128::from(!offer.weight.is_power_of_two()),
            slot: slot(offer, sum, longest) as i128,
            start,
            queue: VecDeque::new(),
        };
        Equations {
            flows: offers.iter().map(flow).collect(),
            now: start,
            fraction: 0,
            inverse_sum: u128::from(u64::MAX / sum),
        }
    }

    fn backlogged(&self) -> impl Iterator<Item = &Flow> {
        self.flows.iter().filter(|flow| !flow.queue.is_empty())
    }

    fn enqueue(&mut self, flow: usize, bytes: u32) {
        let now = self.now;
        let flow = &mut self.flows[flow];
        if flow.queue.is_empty() {
            flow.start = flow.start.max(now);
        }
        flow.queue.push_back(bytes);
        self.jump();
    }

    /// The second term of Eq. 3, with rounded start times. V is compared without its
    /// fraction, which a jump leaves as it is.
    fn jump(&mut self) {
        if let Some(first) = self.backlogged().map(Flow::rounded_start).min() {
            self.now = self.now.max(first);
        }
    }

    fn serve(&mut self, flow: usize) -> u32 {
        let eligible = |flow: &&Flow| flow.rounded_start() <= self.now;
        let earliest = self.backlogged().filter(eligible);
        let earliest = earliest.map(Flow::rounded_finish).min();
        let served = &self.flows[flow];
        assert!(
            eligible(&served) && Some(served.rounded_finish()) == earliest,
            "flow {flow} starts at {} and finishes at {}; V is {}, the earliest finish {earliest:?}",
            served.rounded_start(),
            served.rounded_finish(),
            self.now
        );
        let served = &mut self.flows[flow];
        let bytes = served.queue.pop_front().unwrap();
        served.start += i128::from(bytes) * served.inverse_weight;
        self.fraction += (u128::from(bytes) << FRACTION) * self.inverse_sum;
        self.now += (self.fraction >> 64) as i128;
        self.fraction %= 1 << 64;
        self.jump();
        bytes
    }
}

/// Drives these flows from `start` on. A flow that holds nothing gets a packet at once, or
/// three of them so rarely that one flow in `one_in` is backlogged.
fn drive(offers: &[Offer], start: VirtualTime, one_in: Option<u32>, packets: u32) {
    let mut link = scheduler(SKps::starting_at(start));
    let mut equations = Equations::new(offers, start);
    let mut random = Random(packets.into());
    for offer in offers {
        link.add_flow(config(offer.weight, offer.max_length))
            .unwrap();
    }
    for n in 0..packets {
        for (flow, offer) in offers.iter().enumerate() {
            let waiting = equations.flows[flow].queue.len();
            let count = match one_in {
                None => 2 - waiting.min(2),
                Some(one_in) => 3 * usize::from(random.below(one_in * offers.len() as u32) == 0),
            };
            for _ in 0..count {
                let bytes = random.pick(&offer.lengths);
                link.enqueue(FlowId::new(flow as u32), length(bytes), ())
                    .unwrap();
                equations.enqueue(flow, bytes);
            }
        }
        if !link.is_empty() {
            let packet = next(&mut link);
            let bytes = equations.serve(packet.owner.number() as usize);
            assert_eq!(bytes, packet.len.get());
        }
        let now = link.algorithm().virtual_time();
        assert_eq!(now.units(), equations.now as u64, "V");
        if n % 100 == 0 {
            check(&link);
        }
    }
}

fn sets_of_flows() -> Vec<Vec<Offer>> {
    vec![
        (0..15).map(|n| Offer::of(1 << n, 1500)).collect(),
        (0..15).map(|n| Offer::mixed(1 << n, 1500)).collect(),
        (0..10).map(|n| Offer::mixed(1 << n, 64 << n)).collect(),
        (1..30).map(|n| Offer::mixed(n * n * n, 1500)).collect(),
        (0..20).map(|n| Offer::mixed(1_000_000 - n, 1500)).collect(),
        [(1000, 1), (1000, 64), (3, 100), (1, 65_535), (1, 40_000)]
            .map(|(weight, longest)| Offer::mixed(weight, longest))
            .into(),
        // The finest and the coarsest group that there are.
        vec![Offer::of(1_000_000, 1), Offer::mixed(1, 65_535)],
    ]
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
            drive(&offers, start, None, 10_000);
        }
    }
}

#[test]
fn the_smallest_eligible_finish_time_leaves_first_where_flows_come_and_go() {
    for offers in sets_of_flows() {
        for (one_in, start) in (1..=4).zip(STARTS.map(VirtualTime::new)) {
            drive(&offers, start, Some(one_in), 10_000);
        }
    }
}

/// Longer than V's way round its circle, at a byte a unit of time and weight.
#[test]
fn virtual_time_goes_round_more_than_once() {
    let offers = [Offer::mixed(1, 65_535), Offer::of(1, 65_535)];
    drive(&offers, VirtualTime::new(0), None, 2_000);
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

/// The others would finish earlier, one of them in the same slot; V goes on over many
/// slots meanwhile.
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

/// Who comes last to a slot is served first in it; only its F keeps this flow back.
#[test]
fn a_flow_that_was_served_ahead_of_its_share_waits_for_its_finish_time() {
    let mut link = scheduler(SKps::new());
    let [ahead, other] = [0, 1].map(|_| link.add_flow(config(1, 1024)).unwrap());
    link.add_flow(config(1000, 1500)).unwrap();
    for _ in 0..100 {
        link.enqueue(ahead, length(1024), ()).unwrap();
        assert_eq!(next(&mut link).owner, ahead, "alone");
        for flow in [other, ahead] {
            link.enqueue(flow, length(1024), ()).unwrap();
        }
        assert_eq!(next(&mut link).owner, other);
        assert_eq!(next(&mut link).owner, ahead);
        check(&link);
    }
}
