//! The operator's view of a class: its bound while it applies, an explanation, weights, filters and errors.

use std::path::Path;
use std::time::Instant;

use serde_json::Value;

use crate::program::fairlane;
use crate::site::{PATIENCE, class, interfaces, up, wire};
use crate::site_control::Asked;
use crate::site_reload::numbered;

const CLASSES: &str = "
[[link.class]]
name = \"voice\"
rate = \"2mbit\"
limit = { packets = 50 }

[[link.class]]
name = \"calls\"
rate = \"500kbit\"

[[link.class]]
name = \"everybody\"
per = \"source-ip\"
default = true

[[link.filter]]
class = \"voice\"
destination-port = 1001

[[link.filter]]
class = \"calls\"
destination-port = 1003
dscp = \"ef\"
";

/// Requests explanations of a class until one satisfies the condition.
#[track_caller]
fn explained(asked: &Asked, class: &str, is: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let told = asked.json(&["explain", class]);
        if is(&told) {
            return told;
        }
        assert!(begun.elapsed() < PATIENCE, "{told:#}");
    }
}

/// Returns whether one of its sentences contains these words.
fn says(told: &Value, key: &str, words: &str) -> bool {
    let mut sentences = told[key].as_array().unwrap().iter();
    sentences.any(|one| one.as_str().unwrap().contains(words))
}

#[test]
fn explain_says_that_the_bound_does_not_apply_above_the_guarantee() {
    let Some(wire) = wire("a class above its guarantee", 1) else {
        return;
    };
    let asked = Asked::over(&wire, &(up("packet", "3mbit") + CLASSES), "");
    let hosts = || (wire.sender(0), wire.receiver());
    // 4.3mbit, with a guarantee of 2mbit.
    numbered(hosts(), 1_001, || {
        let told = explained(&asked, "voice", |told| {
            told["bound_applies"] == false
                && told["drops"].as_u64() > Some(0)
                && told["offered_bps"].as_f64() > Some(2.1e6)
        });
        for words in [
            " (guarantee 2mbit), offered ",
            "does not apply now, since the class is above its guarantee",
            "Recently dropped: ",
        ] {
            assert!(says(&told, "because", words), "{words} in {told:#}");
        }
        assert!(says(&told, "advice", "per = \"source-ip\""), "{told:#}");
        assert!(says(&told, "advice", "Raise the rate of voice"), "{told:#}");
        let table = asked.ctl(&["show"]).success();
        assert!(
            table.contains(" n/a ") && table.contains("n/a: the delay bound does not apply"),
            "{table}"
        );
    });
    let told = explained(&asked, "voice", |told| {
        told["bound_applies"] == true && told["drops"] == 0
    });
    assert!(says(&told, "because", ": applies."), "{told:#}");
    assert!(
        says(&told, "advice", "within its guarantee here"),
        "{told:#}"
    );
    let told = asked.json(&["explain", "calls"]);
    let words = "No packet has matched filter 1 of link up since start.";
    assert!(says(&told, "because", words), "{told:#}");
    assert!(says(&told, "advice", "fairlane ctl classify"), "{told:#}");
    // A host offers more than it gets.
    numbered(hosts(), 1_002, || {
        let told = explained(&asked, "everybody", |told| {
            let talker = &told["talkers"][0];
            talker["offered_bps"].as_f64() > talker["bps"].as_f64().map(|bps| 1.2 * bps)
        });
        assert!(
            says(&told, "because", "Top talkers: 10.0.0.1 offers "),
            "{told:#}"
        );
        let table = asked.ctl(&["flows"]).success();
        assert!(
            table.contains("offered") && table.contains("10.0.0.1"),
            "{table}"
        );
    });
    asked.site.stop();
}

#[test]
fn a_packet_is_classified_by_a_running_site_and_by_a_file_alike() {
    let Some(wire) = wire("packets that are described", 1) else {
        return;
    };
    let asked = Asked::over(&wire, &(up("packet", "3mbit") + CLASSES), "");
    let file = asked.site.file();
    let line = "IP (tos 0xb8, ttl 64, proto UDP (17), length 60) 10.0.0.1.9 > 10.0.0.2.1003: UDP, length 32";
    for (packet, words) in [
        (
            line,
            "up: class calls, by filter 1 (destination-port=1003 dscp=ef)",
        ),
        (
            "destination-port=1001 protocol=tcp",
            "up: class voice, by filter 0 (destination-port=1001)",
        ),
        (
            "ARP, Request who-has 10.0.0.1 tell 10.0.0.2, length 28",
            "up: class link-control, as link-layer control",
        ),
        (
            "destination-port=1003 protocol=udp",
            "up: class everybody, the default class",
        ),
    ] {
        let running = asked.ctl(&["classify", packet]).success();
        assert!(running.contains(words), "{packet}: {running}");
        let checked = fairlane(&["check", file.to_str().unwrap(), "--packet", packet]);
        assert_eq!(checked.success(), running, "{packet}");
    }
    let told = asked.json(&["classify", line]);
    assert_eq!(
        (&told[0]["class"], &told[0]["filter"]),
        (&"calls".into(), &1.into())
    );
    let refused = asked.refused(&["classify", "IP a.1 > b.2: UDP"]);
    assert!(refused.contains("use a line of tcpdump -n"), "{refused}");
    asked.site.stop();
}

