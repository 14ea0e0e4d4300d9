//! Feedback to clients: rejections at once, drops inside, how often and why.

use fairlane_core::sched::{Drr, Fifo, Qfq};
use fairlane_core::units::MAX_LENGTH;
use fairlane_core::{ChangeError, FlowConfig, Length, Weight};
use fairlane_runtime::{ArbiterConfig, ClientStats, Link, Refusal, RegisterError};

use crate::rig::{Rig, config, fast, holding, length, ms, numbered, on, us, weight};

#[test]
fn a_full_mailbox_hands_the_packet_back_at_once() {
    let mut rig = Rig::new(Fifo::new(), fast());
    let mut sender = rig.join(weight(1));
    let fitted = sender.fill(100);
    assert!((256..=512).contains(&fitted), "{fitted} of 256 slots");
    // `fill` was refused once.
    for attempt in 2..5 {
        let refused = sender.push(777).unwrap_err();
        assert_eq!(refused.reason, Refusal::MailboxFull);
        assert_eq!(
            (refused.packet.number, refused.packet.len),
            (fitted as u32, 777)
        );
        drop(refused);
        assert_eq!(rig.population.count(), fitted, "attempt {attempt}");
    }
    while rig.step_after(ms(1)).released > 0 {}
    assert_eq!(rig.arrivals(), numbered(0, 0..fitted as u32));
    assert!(sender.push(100).is_ok());

    let ClientStats {
        pushed, refused, ..
    } = rig.stats(&sender);
    assert_eq!((pushed, refused), (fitted as u64 + 1, 4));
    assert_eq!(rig.arbiter.total_stats().dropped.packets, 0);
}

#[test]
fn a_client_with_a_full_mailbox_holds_up_no_other() {
    let mut rig = Rig::new(Fifo::new(), fast());
    let mut full = rig.join(weight(1));
    let mut other = rig.join(weight(1));
    full.fill(100);
    assert!(other.push(100).is_ok());
}

#[test]
fn a_push_tells_exactly_how_many_packets_were_dropped_since_the_last() {
    let mut rig = Rig::new(Qfq::new(), config());
    let mut sender = rig.join(holding(10, weight(1)));
    let mut other = rig.join(holding(1, weight(1)));
    for _ in 0..14 {
        assert_eq!(sender.push(1000).unwrap().dropped_before, 0);
    }
    rig.step();
    // Ten fit, one of them left; a rejected push reports no drops and loses none.
    assert_eq!(sender.push(1000).unwrap().dropped_before, 4);
    assert_eq!(sender.push(1000).unwrap().dropped_before, 0);
    rig.step();
    assert_eq!(rig.stats(&sender).flow.dropped.packets, 4 + 1);
    assert_eq!(other.push(1000).unwrap().dropped_before, 0);

    sender.fill(1000);
    assert_eq!(sender.push(1000).unwrap_err().reason, Refusal::MailboxFull);
    while rig.step().drained > 0 {}
    let dropped = rig.stats(&sender).flow.dropped.packets;
    assert!(dropped > 100);
    // The fifth drop was reported to the first of those that filled the mailbox.
    assert_eq!(sender.push(1000).unwrap().dropped_before, dropped - 5);
}

#[test]
fn drops_of_one_client_are_not_told_to_another() {
    let mut rig = Rig::new(Drr::new(), config());
    let mut lossy = rig.join(holding(1, weight(1)));
    let mut other = rig.join(weight(1));
    lossy.push_all(9, 1000);
    other.push_all(9, 1000);
    rig.step();
    assert_eq!(other.push(1000).unwrap().dropped_before, 0);
    assert_eq!(lossy.push(1000).unwrap().dropped_before, 8);
}

