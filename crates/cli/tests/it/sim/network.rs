//! Networks: the path of packets over several wires, and errors in a network's file.

use super::refusals::refuses;
use super::*;

/// Fig. 8 of the QFQ report, whose routers schedule by QFQ.
const FIG_8: &str = include_str!("../../../../../lab/src/fairlane_lab/experiments/qfq_ns2.toml");

/// Two hosts and a router between them, whose wires are 10 and 1 Mbit/s.
const ROW: &str = "\
node = [{ name = \"a\" }, { name = \"r\", algorithm = \"qfq\" }, { name = \"b\" }]
wire = [
  { from = \"a\", to = \"r\", rate = \"10mbit\", delay = \"2ms\" },
  { from = \"r\", to = \"b\", rate = \"1mbit\", delay = \"3ms\" },
]
";

fn source(keys: &str) -> String {
    format!("[[source]]\nfrom = \"a\"\nto = \"b\"\n{keys}\n")
}

/// Returns the report of the sources of this name.
#[track_caller]
fn sources<'a>(report: &'a Value, name: &str) -> &'a Value {
    let all = report["sources"].as_array().unwrap();
    let found = all.iter().find(|source| source["name"] == name);
    found.unwrap_or_else(|| panic!("no source {name} in {report}"))
}

#[test]
fn a_packet_alone_takes_what_its_wires_take() {
    let lone = source("traffic = \"cbr\"\nrate = \"10kbit\"\nlength = 1000\nname = \"x\"");
    let folder = Folder::new();
    let report = folder.report(&format!("seconds = 1\n{ROW}{lone}"), &[]);
    let x = sources(&report, "x");
    // 0.8 + 2 + 8 + 3 ms.
    for key in ["mean", "max"] {
        assert_eq!(x["delay_us"][key], 13_800.0, "{x}");
    }
    assert_eq!(
        (&x["sent_packets"], &x["received_packets"]),
        (&2.into(), &2.into())
    );
    assert_eq!(x["delay_us"]["deviation"], 0.0);
    let wires = report["wires"].as_array().unwrap();
    let algorithms: Vec<_> = wires
        .iter()
        .map(|wire| wire["algorithm"].as_str().unwrap())
        .collect();
    assert_eq!(algorithms, ["fifo", "qfq", "qfq", "fifo"]);
    let text = folder
        .sim(&format!("seconds = 1\n{ROW}{lone}"), &[])
        .success();
    for words in ["4 wires in 1 s, seed 1", "a > b", "13.8ms", "r > b"] {
        assert!(text.contains(words), "{words} is not in: {text}");
    }
}

#[test]
fn what_was_sent_was_received_or_dropped_or_is_on_its_way() {
    let many = [
        source("traffic = \"poisson\"\nrate = \"3mbit\"\nlength = \"64-1500\"\ncount = 3"),
        source("traffic = \"tcp\"\nweight = 5"),
        source("traffic = \"backlogged\"\nstart = \"200ms\"\nstop = \"900ms\""),
    ];
    let scenario = format!("seconds = 2\nwarm-up = \"500ms\"\n{ROW}{}", many.concat());
    let folder = Folder::new();
    let report = folder.report(&scenario, &[]);
    let mut received = 0.0;
    for source in report["sources"].as_array().unwrap() {
        let of = |key: &str| source[key].as_u64().unwrap();
        let fates = ["received_packets", "rejected", "displaced", "on_their_way"];
        let accounted: u64 = fates.map(of).iter().sum();
        let sent = of("on_their_way_before") + of("sent_packets");
        assert_eq!(sent, accounted, "{source}");
        received += number(&source["received_bps"]);
    }
    assert!(received > 0.9e6 && received <= 1.01e6, "{report}");
    let run = |options: &[&str]| folder.sim(&scenario, options).success();
    assert_eq!(run(&["--json"]), run(&["--json", "--seed", "1"]));
    assert_ne!(run(&["--json"]), run(&["--json", "--seed", "2"]));
}

#[test]
fn under_drr_packets_wait_several_times_as_long_as_under_qfq() {
    // The delay of a packet without other traffic: 22 ms on the wires, and the transmission time of 200 bytes on each
    // of them.
    let alone = 22_000.0 + 2.0 * 16.0 + 2.0 * 160.0;
    let waits = |algorithm: &str| {
        let scenario = FIG_8.replace("\"qfq\"", &format!("\"{algorithm}\""));
        let report = Folder::new().report(&scenario, &["--seconds", "2"]);
        ["f0", "f1"].map(|name| {
            let flow = sources(&report, name);
            assert_eq!(
                flow["rejected"].as_u64().zip(flow["displaced"].as_u64()),
                Some((0, 0))
            );
            number(&flow["delay_us"]["mean"]) - alone
        })
    };
    let (drr, qfq, wf2q) = (waits("drr"), waits("qfq"), waits("wf2q+"));
    let smaller = waits("drr\", quantum = \"100b");
    assert!(smaller[1] < drr[1], "{smaller:?} {drr:?}");
    assert!(
        drr[0] > 2.0 * qfq[0] && drr[1] > 10.0 * qfq[1],
        "{drr:?} {qfq:?}"
    );
    // Closer to WF2Q+ at a high rate.
    let apart = [0, 1].map(|flow| (qfq[flow] - wf2q[flow]).abs());
    assert!(
        apart[1] < 1_000.0 && apart[1] <= apart[0],
        "{qfq:?} {wf2q:?}"
    );
}

