//! The command line: its errors and its help.

use std::net::UdpSocket;

use crate::program::{command, fairlane};

/// Checks that the program exits at once, with one sentence that names the error.
#[track_caller]
fn refuses(arguments: &[&str], names: &[&str]) {
    let finished = fairlane(arguments);
    assert_eq!(finished.status.code(), Some(2), "{arguments:?}");
    assert_eq!(finished.stdout, "", "{arguments:?}");
    let sentence = finished.stderr.strip_suffix('\n').unwrap_or_default();
    let begin = match arguments.contains(&"--json") {
        true => "{\"error\":\"",
        false => "fairlane: ",
    };
    assert!(
        sentence.starts_with(begin) && !sentence.contains('\n'),
        "{arguments:?}: {:?}",
        finished.stderr
    );
    for name in names {
        assert!(sentence.contains(name), "{name} is not in: {sentence}");
    }
}

#[test]
fn an_unknown_command_or_option_is_named() {
    refuses(&["prune"], &["'prune'"]);
    refuses(&["--json"], &["'--json'"]);
    refuses(&["run", "--sconds", "5"], &["'--sconds'"]);
    refuses(&["run", "links.toml"], &["links.toml", "No such file"]);
    refuses(&["run", "--json=yes"], &["--json", "'yes'"]);
    refuses(&["run", "--rate"], &["--rate"]);
    refuses(&["bench", "--rate", "1mbit"], &["'--rate'"]);
    refuses(&["bench", "-x"], &["'-x'"]);
    refuses(&["bench", "prune"], &["bench", "'prune'"]);
}

#[test]
fn a_benchmark_of_the_laboratory_names_its_command() {
    for name in ["pspat", "path"] {
        let command = format!("cargo run --release -p fairlane-instruments -- bench {name}");
        refuses(&["bench", name], &[&command]);
        refuses(&["bench", name, "--json", "--seconds", "1"], &[&command]);
        let help = fairlane(&["bench", "--help"]).success();
        assert!(!help.contains(name), "{help}");
    }
}

#[test]
fn an_unknown_algorithm_is_named_with_those_there_are() {
    refuses(
        &["run", "--alg", "hfsc"],
        &[
            "--alg",
            "'hfsc'",
            "fifo, drr, wfq, wf2q, wf2q+, scfq, qfq, qfq+, s-kps, gfq",
        ],
    );
    // The environment alone is no scheduler.
    refuses(&["run", "--alg", "none"], &["--alg", "'none'"]);
    refuses(
        &["bench", "--alg", "hfsc"],
        &["--alg", "'hfsc'", "none, fifo, drr, wfq, wf2q"],
    );
    refuses(
        &["bench", "--arrivals", "odd"],
        &["--arrivals", "'odd'", "smooth, bursty"],
    );
}

#[test]
fn a_weight_out_of_range_is_named() {
    for (weights, names) in [
        ("0", "'0'"),
        ("1,0", "'0'"),
        ("1000001", "'1000001'"),
        ("1,,2", "''"),
        ("1,x", "'x'"),
        ("1.5", "'1.5'"),
    ] {
        refuses(
            &["run", "--weights", weights],
            &["--weights", names, "1000000"],
        );
    }
    let many = vec!["1"; 65].join(",");
    refuses(
        &["run", "--weights", &many],
        &["--weights", "65 senders", "64"],
    );
}

#[test]
fn a_rate_without_a_unit_or_out_of_range_is_named() {
    refuses(&["run", "--rate", "100"], &["--rate", "'100'", "unit"]);
    refuses(
        &["run", "--rate", "100mbps"],
        &["--rate", "'100mbps'", "unit"],
    );
    refuses(&["run", "--rate", "fast"], &["--rate", "'fast'"]);
    refuses(&["run", "--rate", ""], &["--rate", "''"]);
    for rate in ["999bit", "0mbit", "1001gbit", "2tbit"] {
        refuses(
            &["run", "--rate", rate],
            &["--rate", rate, "1kbit and 1tbit"],
        );
    }
}

#[test]
fn a_packet_or_a_time_out_of_range_is_named() {
    for packet in ["0", "65508", "4294967297", "small"] {
        refuses(&["run", "--packet", packet], &["--packet", packet]);
    }
    for seconds in ["0", "nan", "inf", "1e10", "5s"] {
        refuses(&["run", "--seconds", seconds], &["--seconds", seconds]);
    }
    refuses(&["run", "--seconds", "-1"], &["'-1'"]);
}

#[test]
fn an_address_that_cannot_be_listened_on_is_named() {
    refuses(
        &["run", "--listen", "localhost"],
        &["--listen", "'localhost'"],
    );
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    refuses(&["run", "--listen", &address], &[&address, "in use"]);
    refuses(
        &["run", "--json", "--listen", &address],
        &[&address, "in use"],
    );
}

