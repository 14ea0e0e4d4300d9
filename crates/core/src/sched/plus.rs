//! SCHED+: flows in aggregates, an algorithm over the aggregates, DRR inside them.
//!
//! P. Valente, *Reducing the execution time of fair-queueing packet schedulers*,
//! Computer Communications 2014. Equations and sections below are numbered as there.
//!
//! An aggregate holds at most M flows of equal weight and equal longest packet L^k. To the algorithm it is one entity
//! with the weight of all its m^k flows, and with packets of m^k L^k: its *budget*. Once selected it is served until
//! the budget is spent or its flows have nothing left. Inside it, the backlogged flows take turns in a circle, by DRR
//! with a quantum of L^k each. The algorithm's work is done once a budget, so that the cost per packet comes near that
//! of DRR; the guarantees stay those of the algorithm, plus a few packets of the flow and M packets of the link
//! (Theorems 1 and 2).
//!
//! `Plus<Qfq>` is QFQ+. Algorithms that follow each packet through the fluid server (WF2Q) keep their order below
//! SCHED+, not their shares: they are notified of an aggregate's budget, not of its packets. Since the head of a flow
//! is not used before its turn, `Plus` with M = 1 makes any algorithm suitable for flows whose head may change while
//! they are backlogged. Algorithms that never use heads are suitable without it, and cost less:
//! [`Algorithm::without_aggregates_of_one`](super::Algorithm::without_aggregates_of_one).
//!
//! # Differences from the paper, and its open points
//!
//! * *Whether the next packet fits the budget* is decided without its length ([`Unseen`]): a turn continues while the
//!   rest of the budget covers L^k, and with M = 1 is one packet. In the paper, and in Linux, it continues while the
//!   rest covers the next packet ([`Seen`]), whose length must be known: the next flow's in the circle, which may be a
//!   class whose head is not settled yet. Either rule leaves less than L^k of a budget. The aggregate is charged for
//!   the bytes it sent, so it loses nothing, and Lemma 2 already allows for a budget that is not spent: the bounds are
//!   the same.
//! * *Work is reported to the algorithm late*: when it next needs V, before the sum of weights changes, and at the
//!   latest at the end of the budget. V is the same at each point where it is read.
//! * *The next aggregate is selected when a service ends*, and again for each aggregate that becomes backlogged before
//!   the next service begins.
//! * *Flows join and leave at any time.* A granted budget and the aggregate's weight remain until the aggregate's next
//!   place: both change together. A backlogged flow whose share changes moves to an aggregate of its new kind after its
//!   next packet. Until then it may have packets longer than L^k: it sends one when its turn comes, and bytes beyond
//!   the budget are charged to no entity.
//! * *Aggregates are filled one after the other*, those that lost flows first, and
//!   are not merged.
//! * Where M flows would weigh more than [`MAX_AGGREGATE_WEIGHT`] or send more than
//!   [`MAX_CHARGE`] less one packet, their aggregates take fewer.
//!
//! [`MAX_AGGREGATE_WEIGHT`]: crate::units::MAX_AGGREGATE_WEIGHT

mod invariants;
mod members;
mod next_packet;
mod service;

pub use next_packet::{NextPacket, Seen, Unseen};

use super::Standing;
use super::ring::{Linked, Ring};
use crate::scheduler::{
    Entities, EntityId, Holds, MaybeEntity, Removal, Scheduler, Share, Violation,
};
use crate::units::{Charge, MAX_CHARGE, MAX_LENGTH, Weight};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::marker::PhantomData;
use core::num::NonZeroU32;

/// The largest number of flows in an aggregate with automatic M: the paper finds most of the gain with it (Section
/// 8.1).
pub const AUTOMATIC_MEMBERS: NonZeroU32 = NonZeroU32::new(8).unwrap();

