//! Filters, which map packets to classes.

use std::collections::HashMap;
use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

use fairlane_classify::{Classifier, Match, Rule};
use fairlane_wire::{Dscp, Family, Protocol, VlanId};
use nix::unistd::{Group, User};

use super::again::{Reading, Same};
use super::classes::Classes;
use super::surroundings::Surroundings;
use super::words::word;
use crate::diagnostic::{Report, suggestion};
use crate::file;
use crate::list::List;
use crate::site::{Class, ClassKind, Role};
use crate::unmatched::why;
use crate::written::{At, Scalar, Text};

/// Returns the rules, in the order of the file; reports errors and filters that never match. Rules from the previous
/// read are reused, since that link gave rise to no message.
pub(super) fn read(
    link: &file::Link,
    to: Role,
    classes: &Classes,
    around: &Surroundings,
    former: Option<&Reading>,
    report: &mut Report,
) -> Arc<[Rule<u32>]> {
    let former = former.filter(|former| former.link.to == to);
    let known = former.map(|former| Known::new(former, link, classes));
    if let Some(rules) = known.as_ref().and_then(Known::all) {
        return rules;
    }
    let mut by_name = None;
    let mut rules = Vec::with_capacity(link.filter.len());
    let mut places = Vec::with_capacity(link.filter.len());
    let mut is_another = former.is_none();
    for (at, written) in link.filter.iter().enumerate() {
        let written = written.value();
        if let Some(rule) = known.as_ref().and_then(|known| known.rule(at)) {
            places.push(written);
            rules.push(rule);
            continue;
        }
        is_another = true;
        let by_name = by_name.get_or_insert_with(|| places_of(&classes.classes));
        let target = target(&written.class, classes, by_name, report);
        let priority = match &written.priority {
            Some(priority) => priority.within(
                "priority",
                i64::from(i32::MIN)..i64::from(i32::MAX) + 1,
                report,
            ),
            None => Some(0),
        };
        let matches = matches(written, to, around, report);
        if let (Some(target), Some(priority), Some(matches)) = (target, priority, matches) {
            places.push(written);
            rules.push(Rule {
                priority,
                matches,
                target,
            });
        }
    }
    // Unchanged rules, or fewer of them, were checked before.
    if is_another && !report.failed() {
        warn(&rules, &places, report);
    }
    rules.into()
}

fn places_of(classes: &List<Class>) -> HashMap<&str, u32> {
    let names = classes.iter().map(|class| &*class.name);
    names.zip(0..).collect()
}

/// The results of the previous read of a link's filters.
struct Known<'a> {
    former: &'a Reading,
    filters: Same<'a, At<file::Filter>>,
    classes: Same<'a, At<file::Class>>,
    is: &'a Classes,
    /// The index of each class, by its index in the file.
    places: Vec<u32>,
}

