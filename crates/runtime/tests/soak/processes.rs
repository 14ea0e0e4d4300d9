//! Clients that are other processes: the executable of this test, run again, and stopped and
//! killed at random.

use std::env;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use fairlane_core::{FlowConfig, Length, Limits, Weight};
use fairlane_runtime::Registrar;
use fairlane_runtime::attach::{
    Attach, AttachConfig, Attached, Class, Mapping, PushRefused, Who, connect,
};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rustix::process::{Pid, Signal, kill_process};

use crate::clients::{LONGEST, Weather};
use crate::ledger::{Account, Ledger, Packet};

const SOCKET: &str = "FAIRLANE_SOAK_SOCKET";
const SEED: &str = "FAIRLANE_SOAK_CHILD_SEED";

/// Processes at a time.
const PROCESSES: usize = 3;

/// Returns a packet of any length that names its number at both ends.
fn packet(number: u64, random: &mut SmallRng) -> Vec<u8> {
    let mut bytes = vec![0; random.random_range(16..=LONGEST as usize)];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    let end = bytes.len() - 8;
    bytes[end..].copy_from_slice(&(!number).to_le_bytes());
    bytes
}

fn number_of(bytes: &[u8]) -> Option<u64> {
    let first = u64::from_le_bytes(*bytes.first_chunk()?);
    let last = u64::from_le_bytes(*bytes.last_chunk()?);
    (first == !last).then_some(first)
}

/// Not a test by itself: the role of the processes, until they are killed.
#[test]
fn a_process_pushes_until_it_is_killed() {
    let (Some(path), Ok(seed)) = (env::var_os(SOCKET), env::var(SEED)) else {
        return;
    };
    let mut random = SmallRng::seed_from_u64(seed.parse().unwrap());
    let weather = Weather::default();
    let Ok(mut client) = connect(Path::new(&path)) else {
        return;
    };
    let last = match random.random_range(0..4) {
        0 => random.random_range(0..5_000),
        _ => u64::MAX,
    };
    let mut number = 0;
    while number < last {
        for _ in 0..random.random_range(1..100) {
            match client.push(&packet(number, &mut random)) {
                Ok(()) => number += 1,
                Err(PushRefused::Full) => break,
                Err(PushRefused::Gone) => return,
                Err(refused) => panic!("{refused}"),
            }
        }
        weather.pause(&mut random);
    }
}

/// Takes packets out of one process's mailbox: each copy is of another process.
struct Taker {
    ledger: Arc<Ledger>,
    account: Option<Arc<Account>>,
}

impl Clone for Taker {
    fn clone(&self) -> Self {
        Taker {
            ledger: Arc::clone(&self.ledger),
            account: None,
        }
    }
}

impl Taker {
    /// Packets from the shared memory are intact and consecutive.
    fn take(&mut self, bytes: &[u8]) -> Packet {
        let account = self
            .account
            .get_or_insert_with(|| Account::open(&self.ledger, "process"));
        let expected = account.packets_pushed();
        if number_of(bytes) != Some(expected) {
            account.fault(&format!("{:?} in place of {expected}", number_of(bytes)));
        }
        account.pushed(1);
        account.packet(expected, bytes.len() as u32)
    }
}

/// Lets processes of this user attach at `path`.
pub(crate) fn listen(path: &Path, registrar: Registrar<Packet>, ledger: &Arc<Ledger>) -> Attach {
    let limits = Limits {
        packets: 20,
        ..Limits::NONE
    };
    let class = Class {
        name: "soak".to_owned(),
        flow: FlowConfig {
            weight: Weight::new(10).unwrap(),
            max_length: Length::new(LONGEST).unwrap(),
            limits: Some(limits),
        },
        most_clients: 2 * PROCESSES,
    };
    let me = rustix::process::geteuid().as_raw();
    let mapping = Mapping::new().class(class).unwrap();
    let config = AttachConfig {
        slots: 64,
        ..AttachConfig::new(mapping.rule(Who::Uid(me), "soak").unwrap())
    };
    let mut taker = Taker {
        ledger: Arc::clone(ledger),
        account: None,
    };
    let make = move |bytes: Vec<u8>, _: &Attached| taker.take(&bytes);
    Attach::listen(path, config, registrar, make).unwrap()
}

/// Fates of the processes.
#[derive(Debug, Default)]
pub(crate) struct Fates {
    pub killed: AtomicU64,
    pub ended: AtomicU64,
}

struct Victim(Child);

impl Victim {
    fn start(path: &Path, seed: u64) -> Self {
        let child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "processes::a_process_pushes_until_it_is_killed"])
            .env(SOCKET, path)
            .env(SEED, seed.to_string())
            .stdout(Stdio::null())
            .spawn();
        Victim(child.unwrap())
    }

    fn signal(&self, signal: Signal) {
        // It may have ended; its number is its own until it is waited for.
        let _ = kill_process(Pid::from_child(&self.0), signal);
    }

    /// Kills it, and says whether it would have lived on.
    fn kill(mut self) -> bool {
        let alive = self.0.try_wait().unwrap().is_none();
        self.signal(Signal::KILL);
        self.0.wait().unwrap();
        alive
    }
}

/// Starts, stops and kills processes.
pub(crate) fn murder(path: &Path, fates: &Fates, weather: &Weather, mut random: SmallRng) {
    let mut victims: Vec<Victim> = Vec::new();
    while !weather.is_over() {
        if victims.len() < PROCESSES {
            victims.push(Victim::start(path, random.random()));
        }
        let any = random.random_range(0..victims.len());
        match random.random_range(0..4) {
            0 => victims[any].signal(Signal::STOP),
            1 => victims[any].signal(Signal::CONT),
            2 => bury(victims.swap_remove(any), fates),
            _ => {}
        }
        thread::sleep(Duration::from_millis(random.random_range(0..100)));
    }
    for victim in victims {
        bury(victim, fates);
    }
}

fn bury(victim: Victim, fates: &Fates) {
    let fate = match victim.kill() {
        true => &fates.killed,
        false => &fates.ended,
    };
    fate.fetch_add(1, Ordering::Relaxed);
}
