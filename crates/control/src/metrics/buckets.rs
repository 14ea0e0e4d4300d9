//! Delays as Prometheus counts them: in few buckets whose ends everybody knows, and in a native histogram,
//! whose buckets grow by a factor.

use fairlane_core::Nanos;
use fairlane_site::Delays;

/// Upper ends of the classic buckets, in seconds: half a decade each, from a tenth of a millisecond to
/// three seconds. Each of them is a series for each class; who wants to know better has native ones.
pub(super) const ENDS: [f64; 10] = [0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0];

/// The resolution of native histograms: 2^3 buckets for each doubling, so each is 9% wider than the last.
/// Delays are known to two digits, the rarest of a class to a sixteenth: no worse than that.
pub(super) const SCHEMA: i32 = 3;

/// What does not exceed it, in seconds, is in the bucket of zero: the least that delays are told apart by,
/// 2^10 ns.
pub(super) const ZERO: f64 = 1.024e-6;

/// The delays of a class.
pub(super) struct Buckets {
    pub(super) count: u64,
    /// In seconds.
    pub(super) sum: f64,
    /// How many did not exceed each of the [`ENDS`].
    within: [u64; ENDS.len()],
}

/// A native histogram: how many are in the bucket of zero, and which of the others have any.
pub(super) struct Native {
    pub(super) zeros: u64,
    /// Numbers of buckets, ascending, and how many are in them.
    pub(super) others: Vec<(i32, u64)>,
}

impl Buckets {
    /// O(distinct delays).
    pub(super) fn of(delays: &Delays) -> Buckets {
        let mut buckets = Buckets {
            count: 0,
            sum: 0.0,
            within: [0; ENDS.len()],
        };
        let mut ends = ENDS.iter().zip(&mut buckets.within).peekable();
        for (longest, count) in delays.distinct() {
            let longest = seconds(longest);
            // What is closed has all that came so far.
            while let Some((_, within)) = ends.next_if(|(end, _)| longest > **end) {
                *within = buckets.count;
            }
            buckets.count += count;
            buckets.sum += longest * count as f64;
        }
        ends.for_each(|(_, within)| *within = buckets.count);
        buckets
    }

    /// The upper end of each classic bucket, and how many did not exceed it; the last is infinite.
    pub(super) fn classic(&self) -> impl Iterator<Item = (f64, u64)> {
        let last = (f64::INFINITY, self.count);
        ENDS.into_iter().zip(self.within).chain([last])
    }
}

impl Native {
    /// O(distinct delays).
    pub(super) fn of(delays: &Delays) -> Native {
        let mut native = Native {
            zeros: 0,
            others: Vec::new(),
        };
        for (longest, count) in delays.distinct() {
            let longest = seconds(longest);
            if longest <= ZERO {
                native.zeros += count;
                continue;
            }
            // Bucket i ends with 2^(i / 2^schema).
            let bucket = (longest.log2() * f64::from(1 << SCHEMA)).ceil() as i32;
            match native.others.last_mut() {
                Some((last, all)) if *last == bucket => *all += count,
                _ => native.others.push((bucket, count)),
            }
        }
        native
    }
}

fn seconds(delay: Nanos) -> f64 {
    delay.0 as f64 / 1e9
}
