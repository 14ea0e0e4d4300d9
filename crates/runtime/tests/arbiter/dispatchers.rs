//! Dispatcher threads: every packet once, a flow's in its order, and a broken device breaks
//! nobody else.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlane_core::Nanos;
use fairlane_core::sched::Qfq;
use fairlane_io::{Backend, MemoryBackend, memory};
use fairlane_runtime::{
    Arbiter, ArbiterConfig, Clock, Dispatcher, Dispatchers, Idling, Next, Registrar, Release,
    drive, drive_dispatcher,
};

use crate::rig::{Packet, Population, fast, holding, length, names, numbered, us, weight};

type Device = MemoryBackend<Packet>;
type Dispatched = Arbiter<Qfq, Packet, Dispatchers<Packet>>;

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

fn receive(far: &mut Device) -> Vec<Packet> {
    let mut packets = Vec::new();
    far.receive(&mut packets, usize::MAX).unwrap();
    packets
}

/// Registers, pushes so many packets, waiting for room, and leaves.
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

/// Clients on threads, dispatchers on threads, of which one may have a device that breaks;
/// returns by device which packets arrived, and how many were lost.
fn with_threads(
    dispatchers: usize,
    clients: usize,
    packets: u32,
    broken: Option<usize>,
) -> (Vec<Vec<(usize, u32)>>, u64) {
    let (mut arbiter, ends, mut far) = arbiter(dispatchers, 64, fast(), 32);
    let (registrar, population) = (arbiter.registrar(), Population::default());
    let (left, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let clock = Clock::start();
    let mut arrived = vec![Vec::new(); dispatchers];
    let lost = thread::scope(|scope| {
        let (registrar, population) = (&registrar, &population);
        let (left, stop, clock) = (&left, &stop, &clock);
        for name in 0..clients {
            scope.spawn(move || {
                send(registrar, name, packets, population);
                left.fetch_add(1, Ordering::Release);
            });
        }
        let ends: Vec<_> = ends
            .into_iter()
            .map(|mut end| {
                scope.spawn(move || {
                    let outcome = drive_dispatcher(&mut end, clock, Idling::default(), stop);
                    (outcome.map_err(|error| error.kind()), end.transmitted())
                })
            })
            .collect();
        let mut on_the_way = far.iter_mut().map(Some).collect::<Vec<_>>();
        let mut breaks = Vec::new();
        drive(&mut arbiter, clock, Idling::default(), |arbiter, now, _| {
            assert!(now < PATIENCE.try_into().unwrap(), "{:?}", arbiter.total_stats());
            for (device, far) in on_the_way.iter_mut().enumerate() {
                if let Some(far) = far {
                    arrived[device].extend(names(&receive(far)));
                }
            }
            if let Some(device) = broken
                && arrived[device].len() > 100
            {
                breaks.extend(on_the_way[device].take());
            }
            left.load(Ordering::Acquire) < clients
                || arbiter.clients() > 0
                || arbiter.waiting_for_backend() > 0
        })
        .unwrap();
        0
    });
    (arrived, lost)
}
