//! Shares and delays: the algorithms' guarantees hold from a client's push to the far end.

use fairlane_core::bounds::{self, Slot, Terms, Transmit};
use fairlane_core::sched::{Drr, Fifo, Qfq};
use fairlane_core::{FlowConfig, Nanos, Rate, Scheduler, Weight};
use fairlane_runtime::{ArbiterConfig, Link};

use crate::rig::{Packet, Rig, Sender, config, holding, length, link, ms, on, us, weight};

fn flow(weight: u32, longest: u32) -> FlowConfig {
    FlowConfig::new(Weight::new(weight).unwrap(), length(longest))
}

/// Keeps every client backlogged in the arbiter, and its flow no longer than 100
/// packets; returns what arrived.
fn saturate<A: Scheduler>(
    rig: &mut Rig<A>,
    senders: &mut [(Sender, u32)],
    steps: u64,
    interval: Nanos,
) -> Vec<Packet> {
    let mut arrived = Vec::new();
    for step in 0..steps {
        for (sender, longest) in &mut *senders {
            let packets = if step == 0 { 40 } else { 20 };
            for n in 0..packets {
                // All lengths, the longest as often as all others.
                let _ = sender.push(1 + (step * 20 + n) as u32 * 13 % *longest);
                let _ = sender.push(*longest);
            }
        }
        rig.step_after(interval);
        arrived.extend(rig.arrived());
        for (sender, _) in &*senders {
            assert!(
                rig.stats(sender).flow.queued.packets > 0,
                "{} is saturated",
                sender.name
            );
        }
    }
    arrived
}

#[test]
fn saturated_clients_get_their_shares_within_the_bound_under_qfq() {
    // (weight, longest packet), at an overhead of 24 bytes.
    let clients = [(1, 1476), (2, 100), (4, 1476), (8, 576)];
    let overhead = 24;
    let link = Link {
        overhead,
        ..link(100_000_000)
    };
    let mut rig = Rig::new(Qfq::new(), on(link));
    let mut senders = clients.map(|(weight, longest)| {
        let config = holding(100, flow(weight, longest));
        (rig.join(config), longest)
    });
    let arrived = saturate(&mut rig, &mut senders, 600, us(500));
    let total: u32 = clients.iter().map(|c| c.0).sum();
    let bounds = clients.map(|(of, own)| {
        let (of, own) = (Weight::new(of).unwrap(), length(own + overhead));
        let longest = length(1476 + overhead);
        let terms = Terms::new(of, total.into(), own, longest, Transmit::Between);
        bounds::qfq(&terms.unwrap(), Slot::Actual).service.bytes()
    });

    let mut work = 0.0;
    let mut of = [0.0; 4];
    let mut least = [0.0f64; 4];
    for packet in &arrived {
        let carried = f64::from(packet.len + overhead);
        work += carried;
        of[packet.from] += carried;
        for (k, &(weight, _)) in clients.iter().enumerate() {
            let phi = f64::from(weight) / f64::from(total);
            // How far client k is behind its share, over the worst interval that
            // ends here: phi W(t1, t2) - W_k(t1, t2) of Eq. 7.
            let behind = phi * work - of[k];
            least[k] = least[k].min(behind);
            let (b_wfi, bound) = (behind - least[k], bounds[k]);
            assert!(b_wfi <= bound, "client {k}: {b_wfi} > {bound}");
        }
    }
    let carried = 600.0 * 0.0005 * 100e6 / 8.0;
    assert!(work >= carried, "the link was full");
}

#[test]
fn saturated_clients_get_their_shares_within_three_quanta_of_a_weight_under_drr() {
    let clients = [(1, 1500), (2, 100), (4, 1500), (8, 576)];
    let mut rig = Rig::new(Drr::new(), on(link(100_000_000)));
    let mut senders =
        clients.map(|(weight, longest)| (rig.join(holding(100, flow(weight, longest))), longest));
    let arrived = saturate(&mut rig, &mut senders, 600, us(500));
    let mut of = [0.0; 4];
    for packet in &arrived {
        of[packet.from] += f64::from(packet.len) / f64::from(clients[packet.from].0);
        let (least, most) = of.iter().fold((f64::MAX, 0.0f64), |(least, most), &work| {
            (least.min(work), most.max(work))
        });
        assert!(most - least <= 3.0 * 1500.0, "{of:?}");
    }
    assert!(of[0] > 100_000.0);
}

