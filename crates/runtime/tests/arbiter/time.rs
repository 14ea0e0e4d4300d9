//! The clock against the system's, and across cores.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlane_core::Nanos;
use fairlane_runtime::{Clock, pin_to_core};
use rustix::time::{ClockId, clock_gettime};

fn monotonic() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Both clocks at one moment: of several attempts the one that took least time.
fn both(clock: &Clock) -> (Nanos, Nanos) {
    let attempts = (0..50).map(|_| {
        let before = monotonic();
        let now = clock.now();
        let after = monotonic();
        (after.since(before), now, Nanos(before.0.midpoint(after.0)))
    });
    let (_, now, system) = attempts.min_by_key(|&(took, ..)| took).unwrap();
    (now, system)
}

#[test]
fn a_second_is_as_long_as_the_systems() {
    let clock = Clock::start();
    let mut measured = Vec::new();
    // A thread that is held up between two looks measures that.
    for _ in 0..3 {
        let first = both(&clock);
        thread::sleep(Duration::from_secs(1));
        let last = both(&clock);
        let (ours, systems) = (last.0.since(first.0), last.1.since(first.1));
        let apart = ours.0.abs_diff(systems.0);
        println!("{apart} ns apart after {} ns", systems.0);
        // 100 millionths.
        if apart < systems.0 / 10_000 + 20_000 {
            return;
        }
        measured.push((ours, systems));
    }
    panic!("{measured:?}");
}

#[test]
fn time_does_not_go_back_from_one_core_to_another() {
    const ROUNDS: u64 = 100_000;
    // On a busy machine there are fewer rounds. The limit is by the system's clock.
    let until = Instant::now() + Duration::from_secs(5);
    let clock = Clock::start();
    // The time that one thread read last, and whether it is the other's turn.
    let told = AtomicU64::new(clock.now().0 << 1);
    let went_back = Mutex::new(None);
    let over = AtomicBool::new(false);
    let rounds = thread::scope(|scope| {
        let turns = |core: u64| {
            let (told, went_back, over) = (&told, &went_back, &over);
            move || {
                // On a machine of one core, at least from one thread to another.
                let pinned = pin_to_core(core as usize).is_ok();
                for round in 0..ROUNDS {
                    let mut tries = 0;
                    let before = loop {
                        let told = told.load(Ordering::Acquire);
                        // The system's clock is read in order with loads, as the counter is not.
                        if over.load(Ordering::Relaxed) || Instant::now() > until {
                            return (pinned, round);
                        }
                        if told & 1 == core {
                            break Nanos(told >> 1);
                        }
                        tries += 1;
                        if tries % 64 == 0 {
                            // The other thread may have no core now.
                            thread::yield_now();
                        }
                    };
                    let now = clock.now();
                    if now < before {
                        *went_back.lock().unwrap() = Some((round, before, now));
                        over.store(true, Ordering::Relaxed);
                    }
                    told.store(now.0 << 1 | (1 - core), Ordering::Release);
                }
                (pinned, ROUNDS)
            }
        };
        let threads = [0, 1].map(|core| scope.spawn(turns(core)));
        threads.map(|thread| thread.join().unwrap())
    });
    println!("{rounds:?}");
    assert_eq!(went_back.into_inner().unwrap(), None);
    // With other work on both cores a turn takes a time slice or two.
    assert!(rounds.iter().all(|&(_, rounds)| rounds > 1), "{rounds:?}");
}

#[test]
fn a_thread_is_pinned_to_a_core_that_there_is_and_no_other() {
    thread::spawn(|| {
        pin_to_core(0).unwrap();
        let cores = rustix::thread::sched_getaffinity(None).unwrap();
        assert!(cores.is_set(0) && cores.count() == 1);
        for nowhere in [rustix::thread::CpuSet::MAX_CPU - 1, 5000, usize::MAX] {
            assert!(pin_to_core(nowhere).is_err(), "{nowhere}");
        }
        let cores = rustix::thread::sched_getaffinity(None).unwrap();
        assert!(cores.is_set(0) && cores.count() == 1);
    })
    .join()
    .unwrap();
}
