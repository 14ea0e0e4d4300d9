//! `fairlane run CONFIG --fail-open`: a guard process that supervises the worker process, which shapes. While there is
//! no worker, the guard forwards frames unshaped; it then starts another worker.
//!
//! The guard kills a worker that hangs or was stopped. From then on the worker forwards no frame, and everything it had
//! open is closed, including XDP programs that redirect frames to it. So a hang ends as a crash does, and only one of
//! the two processes forwards at a time.
//!
//! The worker is started with one end of a socket pair as its standard input, and keeps it as the highest of its
//! descriptors: when a process dies, Linux closes the highest descriptor first, and the sockets of interfaces take tens
//! of milliseconds each.

use std::env;
use std::fs::File;
use std::io::{self, Read, Write};
use std::mem;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use fairlane_daemon::{Daemon, RoundWatch, Standby};
use fairlane_io::files;
use fairlane_service::Ending;
use fairlane_terminal::log::Log;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{
    Pid, PidfdFlags, Resource, Signal, getrlimit, pidfd_open, pidfd_send_signal,
};
use rustix::stdio::dup2_stdin;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing::level_filters::LevelFilter;
use tracing::warn;

use crate::interrupt;
use crate::machine::read_site;

/// The worker's message when its interfaces are open.
const READY: u8 = b'r';
/// The guard's answer once it has stopped forwarding: that it has forwarded no frame (`GO`), or all that have arrived
/// so far (`GO_ON`).
const GO: u8 = b'g';
const GO_ON: u8 = b'o';
/// How long a worker waits for that.
const ANSWER: Duration = Duration::from_secs(2);
/// Upper limit for the descriptor that is requested.
const FILES: u64 = 1 << 16;
/// The pause between the end of a worker and the start of the next, at first and at most.
const PAUSE: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(10)];
/// Run time after which the pause is reset.
const RAN: Duration = Duration::from_secs(10);

/// An event that the guard handles.
enum Event {
    /// The guard received a signal.
    Signal(i32),
    /// The worker has opened its interfaces, and shares its round counter.
    Ready(io::Result<RoundWatch>),
    /// The worker's end of the socket pair was closed.
    Lost,
    /// The worker has ended.
    Ended(io::Result<ExitStatus>),
}

/// Keeps a worker running until it exits by itself or by request.
pub(super) fn guard(path: &Path, least: LevelFilter) -> Result<()> {
    let signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).context("setting up signals")?;
    let site = read_site(path)?;
    let interfaces = site.interfaces.context(
        "--fail-open needs two interfaces to pass frames between: name inside and outside in [interfaces]",
    )?;
    // The standby resources are opened first, so that errors show before there is a worker.
    let wire = Standby::open(interfaces).context("--fail-open")?;
    let log = Log::open(least).context("starting a thread")?;
    let (to_self, events) = channel();
    let to_guard = to_self.clone();
    interrupt::listen(signals, move |signal| {
        let _ = to_guard.send(Event::Signal(signal));
    })
    .context("setting up signals")?;
    // The program's path, so that an upgraded program runs when a worker is restarted.
    let program = env::current_exe().context("finding the program")?;
    let mut guard = Guard {
        wire,
        worker: Worker::start(&program, &to_self)?,
        program,
        file: path.to_owned(),
        to_self,
        is_young: true,
        hang_up: false,
        pause: PAUSE[0],
        was_ready: false,
        ending: Ending::default(),
        is_ending: false,
        watch: Watch::Nothing,
        next_look: Instant::now(),
    };
    let status = guard.run(&events);
    let ending = mem::take(&mut guard.ending);
    drop(guard);
    ending.ask();
    log.close(&ending);
    match status? {
        None => Ok(()),
        // The worker has printed the error.
        Some(status) => process::exit(status.code().unwrap_or(2)),
    }
}

/// Reports from the worker that its interfaces are open. Returns when the guard no longer forwards.
pub(super) fn ready(daemon: &mut Daemon) -> Result<()> {
    daemon.start_receiving()?;
    match ask(daemon.share_rounds()?) {
        Ok(GO) => {}
        // Also if the guard's answer is late, so that no frame is sent twice.
        _ => daemon.drop_arrived()?,
    }
    Ok(())
}

