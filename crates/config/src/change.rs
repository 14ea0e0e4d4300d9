//! Matching the classes of a running link with those of a new configuration: which are kept, changed, added or removed.
//!
//! A class is kept if its name and kind are unchanged: the same algorithm for a class with children or flows, and flows
//! identified by the same fields. A renamed class is kept too, if nothing else of it changes: its parent, its
//! parameters, and its filters. A kept class retains its packets and its flows with their virtual times. It retains its
//! own virtual time unless it moves to another parent, where it starts as a newly backlogged class. If the algorithm of
//! either parent follows individual packets (`fifo`, `sfq`, `wfq`, `wf2q`), a class that moves is a new one, to which
//! packets are moved one by one.

use std::cell::OnceCell;
use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use fairlane_classify::Rule;

use crate::reservation::kept_for;
use crate::site::{Class, ClassKind, Link, LinkAlgorithm};

/// The changes that turn a running link into another one, class by class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps {
    /// By index in the new link: the index of the class in the running link that is kept as this one.
    pub stays: Vec<Option<usize>>,
    /// Added classes, by index in the new link: parents before their children.
    pub added: Vec<usize>,
    /// Classes that move to another parent, by index in the new link: parents before their children.
    pub moved: Vec<usize>,
    /// Classes kept with other parameters, by index in the new link.
    pub changed: Vec<usize>,
    /// Removed classes, by index in the running link: children before their parents.
    pub gone: Vec<usize>,
}

impl Steps {
    /// Returns whether no class is added, removed, moved or changed.
    pub fn is_empty(&self) -> bool {
        let all = [&self.added, &self.moved, &self.changed, &self.gone];
        all.into_iter().all(Vec::is_empty)
    }

    /// Returns whether every class is kept at its index, with the same or other parameters.
    pub fn is_in_place(&self) -> bool {
        let mut places = self.stays.iter().enumerate();
        self.added.is_empty()
            && self.moved.is_empty()
            && self.gone.is_empty()
            && places.all(|(place, &was)| was == Some(place))
    }
}

impl Link {
    /// Returns the steps that turn `running` into this link while it runs, or `None` if its queues must be rebuilt: if
    /// the longest packet, the link's limit (or its reserved part in between), or the algorithm among the classes
    /// without a parent differs, and if anything changes in CBQ. Names and filters may change. O(classes and filters);
    /// if this link was read again after `running`, only classes that may have changed are compared.
    pub fn steps_from(&self, running: &Link) -> Option<Steps> {
        let same = self.algorithm == running.algorithm
            && self.longest == running.longest
            && self.limits == running.limits;
        if !same {
            return None;
        }
        let known = self.differs_from(running);
        let steps = known.and_then(|but| in_place(running, self, but));
        let steps = steps.unwrap_or_else(|| Matching::new(running, self).steps());
        let fixed = self.algorithm == LinkAlgorithm::Cbq;
        let moved = fixed && (!steps.is_empty() || self.rate != running.rate);
        (!moved && self.has_room_for(&steps, running)).then_some(steps)
    }

    /// Returns whether the reservations of classes fit into the link after each of the steps, in any order.
    fn has_room_for(&self, steps: &Steps, running: &Link) -> bool {
        let (mut packets, mut bytes) = running.kept();
        for &place in steps.added.iter().chain(&steps.changed) {
            let (now_packets, now_bytes) = kept_for(&self.classes[place]);
            let was = steps.stays[place].map_or((0, 0), |was| kept_for(&running.classes[was]));
            packets += now_packets.saturating_sub(was.0);
            bytes += now_bytes.saturating_sub(was.1);
        }
        packets <= self.limits.packets.into() && bytes <= self.limits.bytes
    }

    /// Returns the indices of the children of each class, by its index; those of classes without a parent come last.
    fn children(&self) -> Vec<Vec<usize>> {
        let root = self.classes.len();
        let mut children = vec![Vec::new(); root + 1];
        for (place, class) in self.classes.iter().enumerate() {
            children[class.parent.unwrap_or(root)].push(place);
        }
        children
    }
}

/// Returns the steps if the classes are the same except at these indices, and none of them changes its kind.
fn in_place(old: &Link, new: &Link, but: &[Range<usize>]) -> Option<Steps> {
    let places = || but.iter().cloned().flatten();
    let stay = |place: usize| same_kind(&old.classes[place], &new.classes[place]);
    let differ = |&place: &usize| !same_parameters(old, place, new, place);
    places().all(stay).then(|| Steps {
        stays: (0..new.classes.len()).map(Some).collect(),
        added: Vec::new(),
        moved: Vec::new(),
        changed: places().filter(differ).collect(),
        gone: Vec::new(),
    })
}

