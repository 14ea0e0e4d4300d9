//! A daemon in this process, and packets that say which they are.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fairlane_core::sched::Qfq;
use fairlane_core::{FlowConfig, Length, Nanos, PacketScheduler, Rate, TotalStats, Weight};
use fairlane_io::{Backend, ByteLen, MemoryBackend, memory};
use fairlane_runtime::attach::{
    Attach, AttachConfig, Attached, Class, Mapping, PeerCredentials, ProcessClient, PushRefused,
    Who, connect,
};
use fairlane_runtime::{Arbiter, ArbiterConfig, Clock, Idling, Link, Registrar, Straight, drive};

/// Longest packet of the classes here.
pub(crate) const LONGEST: u32 = 300;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until `done`.
pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "waited too long until {what}");
        thread::sleep(Duration::from_micros(200));
    }
}

/// Returns a packet of some length that names its number in every byte.
pub(crate) fn packet(number: u64) -> Vec<u8> {
    let length = 8 + (number * 37 % u64::from(LONGEST - 7)) as usize;
    let bytes = number.to_le_bytes();
    (0..length)
        .map(|at| bytes[at % 8] ^ (at / 8) as u8)
        .collect()
}

/// Returns the number of a packet, if it is whole.
pub(crate) fn number_of(bytes: &[u8]) -> Option<u64> {
    let number = u64::from_le_bytes(*bytes.first_chunk()?);
    (packet(number) == bytes).then_some(number)
}

/// Pushes a packet as soon as there is room for it; false if the daemon is gone.
pub(crate) fn push_waiting(client: &mut ProcessClient, packet: &[u8]) -> bool {
    loop {
        match client.push(packet) {
            Ok(()) => return true,
            Err(PushRefused::Full) => thread::sleep(Duration::from_micros(50)),
            Err(PushRefused::Gone) => return false,
            Err(refused) => panic!("{refused}"),
        }
    }
}

/// Packets that arrived from a process.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub from: PeerCredentials,
    pub bytes: Vec<u8>,
}

impl ByteLen for Arrived {
    fn byte_len(&self) -> usize {
        self.bytes.len()
    }
}

pub(crate) fn make(bytes: Vec<u8>, process: &Attached) -> Arrived {
    let from = process.peer;
    Arrived { from, bytes }
}

pub(crate) fn my_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

pub(crate) fn class(name: &str, most_clients: usize) -> Class {
    Class {
        name: name.to_owned(),
        flow: FlowConfig::new(Weight::new(3).unwrap(), Length::new(LONGEST).unwrap()),
        most_clients,
    }
}

/// Returns a mapping in which the user of the tests may attach.
pub(crate) fn mapping(class: Class) -> Mapping {
    let name = class.name.clone();
    let mapping = Mapping::new().class(class).unwrap();
    mapping.rule(Who::Uid(my_uid()), &name).unwrap()
}

pub(crate) fn config() -> AttachConfig {
    AttachConfig {
        slots: 64,
        ..AttachConfig::new(mapping(class("tests", 100)))
    }
}

pub(crate) fn arbiter_config() -> ArbiterConfig {
    ArbiterConfig::new(Link::new(Rate::MAX))
}

type Daemon = Arbiter<PacketScheduler<Qfq, Arrived>, Straight<MemoryBackend<Arrived>>>;

fn daemon(config: ArbiterConfig) -> (Daemon, MemoryBackend<Arrived>) {
    let (near, far) = memory::pair(usize::MAX);
    (Arbiter::new(Qfq::new(), config, near, Nanos::ZERO), far)
}

/// A path for a socket, in a folder of its own.
pub(crate) struct Path {
    folder: tempfile::TempDir,
}

