//! The bell, and the room of an asynchronous producer, in every interleaving and with every outcome that the memory
//! model allows.
//!
//! No wait has a timeout: an arbiter that never wakes is a deadlock, which loom reports.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p fairlane-mailbox --release --test loom_bell`
#![cfg(loom)]

use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use fairlane_mailbox::{
    Consumer, Full, Producer, Room,
    bell::{Listener, Ringer, Woken, bell},
    mailbox, slots_per_line,
};
use loom::{future::block_on, thread};

/// Two lines: the fewest slots that a mailbox can have.
const SMALLEST: usize = 2 * slots_per_line::<u64>();

/// The possible outcomes that occurred in an exploration. If one is missing, the race under test was never run.
#[derive(Clone)]
struct Outcomes<const N: usize>(Arc<[AtomicUsize; N]>);

impl<const N: usize> Outcomes<N> {
    fn new() -> Self {
        Self(Arc::new([const { AtomicUsize::new(0) }; N]))
    }

    fn note(&self, outcome: usize) {
        self.0[outcome].fetch_add(1, Ordering::Relaxed);
    }

    fn assert_all(&self) {
        for (outcome, count) in self.0.iter().enumerate() {
            assert!(count.load(Ordering::Relaxed) > 0, "never seen: {outcome}");
        }
    }
}

fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// A client as in the runtime: the mailbox is dropped first, then the ringer.
struct Client {
    producer: Producer<u64>,
    ringer: Ringer,
}

impl Client {
    fn push(&mut self, value: u64) {
        self.producer.push(value).unwrap();
        self.ringer.ring();
    }
}

/// An arbiter that works like the runtime's, and sleeps as soon as its list is empty.
struct Arbiter {
    listener: Listener,
    mailboxes: Vec<Consumer<u64>>,
    listed: Vec<u32>,
    taken: Vec<Vec<u64>>,
}

impl Arbiter {
    fn new(clients: u32) -> (Self, Vec<Client>) {
        let listener = bell(clients);
        let handle = listener.handle();
        let (producers, mailboxes): (Vec<_>, Vec<_>) =
            (0..clients).map(|_| mailbox(SMALLEST).unwrap()).unzip();
        let clients_ends = (0..clients)
            .zip(producers)
            .map(|(client, producer)| Client {
                producer,
                ringer: handle.ringer(client),
            })
            .collect();
        let arbiter = Self {
            listener,
            mailboxes,
            listed: (0..clients).collect(),
            taken: vec![Vec::new(); clients as usize],
        };
        (arbiter, clients_ends)
    }

    fn pop(&mut self, client: u32) -> bool {
        let value = self.mailboxes[client as usize].pop();
        self.taken[client as usize].extend(value);
        value.is_some()
    }

    /// Puts all clients to doze except those whose mailbox is not empty.
    fn doze(&mut self) {
        for &client in &self.listed {
            self.listener.doze(client);
        }
        self.listener.settle();
        for client in std::mem::take(&mut self.listed) {
            let holds = self.pop(client) || self.mailboxes[client as usize].is_abandoned();
            if holds && self.listener.rouse(client) {
                self.listed.push(client);
            }
        }
    }

    fn collect(&mut self) -> usize {
        let listed = &mut self.listed;
        self.listener.collect(|client| {
            assert!(!listed.contains(&client), "{client} is listed already");
            listed.push(client);
        })
    }

    /// Runs until each client's mailbox has returned `values` values.
    fn run_until(&mut self, values: usize) {
        while self.taken.iter().any(|taken| taken.len() < values) {
            self.collect();
            for client in self.listed.clone() {
                while self.pop(client) {}
            }
            self.doze();
            if self.listed.is_empty() && self.taken.iter().any(|taken| taken.len() < values) {
                assert_eq!(self.listener.sleep(None), Woken::Rung);
            }
        }
    }

    fn assert_each_took(&self, values: &[u64]) {
        for taken in &self.taken {
            assert_eq!(taken, values);
        }
    }
}

