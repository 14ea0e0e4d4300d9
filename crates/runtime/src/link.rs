//! The link: its rate, its overhead per packet, and when it is idle.

use fairlane_core::leaky_bucket::{LeakyBucket, Window};
use fairlane_core::units::MAX_LENGTH;
use fairlane_core::{FlowConfig, Length, Nanos, Rate};

/// A link as the arbiter paces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its capacity.
    pub rate: Rate,
    /// Bytes that it carries for each packet in addition: headers, preamble, gap.
    pub overhead: u32,
    /// How much idle time may be made up for. A late arbiter releases in one burst as much as the
    /// link could have carried meanwhile, but no more than in this time.
    pub catch_up: Nanos,
}

impl Link {
    /// Returns a link without overhead that makes up for at most 20 ms.
    pub const fn new(rate: Rate) -> Self {
        Link {
            rate,
            overhead: 0,
            catch_up: Nanos::from_millis(20),
        }
    }

    /// Converts a flow's configuration into that of the queue, whose packets include the overhead.
    pub(crate) fn carrying(&self, config: FlowConfig) -> FlowConfig {
        FlowConfig {
            max_length: self.carried(config.max_length).unwrap_or(Length::MAX),
            ..config
        }
    }

    /// Returns the length on the link of a packet of `len` bytes, or `None` above 65,535.
    #[inline]
    pub fn carried(&self, len: Length) -> Option<Length> {
        Length::new(len.get().saturating_add(self.overhead))
    }

    /// Returns the longest packet whose carried length is in range.
    pub fn longest(&self) -> Option<Length> {
        Length::new(MAX_LENGTH.saturating_sub(self.overhead))
    }
}

/// Computes when the link will be idle. A [`LeakyBucket`] of the link's traffic, and the idle time
/// that it makes up for.
///
/// ```
/// use fairlane_core::{Length, Nanos};
/// use fairlane_runtime::{Link, Pacer};
///
/// let mut pacer = Pacer::new(Link::new("8mbit".parse()?), Nanos::ZERO);
/// pacer.charge(Length::try_from(1_000u32)?);
/// // 8,000 bits take a millisecond: then the next packet may go.
/// assert!(!pacer.may_release(Nanos::from_micros(999)));
/// assert_eq!(pacer.idle_at(), Nanos::from_millis(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Pacer {
    link: Link,
    released: LeakyBucket,
    /// How long the packets of one window take on the link, not counting the last one.
    longest_window: Nanos,
}

impl Pacer {
    /// Returns a pacer for a link that is idle from `now`.
    pub fn new(link: Link, now: Nanos) -> Self {
        Pacer {
            link,
            released: LeakyBucket::new(link.rate, now),
            longest_window: Nanos(u64::MAX),
        }
    }

    /// Returns the link.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Changes the link's rate from `now` on, also for packets that were released and not yet
    /// carried.
    pub fn change_rate(&mut self, rate: Rate, now: Nanos) {
        self.released.change_rate(rate, now);
        self.link.rate = rate;
    }

    /// Returns when all that was released will have been carried.
    #[doc(hidden)]
    pub fn idle_at(&self) -> Nanos {
        self.released.empty_at()
    }

    /// Returns whether a packet may be released at `now`.
    #[inline]
    #[doc(hidden)]
    pub fn may_release(&self, now: Nanos) -> bool {
        self.idle_at() <= now
    }

    /// Idle time further back than the link makes up for is lost.
    #[inline]
    #[doc(hidden)]
    pub fn forget_before(&mut self, now: Nanos) {
        self.idled(now - self.link.catch_up);
    }

    /// The link idled up to `now` for want of packets: nothing to make up for.
    #[inline]
    pub fn idled(&mut self, now: Nanos) {
        if self.idle_at() < now {
            self.released.restart(now);
        }
    }

