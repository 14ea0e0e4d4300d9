//! Handles: numbers with a generation, looked up without a lock.
//!
//! A place's memory is never freed, so that any number can be looked up at any time. Its state is one word: a
//! generation and a phase that controls access to the content. To enter is one compare-and-exchange from "idle, of the
//! handle's generation" to "busy": it fails for a closed handle, whatever its place contains now, and for a second
//! caller, without any effect on others.

use std::cell::UnsafeCell;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::status::fl_status;

/// Places in the first chunk. Each further one has twice as many as the one before.
const FIRST: u32 = 64;

/// Number of chunks: 4 million places.
const CHUNKS: usize = 16;

const MOST: u32 = FIRST * ((1 << CHUNKS) - 1);

/// Bits of a handle: the kind, the place, the generation.
const PLACE: u32 = 32;
const KIND: u32 = 56;

/// The number of low bits of a state, below the generation, that contain the phase.
const PHASES: u32 = 2;
const FREE: u64 = 0;
const IDLE: u64 = 1;
const BUSY: u64 = 2;
/// A panic left it inconsistent.
const BROKEN: u64 = 3;

const fn state(generation: u32, phase: u64) -> u64 {
    (generation as u64) << PHASES | phase
}

/// On its own cache line, so that two handles in use by two threads do not share one.
#[repr(align(64))]
struct Slot<T> {
    state: AtomicU64,
    content: UnsafeCell<Option<T>>,
}

// SAFETY: `content` is accessed only by the thread that moved `state` to `BUSY`, one at a time, or by the one that
// holds the lock of `vacant` and found the place there, which no thread can enter. Both pass it on with a release that
// the next one acquires. So it moves between threads, and is never shared.
unsafe impl<T: Send> Sync for Slot<T> {}

impl<T> Slot<T> {
    fn new() -> Self {
        Slot {
            state: AtomicU64::new(state(1, FREE)),
            content: UnsafeCell::new(None),
        }
    }
}

/// A table of values with handles for C.
pub(crate) struct Table<T> {
    /// The kind that distinguishes its handles from those of other tables; not 0.
    kind: u8,
    chunks: [OnceLock<Box<[Slot<T>]>>; CHUNKS],
    vacant: Mutex<Vacant>,
}

struct Vacant {
    /// Free places that were used before.
    places: Vec<u32>,
    /// The first place that was never used.
    next: u32,
}

/// Exclusive access to a place, which becomes broken unless it is left explicitly.
struct Entered<'a, T> {
    slot: &'a Slot<T>,
    generation: u32,
}

impl<T> Entered<'_, T> {
    fn leave(self, generation: u32, phase: u64) {
        self.slot
            .state
            .store(state(generation, phase), Ordering::Release);
        mem::forget(self);
    }
}

impl<T> Drop for Entered<'_, T> {
    #[cold]
    fn drop(&mut self) {
        let broken = state(self.generation, BROKEN);
        self.slot.state.store(broken, Ordering::Release);
    }
}

impl<T: Send> Table<T> {
    pub(crate) const fn new(kind: u8) -> Self {
        Table {
            kind,
            chunks: [const { OnceLock::new() }; CHUNKS],
            vacant: Mutex::new(Vacant {
                places: Vec::new(),
                next: 0,
            }),
        }
    }

    /// Creates a handle for a value.
    pub(crate) fn open(&self, value: T) -> Result<u64, fl_status> {
        let mut vacant = self.vacant();
        let place = match vacant.places.pop() {
            Some(place) => place,
            None if vacant.next < MOST => {
                let place = vacant.next;
                let (chunk, _) = chunk_of(place);
                self.chunks[chunk]
                    .get_or_init(|| (0..FIRST << chunk).map(|_| Slot::new()).collect());
                vacant.next += 1;
                place
            }
            None => return Err(fl_status::FL_ERR_MANY),
        };
        let slot = self.slot(place).ok_or(fl_status::FL_ERR_MANY)?;
        // Only the holder of the lock changes the state of a free place.
        let generation = (slot.state.load(Ordering::Acquire) >> PHASES) as u32;
        // SAFETY: the place was among the vacant ones and the lock is held, so no other thread has it; no handle of
        // this generation was given out, so no thread can enter.
        unsafe { *slot.content.get() = Some(value) };
        slot.state.store(state(generation, IDLE), Ordering::Release);
        Ok(u64::from(self.kind) << KIND | u64::from(place) << PLACE | u64::from(generation))
    }

