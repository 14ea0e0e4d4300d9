//! `fairlane run CONFIG`: classes get their configured rates on real interfaces.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::program::{Pressure, beside_noise};
use crate::site::{self, FILLED, PATIENCE, Site, bind, class, interfaces, link, up, wire};
use fairlane_config::Site as Plan;
use fairlane_control::view::drops;
use fairlane_netlab::{Echo, Host, Wire};
use fairlane_testkit::long_tests;
use rustix::net::sockopt::{set_ip_tos, set_socket_recv_buffer_size_force};
use serde_json::Value;

/// Destination port of a flood.
const FLOODED: u16 = 4_000;

/// Sends datagrams from these ports in turn, faster than the link, until `stop`.
fn flood(from: &Host, to: &Host, ports: &[u16], payload: usize, pps: f64, stop: &AtomicBool) {
    let sockets: Vec<_> = ports.iter().map(|&port| bind(from, port)).collect();
    let began = Instant::now();
    let mut sent = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        let due = (began.elapsed().as_secs_f64() * pps) as u64;
        if sent >= due {
            thread::sleep(Duration::from_millis(1));
            continue;
        }
        // After a pause of the machine it catches up only in part.
        sent = sent.max(due.saturating_sub(1_000));
        let socket = &sockets[sent as usize % ports.len()];
        let _ = socket.send_to(&vec![0; payload], (to.address(), FLOODED));
        sent += 1;
    }
}

/// Received datagrams from each port of a flood. They go to one socket, so that they are counted in the order of their
/// departure, however late they are read.
type Arrived = [AtomicU64];

/// Runs a site while datagrams from these ports flood it, and runs `work` in the meantime.
fn flooded<T>(
    wire: &Wire,
    config: &str,
    ports: &[u16],
    pps: f64,
    work: impl FnOnce(&Arrived) -> T,
) -> (Value, T) {
    let receiver = wire.receiver();
    let listener = bind(receiver, FLOODED);
    let look = Duration::from_millis(50);
    listener.set_read_timeout(Some(look)).unwrap();
    // Half a second at the link's rate.
    set_socket_recv_buffer_size_force(&listener, 1 << 21).unwrap();
    let arrived: Vec<AtomicU64> = ports.iter().map(|_| AtomicU64::new(0)).collect();
    let site = Site::start(wire, config);
    let stop = AtomicBool::new(false);
    let worked = thread::scope(|scope| {
        let stop = &stop;
        let arrived = &arrived;
        scope.spawn(move || {
            let mut buffer = [0; 2_000];
            while !stop.load(Ordering::Relaxed) {
                let Ok((_, from)) = listener.recv_from(&mut buffer) else {
                    continue;
                };
                let place = ports.iter().position(|&port| port == from.port());
                arrived[place.unwrap()].fetch_add(1, Ordering::Relaxed);
            }
        });
        scope.spawn(|| flood(wire.sender(0), receiver, ports, 1_000, pps, stop));
        let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(arrived)));
        stop.store(true, Ordering::Relaxed);
        worked.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    (site.stop(), worked)
}

/// 1,000 bytes, the headers, and 24 of overhead.
const WIRE_BYTES: f64 = 1_000.0 + 42.0 + 24.0;

