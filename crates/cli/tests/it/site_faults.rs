//! A running site with a full disk, or with hostile clients: frames pass, and an operation that fails reports one
//! sentence and changes nothing.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use fairlane_netlab::skip;
use fairlane_testkit::long_tests;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde_json::Value;
use tempfile::TempDir;

use crate::program::{self, fairlane};
use crate::site::{PATIENCE, Site, class, up, wire};
use crate::site_control::{Asked, exchanged, request, until_it_tells};
use crate::site_load::config;
use crate::site_reload::numbered;

/// A file system of 128 kB.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn mount(test: &str) -> Option<SmallDisk> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=128k,mode=755", "small"])
            .arg(folder.path())
            .stderr(Stdio::null())
            .status();
        match mounted {
            Ok(status) if status.success() => Some(SmallDisk(folder)),
            _ => {
                skip(test, "nothing can be mounted here");
                None
            }
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Fills it until no byte can be written.
    fn fill(&self) {
        let mut file = File::create(self.path("filler")).unwrap();
        while file.write_all(&[0; 1_024]).is_ok() {}
    }

    fn files(&self) -> usize {
        fs::read_dir(self.0.path()).unwrap().count()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A lazy unmount, since files there may still be open.
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_file_that_cannot_be_saved_for_want_of_room_is_as_it_was() {
    let test = "a full disk";
    let (Some(wire), Some(disk)) = (wire(test, 1), SmallDisk::mount(test)) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("ctl.sock");
    let written = up("packet", "20mbit")
        + "[[link.class]]\nname = \"ours\" # with a comment\nrate = \"8mbit\"\ndefault = true\n"
        + &format!("[control]\nsocket = \"{}\"\n", socket.display());
    let file = disk.path("site.toml");
    fs::write(&file, &written).unwrap();
    // The size of a log of some lines.
    let log = File::create(disk.path("log")).unwrap();
    let mut site = wire.middle().run(|| {
        let mut run = program::command();
        run.args(["run", "--quiet"]).arg(&file);
        run.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        run.spawn().unwrap()
    });
    assert!(wire.is_through(PATIENCE).unwrap(), "nothing passes");
    let ctl = |arguments: &[&str]| {
        fairlane(&[&["ctl", "--socket", socket.to_str().unwrap()], arguments].concat())
    };
    disk.fill();
    let files = disk.files();
    let hosts = (wire.sender(0), wire.receiver());
    let (refused, numbers, sent) = numbered(hosts, 1_001, || {
        assert!(ctl(&["set", "ours", "rate=9mbit"]).status.success());
        let refused = ctl(&["save"]);
        // The results are logged, to a full disk.
        for _ in 0..20 {
            program::signal(&site, "HUP");
            thread::sleep(Duration::from_millis(50));
        }
        refused
    });
    assert!(!refused.status.success(), "{refused:?}");
    assert_eq!(refused.stderr.lines().count(), 1, "{refused:?}");
    assert!(
        refused.stderr.contains("site.toml") && refused.stderr.contains("No space left"),
        "{refused:?}"
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), written);
    assert_eq!(disk.files(), files, "nothing is left beside it");
    assert!(
        numbers.iter().copied().eq(0..sent),
        "{} of {sent}",
        numbers.len()
    );
    fs::remove_file(disk.path("filler")).unwrap();
    ctl(&["set", "ours", "rate=7mbit"]).success();
    ctl(&["save"]).success();
    assert_eq!(
        fs::read_to_string(&file).unwrap(),
        written.replace("8mbit", "7mbit")
    );
    program::signal(&site, "INT");
    assert!(site.wait().unwrap().success());
}

/// Connects without waiting for the server to accept.
fn connects(path: &Path) -> Option<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    connect(&socket, &SocketAddrUnix::new(path).unwrap()).ok()?;
    Some(UnixStream::from(socket))
}

