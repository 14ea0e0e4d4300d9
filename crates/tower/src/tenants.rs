//! Tenants by key, each in 48 bytes plus those of its key beyond eight, and the order in which idle tenants expire.

use crate::waiters::{ListEnds, NONE, make_room};
use crate::{AcquireError, Cost};
use fairlane_core::Weight;
use fairlane_core::sched::{Costs, Wf2qPlus};
use fairlane_core::scheduler::{EntityId, Holds, Scheduler};
use hashbrown::HashTable;
use std::collections::BTreeMap;

/// The order of tenants: exact for any mix of costs. O(log n) in the number of waiting tenants.
pub(crate) type Order = Wf2qPlus<Costs>;
type State = <Order as Scheduler>::Entity;

/// A tenant.
#[derive(Clone, Debug)]
pub(crate) struct Tenant<K, S = State> {
    state: S,
    /// Its queue; its neighbours in the list of idle tenants while it is idle.
    pub(crate) ends: ListEnds,
    /// The outstanding corrections to charge; negative, to deduct. At the end of its range ([`MOST`]), the rest is
    /// stored separately.
    account: i32,
    pub(crate) waiting: u16,
    pub(crate) in_flight: u16,
    pub(crate) key: K,
}

const _: () = assert!(size_of::<Tenant<u64>>() == 48);

/// The limit of an account on either side: with any cost it yields the largest or smallest charge, which a larger
/// account would not change.
const MOST: i32 = i32::MAX;

const _: () = assert!(MOST as u32 == crate::MAX_COST - 1);

impl<K, S> Holds<S> for Tenant<K, S> {
    #[inline]
    fn state(&self) -> &S {
        &self.state
    }
    #[inline]
    fn state_mut(&mut self) -> &mut S {
        &mut self.state
    }
}

impl<K> Tenant<K> {
    /// Returns the charge of a request of this cost, including outstanding corrections.
    #[inline]
    pub(crate) fn charge(&self, cost: Cost) -> Cost {
        let charge = i64::from(cost.get()) + i64::from(self.account);
        Cost::clamped(charge.max(1).unsigned_abs())
    }
}

/// The index of a tenant in the table.
pub(crate) type Index = u32;

/// Returns the scheduler's identifier of the tenant at `index`, which is in use.
#[inline]
pub(crate) fn entity(index: Index) -> EntityId {
    // The table is no larger than the number of entities.
    EntityId::new(index as usize).unwrap_or_else(|| unreachable!("tenant {index}"))
}

/// Tenants by key. The table never shrinks: once it has its largest size, a new tenant replaces the one that has been
/// idle for longest.
#[derive(Debug)]
pub(crate) struct Tenants<K> {
    table: Vec<Tenant<K>>,
    by_key: HashTable<Index>,
    most: u32,
    /// Idle tenants: `first` has been idle for longest.
    idle: ListEnds,
    /// The excess of accounts that are at the end of their range.
    beyond: BTreeMap<Index, i64>,
    /// Weights that were set one by one.
    weights: HashTable<(K, Weight)>,
}

impl<K> std::ops::Index<Index> for Tenants<K> {
    type Output = Tenant<K>;
    #[inline]
    fn index(&self, index: Index) -> &Tenant<K> {
        &self.table[index as usize]
    }
}

impl<K> std::ops::IndexMut<Index> for Tenants<K> {
    #[inline]
    fn index_mut(&mut self, index: Index) -> &mut Tenant<K> {
        &mut self.table[index as usize]
    }
}

impl<K> Tenants<K> {
    pub(crate) fn new(most: u32) -> Tenants<K> {
        Tenants {
            table: Vec::new(),
            by_key: HashTable::new(),
            most,
            idle: ListEnds::EMPTY,
            beyond: BTreeMap::new(),
            weights: HashTable::new(),
        }
    }

    /// Returns all records, read-only.
    #[inline]
    pub(crate) fn all(&self) -> &[Tenant<K>] {
        &self.table
    }