/// Returns the automatic M for a transmit queue of `transmit_queue` packets: min(8, 1 + packets) (Section 3.1), so that
/// the aggregates add no more delay than the queue does.
pub const fn automatic_members(transmit_queue: u32) -> NonZeroU32 {
    match NonZeroU32::new(transmit_queue.saturating_add(1)) {
        Some(members) if members.get() < AUTOMATIC_MEMBERS.get() => members,
        _ => AUTOMATIC_MEMBERS,
    }
}

/// Largest budget: the packet that ends it may be longer than L^k.
const MAX_BUDGET: u32 = MAX_CHARGE - MAX_LENGTH;

/// Subtracted from the deficit of a flow that will move, so that its turn ends at once and its deficit identifies it.
const MOVING: i32 = 1 << 28;

/// State of one flow.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlusEntity<H = Unseen> {
    /// Bytes it may still send in its present turn, or in its next one; less
    /// [`MOVING`] if it will move.
    deficit: i32,
    /// Next in the circle of its aggregate.
    next: MaybeEntity,
    aggregate: MaybeEntity,
    state: Standing,
    /// It will move to another aggregate.
    moving: bool,
    /// It is alone in its aggregate, and will not move: it needs no turns, though they would do no harm.
    alone: bool,
    /// The recorded part of its next packet.
    head: H,
}

const _: () = assert!(size_of::<PlusEntity>() <= 16);
const _: () = assert!(size_of::<PlusEntity<Seen>>() <= 24);

impl<H> Linked for PlusEntity<H> {
    #[inline]
    fn next(&mut self) -> &mut MaybeEntity {
        &mut self.next
    }
}

impl<H> PlusEntity<H> {
    /// It will move at the end of its turn.
    fn go(&mut self) {
        self.moving = true;
        self.alone = false;
        self.deficit -= MOVING;
    }

    /// It will not move.
    fn stay(&mut self) {
        if core::mem::take(&mut self.moving) {
            self.deficit += MOVING;
        }
    }
}

/// The common properties of the flows of a family: weight and longest packet.
type FamilyKey = (u32, u32);

fn family_key(share: Share) -> FamilyKey {
    (share.weight().get(), share.max_charge().get())
}

/// The flows of an aggregate that take turns, and the grant of its present place in the order: sixteen bytes, which are
/// moved at once when its service begins.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Service {
    /// The backlogged flows of the aggregate.
    circle: Ring,
    /// The rest of the budget of its place in the order, beyond one packet of L^k.
    slack: i32,
    /// L^k.
    quantum: Charge,
}

/// Flows served as one. While it is in service, its circle is in [`Plus`].
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Aggregate<S> {
    state: S,
    /// The service it is in. While it is served, the slack is the initial one.
    place: Service,
    /// The same of its next place.
    next_slack: i32,
    /// Budget of its next place, m^k L^k.
    next_budget: Charge,
    /// Flows in it, backlogged or not; 0 if there is no such aggregate.
    members: u32,
    /// Of each of its flows.
    weight: Weight,
    /// Neighbours among the aggregates of its kind that can take another flow.
    open_before: MaybeEntity,
    open_after: MaybeEntity,
}

const _: () = assert!(size_of::<Aggregate<[u64; 3]>>() == 64);

impl Service {
    /// The service of no aggregate.
    const NONE: Service = Service {
        circle: Ring {
            head: MaybeEntity::NONE,
            last: MaybeEntity::NONE,
        },
        slack: -1,
        quantum: Charge::LEAST,
    };

    #[inline]
    fn quantum(&self) -> i32 {
        self.quantum.get() as i32
    }
}

impl<S> Aggregate<S> {
    /// Without flows.
    fn vacant(share: Share) -> Self
    where
        S: Default,
    {
        Aggregate {
            state: S::default(),
            place: Service {
                circle: Ring::default(),
                slack: 0,
                quantum: share.max_charge(),
            },
            next_slack: 0,
            next_budget: share.max_charge(),
            members: 0,
            weight: share.weight(),
            open_before: MaybeEntity::NONE,
            open_after: MaybeEntity::NONE,
        }
    }

    /// Returns the share of each of its flows.
    fn share(&self) -> Share {
        Share::new(self.weight, self.place.quantum)
    }

