//! Settling again after a change gives the same result as settling all classes from scratch.

use std::ops::Range;
use std::sync::Arc;

use fairlane_core::random::splitmix64;

use crate::class_report::ClassTerms;
use crate::guarantee::Guarantee;
use crate::list::PIECE;
use crate::services::Hold;
use crate::{Draft, Link, Site, Table};

/// Classes and their parents, three levels of them; the last one is the default.
const CLASSES: [(&str, Option<&str>); 12] = [
    ("a", None),
    ("a1", Some("a")),
    ("a11", Some("a1")),
    ("a12", Some("a1")),
    ("a13", Some("a1")),
    ("a2", Some("a")),
    ("a3", Some("a")),
    ("b", None),
    ("b1", Some("b")),
    ("b2", Some("b")),
    ("b3", Some("b")),
    ("rest", None),
];

fn table(at: usize, keys: &str) -> String {
    let (name, parent) = CLASSES[at];
    let parent = parent.map_or_else(String::new, |parent| format!("parent = \"{parent}\"\n"));
    let default = match name {
        "rest" => "default = true\n",
        _ => "",
    };
    format!("[[link.class]]\nname = \"{name}\"\n{parent}{default}{keys}")
}

fn whole(keys: &[String]) -> String {
    let tables = keys.iter().enumerate().map(|(at, keys)| table(at, keys));
    format!(
        "[[link]]\nname = \"up\"\nrate = \"4mbit\"\n{}",
        tables.collect::<String>()
    )
}

/// A deterministic pseudo-random generator.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: usize) -> usize {
        (splitmix64(&mut self.0) % end as u64) as usize
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    /// Returns the keys of a class with or without children.
    fn keys(&mut self, is_inner: bool) -> String {
        let mut keys = String::new();
        keys += self.one(&["", "", "weight = 2\n", "weight = 5\n", "priority = 1\n"]);
        keys += self.one(&["", "", "", "rate = \"100kbit\"\n", "rate = \"200kbit\"\n"]);
        keys += self.one(&[
            "",
            "",
            "ceil = \"600kbit\"\n",
            "ceil = \"3mbit\"\n",
            "ceil = \"900kbit\"\nburst = \"40kb\"\n",
        ]);
        if !is_inner {
            keys += self.one(&["", "", "", "longest = \"300b\"\n", "longest = \"1kb\"\n"]);
        }
        keys += match is_inner {
            true => self.one(&[
                "",
                "",
                "algorithm = \"drr\"\n",
                "algorithm = \"wf2q+\"\n",
                "algorithm = \"priority\"\n",
            ]),
            false => self.one(&["", "", "", "queue = \"codel\"\n", "per = \"source-ip\"\n"]),
        };
        keys
    }
}

/// Formats all of a link's classes and their guarantees.
fn told(link: &Link) -> String {
    format!("{link:#?}\n{:#?}", link.guarantees())
}