#[test]
fn a_packet_too_long_is_handed_back_and_never_reaches_the_algorithm() {
    let mut rig = Rig::new(Qfq::new(), fast());
    let mut sender = rig.join(weight(1));
    let refused = sender.push(1501).unwrap_err();
    assert_eq!(
        refused.reason,
        Refusal::TooLong {
            len: length(1501),
            max: length(1500)
        }
    );
    assert_eq!(refused.packet.len, 1501);
    drop(refused);
    assert_eq!(rig.step().drained, 0);
    let ClientStats {
        pushed,
        refused,
        flow,
    } = rig.stats(&sender);
    assert_eq!((pushed, refused), (0, 1));
    assert_eq!((flow.accepted.packets, flow.dropped.packets), (0, 0));
    assert_eq!(rig.arbiter.total_stats().dropped.packets, 0);

    assert!(sender.push(1500).is_ok());
    assert_eq!(rig.step_after(ms(1)).transmitted, 1);
}

#[test]
fn the_longest_packet_fills_the_range_together_with_the_overhead() {
    let link = Link {
        overhead: 28,
        ..fast().link
    };
    let of = |max| FlowConfig {
        max_length: max,
        ..weight(1)
    };
    let only_one = ArbiterConfig {
        max_clients: 1,
        ..on(link)
    };
    let mut rig = Rig::new(Qfq::new(), only_one);
    assert_eq!(link.longest(), Some(length(65_507)));
    for max in [65_508, MAX_LENGTH] {
        let max = length(max);
        let error = rig.registrar.register(of(max)).unwrap_err();
        assert_eq!(error, RegisterError::TooLong { max, overhead: 28 });
        assert_eq!(
            error.to_string(),
            format!("packets of {max} and 28 bytes of overhead are longer than 65535 bytes")
        );
    }

    // The attempts have not used up the only place.
    let mut sender = rig.join(of(length(65_507)));
    let refused = sender.push(65_508).unwrap_err();
    let (len, max) = (length(65_508), length(65_507));
    assert_eq!(refused.reason, Refusal::TooLong { len, max });
    drop(refused);
    sender.push(65_507).unwrap();
    assert_eq!(rig.step_after(ms(1)).transmitted, 1);
    assert_eq!(rig.arrived()[0].len, 65_507);
    assert_eq!(rig.stats(&sender).flow.sent.bytes, u64::from(MAX_LENGTH));
}

#[test]
fn an_overhead_that_leaves_no_room_for_a_packet_registers_nobody() {
    for overhead in [MAX_LENGTH, u32::MAX] {
        let link = Link {
            overhead,
            ..fast().link
        };
        let rig = Rig::new(Fifo::new(), on(link));
        for longest in [1, 1500] {
            let config = FlowConfig {
                max_length: length(longest),
                ..weight(1)
            };
            assert!(matches!(
                rig.registrar.register(config),
                Err(RegisterError::TooLong { .. })
            ));
        }
    }
}

#[test]
fn a_mailbox_of_a_size_it_cannot_have_is_refused_with_a_sentence() {
    for slots in [0, 1, 100, 255] {
        let mut rig = Rig::new(
            Fifo::new(),
            ArbiterConfig {
                mailbox_slots: slots,
                max_clients: 1,
                ..fast()
            },
        );
        let error = rig.registrar.register(weight(1)).unwrap_err();
        assert!(matches!(error, RegisterError::Mailbox(_)), "{error:?}");
        let said = error.to_string();
        assert!(
            said.contains(&format!("{slots} slots")) && said.contains("power of two"),
            "{said}"
        );
        assert!(!said.contains('\n') && !said.contains(". "), "{said}");
        rig.step();
        assert_eq!(rig.arbiter.clients(), 0);
    }
}

#[test]
fn no_more_clients_are_registered_than_configured() {
    let config = ArbiterConfig {
        max_clients: 3,
        ..fast()
    };
    let mut rig = Rig::new(Fifo::new(), config);
    let mut senders: Vec<_> = (0..3).map(|_| rig.join(weight(1))).collect();
    let full = Err(RegisterError::TooManyClients(3));
    let attempt = |rig: &Rig<Fifo>| rig.registrar.clone().register(weight(1)).map(|_| ());
    assert_eq!(attempt(&rig), full);
    rig.step();
    assert_eq!(attempt(&rig), full);
    assert_eq!(
        RegisterError::TooManyClients(3).to_string(),
        "there are 3 clients already, the most that were configured"
    );

    let left = senders.remove(1).client.id();
    // The place is free once the arbiter has seen the client go.
    assert_eq!(attempt(&rig), full);
    rig.step();
    assert_eq!(rig.join(weight(1)).client.id(), left);
}

