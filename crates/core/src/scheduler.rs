//! The contract of a scheduling algorithm, which selects the next entity.
//!
//! An algorithm orders *entities*: flows, classes or aggregates alike. Its owner (for flows,
//! [`PacketScheduler`](crate::PacketScheduler)) holds the packets and makes statements about entities; the algorithm
//! answers one question, [`select`](Scheduler::select). The algorithm never sees a packet, never asks a child for its
//! backlog and makes no calls back, so it cannot be re-entered.
//!
//! # The life of an entity
//!
//! ```text
//!             add                    backlogged                selected
//!  (free) ----------->  inactive  ------------------>  active <---------+
//!     ^                    |  ^                           |             |
//!     +--------------------+  +---------------------------+-------------+
//!        remove, or idle         reschedule(.., None)       reschedule(.., Some)
//!        once removed            idle
//! ```
//!
//! Whether an entity is active is the algorithm's own record, kept in its
//! [`Entity`](Scheduler::Entity), and only three statements change it. Two rules
//! keep every structure simple enough to be right:
//!
//! 1. **Only the selected entity leaves the order.** `reschedule` and `idle` refer to the entity that `select` just
//!    returned. An entity that loses its packets while it is queued (a flush, a removal, a drop by queue management)
//!    stays in place; when its turn comes its owner finds it empty, calls `idle`, and selects again. Each such step
//!    pays for one earlier loss, so it is O(1) amortised, and no algorithm needs to remove an entity from the middle of
//!    a structure.
//! 2. **A change of share takes effect at the entity's next place.** Its present place remains, and so does the charge
//!    for its service there.
//!
//! Work and rescheduling are two statements. [`served`](Scheduler::served) reports work of the link, which moves
//! virtual time; `reschedule` charges one entity and gives it its next place. A flat scheduler makes both for each
//! packet. An aggregate that serves its members by itself is put on [`hold`](Scheduler::hold) while it does, and makes
//! the second once for all packets of its members.
//!
//! # An algorithm of one's own
//!
//! Turns in a circle, whatever the weights. The crate `fairlane-testkit` checks whether such an algorithm keeps this
//! contract.
//!
//! ```
//! use std::collections::VecDeque;
//!
//! use fairlane_core::sched::{Algorithm, CustomAlgorithm};
//! use fairlane_core::scheduler::{
//!     Entities, EntityId, Holds, MaybeEntity, Removal, Scheduler, Share, Violation,
//! };
//! use fairlane_core::{AnyScheduler, Charge, FlowConfig, Length, PacketScheduler, Weight};
//!
//! #[derive(Clone, Debug, Default)]
//! struct Turns(VecDeque<EntityId>);
//!
//! #[derive(Clone, Copy, Debug, Default)]
//! struct Entity {
//!     share: Option<Share>,
//!     active: bool,
//! }
//!
//! impl Scheduler for Turns {
//!     type Entity = Entity;
//!     const NAME: &'static str = "turns";
//!
//!     fn add(&mut self, entities: &mut [impl Holds<Entity>], id: EntityId, share: Share) {
//!         *entities.entity_mut(id) = Entity { share: Some(share), active: false };
//!     }
//!
//!     fn remove(&mut self, entities: &mut [impl Holds<Entity>], id: EntityId) -> Removal {
//!         match self.is_active(entities, id) {
//!             true => Removal::WhenSelected,
//!             false => Removal::Done,
//!         }
//!     }
//!
//!     fn change(&mut self, entities: &mut [impl Holds<Entity>], id: EntityId, share: Share) {
//!         entities.entity_mut(id).share = Some(share);
//!     }
//!
//!     fn weight(&self, entities: &[impl Holds<Entity>], id: EntityId) -> Weight {
//!         entities.entity(id).share.map_or(Weight::ONE, Share::weight)
//!     }
//!
//!     fn is_active(&self, entities: &[impl Holds<Entity>], id: EntityId) -> bool {
//!         entities.entity(id).active
//!     }
//!
//!     fn backlogged(&mut self, entities: &mut [impl Holds<Entity>], id: EntityId, _: Charge) {
//!         if !std::mem::replace(&mut entities.entity_mut(id).active, true) {
//!             self.0.push_back(id);
//!         }
//!     }
//!
//!     fn select(&self, _: &[impl Holds<Entity>]) -> MaybeEntity {
//!         self.0.front().map_or(MaybeEntity::NONE, |&id| MaybeEntity::of(id))
//!     }
//!
//!     // The first entity stays first, whatever entities arrive.
//!     fn hold(&mut self, _: &mut [impl Holds<Entity>], _: EntityId) {}
//!
//!     fn served(&mut self, _: Charge) {}
//!
//!     fn reschedule(
//!         &mut self,
//!         entities: &mut [impl Holds<Entity>],
//!         id: EntityId,
//!         _: Charge,
//!         next: Option<Charge>,
//!     ) {
//!         self.idle(entities, id);
//!         if let Some(next) = next {
//!             self.backlogged(entities, id, next);
//!         }
//!     }
//!
//!     fn idle(&mut self, entities: &mut [impl Holds<Entity>], id: EntityId) {
//!         if std::mem::take(&mut entities.entity_mut(id).active) {
//!             self.0.pop_front();
//!         }
//!     }
//!
//!     fn invariants(&self, entities: &[impl Holds<Entity>]) -> Result<(), Violation> {
//!         match self.0.iter().all(|&id| self.is_active(entities, id)) {
//!             true => Ok(()),
//!             false => Err(Violation("who has a place is not active".to_owned())),
//!         }
//!     }
//! }
//!
//! let mut link = PacketScheduler::new(Turns::default(), Default::default());
//! let len = Length::try_from(1000u32)?;
//! for name in ["a", "b"] {
//!     let flow = link.add_flow(FlowConfig::new(Weight::ONE, len))?;
//!     link.enqueue(flow, len, name)?;
//!     link.enqueue(flow, len, name)?;
//! }
//! link.invariants()?;
//! let sent = std::iter::from_fn(|| link.dequeue()).map(|packet| packet.payload);
//! assert!(sent.eq(["a", "b", "a", "b"]));
//!
//! // By a name, wherever an algorithm is chosen at run time.
//! impl CustomAlgorithm for Turns {
//!     const ABOUT: &'static str = "Turns in a circle";
//! }
//! let algorithm = Algorithm::custom::<Turns>("turns");
//! let link = AnyScheduler::<u32>::new(algorithm, Default::default());
//! assert!(link.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::units::{Charge, MAX_CHARGE, MAX_LENGTH, Weight};
use core::fmt;

