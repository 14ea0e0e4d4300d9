//! Sleeping: a client, a registrar or the clock ends a sleep, nothing is slept over, and an
//! arbiter without work costs next to nothing.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlane_core::sched::Fifo;
use fairlane_core::{Nanos, PacketScheduler, Scheduler};
use fairlane_io::Backend;
use fairlane_runtime::{
    Arbiter, ArbiterConfig, ArbiterStats, Clock, Idling, Registrar, Release, Step, Woken, drive,
};
use rustix::time::{ClockId, clock_gettime};

use crate::remote::RemoteSender;
use crate::rig::{Packet, Rig, config, fast, holding, length, link, ms, on, us, weight};

/// A sleep that only another thread ends: the cost of a lost wake-up.
const LONGEST: Duration = Duration::from_secs(60);
/// Longer than anything takes if none is lost.
const PATIENCE: Duration = Duration::from_secs(40);

/// A thread of this process, as others see it.
struct Seen(Option<PathBuf>);

impl Seen {
    /// Returns the calling thread.
    fn me() -> Self {
        let thread = fs::read_link("/proc/thread-self");
        Seen(
            thread
                .ok()
                .map(|thread| Path::new("/proc").join(thread).join("stat")),
        )
    }

    /// Waits until the thread sleeps, which is its wait.
    fn wait_until_asleep(&self) {
        let Some(path) = &self.0 else {
            return thread::sleep(Duration::from_millis(20));
        };
        let start = Instant::now();
        loop {
            let stat = fs::read_to_string(path).unwrap();
            // Behind its name, which may hold anything.
            if stat.rsplit(')').next().unwrap().starts_with(" S") {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "it never sleeps");
            thread::sleep(Duration::from_micros(20));
        }
    }
}

/// Returns the event that ends the sleep of an arbiter without pending work, while `act` runs.
fn woken_by<T: Send>(rig: &mut Rig<Fifo>, act: impl FnOnce() -> T + Send) -> (Option<Woken>, T) {
    rig.step_after(us(1));
    // A registration would end it.
    rig.arbiter.sleep(Duration::ZERO);
    let (start, arbiter) = (Instant::now(), Seen::me());
    let sleeps = AtomicBool::new(false);
    let woken = thread::scope(|scope| {
        let actor = scope.spawn(|| {
            while !sleeps.load(Ordering::Acquire) {
                thread::yield_now();
            }
            arbiter.wait_until_asleep();
            act()
        });
        sleeps.store(true, Ordering::Release);
        let woken = rig.arbiter.sleep(LONGEST);
        (woken, actor.join().unwrap())
    });
    assert!(start.elapsed() < PATIENCE);
    woken
}

#[test]
fn a_push_wakes_a_sleeping_arbiter() {
    let mut rig = Rig::new(Fifo::new(), fast());
    let mut sender = rig.join(weight(1));
    for _ in 0..3 {
        let (woken, ()) = woken_by(&mut rig, || sender.push_all(1, 100));
        assert_eq!(woken, Some(Woken::Rung));
        assert_eq!(rig.step_after(us(1)).drained, 1);
    }
}

#[test]
fn a_registration_wakes_a_sleeping_arbiter() {
    let mut rig = Rig::new(Fifo::new(), fast());
    let registrar = rig.registrar.clone();
    for clients in 1..4 {
        let (woken, _client) = woken_by(&mut rig, || registrar.register(weight(1)).unwrap());
        assert_eq!(woken, Some(Woken::Nudged));
        rig.step_after(us(1));
        assert_eq!(rig.arbiter.clients(), 1, "round {clients}");
    }
}

#[test]
fn a_client_that_leaves_wakes_a_sleeping_arbiter() {
    let mut rig = Rig::new(Fifo::new(), fast());
    let sender = rig.join(weight(1));
    let (woken, ()) = woken_by(&mut rig, || drop(sender));
    assert_eq!(woken, Some(Woken::Rung));
    rig.step_after(us(1));
    assert_eq!(rig.arbiter.clients(), 0);
}

