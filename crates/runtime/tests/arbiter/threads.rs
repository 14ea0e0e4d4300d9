//! The loop around a step, with clients on threads of their own, in real time.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use fairlane_core::sched::{Drr, Fifo, Qfq};
use fairlane_core::{FlowConfig, Nanos, PacketScheduler, Scheduler};
use fairlane_io::{Backend, Datagram, memory};
use fairlane_runtime::{
    Arbiter, ArbiterConfig, Client, Clock, Idling, Link, Refusal, Registrar, Straight, drive,
};

use crate::rig::{
    Packet, Population, Rig, config, fast, holding, length, link, ms, on, us, weight,
};

const CLIENTS: usize = 4;
/// Longer than any of this takes on a machine that works.
const PATIENCE: Nanos = ms(10_000);

/// Lets the arbiter's thread run; if that should be stuck, the test fails.
fn wait_a_little(clock: &Clock) {
    assert!(clock.now() < PATIENCE, "nobody drains the mailbox");
    thread::yield_now();
}

/// Registers, pushes `packets` packets as fast as the mailbox takes them, leaves; returns the
/// number of reported drops.
fn send_all<P: Send>(
    registrar: &Registrar<P>,
    config: FlowConfig,
    packets: u32,
    mut packet: impl FnMut(u32) -> (u32, P),
) -> u64 {
    let mut client = registrar.register(config).unwrap();
    let clock = Clock::start();
    let mut told = 0;
    for number in 0..packets {
        let (len, mut next) = packet(number);
        loop {
            match client.push(length(len), next) {
                Ok(pushed) => {
                    told += pushed.dropped_before;
                    break;
                }
                Err(refused) => {
                    assert_eq!(refused.reason, Refusal::MailboxFull);
                    next = refused.packet;
                    wait_a_little(&clock);
                }
            }
        }
    }
    told
}

/// Drives an arbiter until its clients, each on a thread, have come and gone and the device has all
/// their packets; returns the elapsed time, and the drops reported to clients.
fn drive_to_the_end<A, P, B>(
    arbiter: &mut Arbiter<PacketScheduler<A, P>, Straight<B>>,
    client: impl Fn(usize, &Registrar<P>) -> u64 + Sync,
    mut after_step: impl FnMut(),
) -> (Nanos, u64)
where
    A: Scheduler,
    P: Send,
    B: Backend<Tx = P>,
{
    let registrar = arbiter.registrar();
    let left = AtomicUsize::new(0);
    let clock = Clock::start();
    let mut transmitted = 0;
    let told = thread::scope(|scope| {
        let senders: Vec<_> = (0..CLIENTS)
            .map(|n| {
                let (registrar, client, left) = (registrar.clone(), &client, &left);
                scope.spawn(move || {
                    let told = client(n, &registrar);
                    left.fetch_add(1, Ordering::Release);
                    told
                })
            })
            .collect();
        drive(arbiter, &clock, Idling::default(), |arbiter, now, step| {
            assert!(now < PATIENCE, "{:?}", arbiter.total_stats());
            transmitted += step.transmitted as u64;
            after_step();
            let all_left = left.load(Ordering::Acquire) == CLIENTS;
            // The flows of clients that left go with a step after that.
            !(all_left
                && step.drained == 0
                && arbiter.clients() == 0
                && arbiter.waiting_for_backend() == 0)
        })
        .unwrap();
        senders.into_iter().map(|s| s.join().unwrap()).sum()
    });
    arbiter.invariants().unwrap();
    let total = arbiter.total_stats();
    assert_eq!((total.queued.packets, total.discarded.packets), (0, 0));
    assert_eq!(transmitted, total.sent.packets);
    (clock.now(), told)
}

