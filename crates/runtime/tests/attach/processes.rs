//! Other processes: the executable of these tests, run again with a role to play.

use std::env;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, SystemTime};

use fairlane_runtime::Idling;
use fairlane_runtime::attach::connect;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rustix::process::{Pid, Signal, getpid, kill_process};

use crate::quotas;
use crate::raw::Raw;
use crate::rig::{
    LONGEST, Running, Still, assert_a_whole_beginning, config, number_of, packet, push_waiting,
    wait_until,
};

const ROLE: &str = "FAIRLANE_TEST_ROLE";
const SOCKET: &str = "FAIRLANE_TEST_SOCKET";

/// A process with a role; killed at the latest when the test is over.
pub(crate) struct Actor(Child);

impl Actor {
    fn start(role: &str, path: PathBuf) -> Self {
        Actor::spawn(&mut Command::new(env::current_exe().unwrap()), role, &path)
    }

    /// As a user without privileges; only root can.
    pub(crate) fn start_as(uid: u32, role: &str, path: &Path) -> Self {
        // It may read neither where the tests were built nor a folder of root's.
        let folder = path.parent().unwrap();
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
        let program = folder.join("actor");
        if !program.exists() {
            fs::copy(env::current_exe().unwrap(), &program).unwrap();
        }
        let mut command = Command::new(program);
        Actor::spawn(command.current_dir(folder).uid(uid).gid(uid), role, path)
    }

