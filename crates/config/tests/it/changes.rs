//! A running link becomes another one class by class, and kept classes retain their state.

use std::collections::{HashMap, VecDeque};

use fairlane_classify::DigestKey;
use fairlane_config::{Link, Site, Steps};
use fairlane_core::tree::{ClassId, ClassQueue, Payload};
use fairlane_core::{Dequeue, Discipline, Length, Nanos};

use crate::guarantees::Random;

const NOW: Nanos = Nanos::ZERO;

fn length() -> Length {
    Length::new(1_000).unwrap()
}

fn link(text: &str) -> Link {
    let text = format!("[[link]]\nname = \"up\"\nrate = \"100mbit\"\n{text}");
    let site = Site::parse(&text, "site.toml").unwrap_or_else(|error| panic!("{error}"));
    (*site.links[0]).clone()
}

/// Returns a class without children.
fn class(name: &str, more: &str) -> String {
    format!("[[link.class]]\nname = \"{name}\"\n{more}\n")
}

/// A packet: the name of its class.
struct Name(String);

impl Payload for Name {
    fn mark(&mut self) -> bool {
        false
    }
}

/// A link with its queues and their packets.
struct Running {
    link: Link,
    queues: Discipline<Name>,
    ids: Vec<ClassId>,
}

impl Running {
    fn start(text: &str) -> Running {
        let link = link(text);
        let (queues, ids) = link.discipline();
        Running { link, queues, ids }
    }

    fn place(&self, name: &str) -> usize {
        let mut classes = self.link.classes.iter();
        classes.position(|class| *class.name == *name).unwrap()
    }

    fn fill(&mut self, name: &str, packets: usize) {
        let id = self.ids[self.place(name)];
        for _ in 0..packets {
            let packet = Name(name.to_owned());
            let accepted = self.queues.enqueue(id, 7, length(), packet, NOW, |_| {});
            accepted.unwrap_or_else(|_| panic!("{name} has room"));
        }
    }

    fn serve(&mut self, packets: usize) -> Vec<String> {
        let next = |_| match self.queues.dequeue(NOW, |_| {}) {
            Dequeue::Packet(packet) => packet.payload.0,
            _ => panic!("there is no packet"),
        };
        (0..packets).map(next).collect()
    }

    /// Changes to another link, as the program does, and returns the steps.
    fn become_link(&mut self, text: &str) -> Steps {
        let new = link(text);
        let steps = new.steps_from(&self.link).expect("class by class");
        let mut ids: Vec<ClassId> = (steps.stays.iter())
            .map(|was| was.map_or(ClassId::ROOT, |was| self.ids[was]))
            .collect();
        for &place in &steps.added {
            let parent = new.classes[place].parent;
            let parent = parent.map_or(ClassId::ROOT, |parent| ids[parent]);
            ids[place] = new.add_class(&mut self.queues, place, parent).unwrap();
        }
        for &place in &steps.moved {
            let parent = new.classes[place].parent;
            let parent = parent.map_or(ClassId::ROOT, |parent| ids[parent]);
            new.move_class(&mut self.queues, place, ids[place], parent, NOW)
                .unwrap();
        }
        for &place in &steps.changed {
            new.change_class(&mut self.queues, place, ids[place], NOW)
                .unwrap();
            while !self.queues.go_on_changing(ids[place], &mut 1, NOW) {}
        }
        for &place in &steps.gone {
            let id = self.ids[place];
            let mut remove = || self.queues.go_on_removing(id, &mut 1, |_| {}).unwrap();
            while remove().is_none() {}
        }
        self.queues.invariants().unwrap();
        (self.link, self.ids) = (new, ids);
        steps
    }

    fn changed(&self, steps: &Steps) -> Vec<&str> {
        let places = steps.changed.iter();
        places
            .map(|&place| &*self.link.classes[place].name)
            .collect()
    }
}

/// Returns the length of the longest run of packets with one name.
fn longest_row(sent: &[String]) -> usize {
    sent.chunk_by(|a, b| a == b).map(<[_]>::len).max().unwrap()
}

