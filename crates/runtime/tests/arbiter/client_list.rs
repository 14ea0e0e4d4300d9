//! The client list: a step visits the clients that may have packets, a bounded number of them, each
//! no more often than configured; and no client is missed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use fairlane_core::Nanos;
use fairlane_core::sched::Fifo;
use fairlane_runtime::{ArbiterConfig, RegisterError, Woken};

use crate::remote::RemoteSender;
use crate::rig::{Packet, Rig, Sender, fast, length, ms, numbered, us, weight};

/// Upper bound on the time until a silent client dozes: `linger`, and as long until the next check
/// for silent clients.
const DOZES_WITHIN: Nanos = ms(2);

type Remotes = Vec<RemoteSender>;

fn remotes(rig: &Rig<Fifo>, count: usize) -> Remotes {
    (0..count)
        .map(|name| RemoteSender::join(&rig.registrar, weight(1), name, &rig.population))
        .collect()
}

#[test]
fn of_a_thousand_clients_a_step_looks_at_the_five_that_send() {
    let mut rig = Rig::new(
        Fifo::new(),
        ArbiterConfig {
            max_clients: 1000,
            scan_limit: 1000,
            ..fast()
        },
    );
    let mut remotes = remotes(&rig, 1000);
    rig.step();
    // Any of them may have pushed before its registration was processed.
    assert_eq!(
        (rig.arbiter.clients(), rig.arbiter.active_clients()),
        (1000, 1000)
    );
    let senders = [3, 64, 500, 501, 999];
    let send = |rig: &mut Rig<Fifo>, remotes: &mut Remotes, span| {
        let end = rig.now + span;
        while rig.now < end {
            senders.iter().for_each(|&sender| remotes[sender].push(100));
            assert_eq!(rig.step_after(us(50)).drained, 5);
        }
    };
    send(&mut rig, &mut remotes, DOZES_WITHIN);
    assert_eq!(
        (rig.arbiter.clients(), rig.arbiter.active_clients()),
        (1000, 5)
    );
    remotes.iter().for_each(|remote| _ = remote.looks());
    send(&mut rig, &mut remotes, ms(5));
    for remote in &remotes {
        let looks = if senders.contains(&remote.name) {
            100
        } else {
            0
        };
        assert_eq!(remote.looks(), looks, "at {}", remote.name);
    }
}

/// Returns a rig of one client that has fallen silent, and dozes.
fn one_that_dozes() -> (Rig<Fifo>, Sender) {
    let mut rig = Rig::new(Fifo::new(), fast());
    let sender = rig.join(weight(1));
    rig.step();
    assert_eq!(rig.arbiter.active_clients(), 1);
    rig.step_after(DOZES_WITHIN);
    assert_eq!(
        (rig.arbiter.clients(), rig.arbiter.active_clients()),
        (1, 0)
    );
    (rig, sender)
}

#[test]
fn a_client_that_dozes_is_heard_at_the_step_after_its_push() {
    let (mut rig, mut sender) = one_that_dozes();
    for round in 0..3 {
        sender.push_all(2, 100);
        assert_eq!(rig.step_after(us(1)).drained, 2, "round {round}");
        assert_eq!(rig.arbiter.active_clients(), 1);
        // It needs not ring now.
        sender.push_all(1, 100);
        assert_eq!(rig.step_after(us(1)).drained, 1);
        rig.step_after(DOZES_WITHIN);
        assert_eq!(rig.arbiter.active_clients(), 0);
    }
    assert_eq!(rig.arrivals(), numbered(0, 0..9));
}

#[test]
fn a_client_that_leaves_while_it_dozes_is_forgotten() {
    let (mut rig, sender) = one_that_dozes();
    let id = sender.client.id();
    drop(sender);
    rig.step_after(us(1));
    assert_eq!(
        (rig.arbiter.clients(), rig.arbiter.active_clients()),
        (0, 0)
    );
    assert_eq!(rig.join(weight(1)).client.id(), id);
}

