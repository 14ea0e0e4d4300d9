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
/// the tables for each.
pub(crate) fn covered<const N: usize>(patterns: &[Pattern<N>]) -> Vec<Option<Vec<usize>>> {
    let unions = Unions::of(patterns);
    // A union is as good as its last part: it comes just behind that.
    let mut order: Vec<usize> = (0..unions.parts.len()).collect();
    order.sort_by_key(|&at| unions.parts[at].last);
    let ranks: Vec<usize> = order.iter().map(|&at| unions.parts[at].last).collect();
    let ordered: Vec<_> = order.iter().map(|&at| unions.parts[at].pattern).collect();
    let space = Space::new(&ordered);
    let cover_of = |(rank, pattern): (usize, &Pattern<N>)| {
        let before = ranks.partition_point(|&last| last < rank);
        let at = space.cover(&pattern.implied(), before)?;
        Some(unions.leaves(order[at]))
    };
    patterns.iter().enumerate().map(cover_of).collect()
}

/// A pattern, or what some add up to.
struct Part<const N: usize> {
    pattern: Pattern<N>,
    /// The last rank that it takes.
    last: usize,
    /// What it is made of; nothing for a pattern of the list.
    of: Vec<usize>,
}

/// Patterns and what they add up to.
struct Unions<const N: usize> {
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
                });
            }
        }
    }

    /// Ranges of ports that touch or overlap.
    fn touching(&mut self, at: usize, last: usize, found: &mut Vec<Part<N>>) {
        let pattern = self.parts[at].pattern;
        for source in [true, false] {
            let mut alike = pattern;
            alike.set_range((0, u16::MAX), source);
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
                });
            }
        }
    }

    /// The ranks that a part is made of.
    fn leaves(&self, at: usize) -> Vec<usize> {
        let mut leaves = Vec::new();
        // A part may be in several of those that a third is made of.
        let mut seen = BTreeSet::new();
        let mut waiting = vec![at];
        while let Some(at) = waiting.pop() {
            if !seen.insert(at) {
                continue;
            }
            match &self.parts[at].of[..] {
                [] => leaves.push(self.parts[at].last),
                of => waiting.extend(of),
            }
        }
        leaves
    }
}
