//! Clients that are tasks: where a thread is refused, a task waits, and is woken.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use fairlane_core::Nanos;
use fairlane_core::sched::{Fifo, Qfq};
use fairlane_runtime::{ArbiterConfig, AsyncClient, Refusal, Refused};
use futures_sink::Sink;

use crate::executor::block_on;
use crate::rig::{
    Packet, Population, Rig, config, fast, holding, length, ms, numbered, us, weight,
};

/// Counts how often it was woken, and does nothing.
#[derive(Default)]
struct Count(std::sync::atomic::AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

impl Count {
    fn so_far(&self) -> usize {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// A task that numbers its packets from 0.
struct Task {
    client: AsyncClient<Packet>,
    number: u32,
    population: Population,
}

impl Task {
    fn join(rig: &Rig<Fifo>) -> Self {
        Task {
            client: rig.registrar.register_async(weight(1)).unwrap(),
            number: 0,
            population: rig.population.clone(),
        }
    }

    fn packet(&mut self) -> Packet {
        self.number += 1;
        self.population.packet(0, self.number - 1, 100)
    }

    /// Polls a send once, and drops it.
    fn send_once(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Refused<Packet>>> {
        let packet = self.packet();
        pin!(self.client.send(length(100), packet)).poll(context)
    }

    /// Sends until the task would have to wait.
    fn fill(&mut self, context: &mut Context<'_>) {
        while self.send_once(context).is_ready() {
            assert!(self.number < 10_000);
        }
    }

    fn sink(&mut self) -> Pin<&mut AsyncClient<Packet>> {
        Pin::new(&mut self.client)
    }
}

fn smallest() -> ArbiterConfig {
    ArbiterConfig {
        mailbox_slots: 2,
        ..fast()
    }
}

fn counted() -> (Arc<Count>, Waker) {
    let count = Arc::new(Count::default());
    (Arc::clone(&count), Waker::from(count))
}

#[test]
fn a_task_waits_where_the_mailbox_is_full_and_is_woken_once_there_is_room() {
    let mut rig = Rig::new(Fifo::new(), smallest());
    let mut task = Task::join(&rig);
    let (count, waker) = counted();
    let mut context = Context::from_waker(&waker);
    rig.step();
    for round in 1..4 {
        let before = task.number;
        task.fill(&mut context);
        assert_eq!(count.so_far(), round - 1, "nobody has made room");
        while rig.step_after(us(1)).drained > 0 {}
        assert_eq!(count.so_far(), round);
        assert!(task.number > before);
        // No task waits any more.
        rig.step_after(us(1));
        assert_eq!(count.so_far(), round);
    }
    let flushed = task.sink().poll_flush(&mut context);
    assert!(matches!(flushed, Poll::Ready(Ok(()))));
    rig.step_after(us(1));
    assert_eq!(rig.arrivals(), numbered(0, 0..task.number));
}

#[test]
fn a_send_that_is_dropped_while_it_waits_leaves_its_packet_for_the_next() {
    let mut rig = Rig::new(Fifo::new(), smallest());
    let mut task = Task::join(&rig);
    let mut context = Context::from_waker(Waker::noop());
    task.fill(&mut context);
    // The last one waits in the handle; another send has to wait for that one, and its packet
    // goes with it.
    let before = rig.population.count();
    assert_eq!(before, task.number as usize);
    assert!(task.send_once(&mut context).is_pending());
    assert_eq!(rig.population.count(), before);
    let waited = task.number - 1;
    while rig.step_after(us(1)).drained > 0 {}
    assert!(task.send_once(&mut context).is_ready());
    while rig.step_after(us(1)).drained > 0 {}
    let mut expected = numbered(0, 0..waited);
    expected.extend([(0, waited + 1)]);
    assert_eq!(rig.arrivals(), expected);
}

#[test]
fn a_try_does_not_overtake_a_packet_that_waits() {
    let mut rig = Rig::new(Fifo::new(), smallest());
    let mut task = Task::join(&rig);
    let mut context = Context::from_waker(Waker::noop());
    task.fill(&mut context);
    while rig.step_after(us(1)).drained > 0 {}
    // There is room by now.
    let packet = task.packet();
    let refused = task.client.try_push(length(100), packet).unwrap_err();
    assert_eq!(refused.reason, Refusal::MailboxFull);
    drop(refused);
    assert!(task.sink().poll_flush(&mut context).is_ready());
    let packet = task.packet();
    assert!(task.client.try_push(length(100), packet).is_ok());
    rig.step_after(us(1));
    rig.step_after(us(1));
    let mut expected = numbered(0, 0..task.number - 2);
    expected.extend([(0, task.number - 1)]);
    assert_eq!(rig.arrivals(), expected);
}

#[test]
fn a_packet_too_long_comes_back_and_nothing_else_does() {
    let mut rig = Rig::new(Fifo::new(), smallest());
    let mut task = Task::join(&rig);
    for round in 0..3 {
        let packet = task.packet();
        let refused = block_on(task.client.send(length(1501), packet)).unwrap_err();
        let (len, max) = (length(1501), length(1500));
        assert_eq!(refused.reason, Refusal::TooLong { len, max });
        assert_eq!(refused.packet.number, 2 * round);
        drop(refused);
        let packet = task.packet();
        assert!(block_on(task.client.send(length(1500), packet)).is_ok());
        rig.step_after(us(1));
    }
    assert_eq!(rig.arrivals(), [(0, 1), (0, 3), (0, 5)]);
    // While another waits, too.
    let mut context = Context::from_waker(Waker::noop());
    task.fill(&mut context);
    rig.step_after(us(1));
    rig.step_after(us(1));
    let packet = task.packet();
    let refused = block_on(task.client.send(length(1501), packet)).unwrap_err();
    assert_eq!(refused.packet.number, task.number - 1);
}

#[test]
fn a_task_that_waits_when_the_arbiter_goes_learns_it() {
    let rig = Rig::new(Fifo::new(), smallest());
    let mut waits = Task::join(&rig);
    let (count, waker) = counted();
    waits.fill(&mut Context::from_waker(&waker));
    drop(rig.arbiter);
    assert_eq!(count.so_far(), 1);
    let packet = waits.packet();
    let refused = block_on(waits.client.send(length(100), packet)).unwrap_err();
    assert_eq!(refused.reason, Refusal::ArbiterGone);
}

#[test]
fn a_task_on_another_thread_that_waits_when_the_arbiter_goes_learns_it() {
    for taken_in in [false, true] {
        let mut rig = Rig::new(Fifo::new(), smallest());
        let mut task = Task::join(&rig);
        if taken_in {
            rig.step();
        }
        let Rig { arbiter, .. } = rig;
        thread::scope(|scope| {
            let sender = scope.spawn(move || {
                loop {
                    let packet = task.packet();
                    if let Err(refused) = block_on(task.client.send(length(100), packet)) {
                        return refused.reason;
                    }
                }
            });
            thread::sleep(Duration::from_millis(10));
            drop(arbiter);
            assert_eq!(sender.join().unwrap(), Refusal::ArbiterGone);
        });
    }
}

#[test]
fn a_sink_takes_a_packet_when_it_is_ready_and_is_flushed_when_all_are_in_the_mailbox() {
    let mut rig = Rig::new(Fifo::new(), smallest());
    let mut task = Task::join(&rig);
    let (count, waker) = counted();
    let mut context = Context::from_waker(&waker);
    let mut accepted = 0;
    while let Poll::Ready(ready) = task.sink().poll_ready(&mut context) {
        ready.unwrap();
        let packet = task.packet();
        task.sink().start_send((length(100), packet)).unwrap();
        accepted += 1;
    }
    // One of them waits in the sink.
    assert!(task.sink().poll_flush(&mut context).is_pending());
    assert!(task.sink().poll_close(&mut context).is_pending());
    assert_eq!(count.so_far(), 0);
    while rig.step_after(us(1)).drained > 0 {}
    assert_eq!(count.so_far(), 1);
    let ready = Poll::Ready(Ok(()));
    assert_eq!(task.sink().poll_flush(&mut context).map_err(|_| ()), ready);
    assert_eq!(task.sink().poll_close(&mut context).map_err(|_| ()), ready);
    rig.step_after(us(1));
    assert_eq!(rig.arrivals(), numbered(0, 0..accepted));
    let packet = task.packet();
    let refused = task.sink().start_send((length(1501), packet)).unwrap_err();
    assert!(matches!(refused.reason, Refusal::TooLong { .. }));
}

#[test]
#[should_panic(expected = "start_send comes after poll_ready")]
fn a_sink_that_is_not_ready_takes_nothing() {
    let rig = Rig::new(Fifo::new(), smallest());
    let mut task = Task::join(&rig);
    loop {
        let packet = task.packet();
        _ = task.sink().start_send((length(100), packet));
    }
}

#[test]
fn a_task_that_leaves_drops_the_packet_that_waits_and_sends_the_others() {
    let mut rig = Rig::new(Fifo::new(), smallest());
    let mut task = Task::join(&rig);
    task.fill(&mut Context::from_waker(Waker::noop()));
    let sent = task.number - 1;
    drop(task);
    assert_eq!(rig.population.count(), sent as usize);
    while rig.step_after(us(1)).drained > 0 {}
    rig.step_after(us(1));
    assert_eq!(
        (rig.arrivals(), rig.arbiter.clients()),
        (numbered(0, 0..sent), 0)
    );
}

#[test]
fn where_packets_are_held_back_a_task_sends_at_the_pace_of_its_flow() {
    let mut rig = Rig::new(
        Qfq::new(),
        ArbiterConfig {
            hold_back: true,
            mailbox_slots: 8,
            ..config()
        },
    );
    let mut client = rig.registrar.register_async(holding(2, weight(1))).unwrap();
    let population = rig.population.clone();
    thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..200 {
                let packet = population.packet(0, number, 1000);
                block_on(client.send(length(1000), packet)).unwrap();
            }
        });
        let start = Instant::now();
        let mut arrived = Vec::new();
        while arrived.len() < 200 {
            assert!(
                start.elapsed() < Duration::from_secs(30),
                "{}",
                arrived.len()
            );
            if rig.step_after(ms(1)).drained == 0 {
                thread::yield_now();
            }
            arrived.extend(rig.arrivals());
        }
        assert_eq!(arrived, numbered(0, 0..200));
    });
    assert_eq!(rig.arbiter.total_stats().dropped.packets, 0);
}

/// The executor polls when it is woken and never else: one wake-up lost, and this stands still.
#[test]
fn no_wake_up_is_lost_between_two_threads_however_small_the_mailbox() {
    const PACKETS: u32 = 100_000;
    let mut rig = Rig::new(Fifo::new(), smallest());
    let mut task = Task::join(&rig);
    thread::scope(|scope| {
        scope.spawn(move || {
            block_on(async {
                for _ in 0..PACKETS {
                    let packet = task.packet();
                    task.client.send(length(100), packet).await.unwrap();
                }
            });
        });
        let start = Instant::now();
        let (mut next, mut now) = (0, Nanos::ZERO);
        while next < PACKETS {
            assert!(start.elapsed() < Duration::from_secs(60), "{next} arrived");
            now += us(1);
            if rig.arbiter.step(now).unwrap().drained == 0 {
                thread::yield_now();
            }
            for packet in rig.arrived() {
                assert_eq!(packet.number, next);
                next += 1;
            }
        }
    });
}
