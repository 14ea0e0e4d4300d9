//! The service that siblings with ceilings leave to a child.

use super::child::Child;
use super::{Head, Service, Siblings, Transmit, Wfi};
use crate::sched::{Algorithm, Sharing};
use crate::units::{Length, Rate, Weight};
use alloc::vec::Vec;
use core::cmp::Ordering;

/// A child with a ceiling, in the order of rate over weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limited {
    weight: Weight,
    length: Length,
    bps: u64,
    burst: u32,
}

impl Ord for Limited {
    fn cmp(&self, other: &Limited) -> Ordering {
        let product = |a: &Limited, b: &Limited| u128::from(a.bps) * u128::from(b.weight.get());
        let key = |limited: &Limited| (limited.weight, limited.length, limited.burst);
        product(self, other)
            .cmp(&product(other, self))
            .then_with(|| key(self).cmp(&key(other)))
    }
}

impl PartialOrd for Limited {
    fn partial_cmp(&self, other: &Limited) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Sums over some children.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    weight: u64,
    length: u64,
    /// Of their B-WFI.
    service: f64,
    bps: u64,
    burst: u64,
}

impl Sums {
    fn less(self, other: Sums) -> Sums {
        Sums {
            weight: self.weight - other.weight,
            length: self.length - other.length,
            service: self.service - other.service,
            bps: self.bps - other.bps,
            burst: self.burst - other.burst,
        }
    }
}

/// The ceilings of a node's children.
#[derive(Clone, Debug, Default)]
pub(super) struct Ceilings {
    limited: Vec<Limited>,
    /// Over the first n of them.
    sums: Vec<Sums>,
    /// Of the B-WFI of all children.
    service: f64,
}

impl Ceilings {
    pub(super) fn any(&self) -> bool {
        !self.limited.is_empty()
    }
}

impl Siblings {
    /// The same, where children by weight and longest packet have ceilings of these rates and bursts: each receives
    /// `burst + rate T` at most over any time T. O(n log n) in the ceilings.
    #[must_use]
    pub fn with_ceilings(
        mut self,
        ceilings: impl IntoIterator<Item = (Weight, Length, Rate, u32)>,
    ) -> Siblings {
        let limited = ceilings
            .into_iter()
            .map(|(weight, length, rate, burst)| Limited {
                weight,
                length,
                bps: rate.bps(),
                burst,
            });
        let mut limited: Vec<_> = limited.collect();
        let is_known = self.knows_residual() || self.algorithm.sharing() == Sharing::Levels;
        if limited.is_empty() || !is_known {
            return self;
        }
        limited.sort_unstable();
        let mut sums = Vec::with_capacity(limited.len() + 1);
        let mut sum = Sums::default();
        for limited in &limited {
            sums.push(sum);
            let one = self.sums_of(*limited);
            sum = Sums {
                weight: sum.weight + one.weight,
                length: sum.length + one.length,
                service: sum.service + one.service,
                bps: sum.bps + one.bps,
                burst: sum.burst + one.burst,
            };
        }
        sums.push(sum);
        let all = self.children();
        let all = all
            .map(|(weight, length, count)| self.unknown_service(weight, length) * f64::from(count));
        self.ceilings = Ceilings {
            service: all.sum(),
            limited,
            sums,
        };
        self
    }

    /// Returns whether a [`residual`](Self::residual) service is known under its algorithm.
    fn knows_residual(&self) -> bool {
        use Algorithm::{Drr, DrrOfQuantum, Gfq, Qfq, SKps, Scfq, Wf2qPlus};
        matches!(
            self.algorithm,
            Drr | DrrOfQuantum(_) | Scfq | Wf2qPlus | Gfq | Qfq | SKps
        )
    }

    fn sums_of(&self, limited: Limited) -> Sums {
        Sums {
            weight: limited.weight.get().into(),
            length: limited.length.get().into(),
            service: self.unknown_service(limited.weight, limited.length),
            bps: limited.bps,
            burst: limited.burst.into(),
        }
    }