/// Reports to the guard that the worker is ready, and passes the descriptor of its round counter. Returns the answer.
fn ask(rounds: OwnedFd) -> io::Result<u8> {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(FILES);
    let highest = i32::try_from(files.min(FILES)).unwrap_or(1) - 1;
    let mut line = UnixStream::from(fcntl_dupfd_cloexec(io::stdin(), highest)?);
    dup2_stdin(File::open("/dev/null")?)?;
    line.set_read_timeout(Some(ANSWER))?;
    line.write_all(&[READY])?;
    files::send(&line, &[rounds])?;
    let mut answer = [0];
    let answered = line.read_exact(&mut answer);
    // The kernel closes it when the process ends, which notifies the guard.
    mem::forget(line);
    answered.map(|()| answer[0])
}

struct Guard {
    /// Forwards frames while there is no worker.
    wire: Standby,
    worker: Worker,
    program: PathBuf,
    /// The site's file.
    file: PathBuf,
    /// Whether the worker may not handle signals yet.
    is_young: bool,
    /// Whether it must reload its file once it does.
    hang_up: bool,
    to_self: Sender<Event>,
    /// The pause before the next worker is started.
    pause: Duration,
    /// Whether a worker has been able to open its interfaces.
    was_ready: bool,
    /// Start of the shutdown: the time that the worker took for its last output is not spent again.
    ending: Ending,
    is_ending: bool,
    watch: Watch,
    /// The time of the next check of the worker, if it is watched.
    next_look: Instant,
}

/// The next sign of progress expected of the worker.
enum Watch {
    /// None: it is not ready, or it has ended.
    Nothing,
    /// New rounds.
    Rounds(RoundWatch),
    /// Its end, after it was killed.
    End,
}

