//! `fairlane ctl flows`: the largest senders by name, while frames pass.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use fairlane_io::{Backend, PacketBackend, packet};
use fairlane_netlab::Wire;
use serde_json::Value;

use crate::site::{BACKENDS, PATIENCE, bind, class, up, wire};
use crate::site_control::Asked;
use crate::site_reload::{Ends, numbered, send};

const CLASSES: &str = "
[[link.class]]
name = \"voice\"
rate = \"10mbit\"
# For as long as a busy machine may leave the daemon without a processor.
room = { packets = 4000, bytes = \"4mb\" }

[[link.class]]
name = \"everybody\"
per = \"source-ip\"
flows = { most = 131072 }
default = true

[[link.filter]]
class = \"voice\"
destination-port = 1001
";

/// Each sender's rate in packets a second, or the size of its burst.
const PACKETS: [u16; 3] = [900, 300, 100];
/// 500 bytes in UDP, IP and Ethernet.
const FRAME_BITS: f64 = 542.0 * 8.0;
/// The names of the senders.
const HOSTS: [&str; 3] = ["10.0.0.1", "10.0.0.2", "10.0.0.3"];

fn names(told: &Value) -> Vec<String> {
    let flows = told["flows"].as_array().unwrap().iter();
    let names = flows.map(|flow| flow["flow"].as_str().unwrap().to_owned());
    names.collect()
}

/// Returns the report once it lists exactly these flows.
fn told(asked: &Asked, arguments: &[&str], expected: &[&str]) -> Value {
    let begun = Instant::now();
    loop {
        let told = asked.json(arguments);
        if names(&told) == expected {
            return told;
        }
        assert!(begun.elapsed() < PATIENCE, "{told:#}");
    }
}

/// Runs `work` while each of three hosts sends at its own rate.
fn three(wire: &Wire, work: impl FnOnce()) {
    let _listening = bind(wire.receiver(), 1_002);
    let to = format!("{}:1002", wire.receiver().address());
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for (number, pps) in PACKETS.into_iter().enumerate() {
            let socket = bind(wire.sender(number), 0);
            let (to, stop) = (&to, &stop);
            scope.spawn(move || send(&socket, to, f64::from(pps), stop));
        }
        let ends = Ends([&stop, &stop]);
        work();
        drop(ends);
    });
}

/// Lets three hosts send all their packets at once, until a report includes all of them and no other flow. Returns that
/// report, and its printed form.
fn told_together(wire: &Wire, asked: &Asked) -> (Value, String) {
    let _listening = bind(wire.receiver(), 1_002);
    let to = (wire.receiver().address(), 1_002);
    let sockets = [0, 1, 2].map(|number| bind(wire.sender(number), 0));
    // Counting starts with the first request.
    asked.json(&["flows"]);
    let begun = Instant::now();
    loop {
        for (socket, packets) in sockets.iter().zip(PACKETS) {
            for number in 0..packets {
                socket.send_to(&[7; 500], to).unwrap();
                // An interface has space for some hundred frames.
                if number % 50 == 49 {
                    thread::sleep(Duration::from_millis(1));
                }
            }
        }
        // Two or more walks, of which one includes the whole burst unless it started during the burst.
        let sent = Instant::now();
        while sent.elapsed() < Duration::from_secs(3) {
            let told = asked.json(&["flows", "everybody", "--top", "3"]);
            let flows = told["flows"].as_array().unwrap().iter();
            let packets: Vec<_> = flows.map(|flow| flow["packets"].as_u64()).collect();
            if packets == PACKETS.map(|packets| Some(u64::from(packets))) && names(&told) == HOSTS {
                let table = asked.ctl(&["flows"]).success();
                if HOSTS.iter().all(|name| table.contains(name)) {
                    return (told, table);
                }
            }
            assert!(begun.elapsed() < PATIENCE, "{told:#}");
        }
    }
}

#[test]
fn top_talkers_have_names_and_rates() {
    let Some(wire) = wire("three who send at rates of their own", 3) else {
        return;
    };
    for backend in BACKENDS {
        let asked = Asked::over(&wire, &(up(backend, "100mbit") + CLASSES), "");
        let (told, table) = told_together(&wire, &asked);
        let seconds = told["seconds"].as_f64().unwrap();
        assert!(seconds > 0.5, "{told:#}");
        for (flow, packets) in told["flows"].as_array().unwrap().iter().zip(PACKETS) {
            let rate = f64::from(packets) * FRAME_BITS / seconds;
            let told = flow["bps"].as_f64().unwrap();
            assert!((told / rate - 1.0).abs() < 0.001, "{rate}: {flow:#}");
            assert_eq!(
                (&flow["link"], &flow["class"]),
                (&"up".into(), &"everybody".into())
            );
        }
        let share = |number: usize| told["flows"][number]["share"].as_f64().unwrap();
        let all: f64 = (0..3).map(share).sum();
        // A few frames belong to others, such as ARP.
        assert!((0.98..=1.000_001).contains(&all), "{told:#}");
        assert!(share(0) > share(1) && share(1) > share(2), "{told:#}");
        let line = |name: &str| table.lines().position(|line| line.contains(name));
        assert!(HOSTS.map(line).is_sorted(), "{table}");

        let sentence = asked.refused(&["flows", "voice"]);
        assert!(
            sentence.contains("'voice'") && sentence.contains("no flows"),
            "{sentence}"
        );
        let sentence = asked.refused(&["flows", "everybodi"]);
        assert!(sentence.contains("'up/everybody'"), "{sentence}");
        asked.site.stop();
    }
}