#[test]
fn shares_follow_the_file_and_a_ceiling_holds() {
    let Some(wire) = wire("shares and a ceiling", 1) else {
        return;
    };
    for backend in site::BACKENDS {
        // A rate so low that the flood exceeds it, even if its sender gets little CPU time.
        let config = up(backend, "10mbit")
            + r#"overhead = 24
algorithm = "qfq"

[[link.class]]
name = "capped"
weight = 4
ceil = "2mbit"
limit = { packets = 1000 }

[[link.class]]
name = "three"
weight = 3
limit = { packets = 1000 }

[[link.class]]
name = "one"
weight = 1
default = true
limit = { packets = 1000 }

[[link.filter]]
class = "capped"
protocol = "udp"
source-port = 1001

[[link.filter]]
class = "three"
protocol = "udp"
source-port = 1002

[[link.filter]]
class = "one"
protocol = "udp"
source-port = 1003
"#;
        let seconds = if long_tests() { 7 } else { 2 };
        let (report, (rates, limits)) =
            flooded(&wire, &config, &[1001, 1002, 1003], 18_000.0, |arrived| {
                thread::sleep(Duration::from_millis(500));
                let count = |port: usize| arrived[port].load(Ordering::Relaxed);
                let before = [0, 1, 2].map(count);
                let pressure = Pressure::begin();
                let began = Instant::now();
                thread::sleep(Duration::from_secs(seconds));
                let span = began.elapsed().as_secs_f64();
                let packets = [0, 1, 2].map(|port| (count(port) - before[port]) as f64);
                let rates = packets.map(|packets| packets * WIRE_BYTES * 8.0 / span);
                let limits = pressure.least(0.99, FILLED)..pressure.most(1.01, 0.04);
                (rates, limits)
            });
        let [capped, three, one] = rates;
        // The upper limit includes the backlog that a late receiver reads. The lower limit includes times longer than a
        // burst in which other programs had the daemon's core.
        for (what, rate, wanted) in [
            ("link", capped + three + one, 10e6),
            ("ceiling", capped, 2e6),
        ] {
            let part = rate / wanted;
            assert!(
                limits.contains(&part),
                "{backend}: {what} {part} not in {limits:?}, {rates:?}"
            );
        }
        // Whatever was lost, those two share the rest; their queues last for most of a second.
        let ratio = three / one / 3.0;
        assert!((0.98..1.02).contains(&ratio), "{backend}: {rates:?}");
        let capped = class(&report, "up", "capped");
        assert!(capped["overlimits"].as_u64() > Some(0), "{capped:#}");
        assert!(capped["drops"]["full"].as_u64() > Some(0), "{capped:#}");
    }
}

#[test]
fn ping_stays_within_the_delay_bound_of_its_class() {
    let Some(wire) = wire("a ping in a class of its own", 1) else {
        return;
    };
    let config = up("packet", "10mbit")
        + r#"overhead = 24

[[link.class]]
name = "ping"
rate = "1mbit"

[[link.class]]
name = "bulk"
default = true
limit = { packets = 200 }

[[link.filter]]
class = "ping"
destination-port = 7777
"#;
    let plan = Plan::parse(&config, "site.toml").unwrap();
    let link = plan.link("up").unwrap();
    let ping = link.classes.iter().position(|class| &*class.name == "ping");
    let bound = link.guarantees()[ping.unwrap()].delay.unwrap().unwrap();
    let (report, (mut rounds, noise)) = flooded(&wire, &config, &[1001], 3_000.0, |_| {
        let mut echo = Echo::between(wire.sender(0), wire.receiver(), 7_777).unwrap();
        thread::sleep(Duration::from_millis(300));
        let round_trip = |_| {
            thread::sleep(Duration::from_millis(10));
            echo.round_trip(60, 60, PATIENCE).unwrap()
        };
        beside_noise(|| (0..100).map(round_trip).collect::<Vec<_>>())
    });
    let delay = &class(&report, "up", "ping")["delay_us"];
    let longest = Duration::from_nanos((delay["p99"].as_f64().unwrap() * 1e3) as u64);
    // The delay that other programs on the machine's cores add.
    let slack = noise + Duration::from_millis(1);
    let bound = Duration::from(bound);
    assert!(
        longest <= bound + slack,
        "{longest:?} of {bound:?}: {report:#}"
    );
    rounds.sort();
    assert!(rounds[50] <= bound + slack, "{:?} of {bound:?}", rounds[50]);
    let bulk = &class(&report, "up", "bulk")["delay_us"];
    let waits = bulk["p50"].as_f64().unwrap();
    assert!(waits > 100_000.0, "the link is full: {waits} us");
}

