//! The bounds of a node's children, by the node's algorithm.

use super::child::Child;
use super::residual::Ceilings;
use super::{Round, Slot, Terms, Transmit, Wfi};
use crate::sched::{Algorithm, Sharing};
use crate::units::{Length, Weight};
use alloc::collections::BTreeMap;

/// The knowledge that an algorithm has of a child's next packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// Its length: a flow, whose head will be sent, or dropped before a packet that is no longer.
    Known,
    /// That it is no longer than the longest: a class with children. See [`Siblings::bound`] for the cost.
    Longest,
}

/// All children of one node, idle ones too, and the algorithm that orders them.
#[derive(Clone, Debug)]
pub struct Siblings {
    pub(super) algorithm: Algorithm,
    pub(super) weight_sum: u64,
    longest: Length,
    round: Option<Round>,
    /// The number of children with this weight and longest packet.
    pub(super) alike: BTreeMap<(Weight, Length), u32>,
    /// The most that do.
    pub(super) most_alike: u32,
    slot: Slot,
    pub(super) ceilings: Ceilings,
}

/// Returns a round of all, with the quantum given to the algorithm, if any.
fn round_of(algorithm: Algorithm, alike: &BTreeMap<(Weight, Length), u32>) -> Option<Round> {
    let all = alike.iter();
    let round = Round::of_many(all.map(|(&(weight, length), &n)| (weight, length, n)))?;
    let lightest = alike.keys().next().map(|&(weight, _)| weight);
    Some(match (algorithm, lightest) {
        (Algorithm::DrrOfQuantum(quantum), Some(lightest)) => round.with_quantum(lightest, quantum),
        _ => round,
    })
}

impl Siblings {
    /// Creates the set of children by weight and longest packet, with the number of each; `algorithm` has its M. O(n
    /// log n) in the entries given.
    pub fn new(
        algorithm: Algorithm,
        children: impl IntoIterator<Item = (Weight, Length, u32)>,
    ) -> Siblings {
        let mut alike: BTreeMap<(Weight, Length), u32> = BTreeMap::new();
        for (weight, length, count) in children {
            let known = alike.entry((weight, length)).or_default();
            *known = known.saturating_add(count);
        }
        let weights = alike
            .iter()
            .map(|((weight, _), &count)| u64::from(weight.get()).saturating_mul(count.into()));
        Siblings {
            algorithm,
            weight_sum: weights.fold(0, u64::saturating_add),
            longest: alike
                .keys()
                .map(|&(_, length)| length)
                .max()
                .unwrap_or(Length::MAX),
            round: round_of(algorithm, &alike),
            most_alike: alike.values().copied().max().unwrap_or(1),
            alike,
            slot: Slot::Actual,
            ceilings: Ceilings::default(),
        }
    }

    /// The same, with bounds that hold for a child of this share whatever numbers the weights are:
    /// slots are powers of two, and where between two of them a child's is may be another matter once
    /// there are other children.
    #[doc(hidden)]
    pub fn whatever_weights(self) -> Siblings {
        Siblings {
            slot: Slot::Loose,
            ..self
        }
    }

    /// Returns whether the ceilings of some of them may bound the service of others.
    pub fn have_ceilings(&self) -> bool {
        self.ceilings.any()
    }

    /// Returns the algorithm that orders them.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// phi of a child of `weight`. Under strict priority, 1 for a child alone on the highest level and 0 for
    /// the others.
    pub fn share(&self, weight: Weight) -> f64 {
        let sum = self.sharers(weight);
        sum.map_or(0.0, |sum| f64::from(weight.get()) / sum as f64)
    }

    /// Returns the sum of the weights that share with a child of `weight`; `None` where higher levels, or others of its
    /// own level, may take everything.
    fn sharers(&self, weight: Weight) -> Option<u64> {
        if self.algorithm.sharing() != Sharing::Levels {
            return Some(self.weight_sum);
        }
        let not_below = self.alike.iter().filter(|((other, _), _)| *other >= weight);
        let count: u64 = not_below.map(|(_, &count)| u64::from(count)).sum();
        (count == 1).then_some(weight.get().into())
    }

    /// Returns all children, by weight and longest packet, with the number of each.
    pub fn children(&self) -> impl Iterator<Item = (Weight, Length, u32)> {
        let alike = self.alike.iter();
        alike.map(|(&(weight, length), &count)| (weight, length, count))
    }

    /// Returns a round of all, for the bounds of algorithms that have one; `None` if there are none, or too many.
    pub fn round(&self) -> Option<&Round> {
        self.round.as_ref()
    }

    /// Which sigma a bound takes, of an algorithm with slots.
    pub fn slot(&self) -> Slot {
        self.slot
    }

    /// Returns the longest packet of all.
    pub fn longest(&self) -> Length {
        self.longest
    }

    /// Returns the terms of a child, if it is one of them. Under strict priority only a child alone on the highest
    /// level has terms, with a share of 1.
    pub fn terms(&self, weight: Weight, length: Length, transmit: Transmit) -> Option<Terms> {
        self.alike.get(&(weight, length))?;
        let sum = self.sharers(weight)?;
        Terms::new(weight, sum, length, self.longest, transmit).ok()
    }

