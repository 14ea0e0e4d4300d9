//! The unit in which a scheduler counts its packets or requests, and the ledger of its charges.

use core::fmt::{Debug, Display};

use crate::cost::{Cost, Unit};
use crate::packet_scheduler::{ChangeError, Limits};
use crate::units::{Charge, Length};

/// The unit of packets or requests: [`Length`] or [`Cost`].
///
/// ```
/// use fairlane_core::{Cost, Length, Size};
///
/// /// The larger, of packets or of requests.
/// fn larger<L: Size>(one: L, other: L) -> L {
///     one.max(other)
/// }
///
/// assert_eq!(larger(Length::new(60).unwrap(), Length::MAX), Length::MAX);
/// let (question, answer): (Cost, Cost) = (Cost::clamped(90), Cost::clamped(700));
/// assert_eq!(larger(question, answer).to_string(), answer.to_string());
/// ```
pub trait Size:
    Counted + Copy + Debug + Display + Ord + Into<Charge> + Send + Sync + 'static
{
}

impl Size for Length {}
impl<U: Unit> Size for Cost<U> {}

/// The part of a [`Size`] that a flow's record needs; for packets, no more than fits into a cache line.
pub trait Counted: Sized {
    /// The largest there is.
    const LARGEST: Self;

    /// The amount that a flow may still hold.
    type Room: Room;

    /// The ledger of a flow's charges for the sizes it sends.
    type Ledger: Ledger<Self>;

    /// In bytes or units.
    fn amount(self) -> u32;

    /// As much, if it is one.
    fn of_amount(amount: u32) -> Option<Self>;

    /// The text of the error for a size larger than declared, before and behind that maximum.
    const BEYOND: [&'static str; 2];

    /// Why no more than `max` can be declared while it is queued.
    fn queued_beyond(self, max: Self) -> ChangeError;
}

impl Counted for Length {
    const LARGEST: Length = Length::MAX;
    const BEYOND: [&'static str; 2] = ["the packet is longer than the", "that was declared"];
    type Room = i32;
    type Ledger = AsSent;

    #[inline(always)]
    fn amount(self) -> u32 {
        self.get()
    }

    #[inline]
    fn of_amount(amount: u32) -> Option<Length> {
        Length::new(amount)
    }

    fn queued_beyond(self, max: Length) -> ChangeError {
        ChangeError::LongerPacketQueued { queued: self, max }
    }
}

impl<U: Unit> Counted for Cost<U> {
    const LARGEST: Cost<U> = Cost::MAX;
    const BEYOND: [&'static str; 2] = ["the request costs more than the", "that were declared"];
    type Room = i64;
    type Ledger = Corrected;

    #[inline(always)]
    fn amount(self) -> u32 {
        self.get()
    }

    #[inline]
    fn of_amount(amount: u32) -> Option<Cost<U>> {
        Cost::new(amount)
    }

    fn queued_beyond(self, max: Cost<U>) -> ChangeError {
        ChangeError::CostlierRequestQueued {
            queued: self.get(),
            max: max.get(),
            unit: U::NAME,
        }
    }
}

/// Bytes or units that a flow may hold in addition; negative where it holds more than it may.
pub trait Room: Copy + Debug + Into<i64> + Send + Sync + 'static {
    /// Returns the room that the limits give to an empty flow.
    fn of(limits: Limits) -> Self;

    /// Takes this amount, and returns whether there was enough: otherwise the caller must give it back.
    fn take(&mut self, amount: u32) -> bool;

    /// Gives this amount back.
    fn give(&mut self, amount: u32);

    /// The limits are others now, both known to be in range.
    fn relimit(&mut self, old: Limits, new: Limits);
}

impl Room for i32 {
    fn of(limits: Limits) -> i32 {
        limits.bytes as i32
    }

    #[inline(always)]
    fn take(&mut self, amount: u32) -> bool {
        let room = *self;
        *self = room.wrapping_sub(amount as i32);
        room >= amount as i32
    }

