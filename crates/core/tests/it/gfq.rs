//! GFQ against its own definition: WF2Q+ with S rounded down and F rounded up to slots.

use crate::support::rounded::{self, Arrivals, Definition, Flow, sets_of_flows};
use crate::support::{Offer, config, drain, length, scheduler};
use fairlane_core::VirtualTime;
use fairlane_core::sched::Gfq;

struct Rounded;

impl Definition for Rounded {
    fn start(flow: &Flow) -> i128 {
        flow.start / flow.slot * flow.slot
    }

    fn finish(flow: &Flow) -> i128 {
        (flow.finish() + flow.slot - 1) / flow.slot * flow.slot
    }
}

fn drive(offers: &[Offer], arrivals: Arrivals, packets: u32, start: u64) {
    let gfq = Gfq::starting_at(VirtualTime::new(start));
    let (time, seed) = (Gfq::virtual_time, start ^ u64::from(packets));
    let [early, late] = rounded::drive::<Rounded, _>(gfq, time, offers, arrivals, packets, seed);
    assert!(early > 0 && late > 0, "{early} early and {late} late");
}

/// Where V starts: so that it stays on its circle, and so that it wraps.
const STARTS: [u64; 3] = [0, u64::MAX - 12_345, 1 << 55 | 1 << 60];

#[test]
fn every_packet_is_the_one_the_definition_chooses_where_all_flows_are_backlogged() {
    for offers in sets_of_flows() {
        for start in STARTS {
            drive(&offers, Arrivals::Standing, 10_000, start);
        }
    }
}

#[test]
fn every_packet_is_the_one_the_definition_chooses_where_flows_come_and_go() {
    for offers in sets_of_flows() {
        for start in STARTS {
            for one_in in 1..=4 {
                drive(&offers, Arrivals::OneIn(one_in), 5_000, start);
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