    /// Runs `work` with exclusive access to the value of a handle.
    #[inline]
    pub(crate) fn with<R>(
        &self,
        handle: u64,
        work: impl FnOnce(&mut T) -> R,
    ) -> Result<R, fl_status> {
        let entered = self.enter(handle, IDLE)?;
        // SAFETY: only this call has moved the state to `BUSY`, and no other enters until it leaves. Calls from `work`
        // with the same handle find it busy.
        let content = unsafe { &mut *entered.slot.content.get() };
        let value = content.as_mut().ok_or(fl_status::FL_ERR_HANDLE)?;
        let result = work(value);
        let generation = entered.generation;
        entered.leave(generation, IDLE);
        Ok(result)
    }

    /// Closes a handle, after running `last` on its value. A value that a panic left inconsistent is not touched, and
    /// its memory is leaked.
    pub(crate) fn close(&self, handle: u64, last: impl FnOnce(&mut T)) -> Result<(), fl_status> {
        let (entered, broken) = match self.enter(handle, IDLE) {
            Err(fl_status::FL_ERR_PANIC) => (self.enter(handle, BROKEN)?, true),
            entered => (entered?, false),
        };
        // SAFETY: as in `with`.
        let content = unsafe { &mut *entered.slot.content.get() };
        match content.take() {
            Some(mut value) if !broken => last(&mut value),
            lost => mem::forget(lost),
        }
        // A place whose generations are used up is not reused.
        let next = entered.generation.checked_add(1);
        entered.leave(next.unwrap_or(0), FREE);
        if next.is_some() {
            self.vacant().places.push(place_of(handle));
        }
        Ok(())
    }

    /// Moves the state of a handle's place from `phase` to `BUSY`.
    #[inline]
    fn enter(&self, handle: u64, phase: u64) -> Result<Entered<'_, T>, fl_status> {
        let generation = handle as u32;
        if handle >> KIND != u64::from(self.kind) {
            return Err(fl_status::FL_ERR_HANDLE);
        }
        let slot = self
            .slot(place_of(handle))
            .ok_or(fl_status::FL_ERR_HANDLE)?;
        let (from, busy) = (state(generation, phase), state(generation, BUSY));
        let entered =
            (slot.state).compare_exchange(from, busy, Ordering::Acquire, Ordering::Relaxed);
        match entered {
            Ok(_) => Ok(Entered { slot, generation }),
            Err(found) if found == busy => Err(fl_status::FL_ERR_BUSY),
            Err(found) if found == state(generation, BROKEN) => Err(fl_status::FL_ERR_PANIC),
            Err(_) => Err(fl_status::FL_ERR_HANDLE),
        }
    }

    #[inline]
    fn slot(&self, place: u32) -> Option<&Slot<T>> {
        let (chunk, offset) = chunk_of(place);
        self.chunks.get(chunk)?.get()?.get(offset)
    }

    fn vacant(&self) -> MutexGuard<'_, Vacant> {
        self.vacant.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[inline]
const fn place_of(handle: u64) -> u32 {
    (handle >> PLACE) as u32 & ((1 << (KIND - PLACE)) - 1)
}

