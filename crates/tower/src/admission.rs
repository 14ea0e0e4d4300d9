//! Admission: the whole state of a semaphore, without its lock. No function here wakes a task or drops a waker: the
//! caller does that after it has released the lock.

use crate::tenants::{Index, Order, Tenants, entity};
use crate::waiters::{ListEnds, PollResult, Waiters};
use crate::{AcquireError, Cost, Limits};
use fairlane_core::scheduler::{Scheduler, Share};
use fairlane_core::{Charge, Weight};
use std::collections::BTreeMap;
use std::task::Waker;

/// Wakers to wake, or drop, after the lock is released.
#[derive(Debug, Default)]
pub(crate) struct Woken {
    first: Option<Waker>,
    more: Vec<Waker>,
}

impl Woken {
    fn add(&mut self, waker: Waker) {
        match self.first {
            None => self.first = Some(waker),
            Some(_) => self.more.push(waker),
        }
    }

    #[inline]
    pub(crate) fn wake(self) {
        if let Some(first) = self.first {
            first.wake();
            self.more.into_iter().for_each(Waker::wake);
        }
    }
}

/// The result of a new request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entered {
    /// It has a permit of this tenant, at this cost.
    Admitted(Index, Cost),
    /// It waits in this slot.
    Waits(u32),
}

/// Hashes and weights of keys.
pub(crate) trait Keys<K> {
    fn hash(&self, key: &K) -> u64;
    fn weight(&self, key: &K) -> Weight;
}

/// Tenants, waiting requests, and permits.
///
/// Between calls, a permit is free only if no waiting request may have it: then only tenants with the largest allowed
/// number of permits wait.
#[derive(Debug)]
pub(crate) struct Admission<K> {
    order: Order,
    tenants: Tenants<K>,
    waiters: Waiters,
    /// Tenants with a place that was computed for a request that was cancelled, and its charge.
    stale: BTreeMap<Index, Cost>,
    limits: Limits,
    in_flight: u32,
    waiting: u32,
    closed: bool,
}

/// Returns the share of a tenant with this weight. The order is exact to the unit, so it does not need the largest cost
/// of a tenant.
fn share(weight: Weight) -> Share {
    Share::new(weight, Cost::MAX)
}

