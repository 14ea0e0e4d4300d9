//! `fairlane run CONFIG` under a flood beyond its capacity: packets above a class's share are dropped on arrival, and
//! those within it pass.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use crate::program::longest_beside;
use crate::site::{BACKENDS, PATIENCE, Site, class, link, up, wire};
use fairlane_io::{Backend, PacketBackend, packet};
use fairlane_netlab::{Echo, Wire, or_skip, skip_unsupported};
use fairlane_testkit::long_tests;
use serde_json::Value;

const VOICE: u16 = 5_004;
const FLOOD: u16 = 1_000;

/// So low that the flood's class is out of buffer space, however slow this machine is.
const RATE: &str = "4mbit";

/// A large limit for voice that arrives during a pause of the program; the flood's limit is that of the rest.
const CLASSES: &str = "\
limit = { packets = 4000 }

[[link.class]]
name = \"voice\"
rate = \"2mbit\"
room = { packets = 2500 }
queue = \"tail-drop\"

[[link.class]]
name = \"echo\"
rate = \"1mbit\"

[[link.class]]
name = \"flood\"
default = true
limit = { packets = 1000 }

[[link.filter]]
class = \"voice\"
destination-port = 5004

[[link.filter]]
class = \"echo\"
destination-port = \"7-8\"
";

/// The frames of a flood.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Udp,
    /// UDP in a customer's VLAN in a provider's.
    TwoTags,
    /// An Ethernet header, followed by fewer bytes than a tag has.
    Shortest,
    /// Inconsistent IPv4 headers of five kinds.
    BadIp,
    /// UDP behind one to eight IPv6 extension headers.
    Extensions,
}

impl Shape {
    /// Returns the frame with this number, from port `from`.
    fn frame(self, number: u64, from: u16) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        let mut length = 60;
        if matches!(self, Shape::TwoTags) {
            frame.extend([0x88, 0xa8, 0, 100, 0x81, 0, 0, 200]);
            length += 8;
        }
        let udp = |length: u16| [from, FLOOD, length, 0].map(u16::to_be_bytes).concat();
        match self {
            Shape::Extensions => {
                let headers = 1 + number as u8 % 8;
                let options = (1..=headers).flat_map(|header| {
                    let next = if header == headers { 17 } else { 60 };
                    [next, 0, 1, 4, 0, 0, 0, 0]
                });
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 8 * headers + 8, 60, 64]);
                frame.extend([0x20; 32]);
                frame.extend(options);
                frame.extend(udp(8));
            }
            Shape::Shortest => {
                let kind: u16 = [0x0800, 0x86dd][number as usize % 2];
                frame.extend(kind.to_be_bytes());
                frame.extend(vec![0; number as usize % 4]);
            }
            Shape::Udp | Shape::TwoTags | Shape::BadIp => {
                let mut ip = vec![0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1];
                ip.extend([10, 0, 0, 254]);
                if matches!(self, Shape::BadIp) {
                    let broken = [(0, 0x55), (0, 0x42), (0, 0x4f), (3, 200), (3, 8)];
                    let (at, byte) = broken[number as usize % 5];
                    ip[at] = byte;
                }
                frame.extend([8, 0]);
                frame.extend(ip);
                frame.extend(udp(26));
                frame.resize(length, 0);
            }
        }
        frame
    }
}

/// A host that sends raw frames.
pub(crate) struct Host {
    backend: PacketBackend,
    pub(crate) sent: u64,
}

impl Host {
    pub(crate) fn new(wire: &Wire) -> Host {
        let link = wire.sender(0).link();
        let open = || PacketBackend::open(link.name(), &packet::Options::default()).unwrap();
        Host {
            backend: link.namespace().run(open),
            sent: 0,
        }
    }

    /// Sends short datagrams to a port, each from another source port.
    pub(crate) fn send(&mut self, to: u16, datagrams: usize) {
        let first = self.sent;
        self.send_to((0..datagrams).map(|number| {
            let from = (first as u16).wrapping_add(number as u16);
            ([10, 0, 0, 254], from, to)
        }));
    }

    /// Sends a short datagram for each source address, source port and destination port.
    pub(crate) fn send_to(&mut self, all: impl Iterator<Item = ([u8; 4], u16, u16)>) {
        let frame = |(address, from, to): ([u8; 4], u16, u16)| {
            let mut frame = Shape::Udp.frame(0, from);
            frame[30..34].copy_from_slice(&address);
            frame[36..38].copy_from_slice(&to.to_be_bytes());
            frame
        };
        self.send_frames(all.map(frame).collect());
    }

