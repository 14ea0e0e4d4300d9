//! The fluid server: by hand, and what must hold for any arrivals.

use crate::support::{length, rate};
use fairlane_core::{FlowId, Weight};
use fairlane_sim::{Gps, Link, Picos, TransmitQueue, Work};
use proptest::prelude::*;

fn weight(weight: u32) -> Weight {
    Weight::new(weight).unwrap()
}

fn flow(number: u32) -> FlowId {
    FlowId::new(number)
}

/// Two flows on a link of 8 bytes a millisecond.
fn two(first: u32, second: u32) -> Gps {
    let mut gps = Gps::new(rate(64_000));
    gps.add_flow(Picos::ZERO, flow(0), weight(first));
    gps.add_flow(Picos::ZERO, flow(1), weight(second));
    gps
}

fn finishes(gps: &mut Gps) -> Vec<(u64, Picos)> {
    gps.take_finished().map(|f| (f.number, f.time)).collect()
}

const fn ms(ms: u64) -> Picos {
    Picos::from_millis(ms)
}

#[test]
fn backlogged_flows_share_by_weight_and_the_last_has_all() {
    let mut gps = two(1, 3);
    gps.arrive(ms(0), flow(0), length(800), 10);
    gps.arrive(ms(0), flow(1), length(1200), 11);
    gps.advance(ms(100));
    assert_eq!(gps.service(flow(0)), Some(Work::from_bytes(200)));
    assert_eq!(gps.service(flow(1)), Some(Work::from_bytes(600)));
    // Flow 1 is done after 200 ms, flow 0 has 400 bytes left and the link alone.
    gps.finish();
    assert_eq!(finishes(&mut gps), [(11, ms(200)), (10, ms(250))]);
    assert!(!gps.is_backlogged(flow(0)));
}

#[test]
fn an_arrival_changes_the_slope_and_an_idle_flow_earns_nothing() {
    let mut gps = two(1, 1);
    gps.arrive(ms(0), flow(0), length(800), 1);
    gps.arrive(ms(0), flow(0), length(80), 2);
    // 400 bytes are served alone, 400 and 80 at half the rate.
    gps.arrive(ms(50), flow(1), length(8000), 3);
    gps.advance(ms(170));
    assert_eq!(finishes(&mut gps), [(1, ms(150)), (2, ms(170))]);
    assert_eq!(gps.service(flow(1)), Some(Work::from_bytes(480)));
    gps.finish();
    assert_eq!(finishes(&mut gps), [(3, ms(1110))]);
    // After a pause, both start level.
    gps.arrive(ms(2000), flow(1), length(8), 4);
    gps.arrive(ms(2000), flow(0), length(8), 5);
    gps.finish();
    assert_eq!(finishes(&mut gps), [(5, ms(2002)), (4, ms(2002))]);
}

#[test]
fn a_change_of_weight_counts_from_its_instant() {
    let mut gps = two(1, 1);
    gps.arrive(ms(0), flow(0), length(400), 1);
    gps.arrive(ms(0), flow(0), length(400), 2);
    gps.arrive(ms(0), flow(1), length(8000), 3);
    gps.change_flow(ms(50), flow(0), weight(3));
    // 200 of 800 bytes are served; the rest at 6 bytes a millisecond.
    gps.advance(ms(400));
    let third = Picos(ms(100).0 / 3);
    assert_eq!(finishes(&mut gps), [(1, ms(50) + third), (2, ms(150))]);
    gps.remove_flow(ms(400), flow(1));
    assert_eq!(gps.service(flow(1)), None);
    gps.arrive(ms(400), flow(0), length(8), 4);
    gps.finish();
    assert_eq!(finishes(&mut gps), [(4, ms(401))]);
}

#[derive(Clone, Debug)]
struct Arrivals {
    rate: u64,
    weights: Vec<u32>,
    packets: Vec<(u32, usize, u32)>,
}

fn arrivals() -> impl Strategy<Value = Arrivals> {
    let rates = prop_oneof![
        Just(1_000),
        Just(7_000),
        Just(3_000_000_000),
        Just(999_999_999_989u64)
    ];
    let weights = prop::collection::vec(prop_oneof![1..10u32, 1..=1_000_000u32], 1..8);
    let gap = prop_oneof![Just(0), 0..50_000u32, 0..1_000_000u32];
    let packets = prop::collection::vec((gap, any::<usize>(), 1..=65_535u32), 1..60);
    (rates, weights, packets).prop_map(|(rate, weights, packets)| Arrivals {
        rate,
        weights,
        packets,
    })
}

