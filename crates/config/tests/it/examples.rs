//! The examples are valid, and have the guarantees that they state.

use std::path::Path;

use fairlane_classify::{DigestKey, LinkClassifier, Origin, Owner};
use fairlane_config::{ClassKind, Guarantee, Link, Near, Site};
use fairlane_core::aqm::AqmConfig;
use fairlane_core::tree::{ClassFlow, ClassQueue};
use fairlane_core::{Dequeue, Discipline, Length, Nanos};
use fairlane_wire::Layer;

fn example(name: &str) -> Site {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let site = Site::read(&folder.join(name)).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(site.warnings, [], "{name}");
    site
}

/// Returns the guarantees of a class, whose rate must be at least the configured one.
fn guarantee(link: &Link, name: &str) -> Guarantee {
    let at = link
        .classes
        .iter()
        .position(|class| *class.name == *name)
        .unwrap();
    let guarantee = link.guarantees()[at].clone();
    if let Some(rate) = link.classes[at].rate {
        assert!(
            guarantee.rate.unwrap() >= rate.bps(),
            "{name}: {guarantee:?}"
        );
    }
    guarantee
}

/// Returns a packet of UDP or TCP over IPv4 between two addresses, to a port.
fn packet(from: [u8; 4], to: [u8; 4], protocol: u8, port: u16, dscp: u8) -> Vec<u8> {
    let mut packet = vec![0; 40];
    (packet[0], packet[1], packet[3], packet[8], packet[9]) = (0x45, dscp << 2, 40, 64, protocol);
    packet[12..16].copy_from_slice(&from);
    packet[16..20].copy_from_slice(&to);
    packet[20..22].copy_from_slice(&40_000u16.to_be_bytes());
    packet[22..24].copy_from_slice(&port.to_be_bytes());
    // A TCP header of 20 bytes; UDP's length.
    (packet[25], packet[32]) = (20, 0x50);
    packet
}

/// Returns a packet of UDP over IPv6 to an address.
fn packet_v6(to: [u16; 8]) -> Vec<u8> {
    let mut packet = vec![0; 48];
    (packet[0], packet[5], packet[6], packet[7]) = (0x60, 8, UDP, 64);
    packet[8] = 0x20;
    for (bytes, part) in packet[24..40].chunks_exact_mut(2).zip(to) {
        bytes.copy_from_slice(&part.to_be_bytes());
    }
    packet[45] = 8;
    packet
}

/// A link's filters, with the names of its classes.
struct Names<'a> {
    link: &'a Link,
    classifier: LinkClassifier,
    ids: Vec<fairlane_core::tree::ClassId>,
}

fn classifier(link: &Link) -> Names<'_> {
    let (_, ids) = link.discipline::<u32>();
    let classifier = link.classifier(&ids, DigestKey([1, 2]));
    Names {
        link,
        classifier,
        ids,
    }
}

impl Names<'_> {
    fn classify(&mut self, bytes: &[u8], origin: &Origin) -> ClassFlow {
        (self.classifier).classify(bytes, Layer::Ip, origin, Nanos::ZERO)
    }

    fn class(&mut self, bytes: &[u8], origin: &Origin) -> &str {
        let class = self.classify(bytes, origin).class;
        let at = self.ids.iter().position(|&id| id == class).unwrap();
        &self.link.classes[at].name
    }
}

const TCP: u8 = 6;
const UDP: u8 = 17;
const EF: u8 = 46;
const HERE: [u8; 4] = [192, 168, 1, 7];
const THERE: [u8; 4] = [203, 0, 113, 5];

