//! A bounded queue between one producer thread and one consumer thread that
//! share nothing but the slots: the mailbox of PSPAT, after FastForward.
//!
//! 1. L. Rizzo, P. Valente, G. Lettieri, V. Maffione, "PSPAT: Software packet
//!    scheduling at hardware speed", Section 4.
//! 2. J. Giacomoni, T. Moseley, M. Vachharajani, "FastForward for efficient
//!    pipeline parallelism", PPoPP 2008.
//!
//! ```
//! use fairlane_mailbox::{Full, mailbox};
//!
//! let (mut client, mut arbiter) = mailbox::<u64>(64)?;
//! assert_eq!(client.push(7), Ok(()));
//! assert_eq!(arbiter.pop(), Some(7));
//! assert_eq!(arbiter.pop(), None);
//!
//! // A full mailbox hands the value back at once.
//! let refused = (0..).find_map(|i| client.push(i).err());
//! assert!(matches!(refused, Some(Full(i)) if i >= client.capacity() as u64));
//! # Ok::<(), fairlane_mailbox::CapacityError>(())
//! ```
//!
//! # The protocol
//!
//! A ring of `N` slots is cut into lines of `L` =
//! [`slots_per_line`] slots; a line starts on a cache-line boundary. Each slot
//! holds a value and a flag that says whether the slot is full. `tail` belongs
//! to the producer and `head` to the consumer, and neither ever sees the
//! other's.
//!
//! * **Push** writes the value into the slot at `tail` and then sets the flag
//!   (`Release`). Before the first slot of a line, and only there, it looks at
//!   one flag (`Acquire`): that of the first slot of the *next* line. If it is
//!   set, the mailbox is full.
//! * **Pop** looks at the flag at `head` (`Acquire`), and moves the value out
//!   if it is set. The flag stays set until the last slot of the line has been
//!   consumed; then the consumer clears the whole line, its first slot last
//!   (`Release`).
//!
//! There is no atomic read-modify-write and no fence on either path.
//!
//! # Why it is sound
//!
//! **A value is complete when it is seen.** The consumer cleared each flag
//! itself on the lap before, so by coherence a set flag it reads was stored by
//! the push of this lap. That store is a `Release` after the write of the
//! value, and the load an `Acquire`: the write happens before the read.
//!
//! **A slot is free when it is written.** The producer set the flag it looks
//! at on the lap before, so by coherence a clear flag there is either the
//! initial one (nobody has used that line) or the consumer's `Release` of that
//! line on the lap before. All that the consumer did earlier happens before
//! the load: it has moved out every value of that line, and has cleared the
//! flags of its other slots, for which a `Relaxed` store is therefore enough.
//! Lines are released in ring order, so the line about to be entered, which
//! comes before, is free as well. Inside a line the producer needs no further
//! check.
//!
//! **The two ends never write to the same cache line.** The consumer writes
//! only to a line that it has consumed whole, hence one that the producer has
//! left. When the mailbox is nearly full, the producer is in line `k`, line
//! `k + 1` is free, and the oldest line that the consumer can still clear is
//! `k + 2` or later. When it is nearly empty, the consumer reads the line that
//! the producer writes; Section 4.1 has the consumer limit the rate of its
//! reads, which is left to the caller.
//!
//! **An abandoned mailbox hides nothing.** An end that goes away sets its own
//! "gone" flag (`Release`) after its last operation; the other end reads it
//! with `Acquire`. A consumer that reads it as set therefore sees every flag
//! that the producer ever set.
//!
//! **What is left is dropped once.** The consumer leaves its `head` behind
//! when it goes. Whichever end goes last drops the values of the full slots
//! from there on, up to the first clear flag: one line at least is always
//! free. The slots consumed but not yet released lie before `head`. Should the
//! destructor of a value panic, the values after it are leaked.
//!
//! # Effective capacity
//!
//! Let `W` be the number of values waiting, that is pushed and not popped.
//!
//! * While `W <= N - 2L`, a push succeeds; so at least `N - 2L + 1` values can
//!   wait. This is what [`Producer::capacity`] returns.
//! * `W` never exceeds `N - L`.
//! * In between, the answer depends on how much of the consumer's line has
//!   been consumed and on how much of the producer's line is left.
//!
//! The release of a line takes a moment to become visible to another thread;
//! until then the producer counts the values of that line as waiting.
//!
//! With the smallest ring, `N = 2L`, an empty mailbox accepts at least one
//! value and at most `L`. With `L = 1` the capacity is `N - 1` exactly.
//!
//! # Memory
//!
//! `N / L` lines. A line takes 64 bytes, or, when one slot alone is larger
//! than that, the size of the slot rounded up to a multiple of 64. All of it
//! is allocated and touched by [`mailbox`], none later.
//!
//! An end writes its own index on every call that succeeds. Ends that belong to
//! different threads are best kept on different cache lines.

#![deny(unsafe_code)]

pub mod bell;
#[expect(unsafe_code, reason = "takes values out of the slots")]
mod consumer;
mod error;
#[expect(unsafe_code, reason = "puts values into the slots")]
mod producer;
mod room;
pub mod shared;
#[expect(unsafe_code, reason = "owns the slots' memory")]
mod slots;
mod sync;

pub use consumer::Consumer;
pub use error::{CapacityError, Full};
pub use producer::Producer;
pub use room::Room;
pub use slots::slots_per_line;

use slots::Shared;
use sync::Arc;

/// Creates a mailbox of `slots` slots and returns its two ends.
///
/// The memory is shared by the ends and is freed, together with the values
/// still waiting, when the second of them is dropped. How many values fit is
/// less than `slots`: see the [crate documentation](crate#effective-capacity).
///
/// Cost: O(`slots`). A mailbox allocates here and never again.
///
/// # Errors
///
/// [`CapacityError`] unless `slots` is a power of two, at least two lines'
/// worth of slots (twice [`slots_per_line`]) and at most 2<sup>24</sup>, or
/// less where `T` is so large that the address space ends earlier.
///
/// Values must be [`Send`]:
///
/// ```compile_fail,E0277
/// let _ = fairlane_mailbox::mailbox::<std::rc::Rc<u8>>(64);
/// ```
pub fn mailbox<T: Send>(slots: usize) -> Result<(Producer<T>, Consumer<T>), CapacityError> {
    let shared = Arc::new(Shared::new(slots)?);
    Ok((Producer::new(Arc::clone(&shared)), Consumer::new(shared)))
}
