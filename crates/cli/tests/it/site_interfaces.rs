//! `fairlane run CONFIG` and interfaces that are in use, lost, restored or renamed, and their state after it is killed.

use std::collections::VecDeque;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::program::{Running, start};
use crate::site::{BACKENDS, PATIENCE, up};
use fairlane_io::{Backend, PacketBackend, packet};
use fairlane_netlab::{Link, Namespace, or_skip, skip_unsupported, veth_with_queues};
use serde_json::Value;

/// Two hosts and the machine between them.
pub(crate) struct Line {
    pub(crate) middle: Namespace,
    /// The hosts inside and outside.
    hosts: [Namespace; 2],
}

const NAMES: [&str; 2] = ["inside", "outside"];

impl Line {
    pub(crate) fn new(test: &str, mtu: u32) -> Option<Line> {
        let made = || {
            let line = Line {
                middle: Namespace::new()?,
                hosts: [Namespace::new()?, Namespace::new()?],
            };
            for side in [0, 1] {
                line.connect(side, mtu)?;
            }
            Ok(line)
        };
        or_skip(test, made())
    }

    fn connect(&self, side: usize, mtu: u32) -> Result<Link, fairlane_netlab::LabError> {
        self.connect_with(side, mtu, 2)
    }

    /// The same with this number of queues.
    fn connect_with(
        &self,
        side: usize,
        mtu: u32,
        queues: u32,
    ) -> Result<Link, fairlane_netlab::LabError> {
        let ends = (&self.middle, NAMES[side]);
        let (near, far) = veth_with_queues(ends, (&self.hosts[side], "host"), mtu, queues)?;
        for link in [&near, &far] {
            link.turn_offloads_off()?;
            link.up()?;
        }
        near.wait_for_carrier()?;
        Ok(near)
    }

    fn near(&self, side: usize) -> Link {
        Link::find(&self.middle, NAMES[side]).unwrap()
    }

    pub(crate) fn host(&self, side: usize) -> PacketBackend {
        let options = packet::Options {
            promiscuous: true,
            ..packet::Options::default()
        };
        self.hosts[side].run(|| PacketBackend::open("host", &options).unwrap())
    }

    /// Runs the program in the middle, with its output accessible.
    fn start(&self, backend: &str, more: &[&str]) -> (Running, tempfile::TempDir) {
        self.start_as(&up(backend, "100mbit"), more)
    }

    /// The same with this configuration.
    fn start_as(&self, config: &str, more: &[&str]) -> (Running, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("site.toml");
        std::fs::write(&file, config).unwrap();
        let arguments = [&["run", file.to_str().unwrap(), "--json"], more].concat();
        (self.middle.run(|| start(&arguments)), folder)
    }
}

/// Returns a site of each backend: without workers, with one, and if this machine has several cores, with two receive
/// workers, a transmit worker, and two arbiters.
fn sites() -> Vec<String> {
    let several = match thread::available_parallelism().unwrap().get() {
        1 => "[workers]\n",
        _ => "[workers]\nreceive = 2\ntransmit = 1\narbiters = 2\n",
    };
    let workers = ["", "[workers]\narbiters = 1\n", several].into_iter();
    let sites = workers.flat_map(|workers| BACKENDS.map(|it| up(it, "100mbit") + workers));
    sites.collect()
}

pub(crate) fn frame(number: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5];
    frame.resize(60, number);
    frame
}

/// Sends a frame repeatedly until one arrives, and returns how many were sent.
pub(crate) fn until_through(from: &mut PacketBackend, to: &mut PacketBackend, number: u8) -> u64 {
    let begun = Instant::now();
    for sent in 1.. {
        from.transmit(&mut VecDeque::from([frame(number)])).unwrap();
        thread::sleep(Duration::from_millis(10));
        let mut arrived = Vec::new();
        to.receive(&mut arrived, usize::MAX).unwrap();
        if arrived.contains(&frame(number)) {
            return sent;
        }
        assert!(begun.elapsed() < PATIENCE, "nothing passes");
    }
    unreachable!()
}

