//! `fairlane-instruments io`: its measurements, and its messages where it cannot measure.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use crate::program::{self, fairlane, start};
use fairlane_io::{Umem, XdpBackend, XdpOptions};
use fairlane_netlab::{Link, Namespace, cable, or_skip, skip, skip_unsupported};
use serde::Deserialize;

/// The documented output.
#[derive(Debug, Deserialize)]
struct Report {
    packet: u32,
    alg: String,
    aggregate: u32,
    flows: u32,
    seconds: f64,
    rounds: usize,
    interface: Option<String>,
    backends: Vec<Measured>,
    skipped: Vec<Skipped>,
}

#[derive(Debug, Deserialize)]
struct Measured {
    backend: String,
    mode: Option<String>,
    transmit: Figures,
    receive: Option<Figures>,
    forward: Option<Figures>,
    scheduled: Option<Figures>,
    ratio: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Figures {
    mpps: f64,
    cpu_ns: f64,
    batch: f64,
    packets: u64,
}

#[derive(Debug, Deserialize)]
struct Skipped {
    backend: String,
    reason: String,
}

const SHORT: [&str; 5] = ["io", "--seconds", "0.05", "--rounds", "2"];

fn report(output: &str) -> Report {
    let object = output.strip_suffix('\n').unwrap();
    assert!(!object.contains('\n'), "more than one line: {output}");
    serde_json::from_str(object).unwrap_or_else(|error| panic!("{error}: {object}"))
}

#[track_caller]
fn makes_sense(figures: &Figures) {
    assert!(figures.mpps > 0.0 && figures.cpu_ns > 0.0, "{figures:?}");
    assert!(figures.packets > 0, "{figures:?}");
    assert!((1.0..=64.0).contains(&figures.batch), "{figures:?}");
}

/// All four measurements of one backend are there.
#[track_caller]
fn is_complete(measured: &Measured) {
    makes_sense(&measured.transmit);
    for figures in [&measured.receive, &measured.forward, &measured.scheduled] {
        makes_sense(figures.as_ref().unwrap_or_else(|| panic!("{measured:?}")));
    }
    assert!(
        measured.ratio.is_some_and(|ratio| ratio > 0.0),
        "{measured:?}"
    );
}

/// Status 2, and one sentence that has these words.
#[track_caller]
fn refuses(finished: &program::Finished, names: &[&str]) {
    assert_eq!(finished.status.code(), Some(2), "{finished:?}");
    assert_eq!(finished.stdout, "", "{finished:?}");
    let sentence = finished.stderr.strip_suffix('\n').unwrap_or_default();
    assert!(
        sentence.starts_with("fairlane: ") && !sentence.contains('\n'),
        "{finished:?}"
    );
    for name in names {
        assert!(sentence.contains(name), "{name} is not in: {sentence}");
    }
}

/// Runs the program as the user nobody. `None`, after a message, if this user cannot change to that
/// one, or that one cannot access the program.
fn unprivileged(test: &str, arguments: &[&str]) -> Option<program::Finished> {
    let output = Command::new(program::PROGRAM)
        .args(arguments)
        .uid(65_534)
        .gid(65_534)
        .output();
    match output {
        Ok(output) => Some(program::Finished {
            status: output.status,
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
            took: Duration::ZERO,
        }),
        Err(error) => {
            skip_unsupported(test, format_args!("as another user: {error}"));
            None
        }
    }
}

#[test]
fn udp_is_measured_without_privilege() {
    let report = report(&fairlane(&[&SHORT[..], &["--backend", "udp"]].concat()).success());
    assert_eq!((report.packet, report.rounds, report.flows), (60, 2, 8));
    assert_eq!((&*report.alg, report.aggregate), ("qfq+", 8));
    assert_eq!((report.seconds, report.interface), (0.05, None));
    let [measured] = &report.backends[..] else {
        panic!("{:?}", report.backends)
    };
    assert_eq!((&*measured.backend, &measured.mode), ("udp", &None));
    is_complete(measured);
    assert!(report.skipped.is_empty(), "{:?}", report.skipped);
}

#[test]
fn all_backends_are_measured_side_by_side_or_named_with_the_reason() {
    let report = report(&fairlane(&SHORT).success());
    report.backends.iter().for_each(is_complete);
    for Skipped { backend, reason } in &report.skipped {
        skip(backend, reason);
        assert!(!reason.is_empty());
    }
    let measured = report.backends.iter().map(|measured| &*measured.backend);
    let skipped = report.skipped.iter().map(|skipped| &*skipped.backend);
    let mut all: Vec<&str> = measured.chain(skipped).collect();
    all.sort_unstable();
    assert_eq!(all, ["packet", "tun", "udp", "xdp"]);
}

#[test]
fn without_privilege_one_backend_is_refused_and_of_all_the_rest_is_measured() {
    let test = "without privilege";
    for backend in ["packet", "xdp", "tun"] {
        let arguments = [&SHORT[..], &["--backend", backend]].concat();
        let Some(finished) = unprivileged(test, &arguments) else {
            return;
        };
        refuses(&finished, &[backend, "root", "--backend udp"]);
    }
    let Some(finished) = unprivileged(test, &SHORT) else {
        return;
    };
    let report = report(&finished.success());
    let [measured] = &report.backends[..] else {
        panic!("{:?}", report.backends)
    };
    assert_eq!(measured.backend, "udp");
    let skipped: Vec<&str> = report
        .skipped
        .iter()
        .map(|skipped| &*skipped.backend)
        .collect();
    assert_eq!(skipped, ["packet", "xdp", "tun"]);
    assert!(
        report
            .skipped
            .iter()
            .all(|skipped| skipped.reason.contains("root"))
    );
}

#[test]
fn an_interface_that_does_not_exist_is_named() {
    for backend in ["packet", "xdp"] {
        let arguments = ["--backend", backend, "--interface", "nosuch0"];
        let finished = fairlane(&[&SHORT[..], &arguments].concat());
        if finished.stderr.contains("CAP_NET_RAW") {
            skip(backend, finished.stderr);
            continue;
        }
        refuses(&finished, &["nosuch0", "there is no interface"]);
    }
}

#[test]
fn an_interface_is_not_for_backends_that_have_none() {
    for backend in ["tun", "udp"] {
        let arguments = ["--backend", backend, "--interface", "lo"];
        let finished = fairlane(&[&SHORT[..], &arguments].concat());
        refuses(&finished, &["--interface lo", backend, "packet and xdp"]);
    }
    refuses(&fairlane(&["io", "--queue", "1"]), &["--interface"]);
}

/// Returns a cable whose near end the program is to measure.
fn lab(test: &str) -> Option<(Link, Link)> {
    or_skip(test, cable(1_500))
}

fn within(namespace: &Namespace, arguments: &[&str]) -> program::Finished {
    namespace.run(|| start(arguments)).finish()
}

#[test]
fn an_interface_that_there_is_is_measured_transmitting() {
    let Some((near, _far)) = lab("an interface that there is") else {
        return;
    };
    let arguments = [&SHORT[..], &["--interface", near.name()]].concat();
    let report = report(&within(near.namespace(), &arguments).success());
    assert_eq!(report.interface.as_deref(), Some(near.name()));
    let measured: Vec<&str> = report.backends.iter().map(|m| &*m.backend).collect();
    assert_eq!(measured, ["packet", "xdp"]);
    for measured in &report.backends {
        makes_sense(&measured.transmit);
        assert_eq!(measured.mode.is_some(), measured.backend == "xdp");
        assert!(
            measured.receive.is_none() && measured.ratio.is_none(),
            "{measured:?}"
        );
    }
}

#[test]
fn an_interface_that_is_busy_is_named() {
    let Some((near, _far)) = lab("an interface that is busy") else {
        return;
    };
    let umem = Umem::new(4_096, 2_048).unwrap();
    let _socket = near
        .namespace()
        .run(|| XdpBackend::bind(&umem, near.name(), 0, &XdpOptions::default()))
        .unwrap();
    let arguments = [
        &SHORT[..],
        &["--backend", "xdp", "--interface", near.name()],
    ]
    .concat();
    refuses(
        &within(near.namespace(), &arguments),
        &[near.name(), "busy"],
    );
}

#[test]
fn an_interface_that_is_down_is_named() {
    let Some((near, _far)) = lab("an interface that is down") else {
        return;
    };
    near.down().unwrap();
    for backend in ["packet", "xdp"] {
        let arguments = [
            &SHORT[..],
            &["--backend", backend, "--interface", near.name()],
        ]
        .concat();
        refuses(
            &within(near.namespace(), &arguments),
            &[near.name(), "down", backend],
        );
    }
}

#[test]
fn what_is_out_of_range_is_refused() {
    for (option, value, names) in [
        ("--packet", "59", "60..=1500"),
        ("--packet", "1501", "60..=1500"),
        ("--rounds", "0", "1..=1000"),
        ("--seconds", "0", "above 0"),
        ("--backend", "pcap", "packet, xdp, tun, udp, all"),
    ] {
        let finished = fairlane(&["io", option, value]);
        refuses(&finished, &[option, names]);
    }
}

#[test]
fn an_interrupt_reports_the_rounds_that_are_complete() {
    let arguments = ["--backend", "udp", "--seconds", "0.02", "--rounds", "1000"];
    // A machine with other work may need long for a first round.
    for patience in [1, 5, 25] {
        let mut running = start(&[&["io"], &arguments[..]].concat());
        running.until_it_listens();
        std::thread::sleep(Duration::from_secs(patience));
        running.signal("INT");
        let finished = running.finish();
        if finished.status.code() == Some(130) {
            continue;
        }
        let report = report(&finished.success());
        assert!((1..1000).contains(&report.rounds), "{report:?}");
        return is_complete(&report.backends[0]);
    }
    panic!("no round was complete within 25 s");
}

#[test]
fn an_interrupt_before_the_first_round_is_complete_leaves_nothing() {
    let mut running = start(&["io", "--backend", "udp", "--seconds", "100"]);
    running.until_it_listens();
    std::thread::sleep(Duration::from_millis(500));
    running.signal("INT");
    let finished = running.finish();
    assert_eq!(finished.status.code(), Some(130), "{finished:?}");
    assert_eq!(finished.stdout, "", "{finished:?}");
}
