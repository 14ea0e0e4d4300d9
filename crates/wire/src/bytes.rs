//! Fields of headers, in network byte order.

use crate::{Header, Malformed, Reason};

/// Returns the first `N` bytes, and those behind them.
#[inline]
pub(crate) fn take<const N: usize>(
    bytes: &[u8],
    header: Header,
) -> Result<(&[u8; N], &[u8]), Malformed> {
    let short = Malformed::new(header, Reason::Short(N as u16));
    bytes.split_first_chunk().ok_or(short)
}

/// Returns the two bytes of a field at `at`, which lies within the header.
#[inline]
pub(crate) fn u16_at(header: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([header[at], header[at + 1]])
}

/// Returns the four bytes of a field at `at`.
#[inline]
pub(crate) fn u32_at(header: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

/// Returns the eight bytes of a field at `at`.
#[inline]
pub(crate) fn u64_at(header: &[u8], at: usize) -> u64 {
    u64::from(u32_at(header, at)) << 32 | u64::from(u32_at(header, at + 4))
}

/// Returns an IPv6 address at `at`.
#[inline]
pub(crate) fn u128_at(header: &[u8], at: usize) -> u128 {
    u128::from(u64_at(header, at)) << 64 | u128::from(u64_at(header, at + 8))
}

/// Writes two bytes at `at`.
#[inline]
pub(crate) fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}
