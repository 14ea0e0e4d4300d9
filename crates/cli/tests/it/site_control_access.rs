//! Access to a running site: tokens over HTTP, and the mode of its socket.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use fairlane_netlab::{Link, Wire};

use crate::program::{Finished, PROGRAM, fairlane};
use crate::site::{PATIENCE, wire};
use crate::site_control::{Asked, exchanged, write_token};

pub(crate) const TOKEN: &str = "a token that nobody guesses";
pub(crate) const READ_TOKEN: &str = "a token with which to read";
/// A loopback address in the middle namespace that no other test uses.
pub(crate) const HTTP: &str = "127.0.0.1:7172";

/// A site with HTTP access and these token files.
pub(crate) struct Served<'a> {
    wire: &'a Wire,
    pub(crate) asked: Asked,
    folder: tempfile::TempDir,
}

impl<'a> Served<'a> {
    pub(crate) fn start(wire: &'a Wire, tokens: &[(&str, &str)]) -> Served<'a> {
        let folder = tempfile::tempdir().unwrap();
        Link::find(wire.middle(), "lo").unwrap().up().unwrap();
        let mut control = format!("http = \"{HTTP}\"\n");
        for (key, token) in tokens {
            let file = folder.path().join(key);
            write_token(&file, token);
            control += &format!("{key} = \"{}\"\n", file.display());
        }
        let asked = Asked::start(wire, "packet", &control);
        Served {
            wire,
            asked,
            folder,
        }
    }

    /// Connects to its HTTP port.
    pub(crate) fn connect(&self) -> TcpStream {
        self.connect_to(HTTP.parse().unwrap())
    }

    /// Connects to another program in the middle namespace.
    pub(crate) fn connect_to(&self, address: SocketAddr) -> TcpStream {
        let connect = || TcpStream::connect(address).unwrap();
        self.wire.middle().run(connect)
    }

    fn file(&self, key: &str) -> PathBuf {
        self.folder.path().join(key)
    }

    /// Returns the answer to a request with this token; a PATCH changes the rate.
    fn answer(&self, method: &str, path: &str, token: Option<&str>) -> String {
        let token = token.map_or(String::new(), |token| {
            format!("Authorization: Bearer {token}\r\n")
        });
        let body = match method {
            "PATCH" => "{\"rate\":\"9mbit\"}",
            _ => "",
        };
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {HTTP}\r\n{token}Content-Length: {length}\r\n\r\n{body}"
        );
        exchanged(self.connect(), request)
    }

    #[track_caller]
    fn is_answered(&self, method: &str, path: &str, token: Option<&str>, status: u16) -> String {
        let answer = self.answer(method, path, token);
        let begins = answer.starts_with(&format!("HTTP/1.1 {status} "));
        assert!(begins, "{method} {path} with {token:?}: {answer}");
        answer
    }

    /// Runs `fairlane ctl` over HTTP with a token file.
    fn ctl(&self, token: &Path, arguments: &[&str]) -> Finished {
        let over = ["ctl", "--http", HTTP, "--token", token.to_str().unwrap()];
        let middle = self.wire.middle();
        middle.run(|| fairlane(&[&over[..], arguments].concat()))
    }
}

