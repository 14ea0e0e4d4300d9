//! Classes: the tree they make, and what each one gets.

use std::collections::HashMap;
use std::ops::Range;

use fairlane_core::tree::cbq;
use fairlane_core::{Length, Nanos, Rate, Weight};

use super::Names;
use super::queue::{self, DEFAULT_ALGORITHM};
use crate::diagnostic::{Report, suggestion};
use crate::file;
use crate::guarantee::{NoGuarantee, walk};
use crate::shares::{Claim, divide};
use crate::site::{Cap, Class, Flows, Kind, LinkAlgorithm};
use crate::units::{Size, Time};
use crate::written::{At, Text};
use fairlane_core::tree::Algorithm;

/// The class that is made where none is the default.
const DEFAULT: &str = "default";
/// Flows of a class, unless the file says otherwise.
const FLOWS: u32 = 1 << 16;
const MOST_FLOWS: i64 = 4_000_000;
const FORGET: Nanos = Nanos::from_millis(10_000);
const MOST_LEVEL: i64 = 255;
const MOST_CBQ_LEVEL: i64 = cbq::PRIORITIES as i64 - 1;
/// Packets that a class of CBQ sends back to back after a silence, as in ALTQ.
const CBQ_BURST: u32 = 16;

/// A link's classes, parents first.
pub(super) struct Classes {
    pub classes: Vec<Class>,
    pub default: u32,
    by_name: HashMap<String, u32>,
}

impl Classes {
    pub fn find(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.classes.iter().map(|class| class.name.as_str())
    }
}

/// The classes of a link, or what is wrong is reported.
pub(super) fn read(
    link: &file::Link,
    rate: Rate,
    longest: Length,
    algorithm: LinkAlgorithm,
    report: &mut Report,
) -> Option<Classes> {
    let before = report.errors();
    let mut names = Names::new("class");
    for at in &link.class {
        names.insert(&at.value().name, report);
    }
    let tree = Tree::of(link, report)?;
    let default = tree.default(report);
    let mut classes = Vec::with_capacity(tree.order.len() + 1);
    let mut numbers = vec![0; tree.written.len()];
    for &at in &tree.order {
        numbers[at] = classes.len();
        let parent = tree.parents[at].map(|parent| numbers[parent]);
        classes.extend(class(&tree, at, parent, longest, algorithm, report));
    }
    if report.errors() > before {
        return None;
    }
    let default = match default {
        Some(at) => numbers[at],
        None => {
            classes.push(made(algorithm, rate, &classes, link, report));
            classes.len() - 1
        }
    };
    let places: Vec<_> = tree.order.iter().map(|&at| tree.written[at]).collect();
    Entitlements {
        link: link.name.value(),
        algorithm,
        places: &places,
    }
    .settle(&mut classes, rate, report);
    if report.errors() == before {
        bursts(&mut classes, &places, algorithm, rate, longest, report);
    }
    let numbered = classes.iter().zip(0..);
    let by_name = numbered
        .map(|(class, number)| (class.name.clone(), number))
        .collect();
    (report.errors() == before).then_some(Classes {
        by_name,
        default: default as u32,
        classes,
    })
}

/// Who is whose parent, by places in the file.
struct Tree<'a> {
    written: Vec<&'a file::Class>,
    parents: Vec<Option<usize>>,
    has_children: Vec<bool>,
    /// Parents before their children.
    order: Vec<usize>,
}