#[test]
fn a_push_is_never_slept_over() {
    loom::model(|| {
        let (mut arbiter, mut clients) = Arbiter::new(1);
        let mut client = clients.remove(0);
        let pushing = thread::spawn(move || {
            client.push(0);
            client
        });
        arbiter.run_until(1);
        let _client = pushing.join().unwrap();
        arbiter.assert_each_took(&[0]);
    });
}

#[test]
fn pushes_are_taken_once_and_in_order_by_an_arbiter_that_sleeps_in_between() {
    check(4, || {
        let (mut arbiter, mut clients) = Arbiter::new(1);
        let mut client = clients.remove(0);
        let pushing = thread::spawn(move || {
            client.push(0);
            client.push(1);
            client
        });
        arbiter.run_until(2);
        let _client = pushing.join().unwrap();
        arbiter.assert_each_took(&[0, 1]);
    });
}

#[test]
fn of_two_clients_neither_is_slept_over() {
    check(3, || {
        let (mut arbiter, clients) = Arbiter::new(2);
        let pushing: Vec<_> = clients
            .into_iter()
            .map(|mut client| {
                thread::spawn(move || {
                    client.push(0);
                    client
                })
            })
            .collect();
        arbiter.run_until(1);
        let _clients: Vec<_> = pushing.into_iter().map(|t| t.join().unwrap()).collect();
        arbiter.assert_each_took(&[0]);
    });
}

#[test]
fn an_abandoned_mailbox_is_never_slept_over() {
    loom::model(|| {
        let (mut arbiter, mut clients) = Arbiter::new(1);
        let leaving = thread::spawn(move || drop(clients.remove(0)));
        while !arbiter.mailboxes[0].is_abandoned() {
            arbiter.doze();
            if arbiter.listed.is_empty() {
                assert_eq!(arbiter.listener.sleep(None), Woken::Rung);
                arbiter.collect();
            }
        }
        leaving.join().unwrap();
    });
}

#[test]
fn what_was_pushed_before_a_ring_is_there_when_the_client_is_given() {
    // By number: collected or not. If two clients ring, one may be collected through the bit that the other has set.
    let outcomes = Outcomes::<4>::new();
    let seen = outcomes.clone();
    check(3, move || {
        let (mut arbiter, clients) = Arbiter::new(2);
        arbiter.doze();
        let pushing = clients.into_iter().map(|mut client| {
            thread::spawn(move || {
                client.push(0);
                client
            })
        });
        let pushing: Vec<_> = pushing.collect();
        arbiter.collect();
        for client in arbiter.listed.clone() {
            assert!(arbiter.pop(client));
        }
        seen.note(arbiter.listed.iter().map(|client| 1 << client).sum());
        let _clients: Vec<_> = pushing.into_iter().map(|t| t.join().unwrap()).collect();
    });
    outcomes.assert_all();
}

#[test]
fn a_client_is_taken_back_or_given_and_never_both() {
    let outcomes = Outcomes::<3>::new();
    let seen = outcomes.clone();
    loom::model(move || {
        let (mut arbiter, mut clients) = Arbiter::new(1);
        let client = clients.remove(0);
        arbiter.listener.doze(0);
        arbiter.listener.settle();
        let ringing = thread::spawn(move || {
            client.ringer.ring();
            client
        });
        let back = arbiter.listener.rouse(0);
        arbiter.listed.retain(|_| back);
        let given = arbiter.collect();
        let client = ringing.join().unwrap();
        let late = arbiter.collect();
        assert_eq!(usize::from(back) + given + late, 1);
        seen.note(
            [back, given == 1, late == 1]
                .iter()
                .position(|&is| is)
                .unwrap(),
        );

        // It can be put to doze again, and rings again.
        arbiter.doze();
        client.ringer.ring();
        assert_eq!(arbiter.collect(), 1);
    });
    outcomes.assert_all();
}

