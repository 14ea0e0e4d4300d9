//! A bridge: one thread between two devices, with an arbiter for each direction, or none. A direction may be [split
//! off](Bridge::split_off) for a thread of its own.
//!
//! ```text
//!            /-- receive --> make --> Arbiter --> transmit --\
//!  device 0 <                                                 > device 1
//!            \-- transmit <-- Arbiter <-- make <-- receive --/
//! ```
//!
//! A [`round`](Bridge::round) first receives arrivals from both devices, at most [`MOST_TAKEN_IN`] frames from each:
//! the classes decide which frames are queued and which are dropped, and an overflowing device does not know
//! classes. Then it releases in each direction as much as the link can carry by then. It reads no clock and never
//! waits, so that a test drives it on a clock of its own. Between two rounds, [`drive`](crate::drive) waits for
//! either device, or for the time when the next packet may leave.
//!
//! # Shaped or not
//!
//! Egress on a device may be left unshaped for a time ([`set_shaped`](Bridge::set_shaped)). The backlog then leaves
//! first, in the order of its queue and without pacing, and no frames are received for it meanwhile; afterwards
//! frames pass in order of arrival, and a full device delays its senders. So every flow keeps its order, at this
//! change and at the reverse one.
//!
//! # Clients
//!
//! Clients may push to either arbiter ([`Arbiter::registrar`]). They wake an arbiter that sleeps for them alone, and
//! this thread waits for devices instead. While there are clients, or registrars that may add some, it therefore
//! checks for pushes once in [`CLIENT_NAP`]: after a pause, a client's first packet may be delayed by that much. The
//! price is a thousand short wake-ups a second on an idle bridge; without clients there are ten.
//!
//! # Example
//!
//! ```
//! use fairlane_core::{FlowConfig, Length, Nanos, Weight, sched::Qfq};
//! use fairlane_io::{Backend, memory};
//! use fairlane_runtime::bridge::{Bridge, Came, Frames, Lane, LaneStats, Make, RoundStats, Side};
//! use fairlane_runtime::{Arbiter, ArbiterConfig, Link};
//!
//! /// Frames wait in the queue as they came.
//! fn as_it_came() -> impl Make<Vec<u8>, Vec<u8>> {
//!     |frame: Vec<u8>, _arrived_at: Side, _came: Came| frame
//! }
//!
//! // Egress on the right is paced, egress on the left is not.
//! let (left, mut hosts) = memory::pair::<Vec<u8>, Vec<u8>>(16);
//! let (right, mut uplink) = memory::pair::<Vec<u8>, Vec<u8>>(16);
//! let config = ArbiterConfig::new(Link::new("8mbit".parse()?));
//! let arbiter = Arbiter::new(Qfq::new(), config, right, Nanos::ZERO);
//! let frames = FlowConfig::new(Weight::ONE, Length::try_from(1_514u32)?);
//! let shaped = Lane::Shaped(Box::new(arbiter), frames);
//! let mut bridge = Bridge::new(Lane::Open(left), shaped, as_it_came())?;
//!
//! // Two frames of a millisecond each: the second waits for the first.
//! hosts.transmit(&mut [vec![1; 1_000], vec![2; 1_000]].into())?;
//! let mut arrived = Vec::new();
//! bridge.round(Nanos::ZERO)?;
//! assert_eq!(uplink.receive(&mut arrived, 16)?, 1);
//! bridge.round(Nanos::from_millis(1))?;
//! assert_eq!(uplink.receive(&mut arrived, 16)?, 1);
//!
//! let LaneStats { received, transmitted, .. } = bridge.stats(Side::Right);
//! assert_eq!((received, transmitted), (Frames { frames: 2, bytes: 2_000 }, 2));
//! let RoundStats { late, .. } = bridge.rounds();
//! println!("rounds began at most {:?} after something might leave", late.longest());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use std::{fmt, io};

use fairlane_core::{ChangeError, Count, FlowConfig, FlowId, Length, Nanos, Rejected, Rejection};
use fairlane_io::{Arrival, Backend, ByteLen, Waiter};

