//! What it costs the packets that a site is asked, watched and scraped while they pass. Times and cores are
//! shared with whoever sends, so spans with and without are measured in turns, of the same number of
//! packets a second: how many arrived, and what each has taken of the processor in the forwarding thread.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlane_netlab::{Wire, long_tests, skip_unsupported};

use crate::program::Pressure;
use crate::site::{Site, wire};
use crate::site_control::{exchanged, until_it_tells};
use crate::site_early::Host;
use crate::site_load::config;
use crate::site_reload::{Ends, numbered_at};

/// Packets a second: a quarter of what one core forwards, so that there is time for all others.
const PPS: f64 = 20_000.0;

/// How often a client asks.
const EVERY: Duration = Duration::from_secs(1);
/// What the page and Prometheus ask for.
const PAGE: [&str; 5] = [
    "/metrics",
    "/",
    "/v1/history?link=up&class=ours",
    "/v1/state",
    "/v1/flows",
];

/// What a span has shown.
#[derive(Clone, Copy, Debug)]
struct Span {
    sent: u32,
    arrived: usize,
    /// Of the forwarding thread, for each packet.
    ns: f64,
}

/// Nanoseconds in which the thread that forwards had a processor.
fn forwarding_ns(site: &Site) -> f64 {
    let tasks = fs::read_dir(format!("/proc/{}/task", site.id())).unwrap();
    let mut tasks = tasks.map(|task| task.unwrap().path());
    let forwards = |task: &PathBuf| {
        fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "forward")
    };
    let task = tasks.find(forwards).unwrap();
    let times = fs::read_to_string(task.join("schedstat")).unwrap();
    times.split(' ').next().unwrap().parse().unwrap()
}

/// Packets through a site for some time.
fn span(wire: &Wire, site: &Site, time: Duration) -> Span {
    let hosts = (wire.sender(0), wire.receiver());
    let before = forwarding_ns(site);
    let ((), numbers, sent) = numbered_at(PPS, hosts, 1_001, || thread::sleep(time));
    assert!(numbers.is_sorted(), "out of order");
    Span {
        sent,
        arrived: numbers.len(),
        ns: (forwarding_ns(site) - before) / f64::from(sent),
    }
}

/// As many packets as a thread can send through a site, for some time: more than it takes in.
fn flooded(wire: &Wire, site: &Site, time: Duration) -> Span {
    let mut host = Host::new(wire);
    let arrived = || wire.receiver().link().received().unwrap().0;
    let (before, already, begun) = (forwarding_ns(site), arrived(), Instant::now());
    while begun.elapsed() < time {
        host.send(1_001, 64);
    }
    let arrived = arrived() - already;
    eprintln!("{arrived} of {} arrived", host.sent);
    Span {
        // Beyond what it takes in, none is missed.
        sent: arrived as u32,
        arrived: arrived as usize,
        ns: (forwarding_ns(site) - before) / arrived as f64,
    }
}