#[test]
fn a_remote_that_rings_or_leaves_wakes_a_sleeping_arbiter() {
    let mut rig = Rig::new(Fifo::new(), fast());
    let mut remote = RemoteSender::join(&rig.registrar, weight(1), 0, &rig.population);
    let (woken, remote) = woken_by(&mut rig, || {
        remote.push(100);
        remote
    });
    assert_eq!(woken, Some(Woken::Rung));
    assert_eq!(rig.step_after(us(1)).drained, 1);
    let (woken, remote) = woken_by(&mut rig, || {
        // Needlessly.
        remote.remote.ring();
        remote.remote.ring();
        remote
    });
    assert_eq!(woken, Some(Woken::Rung));
    assert_eq!(rig.step_after(us(1)).drained, 0);
    let (woken, ()) = woken_by(&mut rig, || drop(remote));
    assert_eq!(woken, Some(Woken::Rung));
    rig.step_after(us(1));
    assert_eq!(rig.arbiter.clients(), 0);
}

#[test]
fn what_was_pushed_before_the_sleep_is_not_slept_over() {
    let mut rig = Rig::new(Fifo::new(), fast());
    let (mut awake, mut dozing) = (rig.join(weight(1)), rig.join(weight(1)));
    let mut remote = RemoteSender::join(&rig.registrar, weight(1), 2, &rig.population);
    rig.step();
    // All clients doze.
    let registered = rig.arbiter.sleep(Duration::ZERO);
    assert_eq!(registered, Some(Woken::Nudged));
    assert_eq!(rig.arbiter.sleep(Duration::ZERO), Some(Woken::TimedOut));
    let start = Instant::now();

    awake.push_all(1, 100);
    assert_eq!(rig.arbiter.sleep(LONGEST), Some(Woken::Rung));
    assert_eq!(rig.step_after(us(1)).drained, 1);
    awake.push_all(1, 100);
    assert_eq!(rig.arbiter.sleep(LONGEST), None, "it need not ring");
    assert_eq!(rig.step_after(us(1)).drained, 1);
    awake.push_all(1, 100);
    dozing.push_all(1, 100);
    assert_eq!(rig.arbiter.sleep(LONGEST), None);
    remote.push(100);
    assert_eq!(rig.step_after(us(1)).drained, 3);
    drop(remote);
    assert_eq!(rig.arbiter.sleep(LONGEST), None, "it has left");
    rig.step_after(us(1));
    assert_eq!(rig.arbiter.clients(), 2);
    assert!(start.elapsed() < PATIENCE);
}

/// No packet without an answer: whatever the moment of a push, one of the two sees the other.
#[test]
fn nothing_that_is_pushed_at_any_moment_is_slept_over() {
    const ROUNDS: u32 = 3000;
    let mut rig = Rig::new(Fifo::new(), fast());
    let mut thread_client = rig.join(weight(1));
    let mut remote = RemoteSender::join(&rig.registrar, weight(1), 1, &rig.population);
    let answered = [AtomicU32::new(0), AtomicU32::new(0)];
    let start = Instant::now();
    thread::scope(|scope| {
        let wait = |who: usize, number: u32| {
            while answered[who].load(Ordering::Acquire) <= number {
                assert!(start.elapsed() < PATIENCE, "round {number}");
                thread::yield_now();
            }
            // Not always at the same moment of the arbiter's preparations.
            for _ in 0..number % 97 * 8 {
                std::hint::spin_loop();
            }
        };
        scope.spawn(move || {
            for number in 0..ROUNDS {
                thread_client.push_all(1, 100);
                wait(0, number);
            }
        });
        scope.spawn(move || {
            for number in 0..ROUNDS {
                remote.push(100);
                wait(1, number);
            }
        });
        let mut arrived = 0;
        while arrived < 2 * ROUNDS {
            rig.step_after(us(1));
            let packets = rig.arrived();
            for Packet { from, number, .. } in &packets {
                arrived += 1;
                answered[*from].store(number + 1, Ordering::Release);
            }
            if packets.is_empty() {
                rig.arbiter.sleep(LONGEST);
            }
        }
    });
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
}