#[test]
fn http_read_without_read_token_is_refused() {
    let Some(wire) = wire("a site behind two tokens", 1) else {
        return;
    };
    let tokens = [("token", TOKEN), ("read-token", READ_TOKEN)];
    let site = Served::start(&wire, &tokens);
    let before = site.asked.config();
    for path in [
        "/v1/state",
        "/v1/config",
        "/v1/links/up/classes/voice",
        "/v1/events",
        "/v1/openapi.json",
        "/metrics",
        "/v1/nothing",
    ] {
        for token in [None, Some("a token of the same length"), Some("")] {
            let refused = site.is_answered("GET", path, token, 401);
            assert!(refused.contains("\r\nwww-authenticate: Bearer\r\n"));
            assert!(refused.contains("read-token"), "{refused}");
        }
    }
    site.is_answered("HEAD", "/v1/state", None, 401);
    // The page itself needs no token; its requests do.
    site.is_answered("GET", "/", None, 200);
    // The token for changes also allows reading; the read token allows no change.
    for token in [READ_TOKEN, TOKEN] {
        let state = site.is_answered("GET", "/v1/state", Some(token), 200);
        assert!(state.contains("\"voice\""), "{state}");
        site.is_answered("GET", "/metrics", Some(token), 200);
    }
    for token in [None, Some(READ_TOKEN)] {
        let refused = site.is_answered("PATCH", "/v1/links/up", token, 401);
        assert!(
            refused.contains("the first line of the file named by token"),
            "{refused}"
        );
    }
    let (read, change) = (site.file("read-token"), site.file("token"));
    let shown = site.ctl(&read, &["show"]).success();
    assert!(shown.contains("voice"), "{shown}");
    let set = ["set", "voice", "rate=3mbit"];
    let refused = site.ctl(&read, &set);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(refused.stderr.contains("access token"), "{refused:?}");
    assert_eq!(
        site.asked.config(),
        before,
        "and without a token by the socket"
    );
    site.ctl(&change, &set).success();
    site.is_answered("PATCH", "/v1/links/up", Some(TOKEN), 200);
    let changed = before.replace("20mbit", "9mbit").replace("2mbit", "3mbit");
    assert_eq!(site.asked.config(), changed);
    site.asked.site.stop();
}

#[test]
fn http_change_with_only_a_read_token_is_refused() {
    let Some(wire) = wire("a site to be read", 1) else {
        return;
    };
    let site = Served::start(&wire, &[("read-token", READ_TOKEN)]);
    site.is_answered("GET", "/v1/state", None, 401);
    site.is_answered("GET", "/v1/state", Some(READ_TOKEN), 200);
    // A health probe needs no token.
    site.is_answered("GET", "/healthz", None, 200);
    site.is_answered("POST", "/healthz", Some(READ_TOKEN), 403);
    for token in [None, Some(READ_TOKEN)] {
        let refused = site.is_answered("PATCH", "/v1/links/up", token, 403);
        assert!(refused.contains("names no token file"), "{refused}");
    }
    assert!(site.asked.config().contains("20mbit"));
    site.asked.site.stop();
}

/// A user and a group that own nothing.
const OTHER: u32 = 65_534;

/// Returns whether another user, of this group, gets an answer at the socket, through a copy of the program that it may
/// read.
fn is_answered_for_another(program: &Path, socket: &Path, group: u32) -> bool {
    let mut command = Command::new(program);
    command
        .args(["ctl", "--socket", socket.to_str().unwrap(), "config"])
        .current_dir("/")
        .uid(OTHER)
        .gid(group);
    let begun = Instant::now();
    let output = loop {
        match command.output() {
            // Another test that is starting a process may still have the copy open for writing.
            Err(error)
                if error.kind() == ErrorKind::ExecutableFileBusy && begun.elapsed() < PATIENCE =>
            {
                thread::sleep(Duration::from_millis(5));
            }
            output => break output.unwrap(),
        }
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() || said.contains("ermission denied"),
        "{said}"
    );
    output.status.success()
}

#[test]
fn socket_mode_decides_which_users_connect() {
    let Some(wire) = wire("a socket's mode", 1) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("fairlane");
    fs::copy(PROGRAM, &program).unwrap();
    // Whether a user of root's group, and one of another, gets an answer.
    for (mode, bits, of_group, anybody) in [
        ("0600", 0o600, false, false),
        ("0660", 0o660, true, false),
        ("666", 0o666, true, true),
    ] {
        let asked = Asked::start(&wire, "packet", &format!("socket-mode = \"{mode}\"\n"));
        let socket = asked.socket();
        let around = Permissions::from_mode(0o755);
        fs::set_permissions(socket.parent().unwrap(), around).unwrap();
        let has = fs::metadata(&socket).unwrap().permissions().mode();
        assert_eq!(has & 0o777, bits, "{has:o}");
        assert_eq!(
            is_answered_for_another(&program, &socket, 0),
            of_group,
            "{mode}"
        );
        assert_eq!(
            is_answered_for_another(&program, &socket, OTHER),
            anybody,
            "{mode}"
        );
        assert!(asked.config().contains(mode));
        asked.site.stop();
    }
}
