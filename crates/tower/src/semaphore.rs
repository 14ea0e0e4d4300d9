//! The semaphore: its lock, its futures and its permits.

use crate::admission::{Admission, Entered, Keys, Woken};
use crate::tenants::Index;
use crate::waiters::PollResult;
use crate::{AcquireError, Cost};
use fairlane_core::Weight;
use fairlane_core::scheduler::MAX_ENTITIES;
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, Hash, RandomState};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The limits of a [`FairSemaphore`]: requests admitted at a time, and waiting requests.
///
/// ```
/// use fairlane_tower::Limits;
///
/// let limits = Limits { waiting_per_tenant: 100, ..Limits::permits(64) };
/// assert_eq!(limits.permits_per_tenant, u16::MAX);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests admitted at a time; 0 holds all requests.
    pub permits: u32,
    /// The same for one tenant; 0 holds all requests. With fewer than `permits`, other tenants find a free permit
    /// however many requests one tenant has, but permits stay unused while only one tenant has requests.
    pub permits_per_tenant: u16,
    /// Waiting requests in all. A tenant without waiting requests may always have one. A waiting request takes 40 bytes
    /// in addition to its task.
    pub waiting: u32,
    /// Waiting requests of one tenant.
    pub waiting_per_tenant: u16,
    /// Known tenants, at most 2^24. Beyond that a new tenant replaces the one that has been idle for longest.
    pub tenants: u32,
    /// The largest estimate: a larger one is charged as this, and [corrected](Permit::correct) from there.
    ///
    /// An overestimate is deducted from the tenant's later requests, also if no other tenant waited meanwhile: with n
    /// requests in progress at a time, up to n + 1 times this, and no more for any number of requests. So if tenants
    /// provide the estimates, set this to the highest cost of a request, for example the longest answer of a model.
    pub estimate: Cost,
}

impl Limits {
    /// Returns limits with this number of permits, up to 65,535 of them for one tenant; a million requests may wait,
    /// 65,535 of one tenant, a million tenants are known, and any cost may be estimated.
    pub const fn permits(permits: u32) -> Limits {
        Limits {
            permits,
            permits_per_tenant: u16::MAX,
            waiting: 1 << 20,
            waiting_per_tenant: u16::MAX,
            tenants: 1 << 20,
            estimate: Cost::MAX,
        }
    }
}

struct Rules<K> {
    hasher: RandomState,
    weights: Box<dyn Fn(&K) -> Weight + Send + Sync>,
}

impl<K: Hash> Keys<K> for Rules<K> {
    #[inline]
    fn hash(&self, key: &K) -> u64 {
        self.hasher.hash_one(key)
    }
    fn weight(&self, key: &K) -> Weight {
        (self.weights)(key)
    }
}

struct Shared<K> {
    admission: Mutex<Admission<K>>,
    rules: Rules<K>,
}

impl<K> Shared<K> {
    /// Locks the state. A panic in a key's own code leaves it consistent, since that code runs before any change. At
    /// worst the table of keys loses some keys that it was about to rehash: those are new tenants later.
    fn lock(&self) -> MutexGuard<'_, Admission<K>> {
        self.admission
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, then releases the lock and wakes the requests that got a permit.
    fn change<R>(&self, change: impl FnOnce(&mut Admission<K>, &mut Woken) -> R) -> R {
        let mut woken = Woken::default();
        let result = change(&mut self.lock(), &mut woken);
        woken.wake();
        result
    }
}

/// A semaphore that grants its permits to tenants by weight: a request has a tenant and an estimated cost.
///
/// A handle: clones refer to the same semaphore. `K` identifies tenants; its `Hash`, `Eq` and `Drop` run under the
/// semaphore's lock and must not use the semaphore. If `Hash` or `Eq` panics, so does the call that ran it, without any
/// other change. See the [crate] for the guarantees.
pub struct FairSemaphore<K> {
    shared: Arc<Shared<K>>,
}

impl<K> Clone for FairSemaphore<K> {
    fn clone(&self) -> Self {
        FairSemaphore {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<K> fmt::Debug for FairSemaphore<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.lock();
        f.debug_struct("FairSemaphore")
            .field("limits", &state.limits())
            .field("in_flight", &state.in_flight())
            .field("waiting", &state.waiting())
            .field("tenants", &state.tenants())
            .field("closed", &state.is_closed())
            .finish()
    }
}

impl<K: Hash + Eq> FairSemaphore<K> {
    /// Creates a semaphore where all tenants have weight 1 until it is [set](Self::set_weight).
    pub fn new(limits: Limits) -> Self {
        Self::with_weights(limits, |_| Weight::ONE)
    }

