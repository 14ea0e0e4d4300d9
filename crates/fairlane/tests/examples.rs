//! The examples do what they say.

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The program that cargo builds of an example, beside this test. It has built it already unless this
/// test is run alone.
fn example(name: &str) -> Command {
    let test = std::env::current_exe().expect("the test's own path");
    let folder = test.ancestors().nth(2).expect("target/debug");
    let program = folder.join("examples").join(name);
    if !program.exists() {
        let built = Command::new(env!("CARGO"))
            .args([
                "build",
                "--quiet",
                "--package",
                "fairlane",
                "--example",
                name,
            ])
            .status();
        assert!(built.is_ok_and(|built| built.success()), "{name} is built");
    }
    let mut command = Command::new(program);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Ends the process where the test fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs an example to its end: the percents behind the colons of its lines, and all that it said.
fn shares_of(name: &str) -> (Vec<f64>, String) {
    let output = example(name).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let shares = text
        .lines()
        .filter_map(|line| line.split_once(": ")?.1.split_once('%')?.0.parse().ok())
        .collect();
    (shares, text)
}

#[test]
fn threads_share_the_link_by_weight() {
    let (shares, text) = shares_of("threads");
    assert_eq!(shares.len(), 8, "{text}");
    // However busy the machine is, a heavier sender has more, and the heaviest far more than the lightest.
    // A thread that had no core for a while has less than its part.
    assert!((shares.iter().sum::<f64>() - 100.0).abs() < 1.0, "{text}");
    assert!(shares[7] > 2.0 * shares[0], "{text}");
}

#[test]
fn tenants_share_tokens_by_weight_whatever_they_estimate() {
    let (shares, text) = shares_of("inference");
    assert_eq!(shares.len(), 3, "{text}");
    for (share, part) in shares.iter().zip([25.0, 50.0, 25.0]) {
        assert!((share - part).abs() < 3.0, "{text}");
    }
}

#[test]
fn a_proxy_passes_datagrams_on_and_ends_by_a_signal() {
    let upstream = UdpSocket::bind("127.0.0.1:0").unwrap();
    upstream
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    let to = upstream.local_addr().unwrap().to_string();
    let child = example("proxy")
        .args(["127.0.0.1:0", &to, "10mbit"])
        .spawn()
        .unwrap();
    let mut proxy = Running(child);
    let mut lines = BufReader::new(proxy.0.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    let listening = line.trim().rsplit(' ').next().unwrap();
    let listening: SocketAddr = listening.parse().unwrap();

    let senders = [0, 1].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
    let (start, mut seen) = (Instant::now(), [false; 2]);
    while seen != [true; 2] {
        assert!(start.elapsed() < Duration::from_secs(60), "{seen:?}");
        for (number, sender) in senders.iter().enumerate() {
            sender.send_to(&[number as u8; 100], listening).unwrap();
        }
        let mut buffer = [0; 2000];
        while let Ok(100) = upstream.recv(&mut buffer) {
            seen[usize::from(buffer[0])] = true;
        }
    }
    let pid = rustix::process::Pid::from_child(&proxy.0);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert!(proxy.0.wait().unwrap().success());
    assert!(rest.contains("datagrams sent"), "{rest}");
}

#[test]
fn bad_arguments_are_told() {
    for arguments in [&["127.0.0.1:0"][..], &["127.0.0.1:0", "nowhere", "10mbit"]] {
        let output = example("proxy").args(arguments).output().unwrap();
        assert!(!output.status.success() && !output.stderr.is_empty());
    }
}