    /// Returns the B-WFI of a child of which no head is known.
    fn unknown_service(&self, weight: Weight, length: Length) -> f64 {
        let wfi = self.bound(weight, length, Head::Longest, Transmit::Between);
        wfi.map_or(0.0, |wfi| wfi.service.bytes())
    }

    /// Returns the service of a child by what its [siblings with ceilings](Self::with_ceilings) leave, next to its
    /// [bound](Self::bound) by weight: the rest of the node's service `above`, its share of that and its indexes there.
    /// `own` is the child's own ceiling. `None` where no sibling's ceiling is below its share, or nothing is known.
    /// O(log n) in the ceilings.
    ///
    /// Let M be the siblings whose ceilings are below their shares of the rest by weight (found as water fills basins
    /// of different heights: by rate over weight, as long as it is below the rest of the rate over the rest of the
    /// weights). They take `b_j + c_j T` at most, so the others share
    ///
    /// ```text
    /// W' >= r T - s - (sum of b_j + c_j T over M)
    /// ```
    ///
    /// Let phi' be the child's weight over the sum of all but M, and alpha the B-WFI of each. While the child has
    /// something to send, it has at least `phi' W' - alpha'`.
    ///
    /// * *DRR and SCFQ*: alpha' is the [bound](super::drr) of a round of all but M, with the unit of all. Its proof
    ///   counts the bytes of each other flow in a turn, or between two tags, and those of M cancel out.
    /// * *Timestamps*: `alpha' = (1 - phi') alpha + phi' (sum of alpha_j over all but M and the child)`.
    ///   While V goes from v1 to v2, the child has `phi (v2 - v1) - alpha` or more, and sibling j no more than
    ///   `phi_j (v2 - v1) + alpha_j`. For S_j is DS- and (1 / phi_j - 1) L_j after V at most, and F'_j no more than
    ///   L - l before it (see [above](super#algorithms-with-timestamps)): the same two facts that alpha_j is made of. Sum the
    ///   second over all siblings that share, and eliminate v2 - v1 with the first.
    /// * *Strict priority*: M is all siblings of the same level and above, and [`behind`](Service::behind) has the
    ///   service, of which the share is 1. `None` if one of them has no ceiling. O(n) in the ceilings.
    /// * *SCHED+, WF2Q*: not known.
    ///
    /// For fluid servers this is the service curve of Parekh and Gallager (1993), which Burchard and Liebeherr extend to
    /// any concave arrival envelope (*A general per-flow service curve for GPS*, 2018).
    pub fn residual(
        &self,
        above: Service,
        child: (Weight, Length, Head),
        own: Option<(Rate, u32)>,
    ) -> Option<(Service, f64, Wfi)> {
        let (weight, length, head) = child;
        if self.algorithm.sharing() == Sharing::Levels {
            let service = self.behind_levels(above, weight, own)?;
            return Some((service, 1.0, Wfi::of(1.0, 0.0)));
        }
        if !self.have_ceilings() {
            return None;
        }
        let terms = self.terms(weight, length, Transmit::Between)?;
        let Ceilings {
            limited,
            sums,
            service,
        } = &self.ceilings;
        let rate = above.bps();
        let below_share = |(at, one): (usize, &Limited)| {
            let sum = sums[at];
            let left = rate.saturating_sub(sum.bps);
            let sharing = self.weight_sum.saturating_sub(sum.weight);
            u128::from(one.bps) * u128::from(sharing)
                < u128::from(left) * u128::from(one.weight.get())
        };
        let mut last = limited.len();
        let mut first = 0;
        while first < last {
            let middle = first.midpoint(last);
            match below_share((middle, &limited[middle])) {
                true => first = middle + 1,
                false => last = middle,
            }
        }
        let own = own.map(|(rate, burst)| Limited {
            weight,
            length,
            bps: rate.bps(),
            burst,
        });
        let among = |own: &Limited| limited[..first].last().is_some_and(|last| own <= last);
        let mut taken = sums[first];
        if let Some(own) = own.filter(among) {
            taken = taken.less(self.sums_of(own));
        }
        if taken.weight == 0 {
            return None;
        }
        let share = f64::from(weight.get()) / (self.weight_sum - taken.weight) as f64;
        let child = Child {
            terms,
            siblings: self,
            weight,
            length,
            head,
            transmit: Transmit::Between,
        };
        let wfi = match self.algorithm {
            Algorithm::Drr | Algorithm::DrrOfQuantum(_) => child.in_round(
                &self.round()?.without(taken.weight, taken.length),
                super::drr,
            )?,
            Algorithm::Scfq => child.in_round(
                &self.round()?.without(taken.weight, taken.length),
                super::scfq,
            )?,
            Algorithm::Wf2qPlus | Algorithm::Gfq | Algorithm::Qfq | Algorithm::SKps => {
                let own = self.bound(weight, length, head, Transmit::Between)?;
                let own = own.service.bytes();
                let others = service - taken.service - self.unknown_service(weight, length);
                let service = (1.0 - share) * own + share * others.max(0.0);
                Wfi::of(share, service / share)
            }
            _ => return None,
        };
        Some((above.behind(taken.bps, taken.burst)?, share, wfi))
    }
}

