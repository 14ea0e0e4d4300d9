//! The classes of a link.

use std::ops::Range;
use std::sync::Arc;

use fairlane_core::room::Room;
use fairlane_core::sched::{Algorithm, Sharing};
use fairlane_core::tree::cbq;
use fairlane_core::{Length, Nanos, Rate, Weight};

use super::above::Above;
use super::again::{Reading, Same};
use super::entitlements::Basis;
use super::family::{DEFAULT, Family, Tree};
use super::link_control::LinkControl;
use super::longest;
use super::queue::{self, DEFAULT_ALGORITHM};
use super::settle::{self, Owner, Settled};
use super::words::Names;
use crate::algorithms;
use crate::diagnostic::Report;
use crate::file;
use crate::guarantee::Guarantee;
use crate::list::List;
use crate::reservation::kept;
use crate::site::{Ceiling, Class, ClassKind, Flows, Link, LinkAlgorithm};
use crate::units::Time;
use crate::written::{At, Text};

/// Default limit on the flows of a class.
const FLOWS: u32 = 1 << 16;
const MOST_FLOWS: i64 = 4_000_000;
const FORGET: Nanos = Nanos::from_millis(10_000);
const MOST_LEVEL: i64 = 255;
const MOST_CBQ_LEVEL: i64 = cbq::PRIORITIES as i64 - 1;
/// Packets that a class of CBQ sends back to back after a silence, as in ALTQ.
const CBQ_BURST: u32 = 16;

/// A link's classes, parents first.
pub(super) struct Classes {
    pub classes: List<Class>,
    pub default: u32,
    pub link_control: Option<u32>,
    /// The total buffer reservation of all classes: packets and bytes.
    pub kept: (u64, u64),
    pub family: Arc<Family>,
    /// Each class without regard to its siblings, in the order of the file.
    pub alone: List<Arc<Class>>,
    /// Whether each was read before.
    pub known: Vec<bool>,
    /// The guarantees of each class.
    pub guarantees: List<Guarantee>,
    /// The basis on which the children of each class are settled.
    pub bases: List<Basis>,
    /// The ranges of classes that may differ from the classes at the same indices in the previous read; `None` if the
    /// indices differ.
    pub again: Option<Vec<Range<usize>>>,
}

impl Classes {
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.classes.iter().map(|class| &*class.name)
    }
}

