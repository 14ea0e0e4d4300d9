//! How long packets have waited in a ring that the kernel fills.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Computes how long packets have waited, from the kernel's timestamps of their arrival.
///
/// All packets in a ring that was once empty arrived later than that: no packet counts as having
/// waited for longer, whatever its timestamp says. A clock that is set while packets wait therefore
/// falsifies their waits by at most the time since the ring was last empty, and those of later
/// packets not at all.
#[derive(Debug)]
pub(crate) struct Waits {
    /// When the ring was last found empty, on the clock that is never set.
    empty: Duration,
}

/// One look at a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// When, on the clock of the notes.
    now: Duration,
    /// Since the ring was last found empty.
    most: Duration,
    /// When, on the clock that is never set.
    steady: Duration,
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    // Below 10^9.
    Duration::new(seconds, time.tv_nsec as u32)
}

impl Waits {
    /// Of a ring that is empty now.
    pub(crate) fn new() -> Waits {
        Waits {
            empty: read(ClockId::Monotonic),
        }
    }

    /// Returns a look at a ring whose notes are the time of the world. Before the ring is read.
    pub(crate) fn look_by_wall(&self) -> Look {
        self.look(read(ClockId::Realtime), read(ClockId::Monotonic))
    }

    /// Returns a look at a ring whose notes are the time since the start of the machine.
    pub(crate) fn look_by_uptime(&self) -> Look {
        let now = read(ClockId::Monotonic);
        self.look(now, now)
    }

    fn look(&self, now: Duration, steady: Duration) -> Look {
        Look {
            now,
            most: steady.saturating_sub(self.empty),
            steady,
        }
    }

    /// Records that all arrivals before `look` have been received.
    pub(crate) fn emptied(&mut self, look: Look) {
        self.empty = look.steady;
    }
}

impl Look {
    /// Returns how long a packet with the timestamp `note` has waited.
    pub(crate) fn waited(self, note: Duration) -> Duration {
        self.now.saturating_sub(note).min(self.most)
    }

    /// The same for a note that may be none at all: no wait if it cannot be. It is made some time
    /// before the packet is in the ring, which may have been found empty in between.
    pub(crate) fn waited_if_noted(self, note: Duration) -> Duration {
        const BETWEEN: Duration = Duration::from_millis(10);
        match self.now.checked_sub(note) {
            Some(waited) if waited <= self.most + BETWEEN => waited,
            _ => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_packet_has_waited_since_it_came() {
        let mut waits = Waits { empty: ms(100) };
        let look = waits.look(ms(70_250), ms(250));
        assert_eq!(look.waited(ms(70_150)), ms(100));
        assert_eq!(look.waited(ms(70_250)), ms(0));
        waits.emptied(look);
        assert_eq!(waits.look(ms(70_260), ms(260)).waited(ms(70_251)), ms(9));
    }

    #[test]
    fn a_clock_that_is_set_makes_no_wait_longer_than_since_the_ring_was_empty() {
        let waits = Waits { empty: ms(100) };
        // An hour forward, and back, while a packet waited.
        let forward = waits.look(ms(3_670_250), ms(250));
        assert_eq!(forward.waited(ms(70_150)), ms(150));
        let back = waits.look(ms(10), ms(250));
        assert_eq!(back.waited(ms(70_150)), ms(0));
    }

    #[test]
    fn a_note_that_cannot_be_is_none() {
        let waits = Waits { empty: ms(100) };
        let look = waits.look(ms(250), ms(250));
        assert_eq!(look.waited_if_noted(ms(150)), ms(100));
        assert_eq!(look.waited_if_noted(ms(90)), ms(160));
        for stale in [ms(89), ms(251), Duration::from_nanos(u64::MAX)] {
            assert_eq!(look.waited_if_noted(stale), ms(0));
        }
    }
}
