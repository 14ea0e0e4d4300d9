//! Each error of a scenario is one sentence with its place.

use super::*;

const SITE: &str = "[[site.link]]\nname = \"up\"\nrate = \"1mbit\"\nclass = [{ name = \"voice\" }, \
                    { name = \"in\" }, { name = \"below\", parent = \"in\", default = true }]\n";

#[track_caller]
pub(super) fn refuses(scenario: &str, places: &[(&str, &[&str])]) {
    let folder = Folder::new();
    folder.write("two.toml", "[[link]]\nname = \"up\"\nrate = \"1mbit\"\n[[link]]\nname = \"down\"\nto = \"inside\"\nrate = \"1mbit\"\n");
    folder.write("bad.toml", "[[link]]\nname = \"up\"\nrate = \"1mbps\"\n");
    let finished = folder.sim(scenario, &[]);
    assert_eq!(finished.status.code(), Some(2), "{scenario}: {finished:?}");
    assert_eq!(finished.stdout, "");
    let lines: Vec<&str> = finished.stderr.lines().collect();
    assert_eq!(lines.len(), places.len(), "{scenario}: {finished:?}");
    for (line, (place, words)) in lines.into_iter().zip(places) {
        let (_, told) = line
            .split_once(&folder.0.path().display().to_string())
            .unwrap();
        assert!(told.starts_with(&format!("/{place}:")), "{place}: {line}");
        for word in *words {
            assert!(line.contains(word), "{word} is not in: {line}");
        }
    }
}

/// Checks the errors of a source with these keys, by lines of the source.
#[track_caller]
fn refuses_source(keys: &str, line: usize, column: usize, words: &[&str]) {
    let scenario = format!("{SITE}[[source]]\n{keys}\n");
    let place = format!("scenario.toml:{}:{column}", line + 5);
    refuses(&scenario, &[(&place, words)]);
}

#[test]
fn a_bad_scenario_is_named() {
    let source = "[[source]]\nclass = \"voice\"\ntraffic = \"backlogged\"\n";
    let with = |head: &str| format!("{head}\n{SITE}{source}");
    for (scenario, place, words) in [
        (
            source.to_owned(),
            "scenario.toml:1:1",
            &["'site' is missing"][..],
        ),
        (
            with("sed = 1"),
            "scenario.toml:1:1",
            &["'sed'", "did you mean 'seed'"],
        ),
        (
            with("seconds = 0"),
            "scenario.toml:1:11",
            &["seconds 0", "above 0"],
        ),
        (with("seed = -1"), "scenario.toml:1:8", &["seed -1"]),
        (
            with("warm-up = \"1\""),
            "scenario.toml:1:11",
            &["warm-up '1'", "units"],
        ),
        (
            with("link = \"upp\""),
            "scenario.toml:1:8",
            &["did you mean 'up'"],
        ),
        (with("x ="), "scenario.toml:1:4", &[]),
        (SITE.to_owned(), "scenario.toml:1:1", &["no [[source]]"]),
        (
            format!("site = \"nowhere.toml\"\n{source}"),
            "scenario.toml:1:8",
            &["nowhere.toml", "No such file"],
        ),
        (
            format!("site = \"two.toml\"\n{source}"),
            "scenario.toml:1:8",
            &["several links", "up, down"],
        ),
        (
            format!("site = 5\n{source}"),
            "scenario.toml:1:8",
            &["site's file"],
        ),
        // Errors of the site are reported at their places in the site's file.
        (
            format!("site = \"bad.toml\"\n{source}"),
            "bad.toml:3:8",
            &["rate '1mbps'"],
        ),
        (
            format!("{SITE}limit = {{ packets = 0 }}\n{source}"),
            "scenario.toml:5:21",
            &["packets 0"],
        ),
    ] {
        refuses(&scenario, &[(place, words)]);
    }
    let folder = Folder::new();
    let missing = folder.0.path().join("nobody.toml").display().to_string();
    let finished = fairlane(&["sim", &missing]);
    assert_eq!(finished.status.code(), Some(2));
    assert!(finished.stderr.contains(&missing), "{finished:?}");
}

#[test]
fn a_bad_class_of_a_source_is_named() {
    let backlogged = "traffic = \"backlogged\"";
    for (first, second, line, column, words) in [
        (
            "class = \"vioce\"",
            backlogged,
            1,
            9,
            &["did you mean 'voice'"][..],
        ),
        ("class = \"in\"", backlogged, 1, 9, &["'in' has children"]),
        (
            "dscp = \"ef\"\nclass = \"voice\"",
            backlogged,
            2,
            9,
            &["'dscp' is there too"],
        ),
        ("ecn = true", backlogged, 2, 11, &["needs a class", "dscp"]),
    ] {
        refuses_source(&format!("{first}\n{second}"), line, column, words);
    }
}

