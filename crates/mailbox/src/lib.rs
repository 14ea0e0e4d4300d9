//! A bounded queue between one producer thread and one consumer thread, which share only the slots: the mailbox of
//! PSPAT, after FastForward.
//!
//! 1. L. Rizzo, P. Valente, G. Lettieri, V. Maffione, "PSPAT: Software packet scheduling at hardware speed", Section 4.
//! 2. J. Giacomoni, T. Moseley, M. Vachharajani, "FastForward for efficient pipeline parallelism", PPoPP 2008.
//!
//! ```
//! use fairlane_mailbox::{Full, mailbox};
//!
//! let (mut client, mut arbiter) = mailbox::<u64>(64)?;
//! assert_eq!(client.push(7), Ok(()));
//! assert_eq!(arbiter.pop(), Some(7));
//! assert_eq!(arbiter.pop(), None);
//!
//! // A full mailbox returns the value at once.
//! let refused = (0..).find_map(|i| client.push(i).err());
//! assert!(matches!(refused, Some(Full(i)) if i >= client.capacity() as u64));
//! # Ok::<(), fairlane_mailbox::CapacityError>(())
//! ```
//!
//! # The protocol
//!
//! A ring of cache lines. A line contains a count and as many values as fit ([`slots_per_line`]: seven of 8 bytes,
//! three of 16). Four lines are a block ([`slots_per_block`]). `tail` belongs to the producer and `head` to the
//! consumer, and neither end ever reads the other's.
//!
//! * **Push** writes the value into the slot at `tail` and then the line's count (`Release`). A batch writes the count
//!   once per line. Before the first slot of a block, and only there, the producer reads one count (`Acquire`): that of
//!   the first line of the *next* block. If it is not 0, the mailbox is full.
//! * **Pop** reads the count of the line at `head` (`Acquire`), and moves out the values that it covers; it reads the
//!   count again when those are used up. After the last value of a block, the consumer sets the count of the block's
//!   first line to 0 (`Release`).
//!
//! A bit of each count distinguishes even laps from odd ones, so the counts of the last lap need not be cleared: the
//! consumer reads them as 0. The producer, which tests for 0, ignores the bit.
//!
//! There is no atomic read-modify-write and no fence on either path.
//!
//! # Why it is sound
//!
//! **A value is complete when it is seen.** The consumer has read the line's full count on the lap before, so by
//! coherence it now reads that one again, or its own 0, or a count of this lap, which the bit identifies. A count of
//! this lap was stored with `Release` after the values it covers, and the load is an `Acquire`: the writes happen
//! before the reads.
//!
//! **A slot is free when it is written.** The producer stored the count that it reads on the lap before, so by
//! coherence a 0 there is either the initial one (of an unused block) or the consumer's `Release` of that block on the
//! lap before. All earlier operations of the consumer happen before the load: it has moved out every value of that
//! block. Blocks are released in ring order, so the block about to be entered, which comes before, is free as well.
//! Inside a block the producer needs no further check.
//!
//! **The two ends never write to the same cache line.** The consumer writes only to a block that it has consumed
//! completely, hence one that the producer has left. When the mailbox is nearly full, the producer is in block `k`,
//! block `k + 1` is free, and the oldest that the consumer can still release is `k + 2` or later. When it is nearly
//! empty, the consumer reads the line that the producer writes, and each read takes the line away from the producer's
//! cache. **The caller limits the rate of reads**: an arbiter should read a mailbox at most once in one or two
//! microseconds, and pop all queued values (Section 4.1).
//!
//! **An abandoned mailbox hides no value.** A dropped end sets its "gone" flag (`Release`) after its last operation;
//! the other end reads it with `Acquire`. A consumer that reads it as set therefore sees every count that the producer
//! ever stored.
//!
//! **Remaining values are dropped once.** A dropped consumer stores its `head`. The end that is dropped last drops the
//! values from there on, up to the first slot that its line's count does not cover: at least one block is always free.
//! The slots consumed but not yet released lie before `head`. If the destructor of a value panics, the values after it
//! are leaked.
//!
//! # Capacity
//!
//! Let `W` be the number of queued values, pushed and not popped, `B` the slots of a block and `N` those of the ring.
//! [`mailbox`] makes the ring so long that `N - 2B + 1` is at least the requested number, and exceeds it by less than
//! `B`.
//!
//! * While `W <= N - 2B`, a push succeeds; so `N - 2B + 1` values can always be queued. [`Producer::capacity`] returns
//!   this number.
//! * `W` never exceeds `N - B`.
//! * In between, the result depends on the consumed part of the consumer's block and the free part of the producer's
//!   block.
//!
//! The release of a block takes a moment to become visible to another thread; until then the producer counts the values
//! of that block as queued.
//!
//! # Memory
//!
//! A line takes 64 bytes, or, when one value is too large for that, the value and the count rounded up to a multiple of
//! 64. A block takes 256 bytes or one line. [`mailbox`] allocates and touches all of it; later calls do not allocate.
//!
//! An end writes its own index on every call that succeeds. Keep ends that belong to different threads on different
//! cache lines.
//!
//! # Cost
//!
//! A push or pop of a value of 8 bytes takes 1 to 3 ns, and stays there while the mailbox is nearly full or empty;
//! `cargo bench -p fairlane-mailbox --bench mailbox` compares it with other queues. `docs/internals/mailbox.md` has the
//! figures, and those of other layouts.

