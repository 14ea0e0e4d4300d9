//! CBQ: class-based queueing as ALTQ has it.
//!
//! (K. Cho: A Framework for Alternate Queueing, USENIX 1998; S. Floyd, V. Jacobson:
//! Link-sharing and Resource Management Models for Packet Networks, IEEE/ACM Transactions on
//! Networking 3(4), 1995.)
//!
//! Classes form a tree with packets in its leaves. Each class has a rate; an estimator determines whether its recent
//! use was within it. Leaves within their rates send, the highest priority first and by weighted round robin within a
//! priority. A leaf beyond its rate sends if it may borrow from a class above that is within its own; else it is
//! suspended, for a time that is known when it is.
//!
//! ```
//! use fairlane_core::tree::cbq::{Bursts, Cbq, CbqClass, CbqError, PRIORITIES};
//! use fairlane_core::tree::{ClassId, LeafConfig};
//! use fairlane_core::{Dequeue, Length, Nanos, Rate};
//!
//! let len = Length::try_from(1000u32)?;
//! let (link, half): (Rate, Rate) = ("10mbit".parse()?, "5mbit".parse()?);
//! let mut queues = Cbq::new(link, Default::default());
//! // May go beyond its rate while the link has something left.
//! let bulk = CbqClass::new(half, len);
//! let bulk = queues.add_leaf(ClassId::ROOT, bulk, LeafConfig::default())?;
//! let voice = CbqClass {
//!     priority: PRIORITIES - 1,
//!     borrow: false,
//!     bursts: Bursts { max: 4, ..Bursts::default() },
//!     ..CbqClass::new("64kbit".parse()?, len)
//! };
//! let voice = queues.add_leaf(ClassId::ROOT, voice, LeafConfig::default())?;
//! let too_fast = queues.add_inner(ClassId::ROOT, CbqClass::new("1gbit".parse()?, len));
//! assert!(matches!(too_fast, Err(CbqError::RateAboveLink { .. })));
//!
//! queues.enqueue(bulk, len, "bulk", Nanos::ZERO)?;
//! queues.enqueue(voice, len, "voice", Nanos::ZERO)?;
//! match queues.dequeue(Nanos::ZERO, drop) {
//!     Dequeue::Packet(first) => assert_eq!(first.payload, "voice"),
//!     other => panic!("two packets wait: {other:?}"),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Limitations
//!
//! Priority and borrowing do not go together well: a class of high priority that is beyond its rate takes the unused
//! rate of the classes above it before a class of lower priority gets its guaranteed rate (Section 4.5 of Cho's paper,
//! Fig. 14). And since a class may send while it is within its own rate, whatever the use of those above, the classes
//! of one parent may together exceed its rate. A [`Tree`](super::Tree) has neither flaw: there, priority and weights
//! decide within the parent's guarantee. CBQ is here for existing configurations, and for comparison.
//!
//! # Where it differs from ALTQ
//!
//! * Suspended classes resume at the very time, not at a timer's next tick, and also when one from which they may
//!   borrow is within its rate again: they stand in a heap by that time, which [`dequeue`](Cbq::dequeue) returns if no
//!   class may send. [`Cbq::with_timer`] has ALTQ's timer for comparison: with ticks of 10 ms, a class sends no more
//!   than a burst every 20 ms while nothing else happens (Section 3.2).
//! * A class that may not borrow is held to its rate within a percent while it is backlogged, and within two percent
//!   for any arrivals. With ALTQ's estimator, which forgets, and its suspensions, which are meant for a coarse timer, it
//!   is a few percent off; `estimator.rs` explains it.
//! * Times have no least unit that matters.
//! * The root is never beyond its rate: it is the link, whose owner dequeues a packet only when it is free.
//! * A class that owes bytes to the round robin pays them off, and suspended and empty
//!   classes take no part in it.

mod change;
mod check;
mod config;
mod displace;
mod estimator;
mod share;
mod sleep;
mod view;

pub use config::{CbqClass, CbqError, PRIORITIES};
pub use estimator::Bursts;

use super::{ClassId, ClassQueue, ClassStats, Discarded, LeafConfig, Payload, Reason};
use crate::aqm::{Aqm, Backlog, Verdict};
use crate::grow::Slab;
use crate::packet::Count;
use crate::packet::{Dequeue, Packet, Rejected, Rejection, Stamped, Waited};
use crate::packet_scheduler::SchedulerLimits;
use crate::queue::{PacketList, PacketSlab};
use crate::room::{Beyond, Measure, Room};
use crate::scheduler::{MAX_ENTITIES, Violation};
use crate::units::{Length, Nanos, Rate};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use estimator::{Estimator, Fine, Pace};
use sleep::Sleepers;

