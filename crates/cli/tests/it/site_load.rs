//! The cost of many changes to a running site; packets must not be lost or delayed by them. The figures in
//! `docs/operating.md` are those of an optimised build:
//! `FAIRLANE_LONG_TESTS=1 cargo test --release -p fairlane-cli --test it site_load -- --nocapture`.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlane_testkit::long_tests;
use serde_json::{Value, json};

use crate::program::{Pressure, fairlane};
use crate::site::{PATIENCE, Site, class, link, up, wire};
use crate::site_early::Host;
use crate::site_reload::{Ends, heard_at, numbered, numbered_at};

/// Memory limit of a daemon with 10,000 classes, including the rings of its interfaces.
const MEMORY_MB: u64 = 100;
/// The limit while a thousand of them are changed at once: a busy machine frees the old state late.
const CHANGING_MB: u64 = 115;
/// Time after a change by which free memory has been returned to the system.
const GIVEN_BACK: Duration = Duration::from_secs(16);
/// Duration of memory sampling, and its interval.
const WATCHED: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_millis(2);

/// A link with this number of classes, each with a filter, and one for the test's traffic.
pub(crate) fn config(classes: usize, socket: &Path) -> String {
    grouped(0, classes, None, socket)
}

/// The same with other weights in each round.
fn config_of_round(round: usize, classes: usize, socket: &Path) -> String {
    grouped(round, classes, None, socket)
}

/// The same, with this number of classes below each parent.
fn grouped(round: usize, classes: usize, group: Option<usize>, socket: &Path) -> String {
    let mut text = up("packet", "200mbit");
    write!(
        text,
        "[[link.class]]\nname = \"ours\"\nrate = \"8mbit\"\n\
         [[link.class]]\nname = \"rest\"\ndefault = true\n\
         [[link.filter]]\nclass = \"ours\"\ndestination-port = 1001\n"
    )
    .unwrap();
    for number in 0..classes {
        let mut parent = String::new();
        if let Some(group) = group {
            let above = number / group;
            parent = format!("parent = \"g{above}\"\n");
            if number % group == 0 {
                write!(text, "[[link.class]]\nname = \"g{above}\"\n").unwrap();
            }
        }
        write!(
            text,
            "[[link.class]]\nname = \"c{number}\"\nweight = {}\n{parent}\
             [[link.filter]]\nclass = \"c{number}\"\ndestination = \"10.{}.{}.1\"\n",
            1 + (number + round) % 7,
            number / 250,
            number % 250
        )
        .unwrap();
    }
    write!(text, "[control]\nsocket = \"{}\"\n", socket.display()).unwrap();
    text
}

/// Two more classes, one below the other.
const ABOVE: &str =
    "[[link.class]]\nname = \"above\"\n[[link.class]]\nname = \"below\"\nparent = \"above\"\n";

/// Changes of every kind to some classes: of weight, rate and ceiling. Some are added, some move below another class,
/// and those added or moved in the round before are removed or move back.
fn changes(round: usize, count: usize, classes: usize) -> Value {
    let class = |name: &str| json!(["v1", "links", "up", "classes", name]);
    let number = |round: usize, step: usize| format!("c{}", (round * count + step) % classes);
    let change =
        |name: &str, keys: Value| json!({"method": "PATCH", "path": class(name), "keys": keys});
    let all = (0..count).map(|step| {
        let name = number(round, step);
        match (step % 10, round.checked_sub(1)) {
            (0, _) => json!({"method": "POST", "path": ["v1", "links", "up", "classes"],
                            "keys": {"name": format!("new{round}-{step}"), "weight": 2}}),
            (1, Some(last)) => {
                json!({"method": "DELETE", "path": class(&format!("new{last}-{}", step - 1))})
            }
            (2, _) => change(&name, json!({"rate": "8kbit"})),
            (3, _) => change(&name, json!({"ceil": "5mbit"})),
            (4, _) => change(&name, json!({"parent": "above"})),
            (5, Some(last)) => change(&number(last, step - 1), json!({"parent": null})),
            _ => change(&name, json!({"weight": 1 + (round + step) % 9})),
        }
    });
    all.collect()
}

