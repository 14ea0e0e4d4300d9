//! The shares that there are, each kept once.

use super::Ratio;
use crate::grow::Slab;
use alloc::collections::BTreeMap;

/// The number of a share: as many as there can be entities have three bytes.
pub(super) type Number = [u8; 3];

const _: () = assert!(crate::scheduler::MAX_ENTITIES <= 1 << 24);

/// Weights and longest packets by number, so that a state of 24 bytes has room for a quantum.
#[derive(Clone, Debug, Default)]
pub(super) struct Shares {
    table: Slab<Ratio>,
    /// Number, and count of entities that have it, by packet and weight.
    known: BTreeMap<(u32, u32), (u32, u32)>,
}

impl Shares {
    /// The share of one entity more.
    pub(super) fn enter(&mut self, share: Ratio) -> Number {
        let table = &mut self.table;
        let entry = self.known.entry((share.charge, share.weight));
        let (number, count) = entry.or_insert_with(|| (table.insert(share), 0));
        *count += 1;
        let [low, middle, high, _] = number.to_le_bytes();
        [low, middle, high]
    }

    /// One entity less has this share.
    pub(super) fn leave(&mut self, number: Number) {
        let Ratio { charge, weight } = self.get(number);
        if let Some((number, count)) = self.known.get_mut(&(charge, weight)) {
            *count -= 1;
            if *count == 0 {
                self.table.release(*number);
                self.known.remove(&(charge, weight));
            }
        }
    }

    /// Returns the share with this number.
    pub(super) fn get(&self, [low, middle, high]: Number) -> Ratio {
        let number = u32::from_le_bytes([low, middle, high, 0]);
        self.table[number as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_used_again_once_nobody_has_its_share() {
        let mut shares = Shares::default();
        let share = |charge, weight| Ratio { charge, weight };
        let same = |a: Ratio, b: Ratio| (a.charge, a.weight) == (b.charge, b.weight);
        // Of one ratio, and not the same.
        let numbers = [(1, 1), (2, 2), (1, 1)].map(|(c, w)| shares.enter(share(c, w)));
        assert_eq!(numbers, [[0, 0, 0], [1, 0, 0], [0, 0, 0]]);
        shares.leave(numbers[0]);
        assert!(same(shares.get(numbers[2]), share(1, 1)));
        assert_eq!(shares.enter(share(3, 1)), [2, 0, 0]);
        shares.leave(numbers[2]);
        assert_eq!(shares.enter(share(4, 1)), [0, 0, 0]);
        assert!(same(shares.get([0, 0, 0]), share(4, 1)));
        for weight in 4..=0x10000 {
            shares.enter(share(1, weight));
        }
        assert_eq!(shares.enter(share(1, 0x10001)), [0, 0, 1]);
        assert!(same(shares.get([0, 0, 1]), share(1, 0x10001)));
    }
}
