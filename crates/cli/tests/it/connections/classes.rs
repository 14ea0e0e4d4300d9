//! Classes with real traffic through `fairlane run CONFIG`: ceilings hold, and a separate small class keeps the delay
//! bound of `fairlane check`.

use std::thread;
use std::time::{Duration, Instant};

use crate::program::{Pressure, beside_noise, fairlane};
use crate::site::{self, BACKENDS, FILLED, PATIENCE, Site, interfaces, wire};
use fairlane_config::Site as Plan;
use fairlane_netlab::{Echo, Flow, Host, Wire, iperf_is_installed, or_skip};
use fairlane_testkit::long_tests;
use serde_json::Value;

/// Bytes of a full segment on the link: frame and `overhead = "ethernet"`.
const FRAME: f64 = 1538.0;

fn tcp_wire(test: &str, senders: u8) -> Option<Wire> {
    or_skip(test, iperf_is_installed())?;
    wire(test, senders)
}

#[test]
fn no_capped_class_has_more_than_its_ceiling() {
    let Some(wire) = tcp_wire("ceilings of TCP flows", 1) else {
        return;
    };
    let ceilings = [2.0, 10.0, 40.0];
    let mut links = String::from(
        "\n[[link]]\nname = \"up\"\nrate = \"100mbit\"\noverhead = \"ethernet\"\nalgorithm = \"qfq+\"\n",
    );
    for (number, mbit) in ceilings.iter().enumerate() {
        links += &format!(
            r#"
[[link.class]]
name = "class-{number}"
ceil = "{mbit}mbit"
limit = {{ packets = {} }}

[[link.filter]]
class = "class-{number}"
protocol = "tcp"
destination-port = {}
"#,
            // 100 ms.
            (mbit * 1e6 * 0.1 / 8.0 / FRAME).max(32.0) as u32,
            5_200 + number,
        );
    }
    // The default class is empty, except for ARP and neighbour discovery.
    links += "\n[[link.class]]\nname = \"default\"\n";
    for backend in BACKENDS {
        let config = interfaces(backend) + &links;
        let plan = Plan::parse(&config, "site.toml").unwrap();
        let burst = |number: usize| {
            let class = &plan.link("up").unwrap().classes[number];
            f64::from(class.ceiling.unwrap().burst)
        };
        let site = Site::start(&wire, &config);
        for (number, ceiling) in ceilings.into_iter().enumerate() {
            // More than the ceiling is always wrong. Less is possible if other programs had the daemon's core for
            // longer than the ceiling's burst lasts, or the sender's.
            let (all, measured) = if long_tests() { (5, 2_500) } else { (4, 1_500) };
            let pressure = Pressure::begin();
            let before = frames(wire.receiver());
            let port = 5_200 + number as u16;
            let flow = Flow::start(wire.sender(0), wire.receiver(), port, all).unwrap();
            let begun = Instant::now();
            while frames(wire.receiver()) < before + UNDER_WAY {
                assert!(begun.elapsed() < PATIENCE, "{backend}: nothing comes");
                thread::sleep(Duration::from_millis(5));
            }
            // By then, slow start is over and its losses are retransmitted.
            thread::sleep(Duration::from_millis(1_200));
            let came = came_to(wire.receiver(), Duration::from_millis(measured));
            flow.finish().unwrap();
            let least = pressure.least(0.99, 0.0) * ceiling * came.at_least.as_secs_f64();
            // Packets in flight at the start of the measurement (more on a busy machine), and a burst, are extra.
            let span = came.at_most.as_secs_f64() + pressure.most(0.0, 0.1);
            let most = ceiling * span + (burst(number) + FRAME) * 8.0 / 1e6;
            assert!(
                (least..=most).contains(&came.mbit),
                "{backend}: {came:?} of {ceiling} Mbit/s, not {least} to {most}"
            );
        }
        let report = site.stop();
        for number in 0..ceilings.len() {
            let class = site::class(&report, "up", &format!("class-{number}"));
            // The ceiling limited it, and nothing else.
            assert!(class["overlimits"].as_u64() > Some(100), "{class:#}");
        }
    }
}

/// Frames after which a flow is under way.
const UNDER_WAY: u64 = 20;

/// Returns the number of frames that a host has received.
fn frames(host: &Host) -> u64 {
    host.link().received().unwrap().0
}

/// Received traffic of a host during a time, in megabits on the link: with the 24 bytes around a frame.
#[derive(Debug)]
struct Came {
    mbit: f64,
    /// The time between the two counts: at least, and at most, since reading a count takes time.
    at_least: Duration,
    at_most: Duration,
}

fn came_to(host: &Host, time: Duration) -> Came {
    let count = || {
        let before = Instant::now();
        let (frames, bytes) = host.link().received().unwrap();
        (before, bytes + 24 * frames, Instant::now())
    };
    let (outer, bytes_before, inner) = count();
    thread::sleep(time);
    let (inner_end, bytes_after, outer_end) = count();
    Came {
        mbit: (bytes_after - bytes_before) as f64 * 8.0 / 1e6,
        at_least: inner_end - inner,
        at_most: outer_end - outer,
    }
}

