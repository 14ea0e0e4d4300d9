//! From rates and weights in the file to the weights of an algorithm.
//!
//! Of siblings under a parent with rate P, class i is entitled to
//!
//! ```text
//! s_i = rate_i + E w_i / W      E = P - sum of rates,  W = sum of weights
//! s_i = P rate_i / sum of rates                        where no class has a weight
//! ```
//!
//! which add up to P, so the algorithm's weights are proportional to them. Those are integers up to 10^6. If the
//! proportions fit, the weights are exact and the smallest possible. For more than 64 siblings, they are in units of
//! the common divisor of the rates and E, if that fits, so that a change of one weight leaves most others as they are.
//! Otherwise the largest is 10^6, the weights that rates need are rounded up, and the parts beyond are rounded down to
//! compensate. If the rates leave no such part, n siblings may miss theirs by n parts in 10^6.

use fairlane_core::Weight;
use fairlane_core::units::MAX_WEIGHT;

/// The claim of a class: a rate in bit/s (0: no guarantee), and a weight in the rest (0: none).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub rate: u64,
    pub weight: u32,
}

/// The share that a class gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Its weight among its siblings.
    pub weight: Weight,
    /// Its entitlement in bit/s, rounded down; never below its rate.
    pub entitled: u64,
}

/// Number of claims above which a change of all weights would be too slow.
const MANY: usize = 64;

/// Divides `available` bit/s among claims, whose rates must not exceed it in total. O(claims).
pub(crate) fn divide(available: u64, claims: &[Claim]) -> Vec<Part> {
    let available = u128::from(available);
    let rates: u128 = claims.iter().map(|claim| u128::from(claim.rate)).sum();
    let weights: u128 = claims.iter().map(|claim| u128::from(claim.weight)).sum();
    let rest = available.saturating_sub(rates);
    // In units that make all portions integers.
    let portion = |claim: &Claim| match weights {
        0 => u128::from(claim.rate),
        _ => u128::from(claim.rate) * weights + rest * u128::from(claim.weight),
    };
    let portions: Vec<u128> = claims.iter().map(portion).collect();
    let total: u128 = portions.iter().sum::<u128>().max(1);
    let exact = unit(claims, if weights == 0 { 0 } else { rest })
        .and_then(|unit| exactly(&portions, unit))
        .or_else(|| {
            let shared = portions.iter().copied().fold(0, greatest_common_divisor);
            exactly(&portions, shared)
        });
    claims
        .iter()
        .zip(&portions)
        .zip(exact.unwrap_or_else(|| nearly(available, claims, &portions)))
        .map(|((claim, portion), weight)| Part {
            weight: Weight::new(weight).unwrap_or(Weight::ONE),
            entitled: (share_of(*portion, total, available) as u64).max(claim.rate),
        })
        .collect()
}

/// Returns the largest power of two by which all weights may be multiplied.
pub(crate) fn scale(parts: &[Part]) -> u32 {
    let largest = parts.iter().map(|part| part.weight.get()).max();
    1 << (MAX_WEIGHT / largest.unwrap_or(MAX_WEIGHT)).ilog2()
}

/// Returns `portion / total * available`, rounded down. The products of portions, up to 2^80, and rates would overflow.
fn share_of(portion: u128, total: u128, available: u128) -> u128 {
    let shift = (128 - portion.leading_zeros()).saturating_sub(80);
    (portion >> shift) * available / (total >> shift).max(1)
}

/// Returns, for many claims, a common divisor of the portions that does not depend on the weights, so that a change of
/// one claim changes few other weights. Fewer claims get the smallest possible weights instead.
fn unit(claims: &[Claim], rest: u128) -> Option<u128> {
    let rates = claims.iter().map(|claim| u128::from(claim.rate));
    (claims.len() > MANY).then(|| rates.fold(rest, greatest_common_divisor))
}

/// Returns the portions over `divisor`, if they fit into weights.
fn exactly(portions: &[u128], divisor: u128) -> Option<Vec<u32>> {
    let weight = |&portion: &u128| {
        let weight = u32::try_from(portion.checked_div(divisor)?).ok()?;
        (1..=MAX_WEIGHT).contains(&weight).then_some(weight)
    };
    portions.iter().map(weight).collect()
}