#[test]
fn a_flow_set_that_does_not_parse_is_named_with_the_reason() {
    for (sets, names) in [
        ("1:2", "WEIGHT:LENGTH:FLOWS"),
        ("1::8,x::8", "weight 'x'"),
        ("0::8", "1 to 1000000"),
        ("1000001::8", "1 to 1000000"),
        ("9-1::8", "rising order"),
        ("1-9-2-2::8", "MIN-MAX-STEPS"),
        ("1-9-0::8", "1000 steps"),
        ("1:65536:8", "1 to 65535"),
        ("1::0", "16777216"),
        ("1::17m", "16777216"),
        ("1::16m,1::1", "16777217 flows"),
    ] {
        refuses(&["bench", "--flowsets", sets], &["--flowsets", sets, names]);
    }
    refuses(&["bench", "--flowsets", ""], &["--flowsets", "''"]);
    refuses(
        &["bench", "--aggregate", "0"],
        &["--aggregate", "'0'", "from 1"],
    );
}

#[test]
fn backlogs_that_leave_no_room_are_named_before_anything_is_measured() {
    for alg in ["none", "fifo", "qfq", "wf2q++"] {
        refuses(
            &["bench", "--alg", alg, "--qmin", "5", "--qmax", "5"],
            &["--qmin 5", "--qmax 5"],
        );
    }
    refuses(&["bench", "--qmin", "31n"], &["--qmin", "--qmax"]);
    // Invalid for the table's larger flow sets only.
    refuses(
        &["bench", "--json", "--qmin", "20n", "--qmax", "1000"],
        &["--qmin", "--qmax 1000"],
    );
    refuses(&["bench", "--qmin", "some"], &["--qmin", "'some'"]);
    refuses(
        &["bench", "--qmax", "4294967296"],
        &["--qmax", "'4294967296'"],
    );
    refuses(&["bench", "-n", "0"], &["-n", "'0'"]);
    refuses(&["bench", "--seed", "x"], &["--seed", "'x'"]);
}

#[test]
fn help_mentions_every_option_and_command() {
    // Each starts a line.
    let explained = |arguments: &[&str], entries: &[&str]| {
        let help = fairlane(arguments).success();
        for entry in entries {
            let mut lines = help.lines().map(|line| format!("{} ", line.trim_start()));
            assert!(
                lines.any(|line| line.starts_with(&format!("{entry} "))),
                "{arguments:?} does not explain {entry}:\n{help}"
            );
        }
    };
    let common = [
        "run",
        "bench",
        "replay",
        "compare",
        "sim",
        "-h, --help",
        "-V, --version",
    ];
    explained(&["--help"], &common);
    explained(&["-h"], &common);
    explained(&["help"], &common);
    for help in ["--help", "-h"] {
        let run = [
            "--rate",
            "--alg",
            "--weights",
            "--packet",
            "--seconds",
            "--listen",
            "--json",
        ];
        explained(&["run", help], &run);
        let bench = [
            "--alg",
            "--flowsets",
            "--qmin",
            "--qmax",
            "-n",
            "--arrivals",
            "--seed",
            "--json",
        ];
        explained(&["bench", help], &bench);
        let replay = [
            "--alg",
            "--rate",
            "--flows",
            "--config",
            "--link",
            "-o",
            "--flow-by",
            "--overhead",
            "--aggregate",
            "--report",
            "--json",
        ];
        explained(&["replay", help], &replay);
        let compare = [
            "--alg",
            "--rate",
            "--flows",
            "--config",
            "--flow-by",
            "-n",
            "--json",
        ];
        explained(&["compare", help], &compare);
        let sim = ["--seconds", "--seed", "--link", "--json"];
        explained(&["sim", help], &sim);
    }
    let algorithms = [
        "- fifo:", "- drr:", "- wf2q+:", "- qfq:", "- qfq+:", "- s-kps:", "- gfq:", "- sfq:",
    ];
    explained(&["run", "--help"], &algorithms);
    explained(&["bench", "--help"], &algorithms);
    explained(&["replay", "--help"], &algorithms);
    explained(&["compare", "--help"], &algorithms);
    explained(&["bench", "--help"], &["- none:", "- smooth:", "- bursty:"]);
}

#[test]
fn the_version_is_that_of_the_package() {
    let version = format!("fairlane {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(fairlane(&["--version"]).success(), version);
}

#[test]
fn a_variable_that_is_empty_says_as_little_as_one_that_is_not_set() {
    let said = |variable: &str, value: &str, arguments: &[&str]| {
        let mut program = command();
        let output = program.args(arguments).env(variable, value).output();
        String::from_utf8(output.unwrap().stderr).unwrap()
    };
    let run = ["run", "/nowhere/site.toml"];
    for (level, names) in [("", "/nowhere/site.toml"), ("loud", "'loud'")] {
        let said = said("FAIRLANE_LOG", level, &run);
        assert!(said.contains(names), "{said}");
    }
    let demonstration = ["run", "--seconds", "0.1", "--listen", "127.0.0.1:0"];
    assert_eq!(said("FAIRLANE_LOG", "", &demonstration), "");
    let told = said("FAIRLANE_SOCKET", "", &["ctl", "show"]);
    assert!(!told.contains("--socket"), "{told}");
}
