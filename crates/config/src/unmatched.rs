//! Filters that no packet can match.

use std::fmt;
use std::sync::Arc;

use fairlane_classify::{Classifier, Match, Rule};

use crate::site::{Link, Site};

/// A filter that can never match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmatched {
    /// Its link.
    pub link: String,
    /// Its index among the filters of the link, from 0.
    pub place: usize,
    /// Its target class.
    pub class: Arc<str>,
    /// The filters that match all its packets before, by index, with their target classes; empty if its conditions
    /// contradict one another.
    pub by: Vec<(usize, Arc<str>)>,
}

impl fmt::Display for Unmatched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unmatched {
            link, class, by, ..
        } = self;
        let why = why(by);
        write!(
            f,
            "the filter for class '{class}' of link '{link}' can never match: {why}"
        )
    }
}

/// Formats the reason why a filter can never match: the filters that match all its packets before, each with its class.
/// A filter is named by its index among those of its link, from 0.
pub(crate) fn why(by: &[(usize, impl fmt::Display)]) -> String {
    match by {
        [] => "no packet is all that it asks for".to_owned(),
        [(place, class)] => {
            format!("filter number {place}, for class '{class}', takes all its packets before")
        }
        _ => {
            let places: Vec<_> = by.iter().map(|(place, _)| place.to_string()).collect();
            let places = places.join(", ");
            format!("filters number {places} take all its packets before")
        }
    }
}

impl Site {
    /// Returns the filters of the [text](Site::text) that can never match, whatever grants are in force. O(n log n) in
    /// the filters, plus the cost of [`Classifier::unreachable`].
    #[must_use]
    pub fn unmatched(&self) -> Vec<Unmatched> {
        let links = self.links.iter();
        links.flat_map(|link| self.unmatched_in(link)).collect()
    }

    fn unmatched_in(&self, link: &Link) -> Vec<Unmatched> {
        // The filters of grants have precedence.
        let granted = self.granted_filters(&link.name);
        let rules: &[Rule<u32>] = &link.rules[granted..];
        let class = |place: usize| Arc::clone(&link.classes[rules[place].target as usize].name);
        let unmatched = |place, by: Vec<usize>| Unmatched {
            link: link.name.clone(),
            place,
            class: class(place),
            by: by.into_iter().map(|by| (by, class(by))).collect(),
        };
        let covered = Classifier::new(rules.iter().copied()).unreachable();
        let covered = covered.into_iter().map(|one| unmatched(one.rule, one.by));
        let unsent = (0..rules.len()).filter(|&place| !self.sends(&rules[place].matches, link));
        let unsent = unsent.map(|place| unmatched(place, Vec::new()));
        let mut all: Vec<Unmatched> = unsent.chain(covered).collect();
        all.sort_by_key(|one| one.place);
        all.dedup_by_key(|one| one.place);
        all
    }

    /// Returns whether packets that match the filter can leave by the link at all.
    fn sends(&self, matches: &Match, link: &Link) -> bool {
        let of_process = matches.uid.is_some() || matches.gid.is_some() || matches.pid.is_some();
        let processes = self.attach.is_some() || self.interfaces.is_none();
        matches.ingress != Some(link.to.ingress()) && (processes || !of_process)
    }
}