use crate::Woken;
use crate::arbiter::Arbiter;
use crate::delay::Spans;
use crate::driver::{Next, Step, Steps};
use crate::queue::Queue;
use crate::release::Straight;

/// Frames received at once.
pub const BATCH: usize = 64;

/// Below this number, frames that arrived together are queued one by one.
const TOGETHER: usize = 8;

/// Most frames received from one device in a round: nothing is sent meanwhile.
pub const MOST_TAKEN_IN: usize = 16 * BATCH;

/// A step in which nothing happened.
const NOTHING: Step = Step {
    drained: 0,
    released: 0,
    transmitted: 0,
    next: Next::WhenPushed,
};

/// How long clients may go unheard while the bridge waits for its devices.
pub const CLIENT_NAP: Nanos = Nanos::from_millis(1);

/// One of the two devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The first.
    Left,
    /// The second.
    Right,
}

impl Side {
    /// Both, in order.
    pub const BOTH: [Side; 2] = [Side::Left, Side::Right];

    /// Returns the other one.
    pub const fn other(self) -> Side {
        match self {
            Side::Left => Side::Right,
            Side::Right => Side::Left,
        }
    }

    const fn index(self) -> usize {
        self as usize
    }
}

/// A number of frames and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frames {
    /// Frames.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Frames {
    fn add(&mut self, bytes: usize) {
        self.frames += 1;
        self.bytes += bytes as u64;
    }

    fn plus(self, more: Frames) -> Frames {
        Frames {
            frames: self.frames + more.frames,
            bytes: self.bytes + more.bytes,
        }
    }
}

/// Metadata of a frame's arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Came {
    /// The arrival time, if its device reports how long it waited there; otherwise the time of reception.
    pub at: Nanos,
    /// The device was losing others for want of room.
    pub losing: bool,
}

impl Came {
    #[inline]
    fn of(arrival: Arrival, now: Nanos) -> Came {
        Came {
            at: now.since(arrival.waited.into()),
            losing: arrival.losing,
        }
    }
}

/// Counts of the frames of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneStats {
    /// Taken in from the device on the other side.
    pub received: Frames,
    /// Longer than the link or their class can ever carry, or empty. Those that the queue saw are
    /// among the [`rejected`](Self::rejected) too.
    pub oversized: Frames,
    /// Not accepted by the queue, which counts why.
    pub rejected: Frames,
    /// Passed by the queue while nothing was shaped, those of clients included.
    pub passed: Frames,
    /// Accepted by the device, those of clients included.
    pub transmitted: u64,
}

/// How the rounds of a bridge go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundStats {
    /// The duration of each round, including work before the next one, reported by [`drive`](crate::drive). PSPAT's
    /// scan time.
    pub scan: Spans,
    /// How long after a packet might leave the round began that sends it: after the link, or a ceiling, let
    /// it go, or after the round that a limit or a full device ended. It stands for Delta_D of Eq. 1, where
    /// there are no dispatchers.
    pub late: Spans,
    /// How many took longer than they [may](Bridge::allow_rounds).
    pub overlong: u64,
}

/// The egress side of one device.
pub enum Lane<Q: Queue, D: Backend> {
    /// In the order of a queue, at the pace of a link. Received frames are packets of one flow with this
    /// configuration.
    Shaped(Box<Arbiter<Q, Straight<D>>>, FlowConfig),
    /// In order of arrival.
    Open(D),
}

/// A lane with the bridge's state for it.
enum Way<Q: Queue, D: Backend> {
    /// Received frames are of this flow. Whether none may pass by the queue yet, while it is open.
    Shaped(Box<Arbiter<Q, Straight<D>>>, FlowId, bool),
    /// Whether the device has not taken all of the frames so far.
    Open(Straight<D>, bool),
    /// Nothing leaves by the device here: frames only arrive at it.
    Elsewhere(D),
}

impl<Q: Queue<Payload: Into<D::Tx>>, D: Backend> Way<Q, D> {
    fn new(lane: Lane<Q, D>) -> Result<Self, ChangeError> {
        Ok(match lane {
            Lane::Shaped(mut arbiter, frames) => {
                let flow = arbiter.open_flow(frames)?;
                Way::Shaped(arbiter, flow, false)
            }
            Lane::Open(device) => Way::Open(Straight::to(device), false),
        })
    }

