//! The program as a user starts it, with arguments; tests see its status, its output and its run time.

#![allow(dead_code, reason = "no test file needs all of it")]

use std::io::{BufRead, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The program of the crate under test: the main program, or the laboratory's instruments.
pub(crate) const PROGRAM: &str = match (
    option_env!("CARGO_BIN_EXE_fairlane"),
    option_env!("CARGO_BIN_EXE_fairlane-instruments"),
) {
    (Some(program), _) | (_, Some(program)) => program,
    _ => panic!("no program is built for these tests"),
};

/// Run time after which the program is considered hung, even with little CPU time.
const HANGS: Duration = Duration::from_secs(300);

/// The part of a time in which some task on this machine waited for a processor, which limits the accuracy of
/// measurements. Limits in tests depend on it, so that they are as strict as the machine allows.
pub(crate) struct Pressure {
    began: Instant,
    waited: Option<u64>,
    stalled: Duration,
}

impl Pressure {
    /// Starts a measurement.
    pub(crate) fn begin() -> Pressure {
        Pressure {
            began: Instant::now(),
            waited: waited_us(),
            stalled: stalls::so_far(),
        }
    }

    /// Returns the part of the time, 0 to 1; 1 if the kernel does not report it.
    pub(crate) fn part(&self) -> f64 {
        let span = self.began.elapsed().as_micros() as f64;
        match (self.waited, waited_us()) {
            (Some(before), Some(now)) => ((now - before) as f64 / span).min(1.0),
            _ => 1.0,
        }
    }

    /// Returns `strict` on an idle machine, reduced by the part of the time that other programs had, down to `floor`.
    /// The part counts three times: sender, daemon and receiver wait one after another.
    pub(crate) fn least(&self, strict: f64, floor: f64) -> f64 {
        (strict - 3.0 * self.part()).max(floor)
    }

    /// Returns `strict` on an idle machine, up to `more` above it on one that is always busy.
    pub(crate) fn most(&self, strict: f64, more: f64) -> f64 {
        strict + self.part() * more
    }

    /// Returns `strict` on an idle machine, and up to four seconds more on one that is always busy; plus the time for
    /// which the kernel itself delayed tasks.
    pub(crate) fn soon(&self, strict: Duration) -> Duration {
        strict + Duration::from_secs(4).mul_f64(self.part()) + self.stalled()
    }

    /// Returns the time for which the kernel itself delayed tasks that open or close an interface.
    pub(crate) fn stalled(&self) -> Duration {
        stalls::so_far() - self.stalled
    }

    /// Sleeps for `strict` on an idle machine, and up to four seconds longer on a busy one.
    pub(crate) fn sleep(strict: Duration) {
        let pressure = Pressure::begin();
        while pressure.began.elapsed() < pressure.soon(strict) {
            thread::sleep(Duration::from_millis(10).min(strict));
        }
    }
}

/// The time for which the kernel's own threads delay tasks that open or close interfaces.
mod stalls {
    use std::sync::{Mutex, Once, PoisonError};
    use std::thread;
    use std::time::{Duration, Instant};

    use rustix::net::{AddressFamily, SocketType, socket};

    /// The time that it takes on an idle machine.
    const USUAL: Duration = Duration::from_millis(50);
    /// The pause between two samples.
    const PAUSE: Duration = Duration::from_millis(100);

    struct Watch {
        /// The time in all samples that are complete.
        stalled: Duration,
        /// The start of the present sample.
        looks: Option<Instant>,
    }

    static WATCH: Mutex<Watch> = Mutex::new(Watch {
        stalled: Duration::ZERO,
        looks: None,
    });
    static BEGIN: Once = Once::new();

    /// Returns the time so far in this process. Zero without the privilege to open such sockets: then no test opens
    /// any.
    pub(super) fn so_far() -> Duration {
        BEGIN.call_once(|| drop(thread::spawn(watch)));
        let watch = WATCH.lock().unwrap_or_else(PoisonError::into_inner);
        let looked = watch.looks.map_or(Duration::ZERO, |began| began.elapsed());
        watch.stalled + looked.saturating_sub(USUAL)
    }

    /// Closing a packet socket waits for an RCU grace period, which the kernel's threads handle.
    fn watch() {
        while let Ok(socket) = socket(AddressFamily::PACKET, SocketType::RAW, None) {
            let began = Instant::now();
            let told = || WATCH.lock().unwrap_or_else(PoisonError::into_inner);
            told().looks = Some(began);
            drop(socket);
            let mut watch = told();
            watch.looks = None;
            watch.stalled += began.elapsed().saturating_sub(USUAL);
            drop(watch);
            thread::sleep(PAUSE);
        }
    }
}

/// Returns the result of `work`, and the longest delay of another thread's wakeups in the meantime.
pub(crate) fn beside_noise<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let asked = Duration::from_millis(1);
    let beyond = || {
        let begun = Instant::now();
        thread::sleep(asked);
        begun.elapsed() - asked
    };
    longest_beside(beyond, work)
}

