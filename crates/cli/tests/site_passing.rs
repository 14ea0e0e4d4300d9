//! `fairlane run CONFIG`: frames of real hosts pass, each in its class.

mod program;
mod site;

use std::time::Duration;

use fairlane_netlab::{Echo, Flow};
use site::{INTERFACES, Site, class, link, wire};

#[test]
fn datagrams_and_connections_pass_both_ways() {
    let Some(wire) = wire("datagrams and connections pass", 1) else {
        return;
    };
    let config = format!(
        "{INTERFACES}
         [[link]]
         name = \"up\"
         to = \"outside\"
         rate = \"50mbit\"
         overhead = 24
         [[link.class]]
         name = \"all\"
         default = true
         [[link]]
         name = \"down\"
         to = \"inside\"
         rate = \"100mbit\"
         [[link.class]]
         name = \"all\"
         default = true
        "
    );
    let site = Site::start(&wire, &config);
    let mut echo = Echo::between(wire.sender(0), wire.receiver(), 9).unwrap();
    for _ in 0..20 {
        assert!(
            echo.round_trip(100, 1_000, Duration::from_secs(1))
                .is_some()
        );
    }
    let flow = Flow::start(wire.sender(0), wire.receiver(), 5_201, 1).unwrap();
    let transfer = flow.finish().unwrap();
    let report = site.stop();
    eprintln!("{transfer:?}\n{report:#}");
    assert!(link(&report, "up")["transmitted"].as_u64() > Some(20));
    assert!(class(&report, "down", "all")["sent_packets"].as_u64() > Some(20));
}