    /// Returns the share that the algorithm schedules. It exists: no aggregate exceeds the largest possible share.
    fn total_share(&self) -> Share {
        let share = self.share();
        share.times(self.members).unwrap_or(share)
    }
}

impl<S> Holds<S> for Aggregate<S> {
    #[inline]
    fn state(&self) -> &S {
        &self.state
    }
    #[inline]
    fn state_mut(&mut self) -> &mut S {
        &mut self.state
    }
}

/// The aggregates of flows alike.
#[derive(Clone, Debug, Default)]
struct Family {
    aggregates: u32,
    /// The first that can take another flow.
    open: MaybeEntity,
}

/// SCHED+ over the algorithm `A`. `H` says when an aggregate's turn ends: [`Unseen`], as all named
/// algorithms have it, or [`Seen`].
#[derive(Clone, Debug)]
pub struct Plus<A: Scheduler, H: NextPacket = Unseen> {
    /// The circle in service, empty if no aggregate is active; and its slack, negative then.
    now: Service,
    /// The aggregate in service: the selected one as long as it has sent nothing.
    serving: MaybeEntity,
    /// Work of the service that was already reported to the algorithm.
    told: i32,
    algorithm: A,
    aggregates: Vec<Aggregate<A::Entity>>,
    free: Vec<EntityId>,
    families: BTreeMap<FamilyKey, Family>,
    /// Shares that active flows will have once they moved.
    moving: BTreeMap<EntityId, Share>,
    /// M.
    most_members: NonZeroU32,
    next_packet: PhantomData<H>,
}

impl<A: Scheduler + Default> Plus<A> {
    /// SCHED+ with at most `members` flows in an aggregate (M).
    pub fn new(members: NonZeroU32) -> Self {
        Self::over(A::default(), members)
    }
}

impl<A: Scheduler + Default> Default for Plus<A> {
    fn default() -> Self {
        Self::new(AUTOMATIC_MEMBERS)
    }
}

impl<A: Scheduler> Plus<A> {
    /// SCHED+ over an algorithm without entities, with at most `members` flows in an
    /// aggregate (M).
    pub fn over(algorithm: A, members: NonZeroU32) -> Self {
        Self::without_flows(algorithm, members)
    }
}

impl<A: Scheduler> Plus<A, Seen> {
    /// The same with the paper's end of a turn.
    pub fn seeing(algorithm: A, members: NonZeroU32) -> Self {
        Self::without_flows(algorithm, members)
    }
}

impl<A: Scheduler, H: NextPacket> Plus<A, H> {
    /// The algorithm's name with a plus behind it, and its length.
    const LETTERS: ([u8; 16], usize) = {
        let name = A::NAME.as_bytes();
        let mut letters = [b'+'; 16];
        let mut at = 0;
        while at < name.len() {
            letters[at] = name[at];
            at += 1;
        }
        (letters, at + 1)
    };

    const NAME_AND_PLUS: &'static str = {
        let letters: &'static [u8; 16] = &Self::LETTERS.0;
        match core::str::from_utf8(letters.split_at(Self::LETTERS.1).0) {
            Ok(name) => name,
            Err(_) => panic!("a name with a plus behind it is a text"),
        }
    };

    fn without_flows(mut algorithm: A, members: NonZeroU32) -> Self {
        if members.get() > 1 || H::SEEN {
            algorithm.expect_holds();
        }
        Plus {
            now: Service::NONE,
            serving: MaybeEntity::NONE,
            told: 0,
            algorithm,
            aggregates: Vec::new(),
            free: Vec::new(),
            families: BTreeMap::new(),
            moving: BTreeMap::new(),
            most_members: members,
            next_packet: PhantomData,
        }
    }

    /// Returns the algorithm that orders the aggregates, for inspection.
    pub fn algorithm(&self) -> &A {
        &self.algorithm
    }

    /// M: most flows in an aggregate.
    pub fn members(&self) -> NonZeroU32 {
        self.most_members
    }

    /// Aggregates that there are.
    pub fn aggregates(&self) -> usize {
        let families = self.families.values();
        families.map(|family| family.aggregates as usize).sum()
    }
}