proptest! {
    #[test]
    fn fluid_is_neither_made_nor_lost_and_flows_in_order(run in arrivals()) {
        let mut gps = Gps::new(rate(run.rate));
        let mut link = Link::new(rate(run.rate), TransmitQueue::Packets(u32::MAX));
        let flows: Vec<_> = (0..run.weights.len() as u32).map(flow).collect();
        for (&id, &w) in flows.iter().zip(&run.weights) {
            gps.add_flow(Picos::ZERO, id, weight(w));
        }
        let all: u128 = run.weights.iter().map(|&w| u128::from(w)).sum();
        let mut at = Picos::ZERO;
        let mut last = vec![None; flows.len()];
        let mut arrived = vec![(Work::ZERO, Vec::new()); flows.len()];
        let mut before: Option<Vec<(Work, bool)>> = None;
        let mut finished = Vec::new();
        for (number, &(gap, pick, bytes)) in run.packets.iter().enumerate() {
            at += Picos(u128::from(gap) * 1_000_000_000_000 / u128::from(run.rate));
            while link.next_completion().is_some_and(|end| end < at) {
                link.complete();
            }
            gps.advance(at);
            // The sum of fluid service is the work of a link that serves the same packets.
            let service: Vec<_> = flows.iter().map(|&f| gps.service(f).unwrap()).collect();
            let sum: u128 = service.iter().map(|s| s.0).sum();
            let slack = flows.len() as u128 + 3 * (all >> 20) + 3;
            prop_assert!(sum.abs_diff(link.work(at).0) <= slack, "{sum} {:?}", link.work(at));
            // Of two flows backlogged throughout, each has its share.
            if let Some(before) = &before {
                for a in 0..flows.len() {
                    for b in 0..flows.len() {
                        let both = [a, b].iter().all(|&f| before[f].1 && gps.is_backlogged(flows[f]));
                        let (wa, wb) = (u128::from(run.weights[a]), u128::from(run.weights[b]));
                        let (sa, sb) = (service[a] - before[a].0, service[b] - before[b].0);
                        prop_assert!(
                            !both || (sa.0 * wb).abs_diff(sb.0 * wa) <= 4 * (wa + wb) + ((wa * wb) >> 17),
                            "{sa:?} {sb:?} {wa} {wb}"
                        );
                    }
                }
            }
            let turn = pick % flows.len();
            gps.arrive(at, flows[turn], length(bytes), number as u64);
            arrived[turn].0 += Work::from_bytes(bytes.into());
            arrived[turn].1.push((number as u64, at));
            link.push(at, length(bytes), ()).unwrap();
            before = Some(
                flows.iter().zip(&service).map(|(&f, &s)| (s, gps.is_backlogged(f))).collect(),
            );
            finished.extend(gps.take_finished());
        }
        gps.finish();
        finished.extend(gps.take_finished());
        let mut end = Picos::ZERO;
        while let Some(sent) = link.complete() {
            end = sent.end;
        }
        // Everything was served, the last of it when the link stops.
        prop_assert_eq!(finished.len(), run.packets.len());
        for (n, &id) in flows.iter().enumerate() {
            prop_assert_eq!(gps.service(id).unwrap(), arrived[n].0);
        }
        let stop = finished.iter().map(|f| f.time).max().unwrap();
        let slack = 2 + ((3 * all) >> 20) / u128::from(run.rate);
        prop_assert!(stop.0.abs_diff(end.0) <= slack, "{stop} {end}");
        // In each flow in order of arrival, and never before a packet could be done.
        prop_assert!(finished.windows(2).all(|w| w[0].time <= w[1].time));
        let mut places = vec![0; flows.len()];
        for finish in finished {
            let n = finish.flow.number() as usize;
            let (number, came) = arrived[n].1[places[n]];
            places[n] += 1;
            prop_assert_eq!(finish.number, number);
            let bits = u128::from(run.packets[number as usize].2) * 8;
            let alone = Picos(bits * 1_000_000_000_000 / u128::from(run.rate));
            prop_assert!(finish.time >= came + alone);
            if let Some(last) = last[n].replace(finish.time) {
                prop_assert!(finish.time + Picos(1) >= last + alone);
            }
        }
    }
}
