//! `fairlane-lab reproduce altq-*`: real TCP through the daemon, and what is said where it cannot be.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::program::{self, fairlane};
use fairlane_netlab::{Namespace, iperf_is_installed, long_tests, or_skip, skip_unsupported};
use serde_json::Value;

/// Those whose traffic is TCP.
const WITH_TCP: [&str; 4] = [
    "altq-overhead",
    "altq-allocation",
    "altq-guarantee",
    "altq-sharing",
];

fn program() -> Command {
    Command::new(program::PROGRAM)
}

/// Status 2 and one sentence that has these words, and nothing was made.
#[track_caller]
fn refuses(output: &Output, out: &Path, words: &[&str]) {
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr);
    let sentence = text.strip_suffix('\n').unwrap_or_default();
    assert!(
        sentence.starts_with("fairlane: ") && !sentence.contains('\n'),
        "{text}"
    );
    for word in words {
        assert!(sentence.contains(word), "{word} is not in: {sentence}");
    }
    assert!(!out.exists());
}

#[test]
fn without_iperf3_one_sentence_says_where_it_is_to_be_had() {
    let Some(_) = or_skip("without iperf3", Namespace::new()) else {
        return;
    };
    let temporary = tempfile::tempdir().unwrap();
    let out = temporary.path().join("out");
    for name in WITH_TCP {
        let mut command = program();
        command.args(["reproduce", name, "--out"]).arg(&out);
        // Where no program is to be found.
        let output = command.env("PATH", temporary.path()).output().unwrap();
        refuses(&output, &out, &["iperf3 is not installed", "Debian"]);
    }
}

#[test]
fn without_privilege_one_sentence_says_which_is_needed() {
    for name in WITH_TCP.iter().chain(&["altq-filters"]) {
        let temporary = tempfile::tempdir().unwrap();
        let out = temporary.path().join("out");
        let open_to_all = fs::Permissions::from_mode(0o777);
        fs::set_permissions(temporary.path(), open_to_all).unwrap();
        let mut command = program();
        command.args(["reproduce", name, "--out"]).arg(&out);
        match command.uid(65_534).gid(65_534).output() {
            Ok(output) => refuses(&output, &out, &["CAP_NET_ADMIN"]),
            Err(error) => return skip_unsupported("as another user", error),
        }
    }
}

/// Whether TCP flows between namespaces can be had.
fn can(test: &str) -> bool {
    let network = or_skip(test, Namespace::new()).is_some();
    network && or_skip(test, iperf_is_installed()).is_some()
}

#[test]
fn a_trace_of_real_flows_is_measured_and_written() {
    if !long_tests() {
        return skip_unsupported("half a minute of TCP", "FAIRLANE_LONG_TESTS is not set");
    }
    if !can("a trace of real flows") {
        return;
    }
    let temporary = tempfile::tempdir().unwrap();
    let out = temporary.path().to_str().unwrap();
    let arguments = [
        "reproduce",
        "altq-guarantee",
        "--seconds",
        "4",
        "--json",
        "--out",
        out,
    ];
    let printed = fairlane(&arguments).success();
    let result: Value = serde_json::from_str(&printed).unwrap();
    let runs = result["figures"]["ours"].as_array().unwrap();
    let ways: Vec<&str> = runs
        .iter()
        .map(|run| run["way"].as_str().unwrap())
        .collect();
    assert!(
        ways.contains(&"packet") && ways.contains(&"xdp"),
        "{ways:?}"
    );
    for run in runs {
        let classes = run["trace"]["classes"].as_array().unwrap();
        assert_eq!(classes.len(), 5);
        // A class has something while its flow sends, and the background always.
        for (class, times) in classes.iter().zip(run["times"].as_array().unwrap()) {
            let most = class
                .as_array()
                .unwrap()
                .iter()
                .map(|mbit| mbit.as_f64().unwrap());
            assert!(most.fold(0.0, f64::max) > 5.0, "{class} in {times}");
        }
    }
    for file in ["plot.png", "plot.svg", "result.json", "result.md"] {
        assert!(temporary.path().join(file).is_file(), "{file}");
    }
}

/// Processes whose command line names this folder.
fn processes_of(folder: &Path) -> Vec<String> {
    let all = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let lines = all.filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok());
    let folder = folder.to_str().unwrap();
    lines.filter(|line| line.contains(folder)).collect()
}

#[test]
fn an_interrupt_ends_the_daemon_too_and_leaves_no_trace() {
    if !can("an interrupted experiment") {
        return;
    }
    let temporary = tempfile::tempdir().unwrap();
    let out = temporary.path().join("out");
    let sites = temporary.path().join("sites");
    fs::create_dir(&sites).unwrap();
    let mut command = program();
    command
        .args(["reproduce", "altq-guarantee", "--out"])
        .arg(&out);
    // The daemon's file is made there.
    command
        .env("TMPDIR", &sites)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while processes_of(&sites).is_empty() {
        assert!(Instant::now() < deadline, "no daemon");
        thread::sleep(Duration::from_millis(20));
    }
    thread::sleep(Duration::from_millis(500));
    let kill = format!("kill -INT {}", child.id());
    assert!(
        Command::new("sh")
            .args(["-c", &kill])
            .status()
            .unwrap()
            .success()
    );
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    assert!(Instant::now() < deadline);
    assert_eq!(processes_of(&sites), Vec::<String>::new());
    assert!(!out.exists() && fs::read_dir(&sites).unwrap().next().is_none());
}
