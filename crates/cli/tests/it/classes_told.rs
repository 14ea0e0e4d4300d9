//! `check`, `sim`, `replay` and `run` report a class with the same keys.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::program::fairlane;
use crate::site::{Site, interfaces, link, wire};

/// Classes of all kinds, with and without a bound, a ceiling and a configured rate.
const LINK: &str = r#"
[[link]]
name = "up"
to = "outside"
rate = "20mbit"
overhead = 24
longest = "1518b"
algorithm = "wf2q+"

[[link.class]]
name = "voice"
rate = "2mbit"

[[link.class]]
name = "office"
rate = "8mbit"
ceil = "16mbit"
algorithm = "priority"

[[link.class]]
name = "mail"
parent = "office"

[[link.class]]
name = "web"
parent = "office"

[[link.class]]
name = "guests"
per = "source-ip"
default = true
"#;

/// The classes of a link by name, each with its reported fields.
type Told = BTreeMap<String, Map<String, Value>>;

fn classes(link: &Value) -> Told {
    let classes = link["classes"].as_array().unwrap().iter();
    let told = classes.map(|class| class.as_object().unwrap().clone());
    let named = told.map(|class| (class["name"].as_str().unwrap().to_owned(), class));
    named.collect()
}

fn keys(class: &Map<String, Value>) -> Vec<&str> {
    class.keys().map(String::as_str).collect()
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&fairlane(arguments).success()).unwrap()
}

/// Returns the terms from `check` without `flows`. There it is the guarantees of each flow, which all commands call
/// `each`; elsewhere it is the number of flows.
fn terms(site: &str) -> Told {
    let mut terms = classes(&json(&["check", "--json", site])["links"][0]);
    for class in terms.values_mut() {
        // Only `check` includes the daemon's part.
        class.remove("port_to_port_ns");
        let flows = class.remove("flows");
        assert_eq!(flows.as_ref(), class.get("each"), "{class:?}");
    }
    terms
}

/// Checks that reported classes agree with `check` in all keys other than packet counters.
#[track_caller]
fn agrees(terms: &Told, told: &Told) {
    assert!(terms.keys().eq(told.keys()));
    for (name, class) in terms {
        for (key, value) in class {
            assert_eq!(Some(value), told[name].get(key), "{name}: {key}");
        }
    }
}

/// Writes the site to a folder, and returns its file's name.
fn site(folder: &tempfile::TempDir) -> String {
    let path = folder.path().join("site.toml");
    std::fs::write(&path, interfaces("packet") + LINK).unwrap();
    path.display().to_string()
}

/// Returns the classes reported by a replay of two packets of each class.
fn replayed(folder: &tempfile::TempDir, site: &str) -> Told {
    let arrivals = folder.path().join("arrivals.csv");
    let of = ["voice", "mail", "web", "guests"];
    let rows = of.map(|class| format!("0,{class},1000\n0,{class},500\n"));
    std::fs::write(&arrivals, format!("time_ns,flow,len\n{}", rows.concat())).unwrap();
    let arrivals = arrivals.display().to_string();
    classes(&json(&["replay", "--config", site, &arrivals, "--json"]))
}

#[test]
fn check_sim_and_replay_say_the_same_of_a_class_in_the_same_words() {
    let folder = tempfile::tempdir().unwrap();
    let site = site(&folder);
    let terms = terms(&site);
    let known = |name: &str, key: &str| !terms[name][key].is_null();
    assert!(known("voice", "bound_us") && known("office", "ceil_bps") && known("guests", "each"));
    assert!(known("web", "no_bound") && known("mail", "room_packets"));
    let sources = ["voice", "mail", "web", "guests"]
        .map(|class| format!("[[source]]\nclass = '{class}'\ntraffic = 'cbr'\nrate = '1mbit'\n"));
    let scenario = folder.path().join("scenario.toml");
    let text = format!("site = 'site.toml'\nseconds = 0.1\n{}", sources.concat());
    std::fs::write(&scenario, text).unwrap();
    let simulated = classes(&json(&["sim", &scenario.display().to_string(), "--json"]));
    agrees(&terms, &simulated);
    let replayed = replayed(&folder, &site);
    agrees(&terms, &replayed);
    for (name, class) in &simulated {
        assert_eq!(keys(class), keys(&replayed[name]), "{name}");
        let number = |key: &str| class[key].as_u64().unwrap();
        let of = |key: &str| number(&format!("{key}_packets"));
        assert_eq!(
            of("offered"),
            of("accepted") + class["drops"]["full"].as_u64().unwrap(),
            "{name}"
        );
    }
    assert_eq!(replayed["office"]["sent_bytes"], 2 * (1024 + 524));
}

#[test]
fn run_says_of_a_class_what_the_others_say() {
    let Some(wire) = wire("run says of a class what the others say", 1) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = site(&folder);
    let report = Site::start(&wire, &(interfaces("packet") + LINK)).stop();
    let ran = classes(link(&report, "up"));
    agrees(&terms(&file), &ran);
    let replayed = replayed(&folder, &file);
    for (name, class) in &ran {
        assert_eq!(keys(class), keys(&replayed[name]), "{name}");
        let number = |key: &str| class[key].as_u64().unwrap();
        let drops = class["drops"].as_object().unwrap().values();
        let came = number("accepted_packets") + drops.filter_map(Value::as_u64).sum::<u64>();
        assert_eq!(number("offered_packets"), came, "{name}");
        let delays = [&class["delay_us"], &replayed[name]["delay_us"]];
        if let [Some(ours), Some(theirs)] = delays.map(Value::as_object) {
            assert_eq!(keys(ours), keys(theirs), "{name}");
        }
    }
}