/// The root, which is the link.
const ROOT: u32 = 0;

/// Where a leaf stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Nowhere: it has no packets.
    Out,
    /// In the round robin of its priority.
    Ring,
    /// Suspended.
    Asleep,
}

/// The counters of a class itself.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    accepted: Count,
    sent: Count,
    dropped: Count,
    discarded: Count,
    marked: u64,
    /// Times it was suspended.
    overlimits: u64,
    /// Packets it sent on unused rate of a class above.
    borrowed: u64,
}

#[derive(Clone, Debug)]
struct Queue {
    config: LeafConfig,
    queue: PacketList,
    queued: Count,
    aqm: Aqm,
    /// The rest of its turn in bytes, and the bytes of a turn.
    allocation: i64,
    quantum: i64,
    place: Place,
}

impl Queue {
    fn new(config: LeafConfig, seed: u64) -> Queue {
        Queue {
            config,
            queue: PacketList::default(),
            queued: Count::default(),
            aqm: Aqm::new(&config.aqm, config.rate, seed),
            allocation: 0,
            quantum: 1,
            place: Place::Out,
        }
    }

    /// Ends its turn: the rest of it is lost, the debt is not.
    fn stand(&mut self, place: Place) {
        self.place = place;
        self.allocation = self.allocation.min(0);
    }

    fn backlog(&self) -> Backlog {
        Backlog {
            packets: u32::try_from(self.queued.packets).unwrap_or(u32::MAX),
            bytes: self.queued.bytes,
        }
    }
}

#[derive(Clone, Debug)]
struct Class {
    config: CbqClass,
    parent: u32,
    children: Vec<u32>,
    /// Levels below it: 0 for a leaf.
    depth: u32,
    /// Whether it is a leaf: has a queue, and no classes below it.
    is_leaf: bool,
    leaf: Queue,
    estimator: Estimator,
    counts: Counts,
    /// The number is free.
    removed: bool,
}

impl Class {
    /// Returns the class to borrow from first.
    fn lender(&self) -> Option<u32> {
        self.config.borrow.then_some(self.parent)
    }

    /// Returns the counters of its own packets, without those of the classes below it.
    fn own(&self) -> ClassStats {
        let counts = self.counts;
        ClassStats {
            accepted: counts.accepted,
            sent: counts.sent,
            queued: self.leaf.queued,
            dropped: counts.dropped,
            discarded: counts.discarded,
            marked: counts.marked,
            overlimits: counts.overlimits,
            ..ClassStats::default()
        }
    }
}

/// The packets of one link in the order of CBQ.
///
/// `P` is the caller's packet or handle; it is accessed only to mark it. One slab holds all packets. Accepting a packet
/// costs O(depth); dequeuing one the same plus O(log n) in the suspended classes, and a visit of each class that is
/// beyond its rate and needs a higher cutoff, or a lender that is within its rate again.
#[derive(Clone)]
pub struct Cbq<P> {
    link: Rate,
    link_pace: Pace,
    /// Estimated time at which the link finishes the packets it was given.
    link_free: Fine,
    limits: SchedulerLimits,
    /// The reservations of all leaves together.
    kept: Count,
    measure: Measure,
    /// Leaves by their excess over their own reservation.
    beyond: Beyond,
    queued_bytes: u64,
    slab: PacketSlab<(Nanos, P)>,
    classes: Slab<Class>,
    /// Leaves with packets that are not suspended, by priority; the first has the turn.
    rings: [VecDeque<u32>; PRIORITIES as usize],
    sleepers: Sleepers,
    /// No class borrows from a class with more levels below it.
    cutoff: u32,
    /// Rejected because there was no such class.
    strays: Count,
    /// Marks a packet, if it can be marked; whether it was.
    mark: fn(&mut P) -> bool,
}

impl<P> Cbq<P> {
    /// Creates a link of `rate` without classes. Of the `limits`, those per flow are not used: each leaf has its own.
    pub fn new(rate: Rate, limits: SchedulerLimits) -> Self {
        Self::with_timer(rate, limits, Nanos::ZERO)
    }

