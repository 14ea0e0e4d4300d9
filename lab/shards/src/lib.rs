//! Division of one link among several schedulers, each on its own core: exact, by weight, without a lock, and without
//! idling while one of them is backlogged.
//!
//! A *shard* is a separate scheduler: an arbiter over its part of the classes. It takes the link's time in *batches* of
//! some ten packets ([`Shard::try_take`]), schedules packets for that many bytes, and takes the next batch. Between two
//! batches nothing is shared. [`Turns`] makes a shard the pace of an arbiter of `fairlane-runtime`.
//!
//! # The protocol
//!
//! The shared words, each on a cache line of its own:
//!
//! * the *wire's clock*: the bytes assigned to shards. A shard takes a batch by adding to it, while it is at most Q
//!   ahead of the bytes that the link can have carried by now.
//! * the *virtual time* V of each shard, bytes taken over its share, and whether the shard counts, that is, is
//!   backlogged;
//! * the *floor*, which never falls, and which no counting shard is below.
//!
//! Only a shard at most B ahead of the floor takes a batch. A shard further ahead reads all shards, raises the floor to
//! the least of those that count, and tries again. An idle shard does not count; when it becomes backlogged, it starts
//! at the floor or at its own V, whichever is later.
//!
//! So any two backlogged shards are apart by at most B and a batch over a share: a shard is a server of its share of
//! the link's rate, with a latency.
//!
//! # Why the floor is sound
//!
//! **It never passes a counting shard.** It is raised by a compare-and-exchange on a word that also counts the entries
//! of shards. An entering shard publishes its position first, then increments the count: a shard that reads the floor
//! after that sees the position, a shard that read it before fails to raise it, and the entering shard sees an earlier
//! raise.
//!
//! **It never falls**, so a returning shard has no credit, and a debt of at most B and a batch, whatever shards are
//! present at that moment. Starting at the least of the present shards instead would starve a shard that was alone.
//!
//! **No shard blocks it.** A shard counts only while it has a batch to send or waits for the wire: a shard with less
//! takes that at its look. If the link runs short for as long as the *patience*, a shard that waits for the least one
//! clears its count. The other thread notices at its next look, and enters again.
//!
//! `docs/internals/shards.md` has the proofs, the bounds and the results of [`simulation`], compared with an exchange
//! of rates at intervals.
//!
//! # Cost
//!
//! A batch costs five accesses to shared memory, two of them read-modify-writes: on the wire's clock, which all cores
//! write, and on the shard's own line. A shard more than B ahead reads a line for each shard. Virtual times are bytes
//! on a circle of 2^40; remainders of divisions are carried over, so shares are exact.

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
