//! Grants in addition to a file: their classes follow the file's, their filters precede the file's.

use std::collections::HashMap;
use std::sync::Arc;

use fairlane_classify::Rule;
use fairlane_core::Rate;
use fairlane_core::sched::Sharing;

use super::again::Reading;
use super::filters;
use super::link::unfiltered;
use super::surroundings::Surroundings;
use super::whole::site_again;
use crate::diagnostic::{Report, suggestion};
use crate::file;
use crate::grant::{Broken, Grant};
use crate::guarantee::Guarantee;
use crate::list::List;
use crate::parse::parse;
use crate::services::Hold;
use crate::site::{ClassKind, Found, Link, LinkAlgorithm, MtuOf, Role, Site};
use crate::written::At;

/// A grant in the form of a file's tables.
pub(super) struct Written {
    pub(super) grant: Arc<Grant>,
    pub(super) class: file::Class,
    filters: Vec<Arc<At<file::Filter>>>,
}

impl Written {
    pub(super) fn of(grant: &Arc<Grant>) -> Result<Written, String> {
        let filters = grant.filters.iter().map(|keys| filter(&grant.name, keys));
        Ok(Written {
            grant: Arc::clone(grant),
            class: class(grant, grant.reserved),
            filters: filters.collect::<Result<_, _>>()?,
        })
    }
}

pub(super) fn class(grant: &Grant, rate: Rate) -> file::Class {
    file::Class {
        granted_burst: grant.terms.burst,
        ..file::Class::made(&grant.name, grant.parent.as_deref(), Some(rate))
    }
}

fn made<T>(table: T) -> Arc<At<T>> {
    Arc::new(At::made(table))
}

/// Returns a filter to a class, with precedence over those of any file.
fn filter(class: &str, keys: &str) -> Result<Arc<At<file::Filter>>, String> {
    let text = format!("class = \"\"\n{keys}");
    let mut report = Report::new("", &text);
    let Some(filter) = parse::<file::Filter>(&text, &mut report) else {
        return Err(report.first().unwrap_or_default());
    };
    if filter.priority.is_some() {
        return Err("priority: the filters of grants come before all others".to_owned());
    }
    Ok(made(file::Filter {
        class: At::made(class.to_owned()),
        priority: Some(Box::new(At::made(i64::from(i32::MAX).into()))),
        ..filter
    }))
}

/// Checks whether a grant can be part of a link at all, and has filters that can match some packets; returns the reason
/// if not.
pub(super) fn fits(link: &Link, written: &Written, around: &Surroundings) -> Result<(), String> {
    let parent = written.grant.parent.as_deref();
    let (algorithm, owner) = match (link.algorithm, parent) {
        (LinkAlgorithm::Cbq, _) => {
            return Err(format!(
                "link '{}' is cbq, which promises nothing",
                link.name
            ));
        }
        (LinkAlgorithm::Tree(algorithm), None) => (algorithm, format!("link '{}'", link.name)),
        (_, Some(parent)) => {
            let Some(class) = link.classes.iter().find(|class| &*class.name == parent) else {
                let near = suggestion(parent, link.classes.iter().map(|class| &*class.name));
                return Err(format!(
                    "its parent, class '{parent}', is not in link '{}'{near}",
                    link.name
                ));
            };
            let ClassKind::Inner(algorithm) = class.kind else {
                return Err(format!(
                    "class '{parent}' has no classes below it, and a grant is a part of one that has, \
                     or of the whole link"
                ));
            };
            (algorithm, format!("class '{parent}'"))
        }
    };
    if algorithm.sharing() != Sharing::Weights {
        return Err(format!(
            "below {owner} nothing can be granted, since algorithm \"{}\" does not share by weight",
            algorithm.name()
        ));
    }
    rules(link.to, written, around).map(|_| ())
}

/// Reads the rules of its filters; rejects those that are probably unintended, too.
pub(super) fn rules(
    to: Role,
    written: &Written,
    around: &Surroundings,
) -> Result<Vec<Rule<u32>>, String> {
    let rules = written.filters.iter().map(|filter| {
        let mut report = Report::new("", "");
        let matches = filters::matches(filter.value(), to, around, &mut report);
        match (matches, report.first()) {
            (Some(matches), None) => Ok(Rule {
                priority: 0,
                matches,
                target: 0,
            }),
            (_, sentence) => Err(sentence.unwrap_or_default()),
        }
    });
    rules.collect()
}

