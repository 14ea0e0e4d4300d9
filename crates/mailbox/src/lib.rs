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
//! A ring of cache lines. A line holds a count and as many values as fit beside
//! it ([`slots_per_line`]: seven of 8 bytes, three of 16). Four lines are a
//! block ([`slots_per_block`]). `tail` belongs to the producer and `head` to the
//! consumer, and neither ever sees the other's.
//!
//! * **Push** writes the value into the slot at `tail` and then the line's count
//!   (`Release`). A batch writes the count once a line. Before the first slot of
//!   a block, and only there, the producer looks at one count (`Acquire`): that
//!   of the first line of the *next* block. If it is not 0, the mailbox is full.
//! * **Pop** looks at the count of the line at `head` (`Acquire`), and moves out
//!   the values that it covers; it looks again when those are gone. Once the
//!   last value of a block is out, the consumer sets the count of the block's
//!   first line to 0 (`Release`).
//!
//! A bit of each count tells even laps from odd ones, so that the counts of the
//! last lap need not be cleared: to the consumer they read as 0. The producer,
//! who looks for a 0, disregards the bit.
//!
//! There is no atomic read-modify-write and no fence on either path.
//!
//! # Why it is sound
//!
//! **A value is complete when it is seen.** The consumer has read the line's
//! full count on the lap before, so by coherence it now reads that one again, or
//! its own 0, or a count of this lap; the bit tells the last from the others.
//! A count of this lap was stored with `Release` after the values it covers,
//! and the load is an `Acquire`: the writes happen before the reads.
//!
//! **A slot is free when it is written.** The producer stored the count that it
//! looks at on the lap before, so by coherence a 0 there is either the initial
//! one (nobody has used that block) or the consumer's `Release` of that block on
//! the lap before. All that the consumer did earlier happens before the load: it
//! has moved out every value of that block. Blocks are released in ring order,
//! so the block about to be entered, which comes before, is free as well. Inside
//! a block the producer needs no further check.
//!
//! **The two ends never write to the same cache line.** The consumer writes only
//! to a block that it has consumed whole, hence one that the producer has left.
//! When the mailbox is nearly full, the producer is in block `k`, block `k + 1`
//! is free, and the oldest that the consumer can still release is `k + 2` or
//! later. When it is nearly empty, the consumer reads the line that the producer
//! writes, and each read takes the line away from it. **Limiting the rate of
//! reads is the caller's part**: an arbiter does well to read a mailbox at most
//! once in one or two microseconds, and to take out all that waits (Section 4.1).
//!
//! **An abandoned mailbox hides nothing.** An end that goes away sets its own
//! "gone" flag (`Release`) after its last operation; the other end reads it
//! with `Acquire`. A consumer that reads it as set therefore sees every count
//! that the producer ever stored.
//!
//! **What is left is dropped once.** The consumer leaves its `head` behind when
//! it goes. Whichever end goes last drops the values from there on, up to the
//! first slot that its line's count does not cover: one block at least is always
//! free. The slots consumed but not yet released lie before `head`. Should the
//! destructor of a value panic, the values after it are leaked.
//!
//! # Capacity
//!
//! Let `W` be the number of values waiting, that is pushed and not popped, `B`
//! the slots of a block and `N` those of the ring. [`mailbox`] makes the ring so
//! long that `N - 2B + 1` is at least what was asked for, by fewer than `B` more.
//!
//! * While `W <= N - 2B`, a push succeeds; so `N - 2B + 1` values can always
//!   wait. This is what [`Producer::capacity`] returns.
//! * `W` never exceeds `N - B`.
//! * In between, the answer depends on how much of the consumer's block has been
//!   consumed and on how much of the producer's block is left.
//!
//! The release of a block takes a moment to become visible to another thread;
//! until then the producer counts the values of that block as waiting.
//!
//! # Memory
//!
//! A line takes 64 bytes, or, when one value is too large for that, the value
//! and the count rounded up to a multiple of 64. A block takes 256 bytes or one
//! line. All of it is allocated and touched by [`mailbox`], none later.
//!
//! An end writes its own index on every call that succeeds. Ends that belong to
//! different threads are best kept on different cache lines.
//!
//! # Cost
//!
//! A push or pop of a value of 8 bytes takes 1 to 3 ns, and stays there while the mailbox is nearly
//! full or empty; `cargo bench -p fairlane-mailbox --bench mailbox` measures it beside other queues.
//! `docs/internals/mailbox.md` has the figures, and those of the layouts that lost.

#![deny(unsafe_code)]
#![warn(missing_debug_implementations)]

pub mod bell;
#[expect(unsafe_code, reason = "takes values out of the slots")]
mod consumer;
mod error;
pub mod free;
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
pub mod shared;
#[expect(unsafe_code, reason = "owns the slots' memory")]
mod slots;
mod sync;

pub use consumer::Consumer;
pub use error::{CapacityError, Full};
pub use prefetch::prefetch;
pub use producer::Producer;
pub use room::Room;
pub use slots::{most_waiting, slots_per_block, slots_per_line};

use slots::Shared;
use sync::Arc;

/// Creates a mailbox for at least `slots` values and returns its two ends.
///
/// While fewer than `slots` values wait, a push succeeds; a few more may be
/// accepted, see the [crate documentation](crate#capacity). The memory is shared
/// by the ends and is freed, together with the values still waiting, when the
/// second of them is dropped.
///
/// Cost: O(`slots`). A mailbox allocates here and never again.
///
/// # Errors
///
/// [`CapacityError`] unless `slots` is a power of two from 2 to 2<sup>24</sup>,
/// or less where `T` is so large that the address space ends earlier.
///
/// Values must be [`Send`]:
///
/// ```compile_fail,E0277
/// let _ = fairlane_mailbox::mailbox::<std::rc::Rc<u8>>(64);
/// ```
///
/// Each end can move to a thread of its own:
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
