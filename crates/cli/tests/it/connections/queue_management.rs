//! Queue management of a real TCP flow through `fairlane run CONFIG`: the queue stays near its target, with marks as
//! with drops.

use std::time::Duration;

use crate::program::Pressure;
use crate::site::{BACKENDS, FILLED, Site, class, interfaces, wire};
use fairlane_control::view::drops;
use fairlane_netlab::{Flow, Transfer, Wire, iperf_is_installed, or_skip};
use serde_json::Value;

/// The link's rate.
const MBIT: f64 = 20.0;

/// Transmission time of a packet of 1538 bytes on the link, in milliseconds.
const PACKET_MS: f64 = 1538.0 * 8.0 / (MBIT * 1e3);

/// A link whose only class has this queue management and a limit of 400 packets: 246 ms.
fn config(backend: &str, queue: &str) -> String {
    let link = format!(
        r#"
[[link]]
name = "up"
rate = "{MBIT}mbit"
overhead = "ethernet"

[[link.class]]
name = "bulk"
default = true
limit = {{ packets = 400 }}
queue = {queue}
"#
    );
    interfaces(backend) + &link
}

/// CoDel with the parameters of RFC 8289, and RED for some ten packets.
const CODEL: &str = r#"{ kind = "codel", target = "5ms", interval = "100ms" }"#;
const RED: &str = r#"{ kind = "red", min = 5, max = 15, max-p = 0.1, weight = 6 }"#;

/// A wire for TCP flows.
fn tcp_wire(test: &str) -> Option<Wire> {
    or_skip(test, iperf_is_installed())?;
    wire(test, 1)
}

/// Runs a flow of some seconds through a site. Returns the transfer, and the site's report of its class.
fn bulk(wire: &Wire, config: &str) -> (Transfer, Value, Pressure) {
    let pressure = Pressure::begin();
    let site = Site::start(wire, config);
    let flow = Flow::start(wire.sender(0), wire.receiver(), 5_201, 3).unwrap();
    let transfer = flow.finish().unwrap();
    let report = site.stop();
    (transfer, class(&report, "up", "bulk").clone(), pressure)
}

fn median_delay_ms(class: &Value) -> f64 {
    let us = class["delay_us"]["p50"].as_f64();
    us.unwrap_or_else(|| panic!("no delay in {class:#}")) / 1e3
}

/// Returns the part of the link that the flow used, frame overhead included.
fn used(transfer: &Transfer) -> f64 {
    let payload = transfer.steady_rate(Duration::from_secs(1));
    payload * 1538.0 / f64::from(transfer.segment) / (MBIT * 1e6)
}

#[test]
fn red_and_codel_hold_a_bulk_flows_delay_near_their_targets_and_tail_drop_does_not() {
    let Some(wire) = tcp_wire("a bulk flow's delay") else {
        return;
    };
    for backend in BACKENDS {
        let (_, tail, pressure) = bulk(&wire, &config(backend, "\"tail-drop\""));
        let tail = median_delay_ms(&tail);
        // A sender that waits for a processor fills no queue.
        let least = pressure.least(1.0, 0.05) * 50.0;
        assert!(
            tail > least,
            "{backend}: nothing to manage: {tail} ms, not {least}"
        );
        for (name, queue, least, most) in [
            ("codel", CODEL, 1.0, 15.0),
            ("red", RED, 2.0 * PACKET_MS, 20.0 * PACKET_MS),
        ] {
            let (transfer, class, pressure) = bulk(&wire, &config(backend, queue));
            let delay = median_delay_ms(&class);
            // It does not keep the queue filled either; and a delayed daemon delays packets.
            let (least, most) = (pressure.least(1.0, 0.0) * least, pressure.most(most, 60.0));
            assert!(
                (least..=most).contains(&delay),
                "{backend}, {name}: {delay} ms beside {tail} without: {class:#}"
            );
            // A short queue counts only if the link is busy.
            let used = used(&transfer);
            assert!(
                used > pressure.least(0.9, FILLED),
                "{backend}, {name}: {used} of the link"
            );
            assert!(
                transfer.retransmits > 0,
                "{backend}, {name}: nothing dropped"
            );
        }
    }
}

#[test]
fn with_ecn_packets_are_marked_instead_of_dropped() {
    let Some(wire) = tcp_wire("marks instead of drops") else {
        return;
    };
    for backend in BACKENDS {
        for (name, queue) in [("codel", CODEL), ("red", RED)] {
            let run = |ecn: bool| {
                for host in wire.hosts() {
                    let asked = if ecn { "1" } else { "0" };
                    host.namespace()
                        .set_parameter("ipv4/tcp_ecn", asked)
                        .unwrap();
                }
                let (transfer, class, pressure) = bulk(&wire, &config(backend, queue));
                let lost = drops(&class);
                (
                    transfer,
                    class["marked"].as_u64().unwrap(),
                    lost,
                    class,
                    pressure,
                )
            };
            let (transfer, marked, lost, class, pressure) = run(true);
            let context = format!("{backend}, {name}: {class:#}");
            assert!(marked >= 5, "{context}");
            // RED drops above twice its maximum, which the average may reach when a flow starts, or sends a burst after
            // its sender waited for a processor.
            let most = pressure.most(0.2, 1.0) * marked as f64;
            assert!(
                lost as f64 <= most,
                "{lost} lost, {most} allowed: {context}"
            );
            // A pause of the machine makes a sender retransmit packets that were not lost.
            let again = (transfer.retransmits - lost.min(transfer.retransmits)) as f64;
            assert!(
                again <= pressure.most(2.0, 1_000.0),
                "{again} sent again: {context}"
            );
            let most = pressure.most(30.0, 60.0);
            assert!(median_delay_ms(&class) < most, "{most} ms: {context}");
            let least_used = pressure.least(0.9, FILLED);
            assert!(used(&transfer) > least_used, "{context}");

            let (transfer, marked, lost, class, _) = run(false);
            let context = format!("{backend}, {name}: {class:#}");
            assert_eq!(marked, 0, "nobody asked for marks: {context}");
            assert!(lost > 0 && transfer.retransmits > 0, "{context}");
        }
    }
}
