//! One link divided among several schedulers, each on a core of its own: exactly, by weight, without a lock,
//! and so that it does not idle while one of them has something to send.
//!
//! A *shard* is a scheduler of its own: an arbiter over its part of the classes. It takes the link's time in
//! *batches* of some ten packets ([`Shard::try_take`]), decides for that many bytes whom to send, and comes
//! again. Between two batches nothing is shared. [`Turns`] is that as the pace of an arbiter of `fairlane-runtime`.
//!
//! # The protocol
//!
//! The shared words, each on a cache line of its own:
//!
//! * the *wire's clock*: the bytes that the link has been promised. A batch is taken by adding to it, while it
//!   is no more than Q ahead of what the link can have carried by now.
//! * of each shard its *virtual time* V, bytes taken over its share, and whether it counts, that is, has
//!   something to send;
//! * the *floor*, which never falls and which no shard that counts is below.
//!
//! A batch is taken only by who is at most B ahead of the floor. Who is further ahead looks at all shards,
//! raises the floor to the least of those that count, and asks again. Who has nothing to send does not count;
//! when it has, it starts at the floor, or where it was, whichever is later.
//!
//! So any two shards that have something to send are apart by at most B and a batch over a share: a shard is a
//! server of its share of the link's rate, with a latency.
//!
//! # Why the floor is sound
//!
//! **It passes nobody who counts.** It is raised by a compare-and-exchange on a word that also says how often
//! a shard came in. Who comes in shows its place first, then counts up: whoever read the floor after that sees
//! the place, whoever read it before raises it in vain, and an earlier raise is seen by who counted up.
//!
//! **It never falls**, so who was away is owed nothing and owes no more than B and a batch, whoever else is
//! there at that moment. Starting at the least of those that are there instead starves a shard that was alone.
//!
//! **No shard holds it up.** A shard counts only while it has a batch to send or waits for the wire: one with less takes
//! that at its look. Where the link runs short for as long as the *patience*, a shard that waits for the least one clears
//! its count. The other thread notices at its next look, and comes in again.
//!
//! `docs/internals/shards.md` has the proofs, the bounds and what was measured by [`simulation`], beside
//! exchanging rates at intervals.
//!
//! # Cost
//!
//! A batch costs five accesses to shared memory, two of them read-modify-writes: on the wire's clock, which
//! all cores write, and on the shard's own line. Who runs into B reads a line for each shard. Virtual times are
//! bytes on a circle of 2^40; what a division leaves is carried on, so shares are exact.

#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

mod circle;
#[cfg(not(loom))]
mod pace;
mod shard;
#[cfg(not(loom))]
pub mod simulation;
mod sync;
mod words;

#[cfg(not(loom))]
pub use pace::{Credit, Looks, Turns, share};
pub use shard::{Batch, Shard, Wait};
pub use words::{Config, ConfigError, divide};
