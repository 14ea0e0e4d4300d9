//! SFQ: stochastic fairness queueing.
//!
//! P. McKenney, *Stochastic fairness queueing*, INFOCOM 1990. ALTQ calls it WFQ (K. Cho, *A Framework for Alternate
//! Queueing*, 1998). Flows are hashed into a fixed number of buckets, and [`Drr`] shares the link evenly among the
//! buckets that hold something: the quantum is the largest charge that occurs. In a bucket, packets leave in the order
//! of arrival, whatever their flow.
//!
//! The hash input is the number of the entity: the owner's classifier maps headers to those. So the algorithm keeps no
//! list of flows, and weights have no effect. A flow with a bucket of its own has the service that DRR gives it. Flows
//! that share one have no guarantee against each other; to limit the time they share it, the hash gets another key
//! after a configured number of bytes of service (the *period*), and whenever the owner asks for it ([`Sfq::perturb`]).
//! There is no clock and no chance in this: the keys follow from the first seed.
//!
//! # Places, not packets
//!
//! A bucket holds *places*. A place means "the next packet of entity X", and packets stay
//! in the queues of their flows. So wherever the places of an entity are, its packets leave
//! in order; a new key moves nothing: it says where places go from then on, at O(1). Until
//! its old places have come up, a flow with a backlog is served in two buckets.
//!
//! There are as many places as packets queued, in chunks of fifteen in a cache line, so that
//! those of a bucket lie side by side. A packet costs O(1); removing an entity, or discarding
//! packets of it, costs O(packets queued in all and buckets), as in [`Fifo`](super::Fifo).

mod places;
#[cfg(test)]
mod tests;

use self::places::{Places, Queue};
use super::Drr;
use super::drr::DrrEntity;
use crate::ensure_invariant;
use crate::scheduler::{
    Entities, EntityId, Holds, MAX_ENTITIES, MaybeEntity, Removal, Scheduler, Share, Violation,
};
use crate::units::{Charge, Length, Weight};
use alloc::vec::Vec;
use core::num::{NonZeroU32, NonZeroU64};

/// State of one entity.
#[derive(Clone, Copy, Debug, Default)]
pub struct SfqEntity {
    weight: Option<Weight>,
    /// The charge of its next packet, while it has one.
    head: Option<Charge>,
    /// Its places in all buckets.
    places: u32,
}

const _: () = assert!(size_of::<SfqEntity>() <= 24);

/// The quantum before there are entities.
const BYTE: Length = Length::new(1).unwrap();

/// A bucket: its turns among all, and its places.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    turns: DrrEntity,
    queue: Queue,
}

impl Holds<DrrEntity> for Bucket {
    #[inline]
    fn state(&self) -> &DrrEntity {
        &self.turns
    }
    #[inline]
    fn state_mut(&mut self) -> &mut DrrEntity {
        &mut self.turns
    }
}

/// Stochastic fairness queueing.
#[derive(Clone, Debug)]
pub struct Sfq {
    /// The order of buckets, which are its entities. A bucket without places keeps its turn until that comes; the
    /// bucket whose turn it is has some.
    drr: Drr,
    buckets: Vec<Bucket>,
    places: Places,
    /// The first entity in the bucket whose turn it is.
    selected: MaybeEntity,
    /// The key of the hash.
    key: u64,
    /// Bytes of service from one key to the next; the largest number if one key stays for ever.
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

/// Returns a key that follows from a seed, or from the key before.
fn next_key(seed: u64) -> u64 {
    mixed(seed.wrapping_add(0x9e37_79b9_7f4a_7c15))
}

impl Sfq {
    /// The default number of buckets.
    pub const BUCKETS: NonZeroU32 = NonZeroU32::new(256).unwrap();

    /// The default period: half a second at 1 Gbit/s.
    pub const PERIOD: NonZeroU64 = NonZeroU64::new(1 << 26).unwrap();

    /// Creates a scheduler with [`Sfq::BUCKETS`] and [`Sfq::PERIOD`].
    pub fn new() -> Self {
        Self::with(Self::BUCKETS, 0, Some(Self::PERIOD))
    }

    /// Creates a scheduler with `buckets` buckets, any number up to [`MAX_ENTITIES`], and `period` bytes of service
    /// from one key of the hash to the next, or with one key for ever. The same `seed` makes the same keys.
    pub fn with(buckets: NonZeroU32, seed: u64, period: Option<NonZeroU64>) -> Self {
        let buckets = (buckets.get() as usize).min(MAX_ENTITIES);
        let mut drr = Drr::new();
        let mut all = alloc::vec![Bucket::default(); buckets];
        for bucket in (0..buckets).filter_map(EntityId::new) {
            drr.add(all.as_mut_slice(), bucket, Share::new(Weight::ONE, BYTE));
        }
        let period = period.map_or(u64::MAX, NonZeroU64::get);
        Sfq {
            drr,
            buckets: all,
            places: Places::default(),
            selected: MaybeEntity::NONE,
            key: next_key(seed),
            period,
            left: period,
        }
    }