#[test]
fn a_client_that_pushes_while_it_dozes_and_leaves_is_sent_first() {
    let (mut rig, mut sender) = one_that_dozes();
    sender.push_all(3, 100);
    drop(sender);
    assert_eq!(rig.step_after(us(1)).drained, 3);
    rig.step_after(us(1));
    assert_eq!(
        (rig.arbiter.clients(), rig.arrivals()),
        (0, numbered(0, 0..3))
    );
}

#[test]
fn a_mailbox_is_looked_at_once_in_the_read_interval() {
    let interval = us(10);
    let mut rig = Rig::new(
        Fifo::new(),
        ArbiterConfig {
            read_interval: interval,
            linger: ms(100),
            ..fast()
        },
    );
    let mut remotes = remotes(&rig, 2);
    rig.step();
    let first = rig.now;
    for (after, drained) in [(1, 0), (9_999, 0), (10_000, 2), (19_999, 0), (20_000, 2)] {
        if drained == 0 {
            // More than one packet to be found would show nothing more.
            remotes[0].push(100);
        }
        assert_eq!(
            rig.step_at(first + Nanos(after)).drained,
            drained,
            "{after} ns"
        );
        if after == 10_000 {
            remotes[0].push(100);
        }
    }
    // A thousand steps in a hundred intervals.
    remotes.iter().for_each(|remote| _ = remote.looks());
    for _ in 0..1000 {
        rig.step_after(us(1));
    }
    for remote in &remotes {
        assert_eq!(remote.looks(), 100);
    }
}

#[test]
fn a_step_looks_at_no_more_mailboxes_than_the_scan_limit_and_the_next_goes_on_there() {
    for (clients, limit) in [(10, 3), (10, 1), (12, 4), (7, 6), (5, 5), (5, 64), (3, 0)] {
        let mut rig = Rig::new(
            Fifo::new(),
            ArbiterConfig {
                scan_limit: limit,
                ..fast()
            },
        );
        let remotes = remotes(&rig, clients);
        // 0 is taken for 1.
        let limit = limit.max(1);
        let mut seen = Vec::new();
        for _ in 0..3 * clients {
            rig.step_after(us(1));
            let mut looked_at: Vec<_> = remotes
                .iter()
                .filter(|remote| remote.looks() > 0)
                .map(|remote| remote.name)
                .collect();
            assert_eq!(looked_at.len(), limit.min(clients), "{clients} clients");
            // In order of arrival, from the end of the last step.
            if let Some(&last) = seen.last()
                && limit < clients
            {
                looked_at.sort_by_key(|name| (name + clients - last - 1) % clients);
            }
            seen.extend(looked_at);
        }
        for (at, name) in seen.into_iter().enumerate() {
            assert_eq!(name, at % clients, "{clients} clients, {limit} a step");
        }
    }
}

#[test]
fn every_active_client_is_heard_within_one_round_of_all() {
    for (clients, limit) in [(10_usize, 3), (64, 7), (9, 9), (9, 8)] {
        let mut rig = Rig::new(
            Fifo::new(),
            ArbiterConfig {
                scan_limit: limit,
                ..fast()
            },
        );
        let mut senders: Vec<_> = (0..clients).map(|_| rig.join(weight(1))).collect();
        // Wherever the list begins by now.
        for start in 0..clients {
            rig.step_after(us(1));
            senders
                .iter_mut()
                .for_each(|sender| sender.push_all(1, 100));
            let steps = clients.div_ceil(limit);
            let heard: usize = (0..steps).map(|_| rig.step_after(us(1)).drained).sum();
            assert_eq!(heard, clients, "start {start}, {limit} of {clients} a step");
        }
    }
}