#[test]
fn after_the_arbiter_was_dropped_nobody_registers() {
    let rig = Rig::new(Fifo::new(), fast());
    let registrar = rig.registrar.clone();
    drop(rig.arbiter);
    assert_eq!(
        registrar.register(weight(1)).map(|_| ()),
        Err(RegisterError::ArbiterGone)
    );
}

#[test]
fn after_the_arbiter_was_dropped_a_push_hands_the_packet_back() {
    let mut rig = Rig::new(Fifo::new(), fast());
    let mut taken_in = rig.join(weight(1));
    rig.step();
    let mut not_yet = rig.join(weight(1));
    drop(rig.arbiter);
    for sender in [&mut taken_in, &mut not_yet] {
        // Packets are accepted as long as the mailbox has space.
        sender.fill(100);
        let refused = sender.push(100).unwrap_err();
        assert_eq!(refused.reason, Refusal::ArbiterGone);
        assert_eq!(refused.packet.number, sender.pushed);
    }
}

#[test]
fn an_arbiter_that_is_dropped_drops_every_packet_once() {
    let mut rig = Rig::with_device(Qfq::new(), fast(), 2);
    let mut senders = [rig.join(weight(1)), rig.join(weight(2))];
    for sender in &mut senders {
        sender.push_all(50, 1000);
    }
    // Two in the device, the rest of a batch, a queue, mailboxes, and an arrival.
    rig.step_after(ms(1));
    assert!(rig.arbiter.waiting_for_backend() > 0);
    for sender in &mut senders {
        sender.push_all(50, 1000);
    }
    let mut arrival = rig.join(weight(1));
    arrival.push_all(5, 1000);
    assert_eq!(rig.population.count(), 205);
    drop(rig.arbiter);
    assert_eq!(rig.population.count(), 105 + 2);
    drop((senders, arrival));
    assert_eq!(rig.population.count(), 2);
    drop(rig.far);
    assert_eq!(rig.population.count(), 0);
}

#[test]
fn a_change_speaks_of_a_client_that_is_there() {
    let mut rig = Rig::new(Qfq::new(), fast());
    let sender = rig.join(weight(1));
    let id = sender.client.id();
    assert_eq!(
        rig.arbiter.change_client(id, weight(2)),
        Ok(()),
        "just registered"
    );
    drop(sender);
    rig.step();
    assert_eq!(
        rig.arbiter.change_client(id, weight(2)),
        Err(ChangeError::UnknownFlow)
    );
}

#[test]
fn a_maximum_below_what_is_queued_is_refused_and_changes_nothing() {
    let link = Link {
        overhead: 20,
        ..config().link
    };
    let mut rig = Rig::new(Qfq::new(), on(link));
    let mut sender = rig.join(weight(1));
    let id = sender.client.id();
    sender.push_all(3, 1000);
    rig.step();
    let up_to = |max| FlowConfig {
        max_length: length(max),
        ..weight(1)
    };
    assert_eq!(
        rig.arbiter.change_client(id, up_to(999)),
        Err(ChangeError::LongerPacketQueued {
            queued: length(1020),
            max: length(1019)
        })
    );
    assert!(sender.push(1500).is_ok());
    assert_eq!(rig.arbiter.change_client(id, up_to(1000)), Ok(()));
}

