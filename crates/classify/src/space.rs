//! Tuple-space search: rules that test the same bits, or more, share a hash table keyed by those bits.
//!
//! One table for each combination of prefix lengths, ports and so on (Srinivasan, Suri and Varghese, SIGCOMM 1999) is
//! exact, and needs a look-up in each of hundreds of tables. Here a table hashes fewer bits than most of its rules
//! test, and compares the rest, as TupleMerge does (Daly et al., IEEE/ACM ToN 2019): a handful of tables take all rules
//! of a realistic list. Tables are searched in the order of their best rules, until no table can have a better one than
//! the best match. A range of ports is one entry, hashed by the bits in which its ends agree, and compared.
//!
//! # Resistance to chosen packets
//!
//! Packets are looked up and never inserted, so the largest number of entries that any packet is compared with is known
//! when the tables are built ([`Space::effort`]), even if the sender knows the hash. A strongly universal hash selects
//! the slot of a key, multilinear with half the multiplications (Lemire and Kaser, The Computer Journal 2014): two keys
//! collide with a probability of one over the number of slots, for any keys, over the choice of the multipliers. If too
//! many collide, others are chosen.

use alloc::vec;
use alloc::vec::Vec;

use fairlane_core::random::splitmix64;

use crate::Effort;
use crate::pattern::{Key, Pattern, V4, refinements};

/// "No rule", and a rank behind all.
const NONE: u32 = u32::MAX;

/// Rules with the same hashed bits that a table takes at first. Every few tables it
/// doubles: tables stay few, whatever the rules.
const CROWD: u32 = 8;
/// Tables after which it doubles.
const PATIENCE: usize = 4;
/// Rules that are compared one after the other sooner than their bits are hashed.
const FEW: usize = 4;
/// Keys that may meet in a slot.
const MEETING: usize = 6;
/// Hashes that are tried, every fourth time in twice the slots, until no more meet.
const CHOICES: u32 = 16;

/// The rules of one family, each with its rank (its place in the order of precedence) and its target.
#[derive(Clone, Debug)]
pub(crate) struct Space<T, const N: usize> {
    /// By their best rules.
    tables: Vec<Table<T, N>>,
}

#[derive(Clone, Debug)]
struct Table<T, const N: usize> {
    mask: [u64; N],
    hash: Hash<N>,
    /// The best rank in it.
    best: u32,
    /// Bits of the hash that are not the slot.
    shift: u32,
    /// Where the entries of each slot begin, and where those of the last end.
    starts: Vec<u32>,
    /// Of each slot by rank.
    entries: Vec<Entry<T, N>>,
}

/// It includes the target where a rank alone would leave a gap: a match needs no further access.
#[derive(Clone, Copy, Debug)]
struct Entry<T, const N: usize> {
    pattern: Pattern<N>,
    rank: u32,
    target: T,
}

const _: () = assert!(size_of::<Entry<u32, V4>>() == 48);

/// The initial sum, and multipliers.
#[derive(Clone, Debug)]
struct Hash<const N: usize>(u64, [[u64; 2]; N]);

impl<const N: usize> Hash<N> {
    fn nth(choice: u64) -> Self {
        let mut state = choice << 32;
        let mut next = || splitmix64(&mut state);
        Hash(next(), [(); N].map(|()| [next(), next()]))
    }

    /// Returns the hash: the theorem covers its high 32 bits.
    #[inline]
    fn of(&self, key: &Key<N>, mask: &[u64; N]) -> u64 {
        let mut sum = self.0;
        for word in 0..N {
            let bits = key[word] & mask[word];
            let [low, high] = self.1[word];
            let product = low
                .wrapping_add(bits & 0xffff_ffff)
                .wrapping_mul(high.wrapping_add(bits >> 32));
            sum = sum.wrapping_add(product);
        }
        sum
    }
}

impl<T: Copy, const N: usize> Space<T, N> {
    /// Prepares patterns in order of precedence, each with its target.
    pub(crate) fn new(patterns: &[Pattern<N>], targets: &[T]) -> Self {
        let mut tables = Vec::new();
        let mut left: Vec<u32> = (0..patterns.len() as u32).collect();
        let mut plan = Plan::new(patterns);
        while !left.is_empty() {
            let crowd = CROWD << (tables.len() / PATIENCE).min(24);
            let mask = plan.mask(&left, crowd);
            let (taken, rest) = plan.split(&left, &mask, crowd);
            tables.push(Table::new(mask, patterns, targets, &taken));
            left = rest;
        }
        tables.sort_by_key(|table| table.best);
        Space { tables }
    }

