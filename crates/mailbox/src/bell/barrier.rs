//! A pair of asymmetric fences: the client's costs nothing, the arbiter's is a system call.
//!
//! Each side stores, fences, and loads the other's word; at least one of them must see the other's store. Two `SeqCst`
//! fences give that. So does `membarrier` opposite a fence for the compiler alone: the kernel has every running thread
//! of the process execute a full fence between entry to the call and return from it, and the kernel's scheduler has
//! fenced for the others (membarrier(2), "private expedited").

use crate::sync::{Ordering, fence};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Barrier {
    /// A `SeqCst` fence on both sides.
    Symmetric,
    /// Only a compiler fence on the client's side.
    #[cfg(all(target_os = "linux", not(any(loom, miri))))]
    Asymmetric,
}

#[cfg(all(target_os = "linux", not(any(loom, miri))))]
mod imp {
    use rustix::thread::{MembarrierCommand, membarrier};

    use super::{Barrier, Ordering, fence};

    impl Barrier {
        /// Returns the cheapest kind that the system supports.
        pub(crate) fn new() -> Self {
            let offered = membarrier(MembarrierCommand::RegisterPrivateExpedited)
                .and_then(|()| membarrier(MembarrierCommand::PrivateExpedited));
            match offered {
                Ok(()) => Self::Asymmetric,
                Err(_) => Self::Symmetric,
            }
        }

        #[inline]
        pub(crate) fn light(self) {
            match self {
                Self::Symmetric => fence(Ordering::SeqCst),
                Self::Asymmetric => core::sync::atomic::compiler_fence(Ordering::SeqCst),
            }
        }

        #[inline]
        pub(crate) fn heavy(self) {
            match self {
                Self::Symmetric => fence(Ordering::SeqCst),
                Self::Asymmetric => membarrier(MembarrierCommand::PrivateExpedited)
                    .expect("membarrier worked when the bell was made"),
            }
        }
    }
}

#[cfg(not(all(target_os = "linux", not(any(loom, miri)))))]
mod imp {
    use super::{Barrier, Ordering, fence};

    impl Barrier {
        pub(crate) fn new() -> Self {
            Self::Symmetric
        }

        #[inline]
        pub(crate) fn light(self) {
            fence(Ordering::SeqCst);
        }

        #[inline]
        pub(crate) fn heavy(self) {
            fence(Ordering::SeqCst);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::{hint, sync::atomic::AtomicU32, thread};

    use super::{Barrier, Ordering};

    const ROUNDS: u32 = if cfg!(miri) { 10 } else { 4_000 };

    /// Runs rounds in which two threads at once write their own word, fence, and read the other's. Returns the number
    /// of rounds in which neither saw the other's write.
    fn rounds_missed(barrier: Barrier) -> usize {
        let words = [const { AtomicU32::new(0) }; 2];
        let ready = AtomicU32::new(0);
        let side = |own: usize, fence: &dyn Fn()| -> Vec<bool> {
            let round = |round| {
                ready.fetch_add(1, Ordering::AcqRel);
                let mut spins = 0_u32;
                while ready.load(Ordering::Acquire) < 2 * round {
                    spins += 1;
                    if spins.is_multiple_of(1000) {
                        thread::yield_now();
                    }
                    hint::spin_loop();
                }
                words[own].store(round, Ordering::Relaxed);
                fence();
                words[1 - own].load(Ordering::Relaxed) < round
            };
            (1..=ROUNDS).map(round).collect()
        };
        thread::scope(|scope| {
            let light = scope.spawn(|| side(0, &|| barrier.light()));
            let heavy = side(1, &|| barrier.heavy());
            let both = light.join().unwrap().into_iter().zip(heavy);
            both.filter(|&(light, heavy)| light && heavy).count()
        })
    }

    #[test]
    fn of_two_sides_that_write_fence_and_look_one_sees_the_other() {
        assert_eq!(rounds_missed(Barrier::Symmetric), 0);
        assert_eq!(rounds_missed(Barrier::new()), 0);
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn linux_gives_the_light_side_for_nothing() {
        assert_eq!(Barrier::new(), Barrier::Asymmetric);
    }
}