    /// Creates the same with a coarse timer: if no class may send, [`dequeue`](Self::dequeue) asks to be called again
    /// not at the time at which one may, but at the next multiple of `granularity`, two ticks away at least. For
    /// comparison with ALTQ; 0 is exact.
    pub fn with_timer(rate: Rate, limits: SchedulerLimits, granularity: Nanos) -> Self {
        let config = CbqClass {
            borrow: false,
            ..CbqClass::new(rate, Length::MAX)
        };
        let root = Class {
            config,
            parent: ROOT,
            children: Vec::new(),
            depth: 0,
            is_leaf: false,
            leaf: Queue::new(LeafConfig::default(), 0),
            estimator: Estimator::new(rate, rate, config.max_length, config.bursts),
            counts: Counts::default(),
            removed: false,
        };
        let mut classes = Slab::default();
        classes.insert(root);
        Cbq {
            link: rate,
            link_pace: Pace::new(rate),
            link_free: Fine::ZERO,
            limits,
            kept: Count::default(),
            measure: Measure::of(limits.packets, limits.bytes),
            beyond: Beyond::default(),
            queued_bytes: 0,
            slab: PacketSlab::new(limits.packets),
            classes,
            rings: Default::default(),
            sleepers: Sleepers::new(granularity),
            cutoff: 0,
            strays: Count::default(),
            mark: |_| false,
        }
    }

    /// Adds a class for others below it. O(classes * levels).
    pub fn add_inner(&mut self, parent: ClassId, config: CbqClass) -> Result<ClassId, CbqError> {
        self.add(parent, config, None)
    }

    /// Adds a class with a queue. O(classes * levels).
    pub fn add_leaf(
        &mut self,
        parent: ClassId,
        config: CbqClass,
        leaf: LeafConfig,
    ) -> Result<ClassId, CbqError> {
        self.add(parent, config, Some(leaf))
    }

    fn add(
        &mut self,
        parent: ClassId,
        config: CbqClass,
        leaf: Option<LeafConfig>,
    ) -> Result<ClassId, CbqError> {
        if self.class(parent)?.is_leaf {
            return Err(CbqError::NotInner(parent));
        }
        config.check(self.link)?;
        let leaf = leaf.map(within_limits);
        let number = self.classes.next_number();
        if number >= MAX_ENTITIES {
            return Err(CbqError::TooManyClasses);
        }
        self.keep_room(Room::NONE, leaf.map_or(Room::NONE, |leaf| leaf.room))?;
        let class = Class {
            config,
            parent: parent.number(),
            children: Vec::new(),
            depth: 0,
            is_leaf: leaf.is_some(),
            leaf: Queue::new(leaf.unwrap_or_default(), number as u64),
            estimator: Estimator::new(config.rate, self.link, config.max_length, config.bursts),
            counts: Counts::default(),
            removed: false,
        };
        let number = self.classes.insert(class);
        self.classes[parent.index()].children.push(number);
        self.set_depths();
        self.weigh(config.priority);
        Ok(ClassId::new(number))
    }

    /// Like [`offer`](Self::offer), except that evicted packets are counted and dropped.
    pub fn enqueue(
        &mut self,
        class: ClassId,
        len: Length,
        payload: P,
        now: Nanos,
    ) -> Result<(), Rejected<P>> {
        self.offer(class, len, payload, now, drop)
    }

    /// Accepts a packet into a leaf's queue, or returns it with the reason. The length is fixed here: nothing reads it
    /// from the payload later. When the link is full, packets of the leaf with the largest excess over its own
    /// [room](crate::room) are evicted and go to `discard`; if that is the packet's own, it is rejected.
    pub fn offer(
        &mut self,
        class: ClassId,
        len: Length,
        mut payload: P,
        now: Nanos,
        mut discard: impl FnMut(Discarded<P>),
    ) -> Result<(), Rejected<P>> {
        if let Err(reason) = self.admit(class, len, &mut payload, now, &mut discard) {
            match self.classes.get_mut(class.index()) {
                Some(here) if !here.removed => here.counts.dropped.add(len),
                _ => self.strays.add(len),
            }
            return Err(Rejected { payload, reason });
        }
        let number = class.number();
        let stored = match self.slab.insert(len, (now, payload)) {
            Ok(stored) => stored,
            Err((_, payload)) => {
                self.classes[class.index()].counts.dropped.add(len);
                let reason = Rejection::LinkFull;
                return Err(Rejected { payload, reason });
            }
        };
        self.lower_cutoff(number, now);
        self.queued_bytes += u64::from(len.get());
        let here = &mut self.classes[class.index()];
        here.counts.accepted.add(len);
        here.leaf.queue.append(&mut self.slab, stored);
        here.leaf.queued.add(len);
        if here.leaf.place == Place::Out {
            self.join(number);
        }
        self.note(number);
        Ok(())
    }

