//! Powers of a number just below one, in fixed point: how an average decays over an idle
//! time.
//!
//! (1 - w)^m is 2^-x with x = m log2(1 / (1 - w)). The whole part of x is a shift, and the
//! fraction comes from a table of 2^-(i / 256), interpolated: within 10^-6 of the
//! closed form, for any length of idle time and without a loop.

use crate::units::{Length, Nanos, Rate};

/// Steps of the table in one halving: 2^STEPS_SHIFT.
const STEPS_SHIFT: u32 = 8;
const STEPS: usize = 1 << STEPS_SHIFT;

/// 2^-(i / STEPS) with 32 bits of fraction, for i from 0 to STEPS.
static POWERS: [u64; STEPS + 1] = powers();

const fn powers() -> [u64; STEPS + 1] {
    // The root of the root of .. one half, with 62 bits of fraction.
    let mut step: u128 = 1 << 61;
    let mut root = 0;
    while root < STEPS_SHIFT {
        step = (step << 62).isqrt();
        root += 1;
    }
    let mut table = [0; STEPS + 1];
    let mut power: u128 = 1 << 62;
    let mut at = 0;
    while at <= STEPS {
        table[at] = ((power + (1 << 29)) >> 30) as u64;
        power = (power * step) >> 62;
        at += 1;
    }
    table
}

/// log2(1 / (1 - 2^-shift)) with 62 bits of fraction, of which some 50 are right.
fn halvings_per_packet(shift: u32) -> u64 {
    if shift == 1 {
        return 1 << 62;
    }
    // In [1, 2) with 63 bits of fraction; squaring shifts the logarithm left by one.
    let mut number = (1u128 << (63 + shift)) / ((1 << shift) - 1);
    let mut log = 0;
    for _ in 0..62 {
        number = (number * number) >> 63;
        log <<= 1;
        if number >= 1 << 64 {
            number >>= 1;
            log |= 1;
        }
    }
    log
}

/// How fast an average of weight 2^-shift decays while a link idles: by (1 - 2^-shift) in
/// the time of each packet that it could have sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decay {
    /// Halvings per nanosecond: mantissa * 2^-exponent, with the highest bit set.
    mantissa: u64,
    exponent: u32,
}

impl Decay {
    /// Returns the decay at `rate` and with packets of `mean` length. O(1), for set-up.
    pub(super) fn new(shift: u32, mean: Length, rate: Rate) -> Decay {
        // Below 2^62 * 2^40, and above 2^45 * 2^9.
        let per_bit = u128::from(halvings_per_packet(shift)) * u128::from(rate.bps());
        let per_packet = 8_000_000_000 * u128::from(mean.get());
        // As many bits as there is room for before the division.
        let room = per_bit.leading_zeros();
        let quotient = (per_bit << room) / per_packet;
        let spare = quotient.leading_zeros();
        Decay {
            mantissa: ((quotient << spare) >> 64) as u64,
            exponent: 62 + room + spare - 64,
        }
    }

    /// Returns the rest of `average` after `idle`.
    #[inline]
    pub(super) fn after(&self, average: u64, idle: Nanos) -> u64 {
        // At most 2^128; halvings with 32 bits of fraction.
        let scaled = u128::from(idle.0) * u128::from(self.mantissa);
        let halvings = scaled.checked_shr(self.exponent - 32).unwrap_or(0);
        let whole = halvings >> 32;
        if whole >= 64 {
            return 0;
        }
        let fraction = halvings as u32;
        let step = (fraction >> (32 - STEPS_SHIFT)) as usize;
        let between = u64::from(fraction << STEPS_SHIFT);
        let (above, below) = (POWERS[step], POWERS[step + 1]);
        let power = above - (((above - below) * between) >> 32);
        ((u128::from(average) * u128::from(power)) >> (32 + whole as u32)) as u64
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn a_decay_is_the_closed_form_within_a_millionth() {
        let average = 1u64 << 62;
        for shift in 1..=16 {
            for (bps, mean) in [
                (1_000, 65_535),
                (64_000, 40),
                (1 << 30, 1000),
                (1_000_000_000_000, 1),
            ] {
                let (rate, mean) = (Rate::from_bps(bps).unwrap(), Length::new(mean).unwrap());
                let decay = Decay::new(shift, mean, rate);
                let packet = f64::from(mean.get()) * 8e9 / bps as f64;
                for step in 0..400 {
                    let packets = 1.07f64.powi(step) / 100.0;
                    let idle = Nanos((packets * packet) as u64);
                    let exact = (1.0 - 0.5f64.powi(shift as i32)).powf(idle.0 as f64 / packet);
                    let left = decay.after(average, idle) as f64 / average as f64;
                    // Anything below the last bit of the average is lost.
                    let tolerance = 1e-6 * exact + 1.0 / average as f64;
                    assert!(
                        (left - exact).abs() <= tolerance,
                        "1/2^{shift}, {packets} packets of {mean} at {rate}: {left}, not {exact}"
                    );
                }
            }
        }
    }

    #[test]
    fn an_idle_time_without_end_leaves_nothing_and_none_leaves_all() {
        for (bps, mean) in [(1_000, 65_535), (1_000_000_000_000, 1)] {
            let (rate, mean) = (Rate::from_bps(bps).unwrap(), Length::new(mean).unwrap());
            for shift in [1, 16] {
                let decay = Decay::new(shift, mean, rate);
                assert_eq!(decay.after(u64::MAX, Nanos::ZERO), u64::MAX);
                assert_eq!(decay.after(u64::MAX, Nanos::MAX), 0);
                assert_eq!(decay.after(0, Nanos(1)), 0);
            }
        }
    }
}