    /// Creates a semaphore where `weights` returns a tenant's weight, each time that the tenant is new or has expired.
    /// It runs under the semaphore's lock: it must be fast, and not use the semaphore.
    pub fn with_weights(
        limits: Limits,
        weights: impl Fn(&K) -> Weight + Send + Sync + 'static,
    ) -> Self {
        let limits = Limits {
            tenants: limits.tenants.min(MAX_ENTITIES as u32),
            ..limits
        };
        FairSemaphore {
            shared: Arc::new(Shared {
                admission: Mutex::new(Admission::new(limits)),
                rules: Rules {
                    hasher: RandomState::new(),
                    weights: Box::new(weights),
                },
            }),
        }
    }

    /// Returns a future of a permit for a request of `tenant` with an estimated cost of `cost`.
    ///
    /// It waits from its first poll on, behind the tenant's other requests. If it is dropped before it is ready, it
    /// frees its place and permit, and costs nothing, or one unit if it had been granted a permit that was not
    /// collected yet.
    pub fn acquire(&self, tenant: K, cost: Cost) -> Acquire<K> {
        Acquire {
            shared: Some(Arc::clone(&self.shared)),
            progress: Progress::New(tenant, cost),
        }
    }

    /// Returns a permit if one is free that no request waits for, otherwise `None`. O(1), and O(log n) in the number of
    /// waiting tenants.
    ///
    /// # Errors
    ///
    /// The semaphore is closed, or there is no room for another tenant.
    pub fn try_acquire(&self, tenant: K, cost: Cost) -> Result<Option<Permit<K>>, AcquireError> {
        let shared = &self.shared;
        let hash = shared.rules.hash(&tenant);
        let entered = shared
            .lock()
            .enter(hash, tenant, cost, &shared.rules, None)?;
        Ok(match entered {
            Some(Entered::Admitted(index, cost)) => {
                Some(Permit::new(Arc::clone(shared), index, cost))
            }
            _ => None,
        })
    }

    /// Sets the weight of a tenant from its next turn on. The setting is stored separately until
    /// [`reset_weight`](Self::reset_weight), also if the tenant has expired or is not known yet.
    pub fn set_weight(&self, tenant: K, weight: Weight) {
        self.weigh(tenant, Some(weight));
    }

    /// Resets the weight of a tenant, from its next turn on, to that of [`with_weights`](Self::with_weights), which is
    /// called again.
    pub fn reset_weight(&self, tenant: K) {
        self.weigh(tenant, None);
    }

    fn weigh(&self, tenant: K, weight: Option<Weight>) {
        let rules = &self.shared.rules;
        let hash = rules.hash(&tenant);
        self.shared.lock().set_weight(hash, tenant, weight, rules);
    }

    /// Returns the weight that a tenant has, or will have.
    pub fn weight(&self, tenant: &K) -> Weight {
        let rules = &self.shared.rules;
        self.shared.lock().weight(rules.hash(tenant), tenant, rules)
    }
}

impl<K> FairSemaphore<K> {
    /// Changes the number of permits. If there are fewer now, granted permits stay valid until they are dropped.
    pub fn set_permits(&self, permits: u32) {
        self.shared
            .change(|state, woken| state.set_permits(permits, woken));
    }

    /// Rejects all new and waiting requests. Granted permits stay valid.
    pub fn close(&self) {
        self.shared.change(|state, woken| state.close(woken));
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.shared.lock().is_closed()
    }

    /// Returns the limits, with the number of permits that was [set](Self::set_permits).
    pub fn limits(&self) -> Limits {
        self.shared.lock().limits()
    }

    /// Returns the number of granted permits.
    pub fn in_flight(&self) -> u32 {
        self.shared.lock().in_flight()
    }

    /// Returns the number of waiting requests.
    pub fn waiting(&self) -> u32 {
        self.shared.lock().waiting()
    }

    /// Returns the number of known tenants.
    pub fn tenants(&self) -> usize {
        self.shared.lock().tenants()
    }

    /// Returns the bytes of the tables of tenants and waiting requests, without memory that keys own elsewhere.
    pub fn memory(&self) -> usize {
        self.shared.lock().bytes()
    }
}

#[cfg(test)]
impl<K> FairSemaphore<K> {
    pub(crate) fn check(&self) {
        self.shared.lock().check();
    }

