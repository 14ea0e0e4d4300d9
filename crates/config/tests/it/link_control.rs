//! The class of link-layer control: when it is created, its rate, and its isolation from a full link and from a
//! flooding host.

use std::collections::HashMap;

use fairlane_classify::{DigestKey, LinkClassifier, Origin};
use fairlane_config::{ClassKind, Link, Site, SiteError};
use fairlane_core::tree::{ClassId, ClassQueue};
use fairlane_core::{Dequeue, Discipline, Length, Nanos};
use fairlane_wire::Layer;

const INTERFACES: &str = "[interfaces]\ninside = 'lan0'\noutside = 'wan0'\n";

/// Reads a link of 10 Mbit/s with these keys and classes.
fn read(interfaces: &str, keys: &str, classes: &str) -> Result<Site, SiteError> {
    let text = format!("{interfaces}[[link]]\nname = 'up'\nrate = '10mbit'\n{keys}\n{classes}");
    Site::parse(&text, "site.toml")
}

fn class(keys: &str) -> String {
    format!("[[link.class]]\n{keys}\n")
}

/// Returns the name of the class of link-layer control, and its guaranteed rate.
fn control(site: &Site) -> Option<(&str, u64)> {
    let link = &site.links[0];
    let place = link.link_control? as usize;
    let rate = link.guarantees()[place].rate.unwrap_or(0);
    Some((&*link.classes[place].name, rate))
}

fn two_classes() -> String {
    class("name = 'voice'\nrate = '2mbit'") + &class("name = 'rest'\nweight = 1\ndefault = true")
}

#[test]
fn a_class_is_made_where_frames_come_from_an_interface() {
    let site = read(INTERFACES, "", &two_classes()).unwrap();
    assert_eq!(control(&site), Some(("link-control", 100_000)));
    assert_eq!(site.warnings, []);
    let link = &site.links[0];
    let guarantees = link.guarantees();
    let all: Vec<u64> = guarantees.iter().map(|one| one.rate.unwrap()).collect();
    assert_eq!(all, [2_000_000, 7_900_000, 100_000]);
    // Attached processes send no neighbour frames, and without interfaces there are none.
    let attached = "[interfaces]\noutside = 'wan0'\n[attach]\nsocket = '/run/fairlane.sock'\n";
    for interfaces in ["", attached] {
        let site = read(interfaces, "", &two_classes()).unwrap();
        assert_eq!(control(&site), None, "{interfaces}");
        assert_eq!(site.links[0].classes.len(), 2);
    }
}

#[test]
fn the_key_names_another_class_or_none() {
    let named = |keys: &str, classes: &str| read(INTERFACES, keys, classes).unwrap();
    let site = named("link-control = 'voice'", &two_classes());
    assert_eq!(control(&site), Some(("voice", 2_000_000)));
    assert_eq!(site.links[0].classes.len(), 2);
    let site = named("link-control = 'none'", &two_classes());
    assert_eq!(control(&site), None);
    let off = class("name = 'none'") + &two_classes();
    assert_eq!(control(&named("link-control = 'none'", &off)), None);
    // A configured class of this name is used unchanged.
    let own = class("name = 'link-control'\nrate = '1mbit'") + &two_classes();
    assert_eq!(control(&named("", &own)), Some(("link-control", 1_000_000)));
    let refused = |keys: &str, classes: &str| {
        let error = read(INTERFACES, keys, classes).unwrap_err().to_string();
        error.lines().next().unwrap().to_owned()
    };
    assert_eq!(
        refused("link-control = 'vioce'", &two_classes()),
        "site.toml:7:16: link-control 'vioce': no class of this link has that name (a class, or \"none\"), \
         did you mean 'voice'?"
    );
    let parent = class("name = 'link-control'") + &class("name = 'a'\nparent = 'link-control'");
    assert_eq!(
        refused("", &parent),
        "site.toml:9:8: link-control 'link-control': class 'link-control' has children, and packets go to a class \
         without"
    );
}

