//! `fairlane run CONFIG`: the file is reloaded repeatedly while frames pass, and none is lost.

use std::fmt::Write;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlane_netlab::Host;
use fairlane_testkit::long_tests;

use crate::program::Pressure;
use crate::site::{BACKENDS, Site, bind, class, link, total, up, wire};
use crate::site_load::{forwarding_pauses, posted, resident_mb, steps_within};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use serde_json::Value;

/// Sets its flags when it is dropped.
pub(crate) struct Ends<'a>(pub(crate) [&'a AtomicBool; 2]);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        for flag in self.0 {
            flag.store(true, Ordering::Relaxed);
        }
    }
}

/// Sends numbered datagrams from a host to another while `meanwhile` runs. Returns its result, the numbers that
/// arrived, in order, and how many were sent.
pub(crate) fn numbered<T>(
    hosts: (&Host, &Host),
    port: u16,
    meanwhile: impl FnOnce() -> T,
) -> (T, Vec<u32>, u32) {
    numbered_at(1_000.0, hosts, port, meanwhile)
}

/// The same at this rate in packets a second, up to 40,000.
pub(crate) fn numbered_at<T>(
    pps: f64,
    hosts: (&Host, &Host),
    port: u16,
    meanwhile: impl FnOnce() -> T,
) -> (T, Vec<u32>, u32) {
    let (told, heard, sent) = heard_at(pps, hosts, port, meanwhile);
    (told, heard.numbers, sent)
}

/// The datagrams that arrived.
#[derive(Default)]
pub(crate) struct Heard {
    /// Their numbers in order of arrival.
    pub(crate) numbers: Vec<u32>,
    /// The longest time between two arrivals, as seen by the receiver.
    pub(crate) longest_gap: Duration,
}

/// The same, with the longest time between two arrivals.
pub(crate) fn heard_at<T>(
    pps: f64,
    (from, to): (&Host, &Host),
    port: u16,
    meanwhile: impl FnOnce() -> T,
) -> (T, Heard, u32) {
    let listening = bind(to, port);
    let timeout = Some(Duration::from_millis(50));
    listening.set_read_timeout(timeout).unwrap();
    // For as long as the receiver may wait for a processor: root may exceed the usual limit.
    set_socket_recv_buffer_size_force(&listening, 16 << 20).unwrap();
    let socket = bind(from, 0);
    let to = format!("{}:{port}", to.address());
    let (stop, done) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let receiving = scope.spawn(|| receive(&listening, &done));
        let sending = scope.spawn(|| send(&socket, &to, pps, &stop));
        // If it panics, the threads end too.
        let ends = Ends([&stop, &done]);
        let told = meanwhile();
        stop.store(true, Ordering::Relaxed);
        let sent = sending.join().unwrap();
        drop(ends);
        (told, receiving.join().unwrap(), sent)
    })
}

/// Receives arrivals until `done` and for a while after it.
fn receive(socket: &UdpSocket, done: &AtomicBool) -> Heard {
    let mut buffer = [0; 2_000];
    let mut heard = Heard::default();
    let mut last: Option<Instant> = None;
    let mut patience = 10;
    while patience > 0 {
        match socket.recv(&mut buffer) {
            Ok(_) => {
                let number = u32::from_be_bytes(buffer[..4].try_into().unwrap());
                heard.numbers.push(number);
                let gap = last.replace(Instant::now()).map(|last| last.elapsed());
                heard.longest_gap = heard.longest_gap.max(gap.unwrap_or_default());
            }
            Err(_) if done.load(Ordering::Relaxed) => patience -= 1,
            Err(_) => {}
        }
    }
    heard
}

/// Sends numbered datagrams at this rate until `stop`, and returns their number.
pub(crate) fn send(socket: &UdpSocket, to: &str, pps: f64, stop: &AtomicBool) -> u32 {
    let mut began = Instant::now();
    let (mut sent, mut due) = (0, 0.0);
    while !stop.load(Ordering::Relaxed) {
        // After a pause of the machine it catches up only in part.
        due += (began.elapsed().as_secs_f64() * pps).min(50.0);
        began = Instant::now();
        while f64::from(sent) < due {
            let mut bytes = [0; 500];
            bytes[..4].copy_from_slice(&u32::to_be_bytes(sent));
            socket.send_to(&bytes, to).unwrap();
            sent += 1;
        }
        thread::sleep(Duration::from_millis(1));
    }
    sent
}

