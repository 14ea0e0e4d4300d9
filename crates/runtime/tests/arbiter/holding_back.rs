//! Holding back: packets of a full flow wait in the mailbox instead of being dropped.

use fairlane_core::sched::{Fifo, Qfq};
use fairlane_core::{FlowConfig, Limits, SchedulerLimits};
use fairlane_runtime::{ArbiterConfig, Next, Refusal};

use crate::rig::{Rig, config, fast, holding, length, ms, numbered, us, weight};

fn held_back(config: ArbiterConfig) -> ArbiterConfig {
    ArbiterConfig {
        hold_back: true,
        ..config
    }
}

#[test]
fn packets_of_a_full_flow_wait_in_the_mailbox_and_all_come_out() {
    let mut rig = Rig::new(Qfq::new(), held_back(config()));
    let mut sender = rig.join(holding(4, weight(1)));
    let mut other = rig.join(weight(1));
    let fitted = sender.fill(500) as u32;
    assert_eq!(sender.push(500).unwrap_err().reason, Refusal::MailboxFull);
    let mut arrived = Vec::new();
    for _ in 0..2 * fitted {
        rig.step_after(us(500));
        assert!(rig.stats(&sender).flow.queued.packets <= 4);
        arrived.extend(rig.arrivals());
        if arrived.len() == 50 {
            other.push_all(1, 500);
        }
    }
    // No other client was delayed.
    let other_at = arrived.iter().position(|&(from, _)| from == other.name);
    assert!((50..54).contains(&other_at.unwrap()), "{other_at:?}");
    assert!(sender.push(500).is_ok());
    arrived.retain(|&(from, _)| from == sender.name);
    assert_eq!(arrived, numbered(sender.name, 0..fitted));
    let total = rig.arbiter.total_stats();
    assert_eq!((total.dropped.packets, total.discarded.packets), (0, 0));
    assert_eq!(sender.push(500).unwrap().dropped_before, 0);
}

/// A late caller that steps as long as there is work catches up.
#[test]
fn what_was_held_back_is_due_at_once_when_its_flow_has_room() {
    let mut rig = Rig::new(Fifo::new(), held_back(config()));
    let mut sender = rig.join(holding(4, weight(1)));
    sender.push_all(100, 1000);
    let (mut steps, mut drained) = (0, 0);
    loop {
        let step = rig.step();
        drained += step.drained;
        match step.next {
            Next::Now => {}
            // The link could have carried all that the flow holds.
            Next::At(time) => rig.now = time + ms(10),
            Next::WhenPushed => break,
            Next::WhenBackendTakesMore => unreachable!("the device is never full"),
        }
        steps += 1;
        assert!(steps < 500);
    }
    assert_eq!(drained, 100);
    assert_eq!(rig.arrivals(), numbered(0, 0..100));
}

#[test]
fn while_the_link_is_busy_a_step_with_a_full_flow_is_due_when_it_is_idle() {
    let mut rig = Rig::new(Fifo::new(), held_back(config()));
    let mut sender = rig.join(holding(2, weight(1)));
    sender.push_all(10, 1000);
    while rig.step().next == Next::Now {}
    assert_eq!(rig.step().next, Next::At(ms(1)));
}

#[test]
fn a_client_that_leaves_has_what_was_held_back_sent_first() {
    let mut rig = Rig::new(Qfq::new(), held_back(config()));
    let mut sender = rig.join(holding(1, weight(1)));
    sender.push_all(9, 1000);
    drop(sender);
    for _ in 0..12 {
        rig.step_after(ms(1));
    }
    assert_eq!(rig.arrivals(), numbered(0, 0..9));
    assert_eq!(rig.arbiter.clients(), 0);
}

#[test]
fn a_full_scheduler_holds_everybody_back_and_all_take_turns() {
    let mut rig = Rig::new(
        Qfq::new(),
        held_back(ArbiterConfig {
            limits: SchedulerLimits {
                packets: 5,
                ..SchedulerLimits::default()
            },
            ..config()
        }),
    );
    let mut senders: Vec<_> = (0..4).map(|_| rig.join(weight(1))).collect();
    senders
        .iter_mut()
        .for_each(|sender| sender.push_all(20, 1000));
    let mut arrived = Vec::new();
    for _ in 0..90 {
        rig.step_after(ms(1));
        arrived.extend(rig.arrivals());
    }
    assert_eq!(rig.arbiter.total_stats().dropped.packets, 0);
    for sender in &senders {
        let of_it = arrived
            .iter()
            .copied()
            .filter(|&(from, _)| from == sender.name);
        assert!(of_it.eq(numbered(sender.name, 0..20)));
        let soon = arrived[..40]
            .iter()
            .filter(|&&(from, _)| from == sender.name);
        assert!(soon.count() >= 4, "{} starves", sender.name);
    }
}

#[test]
fn a_flow_that_holds_fewer_bytes_than_its_longest_packet_is_served_all_the_same() {
    let mut rig = Rig::new(Qfq::new(), held_back(config()));
    let mut other = rig.join(weight(1));
    let mut sender = rig.join(FlowConfig {
        limits: Some(Limits {
            bytes: 1000,
            ..Limits::NONE
        }),
        ..weight(1)
    });
    assert_eq!(weight(1).max_length, length(1500));
    // The link is never idle.
    other.push_all(50, 1000);
    sender.push_all(5, 400);
    for _ in 0..20 {
        rig.step_after(ms(1));
    }
    let mut arrived = rig.arrivals();
    arrived.retain(|&(from, _)| from == sender.name);
    assert_eq!(arrived, numbered(sender.name, 0..5));
}

#[test]
fn what_a_flow_can_never_hold_is_dropped_and_its_client_can_leave() {
    let mut rig = Rig::new(Fifo::new(), held_back(fast()));
    let mut sender = rig.join(holding(0, weight(1)));
    sender.push_all(3, 100);
    for _ in 0..4 {
        rig.step_after(us(1));
    }
    assert_eq!(sender.push(100).unwrap().dropped_before, 3);
    drop(sender);
    for _ in 0..4 {
        rig.step_after(us(1));
    }
    assert_eq!(rig.arbiter.clients(), 0);
}