#[test]
fn a_changed_maximum_is_the_one_that_push_refuses_by() {
    let link = Link {
        overhead: 20,
        ..fast().link
    };
    let mut rig = Rig::new(Qfq::new(), on(link));
    let mut sender = rig.join(weight(1));
    let id = sender.client.id();
    for (max, change) in [(1500, None), (9000, Some(9000)), (64, Some(64))] {
        if let Some(max) = change {
            let config = FlowConfig {
                max_length: length(max),
                ..weight(1)
            };
            rig.arbiter.change_client(id, config).unwrap();
        }
        sender.push(max).unwrap();
        let refused = sender.push(max + 1).unwrap_err();
        let (len, max) = (length(max + 1), length(max));
        assert_eq!(refused.reason, Refusal::TooLong { len, max });
        assert_eq!(rig.step_after(us(1)).transmitted, 1);
    }
    assert_eq!(rig.arbiter.total_stats().dropped.packets, 0);
}

#[test]
fn no_change_raises_the_maximum_beyond_what_the_link_can_carry() {
    let link = Link {
        overhead: 28,
        ..fast().link
    };
    let mut rig = Rig::new(Qfq::new(), on(link));
    let mut sender = rig.join(weight(1));
    let config = FlowConfig::new(Weight::ONE, Length::MAX);
    rig.arbiter
        .change_client(sender.client.id(), config)
        .unwrap();
    let refused = sender.push(65_508).unwrap_err();
    let (len, max) = (length(65_508), length(65_507));
    assert_eq!(refused.reason, Refusal::TooLong { len, max });
    sender.push(65_507).unwrap();
    assert_eq!(rig.step_after(ms(1)).transmitted, 1);
}

#[test]
fn a_packet_pushed_before_the_maximum_was_lowered_is_dropped_and_told() {
    let mut rig = Rig::new(Qfq::new(), fast());
    let mut sender = rig.join(weight(1));
    sender.push(1500).unwrap();
    let config = FlowConfig {
        max_length: length(100),
        ..weight(1)
    };
    rig.arbiter
        .change_client(sender.client.id(), config)
        .unwrap();
    assert_eq!(rig.step().transmitted, 0);
    assert_eq!(sender.push(100).unwrap().dropped_before, 1);
    assert_eq!(rig.step_after(us(1)).transmitted, 1);
}

#[test]
fn a_lowered_limit_holds_for_what_comes_and_spares_what_is_queued() {
    let mut rig = Rig::new(Fifo::new(), config());
    let mut sender = rig.join(weight(1));
    sender.push_all(9, 1000);
    rig.step();
    rig.arbiter
        .change_client(sender.client.id(), holding(2, weight(1)))
        .unwrap();
    sender.push_all(5, 1000);
    rig.step_at(ms(1));
    assert_eq!(rig.stats(&sender).flow.queued.packets, 7);
    assert_eq!(sender.push(1000).unwrap().dropped_before, 5);
}

#[test]
fn each_client_is_known_by_its_own_number_in_the_order_of_registration() {
    let mut rig = Rig::new(Qfq::new(), config());
    let senders: Vec<_> = (1..=5).map(|w| rig.join(weight(w))).collect();
    rig.step();
    let known: Vec<_> = rig.arbiter.client_stats().map(|(id, _)| id).collect();
    let given: Vec<_> = senders.iter().map(|s| s.client.id()).collect();
    assert_eq!(known, given);
    assert!(given.windows(2).all(|pair| pair[0] != pair[1]));
}

#[test]
fn handles_move_between_threads() {
    fn sent<T: Send>(_: &T) {}
    fn shared<T: Sync>(_: &T) {}
    let mut rig = Rig::new(Qfq::new(), config());
    sent(&rig.registrar);
    shared(&rig.registrar);
    sent(&rig.join(weight(1)).client);
    sent(&rig.arbiter);
}

#[test]
fn the_shortest_packet_of_the_lightest_client_is_sent() {
    let mut rig = Rig::new(Qfq::new(), fast());
    let mut sender = rig.join(FlowConfig::new(Weight::ONE, Length::MAX));
    sender.push(1).unwrap();
    assert_eq!(rig.step().transmitted, 1);
}
