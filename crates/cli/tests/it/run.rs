//! `fairlane run`: real datagrams on 127.0.0.1 get their shares.
//!
//! Shares and delays are meaningless while two links compete for the cores: tests run one at a time.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::program::{self, Pressure, Running, start};
use crate::site::PATIENCE;
use fairlane_netlab::{Namespace, skip};
use fairlane_testkit::long_tests;
use serde::Deserialize;

/// The fields that `--json` documents.
#[derive(Debug, Deserialize)]
struct Report {
    alg: String,
    seconds: f64,
    link: Link,
    flows: Vec<Flow>,
}

#[derive(Debug, Deserialize)]
struct Link {
    rate_bps: u64,
    sent_bps: f64,
    utilisation: f64,
}

#[derive(Debug, Deserialize)]
struct Flow {
    name: String,
    weight: u32,
    expected_share: f64,
    measured_share: f64,
    sent_packets: u64,
    sent_bytes: u64,
    received_packets: u64,
    dropped_packets: u64,
    backpressure: u64,
    delay_us: Delay,
}

#[derive(Debug, Deserialize)]
struct Delay {
    p50: f64,
    p99: f64,
    max: f64,
}

/// Bytes of IPv4 and UDP headers.
const OVERHEAD: u64 = 28;

/// The limit for the end of a program after a signal.
const SOON: Duration = Duration::from_secs(2);

/// The turn of a test in this file: tests run one after another, each with its own loopback interface if possible.
struct Turn {
    loopback: Option<Namespace>,
    _alone: MutexGuard<'static, ()>,
}

fn turn() -> Turn {
    static TURN: Mutex<()> = Mutex::new(());
    let made = Namespace::new().and_then(|namespace| {
        fairlane_netlab::Link::find(&namespace, "lo")?.up()?;
        Ok(namespace)
    });
    Turn {
        loopback: match made {
            Err(error) if error.is_not_to_be_had() => None,
            made => Some(made.unwrap()),
        },
        _alone: TURN.lock().unwrap_or_else(PoisonError::into_inner),
    }
}

/// A port below those that a system assigns automatically.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7_272);

impl Turn {
    /// Runs `work` in this turn's network namespace.
    fn there<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        match &self.loopback {
            Some(namespace) => namespace.run(work),
            None => work(),
        }
    }

    fn start(&self, arguments: &[&str]) -> Running {
        self.there(|| start(arguments))
    }

    /// Starts a run that listens at [`LISTEN`], and waits until it does.
    fn start_listening(&self, options: &str) -> Running {
        let address = LISTEN.to_string();
        let mut arguments = vec!["run", "--listen", &address];
        arguments.extend(options.split_whitespace());
        let running = self.start(&arguments);
        let begun = Instant::now();
        while !listens(running.id(), LISTEN.port()) {
            assert!(begun.elapsed() < PATIENCE, "it does not listen");
            thread::sleep(Duration::from_millis(5));
        }
        running
    }

    fn run(&self, options: &str) -> Report {
        let mut arguments = vec!["run", "--json"];
        arguments.extend(options.split_whitespace());
        parse(&self.start(&arguments).finish().success())
    }

    fn socket(&self) -> UdpSocket {
        self.there(|| UdpSocket::bind("127.0.0.1:0").unwrap())
    }
}

/// Returns whether a process has a UDP socket at a port.
fn listens(process: u32, port: u16) -> bool {
    let files = fs::read_dir(format!("/proc/{process}/fd"));
    let files = files.into_iter().flatten().flatten();
    let own: Vec<_> = files
        .filter_map(|file| fs::read_link(file.path()).ok())
        .collect();
    let sockets = fs::read_to_string(format!("/proc/{process}/net/udp")).unwrap_or_default();
    let port = format!(":{port:04X}");
    sockets.lines().any(|socket| {
        // The tenth word is the socket's inode.
        let words: Vec<_> = socket.split_whitespace().collect();
        words.get(1).is_some_and(|address| address.ends_with(&port))
            && own.contains(&format!("socket:[{}]", words[9]).into())
    })
}

#[track_caller]
fn parse(output: &str) -> Report {
    let object = output.strip_suffix('\n').unwrap();
    assert!(!object.contains('\n'), "more than one line: {output}");
    serde_json::from_str(object).unwrap_or_else(|error| panic!("{error}: {object}"))
}

