//! What the tests share: short names, a source of numbers that is the same in every
//! run, flows that are never idle, and the measure of Eq. 7.

pub(crate) mod model;
pub(crate) mod rounded;
pub(crate) mod tree;

use std::env;

use fairlane_core::scheduler::Scheduler;
use fairlane_core::{FlowConfig, FlowId, Length, Packet, PacketScheduler, SchedulerLimits, Weight};
use proptest::prelude::ProptestConfig;

/// Whether tests that are long by nature take their whole form.
fn long_tests() -> bool {
    env::var_os("FAIRLANE_LONG_TESTS").is_some()
}

/// PROPTEST_CASES, or a few cases, or as many as others have where tests are to be long.
pub(crate) fn some_cases(few: u32) -> ProptestConfig {
    let default = ProptestConfig::default();
    match env::var_os("PROPTEST_CASES").is_some() || long_tests() {
        true => default,
        false => ProptestConfig {
            cases: few,
            ..default
        },
    }
}

/// How often a test does what it does: `few` times, or `many` where tests are to be long.
pub(crate) fn times(few: u32, many: u32) -> u32 {
    if long_tests() { many } else { few }
}

pub(crate) fn length(bytes: u32) -> Length {
    Length::new(bytes).unwrap()
}

pub(crate) fn weight(weight: u32) -> Weight {
    Weight::new(weight).unwrap()
}

/// A flow of this weight with packets up to `max_length`.
pub(crate) fn config(of_weight: u32, max_length: u32) -> FlowConfig {
    FlowConfig::new(weight(of_weight), length(max_length))
}

pub(crate) fn scheduler<A: Scheduler, P>(algorithm: A) -> PacketScheduler<A, P> {
    PacketScheduler::new(algorithm, SchedulerLimits::default())
}

/// The next packet, which must be there.
pub(crate) fn next<A: Scheduler, P: std::fmt::Debug>(
    link: &mut PacketScheduler<A, P>,
) -> Packet<P> {
    let Some(packet) = link.dequeue() else {
        panic!("{}: {} packets wait", A::NAME, link.len());
    };
    packet
}

/// All that is left, as (flow, bytes) in order of departure.
pub(crate) fn drain<A: Scheduler, P: std::fmt::Debug>(
    link: &mut PacketScheduler<A, P>,
) -> Vec<(FlowId, u32)> {
    let mut departures = Vec::new();
    while !link.is_empty() {
        let packet = next(link);
        departures.push((packet.owner, packet.len.get()));
    }
    assert!(link.dequeue().is_none());
    departures
}

pub(crate) fn check<A: Scheduler, P>(link: &PacketScheduler<A, P>) {
    if let Err(violation) = link.invariants() {
        panic!("{}: {violation}", A::NAME);
    }
}

/// Runs a generic test on each algorithm.
macro_rules! for_every_algorithm {
    ($test:ident) => {
        for algorithm in fairlane_core::sched::Algorithm::ALL {
            fairlane_core::with_algorithm!(algorithm, new => $test(new()));
        }
    };
}

/// Steele, Lea, Flood: SplitMix64. The same numbers in every run.
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// 0 to `count` - 1.
    pub(crate) fn below(&mut self, count: u32) -> u32 {
        (self.number() % u64::from(count)) as u32
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u32) as usize]
    }
}

/// A flow of a test: its weight, its longest packet, the lengths that it sends.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    pub weight: u32,
    pub max_length: u32,
    pub lengths: Vec<u32>,
}

impl Offer {
    pub(crate) fn of(weight: u32, length: u32) -> Offer {
        Offer {
            weight,
            max_length: length,
            lengths: vec![length],
        }
    }

    /// Short and long packets and some in between.
    pub(crate) fn mixed(weight: u32, max_length: u32) -> Offer {
        let lengths = [1, 2, 3, 10, 29, 67, 90, 100].map(|percent| max_length * percent / 100);
        Offer {
            weight,
            max_length,
            lengths: lengths.into_iter().filter(|&length| length > 0).collect(),
        }
    }
}