/// Largest [`allowance`](Scheduler::allowance): one packet more is still a [`Charge`].
pub const MAX_ALLOWANCE: u32 = MAX_CHARGE - MAX_LENGTH;

/// Most entities an algorithm can order at a time.
pub const MAX_ENTITIES: usize = 1 << 24;

/// Index of an entity: 0 to [`MAX_ENTITIES`] - 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityId(u32);

impl EntityId {
    /// Returns the entity at `index`, or `None` from [`MAX_ENTITIES`] on. No valid index equals [`MaybeEntity::NONE`]'s
    /// value.
    #[inline]
    pub const fn new(index: usize) -> Option<EntityId> {
        if index < MAX_ENTITIES {
            Some(EntityId(index as u32))
        } else {
            None
        }
    }

    /// Returns the entity at an index that its owner knows to be in use.
    #[inline]
    pub(crate) const fn in_use(index: u32) -> EntityId {
        EntityId(index)
    }

    /// Returns the index.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// An entity or none, in the four bytes of an index.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MaybeEntity(u32);

impl MaybeEntity {
    /// No entity: the first index that cannot be one.
    pub const NONE: MaybeEntity = MaybeEntity(MAX_ENTITIES as u32);

    /// Returns the entity `id`.
    #[inline]
    pub const fn of(id: EntityId) -> MaybeEntity {
        MaybeEntity(id.0)
    }