#[test]
fn flows_have_distinct_names_for_every_flow_key() {
    let Some(wire) = wire("flows that are told apart otherwise", 3) else {
        return;
    };
    let asked = Asked::over(&wire, &(up("packet", "100mbit") + CLASSES), "");
    let top = ["flows", "up/everybody", "--top", "1"];
    three(&wire, || {
        told(&asked, &top, &["10.0.0.1"]);
        // All three send to one host.
        asked.json(&["set", "everybody", "per=destination-ip"]);
        let to_one = told(&asked, &top, &["10.0.0.254"]);
        let sources = |name: &String| HOSTS.contains(&&**name);
        assert!(
            to_one["flows"][0]["share"].as_f64().unwrap() > 0.5,
            "{to_one:#}"
        );
        for _ in 0..3 {
            thread::sleep(Duration::from_millis(700));
            let later = asked.json(&["flows"]);
            assert!(!names(&later).iter().any(sources), "{later:#}");
        }
        // By source subnet, and then by the 5-tuple.
        asked.json(&["set", "everybody", "per=source-subnet/24"]);
        told(&asked, &top, &["10.0.0.0/24"]);
        asked.json(&["set", "everybody", "per=5-tuple"]);
        let begun = Instant::now();
        loop {
            let told = asked.json(&top);
            let name = names(&told).pop().unwrap_or_default();
            if name.starts_with("udp 10.0.0.1:") && name.ends_with(" > 10.0.0.254:1002") {
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "{told:#}");
        }
    });
    asked.site.stop();
}

/// Sends a datagram from each of many unassigned addresses.
fn spoof(wire: &Wire, sources: u32) {
    let link = wire.sender(0).link();
    let mut host: PacketBackend = (link.namespace())
        .run(|| PacketBackend::open(link.name(), &packet::Options::default()).unwrap());
    let begun = Instant::now();
    for first in (0..sources).step_by(500) {
        let mut batch: VecDeque<_> = (first..first + 500).map(from).collect();
        while !batch.is_empty() {
            host.transmit(&mut batch).unwrap();
            assert!(begun.elapsed() < 3 * PATIENCE);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Returns a datagram whose source is 10.64.0.0 plus a number.
fn from(source: u32) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    frame.resize(60, 0);
    let ip = &mut frame[14..];
    (ip[0], ip[3], ip[8], ip[9]) = (0x45, 46, 64, 17);
    ip[12..16].copy_from_slice(&(0x0a40_0000 + source).to_be_bytes());
    ip[16..20].copy_from_slice(&[10, 0, 0, 254]);
    (ip[23], ip[25]) = (9, 26);
    frame
}

#[test]
fn a_flood_of_flows_is_walked_over_in_bounded_memory_and_nothing_guaranteed_is_lost() {
    let Some(wire) = wire("a flood of flows", 1) else {
        return;
    };
    let asked = Asked::over(&wire, &(up("packet", "200mbit") + CLASSES), "");
    let before = asked.site.memory();
    let hosts = (wire.sender(0), wire.receiver());
    let ((flows, memory), numbers, sent) = numbered(hosts, 1_001, || {
        asked.json(&["flows"]);
        thread::scope(|scope| {
            let flood = scope.spawn(|| spoof(&wire, 100_000));
            while !flood.is_finished() {
                asked.json(&["flows", "--top", "1000"]);
            }
            flood.join().unwrap();
        });
        let told = asked.json(&["flows"]);
        assert!(told["flows"].as_array().unwrap().len() <= 20, "{told:#}");
        let class = asked.json(&["show", "everybody"]);
        (class["sent_packets"].as_u64().unwrap(), asked.site.memory())
    });
    assert!(flows > 20_000, "{flows} frames of the flood came");
    // A flow takes up to 100 bytes; its class's table grows ahead of it.
    assert!(memory < before + (64 << 20), "{before} to {memory}");
    let report = asked.site.stop();
    let voice = class(&report, "up", "voice");
    assert_eq!(
        (&voice["drops"]["full"], &voice["drops"]["managed"]),
        (&0.into(), &0.into())
    );
    // Packets that a busy machine did not receive are counted separately.
    let lost = report["interfaces"][0]["lost"].as_u64().unwrap();
    let missing = u64::from(sent) - numbers.len() as u64;
    assert!(
        missing <= lost && numbers.is_sorted(),
        "{missing} of {sent}, {lost} lost"
    );
    // A walk over all flows at once would take several times as long.
    for step in report["forwarding_pauses"].as_array().unwrap() {
        assert!(step["cpu_us"].as_f64().unwrap() < 10_000.0, "{step}");
    }
}
