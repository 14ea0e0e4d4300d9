//! `fairlane run CONFIG`: frames pass and a signal ends it, whatever the state of its output and of the file that it
//! reads.

use std::fs::File;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Read, Write, pipe};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::program::{self, Pressure};
use crate::site::{PATIENCE, up, while_changes_take, wire};
use crate::site_service::send;
use fairlane_netlab::{Echo, Link, Wire};
use tempfile::TempPath;

/// Capacity of a pipe in bytes.
const PIPE: usize = 65_536;

/// The longest time from TERM to the end, on a machine without other load: a second, most of it spent waiting for an
/// output that is not read, and the test's own delay.
const SOON: Duration = Duration::from_millis(1_500);

fn config() -> String {
    up("packet", "50mbit")
}

fn make_pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// A daemon with outputs chosen by a test. Killed if it is dropped before its end.
struct Daemon {
    child: Child,
    file: TempPath,
    /// An interface that the site does not use.
    other: Link,
}

impl Daemon {
    fn start(wire: &Wire, options: &[&str], stdout: Stdio, stderr: Stdio) -> Daemon {
        Daemon::start_as(&config(), wire, options, stdout, stderr)
    }

    fn start_as(
        config: &str,
        wire: &Wire,
        options: &[&str],
        stdout: Stdio,
        stderr: Stdio,
    ) -> Daemon {
        let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
        let file = file.into_temp_path();
        std::fs::write(&file, config).unwrap();
        let daemon = Daemon::read(file, wire, options, stdout, stderr);
        daemon.is_up(wire);
        daemon
    }

    /// Starts it with a file of any kind, without waiting until frames pass.
    fn read(file: TempPath, wire: &Wire, options: &[&str], stdout: Stdio, stderr: Stdio) -> Daemon {
        let spawn = || {
            program::command()
                .arg("run")
                .arg(&file)
                .args(options)
                .stdin(Stdio::null())
                .stdout(stdout)
                .stderr(stderr)
                .spawn()
                .unwrap()
        };
        let child = wire.middle().run(spawn);
        let other = wire.receiver().link().clone();
        Daemon { child, file, other }
    }

    #[track_caller]
    fn is_up(&self, wire: &Wire) {
        assert!(wire.is_through(PATIENCE).unwrap(), "nothing passes");
    }

    fn signal(&self, name: &str) {
        program::signal(&self.child, name);
    }

    /// Stops it by TERM, checks that it ends soon, and returns its status.
    #[track_caller]
    fn term(self) -> ExitStatus {
        self.term_within(SOON)
    }

    #[track_caller]
    fn term_within(mut self, soon: Duration) -> ExitStatus {
        let pressure = Pressure::begin();
        let other = self.other.clone();
        let ((status, took), changes) = while_changes_take(&other, || {
            self.signal("TERM");
            let told = Instant::now();
            loop {
                if let Some(status) = self.child.try_wait().unwrap() {
                    break (status, told.elapsed());
                }
                assert!(told.elapsed() < 2 * PATIENCE, "TERM has no effect");
                thread::sleep(Duration::from_millis(5));
            }
        });
        let limit = pressure.soon(soon) + changes;
        assert!(took < limit, "TERM takes {took:?}, {limit:?} allowed");
        status
    }

    fn file(&self) -> &Path {
        &self.file
    }

    /// Waits for a line of its output while frames pass, for at least this time, and returns the line.
    #[track_caller]
    fn passes_until_said(
        &self,
        echo: &mut Echo,
        span: Duration,
        lines: &Receiver<String>,
    ) -> String {
        self.passes(echo, span);
        loop {
            match lines.try_recv() {
                Ok(line) => return line,
                Err(TryRecvError::Empty) => self.passes(echo, Duration::from_millis(20)),
                Err(TryRecvError::Disconnected) => panic!("the daemon says no further line"),
            }
        }
    }