    fn device(&self) -> &D {
        match self {
            Way::Shaped(arbiter, ..) => arbiter.backend(),
            Way::Open(out, _) => out.backend(),
            Way::Elsewhere(device) => device,
        }
    }

    #[inline]
    fn device_mut(&mut self) -> &mut D {
        match self {
            Way::Shaped(arbiter, ..) => arbiter.backend_mut(),
            Way::Open(out, _) => out.backend_mut(),
            Way::Elsewhere(device) => device,
        }
    }

    /// Returns whether its device has yet to accept frames that must leave before new arrivals.
    #[inline]
    fn is_held_up(&self) -> bool {
        matches!(
            self,
            Way::Open(_, true) | Way::Shaped(_, _, true) | Way::Elsewhere(_)
        )
    }

    /// Most batches of frames that it receives in a round.
    #[inline]
    fn batches(&self) -> usize {
        match self {
            Way::Shaped(arbiter, ..) if !arbiter.is_open() => MOST_TAKEN_IN / BATCH,
            // A device without a queue in front delays its senders.
            Way::Shaped(_, _, held_up) | Way::Open(_, held_up) => usize::from(!held_up),
            Way::Elsewhere(_) => 0,
        }
    }

    /// Returns whether all received frames have left, as far as is known: nothing is queued, and the device has
    /// nothing in flight.
    fn is_drained(&self) -> bool {
        let waits = match self {
            Way::Shaped(arbiter, ..) => {
                !arbiter.queue().is_empty() || arbiter.waiting_for_backend() > 0
            }
            Way::Open(out, _) => out.is_waiting(),
            Way::Elsewhere(_) => return true,
        };
        // A device that is unusable has nothing more to send.
        !waits && self.device().in_flight().unwrap_or(0) == 0
    }

    /// Transmits eligible frames.
    #[inline]
    fn step(&mut self, now: Nanos) -> io::Result<Step> {
        match self {
            Way::Shaped(arbiter, _, held_up) => {
                let mut step = arbiter.step(now)?;
                let was_held_up = std::mem::replace(held_up, arbiter.is_held_up());
                if was_held_up && !*held_up {
                    step.next = Next::Now;
                }
                Ok(step)
            }
            Way::Open(out, held_up) => {
                let transmitted = out.send()?;
                let was_held_up = std::mem::replace(held_up, out.is_waiting());
                Ok(Step {
                    drained: 0,
                    released: 0,
                    transmitted,
                    next: match (*held_up, was_held_up) {
                        (true, _) => Next::WhenBackendTakesMore,
                        // The other device may hold frames that make no descriptor readable.
                        (false, true) => Next::Now,
                        (false, false) => Next::WhenPushed,
                    },
                })
            }
            Way::Elsewhere(_) => Ok(NOTHING),
        }
    }
}

/// Converts a received frame into the type that the queue of its direction holds. Implemented by every function with
/// these arguments.
pub trait Make<F, P> {
    /// Converts a frame, given the device it arrived at and the metadata of its arrival.
    fn make(&mut self, frame: F, arrived_at: Side, came: Came) -> P;
}

impl<F, P, M: FnMut(F, Side, Came) -> P> Make<F, P> for M {
    #[inline]
    fn make(&mut self, frame: F, arrived_at: Side, came: Came) -> P {
        self(frame, arrived_at, came)
    }
}

/// Two devices, and what passes between them.
///
/// Not to be shared: one thread makes its rounds.
pub struct Bridge<Q: Queue, D: Backend, M> {
    /// By the side that they leave by.
    ways: [Way<Q, D>; 2],
    stats: [LaneStats; 2],
    make: M,
    arrived: Vec<D::Rx>,
    /// The same as packets, with their lengths on the link.
    made: Vec<(Length, Q::Payload)>,
    waiter: Waiter,
    /// Since the last round an arbiter was borrowed mutably, or another round was requested.
    changed: bool,
    /// A request is likely to follow soon.
    is_attentive: bool,
    /// Nothing more is received.
    is_closed: bool,
    rounds: RoundStats,
    /// How long a round may take.
    longest_round: Nanos,
    /// By egress side: when a frame that the last round left is eligible, as far as is known; [`Nanos::MAX`] if
    /// there is none.
    due: [Nanos; 2],
}