/// Checks the relations that hold in every report, however busy the machine.
#[track_caller]
fn adds_up(report: &Report) {
    for flow in &report.flows {
        assert!(flow.received_packets <= flow.sent_packets, "{flow:?}");
        let Delay { p50, p99, max } = flow.delay_us;
        // The histogram keeps three digits.
        assert!(p50 <= p99 && p99 <= max * 1.001, "{flow:?}");
        assert_eq!(flow.sent_packets > 0, max > 0.0, "{flow:?}");
    }
    let sum = |share: fn(&Flow) -> f64| report.flows.iter().map(share).sum::<f64>();
    assert!((sum(|f| f.expected_share) - 1.0).abs() < 1e-6, "{report:?}");
    assert!((sum(|f| f.measured_share) - 1.0).abs() < 1e-6, "{report:?}");
    let link = &report.link;
    let sent_bps = sum(|f| f.sent_bytes as f64) * 8.0 / report.seconds;
    assert!((link.sent_bps / sent_bps - 1.0).abs() < 1e-6, "{report:?}");
    let utilisation = sent_bps / link.rate_bps as f64;
    assert!((link.utilisation / utilisation - 1.0).abs() < 1e-6);
}

/// Checks a report of a run with the built-in senders only.
#[track_caller]
fn of_senders(report: &Report, weights: &[u32], packet: u64, pressure: &Pressure) {
    adds_up(report);
    let names: Vec<String> = (1..=weights.len()).map(|n| format!("sender-{n}")).collect();
    assert!(report.flows.iter().map(|flow| &flow.name).eq(&names));
    let total: u32 = weights.iter().sum();
    for (flow, &weight) in report.flows.iter().zip(weights) {
        let expected = f64::from(weight) / f64::from(total);
        assert_eq!(flow.weight, weight);
        // Less exact if a sender lost its core for so long that its queue ran dry.
        let off = flow.expected_share - expected;
        assert!(off.abs() < pressure.most(0.005, 0.1), "{flow:?}");
        assert_eq!(flow.sent_bytes, flow.sent_packets * (packet + OVERHEAD));
    }
}

/// Runs the four default senders. A sender that runs dry, because other programs have its core, is expected to get
/// correspondingly less; and a link that was late catches up for some of it.
#[track_caller]
fn shares_hold(options: &str, alg: &str) {
    let turn = turn();
    let pressure = Pressure::begin();
    let report = turn.run(&format!("--seconds 2 {options}"));
    assert_eq!((&*report.alg, report.link.rate_bps), (alg, 100_000_000));
    assert!(report.seconds > 1.9, "{report:?}");
    of_senders(&report, &[1, 2, 4, 8], 1200, &pressure);
    for flow in &report.flows {
        let off = flow.measured_share - flow.expected_share;
        assert!(
            off.abs() < pressure.most(0.01, 0.06),
            "{} is off by {off}: {report:?}",
            flow.name
        );
    }
    let used = report.link.utilisation;
    assert!(
        used > pressure.least(0.98, 0.3) && used < 1.02,
        "{report:?}"
    );
}

/// Of as few ports as it takes, its own sockets leave the one that was asked for.
#[test]
fn the_address_to_listen_at_is_had_before_other_sockets_are_opened() {
    let turn = turn();
    let Some(loopback) = &turn.loopback else {
        return skip("a port among few", "there is no namespace");
    };
    (loopback.set_parameter("ipv4/ip_local_port_range", "40001 40009")).unwrap();
    let run = "run --json --seconds 0.1 --weights none --dispatchers 8 --listen 127.0.0.1:40005";
    let arguments: Vec<&str> = run.split(' ').collect();
    for _ in 0..3 {
        turn.start(&arguments).finish().success();
    }
}

#[test]
fn drr_shares_the_link_by_weight() {
    shares_hold("--alg drr", "drr");
}

#[test]
fn qfq_is_the_default_and_shares_the_link_by_weight() {
    shares_hold("", "qfq");
}

#[test]
fn with_fifo_the_shares_follow_the_offered_load() {
    let turn = turn();
    let pressure = Pressure::begin();
    let report = turn.run("--seconds 2 --alg fifo");
    assert_eq!(report.alg, "fifo");
    of_senders(&report, &[1, 2, 4, 8], 1200, &pressure);
    let lightest = &report.flows[0];
    // It has the highest offered load.
    assert!(
        lightest.measured_share > 1.5 * lightest.expected_share,
        "{report:?}"
    );
}

#[test]
fn rate_weights_and_packet_take_effect() {
    let turn = turn();
    let pressure = Pressure::begin();
    let report = turn.run("--seconds 2 --rate 40mbit --weights 3,1 --packet 500");
    assert_eq!(report.link.rate_bps, 40_000_000);
    of_senders(&report, &[3, 1], 500, &pressure);
    let used = report.link.utilisation;
    assert!(
        used > pressure.least(0.98, 0.3) && used < 1.02,
        "{report:?}"
    );
    let [first, second] = &report.flows[..] else {
        panic!("{report:?}");
    };
    assert!(
        first.measured_share > 2.0 * second.measured_share,
        "{report:?}"
    );
}