impl<A: Scheduler, H: NextPacket> Scheduler for Plus<A, H> {
    type Entity = PlusEntity<H>;
    const NAME: &'static str = Self::NAME_AND_PLUS;

    /// O(log k) in the number of kinds of flows.
    fn add(&mut self, entities: &mut [impl Holds<PlusEntity<H>>], id: EntityId, share: Share) {
        *entities.entity_mut(id) = PlusEntity {
            aggregate: MaybeEntity::of(self.join(entities, share)),
            ..PlusEntity::default()
        };
    }

    fn remove(&mut self, entities: &mut [impl Holds<PlusEntity<H>>], id: EntityId) -> Removal {
        let entity = entities.entity_mut(id);
        if entity.state != Standing::Inactive {
            entity.state = Standing::Leaving;
            entity.stay();
            self.moving.remove(&id);
            return Removal::WhenSelected;
        }
        let home = core::mem::take(entity).aggregate;
        if let Some(home) = home.get() {
            self.quit(home);
        }
        Removal::Done
    }

    fn change(&mut self, entities: &mut [impl Holds<PlusEntity<H>>], id: EntityId, share: Share) {
        let entity = entities.entity_mut(id);
        let Some(home) = entity.aggregate.get() else {
            return;
        };
        let same = self.aggregates[home.index()].share() == share;
        if entity.state != Standing::Inactive {
            entity.stay();
            self.moving.remove(&id);
            if !same {
                entity.go();
                self.moving.insert(id, share);
            }
        } else if !same {
            self.quit(home);
            entities.entity_mut(id).aggregate = MaybeEntity::of(self.join(entities, share));
        }
    }

    fn weight(&self, entities: &[impl Holds<PlusEntity<H>>], id: EntityId) -> Weight {
        let entity = entities.entity(id);
        let moving = self.moving.get(&id).filter(|_| entity.moving);
        let present = || Some(self.aggregates[entity.aggregate.get()?.index()].share());
        let share = moving.copied().or_else(present);
        share.map_or(Weight::ONE, Share::weight)
    }

    fn is_active(&self, entities: &[impl Holds<PlusEntity<H>>], id: EntityId) -> bool {
        entities.entity(id).state != Standing::Inactive
    }

    #[inline]
    fn backlogged(
        &mut self,
        entities: &mut [impl Holds<PlusEntity<H>>],
        id: EntityId,
        head: Charge,
    ) {
        let entity = entities.entity_mut(id);
        if entity.state == Standing::Inactive {
            entity.state = Standing::Active;
            self.insert(entities, id, head);
        } else {
            // As in DRR, a head that grew while its flow waited is let through once.
            let least = head.get() as i32 - i32::from(entity.moving) * MOVING;
            entity.deficit = entity.deficit.max(least);
            entity.head = H::of(head);
            if H::SEEN && self.now.circle.head == MaybeEntity::of(id) && self.is_over(entities) {
                self.end_service();
            }
        }
    }

    #[inline]
    fn select(&self, _: &[impl Holds<PlusEntity<H>>]) -> MaybeEntity {
        self.now.circle.head
    }

    /// Nothing to do: it is served until its turn ends in any case.
    #[inline]
    fn hold(&mut self, _: &mut [impl Holds<PlusEntity<H>>], _: EntityId) {}

    /// Does nothing: the algorithm is given the charge of the aggregate.
    #[inline]
    fn served(&mut self, _: Charge) {}

    fn reschedule(
        &mut self,
        entities: &mut [impl Holds<PlusEntity<H>>],
        id: EntityId,
        charged: Charge,
        next: Option<Charge>,
    ) {
        if !self.step(entities, id, charged, next) {
            self.leave(entities, id, charged.get() as i32, next);
        }
    }