#[test]
fn the_home_keeps_calls_apart_from_uploads() {
    let site = example("home-gateway.toml");
    let near = &site.interfaces.as_ref().unwrap().near;
    assert_eq!(*near, Near::Inside("lan0".to_owned()));
    let up = site.link("up").unwrap();
    let mut names = classifier(up);
    let inside = Origin {
        ingress: 0,
        owner: None,
    };
    assert_eq!(
        names.class(&packet(HERE, THERE, UDP, 9, EF), &inside),
        "voice"
    );
    assert_eq!(
        names.class(&packet(HERE, THERE, UDP, 3480, 0), &inside),
        "voice"
    );
    assert_eq!(
        names.class(&packet(HERE, THERE, TCP, 443, 0), &inside),
        "interactive"
    );
    assert_eq!(
        names.class(&packet(HERE, THERE, UDP, 443, EF), &inside),
        "voice"
    );
    assert_eq!(
        names.class(&packet(HERE, THERE, TCP, 8080, 0), &inside),
        "bulk"
    );
    assert_eq!(names.class(&[0x45; 3], &inside), "bulk");
    assert_eq!(
        (names.classifier.malformed(), names.classifier.unmatched()),
        (1, 1)
    );

    guarantee(up, "interactive");
    for link in ["up", "down"] {
        // With all 32 hosts active, and further ones in one queue.
        let voice = guarantee(site.link(link).unwrap(), "voice");
        let delay = voice.delay.unwrap().unwrap();
        assert!(delay < Nanos::from_millis(640), "{link}: {delay:?}");
    }
}

/// No host can starve the classes of an example, over IPv4 or IPv6.
#[test]
fn every_class_of_an_example_has_a_queue_for_each_sender() {
    for name in ["home-gateway.toml", "isp.toml", "tenants.toml"] {
        for link in &example(name).links {
            for class in &link.classes {
                let shown = format!("{name}: {}/{}", link.name, class.name);
                match &class.kind {
                    ClassKind::Leaf(_) => panic!("{shown} has one queue for all"),
                    ClassKind::Flows(flows) => {
                        let is_managed = matches!(flows.queue.aqm, AqmConfig::Codel(_));
                        assert!(is_managed || &*class.name == "link-control", "{shown}");
                    }
                    ClassKind::Inner(_) => {}
                }
            }
        }
    }
}

#[test]
fn the_provider_has_ten_thousand_subscribers_behind_fifty_sites() {
    let site = example("isp.toml");
    let down = &site.links[0];
    let sites: Vec<_> = down
        .classes
        .iter()
        .filter_map(|class| match &class.kind {
            ClassKind::Flows(flows) if class.name.starts_with("site-") => Some((class, flows)),
            _ => None,
        })
        .collect();
    assert_eq!(sites.len(), 50);
    assert_eq!(
        sites.iter().map(|(_, flows)| flows.most).sum::<u32>(),
        2 * 10_000,
        "an IPv4 address and an IPv6 prefix each"
    );
    for (class, flows) in sites {
        let site = guarantee(down, &class.name);
        // 180 Mbit/s in 401 shares.
        assert!(
            site.each.as_ref().unwrap().rate.unwrap() >= 448_000,
            "{site:?}"
        );
        assert_eq!(flows.ceiling.unwrap().rate.bps(), 50_000_000);
    }
    guarantee(down, "other");

    let mut names = classifier(down);
    let outside = Origin {
        ingress: 1,
        owner: None,
    };
    let to = |address| packet(THERE, address, TCP, 50_000, 0);
    assert_eq!(names.class(&to([100, 64, 1, 9]), &outside), "site-01");
    assert_eq!(names.class(&to([100, 64, 50, 200]), &outside), "site-50");
    assert_eq!(names.class(&to([100, 64, 51, 1]), &outside), "other");
    let one = names.classify(&to([100, 64, 7, 1]), &outside);
    let same = names.classify(&packet(HERE, [100, 64, 7, 1], UDP, 53, 0), &outside);
    let neighbour = names.classify(&to([100, 64, 7, 2]), &outside);
    assert_eq!(one, same, "a subscriber is an address");
    assert!(one.class == neighbour.class && one.flow != neighbour.flow);

    let to = |site: u16, subscriber: u8, host: u8| {
        packet_v6([
            0x2001,
            0xdb8,
            site,
            u16::from(subscriber) << 8,
            0,
            0,
            0,
            host.into(),
        ])
    };
    assert_eq!(names.class(&to(1, 9, 1), &outside), "site-01");
    assert_eq!(names.class(&to(0x50, 200, 1), &outside), "site-50");
    assert_eq!(names.class(&to(0x51, 1, 1), &outside), "other");
    let one = names.classify(&to(7, 1, 1), &outside);
    let same = names.classify(&to(7, 1, 2), &outside);
    let neighbour = names.classify(&to(7, 2, 1), &outside);
    assert_eq!(one, same, "a subscriber is a prefix of 56 bits");
    assert!(one.class == neighbour.class && one.flow != neighbour.flow);
}