pub(crate) fn posted(socket: &Path, path: &str, body: &str) -> Value {
    asked(socket, "POST", path, body)
}

fn asked(socket: &Path, method: &str, path: &str, body: &str) -> Value {
    serde_json::from_str(&answered(socket, method, path, body)).unwrap()
}

/// Returns the answer as text.
fn answered(socket: &Path, method: &str, path: &str, body: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("{answer}"));
    assert!(head.starts_with("HTTP/1.1 200 "), "{answer}");
    body.to_owned()
}

/// Formats the longest pause of the forwarding thread between two rounds, and its CPU time by the kind of work.
pub(crate) fn forwarding_pauses(report: &Value) -> String {
    let mut told = format!(
        "{:.0} us",
        report["forwarding_pause_max_us"].as_f64().unwrap()
    );
    for step in report["forwarding_pauses"].as_array().unwrap() {
        let (doing, cpu) = (
            step["doing"].as_str().unwrap(),
            step["cpu_us"].as_f64().unwrap(),
        );
        write!(told, ", {doing} {cpu:.0} us itself").unwrap();
    }
    told
}

/// Checks the CPU time of the forwarding thread's longest pauses, in an optimised build.
pub(crate) fn steps_within(report: &Value, most_us: f64) {
    for step in report["forwarding_pauses"].as_array().unwrap() {
        let cpu = step["cpu_us"].as_f64().unwrap();
        assert!(cfg!(debug_assertions) || cpu <= most_us, "{step}");
    }
}

/// Returns the resident memory of a process in megabytes of 10^6 bytes.
pub(crate) fn resident_mb(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.unwrap().trim().trim_end_matches(" kB");
    (kilobytes.parse::<u64>().unwrap() << 10).div_ceil(1_000_000)
}

/// Returns the maximum over many samples, after free memory has been returned: each report takes memory for some
/// milliseconds.
fn most_mb(process: u32) -> u64 {
    thread::sleep(GIVEN_BACK);
    let begun = Instant::now();
    let looks = std::iter::from_fn(|| {
        thread::sleep(LOOK);
        (begun.elapsed() < WATCHED).then(|| resident_mb(process))
    });
    looks.max().expect("it was looked at")
}

/// Returns the result of `work`, and the most memory that a process has in the meantime.
fn with_most_mb<T>(process: u32, work: impl FnOnce() -> T) -> (T, u64) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let looks = std::iter::from_fn(|| {
                thread::sleep(LOOK);
                (!over.load(Ordering::Relaxed)).then(|| resident_mb(process))
            });
            looks.max().unwrap_or_default()
        });
        let ends = Ends([&over, &over]);
        let made = work();
        drop(ends);
        (made, watching.join().unwrap())
    })
}