impl<'a> Tree<'a> {
    fn of(link: &'a file::Link, report: &mut Report) -> Option<Tree<'a>> {
        let before = report.errors();
        let written: Vec<_> = link.class.iter().map(At::value).collect();
        let by_name: HashMap<_, _> = written
            .iter()
            .enumerate()
            .rev()
            .map(|(at, class)| (class.name.value().as_str(), at))
            .collect();
        let mut parents = vec![None; written.len()];
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); written.len()];
        let mut top = Vec::new();
        for (at, class) in written.iter().enumerate() {
            let Some(parent) = &class.parent else {
                top.push(at);
                continue;
            };
            match by_name.get(parent.value().as_str()) {
                Some(&above) => {
                    parents[at] = Some(above);
                    children[above].push(at);
                }
                None => {
                    let near = suggestion(parent.value(), by_name.keys().copied());
                    report.error(
                        &parent.span(),
                        format!(
                            "parent '{}' does not exist in this link{near}",
                            parent.value()
                        ),
                    );
                }
            }
        }
        if report.errors() > before {
            return None;
        }
        let mut order = Vec::with_capacity(written.len());
        let mut next: Vec<_> = top.into_iter().rev().collect();
        while let Some(at) = next.pop() {
            order.push(at);
            next.extend(children[at].iter().rev());
        }
        let tree = Tree {
            has_children: children.iter().map(|below| !below.is_empty()).collect(),
            written,
            parents,
            order,
        };
        tree.report_circles(report);
        (report.errors() == before).then_some(tree)
    }

    /// What is not reached from the root is below a circle, or in it.
    fn report_circles(&self, report: &mut Report) {
        let mut seen = vec![false; self.written.len()];
        for &at in &self.order {
            seen[at] = true;
        }
        for start in 0..self.written.len() {
            let mut path = Vec::new();
            let mut at = start;
            while !seen[at] {
                seen[at] = true;
                path.push(at);
                at = self.parents[at].expect("those without a parent are reached");
            }
            let Some(first) = path.iter().position(|&other| other == at) else {
                continue;
            };
            let circle = path[first..].iter().chain([&at]);
            let names: Vec<_> = circle
                .map(|&at| self.written[at].name.value().as_str())
                .collect();
            let parent = self.written[at].parent.as_ref().expect("it is in a circle");
            report.error(
                &parent.span(),
                format!(
                    "class '{}' is its own ancestor: {}",
                    names[0],
                    names.join(" < ")
                ),
            );
        }
    }

    /// The class that is the default, or has its name.
    fn default(&self, report: &mut Report) -> Option<usize> {
        let mut found: Option<usize> = None;
        for (at, class) in self.written.iter().enumerate() {
            let Some(default) = class.default.as_ref().filter(|default| *default.value()) else {
                continue;
            };
            let name = class.name.value();
            if self.has_children[at] {
                report.error(
                    &default.span(),
                    format!(
                        "default: class '{name}' has children, and packets go to a class without"
                    ),
                );
            }
            if let Some(first) = found {
                let first = self.written[first].name.value();
                report.error(
                    &default.span(),
                    format!("default: class '{first}' is it already, and a link has one"),
                );
            }
            found = found.or(Some(at));
        }
        let named = || {
            let at = self
                .written
                .iter()
                .position(|class| class.name.value() == DEFAULT)?;
            if self.has_children[at] {
                report.error(
                    &self.written[at].name.span(),
                    "class 'default' has children: another class needs 'default = true'",
                );
            }
            Some(at)
        };
        found.or_else(named)
    }
}

/// The default class that the file does not have. In CBQ it has the rate that is left.
fn made(
    algorithm: LinkAlgorithm,
    link_rate: Rate,
    classes: &[Class],
    link: &file::Link,
    report: &mut Report,
) -> Class {
    let mut rate = None;
    if algorithm == LinkAlgorithm::Cbq {
        let top = classes.iter().filter(|class| class.parent.is_none());
        let taken = top.filter_map(|class| class.rate).map(Rate::bps).sum();
        let left = link_rate.bps().saturating_sub(taken);
        rate = Rate::from_bps(left);
        if rate.is_none() {
            report.error(
                &link.name.span(),
                format!(
                    "link '{}' leaves no rate for a default class: one of its classes needs 'default = true'",
                    link.name.value()
                ),
            );
        }
    }
    Class {
        name: DEFAULT.to_owned(),
        number: classes.len(),
        parent: None,
        rate,
        cap: None,
        weight: Weight::ONE,
        share: 1,
        level: 0,
        borrow: algorithm == LinkAlgorithm::Cbq,
        cbq_burst: CBQ_BURST,
        kind: Kind::Leaf(queue::plain_queue()),
    }
}

