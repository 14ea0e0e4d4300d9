//! The forwarding thread: rounds of the bridge, and between two rounds a small part of the control thread's orders. It
//! reads no file, prints nothing and waits for no lock. If each link has an arbiter on a thread of its own, there are
//! two forwarding threads.

pub(crate) mod second;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use fairlane_core::Nanos;
use fairlane_mailbox::{Consumer, Producer};
use fairlane_runtime::bridge::{BATCH, MOST_TAKEN_IN, Side};
use fairlane_runtime::{Clock, Idling, Next, Step, Steps, Woken, drive};
use rustix::process::setpriority_process;

use crate::daemon::{SiteBridge, nanos};
use crate::early::Guard;
use crate::hand_over::Taking;
use crate::order::Order;
use crate::rounds::RoundCount;
use crate::stop::Stop;
use crate::stretch::{Doing, Longest};
use crate::workers::{ClassifiedFrame, Look};
use second::Second;

/// The highest priority, as `nice` counts: a guarantee of 20 ms is worth nothing if the thread waits as long behind a
/// dozen processes that never sleep.
const FIRST: i32 = -20;

/// Returns how long to poll for orders more often after this one.
fn attention(order: &Order) -> Nanos {
    match order {
        Order::Count(_) => ATTENTIVE_TO_COUNTS,
        _ => ATTENTIVE,
    }
}

/// Raises the calling thread's priority above that of other programs, if that is permitted. Not a real-time policy: a
/// flood must not lock out everything else.
pub(crate) fn before_all_others() {
    let _ = setpriority_process(None, FIRST);
}

/// The longest time that an idle bridge does not poll for orders.
const LONGEST_SLEEP: Nanos = Nanos::from_millis(20);
/// How long after an order to poll more often: one change is often followed by another.
const ATTENTIVE: Nanos = Nanos::from_millis(100);
/// The same after an order to count, which comes once per second.
const ATTENTIVE_TO_COUNTS: Nanos = Nanos::from_millis(5);

/// How threads that forward idle.
const IDLING: Idling = Idling {
    longest_sleep: LONGEST_SLEEP,
    ..Idling::USUAL
};

/// State shared by the forwarding thread and the control thread.
pub(crate) struct Forwarding {
    pub(crate) clock: Clock,
    pub(crate) stop: Arc<Stop>,
    /// The count of rounds, for threads and processes that watch it.
    pub(crate) rounds: Arc<RoundCount>,
    /// One at a time.
    pub(crate) orders: Consumer<Order>,
    pub(crate) answers: Producer<Order>,
    /// The longest times between two rounds while something was ordered.
    pub(crate) longest: Arc<Longest>,
    /// Whether other threads receive.
    pub(crate) has_workers: bool,
    /// Whether each link has an arbiter on a thread of its own.
    pub(crate) has_second: bool,
    /// A process that forwards until this one takes over.
    pub(crate) taking: Option<Taking>,
}

impl Forwarding {
    /// Forwards until `end`, or until it is stopped and has sent the backlog, with [raised
    /// priority](before_all_others). Completes the orders received by then.
    pub(crate) fn run(mut self, bridge: &mut SiteBridge, end: Nanos) -> io::Result<()> {
        before_all_others();
        // Before taking anything from another process, which continues if this fails.
        let mut second = match self.has_second {
            true => Some(Second::start(self.clock, self.clock.now())?),
            false => None,
        };
        if let Some(taking) = self.taking.take() {
            taking.take(bridge, &self.clock)?;
        }
        start_workers(bridge)?;
        let mut failed = None;
        let mut doing = None;
        let mut guards = [Guard::default(), Guard::default()];
        // When the last round began, and the kind of work, if part of an order was done after it.
        let mut worked_at: Option<(Nanos, Doing)> = None;
        let mut rounds = 0;
        let mut draining = None;
        let mut attentive_until = Nanos::ZERO;
        let mut rounds_of = Rounds::of(bridge, self.has_workers);
        let outcome = drive(
            &mut rounds_of,
            &self.clock,
            IDLING,
            |rounds_of, now, round| {
                let has_workers = rounds_of.has_workers;
                let bridge = &mut *rounds_of.bridge;
                rounds += 1;
                if !second.as_ref().is_some_and(|second| second.hangs(now)) {
                    self.rounds.made(rounds);
                }
                for (side, guard) in Side::BOTH.into_iter().zip(&mut guards) {
                    guard_early(bridge, side, guard, has_workers, round, now);
                }
                if let Some((before, doing)) = worked_at.take() {
                    self.longest.took(doing, now.since(before).0);
                }
                if doing.is_none() {
                    doing = self.orders.pop();
                }
                if let Some(order) = &doing {
                    attentive_until = attentive_until.max(now + attention(order));
                }
                bridge.set_attentive(now < attentive_until);
                let is_over = now >= end || self.stop.is_asked();
                if let Some(second) = &mut second {
                    let stays = doing.is_some() || is_over;
                    match second.look(bridge, &mut guards[second::LENT as usize], stays, now) {
                        Ok(true) => {}
                        Ok(false) => return true,
                        Err(error) => {
                            failed = Some(error);
                            return false;
                        }
                    }
                }
                if let Some(order) = &mut doing {
                    bridge.hurry();
                    let what = order.doing();
                    worked_at = Some((now, what));
                    if self.longest.during(what, || order.step(bridge, now)) {
                        answer(&mut self.answers, doing.take());
                    }
                }
                now < end && goes_on(&self.stop, bridge, now, &mut draining)
            },
        );
        self.rounds.ended();
        let outcome = failed.map_or(outcome, Err);
        let outcome = match second {
            Some(second) => {
                let guard = &mut guards[second::LENT as usize];
                outcome.and(second.end(bridge, guard, self.clock.now()))
            }
            None => outcome,
        };
        if let Some(mut order) = doing.or_else(|| self.orders.pop()) {
            while !order.step(bridge, self.clock.now()) {}
            answer(&mut self.answers, Some(order));
        }
        outcome
    }
}

