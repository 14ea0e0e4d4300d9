//! The displayed part of a site's state.

use std::collections::HashMap;

use fairlane_control::view::drops;
use serde_json::Value as Json;

use crate::configuration;

/// The part of its guaranteed rate below which a class counts as short of it.
const KEPT: f64 = 0.95;

/// A state of a site.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// Time since the start of the site.
    pub seconds: f64,
    /// The length of the interval of recent figures.
    pub recent_seconds: f64,
    pub interfaces: Vec<Interface>,
    pub links: Vec<Link>,
    /// Unsaved changes and a rejected reload, a sentence each.
    pub notes: Vec<String>,
}

/// The losses of an interface.
#[derive(Clone, Debug, Default)]
pub(super) struct Interface {
    pub name: String,
    /// Frames that arrived but were not received.
    pub lost: u64,
    /// Frames dropped at ingress.
    pub early: u64,
    /// Recent frames of both kinds.
    pub recently: u64,
    /// Frames not sent, for any reason.
    pub refused: u64,
    /// True if it is in use.
    pub attached: bool,
}

/// A link and its classes, children after their parents.
#[derive(Clone, Debug, Default)]
pub(super) struct Link {
    pub name: String,
    pub to: String,
    pub rate_bps: f64,
    pub bps: f64,
    pub queued: u64,
    /// Frames longer than the link's maximum.
    pub oversized: u64,
    /// True if it is shaped; otherwise frames bypass its classes.
    pub shaped: bool,
    /// The protocol of many of its frames, if filters cannot match it.
    pub opaque_protocol: Option<String>,
    pub classes: Vec<Class>,
}

/// Delays, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delay {
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}

/// A class: its guarantees and its statistics. Rates are in bit/s, delays in microseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Class {
    pub name: String,
    /// The index of its parent.
    pub parent: Option<usize>,
    pub depth: usize,
    /// True if packets are queued here, not in classes below.
    pub queues: bool,
    /// The weight from the file.
    pub weight: Option<u64>,
    pub guaranteed_bps: Option<f64>,
    pub ceil_bps: Option<f64>,
    pub bound_us: Option<f64>,
    /// The class is above its guarantee, so that its bound does not apply.
    pub exceeds: bool,
    pub no_bound: Option<String>,
    pub bps: f64,
    /// Its share of the link's throughput.
    pub share: f64,
    /// Recent delays.
    pub delay: Option<Delay>,
    /// The maximum since the start.
    pub worst_us: Option<f64>,
    pub queued: u64,
    pub queued_bytes: u64,
    pub flows: u64,
    pub offered_bytes: u64,
    pub dropped: u64,
    pub marked: u64,
    /// Recent number of times that its ceiling held it back.
    pub held: u64,
    /// States in which its bound was violated.
    pub violations: u64,
    /// Its bound was violated recently.
    pub beyond: bool,
    /// Rates since the previous state; `None` for the first one.
    pub since: Option<Since>,
    /// Its offered load reached its guaranteed rate and it was backlogged, but it sent less.
    pub low: bool,
    /// Violations of it and of the classes below it, shown if those are folded.
    pub below: Below,
}

/// Rates of a class since the previous state, per second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Since {
    pub offered_bps: f64,
    pub drops: f64,
    pub marks: f64,
}

/// The worst of a class and all below it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Below {
    pub beyond: bool,
    pub low: bool,
    /// The maximum recent delay as a fraction of the bound.
    pub of_bound: f64,
}

fn text(value: &Json) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn count(of: &Json, key: &str) -> u64 {
    of[key].as_u64().unwrap_or(0)
}

fn list<'a, T>(of: &'a Json, key: &str, one: impl Fn(&'a Json) -> T + 'a) -> Vec<T> {
    let items = of[key].as_array().into_iter().flatten();
    items.map(one).collect()
}

impl State {
    /// Parses a site's state; missing figures are zero. O(classes).
    pub(super) fn of(told: &Json) -> State {
        State {
            seconds: told["seconds"].as_f64().unwrap_or(0.0),
            recent_seconds: told["recent_seconds"].as_f64().unwrap_or(0.0),
            interfaces: list(told, "interfaces", Interface::of),
            links: list(told, "links", Link::of),
            notes: configuration::notes(told),
        }
    }

    /// Computes the changes since the previous state, and checks guarantees against them. O(classes).
    pub(super) fn follow(&mut self, before: Option<&State>) {
        let seconds = before.map_or(0.0, |before| self.seconds - before.seconds);
        for link in &mut self.links {
            // A restarted site counts from zero.
            let former = before.filter(|_| seconds > 0.0);
            let former = former.and_then(|state| state.link(&link.name));
            let former: HashMap<&str, &Class> = former
                .into_iter()
                .flat_map(|link| &link.classes)
                .map(|class| (&*class.name, class))
                .collect();
            for class in &mut link.classes {
                if let Some(former) = former.get(&*class.name) {
                    class.follow(former, seconds);
                }
            }
            link.sum_up();
        }
    }

    pub(super) fn link(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|link| link.name == name)
    }
}