#[test]
fn under_fifo_shares_follow_the_arrivals_and_not_the_weights() {
    let mut rig = Rig::new(Fifo::new(), config());
    let mut often = rig.join(weight(1));
    let mut seldom = rig.join(weight(1000));
    let mut came = Vec::new();
    for time in 0..200 {
        often.push_all(3, 500);
        seldom.push_all(1, 500);
        rig.step_at(ms(time));
        came.extend(rig.arrived().iter().map(|p| p.from));
    }
    let of_often = came.iter().filter(|&&from| from == 0).count();
    assert_eq!(came.len(), 2 * 199 + 1);
    assert!((came.len() * 3 / 4).abs_diff(of_often) <= 3, "{of_often}");
}

#[test]
fn under_fifo_packets_leave_in_the_order_in_which_they_were_drained() {
    let mut rig = Rig::new(Fifo::new(), config());
    let mut senders = [rig.join(weight(1)), rig.join(weight(9))];
    let mut pushed = Vec::new();
    for n in 0..40u32 {
        // One a step: so the order of the pushes is that of the arbiter.
        let sender = &mut senders[n as usize * 7 % 3 % 2];
        pushed.push((sender.name, sender.pushed));
        sender.push_all(1, 1 + n * 37 % 1500);
        rig.step();
    }
    rig.step_at(ms(19));
    let first = rig.arrivals();
    rig.step_at(ms(38));
    rig.step_at(ms(57));
    assert_eq!([first, rig.arrivals()].concat(), pushed);
}

#[test]
fn shares_are_shares_of_the_link_and_not_of_the_payload() {
    // Payloads differ eighteenfold, lengths on the link only 4.75-fold.
    let (small, large, overhead) = (60, 1080, 212);
    let link = Link {
        overhead,
        ..link(100_000_000)
    };
    let mut rig = Rig::new(Qfq::new(), on(link));
    let mut senders = [
        (rig.join(holding(100, flow(1, small))), small),
        (rig.join(holding(100, flow(1, large))), large),
    ];
    for _ in 0..500 {
        for (sender, len) in &mut senders {
            for _ in 0..60 {
                let _ = sender.push(*len);
            }
        }
        rig.step_after(us(500));
    }
    let mut carried = [0u64; 2];
    let mut payload = [0u64; 2];
    for packet in rig.arrived() {
        payload[packet.from] += u64::from(packet.len);
        carried[packet.from] += u64::from(packet.len + overhead);
    }
    assert!(carried[0] > 1_000_000);
    assert!(carried[0].abs_diff(carried[1]) < 10 * 1300, "{carried:?}");
    assert!(payload[1] > 3 * payload[0], "{payload:?}");
    for (sender, _) in &senders {
        assert_eq!(rig.stats(sender).flow.sent.bytes, carried[sender.name]);
    }
}

#[test]
fn a_changed_weight_changes_the_shares() {
    let mut rig = Rig::new(Qfq::new(), on(link(100_000_000)));
    let mut senders = [
        (rig.join(holding(100, flow(1, 1000))), 1000),
        (rig.join(holding(100, flow(1, 1000))), 1000),
    ];
    let parts = |arrived: &[Packet]| {
        let bytes = |from| -> u64 {
            let own = arrived.iter().filter(|p| p.from == from);
            own.map(|p| u64::from(p.len)).sum()
        };
        bytes(0) as f64 / (bytes(0) + bytes(1)) as f64
    };
    let before = parts(&saturate(&mut rig, &mut senders, 200, us(500)));
    assert!((before - 0.5).abs() < 0.01, "{before}");
    let id = senders[1].0.client.id();
    let heavier = holding(100, flow(9, 1000));
    rig.arbiter.change_client(id, heavier).unwrap();
    let after = parts(&saturate(&mut rig, &mut senders, 200, us(500)));
    assert!((after - 0.1).abs() < 0.01, "{after}");
}