    /// Returns the index of the entity; [`MAX_ENTITIES`] for none.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the entity, if there is one.
    #[inline]
    pub const fn get(self) -> Option<EntityId> {
        if self.0 == Self::NONE.0 {
            None
        } else {
            Some(EntityId(self.0))
        }
    }
}

impl Default for MaybeEntity {
    #[inline]
    fn default() -> Self {
        Self::NONE
    }
}

impl fmt::Debug for MaybeEntity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// A record that holds an algorithm's state of one entity.
///
/// The owner stores it, next to its other fields of the entity, so that one cache line can serve both. A state alone is
/// such a record.
pub trait Holds<S> {
    /// Returns the state.
    fn state(&self) -> &S;
    /// The state, to change.
    fn state_mut(&mut self) -> &mut S;
}

impl<S> Holds<S> for S {
    #[inline]
    fn state(&self) -> &S {
        self
    }
    #[inline]
    fn state_mut(&mut self) -> &mut S {
        self
    }
}

/// The states of entities in a table of records: any index that the owner has added is valid.
pub trait Entities<S> {
    /// Returns the state of `id`.
    fn entity(&self, id: EntityId) -> &S;
    /// The state of `id`, to change.
    fn entity_mut(&mut self, id: EntityId) -> &mut S;
}

impl<S, R: Holds<S>> Entities<S> for [R] {
    #[inline]
    fn entity(&self, id: EntityId) -> &S {
        self[id.index()].state()
    }
    #[inline]
    fn entity_mut(&mut self, id: EntityId) -> &mut S {
        self[id.index()].state_mut()
    }
}

/// The weight and the longest packet of an entity.
///
/// Of a flow, or of several equal flows together: its largest charge never exceeds the algorithm's
/// [`LARGEST`](Scheduler::LARGEST) times its weight, which bounds the span of virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    weight: Weight,
    max_charge: Charge,
}

impl Share {
    /// Returns the share of a flow of `weight` with packets or requests up to `max_length` (L^k).
    pub fn new(weight: Weight, max_length: impl Into<Charge>) -> Share {
        Share {
            weight,
            max_charge: max_length.into(),
        }
    }

    /// Returns the share of `flows` such flows together, or `None` where their weights or their packets add up to more
    /// than an entity can have.
    pub fn times(self, flows: u32) -> Option<Share> {
        Some(Share {
            weight: self.weight.times(flows)?,
            max_charge: Charge::new(self.max_charge.get().checked_mul(flows)?)?,
        })
    }

    /// Returns its weight (phi).
    pub const fn weight(self) -> Weight {
        self.weight
    }

    /// Returns the most it is ever charged for at once: the longest packet of a flow (L^k).
    pub const fn max_charge(self) -> Charge {
        self.max_charge
    }
}

/// Whether a removed entity's index may be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Removal {
    /// Now.
    Done,
    /// Once the entity was selected for the last time and its owner said `idle`.
    WhenSelected,
}

/// A violated invariant, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub alloc::string::String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for Violation {}

/// Returns a [`Violation`] from the surrounding function unless the condition holds.
#[macro_export]
#[doc(hidden)]
macro_rules! ensure_invariant {
    ($holds:expr, $($what:tt)+) => {
        if !$holds {
            return Err($crate::scheduler::Violation(alloc::format!($($what)+)));
        }
    };
}

/// A scheduling algorithm. See the [module](self) for the order of statements.
///
/// Statements about an entity that was not added are the owner's error: they may
/// panic or be served wrongly, but never break memory or another entity's record.
///
/// The costs named below are those that an algorithm should keep to; one that cannot documents its own.
pub trait Scheduler {
    /// State of one entity, stored by the owner; at most 24 bytes for flat
    /// algorithms, so that a flow's queue and its state share a cache line.
    type Entity: Copy + Default + fmt::Debug + Send;

