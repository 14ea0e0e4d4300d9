//! Grants of a running site: their flows, their lifetimes, and their terms after later changes.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::program::{Finished, fairlane};
use crate::site::{PATIENCE, class, wire};
use crate::site_control::{Asked, request};
use crate::site_reload::numbered;

/// Returns the site's answer to a request with this body: status and JSON.
fn answered(socket: &Path, method: &str, path: &str, body: &Value) -> (String, Value) {
    let answer = request(socket, (method, path), "", &body.to_string());
    (answer.status.to_string(), answer.json())
}

impl Asked {
    fn request(&self, method: &str, path: &str, body: &Value) -> (String, Value) {
        answered(&self.socket(), method, path, body)
    }

    /// Requests a grant on 'up' for an hour.
    fn grant(&self, keys: &[&str]) -> Value {
        self.json(&[&["grant", "up"], keys].concat())
    }

    fn grants(&self) -> Vec<Value> {
        self.json(&["grants"]).as_array().unwrap().clone()
    }

    /// Waits until the running classes in `show` satisfy a condition.
    fn wait_for(&self, what: &str, is_so: impl Fn(&[Value]) -> bool) {
        let begun = Instant::now();
        loop {
            let state = self.json(&["show"]);
            let classes = state["links"][0]["classes"].as_array().unwrap();
            if is_so(classes) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{what}: {state:#}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn has(classes: &[Value], name: &str) -> bool {
    classes.iter().any(|class| class["name"] == name)
}

/// Returns the guarantees of a class of this text from `check`.
fn checked(text: &str, name: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("site.toml");
    fs::write(&file, text).unwrap();
    let told = fairlane(&["check", "--json", file.to_str().unwrap()]);
    let told: Value = serde_json::from_str(&told.stdout).unwrap();
    class(&told, "up", name).clone()
}

#[test]
fn grant_has_the_delay_bound_that_check_computes() {
    let Some(wire) = wire("a site that grants", 1) else {
        return;
    };
    let asked = Asked::start(&wire, "packet", "");
    let config = asked.config();
    let keys = [
        "rate=6mbit",
        "burst=8kb",
        "delay=90ms",
        "destination-port=1002",
        "note=a film",
    ];
    let dry = asked.grant(&[&keys[..], &["--dry-run"]].concat());
    assert_eq!(
        (&dry["applied"], &dry["grant"]["id"]),
        (&json!(false), &Value::Null)
    );
    assert_eq!(asked.grants(), [] as [Value; 0]);

    let granted = asked.grant(&keys);
    assert_eq!(granted["applied"], true);
    assert_eq!(granted["effects"], dry["effects"]);
    let grant = &granted["grant"];
    assert_eq!(
        (&grant["id"], &grant["class"]),
        (&json!(1), &json!("grant-1"))
    );
    let reserved = grant["reserved_bps"].as_u64().unwrap();
    let same = format!(
        "{config}\n[[link.class]]\nname = \"same\"\nrate = \"{reserved}bit\"\n\
         arrival-burst = \"8kb\"\n"
    );
    let same = checked(&same, "same");
    assert_eq!(grant["granted"]["guaranteed_bps"], same["guaranteed_bps"]);
    assert_eq!(grant["granted"]["bound_us"], same["bound_us"]);
    assert!(grant["granted"]["guaranteed_burst"].as_u64() >= Some(8 << 10));
    assert!(grant["granted"]["delay_us"].as_f64() <= Some(90_000.0));
    let effects = granted["effects"].as_array().unwrap();
    let web = effects
        .iter()
        .find(|effect| effect["class"] == "web")
        .unwrap();
    assert_eq!(web["before"]["guaranteed_bps"], 17_800_000);
    assert_eq!(web["after"]["guaranteed_bps"], 17_800_000 - reserved);

    asked.site.stop();
}

#[test]
fn grant_reports_measurements_next_to_its_guarantee() {
    let Some(wire) = wire("a flow that was granted", 1) else {
        return;
    };
    let asked = Asked::start(&wire, "packet", "");
    let config = asked.config();
    let keys = [
        "rate=6mbit",
        "delay=90ms",
        "destination-port=1002",
        "note=a film",
    ];
    let granted = asked.grant(&keys);
    let grant = &granted["grant"];
    let hosts = (wire.sender(0), wire.receiver());
    let ((), numbers, sent) = numbered(hosts, 1_002, || thread::sleep(Duration::from_millis(500)));
    assert!(
        numbers.iter().copied().eq(0..sent),
        "{} of {sent}",
        numbers.len()
    );
    let begun = Instant::now();
    loop {
        let one = asked.grants().remove(0);
        assert_eq!(
            (&one["note"], &one["rate_bps"]),
            (&json!("a film"), &json!(6_000_000))
        );
        if one["measured"]["sent_packets"] == sent {
            assert_eq!(one["measured"]["bound_us"], grant["granted"]["bound_us"]);
            assert!(one["measured"]["delay_max_us"].is_f64(), "{one:#}");
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{one:#}");
    }
    assert_eq!(
        asked.config(),
        config,
        "a grant is no part of the configuration"
    );
    asked.ctl(&["save"]).success();
    let saved = fs::read_to_string(asked.site.file()).unwrap();
    assert!(!saved.contains("grant"), "{saved}");
    let table = asked.ctl(&["grants"]).success();
    assert!(
        table.contains("a film") && table.contains("90ms"),
        "{table}"
    );

    let ended = asked.json(&["revoke", "1"]);
    assert_eq!(ended["applied"], true);
    asked.wait_for("the class goes", |classes| !has(classes, "grant-1"));
    assert!(
        asked
            .ctl(&["grants"])
            .success()
            .contains("nothing is granted")
    );
    asked.site.stop();
}

#[test]
fn refused_grant_offers_the_best_alternative() {
    let Some(wire) = wire("a site that refuses", 1) else {
        return;
    };
    let asked = Asked::start(&wire, "packet", "");
    let ask = |body: &Value| asked.request("POST", "/v1/links/up/grants", body);
    let filter = json!({"destination-port": 1002});
    for body in [
        json!({"filter": filter, "rate": "19mbit"}),
        json!({"filter": filter, "rate": "19mbit", "delay": "30ms"}),
        json!({"filter": filter, "rate": "1mbit", "delay": "100us"}),
        json!({"filter": filter, "rate": "1mbit", "delay": "3ms", "burst": "40kb"}),
    ] {
        let (status, refused) = ask(&body);
        assert_eq!(status, "409", "{refused}");
        assert!(asked.grants().is_empty());
        let [best] = &refused["best"].as_array().unwrap()[..] else {
            panic!("{refused}");
        };
        let sentence = refused["error"].as_str().unwrap();
        assert!(
            sentence.contains(best["rate"].as_str().unwrap()),
            "{sentence}"
        );
        let mut second = body.clone();
        second["rate"] = best["rate"].clone();
        if !best["delay"].is_null() {
            second["delay"] = best["delay"].clone();
        }
        let (status, granted) = ask(&second);
        assert_eq!(status, "200", "{body} {refused} {granted}");
        asked.json(&["revoke", &granted["grant"]["id"].to_string()]);
    }
    for (body, status, names) in [
        (json!({"rate": "1mbit"}), "400", "filter"),
        (json!({"filter": filter, "rate": "1mbits"}), "400", "1mbits"),
        (
            json!({"filter": filter, "rate": "1mbit", "lifetime": "1ms"}),
            "400",
            "1s to 30d",
        ),
        (
            json!({"filter": {"port": 7}, "rate": "1mbit"}),
            "422",
            "port",
        ),
        (
            json!({"filter": {"family": "ipv4", "source": "::1"}, "rate": "1mbit"}),
            "422",
            "never matches",
        ),
        (
            json!({"filter": filter, "rate": "1mbit", "parent": "voice"}),
            "422",
            "no classes below",
        ),
    ] {
        let (told, refused) = ask(&body);
        let sentence = refused["error"].as_str().unwrap();
        assert_eq!(told, status, "{sentence}");
        assert!(
            sentence.contains(names) && !sentence.contains('\n'),
            "{sentence}"
        );
    }
    let (status, nowhere) = asked.request(
        "POST",
        "/v1/links/down/grants",
        &json!({
            "filter": filter, "rate": "1mbit"
        }),
    );
    assert_eq!(status, "404", "{nowhere}");
    let sentence = asked.refused(&["grant", "up", "rate=30mbit", "destination-port=7"]);
    assert!(
        sentence.contains("the best that could be had is 17799kbit"),
        "{sentence}"
    );
    asked.site.stop();
}

/// Returns the number of a new grant of some seconds, for packets to this port.
fn granted(asked: &Asked, seconds: u64, port: u16) -> Value {
    let (port, lifetime) = (format!("destination-port={port}"), format!("{seconds}s"));
    asked.grant(&["rate=1mbit", &port, "--for", &lifetime])["grant"]["id"].clone()
}

#[test]
fn grant_expires_unless_renewed() {
    let Some(wire) = wire("grants that end", 1) else {
        return;
    };
    let asked = Asked::start(&wire, "packet", "");
    let lasts = granted(&asked, 3_600, 1_002);
    // Tried again with a longer lifetime if the grant expires before its renewal, because other programs had the
    // processors.
    let renewal = |seconds| {
        let id = granted(&asked, seconds, 1_003);
        let renewed = asked.ctl(&["renew", &id.to_string(), "--for", "30min", "--json"]);
        let is_renewed = renewed.status.success();
        is_renewed.then(|| {
            (
                seconds,
                id,
                serde_json::from_str::<Value>(&renewed.stdout).unwrap(),
            )
        })
    };
    let (seconds, renewed, told) = [3, 20, 90].into_iter().find_map(renewal).unwrap();
    assert!(told["expires_in_s"].as_f64() > Some(600.0), "{told}");
    // A grant that would expire after it.
    let begun = Instant::now();
    let ends = granted(&asked, seconds, 1_004);
    let ids = || -> Vec<Value> { asked.grants().iter().map(|one| one["id"].clone()).collect() };
    while ids().contains(&ends) {
        assert!(begun.elapsed() < 2 * PATIENCE, "{:?}", asked.grants());
        thread::sleep(Duration::from_millis(20));
    }
    assert!(begun.elapsed() >= Duration::from_secs(seconds), "early");
    assert_eq!(ids(), [lasts.clone(), renewed.clone()]);
    let [lasts, renewed, ends] = [lasts, renewed, ends].map(|id| format!("grant-{id}"));
    asked.wait_for("the class goes", |classes| {
        !has(classes, &ends) && has(classes, &lasts) && has(classes, &renewed)
    });
    // A shorter lifetime ends earlier.
    asked.json(&["renew", &lasts, "--for", "1s"]);
    asked.wait_for("it is made shorter", |classes| !has(classes, &lasts));
    let number = lasts.trim_start_matches("grant-");
    let sentence = asked.refused(&["renew", number]);
    let there = renewed.trim_start_matches("grant-");
    assert!(
        sentence.contains(&format!("no such grant: {number}"))
            && sentence.contains(&format!("there is {there}")),
        "{sentence}"
    );
    asked.site.stop();
}

#[test]
fn change_that_breaks_a_grant_is_refused() {
    let Some(wire) = wire("changes that would break grants", 1) else {
        return;
    };
    let asked = Asked::start(&wire, "packet", "");
    asked.grant(&["rate=5mbit", "destination-port=1002"]);
    asked.grant(&["rate=5mbit", "destination-port=1003"]);
    let config = asked.config();
    let file = asked.site.folder().join("other.toml");
    fs::write(&file, config.replace("20mbit", "9mbit")).unwrap();
    let other = file.to_str().unwrap();
    for arguments in [
        &["link", "up", "rate=9mbit"][..],
        &["link", "up", "rate=9mbit", "--dry-run"],
        &["set", "voice", "rate=14mbit", "ceil="],
        &["add", "up/grant-2"],
        &["apply", other],
        &["apply", other, "--dry-run"],
    ] {
        let sentence = asked.refused(arguments);
        assert!(
            sentence.contains("it would break") && sentence.contains("grant-2"),
            "{arguments:?}: {sentence}"
        );
    }
    let (status, refused) = asked.request("PATCH", "/v1/links/up", &json!({"rate": "9mbit"}));
    assert_eq!(status, "409");
    assert_eq!(refused["grants"][0]["class"], "grant-2", "{refused}");
    for arguments in [
        &["remove", "grant-1"][..],
        &["set", "grant-1", "rate=1mbit"],
    ] {
        let sentence = asked.refused(arguments);
        assert!(sentence.contains("revoke 1"), "{sentence}");
    }
    let sentence = asked.refused(&["grant", "up", "rate=1mbit", "destination-port=1002"]);
    assert!(
        sentence.contains("grant-1 takes all its packets"),
        "{sentence}"
    );
    assert_eq!((asked.config(), asked.grants().len()), (config, 2));

    let would = asked.json(&["apply", other, "--dry-run", "--break-grants"]);
    assert_eq!(would["applied"], false);
    assert_eq!(would["ended_grants"].as_array().unwrap().len(), 1);
    assert_eq!(asked.grants().len(), 2);
    let Finished { status, stderr, .. } =
        asked.ctl(&["link", "up", "rate=9mbit", "--break-grants"]);
    assert!(
        status.success() && stderr.contains("grant-2 of link up has ended"),
        "{stderr}"
    );
    assert_eq!(asked.grants().len(), 1);
    asked.wait_for("the broken one goes", |classes| {
        has(classes, "grant-1") && !has(classes, "grant-2")
    });
    asked.site.stop();
}

#[test]
fn grants_outlast_the_file_that_is_read_again() {
    let Some(wire) = wire("grants and the file", 1) else {
        return;
    };
    let mut asked = Asked::start(&wire, "packet", "");
    asked.grant(&["rate=5mbit", "delay=50ms", "destination-port=1002"]);
    let config = asked.config();
    let more = config.replace("# Calls.", "[[link.class]]\nname = \"more\"\n");
    assert_ne!(more, config);
    fs::write(asked.site.file(), &more).unwrap();
    let hosts = (wire.sender(0), wire.receiver());
    // It passes by what speaks HTTP.
    let (narrow, numbers, sent) = numbered(hosts, 1_002, || {
        asked.site.signal("HUP");
        asked.wait_for("the file is read again", |classes| {
            has(classes, "more") && has(classes, "grant-1")
        });
        let narrow = more.replace("20mbit", "4mbit");
        fs::write(asked.site.file(), &narrow).unwrap();
        let sentence = asked.refused(&["reload"]);
        assert!(
            sentence.contains("it would break grant-1 of link 'up'"),
            "{sentence}"
        );
        narrow
    });
    assert!(
        numbers.iter().copied().eq(0..sent),
        "{} of {sent}",
        numbers.len()
    );
    for _ in 0..5 {
        asked.site.signal("HUP");
        thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(asked.config(), more, "a HUP that would break it is refused");
    assert_eq!(asked.grants().len(), 1);
    let told = asked.json(&["reload", "--break-grants"]);
    assert_eq!(told["ended_grants"][0]["class"], "grant-1");
    assert_eq!(asked.config(), narrow);
    let finished = asked.site.end();
    let refused = finished
        .stderr
        .lines()
        .find(|line| line.contains("reload refused"));
    assert!(
        refused.is_some_and(|line| line.contains("it would break grant-1")),
        "{finished:?}"
    );
}

#[test]
fn many_at_once_are_never_granted_more_than_there_is() {
    let Some(wire) = wire("many that ask at once", 1) else {
        return;
    };
    let asked = Asked::start(&wire, "packet", "");
    let granted = thread::scope(|scope| {
        let askers: Vec<_> = (0..8)
            .map(|number| {
                let socket = asked.socket();
                scope.spawn(move || {
                    let body = json!({
                        "filter": {"destination-port": 2_000 + number}, "rate": "4mbit",
                    });
                    let (status, answer) = answered(&socket, "POST", "/v1/links/up/grants", &body);
                    assert!(status == "200" || status == "409", "{answer}");
                    status == "200"
                })
            })
            .collect();
        // Other clients change the site in the meantime.
        for round in 0..8 {
            asked.json(&["set", "web", &format!("weight={}", 1 + round % 2)]);
        }
        let all = askers.into_iter().map(|asker| asker.join().unwrap());
        all.filter(|&granted| granted).count()
    });
    // Voice leaves 18 Mbit/s.
    assert_eq!(granted, 4);
    assert_eq!(asked.grants().len(), 4);
    asked.wait_for("all have what they were granted", |classes| {
        let granted = classes.iter().filter(|class| {
            let name = class["name"].as_str().unwrap();
            name.starts_with("grant-") && class["guaranteed_bps"] == 4_000_000
        });
        granted.count() == 4
    });
    asked.site.stop();
}
