//! Operations on a running site other than changes of its file: detaching interfaces for a time, and flushing queues.

use std::collections::VecDeque;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use fairlane_io::{Backend, Hold, PacketBackend, packet};
use fairlane_netlab::{Namespace, veth};
use serde_json::Value;
use tempfile::TempDir;

use crate::program::{Finished, Running, fairlane, start};
use crate::site::{BACKENDS, PATIENCE, class, link, up, wire};
use crate::site_control::Asked;
use crate::site_interfaces::{Line, frame, until_through};
use crate::site_reload::numbered;

/// A class with a low rate and a large limit.
const NARROW: [&str; 6] = [
    "set",
    "voice",
    "rate=10kbit",
    "ceil=20kbit",
    "burst=3kb",
    "limit={ packets = 500 }",
];

/// Waits until the state satisfies a condition.
#[track_caller]
fn until(asked: &Asked, meant: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let state = asked.json(&["show"]);
        if meant(&state) {
            return state;
        }
        assert!(begun.elapsed() < PATIENCE, "{state:#}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn turning_shaping_off_and_on_loses_and_reorders_nothing() {
    let Some(wire) = wire("a site that is switched off and on", 1) else {
        return;
    };
    for backend in BACKENDS {
        let asked = Asked::start(&wire, backend, "");
        // More arrives than leaves, so that there is a backlog at each switch.
        let wide = "limit={ packets = 5_000 }";
        let rates = ["set", "voice", "rate=2mbit", "ceil=3mbit"];
        asked.json(&[&rates[..], &[wide, "queue=tail-drop"]].concat());
        let hosts = (wire.sender(0), wire.receiver());
        let ((), numbers, sent) = numbered(hosts, 1_001, || {
            for round in 0..10 {
                let off = asked.json(&["disable", "outside"]);
                assert_eq!(off["shaped"], false);
                let state = until(&asked, |state| link(state, "up")["shaped"] == false);
                assert_eq!(state["interfaces"][1]["shaped"], false);
                if round == 5 {
                    // A configuration change does not enable shaping.
                    asked.json(&["link", "up", "rate=19mbit"]);
                    until(&asked, |state| link(state, "up")["rate_bps"] == 19_000_000);
                    assert_eq!(link(&asked.json(&["show"]), "up")["shaped"], false);
                }
                // By its role, too.
                asked.json(&["enable", "outside"]);
                until(&asked, |state| link(state, "up")["shaped"] == true);
            }
        });
        let words = asked.ctl(&["disable", "outside"]).success();
        assert!(words.contains("unshaped"), "{words}");
        until(&asked, |state| link(state, "up")["shaped"] == false);
        let words = asked.ctl(&["show"]).success();
        assert!(words.contains("not shaped"), "{words}");
        let metrics = asked.ctl(&["metrics"]).success();
        assert!(
            metrics.contains("fairlane_link_shaped{link=\"up\"} 0.0"),
            "{metrics}"
        );
        let report = asked.site.stop();
        assert!(
            numbers.iter().copied().eq(0..sent),
            "{backend}: {} of {sent}",
            numbers.len()
        );
        let up = link(&report, "up");
        let passed = up["passed_frames"].as_u64().unwrap();
        let classed = class(&report, "up", "voice")["sent_packets"]
            .as_u64()
            .unwrap();
        assert!(passed > 0 && classed > 0, "{passed} and {classed}");
        assert!(passed + classed >= u64::from(sent), "others pass, too");
        assert_eq!(class(&report, "up", "voice")["drops"]["full"], 0);
        assert_eq!(class(&report, "up", "voice")["drops"]["managed"], 0);
    }
}

#[test]
fn what_is_not_shaped_is_faster_than_the_link_and_then_the_link_holds_again() {
    let Some(wire) = wire("a site that shapes at times", 1) else {
        return;
    };
    let asked = Asked::start(&wire, "packet", "");
    asked.json(&[
        "set",
        "voice",
        "rate=100kbit",
        "ceil=",
        "limit={ packets = 50 }",
    ]);
    asked.json(&["link", "up", "rate=1mbit"]);
    let hosts = (wire.sender(0), wire.receiver());
    // 4.3 Mbit/s.
    numbered(hosts, 1_001, || {
        let dropped = |state: &Value| {
            class(state, "up", "voice")["drops"]["full"]
                .as_u64()
                .unwrap()
        };
        until(&asked, |state| dropped(state) > 0);
        asked.json(&["disable", "outside"]);
        let passed = |state: &Value| {
            let bytes = link(state, "up")["passed_bytes"].as_f64().unwrap();
            (bytes * 8.0, state["seconds"].as_f64().unwrap())
        };
        let before = passed(&until(&asked, |state| passed(state).0 > 0.0));
        until(&asked, |state| {
            let now = passed(state);
            let seconds = now.1 - before.1;
            seconds > 0.5 && (now.0 - before.0) / seconds > 2e6
        });
        asked.json(&["enable", "outside"]);
        let shaped = until(&asked, |state| link(state, "up")["shaped"] == true);
        let end = until(&asked, |state| {
            state["seconds"].as_f64() > shaped["seconds"].as_f64().map(|then| then + 2.0)
        });
        assert_eq!(passed(&end).0, passed(&shaped).0, "nothing passes by");
        assert!(
            dropped(&end) > dropped(&shaped),
            "the link is too slow again"
        );
        let sent = |state: &Value| {
            let bytes = class(state, "up", "voice")["sent_bytes"].as_f64().unwrap();
            (bytes * 8.0, state["seconds"].as_f64().unwrap())
        };
        let (before, now) = (sent(&shaped), sent(&end));
        let rate = (now.0 - before.0) / (now.1 - before.1);
        assert!(rate < 1.1e6, "{rate}");
    });
    asked.site.stop();
}

#[test]
fn flush_drops_and_counts_the_backlog_only() {
    let Some(wire) = wire("a class that is flushed", 1) else {
        return;
    };
    let asked = Asked::start(&wire, "packet", "");
    asked.json(&NARROW);
    // With tail drop, only a flush discards packets.
    asked.json(&["set", "voice", "queue=tail-drop"]);
    let hosts = (wire.sender(0), wire.receiver());
    let fill = || {
        numbered(hosts, 1_001, || {
            until(&asked, |state| {
                class(state, "up", "voice")["queued_packets"].as_u64() > Some(400)
            })
        })
    };
    let mut all = 0;
    for what in ["voice", "up/voice", "up"] {
        fill();
        let flushed = asked.json(&["flush", what]);
        let packets = flushed["packets"].as_u64().unwrap();
        assert!((300..=501).contains(&packets), "{what}: {flushed}");
        assert!(flushed["bytes"].as_u64().unwrap() > 500 * packets);
        all += packets;
        let state = until(&asked, |state| {
            class(state, "up", "voice")["queued_packets"].as_u64() < Some(20)
        });
        assert_eq!(class(&state, "up", "voice")["drops"]["managed"], all);
    }
    let words = asked.ctl(&["flush", "web"]).success();
    assert!(words.starts_with("dropped 0 packets"), "{words}");
    asked.json(&["set", "voice", "ceil=9mbit", "rate=8mbit"]);
    let pause = || thread::sleep(Duration::from_millis(300));
    let ((), numbers, sent) = numbered(hosts, 1_001, pause);
    assert!(
        numbers.iter().copied().eq(0..sent),
        "{} of {sent}",
        numbers.len()
    );
    asked.site.stop();
}

#[test]
fn what_cannot_be_done_is_said_and_not_done() {
    let Some(wire) = wire("what cannot be done", 1) else {
        return;
    };
    let asked = Asked::start(&wire, "packet", "");
    for (arguments, names) in [
        (
            &["disable", "eth7"][..],
            "no interface 'eth7': there is inside and outside",
        ),
        (&["disable", "inside"], "no link has to = \"inside\""),
        (&["flush", "voize"], "'up/voice'"),
        (&["flush", "down/voice"], "does not exist"),
    ] {
        let sentence = asked.refused(arguments);
        assert!(sentence.contains(names), "{sentence}");
    }
    let state = asked.json(&["show"]);
    assert_eq!(link(&state, "up")["shaped"], true);
    assert_eq!(link(&state, "up")["passed_frames"], 0);
    asked.site.stop();
}

/// A site on a line, with a control socket.
struct Live {
    running: Running,
    folder: TempDir,
}

impl Live {
    fn start(line: &Line, backend: &str) -> Live {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("ctl.sock");
        let control = format!("[control]\nsocket = \"{}\"\n", socket.display());
        fs::write(Live::file(&folder), control + &up(backend, "100mbit")).unwrap();
        let file = Live::file(&folder);
        let arguments = ["run", file.to_str().unwrap(), "--json"];
        let running = line.middle.run(|| start(&arguments));
        Live { running, folder }
    }

    fn file(folder: &TempDir) -> std::path::PathBuf {
        folder.path().join("site.toml")
    }

    fn ctl(&self, arguments: &[&str]) -> Finished {
        let socket = self.folder.path().join("ctl.sock");
        fairlane(&[&["ctl", "--socket", socket.to_str().unwrap()], arguments].concat())
    }

    #[track_caller]
    fn refused(&self, arguments: &[&str], names: &str) {
        let finished = self.ctl(arguments);
        assert_eq!(finished.status.code(), Some(2), "{finished:?}");
        assert_eq!(finished.stderr.lines().count(), 1, "{finished:?}");
        assert!(finished.stderr.contains(names), "{finished:?}");
    }
}

/// Returns another interface in the middle, and a host's end of it.
fn spare(line: &Line) -> PacketBackend {
    let host = Namespace::new().unwrap();
    let (near, far) = veth((&line.middle, "spare"), (&host, "host"), 1_500).unwrap();
    for link in [&near, &far] {
        link.turn_offloads_off().unwrap();
        link.up().unwrap();
    }
    near.wait_for_carrier().unwrap();
    let options = packet::Options {
        promiscuous: true,
        ..packet::Options::default()
    };
    host.run(|| PacketBackend::open("host", &options).unwrap())
}

#[test]
fn detached_interface_is_replaced_by_another() {
    for backend in BACKENDS {
        let Some(line) = Line::new("interfaces attached and detached", 1_500) else {
            return;
        };
        let mut elsewhere = spare(&line);
        let live = Live::start(&line, backend);
        let [mut from, mut to] = [0, 1].map(|side| line.host(side));
        until_through(&mut from, &mut to, 1);
        live.refused(&["attach", "spare", "--as", "outside"], "detach it first");
        live.ctl(&["detach", "outside"]).success();
        live.refused(&["detach", "outside"], "detached already");
        // Frames for that side are dropped, and all others pass.
        for _ in 0..30 {
            from.transmit(&mut VecDeque::from([frame(9)])).unwrap();
            thread::sleep(Duration::from_millis(10));
        }
        let hold = || line.middle.run(|| Hold::take("outside"));
        let held = hold().unwrap();
        live.refused(&["attach", "outside"], "in use by another Fairlane");
        drop(held);
        live.refused(&["attach", "nosuch0"], "no interface nosuch0");
        live.refused(&["attach", "inside", "--as", "outside"], "two interfaces");
        live.refused(&["attach", "spare", "--as", "lan7"], "no interface 'lan7'");
        live.ctl(&["attach", "spare", "--dry-run"]).success();
        live.ctl(&["attach", "outside"]).success();
        assert!(hold().is_err(), "it is the site's again");
        until_through(&mut from, &mut to, 2);
        until_through(&mut to, &mut from, 3);

        live.ctl(&["detach", "outside"]).success();
        live.ctl(&["attach", "spare"]).success();
        until_through(&mut from, &mut elsewhere, 4);
        until_through(&mut elsewhere, &mut from, 5);
        drop(hold().unwrap());
        live.ctl(&["save"]).success();
        let saved = fs::read_to_string(Live::file(&live.folder)).unwrap();
        assert!(saved.contains("outside = \"spare\""), "{saved}");
        live.ctl(&["reload"]).success();
        // The near interface too.
        live.ctl(&["detach", "inside"]).success();
        live.ctl(&["attach", "inside"]).success();
        until_through(&mut from, &mut elsewhere, 6);
        ends_well(live, &mut to);
    }
}

/// Checks that no frame left by the detached interface, and that every frame is accounted for.
#[track_caller]
fn ends_well(mut live: Live, former: &mut PacketBackend) {
    let mut arrived = Vec::new();
    former.receive(&mut arrived, usize::MAX).unwrap();
    let late = |arrived: &Vec<u8>| (4..7).any(|number| *arrived == frame(number));
    assert!(!arrived.iter().any(late));
    live.running.signal("TERM");
    let finished = live.running.finish();
    let report: Value = serde_json::from_str(&finished.stdout).unwrap();
    let outside = &report["interfaces"][1];
    assert_eq!(outside["name"], "spare");
    assert_eq!(outside["attached"], true);
    let away = outside["absent_drops"].as_u64().unwrap();
    assert!(away >= 20, "{report:#}");
    let up = &report["links"][0];
    assert_eq!(up["to"], "spare");
    let transmitted = up["transmitted"].as_u64().unwrap();
    assert_eq!(up["received_frames"], transmitted + away, "{report:#}");
    for said in ["outside was detached", "spare was attached"] {
        assert!(finished.stderr.contains(said), "{finished:?}");
    }
}
