//! One step: bounded, complete, and right about when the next is due.

use fairlane_core::sched::{Drr, Fifo, Qfq};
use fairlane_core::{Nanos, SchedulerLimits};
use fairlane_runtime::{ArbiterConfig, Next, Step};

use crate::rig::{Rig, config, fast, holding, link, ms, numbered, on, us, weight};

const NOTHING: Step = Step {
    drained: 0,
    released: 0,
    transmitted: 0,
    next: Next::WhenPushed,
};

#[test]
fn a_step_takes_no_more_from_each_mailbox_than_the_drain_limit() {
    let mut rig = Rig::new(
        Fifo::new(),
        ArbiterConfig {
            drain_limit: 10,
            ..config()
        },
    );
    let mut senders = [rig.join(weight(1)), rig.join(weight(1))];
    senders[0].push_all(25, 1000);
    senders[1].push_all(9, 1000);
    let drained: Vec<_> = (0..4).map(|_| rig.step()).collect();
    assert_eq!(
        drained.iter().map(|s| s.drained).collect::<Vec<_>>(),
        [10 + 9, 10, 5, 0]
    );
    // A mailbox that gave as much as it may could hold more.
    assert_eq!(drained[0].next, Next::Now);
    assert_eq!(drained[1].next, Next::Now);
    assert_eq!(drained[2].next, Next::At(ms(1)));
}

#[test]
fn a_mailbox_emptied_exactly_at_the_limit_is_looked_at_again_at_once() {
    let mut rig = Rig::new(
        Fifo::new(),
        ArbiterConfig {
            drain_limit: 10,
            ..config()
        },
    );
    let mut sender = rig.join(weight(1));
    sender.push_all(10, 1000);
    assert_eq!((rig.step().drained, rig.step().drained), (10, 0));
    assert_eq!(rig.step().next, Next::At(ms(1)));
}

#[test]
fn a_step_releases_no_more_than_the_release_limit() {
    let mut rig = Rig::new(
        Fifo::new(),
        ArbiterConfig {
            release_limit: 7,
            ..fast()
        },
    );
    let mut sender = rig.join(weight(1));
    sender.push_all(20, 1);
    // A thousand times as long as the packets need.
    for (released, next) in [
        (7, Next::Now),
        (7, Next::Now),
        (6, Next::WhenPushed),
        (0, Next::WhenPushed),
    ] {
        let step = rig.step_after(us(1));
        assert_eq!((step.released, step.transmitted), (released, released));
        assert_eq!(step.next, next);
    }
    assert_eq!(rig.arrivals(), numbered(0, 0..20));
}

#[test]
fn limits_of_zero_still_make_progress() {
    let mut rig = Rig::new(
        Fifo::new(),
        ArbiterConfig {
            drain_limit: 0,
            release_limit: 0,
            max_clients: 0,
            ..fast()
        },
    );
    let mut sender = rig.join(weight(1));
    sender.push_all(3, 100);
    for _ in 0..3 {
        let step = rig.step_after(ms(1));
        assert_eq!((step.drained, step.released), (1, 1));
    }
}

#[test]
fn a_busy_link_is_due_again_to_the_nanosecond_it_is_idle() {
    let mut rig = Rig::new(Qfq::new(), on(link(7_777_777)));
    let mut sender = rig.join(weight(1));
    sender.push_all(3, 1000);
    let Next::At(idle) = rig.step().next else {
        panic!("two packets wait");
    };
    assert_eq!(idle, Nanos(8_000 * 1_000_000_000 / 7_777_777));
    let early = rig.step_at(idle - Nanos(1));
    assert_eq!((early.released, early.next), (0, Next::At(idle)));
    assert_eq!(rig.step_at(idle).released, 1);
}