impl<K> Admission<K> {
    pub(crate) fn new(limits: Limits) -> Admission<K> {
        Admission {
            order: Order::for_costs(),
            tenants: Tenants::new(limits.tenants),
            waiters: Waiters::new(),
            stale: BTreeMap::new(),
            limits,
            in_flight: 0,
            waiting: 0,
            closed: false,
        }
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// Returns the number of granted permits, including those not yet collected.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    pub(crate) fn waiting(&self) -> u32 {
        self.waiting
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(crate) fn tenants(&self) -> usize {
        self.tenants.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.tenants.bytes() + self.waiters.bytes()
    }

    /// Whether a tenant has the largest allowed number of permits.
    #[inline]
    fn is_capped(&self, index: Index) -> bool {
        self.tenants[index].in_flight >= self.limits.permits_per_tenant
    }

    /// Whether a tenant may expire: it has no request and no place in the order.
    #[inline]
    fn is_idle(&self, index: Index) -> bool {
        let tenant = &self.tenants[index];
        tenant.waiting == 0
            && tenant.in_flight == 0
            && !self.order.is_active(self.tenants.all(), entity(index))
    }

    /// Makes a tenant idle if it has become so.
    #[inline]
    fn rest(&mut self, index: Index) {
        if self.is_idle(index) {
            self.tenants.rest(index);
        }
    }

    /// Adds a tenant with waiting requests to the order, unless it has a place there, or the largest allowed number of
    /// permits.
    fn compete(&mut self, index: Index) {
        let tenant = &self.tenants[index];
        let Some(cost) = self
            .waiters
            .first_cost(tenant.ends)
            .filter(|_| tenant.waiting > 0)
        else {
            return;
        };
        if !self.is_capped(index) {
            let head = Charge::from(tenant.charge(cost));
            self.order
                .backlogged(self.tenants.records(), entity(index), head);
        }
    }

    /// Charges the selected tenant for a request admitted at this cost.
    fn serve(&mut self, index: Index, cost: Cost) {
        self.stale(index);
        self.in_flight += 1;
        let charged = self.tenants.charge_now(index, cost);
        let tenant = &mut self.tenants[index];
        tenant.in_flight += 1;
        let next = match tenant.waiting > 0 && tenant.in_flight < self.limits.permits_per_tenant {
            true => self.waiters.first_cost(tenant.ends),
            false => None,
        };
        let next = next.map(|cost| Charge::from(tenant.charge(cost)));
        let (records, id) = (self.tenants.records(), entity(index));
        self.order.served(charged.into());
        self.order.reschedule(records, id, charged.into(), next);
    }

    /// Returns the charge of the cancelled request for which the place of a selected tenant was computed, which leaves
    /// it. O(1) while there is no such place.
    #[inline]
    fn stale(&mut self, index: Index) -> Option<Cost> {
        match self.stale.is_empty() {
            true => None,
            false => self.stale.remove(&index),
        }
    }

    /// Skips the selected tenant, which has no request to admit.
    fn pass_over(&mut self, index: Index) {
        self.stale(index);
        self.order.idle(self.tenants.records(), entity(index));
        self.rest(index);
    }

    /// Returns the next tenant, if the order is not empty.
    #[inline]
    fn select(&self) -> Option<Index> {
        let selected = self.order.select(self.tenants.all());
        selected.get().map(|id| id.index() as Index)
    }

    /// Admits a request of a tenant at once. No waiting request may be admissible before it.
    fn admit_at_once(&mut self, index: Index, cost: Cost) {
        let head = Charge::from(self.tenants[index].charge(cost));
        self.order
            .backlogged(self.tenants.records(), entity(index), head);
        // Only tenants whose requests were cancelled precede it.
        while let Some(selected) = self.select()
            && selected != index
        {
            self.pass_over(selected);
        }
        self.serve(index, cost);
    }

    /// Gives the selected tenant the place of its first request, if its place is that of a cheaper one that was
    /// cancelled; returns whether it did. The tenant keeps its arrears, and pays one unit.
    fn place_again(&mut self, index: Index) -> bool {
        let placed = self.stale(index);
        let tenant = &self.tenants[index];
        let waiting = tenant.waiting > 0;
        let first = self.waiters.first_cost(tenant.ends).filter(|_| waiting);
        let next = first.map(|cost| tenant.charge(cost));
        let Some(next) = next.filter(|&next| placed.is_some_and(|placed| placed < next)) else {
            return false;
        };
        let (records, id) = (self.tenants.records(), entity(index));
        (self.order).reschedule(records, id, Cost::ONE.into(), Some(next.into()));
        true
    }

    /// Grants free permits to waiting requests, in order. O(log n) for each.
    fn grant(&mut self, woken: &mut Woken) {
        while self.in_flight < self.limits.permits
            && let Some(index) = self.select()
        {
            if self.is_capped(index) {
                self.pass_over(index);
                continue;
            }
            if self.place_again(index) {
                continue;
            }
            match self.waiters.grant_first(&mut self.tenants[index].ends) {
                Some((cost, waker)) => {
                    self.waiting -= 1;
                    self.tenants[index].waiting -= 1;
                    self.serve(index, cost);
                    woken.add(waker);
                }
                None => self.pass_over(index),
            }
        }
    }

    /// Takes a permit back. O(log n).
    pub(crate) fn release(&mut self, index: Index, woken: &mut Woken) {
        let was_capped = self.is_capped(index);
        self.in_flight -= 1;
        self.tenants[index].in_flight -= 1;
        if was_capped {
            self.compete(index);
        }
        self.rest(index);
        self.grant(woken);
    }

    /// Corrects a request that was admitted at a cost of `charged` to `actual`. O(1).
    pub(crate) fn correct(&mut self, index: Index, charged: u32, actual: u32) {
        let by = i64::from(actual) - i64::from(charged);
        self.tenants.settle(index, by);
    }

    /// Polls a request that did not get its permit at once: it has one, or the semaphore is closed, or `waker` is woken
    /// when either happens. Drop the result without the lock.
    pub(crate) fn look(&mut self, slot: u32, waker: &Waker) -> PollResult {
        self.waiters.look(slot, waker)
    }

    /// Cancels a request that did not get its permit at once. If it had been granted one already, it costs one unit: if
    /// it cost nothing, a tenant with a negative account would gain with each cancellation. Drop the waker without the
    /// lock. O(log n).
    pub(crate) fn cancel(&mut self, slot: u32, woken: &mut Woken) -> Option<Waker> {
        if !self.waiters.is_waiting(slot) {
            if let Some((index, cost)) = self.waiters.abandon(slot) {
                self.correct(index, cost.get(), Cost::ONE.get());
                self.release(index, woken);
            }
            return None;
        }
        let index = self.waiters.tenant(slot);
        let tenant = &mut self.tenants[index];
        let first = self.waiters.first_cost(tenant.ends);
        let first = first.filter(|_| tenant.ends.first == slot);
        let placed = first.map(|cost| tenant.charge(cost));
        let waker = self.waiters.withdraw(&mut tenant.ends, slot);
        tenant.waiting -= 1;
        self.waiting -= 1;
        if let Some(placed) = placed
            && self.order.is_active(self.tenants.all(), entity(index))
        {
            self.stale.entry(index).or_insert(placed);
        }
        // The next request is the head now, if this one was.
        self.compete(index);
        self.rest(index);
        waker
    }

    /// Changes the number of permits. Permits above it remain granted until they are dropped. O(log n) for each that is
    /// granted.
    pub(crate) fn set_permits(&mut self, permits: u32, woken: &mut Woken) {
        self.limits.permits = permits;
        self.grant(woken);
    }

    /// Closes the semaphore: new and waiting requests are rejected. O(slots).
    pub(crate) fn close(&mut self, woken: &mut Woken) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        self.waiting = 0;
        for (index, waker) in self.waiters.close() {
            woken.add(waker);
            let tenant = &mut self.tenants[index];
            if std::mem::take(&mut tenant.waiting) > 0 {
                tenant.ends = ListEnds::EMPTY;
                self.rest(index);
            }
        }
    }
}