/// A link with its lookup tables.
struct Side<'a> {
    link: &'a Link,
    children: Vec<Vec<usize>>,
    /// The filters to each class, computed on demand.
    rules: OnceCell<Vec<Vec<&'a Rule<u32>>>>,
    /// The index of each class by its name, computed on demand.
    places: OnceCell<HashMap<&'a str, usize>>,
}

impl<'a> Side<'a> {
    fn new(link: &'a Link) -> Side<'a> {
        Side {
            link,
            children: link.children(),
            rules: OnceCell::new(),
            places: OnceCell::new(),
        }
    }

    fn class(&self, place: usize) -> &'a Class {
        &self.link.classes[place]
    }

    /// Returns the index of the class with this name.
    fn place(&self, name: &str) -> Option<usize> {
        let places = self.places.get_or_init(|| {
            let names = self.link.classes.iter().map(|class| &*class.name);
            names.zip(0..).collect()
        });
        places.get(name).copied()
    }

    /// Returns whether the algorithm among a class's siblings follows individual packets.
    fn follows_packets(&self, place: usize) -> bool {
        let above = self.class(place).parent;
        match (
            above.map(|above| &self.class(above).kind),
            self.link.algorithm,
        ) {
            (Some(ClassKind::Inner(algorithm)), _) => algorithm.follows_packets(),
            (_, LinkAlgorithm::Tree(algorithm)) => algorithm.follows_packets(),
            (_, LinkAlgorithm::Cbq) => false,
        }
    }

    fn leads_to(&self, place: usize) -> impl Iterator<Item = (i32, &fairlane_classify::Match)> {
        let rules = self.rules.get_or_init(|| {
            let mut rules = vec![Vec::new(); self.link.classes.len()];
            for rule in &*self.link.rules {
                rules[rule.target as usize].push(rule);
            }
            rules
        });
        rules[place]
            .iter()
            .map(|rule| (rule.priority, &rule.matches))
    }

    fn is_default(&self, place: usize) -> bool {
        self.link.default as usize == place
    }

    /// Returns a hash that is the same for classes that differ in their names only.
    fn fingerprint(&self, place: usize) -> u64 {
        let class = self.class(place);
        let mut hasher = DefaultHasher::new();
        (class.rate.map(|rate| rate.bps()), class.share, class.level).hash(&mut hasher);
        for rule in self.leads_to(place) {
            rule.hash(&mut hasher);
        }
        hasher.finish()
    }

    fn names_below(&self, place: usize) -> impl Iterator<Item = &'a str> {
        let below = self.children[place].iter();
        below.map(|&child| &*self.link.classes[child].name)
    }
}

struct Matching<'a> {
    old: Side<'a>,
    new: Side<'a>,
    stays: Vec<Option<usize>>,
    /// By place in the running link.
    goes_on: Vec<bool>,
    moved: Vec<usize>,
}