/// Returns a valid file with its site, the readings of its links if known, and these grants; or the grants that would
/// be broken.
pub(crate) fn together(
    file: &mut file::File,
    alone: &Site,
    former: &[Reading],
    mtu: MtuOf<'_>,
    grants: &[Arc<Grant>],
) -> Result<Site, Vec<Broken>> {
    let around = Surroundings::of(alone, mtu);
    let mut broken = Vec::new();
    let mut written = Vec::with_capacity(grants.len());
    for grant in grants {
        match look(alone, grant, &around) {
            Ok(one) => written.push(one),
            Err(reason) => broken.push(broken_by(grant, reason)),
        }
    }
    let mut why = String::new();
    if broken.is_empty() {
        let own = add(file, &written);
        let mut report = Report::new("", "");
        match site_again(file, mtu, former, &alone.links, &mut report) {
            Some((site, _)) => match all_kept(&site, grants) {
                Ok(()) => {
                    return Ok(Site {
                        grants: grants.to_vec(),
                        ..site
                    });
                }
                Err(reason) => why = reason,
            },
            None => why = report.first().unwrap_or_default(),
        }
        take_out(file, &own);
    }
    for (at, link) in file.link.iter_mut().zip(&alone.links) {
        let of_link = written.iter().filter(|one| one.grant.link == link.name);
        let of_link: Vec<_> = of_link.collect();
        let mut trial = Trial::of(at, None, link.to, &around);
        trial.sift(&mut Vec::new(), &of_link, &mut broken);
    }
    if broken.is_empty() {
        // The limits that apply to all links together exceed those of each link.
        let all = grants.iter().map(|grant| broken_by(grant, why.clone()));
        broken.extend(all);
    }
    Err(broken)
}

fn broken_by(grant: &Arc<Grant>, reason: String) -> Broken {
    Broken {
        grant: Arc::clone(grant),
        reason,
    }
}

fn look(alone: &Site, grant: &Arc<Grant>, around: &Surroundings) -> Result<Written, String> {
    let Some(link) = alone.link(&grant.link) else {
        return Err("its link is not there".to_owned());
    };
    let written = Written::of(grant)?;
    fits(link, &written, around)?;
    Ok(written)
}

/// Adds grants to a file; returns the numbers of classes and filters added to each link.
fn add(file: &mut file::File, written: &[Written]) -> Vec<(usize, usize)> {
    let mut added = Vec::with_capacity(file.link.len());
    for at in &mut file.link {
        let link = Arc::make_mut(at).value_mut();
        let ours = || {
            let name = link.name.value().clone();
            written.iter().filter(move |one| one.grant.link == name)
        };
        let classes: Vec<_> = ours().map(|one| made(one.class.clone())).collect();
        let filters: Vec<_> = ours().flat_map(|one| one.filters.clone()).collect();
        added.push((classes.len(), filters.len()));
        let end = link.class.len();
        link.class.splice(end..end, classes);
        link.filter.splice(0..0, filters);
    }
    added
}

/// Removes them again.
fn take_out(file: &mut file::File, added: &[(usize, usize)]) {
    for (at, &(classes, filters)) in file.link.iter_mut().zip(added) {
        let link = Arc::make_mut(at).value_mut();
        let end = link.class.len();
        link.class.splice(end - classes..end, []);
        link.filter.splice(0..filters, []);
    }
}

fn all_kept(site: &Site, grants: &[Arc<Grant>]) -> Result<(), String> {
    let mut links = site.links.iter();
    links.try_for_each(|link| {
        let of_link = grants.iter().filter(|grant| grant.link == link.name);
        kept(link, link.kept_guarantees(), of_link)
    })
}