/// Makes the kernel drop packets for a device's egress early during overload, if early drop is in use.
fn guard_early(
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
pub(crate) fn is_filling(
    bridge: &SiteBridge,
    leaves_by: Side,
    has_workers: bool,
    round: &Step,
) -> bool {
    // Without workers, less than a full batch means that the ring is empty.
    let may_be_more = has_workers || round.moved() >= BATCH;
    may_be_more && bridge.device(leaves_by.other()).is_filling()
}

/// Starts the workers that are configured and not running.
pub(crate) fn start_workers(bridge: &mut SiteBridge) -> io::Result<()> {
    let mut sides = Side::BOTH.into_iter();
    sides.try_for_each(|side| bridge.device_mut(side).start())
}

/// The rounds of a bridge, including the frames from receive workers.
pub(crate) struct Rounds<'a> {
    pub(crate) bridge: &'a mut SiteBridge,
    has_workers: bool,
    /// The thread has waited since the last round.
    has_waited: bool,
    /// Frames just taken from one of the devices.
    classified: Vec<ClassifiedFrame>,
}

impl<'a> Rounds<'a> {
    pub(crate) fn of(bridge: &'a mut SiteBridge, has_workers: bool) -> Rounds<'a> {
        Rounds {
            bridge,
            has_workers,
            has_waited: false,
            classified: Vec::with_capacity(BATCH),
        }
    }

    /// Queues frames from receive workers, up to the limit of a round. Returns their number, and whether there may be
    /// more.
    fn take_in(&mut self, now: Nanos) -> io::Result<(usize, bool)> {
        let (mut came, mut is_more) = (0, false);
        let has_waited = std::mem::take(&mut self.has_waited);
        for leaves_by in Side::BOTH {
            let room = self.bridge.room(leaves_by);
            self.bridge.device_mut(leaves_by.other()).look(Look {
                now,
                has_waited,
                takes_all: room >= MOST_TAKEN_IN,
            });
            let mut left = room;
            while left > 0 {
                let device = self.bridge.device_mut(leaves_by.other());
                let took = device.take_classified(&mut self.classified, BATCH)?;
                for classified in self.classified.drain(..) {
                    take_in(self.bridge, classified, leaves_by, now);
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
    fn may_wait(&mut self) -> bool {
        !self.has_workers
            || Side::BOTH.into_iter().all(|leaves_by| {
                self.bridge.room(leaves_by) == 0
                    || self.bridge.device_mut(leaves_by.other()).may_wait()
            })
    }
}

/// Queues a frame where a worker has said.
#[inline]
fn take_in(bridge: &mut SiteBridge, classified: ClassifiedFrame, leaves_by: Side, now: Nanos) {
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
        let (came, is_more) = self.take_in(now)?;
        let mut round = self.bridge.round(now)?;
        round.drained += came;
        if is_more {
            round.next = Next::Now;
        }
        for side in Side::BOTH {
            self.bridge.device_mut(side).give_back();
        }
        Ok(round)
    }

    fn nap(&mut self, span: Duration) -> io::Result<()> {
        self.has_waited = self.may_wait();
        match self.has_waited {
            true => self.bridge.nap(span),
            false => Ok(()),
        }
    }

    fn sleep(&mut self, longest: Duration) -> io::Result<Option<Woken>> {
        self.has_waited = self.may_wait();
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

/// Returns whether there is another round: until stopped, and then while packets are queued and time remains, which
/// ends at `draining`.
fn goes_on(stop: &Stop, bridge: &mut SiteBridge, now: Nanos, draining: &mut Option<Nanos>) -> bool {
    if !stop.is_asked() {
        return true;
    }
    let until = *draining.get_or_insert_with(|| {
        bridge.close();
        now + nanos(stop.drain())
    });
    now < until && !stop.is_asked_at_once() && !bridge.is_drained()
}

/// There is space: the control thread sends the next order after it has the answer to the last.
fn answer(answers: &mut Producer<Order>, order: Option<Order>) {
    if let Some(order) = order {
        let _ = answers.push(order);
    }
}
