//! `fairlane run`, `check` and `init` on a machine whose kernel forwards packets around the site: bridges, routes, and
//! devices above a port.

use std::time::Instant;

use fairlane_netlab::{Link, Wire};
use serde_json::Value;

use crate::program::{Finished, fairlane};
use crate::site::{PATIENCE, up, wire};
use crate::site_control::Asked;

const PORTS: [&str; 2] = ["inside", "outside"];

/// Addresses on both ports, and the kernel's forwarding setting.
struct Routing {
    addresses: [&'static str; 2],
    length: u8,
    setting: &'static str,
}

const ROUTING: [Routing; 2] = [
    Routing {
        addresses: ["192.0.2.1", "198.51.100.1"],
        length: 24,
        setting: "ipv4/ip_forward",
    },
    Routing {
        addresses: ["2001:db8:1::1", "2001:db8:2::1"],
        length: 64,
        setting: "ipv6/conf/all/forwarding",
    },
];

impl Routing {
    /// Prepares the middle of a wire, without routing yet.
    fn prepare(&self, wire: &Wire) {
        for (port, address) in PORTS.iter().zip(self.addresses) {
            let disabled = format!("ipv6/conf/{port}/disable_ipv6");
            wire.middle().set_parameter(&disabled, "0").unwrap();
            let link = Link::find(wire.middle(), port).unwrap();
            link.add_address(address.parse().unwrap(), self.length)
                .unwrap();
        }
        self.switch(wire, false);
    }

    fn switch(&self, wire: &Wire, on: bool) {
        let value = if on { "1" } else { "0" };
        wire.middle().set_parameter(self.setting, value).unwrap();
    }