fn class(
    tree: &Tree,
    at: usize,
    parent: Option<usize>,
    longest: Length,
    link: LinkAlgorithm,
    report: &mut Report,
) -> Option<Class> {
    let written = tree.written[at];
    let name = written.name.value();
    let above = match (link, tree.parents[at]) {
        (LinkAlgorithm::Cbq, _) => Above::Cbq,
        (LinkAlgorithm::Tree(algorithm), None) => Above::Node(algorithm),
        (_, Some(parent)) => Above::Node(match &tree.written[parent].algorithm {
            // What is wrong with it is reported where it stands.
            Some(text) => text.value().parse().ok()?,
            None => DEFAULT_ALGORITHM,
        }),
    };
    let rate: Option<Rate> = written
        .rate
        .as_ref()
        .and_then(|rate| rate.read("rate", report));
    let in_cbq = link == LinkAlgorithm::Cbq;
    let cap = match in_cbq {
        true => None,
        false => cap(&written.ceil, &written.burst, longest, report),
    };
    let cbq_burst = match &written.burst {
        Some(burst) if in_cbq => cbq_burst(burst, longest, report),
        _ => Some(CBQ_BURST),
    };
    if in_cbq && written.rate.is_none() {
        report.error(
            &written.name.span(),
            format!("class '{name}': in cbq every class has a rate"),
        );
    }
    if let (Some(rate), Some(cap), Some(ceil)) = (rate, cap, &written.ceil)
        && cap.rate < rate
    {
        report.error(
            &ceil.span(),
            format!(
                "ceil '{}': less than the rate of class '{name}', {rate}",
                ceil.value()
            ),
        );
    }
    let weight = match &written.weight {
        Some(weight) => weight.within("weight", 1..1_000_001, report),
        None => Some(u32::from(rate.is_none())),
    };
    let most_level = if in_cbq { MOST_CBQ_LEVEL } else { MOST_LEVEL };
    let level = match &written.priority {
        Some(priority) => priority.within("priority", 0..most_level + 1, report),
        None => Some(0),
    };
    above.check(written, tree.has_children[at], report);
    let kind = match (tree.has_children[at], &written.per) {
        (true, _) => inner(written, link, report),
        (false, Some(per)) => flows(written, per, longest, report),
        (false, None) => leaf(written, longest, link, report),
    };
    if let (LinkAlgorithm::Tree(_), Some(borrow)) = (link, &written.borrow) {
        report.error(
            &borrow.span(),
            "borrow: only a link of algorithm \"cbq\" has it",
        );
    }
    Some(Class {
        name: name.clone(),
        number: at,
        parent,
        rate,
        cap,
        weight: Weight::ONE,
        share: weight?,
        level: level?,
        borrow: written
            .borrow
            .as_ref()
            .is_some_and(|borrow| *borrow.value()),
        cbq_burst: cbq_burst?,
        kind: kind?,
    })
}

/// What a class is below: which of its keys count.
#[derive(Clone, Copy, PartialEq)]
enum Above {
    Node(Algorithm),
    Cbq,
}

impl Above {
    fn check(self, class: &file::Class, has_children: bool, report: &mut Report) {
        let Above::Node(algorithm) = self else {
            if let Some(weight) = &class.weight {
                report.error(&weight.span(), "weight: in cbq the rates are the shares");
            }
            if let Some(per) = &class.per {
                report.error(&per.span(), "per: cbq knows the classes of the file only");
            }
            if let Some(ceil) = &class.ceil {
                report.error(
                    &ceil.span(),
                    "ceil: in cbq a class has its rate, and more only with 'borrow = true'",
                );
            }
            if let (true, Some(priority)) = (has_children, &class.priority) {
                report.error(
                    &priority.span(),
                    format!(
                        "priority: class '{}' has children, and in cbq theirs count",
                        class.name.value()
                    ),
                );
            }
            return;
        };
        let sharing = Sharing::of(algorithm);
        if sharing != Sharing::Levels
            && let Some(priority) = &class.priority
        {
            report.error(
                &priority.span(),
                format!("priority: it counts below algorithm \"priority\" and in \"cbq\", not below \"{}\"", algorithm.name()),
            );
        }
        if sharing != Sharing::Weights
            && let Some(weight) = &class.weight
        {
            report.error(
                &weight.span(),
                format!("weight: algorithm \"{}\" knows none", algorithm.name()),
            );
        }
        if sharing == Sharing::Nothing
            && let Some(rate) = &class.rate
        {
            report.error(
                &rate.span(),
                format!(
                    "rate: below algorithm \"{}\" no class is guaranteed anything",
                    algorithm.name()
                ),
            );
        }
        if algorithm.follows_packets() {
            let unfit = [
                has_children.then_some((class.name.span(), "children")),
                class.per.as_ref().map(|per| (per.span(), "flows")),
                class.ceil.as_ref().map(|ceil| (ceil.span(), "a ceiling")),
            ];
            for (place, what) in unfit.into_iter().flatten() {
                report.error(
                    &place,
                    format!(
                        "class '{}': algorithm \"{}\" follows every packet, so a class below it cannot have {what}",
                        class.name.value(),
                        algorithm.name()
                    ),
                );
            }
        }
    }
}

