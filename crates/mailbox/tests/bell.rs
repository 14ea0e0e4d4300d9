//! The bell on real threads, and its guarantees to a single thread.
#![cfg(not(loom))]

use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::{Duration, Instant},
};

use fairlane_mailbox::{
    Consumer, Full, Room,
    bell::{Listener, Ringer, Woken, bell},
    mailbox,
};

/// Longer than any thread here waits.
const LONG: Duration = Duration::from_secs(60);
const AT_ONCE: Option<Duration> = Some(Duration::ZERO);

fn collected(listener: &mut Listener) -> Vec<u32> {
    let mut given = Vec::new();
    let count = listener.collect(|client| given.push(client));
    assert_eq!(count, given.len());
    given
}

fn doze(listener: &mut Listener, clients: impl IntoIterator<Item = u32>) {
    for client in clients {
        listener.doze(client);
    }
    listener.settle();
}

#[test]
fn who_is_awake_is_not_given_however_often_it_rings() {
    let mut listener = bell(2);
    let ringer = listener.handle().ringer(1);
    for _ in 0..10 {
        ringer.ring();
    }
    assert_eq!(collected(&mut listener), []);
    assert_eq!(listener.sleep(AT_ONCE), Woken::TimedOut);
}

#[test]
fn who_dozes_is_given_once_however_often_it_rings() {
    let mut listener = bell(2);
    let ringer = listener.handle().ringer(1);
    for _ in 0..3 {
        doze(&mut listener, [1]);
        assert_eq!(collected(&mut listener), []);
        ringer.ring();
        ringer.ring();
        assert_eq!(collected(&mut listener), [1]);
        ringer.ring();
        assert_eq!(collected(&mut listener), []);
    }
}

#[test]
fn a_bell_for_all_the_clients_there_may_be_takes_what_its_ringers_need() {
    let resident = || -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let size = line.and_then(|line| line.split_whitespace().nth(1));
        size.unwrap().parse().unwrap()
    };
    if cfg!(miri) || !cfg!(target_os = "linux") {
        return;
    }
    let before = resident();
    let mut bells: Vec<_> = (0..4).map(|_| bell(1 << 24)).collect();
    for listener in &mut bells {
        let ringers = [0, 1, 5_000].map(|client| listener.handle().ringer(client));
        doze(listener, [0, 1, 5_000]);
        ringers[2].ring();
        assert_eq!(collected(listener), [5_000]);
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < 100_000, "{grown} KiB, of 4 GiB for all clients");
}

#[test]
fn all_who_have_rung_are_given_however_many_clients_there_are() {
    // A partial leaf, leaves alone in their groups, the last bit of the top, several leaves in a group, and a partial
    // group.
    for clients in [1, 63, 64, 65, 1919, 1920, 1921, 5000] {
        let mut listener = bell(clients);
        let handle = listener.handle();
        let ringers: Vec<Ringer> = (0..clients).map(|client| handle.ringer(client)).collect();
        for step in [1, 7, 64, 4999] {
            doze(&mut listener, 0..clients);
            let (rung, silent): (Vec<u32>, Vec<u32>) =
                (0..clients).partition(|client| (client + 1) % step == 0);
            for &client in rung.iter().rev() {
                ringers[client as usize].ring();
            }
            if !rung.is_empty() {
                assert_eq!(listener.sleep(None), Woken::Rung);
            }
            let mut given = collected(&mut listener);
            given.sort_unstable();
            assert_eq!(given, rung);
            assert_eq!(collected(&mut listener), []);
            assert!(silent.into_iter().all(|client| listener.rouse(client)));
        }
    }
}

#[test]
fn a_bell_without_clients_can_be_nudged() {
    let mut listener = bell(0);
    assert_eq!(listener.sleep(AT_ONCE), Woken::TimedOut);
    listener.handle().nudge();
    assert_eq!(listener.sleep(None), Woken::Nudged);
}

#[test]
fn who_is_taken_back_is_awake_and_who_has_rung_is_not_taken_back() {
    let mut listener = bell(2);
    let handle = listener.handle();
    let [first, second] = [0, 1].map(|client| handle.ringer(client));
    doze(&mut listener, [0, 1]);
    second.ring();
    assert!(listener.rouse(0));
    assert!(!listener.rouse(1));
    first.ring();
    assert_eq!(collected(&mut listener), [1]);
}