#[test]
fn calls_do_not_wait_for_downloads_that_have_queues_of_their_own() {
    let report = example("network.toml", &["--seconds", "3"]);
    let calls = sources(&report, "calls");
    near(number(&calls["received_bps"]), 500_000.0, 0.01);
    assert!(number(&calls["delay_us"]["max"]) < 25_000.0, "{calls}");
    let downloads = number(&sources(&report, "downloads")["received_bps"]);
    let backup = number(&sources(&report, "backup")["received_bps"]);
    assert!(downloads + backup > 9.2e6, "{report}");
    assert!(number(&sources(&report, "pages")["received_bps"]) > 0.5e6);
}

/// Checks that a scenario with a changed line is rejected at that line.
#[track_caller]
fn refuses_line(line: usize, written: &str, words: &[&str]) {
    let sound = format!("{ROW}{}", source("traffic = \"cbr\"\nrate = \"1mbit\""));
    let mut lines: Vec<&str> = sound.lines().collect();
    lines[line - 1] = written;
    refuses(
        &lines.join("\n"),
        &[(&format!("scenario.toml:{line}"), words)],
    );
}

#[test]
fn what_is_wrong_with_a_network_is_named() {
    let nodes = "node = [{ name = \"a\" }, { name = \"r\" }, { name = \"b\" }, { name = \"c\" }";
    for (line, written, words) in [
        (8, "to = \"bb\"", &["to 'bb'", "did you mean 'b'"][..]),
        (8, "to = \"a\"", &["to 'a'", "come from there"]),
        (
            1,
            &format!("{nodes}, {{ name = \"r\" }}]"),
            &["node 'r' is there already"],
        ),
        (
            1,
            &format!("{nodes}, {{ name = \"d\", algorithm = \"wfqq\" }}]"),
            &["'wfqq'", "did you mean"],
        ),
        (
            3,
            "  { from = \"a\", to = \"r\", rate = \"10\", delay = \"2ms\" },",
            &["rate '10'", "unit"],
        ),
        (
            3,
            "  { from = \"a\", to = \"r\", rate = \"10mbit\", delay = \"2\" },",
            &["delay '2'", "units"],
        ),
        (
            3,
            "  { from = \"a\", to = \"r\", rate = \"10mbit\", delay = \"2ms\", algorithm = \"drrr\" },",
            &["algorithm 'drrr'", "did you mean 'drr'"],
        ),
        (
            3,
            "  { from = \"a\", to = \"r\", rate = \"10mbit\", delay = \"2ms\", quantum = \"500b\" },",
            &["quantum: only algorithm \"drr\" has one"],
        ),
        (
            1,
            &format!("{nodes}, {{ name = \"d\", algorithm = \"drr\", quantum = \"8b\" }}]"),
            &["quantum '8b': it lies between 64b and 65535b"],
        ),
        (
            3,
            "  { from = \"a\", to = \"r\", rate = \"10mbit\", delay = \"2ms\", limit = { packets = 0 } },",
            &["limit packets 0"],
        ),
        (
            3,
            "  { from = \"a\", to = \"r\", rate = \"10mbit\", delay = \"2ms\", limit = { bytes = \"0kb\" } },",
            &["limit bytes '0kb'", "above 0"],
        ),
        (
            3,
            "  { from = \"a\", to = \"r\", rate = \"10mbit\", delay = \"61min\" },",
            &["delay '61min'", "at most 1h"],
        ),
        // The second would carry nothing.
        (
            4,
            "  { from = \"r\", to = \"a\", rate = \"1mbit\", delay = \"3ms\" },",
            &["to 'a': a wire joins it with 'r' already", "one-way"],
        ),
        (
            3,
            "  { from = \"a\", to = \"a\", rate = \"10mbit\", delay = \"2ms\" },",
            &["to 'a': the wire begins there"],
        ),
        (9, "rtt = \"1ms\"\ntraffic = \"tcp\"", &["rtt: "]),
        (
            9,
            "on = \"1us\"\noff = \"1s\"\ntraffic = \"on-off\"\nrate = \"1kbit\"",
            &["on '1us'", "1500 bytes", "10000 times"],
        ),
        (9, "class = \"x\"\ntraffic = \"backlogged\"", &["class: "]),
    ] {
        if line == 9 {
            let sound = format!("{ROW}{}", source(written));
            refuses(&sound, &[("scenario.toml:9", words)]);
        } else {
            refuses_line(line, written, words);
        }
    }
}

