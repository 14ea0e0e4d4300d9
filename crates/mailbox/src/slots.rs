//! The memory of the slots: layout in cache lines, allocation and release.

use core::{marker::PhantomData, mem::MaybeUninit, ptr::NonNull};
use std::alloc::{self, Layout};

use crate::prefetch::prefetch;
use crate::{
    error::CapacityError,
    sync::{AtomicBool, AtomicU8, AtomicUsize, Ordering, UnsafeCell},
};

const CACHE_LINE: usize = 64;
const MOST_SLOTS: usize = 1 << 24;

/// The bit of a count that alternates between laps, so that the counts of the last lap read as 0 in this one, and need
/// not be cleared.
const LAP: u8 = 0x80;

/// Whether an end's laps around the ring are even or odd in number.
#[derive(Clone, Copy)]
pub(crate) struct Lap(u8);

impl Lap {
    /// The first lap, in which the counts of a new ring, 0, mean empty.
    pub(crate) const FIRST: Self = Self(0);

    #[inline]
    pub(crate) fn next(self) -> Self {
        Self(self.0 ^ LAP)
    }

    /// Returns the count to store for `full` slots.
    #[inline]
    pub(crate) fn count(self, full: usize) -> u8 {
        debug_assert!(full < usize::from(LAP));
        full as u8 | self.0
    }

    /// Returns the number of slots that are full in this lap according to a stored count.
    #[inline]
    pub(crate) fn full(self, count: u8) -> usize {
        let full = count ^ self.0;
        if full < LAP { usize::from(full) } else { 0 }
    }
}

/// Whether a stored count says that the slots are free, in any lap.
#[inline]
pub(crate) fn is_free(count: u8) -> bool {
    count & !LAP == 0
}

/// A place for a value. It contains one from the moment when its line's count covers it until the consumer moves it
/// out.
type Slot<T> = UnsafeCell<MaybeUninit<T>>;

/// The memory layout of a ring of values of type `T`.
///
/// ```text
/// |----------------- a block -----------------|
/// | count, slots.. | count, slots.. | ..      | ..
/// |---- a line ----|
/// ```
pub(crate) struct Ring<T>(PhantomData<T>);

impl<T> Ring<T> {
    /// The smallest offset of a line's first slot, behind its count.
    const AFTER_COUNT: usize = size_of::<AtomicU8>().next_multiple_of(align_of::<Slot<T>>());

    /// Slots in a line.
    pub(crate) const PER_LINE: usize = {
        let room = CACHE_LINE.saturating_sub(Self::AFTER_COUNT);
        if cfg!(loom) {
            // Small enough that a few operations reach every line, with lines that one push fills and lines that need
            // several.
            if size_of::<T>() < size_of::<u64>() {
                2
            } else {
                1
            }
        } else if size_of::<T>() == 0 {
            room
        } else if size_of::<T>() > room {
            1
        } else {
            room / size_of::<T>()
        }
    };

    const ALIGN: usize = if align_of::<Slot<T>>() > CACHE_LINE {
        align_of::<Slot<T>>()
    } else {
        CACHE_LINE
    };

    /// Whole cache lines: otherwise a line could share a cache line with its predecessor, and the two ends could write
    /// to the same one.
    pub(crate) const LINE_BYTES: usize =
        (Self::AFTER_COUNT + Self::PER_LINE * size_of::<Slot<T>>()).next_multiple_of(Self::ALIGN);

    /// The offset of the first slot of a line: as large as possible, so that values whose size is a power of two do not
    /// straddle cache lines.
    const FIRST_SLOT: usize = Self::LINE_BYTES - Self::PER_LINE * size_of::<Slot<T>>();

    /// Bytes that are released together: four cache lines, or one line if it is longer.
    pub(crate) const BLOCK_BYTES: usize = {
        let lines = 4 * CACHE_LINE / Self::LINE_BYTES;
        Self::LINE_BYTES
            * if cfg!(loom) {
                2
            } else if lines == 0 {
                1
            } else {
                lines
            }
    };

    pub(crate) const PER_BLOCK: usize = Self::BLOCK_BYTES / Self::LINE_BYTES * Self::PER_LINE;

    /// Under loom a ring may have two blocks, which fill up soon.
    const LEAST: usize = if cfg!(loom) { 1 } else { 2 };

    const MOST: usize = {
        let mut slots = MOST_SLOTS;
        while slots > 0 && Self::bytes(slots).is_none() {
            slots /= 2;
        }
        slots
    };