fn every_packet_is_accounted_for<A: Scheduler>(algorithm: A) {
    // Some 0.1 seconds of traffic.
    let (packets, len, overhead) = (1000, 1000, 24);
    let link = Link {
        overhead,
        ..link(320_000_000)
    };
    let (near, mut far) = memory::pair::<Packet, Packet>(64);
    let mut arbiter = Arbiter::new(algorithm, on(link), near, Nanos::ZERO);
    let population = Population::default();
    let mut next = [0; CLIENTS];
    let (mut arrived, mut received) = (Vec::new(), 0);
    let (time, told) = drive_to_the_end(
        &mut arbiter,
        |n, registrar| {
            // Two of them have short queues and lose packets.
            let config = if n < 2 {
                weight(1 << n)
            } else {
                holding(20, weight(1 << n))
            };
            send_all(registrar, config, packets, |number| {
                (len, population.packet(n, number, len))
            })
        },
        || {
            far.receive(&mut arrived, usize::MAX).unwrap();
            for packet in arrived.drain(..) {
                assert!(packet.number >= next[packet.from], "{}", A::NAME);
                next[packet.from] = packet.number + 1;
                received += 1;
            }
        },
    );
    let total = arbiter.total_stats();
    assert_eq!(
        received + total.dropped.packets,
        (CLIENTS as u32 * packets).into()
    );
    assert_eq!(total.sent.packets, received);
    assert_eq!(total.sent.bytes, received * u64::from(len + overhead));
    assert_eq!(next[..2], [packets; 2], "no limit, no loss");
    assert!(total.dropped.packets > 0 && told <= total.dropped.packets);
    assert_eq!(population.count(), 0);

    // The last packet may still be on the link.
    let bits = (received - 1) * u64::from(len + overhead) * 8;
    let least = Nanos(bits * 1_000_000_000 / link.rate.bps());
    assert!(time + link.catch_up >= least, "{time:?} < {least:?}");
}

#[test]
fn with_clients_on_threads_every_packet_is_accounted_for() {
    every_packet_is_accounted_for(Fifo::new());
    every_packet_is_accounted_for(Drr::new());
    every_packet_is_accounted_for(Qfq::new());
}

#[test]
fn clients_on_threads_are_told_of_each_drop_but_those_after_their_last_push() {
    let (near, mut far) = memory::pair::<Packet, Packet>(64);
    let mut arbiter = Arbiter::new(Qfq::new(), config(), near, Nanos::ZERO);
    let registrar = arbiter.registrar();
    let mut gone = Vec::new();
    let clock = Clock::start();
    thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let mut client = registrar.register(holding(3, weight(1))).unwrap();
            let population = Population::default();
            let (mut told, mut number) = (0, 0);
            while told < 1000 {
                let packet = population.packet(0, number, 100);
                match client.push(length(100), packet) {
                    Ok(pushed) => (told, number) = (told + pushed.dropped_before, number + 1),
                    Err(_) => wait_a_little(&clock),
                }
            }
            (client, told, population)
        });
        drive(&mut arbiter, &clock, Idling::default(), |_, now, step| {
            assert!(now < PATIENCE);
            far.receive(&mut gone, usize::MAX).unwrap();
            gone.clear();
            !sender.is_finished() || step.drained > 0
        })
        .unwrap();
        let (mut client, told, population): (Client<_>, _, _) = sender.join().unwrap();
        let last = client.push(length(100), population.packet(0, u32::MAX, 100));
        let dropped = arbiter.total_stats().dropped.packets;
        assert_eq!(told + last.unwrap().dropped_before, dropped);
    });
}

