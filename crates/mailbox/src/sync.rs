//! The atomics and cells of this crate: the standard ones, or loom's when loom checks a model of the protocol.

#[cfg(loom)]
pub(crate) use loom::{
    cell::UnsafeCell,
    future::AtomicWaker,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    },
};

#[cfg(not(loom))]
pub(crate) use atomic_waker::AtomicWaker;
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};
#[cfg(all(not(loom), any(miri, not(target_os = "linux"))))]
pub(crate) use std::sync::{Condvar, Mutex};

/// `AtomicWaker::register`, which loom's takes by value.
pub(crate) fn register(place: &AtomicWaker, waker: &core::task::Waker) {
    #[cfg(loom)]
    place.register_by_ref(waker);
    #[cfg(not(loom))]
    place.register(waker);
}

/// The standard cell with loom's interface, so that loom sees each access
/// begin and end.
#[cfg(not(loom))]
#[repr(transparent)]
pub(crate) struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    #[inline]
    pub(crate) const fn new(value: T) -> Self {
        Self(core::cell::UnsafeCell::new(value))
    }

    #[inline]
    pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    #[inline]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}