/// A fixed limit, since the default limit would change with the classes' reservations.
const LIMIT: &str = "limit = { packets = 200000, bytes = \"256mb\" }\n";

const TWO: &str =
    "[[link.class]]\nname = \"a\"\nweight = 1\n[[link.class]]\nname = \"b\"\nweight = 1\n";

#[test]
fn a_file_that_says_the_same_touches_nothing() {
    let text = [
        class("inner", "algorithm = \"drr\""),
        class("leaf", "parent = \"inner\"\nrate = \"3mbit\""),
        class("each", "parent = \"inner\"\nper = \"source-ip\""),
        class("rest", "default = true\nceil = \"9mbit\""),
    ];
    let mut running = Running::start(&text.concat());
    let steps = running.become_link(&text.concat());
    assert!(steps.is_empty(), "{steps:?}");
    // They are matched in another order, too.
    let turned = [&text[3], &text[0], &text[2], &text[1]].map(String::as_str);
    let steps = running.become_link(&turned.concat());
    assert!(steps.is_empty(), "{steps:?}");
}

#[test]
fn only_the_class_that_differs_changes_and_the_others_keep_their_packets() {
    let text = |ceil: &str| [TWO, &class("c", &format!("ceil = \"{ceil}\""))].concat();
    let mut running = Running::start(&text("5mbit"));
    for name in ["a", "b", "c"] {
        running.fill(name, 10);
    }
    let steps = running.become_link(&text("6mbit"));
    assert_eq!(running.changed(&steps), ["c"]);
    assert!(steps.added.is_empty() && steps.gone.is_empty());
    assert_eq!(running.queues.len(), 30);
}

#[test]
fn a_class_with_another_name_and_nothing_else_new_goes_on() {
    let text = |name: &str, port: u16| {
        let filter = format!("[[link.filter]]\nclass = \"{name}\"\ndestination-port = {port}\n");
        [TWO, &class(name, "rate = \"5mbit\""), &filter].concat()
    };
    let mut running = Running::start(&text("phone", 5_060));
    running.fill("phone", 4);
    let id = running.ids[running.place("phone")];
    let steps = running.become_link(&text("voice", 5_060));
    assert!(steps.is_empty(), "{steps:?}");
    assert_eq!(running.ids[running.place("voice")], id);
    assert_eq!(running.queues.len(), 4);
    // A class with another name and other filters is a new class.
    let steps = running.become_link(&text("phone", 5_061));
    assert_eq!((steps.added.len(), steps.gone.len()), (1, 1));
}

#[test]
fn a_class_of_another_kind_is_a_new_one_and_those_below_it_move_there() {
    let text = |algorithm: &str, of_leaf: &str, parent: &str| {
        [
            LIMIT.to_owned(),
            class("one", &format!("algorithm = \"{algorithm}\"")),
            class("two", ""),
            class("below", &format!("parent = \"{parent}\"\n{of_leaf}")),
            class("stays", "parent = \"one\""),
            class("under", "parent = \"two\""),
        ]
        .concat()
    };
    let flows = "per = \"source-ip\"";
    for (after, gone, moved) in [
        (
            text("drr", "", "one"),
            &["one"][..],
            &["below", "stays"][..],
        ),
        (text("qfq", flows, "one"), &["below"], &[]),
        (text("qfq", flows, "two"), &["below"], &[]),
        (text("qfq", "", "two"), &[], &["below"]),
        // An algorithm that follows packets would need each packet's order.
        (text("fifo", "", "one"), &["stays", "below", "one"], &[]),
    ] {
        let mut running = Running::start(&text("qfq", "", "one"));
        running.fill("below", 3);
        running.fill("stays", 3);
        let before = running.link.clone();
        let steps = running.become_link(&after);
        let names = steps.gone.iter().map(|&place| &*before.classes[place].name);
        assert!(names.eq(gone.iter().copied()), "{steps:?}");
        assert_eq!(steps.added.len(), gone.len());
        let names = steps
            .moved
            .iter()
            .map(|&place| &*running.link.classes[place].name);
        assert!(names.eq(moved.iter().copied()), "{steps:?}");
        let lost = gone.iter().filter(|&&name| name != "one").count();
        assert_eq!(running.queues.len() as usize, 6 - 3 * lost);
    }
}

