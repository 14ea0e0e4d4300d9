//! The rate to which each class is entitled.

use std::collections::HashMap;
use std::ops::Range;

use fairlane_core::Rate;
use fairlane_core::bounds::Service;
use fairlane_core::sched::{Algorithm, Sharing};

use crate::diagnostic::Report;
use crate::file;
use crate::guarantee::{Guarantee, NoGuarantee};
use crate::services::{Served, Top, walk};
use crate::shares::{Claim, divide, scale};
use crate::site::{Class, ClassKind, LinkAlgorithm};
use crate::units::Size;

/// The entitlement and the service of a class, as far as its children depend on them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Basis {
    /// Its rate in bit/s.
    pub entitled: u64,
    /// Its service before default bursts are increased.
    pub at_first: Result<Service, NoGuarantee>,
}

/// Increases default bursts as far as the guarantees require, and reports configured bursts that are too short. The
/// parent's service may differ from `at_first`. Returns each class's guarantees, except those that depend on its buffer
/// reservation, and its service at first.
pub(super) fn bursts(
    classes: &mut [Class],
    places: &[&file::Class],
    top: Top<'_>,
    at_first: Result<Service, NoGuarantee>,
    report: &mut Report,
) -> (Vec<Guarantee>, Vec<Result<Service, NoGuarantee>>) {
    let mut needed = vec![0; classes.len()];
    let mut need = |at: usize, class: &Class, served: Served| {
        if let Some(ceiling) = class.ceiling {
            let rate = class.rate.unwrap_or(ceiling.rate);
            needed[at] = served.free.burst_for(rate, class.longest);
        }
    };
    let mut longer = at_first != top.service;
    let before = Top {
        service: at_first,
        ..top
    };
    let mut guarantees = walk(before, classes, |at, class, served| {
        if let (Some(ceiling), Some(None)) =
            (&mut class.ceiling, places.get(at).map(|place| &place.burst))
        {
            let before = ceiling.burst;
            let (rate, longest) = (ceiling.rate, class.longest);
            ceiling.burst = before
                .max(served.free.burst_for(rate, longest))
                .max(served.conforming_burst(rate, longest));
            longer |= ceiling.burst > before;
        }
        need(at, class, served);
    });
    let services = guarantees.iter().map(|guarantee| guarantee.service);
    let services = services.collect();
    if longer {
        guarantees = walk(top, classes, |at, class, served| {
            need(at, class, served);
        });
    }
    for (at, guarantee) in guarantees.iter().enumerate() {
        // A class that is not in the file has no setting to report.
        let (Some(rate), Some(place)) = (classes[at].rate, places.get(at)) else {
            continue;
        };
        let gets = match guarantee.rate {
            Ok(gets) => gets,
            Err(NoGuarantee::Burst) => 0,
            Err(_) => continue,
        };
        // Rounding to whole weights costs less than this, except in the largest of nodes.
        if gets >= rate.bps() - rate.bps() / 1000 {
            continue;
        }
        let why = match classes[at].ceiling {
            Some(ceiling) if ceiling.burst < needed[at] => format!(
                "its burst of {} is too short to wait for others, {} would do",
                Size(ceiling.burst.into()),
                Size(needed[at].into())
            ),
            _ => "weights are whole numbers up to 1000000, or a class above it has less".to_owned(),
        };
        report.warning(
            &place.burst.as_deref().unwrap_or(&place.name).span(),
            format!(
                "class '{}' is guaranteed {} of its {rate}: {why}",
                classes[at].name,
                shown(gets)
            ),
        );
    }
    (guarantees, services)
}

/// The entitlements of classes, by weights and configured rates.
pub(super) struct Entitlements<'a> {
    /// The name of the parent of classes without a parent among these, as used in messages.
    pub owner: &'a str,
    /// The scheduling algorithm among them.
    pub algorithm: LinkAlgorithm,
    /// The tables of the classes that are in the file.
    pub places: &'a [&'a file::Class],
}

impl Entitlements<'_> {
    /// Gives all classes weights, or reports the rates that cannot be guaranteed. `has` is the rate, in bit/s, of the
    /// parent of those without a parent. Returns each class's entitlement.
    pub(super) fn settle(&self, classes: &mut [Class], has: u64, report: &mut Report) -> Vec<u64> {
        let mut siblings: Vec<Vec<usize>> = vec![Vec::new(); classes.len() + 1];
        for (at, class) in classes.iter().enumerate() {
            siblings[class.parent.map_or(0, |parent| parent + 1)].push(at);
        }
        let mut entitled = vec![has; classes.len() + 1];
        for (parent, children) in siblings.iter().enumerate() {
            if children.is_empty() {
                continue;
            }
            let has = entitled[parent];
            let above = parent.checked_sub(1).map(|parent| &classes[parent]);
            let owner = match above {
                Some(class) => format!("class '{}'", class.name),
                None => self.owner.to_owned(),
            };
            let algorithm = match (self.algorithm, above.map(|class| &class.kind)) {
                (LinkAlgorithm::Cbq, _) => None,
                (LinkAlgorithm::Tree(algorithm), None) => Some(algorithm),
                (_, Some(ClassKind::Inner(algorithm))) => Some(*algorithm),
                (_, Some(_)) => unreachable!("{owner} has children"),
            };
            let gets = match algorithm.map(Algorithm::sharing) {
                Some(Sharing::Levels) => self.by_level(classes, children, &owner, has, report),
                Some(Sharing::Offers(_)) => vec![0; children.len()],
                Some(Sharing::Weights) | None => {
                    self.by_weight(classes, children, &owner, has, report)
                }
            };
            for (&child, gets) in children.iter().zip(gets) {
                let ceiling = classes[child]
                    .ceiling
                    .map_or(u64::MAX, |ceiling| ceiling.rate.bps());
                entitled[child + 1] = gets.min(ceiling);
            }
        }
        entitled.split_off(1)
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
        let scale = scale(&parts);
        for (&child, part) in children.iter().zip(&parts) {
            classes[child].weight = part.weight;
            classes[child].scale = scale;
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

    /// Returns the entitlements of children with priority levels: each gets the rate that the ceilings of its peers and
    /// of all higher levels leave.
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
        let ceiling = |child: usize| {
            classes[child]
                .ceiling
                .map_or(has, |ceiling| ceiling.rate.bps())
        };
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

/// Formats a rate in bit/s, even one below the smallest valid rate.
fn shown(bps: u64) -> String {
    Rate::from_bps(bps).map_or_else(|| format!("{bps}bit"), |rate| rate.to_string())
}