    /// Sends this number of frames of a flood.
    fn flood(&mut self, shape: Shape, frames: u64) {
        let numbers = self.sent..self.sent + frames;
        self.send_frames(numbers.map(|n| shape.frame(n, n as u16)).collect());
    }

    fn send_frames(&mut self, mut batch: VecDeque<Vec<u8>>) {
        let begun = Instant::now();
        while !batch.is_empty() {
            self.sent += self.backend.transmit(&mut batch).unwrap() as u64;
            assert!(begun.elapsed() < PATIENCE);
        }
    }
}

/// Floods a stopped program's ring, then sends voice among twenty times as many packets of a flood that continues.
fn flood(wire: &Wire, site: &mut Site) -> Host {
    flood_of(Shape::Udp, wire, site)
}

fn flood_of(shape: Shape, wire: &Wire, site: &mut Site) -> Host {
    let mut host = Host::new(wire);
    let begun = Instant::now();
    loop {
        site.pause();
        host.flood(shape, 12_000);
        site.signal("CONT");
        let flooding = Mutex::new(&mut host);
        let beat = || {
            let begun = Instant::now();
            flooding.lock().unwrap().flood(shape, 100);
            thread::sleep(Duration::from_millis(10));
            begun.elapsed()
        };
        let ((), gap) = longest_beside(beat, || {
            assert!(wire.is_through(PATIENCE).unwrap());
            site.pause();
        });
        // Limits stay in force for a second without a flood.
        if gap < Duration::from_millis(500) {
            break;
        }
        assert!(begun.elapsed() < 3 * PATIENCE, "no flood: {gap:?} between");
        site.signal("CONT");
        assert!(wire.is_through(PATIENCE).unwrap());
    }
    for _ in 0..200 {
        host.send(VOICE, 10);
        host.flood(shape, 200);
    }
    site.signal("CONT");
    assert!(wire.is_through(PATIENCE).unwrap());
    host
}

fn count(report: &Value, name: &str, keys: &[&str]) -> u64 {
    let class = class(report, "up", name);
    let counts = keys.iter().map(|key| class.pointer(key).unwrap());
    counts.map(|count| count.as_u64().unwrap()).sum()
}

/// Checks that arrivals are received, dropped early or lost, up to the hosts' ARP and probe packets.
#[track_caller]
fn all_is_told(report: &Value, sent: u64) {
    let inside = &report["interfaces"][0];
    let early = count(report, "flood", &["/drops/early"]);
    assert_eq!(inside["early_drops"], early, "{report:#}");
    let received = link(report, "up")["received_frames"].as_u64().unwrap();
    let told = received + early + inside["lost"].as_u64().unwrap();
    assert!(
        (sent..sent + 1_000).contains(&told),
        "{told} of {sent}: {report:#}"
    );
}

#[test]
fn early_drop_protects_voice_from_a_ring_overflow() {
    let cores = thread::available_parallelism().unwrap().get();
    let workers = "[workers]\nreceive = 2\n";
    let alone = BACKENDS.map(|backend| (backend, ""));
    let worked = BACKENDS.map(|backend| (backend, workers));
    let settings = alone.into_iter().chain(worked);
    // A flood that the XDP program cannot parse disables early drop.
    let all = [
        Shape::TwoTags,
        Shape::Shortest,
        Shape::BadIp,
        Shape::Extensions,
        Shape::Udp,
    ];
    for (number, (backend, workers)) in settings.enumerate() {
        let shapes = if long_tests() {
            &all[..]
        } else {
            &all[number..=number]
        };
        if cores < 2 && !workers.is_empty() {
            skip_unsupported("a flood and voice at two sockets", "one core");
            continue;
        }
        let queues = if workers.is_empty() { 1 } else { 2 };
        let wire = Wire::with_queues(1, 1_500, queues);
        let Some(wire) = or_skip("a flood and voice", wire) else {
            return;
        };
        let config = up(backend, RATE) + CLASSES + workers;
        for &shape in shapes {
            let mut site = Site::start(&wire, &config);
            let host = flood_of(shape, &wire, &mut site);
            let report = site.stop();
            // Each of several sockets has a part of the traffic, and all of them drop packets.
            let voice = |keys: &[&str]| count(&report, "voice", keys);
            let accepted = voice(&["/accepted_packets"]);
            assert_eq!(accepted, 2_000, "{backend}, {shape:?}: {report:#}");
            let lost = voice(&["/drops/full", "/drops/managed", "/drops/early"]);
            assert_eq!(lost, 0, "{backend}, {shape:?}");
            let early = count(&report, "flood", &["/drops/early"]);
            assert!(early > 30_000, "{backend}, {shape:?}: {report:#}");
            all_is_told(&report, host.sent);
        }
    }
}