/// Returns a tree, given as each class with its parent.
fn tree(classes: &[(&str, &str)]) -> String {
    let each = classes.iter().map(|&(name, parent)| match parent {
        "" => class(name, ""),
        _ => class(name, &format!("parent = \"{parent}\"")),
    });
    LIMIT.to_owned() + &each.collect::<String>()
}

#[test]
fn classes_move_with_all_that_they_have_also_below_those_that_were_below_them() {
    let before = [
        ("x", ""),
        ("y", "x"),
        ("z", "y"),
        ("a", "z"),
        ("b", "y"),
        ("c", "x"),
        ("d", ""),
    ];
    for (after, moved) in [
        // The middle class moves above its parent.
        (
            [
                ("y", ""),
                ("z", "y"),
                ("a", "z"),
                ("b", "y"),
                ("x", "y"),
                ("c", "x"),
                ("d", ""),
            ],
            &["y", "x"][..],
        ),
        // All classes move.
        (
            [
                ("z", ""),
                ("y", "z"),
                ("x", "y"),
                ("c", "z"),
                ("b", "x"),
                ("a", "x"),
                ("d", "y"),
            ],
            &["z", "y", "x", "c", "b", "a", "d"][..],
        ),
        // One class is removed, and its children move below another.
        (
            [
                ("x", ""),
                ("y", "x"),
                ("new", "y"),
                ("a", "new"),
                ("b", "new"),
                ("c", "x"),
                ("d", ""),
            ],
            &["a", "b"][..],
        ),
    ] {
        let mut running = Running::start(&tree(&before));
        let leaves = ["a", "b", "c", "d"];
        for (packets, name) in (1..).zip(leaves) {
            running.fill(name, packets);
        }
        let ids = leaves.map(|name| running.ids[running.place(name)]);
        let steps = running.become_link(&tree(&after));
        let mut names: Vec<&str> = (steps.moved.iter())
            .map(|&place| &*running.link.classes[place].name)
            .collect();
        let mut moved = moved.to_vec();
        names.sort_unstable();
        moved.sort_unstable();
        assert_eq!(names, moved);
        assert_eq!(leaves.map(|name| running.ids[running.place(name)]), ids);
        let mut sent = running.serve(10);
        sent.sort_unstable();
        let expected = "a b b c c c d d d d".split(' ');
        assert!(sent.iter().eq(expected), "{sent:?}");
    }
}

/// Returns four groups, nested or side by side, with a class in each that stays there, and six in random groups.
fn forest(random: &mut Random) -> String {
    let mut groups = [0, 1, 2, 3];
    for at in 1..groups.len() {
        groups.swap(at, random.below(at as u64 + 1) as usize);
    }
    let mut anywhere = |name: &str, groups: &[usize]| {
        let weight = 1 + random.below(9);
        let above = match random.below(groups.len() as u64 + 1) as usize {
            0 => String::new(),
            place => format!("parent = \"g{}\"\n", groups[place - 1]),
        };
        class(name, &format!("{above}weight = {weight}"))
    };
    let mut text = LIMIT.to_owned();
    for (place, group) in groups.iter().enumerate() {
        text += &anywhere(&format!("g{group}"), &groups[..place]);
        text += &class(&format!("s{group}"), &format!("parent = \"g{group}\""));
    }
    for number in 0..6 {
        text += &anywhere(&format!("a{number}"), &groups);
    }
    text
}

