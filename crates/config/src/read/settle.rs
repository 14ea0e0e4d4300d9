//! Settling classes among their siblings: weights, guarantees and buffer reservations. Classes of an earlier read are
//! settled again only if they may have changed.

use std::ops::Range;
use std::sync::Arc;

use fairlane_core::bounds::Service;
use fairlane_core::{Length, Rate};

use super::again::Reading;
use super::entitlements::{Basis, Entitlements, bursts};
use super::family::Tree;
use super::rooms::Rooms;
use crate::diagnostic::Report;
use crate::file;
use crate::guarantee::Guarantee;
use crate::list::List;
use crate::services::{Top, granted};
use crate::site::{Class, ClassKind, LinkAlgorithm};

/// Classes, parents first, settled among their siblings.
pub(super) struct Settled {
    pub classes: List<Class>,
    /// The guarantees of each, and the basis for its children; empty if there are errors.
    pub guarantees: List<Guarantee>,
    pub bases: List<Basis>,
}

/// The parent of some classes: the link, or one of its classes.
pub(super) struct Owner<'a> {
    /// Its name in messages.
    pub name: &'a str,
    pub basis: Basis,
    pub top: Top<'a>,
}

impl Owner<'_> {
    pub(super) fn link(
        name: &str,
        algorithm: LinkAlgorithm,
        rate: Rate,
        longest: Length,
    ) -> Owner<'_> {
        Owner {
            name,
            basis: Basis {
                entitled: rate.bps(),
                at_first: Ok(Service::of_link(rate, longest)),
            },
            top: Top::of_link(algorithm, rate, longest),
        }
    }

    /// Settles all classes below, which start as if each was alone; `places` are the tables of those that the file has.
    /// Computes no guarantees if there are more than `errors` errors by then.
    pub(super) fn settle(
        &self,
        mut classes: Vec<Class>,
        places: &[&file::Class],
        shortest: Length,
        errors: usize,
        report: &mut Report,
    ) -> Settled {
        let entitled = Entitlements {
            owner: self.name,
            algorithm: self.top.algorithm,
            places,
        }
        .settle(&mut classes, self.basis.entitled, report);
        if report.errors() > errors {
            return Settled {
                classes: classes.into(),
                guarantees: List::default(),
                bases: List::default(),
            };
        }
        let at_first = self.basis.at_first;
        let (guarantees, at_first) = bursts(&mut classes, places, self.top, at_first, report);
        Rooms { shortest, places }.settle(&mut classes, &guarantees, report);
        let bases = entitled.into_iter().zip(at_first);
        Settled {
            guarantees: granted(guarantees, &classes, shortest).into(),
            classes: classes.into(),
            bases: bases
                .map(|(entitled, at_first)| Basis { entitled, at_first })
                .collect(),
        }
    }
}

/// Returns the former classes of a link, where only the siblings of changed classes, and their descendants, are settled
/// again, and the indices of those. Returns `None` if that is all of them, or if another setting of the link matters.
/// `alone` has each class alone, and whether it was read before, in the order of the file. O(classes), with a small
/// constant, plus the cost of settling.
pub(super) fn again(
    former: &Reading,
    tree: &Tree,
    (alone, known): (&List<Arc<Class>>, &[bool]),
    rate: Rate,
    lengths: (Length, Length),
    report: &mut Report,
) -> Option<(Settled, Vec<Range<usize>>)> {
    let link = &former.link;
    let guarantees = link.found.guarantees.get()?;
    let all = link.classes.len();
    let is_same = Arc::ptr_eq(&former.family, &tree.family)
        && (link.rate, link.longest, link.shortest()) == (rate, lengths.0, lengths.1)
        && matches!(link.algorithm, LinkAlgorithm::Tree(_))
        && (guarantees.len(), former.bases.len()) == (all, all)
        && tree.order.len() <= all;
    if !is_same {
        return None;
    }
    let is_default = |class: &file::Class| class.default.as_ref().is_some_and(|at| *at.value());
    let mut parents = Vec::new();
    for (place, &at) in tree.order.iter().enumerate() {
        if known[at] {
            continue;
        }
        let is_as_long = tree.has_children[at] || alone[at].longest == link.classes[place].longest;
        if is_default(former.link().class[at].value()) != is_default(tree.written[at])
            || !is_as_long
        {
            return None;
        }
        parents.push(link.classes[place].parent?);
    }
    let mut settled = Settled {
        classes: link.classes.clone(),
        guarantees: guarantees.clone(),
        bases: former.bases.clone(),
    };
    let places = below(&settled.classes, parents);
    let written: Vec<_> = tree.order.iter().map(|&at| tree.written[at]).collect();
    let alone = |place: usize| (*alone[tree.order[place]]).clone();
    for places in &places {
        settled.settle_below(places, alone, &written[places.clone()], lengths.1, report)?;
    }
    Some((settled, places))
}

/// Returns the indices of all descendants of these classes, in order, each of them once.
fn below(classes: &List<Class>, mut parents: Vec<usize>) -> Vec<Range<usize>> {
    parents.sort_unstable();
    let mut all: Vec<Range<usize>> = Vec::new();
    for parent in parents {
        if all.last().is_some_and(|last| parent < last.end) {
            continue;
        }
        // A class follows its parent, and precedes all classes outside the parent's subtree.
        let is_below = |class: &&Class| class.parent.is_some_and(|above| above >= parent);
        let behind = classes.within(parent + 1..classes.len());
        let count = behind.take_while(is_below).count();
        all.push(parent + 1..parent + 1 + count);
    }
    all
}

impl Settled {
    /// Settles all descendants of a class again, those at these indices. Returns `None` on an error.
    fn settle_below(
        &mut self,
        places: &Range<usize>,
        alone: impl Fn(usize) -> Class,
        written: &[&file::Class],
        shortest: Length,
        report: &mut Report,
    ) -> Option<()> {
        let first = places.start;
        let above = first.checked_sub(1)?;
        let ClassKind::Inner(algorithm) = self.classes[above].kind else {
            return None;
        };
        let classes = places.clone().map(|place| {
            let Class {
                parent, longest, ..
            } = self.classes[place];
            Class {
                parent: parent.and_then(|parent| parent.checked_sub(first)),
                longest,
                ..alone(place)
            }
        });
        let classes = classes.collect();
        let own = Owner {
            name: &format!("class '{}'", self.classes[above].name),
            basis: self.bases[above],
            top: Top {
                algorithm: LinkAlgorithm::Tree(algorithm),
                service: self.guarantees[above].service,
                path: &Arc::clone(&self.guarantees[above].path),
            },
        }
        .settle(classes, written, shortest, report.errors(), report);
        if own.guarantees.len() != places.len() || own.bases.len() != places.len() {
            return None;
        }
        let classes = own.classes.iter().map(|class| Class {
            parent: Some(class.parent.map_or(above, |parent| parent + first)),
            ..class.clone()
        });
        let promised = own.guarantees.iter().zip(&own.bases);
        for (place, (class, (guarantee, basis))) in places.clone().zip(classes.zip(promised)) {
            self.classes.set(place, class);
            self.guarantees.set(place, guarantee.clone());
            self.bases.set(place, *basis);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests;
