//! Incremental reads: results of the previous read are looked up by the tables that they came from, which stay shared
//! while they are unchanged.

use std::sync::Arc;

use fairlane_core::Length;

use super::entitlements::Basis;
use super::family::Family;
use crate::file;
use crate::list::List;
use crate::site::{Class, Link, LinkAlgorithm};
use crate::written::At;

/// The results of reading a link.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(super) written: Arc<At<file::Link>>,
    pub(crate) link: Arc<Link>,
    pub(super) family: Arc<Family>,
    /// Each class without regard to its siblings, in the order of the file.
    pub(super) alone: List<Arc<Class>>,
    /// The basis on which the children of each class are settled.
    pub(super) bases: List<Basis>,
    /// Whether a filter has names of users or groups, which may by now have other numbers on this machine.
    pub(super) asks_names: bool,
}

impl Reading {
    /// Returns its tables.
    pub(super) fn link(&self) -> &file::Link {
        self.written.value()
    }

    /// Returns the parents of all classes, if they are the same among these classes.
    pub(super) fn family_of(&self, link: &file::Link) -> Option<Arc<Family>> {
        let (was, is) = (&self.link().class, &link.class);
        let mut places = was.unlike(is)?;
        let same = places.all(|at| {
            Arc::ptr_eq(&was[at], &is[at]) || names(was[at].value()) == names(is[at].value())
        });
        same.then(|| Arc::clone(&self.family))
    }

    /// Returns whether each class alone is the same, and so are the settings of link-layer control and the link's
    /// limit.
    pub(super) fn is_alike(
        &self,
        algorithm: LinkAlgorithm,
        lengths: (Length, Length),
        link: &file::Link,
    ) -> bool {
        let control = |link: &file::Link| link.link_control.as_ref().map(|at| at.value().clone());
        self.link.algorithm == algorithm
            && (self.link.longest, self.link.shortest()) == lengths
            && control(self.link()) == control(link)
            && self.link().limit.is_some() == link.limit.is_some()
    }
}

/// Matches tables with those of a former list: those at the same index, and in lists of different lengths those after
/// the last change.
pub(super) struct Same<'a, T> {
    former: &'a List<Arc<T>>,
    now: &'a List<Arc<T>>,
    first: usize,
    last: usize,
}

impl<'a, T> Same<'a, T> {
    pub(super) fn of(former: &'a List<Arc<T>>, now: &'a List<Arc<T>>) -> Same<'a, T> {
        let (was, is) = (former.len(), now.len());
        let differ = |&at: &usize| !Arc::ptr_eq(&former[at], &now[at]);
        let first = match former.unlike(now) {
            Some(places) => places.filter(differ).min(),
            None => (0..was.min(is)).find(differ),
        };
        let first = first.unwrap_or(was.min(is));
        let from_end = |count: &usize| Arc::ptr_eq(&former[was - count - 1], &now[is - count - 1]);
        Same {
            former,
            now,
            first,
            // In lists of the same length, each table is compared at its index.
            last: match was == is {
                true => 0,
                false => (0..was.min(is) - first).take_while(from_end).count(),
            },
        }
    }

    /// Returns the former index of the table at this index.
    pub(super) fn former(&self, at: usize) -> Option<usize> {
        let (was, is) = (self.former.len(), self.now.len());
        let in_place = || {
            let former = self.former.get(at)?;
            Arc::ptr_eq(former, &self.now[at]).then_some(at)
        };
        match at {
            _ if at < self.first => Some(at),
            _ if was != is && at >= is - self.last => Some(at + was - is),
            _ => in_place(),
        }
    }

    /// Returns the present index of the table that was at this index.
    pub(super) fn now(&self, at: usize) -> Option<usize> {
        let turned = Same {
            former: self.now,
            now: self.former,
            ..*self
        };
        turned.former(at)
    }

    /// Returns whether all tables are the same.
    pub(super) fn is_whole(&self) -> bool {
        self.former.len() == self.now.len() && self.first == self.now.len()
    }
}

/// Returns the name of a class and that of its parent.
fn names(class: &file::Class) -> (&str, Option<&str>) {
    let parent = class.parent.as_ref().map(|parent| parent.value().as_str());
    (class.name.value(), parent)
}