#[test]
fn a_client_alone_gets_the_whole_link_whatever_its_weight() {
    let mut rig = Rig::new(Qfq::new(), config());
    let mut sender = rig.join(weight(1));
    let _idle = rig.join(weight(1_000_000));
    sender.push_all(50, 1000);
    for time in 0..50 {
        assert_eq!(rig.step_at(ms(time)).released, 1);
    }
}

const BACKGROUND: u32 = 20;
const PROBE: u32 = 20;
const MTU: u32 = 1500;
const RATE: u64 = 100_000_000;
/// Delta_A of PSPAT, with a step that visits all mailboxes.
const INTERVAL: Nanos = us(50);
const EVERYBODY: usize = 64;

/// Returns the longest delay of a probe, an occasional packet that finds the other clients
/// backlogged: from its push until the device, which carries packets at the link's rate, has
/// carried it.
fn longest_delay_of_a_probe<A: Scheduler>(algorithm: A, probes: u32, scan_limit: usize) -> Nanos {
    let config = ArbiterConfig {
        scan_limit,
        ..on(link(RATE))
    };
    let mut rig = Rig::new(algorithm, config);
    let mut probe = rig.join(flow(PROBE, MTU));
    let mut background: Vec<_> = (0..BACKGROUND)
        .map(|_| rig.join(holding(50, flow(1, MTU))))
        .collect();
    let (mut carried_until, mut longest) = (0, 0);
    let mut pushed_at = None;
    for step in 0u64.. {
        for sender in &mut background {
            if sender.pushed < 50 || step % 16 == 0 {
                let _ = sender.push(MTU);
                let _ = sender.push(MTU);
                let _ = sender.push(MTU);
            }
        }
        // Just after a step, at ever other phases of the background.
        if step > 200 && step % 7 == 0 && pushed_at.is_none() {
            if probe.pushed == probes {
                break;
            }
            probe.push_all(1, MTU);
            pushed_at = Some(rig.now.0);
        }
        rig.step_after(INTERVAL);
        for packet in rig.arrived() {
            let lasts = u64::from(packet.len) * 8 * 1_000_000_000 / RATE;
            carried_until = carried_until.max(rig.now.0) + lasts;
            if packet.from == probe.name {
                let since = pushed_at.take().expect("one probe at a time");
                longest = longest.max(carried_until - since);
            }
        }
    }
    Nanos(longest)
}

#[test]
fn the_delay_of_a_packet_is_within_qfqs_index_and_the_arbiters_part() {
    // Its own length at its share, the T-WFI for packets of one length, and PSPAT's Eq. 1
    // without dispatchers.
    let (of, mtu) = (Weight::new(PROBE).unwrap(), length(MTU));
    let total = (PROBE + BACKGROUND).into();
    let terms = Terms::new(of, total, mtu, mtu, Transmit::Direct).unwrap();
    let wfi = bounds::qfq_equal_packets(&terms, Slot::Actual);
    let rate = Rate::from_bps(RATE).unwrap();
    let alone = terms.worst_delay(wfi, MTU.into(), rate);
    let bound = bounds::with_arbiter(alone, INTERVAL, None, rate, mtu);
    let delay = longest_delay_of_a_probe(Qfq::new(), 300, EVERYBODY);
    assert!(delay <= bound, "{delay:?} > {bound:?}");
    // The algorithm makes the difference: a round of DRR takes longer than that,
    // and FIFO has the whole backlog first.
    assert!(longest_delay_of_a_probe(Drr::new(), 50, EVERYBODY) > bound);
    assert!(longest_delay_of_a_probe(Fifo::new(), 2, EVERYBODY) > ms(50));
    // Where a step sees some clients only, Delta_A is the time of a round of all.
    let limit = ArbiterConfig::SCAN_LIMIT;
    let round = INTERVAL * (BACKGROUND as usize + 1).div_ceil(limit) as u64;
    let some = longest_delay_of_a_probe(Qfq::new(), 300, limit);
    let bound = bounds::with_arbiter(alone, round, None, rate, mtu);
    assert!(delay < some && some <= bound, "{some:?} > {bound:?}");
}
