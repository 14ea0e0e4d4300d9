//! A cap in exact numbers.

use fairlane_core::tree::Cap;

/// Billionths of a bit in a byte.
const SCALE: i128 = 8_000_000_000;

/// How much later than exactly a class may be released, in nanoseconds: slack and release are
/// rounded to whole ones. After a change of rate, those of the old rate.
pub(super) const ROUNDED: u64 = 4;

/// A token bucket in billionths of a bit, exact.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    pub(super) cap: Cap,
    pub(super) tokens: i128,
    pub(super) at: u64,
    /// The cap changed: a class that has a place sends from it once.
    pub(super) changed: bool,
    /// How much later than exactly it may be released.
    pub(super) rounded: u64,
}

impl Bucket {
    pub(super) fn full(cap: Cap, now: u64) -> Bucket {
        Bucket {
            cap,
            tokens: i128::from(cap.burst) * SCALE,
            at: now,
            changed: false,
            rounded: ROUNDED,
        }
    }

    pub(super) fn tokens_at(&self, now: u64) -> i128 {
        // A bucket that is full between two nanoseconds goes on filling to the second.
        let full = i128::from(self.cap.burst) * SCALE + i128::from(self.cap.rate.bps());
        let come = (i128::from(now) - i128::from(self.at)) * i128::from(self.cap.rate.bps());
        (self.tokens + come).min(full)
    }

    pub(super) fn may_send(&self, longest: u32, now: u64) -> bool {
        self.tokens_at(now) >= i128::from(longest.min(self.cap.burst)) * SCALE
    }

    pub(super) fn send(&mut self, len: u32, now: u64) {
        self.tokens = self.tokens_at(now) - i128::from(len) * SCALE;
        self.at = now;
        self.changed = false;
    }

    /// Another cap in its place, that keeps what it owes.
    pub(super) fn change(bucket: &mut Option<Bucket>, cap: Option<Cap>, now: u64) {
        *bucket = match (bucket.take(), cap) {
            (_, None) => None,
            (None, Some(cap)) => Some(Bucket::full(cap, now)),
            (Some(old), Some(cap)) => {
                let owed = i128::from(old.cap.burst) * SCALE - old.tokens_at(now);
                Some(Bucket {
                    cap,
                    tokens: i128::from(cap.burst) * SCALE - owed,
                    at: now,
                    changed: true,
                    rounded: ROUNDED + old.rounded * old.cap.rate.bps().div_ceil(cap.rate.bps()),
                })
            }
        };
    }
}
