//! `fairlane run --attach`: other processes as clients, each with the weight of its rule.
#![cfg(target_os = "linux")]

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::program::{self, Pressure, fairlane, start};
use crate::site::PATIENCE;
use fairlane_runtime::attach::{ConnectError, ProcessClient, connect};
use serde_json::Value;

/// Connects as soon as the socket is listened on.
fn attach(path: &Path) -> Result<ProcessClient, ConnectError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match connect(path) {
            // The socket does not exist yet, or is not listened on yet.
            Err(ConnectError::Unreachable { .. }) if Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(5));
            }
            outcome => return outcome,
        }
    }
}

/// The same, once a place is free.
fn attach_when_free(path: &Path) -> ProcessClient {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match attach(path) {
            Err(ConnectError::Refused(_)) if Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(5));
            }
            outcome => return outcome.unwrap(),
        }
    }
}

fn run(path: &Path, rules: &[&str]) -> program::Running {
    run_with(path, rules, &[])
}

fn run_with(path: &Path, rules: &[&str], options: &[&str]) -> program::Running {
    let path = path.to_str().unwrap();
    let mut arguments = vec!["run", "--json", "--weights", "none"];
    arguments.extend(["--listen", "127.0.0.1:0", "--attach", path]);
    for rule in rules {
        arguments.extend(["--allow", rule]);
    }
    arguments.extend(options);
    start(&arguments)
}

/// Stops the program, after time for the packets pushed so far, and returns its output.
#[track_caller]
fn end(mut running: program::Running) -> String {
    Pressure::sleep(Duration::from_millis(500));
    running.signal("INT");
    running.finish().success()
}

#[test]
fn a_process_that_attaches_has_a_flow_with_the_weight_of_its_rule() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("link.sock");
    let running = run(&path, &["uid=4294967294:9", "any:4"]);
    let mut client = attach(&path).unwrap();
    assert_eq!(client.weight().get(), 4);
    for number in 0..100_u8 {
        client.push(&[number; 200]).unwrap();
    }
    // It stays attached until the end.
    let report: Value = serde_json::from_str(&end(running)).unwrap();
    drop(client);
    let flows = report["flows"].as_array().unwrap();
    assert_eq!(flows.len(), 1, "{report}");
    assert_eq!(flows[0]["name"], "any #1");
    assert_eq!(flows[0]["weight"], 4);
    assert_eq!(flows[0]["sent_packets"], 100);
    assert_eq!(flows[0]["received_packets"], 100);
    let arbiter = &report["arbiter"];
    assert!(arbiter["delta_a_us"]["max"].is_f64(), "{report}");
    assert!(arbiter["sleeps"].as_u64().unwrap() > 0, "{report}");
    assert!(!path.exists(), "the socket's file is removed");
}

#[test]
fn processes_that_come_and_go_take_the_flows_of_those_that_went() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("link.sock");
    // A place becomes free when the arbiter has released its client; until then, no other client is accepted.
    let running = run_with(&path, &["any:1"], &["--attach-per-user", "8"]);
    for number in 0..40_u8 {
        let mut client = attach_when_free(&path);
        client.push(&[number; 100]).unwrap();
        drop(client);
    }
    let report: Value = serde_json::from_str(&end(running)).unwrap();
    let flows = report["flows"].as_array().unwrap();
    assert!(flows.len() < 20, "{report}");
    let sent: u64 = flows
        .iter()
        .map(|flow| flow["sent_packets"].as_u64().unwrap())
        .sum();
    assert_eq!(sent, 40);
}

#[test]
fn a_user_and_all_together_get_the_places_and_the_memory_that_were_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let most = |name: &str, rule: &str, options: &[&str]| {
        let path = folder.path().join(name);
        let running = run_with(&path, &[rule], options);
        let mut clients = vec![attach(&path).unwrap()];
        let refused = loop {
            match connect(&path) {
                Ok(client) => clients.push(client),
                Err(refused) => break refused.to_string(),
            }
        };
        end(running);
        (clients.len(), refused)
    };
    let me = format!("uid={}:1", rustix::process::getuid().as_raw());
    let (places, refused) = most("a", "any:1", &[]);
    assert_eq!(places, 16);
    assert!(
        refused.ends_with("the most that one user may have"),
        "{refused}"
    );
    let (places, _) = most("b", &me, &[]);
    assert_eq!(places, 64, "nobody else could have them");
    let (places, _) = most("c", &me, &["--attach-per-user", "3"]);
    assert_eq!(places, 3);
    let (places, refused) = most("d", &me, &["--attach-memory", "10mb"]);
    assert_eq!(places, 4);
    assert!(
        refused.ends_with("of the 10485760 for all of them are taken"),
        "{refused}"
    );
}

#[test]
fn process_without_a_rule_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("link.sock");
    let running = run(&path, &["uid=4294967294:1"]);
    let refused = attach(&path).unwrap_err().to_string();
    assert!(refused.contains("uid"), "{refused}");
    let report: Value = serde_json::from_str(&end(running)).unwrap();
    assert_eq!(report["flows"].as_array().unwrap().len(), 0);
}

#[test]
fn what_cannot_be_attached_to_is_refused_with_status_2() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a file");
    std::fs::write(&file, "").unwrap();
    let file = file.to_str().unwrap();
    for (arguments, names) in [
        (&["--attach", file][..], "--allow"),
        (&["--attach", file, "--allow", "any:1"], "not a socket"),
        (&["--attach", file, "--allow", "someone:1"], "someone"),
        (&["--attach", file, "--allow", "any:0"], "'0'"),
        (
            &[
                "--attach",
                "x.sock",
                "--allow",
                "any:1",
                "--attach-per-user",
                "0",
            ],
            "--attach-per-user",
        ),
        (
            &[
                "--attach",
                "x.sock",
                "--allow",
                "any:1",
                "--attach-memory",
                "2",
            ],
            "units",
        ),
        (
            &[
                "--attach",
                "x.sock",
                "--allow",
                "any:1",
                "--attach-memory",
                "1mb",
            ],
            "all of them may take 1048576",
        ),
        (&["--attach-memory", "1mb"], "--attach"),
        (&["--dedicated", "100000"], "--dedicated 100000"),
        (&["--dispatchers", "17"], "--dispatchers"),
    ] {
        let options = ["run", "--seconds", "1", "--listen", "127.0.0.1:0"];
        let refused = fairlane(&[&options[..], arguments].concat());
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(refused.stderr.contains(names), "{refused:?}");
        assert_eq!(refused.stderr.trim_end().lines().count(), 1, "{refused:?}");
    }
}

#[test]
fn dispatchers_and_a_core_of_its_own_carry_what_the_arbiter_alone_does() {
    for options in [&["--dispatchers", "2"][..], &["--dedicated", "0"]] {
        let common = [
            "run",
            "--json",
            "--seconds",
            "1",
            "--rate",
            "20mbit",
            "--listen",
        ];
        let report = fairlane(&[&common[..], &["127.0.0.1:0"], options].concat()).success();
        let report: Value = serde_json::from_str(&report).unwrap();
        let used = report["link"]["utilisation"].as_f64().unwrap();
        // As much as a busy machine allows.
        assert!((0.1..1.2).contains(&used), "{options:?}: {report}");
        let dispatched = !report["arbiter"]["delta_d_us"].is_null();
        assert_eq!(dispatched, options[0] == "--dispatchers", "{report}");
    }
}