#[cfg(target_os = "linux")]
#[test]
fn over_udp_every_datagram_of_every_client_arrives_in_its_order() {
    use fairlane_io::UdpBackend;

    let localhost = "127.0.0.1:0".parse().unwrap();
    let near = UdpBackend::<Datagram>::bind(localhost).unwrap();
    let mut far = UdpBackend::<Datagram>::bind(localhost).unwrap();
    far.set_receive_buffer(1 << 20).unwrap();
    let peer = far.local_addr().unwrap();
    // IPv4 and UDP headers.
    let link = Link {
        overhead: 28,
        ..link(50_000_000)
    };
    let packets = 500;
    let mut arbiter = Arbiter::new(Qfq::new(), on(link), near, Nanos::ZERO);
    let (mut arrived, mut next) = (Vec::new(), [0; CLIENTS]);
    drive_to_the_end(
        &mut arbiter,
        |n, registrar| {
            send_all(registrar, weight(1), packets, |number| {
                let mut bytes = vec![n as u8; 500];
                bytes[..4].copy_from_slice(&number.to_be_bytes());
                (500, Datagram { peer, bytes })
            })
        },
        || {
            far.receive(&mut arrived, usize::MAX).unwrap();
            for Datagram { bytes, .. } in arrived.drain(..) {
                let number = u32::from_be_bytes(bytes[..4].try_into().unwrap());
                let from = usize::from(bytes[4]);
                assert_eq!((number, bytes.len()), (next[from], 500));
                next[from] += 1;
            }
        },
    );
    // Loopback delivers within the system call, so all have arrived.
    assert_eq!(next, [packets; CLIENTS]);
    assert_eq!(arbiter.backend().refused(), 0);
    assert_eq!(arbiter.total_stats().sent.packets, 4 * u64::from(packets));
}

#[test]
fn an_error_of_the_device_ends_the_loop() {
    let mut rig = Rig::new(Fifo::new(), fast());
    let mut sender = rig.join(weight(1));
    drop(rig.far);
    let clock = Clock::start();
    let mut steps = 0;
    let error = drive(&mut rig.arbiter, &clock, Idling::default(), |_, _, _| {
        steps += 1;
        if steps == 3 {
            sender.push_all(1, 100);
        }
        steps < 10
    })
    .unwrap_err();
    assert_eq!((error.kind(), steps), (io::ErrorKind::BrokenPipe, 3));
}

/// Returns the time that `steps` steps without a client take.
fn idle_steps(steps: u32, idling: Idling) -> Nanos {
    let mut rig = Rig::new(Fifo::new(), config());
    let clock = Clock::start();
    let mut left = steps;
    drive(&mut rig.arbiter, &clock, idling, |_, _, _| {
        left -= 1;
        left > 0
    })
    .unwrap();
    clock.now()
}

#[test]
fn an_idle_arbiter_sleeps_between_steps() {
    let idling = Idling {
        spin_for: Nanos::ZERO,
        longest_sleep: ms(2),
        ..Idling::default()
    };
    // There is no sleep after the last.
    assert!(idle_steps(11, idling) >= ms(20));
}

#[test]
fn an_arbiter_that_may_spin_does_not_sleep() {
    for idling in [
        Idling::dedicated(),
        Idling {
            spin_for: ms(10_000),
            ..Idling::default()
        },
    ] {
        assert!(idle_steps(20, idling) < ms(1900));
    }
}

#[test]
fn a_busy_arbiter_sleeps_until_the_link_is_idle_and_no_longer() {
    let idling = Idling {
        spin_below: Nanos::ZERO,
        spin_for: Nanos::ZERO,
        nap: ms(10_000),
        ..Idling::default()
    };
    let mut rig = Rig::new(Fifo::new(), config());
    let mut sender = rig.join(weight(1));
    // Twenty times half a millisecond.
    sender.push_all(21, 500);
    let clock = Clock::start();
    let (mut steps, mut released) = (0, 0);
    drive(&mut rig.arbiter, &clock, idling, |_, now, step| {
        steps += 1;
        released += step.released;
        assert!(now < PATIENCE);
        released < 21
    })
    .unwrap();
    let time = clock.now();
    assert!(time >= ms(10), "{time:?}");
    // A sleep of ten seconds would be seen.
    assert!(time < ms(9_000), "{time:?}");
    assert!(steps <= 21, "{steps} steps for 21 packets");
}