    fn sentence(&self) -> String {
        let version = if self.length == 64 { 6 } else { 4 };
        format!("this machine routes IPv{version} between \"inside\" and \"outside\"")
    }
}

/// Writes a file for the middle of a wire, and runs the program there.
fn in_middle(wire: &Wire, arguments: &[&str]) -> Finished {
    wire.middle().run(|| fairlane(arguments))
}

#[track_caller]
fn refused(finished: &Finished, words: &str) {
    assert_eq!(finished.status.code(), Some(2), "{finished:?}");
    assert_eq!(finished.stderr.lines().count(), 1, "{finished:?}");
    assert!(finished.stderr.contains(words), "{finished:?}");
}

/// Checks that `run` rejects the site, with `--fail-open` too, and that `check` warns.
#[track_caller]
fn is_refused(wire: &Wire, words: &str) {
    for backend in ["packet", "xdp"] {
        let (_folder, file) = crate::program::file(&up(backend, "10mbit"));
        let run = in_middle(wire, &["run", &file, "--seconds", "1"]);
        refused(&run, words);
        refused(&run, "or write allow-bypass = true in [interfaces]");
        refused(&in_middle(wire, &["run", &file, "--fail-open"]), words);
        let checked = in_middle(wire, &["check", &file]);
        assert!(checked.status.success(), "{checked:?}");
        assert!(
            checked.stderr.contains(&format!("warning: {words}")),
            "{checked:?}"
        );
    }
}

#[test]
fn run_refuses_a_router_and_check_and_init_warn() {
    for routing in ROUTING {
        let Some(wire) = wire("a router between the ports", 1) else {
            return;
        };
        routing.prepare(&wire);
        let (_folder, file) = crate::program::file(&up("packet", "10mbit"));
        let checked = in_middle(&wire, &["check", &file]);
        assert_eq!(
            checked.stderr.matches(&routing.sentence()).count(),
            0,
            "{checked:?}"
        );
        routing.switch(&wire, true);
        is_refused(&wire, &routing.sentence());
        let guessed = in_middle(&wire, &["init", "-"]);
        refused(&guessed, "--tap");
        // The interfaces in either order.
        assert!(
            guessed.stderr.contains("this machine routes IPv"),
            "{guessed:?}"
        );
        let ends = ["init", "--outside", "outside", "--inside", "inside", "-"];
        let named = in_middle(&wire, &ends);
        assert!(named.status.success(), "{named:?}");
        assert!(named.stderr.contains(&routing.sentence()), "{named:?}");
    }
}

#[test]
fn run_refuses_ports_of_one_bridge_and_init_warns() {
    let Some(wire) = wire("a bridge over the ports", 1) else {
        return;
    };
    let bridge = wire.forward().unwrap();
    let words = "\"inside\" and \"outside\" are ports of the bridge \"bridge\"";
    is_refused(&wire, words);
    let ends = ["init", "--outside", "outside", "--inside", "inside", "-"];
    let named = in_middle(&wire, &ends);
    assert!(named.status.success(), "{named:?}");
    assert!(named.stderr.contains(words), "{named:?}");
    let allowed = "[interfaces]\nallow-bypass = true\n";
    let allowed = up("packet", "10mbit").replacen("[interfaces]\n", allowed, 1);
    let (_folder, file) = crate::program::file(&allowed);
    let run = in_middle(&wire, &["run", &file, "--seconds", "0.1"]);
    assert!(run.status.success(), "{run:?}");
    let warning = format!("warning: {words}");
    assert_eq!(run.stderr.matches(&warning).count(), 1, "{run:?}");
    // A bridge that is down forwards nothing.
    bridge.down().unwrap();
    let (_folder, file) = crate::program::file(&up("packet", "10mbit"));
    let run = in_middle(&wire, &["run", &file, "--seconds", "0.1"]);
    assert!(run.status.success(), "{run:?}");
    let words = "warning: \"inside\" is a port of the bridge \"bridge\"";
    assert!(run.stderr.contains(words), "{run:?}");
    bridge.delete().unwrap();
}

/// Waits until its state has `count` warnings, and returns them.
#[track_caller]
fn bypasses(asked: &Asked, count: usize) -> Vec<Value> {
    let begun = Instant::now();
    loop {
        let state = asked.json(&["show"]);
        let found = state["bypasses"].as_array().unwrap();
        if found.len() == count {
            return found.clone();
        }
        assert!(begun.elapsed() < PATIENCE, "{found:?}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[test]
fn a_bypass_that_begins_and_ends_during_a_run_is_logged_once_and_shown() {
    let Some(wire) = wire("a bypass during a run", 1) else {
        return;
    };
    for routing in &ROUTING {
        routing.prepare(&wire);
    }
    let asked = Asked::start(&wire, "packet", "");
    assert_eq!(bypasses(&asked, 0), [""; 0]);
    for routing in &ROUTING {
        let words = routing.sentence();
        routing.switch(&wire, true);
        asked.site.until_said(&format!("warning: {words}"));
        let sentence = bypasses(&asked, 1).remove(0);
        assert!(sentence.as_str().unwrap().starts_with(&words), "{sentence}");
        let shown = asked.ctl(&["show"]).success();
        assert!(shown.starts_with(&format!("warning: {words}")), "{shown}");
        routing.switch(&wire, false);
        asked.site.until_said(&format!("no longer so: {words}"));
        assert_eq!(bypasses(&asked, 0), [""; 0]);
        assert!(!asked.ctl(&["show"]).success().contains(&words));
    }
    // An interface is identified by its index.
    let outside = Link::find(wire.middle(), "outside").unwrap();
    outside.down().unwrap();
    outside.rename("elsewhere").unwrap();
    let bridge = fairlane_netlab::bridge(
        wire.middle(),
        "bridge",
        &[&Link::find(wire.middle(), "inside").unwrap(), &outside],
    );
    let sentence = bypasses(&asked, 1).remove(0);
    let words = "\"inside\" and \"elsewhere\" are ports of the bridge \"bridge\"";
    assert!(sentence.as_str().unwrap().starts_with(words), "{sentence}");
    bridge.unwrap().delete().unwrap();
    assert_eq!(bypasses(&asked, 0), [""; 0]);
    let finished = asked.site.end();
    for words in ROUTING.map(|routing| routing.sentence()) {
        let said = finished
            .stderr
            .matches(&format!("warning: {words}"))
            .count();
        assert_eq!(said, 1, "{finished:?}");
    }
}