#[test]
fn with_nothing_queued_the_next_step_is_due_when_pushed_though_the_link_is_busy() {
    let mut rig = Rig::new(Fifo::new(), config());
    let mut sender = rig.join(weight(1));
    sender.push_all(1, 1000);
    let step = rig.step();
    assert_eq!((step.released, step.next), (1, Next::WhenPushed));
    // A packet pushed now waits for the link all the same.
    sender.push_all(1, 1000);
    let step = rig.step();
    assert_eq!((step.released, step.next), (0, Next::At(ms(1))));
}

#[test]
fn a_step_with_nothing_to_do_changes_nothing() {
    let mut rig = Rig::new(Qfq::new(), config());
    assert_eq!(rig.step(), NOTHING);
    let mut sender = rig.join(weight(1));
    assert_eq!(rig.step(), NOTHING);
    sender.push_all(5, 1000);
    rig.step();
    rig.arrived();

    let before = (rig.stats(&sender), rig.arbiter.total_stats());
    for _ in 0..5 {
        let step = rig.step_after(us(100));
        let idle = Step {
            next: Next::At(ms(1)),
            ..NOTHING
        };
        assert_eq!(step, idle);
        assert_eq!((rig.stats(&sender), rig.arbiter.total_stats()), before);
    }
    assert!(rig.arrived().is_empty());
    assert_eq!(rig.population.count(), 4);
}

#[test]
fn steps_at_one_time_are_as_good_as_one_step() {
    let mut rig = Rig::new(Drr::new(), config());
    let mut sender = rig.join(weight(1));
    sender.push_all(20, 500);
    assert_eq!(rig.step().released, 1);
    assert_eq!(rig.step().released, 0);
    assert_eq!(rig.step_after(ms(2)).released, 4);
    assert_eq!(rig.step().released, 0);
}

#[test]
fn what_was_pushed_before_a_step_takes_part_in_its_decisions() {
    let mut rig = Rig::new(Qfq::new(), config());
    let mut light = rig.join(weight(1));
    let mut heavy = rig.join(weight(1000));
    light.push_all(10, 1500);
    rig.step();
    assert_eq!(rig.arrivals(), [(0, 0)]);
    heavy.push_all(10, 1500);
    rig.step_after(us(1500));
    assert_eq!(rig.arrivals(), [(1, 0)]);
}

#[test]
fn a_client_is_taken_in_by_the_step_after_it_was_registered() {
    let mut rig = Rig::new(Fifo::new(), fast());
    let mut sender = rig.join(weight(1));
    sender.push_all(2, 100);
    assert_eq!(rig.arbiter.clients(), 0);
    assert_eq!(rig.step_at(ms(1)).transmitted, 2);
    assert_eq!(rig.arbiter.clients(), 1);
}

#[test]
fn room_for_few_packets_goes_round_among_the_clients_that_want_it() {
    // All three offer more than there is space for, and there are more clients that offer nothing.
    let limits = SchedulerLimits {
        packets: 4,
        ..SchedulerLimits::default()
    };
    let mut rig = Rig::new(Fifo::new(), ArbiterConfig { limits, ..config() });
    let mut greedy = Vec::new();
    for n in 0..10 {
        let sender = rig.join(weight(1));
        greedy.push((sender, [1, 2, 7].contains(&n)));
    }
    for _ in 0..300 {
        for (sender, _) in greedy.iter_mut().filter(|(_, greedy)| *greedy) {
            sender.push_all(4, 1000);
        }
        rig.step_after(ms(1));
    }
    for (sender, greedy) in &greedy {
        let accepted = rig.stats(sender).flow.accepted.packets;
        let fair = if *greedy { 98..=104 } else { 0..=0 };
        assert!(fair.contains(&accepted), "{}: {accepted}", sender.name);
    }
}

#[test]
fn packets_past_a_flows_limit_are_drained_all_the_same() {
    let mut rig = Rig::new(Fifo::new(), config());
    let mut sender = rig.join(holding(3, weight(1)));
    sender.push_all(20, 1000);
    assert_eq!(rig.step().drained, 20);
    assert_eq!(rig.stats(&sender).flow.dropped.packets, 17);
    assert_eq!(rig.population.count(), 3);
}
