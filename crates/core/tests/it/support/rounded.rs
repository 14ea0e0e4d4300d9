//! The algorithms with rounded timestamps by their own definitions, computed for every flow in
//! numbers that never wrap. Each packet that leaves must be one with the smallest rounded finish
//! time among those that are eligible.

use std::collections::VecDeque;

use super::{FRACTION, Offer, Random, check, config, length, next, scheduler, slot};
use fairlane_core::scheduler::Scheduler;
use fairlane_core::{FlowId, VirtualTime};

/// A flow in the definition.
pub(crate) struct Flow {
    inverse_weight: i128,
    /// sigma_i.
    pub slot: i128,
    /// S while it holds packets, the last F while it does not.
    pub start: i128,
    /// Lengths of its queued packets.
    pub queue: VecDeque<u32>,
}

impl Flow {
    /// F of its head.
    pub(crate) fn finish(&self) -> i128 {
        self.start + i128::from(self.queue[0]) * self.inverse_weight
    }
}

/// The differences between the algorithms.
pub(crate) trait Definition: Sized {
    /// S^.
    fn start(flow: &Flow) -> i128;

    /// F^ of a flow with packets.
    fn finish(flow: &Flow) -> i128;

    /// Returns the least S of a flow that becomes backlogged.
    fn arrival(of: &Reference<Self>, _flow: usize) -> i128 {
        of.now
    }

    /// Returns whether the test lets a flow become backlogged now.
    fn may_arrive(_of: &Reference<Self>, _flow: usize) -> bool {
        true
    }
}

/// All flows, and virtual time.
pub(crate) struct Reference<D> {
    pub flows: Vec<Flow>,
    /// V, and its fraction in 2^-64.
    pub now: i128,
    fraction: u128,
    /// In 2^-64.
    inverse_sum: u128,
    /// Packets served whose finish time lay one slot after the start, and two.
    pub served: [u32; 2],
    definition: std::marker::PhantomData<D>,
}

impl<D: Definition> Reference<D> {
    fn new(offers: &[Offer], start: VirtualTime) -> Self {
        let sum: u64 = offers.iter().map(|offer| u64::from(offer.weight)).sum();
        let longest = offers.iter().map(|offer| offer.max_length).max().unwrap();
        let start = i128::from(start.units());
        let flow = |offer: &Offer| Flow {
            inverse_weight: (1u64 << FRACTION).div_ceil(offer.weight.into()).into(),
            slot: slot(offer, sum, longest) as i128,
            start,
            queue: VecDeque::new(),
        };
        Reference {
            flows: offers.iter().map(flow).collect(),
            now: start,
            fraction: 0,
            inverse_sum: u128::from(u64::MAX / sum),
            served: [0; 2],
            definition: std::marker::PhantomData,
        }
    }

    pub(crate) fn backlogged(&self) -> impl Iterator<Item = &Flow> {
        self.flows.iter().filter(|flow| !flow.queue.is_empty())
    }

    fn enqueue(&mut self, flow: usize, bytes: u32) {
        if self.backlogged().next().is_none() {
            // V passes the last F of each flow when a busy period starts.
            self.now = self
                .flows
                .iter()
                .map(|flow| flow.start)
                .fold(self.now, i128::max);
        }
        if self.flows[flow].queue.is_empty() {
            let arrival = D::arrival(self, flow);
            self.flows[flow].start = self.flows[flow].start.max(arrival);
        }
        self.flows[flow].queue.push_back(bytes);
        self.jump();
    }

    /// The second term of Eq. 3, with rounded start times. V is compared without its fraction, which a jump does not
    /// change.
    fn jump(&mut self) {
        if let Some(first) = self.backlogged().map(D::start).min() {
            self.now = self.now.max(first);
        }
    }

    fn serve(&mut self, flow: usize) -> u32 {
        let eligible = |flow: &&Flow| D::start(flow) <= self.now;
        let earliest = self.backlogged().filter(eligible).map(D::finish).min();
        let served = &self.flows[flow];
        let (start, finish) = (D::start(served), D::finish(served));
        assert!(
            eligible(&served) && Some(finish) == earliest,
            "flow {flow} starts at {start} and finishes at {finish}; V is {}, the earliest finish \
             {earliest:?}",
            self.now
        );
        let slots = (finish - start) / served.slot;
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

/// When flows get packets.
#[derive(Clone, Copy)]
pub(crate) enum Arrivals {
    /// At once: no flow is ever idle.
    Standing,
    /// Three now and then, so that about one flow in this number is backlogged.
    OneIn(u32),
}

/// Drives these flows from `start` on, where `algorithm` starts too. Returns the packets served whose
/// finish time lay one slot after the start, and two.
pub(crate) fn drive<D: Definition, A: Scheduler>(
    algorithm: A,
    virtual_time: fn(&A) -> VirtualTime,
    offers: &[Offer],
    arrivals: Arrivals,
    packets: u32,
    seed: u64,
) -> [u32; 2] {
    let start = virtual_time(&algorithm);
    let mut reference = Reference::<D>::new(offers, start);
    let mut link = scheduler(algorithm);
    let mut random = Random(seed);
    for offer in offers {
        link.add_flow(config(offer.weight, offer.max_length))
            .unwrap();
    }
    for n in 0..packets {
        for (flow, offer) in offers.iter().enumerate() {
            let queued = reference.flows[flow].queue.len();
            let count = match arrivals {
                Arrivals::Standing => 2 - queued.min(2),
                Arrivals::OneIn(one_in) => {
                    let due = random.below(one_in * offers.len() as u32) == 0;
                    3 * usize::from(due && (queued > 0 || D::may_arrive(&reference, flow)))
                }
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
        let now = virtual_time(link.algorithm());
        assert_eq!(now, VirtualTime::new(reference.now as u64), "V");
        if n % 100 == 0 {
            check(&link);
        }
    }
    reference.served
}

/// Weights and lengths of many kinds.
pub(crate) fn sets_of_flows() -> Vec<Vec<Offer>> {
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
