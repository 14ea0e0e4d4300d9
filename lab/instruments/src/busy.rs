//! Work that takes a known time and touches no memory.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Steps in one go of the calibration.
const STEPS: u32 = 20_000;

/// How fast this machine works.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Busy {
    steps_per_ns: f64,
}

impl Busy {
    /// Measures it, with the calling thread. The fastest of many goes counts: no other
    /// thread took part of it.
    pub(crate) fn calibrate() -> Busy {
        let go = || {
            let start = Instant::now();
            steps(STEPS, 1);
            start.elapsed()
        };
        let fastest = (0..50).map(|_| go()).min().unwrap_or(Duration::MAX);
        Busy {
            steps_per_ns: f64::from(STEPS) / (fastest.as_nanos().max(1) as f64),
        }
    }

    /// Returns the number of steps that take `ns` nanoseconds, to the nearest.
    pub(crate) fn for_ns(self, ns: f64) -> u32 {
        (ns * self.steps_per_ns).round() as u32
    }
}

/// Works on from `value`: each step needs the result of the one before. Work that begins
/// with the result of other work cannot overlap with it, whatever the processor foresees.
#[inline]
pub(crate) fn steps(count: u32, value: u64) -> u64 {
    let mut value = black_box(value);
    for _ in 0..count {
        value = value.wrapping_mul(0x5851_f42d_4c95_7f2d) ^ 1;
    }
    black_box(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_has_as_many_steps_as_its_time_allows() {
        let busy = Busy { steps_per_ns: 0.25 };
        assert_eq!(
            [0.0, 100.0, 1e6].map(|ns| busy.for_ns(ns)),
            [0, 25, 250_000]
        );
        // Of whatever machine this is.
        assert!(Busy::calibrate().for_ns(1e6) > 0);
    }
}