impl Path {
    pub(crate) fn new() -> Self {
        Path {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn get(&self) -> PathBuf {
        self.folder.path().join("socket")
    }
}

/// A daemon whose arbiter steps on demand.
pub(crate) struct Still {
    pub path: Path,
    pub attach: Option<Attach>,
    pub arbiter: Option<Daemon>,
    pub registrar: Registrar<Arrived>,
    far: MemoryBackend<Arrived>,
    now: Nanos,
}

impl Still {
    pub(crate) fn new(config: AttachConfig) -> Self {
        Still::with(config, arbiter_config())
    }

    pub(crate) fn with(config: AttachConfig, arbiter: ArbiterConfig) -> Self {
        let path = Path::new();
        let (arbiter, far) = daemon(arbiter);
        let registrar = arbiter.registrar();
        let attach = Attach::listen(path.get(), config, registrar.clone(), make).unwrap();
        Still {
            path,
            attach: Some(attach),
            arbiter: Some(arbiter),
            registrar,
            far,
            now: Nanos::ZERO,
        }
    }

    pub(crate) fn attach(&self) -> &Attach {
        self.attach.as_ref().unwrap()
    }

    pub(crate) fn arbiter(&mut self) -> &mut Daemon {
        self.arbiter.as_mut().unwrap()
    }

    pub(crate) fn connect(&self) -> ProcessClient {
        connect(self.path.get()).unwrap()
    }

    /// Returns the reason of the present rejection.
    pub(crate) fn refusal(&self) -> String {
        connect(self.path.get()).unwrap_err().to_string()
    }

    /// Makes one step, a microsecond after the last; returns the packets sent.
    pub(crate) fn step(&mut self) -> Vec<Arrived> {
        self.now += Nanos::from_micros(1);
        let now = self.now;
        self.arbiter().step(now).unwrap();
        let mut arrived = Vec::new();
        self.far.receive(&mut arrived, usize::MAX).unwrap();
        arrived
    }

    /// Makes enough steps to take all packets from the mailboxes and release clients that left.
    pub(crate) fn steps(&mut self) -> Vec<Arrived> {
        (0..200).flat_map(|_| self.step()).collect()
    }

    /// Steps until all clients that have left are forgotten.
    pub(crate) fn drain_the_dead(&mut self) -> Vec<Arrived> {
        let mut arrived = Vec::new();
        for _ in 0..10_000 {
            arrived.extend(self.step());
            if self.arbiter().clients() == 0 {
                return arrived;
            }
        }
        panic!("a client that has left is still there");
    }

    pub(crate) fn wait_until_left(&self, clients: u64) {
        wait_until("the clients have left", || {
            self.attach().stats().left == clients
        });
    }
}

/// The packets of each process, in order of departure.
pub(crate) type ByProcess = HashMap<u32, Vec<Vec<u8>>>;

/// A daemon with a running arbiter, and the order in which each process's packets left.
pub(crate) struct Running {
    pub path: Path,
    pub attach: Option<Attach>,
    stop: Arc<AtomicBool>,
    arrived: Arc<AtomicU64>,
    /// The processes of which something has arrived.
    heard: Arc<Mutex<Vec<u32>>>,
    thread: JoinHandle<(ByProcess, TotalStats)>,
}

impl Running {
    pub(crate) fn new(config: AttachConfig, idling: Idling) -> Self {
        Running::with(config, arbiter_config(), idling)
    }

    pub(crate) fn with(config: AttachConfig, arbiter: ArbiterConfig, idling: Idling) -> Self {
        let path = Path::new();
        let (mut arbiter, mut far) = daemon(arbiter);
        let attach = Attach::listen(path.get(), config, arbiter.registrar(), make).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let arrived = Arc::new(AtomicU64::new(0));
        let heard = Arc::new(Mutex::new(Vec::new()));
        let (stopped, counter) = (Arc::clone(&stop), Arc::clone(&arrived));
        let hearing = Arc::clone(&heard);
        let thread = thread::spawn(move || {
            let mut by_process = ByProcess::new();
            let mut batch = Vec::new();
            drive(&mut arbiter, &Clock::start(), idling, |arbiter, _, _| {
                far.receive(&mut batch, usize::MAX).unwrap();
                counter.fetch_add(batch.len() as u64, Ordering::Relaxed);
                for Arrived { from, bytes } in batch.drain(..) {
                    let packets = by_process.entry(from.pid).or_insert_with(|| {
                        hearing.lock().unwrap().push(from.pid);
                        Vec::new()
                    });
                    packets.push(bytes);
                }
                !(stopped.load(Ordering::Relaxed) && arbiter.clients() == 0)
            })
            .unwrap();
            arbiter.invariants().unwrap();
            (by_process, arbiter.total_stats())
        });
        Running {
            path,
            attach: Some(attach),
            stop,
            arrived,
            heard,
            thread,
        }
    }

    pub(crate) fn attach(&self) -> &Attach {
        self.attach.as_ref().unwrap()
    }

    /// Packets sent so far.
    pub(crate) fn arrived(&self) -> u64 {
        self.arrived.load(Ordering::Relaxed)
    }

    /// Returns whether a packet of this process was sent.
    pub(crate) fn has_heard(&self, pid: u32) -> bool {
        self.heard.lock().unwrap().contains(&pid)
    }

    pub(crate) fn wait_until_left(&self, clients: u64) {
        wait_until("the clients have left", || {
            self.attach().stats().left == clients
        });
    }

    /// Makes the arbiter end with its last client, instead of sleeping until the next one.
    pub(crate) fn end_with_the_last_client(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Waits until all clients are gone and their packets were sent; checks the counts, and returns
    /// the packets of each process.
    pub(crate) fn finish(mut self) -> ByProcess {
        self.attach = None;
        self.stop.store(true, Ordering::Relaxed);
        let (by_process, total) = self.thread.join().unwrap();
        let sent: usize = by_process.values().map(Vec::len).sum();
        assert_eq!(total.sent.packets, sent as u64, "{total:?}");
        assert_eq!(total.accepted.packets, total.sent.packets, "{total:?}");
        by_process
    }
}

/// Asserts that these are the first packets of a process, whole and in order; returns how many.
pub(crate) fn assert_a_whole_beginning(packets: &[Vec<u8>]) -> u64 {
    for (expected, bytes) in packets.iter().enumerate() {
        assert_eq!(number_of(bytes), Some(expected as u64), "{bytes:?}");
    }
    packets.len() as u64
}