/// Returns the chunk of a place, and its index there.
#[inline]
const fn chunk_of(place: u32) -> (usize, usize) {
    let chunk = (place / FIRST + 1).ilog2();
    let before = FIRST * ((1 << chunk) - 1);
    (chunk as usize, (place - before) as usize)
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Barrier;
    use std::thread;

    use super::*;
    use crate::status::fl_status::*;

    #[test]
    fn a_place_is_where_it_is_looked_for() {
        let mut expected = (0, 0);
        for place in 0..10_000 {
            assert_eq!(chunk_of(place), expected, "{place}");
            expected.1 += 1;
            if expected.1 == (FIRST as usize) << expected.0 {
                expected = (expected.0 + 1, 0);
            }
        }
        assert_eq!(chunk_of(MOST - 1).0, CHUNKS - 1);
        assert_eq!(chunk_of(MOST), (CHUNKS, 0));
        assert_eq!(place_of(u64::from(MOST - 1) << PLACE | 7 << KIND), MOST - 1);
    }

    #[test]
    fn a_handle_that_is_gone_is_known_whatever_became_of_its_place() {
        let table = Table::new(1);
        let first = table.open(7).unwrap();
        assert_eq!(table.with(first, |value| *value), Ok(7));
        assert_eq!(table.close(first, |_| ()), Ok(()));
        let second = table.open(8).unwrap();
        assert_eq!(place_of(first), place_of(second));
        assert_eq!(table.with(second, |value| *value), Ok(8));
        for gone in [first, 0, u64::MAX, second ^ 1 << PLACE, second ^ 1 << KIND] {
            assert_eq!(table.with(gone, |value| *value), Err(FL_ERR_HANDLE));
            assert_eq!(table.close(gone, |_| ()), Err(FL_ERR_HANDLE));
        }
    }

    #[test]
    fn who_comes_second_is_refused_within_a_call_and_from_another_thread() {
        let table = Table::new(1);
        let handle = table.open(()).unwrap();
        let both = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                both.wait();
                assert_eq!(table.with(handle, |()| ()), Err(FL_ERR_BUSY));
                both.wait();
            });
            let nested = table.with(handle, |()| {
                both.wait();
                both.wait();
                [table.with(handle, |()| ()), table.close(handle, |()| ())]
            });
            assert_eq!(nested, Ok([Err(FL_ERR_BUSY); 2]));
        });
        assert_eq!(table.with(handle, |()| ()), Ok(()));
    }

    #[test]
    fn threads_that_open_use_and_close_never_meet() {
        let table = Table::new(1);
        let shared = table.open(0).unwrap();
        let done: u64 = thread::scope(|scope| {
            let threads = [0; 4].map(|_| {
                scope.spawn(|| {
                    let mut done = 0;
                    for n in 0..2_000 {
                        let own = table.open(n).unwrap();
                        done += u64::from(table.with(shared, |value| *value += 1).is_ok());
                        assert_eq!(table.with(own, |value| *value), Ok(n));
                        assert_eq!(table.close(own, |value| assert_eq!(*value, n)), Ok(()));
                        assert_eq!(table.with(own, |value| *value), Err(FL_ERR_HANDLE));
                    }
                    done
                })
            });
            threads
                .map(|thread| thread.join().unwrap())
                .into_iter()
                .sum()
        });
        assert_eq!(table.with(shared, |value| *value), Ok(done));
    }

    #[test]
    fn what_a_panic_left_half_done_can_only_be_closed() {
        let table = Table::new(1);
        let handle = table.open(Vec::from([1])).unwrap();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            table.with(handle, |values| assert!(values.is_empty(), "a test of it"))
        }));
        assert!(panicked.is_err());
        assert_eq!(table.with(handle, |value| value.len()), Err(FL_ERR_PANIC));
        assert_eq!(table.close(handle, |_| unreachable!()), Ok(()));
        assert_eq!(table.with(handle, |value| value.len()), Err(FL_ERR_HANDLE));
    }

    #[test]
    fn a_place_whose_generations_are_used_up_is_not_given_out_again() {
        let table = Table::new(1);
        let first = table.open(1).unwrap();
        assert_eq!(table.close(first, |_| ()), Ok(()));
        let slot = table.slot(place_of(first)).unwrap();
        slot.state.store(state(u32::MAX, FREE), Ordering::Release);
        let last = table.open(2).unwrap();
        assert_eq!(last as u32, u32::MAX);
        assert_eq!(table.close(last, |_| ()), Ok(()));
        let other = table.open(3).unwrap();
        assert_ne!(place_of(other), place_of(last));
        for gone in [first, last, last & !0xffff_ffff] {
            assert_eq!(table.with(gone, |value| *value), Err(FL_ERR_HANDLE));
        }
    }
}
