//! The parent of a class decides which of the class's keys apply.

use fairlane_core::sched::{Algorithm, Sharing};

use crate::diagnostic::Report;
use crate::file;
use crate::site::LinkAlgorithm;

/// The kind of parent of a class, which decides which of its keys apply.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Above {
    Node(Algorithm),
    Cbq,
}

impl Above {
    /// Returns the kind of a class without a parent.
    pub(super) fn of_link(algorithm: LinkAlgorithm) -> Above {
        match algorithm {
            LinkAlgorithm::Cbq => Above::Cbq,
            LinkAlgorithm::Tree(algorithm) => Above::Node(algorithm),
        }
    }

    /// Reports keys that do not apply here.
    pub(super) fn check(self, class: &file::Class, has_children: bool, report: &mut Report) {
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
        let sharing = algorithm.sharing();
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
        if let Sharing::Offers(_) = sharing
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
