//! The link: how fast it is, what it adds to a packet, and when it is idle.

use fairlane_core::units::MAX_LENGTH;
use fairlane_core::{FlowConfig, Length, Nanos, Rate};

/// A link as the arbiter paces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// What it carries.
    pub rate: Rate,
    /// Bytes it carries beside each packet: headers, preamble, gap.
    pub overhead: u32,
    /// How much idle time may be made up for. An arbiter that comes late releases
    /// in one burst what the link could have carried meanwhile, but no more than in
    /// this time.
    pub catch_up: Nanos,
}

impl Link {
    /// A link without overhead that makes up for at most 20 ms.
    pub const fn new(rate: Rate) -> Self {
        Link {
            rate,
            overhead: 0,
            catch_up: Nanos::from_millis(20),
        }
    }

    /// What a flow is to the queue whose packets are as long as `config` says without the overhead.
    pub(crate) fn carrying(&self, config: FlowConfig) -> FlowConfig {
        FlowConfig {
            max_length: self.carried(config.max_length).unwrap_or(Length::MAX),
            ..config
        }
    }

    /// What the link carries for a packet of `len` bytes, or `None` beyond 65,535.
    #[inline]
    pub fn carried(&self, len: Length) -> Option<Length> {
        Length::new(len.get().saturating_add(self.overhead))
    }

    /// The longest packet whose carried length is in range.
    pub fn longest(&self) -> Option<Length> {
        Length::new(MAX_LENGTH.saturating_sub(self.overhead))
    }
}

/// A leaky bucket in the link's own units: when will the link be idle?
///
/// Times are exact: what a division leaves is carried to the next packet, so that
/// the rate holds to the bit over any time.
#[derive(Clone, Debug)]
pub struct Pacer {
    link: Link,
    idle_at: Nanos,
    /// Fraction of a nanosecond, in 1 / rate: 0 to rate - 1.
    remainder: u64,
}

impl Pacer {
    /// A pacer for a link that is idle from `now`.
    pub fn new(link: Link, now: Nanos) -> Self {
        Pacer {
            link,
            idle_at: now,
            remainder: 0,
        }
    }

    /// The link.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// From here on the link has another rate; what was released is carried at the former one.
    pub fn change_rate(&mut self, rate: Rate) {
        let fraction = u128::from(self.remainder) * u128::from(rate.bps());
        // Below the new rate, as the remainder is below the old one.
        self.remainder = (fraction / u128::from(self.link.rate.bps())) as u64;
        self.link.rate = rate;
    }

    /// When all that was released will have been carried.
    pub fn idle_at(&self) -> Nanos {
        self.idle_at
    }

    /// Whether a packet may be released at `now`.
    #[inline]
    pub fn may_release(&self, now: Nanos) -> bool {
        self.idle_at <= now
    }

    /// Idle time further back than the link makes up for is lost.
    #[inline]
    pub fn forget_before(&mut self, now: Nanos) {
        self.lose(now - self.link.catch_up);
    }

    /// The link idled up to `now` for want of packets: nothing to make up for.
    #[inline]
    pub fn idled(&mut self, now: Nanos) {
        self.lose(now);
    }

    #[inline]
    fn lose(&mut self, until: Nanos) {
        if self.idle_at < until {
            self.idle_at = until;
            self.remainder = 0;
        }
    }

    /// What may be released at `now`, packet by packet without a division: as often as
    /// `charge` and `may_release` would allow it. To be closed again.
    #[inline]
    pub fn open(&self, now: Nanos) -> Window {
        let limit = match now.0.checked_sub(self.idle_at.0) {
            // The link is idle at `now` while what it carries from `idle_at` on takes less
            // than this: idle_at + (carried + remainder) / rate, rounded down, <= now.
            Some(span) => span.saturating_add(1).saturating_mul(self.link.rate.bps()),
            None => 0,
        };
        Window {
            carried: self.remainder,
            limit,
        }
    }