fn greatest_common_divisor(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn nearly(available: u128, claims: &[Claim], portions: &[u128]) -> Vec<u32> {
    let most = u128::from(MAX_WEIGHT);
    let largest = portions.iter().copied().max().unwrap_or(1).max(1);
    let total: u128 = portions.iter().sum();
    // The sum that the weights should have.
    let sum = total * most / largest;
    let within = |weight: u128| weight.clamp(1, most) as u32;
    let needed = |claim: &Claim| within((u128::from(claim.rate) * sum).div_ceil(available.max(1)));
    let mut weights: Vec<u32> = claims
        .iter()
        .zip(portions)
        .map(|(claim, portion)| within(portion * most / largest).max(needed(claim)))
        .collect();
    let given: u128 = weights.iter().copied().map(u128::from).sum();
    let mut excess = given.saturating_sub(sum);
    for (weight, claim) in weights.iter_mut().zip(claims) {
        let spare = excess.min((*weight - needed(claim)).into());
        *weight -= spare as u32;
        excess -= spare;
    }
    weights
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(rate: u64, weight: u32) -> Claim {
        Claim { rate, weight }
    }

    fn weights(available: u64, claims: &[Claim]) -> Vec<u32> {
        let parts = divide(available, claims);
        parts.iter().map(|part| part.weight.get()).collect()
    }

    fn entitled(available: u64, claims: &[Claim]) -> Vec<u64> {
        let parts = divide(available, claims);
        parts.iter().map(|part| part.entitled).collect()
    }

    #[test]
    fn weights_divide_what_rates_leave_over() {
        // 40 - 10 = 30 in parts of 1 and 2.
        let claims = [claim(10_000_000, 1), claim(0, 2)];
        assert_eq!(entitled(40_000_000, &claims), [20_000_000, 20_000_000]);
        assert_eq!(weights(40_000_000, &claims), [1, 1]);
    }

    #[test]
    fn rates_alone_divide_all_there_is_in_proportion() {
        let claims = [claim(3_000_000, 0), claim(7_000_000, 0)];
        assert_eq!(weights(40_000_000, &claims), [3, 7]);
        assert_eq!(entitled(40_000_000, &claims), [12_000_000, 28_000_000]);
    }

    #[test]
    fn whom_the_rates_leave_nothing_has_the_smallest_weight_there_is() {
        let claims = [claim(10_000_000, 0), claim(0, 5)];
        assert_eq!(weights(10_000_000, &claims), [1_000_000, 1]);
        assert_eq!(entitled(10_000_000, &claims), [10_000_000, 0]);
    }

    #[test]
    fn of_many_siblings_most_keep_their_numbers_where_one_has_another_weight() {
        let of = |count: u32, last: u32| {
            let mut claims = vec![claim(8_000_000, 0)];
            claims.extend((0..count).map(|at| claim(0, 1 + at % 7)));
            claims.push(claim(0, last));
            claims
        };
        let weights = |claims: &[Claim]| weights(200_000_000, claims);
        let differ = |count: u32, last: u32| {
            let [one, other] = [last, last + 1].map(|last| weights(&of(count, last)));
            one.iter().zip(&other).filter(|(a, b)| a != b).count()
        };
        for last in 1..30 {
            // The rest is 192 of 200: 24 for each part of it, where 8 are all parts.
            let claims = of(200, last);
            let sum: u32 = claims.iter().map(|claim| claim.weight).sum();
            let expected = claims.iter().map(|claim| match claim.rate {
                0 => 24 * claim.weight,
                _ => sum,
            });
            assert!(expected.eq(weights(&claims)), "{last}");
            assert_eq!(differ(200, last), 2, "{last}");
        }
        assert!((1..30).any(|last| differ(20, last) > 2));
    }

    #[test]
    fn what_does_not_fit_whole_numbers_is_rounded_in_favour_of_rates() {
        // 64001 bit/s of 10 Gbit/s is 6.4 of a million.
        let rates = [64_001, 999_999_937, 1_234_567_891];
        let mut claims: Vec<_> = rates.map(|rate| claim(rate, 0)).into();
        claims.push(claim(0, 1));
        let available = 10_000_000_000;
        let weights = weights(available, &claims);
        let sum: u128 = weights.iter().map(|&weight| u128::from(weight)).sum();
        for (rate, weight) in rates.into_iter().zip(weights) {
            let gets = u128::from(available) * u128::from(weight) / sum;
            assert!(gets >= u128::from(rate), "{rate} gets {gets}");
        }
    }

    #[test]
    fn whatever_rates_there_are_they_are_kept_where_something_is_left() {
        let available = 1_000_000_000u64;
        let mut state = 1u64;
        let mut below = |end: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % end
        };
        for _ in 0..200 {
            let mut left = available;
            let mut claims = Vec::new();
            for _ in 0..100 {
                let rate = 1_000 + below(left / 20);
                left -= rate;
                claims.push(claim(rate, 0));
            }
            claims.push(claim(0, 1));
            let weights = weights(available, &claims);
            let sum: u64 = weights.iter().copied().map(u64::from).sum();
            for (claim, weight) in claims.iter().zip(weights) {
                let gets = available * u64::from(weight) / sum;
                assert!(gets >= claim.rate, "{claim:?} gets {gets} of {claims:?}");
            }
        }
    }

    #[test]
    fn the_largest_numbers_there_are_do_not_overflow() {
        let claims = vec![claim(999_983, 999_983); 1_000_000];
        let parts = divide(1_000_000_000_000, &claims);
        assert!(parts.iter().all(|part| part.weight == Weight::ONE));
        assert!(parts.iter().all(|part| part.entitled == 1_000_000));
    }
}
