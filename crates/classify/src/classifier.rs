//! The first rule that a packet matches.

use alloc::vec::Vec;
use core::cmp::Reverse;
use core::hint::black_box;

use crate::cover;
use crate::pattern::{Pattern, V4, V4_ORIGIN, V6, V6_ORIGIN, key};
use crate::space::Space;
use crate::words::Asked;
use crate::{Origin, Rule};
use fairlane_wire::{Family, Headers};

/// The result of [`Classifier::classify`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hit<T = u32> {
    /// The rule, by its place in the list that the classifier was made of.
    pub rule: usize,
    /// The rule's target.
    pub target: T,
}

/// A rule that no packet ever reaches.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Unreachable {
    /// The rule, by its place in the list.
    pub rule: usize,
    /// Rules before it that take all its packets. None: it contradicts itself.
    pub by: Vec<usize>,
}

/// The worst-case cost of the search for a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Effort {
    /// Tables that a packet is looked up in.
    pub tables: usize,
    /// Rules that it is compared with.
    pub comparisons: usize,
}

/// Entries of a table that are in a cache in any case: 12 KiB of IPv4.
const NEAR: usize = 256;

/// Where a look-up begins: a slot of the first table, then an entry of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begin {
    family: Family,
    place: usize,
}

/// Many rules, made ready to be searched.
///
/// # Cost
///
/// One look-up in each table of a list of rules, and a comparison with the rules that share all bits that can be hashed
/// ([`Effort`]): 25 to 65 ns a packet for usual lists of 10 to 10,000 rules. `docs/internals/classifier.md` has the
/// figures.
#[derive(Clone, Debug)]
pub struct Classifier<T = u32> {
    rules: usize,
    asks_ports: bool,
    v4: Words<T, V4, V4_ORIGIN>,
    v6: Words<T, V6, V6_ORIGIN>,
    other: Words<T, V4, V4_ORIGIN>,
}

/// The rules that concern one family, in as many words as they need: most lists do not ask
/// where a packet came from.
#[derive(Clone, Debug)]
enum Words<T, const HEADERS: usize, const ORIGIN: usize> {
    Headers(Ranked<T, HEADERS>),
    Origin(Ranked<T, ORIGIN>),
}

impl<T: Copy, const HEADERS: usize, const ORIGIN: usize> Words<T, HEADERS, ORIGIN> {
    fn new(rules: &[Rule<T>], order: &[usize], family: Family) -> Self {
        if rules.iter().any(|rule| rule.matches.asks_origin()) {
            Words::Origin(Ranked::new(rules, order, family))
        } else {
            Words::Headers(Ranked::new(rules, order, family))
        }
    }

    #[inline]
    fn first(&self, headers: &Headers, origin: &Origin) -> Option<Hit<T>> {
        match self {
            Words::Headers(rules) => rules.first(headers, origin),
            Words::Origin(rules) => rules.first(headers, origin),
        }
    }

    #[inline]
    fn target(&self, headers: &Headers, origin: &Origin) -> Option<T> {
        match self {
            Words::Headers(rules) => rules.target(headers, origin),
            Words::Origin(rules) => rules.target(headers, origin),
        }
    }

    #[inline]
    fn first_entries(&self) -> usize {
        match self {
            Words::Headers(rules) => rules.space.first_entries(),
            Words::Origin(rules) => rules.space.first_entries(),
        }
    }

    #[inline]
    fn first_slot(&self, headers: &Headers, origin: &Origin) -> usize {
        match self {
            Words::Headers(rules) => rules.space.first_slot(&key(headers, origin)),
            Words::Origin(rules) => rules.space.first_slot(&key(headers, origin)),
        }
    }

    #[inline]
    fn first_entry(&self, first_slot: usize) -> usize {
        match self {
            Words::Headers(rules) => rules.space.first_entry(first_slot),
            Words::Origin(rules) => rules.space.first_entry(first_slot),
        }
    }

    #[inline]
    fn touch(&self, first_entry: usize) -> u64 {
        match self {
            Words::Headers(rules) => rules.space.touch(first_entry),
            Words::Origin(rules) => rules.space.touch(first_entry),
        }
    }

