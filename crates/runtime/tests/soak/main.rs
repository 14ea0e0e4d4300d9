//! The soak: clients of every kind join, push, pause, leave and are killed at random, and at the
//! end every packet is accounted for and, where it is long, no memory is lost.
//!
//! For `FAIRLANE_SOAK_SECONDS` seconds (default 5), from the seed `FAIRLANE_SOAK_SEED` (default: random):
//!
//! ```sh
//! FAIRLANE_SOAK_SECONDS=600 cargo test --release -p fairlane-runtime --test soak -- --nocapture
//! ```
#![cfg(target_os = "linux")]

mod clients;
#[path = "../support/executor.rs"]
mod executor;
mod ledger;
mod memory;
mod processes;

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use fairlane_core::sched::{AUTOMATIC_MEMBERS, Plus, Qfq};
use fairlane_core::{Nanos, PacketScheduler, Rate, TotalStats};
use fairlane_io::{Backend, MemoryBackend, memory as device};
use fairlane_runtime::{
    Arbiter, ArbiterConfig, ArbiterStats, Cleared, ClientsDispatch, Clock, Idling, Link, Queue,
    Release, Straight, drive,
};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use clients::{Dispatched, Weather};
use ledger::{Ledger, Packet};
use processes::Fates;

/// Steps between two looks at the scheduler's invariants.
const STEPS: u64 = 1_000;

/// By how much memory may seem to grow in the second half.
const FLAT_KIB: i64 = 2048;

/// Seconds from which on the growth of memory says something.
const LONG: u64 = 60;

fn number(variable: &str) -> Option<u64> {
    let value = env::var(variable).ok()?;
    Some(
        value
            .parse()
            .unwrap_or_else(|_| panic!("{variable} is a number, not {value:?}")),
    )
}

fn config(bps: u64) -> ArbiterConfig {
    ArbiterConfig {
        max_clients: 40,
        mailbox_slots: 64,
        scan_limit: 8,
        ..ArbiterConfig::new(Link::new(Rate::from_bps(bps).unwrap()))
    }
}

fn qfq_plus() -> Plus<Qfq> {
    Plus::new(AUTOMATIC_MEMBERS)
}

/// Drives an arbiter until all of its clients have left.
fn run<P: Send, R: Release<P>>(
    arbiter: &mut Arbiter<impl Queue<Payload = P>, R>,
    everybody_left: &AtomicBool,
    mut after_step: impl FnMut() -> usize,
) -> (TotalStats, ArbiterStats) {
    let mut steps = 0;
    drive(
        arbiter,
        &Clock::start(),
        Idling::default(),
        |arbiter, _, _| {
            steps += 1;
            if steps % STEPS == 0 {
                arbiter.invariants().unwrap();
            }
            let on_the_way = after_step() + arbiter.waiting_for_backend();
            !(everybody_left.load(Ordering::Acquire) && arbiter.clients() == 0 && on_the_way == 0)
        },
    )
    .unwrap();
    arbiter.invariants().unwrap();
    (arbiter.total_stats(), arbiter.stats())
}

/// Of the packets that the arbiter itself transmits.
fn transmit(
    mut arbiter: Arbiter<PacketScheduler<Plus<Qfq>, Packet>, Straight<MemoryBackend<Packet>>>,
    mut far: MemoryBackend<Packet>,
    everybody_left: &AtomicBool,
    mut random: SmallRng,
) -> (TotalStats, ArbiterStats) {
    let mut batch = Vec::new();
    run(&mut arbiter, everybody_left, || {
        // The device is seldom empty, and sometimes full.
        far.receive(&mut batch, random.random_range(0..64)).unwrap();
        let arrived = batch.len();
        batch.drain(..).for_each(Packet::arrive);
        arrived
    })
}