#[test]
fn a_nudge_is_remembered_and_told_once() {
    let mut listener = bell(1);
    let handle = listener.handle();
    let ringer = handle.ringer(0);
    handle.nudge();
    handle.nudge();
    assert_eq!(listener.sleep(None), Woken::Nudged);
    assert_eq!(listener.sleep(AT_ONCE), Woken::TimedOut);

    // Neither a collect nor a ring clears it.
    doze(&mut listener, [0]);
    handle.nudge();
    ringer.ring();
    assert_eq!(collected(&mut listener), [0]);
    assert_eq!(listener.sleep(None), Woken::Nudged);
    assert_eq!(listener.sleep(AT_ONCE), Woken::TimedOut);

    doze(&mut listener, [0]);
    handle.nudge();
    ringer.ring();
    assert_eq!(listener.sleep(None), Woken::Nudged);
    assert_eq!(collected(&mut listener), [0]);
    assert_eq!(listener.wakes(), 0, "nobody slept");
}

#[test]
fn a_sleep_ends_when_its_time_is_over_and_not_before() {
    let mut listener = bell(1);
    for longest in [Duration::ZERO, Duration::from_millis(20)] {
        let start = Instant::now();
        assert_eq!(listener.sleep(Some(longest)), Woken::TimedOut);
        assert!(start.elapsed() >= longest);
    }
}

#[test]
fn the_longest_sleep_there_is_can_be_asked_for() {
    let mut listener = bell(1);
    let handle = listener.handle();
    let nudging = thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        handle.nudge();
    });
    assert_eq!(listener.sleep(Some(Duration::MAX)), Woken::Nudged);
    nudging.join().unwrap();
}

#[test]
fn a_ring_wakes_the_arbiter_and_only_the_first_does() {
    let mut listener = bell(2);
    let handle = listener.handle();
    let ringers = [0, 1].map(|client| handle.ringer(client));
    // A listener that is late for its sleep does not sleep.
    for _ in 0..100 {
        let before = listener.wakes();
        doze(&mut listener, [0, 1]);
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(20));
                ringers.iter().for_each(Ringer::ring);
            });
            assert_eq!(listener.sleep(Some(LONG)), Woken::Rung);
        });
        assert_eq!(collected(&mut listener), [0, 1]);
        match listener.wakes() - before {
            0 => {}
            wakes => return assert_eq!(wakes, 1),
        }
    }
    panic!("it never slept");
}

#[test]
fn a_sleep_that_timed_out_leaves_nobody_to_be_woken() {
    let mut listener = bell(1);
    let ringer = listener.handle().ringer(0);
    doze(&mut listener, [0]);
    assert_eq!(listener.sleep(AT_ONCE), Woken::TimedOut);
    ringer.ring();
    assert_eq!(listener.wakes(), 0);
    assert_eq!(collected(&mut listener), [0]);
}

#[test]
fn a_client_that_leaves_rings() {
    let mut listener = bell(1);
    let ringer = listener.handle().ringer(0);
    doze(&mut listener, [0]);
    drop(ringer);
    assert_eq!(collected(&mut listener), [0]);
}

#[test]
fn a_ringer_whose_number_was_given_again_rings_no_more() {
    let mut listener = bell(1);
    let handle = listener.handle();
    let former = handle.ringer(0);
    let next = handle.ringer(0);
    doze(&mut listener, [0]);
    former.ring();
    drop(former);
    assert_eq!(collected(&mut listener), []);
    next.ring();
    assert_eq!(collected(&mut listener), [0]);
}

#[test]
#[should_panic(expected = "client 3 of a bell for 3 clients: the number must be less")]
fn a_client_beyond_the_last_is_refused() {
    let _ = bell(3).handle().ringer(3);
}

#[test]
#[should_panic(expected = "client 0 dozes: its number is not free")]
fn the_number_of_a_client_that_dozes_is_refused() {
    let mut listener = bell(1);
    let _ringer = listener.handle().ringer(0);
    listener.doze(0);
    let _ = listener.handle().ringer(0);
}

#[test]
#[should_panic(expected = "client 0 has rung and was not given yet: its number is not free")]
fn the_number_of_a_client_that_has_rung_is_refused() {
    let mut listener = bell(1);
    let ringer = listener.handle().ringer(0);
    listener.doze(0);
    ringer.ring();
    let _ = listener.handle().ringer(0);
}

const CLIENTS: u32 = if cfg!(miri) { 2 } else { 12 };
const VALUES: u64 = if cfg!(miri) { 30 } else { 20_000 };