#[test]
fn it_takes_what_is_left_and_a_link_whose_guarantees_fill_it_still_loads() {
    let filled = |rate: &str| {
        let classes = class(&format!("name = 'a'\nrate = '{rate}'\ndefault = true"));
        read(INTERFACES, "", &classes).unwrap()
    };
    assert_eq!(
        control(&filled("9900kbit")),
        Some(("link-control", 100_000))
    );
    assert_eq!(control(&filled("9940kbit")), Some(("link-control", 60_000)));
    for rate in ["9960kbit", "10mbit"] {
        let site = filled(rate);
        assert_eq!(control(&site), None, "{rate}");
        let warnings = site.warnings.iter().map(ToString::to_string);
        let warnings: Vec<String> = warnings.collect();
        assert_eq!(
            warnings,
            [
                "site.toml:5:8: link 'up': its classes are guaranteed all of its rate, so ARP, neighbour discovery and \
              other link-layer control have no class of their own and may starve: leave 100kbit of the link, or name a \
              class with 'link-control'"
            ]
        );
    }
    // A limit fully used by other reservations leaves no space for it, and is no error.
    let full = class("name = 'a'\nrate = '2mbit'\ndefault = true\nroom = { packets = 50 }");
    let site = read(INTERFACES, "limit = { packets = 50 }", &full).unwrap();
    assert!(control(&site).is_some_and(|(_, rate)| rate >= 100_000));
}

#[test]
fn a_link_below_100_kbit_has_none_and_a_warning_says_so() {
    let of = |rate: &str| {
        let text = format!("{INTERFACES}[[link]]\nname = 'up'\nrate = '{rate}'\n");
        Site::parse(&text, "site.toml").unwrap()
    };
    let site = of("100kbit");
    assert_eq!(control(&site), Some(("link-control", 1_000)));
    assert_eq!(site.warnings, []);
    let site = of("99999bit");
    assert_eq!(control(&site), None);
    let warnings: Vec<String> = site.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "site.toml:5:8: link 'up': its rate is below 100kbit, so ARP, neighbour discovery and other link-layer \
             control have no class of their own and may starve: name a class with 'link-control', or write \
             link-control = \"none\" where that is meant"
        ]
    );
}

#[test]
fn below_priority_it_comes_first_below_a_ceiling_and_where_no_class_can_be_made_none_is() {
    let of = |algorithm: &str, classes: &str| {
        let keys = format!("algorithm = '{algorithm}'");
        read(INTERFACES, &keys, classes).unwrap()
    };
    // Configured rates are not reduced for it.
    for filled in [
        class("name = 'a'\npriority = 7\nceil = '5mbit'")
            + &class("name = 'b'\nrate = '5mbit'\ndefault = true"),
        class("name = 'a'\nrate = '10mbit'\ndefault = true"),
    ] {
        let site = of("priority", &filled);
        assert_eq!(control(&site), None);
        let warned = site
            .warnings
            .iter()
            .any(|it| it.to_string().contains("have no class of their own"));
        assert!(warned, "{:?}", site.warnings);
    }
    let classes = class("name = 'a'\npriority = 7\nceil = '5mbit'") + &class("name = 'b'");
    let site = of("priority", &classes);
    assert_eq!(control(&site), Some(("link-control", 100_000)));
    let made = site.links[0]
        .classes
        .iter()
        .find(|class| &*class.name == "link-control");
    assert_eq!(made.unwrap().ceiling.unwrap().rate.bps(), 100_000);
    for algorithm in ["fifo", "sfq", "wfq", "wf2q"] {
        assert_eq!(control(&of(algorithm, &class("name = 'a'"))), None);
    }
    let cbq = class("name = 'a'\nrate = '5mbit'\ndefault = true");
    assert_eq!(control(&of("cbq", &cbq)), None);
    // A warning says so, unless the file has the setting.
    let warned = |algorithm: &str| {
        let plain = class("name = 'a'");
        let site = of(algorithm, if algorithm == "cbq" { &cbq } else { &plain });
        let text = site.warnings.iter().map(ToString::to_string);
        text.filter(|it| it.contains("link-layer control have no class of their own"))
            .count()
    };
    assert_eq!(
        ["cbq", "fifo", "sfq", "wf2q", "qfq"].map(warned),
        [1, 1, 1, 1, 0]
    );
}