/// A link with this number of classes, of which one carries the test's traffic; the variants differ in every kind of
/// setting.
fn config(backend: &str, classes: usize, variant: usize) -> String {
    let algorithm = if variant == 5 { "drr" } else { "qfq" };
    let mut text = up(backend, "200mbit");
    writeln!(text, "algorithm = \"{algorithm}\"").unwrap();
    let ours = match variant {
        1 => "rate = \"9mbit\"",
        // Of another kind: its packets move.
        2 => "rate = \"9mbit\"\nper = \"5-tuple\"",
        _ => "rate = \"8mbit\"",
    };
    write!(
        text,
        "[[link.class]]\nname = \"ours\"\n{ours}\n\
         [[link.filter]]\nclass = \"ours\"\ndestination-port = 1001\n"
    )
    .unwrap();
    let letter = if variant == 3 { 'd' } else { 'c' };
    for number in 0..classes {
        // Other classes are added and removed.
        if variant == 4 && number % 10 == 0 {
            continue;
        }
        write!(
            text,
            "[[link.class]]\nname = \"{letter}{number}\"\nweight = {}\n\
             [[link.filter]]\nclass = \"{letter}{number}\"\ndestination = \"10.{}.{}.1\"\n",
            1 + number % 7,
            number / 250,
            number % 250
        )
        .unwrap();
    }
    text
}

#[test]
fn storm_of_reloads_loses_and_reorders_nothing() {
    let Some(wire) = wire("a storm of reloads", 1) else {
        return;
    };
    let rounds = if long_tests() { 240 } else { 40 };
    for backend in BACKENDS {
        let mut site = Site::start(&wire, &config(backend, 200, 0));
        let pressure = Pressure::begin();
        let hosts = (wire.sender(0), wire.receiver());
        let ((), numbers, sent) = numbered(hosts, 1_001, || {
            for round in 1..=rounds {
                site.write(&config(backend, 200, round % 6));
                site.signal("HUP");
                thread::sleep(Duration::from_millis(50));
            }
            // The last one, whatever signals were merged before it.
            site.write(&config(backend, 200, 0));
            site.signal("HUP");
            thread::sleep(Duration::from_millis(1_500));
        });
        let finished = site.end();
        assert!(finished.status.success(), "{finished:?}");
        let report: Value = serde_json::from_str(&finished.stdout).unwrap();
        assert!(
            numbers.iter().copied().eq(0..sent),
            "{backend}: {} of {sent}; {}",
            numbers.len(),
            finished.stderr
        );
        // Signals during a reload cause only one more; a reload takes longer on a busy machine.
        let reloads = report["reloads"].as_u64().unwrap();
        let least = pressure.least(1.0, 0.1) * 10.0;
        assert!(reloads as f64 > least, "{reloads} of more than {least}");
        // The counters of a class survive all changes.
        let ours = class(&report, "up", "ours");
        assert_eq!(ours["sent_packets"], sent, "{ours:#}");
        assert_eq!(ours["accepted_packets"], sent, "{ours:#}");
        assert_eq!(
            (&ours["drops"]["managed"], &ours["drops"]["full"]),
            (&0.into(), &0.into())
        );
        let link = link(&report, "up");
        assert_eq!(
            total(link, "sent_packets"),
            link["transmitted"],
            "{backend}"
        );
    }
}

/// Returns the number of reloads in a long test, if it is reduced.
fn rounds() -> Option<usize> {
    std::env::var("FAIRLANE_RELOADS").ok()?.parse().ok()
}

/// The figures of many classes are those of an optimised build, by
/// `FAIRLANE_LONG_TESTS=1 cargo test --release -p fairlane-cli --test it site_reload -- --nocapture`.
#[test]
fn consecutive_reloads_lose_and_reorder_nothing() {
    let Some(wire) = wire("reloads in a row", 1) else {
        return;
    };
    let (classes, rounds) = match long_tests() && !cfg!(debug_assertions) {
        true => (10_000, rounds().unwrap_or(5_000)),
        false => (200, 60),
    };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("ctl.sock");
    let texts: Vec<_> = (0..6)
        .map(|variant| {
            let control = format!("[control]\nsocket = \"{}\"\n", socket.display());
            config("packet", classes, variant) + &control
        })
        .collect();
    let site = Site::start(&wire, &texts[0]);
    let hosts = (wire.sender(0), wire.receiver());
    let begun = Instant::now();
    let ((), numbers, sent) = numbered(hosts, 1_001, || {
        for round in 1..=rounds {
            // Mostly a single class changes; occasionally all of them do.
            let variant = match round % 50 {
                0 => round / 50 % texts.len(),
                _ => round % 2,
            };
            site.write(&texts[variant]);
            let changed = posted(&socket, "/v1/reload", "");
            assert_eq!(changed["applied"], true, "{round}: {changed}");
        }
    });
    let took = begun.elapsed();
    let resident = resident_mb(site.id());
    let report = site.stop();
    eprintln!(
        "{classes} classes: {rounds} reloads in {took:?}; longest step of the forwarding thread {}; {} of \
         {sent} packets; {resident} MB resident",
        forwarding_pauses(&report),
        numbers.len(),
    );
    assert!(
        numbers.iter().copied().eq(0..sent),
        "{} of {sent}",
        numbers.len()
    );
    assert_eq!(report["reloads"], rounds);
    assert_eq!(class(&report, "up", "ours")["sent_packets"], sent);
    steps_within(&report, 1_000.0);
}
