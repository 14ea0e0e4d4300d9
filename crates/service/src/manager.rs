//! Notifications to a service manager: that the daemon is ready, reloads its configuration, or ends;
//! and, as long as it makes progress, watchdog signals.
//!
//! The protocol is that of `sd_notify(3)`: datagrams of lines, to the socket that the environment
//! variable `NOTIFY_SOCKET` names. One thread sends all of them, in order, so that no other thread
//! waits for a busy manager.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::parent_id;
use std::process;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// How often it is looked whether the daemon has begun its work.
const LOOK: Duration = Duration::from_millis(5);
/// Checks in the period after which the manager considers the daemon dead: one that is late, since the
/// machine runs other programs, is not the last.
const LOOKS: u32 = 4;
/// How long a manager may take to make room for a datagram.
const PATIENCE: Duration = Duration::from_secs(1);
/// Most characters of a status: it is a line that people read.
const STATUS: usize = 400;

/// The service manager that started this process, if it asked for notifications.
#[derive(Debug)]
pub struct Manager {
    /// The address of its socket.
    socket: OsString,
    address: SocketAddr,
    watchdog: Option<Duration>,
    teller: Teller,
    words: Receiver<Word>,
}

/// Reports the daemon's state, from any thread, without waiting. Without a manager it does nothing.
#[derive(Clone, Debug, Default)]
pub struct Teller(Option<Sender<Word>>);

/// The thread that notifies the manager. Dropping it returns once the manager was notified of the end.
#[derive(Debug)]
pub struct Telling {
    teller: Teller,
    thread: Option<JoinHandle<()>>,
}

/// A notification.
#[derive(Debug)]
enum Word {
    /// The configuration is being reloaded, since this many microseconds of the monotonic clock.
    Reloading(u128),
    /// It was.
    Reloaded(String),
    /// This process is the daemon.
    HandedOver(u32),
    /// The daemon is about to end.
    Stopping,
    /// There are no further notifications.
    End,
}

impl Manager {
    /// Returns the manager of this process, if its environment names one. A watchdog (`WATCHDOG_USEC`)
    /// that is meant for another process (`WATCHDOG_PID`) than this one, or the one that started it,
    /// is not ours.
    #[must_use]
    pub fn of_this_process() -> Option<Manager> {
        let number = |name| env::var(name).ok()?.parse::<u64>().ok();
        let ours = [process::id(), parent_id()].map(u64::from);
        let meant = number("WATCHDOG_PID").is_none_or(|pid| ours.contains(&pid));
        let watchdog = number("WATCHDOG_USEC").filter(|&micros| meant && micros > 0);
        Manager::at(
            &env::var_os("NOTIFY_SOCKET")?,
            watchdog.map(Duration::from_micros),
        )
    }

    /// Returns the manager at a socket: a path, or the name of an abstract socket behind an `@`. With
    /// `watchdog` it considers the daemon dead after this long without a notification. None of another
    /// kind of name.
    #[must_use]
    pub fn at(socket: &OsStr, watchdog: Option<Duration>) -> Option<Manager> {
        let address = match socket.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
            [b'/', ..] => SocketAddr::from_pathname(socket),
            _ => return None,
        };
        let (teller, words) = channel();
        Some(Manager {
            socket: socket.to_owned(),
            address: address.ok()?,
            watchdog,
            teller: Teller(Some(teller)),
            words,
        })
    }

    /// Returns the state by which another process [continues](Manager::handed_over) to notify this
    /// manager; `None` if it cannot be written as text.
    #[must_use]
    pub fn to_hand_over(&self) -> Option<String> {
        let watchdog = self.watchdog.map_or(0, |watchdog| watchdog.as_micros());
        let socket = self.socket.to_str()?;
        (!socket.contains(char::is_control)).then(|| format!("{watchdog} {socket}"))
    }

    /// Returns the manager of a process that has [passed it on](Manager::to_hand_over).
    #[must_use]
    pub fn handed_over(told: &str) -> Option<Manager> {
        let (watchdog, socket) = told.split_once(' ')?;
        let watchdog = watchdog.parse().ok().filter(|&micros| micros > 0);
        Manager::at(OsStr::new(socket), watchdog.map(Duration::from_micros))
    }

    /// Returns a handle for notifications.
    #[must_use]
    pub fn teller(&self) -> Teller {
        self.teller.clone()
    }

    /// Sends notifications to the manager, on a thread of its own, from now on. The daemon is ready,
    /// with the line `status`, once `progress` is above 0; the watchdog is fed as long as `progress`
    /// grows between two checks, a quarter of its period apart.
    ///
    /// # Errors
    ///
    /// No thread or no socket is available.
    pub fn serve(
        self,
        status: impl Display,
        progress: impl Fn() -> u64 + Send + 'static,
    ) -> io::Result<Telling> {
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let Manager {
            address,
            watchdog,
            teller,
            words,
            ..
        } = self;
        let mut line = Line {
            socket,
            address,
            status: one_line(&status.to_string()),
            is_ready: false,
            is_stopping: false,
        };
        let beat = watchdog.map(|time| (time / LOOKS).max(Duration::from_millis(1)));
        let thread = thread::Builder::new().name("manager".to_owned());
        let thread = thread.spawn(move || line.follow(&words, beat, progress))?;
        Ok(Telling {
            teller,
            thread: Some(thread),
        })
    }
}

