//! Random numbers of sources: SplitMix64, and distributions computed only with operations that IEEE 754
//! defines exactly. The same seed gives the same bits on every machine, with every release of compilers
//! and libraries: logarithms and powers of the system's library differ from one to the next in their
//! last bit.

use fairlane_core::random::splitmix64;

/// Numbers that look random.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// From this seed. Seeds that are near each other, or differ by steps of the generator, have nothing
    /// in common.
    pub(crate) fn new(mut seed: u64) -> Random {
        Random(splitmix64(&mut seed))
    }

    /// From 0 to `end` - 1, evenly to one part in 2^64 / `end`; 0 where `end` is 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(splitmix64(&mut self.0)) * u128::from(end)) >> 64) as u64
    }

    /// Above 0, at most 1: one of 2^53 numbers, evenly.
    fn unit(&mut self) -> f64 {
        const PARTS: f64 = (1u64 << 53) as f64;
        ((splitmix64(&mut self.0) >> 11) + 1) as f64 / PARTS
    }

    /// Exponentially distributed, of mean 1: 0 to 37.
    pub(crate) fn exponential(&mut self) -> f64 {
        -ln(self.unit())
    }

    /// Pareto distributed of this shape, 1 at least.
    pub(crate) fn pareto(&mut self, alpha: f64) -> f64 {
        exp(self.exponential() / alpha)
    }
}

/// Returns the logarithm of a normal number above 0, to some 1e-16 of it.
fn ln(x: f64) -> f64 {
    const FRACTION: u64 = (1 << 52) - 1;
    const ONE: u64 = 1023 << 52;
    let mut exponent = (x.to_bits() >> 52) as i32 - 1023;
    let mut fraction = f64::from_bits(x.to_bits() & FRACTION | ONE);
    // From the root of a half to that of two, where the series is short.
    if fraction > core::f64::consts::SQRT_2 {
        fraction /= 2.0;
        exponent += 1;
    }
    // ln f = 2 artanh s = 2 (s + s^3 / 3 + s^5 / 5 ..), and s is at most 0.172.
    let s = (fraction - 1.0) / (fraction + 1.0);
    let square = s * s;
    let series = (0..=10).rev().fold(0.0, |sum, term| {
        sum * square + 1.0 / f64::from(2 * term + 1)
    });
    f64::from(exponent) * core::f64::consts::LN_2 + 2.0 * s * series
}

/// e to the power of a number from 0 to 700, to some 1e-14 of it.
fn exp(x: f64) -> f64 {
    let doublings = (x / core::f64::consts::LN_2) as u64;
    let rest = x - doublings as f64 * core::f64::consts::LN_2;
    // 1 + r (1 + r / 2 (1 + r / 3 (..))), and r is at most 0.694.
    let series = (1..=18)
        .rev()
        .fold(1.0, |sum, term| 1.0 + sum * rest / f64::from(term));
    series * f64::from_bits((1023 + doublings) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_and_powers_are_right_to_their_last_digits() {
        let mut random = Random::new(1);
        for _ in 0..100_000 {
            let unit = random.unit();
            assert!(unit > 0.0 && unit <= 1.0);
            let (found, expected) = (ln(unit), unit.ln());
            assert!(
                (found - expected).abs() <= 4e-16 * expected.abs().max(1.0),
                "ln {unit}"
            );
            let power = 40.0 * unit;
            assert!((exp(power) / power.exp() - 1.0).abs() <= 2e-14, "e^{power}");
        }
        assert_eq!((ln(1.0), exp(0.0)), (0.0, 1.0));
        assert!((ln(2f64.powi(-53)) + 53.0 * core::f64::consts::LN_2).abs() < 1e-14);
    }

    #[test]
    fn neighbouring_seeds_have_nothing_in_common() {
        // Seeds a step of the generator apart would be one sequence, a number later.
        let step = 0x9e37_79b9_7f4a_7c15;
        let numbers = |seed| {
            let mut random = Random::new(seed);
            [(); 8].map(|()| random.below(1 << 60))
        };
        let all: std::collections::BTreeSet<u64> =
            [7, 8, 7 + step].into_iter().flat_map(numbers).collect();
        assert_eq!(all.len(), 24);
    }

    #[test]
    fn what_is_drawn_is_spread_as_it_should_be() {
        let mut random = Random::new(3);
        let drawn: Vec<u64> = (0..60_000).map(|_| random.below(6)).collect();
        for face in 0..6 {
            let count = drawn.iter().filter(|&&one| one == face).count();
            assert!(count.abs_diff(10_000) < 400, "{face}: {count}");
        }
        assert_eq!((random.below(0), random.below(1)), (0, 0));
        let long = (0..40_000).filter(|_| random.exponential() > 1.0).count();
        assert!(long.abs_diff(14_715) < 400, "{long}");
        // A Pareto variable of shape 1.5 is beyond 4 one time in 8.
        let far = (0..40_000).filter(|_| random.pareto(1.5) > 4.0).count();
        assert!(far.abs_diff(5_000) < 300, "{far}");
    }
}