#[test]
fn a_link_may_have_ten_thousand_classes_of_which_weights_keep_no_rate_exactly() {
    let one = |at: u32| class(&format!("name = 'c{at}'\nrate = '{}bit'", 1_000 + at % 7));
    let classes: String = (0..9_000).map(one).collect();
    let site = read(INTERFACES, "", &classes).unwrap();
    let (_, rate) = control(&site).unwrap();
    assert!((99_000..=101_000).contains(&rate), "{rate}");
}

/// Returns an ARP request from this host.
fn arp(host: u32) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0]);
    frame.extend(host.to_be_bytes());
    frame.extend([8, 6]);
    frame.resize(60, 0);
    frame
}

/// Returns a datagram of 1,500 bytes.
fn bulk() -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([8, 0, 0x45, 0, 5, 220, 0, 0, 0, 0, 64, 17, 0, 0]);
    frame.resize(1514, 0);
    frame
}

/// A link with its filters, driven as by a daemon.
struct Driven<'a> {
    link: &'a Link,
    queues: Discipline<u32>,
    ids: Vec<ClassId>,
    filters: LinkClassifier,
}

impl Driven<'_> {
    fn new(link: &Link) -> Driven<'_> {
        let (queues, ids) = link.discipline();
        let filters = link.classifier(&ids, DigestKey([1, 2]));
        Driven {
            link,
            queues,
            ids,
            filters,
        }
    }

    fn enqueue(&mut self, frame: &[u8], whose: u32, now: Nanos) -> &str {
        let to = (self.filters).classify(frame, Layer::Ethernet, &Origin::default(), now);
        let len = Length::try_from(frame.len()).unwrap();
        let _ = (self.queues).enqueue(to.class, to.flow, len, whose, now, drop);
        let at = self.ids.iter().position(|&id| id == to.class).unwrap();
        &self.link.classes[at].name
    }
}

/// One host sends 2,000 ARP requests a second and another fills the default class. A third one sends ten requests a
/// second, and each leaves within 200 ms.
#[test]
fn neither_a_full_link_nor_a_host_that_floods_takes_it_from_others() {
    let site = read(INTERFACES, "", &two_classes()).unwrap();
    let link = &site.links[0];
    let place = link.link_control.unwrap() as usize;
    assert!(matches!(link.classes[place].kind, ClassKind::Flows(_)));
    let mut driven = Driven::new(link);
    const OWN: u32 = 1_000_000;
    let mut asked = HashMap::new();
    let (mut free, mut answered, mut bulk_sent) = (0, 0, 0);
    for step in 0..20_000_u64 {
        let now = Nanos(step * 100_000);
        assert_eq!(driven.enqueue(&bulk(), 0, now), "rest");
        if step % 5 == 0 {
            assert_eq!(driven.enqueue(&arp(1), 0, now), "link-control");
        }
        if step % 1_000 == 0 {
            let number = OWN + step as u32;
            driven.enqueue(&arp(2), number, now);
            asked.insert(number, now);
        }
        while free <= now.0 {
            let Dequeue::Packet(packet) = driven.queues.dequeue(now, drop) else {
                break;
            };
            let took = u64::from(packet.len.get()) * 800;
            free = free.max(now.0) + took;
            bulk_sent += u64::from(packet.len.get() > 1_000);
            if let Some(was) = asked.remove(&packet.payload) {
                assert!(free - was.0 < 200_000_000, "{} ns", free - was.0);
                answered += 1;
            }
        }
    }
    assert_eq!((answered, asked.len()), (20, 0));
    // In steps of 100 us, at most 1,538 datagrams fit into two seconds.
    assert!(bulk_sent > 1_400, "{bulk_sent}");
}
