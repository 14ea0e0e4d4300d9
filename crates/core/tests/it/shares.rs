//! Weights are shares: over a long run, and within the papers' bounds at every packet.

use std::collections::VecDeque;

use crate::support::{
    Backlogged, OfBound as _, Offer, Random, Wfi, check, config, length, next, scheduler, weight,
};
use fairlane_core::bounds::{self, Slot, Terms, Transmit};
use fairlane_core::sched::{Drr, Fifo, Gfq, Qfq, SKps};
use fairlane_core::{FlowId, Scheduler};

/// Returns sets of flows, with the number of packets to serve.
fn sets_of_flows() -> Vec<(&'static str, Vec<Offer>, usize)> {
    let mut random = Random(7);
    // As many of each order of magnitude.
    let mut any_weight = || {
        let below = 1 << random.below(20);
        (1 + random.below(2 * below)).min(1_000_000)
    };
    vec![
        ("one flow", vec![Offer::mixed(17, 1500)], 2_000),
        (
            "weights 1 and 10^6",
            vec![Offer::mixed(1, 1500), Offer::mixed(1_000_000, 1500)],
            200_000,
        ),
        (
            "weights 1 to 2^14",
            (0..15).map(|n| Offer::mixed(1 << n, 1500)).collect(),
            200_000,
        ),
        (
            "weights 1 to 2^14, packets of one length",
            (0..15).map(|n| Offer::of(1 << n, 1500)).collect(),
            200_000,
        ),
        (
            "4096 equal flows",
            (0..4096).map(|_| Offer::mixed(1, 1500)).collect(),
            100_000,
        ),
        (
            "any weights and lengths",
            (0..200)
                .map(|n| Offer::mixed(any_weight(), [64, 576, 1500, 9000, 65_535][n % 5]))
                .collect(),
            200_000,
        ),
        (
            "short packets beside long ones",
            [(1000, 1), (1000, 64), (3, 100), (1, 65_535), (1, 40_000)]
                .map(|(weight, longest)| Offer::mixed(weight, longest))
                .into(),
            100_000,
        ),
    ]
}

fn keeps_within_the_index<A: Scheduler>(new: fn() -> A) {
    for (name, offers, packets) in sets_of_flows() {
        let mut wfi = Wfi::new(&offers);
        let mut flows = Backlogged::new(new(), offers);
        for _ in 0..packets {
            let (flow, bytes) = flows.serve();
            wfi.serve(flow, bytes);
        }
        let of_bound = wfi.worst(4, 1);
        assert!(of_bound < 1.0, "{name}: {of_bound} of the bound");
        check(&flows.link);
    }
}

/// B-WFI^k < 4 phi sigma_i + phi L, for every flow at every packet (Eq. 7): the bound that holds ([`bounds::qfq`],
/// docs/corrections.md), phi (3 sigma_i + L_k / phi + L - L_k) between packets, in slots alone, as L_k / phi is a slot
/// at most. The report's bound, 3 phi sigma_i + 2 phi L (Theorem 1), is exceeded below.
#[test]
fn qfq_keeps_every_flow_within_the_worst_case_fair_index() {
    keeps_within_the_index(Qfq::new);
}

/// The bound above is the right one: this schedule, which follows from the equations
/// alone, comes within three percent of it, and exceeds Theorem 1's as printed.
#[test]
fn the_worst_case_fair_index_is_nearly_reached() {
    // Slots of 1024, 2048 and 64 bytes a unit of weight.
    let offers = [
        Offer::of(1, 1024),
        Offer::of(1, 2048),
        Offer::of(1022, 65_000),
    ];
    let [small, holder, large] = [0, 1, 2].map(FlowId::new);
    let mut wfi = Wfi::new(&offers);
    let mut link = scheduler(Qfq::new());
    for offer in &offers {
        link.add_flow(config(offer.weight, offer.max_length))
            .unwrap();
    }
    // The small flow starts at the very end of a slot and is served at its beginning,
    // so that its next start is two slots after V, less two bytes.
    for bytes in [1023, 1024, 1, 1024] {
        link.enqueue(small, length(bytes), ()).unwrap();
    }
    wfi.backlogged(0);
    wfi.serve(0, next(&mut link).len.get());
    // V does not jump after it, because another flow is eligible.
    link.enqueue(holder, length(1), ()).unwrap();
    wfi.backlogged(1);
    wfi.serve(0, next(&mut link).len.get());
    // The large flow's packets now finish first until V is at the small flow's F. Then
    // its one byte moves it to the beginning of a slot, and that happens once more.
    for _ in 0..100 {
        link.enqueue(large, length(65_000), ()).unwrap();
    }
    wfi.backlogged(2);
    let mut served = 0;
    while served < 2 {
        let packet = next(&mut link);
        wfi.serve(packet.owner.number() as usize, packet.len.get());
        served += u32::from(packet.owner == small);
    }
    let of_bound = wfi.of_bound(0, 4, 1);
    assert!((0.97..1.0).contains(&of_bound), "{of_bound} of the bound");
    assert!(wfi.of_bound(0, 3, 2) > 1.0);
}

