//! Changes of a running site that are not in its file, and reloads that would lose them.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::site::{PATIENCE, wire};
use crate::site_control::{Asked, until_it_tells};
use crate::site_load::state;

/// Waits for a state whose configuration satisfies a condition.
#[track_caller]
fn until(asked: &Asked, is: impl Fn(&Value) -> bool) -> Value {
    until_it_tells(&asked.socket());
    let begun = Instant::now();
    loop {
        let configuration = state(&asked.socket())["configuration"].clone();
        if is(&configuration) {
            return configuration;
        }
        assert!(begun.elapsed() < PATIENCE, "{configuration:#}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn unsaved(count: u64) -> impl Fn(&Value) -> bool {
    move |configuration| configuration["unsaved_changes"] == count
}

/// Returns the value of a metric without labels.
#[track_caller]
fn metric(asked: &Asked, name: &str) -> f64 {
    let metrics = asked.ctl(&["metrics"]).success();
    let values = metrics.lines().filter_map(|line| line.split_once(' '));
    let mut found = values.filter(|(key, _)| *key == name);
    found.next().expect(name).1.parse().unwrap()
}

#[test]
fn reload_keeps_unsaved_changes_unless_discarded() {
    let Some(wire) = wire("changes that are not in the file", 1) else {
        return;
    };
    let mut asked = Asked::start(&wire, "packet", "");
    let started = until(&asked, unsaved(0));
    assert_eq!(started["last_reload_successful"], true);
    assert!(asked.json(&["reload"])["applied"] == true);

    for change in [
        &["set", "voice", "rate=3mbit"][..],
        &["link", "up", "rate=18mbit"],
        &["add", "up/bulk", "weight=4"],
    ] {
        asked.json(change);
    }
    until(&asked, unsaved(3));
    let words = asked.ctl(&["show"]).success();
    assert!(words.starts_with("3 changes not in the file"), "{words}");
    // The successor process knows of them.
    asked.site.hand_over(&wire);
    until(&asked, unsaved(3));

    let before = asked.config();
    for dry in [&["reload"][..], &["reload", "--dry-run"]] {
        let refused = asked.refused(dry);
        assert!(
            refused.contains("would discard 3 changes that are not in the file")
                && refused.contains("--discard"),
            "{refused}"
        );
    }
    assert_eq!(asked.config(), before, "a refused reload changes nothing");
    let refused = until(&asked, |it| it["last_reload_successful"] == false);
    assert!(refused["last_reload_error"].is_string(), "{refused:#}");
    assert_eq!(
        metric(&asked, "fairlane_config_last_reload_successful"),
        0.0
    );
    let words = asked.ctl(&["show"]).success();
    assert!(words.contains("last reload refused: "), "{words}");

    asked.json(&["reload", "--discard"]);
    let loaded = until(&asked, unsaved(0));
    assert_eq!(loaded["last_reload_error"], Value::Null);
    assert_eq!(
        metric(&asked, "fairlane_config_last_reload_successful"),
        1.0
    );
    let seconds = |it: &Value| {
        it["last_reload_success_timestamp_seconds"]
            .as_f64()
            .unwrap()
    };
    assert!(seconds(&loaded) > seconds(&started));
    let time = metric(
        &asked,
        "fairlane_config_last_reload_success_timestamp_seconds",
    );
    assert!((time - seconds(&loaded)).abs() < 1e-3, "{time}");

    // A signal forces the reload, and the log reports the loss.
    asked.json(&["set", "voice", "rate=3mbit"]);
    asked.site.signal("HUP");
    asked
        .site
        .until_said("1 change that was not in the file was discarded");
    until(&asked, unsaved(0));

    asked.json(&["set", "voice", "rate=3mbit"]);
    until(&asked, unsaved(1));
    asked.ctl(&["save"]).success();
    until(&asked, unsaved(0));
    // If the file has them, no change is lost.
    asked.json(&["set", "voice", "rate=2.5mbit"]);
    fs::write(asked.site.file(), asked.config()).unwrap();
    asked.json(&["reload"]);
    fs::write(asked.site.file(), "[[link]]").unwrap();
    asked.refused(&["reload"]);
    until(&asked, |it| it["last_reload_successful"] == false);
    asked.site.end();
}