    /// The name in command lines, files and tables.
    const NAME: &'static str;

    /// The largest charge of one flow that its numbers have room for: the longest packet, or the
    /// largest cost for those that say so.
    const LARGEST: u32 = MAX_LENGTH;

    /// Whether it is notified of every packet ([`arrived`](Self::arrived)) to order by; otherwise it only uses heads.
    const FOLLOWS_PACKETS: bool = false;

    /// For an algorithm that is notified of every packet, whether it accepts [`dropped_first`](Self::dropped_first):
    /// otherwise it orders no queue that drops packets as they leave.
    const MAY_LOSE_FIRST: bool = true;

    /// Whether it uses the progress of the link ([`unsent`](Self::unsent)).
    const FOLLOWS_LINK: bool = false;

    /// Adds `id` with a share, inactive. O(1).
    fn add(&mut self, entities: &mut [impl Holds<Self::Entity>], id: EntityId, share: Share);

    /// Removes `id`, active or not. An active entity keeps its place, and its weight counts, until it is selected and
    /// made [`idle`](Self::idle). O(1).
    fn remove(&mut self, entities: &mut [impl Holds<Self::Entity>], id: EntityId) -> Removal;

    /// Gives `id` another share, active or not (rule 2 above). O(1), or O(log n) in
    /// the number of active entities whose change is pending.
    fn change(&mut self, entities: &mut [impl Holds<Self::Entity>], id: EntityId, share: Share);

    /// Returns the weight that `id` was last given. As [`change`](Self::change).
    fn weight(&self, entities: &[impl Holds<Self::Entity>], id: EntityId) -> Weight;

    /// Returns whether `id` has a place in the order. O(1).
    fn is_active(&self, entities: &[impl Holds<Self::Entity>], id: EntityId) -> bool;

    /// `id` has something to send, and will be charged for `head` first. Idempotent: an active
    /// entity keeps its place and learns its new head. O(1).
    fn backlogged(&mut self, entities: &mut [impl Holds<Self::Entity>], id: EntityId, head: Charge);

    /// Records that a packet arrived for `id`, to be charged for `length`; called for every packet, after `backlogged`
    /// where that applies. Only algorithms that order packets across entities by arrival, or model the service of all
    /// packets elsewhere, need it. O(1).
    #[inline]
    fn arrived(&mut self, entities: &mut [impl Holds<Self::Entity>], id: EntityId, length: Charge) {
        let _ = (entities, id, length);
    }

    /// The first `packets` packets of `id` were discarded unserved. The same
    /// algorithms need it, at O(packets queued in all).
    #[inline]
    fn discarded(&mut self, entities: &mut [impl Holds<Self::Entity>], id: EntityId, packets: u32) {
        let _ = (entities, id, packets);
    }

    /// Reports that the first packet of the selected entity `id`, which has others, was discarded unserved. The same
    /// algorithms need it, at no more than the cost of [`discarded`](Self::discarded).
    #[inline]
    fn dropped_first(&mut self, entities: &mut [impl Holds<Self::Entity>], id: EntityId) {
        self.discarded(entities, id, 1);
    }

    /// The link has yet to transmit `work` of the packets that it took, in 2^-64 bytes. Said before each
    /// arrival by an owner that knows, and then by [`settle`](Self::settle) before each question:
    /// for algorithms that follow a fluid server, to which the time of an arrival matters. Cost as
    /// [`served`](Self::served).
    #[inline(always)]
    fn unsent(&mut self, work: u128) {
        let _ = work;
    }

    /// The link takes the next packet: it has transmitted all that it took. Said before
    /// [`select`](Self::select) by an owner that says [`unsent`](Self::unsent), and by any that has DRR
    /// with quanta below the longest packets ([`DrrOfQuantum`](crate::sched::DrrOfQuantum)).
    #[inline(always)]
    fn settle(&mut self, entities: &mut [impl Holds<Self::Entity>]) {
        let _ = entities;
    }