impl<'a> Matching<'a> {
    fn new(old: &'a Link, new: &'a Link) -> Matching<'a> {
        Matching {
            old: Side::new(old),
            new: Side::new(new),
            stays: vec![None; new.classes.len()],
            goes_on: vec![false; old.classes.len()],
            moved: Vec::new(),
        }
    }

    fn steps(mut self) -> Steps {
        // Parents come before their children in both.
        self.below(self.old.link.classes.len(), self.new.link.classes.len());
        for place in 0..self.stays.len() {
            self.find_moved(place);
            if let Some(was) = self.stays[place] {
                self.below(was, place);
            }
        }
        let Matching {
            old,
            new,
            stays,
            goes_on,
            moved,
        } = self;
        let places = 0..stays.len();
        let changed = places.clone().filter(|&place| {
            stays[place].is_some_and(|was| !same_parameters(old.link, was, new.link, place))
        });
        Steps {
            added: places
                .clone()
                .filter(|&place| stays[place].is_none())
                .collect(),
            moved,
            changed: changed.collect(),
            gone: (0..goes_on.len())
                .rev()
                .filter(|&place| !goes_on[place])
                .collect(),
            stays,
        }
    }

    /// Matches the children of a class that is kept.
    fn below(&mut self, was: usize, is: usize) {
        if self.old.names_below(was).eq(self.new.names_below(is)) {
            let pairs = self.old.children[was].clone().into_iter();
            for (former, place) in pairs.zip(self.new.children[is].clone()) {
                if same_kind(self.old.class(former), self.new.class(place)) {
                    self.pair(former, place);
                }
            }
            return;
        }
        let by_name: HashMap<&str, usize> = self.old.children[was]
            .iter()
            .map(|&place| (&*self.old.class(place).name, place))
            .collect();
        let mut without = Vec::new();
        for place in self.new.children[is].clone() {
            match by_name.get(&*self.new.class(place).name) {
                Some(&former) if same_kind(self.old.class(former), self.new.class(place)) => {
                    self.pair(former, place);
                }
                // Its kind has changed.
                Some(_) => {}
                // A class whose name was elsewhere in the old link is not matched with one of another name.
                None if self.old.place(&self.new.class(place).name).is_some() => {}
                None => without.push(place),
            }
        }
        let mut left: HashMap<u64, VecDeque<usize>> = HashMap::new();
        for &place in &self.old.children[was] {
            // A class whose name exists in the new link is not matched with one of another name.
            if !self.goes_on[place] && self.new.place(&self.old.class(place).name).is_none() {
                left.entry(self.old.fingerprint(place))
                    .or_default()
                    .push_back(place);
            }
        }
        for place in without {
            let Some(alike) = left.get_mut(&self.new.fingerprint(place)) else {
                continue;
            };
            let found = alike.iter().position(|&former| self.alike(former, place));
            if let Some(former) = found.and_then(|at| alike.remove(at)) {
                self.pair(former, place);
            }
        }
    }

    /// Matches a class that has no predecessor below its parent with the class of its name elsewhere.
    fn find_moved(&mut self, is: usize) {
        if self.stays[is].is_some() {
            return;
        }
        let was = self.old.place(&self.new.class(is).name);
        let moves = |&was: &usize| {
            !self.goes_on[was]
                && same_kind(self.old.class(was), self.new.class(is))
                && !self.old.follows_packets(was)
                && !self.new.follows_packets(is)
        };
        if let Some(was) = was.filter(moves) {
            self.pair(was, is);
            self.moved.push(is);
        }
    }

    fn pair(&mut self, was: usize, is: usize) {
        self.stays[is] = Some(was);
        self.goes_on[was] = true;
    }

    /// Returns whether two classes differ in their names only.
    fn alike(&self, was: usize, is: usize) -> bool {
        let (old, new) = (&self.old, &self.new);
        let (before, after) = (old.class(was), new.class(is));
        same_kind(before, after)
            && (before.rate, before.share, before.level, before.ceiling)
                == (after.rate, after.share, after.level, after.ceiling)
            && old.is_default(was) == new.is_default(is)
            && old.leads_to(was).eq(new.leads_to(is))
            && old.names_below(was).eq(new.names_below(is))
            && same_queue(old.link, before, new.link, after)
    }
}

/// Returns whether a class can become the other by a change of parameters.
fn same_kind(old: &Class, new: &Class) -> bool {
    match (&old.kind, &new.kind) {
        (ClassKind::Inner(old), ClassKind::Inner(new)) => old == new,
        (ClassKind::Leaf(_), ClassKind::Leaf(_)) => true,
        (ClassKind::Flows(old), ClassKind::Flows(new)) => {
            (old.algorithm, old.per) == (new.algorithm, new.per)
        }
        _ => false,
    }
}

fn same_queue(old: &Link, before: &Class, new: &Link, after: &Class) -> bool {
    match (&before.kind, &after.kind) {
        (ClassKind::Leaf(was), ClassKind::Leaf(is)) => {
            old.leaf(was, before.ceiling) == new.leaf(is, after.ceiling)
        }
        (ClassKind::Flows(was), ClassKind::Flows(is)) => old.flows(was) == new.flows(is),
        _ => true,
    }
}

/// Compares the parameters of two classes of the same kind.
fn same_parameters(old: &Link, was: usize, new: &Link, is: usize) -> bool {
    let (before, after) = (&old.classes[was], &new.classes[is]);
    let same = match new.algorithm {
        LinkAlgorithm::Tree(_) => old.class_config(before) == new.class_config(after),
        LinkAlgorithm::Cbq => old.cbq_class(before) == new.cbq_class(after),
    };
    same && same_queue(old, before, new, after)
}