    /// The link carries what was charged while the window was open.
    #[inline]
    pub fn close(&mut self, window: Window) {
        let rate = self.link.rate.bps();
        self.idle_at = self.idle_at + Nanos(window.carried / rate);
        self.remainder = window.carried % rate;
    }

    /// The link carries `len` bytes, overhead included, as soon as it is idle.
    #[inline]
    pub fn charge(&mut self, len: Length) {
        self.close(Window {
            carried: scaled(len) + self.remainder,
            limit: 0,
        });
    }
}

/// What a [`Pacer`] lets pass at one time.
#[derive(Debug)]
#[must_use = "a window that is not closed charges nothing"]
pub struct Window {
    /// In billionths of a bit: what is carried, and the remainder from before.
    carried: u64,
    limit: u64,
}

impl Window {
    /// Whether a packet may be released.
    #[inline]
    pub fn may_release(&self) -> bool {
        self.carried < self.limit
    }

    /// The link carries `len` bytes, overhead included. At most some 30,000 packets of the
    /// longest length fit the numbers of one window.
    #[inline]
    pub fn charge(&mut self, len: Length) {
        self.carried = self.carried.saturating_add(scaled(len));
    }
}

/// A length in billionths of a bit: what a link of rate R carries in R of them is a
/// nanosecond. Below 2^50.
#[inline]
fn scaled(len: Length) -> u64 {
    u64::from(len.get()) * 8 * 1_000_000_000
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
    fn the_rate_holds_to_the_nanosecond_at_any_rate() {
        for bps in [
            1_000,
            7_777,
            64_000,
            100_000_000,
            69_000_000_000,
            999_999_999_989,
            1_000_000_000_000,
        ] {
            let mut pacer = pacer(bps);
            let mut bits = 0u128;
            for n in 0..10_000u32 {
                let len = length(1 + n * 7 % 65_535);
                pacer.charge(len);
                bits += u128::from(len.get()) * 8;
            }
            let exact = bits * 1_000_000_000 / u128::from(bps);
            assert_eq!(u128::from(pacer.idle_at().0), exact, "{bps} bit/s");
        }
    }

    #[test]
    fn a_window_lets_pass_what_packet_by_packet_may() {
        for bps in [1_000, 64_000, 7_777_777, 1_000_000_000, 1_000_000_000_000] {
            let (mut one, mut many) = (pacer(bps), pacer(bps));
            let mut number = 0;
            for now in (0..400_u64).map(|n| Nanos(n * n * 1_009)) {
                let (mut passed, mut let_pass) = (0, 0);
                let mut window = many.open(now);
                while window.may_release() && let_pass < 50 {
                    window.charge(length(1 + (number + let_pass) * 7 % 65_535));
                    let_pass += 1;
                }
                many.close(window);
                while one.may_release(now) && passed < 50 {
                    one.charge(length(1 + (number + passed) * 7 % 65_535));
                    passed += 1;
                }
                assert_eq!(passed, let_pass, "{bps} bit/s at {now:?}");
                assert_eq!((one.idle_at, one.remainder), (many.idle_at, many.remainder));
                number += passed;
            }
            assert!(number > 0);
        }
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
    fn a_change_of_rate_leaves_what_was_released_as_it_was() {
        // A byte is 8/3 of a second; then of a third of that.
        let mut pacer = pacer(3_000);
        pacer.charge(length(1_000));
        assert_eq!(pacer.idle_at(), Nanos(2_666_666_666));
        pacer.change_rate(Rate::from_bps(9_000).unwrap());
        assert_eq!(pacer.idle_at(), Nanos(2_666_666_666));
        for _ in 0..3 {
            pacer.charge(length(1_000));
        }
        assert_eq!(
            pacer.idle_at(),
            Nanos(5_333_333_333),
            "2/3 of a nanosecond is kept"
        );
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
