//! `fairlane top` on a terminal, as operators use it.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::program::{self, fairlane};
use crate::site::{Site, up, wire};

/// Anything longer is a hang, however busy the machine.
const HANGS: Duration = Duration::from_secs(120);

const CLASSES: &str = "
[[link.class]]
name = \"voice\"
rate = \"2mbit\"

[[link.class]]
name = \"web\"
default = true
";

/// The program on a pseudo-terminal.
struct Terminal {
    /// The channel to the thread that has the operator's end, while it is open.
    keys: Option<Sender<String>>,
    operator: Option<JoinHandle<()>>,
    /// The program's end.
    end: OwnedFd,
    child: Child,
    shown: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    fn start(socket: &Path, columns: u16, rows: u16) -> Terminal {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let end = ioctl_tiocgptpeer(&master, flags).unwrap();
        fcntl_setfl(&master, OFlags::NONBLOCK).unwrap();
        resize(&end, columns, rows);
        let child = program::command()
            .args(["top", "--socket", socket.to_str().unwrap()])
            .env("TERM", "xterm")
            .env("LC_ALL", "C.UTF-8")
            .env_remove("NO_COLOR")
            .stdin(Stdio::from(end.try_clone().unwrap()))
            .stdout(Stdio::from(end.try_clone().unwrap()))
            .stderr(Stdio::from(end.try_clone().unwrap()))
            .spawn();
        let shown = Arc::default();
        let (keys, pressed) = channel();
        let seen = Arc::clone(&shown);
        Terminal {
            keys: Some(keys),
            operator: Some(thread::spawn(move || {
                operate(&master.into(), &pressed, &seen)
            })),
            end,
            child: child.unwrap(),
            shown,
        }
    }

    fn press(&self, keys: &str) {
        self.keys.as_ref().unwrap().send(keys.to_owned()).unwrap();
    }

    /// Closes it as if its window were closed; the program has no session that would get a signal.
    fn close(&mut self) {
        self.keys = None;
        self.operator.take().unwrap().join().unwrap();
        self.end = File::open("/dev/null").unwrap().into();
    }

    /// Waits until a complete new screen contains this word.
    #[track_caller]
    fn until(&self, word: &str) {
        let begun = Instant::now();
        loop {
            self.shown.lock().unwrap().clear();
            self.press("\u{c}");
            thread::sleep(Duration::from_millis(200));
            let shown = text(&self.shown.lock().unwrap());
            if shown.contains(word) {
                return;
            }
            assert!(begun.elapsed() < HANGS, "no '{word}' in {shown}");
        }
    }

    /// Returns whether the terminal is in its normal mode: echo, line input and signals.
    fn is_usual(&self) -> bool {
        let modes = LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
        tcgetattr(&self.end).unwrap().local_modes.contains(modes)
    }

    #[track_caller]
    fn finish(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < HANGS, "it does not end");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Returns its output once it `is_whole`: on a busy machine it is read late.
    #[track_caller]
    fn written(&self, is_whole: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let shown = String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned();
            if is_whole(&shown) {
                return shown;
            }
            assert!(begun.elapsed() < HANGS, "{shown:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Checks that it has restored the terminal: it leaves the alternate screen, and then shows the cursor.
    #[track_caller]
    fn is_given_back(&self) {
        assert!(self.is_usual());
        self.written(|shown| {
            let left = shown.rsplit_once("\u{1b}[?1049l");
            left.is_some_and(|(_, after)| after.contains("\u{1b}[?25h"))
        });
    }
}

fn resize(end: &OwnedFd, columns: u16, rows: u16) {
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(end, size).unwrap();
}

/// Reads the screen and presses keys, until the sender of keys is closed.
fn operate(mut terminal: &File, keys: &Receiver<String>, shown: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 4_096];
    loop {
        match terminal.read(&mut buffer) {
            Ok(length @ 1..) => {
                shown.lock().unwrap().extend(&buffer[..length]);
                continue;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            ended => panic!("the test has the other end, too: {ended:?}"),
        }
        match keys.recv_timeout(Duration::from_millis(5)) {
            Ok(keys) => terminal.write_all(keys.as_bytes()).unwrap(),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the output without terminal control sequences; a cursor movement begins a line.
fn text(shown: &[u8]) -> String {
    let shown = String::from_utf8_lossy(shown);
    let mut parts = shown.split('\u{1b}');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let Some(sequence) = part.strip_prefix('[') else {
            continue;
        };
        if let Some(last) = sequence.find(|letter: char| ('@'..='~').contains(&letter)) {
            if sequence[last..].starts_with('H') {
                text.push('\n');
            }
            text += &sequence[last + 1..];
        }
    }
    text
}

#[test]
fn without_a_terminal_or_a_site_it_says_so_and_touches_nothing() {
    let finished = fairlane(&["top", "--socket", "/no/such/socket"]);
    assert_eq!(finished.status.code(), Some(2), "{finished:?}");
    assert_eq!(finished.stderr.lines().count(), 1, "{finished:?}");
    for word in ["not a terminal", "ctl show", "ctl watch"] {
        assert!(finished.stderr.contains(word), "{finished:?}");
    }
    let mut terminal = Terminal::start(Path::new("/no/such/socket"), 80, 24);
    assert_eq!(terminal.finish().code(), Some(2));
    assert!(terminal.is_usual());
    let written = terminal.written(|shown| shown.ends_with('\n'));
    assert!(
        written.contains("/no/such/socket: No such file") && !written.contains('\u{1b}'),
        "{written:?}"
    );
}

#[test]
fn top_reconnects_after_a_restart() {
    let Some(wire) = wire("a site on a terminal", 1) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("ctl.sock");
    let control = format!("\n[control]\nsocket = \"{}\"\n", socket.display());
    let config = up("packet", "20mbit") + CLASSES + &control;
    let site = Site::start(&wire, &config);
    let mut terminal = Terminal::start(&socket, 80, 24);
    for word in ["voice", "web", "outside", "drops/s"] {
        terminal.until(word);
    }
    assert!(!terminal.is_usual(), "keys come one by one");
    resize(&terminal.end, 200, 50);
    terminal.until("guarant.");

    terminal.press("jr3mbits\r");
    terminal.until("3mbits'");
    terminal.press("\u{7f}\r");
    terminal.until("->");
    let running = || fairlane(&["ctl", "--socket", socket.to_str().unwrap(), "config"]).success();
    assert!(running().contains("\"2mbit\""), "nothing has changed yet");
    terminal.press("\r");
    terminal.until("changed:");
    assert!(running().contains("\"3mbit\""));

    site.stop();
    terminal.until("answer:");
    terminal.until("voice");
    let site = Site::start(&wire, &config);
    terminal.until("fairlane");
    terminal.press("q");
    assert!(terminal.finish().success());
    terminal.is_given_back();
    ended_from_outside(&socket);
    site.stop();
}

/// Checks that a signal restores the terminal, too, and that a closed terminal ends the program.
fn ended_from_outside(socket: &Path) {
    let mut terminal = Terminal::start(socket, 80, 24);
    terminal.until("voice");
    program::signal(&terminal.child, "TERM");
    assert!(terminal.finish().success());
    terminal.is_given_back();

    let mut terminal = Terminal::start(socket, 80, 24);
    terminal.until("voice");
    terminal.close();
    terminal.finish();
}