    /// Returns whether a packet may be accepted; queue management may have marked it.
    fn admit(
        &mut self,
        id: ClassId,
        len: Length,
        payload: &mut P,
        now: Nanos,
        discard: &mut dyn FnMut(Discarded<P>),
    ) -> Result<(), Rejection> {
        self.class(id).map_err(|_| Rejection::Unknown)?;
        let class = &mut self.classes[id.index()];
        let max = class.config.max_length;
        if !class.is_leaf {
            return Err(Rejection::NoQueue);
        }
        if len > max {
            return Err(Rejection::TooLong { max });
        }
        let bytes = u64::from(len.get());
        let leaf = &mut class.leaf;
        let limits = leaf.config.limits;
        if leaf.queued.packets >= u64::from(limits.packets)
            || leaf.queued.bytes + bytes > u64::from(limits.bytes)
        {
            return Err(Rejection::QueueFull);
        }
        let verdict = leaf.aqm.arriving(now, leaf.backlog(), len);
        if verdict == Verdict::Drop {
            return Err(Rejection::Congestion);
        }
        if !self.make_room(id, len, now, discard) {
            return Err(Rejection::LinkFull);
        }
        if verdict == Verdict::Mark {
            if !(self.mark)(payload) {
                return Err(Rejection::Congestion);
            }
            self.classes[id.index()].counts.marked += 1;
        }
        Ok(())
    }

    /// Removes and returns the next packet at time `now`; packets that queue management drops on the way go to
    /// `discard`, after all counts are complete.
    pub fn dequeue(
        &mut self,
        now: Nanos,
        discard: impl FnMut(Discarded<P>),
    ) -> Dequeue<P, ClassId> {
        self.next(now, discard, |(_, payload)| payload)
    }

    /// Like [`dequeue`](Self::dequeue), with the sojourn time of each packet: its arrival time is stored in any case.
    pub fn dequeue_with_sojourn(
        &mut self,
        now: Nanos,
        discard: impl FnMut(Discarded<P>),
    ) -> Dequeue<Waited<P>, ClassId> {
        self.next(now, discard, |(came, payload)| {
            Stamped { came, payload }.until(now)
        })
    }

    /// Returns the next packet, with the part of its arrival time and payload that `give` selects.
    fn next<T>(
        &mut self,
        now: Nanos,
        mut discard: impl FnMut(Discarded<P>),
        give: impl Fn((Nanos, P)) -> T,
    ) -> Dequeue<T, ClassId> {
        while let Some(turn) = self.next_turn(now) {
            let class = turn.class;
            let Some((came, len, mut payload)) = self.take(class) else {
                self.leave(class);
                continue;
            };
            let here = &mut self.classes[class as usize];
            let left = here.leaf.backlog();
            let is_empty = left.packets == 0;
            let mut held = here.leaf.queued;
            held.add(len);
            // No backlog within the reservation is too long.
            let left = match here.leaf.config.room.fits(held) {
                true => Backlog::default(),
                false => left,
            };
            let verdict = here.leaf.aqm.leaving(now, now - came, left);
            if is_empty {
                here.leaf.aqm.emptied(now);
            }
            let marked = verdict == Verdict::Mark && (self.mark)(&mut payload);
            if verdict != Verdict::Pass && !marked {
                here.counts.discarded.add(len);
                discard(Discarded {
                    class: ClassId::new(class),
                    len,
                    payload,
                    reason: Reason::Congestion,
                });
                continue;
            }
            here.counts.marked += u64::from(marked);
            here.counts.sent.add(len);
            self.charge(turn, len, now);
            let payload = give((came, payload));
            return Dequeue::Packet(Packet {
                owner: ClassId::new(class),
                len,
                payload,
            });
        }
        match self.sleepers.next_look(now) {
            // A suspended class may have been flushed.
            Some(time) if !self.is_empty() => Dequeue::NotBefore(time),
            _ => Dequeue::Empty,
        }
    }

    /// Removes the first packet of a leaf: returns its arrival time, its length and itself.
    fn take(&mut self, class: u32) -> Option<(Nanos, Length, P)> {
        let leaf = &mut self.classes[class as usize].leaf;
        let (len, (since, payload)) = leaf.queue.pop_front(&mut self.slab)?;
        let mut one = Count::default();
        one.add(len);
        leaf.queued = leaf.queued.minus(one);
        self.queued_bytes -= one.bytes;
        Some((since, len, payload))
    }

    /// Ends the turn of the leaf whose turn it is and that has no packets.
    fn leave(&mut self, class: u32) {
        let priority = self.classes[class as usize].config.priority as usize;
        self.classes[class as usize].leaf.stand(Place::Out);
        self.rings[priority].pop_front();
    }

