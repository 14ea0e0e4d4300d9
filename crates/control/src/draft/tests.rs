//! A draft gives the same result as the whole text, and rejects the same changes.

use proptest::prelude::*;
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

use super::*;
use crate::document::Keys;
use crate::edit::Edits;

const SITE: &str = r#"# A house.
[interfaces]
outside = "wan0"
inside = "lan0"

[[link]]
name = "up"   # to the provider
to = "outside"
rate = "20mbit"
# The end of the link's own keys.

# Calls.
[[link.class]]
name = "voice"
rate = "2mbit"  # enough for twenty
ceil = "4mbit"

[[link.class]]
name = "business"
weight = 3
[link.class.limit]
packets = 500

[[link.class]]
name = "office"
parent = "business"
weight = 2

[[link.class]]
name = "backup"
parent = "business"
queue = "codel"

# All that phones send.
[[link.filter]]
class = "voice"
dscp = 46

[[link.class]]
name = "rest"
default = true
per = "source-ip"

[[link.filter]]
class = "backup"
destination-port = 873

[[link]]
name = "down"
to = "inside"
rate = "100mbit"

[[link.class]]
name = "all"
default = true
# The end.
"#;

/// Returns the site's text without the limit, which an inner class cannot have.
fn site() -> String {
    SITE.replace("[link.class.limit]\npackets = 500\n", "ceil = \"15mbit\"\n")
}

fn mtu(_: &str) -> Option<u32> {
    Some(1_500)
}

fn read(text: &str) -> Result<Site, String> {
    Site::parse_for(text, "site", &mtu).map_err(|error| error.to_string())
}

/// Returns the result of some changes in the whole text; `None` if they cannot be written.
fn by_the_whole(text: &str, edits: &Edits) -> Option<(String, Result<Site, String>)> {
    let mut document = Document::new(text).unwrap();
    edits.make(&mut document).ok()?;
    let text = document.to_string();
    let site = read(&text);
    Some((text, site))
}

/// Returns all properties of a site, however it was parsed.
fn all(site: &Site) -> String {
    let links = site.links.iter().map(|link| {
        format!(
            "{link:#?} {:#?} {:#?}",
            link.guarantees(),
            fairlane_config::class_report::ClassTerms::of(link)
        )
    });
    let links: Vec<String> = links.collect();
    format!(
        "{:?} {:?}\n{}",
        site.interfaces,
        site.warnings,
        links.join("\n")
    )
}

/// Returns draft and site after some changes, if the draft can make them.
fn by_draft(draft: &Draft, edits: &Edits) -> Option<(Draft, Site)> {
    let mut draft = draft.clone();
    for edit in edits.all() {
        edit.draft(&mut draft)?;
    }
    draft.read(&mtu)
}

fn names() -> impl Strategy<Value = String> {
    let names = [
        "voice", "business", "office", "backup", "rest", "new", "other", "default", "none",
    ];
    prop::sample::select(names.to_vec()).prop_map(str::to_owned)
}

fn keys(name: bool) -> impl Strategy<Value = Keys> {
    let values =
        |values: &[Json]| prop::option::weighted(0.3, prop::sample::select(values.to_vec()));
    let rates = [
        json!("1mbit"),
        json!("3mbit"),
        json!("30mbit"),
        json!("soon"),
        Json::Null,
    ];
    let keys = (
        values(&[json!(1), json!(4), json!(0), json!(1_000_000), Json::Null]),
        values(&rates),
        values(&rates),
        values(&[json!({"packets": 50}), json!({"packets": 0}), Json::Null]),
        prop::option::weighted(0.2, names().prop_map(Json::from)),
        values(&[json!("codel"), json!("red"), json!("tail-drop"), Json::Null]),
        values(&[json!("5-tuple"), Json::Null]),
        names(),
    );
    keys.prop_map(
        move |(weight, rate, ceil, limit, parent, queue, per, own)| {
            let named = name.then(|| ("name", Some(Json::from(own))));
            let all = [
                ("weight", weight),
                ("rate", rate),
                ("ceil", ceil),
                ("limit", limit),
                ("parent", parent),
                ("queue", queue),
                ("per", per),
            ];
            let all = all.into_iter().chain(named);
            all.filter_map(|(key, value)| Some((key.to_owned(), value?)))
                .collect()
        },
    )
}