#[test]
fn whoever_moves_where_each_class_sends_all_that_came_in_its_order() {
    for seed in 0..20 {
        let mut random = Random(seed);
        let mut running = Running::start(&forest(&mut random));
        let mut waiting: HashMap<String, VecDeque<u64>> = HashMap::new();
        let (mut moved, mut next) = (0, 0..);
        for _ in 0..30 {
            for _ in 0..random.below(40) {
                let name = format!("{}{}", random.of(&["s", "a"]), random.below(4));
                let number: u64 = next.next().unwrap();
                let id = running.ids[running.place(&name)];
                let packet = Name(format!("{name} {number}"));
                let accepted = (running.queues).enqueue(id, 7, length(), packet, NOW, |_| {});
                assert!(accepted.is_ok(), "{name} has room");
                waiting.entry(name).or_default().push_back(number);
            }
            let held = running.queues.len() as usize;
            for sent in running.serve(held.min(random.below(30) as usize)) {
                let (name, number) = sent.split_once(' ').unwrap();
                let first = waiting.get_mut(name).and_then(VecDeque::pop_front);
                assert_eq!(first, number.parse().ok(), "{seed}: {name}");
            }
            let held = running.queues.len();
            let steps = running.become_link(&forest(&mut random));
            assert!(steps.added.is_empty() && steps.gone.is_empty());
            assert_eq!(running.queues.len(), held);
            moved += steps.moved.len();
        }
        assert!(moved > 60, "{seed}: {moved}");
        let left: usize = waiting.values().map(VecDeque::len).sum();
        assert_eq!(running.queues.len() as usize, left);
    }
}

#[test]
fn what_no_class_can_become_alone_is_made_anew() {
    let before = link(TWO);
    for key in [
        "algorithm = \"drr\"",
        "longest = \"9000b\"",
        "limit = { packets = 5000 }",
    ] {
        assert_eq!(link(&[key, "\n", TWO].concat()).steps_from(&before), None);
    }
    let cbq = |rate: &str| {
        let class = class("a", &format!("rate = \"{rate}\"\ndefault = true"));
        link(&["algorithm = \"cbq\"\n", &class].concat())
    };
    assert!(cbq("5mbit").steps_from(&cbq("5mbit")).unwrap().is_empty());
    assert_eq!(cbq("5mbit").steps_from(&cbq("6mbit")), None);
}

#[test]
fn a_class_that_was_idle_across_a_change_gets_no_credit() {
    for algorithm in ["qfq", "drr", "wf2q+", "s-kps", "gfq", "qfq+"] {
        let head = format!("algorithm = \"{algorithm}\"\n");
        let mut running = Running::start(&[&head, TWO].concat());
        running.fill("a", 900);
        running.fill("b", 1);
        running.serve(300);
        // A class is added whose rate makes all other weights larger numbers.
        let odd = class("c", "rate = \"30000001bit\"");
        running.become_link(&[&head, TWO, &odd].concat());
        running.fill("b", 200);
        let sent = running.serve(100);
        let ours = sent.iter().filter(|name| *name == "b").count();
        assert!((40..=60).contains(&ours), "{algorithm}: {ours} of 100");
    }
}

#[test]
fn a_class_that_comes_starves_nobody_whatever_it_makes_of_the_weights() {
    for algorithm in ["qfq", "drr", "wf2q+", "s-kps", "gfq", "qfq+"] {
        let head = format!("algorithm = \"{algorithm}\"\n");
        let mut running = Running::start(&[&head, TWO].concat());
        running.fill("a", 900);
        running.fill("b", 900);
        running.serve(100);
        let odd = class("c", "rate = \"30000001bit\"");
        let steps = running.become_link(&[&head, TWO, &odd].concat());
        assert_eq!(steps.added.len(), 1);
        let sent = running.serve(600);
        let row = longest_row(&sent);
        assert!(
            row <= 16,
            "{algorithm}: {row} packets of one class in a row"
        );
    }
}

#[test]
fn filters_go_by_the_numbers_that_classes_have_by_then() {
    let mut running = Running::start(TWO);
    running.become_link(&[&class("new", "default = true"), TWO].concat());
    let mut classifier = running
        .link
        .classifier(&vec![ClassId::ROOT; running.ids.len()], DigestKey([1, 2]));
    classifier.renumber(&running.ids);
    let layer = fairlane_wire::Layer::Ethernet;
    let sorted = classifier.classify(&[0; 60], layer, &Default::default(), Nanos::ZERO);
    assert_eq!(sorted.class, running.ids[running.place("new")]);
}
