//! A link and its classes from a file: the guarantee of each class, and the classification of a packet: `cargo run -p
//! fairlane --example site --features config`

use std::error::Error;

use fairlane::Nanos;
use fairlane::classify::{DigestKey, Origin};
use fairlane::config::Site;
use fairlane::wire::Layer;

const FILE: &str = r#"
[interfaces]
inside = "lan0"
outside = "wan0"

[[link]]
name = "up"
to = "outside"
rate = "38mbit"
algorithm = "wf2q+"

[[link.class]]
name = "voice"
rate = "2mbit"
ceil = "4mbit"

[[link.class]]
name = "everybody"
per = "source-ip"
flows = { most = 64 }
default = true

[[link.filter]]
class = "voice"
dscp = "ef"
"#;

/// Returns an empty IPv4 UDP packet with this DSCP.
fn packet(dscp: u8) -> Vec<u8> {
    let mut packet = vec![0; 28];
    (packet[0], packet[1], packet[3]) = (0x45, dscp << 2, 28);
    (packet[8], packet[9], packet[25]) = (64, 17, 8);
    packet
}

fn main() -> Result<(), Box<dyn Error>> {
    let site = Site::parse(FILE, "site.toml")?;
    for link in &site.links {
        for (class, guarantee) in link.classes.iter().zip(link.guarantees()) {
            match (guarantee.rate, guarantee.delay) {
                (Ok(bps), Some(Ok(delay))) => {
                    let (mbit, ms) = (bps as f64 * 1e-6, delay.0 as f64 * 1e-6);
                    println!("{}: {mbit:.1} Mbit/s, {ms:.2} ms", class.name);
                }
                (rate, _) => println!("{}: {rate:?}", class.name),
            }
        }
        // Where strangers send the packets, draw the key at random.
        let (queues, ids) = link.discipline::<Vec<u8>>();
        let mut classifier = link.classifier(&ids, DigestKey([1, 2]));
        for (what, dscp) in [("EF", 46), ("none", 0)] {
            let to = classifier.classify(&packet(dscp), Layer::Ip, &Origin::default(), Nanos::ZERO);
            let place = ids.iter().position(|&id| id == to.class);
            let name = place.map_or("nowhere", |place| &*link.classes[place].name);
            println!("DSCP {what}: to {name}");
        }
        println!("{queues:?}");
    }
    Ok(())
}
