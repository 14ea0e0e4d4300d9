//! A bridge: one thread between two devices, each direction with an arbiter of its own or none.
//!
//! ```text
//!            /-- receive --> make --> admit --> Arbiter --> transmit --\
//!  device 0 <                                                           > device 1
//!            \-- transmit <-- Arbiter <-- admit <-- make <-- receive --/
//! ```
//!
//! A [`round`](Bridge::round) first takes in what has arrived at both devices, at most
//! [`MOST_TAKEN_IN`] frames from each: what must wait or go is for the classes to say, and a device
//! that overflows is blind. Then it releases in each direction what its link can carry by then. It
//! reads no clock and never waits, so that a test drives it on a clock of its
//! own. [`drive_bridge`] is
//! the loop around it: between two rounds it waits for either device, or for the time when the
//! next packet may leave.
//!
//! # Clients beside the devices
//!
//! Clients may push to either arbiter ([`Arbiter::registrar`]). They wake an arbiter that sleeps
//! for them alone, and this thread waits for devices instead. So while there are any clients, or
//! anybody who may register some, it looks after them once in [`CLIENT_NAP`]: that much later than
//! pushed may the first packet of a client leave after a pause. The price is a thousand short
//! wake-ups a second on an idle bridge; without clients there are ten.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use fairlane_core::{FlowConfig, FlowId, Length, Nanos, Rejection};
use fairlane_io::{Arrival, Backend, ByteLen, Waiter};

use crate::driver::{Idling, Pause, Rest, exact_timers};
use crate::queue::Queue;
use crate::release::Straight;
use crate::{Arbiter, Clock, Next};

/// Frames taken in at once.
pub const BATCH: usize = 64;

/// Most frames taken in from one device in a round: as long as that takes, nothing is sent.
pub const MOST_TAKEN_IN: usize = 16 * BATCH;

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

    /// The other one.
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
}

/// How a frame came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Came {
    /// When, as far as its device can tell how long it waited there; else when it was taken in.
    pub at: Nanos,
    /// The device was losing others for want of room.
    pub losing: bool,
}

/// What became of the frames of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneStats {
    /// Taken in from the device on the other side.
    pub received: Frames,
    /// Longer than the link or their class can ever carry, or empty. Those that the queue saw are
    /// among the [`rejected`](Self::rejected) too.
    pub oversized: Frames,
    /// Not accepted by the queue, which counts why.
    pub rejected: Frames,
    /// Accepted by the device, those of clients included.
    pub transmitted: u64,
}

/// What leaves by one device.
pub enum Lane<Q: Queue, D: Backend> {
    /// In the order of a queue, at the pace of a link. Received frames are packets of one
    /// flow, of which the queue is told this.
    Shaped(Box<Arbiter<Q, Straight<D>>>, FlowConfig),
    /// As it comes.
    Open(D),
}

/// A lane with what the bridge keeps for it.
struct Way<Q: Queue, D: Backend> {
    lane: Lane<Q, D>,
    /// The flow of received frames, where there is an arbiter.
    flow: FlowId,
    /// Frames that the device of an open lane has not taken.
    batch: VecDeque<D::Tx>,
    stats: LaneStats,
}

/// What one round did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// Frames taken in, and packets drained, released or transmitted: 0 in a round without work.
    pub moved: usize,
    /// When there is more to do, as far as can be known now; a frame may arrive earlier.
    pub next: Next,
}

/// Two devices, and what passes between them. `make` turns a received frame into what the queue
/// of its direction holds; it is told the device it arrived at, and what is known of how.
///
/// Not to be shared: one thread makes its rounds.
pub struct Bridge<Q: Queue, D: Backend, M> {
    ways: [Way<Q, D>; 2],
    make: M,
    arrived: Vec<D::Rx>,
    /// How these did.
    arrivals: Vec<Arrival>,
    /// Since the last round an arbiter was given to somebody to change, or somebody is in a hurry.
    changed: bool,
}