#[test]
fn weights_are_those_of_the_file() {
    let Some(wire) = wire("weights of a file", 1) else {
        return;
    };
    let asked = Asked::over(&wire, &(up("packet", "47mbit") + CLASSES), "");
    let state = asked.json(&["show"]);
    let weight = |name: &str, key: &str| class(&state, "up", name)[key].clone();
    // The last one has neither a rate nor a weight: its weight is 1 by default.
    for (name, expected) in [
        ("voice", Value::Null),
        ("calls", Value::Null),
        ("everybody", 1.into()),
    ] {
        assert_eq!(weight(name, "weight"), expected, "{name}");
        assert!(weight(name, "scheduler_weight").as_u64() > Some(0));
    }
    // A weight set to the displayed value changes nothing.
    let same = asked.json(&["set", "everybody", "weight=1", "--dry-run"]);
    assert_eq!(same["effects_total"], 0, "{same:#}");
    asked.site.stop();
}

/// A link with the same class names in both directions, except one.
fn both(link: &str, to: &str, more: &str) -> String {
    format!(
        "[[link]]\nname = \"{link}\"\nto = \"{to}\"\nrate = \"20mbit\"\n\
         [[link.class]]\nname = \"voice\"\nrate = \"2mbit\"\nceil = \"6mbit\"\n\
         [[link.class]]\nname = \"{more}\"\ndefault = true\n\
         [[link.filter]]\nclass = \"voice\"\nprotocol = \"udp\"\ndestination-port = 5060\n"
    )
}

#[test]
fn lists_name_links_and_filters_and_errors_name_the_edit() {
    let Some(wire) = wire("two links with the same classes", 1) else {
        return;
    };
    let site = interfaces("packet")
        + &both("up", "outside", "everybody")
        + &both("down", "inside", "guests");
    let asked = Asked::over(&wire, &site, "");
    let table = asked.ctl(&["show"]).success();
    let rows = table.lines().filter(|line| line.contains(" voice "));
    let rows: Vec<&str> = rows.collect();
    assert_eq!(rows.len(), 2, "{table}");
    assert!(
        rows[0].contains(" down ") && rows[1].contains(" up "),
        "{table}"
    );

    let filters = asked.ctl(&["filter", "list"]).success();
    let matches = "protocol=udp destination-port=5060";
    assert_eq!(filters.matches(matches).count(), 2, "{filters}");
    let listed = asked.json(&["filter", "list", "down"]);
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed:#}");
    assert_eq!(
        (
            &listed[0]["link"],
            &listed[0]["number"],
            &listed[0]["match"]
        ),
        (&"down".into(), &0.into(), &matches.into())
    );

    // The class of the other link is not suggested.
    let refused = asked.refused(&["set", "up/guest", "weight=2"]);
    assert!(
        refused.ends_with("does not exist in link 'up'\n"),
        "{refused}"
    );
    let refused = asked.refused(&["set", "guest", "weight=2"]);
    assert!(
        refused.ends_with("did you mean 'down/guests'?\n"),
        "{refused}"
    );

    let refused = asked.refused(&["set", "up/voice", "rate=60mbit"]);
    assert!(
        refused.contains("up/voice rate=60mbit: ") && !refused.contains("configuration:"),
        "{refused}"
    );
    let file = asked.site.folder().join("other.toml");
    std::fs::write(&file, site.replace("\"2mbit\"", "\"60mbit\"")).unwrap();
    let refused = asked.ctl(&["apply", file.to_str().unwrap()]).stderr;
    assert!(refused.contains("other.toml:"), "{refused}");

    let object = |arguments: &[&str]| -> Value {
        let failed = asked.ctl(&[arguments, &["--json"]].concat());
        assert_eq!(failed.status.code(), Some(2), "{failed:?}");
        serde_json::from_str(&failed.stderr).unwrap_or_else(|_| panic!("{failed:?}"))
    };
    let refused = object(&["set", "up/voice", "rate=60mbit"]);
    assert!(
        refused["error"]
            .as_str()
            .unwrap()
            .starts_with("up/voice rate=60mbit: ")
    );
    assert_eq!(refused["status"], 422);
    assert!(object(&["sett", "up/voice"])["error"].is_string());
    asked.site.stop();
}

#[test]
fn errors_of_commands_are_json_where_it_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("site.toml");
    std::fs::write(&file, "[[link]]\nname = 7\n").unwrap();
    let failed = |arguments: &[&str]| {
        let failed = fairlane(arguments);
        assert_eq!(failed.status.code(), Some(2), "{failed:?}");
        failed.stderr
    };
    let object =
        |arguments: &[&str]| -> Value { serde_json::from_str(&failed(arguments)).unwrap() };
    let checked = object(&["check", file.to_str().unwrap(), "--json"]);
    assert_eq!(checked["errors"][0]["line"], 2, "{checked:#}");
    assert!(checked["error"].as_str().unwrap().contains("site.toml:"));
    let missing = folder.path().join("nowhere.sock");
    let unreachable = object(&[
        "ctl",
        "--socket",
        missing.to_str().unwrap(),
        "show",
        "--json",
    ]);
    let sentence = unreachable["error"].as_str().unwrap();
    assert!(
        sentence.starts_with("cannot reach fairlane at "),
        "{sentence}"
    );
    assert!(object(&["replay", "--json"])["error"].is_string());
    assert!(Path::new(&file).exists());
    let sentence = failed(&["chek", "site.toml"]);
    assert!(sentence.ends_with("did you mean 'check'?\n"), "{sentence}");
    // An option before the subcommand does not prevent the suggestion.
    let near = "unrecognized subcommand 'chek', did you mean 'check'?";
    assert_eq!(object(&["--json", "chek", "site.toml"])["error"], near);
    let behind = "unexpected argument '--json' before the subcommand (write fairlane check --json)";
    assert_eq!(object(&["--json", "check", "site.toml"])["error"], behind);
}