/// Flows that are never idle: numbers 0 and up, in the order of their offers.
pub(crate) struct Backlogged<A: Scheduler> {
    pub link: PacketScheduler<A, ()>,
    pub offers: Vec<Offer>,
    random: Random,
}

impl<A: Scheduler> Backlogged<A> {
    pub(crate) fn new(algorithm: A, offers: Vec<Offer>) -> Self {
        Self::holding(algorithm, offers, |_| 2)
    }

    /// Flows that hold so many packets each.
    pub(crate) fn holding(
        algorithm: A,
        offers: Vec<Offer>,
        packets: impl Fn(&Offer) -> u32,
    ) -> Self {
        let mut link = scheduler(algorithm);
        for offer in &offers {
            link.add_flow(config(offer.weight, offer.max_length))
                .unwrap();
        }
        let mut all = Backlogged {
            link,
            offers,
            random: Random(1),
        };
        for flow in 0..all.offers.len() {
            for _ in 0..packets(&all.offers[flow]) {
                all.refill(flow);
            }
        }
        all
    }

    fn refill(&mut self, flow: usize) {
        let bytes = self.random.pick(&self.offers[flow].lengths);
        let id = FlowId::new(flow as u32);
        self.link.enqueue(id, length(bytes), ()).unwrap();
    }

    /// Who would be served next.
    pub(crate) fn next_flow(&mut self) -> usize {
        let packet = self.link.peek().expect("all flows are backlogged");
        packet.owner.number() as usize
    }

    /// Serves one packet, in whose place another comes: its flow and bytes.
    pub(crate) fn serve(&mut self) -> (usize, u32) {
        let packet = next(&mut self.link);
        let flow = packet.owner.number() as usize;
        self.refill(flow);
        (flow, packet.len.get())
    }
}

/// Bits of fraction of QFQ's virtual time, in which the bounds are computed exactly.
pub(crate) const FRACTION: u32 = 40;

fn ceil_log2(x: u128) -> u32 {
    u128::BITS - (x - 1).leading_zeros()
}

/// sigma_i of a flow, in bytes per unit of weight with [`FRACTION`] bits of fraction:
/// Eq. 4 with the inverse weight as it is used, rounded up, and not finer than a 32nd
/// of L / (sum of weights), which the 64 buckets of a group ask for.
pub(crate) fn slot(offer: &Offer, weight_sum: u64, longest: u32) -> u128 {
    let inverse_weight = (1u128 << FRACTION).div_ceil(offer.weight.into());
    let own = ceil_log2(u128::from(offer.max_length) * inverse_weight);
    let lag = (u128::from(longest) << FRACTION) / u128::from(weight_sum) + 1;
    1 << own.max(ceil_log2(lag).saturating_sub(5))
}

/// B-WFI (Eq. 7) of every flow while the sum of weights is constant:
/// the most by which `phi W(t1, t2)` exceeds `W^k(t1, t2)` over any interval in which
/// flow k is backlogged. Counted in bytes times the sum of weights, it is exact.
///
/// It is enough to look at intervals from the end of one of the flow's packets (or
/// the start of its backlog) to the start of another: within its own packets the
/// difference only falls.
pub(crate) struct Wfi {
    offers: Vec<Offer>,
    weight_sum: i128,
    longest: u32,
    work: i128,
    /// Of each flow: W^k, the largest `W^k - phi W` of this backlog, the B-WFI so far.
    served: Vec<i128>,
    ahead: Vec<i128>,
    worst: Vec<i128>,
}

impl Wfi {
    pub(crate) fn new(offers: &[Offer]) -> Self {
        let count = offers.len();
        Wfi {
            weight_sum: offers.iter().map(|offer| i128::from(offer.weight)).sum(),
            longest: offers.iter().map(|offer| offer.max_length).max().unwrap(),
            offers: offers.to_vec(),
            work: 0,
            served: vec![0; count],
            ahead: vec![0; count],
            worst: vec![0; count],
        }
    }

    fn difference(&self, flow: usize) -> i128 {
        self.served[flow] * self.weight_sum - i128::from(self.offers[flow].weight) * self.work
    }