    /// Returns the next entity to serve. Pure until the next statement. O(1).
    ///
    /// [`MaybeEntity::NONE`] if no entity is active; its index is beyond any owner's table, so that the table's own
    /// bounds check detects it.
    fn select(&self, entities: &[impl Holds<Self::Entity>]) -> MaybeEntity;

    /// The entities are aggregates, and will be on hold at times. Said before the first is
    /// added, by an owner that knows; for algorithms that order equals otherwise then.
    #[inline]
    fn expect_holds(&mut self) {}

    /// Announces that the selected entity `id` will be served several packets in one turn: it stays the selected one
    /// until it is rescheduled or idle, whatever entities become backlogged meanwhile, while virtual time advances.
    /// O(1).
    fn hold(&mut self, entities: &mut [impl Holds<Self::Entity>], id: EntityId);

    /// The link took `work`: virtual time moves (Eq. 3 of the QFQ report). O(1).
    fn served(&mut self, work: Charge);

    /// The selected entity `id` is charged for `charged` and has `next` to send,
    /// or nothing. O(1).
    fn reschedule(
        &mut self,
        entities: &mut [impl Holds<Self::Entity>],
        id: EntityId,
        charged: Charge,
        next: Option<Charge>,
    );

    /// Combines [`served`](Self::served) and [`reschedule`](Self::reschedule) in the path that sends a packet. Returns
    /// true if it did both; otherwise it did neither, and the caller must make both calls. So rarely needed code, and
    /// its own needs, can stand apart. O(1).
    #[inline(always)]
    fn step(
        &mut self,
        entities: &mut [impl Holds<Self::Entity>],
        id: EntityId,
        charged: Charge,
        next: Option<Charge>,
    ) -> bool {
        self.served(charged);
        self.reschedule(entities, id, charged, next);
        true
    }

    /// Does the same if both are short. Returns true if it did both; otherwise it did neither, and the caller must make
    /// both calls. For callers that choose the algorithm at run time: code without calls needs to save no registers.
    /// O(1).
    #[inline]
    fn advance(
        &mut self,
        entities: &mut [impl Holds<Self::Entity>],
        id: EntityId,
        charged: Charge,
        next: Option<Charge>,
    ) -> bool {
        let _ = (entities, id, charged, next);
        false
    }

    /// Returns the bytes that the selected entity `id` may send while it stays selected and nothing changes except the
    /// bytes sent. A caller within this allowance calls neither [`served`](Self::served) nor
    /// [`reschedule`](Self::reschedule) for each packet: the bytes sent are added to the next charge, or reported by
    /// [`used`](Self::used) before any other statement. Behind every packet there is one more, charged for `next` at
    /// most.
    ///
    /// At most [`MAX_ALLOWANCE`]; 0 if the algorithm must be notified of each packet. O(1).
    #[inline]
    fn allowance(&self, entities: &[impl Holds<Self::Entity>], id: EntityId, next: Charge) -> u32 {
        let _ = (entities, id, next);
        0
    }

    /// The selected entity `id` sent `work` within its [`allowance`](Self::allowance). O(1).
    #[inline]
    fn used(&mut self, entities: &mut [impl Holds<Self::Entity>], id: EntityId, work: Charge) {
        let _ = (entities, id, work);
    }

    /// The selected entity `id` turned out to have nothing: it becomes inactive,
    /// charged for nothing, and is free if it was removed. Idempotent. O(1).
    fn idle(&mut self, entities: &mut [impl Holds<Self::Entity>], id: EntityId);

    /// Checks the algorithm's invariants over all entities, for tests: at O(entities) it has no
    /// place on the packet path.
    fn invariants(&self, entities: &[impl Holds<Self::Entity>]) -> Result<(), Violation>;
}

const _: () = assert!(MAX_ENTITIES < u32::MAX as usize);
const _: () = assert!(MAX_LENGTH <= u16::MAX as u32);