impl Delay {
    fn of(told: &Json) -> Option<Delay> {
        Some(Delay {
            p50: told["p50"].as_f64()?,
            p99: told["p99"].as_f64()?,
            max: told["max"].as_f64()?,
        })
    }
}

impl Interface {
    fn of(told: &Json) -> Interface {
        Interface {
            name: text(&told["name"]),
            lost: count(told, "lost"),
            early: count(told, "early_drops"),
            recently: count(told, "recent_lost") + count(told, "recent_early_drops"),
            refused: count(told, "refused")
                + count(told, "gso_drops")
                + count(told, "absent_drops"),
            attached: told["attached"] != false,
        }
    }
}

impl Link {
    fn of(told: &Json) -> Link {
        let mut link = Link {
            name: text(&told["name"]),
            to: text(&told["to"]),
            rate_bps: told["rate_bps"].as_f64().unwrap_or(0.0),
            bps: told["recent_bps"].as_f64().unwrap_or(0.0),
            queued: count(told, "queued_packets"),
            oversized: count(told, "oversized"),
            shaped: told["shaped"] != false,
            opaque_protocol: told["opaque_protocol"].as_str().map(str::to_owned),
            classes: list(told, "classes", Class::of),
        };
        let mut places = HashMap::new();
        for (place, told) in told["classes"].as_array().into_iter().flatten().enumerate() {
            // A parent precedes its children, so there is no cycle.
            let parent = told["parent"].as_str();
            let parent = parent.and_then(|parent| places.get(parent).copied());
            link.classes[place].parent = parent;
            link.classes[place].depth = parent.map_or(0, |parent| link.classes[parent].depth + 1);
            places.insert(told["name"].as_str().unwrap_or_default(), place);
        }
        link
    }

    fn sum_up(&mut self) {
        for class in &mut self.classes {
            class.below = Below {
                beyond: class.beyond,
                low: class.low,
                of_bound: class.of_bound().unwrap_or(0.0),
            };
        }
        for place in (0..self.classes.len()).rev() {
            let (below, Some(parent)) = (self.classes[place].below, self.classes[place].parent)
            else {
                continue;
            };
            let above = &mut self.classes[parent].below;
            above.beyond |= below.beyond;
            above.low |= below.low;
            above.of_bound = above.of_bound.max(below.of_bound);
        }
    }

    /// Returns the index of a class.
    pub(super) fn place(&self, name: &str) -> Option<usize> {
        self.classes.iter().position(|class| class.name == name)
    }

    /// Returns the classes without a parent.
    pub(super) fn top(&self) -> impl Iterator<Item = &Class> {
        self.classes.iter().filter(|class| class.parent.is_none())
    }
}

impl Class {
    fn of(told: &Json) -> Class {
        let recent = &told["recent"];
        Class {
            name: text(&told["name"]),
            parent: None,
            depth: 0,
            queues: told["kind"] != "inner",
            weight: told["weight"].as_u64(),
            guaranteed_bps: told["guaranteed_bps"].as_f64(),
            ceil_bps: told["ceil_bps"].as_f64(),
            bound_us: told["bound_us"].as_f64(),
            exceeds: recent["bound_applies"] == false,
            no_bound: told["no_bound"].as_str().map(str::to_owned),
            bps: recent["sent_bps"].as_f64().unwrap_or(0.0),
            share: recent["share"].as_f64().unwrap_or(0.0),
            delay: Delay::of(&recent["delay_us"]),
            worst_us: told["delay_us"]["max"].as_f64(),
            queued: count(told, "queued_packets"),
            queued_bytes: count(told, "queued_bytes"),
            flows: count(told, "flows"),
            offered_bytes: count(told, "offered_bytes"),
            dropped: drops(told),
            marked: count(told, "marked"),
            // An inner class without a ceiling only sums up the classes below it.
            held: match told["kind"] == "inner" && told["ceil_bps"].is_null() {
                true => 0,
                false => count(recent, "overlimits"),
            },
            violations: count(recent, "violations"),
            beyond: count(recent, "late_packets") > 0,
            since: None,
            low: false,
            below: Below::default(),
        }
    }

    fn follow(&mut self, before: &Class, seconds: f64) {
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        let since = Since {
            offered_bps: rate(self.offered_bytes, before.offered_bytes) * 8.0,
            drops: rate(self.dropped, before.dropped),
            marks: rate(self.marked, before.marked),
        };
        self.since = Some(since);
        // A class backlogged at both ends need not have been backlogged in between, so its offered load must have
        // reached the guarantee. A class held back by its own ceiling is not guaranteed more.
        let waits = self.queues && self.queued > 0 && before.queued > 0 && self.held == 0;
        self.low = self.guaranteed_bps.is_some_and(|guaranteed| {
            waits && since.offered_bps >= guaranteed && self.bps < KEPT * guaranteed
        });
    }

    /// Returns the maximum recent delay as a fraction of the bound; `None` while the bound does not apply.
    pub(super) fn of_bound(&self) -> Option<f64> {
        let (delay, bound) = (self.delay?, self.bound_us?);
        (bound > 0.0 && !self.exceeds).then(|| delay.max / bound)
    }
}