    pub(crate) fn leftovers(&self) -> ([usize; 3], i64) {
        self.shared.lock().leftovers()
    }
}

enum Progress<K> {
    New(K, Cost),
    Waits(u32),
    Done,
}

/// The future of [`FairSemaphore::acquire`].
#[must_use = "a future does nothing unless it is polled"]
pub struct Acquire<K> {
    /// `None` once it is done.
    shared: Option<Arc<Shared<K>>>,
    progress: Progress<K>,
}

// No field is pinned; only the waker refers to the task.
impl<K> Unpin for Acquire<K> {}

impl<K: Hash + Eq> Future for Acquire<K> {
    type Output = Result<Permit<K>, AcquireError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let Some(shared) = this.shared.as_deref() else {
            panic!("a permit was handed out or refused before: this future is at its end");
        };
        let answer = match this.progress {
            Progress::Waits(slot) => {
                let found = shared.lock().look(slot, cx.waker());
                match found {
                    PollResult::Waiting(_before) => return Poll::Pending,
                    PollResult::Granted(index, cost) => Ok((index, cost)),
                    PollResult::Closed => Err(AcquireError::Closed),
                }
            }
            _ => match std::mem::replace(&mut this.progress, Progress::Done) {
                Progress::New(tenant, cost) => {
                    let hash = shared.rules.hash(&tenant);
                    let waker = Some(cx.waker());
                    let entered = shared
                        .lock()
                        .enter(hash, tenant, cost, &shared.rules, waker);
                    match entered {
                        Ok(Some(Entered::Admitted(index, cost))) => Ok((index, cost)),
                        Ok(Some(Entered::Waits(slot))) => {
                            this.progress = Progress::Waits(slot);
                            return Poll::Pending;
                        }
                        Ok(None) => {
                            unreachable!("a request with a waker is admitted, waiting or refused")
                        }
                        Err(error) => Err(error),
                    }
                }
                _ => panic!("its code panicked: this future has ended"),
            },
        };
        this.progress = Progress::Done;
        let shared = this.shared.take();
        Poll::Ready(answer.and_then(|(index, cost)| {
            let shared = shared.ok_or(AcquireError::Closed)?;
            Ok(Permit::new(shared, index, cost))
        }))
    }
}

impl<K> Drop for Acquire<K> {
    fn drop(&mut self) {
        if let (Some(shared), Progress::Waits(slot)) = (&self.shared, &self.progress) {
            // Its own waker is dropped after the lock is released.
            let _own: Option<Waker> = shared.change(|state, woken| state.cancel(*slot, woken));
        }
    }
}

impl<K> fmt::Debug for Acquire<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let progress = match self.progress {
            Progress::New(..) => "new",
            Progress::Waits(_) => "waits",
            Progress::Done => "done",
        };
        f.debug_struct("Acquire")
            .field("progress", &progress)
            .finish_non_exhaustive()
    }
}

/// A permit to be served now. Dropping it admits the next request.
#[must_use = "a dropped permit goes to the next request"]
pub struct Permit<K> {
    shared: Arc<Shared<K>>,
    index: Index,
    /// The tenant's charge so far. Changed under the lock.
    charged: AtomicU32,
}

impl<K> Permit<K> {
    fn new(shared: Arc<Shared<K>>, index: Index, cost: Cost) -> Permit<K> {
        Permit {
            shared,
            index,
            charged: AtomicU32::new(cost.get()),
        }
    }

    /// Returns the tenant's charge for it: the estimate, or the last correction.
    pub fn cost(&self) -> Cost {
        Cost::clamped(self.charged.load(Ordering::Relaxed).into())
    }

    /// Corrects the cost of the request to `actual`: an undercharge is added to the tenant's next requests, an
    /// overcharge is deducted from them. Any number of calls is allowed. O(1).
    pub fn correct(&self, actual: Cost) {
        let mut state = self.shared.lock();
        let charged = self.charged.swap(actual.get(), Ordering::Relaxed);
        state.correct(self.index, charged, actual.get());
    }
}

impl<K> Drop for Permit<K> {
    fn drop(&mut self) {
        self.shared
            .change(|state, woken| state.release(self.index, woken));
    }
}

impl<K> fmt::Debug for Permit<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("cost", &self.cost())
            .finish_non_exhaustive()
    }
}
