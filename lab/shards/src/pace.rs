//! A shard as the pace of an arbiter.

use fairlane_core::{Length, Nanos};
use fairlane_runtime::{Link, Next, Opening, Pace};

use crate::{Batch, Config, ConfigError, Shard, Wait, divide};

/// The pace of one of the arbiters of a link: it may send while bytes of its shard's batches are left.
///
/// The shard enters when a packet is queued, and goes idle when the queues are empty, when ceilings hold all packets,
/// and when the device accepts no more. A step takes one batch. All arbiters of a link must use one clock, or copies of
/// it.
///
/// ```
/// use fairlane_core::{FlowConfig, Length, Nanos, PacketScheduler, Weight, sched::Qfq};
/// use fairlane_io::{MemoryBackend, memory};
/// use fairlane_runtime::{Arbiter, ArbiterConfig, Link, Straight};
/// use fairlane_shards::{Config, Turns, share};
///
/// let link = Link::new("8gbit".parse()?);
/// let config = Config { rate: link.rate.bps(), batch: 3000, ahead: 6000, catch_up: 0, lead: 6000, patience: 5_000 };
/// let len = Length::try_from(1000u32)?;
/// let mut arbiters = Vec::new();
/// for turns in share(link, config, &[2, 1])? {
///     let (near, far): (MemoryBackend<Vec<u8>>, MemoryBackend<Vec<u8>>) = memory::pair(1024);
///     let queue = PacketScheduler::new(Qfq::new(), Default::default());
///     let config = ArbiterConfig::new(link);
///     let mut arbiter: Arbiter<_, _, Turns> =
///         Arbiter::paced(queue, config, Straight::to(near), turns, Nanos::ZERO);
///     let flow = arbiter.open_flow(FlowConfig::new(Weight::ONE, len))?;
///     for _ in 0..500 {
///         arbiter.admit(flow, len, vec![0; 1000], Nanos::ZERO)?;
///     }
///     arbiters.push((arbiter, far));
/// }
/// // On separate threads in practice, alternating here: a byte per nanosecond.
/// for now in (0..300_000).step_by(500).map(Nanos) {
///     for (arbiter, _far) in &mut arbiters {
///         arbiter.step(now)?;
///     }
/// }
/// let [first, second] = [0, 1].map(|at: usize| arbiters[at].0.total_stats().sent.bytes);
/// assert!(first.abs_diff(2 * second) <= 2 * 9000, "{first} and {second}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Turns {
    link: Link,
    shard: Shard,
    /// The time from a look that found another shard too far behind to the next look.
    again: Nanos,
    /// No look can succeed before this time.
    look_at: Nanos,
    /// Whether this shard has entered and not gone idle.
    is_in: bool,
    looks: Looks,
}

/// Counts of a shard's looks by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Looks {
    /// Looks that took a batch.
    pub taken: u64,
    /// Bytes that these took.
    pub bytes: u64,
    /// Looks that found no room on the wire.
    pub wire: u64,
    /// Looks that found another shard too far behind.
    pub others: u64,
    /// Number of times that it went idle.
    pub idle: u64,
}

/// Divides `link` into one shard per weight, each the sum of its classes' weights at the cut.
///
/// The rate in `config` must be the link's. A shard that waits for others looks again after a quarter of the patience,
/// or of the time of Q if that is less, and not before the link has room for a batch, which limits the number of looks
/// while it waits.
///
/// # Errors
///
/// [`ConfigError`], which names the value that is out of range.
pub fn share(link: Link, config: Config, weights: &[u32]) -> Result<Vec<Turns>, ConfigError> {
    let queue = u128::from(config.ahead) * 8_000_000_000 / u128::from(config.rate.max(1));
    let again = queue.min(config.patience.into()) / 4;
    let again = Nanos((again as u64).max(1));
    let turns = |shard| Turns {
        link,
        shard,
        again,
        look_at: Nanos::ZERO,
        is_in: false,
        looks: Looks::default(),
    };
    Ok(divide(config, weights)?.into_iter().map(turns).collect())
}

impl Turns {
    /// Returns the shard.
    #[must_use]
    pub fn shard(&self) -> &Shard {
        &self.shard
    }