/// Checks whether each of these grants of a link gets its terms; returns the first one's shortfall.
///
/// Delay bounds must hold for any weights. Otherwise the end of another grant, which reduces no share, might break one.
pub(super) fn kept<'a>(
    link: &Link,
    guarantees: &List<Guarantee>,
    grants: impl Iterator<Item = &'a Arc<Grant>>,
) -> Result<(), String> {
    /// Number of grants up to which each is checked separately.
    const FEW: usize = 4;
    let grants: Vec<_> = grants.collect();
    if grants.is_empty() {
        return Ok(());
    }
    let delayed = grants.iter().filter(|grant| grant.terms.delay.is_some());
    let all = (delayed.count() > FEW).then(|| link.guarantees_for(Hold::Whatever));
    let ever = |at: usize| match &all {
        Some(all) => all[at].clone(),
        None => link.guarantee_for(Hold::Whatever, at),
    };
    let classes = link.classes.iter().map(|class| &*class.name);
    let places: HashMap<&str, usize> = classes.zip(0..).collect();
    for grant in grants {
        let Some(&at) = places.get(&*grant.name) else {
            return Err(format!("{} would have no class", grant.name));
        };
        let terms = grant.terms;
        let kept = terms
            .kept_by(&guarantees[at])
            .and_then(|()| match terms.delay {
                Some(_) => terms.in_time(&ever(at)),
                None => Ok(()),
            });
        kept.map_err(|reason| format!("of {}, {reason}", grant.name))?;
    }
    Ok(())
}

#[cfg(test)]
thread_local! {
    /// Number of times that classes were read again.
    pub(super) static READS: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

/// A link's classes, read repeatedly with varying grants.
pub(super) struct Trial<'a> {
    link: &'a mut Arc<At<file::Link>>,
    /// Number of classes that are the file's.
    own: usize,
    to: Role,
    around: &'a Surroundings<'a>,
    /// The last reading, of which only changed parts are read again.
    former: Option<Reading>,
}

impl<'a> Trial<'a> {
    /// Removes the link's filters. It may have been read before.
    pub(super) fn of(
        link: &'a mut Arc<At<file::Link>>,
        former: Option<&Reading>,
        to: Role,
        around: &'a Surroundings<'a>,
    ) -> Trial<'a> {
        let written = Arc::make_mut(link).value_mut();
        written.filter = List::default();
        Trial {
            own: written.class.len(),
            link,
            to,
            around,
            former: former.cloned(),
        }
    }

    /// Returns the link with these classes added, or the reason why that is impossible.
    pub(super) fn with(
        &mut self,
        classes: impl Iterator<Item = file::Class>,
    ) -> Result<Link, String> {
        #[cfg(test)]
        READS.set(READS.get() + 1);
        let written = Arc::make_mut(self.link).value_mut();
        let end = written.class.len();
        written.class.splice(self.own..end, classes.map(made));
        let mut report = Report::new("", "");
        let former = self.former.as_ref();
        let read = unfiltered(written, self.to, self.around, former, &mut report);
        match read {
            Some((Some(link), classes)) if !report.failed() => {
                self.former = Some(Reading {
                    written: Arc::clone(self.link),
                    link: Arc::new(link.clone()),
                    family: classes.family,
                    alone: classes.alone,
                    bases: classes.bases,
                    // The reading has no filters.
                    asks_names: true,
                });
                Ok(Link {
                    classes: classes.classes,
                    found: Found::of(classes.guarantees, classes.kept, None),
                    ..link
                })
            }
            _ => Err(report.first().unwrap_or_default()),
        }
    }

    /// Adds as many further grants as possible to those that are kept, in order.
    fn sift<'b>(
        &mut self,
        keeps: &mut Vec<&'b Written>,
        more: &[&'b Written],
        broken: &mut Vec<Broken>,
    ) {
        if more.is_empty() {
            return;
        }
        let before = keeps.len();
        keeps.extend(more);
        let link = self.with(keeps.iter().map(|one| one.class.clone()));
        let all = link.and_then(|link| {
            kept(
                &link,
                link.kept_guarantees(),
                keeps.iter().map(|one| &one.grant),
            )
        });
        let Err(reason) = all else {
            return;
        };
        keeps.truncate(before);
        if let [one] = more {
            return broken.push(broken_by(&one.grant, reason));
        }
        let (first, last) = more.split_at(more.len() / 2);
        self.sift(keeps, first, broken);
        self.sift(keeps, last, broken);
    }
}
