//! The site's passive measurements of TCP agree with those of the connection's ends.

use std::time::{Duration, Instant};

use crate::program::Pressure;
use crate::site::{PATIENCE, Site, class, interfaces, up, wire};
use crate::site_control::{Asked, request};
use fairlane_netlab::{Flow, iperf_is_installed, or_skip};

/// A site with a queue of this length, short or long, and a separate link for the reverse direction.
fn config(packets: u32) -> String {
    interfaces("packet")
        + &format!(
            "[[link]]\nname = \"up\"\nto = \"outside\"\nrate = \"20mbit\"\n\
             [[link.class]]\nname = \"bulk\"\ndefault = true\nlimit = {{ packets = {packets} }}\n\
             [[link]]\nname = \"down\"\nto = \"inside\"\nrate = \"100mbit\"\n"
        )
}

#[test]
fn round_trips_and_retransmissions_are_those_of_iperf3() {
    let test = "round trips seen in passing";
    if or_skip(test, iperf_is_installed()).is_none() {
        return;
    }
    let Some(wire) = wire(test, 1) else {
        return;
    };
    for packets in [30, 120] {
        let pressure = Pressure::begin();
        // A long interval, so that "recent" covers the whole run.
        let site = Site::start_with(&wire, &config(packets), &["--every", "1000"]);
        let flow = Flow::start(wire.sender(0), wire.receiver(), 5_201, 4).unwrap();
        let transfer = flow.finish().unwrap();
        let report = site.stop();
        let bulk = &class(&report, "up", "bulk")["recent"];
        let said = transfer.round_trip.as_secs_f64() * 1e6;
        let seen = bulk["rtt_us"]["mean"].as_f64().unwrap();
        let most = pressure.most(0.05, 1.0);
        assert!(
            (seen / said - 1.0).abs() <= most,
            "{packets} packets: {seen} us seen, iperf3 says {said}, up to {most} allowed"
        );
        let again = bulk["retransmits"].as_u64().unwrap();
        let (least, most) = (
            transfer.retransmits * 9 / 10,
            transfer.retransmits * 11 / 10,
        );
        assert!(
            (least.saturating_sub(3)..=most + 3).contains(&again),
            "{packets} packets: {again} came again, iperf3 sent {} again",
            transfer.retransmits
        );
        // The reverse direction has only acknowledgments, and iperf3's control messages, which may be retransmitted if
        // they are late.
        let back = &class(&report, "down", "default")["recent"];
        let again = back["retransmits"].as_f64().unwrap();
        assert!(again <= pressure.most(0.0, 10.0), "{back:#}");
    }
}

#[test]
fn each_host_has_the_round_trips_of_its_own_queue() {
    let test = "round trips of flows";
    if or_skip(test, iperf_is_installed()).is_none() {
        return;
    }
    let Some(wire) = wire(test, 2) else {
        return;
    };
    // Queues that fill soon, so that any interval represents the whole run.
    let classes = "[[link.class]]\nname = \"hosts\"\nper = \"source-ip\"\ndefault = true\n\
                   limit = { packets = 40 }\nflows = { most = 16 }\n\
                   [[link]]\nname = \"down\"\nto = \"inside\"\nrate = \"100mbit\"\n";
    let asked = Asked::over(&wire, &(up("packet", "20mbit") + classes), "");
    let mut running = [0, 1].map(|host| {
        let port = 5_201 + u16::from(host as u8);
        Flow::start(wire.sender(host), wire.receiver(), port, 6).unwrap()
    });
    let mut seen = [Vec::new(), Vec::new()];
    let mut table = String::new();
    let begun = Instant::now();
    while running.iter_mut().any(|flow| !flow.has_ended()) {
        // An HTTP request, since starting a program for each sample takes long on a busy machine.
        let told = request(&asked.socket(), ("GET", "/v1/flows"), "", "").json();
        for flow in told["flows"].as_array().unwrap() {
            let names = ["10.0.0.1", "10.0.0.2"];
            // A flow's name is unknown at first.
            let Some(host) = names.iter().position(|name| flow["flow"] == **name) else {
                continue;
            };
            let seen: &mut Vec<f64> = &mut seen[host];
            let mean = flow["rtt_us"]["mean"].as_f64();
            seen.extend(mean.filter(|&mean| seen.last() != Some(&mean)));
        }
        if seen.iter().all(|seen| !seen.is_empty()) && !table.contains(" rtt ") {
            table = asked.ctl(&["flows"]).success();
        }
        assert!(begun.elapsed() < PATIENCE, "{seen:?}");
        std::thread::sleep(Duration::from_millis(300));
    }
    assert!(table.contains(" rtt ") && table.contains("ms "), "{table}");
    for (flow, seen) in running.into_iter().zip(seen) {
        let said = flow.finish().unwrap().round_trip.as_secs_f64() * 1e6;
        let mean = seen.iter().sum::<f64>() / seen.len() as f64;
        // The round-trip time varies with the queue, and the samples do not include every second.
        let between = said / 3.0..said * 3.0;
        assert!(
            between.contains(&mean),
            "{seen:?} us seen, iperf3 says {said}"
        );
    }
    asked.site.stop();
}