/// More clients than the machine has cores, so that they are preempted anywhere; each is idle now and then, and the
/// arbiter sleeps whenever all are.
#[test]
fn every_value_of_clients_that_are_preempted_anywhere_arrives_once_and_in_order() {
    let mut listener = bell(CLIENTS);
    let handle = listener.handle();
    let mut mailboxes: Vec<(Consumer<u64>, u64)> = Vec::new();
    let mut threads = Vec::new();
    for client in 0..CLIENTS {
        let (mut producer, consumer) = mailbox::<u64>(64).unwrap();
        let ringer = handle.ringer(client);
        mailboxes.push((consumer, 0));
        threads.push(thread::spawn(move || {
            for mut value in 0..VALUES {
                while let Err(Full(back)) = producer.push(value) {
                    value = back;
                    thread::yield_now();
                }
                ringer.ring();
                if value % (50 + u64::from(client)) == 0 {
                    thread::sleep(Duration::from_micros(50));
                }
            }
            drop(producer);
        }));
    }

    let mut listed: Vec<u32> = (0..CLIENTS).collect();
    let (mut left, mut sleeps) = (CLIENTS, 0);
    while left > 0 {
        listener.collect(|client| {
            assert!(!listed.contains(&client));
            listed.push(client);
        });
        let mut silent = true;
        listed.retain(|&client| {
            let (mailbox, expected) = &mut mailboxes[client as usize];
            let abandoned = mailbox.is_abandoned();
            while let Some(value) = mailbox.pop() {
                assert_eq!(value, *expected);
                *expected += 1;
                silent = false;
            }
            left -= u32::from(abandoned);
            !abandoned
        });
        if silent {
            doze(&mut listener, listed.iter().copied());
            listed.retain(|&client| {
                let (mailbox, expected) = &mut mailboxes[client as usize];
                let value = mailbox.pop();
                assert!(value.is_none_or(|value| value == *expected));
                *expected += u64::from(value.is_some());
                (value.is_some() || mailbox.is_abandoned()) && listener.rouse(client)
            });
            if listed.is_empty() && left > 0 {
                sleeps += 1;
                assert_eq!(listener.sleep(Some(LONG)), Woken::Rung);
            }
        }
    }
    assert!(mailboxes.iter().all(|&(_, taken)| taken == VALUES));
    assert!(sleeps > 0 && listener.wakes() <= sleeps);
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

struct Counting(AtomicUsize);

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_task_that_waits_for_room_is_woken_once_for_each_wait_and_not_otherwise() {
    let counting = Arc::new(Counting(AtomicUsize::new(0)));
    let wakes = || counting.0.load(Ordering::Relaxed);
    let waker = Waker::from(Arc::clone(&counting));
    let mut cx = Context::from_waker(&waker);
    let room = Room::default();

    assert_eq!(room.poll_room(&mut cx, || false), Poll::Ready(()));
    room.freed();
    assert_eq!(wakes(), 0, "it did not wait");

    assert_eq!(room.poll_room(&mut cx, || true), Poll::Pending);
    assert_eq!(room.poll_room(&mut cx, || true), Poll::Pending);
    room.freed();
    room.freed();
    assert_eq!(wakes(), 1);

    // Room that was made just before it waits.
    let mut looks = [true, false].into_iter();
    assert_eq!(
        room.poll_room(&mut cx, || looks.next().unwrap()),
        Poll::Ready(())
    );
    room.freed();
    assert_eq!(wakes(), 1, "it did not wait");
}

/// Runs a future on this thread, which sleeps between polls.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park_timeout(LONG),
        }
    }
}

#[test]
fn a_task_gets_all_its_values_through_a_small_mailbox() {
    let (mut producer, mut consumer) = mailbox::<u64>(16).unwrap();
    let room = Arc::new(Room::new());
    let waiting = Arc::clone(&room);
    let pushing = thread::spawn(move || {
        for value in 0..VALUES {
            block_on(poll_fn(|cx| {
                waiting.poll_room(cx, || producer.push(value).is_err())
            }));
        }
        producer
    });
    let start = Instant::now();
    for expected in 0..VALUES {
        loop {
            if let Some(value) = consumer.pop() {
                assert_eq!(value, expected);
                room.freed();
                break;
            }
            assert!(start.elapsed() < LONG, "the task was not woken");
            thread::yield_now();
        }
    }
    let _producer = pushing.join().unwrap();
    assert_eq!(consumer.pop(), None);
}