#[test]
fn tenants_are_told_apart_by_user_and_group() {
    let site = example("tenants.toml");
    assert_eq!(site.interfaces.as_ref().unwrap().near, Near::Nothing);
    let attach = site.attach.as_ref().unwrap();
    assert_eq!(attach.socket, Path::new("/run/fairlane-attach.sock"));
    assert_eq!((attach.processes, attach.processes_per_user), (256, 64));
    let out = &site.links[0];
    let mut names = classifier(out);
    let by = |uid, gid| Origin {
        ingress: Origin::ATTACHED,
        owner: Some(Owner { uid, gid, pid: 77 }),
    };
    let any = packet(HERE, THERE, TCP, 443, 0);
    assert_eq!(names.class(&any, &by(2001, 2000)), "blue-database");
    assert_eq!(names.class(&any, &by(2002, 2000)), "blue-web");
    assert_eq!(names.class(&any, &by(3002, 3000)), "green");
    assert_eq!(names.class(&any, &by(0, 0)), "host");
    for class in ["blue", "blue-database", "green", "host"] {
        guarantee(out, class);
    }
    // The rest of blue's rate after the database's.
    let web = guarantee(out, "blue-web").rate.unwrap();
    assert!(web >= 2_000_000_000, "{web}");
}

#[test]
fn the_queues_of_an_example_carry_packets_of_every_class() {
    for name in ["home-gateway.toml", "isp.toml", "tenants.toml"] {
        for link in &example(name).links {
            let (mut queues, ids): (Discipline<u32>, _) = link.discipline();
            let mut sent = 0;
            for (at, class) in link.classes.iter().enumerate() {
                let length = Length::new(1000).unwrap().min(class.longest);
                let accepted = queues.enqueue(ids[at], 5, length, at as u32, Nanos::ZERO, |_| {});
                assert_eq!(accepted.is_err(), matches!(class.kind, ClassKind::Inner(_)));
                sent += u32::from(accepted.is_ok());
            }
            assert_eq!(queues.len(), sent);
            while let Dequeue::Packet(packet) = queues.dequeue(Nanos::ZERO, |_| {}) {
                assert_eq!(packet.owner, ids[packet.payload as usize]);
                sent -= 1;
            }
            assert_eq!(sent, 0, "{name}");
            queues.invariants().unwrap();
        }
    }
}

/// A partly typed file is either refused or valid, and every valid one can be built.
#[test]
fn no_cut_or_doubled_line_of_an_example_is_worse_than_refused() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    for name in ["home-gateway.toml", "tenants.toml"] {
        let text = std::fs::read_to_string(folder.join(name)).unwrap();
        let lines: Vec<_> = text.lines().collect();
        let try_it = |text: &str| {
            if let Ok(site) = Site::parse(text, name) {
                for link in &site.links {
                    let (queues, ids): (Discipline<u32>, _) = link.discipline();
                    assert!(queues.is_empty() && ids.len() == link.guarantees().len());
                }
            }
        };
        for at in 0..lines.len() {
            let without = [&lines[..at], &lines[at + 1..]].concat();
            try_it(&without.join("\n"));
            let twice = [&lines[..=at], &lines[at..]].concat();
            try_it(&twice.join("\n"));
            let half = &lines[at][..lines[at].len() / 2];
            try_it(
                &[&lines[..at], &[half][..], &lines[at + 1..]]
                    .concat()
                    .join("\n"),
            );
        }
    }
}