    /// Returns the rank of the first pattern that a packet matches, and its target.
    #[inline]
    pub(crate) fn first(&self, key: &Key<N>) -> Option<(usize, T)> {
        let (mut found, mut hit) = (NONE, None);
        for table in &self.tables {
            if table.best >= found {
                break;
            }
            for entry in table.entries_for(key) {
                if entry.rank >= found {
                    break;
                }
                // Not a branch, which could not be predicted: the next entry, if there is
                // one, ends the loop.
                (found, hit) = match entry.pattern.matches(key) {
                    true => (entry.rank, Some(entry)),
                    false => (found, hit),
                };
            }
        }
        hit.map(|entry| (found as usize, entry.target))
    }

    /// Entries of the table that each look-up begins in.
    #[inline]
    pub(crate) fn first_entries(&self) -> usize {
        self.tables.first().map_or(0, |table| table.entries.len())
    }

    /// Returns the slot of that table in which a look-up of this key begins.
    #[inline]
    pub(crate) fn first_slot(&self, key: &Key<N>) -> usize {
        let first = self.tables.first().filter(|table| table.is_hashed());
        first.map_or(0, |table| table.slot_of(key))
    }

    /// Returns where the entries of this slot begin.
    #[inline]
    pub(crate) fn first_entry(&self, first_slot: usize) -> usize {
        let first = self.tables.first();
        let start = first.and_then(|table| table.starts.get(first_slot));
        start.map_or(0, |&start| start as usize)
    }

    /// Something of both ends of the entry in this place, as the compiler lays it out: of two cache lines, if it lies in two.
    #[inline]
    pub(crate) fn touch(&self, first_entry: usize) -> u64 {
        let first = self.tables.first();
        let entry = first.and_then(|table| table.entries.get(first_entry));
        entry.map_or(0, |entry| entry.pattern.mask[0] ^ u64::from(entry.rank))
    }

    /// Returns the ranks of all patterns that cover `pattern`.
    pub(crate) fn covers(&self, pattern: &Pattern<N>) -> impl Iterator<Item = usize> {
        let asks_less =
            |table: &&Table<T, N>| (0..N).all(|word| table.mask[word] & !pattern.mask[word] == 0);
        let tables = self.tables.iter().filter(asks_less);
        let near = tables.flat_map(|table| table.entries_for(&pattern.value));
        near.filter(|entry| entry.pattern.covers(pattern))
            .map(|entry| entry.rank as usize)
    }

    /// Returns its patterns, by rank.
    pub(crate) fn patterns(&self) -> Vec<(Pattern<N>, T)> {
        let tables = self.tables.iter();
        let mut entries: Vec<_> = tables.flat_map(|table| &table.entries).collect();
        entries.sort_unstable_by_key(|entry| entry.rank);
        let made = entries.into_iter();
        made.map(|entry| (entry.pattern, entry.target)).collect()
    }

    /// Returns the most that any packet may cost.
    pub(crate) fn effort(&self) -> Effort {
        Effort {
            tables: self.tables.len(),
            comparisons: self.tables.iter().map(Table::longest).sum(),
        }
    }
}

impl<T: Copy, const N: usize> Table<T, N> {
    fn new(mask: [u64; N], patterns: &[Pattern<N>], targets: &[T], ranks: &[u32]) -> Self {
        let entry = |&rank: &u32| Entry {
            pattern: patterns[rank as usize],
            rank,
            target: targets[rank as usize],
        };
        let entries: Vec<_> = ranks.iter().map(entry).collect();
        if entries.len() <= FEW {
            return Table::with(mask, Hash::nth(0), 0, entries);
        }
        // Half the slots are empty even if no two rules have the same bits.
        let bits = (2 * entries.len()).next_power_of_two().ilog2().max(1);
        let mut choice = 0;
        loop {
            let bits = bits + choice / 4;
            let table = Table::with(mask, Hash::nth(choice.into()), bits, entries.clone());
            if table.meeting() <= MEETING || choice == CHOICES {
                return table;
            }
            choice += 1;
        }
    }

    fn with(mask: [u64; N], hash: Hash<N>, bits: u32, mut entries: Vec<Entry<T, N>>) -> Self {
        let shift = u64::BITS - bits;
        let slot = |entry: &Entry<T, N>| match bits {
            0 => 0,
            _ => hash.of(&entry.pattern.value, &mask) >> shift,
        };
        entries.sort_by_cached_key(|entry| (slot(entry), entry.rank));
        let mut starts = vec![0u32; (1 << bits) + 1];
        for entry in &entries {
            starts[slot(entry) as usize + 1] += 1;
        }
        for slot in 1..starts.len() {
            starts[slot] += starts[slot - 1];
        }
        Table {
            best: entries.iter().map(|entry| entry.rank).min().unwrap_or(NONE),
            mask,
            hash,
            shift,
            starts,
            entries,
        }
    }

    #[inline]
    fn is_hashed(&self) -> bool {
        self.entries.len() > FEW
    }