/// The middle of some.
fn middle(all: impl IntoIterator<Item = f64>) -> f64 {
    let mut all: Vec<_> = all.into_iter().collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// What a packet took in the middle of them.
fn middle_ns(spans: &[Span]) -> f64 {
    middle(spans.iter().map(|span| span.ns))
}

/// Prints spans that were measured in turns, and holds them to what there may be between them.
fn compare(what: &str, pressure: &Pressure, without: &[Span], with: &[Span]) {
    let arrived = |spans: &[Span]| {
        let (arrived, sent) = spans.iter().fold((0, 0), |(arrived, sent), span| {
            (arrived + span.arrived, sent + span.sent as usize)
        });
        arrived as f64 / sent as f64
    };
    // Of two that followed one another: what else the machine does changes from minute to minute.
    let pairs = without.iter().zip(with);
    let ratio = middle(pairs.map(|(without, with)| with.ns / without.ns));
    eprintln!(
        "{what}: {} pairs; {:.4} and {:.4} of the packets arrived; {:.0} and {:.0} ns of the forwarding thread \
         each, {ratio:.3} of it",
        with.len(),
        arrived(without),
        arrived(with),
        middle_ns(without),
        middle_ns(with),
    );
    let least = pressure.least(0.98, 0.3);
    let kept = arrived(with) / arrived(without);
    assert!(kept >= least, "{kept} of the packets, {least} at least");
    // Of a program that is not optimised, in spans of less than a second, it says nothing: how many packets
    // a round finds decides more.
    if long_tests() && !cfg!(debug_assertions) {
        let most = pressure.most(1.02, 1.0);
        assert!(ratio <= most, "{ratio} times, {most} at most");
    }
}

/// A site that has told its first state.
fn started(wire: &Wire, config: &str, socket: &Path) -> Site {
    let site = Site::start(wire, config);
    until_it_tells(socket);
    site
}

fn connect(socket: &Path) -> UnixStream {
    UnixStream::connect(socket).unwrap()
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

/// Asks for these in turn, so often, until `stop`; counts the answers.
fn ask(socket: &Path, paths: &[&str], every: Duration, stop: &AtomicBool, answers: &AtomicU64) {
    let mut paths = paths.iter().cycle();
    while !stop.load(Ordering::Relaxed) {
        let next = Instant::now() + every;
        let answer = exchanged(connect(socket), get(paths.next().unwrap()));
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        answers.fetch_add(1, Ordering::Relaxed);
        while Instant::now() < next && !stop.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Streams that nobody reads.
fn stalled(socket: &Path, count: usize) -> Vec<UnixStream> {
    let streams = (0..count).map(|_| {
        let mut stream = connect(socket);
        stream.write_all(get("/v1/events").as_bytes()).unwrap();
        stream
    });
    streams.collect()
}

/// What a measurement is like: pairs, how long each half, and clients.
fn extent() -> (usize, Duration) {
    match long_tests() {
        true => (10, Duration::from_secs(3)),
        false => (2, Duration::from_millis(700)),
    }
}

/// Measures packets without and with a hundred clients and a thousand streams that nobody reads.
fn crowded(test: &str, rate: &str, span: fn(&Wire, &Site, Duration) -> Span) {
    let Some(wire) = wire(test, 1) else {
        return;
    };
    let ((pairs, time), readers) = (extent(), if long_tests() { 1_000 } else { 200 });
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("ctl.sock");
    let text = config(20, &socket).replace("200mbit", rate);
    let site = started(&wire, &text, &socket);
    let pressure = Pressure::begin();
    let (mut without, mut with) = (Vec::new(), Vec::new());
    let [answers, scraped, told] = [(); 3].map(|()| AtomicU64::new(0));
    span(&wire, &site, time);
    for _ in 0..pairs {
        without.push(span(&wire, &site, time));
        let stop = AtomicBool::new(false);
        let held = stalled(&socket, readers);
        thread::scope(|scope| {
            let _ends = Ends([&stop, &stop]);
            for _ in 0..100 {
                scope.spawn(|| ask(&socket, &["/v1/state"], EVERY, &stop, &answers));
            }
            scope.spawn(|| ask(&socket, &["/metrics"], EVERY, &stop, &scraped));
            // As the page does.
            scope.spawn(|| listen(&socket, &stop, &told));
            with.push(span(&wire, &site, time));
        });
        drop(held);
    }
    let [answers, scraped, told] = [answers, scraped, told].map(AtomicU64::into_inner);
    eprintln!(
        "{readers} streams that nobody reads; {answers} answers to 100 clients, {scraped} scrapes, {told} bytes \
         of a stream that is read"
    );
    assert!(
        answers >= 100 && scraped >= pairs as u64 && told > 0,
        "{answers}, {scraped}, {told}"
    );
    compare(test, &pressure, &without, &with);
    site.stop();
}

#[test]
fn a_hundred_clients_a_thousand_stalled_readers_metrics_and_a_page_cost_the_packets_nothing() {
    crowded("clients", "200mbit", span);
}

#[test]
fn a_hundred_clients_and_a_thousand_stalled_readers_cost_a_flood_next_to_nothing() {
    let test = "clients under a flood";
    match long_tests() {
        true => crowded(test, "10gbit", flooded),
        false => skip_unsupported(test, "FAIRLANE_LONG_TESTS is not set"),
    }
}

/// Measures packets without and with metrics, page and streams.
fn watched(test: &str, rate: &str, span: fn(&Wire, &Site, Duration) -> Span) {
    let (Some(plain_wire), Some(wire)) = (wire(test, 1), wire(test, 1)) else {
        return;
    };
    let ((pairs, time), classes) = (extent(), if long_tests() { 1_000 } else { 50 });
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("ctl.sock");
    let text = config(classes, &socket).replace("200mbit", rate);
    let (plain, _) = text.split_once("[control]").unwrap();
    let plain = Site::start(&plain_wire, plain);
    let site = started(&wire, &text, &socket);
    let pressure = Pressure::begin();
    let (mut without, mut with) = (Vec::new(), Vec::new());
    let (answers, told) = (AtomicU64::new(0), AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = Ends([&stop, &stop]);
        scope.spawn(|| ask(&socket, &PAGE, EVERY / 5, &stop, &answers));
        for _ in 0..3 {
            scope.spawn(|| listen(&socket, &stop, &told));
        }
        span(&plain_wire, &plain, time);
        for _ in 0..pairs {
            without.push(span(&plain_wire, &plain, time));
            with.push(span(&wire, &site, time));
        }
    });
    let (answers, told) = (answers.into_inner(), told.into_inner());
    eprintln!("{classes} classes; {answers} answers, {told} bytes of streams");
    assert!(answers >= 5 && told > 10_000, "{answers}, {told}");
    compare(test, &pressure, &without, &with);
    plain.stop();
    site.stop();
}

#[test]
fn metrics_the_page_and_streams_cost_the_packets_next_to_nothing() {
    watched("metrics, page and streams", "200mbit", span);
}

#[test]
fn metrics_the_page_and_streams_cost_a_flood_next_to_nothing() {
    let test = "metrics, page and streams under a flood";
    match long_tests() {
        true => watched(test, "10gbit", flooded),
        false => skip_unsupported(test, "FAIRLANE_LONG_TESTS is not set"),
    }
}

/// Reads a stream until `stop`; counts its bytes.
fn listen(socket: &Path, stop: &AtomicBool, told: &AtomicU64) {
    let mut stream = connect(socket);
    stream.write_all(get("/v1/events").as_bytes()).unwrap();
    let timeout = Some(Duration::from_millis(50));
    stream.set_read_timeout(timeout).unwrap();
    let mut buffer = vec![0; 1 << 16];
    while !stop.load(Ordering::Relaxed) {
        if let Ok(bytes) = stream.read(&mut buffer) {
            told.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }
}
