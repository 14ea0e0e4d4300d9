//! How the rules of a family are looked for where nothing may take long: those that ask for the same
//! bits in a table, a few others one by one.

use std::collections::HashMap;

use super::{Pattern, WORDS};

/// Tables of a family.
const MOST_TABLES: usize = 16;
/// Patterns of a family that are compared one by one.
const MOST_COMPARED: usize = 64;
/// Patterns that are worth a table.
const WORTH_A_TABLE: usize = 4;
/// A rank behind all.
const LAST: u64 = (u32::MAX as u64) << 32;

/// Patterns that ask for the same bits.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// By which its keys differ from those of others.
    pub number: u32,
    pub mask: [u64; WORDS],
}

/// A pattern and its result.
#[derive(Clone, Debug)]
pub(super) struct Compared {
    pub pattern: Pattern,
    /// Its rank in the high half, and its class.
    pub result: u64,
}

/// The rules of one family.
#[derive(Clone, Debug)]
pub(super) struct Search {
    pub tables: Vec<Table>,
    /// Keys and results, in all of its tables.
    pub entries: Vec<([u64; WORDS + 1], u64)>,
    /// By rank.
    pub compared: Vec<Compared>,
    /// The result if nothing matches.
    pub otherwise: u64,
    /// From this result on, a rule that is left out might have come before.
    pub undecided: Option<u64>,
}

/// Returns whether a range of ports has all ports of the bits in which its ends agree, so that the
/// mask says all.
pub(super) fn is_masked(first: u16, last: u16) -> bool {
    let apart = u16::BITS - (first ^ last).leading_zeros();
    let free = (1u32 << apart) - 1;
    u32::from(first) & free == 0 && u32::from(last) & free == free
}

impl Search {
    /// Of rules in the order of precedence; its tables are numbered from `first_table` on.
    pub(super) fn new(rules: &[(Pattern, u32)], default: u32, first_table: u32) -> Search {
        let mut by_mask: HashMap<[u64; WORDS], usize> = HashMap::new();
        let fits = |pattern: &Pattern| {
            let (source, destination) = (pattern.source_port, pattern.destination_port);
            is_masked(source.0, source.1) && is_masked(destination.0, destination.1)
        };
        for (pattern, _) in rules.iter().filter(|(pattern, _)| fits(pattern)) {
            *by_mask.entry(pattern.mask).or_default() += 1;
        }
        let mut masks: Vec<_> = by_mask.into_iter().collect();
        masks.retain(|&(_, patterns)| patterns >= WORTH_A_TABLE);
        masks.sort_by_key(|&(mask, patterns)| (usize::MAX - patterns, mask));
        masks.truncate(MOST_TABLES);
        let tables: Vec<Table> = (first_table..)
            .zip(&masks)
            .map(|(number, &(mask, _))| Table { number, mask })
            .collect();
        let numbers: HashMap<_, _> = tables.iter().map(|t| (t.mask, t.number)).collect();
        let mut search = Search {
            tables,
            entries: Vec::new(),
            compared: Vec::new(),
            otherwise: LAST | u64::from(default),
            undecided: None,
        };
        for (rank, &(pattern, class)) in (0u64..).zip(rules) {
            let result = rank << 32 | u64::from(class);
            let number = numbers.get(&pattern.mask).filter(|_| fits(&pattern));
            if let Some(&number) = number {
                let mut key = [u64::from(number); WORDS + 1];
                key[1..].copy_from_slice(&pattern.value);
                search.entries.push((key, result));
            } else if search.compared.len() < MOST_COMPARED {
                search.compared.push(Compared { pattern, result });
                // Later patterns are unreachable, and the verifier rejects unreachable instructions.
                if pattern.mask == [0; WORDS] && fits(&pattern) {
                    break;
                }
            } else if search.undecided.is_none() {
                search.undecided = Some(rank << 32);
            }
        }
        // Of two that ask for the same, the first counts.
        search.entries.sort_unstable();
        search.entries.dedup_by_key(|&mut (key, _)| key);
        search
    }
}
