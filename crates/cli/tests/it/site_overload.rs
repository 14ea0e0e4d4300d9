//! `fairlane run CONFIG` under overload, or after a pause.

use std::collections::VecDeque;
use std::thread;
use std::time::{Duration, Instant};

use crate::site::{BACKENDS, PATIENCE, Site, class, up, wire};
use fairlane_io::{Backend, PacketBackend, packet};
use fairlane_netlab::Wire;
use serde_json::Value;

/// A separate class for frames of an experimental protocol, which are no IP packets.
const CLASSES: &str = "\
[[link.class]]
name = \"tested\"
default = true

[[link.class]]
name = \"other\"

[[link.filter]]
class = \"other\"
family = \"ipv4\"

[[link.filter]]
class = \"other\"
family = \"ipv6\"
";

fn host(wire: &Wire) -> PacketBackend {
    let link = wire.sender(0).link();
    link.namespace()
        .run(|| PacketBackend::open(link.name(), &packet::Options::default()).unwrap())
}

fn frame() -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5];
    frame.resize(60, 0);
    frame
}

fn send(host: &mut PacketBackend, frames: usize) {
    let mut batch: VecDeque<_> = (0..frames).map(|_| frame()).collect();
    let begun = Instant::now();
    while !batch.is_empty() {
        host.transmit(&mut batch).unwrap();
        assert!(begun.elapsed() < PATIENCE);
    }
}

fn count(report: &Value, key: &str) -> u64 {
    let count = class(report, "up", "tested").pointer(key).unwrap();
    count.as_u64().unwrap()
}

#[test]
fn delay_starts_at_arrival_at_the_interface() {
    let Some(wire) = wire("the delay from the interface on", 1) else {
        return;
    };
    for backend in BACKENDS {
        let mut site = Site::start(&wire, &(up(backend, "100mbit") + CLASSES));
        let mut host = host(&wire);
        site.pause();
        send(&mut host, 20);
        let there = Instant::now();
        thread::sleep(Duration::from_millis(200));
        let least = there.elapsed();
        site.signal("CONT");
        // Frames behind them have passed when this one does.
        assert!(wire.is_through(PATIENCE).unwrap());
        let report = site.reported();
        assert!(count(&report, "/sent_packets") >= 20, "{backend}");
        let delay = &class(&report, "up", "tested")["delay_us"]["max"];
        assert!(
            delay.as_f64() >= Some(least.as_secs_f64() * 1e6 * 0.99),
            "{backend}: {delay} us of {least:?}, told to two digits"
        );
    }
}

#[test]
fn arrivals_during_a_stall_are_received_or_counted_as_lost() {
    const FRAMES: usize = 30_000;
    let Some(wire) = wire("what was received or lost", 1) else {
        return;
    };
    // Frames that arrive after the kernel reported losses do not count as samples of the loss: with this interval, the
    // daemon reads the count only at the end.
    let seldom = ["--every", "60"];
    let mut site = Site::start_with(&wire, &(up("packet", "100mbit") + CLASSES), &seldom);
    let mut host = host(&wire);
    // Receives every frame that the interface received, whatever happens to it later.
    let mut listener = wire.middle().run(|| {
        let options = packet::Options {
            ring: 64 << 20,
            ..packet::Options::default()
        };
        PacketBackend::<Vec<u8>>::open("inside", &options).unwrap()
    });
    site.pause();
    send(&mut host, FRAMES);
    site.signal("CONT");
    assert!(wire.is_through(PATIENCE).unwrap());
    // From these on, the program knows that earlier frames were lost.
    send(&mut host, 100);
    assert!(wire.is_through(PATIENCE).unwrap());
    let report = site.reported();
    let lost = report["interfaces"][0]["lost"].as_u64().unwrap();
    let tested = count(&report, "/accepted_packets") + count(&report, "/drops/full");
    let mut heard = Vec::new();
    listener.receive(&mut heard, usize::MAX).unwrap();
    heard.retain(|heard| *heard == frame());
    assert_eq!(listener.lost().unwrap(), 0, "it has room for all");
    let heard = heard.len() as u64;
    assert!(lost > 0 && heard > 10_000, "{heard}: {report:#}");
    assert!(tested + lost >= heard, "{tested} and {lost} of {heard}");
    assert!(count(&report, "/ring_loss_samples") > 0, "{report:#}");
}

#[test]
fn arrivals_during_a_stall_are_queued_in_the_ring() {
    let Some(wire) = wire("what waits for it", 1) else {
        return;
    };
    for (backend, frames) in [("packet", 9_000), ("xdp", 3_900)] {
        let mut site = Site::start(&wire, &(up(backend, "100mbit") + CLASSES));
        let mut host = host(&wire);
        site.pause();
        send(&mut host, frames);
        site.signal("CONT");
        assert!(wire.is_through(PATIENCE).unwrap());
        let report = site.reported();
        assert_eq!(report["interfaces"][0]["lost"], 0, "{backend}: {report:#}");
        let tested = count(&report, "/accepted_packets") + count(&report, "/drops/full");
        assert!(tested > frames as u64 / 2, "{backend}: {tested} came");
    }
}