#[test]
fn without_early_drop_the_flood_also_drops_voice() {
    let Some(wire) = wire("a flood and voice without early drop", 1) else {
        return;
    };
    for backend in BACKENDS {
        let config = up(backend, RATE) + CLASSES;
        let mut site = Site::start_with(&wire, &config, &["--no-early-drop"]);
        flood(&wire, &mut site);
        let report = site.stop();
        let accepted = count(&report, "voice", &["/accepted_packets"]);
        assert!(accepted < 1_500, "{backend}: {report:#}");
        assert_eq!(report["interfaces"][0]["early_drops"], 0, "{backend}");
    }
}

#[test]
fn overload_note_names_classes_and_remedies() {
    let Some(wire) = wire("what is said of an overload", 1) else {
        return;
    };
    let mut site = Site::start_in_words(&wire, &(up("packet", RATE) + CLASSES));
    flood(&wire, &mut site);
    let said = site.end().success();
    let line = said.lines().find(|line| line.starts_with("overloaded: "));
    let line = line.unwrap_or_else(|| panic!("{said}"));
    for part in [
        "overloaded: inside: ",
        "use backend = \"xdp\"",
        "; dropped early by class: flood ",
    ] {
        assert!(line.contains(part), "{line}");
    }
}

#[test]
fn nothing_is_dropped_early_without_overload() {
    let Some(wire) = wire("no overload", 1) else {
        return;
    };
    for backend in BACKENDS {
        let config = up(backend, RATE) + &CLASSES.replace("1000 }", "20 }");
        let site = Site::start(&wire, &config);
        let mut host = Host::new(&wire);
        let mut echo = Echo::between(wire.sender(0), wire.receiver(), 8).unwrap();
        for _ in 0..30 {
            // The class is full, and still all frames are received.
            host.send(FLOOD, 200);
            echo.round_trip(1, 1, PATIENCE).unwrap();
        }
        let report = site.stop();
        let inside = &report["interfaces"][0];
        // Unless the machine gave the daemon no time after all.
        assert!(
            inside["early_drops"] == 0 || inside["lost"] != 0,
            "{inside:#}"
        );
        let dropped = count(&report, "flood", &["/drops/full", "/drops/managed"]);
        assert!(dropped > 100, "{backend}: {report:#}");
    }
}

#[test]
fn a_file_read_again_under_overload_loses_no_count_and_voice_still_loses_nothing() {
    let Some(wire) = wire("a flood and a file read again", 1) else {
        return;
    };
    for backend in BACKENDS {
        let config = up(backend, RATE) + CLASSES;
        let mut site = Site::start(&wire, &config);
        let before = flood(&wire, &mut site);
        // The classes after the new one have other indices, and the flood another queue.
        let new = "[[link.class]]\nname = \"new\"\n\n[[link.class]]\nname = \"echo\"";
        let config = config.replace("[[link.class]]\nname = \"echo\"", new);
        let config = config.replace("packets = 1000 }", "packets = 900 }");
        std::fs::write(site.file(), config).unwrap();
        site.signal("HUP");
        let mut echo = Echo::between(wire.sender(0), wire.receiver(), 8).unwrap();
        for _ in 0..20 {
            thread::sleep(Duration::from_millis(100));
            echo.round_trip(1, 1, PATIENCE).unwrap();
        }
        let after = flood(&wire, &mut site);
        let finished = site.end();
        assert!(finished.stderr.contains("reloaded "), "{finished:?}");
        let report: Value = serde_json::from_str(&finished.stdout).unwrap();
        let voice = |keys: &[&str]| count(&report, "voice", keys);
        assert_eq!(
            voice(&["/accepted_packets"]),
            4_000,
            "{backend}: {report:#}"
        );
        assert_eq!(
            voice(&["/drops/full", "/drops/managed", "/drops/early"]),
            0,
            "{backend}: {report:#}"
        );
        let early = count(&report, "flood", &["/drops/early"]);
        assert!(early > 60_000, "{backend}: {report:#}");
        all_is_told(&report, before.sent + after.sent);
    }
}
