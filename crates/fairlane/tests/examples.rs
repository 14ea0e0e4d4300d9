//! The examples do as their descriptions say.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Returns the program of an example, which cargo builds next to this test: before it, unless this test is run alone.
fn example(name: &str) -> Command {
    let test = std::env::current_exe().expect("the test's own path");
    let folder = test.ancestors().nth(2).expect("a folder of the profile");
    let program = folder.join("examples").join(name);
    if !is_fresh(&program) {
        let profile = match folder.file_name().and_then(|profile| profile.to_str()) {
            Some("debug") | None => "dev",
            Some(profile) => profile,
        };
        let built = Command::new(env!("CARGO"))
            .args([
                "build",
                "--quiet",
                "--package",
                "fairlane",
                "--profile",
                profile,
            ])
            .args(["--example", name, "--target-dir"])
            .arg(folder.parent().expect("the target directory"))
            .status();
        assert!(built.is_ok_and(|built| built.success()), "{name} is built");
    }
    let mut command = Command::new(program);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Whether a program exists and is newer than all of our sources listed by cargo as its inputs. To ask cargo would
/// rebuild more than that if several packages were built together.
fn is_fresh(program: &Path) -> bool {
    let changed = |path: &Path| fs::metadata(path).and_then(|file| file.modified());
    let Ok(built) = changed(program) else {
        return false;
    };
    let noted = fs::read_to_string(program.with_extension("d")).unwrap_or_default();
    let Some((_, sources)) = noted.split_once(": ") else {
        return false;
    };
    let mut sources = sources.split_whitespace();
    sources.all(|source| changed(Path::new(source)).is_ok_and(|changed| changed <= built))
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
    // Even on a busy machine a heavier sender has more, and the heaviest far more than the lightest. A thread that had
    // no core for a while gets less than its share, and if all threads stood still during the example's second, none
    // has any: then the next run decides.
    let mut texts = Vec::new();
    for _ in 0..5 {
        let (shares, text) = shares_of("threads");
        assert_eq!(shares.len(), 8, "{text}");
        let all: f64 = shares.iter().sum();
        if (all - 100.0).abs() < 1.0 && shares[7] > 2.0 * shares[0] {
            return;
        }
        texts.push(text);
    }
    panic!("{}", texts.join("\n"));
}

/// Sends by each of these until a datagram of each has arrived at `upstream`.
fn all_pass(senders: &[UdpSocket; 2], listening: SocketAddr, upstream: &UdpSocket) {
    let (start, mut seen) = (Instant::now(), [false; 2]);
    while seen != [true; 2] {
        assert!(start.elapsed() < Duration::from_secs(60), "{seen:?}");
        for (number, sender) in senders.iter().enumerate() {
            sender.send_to(&[number as u8; 100], listening).unwrap();
        }
        let mut buffer = [0; 2000];
        while let Ok(length) = upstream.recv(&mut buffer) {
            if length == 100 {
                seen[usize::from(buffer[0])] = true;
            }
        }
    }
}

/// Sends a datagram from more addresses than a link has clients; some are lost on the way.
fn flood(listening: SocketAddr) {
    for number in 0..1_500_u16 {
        let [high, low] = number.to_be_bytes();
        let from = UdpSocket::bind((Ipv4Addr::new(127, 1, high, low), 0)).unwrap();
        from.send_to(&[0; 10], listening).unwrap();
        if number % 50 == 0 {
            thread::sleep(Duration::from_millis(5));
        }
    }
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
fn a_proxy_passes_datagrams_on_whoever_else_sends_and_ends_by_a_signal() {
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
    all_pass(&senders, listening, &upstream);
    for _ in 0..2 {
        flood(listening);
        all_pass(&senders, listening, &upstream);
    }
    let pid = rustix::process::Pid::from_child(&proxy.0);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert!(proxy.0.wait().unwrap().success());
    assert!(rest.contains("datagrams sent"), "{rest}");
}

/// Returns the output of an example without arguments.
fn printed(name: &str) -> String {
    let output = example(name).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the number after these words in one of the lines.
fn number(text: &str, words: &str) -> f64 {
    let (_, rest) = text
        .split_once(words)
        .unwrap_or_else(|| panic!("no {words} in {text}"));
    let number = rest.split_whitespace().next().unwrap_or_default();
    let number = number.trim_end_matches([',', ';']);
    number
        .parse()
        .unwrap_or_else(|_| panic!("no number behind {words} in {text}"))
}

#[test]
fn flows_share_a_flat_link_by_weight() {
    let text = printed("flat");
    for (flow, weight) in [(0, 5.0), (1, 3.0), (2, 2.0)] {
        let sent = number(&text, &format!("flow {flow} of weight {weight}: "));
        assert!((sent - 100.0 * weight).abs() <= 3.0, "{text}");
    }
}

#[test]
fn classes_have_their_shares_and_no_more_than_their_ceiling() {
    let text = printed("classes");
    for (class, mbit) in [
        ("office", 6.0),
        ("mail", 5.0),
        ("backup", 1.0),
        ("guests", 2.0),
    ] {
        let sent = number(&text, &format!("{class}: "));
        assert!((sent - mbit).abs() < 0.05, "{text}");
    }
    assert!(text.contains("2 flows"), "{text}");
}

#[test]
fn bursts_leave_as_they_were_asked_for_and_tell_how_long_packets_waited() {
    let text = printed("bursts");
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 5, "{text}");
    assert_eq!(
        lines[0],
        "0 ms: 40 came, 32 left, one of them after 0 ms; 8 wait"
    );
    assert!(
        lines[4].starts_with("4 ms: 40 came, 32 left") && lines[4].ends_with("40 wait"),
        "{text}"
    );
    assert!(number(lines[4], "after ") >= 1.0, "{text}");
}

#[test]
fn guarantees_are_told_of_every_algorithm() {
    let text = printed("guarantees");
    assert_eq!(text.lines().count(), fairlane::sched::Algorithm::ALL.len());
    assert!(text.contains("fifo: no bound"), "{text}");
    let of = |name: &str| number(&format!("\n{text}"), &format!("\n{name}: "));
    assert!(of("wf2q+") <= of("qfq") && of("qfq") < of("drr"), "{text}");
}

#[test]
fn a_site_is_read_and_its_filters_say_where_packets_go() {
    let text = printed("site");
    assert!(number(&text, "voice: ") >= 2.0, "{text}");
    assert!(text.contains("DSCP EF: to voice"), "{text}");
    assert!(text.contains("DSCP none: to everybody"), "{text}");
}

#[test]
fn a_simulated_second_shares_the_link_by_weight() {
    let text = printed("simulate");
    let shares = [number(&text, "class 1: "), number(&text, "class 2: ")];
    assert!(
        (shares[0] - 6.0).abs() < 0.1 && (shares[1] - 2.0).abs() < 0.1,
        "{text}"
    );
}

#[test]
fn packets_wait_for_less_where_their_sender_hears_of_a_queue_that_stands() {
    let text = printed("codel");
    let [tail, codel] = ["tail drop: ", "CoDel: "].map(|of| number(&text, of));
    assert!(tail > 150.0 && codel < tail / 5.0, "{text}");
    assert!(text.contains("ms, 0 marked"), "{text}");
}

/// Returns the next line that contains these words, which comes within a minute or when the process ends.
fn line_with(lines: &mut impl BufRead, words: &str) -> String {
    let start = Instant::now();
    let mut line = String::new();
    while !line.contains(words) {
        line.clear();
        let read = lines.read_line(&mut line).unwrap();
        assert!(
            read > 0 && start.elapsed() < Duration::from_secs(60),
            "no {words}"
        );
    }
    line
}

#[test]
fn a_process_attaches_and_its_packets_are_sent() {
    let socket = std::env::temp_dir().join(format!("fairlane-example-{}.sock", std::process::id()));
    let path = socket.to_str().unwrap();
    let daemon = example("attach").args(["daemon", path, "10mbit"]).spawn();
    let mut daemon = Running(daemon.unwrap());
    // Its first report: it listens.
    let mut report = BufReader::new(daemon.0.stdout.take().unwrap());
    line_with(&mut report, "0 attached");
    let client = example("attach")
        .args(["client", path, "1mbit", "500"])
        .spawn();
    let mut client = Running(client.unwrap());
    let mut told = BufReader::new(client.0.stdout.take().unwrap());
    assert!(line_with(&mut told, "class").contains("weight 1"));
    let sent = line_with(&mut report, &format!("process {}: ", client.0.id()));
    assert!(number(&sent, ": ") > 0.0, "{sent}");
    let _ = std::fs::remove_file(socket);
}

/// Whole programs, with their comments. For a custom algorithm it is the program: the algorithm is another file.
#[test]
fn a_newcomers_four_programs_have_sixty_lines_at_most() {
    for program in [
        "examples/inference.rs",
        "examples/proxy.rs",
        "examples/threads.rs",
        "../cli/examples/own_algorithm/main.rs",
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(program);
        let text = fs::read_to_string(path).unwrap();
        let lines = text.lines().count();
        assert!(lines <= 60, "{program} has {lines} lines");
        assert!(!text.contains("TODO"), "{program}");
    }
}

#[test]
fn bad_arguments_are_told() {
    for arguments in [&["127.0.0.1:0"][..], &["127.0.0.1:0", "nowhere", "10mbit"]] {
        let output = example("proxy").args(arguments).output().unwrap();
        assert!(!output.status.success() && !output.stderr.is_empty());
    }
}
