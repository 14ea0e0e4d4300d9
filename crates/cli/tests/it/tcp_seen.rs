//! What a site sees of TCP in passing is what the ends of the connection say of it.

use crate::program::Pressure;
use crate::site::{Site, class, interfaces, wire};
use fairlane_netlab::{Flow, iperf_is_installed, or_skip};

/// A short queue and a long one; what comes back has a link of its own.
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
        // So that all of the run is of late.
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
        let again = bulk["came_again"].as_u64().unwrap();
        let (least, most) = (
            transfer.retransmits * 9 / 10,
            transfer.retransmits * 11 / 10,
        );
        assert!(
            (least.saturating_sub(3)..=most + 3).contains(&again),
            "{packets} packets: {again} came again, iperf3 sent {} again",
            transfer.retransmits
        );
        // Nothing but acknowledgments comes back, and what iperf3's ends tell each other: where they are
        // late, that may come again.
        let back = &class(&report, "down", "default")["recent"];
        let again = back["came_again"].as_f64().unwrap();
        assert!(again <= pressure.most(0.0, 10.0), "{back:#}");
    }
}