/// The same, by the same steps: S^ <= S < S^ + sigma_i, F^ = S^ + 2 sigma_i, and V is at
/// most L after F^. The report allows three slots more.
#[test]
fn s_kps_keeps_every_flow_within_the_worst_case_fair_index_of_qfq() {
    keeps_within_the_index(SKps::new);
}

/// B-WFI^k < phi (2 sigma_i + L) + 2 (1 - phi) L_k, for every flow at every packet: S is at most sigma_i + L_k / phi
/// after V, less the advance of V meanwhile, as for QFQ; and V is at most L after the rounded F of a packet, which is
/// less than sigma_i + l / phi after S. No other number of slots would do: lengths of all kinds bring F just before and
/// just after the end of a slot.
#[test]
fn gfq_keeps_every_flow_within_the_worst_case_fair_index() {
    let mut nearest = 0.0f64;
    for (name, offers, packets) in sets_of_flows() {
        let mut wfi = Wfi::new(&offers);
        let mut flows = Backlogged::new(Gfq::new(), offers);
        for _ in 0..packets {
            let (flow, bytes) = flows.serve();
            wfi.serve(flow, bytes);
        }
        assert!(wfi.worst(4, 1) < 1.0, "{name}: no less fair than QFQ");
        for flow in 0..flows.offers.len() {
            let of_bound = wfi.of_bound_from_finish(flow, 2);
            assert!(of_bound < 1.0, "{name}: {of_bound} of the bound");
            nearest = nearest.max(of_bound);
        }
        check(&flows.link);
    }
    assert!(nearest > 0.5, "{nearest} of the bound");
}

/// Bytes that each of these flows, never idle, sends while `packets` are served.
fn served<A: Scheduler>(flows: &mut Backlogged<A>, packets: u32) -> Vec<u64> {
    let mut served = vec![0; flows.offers.len()];
    for _ in 0..packets {
        let (flow, bytes) = flows.serve();
        served[flow] += u64::from(bytes);
    }
    served
}

/// Weights whose inverses take the largest errors when they are rounded.
#[test]
fn qfq_shares_are_right_to_one_in_a_hundred_thousand() {
    let offers = [999_983, 999_979, 524_289, 333_331].map(|weight| Offer {
        weight,
        max_length: 1500,
        lengths: vec![40, 576, 1200, 1500],
    });
    let sum: u32 = offers.iter().map(|offer| offer.weight).sum();
    let mut flows = Backlogged::new(Qfq::new(), offers.to_vec());
    let served = served(&mut flows, 2_000_000);
    let work: u64 = served.iter().sum();
    for (offer, served) in offers.iter().zip(served) {
        let fair = work as f64 * f64::from(offer.weight) / f64::from(sum);
        let error = served as f64 / fair - 1.0;
        assert!(error.abs() < 1e-5, "weight {}: {error:e}", offer.weight);
    }
}

