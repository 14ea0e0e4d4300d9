//! Which rules take all the packets of a later one.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

use crate::pattern::Pattern;
use crate::space::Space;

/// For each of some patterns in the order of precedence, those before it that take all its
/// packets, by rank; `None` where none is known.
///
/// One pattern that covers another is always found. Of several that do so together: what
/// halves of a prefix or of "fragment or not" add up to, and what ranges of ports do that
/// touch or overlap, where all else is equal; again for what these make. As many such
/// unions are followed as there are patterns, so it takes O(n log n) and a look into
/// the tables for each. No table divides ranges of both ports, and each pattern would be compared with all
/// such ones: of more than [`PAIRS`] of them none is looked at. Of what covers a pattern together, up to
/// [`LISTED`] are returned.
pub(crate) fn covered<const N: usize>(patterns: &[Pattern<N>]) -> Vec<Option<Vec<usize>>> {
    let is_range = |pattern: &Pattern<N>, source| {
        let (first, last) = pattern.range(source);
        first != last && !pattern.has_any_port(source)
    };
    let is_pair = |pattern: &Pattern<N>| is_range(pattern, true) && is_range(pattern, false);
    let is_one = |&rank: &usize| !is_pair(&patterns[rank]);
    let ranks: Vec<usize> = (0..patterns.len()).filter(is_one).collect();
    if patterns.len() - ranks.len() <= PAIRS {
        return covered_among(patterns);
    }
    let some: Vec<_> = ranks.iter().map(|&rank| patterns[rank]).collect();
    let mut all = vec![None; patterns.len()];
    for (&rank, by) in ranks.iter().zip(covered_among(&some)) {
        all[rank] = by.map(|by| by.into_iter().map(|at| ranks[at]).collect());
    }
    all
}

/// Most patterns with ranges of both ports that are compared with one another: about a second's work.
const PAIRS: usize = 4_096;
/// Most patterns that are listed as what covers another.
const LISTED: usize = 64;

fn covered_among<const N: usize>(patterns: &[Pattern<N>]) -> Vec<Option<Vec<usize>>> {
    // The indexes of the parts take as much memory again: free them first.
    let Unions { parts, .. } = Unions::of(patterns);
    let covers = Covers::of(&parts);
    let cover_of = |(rank, pattern): (usize, &Pattern<N>)| {
        let before = parts.partition_point(|part| part.last < rank);
        Some(leaves(&parts, covers.first(&pattern.implied(), before)?))
    };
    patterns.iter().enumerate().map(cover_of).collect()
}

/// Packets that parts cover, by port: parts that are equal except for one port.
struct Covers<const N: usize> {
    /// The equal part.
    space: Space<(), N>,
    /// The ports, of each in its place.
    ports: Vec<Ports>,
}

impl<const N: usize> Covers<N> {
    fn of(parts: &[Part<N>]) -> Self {
        let mut alike: [BTreeMap<Pattern<N>, Vec<u32>>; 2] = Default::default();
        for (at, part) in (0u32..).zip(parts) {
            for source in [true, false] {
                // Of what ranges of this port made, each port is taken by one of them; and what takes all
                // is looked up by its destination ports.
                let is_known = part.made == Made::Ranges(source)
                    || (source && part.pattern.has_any_port(source));
                if !is_known {
                    let alike = alike[usize::from(source)].entry(part.pattern.any_port(source));
                    alike.or_default().push(at);
                }
            }
        }
        let [by_destination, by_source] = alike;
        // A single part is looked up by its destination ports, except one made of ranges of source ports,
        // which are looked up by source ports.
        let is_known = |of: &[u32], source: bool| match *of {
            [one] => source || parts[one as usize].made == Made::Ranges(true),
            _ => false,
        };
        let mut sides: Vec<_> = [(by_destination, false), (by_source, true)]
            .into_iter()
            .flat_map(|(alike, source)| alike.into_iter().map(move |alike| (alike, source)))
            .filter(|((_, of), source)| !is_known(of, *source))
            .collect();
        sides.sort_by_key(|((_, of), _)| of[0]);
        let patterns: Vec<_> = sides.iter().map(|&((pattern, _), _)| pattern).collect();
        let ports = sides.iter().map(|((_, of), source)| {
            let range = |&at: &u32| (at, parts[at as usize].pattern.range(*source));
            Ports::of(*source, of.iter().map(range))
        });
        Covers {
            space: Space::new(&patterns, &vec![(); patterns.len()]),
            ports: ports.collect(),
        }
    }