/// How an algorithm shares.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Sharing {
    Weights,
    Levels,
    Nothing,
}

impl Sharing {
    pub fn of(algorithm: Algorithm) -> Sharing {
        match algorithm {
            Algorithm::Priority => Sharing::Levels,
            Algorithm::Fifo | Algorithm::Sfq => Sharing::Nothing,
            _ => Sharing::Weights,
        }
    }
}

fn inner(class: &file::Class, link: LinkAlgorithm, report: &mut Report) -> Option<Kind> {
    let name = class.name.value();
    let own = [
        (
            "limit",
            class.limit.as_ref().map(At::span),
            "waits in those",
        ),
        (
            "queue",
            class.queue.as_ref().map(At::span),
            "waits in those",
        ),
        (
            "per",
            class.per.as_ref().map(At::span),
            "a class has either children or flows",
        ),
    ];
    for (key, place, why) in own {
        if let Some(place) = place {
            let why = match key {
                "per" => why.to_owned(),
                _ => format!("what is in it {why}"),
            };
            report.error(
                &place,
                format!("{key}: class '{name}' has children, and {why}"),
            );
        }
    }
    stray_flows(class, report);
    Some(Kind::Inner(own_algorithm(class, link, report)?))
}

fn own_algorithm(
    class: &file::Class,
    link: LinkAlgorithm,
    report: &mut Report,
) -> Option<Algorithm> {
    match (&class.algorithm, link) {
        (Some(text), LinkAlgorithm::Cbq) => {
            report.error(&text.span(), "algorithm: in cbq the whole link has one");
            None
        }
        (Some(text), _) => queue::algorithm(text, &[], report),
        (None, _) => Some(DEFAULT_ALGORITHM),
    }
}

fn stray_flows(class: &file::Class, report: &mut Report) {
    if let (None, Some(flows)) = (&class.per, &class.flows) {
        report.error(
            &flows.span(),
            format!(
                "flows: class '{}' has none without 'per'",
                class.name.value()
            ),
        );
    }
}

fn leaf(
    class: &file::Class,
    longest: Length,
    link: LinkAlgorithm,
    report: &mut Report,
) -> Option<Kind> {
    stray_flows(class, report);
    if let (Some(text), LinkAlgorithm::Tree(_)) = (&class.algorithm, link) {
        report.error(
            &text.span(),
            format!(
                "algorithm: class '{}' has neither children nor flows to choose among",
                class.name.value()
            ),
        );
    } else {
        own_algorithm(class, link, report)?;
    }
    queue::queue(class, longest, report).map(Kind::Leaf)
}

fn flows(class: &file::Class, per: &Text, longest: Length, report: &mut Report) -> Option<Kind> {
    let per = per.read("per", report);
    let algorithm = match &class.algorithm {
        Some(text) => queue::algorithm(text, &[], report),
        None => Some(DEFAULT_ALGORITHM),
    };
    let queue = queue::queue(class, longest, report);
    let given = class.flows.as_ref().map(At::value);
    let most = match given.and_then(|flows| flows.most.as_ref()) {
        Some(most) => most.within("most", 1..MOST_FLOWS + 1, report),
        None => Some(FLOWS),
    };
    let forget = match given.and_then(|flows| flows.forget.as_ref()) {
        Some(forget) => forget.read("forget", report).map(|time: Time| time.0),
        None => Some(FORGET),
    };
    let cap = given.and_then(|flows| cap(&flows.ceil, &flows.burst, longest, report));
    if let (Some(ceil), Some(algorithm)) = (given.and_then(|flows| flows.ceil.as_ref()), algorithm)
        && algorithm.follows_packets()
    {
        report.error(
            &ceil.span(),
            format!(
                "ceil: algorithm \"{}\" follows every packet, so its flows cannot have a ceiling",
                algorithm.name()
            ),
        );
    }
    Some(Kind::Flows(Flows {
        per: per?,
        algorithm: algorithm?,
        most: most?,
        forget_after: forget?,
        cap,
        queue: queue?,
    }))
}

