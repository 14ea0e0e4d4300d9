//! An array that grows while others use it.

use std::sync::{Arc, OnceLock};

/// Values by number, created on demand in parts, together with all lower ones: `FIRST` values first, then each time as
/// many as exist. A part never moves, so references to it stay valid.
pub(super) struct Growing<T, const FIRST: u32> {
    /// The last part exceeds all numbers.
    parts: [OnceLock<Arc<[T]>>; 33],
}

impl<T, const FIRST: u32> Growing<T, FIRST> {
    pub(super) fn new() -> Self {
        Self {
            parts: [const { OnceLock::new() }; 33],
        }
    }

    /// Returns the part of a number, the first number there, and the length of the part.
    #[inline]
    fn part(number: u32) -> (usize, u64, u64) {
        let turns = number / FIRST;
        match u32::BITS - turns.leading_zeros() {
            0 => (0, 0, u64::from(FIRST)),
            part => {
                let first = u64::from(FIRST) << (part - 1);
                (part as usize, first, first)
            }
        }
    }

    /// Returns the value of a number if its part was created.
    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<&T> {
        let (part, first, _) = Self::part(number);
        let at = (u64::from(number) - first) as usize;
        self.parts[part].get()?.get(at)
    }

    /// Returns the part with a number and its index there. Creates the part if it does not exist: O(number) then.
    pub(super) fn make(&self, number: u32, new: impl Fn() -> T) -> (&Arc<[T]>, usize) {
        let (part, first, _) = Self::part(number);
        let mut below = 0;
        let mut count = u64::from(FIRST);
        while below < part {
            self.parts[below].get_or_init(|| (0..count).map(|_| new()).collect());
            count = u64::from(FIRST) << below;
            below += 1;
        }
        let values = self.parts[part].get_or_init(|| (0..count).map(|_| new()).collect());
        (values, (u64::from(number) - first) as usize)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_place_of_its_own_that_stays() {
        fn check<const FIRST: u32>() {
            let growing = Growing::<u32, FIRST>::new();
            assert_eq!(growing.get(0), None);
            let (part, at) = growing.make(0, || 7);
            assert_eq!((part.len(), at), (FIRST as usize, 0));
            let mut parts = 0;
            let mut before = u64::from(u32::MAX);
            for number in 0..10 * FIRST {
                let (part, first, count) = Growing::<u32, FIRST>::part(number);
                assert!(
                    (first..first + count).contains(&u64::from(number)),
                    "{number}"
                );
                if first != before {
                    assert_eq!(
                        (part, first),
                        (parts, u64::from(number)),
                        "no gap, no overlap"
                    );
                    (before, parts) = (first, parts + 1);
                }
                growing.make(number, || 7);
                assert_eq!(growing.get(number), Some(&7));
            }
            let (part, first, count) = Growing::<u32, FIRST>::part(u32::MAX);
            assert!(part < 33 && first + count > u64::from(u32::MAX));
        }
        check::<1>();
        check::<30>();
        check::<64>();
    }

    #[test]
    fn a_number_takes_what_is_below_it_and_at_most_as_much_again() {
        let growing = Growing::<u8, 64>::new();
        growing.make(1_000_000, || 0);
        assert!(
            (0..1_000_000)
                .step_by(50)
                .all(|number| growing.get(number).is_some())
        );
        assert_eq!(growing.get(2_000_000), None);
    }
}