#[test]
fn a_single_sender_has_the_whole_link() {
    let turn = turn();
    let pressure = Pressure::begin();
    let report = turn.run("--seconds 1 --rate 10mbit --weights 1000000 --packet 1");
    of_senders(&report, &[1_000_000], 1, &pressure);
    assert_eq!(report.flows[0].measured_share, 1.0);
}

/// Every thread that pushes ends before the arbiter, at whatever time the run ends.
#[test]
fn a_run_ends_without_an_error_whatever_its_senders_are_doing() {
    let turn = turn();
    let options = "--rate 250mbit --weights 3,1 --packet 500";
    let rounds = if long_tests() { 24 } else { 6 };
    for round in 0..rounds {
        let report = turn.run(&format!("--seconds 0.3 {options}"));
        adds_up(&report);
        let dispatchers = round % 3;
        let options = format!("--json --dispatchers {dispatchers} {options}");
        let mut running = turn.start_listening(&options);
        thread::sleep(Duration::from_millis(100));
        running.signal("INT");
        adds_up(&parse(&running.finish().success()));
    }
}

#[test]
fn a_slow_link_is_busy_from_the_start_and_ends_in_time() {
    let turn = turn();
    let pressure = Pressure::begin();
    // A packet takes ten seconds, and a sender's next burst is a minute away.
    let running = turn.start(&["run", "--json", "--seconds", "0.5", "--rate", "1kbit"]);
    let finished = running.finish();
    assert!(finished.took < pressure.soon(SOON), "{finished:?}");
    let report = parse(&finished.success());
    of_senders(&report, &[1, 2, 4, 8], 1200, &pressure);
    let sent: u64 = report.flows.iter().map(|flow| flow.sent_packets).sum();
    assert_eq!(sent, 1);
}

/// Sends datagrams of 200 bytes in turn from all sockets, for two seconds or longer: a small part of each one's fair
/// share of 100 Mbit/s. It does not catch up after a pause of the machine.
fn trickle(sockets: &[UdpSocket], each: u32) {
    for _ in 0..each {
        for socket in sockets {
            socket.send_to(&[7; 200], LISTEN).unwrap();
        }
        thread::sleep(Duration::from_secs(2) / each);
    }
}

/// Runs sources in addition to the built-in senders, from the start to well after their last datagram.
fn run_with_sources(options: &str, sources: usize, each: u32) {
    let turn = turn();
    let pressure = Pressure::begin();
    let mut running = turn.start_listening(&format!("--json {options}"));
    let sockets: Vec<UdpSocket> = (0..sources).map(|_| turn.socket()).collect();
    trickle(&sockets, each);
    Pressure::sleep(Duration::from_millis(800));
    running.signal("INT");
    let report = parse(&running.finish().success());

    adds_up(&report);
    assert_eq!(report.flows.len(), 4 + sources, "{report:?}");
    for socket in &sockets {
        let name = socket.local_addr().unwrap().to_string();
        let flow = report.flows.iter().find(|flow| flow.name == name);
        let flow = flow.unwrap_or_else(|| panic!("{name} is missing: {report:?}"));
        assert_eq!(flow.weight, 1);
        let each = u64::from(each);
        assert_eq!(
            (flow.received_packets, flow.sent_packets),
            (each, each),
            "{flow:?}"
        );
        assert_eq!(flow.sent_bytes, each * (200 + OVERHEAD));
        assert_eq!(
            (flow.dropped_packets, flow.backpressure),
            (0, 0),
            "{flow:?}"
        );
        // All of its offered load, which is less than its share.
        assert!(
            flow.expected_share < 1.0 / (15 + sources) as f64,
            "{flow:?}"
        );
        assert!(
            (flow.measured_share - flow.expected_share).abs() < pressure.most(0.02, 0.05),
            "{flow:?}"
        );
    }
    // The others have full queues.
    for sender in &report.flows[..4] {
        assert!(sender.dropped_packets > 0, "{sender:?}");
    }
}

#[test]
fn a_small_sender_of_ones_own_loses_nothing_on_a_saturated_link() {
    run_with_sources("--alg qfq", 1, 300);
}

#[test]
fn two_sources_are_two_flows() {
    run_with_sources("--alg drr", 2, 150);
}