    /// Returns the number of blocks of a ring for `slots` values.
    const fn blocks(slots: usize) -> usize {
        (slots - 1).div_ceil(Self::PER_BLOCK) + 2
    }

    /// Returns the length of a ring that accepts a push while fewer than `slots` values are queued: the two ends
    /// withhold at most two blocks from each other. `None` if it exceeds the address space.
    const fn bytes(slots: usize) -> Option<usize> {
        match Self::blocks(slots).checked_mul(Self::BLOCK_BYTES) {
            Some(bytes) if bytes <= isize::MAX as usize - (Self::ALIGN - 1) => Some(bytes),
            _ => None,
        }
    }
}

const _: () = {
    assert!(Ring::<u64>::MOST == MOST_SLOTS);
    assert!(Ring::<u8>::PER_LINE < LAP as usize, "a count is seven bits");
};

#[cfg(not(loom))]
const _: () = {
    assert!(Ring::<u64>::LINE_BYTES == CACHE_LINE && Ring::<u64>::PER_LINE == 7);
    assert!(Ring::<[u64; 2]>::LINE_BYTES == CACHE_LINE && Ring::<[u64; 2]>::PER_LINE == 3);
    assert!(Ring::<[u64; 2]>::FIRST_SLOT == 16);
};

// A test could not create such a mailbox: the value does not fit on a stack.
#[cfg(all(target_pointer_width = "64", not(loom)))]
const _: () = assert!(Ring::<[u8; 1 << 60]>::MOST == 4);

/// Returns the number of values of type `T` that share a cache line and its count: as many as fit in 64 bytes, or 1 if
/// a single one does not. Seven of 8 bytes, three of 16.
///
/// Cost: a constant.
///
/// ```
/// use fairlane_mailbox::{slots_per_block, slots_per_line};
///
/// assert_eq!((slots_per_line::<u64>(), slots_per_block::<u64>()), (7, 28));
/// // A value longer than a line has its own lines, and is released by itself.
/// assert_eq!((slots_per_line::<[u64; 20]>(), slots_per_block::<[u64; 20]>()), (1, 1));
/// ```
#[must_use]
pub const fn slots_per_line<T>() -> usize {
    Ring::<T>::PER_LINE
}

/// Returns the number of slots that the consumer releases at a time: those of the lines in 256 bytes, or of a single
/// line if that is longer.
///
/// Cost: a constant.
#[must_use]
pub const fn slots_per_block<T>() -> usize {
    Ring::<T>::PER_BLOCK
}

/// Returns the largest number of values of type `T` in a [`mailbox`](crate::mailbox) for `slots` values, which is a few
/// more than [always fit](crate#capacity).
///
/// Cost: a constant.
///
/// ```
/// use fairlane_mailbox::{mailbox, most_waiting};
///
/// let (mut producer, consumer) = mailbox::<[u64; 7]>(64)?;
/// let most = (0..).find(|_| producer.push([0; 7]).is_err());
/// assert_eq!(most, Some(most_waiting::<[u64; 7]>(64)));
/// assert!(consumer.capacity() <= most_waiting::<[u64; 7]>(64));
/// # Ok::<(), fairlane_mailbox::CapacityError>(())
/// ```
///
/// # Panics
///
/// If `slots` is 0.
#[must_use]
pub const fn most_waiting<T>(slots: usize) -> usize {
    (Ring::<T>::blocks(slots) - 1) * Ring::<T>::PER_BLOCK
}

/// The address of the slots. Each end has its own copy, so that finding a slot reads no memory that the other end can
/// reach.
///
/// A line is named by its distance from the start of the ring, in bytes.
pub(crate) struct View<T> {
    base: NonNull<u8>,
    bytes: usize,
    of: PhantomData<*const T>,
}

impl<T> Clone for View<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for View<T> {}

// SAFETY: a view is an address and a number. The memory there is accessed only through `full` and `slot`: atomics,
// which may be shared, and cells, whose values the two ends hand over from thread to thread, which `T: Send` permits.
unsafe impl<T: Send> Send for View<T> {}
// SAFETY: as above; no method of a view returns a `&T`.
unsafe impl<T: Send> Sync for View<T> {}

impl<T> View<T> {
    /// Returns the line `bytes` after `line`, around the ring; `bytes` is at most a block's and a multiple of a line's.
    #[inline]
    pub(crate) fn after(self, line: usize, bytes: usize) -> usize {
        debug_assert!(line < self.bytes && bytes <= Ring::<T>::BLOCK_BYTES);
        let next = line + bytes;
        if next >= self.bytes {
            next - self.bytes
        } else {
            next
        }
    }