/// The ceiling, if it is one.
fn cap(
    ceil: &Option<Text>,
    burst: &Option<Text>,
    longest: Length,
    report: &mut Report,
) -> Option<Cap> {
    let Some(ceil) = ceil else {
        if let Some(burst) = burst {
            report.error(
                &burst.span(),
                "burst: it is how far 'ceil' is stretched, which is not given",
            );
        }
        return None;
    };
    let rate: Option<Rate> = ceil.read("ceil", report);
    let least = u64::from(longest.get()) * 8;
    if let Some(rate) = rate
        && rate.bps() < least
    {
        report.error(
            &ceil.span(),
            format!(
                "ceil '{}': less than one packet of {longest} a second, which is {least}bit",
                ceil.value()
            ),
        );
    }
    let burst = match burst {
        Some(burst) => queue::at_least(burst, "burst", longest, u32::MAX.into(), report),
        None => rate.map(|rate| default_burst(rate, longest)),
    };
    Some(Cap {
        rate: rate?,
        burst: burst? as u32,
    })
}

/// A burst of CBQ, which counts packets.
fn cbq_burst(burst: &Text, longest: Length, report: &mut Report) -> Option<u32> {
    let most = u64::from(longest.get()) * u64::from(cbq::Bursts::MOST);
    let bytes = queue::at_least(burst, "burst", longest, most, report)?;
    Some((bytes / u64::from(longest.get())) as u32)
}

/// What a rate brings in 10 ms, and two packets.
fn default_burst(rate: Rate, longest: Length) -> u64 {
    (rate.bps() / 800 + 2 * u64::from(longest.get())).min(u32::MAX.into())
}

/// Makes bursts that the file does not have as long as the guarantees ask for, and tells of
/// those that it has and are too short.
fn bursts(
    classes: &mut [Class],
    places: &[&file::Class],
    algorithm: LinkAlgorithm,
    link: Rate,
    longest: Length,
    report: &mut Report,
) {
    walk(algorithm, link, longest, classes, |at, class, service| {
        if let (Some(cap), Some(None)) = (&mut class.cap, places.get(at).map(|place| &place.burst))
        {
            cap.burst = cap.burst.max(service.burst_for(cap.rate, longest));
        }
    });
    let mut needed = vec![0; classes.len()];
    let guarantees = walk(algorithm, link, longest, classes, |at, class, service| {
        if let Some(cap) = class.cap {
            needed[at] = service.burst_for(class.rate.unwrap_or(cap.rate), longest);
        }
    });
    for (at, guarantee) in guarantees.iter().enumerate() {
        let Some(rate) = classes[at].rate else {
            continue;
        };
        let gets = match guarantee.rate {
            Ok(gets) => gets,
            Err(NoGuarantee::Burst) => 0,
            Err(_) => continue,
        };
        // Whole weights cost less than this, in all but the largest of nodes.
        if gets >= rate.bps() - rate.bps() / 1000 {
            continue;
        }
        let why = match classes[at].cap {
            Some(cap) if cap.burst < needed[at] => format!(
                "its burst of {} is too short to wait for others, {} would do",
                Size(cap.burst.into()),
                Size(needed[at].into())
            ),
            _ => "weights are whole numbers up to 1000000, or a class above it has less".to_owned(),
        };
        report.warning(
            &places[at].burst.as_ref().unwrap_or(&places[at].name).span(),
            format!(
                "class '{}' is guaranteed {} of its {rate}: {why}",
                classes[at].name,
                shown(gets)
            ),
        );
    }
}

/// What each class is entitled to: weights, and rates that are kept.
struct Entitlements<'a> {
    link: &'a str,
    algorithm: LinkAlgorithm,
    /// As the file has them, for those that it has.
    places: &'a [&'a file::Class],
}