#[test]
fn however_slow_the_link_mailboxes_are_looked_at_within_the_longest_sleep() {
    let idling = Idling {
        nap: ms(1),
        longest_sleep: ms(1),
        ..Idling::default()
    };
    // A packet takes a second.
    let mut rig = Rig::new(Fifo::new(), on(link(8_000)));
    let mut sender = rig.join(weight(1));
    sender.push_all(5, 1000);
    let clock = Clock::start();
    let mut left = 5;
    drive(&mut rig.arbiter, &clock, idling, |_, _, _| {
        left -= 1;
        left > 0
    })
    .unwrap();
    assert!(clock.now() < ms(900), "{:?}", clock.now());
}

#[test]
fn an_arbiter_at_a_limit_goes_on_at_once() {
    let idling = Idling {
        spin_below: Nanos::ZERO,
        spin_for: Nanos::ZERO,
        ..Idling::default()
    };
    let one_at_a_time = ArbiterConfig {
        drain_limit: 1,
        ..fast()
    };
    let mut rig = Rig::new(Fifo::new(), one_at_a_time);
    let mut sender = rig.join(weight(1));
    sender.push_all(50, 100);
    let clock = Clock::start();
    let mut left = 50;
    drive(&mut rig.arbiter, &clock, idling, |_, _, step| {
        left -= step.drained;
        left > 0
    })
    .unwrap();
    assert!(clock.now() < ms(4_000), "{:?}", clock.now());
}

#[test]
fn a_packet_pushed_just_before_its_client_leaves_is_not_missed() {
    let sink = Sink(Vec::new());
    let mut arbiter = Arbiter::new(Fifo::new(), fast(), sink, Nanos::ZERO);
    let registrar = arbiter.registrar();
    let clock = Clock::start();
    let pushed = thread::scope(|scope| {
        let senders: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut pushed = 0;
                    while clock.now() < ms(300) {
                        match registrar.register(weight(1)) {
                            Ok(mut client) => {
                                // The arbiter may be looking at any point of this.
                                std::hint::black_box((0..pushed % 4000).sum::<u64>());
                                client.push(length(1), 0).unwrap();
                                pushed += 1;
                            }
                            Err(_) => thread::yield_now(),
                        }
                    }
                    pushed
                })
            })
            .collect();
        while arbiter.clients() > 0 || senders.iter().any(|sender| !sender.is_finished()) {
            arbiter.step(clock.now()).unwrap();
            assert!(clock.now() < PATIENCE);
        }
        let all = senders.into_iter().map(|sender| sender.join().unwrap());
        all.sum::<u64>()
    });
    arbiter.step(clock.now()).unwrap();
    arbiter.step(clock.now()).unwrap();
    assert_eq!(arbiter.backend().0.len() as u64, pushed);
}

#[test]
fn the_clock_starts_at_zero_and_its_copies_agree() {
    let clock = Clock::start();
    let copy = clock;
    let (first, second, third) = (clock.now(), copy.now(), clock.now());
    assert!(first <= second && second <= third && first < ms(10_000));
    thread::sleep(std::time::Duration::from_millis(2));
    assert!(copy.now().since(third) >= us(1_900));
}

/// The backend defines the packets of a batch: any type will do.
struct Sink(Vec<u32>);

impl Backend for Sink {
    type Tx = u32;
    type Rx = ();

    fn transmit(&mut self, batch: &mut VecDeque<u32>) -> io::Result<usize> {
        let accepted = batch.len();
        self.0.extend(batch.drain(..));
        Ok(accepted)
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
fn any_type_is_a_packet_to_a_backend_that_takes_it() {
    let mut arbiter = Arbiter::new(Drr::new(), fast(), Sink(Vec::new()), Nanos::ZERO);
    drive_to_the_end(
        &mut arbiter,
        |n, registrar| {
            let first = n as u32 * 1000;
            send_all(registrar, weight(1), 1000, |number| (100, first + number))
        },
        || {},
    );
    let mut sent = std::mem::take(&mut arbiter.backend_mut().0);
    sent.sort_unstable();
    assert!(sent.into_iter().eq(0..4000));
}