/// Returns a link that a bulk flow saturates, with or without a separate class for pings.
fn beside_bulk(backend: &str, own_class: bool) -> String {
    let filter = match own_class {
        true => "\n[[link.filter]]\nclass = \"ping\"\nprotocol = \"udp\"\n",
        false => "",
    };
    let link = r#"
[[link]]
name = "up"
rate = "20mbit"
overhead = "ethernet"
algorithm = "wf2q+"

[[link.class]]
name = "ping"
rate = "2mbit"

[[link.class]]
name = "bulk"
default = true
limit = { packets = 200 }
queue = "tail-drop"
"#;
    [&interfaces(backend), link, filter].concat()
}

/// Returns the delay bound of the class `name` from `fairlane check`.
fn bound(config: &str, name: &str) -> Duration {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("site.toml");
    std::fs::write(&file, config).unwrap();
    let checked = fairlane(&["check", file.to_str().unwrap(), "--json"]).success();
    let checked: Value = serde_json::from_str(&checked).unwrap();
    let classes = checked["links"][0]["classes"].as_array().unwrap();
    let class = classes.iter().find(|class| class["name"] == name).unwrap();
    Duration::from_secs_f64(class["bound_us"].as_f64().unwrap() / 1e6)
}

/// Returns the round-trip times of small datagrams, one every few milliseconds, sorted. Lost ones are left out.
fn pings(wire: &Wire, count: usize) -> Vec<Duration> {
    let mut echo = Echo::between(wire.sender(1), wire.receiver(), 9_000).unwrap();
    let mut ping = || {
        thread::sleep(Duration::from_millis(7));
        echo.round_trip(64, 64, Duration::from_secs(1))
    };
    let mut trips: Vec<Duration> = (0..count).filter_map(|_| ping()).collect();
    trips.sort();
    trips
}

/// Returns the 95th percentile of round-trip times: longer ones come from a busy machine.
fn most(trips: &[Duration]) -> Duration {
    trips[trips.len() * 95 / 100]
}

#[test]
fn ping_stays_within_the_delay_bound_on_a_saturated_link() {
    let Some(wire) = tcp_wire("a ping in a class of its own", 2) else {
        return;
    };
    for backend in BACKENDS {
        let config = beside_bulk(backend, true);
        let bound = bound(&config, "ping");
        // One packet of 1538 bytes takes 0.6 ms, and the bulk flow's queue 123 ms.
        assert!(bound > Duration::from_micros(600) && bound < Duration::from_millis(20));

        let site = Site::start(&wire, &config);
        let pressure = Pressure::begin();
        let idle = pings(&wire, 200);
        // The delay that this host adds by itself in the same path, or the wakeup delay of a thread.
        let idle_noise = *idle.last().unwrap();
        let flow = Flow::start(wire.sender(0), wire.receiver(), 5_201, 4).unwrap();
        thread::sleep(Duration::from_millis(800));
        let (busy, noise) = beside_noise(|| pings(&wire, 200));
        let noise = noise.max(idle_noise);
        let transfer = flow.finish().unwrap();
        let (least_pings, least_used) = (pressure.least(1.0, 0.9), pressure.least(0.9, FILLED));
        let report = site.stop();
        let ping = site::class(&report, "up", "ping");
        assert_eq!(
            (&ping["drops"]["full"], &ping["drops"]["managed"]),
            (&0.into(), &0.into()),
            "{ping:#}"
        );
        // Answers after more than a second are due to other programs, and not counted.
        assert!(
            idle.len().min(busy.len()) as f64 >= 200.0 * least_pings,
            "{backend}: pings were lost"
        );
        let used = transfer.steady_rate(Duration::from_secs(1)) * FRAME
            / f64::from(transfer.segment)
            / 20e6;
        assert!(
            used > least_used,
            "{backend}: the link is not saturated: {used}"
        );
        assert!(
            most(&busy) <= bound + noise,
            "{backend}: {:?} beside a bound of {bound:?} and {noise:?} of the host's",
            most(&busy)
        );

        // Without a class of its own, the same ping waits behind the backlog, once that is long.
        let site = Site::start(&wire, &beside_bulk(backend, false));
        let mut flow = Flow::start(wire.sender(0), wire.receiver(), 5_201, 3).unwrap();
        let mut together = Vec::new();
        while !flow.has_ended() {
            together.extend(pings(&wire, 5));
        }
        flow.finish().unwrap();
        site.stop();
        let (alone, waited) = (idle[idle.len() / 2], together.into_iter().max());
        assert!(
            waited > Some(3 * bound + alone),
            "{backend}: {waited:?} and {alone:?}"
        );
    }
}
