//! Dispatcher threads: every packet once, a flow's in its order, and a broken device affects no
//! other.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlane_core::sched::Qfq;
use fairlane_core::{Nanos, PacketScheduler};
use fairlane_io::{Backend, MemoryBackend, memory};
use fairlane_runtime::{
    Arbiter, ArbiterConfig, Clock, Dispatcher, Dispatchers, Idling, Next, Registrar, Step, drive,
};

use crate::rig::{Packet, Population, fast, holding, length, names, numbered, us, weight};

type Device = MemoryBackend<Packet>;
type Dispatched = Arbiter<PacketScheduler<Qfq, Packet>, Dispatchers<Packet>>;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(40);

fn arbiter(
    dispatchers: usize,
    slots: usize,
    config: ArbiterConfig,
    device: usize,
) -> (Dispatched, Vec<Dispatcher<Device>>, Vec<Device>) {
    let (near, far) = (0..dispatchers).map(|_| memory::pair(device)).unzip();
    let (release, dispatchers) = Dispatchers::new(near, slots).unwrap();
    let arbiter = Arbiter::releasing(Qfq::new(), config, release, Nanos::ZERO);
    (arbiter, dispatchers, far)
}

/// 200 packets of one client, released to one dispatcher whose device holds 1000.
fn two_hundred_released() -> (Dispatched, Vec<Dispatcher<Device>>, Vec<Device>, Population) {
    let (mut arbiter, ends, far) = arbiter(1, 256, fast(), 1000);
    let mut client = arbiter.registrar().register(weight(1)).unwrap();
    let population = Population::default();
    for number in 0..200 {
        let packet = population.packet(0, number, 100);
        client.push(length(100), packet).unwrap();
    }
    for n in 1..10 {
        arbiter.step(us(n)).unwrap();
    }
    (arbiter, ends, far, population)
}

/// Continues until `stop` is set.
fn until(stop: &AtomicBool) -> impl FnMut(&mut Dispatcher<Device>, Nanos, &Step) -> bool {
    |_, _, _| !stop.load(Ordering::Acquire)
}

fn receive(far: &mut Device) -> Vec<Packet> {
    let mut packets = Vec::new();
    far.receive(&mut packets, usize::MAX).unwrap();
    packets
}

/// Registers, pushes `packets` packets, waiting for space, and leaves.
fn send(registrar: &Registrar<Packet>, name: usize, packets: u32, population: &Population) {
    let mut client = registrar.register(weight(1)).unwrap();
    let start = Instant::now();
    for number in 0..packets {
        let mut packet = population.packet(name, number, 100);
        while let Err(refused) = client.push(length(100), packet) {
            assert!(start.elapsed() < PATIENCE, "nobody drains the mailbox");
            packet = refused.packet;
            thread::yield_now();
        }
    }
}

/// Packets that came out of the devices, and that did not.
struct Outcome {
    /// By device, as (client, number).
    arrived: Vec<Vec<(usize, u32)>>,
    /// By device, as the dispatchers report.
    transmitted: Vec<u64>,
    sent: u64,
    lost: u64,
}

