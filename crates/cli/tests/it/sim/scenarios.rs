//! Scenarios written for the tests.

use std::thread;
use std::time::Duration;

use fairlane_control::view::drops;

use super::*;

/// Returns a link with a class `a` with these keys, and a class `b`.
fn site(rate: &str, algorithm: &str, keys: &str) -> String {
    site_of(1514, rate, algorithm, keys)
}

/// The same for frames of up to `longest` bytes.
fn site_of(longest: u32, rate: &str, algorithm: &str, keys: &str) -> String {
    format!(
        "[[site.link]]\nname = \"l\"\nrate = \"{rate}\"\nalgorithm = \"{algorithm}\"\n\
         longest = \"{longest}b\"\n\
         class = [{{ name = \"a\", {keys} }}, {{ name = \"b\", default = true }}]\n"
    )
}

fn source(class: &str, keys: &str) -> String {
    format!("[[source]]\nclass = \"{class}\"\n{keys}\n")
}

#[test]
fn a_capped_class_is_within_a_thousandth_of_its_ceiling_over_a_second_at_any_rate() {
    // At least a thousand packets a second, so that one is at most that fraction.
    for (ceiling, bps, length, link, others) in [
        ("64kbit", 64e3, 8, "10mbit", 64),
        ("1mbit", 1e6, 100, "10mbit", 64),
        ("33.3mbit", 33.3e6, 1_000, "100mbit", 1_500),
        ("1gbit", 1e9, 1_500, "2.5gbit", 9_000),
        ("10gbit", 1e10, 9_000, "25gbit", 9_000),
    ] {
        let scenario = [
            "seconds = 1\nwarm-up = \"1s\"\n",
            &site_of(
                length.max(others),
                link,
                "wf2q+",
                &format!("ceil = \"{ceiling}\""),
            ),
            &source("a", &format!("traffic = \"backlogged\"\nlength = {length}")),
            &source("b", &format!("traffic = \"backlogged\"\nlength = {others}")),
        ];
        let report = Folder::new().report(&scenario.concat(), &[]);
        near(number(&class(&report, "a")["sent_bps"]), bps, 0.001);
        let rate = number(&report["rate_bps"]);
        near(number(&class(&report, "b")["sent_bps"]), rate - bps, 0.001);
    }
}