#[test]
fn thousands_of_changes_lose_and_reorder_nothing() {
    let Some(wire) = wire("thousands of changes", 1) else {
        return;
    };
    // A quarter of the capacity of a core, which leaves time for the other threads.
    let (classes, together, rounds, pps) = match long_tests() && !cfg!(debug_assertions) {
        true => (10_000, 1_000, 20, 20_000.0),
        false => (500, 100, 4, 1_000.0),
    };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("ctl.sock");
    let site = Site::start(&wire, &(config(classes, &socket) + ABOVE));
    let hosts = (wire.sender(0), wire.receiver());
    let (took, heard, sent) = heard_at(pps, hosts, 1_001, || {
        with_most_mb(site.id(), || {
            let mut took = Vec::new();
            for round in 0..rounds {
                let body = changes(round, together, classes).to_string();
                let begun = Instant::now();
                let changed = posted(&socket, "/v1/changes", &body);
                took.push(begun.elapsed());
                assert_eq!(changed["applied"], true);
            }
            took
        })
    });
    let (took, changing) = took;
    let socket = socket.to_str().unwrap();
    let config = fairlane(&["ctl", "--socket", socket, "config"]).success();
    assert_eq!(config.matches("name = \"c").count(), classes);
    // Those that the last round added and moved.
    let last = together / 10;
    assert_eq!(config.matches("name = \"new").count(), last);
    assert_eq!(config.matches("parent = \"above\"").count(), last + 1);
    let begun = Instant::now();
    let metrics = fairlane(&["ctl", "--socket", socket, "metrics"]).success();
    let scraped = begun.elapsed();
    assert!(metrics.matches("fairlane_class_bytes_total{").count() > classes);
    let watched = long_tests() && !cfg!(debug_assertions);
    let resident = match watched {
        true => most_mb(site.id()),
        false => resident_mb(site.id()),
    };
    let report = site.stop();
    let (whole, numbers): (Duration, _) = (took.iter().sum(), heard.numbers);
    eprintln!(
        "{classes} classes: {:.0} changes a second, {together} together in {:?} to {:?}; longest step of the \
         forwarding thread {}; longest time between two packets that arrived {:?}; {} of {sent} packets; metrics in {scraped:?}, {:.1} MB of them; {changing} MB \
         resident at the most meanwhile, {resident} after it",
        (rounds * together) as f64 / whole.as_secs_f64(),
        took.iter().min().unwrap(),
        took.iter().max().unwrap(),
        forwarding_pauses(&report),
        heard.longest_gap,
        numbers.len(),
        metrics.len() as f64 / 1e6
    );
    assert!(
        numbers.iter().copied().eq(0..sent),
        "{} of {sent}",
        numbers.len()
    );
    assert_eq!(class(&report, "up", "ours")["sent_packets"], sent);
    assert_eq!(report["reloads"], rounds);
    steps_within(&report, 1_000.0);
    assert!(whole < PATIENCE * 10, "{whole:?}");
    // An unoptimised program is larger, and so is one whose configuration was just changed.
    assert!(!watched || resident <= MEMORY_MB, "{resident} MB");
    assert!(!watched || changing <= CHANGING_MB, "{changing} MB");
}

#[test]
fn of_thousands_of_classes_that_all_send_each_takes_little_memory() {
    let Some(wire) = wire("thousands of classes that send", 1) else {
        return;
    };
    let watched = long_tests() && !cfg!(debug_assertions);
    let (classes, seconds) = if watched { (10_000, 120) } else { (500, 3) };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("ctl.sock");
    let site = Site::start(&wire, &config(classes, &socket));
    let mut host = Host::new(&wire);
    let ((), most) = with_most_mb(site.id(), || {
        let begun = Instant::now();
        for round in 0..seconds * 10 {
            // A tenth of them at a time: each sends once a second.
            let due = begun + Duration::from_millis(100) * (round as u32 + 1);
            let part = round % 10 * classes / 10..(round % 10 + 1) * classes / 10;
            host.send_to(part.map(|class| {
                let address = [10, (class / 250) as u8, (class % 250) as u8, 1];
                (address, 1_000, 2_000)
            }));
            thread::sleep(due.saturating_duration_since(Instant::now()));
        }
    });
    assert!(wire.is_through(PATIENCE).unwrap());
    let report = site.stop();
    let all = link(&report, "up")["classes"].as_array().unwrap();
    let of = |class: &Value, key: &str| class[key].as_u64().unwrap();
    let sent: u64 = all.iter().map(|class| of(class, "sent_packets")).sum();
    let silent = (all.iter())
        .filter(|class| of(class, "sent_packets") == 0 || class["delay_us"].is_null())
        .count();
    eprintln!(
        "{classes} classes sent {sent} packets in {seconds} s; {most} MB resident at the most"
    );
    // Two classes get no traffic.
    assert!(silent <= 2, "{silent} have sent nothing");
    assert!(!watched || most <= MEMORY_MB, "{most} MB");
}

/// Returns the time until each item was done.
fn times<T>(each: impl IntoIterator<Item = T>, mut done: impl FnMut(T)) -> Vec<Duration> {
    let each = each.into_iter().map(|one| {
        let begun = Instant::now();
        done(one);
        begun.elapsed()
    });
    let mut took: Vec<_> = each.collect();
    took.sort_unstable();
    took
}

