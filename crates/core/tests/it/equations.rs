//! QFQ beside its own definition: Eqs. 2 to 6 and 29 of the report computed for every
//! flow, in numbers that never wrap. Each packet that leaves must be one with the
//! smallest finish time among those that are eligible.

use std::collections::VecDeque;

use crate::support::{FRACTION, Offer, Random, check, config, length, next, scheduler, slot};
use fairlane_core::FlowId;
use fairlane_core::sched::Qfq;

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
    /// Eq. 5.
    fn rounded_start(&self) -> i128 {
        self.start / self.slot * self.slot
    }

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
    fn new(offers: &[Offer]) -> Self {
        let sum: u64 = offers.iter().map(|offer| u64::from(offer.weight)).sum();
        let longest = offers.iter().map(|offer| offer.max_length).max().unwrap();
        let flow = |offer: &Offer| Flow {
            inverse_weight: (1i128 << FRACTION).div_euclid(i128::from(offer.weight))
                + i128::from(!offer.weight.is_power_of_two()),
            slot: slot(offer, sum, longest) as i128,
            start: 0,
            queue: VecDeque::new(),
        };
        Equations {
            flows: offers.iter().map(flow).collect(),
            now: 0,
            fraction: 0,
            inverse_sum: u128::from(u64::MAX / sum),
        }
    }

    fn backlogged(&self) -> impl Iterator<Item = &Flow> {
        self.flows.iter().filter(|flow| !flow.queue.is_empty())
    }

    /// S_i of Eq. 6 for the group with this slot.
    fn group_start(&self, slot: i128) -> Option<i128> {
        let members = self.backlogged().filter(|flow| flow.slot == slot);
        members.map(Flow::rounded_start).min()
    }

    /// F_b of Eq. 29: of the lowest group above `slot` in ER, which is eligible and
    /// has no eligible group above it that finishes earlier.
    fn blocker(&self, slot: i128) -> Option<i128> {
        let eligible: Vec<(i128, i128)> = (0..120)
            .map(|i| 1i128 << i)
            .filter_map(|slot| Some((slot, self.group_start(slot)?)))
            .filter(|&(_, start)| start <= self.now)
            .map(|(slot, start)| (slot, start + 2 * slot))
            .collect();
        let ready = |&&(slot, finish): &&(i128, i128)| {
            !eligible
                .iter()
                .any(|&(above, earlier)| above > slot && earlier < finish)
        };
        let lowest = eligible.iter().filter(ready).find(|group| group.0 > slot);
        lowest.map(|&(_, finish)| finish)
    }

    fn enqueue(&mut self, flow: usize, bytes: u32) {
        if self.flows[flow].queue.is_empty() {
            let mut start = self.now;
            if let Some(finish) = self.blocker(self.flows[flow].slot) {
                start = start.min(finish);
            }
            self.flows[flow].start = self.flows[flow].start.max(start);
        }
        self.flows[flow].queue.push_back(bytes);
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

/// When a flow that holds nothing gets packets.
#[derive(Clone, Copy)]
enum Arrivals {
    /// At once: it is never idle.
    Standing,
    /// Now and then, so that about one flow in `one_in` is backlogged; to a flow that
    /// left with F after V not before V is within a slot of it.
    Some { one_in: u32 },
}

fn drive(offers: &[Offer], arrivals: Arrivals, packets: u32, seed: u64) {
    let mut link = scheduler(Qfq::new());
    let mut equations = Equations::new(offers);
    let mut random = Random(seed);
    for offer in offers {
        link.add_flow(config(offer.weight, offer.max_length))
            .unwrap();
    }
    for n in 0..packets {
        for (flow, offer) in offers.iter().enumerate() {
            let state = &equations.flows[flow];
            let count = match arrivals {
                Arrivals::Standing => 2 - state.queue.len().min(2),
                Arrivals::Some { one_in } => {
                    let soon = state.start >= equations.now + state.slot;
                    let due = random.below(one_in * offers.len() as u32) == 0;
                    3 * usize::from(due && !(state.queue.is_empty() && soon))
                }
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
    ]
}

#[test]
fn every_packet_is_the_one_the_equations_choose_where_all_flows_are_backlogged() {
    for offers in sets_of_flows() {
        drive(&offers, Arrivals::Standing, 20_000, 1);
    }
}

#[test]
fn every_packet_is_the_one_the_equations_choose_where_flows_come_and_go() {
    for (offers, seed) in sets_of_flows().iter().zip(2..) {
        for one_in in 1..=4 {
            drive(offers, Arrivals::Some { one_in }, 10_000, seed);
        }
    }
}
