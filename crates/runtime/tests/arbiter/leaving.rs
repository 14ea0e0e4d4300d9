//! A client that leaves: its packets are sent, then its flow and its number go.

use fairlane_core::sched::{Drr, Fifo, Qfq};
use fairlane_core::{FlowStats, Scheduler};
use fairlane_runtime::{ArbiterConfig, Next};

use crate::rig::{Rig, config, fast, holding, ms, numbered, weight};

fn everything_is_sent_first<A: Scheduler>(algorithm: A) {
    let mut rig = Rig::new(algorithm, config());
    let mut stays = rig.join(weight(1));
    let mut leaves = rig.join(weight(4));
    let id = leaves.client.id();
    stays.push_all(8, 1000);
    leaves.push_all(5, 1000);
    drop(leaves);
    for time in 0..13 {
        rig.step_at(ms(time));
    }
    let (mut of_one, mut of_other) = (Vec::new(), Vec::new());
    for packet in rig.arrivals() {
        match packet.0 {
            0 => of_one.push(packet),
            _ => of_other.push(packet),
        }
    }
    assert_eq!(of_one, numbered(0, 0..8), "{}", A::NAME);
    assert_eq!(of_other, numbered(1, 0..5), "{}", A::NAME);
    rig.step();
    assert_eq!(rig.arbiter.clients(), 1, "{}", A::NAME);
    assert_eq!(rig.join(weight(1)).client.id(), id, "{}", A::NAME);
}

#[test]
fn what_a_client_pushed_before_it_left_is_still_sent_in_order() {
    everything_is_sent_first(Fifo::new());
    everything_is_sent_first(Drr::new());
    everything_is_sent_first(Qfq::new());
}

#[test]
fn a_client_stays_until_its_last_packet_was_released() {
    let mut rig = Rig::new(Qfq::new(), config());
    let mut sender = rig.join(weight(1));
    let id = sender.client.id();
    sender.push_all(3, 1000);
    drop(sender);
    for (time, here) in [(0, 1), (1, 1), (2, 1), (3, 0)] {
        rig.step_at(ms(time));
        assert_eq!(rig.arbiter.clients(), here, "at {time} ms");
        assert_eq!(
            rig.arbiter.client_stats().any(|(of, _)| of == id),
            here == 1
        );
    }
    assert_eq!(rig.arrivals(), numbered(0, 0..3));
}

#[test]
fn a_mailbox_longer_than_the_drain_limit_is_emptied_before_its_client_goes() {
    let config = ArbiterConfig {
        drain_limit: 4,
        ..fast()
    };
    let mut rig = Rig::new(Fifo::new(), config);
    let mut sender = rig.join(weight(1));
    sender.push_all(12, 100);
    drop(sender);
    for (drained, next) in [
        (4, Next::Now),
        (4, Next::Now),
        (4, Next::Now),
        (0, Next::WhenPushed),
    ] {
        let step = rig.step_after(ms(1));
        assert_eq!((step.drained, step.next), (drained, next));
    }
    assert_eq!(rig.arrivals(), numbered(0, 0..12));
    assert_eq!(rig.arbiter.clients(), 0);
}

#[test]
fn a_number_given_again_brings_nothing_of_the_one_before() {
    let mut rig = Rig::new(Qfq::new(), config());
    let mut first = rig.join(holding(2, weight(1)));
    first.push_all(9, 1000);
    assert_eq!(rig.step().drained, 9);
    let id = first.client.id();
    assert!(rig.stats(&first).flow.dropped.packets > 0);
    drop(first);
    for time in 1..4 {
        rig.step_at(ms(time));
    }
    assert_eq!(rig.arbiter.clients(), 0);

    rig.step_at(ms(100));
    let mut second = rig.join(weight(1));
    assert_eq!(second.client.id(), id);
    assert_eq!(second.push(1000).unwrap().dropped_before, 0);
    second.push_all(5, 1000);
    rig.arrived();
    rig.step();
    let stats = rig.stats(&second);
    assert_eq!((stats.pushed, stats.refused), (6, 0));
    assert_eq!(
        (stats.flow.accepted.packets, stats.flow.dropped.packets),
        (6, 0)
    );
    assert_eq!(rig.arrivals(), [(1, 0)]);
}

#[test]
fn a_client_dropped_before_any_step_leaves_no_trace() {
    let mut rig = Rig::new(
        Qfq::new(),
        ArbiterConfig {
            max_clients: 1,
            ..fast()
        },
    );
    for _ in 0..3 {
        let sender = rig.join(weight(1));
        drop(sender);
        assert_eq!(rig.step().next, Next::WhenPushed);
        assert_eq!(rig.arbiter.clients(), 0);
        assert_eq!(rig.arbiter.client_stats().count(), 0);
    }
    assert_eq!(rig.arbiter.total_stats(), FlowStats::default());
}

#[test]
fn a_client_that_pushed_and_was_dropped_before_any_step_is_sent() {
    let mut rig = Rig::new(Qfq::new(), fast());
    let mut sender = rig.join(weight(1));
    sender.push_all(3, 100);
    drop(sender);
    rig.step_after(ms(1));
    assert_eq!(rig.arrivals(), numbered(0, 0..3));
    rig.step_after(ms(1));
    assert_eq!(rig.arbiter.clients(), 0);
}

#[test]
fn clients_that_leave_together_leave_the_others_in_order() {
    let mut rig = Rig::new(Drr::new(), fast());
    let mut senders: Vec<_> = (0..9).map(|_| rig.join(weight(1))).collect();
    rig.step();
    let mut stay = Vec::new();
    for (n, sender) in senders.drain(..).enumerate() {
        if n % 3 == 1 {
            stay.push(sender);
        }
    }
    rig.step_after(ms(1));
    let known: Vec<_> = rig.arbiter.client_stats().map(|(id, _)| id).collect();
    assert_eq!(
        known,
        stay.iter().map(|s| s.client.id()).collect::<Vec<_>>()
    );
    for sender in &mut stay {
        sender.push_all(2, 100);
    }
    assert_eq!(rig.step_after(ms(1)).transmitted, 6);
}

#[test]
fn the_totals_remember_clients_that_left() {
    let mut rig = Rig::new(Fifo::new(), fast());
    for _ in 0..4 {
        let mut sender = rig.join(holding(5, weight(1)));
        sender.push_all(7, 100);
        drop(sender);
        rig.step_after(ms(1));
        rig.step_after(ms(1));
    }
    let total = rig.arbiter.total_stats();
    assert_eq!(rig.arbiter.clients(), 0);
    assert_eq!((total.sent.packets, total.dropped.packets), (20, 8));
    assert_eq!(total.sent.bytes, 2000);
}