impl<'a> Known<'a> {
    fn new(former: &'a Reading, link: &'a file::Link, is: &'a Classes) -> Known<'a> {
        let mut places = vec![0; is.family.order.len()];
        for (&at, place) in is.family.order.iter().zip(0..) {
            places[at] = place;
        }
        Known {
            filters: Same::of(&former.link().filter, &link.filter),
            classes: Same::of(&former.link().class, &link.class),
            former,
            is,
            places,
        }
    }

    /// Returns all rules, if no filter has changed and all classes have the same indices.
    fn all(&self) -> Option<Arc<[Rule<u32>]>> {
        let same = self.filters.is_whole()
            && Arc::ptr_eq(&self.former.family, &self.is.family)
            && !self.former.asks_names;
        same.then(|| Arc::clone(&self.former.link.rules))
    }

    /// Returns the rule of a filter, if neither the filter nor its class has changed.
    fn rule(&self, at: usize) -> Option<Rule<u32>> {
        let was = self.filters.former(at)?;
        let rule = self.former.link.rules[was];
        if asks_names(self.former.link().filter[was].value()) {
            return None;
        }
        let class = &self.former.link.classes[rule.target as usize];
        // No filter targets an implicit default class.
        let now = self.classes.now(class.number)?;
        let is_leaf = !self.is.family.has_children[now];
        is_leaf.then(|| Rule {
            target: self.places[now],
            ..rule
        })
    }
}

/// Returns whether any filter of a link has names of users or groups, which may by now have other numbers on this
/// machine.
pub(super) fn ask_names(link: &file::Link) -> bool {
    link.filter.iter().any(|at| asks_names(at.value()))
}

/// Returns whether this filter has such a name.
fn asks_names(filter: &file::Filter) -> bool {
    let named = |at: &Option<Box<At<Scalar>>>| {
        let scalar = at.as_ref().map(|at| at.value());
        matches!(scalar, Some(Scalar::Text(_)))
    };
    named(&filter.user) || named(&filter.group)
}

/// Warns of rules that never match.
fn warn(rules: &[Rule<u32>], places: &[&file::Filter], report: &mut Report) {
    for unreachable in Classifier::new(rules.iter().copied()).unreachable() {
        let place = places[unreachable.rule].class.span();
        let by = unreachable.by.iter();
        let by: Vec<_> = by.map(|&by| (by, places[by].class.value())).collect();
        report.warning(&place, format!("this filter never matches: {}", why(&by)));
    }
}

fn target(
    name: &Text,
    classes: &Classes,
    places: &HashMap<&str, u32>,
    report: &mut Report,
) -> Option<u32> {
    let Some(&class) = places.get(name.value().as_str()) else {
        let near = match report.is_full() {
            true => String::new(),
            false => suggestion(name.value(), classes.names()),
        };
        report.error(
            &name.span(),
            format!("class '{}' does not exist in this link{near}", name.value()),
        );
        return None;
    };
    if let ClassKind::Inner(_) = classes.classes[class as usize].kind {
        report.error(
            &name.span(),
            format!(
                "class '{}' has children: packets go to a class without",
                name.value()
            ),
        );
        return None;
    }
    Some(class)
}

/// Reads the match conditions of a filter, or reports the errors.
pub(super) fn matches(
    written: &file::Filter,
    to: Role,
    around: &Surroundings,
    report: &mut Report,
) -> Option<Match> {
    let before = report.errors();
    let matches = Match {
        source: text(&written.source, "source", report),
        destination: text(&written.destination, "destination", report),
        source_port: scalar(&written.source_port, "source-port", report),
        destination_port: scalar(&written.destination_port, "destination-port", report),
        protocol: named(
            written.protocol.as_ref(),
            "protocol",
            &names(&Protocol::NAMES),
            report,
        ),
        dscp: named(
            written.dscp.as_deref(),
            "dscp",
            &names(&Dscp::NAMES),
            report,
        ),
        vlan: written.vlan.as_ref().and_then(|vlan| {
            let id = vlan.within("vlan", 1..4096, report)?;
            VlanId::new(id)
        }),
        fragment: written.fragment.as_ref().map(|fragment| *fragment.value()),
        ingress: ingress(written, to, around, report),
        uid: owner(written.user.as_deref(), "user", report, |name| {
            Ok(User::from_name(name)?.map(|user| user.uid.as_raw()))
        }),
        gid: owner(written.group.as_deref(), "group", report, |name| {
            Ok(Group::from_name(name)?.map(|group| group.gid.as_raw()))
        }),
        pid: written
            .pid
            .as_ref()
            .and_then(|pid| pid.within("pid", 1..i64::from(i32::MAX) + 1, report)),
        family: written.family.as_ref().and_then(|family| {
            word(
                family,
                "family",
                &[("ipv4", Family::V4), ("ipv6", Family::V6)],
                report,
            )
        }),
    };
    for (key, place) in [
        ("user", written.user.as_deref().map(At::span)),
        ("group", written.group.as_deref().map(At::span)),
        ("pid", written.pid.as_deref().map(At::span)),
    ] {
        if let Some(place) = place
            && !around.has(Role::Attached)
        {
            report.warning(
                &place,
                format!("{key}: this filter never matches, without [attach] no process sends"),
            );
        }
    }
    (report.errors() == before).then_some(matches)
}

fn text<T: FromStr<Err: Display>>(
    written: &Option<Text>,
    key: &str,
    report: &mut Report,
) -> Option<T> {
    written.as_ref()?.read(key, report)
}

fn scalar<T: FromStr<Err: Display>>(
    written: &Option<At<Scalar>>,
    key: &str,
    report: &mut Report,
) -> Option<T> {
    named(written.as_ref(), key, &[], report)
}

fn names<T>(names: &[(&'static str, T)]) -> Vec<&'static str> {
    names.iter().map(|&(name, _)| name).collect()
}

/// Parses a number or a name, and suggests the nearest name on an error.
fn named<T: FromStr<Err: Display>>(
    written: Option<&At<Scalar>>,
    key: &str,
    known: &[&str],
    report: &mut Report,
) -> Option<T> {
    let at = written?;
    let text = at.value().to_string();
    match text.parse() {
        Ok(value) => Some(value),
        Err(reason) => {
            let near = suggestion(&text, known.iter().copied());
            report.error(&at.span(), format!("{key} '{text}': {reason}{near}"));
            None
        }
    }
}

fn ingress(
    written: &file::Filter,
    to: Role,
    around: &Surroundings,
    report: &mut Report,
) -> Option<u16> {
    let text = written.ingress.as_ref()?;
    let roles = [Role::Inside, Role::Outside, Role::Tap, Role::Attached];
    let role = word(
        text,
        "ingress",
        &roles.map(|role| (role.name(), role)),
        report,
    )?;
    if !around.has(role) {
        let what = match role {
            Role::Attached => "the file has no [attach]".to_owned(),
            _ => format!("[interfaces] has no '{}'", role.name()),
        };
        report.error(&text.span(), format!("ingress '{}': {what}", role.name()));
    } else if role == to {
        report.warning(
            &text.span(),
            format!(
                "this filter never matches: what leaves by {0} does not come from {0}",
                to.name()
            ),
        );
    }
    Some(role.ingress())
}

/// Parses a number, or the name of a user or group of this machine.
fn owner(
    written: Option<&At<Scalar>>,
    key: &str,
    report: &mut Report,
    find: impl FnOnce(&str) -> nix::Result<Option<u32>>,
) -> Option<u32> {
    let at = written?;
    let name = match at.value() {
        Scalar::Number(number) => {
            let id = u32::try_from(*number).ok();
            if id.is_none() {
                report.error(
                    &at.span(),
                    format!("{key} {number}: it lies between 0 and {}", u32::MAX),
                );
            }
            return id;
        }
        Scalar::Text(name) => name,
    };
    match find(name) {
        Ok(Some(id)) => Some(id),
        Ok(None) => {
            report.error(
                &at.span(),
                format!("{key} '{name}': this machine has no such {key}"),
            );
            None
        }
        Err(reason) => {
            report.error(
                &at.span(),
                format!("{key} '{name}': it cannot be looked up: {reason}"),
            );
            None
        }
    }
}