/// Runs clients, dispatchers and the arbiter, each on a thread, to the end; the device `broken`
/// breaks on the way.
fn run(dispatchers: usize, clients: usize, packets: u32, broken: Option<usize>) -> Outcome {
    let (mut arbiter, ends, far) = arbiter(dispatchers, 64, fast(), 32);
    let mut far: Vec<_> = far.into_iter().map(Some).collect();
    let (registrar, population) = (arbiter.registrar(), Population::default());
    let (left, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let clock = Clock::start();
    let mut arrived = vec![Vec::new(); dispatchers];
    let mut collect = |far: &mut [Option<Device>]| {
        for (far, arrived) in far.iter_mut().zip(&mut arrived) {
            if let Some(far) = far {
                arrived.extend(names(&receive(far)));
            }
        }
        broken.is_some_and(|device| arrived[device].len() > 100)
    };
    let (transmitted, sent, lost) = thread::scope(|scope| {
        let (registrar, population) = (&registrar, &population);
        let (left, stop, clock) = (&left, &stop, &clock);
        for name in 0..clients {
            scope.spawn(move || {
                send(registrar, name, packets, population);
                left.fetch_add(1, Ordering::Release);
            });
        }
        let drive_one = |mut end: Dispatcher<Device>| {
            scope.spawn(move || {
                let outcome = drive(&mut end, clock, Idling::default(), until(stop));
                (outcome.map_err(|error| error.kind()), end.transmitted())
            })
        };
        let mut ends: Vec<_> = ends.into_iter().map(|end| Some(drive_one(end))).collect();
        drive(&mut arbiter, clock, Idling::default(), |arbiter, now, _| {
            assert!(
                Duration::from(now) < PATIENCE,
                "{:?}",
                arbiter.total_stats()
            );
            if collect(&mut far)
                && let Some(device) = broken
            {
                far[device] = None;
            }
            left.load(Ordering::Acquire) < clients
                || arbiter.clients() > 0
                || arbiter.waiting_for_backend() > 0
        })
        .unwrap();
        arbiter.invariants().unwrap();
        let mut transmitted = vec![0; dispatchers];
        if let Some(device) = broken {
            let end = ends[device].take().unwrap().join().unwrap();
            assert_eq!(end.0, Err(io::ErrorKind::BrokenPipe));
            transmitted[device] = end.1;
        }
        let (sent, lost) = (arbiter.total_stats().sent.packets, arbiter.release().lost());
        // The others transmit their packets, and end.
        drop(arbiter);
        for (device, end) in ends.into_iter().enumerate() {
            if let Some(end) = end {
                while !end.is_finished() {
                    assert!(Duration::from(clock.now()) < PATIENCE);
                    collect(&mut far);
                    thread::yield_now();
                }
                let end = end.join().unwrap();
                assert_eq!(end.0, Ok(()));
                transmitted[device] = end.1;
            }
        }
        collect(&mut far);
        (transmitted, sent, lost)
    });
    drop(far);
    assert_eq!(population.count(), 0);
    Outcome {
        arrived,
        transmitted,
        sent,
        lost,
    }
}

#[test]
fn every_packet_is_transmitted_once_and_those_of_a_flow_in_order_by_one_dispatcher() {
    let (clients, packets) = (4, 2000);
    for dispatchers in 1..4 {
        let outcome = run(dispatchers, clients, packets, None);
        assert_eq!(outcome.lost, 0);
        assert_eq!(outcome.sent, clients as u64 * u64::from(packets));
        let mut by_client = BTreeMap::new();
        for (device, arrived) in outcome.arrived.iter().enumerate() {
            assert_eq!(arrived.len() as u64, outcome.transmitted[device]);
            assert!(
                !arrived.is_empty(),
                "device {device} of {dispatchers} idles"
            );
            for &(from, number) in arrived {
                let (its_device, next) = by_client.entry(from).or_insert((device, 0));
                assert_eq!((device, number), (*its_device, *next), "of {from}");
                *next += 1;
            }
        }
        assert!(by_client.values().all(|&(_, next)| next == packets));
        assert_eq!(by_client.len(), clients);
    }
}

#[test]
fn the_packets_of_a_broken_device_are_counted_as_lost_and_the_others_go_on() {
    let (clients, packets) = (4, 3000);
    let outcome = run(3, clients, packets, Some(1));
    assert_eq!(outcome.sent, clients as u64 * u64::from(packets));
    let transmitted: u64 = outcome.transmitted.iter().sum();
    assert_eq!(outcome.sent, transmitted + outcome.lost, "to the packet");
    assert!(outcome.lost > 0);
    for device in [0, 2] {
        let arrived = &outcome.arrived[device];
        assert_eq!(arrived.len() as u64, outcome.transmitted[device]);
        for name in 0..clients {
            let mut of_it = arrived.iter().filter(|(from, _)| *from == name).peekable();
            if of_it.peek().is_some() {
                assert!(of_it.copied().eq(numbered(name, 0..packets)), "{name}");
            }
        }
    }
}

#[test]
fn a_dispatcher_that_is_gone_loses_what_is_released_to_it_from_then_on() {
    let (mut arbiter, mut ends, mut far) = arbiter(2, 64, fast(), 64);
    let registrar = arbiter.registrar();
    let population = Population::default();
    let mut clients: Vec<_> = (0..2)
        .map(|_| registrar.register(weight(1)).unwrap())
        .collect();
    let mut push = |packets: u32| {
        for (name, client) in clients.iter_mut().enumerate() {
            for number in 0..packets {
                let packet = population.packet(name, number, 100);
                client.push(length(100), packet).unwrap();
            }
        }
    };
    push(5);
    arbiter.step(us(1)).unwrap();
    assert_eq!(ends[0].pass(us(1)).unwrap(), 5);
    assert_eq!(arbiter.release().lost(), 0);
    // Five wait in the mailbox of the one that goes.
    drop(ends.pop());
    assert_eq!(arbiter.release().lost(), 5);
    push(30);
    for round in 2..9 {
        arbiter.step(us(round)).unwrap();
        ends[0].pass(us(round)).unwrap();
    }
    assert_eq!(arbiter.release().lost(), 35);
    assert_eq!(arbiter.waiting_for_backend(), 0);
    let arrived = names(&receive(&mut far[0]));
    assert_eq!(arrived.len(), 35);
}

#[test]
fn when_the_arbiter_is_dropped_a_dispatcher_ends_after_it_has_transmitted_everything() {
    let (arbiter, ends, mut far, population) = two_hundred_released();
    drop(arbiter);
    assert_eq!(population.count(), 200);
    for mut end in ends {
        let clock = Clock::start();
        drive(&mut end, &clock, Idling::default(), |_, _, _| true).unwrap();
        assert_eq!(end.transmitted(), 200);
    }
    assert_eq!(names(&receive(&mut far[0])), numbered(0, 0..200));
}

#[test]
fn a_sleeping_dispatcher_is_woken_by_a_packet_and_by_the_arbiters_end() {
    let (mut arbiter, ends, mut far) = arbiter(1, 64, fast(), 64);
    let mut client = arbiter.registrar().register(weight(1)).unwrap();
    let population = Population::default();
    let idling = Idling {
        spin_for: us(1),
        // A wake-up that is lost costs this long.
        longest_sleep: Nanos::from_millis(60_000),
        ..Idling::default()
    };
    let start = Instant::now();
    thread::scope(|scope| {
        let threads: Vec<_> = ends
            .into_iter()
            .map(|mut end| {
                scope.spawn(move || {
                    drive(&mut end, &Clock::start(), idling, |_, _, _| true).unwrap();
                })
            })
            .collect();
        let mut arrived = 0;
        for number in 0..3000 {
            let packet = population.packet(0, number, 100);
            client.push(length(100), packet).unwrap();
            arbiter.step(us(u64::from(number))).unwrap();
            while arrived <= number {
                arrived += receive(&mut far[0]).len() as u32;
                assert!(start.elapsed() < PATIENCE, "{number}");
                thread::yield_now();
            }
            if number % 100 == 0 {
                thread::sleep(Duration::from_millis(2));
            }
            // Not always at the same moment of the dispatcher's preparations.
            for _ in 0..number % 61 * 8 {
                std::hint::spin_loop();
            }
        }
        drop(arbiter);
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    });
    assert!(start.elapsed() < PATIENCE);
}

#[test]
fn a_dispatcher_does_not_sleep_on_packets_that_it_has_not_taken() {
    // More than a dispatcher takes at a time.
    let (arbiter, ends, mut far, _population) = two_hundred_released();
    let idling = Idling {
        spin_for: Nanos::ZERO,
        longest_sleep: Nanos::from_millis(60_000),
        ..Idling::default()
    };
    let start = Instant::now();
    thread::scope(|scope| {
        for mut end in ends {
            scope.spawn(move || {
                drive(&mut end, &Clock::start(), idling, |_, _, _| true).unwrap();
            });
        }
        let mut arrived = Vec::new();
        while arrived.len() < 200 {
            assert!(start.elapsed() < PATIENCE, "{} arrived", arrived.len());
            arrived.extend(names(&receive(&mut far[0])));
            thread::yield_now();
        }
        assert_eq!(arrived, numbered(0, 0..200));
        drop(arbiter);
    });
}

#[test]
fn while_a_dispatchers_mailbox_is_full_the_arbiter_commits_no_further_packets() {
    let (mut arbiter, mut ends, mut far) = arbiter(1, 64, fast(), 1000);
    let mut client = arbiter.registrar().register(weight(1)).unwrap();
    let population = Population::default();
    let (mut pushed, mut now) = (0, Nanos::ZERO);
    let mut step = |arbiter: &mut Dispatched| {
        now += us(1);
        arbiter.step(now).unwrap()
    };
    let full = loop {
        for _ in 0..50 {
            let packet = population.packet(0, pushed, 100);
            client.push(length(100), packet).unwrap();
            pushed += 1;
        }
        let step = step(&mut arbiter);
        if step.next == Next::WhenBackendTakesMore {
            break arbiter.total_stats().sent.packets;
        }
        assert!(
            pushed < 1000,
            "a mailbox of 64 slots takes no thousand packets"
        );
    };
    assert!(arbiter.waiting_for_backend() > 0);
    for _ in 0..3 {
        assert_eq!(step(&mut arbiter).released, 0);
    }
    assert_eq!(arbiter.total_stats().sent.packets, full);
    for n in 0..50 {
        ends[0].pass(us(n)).unwrap();
        step(&mut arbiter);
    }
    assert_eq!(names(&receive(&mut far[0])), numbered(0, 0..pushed));
}

/// Delta_D of Eq. 1.
#[test]
fn the_longest_time_between_a_dispatchers_passes_is_what_a_packet_may_wait() {
    let (mut arbiter, mut ends, _far) = arbiter(1, 64, fast(), 1000);
    let mut client = arbiter.registrar().register(weight(1)).unwrap();
    let population = Population::default();
    let mut release = |at| {
        let packet = population.packet(0, 0, 100);
        client.push(length(100), packet).unwrap();
        assert_eq!(arbiter.step(at).unwrap().transmitted, 1);
    };
    let end = &mut ends[0];
    for (packet, at) in [
        (false, 0),
        (true, 10),
        // No packet waits meanwhile.
        (false, 90),
        (true, 100),
        (true, 125),
        (false, 130),
        (true, 145),
    ] {
        if packet {
            release(us(at));
        }
        assert_eq!(end.pass(us(at)).unwrap(), usize::from(packet));
    }
    let passes = end.passes();
    assert_eq!((passes.count(), passes.longest()), (4, us(25)));
    assert_eq!(passes.mean(), us(15));
}

/// Delta_A of Eq. 1.
#[test]
fn the_longest_time_between_two_looks_is_what_a_packet_may_wait_in_its_mailbox() {
    let config = ArbiterConfig {
        linger: us(500),
        ..fast()
    };
    let (mut arbiter, _ends, _far) = arbiter(1, 64, config, 1000);
    let mut client = arbiter
        .registrar()
        .register(holding(100, weight(1)))
        .unwrap();
    let population = Population::default();
    for (packet, at) in [
        (false, 0),
        (true, 30),
        // No packet waits meanwhile.
        (false, 99),
        (true, 100),
        (true, 110),
        // It dozes from 610 on; the last step before its push is at 800.
        (false, 700),
        (false, 800),
        (true, 820),
    ] {
        if packet {
            let packet = population.packet(0, 0, 100);
            client.push(length(100), packet).unwrap();
        }
        assert_eq!(arbiter.step(us(at)).unwrap().drained, usize::from(packet));
        assert_eq!(
            arbiter.active_clients(),
            usize::from(!(700..820).contains(&at))
        );
    }
    let looks = arbiter.stats().looks;
    assert_eq!((looks.count(), looks.longest()), (4, us(30)));
    assert_eq!(looks.mean(), Nanos(61_000 / 4));

    // The arbiter's sleep delays no packet: a push would have woken it.
    arbiter.reset_stats();
    assert_eq!(
        arbiter.sleep(Duration::ZERO),
        Some(fairlane_runtime::Woken::Nudged)
    );
    client
        .push(length(100), population.packet(0, 0, 100))
        .unwrap();
    assert_eq!(arbiter.step(us(100_000)).unwrap().drained, 1);
    assert_eq!(arbiter.stats().looks.longest(), Nanos::ZERO);
}
