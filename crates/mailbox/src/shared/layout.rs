//! Where things lie in the shared memory.

use crate::sync::AtomicU64;

/// Words of eight bytes in a cache line.
const LINE: usize = 8;

/// The receiver's wish to be woken: 1 while it dozes. A line of its own, as the sender reads it
/// after every push, and it changes only when the receiver goes to doze or is woken.
pub(super) const DOZING: usize = 0;

/// What the receiver tells the sender, each counted from 0: a line of its own, as it changes with
/// every packet and is rarely read.
pub(super) const ACCEPTED: usize = LINE;
pub(super) const MALFORMED: usize = LINE + 1;
pub(super) const DROPPED: usize = LINE + 2;

/// The first slot.
const SLOTS: usize = 2 * LINE;

const LEAST_SLOTS: usize = 2;
const MOST_SLOTS: usize = 1 << 16;
const MOST_BYTES: usize = 65_535;

/// How many packets a ring has room for, and how long they may be.
///
/// Both sides must be given the same; neither reads it from the shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    slots: u32,
    longest: u32,
}

/// A ring cannot have that shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GeometryError {
    /// The number of slots is not one that a ring can have.
    #[error(
        "a shared mailbox cannot have {0} slots: the number must be a power of two from 2 to 65536"
    )]
    Slots(usize),
    /// The longest packet is not one that a slot can hold.
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
    /// Bytes that [`Geometry::bytes`] asks for.
    pub needed: usize,
}

impl Geometry {
    /// A ring of `slots` packets of at most `longest` bytes each.
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

    /// Packets that can wait.
    #[must_use]
    pub const fn slots(self) -> usize {
        self.slots as usize
    }

    /// The longest packet, in bytes.
    #[must_use]
    pub const fn longest(self) -> usize {
        self.longest as usize
    }

    /// Words of eight bytes that the ring takes: two lines, and for each slot its header and its
    /// packet, rounded up to whole lines.
    #[must_use]
    pub const fn words(self) -> usize {
        SLOTS + self.slots() * self.words_of_slot()
    }

    /// [`words`](Self::words) in bytes.
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

/// The place of the next push or pop. It is one side's own and never leaves it.
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

    /// The header of this place and the words of its packet.
    #[inline]
    pub(super) fn slot<'a>(&self, memory: &'a [AtomicU64]) -> (&'a AtomicU64, &'a [AtomicU64]) {
        let index = self.count as usize & (self.geometry.slots() - 1);
        let words = self.geometry.words_of_slot();
        let start = SLOTS + index * words;
        let slot = &memory[start..start + words];
        (&slot[0], &slot[1..])
    }

    /// The generation alone, which is also the header while there is no packet here.
    #[inline]
    pub(super) fn free(&self) -> u64 {
        let generation = (self.count >> self.geometry.slots.trailing_zeros()) as u32;
        u64::from(generation) << u32::BITS
    }

    /// The header once a packet of `length` bytes is here.
    #[inline]
    pub(super) fn full(&self, length: usize) -> u64 {
        debug_assert!((1..=self.geometry.longest()).contains(&length));
        self.free() | length as u64
    }

    /// The header for the next lap's push.
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
