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
//! # What it costs
//!
//! On 2 cores of a virtual AMD Zen 5, 2026-11-21: two threads, 1024 slots, the
//! lower quartile of 21 rounds in which the queues took turns; `cargo bench -p
//! fairlane-mailbox --bench mailbox` repeats it. The first columns have both
//! ends at full speed. In "nearly empty" the producer works for some 160 ns
//! between pushes, in "nearly full" the consumer between pops, while the other
//! end retries without a pause or, where it says so, reads once a microsecond:
//! what a push or pop adds to the work, give or take 3 ns.
//!
//! ```text
//!                     one by one       batches of 32   nearly empty read each us  nearly full
//! bytes queue           ns M items/s      ns M items/s    ns a push    ns a push     ns a pop
//!     8 mailbox       2.82       355    2.44       410          1.7          1.4          2.7
//!     8 rtrb          9.79       102    4.38       228          2.2          2.3         27.2
//!     8 ArrayQueue   59.86        17  128.09         8        263.3         47.5        286.1
//!    16 mailbox       3.63       275    3.97       252          2.7          1.4          2.7
//!    16 rtrb         26.03        38    4.16       240          3.1          2.3         28.7
//!    16 ArrayQueue   84.23        12   86.60        12        273.2         41.1        288.6
//! ```
//!
//! That was with the two cores far from each other, as the host had placed them.
//! At another hour they were close (an item of `ArrayQueue` took 35 ns), and the
//! same comparison gave, for values of 8 / 16 bytes, one by one and in batches:
//! mailbox 0.82 / 1.03 and 0.52 / 0.78 ns, `rtrb` 1.56 / 1.94 and 0.53 / 0.72 ns;
//! nearly full 3 against 30 ns.
//!
//! Where a mailbox is nearly full, the queues whose ends read each other's index
//! pay for it with every item. In batches of 16-byte values the mailbox is no
//! faster than `rtrb`: a line that carries its own count has three of them, and
//! one without has four. An `ArrayQueue` has no batches, and is made for many
//! producers.
//!
//! What else was tried, in one run with the cores close (nanoseconds for values of
//! 8 / 16 bytes; one by one, in batches of 32, nearly full):
//!
//! ```text
//! a flag beside each value (4 / 2 to a line)    0.87 / 1.16   0.86 / 1.10   11.5 / 21.8
//! a value that is never 0 as the flag (8)       1.06          0.99           7.7
//! a count a line, every line released           0.63 / 1.88   0.61 / 1.67    7.0 / 15.3
//! a count in two cache lines (15 / 7)           1.50 / 2.43   0.63 / 1.21    3.0 /  4.4
//! a count a line, four released, all cleared    0.57 / 1.16   0.49 / 1.09    3.4 /  4.2
//! the same, released through a shared index     0.67 / 0.94   0.56 / 0.84    4.2 /  7.1
//! rtrb                                          1.60 / 2.04   0.50 / 0.74   33.0 / 34.0
//! ```
//!
//! So: a count in the line that it counts, since one that lies in another line
//! makes two lines travel for each value; blocks of four, since a release that
//! the other end waits for costs some 50 ns whatever its size; and the lap bit,
//! which spares three of four clearing stores.

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
pub use slots::{slots_per_block, slots_per_line};

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
pub fn mailbox<T: Send>(slots: usize) -> Result<(Producer<T>, Consumer<T>), CapacityError> {
    let shared = Arc::new(Shared::new(slots)?);
    Ok((Producer::new(Arc::clone(&shared)), Consumer::new(shared)))
}
