//! A pair of fences of which one side pays: the client's costs nothing, the
//! arbiter's is a system call.
//!
//! Each side stores, fences, and loads what the other stored; at least one of
//! them must see the other's store. Two `SeqCst` fences give that. So does
//! `membarrier` opposite a fence for the compiler alone: the kernel has every
//! running thread of the process execute a full fence between entry to the call
//! and return from it, and the kernel's scheduler has fenced for the others
//! (membarrier(2), "private expedited").

use crate::sync::{Ordering, fence};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Barrier {
    /// A `SeqCst` fence on both sides.
    Symmetric,
    /// Nothing but the compiler's order on the client's side.
    #[cfg(all(target_os = "linux", not(any(loom, miri))))]
    Asymmetric,
}

#[cfg(all(target_os = "linux", not(any(loom, miri))))]
mod imp {
    use rustix::thread::{MembarrierCommand, membarrier};

    use super::{Barrier, Ordering, fence};

    impl Barrier {
        /// The best that the system offers.
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