    #[inline]
    pub(crate) fn starts_block(self, line: usize) -> bool {
        line.is_multiple_of(Ring::<T>::BLOCK_BYTES)
    }

    /// See [`Producer::capacity`](crate::Producer::capacity).
    pub(crate) fn capacity(self) -> usize {
        (self.bytes / Ring::<T>::BLOCK_BYTES - 2) * Ring::<T>::PER_BLOCK + 1
    }

    /// Returns the count of the line at `line`: the number of slots that the producer has filled. The consumer sets
    /// that of a block's first line to 0 when it releases the block. See [`Lap`].
    ///
    /// # Safety
    ///
    /// The [`Slots`] that this view comes from must outlive `'a`, and a line of theirs must start at `line`.
    #[inline]
    pub(crate) unsafe fn full<'a>(self, line: usize) -> &'a AtomicU8 {
        debug_assert!(line < self.bytes && line.is_multiple_of(Ring::<T>::LINE_BYTES));
        // SAFETY: the caller ensures that `line` is valid and the allocation alive; `Slots::new` initialised every
        // count, and counts are only ever borrowed shared.
        unsafe { self.base.byte_add(line).cast().as_ref() }
    }

    /// Writes `value` into the slot at `place` of the line at `line`.
    ///
    /// # Safety
    ///
    /// As for [`full`](Self::full). `place` must be in `0..PER_LINE` and not covered by the line's count, and the
    /// consumer must have released the line, which the producer saw when it entered the line's block.
    #[inline]
    pub(crate) unsafe fn write(self, line: usize, place: usize, value: T) {
        // SAFETY: the caller's promise.
        let slot = unsafe { self.slot(line, place) };
        // SAFETY: the producer's load ordered the consumer's reads before this write, and the consumer does not read a
        // slot that the count does not cover.
        slot.with_mut(|slot| unsafe { slot.write(MaybeUninit::new(value)) });
    }

    /// Moves the value out of the slot at `place` of the line at `line`.
    ///
    /// # Safety
    ///
    /// As for [`full`](Self::full). The consumer must have seen that the line's count covers `place`, and must not read
    /// the slot again, nor release the line before.
    #[inline]
    pub(crate) unsafe fn read(self, line: usize, place: usize) -> T {
        // SAFETY: the caller's promise; a count is at most `PER_LINE`.
        let slot = unsafe { self.slot(line, place) };
        // SAFETY: the count covers the slot, so the value was written, and the load of the count ordered that write
        // before this read. The producer does not write before the line is released.
        slot.with(|slot| unsafe { slot.read().assume_init() })
    }

    /// Returns the slot at `place`, in `0..PER_LINE`, of the line at `line`.
    ///
    /// # Safety
    ///
    /// As for [`full`](Self::full); and `place` must be in range.
    #[inline]
    unsafe fn slot<'a>(self, line: usize, place: usize) -> &'a Slot<T> {
        debug_assert!(place < Ring::<T>::PER_LINE);
        // SAFETY: as for `full`; `Slots::new` initialised every cell.
        unsafe { self.slot_address(line, place).as_ref() }
    }

    /// Returns the address of a slot, initialised or not.
    ///
    /// # Safety
    ///
    /// `base` must be an allocation of [`Slots::layout`] for a ring in which a line starts at `line`, and `place` must
    /// be in `0..PER_LINE`.
    #[inline]
    unsafe fn slot_address(self, line: usize, place: usize) -> NonNull<Slot<T>> {
        // SAFETY: a line is `FIRST_SLOT` bytes and `PER_LINE` slots long.
        unsafe {
            self.base
                .byte_add(line + Ring::<T>::FIRST_SLOT)
                .cast::<Slot<T>>()
                .add(place)
        }
    }

    /// Prefetches the line at `line`.
    #[inline]
    pub(crate) fn prefetch(self, line: usize) {
        prefetch(self.base.as_ptr().wrapping_byte_add(line));
    }
}

/// Owner of the slots' memory, not of the values in it.
struct Slots<T> {
    view: View<T>,
    owns: PhantomData<T>,
}

