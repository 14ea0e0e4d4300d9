//! The slots' memory: how they lie in cache lines, and who frees them.

use core::{marker::PhantomData, mem::MaybeUninit, ptr::NonNull};
use std::alloc::{self, Layout};

use crate::{
    error::CapacityError,
    sync::{AtomicBool, AtomicUsize, Ordering, UnsafeCell},
};

const CACHE_LINE: usize = 64;
const MOST_SLOTS: usize = 1 << 24;

/// One place for a value.
pub(crate) struct Slot<T> {
    /// Set by the producer once `value` is written; cleared by the consumer,
    /// for a whole line at a time, after `value` was moved out.
    pub(crate) full: AtomicBool,
    /// Initialised exactly when `full` is set and the slot is not before
    /// `head` in a line that the consumer has yet to release.
    pub(crate) value: UnsafeCell<MaybeUninit<T>>,
}

impl<T> Slot<T> {
    /// Slots in a line; a power of two.
    pub(crate) const PER_LINE: usize = {
        let fitting = CACHE_LINE / size_of::<Self>();
        if cfg!(loom) {
            // Small enough that a few operations reach every line.
            2
        } else if fitting == 0 {
            1
        } else {
            1 << fitting.ilog2()
        }
    };

    /// Distance between the starts of two lines, in bytes. Where the slots do
    /// not fill the cache line the rest of it stays unused: a line that began
    /// inside its predecessor would let the two ends write to the same one.
    const LINE_BYTES: usize = (Self::PER_LINE * size_of::<Self>()).next_multiple_of(CACHE_LINE);

    const ALIGN: usize = if align_of::<Self>() > CACHE_LINE {
        align_of::<Self>()
    } else {
        CACHE_LINE
    };

    const LEAST: usize = 2 * Self::PER_LINE;

    const MOST: usize = {
        let lines = (isize::MAX as usize - (Self::ALIGN - 1)) / Self::LINE_BYTES;
        let slots = lines * Self::PER_LINE;
        if slots >= MOST_SLOTS {
            MOST_SLOTS
        } else if slots == 0 {
            0
        } else {
            1 << slots.ilog2()
        }
    };
}

const _: () = {
    assert!(Slot::<u64>::LINE_BYTES.is_multiple_of(Slot::<u64>::ALIGN));
    assert!(cfg!(loom) || Slot::<u64>::LINE_BYTES == CACHE_LINE);
    assert!(cfg!(loom) || Slot::<[u64; 2]>::LINE_BYTES == CACHE_LINE);
    assert!(Slot::<u64>::MOST == MOST_SLOTS);
};

// A test could not ask for such a mailbox: the value does not fit a stack.
#[cfg(all(target_pointer_width = "64", not(loom)))]
const _: () = assert!(Slot::<[u8; 1 << 60]>::MOST == 4);

/// How many values of type `T` share a cache line, each with its flag: the
/// granularity at which slots are released.
///
/// The largest power of two that fits in 64 bytes, or 1 when a single slot is
/// larger than that. A mailbox needs at least twice as many slots.
///
/// Cost: a constant.
#[must_use]
pub const fn slots_per_line<T>() -> usize {
    Slot::<T>::PER_LINE
}

/// Where the slots are. Each end keeps a copy of its own, so that finding a
/// slot reads no memory that the other end can reach.
pub(crate) struct View<T> {
    base: NonNull<Slot<T>>,
    /// Number of slots less one.
    mask: usize,
}

impl<T> Clone for View<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for View<T> {}

// SAFETY: a view is an address and a number. What lies there is reached only
// through `slot`, whose atomics may be shared, and whose cells hold values that
// the two ends hand over from thread to thread, which `T: Send` permits.
unsafe impl<T: Send> Send for View<T> {}
// SAFETY: as above; no method of a view returns a `&T`.
unsafe impl<T: Send> Sync for View<T> {}

impl<T> View<T> {
    pub(crate) fn len(self) -> usize {
        self.mask + 1
    }

    /// The position `steps` after `at`, around the ring; both positions are in
    /// `0..len`.
    #[inline]
    pub(crate) fn after(self, at: usize, steps: usize) -> usize {
        (at + steps) & self.mask
    }

    #[inline]
    pub(crate) fn starts_line(self, at: usize) -> bool {
        at.is_multiple_of(Slot::<T>::PER_LINE)
    }

    /// See [`Producer::capacity`](crate::Producer::capacity).
    pub(crate) fn capacity(self) -> usize {
        self.len() - 2 * Slot::<T>::PER_LINE + 1
    }