#[test]
fn a_client_that_has_rung_is_given_next_whatever_the_others_are_in_the_middle_of() {
    // The second client shares a leaf with the first, or only the group.
    for second in 1..3 {
        let outcomes = Outcomes::<4>::new();
        let seen = outcomes.clone();
        check(3, move || {
            let mut listener = bell(3);
            let handle = listener.handle();
            let clients = [0, second];
            let ringers = clients.map(|client| handle.ringer(client));
            for client in clients {
                listener.doze(client);
            }
            listener.settle();
            let rung = loom::sync::Arc::new(loom::sync::atomic::AtomicUsize::new(0));
            let bit = |client: u32| 1 << usize::from(client == second);
            let [first, last] = ringers;
            let ringing = [(first, 1), (last, 2)].map(|(ringer, bit)| {
                let rung = loom::sync::Arc::clone(&rung);
                thread::spawn(move || {
                    ringer.ring();
                    rung.fetch_add(bit, Ordering::Release);
                    ringer
                })
            });
            let sure = rung.load(Ordering::Acquire);
            seen.note(sure);
            let mut given = 0;
            listener.collect(|client| given += bit(client));
            assert_eq!(sure & !given, 0);
            let _ringers = ringing.map(|thread| thread.join().unwrap());
            listener.collect(|client| given += bit(client));
            assert_eq!(given, 3, "each once");
        });
        outcomes.assert_all();
    }
}

#[test]
fn the_number_of_a_client_that_left_is_free_when_it_is_given() {
    check(3, || {
        let mut listener = bell(3);
        let handle = listener.handle();
        let clients = [0, 2];
        let leaving = clients.map(|client| {
            let ringer = handle.ringer(client);
            listener.doze(client);
            ringer
        });
        listener.settle();
        let leaving = leaving.map(|ringer| thread::spawn(move || drop(ringer)));
        let mut next = Vec::new();
        // It panics if the number is not free.
        listener.collect(|client| next.push(handle.ringer(client)));
        for thread in leaving {
            thread.join().unwrap();
        }
        listener.collect(|client| next.push(handle.ringer(client)));
        assert_eq!(next.len(), clients.len());
    });
}

#[test]
fn whoever_rings_and_nudges_at_once_one_of_them_wakes_the_arbiter() {
    let outcomes = Outcomes::<2>::new();
    let seen = outcomes.clone();
    check(3, move || {
        let (mut arbiter, mut clients) = Arbiter::new(1);
        arbiter.doze();
        let handle = arbiter.listener.handle();
        let client = clients.remove(0);
        let ringing = thread::spawn(move || {
            client.ringer.ring();
            client
        });
        let nudging = thread::spawn(move || handle.nudge());
        let (mut sleeps, mut nudged) = (0, false);
        while arbiter.listed.is_empty() || !nudged {
            sleeps += 1;
            nudged |= arbiter.listener.sleep(None) == Woken::Nudged;
            arbiter.collect();
            assert!(arbiter.listener.wakes() <= sleeps);
        }
        seen.note(sleeps as usize - 1);
        let _client = ringing.join().unwrap();
        nudging.join().unwrap();
        assert!(arbiter.listener.wakes() <= sleeps);
    });
    outcomes.assert_all();
}

#[test]
fn what_was_done_before_a_nudge_is_seen_after_it() {
    check(4, || {
        let mut listener = bell(0);
        // Only the nudge announces `done`.
        let done: [_; 2] = std::array::from_fn(|_| {
            loom::sync::Arc::new(loom::sync::atomic::AtomicBool::new(false))
        });
        let nudging = done.clone().map(|done| {
            let handle = listener.handle();
            thread::spawn(move || {
                done.store(true, Ordering::Relaxed);
                handle.nudge();
            })
        });
        while !done.iter().all(|done| done.load(Ordering::Relaxed)) {
            assert_eq!(listener.sleep(None), Woken::Nudged);
        }
        for thread in nudging {
            thread.join().unwrap();
        }
    });
}