impl<T> Slots<T> {
    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, Ring::<T>::ALIGN)
            .expect("the number of slots was checked against the address space")
    }

    fn new(slots: usize) -> Result<Self, CapacityError> {
        let (least, most) = (Ring::<T>::LEAST, Ring::<T>::MOST);
        let refused = CapacityError {
            given: slots,
            least,
            most,
        };
        if !slots.is_power_of_two() || slots < least || slots > most {
            return Err(refused);
        }
        let bytes = Ring::<T>::bytes(slots).ok_or(refused)?;
        let layout = Self::layout(bytes);
        // SAFETY: a layout of two blocks or more is not empty.
        let memory = unsafe { alloc::alloc(layout) };
        let Some(base) = NonNull::new(memory) else {
            alloc::handle_alloc_error(layout)
        };
        let view = View {
            base,
            bytes,
            of: PhantomData,
        };
        for line in (0..bytes).step_by(Ring::<T>::LINE_BYTES) {
            // SAFETY: a line of the ring just allocated starts at `line`,
            // aligned since `ALIGN` and `LINE_BYTES` are multiples of the
            // alignments of a count and of a slot.
            unsafe {
                base.byte_add(line)
                    .cast::<AtomicU8>()
                    .write(AtomicU8::new(0));
                for place in 0..Ring::<T>::PER_LINE {
                    view.slot_address(line, place)
                        .write(UnsafeCell::new(MaybeUninit::uninit()));
                }
            }
        }
        Ok(Self {
            view,
            owns: PhantomData,
        })
    }
}

impl<T> Drop for Slots<T> {
    fn drop(&mut self) {
        // Slots have no destructor: values are dropped by `Shared`.
        //
        // SAFETY: allocated by `new` with the layout of this very length, and
        // both ends are gone, so no borrow of a slot is left.
        unsafe { alloc::dealloc(self.view.base.as_ptr(), Self::layout(self.view.bytes)) };
    }
}

/// The state that both ends keep alive. After construction neither accesses it until one of them is dropped or checks
/// whether the other was.
pub(crate) struct Shared<T> {
    slots: Slots<T>,
    /// Set when the producer is dropped.
    pub(crate) producer_gone: AtomicBool,
    /// Set when the consumer is dropped.
    pub(crate) consumer_gone: AtomicBool,
    /// The line where the dropped consumer would have popped next.
    pub(crate) last_line: AtomicUsize,
    /// The place in that line, in `0..PER_LINE`.
    pub(crate) last_place: AtomicUsize,
    /// Whether the lap around the ring was an odd one, counting from 0.
    pub(crate) last_lap_odd: AtomicBool,
}

// SAFETY: the pointer in `slots` is that of a `View`, and the same argument holds; the end that is dropped last drops
// the remaining values, for which `T: Send` is necessary and sufficient.
unsafe impl<T: Send> Send for Slots<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Slots<T> {}

impl<T> Shared<T> {
    pub(crate) fn new(slots: usize) -> Result<Self, CapacityError> {
        Ok(Self {
            slots: Slots::new(slots)?,
            producer_gone: AtomicBool::new(false),
            consumer_gone: AtomicBool::new(false),
            last_line: AtomicUsize::new(0),
            last_place: AtomicUsize::new(0),
            last_lap_odd: AtomicBool::new(false),
        })
    }

    pub(crate) fn view(&self) -> View<T> {
        self.slots.view
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        if !core::mem::needs_drop::<T>() {
            return;
        }
        let view = self.view();
        // Relaxed throughout: the reference count has ordered everything that
        // either end did before this.
        let mut line = self.last_line.load(Ordering::Relaxed);
        let mut first = self.last_place.load(Ordering::Relaxed);
        let mut lap = Lap::FIRST;
        if self.last_lap_odd.load(Ordering::Relaxed) {
            lap = lap.next();
        }
        loop {
            // SAFETY: a line starts at `line`, and `slots` is still alive.
            let full = lap.full(unsafe { view.full(line) }.load(Ordering::Relaxed));
            for place in first..full {
                // SAFETY: `full` slots are in the line.
                let slot = unsafe { view.slot(line, place) };
                // SAFETY: a full slot at or after the consumer's place contains a value that was not moved out; the
                // walk ends at the free block, before it could come back to the slots before.
                slot.with_mut(|value| unsafe { (*value).assume_init_drop() });
            }
            if full < Ring::<T>::PER_LINE {
                return;
            }
            (line, first) = (view.after(line, Ring::<T>::LINE_BYTES), 0);
            if line == 0 {
                lap = lap.next();
            }
        }
    }
}