#[test]
fn what_is_settled_again_is_what_settling_all_comes_to() {
    let is_inner = |at: usize| CLASSES.iter().any(|class| class.1 == Some(CLASSES[at].0));
    let mut draw = Draw(1);
    let mut keys = vec![String::new(); CLASSES.len()];
    let site = Site::parse(&whole(&keys), "site").expect("it is sound");
    let draft = Draft::of_running(&site, &|_| None).expect("it is written as people write");
    let (mut draft, mut running) = draft.read(&|_| None).expect("it is sound");
    let names = |site: &Site| {
        let classes = site.links[0].classes.iter();
        classes.map(|class| class.name.as_ptr()).collect::<Vec<_>>()
    };
    assert_eq!(names(&running), names(&site));
    let (mut again, mut longer) = (0, 0);
    for _ in 0..600 {
        let mut next = draft.clone();
        let mut others = keys.clone();
        for _ in 0..=draw.below(2) {
            let at = draw.below(CLASSES.len() - 1);
            others[at] = draw.keys(is_inner(at));
            next.replace(Table::Class(0, at), &table(at, &others[at]))
                .expect("it is a class");
        }
        let (whole, next) = (Site::parse(&whole(&others), "site"), next.read(&|_| None));
        let Some((next, site)) = next else {
            assert!(!whole.is_ok_and(|site| site.warnings.is_empty()));
            continue;
        };
        let whole = whole.expect("the draft is sound");
        let [is, was, same]: [&Arc<Link>; 3] = [&site, &running, &whole].map(|site| &site.links[0]);
        let former = ClassTerms::of(was);
        let terms = ClassTerms::after(is, &former);
        assert_eq!(terms, ClassTerms::of(same), "{}", site.text);
        // Names are shared with the former link, and so are the terms of each unchanged piece.
        for at in 0..CLASSES.len() {
            let [had, has] = [was, is].map(|link| &link.classes[at].name);
            assert!(Arc::ptr_eq(had, has), "{has}");
            let from = at / PIECE * PIECE;
            let stays = (from..terms.len().min(from + PIECE)).all(|at| former[at] == terms[at]);
            assert_eq!(former.share(at).is(&terms.share(at)), stays, "{has}");
        }
        assert_eq!(told(is), told(same), "{}", site.text);
        assert_eq!(is.steps_from(was), same.steps_from(was), "{}", site.text);
        let places = |but: &[Range<usize>]| but.iter().map(Range::len).sum::<usize>();
        if is
            .differs_from(was)
            .is_some_and(|but| places(but) < CLASSES.len() - 3)
        {
            again += 1;
            // Above, a default burst of 10 ms and two packets was increased because the guarantee requires it.
            let burst = is.classes[0].ceiling.map_or(0, |ceiling| ceiling.burst);
            longer += u32::from(others[0].contains("ceil = \"600kbit\"\n") && burst > 4_000);
        }
        (draft, running, keys) = (next, site, others);
    }
    assert!(
        again > 50 && longer > 0,
        "{again} times in part, {longer} below a longer burst"
    );
}

/// A ceiling bounds its siblings, so they are settled again with it, and other classes are not.
#[test]
fn a_changed_ceiling_changes_the_delay_bounds_of_its_siblings() {
    let mut keys = vec![String::new(); CLASSES.len()];
    keys[5] = "weight = 50\nceil = \"600kbit\"\n".to_owned();
    let site = Site::parse(&whole(&keys), "site").expect("it is sound");
    let draft = Draft::of_running(&site, &|_| None).expect("it is written as people write");
    let (mut draft, running) = draft.read(&|_| None).expect("it is sound");
    keys[5] = "weight = 50\nceil = \"300kbit\"\n".to_owned();
    draft
        .replace(Table::Class(0, 5), &table(5, &keys[5]))
        .expect("it is a class");
    let (_, site) = draft.read(&|_| None).expect("it is sound");
    let whole = Site::parse(&whole(&keys), "site").expect("it is sound");
    let delays = |site: &Site| -> Vec<_> {
        let guarantees = site.links[0].guarantees();
        guarantees.iter().map(|one| one.delay).collect()
    };
    let [was, is] = [&running, &site].map(delays);
    assert_eq!(is, delays(&whole));
    // a3 and the classes below a1. The default burst of a2 lets its ceiling delay no packet of its own.
    let changed = (0..CLASSES.len()).filter(|&at| is[at] != was[at]);
    let changed: Vec<_> = changed.map(|at| CLASSES[at].0).collect();
    assert_eq!(changed, ["a11", "a12", "a13", "a3"]);
    assert!(is[6].unwrap().unwrap() < was[6].unwrap().unwrap());
    // One class at a time has the same as all of them.
    let link = &site.links[0];
    for (at, all) in link.guarantees().into_iter().enumerate() {
        assert_eq!(link.guarantee_for(Hold::AsTheyAre, at), all);
        let ever = link.guarantee_for(Hold::Whatever, at);
        let delay = |one: &Guarantee| one.delay.map(Result::unwrap);
        assert!(delay(&ever) >= delay(&all), "{at}");
    }
}
