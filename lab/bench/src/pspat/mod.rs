//! Many clients, one arbiter; and the lock that it replaces.

mod arbiter;
mod case;
mod lock;
mod none;
mod outcome;
mod output;
mod senders;
mod victim;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use fairlane_core::Nanos;
use fairlane_runtime::Clock;

pub use case::{Case, Mode, Transmit, Way, measure, name};
pub use outcome::Outcome;
pub use victim::Victim;

/// Mailboxes that an arbiter looks at in a step, unless said otherwise.
pub const SCAN_LIMIT: u32 = fairlane_runtime::ArbiterConfig::SCAN_LIMIT as u32;

/// Time that all clients send before anything is counted.
const WARM_UP: Nanos = Nanos::from_millis(200);

/// Packets a flow should be able to queue: as many as the arbiter may release between two looks
/// at one mailbox; of many flows each gets little, and all of them should fit the cache.
pub fn queue_for(active: u32) -> u32 {
    (8192 / active.max(1)).clamp(64, 512)
}

/// Waits until all threads have started, and then for the time before anything is counted.
fn warm_up(started: &AtomicU32, threads: u32, clock: &Clock, stop: &AtomicBool) {
    while started.load(Ordering::Acquire) < threads {
        std::thread::yield_now();
    }
    wait_until(clock.now() + WARM_UP, clock, stop);
}

/// Sleeps until `time`, or until `stop` is set.
fn wait_until(time: Nanos, clock: &Clock, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let left = time.since(clock.now());
        if left == Nanos::ZERO {
            return;
        }
        std::thread::sleep(left.min(Nanos::from_millis(50)).into());
    }
}