/// Reads the classes of a link, or reports the errors.
pub(super) fn read(
    link: &file::Link,
    (rate, algorithm, link_control): (Rate, LinkAlgorithm, &LinkControl<'_>),
    (longest, shortest): (Length, Length),
    (former, named): (Option<&Reading>, &[Option<&Arc<str>>]),
    report: &mut Report,
) -> Option<Classes> {
    let before = report.errors();
    let family = former.and_then(|former| former.family_of(link));
    if family.is_none() {
        let mut names = Names::new("class");
        for at in link.class.iter() {
            names.insert(&at.value().name, report);
        }
    }
    let tree = Tree::of(link, family, report)?;
    let lengths = (longest, shortest);
    let former = former.filter(|former| former.is_alike(algorithm, (longest, shortest), link));
    let (alone, known) = alone(&tree, link, lengths, algorithm, (former, named), report);
    if let Some(former) = former.filter(|_| report.errors() == before)
        && let Some((settled, again)) =
            settle::again(former, &tree, (&alone, &known[..]), rate, lengths, report)
    {
        return Some(Classes {
            kept: kept_again(&former.link, &settled.classes, &again),
            classes: settled.classes,
            default: former.link.default,
            link_control: former.link.link_control,
            family: tree.family,
            alone,
            known,
            guarantees: settled.guarantees,
            bases: settled.bases,
            again: Some(again),
        });
    }
    let default = tree.default(report);
    let control = link_control.find(&tree, report);
    if report.errors() > before {
        return None;
    }
    let (mut classes, numbers) = placed(&tree, &alone);
    let is_default_made = default.is_none();
    let control = control.map(|at| numbers[at]).or_else(|| {
        let made = link_control.made(&tree, &classes, (rate, algorithm), lengths, report);
        made.map(|class| added(&mut classes, class))
    });
    let default = default.map(|at| numbers[at]).unwrap_or_else(|| {
        let made = made(algorithm, (rate, longest), &classes, link, report);
        added(&mut classes, made)
    });
    let places: Vec<_> = tree.order.iter().map(|&at| tree.written[at]).collect();
    let name = format!("link '{}'", link.name.value());
    let owner = Owner::link(&name, algorithm, rate, longest);
    let Settled {
        classes,
        guarantees,
        bases,
    } = owner.settle(classes, &places, shortest, before, report);
    if is_default_made {
        warn_of_default(link, &classes, default, algorithm, report);
    }
    // Any of them may differ, but all indices are the same.
    let link_control = control.map(|place| place as u32);
    let same = former.filter(|former| {
        let was = &former.link;
        Arc::ptr_eq(&former.family, &tree.family)
            && (was.default as usize, was.link_control) == (default, link_control)
            && was.classes.len() == classes.len()
    });
    let again = same.map(|_| std::iter::once(0..classes.len()).collect());
    (report.errors() == before).then_some(Classes {
        default: default as u32,
        link_control,
        kept: kept(&classes),
        classes,
        family: tree.family,
        alone,
        known,
        guarantees,
        bases,
        again,
    })
}

/// Adds a class that is not in the file, and returns its index.
fn added(classes: &mut Vec<Class>, class: Class) -> usize {
    classes.push(class);
    classes.len() - 1
}

/// Updates the total buffer reservation of a link's classes after those at some indices changed.
fn kept_again(former: &Link, classes: &List<Class>, again: &[Range<usize>]) -> (u64, u64) {
    let places = || again.iter().cloned();
    let was = kept(places().flat_map(|places| former.classes.within(places)));
    let is = kept(places().flat_map(|places| classes.within(places)));
    let (packets, bytes) = former.kept();
    (packets - was.0 + is.0, bytes - was.1 + is.1)
}

/// Returns the classes, each after its parent, and the index of each by its index in the file.
fn placed(tree: &Tree, alone: &List<Arc<Class>>) -> (Vec<Class>, Vec<usize>) {
    let mut classes = Vec::with_capacity(tree.order.len() + 1);
    let mut numbers = vec![0; tree.written.len()];
    for &at in &tree.order {
        numbers[at] = classes.len();
        classes.push(Class {
            parent: tree.parents[at].map(|parent| numbers[parent]),
            ..(*alone[at]).clone()
        });
    }
    // Children come after their parents.
    let mut most: Vec<Option<Length>> = vec![None; classes.len()];
    for at in (0..classes.len()).rev() {
        let class = &mut classes[at];
        class.longest = most[at].unwrap_or(class.longest);
        if let Some(parent) = class.parent {
            most[parent] = most[parent].max(Some(class.longest));
        }
    }
    (classes, numbers)
}

/// Returns the names of the classes of a link, in the order of the file.
pub(super) fn named(link: &Link) -> Vec<Option<&Arc<str>>> {
    let mut names = vec![None; link.classes.len()];
    for class in &link.classes {
        if let Some(name) = names.get_mut(class.number) {
            *name = Some(&class.name);
        }
    }
    names
}

/// Returns each class without regard to its siblings, in the order of the file, and whether it was read before. Its
/// name is shared with the former class, or with the class in `named`, if it is the same.
fn alone(
    tree: &Tree,
    link: &file::Link,
    lengths: (Length, Length),
    algorithm: LinkAlgorithm,
    (former, named): (Option<&Reading>, &[Option<&Arc<str>>]),
    report: &mut Report,
) -> (List<Arc<Class>>, Vec<bool>) {
    let mut read = |at| {
        let mut class = class(tree, at, lengths, algorithm, report)?;
        // The name outlives all other memory used for a change: new copies would keep much of that from being returned
        // to the system.
        let was = former.and_then(|former| former.alone.get(at));
        let name = was.map(|was| &was.name).or(*named.get(at).unwrap_or(&None));
        if let Some(name) = name.filter(|name| **name == class.name) {
            class.name = Arc::clone(name);
        }
        Some(Arc::new(class))
    };
    let places = 0..tree.written.len();
    if let Some(former) = former
        && let Some(known) = known_in_place(former, tree, link)
    {
        let mut alone = former.alone.clone();
        for at in places.filter(|&at| !known[at]) {
            if let Some(class) = read(at) {
                alone.set(at, class);
            }
        }
        return (alone, known);
    }
    let same = former.map(|former| (former, Same::of(&former.link().class, &link.class)));
    let was = places.clone().map(|at| {
        let (former, same) = same.as_ref()?;
        let was = same.former(at)?;
        let parent = match tree.parents[at] {
            // The parent decides which of its keys apply.
            Some(parent) => Some(same.former(parent)?),
            None => None,
        };
        let alike = former.family.parents[was] == parent
            && former.family.has_children[was] == tree.has_children[at];
        alike.then_some((was, &former.alone))
    });
    let was: Vec<_> = was.collect();
    let known = was.iter().map(Option::is_some).collect();
    let alone = places.filter_map(|at| match was[at] {
        Some((was, alone)) if was == at => Some(Arc::clone(&alone[was])),
        Some((was, alone)) => Some(Arc::new(Class {
            number: at,
            ..(*alone[was]).clone()
        })),
        None => read(at),
    });
    (List::from(alone.collect::<Vec<_>>()), known)
}

/// Returns which classes were read before with the same index and parent.
fn known_in_place(former: &Reading, tree: &Tree, link: &file::Link) -> Option<Vec<bool>> {
    let (was, is) = (&former.link().class, &link.class);
    let others = was.unlike(is)?;
    if !Arc::ptr_eq(&former.family, &tree.family) || former.alone.len() != is.len() {
        return None;
    }
    let mut known = vec![true; is.len()];
    for at in others.filter(|&at| !Arc::ptr_eq(&was[at], &is[at])) {
        known[at] = false;
        if tree.has_children[at] {
            // The parent decides which of its keys apply.
            for (parent, known) in tree.parents.iter().zip(&mut known) {
                *known &= *parent != Some(at);
            }
        }
    }
    Some(known)
}

/// Warns of an implicit default class that takes part of the rate shared by the file's weights.
fn warn_of_default(
    link: &file::Link,
    classes: &List<Class>,
    default: usize,
    algorithm: LinkAlgorithm,
    report: &mut Report,
) {
    let LinkAlgorithm::Tree(algorithm) = algorithm else {
        return;
    };
    if algorithm.sharing() != Sharing::Weights {
        return;
    }
    let top = || classes.iter().filter(|class| class.parent.is_none());
    let shares: u64 = top().map(|class| u64::from(class.share)).sum();
    let own = u64::from(classes[default].share);
    // If no other class has a weight, the default class is meant to get the rest.
    if shares == own || own * 10 < shares {
        return;
    }
    let weights: u64 = top().map(|class| u64::from(class.weight.get())).sum();
    let percent = 100 * u64::from(classes[default].weight.get()) / weights;
    report.warning(
        &link.name.span(),
        format!(
            "link '{}': packets that no filter matches are of a class 'default' that is made for \
             them with weight 1, and is guaranteed {percent}% of the link; give a class 'default = \
             true', or write one of that name",
            link.name.value()
        ),
    );
}

/// Returns the implicit default class. In CBQ it has the rate that is left.
fn made(
    algorithm: LinkAlgorithm,
    (link_rate, longest): (Rate, Length),
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
        name: Arc::from(DEFAULT),
        number: classes.len(),
        parent: None,
        rate,
        ceiling: None,
        longest,
        arrival_burst: longest.get(),
        weight: Weight::ONE,
        scale: 1,
        share: 1,
        level: 0,
        borrow: algorithm == LinkAlgorithm::Cbq,
        cbq_burst: CBQ_BURST,
        kind: ClassKind::Leaf(queue::plain_queue(Above::of_link(algorithm), longest)),
    }
}

