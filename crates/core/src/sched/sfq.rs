//! SFQ: stochastic fairness queueing.
//!
//! P. McKenney, *Stochastic fairness queueing*, INFOCOM 1990. ALTQ calls it WFQ (K. Cho, *A
//! Framework for Alternate Queueing*, 1998). Flows are hashed into a fixed number of
//! buckets, and [`Drr`] shares the link evenly among the buckets that hold something: a
//! turn is worth the largest charge there is. In a bucket, packets leave in the order in
//! which they came, whoever sent them.
//!
//! What is hashed is the number of the entity: the owner's classifier maps headers to those.
//! So nobody needs to know the flows, and weights count for nothing. A flow with a bucket
//! of its own has what DRR gives it. Flows that share one have no guarantee against each
//! other, and to limit how long, the hash gets another key every so many bytes of service
//! (the *period*), and whenever the owner says so ([`Sfq::perturb`]). There is no clock and
//! no chance in this: the keys follow from the first seed.
//!
//! # Places, not packets
//!
//! A bucket holds *places*. A place means "the next packet of entity X", and packets stay
//! in the queues of their flows. So wherever the places of an entity are, its packets leave
//! in order; a new key moves nothing: it says where places go from then on, at O(1). Until
//! its old places have come up, a flow with a backlog is served in two buckets.
//!
//! There are as many places as packets queued, in one table with a list for each bucket. A
//! packet costs O(1); removing an entity, or discarding packets of it, costs O(packets
//! queued in all and buckets), as in [`Fifo`](super::Fifo).

#[cfg(test)]
mod tests;

use super::Drr;
use super::drr::DrrEntity;
use crate::ensure_invariant;
use crate::scheduler::{
    Entities, EntityId, Holds, Link, MAX_ENTITIES, Removal, Scheduler, Share, Violation,
};
use crate::units::{Charge, Length, Weight};
use alloc::vec::Vec;
use core::num::{NonZeroU32, NonZeroU64};

/// State of one entity.
#[derive(Clone, Copy, Debug, Default)]
pub struct SfqEntity {
    weight: Option<Weight>,
    /// What its next packet is charged for, while it has one.
    head: Option<Charge>,
    /// Its places in all buckets.
    places: u32,
}

const _: () = assert!(size_of::<SfqEntity>() <= 24);

/// The next packet of `entity`, and the place behind.
#[derive(Clone, Copy, Debug)]
struct Place {
    entity: EntityId,
    next: u32,
}

/// What a turn is worth before there are entities.
const BYTE: Length = Length::new(1).unwrap();

/// No place.
const NONE: u32 = u32::MAX;

/// The places of a bucket: the first and the last.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    first: u32,
    last: u32,
}

impl Bucket {
    const EMPTY: Bucket = Bucket {
        first: NONE,
        last: NONE,
    };
}

/// Stochastic fairness queueing.
#[derive(Clone, Debug)]
pub struct Sfq {
    /// The order of buckets, which are its entities. A bucket that lost its places keeps its
    /// turn until that comes; whose turn it is has some.
    drr: Drr,
    turns: Vec<DrrEntity>,
    buckets: Vec<Bucket>,
    places: Vec<Place>,
    /// Places not in use, linked.
    free: u32,
    /// The key of the hash.
    key: u64,
    /// Bytes of service from one key to the next; 0 for ever.
    period: u64,
    /// Bytes of this period still to serve.
    left: u64,
}

impl Default for Sfq {
    fn default() -> Self {
        Self::new()
    }
}

