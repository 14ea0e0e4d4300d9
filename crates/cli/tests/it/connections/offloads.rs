//! The most common first test: TCP between hosts with default offload settings, which leave segmentation and checksums
//! to hardware that does not exist here.

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::program::Pressure;
use crate::site::{self, BACKENDS, FILLED, Site, start_on_tap, up};
use fairlane_netlab::{Flow, Host, Transfer, Wire, cable, iperf_is_installed, or_skip};
use serde_json::Value;

/// The link's rate, and that of the reference.
const RATE: &str = "38mbit";
const BPS: f64 = 38e6;

/// Time that a flow takes to fill its link.
const WARM: Duration = Duration::from_secs(1);

/// Returns the payload rate in bit/s that a link can carry in frames of full segments.
fn most(transfer: &Transfer) -> f64 {
    let segment = f64::from(transfer.segment);
    // Headers of Ethernet and IPv4, and of TCP with timestamps.
    let frame = segment + 14.0 + 20.0 + 32.0;
    BPS * segment / frame
}

/// Returns the part of it that arrived.
fn part(transfer: &Transfer) -> f64 {
    transfer.steady_rate(WARM) / most(transfer)
}

/// Returns the parts that arrived while both flows ran: on a busy machine, they start at different times.
fn parts(both: [Transfer; 2]) -> [f64; 2] {
    let spans = both.each_ref().map(|one| {
        let all = &one.windows;
        (all[0].start, all[all.len() - 1].end)
    });
    let [one, other] = spans;
    let (from, until) = (one.0.max(other.0) + WARM, one.1.min(other.1));
    assert!(from + WARM < until, "not at the same time: {spans:?}");
    let seconds = (until - from).as_secs_f64();
    both.map(|one| one.bytes(from, until) * 8.0 / seconds / most(&one))
}

/// Checks that fewer than a hundredth of the frames arrived unsegmented and were dropped.
#[track_caller]
fn fills_its_link(what: &str, from: &Host, to: &Host) {
    let pressure = Pressure::begin();
    let flow = Flow::start(from, to, 5_201, 3).unwrap();
    let part = part(&flow.finish().unwrap());
    let limits = pressure.least(0.95, FILLED)..pressure.most(1.01, 0.04);
    assert!(
        limits.contains(&part),
        "{what}: {part} of the link, not in {limits:?}"
    );
}

/// Checks that frames arrived, and none was dropped for missing segmentation or checksums.
#[track_caller]
fn all_was_cut(report: &Value) {
    for interface in report["interfaces"].as_array().unwrap() {
        assert_eq!(interface["gso_drops"], 0, "{interface:#}");
    }
    let link = site::link(report, "up");
    assert!(link["transmitted"].as_u64() > Some(5_000), "{link:#}");
    assert_eq!(
        (&link["oversized"], &link["malformed"]),
        (&0.into(), &0.into())
    );
}

#[test]
fn a_connection_between_hosts_as_they_come_fills_its_link() {
    let name = "a connection between hosts as they come";
    if or_skip(name, iperf_is_installed()).is_none() {
        return;
    }
    let Some(wire) = or_skip(name, Wire::with_offloads(1)) else {
        return;
    };
    for backend in BACKENDS {
        let site = Site::start(&wire, &up(backend, RATE));
        fills_its_link(backend, wire.sender(0), wire.receiver());
        all_was_cut(&site.stop());
    }
}

/// The traffic of two senders merges in the kernel's own bridge first.
#[test]
fn connections_of_classes_between_hosts_as_they_come_have_their_rates() {
    let name = "classes of hosts as they come";
    if or_skip(name, iperf_is_installed()).is_none() {
        return;
    }
    let Some(wire) = or_skip(name, Wire::with_offloads(2)) else {
        return;
    };
    // Their rates are the whole link's.
    let classes = r#"link-control = "none"

[[link.class]]
name = "one"
rate = "28500kbit"

[[link.class]]
name = "other"
rate = "9500kbit"
default = true

[[link.filter]]
class = "one"
source = "10.0.0.1"

"#;
    for backend in BACKENDS {
        let site = Site::start(&wire, &(up(backend, RATE) + classes));
        let pressure = Pressure::begin();
        let flows = [0, 1].map(|sender| {
            let port = 5_201 + sender as u16;
            Flow::start(wire.sender(sender), wire.receiver(), port, 4).unwrap()
        });
        let [one, other] = parts(flows.map(|flow| flow.finish().unwrap()));
        let text = format!("{backend}: {one:.3} and {other:.3} of the link");
        assert!(one + other >= pressure.least(0.9, FILLED), "{text}");
        // The machine's other work takes time from both flows, but not at the same moments.
        let off = (one / (one + other) - 0.75).abs();
        assert!(off < pressure.most(0.02, 0.03), "{text}");
        all_was_cut(&site.stop());
    }
}

#[test]
fn a_connection_of_the_host_itself_through_a_tap_device_fills_its_link() {
    let name = "a connection through a tap device";
    if or_skip(name, iperf_is_installed()).is_none() {
        return;
    }
    let Some((near, far)) = or_skip(name, cable(1_500)) else {
        return;
    };
    let receiver = Host::new(far, Ipv4Addr::new(10, 0, 0, 2)).unwrap();
    let links = format!("[[link]]\nname = \"up\"\nto = \"outside\"\nrate = \"{RATE}\"\n");
    let (mut running, _folder, tap) = start_on_tap(&near, &links);
    tap.up().unwrap();
    let sender = Host::new(tap, Ipv4Addr::new(10, 0, 0, 1)).unwrap();
    fills_its_link("tap", &sender, &receiver);
    running.signal("INT");
    all_was_cut(&serde_json::from_str(&running.finish().success()).unwrap());
}
