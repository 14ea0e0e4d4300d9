//! A service manager receives that a daemon is ready, reloads its configuration, lives and ends, in
//! this order, at the socket that it names.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlane_service::{Manager, Teller};

const PATIENCE: Duration = Duration::from_secs(120);

/// A manager, as the daemon's process sees it from the other side.
struct Hears {
    socket: UnixDatagram,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Hears {
    fn new() -> Hears {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Hears {
            socket,
            path,
            _folder: folder,
        }
    }

    #[track_caller]
    fn next(&self) -> String {
        let mut buffer = [0; 4_096];
        let bytes = self.socket.recv(&mut buffer).expect("it is told in time");
        String::from_utf8(buffer[..bytes].to_vec()).unwrap()
    }

    /// Returns the next that is not about being alive.
    #[track_caller]
    fn next_word(&self) -> String {
        loop {
            let word = self.next();
            if word != "WATCHDOG=1\n" {
                return word;
            }
        }
    }

    /// Returns how many watchdog signals it has received, and checks that there is nothing else
    /// among them, until a pause of this length.
    fn beats_until(&self, pause: Duration) -> u32 {
        self.socket.set_read_timeout(Some(pause)).unwrap();
        let mut buffer = [0; 4_096];
        let mut beats = 0;
        while let Ok(bytes) = self.socket.recv(&mut buffer) {
            assert_eq!(&buffer[..bytes], b"WATCHDOG=1\n");
            beats += 1;
        }
        self.socket.set_read_timeout(Some(PATIENCE)).unwrap();
        beats
    }
}

#[test]
fn it_hears_everything_once_and_in_order() {
    let hears = Hears::new();
    let manager = Manager::at(hears.path.as_os_str(), None).unwrap();
    let teller = manager.teller();
    // Of no interest before it is ready.
    teller.reloading();
    let rounds = Arc::new(AtomicU64::new(0));
    let progress = {
        let rounds = Arc::clone(&rounds);
        move || rounds.load(Ordering::Relaxed)
    };
    let telling = manager.serve("frames\npass", progress).unwrap();
    hears
        .socket
        .set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    assert!(hears.socket.recv(&mut [0; 64]).is_err(), "it is not ready");
    hears.socket.set_read_timeout(Some(PATIENCE)).unwrap();
    rounds.store(1, Ordering::Relaxed);
    assert_eq!(hears.next(), "READY=1\nSTATUS=frames pass\n");

    for _ in 0..3 {
        teller.reloading();
        teller.reloaded("site.toml was read again\r\nand taken over");
        let reloading = hears.next();
        let micros = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=");
        let micros: u64 = micros.unwrap().trim_end().parse().unwrap();
        assert!(micros > 0);
        let status = "STATUS=site.toml was read again and taken over\n";
        assert_eq!(hears.next(), format!("READY=1\n{status}"));
    }
    teller.stopping();
    drop(telling);
    assert_eq!(hears.next(), "STOPPING=1\nSTATUS=about to end\n");
    // After the end no call waits or fails.
    teller.reloading();
    assert_eq!(hears.beats_until(Duration::from_millis(50)), 0);
}

#[test]
fn watchdog_notification_follows_progress() {
    let hears = Hears::new();
    let watchdog = Duration::from_millis(200);
    let manager = Manager::at(hears.path.as_os_str(), Some(watchdog)).unwrap();
    let rounds = Arc::new(AtomicU64::new(1));
    let made = Arc::clone(&rounds);
    // Before the first signal, which does not wait for its reception.
    let begun = Instant::now();
    let telling = manager.serve("", move || made.load(Ordering::Relaxed));
    let telling = telling.unwrap();
    assert_eq!(hears.next(), "READY=1\nSTATUS=\n");
    for _ in 0..10 {
        rounds.fetch_add(1, Ordering::Relaxed);
        assert_eq!(hears.next(), "WATCHDOG=1\n");
    }
    assert!(begun.elapsed() >= 9 * watchdog / 4, "no more than it needs");
    // The working thread hangs: the manager gets at most a signal for earlier progress.
    assert!(hears.beats_until(5 * watchdog) <= 1);
    // It continues.
    rounds.fetch_add(1, Ordering::Relaxed);
    assert_eq!(hears.next(), "WATCHDOG=1\n");
    // At the end there is no more progress, which is no fault.
    telling_ends(telling, &hears);
}

fn telling_ends(telling: fairlane_service::Telling, hears: &Hears) {
    thread::scope(|scope| {
        scope.spawn(|| drop(telling));
        assert_eq!(hears.next_word(), "STOPPING=1\nSTATUS=about to end\n");
    });
}

#[test]
fn a_daemon_that_is_about_to_end_lives_while_it_does_so() {
    let hears = Hears::new();
    let manager = Manager::at(hears.path.as_os_str(), Some(Duration::from_millis(40))).unwrap();
    let teller = manager.teller();
    let telling = manager.serve("", || 1).unwrap();
    assert_eq!(hears.next(), "READY=1\nSTATUS=\n");
    teller.stopping();
    assert_eq!(hears.next_word(), "STOPPING=1\nSTATUS=about to end\n");
    for _ in 0..5 {
        assert_eq!(hears.next(), "WATCHDOG=1\n");
    }
    drop(telling);
}

#[test]
fn a_manager_may_hear_at_a_socket_without_a_file() {
    let name = format!("fairlane-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let socket = UnixDatagram::bind_addr(&address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let manager = Manager::at(format!("@{name}").as_ref(), None).unwrap();
    let telling = manager.serve("up", || 1).unwrap();
    let mut buffer = [0; 64];
    let bytes = socket.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..bytes], b"READY=1\nSTATUS=up\n");
    drop(telling);
}

#[test]
fn a_manager_that_cannot_be_told_holds_nobody_up() {
    for odd in ["", "notify", "vsock:2:1234"] {
        assert!(Manager::at(odd.as_ref(), None).is_none(), "{odd:?}");
    }
    Teller::default().reloading();
    // There is no listener.
    let nowhere = Manager::at("/no/such/socket".as_ref(), Some(Duration::from_millis(10)));
    drop(nowhere.unwrap().serve("", || 1).unwrap());
    // There is a listener, which reads nothing.
    let hears = Hears::new();
    let manager = Manager::at(hears.path.as_os_str(), None).unwrap();
    let teller = manager.teller();
    let telling = manager.serve("", || 1).unwrap();
    let begun = Instant::now();
    for _ in 0..10_000 {
        teller.reloading();
    }
    assert!(begun.elapsed() < PATIENCE, "whoever tells does not wait");
    drop(telling);
    assert!(begun.elapsed() < PATIENCE);
}
