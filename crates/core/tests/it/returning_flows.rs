//! Flows that go idle for an instant and return: their lead stays, and with it the bounds of all others.
//!
//! Under a cap of V + sigma - 1 on a returning flow's F, both schedules break the bounds of QFQ and QFQ+.

use std::num::NonZeroU32;

use crate::support::Offer;
use crate::support::wire::Wire;
use fairlane_core::Scheduler;
use fairlane_core::bounds::Guarantees;
use fairlane_core::sched::{AUTOMATIC_MEMBERS, Algorithm, Plus, Qfq};
use fairlane_testkit::numbers::config;

/// Flows and their arrivals.
pub(crate) struct Schedule {
    offers: Vec<Offer>,
    /// Time, flow and bytes; in order.
    arrivals: Vec<(u64, usize, u32)>,
    /// The burst with which each flow returns at once when its last packet is taken.
    returns: Vec<Vec<u32>>,
    packets: u32,
}

impl Schedule {
    /// B-WFI and T-WFI over their bounds, the largest of any flow.
    pub(crate) fn of_bounds<A: Scheduler>(
        &self,
        algorithm: A,
        guarantees: Algorithm,
    ) -> (f64, f64) {
        let mut wire = Wire::new(algorithm, &self.offers, 0);
        let mut arrivals = self.arrivals.iter().peekable();
        let mut arrive = |wire: &mut Wire<A>, end: u64| {
            while let Some(&(at, flow, bytes)) = arrivals.next_if(|arrival| arrival.0 < end) {
                wire.arrive(flow, bytes, at);
            }
        };
        for _ in 0..self.packets {
            let now = wire.sent;
            arrive(&mut wire, now + 1);
            let packet = wire.next_packet().expect("some flow is backlogged");
            if wire.meter.waiting(packet.flow) == 0 {
                for &bytes in &self.returns[packet.flow] {
                    wire.arrive(packet.flow, bytes, now);
                }
            }
            arrive(&mut wire, now + u64::from(packet.bytes));
            wire.end(packet);
        }
        wire.meter.ended(wire.sent);
        let config = |offer: &Offer| config(offer.weight, offer.max_length);
        let configs: Vec<_> = self.offers.iter().map(config).collect();
        let promised = Guarantees::new(guarantees, &configs, wire.sent);
        wire.of_bounds(|flow| promised.of(&configs[flow]).expect("a bound"))
    }

    /// QFQ does, and QFQ+ with this M.
    fn stays_within_bounds(&self, members: NonZeroU32) {
        let qfq = self.of_bounds(Qfq::new(), Algorithm::Qfq);
        let plus = Plus::<Qfq>::new(members);
        let plus = self.of_bounds(plus, Algorithm::QfqPlus(members));
        let within = |(service, delay): (f64, f64)| service <= 1.0 && delay <= 1.0;
        assert!(
            within(qfq) && within(plus),
            "B-WFI and T-WFI of the bounds: {qfq:?} under QFQ, {plus:?} under QFQ+"
        );
    }
}

/// Of 600 light flows, each has two packets at a time. Eight heavy ones send a short and a long one whenever they are
/// idle, and end a slot further each time than they began. Another heavy one sends its share.
pub(crate) fn leaving_and_returning() -> Schedule {
    const LIGHT: usize = 600;
    const HEAVY: usize = 8;
    let light = (0..LIGHT).map(|_| (Offer::of(1, 1024), vec![1000, 1024]));
    // Longest packets that differ, so that each is alone in its aggregate.
    let heavy = (0..HEAVY as u32).map(|n| (Offer::of(64, 1024 - n), vec![300, 1024 - n]));
    let victim = (Offer::of(19, 200), vec![]);
    let all = light.chain(heavy).chain([victim]);
    let (offers, returns): (Vec<_>, Vec<Vec<u32>>) = all.unzip();
    let sum: u64 = offers.iter().map(|offer| u64::from(offer.weight)).sum();
    let flows = returns.iter().enumerate();
    let mut arrivals: Vec<(u64, usize, u32)> = flows
        .flat_map(|(flow, burst)| burst.iter().map(move |&bytes| (0, flow, bytes)))
        .collect();
    arrivals.extend((0..400).map(|n| (n * 200 * sum / 19, LIGHT + HEAVY, 200)));
    Schedule {
        offers,
        arrivals,
        returns,
        packets: 4_000,
    }
}

#[test]
fn a_flow_within_its_share_keeps_its_bound_beside_flows_that_leave_and_return() {
    leaving_and_returning().stays_within_bounds(AUTOMATIC_MEMBERS);
}

/// Of 256 flows of one weight, 126 leave for an instant at the beginning of a slot, after two packets that take them
/// to its end and through the next one. All have more packets then but one flow, of which a packet of one byte comes.
pub(crate) fn leaving_at_the_beginning_of_a_slot() -> Schedule {
    const FLOWS: u32 = 256;
    let [short, long] = [1024, 2048];
    let slot = short * FLOWS;
    let now = 2 * long - 1;
    // To the last byte of the first slot.
    let first = (slot - 1 - now) / FLOWS;
    let mut offers = vec![Offer::of(1, long), Offer::of(1, 2 * long)];
    offers.extend((2..FLOWS).map(|_| Offer::of(1, short)));
    let mut arrivals = vec![(0, 0, long - 1), (0, 0, long), (0, 0, 1), (0, 1, 1)];
    let (mut leaving, mut returns) = (Vec::new(), Vec::new());
    let mut served = now;
    for flow in 2..FLOWS {
        let taken = served + first;
        served = taken + short;
        // S if F were capped at V + sigma - 1.
        let capped = served + slot - 1;
        if now + first * FLOWS + slot >= capped + FLOWS {
            leaving.push(flow);
            let again = (2 * slot - 1 - capped) / FLOWS;
            returns.push((served - 1, flow as usize, again));
            returns.extend((0..6).map(|_| (served - 1, flow as usize, short)));
        }
    }
    assert_eq!(leaving.len(), 126);
    // The last in a bucket is the first out.
    let others = (2..FLOWS).filter(|flow| !leaving.contains(flow));
    for flow in others.rev().chain(leaving.iter().copied().rev()) {
        let packets = if leaving.contains(&flow) { 1 } else { 7 };
        arrivals.push((long, flow as usize, first));
        arrivals.extend((0..packets).map(|_| (long, flow as usize, short)));
    }
    arrivals.push((now, 0, 1));
    arrivals.extend(returns);
    let mut arrivals: Vec<_> = arrivals
        .into_iter()
        .map(|(at, flow, bytes)| (u64::from(at), flow, bytes))
        .collect();
    arrivals.sort_by_key(|arrival| arrival.0);
    Schedule {
        returns: vec![Vec::new(); offers.len()],
        packets: arrivals.len() as u32,
        offers,
        arrivals,
    }
}

#[test]
fn a_flow_keeps_its_bound_beside_equals_that_leave_at_the_beginning_of_a_slot() {
    leaving_at_the_beginning_of_a_slot().stays_within_bounds(NonZeroU32::MIN);
}