#[test]
fn many_that_push_end_one_sleep_and_no_other() {
    let mut rig = Rig::new(Fifo::new(), fast());
    let mut senders: Vec<_> = (0..8).map(|_| rig.join(weight(1))).collect();
    rig.step();
    // The registrations would end it.
    rig.arbiter.sleep(Duration::ZERO);
    let (woken, ()) = woken_by(&mut rig, || {
        senders
            .iter_mut()
            .for_each(|sender| sender.push_all(3, 100));
    });
    assert_eq!(woken, Some(Woken::Rung));
    assert_eq!(rig.step_after(us(1)).drained, 24);
    let short = Duration::from_millis(1);
    assert_eq!(rig.arbiter.sleep(short), Some(Woken::TimedOut));
    assert_eq!(rig.step_after(us(1)).drained, 0);
}

/// Drives an arbiter for so long, in real time.
fn drive_for<A: Scheduler, P: Send, R: Release<P>>(
    arbiter: &mut Arbiter<PacketScheduler<A, P>, R>,
    idling: Idling,
    span: Nanos,
) -> ArbiterStats {
    let clock = Clock::start();
    arbiter.reset_stats();
    drive(arbiter, &clock, idling, |_, now, _| now < span).unwrap();
    arbiter.stats()
}

#[test]
fn each_sleep_is_ended_once_by_somebody_or_by_the_clock() {
    const PUSHES: u32 = 20;
    let mut rig = Rig::new(Fifo::new(), fast());
    let mut sender = rig.join(weight(1));
    rig.step();
    rig.arbiter.sleep(Duration::ZERO);
    let idling = Idling {
        spin_for: us(20),
        longest_sleep: ms(60_000),
        ..Idling::default()
    };
    let (start, arbiter) = (Instant::now(), Seen::me());
    let drained = AtomicU32::new(0);
    // The first one sleeps.
    let clock = Clock::start();
    thread::scope(|scope| {
        scope.spawn(|| {
            for push in 0..PUSHES {
                while drained.load(Ordering::Acquire) < 3 * push {
                    thread::yield_now();
                }
                arbiter.wait_until_asleep();
                // A batch rings once.
                sender.push_all(3, 100);
            }
        });
        drive(&mut rig.arbiter, &clock, idling, |_, _, step: &Step| {
            let moved = step.drained as u32;
            drained.fetch_add(moved, Ordering::Release) + moved < 3 * PUSHES
        })
        .unwrap();
    });
    assert!(start.elapsed() < PATIENCE);
    let stats = rig.arbiter.stats();
    // Three pushes end one sleep; a thread that is held up between them makes it two or three.
    let sleeps = u64::from(PUSHES)..=3 * u64::from(PUSHES);
    assert!(sleeps.contains(&stats.woken), "{stats:?}");
    assert_eq!(stats.late.count(), 0, "{stats:?}");
}

#[test]
fn a_dedicated_arbiter_never_sleeps() {
    let mut rig = Rig::new(Fifo::new(), config());
    let mut sender = rig.join(weight(1));
    for idling in [Idling::dedicated(), Idling::default()] {
        // Both kinds of waiting: for the link, and for a push.
        sender.push_all(3, 1000);
        let stats = drive_for(&mut rig.arbiter, idling, ms(30));
        let sleeps = stats.woken + stats.late.count();
        assert_eq!(sleeps == 0, idling.dedicated, "{stats:?}");
    }
}

/// Processor time that the calling thread has had.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the share of a processor that driving the arbiter for so long takes.
fn processor_share(rig: &mut Rig<Fifo>, span: Nanos) -> f64 {
    let before = (Instant::now(), processor_time());
    drive_for(&mut rig.arbiter, Idling::default(), span);
    let used = processor_time() - before.1;
    used.as_secs_f64() / before.0.elapsed().as_secs_f64()
}