    /// Returns the counts of its looks.
    #[must_use]
    pub fn looks(&self) -> Looks {
        self.looks
    }

    fn take(&mut self, now: Nanos, waiting: u64) {
        self.is_in = true;
        match self.shard.try_take(now.0, waiting) {
            Ok(Batch { bytes }) => {
                self.looks.taken += 1;
                self.looks.bytes += bytes;
            }
            Err(Wait::Wire { until }) => {
                self.looks.wire += 1;
                self.look_at = Nanos(until);
            }
            Err(Wait::Others) => {
                self.looks.others += 1;
                self.look_at = Nanos(self.shard.room_at()).max(now + self.again);
            }
        }
    }

    fn go_idle(&mut self) {
        if self.is_in {
            self.is_in = false;
            self.look_at = Nanos::ZERO;
            self.looks.idle += 1;
            self.shard.idle();
        }
    }
}

/// The remaining bytes of a shard's batches.
#[derive(Debug)]
pub struct Credit {
    before: i64,
    left: i64,
}

impl Opening for Credit {
    #[inline]
    fn may_release(&self) -> bool {
        self.left > 0
    }

    #[inline]
    fn charge(&mut self, len: Length) {
        self.left -= i64::from(len.get());
    }
}

impl Pace for Turns {
    type Opening = Credit;

    fn link(&self) -> &Link {
        &self.link
    }

    fn open(&mut self, now: Nanos, waiting: impl FnOnce() -> u64) -> Credit {
        if self.shard.credit() <= 0 && now >= self.look_at {
            match waiting() {
                0 => self.go_idle(),
                waiting => self.take(now, waiting),
            }
        }
        let left = self.shard.credit();
        Credit { before: left, left }
    }

    fn close(&mut self, credit: Credit, _: Nanos) {
        self.shard.sent((credit.before - credit.left) as u64);
    }

    fn idled(&mut self, _: Nanos) {
        self.go_idle();
    }

    fn held_up(&mut self) {
        self.go_idle();
    }

    fn next(&self, now: Nanos) -> Next {
        match self.shard.credit() > 0 || self.look_at <= now {
            true => Next::Now,
            false => Next::At(self.look_at),
        }
    }
}

#[cfg(test)]
mod tests {
    use fairlane_core::sched::Drr;
    use fairlane_core::{FlowConfig, PacketScheduler, Weight};
    use fairlane_io::{MemoryBackend, memory};
    use fairlane_runtime::{Arbiter, ArbiterConfig, Straight};

    use super::*;

    #[test]
    fn an_arbiter_with_nothing_to_send_waits_until_something_comes() {
        let link = Link::new("8gbit".parse().unwrap());
        let config = Config {
            rate: link.rate.bps(),
            batch: 3_000,
            ahead: 6_000,
            catch_up: 0,
            lead: 6_000,
            patience: 5_000,
        };
        let turns = share(link, config, &[1]).unwrap().remove(0);
        let (near, _far): (MemoryBackend<Vec<u8>>, MemoryBackend<Vec<u8>>) = memory::pair(64);
        let queue = PacketScheduler::new(Drr::new(), Default::default());
        let mut arbiter = Arbiter::paced(
            queue,
            ArbiterConfig::new(link),
            Straight::to(near),
            turns,
            Nanos::ZERO,
        );
        let waits = |arbiter: &mut Arbiter<_, _, Turns>, now| {
            let step = arbiter.step(Nanos(now)).unwrap();
            (step.released, step.next)
        };
        assert_eq!(waits(&mut arbiter, 0), (0, Next::WhenPushed));
        let len = Length::new(1_000).unwrap();
        let flow = arbiter
            .open_flow(FlowConfig::new(Weight::ONE, len))
            .unwrap();
        for _ in 0..3 {
            arbiter.admit(flow, len, vec![0; 1_000], Nanos(1)).unwrap();
        }
        assert_eq!(arbiter.step(Nanos(1)).unwrap().released, 3);
        assert_eq!(waits(&mut arbiter, 2), (0, Next::WhenPushed));
        assert_eq!(waits(&mut arbiter, 1_000_000), (0, Next::WhenPushed));
    }
}
