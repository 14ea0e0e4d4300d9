//! One link: its own keys, its classes and its filters.

use std::sync::Arc;

use fairlane_core::tree::TreeError;
use fairlane_core::units::MAX_LENGTH;
use fairlane_core::{DisciplineError, Rate};

use super::again::Reading;
use super::link_control::LinkControl;
use super::surroundings::Surroundings;
use super::{classes, filters, longest, queue, rooms};
use crate::algorithms;
use crate::diagnostic::Report;
use crate::file;
use crate::list::List;
use crate::site::{Found, Like, Link, LinkAlgorithm, Role};
use crate::written::{At, Scalar};

/// Ethernet's preamble, start delimiter, checksum and gap between frames.
const ETHERNET: u32 = 24;

pub(super) fn link(
    at: &Arc<At<file::Link>>,
    to: Role,
    around: &Surroundings,
    former: Option<&Reading>,
    report: &mut Report,
) -> Option<Reading> {
    let written = at.value();
    let (link, mut classes) = unfiltered(written, to, around, former, report)?;
    let rules = filters::read(written, to, &classes, around, former, report);
    let asks_names = match former {
        Some(former) if Arc::ptr_eq(&former.link.rules, &rules) => former.asks_names,
        _ => filters::ask_names(written),
    };
    let like = former
        .zip(classes.again.take())
        .map(|(former, again)| Like::of(&former.link, again));
    let link = Link {
        classes: std::mem::take(&mut classes.classes),
        rules,
        found: Found::of(std::mem::take(&mut classes.guarantees), classes.kept, like),
        ..link?
    };
    // Checks again for errors that were missed above, so that they show here and not in a running link. In an unchanged
    // tree, this can skip the classes that were found valid before.
    let same = former.is_some_and(|former| Arc::ptr_eq(&former.family, &classes.family));
    let known = |place: usize| {
        let at = classes.family.order.get(place);
        at.is_some_and(|&at| classes.known[at])
    };
    let looked_at = |place: usize| !(same && known(place));
    // A link identical to the running one is not stored a second time, and was validated before.
    let runs = around
        .running
        .iter()
        .find(|running| running.says_what(&link));
    if runs.is_none()
        && let Err((class, reason)) = link.check(looked_at)
    {
        let name = &link.classes[class].name;
        let mut tables = written.class.iter().map(|class| class.value());
        let table = tables.find(|table| table.name.value().as_str() == &**name);
        let queue = table.and_then(|table| table.queue.as_deref());
        match (reason, queue) {
            (DisciplineError::Tree(TreeError::Unfit { algorithm, what }), Some(queue)) => report.error(
                &queue.span(),
                format!(
                    "queue: algorithm \"{algorithm}\" cannot order {what} (use \"tail-drop\" or \"red\", or \
                     another algorithm)"
                ),
            ),
            (reason, _) => report.error(
                &table.map_or(&written.name, |table| &table.name).span(),
                format!("class '{name}': {reason}"),
            ),
        }
    }
    Some(Reading {
        written: Arc::clone(at),
        link: runs.map_or_else(|| Arc::new(link), Arc::clone),
        family: classes.family,
        alone: classes.alone,
        bases: classes.bases,
        asks_names,
    })
}

/// Returns a link without its filters and, separately, its classes; no link if only its limit is invalid.
pub(super) fn unfiltered(
    written: &file::Link,
    to: Role,
    around: &Surroundings,
    former: Option<&Reading>,
    report: &mut Report,
) -> Option<(Option<Link>, classes::Classes)> {
    let rate: Option<Rate> = written.rate.read("rate", report);
    let overhead = match &written.overhead {
        Some(at) => overhead(at, report),
        None => Some(0),
    };
    let (longest, longest_by) = longest::read(written, to, around, overhead?, report)?;
    let algorithm = match &written.algorithm {
        Some(text) if text.value() == LinkAlgorithm::CBQ => {
            if let Some(quantum) = &written.quantum {
                algorithms::stray_quantum(quantum, report);
            }
            LinkAlgorithm::Cbq
        }
        name => LinkAlgorithm::Tree(queue::algorithm_of(
            name.as_ref(),
            &[LinkAlgorithm::CBQ],
            written.quantum.as_ref(),
            report,
        )?),
    };
    let shortest = crate::site::shortest(longest, overhead?);
    let limits = rooms::Written::read(written, longest, report);
    let lengths = (longest, shortest);
    let running = around.running.iter().find(|link| link.to == to);
    // A link that was read before already shares its names.
    let named = running.filter(|_| former.is_none());
    let named = named.map_or_else(Vec::new, |link| classes::named(link));
    let link_control = LinkControl::read(written, to, around);
    let of_link = (rate?, algorithm, &link_control);
    let classes = classes::read(written, of_link, lengths, (former, &named), report)?;
    let limits = limits?.settle(written, classes.kept, report);
    let (rate, overhead) = (rate?, overhead?);
    let link = limits.map(|limits| Link {
        name: written.name.value().clone(),
        to,
        rate,
        overhead,
        longest,
        longest_by,
        algorithm,
        limits,
        default: classes.default,
        link_control: classes.link_control,
        classes: List::default(),
        rules: Arc::default(),
        found: Found::default(),
    });
    Some((link, classes))
}

pub(super) fn overhead(at: &At<Scalar>, report: &mut Report) -> Option<u32> {
    let bytes = match at.value() {
        Scalar::Text(text) if text == "ethernet" => Some(ETHERNET),
        Scalar::Text(_) => None,
        Scalar::Number(number) => u32::try_from(*number)
            .ok()
            .filter(|&bytes| bytes < MAX_LENGTH),
    };
    if bytes.is_none() {
        report.error(
            &at.span(),
            format!(
                "overhead '{}': it is a number of bytes from 0 to {}, or \"ethernet\" for {ETHERNET}",
                at.value(),
                MAX_LENGTH - 1
            ),
        );
    }
    bytes
}