impl<Q, D, F, M> Bridge<Q, D, M>
where
    Q: Queue<Payload: Into<F>>,
    D: Backend<Tx = F, Rx = F>,
    F: ByteLen,
    M: Make<F, Q::Payload>,
{
    /// Returns a bridge of two lanes, named by the device that they leave by. An arbiter's link is
    /// idle from the time at which it was made.
    ///
    /// # Errors
    ///
    /// An arbiter has no flow left for the frames that are received.
    pub fn new(left: Lane<Q, D>, right: Lane<Q, D>, make: M) -> Result<Self, ChangeError> {
        Ok(Bridge {
            ways: [Way::new(left)?, Way::new(right)?],
            stats: [LaneStats::default(); 2],
            make,
            arrived: Vec::with_capacity(BATCH),
            made: Vec::with_capacity(BATCH),
            waiter: Waiter::new(),
            changed: false,
            is_attentive: false,
            is_closed: false,
            rounds: RoundStats::default(),
            longest_round: Nanos::MAX,
            due: [Nanos::MAX; 2],
        })
    }

    /// Runs one round at time `now`, which must not go backwards. Received frames count as drained.
    ///
    /// # Errors
    ///
    /// The error of an unusable device. Queued packets stay where they are.
    pub fn round(&mut self, now: Nanos) -> io::Result<Step> {
        self.changed = false;
        let [left, right] = self.due;
        let due = left.min(right);
        if now >= due {
            self.rounds.late.record(now.since(due));
        }
        let (mut drained, mut is_more) = (0, [false; 2]);
        if !self.is_closed {
            for side in Side::BOTH {
                is_more[side.index()] = self.take_in(side, now, &mut drained)?;
            }
        }
        let mut round = self.send(now)?;
        round.drained += drained;
        for side in Side::BOTH {
            if is_more[side.index()] {
                self.due[side.index()] = now;
                round.next = Next::Now;
            }
        }
        Ok(round)
    }

    /// Runs the part of a round that receives nothing from the devices.
    ///
    /// # Errors
    ///
    /// As of a round.
    #[inline]
    pub fn send(&mut self, now: Nanos) -> io::Result<Step> {
        let mut round = NOTHING;
        for side in Side::BOTH {
            let way = &mut self.ways[side.index()];
            let step = way.step(now)?;
            self.due[side.index()] = match step.next {
                Next::Now | Next::WhenBackendTakesMore => now,
                Next::At(time) => time,
                Next::WhenPushed => Nanos::MAX,
            };
            self.stats[side.index()].transmitted += step.transmitted as u64;
            round.drained += step.drained;
            round.released += step.released;
            round.transmitted += step.transmitted;
            round.next = round.next.min(step.next);
        }
        Ok(round)
    }

    /// Takes in a frame that leaves by this device, with the metadata `came`: one received by another process, for
    /// example. It is counted as received.
    pub fn admit(&mut self, frame: F, leaves_by: Side, came: Came, now: Nanos) {
        let Bridge {
            ways, stats, make, ..
        } = self;
        let stats = &mut stats[leaves_by.index()];
        match &mut ways[leaves_by.index()] {
            Way::Shaped(arbiter, flow, _) => {
                let make = |frame| make.make(frame, leaves_by.other(), came);
                enqueue(
                    arbiter,
                    *flow,
                    stats,
                    frame,
                    make,
                    |arbiter, flow, len, packet| arbiter.enqueue(flow, len, packet, now),
                );
            }
            Way::Open(out, _) => {
                stats.received.add(frame.byte_len());
                out.push(frame);
            }
            Way::Elsewhere(_) => refuse(stats, frame.byte_len()),
        }
    }

    /// Returns the most frames to [take in](Self::take_in_by) now for this device: none while the device has yet to
    /// accept earlier ones.
    pub fn room(&self, leaves_by: Side) -> usize {
        match self.is_closed {
            true => 0,
            false => BATCH * self.ways[leaves_by.index()].batches(),
        }
    }

    /// Takes in a frame that another thread has received, as a round does with its own: if it is shaped, `put`
    /// queues it, as a packet of the given flow with the given length on the link.
    #[inline]
    pub fn take_in_by(
        &mut self,
        frame: F,
        leaves_by: Side,
        came: Came,
        put: impl FnOnce(
            &mut Arbiter<Q, Straight<D>>,
            FlowId,
            Length,
            Q::Payload,
        ) -> Result<(), Rejected<Q::Payload>>,
    ) {
        let Bridge {
            ways, stats, make, ..
        } = self;
        let stats = &mut stats[leaves_by.index()];
        match &mut ways[leaves_by.index()] {
            Way::Shaped(arbiter, flow, _) if !arbiter.is_open() => {
                let make = |frame| make.make(frame, leaves_by.other(), came);
                enqueue(arbiter, *flow, stats, frame, make, put);
            }
            Way::Shaped(arbiter, ..) => {
                stats.received.add(frame.byte_len());
                stats.passed.add(frame.byte_len());
                arbiter.release_mut().push(frame);
            }
            Way::Open(out, _) => {
                stats.received.add(frame.byte_len());
                out.push(frame);
            }
            Way::Elsewhere(_) => refuse(stats, frame.byte_len()),
        }
    }

    /// Takes back, in order, the frames that were to leave by this device next and that it has not taken.
    #[doc(hidden)]
    pub fn take_back(&mut self, leaves_by: Side) -> VecDeque<F> {
        match &mut self.ways[leaves_by.index()] {
            Way::Shaped(arbiter, ..) => arbiter.release_mut().take_back(),
            Way::Open(out, held_up) => {
                *held_up = false;
                out.take_back()
            }
            Way::Elsewhere(_) => VecDeque::new(),
        }
    }

    /// Receives frames that leave by the device on this side, adds their number to `drained`, and returns whether
    /// there may be more.
    #[inline]
    fn take_in(&mut self, leaves_by: Side, now: Nanos, drained: &mut usize) -> io::Result<bool> {
        let batches = self.ways[leaves_by.index()].batches();
        if batches == 0 {
            self.look_after(leaves_by.other())?;
        }
        for _ in 0..batches {
            let device = self.ways[leaves_by.other().index()].device_mut();
            let came = device.receive(&mut self.arrived, BATCH)?;
            if came > 0 {
                self.take_in_arrived(leaves_by, now);
            }
            *drained += came;
            if came < BATCH {
                return Ok(false);
            }
        }
        Ok(batches > 0)
    }

    /// Receives nothing from a device whose frames are taken in elsewhere, but lets it do its periodic work.
    #[cold]
    #[inline(never)]
    fn look_after(&mut self, side: Side) -> io::Result<()> {
        if let Way::Elsewhere(_) = self.ways[side.other().index()] {
            let device = self.ways[side.index()].device_mut();
            device.receive(&mut self.arrived, 0)?;
        }
        Ok(())
    }

    /// Takes in the frames that a device has just received. Apart, since mostly one of the two has
    /// none.
    #[inline(never)]
    fn take_in_arrived(&mut self, leaves_by: Side, now: Nanos) {
        let [left, right] = &mut self.ways;
        let (from, way) = match leaves_by {
            Side::Left => (right, left),
            Side::Right => (left, right),
        };
        let stats = &mut self.stats[leaves_by.index()];
        let (arbiter, flow) = match way {
            Way::Shaped(arbiter, flow, _) if !arbiter.is_open() => (arbiter, *flow),
            Way::Shaped(arbiter, ..) => {
                let passed = hand_over(&mut self.arrived, arbiter.release_mut());
                stats.received = stats.received.plus(passed);
                stats.passed = stats.passed.plus(passed);
                return;
            }
            Way::Open(out, _) => {
                let passed = hand_over(&mut self.arrived, out);
                stats.received = stats.received.plus(passed);
                return;
            }
            // Nothing is received for it.
            Way::Elsewhere(_) => return,
        };
        let (make, made) = (&mut self.make, &mut self.made);
        let are_few = self.arrived.len() < TOGETHER;
        let mut arrivals = from.device().arrivals().iter();
        for frame in self.arrived.drain(..) {
            let arrival = arrivals.next().copied().unwrap_or_default();
            let mut make = |frame| make.make(frame, leaves_by.other(), Came::of(arrival, now));
            if are_few {
                enqueue(
                    arbiter,
                    flow,
                    stats,
                    frame,
                    make,
                    |arbiter, flow, len, packet| arbiter.enqueue(flow, len, packet, now),
                );
            } else if let Some(carried) = carried(arbiter, stats, frame.byte_len()) {
                made.push((carried, make(frame)));
            }
        }
        if are_few {
            return;
        }
        arbiter.enqueue_all(flow, made, now, |rejected| {
            let frame: F = rejected.payload.into();
            reject(stats, frame.byte_len(), rejected.reason);
        });
    }

    /// Returns the arbiter of the lane that leaves by this device, if it has one.
    pub fn arbiter(&self, leaves_by: Side) -> Option<&Arbiter<Q, Straight<D>>> {
        match &self.ways[leaves_by.index()] {
            Way::Shaped(arbiter, ..) => Some(arbiter),
            Way::Open(..) | Way::Elsewhere(_) => None,
        }
    }

    /// The same, mutably. [`drive`](crate::drive) runs a round right after this call, since the next eligible packet
    /// may be another one by then.
    pub fn arbiter_mut(&mut self, leaves_by: Side) -> Option<&mut Arbiter<Q, Straight<D>>> {
        self.changed = true;
        match &mut self.ways[leaves_by.index()] {
            Way::Shaped(arbiter, ..) => Some(arbiter),
            Way::Open(..) | Way::Elsewhere(_) => None,
        }
    }

    /// Returns whether egress on this device is queued, and leaves at the pace of a link.
    pub fn is_shaped(&self, leaves_by: Side) -> bool {
        self.arbiter(leaves_by).is_some_and(|it| !it.is_open())
    }

    /// Shapes egress on this device from the next round on, or passes it in order of arrival; the backlog leaves
    /// first. Returns whether there is anything to shape there. O(1).
    pub fn set_shaped(&mut self, leaves_by: Side, shaped: bool) -> bool {
        self.changed = true;
        let Way::Shaped(arbiter, _, held_up) = &mut self.ways[leaves_by.index()] else {
            return false;
        };
        arbiter.set_open(!shaped);
        *held_up = arbiter.is_held_up();
        true
    }

    /// Makes [`drive`](crate::drive) run another round at once: there is work other than frames.
    pub fn hurry(&mut self) {
        self.changed = true;
    }

    /// Limits sleeps to [`CLIENT_NAP`] from now on, or removes that limit: for requests to this thread between two
    /// rounds, which do not end a sleep.
    pub fn set_attentive(&mut self, attentive: bool) {
        self.is_attentive = attentive;
    }

    /// Stops receiving from devices and clients: rounds only send queued frames, as before. Cannot be undone; for
    /// shutdown.
    pub fn close(&mut self) {
        self.is_closed = true;
        for way in &mut self.ways {
            if let Way::Shaped(arbiter, ..) = way {
                arbiter.close();
            }
        }
    }

    /// Returns whether all received frames have left: nothing is queued, and neither device has anything in flight.
    /// O(1), a system call for each device where nothing is queued.
    pub fn is_drained(&self) -> bool {
        self.ways.iter().all(Way::is_drained)
    }

    /// Returns the device on this side.
    pub fn device(&self, side: Side) -> &D {
        self.ways[side.index()].device()
    }

    /// Returns the device on this side, to ask what takes it mutably.
    pub fn device_mut(&mut self, side: Side) -> &mut D {
        self.ways[side.index()].device_mut()
    }

    /// How its rounds go.
    pub fn rounds(&self) -> RoundStats {
        self.rounds
    }

    /// Cuts off the lane that leaves by this device, with all that waits in it, for another thread to make its
    /// rounds: a bridge of that lane alone. Of the devices each is in one of the two bridges, by which its lane
    /// leaves; in the other something stands in for it, by which nothing leaves there and at which frames arrive.
    /// `here` stands in for the device that goes, and `there` for the one that stays. O(1), except for the space
    /// that a bridge needs for a batch.
    ///
    /// [`join`](Self::join) undoes it.
    pub fn split_off(&mut self, leaves_by: Side, here: D, there: D) -> Self
    where
        M: Clone,
    {
        let way = leaves_by.index();
        let cut = std::mem::replace(&mut self.ways[way], Way::Elsewhere(here));
        let mut ways = [cut, Way::Elsewhere(there)];
        if leaves_by == Side::Right {
            ways.reverse();
        }
        let (mut stats, mut due) = ([LaneStats::default(); 2], [Nanos::MAX; 2]);
        stats[way] = std::mem::take(&mut self.stats[way]);
        due[way] = std::mem::replace(&mut self.due[way], Nanos::MAX);
        Bridge {
            ways,
            stats,
            make: self.make.clone(),
            arrived: Vec::with_capacity(BATCH),
            made: Vec::with_capacity(BATCH),
            waiter: Waiter::new(),
            changed: false,
            is_attentive: false,
            is_closed: self.is_closed,
            rounds: RoundStats::default(),
            longest_round: self.longest_round,
            due,
        }
    }

    /// Counts the rounds from now on that take longer than this. No round releases more than a link carries in this
    /// time, and a packet: a late round makes up for the time before it in several.
    pub fn allow_rounds(&mut self, longest: Nanos) {
        self.longest_round = longest;
        for way in &mut self.ways {
            if let Way::Shaped(arbiter, ..) = way {
                arbiter.limit_release(longest);
            }
        }
    }

    /// Takes back the lane that leaves by this device, which was [cut off](Self::split_off), as it is by now. Both
    /// stand-ins are dropped. O(1).
    pub fn join(&mut self, leaves_by: Side, mut other: Self) {
        let way = leaves_by.index();
        std::mem::swap(&mut self.ways[way], &mut other.ways[way]);
        self.stats[way] = other.stats[way];
        self.rounds.scan.merge(other.rounds.scan);
        self.rounds.late.merge(other.rounds.late);
        self.rounds.overlong += other.rounds.overlong;
        self.due[way] = other.due[way];
        self.changed = true;
    }

    /// Returns counts of the frames that were to leave by this device.
    pub fn stats(&self, leaves_by: Side) -> LaneStats {
        let mut stats = self.stats[leaves_by.index()];
        if let Some(arbiter) = self.arbiter(leaves_by) {
            let Count { packets, bytes } = arbiter.passed();
            let overhead = packets * u64::from(arbiter.link().overhead);
            stats.passed = stats.passed.plus(Frames {
                frames: packets,
                bytes: bytes - overhead,
            });
        }
        stats
    }
}