#[test]
fn changes_one_after_another_cost_what_they_touch() {
    let Some(wire) = wire("changes one after another", 1) else {
        return;
    };
    let (classes, count) = match long_tests() && !cfg!(debug_assertions) {
        true => (10_000, 500),
        false => (1_000, 40),
    };
    for group in [None, Some(100)] {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("ctl.sock");
        let text = grouped(0, classes, group, &socket);
        let site = Site::start(&wire, &text);
        let put = |_| drop(answered(&socket, "PUT", "/v1/config", &text));
        let change = |step: usize| {
            let path = format!("/v1/links/up/classes/c{}", step * 7 % classes);
            let keys = match step % 5 {
                0 => json!({"ceil": format!("{}mbit", 3 + step % 4)}),
                _ => json!({"weight": 1 + step % 9}),
            };
            let changed = answered(&socket, "PATCH", &path, &keys.to_string());
            assert!(changed.starts_with("{\"applied\":true,"), "{changed:.200}");
        };
        let hosts = (wire.sender(0), wire.receiver());
        let ((whole, took), numbers, sent) = numbered(hosts, 1_001, || {
            let whole = times(0..3, put);
            // The first change splits the text into its tables.
            change(0);
            (whole, times(0..count, change))
        });
        let resident = resident_mb(site.id());
        let report = site.stop();
        let all: Duration = took.iter().sum();
        eprintln!(
            "{classes} classes in groups of {group:?}: {:.0} changes a second, each in {:?} to {:?}, half of \
             them in {:?}; all of them again in {:?}; longest step of the forwarding thread {}; {} of \
             {sent} packets; {resident} MB resident",
            count as f64 / all.as_secs_f64(),
            took[0],
            took[count - 1],
            took[count / 2],
            whole[0],
            forwarding_pauses(&report),
            numbers.len(),
        );
        assert!(
            numbers.iter().copied().eq(0..sent),
            "{} of {sent}",
            numbers.len()
        );
        // A reload of the same text has no effect.
        assert_eq!(report["reloads"], 3 + 1 + count);
        steps_within(&report, 1_000.0);
        assert!(took[0] * 2 < whole[0], "{:?} and {:?}", took[0], whole[0]);
    }
}

#[test]
fn of_changes_that_are_made_together_all_are_or_none() {
    let Some(wire) = wire("changes of which one is wrong", 1) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("ctl.sock");
    let site = Site::start(&wire, &config(3, &socket));
    let at = socket.to_str().unwrap();
    let ask = |what: &str| fairlane(&["ctl", "--socket", at, what]).success();
    let before = ask("config");
    let body = json!([
        {"method": "PATCH", "path": ["v1", "links", "up", "classes", "c0"], "keys": {"weight": 5}},
        {"method": "PATCH", "path": ["v1", "links", "up", "classes", "c1"], "keys": {"weight": 0}},
    ]);
    let mut stream = UnixStream::connect(&socket).unwrap();
    let body = body.to_string();
    let request = format!(
        "POST /v1/changes HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 422 "), "{answer}");
    assert!(answer.contains("weight"), "{answer}");
    assert_eq!(ask("config"), before);
    site.stop();
}

/// Reads a site's state from its socket.
pub(crate) fn state(socket: &Path) -> Value {
    let socket = socket.to_str().unwrap();
    let state = fairlane(&["ctl", "--socket", socket, "show", "--json"]).success();
    serde_json::from_str(&state).unwrap()
}