impl Guard {
    /// Runs until the last worker ends. Returns its status if that is not a normal exit.
    fn run(&mut self, events: &Receiver<Event>) -> Result<Option<ExitStatus>> {
        let mut restart: Option<Instant> = None;
        loop {
            self.look();
            let event = match self.until(restart) {
                Some(at) => events.recv_timeout(at.saturating_duration_since(Instant::now())),
                None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match event {
                // A worker about to be started reads the file anyway.
                Ok(Event::Signal(SIGHUP)) if restart.is_some() => {}
                Ok(Event::Signal(SIGHUP)) if self.is_young => self.hang_up = true,
                Ok(Event::Signal(SIGHUP)) => self.worker.signal(Signal::HUP),
                Ok(Event::Signal(_)) if restart.is_some() => return Ok(None),
                Ok(Event::Signal(signal)) => {
                    self.is_ending = true;
                    self.ending.ask();
                    self.worker.signal(match signal {
                        SIGINT => Signal::INT,
                        _ => Signal::TERM,
                    });
                }
                Ok(Event::Ready(watch)) => self.hand_over(watch),
                Ok(Event::Lost) => {
                    self.watch = Watch::Nothing;
                    if self.was_ready && !self.is_ending {
                        self.wire.connect();
                    }
                }
                Ok(Event::Ended(status)) => {
                    let status = status.context("waiting for the process that shapes")?;
                    // A worker stopped before it handles signals is ended by the signal.
                    if status.success() || (self.is_ending && status.signal().is_some()) {
                        return Ok(None);
                    }
                    if self.is_ending || !self.was_ready {
                        return Ok(Some(status));
                    }
                    restart = Some(Instant::now() + self.pause_after(status));
                }
                Err(RecvTimeoutError::Timeout) => {
                    if restart.is_some_and(|at| at <= Instant::now()) {
                        restart = self.restart();
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(anyhow!("no signal can come any more"));
                }
            }
        }
    }

    /// Returns the time of the next action that is not triggered by an event.
    fn until(&self, restart: Option<Instant>) -> Option<Instant> {
        let look = match self.watch {
            Watch::Nothing => None,
            Watch::Rounds(_) | Watch::End => Some(self.next_look),
        };
        restart.into_iter().chain(look).min()
    }

    /// Kills a worker that hangs. Does nothing before the next check is due.
    fn look(&mut self) {
        let now = Instant::now();
        if now < self.next_look {
            return;
        }
        self.next_look = now + RoundWatch::EVERY;
        match &mut self.watch {
            Watch::Nothing => {}
            Watch::Rounds(watch) => {
                if watch.look() {
                    let stalled_s = (RoundWatch::EVERY * RoundWatch::LOOKS).as_secs_f64();
                    warn!(name: "daemon hung", stalled_s, "daemon hung, killed stalled_s={stalled_s}");
                    self.worker.signal(Signal::KILL);
                    self.watch = Watch::End;
                }
            }
            // The kernel has not ended the process yet, but it no longer forwards.
            Watch::End if !self.is_ending => self.wire.connect(),
            Watch::End => {}
        }
    }

    /// Lets the worker forward from now on.
    fn hand_over(&mut self, watch: io::Result<RoundWatch>) {
        let forwarded = self.wire.disconnect();
        self.worker.answer(match forwarded {
            true => GO_ON,
            false => GO,
        });
        self.wire.rest(&self.file);
        self.watch = match watch {
            Ok(watch) => Watch::Rounds(watch),
            Err(error) => {
                warn!(
                    name: "no watch",
                    "daemon not watched for a hang: {error}"
                );
                Watch::Nothing
            }
        };
        self.was_ready = true;
        self.is_young = false;
        if mem::take(&mut self.hang_up) {
            self.worker.signal(Signal::HUP);
        }
    }

    /// Logs that a worker has ended, and returns the pause before the next.
    fn pause_after(&mut self, status: ExitStatus) -> Duration {
        if self.worker.started.elapsed() >= RAN {
            self.pause = PAUSE[0];
        }
        let pause = self.pause;
        self.pause = (2 * pause).min(PAUSE[1]);
        let how = match status.signal() {
            Some(signal) => format!("was ended by signal {signal}"),
            None => format!("ended with {status}"),
        };
        warn!(
            name: "worker ended",
            "the process that shapes {how}: frames pass unshaped, and it is started again in {} s",
            pause.as_secs_f64()
        );
        pause
    }

    /// Starts another worker, or returns the time of the next attempt.
    fn restart(&mut self) -> Option<Instant> {
        self.is_young = true;
        match Worker::start(&self.program, &self.to_self) {
            Ok(worker) => {
                self.worker = worker;
                None
            }
            Err(error) => {
                warn!(name: "no worker", "{error:#}");
                Some(Instant::now() + PAUSE[1])
            }
        }
    }
}

/// Receives the round counter of a ready worker. A worker of an earlier version sends none, and waits for its answer.
fn rounds(line: &UnixStream) -> io::Result<RoundWatch> {
    line.set_read_timeout(Some(ANSWER / 2))?;
    let files = files::receive(line);
    line.set_read_timeout(None)?;
    RoundWatch::open(files?.pop().ok_or(io::ErrorKind::InvalidData)?)
}

/// The worker process, which shapes.
struct Worker {
    process: OwnedFd,
    line: UnixStream,
    started: Instant,
}

impl Worker {
    /// Starts the same program with the same arguments, and the socket to the guard as its standard input. After an
    /// error no process is left running, since the guard would start another next to it.
    fn start(program: &Path, events: &Sender<Event>) -> Result<Worker> {
        let starting = || "starting the process that shapes";
        let (line, theirs) = UnixStream::pair().with_context(starting)?;
        let mut heard = line.try_clone().with_context(starting)?;
        let events = events.clone();
        let (give, given) = channel::<Child>();
        let listener = thread::Builder::new().name("worker".to_owned());
        listener
            .spawn(move || {
                let Ok(mut child) = given.recv() else {
                    return;
                };
                let mut said = [0];
                while let Ok(1) = heard.read(&mut said) {
                    if said[0] == READY {
                        let _ = events.send(Event::Ready(rounds(&heard)));
                    }
                }
                let _ = events.send(Event::Lost);
                let _ = events.send(Event::Ended(child.wait()));
            })
            .with_context(starting)?;
        let mut arguments: Vec<_> = env::args_os().skip(1).collect();
        // After two hyphens it would not be read as an option.
        let end = arguments.iter().position(|argument| argument == "--");
        arguments.insert(end.unwrap_or(arguments.len()), "--guarded".into());
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            // The guard relays the signal of a terminal's Ctrl-C.
            .process_group(0)
            .spawn()
            .with_context(starting)?;
        // Unavailable before Linux 5.3, and in some containers.
        let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).inspect_err(|_| {
            let _ = child.kill().and_then(|()| child.wait());
        });
        let process = process.with_context(starting)?;
        // The listener thread waits for it.
        let _ = give.send(child);
        Ok(Worker {
            process,
            line,
            started: Instant::now(),
        })
    }

    fn signal(&self, signal: Signal) {
        // Fails if the worker has ended, which needs no signal.
        let _ = pidfd_send_signal(&self.process, signal);
    }

    fn answer(&mut self, answer: u8) {
        // An event reports a worker that has ended.
        let _ = self.line.write_all(&[answer]);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.line.shutdown(Shutdown::Both);
    }
}