    /// Of the parts before `before`, the first that take all packets of a pattern, each for its ports.
    fn first(&self, pattern: &Pattern<N>, before: usize) -> Option<Vec<usize>> {
        let mut last = before as u32;
        let mut found = None;
        for at in self.space.covers(pattern) {
            let ports = &self.ports[at];
            let range = pattern.range(ports.source);
            let needed = ports.last(range);
            if needed < last {
                (last, found) = (needed, Some((ports, range)));
            }
        }
        found.map(|(ports, range)| ports.parts(range))
    }
}

/// A port that no part takes.
const NOBODY: u32 = u32::MAX;

/// Which part is the first to take each port.
struct Ports {
    /// Of the source, or of the destination.
    source: bool,
    /// The start of each piece that has one first part, or none; from 0.
    begins: Vec<u16>,
    /// From the middle on, that part of each piece; before, of two places each the larger one.
    parts: Vec<u32>,
}

impl Ports {
    /// Of these parts, each with its range, in their order. O(n log n).
    fn of(source: bool, ranges: impl Iterator<Item = (u32, (u16, u16))>) -> Ports {
        let mut ends = vec![(0, NOBODY, true)];
        for (part, (first, last)) in ranges {
            ends.push((u32::from(first), part, true));
            ends.push((u32::from(last) + 1, part, false));
        }
        ends.sort_unstable();
        let mut here = BTreeSet::new();
        let mut begins: Vec<u16> = Vec::new();
        let mut pieces: Vec<u32> = Vec::new();
        for at in ends.chunk_by(|a, b| a.0 == b.0) {
            for &(_, part, begins) in at {
                match begins {
                    true => here.insert(part),
                    false => here.remove(&part),
                };
            }
            let first = here.first().copied().unwrap_or(NOBODY);
            if let Ok(port) = u16::try_from(at[0].0)
                && pieces.last() != Some(&first)
            {
                begins.push(port);
                pieces.push(first);
            }
        }
        let mut parts = vec![0; pieces.len()];
        parts.append(&mut pieces);
        for place in (1..begins.len()).rev() {
            parts[place] = parts[2 * place].max(parts[2 * place + 1]);
        }
        Ports {
            source,
            begins,
            parts,
        }
    }

    /// Returns the pieces that ports lie in, by their places from the middle on.
    fn pieces(&self, (first, last): (u16, u16)) -> (usize, usize) {
        let of = |port: u16| self.begins.partition_point(|&begin| begin <= port);
        (
            self.begins.len() + of(first) - 1,
            self.begins.len() + of(last),
        )
    }

    /// Returns the last of the parts that it takes for all these ports. O(log n).
    fn last(&self, range: (u16, u16)) -> u32 {
        let (mut from, mut to) = self.pieces(range);
        let mut last = 0;
        while from < to {
            if from % 2 == 1 {
                last = last.max(self.parts[from]);
                from += 1;
            }
            if to % 2 == 1 {
                to -= 1;
                last = last.max(self.parts[to]);
            }
            (from, to) = (from / 2, to / 2);
        }
        last
    }

    /// Returns all parts of these pieces.
    fn parts(&self, range: (u16, u16)) -> Vec<usize> {
        let (from, to) = self.pieces(range);
        let parts = self.parts[from..to].iter();
        parts.map(|&part| part as usize).collect()
    }
}

/// A pattern, or what some add up to.
struct Part<const N: usize> {
    pattern: Pattern<N>,
    /// The last rank that it takes.
    last: usize,
    /// Its parts; empty for a pattern of the list.
    of: Vec<usize>,
    made: Made,
}