    /// Returns all records, for the scheduler.
    #[inline]
    pub(crate) fn records(&mut self) -> &mut [Tenant<K>] {
        &mut self.table
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Adds to the outstanding corrections of a tenant. O(1), or O(log n) in the number of accounts beyond their range.
    pub(crate) fn settle(&mut self, index: Index, by: i64) {
        let held = &mut self.table[index as usize].account;
        let mut sum = i64::from(*held).saturating_add(by);
        if held.abs() == MOST {
            sum = sum.saturating_add(self.beyond.remove(&index).unwrap_or(0));
        }
        *held = sum.clamp((-MOST).into(), MOST.into()) as i32;
        let rest = sum - i64::from(*held);
        if rest != 0 {
            self.beyond.insert(index, rest);
        }
    }

    /// [Charges](Tenant::charge) a tenant for a request, and returns the charge. The part beyond the range of costs
    /// stays in the account. Cost: as [`settle`](Self::settle).
    #[inline]
    pub(crate) fn charge_now(&mut self, index: Index, cost: Cost) -> Cost {
        let tenant = &self[index];
        let charge = tenant.charge(cost);
        if tenant.account != 0 {
            self.settle(index, i64::from(cost.get()) - i64::from(charge.get()));
        }
        charge
    }

    /// Returns the outstanding corrections of a tenant.
    #[cfg(test)]
    pub(crate) fn account(&self, index: Index) -> i64 {
        let rest = self.beyond.get(&index).copied().unwrap_or(0);
        rest + i64::from(self[index].account)
    }

    /// Returns the bytes of the tables.
    pub(crate) fn bytes(&self) -> usize {
        self.table.capacity() * size_of::<Tenant<K>>()
            + self.by_key.allocation_size()
            + self.weights.allocation_size()
    }

    /// Appends a tenant, which is in no list, to the list of idle ones. O(1).
    pub(crate) fn rest(&mut self, index: Index) {
        let last = std::mem::replace(&mut self.idle.last, index);
        self[index].ends = ListEnds {
            first: last,
            last: NONE,
        };
        match self.table.get_mut(last as usize) {
            Some(last) => last.ends.last = index,
            None => self.idle.first = index,
        }
    }

    /// Removes a tenant from the list of idle ones: it has an empty queue. O(1).
    pub(crate) fn wake(&mut self, index: Index) {
        let ListEnds {
            first: older,
            last: newer,
        } = std::mem::replace(&mut self[index].ends, ListEnds::EMPTY);
        match self.table.get_mut(older as usize) {
            Some(older) => older.ends.last = newer,
            None => self.idle.first = newer,
        }
        match self.table.get_mut(newer as usize) {
            Some(newer) => newer.ends.first = older,
            None => self.idle.last = older,
        }
    }

    #[cfg(test)]
    pub(crate) fn idle(&self) -> Vec<Index> {
        let tenant = |at: Index| self.table.get(at as usize).map(|_| at);
        std::iter::successors(tenant(self.idle.first), |&at| tenant(self[at].ends.last)).collect()
    }
}

impl<K: Eq> Tenants<K> {
    /// Returns the tenant with this key and hash. O(1).
    #[inline]
    pub(crate) fn find(&self, hash: u64, key: &K) -> Option<Index> {
        let same = |&index: &Index| self[index].key == *key;
        self.by_key.find(hash, same).copied()
    }

    /// Returns the weight that was set for a key. O(1).
    pub(crate) fn own_weight(&self, hash: u64, key: &K) -> Option<Weight> {
        self.weights
            .find(hash, |(other, _)| other == key)
            .map(|&(_, weight)| weight)
    }

    /// Sets a weight for a key. O(1) amortised.
    pub(crate) fn set_own_weight(
        &mut self,
        hash: u64,
        key: K,
        weight: Weight,
        hasher: impl Fn(&K) -> u64,
    ) {
        match self.weights.find_mut(hash, |(other, _)| *other == key) {
            Some((_, own)) => *own = weight,
            None => {
                self.weights
                    .insert_unique(hash, (key, weight), |(key, _)| hasher(key));
            }
        }
    }

    /// Removes the weight that was set for a key, if there is one. O(1).
    pub(crate) fn unset_own_weight(&mut self, hash: u64, key: &K) {
        if let Ok(entry) = self.weights.find_entry(hash, |(other, _)| other == key) {
            entry.remove();
        }
    }

    /// Returns the tenant that a new tenant replaces: the one that has been idle for longest, or `None` while the table
    /// may grow. O(1).
    pub(crate) fn place(&self) -> Result<Option<Index>, AcquireError> {
        if self.table.len() < self.most as usize {
            return Ok(None);
        }
        match self.idle.first {
            NONE => Err(AcquireError::TooManyTenants { limit: self.most }),
            oldest => Ok(Some(oldest)),
        }
    }

    /// Makes room for a tenant: removes `oldest`, which the caller removes from the order. O(1) amortised.
    pub(crate) fn make_place(&mut self, oldest: Option<Index>, hasher: impl Fn(&K) -> u64) {
        // The code of keys runs before any change.
        let table = &self.table;
        self.by_key
            .reserve(1, |&index| hasher(&table[index as usize].key));
        let Some(oldest) = oldest else { return };
        let hash = hasher(&self[oldest].key);
        self.wake(oldest);
        self.beyond.remove(&oldest);
        if let Ok(entry) = self.by_key.find_entry(hash, |&index| index == oldest) {
            entry.remove();
        }
    }

    /// Stores a tenant, which is not idle, replacing another or at the end. O(1) amortised.
    pub(crate) fn fill(
        &mut self,
        oldest: Option<Index>,
        hash: u64,
        key: K,
        hasher: impl Fn(&K) -> u64,
    ) -> Index {
        let tenant = Tenant {
            state: State::default(),
            ends: ListEnds::EMPTY,
            account: 0,
            waiting: 0,
            in_flight: 0,
            key,
        };
        let index = match oldest {
            None => {
                make_room(&mut self.table);
                self.table.push(tenant);
                (self.table.len() - 1) as Index
            }
            Some(index) => {
                self[index] = tenant;
                index
            }
        };
        let table = &self.table;
        self.by_key
            .insert_unique(hash, index, |&index| hasher(&table[index as usize].key));
        index
    }
}