/// Counts a frame for a device whose egress is handled elsewhere.
#[cold]
fn refuse(stats: &mut LaneStats, bytes: usize) {
    stats.received.add(bytes);
    stats.rejected.add(bytes);
}

/// Queues a frame by `put`, as `make` makes it, or counts why not.
#[inline]
fn enqueue<Q: Queue<Payload: Into<D::Tx>>, D: Backend, F: ByteLen>(
    arbiter: &mut Arbiter<Q, Straight<D>>,
    flow: FlowId,
    stats: &mut LaneStats,
    frame: F,
    make: impl FnOnce(F) -> Q::Payload,
    put: impl FnOnce(
        &mut Arbiter<Q, Straight<D>>,
        FlowId,
        Length,
        Q::Payload,
    ) -> Result<(), Rejected<Q::Payload>>,
) {
    let bytes = frame.byte_len();
    let Some(carried) = carried(arbiter, stats, bytes) else {
        return;
    };
    if let Err(rejected) = put(arbiter, flow, carried, make(frame)) {
        reject(stats, bytes, rejected.reason);
    }
}

/// Counts an arrival, by its length on the link, if the link can carry it.
#[inline]
fn carried<Q: Queue<Payload: Into<D::Tx>>, D: Backend>(
    arbiter: &Arbiter<Q, Straight<D>>,
    stats: &mut LaneStats,
    bytes: usize,
) -> Option<Length> {
    stats.received.add(bytes);
    let length = u32::try_from(bytes).ok().and_then(Length::new);
    let carried = length.and_then(|length| arbiter.link().carried(length));
    if carried.is_none() {
        stats.oversized.add(bytes);
    }
    carried
}