    /// Gives the hash another key: packets that arrive from now on go to other buckets. Queued packets stay in place,
    /// so that every flow's packets keep their order. A new period begins. O(1).
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

    /// Updates the selection after a change of the turn or of the first entity in its bucket.
    #[inline]
    fn settle(&mut self) {
        let turn = self.drr.select(self.buckets.as_slice());
        self.selected = match self.buckets.get(turn.index()) {
            None => MaybeEntity::NONE,
            Some(bucket) => match self.places.first(&bucket.queue) {
                Some(first) => MaybeEntity::of(first),
                None => return self.pass_over(),
            },
        };
    }

    /// Passes over buckets that lost their places.
    #[cold]
    #[inline(never)]
    fn pass_over(&mut self) {
        while let Some(bucket) = self.drr.select(self.buckets.as_slice()).get()
            && self.buckets[bucket.index()].queue.is_empty()
        {
            self.drr.idle(self.buckets.as_mut_slice(), bucket);
        }
        self.settle();
    }

    /// A bucket without places got one, of a packet that is charged for `head`.
    #[cold]
    #[inline(never)]
    fn activate(&mut self, bucket: EntityId, head: Charge) {
        (self.drr).backlogged(self.buckets.as_mut_slice(), bucket, head);
        self.settle();
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
        let number = self.bucket_of(id);
        let queue = &mut self.buckets[number].queue;
        let was_empty = queue.is_empty();
        self.places.push(queue, id);
        if was_empty && let Some(head) = head {
            self.activate(EntityId::in_use(number as u32), head);
        }
    }

    fn discarded(&mut self, entities: &mut [impl Holds<SfqEntity>], id: EntityId, packets: u32) {
        let entity = entities.entity_mut(id);
        let mut left = packets.min(entity.places);
        entity.places -= left;
        for bucket in &mut self.buckets {
            if left == 0 {
                break;
            }
            // If the new first packet is longer than the rest of the present turn, the bucket goes into debt, and its
            // later turns pay.
            left -= self.places.take_out(&mut bucket.queue, id, left);
        }
        self.settle();
    }

    #[inline]
    fn select(&self, _: &[impl Holds<SfqEntity>]) -> MaybeEntity {
        self.selected
    }

    /// Others only join behind, in its bucket as in the round.
    #[inline]
    fn hold(&mut self, _: &mut [impl Holds<SfqEntity>], _: EntityId) {}

    #[inline]
    fn served(&mut self, work: Charge) {
        self.left = self.left.saturating_sub(work.get().into());
        if self.left == 0 {
            self.perturb(self.key);
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
        debug_assert_eq!(self.selected, MaybeEntity::of(id), "it is the selected one");
        let turn = self.drr.select(self.buckets.as_slice());
        let Some(Bucket { queue, .. }) = self.buckets.get_mut(turn.index()) else {
            return;
        };
        let state = entities.entity_mut(id);
        state.head = next;
        state.places -= 1;
        self.places.pop(queue);
        let first = self.places.first(queue);
        let head = first.and_then(|first| entities.entity(first).head);
        let bucket = EntityId::in_use(turn.index() as u32);
        (self.drr).reschedule(self.buckets.as_mut_slice(), bucket, charged, head);
        self.settle();
    }

    fn idle(&mut self, entities: &mut [impl Holds<SfqEntity>], id: EntityId) {
        self.discarded(entities, id, u32::MAX);
    }

    fn invariants(&self, entities: &[impl Holds<SfqEntity>]) -> Result<(), Violation> {
        let buckets = self.buckets.as_slice();
        self.drr.invariants(buckets)?;
        let count = entities.len();
        self.places
            .check(buckets.iter().map(|bucket| &bucket.queue))?;
        let mut found = alloc::vec![0; count];
        for (index, Bucket { queue, .. }) in buckets.iter().enumerate() {
            for entity in self.places.iter(queue) {
                ensure_invariant!(entity.index() < count, "sfq: {entity:?} was never added");
                found[entity.index()] += 1;
            }
            let id = EntityId::in_use(index as u32);
            ensure_invariant!(
                queue.is_empty() || self.drr.is_active(buckets, id),
                "sfq: bucket {index} holds something and has no turn"
            );
        }
        for id in (0..count).filter_map(EntityId::new) {
            let entity = entities.entity(id);
            ensure_invariant!(
                entity.places == found[id.index()]
                    && (entity.places == 0 || (entity.head.is_some() && entity.weight.is_some())),
                "sfq: {id:?} has {} places: {entity:?}",
                found[id.index()]
            );
        }
        let turn = self.drr.select(buckets);
        let first = turn
            .get()
            .and_then(|turn| self.places.first(&buckets[turn.index()].queue));
        ensure_invariant!(
            first.map_or(MaybeEntity::NONE, MaybeEntity::of) == self.selected
                && (turn == MaybeEntity::NONE) == first.is_none(),
            "sfq: it is the turn of bucket {turn:?}, whose first is {first:?}, not {:?}",
            self.selected
        );
        Ok(())
    }
}