impl Teller {
    /// The configuration is about to be read again. [`reloaded`](Teller::reloaded) is to follow.
    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let seconds = Duration::from_secs(now.tv_sec.unsigned_abs());
        let now = seconds + Duration::from_nanos(now.tv_nsec.unsigned_abs());
        self.say(Word::Reloading(now.as_micros()));
    }

    /// Reports the result.
    pub fn reloaded(&self, what: impl Display) {
        if self.0.is_some() {
            self.say(Word::Reloaded(one_line(&what.to_string())));
        }
    }

    /// Another process is the daemon from now on.
    pub fn handed_over(&self, process: u32) {
        self.say(Word::HandedOver(process));
    }

    /// The daemon is about to end, and does not forward for ever from now on.
    pub fn stopping(&self) {
        self.say(Word::Stopping);
    }

    fn say(&self, word: Word) {
        if let Some(words) = &self.0 {
            // After the end the notification is not needed.
            let _ = words.send(word);
        }
    }
}

impl Telling {
    /// Stops notifications of this process, without one of its end: another process continues.
    pub fn leave(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.teller.say(Word::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        self.teller.say(Word::Stopping);
        self.end();
    }
}

/// The way to the manager.
struct Line {
    socket: UnixDatagram,
    address: SocketAddr,
    status: String,
    is_ready: bool,
    is_stopping: bool,
}

impl Line {
    /// Runs until there are no further notifications.
    fn follow(
        &mut self,
        words: &Receiver<Word>,
        beat: Option<Duration>,
        progress: impl Fn() -> u64,
    ) {
        let mut seen = 0;
        let mut next = Instant::now();
        loop {
            let patience = match (self.is_ready, beat) {
                (false, _) => Some(LOOK),
                (true, Some(_)) => Some(next.saturating_duration_since(Instant::now())),
                (true, None) => None,
            };
            let word = match patience {
                Some(time) => words.recv_timeout(time),
                None => words.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match word {
                Ok(Word::End) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(word) => self.say(word),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let now = progress();
            if !self.is_ready && now > 0 {
                self.is_ready = true;
                self.send(format_args!("READY=1\nSTATUS={}\n", self.status));
            }
            if let Some(beat) = beat.filter(|_| self.is_ready && Instant::now() >= next) {
                next = Instant::now() + beat;
                // How long the end may take, the manager knows otherwise.
                if now != seen || self.is_stopping {
                    seen = now;
                    self.send("WATCHDOG=1\n");
                }
            }
        }
    }

    fn say(&mut self, word: Word) {
        match word {
            // Before it is ready it cannot stop being so.
            Word::Reloading(_) if !self.is_ready => {}
            Word::Reloading(since) => {
                self.send(format_args!("RELOADING=1\nMONOTONIC_USEC={since}\n"));
            }
            Word::Reloaded(status) if !self.is_ready => self.status = status,
            Word::Reloaded(status) => self.send(format_args!("READY=1\nSTATUS={status}\n")),
            Word::HandedOver(process) => self.send(format_args!("MAINPID={process}\n")),
            Word::Stopping if !self.is_stopping => {
                self.is_stopping = true;
                self.send("STOPPING=1\nSTATUS=about to end\n");
            }
            Word::Stopping | Word::End => {}
        }
    }

    fn send(&self, text: impl Display) {
        let text = text.to_string();
        let sent = self.socket.send_to_addr(text.as_bytes(), &self.address);
        // A manager that no longer listens misses the message, and one whose socket stayed full once
        // is not waited for again.
        if sent.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            let _ = self.socket.set_nonblocking(true);
        }
    }
}

/// Returns a text as one line of moderate length.
fn one_line(text: &str) -> String {
    let parts = text.split(|c: char| c.is_control());
    let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    parts.join(" ").chars().take(STATUS).collect()
}
