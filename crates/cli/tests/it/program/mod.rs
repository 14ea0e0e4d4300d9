//! The program as a user starts it: arguments in; status, output and time taken out.

#![allow(dead_code, reason = "no test file needs all of it")]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The program of the crate whose tests these are: the daily one or the laboratory's.
pub(crate) const PROGRAM: &str = match (
    option_env!("CARGO_BIN_EXE_fairlane"),
    option_env!("CARGO_BIN_EXE_fairlane-lab"),
) {
    (Some(program), _) | (_, Some(program)) => program,
    _ => panic!("no program is built for these tests"),
};

/// A program that still runs after this long hangs, however little of a processor it gets.
const HANGS: Duration = Duration::from_secs(300);

/// How much of a time somebody on this machine waited for a processor: what a figure of the real
/// world may be off by. Limits follow it, so that they are as strict as the machine allows.
pub(crate) struct Pressure {
    began: Instant,
    waited: Option<u64>,
}

impl Pressure {
    /// From now on.
    pub(crate) fn begin() -> Pressure {
        Pressure {
            began: Instant::now(),
            waited: waited_us(),
        }
    }

    /// The part of the time, 0 to 1; 1 where the kernel does not tell.
    pub(crate) fn part(&self) -> f64 {
        let span = self.began.elapsed().as_micros() as f64;
        match (self.waited, waited_us()) {
            (Some(before), Some(now)) => ((now - before) as f64 / span).min(1.0),
            _ => 1.0,
        }
    }

    /// `strict` on a quiet machine, less by the part of the time that others had, down to `floor`.
    /// It counts three times: sender, daemon and receiver wait one after the other.
    pub(crate) fn least(&self, strict: f64, floor: f64) -> f64 {
        (strict - 3.0 * self.part()).max(floor)
    }

    /// `strict` on a quiet machine, up to `more` beyond it on one that is never quiet.
    pub(crate) fn most(&self, strict: f64, more: f64) -> f64 {
        strict + self.part() * more
    }

    /// `strict` on a quiet machine, up to four seconds more on one that is never quiet, which may
    /// have others to run first.
    pub(crate) fn soon(&self, strict: Duration) -> Duration {
        strict + Duration::from_secs(4).mul_f64(self.part())
    }
}

/// Microseconds in which somebody waited for a processor, since the machine started.
fn waited_us() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/pressure/cpu").ok()?;
    let some = text.lines().find(|line| line.starts_with("some "))?;
    some.rsplit_once("total=")?.1.parse().ok()
}

/// What became of a program.
#[derive(Debug)]
pub(crate) struct Finished {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
    /// From its start, or from the last signal.
    pub took: Duration,
}

impl Finished {
    /// All it printed, where it succeeded and had nothing to complain of.
    #[track_caller]
    pub(crate) fn success(self) -> String {
        assert!(self.status.success() && self.stderr.is_empty(), "{self:?}");
        self.stdout
    }
}

/// A program that runs. It is killed when it is dropped before it ended.
pub(crate) struct Running {
    child: Child,
    since: Instant,
    lines: Receiver<String>,
    stderr: Option<JoinHandle<String>>,
    stdout: String,
}

/// Starts the program.
pub(crate) fn start(arguments: &[&str]) -> Running {
    start_with(arguments, |mut stderr| {
        let mut text = String::new();
        stderr.read_to_string(&mut text).unwrap();
        text
    })
}

/// The same, where nobody reads what it complains of: its terminal was closed, say.
pub(crate) fn start_unheard(arguments: &[&str]) -> Running {
    start_with(arguments, |stderr| {
        drop(stderr);
        String::new()
    })
}

fn start_with(arguments: &[&str], hear: fn(ChildStderr) -> String) -> Running {
    let mut child = Command::new(PROGRAM)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let since = Instant::now();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let stderr = child.stderr.take().unwrap();
    let (sender, lines) = channel();
    thread::spawn(move || {
        loop {
            let mut line = String::new();
            match stdout.read_line(&mut line) {
                Ok(bytes) if bytes > 0 && sender.send(line).is_ok() => (),
                _ => return,
            }
        }
    });
    let stderr = thread::spawn(move || hear(stderr));
    Running {
        child,
        since,
        lines,
        stderr: Some(stderr),
        stdout: String::new(),
    }
}

/// Starts the program and waits for its end.
pub(crate) fn fairlane(arguments: &[&str]) -> Finished {
    start(arguments).finish()
}

impl Running {
    /// The next line it prints.
    pub(crate) fn line(&mut self) -> String {
        let line = self.lines.recv_timeout(HANGS).expect("no further line");
        self.stdout += &line;
        line
    }

    /// The number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal, as Ctrl-C (INT) or a service manager (TERM) does.
    pub(crate) fn signal(&mut self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        let sent = Command::new("sh").args(["-c", &kill]).status().unwrap();
        assert!(sent.success(), "{kill}");
        self.since = Instant::now();
    }

    /// Stops all its threads until it is sent CONT, and waits until they have stopped.
    pub(crate) fn pause(&mut self) {
        self.signal("STOP");
        let tasks = format!("/proc/{}/task", self.child.id());
        let runs = |task: std::io::Result<std::fs::DirEntry>| {
            // After the name, which may have spaces and ends with a bracket.
            let stat = std::fs::read_to_string(task.unwrap().path().join("stat"));
            !stat.is_ok_and(|stat| stat.rsplit(") ").next().unwrap().starts_with('T'))
        };
        while std::fs::read_dir(&tasks).unwrap().any(runs) {
            assert!(self.since.elapsed() < HANGS, "the program does not stop");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits for its end.
    pub(crate) fn finish(mut self) -> Finished {
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(self.since.elapsed() < HANGS, "the program hangs");
            thread::sleep(Duration::from_millis(5));
        };
        let took = self.since.elapsed();
        let mut stdout = std::mem::take(&mut self.stdout);
        stdout.extend(self.lines.iter());
        let stderr = self.stderr.take().unwrap().join().unwrap();
        Finished {
            status,
            stdout,
            stderr,
            took,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail where it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
