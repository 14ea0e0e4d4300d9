//! Waiting requests: all in one slab, each in the queue of its tenant.

use crate::Cost;
use std::task::Waker;

/// No request, no tenant.
pub(crate) const NONE: u32 = u32::MAX;

/// The first and the last of a list, or [`NONE`] twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListEnds {
    pub(crate) first: u32,
    pub(crate) last: u32,
}

impl ListEnds {
    pub(crate) const EMPTY: ListEnds = ListEnds {
        first: NONE,
        last: NONE,
    };
}

/// Makes room for one more in a table: doubles it while it is small, then adds a sixteenth, so that a million entries
/// waste little memory. O(1) amortised.
pub(crate) fn make_room<T>(table: &mut Vec<T>) {
    let used = table.len();
    if used == table.capacity() {
        table.reserve_exact(match used {
            0..1024 => used.max(16),
            _ => used / 16,
        });
    }
}

/// The stage of a request that did not get its permit at once.
#[derive(Debug)]
enum Stage {
    /// The slot is free; `next` is the next free one.
    Free,
    /// In its tenant's queue.
    Waiting(Waker),
    /// It has a permit, which was not collected yet.
    Granted,
    /// The semaphore was closed while it waited.
    Closed,
}

/// The result of polling a request. Unless it still waits, its slot is free afterwards.
pub(crate) enum PollResult {
    /// It waits. Drop a replaced waker after the lock is released.
    Waiting(Option<Waker>),
    /// It has the permit of this tenant, at this cost.
    Granted(u32, Cost),
    Closed,
}

#[derive(Debug)]
struct Slot {
    next: u32,
    before: u32,
    tenant: u32,
    cost: Cost,
    stage: Stage,
}

const _: () = assert!(size_of::<Slot>() <= 40);

/// Requests by slot. It grows to the largest number that ever waited at once, and does not shrink.
#[derive(Debug)]
pub(crate) struct Waiters {
    slots: Vec<Slot>,
    /// The first free slot.
    free: u32,
}

impl Waiters {
    pub(crate) const fn new() -> Waiters {
        Waiters {
            slots: Vec::new(),
            free: NONE,
        }
    }

    /// Appends a request to a queue, and returns its slot. O(1) amortised.
    pub(crate) fn push(
        &mut self,
        queue: &mut ListEnds,
        tenant: u32,
        cost: Cost,
        waker: Waker,
    ) -> u32 {
        let taken = Slot {
            next: NONE,
            before: queue.last,
            tenant,
            cost,
            stage: Stage::Waiting(waker),
        };
        let slot = match self.slots.get_mut(self.free as usize) {
            Some(free) => {
                let next = free.next;
                *free = taken;
                std::mem::replace(&mut self.free, next)
            }
            None => {
                make_room(&mut self.slots);
                self.slots.push(taken);
                (self.slots.len() - 1) as u32
            }
        };
        match self.slots.get_mut(queue.last as usize) {
            Some(last) => last.next = slot,
            None => queue.first = slot,
        }
        queue.last = slot;
        slot
    }

    /// Returns the cost of the first request of a queue. O(1).
    pub(crate) fn first_cost(&self, queue: ListEnds) -> Option<Cost> {
        self.slots.get(queue.first as usize).map(|slot| slot.cost)
    }

    pub(crate) fn tenant(&self, slot: u32) -> u32 {
        self.slots[slot as usize].tenant
    }

    pub(crate) fn is_waiting(&self, slot: u32) -> bool {
        matches!(self.slots[slot as usize].stage, Stage::Waiting(_))
    }

    /// Removes a request from any place of a queue. O(1).
    fn unlink(&mut self, queue: &mut ListEnds, slot: u32) {
        let Slot { next, before, .. } = self.slots[slot as usize];
        match self.slots.get_mut(before as usize) {
            Some(slot) => slot.next = next,
            None => queue.first = next,
        }
        match self.slots.get_mut(next as usize) {
            Some(slot) => slot.before = before,
            None => queue.last = before,
        }
    }