#[test]
fn thousands_of_idle_connections_use_bounded_memory() {
    let Some(wire) = wire("thousands of connections", 1) else {
        return;
    };
    let most = if long_tests() { 10_000 } else { 2_000 };
    let asked = Asked::start(&wire, "packet", "");
    asked.json(&["set", "voice", "ceil=9mbit", "rate=8mbit"]);
    let before = asked.site.memory();
    let hosts = (wire.sender(0), wire.receiver());
    let (most_memory, numbers, sent) = numbered(hosts, 1_001, || {
        let (mut most_memory, mut refused) = (0, 0);
        let mut open = Vec::new();
        let begun = Instant::now();
        for _ in 0..most {
            let mut stream = loop {
                if let Some(stream) = connects(&asked.socket()) {
                    break stream;
                }
                // All connections are in use, and so are those before them: new ones replace old ones.
                refused += 1;
                most_memory = most_memory.max(asked.site.memory());
                open.clear();
                assert!(begun.elapsed() < PATIENCE * 3, "nobody can connect");
                thread::sleep(Duration::from_millis(1));
            };
            // Half of a header: the rest is never sent.
            let _ = stream.write_all(b"GET /v1/state HTTP/1.1\r\nHost: x\r\nX-Slow: ");
            open.push(stream);
        }
        eprintln!("{most} connected, {refused} times all places were taken");
        most_memory.max(asked.site.memory())
    });
    let grown = most_memory.saturating_sub(before) >> 20;
    eprintln!(
        "{grown} MB more in use at the most; {} of {sent} packets",
        numbers.len()
    );
    assert!(grown < 64, "{grown} MB more");
    assert!(
        numbers.iter().copied().eq(0..sent),
        "{} of {sent}",
        numbers.len()
    );
    // All connections are available again.
    assert_eq!(asked.json(&["set", "voice", "rate=7mbit"])["applied"], true);
    asked.site.stop();
}

/// A client that has requested the state, and read its first byte.
fn slow_reader(socket: &Path) -> UnixStream {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let asking = b"GET /v1/state HTTP/1.1\r\nHost: x\r\n\r\n";
    stream.write_all(asking).unwrap();
    stream.read_exact(&mut [0]).unwrap();
    stream
}

/// Returns whether the rest of the stream completes a state.
fn is_whole(stream: UnixStream) -> bool {
    let answer = exchanged(stream, "");
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str::<Value>(body).is_ok()
}

#[test]
fn slow_reader_of_a_large_state_uses_bounded_memory() {
    let count = if long_tests() { 120 } else { 48 };
    let Some(wire) = wire("slow readers of a large state", 1) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("ctl.sock");
    let site = Site::start(&wire, &config(3_000, &socket));
    until_it_tells(&socket);
    let before = site.memory();
    let (mut readers, mut most_memory) = (VecDeque::new(), 0);
    for number in 0..count {
        readers.push_back(slow_reader(&socket));
        // The state changes soon.
        let path = format!("/v1/links/up/classes/c{number}");
        let body = r#"{"ceil": "5mbit"}"#;
        let changed = request(&socket, ("PATCH", &path), "", body);
        assert_eq!(changed.status, 200, "{}", changed.body);
        thread::sleep(Duration::from_millis(20));
        most_memory = most_memory.max(site.memory());
    }
    let grown = most_memory.saturating_sub(before) >> 20;
    eprintln!("{grown} MB more in use at the most");
    // A state for each of them would be some 1.7 MB.
    assert!(grown < count, "{grown} MB more");
    let oldest = readers.pop_front().unwrap();
    assert!(!is_whole(oldest), "what it reads is still retained");
    assert!(is_whole(readers.pop_back().unwrap()));
    assert!(is_whole(slow_reader(&socket)), "another one reads");
    drop(readers);
    site.stop();
}