fn filter() -> impl Strategy<Value = Keys> {
    let ports = prop::sample::select(vec![
        json!(80),
        json!("1-1000"),
        json!(873),
        json!(0),
        json!(99_999),
    ]);
    (names(), ports).prop_map(|(class, port)| {
        let keys = json!({"class": class, "destination-port": port});
        keys.as_object().cloned().unwrap_or_default()
    })
}

fn edit() -> impl Strategy<Value = Edit> {
    let link = || prop_oneof![9 => Just("up".to_owned()), 1 => Just("down".to_owned())];
    let rate = prop::sample::select(vec!["20mbit", "21mbit", "40mbit", "1mbit", "1bit"]);
    prop_oneof![
        1 => (link(), rate).prop_map(|(link, rate)| {
            let keys = json!({"rate": rate});
            Edit::ChangeLink { link, keys: keys.as_object().cloned().unwrap_or_default() }
        }),
        6 => (link(), names(), keys(false))
            .prop_map(|(link, class, keys)| Edit::ChangeClass { link, class, keys }),
        1 => (link(), names(), keys(true))
            .prop_map(|(link, class, keys)| Edit::ChangeClass { link, class, keys }),
        3 => (link(), keys(true)).prop_map(|(link, keys)| Edit::AddClass { link, keys }),
        2 => (link(), names()).prop_map(|(link, class)| Edit::RemoveClass { link, class }),
        2 => (link(), filter(), prop::option::of(0..4usize))
            .prop_map(|(link, keys, at)| Edit::AddFilter { link, keys, at }),
        1 => (link(), 0..4usize).prop_map(|(link, at)| Edit::RemoveFilter { link, at }),
    ]
}

proptest! {
    #[test]
    fn draft_equals_the_parsed_text(
        changes in prop::collection::vec(prop::collection::vec(edit(), 1..4), 1..12),
    ) {
        let mut text: Arc<str> = site().into();
        let mut draft = Draft::of(&text, &mtu).expect("it is written as people write");
        for edits in changes {
            let edits = Edits::Together(edits);
            let whole = by_the_whole(&text, &edits);
            let drafted = by_draft(&draft, &edits);
            match (whole, drafted) {
                (Some((written, Ok(site))), Some((next, same))) => {
                    prop_assert_eq!(&*same.text, &*written);
                    prop_assert_eq!(all(&same), all(&site));
                    (text, draft) = (Arc::clone(&same.text), next);
                }
                // A draft does not handle errors and warnings; they come from the whole text.
                (Some((written, Ok(site))), None) => {
                    if site.warnings.is_empty() {
                        let again = Draft::of(&written.as_str().into(), &mtu);
                        if let Some(again) = again {
                            (text, draft) = (again.text().clone(), again);
                        }
                    }
                }
                (whole, Some((_, site))) => {
                    prop_assert!(false, "{:?} and not {whole:?}", site.text);
                }
                (_, None) => {}
            }
        }
    }
}

fn of(json: Json) -> Keys {
    json.as_object().cloned().unwrap_or_default()
}

#[test]
fn the_usual_changes_are_made_in_the_draft() {
    let (link, class) = ("up".to_owned(), "office".to_owned());
    let text: Arc<str> = site().into();
    let mut draft = Draft::of(&text, &mtu).unwrap();
    let mut whole = text.to_string();
    for edit in [
        Edit::ChangeClass {
            link: link.clone(),
            class: class.clone(),
            keys: of(json!({"weight": 5})),
        },
        Edit::ChangeClass {
            link: link.clone(),
            class: class.clone(),
            keys: of(json!({"parent": null})),
        },
        Edit::ChangeClass {
            link: link.clone(),
            class: "voice".into(),
            keys: of(json!({"rate": "3mbit"})),
        },
        Edit::ChangeLink {
            link: link.clone(),
            keys: of(json!({"rate": "30mbit"})),
        },
        Edit::AddClass {
            link: link.clone(),
            keys: of(json!({"name": "new", "weight": 2})),
        },
        Edit::AddFilter {
            link: link.clone(),
            keys: of(json!({"class": "new", "dscp": 8})),
            at: Some(0),
        },
        Edit::AddFilter {
            link: link.clone(),
            keys: of(json!({"class": "new", "dscp": 9})),
            at: None,
        },
        Edit::RemoveFilter {
            link: link.clone(),
            at: 1,
        },
        Edit::RemoveClass {
            link,
            class: "new".into(),
        },
    ] {
        let edits = Edits::One(edit);
        let (written, site) = by_the_whole(&whole, &edits).unwrap();
        let (next, same) = by_draft(&draft, &edits).unwrap_or_else(|| panic!("{edits:?}"));
        assert_eq!(&*same.text, written);
        assert_eq!(all(&same), all(&site.unwrap()));
        (draft, whole) = (next, written);
    }
}