#[test]
fn a_source_that_asks_for_too_much_gets_its_weights_share() {
    let turn = turn();
    let pressure = Pressure::begin();
    let mut running = turn.start_listening("--json --rate 4mbit --weights 1,2");
    let socket = turn.socket();
    let end = Instant::now() + Duration::from_secs(3);
    while Instant::now() < end {
        // Up to 32 Mbit/s.
        for _ in 0..8 {
            socket.send_to(&[0; 1000], LISTEN).unwrap();
        }
        thread::sleep(Duration::from_millis(2));
    }
    running.signal("INT");
    let report = parse(&running.finish().success());
    adds_up(&report);
    let ours = &report.flows[2];
    assert_eq!(ours.name, socket.local_addr().unwrap().to_string());
    // It started later than the built-in senders, which may have run dry in the meantime.
    let wanted = pressure.least(0.15, 0.05)..pressure.most(0.27, 0.2);
    assert!(wanted.contains(&ours.expected_share), "{report:?}");
    let off = ours.measured_share - ours.expected_share;
    assert!(off.abs() < pressure.most(0.02, 0.05), "{report:?}");
    assert!(ours.dropped_packets > 0, "{report:?}");
}

#[test]
fn ctrl_c_ends_it_with_the_summary() {
    let turn = turn();
    let mut running = turn.start(&["run", "--listen", "127.0.0.1:0"]);
    // The line is printed when senders, sockets and the signal handler are set up.
    running.line();
    thread::sleep(Duration::from_millis(700));
    let pressure = Pressure::begin();
    running.signal("INT");
    let finished = running.finish();
    assert!(finished.took < pressure.soon(SOON), "{finished:?}");
    let output = finished.success();
    for part in ["sender-1", "sender-4", "expected", "qfq: "] {
        assert!(output.contains(part), "{part} is missing: {output}");
    }
}

#[test]
fn a_signal_ends_it_with_the_json_object() {
    let turn = turn();
    let pressure = Pressure::begin();
    for name in ["INT", "TERM"] {
        let mut running = turn.start_listening("--json");
        thread::sleep(Duration::from_millis(700));
        running.signal(name);
        let finished = running.finish();
        assert!(finished.took < pressure.soon(SOON), "{finished:?}");
        let report = parse(&finished.success());
        of_senders(&report, &[1, 2, 4, 8], 1200, &pressure);
        assert!(report.seconds > 0.3, "{report:?}");
    }
}

#[test]
fn without_a_terminal_it_prints_plain_lines_and_the_first_teaches() {
    let turn = turn();
    let address = LISTEN.to_string();
    let options = ["--seconds", "2.5", "--rate", "20mbit", "--alg", "drr"];
    let running = turn.start(&[&["run", "--listen", &address][..], &options].concat());
    let output = running.finish().success();
    assert!(!output.contains(['\u{1b}', '\r']), "{output:?}");
    let mut lines = output.lines();
    let first = lines.next().unwrap();
    for part in ["20mbit", "drr", &address] {
        assert!(first.contains(part), "{part} is not in: {first}");
    }
    let (states, lines): (Vec<&str>, Vec<&str>) = lines
        .filter(|line| line.contains(" s, link ") || line.starts_with("  sender-"))
        .partition(|line| line.contains(" s, link "));
    assert!(
        !states.is_empty() && lines.len() == 4 * states.len(),
        "{output}"
    );
    for (line, sender) in lines.iter().zip((1..=4).cycle()) {
        assert!(
            line.starts_with(&format!("  sender-{sender}: weight ")),
            "{line}"
        );
        for part in [
            "offered",
            "received",
            "expected",
            "measured",
            "p99",
            "drops",
            "mailbox full",
        ] {
            assert!(line.contains(part), "{part} is not in: {line}");
        }
    }
    let summary = output.lines().last().unwrap();
    assert!(
        summary.starts_with("drr: ") && summary.contains("20mbit"),
        "{summary}"
    );
}

#[test]
fn run_ends_quietly_when_its_output_is_closed() {
    let turn = turn();
    let program = env!("CARGO_BIN_EXE_fairlane");
    // There is no time limit: only the closed output ends it.
    let pipe = format!("{{ {program} run --listen 127.0.0.1:0; echo status $? >&2; }} | head -1");
    let (started, pressure) = (Instant::now(), Pressure::begin());
    let mut shell = Command::new("timeout");
    shell.args(["20", "sh", "-c", &pipe]);
    let output = turn.there(|| shell.output().unwrap());
    assert!(started.elapsed() < pressure.soon(4 * SOON), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "status 0\n");
}

#[test]
fn what_cannot_be_printed_is_said() {
    let turn = turn();
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut program = program::command();
    program
        .args(["run", "--json", "--seconds", "0.2"])
        .stdout(full);
    let output = turn.there(|| program.output().unwrap());
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.starts_with("{\"error\":\"printing: "), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}