#[test]
fn an_idle_arbiter_takes_less_than_a_hundredth_of_a_processor() {
    let mut rig = Rig::new(
        Fifo::new(),
        ArbiterConfig {
            max_clients: 1000,
            ..fast()
        },
    );
    let _silent: Vec<_> = (0..1000).map(|_| rig.join(weight(1))).collect();
    rig.step();
    let share = processor_share(&mut rig, ms(2000));
    println!(
        "an idle arbiter takes {:.3} % of a processor",
        100.0 * share
    );
    assert!(share < 0.01, "{share}");
}

#[test]
fn an_arbiter_that_holds_packets_back_naps_while_the_link_is_busy() {
    let mut rig = Rig::new(
        Fifo::new(),
        ArbiterConfig {
            hold_back: true,
            ..on(link(120_000))
        },
    );
    let mut sender = rig.join(holding(1, weight(1)));
    sender.fill(1500);
    let idling = Idling {
        spin_for: Nanos::ZERO,
        nap: ms(5),
        ..Idling::default()
    };
    let (mut steps, mut released) = (0, 0);
    drive(&mut rig.arbiter, &Clock::start(), idling, |_, _, step| {
        steps += 1;
        released += step.released;
        released < 3
    })
    .unwrap();
    // Twice 100 ms between three packets.
    assert!(steps < 200, "{steps} steps");
}

/// Records the arrival times of packets, which are the times of their pushes.
struct Stopwatch {
    clock: Clock,
    latencies: Vec<Nanos>,
}

impl Backend for Stopwatch {
    type Tx = Nanos;
    type Rx = ();

    fn transmit(&mut self, batch: &mut VecDeque<Nanos>) -> io::Result<usize> {
        let now = self.clock.now();
        let count = batch.len();
        self.latencies
            .extend(batch.drain(..).map(|at| now.since(at)));
        Ok(count)
    }
    fn receive(&mut self, _: &mut Vec<()>, _: usize) -> io::Result<usize> {
        Ok(0)
    }
    fn in_flight(&self) -> io::Result<u64> {
        Ok(0)
    }
    fn refused(&self) -> u64 {
        0
    }
}

#[test]
fn a_packet_that_wakes_the_arbiter_is_on_its_way_within_milliseconds() {
    const PACKETS: usize = 101;
    let clock = Clock::start();
    let stopwatch = Stopwatch {
        clock,
        latencies: Vec::new(),
    };
    let mut arbiter = Arbiter::new(Fifo::new(), fast(), stopwatch, Nanos::ZERO);
    let registrar: Registrar<Nanos> = arbiter.registrar();
    let (done, driver) = (AtomicBool::new(false), Seen::me());
    let idling = Idling {
        longest_sleep: ms(60_000),
        ..Idling::default()
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = registrar.register(weight(1)).unwrap();
            for _ in 0..PACKETS {
                // No nap is as long.
                thread::sleep(Duration::from_micros(500));
                driver.wait_until_asleep();
                client.push(length(60), clock.now()).unwrap();
            }
            done.store(true, Ordering::Release);
        });
        drive(&mut arbiter, &clock, idling, |arbiter, _, _| {
            !(done.load(Ordering::Acquire) && arbiter.clients() == 0)
        })
        .unwrap();
    });
    let mut latencies = std::mem::take(&mut arbiter.backend_mut().latencies);
    latencies.sort_unstable();
    assert_eq!(latencies.len(), PACKETS);
    println!(
        "from push to transmit, the arbiter asleep: {} ns at least, {} ns median, {} ns at most",
        latencies[0].0,
        latencies[PACKETS / 2].0,
        latencies[PACKETS - 1].0
    );
    let stats = arbiter.stats();
    assert!(stats.woken >= PACKETS as u64 / 2, "{stats:?}");
    // Of the others it is the system that says how soon a thread runs which was woken.
    assert!(latencies[0] < ms(5), "{latencies:?}");
}