#[test]
fn guaranteed_class_drops_nothing_under_a_dozen_floods() {
    let Some(wire) = wire("voice beside a dozen flows", 1) else {
        return;
    };
    let config = up("packet", "8mbit")
        + r#"overhead = 24
algorithm = "wf2q+"
limit = { packets = 9000 }

[[link.class]]
name = "voice"
rate = "2mbit"
ceil = "4mbit"

[[link.class]]
name = "everybody"
per = "5-tuple"
default = true

[[link.filter]]
class = "voice"
destination-port = 5004
"#;
    let ports: Vec<u16> = (1001..1013).collect();
    let seconds = if long_tests() { 6 } else { 2 };
    let pressure = Pressure::begin();
    let (report, sent) = flooded(&wire, &config, &ports, 12_000.0, |_| {
        let host = wire.sender(0);
        let socket = bind(host, 0);
        let began = Instant::now();
        let mut sent = 0u64;
        // 1 Mbit/s. Voice does not catch up after a pause of the machine.
        while began.elapsed() < Duration::from_secs(seconds) {
            let _ = socket.send_to(&[0; 100], (wire.receiver().address(), 5004));
            sent += 1;
            thread::sleep(Duration::from_millis(1));
        }
        sent
    });
    let voice = class(&report, "up", "voice");
    let flood = class(&report, "up", "everybody");
    assert_eq!(drops(voice), 0, "of {sent}: {voice:#}");
    assert!(
        voice["sent_packets"].as_u64().unwrap() > sent / 2,
        "{voice:#}"
    );
    // Even if the flood's sender got little CPU time, the link was full; with enough of it, all buffers were.
    let waits = flood["delay_us"]["p50"].as_f64().unwrap();
    let least = pressure.least(1.0, 0.0) * 2_000.0;
    assert!(
        waits > 100_000.0 && drops(flood) as f64 >= least,
        "no flood: {flood:#}"
    );
}

#[test]
fn malformed_frames_go_to_the_default_class_and_are_counted() {
    let Some(wire) = wire("malformed frames", 1) else {
        return;
    };
    let config = up("packet", "10mbit")
        + r#"
[[link.class]]
name = "ip"

[[link.class]]
name = "rest"
default = true

[[link.filter]]
class = "ip"
family = "ipv4"
"#;
    let site = Site::start(&wire, &config);
    let host = wire.sender(0).link().clone();
    let mut backend = host
        .namespace()
        .run(|| fairlane_io::PacketBackend::open(host.name(), &Default::default()).unwrap());
    // An IPv4 header that claims 1,000 bytes in a frame of 46; then a valid one of an unknown protocol.
    let header = |length: u16| {
        let mut frame = vec![0xff; 6];
        frame.extend(host.mac());
        frame.extend([8, 0, 0x45, 0]);
        frame.extend(length.to_be_bytes());
        frame.extend([0, 0, 0, 0, 64, 253, 0, 0, 10, 0, 0, 1, 10, 0, 0, 254]);
        frame.resize(60, 0);
        frame
    };
    let mut batch: std::collections::VecDeque<Vec<u8>> =
        [header(1_000), header(1_000), header(46)].into();
    while !batch.is_empty() {
        fairlane_io::Backend::transmit(&mut backend, &mut batch).unwrap();
    }
    // Frames behind them are received after them.
    assert!(wire.is_through(PATIENCE).unwrap());
    let report = site.stop();
    assert_eq!(link(&report, "up")["malformed"], 2);
    let rest = class(&report, "up", "rest")["sent_packets"].as_u64();
    assert!(rest >= Some(2), "{report:#}");
}

#[test]
fn frames_of_opaque_protocols_are_counted_and_reported() {
    let Some(wire) = wire("an opaque protocol", 1) else {
        return;
    };
    let site = Site::start(&wire, &up("packet", "10mbit"));
    let host = wire.sender(0).link().clone();
    let mut backend = host
        .namespace()
        .run(|| fairlane_io::PacketBackend::open(host.name(), &Default::default()).unwrap());
    // IPX in a PPPoE session.
    let mut frame = vec![0xff; 6];
    frame.extend(host.mac());
    frame.extend([0x88, 0x64, 0x11, 0, 0, 1, 0, 40, 0, 0x2b]);
    frame.resize(60, 0);
    let mut batch: std::collections::VecDeque<Vec<u8>> = vec![frame; 150].into();
    while !batch.is_empty() {
        fairlane_io::Backend::transmit(&mut backend, &mut batch).unwrap();
    }
    assert!(wire.is_through(PATIENCE).unwrap());
    let finished = site.end();
    assert!(finished.status.success(), "{finished:?}");
    let line = "link up: filters cannot match 150 of ";
    assert_eq!(finished.stderr.matches(line).count(), 1, "{finished:?}");
    let report: Value = serde_json::from_str(&finished.stdout).unwrap();
    let up = link(&report, "up");
    assert_eq!(up["opaque_frames"], 150);
    assert_eq!(up["opaque_protocol"], "PPPoE session (0x8864)");
}

