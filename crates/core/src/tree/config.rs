//! The configuration of a class: its number, its share, its ceiling, its queue.

use crate::aqm::AqmConfig;
use crate::packet::Count;
use crate::packet_scheduler::Limits;
use crate::room::Room;
use crate::sched::Algorithm;
use crate::scheduler::MAX_ENTITIES;
use crate::units::{Length, MAX_WEIGHT, Nanos, Rate, Weight};
use core::fmt;

/// A class of one tree.
///
/// Packets for the number of a removed class are rejected, until the number is assigned again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(u32);

impl ClassId {
    /// The root, which every tree has.
    pub const ROOT: ClassId = ClassId(0);

    /// Returns the identifier of the class with this number; each call that takes it reports whether such a class
    /// exists.
    #[inline]
    pub const fn new(number: u32) -> ClassId {
        ClassId(number)
    }

    /// Returns its number: classes of one tree are numbered from 0, the root.
    #[inline]
    pub const fn number(self) -> u32 {
        self.0
    }

    #[inline]
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for ClassId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The most that a class may send: a token bucket.
///
/// In any interval of length t, a class sends at most `burst` + `rate` t. It may send while its bucket holds its
/// longest packet; if the burst is shorter than that, it may send while the bucket is full, and the part of a packet
/// that exceeds the bucket is paid off later. To reach its rate, a class needs a burst of its longest packet plus the
/// tokens that arrive while it waits for its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ceiling {
    /// The long-term rate limit (`ceil`).
    pub rate: Rate,
    /// Bytes that it may send at once after it was silent.
    pub burst: u32,
}

/// The share of a class among its siblings, and its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassConfig {
    /// Weight among its siblings, where its parent's algorithm knows weights.
    pub weight: Weight,
    /// Level among its siblings, the higher the sooner, where its parent's algorithm is
    /// strict priority: 0 to [`ClassConfig::MAX_LEVEL`].
    pub level: u32,
    /// The most it may send.
    pub ceiling: Option<Ceiling>,
    /// Longest packet of the class and of all below it: longer ones are rejected at
    /// enqueue. A class below a shorter one has that one's.
    pub max_length: Length,
}

impl ClassConfig {
    /// The highest level.
    pub const MAX_LEVEL: u32 = MAX_WEIGHT - 1;

    /// Creates a class of `weight`, of level 0, without a ceiling, with packets up to `max_length`: the shorter, the
    /// finer the rounding of its parent's algorithm ([`FlowConfig::new`](crate::FlowConfig::new)).
    pub const fn new(weight: Weight, max_length: Length) -> Self {
        ClassConfig {
            weight,
            level: 0,
            ceiling: None,
            max_length,
        }
    }
}

/// The queue of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafConfig {
    /// The largest backlog; beyond it, packets are rejected (tail drop).
    pub limits: Limits,
    /// Buffer reservation: as long as the class holds no more, its packets are accepted and not evicted, however full
    /// the link is. At most `limits`.
    pub room: Room,
    /// Its queue management. CoDel drops nothing while no more than `room` is queued; RED does.
    pub aqm: AqmConfig,
    /// The drain rate of the queue while no other is backlogged: usually the link's rate. Only RED uses it, to compute
    /// how much could have been sent while the queue was empty.
    pub rate: Rate,
}

impl Default for LeafConfig {
    /// No limit but the tree's own, no room of its own, tail drop.
    fn default() -> Self {
        LeafConfig {
            limits: Limits::NONE,
            room: Room::NONE,
            aqm: AqmConfig::TailDrop,
            rate: Rate::MAX,
        }
    }
}