#![deny(unsafe_code)]
#![warn(missing_debug_implementations)]

pub mod bell;
#[expect(unsafe_code, reason = "takes values out of the slots")]
mod consumer;
mod error;
#[doc(hidden)]
pub mod free;
#[doc(hidden)]
pub mod memo;
#[cfg_attr(
    all(target_arch = "x86_64", not(loom), not(miri)),
    expect(
        unsafe_code,
        reason = "asks for memory by an instruction of the processor"
    )
)]
mod prefetch;
#[expect(unsafe_code, reason = "puts values into the slots")]
mod producer;
mod room;
#[doc(hidden)]
pub mod shared;
#[expect(unsafe_code, reason = "owns the slots' memory")]
mod slots;
mod sync;

pub use consumer::Consumer;
pub use error::{CapacityError, Full};
#[doc(hidden)]
pub use prefetch::prefetch;
pub use producer::Producer;
pub use room::Room;
#[doc(hidden)]
pub use slots::{most_waiting, slots_per_block, slots_per_line};

use slots::Shared;
use sync::Arc;

/// Creates a mailbox for at least `slots` values and returns its two ends.
///
/// While fewer than `slots` values are queued, a push succeeds; a few more may be accepted, see the [crate
/// documentation](crate#capacity). Both ends share the memory; dropping the second end frees it and drops the remaining
/// values.
///
/// Cost: O(`slots`). A mailbox allocates here and never again.
///
/// # Errors
///
/// [`CapacityError`] unless `slots` is a power of two from 2 to 2<sup>24</sup>, or to less if `T` is so large that the
/// address space limits it.
///
/// Values must be [`Send`]:
///
/// ```compile_fail,E0277
/// let _ = fairlane_mailbox::mailbox::<std::rc::Rc<u8>>(64);
/// ```
///
/// Each end can move to another thread:
///
/// ```
/// use fairlane_mailbox::{CapacityError, Consumer, Producer, mailbox};
///
/// let (mut client, mut arbiter): (Producer<String>, Consumer<String>) = mailbox(64)?;
/// let sender = std::thread::spawn(move || client.push("from a thread".to_owned()));
/// sender.join().unwrap().unwrap();
/// assert!(arbiter.is_abandoned(), "the thread has ended, and its end with it");
/// assert_eq!(arbiter.pop().as_deref(), Some("from a thread"));
///
/// let refused: CapacityError = mailbox::<u64>(100).unwrap_err();
/// assert_eq!((refused.given, refused.least), (100, 2));
/// # Ok::<(), CapacityError>(())
/// ```
pub fn mailbox<T: Send>(slots: usize) -> Result<(Producer<T>, Consumer<T>), CapacityError> {
    let shared = Arc::new(Shared::new(slots)?);
    Ok((Producer::new(Arc::clone(&shared)), Consumer::new(shared)))
}