    /// Grants a permit to the first request of a queue, and returns its cost and waker. O(1).
    pub(crate) fn grant_first(&mut self, queue: &mut ListEnds) -> Option<(Cost, Waker)> {
        let slot = queue.first;
        let cost = self.first_cost(*queue)?;
        self.unlink(queue, slot);
        self.settle(slot, Stage::Granted).map(|waker| (cost, waker))
    }

    /// Removes a request that waits in this queue and frees its slot. Drop the returned waker after the lock is
    /// released. O(1).
    pub(crate) fn withdraw(&mut self, queue: &mut ListEnds, slot: u32) -> Option<Waker> {
        self.unlink(queue, slot);
        self.release(slot)
    }

    /// Polls a request, which `waker` wakes from now on. O(1).
    pub(crate) fn look(&mut self, slot: u32, waker: &Waker) -> PollResult {
        let Slot {
            tenant,
            cost,
            ref mut stage,
            ..
        } = self.slots[slot as usize];
        let found = match stage {
            Stage::Waiting(known) if known.will_wake(waker) => return PollResult::Waiting(None),
            Stage::Waiting(known) => {
                let known = std::mem::replace(known, waker.clone());
                return PollResult::Waiting(Some(known));
            }
            Stage::Granted => PollResult::Granted(tenant, cost),
            Stage::Free | Stage::Closed => PollResult::Closed,
        };
        self.release(slot);
        found
    }

    /// Frees the slot of a request that no longer waits and will not be polled again; returns its permit, if any. O(1).
    pub(crate) fn abandon(&mut self, slot: u32) -> Option<(u32, Cost)> {
        let Slot { tenant, cost, .. } = self.slots[slot as usize];
        let granted = matches!(self.slots[slot as usize].stage, Stage::Granted);
        self.release(slot);
        granted.then_some((tenant, cost))
    }

    /// Marks all waiting requests as closed; returns their tenants and wakers. The caller empties the queues. O(slots).
    pub(crate) fn close(&mut self) -> Vec<(u32, Waker)> {
        let mut told = Vec::new();
        for slot in 0..self.slots.len() as u32 {
            if self.is_waiting(slot)
                && let Some(waker) = self.settle(slot, Stage::Closed)
            {
                told.push((self.tenant(slot), waker));
            }
        }
        told
    }

    /// Adds a slot to the list of free ones.
    fn release(&mut self, slot: u32) -> Option<Waker> {
        let next = std::mem::replace(&mut self.free, slot);
        let waker = self.settle(slot, Stage::Free);
        self.slots[slot as usize].next = next;
        waker
    }

    fn settle(&mut self, slot: u32, stage: Stage) -> Option<Waker> {
        match std::mem::replace(&mut self.slots[slot as usize].stage, stage) {
            Stage::Waiting(waker) => Some(waker),
            _ => None,
        }
    }

    /// Returns the requests of a queue from first to last.
    #[cfg(test)]
    pub(crate) fn queue(&self, queue: ListEnds) -> Vec<u32> {
        let slot = |at: u32| self.slots.get(at as usize).map(|_| at);
        let queued =
            std::iter::successors(slot(queue.first), |&at| slot(self.slots[at as usize].next));
        queued.collect()
    }

    /// Returns the number of slots in use by stage: waiting, granted, closed.
    #[cfg(test)]
    pub(crate) fn stages(&self) -> [usize; 3] {
        let mut found = [0; 3];
        for slot in &self.slots {
            match slot.stage {
                Stage::Free => {}
                Stage::Waiting(_) => found[0] += 1,
                Stage::Granted => found[1] += 1,
                Stage::Closed => found[2] += 1,
            }
        }
        found
    }

    /// Returns the bytes of the table.
    pub(crate) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
    }
}
