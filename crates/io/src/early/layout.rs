//! The memory that a program shares with this process, by bytes.
//!
//! ```text
//! header             epoch, 0 while no limit is set .. at TOTAL, frames dropped .. at PROBE, not
//!                    0 if the next frame above its limit passes
//! 32 for each class  place of its limits | frames dropped | their bytes | bytes of its longest frame
//! 16 for each limit  the epoch it was last set in | its window
//! ```
//!
//! The place of a class's limits is one word, from the highest bit: 16 bits with the right shift that turns
//! a flow's hash into the number of its limit; 8 unused bits; 8 bits with the definition of its flows, 0 if
//! it has none; 32 bits with the number of its first limit.

pub(super) const HEADER: usize = 128;
pub(super) const EPOCH: i16 = 0;
pub(super) const TOTAL: usize = 64;
pub(super) const PROBE: usize = 72;
pub(super) const CLASS_BYTES: usize = 32;
pub(super) const CLASS_SHIFT: i32 = 5;
pub(super) const LIMIT_BYTES: usize = 16;
pub(super) const LIMIT_SHIFT: i32 = 4;
pub(super) const FLOWS_SHIFT: i32 = 32;
pub(super) const FLOWS_MASK: i32 = 0xff;
pub(super) const BUCKETS_SHIFT: i32 = 48;

/// The cost of a frame that passes a limit.
pub(super) const COST: i64 = 8;
/// The credit of a frame on transmission: somewhat more than its cost, so that a limit follows a
/// growing share.
pub(super) const RETURN: i64 = 9;

const _: () = assert!(LIMIT_BYTES == 1 << LIMIT_SHIFT);
