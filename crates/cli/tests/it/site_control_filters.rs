//! A filter that can never match is rejected in a change, and causes a warning in a file.

use serde_json::{Value, json};

use crate::site::{up, wire};
use crate::site_control::{Asked, request};

const CLASSES: &str = "
[[link.class]]
name = \"voice\"

[[link.class]]
name = \"web\"
default = true

[[link.filter]]
class = \"voice\"
destination-port = \"1000-1999\"
";

/// Returns the status and body of an answer over the socket.
fn answered(asked: &Asked, method: &str, path: &str, body: &str) -> (String, Value) {
    let answer = request(&asked.socket(), (method, path), "", body);
    (answer.status.to_string(), answer.json())
}

/// Returns the single warning of a change that was applied.
#[track_caller]
fn warning(changed: &Value) -> &str {
    assert_eq!(changed["applied"], true, "{changed:#}");
    let [ref warning] = changed["warnings"].as_array().unwrap()[..] else {
        panic!("{changed:#}");
    };
    warning.as_str().unwrap()
}

#[test]
fn a_filter_that_can_never_match_is_refused_by_a_change_that_brings_it() {
    let Some(wire) = wire("filters that never match", 1) else {
        return;
    };
    let asked = Asked::over(&wire, &(up("packet", "20mbit") + CLASSES), "");
    let before = asked.config();
    let of_web = "the filter for class 'web' of link 'up' can never match: ";
    let by_voice = "filter number 0, for class 'voice', takes all its packets before";
    for (keys, why) in [
        (json!({"class": "web", "destination-port": 1_001}), by_voice),
        (
            json!({"class": "web", "source": "10.0.0.1", "destination": "2001:db8::1"}),
            "no packet is all that it asks for",
        ),
        (
            json!({"class": "web", "ingress": "outside"}),
            "no packet is all that it asks for",
        ),
        (
            json!({"class": "web", "user": 0}),
            "no packet is all that it asks for",
        ),
    ] {
        for dry in ["", "?dry-run=true"] {
            let path = format!("/v1/links/up/filters{dry}");
            let (status, told) = answered(&asked, "POST", &path, &keys.to_string());
            assert_eq!(status, "422", "{told}");
            assert_eq!(told["error"], format!("{of_web}{why}"), "{keys}");
        }
    }
    // Of several changes the invalid one is named; none is applied.
    let filters = json!(["v1", "links", "up", "filters"]);
    let classes = json!(["v1", "links", "up", "classes"]);
    let dead = json!({"method": "POST", "path": filters, "keys": {"class": "bulk", "destination-port": 1_001}});
    let bulk = json!({"method": "POST", "path": classes, "keys": {"name": "bulk"}});
    let body = json!([bulk, dead]).to_string();
    let (status, told) = answered(&asked, "POST", "/v1/changes", &body);
    let named = "change 2 of 2: the filter for class 'bulk' of link 'up' can never match: ";
    assert_eq!(
        (status.as_str(), &told["error"]),
        ("422", &format!("{named}{by_voice}").into())
    );
    let words = asked.refused(&["filter", "add", "up", "class=web", "destination-port=1001"]);
    assert!(words.contains(by_voice), "{words}");
    assert_eq!(asked.config(), before, "what is refused changes nothing");

    // If the same change removes the other filter, it matches.
    let first = json!(["v1", "links", "up", "filters", "0"]);
    let body = json!([bulk, dead, {"method": "DELETE", "path": first}]).to_string();
    let (status, told) = answered(&asked, "POST", "/v1/changes", &body);
    assert_eq!(
        (status.as_str(), &told["warnings"]),
        ("200", &json!([])),
        "{told:#}"
    );
    asked.site.stop();
}

#[test]
fn a_filter_that_was_there_before_or_that_a_file_has_is_a_warning() {
    let Some(wire) = wire("filters that match no longer", 1) else {
        return;
    };
    let asked = Asked::over(&wire, &(up("packet", "20mbit") + CLASSES), "");
    // An earlier filter takes its packets.
    let tens = ["filter", "add", "up", "class=web", "source=10.0.0.0/8"];
    let changed = asked.json(&[&tens[..], &["protocol=udp", "--at", "0"]].concat());
    assert_eq!(changed["warnings"], json!([]));
    let other = asked.json(&[&tens[..], &["--at", "0"]].concat());
    assert!(
        warning(&other).contains("filter number 0, for class 'web', takes all"),
        "{other:#}"
    );
    // The warning stays after other changes.
    let set = asked.json(&["set", "voice", "weight=2"]);
    assert!(warning(&set).contains("never matches"), "{set:#}");
    let more = asked.json(&["filter", "add", "up", "class=web", "destination-port=873"]);
    assert!(warning(&more).contains("never matches"), "{more:#}");
    let sentence = asked.refused(&["filter", "add", "up", "class=web", "source=10.0.0.1"]);
    assert!(sentence.contains("can never match"), "{sentence}");
    // A file that was valid stays valid.
    let file = asked.config() + "[[link.filter]]\nclass = \"web\"\nsource = \"10.0.0.1\"\n";
    let (status, told) = answered(&asked, "PUT", "/v1/config", &file);
    assert_eq!(status, "200", "{told}");
    assert_eq!(told["applied"], true);
    assert_eq!(told["warnings"].as_array().unwrap().len(), 2, "{told:#}");
    asked.site.stop();
}