    /// Returns the bound of a child; `None` if its algorithm guarantees none, or none is known, or there is no such
    /// child. Arithmetic is not in it: [`qfq_rounding`](super::qfq_rounding).
    ///
    /// With [`Head::Longest`], a packet is treated as one of L_k until it has been sent, and then charged for its own
    /// length:
    ///
    /// * QFQ and S-KPS: nothing; their timestamps are as far apart for every length up to L_k.
    /// * WF2Q+ and GFQ: the finish comes up to L_k / phi after the exact start instead of
    ///   l / phi: DS+ counts from S, and is L_k / phi more. This is SCHED+ with M = 1.
    /// * DRR: a turn leaves less than L_k of the deficit, where it left less than the next packet
    ///   is long: as if one packet more of the flow were in front. T-WFI R has
    ///   (1 / phi - 1) L_k more.
    /// * SCFQ: the tag comes up to L_k / phi after the exact one, as if there were that much more in front: T-WFI R has
    ///   (1 / phi - 1) L_k more, too.
    /// * Over aggregates the same holds of the DRR inside, (1 - 1 / m_k) L_k / phi: L_k / phi more.
    pub fn bound(
        &self,
        weight: Weight,
        length: Length,
        head: Head,
        transmit: Transmit,
    ) -> Option<Wfi> {
        let child = Child {
            terms: self.terms(weight, length, transmit)?,
            siblings: self,
            weight,
            length,
            head,
            transmit,
        };
        self.algorithm.promise().bound()?(&child)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::num::NonZeroU32;

    #[test]
    fn a_bound_for_whatever_weights_covers_that_of_any_that_are_in_the_same_proportion() {
        let length = Length::new(1500).unwrap();
        let of = |algorithm, factor| {
            let weight = |weight: u32| Weight::new(weight * factor).unwrap();
            Siblings::new(algorithm, [(weight(3), length, 1), (weight(10), length, 1)])
        };
        let mut differ = 0;
        for &algorithm in Algorithm::ALL {
            let delays = (1..=64).filter_map(|factor| {
                let own = Weight::new(3 * factor).unwrap();
                let delay = |siblings: &Siblings| {
                    let bound = siblings.bound(own, length, Head::Known, Transmit::Between);
                    bound.map(|bound| bound.delay.bytes())
                };
                let siblings = of(algorithm, factor);
                let exact = delay(&siblings)?;
                Some((exact, delay(&siblings.whatever_weights())?))
            });
            let delays: alloc::vec::Vec<_> = delays.collect();
            let all = |delay: fn(&(f64, f64)) -> f64| delays.iter().map(delay);
            let longest = all(|&(exact, _)| exact).fold(0.0, f64::max);
            let shortest = all(|&(exact, _)| exact).fold(f64::INFINITY, f64::min);
            assert!(
                all(|&(_, ever)| ever * (1.0 + 1e-9)).all(|ever| ever >= longest),
                "{algorithm}"
            );
            differ += u32::from(longest > 1.2 * shortest);
        }
        assert!(differ > 0, "no slot depends on the weights' numbers");
    }

    #[test]
    fn over_aggregates_of_one_the_bound_is_that_of_what_is_run() {
        let (one, length) = (Weight::ONE, Length::new(1500).unwrap());
        let bound = |algorithm: Algorithm| {
            let siblings = Siblings::new(algorithm, [(one, length, 3)]);
            let bound = siblings.bound(one, length, Head::Known, Transmit::Direct);
            bound.map(|bound| bound.delay.bytes())
        };
        let mut plain = 0;
        for &algorithm in Algorithm::ALL {
            let of_one = algorithm.with_members(NonZeroU32::MIN);
            let run = of_one.without_aggregates_of_one();
            assert_eq!(bound(of_one), bound(run), "{algorithm}");
            if run != of_one {
                plain += 1;
                assert!(bound(of_one) < bound(algorithm), "{algorithm}");
            }
        }
        assert_eq!(plain, 2, "of QFQ and S-KPS");
    }

    #[test]
    fn priority_bounds_only_an_entity_alone_on_the_highest_level() {
        let [low, high] = [1, 7].map(|weight| Weight::new(weight).unwrap());
        let [short, long] = [200, 1500].map(|length| Length::new(length).unwrap());
        let of = |children: &[(Weight, Length, u32)], (weight, length)| {
            let siblings = Siblings::new(Algorithm::Priority, children.iter().copied());
            let wfi = siblings.bound(weight, length, Head::Known, Transmit::Queue(1000));
            (siblings.share(weight), wfi)
        };
        let pair = [(high, short, 1), (low, long, 3)];
        // Q is the transmit queue and the longest packet of all.
        let queued = Wfi::of(1.0, 2500.0);
        assert_eq!(of(&pair, (high, short)), (1.0, Some(queued)));
        assert_eq!(of(&pair, (low, long)), (0.0, None));
        let peers: [&[_]; 2] = [&[(high, short, 2)], &[(high, short, 1), (high, long, 1)]];
        for peers in peers {
            assert_eq!(of(peers, (high, short)), (0.0, None), "{peers:?}");
        }
        assert_eq!(of(&[(low, long, 1)], (low, long)).0, 1.0);
    }

    #[test]
    fn a_row_says_how_an_algorithm_shares_and_whether_a_bound_is_known() {
        let (one, length) = (Weight::ONE, Length::new(1500).unwrap());
        for &algorithm in Algorithm::ALL {
            let siblings = Siblings::new(algorithm, [(one, length, 3)]);
            let bound = siblings.bound(one, length, Head::Known, Transmit::Direct);
            assert_eq!(bound.is_some(), algorithm.is_bounded(), "{algorithm}");
            let by_weight = algorithm.sharing() == Sharing::Weights;
            assert!(by_weight || bound.is_none(), "{algorithm}");
        }
        let shares = |name: &str| name.parse::<Algorithm>().unwrap().sharing();
        assert_eq!(shares("priority"), Sharing::Levels);
        assert_eq!(shares("drr+"), Sharing::Weights);
        for name in ["fifo", "sfq"] {
            assert!(matches!(shares(name), Sharing::Offers(_)), "{name}");
        }
    }
}