/// The origin of a part.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Made {
    /// It is in the list, or two halves did.
    Otherwise,
    /// Ranges of a port: of the source, or of the destination.
    Ranges(bool),
}

/// Patterns and their unions.
struct Unions<const N: usize> {
    /// By the last rank that they take.
    parts: Vec<Part<N>>,
    /// Those that were seen, each once.
    known: BTreeMap<Pattern<N>, usize>,
    /// For patterns alike in all but a port: the ranges, by their first port, that neither
    /// touch nor overlap. With the parts they come from.
    ranges: [BTreeMap<Pattern<N>, BTreeMap<u16, usize>>; 2],
}

impl<const N: usize> Unions<N> {
    fn of(patterns: &[Pattern<N>]) -> Self {
        let mut unions = Unions {
            parts: Vec::new(),
            known: BTreeMap::new(),
            ranges: [BTreeMap::new(), BTreeMap::new()],
        };
        let most = 2 * patterns.len();
        for (rank, &pattern) in patterns.iter().enumerate() {
            let mut waiting = vec![Part {
                pattern,
                last: rank,
                of: Vec::new(),
                made: Made::Otherwise,
            }];
            while let Some(part) = waiting.pop() {
                if unions.known.contains_key(&part.pattern) {
                    continue;
                }
                let at = unions.parts.len();
                unions.known.insert(part.pattern, at);
                unions.parts.push(part);
                if at < most {
                    unions.halves(at, rank, &mut waiting);
                    unions.touching(at, rank, &mut waiting);
                }
            }
        }
        unions.parts.shrink_to_fit();
        unions
    }

    /// Two halves of a pattern.
    fn halves(&self, at: usize, last: usize, found: &mut Vec<Part<N>>) {
        let pattern = self.parts[at].pattern;
        for (word, bit) in pattern.halves() {
            let mut half = pattern;
            half.value[word] ^= bit;
            if let Some(&other) = self.known.get(&half) {
                let mut whole = pattern;
                whole.mask[word] &= !bit;
                whole.value[word] &= !bit;
                found.push(Part {
                    pattern: whole,
                    last,
                    of: vec![at, other],
                    made: Made::Otherwise,
                });
            }
        }
    }

    /// Ranges of ports that touch or overlap.
    fn touching(&mut self, at: usize, last: usize, found: &mut Vec<Part<N>>) {
        let pattern = self.parts[at].pattern;
        for source in [true, false] {
            if pattern.has_any_port(source) {
                continue;
            }
            let alike = pattern.any_port(source);
            let ranges = self.ranges[usize::from(source)].entry(alike).or_default();
            let (mut first, mut end) = pattern.range(source);
            let mut of = vec![at];
            // The one before may reach into it, those that begin within it may reach on.
            loop {
                let near = ranges.range(..=end.saturating_add(1)).next_back();
                let Some((&begin, &other)) = near else { break };
                let (_, over) = self.parts[other].pattern.range(source);
                if u32::from(over) + 1 < u32::from(first) {
                    break;
                }
                ranges.remove(&begin);
                (first, end) = (first.min(begin), end.max(over));
                of.push(other);
            }
            let mut whole = pattern;
            whole.set_range((first, end), source);
            if whole == pattern {
                ranges.insert(first, at);
            } else if let Some(&same) = self.known.get(&whole) {
                ranges.insert(first, same);
            } else {
                found.push(Part {
                    pattern: whole,
                    last,
                    of,
                    made: Made::Ranges(source),
                });
            }
        }
    }
}

/// Returns the ranks that parts are made of, or the first [`LISTED`] that are found.
fn leaves<const N: usize>(parts: &[Part<N>], mut waiting: Vec<usize>) -> Vec<usize> {
    let mut leaves = Vec::new();
    // A part may be in several of those that others are made of.
    let mut seen = BTreeSet::new();
    while let Some(at) = waiting.pop() {
        if leaves.len() == LISTED {
            break;
        }
        if !seen.insert(at) {
            continue;
        }
        match &parts[at].of[..] {
            [] => leaves.push(parts[at].last),
            of => waiting.extend(of),
        }
    }
    leaves
}