impl<K: Eq> Admission<K> {
    /// Admits a new request at once, or lets it wait, or rejects it without a change. O(log n), amortised over requests
    /// that were cancelled before their turn.
    pub(crate) fn enter(
        &mut self,
        hash: u64,
        key: K,
        cost: Cost,
        keys: &impl Keys<K>,
        waker: Option<&Waker>,
    ) -> Result<Option<Entered>, AcquireError> {
        if self.closed {
            return Err(AcquireError::Closed);
        }
        let cost = cost.min(self.limits.estimate);
        let is_free = self.in_flight < self.limits.permits;
        let found = self.tenants.find(hash, &key);
        let admitted = is_free && found.is_none_or(|index| !self.is_capped(index));
        let waker = match (admitted, waker) {
            (true, _) => None,
            (false, None) => return Ok(None),
            (false, Some(waker)) => {
                self.may_wait(found)?;
                Some(waker)
            }
        };
        let known = match found {
            Some(index) => Ok(index),
            None => Err(self.tenants.place()?),
        };
        // No rejection from here on, so no waker is dropped under the lock.
        let waker = waker.cloned();
        let index = match known {
            Ok(index) => {
                if self.is_idle(index) {
                    self.tenants.wake(index);
                }
                index
            }
            Err(oldest) => self.add(oldest, hash, key, keys),
        };
        Ok(Some(match waker {
            Some(waker) => Entered::Waits(self.queue(index, cost, waker)),
            None => {
                self.admit_at_once(index, cost);
                Entered::Admitted(index, cost)
            }
        }))
    }

    /// Whether one more request may wait, of a known tenant or of a new one. A tenant without waiting requests is not
    /// rejected because of other tenants.
    fn may_wait(&self, tenant: Option<Index>) -> Result<(), AcquireError> {
        let waiting = tenant.map_or(0, |index| self.tenants[index].waiting);
        let Limits {
            waiting: in_all,
            waiting_per_tenant: of_tenant,
            ..
        } = self.limits;
        if waiting >= of_tenant {
            return Err(AcquireError::TenantFull { limit: of_tenant });
        }
        if waiting > 0 && self.waiting >= in_all {
            return Err(AcquireError::Full { limit: in_all });
        }
        Ok(())
    }

