//! Invalid files, full outputs, and a process with few descriptors: one sentence, status 2, and never a panic.
#![cfg(target_os = "linux")]

use std::fmt::Write as _;
use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::program::{self, PROGRAM, fairlane};
use fairlane_testkit::long_tests;
use rustix::fs::{CWD, FileType, Mode, mknodat};

const SITE: &str = "[[link]]\nname = \"up\"\nrate = \"40mbit\"\n";

#[track_caller]
fn refuses(path: &str, sentence: &str) {
    for command in ["check", "run"] {
        let finished = fairlane(&[command, path]);
        assert_eq!(finished.status.code(), Some(2), "{finished:?}");
        assert_eq!(finished.stderr, format!("fairlane: {sentence}\n"));
    }
}

#[test]
fn file_that_is_not_text_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("site.toml");
    let name = path.to_str().unwrap();
    refuses(
        "/dev/zero",
        "/dev/zero: longer than 16 MiB, the most that is read",
    );
    let here = folder.path().to_str().unwrap();
    refuses(here, &format!("{here}: Is a directory (os error 21)"));
    fs::write(&path, [0xff, 0xfe]).unwrap();
    refuses(name, &format!("{name}: this is not text in UTF-8"));
    fs::write(&path, format!("{SITE}\0")).unwrap();
    let finished = fairlane(&["check", name]);
    assert_eq!(finished.status.code(), Some(2), "{finished:?}");
    assert!(
        finished.stderr.starts_with(&format!("{name}:4:")),
        "{finished:?}"
    );
    assert_eq!(finished.stderr.lines().count(), 1, "{finished:?}");
}

#[test]
fn reading_a_pipe_waits_for_its_writer_and_logs_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let mut waiting = program::start(&["check", path.to_str().unwrap()]);
    // Longer than the program waits before its message.
    thread::sleep(Duration::from_millis(1_500));
    fs::write(&path, SITE).unwrap();
    assert!(waiting.line().starts_with("up leaves by outside"));
    let finished = waiting.finish();
    assert!(finished.status.success(), "{finished:?}");
    let path = path.display();
    assert_eq!(
        finished.stderr,
        format!("fairlane: {path} is not a regular file: waiting for its writer\n")
    );
}