impl<Q, D, F, M> Bridge<Q, D, M>
where
    Q: Queue<Payload: Into<F>>,
    D: Backend<Tx = F, Rx = F>,
    F: ByteLen,
    M: FnMut(F, Side, Came) -> Q::Payload,
{
    /// A bridge of two lanes, named by the device that they leave by. An arbiter's link is idle
    /// from the time at which it was made.
    ///
    /// # Errors
    ///
    /// An arbiter has no flow left for the frames that are received.
    pub fn new(
        left: Lane<Q, D>,
        right: Lane<Q, D>,
        make: M,
    ) -> Result<Self, fairlane_core::ChangeError> {
        Ok(Bridge {
            ways: [Way::new(left)?, Way::new(right)?],
            make,
            arrived: Vec::with_capacity(BATCH),
            arrivals: Vec::with_capacity(BATCH),
            changed: false,
        })
    }

    /// One round at time `now`, which must not go backwards.
    ///
    /// # Errors
    ///
    /// What a device says when it is unusable. Queued packets stay where they are.
    pub fn round(&mut self, now: Nanos) -> io::Result<Round> {
        self.changed = false;
        let mut round = Round {
            moved: 0,
            next: Next::WhenPushed,
        };
        let mut more = false;
        let held_up = Side::BOTH.map(|side| !self.ways[side.index()].batch.is_empty());
        for side in Side::BOTH {
            more |= self.take_in(side, now, &mut round.moved)?;
        }
        for side in Side::BOTH {
            let way = &mut self.ways[side.index()];
            let (moved, next) = way.pass_on(now)?;
            round.moved += moved;
            round.next = sooner(round.next, next);
            // A device may have frames of its own that no descriptor tells of.
            more |= held_up[side.index()] && way.batch.is_empty();
        }
        if more {
            round.next = Next::Now;
        }
        Ok(round)
    }

    /// Receives what is to leave by the device on this side, and adds to `moved` how many frames
    /// came; returns whether there may be more.
    fn take_in(&mut self, leaves_by: Side, now: Nanos, moved: &mut usize) -> io::Result<bool> {
        let way = &self.ways[leaves_by.index()];
        let batches = match way.lane {
            Lane::Shaped(..) => MOST_TAKEN_IN / BATCH,
            // A device without a queue before it holds up who sends to it.
            Lane::Open(_) if way.batch.is_empty() => 1,
            Lane::Open(_) => 0,
        };
        for _ in 0..batches {
            let came = self.take_in_batch(leaves_by, now)?;
            *moved += came;
            if came < BATCH {
                return Ok(false);
            }
        }
        Ok(batches > 0)
    }

    fn take_in_batch(&mut self, leaves_by: Side, now: Nanos) -> io::Result<usize> {
        let from = leaves_by.other();
        let device = self.ways[from.index()].device_mut();
        let came = device.receive(&mut self.arrived, BATCH)?;
        self.arrivals.clear();
        self.arrivals.extend_from_slice(device.arrivals());
        let mut arrivals = self.arrivals.iter();
        let way = &mut self.ways[leaves_by.index()];
        for frame in self.arrived.drain(..) {
            let arrival = arrivals.next().copied().unwrap_or_default();
            let bytes = frame.byte_len();
            way.stats.received.add(bytes);
            match &mut way.lane {
                Lane::Open(_) => way.batch.push_back(frame),
                Lane::Shaped(arbiter, _) => {
                    let length = u32::try_from(bytes).ok().and_then(Length::new);
                    let Some(length) = length.filter(|&length| arbiter.carries(length)) else {
                        way.stats.oversized.add(bytes);
                        continue;
                    };
                    let waited =
                        Nanos(u64::try_from(arrival.waited.as_nanos()).unwrap_or(u64::MAX));
                    let came = Came {
                        at: now.since(waited),
                        losing: arrival.losing,
                    };
                    let payload = (self.make)(frame, from, came);
                    if let Err(rejected) = arbiter.admit(way.flow, length, payload, now) {
                        way.stats.rejected.add(bytes);
                        if let Rejection::TooLong { .. } = rejected.reason {
                            way.stats.oversized.add(bytes);
                        }
                    }
                }
            }
        }
        Ok(came)
    }

    /// The lane that leaves by this device.
    pub fn lane(&self, leaves_by: Side) -> &Lane<Q, D> {
        &self.ways[leaves_by.index()].lane
    }

    /// The arbiter before this device, if there is one. [`drive_bridge`] makes a round at once
    /// after it was asked for, since what may leave may be another packet by then.
    pub fn arbiter_mut(&mut self, leaves_by: Side) -> Option<&mut Arbiter<Q, Straight<D>>> {
        self.changed = true;
        match &mut self.ways[leaves_by.index()].lane {
            Lane::Shaped(arbiter, _) => Some(arbiter),
            Lane::Open(_) => None,
        }
    }

    /// Asks [`drive_bridge`] for another round at once: there is work beside frames.
    pub fn hurry(&mut self) {
        self.changed = true;
    }

    /// The device on this side.
    pub fn device(&self, side: Side) -> &D {
        match &self.ways[side.index()].lane {
            Lane::Shaped(arbiter, _) => arbiter.backend(),
            Lane::Open(device) => device,
        }
    }

    /// The device on this side, to ask what takes it mutably.
    pub fn device_mut(&mut self, side: Side) -> &mut D {
        self.ways[side.index()].device_mut()
    }

    /// What became of the frames that were to leave by this device.
    pub fn stats(&self, leaves_by: Side) -> LaneStats {
        self.ways[leaves_by.index()].stats
    }

    fn has_clients(&self) -> bool {
        self.ways.iter().any(|way| match &way.lane {
            Lane::Shaped(arbiter, _) => arbiter.may_be_pushed(),
            Lane::Open(_) => false,
        })
    }
}

