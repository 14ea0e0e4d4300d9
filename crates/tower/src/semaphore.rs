//! The semaphore: its lock, its futures and its permits.

use crate::admission::{Admission, Entered, Keys, Woken};
use crate::tenants::Index;
use crate::waiters::Look;
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

/// How many requests a [`FairSemaphore`] admits at a time, and how many it lets wait.
///
/// ```
/// use fairlane_tower::Limits;
///
/// let limits = Limits { waiting_per_tenant: 100, ..Limits::permits(64) };
/// assert_eq!(limits.permits_per_tenant, u16::MAX);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests that are admitted at a time; 0 holds all up.
    pub permits: u32,
    /// Of one tenant; 0 holds all up. With fewer than `permits`, the others find one free whatever this one sends, and
    /// permits stay unused while only this one has requests.
    pub permits_per_tenant: u16,
    /// Requests that wait in all. Of a tenant that has none waiting, one may wait whatever others have. A
    /// waiting request takes 40 bytes beside its task.
    pub waiting: u32,
    /// Of one tenant.
    pub waiting_per_tenant: u16,
    /// Tenants that are remembered, at most 2^24. Whoever is new then takes the place of the one that
    /// has been idle for longest.
    pub tenants: u32,
    /// The largest estimate: whatever is said to cost more is charged for this, and
    /// [corrected](Permit::correct) from there.
    ///
    /// What was estimated too high is taken off a tenant's later requests, also if nobody else asked
    /// meanwhile: with n requests under way at a time, up to n + 1 times this, and no more however often. So
    /// where tenants say themselves what they will need, this is to be the most that a request can cost, as
    /// of a model the longest answer.
    pub estimate: Cost,
}

impl Limits {
    /// So many permits, 65,535 of them for one tenant if nobody else has requests; a million requests may
    /// wait, 65,535 of one tenant, a million tenants are remembered, and any cost may be estimated.
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
    /// The state. A panic of a key's own code leaves it whole: it is asked before anything changes. At worst
    /// the table of keys loses some that it was about to hash again: those come as new tenants.
    fn lock(&self) -> MutexGuard<'_, Admission<K>> {
        self.admission
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state; whoever got a permit by it is woken when the lock is open again.
    fn change<R>(&self, change: impl FnOnce(&mut Admission<K>, &mut Woken) -> R) -> R {
        let mut woken = Woken::default();
        let result = change(&mut self.lock(), &mut woken);
        woken.wake();
        result
    }
}

/// A semaphore that gives its permits to tenants by weight: a request says whose it is and what it
/// will cost.
///
/// A handle: clones are of the same semaphore. `K` is what tells tenants apart; its `Hash`, `Eq` and
/// `Drop` run under the semaphore's lock and must not use the semaphore. Where `Hash` or `Eq` panics, so
/// does the call that asked for it, and nothing else is changed. See the [crate] for what is fair.
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
    /// A semaphore where all tenants have weight 1 until it is [set](Self::set_weight).
    pub fn new(limits: Limits) -> Self {
        Self::with_weights(limits, |_| Weight::ONE)
    }

    /// A semaphore where `weights` says what a tenant's weight is, each time that the tenant comes for
    /// the first time or was forgotten. It is asked under the semaphore's lock: it must be quick, and
    /// not use the semaphore.
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

    /// A permit for a request of `tenant` that will cost about `cost`, once it is the tenant's turn.
    ///
    /// It waits from its first poll on, behind the tenant's other requests. Dropped before it is
    /// ready, it leaves nothing behind: no place, no permit, and no cost but one unit where it had been
    /// given a permit that nobody had collected yet.
    pub fn acquire(&self, tenant: K, cost: Cost) -> Acquire<K> {
        Acquire {
            shared: Some(Arc::clone(&self.shared)),
            progress: Progress::New(tenant, cost),
        }
    }

    /// A permit if there is one at once that nobody waits for, else `None`. O(1), and O(log n) in the
    /// number of tenants that wait.
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

    /// Gives a tenant a weight of its own from its next turn on. It is kept, in memory of its own, until
    /// [`reset_weight`](Self::reset_weight), also where the tenant is forgotten or not known yet.
    pub fn set_weight(&self, tenant: K, weight: Weight) {
        self.weigh(tenant, Some(weight));
    }

    /// A tenant has the weight that [`with_weights`](Self::with_weights) says from its next turn on;
    /// also after what that says has become another.
    pub fn reset_weight(&self, tenant: K) {
        self.weigh(tenant, None);
    }

    fn weigh(&self, tenant: K, weight: Option<Weight>) {
        let rules = &self.shared.rules;
        let hash = rules.hash(&tenant);
        self.shared.lock().set_weight(hash, tenant, weight, rules);
    }

    /// The weight that a tenant has, or will have when it comes.
    pub fn weight(&self, tenant: &K) -> Weight {
        let rules = &self.shared.rules;
        self.shared.lock().weight(rules.hash(tenant), tenant, rules)
    }
}

impl<K> FairSemaphore<K> {
    /// Changes the number of permits. Where there are fewer now, those that are out stay so until they
    /// are dropped.
    pub fn set_permits(&self, permits: u32) {
        self.shared
            .change(|state, woken| state.set_permits(permits, woken));
    }

    /// Refuses all who come, and all who wait. Permits that are out stay valid.
    pub fn close(&self) {
        self.shared.change(|state, woken| state.close(woken));
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.shared.lock().is_closed()
    }

    /// What it was made with, and the permits that were [set](Self::set_permits).
    pub fn limits(&self) -> Limits {
        self.shared.lock().limits()
    }

    /// Permits that are out.
    pub fn in_flight(&self) -> u32 {
        self.shared.lock().in_flight()
    }

    /// Requests that wait.
    pub fn waiting(&self) -> u32 {
        self.shared.lock().waiting()
    }

    /// Tenants that are remembered.
    pub fn tenants(&self) -> usize {
        self.shared.lock().tenants()
    }

    /// Bytes of the tables of tenants and of requests that wait, without what keys hold elsewhere.
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

// Nothing in it is pinned: the waker alone says where it is polled.
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
                    Look::Waiting(_before) => return Poll::Pending,
                    Look::Granted(index, cost) => Ok((index, cost)),
                    Look::Closed => Err(AcquireError::Closed),
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
                            unreachable!("who has a waker is admitted, waits or is refused")
                        }
                        Err(error) => Err(error),
                    }
                }
                _ => panic!("its code panicked when it came: this future is at its end"),
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
            // Its own waker is dropped when the lock is open again.
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

/// The right to be served now. Dropped, it goes to whoever is next.
#[must_use = "dropped, a permit goes to whoever is next"]
pub struct Permit<K> {
    shared: Arc<Shared<K>>,
    index: Index,
    /// What its tenant was charged so far. Changed under the lock.
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

    /// What its tenant is charged for it: the estimate, or the last correction.
    pub fn cost(&self) -> Cost {
        Cost::clamped(self.charged.load(Ordering::Relaxed).into())
    }

    /// The request costs `actual`: what its tenant was charged too little, the tenant's next requests
    /// are charged for in addition; what it was charged too much is taken off theirs. As often as more
    /// is known. O(1).
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
