//! The memory that a program shares with this process, by bytes.
//!
//! ```text
//! header             epoch, 0 while nobody has a limit .. at TOTAL, frames dropped .. at PROBE, not
//!                    0 where the next frame beyond its limit passes
//! 32 for each class  where its limits are | frames dropped | their bytes | bytes of its longest frame
//! 16 for each limit  the epoch it was last set in | what it lets through
//! ```
//!
//! Where the limits of a class are is one word, from the highest bit: 16 bits by how much the hash
//! of a flow is shifted to the right to be the number of its limit; 8 bits of nothing; 8 bits that
//! say what its flows are, 0 if it has none; 32 bits of the number of its first limit.

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
