//! The rounds of a bridge, including the frames from receive workers.

use std::io;
use std::time::Duration;

use fairlane_core::Nanos;
use fairlane_runtime::bridge::{BATCH, MOST_TAKEN_IN, Side};
use fairlane_runtime::{Idling, Next, Step, Steps, Woken};

use crate::bridge::SiteBridge;
use crate::early::Guard;
use crate::note::ClassifiedFrame;
use crate::waits::Poll;

/// The longest time that an idle bridge does not poll for orders.
const LONGEST_SLEEP: Nanos = Nanos::from_millis(20);

/// How threads that forward idle.
pub(super) const IDLING: Idling = Idling {
    longest_sleep: LONGEST_SLEEP,
    ..Idling::USUAL
};

/// Makes the kernel drop packets for a device's egress early during overload, if early drop is in use.
pub(super) fn guard_early(
    bridge: &SiteBridge,
    leaves_by: Side,
    guard: &mut Guard,
    has_workers: bool,
    round: &Step,
    now: Nanos,
) {
    if let Some(arbiter) = bridge.arbiter(leaves_by)
        && let classifier = arbiter.queue().classifier()
        && let Some(early) = classifier.early()
    {
        if arbiter.is_open() {
            // Without shaping nothing is classified, so no class exceeds its share.
            guard.rest(early);
            return;
        }
        let filling = is_filling(bridge, leaves_by, has_workers, round);
        guard.look(early, filling, classifier.rejected, now);
    }
}

/// Whether frames for a device's egress occupy a good part of the receive ring.
pub fn is_filling(bridge: &SiteBridge, leaves_by: Side, has_workers: bool, round: &Step) -> bool {
    // Without workers, less than a full batch means that the ring is empty.
    let may_be_more = has_workers || round.moved() >= BATCH;
    may_be_more && bridge.device(leaves_by.other()).is_filling()
}

/// The rounds of a bridge, including the frames from receive workers.
pub struct Rounds<'a> {
    pub bridge: &'a mut SiteBridge,
    pub(super) has_workers: bool,
    /// The thread has waited since the last round.
    has_waited: bool,
    /// Frames just taken from one of the devices.
    classified: Vec<ClassifiedFrame>,
}

impl<'a> Rounds<'a> {
    pub fn of(bridge: &'a mut SiteBridge, has_workers: bool) -> Rounds<'a> {
        Rounds {
            bridge,
            has_workers,
            has_waited: false,
            classified: Vec::with_capacity(BATCH),
        }
    }

    /// Queues frames from receive workers, up to the limit of a round. Returns their number, and whether there may be
    /// more.
    fn enqueue_classified(&mut self, now: Nanos) -> io::Result<(usize, bool)> {
        let (mut came, mut is_more) = (0, false);
        let has_waited = std::mem::take(&mut self.has_waited);
        for leaves_by in Side::BOTH {
            let room = self.bridge.room(leaves_by);
            self.bridge.device_mut(leaves_by.other()).begin_round(Poll {
                now,
                has_waited,
                takes_all: room >= MOST_TAKEN_IN,
            });
            let mut left = room;
            while left > 0 {
                let device = self.bridge.device_mut(leaves_by.other());
                let took = device.take_classified(&mut self.classified, BATCH)?;
                for classified in self.classified.drain(..) {
                    enqueue_classified(self.bridge, classified, leaves_by, now);
                }
                (came, left) = (came + took, left - took);
                if took < BATCH {
                    break;
                }
            }
            is_more |= room > 0 && left == 0;
        }
        Ok((came, is_more))
    }

    /// Whether no worker has handed on frames that are to be queued.
    fn arm_wakeup(&mut self) -> bool {
        !self.has_workers
            || Side::BOTH.into_iter().all(|leaves_by| {
                self.bridge.room(leaves_by) == 0
                    || self.bridge.device_mut(leaves_by.other()).arm_wakeup()
            })
    }
}

/// Queues a frame where a worker has said.
#[inline]
fn enqueue_classified(
    bridge: &mut SiteBridge,
    classified: ClassifiedFrame,
    leaves_by: Side,
    now: Nanos,
) {
    let (came, note) = (classified.came(), classified.note());
    bridge.take_in_by(
        classified.frame,
        leaves_by,
        came,
        |arbiter, flow, len, packet| {
            arbiter.enqueue_by(flow, len, packet, now, |classifier, received| {
                classifier.classified(received, note)
            })
        },
    );
}

impl Steps for Rounds<'_> {
    fn step(&mut self, now: Nanos) -> io::Result<Step> {
        if !self.has_workers {
            return self.bridge.round(now);
        }
        let (came, is_more) = self.enqueue_classified(now)?;
        let mut round = self.bridge.round(now)?;
        round.drained += came;
        if is_more {
            round.next = Next::Now;
        }
        for side in Side::BOTH {
            self.bridge.device_mut(side).return_buffers();
        }
        Ok(round)
    }

    fn nap(&mut self, span: Duration) -> io::Result<()> {
        self.has_waited = self.arm_wakeup();
        match self.has_waited {
            true => self.bridge.nap(span),
            false => Ok(()),
        }
    }

    fn sleep(&mut self, longest: Duration) -> io::Result<Option<Woken>> {
        self.has_waited = self.arm_wakeup();
        match self.has_waited {
            true => self.bridge.sleep(longest),
            false => Ok(None),
        }
    }

    fn took(&mut self, span: Nanos) {
        self.bridge.took(span);
    }

    fn is_hurried(&self) -> bool {
        self.bridge.is_hurried()
    }
}