    /// Checks that frames pass for this time. Lost frames are the subject of other tests.
    #[track_caller]
    fn passes(&self, echo: &mut Echo, span: Duration) {
        const TRIES: u32 = 4;
        let began = Instant::now();
        let mut unanswered = 0;
        loop {
            match echo.round_trip(60, 60, PATIENCE / TRIES) {
                Some(_) => unanswered = 0,
                None => unanswered += 1,
            }
            let state = || program::state(self.child.id());
            assert!(unanswered < TRIES, "nothing passes any more: {}", state());
            if unanswered == 0 && began.elapsed() >= span {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Both fail if it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a full pipe.
fn full() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().unwrap();
    writer.write_all(&[b'.'; PIPE]).unwrap();
    (reader, writer)
}

/// Returns the lines as they are written.
fn lines_of(said: PipeReader) -> Receiver<String> {
    let (sender, lines) = channel();
    thread::spawn(move || {
        let mut said = BufReader::new(said).lines().map_while(Result::ok);
        said.try_for_each(|line| sender.send(line))
    });
    lines
}

#[test]
fn what_matters_less_than_asked_for_is_not_logged() {
    let Some(wire) = wire("a log of warnings", 1) else {
        return;
    };
    for (level, is_told) in [("warn", false), ("info", true)] {
        let (said, stderr) = pipe().unwrap();
        let options = ["--json", "--log", level];
        let daemon = Daemon::start(&wire, &options, Stdio::null(), stderr.into());
        let lines = lines_of(said);
        let next = || lines.recv_timeout(PATIENCE).expect("a line is said");
        daemon.signal("HUP");
        match is_told {
            true => assert!(next().contains("reloaded ")),
            // The reload may or may not be done by then; the next line is that of the error.
            false => thread::sleep(Duration::from_millis(500)),
        }
        std::fs::write(daemon.file(), "[[link]]").unwrap();
        daemon.signal("HUP");
        let refused = next();
        assert!(refused.contains("running configuration kept"), "{refused}");
        assert!(daemon.term().success());
        assert_eq!(lines.iter().next(), None, "nothing else");
    }
}

#[test]
fn full_pipe_delays_only_the_printing_thread() {
    let Some(wire) = wire("a full pipe", 1) else {
        return;
    };
    let mut echo = Echo::between(wire.sender(0), wire.receiver(), 9).unwrap();
    for options in [&["--every", "0.1"][..], &["--json"], &["--quiet"]] {
        let (_unread, stdout) = full();
        let (_unheard, stderr) = full();
        let daemon = Daemon::start(&wire, options, stdout.into(), stderr.into());
        for _ in 0..3 {
            daemon.signal("HUP");
            daemon.passes(&mut echo, Duration::from_millis(300));
        }
        assert!(daemon.term().success(), "{options:?}");
    }
}

#[test]
fn what_is_queued_and_a_full_pipe_hold_up_the_end_for_a_second_together() {
    let Some(wire) = wire("a full pipe and a full queue", 1) else {
        return;
    };
    let (_unread, stdout) = full();
    let (_unheard, stderr) = full();
    let slow = up("packet", "100kbit");
    let daemon = Daemon::start_as(&slow, &wire, &[], stdout.into(), stderr.into());
    // A backlog of eight seconds.
    send(&wire, 100, 5_008);
    let told = Instant::now();
    assert!(daemon.term_within(Duration::from_millis(1_250)).success());
    let took = told.elapsed();
    assert!(
        took >= Duration::from_millis(500),
        "{took:?}: it sends what is queued"
    );
}

#[test]
fn a_pipe_that_fills_while_frames_pass_stops_neither_them_nor_the_end() {
    let Some(wire) = wire("a pipe that fills", 1) else {
        return;
    };
    let mut echo = Echo::between(wire.sender(0), wire.receiver(), 9).unwrap();
    let (mut unread, stdout) = pipe().unwrap();
    let daemon = Daemon::start(&wire, &["--every", "0.001"], stdout.into(), Stdio::null());
    daemon.passes(&mut echo, Duration::from_secs(3));
    assert!(daemon.term().success());
    // The content of the pipe, and nothing after it.
    let mut text = String::new();
    unread.read_to_string(&mut text).unwrap();
    assert!(text.len() <= PIPE && text.contains("p99"), "{}", text.len());
}

#[test]
fn closed_reader_does_not_end_the_run() {
    let Some(wire) = wire("a reader that went away", 1) else {
        return;
    };
    let mut echo = Echo::between(wire.sender(0), wire.receiver(), 9).unwrap();
    let (mut reader, stdout) = pipe().unwrap();
    let (unheard, stderr) = pipe().unwrap();
    let every = ["--every", "0.1"];
    let daemon = Daemon::start(&wire, &every, stdout.into(), stderr.into());
    // As `head -1` does.
    reader.read_exact(&mut [0; 20]).unwrap();
    drop((reader, unheard));
    daemon.signal("HUP");
    daemon.passes(&mut echo, Duration::from_secs(3));
    assert!(daemon.term().success());
}

#[test]
fn what_cannot_be_printed_is_said_at_the_end_and_ends_nothing_before() {
    let Some(wire) = wire("what cannot be printed", 1) else {
        return;
    };
    let mut echo = Echo::between(wire.sender(0), wire.receiver(), 9).unwrap();
    let no_room = || File::options().write(true).open("/dev/full").unwrap();
    let every = ["--every", "0.1"];
    let daemon = Daemon::start(&wire, &every, no_room().into(), Stdio::null());
    daemon.passes(&mut echo, Duration::from_secs(1));
    assert_eq!(daemon.term().code(), Some(2));
    // A full standard error does not block it either.
    let (_unheard, stderr) = full();
    let daemon = Daemon::start(&wire, &every, no_room().into(), stderr.into());
    daemon.passes(&mut echo, Duration::from_secs(1));
    assert_eq!(daemon.term().code(), Some(2));
}

#[test]
fn unreadable_file_on_reload_changes_nothing() {
    let Some(wire) = wire("a file without an end", 1) else {
        return;
    };
    let mut echo = Echo::between(wire.sender(0), wire.receiver(), 9).unwrap();
    let (said, stderr) = pipe().unwrap();
    let daemon = Daemon::start(&wire, &["--json"], Stdio::null(), stderr.into());
    let lines = lines_of(said);
    let file = daemon.file().to_owned();
    let config = std::fs::read_to_string(&file).unwrap();
    let again = |make: &dyn Fn()| {
        std::fs::remove_file(&file).unwrap();
        make();
        daemon.signal("HUP");
    };
    // A pipe without a writer.
    again(&|| make_pipe(&file));
    let fifo = daemon.passes_until_said(&mut echo, Duration::from_millis(500), &lines);
    // A comment of 500 MB.
    again(&|| {
        let mut long = File::create(&file).unwrap();
        long.write_all(b"# ").unwrap();
        long.set_len(500 << 20).unwrap();
    });
    let long = daemon.passes_until_said(&mut echo, Duration::from_secs(1), &lines);
    // The valid file again.
    again(&|| std::fs::write(&file, &config).unwrap());
    let whole = daemon.passes_until_said(&mut echo, Duration::from_millis(500), &lines);
    assert!(daemon.term().success());
    assert_eq!(lines.iter().next(), None, "nothing else");
    assert!(
        fifo.contains("running configuration kept") && fifo.contains("regular"),
        "{fifo}"
    );
    assert!(
        long.contains("running configuration kept") && long.contains("16 MiB"),
        "{long}"
    );
    assert!(whole.contains("reloaded "), "{whole}");
    // Each line has a timestamp.
    for line in [fifo, long, whole] {
        let time = line.strip_prefix("fairlane: ").unwrap();
        let time = time.split(' ').next().unwrap();
        assert!(time.starts_with("20") && time.ends_with('Z'), "{line}");
    }
}

#[test]
fn a_signal_while_the_file_is_read_at_the_start_is_one_to_read_it_again_or_ends_it_at_once() {
    let Some(wire) = wire("a signal at the start", 1) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let start = |name: &str| {
        let file = folder.path().join(name);
        make_pipe(&file);
        let file = TempPath::try_from_path(file).unwrap();
        let (said, stderr) = pipe().unwrap();
        let daemon = Daemon::read(file, &wire, &["--json"], Stdio::null(), stderr.into());
        // The message says that it waits for input.
        let mut said = BufReader::new(said);
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert!(line.contains(name), "{line}");
        (daemon, said)
    };
    let (daemon, mut said) = start("read-again");
    daemon.signal("HUP");
    std::fs::write(daemon.file(), config()).unwrap();
    daemon.is_up(&wire);
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.contains("running configuration kept"), "{line}");
    assert!(daemon.term().success());
    let (daemon, _said) = start("given-up");
    assert_eq!(daemon.term().signal(), Some(15));
}