#[test]
fn bad_traffic_of_a_source_is_named() {
    let backlogged = "traffic = \"backlogged\"";
    for (first, second, line, column, words) in [
        (
            "class = \"voice\"",
            "traffic = \"cbrr\"",
            2,
            11,
            &["did you mean 'cbr'"][..],
        ),
        (
            "class = \"voice\"",
            "traffic = \"quic\"",
            2,
            11,
            &["cbr, poisson, on-off, backlogged, tcp"],
        ),
        (
            "class = \"voice\"",
            "traffic = \"tcp\"",
            2,
            11,
            &["'rtt' is missing"],
        ),
        (
            "class = \"voice\"\nrtt = \"0s\"",
            "traffic = \"tcp\"",
            2,
            7,
            &["rtt '0s': it is above 0 and at most 100s"],
        ),
        (
            "class = \"voice\"\nrtt = \"20ms\"",
            backlogged,
            2,
            7,
            &["rtt: traffic 'backlogged' has none"],
        ),
        (
            "class = \"voice\"",
            "traffic = \"cbr\"",
            2,
            11,
            &["'rate' is missing"],
        ),
        (
            "class = \"voice\"\nrate = \"1mbit\"",
            backlogged,
            2,
            8,
            &["rate: traffic 'backlogged'"],
        ),
        (
            "class = \"voice\"\nrate = \"5\"",
            "traffic = \"cbr\"",
            2,
            8,
            &["rate '5'", "unit"],
        ),
    ] {
        refuses_source(&format!("{first}\n{second}"), line, column, words);
    }
}

#[test]
fn a_bad_number_of_a_source_is_named() {
    let backlogged = "traffic = \"backlogged\"";
    for (first, second, line, column, words) in [
        (
            "class = \"voice\"\nwindow = 0",
            backlogged,
            2,
            10,
            &["window 0", "1 and 1000000"][..],
        ),
        (
            "class = \"voice\"\nlength = 1523",
            backlogged,
            2,
            10,
            &["1 to 1522"],
        ),
        (
            "class = \"voice\"\nlength = \"9-5\"",
            backlogged,
            2,
            10,
            &["length '9-5'"],
        ),
        (
            "class = \"voice\"\ncount = 0",
            backlogged,
            2,
            9,
            &["count 0"],
        ),
        (
            "class = \"voice\"\nstart = \"2s\"\nstop = \"2s\"",
            backlogged,
            3,
            8,
            &["not after the start"],
        ),
    ] {
        refuses_source(&format!("{first}\n{second}"), line, column, words);
    }
}

#[test]
fn bad_headers_of_a_source_are_named() {
    let backlogged = "traffic = \"backlogged\"";
    for (first, second, line, column, words) in [
        (
            "source = \"10.0.0.5/8\"",
            backlogged,
            1,
            10,
            &["10.0.0.0/8"][..],
        ),
        (
            "source = \"10.0.0.1\"\ndestination = \"::1\"",
            backlogged,
            2,
            15,
            &["version of IP"],
        ),
        (
            "protocol = \"icmp\"\nsource-port = 5",
            backlogged,
            2,
            15,
            &["icmp has no ports"],
        ),
        (
            "source = \"2001:db8::1\"\nprotocol = 0",
            backlogged,
            2,
            12,
            &["protocol", "IPv6"],
        ),
        ("dscp = 64", backlogged, 1, 8, &["dscp '64'"]),
        ("ingress = \"wan\"", backlogged, 1, 11, &["inside, outside"]),
        (
            "user = 5\ningress = \"inside\"",
            backlogged,
            2,
            11,
            &["attached processes"],
        ),
        ("vlan = 4096", backlogged, 1, 8, &["vlan 4096"]),
        (
            "clas = \"voice\"",
            backlogged,
            1,
            1,
            &["did you mean 'class'"],
        ),
    ] {
        refuses_source(&format!("{first}\n{second}"), line, column, words);
    }
}

#[test]
fn all_that_is_wrong_with_sources_is_said_at_once() {
    let sources = "[[source]]\nclass = \"x\"\ntraffic = \"backlogged\"\n".repeat(2);
    refuses(
        &format!("seconds = 0\n{SITE}{sources}"),
        &[
            ("scenario.toml:1:11", &["seconds"]),
            ("scenario.toml:7:9", &["'x'"]),
            ("scenario.toml:10:9", &["'x'"]),
        ],
    );
}