    /// Queues a request; returns its slot.
    fn queue(&mut self, index: Index, cost: Cost, waker: Waker) -> u32 {
        let tenant = &mut self.tenants[index];
        let slot = self.waiters.push(&mut tenant.ends, index, cost, waker);
        tenant.waiting += 1;
        self.waiting += 1;
        if tenant.waiting == 1 {
            self.compete(index);
        }
        slot
    }

    /// Adds a new tenant, not idle: replaces `oldest`, or appends.
    #[inline(never)]
    fn add(&mut self, oldest: Option<Index>, hash: u64, key: K, keys: &impl Keys<K>) -> Index {
        let weight = self.tenants.own_weight(hash, &key);
        let weight = weight.unwrap_or_else(|| keys.weight(&key));
        self.tenants.make_place(oldest, |key| keys.hash(key));
        if let Some(oldest) = oldest {
            // It is inactive, and removed at once.
            let _ = self.order.remove(self.tenants.records(), entity(oldest));
        }
        let index = (self.tenants).fill(oldest, hash, key, |key| keys.hash(key));
        self.order
            .add(self.tenants.records(), entity(index), share(weight));
        index
    }

    /// Sets a tenant's weight, known or not, or removes the setting. O(log n).
    pub(crate) fn set_weight(
        &mut self,
        hash: u64,
        key: K,
        weight: Option<Weight>,
        keys: &impl Keys<K>,
    ) {
        let found = self.tenants.find(hash, &key);
        let now = weight.unwrap_or_else(|| keys.weight(&key));
        match weight {
            Some(weight) => {
                let hasher = |key: &K| keys.hash(key);
                self.tenants.set_own_weight(hash, key, weight, hasher);
            }
            None => self.tenants.unset_own_weight(hash, &key),
        }
        if let Some(index) = found {
            self.order
                .change(self.tenants.records(), entity(index), share(now));
        }
    }

    /// Returns the weight that a tenant has, or would have. O(1).
    pub(crate) fn weight(&self, hash: u64, key: &K, keys: &impl Keys<K>) -> Weight {
        let own = self.tenants.own_weight(hash, key);
        own.unwrap_or_else(|| match self.tenants.find(hash, key) {
            Some(index) => self.order.weight(self.tenants.all(), entity(index)),
            None => keys.weight(key),
        })
    }
}

#[cfg(test)]
impl<K> Admission<K> {
    /// Panics unless all counters are right, and no request waits for a permit that it may have.
    pub(crate) fn check(&self) {
        let (mut in_flight, mut waiting) = (0, 0);
        let mut idle = Vec::new();
        for index in 0..self.tenants.len() as Index {
            let tenant = &self.tenants[index];
            in_flight += u32::from(tenant.in_flight);
            waiting += u32::from(tenant.waiting);
            let is_active = self.order.is_active(self.tenants.all(), entity(index));
            if self.is_idle(index) {
                idle.push(index);
                continue;
            }
            let queue = self.waiters.queue(tenant.ends);
            assert_eq!(
                queue.len(),
                usize::from(tenant.waiting),
                "of tenant {index}"
            );
            assert!(queue.iter().all(|&slot| self.waiters.tenant(slot) == index));
            assert!(
                queue.is_empty() || is_active != self.is_capped(index),
                "tenant {index} competes: {is_active}, {tenant:?}",
                tenant = (tenant.in_flight, tenant.waiting)
            );
            assert!(
                queue.is_empty() || !is_active || self.in_flight >= self.limits.permits,
                "a permit is free, and tenant {index} waits"
            );
        }
        let [waits, granted, _] = self.waiters.stages();
        assert_eq!((self.in_flight, self.waiting), (in_flight, waiting));
        assert_eq!(waits as u32, waiting);
        assert!(granted as u32 <= in_flight);
        let mut listed = self.tenants.idle();
        listed.sort_unstable();
        assert_eq!(listed, idle, "the idle tenants are listed");
        self.order.invariants(self.tenants.all()).unwrap();
    }

    /// Returns the slots in use by stage, waiting, granted and closed, and the sum of all accounts.
    pub(crate) fn leftovers(&self) -> ([usize; 3], i64) {
        let tenants = 0..self.tenants.len() as Index;
        (
            self.waiters.stages(),
            tenants.map(|index| self.tenants.account(index)).sum(),
        )
    }
}
