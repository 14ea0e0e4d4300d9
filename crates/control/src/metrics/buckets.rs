//! Delays as Prometheus counts them: in a few fixed buckets, and in a native histogram, whose buckets grow by a
//! constant factor.

use fairlane_core::Nanos;
use fairlane_daemon::Delays;

/// Upper bounds of the classic buckets in seconds: half a decade each, from 0.1 ms to 3 s. Each is one series per
/// class; native histograms have a finer resolution.
pub(super) const ENDS: [f64; 10] = [0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0];

/// The resolution of native histograms: 2^3 buckets per factor of two, so each is 9% wider than the last. This
/// is comparable with recorded delays, which have two significant digits, or for the rarest of a class 1/16.
pub(super) const SCHEMA: i32 = 3;

/// Threshold of the zero bucket in seconds: 2^10 ns, the resolution of recorded delays.
pub(super) const ZERO: f64 = 1.024e-6;

/// The delays of a class.
pub(super) struct Buckets {
    pub(super) count: u64,
    /// Sum in seconds.
    pub(super) sum: f64,
    /// Number of delays that do not exceed each of the [`ENDS`].
    within: [u64; ENDS.len()],
}

/// A native histogram: the count of the zero bucket, and the nonempty other buckets.
pub(super) struct Native {
    pub(super) zeros: u64,
    /// Bucket indices in ascending order, with their counts.
    pub(super) others: Vec<(i32, u64)>,
}

impl Buckets {
    /// Counts delays in classic buckets. O(distinct delays).
    pub(super) fn of(delays: &Delays) -> Buckets {
        let mut buckets = Buckets {
            count: 0,
            sum: 0.0,
            within: [0; ENDS.len()],
        };
        let mut ends = ENDS.iter().zip(&mut buckets.within).peekable();
        for (longest, count) in delays.distinct() {
            let longest = seconds(longest);
            // Delays come in ascending order, so a bucket below this one is complete.
            while let Some((_, within)) = ends.next_if(|(end, _)| longest > **end) {
                *within = buckets.count;
            }
            buckets.count += count;
            buckets.sum += longest * count as f64;
        }
        ends.for_each(|(_, within)| *within = buckets.count);
        buckets
    }

    /// Returns the upper bound of each classic bucket with the number of delays within it; the last bound is infinite.
    pub(super) fn classic(&self) -> impl Iterator<Item = (f64, u64)> {
        let last = (f64::INFINITY, self.count);
        ENDS.into_iter().zip(self.within).chain([last])
    }
}

impl Native {
    /// Counts delays in native buckets. O(distinct delays).
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
            // The upper bound of bucket i is 2^(i / 2^schema).
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
