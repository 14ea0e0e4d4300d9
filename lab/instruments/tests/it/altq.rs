//! `fairlane-instruments altq`: its message without namespaces, and its cleanup.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Output, Stdio};
use std::thread;
use std::time::Duration;

use crate::program;
use fairlane_netlab::{Namespace, or_skip, skip_unsupported};
use rustix::process::{Pid, Signal, kill_process};

const TCP: [&str; 4] = ["altq", "tcp", "--flow", "0:5201:0:1"];

/// Status 2 and one sentence that has these words.
#[track_caller]
fn refuses(output: &Output, words: &[&str]) {
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
}

#[test]
fn without_iperf3_one_sentence_says_where_it_is_to_be_had() {
    let Some(_) = or_skip("without iperf3", Namespace::new()) else {
        return;
    };
    let nothing = tempfile::tempdir().unwrap();
    let mut command = program::command();
    // A place without programs.
    let output = command.args(TCP).env("PATH", nothing.path()).output();
    refuses(&output.unwrap(), &["iperf3 is not installed", "Debian"]);
}

#[test]
fn without_privilege_one_sentence_says_which_is_needed() {
    // Without programs either: a lack of one must not hide this.
    let nothing = tempfile::tempdir().unwrap();
    for arguments in [&TCP[..], &["altq", "round-trip"]] {
        let mut command = program::command();
        command.args(arguments).env("PATH", nothing.path());
        let output = command.uid(65_534).gid(65_534).output();
        match output {
            Ok(output) => refuses(&output, &["CAP_NET_ADMIN"]),
            Err(error) => return skip_unsupported("as another user", error),
        }
    }
}

/// Forwards, and so never ends by itself.
const SITE: &str = "\
[interfaces]
inside = \"inside\"
outside = \"outside\"
[[link]]
name = \"up\"
to = \"outside\"
rate = \"100mbit\"
algorithm = \"qfq\"
[[link.class]]
name = \"all\"
default = true
";

/// Processes whose command line names this file.
fn processes_of(file: &Path) -> usize {
    let all = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let lines = all.filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok());
    let file = file.to_str().unwrap();
    lines.filter(|line| line.contains(file)).count()
}

#[test]
fn an_interrupt_ends_the_daemon_too() {
    let Some(_) = or_skip("an interrupted instrument", Namespace::new()) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let site = folder.path().join("site.toml");
    fs::write(&site, SITE).unwrap();
    let mut command = program::command();
    command.args(["altq", "round-trip", "--seconds", "1000", "--site"]);
    command
        .arg(&site)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    // Itself, and the daemon.
    while processes_of(&site) < 2 {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        thread::sleep(Duration::from_millis(20));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(processes_of(&site), 0);
}