#[test]
fn whoever_joins_or_leaves_in_between_the_others_are_heard_within_a_round() {
    const LIMIT: usize = 3;
    for start in 0..20 {
        let mut rig = Rig::new(
            Fifo::new(),
            ArbiterConfig {
                scan_limit: LIMIT,
                ..fast()
            },
        );
        // Neighbours in the list.
        let (mut stay, mut leave) = (Vec::new(), VecDeque::new());
        for _ in 0..10 {
            stay.push(rig.join(weight(1)));
            leave.push_back(rig.join(weight(1)));
        }
        for _ in 0..=start {
            rig.step_after(us(1));
        }
        for round in 0..6 {
            stay.iter_mut().for_each(|sender| sender.push_all(1, 100));
            let (mut heard, mut steps) = (0, 0);
            // Those that were in the list at any time meanwhile.
            let mut listed = rig.arbiter.active_clients();
            while heard < stay.len() {
                if (start + round + steps) % 3 == 0 {
                    leave.push_back(rig.join(weight(1)));
                    listed += 1;
                } else {
                    leave.pop_front();
                }
                heard += rig.step_after(us(1)).drained;
                steps += 1;
                assert!(
                    steps <= listed.div_ceil(LIMIT),
                    "start {start}, round {round}: {heard} heard"
                );
            }
        }
    }
}

#[test]
fn a_client_lingers_in_the_list_as_long_as_configured_after_its_last_packet() {
    let linger = us(300);
    let mut rig = Rig::new(Fifo::new(), ArbiterConfig { linger, ..fast() });
    let mut remotes = remotes(&rig, 2);
    let silent = remotes.remove(1);
    let mut often = remotes.remove(0);
    let joined = us(7);
    rig.step_at(joined);
    let mut dozes_at = None;
    for n in 1..1000 {
        // Just often enough.
        if n % 29 == 0 {
            often.push(100);
        }
        rig.step_at(joined + us(10 * n));
        if silent.is_dozing() {
            dozes_at.get_or_insert(rig.now);
        }
    }
    assert_eq!(often.dozes(), 0);
    assert_eq!(silent.dozes(), 1);
    let after = dozes_at.unwrap().since(joined);
    assert!(after >= linger && after < linger + linger, "{after:?}");
}

/// A client that leaves rings for the last time after its mailbox is gone; by then its number may
/// belong to another client, and doze.
#[test]
fn a_number_given_again_while_the_former_thread_is_still_going_brings_no_confusion() {
    const LIVES: usize = 2000;
    /// The cost of a lost ring.
    const LONGEST_SLEEP: Duration = Duration::from_secs(60);
    let mut rig = Rig::new(
        Fifo::new(),
        ArbiterConfig {
            max_clients: 1,
            // A silent client dozes.
            linger: Nanos::ZERO,
            ..fast()
        },
    );
    let (registrar, population) = (rig.registrar.clone(), rig.population.clone());
    let lives = AtomicUsize::new(0);
    let mut unheard = 0;
    let mut next = BTreeMap::new();
    let mut arrived = 0;
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let mut client = match registrar.register(weight(1)) {
                        Ok(client) => client,
                        Err(RegisterError::TooManyClients(1)) => {
                            thread::yield_now();
                            if lives.load(Ordering::Relaxed) >= LIVES {
                                return;
                            }
                            continue;
                        }
                        Err(error) => panic!("{error}"),
                    };
                    let name = lives.fetch_add(1, Ordering::Relaxed);
                    for number in 0..(name % 4) as u32 {
                        let packet = population.packet(name, number, 100);
                        client.push(length(100), packet).unwrap();
                        if name.is_multiple_of(3) {
                            thread::yield_now();
                        }
                    }
                    if name >= LIVES {
                        return;
                    }
                }
            });
        }
        while lives.load(Ordering::Relaxed) < LIVES || rig.arbiter.clients() > 0 {
            let step = rig.step_after(us(1));
            for Packet { from, number, .. } in &rig.arrived() {
                let next = next.entry(*from).or_insert(0);
                assert_eq!(number, next, "of {from}");
                *next += 1;
                arrived += 1;
            }
            if step.drained == 0 && lives.load(Ordering::Relaxed) < LIVES {
                let woken = rig.arbiter.sleep(LONGEST_SLEEP);
                unheard += u32::from(woken == Some(Woken::TimedOut));
            }
        }
    });
    rig.step_after(ms(1));
    rig.step_after(ms(1));
    arrived += rig.arrived().len();
    assert_eq!(unheard, 0, "nobody heard some rings");
    let lives = lives.into_inner();
    assert_eq!(arrived, (0..lives).map(|name| name % 4).sum::<usize>());
    assert_eq!(rig.population.count(), 0);
}