impl Entitlements<'_> {
    fn settle(&self, classes: &mut [Class], rate: Rate, report: &mut Report) {
        let mut siblings: Vec<Vec<usize>> = vec![Vec::new(); classes.len() + 1];
        for (at, class) in classes.iter().enumerate() {
            siblings[class.parent.map_or(0, |parent| parent + 1)].push(at);
        }
        let mut entitled = vec![rate.bps(); classes.len() + 1];
        for (parent, children) in siblings.iter().enumerate() {
            if children.is_empty() {
                continue;
            }
            let has = entitled[parent];
            let above = parent.checked_sub(1).map(|parent| &classes[parent]);
            let owner = match above {
                Some(class) => format!("class '{}'", class.name),
                None => format!("link '{}'", self.link),
            };
            let algorithm = match (self.algorithm, above.map(|class| &class.kind)) {
                (LinkAlgorithm::Cbq, _) => None,
                (LinkAlgorithm::Tree(algorithm), None) => Some(algorithm),
                (_, Some(Kind::Inner(algorithm))) => Some(*algorithm),
                (_, Some(_)) => unreachable!("{owner} has children"),
            };
            let gets = match algorithm.map(Sharing::of) {
                Some(Sharing::Levels) => self.by_level(classes, children, &owner, has, report),
                Some(Sharing::Nothing) => vec![0; children.len()],
                Some(Sharing::Weights) | None => {
                    self.by_weight(classes, children, &owner, has, report)
                }
            };
            for (&child, gets) in children.iter().zip(gets) {
                let cap = classes[child].cap.map_or(u64::MAX, |cap| cap.rate.bps());
                entitled[child + 1] = gets.min(cap);
            }
        }
    }

    fn place(&self, child: usize) -> Option<Range<usize>> {
        let class = self.places.get(child)?;
        Some(class.rate.as_ref().unwrap_or(&class.name).span())
    }

    fn by_weight(
        &self,
        classes: &mut [Class],
        children: &[usize],
        owner: &str,
        has: u64,
        report: &mut Report,
    ) -> Vec<u64> {
        let rate = |class: &Class| class.rate.map_or(0, Rate::bps);
        let sum: u64 = children.iter().map(|&child| rate(&classes[child])).sum();
        if sum > has {
            let mut so_far = 0;
            let beyond = children.iter().find(|&&child| {
                so_far += rate(&classes[child]);
                so_far > has
            });
            let place = beyond.and_then(|&child| self.place(child)).unwrap_or(0..0);
            report.error(
                &place,
                format!(
                    "rate: the rates below {owner} add up to {}, more than the {} that it has",
                    shown(sum),
                    shown(has)
                ),
            );
        }
        let claims: Vec<_> = children
            .iter()
            .map(|&child| Claim {
                rate: rate(&classes[child]),
                weight: classes[child].share,
            })
            .collect();
        let parts = divide(has, &claims);
        for (&child, part) in children.iter().zip(&parts) {
            classes[child].weight = part.weight;
            if part.entitled == 0 && sum <= has && self.algorithm != LinkAlgorithm::Cbq {
                let place = self.place(child).unwrap_or(0..0);
                report.warning(
                    &place,
                    format!(
                        "class '{}': the rates below {owner} leave nothing that it could be guaranteed",
                        classes[child].name
                    ),
                );
            }
        }
        parts.iter().map(|part| part.entitled).collect()
    }

    /// A level has what the ceilings of all others that are not below it leave.
    fn by_level(
        &self,
        classes: &[Class],
        children: &[usize],
        owner: &str,
        has: u64,
        report: &mut Report,
    ) -> Vec<u64> {
        let mut by_level: Vec<_> = children.to_vec();
        by_level.sort_by_key(|&child| std::cmp::Reverse(classes[child].level));
        let ceiling = |child: usize| classes[child].cap.map_or(has, |cap| cap.rate.bps());
        let mut taken_above = 0u64;
        let mut gets = HashMap::new();
        for level in by_level.chunk_by(|&a, &b| classes[a].level == classes[b].level) {
            let here = level
                .iter()
                .fold(0, |sum: u64, &child| sum.saturating_add(ceiling(child)));
            for &child in level {
                let others = taken_above.saturating_add(here - ceiling(child));
                gets.insert(child, has.saturating_sub(others));
            }
            taken_above = taken_above.saturating_add(here);
        }
        for &child in children {
            let rate = classes[child].rate.map_or(0, Rate::bps);
            if rate > gets[&child] {
                report.error(
                    &self.place(child).unwrap_or(0..0),
                    format!(
                        "rate: class '{}' is promised {}, and the ceilings of the classes beside and above it leave {} of the {} that {owner} has",
                        classes[child].name,
                        shown(rate),
                        shown(gets[&child]),
                        shown(has)
                    ),
                );
            }
        }
        children.iter().map(|child| gets[child]).collect()
    }
}

/// Bits per second, also below what a rate may be.
fn shown(bps: u64) -> String {
    Rate::from_bps(bps).map_or_else(|| format!("{bps}bit"), |rate| rate.to_string())
}