#[test]
fn what_is_laid_out_otherwise_is_read_whole() {
    let is_drafted = |text: &str| Draft::of(&text.into(), &mtu).is_some();
    assert!(is_drafted(&site()));
    for other in [
        // A class in two pieces, an inline list, lines in a text, no newline at the end, a warning.
        SITE.to_owned(),
        site().replace("default = true\n# The end.\n", "")
            + "[[link.filter]]\nclass = \"all\"\n[link.class.flows]\nmost = 5\n",
        "link = [{ name = \"up\", rate = \"1mbit\" }]\n".to_owned(),
        site().replace("\"voice\"\nrate", "\"\"\"voice\"\"\"\nrate"),
        site().trim_end().to_owned(),
        site() + "[[link.filter]]\nclass = \"all\"\ningress = \"inside\"\n",
    ] {
        assert!(!is_drafted(&other), "{other}");
    }
}

/// Returns the processor time of the calling thread in microseconds.
fn run_so_far() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// Returns the least processor time of several runs, in microseconds.
fn least<T>(times: usize, mut work: impl FnMut(usize) -> T) -> f64 {
    let took = (0..times).map(|time| {
        let before = run_so_far();
        drop(work(time));
        run_so_far() - before
    });
    took.fold(f64::INFINITY, f64::min)
}

#[test]
fn a_change_of_one_class_in_a_group_takes_a_small_part_of_reading_all() {
    // The times of an unoptimised build mean less, so it measures fewer classes.
    let classes = if cfg!(debug_assertions) {
        1_000
    } else {
        10_000
    };
    let mut text = "[[link]]\nname = \"up\"\nrate = \"200mbit\"\n".to_owned();
    text += "[[link.class]]\nname = \"rest\"\ndefault = true\n";
    for number in 0..classes {
        let above = number / 100;
        if number % 100 == 0 {
            text += &format!("[[link.class]]\nname = \"g{above}\"\n");
        }
        text += &format!(
            "[[link.class]]\nname = \"c{number}\"\nparent = \"g{above}\"\n[[link.filter]]\nclass = \"c{number}\"\n\
             destination = \"10.{}.{}.1\"\n",
            number / 250,
            number % 250
        );
    }
    let text: Arc<str> = text.into();
    let whole = least(3, |_| Draft::of(&text, &mtu).unwrap());
    let mut draft = Draft::of(&text, &mtu).unwrap();
    let one = least(50, |time| {
        let change = Edit::ChangeClass {
            link: "up".to_owned(),
            class: format!("c{}", 7 * time % classes),
            keys: of(json!({"weight": 2 + time % 7})),
        };
        let (next, site) = by_draft(&draft, &Edits::One(change)).unwrap();
        (std::mem::replace(&mut draft, next), site)
    });
    eprintln!("{classes} classes: all of them in {whole:.0} us, one in {one:.0} us");
    let least = if cfg!(debug_assertions) { 8.0 } else { 100.0 };
    assert!(one * least < whole, "{one} us and {whole} us");
}

#[test]
fn of_many_changes_made_together_no_draft_is_kept() {
    let site = Site::parse_for(&site(), "site.toml", &mtu).unwrap();
    let change = |time: usize| Edit::ChangeClass {
        link: "up".to_owned(),
        class: "voice".to_owned(),
        keys: of(json!({"weight": 2 + time % 7})),
    };
    let drafts = Drafts::default();
    let is_kept = || drafts.0.lock().unwrap().draft.is_some();
    for (count, kept) in [(1, true), (MANY - 1, true), (MANY, false), (1, true)] {
        let edits: Vec<_> = (0..count).map(change).collect();
        let (draft, changed) = drafts.changed(&site, &edits).unwrap();
        assert_eq!((draft.is_some(), is_kept()), (kept, kept), "{count}");
        let weight = format!("weight = {}", 2 + (count - 1) % 7);
        assert!(changed.text.contains(&weight), "{count}: {}", changed.text);
    }
}
