//! GFQ beside its own definition: WF2Q+ with S rounded down and F rounded up to slots,
//! computed for every flow in numbers that never wrap. Each packet that leaves must be one
//! with the smallest rounded finish time among those that are eligible.

use std::collections::VecDeque;

use crate::support::{
    FRACTION, Offer, Random, check, config, drain, length, next, scheduler, slot,
};
use fairlane_core::sched::Gfq;
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
    fn rounded_start(&self) -> i128 {
        self.start / self.slot * self.slot
    }

    fn rounded_finish(&self) -> i128 {
        let finish = self.start + i128::from(self.queue[0]) * self.inverse_weight;
        (finish + self.slot - 1) / self.slot * self.slot
    }
}

struct Reference {
    flows: Vec<Flow>,
    /// V, and its fraction in 2^-64.
    now: i128,
    fraction: u128,
    /// In 2^-64.
    inverse_sum: u128,
    /// Packets served whose finish time lay one slot after the start, and two.
    served: [u32; 2],
}

impl Reference {
    fn new(offers: &[Offer], start: u64) -> Self {
        let sum: u64 = offers.iter().map(|offer| u64::from(offer.weight)).sum();
        let longest = offers.iter().map(|offer| offer.max_length).max().unwrap();
        let flow = |offer: &Offer| Flow {
            inverse_weight: (1u64 << FRACTION).div_ceil(offer.weight.into()).into(),
            slot: slot(offer, sum, longest) as i128,
            start: 0,
            queue: VecDeque::new(),
        };
        Reference {
            flows: offers.iter().map(flow).collect(),
            now: start.into(),
            fraction: 0,
            inverse_sum: u128::from(u64::MAX / sum),
            served: [0; 2],
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
        let finish = served.rounded_finish();
        assert!(
            eligible(&served) && Some(finish) == earliest,
            "flow {flow} starts at {} and finishes at {finish}; V is {}, the earliest {earliest:?}",
            served.rounded_start(),
            self.now
        );
        let slots = (finish - served.rounded_start()) / served.slot;
        self.served[slots as usize - 1] += 1;
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

/// Flows that are never idle, or, with `one_in`, about one in so many is backlogged.
fn drive(offers: &[Offer], one_in: Option<u32>, packets: u32, start: u64) {
    let mut link = scheduler(Gfq::starting_at(VirtualTime::new(start)));
    let mut reference = Reference::new(offers, start);
    let mut random = Random(start ^ u64::from(packets));
    for offer in offers {
        link.add_flow(config(offer.weight, offer.max_length))
            .unwrap();
    }
    for n in 0..packets {
        for (flow, offer) in offers.iter().enumerate() {
            let queued = reference.flows[flow].queue.len();
            let count = match one_in {
                None => 2 - queued.min(2),
                Some(one_in) => 3 * usize::from(random.below(one_in * offers.len() as u32) == 0),
            };
            for _ in 0..count {
                let bytes = random.pick(&offer.lengths);
                link.enqueue(FlowId::new(flow as u32), length(bytes), ())
                    .unwrap();
                reference.enqueue(flow, bytes);
            }
        }
        if !link.is_empty() {
            let packet = next(&mut link);
            let bytes = reference.serve(packet.owner.number() as usize);
            assert_eq!(bytes, packet.len.get());
        }
        let now = link.algorithm().virtual_time();
        assert_eq!(now, VirtualTime::new(reference.now as u64));
        if n % 100 == 0 {
            check(&link);
        }
    }
    let [early, late] = reference.served;
    assert!(early > 0 && late > 0, "{early} early and {late} late");
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

/// Where V starts: so that it stays on its circle, and so that it wraps.
const STARTS: [u64; 3] = [0, u64::MAX - 12_345, 1 << 55 | 1 << 60];

#[test]
fn every_packet_is_the_one_the_definition_chooses_where_all_flows_are_backlogged() {
    for offers in sets_of_flows() {
        for start in STARTS {
            drive(&offers, None, 10_000, start);
        }
    }
}

#[test]
fn every_packet_is_the_one_the_definition_chooses_where_flows_come_and_go() {
    for offers in sets_of_flows() {
        for start in STARTS {
            for one_in in 1..=4 {
                drive(&offers, Some(one_in), 5_000, start);
            }
        }
    }
}

/// Both flows have weight 1 and slots of 1024 bytes, of which the first takes nearly one
/// and the second a quarter: QFQ, to which both finish two slots after they start, may
/// serve either first.
#[test]
fn short_packets_finish_first() {
    for order in [[0, 1], [1, 0]] {
        let mut link = scheduler(Gfq::new());
        let flows = [1000, 250].map(|bytes| (link.add_flow(config(1, 1024)).unwrap(), bytes));
        // Each one's second packet starts within the first slot, or reaches out of it.
        for (flow, bytes) in order.map(|index: usize| flows[index]) {
            for _ in 0..5 {
                link.enqueue(flow, length(bytes), ()).unwrap();
            }
        }
        let sent: Vec<u32> = drain(&mut link).iter().map(|&(_, bytes)| bytes).collect();
        let first_long = sent.iter().rposition(|&bytes| bytes == 250);
        assert!(first_long < Some(7), "{sent:?}");
        let second_long = sent.iter().enumerate().filter(|(_, bytes)| **bytes == 1000);
        let second_long = second_long.map(|(at, _)| at).nth(1).unwrap();
        assert!(
            second_long >= 5,
            "four short ones end in the first slot: {sent:?}"
        );
    }
}