#[test]
fn a_file_that_is_read_again_every_second_loses_nothing_and_leaves_no_memory_behind() {
    let Some(wire) = wire("a reload every second", 1) else {
        return;
    };
    let (classes, rounds) = match long_tests() && !cfg!(debug_assertions) {
        true => (10_000, 300),
        false => (500, 10),
    };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("ctl.sock");
    let mut site = Site::start(&wire, &config(classes, &socket));
    let pressure = Pressure::begin();
    let hosts = (wire.sender(0), wire.receiver());
    let (memory, numbers, sent) = numbered(hosts, 1_001, || {
        let mut memory = Vec::new();
        let begun = Instant::now();
        for round in 1..=rounds {
            site.write(&config_of_round(round, classes, &socket));
            site.signal("HUP");
            let next = begun + Duration::from_secs(round as u64);
            thread::sleep(next.saturating_duration_since(Instant::now()));
            memory.push(site.memory() >> 10);
        }
        memory
    });
    // Each is logged.
    let finished = site.end();
    let report: Value = serde_json::from_str(&finished.stdout).unwrap();
    let reloads = report["reloads"].as_u64().unwrap();
    // Memory of the first reloads is reused by later ones.
    let settled = memory[rounds / 5..rounds / 2].iter().max().unwrap();
    let last = memory[rounds / 2..].iter().max().unwrap();
    eprintln!(
        "{classes} classes: {reloads} reloads in {rounds} s; longest step of the forwarding thread {}; \
         {} of {sent} packets; {} to {settled} kB resident in the first half, {last} in the second",
        forwarding_pauses(&report),
        numbers.len(),
        memory[0],
    );
    assert!(
        numbers.iter().copied().eq(0..sent),
        "{} of {sent}",
        numbers.len()
    );
    assert_eq!(class(&report, "up", "ours")["sent_packets"], sent);
    // Signals during a reload cause only one more.
    let least = pressure.least(0.9, 0.1) * rounds as f64;
    assert!(reloads as f64 >= least, "{reloads} of {rounds}");
    // Five samples compared with three: by chance some are higher.
    let chance = if long_tests() { 0 } else { 8 << 10 };
    assert!(
        *last <= settled + settled / 20 + chance,
        "it grows: {memory:?} kB"
    );
}

#[test]
fn a_flush_of_a_hundred_thousand_packets_is_done_between_rounds() {
    let Some(wire) = wire("a long flush", 1) else {
        return;
    };
    let packets = match long_tests() {
        true => 100_000,
        false => 10_000,
    };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("ctl.sock");
    let text = up("packet", "200mbit")
        + &format!(
            "limit = {{ packets = 131072, bytes = \"100mb\" }}\n\
             [[link.class]]\nname = \"ours\"\nceil = \"16kbit\"\n\
             limit = {{ packets = 120000, bytes = \"90mb\" }}\nqueue = \"tail-drop\"\n\
             [[link.class]]\nname = \"rest\"\ndefault = true\n\
             [[link.filter]]\nclass = \"ours\"\ndestination-port = 1001\n\
             [control]\nsocket = \"{}\"\n",
            socket.display()
        );
    let site = Site::start(&wire, &text);
    let hosts = (wire.sender(0), wire.receiver());
    let queued = |state: &Value| {
        class(state, "up", "ours")["queued_packets"]
            .as_u64()
            .unwrap()
    };
    numbered_at(30_000.0, hosts, 1_001, || {
        let begun = Instant::now();
        while queued(&state(&socket)) < packets {
            assert!(begun.elapsed() < PATIENCE * 3, "it does not fill");
            thread::sleep(Duration::from_millis(50));
        }
    });
    let before = state(&socket);
    let (begun, pressure) = (Instant::now(), Pressure::begin());
    let flushed = posted(&socket, "/v1/links/up/classes/ours/flush", "");
    let took = begun.elapsed();
    let most = pressure.most(200.0, 20_000.0);
    let report = site.stop();
    let gone = flushed["packets"].as_u64().unwrap();
    eprintln!(
        "a flush of {gone} packets took {took:?}; longest step of the forwarding thread {:.0} us, {:.0} before",
        report["forwarding_pause_max_us"].as_f64().unwrap(),
        before["forwarding_pause_max_us"].as_f64().unwrap(),
    );
    assert!(gone + 10 >= packets, "{flushed}");
    assert!(queued(&report) < 10, "{report:#}");
    assert_eq!(class(&report, "up", "ours")["drops"]["managed"], gone);
    assert!(took < PATIENCE, "{took:?}");
    if !cfg!(debug_assertions) {
        let longest = report["forwarding_pause_max_us"].as_f64().unwrap();
        assert!(longest <= most, "{longest} us, {most} at most");
    }
}