/// Returns the result of `work`, and the longest time that another thread measures repeatedly in the meantime.
pub(crate) fn longest_beside<T>(
    measure: impl Fn() -> Duration + Send,
    work: impl FnOnce() -> T,
) -> (T, Duration) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let still = &over;
        let measuring = scope.spawn(move || {
            let mut longest = Duration::ZERO;
            while !still.load(Ordering::Relaxed) {
                longest = longest.max(measure());
            }
            longest
        });
        // If it panics, the thread ends too.
        let made = catch_unwind(AssertUnwindSafe(work));
        over.store(true, Ordering::Relaxed);
        let longest = measuring.join().unwrap();
        (made.unwrap_or_else(|panic| resume_unwind(panic)), longest)
    })
}

/// Returns the result of `measure` for the shortest duration, in seconds, that gives one. Longer ones are needed only
/// if other programs have the processors for all of the shorter.
#[track_caller]
pub(crate) fn in_time<T>(measure: impl FnMut(&str) -> Option<T>) -> T {
    let mut seconds = ["0.2", "2", "20"].into_iter();
    seconds
        .find_map(measure)
        .expect("nothing was measured in 20 seconds")
}

/// Returns the microseconds in which some task waited for a processor, since the machine started.
fn waited_us() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/pressure/cpu").ok()?;
    let some = text.lines().find(|line| line.starts_with("some "))?;
    some.rsplit_once("total=")?.1.parse().ok()
}

/// The result of a program.
#[derive(Debug)]
pub(crate) struct Finished {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
    /// The time since its start, or since the last signal.
    pub took: Duration,
}

impl Finished {
    /// Returns its output, after checking that it succeeded without messages on standard error.
    #[track_caller]
    pub(crate) fn success(self) -> String {
        assert!(self.status.success() && self.stderr.is_empty(), "{self:?}");
        self.stdout
    }
}

/// Describes each thread of a process for failure messages: its name, its state and where it waits.
pub(crate) fn state(process: u32) -> String {
    let threads = std::fs::read_dir(format!("/proc/{process}/task"));
    let told = |thread: std::fs::DirEntry| {
        let read = |file| std::fs::read_to_string(thread.path().join(file)).unwrap_or_default();
        let (stat, wait) = (read("stat"), read("wchan"));
        // `12 (name) S ..`
        let end = stat.rfind(')').map_or(0, |name| stat.len().min(name + 3));
        format!("{} waits in '{wait}'", &stat[..end])
    };
    let threads = threads.into_iter().flatten().flatten().map(told);
    threads.collect::<Vec<_>>().join(", ")
}