#[test]
fn whoever_comes_goes_pauses_or_is_killed_what_goes_in_comes_out_or_is_counted_as_dropped() {
    let seconds = number("FAIRLANE_SOAK_SECONDS").unwrap_or(5).max(1);
    let seed = number("FAIRLANE_SOAK_SEED").unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        now.unwrap().as_nanos() as u64
    });
    println!("FAIRLANE_SOAK_SEED={seed}");
    let mut seeds = SmallRng::seed_from_u64(seed);
    let mut random = || SmallRng::seed_from_u64(seeds.random());

    let (ledger, weather) = (Arc::new(Ledger::default()), Weather::default());
    let (dispatched, fates) = (Dispatched::default(), Fates::default());
    let everybody_left = AtomicBool::new(false);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");

    let (near, far) = device::pair(64);
    let straight = Arbiter::new(qfq_plus(), config(1_000_000_000), near, Nanos::ZERO);
    let mut clearing: Arbiter<PacketScheduler<_, Cleared>, _> = Arbiter::releasing(
        qfq_plus(),
        config(200_000_000),
        ClientsDispatch::new(),
        Nanos::ZERO,
    );
    let (registrar, clearer) = (straight.registrar(), clearing.registrar());
    let mut samples = Vec::with_capacity(seconds as usize * 20 + 20);

    let (transmitted, cleared) = thread::scope(|scope| {
        let (ledger, weather, everybody_left) = (&ledger, &weather, &everybody_left);
        let (registrar, clearer, path) = (&registrar, &clearer, &path);
        let (dispatched, fates) = (&dispatched, &fates);
        let dice = random();
        let straight = scope.spawn(move || transmit(straight, far, everybody_left, dice));
        let clearing = scope.spawn(|| run(&mut clearing, everybody_left, || 0));
        let attach = processes::listen(path, registrar.clone(), ledger);

        let mut clients = Vec::new();
        for _ in 0..2 {
            let dice = random();
            clients.push(scope.spawn(move || clients::crowd(registrar, ledger, weather, dice)));
            let dice = random();
            clients.push(scope.spawn(move || clients::task(registrar, ledger, weather, dice)));
            let dice = random();
            clients.push(scope.spawn(move || {
                clients::dispatching(clearer, ledger, dispatched, weather, dice);
            }));
        }
        let dice = random();
        clients.push(scope.spawn(move || processes::murder(path, fates, weather, dice)));

        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(seconds) {
            weather.be_quiet(samples.len() % 16 == 15);
            thread::sleep(Duration::from_millis(50));
            samples.push(memory::resident());
        }
        weather.end();
        for client in clients {
            client.join().unwrap();
        }
        drop(attach);
        everybody_left.store(true, Ordering::Release);
        (straight.join().unwrap(), clearing.join().unwrap())
    });

    let growth = memory::growth(&samples);
    let resident = samples.last().unwrap();
    println!("{seconds} s: resident {resident} KiB, grown by {growth}");
    check_packets(&ledger, &fates, transmitted);
    check_dispatched(&dispatched, cleared.0);
    assert_eq!(ledger.faults(), [""; 0]);
    // In a short one a start of a process or a late thread weighs as much; that no packet is left is known.
    assert!(
        growth < FLAT_KIB || seconds < LONG,
        "memory grows by {growth} KiB: {samples:?}"
    );
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// Every pushed packet came out, or was counted as dropped.
fn check_packets(ledger: &Ledger, fates: &Fates, (total, stats): (TotalStats, ArbiterStats)) {
    println!(
        "{} clients, {} packets in = {} out + {} dropped ({} told); {} processes killed, {} \
         ended; {} sleeps ended by clients, Delta_A at most {:?}",
        read(&ledger.senders),
        read(&ledger.pushed),
        read(&ledger.arrived),
        total.dropped.packets,
        read(&ledger.told),
        read(&fates.killed),
        read(&fates.ended),
        stats.woken,
        stats.looks.longest(),
    );
    assert_eq!(read(&ledger.open), 0, "a packet is somewhere");
    assert_eq!(
        read(&ledger.pushed),
        read(&ledger.arrived) + total.dropped.packets
    );
    assert_eq!(total.sent.packets, read(&ledger.arrived));
    assert!(read(&fates.killed) > 0 && stats.woken > 0);
    check_total(total);
}

/// Every packet that clients transmitted was cleared, or counted as dropped.
fn check_dispatched(dispatched: &Dispatched, total: TotalStats) {
    println!(
        "dispatching: {} clients, {} packets in = {} cleared + {} dropped; {} transmitted, {} left \
         behind",
        read(&dispatched.clients),
        read(&dispatched.pushed),
        total.sent.packets,
        total.dropped.packets,
        read(&dispatched.transmitted),
        read(&dispatched.forsaken),
    );
    assert_eq!(
        read(&dispatched.pushed),
        total.sent.packets + total.dropped.packets
    );
    check_total(total);
}

fn check_total(total: TotalStats) {
    assert_eq!((total.queued.packets, total.discarded.packets), (0, 0));
    assert_eq!(total.accepted, total.sent);
    assert!(total.dropped.packets > 0, "some flow's queue was full");
}
