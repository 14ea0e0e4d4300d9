//! The loop around an arbiter's step, for a thread of its own.

use std::io;
use std::time::Duration;

use fairlane_core::Nanos;

use crate::queue::Queue;
use crate::release::Release;
use crate::{Arbiter, Clock, Next, Step, Woken};

/// What [`drive`] asks of an arbiter. As `dyn Steps`, it costs one indirect call a step, and what
/// drives an arbiter need not be compiled for every queue.
pub trait Steps {
    /// See [`Arbiter::step`].
    ///
    /// # Errors
    ///
    /// What the backend says when it is unusable.
    fn step(&mut self, now: Nanos) -> io::Result<Step>;

    /// See [`Arbiter::sleep`].
    fn sleep(&mut self, longest: Duration) -> Option<Woken>;

    /// What the thread tells after a sleep: how much too late it ended, and what ended it,
    /// if anything but the clock could.
    fn slept(&mut self, late: Nanos, woken: Option<Woken>);
}

impl<Q: Queue, R: Release<Q::Payload>> Steps for Arbiter<Q, R> {
    fn step(&mut self, now: Nanos) -> io::Result<Step> {
        Arbiter::step(self, now)
    }

    fn sleep(&mut self, longest: Duration) -> Option<Woken> {
        Arbiter::sleep(self, longest)
    }

    fn slept(&mut self, late: Nanos, woken: Option<Woken>) {
        Arbiter::slept(self, late, woken);
    }
}

/// What an arbiter's thread does between two steps.
#[derive(Clone, Copy, Debug)]
pub struct Idling {
    /// With less than this to wait it spins, as a sleep would end too late.
    pub spin_below: Nanos,
    /// How long it spins for new packets before it sleeps: T_w of PSPAT, Section 3.5. A
    /// client pays for a wake-up at most once in so long.
    pub spin_for: Nanos,
    /// Longest sleep from which no client wakes it: while the link is busy, a device full,
    /// or packets held back. A pushed packet may go unseen for so long (Delta_A of Eq. 1),
    /// but could not have left either.
    pub nap: Nanos,
    /// Longest sleep at all, though clients wake it.
    pub longest_sleep: Nanos,
    /// Never sleeps: for an arbiter with a core of its own ([`pin_to_core`]).
    pub dedicated: bool,
}

impl Default for Idling {
    /// Spins below 10 microseconds and for 50 when idle, naps for at most 100, and sleeps
    /// for at most 100 milliseconds.
    fn default() -> Self {
        Idling {
            spin_below: Nanos::from_micros(10),
            spin_for: Nanos::from_micros(50),
            nap: Nanos::from_micros(100),
            longest_sleep: Nanos::from_millis(100),
            dedicated: false,
        }
    }
}

impl Idling {
    /// Never sleeps.
    pub fn dedicated() -> Self {
        Idling {
            dedicated: true,
            ..Idling::default()
        }
    }
}

/// What to do before the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// The next step at once.
    Spin,
    /// A sleep that nobody ends early.
    Nap(Nanos),
    /// A sleep that clients end.
    Sleep(Nanos),
}

/// Decides between spinning and sleeping.
#[derive(Debug)]
pub(crate) struct Rest {
    idling: Idling,
    worked_at: Nanos,
    /// A client kept the thread from sleeping, and no packet has moved since: one waits in
    /// a mailbox that is not to be emptied yet.
    kept_awake: bool,
}

impl Rest {
    pub(crate) fn new(idling: Idling) -> Self {
        Rest {
            idling,
            worked_at: Nanos::ZERO,
            kept_awake: false,
        }
    }

    /// After a step at `now`, which `worked` or found nothing to do until `next`.
    pub(crate) fn after(&mut self, now: Nanos, worked: bool, next: Next) -> Pause {
        if worked {
            self.worked_at = now;
            self.kept_awake = false;
        }
        let Idling {
            spin_below,
            spin_for,
            nap,
            longest_sleep,
            dedicated,
        } = self.idling;
        let spun = now.since(self.worked_at) >= spin_for;
        match next {
            _ if dedicated => Pause::Spin,
            Next::Now => Pause::Spin,
            Next::WhenBackendTakesMore if spun => Pause::Nap(nap),
            Next::WhenBackendTakesMore => Pause::Spin,
            Next::WhenPushed if spun => self.sleep(longest_sleep),
            Next::WhenPushed => Pause::Spin,
            Next::At(time) => match time.since(now) {
                wait if wait < spin_below => Pause::Spin,
                wait if wait > nap && spun => self.sleep(wait.min(longest_sleep)),
                wait => Pause::Nap(wait.min(nap)),
            },
        }
    }

    fn sleep(&self, longest: Nanos) -> Pause {
        match self.kept_awake {
            true => Pause::Nap(longest.min(self.idling.nap)),
            false => Pause::Sleep(longest),
        }
    }

    /// There was no sleep at `now`, as somebody had pushed: it spins once more, then naps.
    pub(crate) fn kept_awake(&mut self, now: Nanos) {
        self.worked_at = now;
        self.kept_awake = true;
    }
}

/// Steps the arbiter until `after_step` returns `false`. It is called after every
/// step, with the time of the step, at least once in [`Idling::longest_sleep`].
///
/// Asks the system for timers without slack, where it can, so that sleeps end in time.
///
/// # Errors
///
/// The first error of a step.
pub fn drive<A: Steps + ?Sized>(
    arbiter: &mut A,
    clock: &Clock,
    idling: Idling,
    mut after_step: impl FnMut(&mut A, Nanos, &Step) -> bool,
) -> io::Result<()> {
    exact_timers();
    let mut rest = Rest::new(idling);
    loop {
        let now = clock.now();
        let step = arbiter.step(now)?;
        if !after_step(arbiter, now, &step) {
            return Ok(());
        }
        let worked = step.drained + step.released + step.transmitted > 0;
        match rest.after(now, worked, step.next) {
            Pause::Spin => std::hint::spin_loop(),
            Pause::Nap(span) => {
                std::thread::sleep(span.into());
                arbiter.slept(clock.now().since(now + span), None);
            }
            Pause::Sleep(span) => match arbiter.sleep(span.into()) {
                Some(woken) => {
                    let late = clock.now().since(now + span);
                    arbiter.slept(late, Some(woken));
                }
                None => rest.kept_awake(now),
            },
        }
    }
}

/// Lets the sleeps of the calling thread end without the slack of 50 microseconds that the
/// system adds by default.
#[cfg(target_os = "linux")]
pub(crate) fn exact_timers() {
    // A thread that may not is merely later.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

#[cfg(not(target_os = "linux"))]
fn exact_timers() {}

/// Keeps the calling thread on one core, counted from 0.
///
/// # Errors
///
/// There is no such core, or this thread may not run there.
#[cfg(target_os = "linux")]
pub fn pin_to_core(core: usize) -> io::Result<()> {
    let mut cores = rustix::thread::CpuSet::new();
    if core >= rustix::thread::CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    cores.set(core);
    Ok(rustix::thread::sched_setaffinity(None, &cores)?)
}