/// Each flow's turn serves its quantum, give or take a packet, and no flow takes two turns between two of another. So
/// at any packet, no flow is further ahead of another than one quantum and the longest packet that a turn may leave
/// unsent; and where a round ends, no flow is a quantum from the fair share.
#[test]
fn drr_shares_are_right_to_a_quantum_at_every_packet() {
    // Of one flow alone, the end of a turn is invisible.
    for (name, offers, packets) in sets_of_flows().split_off(1) {
        let unit = offers
            .iter()
            .map(|offer| offer.max_length.div_ceil(offer.weight))
            .max()
            .unwrap();
        let quantum = |flow: usize| u64::from(offers[flow].weight) * u64::from(unit);
        let mut flows = Backlogged::new(Drr::new(), offers.clone());
        let mut served = vec![0u64; offers.len()];
        let (mut work, mut turn, mut rounds) = (0u64, 0, 0);
        let sum: u64 = offers.iter().map(|offer| u64::from(offer.weight)).sum();
        for _ in 0..packets {
            let next = flows.next_flow();
            if next == 0 && turn != 0 {
                rounds += 1;
                for (flow, &bytes) in served.iter().enumerate() {
                    let fair = work as f64 * f64::from(offers[flow].weight) / sum as f64;
                    assert!(
                        (bytes as f64 - fair).abs() < quantum(flow) as f64,
                        "{name}: flow {flow} has sent {bytes}, not {fair}, after {rounds} rounds"
                    );
                }
            }
            assert!(
                next == turn || next == (turn + 1) % offers.len(),
                "{name}: the turn goes from {turn} to {next}"
            );
            turn = next;
            let (flow, bytes) = flows.serve();
            assert_eq!(flow, next);
            served[flow] += u64::from(bytes);
            work += u64::from(bytes);
            let turns = rounds + 1;
            assert!(
                served[flow] <= turns * quantum(flow),
                "{name}: flow {flow} has sent {} in {turns} turns",
                served[flow]
            );
            assert!(
                served[flow] + u64::from(offers[flow].max_length) > rounds * quantum(flow),
                "{name}: flow {flow} has sent {} in {rounds} rounds",
                served[flow]
            );
        }
        check(&flows.link);
    }
}

#[test]
fn fifo_shares_follow_the_arrivals_and_not_the_weights() {
    let mut link = scheduler(Fifo::new());
    let mut random = Random(3);
    let flows = [1_000_000, 1, 1000].map(|weight| link.add_flow(config(weight, 1500)).unwrap());
    let mut arrivals = VecDeque::new();
    for n in 0..10_000u32 {
        let (flow, bytes) = (random.pick(&flows), length(1 + random.below(1500)));
        link.enqueue(flow, bytes, n).unwrap();
        arrivals.push_back((flow, bytes, n));
        if random.below(3) > 0 {
            let packet = next(&mut link);
            let departure = (packet.owner, packet.len, packet.payload);
            assert_eq!(arrivals.pop_front(), Some(departure));
        }
    }
}

/// On a link that sends a byte in a unit of time, a packet leaves no later than 3 sigma_i + L after
/// its flow would have sent its backlog at its share of the link, where all packets are of one length
/// ([`bounds::qfq_equal_packets`], with L on the wire).
#[test]
fn half_the_link_does_not_wait_for_a_thousand_small_flows() {
    let mut offers = vec![Offer::of(1, 1500); 1000];
    offers.push(Offer::of(1000, 1500));
    let terms = Terms::new(
        weight(1000),
        2000,
        length(1500),
        length(1500),
        Transmit::Direct,
    );
    let bound = bounds::qfq_equal_packets(&terms.unwrap(), Slot::Actual);
    let bound = bound.delay.bytes() as i64;
    assert_eq!(bound, 13_500, "nine packets, not a thousand");

    let mut link = scheduler(Qfq::new());
    for offer in &offers {
        link.add_flow(config(offer.weight, 1500)).unwrap();
    }
    for small in (0..1000).map(FlowId::new) {
        link.enqueue(small, length(1500), ()).unwrap();
    }
    let half = FlowId::new(1000);
    let mut random = Random(11);
    // Arrival and backlog then, of each packet of the flow that is not yet sent.
    let mut waiting = VecDeque::new();
    let (mut now, mut backlog, mut worst, mut packets) = (0i64, 0i64, i64::MIN, 0);
    while packets < 30_000 {
        let packet = next(&mut link);
        let bytes = i64::from(packet.len.get());
        let begin = now;
        now += bytes;
        if packet.owner == half {
            packets += 1;
            backlog -= bytes;
            let (arrival, backlog) = waiting.pop_front().unwrap();
            worst = worst.max(now - arrival - 2 * backlog);
        } else {
            link.enqueue(packet.owner, length(1500), ()).unwrap();
        }
        // Bursts of up to eight packets, at nine tenths of the flow's share.
        if random.below(10) == 0 {
            let arrival = begin + i64::from(random.below(bytes as u32));
            let in_flight = if packet.owner == half {
                now - arrival
            } else {
                0
            };
            for _ in 0..1 + random.below(8) {
                link.enqueue(half, length(1500), ()).unwrap();
                backlog += 1500;
                waiting.push_back((arrival, backlog + in_flight));
            }
        }
    }
    assert!(worst <= bound, "{worst} of {bound}");
}