/// Counts a frame that the queue has not accepted.
fn reject(stats: &mut LaneStats, bytes: usize, reason: Rejection) {
    stats.rejected.add(bytes);
    if let Rejection::TooLong { .. } = reason {
        stats.oversized.add(bytes);
    }
}

/// Sends frames in order of arrival; returns how many.
#[inline]
fn hand_over<B: Backend>(arrived: &mut Vec<B::Tx>, out: &mut Straight<B>) -> Frames
where
    B::Tx: ByteLen,
{
    let mut frames = Frames::default();
    for frame in arrived.drain(..) {
        frames.add(frame.byte_len());
        out.push(frame);
    }
    frames
}

/// A round is a step; every wait is for the devices, and [`Idling::nap`](crate::Idling::nap) is how
/// long a full one is left alone.
impl<Q, D, F, M> Steps for Bridge<Q, D, M>
where
    Q: Queue<Payload: Into<F>>,
    D: Backend<Tx = F, Rx = F> + AsFd,
    F: ByteLen,
    M: Make<F, Q::Payload>,
{
    fn step(&mut self, now: Nanos) -> io::Result<Step> {
        self.round(now)
    }

    fn nap(&mut self, span: Duration) -> io::Result<()> {
        let devices: [Option<BorrowedFd<'_>>; 2] = Side::BOTH.map(|side| {
            // Where frames are held up, or must not be received, they would end the wait at once.
            let held_up = self.is_closed || self.ways[side.other().index()].is_held_up();
            (!held_up).then(|| self.ways[side.index()].device().as_fd())
        });
        let waiter = &mut self.waiter;
        match devices {
            [Some(left), Some(right)] => waiter.wait_readable(&[left, right], span)?,
            [Some(one), None] | [None, Some(one)] => waiter.wait_readable(&[one], span)?,
            [None, None] => waiter.wait_readable::<BorrowedFd<'_>>(&[], span)?,
        };
        Ok(())
    }

    fn sleep(&mut self, longest: Duration) -> io::Result<Option<Woken>> {
        let has_clients = |way: &Way<Q, D>| match way {
            Way::Shaped(arbiter, ..) => arbiter.may_be_pushed(),
            Way::Open(..) | Way::Elsewhere(_) => false,
        };
        let longest = match self.is_attentive || self.ways.iter().any(has_clients) {
            true => longest.min(CLIENT_NAP.into()),
            false => longest,
        };
        self.nap(longest)?;
        Ok(Some(Woken::TimedOut))
    }

    fn took(&mut self, span: Nanos) {
        self.rounds.scan.record(span);
        self.rounds.overlong += u64::from(span > self.longest_round);
    }

    fn is_hurried(&self) -> bool {
        self.changed
    }
}

impl<Q: Queue, D: Backend> fmt::Debug for Lane<Q, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lane::Shaped(arbiter, frames) => {
                let mut shaped = f.debug_tuple("Shaped");
                shaped.field(arbiter).field(frames).finish()
            }
            Lane::Open(_) => f.debug_tuple("Open").finish_non_exhaustive(),
        }
    }
}

impl<Q: Queue, D: Backend, M> fmt::Debug for Bridge<Q, D, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bridge")
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_directions_the_sooner_counts() {
        let at = |micros| Next::At(Nanos::from_micros(micros));
        for (one, other, first) in [
            (Next::WhenPushed, Next::WhenPushed, Next::WhenPushed),
            (Next::WhenPushed, at(3), at(3)),
            (at(5), at(3), at(3)),
            (
                at(5),
                Next::WhenBackendTakesMore,
                Next::WhenBackendTakesMore,
            ),
            (Next::WhenBackendTakesMore, Next::Now, Next::Now),
            (Next::WhenPushed, Next::Now, Next::Now),
        ] {
            assert_eq!(one.min(other), first);
            assert_eq!(other.min(one), first);
        }
    }
}
