//! Virtual time as a position on a circle of 2^40 bytes, so that a word has bits left for flags and counts.

/// Bits of a position.
const BITS: u32 = 40;

/// The position in a word.
pub(crate) const POSITION: u64 = (1 << BITS) - 1;

/// In a shard's word, above the position: the shard counts.
pub(crate) const IN: u64 = 1 << BITS;

/// In the floor's word, above the position: one more entry of a shard.
pub(crate) const ONE_MORE: u64 = 1 << BITS;

/// The largest distance at which two positions are compared, with a margin.
pub(crate) const FARTHEST: u64 = 1 << (BITS - 2);

/// Returns the distance by which the position in `a` is ahead of the one in `b`, negative if it is behind.
#[inline]
pub(crate) const fn ahead(a: u64, b: u64) -> i64 {
    ((a.wrapping_sub(b) << (64 - BITS)) as i64) >> (64 - BITS)
}

/// Returns the position `by` ahead.
#[inline]
pub(crate) const fn further(position: u64, by: u64) -> u64 {
    position.wrapping_add(by) & POSITION
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn who_is_ahead_is_told_across_the_seam_and_whatever_stands_beside() {
        let last = POSITION;
        assert_eq!(further(last, 3), 2);
        assert_eq!(ahead(2, last), 3);
        assert_eq!(ahead(last, 2), -3);
        assert_eq!(ahead(2 | IN, last | ONE_MORE << 7), 3);
        assert_eq!(ahead(FARTHEST, 0), FARTHEST as i64);
        assert_eq!(ahead(0, FARTHEST), -(FARTHEST as i64));
    }
}
