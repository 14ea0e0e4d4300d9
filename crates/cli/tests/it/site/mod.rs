//! A site between two hosts: a configuration, the program that runs it, and its report.

#![allow(dead_code, reason = "no test file needs all of it")]

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use fairlane_netlab::{Host, Link, Wire, or_skip};
use serde_json::Value;
use tempfile::TempDir;

use crate::program::{
    Finished, Running, longest_beside, start, start_leading, start_led_from_outside, start_unheard,
};

/// The least part of a link that a connection fills: its two ends, and the daemon, share the processors with other
/// programs.
pub(crate) const FILLED: f64 = 0.3;

/// The limit of every wait. On a busy machine, a kernel that schedules by session may delay its own threads for 20
/// seconds, and with them any process that opens or closes an interface.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) const BACKENDS: [&str; 2] = ["packet", "xdp"];

/// Returns a socket of a host, at a port or, for 0, at any.
pub(crate) fn bind(host: &Host, port: u16) -> UdpSocket {
    let begun = Instant::now();
    loop {
        match host
            .namespace()
            .run(|| UdpSocket::bind((host.address(), port)))
        {
            // A socket closed just now may be held by a process that another test is starting, until that executes its
            // program.
            Err(error) if error.kind() == ErrorKind::AddrInUse && begun.elapsed() < PATIENCE => {
                thread::sleep(Duration::from_millis(1));
            }
            bound => return bound.unwrap(),
        }
    }
}

/// Returns the configuration of the interfaces in a wire's middle.
pub(crate) fn interfaces(backend: &str) -> String {
    format!("[interfaces]\ninside = \"inside\"\noutside = \"outside\"\nbackend = \"{backend}\"\n")
}

/// Returns the same, and the start of a link from inside to outside; its keys and classes follow.
pub(crate) fn up(backend: &str, rate: &str) -> String {
    interfaces(backend) + &format!("[[link]]\nname = \"up\"\nto = \"outside\"\nrate = \"{rate}\"\n")
}

/// Returns the result of `work`, and an estimate of the time that changes to interfaces take in the meantime, for as
/// many changes as a process makes that opens or closes some: several times the longest, beyond 10 ms. All changes wait
/// for one lock, which is held for seconds on a busy machine while a namespace is removed.
pub(crate) fn while_changes_take<T>(link: &Link, work: impl FnOnce() -> T) -> (T, Duration) {
    const CHANGES: u32 = 8;
    let change = || {
        let begun = Instant::now();
        link.up().unwrap();
        let took = begun.elapsed();
        thread::sleep(Duration::from_millis(20));
        took
    };
    let (made, longest) = longest_beside(change, work);
    (
        made,
        CHANGES * longest.saturating_sub(Duration::from_millis(10)),
    )
}

/// Returns hosts with a middle between them, or `None`, with the reason printed, if that is not possible.
pub(crate) fn wire(test: &str, senders: u8) -> Option<Wire> {
    or_skip(test, Wire::new(senders))
}

