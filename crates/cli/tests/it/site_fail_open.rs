//! `fairlane run CONFIG --fail-open`: forwarding when the daemon dies, or hangs.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use fairlane_netlab::{Wire, or_skip};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::Value;

use crate::program::{Pressure, fairlane, start};
use crate::site::{BACKENDS, PATIENCE, Site, link, up, while_changes_take, wire};
use crate::site_reload::numbered;

/// The worker process, killed at the end in any case.
struct Worker {
    number: i32,
    process: OwnedFd,
}

/// Returns the process IDs of a site's children.
fn children(site: &Site) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{}/task", site.id())).unwrap();
    let children = tasks.filter_map(|task| {
        let children = task.ok()?.path().join("children");
        fs::read_to_string(children).ok()
    });
    let children = children.collect::<String>();
    let numbers = children.split_whitespace();
    numbers.map(|number| number.parse().unwrap()).collect()
}

impl Worker {
    /// Returns the present worker of a site.
    fn of(site: &Site) -> Worker {
        Worker::other_than(None, site)
    }

    /// Waits for another worker than this.
    fn next(&self, site: &Site) -> Worker {
        Worker::other_than(Some(self.number), site)
    }

    fn other_than(former: Option<i32>, site: &Site) -> Worker {
        let begun = Instant::now();
        loop {
            let mut numbers = children(site).into_iter();
            if let Some(number) = numbers.find(|&number| Some(number) != former)
                && let Some(process) = Pid::from_raw(number)
                && let Ok(process) = pidfd_open(process, PidfdFlags::empty())
                // The process ID has not been reused in between.
                && children(site).contains(&number)
            {
                return Worker { number, process };
            }
            assert!(begun.elapsed() < PATIENCE, "nobody shapes");
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn signal(&self, signal: Signal) {
        // A worker that has ended needs no signal.
        let _ = pidfd_send_signal(&self.process, signal);
    }

    fn kill(&self) {
        self.signal(Signal::KILL);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the largest number of consecutive missing datagrams between two arrivals.
fn longest_gap(numbers: &[u32]) -> u32 {
    let gaps = numbers.windows(2).map(|pair| pair[1] - pair[0] - 1);
    gaps.max().unwrap_or(0)
}

/// Checks that packets numbered and sent once a millisecond arrived in order, without a gap of more than `most_gap`
/// milliseconds, and that at most 2% plus `most_lost` are missing.
#[track_caller]
fn assert_passed(backend: &str, (numbers, sent): (&[u32], u32), most_gap: f64, most_lost: f64) {
    let odd: Vec<_> = (numbers.windows(2).filter(|pair| pair[0] >= pair[1])).collect();
    assert!(
        odd.is_empty(),
        "{backend}: duplicates, or packets out of order: {odd:?}"
    );
    let gap = longest_gap(numbers);
    let missing = f64::from(sent) - numbers.len() as f64;
    let found =
        format!("{backend}: a gap of {gap} ms, {most_gap:.0} allowed; {missing} of {sent} missing");
    eprintln!("{found}");
    assert!(f64::from(gap) <= most_gap, "{found}");
    assert!(missing <= 0.02 * f64::from(sent) + most_lost, "{found}");
}

#[test]
fn fail_open_forwards_frames_and_restarts_a_killed_daemon() {
    let Some(wire) = wire("a daemon that is killed", 1) else {
        return;
    };
    for backend in BACKENDS {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("ctl.sock");
        let control = format!("[control]\nsocket = \"{}\"\n", socket.display());
        let config = up(backend, "100mbit") + &control;
        let site = Site::start_with(&wire, &config, &["--fail-open"]);
        let pressure = Pressure::begin();
        let hosts = (wire.sender(0), wire.receiver());
        let kill_thrice = || {
            let mut workers = Vec::new();
            for _ in 0..3 {
                thread::sleep(Duration::from_millis(500));
                // A worker started while the kernel was still closing its predecessor's sockets has exited by itself;
                // this is its successor.
                let worker = Worker::of(&site);
                worker.kill();
                workers.push(worker.next(&site));
                thread::sleep(Duration::from_millis(1_500));
            }
            workers
        };
        let send = || numbered(hosts, 1_001, kill_thrice);
        let ((workers, numbers, sent), changes) = while_changes_take(hosts.1.link(), send);
        let kernel = changes + pressure.stalled();
        let most = pressure.most(50.0, 2_000.0) + kernel.as_secs_f64() * 1e3;
        assert_passed(backend, (&numbers, sent), most, 3.0 * most);
        // The last worker shapes, too, once it is ready.
        until_it_shapes(&wire, &socket, backend);
        let finished = site.end();
        let report: Value = serde_json::from_str(&finished.stdout).unwrap();
        let told = finished.stderr.matches("was ended by signal 9").count();
        assert_eq!(told, 3, "{}", finished.stderr);
        assert!(
            link(&report, "up")["transmitted"].as_u64().unwrap() > 0,
            "{report:#}"
        );
        drop(workers);
    }
}

/// Waits until frames leave by a link of the site that answers at this socket.
fn until_it_shapes(wire: &Wire, socket: &Path, backend: &str) {
    let begun = Instant::now();
    let shapes = || {
        let socket = socket.to_str().unwrap();
        let shown = fairlane(&["ctl", "--socket", socket, "show", "--json"]).stdout;
        let state = serde_json::from_str(&shown).unwrap_or(Value::Null);
        state["links"][0]["transmitted"].as_u64() > Some(0)
    };
    while !shapes() {
        assert!(begun.elapsed() < PATIENCE, "{backend}: nothing is shaped");
        wire.is_through(PATIENCE).unwrap();
    }
}

/// The time without a round after which a daemon is killed, plus one check interval.
const HANG_MS: f64 = 1_200.0;

#[test]
fn watchdog_kills_a_stalled_daemon_and_shaping_resumes() {
    let test = "a daemon that is stopped";
    let Some(wire) = or_skip(test, Wire::with_queues(1, 1_500, 2)) else {
        return;
    };
    let workers = "[workers]\ntransmit = 1\n";
    for (backend, workers) in [("packet", ""), ("packet", workers), ("xdp", "")] {
        it_is_stopped(&wire, backend, workers);
    }
}

fn it_is_stopped(wire: &Wire, backend: &str, workers: &str) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("ctl.sock");
    let control = format!("{workers}[control]\nsocket = \"{}\"\n", socket.display());
    let config = up(backend, "100mbit") + &control;
    let site = Site::start_with(wire, &config, &["--fail-open"]);
    let pressure = Pressure::begin();
    let hosts = (wire.sender(0), wire.receiver());
    let stop = || {
        let worker = Worker::of(&site);
        // Too short for a hang: the same process continues, and forwards all frames in its rings.
        thread::sleep(Duration::from_millis(300));
        worker.signal(Signal::STOP);
        thread::sleep(Duration::from_millis(300));
        worker.signal(Signal::CONT);
        thread::sleep(Duration::from_millis(700));
        assert_eq!(children(&site), [worker.number], "{backend}");
        worker.signal(Signal::STOP);
        let next = worker.next(&site);
        // The former worker has been replaced already.
        worker.signal(Signal::CONT);
        thread::sleep(Duration::from_millis(1_500));
        next
    };
    let send = || numbered(hosts, 1_001, stop);
    let ((next, numbers, sent), changes) = while_changes_take(hosts.1.link(), send);
    let kernel = changes + pressure.stalled();
    let most = HANG_MS + pressure.most(100.0, 2_000.0) + kernel.as_secs_f64() * 1e3;
    assert_passed(
        backend,
        (&numbers, sent),
        most,
        most + 2.0 * (most - HANG_MS),
    );
    until_it_shapes(wire, &socket, backend);
    assert_eq!(children(&site), [next.number], "{backend}");
    let finished = site.end();
    let hangs = finished.stderr.matches("daemon hung, killed stalled_s=1");
    assert_eq!(hangs.count(), 1, "{}", finished.stderr);
    assert!(
        finished
            .stderr
            .contains("was ended by signal 9: frames pass unshaped"),
        "{}",
        finished.stderr
    );
    let report: Value = serde_json::from_str(&finished.stdout).unwrap();
    assert!(link(&report, "up")["transmitted"].as_u64() > Some(0));
}

#[test]
fn watchdog_ends_a_stopped_daemon_on_sigterm() {
    let Some(wire) = wire("a stopped daemon that is told to end", 1) else {
        return;
    };
    let site = Site::start_with(&wire, &up("packet", "100mbit"), &["--fail-open"]);
    assert!(wire.is_through(PATIENCE).unwrap());
    let worker = Worker::of(&site);
    worker.signal(Signal::STOP);
    let finished = site.end();
    assert!(finished.status.success(), "{finished:?}");
    assert!(
        finished.stderr.contains("daemon hung, killed"),
        "{finished:?}"
    );
}

#[test]
fn fail_open_forwards_unshaped_while_the_daemon_cannot_start() {
    let test = "a daemon that does not come back";
    let Some(wire) = or_skip(test, Wire::with_queues(1, 1_500, 2)) else {
        return;
    };
    let several = thread::available_parallelism().unwrap().get() > 1;
    let xdp = if several { "receive = 2\n" } else { "" };
    for (backend, workers) in [("packet", "transmit = 1\narbiters = 2\n"), ("xdp", xdp)] {
        it_passes_unshaped(&wire, backend, workers);
    }
}

fn it_passes_unshaped(wire: &Wire, backend: &str, workers: &str) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("ctl.sock");
    let socket = socket.to_str().unwrap();
    // Its workers end with it.
    let more = format!("[workers]\n{workers}[control]\nsocket = \"{socket}\"\n");
    let config = up(backend, "100mbit") + &more;
    let site = Site::start_with(wire, &config, &["--fail-open"]);
    let worker = Worker::of(&site);
    fs::write(site.file(), "no configuration").unwrap();
    worker.kill();
    // Long enough for several failures.
    let pressure = Pressure::begin();
    let begun = Instant::now();
    while begun.elapsed() < pressure.soon(Duration::from_secs(2)) {
        assert!(wire.is_through(PATIENCE).unwrap(), "nothing passes");
        thread::sleep(Duration::from_millis(100));
    }
    fs::write(site.file(), config).unwrap();
    let begun = Instant::now();
    while !fairlane(&["ctl", "--socket", socket, "show"])
        .status
        .success()
    {
        assert!(begun.elapsed() < 2 * PATIENCE, "nobody shapes again");
        thread::sleep(Duration::from_millis(100));
    }
    let last = Worker::of(&site);
    let finished = site.end();
    drop(last);
    let report: Value = serde_json::from_str(&finished.stdout).unwrap();
    assert!(report["links"].is_array(), "{report:#}");
    assert!(
        finished
            .stderr
            .contains("was ended by signal 9: frames pass unshaped"),
        "{finished:?}"
    );
    assert!(finished.stderr.contains("site.toml:1:"), "{finished:?}");
}

#[test]
fn what_cannot_fail_open_is_said_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("site.toml");
    let file = file.to_str().unwrap();
    for (config, sentence) in [
        (
            "[interfaces]\ntap = \"fair0\"\noutside = \"lo\"\n[[link]]\nname = \"up\"\nto = \"outside\"\n\
             rate = \"1mbit\"\n",
            "a tap device goes with it",
        ),
        (
            "[[link]]\nname = \"up\"\nrate = \"1mbit\"\n",
            "name inside and outside in [interfaces]",
        ),
    ] {
        fs::write(file, config).unwrap();
        let refused = fairlane(&["run", file, "--fail-open"]);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert_eq!(refused.stderr.lines().count(), 1, "{refused:?}");
        assert!(refused.stderr.contains(sentence), "{refused:?}");
    }
}

#[test]
fn fail_open_accepts_a_file_after_two_hyphens() {
    let Some(wire) = wire("a file behind two hyphens", 1) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("site.toml");
    fs::write(&file, up("packet", "50mbit")).unwrap();
    let arguments = ["run", "--fail-open", "--json", "--", file.to_str().unwrap()];
    let mut running = wire.middle().run(|| start(&arguments));
    assert!(wire.is_through(PATIENCE).unwrap());
    running.signal("TERM");
    let report: Value = serde_json::from_str(&running.finish().success()).unwrap();
    assert!(link(&report, "up")["transmitted"].as_u64() > Some(0));
}