#[test]
fn a_client_that_leaves_late_takes_no_ring_from_who_has_its_number_next() {
    loom::model(|| {
        let mut listener = bell(1);
        let handle = listener.handle();
        let former = handle.ringer(0);
        // The arbiter saw the mailbox abandoned, and has reused the number, before the former client's thread drops its
        // ringer.
        let next = handle.ringer(0);
        let leaving = thread::spawn(move || drop(former));
        listener.doze(0);
        listener.settle();
        next.ring();
        assert_eq!(listener.collect(|_| ()), 1);
        leaving.join().unwrap();
        assert_eq!(listener.collect(|_| ()), 0);
    });
}

#[test]
fn a_client_that_has_the_number_of_one_that_left_is_never_slept_over() {
    check(3, || {
        let (mut arbiter, mut clients) = Arbiter::new(1);
        let leaving = thread::spawn(move || drop(clients.remove(0)));
        while !(arbiter.mailboxes[0].is_abandoned() && arbiter.listed == [0]) {
            if arbiter.listed.is_empty() {
                arbiter.listener.sleep(None);
                arbiter.collect();
            } else {
                arbiter.doze();
            }
        }
        let (producer, consumer) = mailbox(SMALLEST).unwrap();
        let ringer = arbiter.listener.handle().ringer(0);
        arbiter.mailboxes[0] = consumer;
        let pushing = thread::spawn(move || {
            let mut client = Client { producer, ringer };
            client.push(0);
            client
        });
        arbiter.run_until(1);
        let _client = pushing.join().unwrap();
        arbiter.assert_each_took(&[0]);
        leaving.join().unwrap();
    });
}

#[test]
fn a_producer_that_waits_for_room_is_woken_by_the_one_release_there_is() {
    let outcomes = Outcomes::<2>::new();
    let seen = outcomes.clone();
    loom::model(move || {
        let (mut producer, mut consumer) = mailbox(SMALLEST).unwrap();
        let room = loom::sync::Arc::new(Room::new());
        let mut next = 0;
        while producer.push(next).is_ok() {
            next += 1;
        }
        let waiting = loom::sync::Arc::clone(&room);
        let polls = seen.clone();
        let pushing = thread::spawn(move || {
            let mut pending = 0;
            block_on(poll_fn(|cx| {
                let polled = waiting.poll_room(cx, || producer.push(next).is_err());
                pending |= usize::from(polled.is_pending());
                polled
            }));
            polls.note(pending);
            producer
        });
        for value in 0..next {
            assert_eq!(consumer.pop(), Some(value));
        }
        room.freed();
        let mut producer = pushing.join().unwrap();
        assert_eq!(consumer.pop(), Some(next));
        assert_eq!(consumer.pop(), None);
        assert!(!matches!(producer.push(9), Err(Full(_))));
    });
    outcomes.assert_all();
}

/// The same with the roles reversed, as a transmit worker waits for frames: one announcement covers many values, after
/// the last of them.
#[test]
fn a_consumer_that_waits_for_values_is_woken_by_the_one_word_of_them_there_is() {
    let outcomes = Outcomes::<2>::new();
    let seen = outcomes.clone();
    loom::model(move || {
        let (mut producer, mut consumer) = mailbox(SMALLEST).unwrap();
        let values = loom::sync::Arc::new(Room::new());
        let waiting = loom::sync::Arc::clone(&values);
        let polls = seen.clone();
        let taking = thread::spawn(move || {
            let mut pending = 0;
            let mut took = Vec::new();
            while took.len() < 2 {
                block_on(poll_fn(|cx| {
                    let polled = waiting.poll_room(cx, || consumer.is_empty());
                    pending |= usize::from(polled.is_pending());
                    polled
                }));
                consumer.pop_batch(usize::MAX, |value| took.push(value));
            }
            polls.note(pending);
            took
        });
        for value in 0..2 {
            producer.push(value).unwrap();
        }
        values.freed();
        assert_eq!(taking.join().unwrap(), [0, 1]);
    });
    outcomes.assert_all();
}