    /// Recomputes the levels after a class was added or removed.
    fn set_depths(&mut self) {
        for class in self.classes.iter_mut() {
            class.depth = 0;
        }
        for number in 0..self.classes.len() {
            let (mut at, mut depth) = (number, 0);
            while at != ROOT as usize && !self.classes[at].removed {
                at = self.classes[at].parent as usize;
                depth += 1;
                let above = &mut self.classes[at];
                above.depth = above.depth.max(depth);
            }
        }
        self.cutoff = self.classes[ROOT as usize].depth;
    }

    fn class(&self, id: ClassId) -> Result<&Class, CbqError> {
        let class = self.classes.get(id.index());
        class
            .filter(|class| !class.removed)
            .ok_or(CbqError::UnknownClass(id))
    }

    /// Returns the counters of a class and of all below it, or `None` if there is no such class. The root also counts
    /// packets rejected because their class did not exist. O(classes below).
    pub fn stats(&self, id: ClassId) -> Option<ClassStats> {
        self.class(id).ok()?;
        let mut sum = ClassStats::default();
        let mut rest = alloc::vec![id.number()];
        while let Some(number) = rest.pop() {
            let class = &self.classes[number as usize];
            sum = sum.plus(&class.own());
            rest.extend(&class.children);
        }
        if id == ClassId::ROOT {
            sum.dropped = sum.dropped.plus(self.strays);
        }
        Some(sum)
    }

    /// The same without the classes below it that there are. O(1).
    pub fn own_stats(&self, id: ClassId) -> Option<ClassStats> {
        self.class(id).ok().map(Class::own)
    }

    /// Returns the packets that a class sent while it was beyond its rate, on unused rate of a class above; `None` if
    /// there is no such class.
    pub fn borrowed(&self, id: ClassId) -> Option<u64> {
        Some(self.class(id).ok()?.counts.borrowed)
    }

    /// Packets that wait in all classes. O(1).
    pub fn len(&self) -> u32 {
        self.slab.len()
    }

    /// Returns whether the backlog is empty. O(1).
    pub fn is_empty(&self) -> bool {
        self.slab.is_empty()
    }
}

impl<P: Payload> Cbq<P> {
    /// The same, with packets that queue management may mark: as [`Tree::marking`](super::Tree::marking).
    #[must_use]
    pub fn marking(mut self) -> Self {
        self.mark = P::mark;
        self
    }
}

/// Limits the leaf's room to its limits.
fn within_limits(leaf: LeafConfig) -> LeafConfig {
    LeafConfig {
        room: leaf.room.within(leaf.limits.clamped()),
        ..leaf
    }
}

impl Counts {
    fn plus(self, other: &Counts) -> Counts {
        Counts {
            accepted: self.accepted.plus(other.accepted),
            sent: self.sent.plus(other.sent),
            dropped: self.dropped.plus(other.dropped),
            discarded: self.discarded.plus(other.discarded),
            marked: self.marked + other.marked,
            overlimits: self.overlimits + other.overlimits,
            borrowed: self.borrowed + other.borrowed,
        }
    }
}

impl<P> ClassQueue<P> for Cbq<P> {
    fn enqueue(
        &mut self,
        class: ClassId,
        _flow: u64,
        len: Length,
        payload: P,
        now: Nanos,
        discard: impl FnMut(Discarded<P>),
    ) -> Result<(), Rejected<P>> {
        Cbq::offer(self, class, len, payload, now, discard)
    }

    fn dequeue(&mut self, now: Nanos, discard: impl FnMut(Discarded<P>)) -> Dequeue<P, ClassId> {
        Cbq::dequeue(self, now, discard)
    }

    fn dequeue_with_sojourn(
        &mut self,
        now: Nanos,
        discard: impl FnMut(Discarded<P>),
    ) -> Dequeue<Waited<P>, ClassId> {
        Cbq::dequeue_with_sojourn(self, now, discard)
    }

    fn free_held(&mut self, most: u32, now: Nanos) -> u32 {
        Cbq::free_held(self, most, now)
    }

    fn stats(&self, class: ClassId) -> Option<ClassStats> {
        Cbq::stats(self, class)
    }

    fn len(&self) -> u32 {
        Cbq::len(self)
    }

    /// CBQ has no dynamic flows.
    fn expire_idle(&mut self, _now: Nanos) {}

    fn invariants(&self) -> Result<(), Violation> {
        Cbq::invariants(self)
    }
}
