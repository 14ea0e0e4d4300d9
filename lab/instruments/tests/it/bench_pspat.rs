//! `fairlane-instruments bench pspat`: its output, and the relations between its figures. Times are short, and other
//! tests take the cores: no figure here is a measurement.

use std::sync::{Mutex, PoisonError};

use crate::program::{Finished, fairlane, in_time};
use serde_json::Value;

fn bench(arguments: &[&str]) -> Finished {
    bench_for("0.2", arguments)
}

fn bench_for(seconds: &str, arguments: &[&str]) -> Finished {
    let seconds: &[&str] = match arguments.contains(&"--seconds") {
        true => &[],
        false => &["--seconds", seconds],
    };
    // One measurement at a time: each takes all cores.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    fairlane(&[&["bench", "pspat"], seconds, arguments].concat())
}

/// Runs the benchmark and returns its figures.
#[track_caller]
fn measured(arguments: &[&str]) -> Value {
    in_time(|seconds| {
        let output = bench_for(seconds, &[arguments, &["--json"]].concat()).success();
        let figures: Value = serde_json::from_str(&output).expect("one JSON object");
        Some(figures).filter(|figures| figures["decisions"] != 0)
    })
}

/// Returns the error message of a rejected command.
#[track_caller]
fn refusal(arguments: &[&str]) -> String {
    let refused = bench(arguments);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(refused.stdout.is_empty(), "{refused:?}");
    let said = refused.stderr;
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    said
}

#[test]
fn every_mode_reports_decisions_and_shares() {
    for (mode, way) in [
        ("pspat", "clients"),
        ("pspat", "straight"),
        ("pspat", "dispatchers"),
        ("lock", "clients"),
        ("none", "clients"),
    ] {
        let figures = measured(&["--mode", mode, "--way", way, "--clients", "3"]);
        assert_eq!(figures["mode"], mode);
        assert_eq!(figures["alg"], "qfq+");
        assert_eq!(
            (&figures["clients"], &figures["active"]),
            (&3.into(), &3.into())
        );
        let (decisions, seconds) = (&figures["decisions"], &figures["seconds"]);
        let a_second = figures["decisions_per_sec"].as_f64().unwrap();
        assert!(decisions.as_u64().unwrap() > 0, "{mode} {way}: {figures}");
        let product = a_second * seconds.as_f64().unwrap();
        assert!((product / decisions.as_f64().unwrap() - 1.0).abs() < 1e-6);
        assert!(figures["max_share_error"].as_f64().unwrap() >= 0.0);
        // Only an arbiter scans mailboxes, and only dispatchers make passes.
        let limit = (mode == "pspat").then_some(6);
        assert_eq!(figures["scan_limit"], Value::from(limit), "{mode} {way}");
        assert_eq!(
            figures["delta_a_ns"].is_null(),
            mode != "pspat",
            "{mode} {way}"
        );
        assert_eq!(
            figures["delta_d_ns"].is_null(),
            way != "dispatchers",
            "{mode} {way}"
        );
    }
}

#[test]
fn every_algorithm_decides() {
    for alg in [
        "fifo", "drr", "wf2q+", "qfq", "s-kps", "gfq", "priority", "sfq",
    ] {
        let figures = measured(&["--alg", alg, "--clients", "2"]);
        assert_eq!(figures["alg"], alg);
        assert!(figures["decisions"].as_u64().unwrap() > 0, "{alg}");
    }
}

#[test]
fn a_paced_link_carries_its_rate_and_shares_it_by_weight() {
    // 20,000 packets a second: every client's backlog lasts for at least 0.8 s, even if its core is taken away.
    let options =
        "--clients 4 --weights 1,4 --rate 9600kbit --queue 4096 --mailbox 4096 --seconds 0.5";
    let options: Vec<&str> = options.split(' ').collect();
    let figures = measured(&options);
    let rate = figures["decisions_per_sec"].as_f64().unwrap();
    // Catching up after a delay is extra.
    assert!(rate < 1.15 * 20_000.0, "{rate}");
    let shares = figures["shares"].as_array().unwrap();
    assert_eq!(shares.len(), 2);
    for share in shares {
        let expected = share["weight"].as_f64().unwrap() / 10.0;
        assert!((share["expected"].as_f64().unwrap() - expected).abs() < 1e-9);
        let (whole, own) = (&share["t_wfi_ns"], &share["t_wfi_algorithm_ns"]);
        assert!(whole.as_u64() > own.as_u64(), "{share}");
    }
    assert!(figures["max_share_error"].as_f64() < Some(0.1), "{figures}");
}

