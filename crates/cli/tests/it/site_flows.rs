//! `fairlane ctl flows`: who sends most, by name, while frames pass.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use fairlane_io::{Backend, PacketBackend, packet};
use fairlane_netlab::Wire;
use serde_json::Value;

use crate::program::Pressure;
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

/// Each sender's share of what the first one sends.
const PPS: [f64; 3] = [900.0, 300.0, 100.0];
/// 500 bytes in UDP, IP and Ethernet.
const FRAME_BITS: f64 = 542.0 * 8.0;

fn names(told: &Value) -> Vec<String> {
    let flows = told["flows"].as_array().unwrap().iter();
    let names = flows.map(|flow| flow["flow"].as_str().unwrap().to_owned());
    names.collect()
}

/// What is told of these flows, once it is about them alone.
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

/// Does `work` while each of three hosts sends at a rate of its own; how fast each did.
fn three<T>(wire: &Wire, work: impl FnOnce() -> T) -> (T, Vec<f64>) {
    let _listening = bind(wire.receiver(), 1_002);
    let to = format!("{}:1002", wire.receiver().address());
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let senders: Vec<_> = (0..3)
            .map(|number| {
                let socket = bind(wire.sender(number), 0);
                let (to, stop) = (&to, &stop);
                scope.spawn(move || {
                    let began = Instant::now();
                    let sent = send(&socket, to, PPS[number], stop);
                    f64::from(sent) / began.elapsed().as_secs_f64()
                })
            })
            .collect();
        let ends = Ends([&stop, &stop]);
        let worked = work();
        drop(ends);
        let rates = senders.into_iter().map(|sender| sender.join().unwrap());
        (worked, rates.collect())
    })
}

#[test]
fn who_sends_most_is_named_with_his_rate() {
    let Some(wire) = wire("three who send at rates of their own", 3) else {
        return;
    };
    let expected = ["10.0.0.1", "10.0.0.2", "10.0.0.3"];
    for backend in BACKENDS {
        let asked = Asked::over(&wire, &(up(backend, "100mbit") + CLASSES), "");
        let asking = ["flows", "everybody", "--top", "3"];
        let ((told, table), sent) = three(&wire, || {
            // A second later it is about a whole second of all three.
            told(&asked, &asking, &expected);
            thread::sleep(Duration::from_secs(1));
            let told = told(&asked, &asking, &expected);
            (told, asked.ctl(&["flows"]).success())
        });
        for (flow, sent) in told["flows"].as_array().unwrap().iter().zip(sent) {
            let told = flow["bps"].as_f64().unwrap() / FRAME_BITS;
            assert!(told > sent / 2.0 && told < sent * 2.0, "{sent}: {flow:#}");
            assert_eq!(
                (&flow["link"], &flow["class"]),
                (&"up".into(), &"everybody".into())
            );
        }
        let share = |number: usize| told["flows"][number]["share"].as_f64().unwrap();
        let all: f64 = (0..3).map(share).sum();
        assert!(share(0) > share(1) && share(1) > share(2), "{told:#}");
        assert!((0.7..1.3).contains(&all), "{told:#}");
        let line = |name: &str| table.lines().position(|line| line.contains(name));
        let lines = expected.map(|name| line(name).unwrap_or_else(|| panic!("{table}")));
        assert!(lines.is_sorted(), "{table}");

        let sentence = asked.refused(&["flows", "voice"]);
        assert!(
            sentence.contains("'voice'") && sentence.contains("no flows"),
            "{sentence}"
        );
        let sentence = asked.refused(&["flows", "everybodi"]);
        assert!(sentence.contains("'everybody'"), "{sentence}");
        asked.site.stop();
    }
}

#[test]
fn no_flow_has_the_name_of_another_whatever_tells_them_apart() {
    let Some(wire) = wire("flows that are told apart otherwise", 3) else {
        return;
    };
    let asked = Asked::over(&wire, &(up("packet", "100mbit") + CLASSES), "");
    let top = ["flows", "up/everybody", "--top", "1"];
    let ((), _) = three(&wire, || {
        told(&asked, &top, &["10.0.0.1"]);
        // All three send to one.
        asked.json(&["set", "everybody", "per=destination-ip"]);
        let to_one = told(&asked, &top, &["10.0.0.254"]);
        let sources = |name: &String| ["10.0.0.1", "10.0.0.2", "10.0.0.3"].contains(&&**name);
        assert!(
            to_one["flows"][0]["share"].as_f64().unwrap() > 0.5,
            "{to_one:#}"
        );
        for _ in 0..3 {
            thread::sleep(Duration::from_millis(700));
            let later = asked.json(&["flows"]);
            assert!(!names(&later).iter().any(sources), "{later:#}");
        }
        // By what a subnet has in common, and then by the whole of what tells a connection.
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

/// Sends a datagram from each of so many addresses that nobody has.
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

/// A datagram from 10.64.0.0 and so many.
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
    let pressure = Pressure::begin();
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
    // A flow takes up to 100 bytes, its class's table grows ahead of it.
    assert!(memory < before + (64 << 20), "{before} to {memory}");
    let report = asked.site.stop();
    let voice = class(&report, "up", "voice");
    assert_eq!(
        (&voice["dropped"], &voice["discarded"]),
        (&0.into(), &0.into())
    );
    // What a busy machine did not receive is told apart.
    let lost = report["interfaces"][0]["lost"].as_u64().unwrap();
    let missing = u64::from(sent) - numbers.len() as u64;
    assert!(
        missing <= lost && numbers.is_sorted(),
        "{missing} of {sent}, {lost} lost"
    );
    let step = Duration::from_secs_f64(report["longest_step_us"].as_f64().unwrap() / 1e6);
    assert!(step < pressure.soon(Duration::from_millis(20)), "{step:?}");
}