/// Spreads every bit over all others: multiplications carry upwards, shifts down.
#[inline]
fn mixed(key: u64) -> u64 {
    let x = (key ^ key >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let x = (x ^ x >> 29).wrapping_mul(0xa076_1d64_78bd_642f);
    x ^ x >> 32
}

/// A key that follows from a seed, or from the key before.
fn next_key(seed: u64) -> u64 {
    mixed(seed.wrapping_add(0x9e37_79b9_7f4a_7c15))
}

impl Sfq {
    /// Buckets unless told otherwise.
    pub const BUCKETS: NonZeroU32 = NonZeroU32::new(256).unwrap();

    /// Period unless told otherwise: half a second at 1 Gbit/s.
    pub const PERIOD: NonZeroU64 = NonZeroU64::new(1 << 26).unwrap();

    /// A scheduler with [`Sfq::BUCKETS`] and [`Sfq::PERIOD`].
    pub fn new() -> Self {
        Self::with(Self::BUCKETS, 0, Some(Self::PERIOD))
    }

    /// A scheduler with so many buckets, any number up to [`MAX_ENTITIES`], and so many bytes
    /// of service from one key of the hash to the next, or with one key for ever. The same
    /// `seed` makes the same keys.
    pub fn with(buckets: NonZeroU32, seed: u64, period: Option<NonZeroU64>) -> Self {
        let buckets = (buckets.get() as usize).min(MAX_ENTITIES);
        let mut drr = Drr::new();
        let mut turns = alloc::vec![DrrEntity::default(); buckets];
        for bucket in (0..buckets).filter_map(EntityId::new) {
            drr.add(&mut turns, bucket, Share::new(Weight::ONE, BYTE));
        }
        let period = period.map_or(0, NonZeroU64::get);
        Sfq {
            drr,
            turns,
            buckets: alloc::vec![Bucket::EMPTY; buckets],
            places: Vec::new(),
            free: NONE,
            key: next_key(seed),
            period,
            left: period,
        }
    }

    /// Gives the hash another key: packets that arrive from now on go to other buckets. What
    /// waits stays, so that every flow's packets stay in order. A new period begins. O(1).
    pub fn perturb(&mut self, seed: u64) {
        self.key = next_key(seed);
        self.left = self.period;
    }

    /// Where an entity's packets go at present.
    #[inline]
    fn bucket_of(&self, id: EntityId) -> usize {
        let hash = mixed(id.index() as u64 ^ self.key) >> 32;
        ((hash * self.buckets.len() as u64) >> 32) as usize
    }

    /// The first place of the bucket whose turn it is.
    #[inline]
    fn first(&self) -> Option<(EntityId, &Place)> {
        let bucket = self.drr.select(&self.turns).get()?;
        let place = self.buckets[bucket.index()].first;
        Some((bucket, self.places.get(place as usize)?))
    }

    #[inline]
    fn take_place(&mut self, entity: EntityId) -> u32 {
        let place = Place { entity, next: NONE };
        match self.places.get_mut(self.free as usize) {
            Some(free) => {
                let at = core::mem::replace(&mut self.free, free.next);
                *free = place;
                at
            }
            None => {
                self.places.push(place);
                (self.places.len() - 1) as u32
            }
        }
    }

    #[inline]
    fn give_back(&mut self, at: u32) {
        self.places[at as usize].next = core::mem::replace(&mut self.free, at);
    }

    /// What the bucket is charged for next, if it holds something.
    #[inline]
    fn head(&self, entities: &[impl Holds<SfqEntity>], bucket: EntityId) -> Option<Charge> {
        let first = self.buckets[bucket.index()].first;
        let place = self.places.get(first as usize)?;
        entities.entity(place.entity).head
    }

    /// Passes over buckets that lost their places.
    fn settle(&mut self) {
        while let Some(bucket) = self.drr.select(&self.turns).get()
            && self.buckets[bucket.index()].first == NONE
        {
            self.drr.idle(&mut self.turns, bucket);
        }
    }

    /// Takes up to `count` places of `id` out of one bucket, the first ones, and tells how many.
    fn take_out(&mut self, bucket: usize, id: EntityId, count: u32) -> u32 {
        let mut taken = 0;
        let Bucket { first: mut at, .. } =
            core::mem::replace(&mut self.buckets[bucket], Bucket::EMPTY);
        while at != NONE {
            let Place { entity, next } = self.places[at as usize];
            if entity == id && taken < count {
                taken += 1;
                self.give_back(at);
            } else {
                self.append(bucket, at);
            }
            at = next;
        }
        taken
    }

    /// Puts a place at the end of a bucket.
    #[inline]
    fn append(&mut self, bucket: usize, at: u32) {
        self.places[at as usize].next = NONE;
        let bucket = &mut self.buckets[bucket];
        match bucket.last {
            NONE => bucket.first = at,
            last => self.places[last as usize].next = at,
        }
        bucket.last = at;
    }
}

impl Scheduler for Sfq {
    type Entity = SfqEntity;
    const NAME: &'static str = "sfq";
    const FOLLOWS_PACKETS: bool = true;

    fn add(&mut self, entities: &mut [impl Holds<SfqEntity>], id: EntityId, share: Share) {
        self.drr.cover(share.max_charge());
        *entities.entity_mut(id) = SfqEntity {
            weight: Some(share.weight()),
            ..SfqEntity::default()
        };
    }

    fn remove(&mut self, entities: &mut [impl Holds<SfqEntity>], id: EntityId) -> Removal {
        self.discarded(entities, id, u32::MAX);
        *entities.entity_mut(id) = SfqEntity::default();
        Removal::Done
    }

    fn change(&mut self, entities: &mut [impl Holds<SfqEntity>], id: EntityId, share: Share) {
        self.drr.cover(share.max_charge());
        entities.entity_mut(id).weight = Some(share.weight());
    }

    fn weight(&self, entities: &[impl Holds<SfqEntity>], id: EntityId) -> Weight {
        entities.entity(id).weight.unwrap_or(Weight::ONE)
    }

    fn is_active(&self, entities: &[impl Holds<SfqEntity>], id: EntityId) -> bool {
        entities.entity(id).places > 0
    }

    #[inline]
    fn backlogged(&mut self, entities: &mut [impl Holds<SfqEntity>], id: EntityId, head: Charge) {
        entities.entity_mut(id).head = Some(head);
    }

    #[inline]
    fn arrived(&mut self, entities: &mut [impl Holds<SfqEntity>], id: EntityId, _: Charge) {
        let entity = entities.entity_mut(id);
        entity.places += 1;
        let head = entity.head;
        let bucket = self.bucket_of(id);
        let was_empty = self.buckets[bucket].first == NONE;
        let place = self.take_place(id);
        self.append(bucket, place);
        if was_empty && let (Some(bucket), Some(head)) = (EntityId::new(bucket), head) {
            self.drr.backlogged(&mut self.turns, bucket, head);
        }
    }

    fn discarded(&mut self, entities: &mut [impl Holds<SfqEntity>], id: EntityId, packets: u32) {
        let entity = entities.entity_mut(id);
        let mut left = packets.min(entity.places);
        entity.places -= left;
        for bucket in 0..self.buckets.len() {
            if left == 0 {
                break;
            }
            // Where a longer packet comes first now than a turn under way covers, the
            // bucket goes into debt, and its later turns pay.
            left -= self.take_out(bucket, id, left);
        }
        self.settle();
    }

    #[inline]
    fn select(&self, _: &[impl Holds<SfqEntity>]) -> Link {
        self.first()
            .map_or(Link::NONE, |(_, place)| Link::to(place.entity))
    }

    /// Others only join behind, in its bucket as in the round.
    #[inline]
    fn hold(&mut self, _: &mut [impl Holds<SfqEntity>], _: EntityId) {}

    #[inline]
    fn served(&mut self, work: Charge) {
        if self.period != 0 {
            self.left = self.left.saturating_sub(work.get().into());
            if self.left == 0 {
                self.perturb(self.key);
            }
        }
    }

    #[inline]
    fn reschedule(
        &mut self,
        entities: &mut [impl Holds<SfqEntity>],
        id: EntityId,
        charged: Charge,
        next: Option<Charge>,
    ) {
        let Some((
            bucket,
            &Place {
                entity,
                next: behind,
            },
        )) = self.first()
        else {
            return;
        };
        debug_assert_eq!(entity, id, "it is the selected one");
        let state = entities.entity_mut(id);
        state.head = next;
        state.places -= 1;
        let places = &mut self.buckets[bucket.index()];
        let at = core::mem::replace(&mut places.first, behind);
        if behind == NONE {
            places.last = NONE;
        }
        self.give_back(at);
        let head = self.head(entities, bucket);
        self.drr.reschedule(&mut self.turns, bucket, charged, head);
        self.settle();
    }

    fn idle(&mut self, entities: &mut [impl Holds<SfqEntity>], id: EntityId) {
        self.discarded(entities, id, u32::MAX);
    }

    fn invariants(&self, entities: &[impl Holds<SfqEntity>]) -> Result<(), Violation> {
        self.drr.invariants(&self.turns)?;
        let mut found = alloc::vec![0; entities.len()];
        let mut used = 0;
        for (index, bucket) in self.buckets.iter().enumerate() {
            let (mut at, mut last) = (bucket.first, NONE);
            while let Some(place) = self.places.get(at as usize) {
                used += 1;
                ensure_invariant!(used <= self.places.len(), "sfq: places lead in a circle");
                ensure_invariant!(
                    place.entity.index() < entities.len(),
                    "sfq: {:?} was never added",
                    place.entity
                );
                found[place.entity.index()] += 1;
                (at, last) = (place.next, at);
            }
            ensure_invariant!(
                at == NONE && last == bucket.last,
                "sfq: bucket {index} ends at {last}, not {}",
                bucket.last
            );
            let in_round =
                EntityId::new(index).is_some_and(|id| self.drr.is_active(&self.turns, id));
            ensure_invariant!(
                bucket.first == NONE || in_round,
                "sfq: bucket {index} holds something and has no turn"
            );
        }
        let mut free = self.free;
        while let Some(place) = self.places.get(free as usize) {
            used += 1;
            ensure_invariant!(used <= self.places.len(), "sfq: a place is used twice");
            free = place.next;
        }
        ensure_invariant!(
            used == self.places.len(),
            "sfq: {used} of {} places are listed",
            self.places.len()
        );
        for id in (0..entities.len()).filter_map(EntityId::new) {
            let entity = entities.entity(id);
            ensure_invariant!(
                entity.places == found[id.index()]
                    && (entity.places == 0 || (entity.head.is_some() && entity.weight.is_some())),
                "sfq: {id:?} has {} places: {entity:?}",
                found[id.index()]
            );
        }
        ensure_invariant!(
            self.drr.select(&self.turns) == Link::NONE || self.first().is_some(),
            "sfq: it is the turn of an empty bucket"
        );
        Ok(())
    }
}