    /// Of a table that is [hashed](Self::is_hashed).
    #[inline]
    fn slot_of(&self, key: &Key<N>) -> usize {
        (self.hash.of(key, &self.mask) >> self.shift) as usize
    }

    /// Returns all that can match a key, by rank.
    #[inline]
    fn entries_for(&self, key: &Key<N>) -> &[Entry<T, N>] {
        if !self.is_hashed() {
            return &self.entries;
        }
        let slot = self.slot_of(key);
        &self.entries[self.starts[slot] as usize..self.starts[slot + 1] as usize]
    }

    fn slots(&self) -> impl Iterator<Item = &[Entry<T, N>]> {
        let bounds = self.starts.windows(2);
        bounds.map(|ends| &self.entries[ends[0] as usize..ends[1] as usize])
    }

    /// Returns the most keys that meet in a slot.
    fn meeting(&self) -> usize {
        let keys = |slot: &[Entry<T, N>]| {
            let hashed = |entry: &Entry<T, N>| {
                let mut key = entry.pattern.value;
                for (bits, mask) in key.iter_mut().zip(&self.mask) {
                    *bits &= mask;
                }
                key
            };
            let mut keys: Vec<Key<N>> = slot.iter().map(hashed).collect();
            keys.sort_unstable();
            keys.dedup();
            keys.len()
        };
        let crowded = self.slots().filter(|slot| slot.len() > MEETING);
        crowded.map(keys).max().unwrap_or(0)
    }

    fn longest(&self) -> usize {
        self.slots().map(<[Entry<T, N>]>::len).max().unwrap_or(0)
    }
}

/// Chooses what tables hash.
struct Plan<'a, const N: usize> {
    patterns: &'a [Pattern<N>],
    refinements: Vec<Vec<[u64; N]>>,
    hash: Hash<N>,
    /// How many patterns a key has so far, in which count: cleared by counting on.
    counts: Vec<(u32, u32)>,
    count: u32,
    shift: u32,
}

impl<'a, const N: usize> Plan<'a, N> {
    fn new(patterns: &'a [Pattern<N>]) -> Self {
        let bits = (4 * patterns.len() + 2).next_power_of_two().ilog2();
        Plan {
            patterns,
            refinements: refinements(),
            hash: Hash::nth(0),
            counts: vec![(0, 0); 1 << bits],
            count: 0,
            shift: 64 - bits,
        }
    }

    /// Returns how many patterns before it have the bits of `mask` in common with a pattern that
    /// asks for all of them. (Two keys that meet count as the same: it is only about how well a
    /// choice does.)
    fn company(&mut self, rank: u32, mask: &[u64; N]) -> Option<u32> {
        let pattern = &self.patterns[rank as usize];
        if (0..N).any(|word| mask[word] & !pattern.mask[word] != 0) {
            return None;
        }
        let slot = self.hash.of(&pattern.value, mask) >> self.shift;
        let (count, had) = &mut self.counts[slot as usize];
        if *count != self.count {
            (*count, *had) = (self.count, 0);
        }
        *had += 1;
        Some(*had - 1)
    }

    /// How well a table with `mask` does: each pattern that it takes is worth less, the more
    /// there are that a packet is compared with before it.
    fn worth(&mut self, left: &[u32], mask: &[u64; N], crowd: u32) -> u64 {
        self.count += 1;
        let worth = |&rank: &u32| match self.company(rank, mask) {
            Some(company) => crowd.saturating_sub(company).into(),
            None => 0,
        };
        left.iter().map(worth).sum()
    }

    /// Returns the patterns that a table with `mask` takes, and the others.
    fn split(&mut self, left: &[u32], mask: &[u64; N], crowd: u32) -> (Vec<u32>, Vec<u32>) {
        self.count += 1;
        let mut taken = |&rank: &u32| self.company(rank, mask).is_some_and(|with| with < crowd);
        left.iter().partition(|&rank| taken(rank))
    }

    /// Returns the best mask for the patterns `left`: starting with no bits, the refinement of one field that gains
    /// most, as long as there is a gain.
    fn mask(&mut self, left: &[u32], crowd: u32) -> [u64; N] {
        let refinements = core::mem::take(&mut self.refinements);
        let mut best = [0; N];
        let mut most = self.worth(left, &best, crowd);
        loop {
            let (base, before) = (best, most);
            for refined in refinements.iter().flatten() {
                let mut mask = base;
                for word in 0..N {
                    mask[word] |= refined[word];
                }
                if mask == base {
                    continue;
                }
                let worth = self.worth(left, &mask, crowd);
                if worth > most {
                    (best, most) = (mask, worth);
                }
            }
            if most == before {
                break;
            }
        }
        self.refinements = refinements;
        best
    }
}