#[test]
fn what_a_bound_is_for_keeps_to_it_under_every_algorithm() {
    let folder = Folder::new();
    for algorithm in [
        "wf2q+", "qfq", "qfq+", "wf2q++", "s-kps", "s-kps+", "gfq", "gfq+", "drr", "scfq",
    ] {
        for seed in ["1", "2", "3"] {
            let scenario = [
                "seconds = 5\n",
                &site_of(9014, "10mbit", algorithm, "rate = \"1mbit\""),
                &source(
                    "a",
                    "traffic = \"poisson\"\nrate = \"500kbit\"\nlength = \"64-9014\"",
                ),
                &source(
                    "b",
                    "count = 4\ntraffic = \"backlogged\"\nlength = \"64-9014\"",
                ),
            ];
            let report = folder.report(&scenario.concat(), &["--seed", seed]);
            assert!(number(&class(&report, "a")["bound_us"]) > 0.0);
            assert!(within_bounds(&report) > 20, "{algorithm}: {report}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_output_and_another_does_not() {
    let folder = Folder::new();
    let scenario = [
        "seconds = 1\nseed = 7\n",
        &site("10mbit", "qfq", "queue = \"red\", per = \"5-tuple\""),
        &source(
            "a",
            "count = 20\ntraffic = \"on-off\"\nrate = \"2mbit\"\non = \"20ms\"\noff = \"20ms\"",
        ),
        &source(
            "b",
            "traffic = \"poisson\"\nrate = \"3mbit\"\nlength = \"64-1514\"",
        ),
    ]
    .concat();
    let run = |options: &[&str]| folder.sim(&scenario, options).success();
    assert_eq!(run(&[]), run(&[]));
    assert_eq!(run(&["--json"]), run(&["--json", "--seed", "7"]));
    assert_ne!(run(&["--json"]), run(&["--json", "--seed", "8"]));
}

#[test]
fn headers_go_where_the_filters_of_the_site_send_them() {
    let folder = Folder::new();
    let site = "[[link]]\nname = \"up\"\nrate = \"1gbit\"\n\
        class = [{ name = \"calls\" }, { name = \"web\", per = \"source-ip\" }, { name = \"mine\" }, \
          { name = \"default\" }]\n\
        filter = [{ class = \"calls\", dscp = \"ef\", family = \"ipv6\" }, \
          { class = \"web\", source = \"10.0.0.0/24\", destination-port = \"80-90\", protocol = \"tcp\" }, \
          { class = \"mine\", user = 1000, ingress = \"attached\" }, \
          { class = \"mine\", group = 30 }, { class = \"mine\", vlan = 7, ingress = \"inside\" }]\n";
    folder.write("site.toml", site);
    let cbr = "traffic = \"cbr\"\nrate = \"1mbit\"\n";
    let mut scenario = "site = \"site.toml\"\nseconds = 0.1\n".to_owned();
    let cases = [
        ("dscp = \"ef\"\nsource = \"2001:db8::1\"", "calls"),
        ("dscp = 46", "default"),
        (
            "count = 9\nsource = \"10.0.0.0/24\"\ndestination-port = 80\nprotocol = \"tcp\"",
            "web",
        ),
        ("source = \"10.0.0.9\"\ndestination-port = 80", "default"),
        ("user = 1000", "mine"),
        ("user = 1001", "default"),
        ("user = 1001\ngroup = 30", "mine"),
        ("vlan = 7", "mine"),
        ("vlan = 7\ningress = \"tap\"", "default"),
    ];
    for (keys, _) in cases {
        scenario += &format!("[[source]]\n{keys}\n{cbr}");
    }
    let report = folder.report(&scenario, &[]);
    for (place, (keys, class)) in cases.into_iter().enumerate() {
        let source = &report["sources"][place];
        assert_eq!(source["classes"], serde_json::json!([class]), "{keys}");
    }
    assert_eq!(report["unmatched_sources"], 4);
    assert_eq!(report["malformed_sources"], 0);
    assert_eq!(class(&report, "web")["flows"], 9);
}

#[test]
fn sources_alike_are_flows_of_their_own_where_a_class_has_flows() {
    let scenario = [
        "seconds = 0.5\n",
        &site("10mbit", "qfq", "per = \"5-tuple\", flows = { most = 24 }"),
        &source("a", "count = 12\ntraffic = \"cbr\"\nrate = \"100kbit\""),
        &source("b", "count = 12\ntraffic = \"cbr\"\nrate = \"100kbit\""),
    ];
    let report = Folder::new().report(&scenario.concat(), &[]);
    assert_eq!(class(&report, "a")["flows"], 12);
    // Each keeps to the rate of its own flow.
    let a = class(&report, "a");
    assert_eq!(a["conforming_packets"], a["sent_packets"]);
}

#[test]
fn a_packet_that_may_be_marked_is_marked_where_another_is_dropped() {
    let folder = Folder::new();
    let run = |ecn: bool| {
        let scenario = [
            "seconds = 2\n",
            &site(
                "10mbit",
                "wf2q+",
                "queue = \"codel\", limit = { packets = 400 }",
            ),
            &source(
                "a",
                &format!("traffic = \"backlogged\"\nwindow = 200\nlength = 1500\necn = {ecn}"),
            ),
        ];
        folder.report(&scenario.concat(), &[])
    };
    let (marked, dropped) = (run(true), run(false));
    let count = |report: &Value, what: &str| number(&class(report, "a")[what]);
    assert!(count(&marked, "marked") > 10.0);
    assert_eq!(drops(class(&marked, "a")), 0);
    assert!(number(&class(&dropped, "a")["drops"]["managed"]) > 10.0);
    assert_eq!(count(&dropped, "marked"), 0.0);
    near(count(&marked, "sent_bps"), 10e6, 0.001);
}

#[test]
fn what_is_offered_was_sent_or_dropped_or_waits() {
    let scenario = [
        "seconds = 3\n",
        &site(
            "1mbit",
            "qfq",
            "queue = \"tail-drop\", limit = { packets = 20 }",
        ),
        &source(
            "a",
            "traffic = \"poisson\"\nrate = \"3mbit\"\nlength = \"64-1514\"\nstart = \"1s\"\nstop = \"2s\"",
        ),
    ];
    let report = Folder::new().report(&scenario.concat(), &[]);
    let a = class(&report, "a");
    let [offered, sent, dropped] = [
        &a["offered_packets"],
        &a["sent_packets"],
        &a["drops"]["full"],
    ]
    .map(number);
    assert!(dropped > 100.0 && sent > 100.0);
    assert_eq!(offered, sent + dropped);
    // A second's worth, at about the mean rate.
    near(number(&a["offered_bps"]) * 3.0, 3e6, 0.2);
    // It exceeds the bound because it exceeds its guaranteed rate, and the report says so.
    let text = Folder::new().sim(&scenario.concat(), &[]).success();
    let remark = text
        .lines()
        .find(|line| line.starts_with("longer than the bound"));
    assert!(remark.unwrap().contains("a ("), "{text}");
}

#[test]
fn interrupted_run_reports_its_progress() {
    let folder = Folder::new();
    let scenario = [
        "seconds = 1e6\n",
        &site("10gbit", "qfq", "rate = \"1gbit\""),
        &source("a", "traffic = \"backlogged\""),
    ];
    let path = folder.write("scenario.toml", &scenario.concat());
    let mut running = start(&["sim", &path, "--json"]);
    thread::sleep(Duration::from_millis(700));
    running.signal("INT");
    let finished = running.finish();
    let report: Value = serde_json::from_str(&finished.success()).unwrap();
    assert_eq!(report["interrupted"], true);
    assert!(number(&report["seconds"]) < 1e6);
}

#[test]
fn downloads_that_react_fill_the_link_and_wait_as_long_as_their_queue_lets_them() {
    let report = example("tcp.toml", &["--seconds", "10"]);
    let of = |name: &str, key: &str| number(&class(&report, name)[key]);
    for name in ["plain", "codel", "marked"] {
        near(of(name, "sent_bps"), 10e6, 0.03);
    }
    let delay = |name: &str| number(&class(&report, name)["delay_us"]["mean"]);
    // 500 packets at 10 Mbit/s are 606 ms.
    assert!(delay("plain") > 200_000.0, "{report}");
    assert!(
        delay("codel") < 30_000.0 && delay("marked") < 30_000.0,
        "{report}"
    );
    // CoDel drops on dequeue, or marks if it may.
    assert!(
        class(&report, "codel")["drops"]["managed"].as_u64() > Some(0),
        "{report}"
    );
    assert!(of("marked", "marked") > 0.0, "{report}");
    assert_eq!(drops(class(&report, "marked")), 0, "{report}");
}