#[test]
fn a_congested_class_marks_what_can_be_marked_and_drops_the_rest() {
    let Some(wire) = wire("a congested class marks", 1) else {
        return;
    };
    let config = up("packet", "5mbit")
        + r#"
[[link.class]]
name = "marked"
queue = { kind = "codel", target = "5ms", interval = "50ms", ecn = true }
limit = { packets = 1000 }
default = true
"#;
    let receiver = wire.receiver();
    let listening = bind(receiver, 1_001);
    // For as long as the receiving thread may wait for a processor.
    set_socket_recv_buffer_size_force(&listening, 4 << 20).unwrap();
    let site = Site::start(&wire, &config);
    let sender = wire.sender(0);
    let capable = bind(sender, 0);
    // ECT(0) on every datagram.
    set_ip_tos(&capable, 2).unwrap();
    let began = Instant::now();
    let mut sent = 0;
    while sent < 600 {
        // After a pause of the machine it catches up.
        let due = 1 + began.elapsed().as_micros() / 1_200;
        while sent < due.min(600) {
            capable
                .send_to(&[0; 1_000], (receiver.address(), 1_001))
                .unwrap();
            sent += 1;
        }
        thread::sleep(Duration::from_millis(1));
    }
    let came = came(&listening, 600).len();
    let report = site.stop();
    let marked = class(&report, "up", "marked");
    assert!(marked["marked"].as_u64() > Some(5), "{marked:#}");
    assert_eq!(marked["drops"]["managed"], 0, "{marked:#}");
    // The receiver's kernel has verified each header's checksum.
    assert_eq!(came, 600, "{marked:#}");
}

#[test]
fn reload_keeps_queued_packets() {
    let Some(wire) = wire("a file read again", 1) else {
        return;
    };
    let config = |rate: &str, more: &str| {
        interfaces("packet")
            + &format!(
                r#"
[[link]]
name = "up"
to = "outside"
rate = "{rate}"

[[link.class]]
name = "bulk"
default = true
limit = {{ packets = 1000 }}
queue = "tail-drop"
{more}
"#
            )
    };
    let receiver = wire.receiver();
    let listening = bind(receiver, 1_001);
    let mut site = Site::start(&wire, &config("300kbit", ""));
    let sender = wire.sender(0);
    let socket = bind(sender, 0);
    // Three seconds' worth, and few enough for the socket's buffer if it is not read for long.
    for number in 0..80_u32 {
        let mut bytes = [0; 1_458];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        socket.send_to(&bytes, (receiver.address(), 1_001)).unwrap();
    }
    thread::sleep(Duration::from_millis(300));
    site.write(&config("300kbit", "ceil = \"0bit\""));
    site.signal("HUP");
    site.until_said("running configuration kept");
    site.write(&config(
        "100mbit",
        "[[link.class]]\nname = \"new\"\nweight = 2",
    ));
    site.signal("HUP");
    site.until_said("reloaded ");
    let numbers = came(&listening, 80);
    let finished = site.end();
    assert!(finished.status.success(), "{finished:?}");
    assert!(
        numbers.iter().copied().eq(0..80),
        "all of them, in order: {numbers:?}"
    );
    assert!(
        finished.stderr.contains("running configuration kept"),
        "{}",
        finished.stderr
    );
    assert!(finished.stderr.contains("ceil"), "{}", finished.stderr);
    assert!(finished.stderr.contains("reloaded "), "{}", finished.stderr);
    let report: Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!(report["reloads"], 1);
    let bulk = class(&report, "up", "bulk");
    let sent = bulk["sent_packets"].as_u64().unwrap();
    assert!(sent >= 80 && bulk["accepted_packets"] == sent, "{bulk:#}");
    assert_eq!(
        (&bulk["drops"]["managed"], &bulk["drops"]["full"]),
        (&0.into(), &0.into())
    );
    assert_eq!(class(&report, "up", "new")["sent_packets"], 0);
}

/// Returns the numbers of the next `count` datagrams that arrive at a socket, or of fewer, if no more arrive.
pub(crate) fn came(socket: &UdpSocket, count: usize) -> Vec<u32> {
    let look = Duration::from_millis(50);
    socket.set_read_timeout(Some(look)).unwrap();
    let mut buffer = [0; 2_000];
    let mut numbers = Vec::new();
    let begun = Instant::now();
    while numbers.len() < count && begun.elapsed() < PATIENCE {
        if socket.recv(&mut buffer).is_ok() {
            numbers.push(u32::from_be_bytes(buffer[..4].try_into().unwrap()));
        }
    }
    numbers
}