    /// Moves all flows except the one that leaves the circle.
    #[inline(always)]
    fn step(
        &mut self,
        entities: &mut [impl Holds<PlusEntity<H>>],
        id: EntityId,
        charged: Charge,
        next: Option<Charge>,
    ) -> bool {
        let Some(next) = next else {
            return false;
        };
        let entity = entities.entity_mut(id);
        if entity.alone {
            let home = EntityId::in_use(entity.aggregate.index() as u32);
            let selected = self.reschedule_alone(home, charged);
            if selected != self.serving {
                self.serve(selected);
            }
            return true;
        }
        let bytes = charged.get() as i32;
        let mut deficit = entity.deficit - bytes;
        entity.head = H::of(next);
        if deficit < next.get() as i32 {
            deficit += self.now.quantum();
            if deficit < 0 {
                return false;
            }
            self.now.circle.turn(id, entity.next);
        }
        entity.deficit = deficit;
        // Last, so that the subtraction itself sets the flags; and its result is not stored for callers that seldom
        // read it.
        self.now.slack -= bytes;
        if self.now.slack + self.shorter(entities) < 0 {
            self.end_service();
        }
        true
    }

    #[inline(always)]
    fn advance(
        &mut self,
        entities: &mut [impl Holds<PlusEntity<H>>],
        id: EntityId,
        charged: Charge,
        next: Option<Charge>,
    ) -> bool {
        let Some(next) = next.filter(|_| !H::SEEN) else {
            return false;
        };
        let entity = entities.entity_mut(id);
        if entity.alone {
            let home = EntityId::in_use(entity.aggregate.index() as u32);
            let Some(selected) = self.advance_alone(home, charged) else {
                return false;
            };
            if selected != self.serving {
                self.serve(selected);
            }
            return true;
        }
        let bytes = charged.get() as i32;
        let mut deficit = entity.deficit - bytes;
        let ends = deficit < next.get() as i32;
        if ends {
            deficit += self.now.quantum();
        }
        let slack = self.now.slack - bytes;
        // Whether it moves, or the budget is spent.
        if (deficit | slack) < 0 {
            return false;
        }
        if ends {
            self.now.circle.turn(id, entity.next);
        }
        entity.deficit = deficit;
        self.now.slack = slack;
        true
    }

    /// Lasts while the budget and the deficit do; for a flow alone in its aggregate, the rest of its service.
    #[inline]
    fn allowance(&self, entities: &[impl Holds<PlusEntity<H>>], id: EntityId, next: Charge) -> u32 {
        let entity = entities.entity(id);
        if H::SEEN {
            return 0;
        }
        if !entity.alone {
            let beyond = entity.deficit - next.get() as i32;
            return beyond.min(self.now.slack).max(0) as u32;
        }
        let home = entity.aggregate;
        match self.aggregates.get(home.index()) {
            Some(aggregate) => {
                let home = EntityId::in_use(home.index() as u32);
                let budget = aggregate.next_budget;
                (self.algorithm).allowance(self.aggregates.as_slice(), home, budget)
            }
            None => 0,
        }
    }

    #[inline]
    fn used(&mut self, entities: &mut [impl Holds<PlusEntity<H>>], id: EntityId, work: Charge) {
        let entity = entities.entity_mut(id);
        if entity.alone {
            let home = EntityId::in_use(entity.aggregate.index() as u32);
            return (self.algorithm).used(self.aggregates.as_mut_slice(), home, work);
        }
        entity.deficit -= work.get() as i32;
        self.now.slack -= work.get() as i32;
    }

    fn idle(&mut self, entities: &mut [impl Holds<PlusEntity<H>>], id: EntityId) {
        if entities.entity(id).state != Standing::Inactive {
            self.leave(entities, id, 0, None);
        }
    }

    fn invariants(&self, entities: &[impl Holds<PlusEntity<H>>]) -> Result<(), Violation> {
        self.check_circles(entities)?;
        self.check_families()?;
        self.algorithm.invariants(self.aggregates.as_slice())
    }
}