    fn asked(&self, origin: &Origin) -> Vec<(Asked, T)> {
        match self {
            Words::Headers(rules) => rules.asked(origin),
            Words::Origin(rules) => rules.asked(origin),
        }
    }

    fn covered(&self, known: &mut [Known]) {
        match self {
            Words::Headers(rules) => rules.covered(known),
            Words::Origin(rules) => rules.covered(known),
        }
    }

    fn effort(&self) -> Effort {
        match self {
            Words::Headers(rules) => rules.space.effort(),
            Words::Origin(rules) => rules.space.effort(),
        }
    }
}

/// The rules that concern one family, by precedence.
#[derive(Clone, Debug)]
struct Ranked<T, const N: usize> {
    space: Space<T, N>,
    /// The place of each, by rank.
    places: Vec<u32>,
}

impl<T: Copy, const N: usize> Ranked<T, N> {
    fn new(rules: &[Rule<T>], order: &[usize], family: Family) -> Self {
        let (patterns, (places, targets)): (Vec<_>, (_, Vec<T>)) = order
            .iter()
            .filter_map(|&rule| {
                let pattern = Pattern::new(&rules[rule].matches, family)?;
                Some((pattern, (rule as u32, rules[rule].target)))
            })
            .unzip();
        let space = Space::new(&patterns, &targets);
        Ranked { space, places }
    }

    #[inline]
    fn first(&self, headers: &Headers, origin: &Origin) -> Option<Hit<T>> {
        let (rank, target) = self.space.first(&key(headers, origin))?;
        let rule = self.places[rank] as usize;
        Some(Hit { rule, target })
    }

    /// Returns the target of the first match.
    #[inline]
    fn target(&self, headers: &Headers, origin: &Origin) -> Option<T> {
        let (_, target) = self.space.first(&key(headers, origin))?;
        Some(target)
    }

    fn asked(&self, origin: &Origin) -> Vec<(Asked, T)> {
        let patterns = self.space.patterns().into_iter();
        patterns
            .filter_map(|(pattern, target)| {
                let pattern = pattern.of_origin(origin)?;
                Some((Asked::from(&pattern), target))
            })
            .collect()
    }

    /// Adds to the knowledge about each rule: the rules that take its packets of this family, or that it is reachable.
    fn covered(&self, known: &mut [Known]) {
        let place = |rank: usize| self.places[rank] as usize;
        let patterns: Vec<_> = self
            .space
            .patterns()
            .into_iter()
            .unzip::<_, T, _, Vec<T>>()
            .0;
        for (rank, by) in cover::covered(&patterns).into_iter().enumerate() {
            let known = &mut known[place(rank)];
            match by {
                Some(by) => known.by.extend(by.into_iter().map(place)),
                None => known.reached = true,
            }
        }
    }
}

#[derive(Clone, Default)]
struct Known {
    reached: bool,
    by: Vec<usize>,
}

impl<T: Copy> Classifier<T> {
    /// Makes `rules` ready. The first that matches wins: by priority, higher first, then in
    /// the order given. O(n log n) for lists that few tables take, and in a second for ten
    /// thousand rules of any kind.
    pub fn new(rules: impl IntoIterator<Item = Rule<T>>) -> Classifier<T> {
        let rules: Vec<_> = rules.into_iter().collect();
        let mut order: Vec<_> = (0..rules.len()).collect();
        order.sort_by_key(|&rule| Reverse(rules[rule].priority));
        Classifier {
            rules: rules.len(),
            asks_ports: rules.iter().any(|rule| rule.matches.asks_ports()),
            v4: Words::new(&rules, &order, Family::V4),
            v6: Words::new(&rules, &order, Family::V6),
            other: Words::new(&rules, &order, Family::Other),
        }
    }

    /// Returns the first rule that a packet matches, or `None`: the default class is the caller's.
    /// `headers` is what [`parse`](fairlane_wire::parse) read.
    ///
    /// A look into each of a few tables, until no table has a better rule than was found;
    /// at most [`effort`](Classifier::effort), whatever the packet.
    #[inline]
    pub fn classify(&self, headers: &Headers, origin: &Origin) -> Option<Hit<T>> {
        match headers.family {
            Family::V4 => self.v4.first(headers, origin),
            Family::V6 => self.v6.first(headers, origin),
            Family::Other => self.other.first(headers, origin),
        }
    }