    /// The flow was idle until now.
    pub(crate) fn backlogged(&mut self, flow: usize) {
        self.ahead[flow] = self.difference(flow);
    }

    /// Measures the flow from here on.
    pub(crate) fn forget(&mut self, flow: usize) {
        self.worst[flow] = 0;
        self.backlogged(flow);
    }

    /// A packet of the flow is about to leave, or the run to end.
    pub(crate) fn look(&mut self, flow: usize) {
        let behind = self.ahead[flow] - self.difference(flow);
        self.worst[flow] = self.worst[flow].max(behind);
    }

    pub(crate) fn serve(&mut self, flow: usize, bytes: u32) {
        self.look(flow);
        self.work += i128::from(bytes);
        self.served[flow] += i128::from(bytes);
        self.ahead[flow] = self.ahead[flow].max(self.difference(flow));
    }

    /// B-WFI of the flow so far, in bytes.
    pub(crate) fn service(&self, flow: usize) -> f64 {
        self.worst[flow] as f64 / self.weight_sum as f64
    }

    /// What the link did in all, in bytes.
    pub(crate) fn work(&self) -> u64 {
        self.work as u64
    }

    /// [`of_bound`](Self::of_bound) of the flow for which it is largest, to the end of the run.
    pub(crate) fn worst(&mut self, slots: u32, packets: u32) -> f64 {
        let flows = 0..self.offers.len();
        flows.clone().for_each(|flow| self.look(flow));
        flows
            .map(|flow| self.of_bound(flow, slots, packets))
            .fold(0.0, f64::max)
    }

    /// B-WFI of the flow over `phi (slots sigma_i + packets L)`: at most 1 where that
    /// is a bound.
    ///
    /// The arithmetic adds two roundings to a theorem's bound, and nothing else. An
    /// inverse weight is rounded up to 2^-40, so that the flow is charged for its
    /// service up to phi 2^-40 times too much. V advances by the inverse of the sum,
    /// rounded down to 2^-64, for each byte, and is then read rounded down to 2^-40.
    pub(crate) fn of_bound(&self, flow: usize, slots: u32, packets: u32) -> f64 {
        let offer = &self.offers[flow];
        let (weight, sum) = (i128::from(offer.weight), self.weight_sum);
        let sigma = slot(offer, sum as u64, self.longest) as i128;
        let bound = weight
            * (i128::from(slots) * sigma * sum + (i128::from(packets * self.longest) << FRACTION));
        self.of(flow, bound)
    }

    /// B-WFI of the flow over the least there is, `(2 - 2 phi) L^k + phi L`.
    pub(crate) fn of_least_bound(&self, flow: usize) -> f64 {
        self.of_bound_from_finish(flow, 0)
    }

    /// B-WFI of the flow over `(2 - 2 phi) L^k + phi (slots sigma_i + L)`, for finish times
    /// that are rounded by themselves.
    pub(crate) fn of_bound_from_finish(&self, flow: usize, slots: u32) -> f64 {
        let offer = &self.offers[flow];
        let (weight, sum) = (i128::from(offer.weight), self.weight_sum);
        let sigma = slot(offer, sum as u64, self.longest) as i128;
        let own = 2 * (sum - weight) * i128::from(offer.max_length);
        let least = (own + weight * i128::from(self.longest)) << FRACTION;
        self.of(flow, weight * i128::from(slots) * sigma * sum + least)
    }

    /// B-WFI of the flow, less the two roundings, over a bound in 2^-[`FRACTION`] bytes
    /// times the sum of weights.
    fn of(&self, flow: usize, bound: i128) -> f64 {
        let (weight, sum) = (i128::from(self.offers[flow].weight), self.weight_sum);
        let charged_too_much = weight * weight * self.work;
        let clock_too_slow = weight * sum * ((self.work >> (64 - FRACTION)) + 2);
        let worst = (self.worst[flow] << FRACTION) - charged_too_much - clock_too_slow;
        worst as f64 / bound as f64
    }
}
