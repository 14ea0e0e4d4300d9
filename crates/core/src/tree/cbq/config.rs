//! The configuration of a CBQ class.

use super::estimator::Bursts;
use crate::scheduler::MAX_ENTITIES;
use crate::tree::ClassId;
use crate::units::{Length, Rate};

/// Priorities that there are.
pub const PRIORITIES: u32 = 8;

/// A class of CBQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CbqClass {
    /// The guaranteed rate, at most the link's; also determines the share of the turns among classes of its priority.
    pub rate: Rate,
    /// 0 to [`PRIORITIES`] - 1, the higher the sooner. Only leaves send, so only theirs
    /// counts.
    pub priority: u32,
    /// Whether it may go beyond its rate while the class above, or one that that one
    /// may borrow from in turn, is within its own.
    pub borrow: bool,
    /// The number of packets it may send back to back.
    pub bursts: Bursts,
    /// Longest packet of the class; longer ones are rejected at enqueue.
    pub max_length: Length,
}

impl CbqClass {
    /// Creates a class of `rate` and of the lowest priority that may borrow, with packets up to `max_length` and ALTQ's
    /// bursts.
    pub fn new(rate: Rate, max_length: Length) -> CbqClass {
        CbqClass {
            rate,
            priority: 0,
            borrow: true,
            bursts: Bursts::default(),
            max_length,
        }
    }

    pub(super) fn check(&self, link: Rate) -> Result<(), CbqError> {
        if self.rate > link {
            return Err(CbqError::RateAboveLink {
                rate: self.rate,
                link,
            });
        }
        if self.priority >= PRIORITIES {
            return Err(CbqError::Priority(self.priority));
        }
        let Bursts { max, min, .. } = self.bursts;
        if !(1..=Bursts::MOST).contains(&max) {
            return Err(CbqError::MaxBurst(max));
        }
        if min < 1 || min > max {
            return Err(CbqError::MinBurst { min, max });
        }
        Ok(())
    }
}

/// Why a class could not be added, changed or removed; nothing was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CbqError {
    /// No class has this number.
    #[error("there is no class {0}")]
    UnknownClass(ClassId),
    /// The parent named has packets of its own.
    #[error("class {0} has packets of its own, so it can have no classes below it")]
    NotInner(ClassId),
    /// A change of a queue where there is none.
    #[error("class {0} has classes below it and no queue of its own")]
    NotLeaf(ClassId),
    /// All classes below go first.
    #[error("class {0} has classes below it, which must be removed first")]
    HasChildren(ClassId),
    /// The root is the link.
    #[error("the root is the link, which can be neither changed nor removed")]
    Root,
    /// All numbers are in use.
    #[error("there are {max} classes already", max = MAX_ENTITIES)]
    TooManyClasses,
    /// The reservations of all classes would exceed the link's space.
    #[error("room for {packets} packets and {bytes} bytes cannot be kept: the link holds less")]
    Room {
        /// Packets that would be kept.
        packets: u64,
        /// Bytes that would be kept.
        bytes: u64,
    },
    /// A class is faster than the link.
    #[error("a class of {rate} is faster than its link of {link}")]
    RateAboveLink {
        /// The class's rate.
        rate: Rate,
        /// The link's.
        link: Rate,
    },
    /// The priority is out of range.
    #[error("a priority is between 0 and {max}, not {0}", max = PRIORITIES - 1)]
    Priority(u32),
    /// The largest burst is out of range.
    #[error(
        "a burst after a silence is between 1 and {most} packets, not {0}",
        most = Bursts::MOST
    )]
    MaxBurst(u32),
    /// The smallest burst is out of range.
    #[error(
        "a burst after a suspension is between 1 and {max} packets, the burst after a silence, not {min}"
    )]
    MinBurst {
        /// After a suspension.
        min: u32,
        /// After a silence.
        max: u32,
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