    /// Returns the target of the first rule that a packet matches, as [`classify`](Self::classify): one cache line less
    /// for callers that do not need the rule.
    #[inline]
    pub(crate) fn target(&self, headers: &Headers, origin: &Origin) -> Option<T> {
        match headers.family {
            Family::V4 => self.v4.target(headers, origin),
            Family::V6 => self.v6.target(headers, origin),
            Family::Other => self.other.target(headers, origin),
        }
    }

    /// Returns whether a rule asks for ports, which later fragments do not have.
    pub(crate) fn asks_ports(&self) -> bool {
        self.asks_ports
    }

    /// Returns whether there are enough rules that a look-up waits for memory.
    #[inline]
    pub(crate) fn is_large(&self) -> bool {
        let entries = [
            self.v4.first_entries(),
            self.v6.first_entries(),
            self.other.first_entries(),
        ];
        entries.into_iter().any(|entries| entries > NEAR)
    }

    /// Where a packet's look-up begins, for [`fetch`](Self::fetch).
    #[inline]
    pub(crate) fn begin(&self, headers: &Headers, origin: &Origin) -> Begin {
        let slot = match headers.family {
            Family::V4 => self.v4.first_slot(headers, origin),
            Family::V6 => self.v6.first_slot(headers, origin),
            Family::Other => self.other.first_slot(headers, origin),
        };
        Begin {
            family: headers.family,
            place: slot,
        }
    }

    /// Has the memory fetched that these look-ups begin with, step by step: the loads of a step do not depend on one another,
    /// and hardly anything is between them, so that all of them are under way at once.
    #[inline]
    pub(crate) fn fetch(&self, begins: &mut [Begin]) {
        for Begin { family, place } in &mut *begins {
            *place = match family {
                Family::V4 => self.v4.first_entry(*place),
                Family::V6 => self.v6.first_entry(*place),
                Family::Other => self.other.first_entry(*place),
            };
        }
        let touch = |begin: &Begin| match begin.family {
            Family::V4 => self.v4.touch(begin.place),
            Family::V6 => self.v6.touch(begin.place),
            Family::Other => self.other.touch(begin.place),
        };
        black_box(begins.iter().map(touch).fold(0, u64::wrapping_add));
    }

    /// Returns the rules' conditions on the headers of packets of a family from `origin`, in order of precedence, with
    /// their targets: for classifying packets elsewhere, by [`words`](crate::words()). O(n log n).
    pub fn asked(&self, family: Family, origin: &Origin) -> Vec<(Asked, T)> {
        match family {
            Family::V4 => self.v4.asked(origin),
            Family::V6 => self.v6.asked(origin),
            Family::Other => self.other.asked(origin),
        }
    }

    /// Returns the rules that can never match, by their place: because rules before them take all
    /// their packets, or because nothing is all that they ask for.
    ///
    /// None is listed that can match. Found are all that one rule covers, and those that
    /// several cover together which differ in one field: prefixes or ranges of ports that
    /// add up to a larger one, families, fragments and whole datagrams. Rules with ranges of both ports are
    /// left out where there are more than 4,096 of them, and up to 64 rules for each family are listed as those
    /// before one.
    pub fn unreachable(&self) -> Vec<Unreachable> {
        let mut known = alloc::vec![Known::default(); self.rules];
        self.v4.covered(&mut known);
        self.v6.covered(&mut known);
        self.other.covered(&mut known);
        let unreached = known.into_iter().enumerate();
        unreached
            .filter(|(_, known)| !known.reached)
            .map(|(rule, Known { mut by, .. })| {
                by.sort_unstable();
                by.dedup();
                Unreachable { rule, by }
            })
            .collect()
    }

    /// Returns the highest cost of any packet. Even a sender with full knowledge cannot exceed it.
    pub fn effort(&self) -> Effort {
        let efforts = [self.v4.effort(), self.v6.effort(), self.other.effort()];
        let most = |part: fn(&Effort) -> usize| efforts.iter().map(part).max().unwrap_or(0);
        Effort {
            tables: most(|effort| effort.tables),
            comparisons: most(|effort| effort.comparisons),
        }
    }
}