impl<Q, D, F> Way<Q, D>
where
    Q: Queue<Payload: Into<F>>,
    D: Backend<Tx = F>,
{
    fn new(mut lane: Lane<Q, D>) -> Result<Self, fairlane_core::ChangeError> {
        let flow = match &mut lane {
            Lane::Shaped(arbiter, frames) => arbiter.open_flow(*frames)?,
            // Never asked for.
            Lane::Open(_) => FlowId::new(0),
        };
        Ok(Way {
            lane,
            flow,
            batch: VecDeque::new(),
            stats: LaneStats::default(),
        })
    }

    fn device_mut(&mut self) -> &mut D {
        match &mut self.lane {
            Lane::Shaped(arbiter, _) => arbiter.backend_mut(),
            Lane::Open(device) => device,
        }
    }

    /// Sends what may be sent; how many packets moved, and when there is more to do.
    fn pass_on(&mut self, now: Nanos) -> io::Result<(usize, Next)> {
        match &mut self.lane {
            Lane::Shaped(arbiter, _) => {
                let step = arbiter.step(now)?;
                self.stats.transmitted += step.transmitted as u64;
                Ok((step.drained + step.released + step.transmitted, step.next))
            }
            Lane::Open(_) if self.batch.is_empty() => Ok((0, Next::WhenPushed)),
            Lane::Open(device) => {
                let sent = device.transmit(&mut self.batch)?;
                self.stats.transmitted += sent as u64;
                let next = match self.batch.is_empty() {
                    true => Next::WhenPushed,
                    false => Next::WhenBackendTakesMore,
                };
                Ok((sent, next))
            }
        }
    }
}

/// Of two directions, what comes first. A full device is looked at again after a nap, so that it
/// only counts where neither direction has a time of its own: naps are shorter than those.
fn sooner(one: Next, other: Next) -> Next {
    match (one, other) {
        (Next::Now, _) | (_, Next::Now) => Next::Now,
        (Next::WhenBackendTakesMore, _) | (_, Next::WhenBackendTakesMore) => {
            Next::WhenBackendTakesMore
        }
        (Next::At(one), Next::At(other)) => Next::At(one.min(other)),
        (Next::At(time), _) | (_, Next::At(time)) => Next::At(time),
        (Next::WhenPushed, Next::WhenPushed) => Next::WhenPushed,
    }
}

/// Makes rounds until `after_round` returns `false`. It is called after every round, with its
/// time, at least once in [`Idling::longest_sleep`]. A round without work is followed by a wait for
/// the devices, after the spinning that `idling` asks for: no busy loop. [`Idling::nap`] is how long
/// a full device is left alone.
///
/// Asks the system for timers without slack, where it can, so that waits end in time.
///
/// # Errors
///
/// The first error of a round, or of waiting.
pub fn drive_bridge<Q, D, F, M>(
    bridge: &mut Bridge<Q, D, M>,
    clock: &Clock,
    idling: Idling,
    mut after_round: impl FnMut(&mut Bridge<Q, D, M>, Nanos, &Round) -> bool,
) -> io::Result<()>
where
    Q: Queue<Payload: Into<F>>,
    D: Backend<Tx = F, Rx = F> + AsFd,
    F: ByteLen,
    M: FnMut(F, Side, Came) -> Q::Payload,
{
    exact_timers();
    let mut rest = Rest::new(idling);
    let mut waiter = Waiter::new();
    loop {
        let now = clock.now();
        let round = bridge.round(now)?;
        if !after_round(bridge, now, &round) {
            return Ok(());
        }
        if bridge.changed {
            continue;
        }
        let span = match rest.after(now, round.moved > 0, round.next) {
            Pause::Spin => {
                std::hint::spin_loop();
                continue;
            }
            Pause::Nap(span) => span,
            Pause::Sleep(span) if bridge.has_clients() => span.min(CLIENT_NAP),
            Pause::Sleep(span) => span,
        };
        let devices: [Option<BorrowedFd<'_>>; 2] = Side::BOTH.map(|side| {
            // Where frames are held up they would end the wait at once.
            let held_up = !bridge.ways[side.other().index()].batch.is_empty();
            (!held_up).then(|| bridge.device(side).as_fd())
        });
        match devices {
            [Some(left), Some(right)] => waiter.wait_readable(&[left, right], span.into())?,
            [Some(one), None] | [None, Some(one)] => waiter.wait_readable(&[one], span.into())?,
            [None, None] => waiter.wait_readable::<BorrowedFd<'_>>(&[], span.into())?,
        };
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
            assert_eq!(sooner(one, other), first);
            assert_eq!(sooner(other, one), first);
        }
    }
}
