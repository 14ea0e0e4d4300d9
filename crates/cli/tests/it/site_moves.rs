//! `fairlane run CONFIG`: classes that move and go while packets wait in them.

use serde_json::Value;

use crate::site::{bind, class, up, wire};
use crate::site_classes::came;
use crate::site_control::Asked;

const CLASSES: &str = "
[[link.class]]
name = \"office\"

[[link.class]]
name = \"desk\"
parent = \"office\"

[[link.class]]
name = \"rest\"
default = true
";

/// Datagrams of one burst: a tenth of a second at the class's ceiling, in addition to its burst.
const MANY: u32 = 15;

#[test]
fn backlog_of_a_moved_or_removed_class_leaves_in_order() {
    let Some(wire) = wire("classes that move and go", 1) else {
        return;
    };
    let asked = Asked::over(&wire, &(up("packet", "20mbit") + CLASSES), "");
    let receiver = wire.receiver();
    let listening = bind(receiver, 1_001);
    let socket = bind(wire.sender(0), 0);
    let mut sent = 0..;
    let mut put = || {
        for number in sent.by_ref().take(MANY as usize) {
            let mut bytes = [0; 1_000];
            bytes[..4].copy_from_slice(&u32::to_be_bytes(number));
            socket.send_to(&bytes, (receiver.address(), 1_001)).unwrap();
        }
    };
    let mut numbers = Vec::new();
    let rounds = 2;
    for _ in 0..rounds {
        let ceiling = ["rate=100kbit", "ceil=1mbit", "burst=3kb"];
        asked.json(&[&["add", "up/voice", "parent=office"], &ceiling[..]].concat());
        asked.json(&[
            "filter",
            "add",
            "up",
            "class=voice",
            "destination-port=1001",
        ]);
        put();
        asked.json(&["set", "voice", "parent="]);
        asked.json(&["set", "voice", "parent=office"]);
        numbers.extend(came(&listening, MANY as usize));
        put();
        asked.json(&["remove", "voice"]);
        numbers.extend(came(&listening, MANY as usize));
    }
    let report: Value = asked.site.stop();
    let all = 2 * rounds * MANY;
    assert!(numbers.iter().copied().eq(0..all), "{numbers:?}");
    // Packets of a removed class are counted in its parent: most of the backlog at the time of the removal, however
    // late the machine handled it.
    let office = class(&report, "up", "office");
    let told = office["sent_packets"].as_u64().unwrap();
    assert!(
        (u64::from(all * 5 / 6)..=u64::from(all)).contains(&told),
        "{told} of {all}: {office:#}"
    );
}
