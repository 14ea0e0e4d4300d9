//! A wire passes what its middle passes, and its flows are measured as they arrive.
#![cfg(target_os = "linux")]

use std::process::Command;
use std::time::{Duration, Instant};

use fairlane_netlab::{
    Echo, Flow, LabError, Namespace, Program, Window, Wire, iperf_is_installed, or_skip,
};

/// The time limit for frames to pass, and after which frames count as blocked.
const PATIENCE: Duration = Duration::from_secs(120);
const SHORT: Duration = Duration::from_millis(200);

/// Returns a wire with `senders` senders, through which the kernel forwards.
fn forwarded(test: &str, senders: u8) -> Option<Wire> {
    let wire = or_skip(test, Wire::new(senders))?;
    wire.forward().unwrap();
    assert!(wire.is_through(PATIENCE).unwrap());
    Some(wire)
}

#[test]
fn nothing_passes_the_middle_until_something_forwards_it() {
    let Some(wire) = or_skip("a middle", Wire::new(1)) else {
        return;
    };
    assert!(!wire.is_through(SHORT).unwrap());
    let bridge = wire.forward().unwrap();
    assert!(wire.is_through(PATIENCE).unwrap());
    bridge.delete().unwrap();
    assert!(!wire.is_through(SHORT).unwrap());
}

#[test]
fn every_sender_has_an_address_of_its_own() {
    let Some(wire) = forwarded("two senders", 2) else {
        return;
    };
    let addresses = wire.hosts().map(|host| host.address().to_string());
    let expected = ["10.0.0.1", "10.0.0.2", "10.0.0.254"];
    assert_eq!(addresses.collect::<Vec<_>>(), expected);
}

#[test]
fn an_answer_that_comes_too_late_is_not_that_of_the_next_request() {
    let Some(wire) = forwarded("late answers", 1) else {
        return;
    };
    let mut echo = Echo::between(wire.sender(0), wire.receiver(), 9).unwrap();
    // 1,000 bytes take 100 ms, beyond the burst of 2,000 of which one frame passes at once.
    wire.receiver().link().limit_rate(10_000, 100_000).unwrap();
    let (begun, mut bytes) = (Instant::now(), 0.0);
    let late = Duration::from_millis(10);
    while echo.round_trip(1, 1_472, late).is_some() {
        // The first one, and those that a pause of the machine lets pass.
        bytes += 1_514.0;
    }
    assert!(echo.round_trip(1, 1_000, PATIENCE).is_some());
    // It came behind the one that is late, which may be as short, where the server was to blame.
    bytes += 2.0 * 1_042.0;
    let least = Duration::from_secs_f64(0.95 * (bytes - 2_000.0) / 10_000.0);
    let took = begun.elapsed();
    assert!(took > least, "{took:?}, and {least:?} for {bytes} bytes");
}

#[test]
fn a_request_longer_than_a_frame_is_answered_too() {
    let Some(wire) = forwarded("fragments", 1) else {
        return;
    };
    let mut echo = Echo::between(wire.sender(0), wire.receiver(), 9).unwrap();
    let begun = Instant::now();
    let longest = Echo::LONGEST;
    // A fragment may be lost.
    while echo.round_trip(longest, longest, SHORT).is_none() {
        assert!(begun.elapsed() < PATIENCE, "no answer");
    }
}

#[test]
fn a_flow_arrives_at_the_rate_of_its_link() {
    let test = "a flow at the rate of its link";
    let Some(()) = or_skip(test, iperf_is_installed()) else {
        return;
    };
    let Some(wire) = forwarded(test, 1) else {
        return;
    };
    // 5 Mbit/s of frames: 1,448 bytes of payload in each of 1,514. A sender that waits for a
    // processor has up to 160 ms until the link has nothing more to send.
    let sender = wire.sender(0);
    sender.link().limit_rate(625_000, 100_000).unwrap();
    let began = Instant::now();
    let flow = Flow::start(sender, wire.receiver(), 5_201, 2).unwrap();
    let transfer = flow.finish().unwrap();
    assert_eq!(transfer.segment, 1_448);
    let expected = 5e6 * 1_448.0 / 1_514.0;
    // The median is the link's rate, also where TCP waited for retransmissions.
    let rate =
        |window: &Window| 8.0 * window.bytes as f64 / (window.end - window.start).as_secs_f64();
    let mut rates: Vec<f64> = transfer.windows.iter().map(rate).collect();
    rates.sort_by(f64::total_cmp);
    let median = rates[rates.len() / 2];
    assert!((median / expected - 1.0).abs() < 0.05, "{rates:?}");
    let steady = transfer.steady_rate(Duration::from_millis(500));
    assert!(steady < 1.05 * expected, "{steady}");
    let all = transfer.bytes(began, Instant::now());
    let windows: u64 = transfer.windows.iter().map(|window| window.bytes).sum();
    assert!((all - windows as f64).abs() < 1.0, "{all} {windows}");
    // The queue before the link dominates the round trip: up to 160 ms.
    assert!(transfer.round_trip > Duration::from_millis(5));
}

#[test]
fn a_flow_to_a_host_that_cannot_be_reached_ends_with_a_reason() {
    let test = "a flow to nobody";
    let Some(()) = or_skip(test, iperf_is_installed()) else {
        return;
    };
    let Some(wire) = or_skip(test, Wire::new(1)) else {
        return;
    };
    let flow = Flow::start(wire.sender(0), wire.receiver(), 5_201, 1).unwrap();
    let error = flow.finish().unwrap_err().to_string();
    assert!(error.starts_with("cannot measure a TCP flow: "), "{error}");
    assert!(error.contains("unable to connect"), "{error}");
}

#[test]
fn a_program_that_is_not_there_is_named_and_its_tests_are_skipped() {
    let Some(namespace) = or_skip("no such program", Namespace::new()) else {
        return;
    };
    let error = Program::start(&namespace, &mut Command::new("nosuchprogram")).unwrap_err();
    assert!(matches!(error, LabError::Missing { .. }) && error.is_not_to_be_had());
    assert!(error.to_string().contains("nosuchprogram"), "{error}");
}

#[test]
fn a_program_is_interrupted_and_what_it_printed_is_kept() {
    let Some(namespace) = or_skip("a program", Namespace::new()) else {
        return;
    };
    // A shell cannot trap signals that were ignored when it started, as in the background of
    // another.
    let mut shell = Command::new("env");
    shell.args([
        "--default-signal=INT",
        "sh",
        "-c",
        "trap 'echo two; exit 3' INT; echo one; sleep 9 >&- 2>&- & wait",
    ]);
    let program = Program::start(&namespace, &mut shell).unwrap();
    let (_, line) = program.line(PATIENCE).unwrap();
    assert_eq!(line, "one");
    program.interrupt();
    let ended = program.finish(PATIENCE).unwrap();
    assert_eq!((ended.status.code(), &*ended.output()), (Some(3), "two"));
}

#[test]
fn a_link_counts_the_frames_that_it_receives() {
    let Some(wire) = forwarded("counting frames", 1) else {
        return;
    };
    let mut echo = Echo::between(wire.sender(0), wire.receiver(), 9).unwrap();
    assert!(echo.round_trip(1, 1, PATIENCE).is_some());
    let (frames, bytes) = wire.receiver().link().received().unwrap();
    for _ in 0..10 {
        assert!(echo.round_trip(100, 1, PATIENCE).is_some());
    }
    let (more_frames, more_bytes) = wire.receiver().link().received().unwrap();
    // Ethernet, IPv4 and UDP have 42 bytes.
    assert_eq!((more_frames - frames, more_bytes - bytes), (10, 1_420));
}
