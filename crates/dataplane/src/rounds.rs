//! The count of a daemon's rounds, for threads and for a process that watches the daemon.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fairlane_io::SharedMemory;

/// Size in bytes of the memory that both processes map: the count only.
const BYTES: usize = size_of::<AtomicU64>();

/// The count of rounds. Only the forwarding thread writes it.
#[derive(Default)]
pub struct RoundCount {
    own: AtomicU64,
    shared: OnceLock<SharedMemory>,
}

impl RoundCount {
    pub fn get(&self) -> u64 {
        self.own.load(Ordering::Relaxed)
    }

    /// Writes the count, once a round: a store, and another one where a process watches.
    #[inline]
    pub fn made(&self, rounds: u64) {
        self.own.store(rounds, Ordering::Relaxed);
        self.share_count(rounds);
    }

    /// Ends the watch: no further round is due.
    pub fn ended(&self) {
        self.share_count(0);
    }

    fn share_count(&self, rounds: u64) {
        if let Some(memory) = self.shared.get() {
            memory.as_ref()[0].store(rounds, Ordering::Relaxed);
        }
    }

    /// Shares the count from now on. Returns the handle for the process that watches.
    pub fn share(&self) -> io::Result<OwnedFd> {
        let (memory, handle) = SharedMemory::create(BYTES)?;
        match self.shared.set(memory) {
            Ok(()) => Ok(handle),
            Err(_) => Err(io::ErrorKind::AlreadyExists.into()),
        }
    }
}

/// The rounds of a daemon in another process, which shared their count.
///
/// A daemon hangs if [`LOOKS`](Self::LOOKS) looks in a row find no new round. Looks are counted and time
/// is not: a machine that was suspended for an hour, or did not run the watching process meanwhile, is one
/// look late, and the daemon has the time of all other looks to make a round.
pub struct RoundWatch {
    memory: SharedMemory,
    seen: u64,
    still: u32,
}

impl RoundWatch {
    /// The time between two looks.
    pub const EVERY: Duration = Duration::from_millis(200);
    /// Looks without a new round after which a daemon hangs. An idle daemon makes ten rounds between two looks.
    pub const LOOKS: u32 = 5;
    /// The same before the first round: threads may have to be started.
    const FIRST: u32 = 50;

    /// Watches the daemon that shared this handle.
    ///
    /// # Errors
    ///
    /// The handle is not that of a count of rounds.
    pub fn open(handle: OwnedFd) -> io::Result<RoundWatch> {
        Ok(RoundWatch {
            memory: SharedMemory::open(handle, BYTES)?,
            seen: 0,
            still: 0,
        })
    }

    /// Looks at the count. Returns whether the daemon hangs; never after its last round.
    pub fn look(&mut self) -> bool {
        let rounds = self.memory.as_ref()[0].load(Ordering::Relaxed);
        let (is_over, is_first) = (rounds < self.seen, rounds == 0);
        if is_over {
            return false;
        }
        self.still = match rounds == self.seen {
            true => self.still + 1,
            false => 0,
        };
        self.seen = rounds;
        self.still
            >= match is_first {
                true => RoundWatch::FIRST,
                false => RoundWatch::LOOKS,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched() -> (RoundCount, RoundWatch) {
        let count = RoundCount::default();
        let watch = RoundWatch::open(count.share().unwrap()).unwrap();
        (count, watch)
    }

    /// Returns the number of polls until the daemon counts as hanging, at most `most`.
    fn looks_until_it_hangs(watch: &mut RoundWatch, most: u32) -> Option<u32> {
        (1..=most).find(|_| watch.look())
    }

    #[test]
    fn a_daemon_hangs_after_five_looks_without_a_round() {
        let (count, mut watch) = watched();
        for round in 1..100 {
            count.made(round);
            // The first poll sees the round; the fifth after that would be the last.
            let looks = RoundWatch::LOOKS;
            assert_eq!(looks_until_it_hangs(&mut watch, looks), None);
        }
        assert!(watch.look());
        count.made(100);
        assert!(!watch.look());
    }

    #[test]
    fn a_daemon_has_ten_seconds_for_its_first_round_and_none_are_due_after_the_last() {
        let (count, mut watch) = watched();
        assert_eq!(looks_until_it_hangs(&mut watch, 1_000), Some(50));
        count.made(7);
        assert!(!watch.look());
        count.ended();
        assert_eq!(looks_until_it_hangs(&mut watch, 1_000), None);
        assert_eq!(count.get(), 7);
        drop(count);
        assert!(!watch.look());
    }
}
