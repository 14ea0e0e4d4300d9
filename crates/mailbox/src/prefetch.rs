//! Memory that is asked for before it is needed.

/// Asks the processor to bring the cache line of this address close, and waits for nothing: who is about to look at many places
/// asks for all of them first. The address may be any. Costs one instruction; does nothing where there is none for it.
///
/// ```
/// use fairlane_mailbox::prefetch;
///
/// /// The sum of what lies in these places of a table that is in no near cache.
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
        // SAFETY: a prefetch accesses nothing, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
    let _ = address;
}