/// Runs a site that shapes the traffic of the host of `near` through the tap device `fair0`; `links` of the file
/// follow. Waits until the device exists: it may not be up yet.
#[track_caller]
pub(crate) fn start_on_tap(near: &Link, links: &str) -> (Running, TempDir, Link) {
    let interfaces = format!(
        "[interfaces]\ntap = \"fair0\"\noutside = \"{}\"\n",
        near.name()
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("site.toml");
    std::fs::write(&file, interfaces + links).unwrap();
    let host = near.namespace();
    let running = host.run(|| start(&["run", file.to_str().unwrap(), "--json"]));
    let begun = Instant::now();
    loop {
        match Link::find(host, "fair0") {
            Ok(tap) => return (running, folder, tap),
            Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// A program that runs a site in the middle of a wire.
pub(crate) struct Site {
    running: Running,
    folder: TempDir,
    /// The function and arguments that started it.
    start: fn(&[&str]) -> Running,
    arguments: Vec<String>,
}

impl Site {
    /// Runs `config` until it is stopped, and waits until frames pass.
    #[track_caller]
    pub(crate) fn start(wire: &Wire, config: &str) -> Site {
        Site::start_unseen(wire, config).until_through(wire)
    }

    /// Starts it with more arguments.
    #[track_caller]
    pub(crate) fn start_with(wire: &Wire, config: &str, more: &[&str]) -> Site {
        Site::begin(wire, config, more, start).until_through(wire)
    }

    /// Starts it with a final report in words.
    #[track_caller]
    pub(crate) fn start_in_words(wire: &Wire, config: &str) -> Site {
        Site::run(wire, config, &["--quiet"], start).until_through(wire)
    }

    /// Starts it with a closed standard error.
    #[track_caller]
    pub(crate) fn start_unheard(wire: &Wire, config: &str) -> Site {
        Site::begin(wire, config, &[], start_unheard).until_through(wire)
    }

    /// Starts it with more arguments, in a session of its own.
    #[track_caller]
    pub(crate) fn start_leading(wire: &Wire, config: &str, more: &[&str]) -> Site {
        Site::begin(wire, config, more, start_leading).until_through(wire)
    }

    /// Starts it in a process namespace of its own. It cannot be stopped by a signal.
    #[track_caller]
    pub(crate) fn start_led_from_outside(wire: &Wire, config: &str) -> Site {
        Site::begin(wire, config, &[], start_led_from_outside).until_through(wire)
    }

    /// Starts it as [`start`](Self::start) does, without waiting.
    pub(crate) fn start_unseen(wire: &Wire, config: &str) -> Site {
        Site::begin(wire, config, &[], start)
    }

    #[track_caller]
    fn until_through(mut self, wire: &Wire) -> Site {
        const LOOK: Duration = Duration::from_secs(2);
        let begun = Instant::now();
        while !wire.is_through(LOOK).unwrap() {
            let has_time = begun.elapsed() < PATIENCE;
            // The kernel may close the sockets of a former process some time after its end.
            if has_time && self.running.has_ended() && self.running.said().contains("is busy:") {
                let arguments: Vec<_> = self.arguments.iter().map(String::as_str).collect();
                self.running = wire.middle().run(|| (self.start)(&arguments));
            } else {
                let goes_on = has_time && !self.running.has_ended();
                assert!(goes_on, "nothing passes: {:?}", self.running.finish());
            }
        }
        self
    }

    fn begin(wire: &Wire, config: &str, more: &[&str], start: fn(&[&str]) -> Running) -> Site {
        Site::run(wire, config, &[&["--json"], more].concat(), start)
    }

    fn run(wire: &Wire, config: &str, more: &[&str], start: fn(&[&str]) -> Running) -> Site {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("site.toml");
        std::fs::write(&file, config).unwrap();
        let file = file.to_str().unwrap();
        // Unless a test sets it, the backlog is not sent at the end.
        let drain: &[&str] = match more.contains(&"--drain") {
            true => &[],
            false => &["--drain", "0"],
        };
        let arguments = [&["run", file], drain, more].concat();
        let running = wire.middle().run(|| start(&arguments));
        let arguments = arguments.into_iter().map(str::to_owned).collect();
        Site {
            running,
            folder,
            start,
            arguments,
        }
    }

    /// Starts a successor that takes over, and waits for the end of the present process.
    #[track_caller]
    pub(crate) fn hand_over(&mut self, wire: &Wire) -> Finished {
        let next = self.start_next(wire);
        std::mem::replace(&mut self.running, next).finish()
    }

    /// Starts a process that takes over.
    pub(crate) fn start_next(&self, wire: &Wire) -> Running {
        let file = self.file();
        let arguments = [
            "run",
            file.to_str().unwrap(),
            "--json",
            "--drain",
            "0",
            "--take-over",
        ];
        wire.middle().run(|| start(&arguments))
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("site.toml")
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Replaces the site's file atomically: a concurrent reader gets one of both whole.
    pub(crate) fn write(&self, config: &str) {
        let next = self.folder.path().join("next.toml");
        std::fs::write(&next, config).unwrap();
        std::fs::rename(next, self.file()).unwrap();
    }

    /// Waits until its standard error contains these words.
    #[track_caller]
    pub(crate) fn until_said(&self, words: &str) {
        self.running.until_said(words);
    }

    /// Returns its memory use in bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.memory_by("VmRSS:")
    }

    /// Returns its peak memory use in bytes.
    pub(crate) fn peak_memory(&self) -> u64 {
        self.memory_by("VmHWM:")
    }

    fn memory_by(&self, field: &str) -> u64 {
        let file = format!("/proc/{}/status", self.running.id());
        let text = std::fs::read_to_string(file).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(field));
        let kilobytes = line.unwrap().trim().trim_end_matches(" kB");
        kilobytes.parse::<u64>().unwrap() << 10
    }

    /// Returns the processor time of all its threads.
    pub(crate) fn processor_time(&self) -> Duration {
        let file = format!("/proc/{}/stat", self.running.id());
        let text = std::fs::read_to_string(file).unwrap();
        // After the name, which may have spaces: user and system time in hundredths of a second.
        let fields = text.rsplit_once(')').unwrap().1.split_whitespace();
        let ticks: u64 = fields
            .skip(11)
            .take(2)
            .map(|n| n.parse::<u64>().unwrap())
            .sum();
        Duration::from_millis(ticks * 10)
    }

    /// Returns its process ID.
    pub(crate) fn id(&self) -> u32 {
        self.running.id()
    }

    pub(crate) fn signal(&mut self, name: &str) {
        self.running.signal(name);
    }

    /// Stops all its threads until CONT.
    pub(crate) fn pause(&mut self) {
        self.running.pause();
    }

    /// Stops it and returns its report.
    #[track_caller]
    pub(crate) fn stop(self) -> Value {
        let finished = self.end();
        serde_json::from_str(&finished.success()).unwrap()
    }

    /// Stops it and returns its report, whatever it has logged.
    #[track_caller]
    pub(crate) fn reported(self) -> Value {
        let finished = self.end();
        assert!(finished.status.success(), "{finished:?}");
        serde_json::from_str(&finished.stdout).unwrap()
    }

    /// Waits until it ends by itself.
    pub(crate) fn finish(self) -> Finished {
        self.running.finish()
    }

    pub(crate) fn end(mut self) -> Finished {
        self.running.signal("INT");
        self.running.finish()
    }
}

/// Returns the link of this name in a report.
#[track_caller]
pub(crate) fn link<'a>(report: &'a Value, name: &str) -> &'a Value {
    named(&report["links"], name)
}

/// Returns the sum over all classes without a parent.
pub(crate) fn total(link: &Value, count: &str) -> Value {
    let classes = link["classes"].as_array().unwrap().iter();
    let top = classes.filter(|class| class["parent"].is_null());
    top.map(|class| class[count].as_u64().unwrap())
        .sum::<u64>()
        .into()
}

/// Returns the class of this name in a link's report.
#[track_caller]
pub(crate) fn class<'a>(report: &'a Value, link_name: &str, name: &str) -> &'a Value {
    named(&link(report, link_name)["classes"], name)
}

#[track_caller]
fn named<'a>(all: &'a Value, name: &str) -> &'a Value {
    let mut all = all.as_array().unwrap().iter();
    all.find(|one| one["name"] == name)
        .unwrap_or_else(|| panic!("nothing is called {name}"))
}