#[test]
fn where_nothing_can_be_said_the_status_says_it() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.csv");
    let replay = [
        "replay",
        "--rate",
        "8mbit",
        "--alg",
        "qfq",
        "--report",
        "--flows",
        concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../examples/replay/flows.csv"
        ),
        concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../examples/replay/arrivals.csv"
        ),
    ];
    let site = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/home-gateway.toml"
    );
    for arguments in [
        &["check", "nosuch.toml"][..],
        &["check", "/dev/zero"],
        &["check", "--bogus"],
        &[],
        &["check", site],
        &["run", "nosuch.toml"],
        &["sim", "nosuch.toml"],
        &["bench", "--bogus"],
        &["replay", "nosuch.csv", "--config", "nosuch.toml"],
        &replay,
        &[&replay[..], &["-o", out.to_str().unwrap()]].concat(),
    ] {
        let full = || File::options().write(true).open("/dev/full").unwrap();
        let status = program::command()
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(full())
            .stderr(full())
            .status()
            .unwrap();
        assert_eq!(status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn file_descriptor_limit_error_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("link.sock");
    let run = ["run", "--seconds", "0.1", "--listen", "127.0.0.1:0"];
    let attach = ["--attach", socket.to_str().unwrap(), "--allow", "any:1"];
    let mut sentences = String::new();
    for files in 4..24 {
        // The limit of `ulimit -n`; standard input, output and error are open.
        let finished = Command::new("sh")
            .args([
                "-c",
                &format!("ulimit -n {files} && exec \"$0\" \"$@\""),
                PROGRAM,
            ])
            .args(run)
            .args(attach)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let told = String::from_utf8(finished.stderr).unwrap();
        match finished.status.code() {
            Some(0) => continue,
            // The process failed before the program started.
            Some(127) => continue,
            code => assert_eq!(code, Some(2), "{files} files: {told}"),
        }
        let what = [
            "listening for datagrams on 127.0.0.1:0: ",
            "opening a socket",
            "setting up Ctrl-C: ",
            "cannot listen at ",
        ];
        assert!(
            what.iter()
                .any(|what| told.starts_with(&format!("fairlane: {what}"))),
            "{files} files: {told}"
        );
        assert!(
            told.contains("Too many open files"),
            "{files} files: {told}"
        );
        assert_eq!(told.lines().count(), 1, "{files} files: {told}");
        write!(sentences, "{files}: {told}").unwrap();
    }
    assert!(sentences.contains("cannot listen at "), "{sentences}");
}

/// Texts up to the longest accepted length, which could exhaust a parser or a check: each is rejected with few
/// sentences, or checked, in bounded memory.
#[test]
fn no_text_exhausts_memory() {
    const LONGEST: usize = 16 << 20;
    let head =
        "[[link]]\nname = \"up\"\nrate = \"1gbit\"\n[[link.class]]\nname = \"a\"\ndefault = true\n";
    let fill = |part: &str| part.repeat((LONGEST - head.len() - 100) / part.len());
    let classes = |count: usize| -> String {
        let class = |at| format!("[[link.class]]\nname = \"c{at}\"\nper = \"source-ip\"\n");
        (0..count).map(class).collect()
    };
    let unmatched = |count| "[[link.filter]]\nclass = \"a\"\ndscp = 5\n".repeat(count);
    let unknown = |count| "[[link.filter]]\nclass = \"b\"\n".repeat(count);
    let long = |name: &str| format!("{head}[[link.filter]]\nclass = \"{name}\"\n");
    let beyond = "is beyond 3000000 words, numbers and marks";
    let tables: String = (0..90_000).map(|at| format!("[a{at}.b]\nc=1\n")).collect();
    let dotted: String = (0..150_000).map(|at| format!("a{at}.b=1\n")).collect();
    let mut texts = vec![
        (fill("\n"), 2, beyond),
        (head.to_owned() + &fill("[[link.class]]\n"), 2, beyond),
        ("a".to_owned() + &fill(".a") + "=1", 2, beyond),
        // Each has more tables than a text may have.
        (tables, 2, beyond),
        (dotted, 2, beyond),
        (head.to_owned() + &fill(" "), 0, ""),
        // Together their queues would take 230 MB.
        (head.to_owned() + &classes(6_000), 0, ""),
        (
            head.to_owned() + &unmatched(500),
            0,
            "(and 496 more warnings like this)",
        ),
        (head.to_owned() + &unknown(500), 2, "(and 400 more errors)"),
        (long(&"b".repeat(1 << 20)), 2, "does not exist"),
    ];
    // In kilobytes. A name of 16 MB is in the sentence about it, and that in JSON.
    let limit = if long_tests() { 300_000 } else { 200_000 };
    if long_tests() {
        let ranges = |source: &str| -> String {
            let range = |at| format!("{}-{}", at + 1, at + 20_001);
            let filter = |at| {
                let ports = format!("destination-port = \"{}\"", range(at));
                let source = source.replace('R', &range(20_000 - at));
                format!("[[link.filter]]\nclass = \"a\"\nprotocol = \"udp\"\n{ports}\n{source}\n")
            };
            (0..20_000).map(filter).collect()
        };
        texts.extend([
            (head.to_owned() + &fill("\n"), 2, beyond),
            (head.to_owned() + &fill("#\n"), 2, beyond),
            ("a=[".to_owned() + &fill("1,") + "]", 2, beyond),
            (head.to_owned() + &ranges(""), 0, ""),
            (head.to_owned() + &ranges("source-port = \"R\""), 0, ""),
            (head.to_owned() + &classes(20_000), 0, ""),
            (
                head.to_owned() + &unmatched(5_000),
                0,
                "(and 4996 more warnings like this)",
            ),
            (
                head.to_owned() + &unknown(20_000),
                2,
                "(and 19900 more errors)",
            ),
            (long(&fill("b")), 2, "does not exist"),
        ]);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("site.toml");
    let path = path.to_str().unwrap();
    for (text, status, says) in texts {
        fs::write(path, &text).unwrap();
        let limited = format!("ulimit -v {limit}; exec {PROGRAM} check --json {path}");
        let output = Command::new("sh").args(["-c", &limited]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let begins = &text[..text.len().min(200)];
        let (first, lines) = (
            said.lines().next().unwrap_or_default(),
            said.lines().count(),
        );
        assert_eq!(output.status.code(), Some(status), "{begins}: {first:.300}");
        assert!(
            lines <= 101 && said.contains(says),
            "{begins}: {first:.300}"
        );
    }
}