    /// The slot at `at`, in `0..len`.
    ///
    /// # Safety
    ///
    /// The [`Slots`] that this view comes from must outlive `'a`, and `at`
    /// must be less than its length.
    #[inline]
    pub(crate) unsafe fn slot<'a>(self, at: usize) -> &'a Slot<T> {
        debug_assert!(at <= self.mask);
        // SAFETY: the caller vouches for `at` and for the allocation being
        // alive; `Slots::new` initialised every slot, and slots are only ever
        // borrowed shared.
        unsafe { self.place(at).as_ref() }
    }

    /// The address of the slot at `at`, initialised or not.
    ///
    /// # Safety
    ///
    /// `base` must be an allocation of [`Slots::layout`] for a ring in which
    /// `at` is a position.
    #[inline]
    unsafe fn place(self, at: usize) -> NonNull<Slot<T>> {
        let line = at / Slot::<T>::PER_LINE;
        let place = at % Slot::<T>::PER_LINE;
        // SAFETY: the layout has a line of `LINE_BYTES` for each `PER_LINE`
        // positions, which these slots fit in.
        unsafe { self.base.byte_add(line * Slot::<T>::LINE_BYTES).add(place) }
    }
}

/// Owner of the slots' memory, not of the values in it.
struct Slots<T> {
    view: View<T>,
    owns: PhantomData<Slot<T>>,
}

impl<T> Slots<T> {
    fn layout(slots: usize) -> Layout {
        let bytes = slots / Slot::<T>::PER_LINE * Slot::<T>::LINE_BYTES;
        debug_assert!(bytes > 0);
        Layout::from_size_align(bytes, Slot::<T>::ALIGN)
            .expect("the number of slots was checked against the address space")
    }

    fn new(slots: usize) -> Result<Self, CapacityError> {
        let (least, most) = (Slot::<T>::LEAST, Slot::<T>::MOST);
        if !slots.is_power_of_two() || slots < least || slots > most {
            return Err(CapacityError {
                given: slots,
                least,
                most,
            });
        }
        let layout = Self::layout(slots);
        // SAFETY: a layout of two lines or more is not empty.
        let memory = unsafe { alloc::alloc(layout) };
        let Some(base) = NonNull::new(memory.cast::<Slot<T>>()) else {
            alloc::handle_alloc_error(layout)
        };
        let view = View {
            base,
            mask: slots - 1,
        };
        for at in 0..slots {
            // SAFETY: `at` is a position of the ring just allocated, aligned
            // since `ALIGN` and `LINE_BYTES` are multiples of the alignment of
            // a slot.
            unsafe {
                view.place(at).write(Slot {
                    full: AtomicBool::new(false),
                    value: UnsafeCell::new(MaybeUninit::uninit()),
                });
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
        unsafe {
            alloc::dealloc(
                self.view.base.as_ptr().cast(),
                Self::layout(self.view.len()),
            );
        }
    }
}

/// What both ends keep alive. After construction neither touches it until one
/// of them is dropped or asks whether the other was.
pub(crate) struct Shared<T> {
    slots: Slots<T>,
    /// Set when the producer is dropped.
    pub(crate) producer_gone: AtomicBool,
    /// Set when the consumer is dropped.
    pub(crate) consumer_gone: AtomicBool,
    /// Where the dropped consumer would have popped next, in `0..len`.
    pub(crate) last_head: AtomicUsize,
}

// SAFETY: the pointer in `slots` is that of a `View`, and the same argument
// holds; values left behind are dropped by whichever end goes last, for which
// `T: Send` is needed and enough.
unsafe impl<T: Send> Send for Slots<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Slots<T> {}

impl<T> Shared<T> {
    pub(crate) fn new(slots: usize) -> Result<Self, CapacityError> {
        Ok(Self {
            slots: Slots::new(slots)?,
            producer_gone: AtomicBool::new(false),
            consumer_gone: AtomicBool::new(false),
            last_head: AtomicUsize::new(0),
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
        let mut at = self.last_head.load(Ordering::Relaxed);
        loop {
            // SAFETY: `at` stays in range, and `slots` is still alive.
            let slot = unsafe { view.slot(at) };
            if !slot.full.load(Ordering::Relaxed) {
                return;
            }
            // SAFETY: a full slot at or after `head` holds a value that nobody
            // has moved out; the walk ends at the free line, before it could
            // come back to the slots before `head`.
            slot.value
                .with_mut(|value| unsafe { (*value).assume_init_drop() });
            at = view.after(at, 1);
        }
    }
}