fn in_middle(line: &Line, program: &str, arguments: &[&str]) {
    let run = || Command::new(program).args(arguments).output();
    let output = line.middle.run(run).unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn second_daemon_on_the_same_interfaces_is_refused() {
    let Some(line) = Line::new("a second program", 1_500) else {
        return;
    };
    let [mut from, mut to] = [0, 1].map(|side| line.host(side));
    for (first, second) in [("packet", "packet"), ("packet", "xdp"), ("xdp", "packet")] {
        let (mut running, _folder) = line.start(first, &[]);
        until_through(&mut from, &mut to, 1);
        let (refused, _other) = line.start(second, &[]);
        let refused = refused.finish();
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        let sentence = format!(
            "the interface inside is in use by another Fairlane, process {}, and two \
             would send every frame twice: stop that one, or name another interface",
            running.id()
        );
        assert_eq!(refused.stderr, format!("{{\"error\":\"{sentence}\"}}\n"));
        until_through(&mut from, &mut to, 2);
        // A killed process leaves no lock.
        running.signal("KILL");
        running.finish();
    }
    let (mut running, _folder) = line.start("packet", &[]);
    until_through(&mut from, &mut to, 3);
    running.signal("TERM");
    running.finish().success();
}

/// With the backend that needs offloads off: xdp, if the driver does not accept long frames for it.
#[test]
fn receive_offloads_that_a_killed_program_left_off_are_on_after_the_next() {
    let Some(line) = Line::new("what a killed program left off", 3_700) else {
        return;
    };
    if Command::new("ethtool").arg("--version").output().is_err() {
        return skip_unsupported("receive offloads", "ethtool is not installed");
    }
    let joins = || {
        let ask = || Command::new("ethtool").args(["-k", "inside"]).output();
        let output = line.middle.run(ask).unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.contains("generic-receive-offload: on")
    };
    let [mut from, mut to] = [0, 1].map(|side| line.host(side));
    in_middle(&line, "ethtool", &["-K", "inside", "gro", "on"]);
    let (mut running, _folder) = line.start("xdp", &[]);
    until_through(&mut from, &mut to, 1);
    assert!(!joins());
    running.signal("KILL");
    running.finish();
    assert!(!joins());
    let (mut running, _folder) = line.start("xdp", &[]);
    until_through(&mut from, &mut to, 2);
    assert!(!joins());
    running.signal("KILL");
    running.finish();
    // Also if the next backend does not need them off.
    let (mut running, _folder) = line.start("packet", &[]);
    until_through(&mut from, &mut to, 3);
    assert!(joins());
    running.signal("TERM");
    running.finish().success();
    assert!(joins());
}

#[test]
fn deleted_interface_is_used_again_when_restored() {
    let usual = sites().into_iter().map(|site| (site, 1_500));
    // The driver does not accept such long frames for AF_XDP.
    let generic = sites()
        .into_iter()
        .map(|site| (site, 3_700))
        .skip(1)
        .step_by(2);
    for (site, mtu) in usual.chain(generic) {
        let Some(line) = Line::new("an interface that comes back", mtu) else {
            return;
        };
        let (mut running, _folder) = line.start_as(&site, &[]);
        let [mut from, mut to] = [0, 1].map(|side| line.host(side));
        until_through(&mut from, &mut to, 1);
        for side in [1, 0] {
            line.near(side).delete().unwrap();
            if side == 1 {
                // Frames from the remaining side are dropped and counted.
                for _ in 0..30 {
                    from.transmit(&mut VecDeque::from([frame(9)])).unwrap();
                    thread::sleep(Duration::from_millis(20));
                }
            }
            line.connect(side, mtu).unwrap();
            [from, to] = [0, 1].map(|side| line.host(side));
            until_through(&mut from, &mut to, 2);
            until_through(&mut to, &mut from, 3);
        }
        running.signal("TERM");
        let finished = running.finish();
        assert!(finished.status.success(), "{finished:?}");
        for name in NAMES {
            let gone = format!("{name} is missing: its egress is dropped until");
            assert_eq!(finished.stderr.matches(&gone).count(), 1, "{finished:?}");
            let back = format!("{name} is back\n");
            assert_eq!(finished.stderr.matches(&back).count(), 1, "{finished:?}");
        }
        let report: Value = serde_json::from_str(&finished.stdout).unwrap();
        let away = report["interfaces"][1]["absent_drops"].as_u64().unwrap();
        assert!(away > 0, "{report:#}");
        let up = &report["links"][0];
        let transmitted = up["transmitted"].as_u64().unwrap();
        assert_eq!(up["received_frames"], transmitted + away, "{report:#}");
        assert_eq!(report["interfaces"][1]["refused"], 0);
    }
}

#[test]
fn restored_interface_with_fewer_queues_has_fewer_workers() {
    let test = "an interface that comes back with fewer queues";
    if thread::available_parallelism().unwrap().get() < 2 {
        return skip_unsupported(test, "one core");
    }
    let Some(line) = Line::new(test, 1_500) else {
        return;
    };
    let config = up("xdp", "100mbit") + "[workers]\nreceive = 2\ntransmit = 2\n";
    let (mut running, _folder) = line.start_as(&config, &[]);
    let [mut from, mut to] = [0, 1].map(|side| line.host(side));
    until_through(&mut from, &mut to, 1);
    line.near(0).delete().unwrap();
    line.connect_with(0, 1_500, 1).unwrap();
    from = line.host(0);
    until_through(&mut from, &mut to, 2);
    until_through(&mut to, &mut from, 3);
    let threads = std::fs::read_dir(format!("/proc/{}/task", running.id())).unwrap();
    let names = threads.map(|thread| std::fs::read_to_string(thread.unwrap().path().join("comm")));
    let mut workers: Vec<_> = names.map(Result::unwrap).collect();
    workers.retain(|name| name.starts_with("rx") || name.starts_with("tx"));
    workers.sort_unstable();
    let [of_inside, first, second] = [" inside\n", "1 outside\n", "2 outside\n"];
    let expected = ["rx", "tx"].into_iter().flat_map(|kind| {
        let mut of_kind = [of_inside, first, second].map(|name| format!("{kind}{name}"));
        of_kind.sort_unstable();
        of_kind
    });
    assert_eq!(workers, expected.collect::<Vec<_>>());
    running.signal("TERM");
    let finished = running.finish();
    assert!(finished.status.success(), "{finished:?}");
    let report: Value = serde_json::from_str(&finished.stdout).unwrap();
    let expected = ["1 worker, 1", "2 queues, 2 workers, 2"];
    for (interface, expected) in report["interfaces"]
        .as_array()
        .unwrap()
        .iter()
        .zip(expected)
    {
        let backend = interface["backend"].as_str().unwrap();
        let start = format!("xdp, native, {expected} transmit worker");
        assert!(backend.starts_with(&start), "{report:#}");
    }
}

#[test]
fn exit_on_loss_ends_the_run_when_an_interface_is_lost() {
    for site in sites() {
        let Some(line) = Line::new("an interface that goes", 1_500) else {
            return;
        };
        let (running, _folder) = line.start_as(&site, &["--exit-on-loss"]);
        let [mut from, mut to] = [0, 1].map(|side| line.host(side));
        until_through(&mut from, &mut to, 1);
        line.near(1).delete().unwrap();
        let finished = running.finish();
        assert_eq!(finished.status.code(), Some(2), "{finished:?}");
        let words = ["outside", "removed"];
        assert!(
            words.iter().all(|word| finished.stderr.contains(word)),
            "{finished:?}"
        );
    }
}

#[test]
fn an_interface_that_is_down_and_renamed_is_the_same_all_the_time() {
    for backend in BACKENDS {
        let Some(line) = Line::new("an interface that is renamed", 1_500) else {
            return;
        };
        let (mut running, _folder) = line.start(backend, &["--exit-on-loss"]);
        let [mut from, mut to] = [0, 1].map(|side| line.host(side));
        until_through(&mut from, &mut to, 1);
        let outside = line.near(1);
        outside.down().unwrap();
        for name in ["other", "outside"].repeat(10) {
            from.transmit(&mut VecDeque::from([frame(2)])).unwrap();
            outside.rename(name).unwrap();
        }
        outside.up().unwrap();
        until_through(&mut from, &mut to, 3);
        running.signal("TERM");
        running.finish().success();
    }
}