/// Sends a signal to a process, without the command `kill`, which some machines lack.
pub(crate) fn signal(child: &Child, name: &str) {
    let signal = match name {
        "CONT" => Signal::CONT,
        "HUP" => Signal::HUP,
        "INT" => Signal::INT,
        "KILL" => Signal::KILL,
        "STOP" => Signal::STOP,
        "TERM" => Signal::TERM,
        other => panic!("no test sends {other}"),
    };
    // The process ID stays valid until the process is waited for.
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// A running program, killed if it is dropped before its end.
pub(crate) struct Running {
    child: Child,
    since: Instant,
    lines: Receiver<String>,
    /// Its standard error so far.
    said: Arc<Mutex<String>>,
    hearing: Option<JoinHandle<()>>,
    stdout: String,
}

/// Returns the program's command without its environment variables.
pub(crate) fn command() -> Command {
    let mut command = Command::new(PROGRAM);
    for variable in ["FAIRLANE_LOG", "FAIRLANE_SOCKET"] {
        command.env_remove(variable);
    }
    command
}

/// Starts the program.
pub(crate) fn start(arguments: &[&str]) -> Running {
    start_heard(command(), arguments)
}

/// Starts it in a session of its own, as a service manager does.
pub(crate) fn start_leading(arguments: &[&str]) -> Running {
    start_by(&["setsid"], arguments)
}

/// Starts it in a process namespace of its own, as a container does: the leader of its session is outside, and has no
/// number there. Signals go to its parent; it is killed when it is dropped.
pub(crate) fn start_led_from_outside(arguments: &[&str]) -> Running {
    start_by(&["unshare", "--pid", "--fork", "--kill-child"], arguments)
}

fn start_by(other: &[&str], arguments: &[&str]) -> Running {
    let mut starts = Command::new(other[0]);
    starts.args(&other[1..]).arg(PROGRAM);
    start_heard(starts, arguments)
}

fn start_heard(program: Command, arguments: &[&str]) -> Running {
    start_with(program, arguments, |stderr, said| {
        let mut stderr = BufReader::new(stderr);
        let mut line = String::new();
        while stderr.read_line(&mut line).unwrap() > 0 {
            let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
            *said += &line;
            line.clear();
        }
    })
}

/// Starts it with a closed standard error, as after a terminal was closed.
pub(crate) fn start_unheard(arguments: &[&str]) -> Running {
    start_with(command(), arguments, |stderr, _| drop(stderr))
}

fn start_with(
    mut program: Command,
    arguments: &[&str],
    hear: fn(ChildStderr, &Mutex<String>),
) -> Running {
    let mut child = program
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
    let said = Arc::new(Mutex::new(String::new()));
    let to = Arc::clone(&said);
    let hearing = thread::spawn(move || hear(stderr, &to));
    Running {
        child,
        since,
        lines,
        said,
        hearing: Some(hearing),
        stdout: String::new(),
    }
}
/// Returns the path of an example.
pub(crate) fn example(name: &str) -> String {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    folder.join(name).display().to_string()
}

/// Writes this text to a file, and returns its path.
pub(crate) fn file(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("site.toml");
    std::fs::write(&path, text).unwrap();
    let path = path.display().to_string();
    (folder, path)
}

/// Runs the program to its end.
pub(crate) fn fairlane(arguments: &[&str]) -> Finished {
    start(arguments).finish()
}

impl Running {
    /// Returns the next line of its output.
    pub(crate) fn line(&mut self) -> String {
        let line = self.lines.recv_timeout(HANGS).expect("no further line");
        self.stdout += &line;
        line
    }

    /// Waits until its standard error contains these words.
    #[track_caller]
    pub(crate) fn until_said(&self, words: &str) {
        let begun = Instant::now();
        while !self.said().contains(words) {
            assert!(begun.elapsed() < HANGS, "{words}: {}", self.said());
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until it handles Ctrl-C. Before that, the signal ends it, or has no effect if its parent ignores it.
    pub(crate) fn until_it_listens(&self) {
        let file = format!("/proc/{}/status", self.child.id());
        let listens = || {
            let status = std::fs::read_to_string(&file).unwrap();
            let caught = status
                .lines()
                .find_map(|line| line.strip_prefix("SigCgt:"))
                .unwrap();
            let caught = u64::from_str_radix(caught.trim(), 16).unwrap();
            caught & (1 << (Signal::INT.as_raw() - 1)) != 0
        };
        while !listens() {
            assert!(self.since.elapsed() < HANGS, "it never listens");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Returns its standard error so far.
    pub(crate) fn said(&self) -> String {
        (self.said.lock().unwrap_or_else(PoisonError::into_inner)).clone()
    }

    /// Returns its process ID.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal, as Ctrl-C (INT) or a service manager (TERM) does.
    pub(crate) fn signal(&mut self, name: &str) {
        self.since = Instant::now();
        signal(&self.child, name);
    }

    /// Stops all its threads until CONT, and waits until they have stopped.
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
        self.hearing.take().unwrap().join().unwrap();
        let stderr = self.said();
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
        // Both fail if it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
