//! The forwarding thread: rounds of the bridge, and between two rounds a small part of the control thread's orders. It
//! reads no file, prints nothing and waits for no lock. If each link has an arbiter on a thread of its own, there are
//! two forwarding threads.

pub mod round;
pub mod second;

use crate::bridge::SiteBridge;
use crate::early::Guard;
use crate::rounds::RoundCount;
use crate::steps::{Longest, StepKind, Work};
use crate::stop::Stop;
use crate::threads::raise_priority;
use fairlane_core::Nanos;
use fairlane_mailbox::{Consumer, Producer};
use fairlane_runtime::bridge::Side;
use fairlane_runtime::{Clock, drive};
use round::{IDLING, Rounds, guard_early};
use second::Second;
use std::io;
use std::sync::Arc;

/// Returns how long to poll for orders more often after this one.
fn attention(is_routine: bool) -> Nanos {
    match is_routine {
        true => ATTENTIVE_TO_COUNTS,
        false => ATTENTIVE,
    }
}

/// How long after an order to poll more often: one change is often followed by another.
const ATTENTIVE: Nanos = Nanos::from_millis(100);

/// The same after an order to count, which comes once per second.
const ATTENTIVE_TO_COUNTS: Nanos = Nanos::from_millis(5);

/// State shared by the forwarding thread and the control thread.
pub struct Forwarding<W> {
    pub clock: Clock,
    pub stop: Arc<Stop>,
    /// The count of rounds, for threads and processes that watch it.
    pub rounds: Arc<RoundCount>,
    /// One at a time.
    pub orders: Consumer<W>,
    pub answers: Producer<W>,
    /// The longest times between two rounds while something was ordered.
    pub longest: Arc<Longest>,
    /// Whether other threads receive.
    pub has_workers: bool,
    /// Whether each link has an arbiter on a thread of its own.
    pub has_second: bool,
}

impl<W: Work> Forwarding<W> {
    /// Forwards until `end`, or until it is stopped and has sent the backlog, with [raised
    /// priority](raise_priority). Completes the orders received by then. Calls `begin` before its own devices
    /// receive.
    pub fn run(
        mut self,
        bridge: &mut SiteBridge,
        end: Nanos,
        begin: impl FnOnce(&mut SiteBridge, &Clock) -> io::Result<()>,
    ) -> io::Result<()> {
        raise_priority();
        // Before taking anything from another process, which continues if this fails.
        let mut second = match self.has_second {
            true => Some(Second::start(self.clock, self.clock.now())?),
            false => None,
        };
        begin(bridge, &self.clock)?;
        start_workers(bridge)?;
        let mut failed = None;
        let mut doing = None;
        let mut guards = [Guard::default(), Guard::default()];
        // When the last round began, and the kind of work, if part of an order was done after it.
        let mut worked_at: Option<(Nanos, StepKind)> = None;
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
                    attentive_until = attentive_until.max(now + attention(order.is_routine()));
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
                    let what = order.kind();
                    worked_at = Some((now, what));
                    if self.longest.during(what, || order.step(bridge, now)) {
                        answer(&mut self.answers, doing.take());
                    }
                }
                now < end && continues(&self.stop, bridge, now, &mut draining)
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

/// Starts the workers that are configured and not running.
pub fn start_workers(bridge: &mut SiteBridge) -> io::Result<()> {
    let mut sides = Side::BOTH.into_iter();
    sides.try_for_each(|side| bridge.device_mut(side).start())
}

/// Returns whether there is another round: until stopped, and then while packets are queued and time remains, which
/// ends at `draining`.
fn continues(
    stop: &Stop,
    bridge: &mut SiteBridge,
    now: Nanos,
    draining: &mut Option<Nanos>,
) -> bool {
    if !stop.is_asked() {
        return true;
    }
    let until = *draining.get_or_insert_with(|| {
        bridge.close();
        now + Nanos::from(stop.drain())
    });
    now < until && !stop.is_asked_at_once() && !bridge.is_drained()
}

/// There is space: the control thread sends the next order after it has the answer to the last.
fn answer<W>(answers: &mut Producer<W>, order: Option<W>) {
    if let Some(order) = order {
        let _ = answers.push(order);
    }
}
