//! QFQ against its own definition: Eqs. 2 to 6 and 29 of the report.

use crate::support::rounded::{Arrivals, Definition, Flow, Reference, drive, sets_of_flows};
use crate::support::{Offer, times};
use fairlane_core::sched::Qfq;

struct Equations;

impl Definition for Equations {
    /// Eq. 5.
    fn start(flow: &Flow) -> i128 {
        flow.start / flow.slot * flow.slot
    }

    fn finish(flow: &Flow) -> i128 {
        Self::start(flow) + 2 * flow.slot
    }

    /// Eq. 29.
    fn arrival(of: &Reference<Self>, flow: usize) -> i128 {
        let blocker = blocker(of, of.flows[flow].slot);
        blocker.map_or(of.now, |finish| of.now.min(finish))
    }

    /// One that left with F after V comes again when V is within a slot of it.
    fn may_arrive(of: &Reference<Self>, flow: usize) -> bool {
        let flow = &of.flows[flow];
        flow.start < of.now + flow.slot
    }
}

/// S_i of Eq. 6 for the group with this slot.
fn group_start(of: &Reference<Equations>, slot: i128) -> Option<i128> {
    let members = of.backlogged().filter(|flow| flow.slot == slot);
    members.map(Equations::start).min()
}

/// F_b of Eq. 29: of the lowest group above `slot` in ER, which is eligible and
/// has no eligible group above it that finishes earlier.
fn blocker(of: &Reference<Equations>, slot: i128) -> Option<i128> {
    let eligible: Vec<(i128, i128)> = (0..120)
        .map(|i| 1i128 << i)
        .filter_map(|slot| Some((slot, group_start(of, slot)?)))
        .filter(|&(_, start)| start <= of.now)
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

fn check(offers: &[Offer], arrivals: Arrivals, packets: u32, seed: u64) {
    let virtual_time = Qfq::virtual_time;
    drive::<Equations, _>(Qfq::new(), virtual_time, offers, arrivals, packets, seed);
}

#[test]
fn every_packet_is_the_one_the_equations_choose_where_all_flows_are_backlogged() {
    for offers in sets_of_flows() {
        check(&offers, Arrivals::Standing, 20_000, 1);
    }
}

#[test]
fn every_packet_is_the_one_the_equations_choose_where_flows_come_and_go() {
    for (offers, seed) in sets_of_flows().iter().zip(2..) {
        for one_in in 1..=4 {
            check(offers, Arrivals::OneIn(one_in), times(2_500, 10_000), seed);
        }
    }
}
