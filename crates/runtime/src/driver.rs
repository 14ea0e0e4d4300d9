//! The loop around an arbiter's step, for a thread of its own.

use std::io;
use std::time::Duration;

use fairlane_core::{Nanos, Scheduler};
use fairlane_io::Backend;

use crate::{Arbiter, Clock, Next, Step};

/// What an arbiter's thread does between two steps.
#[derive(Clone, Copy, Debug)]
pub struct Idling {
    /// With less than this to wait it spins, as a sleep would end too late.
    pub spin_below: Nanos,
    /// Longest sleep: nobody wakes the arbiter, so this is how long a pushed packet
    /// may go unseen (Delta_A of PSPAT, Eq. 1).
    pub longest_sleep: Nanos,
}

impl Default for Idling {
    /// Spins below 10 microseconds, sleeps for at most 100.
    fn default() -> Self {
        Idling {
            spin_below: Nanos::from_micros(10),
            longest_sleep: Nanos::from_micros(100),
        }
    }
}

/// Steps the arbiter until `after_step` returns `false`. It is called after every
/// step, with the time of the step.
///
/// # Errors
///
/// The first error of a step.
pub fn drive<A, P, B>(
    arbiter: &mut Arbiter<A, P, B>,
    clock: &Clock,
    idling: Idling,
    mut after_step: impl FnMut(&mut Arbiter<A, P, B>, Nanos, &Step) -> bool,
) -> io::Result<()>
where
    A: Scheduler,
    P: Send,
    B: Backend<Tx = P>,
{
    loop {
        let now = clock.now();
        let step = arbiter.step(now)?;
        if !after_step(arbiter, now, &step) {
            return Ok(());
        }
        let wait = match step.next {
            Next::Now => continue,
            Next::At(time) => time.since(clock.now()).min(idling.longest_sleep),
            Next::WhenBackendTakesMore | Next::WhenPushed => idling.longest_sleep,
        };
        if wait < idling.spin_below {
            std::hint::spin_loop();
        } else {
            std::thread::sleep(Duration::from_nanos(wait.0));
        }
    }
}