    fn spawn(command: &mut Command, role: &str, path: &Path) -> Self {
        command
            .args(["--exact", "processes::an_actor_plays_its_role"])
            .env(ROLE, role)
            .env(SOCKET, path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        loop {
            match command.spawn() {
                // Another test began a process while the program was being copied: that process
                // holds the file open for writing until it is a program of its own.
                Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => {
                    thread::sleep(Duration::from_millis(1));
                }
                child => return Actor(child.unwrap()),
            }
        }
    }

    /// Resumes a process that [waits](wait_for_the_test).
    pub(crate) fn go_on(&mut self) {
        self.0.stdin = None;
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// Waits for its end and returns whether it played its role to the end.
    pub(crate) fn ended_well(&mut self) -> bool {
        self.0.wait().unwrap().success()
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Not a test by itself: the role of the processes that the tests start.
#[test]
fn an_actor_plays_its_role() {
    let (Ok(role), Some(path)) = (env::var(ROLE), env::var_os(SOCKET)) else {
        return;
    };
    let path = Path::new(&path);
    let (role, argument) = role.split_once(' ').unwrap_or((&role, "0"));
    let argument: u64 = argument.parse().unwrap();
    match role {
        "push" => push(path, argument),
        "push-for-ever" => push(path, u64::MAX),
        "push-and-die" => {
            push_as_many_as_there_is_room_for(path, argument);
            die();
        }
        "die-in-the-middle" => die_in_the_middle(path, argument as usize),
        "scribble" => scribble(path, argument),
        "keep-memory" => quotas::keep_memory(path, argument as usize),
        "keep-others-out" => quotas::keep_others_out(path, argument as usize),
        other => panic!("{other}"),
    }
}

/// Until the test says so, or is over.
pub(crate) fn wait_for_the_test() {
    let _ = io::stdin().read(&mut [0]);
}

fn push(path: &Path, packets: u64) {
    let mut client = connect(path).unwrap();
    for number in 0..packets {
        if !push_waiting(&mut client, &packet(number)) {
            return;
        }
    }
}

fn push_as_many_as_there_is_room_for(path: &Path, packets: u64) {
    let mut client = connect(path).unwrap();
    for number in 0..packets {
        client.push(&packet(number)).unwrap();
    }
    // Its end must not be a polite one.
    std::mem::forget(client);
}

fn die() {
    kill_process(getpid(), Signal::KILL).unwrap();
}

/// Dies between the words of a packet and its header.
fn die_in_the_middle(path: &Path, packets: usize) {
    let raw = Raw::attach(path);
    for number in 0..packets {
        raw.write(number, &packet(number as u64));
    }
    raw.write_body(packets, &packet(packets as u64));
    die();
}

/// Writes anything anywhere, now and then something plausible, until it is cut off.
fn scribble(path: &Path, seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let raw = Raw::attach(path);
    let words = raw.words();
    for round in 0.. {
        let word = match random.random_range(0..8) {
            0 => random.random(),
            generation => generation << 32 | random.random_range(0..u64::from(LONGEST) + 20),
        };
        // The beginning is spared for a while, or nothing else would ever be read.
        let from = if round < 5_000 { 64 } else { 0 };
        words[random.random_range(from..words.len())].store(word, Ordering::Relaxed);
        if round % 64 == 0 {
            let place = (round / 64) as usize;
            raw.write(place, &packet(place as u64));
            raw.ring();
            if raw.is_cut_off() {
                return;
            }
        }
    }
}

/// Another each time; printed, to be put here when a test fails.
fn new_seed() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seed = now.unwrap().as_nanos() as u64;
    println!("seed {seed}");
    seed
}

#[test]
fn packets_of_several_processes_arrive_intact_and_in_order() {
    const PACKETS: u64 = 20_000;
    let daemon = Running::new(config(), Idling::default());
    let mut actors: Vec<_> = (0..3)
        .map(|_| Actor::start(&format!("push {PACKETS}"), daemon.path.get()))
        .collect();
    for actor in &mut actors {
        assert!(actor.ended_well());
    }
    daemon.wait_until_left(3);
    assert_eq!(daemon.attach().attached(), []);
    let by_process = daemon.finish();
    assert_eq!(by_process.len(), 3);
    for actor in &actors {
        let packets = &by_process[&actor.pid()];
        assert_eq!(assert_a_whole_beginning(packets), PACKETS);
    }
}

#[test]
fn a_process_that_is_killed_while_it_pushes_harms_nobody_and_leaves_no_half_packet() {
    const ROUNDS: u64 = 25;
    let seed = new_seed();
    let mut random = SmallRng::seed_from_u64(seed);
    let daemon = Running::new(config(), Idling::default());
    let healthy = Actor::start("push-for-ever", daemon.path.get());
    let mut victims = Vec::new();
    for round in 0..ROUNDS {
        let mut victim = Actor::start("push-for-ever", daemon.path.get());
        wait_until("the victim is attached", || {
            let attached = daemon.attach().attached();
            attached
                .iter()
                .any(|client| client.peer.pid == victim.pid())
        });
        // Some are killed before they push anything.
        if round % 2 == 1 {
            wait_until("its first packet arrives", || {
                daemon.has_heard(victim.pid())
            });
        }
        thread::sleep(Duration::from_micros(random.random_range(0..10_000)));
        victim.signal(Signal::KILL);
        assert!(!victim.ended_well());
        victims.push(victim.pid());
        daemon.wait_until_left(round + 1);
        // The other one's packets continue.
        let before = daemon.arrived();
        wait_until("more packets arrive", || daemon.arrived() > before + 100);
    }
    drop(healthy);
    daemon.wait_until_left(ROUNDS + 1);
    let by_process = daemon.finish();
    for packets in by_process.values() {
        assert_a_whole_beginning(packets);
    }
    let heard = victims.iter().filter(|pid| by_process.contains_key(pid));
    assert!(heard.count() >= victims.len() / 2, "the victims pushed");
}

#[test]
fn what_a_killed_process_pushed_is_still_sent() {
    let mut daemon = Still::new(config());
    // The arbiter does not look until the process is gone.
    for (round, packets) in [1, 17, 64].into_iter().enumerate() {
        let role = format!("push-and-die {packets}");
        let mut actor = Actor::start(&role, daemon.path.get());
        assert!(!actor.ended_well());
        daemon.wait_until_left(round as u64 + 1);
        let arrived = daemon.drain_the_dead();
        assert!(arrived.iter().all(|packet| packet.from.pid == actor.pid()));
        let packets_arrived: Vec<_> = arrived.into_iter().map(|packet| packet.bytes).collect();
        assert_eq!(assert_a_whole_beginning(&packets_arrived), packets);
    }
}

#[test]
fn a_packet_without_its_header_is_never_sent() {
    let mut daemon = Still::new(config());
    let mut actor = Actor::start("die-in-the-middle 3", daemon.path.get());
    assert!(!actor.ended_well());
    daemon.wait_until_left(1);
    let arrived = daemon.drain_the_dead();
    let numbers: Vec<_> = arrived
        .iter()
        .map(|packet| number_of(&packet.bytes))
        .collect();
    assert_eq!(numbers, [Some(0), Some(1), Some(2)]);
}

#[test]
fn a_process_that_scribbles_over_its_mailbox_harms_nobody() {
    const SCRIBBLERS: u64 = 6;
    let seed = new_seed();
    let daemon = Running::new(config(), Idling::default());
    let healthy = Actor::start("push-for-ever", daemon.path.get());
    let mut scribblers = Vec::new();
    for number in 0..SCRIBBLERS {
        let role = format!("scribble {}", seed + number);
        let mut actor = Actor::start(&role, daemon.path.get());
        // It ends when it is cut off.
        assert!(actor.ended_well());
        scribblers.push(actor.pid());
        daemon.wait_until_left(number + 1);
        let before = daemon.arrived();
        wait_until("more packets arrive", || daemon.arrived() > before + 100);
    }
    let healthy_pid = healthy.pid();
    drop(healthy);
    daemon.wait_until_left(SCRIBBLERS + 1);
    let by_process = daemon.finish();
    assert_a_whole_beginning(&by_process[&healthy_pid]);
    for pid in scribblers {
        for packet in by_process.get(&pid).into_iter().flatten() {
            assert!((1..=LONGEST as usize).contains(&packet.len()));
        }
    }
}

#[test]
fn a_process_that_is_stopped_keeps_nobody_waiting() {
    let daemon = Running::new(config(), Idling::default());
    let stopped = Actor::start("push-for-ever", daemon.path.get());
    let other = Actor::start("push-for-ever", daemon.path.get());
    wait_until("both are attached", || {
        daemon.attach().attached().len() == 2 && daemon.arrived() > 1_000
    });
    stopped.signal(Signal::STOP);
    let before = daemon.arrived();
    wait_until("the other's packets arrive", || {
        daemon.arrived() > before + 5_000
    });
    assert_eq!(daemon.attach().attached().len(), 2);
    stopped.signal(Signal::CONT);
    other.signal(Signal::STOP);
    let before = daemon.arrived();
    wait_until("it goes on where it was stopped", || {
        daemon.arrived() > before + 5_000
    });
    let pids = [stopped.pid(), other.pid()];
    drop((stopped, other));
    let by_process = daemon.finish();
    for pid in pids {
        assert_a_whole_beginning(&by_process[&pid]);
    }
}