/// Reads the arrival burst; the longest packet if neither the file nor a grant has a burst.
fn arrival_burst(written: &file::Class, longest: Length, report: &mut Report) -> Option<u64> {
    let most = u64::from(u32::MAX);
    match (&written.arrival_burst, written.granted_burst) {
        (Some(burst), _) => queue::at_least(burst, "arrival-burst", longest, most, report),
        (None, granted) => Some(granted.unwrap_or(0).clamp(longest.get().into(), most)),
    }
}

fn ceiling_above_rate(
    written: &file::Class,
    rate: Option<Rate>,
    ceiling: Option<Ceiling>,
    report: &mut Report,
) {
    if let (Some(rate), Some(ceiling), Some(ceil)) = (rate, ceiling, &written.ceil)
        && ceiling.rate < rate
    {
        let (name, ceil_text) = (written.name.value(), ceil.value());
        report.error(
            &ceil.span(),
            format!("ceil '{ceil_text}': less than the rate of class '{name}', {rate}"),
        );
    }
}

fn class(
    tree: &Tree,
    at: usize,
    lengths: (Length, Length),
    link: LinkAlgorithm,
    report: &mut Report,
) -> Option<Class> {
    let written = tree.written[at];
    let name = written.name.value();
    let longest = match &written.longest {
        Some(longest) => longest::of_class(longest, lengths, report)?,
        None => lengths.0,
    };
    let above = match (link, tree.parents[at]) {
        (LinkAlgorithm::Cbq, _) | (_, None) => Above::of_link(link),
        (_, Some(parent)) => Above::Node(match &tree.written[parent].algorithm {
            // Its errors are reported at its own table.
            Some(text) => algorithms::named(text.value())?,
            None => DEFAULT_ALGORITHM,
        }),
    };
    let rate: Option<Rate> = written
        .rate
        .as_ref()
        .and_then(|rate| rate.read("rate", report));
    let arrival_burst = arrival_burst(written, longest, report);
    let in_cbq = link == LinkAlgorithm::Cbq;
    let ceiling = match in_cbq {
        true => None,
        false => ceiling(&written.ceil, written.burst.as_deref(), longest, report),
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
    ceiling_above_rate(written, rate, ceiling, report);
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
        (false, None) => leaf(written, (above, longest), link, report),
    };
    if let (LinkAlgorithm::Tree(_), Some(borrow)) = (link, &written.borrow) {
        report.error(
            &borrow.span(),
            "borrow: only a link of algorithm \"cbq\" has it",
        );
    }
    Some(Class {
        name: Arc::from(&**name),
        number: at,
        parent: None,
        rate,
        ceiling,
        longest,
        arrival_burst: arrival_burst? as u32,
        weight: Weight::ONE,
        scale: 1,
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

fn inner(class: &file::Class, link: LinkAlgorithm, report: &mut Report) -> Option<ClassKind> {
    let name = class.name.value();
    let own = [
        (
            "limit",
            class.limit.as_deref().map(At::span),
            "waits in those",
        ),
        (
            "room",
            class.room.as_deref().map(At::span),
            "waits in those",
        ),
        (
            "queue",
            class.queue.as_deref().map(At::span),
            "waits in those",
        ),
        (
            "longest",
            class.longest.as_deref().map(At::span),
            "theirs counts",
        ),
        (
            "arrival-burst",
            class.arrival_burst.as_deref().map(At::span),
            "theirs counts",
        ),
        (
            "per",
            class.per.as_deref().map(At::span),
            "a class has either children or flows",
        ),
    ];
    for (key, place, why) in own {
        if let Some(place) = place {
            let why = match key {
                "per" | "longest" | "arrival-burst" => why.to_owned(),
                _ => format!("what is in it {why}"),
            };
            report.error(
                &place,
                format!("{key}: class '{name}' has children, and {why}"),
            );
        }
    }
    stray_flows(class, report);
    Some(ClassKind::Inner(own_algorithm(class, link, report)?))
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
        (name, _) => queue::algorithm_of(name.as_deref(), &[], class.quantum.as_deref(), report),
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
    (above, longest): (Above, Length),
    link: LinkAlgorithm,
    report: &mut Report,
) -> Option<ClassKind> {
    stray_flows(class, report);
    if let (Some(text), LinkAlgorithm::Tree(_)) = (&class.algorithm, link) {
        report.error(
            &text.span(),
            format!(
                "algorithm: class '{}' has neither children nor flows to choose among",
                class.name.value()
            ),
        );
    } else if let (Some(quantum), LinkAlgorithm::Tree(_)) = (&class.quantum, link) {
        let sentence = format!(
            "quantum: class '{}' has neither children nor flows to choose among",
            class.name.value()
        );
        report.error(&quantum.span(), sentence);
    } else {
        own_algorithm(class, link, report)?;
    }
    queue::queue(class, above, longest, report).map(ClassKind::Leaf)
}

fn flows(
    class: &file::Class,
    per: &Text,
    longest: Length,
    report: &mut Report,
) -> Option<ClassKind> {
    let per = per.read("per", report);
    let (name, quantum) = (class.algorithm.as_deref(), class.quantum.as_deref());
    let algorithm = queue::algorithm_of(name, &[], quantum, report);
    let order = Above::Node(algorithm.unwrap_or(DEFAULT_ALGORITHM));
    let queue = queue::queue(class, order, longest, report);
    let given = class.flows.as_deref().map(At::value);
    let most = match given.and_then(|flows| flows.most.as_ref()) {
        Some(most) => most.within("most", 1..MOST_FLOWS + 1, report),
        None => Some(FLOWS),
    };
    let forget = match given.and_then(|flows| flows.forget.as_ref()) {
        Some(forget) => forget.read("forget", report).map(|time: Time| time.0),
        None => Some(FORGET),
    };
    let ceiling =
        given.and_then(|flows| ceiling(&flows.ceil, flows.burst.as_ref(), longest, report));
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
    Some(ClassKind::Flows(Box::new(Flows {
        per: per?,
        algorithm: algorithm?,
        most: most?,
        forget_after: forget?,
        ceiling,
        room: Room::NONE,
        aqm_floor: Room::NONE,
        queue: queue?,
    })))
}

/// Reads the ceiling, if it is valid.
fn ceiling(
    ceil: &Option<Text>,
    burst: Option<&Text>,
    longest: Length,
    report: &mut Report,
) -> Option<Ceiling> {
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
    Some(Ceiling {
        rate: rate?,
        burst: burst? as u32,
    })
}

/// Reads a burst of CBQ, which counts packets.
fn cbq_burst(burst: &Text, longest: Length, report: &mut Report) -> Option<u32> {
    let most = u64::from(longest.get()) * u64::from(cbq::Bursts::MOST);
    let bytes = queue::at_least(burst, "burst", longest, most, report)?;
    Some((bytes / u64::from(longest.get())) as u32)
}

/// Returns the bytes of 10 ms at a rate, and two packets.
fn default_burst(rate: Rate, longest: Length) -> u64 {
    (rate.bps() / 800 + 2 * u64::from(longest.get())).min(u32::MAX.into())
}
