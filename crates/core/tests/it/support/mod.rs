//! Code shared by the tests: short names, and the measure of Eq. 7 over the bounds. Flows that are never idle and their
//! meter are the testkit's.

pub(crate) mod algorithms;
pub(crate) mod rounded;
pub(crate) mod tree;
pub(crate) mod wire;

use std::env;

use fairlane_core::scheduler::Scheduler;
use fairlane_core::{FlowId, Packet, PacketScheduler};
pub(crate) use fairlane_testkit::flows::{Backlogged, Offer, Random, Wfi};
pub(crate) use fairlane_testkit::numbers::{config, length, scheduler, weight};
use fairlane_testkit::{check_is_due, long_tests};
use proptest::prelude::ProptestConfig;

/// PROPTEST_CASES, or a few cases, or [more](times) if tests are to be long: up to four times as many.
pub(crate) fn some_cases(few: u32) -> ProptestConfig {
    let default = ProptestConfig::default();
    match env::var_os("PROPTEST_CASES") {
        Some(_) => default,
        None => ProptestConfig {
            cases: times(few, 4 * few),
            ..default
        },
    }
}

/// Returns the number of repetitions of a test: `few`, or `many` if tests are to be long; half as many in an
/// unoptimised build, which takes minutes for all of them.
pub(crate) fn times(few: u32, many: u32) -> u32 {
    match long_tests() {
        false => few,
        true if cfg!(debug_assertions) => few.max(many / 2),
        true => many,
    }
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

/// Checks all invariants, at some of the calls in the short form of a test.
pub(crate) fn check<A: Scheduler, P>(link: &PacketScheduler<A, P>) {
    if !check_is_due(5) {
        return;
    }
    if let Err(violation) = link.invariants() {
        panic!("{}: {violation}", A::NAME);
    }
}

/// Runs a generic test on each algorithm.
macro_rules! for_every_algorithm {
    ($test:ident) => {
        for &algorithm in fairlane_core::sched::Algorithm::ALL {
            fairlane_core::with_algorithm!(algorithm, new => $test(new()));
        }
    };
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

/// The measured B-WFI over the bounds of algorithms with slots.
pub(crate) trait OfBound {
    /// [`of_bound`](Self::of_bound) of the flow for which it is largest, to the end of the run.
    fn worst(&mut self, slots: u32, packets: u32) -> f64;

    /// B-WFI of the flow over `phi (slots sigma_i + packets L)`: at most 1 where that
    /// is a bound.
    ///
    /// The arithmetic adds two roundings to a theorem's bound, and nothing else. An
    /// inverse weight is rounded up to 2^-40, so that the flow is charged for its
    /// service up to phi 2^-40 times too much. V advances by the inverse of the sum,
    /// rounded down to 2^-64, for each byte, and is then read rounded down to 2^-40.
    fn of_bound(&self, flow: usize, slots: u32, packets: u32) -> f64;

    /// B-WFI of the flow over `(2 - 2 phi) L^k + phi (slots sigma_i + L)`, for finish times
    /// that are rounded by themselves.
    fn of_bound_from_finish(&self, flow: usize, slots: u32) -> f64;

    /// B-WFI of the flow over the least there is, `(2 - 2 phi) L^k + phi L`.
    fn of_least_bound(&self, flow: usize) -> f64 {
        self.of_bound_from_finish(flow, 0)
    }
}

impl OfBound for Wfi {
    fn worst(&mut self, slots: u32, packets: u32) -> f64 {
        let flows = 0..self.offers().len();
        flows.clone().for_each(|flow| self.look(flow));
        flows
            .map(|flow| self.of_bound(flow, slots, packets))
            .fold(0.0, f64::max)
    }

    fn of_bound(&self, flow: usize, slots: u32, packets: u32) -> f64 {
        let (offer, longest) = (&self.offers()[flow], longest(self));
        let (weight, sum) = (i128::from(offer.weight), self.weight_sum());
        let sigma = slot(offer, sum as u64, longest) as i128;
        let bound = weight
            * (i128::from(slots) * sigma * sum + (i128::from(packets * longest) << FRACTION));
        of(self, flow, bound)
    }

    fn of_bound_from_finish(&self, flow: usize, slots: u32) -> f64 {
        let (offer, longest) = (&self.offers()[flow], longest(self));
        let (weight, sum) = (i128::from(offer.weight), self.weight_sum());
        let sigma = slot(offer, sum as u64, longest) as i128;
        let own = 2 * (sum - weight) * i128::from(offer.max_length);
        let least = (own + weight * i128::from(longest)) << FRACTION;
        of(self, flow, weight * i128::from(slots) * sigma * sum + least)
    }
}

fn longest(wfi: &Wfi) -> u32 {
    let lengths = wfi.offers().iter().map(|offer| offer.max_length);
    lengths.max().unwrap()
}

/// B-WFI of the flow, less the two roundings, over a bound in 2^-[`FRACTION`] bytes
/// times the sum of weights.
fn of(wfi: &Wfi, flow: usize, bound: i128) -> f64 {
    let (weight, sum) = (i128::from(wfi.offers()[flow].weight), wfi.weight_sum());
    let work = i128::from(wfi.work());
    let charged_too_much = weight * weight * work;
    let clock_too_slow = weight * sum * ((work >> (64 - FRACTION)) + 2);
    let worst = (wfi.exact(flow) << FRACTION) - charged_too_much - clock_too_slow;
    worst as f64 / bound as f64
}