    /// Limits the packets of one window, from now on: no more than the link carries in this time, and a packet. By
    /// default a late arbiter releases all that it may.
    pub fn limit_window(&mut self, longest: Nanos) {
        self.longest_window = longest;
    }

    /// Opens a window of the packets that may be released at `now`, without a division per packet:
    /// as often as `charge` and `may_release` would allow it, up to the [limit](Self::limit_window). It must be closed
    /// again.
    #[inline]
    pub fn open(&self, now: Nanos) -> Window {
        let limit = Nanos(self.idle_at().0.saturating_add(self.longest_window.0));
        self.released.open(now.min(limit))
    }

    /// Charges the link with the packets that were released while the window was open.
    #[inline]
    pub fn close(&mut self, window: Window) {
        self.released.close(window);
    }

    /// The link carries `len` bytes, overhead included, as soon as it is idle.
    #[inline]
    pub fn charge(&mut self, len: Length) {
        self.released.charge(len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pacer(bps: u64) -> Pacer {
        Pacer::new(Link::new(Rate::from_bps(bps).unwrap()), Nanos::ZERO)
    }

    fn length(bytes: u32) -> Length {
        Length::new(bytes).unwrap()
    }

    #[test]
    fn a_link_that_becomes_faster_carries_what_was_released_faster_too() {
        // A packet takes twelve seconds, of which two are over.
        let mut pacer = pacer(1_000);
        pacer.charge(length(1_500));
        assert_eq!(pacer.idle_at(), Nanos::from_secs(12));
        pacer.change_rate(Rate::from_bps(1_000_000).unwrap(), Nanos::from_secs(2));
        assert_eq!(pacer.idle_at(), Nanos::from_millis(2_010));
    }

    #[test]
    fn a_late_arbiter_makes_up_for_no_more_than_the_catch_up() {
        let mut pacer = pacer(1_000_000);
        pacer.forget_before(Nanos::from_millis(500));
        assert_eq!(pacer.idle_at(), Nanos::from_millis(480));
        pacer.forget_before(Nanos::from_millis(490));
        assert_eq!(pacer.idle_at(), Nanos::from_millis(480));
    }

    #[test]
    fn a_window_has_no_more_than_its_limit_and_a_packet() {
        // 125 bytes a millisecond.
        let mut pacer = pacer(1_000_000);
        pacer.limit_window(Nanos::from_millis(2));
        let now = Nanos::from_millis(10);
        let mut released = Vec::new();
        while pacer.may_release(now) {
            let mut window = pacer.open(now);
            released.push(0);
            while window.may_release() {
                window.charge(length(100));
                *released.last_mut().unwrap() += 100;
            }
            pacer.close(window);
        }
        assert!(
            released.iter().all(|&bytes| bytes <= 250 + 100),
            "{released:?}"
        );
        // All of the time is made up for, as without a limit.
        assert_eq!(released.iter().sum::<u32>(), 1_300);
    }

    #[test]
    fn a_link_that_idled_has_nothing_to_make_up_for() {
        let mut pacer = pacer(1_000_000);
        pacer.idled(Nanos::from_millis(5));
        assert!(pacer.may_release(Nanos::from_millis(5)));
        pacer.charge(length(125));
        assert!(!pacer.may_release(Nanos::from_millis(5)));
        assert!(pacer.may_release(Nanos::from_millis(6)));
        pacer.idled(Nanos::from_millis(5));
        assert_eq!(pacer.idle_at(), Nanos::from_millis(6));
    }

    #[test]
    fn overhead_counts_up_to_the_longest_length() {
        let link = Link {
            overhead: 28,
            ..Link::new(Rate::MIN)
        };
        assert_eq!(link.carried(length(100)), Some(length(128)));
        assert_eq!(link.longest(), Some(length(65_507)));
        assert_eq!(link.carried(length(65_507)), Some(Length::MAX));
        assert_eq!(link.carried(length(65_508)), None);
    }
}
