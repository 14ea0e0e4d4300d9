//! A ceiling in exact numbers.

use fairlane_core::tree::Ceiling;

/// Billionths of a bit in a byte.
const SCALE: i128 = 8_000_000_000;

/// The largest delay of a class's release compared with the exact time, in nanoseconds: slack and release are rounded
/// to whole ones. After a change of rate, those of the old rate.
pub(super) const ROUNDED: u64 = 4;

/// A token bucket in billionths of a bit, exact.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    pub(super) ceiling: Ceiling,
    pub(super) tokens: i128,
    pub(super) at: u64,
    /// The ceiling changed: a class that has a place sends from it once.
    pub(super) changed: bool,
    /// The largest delay of its release compared with the exact time.
    pub(super) rounded: u64,
}

impl Bucket {
    pub(super) fn full(ceiling: Ceiling, now: u64) -> Bucket {
        Bucket {
            ceiling,
            tokens: i128::from(ceiling.burst) * SCALE,
            at: now,
            changed: false,
            rounded: ROUNDED,
        }
    }

    pub(super) fn tokens_at(&self, now: u64) -> i128 {
        // A bucket that is full between two nanoseconds fills on until the second.
        let full = i128::from(self.ceiling.burst) * SCALE + i128::from(self.ceiling.rate.bps());
        let come = (i128::from(now) - i128::from(self.at)) * i128::from(self.ceiling.rate.bps());
        (self.tokens + come).min(full)
    }

    pub(super) fn may_send(&self, longest: u32, now: u64) -> bool {
        self.tokens_at(now) >= i128::from(longest.min(self.ceiling.burst)) * SCALE
    }

    pub(super) fn send(&mut self, len: u32, now: u64) {
        self.tokens = self.tokens_at(now) - i128::from(len) * SCALE;
        self.at = now;
        self.changed = false;
    }

    /// Replaces the ceiling, keeping the debt.
    pub(super) fn change(bucket: &mut Option<Bucket>, ceiling: Option<Ceiling>, now: u64) {
        *bucket = match (bucket.take(), ceiling) {
            (_, None) => None,
            (None, Some(ceiling)) => Some(Bucket::full(ceiling, now)),
            (Some(old), Some(ceiling)) => {
                let owed = i128::from(old.ceiling.burst) * SCALE - old.tokens_at(now);
                Some(Bucket {
                    ceiling,
                    tokens: i128::from(ceiling.burst) * SCALE - owed,
                    at: now,
                    changed: true,
                    rounded: ROUNDED
                        + old.rounded * old.ceiling.rate.bps().div_ceil(ceiling.rate.bps()),
                })
            }
        };
    }
}