#[test]
fn packets_that_never_pass_a_port_are_named() {
    let narrow = ROW.replace("\"3ms\" }", "\"3ms\", limit = { bytes = \"1000b\" } }");
    for (length, words) in [
        ("", "to 'b': packets of 1500 bytes exceed"),
        (
            "length = 1001",
            "length '1001': packets of 1001 bytes exceed",
        ),
        (
            "length = \"64-1200\"",
            "length '64-1200': packets of 1200 bytes",
        ),
    ] {
        let sound = source(&format!("traffic = \"cbr\"\nrate = \"1mbit\"\n{length}"));
        let line = if length.is_empty() { 8 } else { 11 };
        let port = "the port from 'r' to 'b' (at most 1000 bytes)";
        refuses(
            &format!("{narrow}{sound}"),
            &[(&format!("scenario.toml:{line}"), &[words, port])],
        );
    }
    let short = source("traffic = \"cbr\"\nrate = \"100kbit\"\nlength = 1000\nname = \"x\"");
    let folder = Folder::new();
    let report = folder.report(&format!("seconds = 1\n{narrow}{short}"), &[]);
    assert!(
        number(&sources(&report, "x")["received_bps"]) > 9e4,
        "{report}"
    );
}

#[test]
fn unreachable_destination_is_named() {
    let cbr = source("traffic = \"cbr\"\nrate = \"1mbit\"");
    let tcp = source("traffic = \"tcp\"");
    let wire = |from, to, keys: &str| {
        format!(
            "[[wire]]\nfrom = \"{from}\"\nto = \"{to}\"\nrate = \"1mbit\"\ndelay = \"1ms\"\n{keys}"
        )
    };
    let nodes = "node = [{ name = \"a\" }, { name = \"r\" }, { name = \"b\" }]\n";
    // No wire leads to the node.
    let lonely = format!("{nodes}{}{cbr}", wire("a", "r", ""));
    refuses(
        &lonely,
        &[("scenario.toml:9", &["no wires lead from 'a' to 'b'"])],
    );
    // The wires form a cycle, whose only connection to the rest has the opposite direction.
    let one_way = "one-way = true\n";
    let circle = [
        wire("a", "r", one_way),
        wire("r", "a", one_way),
        wire("b", "a", one_way),
    ];
    let circle = format!("{nodes}{}{cbr}", circle.concat());
    refuses(
        &circle,
        &[("scenario.toml:22", &["no wires lead from 'a' to 'b'"])],
    );
    // No source sends there, and none could.
    let on = source("traffic = \"cbr\"\nrate = \"1mbit\"").replace("\"b\"", "\"r\"");
    refuses(
        &format!("{nodes}{}{on}", wire("a", "r", "")),
        &[("scenario.toml:1", &["node 'b': no wire leads there"])],
    );
    // Only acknowledgements would need the missing reverse direction.
    let nodes = "node = [{ name = \"a\" }, { name = \"b\" }]\n";
    let there = format!("{nodes}{}", wire("a", "b", one_way));
    refuses(
        &format!("{there}{tcp}"),
        &[("scenario.toml:10", &["no wires lead from 'b' to 'a'"])],
    );
    let sound = Folder::new().sim(&format!("seconds = 0.1\n{there}{cbr}"), &[]);
    sound.success();
}

#[test]
fn a_scenario_is_of_a_link_or_of_a_network() {
    let cbr = source("traffic = \"cbr\"\nrate = \"1mbit\"");
    let site = "site = { link = [{ name = \"l\", rate = \"1mbit\" }] }\n";
    let of_site = "[[source]]\nclass = \"default\"\nfrom = \"a\"\ntraffic = \"backlogged\"\n";
    let backlogged = "[[source]]\nclass = \"default\"\ntraffic = \"backlogged\"\n";
    refuses(
        &format!("{site}{of_site}"),
        &[("scenario.toml:4", &["from: "])],
    );
    refuses(
        &format!("{site}{ROW}{backlogged}"),
        &[("scenario.toml:2", &["not of both"])],
    );
    let wire = "[[wire]]\nfrom = \"a\"\nto = \"b\"\nrate = \"1mbit\"\ndelay = \"1ms\"\n";
    refuses(
        &format!("{site}{wire}{backlogged}"),
        &[("scenario.toml:3", &["not of both"])],
    );
    refuses(
        &format!("link = \"l\"\n{ROW}{cbr}"),
        &[("scenario.toml:1", &["link: "])],
    );
}