#[test]
fn with_fewer_mailboxes_a_step_a_packet_is_seen_later() {
    let mean = |seconds: &str, limit: &str| {
        let clients = ["--clients", "32", "--threads", "1", "--scan-limit", limit];
        let output = bench_for(seconds, &[&clients[..], &["--json"]].concat()).success();
        let figures: Value = serde_json::from_str(&output).unwrap();
        assert_eq!(figures["scan_limit"].to_string(), limit);
        figures["delta_a_ns"]["mean"].as_u64()
    };
    // A scan of all mailboxes takes 32 steps, or one.
    in_time(|seconds| (mean(seconds, "1")? > mean(seconds, "32")?).then_some(()));
}

#[test]
fn silent_clients_are_registered_and_get_nothing() {
    let figures = measured(&["--clients", "200", "--active", "2", "--threads", "1"]);
    assert_eq!(figures["threads"], 1);
    assert_eq!(figures["shares"][0]["clients"], 2);
}

#[test]
fn the_victims_delay_is_measured_apart() {
    for mode in ["pspat", "lock"] {
        let figures = measured(&["--mode", mode, "--clients", "1", "--victim", "2000"]);
        assert!(figures["victim_packets"].as_u64().unwrap() > 0, "{figures}");
        let delay = &figures["victim_ns"];
        let percentile = |name: &str| delay[name].as_u64().unwrap();
        let names = ["min", "p10", "p50", "p90", "p98", "p99", "max"];
        assert!(
            names
                .windows(2)
                .all(|pair| percentile(pair[0]) <= percentile(pair[1]))
        );
        assert!(percentile("min") > 0);
    }
}

#[test]
fn an_arbiter_that_sleeps_is_woken_by_every_push() {
    let figures = measured(&[
        "--active",
        "0",
        "--victim",
        "50",
        "--sleep",
        "--seconds",
        "1",
    ]);
    let packets = figures["victim_packets"].as_u64().unwrap();
    assert!(packets > 10, "{figures}");
    // A late packet finds the arbiter still awake for the one before.
    let wakeups = figures["wakeups"].as_u64().unwrap();
    assert!((packets / 2..=packets + 5).contains(&wakeups), "{figures}");
    let awake = measured(&["--active", "0", "--victim", "50"]);
    assert_eq!(awake["wakeups"], 0);
}

#[test]
fn released_packets_are_sent_over_udp() {
    for arguments in [
        &["--mode", "pspat"][..],
        &["--mode", "pspat", "--way", "straight"],
        &[
            "--mode",
            "pspat",
            "--way",
            "dispatchers",
            "--dispatchers",
            "2",
        ],
        &[
            "--mode",
            "pspat",
            "--way",
            "dispatchers",
            "--dispatchers",
            "0",
        ],
        &["--mode", "lock"],
        &["--mode", "none"],
    ] {
        let figures = measured(&[arguments, &["--transmit", "udp", "--clients", "2"]].concat());
        assert_eq!(figures["transmit"], "udp");
        assert!(figures["decisions"].as_u64().unwrap() > 0, "{arguments:?}");
    }
}

#[test]
fn without_privilege_af_xdp_is_refused_in_a_sentence_and_else_it_sends() {
    let arguments = ["--transmit", "xdp", "--clients", "2"];
    if !bench(&arguments).status.success() {
        let said = refusal(&arguments);
        return fairlane_netlab::skip("the frames over AF_XDP", said);
    }
    let figures = measured(&arguments);
    assert_eq!(figures["way"], "straight");
    assert!(figures["decisions"].as_u64().unwrap() > 0);
}

#[test]
fn impossible_options_are_refused() {
    for (arguments, names) in [
        (&["--mailbox", "100"][..], "power of two"),
        (&["--mailbox", "0"], "power of two"),
        (&["--scan-limit", "0"], "--scan-limit"),
        (
            &["--clients", "10", "--max-clients", "5"],
            "--max-clients 5",
        ),
        (&["--clients", "2", "--active", "3"], "--active 3"),
        (&["--clients", "0"], "--clients"),
        (&["--weights", "1,0"], "--weights"),
        (&["--weights", "none"], "--weights"),
        (&["--packet", "10"], "--packet"),
        (&["--rate", "10"], "--rate"),
        (&["--seconds", "0"], "--seconds"),
        (&["--victim", "0"], "--victim"),
        (&["--mode", "locks"], "--mode"),
        (&["--transmit", "xdp", "--packet", "2000"], "1514"),
    ] {
        let said = refusal(arguments);
        assert!(said.contains(names), "{arguments:?}: {said}");
    }
}
