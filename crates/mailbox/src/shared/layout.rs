//! The layout of the shared memory.

use crate::sync::AtomicU64;

/// Words of eight bytes in a cache line.
const LINE: usize = 8;

/// The flag by which the receiver requests a wake-up: 1 while it dozes. It has its own cache line, since the sender
/// reads it after every push, and it changes only when the receiver starts or stops dozing.
pub(super) const DOZING: usize = 0;

/// The receiver's counters for the sender, each from 0, on their own cache line: they change with every packet and are
/// rarely read.
pub(super) const ACCEPTED: usize = LINE;
pub(super) const MALFORMED: usize = LINE + 1;
pub(super) const DROPPED: usize = LINE + 2;

/// The first slot.
const SLOTS: usize = 2 * LINE;

const LEAST_SLOTS: usize = 2;
const MOST_SLOTS: usize = 1 << 16;
const MOST_BYTES: usize = 65_535;

/// The capacity of a ring in packets, and their maximum length.
///
/// Both sides must use the same values; neither reads them from the shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    slots: u32,
    longest: u32,
}

/// An invalid geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GeometryError {
    /// The number of slots is not allowed.
    #[error(
        "a shared mailbox cannot have {0} slots: the number must be a power of two from 2 to 65536"
    )]
    Slots(usize),
    /// The maximum length is not allowed.
    #[error(
        "a shared mailbox cannot hold packets of {0} bytes: the longest must have 1 to 65535 bytes"
    )]
    Longest(usize),
}

/// The memory has fewer words than the ring needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the shared mailbox needs {needed} bytes of memory, and there are {given}")]
pub struct TooSmall {
    /// Bytes given.
    pub given: usize,
    /// Bytes that [`Geometry::bytes`] requires.
    pub needed: usize,
}

impl Geometry {
    /// Creates the geometry of a ring of `slots` packets of at most `longest` bytes each.
    ///
    /// # Errors
    ///
    /// Unless `slots` is a power of two from 2 to 65,536 and `longest` is from 1 to 65,535.
    pub const fn new(slots: usize, longest: usize) -> Result<Self, GeometryError> {
        if !slots.is_power_of_two() || slots < LEAST_SLOTS || slots > MOST_SLOTS {
            return Err(GeometryError::Slots(slots));
        }
        if longest == 0 || longest > MOST_BYTES {
            return Err(GeometryError::Longest(longest));
        }
        Ok(Geometry {
            slots: slots as u32,
            longest: longest as u32,
        })
    }

    /// Returns the capacity in packets.
    #[must_use]
    pub const fn slots(self) -> usize {
        self.slots as usize
    }

    /// Returns the maximum length of a packet, in bytes.
    #[must_use]
    pub const fn longest(self) -> usize {
        self.longest as usize
    }

    /// Returns the size of the ring in words of eight bytes: two lines, and for each slot its header and its packet,
    /// rounded up to whole lines.
    #[must_use]
    pub const fn words(self) -> usize {
        SLOTS + self.slots() * self.words_of_slot()
    }

    /// Returns [`words`](Self::words) in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.words() * size_of::<u64>()
    }

    const fn words_of_slot(self) -> usize {
        (1 + self.longest().div_ceil(size_of::<u64>())).next_multiple_of(LINE)
    }

    pub(super) fn check(self, memory: &[AtomicU64]) -> Result<(), TooSmall> {
        match memory.len() < self.words() {
            true => Err(TooSmall {
                given: size_of_val(memory),
                needed: self.bytes(),
            }),
            false => Ok(()),
        }
    }
}

/// The place of the next push or pop. It is private to one side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    geometry: Geometry,
    count: u64,
}

impl Place {
    pub(super) fn first(geometry: Geometry) -> Self {
        Place { geometry, count: 0 }
    }

    pub(super) fn geometry(&self) -> Geometry {
        self.geometry
    }

    pub(super) fn advance(&mut self) {
        self.count += 1;
    }

    /// Returns the header of this place and the words of its packet.
    #[inline]
    pub(super) fn slot<'a>(&self, memory: &'a [AtomicU64]) -> (&'a AtomicU64, &'a [AtomicU64]) {
        let index = self.count as usize & (self.geometry.slots() - 1);
        let words = self.geometry.words_of_slot();
        let start = SLOTS + index * words;
        let slot = &memory[start..start + words];
        (&slot[0], &slot[1..])
    }

    /// Returns the generation alone, which is the header while there is no packet here.
    #[inline]
    pub(super) fn free(&self) -> u64 {
        let generation = (self.count >> self.geometry.slots.trailing_zeros()) as u32;
        u64::from(generation) << u32::BITS
    }

    /// Returns the header of a packet of `length` bytes here.
    #[inline]
    pub(super) fn full(&self, length: usize) -> u64 {
        debug_assert!((1..=self.geometry.longest()).contains(&length));
        self.free() | length as u64
    }

    /// Returns the header for the next lap's push.
    #[inline]
    pub(super) fn freed(&self) -> u64 {
        let count = self.count + u64::from(self.geometry.slots);
        Place { count, ..*self }.free()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_slot_starts_a_line_and_holds_its_longest_packet() {
        for longest in [1, 8, 55, 56, 57, 1500, 1514, 65_535] {
            let geometry = Geometry::new(2, longest).unwrap();
            let words = geometry.words_of_slot();
            assert_eq!(words % LINE, 0);
            assert!((words - 1) * 8 >= longest, "{longest}");
            assert!((words - 1 - LINE.min(words - 1)) * 8 < longest, "{longest}");
        }
    }

    #[test]
    fn a_generation_that_wraps_is_the_next_of_the_last() {
        let geometry = Geometry::new(4, 100).unwrap();
        let last = Place {
            geometry,
            count: (4 << 32) - 1,
        };
        assert_eq!(last.free(), u64::from(u32::MAX) << 32);
        assert_eq!(last.freed(), 0);
        let mut next = last;
        next.advance();
        assert_eq!(next.free(), 0);
    }
}