impl Siblings {
    /// Returns the service of a child behind all of its level and above; `None` unless each has a ceiling.
    fn behind_levels(
        &self,
        above: Service,
        weight: Weight,
        own: Option<(Rate, u32)>,
    ) -> Option<Service> {
        let not_below = self.children().filter(|&(other, ..)| other >= weight);
        let counts = not_below.map(|(.., count)| u64::from(count));
        let limited = self.ceilings.limited.iter();
        let limited = limited.filter(|one| one.weight >= weight);
        let (mut count, mut bps, mut burst) = (1, 0, 0);
        for one in limited {
            (count, bps, burst) = (count + 1, bps + one.bps, burst + u64::from(one.burst));
        }
        if let Some((rate, depth)) = own {
            // None of the ceilings is its own if there are none.
            (count, bps, burst) = (
                count - 1,
                bps.checked_sub(rate.bps())?,
                burst.checked_sub(depth.into())?,
            );
        }
        (counts.sum::<u64>() == count).then(|| above.behind(bps, burst))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Nanos;

    fn length(bytes: u32) -> Length {
        Length::new(bytes).unwrap()
    }

    fn weight(weight: u32) -> Weight {
        Weight::new(weight).unwrap()
    }

    fn mbit(rate: u64) -> Rate {
        Rate::from_bps(rate * 1_000_000).unwrap()
    }

    /// Returns the delay of one packet by weight and by the rest, in us of a link of a byte in a microsecond; heavy has
    /// a ceiling of `ceiling` Mbit/s and 3,000 bytes.
    fn delays(algorithm: Algorithm, ceiling: u64) -> (Nanos, Option<Nanos>) {
        let (light, heavy, long) = (weight(1), weight(99), length(1000));
        let link = Service::of_link(mbit(8), long);
        let siblings = Siblings::new(algorithm, [(light, long, 1), (heavy, long, 1)]);
        let siblings = siblings.with_ceilings([(heavy, long, mbit(ceiling), 3000)]);
        let wfi = siblings
            .bound(light, long, Head::Known, Transmit::Between)
            .unwrap();
        let left = siblings.residual(link, (light, long, Head::Known), None);
        let left = left.map(|(left, share, wfi)| left.conforming_delay(share, wfi, 1000));
        (
            link.conforming_delay(siblings.share(light), wfi, 1000),
            left,
        )
    }

    /// One packet of its own, one on the wire and 3,000 bytes of the sibling at the remaining 8 - 2 Mbit/s.
    #[test]
    fn a_light_child_has_what_the_ceiling_of_a_heavy_one_leaves() {
        for algorithm in [
            Algorithm::Wf2qPlus,
            Algorithm::Gfq,
            Algorithm::Qfq,
            Algorithm::SKps,
            Algorithm::Scfq,
            Algorithm::Drr,
        ] {
            let (by_weight, left) = delays(algorithm, 2);
            assert!(by_weight >= Nanos::from_micros(100_000), "{algorithm}");
            assert_eq!(left, Some(Nanos(6_666_667)), "{algorithm}");
        }
        assert_eq!(
            delays(Algorithm::Wf2qPlus, 8).1,
            None,
            "the ceiling is above its share"
        );
    }

    /// Equal children on 8 Mbit/s: those with 1 Mbit/s and 2 Mbit/s are below the share of the rest, 2 and 3.5 Mbit/s,
    /// and the one with 4 Mbit/s is not.
    #[test]
    fn ceilings_count_while_they_are_below_the_share_of_the_rest() {
        let (one, long) = (weight(1), length(1000));
        let ceilings = [(4, 5000), (1, 2000), (2, 3000)];
        let limits = ceilings.map(|(rate, burst)| (one, long, mbit(rate), burst));
        let link = Service::of_link(mbit(8), long);
        let siblings = Siblings::new(Algorithm::Scfq, [(one, long, 4)]).with_ceilings(limits);
        let child = (one, long, Head::Known);
        let (rest, share, wfi) = siblings.residual(link, child, None).unwrap();
        assert_eq!(
            (rest.bps(), rest.lag().bytes(), share),
            (5_000_000, 6000.0, 0.5)
        );
        assert_eq!(wfi.delay.bytes(), 1000.0);
        // Of the one with 2 Mbit/s, only that with 1 Mbit/s is a sibling.
        let (rest, share, _) = siblings
            .residual(link, child, Some((mbit(2), 3000)))
            .unwrap();
        assert_eq!((rest.bps(), share), (7_000_000, 1.0 / 3.0));
        let sum = |algorithm| {
            let siblings = Siblings::new(algorithm, [(one, long, 4)]).with_ceilings(limits);
            siblings
                .residual(link, child, None)
                .unwrap()
                .2
                .service
                .bytes()
        };
        // Half of its own B-WFI, and half of that of the other with 4 Mbit/s, of which no head is known.
        assert_eq!(sum(Algorithm::Wf2qPlus), (1750.0 + 2000.0) / 2.0);
        let none = Siblings::new(Algorithm::Scfq, [(one, long, 4)]);
        assert!(none.with_ceilings([]).residual(link, child, None).is_none());
    }

    /// A level of 2 Mbit/s and 3,000 bytes above two of 1 Mbit/s and one without a ceiling, and that above another one.
    #[test]
    fn a_lower_level_has_what_the_ceilings_of_its_level_and_above_leave() {
        let (long, link) = (length(1000), Service::of_link(mbit(8), length(1000)));
        let [lowest, low, high] = [1, 2, 7].map(weight);
        let children = [(high, long, 1), (low, long, 3), (lowest, long, 1)];
        let [above, own] = [(high, long, mbit(2), 3000), (low, long, mbit(1), 2000)];
        let siblings =
            Siblings::new(Algorithm::Priority, children).with_ceilings([above, own, own]);
        let rest = |child, own| {
            let rest = siblings.residual(link, (child, long, Head::Known), own);
            rest.map(|(rest, share, wfi)| {
                assert_eq!((share, wfi.latency.bytes()), (1.0, 0.0));
                (rest.bps(), rest.lag().bytes())
            })
        };
        assert_eq!(rest(high, Some((mbit(2), 3000))), Some((8_000_000, 1000.0)));
        // That of the same level without a ceiling counts for the others and not for itself.
        assert_eq!(rest(low, None), Some((4_000_000, 8000.0)));
        assert_eq!(rest(low, Some((mbit(1), 2000))), None);
        assert_eq!(rest(lowest, None), None);
        let plain = Siblings::new(Algorithm::Priority, children);
        assert_eq!(plain.residual(link, (low, long, Head::Known), None), None);
    }
}