#[test]
fn a_dry_run_takes_memory_for_the_text_and_not_for_the_queues() {
    const CLASSES: u64 = 2_500;
    let Some(wire) = wire("a dry run of many classes", 1) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("ctl.sock");
    let control = format!("[control]\nsocket = \"{}\"\n", socket.display());
    let text = up("packet", "20mbit") + &control;
    let site = Site::start(&wire, &text);
    until_it_tells(&socket);
    let before = site.peak_memory();
    let classes: String = (0..CLASSES)
        .map(|at| format!("[[link.class]]\nname = \"c{at}\"\nper = \"source-ip\"\n"))
        .collect();
    let config = up("packet", "20mbit") + &classes + &control;
    let put = ("PUT", "/v1/config?dry-run=true");
    let answered = request(&socket, put, "If-Match: *\r\n", &config);
    assert_eq!(answered.status, 200, "{}", answered.body);
    assert!(answered.json()["effects_total"].as_u64() > Some(CLASSES - 1));
    let grown = site.peak_memory() - before;
    eprintln!("{} kB more at the peak", grown >> 10);
    // The queues of a class take 36 kB.
    assert!(grown < CLASSES * (24 << 10), "{grown} bytes more");
    site.stop();
}

/// Returns invalid requests.
fn malformed() -> Vec<(&'static str, Vec<u8>)> {
    let long = |head: &str, bytes: usize, end: &str| {
        [head.as_bytes(), &vec![b'a'; bytes], end.as_bytes()].concat()
    };
    vec![
        ("noise", (0..4_096u32).map(|n| ((n * 167) >> 3) as u8).collect()),
        ("no version", b"GET /v1/state\r\n\r\n".to_vec()),
        ("a future version", b"GET / HTTP/9.9\r\nHost: x\r\n\r\n".to_vec()),
        ("a NUL", b"GET /\0 HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
        ("a long path", long("GET /", 1 << 20, " HTTP/1.1\r\nHost: x\r\n\r\n")),
        ("a long head", long("GET / HTTP/1.1\r\nX: ", 1 << 20, "\r\n\r\n")),
        (
            "many heads",
            [b"GET / HTTP/1.1\r\n".to_vec(), b"X: y\r\n".repeat(10_000), b"\r\n".to_vec()].concat(),
        ),
        (
            "a negative length",
            b"POST /v1/changes HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n".to_vec(),
        ),
        (
            "two lengths",
            b"POST /v1/changes HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n[]"
                .to_vec(),
        ),
        (
            "no chunk",
            b"POST /v1/changes HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n".to_vec(),
        ),
        (
            "chunks without an end",
            [
                b"POST /v1/changes HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec(),
                [b"8000\r\n".to_vec(), vec![b' '; 0x8000], b"\r\n".to_vec()].concat().repeat(100),
            ]
            .concat(),
        ),
        (
            "deep JSON",
            [
                b"POST /v1/changes HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n".to_vec(),
                vec![b'['; 100_000],
            ]
            .concat(),
        ),
        (
            "no UTF-8",
            b"POST /v1/changes HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n\xff\xfe\"\x80".to_vec(),
        ),
    ]
}

#[test]
fn malformed_requests_get_an_error_and_stop_no_client() {
    let Some(wire) = wire("requests that are none", 1) else {
        return;
    };
    let asked = Asked::start(&wire, "packet", "");
    let before = (asked.config(), asked.site.memory());
    for (what, bytes) in malformed() {
        let begun = Instant::now();
        let stream = UnixStream::connect(asked.socket()).unwrap();
        // A little less than it waits for the rest of a request.
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let answer = exchanged(stream, &bytes);
        let status = answer.split(' ').nth(1).unwrap_or("");
        assert!(
            answer.is_empty() || status.starts_with('4'),
            "{what}: {}",
            answer.lines().next().unwrap_or("")
        );
        // The site rejects an invalid request without waiting for the rest of it.
        assert!(begun.elapsed() < PATIENCE, "{what}");
    }
    assert_eq!(asked.config(), before.0);
    let grown = asked.site.memory().saturating_sub(before.1) >> 20;
    assert!(grown < 32, "{grown} MB more");
    let known = exchanged(
        UnixStream::connect(asked.socket()).unwrap(),
        "GET /v1/state HTTP/1.1\r\nHost: x\r\n\r\n",
    );
    assert!(known.starts_with("HTTP/1.1 200 "), "{known}");
    let report = asked.site.stop();
    assert_eq!(class(&report, "up", "voice")["drops"]["full"], 0);
}
