//! Prefetching of memory.

/// Prefetches the cache line of an address, without a wait. Call it for many addresses before reading any of them. The
/// address may be invalid. Costs one instruction; does nothing on processors without one.
///
/// ```
/// use fairlane_mailbox::prefetch;
///
/// /// The sum of some values of a table that is not in a cache.
/// fn sum(table: &[u64], places: &[usize]) -> u64 {
///     for &place in places {
///         prefetch(&table[place]);
///     }
///     places.iter().map(|&place| table[place]).sum()
/// }
///
/// let table = vec![1; 1 << 20];
/// assert_eq!(sum(&table, &[7, 1_000, 900_000]), 3);
/// ```
#[inline]
pub fn prefetch<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch accesses no memory, for any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
    let _ = address;
}
