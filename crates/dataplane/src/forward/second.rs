//! A second forwarding thread: each link then has its own arbiter thread.
//!
//! The bridge belongs to the first thread. While it has no orders, the lane of one direction is split off and lent to
//! the second thread, with the workers at the interface where its frames arrive. Before any other work than forwarding
//! (an order, a lost interface, the end) the lane is recalled, and until it is lent again the first thread forwards
//! both directions: all of that work is done as with one thread.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{self, JoinHandle};

use fairlane_core::Nanos;
use fairlane_runtime::bridge::Side;
use fairlane_runtime::{Clock, drive};

use super::round::{IDLING, Rounds, guard_early};
use crate::bridge::SiteBridge;
use crate::early::Guard;
use crate::threads::{Bell, raise_priority};

/// The egress side of the lane that is lent.
pub const LENT: Side = Side::Left;
/// Time without orders before the lane is lent, since an order is often followed by more.
const SETTLED: Nanos = Nanos::from_millis(1);
/// Longest time in which a thread that does not hang gives the lane back.
const PATIENCE: Nanos = Nanos::from_millis(1_000);

/// A lane with its state.
struct Half {
    bridge: SiteBridge,
    guard: Guard,
    /// The first thread's bell, rung when the lane is back.
    bell: Arc<Bell>,
}

/// A returned lane, and the result of its rounds.
type Back = (Half, io::Result<()>);

/// Where the lane is.
#[derive(Clone, Copy)]
enum Lane {
    /// Here since.
    Home(Nanos),
    Lent,
    /// Recalled at this time.
    Called(Nanos),
}

/// The second thread, to the first one.
pub struct Second {
    lend: Sender<Half>,
    back: Receiver<Back>,
    /// Asks for the lane's return.
    call: Arc<AtomicBool>,
    /// Ends a sleep of the second thread, while it has the lane.
    bell: Option<Arc<Bell>>,
    lane: Lane,
    thread: JoinHandle<()>,
}

impl Second {
    pub fn start(clock: Clock, now: Nanos) -> io::Result<Second> {
        let (lend, lent) = channel::<Half>();
        let (give, back) = channel();
        let call = Arc::new(AtomicBool::new(false));
        let called = Arc::clone(&call);
        let thread = thread::Builder::new().name("forward 2".to_owned());
        let thread = thread.spawn(move || {
            raise_priority();
            for mut half in lent {
                let outcome = forward(&mut half, &clock, &called);
                let bell = Arc::clone(&half.bell);
                // If the receiver is gone, the run has ended.
                let _ = give.send((half, outcome));
                bell.ring();
            }
        })?;
        Ok(Second {
            lend,
            back,
            call,
            bell: None,
            lane: Lane::Home(now),
            thread,
        })
    }

    /// Between two rounds of the first thread: lends the lane, or recalls it if `stays` says that it must be there.
    /// Returns whether it is, and was before this round.
    ///
    /// # Errors
    ///
    /// The error that ended its rounds.
    pub fn look(
        &mut self,
        bridge: &mut SiteBridge,
        guard: &mut Guard,
        stays: bool,
        now: Nanos,
    ) -> io::Result<bool> {
        match self.lane {
            Lane::Home(since) if stays || now.since(since) < SETTLED => {
                if stays {
                    self.lane = Lane::Home(now);
                }
                Ok(true)
            }
            Lane::Home(_) => Ok(!self.lend(bridge, guard)),
            Lane::Lent | Lane::Called(_) => match self.back.try_recv() {
                Ok(back) => {
                    self.join(bridge, guard, back, now)?;
                    // Its last round may have begun later than this one: time never goes back there.
                    Ok(false)
                }
                Err(TryRecvError::Disconnected) => Err(ended()),
                Err(TryRecvError::Empty) => {
                    // Frames of either arrive at one of the threads.
                    let mut sides = Side::BOTH.into_iter();
                    let is_gone = sides.any(|side| bridge.device(side).must_return());
                    if let Lane::Lent = self.lane
                        && (stays || is_gone)
                    {
                        self.call(now);
                    }
                    if let Lane::Called(_) = self.lane {
                        bridge.hurry();
                    }
                    Ok(false)
                }
            },
        }
    }

    /// Whether the second thread does not give back the lane.
    pub fn hangs(&self, now: Nanos) -> bool {
        matches!(self.lane, Lane::Called(since) if now.since(since) > PATIENCE)
    }

    /// Ends the thread, once the lane is home.
    ///
    /// # Errors
    ///
    /// The error that ended its rounds.
    pub fn end(mut self, bridge: &mut SiteBridge, guard: &mut Guard, now: Nanos) -> io::Result<()> {
        let outcome = match self.lane {
            Lane::Home(_) => Ok(()),
            Lane::Lent | Lane::Called(_) => {
                self.call(now);
                let back = self.back.recv().map_err(|_| ended());
                back.and_then(|back| self.join(bridge, guard, back, now))
            }
        };
        drop(self.lend);
        // A panic of its has been seen.
        let _ = self.thread.join();
        outcome
    }

    fn call(&mut self, now: Nanos) {
        self.call.store(true, Ordering::Release);
        if let Some(bell) = &self.bell {
            bell.ring();
        }
        self.lane = Lane::Called(now);
    }

    /// Whether it could.
    fn lend(&mut self, bridge: &mut SiteBridge, guard: &mut Guard) -> bool {
        if !Side::BOTH
            .into_iter()
            .all(|side| bridge.device(side).can_lend())
        {
            return false;
        }
        let [here, there] = [LENT, LENT.other()].map(|side| bridge.device_mut(side).lend());
        let (Some(here), Some(there)) = (here, there) else {
            return false;
        };
        self.call.store(false, Ordering::Relaxed);
        self.bell = Some(there.bell);
        let half = Half {
            bridge: bridge.split_off(LENT, here.entrance, there.entrance),
            guard: std::mem::take(guard),
            bell: here.bell,
        };
        self.lane = Lane::Lent;
        // Where the thread has ended, that is met as soon as the lane is asked for.
        let _ = self.lend.send(half);
        true
    }

    /// The lane is home.
    fn join(
        &mut self,
        bridge: &mut SiteBridge,
        guard: &mut Guard,
        (half, outcome): Back,
        now: Nanos,
    ) -> io::Result<()> {
        bridge.join(LENT, half.bridge);
        *guard = half.guard;
        for side in Side::BOTH {
            bridge.device_mut(side).reclaim();
        }
        self.bell = None;
        self.lane = Lane::Home(now);
        outcome
    }
}

/// Makes the rounds of a lane until it is recalled, or its interface is gone.
fn forward(half: &mut Half, clock: &Clock, called: &AtomicBool) -> io::Result<()> {
    let Half { bridge, guard, .. } = half;
    drive(
        &mut Rounds::of(bridge, true),
        clock,
        IDLING,
        |rounds_of, now, round| {
            let bridge = &mut *rounds_of.bridge;
            guard_early(bridge, LENT, guard, true, round, now);
            let mut sides = Side::BOTH.into_iter();
            !called.load(Ordering::Acquire) && !sides.any(|side| bridge.device(side).must_return())
        },
    )
}

fn ended() -> io::Error {
    io::Error::other("a forwarding thread has ended")
}