/// A class that makes a flow of each digest that its packets come with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowsConfig {
    /// The algorithm that orders the flows.
    pub algorithm: Algorithm,
    /// Most flows at a time: 1 to [`MAX_ENTITIES`] - 1. Beyond, a new one takes the place of
    /// the one that is idle for longest. Where none is, or not for as long as `keeps_place`, or
    /// that one owes its ceiling something, the packets of further flows share one more.
    pub most: u32,
    /// The time for which a flow without packets keeps its place against new ones. So a flow that is seldom silent for
    /// longer keeps it, and the reservation that goes with it, however many others arrive.
    pub keeps_place: Nanos,
    /// Idle timeout: a flow without packets for this time expires. Until then, a return gives no credit.
    pub forget_after: Nanos,
    /// Weight of each flow.
    pub weight: Weight,
    /// The most that each flow may send.
    pub ceiling: Option<Ceiling>,
    /// Buffer reservation for all flows together. As many of them as it has `leaf.room` for have that as their own,
    /// from their first packet until they expire; the flow that the rest share is one of them. Flows that arrive while
    /// all of it is assigned have none: within the class, their packets are evicted first.
    pub room: Room,
    /// A backlog of all flows together in which no packet is dropped as it leaves, whatever `leaf.aqm` says: as
    /// large as the guaranteed rate and burst of the class need.
    pub aqm_floor: Room,
    /// Queue of each flow.
    pub leaf: LeafConfig,
}

impl FlowsConfig {
    /// Creates up to 65,536 equal flows in the order of `algorithm`, each expiring after ten seconds without packets,
    /// and after one second for a new one.
    pub fn new(algorithm: Algorithm) -> Self {
        FlowsConfig {
            algorithm,
            most: 1 << 16,
            keeps_place: Nanos::from_millis(1_000),
            forget_after: Nanos::from_millis(10_000),
            weight: Weight::ONE,
            ceiling: None,
            room: Room::NONE,
            aqm_floor: Room::NONE,
            leaf: LeafConfig::default(),
        }
    }

    /// Returns how many flows have room of their own at a time.
    #[doc(hidden)]
    pub fn roomy(&self) -> u32 {
        let each = self.leaf.room.within(self.leaf.limits);
        self.room.divided_by(each).min(self.most.saturating_add(1))
    }
}

/// Why a class could not be added, changed or removed; nothing was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// No class has this number.
    #[error("there is no class {0}")]
    UnknownClass(ClassId),
    /// The parent named has packets of its own.
    #[error("class {0} has packets of its own, so it can have no classes below it")]
    NotInner(ClassId),
    /// The class is of another kind than the change.
    #[error("class {class} is not {wanted}")]
    OtherKind {
        /// The class.
        class: ClassId,
        /// The purpose of the change.
        wanted: &'static str,
    },
    /// All classes below go first.
    #[error("class {0} has classes below it, which must be removed first")]
    HasChildren(ClassId),
    /// The tree goes with its root.
    #[error("the root can neither be removed nor moved")]
    Root,
    /// A class would be below itself.
    #[error("class {class} cannot move below class {parent}, which is the same or below it")]
    Below {
        /// The class.
        class: ClassId,
        /// Where it was to be.
        parent: ClassId,
    },
    /// All numbers are in use.
    #[error("class {0} has {MAX_ENTITIES} classes below it already")]
    TooManyClasses(ClassId),
    /// The level is out of range.
    #[error("a level is at most {max}, not {0}", max = ClassConfig::MAX_LEVEL)]
    Level(u32),
    /// No flow, or too many.
    #[error("a class of flows has between 1 and {max} of them, not {0}", max = MAX_ENTITIES - 1)]
    Flows(u32),
    /// The algorithm cannot order such a class.
    #[error("{algorithm} follows every packet, so it cannot order {what}")]
    Unfit {
        /// Name of the algorithm.
        algorithm: &'static str,
        /// The children that it cannot order.
        what: &'static str,
    },
    /// The reservations of all classes would exceed the link's space.
    #[error(
        "room for {packets} packets and {bytes} bytes cannot be kept: the link holds {} packets \
         and {} bytes", of.packets, of.bytes
    )]
    Room {
        /// Packets that would be kept.
        packets: u64,
        /// Bytes that would be kept.
        bytes: u64,
        /// The space of the link.
        of: Count,
    },
    /// A packet longer than the new maximum is queued.
    #[error("a packet of {queued} is queued, more than the new maximum of {max}")]
    LongerPacketQueued {
        /// The longest packet queued.
        queued: Length,
        /// The maximum asked for.
        max: Length,
    },
}