    #[inline(always)]
    fn give(&mut self, amount: u32) {
        *self = self.wrapping_add(amount as i32);
    }

    fn relimit(&mut self, old: Limits, new: Limits) {
        // A difference of numbers below 2^31, added to a number above -2^31.
        *self += new.bytes as i32 - old.bytes as i32;
    }
}

impl Room for i64 {
    fn of(limits: Limits) -> i64 {
        match limits.bytes {
            bytes if bytes < Limits::NONE.bytes => bytes.into(),
            _ => i64::MAX / 2,
        }
    }

    #[inline(always)]
    fn take(&mut self, amount: u32) -> bool {
        let room = *self;
        *self = room.wrapping_sub(amount.into());
        room >= amount.into()
    }

    #[inline(always)]
    fn give(&mut self, amount: u32) {
        *self = self.wrapping_add(amount.into());
    }

    fn relimit(&mut self, old: Limits, new: Limits) {
        *self += Self::of(new) - Self::of(old);
    }
}

/// The charge of a flow's first packet or request, at the time when it becomes the first.
pub trait Ledger<L>: Copy + Debug + Default + Send + Sync + 'static {
    /// Records that a request of this size became the first of its flow; returns the charge reported to the algorithm
    /// and charged at its service. `most` is the flow's largest.
    fn tell(&mut self, first: L, most: u32) -> Charge;

    /// Returns the charge that was reported for the first request.
    fn told(&self, first: L) -> Charge;

    /// The first one, of this size, will not be served.
    fn forget(&mut self, first: L);

    /// The flow is removed, or another takes its number.
    fn close(&mut self);
}

/// No correction: each packet is charged as sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct AsSent;

impl Ledger<Length> for AsSent {
    #[inline(always)]
    fn tell(&mut self, first: Length, _: u32) -> Charge {
        first.into()
    }

    #[inline(always)]
    fn told(&self, first: Length) -> Charge {
        first.into()
    }

    #[inline(always)]
    fn forget(&mut self, _: Length) {}

    #[inline(always)]
    fn close(&mut self) {}
}

/// The amount that a flow was charged too much or too little for requests whose cost is known by now.
///
/// With every estimate c, true cost a and charge t of the served requests, and e = a - c where a correction was made,
/// `sum of t + owed = sum of c + sum of e` at any time, so that in the end each flow is charged for its true cost:
/// nothing is forgotten except by [`close`](Ledger::close). That `owed` is bounded is shown at
/// [`bounds::corrected`](crate::bounds::corrected).
#[derive(Clone, Copy, Debug, Default)]
pub struct Corrected {
    /// Amount to add to the cost of future requests; negative, to subtract.
    pub(crate) owed: i64,
    /// The charge reported to the algorithm for the first request, while there is one.
    told: u32,
    /// The number of times that the flow's number was released.
    pub(crate) generation: u32,
}

impl<U: Unit> Ledger<Cost<U>> for Corrected {
    #[inline]
    fn tell(&mut self, first: Cost<U>, most: u32) -> Charge {
        let cost = i64::from(first.get());
        let most = i64::from(most.max(1));
        let told = cost.saturating_add(self.owed).clamp(1, most);
        self.owed = self.owed.saturating_add(cost - told);
        self.told = told as u32;
        Charge::from(Cost::<U>::clamped(told as u64))
    }

    #[inline]
    fn told(&self, _: Cost<U>) -> Charge {
        Charge::from(Cost::<U>::clamped(self.told.into()))
    }

    #[inline]
    fn forget(&mut self, first: Cost<U>) {
        let told = i64::from(self.told);
        self.owed = self.owed.saturating_add(told - i64::from(first.get()));
    }

    fn close(&mut self) {
        *self = Corrected {
            generation: self.generation.wrapping_add(1),
            ..Corrected::default()
        };
    }
}
